//! Floats and integers that write a program as they are computed with: with these, the elementary
//! functions of [`girih_kernel::math`] become vector code.

use super::ir::{Binary, Builder, Compare, Unary, Value};
use girih_kernel::math::{Bits, Float};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A word of a program being written, or a constant that is not in it yet.
#[derive(Clone, Copy)]
pub(super) enum Word<'a> {
    Constant(u32),
    Value(&'a Builder, Value),
}

impl<'a> Word<'a> {
    fn builder(self) -> Option<&'a Builder> {
        match self {
            Word::Constant(_) => None,
            Word::Value(builder, _) => Some(builder),
        }
    }

    /// The value in that program.
    pub fn value(self, builder: &Builder) -> Value {
        match self {
            Word::Constant(bits) => builder.word(bits),
            Word::Value(_, value) => value,
        }
    }

    /// Two words with the program that one of them belongs to.
    fn both(self, other: Word<'a>) -> (&'a Builder, Value, Value) {
        let builder = self.builder().or(other.builder());
        let builder = builder.expect("functions compute with their argument");
        (builder, self.value(builder), other.value(builder))
    }

    fn binary(self, op: Binary, other: Word<'a>) -> Word<'a> {
        let (builder, a, b) = self.both(other);
        Word::Value(builder, builder.binary(op, a, b))
    }

    fn unary(self, op: Unary) -> Word<'a> {
        match self {
            Word::Value(builder, value) => Word::Value(builder, builder.unary(op, value)),
            Word::Constant(_) => unreachable!("functions compute with their argument"),
        }
    }

    fn compare(self, op: Compare, other: Word<'a>) -> Truth<'a> {
        let (builder, a, b) = self.both(other);
        Truth(builder, builder.compare(op, a, b))
    }
}

/// A mask of a program being written.
#[derive(Clone, Copy)]
pub(super) struct Truth<'a>(&'a Builder, Value);

/// A word that is a float.
#[derive(Clone, Copy)]
pub(super) struct F32<'a>(pub Word<'a>);

/// A word that is an integer.
#[derive(Clone, Copy)]
pub(super) struct I32<'a>(Word<'a>);

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl<'a> $trait for F32<'a> {
            type Output = F32<'a>;
            fn $method(self, other: F32<'a>) -> F32<'a> {
                F32(self.0.binary(Binary::$op, other.0))
            }
        }
    )* };
}
operators!(Add add AddF, Sub sub SubF, Mul mul MulF, Div div DivF);

const SIGN: u32 = 0x8000_0000;

impl<'a> Neg for F32<'a> {
    type Output = F32<'a>;
    fn neg(self) -> F32<'a> {
        F32(self.0.binary(Binary::Xor, Word::Constant(SIGN)))
    }
}

impl<'a> Float for F32<'a> {
    type Bits = I32<'a>;
    type Mask = Truth<'a>;

    fn of(x: f32) -> F32<'a> {
        F32(Word::Constant(x.to_bits()))
    }

    fn abs(self) -> F32<'a> {
        F32(self.0.binary(Binary::And, Word::Constant(!SIGN)))
    }

    fn copysign(self, sign: F32<'a>) -> F32<'a> {
        let sign = sign.0.binary(Binary::And, Word::Constant(SIGN));
        F32(self.abs().0.binary(Binary::Or, sign))
    }

    fn less(self, other: F32<'a>) -> Truth<'a> {
        self.0.compare(Compare::LtF, other.0)
    }

    fn equal(self, other: F32<'a>) -> Truth<'a> {
        self.0.compare(Compare::EqF, other.0)
    }

    fn select(Truth(builder, mask): Truth<'a>, then: F32<'a>, other: F32<'a>) -> F32<'a> {
        let (then, other) = (then.0.value(builder), other.0.value(builder));
        F32(Word::Value(builder, builder.select(mask, then, other)))
    }

    fn to_bits(self) -> I32<'a> {
        I32(self.0)
    }
}

impl<'a> Bits for I32<'a> {
    type Float = F32<'a>;

    fn of(x: i32) -> I32<'a> {
        I32(Word::Constant(x as u32))
    }

    fn plus(self, other: I32<'a>) -> I32<'a> {
        I32(self.0.binary(Binary::AddI, other.0))
    }

    fn minus(self, other: I32<'a>) -> I32<'a> {
        I32(self.0.binary(Binary::SubI, other.0))
    }

    fn and(self, other: I32<'a>) -> I32<'a> {
        I32(self.0.binary(Binary::And, other.0))
    }

    fn left(self, by: u32) -> I32<'a> {
        I32(self.0.unary(Unary::Left(by as u8)))
    }

    fn right(self, by: u32) -> I32<'a> {
        I32(self.0.unary(Unary::RightSigned(by as u8)))
    }

    fn to_float(self) -> F32<'a> {
        F32(self.0.unary(Unary::ToFloat))
    }

    fn as_float(self) -> F32<'a> {
        F32(self.0)
    }
}
