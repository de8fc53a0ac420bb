//! Execution plans: compiled programs as ordered operations and their memory. A plan is immutable
//! data; streams run it.

mod text;

use crate::layout::{Strides, span_bytes};
use crate::queue::{HostBytes, host_bytes};
use crate::{Binary, CompileOptions, LoadedProgram, Operation, Step};
use girih_ir::{DType, Graph, OpCode, TensorSpec};
use rustc_hash::FxHashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The spec of one of a plan's arguments.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum ArgumentSpec {
    /// A dense, row-major tensor with that spec.
    Tensor(TensorSpec),
    /// A tensor with that spec that is a box of a larger tensor with these strides.
    Strided(TensorSpec, Strides),
    /// A scalar of that dtype.
    Scalar(DType),
    /// The key and offset of a random leaf.
    RandomKey,
}

impl ArgumentSpec {
    /// The number of bytes from the first to the last byte of the argument; 0 for scalars and keys.
    pub fn size_bytes(&self) -> usize {
        match self {
            ArgumentSpec::Tensor(spec) => spec.size_bytes(),
            ArgumentSpec::Strided(spec, strides) => span_bytes(spec, strides),
            ArgumentSpec::Scalar(_) | ArgumentSpec::RandomKey => 0,
        }
    }

    /// Whether the argument is a tensor, which has memory.
    pub fn is_data(&self) -> bool {
        matches!(self, ArgumentSpec::Tensor(_) | ArgumentSpec::Strided(..))
    }

    /// The specs of a graph's arguments.
    pub fn of_graph(graph: &Graph) -> Vec<ArgumentSpec> {
        let argument = |id| {
            let node = graph.node(id);
            match node.op.code {
                OpCode::Constant => ArgumentSpec::Scalar(node.spec.dtype),
                _ if node.op.is_random() => ArgumentSpec::RandomKey,
                _ => ArgumentSpec::Tensor(node.spec.clone()),
            }
        };
        graph.arguments().map(argument).collect()
    }
}

/// The source of a buffer's memory at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The argument with this index.
    Argument(usize),
    /// A new block, which becomes a result.
    Output,
    /// The block of temporaries, at this offset in bytes.
    Temporary(usize),
    /// No memory: no kernel reads or writes the buffer.
    Unused,
}

/// A buffer of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// The source of the memory.
    pub placement: Placement,
    /// The size in bytes.
    pub size_bytes: usize,
}

/// A result of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// The shape and dtype.
    pub spec: TensorSpec,
    /// The index of the buffer that holds the result.
    pub buffer: usize,
}

/// Facts about a plan that every run needs, computed once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The plan's number, unique in the process; 0 before the plan is loaded.
    pub(crate) number: u64,
    /// The number of kernels that one run launches.
    pub(crate) num_launches: usize,
    /// The source of each result's memory.
    pub(crate) output_sources: Vec<OutputSource>,
    /// The size in bytes of each argument; 0 for scalars and keys.
    pub(crate) argument_bytes: Vec<usize>,
    /// Whether the plan has only launches and copies of constant bytes.
    pub(crate) simple: bool,
    /// Whether some step copies the handles of its buffers.
    pub(crate) copies_handles: bool,
}

/// The source of a result's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputSource {
    /// A new block, or the memory of this argument if the argument is donated.
    New(Option<usize>),
    /// The buffer of the result with this index.
    Output(usize),
    /// The argument with this index.
    Argument(usize),
}

/// A compiled program: operations in order, their memory, arguments and results.
#[derive(Default)]
pub struct ExecutionPlan {
    /// The operations, in execution order.
    pub operations: Vec<Operation>,
    /// The compiled programs that the operations launch.
    pub binaries: Vec<Binary>,
    /// The programs loaded on the device, with the same indices as `binaries`.
    pub programs: Vec<LoadedProgram>,
    /// The plans that [`Step::Call`] runs, by index.
    pub callees: Vec<Callee>,
    /// All buffers.
    pub buffers: Vec<PlannedBuffer>,
    /// Possible donations, as pairs of a result's buffer and an argument: the result may alias the
    /// argument if the argument is donated.
    pub donations: Vec<(usize, usize)>,
    /// The buffers of arguments that the device prefers to read prepacked (weights) if runs get the
    /// same arguments many times.
    pub weights: Vec<usize>,
    /// Facts that every run needs, computed when the plan is loaded.
    pub facts: Facts,
    /// The estimated time of a run on one thread, in nanoseconds; 0 if unknown.
    pub cost_ns: u64,
    /// The size of the block of temporaries in bytes.
    pub temporary_bytes: usize,
    /// The size in bytes of each slot; a slot is host memory that the steps of a run share.
    pub slots: Vec<usize>,
    /// Packets that the device gets once, before the first run of a plan with that packet.
    pub init_packets: Vec<Box<[u8]>>,
    /// The arguments.
    pub arguments: Vec<ArgumentSpec>,
    /// The results.
    pub outputs: Vec<OutputSpec>,
    /// The source of the plan, to explain why another graph misses the cache.
    pub source: Option<Arc<Source>>,
    /// The times of the stages of compilation.
    pub times: CompileTimes,
    /// Serialises what the back end needs to restore the plan, for the cache on disk. The cache
    /// that stores the plan takes the artefact.
    pub artifact: Option<Artifact>,
}

/// A plan that was validated and whose programs are loaded on a device. Nobody can change it, so
/// streams run it without checking it again. A reference-counted handle.
///
/// A plan that is not loaded cannot be run:
///
/// ```compile_fail,E0308
/// use girih_runtime::{ArgumentBlock, ExecutionPlan, Stream};
/// fn run(stream: &Stream, plan: &ExecutionPlan, arguments: &ArgumentBlock) {
///     stream.run_idle(plan, arguments);
/// }
/// ```
#[derive(Clone, Default)]
pub struct LoadedPlan(Arc<ExecutionPlan>);

impl LoadedPlan {
    /// Wraps a plan that was validated and loaded.
    pub(crate) fn of(plan: ExecutionPlan) -> LoadedPlan {
        LoadedPlan(Arc::new(plan))
    }

    /// Whether both are the same plan.
    pub fn is(&self, other: &LoadedPlan) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for LoadedPlan {
    type Target = ExecutionPlan;

    #[inline]
    fn deref(&self) -> &ExecutionPlan {
        &self.0
    }
}

/// A plan that another plan calls with memory and scalars of the caller.
pub struct Callee {
    /// The called plan. Its results and temporaries have no memory of their own.
    pub plan: ExecutionPlan,
    /// For each buffer of the plan, the index of the caller's buffer that replaces it; `None` for a
    /// buffer that no step uses.
    pub buffers: Box<[Option<usize>]>,
    /// For each scalar or random key among the plan's arguments, the index of the caller's argument
    /// that replaces it; `None` for tensors.
    pub words: Box<[Option<usize>]>,
}

impl Callee {
    /// Appends every defect of the call in that plan.
    fn defects(&self, number: usize, caller: &ExecutionPlan, defects: &mut Vec<String>) {
        let mut note = |defect: String| defects.push(format!("callee {number}: {defect}"));
        let (given, wanted) = (self.buffers.len(), self.plan.buffers.len());
        if given != wanted {
            note(format!("has {wanted} buffers and is given {given}"));
        }
        for (at, (buffer, found)) in self.plan.buffers.iter().zip(&self.buffers).enumerate() {
            let fits = match found {
                Some(found) => {
                    caller.buffers.get(*found).is_some_and(|f| f.size_bytes >= buffer.size_bytes)
                }
                None => buffer.placement == Placement::Unused,
            };
            if !fits {
                note(format!("buffer {at} of {} bytes is given {found:?}", buffer.size_bytes));
            }
        }
        for (at, argument) in self.plan.arguments.iter().enumerate() {
            let found = self.words.get(at).copied().flatten().and_then(|i| caller.arguments.get(i));
            let fits = argument.is_data() || found == Some(argument);
            if !fits {
                note(format!("argument {at}, {argument:?}, is given {found:?}"));
            }
        }
        self.plan.validate().err().unwrap_or_default().into_iter().for_each(note);
    }
}

/// The source of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The graph.
    pub graph: Graph,
    /// The options of compilation.
    pub options: CompileOptions,
}

/// Returns the bytes of a plan's artefact. Called once, in the background.
pub type Artifact = Box<dyn FnOnce() -> Vec<u8> + Send + Sync>;

/// The times of the stages of a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileTimes {
    /// The time of the graph passes.
    pub optimize: Duration,
    /// The time of fusion into kernels.
    pub codegen: Duration,
    /// The time of code generation for kernels, buffer placement and loading.
    pub compile: Duration,
}

impl ExecutionPlan {
    /// Checks the plan for consistency; returns every defect.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut defects = Vec::new();
        for operation in &self.operations {
            operation.defects(self, &mut defects);
        }
        for (number, callee) in self.callees.iter().enumerate() {
            callee.defects(number, self, &mut defects);
        }
        for (i, buffer) in self.buffers.iter().enumerate() {
            let ok = match buffer.placement {
                Placement::Argument(a) => self.arguments.get(a).is_some_and(|argument| {
                    argument.is_data() && argument.size_bytes() >= buffer.size_bytes
                }),
                Placement::Temporary(at) => {
                    at.checked_add(buffer.size_bytes).is_some_and(|end| end <= self.temporary_bytes)
                }
                Placement::Output | Placement::Unused => true,
            };
            if !ok {
                defects.push(format!("buffer {i}: {:?} does not exist", buffer.placement));
            }
        }
        for (i, output) in self.outputs.iter().enumerate() {
            if self
                .buffers
                .get(output.buffer)
                .is_none_or(|b| b.size_bytes < output.spec.size_bytes())
            {
                defects.push(format!("output {i}: {} does not fit its buffer", output.spec));
            }
        }
        if defects.is_empty() { Ok(()) } else { Err(defects) }
    }

    /// Fails unless the plan takes the arguments of a graph and gives its results.
    pub(crate) fn check_graph(&self, graph: &Graph) -> crate::Result<()> {
        let given = self.outputs.iter().map(|output| &output.spec);
        let wanted = graph.outputs().iter().map(|&id| graph.spec(id));
        match self.arguments == ArgumentSpec::of_graph(graph) && given.eq(wanted) {
            true => Ok(()),
            false => Err(crate::Error::Compile("the plan is that of another graph".into())),
        }
    }

    /// Computes the facts of a valid plan.
    ///
    /// Errors: an output that is placed among the temporaries.
    pub(crate) fn find_facts(&self) -> Result<Facts, String> {
        let argument_bytes = self.arguments.iter().map(ArgumentSpec::size_bytes).collect();
        let mut output_sources = Vec::with_capacity(self.outputs.len());
        let mut first: FxHashMap<usize, usize> = FxHashMap::default();
        for (i, output) in self.outputs.iter().enumerate() {
            let source = match (self.buffers[output.buffer].placement, first.get(&output.buffer)) {
                (Placement::Argument(argument), _) => OutputSource::Argument(argument),
                (Placement::Output, Some(&earlier)) => OutputSource::Output(earlier),
                (Placement::Output, None) => {
                    let taken = self.donations.iter().find(|pair| pair.0 == output.buffer);
                    OutputSource::New(taken.map(|pair| pair.1))
                }
                _ => return Err(format!("output {i} was placed among the temporaries")),
            };
            first.insert(output.buffer, i);
            output_sources.push(source);
        }
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        Ok(Facts {
            number: NUMBERS.fetch_add(1, Relaxed),
            num_launches: self.launches(),
            output_sources,
            argument_bytes,
            simple: self.operations.iter().all(Operation::is_simple),
            copies_handles: self
                .operations
                .iter()
                .any(|o| o.steps.iter().any(Step::copies_handles))
                || self.callees.iter().any(|callee| callee.plan.facts.copies_handles),
        })
    }

    /// The slots of a run, all bytes 0; `None` if the plan has no slots.
    ///
    /// Errors: [`crate::Error::HostMemory`].
    pub(crate) fn new_slots(&self) -> crate::Result<Option<Arc<[HostBytes]>>> {
        let slots = || self.slots.iter().map(|&bytes| host_bytes(bytes)).collect();
        (!self.slots.is_empty()).then(slots).transpose()
    }

    /// The number of kernels that one run launches, without those in loops and branches.
    pub fn launches(&self) -> usize {
        self.operations.iter().map(|operation| operation.launches(self)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_collects_every_defect() {
        let plan = ExecutionPlan {
            operations: vec![Operation {
                name: "add".into(),
                compute: Some(3),
                ..Default::default()
            }],
            buffers: vec![
                PlannedBuffer { placement: Placement::Argument(0), size_bytes: 4 },
                PlannedBuffer { placement: Placement::Temporary(64), size_bytes: 4 },
            ],
            outputs: vec![OutputSpec { spec: TensorSpec::scalar(DType::F64), buffer: 0 }],
            ..Default::default()
        };
        let defects = plan.validate().unwrap_err();
        assert_eq!(defects.len(), 4, "{defects:?}");
    }
}
