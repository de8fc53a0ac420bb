//! The state of a pool in region mode: regions with their free intervals, and free lists by block
//! size.

use super::stripe::{Change, FreeLists};
use super::{ALIGNMENT, MemoryStats, RegionStats};
use std::collections::BTreeMap;

/// The largest size, after rounding and padding, that goes to a free list, in bytes.
const MAX_LISTED: usize = 258 << 10;
/// The maximum total size of the free lists, in bytes.
const MAX_LISTED_BYTES: usize = 4 << 20;

#[derive(Default)]
pub(super) struct State {
    pub regions: Vec<Region>,
    /// The free lists. Their blocks are not in the free intervals of the regions.
    pub free_lists: FreeLists,
    /// Allocations minus frees, as far as stripes have reported them. If one thread allocates a
    /// block and another one frees it, the free may be reported first, so these can be negative.
    in_use: isize,
    requested: isize,
    blocks: isize,
    peak: isize,
    allocations: u64,
    /// The maximum number of bytes in use.
    pub limit: Option<usize>,
}

pub(super) struct Region {
    pub size: usize,
    /// Free intervals, offset to length; adjacent intervals are always merged.
    free: BTreeMap<usize, usize>,
}

impl Region {
    pub fn new(size: usize) -> Region {
        let size = size / ALIGNMENT * ALIGNMENT;
        Region { size, free: BTreeMap::from([(0, size)]) }
    }

    fn largest_free(&self) -> usize {
        self.free.values().copied().max().unwrap_or(0)
    }

    pub fn stats(&self) -> RegionStats {
        RegionStats {
            capacity: self.size,
            in_use: self.size - self.free.values().sum::<usize>(),
            largest_free: self.largest_free(),
        }
    }
}

impl State {
    pub fn new(regions: &[usize]) -> State {
        State { regions: regions.iter().copied().map(Region::new).collect(), ..State::default() }
    }

    /// Bytes of blocks in use; exact if all stripes have reported.
    pub fn in_use(&self) -> usize {
        self.in_use.max(0) as usize
    }

    /// Adds the changes that a stripe has made since its last report.
    pub fn merge(&mut self, change: &mut Change) {
        let change = std::mem::take(change);
        self.peak = self.peak.max(self.in_use + change.highest);
        self.in_use += change.in_use;
        self.requested += change.requested;
        self.blocks += change.blocks;
        self.allocations += change.allocations;
    }

    /// Resets the peak to the bytes in use now.
    pub fn reset_peak(&mut self) {
        self.peak = self.in_use;
    }

    /// Allocates a free block; returns its region and offset.
    pub fn find(&mut self, reserved: usize) -> Option<(usize, usize)> {
        self.free_lists.pop(reserved).or_else(|| self.carve(reserved)).or_else(|| {
            // Coalescing the free lists may give a large enough interval.
            self.coalesce_all();
            self.carve(reserved)
        })
    }

    /// Frees a block.
    pub fn free(&mut self, id: usize, offset: usize, reserved: usize) {
        if reserved > MAX_LISTED {
            return self.coalesce(id, offset, reserved);
        }
        if self.free_lists.bytes() + reserved > MAX_LISTED_BYTES {
            self.coalesce_all();
        }
        self.free_lists.push(id, offset, reserved);
    }

    /// Splits a block off the first free interval that is large enough.
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

    /// Moves all blocks of the free lists to the free intervals.
    pub fn coalesce_all(&mut self) {
        let mut free_lists = std::mem::take(&mut self.free_lists);
        free_lists.drain(|id, at, reserved| self.coalesce(id, at, reserved));
        // Put the emptied free lists back, whose capacity is used again.
        self.free_lists = free_lists;
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

    pub fn stats(&self) -> MemoryStats {
        let free: usize = self.regions.iter().flat_map(|r| r.free.values()).sum();
        let whole: usize = self.regions.iter().filter_map(|r| r.free.values().max()).sum();
        MemoryStats {
            capacity: self.regions.iter().map(|r| r.size).sum(),
            in_use: self.in_use(),
            requested: self.requested.max(0) as usize,
            peak: self.peak.max(0) as usize,
            blocks: self.blocks.max(0) as usize,
            allocations: self.allocations,
            largest_free: self.regions.iter().map(Region::largest_free).max().unwrap_or(0),
            fragmentation: if free == 0 { 0.0 } else { 1.0 - whole as f64 / free as f64 },
        }
    }
}
