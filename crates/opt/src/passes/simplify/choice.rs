//! Rewrites of selects and casts.

use super::{Rule, operand_of, stand_in};
use girih_ir::DType::{self, *};
use girih_ir::{GraphBuilder, Node, NodeId, OpCode, Result};

type Rewritten = Result<Option<NodeId>>;

pub(super) static RULES: &[Rule] = &[
    Rule { name: "where(c, x, x) = x", on: &[OpCode::Where], exact: true, apply: same_branches },
    Rule {
        name: "where(true, x, y) = x, where(false, x, y) = y",
        on: &[OpCode::Where],
        exact: true,
        apply: known_condition,
    },
    Rule {
        name: "where(not c, x, y) = where(c, y, x)",
        on: &[OpCode::Where],
        exact: true,
        apply: negated_condition,
    },
    Rule {
        name: "cast or bitcast of x to its dtype = x",
        on: &[OpCode::Cast, OpCode::Bitcast],
        exact: true,
        apply: same_cast,
    },
    Rule {
        name: "a cast after a cast that loses nothing is one cast",
        on: &[OpCode::Cast],
        exact: true,
        apply: cast_of_cast,
    },
    Rule {
        name: "a bitcast after a bitcast is one bitcast",
        on: &[OpCode::Bitcast],
        exact: true,
        apply: bitcast_of_bitcast,
    },
];

fn same_branches(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match node.inputs[1] == node.inputs[2] {
        true => stand_in(b, node.inputs[1], node),
        false => Ok(None),
    }
}

fn known_condition(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match b.graph().literal(node.inputs[0]) {
        Some(c) => stand_in(b, node.inputs[if c.bits != 0 { 1 } else { 2 }], node),
        None => Ok(None),
    }
}

fn negated_condition(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    match operand_of(b, node.inputs[0], OpCode::Not) {
        Some(c) => b.select(c, node.inputs[2], node.inputs[1]).map(Some),
        None => Ok(None),
    }
}

fn same_cast(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    Ok((b.dtype(node.inputs[0]) == node.spec.dtype).then_some(node.inputs[0]))
}

fn cast_of_cast(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Some(x) = operand_of(b, node.inputs[0], OpCode::Cast) else { return Ok(None) };
    let (from, via, to) = (b.dtype(x), b.dtype(node.inputs[0]), node.spec.dtype);
    // An integer cast to a narrower integer wraps, but saturates by way of a float.
    let saturates = from.is_int() && via.is_float() && to.is_int() && !holds(to, from);
    match holds(via, from) && !saturates {
        true => b.cast(x, to).map(Some),
        false => Ok(None),
    }
}

fn bitcast_of_bitcast(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Some(x) = operand_of(b, node.inputs[0], OpCode::Bitcast) else { return Ok(None) };
    b.emit(node.op.clone(), &[x]).map(Some)
}

/// True if `wide` can represent every value of `dtype`.
fn holds(wide: DType, dtype: DType) -> bool {
    wide == dtype
        || match dtype {
            Bool => true,
            U8 => matches!(wide, U16 | U32 | U64 | I16 | I32 | I64) || wide.is_inexact(),
            I8 => matches!(wide, I16 | I32 | I64) || wide.is_inexact(),
            U16 => matches!(wide, U32 | U64 | I32 | I64 | F32 | F64 | C64 | C128),
            I16 => matches!(wide, I32 | I64 | F32 | F64 | C64 | C128),
            U32 => matches!(wide, U64 | I64 | F64 | C128),
            I32 => matches!(wide, I64 | F64 | C128),
            F16 | BF16 => matches!(wide, F32 | F64 | C64 | C128),
            F32 => matches!(wide, F64 | C64 | C128),
            F64 | C64 => wide == C128,
            U64 | I64 | C128 => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::Literal;

    #[test]
    fn casts_to_a_wider_dtype_preserve_extreme_values() {
        for dtype in DType::ALL {
            let (low, high) = dtype.int_range().unwrap_or((-2, 2));
            for wide in DType::ALL.into_iter().filter(|&wide| holds(wide, dtype)) {
                for v in [low, low + 1, high - 1, high] {
                    let v = Literal::from_int(dtype, v);
                    assert_eq!(v.cast(wide).cast(dtype), v, "{dtype} in {wide}");
                }
            }
        }
    }
}
