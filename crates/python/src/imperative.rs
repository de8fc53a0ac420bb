//! The imperative style of gradients: `requires_grad_`, `backward`, `grad`, hooks.

use crate::errors::IntoPy;
use crate::location;
use crate::tensor::PyTensor;
use girih::{Error, Hook, Tensor};
use pyo3::prelude::*;
use std::sync::Arc;

/// A hook of Python's on a tensor, to be removed.
#[pyclass(name = "RemovableHandle", module = "girih._girih", frozen)]
struct PyHandle {
    tensor: Tensor,
    number: u64,
}

#[pymethods]
impl PyHandle {
    /// Takes the hook back. Returns: None.
    fn remove(&self) {
        self.tensor.remove_hook(self.number);
    }
}

/// The hook that calls a function of Python's.
fn hook_of(function: Py<PyAny>) -> Hook {
    Arc::new(move |gradient: &Tensor| {
        Python::attach(|py| {
            let call = || -> PyResult<Option<Tensor>> {
                let result = function.bind(py).call1((PyTensor(gradient.clone()),))?;
                if result.is_none() {
                    return Ok(None);
                }
                Ok(Some(result.cast::<PyTensor>()?.borrow().0.clone()))
            };
            call().map_err(|error| {
                Error::InvalidArgument(format!("register_hook: the hook failed: {error}"))
            })
        })
    })
}

#[pymethods]
impl PyTensor {
    /// Whether ``backward`` of a result of the tensor gives it a gradient, or passes through it.
    /// Returns: bool.
    #[getter]
    fn get_requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    #[setter]
    fn set_requires_grad(&self, on: bool) -> PyResult<()> {
        self.0.set_requires_grad(on).py()
    }

    /// Makes the tensor require a gradient, or not, from here on; gives the tensor itself.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_(slf: PyRef<'_, Self>, requires_grad: bool) -> PyResult<PyRef<'_, Self>> {
        slf.0.set_requires_grad(requires_grad).py()?;
        Ok(slf)
    }

    /// Whether the tensor is no result of others that require gradients. Returns: bool.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.0.is_leaf()
    }

    /// The gradient that ``backward`` has summed up; None if there is none. Returns: Tensor | None.
    #[getter]
    fn get_grad(&self) -> Option<PyTensor> {
        self.0.grad().map(PyTensor)
    }

    #[setter]
    fn set_grad(&self, grad: Option<PyRef<'_, PyTensor>>) -> PyResult<()> {
        self.0.set_grad(grad.map(|g| g.0.clone())).py()
    }

    /// Adds the gradients of the tensor, a scalar unless ``gradient`` is given, to the ``grad`` of the
    /// tensors that it follows from and that require one. With ``retain_graph`` it can be called
    /// again; with ``create_graph`` gradients can be differentiated. Returns: None.
    #[pyo3(signature = (gradient=None, retain_graph=false, create_graph=false))]
    fn backward(
        &self,
        py: Python<'_>,
        gradient: Option<PyRef<'_, PyTensor>>,
        retain_graph: bool,
        create_graph: bool,
    ) -> PyResult<()> {
        location::enter(py);
        let gradient = gradient.map(|g| g.0.clone());
        self.0.backward(gradient.as_ref(), retain_graph, create_graph).py()
    }

    /// Has ``backward`` keep the gradient of a tensor that is a result of others. Returns: None.
    fn retain_grad(&self) -> PyResult<()> {
        self.0.retain_grad().py()
    }

    /// Calls ``hook`` with the tensor's gradient when ``backward`` has it; a tensor that it returns takes
    /// the gradient's place. Returns: RemovableHandle.
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<PyHandle> {
        let number = self.0.register_hook(hook_of(hook)).py()?;
        Ok(PyHandle { tensor: self.0.clone(), number })
    }
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyHandle>()
}
