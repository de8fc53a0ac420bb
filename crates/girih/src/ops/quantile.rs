//! Medians and quantiles by sorting, with NumPy's methods and their names.

use super::{ReducedAxes, concat};
use crate::{Error, Result, Tensor, keepdims, where_};
use girih_ir::ops::reduce::axis_set;
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Shape};

/// The value of a quantile between two elements: NumPy's `method`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantile {
    /// Linear interpolation at the position given by the constants alpha and beta (Hyndman and Fan,
    /// "Sample quantiles in statistical packages", The American Statistician 50, 1996).
    Linear(f64, f64),
    /// The smaller element.
    Lower,
    /// The larger element.
    Higher,
    /// The midpoint.
    Midpoint,
    /// The nearest element; at a midpoint, the element with the even index.
    Nearest,
    /// The first element at which the cumulative fraction of elements reaches `q`.
    InvertedCdf,
    /// As [`Quantile::InvertedCdf`], but the mean of this element and the next element if the
    /// fraction is reached exactly.
    AveragedInvertedCdf,
    /// The element whose 1-based number is closest to the fraction of the count; at a midpoint, the
    /// element with the even number.
    ClosestObservation,
}

impl Default for Quantile {
    fn default() -> Quantile {
        Quantile::Linear(1.0, 1.0)
    }
}

impl Quantile {
    /// Parses a name of NumPy's methods.
    pub fn parse(name: &str) -> Result<Quantile> {
        Ok(match name {
            "linear" => Quantile::Linear(1.0, 1.0),
            "interpolated_inverted_cdf" => Quantile::Linear(0.0, 1.0),
            "hazen" => Quantile::Linear(0.5, 0.5),
            "weibull" => Quantile::Linear(0.0, 0.0),
            "median_unbiased" => Quantile::Linear(1.0 / 3.0, 1.0 / 3.0),
            "normal_unbiased" => Quantile::Linear(0.375, 0.375),
            "lower" => Quantile::Lower,
            "higher" => Quantile::Higher,
            "midpoint" => Quantile::Midpoint,
            "nearest" => Quantile::Nearest,
            "inverted_cdf" => Quantile::InvertedCdf,
            "averaged_inverted_cdf" => Quantile::AveragedInvertedCdf,
            "closest_observation" => Quantile::ClosestObservation,
            other => {
                return Err(Error::InvalidArgument(format!(
                    "quantile: method is 'linear', 'lower', 'higher', 'midpoint', 'nearest', \
                     'inverted_cdf', 'averaged_inverted_cdf', 'closest_observation', \
                     'interpolated_inverted_cdf', 'hazen', 'weibull', 'median_unbiased' or \
                     'normal_unbiased', got '{other}'"
                )));
            }
        })
    }

    /// The positions of the fractions `q` among `count` elements.
    #[track_caller]
    fn position(self, q: &Tensor, count: &Tensor) -> Result<Tensor> {
        let last = count.sub(1.0)?;
        let (alpha, beta) = match self {
            Quantile::Linear(alpha, beta) => (alpha, beta),
            _ => (1.0, 1.0),
        };
        let at = if (alpha, beta) == (1.0, 1.0) {
            q.mul(&last)?
        } else {
            q.mul(&count.add(1.0 - alpha - beta)?)?.add(alpha - 1.0)?
        };
        let at = match self {
            Quantile::Linear(..) => at,
            Quantile::Lower => at.floor()?,
            Quantile::Higher => at.ceil()?,
            Quantile::Midpoint => at.floor()?.add(&at.ceil()?)?.mul(0.5)?,
            Quantile::Nearest => at.round()?,
            Quantile::InvertedCdf => q.mul(count)?.ceil()?.sub(1.0)?,
            Quantile::AveragedInvertedCdf => {
                let met = q.mul(count)?;
                met.ceil()?.add(&met.floor()?)?.sub(1.0)?.mul(0.5)?
            }
            Quantile::ClosestObservation => {
                let number = q.mul(count)?.sub(1.5)?;
                let (up, half) = (number.ceil()?, number.mul(0.5)?);
                // A midpoint between two numbers, the smaller of which is odd.
                let next = half.eq(&half.floor()?)?;
                up.add(&next.astype(up.dtype())?)?
            }
        };
        at.maximum(0.0)?.minimum(&last)
    }
}

/// Merges axes into one at the end; also returns the shape in which they have size one.
#[track_caller]
pub(super) fn gathered(
    op: &'static str,
    x: &Tensor,
    axes: Option<&[i64]>,
) -> Result<(Tensor, Vec<i64>)> {
    let rank = x.rank();
    let set = axis_set(op, axes, rank)?;
    let from: Vec<i64> = set.iter().map(|axis| axis as i64).collect();
    let to: Vec<i64> = (rank - from.len()..rank).map(|axis| axis as i64).collect();
    let shape = x.shape();
    let kept = |axis: usize| if set.contains(axis) { 1 } else { shape[axis] as i64 };
    let kept = (0..rank).map(kept).collect();
    let moved = x.moveaxis(&from, &to)?;
    let outer = moved.shape()[..rank - from.len()].to_vec();
    let inner: usize = moved.shape()[rank - from.len()..].iter().product();
    let sizes: Vec<i64> = outer.iter().chain([&inner]).map(|&size| size as i64).collect();
    Ok((moved.reshape(&sizes)?, kept))
}

/// Quantiles `[…, fractions]` with the fractions' axis, if there is one, in front.
#[track_caller]
fn placed(
    out: &Tensor,
    q: &Tensor,
    outer: &[usize],
    kept: Vec<i64>,
    keeps: bool,
) -> Result<Tensor> {
    let out = out.moveaxis(&[-1], &[0])?;
    let front = if q.rank() == 0 { None } else { Some(q.numel() as i64) };
    let rest: Vec<i64> = match keeps {
        true => kept,
        false => outer.iter().map(|&size| size as i64).collect(),
    };
    out.reshape(front.into_iter().chain(rest).collect::<Vec<_>>())
}

/// The greatest number of fractions whose elements are selected instead of sorted.
const FEW: usize = 4;

impl Tensor {
    #[track_caller]
    fn ranked(
        &self,
        op: &'static str,
        q: &Tensor,
        over: &ReducedAxes,
        method: Quantile,
        skip: bool,
    ) -> Result<Tensor> {
        let dtype = self.dtype().to_float();
        if dtype.is_complex() {
            let expected = "a real dtype, since complex numbers have no order";
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        if q.rank() > 1 {
            let reason = "the fractions are a number or have one axis".into();
            return Err(girih_ir::Error::InvalidShape { op, shape: q.shape(), reason }.into());
        }
        let (x, kept) = gathered(op, &self.astype(dtype)?, over.as_slice())?;
        let q = q.astype(DType::F64)?;
        let (fractions, numel) = (q.reshape(-1)?, q.numel());
        let shape = x.shape();
        let (outer, count) = (&shape[..shape.rank() - 1], shape[shape.rank() - 1]);
        let sizes = |last: usize| outer.iter().copied().chain([last]).collect::<girih_ir::Shape>();
        let out = if count == 0 {
            Tensor::full(f64::NAN, sizes(numel), dtype)?
        } else {
            let numbers = match skip {
                true => x.isnan()?.logical_not()?.sum(keepdims(-1))?.astype(DType::F64)?,
                false => Tensor::full(count as f64, [], DType::F64)?,
            };
            let at = method.position(&fractions, &numbers.maximum(1.0)?)?;
            let below = at.floor()?;
            let index = |t: &Tensor| t.astype(DType::I64)?.broadcast_to(sizes(numel));
            let (low, high) = (index(&below)?, index(&at.ceil()?)?);
            // NaN is last in order. Many places are found faster by sorting.
            let (low, high) = if numel <= FEW {
                let both = concat(&[&low, &high], -1)?;
                let (found, _) = x.at_places(&both)?;
                (found.narrow(-1, 0, numel)?, found.narrow(-1, numel, numel)?)
            } else {
                let sorted = x.sort(-1)?;
                (sorted.take_along_axis(&low, -1)?, sorted.take_along_axis(&high, -1)?)
            };
            let part = at.sub(&below)?.astype(dtype)?;
            let between = interpolated(&low, &high, &part)?;
            let nowhere = match skip {
                true => numbers.eq(0.0)?,
                false => x.isnan()?.any(keepdims(-1))?,
            };
            let outside = fractions.ge(0.0)?.bitwise_and(&fractions.le(1.0)?)?.logical_not()?;
            where_(&nowhere.bitwise_or(&outside)?, f64::NAN, &between)?
        };
        placed(&out, &q, outer, kept, over.keepdims)
    }

    /// The `q`-quantile over axes, or all of them (`..`). `q` has at most one axis, which becomes the
    /// first axis of the result. The result is NaN if any element is NaN, over an empty axis, and
    /// for fractions outside `[0, 1]`. Integers become f32.
    ///
    /// Errors: a dtype error for complex numbers; a shape error for a `q` with more axes.
    #[track_caller]
    pub fn quantile(
        &self,
        q: &Tensor,
        over: impl Into<ReducedAxes>,
        method: Quantile,
    ) -> Result<Tensor> {
        self.ranked("quantile", q, &over.into(), method, false)
    }

    /// The `q`-quantile of elements that count as often as their weights say: the first element at
    /// which the cumulative fraction of the weights reaches `q` ([`Quantile::InvertedCdf`]). Weights
    /// have the tensor's shape, or one axis for the only axis of `over`. NaN where no weight is positive; otherwise as [`Tensor::quantile`].
    ///
    /// Errors: those of [`Tensor::quantile`]; a shape error for weights that do not fit.
    #[track_caller]
    pub fn weighted_quantile(
        &self,
        q: &Tensor,
        over: impl Into<ReducedAxes>,
        weights: &Tensor,
    ) -> Result<Tensor> {
        self.weighted(q, over.into(), weights, false)
    }

    /// Like [`Tensor::weighted_quantile`], ignoring NaN.
    #[track_caller]
    pub fn weighted_nanquantile(
        &self,
        q: &Tensor,
        over: impl Into<ReducedAxes>,
        weights: &Tensor,
    ) -> Result<Tensor> {
        self.weighted(q, over.into(), weights, true)
    }

    #[track_caller]
    fn weighted(
        &self,
        q: &Tensor,
        over: ReducedAxes,
        weights: &Tensor,
        skip_nan: bool,
    ) -> Result<Tensor> {
        let (op, shape) = ("quantile", self.shape());
        let axes = over.as_slice();
        let weights = match axes {
            Some(&[axis]) if weights.rank() == 1 && shape.rank() > 1 => {
                let at = normalize_axis(op, axis, shape.rank())?;
                let mut sizes = vec![1i64; shape.rank() - at];
                sizes[0] = weights.numel() as i64;
                weights.reshape(&sizes)?
            }
            _ => weights.clone(),
        };
        if !weights.shape().broadcasts_to(&shape) {
            let reason = "weights (second) have the tensor's shape, or that of its axis".into();
            let (lhs, rhs) = (shape, weights.shape());
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let weights = weights.astype(DType::F64)?.broadcast_to(shape)?;
        let dtype = self.dtype().to_float();
        if dtype.is_complex() || q.rank() > 1 {
            return self.ranked(op, q, &over, Quantile::InvertedCdf, skip_nan);
        }
        let (x, kept) = gathered(op, &self.astype(dtype)?, axes)?;
        let (weights, _) = gathered(op, &weights, axes)?;
        let (fractions, numel) = (q.astype(DType::F64)?.reshape(-1)?, q.numel());
        let sizes = x.shape();
        let (outer, count) = (&sizes[..sizes.rank() - 1], sizes[sizes.rank() - 1]);
        let out = if count == 0 {
            Tensor::full(f64::NAN, outer.iter().copied().chain([numel]).collect::<Shape>(), dtype)?
        } else {
            let missing = x.isnan()?;
            let weights = if skip_nan { where_(&missing, 0.0, &weights)? } else { weights };
            let order = x.argsort(-1)?;
            let sorted = x.take_along_axis(&order, -1)?;
            let sums = weights.take_along_axis(&order, -1)?.cumsum(-1)?;
            let total = sums.narrow(-1, count - 1, 1)?;
            let shares = sums.div(&total)?.unsqueeze(-2)?;
            let before = shares.lt(&fractions.unsqueeze(-1)?)?.bitwise_or(&shares.le(0.0)?)?;
            let index = before.sum(-1)?.minimum(count as i64 - 1)?;
            let found = sorted.take_along_axis(&index, -1)?;
            let mut nowhere = total.gt(0.0)?.logical_not()?;
            if !skip_nan {
                nowhere = nowhere.bitwise_or(&missing.any(keepdims(-1))?)?;
            }
            let outside = fractions.ge(0.0)?.bitwise_and(&fractions.le(1.0)?)?.logical_not()?;
            where_(&nowhere.bitwise_or(&outside)?, f64::NAN, &found)?
        };
        placed(&out, q, outer, kept, over.keepdims)
    }

    /// Like [`Tensor::quantile`], ignoring NaN.
    #[track_caller]
    pub fn nanquantile(
        &self,
        q: &Tensor,
        over: impl Into<ReducedAxes>,
        method: Quantile,
    ) -> Result<Tensor> {
        self.ranked("nanquantile", q, &over.into(), method, true)
    }

    /// The median over axes, or all of them (`..`): the middle element, or the mean of the two middle
    /// elements. NaN if any element is NaN, and over an empty axis. Integers become f32. Complex
    /// numbers are ordered as in [`Tensor::sort`].
    #[track_caller]
    pub fn median(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        let over = over.into();
        if self.dtype().is_complex() {
            return super::lexicographic::median(self, &over);
        }
        let half = Tensor::full(0.5, [], DType::F64)?;
        self.ranked("median", &half, &over, Quantile::Midpoint, false)
    }

    /// Like [`Tensor::median`], ignoring NaN.
    #[track_caller]
    pub fn nanmedian(&self, over: impl Into<ReducedAxes>) -> Result<Tensor> {
        let half = Tensor::full(0.5, [], DType::F64)?;
        self.ranked("nanmedian", &half, &over.into(), Quantile::Midpoint, true)
    }
}

/// Linear interpolation, starting from the nearer number for accuracy. Between a number and an
/// infinity the result is the infinity; between infinities of one sign it is that infinity.
#[track_caller]
fn interpolated(low: &Tensor, high: &Tensor, part: &Tensor) -> Result<Tensor> {
    let equal = low.eq(high)?;
    let step = high.sub(low)?;
    let bounded = step.isfinite()?;
    let step = where_(&bounded, &step, 0.0)?;
    let from_low = low.add(&step.mul(part)?)?;
    let from_high = high.sub(&step.mul(&part.neg()?.add(1.0)?)?)?;
    let between = where_(&part.ge(0.5)?, &from_high, &from_low)?;
    let between = where_(&bounded, &between, &low.add(high)?)?;
    where_(&equal.bitwise_or(&part.eq(0.0)?)?, low, &between)
}
