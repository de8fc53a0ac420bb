//! Norms of vectors and matrices.

use super::{abs_square, sizes, svdvals, widened};
use crate::{Error, Result, Tensor};

/// A norm of matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MatrixNorm {
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest sum of absolute values of a row (of a column for `1`, the largest singular value
    /// for `2`), or for negative orders the smallest.
    Order(f64),
}

/// A norm over axes, all of them for `None`: the root of order `ord` of the sum of powers of
/// absolute values; their largest (infinity), smallest (-infinity), or how many are not zero (0). Norms of complex
/// numbers are real.
#[track_caller]
pub fn vector_norm(x: &Tensor, axes: Option<&[i64]>, keepdims: bool, ord: f64) -> Result<Tensor> {
    let (x, dtype) = widened(x)?;
    let size = x.abs()?;
    let norm = if ord == f64::INFINITY {
        match size.numel() {
            0 => size.sum(axes, keepdims)?,
            _ => size.max(axes, keepdims)?,
        }
    } else if ord == f64::NEG_INFINITY {
        size.min(axes, keepdims)?
    } else if ord == 0.0 {
        size.ne(0.0)?.astype(size.dtype())?.sum(axes, keepdims)?
    } else if ord == 1.0 {
        size.sum(axes, keepdims)?
    } else if ord == 2.0 {
        abs_square(&x)?.sum(axes, keepdims)?.sqrt()?
    } else {
        size.pow(ord)?.sum(axes, keepdims)?.pow(1.0 / ord)?
    };
    norm.astype(dtype.real())
}

/// A norm of the last two axes.
///
/// Errors: [`Error::InvalidArgument`] for an order that is none; a shape error below two axes.
#[track_caller]
pub fn matrix_norm(x: &Tensor, keepdims: bool, norm: MatrixNorm) -> Result<Tensor> {
    sizes("matrix_norm", x)?;
    let (x, dtype) = widened(x)?;
    let largest = |sums: &Tensor, axis: i64, down: bool| match down {
        true => sums.min(Some(&[axis]), true),
        false => sums.max(Some(&[axis]), true),
    };
    let singular = || svdvals(&x)?.unsqueeze(-1);
    let out = match norm {
        MatrixNorm::Frobenius => abs_square(&x)?.sum(Some(&[-2, -1]), true)?.sqrt()?,
        MatrixNorm::Nuclear => singular()?.sum(Some(&[-2]), true)?,
        MatrixNorm::Order(ord) if ord.abs() == 2.0 => largest(&singular()?, -2, ord < 0.0)?,
        MatrixNorm::Order(ord) if ord.abs() == 1.0 => {
            largest(&x.abs()?.sum(Some(&[-2]), true)?, -1, ord < 0.0)?
        }
        MatrixNorm::Order(ord) if ord.is_infinite() => {
            largest(&x.abs()?.sum(Some(&[-1]), true)?, -2, ord < 0.0)?
        }
        MatrixNorm::Order(ord) => {
            return Err(Error::InvalidArgument(format!(
                "matrix_norm: the order is 'fro', 'nuc', 1, 2, infinity or one of these negated, \
                 got {ord}"
            )));
        }
    };
    let out = if keepdims { out } else { out.squeeze(Some(&[-2, -1]))? };
    out.astype(dtype.real())
}
