//! Logarithms of f64.

use super::super::lanes::{Bits, Double, Mask, poly};
use super::{LN2_HI, LN2_LO, upper};

/// `(f, k)` with `x = (1 + f) 2^k` and `1 + f` in `[sqrt(1/2), sqrt(2))`. Takes `x > 0`, finite.
#[inline(always)]
fn split<D: Double>(x: D) -> (D, D) {
    const SQRT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;
    let (c, bits) = (D::of, D::Bits::of);
    let tiny = x.less(c(f64::MIN_POSITIVE));
    let x = D::select(tiny, x * c(18_014_398_509_481_984.0), x); // 2^54
    // Biased so that the exponent field stays positive: k + 1023.
    let shifted = x.to_bits().minus(bits(SQRT_HALF)).plus(bits(1023 << 52));
    let k = shifted.right_zeros(52).or(bits(0x4330_0000_0000_0000)).as_float();
    let bias = 4_503_599_627_370_496.0 + 1023.0;
    let k = k - D::select(tiny, c(bias + 54.0), c(bias));
    let m = shifted.and(bits(0x000f_ffff_ffff_ffff)).plus(bits(SQRT_HALF)).as_float();
    (m - c(1.0), k)
}

/// `(s, R + f^2 / 2)` with `log(1 + f) = f - (f^2 / 2 - s (f^2 / 2 + R))`.
#[inline(always)]
fn series<D: Double>(f: D) -> (D, D) {
    const L: [f64; 7] = [
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
    (s, D::of(0.5) * f * f + z * poly(z, L))
}

/// `y`, except for arguments whose logarithm is infinite or undefined.
#[inline(always)]
fn edges<D: Double>(x: D, y: D) -> D {
    let c = D::of;
    let y = D::select(c(0.0).less(x), y, c(f64::NAN));
    let y = D::select(x.equal(c(0.0)), c(f64::NEG_INFINITY), y);
    D::select(x.equal(c(f64::INFINITY)), x, y)
}

/// Natural logarithm.
#[inline(always)]
pub fn log<D: Double>(x: D) -> D {
    let c = D::of;
    let (f, k) = split(x);
    let (s, r) = series(f);
    let half = c(0.5) * f * f;
    edges(x, k * c(LN2_HI) - ((half - (s * r + k * c(LN2_LO))) - f))
}

/// `log(1 + f)` in two parts, the first with few digits.
#[inline(always)]
fn parts<D: Double>(f: D) -> (D, D) {
    let (s, r) = series(f);
    let half = D::of(0.5) * f * f;
    let hi = upper(f - half);
    (hi, (f - hi) - half + s * r)
}

/// Binary logarithm; exact for powers of two.
#[inline(always)]
pub fn log2<D: Double>(x: D) -> D {
    const INV_HI: f64 = 1.44269504072144627571e+00;
    const INV_LO: f64 = 1.67517131648865118353e-10;
    let c = D::of;
    let (f, k) = split(x);
    let (hi, lo) = parts(f);
    let first = hi * c(INV_HI);
    let second = (lo + hi) * c(INV_LO) + lo * c(INV_HI);
    let sum = k + first;
    edges(x, (second + ((k - sum) + first)) + sum)
}

/// Decimal logarithm.
#[inline(always)]
pub fn log10<D: Double>(x: D) -> D {
    const INV_HI: f64 = 4.34294481878168880939e-01;
    const INV_LO: f64 = 2.50829467116452752298e-11;
    const LOG10_2_HI: f64 = 3.01029995663611771306e-01;
    const LOG10_2_LO: f64 = 3.69423907715893078616e-13;
    let c = D::of;
    let (f, k) = split(x);
    let (hi, lo) = parts(f);
    let first = hi * c(INV_HI);
    let whole = k * c(LOG10_2_HI);
    let second = k * c(LOG10_2_LO) + (lo + hi) * c(INV_LO) + lo * c(INV_HI);
    let sum = whole + first;
    edges(x, (second + ((whole - sum) + first)) + sum)
}

/// `log(1 + x)`, accurate near zero.
#[inline(always)]
pub fn log1p<D: Double>(x: D) -> D {
    let c = D::of;
    let u = c(1.0) + x;
    let (f, k) = split(u);
    // The rounding error of the sum.
    let lost = D::select(c(1.5).less(k), c(1.0) - (u - x), x - (u - c(1.0))) / u;
    let whole = k.equal(c(0.0));
    let (f, lost) = (D::select(whole, x, f), D::select(whole, c(0.0), lost));
    let (s, r) = series(f);
    let half = c(0.5) * f * f;
    let y = k * c(LN2_HI) - ((half - (s * r + (k * c(LN2_LO) + lost))) - f);
    let y = D::select(c(-1.0).less(x), y, c(f64::NAN));
    let y = D::select(x.equal(c(-1.0)), c(f64::NEG_INFINITY), y);
    let stays = x.equal(c(f64::INFINITY)).or(x.equal(c(0.0)));
    D::select(stays, x, y)
}
