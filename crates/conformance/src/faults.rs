//! Checks with fault injection: every failure is reported, and affects nothing else.

use crate::rig::{Bound, Rig, Subject, place};
use crate::{Random, random_program};
use girih_ir::{Array, Graph};
use girih_mock::{Checksummed, Fault, Faulty};
use girih_runtime::{CompileOptions, Completion, Device, Error, Policy, Result, Scheduler, Stream};
use std::sync::Arc;
use std::time::Duration;

/// The environment variable for the number of random schedules; 100,000 for a soak test.
const SCHEDULES: &str = "GIRIH_CONFORMANCE_SCHEDULES";
/// The default number of random schedules.
const FEW_SCHEDULES: u64 = 150;

/// The time limit of a run on a device that may hang.
const LIMIT: Duration = Duration::from_millis(50);
/// The time limit of a run that may be stopped early.
const SHORT_LIMIT: Duration = Duration::from_millis(4);

fn faulty(subject: &Subject) -> (Arc<Faulty>, Rig) {
    let device = Faulty::new(subject.device());
    let rig = subject.rig_on(device.clone());
    (device, rig)
}

/// Uploads, runs on a stream with a time limit, and reads.
fn attempt(rig: &Rig, stream: &Stream, graph: &Graph, arguments: &[Array]) -> Result<()> {
    let bound = rig.bind(graph, arguments, Some(LIMIT))?;
    rig.start(stream, graph, &bound)?.wait()?;
    let size = graph.spec(graph.outputs()[0]).size_bytes();
    stream.download(&bound.values[0], size).map(drop)
}

/// Copies bytes to a block of the device, and from there to another block, on a stream's queue.
fn copied(rig: &Rig, stream: &Stream, bytes: &[u8]) -> Result<Vec<u8>> {
    let block = || rig.device.allocator().allocate(bytes.len()).map(Arc::new);
    let (from, to, queue) = (block()?, block()?, stream.queue());
    queue.copy_to_device(bytes.into(), &from)?;
    queue.copy_on_device((&from, 0), (&to, 0), bytes.len(), &[])?.wait()?;
    let mut found = vec![0; bytes.len()];
    rig.device.copy_from_device(None, place(&to), &mut found)?;
    Ok(found)
}

/// A failed copy within the device is reported on its stream, like a copy to the device, and does
/// not leak.
pub fn failed_copies_within_the_device_are_told(subject: &Subject) {
    let (device, rig) = faulty(subject);
    let scheduler = rig.scheduler();
    let (failing, other) = (Stream::new(&scheduler), Stream::new(&scheduler));
    let bytes: Vec<u8> = (0..200).collect();
    let in_use = rig.in_use();
    device.inject(Fault::CopyOnDevice, 0);
    let error = copied(&rig, &failing, &bytes).expect_err("a fault was injected");
    assert!(matches!(error, Error::Launch { .. }), "{error}");
    let found = copied(&rig, &other, &bytes).expect("the other stream works");
    assert!(!subject.computes() || found == bytes);
    other.synchronize().expect("the other stream has no error");
    failing.synchronize().expect("who waited for the copy was told");
    assert_eq!(rig.in_use(), in_use);
    copied(&rig, &failing, &bytes).expect("the stream works again");
}

/// Each fault is an error of its own run; another stream finishes, memory is freed, and the next
/// run is correct.
pub fn each_fault_is_told_and_nothing_leaks(subject: &Subject) {
    let (device, rig) = faulty(subject);
    let (graph, arguments) = random_program(5);
    rig.check("before", &graph, &arguments);
    let in_use = rig.in_use();
    let scheduler = rig.scheduler();
    let (failing, other) = (Stream::new(&scheduler), Stream::new(&scheduler));
    for fault in [Fault::CopyToDevice, Fault::CopyFromDevice, Fault::Launch, Fault::Hang] {
        device.inject(fault, 0);
        let error = attempt(&rig, &failing, &graph, &arguments).expect_err("a fault was injected");
        let fits = match fault {
            Fault::Hang => matches!(error, Error::Timeout { .. }),
            _ => matches!(error, Error::Launch { .. }),
        };
        assert!(fits, "{fault:?}: {error}");
        attempt(&rig, &other, &graph, &arguments).expect("the other stream works");
        other.synchronize().expect("the other stream has no error");
        let _ = failing.synchronize();
        assert_eq!(rig.in_use(), in_use, "{fault:?} leaks");
        rig.check(&format!("after {fault:?}"), &graph, &arguments);
        attempt(&rig, &failing, &graph, &arguments).expect("the stream works again");
    }
    assert_eq!(device.injected(), 4);
}

/// If a run fails, so does each run of a long chain of dependent runs: all have the first failure as
/// their cause, without nesting. Other streams finish.
pub fn a_failure_reaches_a_chain_of_dependants_as_it_is(subject: &Subject) {
    let (device, rig) = faulty(subject);
    let (graph, arguments) = random_program(5);
    rig.check("before", &graph, &arguments);
    let in_use = rig.in_use();
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let scheduler = rig.scheduler();
    let bounds: Vec<Bound> =
        (0..100).map(|_| rig.bind(&graph, &arguments, None).unwrap()).collect();
    device.inject(Fault::Launch, 0);
    let mut errors = Vec::new();
    let mut before: Option<Arc<Completion>> = None;
    for bound in &bounds {
        let stream = Stream::new(&scheduler);
        let completion = Completion::pending();
        let (after, done) = (before.iter().cloned().collect(), completion.clone());
        let begun = rig.executor.start(&stream, &plan.plan, &bound.block, after, done, false);
        errors.push(begun.and(completion.wait()).expect_err("the first run fails"));
        before = Some(completion);
        let _ = stream.synchronize();
    }
    let Error::Launch { .. } = &errors[0] else { panic!("{}", errors[0]) };
    for error in &errors[1..] {
        let Error::Dependency(cause) = error else { panic!("{error}") };
        assert_eq!(**cause, errors[0]);
    }
    attempt(&rig, &Stream::new(&scheduler), &graph, &arguments).expect("other streams work");
    drop((bounds, before));
    assert_eq!(rig.in_use(), in_use, "the chain leaks");
}

/// Loading a plan fails at each of its binaries in turn, in the copy of its image and in the
/// device: the binaries loaded before are freed.
pub fn a_failed_load_frees_the_images_before_it(subject: &Subject) {
    let (device, rig) = faulty(subject);
    let (graph, arguments) = random_program(23);
    let mut loads = 0;
    loop {
        device.inject(Fault::Load, loads);
        let Err(error) = rig.executor.plan(&graph, CompileOptions::default()) else { break };
        assert!(matches!(error, Error::Launch { .. }), "{error}");
        assert_eq!(rig.in_use(), 0, "binary {loads}");
        loads += 1;
    }
    device.heal();
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    assert_eq!(loads, plan.plan.binaries.len(), "each binary is loaded once");
    rig.check("after failed loads", &graph, &arguments);
    drop(plan);
    rig.executor.clear_cache();
    assert_eq!(rig.in_use(), 0);
    let mut failures = 0;
    loop {
        device.inject(Fault::CopyToDevice, failures);
        let Err(error) = rig.executor.plan(&graph, CompileOptions::default()) else { break };
        assert!(matches!(error, Error::Launch { .. }), "{error}");
        assert_eq!(rig.in_use(), 0, "binary {failures}");
        failures += 1;
    }
    device.heal();
    let plan = rig.executor.plan(&graph, CompileOptions::default()).unwrap();
    let images = plan.plan.binaries.iter().filter(|binary| device.image(binary).is_some());
    assert_eq!(images.count(), failures, "one copy for each binary that has an image");
    rig.check("after failed loads", &graph, &arguments);
    // The images of a dropped plan are freed after its last use.
    drop(plan);
    rig.executor.clear_cache();
    assert_eq!(rig.in_use(), 0);
}

/// Checksums detect a bit that flips in a copy.
pub fn corrupted_copies_are_found_by_checksums(subject: &Subject) {
    let device = Faulty::new(subject.device());
    let rig = subject.rig_on(Checksummed::new(device.clone()));
    let (graph, arguments) = random_program(5);
    if !subject.computes() {
        return;
    }
    rig.check("with checksums", &graph, &arguments);
    let scheduler = rig.scheduler();
    let (failing, other) = (Stream::new(&scheduler), Stream::new(&scheduler));
    let bytes: Vec<u8> = (0..=255).collect();
    let in_use = rig.in_use();
    for fault in [Fault::CorruptToDevice, Fault::CorruptFromDevice, Fault::CorruptOnDevice] {
        device.inject(fault, 0);
        let error = match fault {
            Fault::CorruptOnDevice => copied(&rig, &failing, &bytes).map(drop),
            _ => attempt(&rig, &failing, &graph, &arguments),
        };
        let error = error.expect_err("a bit was flipped");
        let Error::Launch { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("corrupted"), "{error}");
        attempt(&rig, &other, &graph, &arguments).expect("the other stream works");
        other.synchronize().expect("the other stream has no error");
        let _ = failing.synchronize();
        let _ = rig.executor.stream().synchronize();
        assert_eq!(rig.in_use(), in_use, "{fault:?} leaks");
        rig.check("after a flipped bit", &graph, &arguments);
    }
}

/// Each allocation of an evaluation fails in turn, by a memory limit: the evaluation fails with
/// [`Error::OutOfMemory`], nothing leaks, another stream finishes, and the next evaluation works.
pub fn no_memory_fails_one_evaluation_alone(subject: &Subject) {
    let rig = subject.rig();
    let (graph, arguments) = random_program(5);
    rig.check("before", &graph, &arguments);
    let in_use = rig.in_use();
    let scheduler = rig.scheduler();
    let (failing, other) = (Stream::new(&scheduler), Stream::new(&scheduler));
    let allocator = rig.device.allocator();
    let mut failures = 0;
    for more in (0..).step_by(128) {
        allocator.set_limit(Some(in_use + more));
        let outcome = attempt(&rig, &failing, &graph, &arguments);
        allocator.set_limit(None);
        let Err(error) = outcome else { break };
        assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
        failures += 1;
        attempt(&rig, &other, &graph, &arguments).expect("the other stream works");
        other.synchronize().expect("the other stream has no error");
        let _ = failing.synchronize();
        assert_eq!(rig.in_use(), in_use, "with {more} bytes it leaks");
    }
    assert!(failures > arguments.len(), "{failures} failures, {} arguments", arguments.len());
    rig.check("after", &graph, &arguments);
}

/// Runs on three streams in random order with random faults, events, dropped results and exhausted
/// memory. Afterwards no memory is in use and everything works. `GIRIH_CONFORMANCE_SCHEDULES` sets
/// the number.
pub fn random_schedules_with_faults(subject: &Subject) {
    let (device, rig) = faulty(subject);
    let programs: Vec<(Graph, Vec<Array>)> = (40..44).map(random_program).collect();
    for (graph, arguments) in &programs {
        rig.check("before", graph, arguments);
    }
    let in_use = rig.in_use();
    let schedules = std::env::var(SCHEDULES).ok().and_then(|n| n.parse().ok());
    for seed in 0..schedules.unwrap_or(FEW_SCHEDULES) {
        device.at_random(seed, 0.04);
        schedule(&rig, seed, &programs);
        device.heal();
        assert_eq!(rig.in_use(), in_use, "schedule {seed} leaks");
        let (graph, arguments) = &programs[seed as usize % programs.len()];
        rig.check(&format!("after schedule {seed}"), graph, arguments);
    }
    assert!(device.injected() > 0);
}

fn schedule(rig: &Rig, seed: u64, programs: &[(Graph, Vec<Array>)]) {
    let mut random = Random::new(seed);
    let policy = if seed.is_multiple_of(2) { Policy::Random(seed) } else { Policy::RoundRobin };
    let scheduler = Scheduler::with_policy(rig.device.clone(), policy);
    let streams: Vec<Stream> = (0..3).map(|_| Stream::new(&scheduler)).collect();
    let event = girih_runtime::Event::new();
    let mut kept: Vec<Bound> = Vec::new();
    for _ in 0..12 {
        let stream = &streams[random.below(3)];
        let (graph, arguments) = &programs[random.below(programs.len())];
        match random.below(10) {
            0 => stream.queue().record(&event),
            1 => stream.queue().wait(&event),
            2 => drop(stream.synchronize()),
            3 => kept.clear(),
            4 => {
                let allocator = rig.device.allocator();
                allocator.set_limit(Some(allocator.stats().in_use));
                // Out of memory, unless concurrent runs free enough.
                let bound = rig.bind(graph, arguments, Some(SHORT_LIMIT));
                allocator.set_limit(None);
                drop(bound);
            }
            _ => {
                // A failed upload is reported immediately, a failed run by its completion.
                let Ok(bound) = rig.bind(graph, arguments, Some(SHORT_LIMIT)) else { continue };
                if rig.start(stream, graph, &bound).is_ok() && random.below(2) == 0 {
                    kept.push(bound);
                }
            }
        }
    }
    kept.clear();
    while streams.iter().any(|stream| stream.synchronize().is_err()) {}
    let _ = rig.executor.stream().synchronize();
}
