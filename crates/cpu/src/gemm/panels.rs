//! Packing of the panels of a blocked GEMM: from memory, or from the blocks that a prologue
//! computes. The panels of a convolution are packed from the image, so there is no im2col matrix.

use super::memory::{A_BLOCK, SharedMemory};
use super::microkernels::LANES;
use super::pack::{PackBlock, RowMajorB, pack};
use super::plan::{BlockedGemm, ReadB};
use super::prologue::OperandBlock;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::tuning::tuning;
use girih_exec::{Bindings, ExecError, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// The number of elements of A from which on several threads pack A.
const MIN_PARALLEL_ELEMENTS: usize = 1 << 17;
/// The maximum number of elements of a block of A that a prologue computes, unless one tile of rows
/// has more.
const MAX_A_BLOCK_ELEMENTS: usize = 1 << 14;

/// The offsets of the elements of a row along K. Create it empty and resize it: other constructors
/// copy the whole array, which takes longer than a small GEMM.
pub(super) type Offsets = SmallVec<[isize; 2048]>;

impl BlockedGemm {
    /// Packs all of A, on several threads if A is large.
    ///
    /// # Safety
    /// As [`BlockedGemm::run`]; `memory` has room for A.
    pub(super) unsafe fn pack_whole_a(
        &self,
        memory: SharedMemory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let elements = self.problem.m * self.k;
        let m_tiles = self.blocking.m_tiles;
        let tasks = if elements < MIN_PARALLEL_ELEMENTS { 1 } else { m_tiles.min(16) };
        let each = m_tiles.div_ceil(tasks);
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = elements as u64 / 4;
        pool.run(m_tiles.div_ceil(each), cost_ns, &|i, scratch| {
            let tiles = i * each..((i + 1) * each).min(m_tiles);
            let first = self.blocking.tile_start(tiles.start);
            let to = memory.get().wrapping_add(first * self.k);
            // SAFETY: the caller's promise; tasks have different tiles.
            unsafe {
                self.fill_a(thread_bindings.get(), (0, first), tiles, 0..self.k, to, scratch)
            };
            Ok(())
        })
    }

    /// Packs consecutive tiles of A, or computes A first if it has a prologue. `(batch, first)` are
    /// the entry of the batch and the row at which the first tile begins.
    ///
    /// # Safety
    /// As [`BlockedGemm::run`]; `to` has room for them.
    pub(super) unsafe fn fill_a(
        &self,
        bindings: &Bindings<'_>,
        (batch, first): (usize, usize),
        tiles: Range<usize>,
        k_range: Range<usize>,
        to: *mut f32,
        scratch: &mut Scratch,
    ) {
        let (a, extents) = (&self.problem.a, &self.problem.batch);
        let Some(prologue) = a.prologue() else {
            let start = a.in_memory().start(bindings, extents, batch);
            // SAFETY: the caller's promise.
            return unsafe { self.pack_a(start, first, tiles, k_range, to) };
        };
        let above = self.blocking.tile_start(tiles.start);
        let of_tile = self.blocking.tile_rows(0) * k_range.len();
        let at_once = (MAX_A_BLOCK_ELEMENTS / of_tile).clamp(1, tiles.len());
        let rows = at_once * self.blocking.tile_rows(0);
        with_memory(&A_BLOCK, prologue.bytes(rows, k_range.len()), |memory| {
            for start in tiles.clone().step_by(at_once) {
                let some = start..(start + at_once).min(tiles.end);
                let [row, end] = [some.start, some.end]
                    .map(|tile| first + self.blocking.tile_start(tile) - above);
                let block = OperandBlock { batch, outer: row..end, k_range: k_range.clone() };
                let to = to.wrapping_add((row - first) * k_range.len());
                // SAFETY: the caller's promise; the block has room for the tiles' rows.
                unsafe {
                    let start = prologue.fill(&block, extents, memory, bindings, scratch);
                    self.pack_a(start, row, some, k_range.clone(), to);
                }
            }
        });
    }

    /// Packs tiles of A, which begins at `start`; the first tile begins at row `first`.
    ///
    /// # Safety
    /// As [`BlockedGemm::fill_a`].
    pub(super) unsafe fn pack_a(
        &self,
        start: *const u8,
        first: usize,
        tiles: Range<usize>,
        k_range: Range<usize>,
        mut to: *mut f32,
    ) {
        let a = self.problem.a.packed_from();
        let above = self.blocking.tile_start(tiles.start);
        let elements = self.k_elements(&k_range);
        let mut offsets = Offsets::new();
        offsets.resize(elements.len(), 0);
        a.k_dims.fill(elements.start, &mut offsets);
        for tile in tiles {
            let (row, rows) =
                (first + self.blocking.tile_start(tile) - above, self.blocking.tile_rows(tile));
            let block = PackBlock {
                start,
                stored: a.stored,
                outer: &a.outer,
                indices: row..row + rows,
                k_offsets: &offsets,
                along_k: a.along_k(),
                pairs: self.packs_pairs(),
            };
            // SAFETY: the caller's promise.
            unsafe { pack(&block, to, rows) };
            to = to.wrapping_add(rows * k_range.len());
        }
    }

    /// Packs a slab of panels of B, which begins at `start`.
    ///
    /// # Safety
    /// As [`BlockedGemm::run_chunk`]; `to` has room for the panels.
    pub(super) unsafe fn pack_b(
        &self,
        start: *const u8,
        slab: &Range<usize>,
        k_range: &Range<usize>,
        to: *mut f32,
    ) {
        let (b, nr) = (self.problem.b.packed_from(), self.blocking.nr());
        let columns = self.blocking.columns(slab, self.problem.n);
        let (elements, pairs) = (self.k_elements(k_range), self.packs_pairs());
        if let Some(ldb) = b.row_major_ldb() {
            let first = (columns.start * b.stored.size()) as isize + elements.start as isize * ldb;
            let start = start.wrapping_offset(first);
            let (rows, columns, stored) = (elements.len(), columns.len(), b.stored);
            let prefetched = tuning().prefetched_rows as isize;
            let rows = RowMajorB { start, ldb, stored, rows, columns, nr, pairs, prefetched };
            // SAFETY: the caller's promise.
            return unsafe { rows.pack(to) };
        }
        let mut offsets = Offsets::new();
        offsets.resize(elements.len(), 0);
        b.k_dims.fill(elements.start, &mut offsets);
        for first in columns.clone().step_by(nr) {
            let indices = first..(first + nr).min(columns.end);
            let columns_of_panel = indices.len().next_multiple_of(LANES);
            let block = PackBlock {
                start,
                stored: b.stored,
                outer: &b.outer,
                indices,
                k_offsets: &offsets,
                along_k: b.along_k(),
                pairs,
            };
            let to = to.wrapping_add((first - columns.start) * k_range.len());
            // SAFETY: the caller's promise.
            unsafe { pack(&block, to, columns_of_panel) };
        }
    }

    /// Whether pairs of elements along K are packed.
    fn packs_pairs(&self) -> bool {
        matches!(self.b, ReadB::Pairs(_))
    }

    /// The range of elements of a range of K, which may count pairs.
    fn k_elements(&self, k_range: &Range<usize>) -> Range<usize> {
        match self.packs_pairs() {
            true => 2 * k_range.start..(2 * k_range.end).min(self.problem.k),
            false => k_range.clone(),
        }
    }
}
