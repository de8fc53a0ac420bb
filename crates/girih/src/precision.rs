//! Mixed precision: the dtypes in which ops compute under autocast, as defined by the ops.

use crate::{Context, DType, Result, Tensor};
use girih_ir::OpCode;
use girih_ir::ops::Precision;

/// Runs `f` with autocast and returns its result. Matrix products, convolutions and attention with
/// operands in f32 and half dtypes compute in `half`, f16 or bf16. Functions that are steep or
/// accumulate many numbers (exponentials, logarithms, powers, sums, softmax, norms, losses) compute
/// in f32 if operands are in half dtypes. Other ops, and operands in f64, complex and integer
/// dtypes, are unchanged. `None` switches autocast off inside a function that uses it.
/// [`girih_ir::ops::OpDef::precision`] is the kind of an op. Autocast applies to functions that
/// users call, not to ops that a transform or a program records.
///
/// ```
/// use girih::{DType, Tensor, autocast};
///
/// let x = Tensor::ones([2, 2], DType::F32)?;
/// let y = autocast(Some(DType::BF16), || x.matmul(&x))??;
/// assert_eq!(y.dtype(), DType::BF16);
/// # Ok::<(), girih::Error>(())
/// ```
///
/// Errors: [`crate::Error::InvalidArgument`] for a dtype other than f16 and bf16.
pub fn autocast<R>(half: Option<DType>, f: impl FnOnce() -> R) -> Result<R> {
    let context = Context::current();
    let frame = context.frame().with_autocast(half)?;
    Ok(context.within(frame, f))
}

/// The dtype in which users' functions compute an op, for operands with the common dtype `dtype`.
#[inline]
pub(crate) fn computed_in(code: OpCode, dtype: DType) -> DType {
    match Context::current().autocast() {
        None => dtype,
        Some(half) => cast_to(code, dtype, half),
    }
}

#[cold]
fn cast_to(code: OpCode, dtype: DType, half: DType) -> DType {
    match (code.def().precision, dtype) {
        (Precision::Half, DType::F32 | DType::F16 | DType::BF16) => half,
        (Precision::Full, DType::F16 | DType::BF16) => DType::F32,
        _ => dtype,
    }
}

impl Tensor {
    /// Converts the elements to the floating-point or complex dtype in which users' functions
    /// compute an op.
    #[track_caller]
    pub(crate) fn float_for(&self, code: OpCode) -> Result<Tensor> {
        self.astype(computed_in(code, self.dtype().to_float()))
    }
}
