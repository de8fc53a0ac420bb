//! Tests of the scheduler on a device with queues of its own, which does a primitive when asked.

use crate::primitive::ControlBlock;
use crate::scheduler::tests::{launch, submission};
use crate::testing::{MockDevice, QueueDevice};
use crate::{Completion, Device, DeviceQueue, Error, Event, HostStep, Scheduler, Value};
use girih_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn rig() -> (Arc<QueueDevice>, Arc<Scheduler>) {
    let device = QueueDevice::new();
    let scheduler = Scheduler::new(device.clone());
    (device, scheduler)
}

/// Waits for what another thread does.
fn until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it did not happen");
        std::thread::yield_now();
    }
}

/// A step of the host that stores a number.
fn host(seen: &Arc<AtomicU32>, number: u32) -> ControlBlock {
    let seen = seen.clone();
    let step = HostStep::new("store", move |_| {
        seen.store(number, SeqCst);
        Ok(())
    });
    ControlBlock::Host { step, slots: Arc::new([]) }
}

#[test]
fn queues_of_the_device_are_filled_without_a_thread() {
    let (device, scheduler) = rig();
    let queues: Vec<_> = (0..20).map(|_| DeviceQueue::new(&scheduler)).collect();
    let mut done = vec![];
    for number in 0..50 {
        for queue in &queues {
            let completion = Completion::pending();
            queue.submit(submission([launch(number), launch(number)], &completion));
            done.push(completion);
        }
    }
    for queue in &queues {
        assert_eq!(device.enqueued(queue.index()), Vec::from_iter(0..100), "numbered in order");
        assert!(!queue.query());
    }
    assert_eq!(scheduler.shared.lock().workers, 0);
    assert!(done.iter().all(|completion| completion.poll().is_none()));
    for queue in queues.iter().rev() {
        while device.step(queue.index()) {}
        assert_eq!(queue.synchronize(), Ok(()));
    }
    assert!(done.iter().all(|completion| completion.poll() == Some(Ok(()))));
    assert_eq!(device.log().len(), 2000);
}

#[test]
fn the_host_and_later_work_wait_for_the_device() {
    let (device, scheduler) = rig();
    let queue = DeviceQueue::new(&scheduler);
    let seen = Arc::new(AtomicU32::new(0));
    let [first, second, third] = std::array::from_fn(|_| Completion::pending());
    queue.submit(submission([launch(1)], &first));
    queue.submit(submission([host(&seen, 2), launch(3), host(&seen, 4)], &second));
    queue.submit(submission([launch(5)], &third));
    assert_eq!(device.enqueued(0).len(), 1, "the host reads what the first launch writes");
    device.step(0);
    until(|| device.enqueued(0).len() == 1);
    assert_eq!((seen.load(SeqCst), first.poll()), (2, Some(Ok(()))));
    device.step(0);
    until(|| device.enqueued(0).len() == 1);
    assert_eq!(second.wait(), Ok(()));
    assert_eq!((seen.load(SeqCst), third.poll()), (4, None));
    device.step(0);
    // A worker may still be about to take note of what it has enqueued, so this waits.
    assert_eq!((third.wait(), queue.synchronize()), (Ok(()), Ok(())));
    assert_eq!(device.log(), [1, 3, 5]);
}

#[test]
fn a_loop_reads_its_predicate_when_the_device_has_written_it() {
    let (device, scheduler) = rig();
    let queue = DeviceQueue::new(&scheduler);
    let buffer = Arc::new(device.allocator().allocate(1).unwrap());
    let slot = Arc::new(Mutex::new(Box::from([7u8]) as Box<[u8]>));
    let place = || buffer.span(0, 1, device.as_ref()).unwrap();
    let read = |slot: &crate::HostBytes| ControlBlock::CopyFromDevice {
        source: place(),
        target: slot.clone(),
        buffer: Some(buffer.clone()),
    };
    // Launch 1 runs while the buffer's byte is not 0; the body clears it.
    let clear = ControlBlock::CopyToDevice { source: [0].into(), target: place(), buffer: None };
    let looping = ControlBlock::Loop {
        condition: [read(&slot)].into(),
        slot,
        body: [launch(1), clear].into(),
        arguments: Arc::default(),
    };
    let done = Completion::pending();
    queue.copy_to_device([1].into(), &buffer).unwrap();
    queue.submit(submission([looping, launch(2)], &done));
    until(|| {
        device.step(0);
        done.poll().is_some()
    });
    assert_eq!(device.log(), [1, 2]);
}

#[test]
fn a_failure_cancels_the_rest_of_its_queue_only() {
    let (device, scheduler) = rig();
    let (queue, other) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let seen = Arc::new(AtomicU32::new(0));
    let [failed, next, fine] = std::array::from_fn(|_| Completion::pending());
    let fails = launch(MockDevice::FAILS);
    queue.submit(submission([fails, host(&seen, 1), launch(1)], &failed));
    queue.submit(submission([launch(2)], &next));
    other.submit(submission([launch(3)], &fine));
    device.step(queue.index());
    assert!(matches!(failed.wait_unreported(), Err(Error::Launch { .. })));
    assert!(matches!(next.wait_unreported(), Err(Error::Skipped(_))), "{next:?}");
    assert_eq!(seen.load(SeqCst), 0);
    device.step(other.index());
    assert_eq!(other.synchronize(), Ok(()));
    assert!(matches!(queue.synchronize(), Err(Error::Launch { .. })));
    assert_eq!(queue.synchronize(), Ok(()), "an error is told once");
    assert_eq!(device.log(), [MockDevice::FAILS, 3]);
}

#[test]
fn work_behind_one_that_fails_later_is_skipped_or_fails() {
    let (device, scheduler) = rig();
    let queue = DeviceQueue::new(&scheduler);
    let [failed, next] = std::array::from_fn(|_| Completion::pending());
    queue.submit(submission([launch(1), launch(MockDevice::FAILS), launch(2)], &failed));
    queue.submit(submission([launch(3)], &next));
    while device.step(0) {}
    assert!(matches!(failed.wait_unreported(), Err(Error::Launch { .. })));
    assert!(matches!(next.wait_unreported(), Err(Error::Skipped(_))), "{next:?}");
    assert!(matches!(queue.synchronize(), Err(Error::Launch { .. })));
}

#[test]
fn memory_lives_until_the_device_is_done() {
    let (device, scheduler) = rig();
    let queue = DeviceQueue::new(&scheduler);
    let buffer = Arc::new(device.allocator().allocate(4).unwrap());
    let in_use = || device.allocator().stats().in_use;
    let before = in_use();
    let value = Value::at(buffer.clone(), 0);
    queue.copy_to_device([1, 2, 3, 4].into(), &buffer).unwrap();
    let (bytes, copied) = queue.copy_from_device(&value, 4).unwrap();
    drop((buffer, value));
    assert_eq!((in_use(), bytes.lock().unwrap().to_vec()), (before, vec![0; 4]));
    device.step(0);
    assert_eq!(in_use(), before);
    device.step(0);
    assert_eq!(copied.poll(), Some(Ok(())));
    assert_eq!(bytes.lock().unwrap().to_vec(), [1, 2, 3, 4]);
    assert!(in_use() < before, "the last copy has released it");
}

#[test]
fn events_are_reached_when_the_device_is_done() {
    let (device, scheduler) = rig();
    let (first, second) = (DeviceQueue::new(&scheduler), DeviceQueue::new(&scheduler));
    let event = Event::new();
    first.launch_program(Arc::new(1u32), Arc::default());
    first.record(&event);
    second.wait(&event);
    second.launch_program(Arc::new(2u32), Arc::default());
    assert!(!event.query() && device.enqueued(second.index()).is_empty());
    device.step(first.index());
    assert_eq!(event.synchronize(), Ok(()));
    until(|| device.enqueued(second.index()).len() == 1);
    device.step(second.index());
    assert_eq!(second.synchronize(), Ok(()));
    assert_eq!(device.log(), [1, 2]);
}

#[test]
fn callers_that_wait_and_allocations_wait_for_the_device() {
    let (device, scheduler) = rig();
    let queue = DeviceQueue::new(&scheduler);
    std::thread::scope(|scope| {
        let caller =
            scope.spawn(|| queue.submit_and_wait(submission([launch(1)], &Completion::pending())));
        until(|| device.enqueued(0).len() == 1);
        assert_eq!(queue.run_idle(|_| Ok(())), None, "the device runs nothing at once");
        let room = scope.spawn(|| queue.wait_for_room(1));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!caller.is_finished() && !room.is_finished());
        device.step(0);
        assert_eq!((caller.join().unwrap(), room.join().unwrap()), (Ok(()), Ok(())));
    });
}
