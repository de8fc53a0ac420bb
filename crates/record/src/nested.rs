//! Functions of users that an evaluation waits for: callbacks and passes. A call inside of such a
//! function that waits for an evaluation might wait for the function itself, so it is refused.

use crate::error::{Error, Result};
use girih_ir::ops::host;
use std::cell::Cell;

thread_local! {
    static PASSES: Cell<usize> = const { Cell::new(0) };
}

/// Runs a user's pass. The pass must not evaluate tensors, since the evaluation that is being
/// compiled waits for it.
pub fn within_pass<T>(run: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            PASSES.set(PASSES.get() - 1);
        }
    }
    PASSES.set(PASSES.get() + 1);
    let _leave = Leave;
    run()
}

/// Whether the calling thread runs a user's pass.
pub fn in_pass() -> bool {
    PASSES.get() > 0
}

/// Fails inside of a callback or a pass. `what` is the call that waits.
///
/// Errors: [`Error::InvalidArgument`].
#[inline]
pub fn check(what: &str) -> Result<()> {
    match host::is_running() || in_pass() {
        false => Ok(()),
        true => Err(refused(what)),
    }
}

#[cold]
fn refused(what: &str) -> Error {
    let (place, advice) = match in_pass() {
        true => ("a pass", "record ops in the pass, and compute beforehand"),
        false => (
            "a callback",
            "compute with the arrays that the callback is given, or do it outside of the callback",
        ),
    };
    Error::InvalidArgument(format!(
        "{what} inside of {place}, which an evaluation waits for; {advice}"
    ))
}
