//! Arguments that are sequences: the one reader that all of them go through.
//!
//! A sequence from Python may be endless, may report a wrong length, and may be longer than memory.
//! The reader therefore iterates, reserves nothing ahead, stops at a limit, and runs the handlers
//! of signals, so that Control-C ends it.

use crate::errors::{exception, invalid};
use crate::tensors::is_tensor;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyRange, PyString, PyTuple};

/// The maximum number of items of a list, such as the tensors to concatenate.
pub const MANY: usize = 1 << 18;

/// The maximum number of entries of an argument with at most one for each axis of a tensor. It is
/// larger than the maximum rank, so that an op's own message says what is wrong with a list that is
/// a little too long.
pub const FEW: usize = 2 * girih_ir::MAX_RANK;

/// The number of items between two checks for signals.
const BETWEEN_CHECKS: usize = 1 << 10;

/// The number of items of an object whose length can be trusted.
pub fn known_len(object: &Bound<'_, PyAny>) -> Option<usize> {
    let exact = object.is_exact_instance_of::<PyList>()
        || object.is_exact_instance_of::<PyTuple>()
        || object.is_exact_instance_of::<PyRange>()
        || is_tensor(object);
    exact.then(|| object.len().ok()).flatten()
}

/// The name of an object's class, for messages.
pub fn class_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map(|name| name.to_string()).unwrap_or_default()
}

fn too_many(most: usize) -> PyErr {
    invalid(format!(
        "a sequence of at most {most} items is expected, got one that is longer or endless; give a \
         shorter list, or one tensor that holds the items along an axis"
    ))
}

/// Calls `take` with each item that iterating an object gives. It stops at an error of `take`, at a
/// signal, and with an error at more than `most` items.
pub fn for_each<'py>(
    object: &Bound<'py, PyAny>,
    most: usize,
    mut take: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    let py = object.py();
    if known_len(object).is_some_and(|len| len > most) {
        return Err(too_many(most));
    }
    let items = object.try_iter().map_err(|error| {
        // Do not hide an error of the object's own `__iter__`.
        match error.is_instance_of::<PyTypeError>(py) {
            true => {
                let kind = class_name(object);
                let message =
                    format!("a sequence is expected, such as a list of tensors, got a {kind}");
                exception("DTypeError", message)
            }
            false => error,
        }
    })?;
    for (i, item) in items.enumerate() {
        if i % BETWEEN_CHECKS == BETWEEN_CHECKS - 1 {
            py.check_signals()?;
        }
        if i == most {
            return Err(too_many(most));
        }
        take(item?)?;
    }
    Ok(())
}

/// Reads the items of an object, at most `most`, with `read`.
pub fn read<'py, T>(
    object: &Bound<'py, PyAny>,
    most: usize,
    mut read: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let mut items = Vec::new();
    for_each(object, most, |item| {
        items.push(read(item)?);
        Ok(())
    })?;
    Ok(items)
}

/// The items that iterating an object gives, at most `MOST`.
pub struct Listed<T, const MOST: usize = MANY>(pub Vec<T>);

/// At most one entry for each axis of a tensor.
pub type PerAxis<T> = Listed<T, FEW>;

impl<T, const MOST: usize> std::ops::Deref for Listed<T, MOST> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T, const MOST: usize> IntoIterator for Listed<T, MOST> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, 'py, T, const MOST: usize> FromPyObject<'a, 'py> for Listed<T, MOST>
where
    T: FromPyObjectOwned<'py>,
{
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        // A str is iterable, and never a list.
        if object.is_instance_of::<PyString>() {
            let message = format!("a sequence is expected, got the str {}", object.repr()?);
            return Err(exception("DTypeError", message));
        }
        read(&object, MOST, |item| item.extract().map_err(Into::into)).map(Listed)
    }
}

/// Two values: a tuple, or another sequence of two items.
#[derive(Clone, Copy)]
pub struct Pair<T>(pub T, pub T);

impl<'a, 'py, T: FromPyObjectOwned<'py>> FromPyObject<'a, 'py> for Pair<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Listed(items) = object.extract::<Listed<T, 2>>().map_err(|error| match error
            .is_instance_of::<PyTypeError>(object.py())
        {
            true => not_a_pair(&object),
            false => error,
        })?;
        match <[T; 2]>::try_from(items) {
            Ok([first, second]) => Ok(Pair(first, second)),
            Err(_) => Err(not_a_pair(&object)),
        }
    }
}

fn not_a_pair(object: &Bound<'_, PyAny>) -> PyErr {
    let found = crate::scalars::described(object);
    invalid(format!("a pair of values is expected, got {found}"))
}
