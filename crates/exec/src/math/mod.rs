//! Elementary functions with the same bits on every machine: of f32 here, of f64 in [`wide`].
//!
//! They are straight-line Rust: selects, no branches, no table look-ups, no libm. A product and a
//! sum are rounded once only where the code says `fma`. So LLVM vectorises a loop over any of them
//! for the loop's instruction set, and every instruction set computes the same IEEE operations in
//! the same order. They are generic over [`Single`] and [`Double`], so a code generator computes
//! the same bits too. The hot ones (`exp`, `log`, `tanh`, `erf`) stay in f32; the others use the
//! f64 cores of [`double`], which makes them correctly rounded except for rare near-ties.
//!
//! Accuracy: at most 2 ulp over the whole range, including subnormal arguments and results; checked
//! in the tests against f64. The documentation of [`wide`] has the bounds of its functions. Signs
//! of zeros, infinities and NaN are those of C99 Annex F. Payload and sign of a NaN result are
//! unspecified.

// Coefficients are as published, even if f32 and f64 round their last digits.
#![allow(clippy::excessive_precision)]

pub mod double;
mod exponential;
mod inverse;
mod lanes;
mod logarithm;
mod special;
mod trig;
pub mod wide;

pub use exponential::{cosh, exp, exp2, expm1, sinh, tanh};
pub use inverse::{acos, acosh, asin, asinh, atan, atan2, atanh};
pub use lanes::{Bits, Double, Float, Mask, ROUND, Single, scaled_by_parts};
pub use logarithm::{log, log1p, log2, log10, pow};
pub use special::{erf, erfc, rsqrt};
pub(crate) use trig::sincos_turns;
pub use trig::{cos, cos_fast, is_large, sin, sin_fast, tan, tan_fast};

#[cfg(test)]
mod tests;
