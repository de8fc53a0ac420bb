//! Activation functions that are not composites of the registry, and dropout. Integers become f32;
//! half floats are computed in f32 and rounded once.

use super::elementwise::{binary, where_};
use crate::random::{Draws, events};
use crate::{Error, Result, Tensor};
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, OpCode};

/// `alpha` and `scale` of Klambauer et al. 2017, eq. 14.
const SELU: (f64, f64) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);

/// The Taylor coefficients of `(x - tanh(x)) / x^3` in powers of `x^2`, the highest first; up to
/// `|x| = 0.4` to the last digit of f64.
const TANH_SERIES: [f64; 14] = [
    -2.6147711512907546e-6,
    6.451689215655431e-6,
    -1.5918905069328964e-5,
    3.927832388331683e-5,
    -9.691537956929451e-5,
    0.00023912911424355248,
    -0.000590027440945586,
    0.0014558343870513183,
    -0.003592128036572481,
    0.008863235529902197,
    -0.021869488536155203,
    0.05396825396825397,
    -0.13333333333333333,
    0.3333333333333333,
];

impl Tensor {
    /// Applies a function in f32 or f64, and converts the result to this tensor's float dtype.
    #[track_caller]
    pub(super) fn in_wide(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        f(&self.astype(dtype.widened())?)?.astype(dtype)
    }

    /// `x` if it is positive, else `scale * expm1(x / alpha)`. The derivative at 0 is the
    /// derivative from below. The exponential never overflows.
    #[track_caller]
    fn exponential_unit(&self, alpha: f64, scale: f64) -> Result<Tensor> {
        let positive = self.gt(0.0)?;
        let negative = where_(&positive, 0.0, self)?;
        let negative = if alpha == 1.0 { negative } else { negative.div(alpha)? };
        where_(&positive, self, &negative.expm1()?.mul(scale)?)
    }

    /// `x` if it is positive, else `alpha * (exp(x) - 1)`: Clevert et al. 2016, eq. 15.
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.in_wide(|x| x.exponential_unit(1.0, alpha))
    }

    /// The scaled exponential linear unit.
    #[track_caller]
    pub fn selu(&self) -> Result<Tensor> {
        let (alpha, scale) = SELU;
        self.in_wide(|x| x.elu(alpha)?.mul(scale))
    }

    /// `x` if it is positive, else `alpha * (exp(x / alpha) - 1)`: Barron 2017.
    ///
    /// Errors: [`Error::InvalidArgument`] for an alpha of zero.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        if alpha == 0.0 {
            return Err(Error::InvalidArgument("celu: alpha must not be 0".into()));
        }
        self.in_wide(|x| x.exponential_unit(alpha, alpha))
    }

    /// `x` if it is positive, else `slope * x`.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        self.in_wide(|x| where_(&x.gt(0.0)?, x, &x.mul(slope)?))
    }

    /// `x` if it is positive, else `weight * x`, with one weight, or one per channel (axis 1).
    ///
    /// Errors: a shape error for another number of weights.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let shape = self.shape();
        let channels = if shape.rank() > 1 { shape[1] } else { 1 };
        let mut wanted = vec![1i64; shape.rank().saturating_sub(1)];
        if weight.numel() != 1 {
            if weight.rank() != 1 || weight.numel() != channels || shape.rank() < 2 {
                let (op, lhs, rhs) = ("prelu", shape, weight.shape());
                let reason = format!("expected one weight, or one for each of {channels} channels");
                return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
            }
            wanted[0] = channels as i64;
        }
        let dtype = self.dtype().promote(weight.dtype())?.to_float();
        let weight = weight.astype(dtype.widened())?.reshape(&wanted)?;
        // The weight is selected as a factor, so that its gradient is not NaN for an infinite
        // positive x.
        let out = self.astype(dtype)?.in_wide(|x| x.mul(&where_(&x.gt(0.0)?, 1.0, &weight)?))?;
        out.astype(dtype)
    }

    /// `x` clamped to `min..max`; at the bounds the derivative is 0.
    #[track_caller]
    pub fn hardtanh(&self, min: f64, max: f64) -> Result<Tensor> {
        self.in_wide(|x| where_(&x.le(min)?, min, &where_(&x.ge(max)?, max, x)?))
    }

    /// `x` clamped to `0..6`.
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0.0, 6.0)
    }

    /// `(x + 3) / 6` clamped to `0..1`.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        self.in_wide(|x| x.add(3.0)?.relu6()?.div(6.0))
    }

    /// `x * hardsigmoid(x)`: Howard et al. 2019.
    #[track_caller]
    pub fn hardswish(&self) -> Result<Tensor> {
        self.in_wide(|x| x.mul(&x.hardsigmoid()?))
    }

    /// `x * tanh(softplus(x))`: Misra 2020.
    #[track_caller]
    pub fn mish(&self) -> Result<Tensor> {
        self.in_wide(|x| x.mul(&x.softplus()?.tanh()?))
    }

    /// `x / (1 + |x|)`. Beyond one as `1 - 1 / (1 + |x|)` with the sign of `x`, because the
    /// derivative of the quotient cancels.
    #[track_caller]
    pub fn softsign(&self) -> Result<Tensor> {
        self.in_wide(|x| {
            let size = x.abs()?;
            let (far, above) = (size.gt(1.0)?, size.add(1.0)?);
            let rest = above.reciprocal()?.neg()?.add(1.0)?;
            where_(&far, &rest.mul(&x.sign()?)?, &where_(&far, 0.0, x)?.div(&above)?)
        })
    }

    /// `x - tanh(x)`; near zero by its Taylor series, because the difference cancels.
    #[track_caller]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        self.in_wide(|x| {
            let near = x.abs()?.lt(0.4)?;
            let inside = where_(&near, x, 0.0)?;
            let square = inside.square()?;
            let mut sum = Tensor::full(TANH_SERIES[0], [], x.dtype())?;
            for &coefficient in &TANH_SERIES[1..] {
                sum = sum.mul(&square)?.add(coefficient)?;
            }
            where_(&near, &sum.mul(&square)?.mul(&inside)?, &x.sub(&x.tanh()?)?)
        })
    }

    /// `x` if it is above `threshold` or NaN, else `value`.
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        self.in_wide(|x| where_(&x.le(threshold)?, value, x))
    }

    /// `x`, or 0 if `|x| <= lambda`.
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        self.in_wide(|x| where_(&x.abs()?.le(lambda)?, 0.0, x))
    }

    /// `x` moved towards 0 by `lambda`, or 0 if `|x| <= lambda`.
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        self.in_wide(|x| {
            let step = binary(OpCode::Copysign, lambda.into(), x.into())?;
            where_(&x.abs()?.le(lambda)?, 0.0, &x.sub(&step)?)
        })
    }

    /// The first half of an axis times the logistic function of the second half: Dauphin et al.
    /// 2017.
    ///
    /// Errors: a shape error for an axis of odd size.
    #[track_caller]
    pub fn glu(&self, axis: i64) -> Result<Tensor> {
        let (op, shape) = ("glu", self.shape());
        let at = normalize_axis(op, axis, shape.rank())?;
        if !shape[at].is_multiple_of(2) {
            let reason = format!("axis {at} of size {} has no two halves", shape[at]);
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let half = shape[at] / 2;
        self.in_wide(|x| {
            let (value, gate) = (x.narrow(axis, 0, half)?, x.narrow(axis, half, half)?);
            value.mul(&gate.sigmoid()?)
        })
    }

    /// The softmax of the negated tensor along an axis.
    #[track_caller]
    pub fn softmin(&self, axis: i64) -> Result<Tensor> {
        self.astype(self.dtype().to_float())?.neg()?.softmax(axis)
    }

    /// Sets elements to 0 with probability `p` and scales the others by `1 / (1 - p)`. With
    /// `spatial` axes, whole slices of that many last axes are dropped: each channel of each batch
    /// entry.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    #[track_caller]
    pub fn dropout(&self, p: f64, spatial: usize) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::InvalidArgument(format!("dropout: p must be in [0, 1], got {p}")));
        }
        let x = self.astype(self.dtype().to_float())?;
        if p == 0.0 {
            return Ok(x);
        }
        if p == 1.0 {
            return Tensor::zeros(x.shape(), x.dtype());
        }
        let drawn = x.rank().saturating_sub(spatial);
        let draws = Draws::new().shape(x.leading_axes(drawn));
        let dropped = events("dropout", &draws, p.into())?;
        where_(&dropped, 0.0, &x.mul(1.0 / (1.0 - p))?)
    }

    /// Divides the tensor by its p-norm along an axis; the norm is clamped to at least `eps`.
    #[track_caller]
    pub fn normalize(&self, p: f64, axis: i64, eps: f64) -> Result<Tensor> {
        self.in_wide(|x| x.div(&x.vector_norm(p, axis, true)?.maximum(eps)?))
    }

    /// [`linalg::vector_norm`](crate::linalg::vector_norm) along an axis.
    #[track_caller]
    pub(crate) fn vector_norm(&self, p: f64, axis: i64, keepdims: bool) -> Result<Tensor> {
        super::linalg::norm_of_rows(self, axis, keepdims, p)
    }

    /// The cosine of the angle between vectors along an axis of the broadcast shape, with norms
    /// clamped to at least `eps`.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, axis: i64, eps: f64) -> Result<Tensor> {
        let dtype = self.dtype().promote(other.dtype())?.to_float();
        let common = self.shape().broadcast(&other.shape(), "cosine_similarity")?;
        let other = other.astype(dtype.widened())?.broadcast_to(common.clone())?;
        self.astype(dtype)?.broadcast_to(common)?.in_wide(|x| {
            // In f64, where the products of large f32 do not overflow.
            let wide = |v: &Tensor| {
                if v.dtype().is_complex() { Ok(v.clone()) } else { v.astype(DType::F64) }
            };
            let (x, other) = (wide(x)?, wide(&other)?);
            let product = x.mul(&other)?.sum(axis)?;
            let norm =
                |v: &Tensor| super::linalg::abs_square(v)?.sum(axis)?.safe_root(2.0)?.maximum(eps);
            product.div(&norm(&x)?.mul(&norm(&other)?)?)
        })
    }

    /// The p-norm of `self - other + eps` along the last axis.
    #[track_caller]
    pub fn pairwise_distance(&self, other: &Tensor, p: f64, eps: f64) -> Result<Tensor> {
        let dtype = self.dtype().promote(other.dtype())?.to_float();
        let other = other.astype(dtype.widened())?;
        self.astype(dtype)?.in_wide(|x| x.sub(&other)?.add(eps)?.vector_norm(p, -1, false))
    }
}
