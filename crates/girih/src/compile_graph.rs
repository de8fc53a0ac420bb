//! Compilation of recorded graphs without execution, to look at the result or to fill the cache.

use crate::{Error, Result, Tensor, options};
use girih_ir::Graph;
use girih_record::eval::{cut_out, executor_of};
use girih_record::evaluation_error;
use girih_record::executor::DeviceExecutor;
use girih_runtime::CompileOptions;
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
    executor: &DeviceExecutor,
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
        evaluation_error(error, at)
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
