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
        let mut b = GraphBuilder::from_graph(Graph::with_capacity(self.len()));
        let live = self.live();
        // Dead nodes have only dead users, so their entries are never read.
        let mut map = vec![NodeId(0); self.len()];
        let mut changed = false;
        for (id, node) in self.nodes() {
            if !live[id.index()] && !node.op.takes_argument() {
                continue;
            }
            let inputs = node.inputs.iter().map(|i| map[i.index()]).collect();
            let moved = Node { op: node.op.clone(), inputs, spec: node.spec.clone() };
            map[id.index()] = match replace(&mut b, &moved)? {
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
        // A definition may use other composites: one round per level of these.
        while let Some(graph) =
            result.as_ref().unwrap_or(self).rewrite(|b, node| match node.op.class() {
                Class::Composite => b.decompose(&node.op, &node.inputs).map(Some),
                _ => Ok(None),
            })?
        {
            result = Some(graph);
        }
        Ok(result)
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
}
