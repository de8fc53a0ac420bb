//! Whose threads do the work of one matrix.

use faer::MatMut;
use std::sync::{Mutex, PoisonError};

/// Threads that share the work of one matrix. What its parts are depends on sizes only, and each part
/// is done by one thread: the bits are the same for any number of threads.
pub trait Team: Sync {
    /// Calls the job once with each number below `parts`, in any order and on any threads; that many
    /// nanoseconds is the rough time of all on one thread.
    fn share(&self, parts: usize, cost_ns: u64, job: &(dyn Fn(usize) + Sync));
}

/// The calling thread.
pub struct Alone;

impl Team for Alone {
    fn share(&self, parts: usize, _: u64, job: &(dyn Fn(usize) + Sync)) {
        (0..parts).for_each(job);
    }
}

/// Multiply-adds that one thread does in a nanosecond, roughly and rather too few.
const PER_NS: usize = 16;

/// Columns of a stripe.
pub(crate) const STRIPE: usize = 64;

/// Has a matrix worked on stripe by stripe: `work` is called with each one's first column and the
/// stripe. `each` is the number of multiply-adds per column.
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
