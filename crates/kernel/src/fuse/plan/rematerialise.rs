//! Rematerialisation: decides whether two kernels both compute a large value that both need, as the
//! forward and the backward half of a training step do.

use super::{Demand, FusedInto, Planner};
use girih_ir::{Class, Node, NodeId};
use smallvec::SmallVec;

/// The work of a kernel that computes a value.
struct Work {
    kernel: u32,
    /// The number of elements of the value.
    numel: usize,
    cost: u32,
    /// The nodes that are already counted.
    seen: SmallVec<[NodeId; 16]>,
}

impl Planner<'_> {
    /// Whether the later kernel reads all operands of the value in any case, and computing the
    /// value is cheaper than storing and loading it.
    pub(super) fn is_cheaper_to_rematerialise(
        &self,
        id: NodeId,
        node: &Node,
        demand: Demand,
    ) -> bool {
        let FusedInto::Two(a, b) = demand.fused_into else { return false };
        if !self.plan.options.rematerialisation {
            return false;
        }
        let numel = node.spec.numel();
        let large =
            numel.saturating_mul(node.spec.dtype.size()) >= self.target.recompute.uncached_bytes;
        if !large || demand.scattered || demand.output {
            return false;
        }
        // Kernels are planned in reverse.
        let mut work = Work { kernel: a.min(b), numel, cost: 0, seen: SmallVec::new() };
        self.add_work(id, &mut work)
    }

    /// Adds the work of a node; false if the work exceeds the limit, or needs memory that the
    /// kernel does not read in any case.
    fn add_work(&self, id: NodeId, work: &mut Work) -> bool {
        let node = self.graph.node(id);
        work.cost += self.target.cost(node.op.code);
        work.seen.push(id);
        node.op.class() == Class::Elementwise
            && work.cost <= self.target.recompute.max_cost_of_uncached
            && node.inputs.iter().all(|&input| {
                work.seen.contains(&input)
                    || self.at_hand(input, work)
                    || self.graph.spec(input).numel() == work.numel && self.add_work(input, work)
            })
    }

    fn at_hand(&self, id: NodeId, work: &Work) -> bool {
        let op = &self.graph.node(id).op;
        self.demands[id.index()].fused_into.iter().any(|kernel| kernel == work.kernel)
            || op.class() == Class::Leaf && !op.is_random()
            || self.is_broadcast(id, work.numel)
    }

    /// Whether the node is a view of a much smaller value.
    fn is_broadcast(&self, id: NodeId, numel: usize) -> bool {
        let node = self.graph.node(id);
        let ratio = self.target.recompute.broadcast_ratio;
        let small = |operand: NodeId| self.graph.spec(operand).numel() <= numel / ratio;
        matches!(node.op.class(), Class::View | Class::Reshape)
            && (small(node.inputs[0]) || self.is_broadcast(node.inputs[0], numel))
    }
}
