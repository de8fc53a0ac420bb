//! The end of the interpreter. CPython before 3.14 ends a thread that asks for the interpreter after
//! its end by unwinding the thread's stack. If a function of the library on that stack has taken the
//! interpreter, the unwinding gives back what the thread does not have, which is a fatal error. So
//! no thread is inside of such a function when the interpreter ends: once the process ends, threads
//! enter one only while the main thread waits for the library, and the main thread goes on when all
//! have left.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Whether the process ends. Set once, by the thread that ends the interpreter.
static ENDS: AtomicBool = AtomicBool::new(false);
/// Whether threads may take the interpreter.
static OPEN: AtomicBool = AtomicBool::new(true);
/// The number of threads that have taken the interpreter by a function of the library, or are about
/// to.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The process that counts. A forked child has none of the threads that were inside.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// The maximum time of a wait: a function of the user may run for ever.
const LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

thread_local! {
    /// Whether this thread ends the interpreter.
    static IS_MAIN: Cell<bool> = const { Cell::new(false) };
    /// How many functions of this thread have taken the interpreter.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The library is imported.
pub fn count() {
    PROCESS.store(std::process::id(), SeqCst);
}

/// The process ends: called by the thread that then ends the interpreter.
pub fn begin() {
    IS_MAIN.set(true);
    ENDS.store(true, SeqCst);
}

/// A thread that has taken the interpreter.
pub struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        INSIDE.fetch_sub(1, SeqCst);
    }
}

/// Call before a thread that lacks the interpreter takes it. At the end of the process, it waits
/// until threads may.
pub fn enter() -> Inside {
    enter_within(Some(LIMIT))
}

/// Call before a thread that has released the interpreter takes it again. A thread that may not any
/// more sleeps until the process has ended, as in CPython 3.14: nothing waits for it.
pub fn enter_again() -> Inside {
    enter_within(None)
}

fn enter_within(limit: Option<Duration>) -> Inside {
    INSIDE.fetch_add(1, SeqCst);
    if !OPEN.load(SeqCst) && DEPTH.get() == 0 && !IS_MAIN.get() {
        let start = Instant::now();
        while !OPEN.load(SeqCst) && limit.is_none_or(|limit| start.elapsed() < limit) {
            INSIDE.fetch_sub(1, SeqCst);
            std::thread::sleep(PAUSE);
            INSIDE.fetch_add(1, SeqCst);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Inside(())
}

/// Runs `f`, for which the thread has released the interpreter.
#[inline]
pub fn released<T>(f: impl FnOnce() -> T) -> T {
    if !ENDS.load(SeqCst) || !IS_MAIN.get() {
        return f();
    }
    OPEN.store(true, SeqCst);
    let value = f();
    OPEN.store(false, SeqCst);
    let start = Instant::now();
    let counts = PROCESS.load(SeqCst) == std::process::id();
    while counts && INSIDE.load(SeqCst) > DEPTH.get() && start.elapsed() < LIMIT {
        std::thread::sleep(PAUSE);
    }
    value
}
