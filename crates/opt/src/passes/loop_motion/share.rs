//! Shares values between a scan and the scan of its derivative. The latter recomputes each
//! iteration from the carries before it (the history of the first scan), and from the first scan's
//! slices and captured operands. The first scan stacks the matmuls among these, and the second scan
//! takes them as slices.

use super::{Edit, Kind, Loop, Loops, Users};
use girih_ir::graph::Operands;
use girih_ir::ops::Class;
use girih_ir::{Graph, Node, NodeId, Op, Result, TensorSpec};
use rustc_hash::FxHashMap;

/// Smallest K of a matmul that is stacked. Below it, recomputing costs no more than writing and
/// reading the result.
const MIN_CONTRACTED: usize = 16;

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let mut edits: Vec<Edit> = loops.all.iter().map(|_| Edit::default()).collect();
    // For each scan, the source of each of its new operands, as a scan and the index of its result.
    let mut taken: Vec<Vec<(usize, usize)>> = vec![Vec::new(); loops.all.len()];
    for (second, of) in loops.all.iter().enumerate() {
        let Some(first) = origin(loops, of) else { continue };
        let from = &loops.all[first];
        // The first scan has new operands itself, which would have to be matched with the operands
        // of the second scan.
        if !edits[first].slices.is_empty() {
            continue;
        }
        for (node, same) in shared(loops, first, second) {
            let number = edits[first].stacks(from, same);
            edits[second].slices.push(node);
            taken[second].push((first, number));
        }
    }
    if edits.iter().all(Edit::is_empty) {
        return Ok(None);
    }
    loops.rewrite(
        graph,
        &edits,
        |b, moved, at, which| {
            let (first, number) = taken[at][which];
            moved.result(b, first, number)
        },
        |_, _, _, _| Ok(None),
    )
}

/// The scan whose history is sliced by the scan `of`.
fn origin(loops: &Loops, of: &Loop) -> Option<usize> {
    of.inputs[of.carries()..of.slices_end()].iter().find_map(|operand| {
        let &(first, result) = loops.of_node.get(operand)?;
        let from = &loops.all[first];
        let history = result >= from.body().outputs().len();
        (history && from.control.length == of.control.length).then_some(first)
    })
}

/// The nodes of the second scan's body that the first body computes too and that are worth
/// stacking, with their counterparts in the first body.
fn shared(loops: &Loops, first: usize, second: usize) -> Vec<(NodeId, NodeId)> {
    let (from, of) = (&loops.all[first], &loops.all[second]);
    let same = counterparts(loops, first, second);
    let body = of.body();
    let users = Users::of(body);
    let mut found: Vec<(NodeId, NodeId)> = Vec::new();
    for (id, node) in body.nodes() {
        let matmul = node.op.class() == Class::Contraction && node.inputs.len() == 2;
        if !matmul || contracted(body, node) < MIN_CONTRACTED || !users.live(id) {
            continue;
        }
        if same[id.index()].is_none() {
            continue;
        }
        let id = absorbed(body, &users, &same, id);
        let counterpart = same[id.index()].expect("only shared nodes absorb");
        // An argument of the first body needs no stacking.
        if !from.body().node(counterpart).op.takes_argument()
            && !found.iter().any(|(n, _)| *n == id)
        {
            found.push((id, counterpart));
        }
    }
    found
}

/// K of a matmul in the body.
fn contracted(body: &Graph, matmul: &Node) -> usize {
    body.spec(matmul.inputs[0]).shape.hints().last().copied().unwrap_or(0)
}

/// For each node of the second body, the node of the first body with the same value in the
/// iteration with the same slices.
fn counterparts(loops: &Loops, first: usize, second: usize) -> Vec<Option<NodeId>> {
    let (from, of) = (&loops.all[first], &loops.all[second]);
    let (body, original) = (of.body(), from.body());
    let arguments: Vec<NodeId> = original.arguments().collect();
    let mut nodes: FxHashMap<(&Op, Operands, &TensorSpec), NodeId> = FxHashMap::default();
    for (id, node) in original.nodes().filter(|(_, n)| !n.op.takes_argument()) {
        nodes.insert((&node.op, node.inputs.clone(), &node.spec), id);
    }
    let argument = |number: usize| -> Option<NodeId> {
        let (kind, operand) = (of.kind(number), of.inputs[number]);
        let given = original.outputs().len();
        match loops.of_node.get(&operand) {
            Some(&(at, result)) if at == first && kind == Kind::Slice && result >= given => {
                return Some(arguments[result - given]);
            }
            _ => {}
        }
        let same = |&i: &usize| from.inputs[i] == operand && from.kind(i) == kind;
        (from.carries()..from.inputs.len()).find(same).map(|i| arguments[i])
    };
    let mut same: Vec<Option<NodeId>> = vec![None; body.len()];
    for (number, id) in body.arguments().enumerate() {
        same[id.index()] = if of.kind(number) == Kind::Carry { None } else { argument(number) };
    }
    for (id, node) in body.nodes().filter(|(_, n)| !n.op.takes_argument()) {
        let inputs: Option<Operands> = node.inputs.iter().map(|i| same[i.index()]).collect();
        same[id.index()] =
            inputs.and_then(|inputs| nodes.get(&(&node.op, inputs, &node.spec)).copied());
    }
    same
}

/// Follows the chain of elementwise ops from a matmul, as long as each op is the only user of the
/// previous one and is shared too. Stacking the last op stores one value for `x @ w + h @ u + b`.
fn absorbed(body: &Graph, users: &Users, same: &[Option<NodeId>], matmul: NodeId) -> NodeId {
    let mut at = matmul;
    while let Some(user) = users.only(at) {
        let node: &Node = body.node(user);
        let fits = node.op.class() == Class::Elementwise
            && node.spec.shape == body.spec(at).shape
            && node.spec.dtype == body.spec(at).dtype;
        if !fits || same[user.index()].is_none() {
            break;
        }
        at = user;
    }
    at
}
