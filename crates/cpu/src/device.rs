//! The host device: its memory is a reserved address range of the process, and launches run on the
//! calling thread and the kernel pool.

use crate::affinity::available;
use crate::memory::{Memory, affordable, default_size, free_addresses};
use crate::pool::watched;
use crate::prepacked::{LaunchWeights, PrepackedBytes};
use crate::{HostProgram, Pool};
use girih_exec::tuning::tuning;
use girih_exec::{Bindings, ExecError};
use girih_runtime::env;
use girih_runtime::{
    Allocator, Binary, Buffer, Device, DeviceId, Error, Launch, LoadedProgram, Place, Properties,
    Result, Runs, Value,
};
use std::sync::Arc;

/// The CPU of this process as a device.
pub struct HostDevice {
    properties: Properties,
    allocator: Arc<Allocator>,
    pool: &'static Pool,
    /// The memory that the allocator's addresses point into.
    memory: Arc<Memory>,
    prepacked: PrepackedBytes,
}

/// The environment variable that limits the device's memory.
const MEMORY_LIMIT: &str = "GIRIH_MEMORY_LIMIT";

/// The smallest default size of the memory, in bytes.
const LEAST_MEMORY: usize = 16 << 20;

/// The smallest part of a copy for which a thread is woken, in bytes.
const SMALLEST_PART: usize = 1 << 20;
/// The approximate bandwidth of a copy by one thread.
const BYTES_PER_NS: usize = 8;

impl HostDevice {
    /// The host with the process' kernel threads; see [`HostDevice::new`].
    ///
    /// Errors: also [`Error::Configuration`] for an invalid number of threads.
    pub fn of_process() -> Result<HostDevice> {
        HostDevice::new(crate::pool()?)
    }

    /// The host device with that number: further devices on the same CPU have memory and queues of
    /// their own, for testing programs for several devices. All of them share the process' kernel
    /// threads.
    ///
    /// Errors: as [`HostDevice::of_process`].
    pub fn numbered(number: usize) -> Result<HostDevice> {
        match number {
            0 => HostDevice::of_process(),
            _ => HostDevice::with(crate::pool()?, DeviceId::unique(), format!("cpu:{number}")),
        }
    }

    /// The host device. Its memory is as large as the memory of the machine or of the container
    /// around the process, or has the size in `GIRIH_MEMORY_LIMIT` (bytes, or a number with K, M or
    /// G). In a process whose addresses are limited (`ulimit -v`, `ulimit -d`), it is smaller.
    ///
    /// Errors: [`Error::Configuration`] for an invalid limit; [`Error::Launch`] if the address
    /// range cannot be reserved.
    pub fn new(pool: &'static Pool) -> Result<HostDevice> {
        HostDevice::with(pool, DeviceId::HOST, "cpu".into())
    }

    fn with(pool: &'static Pool, id: DeviceId, name: String) -> Result<HostDevice> {
        let limit = env::parsed(
            MEMORY_LIMIT,
            |text| env::parse_bytes(text).and_then(whole_pages),
            "a number of bytes, such as 8000000000 or 8G, below 2^63",
        )?;
        let (memory, size) = reserve(limit).map_err(|(size, error)| {
            let free = match free_addresses() {
                usize::MAX => String::new(),
                free => format!(", and {free} are free (ulimit -v, ulimit -d)"),
            };
            let reason = match limit {
                Some(_) => format!("{size} bytes: {error}{free}; set {MEMORY_LIMIT} to less"),
                None => format!("the least that is useful are {size} bytes{free}: {error}"),
            };
            Error::Launch { operation: "reserving memory".into(), device: name.clone(), reason }
        })?;
        let allocator = Allocator::new(id, name.as_str(), &[size]);
        memory.place(&allocator);
        Ok(HostDevice {
            properties: Properties {
                name,
                target: format!("cpu/{}", std::env::consts::ARCH),
                memory_bytes: size,
                // Each waiting thread runs its own queue.
                concurrency: usize::MAX,
                copy_engines: false,
                own_queues: false,
                host_memory: true,
            },
            allocator,
            pool,
            memory: Arc::new(memory),
            prepacked: PrepackedBytes::default(),
        })
    }

    /// Copies bytes, large copies on all threads of the pool: one thread does not saturate the
    /// memory bandwidth, and several threads commit pages faster.
    ///
    /// # Safety
    /// As for `std::ptr::copy_nonoverlapping`.
    unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) -> Result<()> {
        if len < 2 * SMALLEST_PART {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            return Ok(());
        }
        // Use the smallest number of parts that keeps the threads busy: the system's copy uses
        // non-temporal stores for parts that are larger than the caches.
        let parts = (len / SMALLEST_PART).min(4 * self.pool.num_threads());
        let part = len.div_ceil(parts).next_multiple_of(4096);
        let (from, to) = (from as usize, to as usize);
        let copied = self.pool.run(parts, (len / BYTES_PER_NS) as u64, &|i, _| {
            let at = (i * part).min(len);
            let size = part.min(len - at);
            // SAFETY: the part lies within the range that the caller vouches for; parts do not
            // overlap.
            unsafe {
                let (from, to) = ((from + at) as *const u8, (to + at) as *mut u8);
                std::ptr::copy_nonoverlapping(from, to, size);
            }
            Ok(())
        });
        copied.map_err(|error| Error::Launch {
            operation: "copy".into(),
            device: self.properties.name.clone(),
            reason: error.to_string(),
        })
    }

    /// Starts a thread that touches the first pages of the memory, so that the first programs cause
    /// no page faults there. On one processor this would have no benefit.
    pub(crate) fn touch_later(&self) {
        if available() > 1 {
            self.memory.touch_later(tuning().early_bytes);
        }
    }

    /// The number of bytes of all prepacked weights.
    pub(crate) fn prepacked_bytes(&self) -> &PrepackedBytes {
        &self.prepacked
    }
}

/// Reserves memory of that size, or of the default size; returns the memory with its size. If the
/// system does not provide the default size, less will do.
///
/// Errors: the size and the error of the last attempt.
fn reserve(limit: Option<usize>) -> std::result::Result<(Memory, usize), (usize, std::io::Error)> {
    let ahead = affordable(tuning().touched_bytes.max(tuning().early_bytes));
    let mut size = limit.unwrap_or_else(|| default_size().max(LEAST_MEMORY));
    loop {
        size = whole_pages(size).unwrap_or(size);
        match Memory::reserve(size, ahead) {
            Ok(memory) => return Ok((memory, size)),
            Err(_) if limit.is_none() && size > LEAST_MEMORY => size = (size / 2).max(LEAST_MEMORY),
            Err(error) => return Err((size, error)),
        }
    }
}

/// Rounds up to whole huge pages; `None` if the result exceeds an address space.
fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(1 << 21).filter(|&bytes| bytes <= isize::MAX as usize)
}

impl Device for HostDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn view<'a>(&'a self, value: &'a Value, size: usize) -> Option<&'a [u8]> {
        if !value.is_pooled() {
            return None;
        }
        let address = value.address(size, self).ok()? as *const u8;
        // SAFETY: `address` checked that the bytes are the value's block, which the pool gives to
        // nobody else while the value lives, in memory that lives as long as the device. Values do
        // not change: a run writes its own blocks, or blocks that only it has.
        Some(unsafe { std::slice::from_raw_parts(address, size) })
    }

    fn copy_to_device(&self, _: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        let address = target.address(source.len(), self)? as *mut u8;
        // SAFETY: a place is inside of a live block, and `address` checked that it is one of this
        // device with as many bytes; nothing else writes the block meanwhile, and host slices never
        // alias the device's range.
        unsafe { self.copy(source.as_ptr(), address, source.len()) }
    }

    fn copy_from_device(
        &self,
        _: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        let address = source.address(target.len(), self)? as *const u8;
        // SAFETY: as in `copy_to_device`, with source and target exchanged.
        unsafe { self.copy(address, target.as_mut_ptr(), target.len()) }
    }

    fn copy_on_device(
        &self,
        _: Option<usize>,
        (source, target): (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        let (read, written) = runs.spans();
        let (from, to) = (source.address(read, self)?, target.address(written, self)?);
        runs.for_each(|source, target| {
            let (from, to) = (from + source as u64, to + target as u64);
            // SAFETY: `address` checked that all runs lie in the two places, which are inside of
            // live blocks of this device and do not overlap; nothing else writes the target.
            unsafe { self.copy(from as *const u8, to as *mut u8, runs.run) }
        })
    }

    fn warm_up(&self) -> Result<()> {
        self.pool.start();
        self.memory.touch();
        Ok(())
    }

    fn accessed_bytes<'a>(&self, binary: &'a Binary) -> Option<&'a [usize]> {
        binary.downcast_ref::<HostProgram>().map(|program| &*program.bytes)
    }

    fn load(&self, binary: &Binary, _: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        Ok(binary.clone())
    }

    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        program.downcast_ref::<HostProgram>().map(|program| program.name.as_str())
    }

    fn launch(&self, _: Option<usize>, launch: Launch<'_>) -> Result<()> {
        let refused = |reason: &str| Error::Launch {
            operation: "launch".into(),
            device: self.properties.name.clone(),
            reason: reason.into(),
        };
        let Some(program) = launch.program().downcast_ref::<HostProgram>() else {
            return Err(refused("the program was compiled for another device"));
        };
        if launch.pool() != self.allocator.pool_id() {
            return Err(refused("the arguments are in the memory of another device"));
        }
        // On the host, the argument block is the pointer table.
        const { assert!(size_of::<*mut u8>() == size_of::<u64>()) };
        let buffers = launch.addresses();
        // SAFETY: the assertion above; any bits are a valid raw pointer.
        let buffers: &[*mut u8] =
            unsafe { std::slice::from_raw_parts(buffers.as_ptr().cast(), buffers.len()) };
        let bindings = Bindings {
            buffers,
            arguments: launch.words(),
            workspace: std::ptr::null_mut(),
            bounds: program.bounds.as_deref(),
        };
        let store = LaunchWeights { device: self, weights: launch.weights() };
        let outcome = watched(launch.control(), || {
            // SAFETY: only the runtime makes launches. It bound each buffer of the program's plan to
            // a block of this pool, of at least the buffer's size, that stays alive during the
            // launch, and no other launch writes it meanwhile.
            unsafe { program.kernel.run_with_prepacked(&bindings, self.pool, Some(&store)) }
        });
        outcome.map_err(|error| match error {
            ExecError::Stopped => launch.control().error(&program.name),
            ExecError::LabelOutOfRange { label, classes } => {
                let (operation, label) = (program.name.clone(), label.into());
                Error::LabelOutOfRange { operation, label, classes }
            }
            ExecError::IndexOutOfBounds { index, size } => {
                let (operation, index) = (program.name.clone(), index.into());
                Error::IndexOutOfBounds { operation, index, size }
            }
            fault @ (ExecError::OutsideOfBuffer { .. } | ExecError::Overwritten { .. }) => {
                let (operation, device) = (program.name.clone(), self.properties.name.clone());
                Error::MemoryFault { operation, device, fault: fault.to_string() }
            }
            ExecError::Linalg { op, reason } => Error::Linalg { operation: op.into(), reason },
            ExecError::Host(failure) => Error::Host(failure),
            error => Error::Launch {
                operation: program.name.clone(),
                device: self.properties.name.clone(),
                reason: error.to_string(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LoadedKernel;
    use girih_exec::Bounds;
    use girih_ir::{DType, TensorSpec};
    use girih_runtime::plan::PlannedBuffer;
    use girih_runtime::{
        Argument, Completion, ExecutionPlan, Operation, OutputSpec, Placement, PlanExecutor,
        RunControl,
    };
    use smallvec::SmallVec;

    #[test]
    fn bytes_round_trip_and_foreign_memory_is_refused() {
        fn place(block: &Buffer) -> Place<'_> {
            // SAFETY: only this thread uses the blocks.
            unsafe { block.place() }
        }
        let device = HostDevice::new(crate::pool().unwrap()).unwrap();
        let [block, next] = [5, 5].map(|size| device.allocator().allocate(size).unwrap());
        device.copy_to_device(None, &[1, 2, 3, 4, 5], place(&block)).unwrap();
        let mut back = [0; 5];
        device.copy_from_device(None, place(&block), &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5]);
        let refused = |r: Result<()>| assert!(matches!(r, Err(Error::InvalidHandle { .. })));
        // The block ends here, although the device's memory does not.
        refused(device.copy_to_device(None, &[0; 6], place(&block)));
        refused(device.copy_from_device(None, place(&block), &mut [0; 6]));
        refused(device.copy_on_device(None, (place(&block), place(&next)), &Runs::dense(6)));
        refused(block.address(6, &device).map(drop));
        assert!(place(&block).part(1, 5).is_none());
        // Memory of another device with the same id, and of a pool that lies about its addresses.
        let other = HostDevice::new(crate::pool().unwrap()).unwrap();
        refused(other.copy_to_device(None, &[0], place(&block)));
        let liar = Allocator::new(DeviceId::HOST, "cpu", &[1 << 20]);
        liar.place_regions(&[back.as_ptr() as u64]);
        let lie = liar.allocate(5).unwrap();
        refused(device.copy_to_device(None, &[9; 5], place(&lie)));
        // A region is placed once, by its device.
        device.allocator().place_regions(&[back.as_ptr() as u64]);
        device.copy_from_device(None, place(&block), &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn plans_with_smaller_buffers_are_not_loaded_and_checked_mode_refuses_accesses_outside() {
        let text = "b0 = argument 0: f32[9]\nb1 = f32[9]\nhalf over [9]\n  v0 = load b0[i0]\n  \
                    v1 = neg(v0): f32\n  b1[i0] = v1\noutputs: [b1]";
        let program = girih_kernel::KernelProgram::parse(text).unwrap();
        let device: Arc<dyn Device> = Arc::new(HostDevice::new(crate::pool().unwrap()).unwrap());
        let executor =
            PlanExecutor::new(device.clone(), Arc::new(crate::HostBackend::default()), None);
        let spec = TensorSpec::new([9], DType::F32);
        let buffers = [Placement::Argument(0), Placement::Output];
        let plan_of = |bounds: [usize; 2], accessed: usize| {
            let kernel = LoadedKernel::checked(&program.kernels[0]);
            let bounds = Some(bounds.map(Bounds::of).into_iter().collect());
            let (name, bytes) = ("half".into(), Arc::new([36, accessed]));
            let binary: Binary = Arc::new(HostProgram { name, kernel, bytes, bounds });
            let planned = |placement| PlannedBuffer { placement, size_bytes: 36 };
            ExecutionPlan {
                operations: vec![Operation::compute("half", 0)],
                binaries: vec![binary],
                buffers: buffers.map(planned).into(),
                arguments: vec![spec.clone().into()],
                outputs: vec![OutputSpec { spec: spec.clone(), buffer: 1 }],
                ..ExecutionPlan::default()
            }
        };
        let Err(Error::Compile(reason)) = executor.load_plan(plan_of([36, 36], 40)) else {
            panic!("a plan with smaller buffers is loaded")
        };
        assert!(reason.contains("40 bytes of buffer 1, and the plan provides 36"), "{reason}");
        let launch = |bounds: [usize; 2]| {
            let plan = executor.load_plan(plan_of(bounds, 36)).unwrap();
            let given = [Argument::Tensor(executor.upload(&[0; 36]).unwrap(), spec.clone())];
            let (block, _) = executor.bind(&plan, &given, RunControl::default()).unwrap();
            let (after, done) = (SmallVec::new(), Completion::pending());
            executor.start(executor.stream(), &plan.plan, &block, after, done, true)
        };
        assert_eq!(launch([36, 36]), Ok(()));
        for (bytes, buffer) in [([32, 36], "b0"), ([36, 32], "b1"), ([36, 0], "b1")] {
            let Err(Error::MemoryFault { operation, device, fault }) = launch(bytes) else {
                panic!("{bytes:?} was not noticed")
            };
            let place = format!("bytes 0 to 36 of buffer {buffer} are outside of its bounds");
            assert_eq!((operation.as_str(), device.as_str()), ("half", "cpu"));
            assert!(fault.starts_with(&place), "{fault}");
        }
    }
}
