//! `exp`, `exp2`, `expm1` and the hyperbolic functions.

use super::double;
use super::lanes::{Bits, Double, Float, ROUND, Single, horner};

/// `e^x`, within 1 ulp. Coefficients: Cephes `expf` (Moshier).
#[inline(always)]
pub fn exp<F: Single>(x: F) -> F {
    let c = F::of;
    // Beyond these bounds the result is 0 or infinite; the comparisons preserve NaN.
    let x = F::select(c(89.0).less(x), c(89.0), x);
    let (p, t) = exp_parts(F::select(x.less(c(-105.0)), c(-105.0), x));
    p.scaled(t)
}

/// `e^x` for `x` from -105 to 89, as a number from one half to two, and the power of two by which
/// to scale it.
#[inline(always)]
fn exp_parts<F: Single>(x: F) -> (F, F) {
    let c = F::of;
    let t = x.fma(c(std::f32::consts::LOG2_E), c(ROUND));
    let k = t - c(ROUND);
    let r = k.fma(c(2.121_944_4e-4), k.fma(c(-0.693_359_375), x));
    let p = horner(
        r,
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5],
    );
    (p.fma(r * r, r) + c(1.0), t)
}

/// `2^x`.
#[inline(always)]
pub fn exp2<F: Single>(x: F) -> F {
    let c = F::Wide::of;
    let x = x.widen().clamped(c(-200.0), c(200.0));
    let t = x + c(double::ROUND);
    let r = (x - (t - c(double::ROUND))) * c(std::f64::consts::LN_2);
    let s = double::pow2(t);
    (s + s * double::expm1_reduced(r)).narrow()
}

/// `e^x - 1`, accurate near zero.
#[inline(always)]
pub fn expm1<F: Single>(x: F) -> F {
    let c = F::Wide::of;
    let y = double::expm1(x.widen().clamped(c(-200.0), c(200.0))).narrow();
    F::select(x.equal(F::of(0.0)), x, y)
}

/// The magnitude in f64, at most 200.
#[inline(always)]
fn magnitude<F: Single>(x: F) -> F::Wide {
    let (a, most) = (x.abs().widen(), F::Wide::of(200.0));
    F::Wide::select(most.less(a), most, a)
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh<F: Single>(x: F) -> F {
    let c = F::Wide::of;
    let m = double::expm1(magnitude(x));
    (c(0.5) * (m + m / (m + c(1.0)))).narrow().copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh<F: Single>(x: F) -> F {
    let c = F::Wide::of;
    let e = double::exp(magnitude(x));
    (c(0.5) * (e + c(1.0) / e)).narrow()
}

/// Hyperbolic tangent: an odd polynomial up to 0.625 (Cephes `tanhf`), beyond it
/// `1 - 2 / (e^2x + 1)`.
#[inline(always)]
pub fn tanh<F: Single>(x: F) -> F {
    let c = F::of;
    let a = x.abs();
    let z = a * a;
    let p = horner(
        z,
        [-5.704_988_7e-3, 2.063_908_9e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328_2e-1],
    );
    let near = (p * z).fma(a, a);
    // From 40 on, `e^2x + 1` is so large that the result is 1.
    let twice = a + a;
    let (e, round) = exp_parts(F::select(c(40.0).less(twice), c(40.0), twice));
    let far = c(1.0) - c(2.0) / (e.scaled_in_range(round) + c(1.0));
    // Compare with the number before 0.625, so that a NaN takes the polynomial, whose result is
    // then NaN. Both branches are nonnegative, so the sign is simply inserted.
    let y = F::select(c(0.625f32.next_down()).less(a), far, near).to_bits();
    y.or(x.to_bits().and(F::Bits::of(i32::MIN))).as_float()
}
