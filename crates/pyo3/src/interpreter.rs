//! Acquires and releases the interpreter. Front ends do so by these functions only. They know
//! whether a thread has the interpreter, and check in debug builds that no thread waits for the
//! interpreter while it holds a lock of the library (see `girih_sync`).

mod ending;

use girih_record::host::{self, Section, foreign};
use girih_record::stream::synchronize;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyMapping, PySequence};
use pyo3::{PyTypeCheck, ffi};
use std::cell::Cell;
use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::OnceLock;

thread_local! {
    /// Whether this thread has released the interpreter by [`detach`].
    static DETACHED: Cell<bool> = const { Cell::new(false) };
}

/// Sets [`DETACHED`] while `f` runs.
fn with_detached<T>(detached: bool, f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            DETACHED.set(self.0);
        }
    }
    let _restore = Restore(DETACHED.replace(detached));
    f()
}

/// Runs `f` with the interpreter released for other threads.
#[inline]
pub fn detach<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> T {
    let (value, _inside) = py.detach(|| {
        let value = with_detached(true, || ending::released(f));
        // Counted until this thread has the interpreter again.
        (value, ending::enter_again())
    });
    value
}

/// Runs `f` with the interpreter, on a thread that Python code waits for. Such a thread exists only
/// as long as the interpreter.
#[inline]
#[track_caller]
pub fn attach<T>(f: impl FnOnce(Python<'_>) -> T) -> T {
    foreign::assert_allowed();
    let _inside = (!is_attached()).then(ending::enter);
    Python::attach(|py| with_detached(false, || f(py)))
}

/// As [`attach`], on a thread of the library, which may outlive the interpreter; `None` if the
/// interpreter has ended.
#[track_caller]
pub fn try_attach<T>(f: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    foreign::assert_allowed();
    let _inside = (!is_attached()).then(ending::enter);
    Python::try_attach(|py| with_detached(false, || f(py)))
}

/// A value that is made once. The interpreter guards it, and is not released in between as by
/// PyO3's cell, so no other thread forks the process while the cell is being set: the child would
/// wait for a thread that it does not have. Threads that find the cell empty may all make a value;
/// the first one stays.
pub struct Once<T>(OnceLock<T>);

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once::new()
    }
}

impl<T> Once<T> {
    /// An empty cell.
    pub const fn new() -> Once<T> {
        Once(OnceLock::new())
    }

    /// The value; made by `make` if there is none.
    pub fn get_or_init(&self, py: Python<'_>, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(py, || Ok::<T, Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// The value; made by `make` if there is none.
    pub fn get_or_try_init<E>(
        &self,
        _: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        if let Some(value) = self.0.get() {
            return Ok(value);
        }
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl<T: PyTypeCheck> Once<Py<T>> {
    /// The object of that name in a module, which is imported if the cell is empty.
    pub fn import<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        name: &str,
    ) -> PyResult<&Bound<'py, T>> {
        let find = || {
            let found = py.import(module)?.getattr(name)?.cast_into::<T>()?;
            Ok::<_, PyErr>(found.unbind())
        };
        Ok(self.get_or_try_init(py, find)?.bind(py))
    }
}

/// A Python string that is made once.
#[macro_export]
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static TEXT: $crate::interpreter::Once<::pyo3::Py<::pyo3::types::PyString>> =
            $crate::interpreter::Once::new();
        let make = || ::pyo3::types::PyString::intern($py, $text).unbind();
        TEXT.get_or_init($py, make).bind($py)
    }};
}

pub use crate::intern;

/// An object of Python that the library owns, and may drop on a thread without the interpreter. PyO3
/// then puts it on a list, and no thread may fork meanwhile: the list would stay locked in the
/// child.
pub struct Held<T>(ManuallyDrop<T>);

impl<T> Held<T> {
    /// Wraps an object.
    pub fn new(object: T) -> Held<T> {
        Held(ManuallyDrop::new(object))
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let attached = is_attached();
        if attached {
            // The destructor runs now.
            foreign::assert_allowed();
        }
        let _no_fork = (!attached).then(Section::enter);
        // SAFETY: the object is dropped once, and never used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// Whether this thread has the interpreter.
fn is_attached() -> bool {
    // SAFETY: may be called on any thread at any time.
    !DETACHED.get() && unsafe { !ffi::PyGILState_GetThisThreadState().is_null() }
}

/// Runs `f`, which waits for other threads, with the interpreter released.
fn waiting(f: &mut (dyn FnMut() + Send)) {
    match is_attached() {
        true => attach(|py| detach(py, f)),
        false => f(),
    }
}

/// Runs Python's cyclic garbage collector, because cycles of objects may hold tensors; true if it
/// found any.
fn collect_garbage() -> bool {
    let collected = try_attach(|py| {
        let found = py.import("gc").and_then(|gc| gc.call_method0("collect")?.extract::<usize>());
        found.is_ok_and(|found| found > 0)
    });
    collected == Some(true)
}

/// Fails in a subinterpreter. The library's state, such as tensors, contexts and the classes of
/// exceptions, belongs to the process, and its objects must not reach another interpreter.
pub fn check_main(py: Python<'_>) -> PyResult<()> {
    const MAIN: i64 = 0;
    // SAFETY: the thread is attached, so there is a current interpreter.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match number {
        MAIN => Ok(()),
        ..MAIN => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err(format!(
            "girih works in the main interpreter of a process only, and this is subinterpreter \
             {number}; use threads, or processes, and import girih there"
        ))),
    }
}

/// Waits for all queued work, as the interpreter does for threads. Registered to be called before
/// the interpreter ends, because work that is queued then may be a Python function. An interrupt
/// ends the wait. Returns: None.
#[pyfunction]
fn finish(py: Python<'_>) -> PyResult<()> {
    // Each call reports the failure of one queue.
    while let Err(error) = detach(py, || synchronize(None)) {
        if let Some(interrupt) = crate::errors::take_interrupt(Some(&error)) {
            return Err(interrupt);
        }
    }
    // From now on threads take the interpreter only while this one waits.
    ending::begin();
    detach(py, || ());
    Ok(())
}

/// Sets the cells of PyO3 that this crate uses, before there are threads: see [`Once`].
fn set_cells(py: Python<'_>) -> PyResult<()> {
    let list = PyList::empty(py);
    let _ = list.try_iter()?.size_hint();
    let _ = (list.cast::<PySequence>(), list.cast::<PyMapping>());
    let _ = py.None().bind(py).extract::<bool>();
    let class = list.get_type();
    let _ = (class.name()?, class.qualname()?, class.module()?, class.fully_qualified_name()?);
    let _ = (class.mro(), class.bases());
    Ok(())
}

/// Registers the functions by which the library releases the interpreter, and by which the
/// interpreter waits for the library at its end.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    ending::count();
    foreign::set_interpreter_probe(is_attached);
    host::set_interrupt_hook(crate::errors::interrupted);
    host::set_wait_hook(waiting);
    host::set_collector(collect_garbage);
    host::set_outside(|f| attach(|py| detach(py, f)));
    m.add_function(wrap_pyfunction!(finish, m)?)?;
    set_cells(m.py())?;
    let atexit = m.py().import("atexit")?;
    atexit.call_method1("register", (m.getattr("finish")?,))?;
    Ok(())
}
