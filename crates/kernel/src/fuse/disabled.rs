//! Refusals of the passes over kernels that are switched off: the fusions that such a pass would
//! make, found by running it on a copy of the program. Only explanations pay for the copy.

use super::build::Built;
use super::options::KernelPass;
use super::rows::FusionPart;
use super::{Lowering, Refusal, Refused};
use girih_ir::NodeId;

/// The fusions that a pass would make now.
pub(super) fn fusions(lowering: Lowering<'_>, built: &Built, pass: KernelPass) -> Vec<Refused> {
    let mut fused = Built {
        program: built.program.clone(),
        nodes: built.nodes.clone(),
        values: built.values.clone(),
        refusals: None,
    };
    let kernels = fused.program.kernels.iter().cloned().zip(fused.nodes.iter().cloned());
    let parts: Vec<FusionPart> =
        kernels.map(|kernel| FusionPart::new(&built.program, kernel)).collect();
    pass(lowering, &mut fused);
    let kernel_of = |part: &&FusionPart| position(&fused.nodes, part.root());
    let mut refused = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let mut earlier = parts[..at].iter().filter(|p| kernel_of(p) == kernel_of(&part));
        let Some(first) = earlier.clone().next() else { continue };
        let read = earlier.find_map(|p| p.writes.iter().find(|id| part.reads.contains(id)));
        let value = read.and_then(|id| built.values.get(id.0 as usize).copied().flatten());
        let (node, consumer) = match value {
            Some(value) => (value, part.consumer_of(lowering.graph, value)),
            None => (part.root(), first.root()),
        };
        refused.push(Refused { node, reason: Refusal::Disabled, consumer: Some(consumer) });
    }
    refused
}

/// Adds to the recorded refusals those of switched-off passes, except for fusions that a later pass
/// made after all.
pub(super) fn record(built: &mut Built, disabled: Vec<Refused>) {
    let Some(refusals) = &mut built.refusals else { return };
    for refused in disabled {
        let consumer = refused.consumer.and_then(|id| position(&built.nodes, id));
        if consumer.is_some() && position(&built.nodes, refused.node) == consumer {
            continue;
        }
        refusals.push(refused);
    }
}

/// The position of the kernel that computes a node: the kernel whose root the node is, or else the
/// first kernel that computes the node.
fn position(nodes: &[Vec<NodeId>], id: NodeId) -> Option<usize> {
    nodes
        .iter()
        .position(|nodes| nodes.last() == Some(&id))
        .or_else(|| nodes.iter().position(|nodes| nodes.contains(&id)))
}
