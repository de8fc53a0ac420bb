//! Contexts from Python: scopes that belong to an asyncio task.
//!
//! A scope's frame is the value of a context variable, so each task has its own. The library has
//! one current frame per thread. While any scope is open, recording therefore first makes the
//! running task's frame the current one ([`sync`]). Without open scopes, this costs nothing.
//!
//! Scopes may be left in an order other than the reverse of entering: interleaved generators leave
//! their scopes as they end. So a frame references the enclosing scope and stores its differences
//! from the enclosing scope, and leaving a scope removes it from below the scopes that were entered
//! later.

use crate::errors::IntoPy;
use crate::interpreter::{Once, intern};
use girih_record::context::{Context, Frame, FrameChanges};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The frame of a scope.
#[pyclass(name = "Frame", module = "girih._girih", frozen)]
struct PyFrame {
    /// The number of the scope; 0 for settings that a task made outside of all scopes.
    scope: u64,
    changes: FrameChanges,
    frame: Mutex<Frame>,
    /// The enclosing scope; None for the thread's own context.
    outer: Option<Py<PyFrame>>,
    /// Whether the scope was left, in any context; shared by the frames of the scope.
    left: Arc<AtomicBool>,
    _open: Open,
}

/// Counts the frames of scopes that exist in the process.
struct Open;

impl Open {
    fn new() -> Open {
        OPEN.fetch_add(1, Relaxed);
        Open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Relaxed);
    }
}

impl PyFrame {
    fn new(scope: u64, changes: FrameChanges, frame: Frame, outer: Option<Py<PyFrame>>) -> PyFrame {
        let (frame, left) = (Mutex::new(frame), Arc::default());
        PyFrame { scope, changes, frame, outer, left, _open: Open::new() }
    }

    /// A new frame for the same scope.
    fn with(&self, frame: Frame, outer: Option<Py<PyFrame>>) -> PyFrame {
        let left = self.left.clone();
        PyFrame { left, ..PyFrame::new(self.scope, self.changes.clone(), frame, outer) }
    }

    fn replace(&self, frame: Frame) -> Frame {
        let mut held = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut held, frame)
    }

    fn get(&self) -> Frame {
        self.frame.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The number of frames of scopes in the process.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether the thread's current frame is that of a scope.
    static SWITCHED: Cell<bool> = const { Cell::new(false) };
    /// The current frame; None for the thread's own frame.
    static CURRENT: RefCell<Option<Py<PyFrame>>> = const { RefCell::new(None) };
    /// The thread's own frame, while another frame is current.
    static OWN: RefCell<Option<Frame>> = const { RefCell::new(None) };
}

/// The variable that holds the running task's frame.
fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: Once<Py<PyAny>> = Once::new();
    let make = || {
        let options = PyDict::new(py);
        options.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        Ok::<_, PyErr>(class.call(("girih",), Some(&options))?.unbind())
    };
    Ok(VARIABLE.get_or_try_init(py, make)?.bind(py))
}

/// The running task's frame; None for the thread's own frame.
fn wanted<'py>(py: Python<'py>) -> PyResult<Option<Bound<'py, PyFrame>>> {
    let wanted = variable(py)?.call_method0(intern!(py, "get"))?;
    Ok((!wanted.is_none()).then(|| wanted.cast_into::<PyFrame>()).transpose()?)
}

/// Makes the running task's frame the current one. Call it before any code that depends on the
/// context.
#[inline]
pub fn sync(py: Python<'_>) {
    if OPEN.load(Relaxed) > 0 || SWITCHED.get() {
        // The variable exists. If it cannot be read, the frame stays as it is.
        let _ = switch(py);
    }
}

fn switch(py: Python<'_>) -> PyResult<()> {
    let wanted = wanted(py)?;
    // Dropping a frame may run code of users, which may switch again, so nothing is borrowed then.
    let dropped = CURRENT.with_borrow_mut(|current| {
        let same = match (&wanted, &*current) {
            (None, None) => true,
            (Some(wanted), Some(current)) => wanted.as_ptr() == current.as_ptr(),
            _ => false,
        };
        if same {
            return None;
        }
        let frame = match &wanted {
            Some(wanted) => wanted.get().get(),
            None => OWN.take()?,
        };
        // Changes within the other frame's scope stay with that frame.
        let left = Context::current().swap(frame);
        let stale = match &*current {
            Some(current) => Some(current.get().replace(left)),
            None => OWN.replace(Some(left)),
        };
        SWITCHED.set(wanted.is_some());
        let last = std::mem::replace(current, wanted.map(Bound::unbind));
        Some((stale, last))
    });
    drop(dropped);
    Ok(())
}

/// The thread's own frame, even while another frame is current.
fn own() -> Frame {
    OWN.with_borrow(Option::clone).unwrap_or_else(|| Context::current().frame())
}

/// Makes a frame the frame of the running task.
fn set_frame(py: Python<'_>, frame: Option<Py<PyFrame>>) -> PyResult<()> {
    variable(py)?.call_method1(intern!(py, "set"), (frame,))?;
    switch(py)
}

/// Enters the scope with this number, with these changes.
///
/// Errors: as [`FrameChanges::apply`].
pub fn enter(py: Python<'_>, scope: u64, changes: FrameChanges) -> PyResult<()> {
    sync(py);
    let frame = changes.apply(Context::current().frame()).py()?;
    let outer = wanted(py)?.map(Bound::unbind);
    set_frame(py, Some(Py::new(py, PyFrame::new(scope, changes, frame, outer))?))
}

/// Leaves the scope with this number, which need not be the innermost scope.
pub fn leave(py: Python<'_>, scope: u64) -> PyResult<()> {
    sync(py);
    // The frames that were entered later, innermost first.
    let mut inner: Vec<Py<PyFrame>> = Vec::new();
    let mut at = wanted(py)?.map(Bound::unbind);
    while let Some(frame) = at.take() {
        if frame.get().scope == scope {
            frame.get().left.store(true, Relaxed);
            return set_frame(py, without(py, &frame, inner)?);
        }
        at = frame.get().outer.as_ref().map(|outer| outer.clone_ref(py));
        inner.push(frame);
    }
    // The scope was entered in another context and stays open there.
    Ok(())
}

/// Removes a scope from below inner scopes; returns the new innermost frame.
fn without(
    py: Python<'_>,
    taken: &Py<PyFrame>,
    inner: Vec<Py<PyFrame>>,
) -> PyResult<Option<Py<PyFrame>>> {
    let mut outer = taken.get().outer.as_ref().map(|outer| outer.clone_ref(py));
    // Skip scopes that were left in another context, for example by a generator that another task
    // closed.
    while let Some(left) = outer.as_ref().filter(|outer| outer.get().left.load(Relaxed)) {
        outer = left.get().outer.as_ref().map(|outer| outer.clone_ref(py));
    }
    for frame in inner.into_iter().rev() {
        let base = outer.as_ref().map_or_else(own, |outer| outer.get().get());
        let frame = frame.get();
        outer = Some(Py::new(py, frame.with(frame.changes.apply(base).py()?, outer))?);
    }
    Ok(outer)
}

/// Changes the running task's context until the task ends, or until it leaves its current scope.
pub fn change(py: Python<'_>, how: impl FnOnce(Frame) -> Frame) -> PyResult<()> {
    sync(py);
    let context = Context::current();
    let frame = how(context.frame());
    let frame = match wanted(py)? {
        // Other tasks may have started within the same scope, so make a new frame.
        Some(now) => now.get().with(frame, now.get().outer.as_ref().map(|o| o.clone_ref(py))),
        None if in_task(py) => PyFrame::new(0, FrameChanges::default(), frame, None),
        None => {
            context.swap(frame);
            return Ok(());
        }
    };
    set_frame(py, Some(Py::new(py, frame)?))
}

/// True if the calling code runs in an asyncio task.
fn in_task(py: Python<'_>) -> bool {
    let task = || {
        let modules = py.import("sys")?.getattr("modules")?;
        modules.get_item("asyncio")?.call_method0("current_task")
    };
    task().is_ok_and(|task| !task.is_none())
}

/// Adds this file's class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFrame>()
}
