//! Waiting for another thread without a lock: spins for a short while, then sleeps until it is
//! woken.
//!
//! No wait calls `sched_yield`: if a thread of another process is ready to run, the call would
//! return a whole time slice later.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// The number of spins between two checks of the clock.
const SPINS: u32 = 64;
/// The maximum time of one sleep: the condition is then checked even without a wake.
const SLEEP: Duration = Duration::from_millis(10);

/// Spins until the condition holds or about `longest` has passed; returns whether the condition
/// holds.
pub(crate) fn spin(longest: Duration, done: impl Fn() -> bool) -> bool {
    let mut since = None;
    loop {
        for _ in 0..SPINS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        // The clock is not read before the first spins are over, because most waits are shorter.
        if since.get_or_insert_with(Instant::now).elapsed() >= longest {
            return done();
        }
    }
}

/// A queue on which threads sleep until a condition holds.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// Incremented by each wake.
    woken: AtomicU32,
    asleep: AtomicUsize,
}

impl Sleepers {
    /// Waits until the condition holds, spinning for about `spinning` first. The thread that makes
    /// the condition hold calls [`Sleepers::wake`] afterwards. Calls `look` every few milliseconds
    /// of sleep.
    pub fn wait(&self, spinning: Duration, done: impl Fn() -> bool, look: impl Fn()) {
        if spin(spinning, &done) {
            return;
        }
        self.asleep.fetch_add(1, SeqCst);
        loop {
            let woken = self.woken.load(SeqCst);
            // A thread that makes the condition hold from here on sees a sleeper, and changes the
            // word.
            if done() {
                break;
            }
            sleep(&self.woken, woken, SLEEP);
            look();
        }
        self.asleep.fetch_sub(1, SeqCst);
    }

    /// Wakes all sleepers, because their condition may now hold.
    pub fn wake(&self) {
        // Orders the preceding writes, on which the sleepers' condition depends, before the check.
        std::sync::atomic::fence(SeqCst);
        if self.asleep.load(SeqCst) > 0 {
            self.woken.fetch_add(1, SeqCst);
            wake_all(&self.woken);
        }
    }
}

/// Sleeps until the word is woken, or for at most `longest`; returns at once unless the word has
/// that value.
#[cfg(target_os = "linux")]
fn sleep(word: &AtomicU32, value: u32, longest: Duration) {
    let time = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: longest.subsec_nanos() as libc::c_long,
    };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time are valid for the call, which reads them.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, &raw const time) };
}

#[cfg(target_os = "linux")]
fn wake_all(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word's address identifies its sleepers; no memory is accessed there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, i32::MAX) };
}

/// On other systems, sleepers check the condition again after a short while.
#[cfg(not(target_os = "linux"))]
fn sleep(_: &AtomicU32, _: u32, longest: Duration) {
    std::thread::sleep(longest.min(Duration::from_micros(50)));
}

#[cfg(not(target_os = "linux"))]
fn wake_all(_: &AtomicU32) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn sleepers_are_woken_when_the_condition_becomes_true() {
        let (sleepers, ready) = (Sleepers::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| sleepers.wait(Duration::ZERO, || ready.load(Acquire), || ()))
                })
                .collect();
            while sleepers.asleep.load(SeqCst) < 3 {
                std::thread::sleep(Duration::from_micros(100));
            }
            assert!(waiting.iter().all(|w| !w.is_finished()), "nothing holds yet");
            ready.store(true, Release);
            sleepers.wake();
        });
        assert_eq!(sleepers.asleep.load(SeqCst), 0);
        assert!(sleepers.woken.load(SeqCst) > 0);
    }

    #[test]
    fn spinning_ends_when_the_condition_is_true_or_the_time_is_over() {
        assert!(spin(Duration::MAX, || true));
        assert!(!spin(Duration::from_micros(20), || false));
    }
}
