//! The allocator. In region mode it carves 128-byte aligned blocks first-fit out of regions that the
//! device reserved once. Freed blocks are reused while warm: small ones are kept by size for the
//! next request of that size, larger ones, and small ones when there are many, coalesce with their
//! neighbours. Nothing goes back to the operating system. Each thread takes small blocks from a stripe
//! of its own and gives them back there (`stripe`), so that threads share no lock; `blocks` has the rule by
//! which they do. In physical mode the device's driver maps each block on its own.

use crate::handle::{AddressMap, PoolId};
use crate::{Buffer, DeviceHandle, DeviceId, Error, Result};
use girih_sync::{Mutex, MutexGuard, Striped};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

mod blocks;
mod regions;
mod stripe;
use blocks::Blocks;
use regions::{Region, State};

/// Alignment and granularity of blocks, in bytes.
pub const ALIGNMENT: usize = 128;

/// Regions that a device reserves unless told otherwise, in bytes: 96 GB in all.
pub const DEFAULT_REGIONS: [usize; 8] = [12 << 30; 8];
/// Sizes of region to try, largest first, where the default ones cannot be had.
const REGION_SIZES: [usize; 3] = [12 << 30, 8 << 30, 4 << 30];
/// Most regions of smaller sizes that are reserved in place of the default ones.
const MOST_REGIONS: usize = 12;

/// A driver's memory in physical mode: each block is mapped and unmapped on its own.
pub trait PhysicalMemory: Send + Sync {
    /// The address of `size` bytes, aligned to [`ALIGNMENT`]; None if there are no such.
    fn map(&self, size: usize) -> Option<u64>;

    /// Gives back what `map` returned for that size.
    fn unmap(&self, address: u64, size: usize);
}

/// Makes room when an allocation of so many bytes finds none. True if it is worth trying again.
pub type Collector = Box<dyn Fn(usize) -> bool + Send + Sync>;

/// A collector in an allocator's list; dropping the registration takes the collector off the list.
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
        // Outside the lock: the collector may own memory of the pool.
        drop(collectors);
        drop(removed);
    }
}

/// Hands out blocks of a device's memory.
pub struct Allocator {
    pool: Arc<Pool>,
    /// What blocks hold of the pool: one for each stripe, since all threads of one would count in the same
    /// cache line.
    leases: Striped<Arc<Lease>>,
}

/// Keeps a pool while a block of its memory is there.
struct Lease(Arc<Pool>);

/// The memory of an allocator, which lives as long as its blocks.
struct Pool {
    id: PoolId,
    device_id: DeviceId,
    device: String,
    /// None in region mode.
    physical: Option<(Box<dyn PhysicalMemory>, usize)>,
    blocks: Blocks,
    /// In the order in which they were added.
    collectors: Mutex<Vec<(u64, Arc<Collector>)>>,
}

/// What an allocator holds, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryStats {
    /// Bytes of all regions.
    pub capacity: usize,
    /// Bytes of blocks in use, rounded up to the granularity.
    pub in_use: usize,
    /// Bytes of blocks in use, as they were asked for.
    pub requested: usize,
    /// Most bytes ever in use at once.
    pub peak: usize,
    /// Number of blocks in use.
    pub blocks: usize,
    /// Number of blocks ever handed out.
    pub allocations: u64,
    /// Largest block that would be granted.
    pub largest_free: usize,
    /// Share of free memory that is not in the largest free block of its region, 0 to 1.
    pub fragmentation: f64,
}

/// One region of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionStats {
    /// Bytes reserved.
    pub capacity: usize,
    /// Bytes of blocks in use.
    pub in_use: usize,
    /// Largest block that the region would grant.
    pub largest_free: usize,
}

/// Reserves regions: the default ones if all can be had; else up to 12, each as large as can be had of
/// 12, 8 and 4 GB. `reserve` gives None for a region that it cannot reserve.
pub fn reserve_regions<T>(mut reserve: impl FnMut(usize) -> Option<T>) -> Vec<(T, usize)> {
    let total: usize = DEFAULT_REGIONS.iter().sum();
    let (mut regions, mut reserved) = (Vec::new(), 0);
    let mut sizes = REGION_SIZES.iter().copied().peekable();
    while let Some(&size) = sizes.peek()
        && regions.len() < MOST_REGIONS
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
    /// An allocator in region mode, over regions of the given sizes, known to the device by their
    /// position.
    pub fn new(id: DeviceId, device: impl Into<String>, regions: &[usize]) -> Arc<Allocator> {
        Allocator::over(id, device.into(), None, State::new(regions))
    }

    /// An allocator in physical mode, of at most `capacity` bytes that `memory` maps.
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
        let pool = Arc::new(Pool {
            id: PoolId::unique(),
            device_id: id,
            device,
            physical,
            blocks,
            collectors: Mutex::default(),
        });
        let leases = Striped::new(|| Arc::new(Lease(pool.clone())));
        Arc::new(Allocator { pool, leases })
    }

    /// The device whose memory it hands out.
    pub fn device_id(&self) -> DeviceId {
        self.pool.device_id
    }

    /// The map from this allocator's handles to addresses, with the first address of each region.
    ///
    /// # Panics
    /// If there are not as many bases as regions: devices know what they reserved.
    pub fn map_at(&self, bases: &[u64]) -> AddressMap {
        let pool = &*self.pool;
        let state = pool.blocks.lock();
        assert_eq!(bases.len(), state.regions.len(), "{}: a base for each region", pool.device);
        let sizes = state.regions.iter().map(|region| region.size);
        AddressMap::new(pool.device_id, pool.id, bases.iter().copied().zip(sizes).collect())
    }

    /// Has `collector` called when an allocation finds no room, after the collectors added before, as long
    /// as the registration lives.
    pub fn add_collector(&self, collector: Collector) -> CollectorRegistration {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        self.pool.lock_collectors().push((number, Arc::new(collector)));
        CollectorRegistration { pool: Arc::downgrade(&self.pool), number }
    }

    /// How many collectors are registered.
    pub fn num_collectors(&self) -> usize {
        self.pool.lock_collectors().len()
    }

    /// A block of at least `size` bytes; in region mode one of the same size that the thread freed before,
    /// else first fit at the lowest offset. Its contents are arbitrary. A block of 0 bytes takes no memory.
    /// Where there is no room, collectors are asked to make some.
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
        let reserved = size.checked_next_multiple_of(ALIGNMENT)?;
        let handle = self.pool.reserve(reserved, size)?;
        let lease = self.leases.mine().clone();
        Some(Buffer::of_pool(handle, size, Block { lease, reserved }))
    }

    #[cold]
    fn collect_and_allocate(&self, size: usize) -> Result<Buffer> {
        drop(self.pool.blocks.gather());
        if let Some(block) = self.try_allocate(size) {
            return Ok(block);
        }
        // Not while holding the lock: collectors free blocks.
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

    /// Fails if that many bytes are more than is free now, in however many blocks.
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

    /// The bytes in use and free, and how fragmented they are. The peak may miss a megabyte for each thread
    /// but one that allocates.
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

    /// Grants no block from here on that would put more than so many bytes in use, whatever the device
    /// has; blocks in use stay. None takes the limit away.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.pool.blocks.set_limit(limit, limit.is_none() && self.pool.physical.is_none());
    }

    /// Each region; none in physical mode.
    pub fn region_stats(&self) -> Vec<RegionStats> {
        self.pool.blocks.gather().regions.iter().map(Region::stats).collect()
    }

    /// Starts a new measurement of the peak at what is in use now.
    pub fn reset_peak(&self) {
        self.pool.blocks.gather().reset_peak();
    }
}

impl Pool {
    fn lock_collectors(&self) -> MutexGuard<'_, Vec<(u64, Arc<Collector>)>> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes memory of `reserved` bytes, of which `size` were asked for.
    fn reserve(&self, reserved: usize, size: usize) -> Option<DeviceHandle> {
        let kept = |id, offset| DeviceHandle::region(self.device_id, self.id, id, offset);
        let find = |state: &mut State| self.find(state, reserved);
        self.blocks.reserve(self.blocks.stripes.mine(), (reserved, size), kept, find)
    }

    /// Memory that no stripe has.
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

/// Memory of a pool that a buffer has.
pub(crate) struct Block {
    lease: Arc<Lease>,
    reserved: usize,
}

impl Block {
    /// Gives it back. To be called once, by the buffer's end.
    pub fn free(&self, handle: DeviceHandle, size: usize) {
        self.lease.0.free(handle, self.reserved, size);
    }
}

#[cfg(test)]
mod tests;
