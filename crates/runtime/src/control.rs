//! Control of a running plan: time limit, cancellation by other threads, interruption by the user,
//! and profiling of launches.
//!
//! Devices call [`RunControl::stopped`], which costs two loads, between the parts of a launch, and
//! [`RunControl::check`], which reads the clock, every few dozen microseconds of work.

use crate::Error;
use girih_sync::{Mutex, MutexGuard, OnceLock};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A function that returns whether the user wants the calling thread to stop waiting.
pub type InterruptHook = fn() -> bool;

static HOOK: OnceLock<InterruptHook> = OnceLock::new();

/// A function that calls its argument, which blocks the calling thread until a run is done.
pub type WaitHook = fn(&mut (dyn FnMut() + Send));

static WAIT_HOOK: OnceLock<WaitHook> = OnceLock::new();

/// The interval at which a waiting thread calls the interrupt hook.
pub(crate) const POLL: Duration = Duration::from_millis(20);

const RUNNING: u8 = 0;
const CANCELLED: u8 = 1;
const TIMED_OUT: u8 = 2;

thread_local! {
    /// Whether the user waits for the calling thread.
    static INTERRUPTS: Cell<bool> = const { Cell::new(false) };
}

/// Sets the hook that waiting threads call about fifty times a second to find out whether to stop.
/// For front ends whose language delivers interrupts only on request. Later calls have no effect.
pub fn set_interrupt_hook(hook: InterruptHook) {
    let _ = HOOK.set(hook);
}

/// Sets the hook inside which threads wait for a run. A front end with a global lock releases the
/// lock in the hook, because the run may call a function that needs the lock. Later calls have no
/// effect.
pub fn set_wait_hook(hook: WaitHook) {
    let _ = WAIT_HOOK.set(hook);
}

/// Fails inside of a callback, which must not wait: the work before this wait may be the run of the
/// callback. Call it before each wait of a caller for a queue.
pub(crate) fn check_nested(what: &'static str) -> crate::Result<()> {
    match girih_ir::ops::host::is_running() {
        false => Ok(()),
        true => Err(Error::Nested(what)),
    }
}

/// Runs the blocking function `f` inside the wait hook, if there is one.
pub(crate) fn waiting<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(hook) = WAIT_HOOK.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    hook(&mut || result = f.take().map(|f| f()));
    result.expect("a wait hook calls the function that it is given")
}

/// Whether there is an interrupt hook and it requests the calling thread to stop.
pub(crate) fn interrupted() -> bool {
    HOOK.get().is_some_and(|hook| hook())
}

/// Whether there is an interrupt hook.
pub(crate) fn interruptible() -> bool {
    HOOK.get().is_some()
}

/// Runs `f` on a thread that the user waits for: checks inside `f` call the interrupt hook.
pub(crate) fn with_interrupts<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            INTERRUPTS.set(self.0);
        }
    }
    let _restore = Restore(INTERRUPTS.replace(true));
    f()
}

/// The number of cancellations in the process. Runs read this number only, until it changes.
static CANCELLATIONS: AtomicU64 = AtomicU64::new(0);

/// The number of the last cancellation of each executor that has cancelled its runs. Entries stay
/// when an executor is dropped, because its queued runs may outlive it.
static LAST_CANCELLATIONS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn lock_last_cancellations() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    LAST_CANCELLATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cancellations of an executor's runs.
pub(crate) struct Cancellations {
    /// The number of the executor, unique in the process, from 1.
    executor: u64,
}

impl Default for Cancellations {
    fn default() -> Cancellations {
        static EXECUTORS: AtomicU64 = AtomicU64::new(1);
        Cancellations { executor: EXECUTORS.fetch_add(1, Relaxed) }
    }
}

impl Cancellations {
    /// The control of a run that begins now: the run stops after `limit`, if given, and at the next
    /// cancellation. With `profile`, the control records the time of each launch.
    pub fn begin(&self, limit: Option<Duration>, profile: bool) -> RunControl {
        RunControl {
            limit,
            executor: self.executor,
            seen: AtomicU64::new(CANCELLATIONS.load(Relaxed)),
            times: profile.then(Mutex::default),
            ..RunControl::default()
        }
    }

    /// Stops every run of the executor that has begun.
    pub fn cancel_all(&self) {
        let mut last = lock_last_cancellations();
        let number = CANCELLATIONS.load(Relaxed) + 1;
        last.insert(self.executor, number);
        CANCELLATIONS.store(number, Relaxed);
    }
}

/// The control of one run. The default never stops the run and measures nothing.
#[derive(Debug, Default)]
pub struct RunControl {
    limit: Option<Duration>,
    /// The number of the executor; 0 for none.
    executor: u64,
    /// The number of the last cancellation that is known not to concern the run.
    seen: AtomicU64,
    verdict: AtomicU8,
    /// Set by the first check.
    started: OnceLock<Instant>,
    /// When the hook was last called, in milliseconds since the start.
    asked_ms: AtomicU64,
    times: Option<Mutex<Vec<(String, Duration)>>>,
}

impl RunControl {
    /// Whether the run has to stop. Cheap enough to call for every part of a launch.
    #[inline]
    pub fn stopped(&self) -> bool {
        self.verdict.load(Relaxed) != RUNNING
            || CANCELLATIONS.load(Relaxed) != self.seen.load(Relaxed) && self.is_cancelled()
    }

    /// Whether one of the cancellations since the last look concerns the run.
    #[cold]
    fn is_cancelled(&self) -> bool {
        let last = lock_last_cancellations();
        let own = last.get(&self.executor).is_some_and(|n| *n > self.seen.load(Relaxed));
        if own {
            self.cancel();
        } else {
            self.seen.store(CANCELLATIONS.load(Relaxed), Relaxed);
        }
        own
    }

    /// Like [`RunControl::stopped`], but also reads the clock and, if the user waits for this
    /// thread, calls the interrupt hook.
    pub fn check(&self) -> bool {
        if self.stopped() {
            return true;
        }
        let elapsed = self.started.get_or_init(Instant::now).elapsed();
        if self.limit.is_some_and(|limit| elapsed > limit) {
            self.verdict.store(TIMED_OUT, Relaxed);
            return true;
        }
        if INTERRUPTS.get() && interruptible() {
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

    /// Requests the run to stop.
    pub fn cancel(&self) {
        let _ = self.verdict.compare_exchange(RUNNING, CANCELLED, Relaxed, Relaxed);
    }

    /// The error of a stopped run; `operation` is the name of the interrupted operation.
    pub fn error(&self, operation: &str) -> Error {
        let operation = operation.to_string();
        match (self.verdict.load(Relaxed), self.limit) {
            (TIMED_OUT, Some(limit)) => Error::Timeout { operation, seconds: limit.as_secs_f64() },
            _ => Error::Cancelled { operation },
        }
    }

    /// Runs one launch, and records its name and time if the run is profiled.
    pub(crate) fn timed<T>(&self, name: impl FnOnce() -> String, launch: impl FnOnce() -> T) -> T {
        if !self.is_timed() {
            return launch();
        }
        let start = Instant::now();
        let result = launch();
        self.add_time(name(), start.elapsed());
        result
    }

    /// Whether the run is profiled.
    pub(crate) fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Records the name and time of a launch if the run is profiled.
    pub(crate) fn add_time(&self, name: String, time: Duration) {
        if let Some(times) = &self.times {
            times.lock().unwrap_or_else(PoisonError::into_inner).push((name, time));
        }
    }

    /// Name and time of each launch so far, in order; empty unless profiled. Clears the record.
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
    fn a_run_stops_at_its_time_limit_or_a_cancellation() {
        let (own, other) = (Cancellations::default(), Cancellations::default());
        let free = own.begin(None, false);
        assert!(!free.check() && !free.stopped());
        let limited = own.begin(Some(Duration::ZERO), false);
        assert!(!limited.stopped(), "the clock is read by checks alone");
        while !limited.check() {}
        assert!(matches!(limited.error("add"), Error::Timeout { seconds: 0.0, .. }));
        let cancelled = own.begin(None, false);
        cancelled.cancel();
        assert!(cancelled.stopped());
        assert_eq!(cancelled.error("add"), Error::Cancelled { operation: "add".into() });
        other.cancel_all();
        assert!(!free.stopped() && !RunControl::default().stopped(), "another executor's runs");
        own.cancel_all();
        assert!(free.stopped() && free.stopped());
        assert!(!own.begin(None, false).stopped(), "later runs are not concerned");
        let queued = {
            let dropped = Cancellations::default();
            let queued = dropped.begin(None, false);
            dropped.cancel_all();
            queued
        };
        assert!(queued.stopped(), "a run outlives its executor");
    }

    #[test]
    fn launches_are_timed_when_asked() {
        let own = Cancellations::default();
        let control = own.begin(None, true);
        let name = |name: &str| name.to_string();
        control.timed(|| name("sleep"), || std::thread::sleep(Duration::from_millis(2)));
        assert_eq!(control.timed(|| name("three"), || 3), 3);
        let times = control.take_times();
        assert!(times.len() == 2 && times[0].1 >= Duration::from_millis(2), "{times:?}");
        assert_eq!((&*times[0].0, &*times[1].0), ("sleep", "three"));
        let plain = own.begin(None, false);
        plain.timed(|| unreachable!("nothing is kept"), || ());
        assert!(plain.take_times().is_empty());
    }
}
