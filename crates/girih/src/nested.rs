//! Functions of users that an evaluation waits for: callbacks and passes. A call inside of such a
//! function that waits for an evaluation might wait for the function itself, so it is refused.

use crate::{Error, Result, pass};
use girih_ir::ops::host;

/// Fails inside of a callback or a pass. `what` is the call that waits.
///
/// Errors: [`Error::InvalidArgument`].
#[inline]
pub(crate) fn check(what: &str) -> Result<()> {
    match host::is_running() || pass::is_running() {
        false => Ok(()),
        true => Err(refused(what)),
    }
}

#[cold]
fn refused(what: &str) -> Error {
    let (place, advice) = match pass::is_running() {
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
