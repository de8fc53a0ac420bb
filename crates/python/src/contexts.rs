//! Contexts from Python: scopes that belong to an asyncio task, and executors.
//!
//! A scope's frame is the value of a context variable, so each task sees its own. The library has
//! one current frame per thread, so as long as any scope is open on a thread, recording first makes
//! the running task's frame the current one ([`sync`]). Without open scopes that costs nothing.

use crate::errors::{IntoPy, invalid};
use crate::lazy::{PyGraph, stats_dict};
use crate::tensor::PyTensor;
use girih::location::Scope;
use girih::{Context, Executor, ExecutorConfig, Frame};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a scope makes of its context.
#[pyclass(name = "Frame", module = "girih._girih", frozen)]
struct PyFrame(Mutex<Frame>);

impl PyFrame {
    fn replace(&self, frame: Frame) -> Frame {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut held, frame)
    }

    fn get(&self) -> Frame {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

thread_local! {
    /// Scopes open on this thread.
    static OPEN: Cell<usize> = const { Cell::new(0) };
    /// Whose frame is the thread's current one; None for the thread's own.
    static CURRENT: RefCell<Option<Py<PyFrame>>> = const { RefCell::new(None) };
    /// The thread's own frame, while another is current.
    static OWN: RefCell<Option<Frame>> = const { RefCell::new(None) };
}

/// The variable that holds the running task's frame.
fn variable(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || {
        let options = PyDict::new(py);
        options.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        Ok::<_, PyErr>(class.call(("girih",), Some(&options))?.unbind())
    };
    Ok(VARIABLE.get_or_try_init(py, make)?.bind(py))
}

/// Makes the running task's frame the current one. To be called before anything that depends on
/// the context.
#[inline]
pub fn sync(py: Python<'_>) {
    if OPEN.get() > 0 {
        // The variable exists; what cannot be read leaves the frame as it is.
        let _ = switch(py);
    }
}

fn switch(py: Python<'_>) -> PyResult<()> {
    let wanted = variable(py)?.call_method0(intern!(py, "get"))?;
    let wanted = (!wanted.is_none()).then(|| wanted.cast_into::<PyFrame>()).transpose()?;
    CURRENT.with_borrow_mut(|current| {
        let same = match (&wanted, &*current) {
            (None, None) => true,
            (Some(wanted), Some(current)) => wanted.as_ptr() == current.as_ptr(),
            _ => false,
        };
        if same {
            return;
        }
        let frame = match &wanted {
            Some(wanted) => wanted.get().get(),
            None => match OWN.take() {
                Some(own) => own,
                None => return,
            },
        };
        // What was set within the other's scope stays with it.
        let left = Context::current().swap(frame);
        match &*current {
            Some(current) => drop(current.get().replace(left)),
            None => OWN.set(Some(left)),
        }
        *current = wanted.map(Bound::unbind);
    });
    Ok(())
}

/// Enters a scope that differs from the present one in what is given (`fresh`: in its graph) and
/// gives what `leave_scope` needs. Returns: Any.
#[pyfunction]
#[pyo3(signature = (*, graph=None, fresh=false, executor=None, eager=None, verify=None))]
fn enter_scope<'py>(
    py: Python<'py>,
    graph: Option<&PyGraph>,
    fresh: bool,
    executor: Option<&PyExecutor>,
    eager: Option<bool>,
    verify: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    sync(py);
    let mut frame = Context::current().frame();
    if let Some(graph) = graph {
        frame = frame.with_graph(graph.0.clone());
    } else if fresh {
        frame = frame.with_graph(girih::Graph::new());
    }
    if let Some(executor) = executor {
        frame = frame.with_executor(executor.0.clone());
    }
    if let Some(on) = eager {
        frame = frame.with_eager(on);
    }
    if let Some(on) = verify {
        frame = frame.with_verify_shapes(on);
    }
    let variable = variable(py)?;
    let before = variable.call_method0("get")?;
    variable.call_method1("set", (Bound::new(py, PyFrame(Mutex::new(frame)))?,))?;
    OPEN.set(OPEN.get() + 1);
    switch(py)?;
    Ok(before)
}

/// Leaves a scope. Returns: None.
#[pyfunction]
fn leave_scope(before: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = before.py();
    variable(py)?.call_method1("set", (before,))?;
    switch(py)?;
    OPEN.set(OPEN.get().saturating_sub(1));
    Ok(())
}

/// Has the calling context record to a graph. Returns: None.
#[pyfunction]
fn set_graph(py: Python<'_>, graph: &PyGraph) {
    sync(py);
    Context::current().set_graph(&graph.0);
}

/// Whether ops are computed as they are recorded. Returns: bool.
#[pyfunction]
fn is_eager(py: Python<'_>) -> PyResult<bool> {
    sync(py);
    Context::current().eager().py()
}

/// Has ops computed as they are recorded, or when they are needed. Returns: None.
#[pyfunction]
fn set_eager(py: Python<'_>, on: bool) {
    sync(py);
    Context::current().set_eager(on);
}

/// Whether what is built is compared with what shape rules say. Returns: bool.
#[pyfunction]
fn is_verifying_shapes(py: Python<'_>) -> PyResult<bool> {
    sync(py);
    Context::current().verify_shapes().py()
}

/// Has what is built compared with what shape rules say, when programs are compiled. Returns: None.
#[pyfunction]
fn set_verify_shapes(py: Python<'_>, on: bool) {
    sync(py);
    Context::current().set_verify_shapes(on);
}

/// Whether ops keep the line that recorded them, for errors. Returns: bool.
#[pyfunction]
fn has_source_lines() -> bool {
    girih::location::enabled()
}

/// Has ops keep the line that recorded them, or not. Returns: None.
#[pyfunction]
fn set_source_lines(on: bool) {
    girih::location::set_enabled(on);
}

/// Enters a scope of that name, and gives what was entered before. Returns: int.
#[pyfunction]
fn enter_named_scope(name: &str) -> u32 {
    let outer = Scope::current();
    if girih::location::enabled() {
        outer.child(name).set();
    }
    outer.number()
}

/// Goes back to what [`enter_named_scope`] gave. Returns: None.
#[pyfunction]
fn leave_named_scope(outer: u32) {
    Scope::from_number(outer).set();
}

/// What runs programs.
#[pyclass(name = "ExecutorHandle", module = "girih._girih", frozen)]
pub struct PyExecutor(Executor);

/// Success, message, three times in milliseconds, and the outputs by number.
type Executed = (bool, String, f64, f64, f64, BTreeMap<u32, PyTensor>);

/// Names and milliseconds of stages, and of kernels.
type Profiled = (Vec<(String, f64)>, Vec<(String, f64)>);

#[pymethods]
impl PyExecutor {
    #[new]
    fn new(use_cache: bool, profile: bool, device: String, timeout_seconds: f64) -> PyResult<Self> {
        let config = ExecutorConfig { use_cache, profile, device, timeout_seconds };
        Ok(PyExecutor(Executor::new(config).py()?))
    }

    /// The one of the calling context. Returns: ExecutorHandle.
    #[staticmethod]
    fn current(py: Python<'_>) -> PyResult<PyExecutor> {
        sync(py);
        Ok(PyExecutor(Context::current().executor().py()?))
    }

    /// Has the calling context run programs by this one. Returns: None.
    fn make_current(&self, py: Python<'_>) {
        sync(py);
        Context::current().set_executor(&self.0);
    }

    /// use_cache, profile, device and timeout_seconds. Returns: tuple[bool, bool, str, float].
    fn config(&self) -> (bool, bool, String, f64) {
        let config = self.0.config();
        (config.use_cache, config.profile, config.device.clone(), config.timeout_seconds)
    }

    /// Computes nodes of a graph: success, message, milliseconds of compiling, transfer and
    /// computing, outputs by number.
    /// Returns: tuple[bool, str, float, float, float, dict[int, Tensor]].
    fn execute(&self, py: Python<'_>, graph: &PyGraph, nodes: Vec<u32>) -> PyResult<Executed> {
        let graph = &graph.0;
        let result = py.detach(|| self.0.execute(graph, &nodes));
        // An interrupt is no failure of the program's.
        if let Some(interrupt) = crate::errors::take_interrupt(result.error.as_ref()) {
            return Err(interrupt);
        }
        let outputs = result.outputs.into_iter().map(|(id, t)| (id, PyTensor(t))).collect();
        let (compile, transfer) = (result.compile_time_ms, result.transfer_time_ms);
        let message = result.error_message;
        Ok((result.success, message, compile, transfer, result.compute_time_ms, outputs))
    }

    /// Computes one node of a graph. Returns: Tensor.
    fn execute_single(&self, py: Python<'_>, graph: &PyGraph, node: u32) -> PyResult<PyTensor> {
        let graph = &graph.0;
        let mut result = py.detach(|| self.0.execute(graph, &[node]));
        match (result.outputs.remove(&node), result.error) {
            (Some(tensor), None) => Ok(PyTensor(tensor)),
            (_, Some(error)) => Err(crate::errors::raise(error)),
            (None, None) => Err(invalid(format!("execute_single: node {node} has no value"))),
        }
    }

    /// Compiles what computes nodes of a graph; whether there was anything to compile. Returns: bool.
    fn compile_only(&self, py: Python<'_>, graph: &PyGraph, nodes: Vec<u32>) -> PyResult<bool> {
        let graph = &graph.0;
        py.detach(|| self.0.compile_only(graph, &nodes)).py()
    }

    /// Forgets compiled programs. Returns: None.
    fn clear_cache(&self) {
        self.0.clear_cache();
    }

    /// Counts of what it has compiled and run. Returns: dict[str, int].
    fn cache_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.0.cache_stats())
    }

    /// Stops what is under way or queued. Returns: None.
    fn cancel_all(&self) {
        self.0.cancel_all();
    }

    /// Milliseconds of the stages and the kernels of the last evaluation.
    /// Returns: tuple[list[tuple[str, float]], list[tuple[str, float]]] | None.
    fn profile(&self) -> Option<Profiled> {
        let profile = self.0.profile()?;
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let stages = profile.stages().map(|(name, time)| (name.to_string(), ms(time)));
        let kernels = profile.kernels.iter().map(|(name, time)| (name.clone(), ms(*time)));
        Some((stages.to_vec(), kernels.collect()))
    }
}

/// A program being compiled in the background.
#[pyclass(name = "Compilation", module = "girih", frozen)]
struct PyCompilation(girih::Compilation);

#[pymethods]
impl PyCompilation {
    /// Whether it has ended, well or not. Returns: bool.
    fn done(&self) -> bool {
        self.0.done()
    }

    /// Waits for its end, and raises what compiling failed with. Returns: None.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.wait()).py()
    }
}

/// Compiles what leads to tensors in the background. Returns: Compilation.
#[pyfunction]
fn compile_only_many(py: Python<'_>, tensors: Vec<Py<PyTensor>>) -> PyResult<PyCompilation> {
    sync(py);
    let tensors = crate::lazy::values(py, &tensors);
    Ok(PyCompilation(py.detach(|| girih::compile_only(&tensors)).py()?))
}

/// Adds this file's functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    girih::host::set_interrupt_hook(crate::errors::interrupted);
    girih::host::set_outside(|f| Python::attach(|py| py.detach(f)));
    m.add_class::<PyFrame>()?;
    m.add_class::<PyExecutor>()?;
    m.add_class::<PyCompilation>()?;
    m.add_function(wrap_pyfunction!(enter_scope, m)?)?;
    m.add_function(wrap_pyfunction!(leave_scope, m)?)?;
    m.add_function(wrap_pyfunction!(set_graph, m)?)?;
    m.add_function(wrap_pyfunction!(is_eager, m)?)?;
    m.add_function(wrap_pyfunction!(set_eager, m)?)?;
    m.add_function(wrap_pyfunction!(is_verifying_shapes, m)?)?;
    m.add_function(wrap_pyfunction!(set_verify_shapes, m)?)?;
    m.add_function(wrap_pyfunction!(has_source_lines, m)?)?;
    m.add_function(wrap_pyfunction!(set_source_lines, m)?)?;
    m.add_function(wrap_pyfunction!(enter_named_scope, m)?)?;
    m.add_function(wrap_pyfunction!(leave_named_scope, m)?)?;
    m.add_function(wrap_pyfunction!(compile_only_many, m)?)
}
