//! Converters of scalar parameters, for `#[pyo3(from_py_with = ...)]`: flags, integers of each width,
//! texts and paths.
//!
//! PyO3's own conversions raise `TypeError` and `OverflowError`, which are no errors of this
//! package, and their messages speak of conversions. Every parameter of an exported function that
//! is a plain Rust type therefore names a converter; `test_tidy.py` checks this.

use crate::errors::{exception, invalid};
use crate::sequences::{self, Listed};
use crate::tensors;
use pyo3::PyClass;
use pyo3::exceptions::{PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use std::path::PathBuf;

/// The longest text of an object in a message.
const DESCRIBED: usize = 120;

/// An object as messages show it: its text, shortened. A tensor is shown without its values, which
/// need not be computed for a message.
pub fn described(object: &Bound<'_, PyAny>) -> String {
    if let Some(spec) = tensors::spec_of(object) {
        return format!("a tensor {spec}");
    }
    let Ok(text) = object.repr() else { return "an object without a repr".into() };
    let text = text.to_string();
    match text.char_indices().nth(DESCRIBED) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    }
}

/// An integer that fits 64 bits.
pub fn integer(object: &Bound<'_, PyAny>) -> PyResult<i64> {
    object
        .extract()
        .map_err(|_| invalid(format!("the integer {} does not fit in 64 bits", described(object))))
}

/// Reads an integer of any integer dtype, signed or unsigned, of at most 64 bits.
pub fn wide_integer(object: &Bound<'_, PyAny>) -> PyResult<i128> {
    match object.extract::<i64>() {
        Ok(value) => Ok(value.into()),
        Err(_) => match object.extract::<u64>() {
            Ok(value) => Ok(value.into()),
            Err(_) => integer(object).map(Into::into),
        },
    }
}

/// A `DTypeError`, unless the error comes from the object's own methods.
pub fn or_wrong_type(error: PyErr, object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match error.is_instance_of::<PyTypeError>(object.py()) {
        true => wrong_type(object, expected),
        false => error,
    }
}

fn wrong_type(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    exception("DTypeError", format!("{expected} is expected, got {}", described(object)))
}

/// `None`, or what `read` makes of another object.
pub fn maybe<'a, 'py, T>(
    object: &'a Bound<'py, PyAny>,
    read: impl FnOnce(&'a Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if object.is_none() { Ok(None) } else { read(object).map(Some) }
}

/// True or False, also NumPy's.
pub fn flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(value.is_true());
    }
    object.extract().map_err(|error| or_wrong_type(error, object, "True or False"))
}

/// True, False or None.
pub fn maybe_flag(object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    maybe(object, flag)
}

/// An integer that fits the type `T`.
pub fn whole<T: TryFrom<i128>>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let value = match object.is_instance_of::<PyInt>() {
        true => wide_integer(object)?,
        false => {
            let index = object.call_method0("__index__");
            wide_integer(&index.map_err(|_| wrong_type(object, "an integer"))?)?
        }
    };
    let (bits, least) =
        (8 * size_of::<T>(), if T::try_from(-1).is_ok() { "" } else { "unsigned " });
    T::try_from(value)
        .map_err(|_| invalid(format!("the integer {value} does not fit in {least}{bits} bits")))
}

/// An integer or None.
pub fn maybe_whole<T: TryFrom<i128>>(object: &Bound<'_, PyAny>) -> PyResult<Option<T>> {
    maybe(object, whole)
}

/// A text.
pub fn text<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    match object.cast::<PyString>() {
        Ok(text) => text.to_str().map_err(|_| {
            invalid(format!("the text {} has characters that are not Unicode", described(object)))
        }),
        Err(_) => Err(wrong_type(object, "a str")),
    }
}

/// A text or None.
pub fn maybe_text<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a str>> {
    maybe(object, text)
}

/// A text that the function keeps.
pub fn own_text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    text(object).map(str::to_string)
}

/// The contents of a bytes object.
pub fn bytes<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    match object.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes()),
        Err(_) => Err(wrong_type(object, "bytes")),
    }
}

/// The path of a file: a str, or an object with `__fspath__`.
pub fn path(object: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    object.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyUnicodeError>(object.py()) {
            true => invalid(format!("{} is no path of a file", described(object))),
            false => or_wrong_type(error, object, "the path of a file"),
        }
    })
}

/// An object of one of this package's classes.
pub fn object<'py, T: PyClass>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, T>> {
    match object.cast::<T>() {
        Ok(object) => Ok(object.clone()),
        Err(_) => {
            let name = T::type_object(object.py()).name()?.to_string();
            let article = if name.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
            Err(wrong_type(object, &format!("{article} {name}")))
        }
    }
}

/// An object of one of this package's classes, or None.
pub fn maybe_object<'py, T: PyClass>(given: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, T>>> {
    maybe(given, object)
}

/// A function, or another object that can be called.
pub fn function<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match object.is_callable() {
        true => Ok(object.clone()),
        false => Err(wrong_type(object, "a function")),
    }
}

/// Integers that fit the type `T`.
pub fn wholes<T: TryFrom<i128>>(object: &Bound<'_, PyAny>) -> PyResult<Listed<T>> {
    sequences::read(object, sequences::MANY, |item| whole(&item)).map(Listed)
}
