//! Branches and loops, for the functions in `girih.control`, which call the user's functions.

use crate::args::{SizeArg, TensorArg};
use crate::compiled::{Failure, dim_object};
use crate::errors::IntoPy;
use crate::host::failure;
use crate::interpreter::{Held, attach};
use crate::location;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::custom::HostFailure;
use girih::{Body, DerivativeRules, Recording, Saved, Tensor, TensorSpec};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The recording of a function of a branch or loop, during and after its call with placeholders.
#[pyclass(name = "Body", module = "girih._girih", frozen)]
#[derive(Default)]
pub struct PyBody(Mutex<Body>);

type Tensors = PyResult<Vec<PyTensor>>;

impl PyBody {
    pub fn argument(&self, spec: &TensorSpec) -> PyTensor {
        PyTensor(self.0.lock().unwrap_or_else(PoisonError::into_inner).placeholder(spec))
    }

    /// Takes the recording; a second call returns an empty one.
    pub fn take(&self) -> Body {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl PyBody {
    #[new]
    fn new() -> PyBody {
        PyBody::default()
    }

    /// An argument of `like`'s shape and dtype, without a value. Returns: Tensor.
    fn placeholder(&self, like: &PyTensor) -> PyTensor {
        self.argument(&like.0.spec())
    }

    /// An argument with the spec of one slice of `like` along its leading axis, without a value.
    /// Returns: Tensor.
    fn part(&self, like: &PyTensor) -> PyTensor {
        let spec = like.0.spec();
        let rank = spec.shape.rank();
        let shape = spec.shape.part(rank.min(1)..);
        self.argument(&TensorSpec { shape, ..spec })
    }

    /// The recording, for repeated calls; None if the function draws random numbers or refers to
    /// outside tensors. Returns: Recording | None.
    fn recording(&self) -> Option<PyRecording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).recording().map(PyRecording)
    }

    /// Sets the tensors that the function returned. Returns: None.
    fn set_outputs(&self, tensors: Listed<TensorArg>) {
        let outputs = tensors.into_iter().map(|t| t.0).collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).set_outputs(outputs);
    }
}

/// A recorded function that can be called repeatedly.
#[pyclass(name = "Recording", module = "girih._girih", frozen)]
pub struct PyRecording(Recording);

#[pymethods]
impl PyRecording {
    /// Calls the recording on these tensors. Returns: list[Tensor].
    fn call(&self, py: Python<'_>, tensors: Listed<TensorArg>) -> Tensors {
        location::enter(py);
        wrapped(self.0.call(&unwrapped(tensors)))
    }
}

fn taken(py: Python<'_>, bodies: &[Py<PyBody>]) -> Vec<Body> {
    bodies.iter().map(|b| b.borrow(py).take()).collect()
}

fn unwrapped(tensors: Listed<TensorArg>) -> Vec<Tensor> {
    tensors.into_iter().map(|t| t.0).collect()
}

fn wrapped(results: girih::Result<Vec<Tensor>>) -> Tensors {
    Ok(results.py()?.into_iter().map(PyTensor).collect())
}

/// Records a conditional and returns its results; a scalar selects the branch.
/// Returns: list[Tensor].
#[pyfunction]
fn record_cond(
    py: Python<'_>,
    node: &PyTensor,
    bodies: Listed<Py<PyBody>>,
    tensors: Listed<TensorArg>,
    names: Listed<String>,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
) -> Tensors {
    location::enter(py);
    let op = if on { "switch" } else { "cond" };
    let bodies = taken(py, &bodies);
    wrapped(Body::cond(op, &node.0, &bodies, &unwrapped(tensors), &names))
}

/// Records a while loop and returns its final carries. Returns: list[Tensor].
#[pyfunction]
fn record_while_loop(
    py: Python<'_>,
    bodies: Listed<Py<PyBody>>,
    tensors: Listed<TensorArg>,
    names: Listed<String>,
) -> Tensors {
    location::enter(py);
    let bodies = taken(py, &bodies);
    let [condition, body] = bodies.as_slice() else { return Ok(Vec::new()) };
    wrapped(Body::while_loop(condition, body, &unwrapped(tensors), &names))
}

/// Records a scan and returns its final carries, then the stacked results. Returns: list[Tensor].
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are Python's")]
fn record_scan(
    py: Python<'_>,
    body: Py<PyBody>,
    init: Listed<TensorArg>,
    xs: Listed<TensorArg>,
    length: SizeArg,
    #[pyo3(from_py_with = scalars::flag)] reverse: bool,
    names: Listed<String>,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
) -> Tensors {
    location::enter(py);
    let (body, init, xs) = (body.borrow(py).take(), unwrapped(init), unwrapped(xs));
    let op = if on { "fori_loop" } else { "scan" };
    wrapped(Body::scan(op, &body, &init, &xs, length.0, reverse, &names))
}

/// Records a checkpointed function and returns its results. `saved` are recorded tensors that are
/// kept for the derivative; with `on`, results of products are kept too. `keeps` decides in place
/// of both: a function of the op's name and the tensor. Returns: list[Tensor].
#[pyfunction]
#[pyo3(signature = (body, tensors, saved, on, keeps=None))]
fn record_checkpoint(
    py: Python<'_>,
    body: Py<PyBody>,
    tensors: Listed<TensorArg>,
    saved: Listed<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
    keeps: Option<Bound<'_, PyAny>>,
) -> Tensors {
    location::enter(py);
    let policy = if on { Saved::Contractions } else { Saved::Nothing };
    let body = body.borrow(py).take();
    let saved = unwrapped(saved);
    let is_kept = |value: &Tensor| -> Result<bool, Failure> {
        match &keeps {
            Some(keeps) => {
                let op = value.op_name();
                Ok(keeps.call1((op, PyTensor(value.clone())))?.is_truthy()?)
            }
            None => Ok(policy.keeps(value) || saved.iter().any(|t| t.is_same(value))),
        }
    };
    let results = body.checkpoint(&unwrapped(tensors), is_kept).map_err(|Failure(error)| error)?;
    Ok(results.into_iter().map(PyTensor).collect())
}

/// Records a barrier that no pass optimises across, and returns the tensors. Returns: list[Tensor].
#[pyfunction]
fn record_barrier(py: Python<'_>, tensors: Listed<TensorArg>) -> Tensors {
    location::enter(py);
    wrapped(girih::optimization_barrier(&unwrapped(tensors)))
}

/// Records a function as one op and returns its results; derivatives and batching follow from the
/// function. Returns: list[Tensor].
#[pyfunction]
fn record_call(py: Python<'_>, body: Py<PyBody>, tensors: Listed<TensorArg>) -> Tensors {
    location::enter(py);
    let body = body.borrow(py).take();
    wrapped(body.call(&unwrapped(tensors)))
}

/// The derivative rules of a Python function: an object whose method `run` records the rules.
struct PyRules {
    call: Held<Py<PyAny>>,
    name: String,
    forward: bool,
}

impl DerivativeRules for PyRules {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_forward(&self) -> bool {
        self.forward
    }

    fn run(&self, arguments: &[TensorSpec]) -> Result<Vec<Body>, HostFailure> {
        attach(|py| self.recorded(py, arguments)).map_err(|error| failure(&self.name, error))
    }
}

impl PyRules {
    fn recorded(&self, py: Python<'_>, arguments: &[TensorSpec]) -> PyResult<Vec<Body>> {
        let body = Bound::new(py, PyBody::default())?;
        let stand_ins: Vec<PyTensor> =
            arguments.iter().map(|spec| body.get().argument(spec)).collect();
        let given = self.call.bind(py).call_method1("run", (body.clone(), stand_ins))?;
        let second: Option<Py<PyBody>> = given.extract()?;
        let mut bodies = vec![body.get().take()];
        bodies.extend(second.map(|second| second.borrow(py).take()));
        Ok(bodies)
    }
}

/// Records a function with custom derivative rules as one op and returns its results. `rules`
/// records the rules when a derivative is taken; with `on` they are forward-mode rules. `saved` are
/// outside tensors to which the rules may refer. Returns: list[Tensor].
#[pyfunction]
fn record_ruled(
    py: Python<'_>,
    body: Py<PyBody>,
    tensors: Listed<TensorArg>,
    rules: Py<PyAny>,
    #[pyo3(from_py_with = scalars::own_text)] name: String,
    #[pyo3(from_py_with = scalars::flag)] on: bool,
    saved: Listed<TensorArg>,
) -> Tensors {
    location::enter(py);
    let body = body.borrow(py).take();
    let rules = Arc::new(PyRules { call: Held::new(rules), name, forward: on });
    wrapped(body.with_rules(rules, &unwrapped(tensors), &unwrapped(saved)))
}

/// The leading length that all of `xs` share; must equal `length` if that is given. Returns: int.
#[pyfunction]
fn scan_length<'py>(
    py: Python<'py>,
    xs: Listed<TensorArg>,
    length: Option<SizeArg>,
) -> PyResult<Bound<'py, PyAny>> {
    location::enter(py);
    let length = girih::scan_length(&unwrapped(xs), length.map(|size| size.0)).py()?;
    dim_object(py, length)
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyBody>()?;
    m.add_class::<PyRecording>()?;
    m.add_function(wrap_pyfunction!(record_barrier, m)?)?;
    m.add_function(wrap_pyfunction!(record_cond, m)?)?;
    m.add_function(wrap_pyfunction!(record_while_loop, m)?)?;
    m.add_function(wrap_pyfunction!(record_scan, m)?)?;
    m.add_function(wrap_pyfunction!(record_checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(record_call, m)?)?;
    m.add_function(wrap_pyfunction!(record_ruled, m)?)?;
    m.add_function(wrap_pyfunction!(scan_length, m)?)
}
