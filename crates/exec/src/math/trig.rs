//! Sine, cosine and tangent.
//!
//! Up to `|x| = 2^20` the argument is reduced by two-part multiples of pi/2 in f64, branch-free.
//! Beyond that, the leading bits of `x * 2/pi` are taken from a 224-bit expansion of 2/pi (Payne
//! and Hanek 1983), one element at a time: loops compute all elements the fast way, and then
//! recompute the few for which [`is_large`] is true.

use super::double::{ROUND, cos_reduced, reduce_quadrant, sin_reduced};
use super::lanes::{Bits, Double, Float, Single};
use std::f64::consts::FRAC_PI_2;

/// The largest argument of the fast reduction.
const LARGE: f32 = 1_048_576.0;

/// Whether the argument is too large for the fast reduction, which handles infinities and NaN.
#[inline(always)]
pub fn is_large<F: Single>(x: F) -> F::Mask {
    use super::lanes::Mask;
    F::of(LARGE).less(x.abs()).and(x.abs().less(F::of(f32::INFINITY)))
}

/// Sine of an angle of `quadrant * pi/2 + r`.
#[inline(always)]
fn sin_in<D: Double>(quadrant: D::Bits, r: D) -> D {
    let bits = D::Bits::of;
    let even = quadrant.and(bits(1)).is_zero();
    let y = D::select(even, sin_reduced(r), cos_reduced(r));
    D::select(quadrant.and(bits(2)).is_zero(), y, -y)
}

/// Tangent of an angle of `quadrant * pi/2 + r`.
#[inline(always)]
fn tan_in<D: Double>(quadrant: D::Bits, r: D) -> D {
    let (s, c) = (sin_reduced(r), cos_reduced(r));
    let even = quadrant.and(D::Bits::of(1)).is_zero();
    D::select(even, s, -c) / D::select(even, c, s)
}

/// `y`; NaN if `x` is infinite.
#[inline(always)]
fn of_finite<F: Single>(x: F, y: F::Wide) -> F {
    F::select(x.abs().less(F::of(f32::INFINITY)), y.narrow(), F::of(f32::NAN))
}

/// `sin(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn sin_fast<F: Single>(x: F) -> F {
    let (q, r) = reduce_quadrant(x.widen());
    of_finite(x, sin_in(q, r))
}

/// `cos(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn cos_fast<F: Single>(x: F) -> F {
    let (q, r) = reduce_quadrant(x.widen());
    of_finite(x, sin_in(q.plus(<F::Wide as Float>::Bits::of(1)), r))
}

/// `tan(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn tan_fast<F: Single>(x: F) -> F {
    let (q, r) = reduce_quadrant(x.widen());
    of_finite(x, tan_in(q, r))
}

/// Sine and cosine of `2 pi u`, `0 <= u < 1`, in f64.
#[inline(always)]
pub(crate) fn sincos_turns(u: f64) -> (f64, f64) {
    let t = u * 4.0 + ROUND;
    let r = (u * 4.0 - (t - ROUND)) * FRAC_PI_2;
    let (s, c, q) = (sin_reduced(r), cos_reduced(r), t.to_bits());
    let (a, b) = if q & 1 != 0 { (c, s) } else { (s, c) };
    let sin = if q & 2 != 0 { -a } else { a };
    let cos = if q.wrapping_add(1) & 2 != 0 { -b } else { b };
    (sin, cos)
}

/// The reduction of a large argument: the fraction of `x * 2/pi` from three words of 2/pi.
fn reduce_large(x: f32) -> (i64, f64) {
    const TWO_OVER_PI: [u32; 8] = [
        0,
        0xa2f9_836e,
        0x4e44_1529,
        0xfc27_57d1,
        0xf534_ddc0,
        0xdb62_9599,
        0x3c43_9041,
        0xfe51_63ab,
    ];
    let bits = x.to_bits();
    let mantissa = ((bits & 0x007f_ffff) | 0x0080_0000) as u64;
    // x = mantissa * 2^e, e = biased - 150. Bits of 2/pi worth 4 or more in the product with 2^e
    // are dropped (multiples of a full turn); the 96 that follow give the quadrant and 62 bits of
    // fraction. Bit i of the table is worth 2^(31 - i), so the window starts at bit 30 + e.
    let start = (bits >> 23 & 0xff) as usize - 120;
    let word = |i: usize| -> u64 {
        let (w, s) = ((start + 32 * i) / 32, (start + 32 * i) % 32);
        let pair =
            (TWO_OVER_PI[w] as u64) << 32 | TWO_OVER_PI.get(w + 1).copied().unwrap_or(0) as u64;
        (pair << s) >> 32
    };
    // Fixed point with 62 fraction bits. Bits that overflow are full turns.
    let high = mantissa.wrapping_mul(word(0)) << 32;
    let product = high.wrapping_add(mantissa * word(1)).wrapping_add((mantissa * word(2)) >> 32);
    let quadrant = product.wrapping_add(1 << 61) >> 62;
    let fraction = product.wrapping_sub(quadrant << 62) as i64;
    let r = fraction as f64 * (FRAC_PI_2 / (1u64 << 62) as f64);
    let quadrant = quadrant as i64;
    if x < 0.0 { (-quadrant, -r) } else { (quadrant, r) }
}

/// Sine, for all arguments.
pub fn sin(x: f32) -> f32 {
    if !is_large(x) {
        return sin_fast(x);
    }
    let (q, r) = reduce_large(x);
    sin_in(q, r) as f32
}

/// Cosine, for all arguments.
pub fn cos(x: f32) -> f32 {
    if !is_large(x) {
        return cos_fast(x);
    }
    let (q, r) = reduce_large(x);
    sin_in(q.wrapping_add(1), r) as f32
}

/// Tangent, for all arguments.
pub fn tan(x: f32) -> f32 {
    if !is_large(x) {
        return tan_fast(x);
    }
    let (q, r) = reduce_large(x);
    tan_in(q, r) as f32
}
