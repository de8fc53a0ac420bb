//! Checks of memory and transfers.

use crate::Random;
use crate::rig::{Rig, Subject, assert_invalid, place};
use girih_runtime::{
    Allocator, Buffer, Device, DeviceQueue, Error, PhysicalMemory, Place, Repeat, Runs, Value,
    allocator::ALIGNMENT,
};
use std::sync::Arc;

/// Sizes at the edges of alignment, and a size with many pages.
const SIZES: [usize; 9] = [0, 1, 127, 128, 129, 255, 257, 4096, (1 << 20) + 3];

fn read(device: &dyn Device, at: Place<'_>) -> Vec<u8> {
    let mut bytes = vec![0xaa; at.size_bytes()];
    device.copy_from_device(None, at, &mut bytes).expect("the block's bytes can be read");
    bytes
}

fn filled(rig: &Rig, bytes: &[u8]) -> Arc<Buffer> {
    let block = Arc::new(rig.device.allocator().allocate(bytes.len()).expect("room"));
    rig.device.copy_to_device(None, bytes, place(&block)).expect("a copy");
    block
}

/// Blocks of all sizes hold the bytes that were copied to them, as a whole and in parts.
pub fn bytes_come_back_as_they_went(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(1);
    for size in SIZES {
        let bytes = random.bytes(size);
        let block = filled(&rig, &bytes);
        let found = read(&*rig.device, place(&block));
        assert!(!subject.computes() || found == bytes, "{size} bytes");
        let (from, to) = (size / 3, size / 3 * 2);
        let place = place(&block).part(from, to - from).unwrap();
        rig.device.copy_to_device(None, &bytes[..to - from], place).unwrap();
        let part = read(&*rig.device, place);
        assert!(!subject.computes() || part == bytes[..to - from], "a part of {size} bytes");
    }
}

/// Blocks start at multiples of 128 bytes, also as device addresses, and do not overlap.
pub fn blocks_are_aligned_and_disjoint(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(2);
    let mut blocks: Vec<(Arc<Buffer>, u8)> = Vec::new();
    for round in 0..300usize {
        if !blocks.is_empty() && random.below(3) == 0 {
            blocks.swap_remove(random.below(blocks.len()));
            continue;
        }
        let (size, mark) = (random.below(1000), round as u8);
        let block = filled(&rig, &vec![mark; size]);
        let address = block.address(size, &*rig.device).expect("the block's own handle");
        assert_eq!(address % ALIGNMENT as u64, 0, "{size} bytes at {address:#x}");
        blocks.push((block, mark));
    }
    for (block, mark) in &blocks {
        let found = read(&*rig.device, place(block));
        assert!(!subject.computes() || found.iter().all(|byte| byte == mark), "{block:?}");
    }
    drop(blocks);
    let stats = rig.device.allocator().stats();
    assert_eq!((stats.in_use, stats.blocks), (0, 0));
}

/// Strided copies have the results of a model on the host.
pub fn strided_copies_agree_with_a_model(subject: &Subject) {
    let rig = subject.rig();
    let queue = DeviceQueue::new(&rig.scheduler());
    let mut random = Random::new(3);
    for round in 0..60 {
        let repeats: Vec<Repeat> = (0..random.below(4))
            .map(|_| Repeat { count: random.below(4), source: random.below(40), target: 0 })
            .collect();
        let run = random.below(9);
        // Leave a gap of 0 or 5 bytes after each run of the target, so that runs do not overlap.
        let mut step = run + random.below(2) * 5;
        let mut repeats = repeats;
        for repeat in repeats.iter_mut().rev() {
            repeat.target = step;
            step *= repeat.count.max(1);
        }
        let copy = Runs { run, repeats: repeats.iter().copied().collect() };
        let (read_span, written_span) = copy.spans();
        let source = random.bytes(read_span + 3);
        let mut expected = random.bytes(written_span + 7);
        let (from, to) = (filled(&rig, &source), filled(&rig, &expected));
        queue.copy_on_device((&from, 3), (&to, 7), run, &repeats).unwrap().wait().unwrap();
        let model = copy.for_each(|at, there| {
            expected[there + 7..there + 7 + run].copy_from_slice(&source[at + 3..at + 3 + run]);
            Ok(())
        });
        model.unwrap();
        let found = read(&*rig.device, place(&to));
        assert!(!subject.computes() || found == expected, "round {round}: {copy:?}");
    }
}

/// A driver that maps no memory.
struct Nowhere;

impl PhysicalMemory for Nowhere {
    fn map(&self, _: usize) -> Option<u64> {
        Some(4096)
    }

    fn unmap(&self, _: u64, _: usize) {}
}

/// All operations reject handles of other devices and pools, and bytes beyond a block.
pub fn foreign_and_too_long_handles_are_refused(subject: &Subject) {
    let (rig, other) = (subject.rig(), subject.rig());
    let (mine, theirs) = (filled(&rig, &[1; 64]), filled(&other, &[2; 64]));
    let device = &*rig.device;
    // Memory of another device, or of another pool of the same device, in region mode and in physical
    // mode.
    let id = rig.device.id();
    let regions = Allocator::new(id, "stranger", &[4096]);
    regions.place_regions(&[mine.address(64, device).unwrap()]);
    let mapped = Allocator::physical(id, "stranger", 4096, Box::new(Nowhere));
    let [regions, mapped] = [regions, mapped].map(|a| Arc::new(a.allocate(64).expect("room")));
    for (what, stranger) in [("theirs", &theirs), ("a region", &regions), ("an address", &mapped)] {
        let (own, foreign) = (place(&mine), place(stranger));
        assert_invalid(what, foreign.address(1, device));
        assert_invalid(what, device.copy_to_device(None, &[0], foreign));
        assert_invalid(what, device.copy_from_device(None, foreign, &mut [0]));
        for places in [(own, foreign), (foreign, own)] {
            assert_invalid(what, device.copy_on_device(None, places, &Runs::dense(1)));
        }
    }
    // A block ends before the memory of the device does.
    let place = place(&mine);
    assert_invalid("copy in", device.copy_to_device(None, &[0; 65], place));
    assert_invalid("copy out", device.copy_from_device(None, place, &mut [0; 65]));
    assert_invalid("copy within", device.copy_on_device(None, (place, place), &Runs::dense(65)));
    assert!(place.part(60, 5).is_none() && place.part(60, 4).is_some());
    let queue = DeviceQueue::new(&rig.scheduler());
    assert_invalid("too many bytes in", queue.copy_to_device([0; 65].into(), &mine));
    let value = Value::at(mine.clone(), 60);
    assert_invalid("too many bytes out", queue.copy_from_device(&value, 5));
    assert_invalid("too many bytes", queue.copy_on_device((&mine, 0), (&mine, 32), 33, &[]));
    queue.synchronize().expect("nothing was enqueued that fails");
}

/// A request that is too large fails with its sizes, and later requests succeed.
pub fn out_of_memory_is_an_error_that_leaves_the_device_usable(subject: &Subject) {
    let rig = subject.rig();
    let allocator = rig.device.allocator();
    let capacity = allocator.stats().capacity;
    for size in [capacity + 1, usize::MAX] {
        let error = allocator.allocate(size).expect_err("more than there is");
        let Error::OutOfMemory { requested, in_use: 0, .. } = error else { panic!("{error}") };
        assert_eq!(requested, size);
    }
    allocator.set_limit(Some(1 << 16));
    let blocks: Vec<_> = std::iter::from_fn(|| allocator.allocate(1000).ok()).collect();
    assert_eq!(blocks.len(), 64);
    drop(blocks);
    allocator.set_limit(None);
    let block = filled(&rig, &[5; 100_000]);
    assert!(!subject.computes() || read(&*rig.device, place(&block)) == [5; 100_000]);
}

/// A copy owns the bytes as they were when it was enqueued.
pub fn host_bytes_may_change_after_they_are_enqueued(subject: &Subject) {
    let rig = subject.rig();
    let scheduler = rig.scheduler();
    let queue = DeviceQueue::new(&scheduler);
    let block = Arc::new(rig.device.allocator().allocate(4).unwrap());
    let hold = scheduler.hold();
    let mut bytes = vec![1, 2, 3, 4];
    queue.copy_to_device(bytes.clone().into(), &block).unwrap();
    bytes.fill(9);
    let (found, done) = queue.copy_from_device(&value(&block), 4).unwrap();
    assert!(done.poll().is_none(), "the queue is held");
    drop((hold, bytes));
    done.wait().unwrap();
    let found = found.lock().unwrap_or_else(|e| e.into_inner());
    assert!(!subject.computes() || found[..] == [1, 2, 3, 4]);
}

fn value(block: &Arc<Buffer>) -> Value {
    Value::at(block.clone(), 0)
}

/// Queued work keeps its blocks: a block that the caller dropped is reused only after the work.
pub fn a_dropped_block_lives_until_queued_work_is_done(subject: &Subject) {
    let rig = subject.rig();
    let scheduler = rig.scheduler();
    let queue = DeviceQueue::new(&scheduler);
    let first = filled(&rig, &[7; 512]);
    let at = first.handle();
    let hold = scheduler.hold();
    let (found, done) = queue.copy_from_device(&value(&first), 512).unwrap();
    drop(first);
    // The allocator would reuse the dropped block for this size if it were free.
    let second = filled(&rig, &[8; 512]);
    assert_ne!(second.handle(), at, "the block is still read");
    drop(hold);
    done.wait().unwrap();
    assert!(!subject.computes() || found.lock().unwrap()[..] == [7; 512]);
    assert_eq!(rig.device.allocator().stats().blocks, 1, "the dropped block is free now");
}
