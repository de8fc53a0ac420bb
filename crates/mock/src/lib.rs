//! Devices for tests: for tests of all code above a device, and of programs for hardware that is
//! not available.
//!
//! - [`MockAccelerator`]: has its own memory and addresses, latency, bandwidth, several engines and
//!   a virtual clock. Kernels run on the host's processor, through the device that it wraps.
//! - [`NullDevice`]: checks every handle, address and size, and runs nothing.
//! - [`Faulty`]: wraps any device and injects errors, hangs and corrupted bytes.
//! - [`Checksummed`]: wraps any device, and reads copies again to compare them.
#![deny(unsafe_code)]

pub mod accelerator;
mod backend;
pub mod fault;
mod memory;
mod null;
mod queues;
pub mod timeline;
mod wrapper;

pub use accelerator::{LaunchTime, MemoryMode, MockAccelerator, MockConfig, Pace};
pub use backend::MockBackend;
pub use fault::{Checksummed, Fault, Faulty};
pub use null::NullDevice;
pub use timeline::{Engine, Slot};
pub use wrapper::{Hooks, Wrapped};
