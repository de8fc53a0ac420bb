//! Closed-form VJP rules of composites. They record the ops of the decomposition in the same order,
//! so that CSE merges them after decomposition. Half floats are computed in f32, as in the
//! decomposition.

use super::super::reduce::reduced_axes;
use super::super::rules::only;
use super::decompose::{centred, degrees, log_chances, normalised};
use super::*;
use crate::Shape;
use smallvec::smallvec;

type Rule = Result<Cotangents>;

impl Vjp<'_> {
    /// Casts a cotangent to the dtype of the first operand.
    fn narrow(&mut self, ct: NodeId) -> Rule {
        only(self.b.cast(ct, self.b.dtype(self.inputs[0]))?)
    }

    /// The result in the dtype of `x`, the widened first operand. If the result was rounded to a
    /// half float, it is recomputed, because the exponential of a logarithm amplifies the rounding
    /// error.
    fn unrounded(&mut self, x: NodeId) -> Result<NodeId> {
        match self.b.dtype(x) == self.b.dtype(self.output) {
            true => Ok(self.output),
            false => self.b.emit(self.op.clone(), &[x]),
        }
    }
}

/// Moves the cotangent back to the operand's device.
pub(super) fn to_device(v: &mut Vjp<'_>) -> Rule {
    let Attrs::Devices { from, to } = v.op.attrs else { unreachable!("to_device names devices") };
    let back = Op::new(OpCode::ToDevice, Attrs::Devices { from: to, to: from });
    only(v.b.emit(back, &[v.ct])?)
}

/// The cotangent has the sharding of the result.
pub(super) fn reshard(v: &mut Vjp<'_>) -> Rule {
    only(v.b.emit(v.op.clone(), &[v.ct])?)
}

/// The gradient at 0 is 0, unlike the gradient of a tie in `maximum`, which is half. The gradient
/// at NaN is the cotangent.
pub(super) fn relu(v: &mut Vjp<'_>) -> Rule {
    let zero = v.scalar(0.0);
    let cut = v.b.le(v.inputs[0], zero)?;
    only(v.b.select(cut, zero, v.ct)?)
}

/// `ct * y * (1 - y)`. For real numbers by [`OpCode::SigmoidSlope`], because the result rounds to 1
/// where the derivative is not 0.
pub(super) fn sigmoid(v: &mut Vjp<'_>) -> Rule {
    let slope = match v.b.dtype(v.output).is_complex() {
        true => {
            let one = v.scalar(1.0);
            let rest = v.b.sub(one, v.output)?;
            v.b.mul(v.output, rest)?
        }
        false => v.b.op(OpCode::SigmoidSlope, &[v.inputs[0]])?,
    };
    only(v.b.mul(v.ct, slope)?)
}

/// `ct * sigmoid(-x)`.
pub(super) fn log_sigmoid(v: &mut Vjp<'_>) -> Rule {
    let minus = v.b.neg(v.inputs[0])?;
    let slope = v.b.sigmoid(minus)?;
    only(v.b.mul(v.ct, slope)?)
}

/// `ct * sigmoid(x)`.
pub(super) fn softplus(v: &mut Vjp<'_>) -> Rule {
    let slope = v.b.sigmoid(v.inputs[0])?;
    only(v.b.mul(v.ct, slope)?)
}

/// `ct * 2 (x - mean) / degrees`; the derivative of the mean cancels.
pub(super) fn var(v: &mut Vjp<'_>) -> Rule {
    let (x, axes) = (v.b.widen(v.inputs[0])?, reduced_axes(&v.op));
    let shape = v.b.shape(x).clone();
    let ct = v.b.widen(v.ct)?;
    let centred = centred(v.b, x, axes)?;
    let factor = OfSize { numerator: Some(Real::from(2.0)), ..degrees(v.b, &v.op, x) };
    let factor = v.b.scalar_of_size(v.b.dtype(x), factor);
    let ct = v.b.mul(ct, factor)?;
    let ct = v.b.expand_reduced(ct, axes, &shape)?;
    let ct = v.b.mul(ct, centred)?;
    v.narrow(ct)
}

/// `ct * exp(x - y)`, which is the softmax over the axes. A row of -inf, where the difference would
/// be NaN, gets 0. In a row with inf, finite elements get 0 and infinite ones NaN.
pub(super) fn logsumexp(v: &mut Vjp<'_>) -> Rule {
    let (x, axes) = (v.b.widen(v.inputs[0])?, reduced_axes(&v.op));
    let shape = v.b.shape(x).clone();
    let y = v.unrounded(x)?;
    let (zero, nothing) = (v.b.scalar_like(y, 0.0), v.b.scalar_like(y, f64::NEG_INFINITY));
    let empty = v.b.eq(y, nothing)?;
    let shift = v.b.select(empty, zero, y)?;
    let shift = v.b.expand_reduced(shift, axes, &shape)?;
    let difference = v.b.sub(x, shift)?;
    let share = v.b.exp(difference)?;
    let ct = v.b.widen(v.ct)?;
    let ct = v.b.expand_reduced(ct, axes, &shape)?;
    let ct = v.b.mul(ct, share)?;
    v.narrow(ct)
}

fn axis(op: &Op) -> AxisSet {
    let Attrs::Axis(axis) = op.attrs else { unreachable!("the shape rule checks it") };
    AxisSet::one(axis as usize)
}

/// `y * (ct - sum(ct * y))`.
pub(super) fn softmax(v: &mut Vjp<'_>) -> Rule {
    let (y, ct) = (v.b.widen(v.output)?, v.b.widen(v.ct)?);
    let product = v.b.mul(ct, y)?;
    let sum = v.b.sum(product, axis(&v.op), true)?;
    let centred = v.b.sub(ct, sum)?;
    let ct = v.b.mul(y, centred)?;
    v.narrow(ct)
}

/// `ct - exp(y) * sum(ct)`.
pub(super) fn log_softmax(v: &mut Vjp<'_>) -> Rule {
    let (x, ct) = (v.b.widen(v.inputs[0])?, v.b.widen(v.ct)?);
    let y = v.unrounded(x)?;
    let sum = v.b.sum(ct, axis(&v.op), true)?;
    let p = v.b.exp(y)?;
    let share = v.b.mul(p, sum)?;
    let ct = v.b.sub(ct, share)?;
    v.narrow(ct)
}

/// With `x` normalised and `g = ct * weight`: `scale * (g - mean(g) - x * mean(g * x))`. The
/// cotangents of weight and bias are `ct * x` and `ct`, summed over the rows.
pub(super) fn layer_norm(v: &mut Vjp<'_>) -> Rule {
    let dtype = v.b.dtype(v.inputs[0]);
    let (x, ct) = (v.b.widen(v.inputs[0])?, v.b.widen(v.ct)?);
    let n = normalised(v.b, &v.op, x)?;
    let weight = v.inputs.get(1).copied();
    let of_x = v.operand(0, |v| {
        let g = match weight {
            None => ct,
            Some(weight) => {
                let weight = v.b.widen(weight)?;
                v.b.mul(ct, weight)?
            }
        };
        let mean = v.b.mean(g, n.axes, true)?;
        let along = v.b.mul(g, n.x)?;
        let along = v.b.mean(along, n.axes, true)?;
        let along = v.b.mul(n.x, along)?;
        let g = v.b.sub(g, mean)?;
        let g = v.b.sub(g, along)?;
        let g = v.b.mul(n.scale, g)?;
        v.b.cast(g, dtype)
    })?;
    let mut cotangents: Cotangents = smallvec![of_x];
    // Sum over the rows before the cast back.
    for i in 1..v.inputs.len() {
        let ct = match i {
            1 => v.operand(1, |v| v.b.mul(ct, n.x))?,
            _ => v.operand(2, |_| Ok(ct))?,
        };
        cotangents.push(ct.map(|ct| v.b.cast(ct, dtype)).transpose()?);
    }
    Ok(cotangents)
}

/// `(softmax - onehot) * ct` for each row.
pub(super) fn cross_entropy(v: &mut Vjp<'_>) -> Rule {
    let (x, labels) = (v.b.widen(v.inputs[0])?, v.inputs[1]);
    let shape = v.b.shape(x).clone();
    let classes = shape.rank() - 1;
    let column: Shape = shape.with_dim(classes, 1usize);

    // Check the labels here too: a program that computes only the gradient must also report a label
    // out of range.
    let labels = v.b.check_label(labels, shape[classes])?;
    let labels = v.b.reshape(labels, column.clone())?;
    let index = v.b.iota(shape, DType::I64, classes as u8);
    let onehot = v.b.eq(index, labels)?;
    let onehot = v.b.cast(onehot, v.b.dtype(x))?;

    let log_p = v.b.log_softmax(x, classes as u8)?;
    let p = v.b.exp(log_p)?;
    let difference = v.b.sub(p, onehot)?;
    let ct = v.b.widen(v.ct)?;
    let ct = v.b.reshape(ct, column)?;
    let ct = v.b.mul(difference, ct)?;
    Ok(smallvec![v.narrow(ct)?.pop().flatten(), None])
}

/// `ct * sigmoid(a - b)` and `ct * sigmoid(b - a)`, and half of `ct` for each operand where both
/// are the same infinity. Only there the difference is replaced, so that other ties keep the
/// derivative of the difference.
pub(super) fn logaddexp(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let (zero, equal) = (v.scalar(0.0), v.b.eq(a, b)?);
    let side = |v: &mut Vjp<'_>, this: NodeId, other: NodeId| {
        let difference = v.b.sub(this, other)?;
        let undefined = v.b.isnan(difference)?;
        let infinite = v.b.bitwise_and(equal, undefined)?;
        let difference = v.b.select(infinite, zero, difference)?;
        let share = v.b.sigmoid(difference)?;
        v.b.mul(v.ct, share)
    };
    Ok(smallvec![v.operand(0, |v| side(v, a, b))?, v.operand(1, |v| side(v, b, a))?])
}

/// `ct * (x - y) / (x (1 - x))`, with a divisor of at least 1e-12. This is 0 where a saturated
/// probability is right, and large but finite where it is wrong. The targets get
/// `ct * (log(1 - x) - log(x))`.
pub(super) fn binary_cross_entropy(v: &mut Vjp<'_>) -> Rule {
    let dtype = v.b.dtype(v.inputs[0]);
    let (x, y) = (v.b.widen(v.inputs[0])?, v.b.widen(v.inputs[1])?);
    let ct = v.b.widen(v.ct)?;
    let of_x = v.operand(0, |v| {
        let (one, least) = (v.b.scalar_like(x, 1.0), v.b.scalar_like(x, 1e-12));
        let rest = v.b.sub(one, x)?;
        let variance = v.b.mul(x, rest)?;
        let divisor = v.b.maximum(variance, least)?;
        let difference = v.b.sub(x, y)?;
        let slope = v.b.div(difference, divisor)?;
        let ct = v.b.mul(ct, slope)?;
        v.b.cast(ct, dtype)
    })?;
    let of_y = v.operand(1, |v| {
        let [log, log_rest] = log_chances(v.b, x)?;
        let slope = v.b.sub(log_rest, log)?;
        let ct = v.b.mul(ct, slope)?;
        v.b.cast(ct, dtype)
    })?;
    Ok(smallvec![of_x, of_y])
}
