//! Threads that share the work of one matrix, and the end of work that nobody waits for any more.

use faer::MatMut;
use std::sync::{Arc, Mutex, PoisonError};

/// Threads that share the work of one matrix. The partition depends on sizes only, and one thread
/// processes each part, so the bits do not depend on the number of threads.
pub trait Team: Sync {
    /// Calls the job once for each number below `parts`, in any order and on any threads. `cost_ns`
    /// is the approximate time of all parts on one thread, in nanoseconds.
    fn share(&self, parts: usize, cost_ns: u64, job: &(dyn Fn(usize) + Sync));

    /// Whether the work is to stop. A routine that sees this returns early, and its results are
    /// unspecified. Routines look between panels, iterations and other parts of the work.
    fn stopped(&self) -> bool {
        false
    }

    /// Runs a job of about `cost_ns` that does not look at [`Team::stopped`] itself. False if the
    /// job has not ended, because the team was stopped; it may then go on without anyone waiting.
    fn apart(&self, cost_ns: u64, job: Box<dyn FnOnce() + Send>) -> bool {
        let _ = cost_ns;
        job();
        true
    }
}

/// The result of a job that owns its data, run by [`Team::apart`]; `None` if the team was stopped.
pub fn apart<R: Send + 'static>(
    team: &dyn Team,
    cost_ns: u64,
    job: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let place = Arc::new(Mutex::new(None));
    let result = place.clone();
    let job = move || {
        let found = job();
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    };
    if !team.apart(cost_ns, Box::new(job)) {
        return None;
    }
    result.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A team of only the calling thread.
pub struct Alone;

impl Team for Alone {
    fn share(&self, parts: usize, _: u64, job: &(dyn Fn(usize) + Sync)) {
        (0..parts).for_each(job);
    }
}

/// Multiply-adds of one thread in a nanosecond; a rough, low estimate.
const PER_NS: usize = 16;

/// Number of columns of a stripe.
pub(crate) const STRIPE: usize = 64;

/// Processes a matrix in stripes: calls `work` with each stripe's first column and the stripe.
/// `each` is the number of multiply-adds for one column.
pub(crate) fn stripes<T: Send>(
    team: &dyn Team,
    mut whole: MatMut<'_, T>,
    each: usize,
    work: impl Fn(usize, MatMut<'_, T>) + Sync,
) {
    let cost_ns = (each * whole.ncols() / PER_NS) as u64;
    let mut parts = Vec::with_capacity(whole.ncols().div_ceil(STRIPE));
    while whole.ncols() > 0 {
        let width = STRIPE.min(whole.ncols());
        let (stripe, rest) = whole.split_at_col_mut(width);
        parts.push(Mutex::new(Some(stripe)));
        whole = rest;
    }
    team.share(parts.len(), cost_ns, &|part| {
        let stripe = parts[part].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(stripe) = stripe {
            work(part * STRIPE, stripe);
        }
    });
}
