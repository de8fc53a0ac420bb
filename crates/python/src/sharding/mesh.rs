//! Meshes from Python.

use crate::args::SizesArg;
use crate::devices::DeviceArg;
use crate::errors::{IntoPy, exception, invalid};
use crate::scalars::{self, described};
use crate::sequences::{self, Listed, Pair};
use girih::sharding::{self, DeviceMesh, Link};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A grid of devices with named axes; the last axis varies fastest. Give shape and axes, or a name
/// before them. Without devices it has the first devices of the host; with ``devices="ghost"`` it
/// has none, and serves to plan for devices that are not there.
#[pyclass(name = "DeviceMesh", module = "girih", frozen)]
pub struct PyDeviceMesh(pub DeviceMesh);

impl PyDeviceMesh {
    /// The mesh.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.0
    }
}

/// Names: a str is one.
fn names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match object.is_instance_of::<PyString>() {
        true => Ok(vec![scalars::own_text(object)?]),
        false => sequences::read(object, sequences::FEW, |name| scalars::own_text(&name)),
    }
}

/// The links of the axes, by name.
fn with_links(mut mesh: DeviceMesh, topology: &Bound<'_, PyAny>) -> PyResult<DeviceMesh> {
    let Ok(topology) = topology.cast::<PyDict>() else {
        let found = described(topology);
        return Err(exception(
            "DTypeError",
            format!("topology: a dict from axes to (latency, bandwidth) is expected, got {found}"),
        ));
    };
    for (axis, link) in topology {
        let Pair(latency, bandwidth) = link.extract::<Pair<Bound<'_, PyAny>>>()?;
        let link = Link::new(scalars::number(&latency)?, scalars::number(&bandwidth)?).py()?;
        mesh = mesh.with_link(scalars::text(&axis)?, link).py()?;
    }
    Ok(mesh)
}

#[pymethods]
impl PyDeviceMesh {
    #[new]
    #[pyo3(signature = (shape, axes, name=None, *, devices=None, topology=None))]
    fn new<'py>(
        shape: Bound<'py, PyAny>,
        axes: Bound<'py, PyAny>,
        name: Option<Bound<'py, PyAny>>,
        devices: Option<Bound<'py, PyAny>>,
        topology: Option<Bound<'py, PyAny>>,
    ) -> PyResult<PyDeviceMesh> {
        let (name, shape, axes) = match (shape.is_instance_of::<PyString>(), name) {
            (true, Some(last)) => (Some(shape), axes, last),
            (true, None) => {
                return Err(invalid(format!(
                    "DeviceMesh: axes are missing after the name {}; give (name, shape, axes)",
                    described(&shape)
                )));
            }
            (false, name) => (name, shape, axes),
        };
        let shape = shape.extract::<SizesArg>()?.at_least(1, "DeviceMesh", "each size")?;
        let mut mesh = DeviceMesh::new(&shape, &names(&axes)?).py()?;
        if let Some(name) = name {
            mesh = mesh.named(scalars::text(&name)?).py()?;
        }
        mesh = match devices {
            None => sharding::on_host(mesh).py()?,
            Some(text) if text.is_instance_of::<PyString>() => match scalars::text(&text)? {
                "ghost" => mesh.ghost(),
                other => {
                    return Err(invalid(format!(
                        "DeviceMesh: devices is a list of names, or \"ghost\", got {other:?}"
                    )));
                }
            },
            Some(given) => {
                let Listed(given) = given.extract::<Listed<DeviceArg>>()?;
                let numbers: Vec<u32> = given.iter().map(|of| of.0.index().into()).collect();
                mesh.with_devices(&numbers).py()?
            }
        };
        match topology {
            Some(topology) => with_links(mesh, &topology).map(PyDeviceMesh),
            None => Ok(PyDeviceMesh(mesh)),
        }
    }

    /// The name, or None. Returns: str | None.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.0.name()
    }

    /// The number of devices along each axis. Returns: tuple[int, ...].
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The names of the axes. Returns: tuple[str, ...].
    #[getter]
    fn axis_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.axes())
    }

    /// The number of devices. Returns: int.
    #[getter]
    fn size(&self) -> usize {
        self.0.len()
    }

    /// The names of the devices, in row-major order; None for a ghost mesh.
    /// Returns: tuple[str, ...] | None.
    #[getter]
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        sharding::device_names(&self.0).map(|names| PyTuple::new(py, names)).transpose()
    }

    /// Whether the mesh has no devices. Returns: bool.
    #[getter]
    fn is_ghost(&self) -> bool {
        self.0.is_ghost()
    }

    /// What it costs to send along axes, as (latency in seconds, bandwidth in bytes per second), for
    /// the axes for which it is known. Returns: dict[str, tuple[float, float]].
    #[getter]
    fn topology<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let topology = PyDict::new(py);
        for axis in self.0.axes() {
            if let Some(link) = self.0.link(axis) {
                topology.set_item(axis, (link.latency(), link.bandwidth()))?;
            }
        }
        Ok(topology)
    }

    /// The number of devices along the axis with this name. Returns: int.
    fn axis_size(&self, #[pyo3(from_py_with = scalars::text)] axis: &str) -> PyResult<usize> {
        let at = self.0.axis(axis).ok_or_else(|| {
            let on = self.0.summary();
            invalid(format!("axis_size: {axis:?} is not an axis of {on}; name one of its axes"))
        })?;
        Ok(self.0.shape()[at])
    }

    /// The position of a device along each axis, by its position in the mesh.
    /// Returns: tuple[int, ...].
    fn coordinates<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = scalars::whole)] position: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if position >= self.0.len() {
            return Err(invalid(format!(
                "coordinates: {} has no position {position}; positions are 0 to {}",
                self.0.summary(),
                self.0.len() - 1
            )));
        }
        PyTuple::new(py, self.0.coordinates(position))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyDeviceMesh>().is_ok_and(|other| self.0 == other.get().0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        shown(&self.0)
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let arguments = (self.shape(py)?, self.axis_names(py)?, self.name());
        let options = PyDict::new(py);
        match self.devices(py)? {
            Some(devices) => options.set_item("devices", devices)?,
            None => options.set_item("devices", "ghost")?,
        }
        options.set_item("topology", self.topology(py)?)?;
        Ok((arguments.into_pyobject(py)?, options))
    }
}

/// A tuple of texts as Python writes it.
fn tuple(items: &[String]) -> String {
    match items {
        [only] => format!("({only},)"),
        _ => format!("({})", items.join(", ")),
    }
}

/// A mesh as Python writes it. The first devices of the host are what it has by default.
pub fn shown(mesh: &DeviceMesh) -> String {
    let quoted = |text: &str| format!("'{text}'");
    let shape: Vec<String> = mesh.shape().iter().map(ToString::to_string).collect();
    let axes: Vec<String> = mesh.axes().map(quoted).collect();
    let mut text = format!("DeviceMesh({}, {}", tuple(&shape), tuple(&axes));
    if let Some(name) = mesh.name() {
        text += &format!(", '{name}'");
    }
    match sharding::device_names(mesh) {
        None => text += ", devices='ghost'",
        Some(names) => {
            let host = |(at, name): (usize, &String)| match at {
                0 => name == "cpu",
                _ => *name == format!("cpu:{at}"),
            };
            if !names.iter().enumerate().all(host) {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                text += &format!(", devices=[{}]", names.join(", "));
            }
        }
    }
    let link = |axis: &str| {
        let link = mesh.link(axis)?;
        Some(format!("'{axis}': ({:?}, {:?})", link.latency(), link.bandwidth()))
    };
    let links: Vec<String> = mesh.axes().filter_map(link).collect();
    if !links.is_empty() {
        text += &format!(", topology={{{}}}", links.join(", "));
    }
    text + ")"
}
