//! Operations and their steps: how a plan says what is done in which order, and how a stream makes
//! control blocks of it.

use crate::primitive::{Iteration, MovingHandle, Repeat};
use crate::queue::{HostBytes, host_bytes};
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
    /// Copies bytes within the device, from and to places that move with the iterations of the
    /// innermost [`Step::Repeat`] around the copy.
    CopyPart {
        /// Where the copied bytes are.
        source: MovingPart,
        /// Where the bytes go.
        target: MovingPart,
        /// Number of bytes.
        bytes: usize,
    },
    /// Launches the plan's program of that position.
    Launch(usize),
    /// Runs the plan's callee of that position.
    Call(usize),
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
    /// Runs the body a fixed number of times. For devices that have no loops of their own.
    Repeat {
        /// How often.
        times: usize,
        /// The steps of one iteration.
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

/// A place in a buffer that moves with the iterations of a [`Step::Repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovingPart {
    /// Position of the buffer.
    pub buffer: usize,
    /// Bytes before the place in iteration 0.
    pub start: usize,
    /// Bytes from the place in one iteration to the place in the next.
    pub step: isize,
}

impl MovingPart {
    /// The start of a buffer, in every iteration.
    pub fn fixed(buffer: usize) -> MovingPart {
        MovingPart { buffer, start: 0, step: 0 }
    }

    /// Bytes before the place in an iteration; None for a place before the buffer.
    fn offset(&self, iteration: usize) -> Option<usize> {
        let moved = self.step.checked_mul(isize::try_from(iteration).ok()?)?;
        self.start.checked_add_signed(moved)
    }
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
            Step::CopyPart { bytes, .. } => write!(f, "copy on device ({bytes} bytes)"),
            Step::Launch(_) => f.write_str("launch"),
            Step::Call(callee) => write!(f, "call of plan {callee}"),
            Step::Repeat { times, body } => {
                write!(f, "repeat {times} times ({} steps)", body.len())
            }
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
    pub(crate) fn launches(&self, plan: &ExecutionPlan) -> usize {
        let launches = |step: &Step| match step {
            Step::Launch(_) => 1,
            Step::Call(callee) => plan.callees.get(*callee).map_or(0, |c| c.plan.launches()),
            _ => 0,
        };
        let steps: usize = self.steps.iter().map(launches).sum();
        steps + usize::from(self.compute.is_some())
    }

    /// Every defect of the operation in that plan.
    pub(crate) fn defects(&self, plan: &ExecutionPlan, defects: &mut Vec<String>) {
        let mut note = |defect: String| defects.push(format!("{}: {defect}", self.name));
        self.steps.iter().for_each(|step| step.defects(plan, 1, &mut note));
        if let Some(program) = self.compute {
            Step::Launch(program).defects(plan, 1, &mut note);
        }
        let corrections = |s: &&Step| matches!(s, Step::CopyArguments { .. });
        let corrected = self.steps.iter().filter(corrections).count();
        if corrected > 0 && self.launches(plan) < 2 {
            note(
                "handles are copied, but no correction and compute follow in this operation".into(),
            );
        }
    }
}

impl Step {
    /// Every defect of the step in that plan, inside of a loop of so many iterations.
    fn defects(&self, plan: &ExecutionPlan, iterations: usize, note: &mut dyn FnMut(String)) {
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
            Step::CopyPart { source, target, bytes } => {
                for part in [source, target] {
                    // The places in between lie between the first and the last.
                    for iteration in [0, iterations.saturating_sub(1)] {
                        let end = part.offset(iteration).and_then(|at| at.checked_add(*bytes));
                        if iterations > 0 && !end.is_some_and(|end| fits(part.buffer, end)) {
                            note(format!(
                                "{bytes} bytes of {part:?} are not in the buffer in iteration \
                                 {iteration}"
                            ));
                        }
                    }
                }
            }
            Step::Launch(program) => {
                if *program >= plan.binaries.len() {
                    note(format!("program {program} does not exist"));
                }
            }
            Step::Call(callee) => {
                if *callee >= plan.callees.len() {
                    note(format!("callee {callee} does not exist"));
                }
            }
            Step::Repeat { times, body } => {
                body.iter().for_each(|step| step.defects(plan, *times, note));
            }
            Step::Host(_) => {}
            Step::Loop { condition, slot, body } => {
                if slot_bytes(*slot).is_none_or(|bytes| bytes == 0) {
                    note(format!("slot {slot} holds no predicate"));
                }
                let steps = condition.iter().chain(body);
                steps.for_each(|step| step.defects(plan, iterations, note));
            }
            Step::Branch { slot, branches } => {
                if slot_bytes(*slot).is_none_or(|bytes| bytes == 0) || branches.is_empty() {
                    note(format!("slot {slot} holds no number of {} branches", branches.len()));
                }
                let steps = branches.iter().flatten();
                steps.for_each(|step| step.defects(plan, iterations, note));
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

/// Where a lowering puts control blocks.
type Blocks = SmallVec<[ControlBlock; 4]>;

impl Lowering<'_> {
    /// An operation as primitives: its steps in order, then its compute.
    pub fn operation(&self, operation: &Operation, blocks: &mut Blocks) -> Result<()> {
        for step in &operation.steps {
            self.step(step, None, blocks)?;
        }
        if let Some(program) = operation.compute {
            blocks.push(self.launch(program)?);
        }
        Ok(())
    }

    fn steps(&self, steps: &[Step], iteration: Option<&Iteration>) -> Result<Box<[ControlBlock]>> {
        let mut blocks = Blocks::new();
        steps.iter().try_for_each(|step| self.step(step, iteration, &mut blocks))?;
        Ok(blocks.into_vec().into())
    }

    /// The blocks of a callee's operations, on the caller's memory.
    fn call(&self, index: usize, blocks: &mut Blocks) -> Result<()> {
        let callee = self.plan.callees.get(index).ok_or(Error::NotLoaded { index })?;
        let caller = self.arguments;
        let address = |at: &Option<usize>| at.map_or(0, |at| caller.addresses[at]);
        let words = |at: &Option<usize>| {
            at.and_then(|at| caller.words.get(at)).copied().unwrap_or_default()
        };
        let mut block = ArgumentBlock {
            addresses: callee.buffers.iter().map(address).collect(),
            words: callee.words.iter().map(words).collect(),
            caller: Some(caller.clone()),
            ..ArgumentBlock::default()
        };
        if callee.plan.facts.copies_handles {
            let nowhere = DeviceHandle::physical(DeviceId::HOST, 0);
            let handle = |at: &Option<usize>| at.map_or(nowhere, |at| caller.handles[at]);
            block.handles = callee.buffers.iter().map(handle).collect();
        }
        if !callee.plan.slots.is_empty() {
            let slots = callee.plan.slots.iter().map(|&bytes| host_bytes(bytes));
            block.slots = Some(slots.collect::<Result<_>>()?);
        }
        let arguments = Arc::new(block);
        let lowering = Lowering { plan: &callee.plan, arguments: &arguments, ..*self };
        callee.plan.operations.iter().try_for_each(|o| lowering.operation(o, blocks))
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

    fn moving(&self, part: &MovingPart) -> MovingHandle {
        let MovingPart { buffer, start, step } = *part;
        MovingHandle { base: self.at(buffer), start, step }
    }

    fn step(&self, step: &Step, iteration: Option<&Iteration>, blocks: &mut Blocks) -> Result<()> {
        blocks.push(match step {
            Step::Call(callee) => return self.call(*callee, blocks),
            Step::CopyPart { source, target, bytes } => {
                let (source, target) = (self.moving(source), self.moving(target));
                let iteration = iteration.cloned().unwrap_or_default();
                ControlBlock::CopyPart { source, target, bytes: *bytes, iteration }
            }
            Step::Repeat { times, body } => {
                let iteration = Iteration::default();
                let body = self.steps(body, Some(&iteration))?;
                let arguments = self.arguments.clone();
                ControlBlock::Repeat { times: *times, iteration, body, arguments }
            }
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
                condition: self.steps(condition, iteration)?,
                slot: self.slot(*slot),
                body: self.steps(body, iteration)?,
                arguments: self.arguments.clone(),
            },
            Step::Branch { slot, branches } => ControlBlock::Branch {
                slot: self.slot(*slot),
                branches: branches
                    .iter()
                    .map(|steps| self.steps(steps, iteration))
                    .collect::<Result<_>>()?,
            },
        });
        Ok(())
    }

    /// The bytes that a correction program is given.
    fn handles(&self, buffers: &[usize]) -> Box<[u8]> {
        let words = buffers.iter().flat_map(|&buffer| self.arguments.handles[buffer].words());
        words.flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests;
