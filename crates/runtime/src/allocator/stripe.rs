//! Stripes: per-thread free lists of small blocks, with the counts of allocations and frees that
//! the pool has not seen yet. Threads with different stripes do not contend for a lock while their
//! free lists have blocks.
//!
//! A stripe holds a megabyte at most, and reports to the pool when its bytes in use have changed by
//! a megabyte. The pool reads all stripes to compute statistics, when it finds no memory, and when
//! a limit is set. So only the peak is inexact, and only if several threads allocate: by a megabyte
//! for each thread but one.

use super::ALIGNMENT;

/// The largest size, after rounding and padding, that a stripe's free list holds, in bytes.
const MAX_LISTED: usize = 66 << 10;
/// The maximum number of bytes in a stripe's free list.
const MAX_LISTED_BYTES: usize = 1 << 20;
/// The change of the bytes in use after which a stripe reports to the pool.
const REPORT_BYTES: usize = 1 << 20;

/// Free lists: region and offset of freed blocks, by their size in units of the alignment. The most
/// recently freed block is last, because it is most likely in the CPU caches.
#[derive(Default)]
pub(super) struct FreeLists {
    classes: Vec<Vec<(usize, usize)>>,
    bytes: usize,
}

impl FreeLists {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, id: usize, offset: usize, reserved: usize) {
        let class = reserved / ALIGNMENT;
        if self.classes.len() <= class {
            self.classes.resize(class + 1, Vec::new());
        }
        self.classes[class].push((id, offset));
        self.bytes += reserved;
    }

    /// Takes a block of exactly that size.
    #[inline]
    pub fn pop(&mut self, reserved: usize) -> Option<(usize, usize)> {
        let found = self.classes.get_mut(reserved / ALIGNMENT)?.pop()?;
        self.bytes -= reserved;
        Some(found)
    }

    /// Removes all blocks; calls `f` with region, offset and size of each.
    pub fn drain(&mut self, mut f: impl FnMut(usize, usize, usize)) {
        if self.bytes == 0 {
            return;
        }
        for (class, blocks) in self.classes.iter_mut().enumerate() {
            blocks.drain(..).for_each(|(id, at)| f(id, at, class * ALIGNMENT));
        }
        self.bytes = 0;
    }
}

/// Allocations and frees since the last report to the pool.
#[derive(Default)]
pub(super) struct Change {
    pub in_use: isize,
    /// The maximum of `in_use`.
    pub highest: isize,
    pub requested: isize,
    pub blocks: isize,
    pub allocations: u64,
}

impl Change {
    /// Counts the allocation of a block of `size` bytes, `reserved` after rounding.
    #[inline]
    pub fn allocated(&mut self, reserved: usize, size: usize) {
        self.in_use += reserved as isize;
        self.highest = self.highest.max(self.in_use);
        self.requested += size as isize;
        self.blocks += 1;
        self.allocations += 1;
    }

    /// Counts the free of a block of `size` bytes, `reserved` after rounding.
    #[inline]
    pub fn freed(&mut self, reserved: usize, size: usize) {
        self.in_use -= reserved as isize;
        self.requested -= size as isize;
        self.blocks -= 1;
    }

    /// Whether the stripe has to report to the pool.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.in_use.unsigned_abs() >= REPORT_BYTES
    }
}

#[derive(Default)]
pub(super) struct Stripe {
    pub free_lists: FreeLists,
    pub change: Change,
}

impl Stripe {
    /// Whether freed blocks of that size go to the stripe's free list.
    #[inline]
    pub fn is_small(reserved: usize) -> bool {
        (1..=MAX_LISTED).contains(&reserved)
    }

    /// Whether the free list has room for a block of that size.
    #[inline]
    pub fn has_room(&self, reserved: usize) -> bool {
        self.free_lists.bytes + reserved <= MAX_LISTED_BYTES
    }
}
