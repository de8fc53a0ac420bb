//! Index expressions, as Python hands them to `__getitem__`.

use crate::data::as_tensor;
use crate::errors::invalid;
use girih::Index;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};

/// The entries of an index expression.
pub fn entries(key: &Bound<'_, PyAny>) -> PyResult<Vec<Index>> {
    match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|item| entry(&item)).collect(),
        Err(_) => Ok(vec![entry(key)?]),
    }
}

fn entry(item: &Bound<'_, PyAny>) -> PyResult<Index> {
    if item.is_none() {
        return Ok(Index::NewAxis);
    }
    if item.is_instance_of::<PyBool>() {
        return Err(invalid(
            "index: a bool is no position; use where(), or multiply by the mask, to choose by a \
             condition",
        ));
    }
    if item.is_instance_of::<PyInt>() {
        return Ok(Index::At(crate::args::integer(item)?));
    }
    if item.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if item.is_instance_of::<PySlice>() {
        let bound = |name: &str| {
            let value = item.getattr(name)?;
            if value.is_none() { Ok(None) } else { position(&value).map(Some) }
        };
        let step = bound("step")?.unwrap_or(1);
        return Ok(Index::Slice { start: bound("start")?, stop: bound("stop")?, step });
    }
    let tensor = as_tensor(item, None)?;
    if !tensor.dtype().is_int() {
        return Err(crate::errors::exception(
            "DTypeError",
            format!(
                "index: a tensor of dtype {} cannot index; integers are expected. Use where() to \
                 choose by a condition",
                tensor.dtype()
            ),
        ));
    }
    Ok(Index::Take(tensor))
}

fn position(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let index = value.call_method0("__index__").map_err(|_| {
        invalid(format!("index: slice bounds must be integers or None, got {value}"))
    })?;
    // Bounds beyond 64 bits mean beyond the end all the same.
    index.extract::<i64>().or_else(|_| Ok(if index.lt(0)? { i64::MIN } else { i64::MAX }))
}
