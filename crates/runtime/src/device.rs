//! What a device is: a trait of few methods. Everything above it is written once for all devices.

use crate::{Allocator, Buffer, DeviceHandle, Result, RunControl};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A compiled program as its back end made it; only the device it was made for looks inside.
pub type Binary = Arc<dyn Any + Send + Sync>;

/// A program on the device, ready to launch.
pub type LoadedProgram = Arc<dyn Any + Send + Sync>;

/// Facts about a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// Name for people: `cpu`.
    pub name: String,
    /// What distinguishes programs compiled for it: instruction set and the like. Part of the
    /// program cache's key.
    pub target: String,
    /// Bytes of memory it may use.
    pub memory_bytes: usize,
    /// Most submissions, each of its own queue, that it runs at once.
    pub concurrency: usize,
}

/// What a launch is given: the address of every buffer of the program and the words of its scalar
/// arguments. Filled anew for each run and never shared by runs in flight.
#[derive(Debug, Default)]
pub struct ArgumentBlock {
    /// Device address of each of the program's buffers.
    pub addresses: SmallVec<[u64; 16]>,
    /// Per argument: the bits of a scalar and 0, or key and offset of a random leaf.
    pub words: SmallVec<[[u64; 2]; 8]>,
    /// Keeps the memory behind the addresses until the last launch is done.
    pub buffers: SmallVec<[Arc<Buffer>; 8]>,
    /// The memory of the plan's weights, by buffer of the program.
    pub weights: SmallVec<[(usize, Arc<Buffer>); 2]>,
    /// The memory of temporaries.
    pub temporaries: Option<Arc<Buffer>>,
    /// Stops the run when its time is up or somebody wants it to.
    pub control: RunControl,
}

/// A processor with memory. Methods may be called from any thread, and block until done: the
/// [`crate::Scheduler`] is what makes them asynchronous and ordered.
pub trait Device: Send + Sync {
    /// Facts about the device.
    fn properties(&self) -> &Properties;

    /// The allocator over the regions the device reserved.
    fn allocator(&self) -> &Arc<Allocator>;

    /// The address behind a handle.
    ///
    /// Errors: [`crate::Error::InvalidHandle`] if `size` bytes there are not all the device's.
    fn resolve(&self, handle: DeviceHandle, size: usize) -> Result<u64>;

    /// Copies host bytes into device memory.
    fn copy_to_device(&self, source: &[u8], target: DeviceHandle) -> Result<()>;

    /// Copies device memory to the host.
    fn copy_from_device(&self, source: DeviceHandle, target: &mut [u8]) -> Result<()>;

    /// Time since some moment, for events: that of the host, unless the device has a clock of its own.
    fn clock(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    /// Makes a binary of this device's back end ready to launch.
    fn load(&self, binary: &Binary) -> Result<LoadedProgram>;

    /// The name of a loaded program, for people.
    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        let _ = program;
        None
    }

    /// Runs a loaded program with these arguments, to its end or until its control stops it.
    ///
    /// Errors: what the control says, if it was stopped.
    fn launch(&self, program: &LoadedProgram, arguments: &ArgumentBlock) -> Result<()>;
}
