//! Devices for this crate's tests: one logs its launches, has a latency, and fails on request; one
//! has queues of its own, and does a primitive when a test asks for it.

use crate::{
    Allocator, Backend, Binary, Buffer, CompileOptions, Completion, DetachedLaunch, Device,
    DeviceId, Enqueued, Error, ExecutionPlan, HostBytes, Launch, LoadedProgram, Place, Position,
    Primitive, Properties, Result, with_bytes,
};
use girih_sync::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A back end that cannot compile.
pub struct NoBackend;

impl Backend for NoBackend {
    fn compile(&self, _: &girih_ir::Graph, _: CompileOptions) -> Result<ExecutionPlan> {
        Err(Error::Compile("there is nothing to compile here".into()))
    }
}

/// The address of the device's memory: 0 is the address of no block.
const BASE: u64 = 1 << 20;

/// A device whose programs are numbers; a launch sleeps and appends its number to the log.
pub struct MockDevice {
    properties: Properties,
    allocator: Arc<Allocator>,
    latency: Duration,
    memory: Mutex<Vec<u8>>,
    pub log: Mutex<Vec<u32>>,
    /// The number of running launches, and its maximum.
    running: (AtomicUsize, AtomicUsize),
}

impl MockDevice {
    /// A program that fails.
    pub const FAILS: u32 = u32::MAX;
    /// A program that panics.
    pub const PANICS: u32 = u32::MAX - 1;

    pub fn new(latency: Duration) -> Arc<MockDevice> {
        MockDevice::concurrent(latency, 1)
    }

    /// A device with that maximum of concurrent submissions.
    pub fn concurrent(latency: Duration, concurrency: usize) -> Arc<MockDevice> {
        MockDevice::with_memory(latency, concurrency, 1 << 16)
    }

    /// A device with `bytes` bytes of memory.
    pub fn with_memory(latency: Duration, concurrency: usize, bytes: usize) -> Arc<MockDevice> {
        let allocator = Allocator::new(DeviceId::unique(), "mock", &[bytes]);
        allocator.place_regions(&[BASE]);
        Arc::new(MockDevice {
            properties: Properties {
                name: "mock".into(),
                target: "mock".into(),
                memory_bytes: bytes,
                concurrency,
                copy_engines: false,
                own_queues: false,
                host_memory: false,
            },
            allocator,
            latency,
            memory: Mutex::new(vec![0; bytes]),
            log: Mutex::default(),
            running: Default::default(),
        })
    }

    /// The maximum number of concurrent launches so far.
    pub fn most_at_once(&self) -> usize {
        self.running.1.load(SeqCst)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let at = (address - BASE) as usize;
        self.memory.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let at = (address - BASE) as usize;
        bytes.copy_from_slice(&self.memory.lock().unwrap()[at..at + bytes.len()]);
        Ok(())
    }
}

impl Device for MockDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn copy_to_device(&self, _: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        self.write(target.address(source.len(), self)?, source)
    }

    fn copy_from_device(
        &self,
        _: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        self.read(source.address(target.len(), self)?, target)
    }

    fn load(&self, binary: &Binary, _: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        Ok(binary.clone())
    }

    fn launch(&self, _: Option<usize>, launch: Launch<'_>) -> Result<()> {
        let number = *launch.program().downcast_ref::<u32>().expect("tests launch numbers");
        assert_ne!(number, MockDevice::PANICS, "asked to panic");
        let now = self.running.0.fetch_add(1, SeqCst) + 1;
        self.running.1.fetch_max(now, SeqCst);
        std::thread::sleep(self.latency);
        self.running.0.fetch_sub(1, SeqCst);
        self.log.lock().unwrap().push(number);
        if number == MockDevice::FAILS {
            let (operation, device) = ("launch".to_string(), "mock".to_string());
            return Err(Error::Launch { operation, device, reason: "asked to".into() });
        }
        Ok(())
    }
}

/// A device with queues of its own. It does nothing by itself: a test says which queue goes on.
pub struct QueueDevice {
    properties: Properties,
    memory: Arc<MockDevice>,
    queues: Mutex<BTreeMap<usize, VecDeque<Enqueue>>>,
}

/// A primitive in a queue of the device.
struct Enqueue {
    at: Position,
    job: Job,
    done: Arc<Completion>,
}

enum Job {
    CopyIn(Box<[u8]>, u64),
    CopyOut(u64, HostBytes),
    CopyWithin(u64, u64, usize),
    Launch(DetachedLaunch),
}

impl QueueDevice {
    pub fn new() -> Arc<QueueDevice> {
        let memory = MockDevice::new(Duration::ZERO);
        let properties = memory.properties().clone();
        let properties = Properties { own_queues: true, concurrency: usize::MAX, ..properties };
        Arc::new(QueueDevice { properties, memory, queues: Mutex::default() })
    }

    /// The numbers of the primitives in a queue that are not done.
    pub fn enqueued(&self, queue: usize) -> Vec<u64> {
        let queues = self.queues.lock().unwrap();
        queues.get(&queue).map_or(vec![], |queue| queue.iter().map(|e| e.at.number).collect())
    }

    /// The number and kind of the next primitive in a queue.
    pub fn next(&self, queue: usize) -> Option<(u64, &'static str)> {
        let queues = self.queues.lock().unwrap();
        let next = queues.get(&queue)?.front()?;
        Some((
            next.at.number,
            match next.job {
                Job::CopyIn(..) => "copy_to_device",
                Job::CopyOut(..) => "copy_from_device",
                Job::CopyWithin(..) => "copy_on_device",
                Job::Launch(_) => "launch",
            },
        ))
    }

    /// The numbers of the programs that ran, in order.
    pub fn log(&self) -> Vec<u32> {
        self.memory.log.lock().unwrap().clone()
    }

    /// Does the next primitive of a queue; false if there is none.
    pub fn step(&self, queue: usize) -> bool {
        let next = self.queues.lock().unwrap().get_mut(&queue).and_then(VecDeque::pop_front);
        let Some(Enqueue { at, job, done }) = next else { return false };
        let at = Some(at.queue);
        done.finish(match job {
            Job::CopyIn(bytes, address) => self.memory.write(address, &bytes),
            Job::CopyOut(address, target) => {
                with_bytes(&target, |bytes| self.memory.read(address, bytes))
            }
            Job::CopyWithin(source, target, size) => {
                let mut bytes = vec![0; size];
                self.memory
                    .read(source, &mut bytes)
                    .and_then(|()| self.memory.write(target, &bytes))
            }
            Job::Launch(launch) => self.memory.launch(at, launch.launch()),
        });
        true
    }
}

impl Device for QueueDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        self.memory.allocator()
    }

    fn copy_to_device(&self, at: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        self.memory.copy_to_device(at, source, target)
    }

    fn copy_from_device(
        &self,
        at: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        self.memory.copy_from_device(at, source, target)
    }

    fn load(&self, binary: &Binary, _: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        Ok(binary.clone())
    }

    fn launch(&self, _: Option<usize>, _: Launch<'_>) -> Result<()> {
        unreachable!("launches are enqueued")
    }

    fn enqueue(&self, at: Position, work: Primitive<'_>) -> Result<Enqueued> {
        let job = match work {
            Primitive::CopyToDevice { source, target } => {
                Job::CopyIn(source.into(), target.address(source.len(), &*self.memory)?)
            }
            Primitive::CopyFromDevice { source, target } => {
                let size = target.lock().unwrap().len();
                Job::CopyOut(source.address(size, &*self.memory)?, target.clone())
            }
            Primitive::CopyOnDevice { source, target, runs } => {
                assert!(runs.repeats.is_empty(), "tests copy single runs");
                let [source, target] =
                    [source, target].map(|place| place.address(runs.run, &*self.memory));
                Job::CopyWithin(source?, target?, runs.run)
            }
            Primitive::Launch(launch) => {
                Job::Launch(launch.detach().expect("queues share arguments"))
            }
        };
        let done = Completion::pending();
        let enqueue = Enqueue { at, job, done: done.clone() };
        self.queues.lock().unwrap().entry(at.queue).or_default().push_back(enqueue);
        Ok(Enqueued::Outstanding(done))
    }
}
