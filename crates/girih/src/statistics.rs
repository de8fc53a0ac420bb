//! Counters of compiled programs, of their runs and of device memory.

use crate::{Context, Device, Result};
use girih_record::devices;
use girih_record::eval::executor;
pub use girih_record::statistics::Stats;

/// The counters of this context's executor.
pub fn cache_stats() -> Result<Stats> {
    Ok(Stats::of(&*executor()?))
}

/// Clears the cache of compiled programs.
pub fn clear_cache() -> Result<()> {
    executor()?.clear_cache();
    girih_record::eval::forget_mesh_programs();
    Ok(())
}

/// Resets the peak memory of a device; of the current device for `None`.
///
/// Errors: if the environment variables do not allow the device to be set up.
pub fn reset_peak_memory(device: Option<Device>) -> Result<()> {
    let device = device.unwrap_or_else(|| Context::current().device());
    devices::executor(device)?.runtime().device().allocator().reset_peak();
    Ok(())
}
