//! Converters of scalar parameters, for `#[pyo3(from_py_with = ...)]`: those that all front ends share
//! (`girih_pyo3::scalars`), and those of numbers and tensors.

use crate::args;
use crate::dtype::DTypeArg;
use crate::errors::invalid;
use crate::sequences::Pair;
use crate::statistics::{Percent, Share};
use crate::symbolic_float::PySymbolicFloat;
use crate::tensor::PyTensor;
pub use girih_pyo3::scalars::*;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

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

/// A tensor or None; no array.
pub fn maybe_tensor(given: &Bound<'_, PyAny>) -> PyResult<Option<girih::Tensor>> {
    maybe(given, |given| Ok(object::<PyTensor>(given)?.borrow().0.clone()))
}
