//! How submissions run: on the worker threads, and on the threads of callers that wait.

use super::{Entry, MAX_WORKERS, Shared, State};
use crate::gate::Gate;
use crate::primitive::Lane;
use crate::progress::{Pause, Runner};
use crate::queue::Submission;
use crate::{Completion, Error, Result};
use girih_sync::MutexGuard;
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

impl Shared {
    /// The maximum number of worker threads.
    pub(super) fn most_workers(&self) -> usize {
        MAX_WORKERS.min(self.concurrency)
    }

    /// Publishes which queue goes first. Requires the lock.
    pub(super) fn publish(&self, state: &State) {
        self.lowest_waiting.store(state.lowest_waiting(), Relaxed);
    }

    /// Enqueues a submission for the worker threads.
    pub(super) fn submit(self: &Arc<Shared>, index: usize, submission: Submission) {
        let pending: SmallVec<[Arc<Completion>; 4]> =
            submission.dependencies().filter(|c| c.poll().is_none()).cloned().collect();
        let mut state = self.lock();
        let queue = state.queue(index);
        queue.gate.close();
        queue.pending.push_back(submission);
        state.pending += 1;
        self.start_work(state);
        // A dependency on another scheduler ends without notifying this one, so register a waker.
        for completion in pending {
            let shared = self.clone();
            if !completion.wake(move || shared.wake_workers()) {
                self.wake_workers();
            }
        }
    }

    /// Puts a submission that has let other work go first back to the front of its queue.
    pub(super) fn put_back(self: &Arc<Shared>, index: usize, work: Submission) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        state.put_back(index, work);
        self.start_work(state);
    }

    /// Makes workers look for the work that has become pending, and starts a worker if none is idle.
    pub(super) fn start_work(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
        self.publish(&state);
        if state.idle < state.pending && state.workers < self.most_workers() {
            let shared = self.clone();
            let thread = std::thread::Builder::new().name("girih-scheduler".into());
            if thread.spawn(move || shared.drain(true)).is_ok() {
                state.workers += 1;
            } else if state.workers == 0 {
                // No thread can be started: run the queued work on this thread.
                drop(state);
                return self.drain(false);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Runs submissions as they become ready: until the scheduler is closed if `wait`, else until
    /// none is ready.
    pub(super) fn drain(self: &Arc<Shared>, wait: bool) {
        let mut state = self.lock();
        loop {
            if let Some((index, work)) = state.next(self.concurrency) {
                self.publish(&state);
                drop(state);
                self.proceed(index, work, true);
                state = self.lock();
            } else if !wait || (state.closed && state.is_drained()) {
                state.workers -= usize::from(wait);
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle = state.idle.saturating_sub(1);
            }
        }
    }

    /// Runs a submission that has begun, until it ends or stops. With `host`, its functions of the
    /// host run on this thread.
    pub(super) fn proceed(self: &Arc<Shared>, index: usize, mut work: Submission, host: bool) {
        let mut state = self.lock();
        let queue = state.queue(index);
        let failed = queue.standing_error().filter(|_| !work.awaited).cloned();
        let (gate, priority) = (queue.gate.clone(), queue.priority);
        let before = queue.outstanding.back().cloned();
        drop(state);
        if let Some(error) = failed {
            // The queue keeps the first failure, not the errors of the submissions skipped because of
            // it.
            work.progress.skip(Error::skipped(&error));
        }
        if work.progress.failure.is_some() {
            return self.settle(index, work);
        }
        let lane = Lane { device: &self.device, queue: index, gate: &gate };
        match self.run(lane, before.as_ref(), host, priority, &mut work) {
            Ok(Pause::End) => self.settle(index, work),
            Ok(Pause::Host) => self.suspend(index, work, before),
            Ok(Pause::Yield) => self.put_back(index, work),
            Err(error) => {
                work.progress.note(&Err(error));
                self.settle(index, work);
            }
        }
    }

    /// Runs a submission of a caller that has entered the queue, to its end, or until it lets more
    /// urgent work go first.
    pub(super) fn run_entered(
        &self,
        index: usize,
        gate: &Gate,
        entry: &Entry,
        work: &mut Submission,
    ) -> Result<Pause> {
        let priority = match entry {
            // A device that runs everything at once: nothing waits for this submission.
            Entry::Gate => i32::MIN,
            Entry::Lock => self.lock().queue(index).priority,
        };
        let lane = Lane { device: &self.device, queue: index, gate };
        loop {
            let pause = self.run(lane, None, true, priority, work);
            for completion in work.progress.outstanding.drain(..) {
                let outcome = completion.wait_unreported();
                work.progress.failure = work.progress.failure.take().or(outcome.err());
            }
            match (pause?, work.progress.failure.take()) {
                (_, Some(error)) => return Err(error),
                (Pause::Host, None) => {}
                (pause, None) => return Ok(pause),
            }
        }
    }

    /// Runs the blocks of a submission, from where it stopped. `before` is the queue's last
    /// submission that is outstanding; functions of the host run only with `host`.
    fn run(
        &self,
        lane: Lane<'_>,
        before: Option<&Arc<Completion>>,
        host: bool,
        priority: i32,
        work: &mut Submission,
    ) -> Result<Pause> {
        let most = self.most_workers();
        let is_awaited = || self.lock().is_preempted(priority, self.concurrency, most);
        let (lowest_waiting, is_awaited) = (&self.lowest_waiting, &is_awaited);
        let runner = Runner { lane, before, host, priority, lowest_waiting, is_awaited };
        self.guarded(|| {
            if work.progress.is_new() {
                for dependency in &work.after {
                    dependency.wait_unreported().map_err(Error::dependency)?;
                    let at = dependency.time_on(self.device.id());
                    at.into_iter().for_each(|at| self.device.wait_until(lane.queue, at));
                }
            }
            runner.advance(&work.blocks, &mut work.progress)
        })
    }
}

#[cfg(test)]
mod tests;
