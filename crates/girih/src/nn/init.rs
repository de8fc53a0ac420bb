//! Initialisers: lazy tensors as initial weights. Weights have the layout `[out, in, …]`, from
//! which fan-in and fan-out follow. Draws come from the generator that
//! [`crate::random::manual_seed`] seeds.

use crate::{DType, Result, Shape, Tensor};

/// Weights with a uniform distribution in `[low, high)`.
#[track_caller]
pub fn uniform(shape: impl Into<Shape>, low: f64, high: f64, dtype: DType) -> Result<Tensor> {
    Tensor::rand(shape, dtype)?.mul(high - low)?.add(low)
}

/// Weights with a normal distribution of the given mean and standard deviation.
#[track_caller]
pub fn normal(shape: impl Into<Shape>, mean: f64, std: f64, dtype: DType) -> Result<Tensor> {
    let draws = Tensor::randn(shape, dtype)?;
    if (mean, std) == (0.0, 1.0) { Ok(draws) } else { draws.mul(std)?.add(mean) }
}

/// The fan-in and fan-out of a weight.
fn fans(function: &'static str, shape: &Shape) -> Result<(f64, f64)> {
    if shape.rank() < 2 {
        let reason = "at least two axes, [out, in], are needed".into();
        let (op, shape) = (function, shape.clone());
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let field: f64 = shape[2..].iter().map(|&size| size as f64).product();
    Ok((shape[1] as f64 * field, shape[0] as f64 * field))
}

fn over(numerator: f64, fan: f64) -> f64 {
    if fan == 0.0 { 0.0 } else { (numerator / fan).sqrt() }
}

/// Weights with a uniform distribution of standard deviation `gain / sqrt(fan_in)`: He et al. 2015,
/// eq. 10, where the gain for rectifiers is the square root of 2.
///
/// Errors: a shape error for fewer than two axes.
#[track_caller]
pub fn kaiming_uniform(shape: impl Into<Shape>, gain: f64, dtype: DType) -> Result<Tensor> {
    let shape = shape.into();
    let bound = gain * over(3.0, fans("kaiming_uniform", &shape)?.0);
    uniform(shape, -bound, bound, dtype)
}

/// Weights with a normal distribution of standard deviation `gain / sqrt(fan_in)`: He et al. 2015,
/// eq. 10.
///
/// Errors: as [`kaiming_uniform`].
#[track_caller]
pub fn kaiming_normal(shape: impl Into<Shape>, gain: f64, dtype: DType) -> Result<Tensor> {
    let shape = shape.into();
    let std = gain * over(1.0, fans("kaiming_normal", &shape)?.0);
    normal(shape, 0.0, std, dtype)
}

/// Weights with a uniform distribution of variance `2 gain² / (fan_in + fan_out)`: Glorot and
/// Bengio 2010, eq. 16.
///
/// Errors: as [`kaiming_uniform`].
#[track_caller]
pub fn xavier_uniform(shape: impl Into<Shape>, gain: f64, dtype: DType) -> Result<Tensor> {
    let shape = shape.into();
    let (fan_in, fan_out) = fans("xavier_uniform", &shape)?;
    let bound = gain * over(6.0, fan_in + fan_out);
    uniform(shape, -bound, bound, dtype)
}

/// Weights with a normal distribution of variance `2 gain² / (fan_in + fan_out)`: Glorot and Bengio
/// 2010, eq. 12.
///
/// Errors: as [`kaiming_uniform`].
#[track_caller]
pub fn xavier_normal(shape: impl Into<Shape>, gain: f64, dtype: DType) -> Result<Tensor> {
    let shape = shape.into();
    let (fan_in, fan_out) = fans("xavier_normal", &shape)?;
    normal(shape, 0.0, gain * over(2.0, fan_in + fan_out), dtype)
}
