//! Operations and their steps: how a plan says what is done in which order, and how a stream makes
//! control blocks of it.

use crate::primitive::Repeat;
use crate::queue::HostBytes;
use crate::{
    ArgumentBlock, ControlBlock, DeviceHandle, DeviceId, Error, ExecutionPlan, Placement, Result,
    StridedCopy,
};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// Bytes of one handle that [`Step::CopyArguments`] writes: two 64-bit words.
pub const HANDLE_BYTES: usize = 16;

/// A step of an operation: one primitive of a device queue, or control flow over such steps. Buffers
/// are named by their position in the plan, and so are slots: host memory that the steps of one run
/// share.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Copies bytes fixed at compile time into a buffer.
    CopyToDevice {
        /// The bytes.
        source: Box<[u8]>,
        /// Position of the buffer.
        buffer: usize,
    },
    /// Copies a slot into a buffer.
    CopyFromSlot {
        /// The slot.
        slot: usize,
        /// Position of the buffer.
        buffer: usize,
    },
    /// Copies as many bytes of a buffer as the slot has into the slot.
    CopyFromDevice {
        /// Position of the buffer.
        buffer: usize,
        /// The slot.
        slot: usize,
    },
    /// Copies the handles of buffers into a buffer, each as [`DeviceHandle::words`] in little-endian
    /// order: for devices whose programs are told where their data is by a correction program.
    CopyArguments {
        /// Positions of the buffers, in the program's order.
        buffers: Box<[usize]>,
        /// Position of the buffer that takes the handles. It must be a temporary: those are each
        /// run's own, so that runs of one plan do not meet there.
        target: usize,
    },
    /// Copies within the device.
    CopyOnDevice {
        /// Position of the buffer that is read, and the bytes before the first one read.
        source: (usize, usize),
        /// Position of the buffer that is written, and the bytes before the first one written.
        target: (usize, usize),
        /// Bytes of a run.
        run: usize,
        /// The grid of runs.
        repeats: SmallVec<[Repeat; 3]>,
    },
    /// Launches the plan's program of that position.
    Launch(usize),
    /// Calls a function of the host.
    Host(HostStep),
    /// Runs the condition, then the body, as long as the slot's first byte is not 0 after the
    /// condition. For devices that have no loops of their own.
    Loop {
        /// Leave the predicate in the slot.
        condition: Box<[Step]>,
        /// The slot.
        slot: usize,
        /// Run while the predicate holds.
        body: Box<[Step]>,
    },
    /// Runs the branch that the slot's first byte numbers, the last one for larger numbers.
    Branch {
        /// The slot.
        slot: usize,
        /// At least one.
        branches: Box<[Box<[Step]>]>,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CopyToDevice { source, .. } => {
                write!(f, "copy to device ({} bytes)", source.len())
            }
            Step::CopyFromSlot { slot, .. } => write!(f, "copy to device (slot {slot})"),
            Step::CopyFromDevice { slot, .. } => write!(f, "copy from device (slot {slot})"),
            Step::CopyArguments { buffers, .. } => {
                write!(f, "copy to device ({} handles)", buffers.len())
            }
            Step::CopyOnDevice { run, repeats, .. } => {
                let runs: usize = repeats.iter().map(|repeat| repeat.count).product();
                write!(f, "copy on device ({} bytes)", run * runs)
            }
            Step::Launch(_) => f.write_str("launch"),
            Step::Host(step) => write!(f, "host: {}", step.name()),
            Step::Loop { slot, body, .. } => {
                write!(f, "loop on slot {slot} ({} steps)", body.len())
            }
            Step::Branch { slot, branches } => {
                write!(f, "branch on slot {slot} ({} ways)", branches.len())
            }
        }
    }
}

/// A function of the host among a plan's steps. It is called in the queue's order with the run's slots;
/// an error ends the run.
#[derive(Clone)]
pub struct HostStep {
    name: Arc<str>,
    run: Arc<HostFunction>,
}

type HostFunction = dyn Fn(&[HostBytes]) -> Result<()> + Send + Sync;

impl HostStep {
    /// A step of that name, for errors and traces.
    pub fn new(
        name: &str,
        run: impl Fn(&[HostBytes]) -> Result<()> + Send + Sync + 'static,
    ) -> HostStep {
        HostStep { name: name.into(), run: Arc::new(run) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn run(&self, slots: &[HostBytes]) -> Result<()> {
        (self.run)(slots)
    }
}

impl fmt::Debug for HostStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostStep({})", self.name)
    }
}

impl PartialEq for HostStep {
    fn eq(&self, other: &HostStep) -> bool {
        Arc::ptr_eq(&self.run, &other.run)
    }
}

/// A unit of submission: steps in order, then the compute, if any. An operation without either does
/// nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// What it does, for people.
    pub name: String,
    /// Steps before the compute. A step that is to follow a launch follows it here, as
    /// [`Step::Launch`].
    pub steps: SmallVec<[Step; 1]>,
    /// Position of the program to launch at the end.
    pub compute: Option<usize>,
}

impl Operation {
    /// An operation that launches one program.
    pub fn compute(name: impl Into<String>, program: usize) -> Operation {
        Operation { name: name.into(), steps: SmallVec::new(), compute: Some(program) }
    }

    /// An operation that runs steps, and launches nothing at their end.
    pub fn steps(name: impl Into<String>, steps: impl IntoIterator<Item = Step>) -> Operation {
        let steps = steps.into_iter().collect();
        Operation { name: name.into(), steps, compute: None }
    }

    /// An operation that runs steps and then launches a program.
    pub fn compute_after(
        name: impl Into<String>,
        steps: impl IntoIterator<Item = Step>,
        program: usize,
    ) -> Operation {
        Operation { compute: Some(program), ..Operation::steps(name, steps) }
    }

    /// True if it does nothing but launch and copy bytes fixed at compile time.
    pub(crate) fn is_simple(&self) -> bool {
        let simple = |s: &Step| matches!(s, Step::Launch(_) | Step::CopyToDevice { .. });
        self.steps.iter().all(simple)
    }

    /// Launches that every run of it makes, those in loops and branches not counted.
    pub(crate) fn launches(&self) -> usize {
        let steps = self.steps.iter().filter(|step| matches!(step, Step::Launch(_))).count();
        steps + usize::from(self.compute.is_some())
    }

    /// Every defect of the operation in that plan.
    pub(crate) fn defects(&self, plan: &ExecutionPlan, defects: &mut Vec<String>) {
        let mut note = |defect: String| defects.push(format!("{}: {defect}", self.name));
        self.steps.iter().for_each(|step| step.defects(plan, &mut note));
        if let Some(program) = self.compute {
            Step::Launch(program).defects(plan, &mut note);
        }
        let corrections = |s: &&Step| matches!(s, Step::CopyArguments { .. });
        let corrected = self.steps.iter().filter(corrections).count();
        if corrected > 0 && self.launches() < 2 {
            note(
                "handles are copied, but no correction and compute follow in this operation".into(),
            );
        }
    }
}

impl Step {
    fn defects(&self, plan: &ExecutionPlan, note: &mut dyn FnMut(String)) {
        let fits = |buffer: usize, bytes: usize| {
            plan.buffers.get(buffer).is_some_and(|b| bytes <= b.size_bytes)
        };
        let slot_bytes = |slot: usize| plan.slots.get(slot).copied();
        match self {
            Step::CopyToDevice { source, buffer } => {
                if !fits(*buffer, source.len()) {
                    note(format!("{} bytes do not fit buffer {buffer}", source.len()));
                }
            }
            Step::CopyFromSlot { slot, buffer } | Step::CopyFromDevice { slot, buffer } => {
                match slot_bytes(*slot) {
                    None => note(format!("slot {slot} does not exist")),
                    Some(bytes) if !fits(*buffer, bytes) => {
                        note(format!(
                            "the {bytes} bytes of slot {slot} are not in buffer {buffer}"
                        ));
                    }
                    Some(_) => {}
                }
            }
            Step::CopyArguments { buffers, target } => {
                let bytes = buffers.len() * HANDLE_BYTES;
                let found = plan.buffers.get(*target);
                if found.is_none_or(|b| b.size_bytes != bytes) {
                    let found = found.map_or(0, |b| b.size_bytes);
                    let count = buffers.len();
                    note(format!(
                        "{count} handles take {bytes} bytes, buffer {target} has {found}"
                    ));
                }
                if !found.is_none_or(|b| matches!(b.placement, Placement::Temporary(_))) {
                    note(format!("buffer {target} takes handles and is not each run's own"));
                }
                for buffer in buffers.iter().filter(|b| **b >= plan.buffers.len()) {
                    note(format!("buffer {buffer} does not exist"));
                }
            }
            Step::CopyOnDevice { source, target, run, repeats } => {
                let nowhere = DeviceHandle::physical(DeviceId::HOST, 0);
                let repeats = repeats.clone();
                let copy = StridedCopy { repeats, ..StridedCopy::dense(nowhere, nowhere, *run) };
                let (read, written) = copy.spans();
                for ((buffer, offset), span) in [(source, read), (target, written)] {
                    if !fits(*buffer, offset.saturating_add(span)) {
                        note(format!("{span} bytes from {offset} on are not in buffer {buffer}"));
                    }
                }
            }
            Step::Launch(program) => {
                if *program >= plan.binaries.len() {
                    note(format!("program {program} does not exist"));
                }
            }
            Step::Host(_) => {}
            Step::Loop { condition, slot, body } => {
                if slot_bytes(*slot).is_none_or(|bytes| bytes == 0) {
                    note(format!("slot {slot} holds no predicate"));
                }
                condition.iter().chain(body).for_each(|step| step.defects(plan, note));
            }
            Step::Branch { slot, branches } => {
                if slot_bytes(*slot).is_none_or(|bytes| bytes == 0) || branches.is_empty() {
                    note(format!("slot {slot} holds no number of {} branches", branches.len()));
                }
                branches.iter().flatten().for_each(|step| step.defects(plan, note));
            }
        }
    }
}

/// Makes control blocks of the operations of one run.
pub(crate) struct Lowering<'a> {
    pub plan: &'a ExecutionPlan,
    pub device: DeviceId,
    pub arguments: &'a Arc<ArgumentBlock>,
}

impl Lowering<'_> {
    /// An operation as primitives: its steps in order, then its compute.
    pub fn operation(
        &self,
        operation: &Operation,
        blocks: &mut SmallVec<[ControlBlock; 4]>,
    ) -> Result<()> {
        for step in &operation.steps {
            blocks.push(self.step(step)?);
        }
        if let Some(program) = operation.compute {
            blocks.push(self.launch(program)?);
        }
        Ok(())
    }

    fn steps(&self, steps: &[Step]) -> Result<Box<[ControlBlock]>> {
        steps.iter().map(|step| self.step(step)).collect()
    }

    fn launch(&self, index: usize) -> Result<ControlBlock> {
        let program = self.plan.programs.get(index).ok_or(Error::NotLoaded { index })?.clone();
        Ok(ControlBlock::Launch { program, arguments: self.arguments.clone() })
    }

    fn at(&self, buffer: usize) -> DeviceHandle {
        DeviceHandle::physical(self.device, self.arguments.addresses[buffer])
    }

    fn slot(&self, slot: usize) -> HostBytes {
        self.arguments.slots()[slot].clone()
    }

    fn step(&self, step: &Step) -> Result<ControlBlock> {
        Ok(match step {
            Step::Launch(program) => self.launch(*program)?,
            Step::CopyToDevice { source, buffer } => ControlBlock::CopyToDevice {
                source: source.clone(),
                target: self.at(*buffer),
                buffer: None,
            },
            Step::CopyFromSlot { slot, buffer } => {
                let (source, target) = (self.slot(*slot), self.at(*buffer));
                ControlBlock::CopyFromSlot { source, target, buffer: None }
            }
            Step::CopyFromDevice { buffer, slot } => ControlBlock::CopyFromDevice {
                source: self.at(*buffer),
                target: self.slot(*slot),
                buffer: None,
            },
            Step::CopyArguments { buffers, target } => ControlBlock::CopyToDevice {
                source: self.handles(buffers),
                target: self.at(*target),
                buffer: None,
            },
            Step::CopyOnDevice { source, target, run, repeats } => {
                let (from, to) = (self.at(source.0).offset(source.1), self.at(target.0));
                let dense = StridedCopy::dense(from, to.offset(target.1), *run);
                let copy = StridedCopy { repeats: repeats.clone(), ..dense };
                ControlBlock::CopyOnDevice { copy, buffers: SmallVec::new() }
            }
            Step::Host(step) => {
                let slots = self.arguments.slots().into();
                ControlBlock::Host { step: step.clone(), slots }
            }
            Step::Loop { condition, slot, body } => ControlBlock::Loop {
                condition: self.steps(condition)?,
                slot: self.slot(*slot),
                body: self.steps(body)?,
                arguments: self.arguments.clone(),
            },
            Step::Branch { slot, branches } => ControlBlock::Branch {
                slot: self.slot(*slot),
                branches: branches.iter().map(|steps| self.steps(steps)).collect::<Result<_>>()?,
            },
        })
    }

    /// The bytes that a correction program is given.
    fn handles(&self, buffers: &[usize]) -> Box<[u8]> {
        let words = buffers.iter().flat_map(|&buffer| self.arguments.handles[buffer].words());
        words.flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests;
