//! A condition variable whose waiting threads are outside of sections. The standard library's
//! condition variable locks the mutex again before it returns, outside of any section, and a fork
//! may occur at that point.

use crate::{Mutex, MutexGuard, foreign, in_section};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, LockResult, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// As [`std::sync::Condvar`].
#[derive(Default)]
pub struct Condvar {
    waiting: Mutex<Vec<Arc<Waiter>>>,
}

struct Waiter {
    woken: AtomicBool,
    thread: Thread,
}

/// Whether a wait ended by timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeout(bool);

impl WaitTimeout {
    /// Whether the wait ended by timeout.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition variable without waiting threads.
    pub const fn new() -> Condvar {
        Condvar { waiting: Mutex::new(Vec::new()) }
    }

    /// Releases the mutex until the next notification; wake-ups may be spurious. The mutex must be
    /// the only lock that the thread holds.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard, None).map(|(guard, _)| guard).map_err(|poisoned| {
            let (guard, _) = poisoned.into_inner();
            PoisonError::new(guard)
        })
    }

    /// As [`Condvar::wait`], with a time limit.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeout)> {
        self.wait_until(guard, Instant::now().checked_add(limit))
    }

    fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        end: Option<Instant>,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeout)> {
        let waiter = Arc::new(Waiter { woken: AtomicBool::new(false), thread: thread::current() });
        // Register while the mutex is held, so that no later notification is missed.
        self.lock().push(waiter.clone());
        let mutex = guard.mutex;
        drop(guard);
        debug_assert!(!in_section(), "a thread waits for a condition and holds another lock");
        foreign::assert_without_interpreter();
        let mut late = false;
        while !waiter.woken.load(Acquire) && !late {
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => late = true,
                Some(left) => thread::park_timeout(left),
            }
        }
        if late {
            self.lock().retain(|w| !Arc::ptr_eq(w, &waiter));
        }
        match mutex.lock() {
            Ok(guard) => Ok((guard, WaitTimeout(late))),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), WaitTimeout(late)))),
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        for waiter in std::mem::take(&mut *self.lock()) {
            waiter.woken.store(true, Release);
            waiter.thread.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Waiter>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
