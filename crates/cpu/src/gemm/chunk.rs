//! The loops of one chunk: blocks of K, slabs of panels, row tiles, and the epilogue on their
//! results.

use super::indirect::PanelAddresses;
use super::microkernels::{LANES, MicrokernelCall};
use super::operand::CTile;
use super::pack::{PackBlock, RowMajorB, pack};
use super::{
    CHUNK_MEMORY, Chunk, EPILOGUE_ELEMENTS, Gemm, Memory, OperandA, OperandBlock, PREFETCH_ROWS,
    PackedOperands, PrepackedB, integers,
};
use crate::kernel::with_memory;
use girih_kernel::{Bindings, BodyPart, ExecError, Prepared, Scratch};
use smallvec::SmallVec;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::cell::Cell;
use std::ops::Range;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The operands of one block of K of a chunk.
pub(super) struct KBlock<'a> {
    pub chunk: &'a Chunk,
    pub k_range: Range<usize>,
    /// The end of the chunk's range of K.
    pub k_end: usize,
    /// The first element of B in the chunk's entry of the batch.
    pub b_start: *const u8,
    pub a: OperandA,
    /// The packed panels of a slab.
    pub panels: *mut f32,
    /// Prepacked B, if there is one; no slab is packed then.
    pub prepacked_b: Option<PrepackedB>,
    /// The addresses of the last panel's vectors, if B is read through an indirection.
    pub addresses: Cell<Option<PanelAddresses>>,
}

/// Prefetches the part of the result below a tile, which the next tile adds to, into the L2 cache:
/// the hardware prefetcher does not follow the short rows of tiles, and rows that are a page apart
/// map to one set of the L1 cache.
fn prefetch_below(tile: CTile, rows: usize, columns: usize) {
    for row in rows..2 * rows {
        let first = tile.start.wrapping_offset(row as isize * tile.ldc);
        for line in [first, first.wrapping_add(columns - 1)] {
            // SAFETY: prefetches have no effect but on the caches, at any address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast_const().cast()) };
        }
    }
}

impl Gemm {
    /// # Safety
    /// As [`Gemm::run_chunks`]; no other thread has a chunk that overlaps this one.
    pub(super) unsafe fn run_chunk(
        &self,
        prepared: &Prepared,
        chunk: &Chunk,
        bindings: &Bindings<'_>,
        PackedOperands { a, b }: PackedOperands,
        partial_results: Memory,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let blocking = &self.blocking;
        let (rows, columns) = (self.chunk_rows(&chunk.tiles), self.panel_columns(&chunk.panels));
        let epilogue = self.c_in_place.is_none() && blocking.split_k == 1;
        let of_tile = blocking.tile_rows(0) * blocking.slab_panels * blocking.nr();
        // If one block completes the sums, run the epilogue on a few tiles at a time, while their
        // results are in the L1 cache.
        let grouped = epilogue && blocking.kc == self.k;
        let at_once = match self.packs_b_ahead() {
            _ if !grouped => usize::MAX,
            false => chunk.tiles.len(),
            true => (EPILOGUE_ELEMENTS / of_tile).max(1),
        };
        let panels = if self.indirect.is_some() {
            0
        } else {
            blocking.slab_panels * blocking.kc * blocking.nr()
        };
        let in_place = self.a_in_place.map(|lda| {
            let start = self.lhs.start(bindings, &self.batch, chunk.batch);
            OperandA::InPlace { start, lda }
        });
        let a = a.or(in_place);
        let packed = if a.is_none() { rows.len() * blocking.kc } else { 0 };
        let sums = match epilogue {
            true if grouped => at_once * of_tile,
            true => rows.len() * columns.len(),
            false => 0,
        };
        let computed =
            self.prologues[1].as_ref().map_or(0, |m| m.bytes(columns.len(), blocking.kc) / 4 + 1);
        let sizes = [panels, packed, sums, computed].map(|n: usize| n.next_multiple_of(LANES));
        with_memory(&CHUNK_MEMORY, sizes.iter().sum::<usize>() * 4, |memory| {
            let panels = memory as *mut f32;
            let packed = panels.wrapping_add(sizes[0]);
            let sums = packed.wrapping_add(sizes[1]);
            let computed = sums.wrapping_add(sizes[2]) as *mut u8;
            let c = match &self.c_in_place {
                _ if blocking.split_k > 1 => self.partial_result(
                    partial_results.get(),
                    chunk.part,
                    rows.start,
                    columns.start,
                ),
                Some(matrix) => {
                    matrix.tile(bindings, &self.batch, chunk.batch, rows.start, columns.start)
                }
                None => CTile { start: sums, ldc: columns.len() as isize },
            };
            let end = ((chunk.part + 1) * blocking.part_k).min(self.k);
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                for k in (chunk.part * blocking.part_k..end).step_by(blocking.kc) {
                    let k_range = k..(k + blocking.kc).min(end);
                    let a = a.unwrap_or_else(|| {
                        let (tiles, place) = (chunk.tiles.clone(), (chunk.batch, rows.start));
                        self.fill_a(bindings, place, tiles, k_range.clone(), packed, scratch);
                        OperandA::Packed { start: packed, row: rows.start, k, depth: k_range.len() }
                    });
                    let (outer, of) = (columns.clone(), k_range.clone());
                    let part = OperandBlock { batch: chunk.batch, outer, k_range: of };
                    let start = self.b_start(&part, computed, bindings, scratch);
                    let addresses = Cell::new(None);
                    let block = KBlock {
                        chunk,
                        k_range,
                        k_end: end,
                        b_start: start,
                        a,
                        panels,
                        prepacked_b: b,
                        addresses,
                    };
                    if grouped {
                        self.run_tiles_with_epilogue(
                            prepared, &block, at_once, sums, bindings, scratch,
                        )?;
                    } else {
                        self.packed_slabs(&block).for_each(|slab| self.run_slab(&block, &slab, c));
                    }
                }
                if epilogue && !grouped {
                    self.run_epilogue(
                        prepared,
                        (chunk.batch, rows, columns),
                        c,
                        bindings,
                        scratch,
                    )?;
                }
            }
            Ok(())
        })
    }

    fn chunk_rows(&self, tiles: &Range<usize>) -> Range<usize> {
        self.blocking.tile_start(tiles.start)..self.blocking.tile_start(tiles.end)
    }

    pub(super) fn panel_columns(&self, panels: &Range<usize>) -> Range<usize> {
        let width = self.blocking.nr();
        panels.start * width..(panels.end * width).min(self.n)
    }

    /// The slabs of a chunk. Each is packed before its tiles run, unless the first tile packs it.
    ///
    /// # Safety
    /// As [`Gemm::run_chunk`]; the block's panels have room for a slab.
    unsafe fn packed_slabs(&self, block: &KBlock<'_>) -> impl Iterator<Item = Range<usize>> {
        let KBlock { chunk, b_start, panels, .. } = block;
        let (step, end) = (self.blocking.slab_panels, chunk.panels.end);
        chunk.panels.clone().step_by(step).map(move |first| {
            let slab = first..(first + step).min(end);
            if self.packs_b_ahead() && block.prepacked_b.is_none() {
                // SAFETY: the caller's promise.
                unsafe { self.pack_b(*b_start, &slab, &block.k_range, *panels) };
            }
            slab
        })
    }

    /// Tiles and panels in the order of computation: groups of tiles use panel after panel. If B is
    /// read in memory, all tiles are a group.
    fn tile_order(
        &self,
        tiles: &Range<usize>,
        slab: &Range<usize>,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (tiles, slab) = (tiles.clone(), slab.clone());
        let group = match self.packs_b_ahead() {
            true => self.blocking.tiles_per_panel(),
            false => tiles.len(),
        };
        tiles.clone().step_by(group.max(1)).flat_map(move |first| {
            let group = first..(first + group).min(tiles.end);
            slab.clone().flat_map(move |panel| group.clone().map(move |tile| (tile, panel)))
        })
    }

    /// One block of K of a slab, for all tiles of a chunk; the result begins at `c`.
    ///
    /// # Safety
    /// As [`Gemm::run_chunk`]; the block's panels hold the slab, unless the first tile packs it.
    pub(super) unsafe fn run_slab(&self, block: &KBlock<'_>, slab: &Range<usize>, c: CTile) {
        let (tiles, panels) = (&block.chunk.tiles, &block.chunk.panels);
        for (tile, p) in self.tile_order(tiles, slab) {
            let row_offset =
                (self.blocking.tile_start(tile) - self.blocking.tile_start(tiles.start)) as isize;
            let column_offset = ((p - panels.start) * self.blocking.nr()) as isize;
            let start = c.start.wrapping_offset(row_offset * c.ldc + column_offset);
            // SAFETY: the caller's promise; no other chunk writes this part of the result.
            unsafe { self.run_tile(block, slab, tile, p, CTile { start, ..c }) };
        }
    }

    /// All tiles of a chunk whose K is one block. The epilogue runs on `at_once` tiles at a time.
    /// Before each tile, the memory that its epilogue reads is prefetched.
    ///
    /// # Safety
    /// As [`Gemm::packed_slabs`]; `sums` has room for `at_once` tiles by a slab.
    unsafe fn run_tiles_with_epilogue(
        &self,
        prepared: &Prepared,
        block: &KBlock<'_>,
        at_once: usize,
        sums: *mut f32,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (blocking, batch, all) = (&self.blocking, block.chunk.batch, &block.chunk.tiles);
        // SAFETY: the caller's promise; the sums are complete when the epilogue reads them.
        unsafe {
            for slab in self.packed_slabs(block) {
                let columns = self.panel_columns(&slab);
                for first in all.clone().step_by(at_once) {
                    let tiles = first..(first + at_once).min(all.end);
                    let rows = self.chunk_rows(&tiles);
                    let c = CTile { start: sums, ldc: columns.len() as isize };
                    for (tile, p) in self.tile_order(&tiles, &slab) {
                        let (above, before) = (blocking.tile_start(tile), p * blocking.nr());
                        let row_offset = (above - rows.start) * columns.len();
                        let start = sums.wrapping_add(row_offset + before - columns.start);
                        let part = CTile { start, ..c };
                        let of = above..above + blocking.tile_rows(tile);
                        let place = (batch, of, before..(before + blocking.nr()).min(self.n));
                        prepared.ask_for(&self.epilogue_part(place, part), bindings);
                        self.run_tile(block, &slab, tile, p, part);
                    }
                    let place = (batch, rows, columns.clone());
                    self.run_epilogue(prepared, place, c, bindings, scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the micro-kernel of one tile on its packed panel. If the first tile of a chunk reads B
    /// in memory, its micro-kernel packs the panel for the other tiles.
    ///
    /// # Safety
    /// As [`Gemm::run_slab`].
    unsafe fn run_tile(
        &self,
        block: &KBlock<'_>,
        slab: &Range<usize>,
        tile: usize,
        p: usize,
        c: CTile,
    ) {
        let (a, k_range) = (block.a, &block.k_range);
        let (row, rows) = (self.blocking.tile_start(tile), self.blocking.tile_rows(tile));
        let column = p * self.blocking.nr();
        let columns = self.blocking.nr().min(self.n - column);
        let width = columns.next_multiple_of(LANES);
        let panel = (p - slab.start) * k_range.len() * self.blocking.nr();
        let panel = block.panels.wrapping_add(panel);
        let (a, lda) = a.tile(row, rows, k_range.start);
        let mut call = MicrokernelCall {
            a,
            b: panel as *const u8,
            ldb: 4 * width as isize,
            c: c.start,
            ldc: 4 * c.ldc,
            k: k_range.len(),
            accumulate: (!k_range.start.is_multiple_of(self.blocking.part_k)) as usize,
            packed_b: panel,
            prefetch: panel as *const u8,
            prefetch_stride: 0,
            lda,
        };
        let tall = tile < self.blocking.taller;
        if let Some(indirect) = &self.indirect {
            // SAFETY: the caller's promise; the tile of A is packed.
            return unsafe { indirect.tile(self, block, p, tall, call) };
        }
        let number = tile - block.chunk.tiles.start;
        let direct =
            self.in_place_b_kernels.as_ref().filter(|_| number == 0 && block.prepacked_b.is_none());
        if let Some(PrepackedB(b)) = block.prepacked_b {
            let at = |p: usize, k: usize| b.wrapping_add(self.panel_offset(p, k)) as *const u8;
            call.b = at(p, k_range.start);
            if let Some((p, k, line)) = self.prefetch_line(block, number, p) {
                call.prefetch = at(p, k).wrapping_add(line * LINE);
                call.prefetch_stride = 4 * self.packed_columns(p) as isize;
            }
        } else if let (Some(_), Some(ldb)) = (&self.in_place_b_kernels, self.rhs.k_dims.stride()) {
            let ldb = ldb * self.rhs.stored.size() as isize;
            let at = |p: usize, k: usize| {
                let before = (p * self.blocking.nr() * self.rhs.stored.size()) as isize;
                block.b_start.wrapping_offset(before + k as isize * ldb)
            };
            if direct.is_some() {
                (call.b, call.ldb) = (at(p, k_range.start), ldb);
                (call.prefetch, call.prefetch_stride) =
                    (call.b.wrapping_offset(PREFETCH_ROWS * ldb), ldb);
            } else if let Some((p, k, line)) = self.prefetch_line(block, number - 1, p) {
                (call.prefetch, call.prefetch_stride) = (at(p, k).wrapping_add(line * LINE), ldb);
            }
        }
        let last = p + 1 == self.blocking.n_panels;
        let function = &direct.unwrap_or(&self.kernels)[last as usize][tall as usize];
        if call.accumulate == 1 {
            prefetch_below(c, rows, columns);
        }
        // SAFETY: the panel and the tile of A are in memory.
        unsafe { function.as_ref().expect("every size has its function").call(&call) };
    }

    /// The cache lines that a tile prefetches while it reads its packed panel: one line of each row of
    /// the next panel, a different line for each tile. Returns the panel, the first index of K and the
    /// line within the row.
    fn prefetch_line(
        &self,
        block: &KBlock<'_>,
        line: usize,
        p: usize,
    ) -> Option<(usize, usize, usize)> {
        let panels = &block.chunk.panels;
        if line * LINE >= self.blocking.nr() * self.rhs.stored.size() {
            return None;
        }
        if p + 1 < panels.end {
            return Some((p + 1, block.k_range.start, line));
        }
        (block.k_range.end < block.k_end).then_some((panels.start, block.k_range.end, line))
    }

    /// Packs a slab of panels.
    ///
    /// # Safety
    /// As [`Gemm::run_chunk`]; `to` has room for the panels.
    pub(super) unsafe fn pack_b(
        &self,
        start: *const u8,
        slab: &Range<usize>,
        k_range: &Range<usize>,
        to: *mut f32,
    ) {
        let (rhs, nr) = (&self.rhs, self.blocking.nr());
        let columns = slab.start * nr..(slab.end * nr).min(self.n);
        if let (Some(1), Some(ldb)) = (rhs.outer.stride(), rhs.k_dims.stride()) {
            let k_range = self.k_elements(k_range);
            let first = columns.start as isize + k_range.start as isize * ldb;
            let size = rhs.stored.size() as isize;
            let (start, ldb) = (start.wrapping_offset(first * size), ldb * size);
            let (rows, columns) = (k_range.len(), columns.len());
            let (stored, pairs) = (rhs.stored, self.pairs);
            let rows = RowMajorB { start, ldb, stored, rows, columns, nr, pairs };
            // SAFETY: the caller's promise.
            return unsafe { rows.pack(to) };
        }
        let elements = self.k_elements(k_range);
        let mut offsets: SmallVec<[isize; 2048]> = SmallVec::from_elem(0, elements.len());
        rhs.k_dims.fill(elements.start, &mut offsets);
        for first in columns.clone().step_by(nr) {
            let indices = first..(first + nr).min(columns.end);
            let columns_of_panel = indices.len().next_multiple_of(LANES);
            let block = PackBlock {
                start,
                stored: rhs.stored,
                outer: &rhs.outer,
                indices,
                k_offsets: &offsets,
                along_k: rhs.along_k(),
                pairs: self.pairs,
            };
            let to = to.wrapping_add((first - columns.start) * k_range.len());
            // SAFETY: the caller's promise.
            unsafe { pack(&block, to, columns_of_panel) };
        }
    }

    /// Runs the epilogue on a part of the result whose sums are in `tile`, and overwrites the sums.
    ///
    /// # Safety
    /// As [`Prepared::run_body`] for the part's points; `tile` holds their sums.
    pub(super) unsafe fn run_epilogue(
        &self,
        prepared: &Prepared,
        (batch, rows, columns): (usize, Range<usize>, Range<usize>),
        tile: CTile,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise; the 32-bit sums are not read again.
        unsafe { integers::narrow(tile, (rows.len(), columns.len()), self.core_bytes) };
        let part = self.epilogue_part((batch, rows, columns), tile);
        // SAFETY: the caller's promise.
        unsafe { prepared.run_body(&part, bindings, scratch) }
    }

    /// The part of the result whose sums are in `tile`, as the epilogue takes it.
    fn epilogue_part(
        &self,
        (batch, rows, columns): (usize, Range<usize>, Range<usize>),
        tile: CTile,
    ) -> BodyPart {
        BodyPart {
            point: (batch * self.m + rows.start) * self.n + columns.start,
            row: self.n,
            rows: rows.len(),
            columns: columns.len(),
            core: tile.start as *const u8,
            pitch: tile.ldc * (4 / self.core_bytes) as isize,
        }
    }
}
