//! Checks of capture and replay.

use crate::Random;
use crate::rig::{Rig, Subject};
use girih_ir::{Array, DType, Graph, GraphBuilder, OpCode, TensorSpec};
use girih_mock::{Fault, Faulty};
use girih_runtime::{
    Argument, ArgumentSpec, Capture, Captured, CompileOptions, Error, Replay, Result, Stream,
};

/// `tanh(x y) + x` for square matrices.
fn layer() -> Graph {
    let mut b = GraphBuilder::default();
    let (x, y) = (b.input(spec()), b.input(spec()));
    let z = b.matmul(x, y).and_then(|z| b.tanh(z)).and_then(|z| b.add(z, x));
    let z = z.expect("the matrices are square");
    b.finish([z])
}

fn spec() -> TensorSpec {
    TensorSpec::new([7, 7], DType::F32)
}

/// The layer, `count` times, as one graph.
fn layers(count: usize) -> Graph {
    let mut b = GraphBuilder::default();
    let (mut x, y) = (b.input(spec()), b.input(spec()));
    for _ in 0..count {
        x = b.inline(&layer(), &[x, y]).expect("one spec")[0];
    }
    b.finish([x])
}

/// The layer, `count` times, as one capture.
fn captured(rig: &Rig, count: usize) -> Replay {
    let plan = rig.executor.plan(&layer(), CompileOptions::default()).unwrap();
    let mut capture = Capture::new([spec(), spec()]);
    let mut x = Captured::Input(0);
    for _ in 0..count {
        x = capture.launch(&plan, &[x, Captured::Input(1)]).unwrap().remove(0);
    }
    capture.finish(&rig.executor, &[x]).unwrap()
}

fn inputs(rig: &Rig, arrays: &[Array]) -> Vec<Argument> {
    arrays.iter().map(|x| Argument::Checked(rig.upload(x).unwrap())).collect()
}

fn check(rig: &Rig, replay: &Replay, stream: &Stream, random: &mut Random) -> Result<()> {
    let arrays = [random.array(&spec()), random.array(&spec())];
    let (values, done) = replay.launch(stream, &inputs(rig, &arrays))?;
    done.wait()?;
    let found = rig.download(&values[0], &spec())?;
    rig.compare("replay", &layers(5), &arrays, &[found]);
    Ok(())
}

/// A replay with new arguments has the results of the separate launches, and does not compile or
/// load.
pub fn replays_take_new_arguments(subject: &Subject) {
    let rig = subject.rig();
    let replay = captured(&rig, 5);
    let (counters, stream) = (rig.executor.counters(), rig.executor.stream());
    let mut random = Random::new(1);
    for _ in 0..10 {
        check(&rig, &replay, stream, &mut random).unwrap();
    }
    assert_eq!(rig.executor.counters().compiles, counters.compiles);
    assert_eq!(rig.executor.counters().launches - counters.launches, 10 * replay.launches() as u64);
    let error = replay.launch(stream, &[]).unwrap_err();
    assert!(matches!(error, Error::ArgumentCount { expected: 2, found: 0 }), "{error}");
    let short = Argument::Checked(rig.executor.upload(&[0; 4]).unwrap());
    let whole = Argument::Checked(rig.upload(&random.array(&spec())).unwrap());
    let error = replay.launch(stream, &[short, whole]).unwrap_err();
    assert!(matches!(error, Error::ArgumentMismatch { .. }), "{error}");
}

/// Replays take scalars and keys of random leaves as arguments; a replay of one launch has the
/// results of calling its plan.
pub fn replays_take_scalars_and_keys(subject: &Subject) {
    let rig = subject.rig();
    let mut b = GraphBuilder::default();
    let x = b.input(spec());
    let scale = b.leaf(OpCode::Constant.into(), spec());
    let noise = b.leaf(OpCode::RandomUniform.into(), spec());
    let y = b.mul(x, scale).and_then(|y| b.add(y, noise)).expect("one spec");
    let graph = b.finish([y]);
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let one = Replay::of(&rig.executor, || Ok(plan.clone())).unwrap();
    assert!(one.is_current(&rig.executor) && !one.is_current(&subject.rig().executor));
    let specs = ArgumentSpec::of_graph(&graph);
    let mut capture = Capture::new(specs);
    let given = [Captured::Input(0), Captured::Input(1), Captured::Input(2)];
    let first = capture.launch(&plan, &given).unwrap().remove(0);
    let twice = capture.launch(&plan, &[first, Captured::Input(1), Captured::Input(2)]).unwrap();
    let two = capture.finish(&rig.executor, &twice).unwrap();
    assert_eq!(two.launches(), 2 * one.launches());
    let (stream, mut random) = (rig.executor.stream(), Random::new(4));
    for round in 0..3 {
        let x = Argument::Checked(rig.upload(&random.array(&spec())).unwrap());
        let scale = Argument::Scalar(f32::to_bits(1.5 + round as f32).into());
        let key = Argument::RandomKey { key: 7, offset: 100 * round };
        let by_two = two.call(stream, &[x.clone(), scale.clone(), key.clone()], None).unwrap();
        let once = one.call(stream, &[x, scale.clone(), key.clone()], None).unwrap();
        let again = [Argument::Checked(once[0].clone()), scale, key];
        let (by_one, done) = one.launch(stream, &again).unwrap();
        done.wait().unwrap();
        let [a, b] = [by_two, by_one].map(|v| rig.download(&v[0], &spec()).unwrap().to_bytes());
        assert!(!subject.computes() || a == b, "round {round}");
    }
    let error =
        two.call(stream, &[Argument::Scalar(0), Argument::Scalar(0), Argument::Scalar(0)], None);
    assert!(matches!(error, Err(Error::ArgumentMismatch { .. } | Error::ArgumentMismatches(_))));
    rig.executor.clear_cache();
    assert!(!one.is_current(&rig.executor), "the plan would be compiled again");
}

/// Replays on several streams share memory and run one after another.
pub fn replays_on_streams_do_not_meet(subject: &Subject) {
    let rig = subject.rig();
    let replay = captured(&rig, 5);
    let scheduler = rig.scheduler();
    let streams = [Stream::new(&scheduler), Stream::new(&scheduler)];
    let mut random = Random::new(2);
    let mut runs = Vec::new();
    let hold = scheduler.hold();
    for round in 0..20 {
        let arrays = [random.array(&spec()), random.array(&spec())];
        let (values, _) = replay.launch(&streams[round % 2], &inputs(&rig, &arrays)).unwrap();
        runs.push((arrays, values));
    }
    drop(hold);
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    for (arrays, values) in runs {
        let found = rig.download(&values[0], &spec()).unwrap();
        rig.compare("replay", &layers(5), &arrays, &[found]);
    }
}

/// A fault in a replay is reported, and the next replay is correct.
pub fn a_replay_that_fails_concerns_no_other(subject: &Subject) {
    let device = Faulty::new(subject.device());
    let rig = subject.rig_on(device.clone());
    let replay = captured(&rig, 5);
    let mut random = Random::new(3);
    for after in [0, 3] {
        device.inject(Fault::Launch, after);
        let stream = Stream::new(&rig.scheduler());
        assert!(check(&rig, &replay, &stream, &mut random).is_err());
        let _ = stream.synchronize();
        check(&rig, &replay, &stream, &mut random).unwrap();
    }
}

/// The capture rejects arguments with other specs, and results that do not exist.
pub fn captures_are_checked(subject: &Subject) {
    let rig = subject.rig();
    let plan = rig.executor.plan(&layer(), CompileOptions::default()).unwrap();
    let other = TensorSpec::new([7, 8], DType::F32);
    let mut capture = Capture::new([spec(), other]);
    let refused = |capture: &mut Capture, given: &[Captured]| {
        capture.launch(&plan, given).map(drop).unwrap_err()
    };
    let one = refused(&mut capture, &[Captured::Input(0)]);
    assert!(matches!(one, Error::ArgumentCount { expected: 2, found: 1 }), "{one}");
    for wrong in [Captured::Input(1), Captured::Input(2), Captured::Result { launch: 0, output: 0 }]
    {
        let error = refused(&mut capture, &[Captured::Input(0), wrong]);
        assert!(matches!(error, Error::ArgumentMismatch { index: 1, .. }), "{error}");
    }
    let error = capture.finish(&rig.executor, &[Captured::Input(0)]).map(drop).unwrap_err();
    assert!(matches!(error, Error::ArgumentMismatch { .. }), "{error}");
}
