//! Dead code elimination: removes nodes that no output depends on.
//!
//! Laws. Never worse: only removes nodes. Terminates: each run that changes the graph shrinks it.
//! Exact: no remaining node changes. Unused arguments remain until [`drop_unused_arguments`].

use crate::Pass;
use girih_ir::{Graph, Node, NodeId};

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &str {
        "dead_code"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        let live = graph.live();
        let keep = |(id, node): (NodeId, &Node)| live[id.index()] || node.op.takes_argument();
        let keep: Vec<bool> = graph.nodes().map(keep).collect();
        Ok(keep.contains(&false).then(|| retain(graph, &keep)))
    }
}

/// Removes the arguments that no output depends on. Returns the graph, and the positions of the
/// remaining arguments among the original arguments, ascending.
pub fn drop_unused_arguments(graph: Graph) -> (Graph, Vec<usize>) {
    let live = graph.live();
    let kept = graph.arguments().enumerate().filter(|(_, id)| live[id.index()]);
    let kept: Vec<usize> = kept.map(|(position, _)| position).collect();
    let dropped = |(id, node): (NodeId, &Node)| !live[id.index()] && node.op.takes_argument();
    // An unused argument may have dead users if dead code elimination is switched off.
    let any = graph.nodes().any(dropped);
    match any {
        true => (retain(&graph, &live), kept),
        false => (graph, kept),
    }
}

/// The graph of the nodes marked in `keep`; `keep` must contain the operands of its nodes.
fn retain(graph: &Graph, keep: &[bool]) -> Graph {
    let mut result = graph.successor();
    let mut map = vec![NodeId(0); graph.len()];
    for (id, node) in graph.nodes().filter(|(id, _)| keep[id.index()]) {
        let mut moved = node.clone();
        moved.inputs.iter_mut().for_each(|i| *i = map[i.index()]);
        result.attribute(graph.origin(id));
        map[id.index()] = result.append(moved);
    }
    result.set_outputs(graph.outputs().iter().map(|o| map[o.index()]));
    result
}
