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
    /// et al. 2017. The `spatial` last axes share their draws.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    #[track_caller]
    pub fn alpha_dropout(&self, p: f64, spatial: usize) -> Result<Tensor> {
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
        let drawn = x.rank().saturating_sub(spatial);
        let scale = ((1.0 - p) * (1.0 + p * SATURATED * SATURATED)).sqrt().recip();
        let shift = -scale * SATURATED * p;
        let draws = Draws::new().shape(x.leading_axes(drawn));
        let dropped = events("alpha_dropout", &draws, p.into())?;
        let wide = x.astype(dtype.widened())?;
        where_(&dropped, SATURATED, &wide)?.mul(scale)?.add(shift)?.astype(dtype)
    }

    /// `x`, or `slope * x` if it is negative, with a slope that is drawn from `lower..upper` for each
    /// element, as in training: Xu et al. 2015. See [`Tensor::rrelu_mean`].
    ///
    /// Errors: [`Error::InvalidArgument`] if `lower` is above `upper`.
    #[track_caller]
    pub fn rrelu(&self, lower: f64, upper: f64) -> Result<Tensor> {
        slopes(lower, upper)?;
        let dtype = self.dtype().to_float();
        let x = self.astype(dtype.widened())?;
        let draw = Tensor::rand(x.shape(), DType::F32)?.astype(x.dtype())?;
        let slope = draw.mul(upper - lower)?.add(lower)?;
        where_(&x.ge(0.0)?, &x, &x.mul(&slope)?)?.astype(dtype)
    }

    /// [`Tensor::rrelu`] outside of training: all slopes are the mean of `lower` and `upper`.
    ///
    /// Errors: those of [`Tensor::rrelu`].
    #[track_caller]
    pub fn rrelu_mean(&self, lower: f64, upper: f64) -> Result<Tensor> {
        slopes(lower, upper)?;
        self.leaky_relu((lower + upper) / 2.0)
    }

    /// The softmax of logits with Gumbel noise, at temperature `tau`: differentiable categorical
    /// samples. Jang et al. 2017.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `tau` is positive; an axis error.
    #[track_caller]
    pub fn gumbel_softmax(&self, tau: f64, axis: i64) -> Result<Tensor> {
        self.soft_samples(tau, axis)?.astype(self.dtype().to_float())
    }

    /// One-hot samples of categories, with the gradient of the soft samples of
    /// [`Tensor::gumbel_softmax`].
    ///
    /// Errors: those of [`Tensor::gumbel_softmax`].
    #[track_caller]
    pub fn gumbel_one_hot(&self, tau: f64, axis: i64) -> Result<Tensor> {
        let soft = self.soft_samples(tau, axis)?;
        let at = normalize_axis("gumbel_softmax", axis, self.rank())?;
        let classes = soft.shape()[at];
        let best = soft.argmax(axis)?.one_hot(classes, soft.dtype())?;
        let best = best.moveaxis(&[-1], &[at as i64])?;
        best.add(&soft.sub(&soft.stop_gradient()?)?)?.astype(self.dtype().to_float())
    }

    /// The samples of [`Tensor::gumbel_softmax`] in the dtype in which they are computed.
    #[track_caller]
    fn soft_samples(&self, tau: f64, axis: i64) -> Result<Tensor> {
        let op = "gumbel_softmax";
        if tau.is_nan() || tau <= 0.0 {
            return Err(Error::InvalidArgument(format!("{op}: tau must be positive, got {tau}")));
        }
        normalize_axis(op, axis, self.rank())?;
        let logits = self.astype(self.dtype().to_float().widened())?;
        let draws = Draws::new().shape(logits.shape()).dtype(logits.dtype());
        let noise = gumbel(&draws, 0.0, 1.0)?;
        logits.add(&noise)?.div(tau)?.softmax(axis)
    }
}

/// Fails unless the slopes of [`Tensor::rrelu`] are a range.
fn slopes(lower: f64, upper: f64) -> Result<()> {
    if lower <= upper {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "rrelu: lower must not be above upper, got {lower} and {upper}"
    )))
}
