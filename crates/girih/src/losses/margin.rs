//! Margin losses for classification with one label or several labels per row. Classes are on the
//! last axis.

use super::{Reduction, check_labels, check_weight, finish, last, operands, same_shape, weighted};
use crate::{Error, Result, Tensor, where_};
use girih_ir::DType;

/// `sum(max(0, margin - x[label] + x[i])^p) / classes` over the other classes `i`, multiplied by
/// the label's weight; `p` is 1 or 2. Shapes: `[…, classes]` and labels `[…]`.
///
/// Errors: a shape error for labels or weights that do not fit; [`Error::InvalidArgument`] for any
/// other `p`; a dtype error for labels that are not integers.
#[track_caller]
pub fn multi_margin_loss(
    x: &Tensor,
    labels: &Tensor,
    p: i64,
    margin: f64,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "multi_margin_loss";
    if !(1..=2).contains(&p) {
        return Err(Error::InvalidArgument(format!("{op}: p must be 1 or 2, got {p}")));
    }
    check_labels(op, x, labels)?;
    check_weight(op, x, weight)?;
    let dtype = super::full(x.dtype());
    let x = x.astype(dtype.widened())?;
    let classes = last(&x).get();
    let labels = &labels.check_labels(classes)?;
    let picked = x.take_along_axis(&labels.unsqueeze(-1)?, -1)?;
    let violation = x.sub(&picked)?.add(margin)?.relu()?;
    let violation = if p == 2 { violation.square()? } else { violation };
    let own = labels.one_hot(classes, DType::Bool)?;
    let others = where_(&own, 0.0, &violation)?;
    let mut loss = others.sum(-1)?.div(classes.max(1) as f64)?;
    if let Some(weight) = weight {
        loss = loss.mul(&weight.astype(loss.dtype())?.take(labels, 0)?)?;
    }
    finish(Ok(loss), dtype, reduction)
}

/// `sum(max(0, 1 - x[j] + x[i])) / classes` over the labels `j` of a row and the classes `i` that
/// are not among them. A row of labels ends at its first negative label. Shapes: both
/// `[…, classes]`.
///
/// Errors: a shape error unless shapes are equal; a dtype error for labels that are not integers.
#[track_caller]
pub fn multilabel_margin_loss(x: &Tensor, labels: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let op = "multilabel_margin_loss";
    if !labels.dtype().is_int() {
        let (dtype, expected) = (labels.dtype(), "integer class labels");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    same_shape(op, x, labels)?;
    if x.rank() == 0 {
        let (shape, reason) = (x.shape(), "expected an axis of classes".into());
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let dtype = super::full(x.dtype());
    let x = x.astype(dtype.widened())?;
    let classes = last(&x).get();
    let there = labels.ge(0)?.astype(DType::I64)?.cumprod(-1)?.ne(0)?;
    let labels = where_(&there, labels, 0)?;
    let target = labels.one_hot(classes, DType::Bool)?.logical_and(&there.unsqueeze(-1)?)?;
    let target = target.any(-2)?.unsqueeze(-2)?;
    let picked = x.take_along_axis(&labels, -1)?.unsqueeze(-1)?;
    let violation = x.unsqueeze(-2)?.sub(&picked)?.add(1.0)?.relu()?;
    let counted = there.unsqueeze(-1)?.logical_and(&target.logical_not()?)?;
    let sums = where_(&counted, &violation, 0.0)?.sum([-2, -1])?;
    finish(sums.div(classes.max(1) as f64), dtype, reduction)
}

/// The mean over classes of the binary cross entropy of logits with targets in `0..=1`, weighted by
/// class. Shapes: both `[…, classes]`.
///
/// Errors: a shape error unless shapes are equal and there is one weight per class.
#[track_caller]
pub fn multilabel_soft_margin_loss(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "multilabel_soft_margin_loss";
    check_weight(op, x, weight)?;
    let (x, y, dtype) = operands(op, x, y)?;
    let each = weighted(x.softplus()?.sub(&x.mul(&y)?)?, weight)?;
    finish(each.mean(-1), dtype, reduction)
}
