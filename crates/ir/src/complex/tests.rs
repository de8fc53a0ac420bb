//! Special values, branch cuts, inverses, and quotients and powers at the ends of the range.

use super::*;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

type Function = fn(Complex64) -> Complex64;

/// Bitwise equality, except that all NaNs are equal.
#[track_caller]
fn check(f: Function, z: (f64, f64), expected: (f64, f64)) {
    let found = f(c(z.0, z.1));
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let ok = same(found.re, expected.0) && same(found.im, expected.1);
    assert!(ok, "of {z:?}: {found:?}, expected {expected:?}");
}

/// Special values of C99's Annex G whose signs it specifies.
#[test]
fn special_values_are_those_of_annex_g() {
    check(exp, (-0.0, 0.0), (1.0, 0.0));
    check(exp, (1.0, INF), (NAN, NAN));
    check(exp, (INF, 0.0), (INF, 0.0));
    check(exp, (-INF, INF), (0.0, 0.0));
    check(exp, (INF, NAN), (INF, NAN));
    check(exp, (NAN, 0.0), (NAN, 0.0));
    check(log, (-0.0, 0.0), (-INF, PI));
    check(log, (0.0, 0.0), (-INF, 0.0));
    check(log, (2.0, INF), (INF, FRAC_PI_2));
    check(log, (-INF, 2.0), (INF, PI));
    check(log, (-INF, INF), (INF, 3.0 * FRAC_PI_4));
    check(log, (NAN, INF), (INF, NAN));
    check(sqrt, (-0.0, -0.0), (0.0, -0.0));
    check(sqrt, (NAN, INF), (INF, INF));
    check(sqrt, (-INF, 1.0), (0.0, INF));
    check(sqrt, (INF, 1.0), (INF, 0.0));
    check(sqrt, (0.0, NAN), (NAN, NAN));
    check(sqrt, (-INF, NAN), (NAN, INF));
    check(sinh, (0.0, 0.0), (0.0, 0.0));
    check(sinh, (0.0, INF), (0.0, NAN));
    check(sinh, (INF, 1.0), (INF, INF));
    check(sinh, (-INF, 2.0), (INF, INF));
    check(cosh, (0.0, 0.0), (1.0, 0.0));
    check(cosh, (0.0, INF), (NAN, 0.0));
    check(cosh, (INF, 0.0), (INF, 0.0));
    check(cosh, (-INF, 2.0), (-INF, -INF));
    check(tanh, (INF, 1.0), (1.0, 0.0));
    check(tanh, (-INF, 2.0), (-1.0, -0.0));
    check(tanh, (0.0, INF), (0.0, NAN));
    check(tanh, (1.0, NAN), (NAN, NAN));
    check(asinh, (0.0, 0.0), (0.0, 0.0));
    check(asinh, (1.0, INF), (INF, FRAC_PI_2));
    check(asinh, (INF, INF), (INF, FRAC_PI_4));
    check(asinh, (NAN, 0.0), (NAN, 0.0));
    check(acos, (0.0, 0.0), (FRAC_PI_2, -0.0));
    check(acos, (0.0, NAN), (FRAC_PI_2, NAN));
    check(acos, (-INF, 1.0), (PI, -INF));
    check(acos, (NAN, INF), (NAN, -INF));
    check(acosh, (0.0, 0.0), (0.0, FRAC_PI_2));
    check(acosh, (1.0, INF), (INF, FRAC_PI_2));
    check(acosh, (-INF, 1.0), (INF, PI));
    check(atanh, (0.0, 0.0), (0.0, 0.0));
    check(atanh, (1.0, 0.0), (INF, 0.0));
    check(atanh, (1.0, INF), (0.0, FRAC_PI_2));
    check(atanh, (INF, NAN), (0.0, NAN));
}

#[test]
fn branch_cuts_are_told_apart_by_the_sign_of_zero() {
    for (f, x) in [(log as Function, -2.0), (sqrt, -2.0), (acos, 2.0), (atanh, 2.0), (asin, -3.0)] {
        let (above, below) = (f(c(x, 0.0)), f(c(x, -0.0)));
        assert_eq!(above.conj(), below, "at {x}");
        assert!(above.im != 0.0, "at {x}");
    }
}

/// Points of all magnitudes in all quadrants.
fn points() -> Vec<Complex64> {
    let sizes = [1e-300, 1e-20, 1e-3, 0.3, 0.999999, 1.0, 1.7, 12.0, 1e8, 1e200];
    let signed = || sizes.into_iter().flat_map(|s| [s, -s]);
    signed().flat_map(|x| signed().map(move |y| c(x, y))).collect()
}

fn close(a: Complex64, b: Complex64, tolerance: f64) -> bool {
    let size = a.re.abs().max(a.im.abs());
    (a.re - b.re).abs() <= tolerance * size && (a.im - b.im).abs() <= tolerance * size
}

#[test]
fn inverse_functions_invert_their_functions() {
    let pairs: [(Function, Function); 7] = [
        (asinh, sinh),
        (acosh, cosh),
        (atanh, tanh),
        (asin, sin),
        (acos, cos),
        (atan, tan),
        (log, exp),
    ];
    for z in points().into_iter().filter(|z| abs(*z) < 100.0) {
        for (i, (inverse, f)) in pairs.into_iter().enumerate() {
            let back = f(inverse(z));
            // Near pi/2 the digits of a small number are lost.
            let near = [1, 4].contains(&i) && abs(z - back) < 1e-14;
            assert!(near || close(z, back, 1e-9), "{i}: {z:e} comes back as {back:e}");
        }
        assert!(close(z, expm1(log1p(z)), 1e-12), "{z}");
    }
    for z in points() {
        let root = sqrt(z);
        assert!(root.re >= 0.0 && close(z, root * root, 1e-14) || abs(z) > 1e150, "{z}");
        let unit = sign(z);
        assert!((abs(unit) - 1.0).abs() < 1e-15 && unit.re * z.re >= 0.0, "{z} has sign {unit}");
    }
}

#[test]
fn quotients_powers_and_logarithms_do_not_overflow() {
    let huge = c(1e300, 1e300);
    assert_eq!(div(huge, huge), c(1.0, 0.0));
    assert_eq!(div(c(1.0, 0.0), c(0.0, 0.0)).re, INF);
    assert_eq!(pow(c(0.0, 2.0), c(2.0, 0.0)), c(-4.0, 0.0));
    assert_eq!(pow(c(INF, 0.0), c(0.0, 0.0)), c(1.0, 0.0));
    assert!(close(pow(c(1.0, 1.0), c(-2.0, 0.0)), c(0.0, -0.5), 1e-16));
    let z = c(1.5, -0.5);
    assert!(close(pow(z, c(0.5, 0.0)), sqrt(z), 1e-15));
    // Just outside the unit circle, where `hypot` rounds to 1.
    assert_eq!(log(c(1.0, 1e-9)).re, 5e-19);
}
