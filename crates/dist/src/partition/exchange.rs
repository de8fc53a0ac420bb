//! Resharding inside of a partition: each processor slices its old part, or parts are exchanged.

use super::stages::ValueId;
use super::{Partitioner, Sharded, specs_of};
use crate::ownership::{part, rectangles, same_ownership};
use crate::rect::Rect;
use crate::{Assembly, Reshard, reshard};
use girih_ir::ops::SliceDim;
use girih_ir::sharding::{AxisRef, P, Sharding};
use girih_ir::{Literal, NodeId, OpCode, Result, TensorSpec};
use std::collections::BTreeMap;

/// A value that changes its sharding by transfers between processors.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The value before.
    pub from: ValueId,
    /// The value after.
    pub to: ValueId,
    /// Shape and dtype of the whole value.
    pub tensor: TensorSpec,
    /// The sharding before, and the sharding after.
    pub shardings: [Sharding; 2],
    /// The transfers.
    pub plan: Reshard,
    /// The node of the graph that needs the value; `None` for an output.
    pub user: Option<NodeId>,
}

impl Exchange {
    /// The programs that carry it out: for each phase, how each processor assembles its next part.
    /// The first phase reads the parts of `from`, and the last one makes those of `to`.
    ///
    /// Errors: those of the op that combines partial values, on the tensor's dtype.
    pub fn lower(&self) -> Result<Vec<Vec<Assembly>>> {
        let [from, to] = &self.shardings;
        self.plan.lower(from, to, &self.tensor)
    }

    /// The bytes that cross between processors.
    pub fn bytes(&self) -> usize {
        self.plan.bytes_moved(self.tensor.dtype.size())
    }
}

/// The axes along which values are partial, with the op that combines them.
type Combined = BTreeMap<AxisRef, OpCode>;

fn owned((axis, op): (&AxisRef, &OpCode)) -> (AxisRef, OpCode) {
    (axis.clone(), *op)
}

impl Partitioner<'_> {
    /// The value under another spec.
    pub(super) fn resharded(
        &mut self,
        value: &Sharded,
        to: &P,
        tensor: &TensorSpec,
    ) -> Result<ValueId> {
        to.check(self.mesh, tensor.shape.rank())?;
        let (from, to) = (self.sharding(&value.spec)?, self.sharding(to)?);
        let shape = tensor.shape.hints();
        let (old, new) = (rectangles(&from, shape)?, rectangles(&to, shape)?);
        let specs = specs_of(&new, tensor);
        // Shards without elements may have other shapes.
        let fits = specs == self.stages.specs(value.value);
        if fits && same_ownership(&from, &to, shape)? {
            return Ok(value.value);
        }
        let (before, after) = (from.spec().merged(self.mesh), to.spec().merged(self.mesh));
        if after.partial.is_empty()
            && let Some(value) = self.stages.refilled(value.value, specs.clone())
        {
            return Ok(value);
        }
        let missing = |a: &Combined, b: &Combined| -> Combined {
            a.iter().filter(|(axis, op)| b.get(*axis) != Some(*op)).map(owned).collect()
        };
        let resolves = !missing(&before.partial, &after.partial).is_empty();
        if !resolves && old.iter().zip(&new).all(|(old, new)| old.contains(new)) {
            let value = self.sliced(value.value, &old, &new)?;
            return self.held_once(value, &missing(&after.partial, &before.partial));
        }
        let plan = reshard(&from, &to, shape)?;
        let (tensor, shardings, user) = (tensor.clone(), [from, to], self.user);
        Ok(self.stages.exchange(value.value, specs, |from, to| Exchange {
            from,
            to,
            tensor,
            shardings,
            plan,
            user,
        }))
    }

    /// The new part of each processor, which is inside of its old one.
    fn sliced(&mut self, value: ValueId, old: &[Rect], new: &[Rect]) -> Result<ValueId> {
        if old.iter().zip(new).all(|(old, new)| old.extent == new.extent) {
            return Ok(value);
        }
        self.stages.emit(&[value], |b, at, inputs| {
            let (old, new) = (&old[at], &new[at]);
            if old.extent == new.extent {
                return Ok(inputs[0]);
            }
            if new.is_empty() {
                let nothing = Literal::from_i64(b.dtype(inputs[0]), 0);
                return Ok(b.constant(nothing, new.extent.as_slice()));
            }
            let dim = |axis: usize| {
                let start = new.start[axis] - old.start[axis];
                SliceDim { start, size: new.extent[axis], step: 1 }
            };
            b.slice(inputs[0], (0..old.extent.len()).map(dim).collect())
        })
    }

    /// The value as partial values over more axes, of which the first processor along the axes has all.
    fn held_once(&mut self, value: ValueId, added: &Combined) -> Result<ValueId> {
        let axes: Vec<AxisRef> = added.keys().cloned().collect();
        let Some(&op) = added.values().next() else { return Ok(value) };
        let mesh = self.mesh;
        self.stages.emit(&[value], |b, at, inputs| match part(mesh, &axes, at) {
            0 => Ok(inputs[0]),
            _ => {
                let spec = b.spec(inputs[0]).clone();
                Ok(b.constant(op.neutral(spec.dtype), spec.shape))
            }
        })
    }
}
