//! Meshes of devices, partition specs and shardings from Python, as data.

mod mesh;
mod spec;
mod tensors;

pub use mesh::PyDeviceMesh;
pub use spec::{PyDimSpec, PyP, spec_of};

use crate::args::SizesArg;
use crate::errors::{IntoPy, invalid};
use crate::location;
use crate::scalars;
use girih::sharding::{self, Drawing, Sharding};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::hash::{DefaultHasher, Hasher};

/// A mesh and a spec that is valid on it. Two shardings are equal if each device has the same
/// elements of every tensor under both; axes of size 1 and names of axes do not count.
#[pyclass(name = "Sharding", module = "girih", frozen)]
pub struct PySharding(pub Sharding);

impl PySharding {
    /// The sharding.
    pub fn sharding(&self) -> &Sharding {
        &self.0
    }
}

/// The start and the number of elements along each dimension.
type Ranges = Vec<(usize, usize)>;

fn sizes(shape: &SizesArg, op: &str) -> PyResult<Vec<usize>> {
    shape.at_least(0, op, "each size of the shape")
}

/// Warns of sub-axes that follow each other, which are one sub-axis or a whole axis.
fn warn_of_neighbours(py: Python<'_>, sharding: &Sharding) -> PyResult<()> {
    let (spec, merged) = (sharding.spec(), sharding.spec().merged(sharding.mesh()));
    if *spec == merged {
        return Ok(());
    }
    let on = sharding.mesh().summary();
    let message = format!("{spec} on {on} is the same as {merged}; write the shorter form");
    let message = std::ffi::CString::new(message)?;
    PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, location::user_level(py))
}

#[pymethods]
impl PySharding {
    #[new]
    #[pyo3(signature = (mesh, spec=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] mesh: Bound<'_, PyDeviceMesh>,
        spec: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PySharding> {
        let spec = spec.map(|spec| spec_of(&spec)).transpose()?.unwrap_or_default();
        let sharding = Sharding::new(mesh.get().mesh().clone(), spec).py()?;
        warn_of_neighbours(py, &sharding)?;
        Ok(PySharding(sharding))
    }

    /// The mesh. Returns: DeviceMesh.
    #[getter]
    fn mesh(&self) -> PyDeviceMesh {
        PyDeviceMesh(self.0.mesh().clone())
    }

    /// The spec. Returns: P.
    #[getter]
    fn spec(&self) -> PyP {
        PyP(self.0.spec().clone())
    }

    /// The elements that each device of the mesh has of a tensor of a shape, as start and number
    /// along each dimension. Returns: list[list[tuple[int, int]]].
    fn rectangles(&self, shape: SizesArg) -> PyResult<Vec<Ranges>> {
        let rects = sharding::rectangles(&self.0, &sizes(&shape, "rectangles")?).py()?;
        let ranges = |rect: sharding::Rect| rect.start.into_iter().zip(rect.extent).collect();
        Ok(rects.into_iter().map(ranges).collect())
    }

    /// The shape of the shard of a device by its position in the mesh; the first one has the
    /// largest. Returns: tuple[int, ...].
    #[pyo3(signature = (shape, position=0))]
    fn shard_shape<'py>(
        &self,
        py: Python<'py>,
        shape: SizesArg,
        #[pyo3(from_py_with = scalars::whole)] position: usize,
    ) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        let (len, shape) = (self.0.mesh().len(), sizes(&shape, "shard_shape")?);
        if position >= len {
            let on = self.0.mesh().summary();
            return Err(invalid(format!(
                "shard_shape: {on} has no position {position}; positions are 0 to {}",
                len - 1
            )));
        }
        let found = sharding::local_shape(&self.0, &shape, position).py()?;
        pyo3::types::PyTuple::new(py, found)
    }

    /// Whether each device has all elements of a tensor of a shape; without a shape, of every
    /// tensor. Returns: bool.
    #[pyo3(signature = (shape=None))]
    fn is_fully_replicated(&self, shape: Option<SizesArg>) -> PyResult<bool> {
        match shape {
            Some(shape) => {
                let shape = sizes(&shape, "is_fully_replicated")?;
                sharding::is_fully_replicated(&self.0, &shape).py()
            }
            None => {
                let whole = Sharding::replicated(self.0.mesh().clone());
                Ok(sharding::equivalent(&self.0, &whole))
            }
        }
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PySharding>().is_ok_and(|other| sharding::equivalent(&self.0, &other.get().0))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        sharding::hash_ownership(&self.0, &mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        format!("{} on {}", self.0.spec(), self.0.mesh().summary())
    }

    fn __repr__(&self) -> String {
        format!("Sharding({}, {})", mesh::shown(self.0.mesh()), spec::shown(self.0.spec()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (PyDeviceMesh, PyP)) {
        (py.get_type::<PySharding>(), (self.mesh(), self.spec()))
    }
}

/// Draws which devices have which elements of a tensor: of a sharding and a shape, or of an object
/// with both, such as a tensor. Returns: str.
#[pyfunction]
#[pyo3(signature = (sharding, shape=None, *, format="text"))]
fn visualize_sharding(
    sharding: &Bound<'_, PyAny>,
    shape: Option<SizesArg>,
    #[pyo3(from_py_with = scalars::text)] format: &str,
) -> PyResult<String> {
    let form = match format {
        "text" => Drawing::Text,
        "svg" => Drawing::Svg,
        _ => {
            let message =
                format!("visualize_sharding: the formats are 'text' and 'svg', got {format:?}");
            return Err(invalid(message));
        }
    };
    let attribute = |name: &str| {
        sharding.getattr(name).map_err(|_| {
            let found = scalars::described(sharding);
            invalid(format!(
                "visualize_sharding: expected a Sharding and a shape, or a tensor with a sharding, \
                 got {found}"
            ))
        })
    };
    let given = match sharding.cast::<PySharding>() {
        Ok(given) => given.clone(),
        Err(_) => scalars::object::<PySharding>(&attribute("sharding")?)?,
    };
    let shape = match shape {
        Some(shape) => shape,
        None => attribute("shape")?.extract()?,
    };
    sharding::drawing(given.get().sharding(), &sizes(&shape, "visualize_sharding")?, form).py()
}

/// Adds this file's classes and function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyDeviceMesh>()?;
    m.add_class::<PyDimSpec>()?;
    m.add_class::<PyP>()?;
    m.add_class::<PySharding>()?;
    m.add_function(wrap_pyfunction!(visualize_sharding, m)?)?;
    tensors::register(m)
}
