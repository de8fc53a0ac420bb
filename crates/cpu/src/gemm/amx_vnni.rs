//! GEMM of bfloat16 and of bytes on AMX, or of bytes with AVX-512 VNNI. A is row-major; B is
//! row-major or column-major.
//!
//! A is read in memory unless K does not fill whole blocks; B is packed into panels. The order in
//! which an element's sum is accumulated does not depend on the blocking.

use super::panel::{Columns, Lie};
use super::{Gemm, LEFT, Memory, OperandBlock, PANEL as MEMORY, Target};
use crate::jit::quads::{self, Quads};
use crate::jit::tile::{Function, Stored};
use crate::jit::unit::{BLOCK, Multiply, ROWS, SIDE, Shape, Unit, UnitCall};
use crate::kernel::{Shared, with_memory};
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared, Scratch};
use std::ops::Range;

/// The most rows of a chunk.
const CHUNK_ROWS: usize = 512;
/// The fewest bytes of K for which AMX pays.
const SHARED: usize = 128;
/// Multiplications that a chunk should have: about ten microseconds.
const CHUNK: usize = 1 << 22;
/// Bytes of the panels that are packed before all rows use them; they stay in the L2 cache.
const PACKED: usize = 1 << 19;
/// The most chunks along the columns.
const CHUNKS: usize = 16;

/// Rows of A that one task computes, if A has a prologue.
const PROLOGUE_ROWS: usize = 32;

/// The instruction set of the micro-kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// AMX.
    Unit,
    /// AVX-512 VNNI, for bytes only.
    Vectors,
}

/// The micro-kernels of a GEMM on AMX or VNNI, and its blocking.
pub(super) struct AmxVnniGemm {
    /// Rows of a call of `tall`; `short` computes the remaining rows, and is `None` if there are
    /// none.
    at_once: usize,
    tall: Option<Function<UnitCall>>,
    short: Option<Function<UnitCall>>,
    /// For [`Engine::Vectors`], whose micro-kernels add to the result: the factor by which the sum
    /// of a row of A initialises the result. Unless the factor is 0, the highest bit of each byte
    /// of B is flipped.
    begin: Option<i32>,
    /// Bytes of an element of A and B.
    size: usize,
    lie: Lie,
    rows: usize,
    columns: usize,
}

/// A range of rows and columns of one GEMM of the batch.
struct Part {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Rows of A: the address of the first one, and bytes to the next.
#[derive(Clone, Copy)]
struct Rows {
    start: *const u8,
    step: isize,
}

impl AmxVnniGemm {
    /// `None` for other operands and machines.
    pub fn new(gemm: &Gemm) -> Option<AmxVnniGemm> {
        let multiply = Multiply::of(gemm.lhs.stored, gemm.rhs.stored)?;
        let engine = match multiply {
            _ if multiply.available() => Engine::Unit,
            Multiply::Bytes(..) if quads::available() => Engine::Vectors,
            _ => return None,
        };
        AmxVnniGemm::with(gemm, engine)
    }

    /// Chooses the engine `engine`, which the machine must have.
    pub fn with(gemm: &Gemm, engine: Engine) -> Option<AmxVnniGemm> {
        let (lhs, rhs, [m, n, k]) = (&gemm.lhs, &gemm.rhs, [gemm.m, gemm.n, gemm.k]);
        let multiply = Multiply::of(lhs.stored, rhs.stored)?;
        let lie = match (rhs.shared.step(), rhs.outer.step()) {
            (Some(_), Some(1)) => Lie::Rows,
            (Some(1), Some(_)) => Lie::Columns,
            _ => return None,
        };
        let regular = lhs.shared.step() == Some(1) && lhs.outer.step().is_some();
        let size = lhs.stored.size();
        if !(regular && pays(multiply, m, n, k * size)) {
            return None;
        }
        let rows = m.div_ceil(m.div_ceil(CHUNK_ROWS)).next_multiple_of(SIDE);
        // A part of few rows mostly spends its time packing columns.
        let pieces = (m.clamp(SIDE, rows) * n * k / CHUNK).clamp(1, CHUNKS);
        let pieces = if pieces > 1 { pieces.next_multiple_of(2) } else { 1 };
        let columns = n.div_ceil(pieces).next_multiple_of(Columns::together(size));
        let at_once = if engine == Engine::Unit { SIDE } else { quads::ROWS };
        let signed = lhs.stored == Stored::I8;
        let of = |tall: bool| match engine {
            Engine::Unit => Unit { multiply, tall }.compile(),
            Engine::Vectors => {
                Quads { rows: if tall { at_once } else { m % at_once }, signed }.compile()
            }
        };
        let tall = if m >= at_once { Some(of(true)?) } else { None };
        let short = if m.is_multiple_of(at_once) { None } else { Some(of(false)?) };
        let flipped = if signed { -128 } else { 128 };
        let begin = if lhs.stored == rhs.stored { flipped } else { 0 };
        let begin = (engine == Engine::Vectors).then_some(begin);
        Some(AmxVnniGemm { at_once, tall, short, begin, size, lie, rows, columns })
    }

    /// The decisions, as text for the dump.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let AmxVnniGemm { at_once, begin, rows, columns, .. } = self;
        let engine = if begin.is_some() { "VNNI" } else { "AMX" };
        let (lie, begin) = (self.lie == Lie::Rows, begin.unwrap_or(0));
        format!(
            " ({engine}, {at_once} rows at once, row-major B: {lie}, correction {begin}, chunks of \
             {rows} by {columns})"
        )
    }

    /// All micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<UnitCall>> {
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
        let (down, across) = (m.div_ceil(self.rows), n.div_ceil(self.columns));
        let bytes = match gemm.prologues[0] {
            Some(_) => gemm.batches * m * self.padded(gemm),
            None => 0,
        };
        with_memory(&LEFT, bytes, |left| {
            let (left, shared) = (Memory(left as *mut f32), Shared(*bindings));
            // SAFETY: the caller's promise; the memory has room for all rows.
            unsafe { self.fill_left(gemm, left, bindings, pool)? };
            let cost_ns = gemm.cost_ns() / 4;
            pool.run(gemm.batches * down * across, cost_ns, &|i, scratch| {
                let (row, column) = (i / across % down * self.rows, i % across * self.columns);
                let part = Part {
                    batch: i / (down * across),
                    rows: row..(row + self.rows).min(m),
                    columns: column..(column + self.columns).min(n),
                };
                // SAFETY: the caller's promise; parts do not overlap.
                unsafe { self.run_part(gemm, prepared, &part, left, shared.get(), scratch) }
            })
        })
    }

    /// Computes all rows of A if A has a prologue, each padded with zeros to whole blocks.
    ///
    /// # Safety
    /// As [`Gemm::run`]; the memory has room for them.
    unsafe fn fill_left(
        &self,
        gemm: &Gemm,
        to: Memory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Some(prologue) = &gemm.prologues[0] else { return Ok(()) };
        let (bytes, taken) = (self.padded(gemm), gemm.k * self.size);
        let pieces = gemm.m.div_ceil(PROLOGUE_ROWS);
        let shared = Shared(*bindings);
        let cost_ns = (gemm.batches * gemm.m * gemm.k / 4) as u64;
        pool.run(gemm.batches * pieces, cost_ns, &|i, scratch| {
            let (batch, row) = (i / pieces, i % pieces * PROLOGUE_ROWS);
            let rows = row..(row + PROLOGUE_ROWS).min(gemm.m);
            let to = (to.get() as *mut u8).wrapping_add((batch * gemm.m + row) * bytes);
            // SAFETY: the caller's promise; the pieces have different rows.
            unsafe {
                for i in 0..rows.len() {
                    to.add(i * bytes + taken).write_bytes(0, bytes - taken);
                }
                let block = OperandBlock { batch, outer: rows, k_range: 0..gemm.k };
                prologue.fill(&block, &gemm.batch, to, shared.get(), scratch);
            }
            Ok(())
        })
    }

    /// # Safety
    /// As [`Gemm::run`]; no other thread has a part that overlaps this one.
    unsafe fn run_part(
        &self,
        gemm: &Gemm,
        prepared: &Prepared,
        part: &Part,
        prologue: Memory,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (rows, k_bytes) = (part.rows.len(), self.padded(gemm));
        let columns = part.columns.len().next_multiple_of(SIDE);
        let group = self.group(k_bytes).min(columns);
        let here = self.in_place(gemm) || gemm.prologues[0].is_some();
        let packed = if here { 0 } else { rows * k_bytes };
        let out = gemm.out.as_ref().filter(|_| columns == part.columns.len());
        let sums = if out.is_some() { 0 } else { rows * columns * 4 };
        let computed =
            gemm.prologues[1].as_ref().map_or(0, |prologue| prologue.bytes(group, gemm.k));
        let sizes = [group * k_bytes, packed.next_multiple_of(BLOCK), sums, computed];
        with_memory(&MEMORY, sizes.iter().sum(), |panels| {
            let left = panels.wrapping_add(sizes[0]);
            let start = left.wrapping_add(sizes[1]) as *mut f32;
            let computed = left.wrapping_add(sizes[1] + sizes[2]);
            let (row, column) = (part.rows.start, part.columns.start);
            let target = match out {
                Some(out) => out.target(bindings, &gemm.batch, part.batch, row, column),
                None => Target { start, pitch: columns as isize },
            };
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let left = match gemm.prologues[0] {
                    Some(_) => {
                        let before = (part.batch * gemm.m + row) * k_bytes;
                        let start = (prologue.get() as *const u8).wrapping_add(before);
                        Rows { start, step: k_bytes as isize }
                    }
                    None => self.left(gemm, part, left, bindings),
                };
                if let Some(factor) = self.begin {
                    let signed = gemm.lhs.stored == Stored::I8;
                    begin(left, signed, (rows, gemm.k), factor, (target, columns));
                }
                for first in part.columns.clone().step_by(group) {
                    let some = first..part.columns.end.min(first + group);
                    let count = some.len().div_ceil(SIDE);
                    let (outer, shared) = (some.clone(), 0..gemm.k);
                    let group = OperandBlock { batch: part.batch, outer, k_range: shared };
                    let start = gemm.right_start(&group, computed, bindings, scratch);
                    self.right(gemm, start, some).pack(panels);
                    if self.begin.is_some_and(|factor| factor != 0) {
                        let bytes = std::slice::from_raw_parts_mut(panels, sizes[0]);
                        bytes.iter_mut().for_each(|byte| *byte ^= 0x80);
                    }
                    let start = target.start.wrapping_add(first - column);
                    let target = Target { start, ..target };
                    self.panels(rows, k_bytes / BLOCK, left, (panels, count), target);
                }
                if out.is_some() {
                    return Ok(());
                }
                let place = (part.batch, part.rows.clone(), part.columns.clone());
                gemm.body(prepared, place, target, bindings, scratch)
            }
        })
    }

    /// Columns of the panels that are packed before all rows use them.
    fn group(&self, k_bytes: usize) -> usize {
        let together = Columns::together(self.size);
        (PACKED / k_bytes / together).max(1) * together
    }

    /// Bytes of a row of A, padded to whole blocks.
    fn padded(&self, gemm: &Gemm) -> usize {
        (gemm.k * self.size).next_multiple_of(BLOCK)
    }

    /// True if A is read in memory, because K fills whole blocks.
    fn in_place(&self, gemm: &Gemm) -> bool {
        self.padded(gemm) == gemm.k * self.size
    }

    /// Elements between rows of A, if A has a prologue.
    pub fn pitch(&self, gemm: &Gemm) -> usize {
        self.padded(gemm) / self.size
    }

    /// A part's rows of A: in memory, or copied with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`AmxVnniGemm::run_part`]; `to` has room for them unless they are read in place.
    unsafe fn left(&self, gemm: &Gemm, part: &Part, to: *mut u8, bindings: &Bindings<'_>) -> Rows {
        let step = gemm.lhs.outer.step().expect("checked when it was made") * self.size as isize;
        let start = gemm.lhs.start(bindings, &gemm.batch, part.batch);
        let start = start.wrapping_offset(part.rows.start as isize * step);
        if self.in_place(gemm) {
            return Rows { start, step };
        }
        let (bytes, taken) = (self.padded(gemm), gemm.k * self.size);
        for i in 0..part.rows.len() {
            // SAFETY: the caller's promise; rows do not overlap.
            unsafe {
                let to = to.add(i * bytes);
                to.copy_from_nonoverlapping(start.wrapping_offset(i as isize * step), taken);
                to.add(taken).write_bytes(0, bytes - taken);
            }
        }
        Rows { start: to, step: bytes as isize }
    }

    /// Some columns of a B that begins at `start`.
    fn right(&self, gemm: &Gemm, start: *const u8, columns: Range<usize>) -> Columns {
        let (rhs, size) = (&gemm.rhs, self.size as isize);
        let along = if self.lie == Lie::Rows { &rhs.shared } else { &rhs.outer };
        let step = along.step().expect("checked when it was made") * size;
        let next = if self.lie == Lie::Rows { size } else { step };
        let start = start.wrapping_offset(columns.start as isize * next);
        let (size, lie) = (self.size, self.lie);
        Columns { start, step, lie, size, columns: columns.len(), k: gemm.k }
    }

    /// Multiplies all rows of a part by packed panels.
    ///
    /// # Safety
    /// `left` has `rows` rows of `blocks` blocks; `panels` panels of as many blocks are packed at
    /// `b`; the target has room for the rows.
    unsafe fn panels(
        &self,
        rows: usize,
        blocks: usize,
        left: Rows,
        (b, panels): (*const u8, usize),
        to: Target,
    ) {
        let run =
            |function: &Option<Function<UnitCall>>, row: usize, tiles: usize, shape: &Shape| {
                let call = UnitCall {
                    a: left.start.wrapping_offset(row as isize * left.step),
                    a_step: left.step,
                    b,
                    c: to.start.wrapping_offset(row as isize * to.pitch),
                    c_step: 4 * to.pitch,
                    blocks,
                    tiles,
                    shape,
                    panels,
                };
                let function = function.as_ref().expect("every number of rows has its function");
                // SAFETY: the caller's promise.
                unsafe { function.call(&call) };
            };
        let tiles = rows / self.at_once;
        if tiles > 0 {
            run(&self.tall, 0, tiles, &Shape::of(ROWS));
        }
        for row in (tiles * self.at_once..rows).step_by(ROWS) {
            run(&self.short, row, 1, &Shape::of(ROWS.min(rows - row)));
        }
    }
}

/// Sets each row of a result to the sum of the corresponding row of A, of `k` bytes, times a
/// factor.
///
/// # Safety
/// The rows are valid for reads, the result for writes.
unsafe fn begin(
    left: Rows,
    signed: bool,
    (rows, k): (usize, usize),
    factor: i32,
    (to, columns): (Target, usize),
) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let (bytes, sums) = unsafe {
            let start = left.start.wrapping_offset(row as isize * left.step);
            let sums = to.start.wrapping_offset(row as isize * to.pitch) as *mut i32;
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

/// True if packing pays for a GEMM of m rows, n columns and `shared` bytes of K.
fn pays(multiply: Multiply, m: usize, n: usize, shared: usize) -> bool {
    match multiply {
        Multiply::BF16 => m >= ROWS && n >= SIDE && (SHARED..128 * SHARED).contains(&shared),
        Multiply::Bytes(..) => n >= ROWS && 2 * shared >= SHARED,
    }
}
