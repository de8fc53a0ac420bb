//! Operations and their steps: the ordered work of a plan, and its lowering to the control blocks
//! of a stream.

mod lowering;

pub use lowering::Operands;
pub(crate) use lowering::{Blocks, Lowering};

use crate::handle::{Span, invalid};
use crate::primitive::{Repeat, Runs};
use crate::queue::HostBytes;
use crate::{ArgumentBlock, Device, DeviceHandle, Error, ExecutionPlan, Placement, Result};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// The size of a handle as written by [`Step::CopyArguments`], in bytes: two 64-bit words.
pub const HANDLE_BYTES: usize = 16;

/// A step of an operation: one primitive of a device queue, or control flow over steps. A step
/// refers to a buffer by its index in the plan. Slots, which are host memory that the steps of a
/// run share, have indices, too.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Copies constant bytes to a buffer.
    CopyToDevice {
        /// The bytes.
        source: Box<[u8]>,
        /// The index of the buffer.
        buffer: usize,
    },
    /// Copies a slot to a buffer.
    CopyFromSlot {
        /// The slot.
        slot: usize,
        /// The index of the buffer.
        buffer: usize,
    },
    /// Copies the start of a buffer to a slot and fills the slot.
    CopyFromDevice {
        /// The index of the buffer.
        buffer: usize,
        /// The slot.
        slot: usize,
    },
    /// Copies the handles of buffers to a buffer, each as [`DeviceHandle::words`] in little-endian
    /// order. For devices whose programs get the locations of their data from a correction program.
    CopyArguments {
        /// The indices of the buffers, in the program's order.
        buffers: Box<[usize]>,
        /// The index of the buffer that receives the handles. It must be a temporary, because
        /// concurrent runs of a plan do not share temporaries.
        target: usize,
    },
    /// Copies within the device.
    CopyOnDevice {
        /// The index of the source buffer, and the offset of the first byte.
        source: (usize, usize),
        /// The index of the target buffer, and the offset of the first byte.
        target: (usize, usize),
        /// The length of a run in bytes.
        run: usize,
        /// The grid of runs.
        repeats: SmallVec<[Repeat; 3]>,
    },
    /// Copies within the device; source and target move with the iterations of the innermost
    /// enclosing [`Step::Repeat`].
    CopyPart {
        /// The source of the copy.
        source: MovingPart,
        /// The target of the copy.
        target: MovingPart,
        /// The number of bytes.
        bytes: usize,
    },
    /// Launches the plan's program with this index.
    Launch(usize),
    /// Runs the plan's callee with this index.
    Call(usize),
    /// Calls a host function.
    Host(HostStep),
    /// Runs the condition, then the body, while the slot's first byte is not 0 after the condition.
    /// For devices without loops.
    Loop {
        /// Steps that leave the predicate in the slot.
        condition: Box<[Step]>,
        /// The slot.
        slot: usize,
        /// The steps of one iteration.
        body: Box<[Step]>,
    },
    /// Runs the body a fixed number of times. For devices without loops.
    Repeat {
        /// The number of iterations.
        times: usize,
        /// The steps of one iteration.
        body: Box<[Step]>,
    },
    /// Runs the branch whose index is the slot's first byte; the last branch if the index is too
    /// large.
    Branch {
        /// The slot.
        slot: usize,
        /// The branches, at least one.
        branches: Box<[Box<[Step]>]>,
    },
}

/// A location in a buffer that moves with the iterations of a [`Step::Repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovingPart {
    /// The index of the buffer.
    pub buffer: usize,
    /// The offset in iteration 0, in bytes.
    pub start: usize,
    /// The change of the offset per iteration, in bytes.
    pub step: isize,
}

impl MovingPart {
    /// The start of a buffer, in every iteration.
    pub fn fixed(buffer: usize) -> MovingPart {
        MovingPart { buffer, start: 0, step: 0 }
    }

    /// The offset in an iteration, in bytes; `None` if it is negative or overflows.
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

/// A host function as a step of a plan. It is called in the queue's order with the run's slots; an
/// error ends the run.
#[derive(Clone)]
pub struct HostStep {
    name: Arc<str>,
    run: Arc<HostFunction>,
}

type HostFunction = dyn Fn(&[HostBytes]) -> Result<()> + Send + Sync;

impl HostStep {
    /// A step with a name for errors and traces.
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

/// A unit of submission: the steps in order, then a launch of the compute program, if any. An
/// operation without both does nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// A description for users.
    pub name: String,
    /// The steps before the compute program. A step that has to run after a launch follows a
    /// [`Step::Launch`] here.
    pub steps: SmallVec<[Step; 1]>,
    /// The index of the program to launch after the steps.
    pub compute: Option<usize>,
}

impl Operation {
    /// An operation that launches one program.
    pub fn compute(name: impl Into<String>, program: usize) -> Operation {
        Operation { name: name.into(), steps: SmallVec::new(), compute: Some(program) }
    }

    /// An operation that only runs steps.
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

    /// An operation that copies bytes to the start of a tensor.
    pub fn copy_to_device(source: Box<[u8]>) -> Operation {
        Operation::steps("copy to device", [Step::CopyToDevice { source, buffer: 0 }])
    }

    /// An operation that copies host memory to the start of a tensor.
    pub fn copy_from_slot() -> Operation {
        Operation::steps("copy to device", [Step::CopyFromSlot { slot: 0, buffer: 0 }])
    }

    /// An operation that fills host memory with the start of a tensor.
    pub fn copy_from_device() -> Operation {
        Operation::steps("copy from device", [Step::CopyFromDevice { buffer: 0, slot: 0 }])
    }

    /// An operation that copies runs of bytes from one tensor to another one, from these offsets on.
    pub fn copy_on_device(from: usize, to: usize, runs: Runs) -> Operation {
        let Runs { run, repeats } = runs;
        let (source, target) = ((0, from), (1, to));
        let step = Step::CopyOnDevice { source, target, run, repeats };
        Operation::steps("copy on device", [step])
    }

    /// The number of bytes of handles that the operation copies for corrections, per run.
    pub fn correction_bytes(&self) -> usize {
        let bytes = |step: &Step| match step {
            Step::CopyArguments { buffers, .. } => buffers.len() * HANDLE_BYTES,
            _ => 0,
        };
        self.steps.iter().map(bytes).sum()
    }

    /// Whether the operation only launches, and copies constant bytes.
    pub(crate) fn is_simple(&self) -> bool {
        let simple = |s: &Step| matches!(s, Step::Launch(_) | Step::CopyToDevice { .. });
        self.steps.iter().all(simple)
    }

    /// The number of launches per run, without those in loops and branches.
    pub(crate) fn launches(&self, plan: &ExecutionPlan) -> usize {
        let launches = |step: &Step| match step {
            Step::Launch(_) => 1,
            Step::Call(callee) => plan.callees.get(*callee).map_or(0, |c| c.plan.launches()),
            _ => 0,
        };
        let steps: usize = self.steps.iter().map(launches).sum();
        steps + usize::from(self.compute.is_some())
    }

    /// Appends every defect of the operation in that plan.
    pub(crate) fn defects(&self, plan: &ExecutionPlan, defects: &mut Vec<String>) {
        let mut note = |defect: String| defects.push(format!("{}: {defect}", self.name));
        self.steps.iter().for_each(|step| step.defects(plan, 1, &mut note));
        if let Some(program) = self.compute {
            Step::Launch(program).defects(plan, 1, &mut note);
        }
        if self.steps.iter().any(|s| matches!(s, Step::CopyArguments { .. })) {
            self.uncorrected(plan, &mut note);
        }
    }

    /// Reports launches of an operation that copies handles, unless a correction and one compute
    /// follow each copy: the device takes the addresses that a correction wrote for one launch.
    fn uncorrected(&self, plan: &ExecutionPlan, note: &mut dyn FnMut(String)) {
        if self.launches(plan) < 2 {
            return note(
                "handles are copied, but no correction and compute follow in this operation".into(),
            );
        }
        let compute = self.compute.map(Step::Launch);
        // The number of launches since handles were copied; before that, there must be none.
        let mut since = 2;
        for step in self.steps.iter().chain(&compute) {
            match step {
                Step::CopyArguments { .. } if since < 2 => {
                    note(format!("handles are copied again after {since} of 2 launches"));
                    since = 0;
                }
                Step::CopyArguments { .. } => since = 0,
                Step::Launch(program) if since >= 2 => {
                    note(format!("program {program} is launched without a correction before it"));
                }
                Step::Launch(_) => since += 1,
                _ => {}
            }
        }
        if since < 2 {
            note(format!("handles are copied, and {since} of 2 launches follow"));
        }
    }
}

impl Step {
    /// Whether the step, or one inside of it, copies handles.
    pub(crate) fn copies_handles(&self) -> bool {
        let any = |steps: &[Step]| steps.iter().any(Step::copies_handles);
        match self {
            Step::CopyArguments { .. } => true,
            Step::Repeat { body, .. } => any(body),
            Step::Loop { condition, body, .. } => any(condition) || any(body),
            Step::Branch { branches, .. } => branches.iter().any(|steps| any(steps)),
            _ => false,
        }
    }

    /// Reports every defect of the step in that plan, inside a loop with that many iterations.
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
                    note(format!(
                        "buffer {target} takes handles and must be a temporary, of which each \
                         run has its own"
                    ));
                }
                for buffer in buffers.iter().filter(|b| **b >= plan.buffers.len()) {
                    note(format!("buffer {buffer} does not exist"));
                }
            }
            Step::CopyOnDevice { source, target, run, repeats } => {
                let (read, written) = Runs { run: *run, repeats: repeats.clone() }.spans();
                for ((buffer, offset), span) in [(source, read), (target, written)] {
                    if !fits(*buffer, offset.saturating_add(span)) {
                        note(format!("{span} bytes from {offset} on are not in buffer {buffer}"));
                    }
                }
            }
            Step::CopyPart { source, target, bytes } => {
                for part in [source, target] {
                    // The offset is linear in the iteration, so checking the first and the last one
                    // is enough.
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
                    note(format!("slot {slot} must have a byte for the predicate of the loop"));
                }
                let steps = condition.iter().chain(body);
                steps.for_each(|step| step.defects(plan, iterations, note));
            }
            Step::Branch { slot, branches } => {
                if slot_bytes(*slot).is_none_or(|bytes| bytes == 0) || branches.is_empty() {
                    note(format!(
                        "slot {slot} must have bytes for the number of a branch, of which there \
                         are {}",
                        branches.len()
                    ));
                }
                let steps = branches.iter().flatten();
                steps.for_each(|step| step.defects(plan, iterations, note));
            }
        }
    }
}

impl ArgumentBlock {
    /// Fails unless the block was bound for that plan.
    pub(crate) fn check_plan(&self, plan: &ExecutionPlan) -> Result<()> {
        match self.plan == plan.facts.number {
            true => Ok(()),
            false => Err(Error::OtherPlan),
        }
    }

    /// The bytes of a buffer of the plan.
    ///
    /// Errors: [`Error::InvalidHandle`] for a buffer without memory.
    pub(crate) fn span(
        &self,
        plan: &ExecutionPlan,
        buffer: usize,
        device: &dyn Device,
    ) -> Result<Span> {
        let (address, size) = (self.addresses[buffer], plan.buffers[buffer].size_bytes);
        let handle = DeviceHandle::mapped(device.id(), self.pool, address);
        match address == 0 && size > 0 {
            true => Err(invalid(device, handle, size)),
            false => Ok(Span { handle, size }),
        }
    }
}

#[cfg(test)]
mod tests;
