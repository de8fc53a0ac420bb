//! How loops without an end in sight notice that their run is to stop.
//!
//! A chunk takes some dozen microseconds by its size, but some chunks cannot be made that short: the
//! reduction of a row of 2^38 numbers that are computed and not read, a scatter into one element.
//! Such loops count their elements with a [`Pace`], and look at the hook of the thread's run now
//! and then.

use super::ExecError;
use std::cell::Cell;

/// Whether the run of this thread's chunk is to stop.
pub type Stopped = fn() -> bool;

thread_local! {
    static STOPPED: Cell<Option<Stopped>> = const { Cell::new(None) };
}

/// Runs `f`; loops that `f` runs on this thread end with [`ExecError::Stopped`] within milliseconds
/// after `stopped` returns true.
pub fn stoppable<R>(stopped: Stopped, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Stopped>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STOPPED.set(self.0);
        }
    }
    let _restore = Restore(STOPPED.replace(Some(stopped)));
    f()
}

/// The number of elements between two looks: at most some milliseconds of the slowest ops.
const ELEMENTS: usize = 1 << 17;

/// Counts the elements of a loop.
pub(crate) struct Pace {
    left: Cell<usize>,
}

impl Pace {
    pub fn new() -> Pace {
        Pace { left: Cell::new(ELEMENTS) }
    }

    /// Counts elements that are to be processed next.
    ///
    /// Errors: [`ExecError::Stopped`].
    #[inline]
    pub fn step(&self, elements: usize) -> Result<(), ExecError> {
        match self.left.get().checked_sub(elements) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => self.look(),
        }
    }

    #[cold]
    fn look(&self) -> Result<(), ExecError> {
        self.left.set(ELEMENTS);
        match STOPPED.get() {
            Some(stopped) if stopped() => Err(ExecError::Stopped),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_ends_after_its_run_was_stopped_and_only_then() {
        let count = |steps: usize| {
            let pace = Pace::new();
            (0..steps).try_for_each(|_| pace.step(ELEMENTS / 4))
        };
        assert_eq!(count(100), Ok(()), "no run is watched");
        assert_eq!(stoppable(|| false, || count(100)), Ok(()));
        assert_eq!(stoppable(|| true, || count(3)), Ok(()), "not looked yet");
        assert_eq!(stoppable(|| true, || count(100)), Err(ExecError::Stopped));
        assert_eq!(count(100), Ok(()), "the hook is gone");
    }
}
