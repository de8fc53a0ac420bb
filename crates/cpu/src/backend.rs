//! The host's back end: passes, fusion, and a plan whose buffers are placed by liveness in one
//! block.

use crate::LoadedKernel;
use crate::artifact::Stored;
use crate::device::HostProgram;
use girih_ir::{Graph, OpCode, TensorSpec};
use girih_kernel::{BufferKind, FusionOptions, Inst, Isa, Program, lower};
use girih_opt::{OptOptions, Optimized, PassFlag, optimize};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    ArgumentSpec, Backend, Binary, CompileOptions, CompileTimes, Error, ExecutionPlan, Operation,
    OutputSpec, Placement, Prepared, Result, allocator,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Compiles closed graphs for the host.
pub struct HostBackend;

impl Backend for HostBackend {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        Ok(compile(graph, options)?.0)
    }

    fn prepare(&self, graph: &Graph, options: CompileOptions) -> Result<Prepared> {
        let Optimized { graph, kept_arguments, .. } =
            optimize(graph, passes(options)).map_err(compile_error)?;
        Ok(Prepared { graph, kept_arguments })
    }

    fn lower(
        &self,
        original: &Graph,
        prepared: &Graph,
        kept_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        Ok(lowered(original, prepared, kept_arguments, options)?.0)
    }

    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        let Stored { program, arguments, outputs } = Stored::from_bytes(bytes)?;
        Ok(plan(&program, &arguments, &outputs))
    }

    fn fingerprint(&self) -> String {
        format!("{} {} {:?}", env!("CARGO_PKG_VERSION"), env!("GIRIH_SOURCES"), Isa::best())
    }
}

/// Compiles a graph, and shows what it became; the program's arguments are numbered as the plan's.
fn compile(graph: &Graph, options: CompileOptions) -> Result<(ExecutionPlan, Graph, Arc<Stored>)> {
    let start = Instant::now();
    let Optimized { graph: optimized, kept_arguments, .. } =
        optimize(graph, passes(options)).map_err(compile_error)?;
    let optimize = start.elapsed();
    let (mut plan, stored) = lowered(graph, &optimized, &kept_arguments, options)?;
    plan.times.optimize = optimize;
    let stored = Arc::new(stored);
    let artifact = stored.clone();
    plan.artifact = Some(Box::new(move || artifact.to_bytes()));
    Ok((plan, optimized, stored))
}

/// Compiles what the passes made of a graph.
fn lowered(
    graph: &Graph,
    optimized: &Graph,
    kept_arguments: &[usize],
    options: CompileOptions,
) -> Result<(ExecutionPlan, Stored)> {
    let start = Instant::now();
    let fusion = FusionOptions::from_bits(options.fusion);
    let mut program = lower(optimized, fusion).map_err(compile_error)?;
    renumber_arguments(&mut program, kept_arguments);
    let codegen = start.elapsed();
    let outputs = optimized.outputs().iter().map(|&id| optimized.spec(id).clone()).collect();
    let stored = Stored { program, arguments: arguments(graph), outputs };
    let mut plan = plan(&stored.program, &stored.arguments, &stored.outputs);
    let compile = start.elapsed() - codegen;
    plan.times = CompileTimes { codegen, compile, ..CompileTimes::default() };
    Ok((plan, stored))
}

/// Kernels are made of primitives, so composites are decomposed whatever else is switched off.
pub(crate) fn passes(options: CompileOptions) -> OptOptions {
    OptOptions::from_bits(options.passes).with(PassFlag::Decompose)
}

pub(crate) fn compile_error(error: impl std::fmt::Display) -> Error {
    Error::Compile(error.to_string())
}

/// The passes drop arguments that nothing needs; the plan takes the original ones all the same.
pub(crate) fn renumber_arguments(program: &mut Program, kept: &[usize]) {
    for buffer in &mut program.buffers {
        if let BufferKind::Argument(i) = &mut buffer.kind {
            *i = kept[*i];
        }
    }
    for kernel in &mut program.kernels {
        let prologue = match &mut kernel.core {
            girih_kernel::Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        for inst in prologue.into_iter().chain([&mut kernel.body]).flat_map(|b| &mut b.insts) {
            if let Inst::Scalar { argument, .. } | Inst::Random { argument, .. } = inst {
                *argument = kept[*argument];
            }
        }
    }
}

fn arguments(graph: &Graph) -> Vec<ArgumentSpec> {
    let arguments = graph.arguments().map(|id| {
        let node = graph.node(id);
        match node.op.code {
            OpCode::Constant => ArgumentSpec::Scalar(node.spec.dtype),
            _ if node.op.is_random() => ArgumentSpec::RandomKey,
            _ => ArgumentSpec::Tensor(node.spec.clone()),
        }
    });
    arguments.collect()
}

fn plan(program: &Program, arguments: &[ArgumentSpec], outputs: &[TensorSpec]) -> ExecutionPlan {
    let (buffers, temporary_bytes) = place(program);
    let outputs = program
        .outputs
        .iter()
        .zip(outputs)
        .map(|(buffer, spec)| OutputSpec { spec: spec.clone(), buffer: buffer.0 as usize });
    let outputs = outputs.collect();
    let mut operations = Vec::with_capacity(program.kernels.len());
    let mut binaries: Vec<Binary> = Vec::with_capacity(program.kernels.len());
    for (i, kernel) in program.kernels.iter().enumerate() {
        operations.push(Operation {
            name: kernel.name.clone(),
            compute: Some(i),
            ..Operation::default()
        });
        binaries.push(Arc::new(HostProgram {
            name: kernel.name.clone(),
            kernel: LoadedKernel::new(kernel),
        }));
    }
    ExecutionPlan {
        operations,
        binaries,
        buffers,
        temporary_bytes,
        arguments: arguments.to_vec(),
        outputs,
        ..ExecutionPlan::default()
    }
}

/// Gives each buffer its memory. Temporaries live from the kernel that first writes them to the
/// last that reads them, and share the lowest space free for that long (first fit in order of
/// birth).
fn place(program: &Program) -> (Vec<PlannedBuffer>, usize) {
    let count = program.buffers.len();
    let mut last_use = vec![None; count];
    for (at, kernel) in program.kernels.iter().enumerate() {
        kernel.reads().chain(kernel.writes()).for_each(|b| last_use[b.0 as usize] = Some(at));
    }
    let mut placed: Vec<PlannedBuffer> = program
        .buffers
        .iter()
        .map(|b| PlannedBuffer { placement: Placement::Unused, size_bytes: b.size_bytes() })
        .collect();
    for (buffer, planned) in program.buffers.iter().zip(&mut placed) {
        if let BufferKind::Argument(i) = buffer.kind {
            planned.placement = Placement::Argument(i);
        }
    }
    for output in &program.outputs {
        let i = output.0 as usize;
        if program.buffers[i].kind == BufferKind::Computed {
            placed[i].placement = Placement::Output;
        }
    }
    let mut space = Space::default();
    let mut dying: Vec<Vec<(usize, usize)>> = vec![Vec::new(); program.kernels.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        for buffer in kernel.writes() {
            let i = buffer.0 as usize;
            let (true, Some(last)) = (placed[i].placement == Placement::Unused, last_use[i]) else {
                continue;
            };
            let size = placed[i].size_bytes.next_multiple_of(allocator::ALIGNMENT);
            let offset = space.take(size);
            placed[i].placement = Placement::Temporary(offset);
            dying[last].push((offset, size));
        }
        for (offset, size) in std::mem::take(&mut dying[at]) {
            space.give(offset, size);
        }
    }
    (placed, space.end)
}

/// Free intervals of a growing block.
#[derive(Default)]
struct Space {
    free: BTreeMap<usize, usize>,
    end: usize,
}

impl Space {
    fn take(&mut self, size: usize) -> usize {
        if let Some((&offset, &len)) = self.free.iter().find(|(_, len)| **len >= size) {
            self.free.remove(&offset);
            if len > size {
                self.free.insert(offset + size, len - size);
            }
            return offset;
        }
        // Grow from the last free interval, if it touches the end.
        let offset = match self.free.last_key_value() {
            Some((&offset, &len)) if offset + len == self.end => {
                self.free.remove(&offset);
                offset
            }
            _ => self.end,
        };
        self.end = offset + size;
        offset
    }

    fn give(&mut self, mut offset: usize, mut size: usize) {
        if size == 0 {
            return;
        }
        if let Some((&before, &len)) = self.free.range(..offset).next_back()
            && before + len == offset
        {
            self.free.remove(&before);
            (offset, size) = (before, size + len);
        }
        if let Some(len) = self.free.remove(&(offset + size)) {
            size += len;
        }
        self.free.insert(offset, size);
    }
}

/// What compilation makes of a graph, for people.
pub struct Explanation {
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels, as text.
    pub kernels: String,
}

/// Compiles a graph and shows what it became on the way.
///
/// Errors: as [`HostBackend::compile`].
pub fn compile_explained(
    graph: &Graph,
    options: CompileOptions,
) -> Result<(ExecutionPlan, Explanation)> {
    let (plan, optimized, stored) = compile(graph, options)?;
    Ok((plan, Explanation { optimized, kernels: stored.program.to_string() }))
}

/// Runs passes and fusion and shows their results, without a plan.
///
/// Errors: as [`HostBackend::compile`].
pub fn explain(graph: &Graph, options: CompileOptions) -> Result<Explanation> {
    let optimized = optimize(graph, passes(options)).map_err(compile_error)?.graph;
    let fusion = FusionOptions::from_bits(options.fusion);
    let kernels = lower(&optimized, fusion).map_err(compile_error)?.to_string();
    Ok(Explanation { optimized, kernels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_reused_by_liveness_and_grows_at_the_end_only() {
        let mut space = Space::default();
        let (a, b) = (space.take(256), space.take(128));
        assert_eq!((a, b), (0, 256));
        space.give(a, 256);
        assert_eq!(space.take(128), 0);
        space.give(b, 128);
        assert_eq!(space.take(512), 128, "the free tail grows instead of a gap being left");
        assert_eq!(space.end, 640);
    }
}
