//! Accuracy against f64 over dense samples of all magnitudes, and at every special value.

use super::*;

mod table;

/// Distance of `got` from the exact value `want` in units of the last place of f32 at `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || got.is_nan() {
        return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() {
        return if rounded == got { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 || rounded == 0.0 && got == 0.0 {
        return if got == rounded { 0.0 } else { f64::INFINITY };
    }
    let exponent = want.abs().max(f32::MIN_POSITIVE as f64).log2().floor();
    (got as f64 - want).abs() / 2f64.powf(exponent - 23.0)
}

/// Every 4099th f32 (all exponents, both signs), small offsets around 1, and the special values.
fn samples() -> impl Iterator<Item = f32> {
    let special = [0.0, f32::MIN_POSITIVE, 1e-45, 1.0, 0.5, 2.0, f32::MAX, f32::INFINITY, f32::NAN];
    let near_one = (-2000..2000).map(|i| f32::from_bits((1.0f32.to_bits() as i32 + i * 37) as u32));
    let dense = (0..200_000).map(|i| (i as f32 - 100_000.0) * 1.234e-3);
    (0..u32::MAX / 4099)
        .map(|i| f32::from_bits(i * 4099))
        .chain(near_one)
        .chain(dense)
        .chain(special.into_iter().flat_map(|x| [x, -x]))
}

#[track_caller]
fn check(name: &str, f: fn(f32) -> f32, exact: fn(f64) -> f64, bound: f64) {
    let (mut worst, mut at) = (0.0, 0.0);
    for x in samples() {
        let (got, want) = (f(x), exact(x as f64));
        let error = ulps(got, want);
        if error > worst {
            (worst, at) = (error, x);
        }
        if want == 0.0 {
            assert_eq!(got.is_sign_negative(), want.is_sign_negative(), "{name}({x:?}) sign");
        }
    }
    println!("{name}: {worst:.3} ulp at {at:?}");
    assert!(
        worst <= bound,
        "{name}({at:?}) = {:?}, exact {:?}: {worst} ulp",
        f(at),
        exact(at as f64)
    );
}

#[test]
fn exponentials_are_within_their_bounds() {
    check("exp", exp, f64::exp, 1.1);
    check("exp2", exp2, f64::exp2, 0.51);
    check("expm1", expm1, f64::exp_m1, 0.51);
    check("sinh", sinh, f64::sinh, 0.51);
    check("cosh", cosh, f64::cosh, 0.51);
    check("tanh", tanh, f64::tanh, 2.0);
}

#[test]
fn logarithms_are_within_their_bounds() {
    check("log", log, f64::ln, 1.1);
    check("log2", log2, f64::log2, 0.51);
    check("log10", log10, f64::log10, 0.51);
    check("log1p", log1p, f64::ln_1p, 0.51);
}

#[test]
fn circular_functions_are_within_their_bounds_for_all_finite_arguments() {
    check("sin", sin, f64::sin, 0.51);
    check("cos", cos, f64::cos, 0.51);
    check("tan", tan, f64::tan, 0.51);
}

#[test]
fn inverse_functions_are_within_their_bounds() {
    check("asin", asin, f64::asin, 0.51);
    check("acos", acos, f64::acos, 0.51);
    check("atan", atan, f64::atan, 0.51);
    // Against our f64 functions: those of std lose digits near zero.
    check("asinh", asinh, wide::asinh, 0.51);
    check("acosh", acosh, wide::acosh, 0.51);
    check("atanh", atanh, wide::atanh, 0.51);
}

#[test]
fn special_functions_are_within_their_bounds() {
    check("erf", erf, wide::erf, 2.0);
    check("erfc", erfc, wide::erfc, 0.7);
    check("rsqrt", rsqrt, |x| 1.0 / x.sqrt(), 1.5);
}

/// Arguments of functions of two floats: many magnitudes, small integers and special values.
fn pairs() -> Vec<f32> {
    let mut v: Vec<f32> = (0..300).map(|i| f32::from_bits(i * 14_317_001 + 12345)).collect();
    v.extend((-40..40).map(|i| i as f32 * 0.5));
    v.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-45, -1e-45]);
    v.extend([16_777_215.0, 16_777_216.0, -16_777_215.0, 8_388_609.0, 0.999_999_94, 1.000_000_1]);
    v
}

#[test]
fn pow_and_atan2_agree_with_f64_on_all_pairs() {
    let v = pairs();
    for &x in &v {
        for &y in &v {
            for (name, got, want) in [
                ("pow", pow(x, y), (x as f64).powf(y as f64)),
                ("atan2", atan2(x, y), (x as f64).atan2(y as f64)),
            ] {
                assert!(ulps(got, want) <= 0.51, "{name}({x:?}, {y:?}) = {got:?}, exact {want:?}");
                assert!(
                    want as f32 != 0.0 || got.is_sign_negative() == want.is_sign_negative(),
                    "{name}({x:?}, {y:?}): sign of zero"
                );
            }
        }
    }
}
