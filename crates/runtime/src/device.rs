//! The interface of a device: a trait with few methods. Everything above it is shared by all
//! devices.

use crate::{
    Allocator, Buffer, Completion, DeviceHandle, DeviceId, Error, HostBytes, Place, PoolId, Result,
    RunControl, Runs, Value,
};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::{Arc, LazyLock, PoisonError};
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
    /// Whether the device has queues of its own: [`Device::enqueue`] returns before the work is done.
    pub own_queues: bool,
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
    /// The arguments, if the launch may outlive the call that passes it.
    shared: Option<&'a Arc<ArgumentBlock>>,
}

/// A launch that a device keeps until it runs it.
pub struct DetachedLaunch {
    program: LoadedProgram,
    arguments: Arc<ArgumentBlock>,
}

impl DetachedLaunch {
    /// The launch.
    pub fn launch(&self) -> Launch<'_> {
        ArgumentBlock::shared_launch(&self.arguments, &self.program)
    }
}

impl<'a> Launch<'a> {
    /// The launch for a device that runs it after [`Device::enqueue`] has returned; `None` if a caller
    /// waits for the launch on a device without queues of its own, or if another device passed it on.
    pub fn detach(&self) -> Option<DetachedLaunch> {
        let arguments = self.shared?.clone();
        Some(DetachedLaunch { program: self.program.clone(), arguments })
    }

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
        Launch { program, pool, addresses, weights: &[], shared: None, ..*self }
    }
}

impl ArgumentBlock {
    /// A launch of a program of the plan that the block was bound for.
    pub(crate) fn launch<'a>(&'a self, program: &'a LoadedProgram) -> Launch<'a> {
        let ArgumentBlock { pool, addresses, words, weights, .. } = self;
        let (pool, control) = (*pool, self.control());
        Launch { program, pool, addresses, words, weights, control, shared: None }
    }

    /// As [`ArgumentBlock::launch`], of a block that the device may keep.
    pub(crate) fn shared_launch<'a>(
        block: &'a Arc<ArgumentBlock>,
        program: &'a LoadedProgram,
    ) -> Launch<'a> {
        Launch { shared: Some(block), ..block.launch(program) }
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

/// The position of a primitive: its queue, and its number among all primitives of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The number of the queue on its device.
    pub queue: usize,
    /// The number of the primitive in its queue, from 0. It never decreases; primitives that a
    /// failure skipped have none.
    pub number: u64,
}

/// A primitive: the unit of work that queues enqueue on a device.
pub enum Primitive<'a> {
    /// Copies host bytes to the start of a place in device memory. The bytes are the caller's: the
    /// device has read them when [`Device::enqueue`] returns.
    CopyToDevice {
        /// The bytes.
        source: &'a [u8],
        /// The target of the copy.
        target: Place<'a>,
    },
    /// Copies the start of a place in device memory to host memory, and fills it.
    CopyFromDevice {
        /// The source of the copy.
        source: Place<'a>,
        /// The target of the copy.
        target: &'a HostBytes,
    },
    /// Copies within the device.
    CopyOnDevice {
        /// The source of the copy.
        source: Place<'a>,
        /// The target of the copy.
        target: Place<'a>,
        /// The runs of bytes from the start of both places.
        runs: &'a Runs,
    },
    /// Launches a program.
    Launch(Launch<'a>),
}

impl Primitive<'_> {
    /// Does the work at once, by the methods of the device that block.
    ///
    /// Errors: the failure of the work.
    #[inline]
    pub fn run<D: Device + ?Sized>(self, device: &D, at: Position) -> Result<Enqueued> {
        let queue = Some(at.queue);
        match self {
            Primitive::Launch(launch) => device.launch(queue, launch),
            Primitive::CopyToDevice { source, target } => {
                device.copy_to_device(queue, source, target)
            }
            Primitive::CopyFromDevice { source, target } => {
                with_bytes(target, |bytes| device.copy_from_device(queue, source, bytes))
            }
            Primitive::CopyOnDevice { source, target, runs } => {
                device.copy_on_device(queue, (source, target), runs)
            }
        }?;
        Ok(Enqueued::Done)
    }
}

/// The state of a primitive that has been enqueued.
#[derive(Clone, Debug)]
#[must_use = "work that is outstanding uses memory that has to live until it is done"]
pub enum Enqueued {
    /// The work is done.
    Done,
    /// The device does the work later, and finishes the completion then.
    Outstanding(Arc<Completion>),
}

impl Enqueued {
    /// Waits until the work is done.
    ///
    /// Errors: its failure.
    pub fn wait(self) -> Result<()> {
        match self {
            Enqueued::Done => Ok(()),
            Enqueued::Outstanding(completion) => completion.wait(),
        }
    }
}

impl IntoIterator for Enqueued {
    type Item = Arc<Completion>;
    type IntoIter = std::option::IntoIter<Arc<Completion>>;

    /// The completion of work that is outstanding.
    fn into_iter(self) -> Self::IntoIter {
        match self {
            Enqueued::Done => None.into_iter(),
            Enqueued::Outstanding(completion) => Some(completion).into_iter(),
        }
    }
}

/// A processor with memory. Methods may be called from any thread.
///
/// Queues call [`Device::enqueue`], which need not wait. The other methods that do work, those with
/// an optional number of a queue, block until the work is done; `None` means that the calling thread
/// waits for the work. A device without queues of its own implements these alone: the
/// [`crate::Scheduler`] makes its work asynchronous and ordered.
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

    /// Takes the next primitive of a queue. A device with queues of its own
    /// ([`Properties::own_queues`]) returns [`Enqueued::Outstanding`] and does the work later: the
    /// primitives of each queue in the order of their numbers, and no order between queues. The
    /// runtime keeps the memory of places and arguments until the completion has an outcome. Work
    /// that follows a failed primitive of its queue may run or not.
    ///
    /// The default does the work at once, by the methods that block.
    ///
    /// Errors: the failure of work that was done at once, or cannot be enqueued.
    #[inline]
    fn enqueue(&self, at: Position, work: Primitive<'_>) -> Result<Enqueued> {
        work.run(self, at)
    }
}

/// Calls `copy` with the bytes of shared host memory, without holding its lock: the device may copy
/// with several threads.
pub fn with_bytes<T>(memory: &HostBytes, copy: impl FnOnce(&mut [u8]) -> T) -> T {
    let locked = || memory.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = std::mem::take(&mut *locked());
    let copied = copy(&mut bytes);
    *locked() = bytes;
    copied
}
