//! The meaning of each elementwise op on scalars, including edge cases. The reference evaluator and
//! constant folding compute with it; tests compare kernels with it.
//!
//! Dtypes: half floats are computed in f32 and rounded to nearest; integers are computed in 128
//! bits and wrap; bool is an integer that is 0 or 1; complex numbers use the functions of
//! [`crate::complex`].

use crate::complex::{self, ComplexPart};
use crate::random::draws;
use crate::special;
use crate::{DType, Element, Literal, Op, OpCode};
use num_complex::Complex;
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Applies an elementwise op to one element of each operand; the result has dtype `dtype`.
///
/// Panics for ops of other classes and for operands that the op's shape rule rejects.
pub fn apply<E: Copy + Into<Element>>(op: &Op, dtype: DType, args: &[E]) -> Element {
    let a: Element = args[0].into();
    let b: Element = args.get(1).copied().map_or(a, Into::into);
    let truth = |value: bool| Literal { dtype: DType::Bool, bits: value as u64 };
    match op.code {
        OpCode::Where => return if a.bits != 0 { b } else { args[2].into() },
        OpCode::Cast => return a.cast(dtype),
        OpCode::Bitcast => return Literal { dtype, bits: a.bits }.into(),
        OpCode::IsNan => return truth(a.as_f64().is_nan()).into(),
        OpCode::IsInf => return truth(a.as_f64().is_infinite()).into(),
        OpCode::IsFinite => return truth(a.as_f64().is_finite()).into(),
        OpCode::Signbit => return truth(a.as_f64().is_sign_negative()).into(),
        OpCode::Nextafter => return next_after(*a, *b).into(),
        OpCode::GammaDraw | OpCode::LogGammaDraw | OpCode::PoissonDraw | OpCode::BinomialDraw => {
            let words: SmallVec<[u64; 3]> = args.iter().map(|&x| x.into().bits).collect();
            let bits = draws::draw(op.code, &words).unwrap_or_default();
            return Literal { dtype, bits }.into();
        }
        OpCode::Complex => {
            return Element::from_complex(dtype, Complex::new(a.as_f64(), b.as_f64()));
        }
        _ => {}
    }
    if let Some(value) = compare(op.code, a, b) {
        return truth(value).into();
    }
    match a.dtype {
        DType::C64 => complex_op::<f32>(op.code, a, b, dtype),
        DType::C128 => complex_op::<f64>(op.code, a, b, dtype),
        DType::F64 => Literal::from_f64(dtype, float64(op.code, a.as_f64(), b.as_f64())).into(),
        d if d.is_float() => {
            // Exact, since every f32 and every half float is representable as f64.
            let (a, b) = (a.as_f64() as f32, b.as_f64() as f32);
            Literal::from_f64(dtype, float32(op.code, a, b) as f64).into()
        }
        DType::Bool if op.code == OpCode::Not => truth(a.bits == 0).into(),
        d => {
            let width = 8 * d.size() as i128;
            Literal::from_int(dtype, integer(op.code, a.as_int(), b.as_int(), width)).into()
        }
    }
}

/// NaN is unequal to everything and unordered.
fn compare(code: OpCode, a: Element, b: Element) -> Option<bool> {
    let order = match a.dtype {
        d if d.is_complex() => (a.complex() == b.complex()).then_some(Ordering::Equal),
        d if d.is_float() => a.as_f64().partial_cmp(&b.as_f64()),
        _ => a.as_int().partial_cmp(&b.as_int()),
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

/// Complex ops. Sums and products are computed in the precision of the parts.
fn complex_op<T: ComplexPart>(code: OpCode, a: Element, b: Element, dtype: DType) -> Element {
    let (narrow_a, narrow_b) = (T::narrow(a.complex()), T::narrow(b.complex()));
    let (a, b) = (a.complex(), b.complex());
    let real = |value: f64| Literal::from_f64(dtype, value).into();
    let value = match code {
        OpCode::Real => return real(a.re),
        OpCode::Imag => return real(a.im),
        OpCode::Abs => return real(complex::abs(a)),
        OpCode::Conj => a.conj(),
        OpCode::Neg => -a,
        OpCode::Add => T::widen(T::add(narrow_a, narrow_b)),
        OpCode::Sub => T::widen(T::sub(narrow_a, narrow_b)),
        OpCode::Mul => T::widen(T::mul(narrow_a, narrow_b)),
        OpCode::Div => complex::div(a, b),
        OpCode::Pow => complex::pow(a, b),
        code => match complex::function(code) {
            Some(f) => f(a),
            None => unreachable!("{code:?} does not compute complex numbers elementwise"),
        },
    };
    Element::from_complex(dtype, value)
}

/// The next value of the dtype after `a` in the direction of `b`.
fn next_after(a: Literal, b: Literal) -> Literal {
    let (x, y, dtype) = (a.as_f64(), b.as_f64(), a.dtype);
    if x.is_nan() || y.is_nan() {
        return Literal::from_f64(dtype, f64::NAN);
    }
    if x == y {
        return b;
    }
    let bits = match x {
        // The smallest number with the sign of the direction.
        0.0 => 1 | if y < 0.0 { 1 << (8 * dtype.size() - 1) } else { 0 },
        // For one sign, bits are ordered as magnitudes.
        _ if (y > x) == (x > 0.0) => a.bits + 1,
        _ => a.bits - 1,
    };
    Literal { dtype, bits }
}

/// One function per width: the same formulas, each computed in its own precision.
macro_rules! float_arithmetic {
    ($name:ident, $float:ty, $erf:path, $divmod:ident) => {
        /// Quotient rounded down and remainder with the divisor's sign, as NumPy's `divmod`. The
        /// remainder is exact, and the quotient is computed from it, so that both agree.
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
                // NaN has precedence. Of two zeros, the result is the first operand.
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
                OpCode::Hypot => complex::hypot(a as f64, b as f64) as $float,
                OpCode::Copysign => a.copysign(b),
                OpCode::Fmod => a % b,
                code => match (special::unary(code), special::binary(code)) {
                    (Some(f), _) => f(a as f64) as $float,
                    (_, Some(f)) => f(a as f64, b as f64) as $float,
                    _ => unreachable!("{code:?} does not compute floats elementwise"),
                },
            }
        }
    };
}

float_arithmetic!(float32, f32, libm::erff, divmod32);
float_arithmetic!(float64, f64, libm::erf, divmod64);

/// Integer arithmetic in 128 bits; the caller wraps the result to the dtype's `width` bits. A shift
/// by `width` or more, or by a negative number, shifts out all bits.
fn integer(code: OpCode, a: i128, b: i128, width: i128) -> i128 {
    match code {
        OpCode::Neg => -a,
        OpCode::Abs => a.abs(),
        OpCode::Sign => a.signum(),
        OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc => a,
        OpCode::Not => !a,
        OpCode::Add => a + b,
        OpCode::Sub => a - b,
        OpCode::Mul => a.wrapping_mul(b),
        OpCode::FloorDivide | OpCode::Remainder | OpCode::Fmod if b == 0 => 0,
        OpCode::Fmod => a % b,
        OpCode::FloorDivide => a / b - (a % b != 0 && (a < 0) != (b < 0)) as i128,
        OpCode::Remainder => {
            let rest = a % b;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        OpCode::Pow => power(a, b),
        OpCode::Maximum => a.max(b),
        OpCode::Minimum => a.min(b),
        OpCode::And => a & b,
        OpCode::Or => a | b,
        OpCode::Xor => a ^ b,
        OpCode::ShiftLeft => {
            if (0..width).contains(&b) {
                a << b
            } else {
                0
            }
        }
        OpCode::Philox => crate::random::word(a as u64, b as u64).into(),
        OpCode::ShiftRight => a >> if (0..width).contains(&b) { b } else { width },
        _ => unreachable!("{code:?} does not compute integers elementwise"),
    }
}

/// Integer power, which wraps. A negative exponent gives `1 / base^n` rounded toward zero.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match (base, exponent & 1) {
            (1, _) | (-1, 0) => 1,
            (-1, _) => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}
