//! Which collective a reshard is.

use super::plan::Plan;
use super::{Kind, Phase, Transfer};
use girih_ir::AxisRef;
use std::collections::{BTreeSet, HashSet};

impl Plan<'_> {
    pub(super) fn kind(&self, phases: &[Phase]) -> Kind {
        let crosses = |phase: &Phase| phase.transfers.iter().any(|t| !t.is_local());
        let [.., last] = phases else { return Kind::Identity };
        if let Some(op) = self.combines().filter(|_| crosses(&phases[0])) {
            return match (self.added.is_empty(), crosses(last)) {
                (true, false) => Kind::ReduceScatter(op),
                (true, true) if self.keeps_shards() => Kind::AllReduce(op),
                _ => Kind::General,
            };
        }
        if let Some(op) = self.partial_op(1).filter(|_| !self.added.is_empty()) {
            return if crosses(last) { Kind::General } else { Kind::Partial(op) };
        }
        if !crosses(last) {
            return Kind::Slice;
        }
        self.kind_of_copies(&last.transfers)
    }

    /// True if each device has the same elements before and after.
    fn keeps_shards(&self) -> bool {
        (0..self.to.mesh.len()).all(|position| {
            let old = self.from.position(self.to.mesh.device(position));
            let shard = self.to.shard(position);
            let same = old.is_some_and(|old| self.from.shard(old) == shard);
            same || (shard.is_empty() && old.is_none_or(|old| self.from.shard(old).is_empty()))
        }) && self.from.mesh.len() == self.to.mesh.len()
    }

    fn kind_of_copies(&self, transfers: &[Transfer]) -> Kind {
        let crossing: Vec<&Transfer> = transfers.iter().filter(|t| !t.is_local()).collect();
        // The shard of the source is sent as a whole.
        let whole = |t: &Transfer| {
            self.from.position(t.source).is_some_and(|at| self.from.shard(at) == t.rect)
        };
        let fills =
            |t: &Transfer| self.to.position(t.target).is_some_and(|at| self.to.shard(at) == t.rect);
        let distinct = |device: fn(&Transfer) -> u32| {
            crossing.iter().map(|t| device(t)).collect::<HashSet<u32>>().len()
        };
        let (sources, targets) = (distinct(|t| t.source), distinct(|t| t.target));
        let all_whole = transfers.iter().all(whole);
        match (self.from.mesh.len(), self.to.mesh.len()) {
            _ if all_whole
                && transfers.iter().all(fills)
                && sources == crossing.len()
                && targets == crossing.len() =>
            {
                Kind::Permute
            }
            (1, _) if all_whole => Kind::Broadcast,
            (1, _) => Kind::Scatter,
            (_, 1) if all_whole => Kind::Gather,
            _ if all_whole && self.grows() => Kind::AllGather,
            _ if self.moves_axes() => Kind::AllToAll,
            _ => Kind::General,
        }
    }

    /// True if each device keeps its old shard in its new one.
    fn grows(&self) -> bool {
        (0..self.from.mesh.len()).all(|old| {
            let new = self.to.position(self.from.mesh.device(old));
            new.is_some_and(|new| self.to.shard(new).contains(&self.from.shard(old)))
        })
    }

    /// True if the same axes of one mesh cut other dimensions.
    fn moves_axes(&self) -> bool {
        let Some(shardings) = self.shardings else { return false };
        let [from, to] = shardings.map(|sharding| {
            let spec = sharding.spec().merged(sharding.mesh());
            spec.dims.into_iter().flat_map(|dim| dim.axes).collect::<BTreeSet<AxisRef>>()
        });
        self.from.mesh == self.to.mesh && from == to
    }
}
