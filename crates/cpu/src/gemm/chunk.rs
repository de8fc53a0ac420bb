//! The loops of one chunk: blocks of K, slabs of panels, row tiles, and the epilogue on their
//! results.

use super::indirect::PanelAddresses;
use super::memory::{CHUNK, SharedMemory};
use super::microkernels::{LANES, MicrokernelCall};
use super::operand::CTile;
use super::plan::{BlockedGemm, ReadA, ReadB};
use super::prepacked::PrepackedB;
use super::problem::CBlock;
use super::prologue::OperandBlock;
use crate::kernel::with_memory;
use girih_exec::tuning::tuning;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::cell::Cell;
use std::ops::Range;

/// The size of a cache line in bytes.
const LINE: usize = 64;
/// The number of elements of a GEMM's result that are computed before the epilogue reads them.
const EPILOGUE_ELEMENTS: usize = 1 << 12;

/// The work of one task: a split-K part of one GEMM of the batch, its row tiles and its panels.
pub(super) struct Chunk {
    pub batch: usize,
    pub part: usize,
    pub tiles: Range<usize>,
    pub panels: Range<usize>,
}

/// The source from which the tiles of a block of K read A.
#[derive(Clone, Copy)]
pub(super) enum BlockA {
    /// Packed from row `row` and index `k` of the K dimension on; each tile has `depth` indices.
    Packed { start: *const f32, row: usize, k: usize, depth: usize },
    /// In memory: the first row, and the number of bytes between rows.
    InPlace { start: *const u8, lda: isize },
}

impl BlockA {
    /// The address of a tile of `rows` rows at the index `index` of K, and bytes between its rows.
    fn tile(&self, first: usize, rows: usize, index: usize) -> (*const f32, isize) {
        match *self {
            BlockA::Packed { start, row, k, depth } => {
                (start.wrapping_add((first - row) * depth + (index - k) * rows), 0)
            }
            BlockA::InPlace { start, lda } => {
                let row = start.wrapping_offset(first as isize * lda);
                (row.cast::<f32>().wrapping_add(index), lda)
            }
        }
    }
}

// SAFETY: the operand is complete before threads share the pointer, and is only read then.
unsafe impl Sync for BlockA {}

/// The source from which the tiles of a block of K read B.
#[derive(Clone, Copy)]
pub(super) enum BlockB {
    /// In memory, or in a block that a prologue computed: the address at which B begins. The
    /// variant packs B from there, or reads B there.
    Unpacked(*const u8),
    /// In panels that an earlier run has packed.
    Prepacked(PrepackedB),
}

/// The operands that are packed before all chunks run.
#[derive(Clone, Copy)]
pub(super) struct PackedOperands {
    pub a: Option<BlockA>,
    pub b: Option<PrepackedB>,
}

/// The operands of one block of K of a chunk.
pub(super) struct KBlock<'a> {
    pub chunk: &'a Chunk,
    pub k_range: Range<usize>,
    /// The end of the chunk's range of K.
    pub k_end: usize,
    pub a: BlockA,
    pub b: BlockB,
    /// The packed panels of a slab.
    pub panels: *mut f32,
    /// The addresses of the last panel's vectors, if B is read through an indirection.
    pub addresses: Cell<Option<PanelAddresses>>,
}

/// The time at which the epilogue of a chunk runs.
#[derive(Clone, Copy, PartialEq)]
enum Epilogue {
    /// In no chunk: the kernel has no epilogue, or the epilogue runs on the sum of the parts of
    /// split-K.
    Never,
    /// On the whole chunk, after the last block of K.
    AfterChunk,
    /// On that many row tiles at a time, while their results are in the L1 cache: one block of K
    /// completes their sums.
    ByTiles(usize),
}

/// The memory of a chunk.
struct ChunkMemory {
    /// The packed panels of a slab of B.
    panels: *mut f32,
    /// A block of K of the packed rows of A.
    packed_a: *mut f32,
    /// The part of C that the epilogue reads.
    sums: *mut f32,
    /// The block of B that a prologue computes.
    b_block: *mut u8,
}

impl ChunkMemory {
    /// Calls `f` with memory for these numbers of elements.
    fn with<R>(elements: [usize; 4], f: impl FnOnce(ChunkMemory) -> R) -> R {
        let elements = elements.map(|n| n.next_multiple_of(LANES));
        with_memory(&CHUNK, elements.iter().sum::<usize>() * 4, |memory| {
            let panels = memory as *mut f32;
            let packed_a = panels.wrapping_add(elements[0]);
            let sums = packed_a.wrapping_add(elements[1]);
            let b_block = sums.wrapping_add(elements[2]) as *mut u8;
            f(ChunkMemory { panels, packed_a, sums, b_block })
        })
    }
}

/// Prefetches the part of the result below a tile, which the next tile adds to, into the L2 cache.
/// The hardware prefetcher does not follow the short rows of tiles, and rows that are a page apart
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

impl BlockedGemm {
    /// Runs one chunk. A partial result of split-K goes to `partial_results`.
    ///
    /// # Safety
    /// As [`BlockedGemm::run`]; no other thread has a chunk that overlaps this one.
    pub(super) unsafe fn run_chunk(
        &self,
        prepared: &Prepared,
        chunk: &Chunk,
        packed: PackedOperands,
        partial_results: Option<SharedMemory>,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let blocking = &self.blocking;
        let c_block = CBlock {
            batch: chunk.batch,
            rows: blocking.rows(&chunk.tiles),
            columns: blocking.columns(&chunk.panels, self.problem.n),
        };
        let epilogue = self.epilogue_of(chunk);
        let a = packed.a.or_else(|| self.a_in_place(chunk.batch, bindings));
        let elements = self.memory_elements(&c_block, a.is_none(), epilogue);
        ChunkMemory::with(elements, |memory| {
            let c = match partial_results {
                Some(results) => {
                    let (row, column) = (c_block.rows.start, c_block.columns.start);
                    self.partial_result(results.get(), chunk.part, row, column)
                }
                None => self.problem.c_tile(&c_block, bindings).unwrap_or_else(|| CTile {
                    start: memory.sums,
                    ldc: c_block.columns.len() as isize,
                }),
            };
            let k_end = self.k_end(chunk);
            let packed = PackedOperands { a, ..packed };
            // SAFETY: the caller's promise; the memory has room for the chunk.
            unsafe {
                for k in (chunk.part * blocking.part_k..k_end).step_by(blocking.kc) {
                    if k > chunk.part * blocking.part_k {
                        crate::pool::proceed(true)?;
                    }
                    let k_range = k..(k + blocking.kc).min(k_end);
                    let block = self.k_block(chunk, k_range, packed, &memory, bindings, scratch);
                    if let Epilogue::ByTiles(at_once) = epilogue {
                        self.run_tiles_with_epilogue(
                            prepared,
                            &block,
                            at_once,
                            memory.sums,
                            bindings,
                            scratch,
                        )?;
                    } else {
                        self.packed_slabs(&block).for_each(|slab| self.run_slab(&block, &slab, c));
                    }
                }
                match epilogue {
                    Epilogue::AfterChunk => {
                        self.problem.run_epilogue(prepared, &c_block, c, bindings, scratch)
                    }
                    _ => Ok(()),
                }
            }
        })
    }

    /// The operands of a block of K: `packed`, or packed and computed to `memory` as the variant
    /// requires.
    ///
    /// # Safety
    /// As [`BlockedGemm::run_chunk`]; `memory` is that of the chunk.
    unsafe fn k_block<'a>(
        &self,
        chunk: &'a Chunk,
        k_range: Range<usize>,
        packed: PackedOperands,
        memory: &ChunkMemory,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> KBlock<'a> {
        let (problem, batch) = (&self.problem, chunk.batch);
        let a = packed.a.unwrap_or_else(|| {
            let (row, start) = (self.blocking.tile_start(chunk.tiles.start), memory.packed_a);
            let (tiles, k_range) = (chunk.tiles.clone(), k_range.clone());
            let (k, depth) = (k_range.start, k_range.len());
            // SAFETY: the caller's promise.
            unsafe { self.fill_a(bindings, (batch, row), tiles, k_range, start, scratch) };
            BlockA::Packed { start, row, k, depth }
        });
        let b = match packed.b {
            Some(prepacked) => BlockB::Prepacked(prepacked),
            None => {
                let outer = self.blocking.columns(&chunk.panels, problem.n);
                let part = OperandBlock { batch, outer, k_range: k_range.clone() };
                let (extents, to) = (&problem.batch, memory.b_block);
                // SAFETY: the caller's promise.
                BlockB::Unpacked(unsafe { problem.b.start(&part, extents, to, bindings, scratch) })
            }
        };
        let (k_end, panels) = (self.k_end(chunk), memory.panels);
        KBlock { chunk, k_range, k_end, a, b, panels, addresses: Cell::new(None) }
    }

    /// The end of the range of K of a chunk.
    fn k_end(&self, chunk: &Chunk) -> usize {
        ((chunk.part + 1) * self.blocking.part_k).min(self.k)
    }

    /// The time at which the epilogue of a chunk runs.
    fn epilogue_of(&self, chunk: &Chunk) -> Epilogue {
        let blocking = &self.blocking;
        if self.problem.c.is_some() || blocking.split_k > 1 {
            return Epilogue::Never;
        }
        match blocking.kc == self.k {
            false => Epilogue::AfterChunk,
            true if self.packs_b_ahead() => {
                Epilogue::ByTiles((EPILOGUE_ELEMENTS / self.slab_tile_elements()).max(1))
            }
            true => Epilogue::ByTiles(chunk.tiles.len()),
        }
    }

    /// The number of elements of a row tile of a slab.
    fn slab_tile_elements(&self) -> usize {
        self.blocking.tile_rows(0) * self.blocking.slab_panels * self.blocking.nr()
    }

    /// The number of elements of each part of the memory of a chunk.
    fn memory_elements(&self, c_block: &CBlock, packs_a: bool, epilogue: Epilogue) -> [usize; 4] {
        let (blocking, rows, columns) = (&self.blocking, c_block.rows.len(), c_block.columns.len());
        let panels = match self.b {
            ReadB::Indirect(_) => 0,
            _ => blocking.slab_panels * blocking.kc * blocking.nr(),
        };
        let packed_a = if packs_a { rows * blocking.kc } else { 0 };
        let sums = match epilogue {
            Epilogue::Never => 0,
            Epilogue::AfterChunk => rows * columns,
            Epilogue::ByTiles(at_once) => at_once * self.slab_tile_elements(),
        };
        let b_block = self.problem.b.block_bytes(columns, blocking.kc).div_ceil(4);
        [panels, packed_a, sums, b_block]
    }

    /// A of an entry of the batch, if it is read in memory.
    pub(super) fn a_in_place(&self, batch: usize, bindings: &Bindings<'_>) -> Option<BlockA> {
        let ReadA::InPlace { lda } = self.a else { return None };
        let start = self.problem.a.in_memory().start(bindings, &self.problem.batch, batch);
        Some(BlockA::InPlace { start, lda })
    }

    /// The slabs of a chunk. Each is packed before its tiles run, unless B is prepacked or the
    /// variant reads B in memory.
    ///
    /// # Safety
    /// As [`BlockedGemm::run_chunk`]; the block's panels have room for a slab.
    unsafe fn packed_slabs(&self, block: &KBlock<'_>) -> impl Iterator<Item = Range<usize>> {
        let (chunk, panels) = (block.chunk, block.panels);
        let (step, end) = (self.blocking.slab_panels, chunk.panels.end);
        chunk.panels.clone().step_by(step).map(move |first| {
            let slab = first..(first + step).min(end);
            if self.packs_b_ahead()
                && let BlockB::Unpacked(start) = block.b
            {
                // SAFETY: the caller's promise.
                unsafe { self.pack_b(start, &slab, &block.k_range, panels) };
            }
            slab
        })
    }

    /// The tiles and panels in the order of computation: each group of tiles uses panel after
    /// panel. If B is read in memory, all tiles are one group.
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
    /// As [`BlockedGemm::run_chunk`]; the block's panels hold the slab if it is packed ahead.
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
    /// As [`BlockedGemm::packed_slabs`]; `sums` has room for `at_once` tiles by a slab.
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
        let n = self.problem.n;
        // SAFETY: the caller's promise; the sums are complete when the epilogue reads them.
        unsafe {
            for slab in self.packed_slabs(block) {
                let columns = blocking.columns(&slab, n);
                for first in all.clone().step_by(at_once) {
                    let tiles = first..(first + at_once).min(all.end);
                    let rows = blocking.rows(&tiles);
                    let c = CTile { start: sums, ldc: columns.len() as isize };
                    for (tile, p) in self.tile_order(&tiles, &slab) {
                        let rows_of_tile = blocking.rows(&(tile..tile + 1));
                        let columns_of_tile = blocking.columns(&(p..p + 1), n);
                        let row_offset = (rows_of_tile.start - rows.start) * columns.len();
                        let column_offset = columns_of_tile.start - columns.start;
                        let start = sums.wrapping_add(row_offset + column_offset);
                        let part = CTile { start, ..c };
                        let of_tile =
                            CBlock { batch, rows: rows_of_tile, columns: columns_of_tile };
                        prepared.prefetch_rows(&self.problem.body_part(&of_tile, part), bindings);
                        self.run_tile(block, &slab, tile, p, part);
                    }
                    let done = CBlock { batch, rows, columns: columns.clone() };
                    self.problem.run_epilogue(prepared, &done, c, bindings, scratch)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the micro-kernel of one tile and one panel, with A and B from the sources of the
    /// variant.
    ///
    /// # Safety
    /// As [`BlockedGemm::run_slab`].
    unsafe fn run_tile(
        &self,
        block: &KBlock<'_>,
        slab: &Range<usize>,
        tile: usize,
        p: usize,
        c: CTile,
    ) {
        let (blocking, n, k_range) = (&self.blocking, self.problem.n, &block.k_range);
        let rows = blocking.rows(&(tile..tile + 1));
        let columns = blocking.columns(&(p..p + 1), n);
        let panel = (p - slab.start) * k_range.len() * blocking.nr();
        let panel = block.panels.wrapping_add(panel);
        let (a, lda) = block.a.tile(rows.start, rows.len(), k_range.start);
        let mut call = MicrokernelCall {
            a,
            b: panel as *const u8,
            ldb: 4 * blocking.padded_columns(p, n) as isize,
            c: c.start,
            ldc: 4 * c.ldc,
            k: k_range.len(),
            accumulate: (!k_range.start.is_multiple_of(blocking.part_k)) as usize,
            packed_b: panel,
            prefetch: panel as *const u8,
            prefetch_stride: 0,
            lda,
        };
        let tall = tile < blocking.taller;
        let number = tile - block.chunk.tiles.start;
        let kernels = match (&self.b, block.b) {
            (ReadB::Indirect(indirect), BlockB::Unpacked(start)) => {
                // SAFETY: the caller's promise; the tile of A is packed.
                return unsafe { indirect.run_tile(block, start, columns, tall, call) };
            }
            (ReadB::Indirect(_), BlockB::Prepacked(_)) => unreachable!("windows are not prepacked"),
            (ReadB::PackedByFirstTile { first, others, ldb }, BlockB::Unpacked(start)) => {
                self.read_in_memory(block, (start, *ldb), (number, p), &mut call);
                if number == 0 { first } else { others }
            }
            (ReadB::PackedAhead(kernels) | ReadB::Pairs(kernels), BlockB::Unpacked(_)) => kernels,
            (
                ReadB::PackedAhead(kernels)
                | ReadB::Pairs(kernels)
                | ReadB::PackedByFirstTile { others: kernels, .. },
                BlockB::Prepacked(b),
            ) => {
                self.read_prepacked(block, b, (number, p), &mut call);
                kernels
            }
        };
        if call.accumulate == 1 {
            prefetch_below(c, rows.len(), columns.len());
        }
        let function = kernels.get(p + 1 == blocking.n_panels, tall);
        // SAFETY: the panel and the tile of A are in memory.
        unsafe { function.call(&call) };
    }

    /// Sets the operand B of the call for tile number `number` of a chunk and panel `p`, where the
    /// first tile packs B for the others. B begins at `start`.
    fn read_in_memory(
        &self,
        block: &KBlock<'_>,
        (start, ldb): (*const u8, isize),
        (number, p): (usize, usize),
        call: &mut MicrokernelCall,
    ) {
        let size = self.problem.b.packed_from().stored.size();
        let at = |p: usize, k: usize| {
            let before = (p * self.blocking.nr() * size) as isize;
            start.wrapping_offset(before + k as isize * ldb)
        };
        if number == 0 {
            (call.b, call.ldb) = (at(p, block.k_range.start), ldb);
            let next = tuning().prefetched_rows as isize * ldb;
            (call.prefetch, call.prefetch_stride) = (call.b.wrapping_offset(next), ldb);
        } else if let Some((p, k, line)) = self.prefetch_line(block, number - 1, p) {
            (call.prefetch, call.prefetch_stride) = (at(p, k).wrapping_add(line * LINE), ldb);
        }
    }

    /// Sets the operand B of the call for tile number `number` of a chunk and panel `p`, if B is
    /// prepacked.
    fn read_prepacked(
        &self,
        block: &KBlock<'_>,
        PrepackedB(b): PrepackedB,
        (number, p): (usize, usize),
        call: &mut MicrokernelCall,
    ) {
        let at = |p: usize, k: usize| b.wrapping_add(self.panel_offset(p, k)) as *const u8;
        call.b = at(p, block.k_range.start);
        if let Some((p, k, line)) = self.prefetch_line(block, number, p) {
            call.prefetch = at(p, k).wrapping_add(line * LINE);
            call.prefetch_stride = 4 * self.blocking.padded_columns(p, self.problem.n) as isize;
        }
    }

    /// The cache lines that a tile prefetches while it reads its packed panel: one line of each row
    /// of the next panel, a different line for each tile. Returns the panel, the first index of K
    /// and the line within the row.
    fn prefetch_line(
        &self,
        block: &KBlock<'_>,
        line: usize,
        p: usize,
    ) -> Option<(usize, usize, usize)> {
        let panels = &block.chunk.panels;
        let row_bytes = self.blocking.nr() * self.problem.b.packed_from().stored.size();
        if line * LINE >= row_bytes {
            return None;
        }
        if p + 1 < panels.end {
            return Some((p + 1, block.k_range.start, line));
        }
        (block.k_range.end < block.k_end).then_some((panels.start, block.k_range.end, line))
    }
}
