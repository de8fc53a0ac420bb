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

use crate::collective::PyBoundAxis;
use crate::devices::DeviceArg;
use crate::errors::IntoPy;
use crate::executor::PyExecutor;
use crate::interpreter::{Once, intern};
use crate::lazy::PyGraph;
use crate::scalars;
use crate::streams::PyStream;
use girih::location::Scope;
use girih::{CompileOptions, Context, Device, Executor, Frame, Stream};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The differences between a scope and the enclosing scope.
#[derive(Clone, Default)]
struct Delta {
    graph: Option<girih::Graph>,
    executor: Option<Executor>,
    device: Option<Device>,
    stream: Option<Stream>,
    eager: Option<bool>,
    verify: Option<bool>,
    nans: Option<bool>,
    grad: Option<bool>,
    options: Option<CompileOptions>,
    name: Option<String>,
    axis: Option<girih::BoundAxis>,
    /// A half-precision dtype; `Some(None)` switches autocast off.
    autocast: Option<Option<girih::DType>>,
}

impl Delta {
    fn apply(&self, mut frame: Frame) -> girih::Result<Frame> {
        if let Some(graph) = &self.graph {
            frame = frame.with_graph(graph.clone());
        }
        if let Some(executor) = &self.executor {
            frame = frame.with_executor(executor.clone());
        }
        if let Some(device) = self.device {
            frame = frame.with_device(Some(device));
        }
        if let Some(stream) = &self.stream {
            frame = frame.with_stream(stream.clone());
        }
        if let Some(on) = self.eager {
            frame = frame.with_eager(on);
        }
        if let Some(on) = self.verify {
            frame = frame.with_verify_shapes(on);
        }
        if let Some(on) = self.nans {
            frame = frame.with_debug_nans(on);
        }
        if let Some(on) = self.grad {
            frame = frame.with_grad(on);
        }
        if let Some(options) = self.options {
            frame = frame.with_options(options);
        }
        if let Some(name) = &self.name {
            frame = frame.with_named_scope(name);
        }
        if let Some(axis) = &self.axis {
            frame = frame.with_axis(axis.clone());
        }
        match self.autocast {
            Some(half) => frame.with_autocast(half),
            None => Ok(frame),
        }
    }
}

/// The frame of a scope.
#[pyclass(name = "Frame", module = "girih._girih", frozen)]
struct PyFrame {
    /// The number of the scope; 0 for settings that a task made outside of all scopes.
    scope: u64,
    delta: Delta,
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
    fn new(scope: u64, delta: Delta, frame: Frame, outer: Option<Py<PyFrame>>) -> PyFrame {
        let (frame, left) = (Mutex::new(frame), Arc::default());
        PyFrame { scope, delta, frame, outer, left, _open: Open::new() }
    }

    /// A new frame for the same scope.
    fn with(&self, frame: Frame, outer: Option<Py<PyFrame>>) -> PyFrame {
        let left = self.left.clone();
        PyFrame { left, ..PyFrame::new(self.scope, self.delta.clone(), frame, outer) }
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

/// Enters the scope with this number, with the given settings changed (`fresh`: a new graph;
/// `history`: a new graph that keeps what is recorded; `autocast`: "off", or the name of a
/// half-precision dtype). Returns: None.
#[pyfunction]
#[pyo3(signature = (scope, *, graph=None, fresh=false, history=false, executor=None, device=None, stream=None, eager=None, verify=None, nans=None, grad=None, options=None, name=None, axis=None, autocast=None))]
#[allow(clippy::too_many_arguments, reason = "one per thing that a scope may change")]
fn enter_scope(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::whole)] scope: u64,
    graph: Option<&PyGraph>,
    #[pyo3(from_py_with = scalars::flag)] fresh: bool,
    #[pyo3(from_py_with = scalars::flag)] history: bool,
    executor: Option<&PyExecutor>,
    device: Option<DeviceArg>,
    stream: Option<&PyStream>,
    #[pyo3(from_py_with = scalars::maybe_flag)] eager: Option<bool>,
    #[pyo3(from_py_with = scalars::maybe_flag)] verify: Option<bool>,
    #[pyo3(from_py_with = scalars::maybe_flag)] nans: Option<bool>,
    #[pyo3(from_py_with = scalars::maybe_flag)] grad: Option<bool>,
    options: Option<(u32, u32, u32)>,
    #[pyo3(from_py_with = scalars::maybe_text)] name: Option<&str>,
    axis: Option<&PyBoundAxis>,
    #[pyo3(from_py_with = scalars::maybe_text)] autocast: Option<&str>,
) -> PyResult<()> {
    let graph = match graph {
        Some(graph) => Some(graph.0.clone()),
        None if history => Some(girih::Graph::with_history()),
        None => fresh.then(girih::Graph::new),
    };
    let executor = executor.map(|executor| executor.0.clone());
    let device = device.map(|device| device.0);
    let stream = stream.map(|stream| stream.0.clone());
    let options = options.map(|(passes, fusion, user)| CompileOptions { passes, fusion, user });
    let name = name.filter(|_| girih::location::enabled());
    let axis = axis.map(|axis| axis.0.clone());
    sync(py);
    let half = |name: &str| (name != "off").then(|| girih::DType::parse(name)).transpose();
    let autocast = autocast.map(half).transpose().py()?;
    let delta = Delta {
        graph,
        executor,
        device,
        stream,
        eager,
        verify,
        nans,
        grad,
        options,
        name: name.map(str::to_string),
        axis,
        autocast,
    };
    let frame = delta.apply(Context::current().frame()).py()?;
    let outer = wanted(py)?.map(Bound::unbind);
    set_frame(py, Some(Py::new(py, PyFrame::new(scope, delta, frame, outer))?))
}

/// Leaves the scope with this number, which need not be the innermost scope. Returns: None.
#[pyfunction]
fn leave_scope(py: Python<'_>, #[pyo3(from_py_with = scalars::whole)] scope: u64) -> PyResult<()> {
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
        outer = Some(Py::new(py, frame.with(frame.delta.apply(base).py()?, outer))?);
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
        None if in_task(py) => PyFrame::new(0, Delta::default(), frame, None),
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

/// Records to this graph in the calling context. Returns: None.
#[pyfunction]
fn set_graph(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyGraph>,
) -> PyResult<()> {
    change(py, |frame| frame.with_graph(graph.get().0.clone()))
}

/// Whether results of tensors that require gradients require gradients too. Returns: bool.
#[pyfunction]
fn is_grad_enabled(py: Python<'_>) -> bool {
    sync(py);
    Context::current().grad()
}

/// The half-precision dtype of autocast in this context; None without autocast.
/// Returns: str | None.
#[pyfunction]
fn autocast_dtype(py: Python<'_>) -> Option<&'static str> {
    sync(py);
    Context::current().autocast().map(girih::DType::name)
}

/// Whether ops are computed as soon as they are recorded. Returns: bool.
#[pyfunction]
fn is_eager(py: Python<'_>) -> PyResult<bool> {
    sync(py);
    Context::current().eager().py()
}

/// Switches eager mode, in which ops are computed as soon as they are recorded. Returns: None.
#[pyfunction]
fn set_eager(py: Python<'_>, #[pyo3(from_py_with = scalars::flag)] on: bool) -> PyResult<()> {
    change(py, |frame| frame.with_eager(on))
}

/// Whether the shapes of compiled ops are compared with the shape rules. Returns: bool.
#[pyfunction]
fn is_verifying_shapes(py: Python<'_>) -> PyResult<bool> {
    sync(py);
    Context::current().verify_shapes().py()
}

/// Switches the comparison of the shapes of compiled ops with the shape rules. Returns: None.
#[pyfunction]
fn set_verify_shapes(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
) -> PyResult<()> {
    change(py, |frame| frame.with_verify_shapes(on))
}

/// Whether a NaN in a result is an error. Returns: bool.
#[pyfunction]
fn is_debugging_nans(py: Python<'_>) -> PyResult<bool> {
    sync(py);
    Context::current().debug_nans().py()
}

/// Switches whether a NaN in a result is an error. Returns: None.
#[pyfunction]
fn set_debug_nans(py: Python<'_>, #[pyo3(from_py_with = scalars::flag)] on: bool) -> PyResult<()> {
    change(py, |frame| frame.with_debug_nans(on))
}

/// Whether ops store the source line that recorded them, for errors. Returns: bool.
#[pyfunction]
fn has_source_lines() -> bool {
    girih::location::enabled()
}

/// Switches whether ops store the source line that recorded them. Returns: None.
#[pyfunction]
fn set_source_lines(#[pyo3(from_py_with = scalars::flag)] on: bool) {
    girih::location::set_enabled(on);
}

/// A named scope.
#[pyclass(name = "ScopeHandle", module = "girih._girih", frozen)]
struct PyScope(Scope);

/// Enters a scope with this name; returns the previous scope. Returns: ScopeHandle.
#[pyfunction]
fn enter_named_scope(#[pyo3(from_py_with = scalars::text)] name: &str) -> PyScope {
    let outer = Scope::current();
    if girih::location::enabled() {
        outer.child(name).set();
    }
    PyScope(outer)
}

/// Restores the scope that [`enter_named_scope`] returned. Returns: None.
#[pyfunction]
fn leave_named_scope(outer: &PyScope) {
    outer.0.clone().set();
}

/// Adds this file's functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFrame>()?;
    m.add_class::<PyScope>()?;
    m.add_function(wrap_pyfunction!(enter_scope, m)?)?;
    m.add_function(wrap_pyfunction!(leave_scope, m)?)?;
    m.add_function(wrap_pyfunction!(set_graph, m)?)?;
    m.add_function(wrap_pyfunction!(is_eager, m)?)?;
    m.add_function(wrap_pyfunction!(is_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(autocast_dtype, m)?)?;
    m.add_function(wrap_pyfunction!(set_eager, m)?)?;
    m.add_function(wrap_pyfunction!(is_verifying_shapes, m)?)?;
    m.add_function(wrap_pyfunction!(set_verify_shapes, m)?)?;
    m.add_function(wrap_pyfunction!(set_debug_nans, m)?)?;
    m.add_function(wrap_pyfunction!(is_debugging_nans, m)?)?;
    m.add_function(wrap_pyfunction!(has_source_lines, m)?)?;
    m.add_function(wrap_pyfunction!(set_source_lines, m)?)?;
    m.add_function(wrap_pyfunction!(enter_named_scope, m)?)?;
    m.add_function(wrap_pyfunction!(leave_named_scope, m)?)
}
