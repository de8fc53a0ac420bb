//! Resharding inside of a partition: by a slice of what each processor has, or by an exchange.

use super::stages::ValueId;
use super::{Partitioner, Sharded};
use crate::ownership::{part, same_ownership};
use crate::rect::Rect;
use crate::{Reshard, reshard};
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
    /// The bytes that cross between processors.
    pub fn bytes(&self) -> usize {
        self.plan.bytes_moved(self.tensor.dtype.size())
    }
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
        let shardings = [&value.spec, to].map(|spec| self.sharding(spec));
        let [from, to] = shardings;
        let (from, to) = (from?, to?);
        let shape = tensor.shape.hints();
        let specs = self.local_specs(to.spec(), tensor)?;
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
        let resolves = before.partial.keys().any(|axis| !after.partial.contains_key(axis));
        let old = self.rectangles(from.spec(), tensor)?;
        let new = self.rectangles(to.spec(), tensor)?;
        if !resolves && old.iter().zip(&new).all(|(old, new)| old.contains(new)) {
            let value = self.sliced(value.value, &old, &new)?;
            let added =
                after.partial.iter().filter(|(axis, _)| !before.partial.contains_key(*axis));
            let added = added.map(|(axis, op)| (axis.clone(), *op)).collect();
            return self.held_once(value, &added);
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

    fn sharding(&self, spec: &P) -> Result<Sharding> {
        Sharding::new(self.mesh.clone(), spec.clone())
    }

    /// Each processor's part of what it has.
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
    fn held_once(&mut self, value: ValueId, added: &BTreeMap<AxisRef, OpCode>) -> Result<ValueId> {
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
