//! Logarithms and the power function.

use super::double;
use super::lanes::{Bits, Double, Float, Mask, Single, horner};

/// Natural logarithm, within 1 ulp. Coefficients: Cephes `logf` (Moshier).
#[inline(always)]
pub fn log<F: Single>(x: F) -> F {
    const SQRT_HALF: i32 = 0x3f35_04f3;
    let (c, bits) = (F::of, F::Bits::of);
    let tiny = x.less(c(f32::MIN_POSITIVE));
    let scaled = F::select(tiny, x * c(8_388_608.0), x);
    let shifted = scaled.to_bits().minus(bits(SQRT_HALF));
    let e = F::of_integers(shifted.right(23)) - F::select(tiny, c(23.0), c(0.0));
    let f = shifted.and(bits(0x007f_ffff)).plus(bits(SQRT_HALF)).as_float() - c(1.0);
    let z = f * f;
    let p = horner(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333_1e-1,
        ],
    );
    let y = (p * f) * z + e * c(-2.121_944_4e-4) - c(0.5) * z;
    let y = (f + y) + e * c(0.693_359_375);
    edges(x, y)
}

/// `y`, except for arguments whose logarithm is infinite or undefined.
#[inline(always)]
fn edges<F: Single>(x: F, y: F) -> F {
    let c = F::of;
    let y = F::select(c(0.0).less(x), y, c(f32::NAN));
    let y = F::select(x.equal(c(0.0)), c(f32::NEG_INFINITY), y);
    F::select(x.equal(c(f32::INFINITY)), x, y)
}

/// Binary logarithm; exact for powers of two.
#[inline(always)]
pub fn log2<F: Single>(x: F) -> F {
    edges(x, double::log2(x.widen()).narrow())
}

/// Decimal logarithm.
#[inline(always)]
pub fn log10<F: Single>(x: F) -> F {
    let y = double::log(x.widen()) * F::Wide::of(std::f64::consts::LOG10_E);
    edges(x, y.narrow())
}

/// `log(1 + x)`, accurate near zero.
#[inline(always)]
pub fn log1p<F: Single>(x: F) -> F {
    let c = F::of;
    let y = double::log1p(x.widen()).narrow();
    let y = F::select(c(-1.0).less(x), y, c(f32::NAN));
    let y = F::select(x.equal(c(-1.0)), c(f32::NEG_INFINITY), y);
    let y = F::select(x.equal(c(f32::INFINITY)), x, y);
    F::select(x.equal(c(0.0)), x, y)
}

/// `x^y`, with C99's special cases: `pow(x, 0)` and `pow(1, y)` are 1 even for NaN.
#[inline(always)]
pub fn pow<F: Single>(x: F, y: F) -> F {
    let (c, w) = (F::of, F::Wide::of);
    let a = x.abs();
    let log = double::log(a.widen());
    let log = F::Wide::select(a.equal(c(0.0)), w(f64::NEG_INFINITY), log);
    let log = F::Wide::select(a.equal(c(f32::INFINITY)), w(f64::INFINITY), log);
    let exponent = y.widen();
    let r = double::exp((exponent * log).clamped(w(-200.0), w(200.0))).narrow();
    let r = F::select(a.equal(c(1.0)), c(1.0), r);
    // From 2^24 on every f32 is an even integer; below, the sum's last bit is set for odd integers.
    let small = y.abs().less(c(16_777_216.0));
    let rounded = exponent + w(double::ROUND);
    let integer = small.not().or((rounded - w(double::ROUND)).equal(exponent));
    let odd = rounded.to_bits().and(<F::Wide as Float>::Bits::of(1)).is_zero().not();
    let negative = x.to_bits().is_negative();
    let r = F::select(negative.and(small).and(odd).and(integer), -r, r);
    let none = x.less(c(0.0)).and(a.less(c(f32::INFINITY))).and(integer.not());
    let r = F::select(none, c(f32::NAN), r);
    let numbers = x.equal(x).and(y.equal(y));
    let r = F::select(numbers, r, x + y);
    F::select(y.equal(c(0.0)).or(x.equal(c(1.0))), c(1.0), r)
}
