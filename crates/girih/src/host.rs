//! What a host language tells the library about itself: how its users interrupt a program, and how
//! its interpreter is let go of while the library works.

use girih_sync::OnceLock;

/// Calls the function it is given, with the host's interpreter free for other threads.
pub type Outside = fn(&mut (dyn FnMut() + Send));

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

/// Says how to let go of the interpreter, for work that begins while an op is recorded. The first
/// call counts.
pub fn set_outside(outside: Outside) {
    let _ = OUTSIDE.set(outside);
}

pub use girih_runtime::{set_interrupt_hook, set_wait_hook};

/// Frees memory that the host's language holds without need; says whether there was any.
pub type Collect = fn() -> bool;

static COLLECT: OnceLock<Collect> = OnceLock::new();

/// Says how to have the host's language collect garbage, which is asked when a device's memory is
/// used up. The first call counts.
pub fn set_collector(collect: Collect) {
    let _ = COLLECT.set(collect);
}

/// Has the host's language collect garbage, unless this thread must not wait for the interpreter.
pub(crate) fn collect() -> bool {
    !in_section() && COLLECT.get().is_some_and(|collect| collect())
}

/// True while this thread holds a lock of the library: then it must not wait for the interpreter.
pub use girih_sync::in_section;

/// Runs `f` outside the host's interpreter, if there is one.
pub(crate) fn outside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(outside) = OUTSIDE.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    outside(&mut || result = f.take().map(|f| f()));
    result.expect("the host calls what it is given")
}
