//! The error functions of f64.

use super::super::lanes::{Double, Mask, poly};
use super::exponential::exp;
use super::upper;

/// `erf(x) - x` for `|x| < 0.84375`.
#[inline(always)]
fn center<D: Double>(x: D) -> D {
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
    let z = x * x;
    x * (poly(z, P) / poly(z, Q))
}

/// The value of `erf` around which [`middle`] is expanded.
const ERX: f64 = 8.45062911510467529297e-01;

/// `erf(a) - ERX` for `0.84375 <= a < 1.25`.
#[inline(always)]
fn middle<D: Double>(a: D) -> D {
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
    let s = a - D::of(1.0);
    poly(s, P) / poly(s, Q)
}

/// `1 - erf(a)` for `1.25 <= a <= 28`, from where on it is 0.
#[inline(always)]
fn tail<D: Double>(a: D) -> D {
    /// The numerator and the denominator up to `1 / 0.35`.
    const NEAR: [[f64; 9]; 2] = [
        [
            -9.86494403484714822705e-03,
            -6.93858572707181764372e-01,
            -1.05586262253232909814e+01,
            -6.23753324503260060396e+01,
            -1.62396669462573470355e+02,
            -1.84605092906711035994e+02,
            -8.12874355063065934246e+01,
            -9.81432934416914548592e+00,
            0.0,
        ],
        [
            1.0,
            1.96512716674392571292e+01,
            1.37657754143519042600e+02,
            4.34565877475229228821e+02,
            6.45387271733267880336e+02,
            4.29008140027567833386e+02,
            1.08635005541779435134e+02,
            6.57024977031928170135e+00,
            -6.04244152148580987438e-02,
        ],
    ];
    /// The numerator and the denominator beyond `1 / 0.35`.
    const FAR: [[f64; 9]; 2] = [
        [
            -9.86494292470009928597e-03,
            -7.99283237680523006574e-01,
            -1.77579549177547519889e+01,
            -1.60636384855821916062e+02,
            -6.37566443368389627722e+02,
            -1.02509513161107724954e+03,
            -4.83519191608651397019e+02,
            0.0,
            0.0,
        ],
        [
            1.0,
            3.03380607434824582924e+01,
            3.25792512996573918826e+02,
            1.53672958608443695994e+03,
            3.19985821950859553908e+03,
            2.55305040643316442583e+03,
            4.74528541206955367215e+02,
            -2.24409524465858183362e+01,
            0.0,
        ],
    ];
    let c = D::of;
    let s = c(1.0) / (a * a);
    let near = a.less(c(1.0 / 0.35));
    let ratio = |[p, q]: [[f64; 9]; 2]| poly(s, p) / poly(s, q);
    let ratio = D::select(near, ratio(NEAR), ratio(FAR));
    // a * a is split so that its rounding error does not enter the exponential.
    let z = upper(a);
    exp(-(z * z) - c(0.5625)) * exp((z - a) * (z + a) + ratio) / a
}

/// Error function.
#[inline(always)]
pub fn erf<D: Double>(x: D) -> D {
    let c = D::of;
    let a = x.abs();
    let y = D::select(a.less(c(1.25)), c(ERX) + middle(a), c(1.0) - tail(a));
    let y = D::select(c(6.0).less(a).or(a.equal(c(6.0))), c(1.0), y).copysign(x);
    let y = D::select(a.less(c(0.84375)), x + center(x), y);
    // Otherwise the product of the next term would lose digits of subnormal results.
    let tiny = c(0.0625) * (c(16.0) * x + c(16.0 * 1.28379167095512586316e-01) * x);
    let y = D::select(a.less(c(3.7e-9)), tiny, y);
    D::select(x.equal(x).and(x.equal(c(0.0)).not()), y, x)
}

/// `1 - erf(x)` without cancellation.
#[inline(always)]
pub fn erfc<D: Double>(x: D) -> D {
    let c = D::of;
    let (a, negative) = (x.abs(), x.less(c(0.0)));
    let excess = center(x);
    let near = D::select(x.less(c(0.25)), c(1.0) - (x + excess), c(0.5) - (excess + (x - c(0.5))));
    let bend = middle(a);
    let beside = D::select(negative, c(1.0) + (c(ERX) + bend), c(1.0 - ERX) - bend);
    let rest = tail(D::select(c(28.0).less(a), c(28.0), a));
    let far = D::select(negative, c(2.0) - rest, rest);
    let y = D::select(a.less(c(1.25)), beside, far);
    D::select(a.less(c(0.84375)), near, y)
}
