//! Losses that are negative logarithms of likelihoods, and the divergence of distributions.

use super::{Reduction, finish, operands, stretched};
use crate::{Result, Tensor, where_};
use std::f64::consts::{PI, TAU};

/// The targets of [`kl_div`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Probabilities.
    Probabilities,
    /// Logarithms of probabilities.
    LogProbabilities,
}

/// The Kullback-Leibler divergence: `p (log p - x)`, or 0 if the target `p` is 0. `x` are
/// log-probabilities.
#[track_caller]
pub fn kl_div(x: &Tensor, y: &Tensor, targets: Targets, reduction: Reduction) -> Result<Tensor> {
    let (x, y, dtype) = operands("kl_div", x, y)?;
    let loss = match targets {
        Targets::LogProbabilities => y.exp()?.mul(&y.sub(&x)?),
        Targets::Probabilities => {
            let positive = y.gt(0.0)?;
            let safe = where_(&positive, &y, 1.0)?;
            let entropy = where_(&positive, &y.mul(&safe.log()?)?, 0.0)?;
            entropy.sub(&y.mul(&x)?)
        }
    };
    finish(loss, dtype, reduction)
}

/// The form of the predictions of [`poisson_nll_loss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mean {
    /// The logarithm of the mean.
    Logarithm,
    /// The mean.
    Value,
}

/// The options of [`poisson_nll_loss`].
#[derive(Clone, Copy, Debug)]
pub struct PoissonNll {
    /// The form of the predictions.
    pub mean: Mean,
    /// Whether Stirling's term is added.
    pub full: bool,
    /// The number that is added to means before their logarithm is taken.
    pub eps: f64,
}

impl Default for PoissonNll {
    fn default() -> Self {
        PoissonNll { mean: Mean::Logarithm, full: false, eps: 1e-8 }
    }
}

/// `exp(x) - y x` of logarithms of means, or `x - y log(x + eps)` of means. With `full`, Stirling's
/// term is added for targets above 1.
#[track_caller]
pub fn poisson_nll_loss(
    x: &Tensor,
    y: &Tensor,
    options: PoissonNll,
    reduction: Reduction,
) -> Result<Tensor> {
    let (x, y, dtype) = stretched("poisson_nll_loss", x, y)?;
    let mut loss = match options.mean {
        Mean::Logarithm => x.exp()?.sub(&y.mul(&x)?)?,
        Mean::Value => x.sub(&y.mul(&x.add(options.eps)?.log()?)?)?,
    };
    if options.full {
        let large = y.gt(1.0)?;
        let safe = where_(&large, &y, 1.0)?;
        let log = safe.log()?;
        let stirling = y.mul(&log)?.sub(&y)?.add(&log.add(TAU.ln())?.mul(0.5)?)?;
        loss = loss.add(&where_(&large, &stirling, 0.0)?)?;
    }
    finish(Ok(loss), dtype, reduction)
}

/// The options of [`gaussian_nll_loss`].
#[derive(Clone, Copy, Debug)]
pub struct GaussianNll {
    /// Whether the constant `log(2 pi) / 2` is added.
    pub full: bool,
    /// The smallest variance.
    pub eps: f64,
}

impl Default for GaussianNll {
    fn default() -> Self {
        GaussianNll { full: false, eps: 1e-6 }
    }
}

/// `(log v + (x - y)^2 / v) / 2` with variances `v` of at least `eps`. With `full`, the constant
/// `log(2 pi) / 2` is added. The variance has the shape of the means, or 1 on their last axis.
///
/// Errors: a shape error for variances that do not fit.
#[track_caller]
pub fn gaussian_nll_loss(
    x: &Tensor,
    y: &Tensor,
    variance: &Tensor,
    options: GaussianNll,
    reduction: Reduction,
) -> Result<Tensor> {
    let op = "gaussian_nll_loss";
    let (x, y, dtype) = operands(op, x, y)?;
    let shape = x.shape();
    let shared =
        shape.rank() > 0 && variance.shape().equals(&shape.with_dim(shape.rank() - 1, 1usize));
    if !shared && !variance.shape().equals(&shape) {
        let (lhs, rhs) = (shape, variance.shape());
        let reason = "variances must have the means' shape, or 1 on the last axis".into();
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let variance = variance.astype(x.dtype())?;
    // The bound is added as a constant, so that small variances still receive a gradient.
    let lifted = variance.maximum(options.eps)?.sub(&variance)?.stop_gradient()?;
    let variance = variance.add(&lifted)?;
    let distance = x.sub(&y)?.square()?.div(&variance)?;
    let mut loss = variance.log()?.add(&distance)?.mul(0.5)?;
    if options.full {
        loss = loss.add(0.5 * (2.0 * PI).ln())?;
    }
    finish(Ok(loss), dtype, reduction)
}
