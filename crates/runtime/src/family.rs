//! Families of programs: those of one graph that differ in the results they give.
//!
//! An evaluation gives the results it is asked for, and keeps those of intermediates that somebody holds.
//! Who holds what may differ each time, because garbage is collected when it is, and that must not
//! compile a program each time. So a program that gives more than is wanted serves too, and its other
//! results are dropped. Where there is none, the program that is compiled gives what the last one of the
//! family gave as well: of `n` intermediates that come and go, `n` such programs suffice. To give a result
//! that nobody wants may cost a fusion, so a set of results that is served again and again gets a program
//! of its own: after [`MOST_SERVED`] times, if it is at least half of what larger programs served lately.
//! Handles that come and go at random make many sets, none of which is half of them.

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
/// Counts are halved when there are so many, so that they say what was served lately.
const WINDOW: u32 = 64;
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
    /// The sum of the counts.
    total: u32,
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
        if larger.len() == wanted.len() {
            return wanted.to_vec();
        }
        let count = self.count(wanted);
        match count > MOST_SERVED && 2 * count >= self.total {
            true => wanted.to_vec(),
            false => larger,
        }
    }

    /// How often the set of results was lately served by a program that gives more, this time included.
    fn count(&mut self, wanted: &[NodeId]) -> u32 {
        if self.total >= WINDOW {
            self.served.iter_mut().for_each(|(_, count)| *count /= 2);
            self.served.retain(|(_, count)| *count > 0);
            self.total = self.served.iter().map(|(_, count)| count).sum();
        }
        self.total += 1;
        if let Some((_, count)) = self.served.iter_mut().find(|(set, _)| set == wanted) {
            *count += 1;
            return *count;
        }
        if self.served.len() == MOST_COUNTED {
            self.served.clear();
            self.total = 1;
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

    /// The number of programs of a graph, of whose intermediates those are held that `held` says each time.
    fn programs(held: impl Iterator<Item = u32>) -> usize {
        let mut family = Family::default();
        let mut programs = BTreeSet::new();
        for held in held {
            let kept = (0..32).filter(|i| held >> i & 1 == 1);
            let wanted: Vec<NodeId> = std::iter::once(99).chain(kept).map(NodeId).collect();
            // A program of exactly these results is found without the family.
            if !programs.contains(&wanted) {
                let program = family.choose(&wanted, 1);
                programs.insert(program.clone());
                family.add(program);
            }
        }
        programs.len()
    }

    #[test]
    fn handles_that_come_and_go_at_random_compile_few_programs() {
        let mut state = 1u64;
        let mut random = |handles: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % (1 << handles)
        };
        for handles in [3, 4, 5, 8] {
            let found = programs((0..4000).map(|_| random(handles)));
            assert!(found <= handles as usize, "{found} programs for {handles} handles");
        }
        assert_eq!(programs((0..100).map(|i| i % 2)), 2, "a pattern gets its programs");
        assert_eq!(programs((0..400).map(|i| [3, 1, 3, 2][i % 4])), 3);
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
