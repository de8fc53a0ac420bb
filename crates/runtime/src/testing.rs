//! A device for this crate's tests: it logs its launches, has a latency, and fails on request.

use crate::{
    Allocator, Backend, Binary, Buffer, CompileOptions, Device, DeviceId, Error, ExecutionPlan,
    Launch, LoadedProgram, Place, Properties, Result,
};
use girih_sync::Mutex;
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
}

impl Device for MockDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn copy_to_device(&self, _: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        let at = target.address(source.len(), self)? as usize - BASE as usize;
        self.memory.lock().unwrap()[at..at + source.len()].copy_from_slice(source);
        Ok(())
    }

    fn copy_from_device(
        &self,
        _: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        let at = source.address(target.len(), self)? as usize - BASE as usize;
        target.copy_from_slice(&self.memory.lock().unwrap()[at..at + target.len()]);
        Ok(())
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
