//! The progress of a submission: from one control block to the next, until the submission ends, has
//! to wait for the device, or lets more urgent work go first. No thread waits for a device with
//! queues of its own: the submission is continued when the device has done its earlier work.

use crate::primitive::{self, ControlBlock, Lane};
use crate::{Completion, Error, Result};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// How far a submission has come.
#[derive(Default)]
pub(crate) struct Progress {
    /// The list that is running, within the lists around it; empty before the start.
    frames: SmallVec<[Frame; 1]>,
    /// Work that the device has not done yet, in order.
    pub outstanding: SmallVec<[Arc<Completion>; 1]>,
    /// The first failure of its work.
    pub failure: Option<Error>,
    /// Finished when the submission has ended, for the work behind it; `None` unless the submission
    /// is outstanding.
    pub ended: Option<Arc<Completion>>,
    /// Whether the failure is that of an earlier submission, so that its queue has reported it.
    pub skipped: bool,
}

/// A list of control blocks that is running.
#[derive(Clone, Copy)]
struct Frame {
    list: List,
    /// The index of the next block.
    at: usize,
}

/// A list of control blocks, relative to the block around it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    /// The blocks of the submission.
    Whole,
    /// The condition of a loop.
    Condition,
    /// The body of a loop, in that iteration.
    Body(usize),
    /// That branch.
    Branch(usize),
}

impl List {
    fn of(self, block: &ControlBlock) -> &[ControlBlock] {
        match (self, block) {
            (List::Condition, ControlBlock::Loop { condition, .. }) => condition,
            (
                List::Body(_),
                ControlBlock::Loop { body, .. } | ControlBlock::Repeat { body, .. },
            ) => body,
            (List::Branch(branch), ControlBlock::Branch { branches, .. }) => &branches[branch],
            _ => &[],
        }
    }
}

/// Why a submission stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All its work is done or outstanding.
    End,
    /// The next block is the host's, which needs the results of the outstanding work, or a thread
    /// that may run functions of the host.
    Host,
    /// A queue that goes first has work.
    Yield,
}

/// The thread that runs a submission, and what it may do there.
pub(crate) struct Runner<'a> {
    /// The queue of the submission.
    pub lane: Lane<'a>,
    /// The last submission of the queue that is outstanding on the device.
    pub before: Option<&'a Arc<Completion>>,
    /// Whether functions of the host may run on this thread.
    pub host: bool,
    /// The priority number of the submission's queue.
    pub priority: i32,
    /// The lowest priority number of a queue with waiting work.
    pub lowest_waiting: &'a AtomicI32,
    /// Whether a queue with a lower priority number has to wait for this submission.
    pub is_awaited: &'a dyn Fn() -> bool,
}

impl Runner<'_> {
    /// Runs the blocks of a submission from where it stopped.
    ///
    /// Errors: the first failure. Outstanding work may still fail.
    pub fn advance(&self, blocks: &[ControlBlock], progress: &mut Progress) -> Result<Pause> {
        if progress.frames.is_empty() {
            progress.frames.push(Frame { list: List::Whole, at: 0 });
        }
        // A submission that has its turn does at least one primitive, so that it ends some day.
        let mut moved = false;
        loop {
            let Some((block, at)) = progress.next(blocks) else {
                if progress.frames.len() == 1 {
                    return Ok(Pause::End);
                }
                match self.close(blocks, progress)? {
                    true => continue,
                    false => return Ok(Pause::Host),
                }
            };
            if moved && self.is_preempted() {
                return Ok(Pause::Yield);
            }
            if block.is_of_host() && !self.host_may_run(progress) {
                return Ok(Pause::Host);
            }
            moved |= block.is_primitive();
            match block {
                ControlBlock::Loop { .. } => progress.open(List::Condition),
                ControlBlock::Repeat { times: 0, .. } => progress.step(),
                ControlBlock::Repeat { iteration, arguments, .. } => {
                    iteration.store(0, Relaxed);
                    arguments.check_loop()?;
                    progress.open(List::Body(0));
                }
                ControlBlock::Branch { branches, .. } if branches.is_empty() => progress.step(),
                ControlBlock::Branch { slot, branches } => {
                    let branch = usize::from(primitive::first_byte(slot));
                    progress.open(List::Branch(branch.min(branches.len() - 1)));
                }
                ControlBlock::Record(record) => {
                    self.record(record, progress);
                    progress.step();
                }
                work => {
                    let outstanding = work.enqueue(&self.lane, at)?;
                    progress.outstanding.extend(outstanding);
                    progress.step();
                }
            }
        }
    }

    /// Continues after the last block of a list: with the next iteration, or behind the block around
    /// the list. Returns false if the host has to read a predicate and may not yet.
    fn close(&self, blocks: &[ControlBlock], progress: &mut Progress) -> Result<bool> {
        let list = progress.frames.last().map_or(List::Whole, |frame| frame.list);
        let next = match (list, progress.around(blocks)) {
            (List::Condition, Some(ControlBlock::Loop { slot, arguments, .. })) => {
                if !self.host_may_run(progress) {
                    return Ok(false);
                }
                match primitive::first_byte(slot) {
                    0 => None,
                    _ => {
                        arguments.check_loop()?;
                        Some(List::Body(0))
                    }
                }
            }
            (List::Body(_), Some(ControlBlock::Loop { .. })) => Some(List::Condition),
            (List::Body(t), Some(ControlBlock::Repeat { times, iteration, arguments, .. }))
                if t + 1 < *times =>
            {
                iteration.store(t + 1, Relaxed);
                arguments.check_loop()?;
                Some(List::Body(t + 1))
            }
            _ => None,
        };
        progress.frames.pop();
        match next {
            Some(list) => progress.open(list),
            None => progress.step(),
        }
        Ok(true)
    }

    /// Whether a function of the host may run: its thread allows it, and the work before it is done.
    fn host_may_run(&self, progress: &mut Progress) -> bool {
        progress.collect();
        self.host
            && progress.outstanding.is_empty()
            && progress.failure.is_none()
            && self.before.is_none_or(|before| before.poll().is_some())
    }

    fn is_preempted(&self) -> bool {
        self.lowest_waiting.load(Relaxed) < self.priority && (self.is_awaited)()
    }

    /// Marks an event's record as reached when the queue's work so far is done.
    fn record(&self, record: &Arc<crate::EventRecord>, progress: &mut Progress) {
        progress.collect();
        let (device, queue) = (self.lane.device.clone(), self.lane.queue);
        let last = progress.outstanding.last().or(self.before);
        match last {
            None => record.reach(device.clock(Some(queue))),
            Some(last) => {
                let record = record.clone();
                last.then(move |_| record.reach(device.clock(Some(queue))));
            }
        }
    }
}

impl Progress {
    /// The next block of the list that is running, and its index.
    fn next<'a>(&self, blocks: &'a [ControlBlock]) -> Option<(&'a ControlBlock, usize)> {
        let at = self.frames.last()?.at;
        let list = match self.around(blocks) {
            Some(block) => self.frames.last()?.list.of(block),
            None => blocks,
        };
        list.get(at).map(|block| (block, at))
    }

    /// The block around the list that is running; `None` for the blocks of the submission.
    fn around<'a>(&self, blocks: &'a [ControlBlock]) -> Option<&'a ControlBlock> {
        let outer = &self.frames[..self.frames.len().saturating_sub(1)];
        let mut found: Option<&ControlBlock> = None;
        for frame in outer {
            found = found.map_or(blocks, |block| frame.list.of(block)).get(frame.at);
        }
        found
    }

    /// Continues with the next block.
    fn step(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.at += 1;
        }
    }

    /// Continues with the first block of a list of the next block.
    fn open(&mut self, list: List) {
        self.frames.push(Frame { list, at: 0 });
    }

    /// Removes the work at the front that is done, and keeps the first failure.
    pub fn collect(&mut self) {
        let done = self.outstanding.iter().map_while(|completion| completion.poll());
        let outcomes: SmallVec<[Result<()>; 1]> = done.collect();
        self.outstanding.drain(..outcomes.len());
        for outcome in outcomes {
            self.note(&outcome);
        }
    }

    /// Removes the first work that is outstanding.
    pub fn take_first(&mut self) -> Option<Arc<Completion>> {
        (!self.outstanding.is_empty()).then(|| self.outstanding.remove(0))
    }

    /// Whether the submission has not started.
    pub fn is_new(&self) -> bool {
        self.frames.is_empty()
    }

    /// Fails the submission because an earlier one of its queue failed.
    pub fn skip(&mut self, error: Error) {
        if self.failure.is_none() {
            (self.failure, self.skipped) = (Some(error), true);
        }
    }

    /// Keeps the first failure.
    pub fn note(&mut self, outcome: &Result<()>) {
        if let Err(error) = outcome {
            self.failure.get_or_insert_with(|| error.clone());
        }
    }
}
