//! The allocator. In region mode it carves 128-byte aligned blocks first-fit out of regions that the
//! device reserved once. Freed blocks are reused while warm: small ones are kept by size for the
//! next request of that size, larger ones, and small ones when there are many, coalesce with their
//! neighbours. Nothing goes back to the operating system. In physical mode the device's driver maps
//! each block on its own.

use crate::forms::{Form, FormKey, Forms};
use crate::handle::{AddressMap, PoolId};
use crate::{Device, DeviceHandle, DeviceId, Error, Result};
use girih_sync::{Mutex, MutexGuard};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Alignment and granularity of blocks, in bytes.
pub const ALIGNMENT: usize = 128;

/// The largest block, rounded up, that is kept by its size when it is freed.
const LARGEST_KEPT: usize = 256 << 10;
/// Most bytes kept by size.
const MOST_KEPT: usize = 4 << 20;

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

/// Hands out blocks of a device's memory.
pub struct Allocator {
    id: DeviceId,
    pool: PoolId,
    device: String,
    /// None in region mode.
    physical: Option<(Box<dyn PhysicalMemory>, usize)>,
    state: Mutex<State>,
    collectors: Mutex<Vec<Arc<Collector>>>,
}

#[derive(Default)]
struct State {
    regions: Vec<Region>,
    /// Freed blocks, region and offset, by their size in units of the granularity; the last freed is
    /// the warmest. They are free, and not among their region's free intervals.
    kept: Vec<Vec<(usize, usize)>>,
    kept_bytes: usize,
    in_use: usize,
    requested: usize,
    peak: usize,
    blocks: usize,
    allocations: u64,
    /// Most bytes that may be in use.
    limit: Option<usize>,
}

struct Region {
    size: usize,
    /// Free intervals, offset to length; neighbours are never adjacent.
    free: BTreeMap<usize, usize>,
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
        let region = |&size: &usize| {
            let size = size / ALIGNMENT * ALIGNMENT;
            Region { size, free: BTreeMap::from([(0, size)]) }
        };
        let state = State { regions: regions.iter().map(region).collect(), ..State::default() };
        Allocator::over(id, device.into(), None, state)
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
        let (state, pool) = (Mutex::new(state), PoolId::unique());
        let collectors = Mutex::default();
        Arc::new(Allocator { id, pool, device, physical, state, collectors })
    }

    /// The device whose memory it hands out.
    pub fn device_id(&self) -> DeviceId {
        self.id
    }

    /// The map from this allocator's handles to addresses, with the first address of each region.
    ///
    /// # Panics
    /// If there are not as many bases as regions: devices know what they reserved.
    pub fn map_at(&self, bases: &[u64]) -> AddressMap {
        let state = self.lock();
        assert_eq!(bases.len(), state.regions.len(), "{}: a base for each region", self.device);
        let sizes = state.regions.iter().map(|region| region.size);
        AddressMap::new(self.id, self.pool, bases.iter().copied().zip(sizes).collect())
    }

    /// Has `collector` called when an allocation finds no room, after the ones added before.
    pub fn add_collector(&self, collector: Collector) {
        self.lock_collectors().push(Arc::new(collector));
    }

    fn lock_collectors(&self) -> MutexGuard<'_, Vec<Arc<Collector>>> {
        self.collectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state whole, also when it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `size` bytes; in region mode first fit at the lowest offset. Its contents
    /// are arbitrary. A block of 0 bytes takes no memory. Where there is no room, collectors are asked
    /// to make some.
    ///
    /// Errors: [`Error::OutOfMemory`].
    #[inline]
    pub fn allocate(self: &Arc<Self>, size: usize) -> Result<Buffer> {
        match self.try_allocate(size) {
            Some(block) => Ok(block),
            None => self.collect_and_allocate(size),
        }
    }

    fn try_allocate(self: &Arc<Self>, size: usize) -> Option<Buffer> {
        let reserved = size.checked_next_multiple_of(ALIGNMENT)?;
        let mut state = self.lock();
        if state.limit.is_some_and(|limit| reserved > limit.saturating_sub(state.in_use)) {
            return None;
        }
        let handle = match (&self.physical, reserved) {
            (None, 0) => DeviceHandle::region(self.id, self.pool, 0, 0),
            (Some(_), 0) => DeviceHandle::mapped(self.id, self.pool, 0),
            (None, _) => {
                let (id, offset) = state.find(reserved)?;
                DeviceHandle::region(self.id, self.pool, id, offset)
            }
            (Some((memory, capacity)), _) => {
                if reserved > capacity - state.in_use {
                    return None;
                }
                DeviceHandle::mapped(self.id, self.pool, memory.map(reserved)?)
            }
        };
        state.in_use += reserved;
        state.requested += size;
        state.peak = state.peak.max(state.in_use);
        state.blocks += 1;
        state.allocations += 1;
        drop(state);
        let owner = Owner::Pool { allocator: self.clone(), reserved };
        Some(Buffer { handle, size_bytes: size, owner, forms: Forms::default() })
    }

    #[cold]
    fn collect_and_allocate(self: &Arc<Self>, size: usize) -> Result<Buffer> {
        // Not while holding the lock: collectors free blocks.
        let collectors = self.lock_collectors().clone();
        for collect in collectors {
            if collect(size)
                && let Some(block) = self.try_allocate(size)
            {
                return Ok(block);
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
            device: self.device.clone(),
            requested,
            largest_free: stats.largest_free,
            in_use: stats.in_use,
            capacity: stats.capacity,
        }
    }

    fn free(&self, handle: DeviceHandle, reserved: usize, size: usize) {
        let mut state = self.lock();
        state.in_use -= reserved;
        state.requested -= size;
        state.blocks -= 1;
        if reserved == 0 {
            return;
        }
        match (&self.physical, handle.region_offset()) {
            (None, Some((id, offset))) => state.take_back(id, offset, reserved),
            (Some((memory, _)), _) => memory.unmap(handle.address(), reserved),
            (None, None) => unreachable!("blocks of regions have handles of regions"),
        }
    }

    /// What is in use, what is free, how fragmented.
    pub fn stats(&self) -> MemoryStats {
        let mut state = self.lock();
        state.give_back();
        let mut stats = state.stats();
        if let Some((_, capacity)) = &self.physical {
            (stats.capacity, stats.largest_free) = (*capacity, capacity - state.in_use);
        }
        if let Some(limit) = state.limit {
            stats.capacity = stats.capacity.min(limit);
            stats.largest_free = stats.largest_free.min(limit.saturating_sub(state.in_use));
        }
        stats
    }

    /// Grants no block from here on that would put more than so many bytes in use, whatever the device
    /// has; blocks in use stay. None takes the limit away.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.lock().limit = limit;
    }

    /// Each region; none in physical mode.
    pub fn region_stats(&self) -> Vec<RegionStats> {
        let mut state = self.lock();
        state.give_back();
        let stats = |region: &Region| RegionStats {
            capacity: region.size,
            in_use: region.size - region.free.values().sum::<usize>(),
            largest_free: region.free.values().copied().max().unwrap_or(0),
        };
        state.regions.iter().map(stats).collect()
    }

    /// Starts a new measurement of the peak at what is in use now.
    pub fn reset_peak(&self) {
        let mut state = self.lock();
        state.peak = state.in_use;
    }
}

impl State {
    /// Region and offset of a free block.
    fn find(&mut self, reserved: usize) -> Option<(usize, usize)> {
        self.take_kept(reserved).or_else(|| self.carve(reserved)).or_else(|| {
            // What is kept by size may be what is missing in one piece.
            self.give_back();
            self.carve(reserved)
        })
    }

    /// A block is free again.
    fn take_back(&mut self, id: usize, offset: usize, reserved: usize) {
        if reserved > LARGEST_KEPT {
            return self.coalesce(id, offset, reserved);
        }
        if self.kept_bytes + reserved > MOST_KEPT {
            self.give_back();
        }
        let class = reserved / ALIGNMENT;
        if self.kept.len() <= class {
            self.kept.resize(class + 1, Vec::new());
        }
        self.kept[class].push((id, offset));
        self.kept_bytes += reserved;
    }

    /// A block kept of exactly that size.
    fn take_kept(&mut self, reserved: usize) -> Option<(usize, usize)> {
        let found = self.kept.get_mut(reserved / ALIGNMENT)?.pop()?;
        self.kept_bytes -= reserved;
        Some(found)
    }

    /// The first free interval that is large enough.
    fn carve(&mut self, reserved: usize) -> Option<(usize, usize)> {
        let (id, offset, len) = self.regions.iter().enumerate().find_map(|(id, region)| {
            let fit = region.free.iter().find(|(_, len)| **len >= reserved);
            fit.map(|(&offset, &len)| (id, offset, len))
        })?;
        let free = &mut self.regions[id].free;
        free.remove(&offset);
        if len > reserved {
            free.insert(offset + reserved, len - reserved);
        }
        Some((id, offset))
    }

    /// Makes free intervals of all that is kept by size.
    fn give_back(&mut self) {
        if self.kept_bytes == 0 {
            return;
        }
        let mut kept = std::mem::take(&mut self.kept);
        for (class, blocks) in kept.iter_mut().enumerate() {
            blocks.drain(..).for_each(|(id, at)| self.coalesce(id, at, class * ALIGNMENT));
        }
        // With its capacity.
        self.kept = kept;
        self.kept_bytes = 0;
    }

    fn coalesce(&mut self, id: usize, mut offset: usize, reserved: usize) {
        let free = &mut self.regions[id].free;
        let mut len = reserved;
        if let Some((&before, &before_len)) = free.range(..offset).next_back()
            && before + before_len == offset
        {
            free.remove(&before);
            (offset, len) = (before, len + before_len);
        }
        if let Some(after_len) = free.remove(&(offset + len)) {
            len += after_len;
        }
        free.insert(offset, len);
    }

    fn stats(&self) -> MemoryStats {
        let free: usize = self.regions.iter().flat_map(|r| r.free.values()).sum();
        let whole: usize = self.regions.iter().filter_map(|r| r.free.values().max()).sum();
        MemoryStats {
            capacity: self.regions.iter().map(|r| r.size).sum(),
            in_use: self.in_use,
            requested: self.requested,
            peak: self.peak,
            blocks: self.blocks,
            allocations: self.allocations,
            largest_free: self.largest_free(),
            fragmentation: if free == 0 { 0.0 } else { 1.0 - whole as f64 / free as f64 },
        }
    }

    fn largest_free(&self) -> usize {
        self.regions.iter().flat_map(|r| r.free.values()).copied().max().unwrap_or(0)
    }
}

enum Owner {
    Pool {
        allocator: Arc<Allocator>,
        reserved: usize,
    },
    /// Keeps memory alive that the pool does not own.
    Foreign(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>),
}

/// A block of device memory; returns to its pool when dropped. Queued work holds the buffers it
/// uses, so a buffer the user drops is reused only when that work is done. A block has one owner, so that
/// to free it twice does not compile:
///
/// ```compile_fail,E0382
/// fn freed_twice(block: girih_runtime::Buffer) {
///     drop(block);
///     drop(block);
/// }
/// ```
pub struct Buffer {
    handle: DeviceHandle,
    size_bytes: usize,
    owner: Owner,
    /// Of the pool's memory, whose contents nobody changes while somebody may read them.
    forms: Forms,
}

impl Buffer {
    /// Memory of another owner, read in place. `owner` is dropped with the buffer and must keep
    /// the `size_bytes` bytes at `handle` valid and unchanged until then.
    pub fn foreign(
        handle: DeviceHandle,
        size_bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Buffer {
        Buffer { handle, size_bytes, owner: Owner::Foreign(owner), forms: Forms::default() }
    }

    /// Where the block begins.
    pub fn handle(&self) -> DeviceHandle {
        self.handle
    }

    /// The location `offset` bytes into the block, of `size` bytes.
    ///
    /// Errors: [`Error::InvalidHandle`] unless all the bytes are the block's.
    pub fn at(&self, offset: usize, size: usize, device: &dyn Device) -> Result<DeviceHandle> {
        self.check_size(offset.saturating_add(size), device)?;
        Ok(self.handle.offset(offset))
    }

    /// True for a block of the device's pool; false for memory of another owner, who might write it.
    pub fn is_pooled(&self) -> bool {
        matches!(self.owner, Owner::Pool { .. })
    }

    /// Bytes that may be used.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Another form of the contents, which `make` makes of them when they have been read often
    /// enough. None for memory of another owner, who might change it after all.
    pub fn form(&self, key: &FormKey, make: impl FnOnce() -> Option<Form>) -> Option<Arc<Form>> {
        match self.owner {
            Owner::Pool { .. } => self.forms.get(key, make),
            Owner::Foreign(_) => None,
        }
    }

    /// Forgets other forms: the contents will be others.
    pub(crate) fn forget_forms(&self) {
        self.forms.clear();
    }

    /// Fails unless `size` bytes from the start are the buffer's.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        if size <= self.size_bytes {
            return Ok(());
        }
        Err(Error::InvalidHandle {
            device: device.properties().name.clone(),
            handle: self.handle.to_string(),
            size,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Pool { allocator, reserved } = &self.owner {
            allocator.free(self.handle, *reserved, self.size_bytes);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes)", self.handle, self.size_bytes)
    }
}

/// A tensor's data: dense, row-major, from `offset` bytes into a shared buffer.
#[derive(Clone, Debug)]
pub struct Value {
    /// The memory.
    pub buffer: Arc<Buffer>,
    /// Bytes before the first element.
    pub offset: usize,
}

impl Value {
    /// A value that begins where its buffer does.
    pub fn new(buffer: Buffer) -> Value {
        Value { buffer: Arc::new(buffer), offset: 0 }
    }

    /// Bytes from the first element to the end of the buffer.
    pub fn size_bytes(&self) -> usize {
        self.buffer.size_bytes.saturating_sub(self.offset)
    }

    /// Where the first element is.
    pub fn handle(&self) -> DeviceHandle {
        self.buffer.handle.offset(self.offset)
    }

    /// True if the value is all of a block of the pool, of that many bytes, and nobody else has it.
    pub(crate) fn is_alone(&self, size: usize) -> bool {
        let whole = self.offset == 0 && self.buffer.size_bytes == size;
        whole
            && matches!(self.buffer.owner, Owner::Pool { .. })
            && Arc::strong_count(&self.buffer) == 1
    }

    /// Fails unless the buffer holds `size` bytes from the first element on: values lent by front
    /// ends are taken at their word for where they are, not for how long.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        self.buffer.check_size(self.offset.saturating_add(size), device)
    }

    /// The device address of the first element.
    ///
    /// Errors: [`Error::InvalidHandle`] unless `size` bytes from there are the value's.
    pub fn address(&self, size: usize, device: &dyn Device) -> Result<u64> {
        self.check_size(size, device)?;
        device.resolve(self.handle(), size)
    }
}

#[cfg(test)]
mod tests;
