//! The regularised incomplete gamma functions, and the derivative of the lower function with
//! respect to its first argument. Series and continued fraction are as in Cephes; each term is
//! computed together with its derivative. Large orders use Temme's uniform expansion (Temme 1979,
//! "The asymptotic expansion of the incomplete gamma functions").

use super::digamma;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// A number and its derivative with respect to the order.
#[derive(Clone, Copy)]
struct Slope {
    at: f64,
    by: f64,
}

/// Smallest order for which the uniform expansion is used.
const LARGE: f64 = 1e6;
/// Limit on the number of terms; no order below [`LARGE`] needs as many.
const TERMS: usize = 100_000;

/// `P(a, x)`, the integral of `t^(a - 1) exp(-t)` from 0 to `x`, divided by `gamma(a)`, for
/// `a >= 0` and `x >= 0`; NaN elsewhere.
pub fn igamma(a: f64, x: f64) -> f64 {
    match at_edges(a, x) {
        Some(p) => p,
        None if a >= LARGE => uniform(a, x, true),
        None if x > 1.0 && x > a => 1.0 - upper(a, x),
        None => lower::<false>(a, x).at,
    }
}

/// `Q(a, x) = 1 - P(a, x)`, accurate also where it is small.
pub fn igammac(a: f64, x: f64) -> f64 {
    match at_edges(a, x) {
        Some(p) => 1.0 - p,
        None if a >= LARGE => uniform(a, x, false),
        None => upper(a, x),
    }
}

/// The derivative of `P(a, x)` with respect to `a`.
pub fn igamma_grad_a(a: f64, x: f64) -> f64 {
    match at_edges(a, x) {
        Some(p) if p.is_nan() => p,
        Some(_) if a > 0.0 || x == f64::INFINITY => 0.0,
        _ if a >= LARGE => uniform_slope(a, x),
        _ if x > 1.0 && x > a => -fraction::<true>(a, x).by,
        _ => lower::<true>(a, x).by,
    }
}

/// `P` for arguments for which the expansions do not hold.
fn at_edges(a: f64, x: f64) -> Option<f64> {
    let nowhere = a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0;
    match (a, x) {
        _ if nowhere || (a == 0.0 && x == 0.0) => Some(f64::NAN),
        _ if a == f64::INFINITY => Some(if x == f64::INFINITY { f64::NAN } else { 0.0 }),
        _ if x == 0.0 => Some(0.0),
        _ if a == 0.0 || x == f64::INFINITY => Some(1.0),
        _ => None,
    }
}

/// `x^a exp(-x) / gamma(a + 1)`. Orders from 10 on use Stirling's series, since the logarithms of
/// numerator and denominator are large and nearly equal.
fn power(a: f64, x: f64) -> f64 {
    if a < 10.0 {
        return libm::exp(a * libm::log(x) - x - libm::lgamma(a + 1.0));
    }
    let over = (x - a) / a;
    let i = 1.0 / a;
    let square = i * i;
    let stirling =
        i * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    libm::exp(-a * (over - libm::log1p(over)) - stirling) / libm::sqrt(2.0 * PI * a)
}

/// `P` by its series, `x^a exp(-x) / gamma(a + 1)` times the sum of `x^n / ((a + 1) … (a + n))`; its
/// derivative only if `SLOPE` is true.
fn lower<const SLOPE: bool>(a: f64, x: f64) -> Slope {
    let (mut term, mut sum) = (Slope { at: 1.0, by: 0.0 }, Slope { at: 1.0, by: 0.0 });
    for n in 1..TERMS {
        let next = a + n as f64;
        let by = if SLOPE { (term.by - term.at / next) * x / next } else { 0.0 };
        term = Slope { at: term.at * x / next, by };
        sum = Slope { at: sum.at + term.at, by: sum.by + term.by };
        if term.at <= f64::EPSILON * sum.at && term.by.abs() <= f64::EPSILON * sum.by.abs() {
            break;
        }
    }
    let factor = power(a, x);
    if !SLOPE {
        return Slope { at: factor * sum.at, by: 0.0 };
    }
    let by = factor * (sum.by + sum.at * (libm::log(x) - digamma(a + 1.0)));
    Slope { at: factor * sum.at, by }
}

/// `Q`, by the expansion that does not cancel.
fn upper(a: f64, x: f64) -> f64 {
    let small = match x {
        x if x > 1.1 => x < a,
        x if x > 0.5 => x * 1.1 < a,
        x => -0.4 / libm::log(x) < a,
    };
    match small {
        true => 1.0 - lower::<false>(a, x).at,
        false if x <= 1.1 => small_upper(a, x),
        false => fraction::<false>(a, x).at,
    }
}

/// `Q` for small arguments: `1 - x^a / gamma(1 + a)` without cancellation, plus the rest of the
/// series.
fn small_upper(a: f64, x: f64) -> f64 {
    let (mut factor, mut sum) = (1.0, 0.0);
    for n in 1..TERMS {
        factor *= -x / n as f64;
        let term = factor / (a + n as f64);
        sum += term;
        if term.abs() <= f64::EPSILON * f64::abs(sum) {
            break;
        }
    }
    let log = a * libm::log(x);
    let near = a < 1e-5;
    let lgamma = if near {
        a * (0.822_467_033_424_113_2 * a - 0.577_215_664_901_532_9)
    } else {
        libm::lgamma(1.0 + a)
    };
    -libm::expm1(log - lgamma) - a * libm::exp(log - lgamma) * sum
}

/// `Q` by its continued fraction with convergents `p / q`; its derivative only if `SLOPE` is true.
fn fraction<const SLOPE: bool>(a: f64, x: f64) -> Slope {
    const BIG: f64 = 4_503_599_627_370_496.0;
    let scale = power(a, x);
    if scale == 0.0 {
        return Slope { at: 0.0, by: 0.0 };
    }
    let of = |at: f64, by: f64| Slope { at, by };
    let step = |one: Slope, two: Slope, z: f64, yc: f64, c: f64| {
        let at = one.at * z - two.at * yc;
        if !SLOPE {
            return of(at, 0.0);
        }
        of(at, one.by * z - one.at - two.by * yc + two.at * c)
    };
    let (mut y, mut z) = (1.0 - a, x + 2.0 - a);
    let (mut p2, mut q2) = (of(1.0, 0.0), of(x, 0.0));
    let (mut p1, mut q1) = (of(x + 1.0, 0.0), of(z * x, -x));
    let value = |p: Slope, q: Slope| {
        let at = p.at / q.at;
        of(at, (p.by - at * q.by) / q.at)
    };
    let mut found = value(p1, q1);
    for n in 1..TERMS {
        let c = n as f64;
        (y, z) = (y + 1.0, z + 2.0);
        let (p, q) = (step(p1, p2, z, y * c, c), step(q1, q2, z, y * c, c));
        (p2, q2, p1, q1) = (p1, q1, p, q);
        if q.at != 0.0 {
            let next = value(p, q);
            let near = |a: f64, b: f64| (a - b).abs() <= f64::EPSILON * b.abs();
            let done = near(found.at, next.at) && near(found.by, next.by);
            found = next;
            if done {
                break;
            }
        }
        if p.at.abs() > BIG {
            for s in [&mut p1, &mut p2, &mut q1, &mut q2] {
                *s = of(s.at / BIG, s.by / BIG);
            }
        }
    }
    if a == 0.0 {
        // Near order 0, `1 / gamma(a)` is `a`, so its derivative is 1.
        return of(0.0, scale * found.at);
    }
    let factor = scale * a;
    if !SLOPE {
        return of(factor * found.at, 0.0);
    }
    of(factor * found.at, factor * (found.by + found.at * (libm::log(x) - digamma(a))))
}

/// The first two terms of Temme's expansion, with an error of at most `1e-12` for orders from
/// [`LARGE`] on.
fn uniform(a: f64, x: f64, lower: bool) -> f64 {
    let over = (x - a) / a;
    let eta = libm::copysign(libm::sqrt(2.0 * (over - libm::log1p(over)).max(0.0)), over);
    let correction = match eta.abs() < 1e-2 {
        true => -1.0 / 3.0 + eta * (1.0 / 12.0 - eta * (2.0 / 135.0 - eta / 864.0)),
        false => 1.0 / over - 1.0 / eta,
    };
    let rest = libm::exp(-0.5 * a * eta * eta) / libm::sqrt(2.0 * PI * a) * correction;
    let tail = eta * libm::sqrt(a) * FRAC_1_SQRT_2;
    match lower {
        true => 0.5 * libm::erfc(-tail) - rest,
        false => 0.5 * libm::erfc(tail) + rest,
    }
}

/// The derivative of `P` with respect to a large `a`: the density times the derivative of the
/// quantile, by the Wilson-Hilferty transformation, with a relative error below `1e-6`.
fn uniform_slope(a: f64, x: f64) -> f64 {
    let root = libm::sqrt(a);
    let cube = libm::cbrt(x / a);
    let normal = (cube - 1.0 + 1.0 / (9.0 * a)) * 3.0 * root;
    let moved = 1.0 / (9.0 * a * a) - normal / (6.0 * a * root);
    let quantile = cube * cube * (cube + 3.0 * a * moved);
    -power(a, x) * a / x * quantile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance * expected.abs(),
            "{found:e} is not {expected:e}"
        );
    }

    /// `P(1, x)`, `P(1/2, x)` and the recurrence
    /// `Q(a + 1, x) - Q(a, x) = x^a exp(-x) / gamma(a + 1)`.
    #[test]
    fn identities_hold() {
        for x in [1e-8, 0.02, 0.3, 0.7, 1.0, 1.3, 2.0, 5.5, 20.0, 80.0] {
            close(igamma(1.0, x), -libm::expm1(-x), 1e-14);
            close(igammac(1.0, x), libm::exp(-x), 1e-13);
            close(igamma(0.5, x), libm::erf(x.sqrt()), 1e-14);
            close(igammac(0.5, x), libm::erfc(x.sqrt()), 1e-13);
            for a in [1e-9, 0.03, 0.4, 1.5, 7.0, 30.0, 250.0] {
                let sum = igamma(a, x) + igammac(a, x);
                assert!((sum - 1.0).abs() < 1e-14, "{a} {x}: {sum}");
                let step = igammac(a + 1.0, x) - igammac(a, x);
                assert!((step - power(a, x)).abs() < 1e-13, "{a} {x}: {step}");
            }
        }
    }

    #[test]
    fn derivatives_agree_with_finite_differences() {
        for x in [0.02, 0.3, 0.9, 1.2, 3.0, 12.0, 60.0] {
            for a in [0.05, 0.4, 1.0, 2.5, 9.0, 40.0] {
                let h = 1e-4 * a;
                let five = -igamma(a + 2.0 * h, x) + 8.0 * igamma(a + h, x)
                    - 8.0 * igamma(a - h, x)
                    + igamma(a - 2.0 * h, x);
                let difference = five / (12.0 * h);
                let found = igamma_grad_a(a, x);
                assert!(
                    (found - difference).abs() < 1e-9 / a.min(1.0),
                    "{a} {x}: {found} {difference}"
                );
            }
        }
        close(igamma_grad_a(0.0, 1.0), -0.219_383_934_395_520_27, 1e-13);
    }

    /// The uniform expansion agrees with the series at the order [`LARGE`].
    #[test]
    fn large_orders_continue_smaller_ones() {
        for z in [-6.0, -2.0, -1e-3, 0.0, 0.4, 3.0, 7.0] {
            let (below, above) = (LARGE - 1.0, LARGE);
            let [p, q] = [below, above].map(|a| igamma(a, LARGE + z * 1e3));
            let slope = igamma_grad_a(LARGE - 0.5, LARGE + z * 1e3);
            assert!((q - p - slope).abs() < 1e-9, "{z}: {p} {q} {slope}");
            close(igamma_grad_a(above, LARGE + z * 1e3), slope, 3e-2);
        }
    }

    #[test]
    fn edges() {
        let infinity = f64::INFINITY;
        assert_eq!((igamma(2.0, 0.0), igammac(2.0, 0.0)), (0.0, 1.0));
        assert_eq!((igamma(2.0, infinity), igammac(2.0, infinity)), (1.0, 0.0));
        assert_eq!((igamma(0.0, 1.0), igamma(infinity, 1.0)), (1.0, 0.0));
        for (a, x) in [
            (-1.0, 1.0),
            (1.0, -1.0),
            (0.0, 0.0),
            (infinity, infinity),
            (f64::NAN, 1.0),
            (1.0, f64::NAN),
        ] {
            assert!(
                igamma(a, x).is_nan() && igammac(a, x).is_nan() && igamma_grad_a(a, x).is_nan(),
                "{a} {x}"
            );
        }
        assert_eq!((igamma_grad_a(2.0, 0.0), igamma_grad_a(2.0, infinity)), (0.0, 0.0));
    }
}
