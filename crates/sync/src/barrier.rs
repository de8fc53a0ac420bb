//! An asymmetric barrier: the frequent side, which enters sections, runs no fence, and the rare side,
//! which forks, makes the system run a fence on every processor that runs a thread of this process
//! (membarrier(2), Linux 4.14). Elsewhere both sides run a fence.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*, compiler_fence};

/// Whether the process is registered for `membarrier`.
static REGISTERED: AtomicBool = AtomicBool::new(false);

#[cfg(all(target_os = "linux", not(miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the system call reads and writes no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers the process, also in the child of a fork. Until then `store_light` runs a fence.
pub fn register() {
    #[cfg(all(target_os = "linux", not(miri)))]
    REGISTERED.store(membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED), Release);
}

/// Stores `value` so that a later load of this thread either sees what a thread stored before its
/// [`heavy`], or that thread's later loads see `value`, as in Dekker's algorithm.
#[inline]
pub fn store_light(word: &AtomicU32, value: u32) {
    if REGISTERED.load(Acquire) {
        word.store(value, Relaxed);
        compiler_fence(SeqCst);
    } else {
        word.swap(value, SeqCst);
    }
}

/// The barrier of the rare side, between its sequentially consistent store and loads. Fails without
/// effect if the process is not registered; all light sides have run a fence then.
pub fn heavy() {
    #[cfg(all(target_os = "linux", not(miri)))]
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}
