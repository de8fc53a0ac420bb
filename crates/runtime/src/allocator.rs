//! The allocator in region mode: 128-byte aligned blocks carved first-fit out of regions that the
//! device reserved once. Freed blocks are reused while warm: small ones are kept by size for the
//! next request of that size, larger ones, and small ones when there are many, coalesce with their
//! neighbours. Nothing goes back to the operating system.

use crate::forms::{Form, FormKey, Forms};
use crate::{Device, DeviceHandle, Error, Result};
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

/// Hands out blocks of a device's memory.
pub struct Allocator {
    device: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    regions: Vec<Region>,
    /// Freed blocks, region and offset, by their size in units of the granularity; the last freed is
    /// the warmest. They are free, and not among their region's free intervals.
    kept: Vec<Vec<(usize, usize)>>,
    kept_bytes: usize,
    in_use: usize,
    peak: usize,
    blocks: usize,
    allocations: u64,
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

impl Allocator {
    /// An allocator over regions of the given sizes, known to the device by their position.
    pub fn new(device: impl Into<String>, regions: &[usize]) -> Arc<Allocator> {
        let region = |&size: &usize| {
            let size = size / ALIGNMENT * ALIGNMENT;
            Region { size, free: BTreeMap::from([(0, size)]) }
        };
        let state = State { regions: regions.iter().map(region).collect(), ..State::default() };
        Arc::new(Allocator { device: device.into(), state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state whole, also when it unwinds.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `size` bytes, first fit at the lowest offset. Its contents are
    /// arbitrary. A block of 0 bytes takes no memory.
    ///
    /// Errors: [`Error::OutOfMemory`].
    pub fn allocate(self: &Arc<Self>, size: usize) -> Result<Buffer> {
        let reserved = size.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        let mut state = self.lock();
        let found = match reserved {
            0 => Some((0, 0)),
            _ => state.take_kept(reserved).or_else(|| state.carve(reserved)).or_else(|| {
                // What is kept by size may be what is missing in one piece.
                state.give_back();
                state.carve(reserved)
            }),
        };
        let Some((id, offset)) = found else { return Err(self.out_of_memory(&state, size)) };
        state.in_use += reserved;
        state.peak = state.peak.max(state.in_use);
        state.blocks += 1;
        state.allocations += 1;
        drop(state);
        Ok(Buffer {
            handle: DeviceHandle::region(id as u32, offset as u64),
            size_bytes: size,
            owner: Owner::Pool { allocator: self.clone(), reserved },
            forms: Forms::default(),
        })
    }

    /// Fails if that many bytes are more than is free now, in however many blocks.
    ///
    /// Errors: [`Error::OutOfMemory`].
    pub fn check(&self, bytes: usize) -> Result<()> {
        let state = self.lock();
        let capacity: usize = state.regions.iter().map(|r| r.size).sum();
        match bytes > capacity.saturating_sub(state.in_use) {
            true => Err(self.out_of_memory(&state, bytes)),
            false => Ok(()),
        }
    }

    fn out_of_memory(&self, state: &State, requested: usize) -> Error {
        Error::OutOfMemory {
            device: self.device.clone(),
            requested,
            largest_free: state.largest_free(),
            in_use: state.in_use,
            capacity: state.regions.iter().map(|r| r.size).sum(),
        }
    }

    fn free(&self, handle: DeviceHandle, reserved: usize) {
        let mut state = self.lock();
        state.in_use -= reserved;
        state.blocks -= 1;
        let Some((id, offset)) = handle.region_offset().filter(|_| reserved > 0) else {
            return;
        };
        if reserved > LARGEST_KEPT {
            return state.coalesce(id, offset, reserved);
        }
        if state.kept_bytes + reserved > MOST_KEPT {
            state.give_back();
        }
        let class = reserved / ALIGNMENT;
        if state.kept.len() <= class {
            state.kept.resize(class + 1, Vec::new());
        }
        state.kept[class].push((id, offset));
        state.kept_bytes += reserved;
    }

    /// What is in use, what is free, how fragmented.
    pub fn stats(&self) -> MemoryStats {
        let mut state = self.lock();
        state.give_back();
        state.stats()
    }

    /// Starts a new measurement of the peak at what is in use now.
    pub fn reset_peak(&self) {
        let mut state = self.lock();
        state.peak = state.in_use;
    }
}

impl State {
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
/// uses, so a buffer the user drops is reused only when that work is done.
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
            allocator.free(self.handle, *reserved);
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
mod tests {
    use super::*;

    fn offsets(blocks: &[&Buffer]) -> Vec<usize> {
        blocks.iter().map(|b| b.handle.region_offset().unwrap().1).collect()
    }

    #[test]
    fn blocks_are_aligned_reused_and_coalesced() {
        let pool = Allocator::new("test", &[1024]);
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
        // Telling what is free makes one piece of it.
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
    fn small_blocks_are_kept_by_size_until_they_are_missing() {
        let pool = Allocator::new("test", &[1024]);
        let (a, b) = (pool.allocate(100).unwrap(), pool.allocate(300).unwrap());
        let (at_a, at_b) = (a.handle, b.handle);
        drop((a, b));
        // The same sizes, in another order: the same blocks.
        let (b, a) = (pool.allocate(270).unwrap(), pool.allocate(1).unwrap());
        assert_eq!((a.handle, b.handle), (at_a, at_b));
        drop((a, b));
        assert_eq!(offsets(&[&pool.allocate(1024).unwrap()]), [0], "they were free all the time");
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn a_block_never_spans_two_regions_and_the_error_says_what_is_free() {
        let pool = Allocator::new("test", &[256, 512]);
        let err = pool.allocate(600).unwrap_err();
        assert!(
            matches!(err, Error::OutOfMemory { requested: 600, largest_free: 512, .. }),
            "{err}"
        );
        let first = pool.allocate(300).unwrap();
        assert_eq!(first.handle.region_offset(), Some((1, 0)));
        assert!(pool.allocate(usize::MAX).is_err());
        assert!(pool.allocate(0).is_ok());
    }

    #[test]
    fn random_traffic_never_overlaps() {
        let pool = Allocator::new("test", &[1 << 16, 1 << 14]);
        let mut live: Vec<Buffer> = Vec::new();
        let mut x = 1u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let r = (x >> 33) as usize;
            if r.is_multiple_of(3) && !live.is_empty() {
                live.swap_remove(r / 3 % live.len());
            } else if let Ok(block) = pool.allocate(r % 2000 + 1) {
                live.push(block);
            }
            let mut spans: Vec<_> =
                live.iter().map(|b| (b.handle.region_offset().unwrap(), b.size_bytes)).collect();
            spans.sort();
            for pair in spans.windows(2) {
                let ((r0, o0), len) = pair[0];
                let ((r1, o1), _) = pair[1];
                assert!(r0 != r1 || o0 + len <= o1, "blocks overlap");
            }
        }
        live.clear();
        assert_eq!(pool.stats().in_use, 0);
        assert_eq!(pool.stats().largest_free, 1 << 16);
    }
}
