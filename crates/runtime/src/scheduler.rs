//! The scheduler: takes control blocks from all queues of a device and drains them, round-robin
//! between queues and first-in first-out within each.
//!
//! A caller that waits drains its own queue on its own thread when nothing is queued before it, so
//! a small program pays no hand-off; everything else runs on one worker thread, started when first
//! needed.

use crate::queue::Submission;
use crate::{ArgumentBlock, ControlBlock, Device, Error, LoadedProgram, Result, control};
use girih_sync::{Condvar, Mutex, MutexGuard, fork};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

/// Launches between two looks at the clock.
const CLOCK_EVERY: usize = 64;

/// Drains the queues of one device.
pub struct Scheduler {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    /// Signalled when work arrives, when a submission is done, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queues: Vec<Option<Queue>>,
    /// Where the next round begins.
    turn: usize,
    /// Submissions not yet begun, of all queues.
    pending: usize,
    worker: bool,
    /// Threads in `synchronize`.
    waiting: usize,
    closed: bool,
    /// Forks of the process that the state knows of.
    forks: u64,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Submission>,
    /// A submission of this queue is running.
    busy: bool,
    /// The first failure since the last synchronise.
    error: Option<Error>,
    /// The queue's owner is gone; the slot is free once it has drained.
    abandoned: bool,
}

impl Scheduler {
    /// A scheduler for a device, with no queues.
    pub fn new(device: Arc<dyn Device>) -> Arc<Scheduler> {
        let state = Mutex::new(State { forks: fork::count(), ..State::default() });
        let shared = Shared { device, state, changed: Condvar::new() };
        Arc::new(Scheduler { shared: Arc::new(shared) })
    }

    /// The device it drains to.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    pub(crate) fn add_queue(&self) -> usize {
        let mut state = self.shared.lock();
        let index = state.queues.iter().position(Option::is_none).unwrap_or(state.queues.len());
        if index == state.queues.len() {
            state.queues.push(None);
        }
        state.queues[index] = Some(Queue::default());
        index
    }

    /// Work already queued still runs; the number is reused after that.
    pub(crate) fn remove_queue(&self, index: usize) {
        let mut state = self.shared.lock();
        state.queue(index).abandoned = true;
        state.reap(index);
    }

    /// Enqueues for the worker thread.
    pub(crate) fn submit(&self, index: usize, submission: Submission) {
        let mut state = self.shared.lock();
        state.queue(index).pending.push_back(submission);
        state.pending += 1;
        if !state.worker {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("girih-scheduler".into());
            state.worker = thread.spawn(move || shared.drain(true)).is_ok();
            if !state.worker {
                // No thread to be had: run what is queued on this one.
                drop(state);
                self.shared.drain(false);
                return;
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Runs on this thread if nothing of the queue is before it, else enqueues and blocks.
    pub(crate) fn submit_and_wait(&self, index: usize, work: Submission) -> Result<()> {
        let mut state = self.shared.lock();
        let queue = state.queue(index);
        if queue.busy || !queue.pending.is_empty() {
            drop(state);
            let (completion, arguments) = (work.completion.clone(), work.arguments().cloned());
            self.submit(index, work);
            let outcome = completion.wait_or_interrupt();
            if let (Err(error @ Error::Cancelled { .. }), Some(arguments)) = (&outcome, arguments) {
                // Who waited goes on; the run ends when it is its turn, or at its next check.
                arguments.control.cancel();
                completion.finish(Err(error.clone()));
            }
            if let Err(error) = &outcome {
                // The caller has the failure in hand; synchronise need not tell it again.
                self.shared.lock().queue(index).error.take_if(|e| e == error);
            }
            return outcome;
        }
        queue.busy = true;
        drop(state);
        let outcome = control::asking(|| self.shared.run(&work));
        self.shared.finish(index, work, outcome.clone(), false);
        outcome
    }

    /// Runs `work` on this thread as if it were a submission of the queue, if nothing of the queue is
    /// before it; None if something is.
    pub(crate) fn run_idle(
        &self,
        index: usize,
        work: impl FnOnce(&dyn Device) -> Result<()>,
    ) -> Option<Result<()>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        let queue = state.queue(index);
        if queue.busy || !queue.pending.is_empty() {
            return None;
        }
        queue.busy = true;
        drop(state);
        let outcome = control::asking(|| shared.guarded(|| work(&*shared.device)));
        if shared.release(index, None) {
            shared.changed.notify_all();
        }
        Some(outcome)
    }

    /// Blocks until everything of the queue is done; gives its first failure since the last call.
    pub(crate) fn synchronize(&self, index: usize) -> Result<()> {
        let mut state = self.shared.lock();
        // What other threads enqueue from here on is not waited for.
        let last = state.queue(index).pending.back().map(|s| s.completion.clone());
        if let Some(last) = last {
            drop(state);
            // Its failure, if any, is the queue's error too.
            let _ = last.wait();
            state = self.shared.lock();
        } else {
            while state.queue(index).busy {
                let changed = &self.shared.changed;
                state.waiting += 1;
                state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
            }
        }
        state.queue(index).error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state whole, also when it unwinds.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let forks = fork::count();
        if state.forks != forks {
            state.forks = forks;
            let lost = state.forget_the_parents_work();
            drop(state);
            // Outside the lock: what it holds may be the last of its kind.
            drop(lost);
            return self.lock();
        }
        state
    }

    /// Runs submissions as they become ready: until closed if `wait`, else until none is ready.
    fn drain(&self, wait: bool) {
        let mut state = self.lock();
        loop {
            if let Some((index, work)) = state.next() {
                drop(state);
                let outcome = self.run(&work);
                self.finish(index, work, outcome, true);
                state = self.lock();
            } else if !wait || (state.closed && state.pending == 0) {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// `keep_error`: nobody else is told of a failure, so the queue's next synchronise must be.
    fn finish(&self, index: usize, work: Submission, outcome: Result<()>, keep_error: bool) {
        // Who waits for the work finds the memory it held free.
        let Submission { blocks, after, completion } = work;
        drop((blocks, after));
        let notify = self.release(index, outcome.as_ref().err().filter(|_| keep_error));
        completion.finish(outcome);
        if notify || keep_error {
            self.changed.notify_all();
        }
    }

    /// The queue is not busy any more; `error` is kept for its next synchronise. True if somebody may
    /// be waiting for it.
    fn release(&self, index: usize, error: Option<&Error>) -> bool {
        let mut state = self.lock();
        let queue = state.queue(index);
        queue.busy = false;
        if let Some(error) = error {
            queue.error.get_or_insert_with(|| error.clone());
        }
        state.reap(index);
        // With no worker nothing is ever pending.
        state.worker || state.pending > 0 || state.waiting > 0
    }

    fn run(&self, work: &Submission) -> Result<()> {
        self.guarded(|| self.run_blocks(work))
    }

    /// A device that panics fails its launch, no more: a queue must not stay busy for ever.
    fn guarded(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            Err(Error::Launch {
                operation: "a submission".into(),
                device: self.device.properties().name.clone(),
                reason: crate::error::panic_message(&*panic),
            })
        })
    }

    fn run_blocks(&self, work: &Submission) -> Result<()> {
        for dependency in &work.after {
            dependency.wait().map_err(|e| Error::Dependency(Box::new(e)))?;
        }
        let device = &self.device;
        for (at, block) in work.blocks.iter().enumerate() {
            match block {
                ControlBlock::CopyToDevice { source, target, .. } => {
                    device.copy_to_device(source, *target)?;
                }
                ControlBlock::CopyFromDevice { source, target, .. } => {
                    // Not while holding the lock: the device may have its threads copy.
                    let locked = || target.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut bytes = std::mem::take(&mut *locked());
                    let copied = device.copy_from_device(*source, &mut bytes);
                    *locked() = bytes;
                    copied?;
                }
                ControlBlock::Launch { program, arguments } => {
                    launch(&**device, program, arguments, at)?;
                }
                ControlBlock::Record(record) => record.finish(Ok(())),
                ControlBlock::Wait(record) => {
                    // Reaching it is all that is asked; what failed before it is its queue's matter.
                    let _ = record.wait();
                }
            }
        }
        Ok(())
    }
}

/// Launches step `at` of a run, unless the run is to end.
pub(crate) fn launch(
    device: &dyn Device,
    program: &LoadedProgram,
    arguments: &ArgumentBlock,
    at: usize,
) -> Result<()> {
    let control = &arguments.control;
    // Long launches look at the clock themselves; many short ones need it too.
    if control.stopped() || at % CLOCK_EVERY == CLOCK_EVERY - 1 && control.check() {
        return Err(control.error(&format!("step {at}")));
    }
    control.timed(|| device.launch(program, arguments))
}

impl State {
    fn queue(&mut self, index: usize) -> &mut Queue {
        self.queues[index].as_mut().expect("a queue's slot lives as long as its owner and its work")
    }

    /// The next submission that can run without waiting, round-robin from the last turn on.
    fn next(&mut self) -> Option<(usize, Submission)> {
        let count = self.queues.len();
        for index in (0..count).map(|i| (self.turn + i) % count) {
            let Some(queue) = self.queues[index].as_mut().filter(|q| !q.busy) else { continue };
            if queue.pending.front().is_some_and(Submission::is_ready) {
                queue.busy = true;
                let work = queue.pending.pop_front()?;
                self.turn = index + 1;
                self.pending -= 1;
                return Some((index, work));
            }
        }
        None
    }

    /// After a fork: the worker is gone, and with it what it ran.
    fn forget_the_parents_work(&mut self) -> Vec<Submission> {
        (self.worker, self.pending, self.waiting) = (false, 0, 0);
        let mut lost = Vec::new();
        for slot in &mut self.queues {
            if let Some(queue) = slot {
                queue.busy = false;
                lost.extend(queue.pending.drain(..));
            }
            slot.take_if(|queue| queue.abandoned);
        }
        lost
    }

    fn reap(&mut self, index: usize) {
        let queue = self.queue(index);
        if queue.abandoned && !queue.busy && queue.pending.is_empty() {
            self.queues[index] = None;
        }
    }
}

impl Submission {
    /// True if running it would not wait for another queue.
    fn is_ready(&self) -> bool {
        self.after.iter().all(|c| c.poll().is_some())
            && self.blocks.iter().all(|b| match b {
                ControlBlock::Wait(record) => record.poll().is_some(),
                _ => true,
            })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::MockDevice;
    use crate::{ArgumentBlock, Completion, DeviceQueue, Error, Event, Scheduler};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    #[test]
    fn enqueues_return_at_once_and_run_in_order() {
        let device = MockDevice::new(Duration::from_millis(20));
        let queue = DeviceQueue::new(&Scheduler::new(device.clone()));
        let start = Instant::now();
        for i in 0..5u32 {
            queue.launch(Arc::new(i), Arc::new(ArgumentBlock::default()));
        }
        assert!(start.elapsed() < Duration::from_millis(80), "launches block");
        queue.synchronize().unwrap();
        assert_eq!(*device.log.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_failure_surfaces_at_its_own_queues_next_synchronise_only() {
        let device = MockDevice::new(Duration::ZERO);
        let scheduler = Scheduler::new(device);
        let (bad, good) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
        bad.launch(Arc::new(MockDevice::FAILS), Arc::new(ArgumentBlock::default()));
        good.launch(Arc::new(1u32), Arc::new(ArgumentBlock::default()));
        assert_eq!(good.synchronize(), Ok(()));
        assert!(matches!(bad.synchronize(), Err(Error::Launch { .. })));
        assert_eq!(bad.synchronize(), Ok(()), "an error is told once");
    }

    #[test]
    fn an_event_orders_two_queues_whichever_is_drained_first() {
        let device = MockDevice::new(Duration::from_millis(5));
        let scheduler = Scheduler::new(device.clone());
        let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
        let event = Event::new();
        let arguments = || Arc::new(ArgumentBlock::default());
        first.launch(Arc::new(1u32), arguments());
        first.launch(Arc::new(2u32), arguments());
        first.record(&event);
        second.wait(&event);
        second.launch(Arc::new(3u32), arguments());
        second.synchronize().unwrap();
        assert_eq!(*device.log.lock().unwrap(), [1, 2, 3]);
        second.wait(&Event::new());
        assert_eq!(second.synchronize(), Ok(()), "an event never recorded holds nobody");
    }

    #[test]
    fn each_record_of_an_event_is_reached_on_its_own() {
        let device = MockDevice::new(Duration::from_millis(20));
        let scheduler = Scheduler::new(device.clone());
        let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
        let event = Event::new();
        let arguments = || Arc::new(ArgumentBlock::default());
        first.record(&event);
        second.wait(&event);
        second.launch(Arc::new(1u32), arguments());
        // Recorded again behind more work: who waited for the first record is not held by it, and
        // the first record does not pass for the second.
        first.launch(Arc::new(2u32), arguments());
        first.record(&event);
        event.synchronize();
        assert!(device.log.lock().unwrap().contains(&2));
        second.synchronize().unwrap();
        first.synchronize().unwrap();
    }

    #[test]
    fn a_device_that_panics_fails_the_launch_and_leaves_the_queue_usable() {
        let device = MockDevice::new(Duration::ZERO);
        let queue = DeviceQueue::new(&Scheduler::new(device.clone()));
        queue.launch(Arc::new(MockDevice::PANICS), Arc::new(ArgumentBlock::default()));
        let error = queue.synchronize().unwrap_err();
        assert!(error.to_string().contains("asked to panic"), "{error}");
        queue.launch(Arc::new(4u32), Arc::new(ArgumentBlock::default()));
        queue.synchronize().unwrap();
        assert_eq!(*device.log.lock().unwrap(), [4]);
    }

    #[test]
    fn what_follows_a_completion_is_called_once_before_or_after_the_fact() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let completion = Completion::pending();
        let (early, late) = (sender.clone(), sender);
        completion.then(move |_| early.send("early").unwrap());
        completion.finish(Ok(()));
        completion.finish(Ok(()));
        completion.then(move |_| late.send("late").unwrap());
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["early", "late"]);
    }

    #[test]
    fn synchronising_waits_for_what_another_thread_runs_itself() {
        let device = MockDevice::new(Duration::from_millis(30));
        let scheduler = Scheduler::new(device.clone());
        let queue = DeviceQueue::new(&scheduler);
        let (started, waits) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let outcome = scheduler.run_idle(queue.index(), |device| {
                    started.send(()).unwrap();
                    let program: crate::LoadedProgram = Arc::new(9u32);
                    super::launch(device, &program, &ArgumentBlock::default(), 0)
                });
                assert_eq!(outcome, Some(Ok(())));
            });
            waits.recv().unwrap();
            assert_eq!(scheduler.run_idle(queue.index(), |_| Ok(())), None, "it is busy");
            queue.synchronize().unwrap();
        });
        assert_eq!(*device.log.lock().unwrap(), [9]);
    }

    #[test]
    fn a_dropped_queue_drains_and_its_number_is_reused() {
        let device = MockDevice::new(Duration::from_millis(2));
        let scheduler = Scheduler::new(device.clone());
        let queue = DeviceQueue::new(&scheduler);
        let index = queue.index();
        let completion = queue.launch(Arc::new(7u32), Arc::new(ArgumentBlock::default()));
        drop(queue);
        completion.wait().unwrap();
        assert_eq!(*device.log.lock().unwrap(), [7]);
        assert_eq!(DeviceQueue::new(&scheduler).index(), index);
    }
}
