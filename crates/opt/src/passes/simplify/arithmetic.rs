//! Rewrites of arithmetic and logic.

use super::{Rule, constant, operand_of, stand_in, with_literal};
use girih_ir::{GraphBuilder, Literal, Node, NodeId, OpCode, Result};

type Rewritten = Result<Option<NodeId>>;

pub(super) static RULES: &[Rule] = &[
    Rule { name: "x * 1 = x of reals", on: &[OpCode::Mul], exact: true, apply: times_one },
    Rule { name: "x / 1 = x of reals", on: &[OpCode::Div], exact: true, apply: over_one },
    Rule { name: "x - 0 = x", on: &[OpCode::Sub], exact: true, apply: minus_zero },
    Rule {
        name: "x + 0 = x of integers, x + -0 = x of real floats",
        on: &[OpCode::Add],
        exact: true,
        apply: plus_zero,
    },
    Rule { name: "x * 0 = 0 of integers", on: &[OpCode::Mul], exact: true, apply: times_zero },
    Rule { name: "x * -1 = -x of reals", on: &[OpCode::Mul], exact: true, apply: times_minus_one },
    Rule { name: "x - x = 0 of integers", on: &[OpCode::Sub], exact: true, apply: minus_itself },
    Rule { name: "x + -y = x - y", on: &[OpCode::Add], exact: true, apply: plus_negative },
    Rule { name: "x - -y = x + y", on: &[OpCode::Sub], exact: true, apply: minus_negative },
    Rule { name: "--x = x", on: &[OpCode::Neg], exact: true, apply: twice },
    Rule { name: "not not x = x", on: &[OpCode::Not], exact: true, apply: twice },
    Rule { name: "|-x| = |x|, ||x|| = |x|", on: &[OpCode::Abs], exact: true, apply: abs_of_sign },
    Rule { name: "x^0 = 1, x^1 = x", on: &[OpCode::Pow], exact: true, apply: trivial_power },
    // Products, quotients and roots are correctly rounded; a library's `pow` is only close.
    Rule {
        name: "x^2 = x * x, x^3 = x * x * x, x^-1 = 1 / x, x^0.5 = sqrt(x)",
        on: &[OpCode::Pow],
        exact: false,
        apply: simple_power,
    },
    Rule {
        name: "max(x, x) = min(x, x) = x & x = x | x = x",
        on: &[OpCode::Maximum, OpCode::Minimum, OpCode::And, OpCode::Or],
        exact: true,
        apply: idempotent,
    },
    Rule { name: "x ^ x = 0", on: &[OpCode::Xor], exact: true, apply: minus_itself },
    Rule { name: "x & 0 = 0, x & ones = x", on: &[OpCode::And], exact: true, apply: and_literal },
    Rule { name: "x | 0 = x, x | ones = ones", on: &[OpCode::Or], exact: true, apply: or_literal },
    Rule { name: "x ^ 0 = x", on: &[OpCode::Xor], exact: true, apply: xor_literal },
];

// Complex multiplication adds and subtracts zeros, which turns infinities into NaN and changes the
// signs of zeros. The identities of real numbers for `1`, `-1` and `-0` therefore do not hold.

fn times_one(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        Some((x, value)) if value.is(1.0) && !value.dtype.is_complex() => stand_in(b, x, node),
        _ => Ok(None),
    }
}

fn over_one(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match b.graph().literal(node.inputs[1]) {
        Some(value) if value.is(1.0) && !value.dtype.is_complex() => {
            stand_in(b, node.inputs[0], node)
        }
        _ => Ok(None),
    }
}

/// Applies only to +0, whose bits are 0, since `-0 - -0` is +0.
fn minus_zero(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match b.graph().literal(node.inputs[1]) {
        Some(value) if value.bits == 0 => stand_in(b, node.inputs[0], node),
        _ => Ok(None),
    }
}

/// For floats, applies only to -0, since `-0 + 0` is +0.
fn plus_zero(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let neutral = Literal::from_f64(node.spec.dtype, -0.0);
    match with_literal(b, node) {
        Some((x, value)) if value == neutral && !value.dtype.is_complex() => stand_in(b, x, node),
        _ => Ok(None),
    }
}

fn times_zero(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        Some((_, value)) if value.bits == 0 && !value.dtype.is_inexact() => constant(b, 0, node),
        _ => Ok(None),
    }
}

fn times_minus_one(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        // Do not rewrite if a broadcast would have to follow: one op would become two.
        Some((x, value)) if value.is(-1.0) && *b.spec(x) == node.spec => {
            if value.dtype.is_complex() { Ok(None) } else { b.neg(x).map(Some) }
        }
        _ => Ok(None),
    }
}

/// Does not apply to floats, since NaN and infinities give NaN.
fn minus_itself(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match node.inputs[0] == node.inputs[1] && !node.spec.dtype.is_inexact() {
        true => constant(b, 0, node),
        false => Ok(None),
    }
}

fn plus_negative(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let (x, y) = (node.inputs[0], node.inputs[1]);
    if let Some(y) = operand_of(b, y, OpCode::Neg) {
        return b.sub(x, y).map(Some);
    }
    match operand_of(b, x, OpCode::Neg) {
        Some(x) => b.sub(y, x).map(Some),
        None => Ok(None),
    }
}

fn minus_negative(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match operand_of(b, node.inputs[1], OpCode::Neg) {
        Some(y) => b.add(node.inputs[0], y).map(Some),
        None => Ok(None),
    }
}

/// The inner operand of two applications of the same op.
fn twice(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    Ok(operand_of(b, node.inputs[0], node.op.code))
}

fn abs_of_sign(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let x = node.inputs[0];
    if b.graph().node(x).op.code == OpCode::Abs {
        return Ok(Some(x));
    }
    // The negation of an unsigned integer wraps, so its absolute value differs from the operand's.
    match operand_of(b, x, OpCode::Neg) {
        Some(x) if node.spec.dtype.is_signed() => b.abs(x).map(Some),
        _ => Ok(None),
    }
}

/// IEEE 754 defines `x^0 = 1` for every x, including NaN.
fn trivial_power(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match b.graph().literal(node.inputs[1]) {
        Some(exponent) if exponent.is(0.0) => constant(b, 1, node),
        Some(exponent) if exponent.is(1.0) => stand_in(b, node.inputs[0], node),
        _ => Ok(None),
    }
}

fn simple_power(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let (x, dtype) = (node.inputs[0], node.spec.dtype);
    let Some(exponent) = b.graph().literal(node.inputs[1]) else { return Ok(None) };
    if *b.spec(x) != node.spec {
        return Ok(None);
    }
    let (is_float, is_half) = (dtype.is_float(), dtype.is_float() && dtype.size() == 2);
    match exponent.as_f64() {
        2.0 => b.mul(x, x).map(Some),
        // For half floats, rounding the first product would lose digits that the second one needs.
        3.0 if is_float && !is_half => {
            let square = b.mul(x, x)?;
            b.mul(square, x).map(Some)
        }
        -1.0 if is_float => {
            let one = b.scalar(dtype, 1.0);
            b.div(one, x).map(Some)
        }
        0.5 if is_float => root(b, x).map(Some),
        _ => Ok(None),
    }
}

/// `x^0.5` is +0 for -0 and infinity for -inf, whereas the square root is -0 and NaN.
fn root(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let (least, most) = (b.scalar_like(x, f64::NEG_INFINITY), b.scalar_like(x, f64::INFINITY));
    let endless = b.eq(x, least)?;
    let root = b.sqrt(x)?;
    let root = b.abs(root)?;
    b.select(endless, most, root)
}

fn idempotent(_: &mut GraphBuilder, node: &Node) -> Rewritten {
    Ok((node.inputs[0] == node.inputs[1]).then_some(node.inputs[0]))
}

/// True if every bit of the value is set; for bool, if it is true.
fn is_ones(value: Literal) -> bool {
    value == Literal::from_i64(value.dtype, -1)
}

fn and_literal(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        Some((_, value)) if value.bits == 0 => constant(b, 0, node),
        Some((x, value)) if is_ones(value) => stand_in(b, x, node),
        _ => Ok(None),
    }
}

fn or_literal(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        Some((x, value)) if value.bits == 0 => stand_in(b, x, node),
        Some((_, value)) if is_ones(value) => constant(b, -1, node),
        _ => Ok(None),
    }
}

fn xor_literal(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match with_literal(b, node) {
        Some((x, value)) if value.bits == 0 => stand_in(b, x, node),
        _ => Ok(None),
    }
}
