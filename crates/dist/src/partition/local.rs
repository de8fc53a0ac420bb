//! The op that a processor computes on its parts in place of an op on whole tensors.

use super::Partitioner;
use super::each::Each;
use super::stages::Specs;
use girih_ir::ops::{Attrs, SliceDim};
use girih_ir::sharding::P;
use girih_ir::{Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Result, Shape, TensorSpec};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// The ops or the constant with which a processor computes its part of a result.
#[derive(Clone, Debug)]
pub(super) enum LocalOp {
    /// The op with the attributes for its parts, and ops that follow on its result.
    Ops(SmallVec<[Op; 1]>),
    /// A program on its parts.
    Program(Arc<Graph>),
    /// The processor has no element to reduce, and the op has no result for none; or no part.
    Neutral(Literal, Shape),
}

impl LocalOp {
    pub fn emit(&self, b: &mut GraphBuilder, inputs: &[NodeId]) -> Result<NodeId> {
        match self {
            LocalOp::Ops(ops) => {
                let (first, rest) = ops.split_first().expect("at least one op computes a part");
                let part = b.emit(first.clone(), inputs)?;
                rest.iter().try_fold(part, |part, op| b.emit(op.clone(), &[part]))
            }
            LocalOp::Program(program) => Ok(b.inline(program, inputs)?[0]),
            LocalOp::Neutral(value, shape) => Ok(b.constant(*value, shape.clone())),
        }
    }
}

impl Partitioner<'_> {
    /// The op of each processor for parts of the operands under these specs; `None` if a processor
    /// cannot compute its part of the result from its parts of the operands.
    pub(super) fn local_ops(
        &mut self,
        op: &Op,
        wanted: &[P],
        operands: &[&TensorSpec],
        (found, result): (&P, &TensorSpec),
    ) -> Result<Option<Each<LocalOp>>> {
        let mut parts: SmallVec<[Specs; 4]> = SmallVec::new();
        for (spec, tensor) in wanted.iter().zip(operands).chain([(found, &result)]) {
            parts.push(self.local_specs(spec, tensor)?);
        }
        let parts: SmallVec<[&Each<TensorSpec>; 4]> = parts.iter().map(|specs| &**specs).collect();
        let whole = (operands, result);
        let op_of = |specs: &SmallVec<[&TensorSpec; 4]>| {
            let (result, inputs) = specs.split_last().expect("the result comes last");
            let local = sized(op, whole, (inputs, result));
            if local.infer(inputs).is_ok_and(|spec| spec == **result) {
                return Some(LocalOp::Ops(smallvec![local]));
            }
            let by = found.partial_op()?;
            let nothing = inputs.iter().any(|spec| spec.shape.has_no_elements());
            nothing.then(|| LocalOp::Neutral(by.neutral(result.dtype), result.shape.clone()))
        };
        Ok(Each::joined(&parts).map(op_of))
    }
}

/// The op with the sizes in its attributes changed to those of a part.
fn sized(
    op: &Op,
    (operands, whole): (&[&TensorSpec], &TensorSpec),
    (inputs, part): (&[&TensorSpec], &TensorSpec),
) -> Op {
    let attrs = match (&op.attrs, op.code) {
        (Attrs::Shape(_), _) => Attrs::shape(part.shape.clone()),
        (Attrs::Slice(dims), OpCode::Slice) => slices(dims, operands[0], &whole.shape, &part.shape),
        // The bounds of an update are where the second operand goes.
        (Attrs::Slice(dims), _) if inputs.len() > 1 => {
            slices(dims, operands[0], &operands[1].shape, &inputs[1].shape)
        }
        (attrs, _) => attrs.clone(),
    };
    Op { attrs, ..op.clone() }
}

/// The bounds of a slice of a part: an axis that is taken whole is as long as the part's.
fn slices(dims: &[SliceDim], from: &TensorSpec, whole: &Shape, part: &Shape) -> Attrs {
    let all = from.shape.hints().iter().zip(whole.hints()).zip(part.hints());
    let dim = |(dim, ((&from, &whole), &part)): (&SliceDim, ((&usize, &usize), &usize))| {
        let kept = *dim == SliceDim { start: 0, size: from, step: 1 } && from == whole;
        if kept { SliceDim { size: part, ..*dim } } else { *dim }
    };
    Attrs::Slice(Arc::new(dims.iter().zip(all).map(dim).collect()))
}
