//! Norms of vectors and matrices.

use super::{abs_square, sizes, svdvals, widened};
use crate::{Axes, DType, Error, ReducedAxes, Result, Tensor};
use girih_ir::ops::reduce::axis_set;
use smallvec::SmallVec;

/// A matrix norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixNorm {
    /// The square root of the sum of squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// `inf` is the largest sum of absolute values of a row, `1` the largest sum of absolute values
    /// of a column, and `2` the largest singular value. Negative orders take the smallest instead.
    Order(f64),
}

/// The root of order `ord` of the sum of powers of absolute values; its gradient is 0 where the
/// norm is 0.
#[track_caller]
fn power_norm(x: &Tensor, axes: Option<&[i64]>, keepdims: bool, ord: f64) -> Result<Tensor> {
    let powers = if ord == 2.0 { abs_square(x)? } else { x.abs()?.pow(ord)? };
    powers.sum(Axes::from(axes).reduced(keepdims))?.safe_root(ord)
}

/// As [`power_norm`], without overflow or underflow of the powers.
#[track_caller]
fn scaled_norm(x: &Tensor, axes: Option<&[i64]>, keepdims: bool, ord: f64) -> Result<Tensor> {
    let norm = |x: &Tensor, keepdims| power_norm(x, axes, keepdims, ord);
    within_range(x, axes, keepdims, ord == 2.0, norm)
}

/// `f(x, keepdims)`, without overflow or underflow on the way, for a real `f` of elements along
/// axes that is multiplied if all elements are, such as a norm or a deviation. An `f` of `squares`
/// is computed in f64 for dtypes of a smaller range. Otherwise the elements are scaled by a power
/// of two near the largest element, which is exact.
#[track_caller]
pub(crate) fn within_range(
    x: &Tensor,
    axes: Option<&[i64]>,
    keepdims: bool,
    squares: bool,
    f: impl Fn(&Tensor, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    let dtype = x.dtype().real();
    if squares && dtype != DType::F64 || x.numel() == 0 {
        let wide = if x.dtype().is_complex() { DType::C128 } else { DType::F64 };
        return f(&x.astype(wide)?, keepdims)?.astype(dtype);
    }
    let bound = if dtype == DType::F64 { 1022.0 } else { 126.0 };
    let largest = x.abs()?.max(crate::keepdims(axes))?.stop_gradient()?;
    let exponent = largest.log2()?.floor()?.clip(-bound, bound)?;
    let scaled = x.mul(&exponent.neg()?.exp2()?)?;
    let norm = f(&scaled, true)?.mul(&exponent.exp2()?)?;
    match (keepdims, axes) {
        (true, _) => Ok(norm),
        (false, Some(axes)) => norm.squeeze(axes),
        (false, None) => norm.reshape(()),
    }
}

/// A norm over axes: the root of order `ord` of the sum of powers of
/// absolute values; the largest (infinity) or smallest (-infinity) absolute value; or the number of
/// nonzero elements (0). Norms of complex numbers are real. The gradient is 0 where the norm is 0.
/// No intermediate value overflows or underflows.
#[track_caller]
pub fn vector_norm(x: &Tensor, over: impl Into<ReducedAxes>, ord: f64) -> Result<Tensor> {
    let over = over.into();
    norm_by(x, over.as_slice(), over.keepdims, ord, ord == 2.0)
}

/// As [`vector_norm`], for layers: squares of f32 are scaled instead of computed in f64, which is
/// three times as fast and less exact.
#[track_caller]
pub(crate) fn norm_of_rows(x: &Tensor, axis: i64, keepdims: bool, ord: f64) -> Result<Tensor> {
    norm_by(x, Some(&[axis]), keepdims, ord, false)
}

#[track_caller]
fn norm_by(
    x: &Tensor,
    axes: Option<&[i64]>,
    keepdims: bool,
    ord: f64,
    in_f64: bool,
) -> Result<Tensor> {
    let (x, dtype) = widened(x)?;
    let size = x.abs()?;
    let norm = if ord == f64::INFINITY {
        match size.numel() {
            0 => size.sum(Axes::from(axes).reduced(keepdims))?,
            _ => size.max(Axes::from(axes).reduced(keepdims))?,
        }
    } else if ord == f64::NEG_INFINITY {
        size.min(Axes::from(axes).reduced(keepdims))?
    } else if ord == 0.0 {
        size.ne(0.0)?.astype(size.dtype())?.sum(Axes::from(axes).reduced(keepdims))?
    } else if ord == 1.0 {
        size.sum(Axes::from(axes).reduced(keepdims))?
    } else {
        let norm = |x: &Tensor, keepdims| power_norm(x, axes, keepdims, ord);
        within_range(&x, axes, keepdims, in_f64, norm)?
    };
    norm.astype(dtype.real())
}

/// A norm of matrices, whose rows and columns are along two axes: `[-2, -1]`, for instance, or `..`
/// for a single matrix.
///
/// Errors: [`Error::InvalidArgument`] for an invalid order, and unless there are two axes; an axis
/// error; a shape error for fewer than two axes.
#[track_caller]
pub fn matrix_norm(x: &Tensor, over: impl Into<ReducedAxes>, norm: MatrixNorm) -> Result<Tensor> {
    const OP: &str = "matrix_norm";
    sizes(OP, x)?;
    let over = over.into();
    let axes = match over.as_slice() {
        Some(axes) => axes.to_vec(),
        None => (0..x.rank() as i64).collect(),
    };
    let &[rows, columns] = axes.as_slice() else {
        return Err(Error::InvalidArgument(format!(
            "matrix_norm: two axes are expected, that of rows and that of columns, got {axes:?}"
        )));
    };
    let kept = axis_set(OP, Some(&axes), x.rank())?;
    let kept: SmallVec<[i64; 2]> = kept.iter().map(|axis| axis as i64).collect();
    let (x, dtype) = widened(&x.moveaxis(&[rows, columns], &[-2, -1])?)?;
    let largest = |sums: &Tensor, axis: i64, down: bool| match down {
        true => sums.min(crate::keepdims(axis)),
        false => sums.max(crate::keepdims(axis)),
    };
    let singular = || svdvals(&x)?.unsqueeze(-1);
    let out = match norm {
        MatrixNorm::Frobenius => scaled_norm(&x, Some(&[-2, -1]), true, 2.0)?,
        MatrixNorm::Nuclear => singular()?.sum(crate::keepdims(-2))?,
        MatrixNorm::Order(ord) if ord.abs() == 2.0 => largest(&singular()?, -2, ord < 0.0)?,
        MatrixNorm::Order(ord) if ord.abs() == 1.0 => {
            largest(&x.abs()?.sum(crate::keepdims(-2))?, -1, ord < 0.0)?
        }
        MatrixNorm::Order(ord) if ord.is_infinite() => {
            largest(&x.abs()?.sum(crate::keepdims(-1))?, -2, ord < 0.0)?
        }
        MatrixNorm::Order(ord) => {
            return Err(Error::InvalidArgument(format!(
                "matrix_norm: the order is 'fro', 'nuc', 1, 2, infinity or one of these negated, \
                 got {ord}"
            )));
        }
    };
    let out = out.squeeze([-2, -1])?;
    let out = match over.keepdims {
        true => kept.iter().try_fold(out, |out, &axis| out.unsqueeze(axis))?,
        false => out,
    };
    out.astype(dtype.real())
}
