//! Legalisation for AVX2: expands operations that have no instruction into other operations.
//!
//! Most of them are on 64-bit integers, which are multiplied, shifted and converted in parts.

use super::ir::{Binary, Builder, Compare, Lane, Number, Rounding, Unary, Value};

/// 2^52 and 2^84: the mantissas of these numbers hold 32-bit parts, which thereby become floats.
const LOW: u64 = 0x4330_0000_0000_0000;
const HIGH: u64 = 0x4530_0000_0000_0000;
const SIGN: u64 = 1 << 63;

impl Builder {
    fn wide(&self, bits: u64) -> Value {
        self.constant(Lane::Wide, bits)
    }

    fn wide_float(&self, x: f64) -> Value {
        self.wide(x.to_bits())
    }

    fn sign_of(&self, lane: Lane) -> Value {
        self.constant(lane, if lane == Lane::Wide { SIGN } else { SIGN >> 32 })
    }

    /// The expansion of the operation; `None` if it is an instruction.
    pub(super) fn legal_binary(&self, op: Binary, a: Value, b: Value) -> Option<Value> {
        if self.lane(a) != Lane::Wide {
            return None;
        }
        match op {
            Binary::MulI => {
                let upper = |x| self.unary(Unary::Right(32), x);
                let cross = self.binary(
                    Binary::AddI,
                    self.binary(Binary::MulLow, upper(a), b),
                    self.binary(Binary::MulLow, a, upper(b)),
                );
                let low = self.binary(Binary::MulLow, a, b);
                Some(self.binary(Binary::AddI, low, self.unary(Unary::Left(32), cross)))
            }
            Binary::RightSigned => {
                let most = self.wide(63);
                let by = self.select(self.compare(Compare::LtU, most, b), most, b);
                let shifted = self.binary(Binary::Right, a, by);
                let sign = self.binary(Binary::Right, self.wide(SIGN), by);
                let flipped = self.binary(Binary::Xor, shifted, sign);
                Some(self.binary(Binary::SubI, flipped, sign))
            }
            _ => None,
        }
    }

    /// As [`Builder::legal_binary`].
    pub(super) fn legal_unary(&self, op: Unary, a: Value) -> Option<Value> {
        match op {
            Unary::RightSigned(by) if self.lane(a) == Lane::Wide => {
                let sign = self.wide(SIGN >> by);
                let flipped = self.binary(Binary::Xor, self.unary(Unary::Right(by), a), sign);
                Some(self.binary(Binary::SubI, flipped, sign))
            }
            _ => None,
        }
    }

    /// As [`Builder::legal_binary`].
    pub(super) fn legal_compare(&self, op: Compare, a: Value, b: Value) -> Option<Value> {
        let flip = |x| self.binary(Binary::Xor, x, self.sign_of(self.lane(x)));
        Some(match op {
            Compare::LtI => self.compare(Compare::GtI, b, a),
            Compare::LeI => self.not(self.compare(Compare::GtI, a, b)),
            Compare::LtU => self.compare(Compare::GtI, flip(b), flip(a)),
            Compare::LeU => self.not(self.compare(Compare::GtI, flip(a), flip(b))),
            _ => return None,
        })
    }

    /// As [`Builder::legal_binary`].
    pub(super) fn legal_convert(&self, from: Number, to: Number, a: Value) -> Option<Value> {
        use Number::*;
        Some(match (from, to) {
            (U32, F32) => {
                // The upper half is exact, and so is its multiple; only the sum rounds.
                let float = |x| self.convert(I32, F32, x);
                let upper = float(self.unary(Unary::Right(16), a));
                let lower = float(self.binary(Binary::And, a, self.word(0xffff)));
                let upper = self.binary(Binary::MulF, upper, self.word(65536f32.to_bits()));
                self.binary(Binary::AddF, upper, lower)
            }
            (U32, F64) => {
                let bits = self.binary(Binary::Or, self.convert(U32, U64, a), self.wide(LOW));
                self.binary(Binary::SubF, bits, self.wide(LOW))
            }
            (I64 | U64, F64) => self.wide_to_float(a, from == I64),
            (I64 | U64, F32) => {
                let odd = self.sticky(a, from == I64);
                self.convert(F64, F32, self.wide_to_float(odd, from == I64))
            }
            (F32, U32) => self.float_to_unsigned(a, F32, self.word(2147483648f32.to_bits())),
            (F64, U32) => self.float_to_unsigned(a, F64, self.wide_float(2147483648.0)),
            (F32, I64 | U64) => self.float_to_wide(self.convert(F32, F64, a)),
            (F64, I64 | U64) => self.float_to_wide(a),
            _ => return None,
        })
    }

    /// Converts a 64-bit integer to the nearest f64: the halves are exact, and only their sum is
    /// rounded.
    fn wide_to_float(&self, a: Value, signed: bool) -> Value {
        let (flip, bias) = match signed {
            true => (HIGH | 1 << 31, f64::from_bits(HIGH | 1 << 31)),
            false => (HIGH, f64::from_bits(HIGH)),
        };
        let upper = self.binary(Binary::Xor, self.unary(Unary::Right(32), a), self.wide(flip));
        let both = bias + f64::from_bits(LOW);
        let upper = self.binary(Binary::SubF, upper, self.wide_float(both));
        let lower = self.binary(Binary::And, a, self.wide(0xffff_ffff));
        let lower = self.binary(Binary::Or, lower, self.wide(LOW));
        self.binary(Binary::AddF, upper, lower)
    }

    /// Reduces a 64-bit integer with more than 53 bits to 53 bits with a sticky bit, which is set
    /// if any dropped bit was set. Rounding to f32 then has the same result.
    fn sticky(&self, a: Value, signed: bool) -> Value {
        const LOST: u64 = (1 << 11) - 1;
        let lost = self.binary(Binary::And, a, self.wide(LOST));
        let none = self.compare(Compare::EqI, lost, self.wide(0));
        let bit = self.select(none, self.wide(0), self.wide(LOST + 1));
        let high = self.binary(Binary::And, a, self.wide(!LOST));
        let reduced = self.binary(Binary::Or, high, bit);
        // |a| < 2^53, as one comparison of a + 2^53 with 2^54.
        let moved = match signed {
            true => self.binary(Binary::AddI, a, self.wide(1 << 53)),
            false => a,
        };
        let limit = self.wide(if signed { 1 << 54 } else { 1 << 53 });
        self.select(self.compare(Compare::LtU, moved, limit), a, reduced)
    }

    /// Converts a float from 0 to 2^32 toward zero: subtracts 2^31 from larger values, and then
    /// sets the sign bit.
    fn float_to_unsigned(&self, a: Value, from: Number, half: Value) -> Value {
        let above = self.compare(Compare::LeF, half, a);
        let rest = self.select(above, self.binary(Binary::SubF, a, half), a);
        let integer = self.convert(from, Number::I32, rest);
        let flipped = self.binary(Binary::Xor, integer, self.word(1 << 31));
        self.select(above, flipped, integer)
    }

    /// Converts an f64 toward zero to a 64-bit integer: first the upper half, then the rest.
    fn float_to_wide(&self, a: Value) -> Value {
        const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
        let whole = self.unary(Unary::Round(Rounding::Zero), a);
        let scaled = self.binary(Binary::MulF, whole, self.wide_float(1.0 / 4294967296.0));
        let upper = self.unary(Unary::Round(Rounding::Down), scaled);
        let below = self.binary(Binary::MulF, upper, self.wide_float(4294967296.0));
        let lower = self.binary(Binary::SubF, whole, below);
        let upper = self.binary(Binary::AddF, upper, self.wide_float(ROUND));
        let lower = self.binary(Binary::AddF, lower, self.wide(LOW));
        let lower = self.binary(Binary::And, lower, self.wide(0xffff_ffff));
        self.binary(Binary::Or, self.unary(Unary::Left(32), upper), lower)
    }
}
