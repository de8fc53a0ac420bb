//! VJP rules of the elementwise ops. Conventions where a derivative does not exist: 0 for `abs` at
//! 0, half for each side of a tie in `maximum` and `minimum`, 0 for `hypot` and `atan2` of two
//! zeros. If an operand of `maximum` or `minimum` is NaN, both operands get the whole cotangent, as
//! in PyTorch.

use super::super::rules::only;
use super::*;
use crate::{GraphBuilder, NodeId};
use smallvec::smallvec;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LN_10};

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

/// `(1 - x) * (1 + x)`, which unlike `1 - x * x` does not cancel near one. Its derivatives at one
/// are finite.
fn one_minus_square(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let product = below_times_above(v, x)?;
    square_at_one(v, x, product, |b, one, square| b.sub(one, square))
}

/// `(1 - x) * (1 + x)`, for finite cotangents.
fn below_times_above(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let one = v.scalar(1.0);
    let (below, above) = (v.b.sub(one, x)?, v.b.add(one, x)?);
    v.b.mul(below, above)
}

/// Uses `product`, a product such as `(x - 1) * (x + 1)`, except where a factor is 0: there it uses
/// the difference of squares, since an infinite cotangent times the zero factor would give NaN.
fn square_at_one(
    v: &mut Vjp<'_>,
    x: NodeId,
    product: NodeId,
    difference: fn(&mut GraphBuilder, NodeId, NodeId) -> Result<NodeId>,
) -> Result<NodeId> {
    if v.b.dtype(x).is_complex() {
        return Ok(product);
    }
    let one = v.scalar(1.0);
    let square = v.b.mul(x, x)?;
    let (at_one, exact) = (v.b.eq(square, one)?, difference(v.b, one, square)?);
    v.b.select(at_one, exact, product)
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
    let (zero, one) = (v.scalar(0.0), v.scalar(1.0));
    let vanishes = v.b.eq(v.output, zero)?;
    let safe = v.b.select(vanishes, one, v.output)?;
    let over = v.b.div(v.ct, safe)?;
    let (a, b) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![v.operand(0, |v| v.b.mul(over, a))?, v.operand(1, |v| v.b.mul(over, b))?])
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

pub(super) fn expm1(v: &mut Vjp<'_>) -> Rule {
    let one = v.scalar(1.0);
    let exp = v.b.add(v.output, one)?;
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
    let ln = v.scalar(ln_base);
    let divisor = v.b.mul(v.inputs[0], ln)?;
    divided(v, divisor)
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

pub(super) fn atan(v: &mut Vjp<'_>) -> Rule {
    let divisor = one_plus_square(v, v.inputs[0])?;
    divided(v, divisor)
}

pub(super) fn sinh(v: &mut Vjp<'_>) -> Rule {
    let cosh = v.b.cosh(v.inputs[0])?;
    scaled(v, cosh)
}

pub(super) fn cosh(v: &mut Vjp<'_>) -> Rule {
    let sinh = v.b.sinh(v.inputs[0])?;
    scaled(v, sinh)
}

pub(super) fn tanh(v: &mut Vjp<'_>) -> Rule {
    let factor = below_times_above(v, v.output)?;
    scaled(v, factor)
}

pub(super) fn asinh(v: &mut Vjp<'_>) -> Rule {
    let inside = one_plus_square(v, v.inputs[0])?;
    let divisor = v.b.sqrt(inside)?;
    divided(v, divisor)
}

pub(super) fn acosh(v: &mut Vjp<'_>) -> Rule {
    let one = v.scalar(1.0);
    let (below, above) = (v.b.sub(v.inputs[0], one)?, v.b.add(v.inputs[0], one)?);
    // For complex numbers the root of the product may differ from the product of the roots.
    let divisor = match v.b.dtype(v.ct).is_complex() {
        true => {
            let (below, above) = (v.b.sqrt(below)?, v.b.sqrt(above)?);
            v.b.mul(below, above)?
        }
        false => {
            let inside = v.b.mul(below, above)?;
            let x = v.inputs[0];
            let inside = square_at_one(v, x, inside, |b, one, square| b.sub(square, one))?;
            v.b.sqrt(inside)?
        }
    };
    divided(v, divisor)
}

pub(super) fn atanh(v: &mut Vjp<'_>) -> Rule {
    let divisor = one_minus_square(v, v.inputs[0])?;
    divided(v, divisor)
}

pub(super) fn erf(v: &mut Vjp<'_>) -> Rule {
    bell(v, v.inputs[0], FRAC_2_SQRT_PI, false)
}

pub(super) fn erfc(v: &mut Vjp<'_>) -> Rule {
    bell(v, v.inputs[0], -FRAC_2_SQRT_PI, false)
}

/// The reciprocal of the derivative of `erf` at the result.
pub(super) fn erfinv(v: &mut Vjp<'_>) -> Rule {
    bell(v, v.output, 1.0 / FRAC_2_SQRT_PI, true)
}

/// `ct * height * exp(-x^2)`, or `ct * height * exp(x^2)` if `up`.
fn bell(v: &mut Vjp<'_>, x: NodeId, height: f64, up: bool) -> Rule {
    let square = v.b.mul(x, x)?;
    let exponent = if up { square } else { v.b.neg(square)? };
    let bell = v.b.exp(exponent)?;
    let height = v.scalar(height);
    let factor = v.b.mul(bell, height)?;
    scaled(v, factor)
}

pub(super) fn lgamma(v: &mut Vjp<'_>) -> Rule {
    let slope = v.b.digamma(v.inputs[0])?;
    scaled(v, slope)
}

pub(super) fn digamma(v: &mut Vjp<'_>) -> Rule {
    let order = v.scalar(1.0);
    let slope = v.b.polygamma(order, v.inputs[0])?;
    scaled(v, slope)
}

pub(super) fn polygamma(v: &mut Vjp<'_>) -> Rule {
    let (n, x) = (v.inputs[0], v.inputs[1]);
    let at = v.operand(1, |v| {
        let one = v.scalar(1.0);
        let next = v.b.add(n, one)?;
        let slope = v.b.polygamma(next, x)?;
        v.b.mul(v.ct, slope)
    })?;
    Ok(smallvec![None, at])
}

/// `x^(a - 1) exp(-x) / gamma(a)`, the derivative of the lower incomplete gamma function with
/// respect to `x`. If the exponent is 0, the logarithm is skipped, since it is infinite at 0.
fn gamma_density(v: &mut Vjp<'_>) -> Result<NodeId> {
    let (a, x) = (v.inputs[0], v.inputs[1]);
    let (one, zero) = (v.scalar(1.0), v.scalar(0.0));
    let (flat, less) = (v.b.eq(a, one)?, v.b.sub(a, one)?);
    let safe = v.b.select(flat, one, x)?;
    let log = v.b.log(safe)?;
    let power = v.b.mul(less, log)?;
    let power = v.b.select(flat, zero, power)?;
    let (total, exponent) = (v.b.lgamma(a)?, v.b.sub(power, x)?);
    let exponent = v.b.sub(exponent, total)?;
    v.b.exp(exponent)
}

pub(super) fn igamma(v: &mut Vjp<'_>) -> Rule {
    let (a, x) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![
        v.operand(0, |v| {
            let slope = v.b.igamma_grad_a(a, x)?;
            v.b.mul(v.ct, slope)
        })?,
        v.operand(1, |v| {
            let density = gamma_density(v)?;
            v.b.mul(v.ct, density)
        })?
    ])
}

pub(super) fn igammac(v: &mut Vjp<'_>) -> Rule {
    v.ct = v.b.neg(v.ct)?;
    igamma(v)
}

/// Exact with respect to `x`. With respect to `a`, a finite difference of four values in f64 with a
/// relative error near `1e-10`, since there is no closed form for the higher derivatives.
pub(super) fn igamma_grad_a(v: &mut Vjp<'_>) -> Rule {
    let (a, x) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec![
        v.operand(0, |v| {
            let slope = difference(v, a, x)?;
            v.b.mul(v.ct, slope)
        })?,
        v.operand(1, |v| {
            let (density, log, mean) = (gamma_density(v)?, v.b.log(x)?, v.b.digamma(a)?);
            let over = v.b.sub(log, mean)?;
            let slope = v.b.mul(density, over)?;
            v.b.mul(v.ct, slope)
        })?
    ])
}

/// The derivative of `igamma_grad_a` with respect to `a`, by a five-point finite difference with
/// steps of `a / 1000`.
fn difference(v: &mut Vjp<'_>, a: NodeId, x: NodeId) -> Result<NodeId> {
    const STEP: f64 = 1e-3;
    let dtype = v.b.dtype(a);
    let (a, x) = (v.b.cast(a, DType::F64)?, v.b.cast(x, DType::F64)?);
    let mut sum = None;
    for (at, weight) in [(-2.0, 1.0), (-1.0, -8.0), (1.0, 8.0), (2.0, -1.0)] {
        let (near, weight) =
            (v.b.scalar(DType::F64, 1.0 + at * STEP), v.b.scalar(DType::F64, weight / 12.0));
        let near = v.b.mul(a, near)?;
        let value = v.b.igamma_grad_a(near, x)?;
        let value = v.b.mul(value, weight)?;
        sum = Some(match sum {
            Some(sum) => v.b.add(sum, value)?,
            None => value,
        });
    }
    let step = v.b.scalar(DType::F64, STEP);
    let step = v.b.mul(a, step)?;
    let slope = v.b.div(sum.expect("four values are summed"), step)?;
    v.b.cast(slope, dtype)
}

pub(super) fn i0(v: &mut Vjp<'_>) -> Rule {
    let slope = v.b.i1(v.inputs[0])?;
    scaled(v, slope)
}

/// `i0(x) - i1(x) / x`; one half at 0.
pub(super) fn i1(v: &mut Vjp<'_>) -> Rule {
    let x = v.inputs[0];
    let (zero, one, half) = (v.scalar(0.0), v.scalar(1.0), v.scalar(0.5));
    let vanishes = v.b.eq(x, zero)?;
    let safe = v.b.select(vanishes, one, x)?;
    let over = v.b.div(v.output, safe)?;
    let over = v.b.select(vanishes, half, over)?;
    let i0 = v.b.i0(x)?;
    let slope = v.b.sub(i0, over)?;
    scaled(v, slope)
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

/// `b / (a^2 + b^2)` and `-a / (a^2 + b^2)`, 0 where both are 0.
pub(super) fn atan2(v: &mut Vjp<'_>) -> Rule {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let (zero, one) = (v.scalar(0.0), v.scalar(1.0));
    let (aa, bb) = (v.b.mul(a, a)?, v.b.mul(b, b)?);
    let norm = v.b.add(aa, bb)?;
    let vanishes = v.b.eq(norm, zero)?;
    let safe = v.b.select(vanishes, one, norm)?;
    let over = v.b.div(v.ct, safe)?;
    Ok(smallvec![
        v.operand(0, |v| v.b.mul(over, b))?,
        v.operand(1, |v| {
            let positive = v.b.mul(over, a)?;
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
