//! Tests of a tiled program from its arguments to its result: the first call compiles, loads and
//! caches the program; four tiles are twelve primitives.

use girih_conformance::{Random, Subject};
use girih_cpu::{HostBackend, HostDevice};
use girih_ir::{Array, DType, Graph, GraphBuilder, TensorSpec};
use girih_mock::{MockAccelerator, MockBackend, MockConfig};
use girih_runtime::trace::{Recording, SpanKind};
use girih_runtime::{CompileOptions, TileArgument, TileOptions, TileResult};
use std::sync::{Arc, Mutex, PoisonError};

/// Serialises the tests, because a recording has the spans of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

const K: usize = 16;

fn spec(rows: usize) -> TensorSpec {
    TensorSpec::new([rows, K], DType::F32)
}

fn matmul(rows: usize) -> Graph {
    let mut b = GraphBuilder::default();
    let x = [spec(rows), spec(K)].map(|spec| b.input(spec));
    let y = b.matmul(x[0], x[1]).unwrap();
    b.finish([y])
}

#[test]
fn four_tiles_from_the_arguments_to_the_result() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = MockConfig { corrections: true, ..MockConfig::default() };
    let subject =
        Subject::new(MockBackend::new(Arc::new(HostBackend::default()), true), move || {
            MockAccelerator::new(Arc::new(HostDevice::of_process().unwrap()), config.clone())
                .unwrap()
        });
    let rig = subject.rig();
    let stream = rig.executor.stream();
    assert_eq!(stream.queue().index(), 0, "the default stream is there from the start");
    let mut random = Random::new(1);
    let arrays = [spec(4096), spec(K)].map(|spec| random.array(&spec));
    let given = |x: &Array| TileArgument::Device(rig.upload(x).unwrap(), x.spec().clone());
    let given = arrays.each_ref().map(given);
    assert_eq!(rig.executor.counters().compiles, 0);
    let program = rig.executor.tiled(&matmul(1024), CompileOptions::default()).unwrap();
    let recording = Recording::new();
    let options = TileOptions::default();
    let run = rig.executor.launch_tiled(stream, &program, &given, options).unwrap();
    let TileResult::Device(value, result) = &run.results[0] else { panic!("on the device") };
    // Reading waits for the enqueued work.
    let found = rig.download(value, result).unwrap();
    let spans = recording.spans();
    let kinds: Vec<SpanKind> = spans.iter().map(|span| span.kind).collect();
    let tile = [SpanKind::CopyToDevice, SpanKind::Launch, SpanKind::Launch];
    assert_eq!(kinds[..12], tile.repeat(4));
    assert_eq!(kinds[12..], [SpanKind::CopyFromDevice]);
    let times: Vec<_> = spans.iter().map(|span| (span.start, span.start + span.duration)).collect();
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{times:?}");
    rig.compare("four tiles", &matmul(4096), &arrays, &[found]);
    let again = rig.executor.tiled(&matmul(1024), CompileOptions::default()).unwrap();
    rig.executor.launch_tiled(stream, &again, &given, options).unwrap().completion.wait().unwrap();
    assert_eq!(rig.executor.counters().compiles, 1);
}

#[test]
fn a_compiled_plan_prints_its_operations_and_the_bytes_of_corrections() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let config = MockConfig { corrections: true, ..MockConfig::default() };
    let subject =
        Subject::new(MockBackend::new(Arc::new(HostBackend::default()), true), move || {
            MockAccelerator::new(Arc::new(HostDevice::of_process().unwrap()), config.clone())
                .unwrap()
        });
    let plan =
        subject.rig().executor.plan(&matmul(1024), CompileOptions::default()).unwrap().plan.clone();
    let expected = "\
plan(f32[1024, 16], f32[16, 16]) -> (%2: f32[1024, 16]) {
  init: 21 bytes
  %0: 65536 bytes, argument 0
  %1: 1024 bytes, argument 1
  %2: 65536 bytes, output
  %3: 48 bytes, temporary at 0
  %4: 40 bytes, temporary at 128
  matmul {
    copy_to_device handles of %0, %1, %2 (48 bytes) -> %3
    launch @1
    launch @0
  }
}
";
    assert_eq!(plan.to_string(), expected);
    assert_eq!(plan.operations[0].correction_bytes(), 48);
}
