//! Distributions of booleans and integers.

use super::key::{Call, Draws, fold_in};
use crate::{Operand, Result, Tensor, default_int, scan, where_};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, OpCode, Shape};

/// Draws that are true with probability `p`; the default dtype is bool.
///
/// Errors: those of [`super::uniform`].
#[track_caller]
pub fn bernoulli<'a>(draws: &Draws, p: impl Into<Operand<'a>>) -> Result<Tensor> {
    events("bernoulli", draws, p.into())?.astype(draws.dtype_or(DType::Bool))
}

/// The least probability of an event, and of its absence, for which the 24 bits of an f32 draw are
/// precise enough: they change the probability by less than `2^-14` of its value.
const COMMON: f64 = 1.0 / 1024.0;

/// Whether an event of probability `p` occurs, for each element. Rare events, rare absences, and
/// events whose probability is a tensor are decided by 64 bits.
#[track_caller]
pub(crate) fn events(op: &'static str, draws: &Draws, p: Operand<'_>) -> Result<Tensor> {
    let mut call = Call::new(op, draws, DType::F32, &[p])?;
    call.dtype = call.wide;
    if matches!(p, Operand::Float(p) if (COMMON..=1.0 - COMMON).contains(&p)) {
        return call.unit(0)?.lt(&call.parameters[0]);
    }
    let p = p.constant(DType::F64)?;
    let threshold = p.mul(2f64.powi(64))?.astype(DType::U64)?;
    call.bits(0)?.lt(&threshold)?.bitwise_or(&p.ge(1.0)?)
}

/// Draws of -1 or 1, each with probability one half; the default dtype is i64.
#[track_caller]
pub fn rademacher(draws: &Draws) -> Result<Tensor> {
    let call = Call::new("rademacher", draws, DType::F32, &[])?;
    let sign = call.bits(0)?.shift_right(63)?.astype(default_int())?.mul(2)?.sub(1)?;
    sign.astype(draws.dtype_or(default_int()))
}

/// Categorical draws: indices along an axis of `logits` with the probabilities of the softmax, by
/// the Gumbel-max trick. The requested shape must end with the shape of the other axes.
///
/// Errors: an axis error; a shape error for another shape, or no categories.
#[track_caller]
pub fn categorical(draws: &Draws, logits: &Tensor, axis: i64) -> Result<Tensor> {
    let (op, shape) = ("categorical", logits.shape());
    let axis = normalize_axis(op, axis, shape.rank())?;
    if shape.dim(axis).equals(0) {
        let reason = "at least one category is expected".into();
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let batch: Vec<_> = shape.dims().enumerate().filter(|(i, _)| *i != axis).collect();
    let batch = Shape::of_dims(batch.into_iter().map(|(_, dim)| dim));
    let mut outer = 0;
    let noise = draws.reshaped(|asked| {
        let front = asked.rank().checked_sub(batch.rank());
        let front = front.filter(|&front| asked.part(front..).equals(&batch)).ok_or_else(|| {
            let reason = "the shape asked for must end with the logits' other axes".into();
            let (lhs, rhs) = (shape.clone(), asked.clone());
            girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }
        })?;
        outer = front;
        Ok(Shape::of_dims(asked.dims().take(front).chain(shape.dims())))
    })?;
    let mut call = Call::new(op, &noise, DType::F32, &[Operand::Tensor(logits)])?;
    call.dtype = call.wide;
    let noise = call.exponential(0)?.log()?;
    let best = call.parameters[0].sub(&noise)?.argmax((axis + outer) as i64)?;
    best.astype(draws.dtype_or(default_int()))
}

/// Poisson draws with mean `lam`; the default dtype is i64. The result is -1 for a negative `lam`
/// or NaN.
#[track_caller]
pub fn poisson<'a>(draws: &Draws, lam: impl Into<Operand<'a>>) -> Result<Tensor> {
    let call = Call::new("poisson", draws, DType::F64, &[lam.into()])?;
    let found = call.drawn(OpCode::PoissonDraw, &[&call.parameters[0]])?;
    found.astype(draws.dtype_or(default_int()))
}

/// Binomial draws: the number of successes in `n` trials of probability `p`; the default dtype is
/// i64. -1 unless `n` is a non-negative whole number and `p` is in `[0, 1]`.
#[track_caller]
pub fn binomial<'a>(
    draws: &Draws,
    n: impl Into<Operand<'a>>,
    p: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let call = Call::new("binomial", draws, DType::F64, &[n.into(), p.into()])?;
    let found = call.drawn(OpCode::BinomialDraw, &[&call.parameters[0], &call.parameters[1]])?;
    found.astype(draws.dtype_or(default_int()))
}

/// Multinomial draws: the number of occurrences of each category in `n` draws, with categories
/// along the last axis of `p`. The elements of `p` are weights that need not sum to one; counts are
/// -1 for weights that are negative, not finite or all zero. The requested shape is that of the other axes. The default dtype is i64.
///
/// Errors: a shape error for weights of rank 0.
#[track_caller]
pub fn multinomial<'a>(draws: &Draws, n: impl Into<Operand<'a>>, p: &Tensor) -> Result<Tensor> {
    let (op, shape, n) = ("multinomial", p.shape(), n.into());
    let Some(count) = shape.rank().checked_sub(1).map(|last| shape[last]) else {
        let reason = "at least one axis is expected".into();
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    };
    let p = p.astype(DType::F64)?;
    let allowed = p.ge(0.0)?.bitwise_and(&p.isfinite()?)?.all(-1)?;
    let allowed = allowed.bitwise_and(&p.gt(0.0)?.any(-1)?)?;
    // The share of a category among itself and those after it: exactly one for the last category
    // with a weight, which therefore receives all remaining draws.
    let rest = p.flip(-1)?.cumsum(-1)?.flip(-1)?;
    let shares = where_(&rest.gt(0.0)?, &p.div(&rest)?, 0.0)?;
    let shares = shares.clip(0.0, 1.0)?;
    let first = p.narrow(-1, 0, count.min(1))?.sum(-1)?;
    let call = Call::new(op, draws, DType::F64, &[n, Operand::Tensor(&first)])?;
    let whole = |x: &Tensor| x.broadcast_to(call.shape.clone());
    let key = call.own_key()?;
    // An invalid number of draws makes all counts invalid.
    let n = where_(&allowed, &call.parameters[0], -1.0)?;
    let init = [whole(&n)?];
    let numbers = Tensor::iota([count], 0, DType::U64)?;
    let columns = shares.moveaxis(&[-1], &[0])?;
    let step = |carries: &[Tensor], parts: &[Tensor]| {
        let ([left], [share, number]) = (carries, parts) else { unreachable!("as given") };
        let share = whole(share)?;
        let call = call.with_key(fold_in(&key, number)?);
        let drawn = call.drawn(OpCode::BinomialDraw, &[left, &share])?;
        let left = where_(&drawn.lt(0.0)?, left, &left.sub(&drawn)?)?;
        Ok((vec![left], vec![drawn]))
    };
    let (_, mut drawn) = scan(step, &init, &[columns, numbers])?;
    let drawn = drawn.swap_remove(0).moveaxis(&[0], &[-1])?;
    drawn.astype(draws.dtype_or(default_int()))
}
