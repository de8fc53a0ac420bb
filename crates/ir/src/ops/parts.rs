//! Parts of ops that move elements along an axis: the elements of the operands that a part of the
//! result needs, and the op that computes the part from them. So a processor that computes a part
//! of a slice, a pad or a concatenation needs no whole operand.

use super::*;
use std::ops::Range;
use std::sync::Arc;

/// A part of an op's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpPart {
    /// The elements of each operand that it needs, as a range of each axis.
    pub operands: Vec<Vec<Range<usize>>>,
    /// The op that computes it from these parts of the operands.
    pub op: Op,
}

/// The part of a call in a range of each axis of the result, whose spec is given.
pub type PartRule = fn(OpCall<'_>, &TensorSpec, &[Range<usize>]) -> OpPart;

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

pub(super) fn slice(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> OpPart {
    let all = bounds(call.op).iter().zip(part);
    let (operand, dims) = all
        .map(|(dim, range)| {
            let dims = SliceDim { start: 0, size: range.len(), step: dim.step };
            let first = dim.start + range.start * dim.step;
            let taken = range.len().checked_sub(1).map_or(0, |last| last * dim.step + 1);
            (first..first + taken, dims)
        })
        .unzip();
    OpPart { operands: vec![operand], op: Op::new(call.op.code, Attrs::Slice(Arc::new(dims))) }
}

pub(super) fn flip(call: OpCall<'_>, out: &TensorSpec, part: &[Range<usize>]) -> OpPart {
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("the shape rule checks it") };
    let range = |(axis, range): (usize, &Range<usize>)| {
        let size = out.shape.hints()[axis];
        if axes.contains(axis) { size - range.end..size - range.start } else { range.clone() }
    };
    let operand = part.iter().enumerate().map(range).collect();
    OpPart { operands: vec![operand], op: call.op.clone() }
}

pub(super) fn pad(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> OpPart {
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
    OpPart { operands: vec![operand], op: Op::new(call.op.code, attrs) }
}

pub(super) fn update_slice(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> OpPart {
    let all = bounds(call.op).iter().zip(part);
    let (updates, dims) = all
        .map(|(dim, range)| {
            let (taken, start) = strided(dim.start, dim.step, dim.size, range);
            let size = taken.len();
            (taken, SliceDim { start, size, step: dim.step })
        })
        .unzip();
    let op = Op::new(call.op.code, Attrs::Slice(Arc::new(dims)));
    OpPart { operands: vec![part.to_vec(), updates], op }
}

pub(super) fn concat(call: OpCall<'_>, _: &TensorSpec, part: &[Range<usize>]) -> OpPart {
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
    OpPart { operands: call.inputs.iter().map(operand).collect(), op: call.op.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn part(op: Op, inputs: &[usize], range: Range<usize>) -> (Vec<(usize, usize)>, Op) {
        let specs: Vec<_> = inputs.iter().map(|&n| TensorSpec::new([n], DType::F32)).collect();
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let out = op.infer(&specs).unwrap();
        let rule = op.def().part.unwrap();
        let found = rule(OpCall { op: &op, inputs: &specs }, &out, std::slice::from_ref(&range));
        let own = |ranges: &Vec<Range<usize>>| TensorSpec::new([ranges[0].len()], DType::F32);
        let own: Vec<_> = found.operands.iter().map(own).collect();
        let result = found.op.infer(&own.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(result.shape.hints(), [range.len()], "{:?}", found.op);
        let ends = |ranges: Vec<Range<usize>>| (ranges[0].start, ranges[0].end);
        (found.operands.into_iter().map(ends).collect(), found.op)
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
}
