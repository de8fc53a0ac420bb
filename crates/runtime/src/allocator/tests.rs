//! Tests of the allocator, in both modes.

use super::*;
use crate::Device;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn pool(regions: &[usize]) -> Arc<Allocator> {
    Allocator::new(DeviceId::unique(), "test", regions)
}

fn offsets(blocks: &[&Buffer]) -> Vec<usize> {
    blocks.iter().map(|b| b.handle().region_offset().unwrap().1).collect()
}

#[test]
fn blocks_are_aligned_reused_and_coalesced() {
    let pool = pool(&[1024]);
    let sizes = [1, 127, 128, 129, 255, 257];
    let reserved: Vec<usize> = sizes
        .iter()
        .map(|&s| {
            let block = pool.allocate(s).unwrap();
            assert_eq!(block.size_bytes(), s);
            pool.stats().in_use
        })
        .collect();
    assert_eq!(reserved, [128, 128, 128, 256, 256, 384]);
    // Reading the statistics coalesces all free blocks.
    assert_eq!(pool.stats().largest_free, 1024);
    let (a, b, c) = (pool.allocate(100), pool.allocate(100), pool.allocate(100));
    let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
    assert_eq!(offsets(&[&a, &b, &c]), [0, 128, 256]);
    drop(a);
    drop(c);
    assert!(pool.stats().fragmentation > 0.0);
    drop(b);
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.largest_free, stats.fragmentation), (0, 1024, 0.0));
    assert_eq!(stats.peak, 384);
}

#[test]
fn small_blocks_stay_in_free_lists_until_memory_is_missing() {
    let pool = pool(&[1024]);
    let (a, b) = (pool.allocate(100).unwrap(), pool.allocate(300).unwrap());
    let (at_a, at_b) = (a.handle(), b.handle());
    drop((a, b));
    // The same sizes in another order reuse the same blocks.
    let (b, a) = (pool.allocate(270).unwrap(), pool.allocate(1).unwrap());
    assert_eq!((a.handle(), b.handle()), (at_a, at_b));
    drop((a, b));
    assert_eq!(offsets(&[&pool.allocate(1024).unwrap()]), [0], "they were free all the time");
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_block_never_spans_two_regions_and_the_error_says_what_is_free() {
    let pool = pool(&[256, 512]);
    let err = pool.allocate(600).unwrap_err();
    assert!(matches!(err, Error::OutOfMemory { requested: 600, largest_free: 512, .. }), "{err}");
    let first = pool.allocate(300).unwrap();
    assert_eq!(first.handle().region_offset(), Some((1, 0)));
    assert!(pool.allocate(usize::MAX).is_err());
    assert!(pool.allocate(0).is_ok());
}

/// A deterministic generator of random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize
    }
}

/// Adds a block to the model, which has the blocks in use by region and offset, and checks that it
/// overlaps no other block.
fn claim(model: &mut BTreeMap<(usize, usize), usize>, block: &Buffer, regions: &[usize]) {
    let (id, at) = block.handle().region_offset().unwrap();
    let len = block.size_bytes().next_multiple_of(ALIGNMENT);
    assert!(at.is_multiple_of(ALIGNMENT) && at + len <= regions[id], "{block:?}");
    let before = model.range(..(id, at)).next_back();
    assert!(before.is_none_or(|(&(r, o), &l)| r != id || o + l <= at), "overlaps: {block:?}");
    let after = model.range((id, at)..).next();
    assert!(after.is_none_or(|(&(r, o), _)| r != id || at + len <= o), "overlaps: {block:?}");
    model.insert((id, at), len);
}

#[test]
fn random_traffic_agrees_with_a_model() {
    let regions = [1 << 16, 1 << 14];
    let pool = pool(&regions);
    let (mut live, mut model): (Vec<Buffer>, _) = (Vec::new(), BTreeMap::new());
    let mut numbers = Numbers(1);
    for step in 0..100_000 {
        let r = numbers.next();
        if r.is_multiple_of(3) && !live.is_empty() {
            let block = live.swap_remove(r / 3 % live.len());
            model.remove(&block.handle().region_offset().unwrap());
        } else {
            let size = r % 2000 + 1;
            match pool.allocate(size) {
                Ok(block) => {
                    claim(&mut model, &block, &regions);
                    live.push(block);
                }
                Err(Error::OutOfMemory { largest_free, .. }) => assert!(largest_free < size),
                Err(error) => panic!("{error}"),
            }
        }
        if step % 1000 == 0 {
            let stats = pool.stats();
            assert_eq!(stats.in_use, model.values().sum::<usize>());
            assert_eq!(stats.requested, live.iter().map(|b| b.size_bytes()).sum::<usize>());
            assert_eq!(stats.blocks, live.len());
            let in_use: usize = pool.region_stats().iter().map(|r| r.in_use).sum();
            assert_eq!(in_use, stats.in_use);
        }
    }
    live.clear();
    assert_eq!(pool.stats().in_use, 0);
    assert_eq!(pool.region_stats().map_free(), regions);
}

trait Free {
    fn map_free(self) -> [usize; 2];
}

impl Free for Vec<RegionStats> {
    fn map_free(self) -> [usize; 2] {
        [self[0].largest_free, self[1].largest_free]
    }
}

#[test]
fn eight_threads_never_share_a_block() {
    let regions = [1 << 20];
    let pool = pool(&regions);
    let model = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (pool, model) = (&pool, &model);
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                let mut live: Vec<Buffer> = Vec::new();
                for _ in 0..5_000 {
                    let r = numbers.next();
                    if r.is_multiple_of(2) && !live.is_empty() {
                        let block = live.swap_remove(r / 2 % live.len());
                        let mut model = model.lock().unwrap();
                        model.remove(&block.handle().region_offset().unwrap());
                        drop(block);
                    } else {
                        let mut model = model.lock().unwrap();
                        let block = pool.allocate(r % 3000 + 1).unwrap();
                        claim(&mut model, &block, &[1 << 20]);
                        live.push(block);
                    }
                    // Allocate without holding the model's lock.
                    drop((pool.allocate(r % 100), pool.allocate(r % 1000)));
                }
                let mut model = model.lock().unwrap();
                for block in &live {
                    model.remove(&block.handle().region_offset().unwrap());
                }
            });
        }
    });
    assert_eq!(pool.stats().in_use, 0);
    assert_eq!(pool.stats().largest_free, 1 << 20);
}

/// A driver that returns increasing addresses and records the mapped ones.
#[derive(Clone, Default)]
struct Driver(Arc<Mutex<Mappings>>);

/// Bytes mapped so far, the addresses and sizes mapped now, and the number of calls of `map`.
type Mappings = (u64, BTreeSet<(u64, usize)>, usize);

impl PhysicalMemory for Driver {
    fn map(&self, size: usize) -> Option<u64> {
        let mut state = self.0.lock().unwrap();
        let address = 0x1000 + state.0;
        state.0 += size as u64;
        state.1.insert((address, size));
        state.2 += 1;
        Some(address)
    }

    fn unmap(&self, address: u64, size: usize) {
        assert!(self.0.lock().unwrap().1.remove(&(address, size)), "{address:#x} is not mapped");
    }
}

#[test]
fn in_physical_mode_each_block_is_mapped_and_unmapped() {
    let (driver, id) = (Driver::default(), DeviceId::unique());
    let pool = Allocator::physical(id, "test", 1000, Box::new(driver.clone()));
    let blocks: Vec<Buffer> = [1, 128, 300].map(|size| pool.allocate(size).unwrap()).into();
    let empty = pool.allocate(0).unwrap();
    let maps = || driver.0.lock().unwrap().2;
    assert_eq!((maps(), driver.0.lock().unwrap().1.len()), (3, 3));
    let addresses: Vec<_> = blocks.iter().map(|b| pool.resolve(b.handle(), 1)).collect();
    assert_eq!(addresses, [Some(0x1000), Some(0x1080), Some(0x1100)]);
    let stats = pool.stats();
    assert_eq!((stats.capacity, stats.in_use, stats.requested, stats.blocks), (896, 640, 429, 4));
    let error = pool.allocate(257).unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { largest_free: 256, capacity: 896, .. }),
        "{error}"
    );
    drop((blocks, empty));
    assert!(driver.0.lock().unwrap().1.is_empty());
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn smaller_regions_are_reserved_if_the_default_fails() {
    assert_eq!(DEFAULT_REGIONS.iter().sum::<usize>(), 103_079_215_104);
    let sizes = |limit: fn(usize) -> Option<()>| -> Vec<usize> {
        reserve_regions(limit).into_iter().map(|(_, size)| size >> 30).collect()
    };
    assert_eq!(sizes(|_| Some(())), [12; 8]);
    assert_eq!(sizes(|size| (size <= 8 << 30).then_some(())), [8; 12]);
    assert_eq!(sizes(|size| (size <= 4 << 30).then_some(())), [4; 12]);
    assert!(sizes(|_| None).is_empty());
    let left = AtomicUsize::new(30 << 30);
    let found = reserve_regions(|size| {
        let enough = left.load(SeqCst) >= size;
        enough.then(|| left.fetch_sub(size, SeqCst))
    });
    assert_eq!(found.iter().map(|(_, size)| size >> 30).collect::<Vec<_>>(), [12, 12, 4]);
}

#[test]
fn collectors_are_asked_before_an_allocation_fails() {
    let pool = pool(&[1024]);
    let held = Arc::new(Mutex::new(vec![pool.allocate(512).unwrap(), pool.allocate(512).unwrap()]));
    let (asked, garbage) = (Arc::new(AtomicUsize::new(0)), held.clone());
    let count = asked.clone();
    let _first = pool.add_collector(Box::new(|_| false));
    let second = pool.add_collector(Box::new(move |requested| {
        count.fetch_add(requested, SeqCst);
        garbage.lock().unwrap().pop().is_some()
    }));
    let block = pool.allocate(400).unwrap();
    assert_eq!(asked.load(SeqCst), 400);
    let error = pool.allocate(800).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested: 800, in_use: 512, .. }), "{error}");
    assert_eq!(asked.load(SeqCst), 1200, "both were asked, and one block of two was not enough");
    drop((block, second));
    assert_eq!(pool.num_collectors(), 1, "a collector goes with its registration");
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn statistics_are_exact() {
    let pool = pool(&[1024, 512]);
    let (a, b) = (pool.allocate(300).unwrap(), pool.allocate(100).unwrap());
    let c = pool.allocate(500).unwrap();
    drop(a);
    let region = |capacity, in_use, largest_free| RegionStats { capacity, in_use, largest_free };
    assert_eq!(pool.region_stats(), [region(1024, 640, 384), region(512, 0, 512)]);
    assert_eq!(
        pool.stats(),
        MemoryStats {
            capacity: 1536,
            in_use: 640,
            requested: 600,
            peak: 1024,
            blocks: 2,
            allocations: 3,
            largest_free: 512,
            fragmentation: 0.0,
        }
    );
    drop(b);
    let d = pool.allocate(130).unwrap();
    assert_eq!(pool.region_stats()[0], region(1024, 768, 256));
    // The first region has 256 free bytes before its used block; the second one is free.
    let e = pool.allocate(512).unwrap();
    assert_eq!(pool.region_stats()[1], region(512, 512, 0));
    drop(e);
    drop((c, d));
    pool.reset_peak();
    assert_eq!((pool.stats().peak, pool.stats().in_use), (0, 0));
}

#[test]
fn offsets_into_a_block_are_checked() {
    let device = crate::testing::MockDevice::new(std::time::Duration::ZERO);
    let block = device.allocator().allocate(100).unwrap();
    assert_eq!(block.span(96, 4, &*device).unwrap().handle, block.handle().offset(96));
    for (offset, size) in [(97, 4), (usize::MAX, 1), (101, 0)] {
        assert!(matches!(block.span(offset, size, &*device), Err(Error::InvalidHandle { .. })));
    }
}

#[test]
fn a_limit_holds_until_it_is_taken_away() {
    let allocator = Allocator::new(DeviceId::unique(), "test", &[4096]);
    let first = allocator.allocate(1000).unwrap();
    allocator.set_limit(Some(2048));
    let stats = allocator.stats();
    assert_eq!((stats.capacity, stats.largest_free), (2048, 1024));
    assert!(allocator.check(1025).is_err() && allocator.allocate(1025).is_err());
    let second = allocator.allocate(1024).unwrap();
    // A limit below the bytes in use does not free any block.
    allocator.set_limit(Some(0));
    let error = allocator.allocate(1).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { largest_free: 0, in_use: 2048, .. }), "{error}");
    drop((first, second));
    assert!(allocator.allocate(0).is_ok(), "nothing is always granted");
    allocator.set_limit(None);
    assert_eq!(allocator.allocate(4096).unwrap().size_bytes(), 4096);
}

#[test]
fn blocks_of_all_threads_are_counted_and_found_when_they_are_missing() {
    let pool = pool(&[1 << 16]);
    // Start enough threads to use several stripes, each of which caches the blocks that it freed.
    for _ in 0..8 {
        std::thread::scope(|scope| {
            scope.spawn(|| drop([pool.allocate(8 << 10).unwrap(), pool.allocate(100).unwrap()]));
        });
    }
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.blocks, stats.allocations), (0, 0, 16));
    // A thread frees blocks that another thread allocated.
    let blocks: Vec<Buffer> = (0..4).map(|_| pool.allocate(8 << 10).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(blocks));
    });
    assert_eq!((pool.stats().in_use, pool.stats().requested), (0, 0));
    for _ in 0..8 {
        std::thread::scope(|scope| {
            scope.spawn(|| drop(pool.allocate(8 << 10).unwrap()));
        });
    }
    assert!(
        pool.allocate(1 << 16).is_ok(),
        "blocks in the free lists of stripes are found when memory is missing"
    );
}

#[test]
fn blocks_of_whole_pages_begin_at_different_offsets_into_a_page() {
    let pool = pool(&[1 << 20]);
    let blocks: Vec<Buffer> = (0..8).map(|_| pool.allocate(64 << 10).unwrap()).collect();
    let within = offsets(&blocks.iter().collect::<Vec<_>>()).into_iter().map(|at| at % PAGE);
    assert_eq!(within.collect::<std::collections::BTreeSet<_>>().len(), blocks.len());
    // Without room for padding, a block has none.
    drop(blocks);
    assert!(pool.allocate(1 << 20).is_ok());
}

#[test]
fn the_peak_of_one_thread_is_exact() {
    let pool = pool(&[64 << 20]);
    let mut most = 0;
    for round in 1..20 {
        let blocks: Vec<Buffer> =
            (0..round).map(|i| pool.allocate(1000 * (i + 1)).unwrap()).collect();
        let reserved = blocks.iter().map(|b| b.size_bytes().next_multiple_of(ALIGNMENT));
        most = reserved.sum::<usize>().max(most);
        drop(blocks);
        drop(pool.allocate(1_000_000).unwrap());
        most = most.max(1_000_000_usize.next_multiple_of(ALIGNMENT));
        assert_eq!(pool.stats().peak, most);
    }
    pool.reset_peak();
    let _kept = pool.allocate(300).unwrap();
    drop(pool.allocate(300).unwrap());
    assert_eq!(pool.stats().peak, 768);
}
