//! Error functions and reciprocal square root.

use super::double;
use super::exponential::exp;
use super::lanes::{Double, Float, Single, horner, horner_from, poly};
use std::f64::consts::{LN_2, LOG2_E};

/// `1 / sqrt(x)`.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Error function: an odd polynomial near zero, `1 - e^p(|x|)` beyond. Coefficients: minimax, as
/// published by N. Juffa ("erff", 2015).
#[inline(always)]
pub fn erf<F: Single>(x: F) -> F {
    let c = F::of;
    let t = x.abs();
    // From 4 on the result is 1; the clamp keeps the polynomial's exponent in range.
    let t = F::select(c(4.0).less(t), c(4.0), t);
    let s = t * t;
    let far = t.fma(c(-1.728_534_7e-5), c(3.831_972_6e-4));
    let far = far.fma(s, t.fma(c(-3.883_964_4e-3), c(2.425_462_2e-2)));
    let far = horner_from(far, t, [-1.067_778_8e-1, -6.348_468_7e-1, -1.287_175_1e-1]);
    let far = far.fma(t, -t);
    let far = (c(1.0) - exp(far)).copysign(x);
    let near = horner(
        s,
        [
            -5.967_617e-4,
            4.991_194e-3,
            -2.676_813_5e-2,
            1.128_199_3e-1,
            -3.761_253_4e-1,
            1.283_791_7e-1,
        ],
    );
    let near = near.fma(x, x);
    F::select(c(0.927_734_375).less(t), far, near)
}

/// `1 - erf(x)` without cancellation: `exp(-a^2) q(1 / (1 + a/2))` for `a = |x|`. In f64, where the
/// square is exact. The polynomials are minimax fits: `q` of 6.2e-9, the reduced exponential of
/// 1.9e-9 relative to the value.
#[inline(always)]
pub fn erfc<F: Single>(x: F) -> F {
    const Q: [f64; 11] = [
        8.142288745755329e-6,
        2.818547124494905e-1,
        2.851782596862752e-1,
        2.2411896594056938e-1,
        2.8253010144670826e-1,
        -2.4502759486096942e-1,
        6.728256393192356e-1,
        -9.543997288207561e-1,
        6.323280007337757e-1,
        -2.0659181493806697e-1,
        2.7175310564796926e-2,
    ];
    const EXP: [f64; 7] = [
        1.0000000005557794,
        1.0000000364018218,
        4.999999206248955e-1,
        1.666641981294248e-1,
        4.166822784700473e-2,
        8.374845906067376e-3,
        1.383680772017568e-3,
    ];
    let c = F::Wide::of;
    // From 10.1 on the result is 0 or 2; the comparison preserves NaN.
    let a = F::select(F::of(12.0).less(x.abs()), F::of(12.0), x.abs());
    // A division of f32 and a step of Newton's method take less time than a division of f64.
    let first = (F::of(1.0) / a.fma(F::of(0.5), F::of(1.0))).widen();
    let a = a.widen();
    let t = first.fma(first.fma(-(c(1.0) + c(0.5) * a), c(1.0)), first);
    let square = a * a;
    let rounded = square.fma(c(-LOG2_E), c(double::ROUND));
    let r = (rounded - c(double::ROUND)).fma(c(-LN_2), -square);
    let y = poly(t, Q) * (poly(r, EXP) * double::pow2(rounded));
    F::Wide::select(x.less(F::of(0.0)), c(2.0) - y, y).narrow()
}
