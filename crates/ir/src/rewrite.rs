//! Copying a graph node by node with some nodes replaced: what passes and the reference evaluator
//! are built on.

use crate::ops::Class;
use crate::{Graph, GraphBuilder, Node, NodeId, Result};

impl Graph {
    /// Copies the graph, asking `replace` for each node, with its operands already mapped into the
    /// copy, whether another node stands for it there. Gives `None` if none was replaced. Nodes that
    /// no output depends on are neither asked about nor copied, but for arguments, which keep their
    /// order.
    ///
    /// The replacement must have the node's spec; debug builds check it.
    pub fn rewrite(
        &self,
        mut replace: impl FnMut(&mut GraphBuilder, &Node) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        self.rewrite_nodes(|b, _, node| replace(b, node))
    }

    /// Like [`Graph::rewrite`] where `replaces` tells without a copy whether there is anything to
    /// replace: it is asked about nodes of this graph, and holds of the first that is replaced.
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

    /// Like [`Graph::rewrite`], and says which node is asked about.
    pub fn rewrite_nodes(
        &self,
        mut replace: impl FnMut(&mut GraphBuilder, NodeId, &Node) -> Result<Option<NodeId>>,
    ) -> Result<Option<Graph>> {
        let mut b = GraphBuilder::from_graph(self.successor());
        let live = self.live();
        // Dead nodes have only dead users, so their entries are never read.
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

    /// The graph with every composite replaced by its definition, down to primitives; `None` if
    /// it has none.
    pub fn decomposed(&self) -> Result<Option<Graph>> {
        let mut result: Option<Graph> = None;
        let composite = |node: &Node| node.op.class() == Class::Composite;
        // A definition may use other composites: one round per level of these.
        while let Some(graph) = result.as_ref().unwrap_or(self).rewrite_if(
            |_, node| composite(node),
            |b, node| match composite(node) {
                true => b.decompose(&node.op, &node.inputs).map(Some),
                false => Ok(None),
            },
        )? {
            result = Some(graph);
        }
        Ok(result)
    }
}

/// Which nodes of the graph as it was recorded those of a rewritten one come from. Off unless asked
/// for: only people want to know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    on: bool,
    current: Option<NodeId>,
    of: Vec<Option<NodeId>>,
}

impl Origins {
    /// A node is appended.
    #[inline]
    pub fn append(&mut self) {
        if self.on {
            self.of.push(self.current);
        }
    }
}

impl Graph {
    /// From here on, graphs rewritten from this one know of each node which of this graph's nodes
    /// it was made for. Not part of what a graph is: ignored by comparison and encoding.
    pub fn track_origins(&mut self) {
        let of = self.ids().map(Some).collect();
        self.origins = Origins { on: true, current: None, of };
    }

    /// The node, of the graph on which [`Graph::track_origins`] was called, that this one was made
    /// for; of several it stands for, the first.
    pub fn origin(&self, id: NodeId) -> Option<NodeId> {
        self.origins.of.get(id.index()).copied().flatten()
    }

    /// An empty graph with room for as many nodes, to be filled with what becomes of this one.
    pub fn successor(&self) -> Graph {
        let mut graph = Graph::with_capacity(self.len());
        graph.origins.on = self.origins.on;
        graph
    }

    /// What is appended from here on was made for that node.
    pub fn attribute(&mut self, origin: Option<NodeId>) {
        self.origins.current = origin;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, OpCode, TensorSpec};

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
    fn rewritten_nodes_know_what_they_were_made_for_if_asked() {
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
