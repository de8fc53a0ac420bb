//! Special functions of f64: the gamma function's family, error functions and Bessel functions.
//! Executors call them as well, and round once for f32, so that every device gives the same bits.
//!
//! Accuracy: a few units in the last place of f64. Near the zeros of `lgamma` and `digamma` at
//! negative arguments, the error is that small relative to the function's terms. Poles and
//! arguments outside a domain give SciPy's values: infinities, or NaN where the one-sided limits
//! differ in sign.

// Coefficients have all digits of their publication, even where f64 cannot represent them.
#![allow(clippy::excessive_precision)]

mod incomplete;

pub use incomplete::{igamma, igamma_grad_a, igammac};

use crate::OpCode;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// The unary function of an op, if this module has one.
pub fn unary(code: OpCode) -> Option<fn(f64) -> f64> {
    Some(match code {
        OpCode::Lgamma => lgamma,
        OpCode::Digamma => digamma,
        OpCode::Erfc => erfc,
        OpCode::Erfinv => erfinv,
        OpCode::I0 => i0,
        OpCode::I1 => i1,
        _ => return None,
    })
}

/// The binary function of an op, if this module has one.
pub fn binary(code: OpCode) -> Option<fn(f64, f64) -> f64> {
    Some(match code {
        OpCode::Polygamma => polygamma,
        OpCode::Igamma => igamma,
        OpCode::Igammac => igammac,
        OpCode::IgammaGradA => igamma_grad_a,
        _ => return None,
    })
}

/// `c[0] + c[1] x + c[2] x^2 + ...`.
#[inline(always)]
fn poly(x: f64, c: &[f64]) -> f64 {
    let mut y = 0.0;
    for c in c.iter().rev() {
        y = y * x + c;
    }
    y
}

/// Logarithm of the gamma function's absolute value.
pub fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// `1 - erf(x)` without cancellation.
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// The inverse error function. Source: M. J. Wichura, "Algorithm AS 241: the percentage points of
/// the normal distribution", Applied Statistics 37, 1988, routine PPND16.
pub fn erfinv(x: f64) -> f64 {
    /// Numerator and denominator for the central region.
    const CENTER: [[f64; 8]; 2] = [
        [
            3.387132872796366608,
            133.14166789178437745,
            1971.5909503065514427,
            13731.693765509461125,
            45921.953931549871457,
            67265.770927008700853,
            33430.575583588128105,
            2509.0809287301226727,
        ],
        [
            1.0,
            42.313330701600911252,
            687.1870074920579083,
            5394.1960214247511077,
            21213.794301586595867,
            39307.89580009271061,
            28729.085735721942674,
            5226.495278852545925,
        ],
    ];
    /// For tails down to `e^-25`.
    const TAIL: [[f64; 8]; 2] = [
        [
            1.42343711074968357734,
            4.6303378461565452959,
            5.7694972214606914055,
            3.64784832476320460504,
            1.27045825245236838258,
            0.24178072517745061177,
            0.0227238449892691845833,
            7.7454501427834140764e-4,
        ],
        [
            1.0,
            2.05319162663775882187,
            1.6763848301838038494,
            0.68976733498510000455,
            0.14810397642748007459,
            0.0151986665636164571966,
            5.475938084995344946e-4,
            1.05075007164441684324e-9,
        ],
    ];
    /// For smaller tails.
    const FAR: [[f64; 8]; 2] = [
        [
            6.6579046435011037772,
            5.4637849111641143699,
            1.7848265399172913358,
            0.29656057182850489123,
            0.026532189526576123093,
            0.0012426609473880784386,
            2.71155556874348757815e-5,
            2.01033439929228813265e-7,
        ],
        [
            1.0,
            0.59983220655588793769,
            0.13692988092273580531,
            0.0148753612908506148525,
            7.868691311456132591e-4,
            1.8463183175100546818e-5,
            1.4215117583164458887e-7,
            2.04426310338993978564e-15,
        ],
    ];
    let ratio = |r: f64, [p, q]: &[[f64; 8]; 2]| poly(r, p) / poly(r, q);
    let a = x.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return f64::INFINITY.copysign(x);
    }
    // The normal distribution's percentage point of `(1 + x) / 2`, divided by the square root of
    // two.
    if a <= 0.85 {
        let q = 0.5 * x;
        return q * ratio(0.180625 - q * q, &CENTER) * FRAC_1_SQRT_2;
    }
    let r = libm::sqrt(-libm::log(0.5 * (1.0 - a)));
    let point = if r <= 5.0 { ratio(r - 1.6, &TAIL) } else { ratio(r - 5.0, &FAR) };
    (point * FRAC_1_SQRT_2).copysign(x)
}

/// Logarithmic derivative of the gamma function.
pub fn digamma(x: f64) -> f64 {
    /// The positive root, as the sum of two numbers.
    const ROOT: [f64; 2] = [1.461_632_144_968_362_2, 9.549_995_429_965_697e-17];
    if x == 0.0 {
        return (-f64::INFINITY).copysign(-x);
    }
    if x < 0.0 {
        let beside = x - libm::rint(x);
        return match beside == 0.0 || x == f64::NEG_INFINITY {
            true => f64::NAN,
            false => digamma(1.0 - x) - PI / libm::tan(PI * beside),
        };
    }
    if x == f64::INFINITY || x.is_nan() {
        return x;
    }
    if libm::fabs(x - ROOT[0]) < 0.3 {
        // Taylor series at the root; its coefficients are values of the zeta function at the root.
        static ZETAS: girih_sync::OnceLock<[f64; 58]> = girih_sync::OnceLock::new();
        let zetas = ZETAS.get_or_init(|| std::array::from_fn(|i| zeta((i + 2) as f64, ROOT[0])));
        let h = (x - ROOT[0]) - ROOT[1];
        let (mut sum, mut power) = (0.0, h);
        for zeta in zetas {
            let term = zeta * power;
            sum += term;
            power *= -h;
            if libm::fabs(term) <= 1e-17 * libm::fabs(sum) {
                break;
            }
        }
        return sum;
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    /// `B(2k) / 2k`.
    const TERMS: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
        -3617.0 / 8160.0,
    ];
    let z = 1.0 / (x * x);
    sum + (libm::log(x) - 0.5 / x - z * poly(z, &TERMS))
}

/// The derivative of [`digamma`] of order `n` at `x`. `n` is rounded to an integer; NaN for
/// negative `n`.
pub fn polygamma(n: f64, x: f64) -> f64 {
    let n = libm::rint(n);
    if n == 0.0 {
        return digamma(x);
    }
    if !(n > 0.0 && n < 171.0) || x.is_nan() || x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    let even = n % 2.0 == 0.0;
    let sign = if even { -1.0 } else { 1.0 };
    let s = n + 1.0;
    let sum = if x > 0.0 {
        zeta(s, x)
    } else {
        // The distance from the nearest integer is exact, unlike the fraction of a small number.
        let integer = libm::rint(x);
        let beside = x - integer;
        if beside == 0.0 {
            return if even && x < 0.0 { f64::NAN } else { sign * f64::INFINITY };
        }
        // The terms at negative numbers form two sums over positive numbers.
        let below = zeta(s, 1.0 - beside) - zeta(s, 1.0 - x);
        let below = if even { -below } else { below };
        let above = match beside > 0.0 {
            true => zeta(s, beside),
            false => {
                let nearest = libm::pow(-beside, -s);
                zeta(s, 1.0 + beside) + if even { -nearest } else { nearest }
            }
        };
        above + below
    };
    sign * libm::tgamma(s) * sum
}

/// The Hurwitz zeta function, the sum of `(q + k)^-s` over all `k >= 0`, for `s > 1` and `q > 0`,
/// by Euler-Maclaurin summation.
fn zeta(s: f64, q: f64) -> f64 {
    /// `B(2j) / (2j)!`.
    const TERMS: [f64; 12] = [
        0.083333333333333333333,
        -0.0013888888888888888889,
        0.000033068783068783068783,
        -8.2671957671957671958e-7,
        2.0876756987868098979e-8,
        -5.2841901386874931848e-10,
        1.3382536530684678833e-11,
        -3.3896802963225828668e-13,
        8.5860620562778445641e-15,
        -2.174868698558061873e-16,
        5.5090028283602295152e-18,
        -1.3954464685812523341e-19,
    ];
    if q == f64::INFINITY {
        return 0.0;
    }
    let mut sum = 0.0;
    // Add the smallest terms first.
    for k in (0..10).rev() {
        sum += libm::pow(q + k as f64, -s);
    }
    let w = q + 10.0;
    let power = libm::pow(w, -s);
    // Not a product of the power, which underflows first.
    let mut rest = libm::pow(w, 1.0 - s) / (s - 1.0) + 0.5 * power;
    let mut factor = s * power / w;
    for (j, term) in TERMS.iter().enumerate() {
        let next = term * factor;
        rest += next;
        if libm::fabs(next) <= 1e-17 * libm::fabs(rest) {
            break;
        }
        let at = s + 2.0 * j as f64;
        factor *= (at + 1.0) * (at + 2.0) / (w * w);
    }
    sum + rest
}

/// The largest argument for which Bessel functions are summed as power series; all terms have one
/// sign.
const SERIES: f64 = 30.0;
static RATIOS: [[f64; 200]; 2] = [ratios(0), ratios(1)];

/// Modified Bessel function of the first kind, of order 0.
pub fn i0(x: f64) -> f64 {
    let a = libm::fabs(x);
    if a > SERIES { far(a, 0.0) } else { series(a, &RATIOS[0]) }
}

/// Modified Bessel function of the first kind, of order 1.
pub fn i1(x: f64) -> f64 {
    let a = libm::fabs(x);
    let y = if a > SERIES { far(a, 1.0) } else { 0.5 * a * series(a, &RATIOS[1]) };
    if x < 0.0 { -y } else { y }
}

/// `1 / (k (k + order))` for `k` from 1 on: divisions would take most of the time of [`series`].
const fn ratios(order: usize) -> [f64; 200] {
    let mut ratios = [0.0; 200];
    let mut k = 1;
    while k <= ratios.len() {
        ratios[k - 1] = 1.0 / (k * (k + order)) as f64;
        k += 1;
    }
    ratios
}

/// The sum of `(x^2 / 4)^k / (k! (k + order)!)`, with the ratios of the order.
fn series(x: f64, ratios: &[f64]) -> f64 {
    let square = 0.25 * x * x;
    let (mut term, mut sum) = (1.0, 1.0);
    for ratio in ratios {
        term *= square * ratio;
        sum += term;
        // A NaN never satisfies the comparison, so the loop runs to its limit.
        if term <= 1e-17 * sum {
            break;
        }
    }
    sum
}

/// Hankel's asymptotic expansion for large arguments.
fn far(x: f64, order: f64) -> f64 {
    if x == f64::INFINITY {
        return x;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..40 {
        let odd = 2.0 * k as f64 - 1.0;
        term *= (odd * odd - 4.0 * order * order) / (8.0 * x * k as f64);
        sum += term;
        if libm::fabs(term) <= 1e-17 * libm::fabs(sum) {
            break;
        }
    }
    // Two factors of `exp(x / 2)`, since `exp(x)` overflows before the function does.
    let half = libm::exp(0.5 * x);
    half * (sum / libm::sqrt(2.0 * PI * x)) * half
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exact values to 20 digits, by mpmath.
    #[test]
    fn values_are_those_of_the_functions() {
        /// A function, an argument, and the function's value.
        type Row = (fn(f64) -> f64, f64, f64);
        let table: &[Row] = &[
            (lgamma, 0.5, 0.57236494292470008707),
            (lgamma, 10.5, 13.940625219403763633),
            (lgamma, -1.5, 0.86004701537648101451),
            (digamma, 1.0, -0.57721566490153286061),
            (digamma, 0.25, -4.2274535333762654081),
            (digamma, 100.0, 4.6001618527380874002),
            (digamma, -1.5, 0.70315664064524318723),
            (erfc, 3.0, 2.2090496998585441373e-5),
            (erfinv, 0.5, 0.47693627620446987338),
            (erfinv, 0.9999, 2.7510639057120796917),
            (erfinv, -1e-12, -8.8622692545275799582e-13),
            (i0, 1.0, 1.2660658777520083356),
            (i0, 50.0, 2.9325537838493363267e+20),
            (i1, 1.0, 0.56515910399248502721),
            (i1, -50.0, -2.9030785901035567968e+20),
        ];
        for (i, &(f, x, want)) in table.iter().enumerate() {
            let got = f(x);
            assert!((got - want).abs() <= 4e-15 * want.abs(), "row {i}: {got:e}, {want:e}");
        }
        for (n, x, want) in [
            (1.0, 1.0, 1.6449340668482264365),
            (1.0, -1.5, 9.3792466449891237539),
            (2.0, 0.5, -16.828796644234319996),
            (3.0, 2.5, 0.22390584881725205126),
        ] {
            let got = polygamma(n, x);
            assert!((got - want).abs() <= 1e-14 * f64::abs(want), "{n}, {x}: {got:e}, {want:e}");
        }
    }

    #[test]
    fn digamma_is_accurate_near_its_zero() {
        let slope = polygamma(1.0, 1.461_632_144_968_362_2);
        for h in [1e-3, 1e-8, 1e-12] {
            let x = 1.461_632_144_968_362_2 + h;
            let h = (x - 1.461_632_144_968_362_2) - 9.549_995_429_965_697e-17;
            let want = slope * h + 0.5 * polygamma(2.0, 1.461_632_144_968_362_2) * h * h;
            assert!((digamma(x) - want).abs() <= 1e-6 * want.abs(), "{x}");
        }
    }

    /// `-1/x - 0.577...` for digamma; for its derivatives, the term of the nearest pole.
    #[test]
    fn digamma_and_its_derivatives_are_accurate_beside_their_poles() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        for x in [1e-5, 1e-9, 1e-12, 1e-17, 1e-30, 1e-300] {
            for x in [x, -x] {
                let want = -1.0 / x - EULER + 1.644_934_066_848_226_4 * x;
                assert!((digamma(x) / want - 1.0).abs() < 1e-14, "digamma of {x:e}");
                let want = 1.0 / (x * x) + 1.644_934_066_848_226_4;
                let got = polygamma(1.0, x);
                assert!(got == want || (got / want - 1.0).abs() < 1e-12, "trigamma of {x:e}");
                let want = -2.0 / (x * x * x) - 2.404_113_806_319_188_6;
                let got = polygamma(2.0, x);
                assert!(got == want || (got / want - 1.0).abs() < 1e-12, "order 2 at {x:e}");
            }
        }
        for integer in [-1.0, -2.0, -7.0] {
            for beside in [1e-3, -1e-3, 1e-10, -1e-10] {
                let x: f64 = integer + beside;
                let beside = x - integer;
                let want = -1.0 / beside;
                let near = 3.0 * beside.abs();
                assert!((digamma(x) / want - 1.0).abs() < near, "digamma of {x}");
                assert!(
                    (polygamma(1.0, x) * beside * beside - 1.0).abs() < near,
                    "trigamma of {x}"
                );
            }
        }
    }

    #[test]
    fn polygamma_of_large_numbers_does_not_vanish() {
        for x in [1e100, 1e160, 1e200, 1e300] {
            assert!((polygamma(1.0, x) * x - 1.0).abs() < 1e-13, "{x:e}");
        }
    }

    #[test]
    fn poles_and_infinities_have_the_limit_values() {
        assert_eq!(lgamma(0.0), f64::INFINITY);
        assert_eq!(digamma(0.0), f64::NEG_INFINITY);
        assert_eq!(digamma(-0.0), f64::INFINITY);
        assert!(digamma(-3.0).is_nan() && polygamma(-1.0, 1.0).is_nan());
        assert_eq!(polygamma(1.0, 0.0), f64::INFINITY);
        assert_eq!((erfinv(1.0), erfinv(-1.0)), (f64::INFINITY, f64::NEG_INFINITY));
        assert!(erfinv(1.5).is_nan() && i0(f64::NAN).is_nan() && i1(f64::NAN).is_nan());
        assert_eq!((i0(0.0), i1(0.0), i0(f64::NEG_INFINITY)), (1.0, 0.0, f64::INFINITY));
        assert_eq!(i1(f64::NEG_INFINITY), f64::NEG_INFINITY);
    }
}
