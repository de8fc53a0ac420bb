//! VJP rules of the elementwise ops. Conventions where a derivative does not exist: 0 for `abs` at
//! 0, half for each side of a tie in `maximum` and `minimum`, 0 for `hypot` and `atan2` of two
//! zeros. If an operand of `maximum` or `minimum` is NaN, both operands get the whole cotangent, as
//! in PyTorch.
//!
//! A rule takes nothing from the op's rounded result that has lost digits: where `tanh(x)` rounds to
//! 1, its derivative is small, not 0. Squares that overflow or underflow are avoided by lengths
//! ([`OpCode::Hypot`]). Where the derivative of a rule's formula would cancel, the rule records an op
//! of [`slopes`](super::super::slopes), which has a rule of its own.

mod special;

pub(super) use special::{
    digamma, erf, erfc, erfinv, i0, i1, igamma, igamma_grad_a, igammac, lgamma, polygamma,
};

use super::super::rules::only;
use super::super::slopes::length;
use super::*;
use crate::NodeId;
use smallvec::smallvec;
use std::f64::consts::{LN_2, LN_10};

type Rule = Result<Cotangents>;

/// `ct * factor`.
fn scaled(v: &mut Vjp<'_>, factor: NodeId) -> Rule {
    only(v.b.mul(v.ct, factor)?)
}

/// `ct / divisor`.
fn divided(v: &mut Vjp<'_>, divisor: NodeId) -> Rule {
    only(v.b.div(v.ct, divisor)?)
}

/// `1 + x * x`.
fn one_plus_square(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let one = v.scalar(1.0);
    let square = v.b.mul(x, x)?;
    v.b.add(one, square)
}

/// `sqrt(1 + x * x)` of real numbers, for `x` of any size.
fn length_with_one(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let one = v.scalar(1.0);
    v.b.hypot(x, one)
}

/// `(1 - x) * (1 + x)`, which unlike `1 - x * x` does not cancel near one. The derivative of the
/// product cancels near zero, and is NaN at one if the cotangent is infinite; there it is
/// `1 - x * x`.
fn one_minus_square(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let one = v.scalar(1.0);
    let (below, above) = (v.b.sub(one, x)?, v.b.add(one, x)?);
    let product = v.b.mul(below, above)?;
    if v.b.dtype(x).is_complex() {
        return Ok(product);
    }
    let square = v.b.mul(x, x)?;
    let quarter = v.scalar(0.25);
    let (small, at_one) = (v.b.lt(square, quarter)?, v.b.eq(square, one)?);
    let (direct, exact) = (v.b.bitwise_or(small, at_one)?, v.b.sub(one, square)?);
    v.b.select(direct, exact, product)
}

pub(super) fn neg(v: &mut Vjp<'_>) -> Rule {
    only(v.b.neg(v.ct)?)
}

/// `ct * sign(x)`; for complex numbers `ct * conj(z) / |z|`, 0 at 0.
pub(super) fn abs(v: &mut Vjp<'_>) -> Rule {
    let x = v.inputs[0];
    let dtype = v.b.dtype(x);
    let sign = v.b.sign(x)?;
    if !dtype.is_complex() {
        return scaled(v, sign);
    }
    let conj = v.b.conj(sign)?;
    let ct = v.b.cast(v.ct, dtype)?;
    only(v.b.mul(ct, conj)?)
}

/// Zero for real numbers; for complex numbers, with `s = z / |z|`,
/// `(ct - real(ct * s) * conj(s)) / |z|`, 0 at 0.
pub(super) fn sign(v: &mut Vjp<'_>) -> Rule {
    let z = v.inputs[0];
    let dtype = v.b.dtype(z);
    if !dtype.is_complex() {
        return Ok(smallvec![None]);
    }
    let product = v.b.mul(v.ct, v.output)?;
    let along = v.b.real(product)?;
    let along = v.b.cast(along, dtype)?;
    let conj = v.b.conj(v.output)?;
    let along = v.b.mul(along, conj)?;
    let across = v.b.sub(v.ct, along)?;
    let (zero, one) = (v.scalar(0.0), v.scalar(1.0));
    let is_zero = v.b.eq(z, zero)?;
    let safe = v.b.select(is_zero, one, z)?;
    let size = v.b.abs(safe)?;
    let size = v.b.cast(size, dtype)?;
    let ct = v.b.div(across, size)?;
    only(v.b.select(is_zero, zero, ct)?)
}

// Complex cotangents follow JAX's convention: a cotangent pairs with a change `dz` as
// `real(ct * dz)`. The derivative of a holomorphic function is thus a plain factor, and the
// gradient of a real function of `x + iy` is `df/dx - i df/dy`.

pub(super) fn real(v: &mut Vjp<'_>) -> Rule {
    let zero = v.scalar(0.0);
    only(v.b.complex(v.ct, zero)?)
}

pub(super) fn imag(v: &mut Vjp<'_>) -> Rule {
    let (zero, minus) = (v.scalar(0.0), v.b.neg(v.ct)?);
    only(v.b.complex(zero, minus)?)
}

pub(super) fn conj(v: &mut Vjp<'_>) -> Rule {
    only(v.b.conj(v.ct)?)
}

pub(super) fn complex(v: &mut Vjp<'_>) -> Rule {
    Ok(smallvec![
        v.operand(0, |v| v.b.real(v.ct))?,
        v.operand(1, |v| {
            let imag = v.b.imag(v.ct)?;
            v.b.neg(imag)
        })?
    ])
}

/// `a / hypot(a, b)` and `b / hypot(a, b)`, 0 where both are 0.
pub(super) fn hypot(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let side = |v: &mut Vjp<'_>, this: NodeId, other: NodeId| {
        let share = v.b.op(OpCode::Direction, &[this, other])?;
        v.b.mul(v.ct, share)
    };
    Ok(smallvec![v.operand(0, |v| side(v, a, b))?, v.operand(1, |v| side(v, b, a))?])
}

/// `ct` times the sign change of the first operand: the product of both operands' signs.
pub(super) fn copysign(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let first = v.operand(0, |v| {
        let one = v.scalar(1.0);
        let of_b = v.b.copysign(one, b)?;
        let of_a = v.b.copysign(one, a)?;
        let sign = v.b.mul(of_a, of_b)?;
        // The magnitude has a kink at 0, where the gradient is 0 by convention.
        let zero = v.scalar(0.0);
        let kink = v.b.eq(a, zero)?;
        let sign = v.b.select(kink, zero, sign)?;
        v.b.mul(v.ct, sign)
    })?;
    Ok(smallvec![first, None])
}

pub(super) fn exp(v: &mut Vjp<'_>) -> Rule {
    scaled(v, v.output)
}

/// The exponential: the result plus one would have lost all digits of small exponentials.
pub(super) fn expm1(v: &mut Vjp<'_>) -> Rule {
    let exp = v.b.exp(v.inputs[0])?;
    scaled(v, exp)
}

pub(super) fn exp2(v: &mut Vjp<'_>) -> Rule {
    let ln2 = v.scalar(LN_2);
    let factor = v.b.mul(v.output, ln2)?;
    scaled(v, factor)
}

pub(super) fn log(v: &mut Vjp<'_>) -> Rule {
    divided(v, v.inputs[0])
}

pub(super) fn log1p(v: &mut Vjp<'_>) -> Rule {
    let one = v.scalar(1.0);
    let divisor = v.b.add(v.inputs[0], one)?;
    divided(v, divisor)
}

fn log_of_base(v: &mut Vjp<'_>, ln_base: f64) -> Rule {
    // The constant is a factor of the cotangent, since a multiple of the largest operands overflows.
    let factor = v.scalar(1.0 / ln_base);
    let ct = v.b.mul(v.ct, factor)?;
    only(v.b.div(ct, v.inputs[0])?)
}

pub(super) fn log2(v: &mut Vjp<'_>) -> Rule {
    log_of_base(v, LN_2)
}

pub(super) fn log10(v: &mut Vjp<'_>) -> Rule {
    log_of_base(v, LN_10)
}

pub(super) fn sqrt(v: &mut Vjp<'_>) -> Rule {
    let half = v.scalar(0.5);
    let ct = v.b.mul(v.ct, half)?;
    only(v.b.div(ct, v.output)?)
}

pub(super) fn rsqrt(v: &mut Vjp<'_>) -> Rule {
    // `x^(-3/2)` as `x^(-1/2) / x`.
    let minus_half = v.scalar(-0.5);
    let cubed = v.b.div(v.output, v.inputs[0])?;
    let factor = v.b.mul(cubed, minus_half)?;
    scaled(v, factor)
}

pub(super) fn sin(v: &mut Vjp<'_>) -> Rule {
    let cos = v.b.cos(v.inputs[0])?;
    scaled(v, cos)
}

pub(super) fn cos(v: &mut Vjp<'_>) -> Rule {
    let sin = v.b.sin(v.inputs[0])?;
    let factor = v.b.neg(sin)?;
    scaled(v, factor)
}

pub(super) fn tan(v: &mut Vjp<'_>) -> Rule {
    let factor = one_plus_square(v, v.output)?;
    scaled(v, factor)
}

pub(super) fn asin(v: &mut Vjp<'_>) -> Rule {
    let inside = one_minus_square(v, v.inputs[0])?;
    let divisor = v.b.sqrt(inside)?;
    divided(v, divisor)
}

pub(super) fn acos(v: &mut Vjp<'_>) -> Rule {
    let inside = one_minus_square(v, v.inputs[0])?;
    let root = v.b.sqrt(inside)?;
    let divisor = v.b.neg(root)?;
    divided(v, divisor)
}

/// `1 / (1 + x^2)`; for real numbers as two divisions by a length, whose square may overflow.
pub(super) fn atan(v: &mut Vjp<'_>) -> Rule {
    let x = v.inputs[0];
    if v.b.dtype(x).is_complex() {
        let divisor = one_plus_square(v, x)?;
        return divided(v, divisor);
    }
    let length = length_with_one(v, x)?;
    let ct = v.b.div(v.ct, length)?;
    only(v.b.div(ct, length)?)
}

pub(super) fn sinh(v: &mut Vjp<'_>) -> Rule {
    let cosh = v.b.cosh(v.inputs[0])?;
    scaled(v, cosh)
}

pub(super) fn cosh(v: &mut Vjp<'_>) -> Rule {
    let sinh = v.b.sinh(v.inputs[0])?;
    scaled(v, sinh)
}

/// `1 - tanh(x)^2`, for real numbers as `4 sigmoid(2x) sigmoid(-2x)`: from the result, which rounds
/// to 1, the derivative would be 0 for large operands.
pub(super) fn tanh(v: &mut Vjp<'_>) -> Rule {
    let x = v.inputs[0];
    if v.b.dtype(x).is_complex() {
        let factor = one_minus_square(v, v.output)?;
        return scaled(v, factor);
    }
    let (two, four) = (v.scalar(2.0), v.scalar(4.0));
    let twice = v.b.mul(x, two)?;
    let slope = v.b.op(OpCode::SigmoidSlope, &[twice])?;
    let factor = v.b.mul(slope, four)?;
    scaled(v, factor)
}

/// `1 / sqrt(1 + x^2)`.
pub(super) fn asinh(v: &mut Vjp<'_>) -> Rule {
    let x = v.inputs[0];
    let divisor = match v.b.dtype(x).is_complex() {
        true => {
            let inside = one_plus_square(v, x)?;
            v.b.sqrt(inside)?
        }
        false => length_with_one(v, x)?,
    };
    divided(v, divisor)
}

/// `1 / sqrt((x - 1) (x + 1))`.
pub(super) fn acosh(v: &mut Vjp<'_>) -> Rule {
    let (x, one) = (v.inputs[0], v.scalar(1.0));
    if v.b.dtype(x).is_complex() {
        // For complex numbers the root of the product may differ from the product of the roots.
        let (below, above) = (v.b.sub(x, one)?, v.b.add(x, one)?);
        let (below, above) = (v.b.sqrt(below)?, v.b.sqrt(above)?);
        let divisor = v.b.mul(below, above)?;
        return divided(v, divisor);
    }
    // Beyond 2^28 the root is `x` to the last digit, and the product might overflow.
    let (bound, two) = (v.scalar(268_435_456.0), v.scalar(2.0));
    let far = v.b.gt(x, bound)?;
    let near = v.b.select(far, two, x)?;
    let (below, above) = (v.b.sub(near, one)?, v.b.add(near, one)?);
    let product = v.b.mul(below, above)?;
    // At one, an infinite cotangent times a factor that is 0 would be NaN.
    let square = v.b.mul(near, near)?;
    let (at_one, exact) = (v.b.eq(square, one)?, v.b.sub(square, one)?);
    let inside = v.b.select(at_one, exact, product)?;
    let root = v.b.sqrt(inside)?;
    let divisor = v.b.select(far, x, root)?;
    divided(v, divisor)
}

pub(super) fn atanh(v: &mut Vjp<'_>) -> Rule {
    let divisor = one_minus_square(v, v.inputs[0])?;
    divided(v, divisor)
}

/// Casts the cotangent back; for a cast from real to complex, its real part. Integers and bool have
/// no cotangent.
pub(super) fn cast(v: &mut Vjp<'_>) -> Rule {
    let (from, to) = (v.b.dtype(v.inputs[0]), v.b.dtype(v.ct));
    if !from.is_inexact() || !to.is_inexact() {
        return Ok(smallvec![None]);
    }
    let ct = if to.is_complex() && from.is_float() { v.b.real(v.ct)? } else { v.ct };
    only(v.b.cast(ct, from)?)
}

pub(super) fn add(v: &mut Vjp<'_>) -> Rule {
    Ok(smallvec![v.operand(0, |v| Ok(v.ct))?, v.operand(1, |v| Ok(v.ct))?])
}

pub(super) fn sub(v: &mut Vjp<'_>) -> Rule {
    Ok(smallvec![v.operand(0, |v| Ok(v.ct))?, v.operand(1, |v| v.b.neg(v.ct))?])
}

pub(super) fn mul(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![v.operand(0, |v| v.b.mul(v.ct, b))?, v.operand(1, |v| v.b.mul(v.ct, a))?])
}

pub(super) fn div(v: &mut Vjp<'_>) -> Rule {
    let over_b = v.b.div(v.ct, v.inputs[1])?;
    Ok(smallvec![
        v.operand(0, |_| Ok(over_b))?,
        v.operand(1, |v| {
            let positive = v.b.mul(over_b, v.output)?;
            v.b.neg(positive)
        })?
    ])
}

/// The quotient is piecewise constant: `a - floor(a / b) * b`.
pub(super) fn remainder(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![
        v.operand(0, |v| Ok(v.ct))?,
        v.operand(1, |v| {
            let quotient = v.b.floor_divide(a, b)?;
            let positive = v.b.mul(v.ct, quotient)?;
            v.b.neg(positive)
        })?
    ])
}

pub(super) fn fmod(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![
        v.operand(0, |v| Ok(v.ct))?,
        v.operand(1, |v| {
            let quotient = v.b.div(a, b)?;
            let quotient = v.b.trunc(quotient)?;
            let positive = v.b.mul(v.ct, quotient)?;
            v.b.neg(positive)
        })?
    ])
}

/// `d/da = b * a^(b - 1)`, 0 where `b` is 0 and `a` is 0 or NaN. `d/db = a^b * log(a)`, 0 where `a`
/// is 0 and `b` is not negative. The operand of the unselected branch is replaced as well.
/// Otherwise the second derivative would be NaN: the branch's infinity times a zero cotangent.
pub(super) fn pow(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let (zero, one) = (v.scalar(0.0), v.scalar(1.0));
    let base = v.operand(0, |v| {
        let vanishes = v.b.eq(b, zero)?;
        let nonzero = if v.b.dtype(a).is_complex() {
            v.b.ne(a, zero)?
        } else {
            let size = v.b.abs(a)?;
            v.b.gt(size, zero)?
        };
        let regular = v.b.bitwise_not(vanishes)?;
        let regular = v.b.bitwise_or(regular, nonzero)?;
        let safe = v.b.select(regular, a, one)?;
        let less = v.b.sub(b, one)?;
        let power = v.b.pow(safe, less)?;
        let slope = v.b.mul(b, power)?;
        v.b.mul(v.ct, slope)
    })?;
    let exponent = v.operand(1, |v| {
        let at_zero = v.b.eq(a, zero)?;
        let vanishes = match v.b.dtype(b).is_complex() {
            true => at_zero,
            false => {
                let bounded = v.b.ge(b, zero)?;
                v.b.bitwise_and(at_zero, bounded)?
            }
        };
        let safe = v.b.select(vanishes, one, a)?;
        let log = v.b.log(safe)?;
        let slope = v.b.mul(v.output, log)?;
        let slope = v.b.select(vanishes, zero, slope)?;
        v.b.mul(v.ct, slope)
    })?;
    Ok(smallvec![base, exponent])
}

/// 0 for an operand that `loses`, half for each operand in a tie, otherwise the whole cotangent.
fn extremum(v: &mut Vjp<'_>, loses: OpCode) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let (zero, half) = (v.scalar(0.0), v.scalar(0.5));
    let half = v.b.mul(v.ct, half)?;
    let tie = v.b.eq(a, b)?;
    let side = |v: &mut Vjp<'_>, this: NodeId, other: NodeId| {
        let lost = v.b.op(loses, &[this, other])?;
        let outright = v.b.select(lost, zero, v.ct)?;
        v.b.select(tie, half, outright)
    };
    Ok(smallvec![v.operand(0, |v| side(v, a, b))?, v.operand(1, |v| side(v, b, a))?])
}

pub(super) fn maximum(v: &mut Vjp<'_>) -> Rule {
    extremum(v, OpCode::Lt)
}

pub(super) fn minimum(v: &mut Vjp<'_>) -> Rule {
    extremum(v, OpCode::Gt)
}

/// `b / (a^2 + b^2)` and `-a / (a^2 + b^2)`, 0 where both are 0. The squares might overflow or
/// underflow, so each is a component of the unit vector divided by the length.
pub(super) fn atan2(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let length = length(v.b, a, b)?;
    let side = |v: &mut Vjp<'_>, this: NodeId, other: NodeId| {
        let share = v.b.op(OpCode::Direction, &[this, other])?;
        let ct = v.b.mul(v.ct, share)?;
        v.b.div(ct, length)
    };
    Ok(smallvec![
        v.operand(0, |v| side(v, b, a))?,
        v.operand(1, |v| {
            let positive = side(v, a, b)?;
            v.b.neg(positive)
        })?
    ])
}

/// The unselected branch gets exactly 0, whatever its own derivative is.
pub(super) fn select(v: &mut Vjp<'_>) -> Rule {
    let cond = v.inputs[0];
    let zero = v.scalar(0.0);
    Ok(smallvec![
        None,
        v.operand(1, |v| v.b.select(cond, v.ct, zero))?,
        v.operand(2, |v| v.b.select(cond, zero, v.ct))?
    ])
}
