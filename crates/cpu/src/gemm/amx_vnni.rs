//! GEMM of bfloat16 and of bytes on AMX, or with AVX-512 BF16 and VNNI. A is row-major; B is
//! row-major or column-major.
//!
//! A is read in memory unless K does not fill whole blocks; B is packed into panels. The order in
//! which an element's sum is accumulated does not depend on the blocking.

use super::memory::{CHUNK, ROW_SUMS, SharedMemory, WHOLE_A};
use super::microkernels::{
    AmxCall, AmxMicrokernel, Function, K_BLOCK_BYTES, MICROTILE, Multiply, Stored, TILE_ROWS,
    TileConfig, VNNI_MR, VnniMicrokernel,
};
use super::operand::{CTile, Operand};
use super::pack::vnni::{ColumnsOfB, Layout};
use super::prepacked::PrepackedB;
use super::problem::{CBlock, Problem};
use super::prologue::OperandBlock;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use crate::prepacked::{PrepackedStore, PrepackedWeights};
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// The maximum number of rows of a chunk.
const MAX_MC: usize = 512;
/// The number of multiplications that a chunk should have: about ten microseconds.
const CHUNK_MULTIPLICATIONS: usize = 1 << 22;
/// The size in bytes of the panels that are packed before all rows use them; they stay in the L2
/// cache.
const PACKED_B_BYTES: usize = 1 << 19;
/// The maximum number of chunks along the columns.
const MAX_N_CHUNKS: usize = 16;

/// The number of rows of A that one task computes, if A has a prologue.
const PROLOGUE_ROWS: usize = 32;

/// The minimum number of elements of A that a task sums along K.
const SUMMED_ELEMENTS: usize = 1 << 17;
/// The number of columns of B that a task packs, if B is prepacked: whole panels, and whole cache
/// lines of a row.
const PREPACKED_COLUMNS: usize = 2 * MICROTILE;
/// The last number of a key of prepacked panels, less the size of an element, and less
/// [`FLIPPED_KEY`] if the panels are flipped. Keys of blocked GEMMs have the number of columns of a
/// panel there.
const PANELS_KEY: usize = usize::MAX - 1;
const FLIPPED_KEY: usize = 2;

/// The instruction set of the micro-kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// AMX.
    Amx,
    /// AVX-512 VNNI for bytes, AVX-512 BF16 for bfloat16.
    Vnni,
}

/// The micro-kernels of a GEMM on AMX or VNNI, and its blocking.
pub(super) struct AmxVnniGemm {
    pub problem: Problem,
    /// The number of rows of a call of `tall`. `short` computes the remaining rows, and is `None`
    /// if there are no remaining rows.
    mr: usize,
    tall: Option<Function<AmxCall>>,
    short: Option<Function<AmxCall>>,
    /// If the highest bit of each byte of B is flipped: the factor by which the sum of a row of A
    /// initialises the result, to which the micro-kernels then add.
    compensation: Option<i32>,
    /// The size of an element of A and B in bytes.
    element_bytes: usize,
    layout: Layout,
    mc: usize,
    nc: usize,
}

/// The operands that all chunks read.
struct SharedOperands {
    /// A that its prologue has computed, each row padded with zeros to whole blocks.
    a: SharedMemory,
    /// The sums along K of the rows of A, if the result is initialised with them.
    row_sums: SharedMemory,
    /// B in panels that an earlier run has packed.
    b: Option<PrepackedB>,
}

/// The rows of A: the address of the first row, and the number of bytes to the next row.
#[derive(Clone, Copy)]
struct RowsOfA {
    start: *const u8,
    lda: isize,
}

impl AmxVnniGemm {
    /// `None` if code cannot be generated. The operands must be such as
    /// [`engine()`](super::plan::engine) accepts, and the machine must have the engine.
    pub fn new(problem: Problem, engine: Engine) -> Option<AmxVnniGemm> {
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let (a, b) = (problem.a.in_memory(), problem.b.in_memory());
        let multiply = Multiply::of(a.stored, b.stored)?;
        let layout = match b.outer.stride() {
            Some(1) => Layout::RowMajor,
            _ => Layout::ColumnMajor,
        };
        let (element_bytes, signed) = (a.stored.size(), a.stored == Stored::I8);
        let mr = if engine == Engine::Amx { MICROTILE } else { VNNI_MR };
        let mc = m.div_ceil(m.div_ceil(MAX_MC)).next_multiple_of(mr);
        // A part with few rows spends most of its time packing columns.
        let wanted_chunks =
            (m.min(mc).max(MICROTILE) * n * k / CHUNK_MULTIPLICATIONS).clamp(1, MAX_N_CHUNKS);
        let wanted_chunks = if wanted_chunks > 1 { wanted_chunks.next_multiple_of(2) } else { 1 };
        let nc =
            n.div_ceil(wanted_chunks).next_multiple_of(ColumnsOfB::per_cache_line(element_bytes));
        let of = |tall: bool| match engine {
            Engine::Amx => AmxMicrokernel { multiply, tall }.compile(),
            Engine::Vnni => {
                VnniMicrokernel { rows: if tall { mr } else { m % mr }, multiply }.compile()
            }
        };
        let tall = if m >= mr { Some(of(true)?) } else { None };
        let short = if m.is_multiple_of(mr) { None } else { Some(of(false)?) };
        let flipped = if signed { -128 } else { 128 };
        let flips_b = engine == Engine::Vnni && multiply.flips_b();
        let compensation = flips_b.then_some(flipped);
        let problem = problem.with_a_ld(padded_row_bytes(k, element_bytes) / element_bytes);
        Some(AmxVnniGemm { problem, mr, tall, short, compensation, element_bytes, layout, mc, nc })
    }

    /// The decisions, as text for the dump.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let AmxVnniGemm { mr, compensation, mc, nc, .. } = self;
        let engine = if *mr == VNNI_MR { "VNNI" } else { "AMX" };
        let (row_major, compensation) =
            (self.layout == Layout::RowMajor, compensation.unwrap_or(0));
        format!(
            " ({engine}, {mr} rows at once, row-major B: {row_major}, correction {compensation}, \
             chunks of {mc} by {nc})"
        )
    }

    /// All micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<AmxCall>> {
        self.tall.iter().chain(&self.short)
    }

    /// The approximate time on one core in nanoseconds, without these instructions.
    pub fn cost_ns(&self) -> u64 {
        self.problem.cost_ns(self.problem.k, self.problem.m)
    }

    /// Runs the GEMM and the epilogue of its kernel. `store` may hold B prepacked.
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
        let prepacked = store.and_then(|store| unsafe { self.prepacked_b(store, bindings, pool) });
        let b = prepacked.as_ref().map(|prepacked| PrepackedB(prepacked.start as *const f32));
        let rows = self.problem.batches * self.problem.m;
        let a_bytes = if self.computes_a() { rows * self.padded_row_bytes() } else { 0 };
        let sums_bytes = if self.compensation.is_some() { rows * size_of::<i32>() } else { 0 };
        with_memory(&WHOLE_A, a_bytes, |a| {
            with_memory(&ROW_SUMS, sums_bytes, |row_sums| {
                let (a, row_sums) = [a, row_sums].map(|to| SharedMemory(to as *mut f32)).into();
                let shared = SharedOperands { a, row_sums, b };
                // SAFETY: the caller's promise; the memory has room for all rows.
                unsafe {
                    self.fill_a(a, bindings, pool)?;
                    self.sum_rows(&shared, bindings, pool)?;
                    self.run_blocks(prepared, &shared, bindings, pool)
                }
            })
        })
    }

    /// # Safety
    /// As [`AmxVnniGemm::run`]; the shared operands are complete.
    unsafe fn run_blocks(
        &self,
        prepared: &Prepared,
        shared: &SharedOperands,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (m, n) = (self.problem.m, self.problem.n);
        let (m_chunks, n_chunks) = (m.div_ceil(self.mc), n.div_ceil(self.nc));
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = self.cost_ns() / 4;
        pool.run(self.problem.batches * m_chunks * n_chunks, cost_ns, &|i, scratch| {
            let (row, column) = (i / n_chunks % m_chunks * self.mc, i % n_chunks * self.nc);
            let c_block = CBlock {
                batch: i / (m_chunks * n_chunks),
                rows: row..(row + self.mc).min(m),
                columns: column..(column + self.nc).min(n),
            };
            // SAFETY: the caller's promise; parts do not overlap.
            unsafe { self.run_block(prepared, &c_block, shared, thread_bindings.get(), scratch) }
        })
    }

    /// Sums each row of A along K, if the result is initialised with the sums.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run`]; A is computed, and the memory has room for all sums.
    unsafe fn sum_rows(
        &self,
        shared: &SharedOperands,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        if self.compensation.is_none() {
            return Ok(());
        }
        let Problem { batches, m, k, ref a, .. } = self.problem;
        let at_once = (SUMMED_ELEMENTS / k).clamp(1, m);
        let tasks = m.div_ceil(at_once);
        let signed = a.packed_from().stored == Stored::I8;
        let thread_bindings = SharedBindings(*bindings);
        pool.run(batches * tasks, (batches * m * k / 32) as u64, &|i, _| {
            let (batch, first) = (i / tasks, i % tasks * at_once);
            let rows = first..(first + at_once).min(m);
            // SAFETY: the caller's promise; tasks have different rows.
            unsafe {
                let a = self.stored_rows_of_a(batch, rows.start, shared, thread_bindings.get());
                let to = (shared.row_sums.get() as *mut i32).add(batch * m + rows.start);
                sum_rows(a, signed, k, std::slice::from_raw_parts_mut(to, rows.len()));
            }
            Ok(())
        })
    }

    /// Whether A has a prologue, which computes it to memory that all chunks read.
    fn computes_a(&self) -> bool {
        self.problem.a.prologue().is_some()
    }

    /// The rows of A from a row on: those of the operand in memory, or those that its prologue has
    /// computed.
    fn stored_rows_of_a(
        &self,
        batch: usize,
        row: usize,
        shared: &SharedOperands,
        bindings: &Bindings<'_>,
    ) -> RowsOfA {
        let (start, lda) = match &self.problem.a {
            Operand::Fused(_) => {
                let lda = self.padded_row_bytes() as isize;
                let before = (batch * self.problem.m) as isize * lda;
                ((shared.a.get() as *const u8).wrapping_offset(before), lda)
            }
            Operand::Memory(a) => {
                let stride = a.outer.stride().expect("a condition of the engine");
                let lda = stride * self.element_bytes as isize;
                (a.start(bindings, &self.problem.batch, batch), lda)
            }
        };
        RowsOfA { start: start.wrapping_offset(row as isize * lda), lda }
    }

    /// The buffer of B, if the GEMM can read B prepacked.
    pub fn prepackable(&self) -> Option<usize> {
        let Operand::Memory(b) = &self.problem.b else { return None };
        b.prepackable([self.problem.n, self.problem.k], &self.problem.batch)
    }

    /// Prepacked B; `store` decides whether to pack it now.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run`].
    unsafe fn prepacked_b(
        &self,
        store: &dyn PrepackedStore,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Option<PrepackedWeights> {
        self.prepackable()?;
        let Problem { n, k, ref batch, ref b, .. } = self.problem;
        let b = b.in_memory();
        let flipped = if self.compensation.is_some() { FLIPPED_KEY } else { 0 };
        let width = PANELS_KEY - self.element_bytes - flipped;
        let bytes = self.panel_start(n.next_multiple_of(MICROTILE));
        b.prepacked(store, bindings, ([n, k], batch), (width, bytes), |to| {
            let (to, thread_bindings) = (SharedMemory(to.cast()), SharedBindings(*bindings));
            let tasks = n.div_ceil(PREPACKED_COLUMNS);
            let packed = pool.run(tasks, (bytes / 8) as u64, &|i, _| {
                let start = b.start(thread_bindings.get(), batch, 0);
                let columns = i * PREPACKED_COLUMNS..n.min((i + 1) * PREPACKED_COLUMNS);
                let bytes = self.panel_start(columns.len().next_multiple_of(MICROTILE));
                let to = (to.get() as *mut u8).wrapping_add(self.panel_start(columns.start));
                // SAFETY: the caller's promise; each task has panels of its own.
                unsafe { self.pack_b(start, columns, std::slice::from_raw_parts_mut(to, bytes)) };
                Ok(())
            });
            packed.is_ok()
        })
    }

    /// The offset in bytes of the panel that begins at a column, in packed panels with all of K.
    fn panel_start(&self, column: usize) -> usize {
        column * self.padded_row_bytes()
    }

    /// Computes all rows of A if A has a prologue, each padded with zeros to whole blocks.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run`]; the memory has room for them.
    unsafe fn fill_a(
        &self,
        to: SharedMemory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Problem { batches, m, k, .. } = self.problem;
        let Some(prologue) = self.problem.a.prologue() else { return Ok(()) };
        let (bytes, taken) = (self.padded_row_bytes(), k * self.element_bytes);
        let row_blocks = m.div_ceil(PROLOGUE_ROWS);
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = (batches * m * k / 4) as u64;
        pool.run(batches * row_blocks, cost_ns, &|i, scratch| {
            let (batch, row) = (i / row_blocks, i % row_blocks * PROLOGUE_ROWS);
            let rows = row..(row + PROLOGUE_ROWS).min(m);
            let to = (to.get() as *mut u8).wrapping_add((batch * m + row) * bytes);
            // SAFETY: the caller's promise; tasks have different rows.
            unsafe {
                for i in 0..rows.len() {
                    to.add(i * bytes + taken).write_bytes(0, bytes - taken);
                }
                let block = OperandBlock { batch, outer: rows, k_range: 0..k };
                prologue.fill(&block, &self.problem.batch, to, thread_bindings.get(), scratch);
            }
            Ok(())
        })
    }

    /// # Safety
    /// As [`AmxVnniGemm::run`]; no other thread has a part that overlaps this one.
    unsafe fn run_block(
        &self,
        prepared: &Prepared,
        c_block: &CBlock,
        shared: &SharedOperands,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let problem = &self.problem;
        let (rows, k_bytes) = (c_block.rows.len(), self.padded_row_bytes());
        let columns = c_block.columns.len().next_multiple_of(MICROTILE);
        let packed_columns = self.packed_columns(k_bytes).min(columns);
        let in_place = self.reads_a_in_place() || self.computes_a();
        let packed = if in_place { 0 } else { rows * k_bytes };
        let whole_panels = columns == c_block.columns.len();
        let out = problem.c_tile(c_block, bindings).filter(|_| whole_panels);
        let sums = if out.is_some() { 0 } else { rows * columns * 4 };
        let computed = problem.b.block_bytes(packed_columns, problem.k);
        let panels = if shared.b.is_some() { 0 } else { packed_columns * k_bytes };
        let sizes = [panels, packed.next_multiple_of(K_BLOCK_BYTES), sums, computed];
        with_memory(&CHUNK, sizes.iter().sum(), |panels| {
            let a = panels.wrapping_add(sizes[0]);
            let start = a.wrapping_add(sizes[1]) as *mut f32;
            let computed = a.wrapping_add(sizes[1] + sizes[2]);
            let c = out.unwrap_or(CTile { start, ldc: columns as isize });
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let a = self.rows_of_a(c_block, shared, a, bindings);
                if let Some(factor) = self.compensation {
                    let first = c_block.batch * problem.m + c_block.rows.start;
                    let sums = (shared.row_sums.get() as *const i32).add(first);
                    initialise(std::slice::from_raw_parts(sums, rows), factor, (c, columns));
                }
                for first in c_block.columns.clone().step_by(packed_columns) {
                    let some = first..c_block.columns.end.min(first + packed_columns);
                    let count = some.len().div_ceil(MICROTILE);
                    let panels = match shared.b {
                        Some(PrepackedB(b)) => (b as *const u8).add(self.panel_start(first)),
                        None => {
                            let (outer, k_range) = (some.clone(), 0..problem.k);
                            let b_block = OperandBlock { batch: c_block.batch, outer, k_range };
                            let (b, extents) = (&problem.b, &problem.batch);
                            let start = b.start(&b_block, extents, computed, bindings, scratch);
                            let to = std::slice::from_raw_parts_mut(panels, sizes[0]);
                            self.pack_b(start, some, to);
                            panels
                        }
                    };
                    let start = c.start.wrapping_add(first - c_block.columns.start);
                    let c = CTile { start, ..c };
                    self.run_microkernel(rows, k_bytes / K_BLOCK_BYTES, a, (panels, count), c);
                }
                match out {
                    Some(_) => Ok(()),
                    None => problem.run_epilogue(prepared, c_block, c, bindings, scratch),
                }
            }
        })
    }

    /// Packs some columns of a B that begins at `start`, with the highest bits flipped if the engine
    /// needs it.
    ///
    /// # Safety
    /// As [`ColumnsOfB::pack`].
    unsafe fn pack_b(&self, start: *const u8, columns: Range<usize>, panels: &mut [u8]) {
        // SAFETY: the promise of the caller.
        unsafe { self.columns_of_b(start, columns).pack(panels.as_mut_ptr()) };
        if self.compensation.is_some() {
            panels.iter_mut().for_each(|byte| *byte ^= 0x80);
        }
    }

    /// The number of columns of the panels that are packed before all rows use them.
    fn packed_columns(&self, k_bytes: usize) -> usize {
        let line_columns = ColumnsOfB::per_cache_line(self.element_bytes);
        (PACKED_B_BYTES / k_bytes / line_columns).max(1) * line_columns
    }

    /// The size of a row of A in bytes, padded to whole blocks.
    fn padded_row_bytes(&self) -> usize {
        padded_row_bytes(self.problem.k, self.element_bytes)
    }

    /// Whether A is read in memory, because K fills whole blocks.
    fn reads_a_in_place(&self) -> bool {
        self.padded_row_bytes() == self.problem.k * self.element_bytes
    }

    /// A part's rows of A: in memory or computed before, or copied with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run_block`]; `to` has room for them unless they are read in place.
    unsafe fn rows_of_a(
        &self,
        c_block: &CBlock,
        shared: &SharedOperands,
        to: *mut u8,
        bindings: &Bindings<'_>,
    ) -> RowsOfA {
        let stored = self.stored_rows_of_a(c_block.batch, c_block.rows.start, shared, bindings);
        if self.reads_a_in_place() || self.computes_a() {
            return stored;
        }
        let (bytes, taken) = (self.padded_row_bytes(), self.problem.k * self.element_bytes);
        for i in 0..c_block.rows.len() {
            // SAFETY: the caller's promise; rows do not overlap.
            unsafe {
                let to = to.add(i * bytes);
                let from = stored.start.wrapping_offset(i as isize * stored.lda);
                to.copy_from_nonoverlapping(from, taken);
                to.add(taken).write_bytes(0, bytes - taken);
            }
        }
        RowsOfA { start: to, lda: bytes as isize }
    }

    /// Some columns of a B that begins at `start`.
    fn columns_of_b(&self, start: *const u8, columns: Range<usize>) -> ColumnsOfB {
        let (b, size) = (self.problem.b.packed_from(), self.element_bytes as isize);
        let along = if self.layout == Layout::RowMajor { &b.k_dims } else { &b.outer };
        let step = along.stride().expect("a condition of the engine") * size;
        let next = if self.layout == Layout::RowMajor { size } else { step };
        let start = start.wrapping_offset(columns.start as isize * next);
        let (element_bytes, layout, k) = (self.element_bytes, self.layout, self.problem.k);
        ColumnsOfB { start, ldb: step, layout, element_bytes, columns: columns.len(), k }
    }

    /// Multiplies all rows of a part by packed panels.
    ///
    /// # Safety
    /// `a` has `rows` rows of `blocks` blocks; `panels` panels of as many blocks are packed at
    /// `b`; `to` has room for the rows.
    unsafe fn run_microkernel(
        &self,
        rows: usize,
        blocks: usize,
        a: RowsOfA,
        (b, panels): (*const u8, usize),
        to: CTile,
    ) {
        let run = |function: &Option<Function<AmxCall>>,
                   row: usize,
                   tiles: usize,
                   config: &TileConfig| {
            let call = AmxCall {
                a: a.start.wrapping_offset(row as isize * a.lda),
                lda: a.lda,
                b,
                c: to.start.wrapping_offset(row as isize * to.ldc),
                ldc: 4 * to.ldc,
                k_blocks: blocks,
                row_groups: tiles,
                config,
                panels,
            };
            let function = function.as_ref().expect("every number of rows has its function");
            // SAFETY: the caller's promise.
            unsafe { function.call(&call) };
        };
        let tiles = rows / self.mr;
        if tiles > 0 {
            run(&self.tall, 0, tiles, &TileConfig::with_rows(TILE_ROWS));
        }
        for row in (tiles * self.mr..rows).step_by(TILE_ROWS) {
            run(&self.short, row, 1, &TileConfig::with_rows(TILE_ROWS.min(rows - row)));
        }
    }
}

/// Sets each row of a result to the sum of the corresponding row of A times a factor.
///
/// # Safety
/// The result is valid for writes.
unsafe fn initialise(sums: &[i32], factor: i32, (to, columns): (CTile, usize)) {
    for (row, sum) in sums.iter().enumerate() {
        let to = to.start.wrapping_offset(row as isize * to.ldc) as *mut i32;
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(to, columns) }.fill(sum.wrapping_mul(factor));
    }
}

/// Sums each row of A, of `k` bytes.
///
/// # Safety
/// The rows are valid for reads; the machine has AVX-512 BW and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn sum_rows(a: RowsOfA, signed: bool, k: usize, sums: &mut [i32]) {
    let ones = _mm512_set1_epi8(1);
    for (row, to) in sums.iter_mut().enumerate() {
        let start = a.start.wrapping_offset(row as isize * a.lda);
        let mut sum = _mm512_setzero_si512();
        for done in (0..k).step_by(K_BLOCK_BYTES) {
            let there = u64::MAX >> K_BLOCK_BYTES.saturating_sub(k - done);
            // SAFETY: the mask has only bytes of the row.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(there, start.add(done).cast()) };
            sum = match signed {
                true => _mm512_dpbusd_epi32(sum, ones, bytes),
                false => _mm512_dpbusd_epi32(sum, bytes, ones),
            };
        }
        *to = _mm512_reduce_add_epi32(sum);
    }
}

/// The size in bytes of `k` elements of a row of A, padded to whole blocks.
fn padded_row_bytes(k: usize, element_bytes: usize) -> usize {
    (k * element_bytes).next_multiple_of(K_BLOCK_BYTES)
}
