//! The mock accelerator: a device with its own memory, addresses, engines and clock, whose kernels
//! run on the host's processor.

use crate::backend::{ADDRESS_HEADER, MAGIC, MockBackend, MockBinary, MockProgram};
use crate::memory::{Memory, Part};
use crate::queues::{self, Job, Queues};
use crate::timeline::{Engine, Slot, Timeline, Work};
use girih_runtime::{
    Allocator, Backend, Binary, Buffer, Device, Enqueued, Error, HANDLE_BYTES, HostControlFlow,
    Launch, LoadedProgram, Place, Position, Primitive, Properties, Result, Runs, with_bytes,
};
use girih_sync::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The allocation of the device's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryMode {
    /// Blocks are carved out of regions of these sizes in bytes; handles are region and offset.
    Regions(Vec<usize>),
    /// As `Regions`, with 96 GB in regions of 12 GB, or with up to 12 regions of the largest sizes of
    /// 12, 8 and 4 GB that the system provides.
    Largest,
    /// Each block is mapped separately, up to this total size in bytes; handles are addresses.
    Physical(usize),
}

/// The duration of a launch on the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchTime {
    /// A constant duration.
    Fixed(Duration),
    /// The time that the host needed.
    Measured,
}

/// The clock on which work takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The device's clock only; work does not block for its modelled duration.
    Virtual,
    /// Both clocks: work also blocks its queue for its modelled duration.
    Real,
}

/// The configuration of a mock accelerator. The default has 96 GB in 8 regions, a link with 16 GB/s
/// and a latency of 5 us, one compute engine, and programs that get addresses directly.
#[derive(Clone, Debug, PartialEq)]
pub struct MockConfig {
    /// The device's name in errors.
    pub name: String,
    /// The allocation of memory.
    pub memory: MemoryMode,
    /// The latency of a copy.
    pub latency: Duration,
    /// The bandwidth between host and device in bytes per second, for each direction.
    pub bandwidth: f64,
    /// The bandwidth of copies within the device in bytes per second.
    pub memory_bandwidth: f64,
    /// The number of concurrent submissions, and of compute engines.
    pub concurrency: usize,
    /// Whether there is an engine for copies in each direction; else the compute engines copy, too.
    pub copy_engines: bool,
    /// Whether the device has queues of its own: work is enqueued without waiting for it.
    pub own_queues: bool,
    /// The duration of launches.
    pub launch: LaunchTime,
    /// The clock on which work takes time.
    pub pace: Pace,
    /// Whether programs embed the addresses of their data. If so, a correction program writes the
    /// addresses before each launch.
    pub corrections: bool,
    /// Whether programs have no branches and loops, so that the host executes the branches and
    /// loops of plans.
    pub host_control_flow: bool,
}

impl MockConfig {
    /// The back end for such a device, which wraps the back end of the device that computes.
    pub fn backend(&self, inside: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let backend = Arc::new(MockBackend::new(inside, self.corrections));
        match self.host_control_flow {
            true => Arc::new(HostControlFlow::new(backend)),
            false => backend,
        }
    }
}

impl Default for MockConfig {
    fn default() -> MockConfig {
        MockConfig {
            name: "mock".into(),
            memory: MemoryMode::Largest,
            latency: Duration::from_micros(5),
            bandwidth: 16e9,
            memory_bandwidth: 400e9,
            concurrency: 1,
            copy_engines: true,
            own_queues: false,
            launch: LaunchTime::Measured,
            pace: Pace::Virtual,
            corrections: false,
            host_control_flow: false,
        }
    }
}

/// The mock accelerator. Its programs come from [`crate::MockBackend`], which wraps the back end of
/// the device that computes.
pub struct MockAccelerator {
    config: MockConfig,
    properties: Properties,
    allocator: Arc<Allocator>,
    memory: Memory,
    /// The device that computes, and that copies host memory.
    host: Arc<dyn Device>,
    engines: Vec<Engine>,
    timeline: Mutex<Timeline>,
    packets: Mutex<Vec<Box<[u8]>>>,
    queues: Queues,
    /// The device itself, for the threads that run its queues.
    this: Weak<MockAccelerator>,
}

impl MockAccelerator {
    /// A mock whose kernels run on `host`, a device whose physical addresses are addresses of the
    /// process.
    ///
    /// Errors: [`Error::Configuration`] for a bandwidth that is not positive; [`Error::Launch`] if
    /// the memory cannot be reserved.
    pub fn new(host: Arc<dyn Device>, config: MockConfig) -> Result<Arc<MockAccelerator>> {
        for value in [config.bandwidth, config.memory_bandwidth] {
            if value.is_nan() || value <= 0.0 {
                let value = value.to_string();
                let (variable, expected) = ("bandwidth", "a positive number of bytes per second");
                return Err(Error::Configuration { variable, value, expected });
            }
        }
        let host_id = host.id();
        let (allocator, memory) = match &config.memory {
            MemoryMode::Regions(sizes) => {
                Memory::regions(host_id, &config.name, sizes).map_err(|e| Error::Launch {
                    operation: "reserving memory".into(),
                    device: config.name.clone(),
                    reason: format!("regions of {sizes:?} bytes: {e}"),
                })?
            }
            MemoryMode::Largest => {
                Memory::largest(host_id, &config.name).ok_or_else(|| Error::Launch {
                    operation: "reserving memory".into(),
                    device: config.name.clone(),
                    reason: "the system provides no region of 4 GB".into(),
                })?
            }
            MemoryMode::Physical(capacity) => Memory::physical(host_id, &config.name, *capacity),
        };
        let concurrency = config.concurrency.max(1);
        let corrected = if config.corrections { "/corrected" } else { "" };
        let flow = if config.host_control_flow { "/host-control-flow" } else { "" };
        let properties = Properties {
            name: config.name.clone(),
            target: format!("mock{corrected}{flow}/{}", host.properties().target),
            memory_bytes: allocator.stats().capacity,
            // Its own queues take any amount of work.
            concurrency: if config.own_queues { usize::MAX } else { concurrency },
            copy_engines: config.copy_engines,
            own_queues: config.own_queues,
            host_memory: false,
        };
        Ok(Arc::new_cyclic(|this| MockAccelerator {
            properties,
            allocator,
            memory,
            host,
            // The scheduler uses few workers, so more engines would stay idle.
            engines: (0..concurrency.min(64)).map(Engine::Compute).collect(),
            timeline: Mutex::default(),
            packets: Mutex::default(),
            queues: Queues::default(),
            this: this.clone(),
            config,
        }))
    }

    /// The configuration.
    pub fn config(&self) -> &MockConfig {
        &self.config
    }

    /// Starts a log of the engines' work, for [`MockAccelerator::take_slots`].
    pub fn keep_slots(&self) {
        self.timeline().log = Some(Vec::new());
    }

    /// Takes the log of the engines' work, in the order of the calls by the host.
    pub fn take_slots(&self) -> Vec<Slot> {
        self.timeline().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The received init packets, in order.
    pub fn packets(&self) -> Vec<Box<[u8]>> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(
        &self,
        queue: Option<usize>,
        engines: &[Engine],
        time: Duration,
        describe: impl FnOnce() -> Work,
    ) {
        self.timeline().place(queue, engines, time, describe);
        if self.config.pace == Pace::Real {
            std::thread::sleep(time);
        }
    }

    /// The engines that do copies in a direction.
    fn copiers<'a>(&'a self, own: &'a [Engine; 1]) -> &'a [Engine] {
        if self.config.copy_engines { own } else { &self.engines }
    }

    fn copy_time(&self, bytes: usize, bandwidth: f64) -> Duration {
        // At most a year: a tiny bandwidth would overflow the duration.
        let seconds = (bytes as f64 / bandwidth).min(3.2e7);
        self.config.latency + Duration::from_secs_f64(seconds)
    }

    /// The bytes at a device address, as memory of the host's device.
    fn part(&self, address: u64, size: usize) -> Result<Part> {
        self.memory.part(address, size).ok_or_else(|| {
            let (device, handle) = (self.properties.name.clone(), format!("address {address:#x}"));
            Error::InvalidHandle { device, handle, size }
        })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        match bytes.is_empty() {
            true => Ok(()),
            false => {
                self.host.copy_from_device(None, self.part(address, bytes.len())?.place(), bytes)
            }
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        match bytes.is_empty() {
            true => Ok(()),
            false => {
                self.host.copy_to_device(None, bytes, self.part(address, bytes.len())?.place())
            }
        }
    }

    fn read_words(&self, address: u64, count: usize) -> Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.read(address, &mut bytes)?;
        let word = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes"));
        Ok(bytes.chunks_exact(8).map(word).collect())
    }

    fn write_words(&self, address: u64, words: impl IntoIterator<Item = u64>) -> Result<()> {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        self.write(address, &bytes)
    }

    fn failed(&self, operation: &str, reason: impl Into<String>) -> Error {
        let (operation, device) = (operation.to_string(), self.properties.name.clone());
        Error::Launch { operation, device, reason: reason.into() }
    }

    /// The correction program: resolves the handles in its input to addresses, and writes the
    /// addresses to the table that the next program reads.
    fn correct(&self, addresses: &[u64]) -> Result<()> {
        let [given @ .., input, table] = addresses else {
            return Err(self.failed("correction", "its buffers are missing"));
        };
        let words = self.read_words(*input, given.len() * HANDLE_BYTES / 8)?;
        let resolved = words.chunks_exact(2).map(|words| {
            let address = self.memory.of_words([words[0], words[1]]);
            address.ok_or_else(|| self.failed("correction", format!("no handle: {words:x?}")))
        });
        let resolved = resolved.collect::<Result<Vec<u64>>>()?;
        let header = [MAGIC, resolved.len() as u64];
        self.write_words(*table, header.into_iter().chain(resolved))
    }

    /// Takes the addresses that a correction wrote for the next launch.
    fn corrected(&self, name: &str, addresses: &[u64]) -> Result<Vec<u64>> {
        let [given @ .., _, table] = addresses else {
            return Err(self.failed(name, "its buffers are missing"));
        };
        let mut words = self.read_words(*table, given.len() + ADDRESS_HEADER)?;
        if words[..ADDRESS_HEADER] != [MAGIC, given.len() as u64] {
            return Err(self.failed(name, "no correction ran before it"));
        }
        self.write_words(*table, [0])?;
        Ok(words.split_off(ADDRESS_HEADER))
    }

    /// Runs a program on the host with device addresses. `sizes` are those of its buffers.
    #[allow(unsafe_code, reason = "the memory of the device is vouched for here")]
    fn compute(
        &self,
        inside: &LoadedProgram,
        sizes: &[usize],
        addresses: &[u64],
        launch: Launch<'_>,
    ) -> Result<()> {
        let part = |(&address, &size): (&u64, &usize)| match address {
            // No kernel uses this buffer.
            0 => Ok(None),
            _ => self.part(address, size).map(Some),
        };
        if addresses.len() < sizes.len() {
            return Err(self.failed("launch", "addresses of its buffers are missing"));
        }
        let parts = addresses.iter().zip(sizes).map(part).collect::<Result<Vec<Option<Part>>>>()?;
        let host = |part: &Option<Part>| match part {
            Some(part) => part.place().address(part.place().size_bytes(), &*self.host),
            None => Ok(0),
        };
        let addresses = parts.iter().map(host).collect::<Result<Vec<u64>>>()?;
        // The weights stay behind: prepacked forms of them would be in the host's memory, which is
        // not the mock's.
        // SAFETY: each address is that of as many bytes of this device's memory as the back end
        // planned for the program's buffer, and `parts` keeps them. The runtime orders the launches
        // that write a block of this device.
        let launch = unsafe { launch.on(&*self.host, inside, &addresses) };
        self.host.launch(None, launch)
    }
}

/// The work of the device's engines, at device addresses.
impl MockAccelerator {
    fn copy_in(&self, queue: Option<usize>, source: &[u8], target: u64) -> Result<()> {
        self.write(target, source)?;
        let time = self.copy_time(source.len(), self.config.bandwidth);
        let describe = || Work::copy("copy_to_device", source.len());
        self.takes(queue, self.copiers(&[Engine::CopyIn]), time, describe);
        Ok(())
    }

    fn copy_out(&self, queue: Option<usize>, source: u64, target: &mut [u8]) -> Result<()> {
        self.read(source, target)?;
        let time = self.copy_time(target.len(), self.config.bandwidth);
        let describe = || Work::copy("copy_from_device", target.len());
        self.takes(queue, self.copiers(&[Engine::CopyOut]), time, describe);
        Ok(())
    }

    fn copy_within(&self, queue: Option<usize>, (from, to): (u64, u64), runs: &Runs) -> Result<()> {
        let (read, written) = runs.spans();
        if runs.bytes() > 0 {
            let (from, to) = (self.part(from, read)?, self.part(to, written)?);
            self.host.copy_on_device(None, (from.place(), to.place()), runs)?;
        }
        let time = self.copy_time(runs.bytes(), self.config.memory_bandwidth);
        let describe = || Work::copy("copy_on_device", runs.bytes());
        self.takes(queue, &self.engines, time, describe);
        Ok(())
    }

    /// Runs a queue of the device's own until it has no work.
    pub(crate) fn run_queue(&self, queue: usize) {
        while let Some((job, done)) = self.queues.next(queue) {
            done.finish(queues::run(self, job));
        }
    }

    /// A primitive that one of the device's queues keeps until its turn.
    ///
    /// Errors: [`Error::InvalidHandle`] for places of other devices.
    fn job(&self, at: Position, work: Primitive<'_>) -> Result<Job> {
        let queue = Some(at.queue);
        Ok(match work {
            Primitive::CopyToDevice { source, target } => {
                let (source, target) = (source.to_vec(), target.address(source.len(), self)?);
                Box::new(move |device| device.copy_in(queue, &source, target))
            }
            Primitive::CopyFromDevice { source, target } => {
                let size = target.lock().unwrap_or_else(PoisonError::into_inner).len();
                let (source, target) = (source.address(size, self)?, target.clone());
                Box::new(move |device| {
                    with_bytes(&target, |bytes| device.copy_out(queue, source, bytes))
                })
            }
            Primitive::CopyOnDevice { source, target, runs } => {
                let (read, written) = runs.spans();
                let places = (source.address(read, self)?, target.address(written, self)?);
                let runs = runs.clone();
                Box::new(move |device| device.copy_within(queue, places, &runs))
            }
            Primitive::Launch(launch) => {
                let Some(launch) = launch.detach() else {
                    return Err(self.failed("launch", "its arguments may not be kept"));
                };
                Box::new(move |device| device.launch(queue, launch.launch()))
            }
        })
    }
}

impl Device for MockAccelerator {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn copy_to_device(&self, queue: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        self.copy_in(queue, source, target.address(source.len(), self)?)
    }

    fn copy_from_device(
        &self,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        self.copy_out(queue, source.address(target.len(), self)?, target)
    }

    fn copy_on_device(
        &self,
        queue: Option<usize>,
        (source, target): (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        let (read, written) = runs.spans();
        let addresses = (source.address(read, self)?, target.address(written, self)?);
        self.copy_within(queue, addresses, runs)
    }

    fn enqueue(&self, at: Position, work: Primitive<'_>) -> Result<Enqueued> {
        match self.this.upgrade().filter(|_| self.config.own_queues) {
            Some(device) => self.queues.push(&device, at, self.job(at, work)?),
            None => work.run(self, at),
        }
    }

    fn clock(&self, queue: Option<usize>) -> Duration {
        self.timeline().clock(queue)
    }

    fn wait_until(&self, queue: usize, at: Duration) {
        self.timeline().wait_until(queue, at);
    }

    fn initialize(&self, packet: &[u8]) -> Result<()> {
        self.packets.lock().unwrap_or_else(PoisonError::into_inner).push(packet.into());
        Ok(())
    }

    fn warm_up(&self) -> Result<()> {
        self.host.warm_up()
    }

    fn image(&self, binary: &Binary) -> Option<Box<[u8]>> {
        binary.downcast_ref::<MockBinary>().map(MockBinary::image)
    }

    fn accessed_bytes<'a>(&self, binary: &'a Binary) -> Option<&'a [usize]> {
        match binary.downcast_ref::<MockBinary>()? {
            MockBinary::Compute { inside, .. } => self.host.accessed_bytes(inside),
            MockBinary::Correction => None,
        }
    }

    fn load(&self, binary: &Binary, image: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        let Some(binary) = binary.downcast_ref::<MockBinary>() else {
            return Err(self.failed("load", "the program was compiled for another device"));
        };
        let Some(image) = image else {
            return Err(self.failed(binary.name(), "its image was not copied"));
        };
        let mut found = vec![0; image.size_bytes()];
        self.read(image.address(found.len(), self)?, &mut found)?;
        if found[..] != binary.image()[..] {
            return Err(self.failed(binary.name(), "its image was corrupted on its way"));
        }
        let inside = match binary {
            MockBinary::Compute { inside, sizes, .. } => {
                Some((self.host.load(inside, None)?, sizes.clone()))
            }
            MockBinary::Correction => None,
        };
        Ok(Arc::new(MockProgram { name: binary.name().into(), inside, image }))
    }

    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        program.downcast_ref::<MockProgram>().map(|program| program.name.as_str())
    }

    fn launch(&self, queue: Option<usize>, launch: Launch<'_>) -> Result<()> {
        let Some(program) = launch.program().downcast_ref::<MockProgram>() else {
            return Err(self.failed("launch", "the program was compiled for another device"));
        };
        let start = Instant::now();
        let mut addresses = Cow::Borrowed(launch.addresses());
        let ran = match &program.inside {
            None => self.correct(launch.addresses()),
            Some((inside, sizes)) => {
                if self.config.corrections {
                    addresses = self.corrected(&program.name, launch.addresses())?.into();
                }
                self.compute(inside, sizes, &addresses, launch)
            }
        };
        let time = match self.config.launch {
            LaunchTime::Fixed(time) => time,
            LaunchTime::Measured => start.elapsed(),
        };
        let describe =
            || Work { name: program.name.clone(), bytes: 0, addresses: addresses.into_owned() };
        self.takes(queue, &self.engines, time, describe);
        ran
    }
}
