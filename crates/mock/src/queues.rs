//! The queues of a mock that has queues of its own: a thread of the device runs each queue that has
//! work, so that the runtime needs none.

use crate::MockAccelerator;
use girih_runtime::{Completion, Device, Enqueued, Error, Position, Result, panic_message};
use girih_sync::{Condvar, Mutex, MutexGuard, fork};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The time for which the thread of an empty queue waits for more work.
const LINGER: Duration = Duration::from_millis(2);

/// A primitive of a queue.
pub(crate) type Job = Box<dyn FnOnce(&MockAccelerator) -> Result<()> + Send>;

/// The queues of a device.
#[derive(Default)]
pub(crate) struct Queues {
    state: Mutex<State>,
    /// Signalled when a queue has work.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The queues that a thread runs.
    running: BTreeMap<usize, VecDeque<(Job, Arc<Completion>)>>,
    /// The process's fork count when the state was last used.
    forks: u64,
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.forks != fork::count() {
            // The threads of the parent do not exist in the child; its completions say so.
            *state = State { forks: fork::count(), ..State::default() };
        }
        state
    }

    /// Appends a job to a queue of the device, and starts its thread if it has none.
    ///
    /// Errors: [`Error::Launch`] if the system starts no thread.
    pub fn push(&self, device: &Arc<MockAccelerator>, at: Position, job: Job) -> Result<Enqueued> {
        let done = Completion::pending();
        let work = (job, done.clone());
        let mut state = self.lock();
        match state.running.get_mut(&at.queue) {
            Some(jobs) => jobs.push_back(work),
            None => {
                let (own, queue) = (device.clone(), at.queue);
                let thread = std::thread::Builder::new().name(format!("mock-queue-{queue}"));
                let started = thread.spawn(move || own.run_queue(queue));
                started.map_err(|error| Error::Launch {
                    operation: "a queue".into(),
                    device: device.properties().name.clone(),
                    reason: error.to_string(),
                })?;
                state.running.insert(queue, VecDeque::from([work]));
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(Enqueued::Outstanding(done))
    }

    /// The next job of a queue that the calling thread runs; `None`, and the thread has to end, if
    /// there is none for a while.
    pub fn next(&self, queue: usize) -> Option<(Job, Arc<Completion>)> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.running.get_mut(&queue).and_then(VecDeque::pop_front) {
                return Some(work);
            }
            let (guard, timeout) =
                self.changed.wait_timeout(state, LINGER).unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() && state.running.get(&queue).is_none_or(VecDeque::is_empty) {
                state.running.remove(&queue);
                return None;
            }
        }
    }
}

/// Does a job; a panic fails the job alone.
pub(crate) fn run(device: &MockAccelerator, job: Job) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| job(device))).unwrap_or_else(|panic| {
        Err(Error::Launch {
            operation: "a primitive".into(),
            device: device.properties().name.clone(),
            reason: panic_message(&*panic),
        })
    })
}
