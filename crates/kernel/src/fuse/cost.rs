//! The cost of recomputing a value: the estimate by which fusion decides to compute a value in
//! several kernels rather than store it.

use crate::Target;
use girih_ir::{Class, Graph, NodeId, OpCode};

/// The estimate for one value, including the producers that would be computed with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecomputeCost {
    /// The cost of all ops.
    pub cost: u32,
    /// The number of full-size operands that are loaded.
    pub loads: u32,
    /// The longest path of ops and views.
    pub depth: u32,
    /// Whether the value consumes the results of a reduction or GEMM in order and is their only
    /// consumer. Computed in that kernel, the value needs no memory beyond the memory of those
    /// results.
    pub epilogue: bool,
}

/// The estimate for a node, given the estimates of its operands. Operands that will be in memory in
/// any case cost a load.
pub(super) fn recompute(
    graph: &Graph,
    target: &Target,
    id: NodeId,
    uses: &[u32],
    recompute_costs: &[RecomputeCost],
) -> RecomputeCost {
    let node = graph.node(id);
    let cost = target.cost(node.op.code);
    if node.op.class() == Class::Leaf {
        let loads = matches!(node.op.code, OpCode::Input | OpCode::Parameter) as u32;
        return RecomputeCost { cost, loads, ..RecomputeCost::default() };
    }
    let mut sum = RecomputeCost { cost, depth: 1, ..RecomputeCost::default() };
    let in_order = matches!(node.op.class(), Class::Elementwise | Class::Reshape);
    let numel = node.spec.numel();
    for (at, &input) in node.inputs.iter().enumerate() {
        // An operand that occurs twice is computed once.
        if node.inputs[..at].contains(&input) {
            continue;
        }
        let (class, recompute) = (graph.node(input).op.class(), recompute_costs[input.index()]);
        let stored = matches!(
            class,
            Class::Reduction
                | Class::Contraction
                | Class::Combine
                | Class::Library
                | Class::Control
        ) || (uses[input.index()] > 1 && recompute.cost > target.recompute.max_cost);
        let full = graph.spec(input).numel() >= numel;
        let core = matches!(class, Class::Reduction | Class::Contraction);
        sum.epilogue |= in_order
            && graph.spec(input).numel() == numel
            && uses[input.index()] == 1
            && (core || recompute.epilogue);
        if stored {
            sum.loads += full as u32;
        } else {
            sum.cost = sum.cost.saturating_add(recompute.cost);
            sum.loads = sum.loads.saturating_add(if full { recompute.loads } else { 0 });
            sum.depth = sum.depth.max(recompute.depth + 1);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::{DType, GraphBuilder, TensorSpec};

    #[test]
    fn a_value_that_is_stored_anyway_costs_its_users_a_load() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([8], DType::F32));
        let e = b.exp(x).unwrap();
        let (y, z) = (b.neg(e).unwrap(), b.abs(e).unwrap());
        let g = b.finish([y, z]);
        let uses = g.use_counts();
        let mut recompute_costs = Vec::new();
        for id in g.ids() {
            let next = recompute(&g, &Target::CPU, id, &uses, &recompute_costs);
            recompute_costs.push(next);
        }
        assert_eq!(
            (recompute_costs[e.index()].cost, recompute_costs[y.index()].cost),
            (Target::CPU.costs.exponential, 1)
        );
        assert_eq!(recompute_costs[y.index()].loads, 1);
    }
}
