//! Splits a tensor along an axis: one op with a result for each part. Decomposition turns it into
//! slices before fusion.

use super::*;
use crate::{Dim, NodeId, Shape};
use std::sync::Arc;

impl Op {
    /// Part `result` of a tensor that is split along an axis at these indices, in ascending order.
    pub fn split(axis: usize, at: Arc<Vec<usize>>, result: usize) -> Op {
        let (axis, result) = (axis as u8, result as u32);
        Op::new(OpCode::Split, Attrs::Part { result, axis, at })
    }

    /// The axis, start and size of the part that the op takes of a tensor of this shape; `None` if
    /// the op is not a split or does not fit the shape.
    pub fn part_of(&self, shape: &Shape) -> Option<(usize, usize, Dim)> {
        let Attrs::Part { result, axis, at } = &self.attrs else { return None };
        let (result, axis) = (*result as usize, *axis as usize);
        if axis >= shape.rank() || result > at.len() {
            return None;
        }
        let (start, size) = (if result == 0 { 0 } else { at[result - 1] }, shape.dim(axis));
        let end = at.get(result).map_or(size, |&end| end.into());
        let fits = size.at_least(end) && end.at_least(start);
        fits.then(|| (axis, start, end - start))
    }
}

fn infer(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = call.inputs[0];
    let Attrs::Part { result, axis, at } = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    let rank = spec.shape.rank();
    if *axis as usize >= rank {
        return Err(Error::AxisOutOfRange { op: call.name(), axis: *axis as i64, rank });
    }
    let Some((axis, _, size)) = call.op.part_of(&spec.shape) else {
        let reason = format!(
            "axis {axis} cut at {at:?} has no part {result}; expected ascending places within the axis, \
             and one part more than places"
        );
        return Err(Error::InvalidShape { op: call.name(), shape: spec.shape.clone(), reason });
    };
    Ok(TensorSpec { shape: spec.shape.with_dim(axis, size), dtype: spec.dtype })
}

fn decompose(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let x = d.inputs[0];
    let shape = d.b.shape(x).clone();
    let (axis, start, size) = d.op.part_of(&shape).expect("the shape rule has found the part");
    let whole = |size: Dim| SliceDim { start: 0, size: size.hint(), step: 1 };
    let mut dims: Vec<SliceDim> = shape.dims().map(whole).collect();
    dims[axis] = SliceDim { start, size: size.hint(), step: 1 };
    let result = shape.with_dim(axis, size);
    d.b.emit(Op::new(OpCode::Slice, Attrs::slice(dims, &result)), &[x])
}

/// `split(x)`: one part of `x` along an axis (attribute `Part`).
pub static SPLIT: OpDef = OpDef {
    name: "split",
    doc: "A part of an axis that is cut at some places; each part is a result.",
    class: Class::Composite,
    arity: (1, 1),
    infer,
    factors: Factoring::Rule(factoring::split),
    linear: Linearity::All,
    derivative: Derivative::Decompose,
    decompose: Some(decompose),
    category: Some(Category::Slice),
    samples: samples::split,
    ..OpDef::BLANK
};
