//! Checks of the primitives that a device takes: done at once, or later by queues of its own.

use crate::rig::{Rig, Subject, place};
use girih_runtime::{Buffer, Enqueued, Error, HostBytes, Position, Primitive, Result, Runs};
use std::sync::Arc;

fn host(size: usize) -> HostBytes {
    Arc::new(girih_sync::Mutex::new(vec![0; size].into_boxed_slice()))
}

fn block(rig: &Rig, size: usize) -> Buffer {
    rig.device.allocator().allocate(size).expect("a small block")
}

/// Enqueues primitives of one queue, numbered from 0.
struct Queue<'a> {
    rig: &'a Rig,
    queue: usize,
    number: u64,
    enqueued: Vec<Enqueued>,
}

impl<'a> Queue<'a> {
    fn new(rig: &'a Rig, queue: usize) -> Queue<'a> {
        Queue { rig, queue, number: 0, enqueued: vec![] }
    }

    fn add(&mut self, work: Primitive<'_>) {
        let at = Position { queue: self.queue, number: self.number };
        self.number += 1;
        self.enqueued.push(self.rig.device.enqueue(at, work).expect("the work is sound"));
    }

    fn write(&mut self, source: &[u8], target: &Buffer) {
        self.add(Primitive::CopyToDevice { source, target: place(target) });
    }

    fn read(&mut self, source: &Buffer, target: &HostBytes) {
        self.add(Primitive::CopyFromDevice { source: place(source), target });
    }

    /// Waits for the last primitive alone, and then looks at the others.
    fn finish(mut self) {
        let last = self.enqueued.pop().map_or(Ok(()), Enqueued::wait);
        assert_eq!(last, Ok(()));
        for enqueued in self.enqueued {
            if let Enqueued::Outstanding(completion) = enqueued {
                assert_eq!(completion.poll(), Some(Ok(())), "it is in front of one that is done");
            }
        }
    }
}

/// Each primitive of a queue sees what the primitives before it wrote, and is done before them.
pub fn primitives_of_a_queue_are_done_in_order(subject: &Subject) {
    let rig = subject.rig();
    let (from, to) = (block(&rig, 64), block(&rig, 64));
    let mut queue = Queue::new(&rig, 0);
    let found: Vec<HostBytes> = (0..50).map(|_| host(64)).collect();
    for (number, found) in found.iter().enumerate() {
        queue.write(&[number as u8; 64], &from);
        let runs = Runs::dense(64);
        queue.add(Primitive::CopyOnDevice {
            source: place(&from),
            target: place(&to),
            runs: &runs,
        });
        queue.read(&to, found);
    }
    queue.finish();
    for (number, found) in found.iter().enumerate().filter(|_| subject.computes()) {
        assert_eq!(found.lock().unwrap()[..], [number as u8; 64]);
    }
}

/// Threads that enqueue on queues of their own do not wait for each other's memory.
pub fn primitives_of_queues_at_once_do_not_meet(subject: &Subject) {
    let rig = subject.rig();
    let blocks: Vec<Buffer> = (0..4).map(|_| block(&rig, 1 << 12)).collect();
    std::thread::scope(|scope| {
        for (number, block) in blocks.iter().enumerate() {
            let (rig, subject) = (&rig, &subject);
            scope.spawn(move || {
                let mut queue = Queue::new(rig, number);
                let found = host(1 << 12);
                for round in 0..20 {
                    queue.write(&vec![(20 * number + round) as u8; 1 << 12], block);
                    queue.read(block, &found);
                }
                queue.finish();
                let expected = (20 * number + 19) as u8;
                let found = found.lock().unwrap();
                assert!(!subject.computes() || found.iter().all(|byte| *byte == expected));
            });
        }
    });
}

/// The device has read the bytes of a copy when the copy has been enqueued.
pub fn bytes_are_the_callers_again_after_they_are_enqueued(subject: &Subject) {
    let rig = subject.rig();
    let (block, found) = (block(&rig, 256), host(256));
    let mut queue = Queue::new(&rig, 3);
    let mut bytes = vec![7; 256];
    queue.write(&bytes, &block);
    bytes.fill(8);
    queue.read(&block, &found);
    queue.finish();
    assert!(!subject.computes() || found.lock().unwrap()[..] == [7; 256]);
}

/// Work on memory of another device fails: at once, or when its turn comes.
pub fn a_place_of_another_device_is_refused(subject: &Subject) {
    let (rig, other) = (subject.rig(), subject.rig());
    let (own, foreign) = (block(&rig, 8), block(&other, 8));
    let (at, found, runs) = (Position { queue: 0, number: 0 }, host(8), Runs::dense(8));
    let refused = |work: Primitive<'_>| {
        let outcome: Result<()> = rig.device.enqueue(at, work).and_then(Enqueued::wait);
        assert!(matches!(outcome, Err(Error::InvalidHandle { .. })), "{outcome:?}");
    };
    refused(Primitive::CopyToDevice { source: &[0; 8], target: place(&foreign) });
    refused(Primitive::CopyToDevice { source: &[0; 1000], target: place(&own) });
    refused(Primitive::CopyFromDevice { source: place(&foreign), target: &found });
    let (source, target) = (place(&own), place(&foreign));
    refused(Primitive::CopyOnDevice { source, target, runs: &runs });
}
