//! The device that a call means: the current one, or that of its operands.

use crate::context::Context;
use crate::device::Device;
use crate::devices;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::place::Place;
use crate::trace;
use girih_runtime::{DeviceId, MemoryStats};
use std::borrow::Borrow;
use std::sync::Arc;

impl Device {
    /// The device on which the tensors of a front end are computed together; the current device if
    /// there are no tensors. `what` names the operation in the error.
    ///
    /// Errors: [`Error::MixedDevices`].
    pub fn common<H: Borrow<Arc<Node>>>(what: &'static str, tensors: &[&H]) -> Result<Device> {
        let nodes = || tensors.iter().map(|tensor| (*tensor).borrow());
        let mut places = nodes().map(|node| node.place());
        let Some(first) = places.next() else { return Ok(Context::current().device()) };
        let all = places.try_fold(first, Place::merge);
        all.map(Place::device).ok_or_else(|| mixed(what, nodes()))
    }
}

/// The error of an op whose operands are on several devices.
pub(crate) fn mixed<'a>(
    op: &'static str,
    operands: impl IntoIterator<Item = &'a Arc<Node>>,
) -> Error {
    let operand = |node: &Arc<Node>| match node.place().is_floating() {
        true => format!("{} anywhere", node.spec()),
        false => format!("{} on {}", node.spec(), trace::device_of(node)),
    };
    Error::MixedDevices { op, operands: operands.into_iter().map(operand).collect() }
}

/// The devices of the process, with the current context's device first.
///
/// Errors: those of the first evaluation, if an environment variable is invalid.
pub fn devices() -> Result<Vec<Device>> {
    let current = Context::current().device();
    let mut devices = devices::all()?;
    devices.sort_by_key(|&device| (device != current, device.index()));
    Ok(devices)
}

/// The memory statistics of a device; `None` means the current device.
///
/// Errors: if the environment variables do not allow the device to be set up.
pub fn memory_stats(device: Option<Device>) -> Result<MemoryStats> {
    let device = device.unwrap_or_else(|| Context::current().device());
    Ok(devices::executor(device)?.runtime().device().allocator().stats())
}

/// Prepares a device (the current device for `None`), so that the first programs do not wait for
/// the preparation: starts the threads of kernels, measures the machine unless the measurements are
/// on file, and touches the pages of memory that programs use first.
///
/// Errors: if the environment variables do not allow the device to be set up; those of the device.
pub fn warm_up(device: Option<Device>) -> Result<()> {
    let device = device.unwrap_or_else(|| Context::current().device());
    Ok(devices::executor(device)?.runtime().device().warm_up()?)
}

/// Whether the current device is the host, whose memory arrays can share.
///
/// Errors: those of the first evaluation, if an environment variable is invalid.
pub fn shares_host_memory() -> Result<bool> {
    let executor = Context::current().executor()?;
    Ok(executor.runtime().device().id() == DeviceId::HOST)
}
