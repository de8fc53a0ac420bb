//! Sorting, searching and cumulative operations, as functions and methods.

use crate::args::{Axes, IntArg, OperandArg, TensorArg, axes, axis};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, both, out};
use crate::location;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::{Cumulative, DType, Running, Side, Tensor};
use pyo3::prelude::*;

/// The tensor and the axis of an operation along an axis: the flattened tensor if no axis is given.
pub fn along(
    op: &str,
    x: &Tensor,
    axis: Option<Axes>,
    dim: Option<Axes>,
) -> PyResult<(Tensor, i64)> {
    match axes(axis, dim)?.single(op)? {
        Some(axis) => Ok((x.clone(), axis)),
        None => Ok((x.reshape(-1).py()?, 0)),
    }
}

/// The direction of a cumulative operation, and whether a result includes its own element.
pub fn how(reverse: Option<bool>, inclusive: Option<bool>) -> Running {
    Running { reverse: reverse.unwrap_or(false), exclusive: !inclusive.unwrap_or(true) }
}

/// Fails unless an axis is given or the tensor has only one axis.
fn need_axis(op: &str, x: &Tensor, axis: &Option<Axes>) -> PyResult<()> {
    let given = axis.as_ref().is_some_and(|a| a.0.is_some());
    match given || x.rank() == 1 {
        true => Ok(()),
        false => Err(invalid(format!(
            "{op}: give the axis; only a tensor of one axis needs none, this has {}",
            x.rank()
        ))),
    }
}

both! {
    sorting:

    /// Sorts elements along an axis, the last by default. NaN counts as largest; equal elements
    /// keep their order.
    fn sort(x, py, axis: Option<Axes> = None;
        descending: Option<bool>, stable: Option<bool>, dim: Option<Axes>) {
        let _ = stable; // The sort is always stable.
        let axis = self::axis("sort", axis, dim, -1)?;
        out(match descending.unwrap_or(false) {
            true => x.sort_descending(axis),
            false => x.sort(axis),
        })
    }

    /// Indices that sort along an axis, the last by default. NaN counts as largest; equal elements
    /// keep their order. Dtype: int64.
    fn argsort(x, py, axis: Option<Axes> = None;
        descending: Option<bool>, stable: Option<bool>, dim: Option<Axes>) {
        let _ = stable;
        let axis = self::axis("argsort", axis, dim, -1)?;
        out(match descending.unwrap_or(false) {
            true => x.argsort_descending(axis),
            false => x.argsort(axis),
        })
    }

    /// Running sums along an axis, or of the flattened tensor. Integers and bool are summed in
    /// int64. With reverse they run from the end; with inclusive=False each leaves out its own
    /// element.
    fn cumsum(x, py, axis: Option<Axes> = None; dtype: Option<DTypeArg>, dim: Option<Axes>,
        reverse: Option<bool>, inclusive: Option<bool>) {
        let (x, axis) = along("cumsum", x, axis, dim)?;
        out(x.cumsum_by(axis, dtype.map(|d| d.0), how(reverse, inclusive)))
    }

    /// Running products along an axis, or of the flattened tensor. Integers and bool are multiplied
    /// in int64. With reverse they run from the end; with inclusive=False each leaves out its own
    /// element.
    fn cumprod(x, py, axis: Option<Axes> = None; dtype: Option<DTypeArg>, dim: Option<Axes>,
        reverse: Option<bool>, inclusive: Option<bool>) {
        let (x, axis) = along("cumprod", x, axis, dim)?;
        out(x.cumprod_by(axis, dtype.map(|d| d.0), how(reverse, inclusive)))
    }

    /// ``log(cumsum(exp(x)))`` without overflow, along an axis or of the flattened tensor. With
    /// reverse it runs from the end; with inclusive=False each result leaves out its own element.
    fn logcumsumexp(x, py, axis: Option<Axes> = None;
        dim: Option<Axes>, reverse: Option<bool>, inclusive: Option<bool>) {
        let (x, axis) = along("logcumsumexp", x, axis, dim)?;
        out(x.logcumsumexp_by(axis, how(reverse, inclusive)))
    }

    /// Running maxima along an axis, the last by default; all are NaN from the first NaN on. With
    /// reverse they run from the end; with inclusive=False each leaves out its own element.
    fn cummax(x, py, axis: Option<Axes> = None;
        dim: Option<Axes>, reverse: Option<bool>, inclusive: Option<bool>) {
        out(x.cummax_by(self::axis("cummax", axis, dim, -1)?, how(reverse, inclusive)))
    }

    /// Running minima along an axis, the last by default; all are NaN from the first NaN on. With
    /// reverse they run from the end; with inclusive=False each leaves out its own element.
    fn cummin(x, py, axis: Option<Axes> = None;
        dim: Option<Axes>, reverse: Option<bool>, inclusive: Option<bool>) {
        out(x.cummin_by(self::axis("cummin", axis, dim, -1)?, how(reverse, inclusive)))
    }

    /// Indices of the running maxima along an axis; of equal elements, the last. Dtype: int64.
    fn argcummax(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(x.argcummax(self::axis("argcummax", axis, dim, -1)?))
    }

    /// Indices of the running minima along an axis; of equal elements, the last. Dtype: int64.
    fn argcummin(x, py, axis: Option<Axes> = None; dim: Option<Axes>) {
        out(x.argcummin(self::axis("argcummin", axis, dim, -1)?))
    }
}

fn running(dtype: Option<DTypeArg>, include_initial: bool) -> Cumulative {
    Cumulative { dtype: dtype.map(|d| d.0), include_initial }
}

/// Running sums along an axis, which is required for tensors with several axes. With
/// include_initial the result begins with a zero.
#[pyfunction]
#[pyo3(signature = (x, /, *, axis=None, dtype=None, include_initial=false))]
fn cumulative_sum(
    py: Python<'_>,
    x: TensorArg,
    axis: Option<Axes>,
    dtype: Option<DTypeArg>,
    #[pyo3(from_py_with = scalars::flag)] include_initial: bool,
) -> Out {
    let _called = location::enter!(py);
    need_axis("cumulative_sum", &x.0, &axis)?;
    let axis = self::axis("cumulative_sum", axis, None, 0)?;
    out(x.0.cumsum_with(axis, running(dtype, include_initial)))
}

/// Running products along an axis, which is required for tensors with several axes. With
/// include_initial the result begins with a one.
#[pyfunction]
#[pyo3(signature = (x, /, *, axis=None, dtype=None, include_initial=false))]
fn cumulative_prod(
    py: Python<'_>,
    x: TensorArg,
    axis: Option<Axes>,
    dtype: Option<DTypeArg>,
    #[pyo3(from_py_with = scalars::flag)] include_initial: bool,
) -> Out {
    let _called = location::enter!(py);
    need_axis("cumulative_prod", &x.0, &axis)?;
    let axis = self::axis("cumulative_prod", axis, None, 0)?;
    out(x.0.cumprod_with(axis, running(dtype, include_initial)))
}

/// The k largest (or smallest) elements along an axis, the last by default, in order from the best,
/// and their indices. Returns: tuple[Tensor, Tensor].
#[pyfunction]
#[pyo3(signature = (x, k, axis=None, *, largest=true, dim=None))]
fn topk(
    py: Python<'_>,
    x: TensorArg,
    k: IntArg,
    axis: Option<Axes>,
    #[pyo3(from_py_with = scalars::flag)] largest: bool,
    dim: Option<Axes>,
) -> PyResult<(PyTensor, PyTensor)> {
    let _called = location::enter!(py);
    let axis = self::axis("topk", axis, dim, -1)?;
    let count = usize::try_from(k.0)
        .map_err(|_| invalid(format!("topk: k must not be negative, got {}", k.0)))?;
    let best = if largest { x.0.topk(count, axis) } else { x.0.topk_smallest(count, axis) };
    let (values, indices) = best.py()?;
    Ok((PyTensor(values), PyTensor(indices)))
}

/// The k-th smallest element along an axis, counted from 1, and its index; the axis stays. Returns:
/// tuple[Tensor, Tensor].
#[pyfunction]
fn kth_value(
    py: Python<'_>,
    x: TensorArg,
    k: IntArg,
    axis: IntArg,
) -> PyResult<(PyTensor, PyTensor)> {
    let _called = location::enter!(py);
    let count = usize::try_from(k.0)
        .map_err(|_| invalid(format!("kthvalue: k must not be negative, got {}", k.0)))?;
    let (values, indices) = x.0.kthvalue(count, axis.0).py()?;
    Ok((PyTensor(values), PyTensor(indices)))
}

/// Indices at which inserted values keep a sorted vector in order: before equal elements, or after
/// them with side='right'. Dtype: int64.
#[pyfunction]
#[pyo3(signature = (sorted, values, side="left", sorter=None))]
fn searchsorted(
    py: Python<'_>,
    sorted: TensorArg,
    values: OperandArg,
    #[pyo3(from_py_with = scalars::text)] side: &str,
    sorter: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(py);
    let right = match side {
        "left" => false,
        "right" => true,
        other => {
            return Err(invalid(format!("searchsorted: side is 'left' or 'right', got '{other}'")));
        }
    };
    let (right, values) = match values {
        // As a tensor, a Python integer would be an int64, which does not combine with uint64. A
        // negative integer is below all elements.
        OperandArg::Int(v) if sorted.0.dtype() == DType::U64 => {
            (right && v >= 0, Tensor::full(girih::Operand::Int(v.max(0)), [], DType::U64).py()?)
        }
        OperandArg::Tensor(tensor) => (right, tensor),
        number => {
            let dtype = match number {
                OperandArg::Bool(_) => DType::Bool,
                OperandArg::Int(_) | OperandArg::Size(_) => girih::default_int(),
                // A Python float is weak: it takes the dtype of sorted floats.
                OperandArg::Float(_) | OperandArg::Weak(_) if sorted.0.dtype().is_float() => {
                    sorted.0.dtype()
                }
                OperandArg::Float(_) | OperandArg::Weak(_) => DType::F32,
                _ => DType::C64,
            };
            (right, Tensor::full(number.operand(), [], dtype).py()?)
        }
    };
    let side = if right { Side::Right } else { Side::Left };
    out(girih::searchsorted(&sorted.0, &values, side, sorter.as_ref().map(|s| &s.0)))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    sorting::register(m)?;
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! { cumulative_sum cumulative_prod topk kth_value searchsorted }
    Ok(())
}
