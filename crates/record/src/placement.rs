//! The device that a call means: the current one, or that of its operands.

use crate::context::Context;
use crate::device::Device;
use crate::devices;
use crate::error::{Error, Result};
use crate::mesh::{MeshPlacement, PlacedMesh};
use crate::node::Node;
use crate::place::Place;
use crate::trace;
use girih_runtime::{DeviceId, MemoryStats};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::sync::Arc;

impl Device {
    /// The device on which the tensors of a front end are computed together; the current device if
    /// there are no tensors, and the first device of the mesh if they are on one. `what` names the
    /// operation in the error.
    ///
    /// Errors: [`Error::MixedDevices`].
    pub fn common<H: Borrow<Arc<Node>>>(what: &'static str, tensors: &[&H]) -> Result<Device> {
        let nodes = || tensors.iter().map(|tensor| (*tensor).borrow());
        if let Some(mesh) = mesh_of(&nodes().collect::<SmallVec<[_; 8]>>()) {
            return match nodes().all(|node| takes(mesh, node)) {
                true => Ok(mesh.first_device()),
                false => Err(mixed(what, nodes())),
            };
        }
        let mut places = nodes().map(|node| node.place());
        let Some(first) = places.next() else { return Ok(Context::current().device()) };
        let all = places.try_fold(first, Place::merge);
        all.map(Place::device).ok_or_else(|| mixed(what, nodes()))
    }
}

/// The mesh of the first node that is on one.
pub(crate) fn mesh_of(nodes: &[&Arc<Node>]) -> Option<&'static PlacedMesh> {
    let mut placements = nodes.iter().filter_map(|node| node.place().sharding());
    placements.next().map(MeshPlacement::mesh)
}

/// Whether a node can be an operand on a mesh: it is on the mesh, on one device of it, or floats.
pub(crate) fn takes(mesh: &'static PlacedMesh, node: &Node) -> bool {
    let place = node.place();
    match place.sharding() {
        Some(own) => std::ptr::eq(own.mesh(), mesh),
        None => place.is_floating() || mesh.devices().contains(&place.device()),
    }
}

/// The error of an op whose operands are on several devices.
pub(crate) fn mixed<'a>(
    op: &'static str,
    operands: impl IntoIterator<Item = &'a Arc<Node>>,
) -> Error {
    let operand = |node: &Arc<Node>| match node.place().is_floating() {
        true => format!("{} anywhere", node.spec()),
        false => match node.place().sharding() {
            Some(placement) => format!("{} over {placement}", node.spec()),
            None => format!("{} on {}", node.spec(), trace::device_of(node)),
        },
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
