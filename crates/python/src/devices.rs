//! Devices from Python: arguments that name a device, and the properties of devices.

use crate::contexts::sync;
use crate::errors::IntoPy;
use crate::functions::Out;
use crate::interpreter::detach;
use crate::tensor::PyTensor;
use girih::{Context, Device, DeviceScope, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A device argument: a name, or an object whose string is a name.
#[derive(Clone, Copy)]
pub struct DeviceArg(pub Device);

impl<'a, 'py> FromPyObject<'a, 'py> for DeviceArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Device::named(&object.to_string()).map(DeviceArg).py()
    }
}

/// Calls `make`, and puts its result on the given device, if there is one.
pub fn placed(device: Option<DeviceArg>, make: impl FnOnce() -> Out) -> Out {
    let Some(DeviceArg(device)) = device else { return make() };
    let _scope = DeviceScope::new(device);
    make()?.0.to_device(device).map(PyTensor).py()
}

/// Like [`placed`], with the device of `like` if no device is given.
pub fn placed_like(device: Option<DeviceArg>, like: &Tensor, make: impl FnOnce() -> Out) -> Out {
    if device.is_none() && like.sharding().is_some() {
        return make()?.0.placed_like(like).map(PyTensor).py();
    }
    let own = (like.device() != Context::current().device()).then(|| DeviceArg(like.device()));
    placed(device.or(own), make)
}

/// Fails if there is no device with this name. Returns: None.
#[pyfunction]
fn check_device(device: DeviceArg) {
    let _ = device;
}

/// The name of the current device. Returns: str.
#[pyfunction]
fn device_name(py: Python<'_>) -> &'static str {
    sync(py);
    Context::current().device().name()
}

/// Name, target and concurrency of each device. Returns: list[tuple[str, str, int | None]].
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<(String, String, Option<usize>)>> {
    sync(py);
    let facts = |device: Device| device.info().map(|d| (d.name, d.target, d.concurrency));
    girih::devices().py()?.into_iter().map(|device| facts(device).py()).collect()
}

/// The memory of a device, or of the current device if none is given. Returns: dict[str, Any].
#[pyfunction]
#[pyo3(signature = (device=None))]
fn memory_stats(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<Bound<'_, PyDict>> {
    sync(py);
    let stats = girih::memory_stats(device.map(|d| d.0)).py()?;
    let dict = PyDict::new(py);
    dict.set_item("capacity", stats.capacity)?;
    dict.set_item("in_use", stats.in_use)?;
    dict.set_item("requested", stats.requested)?;
    dict.set_item("peak", stats.peak)?;
    dict.set_item("blocks", stats.blocks)?;
    dict.set_item("allocations", stats.allocations)?;
    dict.set_item("largest_free", stats.largest_free)?;
    dict.set_item("fragmentation", stats.fragmentation)?;
    Ok(dict)
}

/// Resets a device's peak memory to the memory in use. Returns: None.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn reset_peak_memory(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<()> {
    sync(py);
    girih::reset_peak_memory(device.map(|d| d.0)).py()
}

/// Prepares a device, or the current device if none is given, for the first programs.
/// Returns: None.
#[pyfunction]
#[pyo3(signature = (device=None))]
fn warm_up(py: Python<'_>, device: Option<DeviceArg>) -> PyResult<()> {
    sync(py);
    let device = device.map(|d| d.0).unwrap_or_else(|| Context::current().device());
    detach(py, || girih::warm_up(Some(device))).py()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(check_device, m)?)?;
    m.add_function(wrap_pyfunction!(device_name, m)?)?;
    m.add_function(wrap_pyfunction!(devices, m)?)?;
    m.add_function(wrap_pyfunction!(memory_stats, m)?)?;
    m.add_function(wrap_pyfunction!(warm_up, m)?)?;
    m.add_function(wrap_pyfunction!(reset_peak_memory, m)?)
}
