//! The program cache: compiled plans by the canonical encoding of the graph they were compiled
//! from. Encodings are compared in full; their hash only finds them. A program whose outputs are
//! asked for in several orders has one plan, and an entry per order that says how they map.

use crate::ExecutionPlan;
use girih_ir::Canonical;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Plans by key, with statistics. When full, the plan not used for longest makes room.
pub struct ProgramCache {
    entries: FxHashMap<Box<[u8]>, Entry>,
    capacity: usize,
    /// Bytes of all entries, and how many there may be.
    bytes: usize,
    capacity_bytes: usize,
    clock: u64,
    hits: u64,
    misses: u64,
    disk_hits: u64,
}

struct Entry {
    program: CachedPlan,
    used: u64,
    bytes: usize,
}

/// A plan, and how what a graph takes and gives corresponds to what the plan does.
#[derive(Clone)]
pub struct CachedPlan {
    /// The plan.
    pub plan: Arc<ExecutionPlan>,
    /// None if the graph's arguments and outputs are the plan's, in their order.
    pub order: Option<Arc<Order>>,
}

/// How a graph's arguments and outputs map to those of its plan.
#[derive(Debug)]
pub struct Order {
    /// For each argument of the plan, its position among the graph's.
    pub arguments: Vec<u32>,
    /// For each output of the graph, its position among the plan's.
    pub outputs: Vec<u32>,
}

impl Order {
    /// How a canonical graph maps to the plan of the graph it is the canonical form of.
    pub(crate) fn of_canonical(canonical: &Canonical) -> Order {
        let inverse = |positions: &[u32]| {
            let mut inverse = vec![0; positions.len()];
            for (at, &position) in positions.iter().enumerate() {
                inverse[position as usize] = at as u32;
            }
            inverse
        };
        Order { arguments: inverse(&canonical.arguments), outputs: inverse(&canonical.outputs) }
    }

    /// How a graph maps to a plan, where its canonical form maps by `self`.
    pub(crate) fn after(&self, canonical: &Canonical) -> Order {
        let pick = |table: &[u32], at: &u32| table[*at as usize];
        Order {
            arguments: self.arguments.iter().map(|at| pick(&canonical.arguments, at)).collect(),
            outputs: canonical.outputs.iter().map(|at| pick(&self.outputs, at)).collect(),
        }
    }
}

/// Bytes of a plan, without what back ends hold inside their binaries.
fn plan_bytes(plan: &ExecutionPlan) -> usize {
    size_of::<ExecutionPlan>()
        + size_of_val(&*plan.operations)
        + size_of_val(&*plan.buffers)
        + size_of_val(&*plan.binaries)
        + size_of_val(&*plan.arguments)
}

impl CachedPlan {
    /// About what it takes: of an order of another's plan, the order.
    fn bytes(&self) -> usize {
        /// About what a node of the graph takes, and what is compiled of it.
        const NODE: usize = 160;
        match &self.order {
            Some(order) => size_of_val(&*order.arguments) + size_of_val(&*order.outputs),
            None => {
                let nodes = self.plan.source.as_ref().map_or(0, |source| source.graph.len());
                plan_bytes(&self.plan) + NODE * nodes
            }
        }
    }
}

impl From<Arc<ExecutionPlan>> for CachedPlan {
    fn from(plan: Arc<ExecutionPlan>) -> CachedPlan {
        CachedPlan { plan, order: None }
    }
}

/// Counts of a program cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a plan.
    pub hits: u64,
    /// Lookups that found none, in memory or on disk.
    pub misses: u64,
    /// Lookups that found a plan another process left on disk.
    pub disk_hits: u64,
    /// Kernels of the plans now held.
    pub cached_kernels: usize,
    /// Plans now held.
    pub cached_programs: usize,
    /// Bytes of keys and plans now held, without what back ends hold inside their binaries.
    pub cache_size_bytes: usize,
}

impl ProgramCache {
    /// Plans held at most, unless said otherwise.
    pub const DEFAULT_CAPACITY: usize = 1024;

    /// About the most memory that plans take, in bytes. One that would take more than a quarter of it
    /// is not held: a graph of a million nodes takes long to run, and comes rarely twice.
    pub const CAPACITY_BYTES: usize = 256 << 20;

    /// An empty cache for at most `capacity` plans (at least one).
    pub fn new(capacity: usize) -> ProgramCache {
        ProgramCache {
            entries: FxHashMap::default(),
            capacity: capacity.max(1),
            bytes: 0,
            capacity_bytes: ProgramCache::CAPACITY_BYTES,
            clock: 0,
            hits: 0,
            misses: 0,
            disk_hits: 0,
        }
    }

    /// The plan of that key; counts a hit if there is one. Who finds none and gives up looking says
    /// so by [`ProgramCache::count_miss`].
    pub fn get(&mut self, key: &[u8]) -> Option<CachedPlan> {
        let entry = self.entries.get_mut(key)?;
        self.clock += 1;
        entry.used = self.clock;
        self.hits += 1;
        Some(entry.program.clone())
    }

    /// Counts a lookup that led to a compilation.
    pub fn count_miss(&mut self) {
        self.misses += 1;
    }

    /// Counts a lookup that found its plan on disk.
    pub fn count_disk_hit(&mut self) {
        self.disk_hits += 1;
    }

    /// The plan of that key, without counting.
    pub fn peek(&self, key: &[u8]) -> Option<&Arc<ExecutionPlan>> {
        self.entries.get(key).map(|entry| &entry.program.plan)
    }

    /// All plans, those used last first.
    pub fn plans(&self) -> Vec<Arc<ExecutionPlan>> {
        let own = |entry: &&Entry| entry.program.order.is_none();
        let mut entries: Vec<&Entry> = self.entries.values().filter(own).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.used));
        entries.into_iter().map(|entry| entry.program.plan.clone()).collect()
    }

    /// Keeps a plan. Plans in use elsewhere stay usable when they are evicted.
    pub fn insert(&mut self, key: Box<[u8]>, program: impl Into<CachedPlan>) {
        let program = program.into();
        let bytes = program.bytes() + key.len();
        if bytes > self.capacity_bytes / 4 {
            return;
        }
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.evict();
        }
        while self.bytes + bytes > self.capacity_bytes && !self.entries.is_empty() {
            self.evict();
        }
        self.clock += 1;
        let replaced = self.entries.insert(key, Entry { program, used: self.clock, bytes });
        self.bytes += bytes;
        self.bytes -= replaced.map_or(0, |entry| entry.bytes);
    }

    /// Drops the least recently used eighth, so that evicting costs little per insertion.
    fn evict(&mut self) {
        let mut used: Vec<u64> = self.entries.values().map(|e| e.used).collect();
        let count = (used.len() / 8).max(1);
        let (_, &mut newest, _) = used.select_nth_unstable(count - 1);
        self.entries.retain(|_, e| e.used > newest);
        self.bytes = self.entries.values().map(|e| e.bytes).sum();
    }

    /// Forgets all plans; counts go on.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Counts now.
    pub fn stats(&self) -> CacheStats {
        // A plan with several orders counts once.
        let own = |e: &&Entry| e.program.order.is_none();
        let plans = || self.entries.values().filter(own).map(|e| &e.program.plan);
        CacheStats {
            hits: self.hits,
            misses: self.misses,
            disk_hits: self.disk_hits,
            cached_kernels: plans().map(|p| p.launches()).sum(),
            cached_programs: plans().count(),
            cache_size_bytes: self.entries.keys().map(|k| k.len()).sum::<usize>()
                + plans().map(|p| plan_bytes(p)).sum::<usize>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_plans_is_bounded() {
        let mut cache = ProgramCache { capacity_bytes: 100_000, ..ProgramCache::new(1000) };
        let key = |i: u32, size: usize| {
            let mut key = vec![0; size];
            key[..4].copy_from_slice(&i.to_le_bytes());
            key.into_boxed_slice()
        };
        for i in 0..200 {
            cache.insert(key(i, 10_000), Arc::<ExecutionPlan>::default());
            assert!(cache.bytes <= 100_000 && cache.peek(&key(i, 10_000)).is_some());
        }
        cache.insert(key(0, 50_000), Arc::<ExecutionPlan>::default());
        assert!(cache.peek(&key(0, 50_000)).is_none(), "too large for this cache");
        assert!(cache.peek(&key(199, 10_000)).is_some());
        cache.clear();
        assert_eq!(cache.bytes, 0);
    }

    #[test]
    fn lookups_are_counted_and_the_size_is_bounded() {
        let mut cache = ProgramCache::new(16);
        for i in 0..10_000u32 {
            let key = i.to_le_bytes();
            assert!(cache.get(&key).is_none());
            cache.count_miss();
            cache.insert(key.as_slice().into(), Arc::<ExecutionPlan>::default());
            assert!(cache.get(&key).is_some());
            assert!(cache.stats().cached_programs <= 16);
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (10_000, 10_000));
        let held = cache.get(&9_999u32.to_le_bytes()).unwrap();
        cache.clear();
        assert_eq!(cache.stats().cached_programs, 0);
        assert_eq!(held.plan.validate(), Ok(()));
    }
}
