//! Error function and reciprocal square root.

use super::double::poly;
use super::exponential::exp;
use super::lanes::{Float, horner};

/// `1 / sqrt(x)`.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / x.sqrt()
}

/// Error function: an odd polynomial near zero, `1 - e^p(|x|)` beyond. Coefficients: minimax, as
/// published by N. Juffa ("erff", 2015).
#[inline(always)]
pub fn erf<F: Float>(x: F) -> F {
    let c = F::of;
    let t = x.abs();
    // From 4 on the result is 1; the clamp keeps the polynomial's exponent in range.
    let t = F::select(c(4.0).less(t), c(4.0), t);
    let s = t * t;
    let far = c(-1.728_534_7e-5) * t + c(3.831_972_6e-4);
    let far = far * s + (c(-3.883_964_4e-3) * t + c(2.425_462_2e-2));
    let far = far * t - c(1.067_778_8e-1);
    let far = far * t - c(6.348_468_7e-1);
    let far = far * t - c(1.287_175_1e-1);
    let far = far * t - t;
    let far = (c(1.0) - exp(far)).copysign(x);
    let near = horner(
        s,
        [
            -5.967_617e-4,
            4.991_194e-3,
            -2.676_813_5e-2,
            1.128_199_3e-1,
            -3.761_253_4e-1,
            1.283_791_7e-1,
        ],
    );
    let near = near * x + x;
    F::select(c(0.927_734_375).less(t), far, near)
}

/// Error function in f64. Rational approximations as published with fdlibm's `s_erf.c` (Sun
/// Microsystems, 1993); calls the platform's `exp`.
pub fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() {
        return x;
    }
    let y = match a {
        ..0.84375 => return erf_center(x),
        ..1.25 => erf_middle(a),
        ..6.0 => 1.0 - erfc_tail(a),
        _ => 1.0,
    };
    y.copysign(x)
}

/// `erf(x)` of `|x| < 0.84375`.
fn erf_center(x: f64) -> f64 {
    const P: [f64; 5] = [
        1.28379167095512558561e-01,
        -3.25042107247001499370e-01,
        -2.84817495755985104766e-02,
        -5.77027029648944159157e-03,
        -2.37630166566501626084e-05,
    ];
    const Q: [f64; 6] = [
        1.0,
        3.97917223959155352819e-01,
        6.50222499887672944485e-02,
        5.08130628187576562776e-03,
        1.32494738004321644526e-04,
        -3.96022827877536812320e-06,
    ];
    if x.abs() < 2f64.powi(-28) {
        // (16 x + 16 efx x) / 16 keeps a subnormal result exact.
        return 0.0625 * (16.0 * x + 16.0 * 1.28379167095512586316e-01 * x);
    }
    let z = x * x;
    x + x * (poly(z, P) / poly(z, Q))
}

/// `erf(x)` of `0.84375 <= x < 1.25`.
fn erf_middle(x: f64) -> f64 {
    const ERX: f64 = 8.45062911510467529297e-01;
    const P: [f64; 7] = [
        -2.36211856075265944077e-03,
        4.14856118683748331666e-01,
        -3.72207876035701323847e-01,
        3.18346619901161753674e-01,
        -1.10894694282396677476e-01,
        3.54783043256182359371e-02,
        -2.16637559486879084300e-03,
    ];
    const Q: [f64; 7] = [
        1.0,
        1.06420880400844228286e-01,
        5.40397917702171048937e-01,
        7.18286544141962662868e-02,
        1.26171219808761642112e-01,
        1.36370839120290507362e-02,
        1.19844998467991074170e-02,
    ];
    let s = x - 1.0;
    ERX + poly(s, P) / poly(s, Q)
}

/// `1 - erf(x)` of `1.25 <= x < 28`.
fn erfc_tail(x: f64) -> f64 {
    const RA: [f64; 8] = [
        -9.86494403484714822705e-03,
        -6.93858572707181764372e-01,
        -1.05586262253232909814e+01,
        -6.23753324503260060396e+01,
        -1.62396669462573470355e+02,
        -1.84605092906711035994e+02,
        -8.12874355063065934246e+01,
        -9.81432934416914548592e+00,
    ];
    const SA: [f64; 9] = [
        1.0,
        1.96512716674392571292e+01,
        1.37657754143519042600e+02,
        4.34565877475229228821e+02,
        6.45387271733267880336e+02,
        4.29008140027567833386e+02,
        1.08635005541779435134e+02,
        6.57024977031928170135e+00,
        -6.04244152148580987438e-02,
    ];
    const RB: [f64; 7] = [
        -9.86494292470009928597e-03,
        -7.99283237680523006574e-01,
        -1.77579549177547519889e+01,
        -1.60636384855821916062e+02,
        -6.37566443368389627722e+02,
        -1.02509513161107724954e+03,
        -4.83519191608651397019e+02,
    ];
    const SB: [f64; 8] = [
        1.0,
        3.03380607434824582924e+01,
        3.25792512996573918826e+02,
        1.53672958608443695994e+03,
        3.19985821950859553908e+03,
        2.55305040643316442583e+03,
        4.74528541206955367215e+02,
        -2.24409524465858183362e+01,
    ];
    let s = 1.0 / (x * x);
    let ratio = if x < 1.0 / 0.35 { poly(s, RA) / poly(s, SA) } else { poly(s, RB) / poly(s, SB) };
    // x * x is split so that its rounding error does not enter the exponential.
    let z = f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000);
    (-z * z - 0.5625).exp() * ((z - x) * (z + x) + ratio).exp() / x
}
