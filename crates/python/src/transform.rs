//! Traces, for the transforms of functions that `girih.transforms` builds.

use crate::args::Listed;
use crate::errors::IntoPy;
use crate::tensor::PyTensor;
use girih::Tensor;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

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

    /// An argument of `like`'s shape and dtype, without a value. Returns: Tensor.
    fn placeholder(&self, like: &PyTensor) -> PyTensor {
        let mut trace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        PyTensor(trace.placeholder(&like.0))
    }

    /// Records the traced function and its gradients at `args`: the value, one gradient per tensor
    /// of `wrt`, and the auxiliary outputs. Returns: tuple[Tensor, list[Tensor], list[Tensor]].
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
        let trace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut values, gradients) = trace.gradients(&outputs, &refs(&wrt), &refs(&args)).py()?;
        let aux = values.split_off(1);
        Ok((PyTensor(values.swap_remove(0)), wrapped(gradients), wrapped(aux)))
    }
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTrace>()
}
