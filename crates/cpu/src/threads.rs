//! A pool's threads as the team that computes on one large matrix.

use crate::pool::{Pool, is_stopped, is_watched};
use girih_exec::{ExecError, Scratch};
use girih_linalg::Team;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time from which on a job that cannot stop runs apart, in nanoseconds.
const APART_NS: u64 = 20_000_000;
/// The time between two looks at the control while such a job runs.
const LOOK: Duration = Duration::from_millis(5);

/// A pool's threads, for the work of one chunk on a large matrix.
pub(crate) struct Threads<'a> {
    pool: &'a Pool,
    /// The reason why a part was not computed.
    failed: Mutex<Option<ExecError>>,
}

impl<'a> Threads<'a> {
    pub fn of(pool: &'a Pool) -> Threads<'a> {
        Threads { pool, failed: Mutex::new(None) }
    }

    /// Errors: the error of a part that was not computed; results that depend on that part are
    /// invalid.
    pub fn outcome(self) -> Result<(), ExecError> {
        self.failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

impl Threads<'_> {
    fn fail(&self, error: ExecError) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

impl Team for Threads<'_> {
    fn share(&self, parts: usize, cost_ns: u64, job: &(dyn Fn(usize) + Sync)) {
        let job = |part: usize, _: &mut Scratch| {
            job(part);
            Ok(())
        };
        if let Err(error) = self.pool.run(parts, cost_ns, &job) {
            self.fail(error);
        }
    }

    fn stopped(&self) -> bool {
        let stopped = is_stopped();
        if stopped {
            self.fail(ExecError::Stopped);
        }
        stopped
    }

    /// A job that takes long runs on a thread of its own while this one looks at the control. If
    /// the run is stopped, the job goes on to its end without anyone waiting for it: it owns its
    /// data, and the routine inside has no place to stop at.
    fn apart(&self, cost_ns: u64, job: Box<dyn FnOnce() + Send>) -> bool {
        if cost_ns < APART_NS || !is_watched() {
            job();
            return true;
        }
        let (done, finished) = channel();
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(job)).is_ok();
            // Nobody receives it if the run was stopped.
            let _ = done.send(outcome);
        };
        let spawned = std::thread::Builder::new().name("girih-apart".into()).spawn(run);
        if let Err(error) = spawned {
            self.fail(ExecError::Panicked(format!("no thread for a library routine: {error}")));
            return false;
        }
        loop {
            match finished.recv_timeout(LOOK) {
                Ok(true) => return true,
                Err(RecvTimeoutError::Timeout) if !self.stopped() => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Ok(false) | Err(RecvTimeoutError::Disconnected) => {
                    self.fail(ExecError::Panicked("a library routine".into()));
                    return false;
                }
            }
        }
    }
}
