//! The mock's clock, memory and corrections, seen through streams.

use girih_conformance::{Rig, Subject, random_program};
use girih_cpu::{HostBackend, HostDevice};
use girih_mock::{Engine, LaunchTime, MockAccelerator, MockBackend, MockConfig, Pace, Slot};
use girih_runtime::{
    Buffer, CompileOptions, Completion, Device, DeviceQueue, Error, Event, ExecutionPlan,
    Operation, Scheduler, Stream,
};
use std::sync::Arc;
use std::time::Duration;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// A microsecond for each 1,000 bytes, 10 us latency, 100 us for a launch.
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
    let backend = MockBackend::new(Arc::new(HostBackend), corrections);
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
    // 10 + 50 to the device, 10 + 5 within it.
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
    let (_, read) =
        second.copy_from_device(&girih_runtime::Value { buffer: target, offset: 0 }, 1000).unwrap();
    read.wait().unwrap();
    assert_eq!(device.clock(Some(second.index())), us(22), "11 us there, then 11 us back");
}

#[test]
fn enqueues_do_not_wait_for_a_slow_device() {
    let (device, rig) =
        mock(MockConfig { pace: Pace::Real, latency: Duration::from_millis(150), ..config() });
    let queue = DeviceQueue::new(&rig.scheduler());
    let target = block(&device, 8);
    let value = girih_runtime::Value { buffer: target.clone(), offset: 0 };
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
}

#[test]
fn a_program_that_embeds_addresses_does_not_run_uncorrected() {
    let (_, rig) = mock(MockConfig { corrections: true, ..config() });
    let (graph, arguments) = random_program(2);
    rig.check("corrected", &graph, &arguments);
    let loaded = rig.executor.plan(&graph, CompileOptions::default()).unwrap().plan;
    assert!(loaded.operations.iter().all(|o| o.steps.len() == 2 && o.compute.is_some()));
    // The same launches without what goes before them.
    let bare = |o: &Operation| Operation { steps: Default::default(), ..o.clone() };
    let plan = ExecutionPlan {
        operations: loaded.operations.iter().map(bare).collect(),
        programs: loaded.programs.clone(),
        ..ExecutionPlan::default()
    };
    // The block's table of addresses is what memory happened to hold: zeros, in fresh memory.
    let (_, rig) = (rig.executor.clear_cache(), rig);
    let bound = rig.bind(&graph, &arguments, None).unwrap();
    let stream = Stream::new(&Scheduler::new(rig.device.clone()));
    let ran = stream.run(&plan, &bound.block, Default::default(), Completion::pending(), true);
    let Err(Error::Launch { reason, .. }) = ran else { panic!("{ran:?}") };
    assert!(reason.contains("no correction ran"), "{reason}");
}

#[test]
fn programs_of_other_back_ends_are_refused() {
    let device = MockAccelerator::new(host(), config()).unwrap();
    let rig = Subject::new(HostBackend, move || device.clone()).rig();
    let (graph, _) = random_program(2);
    let error = rig.executor.plan(&graph, CompileOptions::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("compiled for another device"), "{error}");
}

#[test]
fn configurations_that_say_nothing_usable_are_refused() {
    for bandwidth in [0.0, -1.0, f64::NAN] {
        let made = MockAccelerator::new(host(), MockConfig { bandwidth, ..config() });
        assert!(matches!(made.err(), Some(Error::Configuration { .. })), "{bandwidth}");
    }
    let memory = girih_mock::MemoryMode::Regions(vec![1 << 60]);
    let made = MockAccelerator::new(host(), MockConfig { memory, ..config() });
    assert!(matches!(made.err(), Some(Error::Launch { .. })));
}
