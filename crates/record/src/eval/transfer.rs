//! Transfers between devices: copies of the values that an evaluation needs from other devices.

use super::{eval_recorded, value};
use crate::context::Context;
use crate::cut::Transferred;
use crate::device::Device;
use crate::error::Result;
use crate::executor::DeviceExecutor;
use crate::node::{Node, State, drop_state};
use girih_ir::{OpCode, TensorSpec};
use girih_runtime::Value;
use std::sync::Arc;

/// Copies the values of nodes to an executor's device. Results of `to_device` receive their values.
/// For other data the copy is added to `transferred`.
///
/// Errors: those of the evaluations on the other devices.
pub(super) fn transfer_values(
    nodes: &[Arc<Node>],
    to: &DeviceExecutor,
    transferred: &mut Transferred,
) -> Result<()> {
    let source = |node: &Arc<Node>| {
        let mut operand = None;
        if node.code() == OpCode::ToDevice {
            node.state().for_each_input(|input| operand = Some(input.clone()));
        }
        operand.unwrap_or_else(|| node.clone())
    };
    let sources: Vec<Arc<Node>> = nodes.iter().map(source).collect();
    // Not the values at the arguments of a differentiated function: nodes receive these values.
    eval_recorded(&sources.iter().collect::<Vec<_>>())?;
    for (node, source) in nodes.iter().zip(&sources) {
        let value = carried(&value(source, "to_device")?, &source.spec(), to)?;
        if Arc::ptr_eq(node, source) {
            transferred.insert(Arc::as_ptr(node), value);
            continue;
        }
        let mut state = node.state();
        if let State::Unary(..) = &*state {
            let lazy = std::mem::replace(&mut *state, State::Available(value));
            drop(state);
            drop_state(lazy);
        }
    }
    Ok(())
}

/// Copies a value to the memory of an executor's device, if it is on another device.
pub fn carried(value: &Value, spec: &TensorSpec, to: &DeviceExecutor) -> Result<Value> {
    let device = Device::of(value);
    if device == to.device() {
        return Ok(value.clone());
    }
    let from = Context::current().executor_for(device)?;
    let stream = Context::current().runtime_stream(from.runtime());
    let size = spec.size_bytes();
    let (copied, done) = to.runtime().upload_from(&stream, value, size)?;
    match done.wait_or_interrupt() {
        // A dependency error means that the download before the upload failed.
        Err(girih_runtime::Error::Dependency(error)) => Err((*error).into()),
        outcome => Ok(outcome.map(|()| copied)?),
    }
}
