//! Tests of loops that the host runs, and of loops that the device runs.

use girih_conformance::{Random, Rig, Subject, random_program};
use girih_cpu::{HostBackend, HostDevice};
use girih_ir::ops::control::Control;
use girih_ir::{DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec};
use girih_mock::{MemoryMode, MockAccelerator, MockConfig};
use girih_runtime::{CompileOptions, Error, Stream};
use std::sync::Arc;
use std::time::Duration;

fn rig(host_control_flow: bool) -> Rig {
    let memory = MemoryMode::Regions(vec![16 << 20]);
    let config = MockConfig { memory, host_control_flow, ..MockConfig::default() };
    let backend = config.backend(Arc::new(HostBackend::default()));
    let device = move || {
        let host = Arc::new(HostDevice::of_process().expect("the environment is sound"));
        MockAccelerator::new(host, config.clone()).expect("memory can be reserved")
    };
    Subject::with_backend(backend, device).rig()
}

fn spec() -> TensorSpec {
    TensorSpec::new([4], DType::F32)
}

fn region(f: impl FnOnce(&mut GraphBuilder, NodeId) -> NodeId) -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(spec());
    let y = f(&mut b, x);
    b.finish([y])
}

/// `x = tanh(x)` in an endless loop.
fn endless() -> Graph {
    let forever = region(|b, _| b.constant(Literal::from_f64(DType::Bool, 1.0), []));
    let body = region(|b, x| b.tanh(x).expect("a float"));
    let control = Control { carries: 1, ..Control::default() }.with_regions(vec![forever, body]);
    region(|b, x| {
        let op = Op::control(OpCode::WhileLoop, Arc::new(control), 0);
        b.emit(op, &[x]).expect("the carry keeps its spec")
    })
}

#[test]
fn an_endless_loop_stops_at_its_limit_and_by_cancellation() {
    for host_control_flow in [false, true] {
        let rig = rig(host_control_flow);
        let (graph, arguments) = (endless(), [Random::new(16).array(&spec())]);
        let in_use = rig.in_use();
        let stream = Stream::new(&rig.scheduler());
        let bound = rig.bind(&graph, &arguments, Some(Duration::from_millis(30))).unwrap();
        let error = rig.start(&stream, &graph, &bound).unwrap().wait().unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        let _ = stream.synchronize();
        drop(bound);
        let bound = rig.bind(&graph, &arguments, None).unwrap();
        let run = rig.start(&stream, &graph, &bound).unwrap();
        rig.executor.cancel_all();
        let error = run.wait().unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        let _ = stream.synchronize();
        drop((bound, run));
        // The programs of the plan stay loaded.
        let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
        let images = plan.plan.binaries.len()
            + plan.plan.callees.iter().map(|callee| callee.plan.binaries.len()).sum::<usize>();
        let blocks = rig.device.allocator().stats().blocks;
        assert!(rig.in_use() > in_use && blocks == images, "{blocks} blocks, {images} programs");
        let (graph, arguments) = random_program(7);
        rig.check("after the limit", &graph, &arguments);
    }
}

#[test]
fn a_loop_of_the_host_is_an_operation_of_the_plan() {
    let plan = |host_control_flow| {
        let plan = rig(host_control_flow).executor.plan(&endless(), CompileOptions::default());
        plan.unwrap().plan.to_string()
    };
    let (device, host) = (plan(false), plan(true));
    assert!(!device.contains("loop $0"), "{device}");
    assert!(host.contains("loop $0") && host.contains("call plan"), "{host}");
}
