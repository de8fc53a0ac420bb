//! Conversions between dtypes, and rounding to halves.

use super::*;

impl Ops<'_> {
    /// Converts a value to the compute type of another dtype. A conversion to a half from a type
    /// with more bits than f32 rounds to odd, so that the following rounding to the half has the
    /// same result as a single rounding.
    pub fn cast(&self, x: Value, from: DType, to: DType) -> Option<Value> {
        let b = self.b;
        if from == to {
            return Some(x);
        }
        if from == DType::Bool {
            let lane = number(to)?.lane();
            let one = if to.is_float() { self.float(lane, 1.0) } else { self.integer(lane, 1) };
            return Some(b.select(x, one, self.integer(lane, 0)));
        }
        let kind = number(from)?;
        if to == DType::Bool {
            let equal = if from.is_float() { Compare::EqF } else { Compare::EqI };
            return Some(b.not(b.compare(equal, x, self.integer(kind.lane(), 0))));
        }
        let target = number(to)?;
        let half = matches!(to, DType::F16 | DType::BF16);
        Some(match (from.is_float(), to.is_float()) {
            (true, true) if kind == target => x,
            (true, true) if half => self.to_odd(x),
            (true, true) => b.convert(kind, target, x),
            (true, false) => self.to_integer(x, kind, to)?,
            (false, true) if half && from.size() >= 4 => {
                self.to_odd(b.convert(kind, Number::F64, x))
            }
            (false, true) => b.convert(kind, target, x),
            (false, false) if kind.lane() == target.lane() => self.wrapped(x, to),
            (false, false) => self.wrapped(b.convert(kind, target, x), to),
        })
    }

    /// Wraps a 32-bit integer to the dtype's bits.
    pub(super) fn wrapped(&self, x: Value, dtype: DType) -> Value {
        let b = self.b;
        let unused = match dtype {
            DType::I8 | DType::U8 => 24,
            DType::I16 | DType::U16 => 16,
            _ => return x,
        };
        match dtype.is_signed() {
            true => b.unary(Unary::RightSigned(unused), b.unary(Unary::Left(unused), x)),
            false => b.binary(Binary::And, x, b.word(u32::MAX >> unused)),
        }
    }

    /// A float toward zero; values out of range saturate, and NaN becomes 0.
    fn to_integer(&self, x: Value, from: Number, to: DType) -> Option<Value> {
        let (b, lane) = (self.b, from.lane());
        let bits = 8 * to.size() as i32;
        let (low, high) = match to.is_signed() {
            true => (-2f64.powi(bits - 1), 2f64.powi(bits - 1)),
            false => (0.0, 2f64.powi(bits)),
        };
        let target = number(to)?;
        let most = match to.is_signed() {
            true => i64::MAX >> (64 - bits),
            false => (u64::MAX >> (64 - bits)) as i64,
        };
        let (low, high) = (self.float(lane, low), self.float(lane, high));
        let above = b.compare(Compare::LeF, high, x);
        let inside = b.select(b.compare(Compare::LtF, x, low), low, x);
        let nan = b.compare(Compare::Unordered, x, x);
        let inside = b.select(nan, self.float(lane, 0.0), inside);
        let integer = b.convert(from, target, inside);
        Some(b.select(above, self.integer(target.lane(), most), integer))
    }

    /// An f64 to f32, rounded to odd: if it is not exact, the neighbour with an odd last bit.
    fn to_odd(&self, x: Value) -> Value {
        let b = self.b;
        let magnitude = |v| b.binary(Binary::And, v, b.constant(Lane::Wide, i64::MAX as u64));
        let near = b.convert(Number::F64, Number::F32, x);
        let wide = b.convert(Number::F32, Number::F64, near);
        let away = b.compare(Compare::LtF, magnitude(x), magnitude(wide));
        let toward_zero = b.select(away, b.binary(Binary::SubI, near, b.word(1)), near);
        let odd = b.binary(Binary::Or, toward_zero, b.word(1));
        let exact = b.compare(Compare::EqF, wide, x);
        let exact = b.logic(Logic::Or, exact, b.compare(Compare::Unordered, x, x));
        b.select(exact, near, odd)
    }

    /// Rounds an f32 to a half, if `dtype` is one.
    pub fn round(&self, x: Value, dtype: DType) -> Value {
        let b = self.b;
        match dtype {
            DType::F16 => b.unary(Unary::RoundHalf, x),
            DType::BF16 => {
                let upper = b.word(0xffff_0000);
                let odd = b.binary(Binary::And, b.unary(Unary::Right(16), x), b.word(1));
                let sum = b.binary(Binary::AddI, b.binary(Binary::AddI, x, b.word(0x7fff)), odd);
                let quiet = b.binary(Binary::Or, x, b.word(0x0040_0000));
                let nan = b.compare(Compare::Unordered, x, x);
                b.binary(Binary::And, b.select(nan, quiet, sum), upper)
            }
            _ => x,
        }
    }

    /// Rounds an f32 in `[0, 1)` down to a half, if `dtype` is one.
    pub fn round_down(&self, x: Value, dtype: DType) -> Value {
        let b = self.b;
        match dtype {
            DType::F16 => {
                let normal = b.binary(Binary::And, x, b.word(!0x1fff));
                // Below 2^-14, halves have a spacing of 2^-24.
                let float = |x| self.float(Lane::Word, x);
                let steps = b.binary(Binary::MulF, x, float(16_777_216.0));
                let steps = b.unary(Unary::Round(Rounding::Down), steps);
                let subnormal = b.binary(Binary::MulF, steps, float(1.0 / 16_777_216.0));
                let small = b.compare(Compare::LtF, x, float(1.0 / 16384.0));
                b.select(small, subnormal, normal)
            }
            DType::BF16 => b.binary(Binary::And, x, b.word(0xffff_0000)),
            _ => x,
        }
    }
}
