//! The host: Girih's embedded default device and the back end that compiles for it.

mod backend;
mod device;
pub mod pool;

pub use backend::{Explanation, HostBackend, explain};
pub use device::HostDevice;
use girih_kernel::exec::{Bindings, ExecError, Prepared, Scratch};
use girih_runtime::{Executor, Result};
use std::sync::Arc;

/// An executor on the host device.
pub fn executor() -> Result<Executor> {
    Ok(Executor::new(Arc::new(HostDevice::new()?), Box::new(HostBackend)))
}

/// Sets how many threads kernels may use.
pub fn set_num_threads(_: usize) {}

/// A kernel.
pub struct LoadedKernel(Prepared);

impl LoadedKernel {
    /// Prepares.
    pub fn new(kernel: &girih_kernel::Kernel) -> Self {
        LoadedKernel(Prepared::new(kernel))
    }

    /// # Safety
    /// As bindings.
    pub unsafe fn run(&self, bindings: &Bindings<'_>, _: &pool::Pool) -> Result<(), ExecError> {
        let mut ws = vec![0u128; self.0.workspace_bytes() / 16 + 8];
        let bindings = Bindings { workspace: ws.as_mut_ptr().cast(), ..*bindings };
        // SAFETY: forwarded.
        unsafe { self.0.run(&bindings, &mut Scratch::new()) }
    }
}
