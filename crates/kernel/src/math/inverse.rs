//! Inverse circular and hyperbolic functions.

use super::double::{angle, log, log1p};
use std::f64::consts::{LN_2, PI};

/// Arc tangent.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    let a = x.abs() as f64;
    let a = if a > 1e30 { 1e30 } else { a };
    (angle(a, 1.0) as f32).copysign(x)
}

/// Angle of the point `(x, y)` in `[-pi, pi]`, with C99's special cases.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    let (ay, ax) = (y.abs() as f64, x.abs() as f64);
    // Infinities become a value whose ratio to every finite f32 is as good as infinite.
    let ay = if ay == f64::INFINITY { 1e150 } else { ay };
    let ax = if ax == f64::INFINITY { 1e150 } else { ax };
    let a = angle(ay, ax);
    let a = if x.is_sign_negative() { PI - a } else { a };
    let r = (a as f32).copysign(y);
    if x.is_nan() || y.is_nan() { f32::NAN } else { r }
}

/// Arc sine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let a = x.abs() as f64;
    let r = (angle(a, ((1.0 - a) * (1.0 + a)).sqrt()) as f32).copysign(x);
    if a <= 1.0 { r } else { f32::NAN }
}

/// Arc cosine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let a = x.abs() as f64;
    let r = angle(((1.0 - a) * (1.0 + a)).sqrt(), a);
    let r = (if x < 0.0 { PI - r } else { r }) as f32;
    if a <= 1.0 { r } else { f32::NAN }
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let a = x.abs() as f64;
    let r = log1p(a + a * a / (1.0 + (1.0 + a * a).sqrt())) as f32;
    let r = if a == f64::INFINITY { f32::INFINITY } else { r };
    let r = if x.is_nan() { x } else { r };
    r.copysign(x)
}

/// Inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let t = x as f64 - 1.0;
    // Past 2^30, acosh(x) = log(2x) to far below an ulp, and t * t need not be exact.
    let far = (log(x as f64) + LN_2) as f32;
    let near = log1p(t + (t * (t + 2.0)).sqrt()) as f32;
    let r = if x > 1_073_741_824.0 { far } else { near };
    let r = if x == f32::INFINITY { x } else { r };
    if x >= 1.0 { r } else { f32::NAN }
}

/// Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let a = x.abs() as f64;
    let r = (0.5 * log1p((a + a) / (1.0 - a))) as f32;
    let r = if a < 1.0 { r } else { f32::NAN };
    let r = if a == 1.0 { f32::INFINITY } else { r };
    r.copysign(x)
}

/// Inverse hyperbolic sine in f64, accurate near zero (std's is not); calls the platform's `log`.
pub fn asinh_f64(x: f64) -> f64 {
    let a = x.abs();
    // Past 2^28 the square of `a` swallows the 1.
    let far = a > 268_435_456.0;
    let y = if far { a.ln() + LN_2 } else { (a + a * a / (1.0 + (1.0 + a * a).sqrt())).ln_1p() };
    y.copysign(x)
}

/// Inverse hyperbolic cosine in f64, accurate near one; calls the platform's `log`.
pub fn acosh_f64(x: f64) -> f64 {
    let t = x - 1.0;
    match x {
        1.0..=268_435_456.0 => (t + (t * (t + 2.0)).sqrt()).ln_1p(),
        268_435_456.0.. => x.ln() + LN_2,
        _ => f64::NAN,
    }
}

/// Inverse hyperbolic tangent in f64, accurate near zero; calls the platform's `log`.
pub fn atanh_f64(x: f64) -> f64 {
    let a = x.abs();
    (0.5 * ((a + a) / (1.0 - a)).ln_1p()).copysign(x)
}
