//! The transfers of a reshard: who needs what, and who sends it.

use super::grid::{Cell, Grid};
use super::{Phase, Transfer};
use crate::ownership::{part, partial_axes, without};
use crate::rect::Rect;
use girih_ir::{AxisRef, OpCode, Result, Sharding};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// A processor of the new mesh and elements of one old cell that it needs.
struct Need {
    position: usize,
    device: u32,
    rect: Rect,
}

/// A group of processors with partial values of a cell, and who of them has combined which elements.
struct Combined {
    members: SmallVec<[usize; 4]>,
    parts: Vec<(usize, Rect)>,
}

pub(super) struct Plan<'a> {
    pub(super) from: Grid,
    pub(super) to: Grid,
    /// The old and the new sharding; `None` for layouts, which have no partial values.
    pub(super) shardings: Option<[&'a Sharding; 2]>,
    /// The axes of one mesh over which both shardings are partial.
    kept: Vec<AxisRef>,
    /// The axes over which only the old sharding is partial.
    pub(super) resolved: Vec<AxisRef>,
    /// The axes over which only the new sharding is partial.
    pub(super) added: Vec<AxisRef>,
}

/// The number of elements that each device has sent.
#[derive(Default)]
struct Sent(HashMap<u32, usize>);

impl Sent {
    /// The nearest of the devices that have the elements; among equals, the one that has sent least.
    fn choose(&mut self, holders: impl Iterator<Item = (usize, u32)>, rect: &Rect) -> u32 {
        let sent = |device| self.0.get(&device).copied().unwrap_or(0);
        let best = holders.min_by_key(|&(distance, device)| (distance, sent(device)));
        let (_, device) = best.expect("each element of a tensor has an owner");
        self.count(device, rect);
        device
    }

    fn count(&mut self, device: u32, rect: &Rect) {
        let sent = self.0.entry(device).or_default();
        *sent = sent.saturating_add(rect.len());
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(from: &'a Sharding, to: &'a Sharding, shape: &[usize]) -> Result<Plan<'a>> {
        let (mut resolved, mut added) = (partial_axes(from), partial_axes(to));
        let mut kept = Vec::new();
        if from.mesh() == to.mesh() && from.spec().partial_op() == to.spec().partial_op() {
            kept = resolved.extract_if(.., |axis| added.contains(axis)).collect();
            added.retain(|axis| !kept.contains(axis));
        }
        let shardings = Some([from, to]);
        let (from, to) = (Grid::new(from, shape)?, Grid::new(to, shape)?);
        Ok(Plan { from, to, shardings, kept, resolved, added })
    }

    /// A plan from shards to any elements for each processor. Partial values stay partial.
    pub(super) fn to_rects(
        from: &'a Sharding,
        rects: &[Rect],
        shape: &[usize],
    ) -> Result<Plan<'a>> {
        let (shardings, kept) = (Some([from, from]), partial_axes(from));
        let (resolved, added) = (vec![], vec![]);
        let to = Grid::of_rects(from.mesh(), rects);
        Ok(Plan { from: Grid::new(from, shape)?, to, shardings, kept, resolved, added })
    }

    /// A plan between layouts, whose processors are at their coordinates on one fabric.
    pub(super) fn between(from: Grid, to: Grid) -> Plan<'a> {
        let [kept, resolved, added] = [vec![], vec![], vec![]];
        Plan { from, to, shardings: None, kept, resolved, added }
    }

    /// The op by which values of the old or the new sharding are partial.
    pub(super) fn partial_op(&self, which: usize) -> Option<OpCode> {
        self.shardings?[which].spec().partial_op()
    }

    /// The op that combines the old partial values that are not kept.
    pub(super) fn combines(&self) -> Option<OpCode> {
        self.partial_op(0).filter(|_| !self.resolved.is_empty())
    }

    /// The phases, and the op whose identity fills the rest.
    pub(super) fn phases(&self) -> (Vec<Phase>, Option<OpCode>) {
        let needs = self.needs();
        let phases = match self.combines() {
            None => vec![Phase { combine: None, transfers: self.copies(needs) }],
            Some(op) => {
                let (combined, copied) = self.combined(needs);
                let phase = |combine, transfers| Phase { combine, transfers };
                vec![phase(Some(op), combined), phase(None, copied)]
            }
        };
        let fill = self.partial_op(1).filter(|_| !self.added.is_empty());
        (phases, fill)
    }

    /// The shards as they are, if both shardings own the same.
    pub(super) fn kept_shards(&self) -> Vec<Transfer> {
        let shards = |position| {
            let device = self.to.mesh.device(position);
            let keep = move |rect| Transfer { source: device, target: device, rect };
            self.to.rects(position).map(keep)
        };
        (0..self.to.mesh.len()).flat_map(shards).collect()
    }

    /// The index of a processor along the kept partial axes, along which no values move.
    fn lane(&self, position: usize) -> usize {
        part(&self.from.mesh, &self.kept, position)
    }

    /// The elements of each old cell that the processors of the new mesh need.
    fn needs(&self) -> BTreeMap<Cell, Vec<Need>> {
        let mut needs: BTreeMap<Cell, Vec<Need>> = BTreeMap::new();
        for cell in 0..self.to.owners.len() {
            let pieces = self.from.overlapping(&self.to.rect(cell));
            // Along the added partial axes, one processor has the elements and the others have the
            // identity.
            let leader = |position| without(&self.to.mesh, &self.added, position);
            for group in self.to.groups(cell, leader) {
                for (of, rect) in &pieces {
                    let holds = |position: usize| self.old(position, *of).is_some();
                    let holder = group.iter().copied().find(|&position| holds(position));
                    let position = holder.unwrap_or(group[0]);
                    let device = self.to.mesh.device(position);
                    let need = Need { position, device, rect: rect.clone() };
                    needs.entry(*of).or_default().push(need);
                }
            }
        }
        needs
    }

    /// The processor of the old mesh that is the device of a new one, if it has a cell for it.
    fn old(&self, position: usize, cell: Cell) -> Option<usize> {
        let old = self.from.position(self.to.mesh.device(position))?;
        let same_lane = self.kept.is_empty() || self.lane(old) == self.lane(position);
        (self.from.has(old, cell) && same_lane).then_some(old)
    }

    /// The distance from an old processor to a new one. Between different meshes only the same device
    /// is near; on a fabric, it is the number of hops.
    fn distance(&self, old: usize, position: usize) -> usize {
        if self.shardings.is_none() {
            return self.from.hops(old, &self.to, position);
        }
        match self.from.mesh == self.to.mesh {
            true => self.from.distance(old, position),
            false => (self.from.mesh.device(old) != self.to.mesh.device(position)) as usize,
        }
    }

    /// The transfers if no partial values are combined.
    fn copies(&self, needs: BTreeMap<Cell, Vec<Need>>) -> Vec<Transfer> {
        let mut sent = Sent::default();
        let mut transfers = Vec::new();
        for (cell, needs) in needs {
            for Need { position, device: target, rect } in needs {
                let source = match self.old(position, cell) {
                    Some(_) => target,
                    None => {
                        let owners = self.from.owners[cell].iter().copied();
                        let owners = owners.filter(|&owner| {
                            self.kept.is_empty() || self.lane(owner) == self.lane(position)
                        });
                        let near = |owner| self.distance(owner, position);
                        let holders = owners.map(|o| (near(o), self.from.mesh.device(o)));
                        sent.choose(holders, &rect)
                    }
                };
                transfers.push(Transfer { source, target, rect });
            }
        }
        transfers
    }

    /// The transfers that combine partial values, and those that send on what was combined.
    fn combined(&self, needs: BTreeMap<Cell, Vec<Need>>) -> (Vec<Transfer>, Vec<Transfer>) {
        let mut sent = Sent::default();
        let (mut combined, mut copied) = (Vec::new(), Vec::new());
        for (cell, needs) in needs {
            // New cells do not overlap, so the pieces are equal or have nothing in common.
            let mut pieces: BTreeMap<(Rect, usize), Vec<Need>> = BTreeMap::new();
            for need in needs {
                let lane = if self.kept.is_empty() { 0 } else { self.lane(need.position) };
                pieces.entry((need.rect.clone(), lane)).or_default().push(need);
            }
            let leader = |position| without(&self.from.mesh, &self.resolved, position);
            let groups = self.from.groups(cell, leader);
            for ((rect, lane), needs) in pieces {
                let groups = groups.iter().filter(|members| self.lane(members[0]) == lane);
                let groups = self.combine(cell, &rect, &needs, groups.cloned().collect());
                for group in &groups {
                    combined.extend(self.exchange(group, &mut sent));
                }
                for need in &needs {
                    copied.extend(self.send_on(cell, need, &groups, &mut sent));
                }
            }
        }
        (combined, copied)
    }

    /// The groups that combine a piece, and the members of each that do: those that need the piece,
    /// in equal parts. If nobody in a group needs it, all members of the first group do.
    fn combine(
        &self,
        cell: Cell,
        rect: &Rect,
        needs: &[Need],
        groups: Vec<SmallVec<[usize; 4]>>,
    ) -> Vec<Combined> {
        let needing: Vec<usize> =
            needs.iter().filter_map(|need| self.old(need.position, cell)).collect();
        let mut shared = Vec::new();
        for members in &groups {
            let own: SmallVec<[usize; 4]> =
                members.iter().copied().filter(|member| needing.contains(member)).collect();
            if !own.is_empty() {
                let parts = own.iter().copied().zip(rect.split(own.len())).collect();
                shared.push(Combined { members: members.clone(), parts });
            }
        }
        if let (true, Some(members)) = (shared.is_empty(), groups.first()) {
            let parts = members.iter().copied().zip(rect.split(members.len())).collect();
            shared.push(Combined { members: members.clone(), parts });
        }
        shared
    }

    /// The transfers of a group to those of its members that combine, in the members' order.
    fn exchange(&self, group: &Combined, sent: &mut Sent) -> Vec<Transfer> {
        let mut transfers = Vec::new();
        for (target, rect) in &group.parts {
            let target = self.from.mesh.device(*target);
            for &member in &group.members {
                let source = self.from.mesh.device(member);
                if source != target {
                    sent.count(source, rect);
                }
                transfers.push(Transfer { source, target, rect: rect.clone() });
            }
        }
        transfers
    }

    /// The transfers of combined elements to a processor that needs them.
    fn send_on(
        &self,
        cell: Cell,
        need: &Need,
        groups: &[Combined],
        sent: &mut Sent,
    ) -> Vec<Transfer> {
        let own = self.old(need.position, cell);
        let of_own =
            groups.iter().find(|group| own.is_some_and(|own| group.members.contains(&own)));
        let group = of_own.unwrap_or_else(|| {
            let near = |group: &&Combined| self.distance(group.members[0], need.position);
            groups.iter().min_by_key(near).expect("somebody combines each piece that is needed")
        });
        let transfer = |(owner, rect): &(usize, Rect)| {
            let holder = (0, self.from.mesh.device(*owner));
            let target = need.device;
            let source = match holder.1 == target {
                true => target,
                false => sent.choose([holder].into_iter(), rect),
            };
            Transfer { source, target, rect: rect.clone() }
        };
        group.parts.iter().map(transfer).collect()
    }
}
