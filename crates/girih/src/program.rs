//! Compiled programs from the user's side: compiling without running, counts, and settings.

use crate::eval::{cut_out, executor, executor_of};
use crate::{Context, Device, Error, Executor, Result, Tensor};
use girih_cpu::{CacheState, Calibration};
use girih_ir::Graph;
use girih_kernel::FusionOptions;
use girih_opt::{OptOptions, PassFlag};
use girih_runtime::CompileOptions;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// What compiling a graph came to, without running it.
#[derive(Clone, Debug)]
pub struct CompilationInfo {
    /// Time for passes, lowering and compilation; nearly nothing for a cached program.
    pub compile_time: Duration,
    /// Nodes as recorded.
    pub num_nodes: usize,
    /// Nodes after the passes.
    pub num_nodes_optimized: usize,
    /// Kernels of the program.
    pub num_kernels: usize,
    /// The graph as recorded.
    pub graph: Graph,
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels, as text.
    pub kernels: String,
}

impl CompilationInfo {
    /// The graph after the passes, as a picture.
    pub fn optimized_svg(&self) -> String {
        girih_ir::svg::to_svg(&self.optimized)
    }
}

/// Compiles what leads to some tensors without running it; a later evaluation finds it in the
/// cache. With `optimize` false, no pass or fusion changes the graph (composites still become
/// primitives, which is what backends understand).
///
/// Errors: [`crate::Error::Evaluation`] for what cannot be compiled, and for a program whose results
/// and temporaries need more memory than is free; nothing runs. As [`crate::eval`] for tensors that
/// depend on arguments of functions being traced.
pub fn compile_graph<'a>(
    tensors: impl IntoIterator<Item = &'a Tensor>,
    optimize: bool,
) -> Result<CompilationInfo> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let executor = executor_of("compile_graph", &targets)?;
    let options = match optimize {
        true => options()?,
        false => CompileOptions { passes: 0, fusion: 0, user: 0 },
    };
    match compiled(&executor, &targets, options, optimize, true) {
        // An evaluation does without what somebody holds, too.
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
    // The host's back end explains while it compiles; other back ends explain nothing, so that the graph
    // is optimised again for the explanation.
    let mut explained = None;
    let program = match executor.device().properties().host_memory {
        true => executor.plan_by(&cut.graph, options, |graph| {
            let (plan, explanation) = girih_cpu::compile_explained(graph, options)?;
            explained = Some(explanation);
            Ok(plan)
        })?,
        false => executor.plan(&cut.graph, options)?,
    };
    let compile_time = start.elapsed();
    executor.check_memory(&program.plan).map_err(|error| {
        let at = cut.suspects(&error);
        Error::evaluation(error, at)
    })?;
    let explained = match explained {
        Some(explained) => explained,
        None => girih_cpu::explain(&cut.graph, options)?,
    };
    Ok(CompilationInfo {
        compile_time,
        num_nodes: cut.graph.len(),
        num_nodes_optimized: if optimize { explained.optimized.len() } else { cut.graph.len() },
        num_kernels: program.plan.launches(),
        graph: cut.graph,
        optimized: explained.optimized,
        kernels: explained.kernels,
    })
}

/// Counts of everything the process has compiled and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lookups in the program cache that found a program.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Lookups that found a program an earlier process left on disk.
    pub disk_hits: u64,
    /// Programs compiled: runs of the passes.
    pub compiles: u64,
    /// Programs for many sizes bound to sizes they had not run at: lowered, without the passes.
    pub bindings: u64,
    /// Kernels of the programs now cached.
    pub cached_kernels: usize,
    /// Bytes of cached programs.
    pub cache_size_bytes: usize,
    /// Programs run.
    pub runs: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Bytes of device memory in use.
    pub memory_bytes: usize,
    /// Most bytes of device memory in use at once.
    pub peak_memory_bytes: usize,
}

impl Stats {
    pub(crate) fn of(executor: &girih_runtime::Executor) -> Stats {
        let (cache, counters) = (executor.cache_stats(), executor.counters());
        let memory = executor.device().allocator().stats();
        Stats {
            hits: cache.hits,
            misses: cache.misses,
            disk_hits: cache.disk_hits,
            compiles: counters.compiles,
            bindings: counters.bindings,
            cached_kernels: cache.cached_kernels,
            cache_size_bytes: cache.cache_size_bytes,
            runs: counters.runs,
            launches: counters.launches,
            memory_bytes: memory.in_use,
            peak_memory_bytes: memory.peak,
        }
    }
}

/// Counts so far, of this context's executor.
pub fn cache_stats() -> Result<Stats> {
    Ok(Stats::of(&*executor()?))
}

/// Where this process keeps compiled programs between runs, or why it does not.
///
/// Errors: [`crate::Error::Evaluation`] for environment variables that say nothing usable.
pub fn cache_on_disk() -> Result<CacheState> {
    Ok(CacheState::of_process(&girih_cpu::HostBackend)?)
}

/// Forgets all compiled programs.
pub fn clear_cache() -> Result<()> {
    executor()?.clear_cache();
    Ok(())
}

/// Measures a device's peak memory anew from here; the current one's for None.
///
/// Errors: if the device cannot be set up as the environment says.
pub fn reset_peak_memory(device: Option<Device>) -> Result<()> {
    let device = device.unwrap_or_else(|| Context::current().device());
    device.executor()?.runtime().device().allocator().reset_peak();
    Ok(())
}

/// How many threads kernels may use, the calling one included.
///
/// Errors: [`crate::Error::Evaluation`] for environment variables that say nothing usable.
pub fn num_threads() -> Result<usize> {
    Ok(girih_cpu::num_threads()?)
}

/// The instructions that kernels use: `baseline`, `avx2` or `avx512`.
pub fn instruction_set() -> &'static str {
    girih_cpu::instruction_set()
}

/// The machine's cache sizes and thread latencies, and the tuning parameters computed from them.
///
/// Errors: as [`num_threads`].
pub fn calibration() -> Result<Calibration> {
    Ok(girih_cpu::calibration()?)
}

/// Sets how many threads kernels may use, the calling one included. Results do not depend on it.
///
/// Errors: [`crate::Error::InvalidArgument`] unless it is 1 to 1024.
pub fn set_num_threads(threads: usize) -> Result<()> {
    if !(1..=1024).contains(&threads) {
        return Err(crate::Error::InvalidArgument(format!(
            "set_num_threads: expected 1 to 1024 threads, the calling one included, got {threads}"
        )));
    }
    Ok(girih_cpu::set_num_threads(threads)?)
}

/// The options of now without the named passes and kinds of fusion (`dead_code`, `simplify`,
/// `elementwise`, `views`, ...; [`pass_names`] has them all), for [`set_options`]. Composites are
/// decomposed in any case: kernels are made of primitives.
///
/// Errors: [`crate::Error::InvalidArgument`] for a name of neither.
pub fn options_without(names: &[&str]) -> Result<CompileOptions> {
    switched(names, false)
}

/// The options of now with the named passes and kinds of fusion added: those that must be asked for
/// (`matmul_chain`), or were switched off. For [`set_options`].
///
/// Errors: [`crate::Error::InvalidArgument`] for a name of neither.
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

/// What may be done to what is compiled now.
pub fn options() -> Result<CompileOptions> {
    let executor = executor()?;
    Ok(Context::current().options(&executor))
}

/// Switches passes and fusions on and off for what is compiled from here on.
pub fn set_options(options: CompileOptions) -> Result<()> {
    executor()?.set_options(options);
    Ok(())
}
