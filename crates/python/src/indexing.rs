//! Index expressions, as Python passes them to `__getitem__` and `__setitem__`.

use crate::compiled::PyDim;
use crate::data::as_tensor;
use crate::errors::{IntoPy, invalid};
use crate::interpreter::detach;
use crate::tensor::PyTensor;
use girih::{DType, Index, Size, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PySlice, PyTuple};

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
    if let Ok(truth) = item.cast::<PyBool>() {
        return Tensor::full(truth.is_true(), [], DType::Bool).map(Index::Mask).py();
    }
    if item.is_instance_of::<PyInt>() {
        return position(item).map(Index::At);
    }
    if let Ok(dim) = item.cast::<PyDim>() {
        return Ok(dim
            .get()
            .0
            .known()
            .map_or(Index::AtSize(dim.get().0), |at| Index::At(at as i64)));
    }
    if item.is_instance_of::<PyEllipsis>() {
        return Ok(Index::Ellipsis);
    }
    if item.is_instance_of::<PySlice>() {
        let bound = |name: &str| {
            let value = item.getattr(name)?;
            if value.is_none() { Ok(None) } else { position(&value).map(Some) }
        };
        // Keep sizes symbolic: converting them to numbers would fix them.
        if item.getattr("step")?.is_none()
            && let Some(between) = between(item)?
        {
            return Ok(between);
        }
        let step = bound("step")?.unwrap_or(1);
        return Ok(Index::Slice { start: bound("start")?, stop: bound("stop")?, step });
    }
    let tensor = as_tensor(item, None)?;
    let numpys = !item.is_instance_of::<PyTensor>() && tensor.rank() == 0;
    match tensor.dtype() {
        DType::Bool => Ok(Index::Mask(tensor)),
        // Treat a NumPy scalar like a number.
        dtype if dtype.is_int() && numpys => position(item).map(Index::At),
        dtype if dtype.is_int() && item.is_instance_of::<PyTensor>() => Ok(Index::Take(tensor)),
        // The values of lists and arrays are known, so they are checked now.
        dtype if dtype.is_int() => detach(item.py(), || Index::listed(tensor)).py(),
        // An empty list is a list of no positions.
        _ if tensor.numel() == 0 && is_list(item) => {
            tensor.astype(DType::I64).map(Index::Take).py()
        }
        dtype => Err(crate::errors::exception(
            "DTypeError",
            format!(
                "index: a tensor of dtype {dtype} cannot index; integers, which are positions, or \
                 bool, which is a mask, are expected"
            ),
        )),
    }
}

/// A slice with a bound that is computed from sizes; None for other slices.
fn between(slice: &Bound<'_, PyAny>) -> PyResult<Option<Index>> {
    let (start, stop) = (slice.getattr("start")?, slice.getattr("stop")?);
    if !start.is_instance_of::<PyDim>() && !stop.is_instance_of::<PyDim>() {
        return Ok(None);
    }
    let bound = |value: &Bound<'_, PyAny>| {
        if value.is_none() {
            return Ok(None);
        }
        match value.cast::<PyDim>() {
            Ok(dim) => Ok(Some(Size::Symbolic(dim.get().0))),
            Err(_) => position(value).map(|at| Some(Size::Known(at))),
        }
    };
    Ok(Some(Index::Between { start: bound(&start)?, stop: bound(&stop)? }))
}

fn is_list(item: &Bound<'_, PyAny>) -> bool {
    item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>()
}

fn position(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let index = value.call_method0("__index__").map_err(|_| {
        invalid(format!("index: slice bounds must be integers or None, got {value}"))
    })?;
    // Bounds beyond 64 bits are beyond the end, so clamp them.
    index.extract::<i64>().or_else(|_| Ok(if index.lt(0)? { i64::MIN } else { i64::MAX }))
}
