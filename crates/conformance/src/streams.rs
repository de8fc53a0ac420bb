//! Checks of streams, events and scheduling.

use crate::rig::{Bound, Rig, Subject};
use crate::{Random, random_program};
use girih_ir::{Array, DType, Graph, GraphBuilder, TensorSpec};
use girih_runtime::{
    Argument, CompileOptions, Completion, Error, Event, Policy, RunControl, Scheduler, Stream,
    Value, Values,
};
use std::sync::Arc;

/// The number of random schedules in which two streams run one plan.
const INTERLEAVINGS: u64 = 1000;

fn spec() -> TensorSpec {
    TensorSpec::new([33], DType::F32)
}

/// `x + x`.
fn double() -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(spec());
    let y = b.add(x, x).expect("one spec");
    b.finish([y])
}

/// Starts `x + x` of a value that may not be computed yet.
fn start_double(rig: &Rig, stream: &Stream, x: &Value) -> (Value, Arc<Completion>) {
    let plan = rig.executor.plan(&double(), CompileOptions::default()).unwrap();
    let given = [Argument::Tensor(x.clone(), spec())];
    let (block, values) = rig.executor.bind(&plan, &given, RunControl::default()).unwrap();
    let completion = Completion::pending();
    let (after, done) = (Default::default(), completion.clone());
    rig.executor.start(stream, &plan.plan, &block, after, done, false).unwrap();
    (values[0].clone(), completion)
}

fn ones(rig: &Rig) -> Value {
    rig.upload(&Array::from_f64([33], DType::F32, &[1.0; 33])).unwrap()
}

#[track_caller]
fn assert_all(rig: &Rig, subject: &Subject, value: &Value, expected: f64) {
    let found = rig.download(value, &spec()).unwrap().to_f64();
    assert!(!subject.computes() || found.iter().all(|x| *x == expected), "{found:?}: {expected}");
}

/// Runs that depend on each other's results are enqueued without waiting.
pub fn work_of_a_stream_is_in_order(subject: &Subject) {
    let rig = subject.rig();
    let scheduler = rig.scheduler();
    let stream = Stream::new(&scheduler);
    let hold = scheduler.hold();
    let mut value = ones(&rig);
    for _ in 0..10 {
        value = start_double(&rig, &stream, &value).0;
    }
    assert!(!stream.queue().query(), "nothing runs while the scheduler is held");
    drop(hold);
    stream.synchronize().unwrap();
    assert_all(&rig, subject, &value, 1024.0);
}

/// A stream that waits for an event sees the work before the event. Waiting for an event that was
/// never recorded does not block. Times between events are not negative.
pub fn events_order_streams(subject: &Subject) {
    let rig = subject.rig();
    let scheduler = Scheduler::with_policy(rig.device.clone(), Policy::DrainOneFirst);
    let (first, second) = (Stream::new(&scheduler), Stream::new(&scheduler));
    let (start, end) = (Event::new(), Event::new());
    let hold = scheduler.hold();
    second.queue().wait(&Event::new());
    let mut value = ones(&rig);
    first.queue().record(&start);
    for _ in 0..4 {
        value = start_double(&rig, &first, &value).0;
    }
    first.queue().record(&end);
    second.queue().wait(&end);
    let (value, _) = start_double(&rig, &second, &value);
    assert!(!end.query());
    drop(hold);
    second.synchronize().unwrap();
    assert!(end.query());
    assert!(start.elapsed_seconds(&end).unwrap() >= 0.0);
    assert_all(&rig, subject, &value, 32.0);
}

/// Two streams run one plan with different arguments, in many interleavings.
pub fn streams_share_a_plan(subject: &Subject) {
    let rig = subject.rig();
    let (graph, arguments) = random_program(11);
    for seed in 0..INTERLEAVINGS {
        let scheduler = Scheduler::with_policy(rig.device.clone(), Policy::Random(seed));
        let streams = [Stream::new(&scheduler), Stream::new(&scheduler)];
        let mut random = Random::new(seed);
        let hold = scheduler.hold();
        let mut runs: Vec<(Vec<Array>, Bound)> = Vec::new();
        for _ in 0..4 {
            let given: Vec<Array> = arguments.iter().map(|x| random.array(x.spec())).collect();
            let bound = rig.bind(&graph, &given, None).unwrap();
            rig.start(&streams[random.below(2)], &graph, &bound).unwrap();
            runs.push((given, bound));
        }
        drop(hold);
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        for (given, bound) in runs {
            let found = rig.results(&graph, &bound.values).unwrap();
            rig.compare(&format!("seed {seed}"), &graph, &given, &found);
        }
    }
}

/// An index out of bounds is an error of its stream at the next synchronise, once. Later work of
/// the stream is skipped, and other streams continue.
pub fn errors_stay_with_their_stream(subject: &Subject) {
    let rig = subject.rig();
    if !subject.computes() {
        return;
    }
    let mut b = GraphBuilder::default();
    let x = b.input(spec());
    let at = b.input(TensorSpec::new([2], DType::I64));
    let y = b.take_along_axis(x, at, 0).unwrap();
    let graph = b.finish([y]);
    let table = Array::from_f64([33], DType::F32, &[2.0; 33]);
    let bad = [table.clone(), Array::from_f64([2], DType::I64, &[0.0, 33.0])];
    let good = [table, Array::from_f64([2], DType::I64, &[0.0, 32.0])];
    let scheduler = rig.scheduler();
    let (failing, other) = (Stream::new(&scheduler), Stream::new(&scheduler));
    let hold = scheduler.hold();
    let bound = rig.bind(&graph, &bad, None).unwrap();
    let failed = rig.start(&failing, &graph, &bound).unwrap();
    let behind = rig.bind(&graph, &good, None).unwrap();
    let skipped = rig.start(&failing, &graph, &behind).unwrap();
    let fine = rig.bind(&graph, &good, None).unwrap();
    rig.start(&other, &graph, &fine).unwrap();
    drop(hold);
    other.synchronize().expect("the other stream has no error");
    let error = failing.synchronize().expect_err("33 is beyond the axis");
    assert!(
        matches!(error, Error::IndexOutOfBounds { index, size: 33, .. } if i128::from(index) == 33),
        "{error}"
    );
    assert_eq!(failing.synchronize(), Ok(()), "an error is told once");
    assert!(failed.poll().is_some_and(|outcome| outcome.is_err()));
    assert!(matches!(skipped.poll(), Some(Err(Error::Skipped(_)))), "{skipped:?}");
    let again = rig.start(&failing, &graph, &behind).unwrap();
    again.wait().expect("the stream works again");
    for values in [&behind.values, &fine.values] {
        let found = rig.results(&graph, values).unwrap();
        rig.compare("after an error", &graph, &good, &found);
    }
}

/// Work of a dropped stream still runs, and the stream's number is free afterwards.
pub fn a_dropped_stream_finishes_its_work(subject: &Subject) {
    let rig = subject.rig();
    let scheduler = rig.scheduler();
    let stream = Stream::new(&scheduler);
    let number = stream.queue().index();
    let hold = scheduler.hold();
    let (value, done) = start_double(&rig, &stream, &ones(&rig));
    drop(stream);
    let other = Stream::new(&scheduler);
    assert_ne!(other.queue().index(), number, "the number is in use until the work is done");
    drop(hold);
    done.wait().unwrap();
    assert_all(&rig, subject, &value, 2.0);
}

/// Programs on several streams have the same results under each policy, and under two seeds.
pub fn every_policy_gives_the_same_results(subject: &Subject) {
    let rig = subject.rig();
    let policies = [
        Policy::RoundRobin,
        Policy::Priority,
        Policy::DrainOneFirst,
        Policy::Random(1),
        Policy::Random(2),
    ];
    for policy in policies {
        let scheduler = Scheduler::with_policy(rig.device.clone(), policy);
        let streams: Vec<Stream> =
            (0..3).map(|i| Stream::with_priority(&scheduler, i - 1)).collect();
        let run = |seed: u64| {
            let (graph, arguments) = random_program(seed);
            let bound = rig.bind(&graph, &arguments, None).unwrap();
            rig.start(&streams[seed as usize % 3], &graph, &bound).unwrap();
            (graph, arguments, bound)
        };
        let runs: Vec<(Graph, Vec<Array>, Bound)> = (0..12).map(run).collect();
        scheduler.synchronize_all().unwrap();
        for (graph, arguments, Bound { values, .. }) in &runs {
            compare(&rig, &policy.to_string(), graph, arguments, values);
        }
    }
}

fn compare(rig: &Rig, what: &str, graph: &Graph, arguments: &[Array], values: &Values) {
    let found = rig.results(graph, values).unwrap();
    rig.compare(what, graph, arguments, &found);
}
