//! Sine, cosine and tangent of f64.
//!
//! Up to `|x| = 2^20` the argument is reduced by multiples of pi/2 in four parts, branch-free, to
//! the sum of two f64. Beyond that, the relevant bits of `x * 2/pi` are taken from a long expansion
//! of 2/pi (Payne and Hanek 1983), one element at a time.

use super::super::lanes::{Bits, Double, Mask, poly};
use super::ROUND;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// Whether the argument is too large for the fast reduction, which handles infinities and NaN.
#[inline(always)]
pub fn is_large<D: Double>(x: D) -> D::Mask {
    let a = x.abs();
    D::of(1_048_576.0).less(a).and(a.less(D::of(f64::INFINITY)))
}

/// `(difference, its rounding error)` of `a - b`.
#[inline(always)]
fn two_minus<D: Double>(a: D, b: D) -> (D, D) {
    let d = a - b;
    let t = d - a;
    (d, (a - (d - t)) - (b + t))
}

/// `(quadrant, r, tail)` with `x = quadrant * pi/2 + r + tail`, `|r| <= pi/4`; the quadrant is in
/// the low two bits. Takes `|x| <= 2^20`.
#[inline(always)]
fn reduce<D: Double>(x: D) -> (D::Bits, D, D) {
    // Of 33 bits each: multiples up to 2^20 are exact.
    const FIRST: f64 = 1.5707963267341256;
    const SECOND: f64 = 6.077100506303966e-11;
    const THIRD: f64 = 2.0222662487111665e-21;
    const REST: f64 = 8.4784276603689e-32;
    let c = D::of;
    let t = x * c(FRAC_2_PI) + c(ROUND);
    let n = t - c(ROUND);
    let (r, lost) = two_minus(x - n * c(FIRST), n * c(SECOND));
    let (r, more) = two_minus(r, n * c(THIRD));
    let tail = (lost + more) - n * c(REST);
    let y = r + tail;
    (t.to_bits(), y, (r - y) + tail)
}

/// `sin(r + tail)`.
#[inline(always)]
fn sin_reduced<D: Double>(r: D, tail: D) -> D {
    const FIRST: f64 = -1.66666666666666324348e-01;
    const S: [f64; 5] = [
        8.33333333332248946124e-03,
        -1.98412698298579493134e-04,
        2.75573137070700676789e-06,
        -2.50507602534068634195e-08,
        1.58969099521155010221e-10,
    ];
    let c = D::of;
    let z = r * r;
    let v = z * r;
    r - ((z * (c(0.5) * tail - v * poly(z, S)) - tail) - v * c(FIRST))
}

/// `cos(r + tail)`.
#[inline(always)]
fn cos_reduced<D: Double>(r: D, tail: D) -> D {
    const C: [f64; 6] = [
        4.16666666666666019037e-02,
        -1.38888888888741095749e-03,
        2.48015872894767294178e-05,
        -2.75573143513906633035e-07,
        2.08757232129817482790e-09,
        -1.13596475577881948265e-11,
    ];
    let c = D::of;
    let z = r * r;
    let half = c(0.5) * z;
    let w = c(1.0) - half;
    w + (((c(1.0) - w) - half) + (z * (z * poly(z, C)) - r * tail))
}

/// Sine of `quadrant * pi/2 + r + tail`.
#[inline(always)]
fn sin_in<D: Double>(quadrant: D::Bits, r: D, tail: D) -> D {
    let bits = D::Bits::of;
    let even = quadrant.and(bits(1)).is_zero();
    let y = D::select(even, sin_reduced(r, tail), cos_reduced(r, tail));
    D::select(quadrant.and(bits(2)).is_zero(), y, -y)
}

/// Tangent of `quadrant * pi/2 + r + tail`.
#[inline(always)]
fn tan_in<D: Double>(quadrant: D::Bits, r: D, tail: D) -> D {
    let (s, c) = (sin_reduced(r, tail), cos_reduced(r, tail));
    let even = quadrant.and(D::Bits::of(1)).is_zero();
    D::select(even, s, -c) / D::select(even, c, s)
}

/// `y`; NaN if `x` is infinite. A zero is preserved.
#[inline(always)]
fn of_finite<D: Double>(x: D, y: D) -> D {
    D::select(x.abs().less(D::of(f64::INFINITY)), y, D::of(f64::NAN))
}

/// `sin(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn sin_fast<D: Double>(x: D) -> D {
    let (q, r, tail) = reduce(x);
    D::select(x.equal(D::of(0.0)), x, of_finite(x, sin_in(q, r, tail)))
}

/// `cos(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn cos_fast<D: Double>(x: D) -> D {
    let (q, r, tail) = reduce(x);
    of_finite(x, sin_in(q.plus(D::Bits::of(1)), r, tail))
}

/// `tan(x)` unless [`is_large`]; NaN for infinities.
#[inline(always)]
pub fn tan_fast<D: Double>(x: D) -> D {
    let (q, r, tail) = reduce(x);
    D::select(x.equal(D::of(0.0)), x, of_finite(x, tan_in(q, r, tail)))
}

/// The reduction of a large argument.
fn reduce_large(x: f64) -> (i64, f64, f64) {
    const TWO_OVER_PI: [u64; 20] = [
        0x0000000000000000,
        0xa2f9836e4e441529,
        0xfc2757d1f534ddc0,
        0xdb6295993c439041,
        0xfe5163abdebbc561,
        0xb7246e3a424dd2e0,
        0x06492eea09d1921c,
        0xfe1deb1cb129a73e,
        0xe88235f52ebb4484,
        0xe99c7026b45f7e41,
        0x3991d639835339f4,
        0x9c845f8bbdf9283b,
        0x1ff897ffde05980f,
        0xef2f118b5a0a6d1f,
        0x6d367ecf27cb09b7,
        0x4f463f669e5fea2d,
        0x7527bac7ebe5f17b,
        0x3d0739f78a5292ea,
        0x6bfb5fb11f8d5d08,
        0x56033046fc7b6bab,
    ];
    const PI_2_LO: f64 = 6.12323399573676603587e-17;
    let bits = x.to_bits();
    let mantissa = ((bits & 0x000f_ffff_ffff_ffff) | 0x0010_0000_0000_0000) as u128;
    // x = mantissa * 2^e, e = biased - 1075. Bits of 2/pi worth 4 or more in the product with 2^e
    // are dropped (multiples of a full turn); the 192 that follow give the quadrant and 190 bits of
    // fraction. The first of them is worth 2^(1 - e), which is bit e - 2 after the point; the table
    // has 64 zeros before it.
    let start = (bits >> 52 & 0x7ff) as usize + 62 - 1075;
    let word = |i: usize| -> u128 {
        let at = start + 64 * i;
        let pair = (TWO_OVER_PI[at / 64] as u128) << 64 | TWO_OVER_PI[at / 64 + 1] as u128;
        pair >> (64 - at % 64) & u64::MAX as u128
    };
    // Fixed point with 190 fraction bits, in words of 64; overflow is full turns.
    let low = mantissa * word(2);
    let middle = mantissa * word(1) + (low >> 64);
    let high = (mantissa * word(0) + (middle >> 64)) as u64;
    let upper = (high as u128) << 64 | (middle & u64::MAX as u128);
    let quadrant = upper.wrapping_add(1 << 125) >> 126;
    let fraction = upper.wrapping_sub(quadrant << 126) as i128;
    // The bits beyond these 128 are negligible even after 2^-62 of cancellation.
    let negative = fraction < 0;
    let magnitude = fraction.unsigned_abs();
    let head = magnitude as f64;
    let rest = magnitude.wrapping_sub(head as u128) as i128 as f64;
    let scale = 1.0 / (1u128 << 126) as f64;
    let (head, rest) = (head * scale, rest * scale);
    // The product with pi/2 in two parts.
    let upper = |v: f64| f64::from_bits(v.to_bits() & !0x7ff_ffff);
    let y = head * FRAC_PI_2;
    let (a, b) = (upper(head), upper(FRAC_PI_2));
    let (c, d) = (head - a, FRAC_PI_2 - b);
    let lost = ((a * b - y) + a * d + c * b) + c * d;
    let tail = lost + rest * FRAC_PI_2 + head * PI_2_LO;
    let (r, tail) = (y + tail, (y - (y + tail)) + tail);
    let quadrant = if x < 0.0 { -(quadrant as i64) } else { quadrant as i64 };
    match negative ^ (x < 0.0) {
        true => (quadrant, -r, -tail),
        false => (quadrant, r, tail),
    }
}

/// Sine, for all arguments.
pub fn sin(x: f64) -> f64 {
    if !is_large(x) {
        return sin_fast(x);
    }
    let (q, r, tail) = reduce_large(x);
    sin_in(q, r, tail)
}

/// Cosine, for all arguments.
pub fn cos(x: f64) -> f64 {
    if !is_large(x) {
        return cos_fast(x);
    }
    let (q, r, tail) = reduce_large(x);
    sin_in(q.wrapping_add(1), r, tail)
}

/// Tangent, for all arguments.
pub fn tan(x: f64) -> f64 {
    if !is_large(x) {
        return tan_fast(x);
    }
    let (q, r, tail) = reduce_large(x);
    tan_in(q, r, tail)
}
