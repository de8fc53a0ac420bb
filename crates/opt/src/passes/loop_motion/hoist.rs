//! Code that leaves the body of a scan: what depends on captured operands alone, and products of a
//! part of an operand with an invariant matrix, which become one product of the whole operand.

use super::{
    Edit, Kind, Loop, Loops, ProductSizes, elements, is_computed, is_view, view_outside, viewed,
};
use girih_ir::{Graph, GraphBuilder, Node, NodeId, OpCode, Result};

/// How a node of the body is computed outside.
#[derive(Clone, Copy)]
enum Hoisted {
    /// As it is, from the captured operands.
    Invariant(NodeId),
    /// A product of a view of a part and a view of a captured operand, by the numbers of the
    /// arguments.
    Product { node: NodeId, part: usize, captured: usize },
}

impl Hoisted {
    fn node(self) -> NodeId {
        match self {
            Hoisted::Invariant(node) | Hoisted::Product { node, .. } => node,
        }
    }
}

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let mut edits: Vec<Edit> = Vec::with_capacity(loops.all.len());
    let mut moves: Vec<Vec<Hoisted>> = Vec::with_capacity(loops.all.len());
    for of in &loops.all {
        let (products, invariants) = (products(of), invariants(of));
        let nodes = |list: &[Hoisted]| list.iter().map(|h| h.node()).collect();
        edits.push(Edit {
            slices: nodes(&products),
            captured: nodes(&invariants),
            outputs: Vec::new(),
        });
        moves.push([products, invariants].concat());
    }
    if edits.iter().all(Edit::is_empty) {
        return Ok(None);
    }
    loops.rewrite(
        graph,
        &edits,
        |b, moved, at, which| outside(b, &loops.all[at], moves[at][which], moved.old),
        |_, _, _, _| Ok(None),
    )
}

/// Records what is hoisted; `operands` are the scan's.
fn outside(
    b: &mut GraphBuilder,
    of: &Loop,
    hoisted: Hoisted,
    operands: &[NodeId],
) -> Result<NodeId> {
    let body = of.body();
    match hoisted {
        Hoisted::Invariant(node) => {
            let mut map: Vec<Option<NodeId>> = vec![None; body.len()];
            for (id, operand) in body.arguments().zip(operands) {
                map[id.index()] = Some(*operand);
            }
            let mut needed = vec![false; body.len()];
            needed[node.index()] = true;
            for (id, node) in body.nodes().rev() {
                if needed[id.index()] {
                    node.inputs.iter().for_each(|i| needed[i.index()] = true);
                }
            }
            for (id, node) in body.nodes().filter(|(id, _)| needed[id.index()]) {
                if map[id.index()].is_none() {
                    let inputs = node.inputs.iter().map(|i| map[i.index()].expect("in order"));
                    let node = Node { inputs: inputs.collect(), ..node.clone() };
                    map[id.index()] = Some(b.append(node));
                }
            }
            Ok(map[node.index()].expect("it is needed"))
        }
        Hoisted::Product { node, part, captured } => {
            let node = body.node(node);
            let [lhs, rhs] = node.inputs[..] else { unreachable!("a product has two operands") };
            let parts = |b: &mut GraphBuilder, id| view_outside(b, body, id, operands[part], true);
            let matrix =
                |b: &mut GraphBuilder, id| view_outside(b, body, id, operands[captured], false);
            let by_left = argument(of, viewed(body, lhs)) == Some(part);
            if by_left {
                let (lhs, rhs) = (parts(b, lhs)?, matrix(b, rhs)?);
                return b.matmul(lhs, rhs);
            }
            // `w @ x` of a column `x`: the columns of all iterations are the rows of a matrix.
            let (lhs, rhs) = (matrix(b, lhs)?, parts(b, rhs)?);
            let shape = b.shape(rhs).part(..2);
            let (rows, by) = (b.reshape(rhs, shape)?, b.transpose(lhs)?);
            let product = b.matmul(rows, by)?;
            let shape = b.shape(product).dims().chain([1.into()]).collect::<girih_ir::Shape>();
            b.reshape(product, shape)
        }
    }
}

/// The number of an argument of the body.
fn argument(of: &Loop, id: NodeId) -> Option<usize> {
    of.body().arguments().position(|argument| argument == id)
}

/// Products of a part with an invariant matrix whose rows are few: such a product reads more of the
/// matrix than it computes. A scan without carries is a map, of which each part is computed on its
/// own to save memory.
fn products(of: &Loop) -> Vec<Hoisted> {
    let body = of.body();
    if of.carries() == 0 {
        return Vec::new();
    }
    let live = body.live();
    let products = body.nodes().filter(|(id, n)| live[id.index()] && n.op.code == OpCode::Matmul);
    products
        .filter_map(|(id, node)| {
            let [lhs, rhs] = node.inputs[..] else { return None };
            let of_left = argument(of, viewed(body, lhs))?;
            let of_right = argument(of, viewed(body, rhs))?;
            let sizes = ProductSizes::of(body, node);
            let rank = |id: NodeId| body.spec(id).shape.rank();
            match (of.kind(of_left), of.kind(of_right)) {
                (Kind::Slice, Kind::Captured) if rank(rhs) == 2 && 2 * sizes.m <= sizes.k => {
                    Some(Hoisted::Product { node: id, part: of_left, captured: of_right })
                }
                (Kind::Captured, Kind::Slice)
                    if rank(lhs) == 2 && rank(rhs) == 2 && sizes.n == 1 && sizes.k > 1 =>
                {
                    Some(Hoisted::Product { node: id, part: of_right, captured: of_left })
                }
                _ => None,
            }
        })
        .collect()
}

/// Invariant nodes that something else uses, that compute, and that are no larger than the largest
/// captured operand.
fn invariants(of: &Loop) -> Vec<Hoisted> {
    let body = of.body();
    let (invariant, live) = (of.invariants(), body.live());
    // An invariant node and all that it is computed from: ops without an effect, and an argument.
    let (mut movable, mut reads) = (vec![false; body.len()], vec![0; body.len()]);
    for (id, node) in body.nodes().filter(|(id, _)| invariant[id.index()]) {
        let leaf = node.inputs.is_empty();
        let inputs = || node.inputs.iter().map(|i| i.index());
        movable[id.index()] =
            leaf || (is_computed(node) || is_moved(node)) && inputs().all(|input| movable[input]);
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
    found.into_iter().map(Hoisted::Invariant).collect()
}

/// True of ops that say where elements go.
fn is_moved(node: &Node) -> bool {
    is_view(node) || matches!(node.op.code, OpCode::BroadcastTo | OpCode::Slice)
}

/// True if anything but views stands between a node and the arguments.
fn computes(body: &Graph, id: NodeId) -> bool {
    let node = body.node(id);
    match node.inputs.len() {
        0 => false,
        _ if is_moved(node) => computes(body, node.inputs[0]),
        _ => true,
    }
}
