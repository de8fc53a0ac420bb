//! Tests of queues, events and the scheduler on a device with latency that fails on request.

use crate::defaults::DefaultStreams;
use crate::primitive::{ControlBlock, Lane};
use crate::queue::Submission;
use crate::testing::MockDevice;
use crate::{
    ArgumentBlock, Completion, Device, DeviceQueue, Error, Event, LoadedProgram, Policy, Scheduler,
    Stream, Value,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn enqueues_return_at_once_and_run_in_order() {
    let latency = Duration::from_millis(200);
    let device = MockDevice::new(latency);
    let queue = DeviceQueue::new(&Scheduler::new(device.clone()));
    let buffer = Arc::new(device.allocator().allocate(4).unwrap());
    let value = Value::at(buffer.clone(), 0);
    let start = Instant::now();
    for i in 0..5u32 {
        queue.launch_program(Arc::new(i), Arc::new(ArgumentBlock::default()));
    }
    queue.copy_to_device([1, 2, 3, 4].into(), &buffer).unwrap();
    let (bytes, copied) = queue.copy_from_device(&value, 4).unwrap();
    // All seven return before the first launch is done, on a busy machine as well.
    assert!(start.elapsed() < latency / 2, "enqueues block");
    assert!(!queue.query() && copied.poll().is_none());
    queue.synchronize().unwrap();
    assert!(start.elapsed() >= 5 * latency && queue.query());
    assert_eq!(bytes.lock().unwrap()[..], [1, 2, 3, 4]);
    assert_eq!(*device.log.lock().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_scheduler_that_is_gone_is_not_asked_for_memory() {
    let device = MockDevice::new(Duration::ZERO);
    let before = device.allocator().num_collectors();
    for i in 0..5u32 {
        let queue = DeviceQueue::new(&Scheduler::new(device.clone()));
        assert_eq!(device.allocator().num_collectors(), before + 1);
        queue.launch_program(Arc::new(i), Arc::new(ArgumentBlock::default()));
        queue.synchronize().unwrap();
        drop(queue);
        // A worker thread may be about to end.
        let start = Instant::now();
        while device.allocator().num_collectors() > before {
            assert!(start.elapsed() < Duration::from_secs(60), "the collector is still registered");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_failure_is_reported_by_the_next_synchronise_of_its_queue_only() {
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::new(device);
    let (bad, good) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    bad.launch_program(Arc::new(MockDevice::FAILS), Arc::new(ArgumentBlock::default()));
    good.launch_program(Arc::new(1u32), Arc::new(ArgumentBlock::default()));
    assert_eq!(good.synchronize(), Ok(()));
    assert!(matches!(bad.synchronize(), Err(Error::Launch { .. })));
    assert_eq!(bad.synchronize(), Ok(()), "an error is told once");
}

#[test]
fn an_event_orders_two_queues_whichever_is_drained_first() {
    let device = MockDevice::new(Duration::from_millis(5));
    let scheduler = Scheduler::new(device.clone());
    let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let event = Event::new();
    let arguments = || Arc::new(ArgumentBlock::default());
    first.launch_program(Arc::new(1u32), arguments());
    first.launch_program(Arc::new(2u32), arguments());
    first.record(&event);
    second.wait(&event);
    second.launch_program(Arc::new(3u32), arguments());
    second.synchronize().unwrap();
    assert_eq!(*device.log.lock().unwrap(), [1, 2, 3]);
    second.wait(&Event::new());
    assert_eq!(second.synchronize(), Ok(()), "an event never recorded holds nobody");
}

#[test]
fn each_record_of_an_event_is_reached_on_its_own() {
    let device = MockDevice::new(Duration::from_millis(20));
    let scheduler = Scheduler::new(device.clone());
    let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let event = Event::new();
    let arguments = || Arc::new(ArgumentBlock::default());
    first.record(&event);
    second.wait(&event);
    second.launch_program(Arc::new(1u32), arguments());
    // The event is recorded again after more work: a thread that waits for the first record does
    // not wait for the second one, and reaching the first record does not mark the second one as
    // reached.
    first.launch_program(Arc::new(2u32), arguments());
    first.record(&event);
    event.synchronize().unwrap();
    assert!(device.log.lock().unwrap().contains(&2));
    second.synchronize().unwrap();
    first.synchronize().unwrap();
}

#[test]
fn a_device_that_panics_fails_the_launch_and_leaves_the_queue_usable() {
    let device = MockDevice::new(Duration::ZERO);
    let queue = DeviceQueue::new(&Scheduler::new(device.clone()));
    queue.launch_program(Arc::new(MockDevice::PANICS), Arc::new(ArgumentBlock::default()));
    let error = queue.synchronize().unwrap_err();
    assert!(error.to_string().contains("asked to panic"), "{error}");
    queue.launch_program(Arc::new(4u32), Arc::new(ArgumentBlock::default()));
    queue.synchronize().unwrap();
    assert_eq!(*device.log.lock().unwrap(), [4]);
}

#[test]
fn callbacks_of_a_completion_are_called_once() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let completion = Completion::pending();
    let (early, late) = (sender.clone(), sender);
    completion.then(move |_| early.send("early").unwrap());
    completion.finish(Ok(()));
    completion.finish(Ok(()));
    completion.then(move |_| late.send("late").unwrap());
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["early", "late"]);
}

#[test]
fn synchronising_waits_for_what_another_thread_runs_itself() {
    // Callers start under the scheduler's lock, or through the gate.
    for concurrency in [1, usize::MAX] {
        synchronise_with_a_caller(MockDevice::concurrent(Duration::from_millis(30), concurrency));
    }
}

fn synchronise_with_a_caller(device: Arc<MockDevice>) {
    let scheduler = Scheduler::new(device.clone());
    let queue = DeviceQueue::new(&scheduler);
    let (started, waits) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outcome = queue.run_idle(|lane| {
                started.send(()).unwrap();
                let program: LoadedProgram = Arc::new(9u32);
                lane.launch(&program, &ArgumentBlock::default(), 0)?.wait()
            });
            assert_eq!(outcome, Some(Ok(())));
        });
        waits.recv().unwrap();
        assert_eq!(queue.run_idle(|_| Ok(())), None, "it is busy");
        assert!(!queue.query());
        queue.synchronize().unwrap();
        assert!(queue.query());
    });
    assert_eq!(*device.log.lock().unwrap(), [9]);
}

#[test]
fn a_dropped_queue_drains_and_its_number_is_reused() {
    let device = MockDevice::new(Duration::from_millis(2));
    let scheduler = Scheduler::new(device.clone());
    let queue = DeviceQueue::new(&scheduler);
    let index = queue.index();
    let completion = queue.launch_program(Arc::new(7u32), Arc::new(ArgumentBlock::default()));
    drop(queue);
    completion.wait().unwrap();
    assert_eq!(*device.log.lock().unwrap(), [7]);
    assert_eq!(DeviceQueue::new(&scheduler).index(), index);
}

/// A launch of a program of the device for tests.
pub(super) fn launch(program: u32) -> ControlBlock {
    ControlBlock::Launch { program: Arc::new(program), arguments: arguments() }
}

/// A submission of these blocks.
pub(super) fn submission<const N: usize>(
    blocks: [ControlBlock; N],
    completion: &Arc<Completion>,
) -> Submission {
    Submission::new(blocks.into_iter().collect(), completion.clone())
}

pub(super) fn arguments() -> Arc<ArgumentBlock> {
    Arc::new(ArgumentBlock::default())
}

/// The order in which launches of queue and index, `queue * 10 + index`, run that were enqueued
/// under a hold.
fn order(policy: Policy, priorities: &[i32], launches: u32) -> Vec<u32> {
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::with_policy(device.clone(), policy);
    let queues: Vec<DeviceQueue> =
        priorities.iter().map(|&p| DeviceQueue::with_priority(&scheduler, p)).collect();
    let hold = scheduler.hold();
    for (q, queue) in queues.iter().enumerate() {
        (0..launches).for_each(|place| {
            queue.launch_program(Arc::new(q as u32 * 10 + place), arguments());
        });
    }
    drop(hold);
    queues.iter().for_each(|queue| queue.synchronize().unwrap());
    device.log.lock().unwrap().clone()
}

#[test]
fn by_default_two_busy_queues_take_turns_and_both_finish() {
    // Without priorities, the default is round-robin.
    assert_eq!(Policy::default(), Policy::Priority);
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::new(device.clone());
    let queues = [DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler)];
    let hold = scheduler.hold();
    for place in 0..200u32 {
        queues[0].launch_program(Arc::new(place), arguments());
    }
    for place in 0..100u32 {
        queues[1].launch_program(Arc::new(1000 + place), arguments());
    }
    drop(hold);
    queues.iter().for_each(|queue| queue.synchronize().unwrap());
    let log: Vec<u32> = device.log.lock().unwrap().clone();
    assert_eq!(log.len(), 300);
    // While both have work, neither waits for more than one launch of the other.
    assert!(log[..200].chunks(2).all(|pair| pair[0] < 1000 && pair[1] >= 1000), "{log:?}");
}

#[test]
fn each_policy_has_its_order() {
    let equal = [0, 0, 0];
    assert_eq!(order(Policy::RoundRobin, &equal, 2), [0, 10, 20, 1, 11, 21]);
    assert_eq!(order(Policy::DrainOneFirst, &equal, 2), [0, 1, 10, 11, 20, 21]);
    assert_eq!(order(Policy::Priority, &[0, -1, -1], 2), [10, 20, 11, 21, 0, 1]);
    let random = order(Policy::Random(1), &equal, 3);
    assert_eq!(order(Policy::Random(1), &equal, 3), random, "the same seed, the same order");
    assert!((2..20).any(|seed| order(Policy::Random(seed), &equal, 3) != random));
}

#[test]
fn a_queue_of_low_priority_is_served_in_the_end() {
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::with_policy(device.clone(), Policy::Priority);
    let low = DeviceQueue::with_priority(&scheduler, 1);
    let high = DeviceQueue::with_priority(&scheduler, -1);
    let hold = scheduler.hold();
    low.launch_program(Arc::new(7u32), arguments());
    let many = 2 * crate::policy::MAX_SKIPS;
    (0..many).for_each(|_| drop(high.launch_program(Arc::new(1u32), arguments())));
    drop(hold);
    high.synchronize().unwrap();
    low.synchronize().unwrap();
    let log = device.log.lock().unwrap();
    assert_eq!(log.iter().position(|&n| n == 7), Some(crate::policy::MAX_SKIPS as usize));
}

#[test]
fn a_queue_that_never_drains_does_not_starve_the_others() {
    for policy in [Policy::DrainOneFirst, Policy::RoundRobin, Policy::Priority] {
        let device = MockDevice::new(Duration::ZERO);
        let scheduler = Scheduler::with_policy(device.clone(), policy);
        let busy = DeviceQueue::with_priority(&scheduler, -1);
        let others = [0, 0].map(|priority| DeviceQueue::with_priority(&scheduler, priority));
        let hold = scheduler.hold();
        let many = 2 * crate::policy::MAX_DRAINED;
        (0..many).for_each(|_| drop(busy.launch_program(Arc::new(1u32), arguments())));
        for (queue, name) in others.iter().zip(7u32..) {
            queue.launch_program(Arc::new(name), arguments());
        }
        drop(hold);
        busy.synchronize().unwrap();
        others.iter().for_each(|queue| queue.synchronize().unwrap());
        let log = device.log.lock().unwrap();
        let served = |name| log.iter().position(|&n| n == name).unwrap() as u32;
        let within = match policy {
            Policy::DrainOneFirst => crate::policy::MAX_DRAINED,
            Policy::Priority => crate::policy::MAX_SKIPS,
            _ => 1,
        };
        let found = (served(7), served(8));
        assert!(found.0 <= within + 1 && found.1 <= within + 1, "{policy}: {found:?}");
        assert_eq!(log.len() as u32, many + 2);
    }
}

#[test]
fn every_schedule_keeps_the_order_within_queues_and_some_differ_across() {
    let mut across = std::collections::HashSet::new();
    for seed in 0..10_000 {
        let log = order(Policy::Random(seed), &[0; 4], 3);
        for queue in 0..4 {
            let own: Vec<u32> = log.iter().copied().filter(|n| n / 10 == queue).collect();
            assert_eq!(own, [queue * 10, queue * 10 + 1, queue * 10 + 2], "seed {seed}");
        }
        across.insert(log);
    }
    assert!(across.len() > 1000, "the seed decides the order across queues");
}

/// The time in seconds from the first launch to the last end, with one launch of 50 ms on each of
/// two queues.
fn makespan(concurrency: usize) -> f64 {
    let device = MockDevice::concurrent(Duration::from_millis(50), concurrency);
    let scheduler = Scheduler::new(device);
    let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let (start, ends) = (Event::new(), [Event::new(), Event::new()]);
    first.record(&start);
    for (queue, end) in [&first, &second].into_iter().zip(&ends) {
        queue.launch_program(Arc::new(1u32), arguments());
        queue.record(end);
    }
    first.synchronize().unwrap();
    second.synchronize().unwrap();
    let seconds = ends.map(|end| start.elapsed_seconds(&end).unwrap());
    seconds[0].max(seconds[1])
}

#[test]
fn serial_hardware_runs_one_submission_at_a_time_and_concurrent_hardware_several() {
    assert!(makespan(1) >= 0.099, "one after the other");
    // Threads start late on a loaded machine, so try several times to see an overlap.
    assert!((0..20).any(|_| makespan(4) < 0.09), "two at a time");
}

#[test]
fn callers_that_wait_share_serial_hardware_with_the_worker() {
    let device = MockDevice::new(Duration::from_millis(1));
    let scheduler = Scheduler::new(device.clone());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let queue = DeviceQueue::new(&scheduler);
                for place in 0..10u32 {
                    let work = submission([launch(place)], &Completion::pending());
                    queue.submit_and_wait(work).unwrap();
                }
            });
        }
    });
    assert_eq!(device.log.lock().unwrap().len(), 40);
    assert_eq!(device.most_at_once(), 1);
}

#[test]
fn work_behind_a_failure_is_skipped_until_the_failure_is_reported() {
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::new(device.clone());
    let (bad, good) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let failing = bad.launch_program(Arc::new(MockDevice::FAILS), arguments());
    let behind = bad.launch_program(Arc::new(1u32), arguments());
    let event = Event::new();
    bad.record(&event);
    good.wait(&event);
    good.launch_program(Arc::new(2u32), arguments());
    good.synchronize().unwrap();
    let error = behind.wait().unwrap_err();
    assert!(matches!(&error, Error::Skipped(cause) if matches!(**cause, Error::Launch { .. })));
    assert!(error.to_string().contains("asked to"), "it names the failure: {error}");
    assert!(matches!(bad.synchronize(), Err(Error::Launch { .. })), "the first failure, once");
    bad.launch_program(Arc::new(3u32), arguments());
    assert_eq!(bad.synchronize(), Ok(()));
    assert_eq!(*device.log.lock().unwrap(), [MockDevice::FAILS, 2, 3]);
    // The thread that waits for the failed operation receives the failure.
    assert!(failing.wait().is_err());
    let failing = bad.launch_program(Arc::new(MockDevice::FAILS), arguments());
    assert!(failing.wait().is_err());
    bad.launch_program(Arc::new(4u32), arguments());
    assert_eq!(bad.synchronize(), Ok(()));
    assert_eq!(device.log.lock().unwrap().last(), Some(&4));
}

#[test]
fn a_queue_waits_for_an_event_of_another_scheduler() {
    let device = MockDevice::new(Duration::from_millis(20));
    let (one, other) = (Scheduler::new(device.clone()), Scheduler::new(device.clone()));
    let (first, second) = (DeviceQueue::new(&one), DeviceQueue::new(&other));
    let event = Event::new();
    first.launch_program(Arc::new(1u32), arguments());
    first.record(&event);
    second.wait(&event);
    second.launch_program(Arc::new(2u32), arguments());
    second.synchronize().unwrap();
    assert_eq!(*device.log.lock().unwrap(), [1, 2]);
}

#[test]
fn events_tell_the_time_between_them() {
    let device = MockDevice::new(Duration::from_millis(10));
    let queue = DeviceQueue::new(&Scheduler::new(device));
    let (start, end) = (Event::new(), Event::new());
    let error = start.elapsed_seconds(&end).unwrap_err();
    assert!(error.to_string().contains("first event has not been recorded"), "{error}");
    assert!(start.query(), "nothing to wait for");
    queue.record(&start);
    queue.launch_program(Arc::new(1u32), arguments());
    queue.record(&end);
    end.synchronize().unwrap();
    assert!(start.query() && end.query());
    assert!(start.elapsed_seconds(&end).unwrap() >= 0.01);
    assert!(end.elapsed_seconds(&start).unwrap() < 0.0);
    queue.synchronize().unwrap();
    assert!(queue.query());
}

#[test]
fn an_allocation_waits_for_memory_that_queued_work_holds() {
    let device = MockDevice::new(Duration::from_millis(30));
    let scheduler = Scheduler::new(device.clone());
    let queue = DeviceQueue::new(&scheduler);
    let allocator = device.allocator();
    let held = Arc::new(allocator.allocate(48 << 10).unwrap());
    let arguments = ArgumentBlock { buffers: [held].into_iter().collect(), ..Default::default() };
    let launched = queue.launch_program(Arc::new(1u32), Arc::new(arguments));
    // The caller has dropped the block, but the launch still reads it.
    assert!(launched.poll().is_none());
    let block = allocator.allocate(30 << 10).unwrap();
    assert_eq!(*device.log.lock().unwrap(), [1], "the block was granted when the launch was done");
    let error = allocator.allocate(48 << 10).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { in_use: 30_720, .. }), "{error}");
    // Under a hold, waiting for queued work would not end.
    let hold = scheduler.hold();
    let held = Arc::new(allocator.allocate(16 << 10).unwrap());
    let arguments = ArgumentBlock { buffers: [held].into_iter().collect(), ..Default::default() };
    queue.launch_program(Arc::new(2u32), Arc::new(arguments));
    assert!(allocator.allocate(32 << 10).is_err());
    drop((hold, block));
    queue.synchronize().unwrap();
}

#[test]
fn a_fast_producer_waits_for_room_in_the_queue() {
    let device = MockDevice::new(Duration::from_millis(1));
    let scheduler = Scheduler::new(device.clone());
    let queue = DeviceQueue::new(&scheduler);
    for i in 0..40u32 {
        queue.wait_for_room(4).unwrap();
        queue.launch_program(Arc::new(i), Arc::new(ArgumentBlock::default()));
        // At most 4 submissions have not started, and one is running.
        let done = device.log.lock().unwrap().len() as u32;
        assert!(i + 1 - done <= 6, "{done} of {i} are done");
    }
    queue.synchronize().unwrap();
    // `wait_for_room` does not report failures, and does not block under a hold.
    queue.launch_program(Arc::new(MockDevice::FAILS), Arc::new(ArgumentBlock::default()));
    queue.wait_for_room(1).unwrap();
    let hold = scheduler.hold();
    for i in 0..4u32 {
        queue.wait_for_room(1).unwrap();
        queue.launch_program(Arc::new(i), Arc::new(ArgumentBlock::default()));
    }
    drop(hold);
    assert!(queue.synchronize().is_err());
}

#[test]
fn synchronising_does_not_wait_for_what_is_enqueued_later() {
    let device = MockDevice::new(Duration::from_millis(2));
    let queue = DeviceQueue::new(&Scheduler::new(device));
    let stop = AtomicBool::new(false);
    let launch = || drop(queue.launch_program(Arc::new(1u32), Arc::new(ArgumentBlock::default())));
    (0..5).for_each(|_| launch());
    std::thread::scope(|scope| {
        // The threads keep the queue from becoming empty.
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                queue.wait_for_room(20).unwrap();
                launch();
            }
        });
        for _ in 0..5 {
            queue.synchronize().unwrap();
        }
        assert!(!queue.query(), "the other thread goes on enqueueing");
        stop.store(true, SeqCst);
    });
    queue.synchronize().unwrap();
}

#[test]
fn callers_and_workers_of_one_queue_take_turns() {
    let device = MockDevice::concurrent(Duration::ZERO, usize::MAX);
    let scheduler = Scheduler::new(device.clone());
    let queue = DeviceQueue::new(&scheduler);
    let inside = AtomicBool::new(false);
    let alone = |_: &Lane<'_>| {
        assert!(!inside.swap(true, SeqCst), "two submissions of a queue run at once");
        std::thread::yield_now();
        inside.store(false, SeqCst);
        Ok(())
    };
    let ran = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut calls, mut ran) = (0, 0);
                    // On a loaded machine, the launches may hold the queue through all of the first
                    // calls.
                    while calls < 2_000 || ran == 0 {
                        calls += 1;
                        ran += usize::from(queue.run_idle(alone).is_some());
                    }
                    ran
                })
            })
            .collect();
        scope.spawn(|| {
            for number in 0..500u32 {
                queue.launch_program(Arc::new(number), Arc::new(ArgumentBlock::default()));
                if number % 50 == 0 {
                    queue.synchronize().unwrap();
                }
            }
        });
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<usize>()
    });
    queue.synchronize().unwrap();
    assert_eq!(*device.log.lock().unwrap(), Vec::from_iter(0..500));
    assert!(ran > 0 && queue.query());
    assert!(queue.run_idle(|_| Ok(())).is_some(), "the gate is open again");
}

#[test]
fn callers_of_a_device_that_counts_its_work_are_counted() {
    let device = MockDevice::concurrent(Duration::from_millis(1), 2);
    let scheduler = Scheduler::new(device.clone());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let queue = DeviceQueue::new(&scheduler);
                for number in 0..5u32 {
                    let program: LoadedProgram = Arc::new(number);
                    let launch = |lane: &Lane<'_>| {
                        lane.launch(&program, &ArgumentBlock::default(), 0)?.wait()
                    };
                    if queue.run_idle(launch).is_none() {
                        queue.launch_program(program.clone(), Arc::default());
                    }
                }
                queue.synchronize().unwrap();
            });
        }
    });
    assert_eq!(device.log.lock().unwrap().len(), 30);
    assert_eq!(device.most_at_once(), 2);
}

#[test]
fn failures_of_a_dropped_queue_are_reported_by_synchronize_all() {
    let scheduler = Scheduler::new(MockDevice::new(Duration::from_millis(2)));
    let queue = DeviceQueue::new(&scheduler);
    queue.launch_program(Arc::new(MockDevice::FAILS), Arc::default());
    drop(queue);
    let other = DeviceQueue::new(&scheduler);
    other.launch_program(Arc::new(1u32), Arc::default());
    assert_eq!(other.synchronize(), Ok(()));
    assert!(matches!(scheduler.synchronize_all(), Err(Error::Launch { .. })));
    assert_eq!(scheduler.synchronize_all(), Ok(()));
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let scheduler = Scheduler::new(MockDevice::new(Duration::ZERO));
    let streams = DefaultStreams::new(Arc::new(Stream::new(&scheduler)));
    let mine = streams.of_thread();
    assert!(Arc::ptr_eq(&mine, streams.first()) && mine.queue().index() == 0);
    let theirs = || {
        let stream = streams.of_thread();
        assert!(Arc::ptr_eq(&stream, &streams.of_thread()));
        stream.queue().index()
    };
    let numbers: Vec<usize> = std::thread::scope(|scope| {
        let (first, second) = (scope.spawn(theirs).join(), scope.spawn(theirs).join());
        [first, second].map(Result::unwrap).into()
    });
    assert_eq!(numbers, [1, 1], "the number of a thread that ended is used again");
    assert!(Arc::ptr_eq(&mine, &streams.of_thread()));
    let other = DefaultStreams::new(Arc::new(Stream::new(&Scheduler::new(MockDevice::new(
        Duration::ZERO,
    )))));
    assert!(Arc::ptr_eq(&other.of_thread(), other.first()), "each device has streams of its own");
}
