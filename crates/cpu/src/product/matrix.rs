//! Products of bfloat16 and of bytes in the processor's matrix unit, or of bytes in vectors that
//! multiply four at a time; of left operands that lie row after row and right ones that lie row after
//! row or column after column.
//!
//! The left operand is read where it lies, unless the shared indices do not fill tiles; panels of the
//! right one are packed. An element's sum is taken in the same order whatever the cut.

use super::panel::{Columns, Lie};
use super::{LEFT, Memory, PANEL as MEMORY, Product, Strip, Target};
use crate::jit::quads::{self, Quads};
use crate::jit::tile::{Function, Stored};
use crate::jit::unit::{BLOCK, Multiply, ROWS, SIDE, Shape, Unit, UnitCall};
use crate::kernel::{Shared, with_memory};
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared, Scratch};
use std::ops::Range;

/// Rows of a chunk.
const CHUNK_ROWS: usize = 512;
/// Bytes of shared indices from which on the unit pays.
const SHARED: usize = 128;
/// Multiplications that a chunk should hold: some ten microseconds.
const CHUNK: usize = 1 << 22;
/// Bytes of panels that are packed together, and stay in the second cache while all rows pass.
const PACKED: usize = 1 << 19;
/// The most chunks of a part of the rows.
const CHUNKS: usize = 16;

/// Rows of a left operand that are computed at a time.
const MADE_ROWS: usize = 32;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The matrix unit.
    Unit,
    /// Vectors, of bytes only.
    Vectors,
}

/// The functions of such a product, and how it is cut.
pub(super) struct MatrixProduct {
    /// For so many rows at a time, and for what is left of them; none if that is nothing.
    at_once: usize,
    tall: Option<Function<UnitCall>>,
    short: Option<Function<UnitCall>>,
    /// For [`Engine::Vectors`], which add to what is there: by what the sum of a left operand's row is
    /// multiplied to begin with. Unless that is 0, the highest bits of the right one are flipped.
    begin: Option<i32>,
    /// Bytes of an element of the operands.
    size: usize,
    lie: Lie,
    rows: usize,
    columns: usize,
}

/// A part of one batch's product.
struct Part {
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Rows of the left operand: the first one, and bytes to the next.
#[derive(Clone, Copy)]
struct Rows {
    start: *const u8,
    step: isize,
}

impl MatrixProduct {
    /// `None` for products that are not of this kind, and on other machines.
    pub fn new(product: &Product) -> Option<MatrixProduct> {
        let multiply = Multiply::of(product.lhs.stored, product.rhs.stored)?;
        let engine = match multiply {
            _ if multiply.available() => Engine::Unit,
            Multiply::Bytes(..) if quads::available() => Engine::Vectors,
            _ => return None,
        };
        MatrixProduct::with(product, engine)
    }

    /// By what the machine must have.
    pub fn with(product: &Product, engine: Engine) -> Option<MatrixProduct> {
        let (lhs, rhs, [m, n, k]) = (&product.lhs, &product.rhs, [product.m, product.n, product.k]);
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
        // A part of few rows mostly packs its columns.
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
        Some(MatrixProduct { at_once, tall, short, begin, size, lie, rows, columns })
    }

    /// Its functions.
    pub fn functions(&self) -> impl Iterator<Item = &Function<UnitCall>> {
        self.tall.iter().chain(&self.short)
    }

    /// Runs the product and the kernel's body.
    ///
    /// # Safety
    /// As [`Product::run`].
    pub unsafe fn run(
        &self,
        product: &Product,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (m, n) = (product.m, product.n);
        let (down, across) = (m.div_ceil(self.rows), n.div_ceil(self.columns));
        let bytes = match product.made[0] {
            Some(_) => product.batches * m * self.padded(product),
            None => 0,
        };
        with_memory(&LEFT, bytes, |left| {
            let (left, shared) = (Memory(left as *mut f32), Shared(*bindings));
            // SAFETY: the caller's promise; the memory has room for all rows.
            unsafe { self.fill_left(product, left, bindings, pool)? };
            let cost_ns = product.cost_ns() / 4;
            pool.run(product.batches * down * across, cost_ns, &|i, scratch| {
                let (row, column) = (i / across % down * self.rows, i % across * self.columns);
                let part = Part {
                    batch: i / (down * across),
                    rows: row..(row + self.rows).min(m),
                    columns: column..(column + self.columns).min(n),
                };
                // SAFETY: the caller's promise; parts do not overlap.
                unsafe { self.run_part(product, prepared, &part, left, shared.get(), scratch) }
            })
        })
    }

    /// Computes the left operand, if the product is to: all rows, each with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`Product::run`]; the memory has room for them.
    unsafe fn fill_left(
        &self,
        product: &Product,
        to: Memory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Some(made) = &product.made[0] else { return Ok(()) };
        let (bytes, taken) = (self.padded(product), product.k * self.size);
        let pieces = product.m.div_ceil(MADE_ROWS);
        let shared = Shared(*bindings);
        let cost_ns = (product.batches * product.m * product.k / 4) as u64;
        pool.run(product.batches * pieces, cost_ns, &|i, scratch| {
            let (batch, row) = (i / pieces, i % pieces * MADE_ROWS);
            let rows = row..(row + MADE_ROWS).min(product.m);
            let to = (to.get() as *mut u8).wrapping_add((batch * product.m + row) * bytes);
            // SAFETY: the caller's promise; each piece has rows of its own.
            unsafe {
                for i in 0..rows.len() {
                    to.add(i * bytes + taken).write_bytes(0, bytes - taken);
                }
                let strip = Strip { batch, outer: rows, shared: 0..product.k };
                made.fill(&strip, &product.batch, to, shared.get(), scratch);
            }
            Ok(())
        })
    }

    /// # Safety
    /// As [`Product::run`]; no other thread has a part that overlaps this one.
    unsafe fn run_part(
        &self,
        product: &Product,
        prepared: &Prepared,
        part: &Part,
        made: Memory,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (rows, k_bytes) = (part.rows.len(), self.padded(product));
        let columns = part.columns.len().next_multiple_of(SIDE);
        let group = self.group(k_bytes).min(columns);
        let here = self.in_place(product) || product.made[0].is_some();
        let packed = if here { 0 } else { rows * k_bytes };
        let out = product.out.as_ref().filter(|_| columns == part.columns.len());
        let sums = if out.is_some() { 0 } else { rows * columns * 4 };
        let strip = product.made[1].as_ref().map_or(0, |made| made.bytes(group, product.k));
        let sizes = [group * k_bytes, packed.next_multiple_of(BLOCK), sums, strip];
        with_memory(&MEMORY, sizes.iter().sum(), |panels| {
            let left = panels.wrapping_add(sizes[0]);
            let start = left.wrapping_add(sizes[1]) as *mut f32;
            let strip = left.wrapping_add(sizes[1] + sizes[2]);
            let (row, column) = (part.rows.start, part.columns.start);
            let target = match out {
                Some(out) => out.target(bindings, &product.batch, part.batch, row, column),
                None => Target { start, pitch: columns as isize },
            };
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let left = match product.made[0] {
                    Some(_) => {
                        let before = (part.batch * product.m + row) * k_bytes;
                        let start = (made.get() as *const u8).wrapping_add(before);
                        Rows { start, step: k_bytes as isize }
                    }
                    None => self.left(product, part, left, bindings),
                };
                if let Some(factor) = self.begin {
                    let signed = product.lhs.stored == Stored::I8;
                    begin(left, signed, (rows, product.k), factor, (target, columns));
                }
                for first in part.columns.clone().step_by(group) {
                    let some = first..part.columns.end.min(first + group);
                    let count = some.len().div_ceil(SIDE);
                    let (outer, shared) = (some.clone(), 0..product.k);
                    let group = Strip { batch: part.batch, outer, shared };
                    let start = product.right_start(&group, strip, bindings, scratch);
                    self.right(product, start, some).pack(panels);
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
                product.body(prepared, place, target, bindings, scratch)
            }
        })
    }

    /// Columns that are packed together.
    fn group(&self, k_bytes: usize) -> usize {
        let together = Columns::together(self.size);
        (PACKED / k_bytes / together).max(1) * together
    }

    /// Bytes of a row of the left operand with what fills its last block.
    fn padded(&self, product: &Product) -> usize {
        (product.k * self.size).next_multiple_of(BLOCK)
    }

    /// True if the left operand is read where it lies: all shared indices fill tiles.
    fn in_place(&self, product: &Product) -> bool {
        self.padded(product) == product.k * self.size
    }

    /// Elements between rows of the left operand, if it is computed.
    pub fn pitch(&self, product: &Product) -> usize {
        self.padded(product) / self.size
    }

    /// A part's rows of the left operand: where they lie, or copied with zeros up to whole blocks.
    ///
    /// # Safety
    /// As [`MatrixProduct::run_part`]; `to` has room for them unless they are read in place.
    unsafe fn left(
        &self,
        product: &Product,
        part: &Part,
        to: *mut u8,
        bindings: &Bindings<'_>,
    ) -> Rows {
        let step = product.lhs.outer.step().expect("checked when it was made") * self.size as isize;
        let start = product.lhs.start(bindings, &product.batch, part.batch);
        let start = start.wrapping_offset(part.rows.start as isize * step);
        if self.in_place(product) {
            return Rows { start, step };
        }
        let (bytes, taken) = (self.padded(product), product.k * self.size);
        for i in 0..part.rows.len() {
            // SAFETY: the caller's promise; each row has its place.
            unsafe {
                let to = to.add(i * bytes);
                to.copy_from_nonoverlapping(start.wrapping_offset(i as isize * step), taken);
                to.add(taken).write_bytes(0, bytes - taken);
            }
        }
        Rows { start: to, step: bytes as isize }
    }

    /// Some columns of the right operand, which starts there.
    fn right(&self, product: &Product, start: *const u8, columns: Range<usize>) -> Columns {
        let (rhs, size) = (&product.rhs, self.size as isize);
        let along = if self.lie == Lie::Rows { &rhs.shared } else { &rhs.outer };
        let step = along.step().expect("checked when it was made") * size;
        let next = if self.lie == Lie::Rows { size } else { step };
        let start = start.wrapping_offset(columns.start as isize * next);
        let (size, lie) = (self.size, self.lie);
        Columns { start, step, lie, size, columns: columns.len(), k: product.k }
    }

    /// All rows of a part times packed panels, of which there are so many.
    ///
    /// # Safety
    /// `left` are so many rows of so many blocks, the panels are packed of as many; the target has
    /// room for the rows.
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

/// Sets columns of a result to the sums of the left operand's rows, of `k` bytes each, times a factor.
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

/// Whether packing pays, by the rows, the columns and the bytes of shared indices.
fn pays(multiply: Multiply, m: usize, n: usize, shared: usize) -> bool {
    match multiply {
        Multiply::BF16 => m >= ROWS && n >= SIDE && (SHARED..128 * SHARED).contains(&shared),
        Multiply::Bytes(..) => n >= ROWS && 2 * shared >= SHARED,
    }
}
