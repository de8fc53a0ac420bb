//! What a device is: a trait of few methods. Everything above it is written once for all devices.

use crate::{
    Allocator, Buffer, DeviceHandle, DeviceId, Error, HostBytes, Result, RunControl, StridedCopy,
    Value,
};
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
    /// Whether its memory is the process' own, so that the address of a handle is one of the process.
    pub host_memory: bool,
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
    /// The handle of each buffer, for plans that copy them to the device.
    pub handles: Vec<DeviceHandle>,
    /// Host memory that the steps of the run share.
    pub slots: Option<Arc<[HostBytes]>>,
    /// The memory of temporaries.
    pub temporaries: Option<Arc<Buffer>>,
    /// Stops the run when its time is up or somebody wants it to.
    pub control: RunControl,
    /// Of a plan that another plan calls, the block of the caller: it keeps the memory behind the
    /// addresses, and its control is the run's.
    pub caller: Option<Arc<ArgumentBlock>>,
}

/// The part of an [`ArgumentBlock`] that a launch reads.
#[derive(Clone, Copy)]
pub struct LaunchArguments<'a> {
    /// Device address of each of the program's buffers.
    pub addresses: &'a [u64],
    /// The words of each argument; empty if all are tensors.
    pub words: &'a [[u64; 2]],
    /// The memory of the plan's weights, by buffer of the program.
    pub weights: &'a [(usize, Arc<Buffer>)],
    /// Stops the run.
    pub control: &'a RunControl,
}

impl ArgumentBlock {
    /// What a launch reads.
    pub fn launch(&self) -> LaunchArguments<'_> {
        let ArgumentBlock { addresses, words, weights, .. } = self;
        LaunchArguments { addresses, words, weights, control: self.control() }
    }

    /// The control of the run.
    pub fn control(&self) -> &RunControl {
        self.caller.as_ref().map_or(&self.control, |caller| caller.control())
    }

    /// Host memory that the steps of the run share; empty for most plans.
    pub fn slots(&self) -> &[HostBytes] {
        self.slots.as_deref().unwrap_or_default()
    }
}

/// A processor with memory. Methods may be called from any thread, and block until done: the
/// [`crate::Scheduler`] is what makes them asynchronous and ordered. `queue` is the number of the queue
/// that a piece of work belongs to; work of no queue is done for a thread that waits for it.
pub trait Device: Send + Sync {
    /// Facts about the device.
    fn properties(&self) -> &Properties;

    /// The allocator over the regions the device reserved.
    fn allocator(&self) -> &Arc<Allocator>;

    /// What handles of the device's memory name it by.
    fn id(&self) -> DeviceId {
        self.allocator().device_id()
    }

    /// The address behind a handle.
    ///
    /// Errors: [`crate::Error::InvalidHandle`] unless `size` bytes there are all the device's.
    fn resolve(&self, handle: DeviceHandle, size: usize) -> Result<u64>;

    /// Copies host bytes into device memory.
    fn copy_to_device(
        &self,
        queue: Option<usize>,
        source: &[u8],
        target: DeviceHandle,
    ) -> Result<()>;

    /// Copies device memory to the host.
    fn copy_from_device(
        &self,
        queue: Option<usize>,
        source: DeviceHandle,
        target: &mut [u8],
    ) -> Result<()>;

    /// The first `size` bytes of a value, without a copy; None where the device's memory is not the
    /// process' own, or where somebody else may write the bytes.
    fn view<'a>(&'a self, value: &'a Value, size: usize) -> Option<&'a [u8]> {
        let _ = (value, size);
        None
    }

    /// Copies within the device's memory. Source and target do not overlap. Unless the device does
    /// better, the bytes go through the host.
    ///
    /// Errors: as [`Device::resolve`], also for bytes between those that are copied.
    fn copy_on_device(&self, queue: Option<usize>, copy: &StridedCopy) -> Result<()> {
        let (read, written) = copy.spans();
        self.resolve(copy.source, read)?;
        self.resolve(copy.target, written)?;
        let mut bytes = vec![0; copy.run];
        copy.for_each_run(|source, target| {
            self.copy_from_device(queue, copy.source.offset(source), &mut bytes)?;
            self.copy_to_device(queue, &bytes, copy.target.offset(target))
        })
    }

    /// Time since some moment, for events: that of the host, unless the device has a clock of its own.
    /// Of a queue, when its work so far was done; of none, when the work of all queues was.
    fn clock(&self, queue: Option<usize>) -> Duration {
        let _ = queue;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    /// Tells a device with a clock of its own that the queue's next work begins at that time at the
    /// earliest: it waits for an event or a result of another queue.
    fn wait_until(&self, queue: usize, at: Duration) {
        let _ = (queue, at);
    }

    /// Takes a plan's init packet, once for each device and packet.
    ///
    /// Errors: for packets that the device does not know.
    fn initialize(&self, packet: &[u8]) -> Result<()> {
        let _ = packet;
        Err(Error::Launch {
            operation: "an init packet".into(),
            device: self.properties().name.clone(),
            reason: "the device takes none".into(),
        })
    }

    /// The bytes of a binary that are to lie in device memory when it is loaded; None for devices that
    /// keep programs elsewhere.
    fn image(&self, binary: &Binary) -> Option<Box<[u8]>> {
        let _ = binary;
        None
    }

    /// Makes a binary of this device's back end ready to launch. `image` holds its image, if it has
    /// one; the program keeps the block until it is unloaded, which is when it is dropped.
    fn load(&self, binary: &Binary, image: Option<Arc<Buffer>>) -> Result<LoadedProgram>;

    /// The name of a loaded program, for people.
    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        let _ = program;
        None
    }

    /// Runs a loaded program with these arguments, to its end or until its control stops it.
    ///
    /// Errors: what the control says, if it was stopped.
    fn launch(
        &self,
        queue: Option<usize>,
        program: &LoadedProgram,
        arguments: LaunchArguments<'_>,
    ) -> Result<()>;
}
