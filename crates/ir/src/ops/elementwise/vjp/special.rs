//! VJP rules of the special functions.

use super::*;
use std::f64::consts::FRAC_2_SQRT_PI;

pub(in crate::ops::elementwise) fn erf(v: &mut Vjp<'_>) -> Rule {
    bell(v, v.inputs[0], FRAC_2_SQRT_PI, false)
}

pub(in crate::ops::elementwise) fn erfc(v: &mut Vjp<'_>) -> Rule {
    bell(v, v.inputs[0], -FRAC_2_SQRT_PI, false)
}

/// The reciprocal of the derivative of `erf` at the result.
pub(in crate::ops::elementwise) fn erfinv(v: &mut Vjp<'_>) -> Rule {
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

pub(in crate::ops::elementwise) fn lgamma(v: &mut Vjp<'_>) -> Rule {
    let slope = v.b.digamma(v.inputs[0])?;
    scaled(v, slope)
}

pub(in crate::ops::elementwise) fn digamma(v: &mut Vjp<'_>) -> Rule {
    let order = v.scalar(1.0);
    let slope = v.b.polygamma(order, v.inputs[0])?;
    scaled(v, slope)
}

pub(in crate::ops::elementwise) fn polygamma(v: &mut Vjp<'_>) -> Rule {
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
/// respect to `x`. If the exponent is 0, the logarithm is skipped, since it is infinite at 0. In
/// f64, because large terms of the exponent cancel.
fn gamma_density(v: &mut Vjp<'_>) -> Result<NodeId> {
    let dtype = v.b.dtype(v.inputs[0]);
    let (a, x) = (v.b.cast(v.inputs[0], DType::F64)?, v.b.cast(v.inputs[1], DType::F64)?);
    let (one, zero) = (v.b.scalar(DType::F64, 1.0), v.b.scalar(DType::F64, 0.0));
    let (flat, less) = (v.b.eq(a, one)?, v.b.sub(a, one)?);
    let safe = v.b.select(flat, one, x)?;
    let log = v.b.log(safe)?;
    let power = v.b.mul(less, log)?;
    let power = v.b.select(flat, zero, power)?;
    let (total, exponent) = (v.b.lgamma(a)?, v.b.sub(power, x)?);
    let exponent = v.b.sub(exponent, total)?;
    let density = v.b.exp(exponent)?;
    v.b.cast(density, dtype)
}

pub(in crate::ops::elementwise) fn igamma(v: &mut Vjp<'_>) -> Rule {
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

pub(in crate::ops::elementwise) fn igammac(v: &mut Vjp<'_>) -> Rule {
    v.ct = v.b.neg(v.ct)?;
    igamma(v)
}

/// Exact with respect to `x`. With respect to `a`, a finite difference of four values in f64 with a
/// relative error near `1e-10`, since there is no closed form for the higher derivatives.
pub(in crate::ops::elementwise) fn igamma_grad_a(v: &mut Vjp<'_>) -> Rule {
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

pub(in crate::ops::elementwise) fn i0(v: &mut Vjp<'_>) -> Rule {
    let slope = v.b.i1(v.inputs[0])?;
    scaled(v, slope)
}

/// `i0(x) - i1(x) / x`.
pub(in crate::ops::elementwise) fn i1(v: &mut Vjp<'_>) -> Rule {
    let over = i1_over_x(v)?;
    let i0 = v.b.i0(v.inputs[0])?;
    let slope = v.b.sub(i0, over)?;
    scaled(v, slope)
}

/// `i1(x) / x`; up to one by its power series, since the derivative of the quotient cancels.
fn i1_over_x(v: &mut Vjp<'_>) -> Result<NodeId> {
    const TERMS: u32 = 10;
    let x = v.inputs[0];
    let (one, zero) = (v.scalar(1.0), v.scalar(0.0));
    let size = v.b.abs(x)?;
    let near = v.b.lt(size, one)?;
    let inside = v.b.select(near, x, zero)?;
    let square = v.b.mul(inside, inside)?;
    // `1/2 (1 + x^2 / (4 1 2) (1 + x^2 / (4 2 3) (1 + ...)))`, from the inside.
    let mut sum = one;
    for k in (1..TERMS).rev() {
        let factor = v.scalar(0.25 / (k * (k + 1)) as f64);
        let term = v.b.mul(square, factor)?;
        let term = v.b.mul(term, sum)?;
        sum = v.b.add(term, one)?;
    }
    let half = v.scalar(0.5);
    let series = v.b.mul(sum, half)?;
    let safe = v.b.select(near, one, x)?;
    let quotient = v.b.div(v.output, safe)?;
    v.b.select(near, series, quotient)
}
