//! The cost of recomputing a value: the estimate by which fusion decides to compute a value in
//! several kernels rather than store it.

use crate::target::RecomputeLimits;
use girih_ir::ops::Cost;
use girih_ir::{Class, Graph, NodeId, OpCode};

/// Cost of an expensive op at one point, in units of an addition.
const HEAVY: u32 = 16;

/// Cost of one op at one point.
pub(super) fn of(code: OpCode) -> u32 {
    match code.def().cost {
        Cost::Free => 0,
        Cost::Arithmetic | Cost::Move => 1,
        Cost::Lookup | Cost::Division | Cost::Remainder => 2,
        Cost::Exponential | Cost::Transcendental | Cost::Hypotenuse => HEAVY,
        // Never recomputed. A check may run once per label, not once per class.
        Cost::Random | Cost::Special | Cost::Series | Cost::Checked => 4 * HEAVY,
    }
}

/// The estimate for one value, including the producers that would be computed with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecomputeCost {
    /// Cost of all ops.
    pub cost: u32,
    /// The number of full-size operands that are loaded.
    pub loads: u32,
    /// The longest path of ops and views.
    pub depth: u32,
    /// True if it consumes the results of a reduction or GEMM in order and is their only consumer:
    /// computed in that kernel, it needs no memory beyond that of those results.
    pub epilogue: bool,
}

/// The estimate for a node, given those of its operands. Operands that will be in memory anyway
/// cost a load.
pub(super) fn recompute(
    graph: &Graph,
    limits: &RecomputeLimits,
    id: NodeId,
    uses: &[u32],
    recompute_costs: &[RecomputeCost],
) -> RecomputeCost {
    let node = graph.node(id);
    if node.op.class() == Class::Leaf {
        let loads = matches!(node.op.code, OpCode::Input | OpCode::Parameter) as u32;
        return RecomputeCost { cost: of(node.op.code), loads, ..RecomputeCost::default() };
    }
    let mut sum = RecomputeCost { cost: of(node.op.code), depth: 1, ..RecomputeCost::default() };
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
        ) || (uses[input.index()] > 1 && recompute.cost > limits.max_cost);
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
    use crate::Target;
    use girih_ir::{DType, GraphBuilder, TensorSpec};

    #[test]
    fn the_definition_of_an_op_gives_its_cost() {
        use OpCode::*;
        let costs = |codes: &[OpCode]| codes.iter().map(|&code| of(code)).collect::<Vec<_>>();
        assert_eq!(costs(&[Input, Iota, Reshape, Matmul, ReduceSum, Softmax, Scatter]), [0; 7]);
        assert_eq!(costs(&[Add, Neg, Maximum, Eq, Cast, Bitcast, Where, Real]), [1; 8]);
        assert_eq!(costs(&[Div, Sqrt, Fmod, Take, TakeAlongAxis, WrapIndex]), [2; 6]);
        assert_eq!(costs(&[Exp, Tanh, Sin, Pow, Hypot]), [HEAVY; 5]);
        assert_eq!(costs(&[RandomNormal, Philox, Erfc, Igamma, CheckLabel]), [4 * HEAVY; 5]);
    }

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
            let next = recompute(&g, &Target::CPU.recompute, id, &uses, &recompute_costs);
            recompute_costs.push(next);
        }
        assert_eq!((recompute_costs[e.index()].cost, recompute_costs[y.index()].cost), (HEAVY, 1));
        assert_eq!(recompute_costs[y.index()].loads, 1);
    }
}
