//! Benchmarks of the pipeline's cost: replays of captured launches, tiles streaming through a small
//! device, small calls from many threads. Prints medians; nothing here asserts a time.

use girih_conformance::{Rig, Subject};
use girih_cpu::{HostBackend, HostDevice};
use girih_ir::{DType, Graph, GraphBuilder, OpCode, TensorSpec};
use girih_mock::{LaunchTime, MemoryMode, MockAccelerator, MockBackend, MockConfig};
use girih_runtime::{
    Argument, Capture, Captured, CompileOptions, Device, Replay, Stream, TileArgument, TileOptions,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SAMPLES: usize = 31;

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn row(what: &str, value: f64, unit: &str) {
    println!("{what:<64}{value:10.1} {unit}");
}

fn host() -> Arc<HostDevice> {
    Arc::new(HostDevice::of_process().expect("the host's environment is sound"))
}

fn mock(config: MockConfig) -> (Arc<MockAccelerator>, Rig) {
    let device = MockAccelerator::new(host(), config).expect("memory can be reserved");
    let made = device.clone();
    let backend = MockBackend::new(Arc::new(HostBackend::default()), false);
    (device, Subject::new(backend, move || made.clone()).rig())
}

fn elementwise(code: OpCode, size: usize) -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([size], DType::F32));
    let y = b.op(code, &[x]).expect("the op takes a vector");
    b.finish([y])
}

/// The host time to replay ten launches.
fn replay() {
    let (_, rig) =
        mock(MockConfig { launch: LaunchTime::Fixed(Duration::ZERO), ..MockConfig::default() });
    let plan = rig.executor.plan(&elementwise(OpCode::Neg, 64), CompileOptions::default()).unwrap();
    let spec = TensorSpec::new([64], DType::F32);
    let mut capture = Capture::new([spec]);
    let mut x = Captured::Input(0);
    for _ in 0..10 {
        x = capture.launch(&plan, &[x]).unwrap().remove(0);
    }
    let replay = capture.finish(&rig.executor, &[x]).unwrap();
    let input = [Argument::Checked(rig.executor.upload(&[0; 256]).unwrap())];
    let scheduler = rig.scheduler();
    let stream = Stream::new(&scheduler);
    let sample = || {
        // Hold the workers, so that they do not use this thread's processor.
        let hold = scheduler.hold();
        let start = Instant::now();
        for _ in 0..100 {
            replay.launch(&stream, &input).unwrap();
        }
        let time = start.elapsed().as_nanos() as f64 / 1000.0;
        drop(hold);
        stream.synchronize().unwrap();
        time
    };
    let time = median(std::iter::repeat_with(sample).take(SAMPLES).collect());
    row("replay of ten launches on the mock, host time of each", time, "ns");
}

/// The fraction of the modelled bandwidth at which an array of a gigabyte streams through 64 MB.
fn streaming() {
    const TILE: usize = 2 << 20;
    let memory = MemoryMode::Regions(vec![64 << 20]);
    let launch = LaunchTime::Fixed(Duration::from_micros(100));
    let (device, rig) = mock(MockConfig { memory, launch, ..MockConfig::default() });
    let program =
        rig.executor.tiled(&elementwise(OpCode::Neg, TILE), CompileOptions::default()).unwrap();
    let spec = TensorSpec::new([128 * TILE], DType::F32);
    let bytes = spec.size_bytes();
    let given = [TileArgument::Host(Arc::new(vec![0u8; bytes]), spec)];
    let stream = Stream::new(&rig.scheduler());
    let (before, start) = (device.clock(None), Instant::now());
    let options = TileOptions { to_host: true, ..TileOptions::default() };
    let run = rig.executor.launch_tiled(&stream, &program, &given, options).unwrap();
    run.completion.wait().unwrap();
    let time = (device.clock(None) - before).as_secs_f64();
    let modelled = bytes as f64 / device.config().bandwidth;
    row(
        "1 GB in and out of a device of 64 MB, of the link's bandwidth",
        100.0 * modelled / time,
        "%",
    );
    row("the same on the host's clock", start.elapsed().as_secs_f64() * 1e3, "ms");
}

/// The number of small calls per second from `threads` threads, each with its own stream and data.
fn calls(threads: usize) -> f64 {
    const CALLS: usize = 20_000;
    let rig = Subject::new(HostBackend::default(), host).rig();
    let graph = elementwise(OpCode::Neg, 16);
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let replay = Replay::of(&rig.executor, || Ok(plan)).unwrap();
    let sample = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let stream = Stream::new(&rig.scheduler());
                    let value = rig.executor.upload(&[0; 64]).unwrap();
                    for _ in 0..CALLS {
                        let given = [Argument::Checked(value.clone())];
                        replay.call(&stream, &given, None).unwrap();
                    }
                });
            }
        });
        (threads * CALLS) as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    median(std::iter::repeat_with(sample).take(7).collect())
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("girih {}, {cores} cores, {}\n", env!("CARGO_PKG_VERSION"), processor());
    replay();
    streaming();
    let (one, two, eight) = (calls(1), calls(2), calls(8));
    row("small calls of one thread, a stream of its own", one, "million/s");
    row("small calls of 2 threads, a stream each", two, "million/s");
    row("small calls of 8 threads, a stream each", eight, "million/s");
    row("8 threads over one", eight / one, "x");
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.map_or(String::from("unknown processor"), |m| m.trim_matches([' ', '\t', ':']).into())
}
