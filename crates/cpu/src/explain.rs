//! All stages of compiling a graph, for users to read: recomputes the result of `compile` with its
//! reasons.

use crate::HostBackend;
use crate::backend::{compile_error, manager, renumber_arguments};
use crate::bottleneck::{Bottleneck, bottlenecks};
use crate::kernel::LoadedKernel;
use girih_ir::Graph;
use girih_kernel::{Explained, FusionOptions, Target, lower_explained};
use girih_opt::Stage;
use girih_runtime::{Backend, CompileOptions, ExecutionPlan, Result};

/// The stages of compiling a graph.
pub struct Anatomy {
    /// The graph as given and after each pass that changed it.
    pub stages: Vec<Stage>,
    /// The number of rounds over the passes.
    pub iterations: usize,
    /// The graph after the passes; [`Graph::origin`] gives the nodes of the given graph for each of
    /// its nodes.
    pub optimized: Graph,
    /// The arguments of the given graph that the program needs.
    pub live_arguments: Vec<usize>,
    /// The kernels, the nodes that each computes, and the refused fusions. Arguments are numbered
    /// as in the given graph.
    pub lowered: Explained,
    /// The kernels, ready to run.
    pub loaded: Vec<LoadedKernel>,
    /// The plan. Its buffers are those of the kernels.
    pub plan: ExecutionPlan,
}

impl Anatomy {
    /// The bottlenecks of the kernels, the worst first: causes that, by estimate, take at least a
    /// tenth of the program's time. `addresses` are the addresses of the arguments' memory, where
    /// they are known.
    ///
    /// Errors: [`girih_runtime::Error`] if the environment asks for an invalid number of threads.
    pub fn bottlenecks(&self, addresses: &[Option<usize>]) -> Result<Vec<Bottleneck>> {
        let threads = crate::pool()?.num_threads();
        let machine = girih_exec::tuning::machine();
        Ok(bottlenecks(&self.lowered.program, &self.loaded, addresses, threads, machine))
    }
}

/// Compiles a graph and returns every stage.
///
/// Errors: as [`HostBackend::compile`].
pub fn anatomy(graph: &Graph, options: CompileOptions) -> Result<Anatomy> {
    let mut tracked = graph.clone();
    tracked.track_origins();
    let optimized = manager(options).record(true).run(&tracked).map_err(compile_error)?;
    let fusion = FusionOptions::from_bits(options.fusion);
    let lowered = lower_explained(&optimized.graph, fusion, &Target::CPU);
    let mut lowered = lowered.map_err(compile_error)?;
    renumber_arguments(&mut lowered.program, &optimized.live_arguments);
    Ok(Anatomy {
        stages: optimized.stages,
        iterations: optimized.iterations,
        optimized: optimized.graph,
        live_arguments: optimized.live_arguments,
        loaded: lowered.program.kernels.iter().map(LoadedKernel::new).collect(),
        lowered,
        plan: HostBackend.compile(graph, options)?,
    })
}
