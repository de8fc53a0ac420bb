//! Error function and reciprocal square root.

use super::exponential::exp;
use super::lanes::{Single, horner, horner_from};

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
