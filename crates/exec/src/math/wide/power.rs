//! The power function of f64: the exponent times a logarithm with more than 64 digits.

use super::super::lanes::{Bits, Double, Mask, poly};
use super::exponential::EXP;
use super::{ROUND, scaled, upper};

/// `log2(a)` in two parts, the first without the lower half of its bits. Takes normal `a > 0`.
#[inline(always)]
fn log2_parts<D: Double>(a: D) -> (D, D) {
    const L: [f64; 6] = [
        5.99999999999994648725e-01,
        4.28571428578550184252e-01,
        3.33333329818377432918e-01,
        2.72728123808534006489e-01,
        2.30660745775561754067e-01,
        2.06975017800338417784e-01,
    ];
    const CP: f64 = 9.61796693925975554329e-01; // 2 / (3 ln 2)
    const CP_HI: f64 = 9.61796700954437255859e-01;
    const CP_LO: f64 = -7.02846165095275826516e-09;
    let (c, bits) = (D::of, D::Bits::of);
    // a = m 2^n with m from sqrt(3)/2 to sqrt(3); the logarithm is expanded around 1 or 3/2.
    const LEAST: i64 = 0x3feb_b67a_0000_0000;
    let shifted = a.to_bits().minus(bits(LEAST)).plus(bits(1023 << 52));
    let n = shifted.right_zeros(52).or(bits(0x4330_0000_0000_0000)).as_float()
        - c(4_503_599_627_370_496.0 + 1023.0);
    let m = shifted.and(bits(0x000f_ffff_ffff_ffff)).plus(bits(LEAST)).as_float();
    let second = c(1.224_744_871_391_589).less(m);
    let base = D::select(second, c(1.5), c(1.0));
    let base_hi = D::select(second, c(5.84962487220764160156e-01), c(0.0));
    let base_lo = D::select(second, c(1.35003920212974897128e-08), c(0.0));
    // s = (m - base) / (m + base) in two parts.
    let (u, v) = (m - base, c(1.0) / (m + base));
    let s = u * v;
    let s_hi = upper(s);
    let sum_hi = upper(m + base);
    let sum_lo = m - (sum_hi - base);
    let s_lo = v * ((u - s_hi * sum_hi) - s_hi * sum_lo);
    // log(1 + s) - log(1 - s) = 2 s (3 + s^2 + r) / 3.
    let z = s * s;
    let r = z * z * poly(z, L) + s_lo * (s_hi + s);
    let z_hi = s_hi * s_hi;
    let t_hi = upper(c(3.0) + z_hi + r);
    let t_lo = r - ((t_hi - c(3.0)) - z_hi);
    let (u, v) = (s_hi * t_hi, s_lo * t_hi + t_lo * s);
    let p_hi = upper(u + v);
    let p_lo = v - (p_hi - u);
    let q_hi = c(CP_HI) * p_hi;
    let q_lo = c(CP_LO) * p_hi + p_lo * c(CP) + base_lo;
    let hi = upper(((q_hi + q_lo) + base_hi) + n);
    (hi, q_lo - (((hi - n) - base_hi) - q_hi))
}

/// `2^(hi + lo)`, `|lo|` far below `|hi|`.
#[inline(always)]
fn exp2_parts<D: Double>(hi: D, lo: D) -> D {
    const LN2: f64 = std::f64::consts::LN_2;
    const LN2_UPPER: f64 = 6.93147182464599609375e-01;
    const LN2_LOWER: f64 = -1.90465429995776804525e-09;
    let c = D::of;
    let rounded = (hi + lo) + c(ROUND);
    let hi = hi - (rounded - c(ROUND));
    let t = upper(lo + hi);
    let (u, v) = (t * c(LN2_UPPER), (lo - (t - hi)) * c(LN2) + t * c(LN2_LOWER));
    let z = u + v;
    let w = v - (z - u);
    let square = z * z;
    let q = z - square * poly(square, EXP);
    let r = (z * q) / (q - c(2.0)) - (w + z * w);
    scaled(c(1.0) - (r - z), rounded)
}

/// The nearest integer of a magnitude.
#[inline(always)]
fn whole<D: Double>(a: D) -> D {
    const LEAST: f64 = 4_503_599_627_370_496.0; // 2^52: from here on every f64 is an integer
    let c = D::of;
    D::select(a.less(c(LEAST)), (a + c(LEAST)) - c(LEAST), a)
}

/// `x^y`, with C99's special cases: `pow(x, 0)` and `pow(1, y)` are 1 even for NaN.
#[inline(always)]
pub fn pow<D: Double>(x: D, y: D) -> D {
    const FAR: f64 = 1e21; // to this power, every number but 1 overflows or underflows
    let c = D::of;
    let (a, b) = (x.abs(), y.abs());
    let tiny = a.less(c(f64::MIN_POSITIVE));
    let normal = D::select(tiny, a * c(18_014_398_509_481_984.0), a); // 2^54
    let (log_hi, log_lo) = log2_parts(normal);
    let log_hi = log_hi - D::select(tiny, c(54.0), c(0.0));
    let e = y.clamped(c(-FAR), c(FAR));
    let e_hi = upper(e);
    let (hi, lo) = (e_hi * log_hi, (e - e_hi) * log_hi + e * log_lo);
    // Beyond these bounds the result is 0 or infinite.
    let sum = hi + lo;
    let beyond = c(1030.0).less(sum).or(sum.less(c(-1090.0)));
    let hi = D::select(beyond, sum.clamped(c(-1090.0), c(1030.0)), hi);
    let r = exp2_parts(hi, D::select(beyond, c(0.0), lo));
    let zero = a.equal(c(0.0));
    let infinite = a.equal(c(f64::INFINITY));
    let falls = y.less(c(0.0));
    let grows = zero.and(falls).or(infinite.and(falls.not()));
    let edge = D::select(grows, c(f64::INFINITY), c(0.0));
    let r = D::select(zero.or(infinite), edge, r);
    let r = D::select(a.equal(c(1.0)), c(1.0), r);
    let integer = whole(b).equal(b);
    let half = c(0.5) * b;
    let odd = integer.and(whole(half).equal(half).not());
    let negative = x.to_bits().is_negative();
    let r = D::select(negative.and(odd), -r, r);
    let none = x.less(c(0.0)).and(infinite.not()).and(integer.not());
    let r = D::select(none, c(f64::NAN), r);
    let numbers = x.equal(x).and(y.equal(y));
    let r = D::select(numbers, r, x + y);
    D::select(y.equal(c(0.0)).or(x.equal(c(1.0))), c(1.0), r)
}
