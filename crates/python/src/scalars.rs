//! Converters of scalar parameters, for `#[pyo3(from_py_with = ...)]`: flags, numbers, integers of
//! each width, texts and paths.
//!
//! PyO3's own conversions raise `TypeError` and `OverflowError`, which are no errors of this
//! package, and their messages speak of conversions. Every parameter of an exported function that
//! is a plain Rust type therefore names a converter of this file; `test_tidy.py` checks this.

use crate::args::{self, described, wide_integer};
use crate::dtype::DTypeArg;
use crate::errors::{exception, invalid};
use crate::sequences::{self, Listed, Pair};
use crate::statistics::{Percent, Share};
use crate::symbolic_float::PySymbolicFloat;
use crate::tensor::PyTensor;
use pyo3::PyClass;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString};
use std::path::PathBuf;

/// A `DTypeError`, unless the error comes from the object's own methods.
fn or_wrong_type(error: PyErr, object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    match error.is_instance_of::<PyTypeError>(object.py()) {
        true => wrong_type(object, expected),
        false => error,
    }
}

fn wrong_type(object: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    exception("DTypeError", format!("{expected} is expected, got {}", described(object)))
}

/// `None`, or what `read` makes of another object.
fn maybe<'a, 'py, T>(
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

/// A parameter of a type that a macro's caller names: a plain type, which this file converts, or one
/// that converts itself.
pub trait Param<'a, 'py>: Sized {
    /// Reads the argument.
    fn read(object: &'a Bound<'py, PyAny>) -> PyResult<Self>;
}

macro_rules! params {
    ([$($plain:ty: $read:expr),*] [$($own:ty),*]) => {
        $(impl<'a, 'py> Param<'a, 'py> for $plain {
            fn read(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
                $read(object)
            }
        })*
        $(impl<'a, 'py> Param<'a, 'py> for $own {
            fn read(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
                object.extract()
            }
        })*
    };
}

params! {
    [bool: flag, f64: number, i32: whole, i64: whole, usize: whole, &'a str: text]
    [args::TensorArg, args::OperandArg, args::Axes, args::PlaceArg, args::IntArg, args::SizeArg, args::KeepArg,
     args::ShapeArg, args::SizesArg, DTypeArg, Share, Percent]
}

impl<'a, 'py, T: Param<'a, 'py>> Param<'a, 'py> for Option<T> {
    fn read(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        maybe(object, T::read)
    }
}

/// Reads a parameter by its type.
pub fn param<'a, 'py, T: Param<'a, 'py>>(object: &'a Bound<'py, PyAny>) -> PyResult<T> {
    T::read(object)
}

/// True, False or None.
pub fn maybe_flag(object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    maybe(object, flag)
}

/// A real number.
pub fn number(object: &Bound<'_, PyAny>) -> PyResult<f64> {
    object.extract().map_err(|error: PyErr| {
        match error.is_instance_of::<PyOverflowError>(object.py()) {
            true => invalid(format!("the number {} does not fit float64", described(object))),
            // The error of a number of a function being compiled says what to do.
            false if object.is_instance_of::<PySymbolicFloat>() => error,
            false => or_wrong_type(error, object, "a number"),
        }
    })
}

/// A real number or None.
pub fn maybe_number(object: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    maybe(object, number)
}

/// Two numbers, the lower and the upper bound of a range, or None.
pub fn maybe_bounds(object: &Bound<'_, PyAny>) -> PyResult<Option<(f64, f64)>> {
    maybe(object, bounds)
}

/// Two ranges, for two axes, or None.
pub fn maybe_two_bounds(object: &Bound<'_, PyAny>) -> PyResult<Option<[(f64, f64); 2]>> {
    maybe(object, |object| {
        let Pair(first, second) = object.extract::<Pair<Bound<'_, PyAny>>>()?;
        Ok([bounds(&first)?, bounds(&second)?])
    })
}

fn bounds(object: &Bound<'_, PyAny>) -> PyResult<(f64, f64)> {
    let Pair(low, high) = object.extract::<Pair<Bound<'_, PyAny>>>()?;
    Ok((number(&low)?, number(&high)?))
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

/// A tensor or None; no array.
pub fn maybe_tensor(given: &Bound<'_, PyAny>) -> PyResult<Option<girih::Tensor>> {
    maybe(given, |given| Ok(object::<PyTensor>(given)?.borrow().0.clone()))
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
