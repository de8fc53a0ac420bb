//! Ops that read elements of an axis at indices, on a part of the axis: each processor contributes
//! the elements that it has, and zeros for the others, so that the sum over the processors is the
//! op's result. Source: the embedding that is parallel in the vocabulary of Megatron-LM (Shoeybi et
//! al. 2019).

use super::*;
use crate::{GraphBuilder, Literal, Shape};
use std::ops::Range;

/// Records the contribution of a part of the indexed axis to a call's result. The first operand is
/// that part of the whole operand, whose axis has `size` elements; the result's spec is given. An
/// index outside of the whole axis fails as it does in the op itself.
pub type MaskRule = fn(
    b: &mut GraphBuilder,
    op: &Op,
    inputs: &[NodeId],
    part: Range<usize>,
    size: usize,
    result: &TensorSpec,
) -> Result<NodeId>;

/// The axis of the first operand that an op with a [`MaskRule`] indexes.
pub fn masked_axis(op: &Op) -> usize {
    match op.attrs {
        Attrs::Axis(axis) => axis as usize,
        _ => unreachable!("the shape rule checks it"),
    }
}

/// Indices into a part of an axis, and which of them lie in it; the others become some index in it.
fn within(
    b: &mut GraphBuilder,
    indices: NodeId,
    part: Range<usize>,
    size: usize,
) -> Result<[NodeId; 2]> {
    // Reading an iota checks the bounds, and counts negative indices from the end.
    let places = b.iota([size], DType::I64, 0);
    let whole = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[places, indices])?;
    let number = |b: &mut GraphBuilder, n: usize| {
        b.constant(Literal::from_i64(DType::I64, n as i64), Shape::scalar())
    };
    let (first, zero, last) =
        (number(b, part.start), number(b, 0), number(b, part.len().saturating_sub(1)));
    let own = b.sub(whole, first)?;
    let inside = b.maximum(own, zero)?;
    let inside = b.minimum(inside, last)?;
    let is_inside = b.op(OpCode::Eq, &[own, inside])?;
    Ok([inside, is_inside])
}

fn masked(
    b: &mut GraphBuilder,
    op: &Op,
    [x, indices]: [NodeId; 2],
    (part, size): (Range<usize>, usize),
    behind: usize,
) -> Result<NodeId> {
    let [inside, is_inside] = within(b, indices, part, size)?;
    let taken = b.emit(op.clone(), &[x, inside])?;
    let shape = b.shape(is_inside).clone();
    let column: Shape = shape.dims().chain((0..behind).map(|_| 1.into())).collect();
    let is_inside = b.reshape(is_inside, column)?;
    let zero = b.constant(Literal::from_i64(b.dtype(x), 0), Shape::scalar());
    b.select(is_inside, taken, zero)
}

fn zeros(b: &mut GraphBuilder, result: &TensorSpec) -> NodeId {
    b.constant(Literal::from_i64(result.dtype, 0), result.shape.clone())
}

pub(super) fn take(
    b: &mut GraphBuilder,
    op: &Op,
    inputs: &[NodeId],
    part: Range<usize>,
    size: usize,
    result: &TensorSpec,
) -> Result<NodeId> {
    if part.is_empty() {
        return Ok(zeros(b, result));
    }
    // The axes of the result behind those of the indices.
    let behind = b.shape(inputs[0]).rank() - masked_axis(op) - 1;
    masked(b, op, [inputs[0], inputs[1]], (part, size), behind)
}

pub(super) fn take_along_axis(
    b: &mut GraphBuilder,
    op: &Op,
    inputs: &[NodeId],
    part: Range<usize>,
    size: usize,
    result: &TensorSpec,
) -> Result<NodeId> {
    if part.is_empty() {
        return Ok(zeros(b, result));
    }
    masked(b, op, [inputs[0], inputs[1]], (part, size), 0)
}
