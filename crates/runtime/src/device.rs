//! The interface of a device: a trait with few methods. Everything above it is shared by all
//! devices.

use crate::{
    Allocator, Buffer, DeviceHandle, DeviceId, Error, HostBytes, Place, PoolId, Result, RunControl,
    Runs, Value,
};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A compiled program of a back end. Only the device that it was compiled for interprets it.
pub type Binary = Arc<dyn Any + Send + Sync>;

/// A program loaded on the device, ready to launch.
pub type LoadedProgram = Arc<dyn Any + Send + Sync>;

/// Properties of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// A name for users, such as `cpu`.
    pub name: String,
    /// A text that identifies the target of compilation, such as the instruction set. Part of the
    /// program cache's key.
    pub target: String,
    /// The number of bytes of memory that the device may use.
    pub memory_bytes: usize,
    /// The maximum number of concurrent submissions, each of another queue.
    pub concurrency: usize,
    /// Whether copies from and to the host have engines of their own, so that they overlap with
    /// launches even if the concurrency is 1.
    pub copy_engines: bool,
    /// Whether the device's memory is host memory, so that its addresses are addresses of the
    /// process.
    pub host_memory: bool,
}

/// The arguments of a run: the address of every buffer of the program and the words of its scalar
/// arguments. Each run has its own. Only binding makes one ([`crate::PlanExecutor::bind`]), and it
/// serves only the plan for which it was made:
///
/// ```compile_fail,E0451
/// fn forged(block: girih_runtime::ArgumentBlock) -> girih_runtime::ArgumentBlock {
///     girih_runtime::ArgumentBlock { addresses: [0x1000].as_slice().into(), ..block }
/// }
/// ```
#[derive(Debug, Default)]
pub struct ArgumentBlock {
    /// The number of the plan that the block was bound for; 0 for no plan.
    pub(crate) plan: u64,
    /// The pool whose addresses these are.
    pub(crate) pool: PoolId,
    /// The device address of each of the program's buffers.
    pub(crate) addresses: SmallVec<[u64; 16]>,
    /// For each argument: the bits of a scalar and 0, or the key and offset of a random leaf.
    pub(crate) words: SmallVec<[[u64; 2]; 8]>,
    /// Buffers that keep the memory behind the addresses alive until the last launch is done.
    pub(crate) buffers: SmallVec<[Arc<Buffer>; 8]>,
    /// The memory of the plan's weights, with the index of the program's buffer.
    pub(crate) weights: SmallVec<[(usize, Arc<Buffer>); 2]>,
    /// The handle of each buffer, for plans that copy handles to the device.
    pub(crate) handles: Vec<DeviceHandle>,
    /// Host memory that the steps of the run share.
    pub(crate) slots: Option<Arc<[HostBytes]>>,
    /// The block of temporaries.
    pub(crate) temporaries: Option<Arc<Buffer>>,
    /// Stops the run at its time limit or on request.
    pub(crate) control: RunControl,
    /// If another plan calls this plan, the block of the caller: it keeps the memory behind the
    /// addresses alive, and its control is the run's.
    pub(crate) caller: Option<Arc<ArgumentBlock>>,
}

/// A launch of a loaded program with the arguments that were bound for its plan. Streams make it;
/// a device runs it or passes it on to a device that it wraps.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    program: &'a LoadedProgram,
    pool: PoolId,
    addresses: &'a [u64],
    words: &'a [[u64; 2]],
    weights: &'a [(usize, Arc<Buffer>)],
    control: &'a RunControl,
}

impl<'a> Launch<'a> {
    /// The program.
    pub fn program(&self) -> &'a LoadedProgram {
        self.program
    }

    /// The pool of the device memory that the addresses belong to.
    pub fn pool(&self) -> PoolId {
        self.pool
    }

    /// The device address of each of the program's buffers; 0 for a buffer without memory.
    pub fn addresses(&self) -> &'a [u64] {
        self.addresses
    }

    /// The words of each argument: the bits of a scalar and 0, or the key and offset of a random
    /// leaf. Empty if all arguments are tensors.
    pub fn words(&self) -> &'a [[u64; 2]] {
        self.words
    }

    /// The memory of the plan's weights, with the index of the program's buffer.
    pub fn weights(&self) -> &'a [(usize, Arc<Buffer>)] {
        self.weights
    }

    /// Stops the run.
    pub fn control(&self) -> &'a RunControl {
        self.control
    }

    /// The launch of another program with the same scalars on a device whose memory this device
    /// uses as its own. There are no weights.
    ///
    /// # Safety
    /// Each address but 0 is one of `device` with as many bytes as the program may touch there, which
    /// nobody else uses meanwhile.
    #[allow(unsafe_code, reason = "a device that computes in the memory of another vouches for it")]
    pub unsafe fn on<'b>(
        &self,
        device: &dyn Device,
        program: &'b LoadedProgram,
        addresses: &'b [u64],
    ) -> Launch<'b>
    where
        'a: 'b,
    {
        let pool = device.allocator().pool_id();
        Launch { program, pool, addresses, weights: &[], ..*self }
    }
}

impl ArgumentBlock {
    /// A launch of a program of the plan that the block was bound for.
    pub(crate) fn launch<'a>(&'a self, program: &'a LoadedProgram) -> Launch<'a> {
        let ArgumentBlock { pool, addresses, words, weights, .. } = self;
        Launch { program, pool: *pool, addresses, words, weights, control: self.control() }
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

/// How kernels were divided among threads; no clock is involved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// The number of chunks, the parts of kernels that threads may run independently.
    pub chunks: u64,
    /// The number of chunks that ran on other threads than the one that launched the kernel.
    pub chunks_of_workers: u64,
}

impl ChunkCounts {
    /// No chunks.
    pub const NONE: ChunkCounts = ChunkCounts { chunks: 0, chunks_of_workers: 0 };
}

impl std::ops::Add for ChunkCounts {
    type Output = ChunkCounts;

    fn add(self, other: ChunkCounts) -> ChunkCounts {
        let ChunkCounts { chunks, chunks_of_workers } = other;
        ChunkCounts {
            chunks: self.chunks + chunks,
            chunks_of_workers: self.chunks_of_workers + chunks_of_workers,
        }
    }
}

impl std::ops::Sub for ChunkCounts {
    type Output = ChunkCounts;

    /// The chunks since earlier counts.
    fn sub(self, earlier: ChunkCounts) -> ChunkCounts {
        let ChunkCounts { chunks, chunks_of_workers } = earlier;
        ChunkCounts {
            chunks: self.chunks.saturating_sub(chunks),
            chunks_of_workers: self.chunks_of_workers.saturating_sub(chunks_of_workers),
        }
    }
}

/// A processor with memory. Methods may be called from any thread, and block until done: the
/// [`crate::Scheduler`] makes them asynchronous and ordered. `queue` is the number of the queue of
/// the work; `None` for work that the calling thread waits for.
pub trait Device: Send + Sync {
    /// The properties of the device.
    fn properties(&self) -> &Properties;

    /// The allocator of the device's memory.
    fn allocator(&self) -> &Arc<Allocator>;

    /// The id of the device in handles to its memory.
    fn id(&self) -> DeviceId {
        self.allocator().device_id()
    }

    /// Copies host bytes to the start of a place in device memory. Nothing else writes there
    /// meanwhile.
    ///
    /// Errors: [`Error::InvalidHandle`] for a place of another device, or with fewer bytes.
    fn copy_to_device(&self, queue: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()>;

    /// Copies the start of a place in device memory to the host.
    ///
    /// Errors: as [`Device::copy_to_device`].
    fn copy_from_device(
        &self,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()>;

    /// The first `size` bytes of a value, without a copy; `None` if the device's memory is not host
    /// memory, or if another owner may write the bytes.
    fn view<'a>(&'a self, value: &'a Value, size: usize) -> Option<&'a [u8]> {
        let _ = (value, size);
        None
    }

    /// Copies runs of bytes from one place in the device's memory to another one. The places must
    /// not overlap. The default implementation copies through host memory.
    ///
    /// Errors: as [`Device::copy_to_device`], for the whole spans from the first to the last byte
    /// accessed.
    fn copy_on_device(
        &self,
        queue: Option<usize>,
        (source, target): (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        let (read, written) = runs.spans();
        let name = || self.properties().name.clone();
        let (source, target) = (source.inside(0, read, name)?, target.inside(0, written, name)?);
        let mut bytes = vec![0; runs.run];
        runs.for_each(|from, to| {
            self.copy_from_device(queue, source.inside(from, runs.run, name)?, &mut bytes)?;
            self.copy_to_device(queue, &bytes, target.inside(to, runs.run, name)?)
        })
    }

    /// The time for events: the host's clock, unless the device has a clock of its own. With a
    /// queue, the time when the queue's work so far was done; with `None`, when the work of all
    /// queues was done.
    fn clock(&self, queue: Option<usize>) -> Duration {
        let _ = queue;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }

    /// Tells a device with a clock of its own that the queue's next work starts at that time at the
    /// earliest, because it waits for an event or a result of another queue.
    fn wait_until(&self, queue: usize, at: Duration) {
        let _ = (queue, at);
    }

    /// Processes a plan's init packet. Called once per device and packet.
    ///
    /// Errors: for packets that the device does not support.
    fn initialize(&self, packet: &[u8]) -> Result<()> {
        let _ = packet;
        Err(Error::Launch {
            operation: "an init packet".into(),
            device: self.properties().name.clone(),
            reason: "the device takes none".into(),
        })
    }

    /// Prepares resources, such as threads and pages of memory, that the first launches would
    /// otherwise wait for.
    ///
    /// Errors: those of the device.
    fn warm_up(&self) -> Result<()> {
        Ok(())
    }

    /// Counts of the chunks of all kernels so far; nothing for devices that do not count them.
    fn chunk_counts(&self) -> ChunkCounts {
        ChunkCounts::NONE
    }

    /// Counts of the chunks of the kernels that the calling thread has launched.
    fn chunk_counts_of_thread(&self) -> ChunkCounts {
        ChunkCounts::NONE
    }

    /// The bytes of a binary to copy to device memory before it is loaded; `None` for devices that
    /// do not keep programs in device memory.
    fn image(&self, binary: &Binary) -> Option<Box<[u8]>> {
        let _ = binary;
        None
    }

    /// For each buffer of its program, the number of bytes that a binary may access; buffers after
    /// the last entry are not accessed. A plan whose buffers are smaller is not loaded. `None` for
    /// devices that check each access.
    fn accessed_bytes<'a>(&self, binary: &'a Binary) -> Option<&'a [usize]> {
        let _ = binary;
        None
    }

    /// Loads a binary of this device's back end. `image` has the binary's image, if there is one;
    /// the program owns the block until the program is dropped, which unloads it.
    fn load(&self, binary: &Binary, image: Option<Arc<Buffer>>) -> Result<LoadedProgram>;

    /// The name of a loaded program, for users.
    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        let _ = program;
        None
    }

    /// Runs a loaded program with its arguments until it ends or its control stops it.
    ///
    /// Errors: the failure of the program; the control's error, if it stopped the program.
    fn launch(&self, queue: Option<usize>, launch: Launch<'_>) -> Result<()>;
}
