//! Counters of compiled programs, of their runs and of device memory.

use crate::eval::executor;
use crate::{Context, Device, Result};
use girih_runtime::ChunkCounts;
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
    /// of runs is not included; [`crate::Timeline`] measures runs.
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
    pub(crate) fn of(executor: &girih_runtime::PlanExecutor) -> Stats {
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
            counts: executor.device().chunk_counts(),
            memory_bytes: memory.in_use,
            peak_memory_bytes: memory.peak,
        }
    }
}

/// The counters of this context's executor.
pub fn cache_stats() -> Result<Stats> {
    Ok(Stats::of(&*executor()?))
}

/// Clears the cache of compiled programs.
pub fn clear_cache() -> Result<()> {
    executor()?.clear_cache();
    Ok(())
}

/// Resets the peak memory of a device; of the current device for `None`.
///
/// Errors: if the environment variables do not allow the device to be set up.
pub fn reset_peak_memory(device: Option<Device>) -> Result<()> {
    let device = device.unwrap_or_else(|| Context::current().device());
    device.executor()?.runtime().device().allocator().reset_peak();
    Ok(())
}
