//! Moves accumulated matmuls out of a scan. A carry `s` that each iteration replaces by `s + a @ b`
//! becomes `s + A @ B` after the loop, where `A` and `B` are the stacked operands and the matmul
//! also contracts the iteration axis. The gradient of a weight that a scan captures is such a
//! carry.

use super::{Edit, Kind, Loop, Loops, Moved, Users, view_outside, viewed};
use girih_ir::ops::Attrs;
use girih_ir::{Dim, Graph, GraphBuilder, NodeId, OpCode, Result, Shape};
use rustc_hash::FxHashMap;

/// The stacked value of a matmul's operand.
#[derive(Clone, Copy)]
enum Source {
    /// A view of the slices of operand `argument` of the scan.
    Part { node: NodeId, argument: usize },
    /// A node that the scan stacks as result `number`.
    Stacked { number: usize },
}

/// The stacked value of an operand, and whether its last two axes are exchanged. Values are stacked
/// in the layout in which they are computed, and the matrix is read transposed.
type Oriented = (Source, bool);

/// The matmuls that a carry accumulates.
type Matmuls = Vec<[Oriented; 2]>;

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let mut edits: Vec<Edit> = Vec::with_capacity(loops.all.len());
    let mut sums: Vec<FxHashMap<usize, Matmuls>> = Vec::with_capacity(loops.all.len());
    for of in &loops.all {
        let mut edit = Edit::default();
        let asked = (0..of.carries()).filter(|carry| of.results.contains(carry));
        let found = asked.filter_map(|carry| Some((carry, summed(of, &mut edit, carry)?)));
        sums.push(found.collect());
        edits.push(edit);
    }
    if sums.iter().all(FxHashMap::is_empty) {
        return Ok(None);
    }
    loops.rewrite(
        graph,
        &edits,
        |_, _, _, _| unreachable!("scans get no new operands"),
        |b, moved, at, result| match sums[at].get(&result) {
            None => Ok(None),
            Some(matmuls) => total(b, &loops.all[at], moved, (at, result), matmuls).map(Some),
        },
    )
}

/// The matmuls that a carry accumulates, if the carry has no other use. Adds the matmuls' operands
/// to the stacked outputs.
fn summed(of: &Loop, edit: &mut Edit, carry: usize) -> Option<Matmuls> {
    let body = of.body();
    let users = Users::of(body);
    let this = body.arguments().nth(carry)?;
    let given = body.outputs()[carry];
    if users.count(this) != 1 || given == this {
        return None;
    }
    let (mut leaves, mut carried) = (Vec::new(), 0);
    let mut stack = vec![given];
    while let Some(id) = stack.pop() {
        let node = body.node(id);
        match node.op.code {
            _ if id == this => carried += 1,
            _ if users.count(id) != 1 => return None,
            OpCode::Add if node.inputs.iter().all(|i| body.spec(*i) == &node.spec) => {
                stack.extend(&node.inputs);
            }
            OpCode::Matmul => leaves.push(id),
            _ => return None,
        }
    }
    let matmuls: Option<Vec<[Operand; 2]>> = leaves.iter().map(|&id| operands(of, id)).collect();
    let matmuls = matmuls.filter(|matmuls| carried == 1 && !matmuls.is_empty())?;
    let mut oriented = |operand: Operand| {
        let Operand { node, argument, transposed } = operand;
        let source = match argument {
            Some(argument) => Source::Part { node, argument },
            None => Source::Stacked { number: edit.stacks(of, node) },
        };
        (source, transposed)
    };
    Some(matmuls.into_iter().map(|pair| pair.map(&mut oriented)).collect())
}

/// An operand of a matmul in the body.
#[derive(Clone, Copy)]
struct Operand {
    /// The node, before its last two axes are exchanged.
    node: NodeId,
    /// The argument of the body that the node is a view of, if that argument is a slice.
    argument: Option<usize>,
    /// True if the matmul reads the node with its last two axes exchanged.
    transposed: bool,
}

/// Smallest M and N of an accumulation that leaves the loop. K is not limited: it is often the
/// batch size, and a program for any batch size must sum in the same order as one for a fixed size.
const MIN_SIZE: usize = 16;

/// The operands of a matmul, if it is large enough that stacking them costs little compared with
/// computing it.
fn operands(of: &Loop, matmul: NodeId) -> Option<[Operand; 2]> {
    let body = of.body();
    let node = body.node(matmul);
    let [a, b] = node.inputs[..] else { return None };
    let rank = node.spec.shape.rank();
    let same_batch = |id: NodeId| {
        let shape = &body.spec(id).shape;
        shape.rank() == rank && shape.part(..rank - 2) == node.spec.shape.part(..rank - 2)
    };
    if !same_batch(a) || !same_batch(b) {
        return None;
    }
    let found = [operand(of, a), operand(of, b)];
    // With an invariant operand, the sum of the matmuls is the matmul of a sum; this case is not
    // rewritten.
    let invariant = of.invariants();
    let mut computed = found.iter().filter(|operand| operand.argument.is_none());
    if computed.any(|operand| invariant[operand.node.index()]) {
        return None;
    }
    let large = |axis: Dim| axis.known().is_some_and(|size| size >= MIN_SIZE);
    node.spec.shape.part(rank - 2..).dims().all(large).then_some(found)
}

fn operand(of: &Loop, id: NodeId) -> Operand {
    let body = of.body();
    let node = body.node(id);
    let rank = node.spec.shape.rank();
    let (node, transposed) = match node.op.code {
        OpCode::Permute if node.op.attrs == Attrs::perm(exchanging(rank)) => (node.inputs[0], true),
        _ => (id, false),
    };
    let argument = body.arguments().position(|argument| argument == viewed(body, node));
    let argument = argument.filter(|&a| of.kind(a) == Kind::Slice);
    Operand { node, argument, transposed }
}

/// The permutation that exchanges the last two axes.
fn exchanging(rank: usize) -> impl Iterator<Item = usize> {
    (0..rank - 2).chain([rank - 1, rank - 2])
}

/// The carry's initial value plus the matmuls over all iterations.
fn total(
    b: &mut GraphBuilder,
    of: &Loop,
    moved: &Moved<'_>,
    (at, carry): (usize, usize),
    matmuls: &Matmuls,
) -> Result<NodeId> {
    let mut total = moved.old[carry];
    for [left, right] in matmuls {
        let left = contracted(b, of, moved, at, *left, true)?;
        let right = contracted(b, of, moved, at, *right, false)?;
        let matmul = b.matmul(left, right)?;
        total = b.add(total, matmul)?;
    }
    Ok(total)
}

/// Merges the iteration axis into K: an operand `[T, ..., m, k]` becomes `[..., m, T * k]`, and
/// `[T, ..., k, n]` becomes `[..., T * k, n]`.
fn contracted(
    b: &mut GraphBuilder,
    of: &Loop,
    moved: &Moved<'_>,
    at: usize,
    (source, transposed): Oriented,
    left: bool,
) -> Result<NodeId> {
    let value = match source {
        Source::Part { node, argument } => {
            view_outside(b, of.body(), node, moved.old[argument], true)?
        }
        Source::Stacked { number } => moved.result(b, at, number)?,
    };
    let shape = b.shape(value).clone();
    let rank = shape.rank();
    // The contracted axis of the value in its own layout.
    let along = match left != transposed {
        true => rank - 1,
        false => rank - 2,
    };
    // Move the iteration axis in front of the contracted axis.
    let mut order: Vec<usize> = (1..rank).collect();
    order.insert(along - 1, 0);
    let value = match rank {
        3 if along == 1 => value,
        _ => b.permute(value, &order)?,
    };
    let rows: Dim = [shape.dim(0), shape.dim(along)].into_iter().product();
    let kept = (1..rank).map(|axis| if axis == along { rows } else { shape.dim(axis) });
    let value = b.reshape(value, kept.collect::<Shape>())?;
    if transposed { b.transpose(value) } else { Ok(value) }
}
