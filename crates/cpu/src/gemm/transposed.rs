//! Indirect convolution as a transposed GEMM: `C^T = B^T A^T`. The rows of a tile are
//! positions of windows, which may be in different images, and the columns of a tile are filters.
//! The micro-kernel broadcasts the elements of the windows from the images in memory, so nothing
//! but the filters is packed (the indirect convolution algorithm, Dukhan 2019). The sums of a chunk
//! are transposed in the caches when they are complete.

use super::blocking::{even_chunks, wanted_chunks};
use super::drive::run_chunks;
use super::memory::{CHUNK, SharedMemory, WHOLE_A};
use super::microkernels::{
    Function, IndirectRows, IndirectTiles, MAX_INDIRECT_ROW_REGISTERS, MAX_INDIRECT_ROWS,
    Microkernel, MicrokernelCall, SourceOfA, Stored,
};
use super::operand::CTile;
use super::pack::{PackBlock, pack, transpose_rows};
use super::panels::Offsets;
use super::prepacked::PrepackedB;
use super::problem::{CBlock, Problem};
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use crate::prepacked::{PrepackedStore, PrepackedWeights};
use girih_exec::tuning::machine;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// The maximum K of a block (kc): on AVX2, a panel of three registers and the elements of the images
/// that are read with it stay in the L1 cache.
const MAX_KC: usize = 256;
/// The range of the number of positions of a chunk. Each chunk reads all of its filters, so it should
/// not have few positions.
const CHUNK_POSITIONS: [usize; 2] = [48, 192];
/// Chunks begin at multiples of this number of positions, which tiles of 4 and of 6 rows divide.
const POSITIONS: usize = 12;
/// The last number of a key of prepacked filters. Keys of blocked GEMMs have the number of columns of
/// a panel there.
const FILTERS_KEY: usize = usize::MAX;

/// The micro-kernels and the blocking of a transposed GEMM.
pub(super) struct TransposedGemm {
    pub problem: Problem,
    panels: Vec<Panel>,
    /// K of a block; the last block may have fewer.
    kc: usize,
    /// The number of chunks along the positions of all images, and along the panels.
    chunks: [usize; 2],
    /// The number of bytes from the first element of a window to its element at each index of K.
    offsets: Vec<isize>,
    /// The micro-kernels that the blocking needs, by registers of a row and by rows.
    kernels: [[Option<Function<MicrokernelCall>>; MAX_INDIRECT_ROWS]; MAX_INDIRECT_ROW_REGISTERS],
}

/// Filters that tiles compute together. Packed filters of all panels follow each other.
#[derive(Clone, Copy)]
struct Panel {
    /// The first filter.
    first: usize,
    /// The number of filters, as many as a row of a tile has columns.
    columns: usize,
    /// The number of registers of a row.
    registers: usize,
    /// The maximum number of rows of a tile. On AVX2, tiles of 4 rows and three registers load seven
    /// registers for twelve multiply-adds, tiles of 6 rows and two registers load eight; on Zen 3,
    /// they reach 97 % and 90 % of the peak. On AVX-512, tiles of 6 rows and four registers load ten
    /// registers for 24 multiply-adds.
    max_rows: usize,
}

impl Panel {
    /// The tiles of `positions` positions: the rows of each, and the number of tiles that have one more
    /// row and come first.
    fn tiles(self, positions: usize) -> (usize, usize) {
        let tiles = positions.div_ceil(self.max_rows);
        (positions / tiles, positions % tiles)
    }
}

/// The panels of `filters` filters: as few as possible, whose numbers of registers differ by one at
/// most. The widest come first.
fn panels(filters: usize, shape: IndirectTiles) -> Vec<Panel> {
    let registers = filters.div_ceil(shape.lanes);
    let count = registers.div_ceil(shape.row_registers);
    let mut first = 0;
    let panel = |i: usize| {
        let registers = registers / count + (i < registers % count) as usize;
        let max_rows = (shape.accumulators / registers).min(MAX_INDIRECT_ROWS);
        let panel = Panel { first, columns: registers * shape.lanes, registers, max_rows };
        first += panel.columns;
        panel
    };
    (0..count).map(panel).collect()
}

/// The number of filters that the tiles of all panels compute: whole registers, so that no store is
/// masked.
fn padded(panels: &[Panel]) -> usize {
    panels.iter().map(|panel| panel.columns).sum()
}

/// The work of one task: positions with panels of filters.
struct Chunk<'a> {
    panels: &'a [Panel],
    /// The positions, counted over all images.
    positions: Range<usize>,
    /// The address of the first element of the window at each position.
    windows: SmallVec<[*const u8; CHUNK_POSITIONS[1]]>,
    /// The packed filters.
    filters: *const f32,
}

/// Consecutive positions of one image.
struct Segment {
    image: usize,
    /// The positions within the image.
    columns: Range<usize>,
    /// The number of positions of the chunk before the segment.
    before: usize,
}

impl TransposedGemm {
    /// A GEMM with tiles of this shape; `None` if code cannot be generated. The problem must satisfy
    /// [`transposed_tiles()`](super::plan::transposed_tiles).
    pub fn new(problem: Problem, shape: IndirectTiles) -> Option<TransposedGemm> {
        let (positions, k) = (problem.n * problem.batches, problem.k);
        let panels = panels(problem.m, shape);
        let mut offsets = vec![0; k];
        let b = problem.b.in_memory();
        b.k_dims.fill(0, &mut offsets);
        offsets.iter_mut().for_each(|offset| *offset *= b.stored.size() as isize);
        let chunks = chunks(positions, problem.m, k, &panels);
        let kc = k.div_ceil(k.div_ceil(MAX_KC));
        let kernels = Default::default();
        let mut gemm = TransposedGemm { problem, panels, kc, chunks, offsets, kernels };
        gemm.compile()?;
        Some(gemm)
    }

    /// Generates the micro-kernels; `None` if code cannot be generated.
    fn compile(&mut self) -> Option<()> {
        for chunk in 0..self.chunks[0] {
            let positions = self.positions(chunk).len();
            for panel in &self.panels {
                let (low, taller) = panel.tiles(positions);
                let high = low + (taller > 0) as usize;
                for mr in low..=high {
                    let kernel = &mut self.kernels[panel.registers - 1][mr - 1];
                    if kernel.is_none() {
                        let packed = Microkernel::packed(mr, panel.columns);
                        let a = SourceOfA::Indirect;
                        *kernel = Some(Microkernel { a, ..packed }.compile()?);
                    }
                }
            }
        }
        Some(())
    }

    /// The positions of a chunk.
    fn positions(&self, chunk: usize) -> Range<usize> {
        let positions = self.problem.n * self.problem.batches;
        let (chunks, units) = (self.chunks[0], positions.div_ceil(POSITIONS));
        let start = |chunk: usize| (chunk * units / chunks * POSITIONS).min(positions);
        start(chunk)..start(chunk + 1)
    }

    /// The micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<MicrokernelCall>> {
        self.kernels.iter().flatten().flatten()
    }

    /// The blocking, as text.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let registers: Vec<_> = self.panels.iter().map(|panel| panel.registers).collect();
        let (kc, [positions, panels]) = (self.kc, self.chunks);
        format!("; panels of {registers:?} registers; kc {kc}; {positions} by {panels} chunks")
    }

    /// The approximate time on one core in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.problem.cost_ns(self.problem.k, self.problem.m)
    }

    /// The buffer of the filters, if the GEMM can read them prepacked.
    pub fn prepackable(&self) -> Option<usize> {
        let Problem { m, k, ref batch, .. } = self.problem;
        let a = self.problem.a.in_memory();
        if a.stored != Stored::F32 {
            return None;
        }
        a.prepackable([m, k], batch)
    }

    /// Runs the GEMM and the epilogue of its kernel. `store` may hold the filters prepacked.
    ///
    /// # Safety
    /// As [`GeneratedGemm::run`](super::GeneratedGemm::run).
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        let prepacked =
            store.and_then(|store| unsafe { self.prepacked_filters(store, bindings, pool) });
        let bytes = if prepacked.is_some() { 0 } else { self.packed_bytes() };
        with_memory(&WHOLE_A, bytes, |memory| {
            let filters = match &prepacked {
                Some(prepacked) => prepacked.start as *const f32,
                None => {
                    // SAFETY: the caller's promise; the memory has room for all filters.
                    unsafe { self.pack_filters(SharedMemory(memory.cast()), bindings, pool)? };
                    memory as *const f32
                }
            };
            // SAFETY: the caller's promise.
            unsafe { self.run_all_chunks(PrepackedB(filters), prepared, bindings, pool) }
        })
    }

    /// # Safety
    /// As [`TransposedGemm::run`]; `filters` are packed.
    unsafe fn run_all_chunks(
        &self,
        filters: PrepackedB,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Problem { m, n, k, batches, .. } = self.problem;
        let work = m.saturating_mul(n).saturating_mul(k).saturating_mul(batches);
        let [along_positions, along_panels] = self.chunks;
        let (thread_bindings, filters) = (SharedBindings(*bindings), &filters);
        let all = (along_positions, along_panels);
        let of_one = (work / along_positions, self.cost_ns());
        run_chunks(pool, all, of_one, |chunk, i, scratch| {
            let bindings = thread_bindings.get();
            let panel = |i: usize| i * self.panels.len() / along_panels;
            let positions = self.positions(chunk);
            let chunk = Chunk {
                panels: &self.panels[panel(i)..panel(i + 1)],
                windows: self.windows(&positions, bindings),
                filters: filters.0,
                positions,
            };
            // SAFETY: the caller's promise; chunks do not overlap.
            unsafe { self.run_chunk(&chunk, prepared, bindings, scratch) }
        })
    }

    /// Runs one chunk: for each block of K, each panel of filters with all tiles.
    ///
    /// # Safety
    /// As [`TransposedGemm::run`]; no other thread has a chunk that overlaps this one.
    unsafe fn run_chunk(
        &self,
        chunk: &Chunk<'_>,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (k, positions) = (self.problem.k, chunk.positions.len());
        let (Some(first), Some(last)) = (chunk.panels.first(), chunk.panels.last()) else {
            return Ok(());
        };
        let sums = (last.first + last.columns - first.first) * positions;
        // The widest panel is the first.
        let transposed = if self.problem.c.is_none() { first.columns * positions } else { 0 };
        with_memory(&CHUNK, 4 * (sums + transposed), |memory| {
            let of_chunk = memory as *mut f32;
            let transposed = of_chunk.wrapping_add(sums);
            for start in (0..k).step_by(self.kc) {
                let block = start..(start + self.kc).min(k);
                for panel in chunk.panels {
                    let sums = of_chunk.wrapping_add((panel.first - first.first) * positions);
                    // SAFETY: the caller's promise; the memory has room for the chunk, and the
                    // sums are complete after the last block.
                    unsafe {
                        self.run_tiles(chunk, *panel, &block, sums);
                        if block.end == k {
                            let at = (sums as *const f32, transposed);
                            self.finish(chunk, *panel, at, prepared, bindings, scratch)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    /// Runs the micro-kernels of all tiles of a chunk with one panel, for a block of K.
    ///
    /// # Safety
    /// As [`TransposedGemm::run_chunk`]; `sums` has room for the panel.
    unsafe fn run_tiles(
        &self,
        chunk: &Chunk<'_>,
        panel: Panel,
        block: &Range<usize>,
        sums: *mut f32,
    ) {
        let columns = panel.columns;
        let filters =
            chunk.filters.wrapping_add(panel.first * self.problem.k + block.start * columns);
        let (low, taller) = panel.tiles(chunk.positions.len());
        let (tall, others) = chunk.windows.split_at(taller * (low + 1));
        let mut c = sums;
        for (windows, rows) in [(tall, low + 1), (others, low)] {
            if windows.is_empty() {
                continue;
            }
            let offsets = self.offsets[block.start..].as_ptr();
            let Range { start, end } = windows.as_ptr_range();
            let indirect = IndirectRows { offsets, rows: start, rows_end: end };
            let call = MicrokernelCall {
                a: (&raw const indirect).cast(),
                b: filters as *const u8,
                ldb: 0,
                c,
                ldc: 4 * columns as isize,
                k: block.len(),
                accumulate: (block.start > 0) as usize,
                packed_b: std::ptr::null_mut(),
                prefetch: std::ptr::null(),
                prefetch_stride: 0,
                lda: 0,
            };
            let kernel = self.kernels[panel.registers - 1][rows - 1].as_ref();
            // SAFETY: the windows are in memory; the caller's promise.
            unsafe { kernel.expect("every size has its function").call(&call) };
            c = c.wrapping_add(windows.len() * columns);
        }
    }

    /// Transposes the complete sums of a panel to C, or to `transposed`, where the epilogue reads
    /// them.
    ///
    /// # Safety
    /// As [`TransposedGemm::run_chunk`]; `transposed` has room for the panel.
    unsafe fn finish(
        &self,
        chunk: &Chunk<'_>,
        panel: Panel,
        (sums, transposed): (*const f32, *mut f32),
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let problem = &self.problem;
        let filters = panel.first..(panel.first + panel.columns).min(problem.m);
        for Segment { image, columns, before } in self.segments(&chunk.positions) {
            let sizes = (columns.len(), filters.len());
            let ldc = columns.len() as isize;
            let block = CBlock { batch: image, rows: filters.clone(), columns };
            let c = problem.c_tile(&block, bindings);
            let to = c.unwrap_or(CTile { start: transposed, ldc });
            // SAFETY: the caller's promise; the sums are those of the segment.
            unsafe {
                let sums = (sums.add(before * panel.columns), panel.columns);
                transpose_rows(sums, sizes, to.start, to.ldc);
                if c.is_none() {
                    problem.run_epilogue(prepared, &block, to, bindings, scratch)?;
                }
            }
        }
        Ok(())
    }

    /// The segments of a range of positions.
    fn segments(&self, positions: &Range<usize>) -> impl Iterator<Item = Segment> + use<> {
        let (n, positions) = (self.problem.n, positions.clone());
        let mut first = positions.start;
        std::iter::from_fn(move || {
            let (image, start) = (first / n, first % n);
            let columns = start..n.min(start + positions.end - first);
            let before = first - positions.start;
            first += columns.len();
            (!columns.is_empty()).then_some(Segment { image, columns, before })
        })
    }

    /// The addresses of the windows at these positions.
    fn windows(
        &self,
        positions: &Range<usize>,
        bindings: &Bindings<'_>,
    ) -> SmallVec<[*const u8; CHUNK_POSITIONS[1]]> {
        let (b, extents) = (self.problem.b.in_memory(), &self.problem.batch);
        let mut windows = SmallVec::with_capacity(positions.len());
        let mut elements = Offsets::new();
        for Segment { image, columns, .. } in self.segments(positions) {
            let start = b.start(bindings, extents, image).cast::<f32>();
            elements.resize(columns.len(), 0);
            b.outer.fill(columns.start, &mut elements);
            windows.extend(elements.iter().map(|&element| start.wrapping_offset(element).cast()));
        }
        windows
    }

    /// The size of the packed filters in bytes.
    fn packed_bytes(&self) -> usize {
        4 * padded(&self.panels) * self.problem.k
    }

    /// Prepacked filters; `store` decides whether to pack them now.
    ///
    /// # Safety
    /// As [`TransposedGemm::run`].
    unsafe fn prepacked_filters(
        &self,
        store: &dyn PrepackedStore,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Option<PrepackedWeights> {
        self.prepackable()?;
        let Problem { m, k, ref batch, .. } = self.problem;
        let (a, form) = (self.problem.a.in_memory(), (FILTERS_KEY, self.packed_bytes()));
        a.prepacked(store, bindings, ([m, k], batch), form, |to| {
            // SAFETY: the caller's promise; `to` has room for all filters.
            unsafe { self.pack_filters(SharedMemory(to.cast()), bindings, pool).is_ok() }
        })
    }

    /// Packs the filters in panels, `[k][columns]`.
    ///
    /// # Safety
    /// As [`TransposedGemm::run`]; `to` has room for all filters.
    unsafe fn pack_filters(
        &self,
        to: SharedMemory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (a, k, m) = (self.problem.a.in_memory(), self.problem.k, self.problem.m);
        let mut offsets = Offsets::new();
        offsets.resize(k, 0);
        a.k_dims.fill(0, &mut offsets);
        let (offsets, thread_bindings) = (&offsets, SharedBindings(*bindings));
        pool.run(self.panels.len(), (m * k / 4) as u64, &|panel, _| {
            let panel = self.panels[panel];
            let block = PackBlock {
                start: a.start(thread_bindings.get(), &self.problem.batch, 0),
                stored: a.stored,
                outer: &a.outer,
                indices: panel.first..(panel.first + panel.columns).min(m),
                k_offsets: offsets,
                along_k: a.along_k(),
                pairs: false,
            };
            let to = to.get().wrapping_add(panel.first * k);
            // SAFETY: the caller's promise; each task has its panel.
            unsafe { pack(&block, to, panel.columns) };
            Ok(())
        })
    }
}

/// The number of chunks along the positions and along the panels. The sums of a chunk take half of
/// the L2 cache at most, and so do the parts of the images that its windows are in.
fn chunks(positions: usize, filters: usize, k: usize, panels: &[Panel]) -> [usize; 2] {
    let [min, max] = CHUNK_POSITIONS;
    let work = positions.saturating_mul(filters).saturating_mul(k);
    // Twice as many as in other GEMMs: since a chunk packs nothing, small chunks cost little.
    let wanted_chunks = 2 * wanted_chunks(work);
    let sums = machine().l2_bytes / 2 / (4 * padded(panels));
    let of_chunk = sums.min(positions / wanted_chunks.max(1)).clamp(min, max);
    let along_positions = even_chunks(positions.div_ceil(of_chunk), positions.div_ceil(POSITIONS));
    let along_panels = even_chunks(wanted_chunks.div_ceil(along_positions), panels.len());
    [along_positions, along_panels]
}

#[cfg(test)]
mod tests {
    use super::super::microkernels::{indirect_tiles, on_each_level};
    use super::*;

    #[test]
    fn panels_cover_all_filters_with_registers_that_fit() {
        on_each_level(|| {
            let Some(shape) = indirect_tiles() else { return };
            for filters in 1..1000 {
                let panels = panels(filters, shape);
                let mut first = 0;
                for panel in &panels {
                    assert_eq!(panel.first, first, "{filters}");
                    let least = if filters <= shape.lanes { 1 } else { 2 };
                    assert!((least..=shape.row_registers).contains(&panel.registers), "{filters}");
                    let packed = Microkernel::packed(panel.max_rows, panel.columns);
                    assert!(Microkernel { a: SourceOfA::Indirect, ..packed }.fits(), "{filters}");
                    first += panel.columns;
                }
                assert_eq!(first, filters.next_multiple_of(shape.lanes));
                assert!(panels.is_sorted_by_key(|panel| usize::MAX - panel.registers), "{filters}");
            }
        });
    }
}
