//! Elementary functions of f32 that give the same bits on every machine.
//!
//! They are straight-line Rust (selects, no branches, no table look-ups, no fused multiply-add, no
//! libm), so LLVM turns a loop over any of them into vector code for whatever instruction set the
//! loop is compiled for, and every instruction set computes the same IEEE operations in the same
//! order; the hottest are written over [`Float`], so that a code generator computes the same too.
//! The hot ones (`exp`, `log`, `tanh`, `erf`) stay in f32; the others go through the f64
//! cores of [`double`], which makes them correctly rounded but for rare near-ties.
//!
//! Accuracy: at most 2 ulp over the whole range, subnormal arguments and results included; checked
//! in the tests against f64. Signs of zeros, infinities and NaN are those of C99 Annex F. Payload
//! and sign of a NaN result are unspecified.

// Coefficients stand as published, whatever f32 and f64 make of their last digits.
#![allow(clippy::excessive_precision)]

pub mod double;
mod exponential;
mod inverse;
mod lanes;
mod logarithm;
mod special;
mod trig;

pub use exponential::{cosh, exp, exp2, expm1, sinh, tanh};
pub use inverse::{acos, acosh, acosh_f64, asin, asinh, asinh_f64, atan, atan2, atanh, atanh_f64};
pub use lanes::{Bits, Float};
pub use logarithm::{log, log1p, log2, log10, pow};
pub use special::{erf, erf_f64, rsqrt};
pub use trig::{cos, sin, tan};
pub(crate) use trig::{cos_fast, is_large, sin_fast, sincos_turns, tan_fast};

#[cfg(test)]
mod tests;
