//! The plan of a program of kernels: one launch per kernel, and the memory of the buffers.

use crate::{CodeGen, Pipeline, StoredProgram};
use girih_kernel::{BufferId, BufferKind, Kernel, KernelProgram, Target};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{Binary, ExecutionPlan, Operation, OutputSpec, Placement, allocator};
use std::sync::Arc;

/// The memory of a program's buffers.
pub(crate) struct Placed {
    pub buffers: Vec<PlannedBuffer>,
    /// The size of the block that the temporaries share.
    pub temporary_bytes: usize,
}

/// Assigns memory to each buffer; temporaries share one block by liveness.
pub(crate) fn place(program: &KernelProgram, target: &Target) -> Placed {
    let is_output = |b: BufferId| program.outputs.contains(&b);
    let limits = target.placement;
    debug_assert!(allocator::ALIGNMENT.is_multiple_of(limits.alignment), "{limits:?}");
    let temporaries = girih_kernel::place::place(program, limits, is_output);
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
    Placed { buffers, temporary_bytes: temporaries.bytes }
}

impl<G: CodeGen> Pipeline<G> {
    /// The plan of a program whose kernels are compiled.
    pub(crate) fn assemble(
        &self,
        stored: &StoredProgram,
        placed: Placed,
        binaries: Vec<Arc<G::Binary>>,
    ) -> ExecutionPlan {
        let StoredProgram { program, arguments, outputs } = stored;
        let outputs = program.outputs.iter().zip(outputs);
        let launch = |(i, kernel): (usize, &Kernel)| Operation {
            name: kernel.name.clone(),
            compute: Some(i),
            ..Operation::default()
        };
        ExecutionPlan {
            operations: program.kernels.iter().enumerate().map(launch).collect(),
            weights: self.weights(program, &binaries),
            binaries: binaries.into_iter().map(|binary| binary as Binary).collect(),
            buffers: placed.buffers,
            donations: donations(program),
            cost_ns: cost_ns(program),
            temporary_bytes: placed.temporary_bytes,
            arguments: arguments.clone(),
            outputs: outputs
                .map(|(buffer, spec)| OutputSpec { spec: spec.clone(), buffer: buffer.0 as usize })
                .collect(),
            ..ExecutionPlan::default()
        }
    }

    /// The arguments' buffers that kernels can read prepacked.
    fn weights(&self, program: &KernelProgram, binaries: &[Arc<G::Binary>]) -> Vec<usize> {
        let is_argument = |b: &usize| matches!(program.buffers[*b].kind, BufferKind::Argument(_));
        let mut weights = Vec::new();
        for buffer in binaries.iter().flat_map(|binary| self.0.prepackable(binary)) {
            if is_argument(&buffer) && !weights.contains(&buffer) {
                weights.push(buffer);
            }
        }
        weights
    }
}

/// The approximate time of a run on one thread: memory traffic at 16 GB/s and arithmetic at 16
/// GFLOP/s.
fn cost_ns(program: &KernelProgram) -> u64 {
    let of = |kernel: &Kernel| {
        let traffic = kernel.traffic(&program.buffers);
        traffic.bytes_read.saturating_add(traffic.bytes_written).saturating_add(traffic.flops) / 16
    };
    program.kernels.iter().map(of).fold(0, u64::saturating_add)
}

/// Buffer donation: pairs of a result's buffer and the number of the argument that it may
/// overwrite.
fn donations(program: &KernelProgram) -> Vec<(usize, usize)> {
    let pairs = girih_kernel::place::donations(program).into_iter();
    let numbered =
        pairs.filter_map(|(result, argument)| match program.buffers[argument.0 as usize].kind {
            BufferKind::Argument(number) => Some((result.0 as usize, number)),
            _ => None,
        });
    numbered.collect()
}
