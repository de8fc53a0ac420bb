//! The canonical order of a closed graph's outputs, so that graphs which request the same values in
//! another order become one program.

use crate::hints::Hints;
use crate::{Graph, NodeId};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A graph with its outputs in canonical order, and the correspondence to the original.
#[derive(Clone, Debug, PartialEq)]
pub struct Canonical {
    /// The same computation; nodes are numbered depth-first from the outputs.
    pub graph: Graph,
    /// For each argument of `graph`, its position among the original's arguments.
    pub arguments: Vec<u32>,
    /// For each output of the original, its position among `graph`'s outputs.
    pub outputs: Vec<u32>,
}

impl Graph {
    /// Sorts the outputs by structure, independent of their original order. Outputs of equal
    /// structure but different leaves keep their order. Nodes that no output needs are removed,
    /// except arguments, which follow the other nodes.
    ///
    /// Cost: linear in the graph, except for sorting the outputs.
    pub fn canonical(&self) -> Canonical {
        let hashes = self.structure_hashes();
        let mut order: Vec<u32> = (0..self.outputs().len() as u32).collect();
        order.sort_by_key(|&o| hashes[self.outputs()[o as usize].index()]);
        let mut positions = vec![0; order.len()];
        for (position, &output) in order.iter().enumerate() {
            positions[output as usize] = position as u32;
        }
        let roots: Vec<NodeId> = order.iter().map(|&o| self.outputs()[o as usize]).collect();
        let numbering = self.depth_first(&roots);
        let mut graph = Graph::with_capacity(numbering.len());
        let mut renumbered = vec![NodeId(u32::MAX); self.len()];
        for &old in &numbering {
            let node = self.node(old);
            let inputs: Vec<NodeId> = node.inputs.iter().map(|i| renumbered[i.index()]).collect();
            renumbered[old.index()] =
                graph.push_unchecked(node.op.clone(), &inputs, node.spec.clone());
        }
        graph.set_outputs(roots.iter().map(|r| renumbered[r.index()]));
        graph.hints = self.hints.as_ref().map(|hints| {
            let moved = |(id, hints): (&NodeId, &Hints)| (renumbered[id.index()], hints.clone());
            let kept = hints.iter().map(moved).filter(|(id, _)| id.0 != u32::MAX);
            Arc::new(kept.collect())
        });
        graph.shardings = self.moved_shardings(|id| {
            Some(renumbered[id.index()]).filter(|number| number.0 != u32::MAX)
        });
        let mut argument = vec![u32::MAX; self.len()];
        for (position, id) in self.arguments().enumerate() {
            argument[id.index()] = position as u32;
        }
        let arguments = numbering.iter().filter(|id| self.node(**id).op.takes_argument());
        let arguments = arguments.map(|id| argument[id.index()]).collect();
        Canonical { graph, arguments, outputs: positions }
    }

    /// A hash of each node's computation: equal for equal computations, whatever their numbering.
    fn structure_hashes(&self) -> Vec<u64> {
        let mut hashes: Vec<u64> = Vec::with_capacity(self.len());
        for (id, node) in self.nodes() {
            let mut hasher = FxHasher::default();
            (&node.op, &node.spec).hash(&mut hasher);
            if let Some(spec) = self.partition(id) {
                spec.hash(&mut hasher);
            }
            node.inputs.iter().for_each(|i| hashes[i.index()].hash(&mut hasher));
            hashes.push(hasher.finish());
        }
        hashes
    }

    /// The nodes that the roots need, in depth-first postorder, root by root; then the arguments
    /// that no root needs.
    fn depth_first(&self, roots: &[NodeId]) -> Vec<NodeId> {
        let mut seen = vec![false; self.len()];
        let mut order = Vec::with_capacity(self.len());
        let mut stack: Vec<(NodeId, bool)> = Vec::new();
        let idle = self.arguments();
        for root in roots.iter().copied().chain(idle) {
            stack.push((root, false));
            while let Some((id, done)) = stack.pop() {
                if done {
                    order.push(id);
                } else if !std::mem::replace(&mut seen[id.index()], true) {
                    stack.push((id, true));
                    let inputs = self.node(id).inputs.iter().rev();
                    stack.extend(inputs.filter(|i| !seen[i.index()]).map(|&i| (i, false)));
                }
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::tests::key;
    use crate::{DType, GraphBuilder, TensorSpec};

    /// Two outputs of three leaves, numbered in the order of either output.
    fn pair(swapped: bool) -> Graph {
        let mut b = GraphBuilder::default();
        let spec = || TensorSpec::new([3], DType::F32);
        let mut leaves = [NodeId(0); 3];
        for i in if swapped { [2, 1, 0] } else { [0, 1, 2] } {
            leaves[i] = b.input(spec());
        }
        let [x, y, z] = leaves;
        let product = b.mul(x, y).unwrap();
        let (first, second) = if swapped {
            let second = b.sub(z, product).unwrap();
            (b.exp(product).unwrap(), second)
        } else {
            (b.exp(product).unwrap(), b.sub(z, product).unwrap())
        };
        b.finish(if swapped { [second, first] } else { [first, second] })
    }

    #[test]
    fn the_order_outputs_are_asked_for_in_does_not_change_the_canonical_graph() {
        let (one, other) = (pair(false), pair(true));
        assert_ne!(key(&one), key(&other));
        let (a, b) = (one.canonical(), other.canonical());
        assert_eq!(key(&a.graph), key(&b.graph));
        a.graph.verify().unwrap();
        // `outputs` maps each original output to its new position.
        for (graph, canonical) in [(&one, &a), (&other, &b)] {
            for (output, &at) in graph.outputs().iter().zip(&canonical.outputs) {
                let there = canonical.graph.outputs()[at as usize];
                assert_eq!(canonical.graph.node(there).op, graph.node(*output).op);
            }
            assert_eq!(canonical.arguments.len(), 3);
        }
        assert_ne!(a.arguments, b.arguments);
        // The canonical form is a fixed point.
        assert_eq!(a.graph.canonical().graph, a.graph);
        assert_eq!(a.graph.canonical().arguments, [0, 1, 2]);
    }

    #[test]
    fn equal_outputs_of_different_leaves_keep_their_order() {
        let mut b = GraphBuilder::default();
        let spec = || TensorSpec::new([3], DType::F32);
        let (x, y) = (b.input(spec()), b.input(spec()));
        let (p, q) = (b.exp(x).unwrap(), b.exp(y).unwrap());
        let graph = b.finish([q, p, q]);
        let canonical = graph.canonical();
        assert_eq!(canonical.outputs, [0, 1, 2]);
        assert_eq!(canonical.arguments, [1, 0]);
    }

    #[test]
    fn unused_arguments_keep_their_position_in_the_call() {
        let mut b = GraphBuilder::default();
        let (idle, x) =
            (b.input(TensorSpec::scalar(DType::F64)), b.input(TensorSpec::scalar(DType::F32)));
        let y = b.neg(x).unwrap();
        let canonical = b.finish([y]).canonical();
        assert_eq!(canonical.arguments, [1, 0]);
        let _ = idle;
    }
}
