//! Counters of compiled programs, of their runs and of device memory.

use girih_runtime::{ChunkCounts, PlanExecutor};
use std::time::Duration;

/// Counters of the programs that the process has compiled and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of lookups in the program cache that found a program.
    pub hits: u64,
    /// The number of lookups that did not find a program.
    pub misses: u64,
    /// The number of lookups that found a program from an earlier process on disk.
    pub disk_hits: u64,
    /// The number of compiled programs, that is, of runs of the passes.
    pub compiles: u64,
    /// The number of symbolic programs that were bound to new sizes, that is, lowered without the
    /// passes.
    pub bindings: u64,
    /// The time of compiling, binding to sizes, and restoring from disk, on all threads. The time
    /// of runs is not included; a timeline measures runs.
    pub compile_time: Duration,
    /// The number of kernels of the currently cached programs.
    pub cached_kernels: usize,
    /// The number of bytes of the cached programs.
    pub cache_size_bytes: usize,
    /// The number of runs of programs.
    pub runs: u64,
    /// The number of kernel launches.
    pub launches: u64,
    /// Counts of how the kernels of the process were divided among threads, over all executors.
    pub counts: ChunkCounts,
    /// The device memory in use, in bytes.
    pub memory_bytes: usize,
    /// The peak device memory in use, in bytes.
    pub peak_memory_bytes: usize,
}

impl Stats {
    /// The counters of an executor.
    pub fn of(executor: &PlanExecutor) -> Stats {
        let (cache, counters) = (executor.cache_stats(), executor.counters());
        let memory = executor.device().allocator().stats();
        Stats {
            hits: cache.hits,
            misses: cache.misses,
            disk_hits: cache.disk_hits,
            compiles: counters.compiles,
            bindings: counters.bindings,
            compile_time: counters.compile_time,
            cached_kernels: cache.cached_kernels,
            cache_size_bytes: cache.cache_size_bytes,
            runs: counters.runs,
            launches: counters.launches,
            counts: ChunkCounts::of_process(),
            memory_bytes: memory.in_use,
            peak_memory_bytes: memory.peak,
        }
    }
}
