//! Compiled programs for users: compilation without execution, counters, and options.

use crate::eval::{cut_out, executor, executor_of};
use crate::{Context, Device, Error, Executor, Result, Tensor};
use girih_ir::Graph;
use girih_kernel::FusionOptions;
use girih_opt::{OptOptions, PassFlag};
use girih_runtime::{ChunkCounts, CompileOptions};
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// The result of compiling a graph without running it.
#[derive(Clone, Debug)]
pub struct CompilationInfo {
    /// The time for passes, lowering and compilation; nearly zero for a cached program.
    pub compile_time: Duration,
    /// The number of recorded nodes.
    pub num_nodes: usize,
    /// The number of nodes after the passes.
    pub num_nodes_optimized: usize,
    /// The number of kernels of the program.
    pub num_kernels: usize,
    /// The graph as recorded.
    pub graph: Graph,
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels, as text.
    pub kernels: String,
}

impl CompilationInfo {
    /// The graph after the passes, as a drawing.
    pub fn optimized_svg(&self) -> String {
        girih_ir::svg::to_svg(&self.optimized)
    }
}

/// Compiles the graph that leads to some tensors without running it. A later evaluation finds the
/// program in the cache.
///
/// Errors: [`crate::Error::Evaluation`] if the graph cannot be compiled, or if the program's
/// results and temporaries need more memory than is free. As [`crate::eval`] for tensors that
/// depend on arguments of functions being traced.
pub fn compile_graph<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<CompilationInfo> {
    compiled_graph(tensors.into_iter().collect(), true)
}

/// As [`compile_graph`], but no pass or fusion changes the graph, except that composites are
/// decomposed into the primitives that back ends support.
///
/// Errors: those of [`compile_graph`].
pub fn compile_unoptimized<'a>(
    tensors: impl IntoIterator<Item = &'a Tensor>,
) -> Result<CompilationInfo> {
    compiled_graph(tensors.into_iter().collect(), false)
}

fn compiled_graph(targets: SmallVec<[&Tensor; 4]>, optimize: bool) -> Result<CompilationInfo> {
    let executor = executor_of("compile_graph", &targets)?;
    let options = match optimize {
        true => options()?,
        false => CompileOptions { passes: 0, fusion: 0, user: 0 },
    };
    match compiled(&executor, &targets, options, optimize, true) {
        // Like an evaluation, try again without the intermediates with other references.
        Err(Error::Evaluation { source, .. })
            if matches!(*source, girih_runtime::Error::OutOfMemory { .. }) =>
        {
            compiled(&executor, &targets, options, optimize, false)
        }
        outcome => outcome,
    }
}

fn compiled(
    executor: &Executor,
    targets: &[&Tensor],
    options: CompileOptions,
    optimize: bool,
    keep: bool,
) -> Result<CompilationInfo> {
    let cut = cut_out(executor, targets, keep)?;
    let executor = executor.runtime();
    let start = Instant::now();
    let (program, listing) = executor.listed_plan(&cut.graph, options)?;
    let compile_time = start.elapsed();
    executor.check_memory(&program.plan).map_err(|error| {
        let at = cut.suspects(&error);
        Error::evaluation(error, at)
    })?;
    Ok(CompilationInfo {
        compile_time,
        num_nodes: cut.graph.len(),
        num_nodes_optimized: if optimize { listing.optimized.len() } else { cut.graph.len() },
        num_kernels: program.plan.launches(),
        graph: cut.graph,
        kernels: listing.program.text(),
        optimized: listing.optimized,
    })
}

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

/// The current options without the named passes and kinds of fusion (`dead_code`, `simplify`,
/// `elementwise`, `views`, ...; [`pass_names`] lists all names), for [`set_options`]. Composites
/// are always decomposed, since kernels consist of primitives.
///
/// Errors: [`crate::Error::InvalidArgument`] for an unknown name.
pub fn options_without(names: &[&str]) -> Result<CompileOptions> {
    switched(names, false)
}

/// The current options with the named passes and kinds of fusion: those that are off by default
/// (`matmul_chain`), or were switched off. The result is for [`set_options`].
///
/// Errors: [`crate::Error::InvalidArgument`] for an unknown name.
pub fn options_with(names: &[&str]) -> Result<CompileOptions> {
    switched(names, true)
}

/// The names of all passes, in the order of the pipeline, and of all kinds of fusion.
pub fn pass_names() -> impl Iterator<Item = &'static str> {
    PassFlag::ALL.map(PassFlag::name).into_iter().chain(FusionOptions::NAMES)
}

fn switched(names: &[&str], on: bool) -> Result<CompileOptions> {
    let now = options()?;
    let mut passes = OptOptions::from_bits(now.passes);
    let mut fusion = FusionOptions::from_bits(now.fusion).bits();
    for name in names {
        if let Some(bit) = FusionOptions::NAMES.iter().position(|n| n == name) {
            fusion = fusion & !(1 << bit) | (on as u32) << bit;
        } else if let Ok(pass) = PassFlag::parse(name) {
            passes = if on { passes.with(pass) } else { passes.without(pass) };
        } else {
            let known: Vec<&str> = pass_names().collect();
            return Err(crate::Error::InvalidArgument(format!(
                "there is no pass or fusion '{name}'; there are {}",
                known.join(", ")
            )));
        }
    }
    Ok(CompileOptions { passes: passes.bits(), fusion, ..now })
}

/// The current compile options.
pub fn options() -> Result<CompileOptions> {
    let executor = executor()?;
    Ok(Context::current().options(&executor))
}

/// Sets the passes and fusions for later compilations.
pub fn set_options(options: CompileOptions) -> Result<()> {
    executor()?.set_options(options);
    Ok(())
}
