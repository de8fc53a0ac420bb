//! Girih's compile pipeline, one for all targets: a closed graph goes through the passes, becomes
//! kernels, and the kernels become a plan whose buffers are placed by liveness.
//!
//! [`Pipeline`] is a back end for any [`CodeGen`]. A code generator describes its processor by a
//! [`Target`] and makes programs of single kernels; it knows neither graphs nor plans.
#![forbid(unsafe_code)]

mod plan;
mod report;
mod stored;

pub use stored::StoredProgram;

use girih_ir::{Graph, Op};
use girih_kernel::{FusionOptions, Kernel, KernelProgram, Target, lower};
use girih_opt::{OptOptions, Optimized, PassFlag, PassManager};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::report::hexadecimal;
use girih_runtime::{
    ArgumentSpec, Backend, Bottleneck, CompileOptions, CompileReport, CompileTimes, Error,
    ExecutionPlan, Listing, OptimizedGraph, Placement, Result,
};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// A processor's code generator, which the pipeline calls kernel by kernel. A new back end
/// implements this trait, and [`girih_runtime::Device`] for the processor.
pub trait CodeGen: Send + Sync + 'static {
    /// A compiled kernel. The device takes it as a [`girih_runtime::Binary`].
    type Binary: Send + Sync + 'static;

    /// The processor that graphs are lowered for.
    fn target(&self) -> &'static Target;

    /// Compiles a verified kernel of a program. `bytes` has the size of each buffer of the program,
    /// 0 for buffers without memory; all kernels of the program share it.
    ///
    /// Errors: [`Error::Compile`] for kernels that the processor cannot run.
    fn compile(&self, kernel: &Kernel, bytes: &Arc<[usize]>) -> Result<Self::Binary>;

    /// A text that identifies this version of the code generator and the processor's instruction
    /// set: programs of another version on disk are compiled again.
    fn fingerprint(&self) -> String;

    /// The buffers that the kernel reads faster if they were prepacked in an earlier run.
    fn prepackable(&self, binary: &Self::Binary) -> SmallVec<[usize; 1]> {
        let _ = binary;
        SmallVec::new()
    }

    /// The machine code generated for the kernel, by function.
    fn code(&self, binary: &Self::Binary) -> Vec<Vec<u8>> {
        let _ = binary;
        Vec::new()
    }

    /// Writes machine code as text. The default shows its bytes.
    fn disassembler(&self) -> fn(&[u8]) -> String {
        hexadecimal
    }

    /// Reasons why kernels of a program are slow, by estimate; the worst first. `addresses` has the
    /// host address of each argument's memory where it is known.
    ///
    /// Errors: those of the processor's configuration.
    fn bottlenecks(
        &self,
        program: &KernelProgram,
        binaries: &[Arc<Self::Binary>],
        addresses: &[Option<usize>],
    ) -> Result<Vec<Bottleneck>> {
        let _ = (program, binaries, addresses);
        Ok(Vec::new())
    }

    /// Drops state that is kept between compilations to speed them up.
    fn forget(&self) {}
}

/// The back end of a code generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pipeline<G>(pub G);

impl<G: CodeGen> Backend for Pipeline<G> {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        Ok(self.compiled(graph, options)?.0)
    }

    fn compile_listed(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Listing)> {
        let (plan, optimized, stored) = self.compiled(graph, options)?;
        Ok((plan, report::listing(optimized, stored)))
    }

    fn explain(
        &self,
        graph: &Graph,
        options: CompileOptions,
        addresses: &[Option<usize>],
    ) -> Result<CompileReport> {
        report::explain(self, graph, options, addresses)
    }

    fn optimize(&self, graph: &Graph, options: CompileOptions) -> Result<OptimizedGraph> {
        let Optimized { graph, live_arguments, .. } =
            self.manager(options).run(graph).map_err(compile_error)?;
        Ok(OptimizedGraph { graph, live_arguments })
    }

    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        Ok(self.lowered(original, optimized, live_arguments, options)?.0)
    }

    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        self.plan(&StoredProgram::from_bytes(bytes)?)
    }

    fn forget(&self) {
        self.0.forget();
    }

    fn fingerprint(&self) -> String {
        self.0.fingerprint()
    }
}

impl<G: CodeGen> Pipeline<G> {
    /// Compiles a graph, and returns the intermediate results. The program's arguments are numbered
    /// like the plan's arguments.
    fn compiled(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Graph, Arc<StoredProgram>)> {
        let start = Instant::now();
        let Optimized { graph: optimized, live_arguments, .. } =
            self.manager(options).run(graph).map_err(compile_error)?;
        let optimize = start.elapsed();
        let (mut plan, stored) = self.lowered(graph, &optimized, &live_arguments, options)?;
        plan.times.optimize = optimize;
        Ok((plan, optimized, stored))
    }

    /// Compiles the result of the passes on a graph.
    fn lowered(
        &self,
        graph: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Arc<StoredProgram>)> {
        let start = Instant::now();
        let fusion = FusionOptions::from_bits(options.fusion);
        let program = lower(optimized, fusion, self.0.target()).map_err(compile_error)?;
        let stored = stored(program, live_arguments, graph, optimized);
        let codegen = start.elapsed();
        let mut plan = self.plan(&stored)?;
        let compile = start.elapsed() - codegen;
        plan.times = CompileTimes { codegen, compile, ..CompileTimes::default() };
        // Callbacks without a name belong to this process only.
        let is_local = |op: &Op| op.as_host().is_some_and(|(_, call)| call.is_local());
        if !optimized.any_op(&is_local) {
            let artifact = stored.clone();
            plan.artifact = Some(Box::new(move || artifact.to_bytes()));
        }
        Ok((plan, stored))
    }

    /// The pass manager: the user's passes, then the passes of the pipeline. Kernels consist of
    /// primitives, so composites that the target does not compute as a whole are always decomposed.
    fn manager(&self, options: CompileOptions) -> PassManager {
        let passes = OptOptions::from_bits(options.passes).with(PassFlag::Decompose);
        let mut manager = PassManager::for_target(passes, self.0.target().decomposition);
        manager.first(girih_opt::registered(options.user));
        manager
    }

    /// The plan of a program of kernels.
    fn plan(&self, stored: &StoredProgram) -> Result<ExecutionPlan> {
        let placed = plan::place(&stored.program, self.0.target());
        let binaries = self.binaries(&stored.program, &placed.buffers)?;
        Ok(self.assemble(stored, placed, binaries))
    }

    /// The compiled kernels of a program.
    fn binaries(
        &self,
        program: &KernelProgram,
        buffers: &[PlannedBuffer],
    ) -> Result<Vec<Arc<G::Binary>>> {
        let bytes = |buffer: &PlannedBuffer| match buffer.placement {
            Placement::Unused => 0,
            _ => buffer.size_bytes,
        };
        let bytes: Arc<[usize]> = buffers.iter().map(bytes).collect();
        let compile = |kernel: &Kernel| Ok(Arc::new(self.0.compile(kernel, &bytes)?));
        program.kernels.iter().map(compile).collect()
    }
}

/// The program of the passes' result, whose arguments are numbered as in the original graph: the
/// passes drop unneeded arguments, but the plan takes the original arguments.
fn stored(
    mut program: KernelProgram,
    kept: &[usize],
    original: &Graph,
    optimized: &Graph,
) -> Arc<StoredProgram> {
    program.renumber_arguments(&|i| kept[i], &|i| kept[i]);
    let outputs = optimized.outputs().iter().map(|&id| optimized.spec(id).clone()).collect();
    Arc::new(StoredProgram { program, arguments: ArgumentSpec::of_graph(original), outputs })
}

fn compile_error(error: impl std::fmt::Display) -> Error {
    Error::Compile(error.to_string())
}
