//! Tests of the mock's clock, memory and corrections through streams.

use girih_conformance::{Random, Rig, Subject, random_program};
use girih_cpu::{HostBackend, HostDevice};
use girih_ir::{Array, DType, Graph, GraphBuilder, TensorSpec};
use girih_mock::{
    Engine, Fault, Faulty, LaunchTime, MockAccelerator, MockBackend, MockConfig, Pace, Slot,
};
use girih_runtime::{
    Buffer, CompileOptions, Completion, Device, DeviceQueue, Error, Event, ExecutionPlan,
    Operation, Placement, PlanExecutor, RunControl, Stream, TileArgument, TileOptions, TileResult,
    TiledProgram,
};
use std::sync::Arc;
use std::time::Duration;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// A configuration with 1 us per 1,000 bytes, a latency of 10 us, and 100 us per launch.
fn config() -> MockConfig {
    MockConfig {
        memory: girih_mock::MemoryMode::Regions(vec![16 << 20]),
        latency: us(10),
        bandwidth: 1e9,
        memory_bandwidth: 1e10,
        launch: LaunchTime::Fixed(us(100)),
        ..MockConfig::default()
    }
}

fn host() -> Arc<HostDevice> {
    Arc::new(HostDevice::of_process().unwrap())
}

fn mock(config: MockConfig) -> (Arc<MockAccelerator>, Rig) {
    let corrections = config.corrections;
    let mock = MockAccelerator::new(host(), config).unwrap();
    let backend = MockBackend::new(Arc::new(HostBackend::default()), corrections);
    let made = mock.clone();
    let rig = Subject::new(backend, move || made.clone()).rig();
    (mock, rig)
}

fn block(device: &MockAccelerator, size: usize) -> Arc<Buffer> {
    Arc::new(device.allocator().allocate(size).unwrap())
}

#[test]
fn copies_take_latency_and_bandwidth_on_the_devices_clock() {
    let (device, rig) = mock(config());
    let queue = DeviceQueue::new(&rig.scheduler());
    let (a, b) = (block(&device, 50_000), block(&device, 50_000));
    let (start, end) = (Event::new(), Event::new());
    device.keep_slots();
    queue.record(&start);
    queue.copy_to_device(vec![1; 50_000].into(), &a).unwrap();
    queue.copy_on_device((&a, 0), (&b, 0), 50_000, &[]).unwrap();
    queue.record(&end);
    queue.synchronize().unwrap();
    // 10 + 50 us to the device, 10 + 5 us within it.
    assert_eq!(start.elapsed_seconds(&end).unwrap(), 75e-6);
    let slots: Vec<(Engine, Duration, usize)> =
        device.take_slots().iter().map(|s| (s.engine, s.end, s.bytes)).collect();
    let compute = Engine::Compute(0);
    assert_eq!(slots, [(Engine::CopyIn, us(60), 50_000), (compute, us(75), 50_000)]);
    assert!(device.take_slots().is_empty());
}

fn launches(rig: &Rig, streams: &[Stream], each: usize) {
    let (graph, arguments) = random_program(2);
    for _ in 0..each {
        for stream in streams {
            let bound = rig.bind(&graph, &arguments, None).unwrap();
            rig.start(stream, &graph, &bound).unwrap();
        }
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
}

fn disjoint(mut slots: Vec<&Slot>) -> bool {
    slots.sort_by_key(|slot| slot.start);
    slots.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

#[test]
fn serial_hardware_takes_the_sum_and_concurrent_hardware_the_longest() {
    let mut spans = Vec::new();
    for concurrency in [1, 2] {
        let (device, rig) = mock(MockConfig { concurrency, ..config() });
        let scheduler = rig.scheduler();
        let streams = [Stream::new(&scheduler), Stream::new(&scheduler)];
        let (graph, _) = random_program(2);
        rig.executor.plan(&graph, CompileOptions::default()).unwrap();
        let numbers: Vec<usize> = streams.iter().map(|s| s.queue().index()).collect();
        device.keep_slots();
        launches(&rig, &streams, 5);
        let mut slots = device.take_slots();
        slots.retain(|s| matches!(s.engine, Engine::Compute(_)));
        for number in numbers {
            assert!(disjoint(slots.iter().filter(|s| s.queue == Some(number)).collect()));
        }
        for engine in (0..concurrency).map(Engine::Compute) {
            assert!(disjoint(slots.iter().filter(|s| s.engine == engine).collect()));
        }
        let end = slots.iter().map(|s| s.end).max().unwrap();
        let start = slots.iter().map(|s| s.start).min().unwrap();
        spans.push(end - start);
    }
    assert_eq!(spans[0], 2 * spans[1], "two streams of equal work");
}

#[test]
fn copies_of_one_stream_overlap_the_launches_of_another() {
    let (device, rig) = mock(config());
    let scheduler = rig.scheduler();
    let (copies, computes) = (DeviceQueue::new(&scheduler), Stream::new(&scheduler));
    let (graph, arguments) = random_program(2);
    let bound = rig.bind(&graph, &arguments, None).unwrap();
    device.keep_slots();
    let target = block(&device, 90_000);
    for _ in 0..4 {
        copies.copy_to_device(vec![0; 90_000].into(), &target).unwrap();
        rig.start(&computes, &graph, &bound).unwrap();
    }
    copies.synchronize().unwrap();
    computes.synchronize().unwrap();
    let slots = device.take_slots();
    let busy: Duration = slots.iter().map(|s| s.end - s.start).sum();
    assert!(device.clock(None) < busy, "{:?} for {busy:?} of work", device.clock(None));
}

#[test]
fn an_event_carries_the_time_of_its_stream() {
    let (device, rig) = mock(config());
    let scheduler = rig.scheduler();
    let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let target = block(&device, 1000);
    let done = Event::new();
    first.copy_to_device(vec![0; 1000].into(), &target).unwrap();
    first.record(&done);
    second.wait(&done);
    let (_, read) = second.copy_from_device(&girih_runtime::Value::at(target, 0), 1000).unwrap();
    read.wait().unwrap();
    assert_eq!(device.clock(Some(second.index())), us(22), "11 us there, then 11 us back");
}

#[test]
fn enqueues_do_not_wait_for_a_slow_device() {
    let (device, rig) =
        mock(MockConfig { pace: Pace::Real, latency: Duration::from_millis(150), ..config() });
    let queue = DeviceQueue::new(&rig.scheduler());
    let target = block(&device, 8);
    let value = girih_runtime::Value::at(target.clone(), 0);
    queue.copy_to_device([3; 8].into(), &target).unwrap();
    let (bytes, done) = queue.copy_from_device(&value, 8).unwrap();
    assert!(done.poll().is_none() && !queue.query(), "the copy takes 150 ms");
    done.wait().unwrap();
    assert_eq!(bytes.lock().unwrap()[..], [3; 8]);
}

#[test]
fn the_device_is_given_each_init_packet_once() {
    let (device, rig) = mock(config());
    for seed in 0..3 {
        let (graph, arguments) = random_program(seed);
        rig.check("packets", &graph, &arguments);
    }
    assert_eq!(device.packets().len(), 1);
    // Another executor of the device has a scheduler and streams of its own.
    let backend = config().backend(Arc::new(HostBackend::default()));
    let executor = PlanExecutor::new(device.clone(), backend, None);
    let (graph, _) = random_program(4);
    executor.plan(&graph, CompileOptions::default()).unwrap();
    assert_eq!(device.packets().len(), 1, "once per device");
}

#[test]
fn a_device_without_copy_engines_does_one_thing_at_a_time() {
    let serial = |copy_engines| {
        let (device, rig) = mock(MockConfig { copy_engines, ..config() });
        assert_eq!(device.properties().copy_engines, copy_engines);
        let streams = [(); 2].map(|()| Stream::new(&rig.scheduler()));
        let (graph, arguments) = random_program(2);
        let bound = streams.each_ref().map(|_| rig.bind(&graph, &arguments, None).unwrap());
        let target = block(&device, 90_000);
        device.keep_slots();
        for _ in 0..3 {
            for (stream, bound) in streams.iter().zip(&bound) {
                stream.queue().copy_to_device(vec![0; 90_000].into(), &target).unwrap();
                rig.start(stream, &graph, bound).unwrap();
                let value = girih_runtime::Value::at(target.clone(), 0);
                stream.queue().copy_from_device(&value, 90_000).unwrap();
            }
        }
        rig.scheduler().synchronize_all().unwrap();
        let mut slots = device.take_slots();
        slots.sort_by_key(|slot| slot.start);
        assert!(slots.len() >= 18);
        slots.windows(2).all(|pair| pair[0].end <= pair[1].start)
    };
    assert!(serial(false), "the slots of copies and launches are disjoint");
    assert!(!serial(true), "copies overlap with the work of other streams");
}

#[test]
fn a_program_that_embeds_addresses_does_not_run_uncorrected() {
    let (_, rig) = mock(MockConfig { corrections: true, ..config() });
    let (graph, arguments) = random_program(2);
    rig.check("corrected", &graph, &arguments);
    let loaded = rig.executor.plan(&graph, CompileOptions::default()).unwrap().plan.clone();
    assert!(loaded.operations.iter().all(|o| o.steps.len() == 2 && o.compute.is_some()));
    // The same launches without the steps before them.
    let bare = |o: &Operation| Operation { steps: Default::default(), ..o.clone() };
    let plan = ExecutionPlan {
        operations: loaded.operations.iter().map(bare).collect(),
        binaries: loaded.binaries.clone(),
        buffers: loaded.buffers.clone(),
        temporary_bytes: loaded.temporary_bytes,
        arguments: loaded.arguments.clone(),
        outputs: loaded.outputs.clone(),
        ..ExecutionPlan::default()
    };
    let plan = rig.executor.load_plan(plan).unwrap();
    let given = rig.arguments(&arguments).unwrap();
    let (block, _) = rig.executor.bind(&plan, &given, RunControl::default()).unwrap();
    // A launch takes the addresses out of the table, so the block's table has none.
    let stream = rig.executor.stream();
    let ran = stream.run(&plan.plan, &block, Default::default(), Completion::pending(), true);
    let Err(Error::Launch { reason, .. }) = ran else { panic!("{ran:?}") };
    assert!(reason.contains("no correction ran"), "{reason}");
}

#[test]
fn programs_of_other_back_ends_are_refused() {
    let device = MockAccelerator::new(host(), config()).unwrap();
    let rig = Subject::new(HostBackend::default(), move || device.clone()).rig();
    let (graph, _) = random_program(2);
    let error = rig.executor.plan(&graph, CompileOptions::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("compiled for another device"), "{error}");
}

#[test]
fn invalid_configurations_are_refused() {
    for bandwidth in [0.0, -1.0, f64::NAN] {
        let made = MockAccelerator::new(host(), MockConfig { bandwidth, ..config() });
        assert!(matches!(made.err(), Some(Error::Configuration { .. })), "{bandwidth}");
    }
    let memory = girih_mock::MemoryMode::Regions(vec![1 << 60]);
    let made = MockAccelerator::new(host(), MockConfig { memory, ..config() });
    assert!(matches!(made.err(), Some(Error::Launch { .. })));
}

/// `[rows, 8] @ [8, 8]`; the tiles have `rows` rows.
fn matmul(rows: usize) -> Graph {
    let mut b = GraphBuilder::default();
    let x = [[rows, 8], [8, 8]].map(|shape| b.input(TensorSpec::new(shape, DType::F32)));
    let y = b.matmul(x[0], x[1]).unwrap();
    b.finish([y])
}

fn tiled(rig: &Rig, graph: &Graph) -> TiledProgram {
    rig.executor.tiled(graph, CompileOptions::default()).unwrap()
}

#[test]
fn four_tiles_with_corrections_are_twelve_primitives_in_order() {
    let (device, rig) = mock(MockConfig { corrections: true, ..config() });
    let program = tiled(&rig, &matmul(1024));
    let spec = |shape: [usize; 2]| TensorSpec::new(shape, DType::F32);
    let mut random = Random::new(1);
    let arrays = [spec([4096, 8]), spec([8, 8])].map(|spec| random.array(&spec));
    let given = |x: &Array| TileArgument::Device(rig.upload(x).unwrap(), x.spec().clone());
    let given = arrays.each_ref().map(given);
    let scheduler = rig.scheduler();
    let hold = scheduler.hold();
    device.keep_slots();
    let stream = Stream::new(&scheduler);
    let options = TileOptions::default();
    let run = rig.executor.launch_tiled(&stream, &program, &given, options).unwrap();
    assert!(run.completion.poll().is_none(), "all is enqueued before anything runs");
    drop(hold);
    run.completion.wait().unwrap();
    let slots = device.take_slots();
    let names: Vec<&str> = slots.iter().map(|slot| slot.name.as_str()).collect();
    assert_eq!(names.len(), 12, "{names:?}");
    // In each tile, the rows of the first argument and of the result are 1024 * 8 * 4 bytes further
    // on; the second argument does not move.
    let of = |tile: usize| &slots[3 * tile + 2].addresses;
    let plan = rig.executor.plan(&matmul(1024), CompileOptions::default()).unwrap().plan.clone();
    for (buffer, planned) in plan.buffers.iter().enumerate() {
        let step = match planned.placement {
            Placement::Argument(0) | Placement::Output => 32_768,
            Placement::Argument(_) => 0,
            _ => continue,
        };
        for tile in 1..4 {
            assert_eq!(of(tile)[buffer], of(0)[buffer] + step * tile as u64, "buffer {buffer}");
        }
    }
    for tile in names.chunks(3) {
        assert_eq!(tile[..2], ["copy_to_device", "correction"]);
        assert!(tile[2] != "correction" && tile[2] == names[2], "{names:?}");
    }
    let TileResult::Device(value, result) = &run.results[0] else { panic!("on the device") };
    assert_eq!(result, &spec([4096, 8]));
    let found = rig.download(value, result).unwrap();
    rig.compare("tiled", &matmul(4096), &arrays, &[found]);
}

/// Streams an array through the device in tiles: the device's time, the array's size in bytes, and
/// the result.
fn streamed(depth: usize) -> (Duration, usize, Vec<f64>) {
    let memory = girih_mock::MemoryMode::Regions(vec![256 << 10]);
    let (device, rig) = mock(MockConfig { memory, launch: LaunchTime::Fixed(us(30)), ..config() });
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([8192], DType::F32));
    let y = b.add(x, x).unwrap();
    let program = tiled(&rig, &b.finish([y]));
    let spec = TensorSpec::new([8192 * 40 + 77], DType::F32);
    let numbers: Vec<f64> = (0..spec.numel()).map(|i| (i % 1000) as f64).collect();
    let bytes = Array::from_f64(spec.shape.clone(), spec.dtype, &numbers).to_bytes();
    let given = [TileArgument::Host(Arc::new(bytes), spec.clone())];
    let stream = Stream::new(&rig.scheduler());
    let before = device.clock(None);
    let options = TileOptions { depth, to_host: true, ..TileOptions::default() };
    let run = rig.executor.launch_tiled(&stream, &program, &given, options).unwrap();
    run.completion.wait().unwrap();
    let TileResult::Host(bytes, _) = &run.results[0] else { panic!("on the host") };
    let found = Array::from_bytes(spec.clone(), &bytes.lock().unwrap()).to_f64();
    (device.clock(None) - before, spec.size_bytes(), found)
}

#[test]
fn an_array_five_times_the_memory_streams_at_the_links_bandwidth() {
    // 32 KB take 10 us latency and 33 us transfer; copies of other tiles hide the launch.
    let (serial, bytes, first) = streamed(1);
    let (overlapped, _, second) = streamed(3);
    assert!(first == second && first[1234] == 468.0 && first.len() == 8192 * 40 + 77);
    assert!(overlapped < serial * 3 / 4, "{overlapped:?} with overlap, {serial:?} without");
    let modelled = Duration::from_secs_f64(bytes as f64 / 1e9) + us(10) * 41;
    assert!(modelled > overlapped * 9 / 10, "{overlapped:?}, the link needs {modelled:?}");
}

#[test]
fn a_fault_in_one_tile_fails_the_launch_and_leaves_the_device_usable() {
    let device = Faulty::new(MockAccelerator::new(host(), config()).unwrap());
    let wrapped = device.clone();
    let backend = MockBackend::new(Arc::new(HostBackend::default()), false);
    let rig = Subject::new(backend, move || wrapped.clone()).rig();
    let program = tiled(&rig, &matmul(16));
    let mut random = Random::new(2);
    let arrays = [[64, 8], [8, 8]].map(|s| random.array(&TensorSpec::new(s, DType::F32)));
    let given =
        arrays.each_ref().map(|x| TileArgument::Host(Arc::new(x.to_bytes()), x.spec().clone()));
    let in_use = rig.in_use();
    let options = TileOptions { to_host: true, ..TileOptions::default() };
    for fault in [Fault::CopyToDevice, Fault::Launch, Fault::CopyFromDevice] {
        let stream = Stream::new(&rig.scheduler());
        device.inject(fault, 2);
        let run = rig.executor.launch_tiled(&stream, &program, &given, options).unwrap();
        let error = run.completion.wait().unwrap_err();
        assert!(error.to_string().contains("injected"), "{fault:?}: {error}");
        let _ = stream.synchronize();
        let run = rig.executor.launch_tiled(&stream, &program, &given, options).unwrap();
        run.completion.wait().unwrap();
        let TileResult::Host(bytes, spec) = &run.results[0] else { panic!("on the host") };
        let found = Array::from_bytes(spec.clone(), &bytes.lock().unwrap());
        rig.compare("after the fault", &matmul(64), &arrays, &[found]);
    }
    rig.scheduler().synchronize_all().unwrap();
    assert_eq!(rig.in_use(), in_use);
}

#[test]
fn a_tensor_is_loaded_by_one_copy_and_nothing_is_launched() {
    let (device, rig) = mock(config());
    device.keep_slots();
    let queue = DeviceQueue::new(&rig.scheduler());
    let tensor = block(&device, 4096);
    queue.copy_to_device(vec![7; 4096].into(), &tensor).unwrap();
    queue.synchronize().unwrap();
    let log: Vec<(String, usize)> =
        device.take_slots().into_iter().map(|slot| (slot.name, slot.bytes)).collect();
    assert_eq!(log, [("copy_to_device".to_string(), 4096)]);
}
