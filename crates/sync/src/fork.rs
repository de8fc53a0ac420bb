//! Counts forks of the process. Threads do not survive a fork, so work of the parent's other
//! threads never finishes in the child. A thread that waits for another thread compares the count
//! with its value at the start of the wait.

use crate::barrier;
#[cfg(unix)]
use crate::section;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// The number of forks between this process and the process in which a thread first entered a
/// section.
pub fn count() -> u64 {
    FORKS.load(Relaxed)
}

/// Registers the handlers below with `pthread_atfork`, and the process for the barrier of sections.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    #[cfg(unix)]
    ONCE.call_once(|| {
        barrier::register();
        // Miri has no fork.
        if !cfg!(miri) {
            // SAFETY: the handlers only use atomics and wait.
            unsafe {
                libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child));
            }
        }
    });
    #[cfg(not(unix))]
    ONCE.call_once(|| {});
}

#[cfg(unix)]
extern "C" fn prepare() {
    section::close();
}

#[cfg(unix)]
extern "C" fn in_parent() {
    section::open();
}

#[cfg(unix)]
extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    section::open_in_child();
}
