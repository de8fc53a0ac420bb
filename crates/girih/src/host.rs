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

/// True while this thread holds a lock of the library: then it must not wait for the interpreter.
pub use girih_sync::in_section;

/// Runs `f` outside the host's interpreter, if there is one.
pub(crate) fn outside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(outside) = OUTSIDE.get() else { return f() };
    let (mut f, mut result) = (Some(f), None);
    outside(&mut || result = f.take().map(|f| f()));
    result.expect("the host calls what it is given")
}
