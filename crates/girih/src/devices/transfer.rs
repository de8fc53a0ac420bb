//! Transfers between devices: recording moves of tensors, and copying values when the recording is
//! evaluated.

use super::Device;
use crate::executor::Executor;
use crate::node::{Node, State, drop_state};
use crate::{Context, Error, Result, Tensor, context, eval, trace};
use girih_ir::{Attrs, Class, Op, OpCode, TensorSpec};
use girih_runtime::Value;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Values of other devices that were copied to the device of an evaluation, by node.
pub(crate) type Transferred = FxHashMap<*const Node, Value>;

impl Tensor {
    /// The device on which the tensor is computed. A constant or a random draw that is not
    /// committed to a device is computed on the device of the data it is used with; this method
    /// then returns the device on which it is computed alone.
    pub fn device(&self) -> Device {
        trace::device_asked();
        self.node().place().device()
    }

    /// The tensor on a device: the tensor itself if it is committed to the device, else a copy that
    /// is computed when it is needed. The ops before the copy run on the tensor's own device
    /// ([`Tensor::device`]); only constants and random draws are made on the new device, where they
    /// have the same values. Gradients are moved back.
    ///
    /// Errors: [`Error::InvalidArgument`] in a function being compiled, which runs on one device.
    ///
    /// ```
    /// use girih::{Device, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// let y = x.to_device(Device::named("mock")?)?.exp()?;
    /// assert_eq!(y.device().name(), "mock");
    /// let back = y.to_device(Device::CPU)?.add(&x)?;
    /// assert_eq!(back.to_vec::<f32>()?, [1.0f32.exp() + 1.0, 2.0f32.exp() + 2.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        let node = self.check()?.node();
        let place = node.place();
        if place.device() == device && !place.is_floating() {
            return Ok(self.clone());
        }
        if place.device() != device && trace::is_active() {
            return Err(Error::InvalidArgument(format!(
                "to_device: a function that is compiled runs on one device, here {}, and cannot move a \
                 tensor to {device}; move it outside of the function",
                place.device()
            )));
        }
        if place.is_floating() {
            // A leaf that can be computed anywhere is recorded for the device.
            let leaf = match &*node.state() {
                State::Leaf if node.code() != OpCode::Input => Some(State::Leaf),
                State::Literal => Some(State::Literal),
                &State::Random { key, offset } => Some(State::Random { key, offset }),
                _ => None,
            };
            if let Some(state) = leaf {
                let made = context::add_node(node.op(), &node.spec(), None, state);
                made.set_device(device);
                return Ok(Tensor::from_node(made));
            }
        }
        if place.device() == device {
            return self.committed(device);
        }
        let attrs = Attrs::Devices { from: place.device().index(), to: device.index() };
        Tensor::record(Op::new(OpCode::ToDevice, attrs), &[self])
    }

    /// The same value, committed to the device that it floats on. There is no move: a reshape to
    /// the tensor's own shape is the node that has the place, and the gradient.
    #[track_caller]
    fn committed(&self, device: Device) -> Result<Tensor> {
        let same = Op::new(OpCode::Reshape, Attrs::shape(self.shape()));
        let same = Tensor::record(same, &[self])?;
        same.node().set_device(device);
        Ok(same)
    }
}

/// Moves the operands of an op to one device: the device of the operands that determine it. Scalars
/// and indices on the host follow the other operands.
///
/// Errors: [`Error::MixedDevices`].
pub(crate) fn colocate(op: &Op, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let indexes =
        |at: usize, t: &Tensor| at > 0 && op.class() == Class::Index && t.dtype().is_int();
    let follows =
        |at: usize, t: &Tensor| t.device() == Device::CPU && (t.rank() == 0 || indexes(at, t));
    let committed = inputs.iter().enumerate().filter(|(_, t)| !t.node().place().is_floating());
    let mut deciding = committed.filter(|(at, t)| !follows(*at, t)).map(|(_, t)| t.device());
    let Some(device) = deciding.next() else { return Err(mixed(op.name(), inputs)) };
    if deciding.any(|other| other != device) {
        return Err(mixed(op.name(), inputs));
    }
    let moved = |t: &&Tensor| match t.node().place().is_floating() {
        true => Ok((*t).clone()),
        false => t.to_device(device),
    };
    inputs.iter().map(moved).collect()
}

/// The error of an op whose operands are on several devices.
pub(crate) fn mixed(op: &'static str, inputs: &[&Tensor]) -> Error {
    let operand = |t: &&Tensor| match t.node().place().is_floating() {
        true => format!("{} anywhere", t.spec()),
        false => format!("{} on {}", t.spec(), t.device()),
    };
    Error::MixedDevices { op, operands: inputs.iter().map(operand).collect() }
}

/// Copies the values of nodes to an executor's device. Results of `to_device` receive their values.
/// For other data the copy is added to `transferred`.
///
/// Errors: those of the evaluations on the other devices.
pub(crate) fn transfer_values(
    nodes: &[Arc<Node>],
    to: &Executor,
    transferred: &mut Transferred,
) -> Result<()> {
    let source = |node: &Arc<Node>| {
        let mut operand = None;
        if node.code() == OpCode::ToDevice {
            node.state().for_each_input(|input| operand = Some(input.clone()));
        }
        Tensor::from_node(operand.unwrap_or_else(|| node.clone()))
    };
    let sources: Vec<Tensor> = nodes.iter().map(source).collect();
    // Not the values at the arguments of a differentiated function: nodes receive these values.
    eval::eval_recorded(&sources.iter().collect::<Vec<_>>())?;
    for (node, source) in nodes.iter().zip(&sources) {
        let value = carried(&eval::value(source, "to_device")?, &source.spec(), to)?;
        if Arc::ptr_eq(node, source.node()) {
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
pub(crate) fn carried(value: &Value, spec: &TensorSpec, to: &Executor) -> Result<Value> {
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
