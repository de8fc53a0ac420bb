//! Distributions of booleans and integers.

use super::key::{Call, Draws, fold_in};
use crate::{Operand, Result, Tensor, default_int, scan, where_, while_loop};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Shape};

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

/// Rejection sampling that keeps the first accepted result of each element.
struct Rejection {
    call: Call,
    key: Tensor,
}

impl Rejection {
    fn new(call: Call) -> Result<Rejection> {
        let key = call.own_key()?;
        Ok(Rejection { call, key })
    }

    /// Runs `step` until every element is accepted. `step` receives two uniform draws, the results
    /// so far and the sums so far, and returns the next sums, the results and whether they are
    /// accepted. The result of elements that are not `valid` is -1.
    #[track_caller]
    fn run(
        &self,
        valid: &Tensor,
        start: f64,
        step: impl FnOnce(&[Tensor; 2], &Tensor, &Tensor) -> Result<[Tensor; 3]>,
    ) -> Result<Tensor> {
        let full = |value: f64| Tensor::full(value, self.call.shape.clone(), DType::F64);
        let invalid = valid.logical_not()?.broadcast_to(self.call.shape.clone())?;
        let kept = where_(&invalid, -1.0, &full(0.0)?)?;
        let init = [Tensor::zeros([], DType::U64)?, invalid, kept, full(start)?];
        let body = |state: &[Tensor]| {
            let [round, done, kept, sum] = state else { unreachable!("four carries") };
            let call = self.call.with_key(fold_in(&self.key, round)?);
            let [sum, found, accepted] = step(&[call.open(0)?, call.open(1)?], kept, sum)?;
            let kept = where_(done, kept, &found)?;
            Ok(vec![round.add(1)?, done.bitwise_or(&accepted)?, kept, sum])
        };
        let go_on = |state: &[Tensor]| state[1].all(..)?.logical_not();
        Ok(while_loop(go_on, body, &init)?.swap_remove(2))
    }
}

/// Poisson draws with mean `lam`; the default dtype is i64. The result is -1 for a negative `lam`
/// or NaN. Below ten: D. E. Knuth, "The Art of Computer Programming" 2, 3.4.1. From ten on: W.
/// Hörmann, "The transformed rejection method for generating Poisson random variables", Insurance:
/// Mathematics and Economics 12, 1993, routine PTRS.
#[track_caller]
pub fn poisson<'a>(draws: &Draws, lam: impl Into<Operand<'a>>) -> Result<Tensor> {
    let call = Call::new("poisson", draws, DType::F64, &[lam.into()])?;
    let lam = call.parameters[0].clone();
    let valid = lam.ge(0.0)?.bitwise_and(&lam.lt(1e18)?)?;
    let lam = where_(&valid, &lam, 0.0)?;
    let few = lam.lt(10.0)?;
    let (limit, many) = (lam.neg()?.exp()?, where_(&few, 10.0, &lam)?);
    let b = many.sqrt()?.mul(2.53)?.add(0.931)?;
    let a = b.mul(0.02483)?.sub(0.059)?;
    let inverse_alpha = b.sub(3.4)?.reciprocal()?.mul(1.1328)?.add(1.1239)?;
    let sure = b.sub(2.0)?.reciprocal()?.mul(-3.6224)?.add(0.9277)?;
    let log_many = many.log()?;
    let found = Rejection::new(call.clone())?.run(&valid, 1.0, |[u, v], count, product| {
        let product = product.mul(u)?;
        let over = product.le(&limit)?;
        let counted = where_(&over, count, &count.add(1.0)?)?;
        let centred = u.sub(0.5)?;
        let us = centred.abs()?.neg()?.add(0.5)?;
        let slope = a.mul(2.0)?.div(&us)?.add(&b)?;
        let k = slope.mul(&centred)?.add(&many)?.add(0.43)?.floor()?;
        let quick = us.ge(0.07)?.bitwise_and(&v.le(&sure)?)?;
        let squeezed = us.lt(0.013)?.bitwise_and(&v.gt(&us)?)?;
        let outside = k.lt(0.0)?.bitwise_or(&squeezed)?;
        let density = a.div(&us.mul(&us)?)?.add(&b)?;
        let left = v.mul(&inverse_alpha)?.div(&density)?.log()?;
        let right = k.mul(&log_many)?.sub(&many)?.sub(&k.add(1.0)?.lgamma()?)?;
        let slow = outside.logical_not()?.bitwise_and(&left.le(&right)?)?;
        let large = quick.bitwise_or(&slow)?;
        Ok([product, where_(&few, &counted, &k)?, where_(&few, &over, &large)?])
    })?;
    found.astype(draws.dtype_or(default_int()))
}

/// The number of successes in `n` trials of probability `p`, in f64; -1 unless `n >= 0` and `p` is
/// in `[0, 1]`. For fewer than ten expected successes: the number of geometric gaps that fit
/// (Devroye 1986, X.4.3). Otherwise: W. Hörmann, "The generation of binomial random variates",
/// Journal of Statistical Computation and Simulation 46, 1993, routine BTRS.
#[track_caller]
fn binomial_counts(call: &Call, n: &Tensor, p: &Tensor) -> Result<Tensor> {
    let whole = n.floor()?.eq(n)?;
    let valid = whole.bitwise_and(&n.ge(0.0)?)?.bitwise_and(&n.lt(1e18)?)?;
    let valid = valid.bitwise_and(&p.ge(0.0)?)?.bitwise_and(&p.le(1.0)?)?;
    let (n, p) = (where_(&valid, n, 0.0)?, where_(&valid, p, 0.0)?);
    let flipped = p.gt(0.5)?;
    let p = where_(&flipped, &p.neg()?.add(1.0)?, &p)?;
    let few = n.mul(&p)?.lt(10.0)?;
    // Elements that use the other method get harmless values.
    let (m_n, m_p) = (where_(&few, 40.0, &n)?, where_(&few, 0.5, &p)?);
    let gap = p.neg()?.log1p()?;
    let odds = m_p.div(&m_p.neg()?.add(1.0)?)?;
    let deviation = m_n.mul(&m_p)?.mul(&m_p.neg()?.add(1.0)?)?.sqrt()?;
    let b = deviation.mul(2.53)?.add(1.15)?;
    let a = b.mul(0.0248)?.sub(0.0873)?.add(&m_p.mul(0.01)?)?;
    let centre = m_n.mul(&m_p)?.add(0.5)?;
    let sure = b.reciprocal()?.mul(-4.2)?.add(0.92)?;
    let alpha = b.reciprocal()?.mul(5.1)?.add(2.83)?.mul(&deviation)?;
    let mode = m_n.add(1.0)?.mul(&m_p)?.floor()?;
    let log_odds = odds.log()?;
    let ways = |k: &Tensor| k.add(1.0)?.lgamma()?.add(&m_n.sub(k)?.add(1.0)?.lgamma()?);
    let at_mode = ways(&mode)?;
    let found = Rejection::new(call.clone())?.run(&valid, 0.0, |[u, v], count, sum| {
        let sum = u.log()?.div(&gap)?.ceil()?.add(sum)?;
        let over = sum.gt(&n)?;
        let counted = where_(&over, count, &count.add(1.0)?)?;
        let centred = u.sub(0.5)?;
        let us = centred.abs()?.neg()?.add(0.5)?;
        let k = a.mul(2.0)?.div(&us)?.add(&b)?.mul(&centred)?.add(&centre)?.floor()?;
        let quick = us.ge(0.07)?.bitwise_and(&v.le(&sure)?)?;
        let inside = k.ge(0.0)?.bitwise_and(&k.le(&m_n)?)?;
        let safe = where_(&inside, &k, 0.0)?;
        let left = v.mul(&alpha)?.div(&a.div(&us.mul(&us)?)?.add(&b)?)?.log()?;
        let right = at_mode.sub(&ways(&safe)?)?.add(&safe.sub(&mode)?.mul(&log_odds)?)?;
        let large = inside.bitwise_and(&quick.bitwise_or(&left.le(&right)?)?)?;
        Ok([sum, where_(&few, &counted, &k)?, where_(&few, &over, &large)?])
    })?;
    let other = where_(&flipped, &n.sub(&found)?, &found)?;
    where_(&valid, &other, -1.0)
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
    let found = binomial_counts(&call, &call.parameters[0], &call.parameters[1])?;
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
        let drawn = binomial_counts(&call.with_key(fold_in(&key, number)?), left, &share)?;
        let left = where_(&drawn.lt(0.0)?, left, &left.sub(&drawn)?)?;
        Ok((vec![left], vec![drawn]))
    };
    let (_, mut drawn) = scan(step, &init, &[columns, numbers])?;
    let drawn = drawn.swap_remove(0).moveaxis(&[0], &[-1])?;
    drawn.astype(draws.dtype_or(default_int()))
}
