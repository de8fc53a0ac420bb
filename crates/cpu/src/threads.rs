//! A pool's threads as the team that computes on one large matrix.

use crate::pool::Pool;
use girih_exec::{ExecError, Scratch};
use girih_linalg::Team;
use std::sync::{Mutex, PoisonError};

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

impl Team for Threads<'_> {
    fn share(&self, parts: usize, cost_ns: u64, job: &(dyn Fn(usize) + Sync)) {
        let job = |part: usize, _: &mut Scratch| {
            job(part);
            Ok(())
        };
        if let Err(error) = self.pool.run(parts, cost_ns, &job) {
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}
