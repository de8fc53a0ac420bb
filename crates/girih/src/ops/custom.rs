//! Custom ops: functions of the host as ops of the graph.

use crate::{Error, Result, Tensor, TensorSpec};
pub use girih_exec::{KernelOp, KernelVjp};
use girih_ir::Op;
use girih_ir::ops::host;
pub use girih_ir::ops::host::{
    CustomOp, HostBatch, HostBatching, HostCall, HostFailure, HostView, HostViewMut,
};
pub use girih_kernel::custom::DTypes;
use std::sync::Arc;

/// Registers an op by its name and version, so that programs in files and in the disk cache can
/// refer to it.
///
/// Errors: for a name with characters other than letters, digits and `_ . : - /`.
pub fn register_custom(op: Arc<dyn CustomOp>) -> Result<()> {
    Ok(host::register(op)?)
}

/// Records a custom op on tensors; the specs of its results follow from its shape rule. A custom
/// op's kernels are checked against the operands here, or at the binding of symbolic sizes.
///
/// Errors: those of the rule; for an op with no results or more than 255 results; for kernels that
/// do not fit the operands.
#[track_caller]
pub fn custom(op: &Arc<dyn CustomOp>, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    let specs: Vec<TensorSpec> = operands.iter().map(|t| t.spec()).collect();
    let refs: Vec<&TensorSpec> = specs.iter().collect();
    let results = op.infer(&refs)?;
    let known = specs.iter().chain(&results).all(|spec| !spec.shape.is_symbolic());
    if known && results.iter().any(|spec| spec.numel() > 0) {
        op.kernels(&refs).transpose()?;
    }
    custom_call(HostCall::new(op.clone(), results, op.batching(), false), operands)
}

/// Records a call of a host op and returns its results.
///
/// Errors: as [`custom`].
#[track_caller]
pub fn custom_call(call: HostCall, operands: &[&Tensor]) -> Result<Vec<Tensor>> {
    let count = call.results().len();
    if count == 0 || count > u8::MAX as usize {
        let name = call.op().name();
        let reason = format!("custom: '{name}' gives {count} results; expected 1 to 255");
        return Err(Error::InvalidArgument(reason));
    }
    for spec in call.results() {
        spec.shape.check("custom", spec.dtype)?;
    }
    let call = Arc::new(call);
    (0..count).map(|result| Tensor::record(Op::host(call.clone(), result), operands)).collect()
}
