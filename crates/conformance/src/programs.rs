//! Checks of whole programs: compiling, binding, running and reading.

use crate::rig::{Rig, Subject, place};
use crate::{Random, random_program};
use girih_ir::dim::Dim;
use girih_ir::{Array, DType, Graph, GraphBuilder, OpCode, Shape, TensorSpec};
use girih_mock::{Hooks, Wrapped};
use girih_runtime::{
    Argument, Binary, Buffer, CompileOptions, Device, Error, LoadedProgram, Replay, Result,
    RunControl, SymbolicGraph,
};
use std::sync::{Arc, Mutex, PoisonError};

const PROGRAMS: u64 = 60;

/// Random programs have the reference's results.
pub fn random_programs_compute_the_reference(subject: &Subject) {
    let rig = subject.rig();
    for seed in 0..PROGRAMS {
        let (graph, arguments) = random_program(seed);
        rig.check(&format!("program {seed}"), &graph, &arguments);
    }
}

/// A plan is compiled and loaded once, and runs with other arguments, concurrently on several
/// threads.
pub fn one_plan_serves_many_arguments_and_threads(subject: &Subject) {
    let rig = subject.rig();
    let (graph, arguments) = random_program(7);
    rig.check("first", &graph, &arguments);
    let blocks = rig.device.allocator().stats().blocks;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (rig, graph, arguments) = (&rig, &graph, &arguments);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for round in 0..25 {
                    let arguments: Vec<Array> =
                        arguments.iter().map(|x| random.array(x.spec())).collect();
                    rig.check(&format!("thread {thread}, round {round}"), graph, &arguments);
                }
            });
        }
    });
    assert_eq!(rig.executor.counters().compiles, 1);
    assert_eq!(rig.device.allocator().stats().blocks, blocks, "nothing leaks, nothing is loaded");
}

/// Records the images of the binaries that a device loads.
#[derive(Default)]
struct Images(Mutex<Vec<Arc<Buffer>>>);

impl Hooks for Images {
    fn load(
        &self,
        inside: &dyn Device,
        binary: &Binary,
        image: Option<Arc<Buffer>>,
    ) -> Result<LoadedProgram> {
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        images.extend(image.clone());
        inside.load(binary, image)
    }
}

impl Images {
    /// The bytes of each image in device memory.
    fn read(&self, device: &dyn Device) -> Vec<Vec<u8>> {
        let images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |image: &Arc<Buffer>| {
            let mut bytes = vec![0; image.size_bytes()];
            device.copy_from_device(None, place(image), &mut bytes).expect("images stay loaded");
            bytes
        };
        images.iter().map(read).collect()
    }
}

/// A plan that leaves the cache while work with it is queued stays loaded until that work is done, and
/// is freed then.
pub fn an_evicted_plan_lives_until_queued_work_is_done(subject: &Subject) {
    let rig = subject.rig();
    let (graph, arguments) = random_program(3);
    let in_use = rig.in_use();
    let (stream, scheduler) = (girih_runtime::Stream::new(&rig.scheduler()), rig.scheduler());
    let bound = rig.bind(&graph, &arguments, None).unwrap();
    let before = rig.in_use();
    let hold = scheduler.hold();
    let done = rig.start(&stream, &graph, &bound).unwrap();
    rig.executor.clear_cache();
    assert_eq!(rig.in_use(), before, "no program of queued work is freed");
    drop(hold);
    done.wait().unwrap();
    let found = rig.results(&graph, &bound.values).unwrap();
    rig.compare("evicted", &graph, &arguments, &found);
    drop((found, bound));
    scheduler.synchronize_all().unwrap();
    // The thread that ran the work drops it after the outcome is known.
    let start = std::time::Instant::now();
    while rig.in_use() > in_use {
        assert!(start.elapsed().as_secs() < 60, "{} bytes stay", rig.in_use() - in_use);
        std::thread::yield_now();
    }
}

/// Launches with other arguments have other results and do not change the binaries.
pub fn launches_change_no_byte_of_a_binary(subject: &Subject) {
    let device = Arc::new(Wrapped::with_hooks(subject.device(), Images::default()));
    let rig = subject.rig_on(device.clone());
    let (graph, arguments) = random_program(7);
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let loaded = device.hooks().read(&*device);
    let has_image = |binary: &&Binary| device.image(binary).is_some();
    assert_eq!(loaded.len(), plan.plan.binaries.iter().filter(has_image).count());
    let mut random = Random::new(1);
    for round in 0..3 {
        let given: Vec<Array> = arguments.iter().map(|x| random.array(x.spec())).collect();
        rig.check(&format!("round {round}"), &graph, &given);
    }
    assert!(device.hooks().read(&*device) == loaded, "a launch changed a binary");
}

/// Binding rejects missing arguments, other shapes, dtypes and kinds, and buffers that are too
/// small.
pub fn arguments_that_do_not_fit_the_plan_are_refused(subject: &Subject) {
    let rig = subject.rig();
    let (graph, arguments) = random_program(3);
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let refused = |what: &str, given: &[Argument]| {
        let bound = rig.executor.bind(&plan, given, RunControl::default());
        let error = bound.map(drop).expect_err(what);
        let fits = matches!(error, Error::ArgumentCount { .. } | Error::ArgumentMismatch { .. });
        assert!(fits, "{what}: {error}");
    };
    let good = rig.arguments(&arguments).unwrap();
    refused("too few", &good[..1]);
    let mut bad = good.clone();
    bad[0] = Argument::Scalar(0);
    refused("a scalar for a tensor", &bad);
    let spec = TensorSpec::new(arguments[0].spec().shape.clone(), DType::I32);
    let same_bytes = Array::from_f64(spec.shape.clone(), spec.dtype, &vec![0.0; spec.numel()]);
    bad[0] = Argument::Tensor(rig.upload(&same_bytes).unwrap(), spec);
    refused("another dtype of the same size", &bad);
    let short = rig.executor.upload(&[0]).unwrap();
    bad[0] = Argument::Tensor(short, arguments[0].spec().clone());
    refused("a buffer that is too small", &bad);
    // The error lists all wrong arguments.
    bad[1] = Argument::RandomKey { key: 0, offset: 0 };
    let error = rig.executor.bind(&plan, &bad, RunControl::default()).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(matches!(&error, Error::ArgumentMismatches(list) if list.len() == 2), "{text}");
    assert!(text.contains("argument 0") && text.contains("argument 1"), "{text}");
    assert!(rig.executor.bind(&plan, &good, RunControl::default()).is_ok());
}

/// Random leaves have the same draws for equal keys and offsets, and other draws for others.
pub fn draws_follow_their_key(subject: &Subject) {
    let rig = subject.rig();
    let spec = TensorSpec::new([1000], DType::F32);
    let mut b = GraphBuilder::default();
    let draws = b.leaf(OpCode::RandomUniform.into(), spec.clone());
    let graph = b.finish([draws]);
    let draw = |key, offset| {
        let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
        let replay = Replay::of(&rig.executor, || Ok(plan)).unwrap();
        let arguments = [Argument::RandomKey { key, offset }];
        let values = replay.call(rig.executor.stream(), &arguments, None).unwrap();
        rig.download(&values[0], &spec).unwrap().to_f64()
    };
    let first = draw(1, 0);
    if !subject.computes() {
        return;
    }
    assert_eq!(first, draw(1, 0));
    assert!(first != draw(2, 0) && first != draw(1, 5000));
    assert!(first.iter().all(|x| (0.0..1.0).contains(x)));
    let mean = first.iter().sum::<f64>() / first.len() as f64;
    assert!((mean - 0.5).abs() < 0.05, "{mean}");
}

fn symbolic(n: Dim) -> Graph {
    let mut b = GraphBuilder::default();
    let spec = TensorSpec::new(Shape::of_dims([n, Dim::from(5)]), DType::F32);
    let x = b.input(spec);
    let y = b.tanh(x).and_then(|y| b.mul(y, x)).expect("elementwise ops take symbolic sizes");
    b.finish([y])
}

/// A graph with a symbolic size is compiled once and bound to each size.
pub fn sizes_are_bound_without_compiling_again(subject: &Subject) {
    let rig = subject.rig();
    let n = Dim::symbol("conformance_n", 8, 1, None);
    let program = SymbolicGraph::new(symbolic(n));
    let symbol = n.as_symbol().expect("a symbol");
    let mut random = Random::new(4);
    for size in [1, 2, 33, 1000, 33] {
        let plan = rig.executor.plan_at(&program, &[(symbol, size)], CompileOptions::default());
        let graph = symbolic(Dim::from(size));
        let x = random.array(&TensorSpec::new([size, 5], DType::F32));
        let arguments = rig.arguments(std::slice::from_ref(&x)).unwrap();
        let plan = plan.unwrap();
        let replay = Replay::of(&rig.executor, || Ok(plan)).unwrap();
        let values = replay.call(rig.executor.stream(), &arguments, None).unwrap();
        let results = rig.results(&graph, &values).unwrap();
        rig.compare(&format!("n = {size}"), &graph, &[x], &results);
    }
    let counters = rig.executor.counters();
    assert_eq!((counters.compiles, counters.bindings), (1, 4));
}

/// A result may alias a donated argument, and has the same value.
pub fn donated_arguments_may_be_written_over(subject: &Subject) {
    let rig = subject.rig();
    let spec = TensorSpec::new([100], DType::F32);
    let mut b = GraphBuilder::default();
    let x = b.input(spec.clone());
    let y = b.add(x, x).unwrap();
    let graph = b.finish([y]);
    let array = Random::new(5).array(&spec);
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let replay = Replay::of(&rig.executor, || Ok(plan)).unwrap();
    let stream = rig.executor.stream();
    let given = [Argument::Donated(rig.upload(&array).unwrap())];
    let values = replay.call(stream, &given, None).unwrap();
    drop(given);
    let results = rig.results(&graph, &values).unwrap();
    rig.compare("donated", &graph, std::slice::from_ref(&array), &results);
    // Another reference to the value exists, so the run must not overwrite it.
    let value = rig.upload(&array).unwrap();
    let given = [Argument::Donated(value.clone())];
    replay.call(stream, &given, None).unwrap();
    unchanged(&rig, subject, &value, &array);
}

fn unchanged(rig: &Rig, subject: &Subject, value: &girih_runtime::Value, array: &Array) {
    let found = rig.download(value, array.spec()).unwrap();
    assert!(!subject.computes() || found.to_bytes() == array.to_bytes());
}
