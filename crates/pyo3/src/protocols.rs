//! Protocols of objects: whether an object has a method or attribute that makes it an array, a
//! number or a sequence.
//!
//! They are looked up on the object's type, as the interpreter looks up special methods, and then
//! among the attributes that the object itself holds. An object's own `__getattr__` is not asked: a
//! dict whose attributes are its keys has no `__dlpack__`, and raises `KeyError`.

use crate::interpreter::intern;
use crate::sequences::Listed;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// Whether an object supports a protocol.
pub fn has(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> bool {
    // Errors are those of a metaclass that answers for its classes.
    if object.get_type().hasattr(name).unwrap_or(false) {
        return true;
    }
    // The attributes that a class holds are those of its instances.
    if object.is_instance_of::<PyType>() {
        return false;
    }
    // SAFETY: both are live objects, and the interpreter is attached. The result is a new reference
    // or null with an exception set.
    let found = unsafe {
        let found = ffi::PyObject_GenericGetAttr(object.as_ptr(), name.as_ptr());
        Bound::from_owned_ptr_or_opt(object.py(), found)
    };
    if found.is_none() {
        drop(PyErr::take(object.py()));
    }
    found.is_some()
}

/// Whether an object is an array of some library: it has DLPack or NumPy's array interface.
pub fn is_array(object: &Bound<'_, PyAny>) -> bool {
    let py = object.py();
    !object.is_instance_of::<PyType>()
        && (has(object, intern!(py, "__array_interface__"))
            || has(object, intern!(py, "__dlpack__")))
}

/// Whether an object's type, or the object itself, has an attribute; its ``__getattr__`` is not
/// asked. Returns: bool.
#[pyfunction]
fn has_protocol(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> bool {
    has(object, name)
}

/// The items of an iterable, read like every argument that is a sequence: at most 2**18, and with
/// regard to signals. Returns: list[Any].
#[pyfunction]
fn items_of(values: Listed<Py<PyAny>>) -> Vec<Py<PyAny>> {
    values.0
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(has_protocol, m)?)?;
    m.add_function(wrap_pyfunction!(items_of, m)?)
}
