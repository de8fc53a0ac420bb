//! Tracing: floats and integers whose operators append instructions to a program. With them, the
//! elementary functions of [`girih_exec::math`] become vector code.

use super::ir::{Binary, Builder, Compare, Lane, Logic, Number, Unary, Value};
use girih_exec::math::{self, Bits, Double, Float, Mask, Single};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A value of the program being built, or a constant that is not in it yet.
#[derive(Clone, Copy)]
pub(super) enum Word<'a> {
    Constant(Lane, u64),
    Value(&'a Builder, Value),
}

impl<'a> Word<'a> {
    fn builder(self) -> Option<&'a Builder> {
        match self {
            Word::Constant(..) => None,
            Word::Value(builder, _) => Some(builder),
        }
    }

    /// The value in that program.
    pub fn value(self, builder: &Builder) -> Value {
        match self {
            Word::Constant(lane, bits) => builder.constant(lane, bits),
            Word::Value(_, value) => value,
        }
    }

    /// Two words, with the program that at least one of them belongs to.
    fn both(self, other: Word<'a>) -> (&'a Builder, Value, Value) {
        let builder = self.builder().or(other.builder());
        let builder = builder.expect("functions compute with their argument");
        (builder, self.value(builder), other.value(builder))
    }

    fn binary(self, op: Binary, other: Word<'a>) -> Word<'a> {
        let (builder, a, b) = self.both(other);
        Word::Value(builder, builder.binary(op, a, b))
    }

    fn with(self, f: impl Fn(&Builder, Value) -> Value) -> Word<'a> {
        match self {
            Word::Value(builder, value) => Word::Value(builder, f(builder, value)),
            Word::Constant(..) => unreachable!("functions compute with their argument"),
        }
    }

    fn unary(self, op: Unary) -> Word<'a> {
        self.with(|builder, value| builder.unary(op, value))
    }

    fn convert(self, from: Number, to: Number) -> Word<'a> {
        self.with(|builder, value| builder.convert(from, to, value))
    }

    fn fma(self, by: Word<'a>, plus: Word<'a>) -> Word<'a> {
        let builder = self.builder().or(by.builder()).or(plus.builder());
        let builder = builder.expect("functions compute with their argument");
        let of = |word: Word<'a>| word.value(builder);
        Word::Value(builder, builder.fma(of(self), of(by), of(plus)))
    }

    fn compare(self, op: Compare, other: Word<'a>) -> LaneMask<'a> {
        let (builder, a, b) = self.both(other);
        LaneMask(builder, builder.compare(op, a, b))
    }
}

/// A mask of the program being built.
#[derive(Clone, Copy)]
pub(super) struct LaneMask<'a>(pub &'a Builder, pub Value);

impl Mask for LaneMask<'_> {
    fn and(self, other: Self) -> Self {
        LaneMask(self.0, self.0.logic(Logic::And, self.1, other.1))
    }

    fn or(self, other: Self) -> Self {
        LaneMask(self.0, self.0.logic(Logic::Or, self.1, other.1))
    }

    fn not(self) -> Self {
        LaneMask(self.0, self.0.not(self.1))
    }
}

/// The float and the integer type of a lane.
macro_rules! traced {
    ($float:ident $item:ident, $bits:ident $signed:ident, $lane:expr) => {
        /// A word that is a float.
        #[derive(Clone, Copy)]
        pub(super) struct $float<'a>(pub Word<'a>);

        /// A word that is an integer.
        #[derive(Clone, Copy)]
        pub(super) struct $bits<'a>(Word<'a>);

        traced!(@operators $float Add add AddF, Sub sub SubF, Mul mul MulF, Div div DivF);

        impl<'a> Neg for $float<'a> {
            type Output = $float<'a>;
            fn neg(self) -> $float<'a> {
                $float(self.0.binary(Binary::Xor, Self::sign()))
            }
        }

        impl<'a> $float<'a> {
            fn sign() -> Word<'a> {
                Word::Constant($lane, $item::to_bits(-0.0).into())
            }
        }

        impl<'a> Float for $float<'a> {
            type Item = $item;
            type Bits = $bits<'a>;
            type Mask = LaneMask<'a>;

            fn of(x: $item) -> $float<'a> {
                $float(Word::Constant($lane, x.to_bits().into()))
            }

            fn abs(self) -> $float<'a> {
                let rest = $signed::MAX as u64;
                $float(self.0.binary(Binary::And, Word::Constant($lane, rest)))
            }

            fn copysign(self, sign: $float<'a>) -> $float<'a> {
                let sign = sign.0.binary(Binary::And, Self::sign());
                $float(self.abs().0.binary(Binary::Or, sign))
            }

            fn sqrt(self) -> $float<'a> {
                $float(self.0.unary(Unary::Sqrt))
            }

            fn fma(self, by: $float<'a>, plus: $float<'a>) -> $float<'a> {
                $float(self.0.fma(by.0, plus.0))
            }

            fn less(self, other: $float<'a>) -> LaneMask<'a> {
                self.0.compare(Compare::LtF, other.0)
            }

            fn equal(self, other: $float<'a>) -> LaneMask<'a> {
                self.0.compare(Compare::EqF, other.0)
            }

            fn select(mask: LaneMask<'a>, then: $float<'a>, other: $float<'a>) -> $float<'a> {
                let LaneMask(builder, mask) = mask;
                let (then, other) = (then.0.value(builder), other.0.value(builder));
                $float(Word::Value(builder, builder.select(mask, then, other)))
            }

            fn to_bits(self) -> $bits<'a> {
                $bits(self.0)
            }
        }

        impl<'a> Bits for $bits<'a> {
            type Float = $float<'a>;
            type Mask = LaneMask<'a>;
            type Item = $signed;

            fn of(x: $signed) -> $bits<'a> {
                let mask = if $lane == Lane::Wide { u64::MAX } else { u32::MAX as u64 };
                $bits(Word::Constant($lane, x as u64 & mask))
            }

            fn plus(self, other: $bits<'a>) -> $bits<'a> {
                $bits(self.0.binary(Binary::AddI, other.0))
            }

            fn minus(self, other: $bits<'a>) -> $bits<'a> {
                $bits(self.0.binary(Binary::SubI, other.0))
            }

            fn and(self, other: $bits<'a>) -> $bits<'a> {
                $bits(self.0.binary(Binary::And, other.0))
            }

            fn or(self, other: $bits<'a>) -> $bits<'a> {
                $bits(self.0.binary(Binary::Or, other.0))
            }

            fn left(self, by: u32) -> $bits<'a> {
                $bits(self.0.unary(Unary::Left(by as u8)))
            }

            fn right(self, by: u32) -> $bits<'a> {
                $bits(self.0.unary(Unary::RightSigned(by as u8)))
            }

            fn right_zeros(self, by: u32) -> $bits<'a> {
                $bits(self.0.unary(Unary::Right(by as u8)))
            }

            fn is_zero(self) -> LaneMask<'a> {
                self.0.compare(Compare::EqI, Word::Constant($lane, 0))
            }

            fn is_negative(self) -> LaneMask<'a> {
                self.0.compare(Compare::LtI, Word::Constant($lane, 0))
            }

            fn as_float(self) -> $float<'a> {
                $float(self.0)
            }
        }
    };
    (@operators $float:ident $($trait:ident $method:ident $op:ident),*) => { $(
        impl<'a> $trait for $float<'a> {
            type Output = $float<'a>;
            fn $method(self, other: $float<'a>) -> $float<'a> {
                $float(self.0.binary(Binary::$op, other.0))
            }
        }
    )* };
}
traced!(F32 f32, I32 i32, Lane::Word);
traced!(F64 f64, I64 i64, Lane::Wide);

impl<'a> Single for F32<'a> {
    type Wide = F64<'a>;

    fn widen(self) -> F64<'a> {
        F64(self.0.convert(Number::F32, Number::F64))
    }

    fn of_integers(x: I32<'a>) -> F32<'a> {
        F32(x.0.convert(Number::I32, Number::F32))
    }

    fn scaled(self, round: F32<'a>) -> F32<'a> {
        if self.0.builder().is_none_or(Builder::narrow) {
            return math::scaled_by_parts(self, round);
        }
        let k = round - F32::of(math::ROUND);
        F32(self.0.binary(Binary::ScaleF, k.0))
    }
}

impl<'a> Double for F64<'a> {
    type Narrow = F32<'a>;

    fn narrow(self) -> F32<'a> {
        F32(self.0.convert(Number::F64, Number::F32))
    }
}
