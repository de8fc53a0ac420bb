//! The host: Girih's embedded default device and the back end that compiles for it.
//!
//! [`HostBackend`] compiles a closed graph to a plan of kernels: the pipeline of `girih-compile`
//! with [`HostCodeGen`], which compiles single kernels. [`HostDevice`] runs the plan.
//! [`LoadedKernel`] is one kernel that is ready to run. Maps, reductions and scatters run in the
//! portable executor, with generated code for chains of loops. `strategy` chooses how a GEMM is
//! multiplied: in generated micro-kernels, by the `gemm` crate, or in the portable executor. The
//! kernel's epilogue runs on each part of a GEMM while the part is in the cache. The division of
//! work does not depend on the number of threads of the [`Pool`], so results do not depend on it
//! either.

mod affinity;
mod bottleneck;
mod cache_directory;
mod calibration;
mod checked;
mod codegen;
mod compiler;
mod device;
mod dims;
mod disassembly;
#[cfg(all(test, target_arch = "x86_64"))]
mod dump;
mod file;
#[cfg(target_arch = "x86_64")]
mod gemm;
#[cfg(target_arch = "x86_64")]
mod jit;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_jit.rs"]
mod jit;
mod kernel;
mod library_gemm;
mod memory;
pub mod pool;
mod prepacked;
mod strategy;
mod threads;
mod wait;

pub use cache_directory::CacheState;
pub use calibration::Calibration;
pub use codegen::{HostCodeGen, HostProgram};
pub use device::HostDevice;
pub use file::MappedFile;
pub use kernel::LoadedKernel;
pub use pool::{InvalidThreads, Pool};

use girih_exec::Isa;
use girih_exec::tuning;
use girih_runtime::env::flag;
use girih_runtime::{Error, PlanExecutor, Result};
use girih_sync::OnceLock;
use std::sync::Arc;

/// The back end that compiles for the host.
pub type HostBackend = girih_compile::Pipeline<HostCodeGen>;

/// An executor on the host device.
///
/// Errors: [`Error::Configuration`] for invalid environment variables.
pub fn executor() -> Result<PlanExecutor> {
    executor_of(0)
}

/// An executor on the host device with that number: see [`HostDevice::numbered`].
///
/// Errors: as [`executor`].
pub fn executor_of(number: usize) -> Result<PlanExecutor> {
    check_environment()?;
    let disk = cache_directory::open(&HostBackend::default())?;
    let device = HostDevice::numbered(number)?;
    if number == 0 {
        device.touch_later();
    }
    Ok(PlanExecutor::new(Arc::new(device), Arc::new(HostBackend::default()), disk))
}

/// Fails for invalid environment variables of this crate. Computes the tuning parameters, which may
/// calibrate the machine.
///
/// Errors: [`Error::Configuration`].
pub fn check_environment() -> Result<()> {
    for variable in ["GIRIH_JIT", "GIRIH_PERF_MAP", "GIRIH_GDB", checked::VARIABLE] {
        flag(&[variable])?;
    }
    calibration::install()?;
    Isa::from_env().map(drop).map_err(|value| Error::Configuration {
        variable: Isa::VARIABLE,
        value,
        expected: Isa::EXPECTED,
    })
}

/// The process' kernel threads, started when first needed.
fn pool() -> Result<&'static Pool> {
    static POOL: OnceLock<Result<Pool, InvalidThreads>> = OnceLock::new();
    calibration::install()?;
    POOL.get_or_init(Pool::from_env).as_ref().map_err(|error| Error::Configuration {
        variable: "GIRIH_NUM_THREADS",
        value: error.value.clone(),
        expected: "a whole number of threads from 1 to 1024",
    })
}

/// The number of threads that kernels may use, including the calling thread.
///
/// Errors: as [`executor`].
pub fn num_threads() -> Result<usize> {
    Ok(pool()?.num_threads())
}

/// The instruction set that kernels use: `baseline`, `avx2` or `avx512`.
pub fn instruction_set() -> &'static str {
    Isa::best().name()
}

/// The calibration that this process uses.
///
/// Errors: as [`executor`].
pub fn calibration() -> Result<Calibration> {
    calibration::install()?;
    let (machine, parameters) = (tuning::machine().clone(), tuning::tuning().entries());
    Ok(Calibration { machine, parameters, file: calibration::file() })
}

/// Sets the number of threads that kernels may use, including the calling thread (at least 1).
///
/// Errors: as [`executor`].
pub fn set_num_threads(threads: usize) -> Result<()> {
    pool()?.set_num_threads(threads.max(1));
    Ok(())
}

/// Makes the system's allocator return free pages to the system, if it supports that.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes no pointer, and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
