//! The host's back end: passes, fusion, and a plan whose buffers are placed by liveness in one
//! block.

use crate::LoadedKernel;
use crate::artifact::Stored;
use crate::checked;
use crate::device::HostProgram;
use girih_exec::{Bounds, Isa};
use girih_ir::{Graph, Op, TensorSpec};
use girih_kernel::{BufferId, BufferKind, FusionOptions, Kernel, Program, Target, lower};
use girih_opt::{OptOptions, Optimized, PassFlag, PassManager};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    ArgumentSpec, Backend, Binary, CompileOptions, CompileTimes, Error, ExecutionPlan, Operation,
    OptimizedGraph, OutputSpec, Placement, Result, allocator,
};
use std::sync::Arc;
use std::time::Instant;

/// Compiles closed graphs for the host.
pub struct HostBackend;

impl Backend for HostBackend {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        Ok(compile(graph, options)?.0)
    }

    fn optimize(&self, graph: &Graph, options: CompileOptions) -> Result<OptimizedGraph> {
        let Optimized { graph, live_arguments, .. } =
            manager(options).run(graph).map_err(compile_error)?;
        Ok(OptimizedGraph { graph, live_arguments })
    }

    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        Ok(lowered(original, optimized, live_arguments, options)?.0)
    }

    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        let Stored { program, arguments, outputs } = Stored::from_bytes(bytes)?;
        Ok(plan(&program, &arguments, &outputs))
    }

    fn forget(&self) {
        crate::jit::forget();
    }

    fn fingerprint(&self) -> String {
        format!("{} {} {:?}", env!("CARGO_PKG_VERSION"), env!("GIRIH_SOURCES"), Isa::best())
    }
}

/// Compiles a graph, and returns the intermediate results. The program's arguments are numbered
/// like the plan's arguments.
fn compile(graph: &Graph, options: CompileOptions) -> Result<(ExecutionPlan, Graph, Arc<Stored>)> {
    let start = Instant::now();
    let Optimized { graph: optimized, live_arguments, .. } =
        manager(options).run(graph).map_err(compile_error)?;
    let optimize = start.elapsed();
    let (mut plan, stored) = lowered(graph, &optimized, &live_arguments, options)?;
    plan.times.optimize = optimize;
    Ok((plan, optimized, stored))
}

/// Compiles the result of the passes on a graph.
fn lowered(
    graph: &Graph,
    optimized: &Graph,
    live_arguments: &[usize],
    options: CompileOptions,
) -> Result<(ExecutionPlan, Arc<Stored>)> {
    let start = Instant::now();
    let fusion = FusionOptions::from_bits(options.fusion);
    let mut program = lower(optimized, fusion, &Target::CPU).map_err(compile_error)?;
    renumber_arguments(&mut program, live_arguments);
    let codegen = start.elapsed();
    let outputs = optimized.outputs().iter().map(|&id| optimized.spec(id).clone()).collect();
    let stored = Arc::new(Stored { program, arguments: ArgumentSpec::of_graph(graph), outputs });
    let mut plan = plan(&stored.program, &stored.arguments, &stored.outputs);
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
pub(crate) fn manager(options: CompileOptions) -> PassManager {
    let passes = OptOptions::from_bits(options.passes).with(PassFlag::Decompose);
    let mut manager = PassManager::for_target(passes, Target::CPU.decomposition);
    manager.first(girih_opt::registered(options.user));
    manager
}

pub(crate) fn compile_error(error: impl std::fmt::Display) -> Error {
    Error::Compile(error.to_string())
}

/// Renumbers the program's arguments: the passes drop unneeded arguments, but the plan takes the
/// original arguments.
pub(crate) fn renumber_arguments(program: &mut Program, kept: &[usize]) {
    program.renumber_arguments(&|i| kept[i], &|i| kept[i]);
}

fn plan(program: &Program, arguments: &[ArgumentSpec], outputs: &[TensorSpec]) -> ExecutionPlan {
    let (buffers, temporary_bytes) = place(program);
    // Each run binds a buffer to memory of at least its size.
    let bounds: Option<Arc<[Bounds]>> = checked::is_on().then(|| {
        let of = |buffer: &PlannedBuffer| match buffer.placement {
            Placement::Unused => Bounds::NOTHING,
            _ => Bounds::of(buffer.size_bytes),
        };
        buffers.iter().map(of).collect()
    });
    let outputs = program
        .outputs
        .iter()
        .zip(outputs)
        .map(|(buffer, spec)| OutputSpec { spec: spec.clone(), buffer: buffer.0 as usize });
    let outputs = outputs.collect();
    let mut operations = Vec::with_capacity(program.kernels.len());
    let mut binaries: Vec<Binary> = Vec::with_capacity(program.kernels.len());
    let mut weights = Vec::new();
    let is_argument = |b: &usize| matches!(program.buffers[*b].kind, BufferKind::Argument(_));
    for (i, kernel) in program.kernels.iter().enumerate() {
        operations.push(Operation {
            name: kernel.name.clone(),
            compute: Some(i),
            ..Operation::default()
        });
        let loaded = LoadedKernel::new(kernel);
        for buffer in loaded.prepackable().into_iter().filter(is_argument) {
            if !weights.contains(&buffer) {
                weights.push(buffer);
            }
        }
        let (name, bounds) = (kernel.name.clone(), bounds.clone());
        binaries.push(Arc::new(HostProgram { name, kernel: loaded, bounds }));
    }
    ExecutionPlan {
        operations,
        binaries,
        buffers,
        weights,
        donations: donations(program),
        cost_ns: cost_ns(program),
        temporary_bytes,
        arguments: arguments.to_vec(),
        outputs,
        ..ExecutionPlan::default()
    }
}

/// The approximate time of a run on one thread: memory traffic at 16 GB/s and arithmetic at 16
/// GFLOP/s.
fn cost_ns(program: &Program) -> u64 {
    let of = |kernel: &Kernel| {
        let traffic = kernel.traffic(&program.buffers);
        traffic.bytes_read.saturating_add(traffic.bytes_written).saturating_add(traffic.flops) / 16
    };
    program.kernels.iter().map(of).fold(0, u64::saturating_add)
}

/// Buffer donation: pairs of a result's buffer and the number of the argument that it may
/// overwrite.
fn donations(program: &Program) -> Vec<(usize, usize)> {
    let pairs = girih_kernel::place::donations(program).into_iter();
    let numbered =
        pairs.filter_map(|(result, argument)| match program.buffers[argument.0 as usize].kind {
            BufferKind::Argument(number) => Some((result.0 as usize, number)),
            _ => None,
        });
    numbered.collect()
}

/// Assigns memory to each buffer; temporaries share one block by liveness.
fn place(program: &Program) -> (Vec<PlannedBuffer>, usize) {
    let is_output = |b: BufferId| program.outputs.contains(&b);
    const { assert!(girih_kernel::place::ALIGNMENT == allocator::ALIGNMENT) };
    let temporaries = girih_kernel::place::place(program, &Target::CPU, is_output);
    let planned = |(i, buffer): (usize, &girih_kernel::Buffer)| {
        let placement = match (buffer.kind, temporaries.offsets[i]) {
            (BufferKind::Argument(argument), _) => Placement::Argument(argument),
            _ if is_output(BufferId(i as u32)) => Placement::Output,
            (_, Some(offset)) => Placement::Temporary(offset),
            (_, None) => Placement::Unused,
        };
        PlannedBuffer { placement, size_bytes: buffer.size_bytes() }
    };
    let buffers = program.buffers.iter().enumerate().map(planned).collect();
    (buffers, temporaries.bytes)
}

/// The intermediate results of compilation, for users to read.
pub struct Explanation {
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels, as text.
    pub kernels: String,
}

/// Compiles a graph and returns the intermediate results.
///
/// Errors: as [`HostBackend::compile`].
pub fn compile_explained(
    graph: &Graph,
    options: CompileOptions,
) -> Result<(ExecutionPlan, Explanation)> {
    let (plan, optimized, stored) = compile(graph, options)?;
    Ok((plan, Explanation { optimized, kernels: stored.program.to_string() }))
}

/// Runs passes and fusion and returns their results, without a plan.
///
/// Errors: as [`HostBackend::compile`].
pub fn explain(graph: &Graph, options: CompileOptions) -> Result<Explanation> {
    let optimized = manager(options).run(graph).map_err(compile_error)?.graph;
    let fusion = FusionOptions::from_bits(options.fusion);
    let kernels = lower(&optimized, fusion, &Target::CPU).map_err(compile_error)?.to_string();
    Ok(Explanation { optimized, kernels })
}
