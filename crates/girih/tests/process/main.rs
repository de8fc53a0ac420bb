//! Tests of state that belongs to the process: devices, options, the generator's seed. Each test holds
//! a lock, since a test that runs at the same time would change or read that state.

mod allocations;
mod devices;
mod options;
mod placement;
mod random;
mod sharded;
mod training;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the other tests of this program to end.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
