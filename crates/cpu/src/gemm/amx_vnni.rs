//! GEMM of bfloat16 and of bytes on AMX, or of bytes with AVX-512 VNNI. A is row-major; B is
//! row-major or column-major.
//!
//! A is read in memory unless K does not fill whole blocks; B is packed into panels. The order in
//! which an element's sum is accumulated does not depend on the blocking.

use super::memory::{CHUNK, SharedMemory, WHOLE_A};
use super::microkernels::{
    AmxCall, AmxMicrokernel, Function, K_BLOCK_BYTES, MICROTILE, Multiply, Stored, TILE_ROWS,
    TileConfig, VNNI_MR, VnniMicrokernel,
};
use super::operand::CTile;
use super::pack::vnni::{ColumnsOfB, Layout};
use super::problem::{CBlock, Problem};
use super::prologue::OperandBlock;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
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

/// The instruction set of the micro-kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// AMX.
    Amx,
    /// AVX-512 VNNI, for bytes only.
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
    /// For [`Engine::Vnni`], whose micro-kernels add to the result: the factor by which the sum
    /// of a row of A initialises the result. Unless the factor is 0, the highest bit of each byte
    /// of B is flipped.
    compensation: Option<i32>,
    /// The size of an element of A and B in bytes.
    element_bytes: usize,
    layout: Layout,
    mc: usize,
    nc: usize,
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
        let mc = m.div_ceil(m.div_ceil(MAX_MC)).next_multiple_of(MICROTILE);
        // A part with few rows spends most of its time packing columns.
        let wanted_chunks =
            (m.clamp(MICROTILE, mc) * n * k / CHUNK_MULTIPLICATIONS).clamp(1, MAX_N_CHUNKS);
        let wanted_chunks = if wanted_chunks > 1 { wanted_chunks.next_multiple_of(2) } else { 1 };
        let nc =
            n.div_ceil(wanted_chunks).next_multiple_of(ColumnsOfB::per_cache_line(element_bytes));
        let mr = if engine == Engine::Amx { MICROTILE } else { VNNI_MR };
        let of = |tall: bool| match engine {
            Engine::Amx => AmxMicrokernel { multiply, tall }.compile(),
            Engine::Vnni => {
                VnniMicrokernel { rows: if tall { mr } else { m % mr }, signed }.compile()
            }
        };
        let tall = if m >= mr { Some(of(true)?) } else { None };
        let short = if m.is_multiple_of(mr) { None } else { Some(of(false)?) };
        let flipped = if signed { -128 } else { 128 };
        let compensation = if a.stored == b.stored { flipped } else { 0 };
        let compensation = (engine == Engine::Vnni).then_some(compensation);
        let problem = problem.with_a_ld(padded_row_bytes(k, element_bytes) / element_bytes);
        Some(AmxVnniGemm { problem, mr, tall, short, compensation, element_bytes, layout, mc, nc })
    }

    /// The decisions, as text for the dump.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let AmxVnniGemm { mr, compensation, mc, nc, .. } = self;
        let engine = if compensation.is_some() { "VNNI" } else { "AMX" };
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

    /// Runs the GEMM and the epilogue of its kernel.
    ///
    /// # Safety
    /// As [`GeneratedGemm::run`](super::GeneratedGemm::run).
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (m, n) = (self.problem.m, self.problem.n);
        let (m_chunks, n_chunks) = (m.div_ceil(self.mc), n.div_ceil(self.nc));
        let bytes = match self.problem.a.prologue() {
            Some(_) => self.problem.batches * m * self.padded_row_bytes(),
            None => 0,
        };
        with_memory(&WHOLE_A, bytes, |a| {
            let (a, thread_bindings) = (SharedMemory(a as *mut f32), SharedBindings(*bindings));
            // SAFETY: the caller's promise; the memory has room for all rows.
            unsafe { self.fill_a(a, bindings, pool)? };
            let cost_ns = self.cost_ns() / 4;
            pool.run(self.problem.batches * m_chunks * n_chunks, cost_ns, &|i, scratch| {
                let (row, column) = (i / n_chunks % m_chunks * self.mc, i % n_chunks * self.nc);
                let c_block = CBlock {
                    batch: i / (m_chunks * n_chunks),
                    rows: row..(row + self.mc).min(m),
                    columns: column..(column + self.nc).min(n),
                };
                // SAFETY: the caller's promise; parts do not overlap.
                unsafe { self.run_block(prepared, &c_block, a, thread_bindings.get(), scratch) }
            })
        })
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
        whole_a: SharedMemory,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let problem = &self.problem;
        let (rows, k_bytes) = (c_block.rows.len(), self.padded_row_bytes());
        let columns = c_block.columns.len().next_multiple_of(MICROTILE);
        let packed_columns = self.packed_columns(k_bytes).min(columns);
        let in_place = self.reads_a_in_place() || problem.a.prologue().is_some();
        let packed = if in_place { 0 } else { rows * k_bytes };
        let whole_panels = columns == c_block.columns.len();
        let out = problem.c_tile(c_block, bindings).filter(|_| whole_panels);
        let sums = if out.is_some() { 0 } else { rows * columns * 4 };
        let computed = problem.b.block_bytes(packed_columns, problem.k);
        let sizes =
            [packed_columns * k_bytes, packed.next_multiple_of(K_BLOCK_BYTES), sums, computed];
        with_memory(&CHUNK, sizes.iter().sum(), |panels| {
            let a = panels.wrapping_add(sizes[0]);
            let start = a.wrapping_add(sizes[1]) as *mut f32;
            let computed = a.wrapping_add(sizes[1] + sizes[2]);
            let c = out.unwrap_or(CTile { start, ldc: columns as isize });
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let a = match problem.a.prologue() {
                    Some(_) => {
                        let before = (c_block.batch * problem.m + c_block.rows.start) * k_bytes;
                        let start = (whole_a.get() as *const u8).wrapping_add(before);
                        RowsOfA { start, lda: k_bytes as isize }
                    }
                    None => self.rows_of_a(c_block, a, bindings),
                };
                if let Some(factor) = self.compensation {
                    let signed = problem.a.in_memory().stored == Stored::I8;
                    compensate(a, signed, (rows, problem.k), factor, (c, columns));
                }
                for first in c_block.columns.clone().step_by(packed_columns) {
                    let some = first..c_block.columns.end.min(first + packed_columns);
                    let count = some.len().div_ceil(MICROTILE);
                    let (outer, k_range) = (some.clone(), 0..problem.k);
                    let b_block = OperandBlock { batch: c_block.batch, outer, k_range };
                    let (b, extents) = (&problem.b, &problem.batch);
                    let start = b.start(&b_block, extents, computed, bindings, scratch);
                    self.pack_b(start, some, std::slice::from_raw_parts_mut(panels, sizes[0]));
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
        if self.compensation.is_some_and(|factor| factor != 0) {
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

    /// A part's rows of A: in memory, or copied with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run_block`]; `to` has room for them unless they are read in place.
    unsafe fn rows_of_a(&self, c_block: &CBlock, to: *mut u8, bindings: &Bindings<'_>) -> RowsOfA {
        let a = self.problem.a.in_memory();
        let step =
            a.outer.stride().expect("a condition of the engine") * self.element_bytes as isize;
        let start = a.start(bindings, &self.problem.batch, c_block.batch);
        let start = start.wrapping_offset(c_block.rows.start as isize * step);
        if self.reads_a_in_place() {
            return RowsOfA { start, lda: step };
        }
        let (bytes, taken) = (self.padded_row_bytes(), self.problem.k * self.element_bytes);
        for i in 0..c_block.rows.len() {
            // SAFETY: the caller's promise; rows do not overlap.
            unsafe {
                let to = to.add(i * bytes);
                to.copy_from_nonoverlapping(start.wrapping_offset(i as isize * step), taken);
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

/// Sets each row of a result to the sum of the corresponding row of A, of `k` bytes, times a
/// factor.
///
/// # Safety
/// The rows are valid for reads, the result for writes.
unsafe fn compensate(
    a: RowsOfA,
    signed: bool,
    (rows, k): (usize, usize),
    factor: i32,
    (to, columns): (CTile, usize),
) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let (bytes, sums) = unsafe {
            let start = a.start.wrapping_offset(row as isize * a.lda);
            let sums = to.start.wrapping_offset(row as isize * to.ldc) as *mut i32;
            (std::slice::from_raw_parts(start, k), std::slice::from_raw_parts_mut(sums, columns))
        };
        let sum: i32 = match signed {
            _ if factor == 0 => 0,
            true => bytes.iter().map(|&byte| byte as i8 as i32).sum(),
            false => bytes.iter().map(|&byte| byte as i32).sum(),
        };
        sums.fill(sum.wrapping_mul(factor));
    }
}

/// The size in bytes of `k` elements of a row of A, padded to whole blocks.
fn padded_row_bytes(k: usize, element_bytes: usize) -> usize {
    (k * element_bytes).next_multiple_of(K_BLOCK_BYTES)
}
