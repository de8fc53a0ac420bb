//! The functions of f64 against exact values (written by `scripts/function_table.py`), and against
//! the platform's functions, densely and at every special value.

use super::super::wide;

type One = fn(f64) -> f64;
type Two = fn(f64, f64) -> f64;

/// The name, the function, the platform's function, and the largest error in units of the last
/// place.
const ONE: [(&str, One, One, f64); 21] = [
    ("exp", wide::exp, f64::exp, 1.0),
    ("exp2", wide::exp2, f64::exp2, 1.0),
    ("expm1", wide::expm1, f64::exp_m1, 1.0),
    ("log", wide::log, f64::ln, 1.0),
    ("log2", wide::log2, f64::log2, 1.0),
    ("log10", wide::log10, f64::log10, 1.0),
    ("log1p", wide::log1p, f64::ln_1p, 1.0),
    ("sin", wide::sin, f64::sin, 1.0),
    ("cos", wide::cos, f64::cos, 1.0),
    ("tan", wide::tan, f64::tan, 2.0),
    ("asin", wide::asin, f64::asin, 1.0),
    ("acos", wide::acos, f64::acos, 1.0),
    ("atan", wide::atan, f64::atan, 1.0),
    ("sinh", wide::sinh, f64::sinh, 2.0),
    ("cosh", wide::cosh, f64::cosh, 1.0),
    ("tanh", wide::tanh, f64::tanh, 2.0),
    // The functions of std lose digits near zero, and std has no error function.
    ("asinh", wide::asinh, wide::asinh, 2.0),
    ("acosh", wide::acosh, wide::acosh, 2.0),
    ("atanh", wide::atanh, wide::atanh, 2.0),
    ("erf", wide::erf, wide::erf, 1.0),
    ("erfc", wide::erfc, girih_ir::special::erfc, 2.0),
];
const TWO: [(&str, Two, Two, f64); 2] =
    [("pow", wide::pow, f64::powf, 1.0), ("atan2", wide::atan2, f64::atan2, 2.0)];

/// The distance of `got` from `nearest + rest` units of the last place, in these units.
fn units(got: f64, nearest: f64, rest: f64) -> f64 {
    if got.is_nan() || nearest.is_nan() {
        return if got.is_nan() && nearest.is_nan() { 0.0 } else { f64::INFINITY };
    }
    let key = |x: f64| {
        let magnitude = (x.to_bits() & i64::MAX as u64) as i64;
        if x.is_sign_negative() { -magnitude } else { magnitude }
    };
    ((key(got) as i128 - key(nearest) as i128) as f64 - rest).abs()
}

#[test]
fn functions_of_f64_are_within_their_bounds_of_the_exact_values() {
    let mut worst = vec![(0.0f64, 0.0f64); ONE.len() + TWO.len()];
    for line in include_str!("wide.txt").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let bits = |text: &str| f64::from_bits(u64::from_str_radix(text, 16).unwrap());
        let x = bits(fields[1]);
        let rest = fields[fields.len() - 1].parse::<f64>().unwrap() / 1000.0;
        let nearest = bits(fields[fields.len() - 2]);
        let (number, got, bound) = match ONE.iter().position(|f| f.0 == fields[0]) {
            Some(i) => (i, ONE[i].1(x), ONE[i].3),
            None => {
                let i = TWO.iter().position(|f| f.0 == fields[0]).expect("a known function");
                (ONE.len() + i, TWO[i].1(x, bits(fields[2])), TWO[i].3)
            }
        };
        let error = units(got, nearest, rest);
        if error > worst[number].0 {
            worst[number] = (error, x);
        }
        assert!(error <= bound, "{line}: {} of {x:e} is {got:e}, not {nearest:e}", fields[0]);
    }
    let names = ONE.iter().map(|f| f.0).chain(TWO.iter().map(|f| f.0));
    for (name, (error, at)) in names.zip(worst) {
        println!("{name}: {error:.3} at {at:e}");
        assert!(error > 0.0, "no value of {name} was looked at");
    }
}

/// Floats of all magnitudes, some around small numbers, and the special ones.
fn samples() -> impl Iterator<Item = f64> {
    let step = 0x0000_7f3b_9c31_0d57;
    let special = [0.0, f64::MIN_POSITIVE, 5e-324, 1.0, 0.5, 2.0, f64::MAX, f64::INFINITY];
    let special = special.into_iter().flat_map(|x| [x, -x]).chain([f64::NAN]);
    let small = (0..100_000).map(|i| (i as f64 - 50_000.0) * 2.4680137e-4);
    (0..u64::MAX / step).map(move |i| f64::from_bits(i * step)).chain(small).chain(special)
}

#[test]
fn functions_of_f64_are_close_to_the_platforms_everywhere() {
    for (name, f, platform, bound) in ONE {
        for x in samples() {
            let (got, want) = (f(x), platform(x));
            let error = units(got, want, 0.0);
            assert!(error <= bound + 1.0, "{name}({x:e}) = {got:e}, the platform's {want:e}");
            if want == 0.0 {
                assert_eq!(got.to_bits(), want.to_bits(), "{name}({x:e})");
            }
        }
    }
}

#[test]
fn functions_missing_from_std_handle_special_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let cases: [(One, f64, f64); 26] = [
        (wide::asinh, 0.0, 0.0),
        (wide::asinh, -0.0, -0.0),
        (wide::asinh, 5e-324, 5e-324),
        (wide::asinh, f64::MAX, 710.4758600739439),
        (wide::asinh, -inf, -inf),
        (wide::asinh, nan, nan),
        (wide::acosh, 1.0, 0.0),
        (wide::acosh, 0.999, nan),
        (wide::acosh, -2.0, nan),
        (wide::acosh, f64::MAX, 710.4758600739439),
        (wide::acosh, inf, inf),
        (wide::atanh, 1.0, inf),
        (wide::atanh, -1.0, -inf),
        (wide::atanh, 1.0000001, nan),
        (wide::atanh, -5e-324, -5e-324),
        (wide::erf, -0.0, -0.0),
        (wide::erf, inf, 1.0),
        (wide::erf, -30.0, -1.0),
        (wide::erf, 5e-324, 5e-324),
        (wide::erf, nan, nan),
        (wide::erfc, -0.0, 1.0),
        (wide::erfc, 5e-324, 1.0),
        (wide::erfc, inf, 0.0),
        (wide::erfc, -inf, 2.0),
        (wide::erfc, 30.0, 0.0),
        (wide::erfc, nan, nan),
    ];
    for (f, x, want) in cases {
        let got = f(x);
        assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:e}: {got:e}");
    }
}

#[test]
fn powers_and_angles_of_f64_are_close_to_the_platforms_for_all_pairs() {
    let mut values: Vec<f64> = samples().step_by(2003).collect();
    values.extend((-24..24).map(|i| i as f64 * 0.5));
    values.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 5e-324]);
    values.extend([
        9007199254740991.0,
        9007199254740992.0,
        -9007199254740991.0,
        4503599627370497.0,
    ]);
    values.extend([1.0 + f64::EPSILON, 1.0 - f64::EPSILON / 2.0, 4503599627370495.5, f64::MAX]);
    for (name, f, platform, bound) in TWO {
        for &x in &values {
            for &y in &values {
                let (got, want) = (f(x, y), platform(x, y));
                let error = units(got, want, 0.0);
                assert!(error <= bound + 1.0, "{name}({x:e}, {y:e}) = {got:e}, not {want:e}");
                if want == 0.0 {
                    assert_eq!(got.to_bits(), want.to_bits(), "{name}({x:e}, {y:e})");
                }
            }
        }
    }
}
