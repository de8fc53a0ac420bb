//! Functions with random draws: alpha dropout, categorical samples, random slopes. Draws come from
//! the generator that `manual_seed` seeds.

use super::where_;
use crate::random::{Draws, events, gumbel};
use crate::{Error, Result, Tensor};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Shape};

/// `-scale * alpha` of the scaled exponential linear unit, its limit for large negative arguments.
const SATURATED: f64 = -1.758_099_340_847_376_6;

impl Tensor {
    /// The shape with the sizes of the first `n` axes, and 1 for the others.
    pub(super) fn leading_axes(&self, n: usize) -> Shape {
        let shape = self.shape();
        shape.dims().enumerate().map(|(i, dim)| if i < n { dim } else { 1usize.into() }).collect()
    }

    /// As [`Tensor::dropout`], but dropped elements become the limit of `selu` for large negative
    /// arguments, and the result is scaled and shifted to preserve mean 0 and variance 1: Klambauer
    /// et al. 2017.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    #[track_caller]
    pub fn alpha_dropout(&self, p: f64, whole_channels: bool) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::InvalidArgument(format!(
                "alpha_dropout: p must be in [0, 1], got {p}"
            )));
        }
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype)?;
        if p == 0.0 {
            return Ok(x);
        }
        if p == 1.0 {
            return Tensor::zeros(x.shape(), dtype);
        }
        let drawn = if whole_channels { 2 } else { x.rank() };
        let scale = ((1.0 - p) * (1.0 + p * SATURATED * SATURATED)).sqrt().recip();
        let shift = -scale * SATURATED * p;
        let draws = Draws::new().shape(x.leading_axes(drawn));
        let dropped = events("alpha_dropout", &draws, p.into())?;
        let wide = x.astype(dtype.widened())?;
        where_(&dropped, SATURATED, &wide)?.mul(scale)?.add(shift)?.astype(dtype)
    }

    /// `x`, or `slope * x` if it is negative. In training, a slope is drawn from `lower..upper` for
    /// each element; otherwise the slope is their mean: Xu et al. 2015.
    ///
    /// Errors: [`Error::InvalidArgument`] if `lower` is above `upper`.
    #[track_caller]
    pub fn rrelu(&self, lower: f64, upper: f64, training: bool) -> Result<Tensor> {
        if lower.is_nan() || upper.is_nan() || lower > upper {
            return Err(Error::InvalidArgument(format!(
                "rrelu: lower must not be above upper, got {lower} and {upper}"
            )));
        }
        if !training {
            return self.leaky_relu((lower + upper) / 2.0);
        }
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let draw = Tensor::rand(x.shape(), DType::F32)?.astype(x.dtype())?;
        let slope = draw.mul(upper - lower)?.add(lower)?;
        where_(&x.ge(0.0)?, &x, &x.mul(&slope)?)?.astype(dtype)
    }

    /// The softmax of logits with Gumbel noise, at temperature `tau`: differentiable categorical
    /// samples. With `hard` the samples are one-hot, with the gradient of the soft samples. Jang et
    /// al. 2017.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `tau` is positive; an axis error.
    #[track_caller]
    pub fn gumbel_softmax(&self, tau: f64, hard: bool, axis: i64) -> Result<Tensor> {
        let op = "gumbel_softmax";
        if tau.is_nan() || tau <= 0.0 {
            return Err(Error::InvalidArgument(format!("{op}: tau must be positive, got {tau}")));
        }
        let at = normalize_axis(op, axis, self.rank())?;
        let dtype = self.dtype().to_float();
        let logits = self.astype(dtype.widened())?;
        let draws = Draws::new().shape(logits.shape()).dtype(logits.dtype());
        let noise = gumbel(&draws, 0.0, 1.0)?;
        let soft = logits.add(&noise)?.div(tau)?.softmax(axis)?;
        if !hard {
            return soft.astype(dtype);
        }
        let classes = soft.shape()[at];
        let best = soft.argmax(axis)?.one_hot(classes, soft.dtype())?;
        let best = best.moveaxis(&[-1], &[at as i64])?;
        best.add(&soft.sub(&soft.stop_gradient()?)?)?.astype(dtype)
    }
}
