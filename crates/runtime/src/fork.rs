//! Forks of the process. Threads do not survive one, so what the parent's were doing never ends in
//! the child: who waits for another thread compares the count of forks with the one it began with.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process is the child of a fork, as far as [`note`] was told.
pub fn count() -> u64 {
    FORKS.load(Relaxed)
}

/// To be called in the child of a fork, before it does anything else. A device that starts threads
/// sees to it; may be called from a signal handler.
pub fn note() {
    FORKS.fetch_add(1, Relaxed);
}
