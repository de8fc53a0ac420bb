//! Families of programs: the programs of one graph that return different sets of intermediate
//! results.
//!
//! An evaluation returns the requested outputs, and also the intermediates to which handles exist,
//! so that they need not be computed again. The set of live handles may differ each time, because
//! it depends on when the garbage collector runs, and must not cause a compilation each time. So a
//! program that returns more than the evaluation wants is reused, and its other results are
//! dropped. If there is none, the new program also returns the results of the last program of the
//! family: for `n` intermediates with handles that come and go, `n` programs suffice. Returning an
//! unwanted result may prevent a fusion, so a set of results that larger programs serve often gets
//! a program of its own: after [`MAX_SERVED`] times, if it makes up at least half of the recent
//! runs of larger programs. Handles that come and go at random produce many sets, and none of them
//! makes up half of the runs.

use crate::cache::{CachedPlan, Order};
use crate::{CompileOptions, PlanExecutor, Result};
use girih_ir::{Graph, NodeId};
use girih_sync::MutexGuard;
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::sync::{Arc, PoisonError};

/// The maximum number of programs per family; the most recently compiled ones stay.
const MAX_MEMBERS: usize = 4;
/// The maximum number of sets of results that a family counts.
const MAX_COUNTED: usize = 16;
/// A larger program serves a set of results this many times before the set gets its own program.
const MAX_SERVED: u32 = 8;
/// When the counts add up to this number, they are halved, so that they reflect recent runs.
const WINDOW: u32 = 64;
/// The maximum number of families.
const MAX_FAMILIES: usize = 1024;

/// Families, keyed by the hash of the graph with its requested outputs. A hash collision only costs
/// time, because programs are found by their whole keys.
pub(crate) type Families = FxHashMap<u64, Family>;

/// The known programs of one graph. Their outputs are the requested ones, then the intermediates in
/// sorted order.
#[derive(Default)]
pub(crate) struct Family {
    members: Vec<Vec<NodeId>>,
    served: Vec<(Vec<NodeId>, u32)>,
    /// The sum of the counts.
    total: u32,
}

impl Family {
    /// The outputs of the program to use for `wanted`, whose first `asked` outputs are requested.
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
        match count > MAX_SERVED && 2 * count >= self.total {
            true => wanted.to_vec(),
            false => larger,
        }
    }

    /// The recent number of times that a larger program served the set of results, including this
    /// time.
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
        if self.served.len() == MAX_COUNTED {
            self.served.clear();
            self.total = 1;
        }
        self.served.push((wanted.to_vec(), 1));
        1
    }

    /// Records that a program with these outputs was compiled.
    fn add(&mut self, outputs: Vec<NodeId>) {
        self.members.retain(|member| *member != outputs);
        if self.members.len() == MAX_MEMBERS {
            self.members.remove(0);
        }
        self.members.push(outputs);
    }
}

/// The union of `wanted` and the intermediates that the last program returns.
fn union(wanted: &[NodeId], last: &[NodeId], asked: usize) -> Vec<NodeId> {
    let (asked, kept) = wanted.split_at(asked);
    let kept: BTreeSet<NodeId> = kept.iter().chain(last).copied().collect();
    asked.iter().copied().chain(kept.into_iter().filter(|id| !asked.contains(id))).collect()
}

impl PlanExecutor {
    /// The plan of a graph whose first `asked` outputs are requested, and whose other outputs are
    /// intermediates with live handles. May be the plan of a program with more outputs.
    ///
    /// Errors: as [`PlanExecutor::plan`].
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
        if families.len() >= MAX_FAMILIES {
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
    /// The same plan, whose outputs are `outputs`, with an order that selects `wanted`.
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
    fn the_smallest_program_with_all_results_is_chosen() {
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
    fn frequently_requested_results_get_their_own_program() {
        let mut family = Family::default();
        family.add(ids(&[7, 1, 2]));
        for _ in 0..MAX_SERVED {
            assert_eq!(family.choose(&ids(&[7, 2]), 1), ids(&[7, 1, 2]));
        }
        assert_eq!(family.choose(&ids(&[7, 2]), 1), ids(&[7, 2]));
        assert_eq!(family.choose(&ids(&[7, 1]), 1), ids(&[7, 1, 2]), "each set is counted apart");
    }

    /// The number of programs of a graph for a sequence of sets of live handles, given as bit
    /// masks.
    fn programs(held: impl Iterator<Item = u32>) -> usize {
        let mut family = Family::default();
        let mut programs = BTreeSet::new();
        for held in held {
            let kept = (0..32).filter(|i| held >> i & 1 == 1);
            let wanted: Vec<NodeId> = std::iter::once(99).chain(kept).map(NodeId).collect();
            // The cache finds a program with exactly these results before the family is consulted.
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
    fn the_memory_of_a_family_is_bounded() {
        let mut family = Family::default();
        for i in 0..100 {
            family.add(ids(&[i]));
            family.count(&ids(&[i, 1]));
        }
        assert_eq!(family.members, [[96], [97], [98], [99]].map(|set| ids(&set)));
        assert!(family.served.len() <= MAX_COUNTED);
    }
}
