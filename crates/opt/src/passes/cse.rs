//! Common subexpression elimination: of nodes that compute the same, the first is kept.
//!
//! Two nodes are the same if op, attributes and operands are; for leaves also shape and dtype. The
//! operands of commutative ops are compared in one order. Nodes whose value comes with the program's
//! arguments (inputs, parameters, run-time scalars, random draws) are never the same.
//!
//! Laws. Never worse: only removes. Terminates: each run that changes the graph shrinks it. Exact:
//! equal ops on equal bits give equal bits.

use crate::Pass;
use girih_ir::graph::Operands;
use girih_ir::{Class, Graph, Node, NodeId, Op, TensorSpec};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// See the module.
pub struct Cse;

/// What makes two nodes the same. The spec of an op follows from the rest; that of a leaf does not.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    inputs: Operands,
    leaf: Option<TensorSpec>,
}

impl Key {
    fn of(node: &Node) -> Key {
        let mut inputs = node.inputs.clone();
        if node.op.def().commutative {
            inputs.sort_unstable();
        }
        let leaf = (node.op.class() == Class::Leaf).then(|| node.spec.clone());
        Key { op: node.op.clone(), inputs, leaf }
    }
}

impl Pass for Cse {
    fn name(&self) -> &'static str {
        "cse"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        let mut first: FxHashMap<Key, NodeId> = FxHashMap::default();
        graph.rewrite(|b, node| {
            if node.op.takes_argument() {
                return Ok(None);
            }
            match first.entry(Key::of(node)) {
                Entry::Occupied(same) => Ok(Some(*same.get())),
                Entry::Vacant(new) => {
                    // The copy that `rewrite` is about to append.
                    new.insert(NodeId(b.graph().len() as u32));
                    Ok(None)
                }
            }
        })
    }
}
