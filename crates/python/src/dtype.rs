//! Dtypes as Python objects.

use crate::errors::{IntoPy, exception};
use crate::scalars;
use girih::DType;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyString, PyType};
use std::hash::{DefaultHasher, Hash, Hasher};

/// An element type: `girih.float32` and the like.
#[pyclass(name = "DType", module = "girih", frozen)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    /// The dtype with this name.
    #[new]
    fn new(#[pyo3(from_py_with = scalars::text)] name: &str) -> PyResult<PyDType> {
        DType::parse(name).map(PyDType).py()
    }

    /// The name of the dtype in NumPy. Returns: str.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// The number of bytes of one element. Returns: int.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// The dtype of NumPy with the same elements, by which ``np.dtype`` converts; an AttributeError
    /// for bfloat16, unless a library has added it to NumPy. Returns: Any.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = py.import("numpy")?.getattr("dtype")?.call1((self.0.name(),));
        found.map_err(|_| {
            let message = format!("NumPy has no dtype {}; convert to float32 first", self.0.name());
            pyo3::exceptions::PyAttributeError::new_err(message)
        })
    }

    /// NumPy's letter for the dtype, by which SciPy chooses routines. Returns: str.
    #[getter]
    fn char<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dtype(py)?.getattr("char")
    }

    /// NumPy's letter for the kind of the dtype: "b", "i", "u", "f" or "c". Returns: str.
    #[getter]
    fn kind<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dtype(py)?.getattr("kind")
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    /// A dtype equals itself, and NumPy's dtype and scalar type of the same elements.
    fn __richcmp__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let same = match other.cast::<PyDType>() {
            Ok(other) => Some(self.0 == other.get().0),
            Err(_) => numpy_name(other)?.map(|name| name.as_deref() == Some(self.0.name())),
        };
        Ok(match (op, same) {
            (CompareOp::Eq, Some(same)) => PyBool::new(py, same).to_owned().into_any(),
            (CompareOp::Ne, Some(same)) => PyBool::new(py, !same).to_owned().into_any(),
            _ => py.NotImplemented().into_bound(py),
        })
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

/// The name of a dtype or scalar type of NumPy, or of a library that adds dtypes to NumPy. `None`
/// for any other object; a dtype of another byte order has no name.
fn numpy_name(object: &Bound<'_, PyAny>) -> PyResult<Option<Option<String>>> {
    let class = match object.cast::<PyType>() {
        Ok(class) => class.clone(),
        Err(_) => object.get_type(),
    };
    let module: String = class.getattr("__module__")?.extract().unwrap_or_default();
    if !matches!(module.split('.').next(), Some("numpy" | "ml_dtypes")) {
        return Ok(None);
    }
    let Ok(dtype) = object.py().import("numpy")?.getattr("dtype")?.call1((object,)) else {
        return Ok(None);
    };
    let native = dtype.getattr("isnative")?.extract()?;
    if native { Ok(Some(Some(dtype.getattr("name")?.extract()?))) } else { Ok(Some(None)) }
}

/// Adds an object for each dtype; the object for bool is also named `bool_`.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    for dtype in DType::ALL {
        m.add(dtype.name(), PyDType(dtype))?;
    }
    m.add("bool_", PyDType(DType::Bool))
}

/// A dtype argument: a `DType`, its name, a Python type, or a NumPy dtype.
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
            return named(crate::scalars::text(name.as_any())?);
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
        // NumPy's dtypes have a `name`; its scalar types have the same name as `__name__`.
        for attribute in ["name", "__name__"] {
            if let Ok(name) = object.getattr(attribute).and_then(|n| n.extract::<String>()) {
                return named(name.trim_end_matches('_'));
            }
        }
        Err(exception("DTypeError", format!("{} is no dtype", object.repr()?)))
    }
}
