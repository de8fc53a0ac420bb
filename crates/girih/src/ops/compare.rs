//! Comparisons with a tolerance, and comparisons of whole tensors.

use super::elementwise::{Operand, binary};
use crate::{Result, Tensor};
use girih_ir::{DType, OpCode};

/// The tolerance within which numbers are close: `atol + rtol * |b|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The tolerance relative to the second number.
    pub rtol: f64,
    /// The absolute tolerance.
    pub atol: f64,
    /// Whether NaN is close to NaN.
    pub equal_nan: bool,
}

impl Default for Tolerance {
    /// NumPy's defaults.
    fn default() -> Tolerance {
        Tolerance { rtol: 1e-5, atol: 1e-8, equal_nan: false }
    }
}

/// Compares integers as f64 and halves as f32, since the tolerance would be lost by rounding in a
/// half dtype.
#[track_caller]
fn wide(x: Operand<'_>, dtype: DType) -> Result<Tensor> {
    let x = x.constant(dtype)?;
    let wide = if dtype.is_inexact() { dtype.widened() } else { DType::F64 };
    x.astype(wide)
}

/// Whether elements are equal or `|a - b| <= atol + rtol * |b|`; an infinity is close only to
/// itself. Operands broadcast; the result is bool.
#[track_caller]
pub fn isclose<'a, 'b>(
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'b>>,
    tolerance: Tolerance,
) -> Result<Tensor> {
    let (a, b) = (a.into(), b.into());
    let dtype = super::elementwise::common_dtype(a, b)?;
    let (a, b) = (wide(a, dtype)?, wide(b, dtype)?);
    let allowed = b.abs()?.mul(tolerance.rtol)?.add(tolerance.atol)?;
    let near = a.sub(&b)?.abs()?.le(&allowed)?.bitwise_and(&b.isfinite()?)?;
    let close = near.bitwise_or(&a.eq(&b)?)?;
    match tolerance.equal_nan {
        true => close.bitwise_or(&a.isnan()?.bitwise_and(&b.isnan()?)?),
        false => Ok(close),
    }
}

/// Whether all elements are close: a bool scalar. See [`isclose`].
#[track_caller]
pub fn allclose<'a, 'b>(
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'b>>,
    tolerance: Tolerance,
) -> Result<Tensor> {
    isclose(a, b, tolerance)?.all(..)
}

/// Whether a NaN equals another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nans {
    /// No NaN equals anything.
    Distinct,
    /// All NaNs are one value.
    Equal,
}

/// Whether two tensors have equal shapes and elements: a bool scalar.
#[track_caller]
pub fn array_equal(a: &Tensor, b: &Tensor, nans: Nans) -> Result<Tensor> {
    if !a.shape().equals(&b.shape()) {
        return Tensor::full(false, [], DType::Bool);
    }
    let equal = binary(OpCode::Eq, Operand::Tensor(a), Operand::Tensor(b))?;
    let equal = match nans {
        Nans::Equal => equal.bitwise_or(&a.isnan()?.bitwise_and(&b.isnan()?)?)?,
        Nans::Distinct => equal,
    };
    equal.all(..)
}
