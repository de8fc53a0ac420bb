//! Executors from Python, and compilation in the background.

use crate::contexts::{change, sync};
use crate::errors::{IntoPy, invalid};
use crate::interpreter::detach;
use crate::lazy::{PyGraph, stats_dict};
use crate::passes::PyPass;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::{Context, Executor, ExecutorConfig};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

/// An executor, which runs programs.
#[pyclass(name = "ExecutorHandle", module = "girih._girih", frozen)]
pub struct PyExecutor(pub Executor);

/// Success, message, three times in milliseconds, and the outputs by node number.
type Executed = (bool, String, f64, f64, f64, BTreeMap<u32, PyTensor>);

/// The names and milliseconds of the stages, and of the kernels.
type Profiled = (Vec<(String, f64)>, Vec<(String, f64)>);

#[pymethods]
impl PyExecutor {
    #[new]
    fn new(
        #[pyo3(from_py_with = scalars::flag)] use_cache: bool,
        #[pyo3(from_py_with = scalars::flag)] profile: bool,
        #[pyo3(from_py_with = scalars::own_text)] device: String,
        #[pyo3(from_py_with = scalars::number)] timeout_seconds: f64,
        passes: Listed<PyRef<'_, PyPass>>,
    ) -> PyResult<Self> {
        let passes = passes.iter().map(|pass| pass.0.clone()).collect();
        let config = ExecutorConfig { use_cache, profile, device, timeout_seconds, passes };
        Ok(PyExecutor(Executor::new(config).py()?))
    }

    /// The executor of the calling context. Returns: ExecutorHandle.
    #[staticmethod]
    fn current(py: Python<'_>) -> PyResult<PyExecutor> {
        sync(py);
        Ok(PyExecutor(Context::current().executor().py()?))
    }

    /// Makes this executor the one of the calling context. Returns: None.
    fn make_current(&self, py: Python<'_>) -> PyResult<()> {
        change(py, |frame| frame.with_executor(self.0.clone()))
    }

    /// The configuration: use_cache, profile, device, timeout_seconds and passes.
    /// Returns: tuple[bool, bool, str, float, list[GraphPass]].
    fn config(&self) -> (bool, bool, String, f64, Vec<PyPass>) {
        let config = self.0.config();
        let passes = config.passes.iter().cloned().map(PyPass).collect();
        (config.use_cache, config.profile, config.device.clone(), config.timeout_seconds, passes)
    }

    /// Computes nodes of a graph. The result is success, message, the milliseconds of compilation,
    /// transfer and computation, and the outputs by node number.
    /// Returns: tuple[bool, str, float, float, float, dict[int, Tensor]].
    fn execute(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyGraph>,
        #[pyo3(from_py_with = scalars::wholes)] nodes: Listed<u32>,
    ) -> PyResult<Executed> {
        let graph = &graph.get().0;
        let result = detach(py, || self.0.execute(graph, &nodes));
        // An interrupt is not a failure of the program.
        if let Some(interrupt) = crate::errors::take_interrupt(result.error.as_ref()) {
            return Err(interrupt);
        }
        let outputs = result.outputs.into_iter().map(|(id, t)| (id, PyTensor(t))).collect();
        let (compile, transfer) = (result.compile_time_ms, result.transfer_time_ms);
        let message = result.error_message;
        Ok((result.success, message, compile, transfer, result.compute_time_ms, outputs))
    }

    /// Computes one node of a graph. Returns: Tensor.
    fn execute_single(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyGraph>,
        #[pyo3(from_py_with = scalars::whole)] node: u32,
    ) -> PyResult<PyTensor> {
        let graph = &graph.get().0;
        let mut result = detach(py, || self.0.execute(graph, &[node]));
        match (result.outputs.remove(&node), result.error) {
            (Some(tensor), None) => Ok(PyTensor(tensor)),
            (_, Some(error)) => Err(crate::errors::raise(error)),
            (None, None) => Err(invalid(format!("execute_single: node {node} has no value"))),
        }
    }

    /// Compiles the program for nodes of a graph; False if there was nothing to compile.
    /// Returns: bool.
    fn compile_only(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyGraph>,
        #[pyo3(from_py_with = scalars::wholes)] nodes: Listed<u32>,
    ) -> PyResult<bool> {
        let graph = &graph.get().0;
        detach(py, || self.0.compile_only(graph, &nodes)).py()
    }

    /// Drops the compiled programs. Returns: None.
    fn clear_cache(&self) {
        self.0.clear_cache();
    }

    /// The counters of the programs that this executor has compiled and run, and of its program
    /// cache.
    /// Returns: dict[str, float].
    fn cache_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.0.cache_stats())
    }

    /// Stops the running and the queued evaluations. Returns: None.
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

/// The compilation of a program in the background.
#[pyclass(name = "Compilation", module = "girih", frozen)]
struct PyCompilation(girih::Compilation);

#[pymethods]
impl PyCompilation {
    /// True once the compilation has ended, successfully or not. Returns: bool.
    fn done(&self) -> bool {
        self.0.done()
    }

    /// Waits until the compilation has ended; raises its error if it failed. Returns: None.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        detach(py, || self.0.wait()).py()
    }
}

/// Starts compiling the graph of tensors in the background. Returns: Compilation.
#[pyfunction]
fn compile_only_many(py: Python<'_>, tensors: Listed<Py<PyTensor>>) -> PyResult<PyCompilation> {
    sync(py);
    let tensors = crate::lazy::values(py, &tensors);
    Ok(PyCompilation(detach(py, || girih::compile_only(&tensors)).py()?))
}

/// Compiles a program for inputs like these, without running it. Returns: None.
#[pyfunction]
fn compile_program(
    py: Python<'_>,
    program: &crate::program::PyProgram,
    inputs: Listed<Py<PyTensor>>,
) -> PyResult<()> {
    sync(py);
    let program = program.program().clone();
    let inputs = crate::lazy::values(py, &inputs);
    detach(py, || program.compile(&inputs.iter().collect::<Vec<_>>())).py()
}

/// Adds this file's functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyExecutor>()?;
    m.add_class::<PyCompilation>()?;
    m.add_function(wrap_pyfunction!(compile_only_many, m)?)?;
    m.add_function(wrap_pyfunction!(compile_program, m)?)
}
