//! A pool's threads as those that share the work of one matrix.

use crate::pool::Pool;
use girih_ir::linalg::Team;
use girih_kernel::{ExecError, Scratch};
use std::sync::{Mutex, PoisonError};

/// A pool's threads, for what one chunk of a job has to do to a large matrix.
pub(crate) struct Threads<'a> {
    pool: &'a Pool,
    /// Why not all was done.
    failed: Mutex<Option<ExecError>>,
}

impl<'a> Threads<'a> {
    pub fn of(pool: &'a Pool) -> Threads<'a> {
        Threads { pool, failed: Mutex::new(None) }
    }

    /// Errors: that of a part which was not done; what was computed with it then means nothing.
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
