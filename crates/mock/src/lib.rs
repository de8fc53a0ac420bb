//! Devices for tests of everything above a device, and of programs that will run on hardware that is
//! not there.
//!
//! - [`MockAccelerator`]: memory and addresses of its own, latency, bandwidth, several engines, a
//!   virtual clock. Kernels run on the host's processor, through the device it wraps.
//! - [`NullDevice`]: checks every handle, address and size, and runs nothing.
//! - [`Faulty`]: any device, with errors, hangs and corrupted bytes where they are asked for.
//! - [`Checksummed`]: any device, whose copies are read again and compared.
#![forbid(unsafe_code)]

pub mod accelerator;
mod backend;
pub mod fault;
mod memory;
mod null;
pub mod timeline;
mod wrapper;

pub use accelerator::{LaunchTime, MemoryMode, MockAccelerator, MockConfig, Pace};
pub use backend::MockBackend;
pub use fault::{Checksummed, Fault, Faulty};
pub use null::NullDevice;
pub use timeline::{Engine, Slot};
pub use wrapper::{Hooks, Wrapped};
