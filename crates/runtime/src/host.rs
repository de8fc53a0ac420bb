//! Host memory for copies to and from devices: aligned blocks, typed arrays, and a pool of staging
//! buffers of one size.

use crate::{Error, Result};
use girih_sync::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// Allocates host memory at aligned addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAllocator {
    alignment: usize,
}

impl Default for HostAllocator {
    /// An alignment of 64 bytes: a cache line, and the widest vector of current processors.
    fn default() -> HostAllocator {
        HostAllocator { alignment: 64 }
    }
}

/// A block of host memory, freed when dropped.
pub struct HostBlock {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

/// An array of host memory with one owner, aligned as its allocator says, freed when dropped.
#[derive(Debug)]
pub struct HostUnique<T> {
    items: Vec<T>,
    /// The items of the array, from its aligned start on.
    range: std::ops::Range<usize>,
}

impl HostAllocator {
    /// An allocator that aligns to `alignment` bytes, a power of two.
    ///
    /// Errors: [`Error::Alignment`] for another number.
    pub fn aligned_to(alignment: usize) -> Result<HostAllocator> {
        match alignment.is_power_of_two() {
            true => Ok(HostAllocator { alignment }),
            false => Err(Error::Alignment(alignment)),
        }
    }

    /// A block of `size` zero bytes. An empty block is aligned, too.
    ///
    /// Errors: [`Error::HostMemory`].
    pub fn allocate_zeroed(&self, size: usize) -> Result<HostBlock> {
        let no_memory = || Error::HostMemory { requested: size };
        // Over-allocate by the alignment, so that an aligned start exists.
        let total = size.checked_add(self.alignment).ok_or_else(no_memory)?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(total).map_err(|_| no_memory())?;
        memory.resize(total, 0);
        let start = memory.as_ptr().align_offset(self.alignment);
        Ok(HostBlock { memory, start, len: size })
    }

    /// An array of `count` default values, which begins at a multiple of the alignment.
    ///
    /// Errors: [`Error::HostMemory`], also if the size in bytes overflows; [`Error::Alignment`] if no
    /// item of this type can begin there.
    pub fn allocate_unique<T: Clone + Default>(&self, count: usize) -> Result<HostUnique<T>> {
        let requested = count.saturating_mul(size_of::<T>());
        let no_memory = || Error::HostMemory { requested };
        // Over-allocate by as many items as may lie in front of an aligned one.
        let spare = if size_of::<T>() == 0 { 0 } else { self.alignment };
        let total = count.checked_add(spare).ok_or_else(no_memory)?;
        let mut items: Vec<T> = Vec::new();
        items.try_reserve_exact(total).map_err(|_| no_memory())?;
        let begin = items.as_ptr().addr();
        let aligned = |n: &usize| (begin + n * size_of::<T>()).is_multiple_of(self.alignment);
        let start = (0..=spare).find(aligned).ok_or(Error::Alignment(self.alignment))?;
        items.resize(start + count, T::default());
        Ok(HostUnique { items, range: start..start + count })
    }
}

impl Deref for HostBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for HostBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl<T> Deref for HostUnique<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[self.range.clone()]
    }
}

impl<T> DerefMut for HostUnique<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items[self.range.clone()]
    }
}

/// A pool of blocks of one size that are reused. The pool allocates a block if none is available. A
/// reference-counted handle that threads can share.
#[derive(Clone)]
pub struct HostMemoryPool(Arc<Shared>);

struct Shared {
    /// The id of the pool, unique in the process.
    id: u64,
    block_size: usize,
    allocator: HostAllocator,
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    available: Vec<HostBlock>,
    total: usize,
}

/// A block of a [`HostMemoryPool`], which returns to its pool when it is released or dropped. It
/// has one owner, so releasing it twice does not compile:
///
/// ```compile_fail,E0382
/// fn released_twice(pool: &girih_runtime::HostMemoryPool, block: girih_runtime::PooledBlock) {
///     let _ = pool.release(block);
///     let _ = pool.release(block);
/// }
/// ```
pub struct PooledBlock {
    /// `None` after the block has returned to the pool.
    block: Option<HostBlock>,
    pool: HostMemoryPool,
}

static POOLS: AtomicU64 = AtomicU64::new(0);

impl HostMemoryPool {
    /// The default of the initial number of blocks.
    pub const INITIAL_BLOCKS: usize = 16;

    /// A pool with `initial_blocks` blocks of `block_size` bytes, aligned to 64 bytes.
    ///
    /// Errors: [`Error::HostMemory`].
    pub fn new(block_size: usize, initial_blocks: usize) -> Result<HostMemoryPool> {
        let (id, allocator) = (POOLS.fetch_add(1, Relaxed), HostAllocator::default());
        let available = (0..initial_blocks).map(|_| allocator.allocate_zeroed(block_size));
        let available = available.collect::<Result<_>>()?;
        let blocks = Mutex::new(Blocks { available, total: initial_blocks });
        Ok(HostMemoryPool(Arc::new(Shared { id, block_size, allocator, blocks })))
    }

    fn with_blocks<R>(&self, f: impl FnOnce(&mut Blocks) -> R) -> R {
        f(&mut self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the block that was returned last, with its old contents, or allocates a zeroed block
    /// if none is available.
    ///
    /// Errors: [`Error::HostMemory`].
    pub fn acquire(&self) -> Result<PooledBlock> {
        let block = match self.with_blocks(|blocks| blocks.available.pop()) {
            Some(block) => block,
            None => {
                let block = self.0.allocator.allocate_zeroed(self.0.block_size)?;
                self.with_blocks(|blocks| blocks.total += 1);
                block
            }
        };
        Ok(PooledBlock { block: Some(block), pool: self.clone() })
    }

    /// Returns a block to the pool.
    ///
    /// Errors: [`Error::ForeignBlock`] for a block of another pool, to which the block then
    /// returns.
    pub fn release(&self, block: PooledBlock) -> Result<()> {
        match block.pool.0.id == self.0.id {
            // Dropping the block returns it.
            true => Ok(()),
            false => Err(Error::ForeignBlock { pool: self.0.id, owner: block.pool.0.id }),
        }
    }

    /// The size of each block in bytes.
    pub fn block_size(&self) -> usize {
        self.0.block_size
    }

    /// The number of blocks allocated so far.
    pub fn total_blocks(&self) -> usize {
        self.with_blocks(|blocks| blocks.total)
    }

    /// The number of blocks that are not in use.
    pub fn available_blocks(&self) -> usize {
        self.with_blocks(|blocks| blocks.available.len())
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let block = self.block.take();
        self.pool.with_blocks(|blocks| blocks.available.extend(block));
    }
}

impl Deref for PooledBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.as_deref().unwrap_or_default()
    }
}

impl DerefMut for PooledBlock {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.block.as_deref_mut().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_zero() {
        for alignment in [1, 8, 64, 4096] {
            let allocator = HostAllocator::aligned_to(alignment).unwrap();
            for size in [0, 1, 63, 64, 65, 4096] {
                let mut block = allocator.allocate_zeroed(size).unwrap();
                assert_eq!((block.as_ptr().addr() % alignment, block.len()), (0, size));
                assert!(block.iter().all(|&byte| byte == 0));
                block.fill(7);
                let block = Box::new(block);
                assert_eq!(block.as_ptr().addr() % alignment, 0, "also when it has moved");
            }
        }
        assert_eq!(HostAllocator::default(), HostAllocator::aligned_to(64).unwrap());
        for bad in [0, 3, 96] {
            assert_eq!(HostAllocator::aligned_to(bad), Err(Error::Alignment(bad)));
        }
        for size in [usize::MAX, usize::MAX / 2] {
            let error = HostAllocator::default().allocate_zeroed(size).err();
            assert_eq!(error, Some(Error::HostMemory { requested: size }));
        }
    }

    #[test]
    fn arrays_are_typed_freed_once_and_checked_for_overflow() {
        let allocator = HostAllocator::default();
        let mut numbers = allocator.allocate_unique::<f64>(5).unwrap();
        numbers[4] = 2.0;
        assert_eq!(*numbers, [0.0, 0.0, 0.0, 0.0, 2.0]);
        assert!(allocator.allocate_unique::<u8>(0).unwrap().is_empty());
        for alignment in [8, 64, 256, 4096] {
            let allocator = HostAllocator::aligned_to(alignment).unwrap();
            let (bytes, words) =
                (allocator.allocate_unique::<u8>(3), allocator.allocate_unique::<[u32; 3]>(7));
            let (bytes, words) = (bytes.unwrap(), words.unwrap());
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % alignment), (3, 0));
            assert_eq!((words.len(), words.as_ptr().addr() % alignment), (7, 0));
            let words = Box::new(words);
            assert_eq!(words.as_ptr().addr() % alignment, 0, "also when it has moved");
        }
        let counted = Arc::new(());
        let mut held = allocator.allocate_unique::<Option<Arc<()>>>(3).unwrap();
        held.fill(Some(counted.clone()));
        assert_eq!(Arc::strong_count(&counted), 4, "the array has no other items");
        drop(held);
        assert_eq!(Arc::strong_count(&counted), 1);
        let error = allocator.allocate_unique::<u64>(usize::MAX / 4).err();
        assert_eq!(error, Some(Error::HostMemory { requested: usize::MAX }));
    }

    #[test]
    fn a_pool_grows_and_reuses_released_blocks() {
        let pool = HostMemoryPool::new(256, HostMemoryPool::INITIAL_BLOCKS).unwrap();
        let counts = || (pool.total_blocks(), pool.available_blocks());
        assert_eq!((counts(), pool.block_size()), ((16, 16), 256));
        let mut first = pool.acquire().unwrap();
        assert_eq!((counts(), first.len()), ((16, 15), 256));
        first[255] = 9;
        let rest: Vec<PooledBlock> = (0..15).map(|_| pool.acquire().unwrap()).collect();
        assert_eq!(counts(), (16, 0));
        let more = pool.acquire().unwrap();
        assert_eq!((counts(), more.as_ptr().addr() % 64), ((17, 0), 0));
        pool.release(first).unwrap();
        assert_eq!(pool.acquire().unwrap()[255], 9, "the block that went back last");
        assert_eq!(counts(), (17, 1));
        drop((rest, more));
        assert_eq!(counts(), (17, 17));
        let other = HostMemoryPool::new(256, 0).unwrap();
        assert_eq!((other.total_blocks(), other.available_blocks()), (0, 0));
        let error = pool.release(other.acquire().unwrap()).unwrap_err();
        assert!(matches!(error, Error::ForeignBlock { .. }), "{error}");
        assert_eq!((counts(), other.available_blocks()), ((17, 17), 1));
    }

    #[test]
    fn threads_never_have_one_block_at_once_and_counts_add_up() {
        let pool = HostMemoryPool::new(8, 2).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        let mut block = pool.acquire().unwrap();
                        block.fill(thread);
                        std::hint::black_box(&mut *block);
                        assert!(block.iter().all(|&byte| byte == thread));
                        assert!(pool.available_blocks() < pool.total_blocks());
                    }
                });
            }
        });
        assert!((2..=4).contains(&pool.total_blocks()), "{}", pool.total_blocks());
        assert_eq!(pool.available_blocks(), pool.total_blocks());
    }
}
