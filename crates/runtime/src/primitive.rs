//! Primitives: the control blocks in queues, and how their work is enqueued on a device.

use crate::device::{Enqueued, Position, Primitive, with_bytes};
use crate::gate::Gate;
use crate::handle::Span;
use crate::queue::{EventRecord, HostBytes};
use crate::trace::{self, SpanKind};
use crate::{ArgumentBlock, Buffer, Device, Error, HostStep, LoadedProgram, Place, Result};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// The number of launches between two checks of the clock.
const CLOCK_EVERY: usize = 64;

/// A primitive of a queue.
pub(crate) enum ControlBlock {
    /// Copies host bytes, which the block owns, to device memory.
    CopyToDevice {
        /// The bytes.
        source: Box<[u8]>,
        /// The target of the copy.
        target: Span,
        /// Keeps the target alive, if nothing else does.
        #[allow(dead_code, reason = "held for its drop")]
        buffer: Option<Arc<Buffer>>,
    },
    /// Copies a slot's bytes, as they are when the copy runs, to device memory.
    CopyFromSlot {
        /// The slot.
        source: HostBytes,
        /// The target of the copy.
        target: Span,
        /// Keeps the target alive, if nothing else does.
        #[allow(dead_code, reason = "held for its drop")]
        buffer: Option<Arc<Buffer>>,
    },
    /// Copies device memory to a host buffer that the reader shares.
    CopyFromDevice {
        /// The source of the copy.
        source: Span,
        /// The target of the copy; its length is the number of bytes.
        target: HostBytes,
        /// Keeps the source alive, if nothing else does.
        #[allow(dead_code, reason = "held for its drop")]
        buffer: Option<Arc<Buffer>>,
    },
    /// Copies within the memory of the device.
    CopyOnDevice {
        /// The copy.
        copy: StridedCopy,
        /// Keep source and target alive, if nothing else does.
        #[allow(dead_code, reason = "held for its drop")]
        buffers: SmallVec<[Arc<Buffer>; 2]>,
    },
    /// Copies within the memory of the device; source and target depend on the iteration of the
    /// enclosing [`ControlBlock::Repeat`].
    CopyPart {
        /// The source of the copy.
        source: MovingHandle,
        /// The target of the copy.
        target: MovingHandle,
        /// The number of bytes.
        bytes: usize,
        /// The counter of iterations.
        iteration: Iteration,
    },
    /// Launches a loaded program.
    Launch {
        /// The program.
        program: LoadedProgram,
        /// The arguments, shared by the launches of one run.
        arguments: Arc<ArgumentBlock>,
    },
    /// Calls a host function, which may read and write the run's slots.
    Host {
        /// The function.
        step: HostStep,
        /// Host memory that the steps of the run share.
        slots: Arc<[HostBytes]>,
    },
    /// Runs the condition, then the body, while the slot's first byte is not 0 after the condition.
    Loop {
        /// Blocks that leave the predicate in the slot.
        condition: Box<[ControlBlock]>,
        /// The slot of the predicate.
        slot: HostBytes,
        /// The blocks of one iteration.
        body: Box<[ControlBlock]>,
        /// The arguments of the run, whose control stops the loop.
        arguments: Arc<ArgumentBlock>,
    },
    /// Runs the body a fixed number of times.
    Repeat {
        /// The number of iterations.
        times: usize,
        /// The counter of iterations, from 0.
        iteration: Iteration,
        /// The blocks of one iteration.
        body: Box<[ControlBlock]>,
        /// The arguments of the run, whose control stops the loop.
        arguments: Arc<ArgumentBlock>,
    },
    /// Runs the branch whose index is the slot's first byte; the last branch if the index is too
    /// large.
    Branch {
        /// The slot of the index.
        slot: HostBytes,
        /// The branches, at least one.
        branches: Box<[Box<[ControlBlock]>]>,
    },
    /// Marks a record of an event as reached.
    Record(Arc<EventRecord>),
    /// Blocks the queue until a record of an event is reached.
    Wait(Arc<EventRecord>),
}

impl fmt::Debug for ControlBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ControlBlock::CopyToDevice { .. } | ControlBlock::CopyFromSlot { .. } => {
                "copy_to_device"
            }
            ControlBlock::CopyFromDevice { .. } => "copy_from_device",
            ControlBlock::CopyOnDevice { .. } | ControlBlock::CopyPart { .. } => "copy_on_device",
            ControlBlock::Launch { .. } => "launch",
            ControlBlock::Host { .. } => "host",
            ControlBlock::Loop { .. } => "loop",
            ControlBlock::Repeat { .. } => "repeat",
            ControlBlock::Branch { .. } => "branch",
            ControlBlock::Record(_) => "record",
            ControlBlock::Wait(_) => "wait",
        })
    }
}

/// The iteration counter of a [`ControlBlock::Repeat`], for the copies in its body. Each run has
/// its own.
pub(crate) type Iteration = Arc<AtomicUsize>;

/// A location in device memory that moves with the iterations of a [`ControlBlock::Repeat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovingHandle {
    /// The bytes of the buffer.
    pub buffer: Span,
    /// The offset in iteration 0, in bytes.
    pub start: usize,
    /// The change of the offset per iteration, in bytes.
    pub step: isize,
}

impl MovingHandle {
    /// The bytes in an iteration.
    fn at(&self, iteration: usize, bytes: usize, device: &dyn Device) -> Result<Span> {
        let moved = self.step.wrapping_mul(iteration as isize);
        let start = self.start.wrapping_add_signed(moved);
        self.buffer.part(start, bytes).ok_or_else(|| Error::InvalidHandle {
            device: device.properties().name.clone(),
            handle: format!("{} + {start:#x}", self.buffer.handle),
            size: bytes,
        })
    }
}

/// A copy within a device, whose control block keeps both places alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StridedCopy {
    /// The bytes from the first to the last one that is read.
    pub source: Span,
    /// The bytes from the first to the last one that is written.
    pub target: Span,
    /// The runs.
    pub runs: Runs,
}

/// Runs of bytes, repeated over a grid with different strides in source and target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// The length of a run in bytes.
    pub run: usize,
    /// The axes of the grid of runs, outermost first. Empty for a single run.
    pub repeats: SmallVec<[Repeat; 3]>,
}

/// One axis of a grid of [`Runs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The number of repetitions.
    pub count: usize,
    /// The stride in the source, in bytes.
    pub source: usize,
    /// The stride in the target, in bytes.
    pub target: usize,
}

impl Runs {
    /// A single run of contiguous bytes.
    pub fn dense(run: usize) -> Runs {
        Runs { run, repeats: SmallVec::new() }
    }

    /// The number of bytes copied; the largest number if there are more.
    pub fn bytes(&self) -> usize {
        if self.repeats.iter().any(|repeat| repeat.count == 0) {
            return 0;
        }
        self.repeats.iter().fold(self.run, |bytes, repeat| bytes.saturating_mul(repeat.count))
    }

    /// The number of bytes from the first to the last byte accessed, in the source and in the
    /// target.
    pub fn spans(&self) -> (usize, usize) {
        if self.bytes() == 0 {
            return (0, 0);
        }
        let reach = |step: fn(&Repeat) -> usize| {
            let axes = self.repeats.iter().map(|r| (r.count - 1).saturating_mul(step(r)));
            axes.fold(self.run, usize::saturating_add)
        };
        (reach(|r| r.source), reach(|r| r.target))
    }

    /// Calls `copy` with the offsets of each run in source and target, in bytes.
    pub fn for_each(&self, mut copy: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let mut index: SmallVec<[usize; 3]> = SmallVec::from_elem(0, self.repeats.len());
        let (mut source, mut target) = (0, 0);
        loop {
            copy(source, target)?;
            let mut axis = self.repeats.len();
            loop {
                let Some(outer) = axis.checked_sub(1) else { return Ok(()) };
                axis = outer;
                let repeat = &self.repeats[axis];
                index[axis] += 1;
                if index[axis] < repeat.count {
                    (source, target) = (source + repeat.source, target + repeat.target);
                    break;
                }
                index[axis] = 0;
                source -= repeat.source * (repeat.count - 1);
                target -= repeat.target * (repeat.count - 1);
            }
        }
    }
}

/// The queue for which a thread runs primitives. One thread at a time does.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    /// The device.
    pub device: &'a Arc<dyn Device>,
    /// The number of the queue.
    pub queue: usize,
    /// The queue's gate, which numbers its primitives.
    pub gate: &'a Gate,
}

impl Lane<'_> {
    /// Enqueues a primitive on the device, and traces it.
    fn enqueue(
        &self,
        kind: SpanKind,
        bytes: usize,
        name: impl FnOnce() -> String,
        work: Primitive<'_>,
    ) -> Result<Enqueued> {
        let at = Position { queue: self.queue, number: self.gate.next_number() };
        trace::enqueued(kind, &**self.device, at, bytes, name, || self.device.enqueue(at, work))
    }

    /// Enqueues a copy.
    fn copy(&self, kind: SpanKind, bytes: usize, work: Primitive<'_>) -> Result<Enqueued> {
        self.enqueue(kind, bytes, || kind.name().to_string(), work)
    }

    /// Enqueues a copy of host bytes into device memory.
    pub fn copy_to_device(&self, source: &[u8], target: Place<'_>) -> Result<Enqueued> {
        let work = Primitive::CopyToDevice { source, target };
        self.copy(SpanKind::CopyToDevice, source.len(), work)
    }

    fn copy_on_device(&self, places: (Place<'_>, Place<'_>), runs: &Runs) -> Result<Enqueued> {
        let (source, target) = places;
        let work = Primitive::CopyOnDevice { source, target, runs };
        self.copy(SpanKind::CopyOnDevice, runs.bytes(), work)
    }

    /// Enqueues the launch of step `at` of a run, unless the run has to stop.
    pub fn launch(
        &self,
        program: &LoadedProgram,
        arguments: &ArgumentBlock,
        at: usize,
    ) -> Result<Enqueued> {
        check_step(arguments, at)?;
        let name = || self.device.program_name(program).unwrap_or("launch").to_string();
        let work = Primitive::Launch(arguments.launch(program));
        let enqueue = || self.enqueue(SpanKind::Launch, 0, name, work);
        arguments.control().timed(name, enqueue)
    }

    /// As [`Lane::launch`]; the device may use the arguments after this call.
    fn launch_shared(
        &self,
        program: &LoadedProgram,
        arguments: &Arc<ArgumentBlock>,
        at: usize,
    ) -> Result<Enqueued> {
        check_step(arguments, at)?;
        let name = || self.device.program_name(program).unwrap_or("launch").to_string();
        let work = Primitive::Launch(ArgumentBlock::shared_launch(arguments, program));
        let start = arguments.control().is_timed().then(Instant::now);
        let enqueued = self.enqueue(SpanKind::Launch, 0, name, work);
        if let Some(start) = start {
            let (name, arguments) = (name(), arguments.clone());
            let done = move || arguments.control().add_time(name, start.elapsed());
            match &enqueued {
                Ok(Enqueued::Outstanding(completion)) => completion.then(move |_| done()),
                _ => done(),
            }
        }
        enqueued
    }
}

/// Fails if the run has to stop before step `at`.
fn check_step(arguments: &ArgumentBlock, at: usize) -> Result<()> {
    let control = arguments.control();
    // Long launches check the clock themselves; a sequence of short launches needs a check, too.
    if control.stopped() || at % CLOCK_EVERY == CLOCK_EVERY - 1 && control.check() {
        return Err(control.error(&format!("step {at}")));
    }
    Ok(())
}

impl ControlBlock {
    /// Whether the block is work of the device.
    pub fn is_primitive(&self) -> bool {
        matches!(
            self,
            ControlBlock::CopyToDevice { .. }
                | ControlBlock::CopyFromSlot { .. }
                | ControlBlock::CopyFromDevice { .. }
                | ControlBlock::CopyOnDevice { .. }
                | ControlBlock::CopyPart { .. }
                | ControlBlock::Launch { .. }
        )
    }

    /// Whether the host does the block's work on the results of the blocks before it.
    pub fn is_of_host(&self) -> bool {
        matches!(
            self,
            ControlBlock::Host { .. }
                | ControlBlock::Branch { .. }
                | ControlBlock::CopyFromSlot { .. }
        )
    }

    /// Enqueues the block's work on the device, or does it if it is the host's. The block is step
    /// `at` of its list, and no control flow.
    pub fn enqueue(&self, lane: &Lane<'_>, at: usize) -> Result<Enqueued> {
        match self {
            ControlBlock::CopyToDevice { source, target, .. } => {
                lane.copy_to_device(source, target.place())
            }
            ControlBlock::CopyFromSlot { source, target, .. } => {
                with_bytes(source, |bytes| lane.copy_to_device(bytes, target.place()))
            }
            ControlBlock::CopyFromDevice { source, target, .. } => {
                let bytes = target.lock().unwrap_or_else(PoisonError::into_inner).len();
                let work = Primitive::CopyFromDevice { source: source.place(), target };
                lane.copy(SpanKind::CopyFromDevice, bytes, work)
            }
            ControlBlock::CopyOnDevice { copy, .. } => {
                lane.copy_on_device((copy.source.place(), copy.target.place()), &copy.runs)
            }
            ControlBlock::CopyPart { source, target, bytes, iteration } => {
                let t = iteration.load(Relaxed);
                let device = lane.device.as_ref();
                let spans = (source.at(t, *bytes, device)?, target.at(t, *bytes, device)?);
                let places = (spans.0.place(), spans.1.place());
                lane.copy_on_device(places, &Runs::dense(*bytes))
            }
            ControlBlock::Launch { program, arguments } => {
                lane.launch_shared(program, arguments, at)
            }
            ControlBlock::Host { step, slots } => {
                let name = || step.name().to_string();
                let (device, queue) = (lane.device.as_ref(), Some(lane.queue));
                trace::span(SpanKind::Host, device, queue, name, || step.run(slots))?;
                Ok(Enqueued::Done)
            }
            ControlBlock::Wait(record) => {
                // The submission began when the record had been reached. The event only marks a
                // point of its queue; that queue reports failures before the event.
                let reached = record.reached_at();
                reached.into_iter().for_each(|at| lane.device.wait_until(lane.queue, at));
                Ok(Enqueued::Done)
            }
            ControlBlock::Loop { .. }
            | ControlBlock::Repeat { .. }
            | ControlBlock::Branch { .. }
            | ControlBlock::Record(_) => Ok(Enqueued::Done),
        }
    }
}

impl ArgumentBlock {
    /// Fails if the run has to stop; called before each iteration of a loop.
    pub(crate) fn check_loop(&self) -> Result<()> {
        let control = self.control();
        if control.check() { Err(control.error("a loop")) } else { Ok(()) }
    }
}

/// The first byte of a slot; 0 if the slot is empty.
pub(crate) fn first_byte(slot: &HostBytes) -> u8 {
    slot.lock().unwrap_or_else(PoisonError::into_inner).first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(
        run: usize,
        repeats: &[(usize, usize, usize)],
    ) -> (Vec<(usize, usize)>, (usize, usize)) {
        let repeat = |&(count, source, target): &_| Repeat { count, source, target };
        let repeats = repeats.iter().map(repeat).collect();
        let copy = Runs { run, repeats };
        let mut found = Vec::new();
        copy.for_each(|source, target| {
            found.push((source, target));
            Ok(())
        })
        .unwrap();
        assert_eq!(copy.bytes(), found.len() * run);
        (found, copy.spans())
    }

    #[test]
    fn a_strided_copy_visits_its_runs_in_order() {
        assert_eq!(runs(8, &[]), (vec![(0, 0)], (8, 8)));
        let rows = vec![(0, 0), (10, 4), (20, 8)];
        assert_eq!(runs(4, &[(3, 10, 4)]), (rows, (24, 12)));
        let grid = vec![(0, 0), (10, 4), (100, 8), (110, 12)];
        assert_eq!(runs(4, &[(2, 100, 8), (2, 10, 4)]), (grid, (114, 16)));
        assert_eq!(runs(4, &[(2, 100, 8), (0, 10, 4)]), (vec![], (0, 0)));
        assert_eq!(runs(0, &[]), (vec![], (0, 0)));
        // A source with stride 0 is read repeatedly.
        assert_eq!(runs(2, &[(2, 0, 2)]), (vec![(0, 0), (0, 2)], (2, 4)));
    }
}
