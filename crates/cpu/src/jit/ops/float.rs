//! Ops on floats of 32 and 64 bits.

use super::super::ir::Inst;
use super::super::scalar::Scalar;
use super::super::trace::{F32, F64, Word};
use super::*;
use girih_exec::math::{self, wide};

impl Ops<'_> {
    fn single(&self, x: Value) -> F32<'_> {
        F32(Word::Value(self.b, x))
    }

    fn double(&self, x: Value) -> F64<'_> {
        F64(Word::Value(self.b, x))
    }

    /// The sign bit, in all lanes.
    fn sign_bit(&self, lane: Lane) -> Value {
        self.integer(lane, if lane == Lane::Wide { i64::MIN } else { i32::MIN as i64 })
    }

    fn magnitude(&self, x: Value) -> Value {
        let lane = self.b.lane(x);
        let rest = if lane == Lane::Wide { i64::MAX } else { i32::MAX as i64 };
        self.b.binary(Binary::And, x, self.integer(lane, rest))
    }

    pub(super) fn float_unary(&self, code: OpCode, x: Value) -> Option<Value> {
        use OpCode::*;
        let b = self.b;
        let lane = b.lane(x);
        let constant = |x: f64| self.float(lane, x);
        let infinity = || constant(f64::INFINITY);
        Some(match code {
            Neg => b.binary(Binary::Xor, x, self.sign_bit(lane)),
            Abs => self.magnitude(x),
            Sign => {
                let (zero, one, minus) = (constant(0.0), constant(1.0), constant(-1.0));
                let s = b.select(b.compare(Compare::LtF, x, zero), minus, zero);
                let s = b.select(b.compare(Compare::LtF, zero, x), one, s);
                b.select(b.compare(Compare::Unordered, x, x), x, s)
            }
            Floor => b.unary(Unary::Round(Rounding::Down), x),
            Ceil => b.unary(Unary::Round(Rounding::Up), x),
            Round => b.unary(Unary::Round(Rounding::Nearest), x),
            Trunc => b.unary(Unary::Round(Rounding::Zero), x),
            Sqrt => b.unary(Unary::Sqrt, x),
            Rsqrt => b.binary(Binary::DivF, constant(1.0), b.unary(Unary::Sqrt, x)),
            IsNan => b.compare(Compare::Unordered, x, x),
            IsInf => b.compare(Compare::EqI, self.magnitude(x), infinity()),
            IsFinite => b.compare(Compare::LtI, self.magnitude(x), infinity()),
            Signbit => b.compare(Compare::LtI, x, self.integer(lane, 0)),
            _ => return self.elementary(code, x),
        })
    }

    /// The elementary functions: the functions of the portable executor, traced with this program's
    /// values.
    fn elementary(&self, code: OpCode, x: Value) -> Option<Value> {
        macro_rules! functions {
            ($($code:ident $name:ident),*) => {
                match (code, self.b.lane(x)) {
                    $(
                        (OpCode::$code, Lane::Wide) => wide::$name(self.double(x)).0,
                        (OpCode::$code, _) => math::$name(self.single(x)).0,
                    )*
                    _ => return self.circular(code, x),
                }
            };
        }
        let result = functions!(
            Exp exp, Exp2 exp2, Expm1 expm1, Log log, Log1p log1p, Log2 log2, Log10 log10,
            Asin asin, Acos acos, Atan atan, Sinh sinh, Cosh cosh, Tanh tanh,
            Asinh asinh, Acosh acosh, Atanh atanh, Erf erf, Erfc erfc
        );
        Some(result.value(self.b))
    }

    /// Sine, cosine and tangent; a scalar function reduces large arguments.
    fn circular(&self, code: OpCode, x: Value) -> Option<Value> {
        let b = self.b;
        let lane = b.lane(x);
        let wide = lane == Lane::Wide;
        let (function, result) = match code {
            OpCode::Sin if wide => (Scalar::Sin, wide::sin_fast(self.double(x)).0),
            OpCode::Cos if wide => (Scalar::Cos, wide::cos_fast(self.double(x)).0),
            OpCode::Tan if wide => (Scalar::Tan, wide::tan_fast(self.double(x)).0),
            OpCode::Sin => (Scalar::Sin, math::sin_fast(self.single(x)).0),
            OpCode::Cos => (Scalar::Cos, math::cos_fast(self.single(x)).0),
            OpCode::Tan => (Scalar::Tan, math::tan_fast(self.single(x)).0),
            _ => return None,
        };
        let mask = match wide {
            true => wide::is_large(self.double(x)).1,
            false => math::is_large(self.single(x)).1,
        };
        let value = result.value(b);
        Some(b.push(Inst::Repair { function, lane, mask, value, of: x }))
    }

    /// The elementary functions of two floats.
    fn elementary_of_two(&self, code: OpCode, x: Value, y: Value) -> Option<Value> {
        let result = match (code, self.b.lane(x)) {
            (OpCode::Pow, Lane::Wide) => wide::pow(self.double(x), self.double(y)).0,
            (OpCode::Pow, _) => math::pow(self.single(x), self.single(y)).0,
            (OpCode::Atan2, Lane::Wide) => wide::atan2(self.double(x), self.double(y)).0,
            (OpCode::Atan2, _) => math::atan2(self.single(x), self.single(y)).0,
            _ => return None,
        };
        Some(result.value(self.b))
    }

    pub(super) fn float_binary(
        &self,
        code: OpCode,
        x: Value,
        y: Value,
        dtype: DType,
    ) -> Option<Value> {
        use OpCode::*;
        let b = self.b;
        let single = matches!(dtype, DType::F32 | DType::F64);
        Some(match code {
            Add => b.binary(Binary::AddF, x, y),
            Sub => b.binary(Binary::SubF, x, y),
            Mul => b.binary(Binary::MulF, x, y),
            Div => b.binary(Binary::DivF, x, y),
            Maximum => self.maximum(x, y),
            Minimum => self.minimum(x, y),
            Copysign => self.copysign(x, y),
            Nextafter if single => self.next_after(x, y),
            Hypot if dtype != DType::F64 => self.hypot(x, y),
            Eq => b.compare(Compare::EqF, x, y),
            Ne => b.not(b.compare(Compare::EqF, x, y)),
            Lt => b.compare(Compare::LtF, x, y),
            Le => b.compare(Compare::LeF, x, y),
            Gt => b.compare(Compare::LtF, y, x),
            Ge => b.compare(Compare::LeF, y, x),
            _ => return self.elementary_of_two(code, x, y),
        })
    }

    fn copysign(&self, x: Value, y: Value) -> Value {
        let b = self.b;
        let sign = b.binary(Binary::And, y, self.sign_bit(b.lane(x)));
        b.binary(Binary::Or, self.magnitude(x), sign)
    }

    /// The maximum: NaN if either operand is NaN; of two zeros +0, unless both are -0.
    fn maximum(&self, x: Value, y: Value) -> Value {
        let b = self.b;
        for (bound, x) in [(x, y), (y, x)] {
            // The instruction returns its second operand if that is NaN or both are equal.
            match self.bound(bound) {
                Some(0.0) if !self.is_negative(bound) => {
                    return b.binary(Binary::AddF, b.binary(Binary::MaxF, bound, x), bound);
                }
                Some(_) => return b.binary(Binary::MaxF, bound, x),
                None => {}
            }
        }
        if b.narrow() {
            return self.extremum(b.compare(Compare::LtF, y, x), Binary::And, x, y);
        }
        self.or_nan(b.binary(Binary::MaxNumberF, x, y), x, y)
    }

    /// The minimum: NaN if either operand is NaN; of two zeros -0, unless both are +0.
    fn minimum(&self, x: Value, y: Value) -> Value {
        let b = self.b;
        for (bound, x) in [(x, y), (y, x)] {
            let negative_zero = |bound| self.bound(bound) == Some(0.0) && self.is_negative(bound);
            if self.bound(bound).is_some() && !negative_zero(bound) {
                return b.binary(Binary::MinF, bound, x);
            }
        }
        if b.narrow() {
            return self.extremum(b.compare(Compare::LtF, x, y), Binary::Or, x, y);
        }
        self.or_nan(b.binary(Binary::MinNumberF, x, y), x, y)
    }

    /// The value of a constant that is a number.
    fn bound(&self, value: Value) -> Option<f64> {
        let bits = self.b.known(value)?;
        let number = match self.b.lane(value) {
            Lane::Wide => f64::from_bits(bits),
            _ => f32::from_bits(bits as u32) as f64,
        };
        (!number.is_nan()).then_some(number)
    }

    /// Whether the value is a constant whose sign bit is set.
    fn is_negative(&self, value: Value) -> bool {
        let sign = if self.b.lane(value) == Lane::Wide { 63 } else { 31 };
        self.b.known(value).is_some_and(|bits| bits >> sign & 1 == 1)
    }

    /// The minimum or maximum, with instructions that do not distinguish the signs of zeros.
    fn extremum(&self, first: Value, of_equal: Binary, x: Value, y: Value) -> Value {
        let b = self.b;
        let r = b.select(first, x, y);
        let equal = b.compare(Compare::EqF, x, y);
        self.or_nan(b.select(equal, b.binary(of_equal, x, y), r), x, y)
    }

    /// `value`, or NaN if an operand is NaN.
    fn or_nan(&self, value: Value, x: Value, y: Value) -> Value {
        let b = self.b;
        let nan = b.compare(Compare::Unordered, x, y);
        b.select(nan, b.binary(Binary::AddF, x, y), value)
    }

    /// The next float toward `y`, by its bits, which are ordered by magnitude for each sign.
    fn next_after(&self, x: Value, y: Value) -> Value {
        let b = self.b;
        let lane = b.lane(x);
        let (zero, one) = (self.integer(lane, 0), self.integer(lane, 1));
        let falls = b.compare(Compare::LtF, x, y);
        let shrinks = b.logic(Logic::Xor, falls, b.compare(Compare::LtF, zero, x));
        let next =
            b.select(shrinks, b.binary(Binary::SubI, x, one), b.binary(Binary::AddI, x, one));
        let next = b.select(b.compare(Compare::EqF, x, zero), self.copysign(one, y), next);
        let next = b.select(b.compare(Compare::EqF, x, y), y, next);
        b.select(b.compare(Compare::Unordered, x, y), b.binary(Binary::AddF, x, y), next)
    }

    /// The length of two f32 values, whose squares are exact in f64.
    fn hypot(&self, x: Value, y: Value) -> Value {
        let b = self.b;
        let square = |v| {
            let wide = b.convert(Number::F32, Number::F64, v);
            b.binary(Binary::MulF, wide, wide)
        };
        let length = b.unary(Unary::Sqrt, b.binary(Binary::AddF, square(x), square(y)));
        let length = b.convert(Number::F64, Number::F32, length);
        let infinity = self.float(Lane::Word, f64::INFINITY);
        let infinite = |v| b.compare(Compare::EqI, self.magnitude(v), infinity);
        b.select(b.logic(Logic::Or, infinite(x), infinite(y)), infinity, length)
    }
}
