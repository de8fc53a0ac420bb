//! Hooks for a host language: its users can interrupt a program, and its interpreter is released
//! while the library works.

use girih_sync::{OnceLock, in_section};

/// Calls the given function while the host's interpreter is released for other threads.
pub type Outside = fn(&mut (dyn FnMut() + Send));

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

/// Sets the function that releases the interpreter, for work that begins while an op is recorded.
/// Only the first call has an effect.
pub fn set_outside(outside: Outside) {
    let _ = OUTSIDE.set(outside);
}

pub use girih_runtime::{set_interrupt_hook, set_wait_hook};

/// Frees unneeded memory that the host language holds; returns whether there was such memory.
pub type Collect = fn() -> bool;

static COLLECT: OnceLock<Collect> = OnceLock::new();

/// Sets the function that collects the host language's garbage. It is called when a device's memory
/// is exhausted. Only the first call has an effect.
pub fn set_collector(collect: Collect) {
    let _ = COLLECT.set(collect);
}

/// Collects the host language's garbage, unless this thread must not wait for the interpreter.
pub(crate) fn collect() -> bool {
    !in_section() && COLLECT.get().is_some_and(|collect| collect())
}

/// Checks for code of users, which must not run while a thread holds a lock of the library, and
/// sections, during which no other thread forks the process.
pub use girih_sync::{Section, foreign};

/// Runs `f` with the host's interpreter released, if there is one.
pub(crate) fn outside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(outside) = OUTSIDE.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    outside(&mut || result = f.take().map(|f| f()));
    result.expect("the host calls what it is given")
}
