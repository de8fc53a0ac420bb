//! Random integers, permutations and choices.

use super::key::{Call, Draws};
use crate::{Error, Result, Tensor, default_int, searchsorted};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Shape};

/// Uniform integers in `[low, high)`; the default dtype is i64. The bias of reducing 64 random bits
/// is below `(high - low) / 2^63`.
///
/// Errors: [`Error::InvalidArgument`] unless `low < high` and both fit the dtype; a dtype error for
/// a dtype that is not an integer dtype.
#[track_caller]
pub fn randint(draws: &Draws, low: i64, high: i64) -> Result<Tensor> {
    let dtype = draws.dtype_or(default_int());
    let Some((min, max)) = dtype.int_range().filter(|_| dtype.is_int()) else {
        let (op, expected) = ("randint", "an integer dtype");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    };
    if low >= high || i128::from(low) < min || i128::from(high) - 1 > max {
        return Err(Error::InvalidArgument(format!(
            "randint: no {dtype} lies in [{low}, {high}); low must be less than high and both must \
             fit the dtype"
        )));
    }
    let Some(span) = high.checked_sub(low) else {
        return Err(Error::InvalidArgument(format!(
            "randint: [{low}, {high}) holds more than 2^63 integers; draw a narrower range"
        )));
    };
    let bits = Call::new("randint", draws, DType::F32, &[])?.bits(0)?;
    bits.astype(DType::I64)?.remainder(span)?.add(low)?.astype(dtype)
}

/// A random permutation of the numbers below `count` (i64).
#[track_caller]
pub fn permutation(draws: &Draws, count: usize) -> Result<Tensor> {
    let draws = draws.clone().shape([count]);
    // Ties between 64-bit draws are broken by position; they do not occur in practice.
    Call::new("permutation", &draws, DType::F32, &[])?.bits(0)?.argsort(0, false)
}

/// Permutes the slices along an axis randomly; with `independent`, permutes each line along the
/// axis independently.
///
/// Errors: an axis error.
#[track_caller]
pub fn permuted(draws: &Draws, x: &Tensor, axis: i64, independent: bool) -> Result<Tensor> {
    let op = "permutation";
    let at = normalize_axis(op, axis, x.rank())?;
    if !independent {
        return x.take(&permutation(draws, x.shape()[at])?, axis);
    }
    let draws = draws.clone().shape(x.shape());
    let order = Call::new(op, &draws, DType::F32, &[])?.bits(0)?.argsort(axis, false)?;
    x.take_along_axis(&order, axis)
}

/// Indices below `count`, of the requested shape, with or without replacement. They are drawn
/// uniformly or by weights of one axis, which need not sum to one.
///
/// Errors: [`Error::InvalidArgument`] if `count` is zero, or too small without replacement; a shape
/// error unless there is one weight per index.
#[track_caller]
pub fn choice(
    draws: &Draws,
    count: usize,
    replace: bool,
    weights: Option<&Tensor>,
) -> Result<Tensor> {
    let op = "choice";
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
    match (replace, weights) {
        (true, None) => randint(&draws.clone().dtype(DType::I64), 0, (count as i64).max(1)),
        (true, Some(weights)) => {
            let sums = weights.cumsum(0, None, false)?;
            let total = weights.sum(None, false)?;
            let at = call.of_dtype(DType::F64).unit(0)?.mul(&total)?;
            // The product may be rounded to the total.
            searchsorted(&sums, &at, true, None)?.minimum((count as i64 - 1).max(0))
        }
        (false, weights) => {
            // Select the smallest weighted exponential draws; for equal weights, this is a
            // permutation.
            let order = match weights {
                None => permutation(draws, count)?,
                Some(weights) => {
                    let noise = call.of_shape(Shape::from([count])).open(0)?.log()?.neg()?;
                    noise.div(&weights)?.argsort(0, false)?
                }
            };
            order.narrow(0, 0, asked)?.reshape_to(call.shape.clone())
        }
    }
}
