//! Tensors on meshes from Python.

use super::{PyDeviceMesh, PyP, PySharding, spec_of};
use crate::args::{SizesArg, TensorArg};
use crate::contexts::sync;
use crate::errors::{IntoPy, invalid};
use crate::functions::Out;
use crate::interpreter::detach;
use crate::location;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::Tensor;
use girih::sharding::{Collective, Sharding};
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pymethods]
impl PyTensor {
    /// The sharding, if the tensor is on a mesh; known as soon as it is recorded.
    /// Returns: Sharding | None.
    #[getter]
    fn sharding(&self) -> Option<PySharding> {
        self.0.sharding().cloned().map(PySharding)
    }

    /// The names of the devices that hold the tensor: one, or those of its mesh.
    /// Returns: list[str].
    #[getter]
    fn devices(&self) -> Vec<&'static str> {
        self.0.devices().into_iter().map(girih::Device::name).collect()
    }

    /// Whether each device of the tensor's mesh has all of it. Returns: bool.
    #[getter]
    fn is_fully_replicated(&self) -> PyResult<bool> {
        self.0.is_fully_replicated().py()
    }

    /// The part of each device of the mesh, as a tensor on the device. Returns: list[Tensor].
    fn shards(&self, py: Python<'_>) -> PyResult<Vec<PyTensor>> {
        sync(py);
        let shards = detach(py, || self.0.shards()).py()?;
        Ok(shards.into_iter().map(PyTensor).collect())
    }

    /// The tensor under a sharding over a mesh of devices. Returns: Tensor.
    #[pyo3(signature = (mesh, spec=None))]
    fn shard(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] mesh: Bound<'_, PyDeviceMesh>,
        spec: Option<Bound<'_, PyAny>>,
    ) -> Out {
        let _called = location::enter!(py);
        let spec = spec.map(|spec| spec_of(&spec)).transpose()?.unwrap_or_default();
        self.0.shard(mesh.get().mesh(), &spec).map(PyTensor).py()
    }
}

/// A tensor under a sharding. Returns: Tensor.
#[pyfunction]
fn reshard(
    py: Python<'_>,
    x: TensorArg,
    #[pyo3(from_py_with = scalars::object)] sharding: Bound<'_, PySharding>,
) -> Out {
    let _called = location::enter!(py);
    x.0.reshard(sharding.get().sharding()).map(PyTensor).py()
}

/// Whether an object states a spec: a P, text, or None. Returns: bool.
#[pyfunction]
fn is_spec(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_instance_of::<PyP>()
        || object.is_instance_of::<pyo3::types::PyString>()
}

/// The sharding that an object states for a tensor: a Sharding, or a spec on the tensor's mesh.
/// Returns: Sharding.
#[pyfunction]
fn sharding_for(object: &Bound<'_, PyAny>, x: TensorArg) -> PyResult<PySharding> {
    if let Ok(sharding) = object.cast::<PySharding>() {
        return Ok(PySharding(sharding.get().sharding().clone()));
    }
    let spec = spec_of(object)?;
    let Some(own) = x.0.sharding() else {
        return Err(invalid(format!(
            "{} is on no mesh, so that {spec} has no axes; give \
             gr.Sharding(mesh, {spec}), or shard an argument first",
            x.0.spec()
        )));
    };
    Ok(PySharding(Sharding::new(own.mesh().clone(), spec).py()?))
}

/// The tensor of a shape whose parts under a sharding are these tensors, one for each device of the
/// mesh, in its order. Parts that the sharding repeats are not compared. Returns: Tensor.
#[pyfunction]
fn from_shards(
    py: Python<'_>,
    shape: SizesArg,
    #[pyo3(from_py_with = scalars::object)] sharding: Bound<'_, PySharding>,
    shards: Listed<TensorArg>,
) -> Out {
    sync(py);
    let shape = super::sizes(&shape, "from_shards")?;
    let shards: Vec<Tensor> = shards.iter().map(|shard| shard.0.clone()).collect();
    let sharding = sharding.get().sharding();
    detach(py, || Tensor::from_shards(shape, sharding, &shards)).map(PyTensor).py()
}

/// Text and JSON of programs, and collectives.
type Explained<'py> = (Vec<(String, String)>, Vec<Bound<'py, PyDict>>);

/// What evaluating tensors on one mesh would do: text and JSON for the program of each stage, and the
/// collectives. Returns: tuple[list[tuple[str, str]], list[dict[str, Any]]].
#[pyfunction]
fn explain_on_mesh<'py>(
    py: Python<'py>,
    targets: Listed<TensorArg>,
    #[pyo3(from_py_with = scalars::flag)] asm: bool,
) -> PyResult<Explained<'py>> {
    sync(py);
    let targets: Vec<Tensor> = targets.iter().map(|target| target.0.clone()).collect();
    let explain = || girih::explain_on_mesh(&targets.iter().collect::<Vec<_>>());
    let (mut programs, found) = detach(py, explain).py()?;
    programs.iter_mut().for_each(|program| program.asm = asm);
    let text = |program: girih::Explanation| (program.to_string(), program.to_json());
    let found: PyResult<Vec<_>> = found.iter().map(|one| described(py, one)).collect();
    Ok((programs.into_iter().map(text).collect(), found?))
}

fn described<'py>(py: Python<'py>, collective: &Collective) -> PyResult<Bound<'py, PyDict>> {
    let [from, to] = collective.specs.each_ref().map(ToString::to_string);
    let line = collective.line;
    let dict = PyDict::new(py);
    dict.set_item("op", collective.kind.to_string())?;
    dict.set_item("axes", &collective.axes)?;
    dict.set_item("bytes", collective.bytes)?;
    dict.set_item("tensor", collective.tensor.to_string())?;
    dict.set_item("from", from)?;
    dict.set_item("to", to)?;
    dict.set_item("cause", collective.cause.unwrap_or("output"))?;
    dict.set_item("line", line.is_known().then(|| line.to_string()))?;
    Ok(dict)
}

/// Gives the host's processor at least a number of devices: ``cpu``, ``cpu:1`` and so on, up to 64.
/// They have memory and streams of their own, and share the processor. The number only grows.
/// Returns: None.
#[pyfunction]
fn set_host_devices(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::whole)] number: usize,
) -> PyResult<()> {
    sync(py);
    girih::set_host_devices(number).py()
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(reshard, m)?)?;
    m.add_function(wrap_pyfunction!(is_spec, m)?)?;
    m.add_function(wrap_pyfunction!(sharding_for, m)?)?;
    m.add_function(wrap_pyfunction!(from_shards, m)?)?;
    m.add_function(wrap_pyfunction!(explain_on_mesh, m)?)?;
    m.add_function(wrap_pyfunction!(set_host_devices, m)?)
}
