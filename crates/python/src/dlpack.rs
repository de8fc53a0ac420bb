//! DLPack for this front end's tensors: `from_dlpack`, and the capsules of `Tensor.__dlpack__`.

use crate::data::upload;
use crate::devices::{DeviceArg, placed};
use crate::errors::IntoPy;
use crate::interpreter::detach;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::Tensor;
use girih_pyo3::dlpack::{self, Exported};
use girih_pyo3::foreign::Import;
use pyo3::prelude::*;

/// Exports a tensor as a capsule: versioned if the consumer supports version 1.
pub fn export<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    versioned: bool,
    is_copy: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let copied;
    let tensor = if is_copy {
        let bytes = detach(py, || tensor.to_bytes()).py()?;
        copied = upload(py, &tensor.spec(), &bytes)?;
        &copied
    } else {
        tensor
    };
    let (address, value) = detach(py, || tensor.address()).py()?;
    let spec = tensor.spec();
    let exported = Exported { spec, address, value, is_copy };
    // SAFETY: the value is the tensor's, or that of a copy which nothing else refers to.
    unsafe { dlpack::export(py, exported, versioned) }
}

/// Converts an array of another library to a tensor. The elements are copied unless nobody can
/// write their memory, because an op on the tensor may run after the owner has changed it.
/// `copy=False` shares the memory, which must not change while the tensor, or ops recorded on it,
/// exist; it raises CopyRequiredError if the elements are not row-major.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None))]
fn from_dlpack(
    x: &Bound<'_, PyAny>,
    device: Option<DeviceArg>,
    #[pyo3(from_py_with = scalars::maybe_flag)] copy: Option<bool>,
) -> PyResult<PyTensor> {
    placed(device, || match x.cast::<PyTensor>() {
        Ok(tensor) => Ok(PyTensor(tensor.borrow().0.clone())),
        Err(_) => dlpack::import(x, "from_dlpack", Import::of(copy)),
    })
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)
}
