//! Composites that derivative rules record: first derivatives whose formulas would cancel if they
//! were differentiated again. Each has a rule in the same form, so that derivatives of any order
//! keep their digits.

use super::composite::{composite, floating, floating_pair, with_rule};
use super::rules::only;
use super::*;
use crate::GraphBuilder;
use smallvec::smallvec;

/// `1 / (1 + exp(-x))` times `exp(-x) / (1 + exp(-x))`. The ops are those of the sigmoid's
/// decomposition, so that a program with both computes one exponential. Where the exponential is
/// infinite, the first factor is 0, and the largest number takes its place.
fn decompose_sigmoid_slope(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let x = d.wide()?;
    let minus = d.b.neg(x)?;
    let exp = d.b.exp(minus)?;
    let one = d.b.scalar_like(x, 1.0);
    let divisor = d.b.add(one, exp)?;
    let share = d.b.div(one, divisor)?;
    let largest = if d.b.dtype(x) == DType::F64 { f64::MAX } else { f32::MAX.into() };
    let largest = d.b.scalar_like(x, largest);
    let exp = d.b.minimum(exp, largest)?;
    let rest = d.b.mul(exp, share)?;
    let slope = d.b.mul(share, rest)?;
    d.narrow(slope)
}

/// `-tanh(x / 2)` times the slope.
fn sigmoid_slope_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let half = v.scalar(-0.5);
    let argument = v.b.mul(v.inputs[0], half)?;
    let bend = v.b.tanh(argument)?;
    let slope = v.b.mul(bend, v.output)?;
    only(v.b.mul(v.ct, slope)?)
}

/// `hypot(a, b)`, or 1 where it is 0, for divisions by it.
pub(super) fn length(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let length = b.hypot(x, y)?;
    let (zero, one) = (b.scalar_like(length, 0.0), b.scalar_like(length, 1.0));
    let vanishes = b.eq(length, zero)?;
    b.select(vanishes, one, length)
}

fn decompose_direction(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let (a, b) = (d.wide()?, d.b.widen(d.inputs[1])?);
    let length = length(d.b, a, b)?;
    let part = d.b.div(a, length)?;
    d.narrow(part)
}

/// The components `u` and `w` of a unit vector change by `w / length` and `-u / length` times
/// `w da - u db`. In this form nothing cancels.
fn direction_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (a, b, u) = (v.inputs[0], v.inputs[1], v.output);
    let w = v.b.op(OpCode::Direction, &[b, a])?;
    let length = length(v.b, a, b)?;
    let turned = v.b.mul(v.ct, w)?;
    let turned = v.b.div(turned, length)?;
    Ok(smallvec![
        v.operand(0, |v| v.b.mul(turned, w))?,
        v.operand(1, |v| {
            let positive = v.b.mul(turned, u)?;
            v.b.neg(positive)
        })?
    ])
}

/// The derivative of the logistic function: `sigmoid(x) sigmoid(-x)`, accurate for all real `x`.
pub static SIGMOID_SLOPE: OpDef = OpDef {
    category: Some(Category::Elementwise),
    python: Python::Nothing("the gradients of sigmoid and tanh make it"),
    precision: Precision::Full,
    ..with_rule(
        sigmoid_slope_vjp,
        composite(
            "sigmoid_slope",
            "The derivative of the logistic function at each element.",
            floating,
            decompose_sigmoid_slope,
        ),
    )
};
/// The first component of the unit vector in the direction of two operands, `a / hypot(a, b)`; 0
/// where both are 0.
pub static DIRECTION: OpDef = OpDef {
    category: Some(Category::Elementwise),
    arity: (2, 2),
    domain: (0.55, 2.9),
    python: Python::Nothing("the gradients of hypot and atan2 make it"),
    ..with_rule(
        direction_vjp,
        composite(
            "direction",
            "The first of two tensors' elements divided by their hypotenuse.",
            floating_pair,
            decompose_direction,
        ),
    )
};
