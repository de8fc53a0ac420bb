//! Ops of users: functions of the host as ops of the graph.

use crate::{Error, Result, Tensor, TensorSpec};
use girih_ir::Op;
use girih_ir::ops::host;
pub use girih_ir::ops::host::{
    CustomOp, HostBatch, HostBatching, HostCall, HostFailure, HostView, HostViewMut,
};
pub use girih_kernel::custom::{DTypes, KernelOp, KernelVjp};
use std::sync::Arc;

/// Makes an op known by its name and version, so that programs in files and in the cache on disk find
/// it again.
///
/// Errors: a name with other characters than letters, digits and `_ . : - /`.
pub fn register_custom(op: Arc<dyn CustomOp>) -> Result<()> {
    Ok(host::register(op)?)
}

/// The results of an op of a user at tensors, by its shape rule. Kernels of a user are checked against
/// the operands here, or where symbolic sizes are bound.
///
/// Errors: those of the rule; an op that gives no results or more than 255; kernels that do not fit the
/// operands.
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

/// The results of a call of a host op.
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
