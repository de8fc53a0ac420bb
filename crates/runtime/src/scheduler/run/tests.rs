//! Tests of submissions that let more urgent work go first.

use crate::scheduler::tests::{arguments, launch, submission};
use crate::testing::MockDevice;
use crate::{Completion, DeviceQueue, Policy, Scheduler};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The log of a device that runs twenty launches of a queue of priority 0, with a launch of another
/// queue enqueued meanwhile. With `waits`, a caller runs the twenty.
fn interrupted(policy: Policy, priority: i32, waits: bool) -> Vec<u32> {
    let device = MockDevice::new(Duration::from_millis(2));
    let scheduler = Scheduler::with_policy(device.clone(), policy);
    let plan = DeviceQueue::new(&scheduler);
    let urgent = DeviceQueue::with_priority(&scheduler, priority);
    let blocks = std::array::from_fn::<_, 20, _>(|number| launch(number as u32));
    let work = submission(blocks, &Completion::pending());
    std::thread::scope(|scope| {
        scope.spawn(|| match waits {
            true => plan.submit_and_wait(work).unwrap(),
            false => plan.submit(work),
        });
        while device.log.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        urgent.launch_program(Arc::new(99u32), arguments());
    });
    scheduler.synchronize_all().unwrap();
    device.log.lock().unwrap().clone()
}

#[test]
fn urgent_work_goes_first_between_the_primitives_of_a_submission() {
    for waits in [false, true] {
        let log = interrupted(Policy::default(), -1, waits);
        let at = log.iter().position(|&number| number == 99).unwrap();
        assert!(at < 20, "{log:?}");
        let rest: Vec<u32> = log.into_iter().filter(|&number| number != 99).collect();
        assert_eq!(rest, Vec::from_iter(0..20), "the submission continues where it stopped");
        // Queues of equal priority take turns by submissions, and so do all under round-robin.
        assert_eq!(interrupted(Policy::default(), 0, waits).last(), Some(&99));
        assert_eq!(interrupted(Policy::RoundRobin, -1, waits).last(), Some(&99));
    }
}

#[test]
fn a_submission_that_is_preempted_again_and_again_ends() {
    let device = MockDevice::new(Duration::ZERO);
    let scheduler = Scheduler::new(device.clone());
    let plan = DeviceQueue::new(&scheduler);
    let urgent = DeviceQueue::with_priority(&scheduler, -1);
    let done = Completion::pending();
    plan.submit(submission(std::array::from_fn::<_, 20, _>(|n| launch(n as u32)), &done));
    let start = Instant::now();
    while done.poll().is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "the plan is starved");
        urgent.launch_program(Arc::new(99u32), arguments());
    }
    assert_eq!(done.wait(), Ok(()));
    scheduler.synchronize_all().unwrap();
}
