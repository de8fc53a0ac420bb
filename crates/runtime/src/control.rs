//! Control over a run under way: its time limit, cancellation from other threads, interruption by
//! its user, and the time its launches take.
//!
//! Devices look at [`RunControl::stopped`] between the parts of a launch, which costs two loads,
//! and at [`RunControl::check`], which reads the clock, every few dozen microseconds of work.

use crate::Error;
use girih_sync::{Mutex, OnceLock};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Says whether the user of the calling thread wants what it is waiting for to stop.
pub type InterruptHook = fn() -> bool;

static HOOK: OnceLock<InterruptHook> = OnceLock::new();

/// Calls the function that it is given, which blocks the calling thread until a run is done.
pub type WaitHook = fn(&mut (dyn FnMut() + Send));

static WAIT_HOOK: OnceLock<WaitHook> = OnceLock::new();

/// How often a thread that waits asks the hook.
pub(crate) const POLL: Duration = Duration::from_millis(20);

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;

thread_local! {
    /// This thread's user waits for what it does.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// Has threads that wait for a run ask whether to go on, some fifty times a second. For front ends
/// whose language notices interrupts only when it is asked. The first hook stays.
pub fn set_interrupt_hook(hook: InterruptHook) {
    let _ = HOOK.set(hook);
}

/// Has threads that wait for a run do so inside of `hook`. A front end whose threads share a lock
/// gives the lock back there: the run may call a function that needs the lock. The first hook stays.
pub fn set_wait_hook(hook: WaitHook) {
    let _ = WAIT_HOOK.set(hook);
}

/// Runs `f`, which blocks, inside of the wait hook, if there is one.
pub(crate) fn waiting<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(hook) = WAIT_HOOK.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    hook(&mut || result = f.take().map(|f| f()));
    result.expect("a wait hook calls the function that it is given")
}

/// True if there is a hook and it wants the calling thread to stop.
pub(crate) fn interrupted() -> bool {
    HOOK.get().is_some_and(|hook| hook())
}

/// True if waiting threads have somebody to ask.
pub(crate) fn interruptible() -> bool {
    HOOK.get().is_some()
}

/// Runs `f` on a thread whose user waits for it: checks on the way ask the hook.
pub(crate) fn asking<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASKS.set(self.0);
        }
    }
    let _restore = Restore(ASKS.replace(true));
    f()
}

/// The stop button and the stopwatch of one run. The default never stops and measures nothing.
#[derive(Debug, Default)]
pub struct RunControl {
    limit: Option<Duration>,
    /// Cancellations of the run's executor so far, and how many there were when it began.
    cancellations: Option<(Arc<AtomicU64>, u64)>,
    verdict: AtomicU8,
    /// Set by the first check.
    started: OnceLock<Instant>,
    /// When the hook was last asked, in milliseconds since the start.
    asked_ms: AtomicU64,
    times: Option<Mutex<Vec<(String, Duration)>>>,
}

impl RunControl {
    /// A run that stops after `limit`, if given, and when `cancellations` is counted up. With
    /// `profile` it keeps the time of each launch.
    pub fn new(
        limit: Option<Duration>,
        cancellations: &Arc<AtomicU64>,
        profile: bool,
    ) -> RunControl {
        let seen = cancellations.load(Relaxed);
        RunControl {
            limit,
            cancellations: Some((cancellations.clone(), seen)),
            times: profile.then(Mutex::default),
            ..RunControl::default()
        }
    }

    /// True if the run is to end. Cheap enough to ask for every part of a launch.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.verdict.load(Relaxed) != RUNNING
            || self.cancellations.as_ref().is_some_and(|(now, seen)| now.load(Relaxed) != *seen)
    }

    /// Like [`RunControl::stopped`], after a look at the clock and, where the caller's user waits,
    /// at the interrupt hook.
    pub fn check(&self) -> bool {
        if self.stopped() {
            return true;
        }
        let elapsed = self.started.get_or_init(Instant::now).elapsed();
        if self.limit.is_some_and(|limit| elapsed > limit) {
            self.verdict.store(TIMED_OUT, Relaxed);
            return true;
        }
        if ASKS.get() && interruptible() {
            let now = elapsed.as_millis() as u64;
            if now >= self.asked_ms.load(Relaxed) + POLL.as_millis() as u64 {
                self.asked_ms.store(now, Relaxed);
                if interrupted() {
                    self.cancel();
                }
            }
        }
        self.stopped()
    }

    /// Stops the run at the next opportunity.
    pub fn cancel(&self) {
        let _ = self.verdict.compare_exchange(RUNNING, CANCELLED, Relaxed, Relaxed);
    }

    /// Why the run was stopped; `operation` is what it was doing.
    pub fn error(&self, operation: &str) -> Error {
        let operation = operation.to_string();
        match (self.verdict.load(Relaxed), self.limit) {
            (TIMED_OUT, Some(limit)) => Error::Timeout { operation, seconds: limit.as_secs_f64() },
            _ => Error::Cancelled { operation },
        }
    }

    /// Runs one launch, and keeps its name and time if the run is profiled.
    pub(crate) fn timed<T>(&self, name: impl FnOnce() -> String, launch: impl FnOnce() -> T) -> T {
        let Some(times) = &self.times else { return launch() };
        let start = Instant::now();
        let result = launch();
        let elapsed = start.elapsed();
        times.lock().unwrap_or_else(PoisonError::into_inner).push((name(), elapsed));
        result
    }

    /// Name and time of each launch so far, in their order; empty unless profiled.
    pub fn take_times(&self) -> Vec<(String, Duration)> {
        let times = self.times.as_ref();
        times.map_or(Vec::new(), |t| {
            std::mem::take(&mut t.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stops_for_its_limit_its_cancellation_and_its_executors() {
        let count = Arc::new(AtomicU64::new(7));
        let free = RunControl::new(None, &count, false);
        assert!(!free.check() && !free.stopped());
        let limited = RunControl::new(Some(Duration::ZERO), &count, false);
        assert!(!limited.stopped(), "the clock is read by checks alone");
        while !limited.check() {}
        assert!(matches!(limited.error("add"), Error::Timeout { seconds: 0.0, .. }));
        let cancelled = RunControl::new(None, &count, false);
        cancelled.cancel();
        assert!(cancelled.stopped());
        assert_eq!(cancelled.error("add"), Error::Cancelled { operation: "add".into() });
        count.fetch_add(1, Relaxed);
        assert!(free.stopped());
        assert!(!RunControl::new(None, &count, false).stopped(), "later runs are not concerned");
    }

    #[test]
    fn launches_are_timed_when_asked() {
        let count = Arc::default();
        let control = RunControl::new(None, &count, true);
        let name = |name: &str| name.to_string();
        control.timed(|| name("sleep"), || std::thread::sleep(Duration::from_millis(2)));
        assert_eq!(control.timed(|| name("three"), || 3), 3);
        let times = control.take_times();
        assert!(times.len() == 2 && times[0].1 >= Duration::from_millis(2), "{times:?}");
        assert_eq!((&*times[0].0, &*times[1].0), ("sleep", "three"));
        let plain = RunControl::new(None, &count, false);
        plain.timed(|| unreachable!("nothing is kept"), || ());
        assert!(plain.take_times().is_empty());
    }
}
