//! Common subexpression elimination: of equal nodes, the first remains.
//!
//! Two nodes are equal if their ops, attributes and operands are, and for leaves also their shapes
//! and dtypes. The operands of commutative ops are sorted first. Nodes whose value is an argument
//! of the program (inputs, parameters, run-time scalars, random leaves) are never merged, nor are
//! calls with a side effect.
//!
//! Laws. Never worse: only removes nodes. Terminates: each run that changes the graph shrinks it.
//! Exact: equal ops on equal bits give equal bits.

use crate::Pass;
use girih_ir::graph::Operands;
use girih_ir::{Class, Graph, Node, NodeId, Op, TensorSpec};
use rustc_hash::{FxBuildHasher, FxHashMap};

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cse;

/// The facts that make two nodes equal. The spec of an op follows from the other facts; the spec of
/// a leaf does not.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    op: &'a Op,
    inputs: Operands,
    leaf: Option<&'a TensorSpec>,
}

impl<'a> Key<'a> {
    /// The key of a node; `first` maps each operand to its representative.
    fn of(node: &'a Node, first: &[NodeId]) -> Key<'a> {
        let mut inputs = Operands::from_slice(&node.inputs);
        inputs.iter_mut().for_each(|i| *i = first[i.index()]);
        if node.op.def().commutative {
            inputs.sort_unstable();
        }
        let leaf = (node.op.class() == Class::Leaf).then_some(&node.spec);
        Key { op: &node.op, inputs, leaf }
    }
}

impl Pass for Cse {
    fn name(&self) -> &str {
        "cse"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        let Some(first) = first_of_same(graph) else { return Ok(None) };
        let mut copies = vec![NodeId(0); graph.len()];
        graph.rewrite_nodes(|b, id, _| {
            let same = first[id.index()];
            if same != id {
                return Ok(Some(copies[same.index()]));
            }
            // The copy that `rewrite_nodes` is about to append.
            copies[id.index()] = NodeId(b.graph().len() as u32);
            Ok(None)
        })
    }
}

/// For each node, its representative: the first node that equals it. `None` if no two nodes are
/// equal.
fn first_of_same(graph: &Graph) -> Option<Vec<NodeId>> {
    let live = graph.live();
    let mut first: Vec<NodeId> = graph.ids().collect();
    let mut known = FxHashMap::with_capacity_and_hasher(graph.len(), FxBuildHasher);
    let mut repeats = false;
    for (id, node) in graph.nodes() {
        if live[id.index()] && !node.op.takes_argument() && !node.op.has_effect() {
            let same = *known.entry(Key::of(node, &first)).or_insert(id);
            repeats |= same != id;
            first[id.index()] = same;
        }
    }
    repeats.then_some(first)
}
