//! Resharding inside of a partition: each processor slices its old part, or parts are exchanged. A
//! value that was resharded once is kept under its new spec, too, so that it moves once for all who
//! need it.

use super::each::Each;
use super::stages::{Specs, ValueId};
use super::windows::Window;
use super::{Partitioner, Sharded};
use crate::ownership::{part, rectangles, same_ownership};
use crate::rect::Rect;
use crate::{Assembly, Reshard, reshard};
use girih_ir::ops::SliceDim;
use girih_ir::sharding::{AxisRef, P, Sharding};
use girih_ir::{Literal, NodeId, OpCode, Result, TensorSpec};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    /// The elements that each processor has after it, if they are not those of the sharding after: an op
    /// that moves elements along an axis needs others.
    pub window: Option<Arc<[Rect]>>,
    /// The transfers. Equal exchanges share them.
    pub plan: Arc<Reshard>,
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
        match &self.window {
            None => self.plan.lower(from, to, &self.tensor),
            Some(window) => {
                let old = rectangles(from, self.tensor.shape.hints())?;
                let new = (to.mesh(), window.to_vec());
                self.plan.lowered((from.mesh(), old), new, self.tensor.dtype)
            }
        }
    }

    /// The names of the mesh's axes along which something moves, in the mesh's order.
    pub fn axes(&self) -> Vec<&str> {
        let mesh = self.shardings[0].mesh();
        let places: HashMap<u32, Vec<usize>> =
            (0..mesh.len()).map(|at| (mesh.device(at), mesh.coordinates(at))).collect();
        let mut moves = vec![false; mesh.rank()];
        for transfer in self.plan.crossing() {
            let ends = places[&transfer.source].iter().zip(&places[&transfer.target]);
            moves.iter_mut().zip(ends).for_each(|(moves, (from, to))| *moves |= from != to);
            if moves.iter().all(|moves| *moves) {
                break;
            }
        }
        mesh.axes().zip(moves).filter(|(_, moves)| *moves).map(|(axis, _)| axis).collect()
    }

    /// The bytes that cross between processors.
    pub fn bytes(&self) -> usize {
        self.plan.bytes_moved(self.tensor.dtype.size())
    }
}

/// What a processor keeps of its part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    All,
    Slice(Vec<SliceDim>),
    /// No elements, in this shape.
    Nothing(Vec<usize>),
}

/// The change from one spec to another.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// All processors have what they need.
    Same,
    /// Each processor has what it needs and more. Along the axes, on which the value becomes partial,
    /// the first processor keeps it.
    Slice(Each<Kept>, Vec<AxisRef>, Option<OpCode>),
    /// Processors send each other what they need.
    Exchange {
        shardings: [Sharding; 2],
        window: Option<Window>,
        plan: Arc<Reshard>,
        /// The elements that cross between processors.
        moved: usize,
    },
}

impl Change {
    fn moved(&self) -> usize {
        match self {
            Change::Exchange { moved, .. } => *moved,
            _ => 0,
        }
    }
}

impl Partitioner<'_> {
    /// The value under another spec: from what moves least of all specs that it has already.
    pub(super) fn resharded(
        &mut self,
        value: &Sharded,
        to: &P,
        tensor: &TensorSpec,
    ) -> Result<ValueId> {
        to.check(self.mesh, tensor.shape.rank())?;
        let to = self.plain(to, tensor.shape.rank());
        if value.spec == to {
            return Ok(value.value);
        }
        let known = self.versions.get(&value.value).map_or(&[][..], |known| known);
        if let Some((_, same)) = known.iter().find(|(spec, _)| *spec == to) {
            return Ok(*same);
        }
        if to.partial.is_empty() {
            let specs = self.local_specs(&to, tensor)?;
            if let Some(new) = self.stages.refilled(value.value, &specs) {
                return Ok(new);
            }
        }
        let known = self.versions.get(&value.value).cloned().unwrap_or_default();
        let mut best = (self.change(&value.spec, &to, tensor)?, value.value);
        for (spec, version) in known {
            let change = self.change(&spec, &to, tensor)?;
            if change.moved() < best.0.moved() {
                best = (change, version);
            }
        }
        let (change, from) = best;
        let specs = self.local_specs(&to, tensor)?;
        let new = self.changed(from, &change, specs, tensor)?;
        self.versions.entry(value.value).or_default().push((to, new));
        Ok(new)
    }

    pub(super) fn changed(
        &mut self,
        value: ValueId,
        change: &Change,
        specs: Specs,
        tensor: &TensorSpec,
    ) -> Result<ValueId> {
        match change {
            Change::Same => Ok(value),
            Change::Slice(kept, axes, by) => {
                let value = self.sliced(value, kept, &specs)?;
                match by {
                    Some(by) => self.held_once(value, axes, *by, specs),
                    None => Ok(value),
                }
            }
            Change::Exchange { shardings, window, plan, .. } => {
                let user = self.user;
                Ok(self.stages.exchange(value, specs, |from, to| Exchange {
                    from,
                    to,
                    tensor: tensor.clone(),
                    shardings: shardings.clone(),
                    window: window.clone(),
                    plan: plan.clone(),
                    user,
                }))
            }
        }
    }

    /// How a value of this shape gets from one spec to another.
    fn change(&mut self, from: &P, to: &P, tensor: &TensorSpec) -> Result<Arc<Change>> {
        let shape = tensor.shape.hints();
        let key = (from.clone(), to.clone(), shape.to_vec());
        if let Some(known) = self.changes.get(&key) {
            return Ok(known.clone());
        }
        let change = Arc::new(self.new_change(from, to, tensor)?);
        self.changes.insert(key, change.clone());
        Ok(change)
    }

    fn new_change(&mut self, before: &P, after: &P, tensor: &TensorSpec) -> Result<Change> {
        let shape = tensor.shape.hints();
        let (from, to) = (self.sharding(before)?, self.sharding(after)?);
        // Shards without elements may have other shapes.
        let fits = self.local_specs(before, tensor)? == self.local_specs(after, tensor)?;
        if fits && same_ownership(&from, &to, shape)? {
            return Ok(Change::Same);
        }
        let missing = |a: &P, b: &P| -> BTreeMap<AxisRef, OpCode> {
            let partial = a.partial.iter().filter(|(axis, op)| b.partial.get(*axis) != Some(*op));
            partial.map(|(axis, op)| (axis.clone(), *op)).collect()
        };
        let (old, new) = (rectangles(&from, shape)?, rectangles(&to, shape)?);
        let contained = old.iter().zip(&new).all(|(old, new)| old.contains(new));
        if contained && missing(before, after).is_empty() {
            let added = missing(after, before);
            let by = added.values().next().copied();
            let kept = old.iter().zip(&new).map(|(old, new)| kept(old, new));
            return Ok(Change::Slice(Each::collect(kept), added.into_keys().collect(), by));
        }
        let plan = Arc::new(reshard(&from, &to, shape)?);
        let moved = plan.bytes_moved(1);
        Ok(Change::Exchange { shardings: [from, to], window: None, plan, moved })
    }

    /// The new part of each processor, which is inside of its old one.
    fn sliced(&mut self, value: ValueId, kept: &Each<Kept>, specs: &Specs) -> Result<ValueId> {
        if kept.distinct() == [Kept::All] {
            return Ok(value);
        }
        self.stages.emit(&[value], specs.clone(), kept.forms(), |b, form, inputs| {
            match &kept.distinct()[form] {
                Kept::All => Ok(inputs[0]),
                Kept::Slice(dims) => b.slice(inputs[0], dims.clone()),
                Kept::Nothing(shape) => {
                    let nothing = Literal::from_i64(b.dtype(inputs[0]), 0);
                    Ok(b.constant(nothing, &shape[..]))
                }
            }
        })
    }

    /// The value as partial values over more axes, of which the first processor along the axes has all.
    fn held_once(
        &mut self,
        value: ValueId,
        axes: &[AxisRef],
        by: OpCode,
        specs: Specs,
    ) -> Result<ValueId> {
        let is_first = (0..self.mesh.len()).map(|at| part(self.mesh, axes, at) == 0);
        let is_first = Each::collect(is_first);
        self.stages.emit(&[value], specs, is_first.forms(), |b, form, inputs| {
            if is_first.distinct()[form] {
                return Ok(inputs[0]);
            }
            let spec = b.spec(inputs[0]).clone();
            Ok(b.constant(by.neutral(spec.dtype), spec.shape))
        })
    }
}

/// What is kept of an old part by a new one, which is inside of it.
pub(super) fn kept(old: &Rect, new: &Rect) -> Kept {
    if old.extent == new.extent {
        return Kept::All;
    }
    if new.is_empty() {
        return Kept::Nothing(new.extent.to_vec());
    }
    let dim = |axis: usize| {
        let start = new.start[axis] - old.start[axis];
        SliceDim { start, size: new.extent[axis], step: 1 }
    };
    Kept::Slice((0..old.extent.len()).map(dim).collect())
}
