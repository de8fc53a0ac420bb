//! Matrix products in generated inner loops, for f32, halves and integers of up to 32 bits on
//! machines with AVX-512.
//!
//! Columns are taken in panels. The right operand's part of some panels, a slab, is packed into the
//! second cache, where all tiles of rows use it; where those are few, the first one reads it where it
//! lies. Weights that are given again and again are kept packed (`weights`). The left operand is
//! packed once for all, or read where it lies if there are few columns. Operands may have any number of
//! strided dimensions for their rows, columns and shared indices: the windows of a convolution are
//! packed straight from the image, or where few rows are multiplied with them read there (`strewn`).
//! Or operands are computed strip by strip as they are packed (`made`).
//!
//! Halves become f32 as they are read, are summed in f32 and rounded once. (The dot products of
//! bfloat16 in vectors that some processors have would flush subnormals and round twice per pair; on
//! Sapphire Rapids they have half the rate of these multiply-adds.) An element is one chain of
//! multiply-adds whatever the cut, so that neither threads nor neighbours change its bits; in products
//! of few rows with many weights, one chain of each of their `parts`. Integers are summed modulo
//! 2^32, whatever the dtypes of operands and result. Products of many rows of bfloat16, and all but
//! the smallest of bytes, go to the matrix unit (`matrix`) where there is one, which is several times
//! as fast.

mod chunk;
mod dots;
mod integers;
mod made;
mod matrix;
mod operand;
mod pack;
mod panel;
mod parts;
mod rows;
mod shape;
mod strewn;
#[cfg(test)]
mod tests;
mod weights;

use crate::jit::tile::{Function, LANES, Stored, Tile, TileCall};
use crate::keep::Keep;
use crate::kernel::{Line, Shared, with_memory};
use crate::pool::Pool;
use dots::DotProducts;
use girih_kernel::{Access, Bindings, Core, ExecError, Kernel, Prepared, Scratch};
use made::{LEFT_STRIP, Made, STRIP, Strip};
use matrix::MatrixProduct;
use operand::{Out, Side, Target};
use pack::{Part, pack};
use parts::parts;
pub(crate) use rows::RowsProduct;
use shape::Cut;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;
use weights::Right;

/// Elements of a left operand that is packed for all threads ahead of the product.
const PACKED_FOR_ALL: usize = 1 << 22;
/// Elements of a left operand from which on threads share its packing.
const PACKED_BY_ALL: usize = 1 << 17;
/// Columns up to which a left operand whose rows lie along the shared dimension is read where it
/// lies: packing it would take as long as using it.
const READ_APART: usize = 256;
/// Rows of a tile whose elements may share a place in the first cache: most of its ways.
const ALIASED: usize = 8;
/// Bytes after which addresses share a place in the first cache.
const CACHE_STEP: usize = 4096;
/// Multiplications that take as long as packing an element of the right operand.
const PACKING: usize = 24;
/// Multiplications of the products of a batch that share a chunk.
const BATCHED: usize = 1 << 19;
/// Tiles of rows from which on columns are packed before all of them: the first of fewer tiles reads
/// the columns where they lie, and packs them for the others, which ask for the next ones meanwhile.
const PACKED_AHEAD: usize = 16;
/// Shared indices of a block whose columns are read where they lie: those of a panel should stay in
/// the second cache, in which rows that lie a page apart share few places.
const DIRECT_BLOCK: usize = 256;
/// Products that are computed before the body takes them.
const GROUP: usize = 1 << 12;
/// Rows of the right operand that are asked for ahead.
const AHEAD: isize = 10;

thread_local! {
    static PANEL: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static LEFT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static PARTS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static STRIPS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// The functions of full and of last panels, for tall and for other tiles.
type Functions = [[Option<Function<TileCall>>; 2]; 2];

/// A product made ready.
pub(crate) struct Product {
    batch: SmallVec<[usize; 4]>,
    batches: usize,
    m: usize,
    n: usize,
    k: usize,
    lhs: Side,
    rhs: Side,
    /// Computes the left and the right operand, which then lie in strips.
    made: [Option<Made>; 2],
    out: Option<Out>,
    /// Bytes of what the body takes up.
    core_bytes: usize,
    cut: Cut,
    /// Bytes between the left operand's rows, if they are read where they lie.
    apart: Option<isize>,
    /// Tiles over packed columns.
    packed: Functions,
    /// Tiles over columns where they lie, if they are used so.
    direct: Option<Functions>,
    /// The right operand, if all tiles read it where it lies.
    strewn: Option<strewn::Columns>,
    dots: Option<DotProducts>,
    matrix: Option<MatrixProduct>,
}

/// A piece of one batch's product: its part of the shared dimension, tiles and panels.
struct Chunk {
    batch: usize,
    part: usize,
    tiles: Range<usize>,
    panels: Range<usize>,
}

/// Where the left operand is.
#[derive(Clone, Copy)]
enum Left {
    /// Packed: the first of its tiles and shared indices that is there, and how many shared indices
    /// each tile has.
    Packed { start: *const f32, row: usize, k: usize, depth: usize },
    /// Where it lies: its first row, and bytes to the next.
    Apart { start: *const u8, step: isize },
}

impl Left {
    /// Where a tile of so many rows begins at a shared index, and bytes to its next row.
    fn tile(&self, first: usize, rows: usize, shared: usize) -> (*const f32, isize) {
        match *self {
            Left::Packed { start, row, k, depth } => {
                (start.wrapping_add((first - row) * depth + (shared - k) * rows), 0)
            }
            Left::Apart { start, step } => {
                let row = start.wrapping_offset(first as isize * step);
                (row.cast::<f32>().wrapping_add(shared), step)
            }
        }
    }
}

// SAFETY: what it points to is complete before threads share it, and only read then.
unsafe impl Sync for Left {}

/// What is packed ahead of all chunks.
#[derive(Clone, Copy)]
struct Ahead {
    left: Option<Left>,
    right: Option<Right>,
}

/// Memory that threads write to in different places.
#[derive(Clone, Copy)]
struct Memory(*mut f32);
// SAFETY: each chunk of the packing writes its own tiles; they are read after all of it.
unsafe impl Sync for Memory {}

impl Memory {
    fn get(&self) -> *mut f32 {
        self.0
    }
}

impl Product {
    /// Of operands that maps compute, or that are in memory. `None` for dtypes and machines that have
    /// no generated loops, and for other kernels.
    pub fn new(kernel: &Kernel, maps: &[Kernel]) -> Option<Product> {
        let Core::Matmul { lhs, rhs, .. } = &kernel.core else { return None };
        let one = kernel.size(&kernel.matmul_dims()?.batch) == 1;
        let cut = |m, n, k, rhs: &Side| {
            let parts = if one { parts(m, n, k, rhs) } else { 1 };
            Cut::in_parts(m, n, k, parts)
        };
        let mut product = Product::with_cut(kernel, lhs, rhs, cut)?;
        product.made = [(&product.lhs, product.m), (&product.rhs, product.n)]
            .map(|(side, outer)| Made::new(maps, side, [outer, product.k]));
        let [left, right] = &product.made;
        let along_shared = |made: &Option<Made>| made.as_ref().map(Made::along_shared);
        let found = left.iter().chain(right).count();
        if found < maps.len() || along_shared(left) == Some(false) {
            return None;
        }
        let (rhs, cut, n) = (&product.rhs, &product.cut, product.n);
        let direct = rhs.outer.step() == Some(1) && rhs.shared.step().is_some() && n > 1;
        let direct = direct && along_shared(right) != Some(true);
        if direct && cut.chunk_tiles() < PACKED_AHEAD {
            product.direct = Some(Functions::default());
            if cut.chunk_tiles() > 1 {
                product.cut = product.cut.with_block(DIRECT_BLOCK);
            }
        }
        if product.direct.is_none() && product.batches == 1 && product.made[1].is_none() {
            product.cut = product.cut.along_rows();
        }
        product.apart = product.rows_apart();
        product.strewn = strewn::Columns::new(&product);
        product.dots = DotProducts::new(&product);
        product.matrix = MatrixProduct::new(&product);
        product.take_strips()?;
        product.compile()?;
        Some(product)
    }

    /// Decides on the strips of operands that are computed; none if these would be too narrow.
    fn take_strips(&mut self) -> Option<()> {
        let across = self.made[1].as_ref().is_some_and(|made| !made.along_shared());
        if across && self.matrix.is_some() {
            return None;
        }
        let columns = self.cut.panels.div_ceil(self.cut.across) * self.cut.width();
        if self.made[1].is_some() && self.matrix.is_none() {
            self.cut = self.cut.with_block((STRIP / columns).max(1));
        }
        let whole = self.matrix.is_some() || self.dots.is_some();
        let shared = if whole { self.k } else { self.cut.block };
        let left = match &self.matrix {
            Some(matrix) => matrix.pitch(self),
            None if self.packs_left_for_all() => self.k,
            None => shared,
        };
        if let Some(made) = &mut self.made[0] {
            self.lhs = made.in_strips(left);
        }
        if let Some(made) = &mut self.made[1] {
            self.rhs = made.in_strips(if across { columns } else { shared });
        }
        Some(())
    }

    /// One that packs all columns, cut by its rows, columns, shared indices and right operand.
    fn with_cut(
        kernel: &Kernel,
        lhs: &Access,
        rhs: &Access,
        cut: impl FnOnce(usize, usize, usize, &Side) -> Cut,
    ) -> Option<Product> {
        let dims = kernel.matmul_dims()?;
        let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
        let lhs = Side::new(kernel, lhs, &dims.rows)?;
        let rhs = Side::new(kernel, rhs, &dims.columns)?;
        let out = Out::new(kernel, &dims);
        let cut = cut(m, n, k, &rhs);
        let core_bytes = integers::core_bytes(kernel)?;
        let batch = SmallVec::from_slice(&kernel.extents[dims.batch]);
        let batches = batch.iter().product();
        let (direct, strewn, dots, matrix, apart) = (None, None, None, None, None);
        let made = [None, None];
        Some(Product {
            batch,
            batches,
            m,
            n,
            k,
            lhs,
            rhs,
            made,
            out,
            core_bytes,
            cut,
            apart,
            packed: Functions::default(),
            direct,
            strewn,
            dots,
            matrix,
        })
    }

    /// Generates its functions.
    fn compile(&mut self) -> Option<()> {
        if self.strewn.is_some() {
            return Some(());
        }
        let apart = self.apart.is_some();
        self.packed = functions(&self.cut, self.n, self.rhs.stored.packed(), false, apart)?;
        if self.direct.is_some() {
            self.direct = Some(functions(&self.cut, self.n, self.rhs.stored, true, apart)?);
        }
        Some(())
    }

    /// Bytes between the left operand's rows, if they are better read where they lie.
    fn rows_apart(&self) -> Option<isize> {
        let lhs = &self.lhs;
        let columns = if self.same_left() { self.n * self.batches } else { self.n };
        let lies = self.made[0].is_none() && lhs.stored == Stored::F32;
        if !lies || lhs.shared.step() != Some(1) || columns > READ_APART {
            return None;
        }
        let step = 4 * lhs.outer.step()?;
        let places = CACHE_STEP >> step.trailing_zeros().min(CACHE_STEP.trailing_zeros());
        let aliased = self.cut.rows_of(0).div_ceil(places);
        (aliased <= ALIASED).then_some(step)
    }

    /// True if columns are packed before all tiles.
    fn packs_ahead(&self) -> bool {
        self.direct.is_none() && self.strewn.is_none()
    }

    /// True if all entries of the batch have the same left operand.
    fn same_left(&self) -> bool {
        let lhs = self.made[0].as_ref().map_or(&self.lhs, Made::place);
        lhs.batch.iter().zip(&self.batch).all(|(s, e)| *s == 0 || *e == 1)
    }

    /// The machine code of its tiles.
    pub fn code(&self) -> Vec<Vec<u8>> {
        let tiles = self.direct.iter().chain([&self.packed]).flatten().flatten().flatten();
        let tiles = tiles.chain(self.strewn.iter().flat_map(strewn::Columns::functions));
        let dots = self.dots.iter().flat_map(DotProducts::functions);
        let matrix = self.matrix.iter().flat_map(MatrixProduct::functions);
        let rest = dots.map(Function::bytes).chain(matrix.map(Function::bytes));
        let products = tiles.map(Function::bytes).chain(rest).map(<[u8]>::to_vec);
        products.chain(self.made.iter().flatten().flat_map(Made::code)).collect()
    }

    /// Runs the product, and the body of the kernel it was made from. `keep` may have its right
    /// operand packed.
    ///
    /// # Safety
    /// `prepared` is of the same kernel; the bindings fulfil their contract but for the workspace.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        keep: Option<&dyn Keep>,
    ) -> Result<(), ExecError> {
        if let Some(matrix) = &self.matrix {
            // SAFETY: the caller's promise.
            return unsafe { matrix.run(self, prepared, bindings, pool) };
        }
        // SAFETY: the caller's promise.
        let kept = keep.and_then(|keep| unsafe { self.kept(keep, bindings, pool) });
        let right = kept.as_ref().map(|kept| Right(kept.start as *const f32));
        let for_all = self.packs_left_for_all();
        let bytes = if for_all { self.m * self.k * 4 } else { 0 };
        with_memory(&LEFT, bytes, |memory| {
            let memory = Memory(memory as *mut f32);
            let left = Left::Packed { start: memory.0, row: 0, k: 0, depth: self.k };
            // SAFETY: the caller's promise; the memory has room for all tiles.
            unsafe {
                if for_all {
                    self.pack_left_for_all(memory, bindings, pool)?;
                }
                let ahead = Ahead { left: for_all.then_some(left), right };
                if self.cut.parts == 1 {
                    let nowhere = Memory(std::ptr::null_mut());
                    return self.run_chunks(prepared, bindings, pool, ahead, nowhere);
                }
                with_memory(&PARTS, self.cut.parts * self.m * self.n * 4, |parts| {
                    let parts = Memory(parts as *mut f32);
                    self.run_chunks(prepared, bindings, pool, ahead, parts)?;
                    self.add_parts(parts, prepared, bindings, pool)
                })
            }
        })
    }

    /// True if the left operand is packed ahead of all chunks.
    fn packs_left_for_all(&self) -> bool {
        let packed = self.apart.is_none() && self.dots.is_none();
        packed && self.same_left() && self.m * self.k <= PACKED_FOR_ALL
    }

    /// Rough time on one core: of multiplications and packing, or of reading the right operand.
    fn cost_ns(&self) -> u64 {
        let elements = self.n.saturating_mul(self.k).saturating_mul(self.batches);
        let reading = elements.saturating_mul(self.rhs.stored.size()) / 25;
        (elements.saturating_mul(self.element_work()) / 80).max(reading) as u64
    }

    /// Multiplications with an element of the right operand, and those that packing it is worth.
    fn element_work(&self) -> usize {
        let packed = self.packs_ahead() && self.dots.is_none() && self.matrix.is_none();
        self.m + if packed { PACKING } else { 0 }
    }

    /// # Safety
    /// As [`Product::run`]; `memory` has room for the left operand.
    unsafe fn pack_left_for_all(
        &self,
        memory: Memory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let elements = self.m * self.k;
        let pieces = if elements < PACKED_BY_ALL { 1 } else { self.cut.tiles.min(16) };
        let each = self.cut.tiles.div_ceil(pieces);
        let shared = Shared(*bindings);
        let cost_ns = elements as u64 / 4;
        pool.run(self.cut.tiles.div_ceil(each), cost_ns, &|i, scratch| {
            let tiles = i * each..((i + 1) * each).min(self.cut.tiles);
            let first = self.cut.row(tiles.start);
            let to = memory.get().wrapping_add(first * self.k);
            // SAFETY: the caller's promise; each piece has tiles of its own.
            unsafe { self.fill_left(shared.get(), (0, first), tiles, 0..self.k, to, scratch) };
            Ok(())
        })
    }

    /// Packs tiles of the left operand, one after the other, which is computed if it is not in memory;
    /// the first of them begins at a row of an entry of the batch.
    ///
    /// # Safety
    /// As [`Product::run`]; `to` has room for them.
    unsafe fn fill_left(
        &self,
        bindings: &Bindings<'_>,
        (batch, first): (usize, usize),
        tiles: Range<usize>,
        shared: Range<usize>,
        to: *mut f32,
        scratch: &mut Scratch,
    ) {
        let Some(made) = &self.made[0] else {
            let start = self.lhs.start(bindings, &self.batch, batch);
            // SAFETY: the caller's promise.
            return unsafe { self.pack_left(start, first, tiles, shared, to) };
        };
        let above = self.cut.row(tiles.start);
        let of_tile = self.cut.rows_of(0) * shared.len();
        let together = (LEFT_STRIP / of_tile).clamp(1, tiles.len());
        let rows = together * self.cut.rows_of(0);
        with_memory(&STRIPS, made.bytes(rows, shared.len()), |memory| {
            for start in tiles.clone().step_by(together) {
                let some = start..(start + together).min(tiles.end);
                let [row, end] =
                    [some.start, some.end].map(|tile| first + self.cut.row(tile) - above);
                let strip = Strip { batch, outer: row..end, shared: shared.clone() };
                let to = to.wrapping_add((row - first) * shared.len());
                // SAFETY: the caller's promise; the strip has room for the tiles' rows.
                unsafe {
                    let start = made.fill(&strip, &self.batch, memory, bindings, scratch);
                    self.pack_left(start, row, some, shared.clone(), to);
                }
            }
        });
    }

    /// Where the right operand would begin if all of it lay as a part of it does: where it lies, or in
    /// a strip that is computed first.
    ///
    /// # Safety
    /// As [`Made::fill`].
    unsafe fn right_start(
        &self,
        part: &Strip,
        strip: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const u8 {
        match &self.made[1] {
            None => self.rhs.start(bindings, &self.batch, part.batch),
            // SAFETY: the caller's promise.
            Some(made) => unsafe { made.fill(part, &self.batch, strip, bindings, scratch) },
        }
    }

    /// Packs tiles of a left operand that starts there; the first of them begins at that row.
    ///
    /// # Safety
    /// As [`Product::fill_left`].
    unsafe fn pack_left(
        &self,
        start: *const u8,
        first: usize,
        tiles: Range<usize>,
        shared: Range<usize>,
        mut to: *mut f32,
    ) {
        let above = self.cut.row(tiles.start);
        let mut offsets: SmallVec<[isize; 2048]> = SmallVec::from_elem(0, shared.len());
        self.lhs.shared.fill(shared.start, &mut offsets);
        for tile in tiles {
            let (row, rows) = (first + self.cut.row(tile) - above, self.cut.rows_of(tile));
            let part = Part {
                start,
                stored: self.lhs.stored,
                outer: &self.lhs.outer,
                indices: row..row + rows,
                shared: &offsets,
                along_shared: self.lhs.along_shared(),
            };
            // SAFETY: the caller's promise.
            unsafe { pack(&part, to, rows) };
            to = to.wrapping_add(rows * shared.len());
        }
    }

    /// Runs all chunks; if there are parts, they go to `parts` and the body is not run.
    ///
    /// # Safety
    /// As [`Product::run`]; `parts` has room for all parts.
    unsafe fn run_chunks(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        ahead: Ahead,
        parts: Memory,
    ) -> Result<(), ExecError> {
        let (down, across) = match &self.dots {
            Some(dots) => (1, dots.chunks()),
            None => (self.cut.down, self.cut.across),
        };
        let chunks = self.batches * self.cut.parts * down * across;
        let work = self.element_work().saturating_mul(self.n).saturating_mul(self.cut.depth);
        let together = (BATCHED * down * across / work.max(1)).clamp(1, chunks);
        let cost_ns = self.cost_ns();
        let shared = Shared(*bindings);
        let ahead = &ahead;
        let job = |first: usize, scratch: &mut Scratch| {
            for i in first * together..((first + 1) * together).min(chunks) {
                let (of, rest) = (i / (down * across), i % (down * across));
                let (batch, part) = (of / self.cut.parts, of % self.cut.parts);
                let range = |i: usize, of: usize, all: usize| i * all / of..(i + 1) * all / of;
                // SAFETY: the caller's promise; chunks do not overlap.
                unsafe {
                    if let Some(dots) = &self.dots {
                        dots.run(self, batch, rest, prepared, shared.get(), scratch)?;
                        continue;
                    }
                    let tiles = range(rest / across, down, self.cut.tiles);
                    let panels = range(rest % across, across, self.cut.panels);
                    let chunk = Chunk { batch, part, tiles, panels };
                    self.run_chunk(prepared, &chunk, shared.get(), *ahead, parts, scratch)?;
                }
            }
            Ok(())
        };
        let job: &crate::pool::Job<'_> = &|i, s| job(i, s);
        pool.run(chunks.div_ceil(together), cost_ns, job)
    }
}

/// The functions of a cut's tiles.
fn functions(cut: &Cut, n: usize, stored: Stored, direct: bool, apart: bool) -> Option<Functions> {
    let last = (n - (cut.panels - 1) * cut.width()).div_ceil(LANES);
    let keep = direct && cut.chunk_tiles() > 1;
    let mut out: Functions = Default::default();
    for (i, vectors) in [(0, cut.vectors), (1, last)] {
        for (j, rows) in [(0, cut.rows), (1, cut.rows + 1)] {
            let needed = (i == 1 || cut.panels > 1) && (j == 0 || cut.taller > 0);
            if needed {
                let tile =
                    Tile { rows, vectors, stored, prefetch: direct, keep, apart, strewn: None };
                out[i][j] = Some(tile.compile()?);
            }
        }
    }
    Some(out)
}
