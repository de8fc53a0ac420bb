//! Forks of the process. Threads do not survive one, so what the parent's were doing never ends in
//! the child: who waits for another thread compares the count of forks with the one it began with.

#[cfg(unix)]
use crate::section;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How often this process is the child of a fork, since a thread first entered a section.
pub fn count() -> u64 {
    FORKS.load(Relaxed)
}

/// Has the system call the handlers below around each fork.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    #[cfg(unix)]
    ONCE.call_once(|| {
        // SAFETY: the handlers touch atomics only, and wait.
        unsafe {
            libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child));
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
