//! What each elementwise op does to numbers, edge cases included.
//!
//! Dtypes: half floats are computed in f32 and rounded to nearest; integers are computed in 64 bits
//! and wrap; bool is an integer that is 0 or 1.

use crate::{DType, Literal, Op, OpCode};

/// The result, of dtype `dtype`, of an elementwise op on one element of each operand.
///
/// Panics for ops of other classes and for operands that the op's shape rule refuses.
pub fn apply(op: &Op, dtype: DType, args: &[Literal]) -> Literal {
    let a = args[0];
    let b = args.get(1).copied().unwrap_or(a);
    let truth = |value: bool| Literal { dtype: DType::Bool, bits: value as u64 };
    match op.code {
        OpCode::Where => return if a.bits != 0 { b } else { args[2] },
        OpCode::Cast => return a.cast(dtype),
        OpCode::IsNan => return truth(a.as_f64().is_nan()),
        OpCode::IsInf => return truth(a.as_f64().is_infinite()),
        OpCode::IsFinite => return truth(a.as_f64().is_finite()),
        _ => {}
    }
    if let Some(value) = compare(op.code, a, b) {
        return truth(value);
    }
    match a.dtype {
        DType::F64 => Literal::from_f64(dtype, float64(op.code, a.as_f64(), b.as_f64())),
        d if d.is_float() => {
            // Exact: every f32 and every half float is an f64.
            let (a, b) = (a.as_f64() as f32, b.as_f64() as f32);
            Literal::from_f64(dtype, float32(op.code, a, b) as f64)
        }
        DType::Bool if op.code == OpCode::Not => truth(a.bits == 0),
        _ => Literal::from_i64(dtype, integer(op.code, a.as_i64(), b.as_i64())),
    }
}

/// NaN is unequal to everything and in no order.
fn compare(code: OpCode, a: Literal, b: Literal) -> Option<bool> {
    let order = match a.dtype.is_float() {
        true => a.as_f64().partial_cmp(&b.as_f64()),
        false => a.as_i64().partial_cmp(&b.as_i64()),
    };
    Some(match code {
        OpCode::Eq => order.is_some_and(|o| o.is_eq()),
        OpCode::Ne => order.is_none_or(|o| o.is_ne()),
        OpCode::Lt => order.is_some_and(|o| o.is_lt()),
        OpCode::Le => order.is_some_and(|o| o.is_le()),
        OpCode::Gt => order.is_some_and(|o| o.is_gt()),
        OpCode::Ge => order.is_some_and(|o| o.is_ge()),
        _ => return None,
    })
}

/// One function per width: the same formulas, each computed in its own precision.
macro_rules! float_arithmetic {
    ($name:ident, $float:ty, $erf:path, $divmod:ident) => {
        /// Quotient rounded down and remainder signed as the divisor, as NumPy's `divmod`: the
        /// remainder is exact, and the quotient is found from it, so that the two agree.
        fn $divmod(a: $float, b: $float) -> ($float, $float) {
            if b == 0.0 {
                return (a / b, <$float>::NAN);
            }
            let mut rest = a % b;
            let mut quotient = (a - rest) / b;
            if rest == 0.0 {
                rest = rest.copysign(b);
            } else if (b < 0.0) != (rest < 0.0) {
                rest += b;
                quotient -= 1.0;
            }
            if quotient == 0.0 {
                return ((a / b).signum() * 0.0, rest);
            }
            let floor = quotient.floor();
            (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
        }

        fn $name(code: OpCode, a: $float, b: $float) -> $float {
            match code {
                OpCode::Neg => -a,
                OpCode::Abs => a.abs(),
                OpCode::Sign if a.is_nan() => a,
                OpCode::Sign if a == 0.0 => 0.0,
                OpCode::Sign => a.signum(),
                OpCode::Floor => a.floor(),
                OpCode::Ceil => a.ceil(),
                OpCode::Round => a.round_ties_even(),
                OpCode::Trunc => a.trunc(),
                OpCode::Exp => a.exp(),
                OpCode::Expm1 => a.exp_m1(),
                OpCode::Exp2 => a.exp2(),
                OpCode::Log => a.ln(),
                OpCode::Log1p => a.ln_1p(),
                OpCode::Log2 => a.log2(),
                OpCode::Log10 => a.log10(),
                OpCode::Sqrt => a.sqrt(),
                OpCode::Rsqrt => 1.0 / a.sqrt(),
                OpCode::Sin => a.sin(),
                OpCode::Cos => a.cos(),
                OpCode::Tan => a.tan(),
                OpCode::Asin => a.asin(),
                OpCode::Acos => a.acos(),
                OpCode::Atan => a.atan(),
                OpCode::Sinh => a.sinh(),
                OpCode::Cosh => a.cosh(),
                OpCode::Tanh => a.tanh(),
                OpCode::Asinh => a.asinh(),
                OpCode::Acosh => a.acosh(),
                OpCode::Atanh => a.atanh(),
                OpCode::Erf => $erf(a),
                OpCode::Add => a + b,
                OpCode::Sub => a - b,
                OpCode::Mul => a * b,
                OpCode::Div => a / b,
                OpCode::FloorDivide => $divmod(a, b).0,
                OpCode::Remainder => $divmod(a, b).1,
                OpCode::Pow => a.powf(b),
                // NaN wins; of two zeros the first.
                OpCode::Maximum => {
                    if a >= b || a.is_nan() {
                        a
                    } else {
                        b
                    }
                }
                OpCode::Minimum => {
                    if a <= b || a.is_nan() {
                        a
                    } else {
                        b
                    }
                }
                OpCode::Atan2 => a.atan2(b),
                _ => unreachable!("{code:?} does not compute floats elementwise"),
            }
        }
    };
}

float_arithmetic!(float32, f32, libm::erff, divmod32);
float_arithmetic!(float64, f64, libm::erf, divmod64);

/// In 64 bits; the caller wraps to the dtype.
fn integer(code: OpCode, a: i64, b: i64) -> i64 {
    match code {
        OpCode::Neg => a.wrapping_neg(),
        OpCode::Abs => a.wrapping_abs(),
        OpCode::Sign => a.signum(),
        OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc => a,
        OpCode::Not => !a,
        OpCode::Add => a.wrapping_add(b),
        OpCode::Sub => a.wrapping_sub(b),
        OpCode::Mul => a.wrapping_mul(b),
        OpCode::FloorDivide if b == 0 => 0,
        OpCode::FloorDivide => {
            let toward_zero = a.wrapping_div(b);
            toward_zero - (a.wrapping_rem(b) != 0 && (a < 0) != (b < 0)) as i64
        }
        OpCode::Remainder if b == 0 => 0,
        OpCode::Remainder => {
            let rest = a.wrapping_rem(b);
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        OpCode::Pow => power(a, b),
        OpCode::Maximum => a.max(b),
        OpCode::Minimum => a.min(b),
        OpCode::And => a & b,
        OpCode::Or => a | b,
        OpCode::Xor => a ^ b,
        _ => unreachable!("{code:?} does not compute integers elementwise"),
    }
}

/// Wraps; a negative exponent gives what is left of `1 / base^n` rounded toward zero.
fn power(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match (base, exponent & 1) {
            (1, _) | (-1, 0) => 1,
            (-1, _) => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}
