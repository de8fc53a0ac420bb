//! Conversions between compute types, and between the storage of halves and f32.
//!
//! Float to integer truncates and saturates, NaN to 0; integers wrap; anything to bool is
//! `x != 0`. Halves round to nearest even, from f64 and from wide integers in one rounding.

use super::isa::{BlockFn, Isa, Loop, select};
use girih_ir::DType;
use std::marker::PhantomData;

/// The dtype in which a value of `dtype` is computed: f32 for halves.
pub(crate) fn compute(dtype: DType) -> DType {
    if is_half(dtype) { DType::F32 } else { dtype }
}

/// True for the dtypes stored in 16 bits and computed in f32.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// f16 bits to f32, exact.
#[inline(always)]
pub(crate) fn f16_to_f32(h: u16) -> f32 {
    let sign = ((h & 0x8000) as u32) << 16;
    let magnitude = ((h & 0x7fff) as u32) << 13;
    // The exponent is rebiased by a product, which also normalises subnormals.
    let finite = f32::from_bits(magnitude) * f32::from_bits(0x7780_0000); // 2^112
    let bits = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite.to_bits() };
    f32::from_bits(bits | sign)
}

/// f32 to f16 bits, rounded to nearest even. After F. Giesen, "float to half", the branch-free
/// variant.
#[inline(always)]
pub(crate) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let a = bits & 0x7fff_ffff;
    // Subnormal results: adding 1/2 aligns the mantissa so that the FPU rounds it.
    let subnormal = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let odd = (a >> 13) & 1;
    let normal = a.wrapping_add(0xc800_0fff).wrapping_add(odd) >> 13;
    let r = if a < 0x3880_0000 { subnormal } else { normal };
    let r = if a >= 0x4780_0000 { 0x7c00 } else { r };
    let r = if a > 0x7f80_0000 { 0x7e00 } else { r };
    (r | sign) as u16
}

/// bf16 bits to f32, exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits((h as u32) << 16)
}

/// f32 to bf16 bits, rounded to nearest even.
#[inline(always)]
pub(crate) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { nan } else { rounded }) as u16
}

/// f64 to f32 rounded to odd, so that a following rounding to a half has the result of a single
/// rounding.
#[inline(always)]
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let bits = near.to_bits();
    let wide = near as f64;
    let toward_zero = if wide.abs() > x.abs() { bits.wrapping_sub(1) } else { bits };
    f32::from_bits(if wide == x || x.is_nan() { bits } else { toward_zero | 1 })
}

/// A conversion of one element.
trait Convert<A> {
    type Out: Copy;
    fn convert(x: A) -> Self::Out;
}

struct Each<C, A>(PhantomData<(C, A)>);
impl<A: Copy, C: Convert<A>> Loop for Each<C, A> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, a: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements, aligned and not overlapping, by the contract of `run`.
        let (out, a) = unsafe {
            (
                std::slice::from_raw_parts_mut(out as *mut C::Out, n),
                std::slice::from_raw_parts(a as *const A, n),
            )
        };
        for (o, &a) in out.iter_mut().zip(a) {
            *o = C::convert(a);
        }
    }
}

macro_rules! conversion {
    ($name:ident: $a:ty => $b:ty, $f:expr) => {
        struct $name;
        impl Convert<$a> for $name {
            type Out = $b;
            #[inline(always)]
            fn convert(x: $a) -> $b {
                $f(x)
            }
        }
    };
}
conversion!(LoadF16: u16 => f32, f16_to_f32);
conversion!(LoadBf16: u16 => f32, bf16_to_f32);
conversion!(StoreF16: f32 => u16, f32_to_f16);
conversion!(StoreBf16: f32 => u16, f32_to_bf16);
conversion!(RoundF16: f32 => f32, |x| f16_to_f32(f32_to_f16(x)));
conversion!(RoundBf16: f32 => f32, |x| bf16_to_f32(f32_to_bf16(x)));
conversion!(OddF64: f64 => f32, to_odd);
conversion!(OddI64: i64 => f32, |x| to_odd(x as f64));
conversion!(OddI32: i32 => f32, |x| to_odd(x as f64));
conversion!(OddU64: u64 => f32, |x| to_odd(x as f64));
conversion!(OddU32: u32 => f32, |x| to_odd(x as f64));
conversion!(DownF16: f32 => f32, |x: f32| f16_to_f32(f32_to_f16_down(x)));
conversion!(DownBf16: f32 => f32, |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000));

/// f32 in `[0, 1)` to f16 bits, rounded down.
#[inline(always)]
fn f32_to_f16_down(x: f32) -> u16 {
    let near = f32_to_f16(x);
    if f16_to_f32(near) > x { near.wrapping_sub(1) } else { near }
}

/// The loop that converts a half in storage to f32.
pub(crate) fn load_half(dtype: DType, isa: Isa) -> BlockFn {
    match dtype {
        DType::F16 => select::<Each<LoadF16, u16>>(isa),
        _ => select::<Each<LoadBf16, u16>>(isa),
    }
}

/// The loop that converts f32 to a half in storage.
pub(crate) fn store_half(dtype: DType, isa: Isa) -> BlockFn {
    match dtype {
        DType::F16 => select::<Each<StoreF16, f32>>(isa),
        _ => select::<Each<StoreBf16, f32>>(isa),
    }
}

/// The loop that rounds f32 to the nearest value of a half; the result is still f32.
pub(crate) fn round_half(dtype: DType, isa: Isa) -> BlockFn {
    match dtype {
        DType::F16 => select::<Each<RoundF16, f32>>(isa),
        _ => select::<Each<RoundBf16, f32>>(isa),
    }
}

/// The loop that rounds f32 in `[0, 1)` to the next lower value of a half; the result is still f32.
pub(crate) fn round_half_down(dtype: DType, isa: Isa) -> BlockFn {
    match dtype {
        DType::F16 => select::<Each<DownF16, f32>>(isa),
        _ => select::<Each<DownBf16, f32>>(isa),
    }
}

struct As<B>(PhantomData<B>);
struct ToBool;
macro_rules! casts {
    ($($a:ty => $($b:ty)*;)*) => { $(
        $(impl Convert<$a> for As<$b> {
            type Out = $b;
            #[inline(always)]
            fn convert(x: $a) -> $b {
                x as $b
            }
        })*
        impl Convert<$a> for ToBool {
            type Out = u8;
            #[inline(always)]
            fn convert(x: $a) -> u8 {
                (x != 0 as $a) as u8
            }
        }
    )* };
}
// For casts from integers, the result's bits do not depend on the signedness of the target.
casts! {
    u8 => u8 u16 u32 u64 f32 f64;
    u16 => u8 u16 u32 u64 f32 f64;
    u32 => u8 u16 u32 u64 f32 f64;
    u64 => u8 u16 u32 u64 f32 f64;
    i8 => u8 u16 u32 u64 f32 f64;
    i16 => u8 u16 u32 u64 f32 f64;
    i32 => u8 u16 u32 u64 f32 f64;
    i64 => u8 u16 u32 u64 f32 f64;
    f32 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
    f64 => u8 u16 u32 u64 i8 i16 i32 i64 f32 f64;
}

fn from_integer<A>(to: DType, isa: Isa) -> BlockFn
where
    A: Copy,
    ToBool: Convert<A>,
    As<u8>: Convert<A>,
    As<u16>: Convert<A>,
    As<u32>: Convert<A>,
    As<u64>: Convert<A>,
    As<f32>: Convert<A>,
    As<f64>: Convert<A>,
{
    match to {
        DType::Bool => select::<Each<ToBool, A>>(isa),
        DType::U8 | DType::I8 => select::<Each<As<u8>, A>>(isa),
        DType::U16 | DType::I16 => select::<Each<As<u16>, A>>(isa),
        DType::U32 | DType::I32 => select::<Each<As<u32>, A>>(isa),
        DType::U64 | DType::I64 => select::<Each<As<u64>, A>>(isa),
        DType::F64 => select::<Each<As<f64>, A>>(isa),
        _ => select::<Each<As<f32>, A>>(isa),
    }
}

fn from_float<A>(to: DType, isa: Isa) -> BlockFn
where
    A: Copy,
    ToBool: Convert<A>,
    As<u8>: Convert<A>,
    As<u16>: Convert<A>,
    As<u32>: Convert<A>,
    As<u64>: Convert<A>,
    As<i8>: Convert<A>,
    As<i16>: Convert<A>,
    As<i32>: Convert<A>,
    As<i64>: Convert<A>,
    As<f32>: Convert<A>,
    As<f64>: Convert<A>,
{
    match to {
        DType::Bool => select::<Each<ToBool, A>>(isa),
        DType::U8 => select::<Each<As<u8>, A>>(isa),
        DType::U16 => select::<Each<As<u16>, A>>(isa),
        DType::U32 => select::<Each<As<u32>, A>>(isa),
        DType::U64 => select::<Each<As<u64>, A>>(isa),
        DType::I8 => select::<Each<As<i8>, A>>(isa),
        DType::I16 => select::<Each<As<i16>, A>>(isa),
        DType::I32 => select::<Each<As<i32>, A>>(isa),
        DType::I64 => select::<Each<As<i64>, A>>(isa),
        DType::F64 => select::<Each<As<f64>, A>>(isa),
        _ => select::<Each<As<f32>, A>>(isa),
    }
}

/// The conversion between compute types. For a half, the result still needs [`round_half`]; for a
/// complex dtype, a real number is first converted to the dtype of the parts.
pub(crate) fn cast(from: DType, to: DType, isa: Isa) -> BlockFn {
    if from.is_complex() || to.is_complex() {
        return super::complex::cast(from, to);
    }
    match (from, is_half(to)) {
        (DType::F64, true) => return select::<Each<OddF64, f64>>(isa),
        (DType::I64, true) => return select::<Each<OddI64, i64>>(isa),
        (DType::U64, true) => return select::<Each<OddU64, u64>>(isa),
        (DType::I32, true) => return select::<Each<OddI32, i32>>(isa),
        (DType::U32, true) => return select::<Each<OddU32, u32>>(isa),
        _ => {}
    }
    match compute(from) {
        DType::Bool | DType::U8 => from_integer::<u8>(to, isa),
        DType::U16 => from_integer::<u16>(to, isa),
        DType::U32 => from_integer::<u32>(to, isa),
        DType::U64 => from_integer::<u64>(to, isa),
        DType::I8 => from_integer::<i8>(to, isa),
        DType::I16 => from_integer::<i16>(to, isa),
        DType::I32 => from_integer::<i32>(to, isa),
        DType::I64 => from_integer::<i64>(to, isa),
        DType::F64 => from_float::<f64>(to, isa),
        _ => from_float::<f32>(to, isa),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn halves_convert_as_the_half_crate_does() {
        for h in 0..=u16::MAX {
            let want = f16::from_bits(h).to_f32();
            let got = f16_to_f32(h);
            assert!(got == want || got.is_nan() && want.is_nan(), "{h:#x}");
            if !want.is_nan() {
                assert_eq!(f32_to_f16(want), h);
            }
            if !bf16::from_bits(h).is_nan() {
                assert_eq!(f32_to_bf16(bf16::from_bits(h).to_f32()), h);
            }
        }
        for i in (0..u32::MAX - 5003).step_by(5003) {
            let x = f32::from_bits(i);
            if !x.is_nan() {
                assert_eq!(f32_to_f16(x), f16::from_f32(x).to_bits(), "{x:?}");
                assert_eq!(f32_to_bf16(x), bf16::from_f32(x).to_bits(), "{x:?}");
            }
        }
    }

    #[test]
    fn f64_rounds_to_halves_once() {
        // Just above a tie of f16: rounding to f32 first would lose the excess.
        let tie = 1.0 + 2f64.powi(-11);
        assert_eq!(f32_to_f16(to_odd(tie + 2f64.powi(-40))), 0x3c01);
        assert_eq!(f32_to_f16(to_odd(tie)), 0x3c00);
        assert_eq!(f32_to_f16(to_odd(-tie - 2f64.powi(-40))), 0xbc01);
        assert_eq!(to_odd(f64::MAX), f32::MAX);
        assert!(to_odd(f64::NAN).is_nan() && to_odd(f64::INFINITY) == f32::INFINITY);
    }
}
