//! The default device, the host's processor, and the settings of its threads and caches: the only
//! module that names `girih-cpu`.

pub(crate) use girih_cpu::executor_of;
pub(crate) use girih_cpu::give_back_memory;
pub use girih_cpu::{CacheState, Calibration, MappedFile};
#[cfg(feature = "mock")]
pub(crate) use girih_cpu::{HostBackend, HostDevice, check_environment};

use crate::error::{Error, Result};

/// The disk cache of compiled programs of this process, or the reason why there is none.
///
/// Errors: [`crate::Error::Evaluation`] for invalid environment variables.
pub fn cache_on_disk() -> Result<CacheState> {
    Ok(CacheState::of_process(&girih_cpu::HostBackend::default())?)
}

/// The number of threads that kernels may use, including the calling thread.
///
/// Errors: [`crate::Error::Evaluation`] for invalid environment variables.
pub fn num_threads() -> Result<usize> {
    Ok(girih_cpu::num_threads()?)
}

/// The instruction set of kernels: `baseline`, `avx2` or `avx512`.
pub fn instruction_set() -> &'static str {
    girih_cpu::instruction_set()
}

/// The machine's cache sizes and thread latencies, and the tuning parameters computed from them.
///
/// Errors: as [`num_threads`].
pub fn calibration() -> Result<Calibration> {
    Ok(girih_cpu::calibration()?)
}

/// Sets the number of threads that kernels may use, including the calling thread. Results do not
/// depend on the number of threads.
///
/// Errors: [`crate::Error::InvalidArgument`] unless the number is 1 to 1024.
pub fn set_num_threads(threads: usize) -> Result<()> {
    if !(1..=1024).contains(&threads) {
        return Err(Error::InvalidArgument(format!(
            "set_num_threads: expected 1 to 1024 threads, the calling one included, got {threads}"
        )));
    }
    Ok(girih_cpu::set_num_threads(threads)?)
}
