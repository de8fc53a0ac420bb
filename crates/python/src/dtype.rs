//! Dtypes as Python objects.

use crate::errors::{IntoPy, exception};
use girih::DType;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};

/// An element type: `girih.float32` and the like.
#[pyclass(name = "DType", module = "girih", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    /// The dtype of that name.
    #[new]
    fn new(name: &str) -> PyResult<PyDType> {
        DType::parse(name).map(PyDType).py()
    }

    /// NumPy's name of it. Returns: str.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Bytes of one element. Returns: int.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    fn __repr__(&self) -> String {
        format!("girih.{}", self.0.name())
    }

    fn __str__(&self) -> &'static str {
        self.0.name()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (self.0.name(),))
    }
}

/// Adds one object per dtype; the one for bool also as `bool_`.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    for dtype in DType::ALL {
        m.add(dtype.name(), PyDType(dtype))?;
    }
    m.add("bool_", PyDType(DType::Bool))
}

/// A dtype as users give it: a `DType`, its name, a Python type, or a NumPy dtype.
pub struct DTypeArg(pub DType);

impl<'a, 'py> FromPyObject<'a, 'py> for DTypeArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(dtype) = object.cast::<PyDType>() {
            return Ok(DTypeArg(dtype.get().0));
        }
        let py = object.py();
        let named = |name: &str| DType::parse(name).map(DTypeArg).py();
        if let Ok(name) = object.cast::<PyString>() {
            return named(name.to_cow()?.as_ref());
        }
        if object.is(py.get_type::<PyBool>()) {
            return Ok(DTypeArg(DType::Bool));
        }
        if object.is(py.get_type::<PyInt>()) {
            return Ok(DTypeArg(girih::default_int()));
        }
        if object.is(py.get_type::<PyFloat>()) {
            return Ok(DTypeArg(DType::F32));
        }
        if object.is(py.get_type::<PyComplex>()) {
            return Ok(DTypeArg(DType::C64));
        }
        // NumPy's dtypes have a name, its scalar types are named so.
        for attribute in ["name", "__name__"] {
            if let Ok(name) = object.getattr(attribute).and_then(|n| n.extract::<String>()) {
                return named(name.trim_end_matches('_'));
            }
        }
        Err(exception("DTypeError", format!("{} is no dtype", object.repr()?)))
    }
}
