//! The program cache: compiled plans by the canonical encoding of the graph they were compiled
//! from. Encodings are compared in full; their hash only finds them.

use crate::ExecutionPlan;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Plans by key, with statistics. When full, the plan not used for longest makes room.
pub struct ProgramCache {
    entries: FxHashMap<Box<[u8]>, Entry>,
    capacity: usize,
    clock: u64,
    hits: u64,
    misses: u64,
}

struct Entry {
    plan: Arc<ExecutionPlan>,
    used: u64,
}

/// Counts of a program cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a plan.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
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

    /// An empty cache for at most `capacity` plans (at least one).
    pub fn new(capacity: usize) -> ProgramCache {
        ProgramCache {
            entries: FxHashMap::default(),
            capacity: capacity.max(1),
            clock: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// The plan of that key; counts a hit or a miss.
    pub fn get(&mut self, key: &[u8]) -> Option<Arc<ExecutionPlan>> {
        self.clock += 1;
        match self.entries.get_mut(key) {
            Some(entry) => {
                entry.used = self.clock;
                self.hits += 1;
                Some(entry.plan.clone())
            }
            None => {
                self.misses += 1;
                None
            }
        }
    }

    /// The plan of that key, without counting.
    pub fn peek(&self, key: &[u8]) -> Option<&Arc<ExecutionPlan>> {
        self.entries.get(key).map(|entry| &entry.plan)
    }

    /// All plans, those used last first.
    pub fn plans(&self) -> Vec<Arc<ExecutionPlan>> {
        let mut entries: Vec<&Entry> = self.entries.values().collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.used));
        entries.into_iter().map(|entry| entry.plan.clone()).collect()
    }

    /// Keeps a plan. Plans in use elsewhere stay usable when they are evicted.
    pub fn insert(&mut self, key: Box<[u8]>, plan: Arc<ExecutionPlan>) {
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&key) {
            self.evict();
        }
        self.clock += 1;
        self.entries.insert(key, Entry { plan, used: self.clock });
    }

    /// Drops the least recently used eighth, so that evicting costs little per insertion.
    fn evict(&mut self) {
        let mut used: Vec<u64> = self.entries.values().map(|e| e.used).collect();
        let count = (used.len() / 8).max(1);
        let (_, &mut newest, _) = used.select_nth_unstable(count - 1);
        self.entries.retain(|_, e| e.used > newest);
    }

    /// Forgets all plans; counts go on.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Counts now.
    pub fn stats(&self) -> CacheStats {
        let plan_bytes = |plan: &ExecutionPlan| {
            size_of::<ExecutionPlan>()
                + size_of_val(&*plan.operations)
                + size_of_val(&*plan.buffers)
                + size_of_val(&*plan.binaries)
                + size_of_val(&*plan.arguments)
        };
        CacheStats {
            hits: self.hits,
            misses: self.misses,
            cached_kernels: self.entries.values().map(|e| e.plan.launches()).sum(),
            cached_programs: self.entries.len(),
            cache_size_bytes: self.entries.iter().map(|(k, e)| k.len() + plan_bytes(&e.plan)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_counted_and_the_size_is_bounded() {
        let mut cache = ProgramCache::new(16);
        for i in 0..10_000u32 {
            let key = i.to_le_bytes();
            assert!(cache.get(&key).is_none());
            cache.insert(key.as_slice().into(), Arc::default());
            assert!(cache.get(&key).is_some());
            assert!(cache.stats().cached_programs <= 16);
        }
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses), (10_000, 10_000));
        let held = cache.get(&9_999u32.to_le_bytes()).unwrap();
        cache.clear();
        assert_eq!(cache.stats().cached_programs, 0);
        assert_eq!(held.validate(), Ok(()));
    }
}
