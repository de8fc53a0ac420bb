//! The allocator of device memory. In region mode it carves 128-byte aligned blocks first-fit out
//! of regions that the device reserved once. Freed blocks are reused while their contents are in
//! the CPU caches: small blocks go to a free list per size, for the next request of that size.
//! Larger blocks coalesce with their neighbours, as do small blocks when the free lists hold too
//! many. No memory returns to the operating system. Each thread allocates small blocks from a
//! stripe of its own and frees them to that stripe (`stripe`), so threads do not contend for a
//! lock; `blocks` has the locking rules. In physical mode the device's driver maps each block
//! separately.

use crate::handle::{AddressMap, PoolId};
use crate::{Buffer, DeviceHandle, DeviceId, Error, Result};
use girih_sync::{Mutex, MutexGuard, OnceLock, Striped};
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

mod blocks;
mod regions;
mod stripe;
use blocks::Blocks;
use regions::{Region, State};

/// Alignment and granularity of blocks, in bytes.
pub const ALIGNMENT: usize = 128;

/// Bytes of a page, and of the smallest block whose padding is negligible.
const PAGE: usize = 4 << 10;
const MIN_COLOURED: usize = 32 << 10;

/// The default sizes of a device's regions, in bytes: 96 GB in all.
pub const DEFAULT_REGIONS: [usize; 8] = [12 << 30; 8];
/// Region sizes to try, largest first, if the default regions cannot be reserved.
const REGION_SIZES: [usize; 3] = [12 << 30, 8 << 30, 4 << 30];
/// The maximum number of smaller regions that replace the default ones.
const MAX_REGIONS: usize = 12;

/// The driver's memory in physical mode, where each block is mapped and unmapped separately.
pub trait PhysicalMemory: Send + Sync {
    /// Maps `size` bytes and returns their address, aligned to [`ALIGNMENT`]; `None` if out of
    /// memory.
    fn map(&self, size: usize) -> Option<u64>;

    /// Unmaps `size` bytes at an address that `map` returned for that size.
    fn unmap(&self, address: u64, size: usize);
}

/// Frees memory after an allocation of the given number of bytes has failed. Returns whether to
/// retry the allocation.
pub type Collector = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// Keeps a collector in an allocator's list; dropping the registration removes the collector.
#[must_use = "a collector is called only as long as its registration lives"]
pub struct CollectorRegistration {
    pool: Weak<Pool>,
    number: u64,
}

impl Drop for CollectorRegistration {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut collectors = pool.lock_collectors();
        let at = collectors.iter().position(|(number, _)| *number == self.number);
        let removed = at.map(|at| collectors.remove(at));
        // Drop the collector after the lock is released: it may own memory of the pool.
        drop(collectors);
        drop(removed);
    }
}

/// Allocates blocks of a device's memory.
pub struct Allocator {
    pool: Arc<Pool>,
    /// References to the pool for its blocks. One per stripe, because a single reference count
    /// would be a contended cache line.
    leases: Striped<Arc<Lease>>,
}

/// Keeps a pool alive while a block of its memory exists.
struct Lease(Arc<Pool>);

/// The memory of an allocator. The pool lives as long as its blocks.
struct Pool {
    id: PoolId,
    device_id: DeviceId,
    device: String,
    /// The driver's memory and its capacity in bytes; `None` in region mode.
    physical: Option<(Box<dyn PhysicalMemory>, usize)>,
    /// The addresses of the regions, once the device has told them.
    addresses: OnceLock<AddressMap>,
    blocks: Blocks,
    /// The init packets that the device has received, from whichever scheduler: the allocator is what
    /// a device has one of.
    initialized: Mutex<FxHashSet<Box<[u8]>>>,
    /// The collectors in the order of their registration.
    collectors: Mutex<Vec<(u64, Arc<Collector>)>>,
}

/// Statistics of an allocator, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryStats {
    /// Bytes of all regions.
    pub capacity: usize,
    /// Bytes of blocks in use, rounded up to the granularity.
    pub in_use: usize,
    /// Bytes of blocks in use, as requested.
    pub requested: usize,
    /// The maximum number of bytes in use at the same time.
    pub peak: usize,
    /// Number of blocks in use.
    pub blocks: usize,
    /// The number of allocations so far.
    pub allocations: u64,
    /// The largest block that can be allocated.
    pub largest_free: usize,
    /// The fraction of free memory, 0 to 1, that is not in the largest free block of its region.
    pub fragmentation: f64,
}

/// Statistics of one region, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionStats {
    /// Bytes reserved.
    pub capacity: usize,
    /// Bytes of blocks in use.
    pub in_use: usize,
    /// The largest block that the region can allocate.
    pub largest_free: usize,
}

/// Reserves regions: the default ones if all of them can be reserved, else up to 12 regions, each
/// of the largest size that can be reserved of 12, 8 and 4 GB. `reserve` returns `None` if it
/// cannot reserve a region of the given size.
pub fn reserve_regions<T>(mut reserve: impl FnMut(usize) -> Option<T>) -> Vec<(T, usize)> {
    let total: usize = DEFAULT_REGIONS.iter().sum();
    let (mut regions, mut reserved) = (Vec::new(), 0);
    let mut sizes = REGION_SIZES.iter().copied().peekable();
    while let Some(&size) = sizes.peek()
        && regions.len() < MAX_REGIONS
        && reserved + size <= total
    {
        match reserve(size) {
            Some(region) => {
                regions.push((region, size));
                reserved += size;
            }
            None => drop(sizes.next()),
        }
    }
    regions
}

impl Allocator {
    /// An allocator in region mode with regions of the given sizes. The device identifies a region
    /// by its index.
    pub fn new(id: DeviceId, device: impl Into<String>, regions: &[usize]) -> Arc<Allocator> {
        Allocator::over(id, device.into(), None, State::new(regions))
    }

    /// An allocator in physical mode, which maps at most `capacity` bytes of `memory`.
    pub fn physical(
        id: DeviceId,
        device: impl Into<String>,
        capacity: usize,
        memory: Box<dyn PhysicalMemory>,
    ) -> Arc<Allocator> {
        let capacity = capacity / ALIGNMENT * ALIGNMENT;
        Allocator::over(id, device.into(), Some((memory, capacity)), State::default())
    }

    fn over(
        id: DeviceId,
        device: String,
        physical: Option<(Box<dyn PhysicalMemory>, usize)>,
        state: State,
    ) -> Arc<Allocator> {
        let blocks = Blocks::new(state, physical.is_none());
        let number = PoolId::unique();
        let pool = Arc::new(Pool {
            id: number,
            device_id: id,
            device,
            addresses: OnceLock::new(),
            physical,
            blocks,
            initialized: Mutex::default(),
            collectors: Mutex::default(),
        });
        if pool.physical.is_some() {
            // A driver's handles are its addresses.
            pool.addresses.get_or_init(|| AddressMap::new(id, number, Vec::new()));
        }
        let leases = Striped::new(|| Arc::new(Lease(pool.clone())));
        Arc::new(Allocator { pool, leases })
    }

    /// The device whose memory this allocator manages.
    pub fn device_id(&self) -> DeviceId {
        self.pool.device_id
    }

    /// The id of the allocator's pool.
    pub fn pool_id(&self) -> PoolId {
        self.pool.id
    }

    /// Tells the base address of each region, which the device reserved. The first call counts:
    /// nobody but the device that made the allocator can place its regions.
    ///
    /// # Panics
    /// If the number of bases is not the number of regions.
    pub fn place_regions(&self, bases: &[u64]) {
        let pool = &*self.pool;
        let state = pool.blocks.lock();
        assert_eq!(bases.len(), state.regions.len(), "{}: a base for each region", pool.device);
        let sizes = state.regions.iter().map(|region| region.size);
        let regions = bases.iter().copied().zip(sizes).collect();
        pool.addresses.get_or_init(|| AddressMap::new(pool.device_id, pool.id, regions));
    }

    /// The address of the `size` bytes at a handle; `None` for a handle of another device or pool,
    /// or bytes beyond the end of a region.
    #[inline]
    pub fn resolve(&self, handle: DeviceHandle, size: usize) -> Option<u64> {
        self.pool.addresses.get()?.resolve(handle, size)
    }

    /// Calls `initialize` unless it has succeeded for an equal packet.
    pub(crate) fn once(
        &self,
        packet: &[u8],
        initialize: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let initialized = &self.pool.initialized;
        let mut initialized = initialized.lock().unwrap_or_else(PoisonError::into_inner);
        if !initialized.contains(packet) {
            initialize()?;
            initialized.insert(packet.into());
        }
        Ok(())
    }

    /// Registers `collector`, which is called when an allocation finds no memory, after the
    /// collectors registered earlier. Dropping the registration removes the collector.
    pub fn add_collector(&self, collector: Collector) -> CollectorRegistration {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.pool.lock_collectors().push((number, Arc::new(collector)));
        CollectorRegistration { pool: Arc::downgrade(&self.pool), number }
    }

    /// The number of registered collectors.
    pub fn num_collectors(&self) -> usize {
        self.pool.lock_collectors().len()
    }

    /// Allocates a block of at least `size` bytes. In region mode, prefers a freed block of the
    /// same size in the thread's stripe, then the first fit at the lowest offset. The contents are
    /// uninitialised. A block of 0 bytes takes no memory. If no memory is free, calls the
    /// collectors and retries.
    ///
    /// Errors: [`Error::OutOfMemory`].
    #[inline]
    pub fn allocate(&self, size: usize) -> Result<Buffer> {
        match self.try_allocate(size) {
            Some(block) => Ok(block),
            None => self.collect_and_allocate(size),
        }
    }

    fn try_allocate(&self, size: usize) -> Option<Buffer> {
        let rounded = size.checked_next_multiple_of(ALIGNMENT)?;
        let reserve = |reserved| Some((self.pool.reserve(reserved, size)?, reserved));
        let padded = rounded + self.colour(rounded);
        let (handle, reserved) = reserve(padded).or_else(|| reserve(rounded))?;
        let lease = self.leases.mine().clone();
        Some(Buffer::of_pool(handle, size, Block { lease, reserved }))
    }

    /// The padding of a block of that size. Blocks of whole pages side by side would all begin at
    /// the same offset into a page, so that their elements compete for the same cache sets and
    /// banks: an addition of two vectors of 64 KB takes a fifth longer. So such a block is longer
    /// by an odd number of alignments, and a sequence of blocks gets all offsets (cache colouring).
    fn colour(&self, rounded: usize) -> usize {
        let whole_pages = rounded >= MIN_COLOURED && rounded.is_multiple_of(PAGE);
        if whole_pages && self.pool.physical.is_none() { 9 * ALIGNMENT } else { 0 }
    }

    #[cold]
    fn collect_and_allocate(&self, size: usize) -> Result<Buffer> {
        drop(self.pool.blocks.gather());
        if let Some(block) = self.try_allocate(size) {
            return Ok(block);
        }
        // Do not hold the lock: collectors free blocks.
        let collectors = self.pool.lock_collectors().clone();
        for (_, collect) in collectors {
            if collect(size) {
                drop(self.pool.blocks.gather());
                if let Some(block) = self.try_allocate(size) {
                    return Ok(block);
                }
            }
        }
        Err(self.out_of_memory(size, &self.stats()))
    }

    /// Fails if fewer than `bytes` bytes are free now, in any number of blocks.
    ///
    /// Errors: [`Error::OutOfMemory`].
    pub fn check(&self, bytes: usize) -> Result<()> {
        let stats = self.stats();
        match bytes > stats.capacity.saturating_sub(stats.in_use) {
            true => Err(self.out_of_memory(bytes, &stats)),
            false => Ok(()),
        }
    }

    fn out_of_memory(&self, requested: usize, stats: &MemoryStats) -> Error {
        Error::OutOfMemory {
            device: self.pool.device.clone(),
            requested,
            largest_free: stats.largest_free,
            in_use: stats.in_use,
            capacity: stats.capacity,
        }
    }

    /// The bytes in use and free, and the fragmentation. The peak may be too low by a megabyte for
    /// each allocating thread but one, because stripes report their changes late.
    pub fn stats(&self) -> MemoryStats {
        let state = self.pool.blocks.gather();
        let mut stats = state.stats();
        if let Some((_, capacity)) = &self.pool.physical {
            (stats.capacity, stats.largest_free) = (*capacity, capacity - state.in_use());
        }
        if let Some(limit) = state.limit {
            stats.capacity = stats.capacity.min(limit);
            stats.largest_free = stats.largest_free.min(limit.saturating_sub(state.in_use()));
        }
        stats
    }

    /// Sets the maximum number of bytes in use, whatever the device's capacity. Blocks in use are
    /// not affected. `None` removes the limit.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.pool.blocks.set_limit(limit, limit.is_none() && self.pool.physical.is_none());
    }

    /// The statistics of each region; empty in physical mode.
    pub fn region_stats(&self) -> Vec<RegionStats> {
        self.pool.blocks.gather().regions.iter().map(Region::stats).collect()
    }

    /// Resets the peak to the bytes in use now.
    pub fn reset_peak(&self) {
        self.pool.blocks.gather().reset_peak();
    }
}

impl Pool {
    fn lock_collectors(&self) -> MutexGuard<'_, Vec<(u64, Arc<Collector>)>> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `reserved` bytes for a request of `size` bytes.
    fn reserve(&self, reserved: usize, size: usize) -> Option<DeviceHandle> {
        let listed = |id, offset| DeviceHandle::region(self.device_id, self.id, id, offset);
        let find = |state: &mut State| self.find(state, reserved);
        self.blocks.reserve(self.blocks.stripes.mine(), (reserved, size), listed, find)
    }

    /// Allocates memory from the pool's state, not from a stripe.
    fn find(&self, state: &mut State, reserved: usize) -> Option<DeviceHandle> {
        if state.limit.is_some_and(|limit| reserved > limit.saturating_sub(state.in_use())) {
            return None;
        }
        Some(match (&self.physical, reserved) {
            (None, 0) => DeviceHandle::region(self.device_id, self.id, 0, 0),
            (Some(_), 0) => DeviceHandle::mapped(self.device_id, self.id, 0),
            (None, _) => {
                let (id, offset) = state.find(reserved)?;
                DeviceHandle::region(self.device_id, self.id, id, offset)
            }
            (Some((memory, capacity)), _) => {
                if reserved > capacity - state.in_use() {
                    return None;
                }
                DeviceHandle::mapped(self.device_id, self.id, memory.map(reserved)?)
            }
        })
    }

    fn free(&self, handle: DeviceHandle, reserved: usize, size: usize) {
        let place = handle.region_offset().filter(|_| self.physical.is_none());
        let unmap = || match &self.physical {
            Some((memory, _)) => memory.unmap(handle.address(), reserved),
            None => unreachable!("blocks of regions have handles of regions"),
        };
        self.blocks.free(self.blocks.stripes.mine(), place, (reserved, size), unmap);
    }
}

/// The memory of a buffer: a block of a pool.
pub(crate) struct Block {
    lease: Arc<Lease>,
    reserved: usize,
}

impl Block {
    /// Frees the memory. The buffer's `drop` calls this once.
    pub fn free(&self, handle: DeviceHandle, size: usize) {
        self.lease.0.free(handle, self.reserved, size);
    }
}

#[cfg(test)]
mod tests;
