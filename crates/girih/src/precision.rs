//! Mixed precision: the dtypes in which ops compute under autocast, as their definitions say.

use crate::{Context, DType, Result, Tensor};
use girih_ir::OpCode;
use girih_ir::ops::Precision;

/// Runs `f` and gives its result. In it, products (matrix products, convolutions, attention) compute
/// in `half`, f16 or bf16, on operands in f32 and half dtypes; functions that are steep or add many
/// numbers (exponentials, logarithms, powers, sums, softmax, norms, losses) compute in f32 on half
/// operands. Other ops, and operands in f64, complex and integers, are as without. `None` computes all
/// as without, within a function that does otherwise. [`girih_ir::ops::OpDef::precision`] says which
/// op is of which kind; it is about the functions that users call, not about the ops that a transform
/// or a program records.
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
/// Errors: [`crate::Error::InvalidArgument`] for another dtype.
pub fn autocast<R>(half: Option<DType>, f: impl FnOnce() -> R) -> Result<R> {
    let context = Context::current();
    let frame = context.frame().with_autocast(half)?;
    Ok(context.within(frame, f))
}

/// The dtype in which users' functions compute an op on operands that meet in `dtype`.
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
    /// The elements in the floating-point or complex dtype in which users' functions compute an op.
    #[track_caller]
    pub(crate) fn float_for(&self, code: OpCode) -> Result<Tensor> {
        self.astype(computed_in(code, self.dtype().to_float()))
    }
}
