//! Tracing for the function transforms of `girih.transforms`.

use crate::collective::PyBoundAxis;
use crate::errors::IntoPy;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::{BatchAxis, Randomness, Tensor};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A function being traced on placeholders.
#[pyclass(name = "Trace", module = "girih._girih", frozen)]
#[derive(Default)]
struct PyTrace(Mutex<girih::Trace>);

fn tensors(py: Python<'_>, list: &[Py<PyTensor>]) -> Vec<Tensor> {
    list.iter().map(|t| t.borrow(py).0.clone()).collect()
}

fn refs(list: &[Tensor]) -> Vec<&Tensor> {
    list.iter().collect()
}

fn wrapped(list: Vec<Tensor>) -> Vec<PyTensor> {
    list.into_iter().map(PyTensor).collect()
}

#[pymethods]
impl PyTrace {
    #[new]
    fn new() -> PyTrace {
        PyTrace::default()
    }

    /// An argument with the shape and dtype of `like`, without a value. Returns: Tensor.
    fn placeholder(&self, like: &PyTensor) -> PyTensor {
        PyTensor(self.lock().placeholder(&like.0))
    }

    /// Records the traced function and its gradients at `args`: the value, one gradient for each
    /// tensor in `wrt`, and the auxiliary outputs.
    /// Returns: tuple[Tensor, list[Tensor], list[Tensor]].
    fn value_and_grad(
        &self,
        py: Python<'_>,
        output: Py<PyTensor>,
        wrt: Listed<Py<PyTensor>>,
        aux: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
    ) -> PyResult<(PyTensor, Vec<PyTensor>, Vec<PyTensor>)> {
        crate::location::enter(py);
        let (aux, wrt, args) = (tensors(py, &aux), tensors(py, &wrt), tensors(py, &args));
        let output = output.borrow(py).0.clone();
        let outputs: Vec<&Tensor> = std::iter::once(&output).chain(&aux).collect();
        let (mut values, gradients) =
            self.lock().gradients(&outputs, &refs(&wrt), &refs(&args)).py()?;
        let aux = values.split_off(1);
        Ok((PyTensor(values.swap_remove(0)), wrapped(gradients), wrapped(aux)))
    }

    /// An argument with the shape and dtype of one member of `like`, whose leading axis is the
    /// batch.
    /// Returns: Tensor.
    fn member(&self, like: &PyTensor) -> PyTensor {
        PyTensor(self.lock().member(&like.0))
    }

    /// The outputs of the traced function at `args`, and their derivatives along `tangents` of
    /// `wrt`.
    /// Returns: tuple[list[Tensor], list[Tensor]].
    fn jvp(
        &self,
        py: Python<'_>,
        outputs: Listed<Py<PyTensor>>,
        wrt: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
        tangents: Listed<Py<PyTensor>>,
    ) -> PyResult<(Vec<PyTensor>, Vec<PyTensor>)> {
        crate::location::enter(py);
        let (outputs, wrt) = (tensors(py, &outputs), tensors(py, &wrt));
        let (args, tangents) = (tensors(py, &args), tensors(py, &tangents));
        let (values, tangents) =
            self.lock().jvp(&refs(&outputs), &refs(&wrt), &refs(&args), &refs(&tangents)).py()?;
        Ok((wrapped(values), wrapped(tangents)))
    }

    /// The outputs at `args`, and the linear map from tangents of `wrt` to tangents of `outputs`.
    /// Returns: tuple[list[Tensor], LinearMap].
    fn linearize(
        &self,
        py: Python<'_>,
        outputs: Listed<Py<PyTensor>>,
        wrt: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
    ) -> PyResult<(Vec<PyTensor>, PyLinearMap)> {
        self.linear(py, girih::Trace::linearize, [outputs, wrt, args])
    }

    /// The outputs at `args`, and the linear map from cotangents of `outputs` to cotangents of
    /// `wrt`.
    /// Returns: tuple[list[Tensor], LinearMap].
    fn vjp(
        &self,
        py: Python<'_>,
        outputs: Listed<Py<PyTensor>>,
        wrt: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
    ) -> PyResult<(Vec<PyTensor>, PyLinearMap)> {
        self.linear(py, girih::Trace::vjp, [outputs, wrt, args])
    }

    /// The transpose of the traced function, which is linear in `wrt`. Returns: LinearMap.
    fn linear_transpose(
        &self,
        py: Python<'_>,
        outputs: Listed<Py<PyTensor>>,
        wrt: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
    ) -> PyResult<PyLinearMap> {
        let transpose =
            |trace: &girih::Trace, outputs: &[&Tensor], wrt: &[&Tensor], args: &[&Tensor]| {
                trace.linear_transpose(outputs, wrt, args).map(|map| (Vec::new(), map))
            };
        Ok(self.linear(py, transpose, [outputs, wrt, args])?.1)
    }

    /// Names the batch axis, the leading axis of `like`. The results are the axis, within which the
    /// function must be called, and the argument for one more placeholder, which is batched.
    /// Returns: tuple[BoundAxis, Tensor].
    fn bind_axis(
        &self,
        #[pyo3(from_py_with = scalars::text)] name: &str,
        like: &PyTensor,
    ) -> PyResult<(PyBoundAxis, PyTensor)> {
        let (size, device) = (like.0.shape().dim(0), like.0.device());
        let (axis, indices) = self.lock().bind_axis(name, size, device).py()?;
        Ok((PyBoundAxis(axis), PyTensor(indices)))
    }

    /// The outputs of the traced function on a batch. `batched` marks the arguments whose leading
    /// axis is the batch, the size of the batch is that of the leading axis of `like`, and `name`
    /// is the name of the axis.
    /// Returns: list[tuple[Tensor, bool]].
    #[allow(clippy::too_many_arguments, reason = "the method of one caller")]
    fn vmap(
        &self,
        py: Python<'_>,
        outputs: Listed<Py<PyTensor>>,
        args: Listed<Py<PyTensor>>,
        batched: Listed<bool>,
        like: &PyTensor,
        #[pyo3(from_py_with = scalars::text)] randomness: &str,
        #[pyo3(from_py_with = scalars::maybe_text)] name: Option<&str>,
    ) -> PyResult<Vec<(PyTensor, bool)>> {
        crate::location::enter(py);
        let randomness = match randomness {
            "same" => Randomness::Same,
            "different" => Randomness::Different,
            _ => Randomness::Error,
        };
        let (outputs, args) = (tensors(py, &outputs), tensors(py, &args));
        let axis = BatchAxis { size: like.0.shape().dim(0), name };
        let (outputs, args) = (refs(&outputs), refs(&args));
        let results = self.lock().vmap(&outputs, &args, &batched, axis, randomness).py()?;
        Ok(results.into_iter().map(|(tensor, batched)| (PyTensor(tensor), batched)).collect())
    }
}

/// `linearize` or `vjp` of a trace, which takes outputs, differentiated tensors and arguments.
type Linearized = fn(
    &girih::Trace,
    &[&Tensor],
    &[&Tensor],
    &[&Tensor],
) -> girih::Result<(Vec<Tensor>, girih::Linear)>;

impl PyTrace {
    fn linear(
        &self,
        py: Python<'_>,
        transform: Linearized,
        lists: [Listed<Py<PyTensor>>; 3],
    ) -> PyResult<(Vec<PyTensor>, PyLinearMap)> {
        crate::location::enter(py);
        let [outputs, wrt, args] = lists.map(|list| tensors(py, &list));
        let (values, map) =
            transform(&self.lock(), &refs(&outputs), &refs(&wrt), &refs(&args)).py()?;
        Ok((wrapped(values), PyLinearMap(map)))
    }

    fn lock(&self) -> MutexGuard<'_, girih::Trace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A linear map of tensors: of tangents or of cotangents.
#[pyclass(name = "LinearMap", module = "girih._girih", frozen)]
struct PyLinearMap(girih::Linear);

#[pymethods]
impl PyLinearMap {
    /// The values of the function that the map needs. Returns: list[Tensor].
    fn residuals(&self) -> Vec<PyTensor> {
        self.0.residuals().cloned().map(PyTensor).collect()
    }

    /// Applies the map to tensors. Returns: list[Tensor].
    fn __call__(&self, py: Python<'_>, given: Listed<Py<PyTensor>>) -> PyResult<Vec<PyTensor>> {
        crate::location::enter(py);
        Ok(wrapped(self.0.call(&refs(&tensors(py, &given))).py()?))
    }
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTrace>()?;
    m.add_class::<PyLinearMap>()
}
