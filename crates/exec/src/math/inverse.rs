//! Inverse circular and hyperbolic functions.

use super::double::{angle, log, log1p};
use super::lanes::{Bits, Double, Float, Mask, Single};
use std::f64::consts::{LN_2, PI};

/// Arc tangent.
#[inline(always)]
pub fn atan<F: Single>(x: F) -> F {
    let w = F::Wide::of;
    let a = x.abs().widen();
    let a = F::Wide::select(w(1e30).less(a), w(1e30), a);
    angle(a, w(1.0)).narrow().copysign(x)
}

/// The angle of the point `(x, y)` in `[-pi, pi]`, with C99's special cases.
#[inline(always)]
pub fn atan2<F: Single>(y: F, x: F) -> F {
    let w = F::Wide::of;
    // Infinities are replaced by a value whose ratio to every finite f32 acts as an infinite ratio.
    let finite = |v: F| {
        let a = v.abs().widen();
        F::Wide::select(a.equal(w(f64::INFINITY)), w(1e150), a)
    };
    let a = angle(finite(y), finite(x));
    let a = F::Wide::select(x.to_bits().is_negative(), w(PI) - a, a);
    let r = a.narrow().copysign(y);
    F::select(x.equal(x).and(y.equal(y)), r, F::of(f32::NAN))
}

/// `sqrt(1 - a^2)` in f64.
#[inline(always)]
fn other_side<D: Double>(a: D) -> D {
    let one = D::of(1.0);
    ((one - a) * (one + a)).sqrt()
}

/// `y` where `a <= 1`, else NaN.
#[inline(always)]
fn within_one<F: Single>(a: F, y: F) -> F {
    let one = F::of(1.0);
    F::select(a.less(one).or(a.equal(one)), y, F::of(f32::NAN))
}

/// Arc sine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn asin<F: Single>(x: F) -> F {
    let a = x.abs().widen();
    within_one(x.abs(), angle(a, other_side(a)).narrow().copysign(x))
}

/// Arc cosine; NaN outside `[-1, 1]`.
#[inline(always)]
pub fn acos<F: Single>(x: F) -> F {
    let a = x.abs().widen();
    let r = angle(other_side(a), a);
    let r = F::Wide::select(x.less(F::of(0.0)), F::Wide::of(PI) - r, r);
    within_one(x.abs(), r.narrow())
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<F: Single>(x: F) -> F {
    let (one, infinity) = (F::Wide::of(1.0), F::of(f32::INFINITY));
    let a = x.abs().widen();
    let r = log1p(a + a * a / (one + (one + a * a).sqrt())).narrow();
    let r = F::select(x.abs().equal(infinity), infinity, r);
    F::select(x.equal(x), r, x).copysign(x)
}

/// Inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub fn acosh<F: Single>(x: F) -> F {
    let (c, w) = (F::of, F::Wide::of);
    let t = x.widen() - w(1.0);
    // Beyond 2^30, acosh(x) equals log(2x) to far below an ulp, and t * t need not be exact.
    let far = (log(x.widen()) + w(LN_2)).narrow();
    let near = log1p(t + (t * (t + w(2.0))).sqrt()).narrow();
    let r = F::select(c(1_073_741_824.0).less(x), far, near);
    let r = F::select(x.equal(c(f32::INFINITY)), x, r);
    F::select(x.less(c(1.0)), c(f32::NAN), F::select(x.equal(x), r, c(f32::NAN)))
}

/// Inverse hyperbolic tangent; infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub fn atanh<F: Single>(x: F) -> F {
    let (c, w) = (F::of, F::Wide::of);
    let a = x.abs().widen();
    let r = (w(0.5) * log1p((a + a) / (w(1.0) - a))).narrow();
    let r = F::select(x.abs().less(c(1.0)), r, c(f32::NAN));
    let r = F::select(x.abs().equal(c(1.0)), c(f32::INFINITY), r);
    r.copysign(x)
}
