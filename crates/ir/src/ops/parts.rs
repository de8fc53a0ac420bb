//! Parts of ops that move elements along an axis, or combine neighbours: the elements of the operands that a part of the
//! result needs, and the ops that compute the part from them. So a processor that computes a part
//! of a slice, a pad, a concatenation or a reshape needs no whole operand.

mod sliding;

pub(super) use sliding::{conv, pool, windows};

use super::*;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;

/// A part of an op's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpPart {
    /// The elements of each operand that it needs, as a range of each axis.
    pub operands: Vec<Vec<Range<usize>>>,
    /// The ops that compute it: the first one from these parts of the operands, and each next one from
    /// the result before.
    pub ops: SmallVec<[Op; 1]>,
}

/// The part of a call in a range of each axis of the result, whose spec is given.
///
/// `None` if no such parts of the operands are enough. The part has elements.
pub type PartRule = fn(OpCall<'_>, &TensorSpec, &[Range<usize>]) -> Option<OpPart>;

/// Of `count` elements at `start + i * step`, those in a range: the numbers `i`, and the place of
/// the first one from the start of the range.
fn strided(start: usize, step: usize, count: usize, range: &Range<usize>) -> (Range<usize>, usize) {
    let before = |end: usize| end.saturating_sub(start).div_ceil(step).min(count);
    let taken = before(range.start)..before(range.end);
    match taken.is_empty() {
        true => (taken, 0),
        false => (taken.clone(), start + taken.start * step - range.start),
    }
}

fn bounds(op: &Op) -> &[SliceDim] {
    match &op.attrs {
        Attrs::Slice(dims) => dims,
        Attrs::SliceOf(of) => &of.0,
        _ => unreachable!("the shape rule checks them"),
    }
}

pub(super) fn slice(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> Option<OpPart> {
    let all = bounds(call.op).iter().zip(part);
    let (operand, dims) = all
        .map(|(dim, range)| {
            let dims = SliceDim { start: 0, size: range.len(), step: dim.step };
            let first = dim.start + range.start * dim.step;
            let taken = range.len().checked_sub(1).map_or(0, |last| last * dim.step + 1);
            (first..first + taken, dims)
        })
        .unzip();
    let ops = smallvec![Op::new(call.op.code, Attrs::Slice(Arc::new(dims)))];
    Some(OpPart { operands: vec![operand], ops })
}

pub(super) fn flip(call: OpCall<'_>, out: &TensorSpec, part: &[Range<usize>]) -> Option<OpPart> {
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("the shape rule checks it") };
    let range = |(axis, range): (usize, &Range<usize>)| {
        let size = out.shape.hints()[axis];
        if axes.contains(axis) { size - range.end..size - range.start } else { range.clone() }
    };
    let operand = part.iter().enumerate().map(range).collect();
    Some(OpPart { operands: vec![operand], ops: smallvec![call.op.clone()] })
}

pub(super) fn pad(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> Option<OpPart> {
    let Attrs::Pad(pad) = &call.op.attrs else { unreachable!("the shape rule checks it") };
    let sizes = call.inputs[0].shape.hints();
    let (mut operand, mut dims) = (Vec::new(), Vec::new());
    for ((dim, &size), range) in pad.0.iter().zip(sizes).zip(part) {
        let (taken, low) = strided(dim.low, dim.interior + 1, size, range);
        dims.push(match taken.len().checked_sub(1) {
            None => PadDim { low: range.len(), high: 0, interior: 0 },
            Some(gaps) => {
                let end = low + gaps * (dim.interior + 1) + 1;
                PadDim { low, high: range.len() - end, interior: dim.interior }
            }
        });
        operand.push(taken);
    }
    let attrs = Attrs::Pad(Arc::new((dims, pad.1)));
    Some(OpPart { operands: vec![operand], ops: smallvec![Op::new(call.op.code, attrs)] })
}

pub(super) fn update_slice(
    call: OpCall<'_>,
    _: &TensorSpec,
    part: &[Range<usize>],
) -> Option<OpPart> {
    let all = bounds(call.op).iter().zip(part);
    let (updates, dims) = all
        .map(|(dim, range)| {
            let (taken, start) = strided(dim.start, dim.step, dim.size, range);
            let size = taken.len();
            (taken, SliceDim { start, size, step: dim.step })
        })
        .unzip();
    let ops = smallvec![Op::new(call.op.code, Attrs::Slice(Arc::new(dims)))];
    Some(OpPart { operands: vec![part.to_vec(), updates], ops })
}

pub(super) fn concat(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> Option<OpPart> {
    let Attrs::Axis(axis) = call.op.attrs else { unreachable!("the shape rule checks it") };
    let axis = axis as usize;
    let mut first = 0;
    let operand = |spec: &&TensorSpec| {
        let size = spec.shape.hints()[axis];
        let (taken, _) = strided(first, 1, size, &part[axis]);
        first += size;
        let mut ranges = part.to_vec();
        ranges[axis] = taken;
        ranges
    };
    Some(OpPart {
        operands: call.inputs.iter().map(operand).collect(),
        ops: smallvec![call.op.clone()],
    })
}

/// The shortest runs of axes of two shapes that have equal numbers of elements.
fn runs(from: &[usize], to: &[usize]) -> Vec<[Range<usize>; 2]> {
    let mut runs = Vec::new();
    let (mut a, mut b) = (0, 0);
    while a < from.len() || b < to.len() {
        let (first, start) = (a, b);
        let (mut left, mut right) = (1, 1);
        loop {
            let taken = (a > first || a == from.len()) && (b > start || b == to.len());
            if left == right && taken {
                break;
            }
            match a < from.len() && (left <= right || b == to.len()) {
                true => (left, a) = (left * from[a], a + 1),
                false => (right, b) = (right * to[b], b + 1),
            }
        }
        runs.push([first..a, start..b]);
    }
    runs
}

/// The position of an index in row-major order.
fn position(sizes: &[usize], index: impl Iterator<Item = usize>) -> usize {
    sizes.iter().zip(index).fold(0, |at, (size, i)| at * size + i)
}

/// Neighbours in row-major order that form a box.
struct Neighbours {
    ranges: Vec<Range<usize>>,
    positions: Range<usize>,
}

impl Neighbours {
    /// The fewest that include a range of positions.
    fn covering(sizes: &[usize], positions: &Range<usize>) -> Neighbours {
        let index = |mut at: usize| {
            let mut index = vec![0; sizes.len()];
            for (i, size) in index.iter_mut().zip(sizes).rev() {
                (*i, at) = (at % size, at / size);
            }
            index
        };
        let (first, last) = (index(positions.start), index(positions.end - 1));
        let same = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
        let range = |axis: usize| match axis <= same {
            true => first[axis]..last[axis] + 1,
            false => 0..sizes[axis],
        };
        let ranges: Vec<Range<usize>> = (0..sizes.len()).map(range).collect();
        let start = position(sizes, ranges.iter().map(|range| range.start));
        let count: usize = ranges.iter().map(ExactSizeIterator::len).product();
        Neighbours { ranges, positions: start..start + count }
    }
}

fn reshape_to(sizes: &[usize]) -> Op {
    Op::new(OpCode::Reshape, Attrs::shape(sizes))
}

/// For each run of axes, takes neighbours of the operand that include neighbours of the result, and
/// these include the part.
pub(super) fn reshape(call: OpCall<'_>, out: &TensorSpec, part: &[Range<usize>]) -> Option<OpPart> {
    let (from, to) = (call.inputs[0].shape.hints(), out.shape.hints());
    let (mut operand, mut flat, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let (mut covered, mut kept) = (Vec::new(), Vec::new());
    for [axes, own] in runs(from, to) {
        let (sizes, part) = (&to[own.clone()], &part[own]);
        let first = position(sizes, part.iter().map(|range| range.start));
        let last = position(sizes, part.iter().map(|range| range.end - 1));
        let result = Neighbours::covering(sizes, &(first..last + 1));
        let needed = Neighbours::covering(&from[axes], &result.positions);
        flat.push(needed.positions.len());
        let start = result.positions.start - needed.positions.start;
        taken.push(SliceDim { start, size: result.positions.len(), step: 1 });
        for (of, range) in result.ranges.iter().zip(part) {
            covered.push(of.len());
            kept.push(SliceDim { start: range.start - of.start, size: range.len(), step: 1 });
        }
        operand.extend(needed.ranges);
    }
    let slice = |dims: Vec<SliceDim>| Op::new(OpCode::Slice, Attrs::Slice(Arc::new(dims)));
    let mut ops = SmallVec::new();
    if taken.iter().zip(&flat).any(|(dim, size)| dim.size != *size) {
        ops.extend([reshape_to(&flat), slice(taken)]);
    }
    ops.push(reshape_to(&covered));
    if kept.iter().zip(&covered).any(|(dim, size)| dim.size != *size) {
        ops.push(slice(kept));
    }
    Some(OpPart { operands: vec![operand], ops })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a part has a range of each axis")]
mod tests {
    use super::*;
    use crate::DType;

    fn part(op: Op, inputs: &[usize], range: Range<usize>) -> (Vec<(usize, usize)>, Op) {
        let specs: Vec<_> = inputs.iter().map(|&n| TensorSpec::new([n], DType::F32)).collect();
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let out = op.infer(&specs).unwrap();
        let rule = op.def().part.unwrap();
        let found =
            rule(OpCall { op: &op, inputs: &specs }, &out, std::slice::from_ref(&range)).unwrap();
        let own = |ranges: &Vec<Range<usize>>| TensorSpec::new([ranges[0].len()], DType::F32);
        let own: Vec<_> = found.operands.iter().map(own).collect();
        let [op] = &found.ops[..] else { panic!("one op is enough") };
        let result = op.infer(&own.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(result.shape.hints(), [range.len()], "{op:?}");
        let ends = |ranges: Vec<Range<usize>>| (ranges[0].start, ranges[0].end);
        (found.operands.into_iter().map(ends).collect(), op.clone())
    }

    fn slice(code: OpCode, start: usize, size: usize, step: usize) -> Op {
        Op::new(code, Attrs::Slice(Arc::new(vec![SliceDim { start, size, step }])))
    }

    #[test]
    fn parts_need_the_elements_that_they_have() {
        let taken = |op: Op, inputs: &[usize], range| part(op, inputs, range).0;
        let strided = slice(OpCode::Slice, 3, 4, 2);
        assert_eq!(taken(strided.clone(), &[10], 1..3), [(5, 8)]);
        assert_eq!(taken(strided, &[10], 2..2), [(7, 7)]);
        let flip = Op::new(OpCode::Flip, Attrs::axes(AxisSet::one(0), false));
        assert_eq!(taken(flip, &[10], 0..3), [(7, 10)]);
        let concat = Op::new(OpCode::Concat, Attrs::Axis(0));
        assert_eq!(taken(concat, &[3, 4, 5], 2..6), [(2, 3), (0, 3), (0, 0)]);
        let update = slice(OpCode::UpdateSlice, 2, 3, 3);
        assert_eq!(taken(update.clone(), &[10, 3], 4..8), [(4, 8), (1, 2)]);
        assert_eq!(taken(update, &[10, 3], 3..5), [(3, 5), (1, 1)]);
    }

    #[test]
    fn a_part_of_a_pad_has_its_part_of_the_border() {
        let dims = vec![PadDim { low: 2, high: 3, interior: 1 }];
        let pad = Op::new(OpCode::Pad, Attrs::Pad(Arc::new((dims, 0))));
        // . . a . b . c . . .
        for (range, taken, low, high, interior) in [
            (0..10, (0, 3), 2, 3, 1),
            (0..2, (0, 0), 2, 0, 0),
            (1..4, (0, 1), 1, 1, 1),
            (3..6, (1, 2), 1, 1, 1),
            (4..7, (1, 3), 0, 0, 1),
            (7..10, (3, 3), 3, 0, 0),
            (5..6, (2, 2), 1, 0, 0),
        ] {
            let (operand, op) = part(pad.clone(), &[3], range.clone());
            let Attrs::Pad(own) = &op.attrs else { unreachable!("it is a pad") };
            assert_eq!(operand, [taken], "{range:?}");
            assert_eq!(own.0, [PadDim { low, high, interior }], "{range:?}");
        }
    }

    #[test]
    fn a_part_of_a_reshape_needs_neighbours() {
        let part = |from: &[usize], to: &[usize], part: &[Range<usize>]| {
            let op = reshape_to(to);
            let spec = TensorSpec::new(from, DType::F32);
            let out = op.infer(&[&spec]).unwrap();
            let found = reshape(OpCall { op: &op, inputs: &[&spec] }, &out, part).unwrap();
            let sizes: Vec<usize> = found.operands[0].iter().map(|range| range.len()).collect();
            let mut own = TensorSpec::new(&sizes[..], DType::F32);
            for op in &found.ops {
                own = op.infer(&[&own]).unwrap();
            }
            let extent: Vec<usize> = part.iter().map(|range| range.len()).collect();
            assert_eq!(own.shape.hints(), extent, "{:?}", found.ops);
            (found.operands[0].clone(), found.ops.len())
        };
        // Rows and columns become rows of one axis, and the other way round.
        assert_eq!(part(&[10, 5], &[50], &[13..26]), (vec![2..6, 0..5], 3));
        assert_eq!(part(&[50], &[10, 5], &[3..6, 0..5]), (vec![15..30], 1));
        assert_eq!(part(&[50], &[10, 5], &[3..6, 1..3]), (vec![15..30], 2));
        assert_eq!(part(&[4, 3, 8], &[12, 8], &[3..5, 0..8]), (vec![1..2, 0..2, 0..8], 1));
        assert_eq!(part(&[2, 3], &[3, 2], &[1..2, 0..2]), (vec![0..2, 0..3], 3));
        // Axes of one element, and none.
        assert_eq!(part(&[6, 4], &[6, 1, 4], &[1..2, 0..1, 1..3]), (vec![1..2, 1..3], 1));
        assert_eq!(part(&[1, 6], &[6], &[4..6]), (vec![0..1, 4..6], 1));
        assert_eq!(part(&[], &[1, 1], &[0..1, 0..1]), (vec![], 1));
    }
}
