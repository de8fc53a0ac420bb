//! Ops on integers.

use super::*;

impl Ops<'_> {
    pub(super) fn integer_unary(&self, code: OpCode, x: Value, dtype: DType) -> Option<Value> {
        use OpCode::*;
        let b = self.b;
        let lane = b.lane(x);
        let zero = self.integer(lane, 0);
        let negated = || b.binary(Binary::SubI, zero, x);
        let result = match (code, dtype.is_signed()) {
            (Neg, _) => negated(),
            (Not, _) => b.binary(Binary::Xor, x, self.integer(lane, -1)),
            (Abs, true) => b.select(b.compare(Compare::LtI, x, zero), negated(), x),
            (Sign, signed) => {
                let one = self.integer(lane, 1);
                let sign = b.select(b.compare(Compare::EqI, x, zero), zero, one);
                if !signed {
                    return Some(sign);
                }
                b.select(b.compare(Compare::LtI, x, zero), self.integer(lane, -1), sign)
            }
            (Abs | Floor | Ceil | Round | Trunc, _) => return Some(x),
            _ => return None,
        };
        Some(self.wrapped(result, dtype))
    }

    pub(super) fn integer_binary(
        &self,
        code: OpCode,
        x: Value,
        y: Value,
        dtype: DType,
    ) -> Option<Value> {
        use OpCode::*;
        let b = self.b;
        let (less, at_most) = match dtype.is_signed() {
            true => (Compare::LtI, Compare::LeI),
            false => (Compare::LtU, Compare::LeU),
        };
        let right = if dtype.is_signed() { Binary::RightSigned } else { Binary::Right };
        let result = match code {
            Add => b.binary(Binary::AddI, x, y),
            Sub => b.binary(Binary::SubI, x, y),
            Mul => b.binary(Binary::MulI, x, y),
            ShiftLeft => b.binary(Binary::Left, x, y),
            ShiftRight => b.binary(right, x, y),
            FloorDivide => self.divide(x, y, dtype)?.0,
            Remainder => self.divide(x, y, dtype)?.1,
            And => return Some(b.binary(Binary::And, x, y)),
            Or => return Some(b.binary(Binary::Or, x, y)),
            Xor => return Some(b.binary(Binary::Xor, x, y)),
            Maximum => return Some(b.select(b.compare(less, y, x), x, y)),
            Minimum => return Some(b.select(b.compare(less, x, y), x, y)),
            Eq => return Some(b.compare(Compare::EqI, x, y)),
            Ne => return Some(b.not(b.compare(Compare::EqI, x, y))),
            Lt => return Some(b.compare(less, x, y)),
            Le => return Some(b.compare(at_most, x, y)),
            Gt => return Some(b.compare(less, y, x)),
            Ge => return Some(b.compare(at_most, y, x)),
            _ => return None,
        };
        Some(self.wrapped(result, dtype))
    }

    /// The quotient, rounded down, and the remainder, with the divisor's sign; both are 0 for a
    /// divisor 0.
    ///
    /// There is no vector instruction for integer division. Dividing as floats with more bits than
    /// the integers gives the exact floor: the quotient is at least `1 / y` from the next integer,
    /// and the rounding error is smaller.
    fn divide(&self, x: Value, y: Value, dtype: DType) -> Option<(Value, Value)> {
        let b = self.b;
        let kind = number(dtype)?;
        let wide = match dtype.size() {
            1 | 2 => Number::F32,
            4 => Number::F64,
            _ => return None,
        };
        let zero = self.integer(kind.lane(), 0);
        let none = b.compare(Compare::EqI, y, zero);
        let divisor = b.select(none, self.integer(kind.lane(), 1), y);
        let float = |v| b.convert(kind, wide, v);
        let quotient = b.binary(Binary::DivF, float(x), float(divisor));
        let quotient = b.unary(Unary::Round(Rounding::Down), quotient);
        // Only the quotient of the minimum by -1 is out of range, and it wraps to the minimum.
        let quotient = b.convert(wide, kind, quotient);
        let product = b.binary(Binary::MulI, quotient, divisor);
        let rest = b.binary(Binary::SubI, x, product);
        Some((b.select(none, zero, quotient), b.select(none, zero, rest)))
    }
}
