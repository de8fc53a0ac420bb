//! Functions of complex numbers, with the special values of C99's Annex G (which the array API
//! standard repeats). The reference evaluator and the executor share them, so that folding a
//! constant gives the device's bits; NumPy is the oracle of the tests.
//!
//! All functions have f64 parts. Functions of f32 parts are computed in f64 and rounded once, so
//! that intermediate results do not overflow, and more than 24 bits remain after cancellation. The
//! underlying scalar functions are called for one number at a time, so no result depends on the
//! vector width.

mod inverse;

use crate::OpCode;
pub use inverse::{acos, acosh, asin, asinh, atan, atanh};
use num_complex::{Complex, Complex64};
use std::f64::consts::{LN_2, LN_10};

/// Largest exponent for which `exp` does not overflow.
const EXP_MAX: f64 = 709.0;

pub(crate) fn c(re: f64, im: f64) -> Complex64 {
    Complex::new(re, im)
}

/// A number with both parts NaN.
pub(crate) fn nan() -> Complex64 {
    c(f64::NAN, f64::NAN)
}

/// `i * z`.
fn times_i(z: Complex64) -> Complex64 {
    c(-z.im, z.re)
}

/// `-i * z`.
fn over_i(z: Complex64) -> Complex64 {
    c(z.im, -z.re)
}

/// The type of a complex number's parts.
pub trait ComplexPart: Copy {
    /// The parts as f64. Exact.
    fn widen(z: Complex<Self>) -> Complex64;
    /// The parts rounded to nearest.
    fn narrow(z: Complex64) -> Complex<Self>;
    /// Sum, in this precision.
    fn add(a: Complex<Self>, b: Complex<Self>) -> Complex<Self>;
    /// Difference, in this precision.
    fn sub(a: Complex<Self>, b: Complex<Self>) -> Complex<Self>;
    /// Product, in this precision: four products, a difference and a sum.
    fn mul(a: Complex<Self>, b: Complex<Self>) -> Complex<Self>;
}

macro_rules! part {
    ($($float:ty)*) => { $(impl ComplexPart for $float {
        #[inline(always)]
        fn widen(z: Complex<$float>) -> Complex64 {
            c(z.re.into(), z.im.into())
        }
        #[inline(always)]
        fn narrow(z: Complex64) -> Complex<$float> {
            Complex::new(z.re as $float, z.im as $float)
        }
        #[inline(always)]
        fn add(a: Complex<$float>, b: Complex<$float>) -> Complex<$float> {
            a + b
        }
        #[inline(always)]
        fn sub(a: Complex<$float>, b: Complex<$float>) -> Complex<$float> {
            a - b
        }
        #[inline(always)]
        fn mul(a: Complex<$float>, b: Complex<$float>) -> Complex<$float> {
            a * b
        }
    })* };
}
part!(f32 f64);

/// Quotient, by Smith's method (CACM 5, 1962), which scales by the larger part of the divisor. A
/// zero divisor divides both parts, as in NumPy.
pub fn div(a: Complex64, b: Complex64) -> Complex64 {
    let (re, im) = (b.re.abs(), b.im.abs());
    if re == 0.0 && im == 0.0 {
        return c(a.re / re, a.im / re);
    }
    if re >= im {
        let ratio = b.im / b.re;
        let scale = 1.0 / (b.re + b.im * ratio);
        c((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale)
    } else {
        let ratio = b.re / b.im;
        let scale = 1.0 / (b.im + b.re * ratio);
        c((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale)
    }
}

/// Absolute value without intermediate overflow. Infinite if a part is infinite, even if the other
/// part is NaN.
pub fn abs(z: Complex64) -> f64 {
    hypot(z.re, z.im)
}

/// `sqrt(x^2 + y^2)` without intermediate overflow or underflow. Infinite if either argument is
/// infinite, even if the other argument is NaN.
pub fn hypot(x: f64, y: f64) -> f64 {
    libm::hypot(x, y)
}

/// `z / |z|`, 0 for 0. If exactly one part is infinite, the result lies on that part's axis, as in
/// NumPy.
pub fn sign(z: Complex64) -> Complex64 {
    if z.re == 0.0 && z.im == 0.0 {
        return c(0.0, 0.0);
    }
    match (z.re.is_infinite(), z.im.is_infinite()) {
        (true, false) => return c(z.re.signum(), 0.0),
        (false, true) => return c(0.0, z.im.signum()),
        _ => {}
    }
    // Scale `z` so that its absolute value does not overflow, and subnormals keep their digits.
    let largest = z.re.abs().max(z.im.abs());
    let scale = if largest > 1e300 {
        2f64.powi(-4)
    } else if largest < 1e-290 {
        2f64.powi(300)
    } else {
        1.0
    };
    let z = c(z.re * scale, z.im * scale);
    let r = abs(z);
    c(z.re / r, z.im / r)
}

/// Principal square root, real part not negative.
pub fn sqrt(z: Complex64) -> Complex64 {
    let (a, b) = (z.re, z.im);
    if a == 0.0 && b == 0.0 {
        return c(0.0, b);
    }
    if b.is_infinite() {
        return c(f64::INFINITY, b);
    }
    if a.is_nan() {
        return nan();
    }
    if a.is_infinite() {
        // `0 * b` is 0, or NaN if `b` is NaN.
        return match a < 0.0 {
            true => c((0.0 * b).abs(), a.copysign(b)),
            false => c(a, (0.0 * b).copysign(b)),
        };
    }
    if b.is_nan() {
        return nan();
    }
    let largest = a.abs().max(b.abs());
    if largest > 1e307 {
        let root = sqrt(c(a * 0.25, b * 0.25));
        return c(root.re * 2.0, root.im * 2.0);
    }
    if largest < 1e-290 {
        let root = sqrt(c(a * 2f64.powi(108), b * 2f64.powi(108)));
        return c(root.re * 2f64.powi(-54), root.im * 2f64.powi(-54));
    }
    let t = ((a.abs() + hypot(a, b)) * 0.5).sqrt();
    if a >= 0.0 { c(t, b / (2.0 * t)) } else { c(b.abs() / (2.0 * t), t.copysign(b)) }
}

/// `x^2 + y^2 - 1` near the unit circle, with compensation of the squares' rounding errors.
fn norm_minus_one(x: f64, y: f64) -> f64 {
    let (xx, yy) = (x * x, y * y);
    let (xe, ye) = (x.mul_add(x, -xx), y.mul_add(y, -yy));
    let (large, small) = if xx > yy { (xx, yy) } else { (yy, xx) };
    // Exact if `large` is between 1/2 and 2, which it is near the circle.
    let less = large - 1.0;
    let sum = less + small;
    let rest = if less.abs() > small { (less - sum) + small } else { (small - sum) + less };
    sum + (rest + xe + ye)
}

/// `log |z|`, also accurate near the unit circle.
pub(crate) fn log_abs(x: f64, y: f64) -> f64 {
    let (large, small) = match x.abs() > y.abs() {
        true => (x.abs(), y.abs()),
        false => (y.abs(), x.abs()),
    };
    if !large.is_finite() || !small.is_finite() {
        return hypot(x, y).ln();
    }
    if large > 1e300 {
        return hypot(x * 0.25, y * 0.25).ln() + 2.0 * LN_2;
    }
    if large < 1e-290 {
        return hypot(x * 2f64.powi(300), y * 2f64.powi(300)).ln() - 300.0 * LN_2;
    }
    match large {
        0.5..2.0 if large * large + small * small < 3.0 => 0.5 * norm_minus_one(x, y).ln_1p(),
        _ => hypot(x, y).ln(),
    }
}

/// Natural logarithm, imaginary part in `[-pi, pi]`.
pub fn log(z: Complex64) -> Complex64 {
    c(log_abs(z.re, z.im), z.im.atan2(z.re))
}

/// `log(1 + z)`, accurate near zero.
pub fn log1p(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    let angle = y.atan2(1.0 + x);
    if x.abs() < 0.5 && y.abs() < 0.5 {
        // |1 + z|^2 - 1 = 2x + x^2 + y^2, where 2x and y^2 may cancel.
        let (xx, yy) = (x * x, y * y);
        let (xe, ye) = (x.mul_add(x, -xx), y.mul_add(y, -yy));
        let twice = 2.0 * x;
        let sum = twice + yy;
        let back = sum - twice;
        let rest = (twice - (sum - back)) + (yy - back);
        let norm = if xx == 0.0 && yy == 0.0 { twice } else { sum + (xx + (rest + (xe + ye))) };
        return c(0.5 * norm.ln_1p(), angle);
    }
    c(log_abs(1.0 + x, y), angle)
}

/// Binary logarithm.
pub fn log2(z: Complex64) -> Complex64 {
    let log = log(z);
    c(log.re / LN_2, log.im / LN_2)
}

/// Decimal logarithm.
pub fn log10(z: Complex64) -> Complex64 {
    let log = log(z);
    c(log.re / LN_10, log.im / LN_10)
}

/// `factor * exp(x)`, also if `exp(x)` overflows but the product does not.
fn times_exp(factor: f64, x: f64) -> f64 {
    if x > EXP_MAX {
        let half = (0.5 * x).exp();
        factor * half * half
    } else {
        factor * x.exp()
    }
}

/// Exponential.
pub fn exp(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        return c(x.exp(), y);
    }
    if !y.is_finite() {
        return match x {
            f64::NEG_INFINITY => c(0.0, 0.0),
            f64::INFINITY => c(x, f64::NAN),
            _ => nan(),
        };
    }
    c(times_exp(y.cos(), x), times_exp(y.sin(), x))
}

/// `exp(z) - 1`, accurate near zero.
pub fn expm1(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        // C99 and the array API standard: 0 for -0.
        return c(x.exp_m1() + 0.0, y);
    }
    if !x.is_finite() || !y.is_finite() || x > EXP_MAX {
        let exp = exp(z);
        return c(exp.re - 1.0, exp.im);
    }
    // exp(x) cos(y) - 1 = expm1(x) cos(y) + cos(y) - 1, and the latter is -2 sin(y/2)^2.
    let half = (0.5 * y).sin();
    c(x.exp_m1() * y.cos() - 2.0 * half * half, x.exp() * y.sin())
}

/// Two to the power of `z`.
pub fn exp2(z: Complex64) -> Complex64 {
    if z.im == 0.0 {
        return c(z.re.exp2(), z.im);
    }
    exp(c(z.re * LN_2, z.im * LN_2))
}

/// Hyperbolic sine.
pub fn sinh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        return c(x.sinh(), y);
    }
    if !y.is_finite() {
        return match x {
            x if x == 0.0 || x.is_infinite() => c(x, f64::NAN),
            _ => nan(),
        };
    }
    if x.abs() > 20.0 {
        let (cos, sin) = (0.5 * y.cos(), 0.5 * y.sin());
        return c(times_exp(cos * x.signum(), x.abs()), times_exp(sin, x.abs()));
    }
    c(x.sinh() * y.cos(), x.cosh() * y.sin())
}

/// Hyperbolic cosine.
pub fn cosh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if y == 0.0 {
        return c(x.cosh(), 0f64.copysign(x) * y.signum());
    }
    if !y.is_finite() {
        return match x {
            0.0 => c(f64::NAN, 0.0),
            x if x.is_infinite() => c(f64::INFINITY, f64::NAN),
            _ => nan(),
        };
    }
    if x.abs() > 20.0 {
        let (cos, sin) = (0.5 * y.cos(), 0.5 * y.sin());
        return c(times_exp(cos, x.abs()), times_exp(sin * x.signum(), x.abs()));
    }
    c(x.cosh() * y.cos(), x.sinh() * y.sin())
}

/// Hyperbolic tangent. After W. Kahan, "Branch cuts for complex elementary functions", 1987.
pub fn tanh(z: Complex64) -> Complex64 {
    let (x, y) = (z.re, z.im);
    if x.is_nan() {
        return c(x, if y == 0.0 { y } else { f64::NAN });
    }
    if x.is_infinite() {
        let im = if y.is_finite() { (2.0 * y).sin() } else { 1.0 };
        return c(1f64.copysign(x), 0f64.copysign(im));
    }
    if !y.is_finite() {
        return c(if x == 0.0 { x } else { f64::NAN }, f64::NAN);
    }
    if x.abs() > 20.0 {
        let im = 4.0 * y.sin() * y.cos() * (-2.0 * x.abs()).exp();
        return c(1f64.copysign(x), im);
    }
    let (tan, sinh) = (y.tan(), x.sinh());
    let beta = 1.0 + tan * tan;
    let cosh = (1.0 + sinh * sinh).sqrt();
    let below = 1.0 + beta * sinh * sinh;
    c(beta * cosh * sinh / below, tan / below)
}

/// Sine.
pub fn sin(z: Complex64) -> Complex64 {
    over_i(sinh(times_i(z)))
}

/// Cosine.
pub fn cos(z: Complex64) -> Complex64 {
    cosh(times_i(z))
}

/// Tangent.
pub fn tan(z: Complex64) -> Complex64 {
    over_i(tanh(times_i(z)))
}

/// One over the square root.
pub fn rsqrt(z: Complex64) -> Complex64 {
    div(c(1.0, 0.0), sqrt(z))
}

/// Power. `z^0` is 1. `0^w` is 0 if the real part of `w` is positive, otherwise NaN. Small integer
/// powers use repeated multiplication, other powers `exp(w log z)`.
pub fn pow(z: Complex64, w: Complex64) -> Complex64 {
    if w.re == 0.0 && w.im == 0.0 {
        return c(1.0, 0.0);
    }
    if z.re == 0.0 && z.im == 0.0 {
        return if w.re > 0.0 { c(0.0, 0.0) } else { nan() };
    }
    if w.im == 0.0 && w.re.abs() < 100.0 && w.re.fract() == 0.0 {
        return whole_power(z, w.re as i32);
    }
    let log = log(z);
    exp(c(w.re * log.re - w.im * log.im, w.re * log.im + w.im * log.re))
}

fn whole_power(z: Complex64, n: i32) -> Complex64 {
    let (mut square, mut rest) = (z, n.unsigned_abs());
    // Start from the first factor instead of 1, since 1 times an infinity can give NaN parts.
    let mut power: Option<Complex64> = None;
    while rest > 0 {
        if rest & 1 == 1 {
            power = Some(power.map_or(square, |p| p * square));
        }
        rest >>= 1;
        if rest > 0 {
            square = square * square;
        }
    }
    let power = power.unwrap_or(c(1.0, 0.0));
    if n < 0 { div(c(1.0, 0.0), power) } else { power }
}

/// The complex function of a unary elementwise op, if this module has one.
pub fn function(code: OpCode) -> Option<fn(Complex64) -> Complex64> {
    Some(match code {
        OpCode::Sign => sign,
        OpCode::Exp => exp,
        OpCode::Expm1 => expm1,
        OpCode::Exp2 => exp2,
        OpCode::Log => log,
        OpCode::Log1p => log1p,
        OpCode::Log2 => log2,
        OpCode::Log10 => log10,
        OpCode::Sqrt => sqrt,
        OpCode::Rsqrt => rsqrt,
        OpCode::Sin => sin,
        OpCode::Cos => cos,
        OpCode::Tan => tan,
        OpCode::Asin => asin,
        OpCode::Acos => acos,
        OpCode::Atan => atan,
        OpCode::Sinh => sinh,
        OpCode::Cosh => cosh,
        OpCode::Tanh => tanh,
        OpCode::Asinh => asinh,
        OpCode::Acosh => acosh,
        OpCode::Atanh => atanh,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
