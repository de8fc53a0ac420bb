//! Submissions whose work is outstanding on a device with queues of its own: they are continued and
//! ended by the completions of the device, without a thread that waits.

use super::Shared;
use crate::queue::Submission;
use crate::{Completion, Error};
use std::sync::Arc;

impl Shared {
    /// Starts a submission on this thread, if its queue has no other work that would have to start
    /// first and the device may start another submission; else returns it.
    pub(super) fn start_here(
        self: &Arc<Shared>,
        index: usize,
        work: Submission,
    ) -> Option<Submission> {
        let mut state = self.lock();
        // A caller that waits for its own work runs it under a hold, too.
        let held = state.holds > 0 && !work.awaited;
        let full = held || state.running >= self.concurrency;
        let queue = state.queue(index);
        if full || queue.is_running() || !queue.pending.is_empty() || !work.is_ready() {
            return Some(work);
        }
        queue.gate.close();
        state.begin(index);
        drop(state);
        self.proceed(index, work, false);
        None
    }

    /// Ends a submission whose blocks have run: now, or when the device has done its outstanding work.
    /// Until then the queue may start its next submission.
    pub(super) fn settle(self: &Arc<Shared>, index: usize, mut work: Submission) {
        work.progress.collect();
        if work.progress.outstanding.is_empty() {
            return self.end_settled(index, work);
        }
        // Not the submission's own completion, which a caller that stops waiting finishes early.
        let ended = Completion::pending();
        work.progress.ended = Some(ended.clone());
        self.lock().queue(index).outstanding.push_back(ended);
        self.clone().end_when_done(index, work);
        // Only now may the queue start its next submission: if that ended before this one, it would
        // not know of this one's failure.
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        let queue = state.queue(index);
        queue.busy = false;
        queue.open_if_idle();
        state.reap(index);
        drop(state);
        self.changed.notify_all();
    }

    fn end_when_done(self: Arc<Shared>, index: usize, mut work: Submission) {
        work.progress.collect();
        let Some(first) = work.progress.take_first() else { return self.end_settled(index, work) };
        first.then(move |outcome| {
            work.progress.note(outcome);
            self.end_when_done(index, work);
        });
    }

    /// Ends a submission without outstanding work. It fails if its queue has failed meanwhile.
    fn end_settled(&self, index: usize, mut work: Submission) {
        let mut state = self.lock();
        let earlier = state.queue(index).standing_error().filter(|_| !work.awaited).cloned();
        drop(state);
        if let Some(error) = earlier.filter(|_| work.progress.failure.is_none()) {
            work.progress.skip(Error::skipped(&error));
        }
        let keep_error = !work.progress.skipped;
        let outcome = work.progress.failure.take().map_or(Ok(()), Err);
        self.finish(index, work, outcome, keep_error);
    }

    /// Stops a submission before a function of the host. A worker continues it when the device has
    /// done its outstanding work and that of the submission before it.
    pub(super) fn suspend(
        self: &Arc<Shared>,
        index: usize,
        work: Submission,
        before: Option<Arc<Completion>>,
    ) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
        self.clone().resume_when_done(index, work, before);
    }

    fn resume_when_done(
        self: Arc<Shared>,
        index: usize,
        mut work: Submission,
        before: Option<Arc<Completion>>,
    ) {
        work.progress.collect();
        if let Some(first) = work.progress.take_first() {
            return first.then(move |outcome| {
                work.progress.note(outcome);
                self.resume_when_done(index, work, before);
            });
        }
        if let Some(before) = before {
            return before.then(move |_| self.resume_when_done(index, work, None));
        }
        let mut state = self.lock();
        state.put_back(index, work);
        self.start_work(state);
    }
}

#[cfg(test)]
mod tests;
