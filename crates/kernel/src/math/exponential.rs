//! `exp`, `exp2`, `expm1` and the hyperbolic functions.

use super::double;

/// Adding this to an f32 rounds it to an integer, held in the sum's low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23

/// `2^k` of `-126 <= k <= 127`.
#[inline(always)]
fn pow2(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}

/// `e^x`, within 1 ulp. Coefficients: Cephes `expf` (Moshier).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these the result is 0 or infinite; comparisons written so that NaN stays.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -105.0 { -105.0 } else { x };
    let t = x * std::f32::consts::LOG2_E + ROUND;
    let k = t - ROUND;
    let r = (x - k * 0.693_359_375) - k * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let y = p * (r * r) + r + 1.0;
    // Two factors, so that neither leaves the normal range and only the last product rounds.
    let k = (t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = k >> 1;
    y * pow2(half) * pow2(k.wrapping_sub(half))
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
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_908_9e-2;
    p = p * z - 5.373_971_6e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328_2e-1;
    let near = (p * z) * a + a;
    let far = 1.0 - 2.0 / (exp(a + a) + 1.0);
    (if a < 0.625 { near } else { far }).copysign(x)
}
