//! Loop-invariant code motion out of a scan: ops that depend only on captured operands are computed
//! once before the loop, and their values are captured instead.

use super::{Edit, Loop, Loops, elements, is_computed, is_view};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, OpCode, Result};

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let edit = |of| Edit { captured: invariants(of), ..Edit::default() };
    let edits: Vec<Edit> = loops.all.iter().map(edit).collect();
    if edits.iter().all(Edit::is_empty) {
        return Ok(None);
    }
    loops.rewrite(
        graph,
        &edits,
        |b, moved, at, which| Ok(outside(b, &loops.all[at], edits[at].captured[which], moved.old)),
        |_, _, _, _| Ok(None),
    )
}

/// Copies a node of the body and everything that it depends on; `operands` are the scan's operands.
fn outside(b: &mut GraphBuilder, of: &Loop, node: NodeId, operands: &[NodeId]) -> NodeId {
    let mut map: Vec<Option<NodeId>> = vec![None; of.body().len()];
    for (id, operand) in of.body().arguments().zip(operands) {
        map[id.index()] = Some(*operand);
    }
    b.copy_nodes(of.body(), map, &[node])[0]
}

/// Invariant nodes that are outputs or have a variant user, and that are worth moving: they
/// compute, and are no larger than the largest captured operand that they read.
fn invariants(of: &Loop) -> Vec<NodeId> {
    let body = of.body();
    let (invariant, live) = (of.invariants(), body.live());
    // Whether an invariant node and all its ancestors can move (they are computed, and cannot fail:
    // the loop may run zero times), and the size of
    // the largest argument that it reads.
    let (mut movable, mut reads) = (vec![false; body.len()], vec![0; body.len()]);
    for (id, node) in body.nodes().filter(|(id, _)| invariant[id.index()]) {
        let leaf = node.inputs.is_empty();
        let inputs = || node.inputs.iter().map(|i| i.index());
        let moves = (is_computed(node) || is_moved(node)) && !node.op.can_fail();
        movable[id.index()] = leaf || moves && inputs().all(|input| movable[input]);
        reads[id.index()] = match node.op.takes_argument() {
            true => elements(&node.spec).max(1),
            false => inputs().map(|input| reads[input]).max().unwrap_or(0),
        };
    }
    let worth = |id: NodeId| {
        let node = body.node(id);
        let computes = computes(body, id);
        movable[id.index()] && computes && elements(&node.spec) <= reads[id.index()]
    };
    let mut found: Vec<NodeId> = Vec::new();
    let mut add = |id: NodeId| {
        if worth(id) && !found.contains(&id) {
            found.push(id);
        }
    };
    for (id, node) in body.nodes().filter(|(id, _)| live[id.index()] && !invariant[id.index()]) {
        debug_assert!(!movable[id.index()]);
        node.inputs.iter().for_each(|&i| add(i));
    }
    body.outputs().iter().for_each(|&o| add(o));
    found
}

/// True for ops that only move elements.
fn is_moved(node: &Node) -> bool {
    is_view(node) || matches!(node.op.code, OpCode::BroadcastTo | OpCode::Slice)
}

/// True if the node depends on more than a chain of views of an argument.
fn computes(body: &Graph, id: NodeId) -> bool {
    let node = body.node(id);
    match node.inputs.len() {
        0 => false,
        _ if is_moved(node) => computes(body, node.inputs[0]),
        _ => true,
    }
}
