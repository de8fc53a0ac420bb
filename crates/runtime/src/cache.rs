//! The program cache: compiled plans, keyed by the canonical encoding of their source graph. A
//! lookup compares whole encodings; the hash of an encoding only selects the bucket. A program
//! whose outputs are requested in several orders has one plan, and one entry per order with the
//! mapping.
//!
//! Each thread caches the plans that it has looked up in a table of its own (`Recent`), so lookups
//! of cached programs by several threads do not contend for a lock. These tables are a subset of
//! the cache: evicting an entry empties all of them.

use crate::{ExecutionPlan, LoadedPlan};
use girih_ir::Canonical;
use girih_sync::{Counter, Mutex, MutexGuard, Striped};
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// A cache of plans by key, with statistics. A full cache evicts the least recently used plans.
pub struct ProgramCache {
    all: Mutex<All>,
    recent: Striped<Mutex<Recent>>,
    capacity: usize,
    capacity_bytes: usize,
    /// The logical clock of uses. It advances with each lookup in `all`.
    clock: AtomicU64,
    hits: Counter,
    misses: AtomicU64,
    disk_hits: AtomicU64,
}

#[derive(Default)]
struct All {
    entries: FxHashMap<Arc<[u8]>, Arc<Entry>>,
    /// The total size of the entries in bytes.
    bytes: usize,
    /// The number of entries ever inserted.
    made: u64,
    /// Incremented whenever entries are removed or replaced.
    version: u64,
}

/// The plans that the threads of one stripe have looked up.
#[derive(Default)]
struct Recent {
    entries: FxHashMap<Arc<[u8]>, (CachedPlan, Arc<Entry>)>,
    /// The version of [`All`] at the time when the table was filled.
    version: u64,
}

/// Removed programs, to be dropped after the locks are released: this takes long, and the programs
/// may own objects of users.
#[derive(Default)]
struct Dropped {
    entries: Vec<Arc<Entry>>,
    recent: Vec<Recent>,
}

struct Entry {
    program: CachedPlan,
    /// The clock at the last use. Uses through `Recent` between two ticks of the clock have the
    /// same age.
    used: AtomicU64,
    /// The sequence number of the insertion, to order entries of the same age.
    number: u64,
    bytes: usize,
}

impl Entry {
    /// Records a use. Does not write if the use is already recorded, because several threads may
    /// use the entry at the same time and would contend for the cache line.
    fn touch(&self, clock: u64) {
        if self.used.load(Relaxed) != clock {
            self.used.store(clock, Relaxed);
        }
    }

    fn age(&self) -> (u64, u64) {
        (self.used.load(Relaxed), self.number)
    }
}

/// A plan, with the mapping from a graph's arguments and outputs to the plan's. A reference-counted
/// handle.
#[derive(Clone)]
pub struct CachedPlan(Arc<Mapped>);

/// The contents of a [`CachedPlan`].
pub struct Mapped {
    /// The plan.
    pub plan: LoadedPlan,
    /// `None` if the graph's arguments and outputs are the plan's, in the same order.
    pub order: Option<Arc<Order>>,
}

impl Deref for CachedPlan {
    type Target = Mapped;

    #[inline]
    fn deref(&self) -> &Mapped {
        &self.0
    }
}

/// The mapping from a graph's arguments and outputs to its plan's.
#[derive(Debug)]
pub struct Order {
    /// For each argument of the plan, its position among the graph's arguments.
    pub arguments: Vec<u32>,
    /// For each output of the graph, its position among the plan's outputs.
    pub outputs: Vec<u32>,
}

impl Order {
    /// The mapping for a canonical graph and the plan of a graph with that canonical form.
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

    /// The mapping for a graph whose canonical form maps to the plan by `self`.
    pub(crate) fn after(&self, canonical: &Canonical) -> Order {
        let pick = |table: &[u32], at: &u32| table[*at as usize];
        Order {
            arguments: self.arguments.iter().map(|at| pick(&canonical.arguments, at)).collect(),
            outputs: canonical.outputs.iter().map(|at| pick(&self.outputs, at)).collect(),
        }
    }
}

/// The size of a plan in bytes, without the memory of its binaries.
fn plan_bytes(plan: &ExecutionPlan) -> usize {
    size_of::<ExecutionPlan>()
        + size_of_val(&*plan.operations)
        + size_of_val(&*plan.buffers)
        + size_of_val(&*plan.binaries)
        + size_of_val(&*plan.arguments)
}

impl CachedPlan {
    pub(crate) fn new(plan: LoadedPlan, order: Option<Arc<Order>>) -> CachedPlan {
        CachedPlan(Arc::new(Mapped { plan, order }))
    }

    /// The same plan with a reference count of its own, so that threads do not contend for one
    /// counter.
    fn detached(&self) -> CachedPlan {
        CachedPlan::new(self.plan.clone(), self.order.clone())
    }

    /// The approximate size in bytes. For another order of a plan, only the size of the order.
    fn bytes(&self) -> usize {
        /// The approximate size of a node of the source graph and of the code compiled from it, in
        /// bytes.
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

impl From<LoadedPlan> for CachedPlan {
    fn from(plan: LoadedPlan) -> CachedPlan {
        CachedPlan::new(plan, None)
    }
}

/// Statistics of a program cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a plan.
    pub hits: u64,
    /// Lookups that found no plan, in memory or on disk.
    pub misses: u64,
    /// Lookups that found a plan that another process wrote to disk.
    pub disk_hits: u64,
    /// The number of kernels of the cached plans.
    pub cached_kernels: usize,
    /// The number of cached plans.
    pub cached_programs: usize,
    /// The size of cached keys and plans in bytes, without the memory of binaries.
    pub cache_size_bytes: usize,
}

impl ProgramCache {
    /// The default of the maximum number of plans.
    pub const DEFAULT_CAPACITY: usize = 1024;

    /// The approximate limit of the plans' memory, in bytes. The cache does not keep a plan larger
    /// than a quarter of the limit: a graph of a million nodes runs for long, and rarely runs
    /// twice.
    pub const CAPACITY_BYTES: usize = 256 << 20;

    /// An empty cache for at most `capacity` plans (at least one).
    pub fn new(capacity: usize) -> ProgramCache {
        ProgramCache {
            all: Mutex::default(),
            recent: Striped::default(),
            capacity: capacity.max(1),
            capacity_bytes: ProgramCache::CAPACITY_BYTES,
            clock: AtomicU64::new(0),
            hits: Counter::default(),
            misses: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        // Each critical section leaves the state consistent, even if it panics.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan with that key, if it is cached; counts a hit. A caller that gives up after a failed
    /// lookup counts the miss by [`ProgramCache::count_miss`].
    pub fn get(&self, key: &[u8]) -> Option<CachedPlan> {
        let recent = || self.recent.mine().lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((program, entry)) = recent().entries.get(key) {
            entry.touch(self.clock.load(Relaxed));
            self.hits.add(1);
            return Some(program.clone());
        }
        // Hold one lock at a time: an eviction takes the locks of all tables.
        let (key, entry, version) = {
            let all = self.lock();
            let (key, entry) = all.entries.get_key_value(key)?;
            (key.clone(), entry.clone(), all.version)
        };
        entry.touch(self.tick());
        self.hits.add(1);
        let program = entry.program.detached();
        let mut recent = recent();
        // With another version, entries were evicted in the meantime, possibly including this one.
        if recent.version == version {
            recent.entries.insert(key, (program.clone(), entry));
        }
        Some(program)
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed) + 1
    }

    /// Counts a lookup that led to a compilation.
    pub fn count_miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    /// Counts a lookup that found its plan on disk.
    pub fn count_disk_hit(&self) {
        self.disk_hits.fetch_add(1, Relaxed);
    }

    /// Whether a plan with that key is cached. Does not change the counts.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lock().entries.contains_key(key)
    }

    /// All plans, the most recently used ones first.
    pub fn plans(&self) -> Vec<LoadedPlan> {
        let all = self.lock();
        let own = |entry: &&Arc<Entry>| entry.program.order.is_none();
        let mut entries: Vec<&Arc<Entry>> = all.entries.values().filter(own).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.age()));
        entries.into_iter().map(|entry| entry.program.plan.clone()).collect()
    }

    /// Inserts a plan. Evicted plans stay valid for their current users.
    pub fn insert(&self, key: Box<[u8]>, program: impl Into<CachedPlan>) {
        let program = program.into();
        let bytes = program.bytes() + key.len();
        if bytes > self.capacity_bytes / 4 {
            return;
        }
        // Programs are dropped without the lock, after `all`: see `Dropped`.
        let mut dropped = Dropped::default();
        let mut all = self.lock();
        let version = all.version;
        if all.entries.len() >= self.capacity && !all.entries.contains_key(&*key) {
            all.evict(&mut dropped);
        }
        while all.bytes + bytes > self.capacity_bytes && !all.entries.is_empty() {
            all.evict(&mut dropped);
        }
        all.made += 1;
        let (used, number) = (AtomicU64::new(self.tick()), all.made);
        let entry = Arc::new(Entry { program, used, number, bytes });
        let replaced = all.entries.insert(key.into(), entry);
        all.bytes += bytes;
        if let Some(replaced) = replaced {
            all.bytes -= replaced.bytes;
            all.version += 1;
            dropped.entries.push(replaced);
        }
        if all.version != version {
            self.forget_recent(all.version, &mut dropped);
        }
    }

    /// Empties the tables of all threads. Requires the lock of `all`.
    fn forget_recent(&self, version: u64, dropped: &mut Dropped) {
        for recent in self.recent.iter() {
            dropped.recent.push(recent.replace(Recent { version, ..Recent::default() }));
        }
    }

    /// Drops all plans; the counts of lookups stay.
    pub fn clear(&self) {
        let mut dropped = Dropped::default();
        let mut all = self.lock();
        dropped.entries.extend(all.entries.drain().map(|(_, entry)| entry));
        all.bytes = 0;
        all.version += 1;
        self.forget_recent(all.version, &mut dropped);
    }

    /// The current statistics.
    pub fn stats(&self) -> CacheStats {
        let all = self.lock();
        // Count a plan once, even if it has several orders.
        let own = |e: &&Arc<Entry>| e.program.order.is_none();
        let plans = || all.entries.values().filter(own).map(|e| &e.program.plan);
        CacheStats {
            hits: self.hits.get(),
            misses: self.misses.load(Relaxed),
            disk_hits: self.disk_hits.load(Relaxed),
            cached_kernels: plans().map(|p| p.launches()).sum(),
            cached_programs: plans().count(),
            cache_size_bytes: all.entries.keys().map(|k| k.len()).sum::<usize>()
                + plans().map(|p| plan_bytes(p)).sum::<usize>(),
        }
    }
}

impl All {
    /// Evicts the least recently used eighth of the entries, so that the cost per insertion is low.
    fn evict(&mut self, dropped: &mut Dropped) {
        let mut ages: Vec<(u64, u64)> = self.entries.values().map(|e| e.age()).collect();
        let count = (ages.len() / 8).max(1);
        let (_, &mut newest, _) = ages.select_nth_unstable(count - 1);
        // An entry that is used in the meantime stays.
        dropped.entries.extend(self.entries.extract_if(|_, e| e.age() <= newest).map(|(_, e)| e));
        self.bytes = self.entries.values().map(|e| e.bytes).sum();
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_plans_is_bounded() {
        let cache = ProgramCache { capacity_bytes: 100_000, ..ProgramCache::new(1000) };
        let key = |i: u32, size: usize| {
            let mut key = vec![0; size];
            key[..4].copy_from_slice(&i.to_le_bytes());
            key.into_boxed_slice()
        };
        for i in 0..200 {
            cache.insert(key(i, 10_000), LoadedPlan::default());
            assert!(cache.lock().bytes <= 100_000 && cache.contains(&key(i, 10_000)));
        }
        cache.insert(key(0, 50_000), LoadedPlan::default());
        assert!(!cache.contains(&key(0, 50_000)), "too large for this cache");
        assert!(cache.contains(&key(199, 10_000)));
        cache.clear();
        assert_eq!(cache.lock().bytes, 0);
    }

    #[test]
    fn lookups_are_counted_and_the_size_is_bounded() {
        let cache = ProgramCache::new(16);
        for i in 0..10_000u32 {
            let key = i.to_le_bytes();
            assert!(cache.get(&key).is_none());
            cache.count_miss();
            cache.insert(key.as_slice().into(), LoadedPlan::default());
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
    /// A plan that differs by `words` from the others.
    fn plan(words: usize) -> LoadedPlan {
        LoadedPlan::of(ExecutionPlan { temporary_bytes: words, ..ExecutionPlan::default() })
    }

    #[test]
    fn keys_are_compared_in_full_whatever_their_hashes() {
        // So many keys that differ in little that the hash tables hold equal parts of hashes.
        let cache = ProgramCache::new(1 << 20);
        let key = |i: usize| -> Box<[u8]> {
            let mut key = vec![0u8; 96];
            key[..8].copy_from_slice(&i.to_le_bytes());
            key[8 + i % 80] = 1;
            key.into()
        };
        for i in 0..20_000 {
            cache.insert(key(i), plan(i));
        }
        for i in 0..20_000 {
            let mut other = key(i);
            assert_eq!(cache.get(&other).unwrap().plan.temporary_bytes, i);
            other[95] ^= 1;
            assert!(cache.get(&other).is_none(), "{i}");
        }
    }

    #[test]
    fn programs_are_dropped_without_a_lock() {
        use girih_sync::in_section;
        use std::sync::mpsc::{Sender, channel};
        struct Probe(Sender<bool>);
        impl Drop for Probe {
            fn drop(&mut self) {
                self.0.send(in_section()).unwrap();
            }
        }
        let (sender, dropped) = channel();
        let cache = ProgramCache::new(8);
        let insert = |key: u8| {
            let probe = Probe(sender.clone());
            let artifact = move || {
                drop(probe);
                Vec::new()
            };
            let artifact: crate::plan::Artifact = Box::new(artifact);
            let plan = ExecutionPlan { artifact: Some(artifact), ..ExecutionPlan::default() };
            cache.insert([key].into(), LoadedPlan::of(plan));
            cache.get(&[key]).unwrap();
        };
        (0..9).for_each(insert);
        assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false], "evicted");
        insert(8);
        assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false], "replaced");
        cache.clear();
        assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false; 8]);
    }

    #[test]
    fn a_thread_finds_its_own_entries_while_the_shared_lock_is_held() {
        let cache = ProgramCache::new(16);
        cache.insert([1].into(), plan(1));
        std::thread::scope(|scope| {
            let (asked, question) = std::sync::mpsc::channel::<()>();
            let (answer, answered) = std::sync::mpsc::channel();
            let cache = &cache;
            scope.spawn(move || {
                cache.get(&[1]).unwrap();
                answer.send(0).unwrap();
                question.recv().unwrap();
                answer.send(cache.get(&[1]).unwrap().plan.temporary_bytes).unwrap();
            });
            answered.recv().unwrap();
            let all = cache.lock();
            asked.send(()).unwrap();
            assert_eq!(answered.recv_timeout(std::time::Duration::from_secs(60)), Ok(1));
            drop(all);
        });
        assert_eq!(cache.stats().hits, 2);
    }

    #[test]
    fn evicted_and_replaced_plans_are_not_found() {
        let cache = ProgramCache::new(8);
        let found = |key: u8| cache.get(&[key]).map(|found| found.plan.temporary_bytes);
        cache.insert([0].into(), plan(0));
        assert_eq!((found(0), found(0)), (Some(0), Some(0)));
        cache.insert([0].into(), plan(7));
        assert_eq!((found(0), found(0)), (Some(7), Some(7)), "replaced");
        cache.clear();
        assert_eq!(found(0), None);
        // Uses through a thread's own table protect an entry from eviction, too.
        (0..8).for_each(|key| cache.insert([key].into(), plan(key.into())));
        for key in 8..100 {
            assert_eq!(found(0), Some(0));
            cache.insert([key].into(), plan(key.into()));
            assert_eq!(found(0), Some(0));
            let there = (0..=key).filter(|&key| cache.contains(&[key]));
            assert_eq!(there.collect::<Vec<_>>().len(), 8);
            assert!(!cache.contains(&[key - 7]), "the one not used for longest");
        }
    }

    #[test]
    fn threads_never_find_a_plan_older_than_the_last_clear() {
        let cache = ProgramCache::new(4);
        let newest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let least = newest.load(std::sync::atomic::Ordering::SeqCst);
                        if let Some(found) = cache.get(&[1]) {
                            assert!(found.plan.temporary_bytes as u64 >= least);
                        }
                    }
                });
            }
            scope.spawn(|| {
                for number in 1..500 {
                    cache.clear();
                    newest.store(number, std::sync::atomic::Ordering::SeqCst);
                    cache.insert([1].into(), plan(number as usize));
                }
            });
        });
    }
}
