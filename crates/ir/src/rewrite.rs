//! Copies a graph node by node with some nodes replaced. Passes and the reference evaluator are
//! built on it.

use crate::ops::Class;
use crate::{DecompositionTarget, Graph, GraphBuilder, Node, NodeId, Result};

impl Graph {
    /// Copies the graph. For each node, with its operands mapped into the copy, `replace` may
    /// return a replacement. Returns `None` if nothing was replaced. Nodes that no output depends
    /// on are skipped, except arguments, which keep their order.
    ///
    /// The replacement must have the node's spec; debug builds check it.
    pub fn rewrite(
        &self,
        mut replace: impl FnMut(&mut GraphBuilder, &Node) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        self.rewrite_nodes(|b, _, node| replace(b, node))
    }

    /// As [`Graph::rewrite`], with a test that avoids the copy if there is nothing to replace:
    /// `replaces` must hold for the first node that is replaced.
    pub fn rewrite_if(
        &self,
        replaces: impl Fn(&Graph, &Node) -> bool,
        replace: impl FnMut(&mut GraphBuilder, &Node) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        match self.nodes().any(|(_, node)| replaces(self, node)) {
            true => self.rewrite(replace),
            false => Ok(None),
        }
    }

    /// As [`Graph::rewrite`], but `replace` also gets the node's id.
    pub fn rewrite_nodes(
        &self,
        mut replace: impl FnMut(&mut GraphBuilder, NodeId, &Node) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        let mut b = GraphBuilder::from_graph(self.successor());
        let live = self.live();
        // Dead nodes have only dead users, so nothing reads their entries.
        let mut map = vec![NodeId(0); self.len()];
        let mut changed = false;
        for (id, node) in self.nodes() {
            if !live[id.index()] && !node.op.takes_argument() {
                continue;
            }
            b.attribute(self.origin(id));
            b.record_as(self, id);
            let mut moved = node.clone();
            moved.inputs.iter_mut().for_each(|i| *i = map[i.index()]);
            map[id.index()] = match replace(&mut b, id, &moved)? {
                None => b.append(moved),
                Some(id) => {
                    debug_assert_eq!(*b.spec(id), moved.spec, "{} replaced", moved.op.name());
                    changed = true;
                    id
                }
            };
        }
        let outputs = self.outputs().iter().map(|o| map[o.index()]);
        Ok(changed.then(|| b.finish(outputs)))
    }

    /// Replaces every composite by its decomposition, down to primitives, and has half floats
    /// accumulated in f32 ([`Node::accumulates_halves`]); `None` if there is nothing to replace.
    pub fn decomposed(&self) -> Result<Option<Graph>> {
        self.decomposed_for(&DecompositionTarget::CPU)
    }

    /// As [`Graph::decomposed`], but for a target: its native composites remain, including native
    /// composites in the decompositions of other composites.
    pub fn decomposed_for(&self, target: &DecompositionTarget) -> Result<Option<Graph>> {
        let mut result: Option<Graph> = None;
        let composite = |node: &Node| {
            node.op.class() == Class::Composite && !target.native.contains(&node.op.code)
        };
        let replaced = |node: &Node| composite(node) || node.accumulates_halves();
        // A decomposition may contain composites, so repeat for each level.
        while let Some(graph) = result.as_ref().unwrap_or(self).rewrite_if(
            |_, node| replaced(node),
            |b, node| {
                if composite(node) {
                    b.target = *target;
                    return b.decompose(&node.op, &node.inputs).map(Some);
                }
                node.accumulates_halves().then(|| accumulate_wide(b, node)).transpose()
            },
        )? {
            result = Some(graph);
        }
        Ok(result)
    }
}

/// An op that accumulates half floats, computed in f32 and rounded once.
fn accumulate_wide(b: &mut GraphBuilder, node: &Node) -> Result<NodeId> {
    let dtype = node.spec.dtype;
    let mut inputs = node.inputs.clone();
    for input in inputs.iter_mut() {
        if b.dtype(*input) == dtype {
            *input = b.widen(*input)?;
        }
    }
    let wide = b.emit(node.op.clone(), &inputs)?;
    b.cast(wide, dtype)
}

/// For each node of a rewritten graph, the node of the recorded graph that it comes from. Off by
/// default, since only diagnostics need origins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    on: bool,
    current: Option<NodeId>,
    of: Vec<Option<NodeId>>,
}

impl Origins {
    /// Records the origin of an appended node.
    #[inline]
    pub fn append(&mut self) {
        if self.on {
            self.of.push(self.current);
        }
    }
}

impl Graph {
    /// From now on, graphs rewritten from this one know each node's origin in this graph.
    /// Comparison and encoding ignore origins.
    pub fn track_origins(&mut self) {
        let of = self.ids().map(Some).collect();
        self.origins = Origins { on: true, current: None, of };
    }

    /// The origin of a node in the graph on which [`Graph::track_origins`] was called. If a node
    /// replaces several nodes, its origin is the first of them.
    pub fn origin(&self, id: NodeId) -> Option<NodeId> {
        self.origins.of.get(id.index()).copied().flatten()
    }

    /// An empty graph with capacity for as many nodes as this graph, for a rewritten copy of this
    /// graph.
    pub fn successor(&self) -> Graph {
        let mut graph = Graph::with_capacity(self.len());
        graph.origins.on = self.origins.on;
        graph
    }

    /// Attributes the nodes appended from now on to `origin`.
    pub fn attribute(&mut self, origin: Option<NodeId>) {
        self.origins.current = origin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Attrs, ScatterMode};
    use crate::{DType, Op, OpCode, TensorSpec};

    #[test]
    fn definitions_are_expanded_down_to_primitives() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let silu = b.op(OpCode::Silu, &[x]).unwrap();
        let graph = b.finish([silu]).decomposed().unwrap().unwrap();
        graph.verify().unwrap();
        assert!(graph.nodes().all(|(_, n)| n.op.class() != Class::Composite), "{graph}");
        assert_eq!(graph.decomposed(), Ok(None));
    }

    #[test]
    fn native_composites_are_kept_within_decompositions() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2, 3], DType::F32));
        let silu = b.op(OpCode::Silu, &[x]).unwrap();
        let silu = b.finish([silu]);
        let of = |native: &'static [OpCode]| {
            silu.decomposed_for(&DecompositionTarget { native, ..DecompositionTarget::CPU })
        };
        assert_eq!(of(&[OpCode::Silu]), Ok(None));
        // The definition of silu contains a sigmoid.
        let graph = of(&[OpCode::Sigmoid]).unwrap().unwrap();
        let composites = graph.nodes().filter(|(_, n)| n.op.class() == Class::Composite);
        let composites: Vec<_> = composites.map(|(_, n)| n.op.code).collect();
        assert_eq!(composites, [OpCode::Sigmoid], "{graph}");
    }

    #[test]
    fn half_floats_are_accumulated_in_f32() {
        let accumulated = |dtype, mode| {
            let mut b = GraphBuilder::default();
            let (x, updates) =
                (b.input(TensorSpec::new([3], dtype)), b.input(TensorSpec::new([5], dtype)));
            let indices = b.input(TensorSpec::new([5], DType::I64));
            let attrs = Attrs::ScatterInto { axis: 0, mode };
            let out = b.emit(Op::new(OpCode::Scatter, attrs), &[x, indices, updates]).unwrap();
            let graph = b.finish([out]);
            let plain = graph.decomposed().unwrap()?;
            assert_eq!(plain.spec(plain.outputs()[0]).dtype, dtype);
            let scatter = plain.nodes().find(|(_, n)| n.op.code == OpCode::Scatter);
            Some(scatter.unwrap().1.spec.dtype)
        };
        for dtype in [DType::F16, DType::BF16] {
            for mode in [ScatterMode::Add, ScatterMode::Mul] {
                assert_eq!(accumulated(dtype, mode), Some(DType::F32), "{dtype} {mode:?}");
            }
            for mode in [ScatterMode::Set, ScatterMode::Min, ScatterMode::Max] {
                assert_eq!(accumulated(dtype, mode), None, "{dtype} {mode:?}");
            }
        }
        assert_eq!(accumulated(DType::F32, ScatterMode::Add), None);
        assert_eq!(accumulated(DType::I64, ScatterMode::Add), None);
    }

    #[test]
    fn rewritten_nodes_record_their_origin_on_request() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let (n, silu) = (b.neg(x).unwrap(), b.op(OpCode::Silu, &[x]).unwrap());
        let mut graph = b.finish([n, silu]);
        let plain = graph.decomposed().unwrap().unwrap();
        assert!(plain.ids().all(|id| plain.origin(id).is_none()));
        graph.track_origins();
        let tracked = graph.decomposed().unwrap().unwrap();
        assert_eq!(tracked, plain, "a graph is the same with and without");
        let origins: Vec<_> = tracked.ids().map(|id| tracked.origin(id)).collect();
        assert_eq!(origins[..2], [Some(x), Some(n)]);
        assert!(origins.len() > 3 && origins[2..].iter().all(|&o| o == Some(silu)), "{origins:?}");
    }
}
