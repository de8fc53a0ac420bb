//! Execution plans: compiled programs as ordered operations and their memory. Plans are passive;
//! streams run them.

mod text;

use crate::layout::{Strides, span_bytes};
use crate::{Binary, CompileOptions, LoadedProgram, Operation, Step};
use girih_ir::{DType, Graph, OpCode, TensorSpec};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// What a plan takes at one argument position.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum ArgumentSpec {
    /// Data of that spec, dense and row-major.
    Tensor(TensorSpec),
    /// Data of that spec in the memory of a larger tensor, with these strides.
    Strided(TensorSpec, Strides),
    /// A scalar of that dtype.
    Scalar(DType),
    /// Key and offset of a random leaf.
    RandomKey,
}

impl ArgumentSpec {
    /// Bytes of memory of which a run is given the first; 0 of scalars and keys.
    pub fn size_bytes(&self) -> usize {
        match self {
            ArgumentSpec::Tensor(spec) => spec.size_bytes(),
            ArgumentSpec::Strided(spec, strides) => span_bytes(spec, strides),
            ArgumentSpec::Scalar(_) | ArgumentSpec::RandomKey => 0,
        }
    }

    /// Whether it is data, which has memory.
    pub fn is_data(&self) -> bool {
        matches!(self, ArgumentSpec::Tensor(_) | ArgumentSpec::Strided(..))
    }

    /// Of each of a graph's arguments.
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

/// Where the memory of one of the program's buffers comes from at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The argument of that position.
    Argument(usize),
    /// A block of its own, handed out as a result.
    Output,
    /// That many bytes into the plan's one block of temporaries.
    Temporary(usize),
    /// No kernel reads or writes it.
    Unused,
}

/// A buffer of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// Where its memory comes from.
    pub placement: Placement,
    /// Its size.
    pub size_bytes: usize,
}

/// A result of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputSpec {
    /// What it is.
    pub spec: TensorSpec,
    /// Which buffer holds it.
    pub buffer: usize,
}

/// What a run would otherwise find out of its plan each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of kernels launched by one run.
    pub(crate) num_launches: usize,
    /// Where each result's memory comes from.
    pub(crate) output_sources: Vec<OutputSource>,
    /// Bytes of each argument that is a tensor.
    pub(crate) argument_bytes: Vec<usize>,
    /// Nothing but launches and copies of fixed bytes.
    pub(crate) simple: bool,
    /// Some operation is given the handles of its buffers.
    pub(crate) copies_handles: bool,
}

/// Where the memory of a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputSource {
    /// A block of its own; or that of an argument, if that is donated.
    New(Option<usize>),
    /// The result of that position is the same buffer.
    Output(usize),
    /// The argument of that position.
    Argument(usize),
}

/// A compiled program: operations in order, the memory they need, and what goes in and out.
#[derive(Default)]
pub struct ExecutionPlan {
    /// Run in this order.
    pub operations: Vec<Operation>,
    /// The programs that operations launch, as compiled.
    pub binaries: Vec<Binary>,
    /// The programs on the device, once loaded; same positions.
    pub programs: Vec<LoadedProgram>,
    /// The plans that [`Step::Call`] runs.
    pub callees: Vec<Callee>,
    /// All buffers.
    pub buffers: Vec<PlannedBuffer>,
    /// Results that may be written over an argument that is donated: buffer of the result, number of
    /// the argument.
    pub takeovers: Vec<(usize, usize)>,
    /// Buffers of arguments that the device would rather read in another form, if they are given
    /// again and again.
    pub weights: Vec<usize>,
    /// What every run needs to know, found when the plan is loaded.
    pub facts: Facts,
    /// About how long a run takes on one thread, in nanoseconds; 0 if nobody knows.
    pub cost_ns: u64,
    /// Bytes of the block that holds the temporaries.
    pub temporary_bytes: usize,
    /// Bytes of each slot: host memory that the steps of a run share.
    pub slots: Vec<usize>,
    /// What the device is told once, before a plan that brings the same packet first runs there.
    pub init_packets: Vec<Box<[u8]>>,
    /// What the plan takes.
    pub arguments: Vec<ArgumentSpec>,
    /// What the plan gives.
    pub outputs: Vec<OutputSpec>,
    /// What it was compiled from, to tell why another graph is another program.
    pub source: Option<Arc<Source>>,
    /// Where the time of making it went.
    pub times: CompileTimes,
    /// Writes down what the back end needs to make the plan again, for the cache on disk. Taken by
    /// whoever keeps the plan.
    pub artifact: Option<Artifact>,
}

/// A plan that another plan calls, on memory and scalars of the caller.
pub struct Callee {
    /// The plan. Its results and temporaries have no memory of their own.
    pub plan: ExecutionPlan,
    /// For each buffer of the plan the position of the caller's buffer in its place; None for a buffer that
    /// no step uses.
    pub buffers: Box<[Option<usize>]>,
    /// For each argument of the plan that is a scalar or a random key, the position of the caller's
    /// argument in its place; None for tensors.
    pub words: Box<[Option<usize>]>,
}

impl Callee {
    /// Every defect of the call in that plan.
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

/// What a plan was compiled from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The graph.
    pub graph: Graph,
    /// What compilation could do.
    pub options: CompileOptions,
}

/// Called once, at leisure, for the bytes of a plan's artefact.
pub type Artifact = Box<dyn FnOnce() -> Vec<u8> + Send + Sync>;

/// Time spent on the stages of a compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileTimes {
    /// Graph passes.
    pub optimize: Duration,
    /// Fusion into kernels.
    pub codegen: Duration,
    /// Making kernels ready to run, placing buffers and loading.
    pub compile: Duration,
}

impl ExecutionPlan {
    /// Checks the plan against itself and lists every defect found.
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
                Placement::Argument(a) => self.arguments.get(a).is_some_and(ArgumentSpec::is_data),
                Placement::Temporary(at) => at + buffer.size_bytes <= self.temporary_bytes,
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

    /// What every run needs to know of the plan, which is valid.
    ///
    /// Errors: an output without memory of its own.
    pub(crate) fn find_facts(&self) -> Result<Facts, String> {
        let argument_bytes = self.arguments.iter().map(ArgumentSpec::size_bytes).collect();
        let mut output_sources = Vec::with_capacity(self.outputs.len());
        let mut first: FxHashMap<usize, usize> = FxHashMap::default();
        for (i, output) in self.outputs.iter().enumerate() {
            let source = match (self.buffers[output.buffer].placement, first.get(&output.buffer)) {
                (Placement::Argument(argument), _) => OutputSource::Argument(argument),
                (Placement::Output, Some(&earlier)) => OutputSource::Output(earlier),
                (Placement::Output, None) => {
                    let taken = self.takeovers.iter().find(|pair| pair.0 == output.buffer);
                    OutputSource::New(taken.map(|pair| pair.1))
                }
                _ => return Err(format!("output {i} was placed among the temporaries")),
            };
            first.insert(output.buffer, i);
            output_sources.push(source);
        }
        let copies = |step: &Step| matches!(step, Step::CopyArguments { .. });
        Ok(Facts {
            num_launches: self.launches(),
            output_sources,
            argument_bytes,
            simple: self.operations.iter().all(Operation::is_simple),
            copies_handles: self.operations.iter().any(|o| o.steps.iter().any(copies))
                || self.callees.iter().any(|callee| callee.plan.facts.copies_handles),
        })
    }

    /// Number of kernels launched by one run; those in loops and branches are not counted.
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
