//! Branch-free f64 cores under the f32 functions: exponential, logarithm, circular functions of a
//! reduced argument, and the arc tangent of a quotient.
//!
//! Accurate to about 1e-12 (exponential) or 1e-15 (the others) relative to the result, which is
//! nearly exact after rounding to f32. Each core documents its range, which covers the arguments of
//! the f32 functions. Coefficients of the logarithm, sine, cosine and arc tangent are the minimax
//! ones of fdlibm (Sun Microsystems, 1993); those of the exponential are Taylor's.

use super::lanes::{Bits, Double, poly};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, LOG2_E};

/// Adding and subtracting this rounds to an integer, whose low bits are the low bits of the sum.
pub(crate) const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
const LN2_HI: f64 = 6.931_471_803_691_238e-1; // 32 bits: multiples up to 2^20 are exact
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// `(q, s)` with `e^x = s (1 + q)` and `s` a power of two, 1 where `|x| < ln(2) / 2`.
/// Takes `|x| <= 700`.
#[inline(always)]
pub fn exp_parts<D: Double>(x: D) -> (D, D) {
    let c = D::of;
    let t = x * c(LOG2_E) + c(ROUND);
    let k = t - c(ROUND);
    let r = (x - k * c(LN2_HI)) - k * c(LN2_LO);
    (expm1_reduced(r), pow2(t))
}

/// `2^k` for the integer `k` in the low bits of `k + ROUND`.
#[inline(always)]
pub(crate) fn pow2<D: Double>(rounded: D) -> D {
    rounded.to_bits().left(52).plus(D::Bits::of(0x3ff0_0000_0000_0000)).as_float()
}

/// `e^r - 1` for `|r| <= 0.35`.
#[inline(always)]
pub(crate) fn expm1_reduced<D: Double>(r: D) -> D {
    const C: [f64; 9] = [
        1.0 / 2.0,
        1.0 / 6.0,
        1.0 / 24.0,
        1.0 / 120.0,
        1.0 / 720.0,
        1.0 / 5040.0,
        1.0 / 40320.0,
        1.0 / 362_880.0,
        1.0 / 3_628_800.0,
    ];
    r + (r * r) * poly(r, C)
}

/// `e^x`. Takes `|x| <= 700`.
#[inline(always)]
pub fn exp<D: Double>(x: D) -> D {
    let (q, s) = exp_parts(x);
    s + s * q
}

/// `e^x - 1`, accurate near zero. Takes `|x| <= 700`.
#[inline(always)]
pub fn expm1<D: Double>(x: D) -> D {
    let (q, s) = exp_parts(x);
    (s - D::of(1.0)) + s * q
}

/// `(f, e)` with `x = (1 + f) 2^e` and `1 + f` in `[sqrt(1/2), sqrt(2))`. Takes normal `x > 0`.
#[inline(always)]
fn split<D: Double>(x: D) -> (D, D) {
    const SQRT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;
    let (c, bits) = (D::of, D::Bits::of);
    // Biased so that the exponent field stays positive: e + 1023.
    let shifted = x.to_bits().minus(bits(SQRT_HALF)).plus(bits(1023 << 52));
    let e = shifted.right_zeros(52).or(bits(0x4330_0000_0000_0000)).as_float()
        - c(4_503_599_627_370_496.0 + 1023.0);
    let m = shifted.and(bits(0x000f_ffff_ffff_ffff)).plus(bits(SQRT_HALF)).as_float();
    (m - c(1.0), e)
}

/// `log(1 + f)` for `1 + f` in `[sqrt(1/2), sqrt(2)]`.
#[inline(always)]
fn log1p_reduced<D: Double>(f: D) -> D {
    const C: [f64; 7] = [
        6.666666666666735130e-01,
        3.999999999940941908e-01,
        2.857142874366239149e-01,
        2.222219843214978396e-01,
        1.818357216161805012e-01,
        1.531383769920937332e-01,
        1.479819860511658591e-01,
    ];
    let s = f / (D::of(2.0) + f);
    let z = s * s;
    s * (D::of(2.0) + z * poly(z, C))
}

/// Natural logarithm. Takes normal `x > 0`.
#[inline(always)]
pub fn log<D: Double>(x: D) -> D {
    let (f, e) = split(x);
    e * D::of(LN_2) + log1p_reduced(f)
}

/// Binary logarithm. Takes normal `x > 0`; exact for powers of two.
#[inline(always)]
pub fn log2<D: Double>(x: D) -> D {
    let (f, e) = split(x);
    e + log1p_reduced(f) * D::of(LOG2_E)
}

/// `log(1 + x)`, accurate near zero. Takes finite `x > -1`.
#[inline(always)]
pub fn log1p<D: Double>(x: D) -> D {
    let (f, e) = split(D::of(1.0) + x);
    let f = D::select(e.equal(D::of(0.0)), x, f);
    e * D::of(LN_2) + log1p_reduced(f)
}

/// `(quadrant, r)` with `x = quadrant * pi/2 + r`, `|r| <= pi/4`; the quadrant is in the low two
/// bits. Takes `|x| <= 2^20`.
#[inline(always)]
pub(crate) fn reduce_quadrant<D: Double>(x: D) -> (D::Bits, D) {
    const PIO2_HI: f64 = 1.570_796_326_734_125_6; // 33 bits: multiples up to 2^20 are exact
    const PIO2_LO: f64 = 6.077_100_506_506_192e-11;
    let c = D::of;
    let t = x * c(std::f64::consts::FRAC_2_PI) + c(ROUND);
    let n = t - c(ROUND);
    (t.to_bits(), (x - n * c(PIO2_HI)) - n * c(PIO2_LO))
}

/// `sin(r)` for `|r| <= pi/4`.
#[inline(always)]
pub(crate) fn sin_reduced<D: Double>(r: D) -> D {
    const C: [f64; 6] = [
        -1.66666666666666324348e-01,
        8.33333333332248946124e-03,
        -1.98412698298579493134e-04,
        2.75573137070700676789e-06,
        -2.50507602534068634195e-08,
        1.58969099521155010221e-10,
    ];
    let z = r * r;
    // This form keeps the sign of a zero.
    r * (D::of(1.0) + z * poly(z, C))
}

/// `cos(r)` for `|r| <= pi/4`.
#[inline(always)]
pub(crate) fn cos_reduced<D: Double>(r: D) -> D {
    const C: [f64; 6] = [
        4.16666666666666019037e-02,
        -1.38888888888741095749e-03,
        2.48015872894767294178e-05,
        -2.75573143513906633035e-07,
        2.08757232129817482790e-09,
        -1.13596475577881948265e-11,
    ];
    let z = r * r;
    (D::of(1.0) - D::of(0.5) * z) + z * z * poly(z, C)
}

/// The angle of the point `(x, y)` for finite `x, y >= 0`, in `[0, pi/2]`; 0 at the origin.
#[inline(always)]
pub(crate) fn angle<D: Double>(y: D, x: D) -> D {
    const C: [f64; 11] = [
        3.33333333333329318027e-01,
        -1.99999999998764832476e-01,
        1.42857142725034663711e-01,
        -1.11111104054623557880e-01,
        9.09088713343650656196e-02,
        -7.69187620504482999495e-02,
        6.66107313738753120669e-02,
        -5.83357013379057348645e-02,
        4.97687799461593236017e-02,
        -3.65315727442169155270e-02,
        1.62858201153657823623e-02,
    ];
    let c = D::of;
    let steep = x.less(y);
    let (lo, hi) = (D::select(steep, x, y), D::select(steep, y, x));
    let hi = D::select(hi.equal(c(0.0)), c(1.0), hi);
    // Beyond tan(pi/8), the angle is rotated by pi/4, so that one division serves both cases.
    let turn = (c(0.414_213_562_373_095_1) * hi).less(lo);
    let num = D::select(turn, lo - hi, lo);
    let den = D::select(turn, lo + hi, hi);
    let t = num / den;
    let z = t * t;
    let a = D::select(turn, c(FRAC_PI_4), c(0.0)) + (t - t * (z * poly(z, C)));
    D::select(steep, c(FRAC_PI_2) - a, a)
}
