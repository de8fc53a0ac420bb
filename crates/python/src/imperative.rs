//! The imperative style of gradients: `requires_grad_`, `backward`, `grad`, hooks.

use crate::errors::IntoPy;
use crate::interpreter::{Held, attach};
use crate::location;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::{Backward, Error, Hook, Tensor};
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::Arc;

/// The handle of a Python hook on a tensor, by which the hook can be removed.
#[pyclass(name = "RemovableHandle", module = "girih._girih", frozen)]
struct PyHandle {
    tensor: Tensor,
    number: u64,
}

#[pymethods]
impl PyHandle {
    /// Removes the hook. Returns: None.
    fn remove(&self) {
        self.tensor.remove_hook(self.number);
    }
}

/// The hook that calls a Python function.
fn hook_of(function: Py<PyAny>) -> Hook {
    let function = Held::new(function);
    Arc::new(move |gradient: &Tensor| {
        attach(|py| {
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

/// Sets whether a tensor requires a gradient. A parameter of a module that requires none is frozen.
fn mark(tensor: &Bound<'_, PyTensor>, on: bool) -> PyResult<()> {
    let py = tensor.py();
    tensor.borrow().0.set_requires_grad(on).py()?;
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    // There are no modules before this file of the package is loaded.
    match modules.get_item(intern!(py, "girih.nn.freezing")) {
        Ok(freezing) => freezing.call_method1(intern!(py, "marked"), (tensor, on)).map(drop),
        Err(_) => Ok(()),
    }
}

#[pymethods]
impl PyTensor {
    /// Whether ``backward`` of a result gives the tensor a gradient, or passes gradients through
    /// it. Returns: bool.
    #[getter]
    fn get_requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    #[setter]
    fn set_requires_grad(slf: &Bound<'_, Self>, on: &Bound<'_, PyAny>) -> PyResult<()> {
        mark(slf, scalars::flag(on)?)
    }

    /// Sets whether the tensor requires a gradient from now on; returns the tensor itself.
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_<'py>(
        slf: &Bound<'py, Self>,
        #[pyo3(from_py_with = scalars::flag)] requires_grad: bool,
    ) -> PyResult<Bound<'py, Self>> {
        mark(slf, requires_grad)?;
        Ok(slf.clone())
    }

    /// Whether the tensor is not a result of tensors that require gradients. Returns: bool.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.0.is_leaf()
    }

    /// The gradient that ``backward`` has accumulated; None if there is none.
    /// Returns: Tensor | None.
    #[getter]
    fn get_grad(&self) -> Option<PyTensor> {
        self.0.grad().map(PyTensor)
    }

    #[setter]
    fn set_grad(&self, grad: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.set_grad(scalars::maybe_tensor(grad)?).py()
    }

    /// Adds gradients to the ``grad`` of the tensors from which this tensor was computed and that
    /// require gradients. The tensor is a scalar unless ``gradient`` is given. With
    /// ``retain_graph`` it can be called again; with ``create_graph`` the gradients are
    /// differentiable. Returns: None.
    #[pyo3(signature = (gradient=None, retain_graph=false, create_graph=false))]
    fn backward(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::maybe_tensor)] gradient: Option<Tensor>,
        #[pyo3(from_py_with = scalars::flag)] retain_graph: bool,
        #[pyo3(from_py_with = scalars::flag)] create_graph: bool,
    ) -> PyResult<()> {
        location::enter(py);
        let cotangent = gradient.as_ref();
        let options = Backward { cotangent, retain: retain_graph, create: create_graph };
        self.0.backward_with(options).py()
    }

    /// Makes ``backward`` store the gradient of a tensor that is a result of other tensors.
    /// Returns: None.
    fn retain_grad(&self) -> PyResult<()> {
        self.0.retain_grad().py()
    }

    /// Registers ``hook``, which ``backward`` calls with the gradient of the tensor; if the hook
    /// returns a tensor, this tensor replaces the gradient. Returns: RemovableHandle.
    fn register_hook(&self, hook: Py<PyAny>) -> PyResult<PyHandle> {
        let number = self.0.register_hook(hook_of(hook)).py()?;
        Ok(PyHandle { tensor: self.0.clone(), number })
    }
}

/// The tensors on which ``backward`` was called since the last call of this function.
/// Returns: list[Tensor].
#[pyfunction]
fn take_roots() -> Vec<PyTensor> {
    girih::take_roots().into_iter().map(PyTensor).collect()
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyHandle>()?;
    m.add_function(wrap_pyfunction!(take_roots, m)?)
}
