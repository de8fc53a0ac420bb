//! The scopes and modes of contexts, as Python enters and switches them. `girih_pyo3::contexts` makes
//! them those of the running asyncio task.

use crate::collective::PyBoundAxis;
use crate::devices::DeviceArg;
use crate::errors::{IntoPy, invalid};
use crate::executor::PyExecutor;
use crate::lazy::PyGraph;
use crate::scalars;
use crate::streams::PyStream;
use girih::location::Scope;
use girih::sharding::MeshMode;
use girih::{CompileOptions, Context, FrameChanges};
pub use girih_pyo3::contexts::{change, sync};
use girih_pyo3::contexts::{enter, leave};
use pyo3::prelude::*;

fn mode_of(mode: &str, seed: u64) -> PyResult<MeshMode> {
    match mode {
        "sequential" => Ok(MeshMode::Sequential),
        "concurrent" => Ok(MeshMode::Concurrent),
        "chaos" => Ok(MeshMode::Chaos(seed)),
        _ => Err(invalid(format!(
            "mesh_mode: expected 'sequential', 'concurrent' or 'chaos', got '{mode}'"
        ))),
    }
}

/// Enters the scope with this number, with the given settings changed (`fresh`: a new graph;
/// `history`: a new graph that keeps what is recorded; `autocast`: "off", or the name of a
/// half-precision dtype). Returns: None.
#[pyfunction]
#[pyo3(signature = (scope, *, graph=None, fresh=false, history=false, executor=None, device=None, stream=None, eager=None, verify=None, nans=None, grad=None, reshards=None, mesh=None, options=None, name=None, axis=None, autocast=None))]
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
    #[pyo3(from_py_with = scalars::maybe_flag)] reshards: Option<bool>,
    mesh: Option<(String, u64)>,
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
    let half = |name: &str| (name != "off").then(|| girih::DType::parse(name)).transpose();
    let changes = FrameChanges {
        graph: graph.map(Into::into),
        executor: executor.map(|executor| executor.0.clone().into()),
        device: device.map(|device| device.0),
        stream: stream.map(|stream| stream.0.clone()),
        eager,
        verify_shapes: verify,
        debug_nans: nans,
        grad,
        implicit_reshards: reshards,
        mesh_mode: mesh.map(|(mode, seed)| mode_of(&mode, seed)).transpose()?,
        options: options.map(|(passes, fusion, user)| CompileOptions { passes, fusion, user }),
        name: name.filter(|_| girih::location::enabled()).map(str::to_string),
        axis: axis.map(|axis| axis.0.clone()),
        autocast: autocast.map(half).transpose().py()?,
    };
    enter(py, scope, changes)
}

/// Leaves the scope with this number, which need not be the innermost scope. Returns: None.
#[pyfunction]
fn leave_scope(py: Python<'_>, #[pyo3(from_py_with = scalars::whole)] scope: u64) -> PyResult<()> {
    leave(py, scope)
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
