//! `exp`, `exp2`, `expm1` and the hyperbolic functions of f64.

use super::super::lanes::{Bits, Double, Mask, poly};
use super::{LN2_HI, LN2_LO, ROUND, pow2, scaled};
use std::f64::consts::LOG2_E;

/// `(k + ROUND, hi, lo)` with `x = k ln(2) + hi - lo`, `|hi - lo| <= ln(2) / 2`.
#[inline(always)]
fn reduced<D: Double>(x: D) -> (D, D, D) {
    let c = D::of;
    let t = x * c(LOG2_E) + c(ROUND);
    let k = t - c(ROUND);
    (t, x - k * c(LN2_HI), k * c(LN2_LO))
}

/// Coefficients of `P` in `q = r - z P(z)`, `z = r r`, from which `e^r` is computed for
/// `|r| <= ln(2) / 2`.
pub(super) const EXP: [f64; 5] = [
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
];

/// `e^(hi - lo)` for `|hi - lo| <= ln(2) / 2`.
#[inline(always)]
fn exp_reduced<D: Double>(hi: D, lo: D) -> D {
    let c = D::of;
    let r = hi - lo;
    let z = r * r;
    let q = r - z * poly(z, EXP);
    c(1.0) + ((r * q / (c(2.0) - q) - lo) + hi)
}

/// `e^x`.
#[inline(always)]
pub fn exp<D: Double>(x: D) -> D {
    let (t, hi, lo) = reduced(x.clamped(D::of(-746.0), D::of(710.0)));
    scaled(exp_reduced(hi, lo), t)
}

/// `e^x / 2`, even if `e^x` overflows.
#[inline(always)]
fn half_exp<D: Double>(x: D) -> D {
    let (t, hi, lo) = reduced(x.clamped(D::of(-746.0), D::of(712.0)));
    scaled(exp_reduced(hi, lo), t - D::of(1.0))
}

/// `2^x`.
#[inline(always)]
pub fn exp2<D: Double>(x: D) -> D {
    const LN2: f64 = std::f64::consts::LN_2;
    const UPPER: f64 = 6.93147182464599609375e-01; // 24 bits
    const LOWER: f64 = -1.90465429995776804525e-09;
    let c = D::of;
    let x = x.clamped(c(-1080.0), c(1025.0));
    let t = x + c(ROUND);
    let f = x - (t - c(ROUND));
    let f_hi = f.to_bits().and(D::Bits::of(!0x7ff_ffff)).as_float();
    let f_lo = f - f_hi;
    scaled(exp_reduced(f_hi * c(UPPER), -(f_lo * c(LN2) + f_hi * c(LOWER))), t)
}

/// `e^x - 1`, accurate near zero.
#[inline(always)]
pub fn expm1<D: Double>(x: D) -> D {
    const Q: [f64; 6] = [
        1.0,
        -3.33333333333331316428e-02,
        1.58730158725481460165e-03,
        -7.93650757867487942473e-05,
        4.00821782732936239552e-06,
        -2.01099218183624371326e-07,
    ];
    let (c, bits) = (D::of, D::Bits::of);
    let (t, hi, lo) = reduced(x.clamped(c(-50.0), c(710.0)));
    let r = hi - lo;
    let low = (hi - r) - lo;
    let half = c(0.5) * r;
    let z = r * half;
    let p = poly(z, Q);
    let s = c(3.0) - p * half;
    let e = z * ((p - s) / (c(6.0) - r * s));
    let e = (r * (e - low) - low) - z;
    // 2^-k; from 2^-63 on it is negligible relative to 1.
    let most = c(ROUND + 63.0);
    let k = D::select(most.less(t), most, t).to_bits().minus(bits(ROUND.to_bits() as i64));
    let u: D = pow2(bits(0).minus(k));
    let small = (c(1.0) - u) - (e - r);
    let small =
        D::select(k.minus(bits(1)).is_zero().and(r.less(c(-0.25))), (r + c(0.5)) - e, small);
    let large = (r - (e + u)) + c(1.0);
    let y = scaled(D::select(t.less(c(ROUND + 20.0)), small, large), t);
    D::select(x.equal(c(0.0)), x, y)
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let t = expm1(a);
    let near = c(0.5) * (c(2.0) * t - t * t / (t + c(1.0)));
    let middle = c(0.5) * (t + t / (t + c(1.0)));
    let y = D::select(a.less(c(1.0)), near, middle);
    D::select(c(22.0).less(a), half_exp(a), y).copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let t = expm1(a);
    let w = c(1.0) + t;
    let near = c(1.0) + t * t / (w + w);
    let h = half_exp(a);
    D::select(a.less(c(0.34)), near, h + c(0.25) / h)
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    // Below log(5/3) / 2, e^-2x - 1 loses fewer digits.
    let small = a.less(c(0.2554));
    let twice = a + a;
    let t = expm1(D::select(small, -twice, twice));
    let near = D::select(small, -t, t) / (t + c(2.0));
    let far = c(1.0) - c(2.0) / (t + c(2.0));
    let y = D::select(a.less(c(0.5493)), near, far).copysign(x);
    // The smallest arguments would lose a digit when they are doubled and halved.
    D::select(a.less(c(1e-300)), x, y)
}
