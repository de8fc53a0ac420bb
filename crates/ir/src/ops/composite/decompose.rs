//! Decompositions of the composites. Sums and exponentials of half floats are computed in f32 and
//! the result is cast back, so that for instance a mean of f16 does not overflow.

use super::super::reduce::reduced_axes;
use super::*;
use crate::{GraphBuilder, Shape};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, SQRT_2};

type Definition = Result<NodeId>;

impl Decomposition<'_> {
    /// The first operand in the accumulation dtype.
    pub(crate) fn wide(&mut self) -> Result<NodeId> {
        self.b.widen(self.inputs[0])
    }

    /// Casts a result to the dtype of the first operand.
    pub(crate) fn narrow(&mut self, x: NodeId) -> Result<NodeId> {
        self.b.cast(x, self.b.dtype(self.inputs[0]))
    }

    fn axis(&self) -> u8 {
        let Attrs::Axis(axis) = self.op.attrs else { unreachable!("the shape rule checks it") };
        axis
    }
}

/// The operand itself.
pub(super) fn same(d: &mut Decomposition<'_>) -> Definition {
    Ok(d.inputs[0])
}

pub(super) fn relu(d: &mut Decomposition<'_>) -> Definition {
    let zero = d.b.scalar_like(d.inputs[0], 0.0);
    d.b.maximum(d.inputs[0], zero)
}

/// `1 / (1 + exp(-x))`. The exponential overflows to infinity only where the result is 0.
pub(super) fn sigmoid(d: &mut Decomposition<'_>) -> Definition {
    let x = d.wide()?;
    let minus = d.b.neg(x)?;
    let exp = d.b.exp(minus)?;
    let one = d.b.scalar_like(x, 1.0);
    let divisor = d.b.add(one, exp)?;
    let y = d.b.div(one, divisor)?;
    d.narrow(y)
}

/// `-softplus(-x)`.
pub(super) fn log_sigmoid(d: &mut Decomposition<'_>) -> Definition {
    let minus = d.b.neg(d.inputs[0])?;
    let softplus = d.b.softplus(minus)?;
    d.b.neg(softplus)
}

pub(super) fn silu(d: &mut Decomposition<'_>) -> Definition {
    let x = d.wide()?;
    let sigmoid = d.b.sigmoid(x)?;
    let y = d.b.mul(x, sigmoid)?;
    d.narrow(y)
}

/// `max(x, 0) + log1p(exp(-|x|))`, whose exponential never overflows.
pub(super) fn softplus(d: &mut Decomposition<'_>) -> Definition {
    let x = d.wide()?;
    let zero = d.b.scalar_like(x, 0.0);
    let hinge = d.b.maximum(x, zero)?;
    let abs = d.b.abs(x)?;
    let minus = d.b.neg(abs)?;
    let exp = d.b.exp(minus)?;
    let rest = d.b.log1p(exp)?;
    let y = d.b.add(hinge, rest)?;
    d.narrow(y)
}

/// Hendrycks and Gimpel 2016: `x/2 erfc(-x / sqrt 2)`, or `x/2 (1 + tanh(u)) = x sigmoid(2u)` with
/// `u = sqrt(2/pi) (x + 0.044715 x^3)`. Neither form cancels where the result is small, as `1 + erf`
/// and `1 + tanh` would.
pub(super) fn gelu(d: &mut Decomposition<'_>) -> Definition {
    let x = d.wide()?;
    let y = match d.op.attrs == Attrs::Approximate(true) {
        true => {
            let slope = d.b.scalar_like(x, TANH_SLOPE);
            let cubic = d.b.scalar_like(x, TANH_SLOPE * 0.044715);
            let square = d.b.mul(x, x)?;
            // The gate is 0 or 1 beyond. If the square overflowed, the gradient would be NaN.
            let most = d.b.scalar_like(x, 1e6);
            let square = d.b.minimum(square, most)?;
            let bend = d.b.mul(square, cubic)?;
            let factor = d.b.add(bend, slope)?;
            let argument = d.b.mul(x, factor)?;
            let gate = d.b.sigmoid(argument)?;
            d.b.mul(x, gate)?
        }
        false => {
            let (half, slope) = (d.b.scalar_like(x, 0.5), d.b.scalar_like(x, -FRAC_1_SQRT_2));
            let argument = d.b.mul(x, slope)?;
            let gate = d.b.erfc(argument)?;
            let half_x = d.b.mul(x, half)?;
            d.b.mul(half_x, gate)?
        }
    };
    d.narrow(y)
}

/// `2 sqrt(2/pi)`.
const TANH_SLOPE: f64 = 2.0 * FRAC_2_SQRT_PI / SQRT_2;

/// `max(a, b) + log1p(exp(-|a - b|))`, and `a + log 2` where both are equal, since the difference
/// of two infinities is NaN.
pub(super) fn logaddexp(d: &mut Decomposition<'_>) -> Definition {
    let (a, b) = (d.wide()?, d.b.widen(d.inputs[1])?);
    let larger = d.b.maximum(a, b)?;
    let difference = d.b.sub(a, b)?;
    let distance = d.b.abs(difference)?;
    let minus = d.b.neg(distance)?;
    let exp = d.b.exp(minus)?;
    let rest = d.b.log1p(exp)?;
    let ln2 = d.b.scalar_like(a, LN_2);
    let equal = d.b.eq(a, b)?;
    let rest = d.b.select(equal, ln2, rest)?;
    let y = d.b.add(larger, rest)?;
    d.narrow(y)
}

/// The number of elements of `x` that a reduction over `axes` combines into one.
pub(super) fn count(b: &GraphBuilder, x: NodeId, axes: AxisSet) -> OfSize {
    let size = axes.iter().map(|axis| b.shape(x).dim(axis)).product();
    OfSize { size, correction: Real::from(0.0), numerator: None }
}

fn keepdims(op: &Op) -> bool {
    match op.attrs {
        Attrs::Axes { keepdims, .. } | Attrs::Moments { keepdims, .. } => keepdims,
        _ => false,
    }
}

/// The sum divided by the count; an empty mean is 0 / 0, NaN.
pub(super) fn mean(d: &mut Decomposition<'_>) -> Definition {
    let (axes, keepdims) = (reduced_axes(d.op), keepdims(d.op));
    let x = d.wide()?;
    let sum = d.b.sum(x, axes, keepdims)?;
    let count = count(d.b, x, axes);
    let count = d.b.scalar_of_size(d.b.dtype(sum), count);
    let y = d.b.div(sum, count)?;
    d.narrow(y)
}

/// Divisor of a variance. It is never negative, so that too few elements give NaN or infinity.
pub(super) fn degrees(b: &GraphBuilder, op: &Op, x: NodeId) -> OfSize {
    let Attrs::Moments { axes, correction, .. } = op.attrs else {
        unreachable!("the shape rule checks it")
    };
    OfSize { correction, ..count(b, x, axes) }
}

/// `x` minus its mean over axes.
pub(super) fn centred(b: &mut GraphBuilder, x: NodeId, axes: AxisSet) -> Result<NodeId> {
    let mean = b.mean(x, axes, true)?;
    b.sub(x, mean)
}

/// The two-pass formula, over whole rows or blocks, since the one-pass formula cancels.
pub(super) fn var(d: &mut Decomposition<'_>) -> Definition {
    let (axes, keepdims) = (reduced_axes(d.op), keepdims(d.op));
    let x = d.wide()?;
    let sum = match long::moments(d.b, x, axes)? {
        Some([_, squares]) => {
            let result = d.b.shape(x).reduced(axes, keepdims);
            d.b.reshape(squares, result)?
        }
        None => {
            let centred = centred(d.b, x, axes)?;
            let squares = d.b.mul(centred, centred)?;
            d.b.sum(squares, axes, keepdims)?
        }
    };
    let degrees = degrees(d.b, d.op, x);
    let divisor = d.b.scalar_of_size(d.b.dtype(sum), degrees);
    let y = d.b.div(sum, divisor)?;
    d.narrow(y)
}

/// Subtracts the maximum before the exponential. An infinite maximum is not subtracted: the plain
/// formula gives the infinity, whereas a difference of infinities is NaN.
pub(super) fn logsumexp(d: &mut Decomposition<'_>) -> Definition {
    let (axes, keepdims) = (reduced_axes(d.op), keepdims(d.op));
    let x = d.wide()?;
    let shape = d.b.shape(x).clone();
    let result = shape.reduced(axes, keepdims);
    if shape.has_no_elements() {
        let minus_infinity = d.b.scalar_like(d.inputs[0], f64::NEG_INFINITY);
        return d.b.broadcast_to(minus_infinity, result);
    }
    let along_rows = shape.rank() > 0 && axes == AxisSet::one(shape.rank() - 1);
    let long = if along_rows { long::exponentials(d.b, x, true)? } else { None };
    let [shift, sum] = match long {
        Some(of_blocks) => of_blocks,
        None => {
            let max = d.b.max(x, axes, true)?;
            let shift = long::finite_or_zero(d.b, max)?;
            let shifted = d.b.sub(x, shift)?;
            let exp = d.b.exp(shifted)?;
            [shift, d.b.sum(exp, axes, true)?]
        }
    };
    let log = d.b.log(sum)?;
    let y = d.b.add(log, shift)?;
    let y = d.b.reshape(y, result)?;
    d.narrow(y)
}

/// `x` minus its maximum along an axis, so that the exponential cannot overflow; that exponential;
/// and its sum along the axis.
fn exponentials(b: &mut GraphBuilder, x: NodeId, axis: u8) -> Result<[NodeId; 3]> {
    let along = AxisSet::one(axis as usize);
    let is_last = axis as usize + 1 == b.shape(x).rank();
    let long = if is_last { long::exponentials(b, x, false)? } else { None };
    let max = match long {
        Some([max, _]) => max,
        None => b.max(x, along, true)?,
    };
    let shifted = b.sub(x, max)?;
    let exp = b.exp(shifted)?;
    let sum = match long {
        Some([_, sum]) => sum,
        None => b.sum(exp, along, true)?,
    };
    Ok([shifted, exp, sum])
}

pub(super) fn softmax(d: &mut Decomposition<'_>) -> Definition {
    let (x, axis) = (d.wide()?, d.axis());
    if d.b.shape(x).has_no_elements() {
        return Ok(d.inputs[0]);
    }
    let [_, exp, sum] = exponentials(d.b, x, axis)?;
    // One division for each row and a product for each element, since divisions dominate the cost.
    let one = d.b.scalar_like(sum, 1.0);
    let scale = d.b.div(one, sum)?;
    let y = d.b.mul(exp, scale)?;
    d.narrow(y)
}

pub(super) fn log_softmax(d: &mut Decomposition<'_>) -> Definition {
    let (x, axis) = (d.wide()?, d.axis());
    if d.b.shape(x).has_no_elements() {
        return Ok(d.inputs[0]);
    }
    let [shifted, _, sum] = exponentials(d.b, x, axis)?;
    let log = d.b.log(sum)?;
    let y = d.b.sub(shifted, log)?;
    d.narrow(y)
}

/// Intermediate values that a layer norm and its derivative share.
pub(crate) struct Normalised {
    /// The normalised axes.
    pub axes: AxisSet,
    /// The operand, normalised to mean 0 and variance 1 over the axes.
    pub x: NodeId,
    /// The factor of that normalisation.
    pub scale: NodeId,
}

/// Normalises a widened tensor over the op's axes.
pub(crate) fn normalised(b: &mut GraphBuilder, op: &Op, x: NodeId) -> Result<Normalised> {
    let rank = b.shape(x).rank();
    let (axes, eps) = match op.attrs {
        Attrs::Norm { ndims, eps } => ((rank - ndims as usize..rank).collect(), eps),
        Attrs::Standardize { axes, eps } => (axes, eps),
        _ => unreachable!("the shape rule checks it"),
    };
    let (centred, variance) = match long::moments(b, x, axes)? {
        Some([mean, squares]) => {
            let count = count(b, x, axes);
            let count = b.scalar_of_size(b.dtype(x), count);
            (b.sub(x, mean)?, b.div(squares, count)?)
        }
        None => {
            let centred = centred(b, x, axes)?;
            let squares = b.mul(centred, centred)?;
            (centred, b.mean(squares, axes, true)?)
        }
    };
    let eps = b.scalar_like(x, eps.get());
    let guarded = b.add(variance, eps)?;
    let scale = b.rsqrt(guarded)?;
    let x = b.mul(centred, scale)?;
    Ok(Normalised { axes, x, scale })
}

pub(super) fn layer_norm(d: &mut Decomposition<'_>) -> Definition {
    let x = d.wide()?;
    let mut y = normalised(d.b, d.op, x)?.x;
    if let Some(&weight) = d.inputs.get(1) {
        let weight = d.b.widen(weight)?;
        y = d.b.mul(y, weight)?;
    }
    if let Some(&bias) = d.inputs.get(2) {
        let bias = d.b.widen(bias)?;
        y = d.b.add(y, bias)?;
    }
    d.narrow(y)
}

/// The negative log-probability at each label.
pub(super) fn cross_entropy(d: &mut Decomposition<'_>) -> Definition {
    let (logits, labels) = (d.wide()?, d.inputs[1]);
    let rows = d.b.shape(labels).clone();
    let classes = rows.rank() as u8;
    let log_p = d.b.log_softmax(logits, classes)?;
    let column: Shape = rows.dims().chain([1.into()]).collect();
    let labels = d.b.check_label(labels, d.b.shape(logits)[classes as usize])?;
    let indices = d.b.reshape(labels, column)?;
    let picked = d.b.take_along_axis(log_p, indices, classes)?;
    let picked = d.b.reshape(picked, rows)?;
    let y = d.b.neg(picked)?;
    d.narrow(y)
}

/// Lower clamp of the logarithms in a binary cross entropy.
const MIN_LOG: f64 = -100.0;

/// Clamped logarithms of probabilities `x` and of `1 - x`.
pub(super) fn log_chances(b: &mut GraphBuilder, x: NodeId) -> Result<[NodeId; 2]> {
    let least = b.scalar_like(x, MIN_LOG);
    let minus = b.neg(x)?;
    let (log, log_rest) = (b.log(x)?, b.log1p(minus)?);
    Ok([b.maximum(log, least)?, b.maximum(log_rest, least)?])
}

/// `-(y log x + (1 - y) log(1 - x))`.
pub(super) fn binary_cross_entropy(d: &mut Decomposition<'_>) -> Definition {
    let (x, y) = (d.wide()?, d.b.widen(d.inputs[1])?);
    let [log, log_rest] = log_chances(d.b, x)?;
    let one = d.b.scalar_like(x, 1.0);
    let other = d.b.sub(one, y)?;
    let (positive, negative) = (d.b.mul(y, log)?, d.b.mul(other, log_rest)?);
    let sum = d.b.add(positive, negative)?;
    let loss = d.b.neg(sum)?;
    d.narrow(loss)
}
