//! Sums of products that leave a scan: a carry `s` that each iteration replaces by `s + a @ b` is,
//! after the loop, `s + A @ B` of the stacked operands, with the axis of the iterations contracted
//! too. The gradient of a weight that a scan captures is such a carry.

use super::{Edit, Kind, Loop, Loops, Moved, Users, view_outside, viewed};
use girih_ir::ops::Attrs;
use girih_ir::{Dim, Graph, GraphBuilder, NodeId, OpCode, Result, Shape};
use rustc_hash::FxHashMap;

/// An operand of a product, for all iterations.
#[derive(Clone, Copy)]
enum Source {
    /// A view of the part of that operand of the scan.
    Part { node: NodeId, argument: usize },
    /// A node that the scan stacks as that result.
    Stacked { number: usize },
}

/// The stacked value of an operand, and whether its last two axes are exchanged then: the rows of all
/// iterations are stacked as they are computed, and their matrix is read transposed.
type Oriented = (Source, bool);

/// The products that a carry sums.
type Products = Vec<[Oriented; 2]>;

pub(super) fn run(graph: &Graph, loops: &Loops) -> Result<Option<Graph>> {
    let mut edits: Vec<Edit> = Vec::with_capacity(loops.all.len());
    let mut sums: Vec<FxHashMap<usize, Products>> = Vec::with_capacity(loops.all.len());
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
            Some(products) => total(b, &loops.all[at], moved, (at, result), products).map(Some),
        },
    )
}

/// The products that a carry sums, if it does nothing else; what they need is stacked.
fn summed(of: &Loop, edit: &mut Edit, carry: usize) -> Option<Products> {
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
    let products: Option<Vec<[Operand; 2]>> = leaves.iter().map(|&id| operands(of, id)).collect();
    let products = products.filter(|products| carried == 1 && !products.is_empty())?;
    let mut oriented = |operand: Operand| {
        let Operand { node, argument, transposed } = operand;
        let source = match argument {
            Some(argument) => Source::Part { node, argument },
            None => Source::Stacked { number: edit.stacks(of, node) },
        };
        (source, transposed)
    };
    Some(products.into_iter().map(|pair| pair.map(&mut oriented)).collect())
}

/// An operand of a product in the body.
#[derive(Clone, Copy)]
struct Operand {
    /// The node, before its last two axes are exchanged.
    node: NodeId,
    /// The argument of the body that the node is a view of, if it is of a part.
    argument: Option<usize>,
    /// True if its last two axes are exchanged.
    transposed: bool,
}

/// Least size of either axis of a sum that leaves the loop. The rule does not ask for the contracted
/// size, which is often the size of a batch: a program for any batch then sums as one for its size.
const LEAST_SIZE: usize = 16;

/// The operands of a product, if the product is large enough for stacking them to cost little beside
/// computing it.
fn operands(of: &Loop, product: NodeId) -> Option<[Operand; 2]> {
    let body = of.body();
    let node = body.node(product);
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
    // A sum of products with an invariant operand is the product of a sum; that is left alone.
    let invariant = of.invariants();
    let mut computed = found.iter().filter(|operand| operand.argument.is_none());
    if computed.any(|operand| invariant[operand.node.index()]) {
        return None;
    }
    let large = |axis: Dim| axis.known().is_some_and(|size| size >= LEAST_SIZE);
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

/// What the carry begins with, and the products over all iterations.
fn total(
    b: &mut GraphBuilder,
    of: &Loop,
    moved: &Moved<'_>,
    (at, carry): (usize, usize),
    products: &Products,
) -> Result<NodeId> {
    let mut total = moved.old[carry];
    for [left, right] in products {
        let left = contracted(b, of, moved, at, *left, true)?;
        let right = contracted(b, of, moved, at, *right, false)?;
        let product = b.matmul(left, right)?;
        total = b.add(total, product)?;
    }
    Ok(total)
}

/// The operand `[T, ..., m, k]` of all iterations as `[..., m, T * k]`, or `[T, ..., k, n]` as
/// `[..., T * k, n]`.
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
    // The contracted axis in the value as it is.
    let along = match left != transposed {
        true => rank - 1,
        false => rank - 2,
    };
    // The axis of the iterations goes in front of it.
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
