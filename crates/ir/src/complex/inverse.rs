//! Inverse circular and hyperbolic functions. Finite numbers use the formulas of W. Kahan, "Branch
//! cuts for complex elementary functions, or much ado about nothing's sign bit", 1987, which
//! neither cancel nor lose the sign of a zero on a branch cut.

use super::{c, log_abs, nan, over_i, sqrt, times_i};
use num_complex::Complex64;
use std::f64::consts::{FRAC_PI_2, LN_2};

/// Above this magnitude `1 ± z` rounds to `±z`, and squares may overflow.
const LARGE: f64 = 1e150;

/// The square roots of `1 - z` and `1 + z`.
fn roots(z: Complex64) -> (Complex64, Complex64) {
    (sqrt(c(1.0 - z.re, -z.im)), sqrt(c(1.0 + z.re, z.im)))
}

fn is_large(z: Complex64) -> bool {
    z.re.abs() > LARGE || z.im.abs() > LARGE
}

/// Inverse hyperbolic sine.
pub fn asinh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if x.is_infinite() || y.is_infinite() {
        // The result is NaN in the part that `atan2` computes from a NaN.
        return c(f64::INFINITY.copysign(x), y.abs().atan2(x.abs()).copysign(y));
    }
    if x.is_nan() || y.is_nan() {
        return if y == 0.0 { z } else { nan() };
    }
    if is_large(z) {
        return c((log_abs(x, y) + LN_2).copysign(x), y.atan2(x.abs()));
    }
    // asinh(z) = -i asin(iz).
    let turned = times_i(z);
    let (minus, plus) = roots(turned);
    let re = turned.re.atan2(minus.re * plus.re - minus.im * plus.im);
    let im = (minus.re * plus.im - minus.im * plus.re).asinh();
    over_i(c(re, im))
}

/// Inverse sine.
pub fn asin(z: Complex64) -> Complex64 {
    over_i(asinh(times_i(z)))
}

/// Inverse cosine.
pub fn acos(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if x.is_infinite() || y.is_infinite() {
        return c(y.abs().atan2(x), -f64::INFINITY.copysign(y));
    }
    if x.is_nan() || y.is_nan() {
        return if x == 0.0 { c(FRAC_PI_2, f64::NAN) } else { nan() };
    }
    if is_large(z) {
        return c(y.abs().atan2(x), -(log_abs(x, y) + LN_2).copysign(y));
    }
    let (minus, plus) = roots(z);
    let im = (plus.re * minus.im - plus.im * minus.re).asinh();
    c(2.0 * minus.re.atan2(plus.re), im)
}

/// Inverse hyperbolic cosine, real part not negative.
pub fn acosh(z: Complex64) -> Complex64 {
    let acos = acos(z);
    c(acos.im.abs(), acos.re.copysign(z.im))
}

/// Inverse hyperbolic tangent.
pub fn atanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if x.is_infinite() || y.is_infinite() {
        let im = if y.is_nan() { y } else { FRAC_PI_2.copysign(y) };
        return c(0f64.copysign(x), im);
    }
    if x.is_nan() || y.is_nan() {
        return if x == 0.0 { z } else { nan() };
    }
    if x == 0.0 {
        return c(x, y.atan());
    }
    if is_large(z) {
        // `1/z`; only its real part contributes.
        let h = super::hypot(x * 0.5, y * 0.5);
        return c(x / h / h * 0.25, FRAC_PI_2.copysign(y));
    }
    let (a, below) = (x.abs(), 1.0 - x.abs());
    let im = (2.0 * y).atan2(below * (1.0 + a) - y * y) * 0.5;
    // |1 + z|^2 / |1 - z|^2 = 1 + 4x / |1 - z|^2.
    let distance = below * below + y * y;
    let re = match distance > 1e-290 {
        true => (4.0 * a / distance).ln_1p() * 0.25,
        false => (log_abs(1.0 + a, y) - log_abs(below, y)) * 0.5,
    };
    c(re.copysign(x), im)
}

/// Inverse tangent.
pub fn atan(z: Complex64) -> Complex64 {
    over_i(atanh(times_i(z)))
}
