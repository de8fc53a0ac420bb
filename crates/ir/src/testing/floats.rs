//! Random graphs of f64 tensors for tests of lowering: elementwise ops, views, reductions, GEMMs,
//! indices and scatters, each on results of the others.

use crate::ops::{PadDim, ScatterMode, SliceDim};
use crate::{Attrs, AxisSet, DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec};

/// Largest tensor of a random graph.
const MAX_NUMEL: usize = 600;

/// A source of choices.
struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u16>>);

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        *self.0.next().expect("the choices go round") as usize % n
    }

    fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A shape with `numel` elements, possibly with axes of size one.
fn shapes_of(numel: usize, c: &mut Choices<'_>) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut rest = numel;
    while rest > 1 {
        let divisors: Vec<usize> = (2..=rest).filter(|d| rest.is_multiple_of(*d)).collect();
        let d = c.of(&divisors);
        shape.push(d);
        rest /= d;
        if c.below(5) == 0 {
            shape.push(1);
        }
    }
    if numel == 0 { vec![0] } else { shape }
}

fn indexed(b: &mut GraphBuilder, c: &mut Choices<'_>, x: NodeId, index: NodeId) -> Option<NodeId> {
    let shape = b.shape(x).clone();
    let axes: Vec<usize> = (0..shape.rank()).filter(|&a| shape[a] >= 2).collect();
    let axis = c.of(if axes.is_empty() { return None } else { &axes });
    let along = Attrs::Axis(axis as u8);
    match c.below(8) {
        0 => b.emit(Op::new(OpCode::Take, along), &[x, index]).ok(),
        7 => {
            // A part of an expensive value moves to another part of it, and the value then dies.
            let y = b.op(c.of(&[OpCode::Exp, OpCode::Tanh]), &[x]).ok()?;
            let size = 1 + c.below(shape[axis] - 1);
            let part = |start: usize| {
                let dim = |(a, &n): (usize, &usize)| match a == axis {
                    true => SliceDim { start, size, step: 1 },
                    false => SliceDim { start: 0, size: n, step: 1 },
                };
                shape.iter().enumerate().map(dim).collect::<Vec<SliceDim>>()
            };
            let from = b.slice(y, part(c.below(shape[axis] - size + 1))).ok()?;
            let to = part(c.below(shape[axis] - size + 1));
            b.emit(Op::new(OpCode::UpdateSlice, Attrs::Slice(to.into())), &[y, from]).ok()
        }
        6 => {
            // The updates are computed from the tensor that they are scattered into.
            let iota = Op::new(OpCode::Iota, Attrs::Axis(axis as u8));
            let i = b.leaf(iota, TensorSpec::new(shape, DType::I64));
            let n = b.op(OpCode::Neg, &[i]).ok()?;
            let updates = b.op(OpCode::Exp, &[x]).ok()?;
            let mode = c.of(&ScatterMode::ALL);
            let attrs = Attrs::ScatterInto { axis: axis as u8, mode };
            b.emit(Op::new(OpCode::ScatterAlongAxis, attrs), &[x, n, updates]).ok()
        }
        3 => {
            let wrapped = Op::new(OpCode::WrapIndex, Attrs::Size(shape[axis]));
            let wrapped = b.emit(wrapped, &[index]).ok()?;
            b.emit(Op::new(OpCode::Take, along), &[x, wrapped]).ok()
        }
        4 => {
            let updates = b.emit(Op::new(OpCode::Take, along), &[x, index]).ok()?;
            let updates = b.op(OpCode::Neg, &[updates]).ok()?;
            let mode = c.of(&ScatterMode::ALL);
            let attrs = Attrs::ScatterInto { axis: axis as u8, mode };
            b.emit(Op::new(OpCode::Scatter, attrs), &[x, index, updates]).ok()
        }
        5 => {
            let dims = shape.iter().map(|&n| SliceDim { start: 0, size: n.div_ceil(2), step: 2 });
            let dims: Vec<SliceDim> =
                dims.map(|d| if d.size == 1 { SliceDim { step: 1, ..d } } else { d }).collect();
            let part = b.slice(x, dims.clone()).ok()?;
            let part = b.op(OpCode::Abs, &[part]).ok()?;
            b.emit(Op::new(OpCode::UpdateSlice, Attrs::Slice(dims.into())), &[x, part]).ok()
        }
        1 => {
            let iota = Op::new(OpCode::Iota, Attrs::Axis(axis as u8));
            let i = b.leaf(iota, TensorSpec::new(shape, DType::I64));
            let n = b.op(OpCode::Neg, &[i]).ok()?;
            b.emit(Op::new(OpCode::TakeAlongAxis, along), &[x, n]).ok()
        }
        _ => {
            let attrs = Attrs::Scatter { axis: axis as u8, size: shape[axis] as u32 };
            let op = Op::new(OpCode::ScatterAddAlongAxis, attrs.clone());
            let short = shape.with_dim(axis, 1);
            let j = b.reshape(index, [3]).ok()?;
            let one = SliceDim { start: c.below(3), size: 1, step: 1 };
            let j = b.slice(j, vec![one]).ok()?;
            let j = b.reshape(j, []).ok()?;
            let j = b.broadcast_to(j, short.clone()).ok()?;
            let part = |(a, &n): (usize, &usize)| SliceDim {
                start: 0,
                size: if a == axis { 1 } else { n },
                step: 1,
            };
            let updates = b.slice(x, shape.iter().enumerate().map(part).collect()).ok()?;
            b.emit(op, &[j, updates]).ok()
        }
    }
}

fn view(b: &mut GraphBuilder, c: &mut Choices<'_>, x: NodeId) -> Option<NodeId> {
    let shape = b.shape(x).clone();
    let rank = shape.rank();
    let axes: AxisSet = (0..rank).filter(|_| c.below(2) == 0).collect();
    match c.below(6) {
        0 | 1 => {
            let to = shapes_of(shape.numel(), c);
            b.reshape(x, to).ok()
        }
        2 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            (1..rank).for_each(|i| perm.swap(i, c.below(i + 1)));
            b.permute(x, &perm).ok()
        }
        3 => b.emit(Op::new(OpCode::Flip, Attrs::axes(axes, false)), &[x]).ok(),
        4 => {
            let dims = shape.iter().map(|&n| {
                let step = 1 + c.below(2);
                let start = c.below(n.max(1));
                SliceDim { start, size: n.saturating_sub(start).div_ceil(step), step }
            });
            b.slice(x, dims.collect()).ok()
        }
        _ => {
            let dims: Vec<usize> = [2].into_iter().chain(shape.iter().copied()).collect();
            b.broadcast_to(x, dims).ok()
        }
    }
}

fn step(b: &mut GraphBuilder, c: &mut Choices<'_>, nodes: &[NodeId], i: NodeId) -> Option<NodeId> {
    // Mostly recent nodes, so that graphs grow deep.
    let recent = &nodes[nodes.len() - 4..];
    let mut pick = || if c.below(3) == 0 { c.of(nodes) } else { c.of(recent) };
    let (x, y) = (pick(), pick());
    match c.below(16) {
        0 | 1 => b.op(c.of(&[OpCode::Neg, OpCode::Exp, OpCode::Tanh, OpCode::Abs]), &[x]).ok(),
        2..=5 => {
            b.op(c.of(&[OpCode::Add, OpCode::Mul, OpCode::Sub, OpCode::Maximum]), &[x, y]).ok()
        }
        6 => {
            let less = b.lt(x, y).ok()?;
            b.select(less, y, x).ok()
        }
        7..=9 => view(b, c, x),
        10 | 11 => {
            let axes = (0..b.shape(x).rank()).filter(|_| c.below(2) == 0).collect();
            let code = c.of(&[OpCode::ReduceSum, OpCode::ReduceProd, OpCode::ReduceMax]);
            b.reduce(code, x, axes, c.below(2) == 0).ok()
        }
        12 => b.matmul(x, y).or_else(|_| b.transpose(x).and_then(|t| b.matmul(x, t))).ok(),
        13 => {
            let axis = c.below(b.shape(x).rank().max(1)) as u8;
            b.emit(Op::new(OpCode::Concat, Attrs::Axis(axis)), &[x, y, x]).ok()
        }
        14 => {
            let mut dim = |_| PadDim { low: c.below(2), high: c.below(2), interior: c.below(2) };
            let dims = (0..b.shape(x).rank()).map(&mut dim).collect();
            b.pad(x, dims, Literal::from_f64(DType::F64, 0.5)).ok()
        }
        _ => indexed(b, c, x, i),
    }
}

/// A graph and the elements of its arguments. The choices determine both.
pub fn graph_of_floats(choices: &[u16]) -> (Graph, Vec<Vec<f64>>) {
    let mut mixed: Vec<u16> = choices.to_vec();
    // Derive a few hundred choices from a few, so that shrinking stays fast.
    for i in 0..600 {
        mixed.push(mixed[i].wrapping_mul(40_503).wrapping_add(12_345).rotate_left(5));
    }
    let c = &mut Choices(mixed.iter().cycle());
    let b = &mut GraphBuilder::default();
    let f = |shape: &[usize]| TensorSpec::new(shape, DType::F64);
    let mut nodes: Vec<NodeId> =
        [&[4, 6][..], &[6], &[4, 1], &[2, 2, 6], &[0, 3]].map(|s| b.input(f(s))).to_vec();
    let index = b.input(TensorSpec::new([3], DType::I64));
    nodes.push(b.constant(Literal::from_f64(DType::F64, 2.0), [6]));
    nodes.push(b.leaf(OpCode::Constant.into(), f(&[])));
    nodes.push(b.leaf(OpCode::RandomUniform.into(), f(&[4, 6])));
    for _ in 0..5 + c.below(30) {
        let before = nodes.len();
        if let Some(node) = step(b, c, &nodes, index) {
            nodes.push(node);
        }
        // A failed step may have recorded valid operands that are unused.
        if nodes.len() > before && b.spec(nodes[before]).numel() > MAX_NUMEL {
            nodes.pop();
        }
    }
    let last = |i: usize| nodes[nodes.len() - 1 - i];
    let mut outputs: Vec<NodeId> = (0..1 + c.below(4)).map(last).collect();
    if c.below(3) == 0 {
        // A small kernel that is unrelated to the others.
        let unrelated = b.op(OpCode::Tanh, &[nodes[c.below(4)]]);
        outputs.extend(unrelated);
    }
    let graph = std::mem::take(b).finish(outputs);
    let data = |(n, id): (usize, NodeId)| -> Vec<f64> {
        let spec = graph.spec(id);
        let value = |i: usize| match spec.dtype {
            DType::I64 => [1.0, -1.0, 0.0][i % 3],
            _ => ((i * 37 + n * 11) % 29) as f64 / 8.0 - 1.5,
        };
        (0..spec.numel()).map(value).collect()
    };
    let arguments = graph.arguments().enumerate().map(data).collect();
    (graph, arguments)
}
