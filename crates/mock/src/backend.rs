//! The mock's back end: it takes the plans of another back end, makes their binaries load into the
//! mock's memory, and adds corrections if programs embed addresses.

use girih_ir::Graph;
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    Backend, Binary, Buffer, CompileOptions, CompileReport, ExecutionPlan, HANDLE_BYTES, Listing,
    LoadedProgram, Operation, OptimizedGraph, Placement, Result, Step, allocator,
};
use std::sync::Arc;

/// The first word of an address table that a correction has written.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"girihfix");
/// The number of words before the addresses: [`MAGIC`] and the number of addresses.
pub(crate) const ADDRESS_HEADER: usize = 2;

/// The init packet of each plan.
const INIT_PACKET: &[u8] = b"mock: start the clock";

/// A program compiled for the mock.
pub(crate) enum MockBinary {
    /// A program of the wrapped back end.
    Compute {
        name: String,
        inside: Binary,
        /// The sizes of the buffers of the program's plan, in bytes.
        sizes: Arc<[usize]>,
    },
    /// The program that writes the addresses of a launch's data.
    Correction,
}

/// A program loaded in the mock's memory.
pub(crate) struct MockProgram {
    pub name: String,
    /// The program, and the sizes of its plan's buffers; `None` for the correction.
    pub inside: Option<(LoadedProgram, Arc<[usize]>)>,
    #[allow(dead_code, reason = "the program's memory is freed with it")]
    pub image: Arc<Buffer>,
}

impl MockBinary {
    pub fn name(&self) -> &str {
        match self {
            MockBinary::Compute { name, .. } => name,
            MockBinary::Correction => "correction",
        }
    }

    /// The program's image in device memory: its name, padded to a multiple of 256 bytes.
    pub fn image(&self) -> Box<[u8]> {
        let mut image = b"mock program ".to_vec();
        image.extend_from_slice(self.name().as_bytes());
        image.resize(image.len().next_multiple_of(256), 0);
        image.into()
    }
}

/// Compiles for a [`crate::MockAccelerator`] with another device's back end.
pub struct MockBackend {
    inside: Arc<dyn Backend>,
    corrections: bool,
}

impl MockBackend {
    /// Wraps `inside`, which compiles for the device that computes. `corrections`: whether the
    /// mock's programs embed addresses.
    pub fn new(inside: Arc<dyn Backend>, corrections: bool) -> MockBackend {
        MockBackend { inside, corrections }
    }

    fn adapt(&self, mut plan: ExecutionPlan) -> ExecutionPlan {
        let mut names = vec![String::new(); plan.binaries.len()];
        for operation in &plan.operations {
            if let Some(name) = operation.compute.and_then(|program| names.get_mut(program)) {
                name.clone_from(&operation.name);
            }
        }
        let sizes: Arc<[usize]> = plan.buffers.iter().map(|buffer| buffer.size_bytes).collect();
        let compute = |(name, inside)| -> Binary {
            Arc::new(MockBinary::Compute { name, inside, sizes: sizes.clone() })
        };
        plan.binaries = names.into_iter().zip(plan.binaries).map(compute).collect();
        plan.init_packets.push(INIT_PACKET.into());
        if self.corrections {
            correct(&mut plan);
        }
        plan
    }
}

/// Inserts a correction before each launch of a plan: the handles of all buffers are copied to a
/// temporary, and the correction program resolves them to addresses in another temporary.
fn correct(plan: &mut ExecutionPlan) {
    let (buffers, correction) = (plan.buffers.len(), plan.binaries.len());
    let mut temporary = |size_bytes: usize| {
        let at = plan.temporary_bytes.next_multiple_of(allocator::ALIGNMENT);
        plan.temporary_bytes = at + size_bytes;
        plan.buffers.push(PlannedBuffer { placement: Placement::Temporary(at), size_bytes });
    };
    temporary(buffers * HANDLE_BYTES);
    temporary((buffers + ADDRESS_HEADER) * 8);
    plan.binaries.push(Arc::new(MockBinary::Correction));
    let fix = || {
        let copy = Step::CopyArguments { buffers: (0..buffers).collect(), target: buffers };
        [copy, Step::Launch(correction)]
    };
    for operation in &mut plan.operations {
        let Operation { name, steps, compute } = std::mem::take(operation);
        let before = steps.into_iter().flat_map(|step| match step {
            Step::Launch(_) => Vec::from_iter(fix().into_iter().chain([step])),
            _ => vec![step],
        });
        *operation = match compute {
            Some(program) => Operation::compute_after(name, before.chain(fix()), program),
            None => Operation::steps(name, before),
        };
    }
}

impl Backend for MockBackend {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        Ok(self.adapt(self.inside.compile(graph, options)?))
    }

    fn compile_listed(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Listing)> {
        let (plan, listing) = self.inside.compile_listed(graph, options)?;
        Ok((self.adapt(plan), listing))
    }

    fn explain(
        &self,
        graph: &Graph,
        options: CompileOptions,
        addresses: &[Option<usize>],
    ) -> Result<CompileReport> {
        let report = self.inside.explain(graph, options, addresses)?;
        Ok(CompileReport { plan: self.adapt(report.plan), ..report })
    }

    fn optimize(&self, graph: &Graph, options: CompileOptions) -> Result<OptimizedGraph> {
        self.inside.optimize(graph, options)
    }

    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        Ok(self.adapt(self.inside.lower(original, optimized, live_arguments, options)?))
    }

    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        Ok(self.adapt(self.inside.restore(bytes)?))
    }

    fn forget(&self) {
        self.inside.forget();
    }

    fn fingerprint(&self) -> String {
        format!("mock {} {}", self.corrections, self.inside.fingerprint())
    }
}
