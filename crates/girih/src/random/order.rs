//! Random integers, permutations and choices.

use super::key::{Call, Draws};
use crate::ops::known;
use crate::{Error, Operand, Result, Side, Tensor, default_int, searchsorted, where_};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Shape};

/// Uniform integers in `[low, high)`; the default dtype is i64. The probability of an integer
/// differs from that of another by less than `2^-31` of its value.
///
/// Errors: [`Error::InvalidArgument`] unless `low < high` and the dtype holds all integers between;
/// a dtype error for a dtype that is not an integer dtype.
#[track_caller]
pub fn randint(draws: &Draws, low: impl Into<i128>, high: impl Into<i128>) -> Result<Tensor> {
    let (low, high) = (low.into(), high.into());
    let dtype = draws.dtype_or(default_int());
    let Some((min, max)) = dtype.int_range().filter(|_| dtype.is_int()) else {
        let (op, expected) = ("randint", "an integer dtype");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    };
    if low >= high || low < min || high - 1 > max {
        return Err(Error::InvalidArgument(format!(
            "randint: no {dtype} lies in [{low}, {high}); low must be less than high and both must \
             fit the dtype"
        )));
    }
    let (call, span) = (Call::new("randint", draws, DType::F32, &[])?, high - low);
    let bits = call.bits(0)?;
    if span < 1 << 32 {
        let (span, low) = (Operand::Int(span), Operand::Int(low));
        if i64::try_from(high).is_ok() {
            return bits.astype(DType::I64)?.remainder(span)?.add(low)?.astype(dtype);
        }
        return bits.shift_right(1)?.remainder(span)?.add(low)?.astype(dtype);
    }
    // Integers of 64 bits wrap, so that adding `low` modulo 2^64 gives signed ones too.
    let whole = || Operand::Int(span).constant(DType::U64);
    let drawn = if span == 1 << 64 { bits } else { scaled(&bits, &call.bits(1)?, &whole()?)? };
    let low = Operand::Int(low.rem_euclid(1 << 64)).constant(DType::U64)?;
    drawn.add(&low)?.astype(dtype)
}

/// Uniform integers between tensors of bounds, `low` included and `high` excluded; the default dtype
/// is i64. The bounds are not read: where no integer is between them, the result is `low`.
///
/// Errors: a dtype error for a dtype that is not an integer dtype, or bounds that are not integers; a
/// shape error for bounds that do not broadcast to the shape.
#[track_caller]
pub fn randint_between(draws: &Draws, low: &Tensor, high: &Tensor) -> Result<Tensor> {
    let (op, dtype) = ("randint", draws.dtype_or(default_int()));
    if !dtype.is_int() {
        let expected = "an integer dtype";
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    if let Some(bound) = [low, high].iter().find(|bound| bound.dtype().is_inexact()) {
        let (dtype, expected) = (bound.dtype(), "bounds that are integers");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    let call = Call::new(op, draws, DType::F32, &[Operand::Tensor(low), Operand::Tensor(high)])?;
    let some = low.lt(high)?;
    // Integers of 64 bits wrap, so that the differences of signed ones are right, too.
    let (low, high) = (low.astype(DType::U64)?, high.astype(DType::U64)?);
    let span = where_(&some, &high.sub(&low)?, Operand::Int(0))?;
    let drawn = scaled(&call.bits(0)?, &call.bits(1)?, &span)?;
    drawn.add(&low)?.astype(dtype)
}

/// The integer part of `span` times the fraction with the 128 binary digits `high` and `low`.
#[track_caller]
fn scaled(high: &Tensor, low: &Tensor, span: &Tensor) -> Result<Tensor> {
    let all = Operand::Int(u32::MAX.into()).constant(DType::U64)?;
    let halves = |x: &Tensor| Ok::<_, Error>((x.shift_right(32)?, x.bitwise_and(&all)?));
    let (upper, lower) = halves(span)?;
    // The upper 64 bits of the product of a word and the span.
    let above = |x: &Tensor| {
        let (x_upper, x_lower) = halves(x)?;
        let carry = x_lower.mul(&lower)?.shift_right(32)?;
        let (first, part) = halves(&x_upper.mul(&lower)?.add(&carry)?)?;
        let second = x_lower.mul(&upper)?.add(&part)?.shift_right(32)?;
        x_upper.mul(&upper)?.add(&first)?.add(&second)
    };
    let below = high.mul(span)?;
    let carried = below.add(&above(low)?)?.lt(&below)?;
    above(high)?.add(&carried.astype(DType::U64)?)
}

/// A random permutation of the numbers below `count` (i64).
#[track_caller]
pub fn permutation(draws: &Draws, count: usize) -> Result<Tensor> {
    let draws = draws.clone().shape([count]);
    // Ties between 64-bit draws are broken by position; they do not occur in practice.
    Call::new("permutation", &draws, DType::F32, &[])?.bits(0)?.argsort(0)
}

/// Permutes the slices along an axis randomly.
///
/// Errors: an axis error.
#[track_caller]
pub fn permuted(draws: &Draws, x: &Tensor, axis: i64) -> Result<Tensor> {
    let at = normalize_axis("permutation", axis, x.rank())?;
    x.take(&permutation(draws, x.shape()[at])?, axis)
}

/// Permutes each line along an axis randomly and independently of the others.
///
/// Errors: an axis error.
#[track_caller]
pub fn permuted_lines(draws: &Draws, x: &Tensor, axis: i64) -> Result<Tensor> {
    normalize_axis("permutation", axis, x.rank())?;
    let draws = draws.clone().shape(x.shape());
    let order = Call::new("permutation", &draws, DType::F32, &[])?.bits(0)?.argsort(axis)?;
    x.take_along_axis(&order, axis)
}

/// Whether [`choice`] may give an index again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// An index may be given again.
    With,
    /// Each index is given once at most.
    Without,
}

/// Indices below `count`, of the requested shape, with or without replacement. They are drawn
/// uniformly or by weights of one axis, which need not sum to one.
///
/// Errors: [`Error::InvalidArgument`] if `count` is zero, or too small without replacement, or for
/// weights that are negative, not finite, all zero, or without replacement positive for fewer
/// indices than are asked for; a shape error unless there is one weight per index. Weights that a
/// traced function computes have no values yet and are not checked.
#[track_caller]
pub fn choice(
    draws: &Draws,
    count: usize,
    replacement: Replacement,
    weights: Option<&Tensor>,
) -> Result<Tensor> {
    let (op, replace) = ("choice", replacement == Replacement::With);
    let call = Call::new(op, draws, DType::F64, &[])?;
    let asked = call.shape.numel();
    if asked > 0 && (count == 0 || (!replace && asked > count)) {
        return Err(Error::InvalidArgument(format!(
            "choice: {asked} of {count} are asked for{}",
            if replace { "" } else { " without replacement" }
        )));
    }
    let weights = weights.map(|w| w.astype(DType::F64)).transpose()?;
    if let Some(weights) = weights.as_ref().filter(|w| !w.shape().equals(&Shape::from([count]))) {
        let reason = format!("one weight for each of {count} is expected");
        return Err(girih_ir::Error::InvalidShape { op, shape: weights.shape(), reason }.into());
    }
    if let Some(weights) = weights.as_ref().filter(|_| asked > 0) {
        check_weights(weights, if replace { 1 } else { asked })?;
    }
    match (replace, weights) {
        (true, None) => randint(&draws.clone().dtype(DType::I64), 0, (count as i64).max(1)),
        (true, Some(weights)) => {
            let sums = weights.cumsum(0)?;
            let total = sums.narrow(0, count.saturating_sub(1), count.min(1))?;
            let at = call.of_dtype(DType::F64).unit(0)?.mul(&total.sum_all()?)?;
            // The product may be rounded to the total, which belongs to the last positive weight.
            let last = searchsorted(&sums, &total, Side::Left, None)?.sum_all()?;
            searchsorted(&sums, &at, Side::Right, None)?.minimum(&last)
        }
        (false, weights) => {
            // Select the smallest weighted exponential draws; for equal weights, this is a
            // permutation.
            let order = match weights {
                None => permutation(draws, count)?,
                Some(weights) => {
                    let noise = call.of_shape(Shape::from([count])).exponential(0)?;
                    // An index without weight comes after those whose quotient overflows.
                    let times = noise.div(&weights)?.minimum(f64::MAX)?;
                    let never = weights.eq(0.0)?;
                    where_(&never, f64::INFINITY, &times)?.argsort(0)?
                }
            };
            order.narrow(0, 0, asked)?.reshape(call.shape.clone())
        }
    }
}

/// Fails unless weights (f64) are finite, not negative, and positive for at least `least` indices.
#[track_caller]
fn check_weights(weights: &Tensor, least: usize) -> Result<()> {
    let positive = weights.gt(0.0)?.count_nonzero(..)?.astype(DType::F64)?;
    let facts = [weights.min_all()?, weights.sum_all()?, positive];
    let facts = crate::stack(&facts.each_ref(), 0)?;
    let Some(facts) = known(&facts)? else { return Ok(()) };
    let [smallest, sum, positive] = facts[..] else { unreachable!("three facts") };
    let reason = if sum.is_nan() || smallest.is_nan() {
        "must not be NaN".to_string()
    } else if smallest < 0.0 {
        format!("must not be negative, got {smallest}")
    } else if sum.is_infinite() {
        "must have a finite sum".to_string()
    } else if (positive as usize) < least {
        format!(
            "must be positive for at least as many indices as are chosen, got {positive} for {least}"
        )
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument(format!("choice: the weights p {reason}")))
}
