//! Products of bfloat16 in the processor's matrix unit, of matrices that lie row after row.
//!
//! The left operand is read where it lies, but for rows and shared indices that fill no tile; panels
//! of the right one are packed as pairs of shared indices. An element's sum is taken in the same
//! order whatever the cut.

use super::{PANEL as MEMORY, Product, Target};
use crate::jit::tile::{Function, Stored};
use crate::jit::unit::{self, DEPTH, PANEL, SIDE, Shape, UnitCall};
use crate::kernel::{Shared, with_memory};
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared, Scratch};
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows below which packing costs more than the unit saves, and of a chunk.
const ROWS: Range<usize> = 16..512;
/// Shared indices of products that pay, and whose panels stay in the second cache.
const SHARED: Range<usize> = 2 * DEPTH..8192;
/// Multiplications that a chunk should hold: some ten microseconds.
const CHUNK: usize = 1 << 22;
/// The most chunks of a part of the rows.
const CHUNKS: usize = 16;

static SHAPE: Shape = Shape::FULL;

/// The function of such a product, and how it is cut.
pub(super) struct MatrixProduct {
    function: Function<UnitCall>,
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
        let (lhs, rhs, [m, n, k]) = (&product.lhs, &product.rhs, [product.m, product.n, product.k]);
        let in_rows = lhs.shared.step() == Some(1) && rhs.outer.step() == Some(1);
        let regular = lhs.outer.step().is_some() && rhs.shared.step().is_some();
        let stored = lhs.stored == Stored::BF16 && rhs.stored == Stored::BF16;
        let pays = m >= ROWS.start && n >= SIDE && SHARED.contains(&k);
        if !(stored && in_rows && regular && pays && unit::available()) {
            return None;
        }
        let rows = m.div_ceil(m.div_ceil(ROWS.end)).next_multiple_of(SIDE);
        let pieces = (m.min(rows) * n * k / CHUNK).clamp(1, CHUNKS);
        let pieces = if pieces > 1 { pieces.next_multiple_of(2) } else { 1 };
        let columns = n.div_ceil(pieces).next_multiple_of(SIDE);
        Some(MatrixProduct { function: unit::compile()?, rows, columns })
    }

    /// Its function.
    pub fn function(&self) -> &Function<UnitCall> {
        &self.function
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
        let shared = Shared(*bindings);
        let cost_ns = product.cost_ns() / 4;
        pool.run(product.batches * down * across, cost_ns, &|i, scratch| {
            let (row, column) = (i / across % down * self.rows, i % across * self.columns);
            let part = Part {
                batch: i / (down * across),
                rows: row..(row + self.rows).min(m),
                columns: column..(column + self.columns).min(n),
            };
            // SAFETY: the caller's promise; parts do not overlap.
            unsafe { self.run_part(product, prepared, &part, shared.get(), scratch) }
        })
    }

    /// # Safety
    /// As [`Product::run`]; no other thread has a part that overlaps this one.
    unsafe fn run_part(
        &self,
        product: &Product,
        prepared: &Prepared,
        part: &Part,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let blocks = product.k.div_ceil(DEPTH);
        let rows = part.rows.len().next_multiple_of(SIDE);
        let columns = part.columns.len().next_multiple_of(SIDE);
        let packed = rows - self.rows_in_place(product, part);
        let sizes = [blocks * PANEL, packed * blocks * 2 * DEPTH, rows * columns * 4];
        with_memory(&MEMORY, sizes.iter().sum(), |panel| {
            let left = panel.wrapping_add(sizes[0]);
            let sums = left.wrapping_add(sizes[1]) as *mut f32;
            let target = Target { start: sums, pitch: columns as isize };
            // SAFETY: the caller's promise; the memory has room for all three.
            unsafe {
                self.pack_left(product, part, bindings, left);
                for first in part.columns.clone().step_by(SIDE) {
                    let width = SIDE.min(part.columns.end - first);
                    pack_panel(product, part.batch, first..first + width, bindings, panel);
                    let column = first - part.columns.start;
                    self.panel(product, part, bindings, panel, left, column, target);
                }
                let place = (part.batch, part.rows.clone(), part.columns.clone());
                product.body(prepared, place, target, bindings, scratch)
            }
        })
    }

    /// Rows of a part that are read where they lie: those of whole tiles, if all shared indices fill
    /// tiles as well.
    fn rows_in_place(&self, product: &Product, part: &Part) -> usize {
        if product.k.is_multiple_of(DEPTH) { part.rows.len() / SIDE * SIDE } else { 0 }
    }

    /// A part's rows of the left operand.
    fn left(&self, product: &Product, part: &Part, bindings: &Bindings<'_>) -> Rows {
        let step = 2 * product.lhs.outer.step().expect("checked when it was made");
        let start = product.lhs.start(bindings, &product.batch, part.batch);
        Rows { start: start.wrapping_offset(part.rows.start as isize * step), step }
    }

    /// Copies the rows that are not read where they lie, with zeros up to whole tiles.
    ///
    /// # Safety
    /// As [`MatrixProduct::run_part`]; `to` has room for them.
    unsafe fn pack_left(
        &self,
        product: &Product,
        part: &Part,
        bindings: &Bindings<'_>,
        to: *mut u8,
    ) {
        let left = self.left(product, part, bindings);
        let bytes = product.k.next_multiple_of(DEPTH) * 2;
        let first = self.rows_in_place(product, part);
        for i in first..part.rows.len().next_multiple_of(SIDE) {
            let taken = if i < part.rows.len() { product.k * 2 } else { 0 };
            // SAFETY: the caller's promise; each row has its place.
            unsafe {
                let to = to.add((i - first) * bytes);
                let from = left.start.wrapping_offset(i as isize * left.step);
                to.copy_from_nonoverlapping(from, taken);
                to.add(taken).write_bytes(0, bytes - taken);
            }
        }
    }

    /// All rows of a part times a packed panel.
    ///
    /// # Safety
    /// As [`MatrixProduct::run_part`]; `left` holds the packed rows, `target` has room for all.
    unsafe fn panel(
        &self,
        product: &Product,
        part: &Part,
        bindings: &Bindings<'_>,
        panel: *const u8,
        left: *const u8,
        column: usize,
        target: Target,
    ) {
        let blocks = product.k.div_ceil(DEPTH);
        let here = self.rows_in_place(product, part);
        let packed = Rows { start: left, step: (blocks * 2 * DEPTH) as isize };
        let rest = part.rows.len().next_multiple_of(SIDE) - here;
        let places = [(self.left(product, part, bindings), 0, here), (packed, here, rest)];
        for (rows, first, count) in places.into_iter().filter(|p| p.2 > 0) {
            let to = target.start.wrapping_offset(first as isize * target.pitch);
            let call = UnitCall {
                a: rows.start,
                a_step: rows.step,
                b: panel,
                c: to.wrapping_add(column),
                c_step: 4 * target.pitch,
                blocks,
                tiles: count / SIDE,
                shape: &raw const SHAPE,
            };
            // SAFETY: the caller's promise.
            unsafe { self.function.call(&call) };
        }
    }
}

/// Packs a panel of the right operand: per block of shared indices two tiles of 16 columns, whose
/// rows are pairs of shared indices; zeros beyond the operand.
///
/// # Safety
/// As [`MatrixProduct::run_part`]; `to` has room for the panel.
unsafe fn pack_panel(
    product: &Product,
    batch: usize,
    columns: Range<usize>,
    bindings: &Bindings<'_>,
    to: *mut u8,
) {
    let step = 2 * product.rhs.shared.step().expect("checked when it was made");
    let start = product.rhs.start(bindings, &product.batch, batch).wrapping_add(2 * columns.start);
    let mask = (u64::MAX >> (64 - columns.len())) as u32;
    // SAFETY: the caller's promise; the machine has AVX-512 BW, as all with the unit.
    unsafe { interleave(start, step, mask, product.k, to) }
}

/// # Safety
/// Lanes of the mask are valid for `k` rows of words from `start`; `to` for the panel. The machine
/// has AVX-512 BW.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn interleave(start: *const u8, step: isize, mask: u32, k: usize, to: *mut u8) {
    // Word 2 i of a result is word i of the first row, word 2 i + 1 that of the second.
    let order = |first: i16| {
        let mut words = [0; 32];
        for (i, word) in words.iter_mut().enumerate() {
            *word = first + i as i16 / 2 + i as i16 % 2 * 32;
        }
        words
    };
    let (low, high) = (order(0), order(16));
    // SAFETY: arrays of 32 words; the caller's promise.
    unsafe {
        let low = _mm512_loadu_si512(low.as_ptr().cast());
        let high = _mm512_loadu_si512(high.as_ptr().cast());
        for pair in 0..k.next_multiple_of(DEPTH) / 2 {
            let row = |i: usize| {
                let mask = if i < k { mask } else { 0 };
                let from = start.wrapping_offset(i as isize * step);
                _mm512_maskz_loadu_epi16(mask, from.cast())
            };
            let (first, second) = (row(2 * pair), row(2 * pair + 1));
            let place = pair / (DEPTH / 2) * PANEL + pair % (DEPTH / 2) * 64;
            let (left, right) = (to.add(place), to.add(place + PANEL / 2));
            _mm512_storeu_si512(left.cast(), _mm512_permutex2var_epi16(first, low, second));
            _mm512_storeu_si512(right.cast(), _mm512_permutex2var_epi16(first, high, second));
        }
    }
}
