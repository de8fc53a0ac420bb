//! Stripes: small freed blocks that a thread keeps for its own next allocations, and what it allocated
//! and freed since it last told the pool. Threads with a stripe each share no lock as long as they find
//! blocks there.
//!
//! A stripe keeps a megabyte at most, and tells the pool when the bytes it has in use have changed by as
//! much. The pool asks all stripes when it is asked for statistics, when it finds no memory, and when it
//! is given a limit. So only the peak is not exact, and only if several threads allocate: by a megabyte
//! for each of the others.

use super::ALIGNMENT;

/// The largest block, rounded up, that a stripe keeps.
const LARGEST: usize = 64 << 10;
/// Most bytes that a stripe keeps.
const MOST: usize = 1 << 20;
/// The change of the bytes in use after which a stripe tells the pool.
const TELL: usize = 1 << 20;

/// Freed blocks, region and offset, by their size in units of the alignment; the last freed is the
/// warmest.
#[derive(Default)]
pub(super) struct Kept {
    classes: Vec<Vec<(usize, usize)>>,
    bytes: usize,
}

impl Kept {
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

    /// A block of exactly that size.
    #[inline]
    pub fn pop(&mut self, reserved: usize) -> Option<(usize, usize)> {
        let found = self.classes.get_mut(reserved / ALIGNMENT)?.pop()?;
        self.bytes -= reserved;
        Some(found)
    }

    /// Gives up all blocks: region, offset and size of each.
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

/// Allocations and frees since they were last counted by the pool.
#[derive(Default)]
pub(super) struct Change {
    pub in_use: isize,
    /// The most that `in_use` has been.
    pub highest: isize,
    pub requested: isize,
    pub blocks: isize,
    pub allocations: u64,
}

impl Change {
    /// A block of `size` bytes, `reserved` with rounding, was allocated.
    #[inline]
    pub fn allocated(&mut self, reserved: usize, size: usize) {
        self.in_use += reserved as isize;
        self.highest = self.highest.max(self.in_use);
        self.requested += size as isize;
        self.blocks += 1;
        self.allocations += 1;
    }

    /// Such a block was freed.
    #[inline]
    pub fn freed(&mut self, reserved: usize, size: usize) {
        self.in_use -= reserved as isize;
        self.requested -= size as isize;
        self.blocks -= 1;
    }

    /// Whether the pool has to be told.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.in_use.unsigned_abs() >= TELL
    }
}

#[derive(Default)]
pub(super) struct Stripe {
    pub kept: Kept,
    pub change: Change,
}

impl Stripe {
    /// Whether blocks of that size are kept here when they are freed.
    #[inline]
    pub fn is_small(reserved: usize) -> bool {
        (1..=LARGEST).contains(&reserved)
    }

    /// Whether a block of that size is not too much beside what is kept.
    #[inline]
    pub fn has_room(&self, reserved: usize) -> bool {
        self.kept.bytes + reserved <= MOST
    }
}
