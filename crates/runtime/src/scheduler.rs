//! The scheduler: takes control blocks from all queues of a device and drains them by a [`Policy`],
//! first-in first-out within each queue.
//!
//! A caller that waits drains its own queue on its own thread when nothing is queued before it, so
//! a small program pays no hand-off; everything else runs on worker threads, started when first
//! needed. No more submissions run at once than the device allows.

use crate::gate::Gate;
use crate::policy::{Candidate, Turn};
use crate::queue::Submission;
use crate::{
    CollectorRegistration, Completion, ControlBlock, Device, Error, Policy, Result, control,
    primitive,
};
use girih_sync::{Condvar, Mutex, MutexGuard, fork};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};

/// Most worker threads of one scheduler: each runs one submission at a time, which may have threads of
/// its own.
const MOST_WORKERS: usize = 4;

thread_local! {
    /// This thread runs a submission.
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// True on a thread that runs a submission: it must not wait for another one.
pub(crate) fn runs_submission() -> bool {
    RUNS.get()
}

/// Drains the queues of one device.
pub struct Scheduler {
    shared: Arc<Shared>,
}

/// As long as it lives, no worker begins a submission; those that have begun end.
pub struct Hold {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn Device>,
    /// Most submissions that run at once.
    concurrency: usize,
    state: Mutex<State>,
    /// Init packets that the device has been given.
    initialized: Mutex<FxHashSet<Box<[u8]>>>,
    /// Signalled when work arrives, when a submission is done, and at the end.
    changed: Condvar,
    /// Blocks that queued work holds return to the pool when the work is done.
    _collector: CollectorRegistration,
}

struct State {
    queues: Vec<Option<Queue>>,
    /// The first failure of queues that are gone, with nobody told of it.
    orphan: Option<(Error, Arc<Completion>)>,
    turn: Turn,
    /// Submissions not yet begun, of all queues.
    pending: usize,
    /// Submissions that run now, of all threads.
    running: usize,
    workers: usize,
    /// Workers that wait for work.
    idle: usize,
    /// Threads in `synchronize`.
    waiting: usize,
    holds: usize,
    closed: bool,
    /// Forks of the process that the state knows of.
    forks: u64,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Submission>,
    /// Closed while there is work, and while somebody waits for the queue.
    gate: Arc<Gate>,
    priority: i32,
    /// How often the policy has passed it over since it was served.
    skips: u32,
    /// A submission of this queue is running, but for that of a caller inside the gate.
    busy: bool,
    /// The first failure since the last synchronise, and its submission.
    error: Option<(Error, Arc<Completion>)>,
    /// Its failures are reported by others, so that nothing is missed when it is gone.
    helper: bool,
    /// The queue's owner is gone; the slot is free once it has drained.
    abandoned: bool,
}

impl Queue {
    /// The failure that nobody has been given yet.
    fn standing_error(&mut self) -> Option<&Error> {
        self.error.take_if(|(_, submission)| submission.told());
        self.error.as_ref().map(|(error, _)| error)
    }

    fn is_running(&self) -> bool {
        self.busy || self.gate.is_entered()
    }

    fn is_idle(&self) -> bool {
        !self.is_running() && self.pending.is_empty()
    }

    /// Lets callers in without the lock, unless there is work.
    fn open_if_idle(&self) {
        if !self.busy && self.pending.is_empty() {
            self.gate.open();
        }
    }
}

/// How a caller began to run its own work.
enum Entry {
    /// Through the queue's gate, without the lock; not counted among those that run.
    Gate,
    /// Under the lock.
    Lock,
}

impl Scheduler {
    /// A scheduler for a device, with no queues, which serves them in turn.
    pub fn new(device: Arc<dyn Device>) -> Arc<Scheduler> {
        Scheduler::with_policy(device, Policy::default())
    }

    /// A scheduler for a device, with no queues, that serves them by `policy`.
    pub fn with_policy(device: Arc<dyn Device>, policy: Policy) -> Arc<Scheduler> {
        let state = State {
            queues: Vec::new(),
            orphan: None,
            turn: Turn::new(policy),
            pending: 0,
            running: 0,
            workers: 0,
            idle: 0,
            waiting: 0,
            holds: 0,
            closed: false,
            forks: fork::count(),
        };
        let concurrency = device.properties().concurrency.max(1);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let initialized = Mutex::default();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let shared = shared.clone();
            let collect = move |_| shared.upgrade().is_some_and(|shared| shared.finish_all());
            let _collector = device.allocator().add_collector(Box::new(collect));
            Shared { device, concurrency, state, initialized, changed, _collector }
        });
        Arc::new(Scheduler { shared })
    }

    /// The device it drains to.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// Gives the device an init packet, unless it has been given an equal one before.
    pub(crate) fn initialize_once(&self, packet: &[u8]) -> Result<()> {
        let initialized = &self.shared.initialized;
        let mut initialized = initialized.lock().unwrap_or_else(PoisonError::into_inner);
        if !initialized.contains(packet) {
            self.device().initialize(packet)?;
            initialized.insert(packet.into());
        }
        Ok(())
    }

    /// Has workers begin nothing until the hold is dropped, so that what is enqueued meanwhile is
    /// served in the policy's order. Callers that wait for a queue with nothing in it are not held.
    pub fn hold(&self) -> Hold {
        self.shared.lock().holds += 1;
        Hold { shared: self.shared.clone() }
    }

    /// A new queue's number and gate. The failures of a `helper` are told by the one it helps.
    pub(crate) fn add_queue(&self, priority: i32, helper: bool) -> (usize, Arc<Gate>) {
        let mut state = self.shared.lock();
        let index = state.queues.iter().position(Option::is_none).unwrap_or(state.queues.len());
        if index == state.queues.len() {
            state.queues.push(None);
        }
        let gate = Arc::<Gate>::default();
        state.queues[index] =
            Some(Queue { priority, helper, gate: gate.clone(), ..Queue::default() });
        (index, gate)
    }

    /// Work already queued still runs; the number is reused after that.
    pub(crate) fn remove_queue(&self, index: usize) {
        let mut state = self.shared.lock();
        state.queue(index).abandoned = true;
        state.reap(index);
    }

    /// Whether everything of the queue is done.
    pub(crate) fn is_idle(&self, index: usize) -> bool {
        self.shared.lock().queue(index).is_idle()
    }

    /// Enqueues for the worker threads.
    pub(crate) fn submit(&self, index: usize, submission: Submission) {
        let shared = &self.shared;
        let pending: SmallVec<[Arc<Completion>; 4]> =
            submission.dependencies().filter(|c| c.poll().is_none()).cloned().collect();
        let mut state = shared.lock();
        let queue = state.queue(index);
        queue.gate.close();
        queue.pending.push_back(submission);
        state.pending += 1;
        let most = MOST_WORKERS.min(shared.concurrency);
        if state.idle < state.pending && state.workers < most {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("girih-scheduler".into());
            if thread.spawn(move || shared.drain(true)).is_ok() {
                state.workers += 1;
            } else if state.workers == 0 {
                // No thread to be had: run what is queued on this one.
                drop(state);
                self.shared.drain(false);
                return;
            }
        }
        drop(state);
        shared.changed.notify_all();
        // A dependency of another scheduler ends without this one's knowledge.
        for completion in pending {
            let shared = self.shared.clone();
            let woken = shared.clone();
            if !completion.wake(move || woken.wake_workers()) {
                shared.wake_workers();
            }
        }
    }

    /// Runs on this thread if nothing of the queue is before it and it may begin, else enqueues and
    /// blocks.
    pub(crate) fn submit_and_wait(
        &self,
        index: usize,
        gate: &Gate,
        mut work: Submission,
    ) -> Result<()> {
        let entry = if work.is_ready() { self.shared.enter(index, gate) } else { None };
        let Some(entry) = entry else {
            let (completion, arguments) = (work.completion.clone(), work.arguments().cloned());
            work.awaited = true;
            self.submit(index, work);
            let outcome = completion.wait_or_interrupt();
            if let (Err(error @ Error::Cancelled { .. }), Some(arguments)) = (&outcome, arguments) {
                // Who waited goes on; the run ends when it is its turn, or at its next check.
                arguments.control().cancel();
                completion.finish(Err(error.clone()));
            }
            return self.shared.told(outcome);
        };
        let outcome = control::asking(|| self.shared.run(index, &work));
        let completion = self.shared.end(index, work, &outcome);
        let notify = self.shared.leave(index, gate, entry);
        completion.finish(outcome.clone());
        if notify {
            self.shared.changed.notify_all();
        }
        self.shared.told(outcome)
    }

    /// Runs `work` on this thread as if it were a submission of the queue, if nothing of the queue is
    /// before it and the device may begin one more; None otherwise.
    pub(crate) fn run_idle(
        &self,
        index: usize,
        gate: &Gate,
        work: impl FnOnce(&dyn Device) -> Result<()>,
    ) -> Option<Result<()>> {
        let shared = &*self.shared;
        let entry = shared.enter(index, gate)?;
        let outcome = control::asking(|| shared.guarded(|| work(&*shared.device)));
        if shared.leave(index, gate, entry) {
            shared.changed.notify_all();
        }
        Some(shared.told(outcome))
    }

    /// Blocks until fewer than `most` submissions of the queue have not begun; not while workers are held.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    pub(crate) fn wait_for_room(&self, index: usize, most: usize) -> Result<()> {
        let mut state = self.shared.lock();
        let held = state.holds > 0;
        let pending = &state.queue(index).pending;
        let Some(at) = pending.len().checked_sub(most).filter(|_| !held) else { return Ok(()) };
        let ahead = pending[at.min(pending.len() - 1)].completion.clone();
        drop(state);
        match ahead.wait_untold_or_interrupt() {
            Err(error @ Error::Cancelled { .. }) if ahead.poll().is_none() => Err(error),
            // Failures are the queue's to report.
            _ => Ok(()),
        }
    }

    /// Blocks until everything of the queue is done; gives its first failure since the last call.
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
    /// Errors: the first failure of one of the queues that have failed since they were last
    /// synchronised; those of others stay to be reported. Last, the first failure of queues that are gone.
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
            .filter(|(_, submission)| !submission.told())
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
        // A fork inside a hold has forgotten it.
        state.holds = state.holds.saturating_sub(1);
        drop(state);
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
            if let Some((index, work)) = state.next(self.concurrency) {
                let failed = state.queue(index).standing_error().filter(|_| !work.awaited).cloned();
                drop(state);
                match failed {
                    None => {
                        let outcome = self.run(index, &work);
                        self.finish(index, work, outcome, true);
                    }
                    // The queue's error is the first failure, not the operations skipped for it.
                    Some(error) => self.finish(index, work, Err(Error::skipped(&error)), false),
                }
                state = self.lock();
            } else if !wait || (state.closed && state.pending == 0) {
                state.workers -= usize::from(wait);
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle = state.idle.saturating_sub(1);
            }
        }
    }

    /// Lets a caller run its own work if nothing of the queue is before it and the device may begin one
    /// more.
    fn enter(&self, index: usize, gate: &Gate) -> Option<Entry> {
        if self.concurrency == usize::MAX && gate.enter() {
            return Some(Entry::Gate);
        }
        let mut state = self.lock();
        if state.running >= self.concurrency {
            return None;
        }
        // Before the look: nobody enters between it and the beginning.
        gate.close();
        if !state.queue(index).is_idle() {
            return None;
        }
        state.begin(index);
        Some(Entry::Lock)
    }

    /// A caller has run its own work. True if somebody may be waiting for that.
    fn leave(&self, index: usize, gate: &Gate, entry: Entry) -> bool {
        match entry {
            Entry::Gate if gate.leave() => {
                self.lock().queue(index).open_if_idle();
                true
            }
            Entry::Gate => false,
            Entry::Lock => self.release(index, None),
        }
    }

    /// `keep_error`: nobody else is told of a failure, so the queue's next synchronise must be.
    fn finish(&self, index: usize, work: Submission, outcome: Result<()>, keep_error: bool) {
        let completion = self.end(index, work, &outcome);
        let error = outcome.as_ref().err().filter(|_| keep_error);
        let notify = self.release(index, error.map(|error| (error, &completion)));
        completion.finish(outcome);
        if notify || keep_error {
            self.changed.notify_all();
        }
    }

    /// Reaches the records of a submission that failed, frees its blocks, and notes the time.
    fn end(&self, index: usize, work: Submission, outcome: &Result<()>) -> Arc<Completion> {
        // Who waits for the work finds the memory it held free.
        let Submission { blocks, after, completion, .. } = work;
        if outcome.is_err() {
            // An event is a point of the queue; whether the queue's work failed is told otherwise.
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

    /// The queue is not busy any more; `error` is kept for its next synchronise. True if somebody may
    /// be waiting for it.
    fn release(&self, index: usize, error: Option<(&Error, &Arc<Completion>)>) -> bool {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        let queue = state.queue(index);
        queue.busy = false;
        if let Some((error, submission)) = error
            && queue.standing_error().is_none()
        {
            queue.error = Some((error.clone(), submission.clone()));
        }
        queue.open_if_idle();
        state.reap(index);
        // With no worker nothing is ever pending.
        state.workers > 0 || state.pending > 0 || state.waiting > 0
    }

    /// The caller is given `outcome`. If an earlier run failed in the same way, as when a failed tensor
    /// is read and so computed again, its queue need not report that.
    fn told(&self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = &outcome {
            let mut state = self.lock();
            state.orphan.take_if(|(earlier, _)| earlier == error);
            for queue in state.queues.iter_mut().flatten() {
                queue.error.take_if(|(earlier, _)| earlier == error);
            }
        }
        outcome
    }

    /// Has workers look again whether something is ready.
    fn wake_workers(&self) {
        // Not before a worker that has just looked waits.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Blocks until everything that the queue has now is done.
    ///
    /// Errors: [`Error::Cancelled`] if the user of this thread interrupted the wait.
    fn wait_for(&self, index: usize) -> Result<()> {
        let state = self.lock();
        let Some(queue) = &state.queues[index] else { return Ok(()) };
        // What other threads enqueue from here on is not waited for.
        if let Some(last) = queue.pending.back().map(|s| s.completion.clone()) {
            drop(state);
            return match last.wait_untold_or_interrupt() {
                Err(error @ Error::Cancelled { .. }) if last.poll().is_none() => Err(error),
                // A failure is the queue's, too, which reports it.
                _ => Ok(()),
            };
        }
        if !queue.is_running() {
            return Ok(());
        }
        drop(state);
        control::waiting(|| self.wait_while_busy(index))
    }

    fn wait_while_busy(&self, index: usize) -> Result<()> {
        let changed = &self.changed;
        let mut state = self.lock();
        loop {
            let Some(queue) = &state.queues[index] else { return Ok(()) };
            // A caller that leaves a closed gate wakes this thread.
            if !queue.gate.close() && !queue.busy {
                queue.open_if_idle();
                return Ok(());
            }
            state.waiting += 1;
            let (guard, timeout) =
                changed.wait_timeout(state, control::POLL).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.waiting = state.waiting.saturating_sub(1);
            if timeout.timed_out() && control::interruptible() {
                // Not while holding the lock: the run that is waited for may need it.
                drop(state);
                if control::interrupted() {
                    return Err(Error::Cancelled { operation: "waiting for a stream".into() });
                }
                state = self.lock();
            }
        }
    }

    /// Blocks until all queues are empty. False if there was nothing to wait for, or if waiting might
    /// not end: on a thread that runs a submission itself, and under a hold.
    fn finish_all(&self) -> bool {
        let state = self.lock();
        let entered = || state.queues.iter().flatten().any(|queue| queue.gate.is_entered());
        let nothing = state.pending + state.running == 0 && !entered();
        if RUNS.get() || state.holds > 0 || nothing {
            return false;
        }
        let mut indices = 0..state.queues.len();
        drop(state);
        indices.all(|index| self.wait_for(index).is_ok())
    }

    fn run(&self, index: usize, work: &Submission) -> Result<()> {
        self.guarded(|| self.run_blocks(index, work))
    }

    /// A device that panics fails its launch, no more: a queue must not stay busy for ever.
    fn guarded(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
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

    fn run_blocks(&self, index: usize, work: &Submission) -> Result<()> {
        for dependency in &work.after {
            dependency.wait_untold().map_err(Error::dependency)?;
            let at = dependency.time_on(self.device.id());
            at.into_iter().for_each(|at| self.device.wait_until(index, at));
        }
        primitive::run_all(&*self.device, index, &work.blocks)
    }
}

impl State {
    fn queue(&mut self, index: usize) -> &mut Queue {
        self.queues[index].as_mut().expect("a queue's slot lives as long as its owner and its work")
    }

    /// A submission of the queue runs from now on.
    fn begin(&mut self, index: usize) {
        self.running += 1;
        self.queue(index).busy = true;
    }

    /// The next submission that can run without waiting, by the policy.
    fn next(&mut self, concurrency: usize) -> Option<(usize, Submission)> {
        if self.pending == 0 || self.holds > 0 || self.running >= concurrency {
            return None;
        }
        let mut ready: SmallVec<[Candidate; 8]> = SmallVec::new();
        for (index, queue) in self.queues.iter().enumerate() {
            if let Some(queue) = queue.as_ref().filter(|q| !q.is_running())
                && queue.pending.front().is_some_and(Submission::is_ready)
            {
                ready.push(Candidate { index, priority: queue.priority, skips: queue.skips });
            }
        }
        let index = self.turn.next(&ready)?;
        for candidate in &ready {
            let queue = self.queue(candidate.index);
            queue.skips = if candidate.index == index { 0 } else { queue.skips + 1 };
        }
        let work = self.queue(index).pending.pop_front()?;
        self.begin(index);
        self.pending -= 1;
        Some((index, work))
    }

    /// After a fork: the workers are gone, and with them what they ran.
    fn forget_the_parents_work(&mut self) -> Vec<Submission> {
        (self.workers, self.idle, self.holds) = (0, 0, 0);
        (self.pending, self.running, self.waiting) = (0, 0, 0);
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
        if queue.abandoned && queue.is_idle() {
            let gone = self.queues[index].take().filter(|queue| !queue.helper);
            self.orphan = self.orphan.take().or(gone.and_then(|queue| queue.error));
        }
    }
}

#[cfg(test)]
mod tests;
