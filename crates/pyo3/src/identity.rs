//! Whether Python objects are the same, or equal without a difference that a program could see:
//! `1` is not `True`, and `0.0` is not `-0.0`.

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyFloat, PyInt, PyRange, PySlice, PyString, PyTuple,
};

/// True for an object with the same type and value as a known immutable object.
pub fn is_equal(known: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> bool {
    if known.is(object) {
        return true;
    }
    if !known.get_type().is(object.get_type()) {
        return false;
    }
    if let (Ok(a), Ok(b)) = (known.cast::<PyFloat>(), object.cast::<PyFloat>()) {
        return a.value().to_bits() == b.value().to_bits();
    }
    if let (Ok(a), Ok(b)) = (known.cast::<PyComplex>(), object.cast::<PyComplex>()) {
        let bits = |z: &Bound<'_, PyComplex>| [z.real().to_bits(), z.imag().to_bits()];
        return bits(a) == bits(b);
    }
    if let (Ok(a), Ok(b)) = (known.cast::<PyTuple>(), object.cast::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(&a, &b));
    }
    if known.is_instance_of::<PySlice>() || known.is_instance_of::<PyRange>() {
        return ["start", "stop", "step"].iter().all(|name| {
            let parts = (known.getattr(*name), object.getattr(*name));
            matches!(parts, (Ok(a), Ok(b)) if is_equal(&a, &b))
        });
    }
    known.eq(object).unwrap_or(false)
}

/// True for the same object, or for an immutable builtin object with the same type and value.
pub fn is_same(known: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> bool {
    if known.is(object) {
        return true;
    }
    if let (Ok(a), Ok(b)) = (known.cast_exact::<PyTuple>(), object.cast_exact::<PyTuple>()) {
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(&a, &b));
    }
    let plain = known.is_exact_instance_of::<PyInt>()
        || known.is_exact_instance_of::<PyFloat>()
        || known.is_exact_instance_of::<PyString>()
        || known.is_exact_instance_of::<PyBool>()
        || known.is_exact_instance_of::<PyBytes>()
        || known.is_exact_instance_of::<PyComplex>();
    plain && is_equal(known, object)
}
