//! Elementwise ops as block loops: what each op computes on one element, per compute type.
//!
//! Halves do not occur here: they are passed as f32, and the caller rounds. A bool is a byte that is
//! 0 or 1. If results of signed and unsigned integers of a width have the same bits, one loop serves
//! both. Complex numbers are in [`super::complex`].

mod loops;

use super::cast::{bf16_to_f32, compute, f16_to_f32, f32_to_bf16, f32_to_f16, is_half};
use super::isa::{BlockFn, Isa, select};
use crate::math::{self, wide};
use girih_ir::ops::Cost;
use girih_ir::{DType, OpCode, special};

pub(crate) use loops::{Binary, Map1, Map2, Unary, choose, slice, slice_mut};

macro_rules! unary_ops {
    ($($name:ident { $($x:ident: $($t:ident)* => $body:expr;)* })*) => { $(
        struct $name;
        $($(impl Unary<$t> for $name {
            type Out = $t;
            #[inline(always)]
            fn eval($x: $t) -> $t { $body }
        })*)*
    )* };
}
macro_rules! predicates {
    ($($name:ident: $x:ident => $body:expr;)*) => { $(
        struct $name;
        predicates!(@each $name $x $body, f32 f64);
    )* };
    (@each $name:ident $x:ident $body:expr, $($t:ty)*) => { $(impl Unary<$t> for $name {
        type Out = u8;
        #[inline(always)]
        fn eval($x: $t) -> u8 { ($body) as u8 }
    })* };
}

unary_ops! {
    Neg { x: u8 u16 u32 u64 => x.wrapping_neg(); x: f32 f64 => -x; }
    Abs { x: i8 i16 i32 i64 => x.wrapping_abs(); x: f32 f64 => x.abs(); }
    Sign {
        x: u8 u16 u32 u64 => (x != 0).into();
        x: i8 i16 i32 i64 => x.signum();
        x: f32 f64 => {
            let s = if x < 0.0 { -1.0 } else { 0.0 };
            let s = if x > 0.0 { 1.0 } else { s };
            if x.is_nan() { x } else { s }
        };
    }
    Copy1 { x: u8 u16 u32 u64 => x; }
    Not { x: u8 u16 u32 u64 => !x; }
    NotBool { x: u8 => x ^ 1; }
    Floor { x: f32 f64 => x.floor(); }
    Ceil { x: f32 f64 => x.ceil(); }
    Round { x: f32 f64 => x.round_ties_even(); }
    Trunc { x: f32 f64 => x.trunc(); }
    Sqrt { x: f32 f64 => x.sqrt(); }
    Rsqrt { x: f32 f64 => 1.0 / x.sqrt(); }
    Exp { x: f32 => math::exp(x); x: f64 => wide::exp(x); }
    Exp2 { x: f32 => math::exp2(x); x: f64 => wide::exp2(x); }
    Expm1 { x: f32 => math::expm1(x); x: f64 => wide::expm1(x); }
    Log { x: f32 => math::log(x); x: f64 => wide::log(x); }
    Log1p { x: f32 => math::log1p(x); x: f64 => wide::log1p(x); }
    Log2 { x: f32 => math::log2(x); x: f64 => wide::log2(x); }
    Log10 { x: f32 => math::log10(x); x: f64 => wide::log10(x); }
    Asin { x: f32 => math::asin(x); x: f64 => wide::asin(x); }
    Acos { x: f32 => math::acos(x); x: f64 => wide::acos(x); }
    Atan { x: f32 => math::atan(x); x: f64 => wide::atan(x); }
    Sinh { x: f32 => math::sinh(x); x: f64 => wide::sinh(x); }
    Cosh { x: f32 => math::cosh(x); x: f64 => wide::cosh(x); }
    Tanh { x: f32 => math::tanh(x); x: f64 => wide::tanh(x); }
    Asinh { x: f32 => math::asinh(x); x: f64 => wide::asinh(x); }
    Acosh { x: f32 => math::acosh(x); x: f64 => wide::acosh(x); }
    Atanh { x: f32 => math::atanh(x); x: f64 => wide::atanh(x); }
    Erf { x: f32 => math::erf(x); x: f64 => wide::erf(x); }
    Erfc { x: f32 => math::erfc(x); x: f64 => wide::erfc(x); }
    // For f32 computed in f64, and rounded once.
    Erfinv { x: f32 => special::erfinv(x as f64) as f32; x: f64 => special::erfinv(x); }
    Lgamma { x: f32 => special::lgamma(x as f64) as f32; x: f64 => special::lgamma(x); }
    Digamma { x: f32 => special::digamma(x as f64) as f32; x: f64 => special::digamma(x); }
    I0 { x: f32 => special::i0(x as f64) as f32; x: f64 => special::i0(x); }
    I1 { x: f32 => special::i1(x as f64) as f32; x: f64 => special::i1(x); }
}
predicates! {
    IsNan: x => x.is_nan();
    IsInf: x => x.is_infinite();
    IsFinite: x => x.is_finite();
    Signbit: x => x.is_sign_negative();
}

/// Circular functions: computes the fast argument reduction for all elements, then the full
/// reduction for the few large arguments.
macro_rules! circular {
    ($($name:ident, $fast:ident, $full:ident;)*) => { $(
        struct $name;
        circular!(@of $name f32 math $fast $full);
        circular!(@of $name f64 wide $fast $full);
    )* };
    (@of $name:ident $t:ident $module:ident $fast:ident $full:ident) => {
        impl Unary<$t> for $name {
            type Out = $t;
            #[inline(always)]
            fn eval(x: $t) -> $t { $module::$fast(x) }
            #[inline(always)]
            fn repair(out: &mut [$t], x: &[$t]) {
                if x.iter().fold(false, |any, &x| any | $module::is_large(x)) {
                    for (o, &x) in out.iter_mut().zip(x) {
                        if $module::is_large(x) {
                            *o = $module::$full(x);
                        }
                    }
                }
            }
        }
    };
}
circular! {
    Sin, sin_fast, sin;
    Cos, cos_fast, cos;
    Tan, tan_fast, tan;
}

/// Bit operations on floats.
trait BitPair {
    /// The conjunction of two floats' bits.
    fn both(a: Self, b: Self) -> Self;
    /// The disjunction of two floats' bits.
    fn either(a: Self, b: Self) -> Self;
}
macro_rules! bit_pair {
    ($($t:ident)*) => { $(impl BitPair for $t {
        #[inline(always)]
        fn both(a: $t, b: $t) -> $t { $t::from_bits(a.to_bits() & b.to_bits()) }
        #[inline(always)]
        fn either(a: $t, b: $t) -> $t { $t::from_bits(a.to_bits() | b.to_bits()) }
    })* };
}
bit_pair!(f32 f64);

/// The number of bits of an integer type.
#[inline(always)]
fn bits<T>(_: T) -> u64 {
    8 * size_of::<T>() as u64
}

/// The next float of the type, by its bits, which are ordered by magnitude for each sign.
macro_rules! next_after {
    ($t:ty, $a:ident, $b:ident) => {{
        let up = ($b > $a) == ($a > 0.0);
        let bits = $a.to_bits();
        let bits = if up { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        let zero: $t = 0.0;
        let bits = if $a == 0.0 { zero.copysign($b).to_bits() | 1 } else { bits };
        let next = <$t>::from_bits(bits);
        let next = if $a == $b { $b } else { next };
        if $a.is_nan() | $b.is_nan() { $a + $b } else { next }
    }};
}

macro_rules! binary_ops {
    ($($name:ident -> $out:ident { $($a:ident, $b:ident: $($t:ident)* => $body:expr;)* })*) => { $(
        pub(super) struct $name;
        $($(impl Binary<$t> for $name {
            type Out = binary_ops!(@out $out $t);
            #[inline(always)]
            fn eval($a: $t, $b: $t) -> Self::Out { $body }
        })*)*
    )* };
    (@out same $t:ident) => { $t };
    (@out bool $t:ident) => { u8 };
}
/// The remainder of the division whose quotient is truncated, as of C's `fmod`, which is exact.
trait TruncatedRem {
    fn truncated_rem(self, divisor: Self) -> Self;
}

impl TruncatedRem for f32 {
    #[inline(always)]
    fn truncated_rem(self, divisor: f32) -> f32 {
        /// Quotients below this are exact after truncation: the distance of a quotient of two numbers
        /// of 24 bits from an integer is at least 2^-24, more than the rounding error. The product with
        /// the divisor has at most 52 bits, and the difference fewer.
        const EXACT: f64 = (1u64 << 28) as f64;
        let (a, b) = (self as f64, divisor as f64);
        let quotient = (a / b).trunc();
        if quotient.abs() < EXACT && b.abs() < f64::INFINITY {
            return ((a - quotient * b) as f32).copysign(self);
        }
        self % divisor
    }
}

impl TruncatedRem for f64 {
    #[inline(always)]
    fn truncated_rem(self, divisor: f64) -> f64 {
        self % divisor
    }
}

binary_ops! {
    Add -> same { a, b: u8 u16 u32 u64 => a.wrapping_add(b); a, b: f32 f64 => a + b; }
    Sub -> same { a, b: u8 u16 u32 u64 => a.wrapping_sub(b); a, b: f32 f64 => a - b; }
    Mul -> same { a, b: u8 u16 u32 u64 => a.wrapping_mul(b); a, b: f32 f64 => a * b; }
    Div -> same { a, b: f32 f64 => a / b; }
    FloorDivide -> same {
        a, b: u8 u16 u32 u64 => a.checked_div(b).unwrap_or(0);
        a, b: i8 i16 i32 i64 => {
            // The divisor 0, whose quotient is 0, is replaced by 1.
            let d = if b == 0 { 1 } else { b };
            let q = a.wrapping_div(d);
            let down = (a.wrapping_rem(d) != 0) & ((a < 0) != (d < 0));
            if b == 0 { 0 } else { q.wrapping_sub(down.into()) }
        };
        a, b: f32 f64 => {
            let r = a.truncated_rem(b);
            let q = (a - r) / b;
            let q = if r != 0.0 && (b < 0.0) != (r < 0.0) { q - 1.0 } else { q };
            let down = q.floor();
            let near = if q - down > 0.5 { down + 1.0 } else { down };
            let near = if q == 0.0 { (q * 0.0).abs().copysign(a / b) } else { near };
            if b == 0.0 { a / b } else { near }
        };
    }
    Remainder -> same {
        a, b: u8 u16 u32 u64 => a.checked_rem(b).unwrap_or(0);
        a, b: i8 i16 i32 i64 => {
            let d = if b == 0 { 1 } else { b };
            let r = a.wrapping_rem(d);
            if b == 0 { 0 } else if (r != 0) & ((r < 0) != (d < 0)) { r + d } else { r }
        };
        a, b: f32 f64 => {
            let r = a.truncated_rem(b);
            let r = if r == 0.0 { r.abs().copysign(b) } else { r };
            if (b < 0.0) != (r < 0.0) && r != 0.0 { r + b } else { r }
        };
    }
    Fmod -> same {
        a, b: u8 u16 u32 u64 => a.checked_rem(b).unwrap_or(0);
        a, b: i8 i16 i32 i64 => {
            let d = if b == 0 { 1 } else { b };
            if b == 0 { 0 } else { a.wrapping_rem(d) }
        };
        a, b: f32 f64 => a.truncated_rem(b);
    }
    Pow -> same {
        a, b: u8 u16 u32 u64 => {
            let (mut base, mut e, mut r) = (a, b, 1);
            while e != 0 {
                r = if e & 1 == 1 { base.wrapping_mul(r) } else { r };
                base = base.wrapping_mul(base);
                e >>= 1;
            }
            r
        };
        a, b: i8 i16 i32 i64 => {
            let (mut base, mut e, mut r) = (a, if b < 0 { 0 } else { b }, 1);
            while e != 0 {
                r = if e & 1 == 1 { base.wrapping_mul(r) } else { r };
                base = base.wrapping_mul(base);
                e >>= 1;
            }
            let odd = b & 1 != 0;
            let inverse = if a == 1 || a == -1 && !odd { 1 } else if a == -1 { -1 } else { 0 };
            if b < 0 { inverse } else { r }
        };
        a, b: f32 => math::pow(a, b);
        a, b: f64 => wide::pow(a, b);
    }
    Maximum -> same {
        a, b: u8 u16 u32 u64 i8 i16 i32 i64 => if a > b { a } else { b };
        a, b: f32 f64 => {
            // Equal values differ at most in the sign of zero; the conjunction of bits is +0.
            let equal = BitPair::both(a, b);
            let r = if a > b { a } else { b };
            let r = if a == b { equal } else { r };
            if a.is_nan() | b.is_nan() { a + b } else { r }
        };
    }
    Minimum -> same {
        a, b: u8 u16 u32 u64 i8 i16 i32 i64 => if a < b { a } else { b };
        a, b: f32 f64 => {
            let equal = BitPair::either(a, b);
            let r = if a < b { a } else { b };
            let r = if a == b { equal } else { r };
            if a.is_nan() | b.is_nan() { a + b } else { r }
        };
    }
    Atan2 -> same { a, b: f32 => math::atan2(a, b); a, b: f64 => wide::atan2(a, b); }
    Hypot -> same {
        a, b: f32 => {
            // Squares of f32 are exact in f64 and in its range.
            let (x, y) = (a as f64, b as f64);
            let r = (x * x + y * y).sqrt() as f32;
            if a.is_infinite() | b.is_infinite() { f32::INFINITY } else { r }
        };
        a, b: f64 => girih_ir::complex::hypot(a, b);
    }
    Copysign -> same { a, b: f32 f64 => a.copysign(b); }
    Nextafter -> same {
        a, b: f32 => next_after!(f32, a, b);
        a, b: f64 => next_after!(f64, a, b);
    }
    Polygamma -> same {
        a, b: f32 => special::polygamma(a as f64, b as f64) as f32;
        a, b: f64 => special::polygamma(a, b);
    }
    Igamma -> same {
        a, b: f32 => special::igamma(a as f64, b as f64) as f32;
        a, b: f64 => special::igamma(a, b);
    }
    Igammac -> same {
        a, b: f32 => special::igammac(a as f64, b as f64) as f32;
        a, b: f64 => special::igammac(a, b);
    }
    IgammaGradA -> same {
        a, b: f32 => special::igamma_grad_a(a as f64, b as f64) as f32;
        a, b: f64 => special::igamma_grad_a(a, b);
    }
    ShiftLeft -> same {
        a, b: u8 u16 u32 u64 => if (b as u64) < bits(a) { a << b } else { 0 };
    }
    ShiftRight -> same {
        a, b: u8 u16 u32 u64 => if (b as u64) < bits(a) { a >> b } else { 0 };
        a, b: i8 i16 i32 i64 => {
            // A negative shift amount acts as a large amount.
            a >> (b as u64).min(bits(a) - 1)
        };
    }
    And -> same { a, b: u8 u16 u32 u64 => a & b; }
    Or -> same { a, b: u8 u16 u32 u64 => a | b; }
    Xor -> same { a, b: u8 u16 u32 u64 => a ^ b; }
    Eq -> bool { a, b: u8 u16 u32 u64 f32 f64 => (a == b) as u8; }
    Ne -> bool { a, b: u8 u16 u32 u64 f32 f64 => (a != b) as u8; }
    Lt -> bool { a, b: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 => (a < b) as u8; }
    Le -> bool { a, b: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 => (a <= b) as u8; }
    Gt -> bool { a, b: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 => (a > b) as u8; }
    Ge -> bool { a, b: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 => (a >= b) as u8; }
}

/// The loop of an elementwise op (not `Cast`) on operands of `dtype`; for `Where`, of the branches'
/// dtype. `None` if the op takes no such dtype.
pub(crate) fn op(code: OpCode, dtype: DType, isa: Isa) -> Option<BlockFn> {
    macro_rules! floats {
        ($map:ident $op:ident) => {
            match compute(dtype) {
                DType::F32 => select::<$map<$op, f32>>(isa),
                DType::F64 => select::<$map<$op, f64>>(isa),
                _ => return None,
            }
        };
    }
    // For integers, if the result does not depend on the sign.
    macro_rules! bits {
        ($map:ident $op:ident) => {
            match dtype {
                DType::Bool | DType::U8 | DType::I8 => select::<$map<$op, u8>>(isa),
                DType::U16 | DType::I16 => select::<$map<$op, u16>>(isa),
                DType::U32 | DType::I32 => select::<$map<$op, u32>>(isa),
                DType::U64 | DType::I64 => select::<$map<$op, u64>>(isa),
                _ => return None,
            }
        };
    }
    macro_rules! signed {
        ($map:ident $op:ident) => {
            match dtype {
                DType::I8 => select::<$map<$op, i8>>(isa),
                DType::I16 => select::<$map<$op, i16>>(isa),
                DType::I32 => select::<$map<$op, i32>>(isa),
                DType::I64 => select::<$map<$op, i64>>(isa),
                _ => return None,
            }
        };
    }
    macro_rules! integers {
        ($map:ident $op:ident) => {
            if dtype.is_signed() { signed!($map $op) } else { bits!($map $op) }
        };
    }
    macro_rules! numbers {
        ($map:ident $op:ident) => {
            if dtype.is_float() { floats!($map $op) } else { integers!($map $op) }
        };
    }
    macro_rules! wrapping {
        ($map:ident $op:ident) => {
            if dtype.is_float() { floats!($map $op) } else { bits!($map $op) }
        };
    }
    if dtype.is_complex() {
        return super::complex::op(code, dtype, isa);
    }
    use OpCode as C;
    Some(match code {
        // Halves are as in memory.
        C::Bitcast => match dtype.size() {
            2 => select::<Map1<Copy1, u16>>(isa),
            4 => select::<Map1<Copy1, u32>>(isa),
            _ => select::<Map1<Copy1, u64>>(isa),
        },
        C::Neg => wrapping!(Map1 Neg),
        C::Abs if dtype.is_float() => floats!(Map1 Abs),
        C::Abs if dtype.is_unsigned() => bits!(Map1 Copy1),
        C::Abs => signed!(Map1 Abs),
        C::Sign => numbers!(Map1 Sign),
        C::Floor | C::Ceil | C::Round | C::Trunc if !dtype.is_float() => bits!(Map1 Copy1),
        C::Floor => floats!(Map1 Floor),
        C::Ceil => floats!(Map1 Ceil),
        C::Round => floats!(Map1 Round),
        C::Trunc => floats!(Map1 Trunc),
        C::Exp => floats!(Map1 Exp),
        C::Expm1 => floats!(Map1 Expm1),
        C::Exp2 => floats!(Map1 Exp2),
        C::Log => floats!(Map1 Log),
        C::Log1p => floats!(Map1 Log1p),
        C::Log2 => floats!(Map1 Log2),
        C::Log10 => floats!(Map1 Log10),
        C::Sqrt => floats!(Map1 Sqrt),
        C::Rsqrt => floats!(Map1 Rsqrt),
        C::Sin => floats!(Map1 Sin),
        C::Cos => floats!(Map1 Cos),
        C::Tan => floats!(Map1 Tan),
        C::Asin => floats!(Map1 Asin),
        C::Acos => floats!(Map1 Acos),
        C::Atan => floats!(Map1 Atan),
        C::Sinh => floats!(Map1 Sinh),
        C::Cosh => floats!(Map1 Cosh),
        C::Tanh => floats!(Map1 Tanh),
        C::Asinh => floats!(Map1 Asinh),
        C::Acosh => floats!(Map1 Acosh),
        C::Atanh => floats!(Map1 Atanh),
        C::Erf => floats!(Map1 Erf),
        C::Erfc => floats!(Map1 Erfc),
        C::Erfinv => floats!(Map1 Erfinv),
        C::Lgamma => floats!(Map1 Lgamma),
        C::Digamma => floats!(Map1 Digamma),
        C::I0 => floats!(Map1 I0),
        C::I1 => floats!(Map1 I1),
        C::Not if dtype == DType::Bool => select::<Map1<NotBool, u8>>(isa),
        C::Not => bits!(Map1 Not),
        C::IsNan => floats!(Map1 IsNan),
        C::IsInf => floats!(Map1 IsInf),
        C::IsFinite => floats!(Map1 IsFinite),
        C::Signbit => floats!(Map1 Signbit),
        C::Add => wrapping!(Map2 Add),
        C::Sub => wrapping!(Map2 Sub),
        C::Mul => wrapping!(Map2 Mul),
        C::Div => floats!(Map2 Div),
        C::FloorDivide => numbers!(Map2 FloorDivide),
        C::Remainder => numbers!(Map2 Remainder),
        C::Fmod => numbers!(Map2 Fmod),
        C::Pow => numbers!(Map2 Pow),
        C::Maximum => numbers!(Map2 Maximum),
        C::Minimum => numbers!(Map2 Minimum),
        C::Atan2 => floats!(Map2 Atan2),
        C::Hypot => floats!(Map2 Hypot),
        C::Copysign => floats!(Map2 Copysign),
        C::Nextafter if is_half(dtype) => next_half(dtype),
        C::Nextafter => floats!(Map2 Nextafter),
        C::Polygamma => floats!(Map2 Polygamma),
        C::Igamma => floats!(Map2 Igamma),
        C::Igammac => floats!(Map2 Igammac),
        C::IgammaGradA => floats!(Map2 IgammaGradA),
        C::Complex => return super::complex::op(code, dtype, isa),
        C::ShiftLeft => bits!(Map2 ShiftLeft),
        C::ShiftRight => integers!(Map2 ShiftRight),
        C::And => bits!(Map2 And),
        C::Or => bits!(Map2 Or),
        C::Xor => bits!(Map2 Xor),
        C::Eq => wrapping!(Map2 Eq),
        C::Ne => wrapping!(Map2 Ne),
        C::Lt => numbers!(Map2 Lt),
        C::Le => numbers!(Map2 Le),
        C::Gt => numbers!(Map2 Gt),
        C::Ge => numbers!(Map2 Ge),
        C::Where => choose(compute(dtype).size(), isa),
        _ => return super::draws::op(code, isa),
    })
}

/// `Nextafter` of halves, which are f32 within a block: a step of the half's bits.
fn next_half(dtype: DType) -> BlockFn {
    struct F16;
    struct Bf16;
    macro_rules! step {
        ($name:ident $load:ident $store:ident) => {
            impl Binary<f32> for $name {
                type Out = f32;
                #[inline(always)]
                fn eval(a: f32, b: f32) -> f32 {
                    let (bits, up) = ($store(a), (b > a) == (a > 0.0));
                    let bits = if up { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
                    let tiny = $load(1).copysign(b);
                    let next = if a == 0.0 { tiny } else { $load(bits) };
                    let next = if a == b { b } else { next };
                    if a.is_nan() | b.is_nan() { a + b } else { next }
                }
            }
        };
    }
    step!(F16 f16_to_f32 f32_to_f16);
    step!(Bf16 bf16_to_f32 f32_to_bf16);
    match dtype {
        DType::F16 => select::<Map2<F16, f32>>(Isa::Baseline),
        _ => select::<Map2<Bf16, f32>>(Isa::Baseline),
    }
}

/// The approximate time of one element on one core with wide vectors, in picoseconds.
pub(crate) fn cost_ps(code: OpCode, dtype: DType) -> usize {
    let bytes = compute(dtype).size();
    let wide = dtype == DType::F64;
    match code.def().cost_on(dtype) {
        cost if dtype.is_complex() => super::complex::cost_ps(cost, dtype),
        Cost::Free | Cost::Arithmetic | Cost::Move | Cost::Lookup | Cost::Checked => 10 * bytes,
        Cost::Division => 50 * bytes,
        Cost::Remainder if dtype.is_float() => 8000,
        Cost::Remainder => 2000,
        Cost::Transcendental if !dtype.is_float() => 2000,
        Cost::Exponential | Cost::Transcendental if wide => 3000,
        Cost::Exponential => 300,
        Cost::Hypotenuse if wide => 8000,
        Cost::Transcendental | Cost::Hypotenuse => 1500,
        Cost::Random => 5000,
        Cost::Special => 50_000,
        Cost::Series => 200_000,
    }
}
