//! Inverse circular and hyperbolic functions of f64.

use super::super::lanes::{Bits, Double, Mask, poly};
use super::logarithm::{log, log1p};
use super::upper;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

const PI_2_LO: f64 = 6.12323399573676603587e-17;

/// Arc tangent of a magnitude.
#[inline(always)]
fn atan_magnitude<D: Double>(a: D) -> D {
    const EVEN: [f64; 6] = [
        3.33333333333329318027e-01,
        1.42857142725034663711e-01,
        9.09088713343650656196e-02,
        6.66107313738753120669e-02,
        4.97687799461593236017e-02,
        1.62858201153657823623e-02,
    ];
    const ODD: [f64; 5] = [
        -1.99999999998764832476e-01,
        -1.11111104054623557880e-01,
        -7.69187620504482999495e-02,
        -5.83357013379057348645e-02,
        -3.65315727442169155270e-02,
    ];
    /// The lower bound, and the arc tangent at the range's centre in two parts: 1/2, 1, 3/2 and
    /// infinity.
    const RANGES: [(f64, f64, f64); 4] = [
        (0.4375, 4.63647609000806093515e-01, 2.26987774529616870924e-17),
        (0.6875, FRAC_PI_4, 3.06161699786838301793e-17),
        (1.1875, 9.82793723247329054082e-01, 1.39033110312309984516e-17),
        (2.4375, FRAC_PI_2, PI_2_LO),
    ];
    let c = D::of;
    let quotients = [
        (a + a - c(1.0), c(2.0) + a),
        (a - c(1.0), a + c(1.0)),
        (a - c(1.5), c(1.0) + c(1.5) * a),
        (c(-1.0), a),
    ];
    let (mut num, mut den, mut hi, mut lo) = (a, c(1.0), c(0.0), c(0.0));
    for ((from, at_hi, at_lo), (n, d)) in RANGES.into_iter().zip(quotients) {
        let below = a.less(c(from));
        num = D::select(below, num, n);
        den = D::select(below, den, d);
        hi = D::select(below, hi, c(at_hi));
        lo = D::select(below, lo, c(at_lo));
    }
    let t = num / den;
    let z = t * t;
    let w = z * z;
    let sum = z * poly(w, EVEN) + w * poly(w, ODD);
    hi - ((t * sum - lo) - t)
}

/// Arc tangent.
#[inline(always)]
pub fn atan<D: Double>(x: D) -> D {
    let y = atan_magnitude(x.abs()).copysign(x);
    D::select(x.equal(x), y, x)
}

/// The angle of the point `(x, y)` in `[-pi, pi]`, with C99's special cases.
#[inline(always)]
pub fn atan2<D: Double>(y: D, x: D) -> D {
    let c = D::of;
    let infinity = c(f64::INFINITY);
    let z = atan_magnitude((y / x).abs());
    let both = x.abs().equal(infinity).and(y.abs().equal(infinity));
    let z = D::select(both, c(FRAC_PI_4), z);
    let z = D::select(y.equal(c(0.0)), c(0.0), z);
    let z = D::select(x.to_bits().is_negative(), c(PI) - (z - c(2.0 * PI_2_LO)), z);
    D::select(x.equal(x).and(y.equal(y)), z.copysign(y), c(f64::NAN))
}

/// `(asin(s) - s) / s` from `s^2 <= 1/4`.
#[inline(always)]
fn excess<D: Double>(z: D) -> D {
    const P: [f64; 6] = [
        1.66666666666666657415e-01,
        -3.25565818622400915405e-01,
        2.01212532134862925881e-01,
        -4.00555345006794114027e-02,
        7.91534994289814532176e-04,
        3.47933107596021167570e-05,
    ];
    const Q: [f64; 5] = [
        1.0,
        -2.40339491173441421878e+00,
        2.02094576023350569471e+00,
        -6.88283971605453293030e-01,
        7.70381505559019352791e-02,
    ];
    z * poly(z, P) / poly(z, Q)
}

/// `(z, s, head, tail)` for `z = (1 - a) / 2` and its square root `s = head + tail`.
#[inline(always)]
fn root<D: Double>(a: D) -> (D, D, D, D) {
    let c = D::of;
    let z = (c(1.0) - a) * c(0.5);
    let s = z.sqrt();
    let head = upper(s);
    let sum = s + head;
    let tail = (z - head * head) / D::select(sum.equal(c(0.0)), c(1.0), sum);
    (z, s, head, tail)
}

/// `y` where `a <= 1`, else NaN.
#[inline(always)]
fn within_one<D: Double>(a: D, y: D) -> D {
    let one = D::of(1.0);
    D::select(a.less(one).or(a.equal(one)), y, D::of(f64::NAN))
}

/// Arc sine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn asin<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let near = a + a * excess(a * a);
    let (z, s, head, tail) = root(a);
    let p = c(2.0) * s * excess(z) - (c(PI_2_LO) - c(2.0) * tail);
    let far = c(FRAC_PI_4) - (p - (c(FRAC_PI_4) - c(2.0) * head));
    within_one(a, D::select(a.less(c(0.5)), near, far).copysign(x))
}

/// Arc cosine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn acos<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let near = c(FRAC_PI_2) - (x - (c(PI_2_LO) - x * excess(x * x)));
    let (z, s, head, tail) = root(a);
    let e = excess(z);
    let above = c(2.0) * (head + (e * s + tail));
    let below = c(2.0) * (c(FRAC_PI_2) - (s + (e * s - c(PI_2_LO))));
    let far = D::select(x.less(c(0.0)), below, above);
    within_one(a, D::select(a.less(c(0.5)), near, far))
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let square = a * a;
    let root = (square + c(1.0)).sqrt();
    let near = log1p(a + square / (c(1.0) + root));
    // Beyond 2^28, adding 1 to the square has no effect.
    let far = c(268_435_456.0).less(a);
    let l = log(D::select(far, a, c(2.0) * a + c(1.0) / (root + a)));
    let y = D::select(far, l + c(LN_2), D::select(c(2.0).less(a), l, near));
    D::select(x.equal(x), y, x).copysign(x)
}

/// Inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub fn acosh<D: Double>(x: D) -> D {
    let c = D::of;
    let t = x - c(1.0);
    let near = log1p(t + (t * t + c(2.0) * t).sqrt());
    let far = c(268_435_456.0).less(x);
    let l = log(D::select(far, x, c(2.0) * x - c(1.0) / (x + (x * x - c(1.0)).sqrt())));
    let y = D::select(far, l + c(LN_2), D::select(c(2.0).less(x), l, near));
    let outside = x.less(c(1.0)).or(x.equal(x).not());
    D::select(outside, c(f64::NAN), y)
}

/// Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub fn atanh<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let twice = a + a;
    let rest = c(1.0) - a;
    let quotient = D::select(a.less(c(0.5)), twice + twice * a / rest, twice / rest);
    let y = c(0.5) * log1p(quotient);
    let y = D::select(a.equal(c(1.0)), c(f64::INFINITY), y);
    // The smallest arguments would lose a digit when they are doubled and halved.
    let y = D::select(a.less(c(1e-300)), a, y);
    within_one(a, y.copysign(x))
}
