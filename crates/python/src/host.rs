//! User-defined ops and callbacks: Python functions that programs call while they run.

use crate::args::TensorArg;
use crate::compiled::dim_object;
use crate::control::PyBody;
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::interpreter::{Held, attach, try_attach};
use crate::location;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::custom::{
    self, CustomOp, HostBatch, HostBatching, HostCall, HostFailure, HostView, HostViewMut, KernelOp,
};
use girih::{Dim, Tensor, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use std::sync::Arc;

/// A Python function that takes the bytes, shapes and dtypes of operands and returns the bytes of
/// the results.
struct PyHost {
    call: Held<Py<PyAny>>,
    name: String,
    version: u32,
    identity: u64,
    /// The arguments that are not tensors, and the structure of all arguments, as stored in files
    /// to call the op again. Empty if a file cannot hold the arguments.
    settings: String,
}

impl CustomOp for PyHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn identity(&self) -> u64 {
        self.identity
    }

    fn settings(&self) -> &str {
        &self.settings
    }

    /// The op's Python definition creates a call from its settings.
    fn with_settings(&self, settings: &str) -> Result<Option<Arc<dyn CustomOp>>, String> {
        let (name, version) = (&self.name, self.version);
        if settings.is_empty() {
            return Err(format!(
                "a call of '{name}' version {version} on tensors and on tuples, lists, dicts, numbers and \
                 strings, found one on other objects, which a file does not hold"
            ));
        }
        let call = attach(|py| {
            let made = self.call.call_method1(py, "_restored", (settings,));
            made.map_err(|error| format!("a call of '{name}' version {version}, found {error}"))
        })?;
        let settings = settings.to_string();
        let (name, version, identity) = (self.name.clone(), self.version, self.identity);
        let call = Held::new(call);
        Ok(Some(Arc::new(PyHost { call, name, version, identity, settings })))
    }

    fn infer(&self, _: &[&TensorSpec]) -> girih::ir::Result<Vec<TensorSpec>> {
        let reason = format!("'{}' is an op of Python, which declares its results", self.name);
        Err(girih::ir::Error::InvalidArgument { op: "custom", reason })
    }

    fn batch(
        &self,
        size: Dim,
        operands: &[TensorSpec],
        marks: &[bool],
    ) -> Option<Result<HostBatch, HostFailure>> {
        Some(attach(|py| {
            self.recorded(py, size, operands, marks).map_err(|error| failure(&self.name, error))
        }))
    }

    fn run(
        &self,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> Result<(), HostFailure> {
        let called = try_attach(|py| {
            self.called(py, operands, results).map_err(|error| failure(&self.name, error))
        });
        called.unwrap_or_else(|| Err(HostFailure::new("the Python interpreter has ended")))
    }
}

/// The failure of a Python function, with its exception.
pub fn failure(op: &str, error: PyErr) -> HostFailure {
    let failure = HostFailure::new(error.to_string());
    HostFailure { op: op.to_string(), ..failure }.with_payload(Held::new(error))
}

impl PyHost {
    /// Records the batched op by the rule of the Python op.
    fn recorded(
        &self,
        py: Python<'_>,
        size: Dim,
        operands: &[TensorSpec],
        marks: &[bool],
    ) -> PyResult<HostBatch> {
        let body = Bound::new(py, PyBody::default())?;
        let stand_ins: Vec<PyTensor> = operands.iter().map(|s| body.get().argument(s)).collect();
        let size = dim_object(py, size)?;
        let given = (body.clone(), stand_ins, marks.to_vec(), size);
        let batched: Vec<bool> = self.call.bind(py).call_method1("batch", given)?.extract()?;
        Ok((body.get().take().to_rule().py()?, batched))
    }
}

fn described<'py>(py: Python<'py>, spec: &TensorSpec) -> PyResult<Bound<'py, PyTuple>> {
    let shape = PyTuple::new(py, spec.shape.iter())?;
    PyTuple::new(py, [shape.into_any(), spec.dtype.name().into_pyobject(py)?.into_any()])
}

impl PyHost {
    fn called(
        &self,
        py: Python<'_>,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> PyResult<()> {
        let given = PyList::empty(py);
        for operand in operands {
            let bytes = PyBytes::new(py, operand.bytes).into_any();
            given.append((bytes, described(py, &operand.spec)?))?;
        }
        let wanted = PyList::empty(py);
        for result in results.iter() {
            wanted.append(described(py, &result.spec)?)?;
        }
        let found: Listed<Bound<'_, PyBytes>> =
            self.call.bind(py).call1((given, wanted))?.extract()?;
        for (result, bytes) in results.iter_mut().zip(&found.0) {
            let (found, expected) = (bytes.as_bytes(), result.bytes.len());
            if found.len() != expected {
                let name = &self.name;
                let found = found.len();
                return Err(invalid(format!("{name}: {found} bytes for {}", result.spec)));
            }
            result.bytes.copy_from_slice(found);
        }
        Ok(())
    }
}

/// Registers a Python op by name and version, so that files find it; `identity` distinguishes it
/// from other ops with that name in this process. Returns: None.
#[pyfunction]
fn register_host(
    call: Py<PyAny>,
    #[pyo3(from_py_with = scalars::own_text)] name: String,
    #[pyo3(from_py_with = scalars::whole)] version: u32,
    #[pyo3(from_py_with = scalars::whole)] identity: u64,
) -> PyResult<()> {
    let (call, settings) = (Held::new(call), String::new());
    custom::register_custom(Arc::new(PyHost { call, name, version, identity, settings })).py()
}

/// An op that is defined by the text of kernels, and registered by name and version.
#[pyclass(name = "KernelOp", module = "girih._girih", frozen)]
pub struct PyKernelOp(Arc<dyn CustomOp>);

#[pymethods]
impl PyKernelOp {
    #[new]
    fn new(
        #[pyo3(from_py_with = scalars::text)] name: &str,
        #[pyo3(from_py_with = scalars::whole)] version: u32,
        #[pyo3(from_py_with = scalars::text)] signature: &str,
        dtypes: Listed<(String, Vec<DTypeArg>)>,
        #[pyo3(from_py_with = scalars::text)] text: &str,
    ) -> PyResult<PyKernelOp> {
        let dtypes =
            dtypes.into_iter().map(|(n, list)| (n, list.into_iter().map(|d| d.0).collect()));
        let op = KernelOp::new(name, version, signature, dtypes.collect(), text);
        let op: Arc<dyn CustomOp> = Arc::new(op.map_err(girih::Error::from).py()?);
        custom::register_custom(op.clone()).py()?;
        Ok(PyKernelOp(op))
    }

    /// The results of the op on these tensors. Returns: list[Tensor].
    fn call(&self, py: Python<'_>, tensors: Listed<TensorArg>) -> PyResult<Vec<PyTensor>> {
        location::enter(py);
        let operands: Vec<Tensor> = tensors.into_iter().map(|t| t.0).collect();
        let results = custom::custom(&self.0, &operands.iter().collect::<Vec<_>>()).py()?;
        Ok(results.into_iter().map(PyTensor).collect())
    }
}

/// Records a call of a Python function that is made when the program runs; the results have the
/// specs of `likes`.
/// Returns: list[Tensor].
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are Python's")]
fn host_call(
    py: Python<'_>,
    call: Py<PyAny>,
    #[pyo3(from_py_with = scalars::own_text)] name: String,
    #[pyo3(from_py_with = scalars::whole)] version: u32,
    #[pyo3(from_py_with = scalars::whole)] identity: u64,
    #[pyo3(from_py_with = scalars::own_text)] settings: String,
    tensors: Listed<Py<PyTensor>>,
    likes: Listed<Py<PyTensor>>,
    #[pyo3(from_py_with = scalars::text)] method: &str,
    #[pyo3(from_py_with = scalars::flag)] effect: bool,
) -> PyResult<Vec<PyTensor>> {
    location::enter(py);
    let list = |list: &[Py<PyTensor>]| -> Vec<Tensor> {
        list.iter().map(|t| t.borrow(py).0.clone()).collect()
    };
    let (operands, likes) = (list(&tensors), list(&likes));
    let specs = likes.iter().map(Tensor::spec).collect();
    let batching = HostBatching::ALL.into_iter().find(|b| b.name() == method);
    let Some(batching) = batching else {
        let known = HostBatching::ALL.map(HostBatching::name).join(", ");
        return Err(invalid(format!("vmap_method is '{method}'; expected one of {known}")));
    };
    let call = Held::new(call);
    let op: Arc<dyn CustomOp> = Arc::new(PyHost { call, name, version, identity, settings });
    let call = HostCall::new(op, specs, batching, effect);
    let results = custom::custom_call(call, &operands.iter().collect::<Vec<_>>()).py()?;
    Ok(results.into_iter().map(PyTensor).collect())
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyKernelOp>()?;
    m.add_function(wrap_pyfunction!(register_host, m)?)?;
    m.add_function(wrap_pyfunction!(host_call, m)?)
}
