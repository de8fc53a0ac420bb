//! Elementary functions of f64, straight-line code like those of f32.
//!
//! Accuracy: within 1 ulp for most, at most 2, including subnormal arguments and results; checked
//! in the tests against numbers computed to 60 digits. Algorithms and coefficients are those of
//! fdlibm (Sun Microsystems, 1993), with selects in place of branches; none uses a fused
//! multiply-add. Signs of zeros, infinities and NaN are those of C99 Annex F. Payload and sign of a
//! NaN result are unspecified.

mod exponential;
mod inverse;
mod logarithm;
mod power;
mod special;
mod trig;

pub use exponential::{cosh, exp, exp2, expm1, sinh, tanh};
pub use inverse::{acos, acosh, asin, asinh, atan, atan2, atanh};
pub use logarithm::{log, log1p, log2, log10};
pub use power::pow;
pub use special::{erf, erfc};
pub use trig::{cos, cos_fast, is_large, sin, sin_fast, tan, tan_fast};

use super::lanes::{Bits, Double};

/// Adding and subtracting this rounds to an integer, whose low bits are the low bits of the sum.
const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
const LN2_HI: f64 = 6.93147180369123816490e-01; // 32 bits: multiples up to 2^20 are exact
const LN2_LO: f64 = 1.90821492927058770002e-10;

/// `x` without the lower half of its bits, so that products of such numbers are exact.
#[inline(always)]
fn upper<D: Double>(x: D) -> D {
    x.to_bits().and(D::Bits::of(!0xffff_ffff)).as_float()
}

/// `2^k` for the integer `k` in the bits, `-1022 <= k <= 1023`.
#[inline(always)]
fn pow2<D: Double>(k: D::Bits) -> D {
    k.plus(D::Bits::of(1023)).left(52).as_float()
}

/// `y * 2^k` for the integer `k` in `rounded = k + ROUND`, `|k| <= 2000`, and for `y` around 1.
#[inline(always)]
fn scaled<D: Double>(y: D, rounded: D) -> D {
    // Two factors, so that neither leaves the normal range and only the last product rounds.
    let bits = D::Bits::of;
    let k = rounded.to_bits().minus(bits(ROUND.to_bits() as i64));
    let half = k.plus(bits(4096)).right_zeros(1).minus(bits(2048));
    y * pow2(half) * pow2(k.minus(half))
}
