//! The order of complex numbers, which is NumPy's: by the real part, then by the imaginary part.
//! Numbers with a NaN are largest: first those whose imaginary part is NaN, then those whose real
//! part is.

use super::quantile::gathered;
use super::{ReducedAxes, keepdims, where_};
use crate::{Result, Tensor};
use girih_ir::DType;

/// The indices (i64) that sort the rows of a complex tensor. The sort is stable.
#[track_caller]
pub(super) fn argsort(x: &Tensor, descending: bool) -> Result<Tensor> {
    let by = |key: &Tensor| match descending {
        true => key.argsort_descending(-1),
        false => key.argsort(-1),
    };
    let (re, im) = (x.real()?, x.imag()?);
    let numbers = im.isnan()?.astype(DType::I8)?;
    let kind = where_(&re.isnan()?, 2, &numbers)?;
    let mut order = by(&im)?;
    for key in [&re, &kind] {
        let next = by(&key.take_along_axis(&order, -1)?)?;
        order = order.take_along_axis(&next, -1)?;
    }
    Ok(order)
}

/// The index (i64) of the first largest or smallest element of each row, or of the first NaN; the
/// rows have size one then.
#[track_caller]
fn position(x: &Tensor, largest: bool) -> Result<Tensor> {
    let extreme = |part: &Tensor| match largest {
        true => part.max(keepdims(-1)),
        false => part.min(keepdims(-1)),
    };
    let (re, im) = (x.real()?, x.imag()?);
    let first = re.eq(&extreme(&re)?)?;
    let never = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
    let among = where_(&first, &im, never)?;
    let found = first.bitwise_and(&among.eq(&extreme(&among)?)?)?;
    let nan = x.isnan()?;
    where_(&nan.any(keepdims(-1))?, &nan, &found)?.argmax(keepdims(-1))
}

/// The largest or smallest complex number over axes; one with NaN if there is any.
#[track_caller]
pub(super) fn extremum(x: &Tensor, over: &ReducedAxes, largest: bool) -> Result<Tensor> {
    let (rows, kept) = gathered(if largest { "max" } else { "min" }, x, over.as_slice())?;
    let found = rows.take_along_axis(&position(&rows, largest)?, -1)?;
    if over.keepdims { found.reshape(kept) } else { found.squeeze(-1) }
}

/// The index (i64) of the first largest or smallest complex number along an axis.
#[track_caller]
pub(super) fn arg(x: &Tensor, axis: i64, keeps: bool, largest: bool) -> Result<Tensor> {
    let rows = x.moveaxis(&[axis], &[-1])?;
    let found = position(&rows, largest)?;
    if keeps { found.moveaxis(&[-1], &[axis]) } else { found.squeeze(-1) }
}

/// The median of complex numbers over axes: the middle element in their order, or the mean of the
/// two middle elements; NaN if there is any, and over an empty axis.
#[track_caller]
pub(super) fn median(x: &Tensor, over: &ReducedAxes) -> Result<Tensor> {
    let (rows, kept) = gathered("median", x, over.as_slice())?;
    let shape = rows.shape();
    let count = shape[shape.rank() - 1];
    let mean = if count == 0 {
        rows.mean(keepdims(-1))?
    } else {
        let sorted = rows.sort(-1)?;
        let middle = |at: usize| sorted.narrow(-1, at, 1);
        let mean = middle((count - 1) / 2)?.add(&middle(count / 2)?)?.mul(0.5)?;
        where_(&rows.isnan()?.any(keepdims(-1))?, f64::NAN, &mean)?
    };
    if over.keepdims { mean.reshape(kept) } else { mean.squeeze(-1) }
}
