//! `exp`, `exp2`, `expm1` and the hyperbolic functions.

use super::double;
use super::lanes::{Bits, Float, horner};

/// Adding this to an f32 rounds it to an integer, held in the sum's low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// `2^k` of `-126 <= k <= 127`.
#[inline(always)]
fn pow2<F: Float>(k: F::Bits) -> F {
    k.plus(F::Bits::of(127)).left(23).as_float()
}

/// `e^x`, within 1 ulp. Coefficients: Cephes `expf` (Moshier).
#[inline(always)]
pub fn exp<F: Float>(x: F) -> F {
    let c = F::of;
    // Beyond these the result is 0 or infinite; comparisons written so that NaN stays.
    let x = F::select(c(89.0).less(x), c(89.0), x);
    let x = F::select(x.less(c(-105.0)), c(-105.0), x);
    let t = x * c(std::f32::consts::LOG2_E) + c(ROUND);
    let k = t - c(ROUND);
    let r = (x - k * c(0.693_359_375)) - k * c(-2.121_944_4e-4);
    let p = horner(
        r,
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5],
    );
    let y = p * (r * r) + r + c(1.0);
    // Two factors, so that neither leaves the normal range and only the last product rounds.
    let k = t.to_bits().minus(F::Bits::of(ROUND.to_bits() as i32));
    let half = k.right(1);
    y * pow2(half) * pow2(k.minus(half))
}

/// `2^x`.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = x as f64;
    let x = if x > 200.0 { 200.0 } else { x };
    let x = if x < -200.0 { -200.0 } else { x };
    let t = x + double::ROUND;
    let r = (x - (t - double::ROUND)) * std::f64::consts::LN_2;
    let s = double::pow2(t);
    (s + s * double::expm1_reduced(r)) as f32
}

/// `e^x - 1`, accurate near zero.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let d = x as f64;
    let d = if d > 200.0 { 200.0 } else { d };
    let d = if d < -200.0 { -200.0 } else { d };
    let y = double::expm1(d) as f32;
    if x == 0.0 { x } else { y }
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let a = x.abs() as f64;
    let a = if a > 200.0 { 200.0 } else { a };
    let m = double::expm1(a);
    ((0.5 * (m + m / (m + 1.0))) as f32).copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let a = x.abs() as f64;
    let a = if a > 200.0 { 200.0 } else { a };
    let e = double::exp(a);
    (0.5 * (e + 1.0 / e)) as f32
}

/// Hyperbolic tangent: an odd polynomial up to 0.625 (Cephes `tanhf`), beyond it
/// `1 - 2 / (e^2x + 1)`.
#[inline(always)]
pub fn tanh<F: Float>(x: F) -> F {
    let c = F::of;
    let a = x.abs();
    let z = a * a;
    let p = horner(
        z,
        [-5.704_988_7e-3, 2.063_908_9e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328_2e-1],
    );
    let near = (p * z) * a + a;
    let far = c(1.0) - c(2.0) / (exp(a + a) + c(1.0));
    F::select(a.less(c(0.625)), near, far).copysign(x)
}
