//! Lowers ops to instructions of the vector IR, with the same bits as the portable executor's
//! loops.
//!
//! The lanes of a dtype: floats of 16 bits are widened to f32; integers of 8 and 16 bits are
//! widened to 32 bits; booleans are masks; all other dtypes are unchanged. Complex numbers are not
//! supported, nor are a few ops that have no vector instructions.

mod cast;
mod float;
mod integer;

use super::ir::{Binary, Builder, Compare, Element, Lane, Logic, Number, Rounding, Unary, Value};
use girih_ir::{DType, OpCode};

/// The memory format of a dtype's elements, if the dtype is supported.
pub(super) fn element(dtype: DType) -> Option<Element> {
    Some(match dtype {
        DType::F64 | DType::I64 | DType::U64 => Element::Wide,
        DType::F32 | DType::I32 | DType::U32 => Element::Word,
        DType::F16 => Element::Half,
        DType::BF16 => Element::BFloat16,
        DType::I16 | DType::U16 => Element::Short { signed: dtype == DType::I16 },
        DType::I8 | DType::U8 => Element::Byte { signed: dtype == DType::I8 },
        DType::Bool => Element::Bool,
        _ => return None,
    })
}

/// The number type of a dtype's lanes; `None` for booleans and unsupported dtypes.
fn number(dtype: DType) -> Option<Number> {
    Some(match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Number::F32,
        DType::I32 | DType::I16 | DType::I8 => Number::I32,
        DType::U32 | DType::U16 | DType::U8 => Number::U32,
        DType::F64 => Number::F64,
        DType::I64 => Number::I64,
        DType::U64 => Number::U64,
        _ => return None,
    })
}

/// Appends ops to a program.
pub(super) struct Ops<'a> {
    pub b: &'a Builder,
}

impl Ops<'_> {
    /// The result of an op (not `Cast`) on operands of `dtype`; for `Where`, the dtype of the
    /// branches. Results of halves are not rounded yet. `None` if the op is not supported.
    pub fn op(&self, code: OpCode, args: &[Value], dtype: DType) -> Option<Value> {
        if let (OpCode::Where, &[mask, then, other]) = (code, args) {
            return Some(self.choose(mask, then, other));
        }
        if let (OpCode::Bitcast, &[x]) = (code, args) {
            // Lanes of narrower dtypes hold the widened bits.
            return matches!(dtype.size(), 4 | 8).then_some(x);
        }
        match dtype {
            DType::Bool => self.bool_op(code, args),
            d if d.is_float() => match *args {
                [x] => self.float_unary(code, x),
                [x, y] => self.float_binary(code, x, y, d),
                _ => None,
            },
            d if number(d).is_some() => match *args {
                [x] => self.integer_unary(code, x, d),
                [x, y] => self.integer_binary(code, x, y, d),
                _ => None,
            },
            _ => None,
        }
    }

    /// A literal: `bits` are those of the compute type.
    pub fn literal(&self, dtype: DType, bits: u64) -> Option<Value> {
        Some(match dtype {
            DType::Bool => self.bool_constant(bits != 0),
            DType::I8 => self.b.word(bits as i8 as u32),
            DType::I16 => self.b.word(bits as i16 as u32),
            d => match number(d)?.lane() {
                Lane::Word => self.b.word(bits as u32),
                lane => self.b.constant(lane, bits),
            },
        })
    }

    fn bool_constant(&self, value: bool) -> Value {
        let (zero, other) = (self.b.word(0), self.b.word(1 - value as u32));
        self.b.compare(Compare::EqI, zero, other)
    }

    /// A float in all lanes.
    fn float(&self, lane: Lane, x: f64) -> Value {
        match lane {
            Lane::Wide => self.b.constant(lane, x.to_bits()),
            _ => self.b.word((x as f32).to_bits()),
        }
    }

    /// An integer in all lanes.
    fn integer(&self, lane: Lane, x: i64) -> Value {
        match lane {
            Lane::Wide => self.b.constant(lane, x as u64),
            _ => self.b.word(x as u32),
        }
    }

    fn choose(&self, mask: Value, then: Value, other: Value) -> Value {
        let b = self.b;
        if b.lane(then) != Lane::Mask {
            return b.select(mask, then, other);
        }
        let then = b.logic(Logic::And, mask, then);
        b.logic(Logic::Or, then, b.logic(Logic::And, b.not(mask), other))
    }

    fn bool_op(&self, code: OpCode, args: &[Value]) -> Option<Value> {
        use OpCode::*;
        let b = self.b;
        Some(match (code, args) {
            (Not, &[x]) => b.not(x),
            (And | Minimum, &[x, y]) => b.logic(Logic::And, x, y),
            (Or | Maximum, &[x, y]) => b.logic(Logic::Or, x, y),
            (Xor | Ne, &[x, y]) => b.logic(Logic::Xor, x, y),
            (Eq, &[x, y]) => b.not(b.logic(Logic::Xor, x, y)),
            (Lt, &[x, y]) | (Gt, &[y, x]) => b.logic(Logic::And, b.not(x), y),
            (Le, &[x, y]) | (Ge, &[y, x]) => b.logic(Logic::Or, b.not(x), y),
            _ => return None,
        })
    }
}
