//! The scheduler's state under its lock: the queues, and which submission starts next.

use crate::gate::Gate;
use crate::policy::{Candidate, Turn};
use crate::queue::Submission;
use crate::{Completion, Error, Policy};
use girih_sync::fork;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

pub struct State {
    pub queues: Vec<Option<Queue>>,
    /// The first unreported failure of dropped queues.
    pub orphan: Option<(Error, Arc<Completion>)>,
    turn: Turn,
    /// Whether the policy looks at priorities, and a queue has another priority than 0.
    prioritised: bool,
    /// The number of submissions in all queues that have not started.
    pub pending: usize,
    /// The number of submissions that run on any thread, without those of callers inside a gate.
    pub running: usize,
    pub workers: usize,
    /// The number of workers that wait for work.
    pub idle: usize,
    /// The number of threads in `synchronize`.
    pub waiting: usize,
    pub holds: usize,
    pub closed: bool,
    /// The process's fork count when the state was last used.
    pub forks: u64,
}

#[derive(Default)]
pub struct Queue {
    pub pending: VecDeque<Submission>,
    /// Closed while the queue has work, and while a thread waits for the queue.
    pub gate: Arc<Gate>,
    pub priority: i32,
    /// The number of times that the policy has skipped the queue since it was last served.
    pub skips: u32,
    /// Whether a submission of this queue is running, other than that of a caller inside the gate, or
    /// has to continue when the device has done its earlier work.
    pub busy: bool,
    /// For each submission whose work is enqueued on the device and not done, in order, a completion
    /// that is finished when the submission has ended.
    pub outstanding: VecDeque<Arc<Completion>>,
    /// The first failure since the last synchronise, with its submission.
    pub error: Option<(Error, Arc<Completion>)>,
    /// Whether the owner reports the queue's failures, so that they may be dropped with the queue.
    pub helper: bool,
    /// Whether the queue's owner has dropped it; the slot becomes free once the queue has drained.
    pub abandoned: bool,
}

impl Queue {
    /// The failure, unless a waiting thread has received it.
    pub fn standing_error(&mut self) -> Option<&Error> {
        self.error.take_if(|(_, submission)| submission.is_reported());
        self.error.as_ref().map(|(error, _)| error)
    }

    pub fn is_running(&self) -> bool {
        self.busy || self.gate.is_entered()
    }

    pub fn is_idle(&self) -> bool {
        !self.is_running() && self.pending.is_empty() && self.outstanding.is_empty()
    }

    /// Whether a submission has begun and not ended, other than that of a caller inside the gate.
    pub fn has_begun(&self) -> bool {
        let stopped = self.pending.front().is_some_and(|work| !work.progress.is_new());
        self.busy || stopped || !self.outstanding.is_empty()
    }

    /// The completion of the queue's last submission that has not ended, unless it is running.
    pub fn last(&self) -> Option<&Arc<Completion>> {
        let pending = self.pending.back().map(|submission| &submission.completion);
        pending.or_else(|| self.outstanding.back().filter(|_| !self.busy))
    }

    /// Opens the gate if the queue has no work, so that callers enter without the lock.
    pub fn open_if_idle(&self) {
        if !self.busy && self.pending.is_empty() && self.outstanding.is_empty() {
            self.gate.open();
        }
    }
}

impl State {
    /// The state of a scheduler without queues.
    pub fn new(policy: Policy) -> State {
        State {
            queues: Vec::new(),
            orphan: None,
            turn: Turn::new(policy),
            prioritised: false,
            pending: 0,
            running: 0,
            workers: 0,
            idle: 0,
            waiting: 0,
            holds: 0,
            closed: false,
            forks: fork::count(),
        }
    }

    pub fn queue(&mut self, index: usize) -> &mut Queue {
        self.queues[index].as_mut().expect("a queue's slot lives as long as its owner and its work")
    }

    /// Adds a queue; returns its number.
    pub fn add(&mut self, queue: Queue) -> usize {
        self.prioritised |= queue.priority != 0 && self.turn.policy() == Policy::Priority;
        let index = self.queues.iter().position(Option::is_none).unwrap_or(self.queues.len());
        if index == self.queues.len() {
            self.queues.push(None);
        }
        self.queues[index] = Some(queue);
        index
    }

    /// The lowest priority number of a queue with work that has not started; the largest number if
    /// priorities do not matter.
    pub fn lowest_waiting(&self) -> i32 {
        if !self.prioritised || self.pending == 0 {
            return i32::MAX;
        }
        let waiting = self.queues.iter().flatten().filter(|q| !q.pending.is_empty());
        waiting.map(|queue| queue.priority).min().unwrap_or(i32::MAX)
    }

    /// Whether a queue with a lower priority number has ready work that only waits for one of the
    /// running submissions to end.
    pub fn is_preempted(&self, priority: i32, concurrency: usize, most_workers: usize) -> bool {
        let full = self.running >= concurrency || (self.idle == 0 && self.workers >= most_workers);
        let waits = |queue: &Queue| {
            queue.priority < priority
                && !queue.is_running()
                && queue.pending.front().is_some_and(Submission::is_ready)
        };
        full && self.holds == 0 && self.queues.iter().flatten().any(waits)
    }

    /// Whether no queue has work.
    pub fn is_drained(&self) -> bool {
        self.queues.iter().flatten().all(Queue::is_idle)
    }

    /// Puts a submission that has stopped back to the front of its queue.
    pub fn put_back(&mut self, index: usize, work: Submission) {
        let queue = self.queue(index);
        queue.busy = false;
        queue.pending.push_front(work);
        self.pending += 1;
    }

    /// Marks a submission of the queue as running.
    pub fn begin(&mut self, index: usize) {
        self.running += 1;
        self.queue(index).busy = true;
    }

    /// Takes the next submission that can run without waiting, chosen by the policy.
    pub fn next(&mut self, concurrency: usize) -> Option<(usize, Submission)> {
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

    /// Resets the state after a fork, where the parent's workers do not exist; returns the parent's
    /// work.
    pub fn forget_the_parents_work(&mut self) -> Vec<Submission> {
        (self.workers, self.idle, self.holds) = (0, 0, 0);
        (self.pending, self.running, self.waiting) = (0, 0, 0);
        let mut lost = Vec::new();
        for slot in &mut self.queues {
            if let Some(queue) = slot {
                queue.busy = false;
                queue.outstanding.clear();
                lost.extend(queue.pending.drain(..));
            }
            slot.take_if(|queue| queue.abandoned);
        }
        lost
    }

    /// Frees the slot of a drained queue that its owner has dropped, and takes over its failure.
    pub fn reap(&mut self, index: usize) {
        let queue = self.queue(index);
        if queue.abandoned && queue.is_idle() {
            let gone = self.queues[index].take().filter(|queue| !queue.helper);
            self.orphan = self.orphan.take().or(gone.and_then(|queue| queue.error));
        }
    }
}
