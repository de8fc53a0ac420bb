//! Complex numbers as block loops. Arithmetic is in the precision of the parts. Functions are those
//! of [`girih_ir::complex`] and are called for one number at a time, so these loops are compiled
//! for a single instruction-set level. Absolute values of `Complex<f32>` are an exception: they are
//! vectorised.

use super::isa::{BlockFn, Isa, Loop, select};
use super::ops::{Binary, Hypot, Map1, Map2, Unary, choose, slice, slice_mut};
use girih_ir::complex::{self, ComplexPart};
use girih_ir::ops::Cost;
use girih_ir::{DType, OpCode};
use num_complex::{Complex, Complex64};
use std::marker::PhantomData;

macro_rules! unary {
    ($($name:ident -> $out:ident, $z:ident => $body:expr;)*) => { $(
        struct $name;
        unary!(@each $name $out $z $body, f32 f64);
    )* };
    (@each $name:ident $out:ident $z:ident $body:expr, $($t:ident)*) => { $(
        impl Unary<Complex<$t>> for $name {
            type Out = unary!(@out $out $t);
            #[inline(always)]
            fn eval($z: Complex<$t>) -> Self::Out { $body }
        }
    )* };
    (@out complex $t:ident) => { Complex<$t> };
    (@out real $t:ident) => { $t };
    (@out bool $t:ident) => { u8 };
}
unary! {
    Neg -> complex, z => -z;
    Conj -> complex, z => z.conj();
    Real -> real, z => z.re;
    Imag -> real, z => z.im;
    ToBool -> bool, z => (z.re != 0.0 || z.im != 0.0) as u8;
}

struct Abs;
impl Unary<Complex<f32>> for Abs {
    type Out = f32;
    #[inline(always)]
    fn eval(z: Complex<f32>) -> f32 {
        Hypot::eval(z.re, z.im)
    }
}
impl Unary<Complex64> for Abs {
    type Out = f64;
    #[inline(always)]
    fn eval(z: Complex64) -> f64 {
        complex::abs(z)
    }
}

macro_rules! binary {
    ($($name:ident -> $out:ident, $a:ident $b:ident => $body:expr;)*) => { $(
        pub(super) struct $name;
        binary!(@each $name $out $a $b $body, f32 f64);
    )* };
    (@each $name:ident $out:ident $a:ident $b:ident $body:expr, $($t:ident)*) => { $(
        impl Binary<Complex<$t>> for $name {
            type Out = unary!(@out $out $t);
            #[inline(always)]
            fn eval($a: Complex<$t>, $b: Complex<$t>) -> Self::Out { $body }
        }
    )* };
}
binary! {
    Add -> complex, a b => a + b;
    Sub -> complex, a b => a - b;
    Mul -> complex, a b => a * b;
    Div -> complex, a b =>
        ComplexPart::narrow(complex::div(ComplexPart::widen(a), ComplexPart::widen(b)));
    Pow -> complex, a b =>
        ComplexPart::narrow(complex::pow(ComplexPart::widen(a), ComplexPart::widen(b)));
    Eq -> bool, a b => (a == b) as u8;
    Ne -> bool, a b => (a != b) as u8;
    // The product of reductions: starting from 1 preserves infinities and signs of zeros.
    Prod -> complex, a b => if is_one(a) { b } else if is_one(b) { a } else { a * b };
}

#[inline(always)]
fn is_one<T: ComplexPart>(z: Complex<T>) -> bool {
    let z = T::widen(z);
    z.re == 1.0 && z.im.to_bits() == 0
}

/// Joins a real and an imaginary part.
struct Join;
macro_rules! join {
    ($($t:ident)*) => { $(impl Binary<$t> for Join {
        type Out = Complex<$t>;
        #[inline(always)]
        fn eval(re: $t, im: $t) -> Complex<$t> {
            Complex::new(re, im)
        }
    })* };
}
join!(f32 f64);

/// Conversions between the complex types, and from the types of their parts.
struct Widen;
struct Narrow;
struct FromReal;
impl Unary<Complex<f32>> for Widen {
    type Out = Complex64;
    #[inline(always)]
    fn eval(z: Complex<f32>) -> Complex64 {
        ComplexPart::widen(z)
    }
}
impl Unary<Complex64> for Narrow {
    type Out = Complex<f32>;
    #[inline(always)]
    fn eval(z: Complex64) -> Complex<f32> {
        ComplexPart::narrow(z)
    }
}
impl Unary<f32> for FromReal {
    type Out = Complex<f32>;
    #[inline(always)]
    fn eval(x: f32) -> Complex<f32> {
        Complex::new(x, 0.0)
    }
}
impl Unary<f64> for FromReal {
    type Out = Complex64;
    #[inline(always)]
    fn eval(x: f64) -> Complex64 {
        Complex::new(x, 0.0)
    }
}

/// A function of `girih_ir::complex` as a type.
trait Function {
    fn eval(z: Complex64) -> Complex64;
}
struct Apply<F, T>(PhantomData<(F, T)>);
impl<F: Function, T: ComplexPart> Loop for Apply<F, T> {
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements, aligned and not overlapping, by the contract of `run`.
        let (out, a) = unsafe { (slice_mut::<Complex<T>>(out, n), slice::<Complex<T>>(a, n)) };
        for (o, &a) in out.iter_mut().zip(a) {
            *o = T::narrow(F::eval(T::widen(a)));
        }
    }
}

/// The loop of a function of one complex number.
fn function(code: OpCode, dtype: DType) -> Option<BlockFn> {
    macro_rules! table {
        ($($code:ident $function:ident)*) => {
            match code {
                $(OpCode::$code => {
                    struct F;
                    impl Function for F {
                        #[inline(always)]
                        fn eval(z: Complex64) -> Complex64 {
                            complex::$function(z)
                        }
                    }
                    match dtype {
                        DType::C64 => select::<Apply<F, f32>>(Isa::Baseline),
                        _ => select::<Apply<F, f64>>(Isa::Baseline),
                    }
                })*
                _ => return None,
            }
        };
    }
    Some(table! {
        Sign sign Exp exp Expm1 expm1 Exp2 exp2 Log log Log1p log1p Log2 log2 Log10 log10
        Sqrt sqrt Rsqrt rsqrt Sin sin Cos cos Tan tan Asin asin Acos acos Atan atan
        Sinh sinh Cosh cosh Tanh tanh Asinh asinh Acosh acosh Atanh atanh
    })
}

/// The loop of an elementwise op on complex operands; for `Complex`, on the parts.
pub(super) fn op(code: OpCode, dtype: DType, isa: Isa) -> Option<BlockFn> {
    macro_rules! of {
        ($map:ident $op:ident) => {
            match dtype {
                DType::C64 => select::<$map<$op, Complex<f32>>>(Isa::Baseline),
                DType::C128 => select::<$map<$op, Complex64>>(Isa::Baseline),
                _ => return None,
            }
        };
    }
    use OpCode as C;
    Some(match code {
        C::Neg => of!(Map1 Neg),
        C::Conj => of!(Map1 Conj),
        C::Real => of!(Map1 Real),
        C::Imag => of!(Map1 Imag),
        C::Abs if dtype == DType::C64 => select::<Map1<Abs, Complex<f32>>>(isa),
        C::Abs => of!(Map1 Abs),
        C::Add => of!(Map2 Add),
        C::Sub => of!(Map2 Sub),
        C::Mul => of!(Map2 Mul),
        C::Div => of!(Map2 Div),
        C::Pow => of!(Map2 Pow),
        C::Eq => of!(Map2 Eq),
        C::Ne => of!(Map2 Ne),
        C::Where => choose(dtype.size(), Isa::Baseline),
        C::Complex => match dtype {
            DType::F32 => select::<Map2<Join, f32>>(Isa::Baseline),
            DType::F64 => select::<Map2<Join, f64>>(Isa::Baseline),
            _ => return None,
        },
        code => return function(code, dtype),
    })
}

/// The loop of a conversion to or from a complex dtype. A real number must have the dtype of the
/// parts; a complex number cannot be converted to a real one, except to bool.
pub(super) fn cast(from: DType, to: DType) -> BlockFn {
    let isa = Isa::Baseline;
    match (from, to) {
        (DType::C64, DType::C128) => select::<Map1<Widen, Complex<f32>>>(isa),
        (DType::C128, DType::C64) => select::<Map1<Narrow, Complex64>>(isa),
        (DType::F32, DType::C64) => select::<Map1<FromReal, f32>>(isa),
        (DType::F64, DType::C128) => select::<Map1<FromReal, f64>>(isa),
        (DType::C64, DType::Bool) => select::<Map1<ToBool, Complex<f32>>>(isa),
        (DType::C128, DType::Bool) => select::<Map1<ToBool, Complex64>>(isa),
        _ => unreachable!("the graph's rules forbid a cast from {from} to {to}"),
    }
}

/// The approximate time of one element on one core, in picoseconds.
pub(super) fn cost_ps(cost: Cost, dtype: DType) -> usize {
    match cost {
        Cost::Free | Cost::Arithmetic | Cost::Move | Cost::Lookup | Cost::Checked => {
            20 * dtype.size()
        }
        Cost::Hypotenuse if dtype == DType::C64 => 500,
        Cost::Division | Cost::Hypotenuse => 4000,
        Cost::Exponential | Cost::Transcendental => 30_000,
        Cost::Special => 60_000,
        Cost::Remainder | Cost::Random | Cost::Series => {
            unreachable!("no op of this cost takes complex numbers")
        }
    }
}
