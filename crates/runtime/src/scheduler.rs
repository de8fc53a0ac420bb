//! The scheduler: drains the control blocks of all queues of a device in the order of a [`Policy`],
//! first in, first out within each queue.
//!
//! A caller that waits runs its work on its own thread if its queue is empty, so a small program
//! needs no thread switch. Worker threads, started on demand, run all other work. The number of
//! concurrent submissions does not exceed the device's concurrency.
//!
//! A device with queues of its own takes work and does it later. Whoever submits the work enqueues
//! it there, and workers run the functions of the host between the primitives of a submission
//! (`outstanding`).

mod outstanding;
mod run;
mod state;

use crate::gate::Gate;
use crate::primitive::{ControlBlock, Lane};
use crate::progress::Pause;
use crate::queue::Submission;
use crate::{
    ArgumentBlock, CollectorRegistration, Completion, Device, Error, Policy, Result, control,
};
use girih_sync::{Condvar, Mutex, MutexGuard, fork};
use state::{Queue, State};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicI32;
use std::sync::{Arc, PoisonError, Weak};

/// The maximum number of worker threads of a scheduler. Each runs one submission at a time, and the
/// device may use more threads for a submission.
const MAX_WORKERS: usize = 4;

thread_local! {
    /// Whether this thread runs a submission.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a submission: such a thread must not wait for another one.
pub(crate) fn runs_submission() -> bool {
    RUNS.get()
}

/// Drains the queues of one device.
pub struct Scheduler {
    shared: Arc<Shared>,
}

/// While a hold exists, no worker starts a submission; running submissions finish.
pub struct Hold {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn Device>,
    /// The maximum number of concurrent submissions.
    concurrency: usize,
    /// Whether the device has queues of its own.
    own_queues: bool,
    state: Mutex<State>,
    /// [`State::lowest_waiting`], so that a running submission looks at it without the lock.
    lowest_waiting: AtomicI32,
    /// Signalled when work arrives, when a submission is done, and when the scheduler is dropped.
    changed: Condvar,
    /// Waits for queued work on memory pressure: finished work returns its blocks to the pool.
    _collector: CollectorRegistration,
}

/// The way in which a caller started its own work.
enum Entry {
    /// Through the queue's gate, without the lock; not counted in `running`.
    Gate,
    /// Under the lock; counted in `running`.
    Lock,
}

impl Scheduler {
    /// A scheduler for a device, without queues, with the default policy.
    pub fn new(device: Arc<dyn Device>) -> Arc<Scheduler> {
        Scheduler::with_policy(device, Policy::default())
    }

    /// A scheduler for a device, without queues, with that policy.
    pub fn with_policy(device: Arc<dyn Device>, policy: Policy) -> Arc<Scheduler> {
        let concurrency = device.properties().concurrency.max(1);
        let own_queues = device.properties().own_queues;
        let (state, changed) = (Mutex::new(State::new(policy)), Condvar::new());
        let lowest_waiting = AtomicI32::new(i32::MAX);
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let shared = shared.clone();
            let collect = move |_| shared.upgrade().is_some_and(|shared| shared.finish_all());
            let _collector = device.allocator().add_collector(Box::new(collect));
            Shared { device, concurrency, own_queues, state, lowest_waiting, changed, _collector }
        });
        Arc::new(Scheduler { shared })
    }

    /// The device whose queues are drained.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// Passes an init packet to the device, unless the device has received an equal one.
    pub(crate) fn initialize_once(&self, packet: &[u8]) -> Result<()> {
        let device = self.device();
        device.allocator().once(packet, || device.initialize(packet))
    }

    /// Keeps workers from starting submissions until the hold is dropped, so that everything
    /// enqueued in the meantime is served in the policy's order. A caller that waits for its own
    /// work on an empty queue still runs it.
    pub fn hold(&self) -> Hold {
        self.shared.lock().holds += 1;
        Hold { shared: self.shared.clone() }
    }

    /// Adds a queue; returns its number and gate. The owner of a `helper` reports its failures.
    pub(crate) fn add_queue(&self, priority: i32, helper: bool) -> (usize, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        let queue = Queue { priority, helper, gate: gate.clone(), ..Queue::default() };
        (self.shared.lock().add(queue), gate)
    }

    /// Drops a queue. Queued work still runs; the number is reused after that.
    pub(crate) fn remove_queue(&self, index: usize) {
        let mut state = self.shared.lock();
        state.queue(index).abandoned = true;
        state.reap(index);
    }

    /// Whether all work of the queue is done.
    pub(crate) fn is_idle(&self, index: usize) -> bool {
        self.shared.lock().queue(index).is_idle()
    }

    /// Submits work without waiting: this thread enqueues it if the device has queues of its own and
    /// can take it now, else a worker thread runs it.
    pub(crate) fn submit(&self, index: usize, submission: Submission) {
        let shared = &self.shared;
        let refused = match shared.own_queues {
            true => shared.start_here(index, submission),
            false => Some(submission),
        };
        if let Some(submission) = refused {
            shared.submit(index, submission);
        }
    }

    /// Runs a submission on this thread if the queue is empty and the device may start another
    /// submission; else submits it and blocks.
    pub(crate) fn submit_and_wait(
        &self,
        index: usize,
        gate: &Gate,
        mut work: Submission,
    ) -> Result<()> {
        let shared = &self.shared;
        work.awaited = true;
        let here = !shared.own_queues && work.is_ready();
        let entry = if here { shared.enter(index, gate) } else { None };
        let (completion, arguments) = (work.completion.clone(), work.arguments().cloned());
        match entry {
            None => {
                control::check_nested("waiting for a queue")?;
                self.submit(index, work);
            }
            Some(entry) => {
                let run = || shared.run_entered(index, gate, &entry, &mut work);
                match control::with_interrupts(run) {
                    Ok(Pause::Yield) => shared.put_back(index, work),
                    ended => {
                        let outcome = ended.map(drop);
                        let completion = shared.end(index, work, &outcome);
                        let notify = shared.leave(index, gate, entry);
                        completion.finish(outcome.clone());
                        if notify {
                            shared.changed.notify_all();
                        }
                        return shared.report(outcome);
                    }
                }
            }
        }
        self.wait_for_outcome(&completion, arguments)
    }

    /// Blocks until a submission with these arguments is done; cancels it if the user interrupts.
    fn wait_for_outcome(
        &self,
        completion: &Completion,
        arguments: Option<Arc<ArgumentBlock>>,
    ) -> Result<()> {
        let outcome = completion.wait_or_interrupt();
        if let (Err(error @ Error::Cancelled { .. }), Some(arguments)) = (&outcome, arguments) {
            // The caller stops waiting; the run ends when it reaches the front of the queue, or at its
            // next check.
            arguments.control().cancel();
            completion.finish(Err(error.clone()));
        }
        self.shared.report(outcome)
    }

    /// Runs `work` on this thread as if it were a submission of the queue, if the queue is empty
    /// and the device may start another submission; else returns `None`.
    pub(crate) fn run_idle(
        &self,
        index: usize,
        gate: &Gate,
        work: impl FnOnce(&Lane<'_>) -> Result<()>,
    ) -> Option<Result<()>> {
        let shared = &*self.shared;
        if shared.own_queues {
            return None;
        }
        let entry = shared.enter(index, gate)?;
        let lane = Lane { device: &shared.device, queue: index, gate };
        let outcome = control::with_interrupts(|| shared.guarded(|| work(&lane)));
        if shared.leave(index, gate, entry) {
            shared.changed.notify_all();
        }
        Some(shared.report(outcome))
    }

    /// Blocks until fewer than `most` submissions of the queue have not started, or are outstanding
    /// on the device. Does not block under a hold.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    pub(crate) fn wait_for_room(&self, index: usize, most: usize) -> Result<()> {
        let mut state = self.shared.lock();
        let held = state.holds > 0;
        let queue = state.queue(index);
        let (outstanding, pending) = (&queue.outstanding, &queue.pending);
        let waiting = outstanding.len() + pending.len();
        let Some(at) = waiting.checked_sub(most).filter(|_| !held && waiting > 0) else {
            return Ok(());
        };
        let mut waiting = outstanding.iter().chain(pending.iter().map(|work| &work.completion));
        let Some(ahead) = waiting.nth(at).cloned() else { return Ok(()) };
        drop(state);
        match ahead.wait_unreported_or_interrupt() {
            Err(error @ (Error::Cancelled { .. } | Error::Nested(_))) if ahead.poll().is_none() => {
                Err(error)
            }
            // The queue reports failures.
            _ => Ok(()),
        }
    }

    /// Blocks until all work of the queue is done; returns the queue's first failure since the last
    /// call.
    pub(crate) fn synchronize(&self, index: usize) -> Result<()> {
        self.shared.wait_for(index)?;
        let mut state = self.shared.lock();
        let queue = state.queue(index);
        let error = queue.standing_error().cloned();
        queue.error = None;
        error.map_or(Ok(()), Err)
    }

    /// Blocks until everything enqueued so far on any queue is done.
    ///
    /// Errors: the first failure of one of the queues with an unreported failure; the others stay
    /// to be reported. If there is none, the first failure of dropped queues.
    pub fn synchronize_all(&self) -> Result<()> {
        let indices = |state: &State| {
            let there = state.queues.iter().enumerate().filter(|(_, queue)| queue.is_some());
            there.map(|(index, _)| index).collect::<Vec<_>>()
        };
        let queues = indices(&self.shared.lock());
        queues.into_iter().try_for_each(|index| self.shared.wait_for(index))?;
        let mut state = self.shared.lock();
        for queue in state.queues.iter_mut().flatten() {
            if let Some(error) = queue.standing_error().cloned() {
                queue.error = None;
                return Err(error);
            }
        }
        state
            .orphan
            .take()
            .filter(|(_, submission)| !submission.is_reported())
            .map_or(Ok(()), |(error, _)| Err(error))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // A fork inside a hold has reset the count.
        state.holds = state.holds.saturating_sub(1);
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state consistent, even if it panics.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let forks = fork::count();
        if state.forks != forks {
            state.forks = forks;
            let lost = state.forget_the_parents_work();
            drop(state);
            // Drop the submissions without the lock: they may own the last reference to a value
            // whose destructor takes the lock.
            drop(lost);
            return self.lock();
        }
        state
    }

    /// Lets a caller run its own work if the queue is empty and the device may start another
    /// submission.
    fn enter(&self, index: usize, gate: &Gate) -> Option<Entry> {
        if self.concurrency == usize::MAX && gate.enter() {
            return Some(Entry::Gate);
        }
        let mut state = self.lock();
        if state.running >= self.concurrency {
            return None;
        }
        // Close the gate before the check, so that no caller enters between the check and the
        // start.
        gate.close();
        if !state.queue(index).is_idle() {
            return None;
        }
        state.begin(index);
        Some(Entry::Lock)
    }

    /// Ends a caller's own work. Returns whether threads may be waiting for it.
    fn leave(&self, index: usize, gate: &Gate, entry: Entry) -> bool {
        match entry {
            Entry::Gate if gate.leave() => {
                self.lock().queue(index).open_if_idle();
                true
            }
            Entry::Gate => false,
            Entry::Lock => self.release(index, None, None),
        }
    }

    /// Finishes a submission. `keep_error`: the queue's next synchronise has to report a failure.
    fn finish(&self, index: usize, mut work: Submission, outcome: Result<()>, keep_error: bool) {
        let ended = work.progress.ended.take();
        let completion = self.end(index, work, &outcome);
        let error = outcome.as_ref().err().filter(|_| keep_error);
        let error = error.map(|error| (error.clone(), completion.clone()));
        let notify = self.release(index, ended.as_ref(), error);
        completion.finish(outcome);
        if let Some(ended) = ended {
            ended.finish(Ok(()));
        }
        if notify || keep_error {
            self.changed.notify_all();
        }
    }

    /// Marks the event records of a failed submission as reached, frees its blocks, and records the
    /// time.
    fn end(&self, index: usize, work: Submission, outcome: &Result<()>) -> Arc<Completion> {
        // Free the blocks before the completion, so that a waiting thread finds their memory free.
        let Submission { blocks, after, completion, .. } = work;
        if outcome.is_err() {
            // An event is a point of the queue and carries no failure.
            for block in &blocks {
                if let ControlBlock::Record(record) = block {
                    record.reach(self.device.clock(Some(index)));
                }
            }
        }
        drop((blocks, after));
        completion.done_at(self.device.id(), self.device.clock(Some(index)));
        completion
    }

    /// Marks a submission as ended: the running one, or one that is outstanding. The queue's next
    /// synchronise reports `error`. Returns whether threads may be waiting for the queue.
    fn release(
        &self,
        index: usize,
        outstanding: Option<&Arc<Completion>>,
        error: Option<(Error, Arc<Completion>)>,
    ) -> bool {
        let mut state = self.lock();
        let queue = state.queue(index);
        match outstanding {
            Some(ended) => queue.outstanding.retain(|other| !Arc::ptr_eq(other, ended)),
            None => queue.busy = false,
        }
        if queue.standing_error().is_none() {
            queue.error = error.or(queue.error.take());
        }
        queue.open_if_idle();
        state.reap(index);
        state.running = state.running.saturating_sub(usize::from(outstanding.is_none()));
        // Without workers, no work is ever pending.
        state.workers > 0 || state.pending > 0 || state.waiting > 0
    }

    /// The caller receives `outcome`. Drops equal earlier failures of the queues, which need not be
    /// reported again: reading a failed tensor recomputes it and fails in the same way.
    fn report(&self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            let mut state = self.lock();
            state.orphan.take_if(|(earlier, _)| earlier == error);
            for queue in state.queues.iter_mut().flatten() {
                queue.error.take_if(|(earlier, _)| earlier == error);
            }
        }
        outcome
    }

    /// Makes workers check again whether work is ready.
    fn wake_workers(&self) {
        // Take the lock, so that a worker that has just checked is waiting when it is notified.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Blocks until all work that the queue has now is done.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    fn wait_for(&self, index: usize) -> Result<()> {
        let state = self.lock();
        let Some(queue) = &state.queues[index] else { return Ok(()) };
        // Do not wait for work that other threads enqueue from now on.
        if let Some(last) = queue.last().cloned() {
            drop(state);
            return match last.wait_unreported_or_interrupt() {
                Err(error @ (Error::Cancelled { .. } | Error::Nested(_)))
                    if last.poll().is_none() =>
                {
                    Err(error)
                }
                // The queue reports the failure.
                _ => Ok(()),
            };
        }
        if queue.is_idle() {
            return Ok(());
        }
        drop(state);
        control::check_nested("waiting for a stream")?;
        control::waiting(|| self.wait_while_busy(index))
    }

    fn wait_while_busy(&self, index: usize) -> Result<()> {
        let changed = &self.changed;
        let mut state = self.lock();
        loop {
            let Some(queue) = &state.queues[index] else { return Ok(()) };
            // A caller that leaves a closed gate wakes this thread.
            if !queue.gate.close() && !queue.has_begun() {
                queue.open_if_idle();
                return Ok(());
            }
            state.waiting += 1;
            let (guard, timeout) =
                changed.wait_timeout(state, control::POLL).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.waiting = state.waiting.saturating_sub(1);
            if timeout.timed_out() && control::interruptible() {
                // Do not hold the lock: the run may need it.
                drop(state);
                if control::interrupted() {
                    return Err(Error::Cancelled { operation: "waiting for a stream".into() });
                }
                state = self.lock();
            }
        }
    }

    /// Blocks until all queues are empty. Returns false if there was nothing to wait for, or if
    /// waiting might deadlock: on a thread that runs a submission, and under a hold.
    fn finish_all(&self) -> bool {
        let state = self.lock();
        if RUNS.get() || state.holds > 0 || state.is_drained() {
            return false;
        }
        let mut indices = 0..state.queues.len();
        drop(state);
        indices.all(|index| self.wait_for(index).is_ok())
    }

    /// Runs work of the device. A panic only fails the launch, so that the queue does not stay busy
    /// for ever.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let before = RUNS.replace(true);
        let outcome = catch_unwind(AssertUnwindSafe(work));
        RUNS.set(before);
        outcome.unwrap_or_else(|panic| {
            Err(Error::Launch {
                operation: "a submission".into(),
                device: self.device.properties().name.clone(),
                reason: crate::error::panic_message(&*panic),
            })
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
