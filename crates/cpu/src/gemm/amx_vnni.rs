//! GEMM of bfloat16 and of bytes on AMX, or of bytes with AVX-512 VNNI. A is row-major; B is
//! row-major or column-major.
//!
//! A is read in memory unless K does not fill whole blocks; B is packed into panels. The order in
//! which an element's sum is accumulated does not depend on the blocking.

use super::microkernels::{
    AmxCall, AmxMicrokernel, Function, K_BLOCK_BYTES, MICROTILE, Multiply, Stored, TILE_ROWS,
    TileConfig, VNNI_MR, VnniMicrokernel, vnni_available,
};
use super::pack::vnni::{ColumnsOfB, Layout};
use super::{CHUNK_MEMORY as MEMORY, CTile, Gemm, Memory, OperandBlock, PACKED_A};
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared, Scratch};
use std::ops::Range;

/// The most rows of a chunk.
const MAX_MC: usize = 512;
/// The fewest bytes of K for which AMX pays.
const MIN_K_BYTES: usize = 128;
/// Multiplications that a chunk should have: about ten microseconds.
const CHUNK_MULTIPLICATIONS: usize = 1 << 22;
/// Bytes of the panels that are packed before all rows use them; they stay in the L2 cache.
const PACKED_B_BYTES: usize = 1 << 19;
/// The most chunks along the columns.
const MAX_N_CHUNKS: usize = 16;

/// Rows of A that one task computes, if A has a prologue.
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
    /// Rows of a call of `tall`; `short` computes the remaining rows, and is `None` if there are
    /// none.
    mr: usize,
    tall: Option<Function<AmxCall>>,
    short: Option<Function<AmxCall>>,
    /// For [`Engine::Vnni`], whose micro-kernels add to the result: the factor by which the sum
    /// of a row of A initialises the result. Unless the factor is 0, the highest bit of each byte
    /// of B is flipped.
    compensation: Option<i32>,
    /// Bytes of an element of A and B.
    element_bytes: usize,
    layout: Layout,
    mc: usize,
    nc: usize,
}

/// A range of rows and columns of one GEMM of the batch.
struct CBlock {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Rows of A: the address of the first one, and bytes to the next.
#[derive(Clone, Copy)]
struct RowsOfA {
    start: *const u8,
    lda: isize,
}

impl AmxVnniGemm {
    /// `None` for other operands and machines.
    pub fn new(gemm: &Gemm) -> Option<AmxVnniGemm> {
        let multiply = Multiply::of(gemm.lhs.stored, gemm.rhs.stored)?;
        let engine = match multiply {
            _ if multiply.available() => Engine::Amx,
            Multiply::Bytes(..) if vnni_available() => Engine::Vnni,
            _ => return None,
        };
        AmxVnniGemm::with(gemm, engine)
    }

    /// Chooses the engine `engine`, which the machine must have.
    pub fn with(gemm: &Gemm, engine: Engine) -> Option<AmxVnniGemm> {
        let (lhs, rhs, [m, n, k]) = (&gemm.lhs, &gemm.rhs, [gemm.m, gemm.n, gemm.k]);
        let multiply = Multiply::of(lhs.stored, rhs.stored)?;
        let layout = match (rhs.k_dims.stride(), rhs.outer.stride()) {
            (Some(_), Some(1)) => Layout::RowMajor,
            (Some(1), Some(_)) => Layout::ColumnMajor,
            _ => return None,
        };
        let regular = lhs.k_dims.stride() == Some(1) && lhs.outer.stride().is_some();
        let element_bytes = lhs.stored.size();
        if !(regular && pays(multiply, m, n, k * element_bytes)) {
            return None;
        }
        let mc = m.div_ceil(m.div_ceil(MAX_MC)).next_multiple_of(MICROTILE);
        // A part of few rows mostly spends its time packing columns.
        let wanted_chunks =
            (m.clamp(MICROTILE, mc) * n * k / CHUNK_MULTIPLICATIONS).clamp(1, MAX_N_CHUNKS);
        let wanted_chunks = if wanted_chunks > 1 { wanted_chunks.next_multiple_of(2) } else { 1 };
        let nc =
            n.div_ceil(wanted_chunks).next_multiple_of(ColumnsOfB::per_cache_line(element_bytes));
        let mr = if engine == Engine::Amx { MICROTILE } else { VNNI_MR };
        let signed = lhs.stored == Stored::I8;
        let of = |tall: bool| match engine {
            Engine::Amx => AmxMicrokernel { multiply, tall }.compile(),
            Engine::Vnni => {
                VnniMicrokernel { rows: if tall { mr } else { m % mr }, signed }.compile()
            }
        };
        let tall = if m >= mr { Some(of(true)?) } else { None };
        let short = if m.is_multiple_of(mr) { None } else { Some(of(false)?) };
        let flipped = if signed { -128 } else { 128 };
        let compensation = if lhs.stored == rhs.stored { flipped } else { 0 };
        let compensation = (engine == Engine::Vnni).then_some(compensation);
        Some(AmxVnniGemm { mr, tall, short, compensation, element_bytes, layout, mc, nc })
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

    /// Runs the GEMM and the kernel's epilogue.
    ///
    /// # Safety
    /// As [`Gemm::run`].
    pub unsafe fn run(
        &self,
        gemm: &Gemm,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (m, n) = (gemm.m, gemm.n);
        let (m_chunks, n_chunks) = (m.div_ceil(self.mc), n.div_ceil(self.nc));
        let bytes = match gemm.prologues[0] {
            Some(_) => gemm.batches * m * self.padded_row_bytes(gemm),
            None => 0,
        };
        with_memory(&PACKED_A, bytes, |a| {
            let (a, thread_bindings) = (Memory(a as *mut f32), SharedBindings(*bindings));
            // SAFETY: the caller's promise; the memory has room for all rows.
            unsafe { self.fill_a(gemm, a, bindings, pool)? };
            let cost_ns = gemm.cost_ns() / 4;
            pool.run(gemm.batches * m_chunks * n_chunks, cost_ns, &|i, scratch| {
                let (row, column) = (i / n_chunks % m_chunks * self.mc, i % n_chunks * self.nc);
                let c_block = CBlock {
                    batch: i / (m_chunks * n_chunks),
                    rows: row..(row + self.mc).min(m),
                    columns: column..(column + self.nc).min(n),
                };
                // SAFETY: the caller's promise; parts do not overlap.
                unsafe {
                    self.run_block(gemm, prepared, &c_block, a, thread_bindings.get(), scratch)
                }
            })
        })
    }

    /// Computes all rows of A if A has a prologue, each padded with zeros to whole blocks.
    ///
    /// # Safety
    /// As [`Gemm::run`]; the memory has room for them.
    unsafe fn fill_a(
        &self,
        gemm: &Gemm,
        to: Memory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Some(prologue) = &gemm.prologues[0] else { return Ok(()) };
        let (bytes, taken) = (self.padded_row_bytes(gemm), gemm.k * self.element_bytes);
        let row_blocks = gemm.m.div_ceil(PROLOGUE_ROWS);
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = (gemm.batches * gemm.m * gemm.k / 4) as u64;
        pool.run(gemm.batches * row_blocks, cost_ns, &|i, scratch| {
            let (batch, row) = (i / row_blocks, i % row_blocks * PROLOGUE_ROWS);
            let rows = row..(row + PROLOGUE_ROWS).min(gemm.m);
            let to = (to.get() as *mut u8).wrapping_add((batch * gemm.m + row) * bytes);
            // SAFETY: the caller's promise; the pieces have different rows.
            unsafe {
                for i in 0..rows.len() {
                    to.add(i * bytes + taken).write_bytes(0, bytes - taken);
                }
                let block = OperandBlock { batch, outer: rows, k_range: 0..gemm.k };
                prologue.fill(&block, &gemm.batch, to, thread_bindings.get(), scratch);
            }
            Ok(())
        })
    }

    /// # Safety
    /// As [`Gemm::run`]; no other thread has a part that overlaps this one.
    unsafe fn run_block(
        &self,
        gemm: &Gemm,
        prepared: &Prepared,
        c_block: &CBlock,
        prologue: Memory,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (rows, k_bytes) = (c_block.rows.len(), self.padded_row_bytes(gemm));
        let columns = c_block.columns.len().next_multiple_of(MICROTILE);
        let packed_columns = self.packed_columns(k_bytes).min(columns);
        let here = self.reads_a_in_place(gemm) || gemm.prologues[0].is_some();
        let packed = if here { 0 } else { rows * k_bytes };
        let out = gemm.c_in_place.as_ref().filter(|_| columns == c_block.columns.len());
        let sums = if out.is_some() { 0 } else { rows * columns * 4 };
        let computed =
            gemm.prologues[1].as_ref().map_or(0, |prologue| prologue.bytes(packed_columns, gemm.k));
        let sizes =
            [packed_columns * k_bytes, packed.next_multiple_of(K_BLOCK_BYTES), sums, computed];
        with_memory(&MEMORY, sizes.iter().sum(), |panels| {
            let a = panels.wrapping_add(sizes[0]);
            let start = a.wrapping_add(sizes[1]) as *mut f32;
            let computed = a.wrapping_add(sizes[1] + sizes[2]);
            let (row, column) = (c_block.rows.start, c_block.columns.start);
            let c = match out {
                Some(matrix) => matrix.tile(bindings, &gemm.batch, c_block.batch, row, column),
                None => CTile { start, ldc: columns as isize },
            };
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let a = match gemm.prologues[0] {
                    Some(_) => {
                        let before = (c_block.batch * gemm.m + row) * k_bytes;
                        let start = (prologue.get() as *const u8).wrapping_add(before);
                        RowsOfA { start, lda: k_bytes as isize }
                    }
                    None => self.rows_of_a(gemm, c_block, a, bindings),
                };
                if let Some(factor) = self.compensation {
                    let signed = gemm.lhs.stored == Stored::I8;
                    compensate(a, signed, (rows, gemm.k), factor, (c, columns));
                }
                for first in c_block.columns.clone().step_by(packed_columns) {
                    let some = first..c_block.columns.end.min(first + packed_columns);
                    let count = some.len().div_ceil(MICROTILE);
                    let (outer, k_range) = (some.clone(), 0..gemm.k);
                    let b_block = OperandBlock { batch: c_block.batch, outer, k_range };
                    let start = gemm.b_start(&b_block, computed, bindings, scratch);
                    self.columns_of_b(gemm, start, some).pack(panels);
                    if self.compensation.is_some_and(|factor| factor != 0) {
                        let bytes = std::slice::from_raw_parts_mut(panels, sizes[0]);
                        bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
                    }
                    let start = c.start.wrapping_add(first - column);
                    let c = CTile { start, ..c };
                    self.run_microkernel(rows, k_bytes / K_BLOCK_BYTES, a, (panels, count), c);
                }
                if out.is_some() {
                    return Ok(());
                }
                let place = (c_block.batch, c_block.rows.clone(), c_block.columns.clone());
                gemm.run_epilogue(prepared, place, c, bindings, scratch)
            }
        })
    }

    /// Columns of the panels that are packed before all rows use them.
    fn packed_columns(&self, k_bytes: usize) -> usize {
        let line_columns = ColumnsOfB::per_cache_line(self.element_bytes);
        (PACKED_B_BYTES / k_bytes / line_columns).max(1) * line_columns
    }

    /// Bytes of a row of A, padded to whole blocks.
    fn padded_row_bytes(&self, gemm: &Gemm) -> usize {
        (gemm.k * self.element_bytes).next_multiple_of(K_BLOCK_BYTES)
    }

    /// True if A is read in memory, because K fills whole blocks.
    fn reads_a_in_place(&self, gemm: &Gemm) -> bool {
        self.padded_row_bytes(gemm) == gemm.k * self.element_bytes
    }

    /// Elements between rows of A, if A has a prologue.
    pub fn prologue_ld(&self, gemm: &Gemm) -> usize {
        self.padded_row_bytes(gemm) / self.element_bytes
    }

    /// A part's rows of A: in memory, or copied with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run_block`]; `to` has room for them unless they are read in place.
    unsafe fn rows_of_a(
        &self,
        gemm: &Gemm,
        c_block: &CBlock,
        to: *mut u8,
        bindings: &Bindings<'_>,
    ) -> RowsOfA {
        let step = gemm.lhs.outer.stride().expect("checked when the GEMM was compiled")
            * self.element_bytes as isize;
        let start = gemm.lhs.start(bindings, &gemm.batch, c_block.batch);
        let start = start.wrapping_offset(c_block.rows.start as isize * step);
        if self.reads_a_in_place(gemm) {
            return RowsOfA { start, lda: step };
        }
        let (bytes, taken) = (self.padded_row_bytes(gemm), gemm.k * self.element_bytes);
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
    fn columns_of_b(&self, gemm: &Gemm, start: *const u8, columns: Range<usize>) -> ColumnsOfB {
        let (rhs, size) = (&gemm.rhs, self.element_bytes as isize);
        let along = if self.layout == Layout::RowMajor { &rhs.k_dims } else { &rhs.outer };
        let step = along.stride().expect("checked when the GEMM was compiled") * size;
        let next = if self.layout == Layout::RowMajor { size } else { step };
        let start = start.wrapping_offset(columns.start as isize * next);
        let (element_bytes, layout) = (self.element_bytes, self.layout);
        ColumnsOfB { start, ldb: step, layout, element_bytes, columns: columns.len(), k: gemm.k }
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

/// True if packing pays for a GEMM of m rows, n columns and `k_range` bytes of K.
fn pays(multiply: Multiply, m: usize, n: usize, k_range: usize) -> bool {
    match multiply {
        Multiply::BF16 => {
            m >= TILE_ROWS && n >= MICROTILE && (MIN_K_BYTES..128 * MIN_K_BYTES).contains(&k_range)
        }
        Multiply::Bytes(..) => n >= TILE_ROWS && 2 * k_range >= MIN_K_BYTES,
    }
}
