//! Evaluation, compilation, statistics and contexts.

use crate::args::IntArg;
use crate::contexts::sync;
use crate::errors::IntoPy;
use crate::interpreter::detach;
use crate::passes::PyPass;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::pass;
use girih::{CompilationInfo, CompileOptions, Graph, Stats, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The current values of handles: a handle may be assigned another value while these are computed.
pub fn values(py: Python<'_>, tensors: &[Py<PyTensor>]) -> Vec<Tensor> {
    tensors.iter().map(|t| t.borrow(py).0.clone()).collect()
}

/// Evaluates tensors in one run. Returns: None.
#[pyfunction]
fn eval_many(py: Python<'_>, tensors: Listed<Py<PyTensor>>) -> PyResult<()> {
    sync(py);
    let tensors = values(py, &tensors);
    detach(py, || girih::eval(&tensors)).py()
}

/// A weak reference to a tensor.
#[pyclass(name = "WeakTensor", module = "girih._girih", frozen)]
struct PyWeakTensor(girih::WeakTensor);

#[pymethods]
impl PyWeakTensor {
    /// The tensor, if another reference keeps it alive. Returns: Tensor | None.
    fn tensor(&self) -> Option<PyTensor> {
        self.0.upgrade().map(PyTensor)
    }
}

/// Creates a weak reference to a tensor. Returns: WeakTensor.
#[pyfunction]
fn weak(tensor: &PyTensor) -> PyWeakTensor {
    PyWeakTensor(tensor.0.downgrade())
}

/// Starts evaluating tensors and returns immediately. Returns: None.
#[pyfunction]
fn async_eval_many(py: Python<'_>, tensors: Listed<Py<PyTensor>>) -> PyResult<()> {
    sync(py);
    let tensors = values(py, &tensors);
    detach(py, || girih::async_eval(&tensors)).py()
}

/// The result of a compilation.
#[pyclass(name = "CompilationInfo", module = "girih", frozen)]
struct PyCompilationInfo(CompilationInfo);

#[pymethods]
impl PyCompilationInfo {
    /// Milliseconds of passes, lowering and compilation. Returns: float.
    #[getter]
    fn compile_time_ms(&self) -> f64 {
        self.0.compile_time.as_secs_f64() * 1e3
    }

    /// The number of nodes as recorded. Returns: int.
    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes
    }

    /// The number of nodes after the passes. Returns: int.
    #[getter]
    fn num_nodes_optimized(&self) -> usize {
        self.0.num_nodes_optimized
    }

    /// The number of kernels of the program. Returns: int.
    #[getter]
    fn num_kernels(&self) -> usize {
        self.0.num_kernels
    }

    /// The recorded graph as text. Returns: str.
    #[getter]
    fn graph_text(&self) -> String {
        self.0.graph.to_string()
    }

    /// The graph after the passes, as text. Returns: str.
    #[getter]
    fn optimized_text(&self) -> String {
        self.0.optimized.to_string()
    }

    /// The kernels as text. Returns: str.
    #[getter]
    fn kernels_text(&self) -> &str {
        &self.0.kernels
    }

    /// The graph after the passes as an SVG picture. Returns: str.
    fn optimized_svg(&self) -> String {
        girih::ir::svg::to_svg(&self.0.optimized)
    }

    fn __repr__(&self) -> String {
        format!(
            "CompilationInfo(compile_time_ms={:.3}, num_nodes={}, num_nodes_optimized={}, \
             num_kernels={})",
            self.compile_time_ms(),
            self.0.num_nodes,
            self.0.num_nodes_optimized,
            self.0.num_kernels
        )
    }
}

/// Compiles the graph of tensors without running it. Returns: CompilationInfo.
#[pyfunction]
fn compile_graph(
    py: Python<'_>,
    tensors: Listed<Py<PyTensor>>,
    #[pyo3(from_py_with = scalars::flag)] optimize: bool,
) -> PyResult<PyCompilationInfo> {
    sync(py);
    let tensors = values(py, &tensors);
    let compile = if optimize { girih::compile_graph } else { girih::compile_unoptimized };
    detach(py, || compile(&tensors)).map(PyCompilationInfo).py()
}

/// The numbers of nodes, ops and bytes in the graph of tensors. Returns: tuple[int, int, int].
#[pyfunction]
fn graph_stats(py: Python<'_>, tensors: Listed<Py<PyTensor>>) -> PyResult<(usize, usize, usize)> {
    let graph = girih::graph_of(&values(py, &tensors)).py()?;
    Ok((graph.len(), graph.num_ops(), graph.estimated_memory_bytes()))
}

/// The recorded graph of tensors as text. Returns: str.
#[pyfunction]
fn graph_text(py: Python<'_>, tensors: Listed<Py<PyTensor>>) -> PyResult<String> {
    sync(py);
    girih::graph_text(&values(py, &tensors)).py()
}

/// Explains what evaluating tensors would do: as text, as JSON, and as C source of the kernels;
/// optionally with machine code. There is no C for devices whose kernels are their own. Returns:
/// tuple[str, str, str | None].
#[pyfunction]
fn explain_tensors(
    py: Python<'_>,
    tensors: Listed<Py<PyTensor>>,
    #[pyo3(from_py_with = scalars::flag)] asm: bool,
) -> PyResult<(String, String, Option<String>)> {
    sync(py);
    let tensors = values(py, &tensors);
    let explain = || -> girih::Result<(String, String, Option<String>)> {
        let mut explanation = girih::explain(&tensors)?;
        explanation.asm = asm;
        Ok((explanation.to_string(), explanation.to_json(), explanation.to_c()))
    };
    detach(py, explain).py()
}

/// A graph to which ops are recorded.
#[pyclass(name = "Graph", module = "girih", frozen, eq)]
#[derive(Clone, PartialEq)]
pub struct PyGraph(pub Graph);

#[pymethods]
impl PyGraph {
    #[new]
    fn new() -> PyGraph {
        PyGraph(Graph::new())
    }

    /// A number that no other graph of this process has. Returns: int.
    #[getter]
    fn id(&self) -> u64 {
        self.0.id()
    }

    /// The number of nodes recorded to this graph so far. Returns: int.
    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    /// One line per reachable recorded node: number, op, spec, state. Returns: str.
    fn dump(&self) -> String {
        self.0.dump()
    }

    /// The reachable tensors recorded to this graph that have no value yet; the graph itself keeps
    /// no tensor alive. Returns: list[Tensor].
    fn unrealized<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let tensors = self.0.unrealized().into_iter().map(|t| Bound::new(py, PyTensor(t)));
        PyList::new(py, tensors.collect::<PyResult<Vec<_>>>()?)
    }

    /// The tensor of the node with this number (:attr:`Tensor.node_id`), while something reaches
    /// it. Returns: Tensor.
    fn tensor(&self, #[pyo3(from_py_with = scalars::whole)] node: u32) -> PyResult<PyTensor> {
        self.0.tensor(node).map(PyTensor).py()
    }

    /// The number of recorded nodes that are still reachable. Returns: int.
    #[getter]
    fn live_nodes(&self) -> usize {
        self.0.live().len()
    }

    fn __hash__(&self) -> u64 {
        self.0.id()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// A new, empty graph. Returns: Graph.
#[pyfunction]
fn create_graph() -> PyGraph {
    PyGraph(Graph::new())
}

/// The graph this thread records to. Returns: Graph.
#[pyfunction]
fn current_graph(py: Python<'_>) -> PyGraph {
    sync(py);
    PyGraph(girih::current_graph())
}

/// Counters of all compilations and runs. Returns: dict[str, float].
#[pyfunction]
fn cache_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    sync(py);
    stats_dict(py, &girih::cache_stats().py()?)
}

/// Converts counters to a dictionary.
pub fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("hits", stats.hits)?;
    dict.set_item("misses", stats.misses)?;
    dict.set_item("disk_hits", stats.disk_hits)?;
    dict.set_item("bindings", stats.bindings)?;
    dict.set_item("compiles", stats.compiles)?;
    dict.set_item("compile_time_ms", stats.compile_time.as_secs_f64() * 1e3)?;
    dict.set_item("cached_kernels", stats.cached_kernels)?;
    dict.set_item("cache_size_bytes", stats.cache_size_bytes)?;
    dict.set_item("runs", stats.runs)?;
    dict.set_item("kernels_launched", stats.launches)?;
    dict.set_item("chunks", stats.counts.chunks)?;
    dict.set_item("chunks_of_workers", stats.counts.chunks_of_workers)?;
    dict.set_item("nodes_recorded", girih::current_graph().num_nodes())?;
    dict.set_item("memory_bytes", stats.memory_bytes)?;
    dict.set_item("peak_memory_bytes", stats.peak_memory_bytes)?;
    Ok(dict)
}

/// Drops all compiled programs. Returns: None.
#[pyfunction]
fn clear_cache() -> PyResult<()> {
    girih::clear_cache().py()
}

/// Sets the maximum number of threads for kernels. Returns: None.
#[pyfunction]
fn set_num_threads(#[pyo3(from_py_with = scalars::whole)] threads: i64) -> PyResult<()> {
    // A negative number is an error like a number that is too large, and is shown as it was given.
    match usize::try_from(threads) {
        Ok(threads) => girih::set_num_threads(threads).py(),
        Err(_) => Err(crate::errors::invalid(format!(
            "set_num_threads: expected 1 to 1024 threads, the calling one included, got {threads}"
        ))),
    }
}

/// The enabled passes and kinds of fusion, as bits for `set_compile_options`.
/// Returns: tuple[int, int, int].
#[pyfunction]
fn compile_options(py: Python<'_>) -> PyResult<(u32, u32, u32)> {
    sync(py);
    let options = girih::options().py()?;
    Ok((options.passes, options.fusion, options.user))
}

/// Sets the enabled passes and kinds of fusion. Returns: None.
#[pyfunction]
fn set_compile_options(
    #[pyo3(from_py_with = scalars::whole)] passes: u32,
    #[pyo3(from_py_with = scalars::whole)] fusion: u32,
    #[pyo3(from_py_with = scalars::whole)] user: u32,
) -> PyResult<()> {
    girih::set_options(CompileOptions { passes, fusion, user }).py()
}

/// The current bits with the named passes and kinds of fusion, and user-defined passes, switched on
/// or off. Returns: tuple[int, int, int].
#[pyfunction]
fn compile_options_switched(
    py: Python<'_>,
    names: Listed<String>,
    passes: Listed<PyRef<'_, PyPass>>,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
) -> PyResult<(u32, u32, u32)> {
    sync(py);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let switched = if on { girih::options_with } else { girih::options_without };
    let options = switched(&names).py()?;
    let given: Vec<_> = passes.iter().map(|pass| pass.0.clone()).collect();
    let options = if on { pass::with(options, &given) } else { pass::without(options, &given) };
    Ok((options.passes, options.fusion, options.user))
}

/// Any signed or unsigned integer of 64 bits.
struct SeedArg(u64);

impl<'a, 'py> FromPyObject<'a, 'py> for SeedArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(seed) = object.extract::<u64>() {
            return Ok(SeedArg(seed));
        }
        object.extract::<IntArg>().map(|seed| SeedArg(seed.0 as u64))
    }
}

/// Seeds the random generator. Returns: None.
#[pyfunction]
fn manual_seed(seed: SeedArg) {
    girih::random::manual_seed(seed.0);
}

/// A line chart as SVG: `series` is a list of (name, [(x, y), ...]). Returns: str.
#[pyfunction]
fn line_plot(
    #[pyo3(from_py_with = scalars::text)] title: &str,
    #[pyo3(from_py_with = scalars::text)] x_label: &str,
    #[pyo3(from_py_with = scalars::text)] y_label: &str,
    series: Listed<(String, Vec<(f64, f64)>)>,
) -> String {
    girih::plot::line_plot(title, x_label, y_label, &series.0)
}

/// Adds this file's functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGraph>()?;
    m.add_class::<PyWeakTensor>()?;
    m.add_function(wrap_pyfunction!(weak, m)?)?;
    m.add_class::<PyCompilationInfo>()?;
    m.add_function(wrap_pyfunction!(eval_many, m)?)?;
    m.add_function(wrap_pyfunction!(async_eval_many, m)?)?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(explain_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(graph_stats, m)?)?;
    m.add_function(wrap_pyfunction!(graph_text, m)?)?;
    m.add_function(wrap_pyfunction!(create_graph, m)?)?;
    m.add_function(wrap_pyfunction!(current_graph, m)?)?;
    m.add_function(wrap_pyfunction!(cache_stats, m)?)?;
    m.add_function(wrap_pyfunction!(clear_cache, m)?)?;
    m.add_function(wrap_pyfunction!(set_num_threads, m)?)?;
    m.add_function(wrap_pyfunction!(compile_options, m)?)?;
    m.add_function(wrap_pyfunction!(set_compile_options, m)?)?;
    m.add_function(wrap_pyfunction!(compile_options_switched, m)?)?;
    m.add_function(wrap_pyfunction!(manual_seed, m)?)?;
    m.add_function(wrap_pyfunction!(line_plot, m)?)
}
