//! Reports of compilations, for users to read.

use crate::{CodeGen, Pipeline, StoredProgram, compile_error, plan, stored};
use girih_ir::{Graph, NodeId};
use girih_kernel::{FusionOptions, Kernel, KernelProgram, Refused, lower_explained};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::report::{
    BufferReport, KernelReport, MemoryPlan, ProgramText, RefusedFusion, Stage,
};
use girih_runtime::{CompileOptions, CompileReport, Listing, Result};
use std::sync::Arc;

/// The kernels of a program, and their forms as text.
#[derive(Debug)]
struct Kernels(Arc<StoredProgram>);

impl ProgramText for Kernels {
    fn text(&self) -> String {
        self.0.program.to_string()
    }

    fn to_c(&self) -> Option<String> {
        Some(girih_kernel::c::print(&self.0.program))
    }
}

/// The listing of a program.
pub(crate) fn listing(optimized: Graph, stored: Arc<StoredProgram>) -> Listing {
    Listing { optimized, program: Arc::new(Kernels(stored)) }
}

/// Compiles a graph, each kernel once, and reports every stage.
pub(crate) fn explain<G: CodeGen>(
    pipeline: &Pipeline<G>,
    graph: &Graph,
    options: CompileOptions,
    addresses: &[Option<usize>],
) -> Result<CompileReport> {
    let mut tracked = graph.clone();
    tracked.track_origins();
    let optimized = pipeline.manager(options).record(true).run(&tracked).map_err(compile_error)?;
    let fusion = FusionOptions::from_bits(options.fusion);
    let lowered = lower_explained(&optimized.graph, fusion, pipeline.0.target());
    let lowered = lowered.map_err(compile_error)?;
    let stored = stored(lowered.program, &optimized.live_arguments, graph, &optimized.graph);
    let program = &stored.program;
    let placed = plan::place(program, pipeline.0.target());
    let binaries = pipeline.binaries(program, &placed.buffers)?;
    let memory = memory(program, &placed.buffers, placed.temporary_bytes);
    Ok(CompileReport {
        kernels: kernels(&pipeline.0, program, lowered.nodes, &binaries),
        bottlenecks: pipeline.0.bottlenecks(program, &binaries, addresses)?,
        plan: pipeline.assemble(&stored, placed, binaries),
        listing: listing(optimized.graph, stored.clone()),
        stages: optimized.stages.into_iter().map(stage).collect(),
        iterations: optimized.iterations,
        live_arguments: optimized.live_arguments,
        refusals: lowered.refusals.iter().map(refusal).collect(),
        memory,
    })
}

fn stage(stage: girih_opt::Stage) -> Stage {
    let num_nodes = stage.text.lines().filter(|line| line.contains(" = ")).count();
    Stage { pass: stage.pass, iteration: stage.iteration, num_nodes, text: stage.text }
}

fn refusal(refused: &Refused) -> RefusedFusion {
    RefusedFusion {
        value: refused.node,
        consumer: refused.consumer,
        code: refused.reason.code(),
        sentence: refused.reason.sentence(),
    }
}

fn kernels<G: CodeGen>(
    codegen: &G,
    program: &KernelProgram,
    nodes: Vec<Vec<NodeId>>,
    binaries: &[Arc<G::Binary>],
) -> Vec<KernelReport> {
    let report =
        |((kernel, nodes), binary): ((&Kernel, Vec<NodeId>), &Arc<G::Binary>)| KernelReport {
            name: kernel.name.clone(),
            nodes,
            traffic: kernel.traffic(&program.buffers),
            text: kernel.to_string(),
            code: codegen.code(binary),
            disassemble: codegen.disassembler(),
        };
    program.kernels.iter().zip(nodes).zip(binaries).map(report).collect()
}

fn memory(
    program: &KernelProgram,
    planned: &[PlannedBuffer],
    temporary_bytes: usize,
) -> MemoryPlan {
    let mut buffers: Vec<BufferReport> = Vec::with_capacity(planned.len());
    for (i, (buffer, planned)) in program.buffers.iter().zip(planned).enumerate() {
        let mut kernels = program.kernels.iter();
        let written_by = kernels.position(|k| k.writes().any(|b| b.0 as usize == i));
        let last_read_by =
            program.kernels.iter().rposition(|k| k.reads().any(|b| b.0 as usize == i));
        let (placement, size_bytes) = (planned.placement, planned.size_bytes);
        let reuses = BufferReport::sharing(&buffers, placement, size_bytes);
        let contents = format!("{}[{}]", buffer.dtype.short(), buffer.numel);
        buffers.push(BufferReport {
            contents,
            size_bytes,
            placement,
            written_by,
            last_read_by,
            reuses,
        });
    }
    MemoryPlan::new(buffers, temporary_bytes)
}
