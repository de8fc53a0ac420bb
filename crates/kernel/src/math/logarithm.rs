//! Logarithms and the power function.

use super::double;
use super::lanes::{Bits, Float, horner};

/// Natural logarithm, within 1 ulp. Coefficients: Cephes `logf` (Moshier).
#[inline(always)]
pub fn log<F: Float>(x: F) -> F {
    const SQRT_HALF: i32 = 0x3f35_04f3;
    let (c, bits) = (F::of, F::Bits::of);
    let tiny = x.less(c(f32::MIN_POSITIVE));
    let scaled = F::select(tiny, x * c(8_388_608.0), x);
    let shifted = scaled.to_bits().minus(bits(SQRT_HALF));
    let e = shifted.right(23).to_float() - F::select(tiny, c(23.0), c(0.0));
    let f = shifted.and(bits(0x007f_ffff)).plus(bits(SQRT_HALF)).as_float() - c(1.0);
    let z = f * f;
    let p = horner(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333_1e-1,
        ],
    );
    let y = (p * f) * z + e * c(-2.121_944_4e-4) - c(0.5) * z;
    let y = (f + y) + e * c(0.693_359_375);
    edges(x, y)
}

/// `y`, but for the arguments whose logarithm is infinite or none.
#[inline(always)]
fn edges<F: Float>(x: F, y: F) -> F {
    let c = F::of;
    let y = F::select(c(0.0).less(x), y, c(f32::NAN));
    let y = F::select(x.equal(c(0.0)), c(f32::NEG_INFINITY), y);
    F::select(x.equal(c(f32::INFINITY)), x, y)
}

/// Binary logarithm; exact for powers of two.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    edges(x, double::log2(x as f64) as f32)
}

/// Decimal logarithm.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    edges(x, (double::log(x as f64) * std::f64::consts::LOG10_E) as f32)
}

/// `log(1 + x)`, accurate near zero.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let y = double::log1p(x as f64) as f32;
    let y = if x > -1.0 { y } else { f32::NAN };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    let y = if x == f32::INFINITY { x } else { y };
    if x == 0.0 { x } else { y }
}

/// `x^y`, with C99's special cases: `pow(x, 0)` and `pow(1, y)` are 1 even for NaN.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let log = double::log(a as f64);
    let log = if a == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if a == f32::INFINITY { f64::INFINITY } else { log };
    let t = y as f64 * log;
    let t = if t > 200.0 { 200.0 } else { t };
    let t = if t < -200.0 { -200.0 } else { t };
    let r = double::exp(t) as f32;
    let r = if a == 1.0 { 1.0 } else { r };
    // From 2^24 on every f32 is an even integer, and saturating keeps i32::MAX out of play.
    let small = y.abs() < 16_777_216.0;
    let n = (if small { y } else { 0.0 }) as i32;
    let integer = !small || n as f32 == y;
    let negative = x.is_sign_negative();
    let r = if negative && n & 1 != 0 && integer { -r } else { r };
    let r = if x < 0.0 && a != f32::INFINITY && !integer { f32::NAN } else { r };
    let r = if x.is_nan() || y.is_nan() { x + y } else { r };
    if y == 0.0 || x == 1.0 { 1.0 } else { r }
}
