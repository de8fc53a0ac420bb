//! Rewrites of views, and of reductions without axes.

use super::Rule;
use girih_ir::ops::{Attrs, AxisSet, PadDim, SliceDim};
use girih_ir::{Class, Dim, GraphBuilder, Node, NodeId, Op, OpCode, Result, Shape};

type Rewritten = Result<Option<NodeId>>;

pub(super) static RULES: &[Rule] = &[
    Rule {
        name: "a view that changes nothing is its operand",
        on: &[
            OpCode::Reshape,
            OpCode::Permute,
            OpCode::BroadcastTo,
            OpCode::Slice,
            OpCode::Flip,
            OpCode::Concat,
            OpCode::Pad,
        ],
        exact: true,
        apply: identity,
    },
    Rule {
        name: "two reshapes or broadcasts in a row are the second",
        on: &[OpCode::Reshape, OpCode::BroadcastTo],
        exact: true,
        apply: last_of_two,
    },
    Rule {
        name: "a broadcast adds leading axes itself",
        on: &[OpCode::BroadcastTo],
        exact: true,
        apply: broadcast_of_leading_ones,
    },
    Rule {
        name: "two permutations in a row are one",
        on: &[OpCode::Permute],
        exact: true,
        apply: permute_of_permute,
    },
    Rule {
        name: "two slices in a row are one",
        on: &[OpCode::Slice],
        exact: true,
        apply: slice_of_slice,
    },
    Rule {
        name: "two flips in a row are one, and axes of size one need none",
        on: &[OpCode::Flip],
        exact: true,
        apply: shorter_flip,
    },
    Rule {
        name: "an elementwise op broadcasts its operands itself",
        on: &[],
        exact: true,
        apply: implicit_broadcast,
    },
    Rule {
        name: "a reduction over axes of size one is a reshape; a sum adds 0, for -0 + 0 is 0",
        on: &[
            OpCode::ReduceSum,
            OpCode::ReduceProd,
            OpCode::ReduceMax,
            OpCode::ReduceMin,
            OpCode::ReduceAny,
            OpCode::ReduceAll,
        ],
        exact: true,
        apply: trivial_reduction,
    },
];

fn below<'a>(b: &'a GraphBuilder, node: &Node, code: OpCode) -> Option<&'a Node> {
    let node = b.graph().node(node.inputs[0]);
    (node.op.code == code).then_some(node)
}

fn identity(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let x = node.inputs[0];
    if *b.spec(x) != node.spec {
        return Ok(None);
    }
    let same = match &node.op.attrs {
        Attrs::Shape(_) => true,
        Attrs::Perm(perm) => perm.iter().enumerate().all(|(i, &axis)| i == axis as usize),
        // A slice of a whole axis must start at its beginning.
        Attrs::Slice(_) => true,
        Attrs::Axes { axes, .. } => axes.is_empty() && !starts_from_zero(node),
        Attrs::Pad(pad) => pad.0.iter().all(|w| PadDim { interior: 0, ..*w } == PadDim::default()),
        Attrs::Axis(_) => node.inputs.len() == 1,
        _ => false,
    };
    Ok(same.then_some(x))
}

fn last_of_two(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Some(x) = below(b, node, node.op.code).map(|n| n.inputs[0]) else { return Ok(None) };
    b.emit(node.op.clone(), &[x]).map(Some)
}

/// True if `to` is `from` with leading axes of size one.
fn adds_leading_ones(from: &Shape, to: &Shape) -> bool {
    let added = to.rank().checked_sub(from.rank());
    let one = Dim::from(1);
    added.is_some_and(|n| to.dims().skip(n).eq(from.dims()) && to.dims().take(n).all(|d| d == one))
}

fn broadcast_of_leading_ones(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Some(reshape) = below(b, node, OpCode::Reshape) else { return Ok(None) };
    let x = reshape.inputs[0];
    match adds_leading_ones(b.shape(x), &reshape.spec.shape) {
        true => b.broadcast_to(x, node.spec.shape.clone()).map(Some),
        false => Ok(None),
    }
}

fn permute_of_permute(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let (Some(inner), Attrs::Perm(outer)) = (below(b, node, OpCode::Permute), &node.op.attrs)
    else {
        return Ok(None);
    };
    let Attrs::Perm(perm) = &inner.op.attrs else { return Ok(None) };
    let (x, perm) = (inner.inputs[0], perm.clone());
    let both: Vec<usize> = outer.iter().map(|&axis| perm[axis as usize] as usize).collect();
    b.permute(x, &both).map(Some)
}

fn slice_of_slice(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let (Some(inner), Attrs::Slice(outer)) = (below(b, node, OpCode::Slice), &node.op.attrs) else {
        return Ok(None);
    };
    let Attrs::Slice(dims) = &inner.op.attrs else { return Ok(None) };
    let both = |(i, o): (&SliceDim, &SliceDim)| match o.size {
        // The start of an empty slice may lie outside the axis.
        0 => SliceDim { start: 0, size: 0, step: 1 },
        size => SliceDim { start: i.start + o.start * i.step, size, step: i.step * o.step },
    };
    let (x, dims) = (inner.inputs[0], dims.iter().zip(outer.iter()).map(both).collect());
    b.slice(x, dims).map(Some)
}

fn reverses_nothing(node: &Node, axis: usize) -> bool {
    let size = node.spec.shape.dim(axis);
    size.is(0) || size.is(1)
}

fn shorter_flip(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Attrs::Axes { axes, .. } = node.op.attrs else { return Ok(None) };
    let long: AxisSet = axes.iter().filter(|&axis| !reverses_nothing(node, axis)).collect();
    let (x, wanted) = match below(b, node, OpCode::Flip) {
        Some(Node { op: Op { attrs: Attrs::Axes { axes, .. }, .. }, inputs, .. }) => {
            (inputs[0], AxisSet(long.0 ^ axes.0))
        }
        _ if long != axes => (node.inputs[0], long),
        _ => return Ok(None),
    };
    match wanted.is_empty() {
        true => Ok(Some(x)),
        false => b.emit(Op::new(OpCode::Flip, Attrs::axes(wanted, false)), &[x]).map(Some),
    }
}

/// The operand of a broadcast that the op performs implicitly.
fn unstretched(b: &GraphBuilder, x: NodeId) -> Option<NodeId> {
    let node = b.graph().node(x);
    match node.op.code {
        OpCode::BroadcastTo => Some(node.inputs[0]),
        OpCode::Reshape if adds_leading_ones(b.shape(node.inputs[0]), &node.spec.shape) => {
            Some(node.inputs[0])
        }
        _ => None,
    }
}

fn implicit_broadcast(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    if node.op.class() != Class::Elementwise || node.inputs.len() < 2 {
        return Ok(None);
    }
    for i in 0..node.inputs.len() {
        let Some(x) = unstretched(b, node.inputs[i]) else { continue };
        let mut inputs = node.inputs.clone();
        inputs[i] = x;
        // The result must keep its shape, so another operand must have this shape.
        let shapes = inputs.iter().map(|&i| b.shape(i));
        let shape = shapes
            .map(|s| Ok(s.clone()))
            .reduce(|a, s| a.and_then(|a: Shape| a.broadcast(&s?, node.op.name())));
        if shape == Some(Ok(node.spec.shape.clone())) {
            return b.emit(node.op.clone(), &inputs).map(Some);
        }
    }
    Ok(None)
}

/// A sum starts from 0, so that the sum of -0 is 0.
fn starts_from_zero(node: &Node) -> bool {
    node.op.code == OpCode::ReduceSum && node.spec.dtype.is_inexact()
}

fn trivial_reduction(b: &mut GraphBuilder, node: &Node) -> Rewritten {
    let Attrs::Axes { axes, .. } = node.op.attrs else { return Ok(None) };
    let x = node.inputs[0];
    if !axes.iter().all(|axis| b.shape(x).dim(axis).is(1)) {
        return Ok(None);
    }
    let x = b.reshape(x, node.spec.shape.clone())?;
    if !starts_from_zero(node) {
        return Ok(Some(x));
    }
    let zero = b.scalar_like(x, 0.0);
    b.add(x, zero).map(Some)
}
