//! The cost of a reshard on the links of a mesh.

use super::{Phase, Reshard};
use girih_ir::DeviceMesh;
use std::collections::HashMap;

impl Reshard {
    /// The seconds that the transfers take on the links of a mesh, for elements of `item` bytes.
    /// `None` if a device that sends or receives is not in the mesh, or the link of an axis along
    /// which something is sent is unknown.
    ///
    /// The model: a transfer goes along each axis on which source and target differ, one after the
    /// other. All transfers of a phase run at once, so that a phase takes the longest latency and the
    /// time in which the busiest device sends or receives its bytes along one axis. Source: the
    /// alpha-beta model of Hockney 1994.
    pub fn cost(&self, mesh: &DeviceMesh, item: usize) -> Option<f64> {
        let positions: HashMap<u32, Vec<usize>> =
            (0..mesh.len()).map(|at| (mesh.device(at), mesh.coordinates(at))).collect();
        self.phases.iter().map(|phase| phase_cost(phase, mesh, &positions, item)).sum()
    }

    /// The sum of the bytes of each transfer times the distance that it goes, for elements of `item`
    /// bytes: on a fabric of wires, hops.
    pub fn byte_hops(&self, item: usize, distance: impl Fn(u32, u32) -> usize) -> usize {
        let hops = self.crossing().map(|transfer| {
            let bytes = transfer.rect.len().saturating_mul(item);
            bytes.saturating_mul(distance(transfer.source, transfer.target))
        });
        hops.fold(0, usize::saturating_add)
    }
}

fn phase_cost(
    phase: &Phase,
    mesh: &DeviceMesh,
    positions: &HashMap<u32, Vec<usize>>,
    item: usize,
) -> Option<f64> {
    let links: Vec<_> = mesh.axes().map(|axis| mesh.link(axis)).collect();
    let mut latency = 0f64;
    // The bytes of each device along each axis: sent and received.
    let mut load: HashMap<(u32, usize, bool), f64> = HashMap::new();
    for transfer in phase.transfers.iter().filter(|transfer| !transfer.is_local()) {
        let (source, target) = (positions.get(&transfer.source)?, positions.get(&transfer.target)?);
        let bytes = transfer.rect.len() as f64 * item as f64;
        let mut way = 0.0;
        for axis in (0..links.len()).filter(|&axis| source[axis] != target[axis]) {
            way += links[axis]?.latency();
            *load.entry((transfer.source, axis, true)).or_default() += bytes;
            *load.entry((transfer.target, axis, false)).or_default() += bytes;
        }
        latency = latency.max(way);
    }
    let mut busiest = 0f64;
    for ((_, axis, _), bytes) in load {
        busiest = busiest.max(bytes / links[axis]?.bandwidth());
    }
    Some(latency + busiest)
}
