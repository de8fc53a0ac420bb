//! Families of programs: those of one graph that differ in the results they give.
//!
//! An evaluation gives the results it is asked for, and keeps those of intermediates that somebody holds.
//! Who holds what may differ each time, because garbage is collected when it is, and that must not
//! compile a program each time. So a program that gives more than is wanted serves too, and its other
//! results are dropped. Where there is none, the program that is compiled gives what the last one of the
//! family gave as well: of `n` intermediates that come and go, `n` such programs suffice. To give a result
//! that nobody wants may cost a fusion, so a set of results that was served [`MOST_SERVED`] times gets a
//! program of its own.

use crate::cache::{CachedPlan, Order};
use crate::{CompileOptions, Executor, Result};
use girih_ir::{Graph, NodeId};
use girih_sync::MutexGuard;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::{Arc, PoisonError};

/// Programs of a family that are remembered: those compiled last.
const MOST_MEMBERS: usize = 4;
/// Sets of results of a family that are counted.
const MOST_COUNTED: usize = 16;
/// How often a set of results is served by a program that gives more, before one is compiled for it.
const MOST_SERVED: u32 = 8;
/// Families that are remembered.
const MOST_FAMILIES: usize = 1024;

/// Families by the hash of the graph with the results it was asked for. That two graphs have one hash
/// costs a search, no more: programs are found by their whole keys.
pub(crate) type Families = FxHashMap<u64, Family>;

/// What is known of one graph's programs. Outputs begin with those asked for; those kept follow, sorted.
#[derive(Default)]
pub(crate) struct Family {
    members: Vec<Vec<NodeId>>,
    served: Vec<(Vec<NodeId>, u32)>,
}

impl Family {
    /// The program to have for `wanted`, the first `asked` of which were asked for.
    fn choose(&mut self, wanted: &[NodeId], asked: usize) -> Vec<NodeId> {
        let gives = |member: &&Vec<NodeId>| wanted.iter().all(|id| member.contains(id));
        let larger = self.members.iter().filter(gives).min_by_key(|member| member.len());
        let Some(larger) = larger.cloned() else {
            let last = self.members.last().map_or(&[][..], |member| &member[asked..]);
            return union(wanted, last, asked);
        };
        if larger.len() == wanted.len() || self.count(wanted) > MOST_SERVED {
            return wanted.to_vec();
        }
        larger
    }

    /// How often the set of results was served by a program that gives more, this time included.
    fn count(&mut self, wanted: &[NodeId]) -> u32 {
        if let Some((_, count)) = self.served.iter_mut().find(|(set, _)| set == wanted) {
            *count += 1;
            return *count;
        }
        if self.served.len() == MOST_COUNTED {
            self.served.clear();
        }
        self.served.push((wanted.to_vec(), 1));
        1
    }

    /// A program that gives `outputs` was compiled.
    fn add(&mut self, outputs: Vec<NodeId>) {
        self.members.retain(|member| *member != outputs);
        if self.members.len() == MOST_MEMBERS {
            self.members.remove(0);
        }
        self.members.push(outputs);
    }
}

/// What is wanted, and besides it what the last program kept.
fn union(wanted: &[NodeId], last: &[NodeId], asked: usize) -> Vec<NodeId> {
    let (asked, kept) = wanted.split_at(asked);
    let kept: BTreeSet<NodeId> = kept.iter().chain(last).copied().collect();
    asked.iter().copied().chain(kept.into_iter().filter(|id| !asked.contains(id))).collect()
}

impl Executor {
    /// The plan of a graph of which the first `asked` outputs are asked for, and the others are kept since
    /// somebody holds them. It may be the plan of a program that gives more.
    ///
    /// Errors: as [`Executor::plan`].
    pub fn plan_keeping(
        &self,
        graph: &Graph,
        asked: usize,
        options: CompileOptions,
    ) -> Result<CachedPlan> {
        if !self.use_cache {
            return self.plan(graph, options);
        }
        let key = self.key(graph, options);
        if let Some(program) = self.cache.get(&key) {
            return Ok(program);
        }
        let wanted = graph.outputs();
        let family = {
            let mut encoded = Vec::with_capacity(key.len());
            graph.encode_with(&wanted[..asked], &mut encoded);
            let mut hasher = FxHasher::default();
            hasher.write(&self.key_of(graph, encoded, options));
            hasher.finish()
        };
        let outputs = self.lock_families().entry(family).or_default().choose(wanted, asked);
        let program = if outputs == wanted {
            self.plan_missing(key, graph, options, |graph| self.backend.compile(graph, options))?
        } else {
            let mut larger = graph.clone();
            larger.set_outputs(outputs.iter().copied());
            self.plan(&larger, options)?.giving(&outputs, wanted)
        };
        let mut families = self.lock_families();
        if families.len() >= MOST_FAMILIES {
            families.clear();
        }
        families.entry(family).or_default().add(outputs);
        Ok(program)
    }

    pub(crate) fn lock_families(&self) -> MutexGuard<'_, Families> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedPlan {
    /// The same plan, which gives `outputs`, for one who wants some of them.
    fn giving(&self, outputs: &[NodeId], wanted: &[NodeId]) -> CachedPlan {
        let place = |id: &NodeId| match outputs.iter().position(|other| other == id) {
            Some(at) => self.order.as_ref().map_or(at as u32, |order| order.outputs[at]),
            None => unreachable!("the program was chosen because it gives what is wanted"),
        };
        let arguments = match &self.order {
            Some(order) => order.arguments.clone(),
            None => (0..self.plan.arguments.len() as u32).collect(),
        };
        let order = Order { arguments, outputs: wanted.iter().map(place).collect() };
        CachedPlan::new(self.plan.clone(), Some(Arc::new(order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn the_smallest_program_that_gives_enough_serves() {
        let mut family = Family::default();
        assert_eq!(family.choose(&ids(&[9, 3]), 1), ids(&[9, 3]));
        family.add(ids(&[9, 3]));
        assert_eq!(family.choose(&ids(&[9]), 1), ids(&[9, 3]));
        assert_eq!(family.choose(&ids(&[9, 2, 5]), 1), ids(&[9, 2, 3, 5]), "with the last one's");
        family.add(ids(&[9, 2, 3, 5]));
        assert_eq!(family.choose(&ids(&[9]), 1), ids(&[9, 3]));
        assert_eq!(family.choose(&ids(&[9, 3, 5]), 1), ids(&[9, 2, 3, 5]));
        assert_eq!(family.choose(&ids(&[9, 2, 3, 5]), 1), ids(&[9, 2, 3, 5]));
    }

    #[test]
    fn results_that_are_wanted_time_and_again_have_a_program() {
        let mut family = Family::default();
        family.add(ids(&[7, 1, 2]));
        for _ in 0..MOST_SERVED {
            assert_eq!(family.choose(&ids(&[7, 2]), 1), ids(&[7, 1, 2]));
        }
        assert_eq!(family.choose(&ids(&[7, 2]), 1), ids(&[7, 2]));
        assert_eq!(family.choose(&ids(&[7, 1]), 1), ids(&[7, 1, 2]), "each set is counted apart");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut family = Family::default();
        for i in 0..100 {
            family.add(ids(&[i]));
            family.count(&ids(&[i, 1]));
        }
        assert_eq!(family.members, [[96], [97], [98], [99]].map(|set| ids(&set)));
        assert!(family.served.len() <= MOST_COUNTED);
    }
}
