//! Matrix products in generated inner loops, for f32, halves and integers of up to 32 bits on
//! machines with AVX-512.
//!
//! Columns are taken in panels. The right operand's part of some panels, a slab, is packed into the
//! second cache, where all tiles of rows use it; where those are few, the first one reads it where it
//! lies. The left operand is packed once for all. Operands may have any number of strided dimensions
//! for their rows, columns and shared indices: the windows of a convolution are packed straight from
//! the image.
//!
//! Halves become f32 as they are read, are summed in f32 and rounded once. (The dot products of
//! bfloat16 in vectors that some processors have would flush subnormals and round twice per pair; on
//! Sapphire Rapids they have half the rate of these multiply-adds.) An element is one chain of
//! multiply-adds whatever the cut, so that neither threads nor neighbours change its bits; in products
//! of few rows with many weights, one chain of each of their `parts`. Integers are summed modulo
//! 2^32, whatever the dtypes of operands and result. Products of many rows of bfloat16, and all but
//! the smallest of bytes, go to the matrix unit (`matrix`) where there is one, which is several times
//! as fast.

mod dots;
mod integers;
mod matrix;
mod operand;
mod pack;
mod panel;
mod parts;
mod rows;
mod shape;
#[cfg(test)]
mod tests;

use crate::jit::tile::{Function, LANES, Stored, Tile, TileCall};
use crate::kernel::{Line, Shared, with_memory};
use crate::pool::Pool;
use dots::DotProducts;
use girih_kernel::{Access, Bindings, BodyPart, ExecError, Kernel, Prepared, Scratch};
use matrix::MatrixProduct;
use operand::{Out, Side, Target};
use pack::{Part, Rows, pack};
use parts::parts;
pub(crate) use rows::RowsProduct;
use shape::Cut;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// Elements of a left operand that is packed for all threads ahead of the product.
const PACKED_FOR_ALL: usize = 1 << 22;
/// Elements of a left operand from which on threads share its packing.
const PACKED_BY_ALL: usize = 1 << 17;
/// Multiplications of the products of a batch that share a chunk.
const BATCHED: usize = 1 << 19;
/// Tiles of rows from which on columns are packed before all of them: the first of fewer tiles reads
/// the columns where they lie, and packs them for the others.
const PACKED_AHEAD: usize = 4;
/// Rows of the right operand that are asked for ahead.
const AHEAD: isize = 10;

thread_local! {
    static PANEL: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static LEFT: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static PARTS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
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
    out: Option<Out>,
    /// Bytes of what the body takes up.
    core_bytes: usize,
    cut: Cut,
    /// Tiles over packed columns.
    packed: Functions,
    /// Tiles over columns where they lie, if they are used so.
    direct: Option<Functions>,
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

/// The left operand, packed: the first of its tiles and shared indices that is there, and how many
/// shared indices each tile has.
#[derive(Clone, Copy)]
struct Left {
    start: *const f32,
    row: usize,
    k: usize,
    depth: usize,
}

// SAFETY: it is complete before threads share it, and only read then.
unsafe impl Sync for Left {}

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
    /// `None` for dtypes and machines that have no generated loops.
    pub fn new(kernel: &Kernel, lhs: &Access, rhs: &Access) -> Option<Product> {
        let one = kernel.size(&kernel.matmul_dims()?.batch) == 1;
        let cut = |m, n, k, rhs: &Side| {
            let parts = if one { parts(m, n, k, rhs) } else { 1 };
            Cut::in_parts(m, n, k, parts)
        };
        let mut product = Product::with_cut(kernel, lhs, rhs, cut)?;
        let (rhs, cut, n) = (&product.rhs, &product.cut, product.n);
        let direct = rhs.outer.step() == Some(1) && rhs.shared.step().is_some() && n > 1;
        if direct && cut.chunk_tiles < PACKED_AHEAD {
            product.direct = Some(functions(cut, n, rhs.stored, true)?);
        }
        product.dots = DotProducts::new(&product);
        product.matrix = MatrixProduct::new(&product);
        Some(product)
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
        let packed = functions(&cut, n, rhs.stored.packed(), false)?;
        let core_bytes = integers::core_bytes(kernel)?;
        let batch = SmallVec::from_slice(&kernel.extents[dims.batch]);
        let batches = batch.iter().product();
        let (direct, dots, matrix) = (None, None, None);
        Some(Product {
            batch,
            batches,
            m,
            n,
            k,
            lhs,
            rhs,
            out,
            core_bytes,
            cut,
            packed,
            direct,
            dots,
            matrix,
        })
    }

    /// The machine code of its tiles.
    pub fn code(&self) -> Vec<Vec<u8>> {
        let tiles = self.direct.iter().chain([&self.packed]).flatten().flatten().flatten();
        let dots = self.dots.iter().flat_map(DotProducts::functions);
        let matrix = self.matrix.iter().flat_map(MatrixProduct::functions);
        let rest = dots.map(Function::bytes).chain(matrix.map(Function::bytes));
        tiles.map(Function::bytes).chain(rest).map(<[u8]>::to_vec).collect()
    }

    /// Runs the product, and the body of the kernel it was made from.
    ///
    /// # Safety
    /// `prepared` is of the same kernel; the bindings fulfil their contract but for the workspace.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        if let Some(matrix) = &self.matrix {
            // SAFETY: the caller's promise.
            return unsafe { matrix.run(self, prepared, bindings, pool) };
        }
        let same = self.lhs.batch.iter().zip(&self.batch).all(|(s, e)| *s == 0 || *e == 1);
        let for_all = same && self.m * self.k <= PACKED_FOR_ALL && self.dots.is_none();
        let bytes = if for_all { self.m * self.k * 4 } else { 0 };
        with_memory(&LEFT, bytes, |memory| {
            let memory = Memory(memory as *mut f32);
            let left = Left { start: memory.0, row: 0, k: 0, depth: self.k };
            // SAFETY: the caller's promise; the memory has room for all tiles.
            unsafe {
                if for_all {
                    self.pack_left_for_all(memory, bindings, pool)?;
                }
                let left = for_all.then_some(left);
                if self.cut.parts == 1 {
                    let nowhere = Memory(std::ptr::null_mut());
                    return self.run_chunks(prepared, bindings, pool, left, nowhere);
                }
                with_memory(&PARTS, self.cut.parts * self.m * self.n * 4, |parts| {
                    let parts = Memory(parts as *mut f32);
                    self.run_chunks(prepared, bindings, pool, left, parts)?;
                    self.add_parts(parts, prepared, bindings, pool)
                })
            }
        })
    }

    /// Rough time on one core: of the multiplications, or of reading the right operand.
    fn cost_ns(&self) -> u64 {
        let elements = self.n.saturating_mul(self.k).saturating_mul(self.batches);
        let reading = elements.saturating_mul(self.rhs.stored.size()) / 25;
        (elements.saturating_mul(self.m) / 80).max(reading) as u64
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
        pool.run(self.cut.tiles.div_ceil(each), cost_ns, &|i, _| {
            let tiles = i * each..((i + 1) * each).min(self.cut.tiles);
            let first = self.cut.row(tiles.start);
            let to = memory.get().wrapping_add(first * self.k);
            // SAFETY: the caller's promise; each piece has tiles of its own.
            unsafe { self.pack_left(shared.get(), (0, first), tiles, 0..self.k, to) };
            Ok(())
        })
    }

    /// Packs tiles of the left operand, one after the other; the first of them begins at a row of an
    /// entry of the batch.
    ///
    /// # Safety
    /// As [`Product::run`]; `to` has room for them.
    unsafe fn pack_left(
        &self,
        bindings: &Bindings<'_>,
        (batch, first): (usize, usize),
        tiles: Range<usize>,
        shared: Range<usize>,
        mut to: *mut f32,
    ) {
        let above = self.cut.row(tiles.start);
        let start = self.lhs.start(bindings, &self.batch, batch);
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
        left: Option<Left>,
        parts: Memory,
    ) -> Result<(), ExecError> {
        let (down, across) = match &self.dots {
            Some(dots) => (1, dots.chunks()),
            None => self.cut.chunks(),
        };
        let chunks = self.batches * self.cut.parts * down * across;
        let work = self.m.saturating_mul(self.n).saturating_mul(self.cut.depth);
        let together = (BATCHED * down * across / work.max(1)).clamp(1, chunks);
        let cost_ns = self.cost_ns();
        let shared = Shared(*bindings);
        let left = &left;
        let job = |first: usize, scratch: &mut Scratch| {
            let left = *left;
            for i in first * together..((first + 1) * together).min(chunks) {
                let (of, rest) = (i / (down * across), i % (down * across));
                let (batch, part) = (of / self.cut.parts, of % self.cut.parts);
                let range = |i: usize, each: usize, all: usize| i * each..((i + 1) * each).min(all);
                // SAFETY: the caller's promise; chunks do not overlap.
                unsafe {
                    if let Some(dots) = &self.dots {
                        dots.run(self, batch, rest, prepared, shared.get(), scratch)?;
                        continue;
                    }
                    let tiles = range(rest / across, self.cut.chunk_tiles, self.cut.tiles);
                    let panels = range(rest % across, self.cut.chunk_panels, self.cut.panels);
                    let chunk = Chunk { batch, part, tiles, panels };
                    self.run_chunk(prepared, &chunk, shared.get(), left, parts, scratch)?;
                }
            }
            Ok(())
        };
        let job: &crate::pool::Job<'_> = &|i, s| job(i, s);
        pool.run(chunks.div_ceil(together), cost_ns, job)
    }

    /// # Safety
    /// As [`Product::run_chunks`]; no other thread has a chunk that overlaps this one.
    unsafe fn run_chunk(
        &self,
        prepared: &Prepared,
        chunk: &Chunk,
        bindings: &Bindings<'_>,
        left: Option<Left>,
        parts: Memory,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let cut = &self.cut;
        let (row, end) = (cut.row(chunk.tiles.start), cut.row(chunk.tiles.end));
        let column = chunk.panels.start * cut.width();
        let (rows, columns) = (end - row, (chunk.panels.end * cut.width()).min(self.n) - column);
        let panel = cut.slab * cut.block * cut.width();
        let packed = if left.is_none() { rows * cut.block } else { 0 };
        let body = self.out.is_none() && cut.parts == 1;
        let tile = if body { rows * columns } else { 0 };
        let sizes = [panel, packed, tile].map(|n: usize| n.next_multiple_of(LANES));
        with_memory(&PANEL, sizes.iter().sum::<usize>() * 4, |memory| {
            let panel = memory as *mut f32;
            let packed = panel.wrapping_add(sizes[0]);
            let tile = packed.wrapping_add(sizes[1]);
            let target = match &self.out {
                _ if cut.parts > 1 => self.part(parts.get(), chunk.part, row, column),
                Some(out) => out.target(bindings, &self.batch, chunk.batch, row, column),
                None => Target { start: tile, pitch: columns as isize },
            };
            // SAFETY: the caller's promise; the memory has room for all three.
            unsafe {
                let end_k = ((chunk.part + 1) * cut.depth).min(self.k);
                for k in (chunk.part * cut.depth..end_k).step_by(cut.block) {
                    let shared = k..(k + cut.block).min(end_k);
                    let left = left.unwrap_or_else(|| {
                        let tiles = chunk.tiles.clone();
                        let place = (chunk.batch, row);
                        self.pack_left(bindings, place, tiles, shared.clone(), packed);
                        Left { start: packed, row, k, depth: shared.len() }
                    });
                    self.block(chunk, shared, bindings, left, panel, target);
                }
                match body {
                    true => {
                        let part = (chunk.batch, row..end, column..column + columns);
                        self.body(prepared, part, target, bindings, scratch)
                    }
                    false => Ok(()),
                }
            }
        })
    }

    /// A block of the shared dimension of all tiles and panels of a chunk.
    ///
    /// # Safety
    /// As [`Product::run_chunk`]; `panels` has room for a slab of packed panels.
    unsafe fn block(
        &self,
        chunk: &Chunk,
        shared: Range<usize>,
        bindings: &Bindings<'_>,
        left: Left,
        panels: *mut f32,
        target: Target,
    ) {
        let start = self.rhs.start(bindings, &self.batch, chunk.batch);
        for first in chunk.panels.clone().step_by(self.cut.slab) {
            let slab = first..(first + self.cut.slab).min(chunk.panels.end);
            // SAFETY: the caller's promise.
            unsafe {
                if self.direct.is_none() {
                    self.pack_right(start, &slab, &shared, panels);
                }
                self.slab(chunk, slab, &shared, start, left, panels, target);
            }
        }
    }

    /// A slab of panels of all tiles of a chunk.
    ///
    /// # Safety
    /// As [`Product::block`]; `panels` holds the slab, unless the first tile packs it.
    #[expect(clippy::too_many_arguments, reason = "the places of three matrices")]
    unsafe fn slab(
        &self,
        chunk: &Chunk,
        slab: Range<usize>,
        shared: &Range<usize>,
        start: *const u8,
        left: Left,
        panels: *mut f32,
        target: Target,
    ) {
        for tile in chunk.tiles.clone() {
            for p in slab.clone() {
                let panel = panels.wrapping_add((p - slab.start) * shared.len() * self.cut.width());
                let down = (self.cut.row(tile) - self.cut.row(chunk.tiles.start)) as isize;
                let across = ((p - chunk.panels.start) * self.cut.width()) as isize;
                let c = target.start.wrapping_offset(down * target.pitch + across);
                let c = Target { start: c, pitch: target.pitch };
                let direct = self.direct.as_ref().filter(|_| tile == chunk.tiles.start);
                // SAFETY: the caller's promise; the result is this chunk's.
                unsafe { self.tile(tile, p, direct, shared, start, left, panel, c) };
            }
        }
    }

    /// A tile of the result, from its packed panel or by the `direct` functions, which pack it.
    ///
    /// # Safety
    /// As [`Product::block`]; `panel` holds the panel, or has room for it.
    unsafe fn tile(
        &self,
        tile: usize,
        p: usize,
        direct: Option<&Functions>,
        shared: &Range<usize>,
        start: *const u8,
        left: Left,
        panel: *mut f32,
        target: Target,
    ) {
        let (row, rows) = (self.cut.row(tile), self.cut.rows_of(tile));
        let column = p * self.cut.width();
        let columns = self.cut.width().min(self.n - column);
        let width = columns.next_multiple_of(LANES);
        let mut call = TileCall {
            a: left
                .start
                .wrapping_add((row - left.row) * left.depth + (shared.start - left.k) * rows),
            b: panel as *const u8,
            b_step: 4 * width as isize,
            c: target.start,
            c_step: 4 * target.pitch,
            k: shared.len(),
            lanes: columns - (width - LANES),
            add: (!shared.start.is_multiple_of(self.cut.depth)) as usize,
            keep: panel,
            ahead: std::ptr::null(),
        };
        if direct.is_some() {
            let size = self.rhs.stored.size() as isize;
            let step = self.rhs.shared.step().expect("direct operands have one") * size;
            call.b = start.wrapping_offset(column as isize * size + shared.start as isize * step);
            call.ahead = call.b.wrapping_offset(AHEAD * step);
            call.b_step = step;
        }
        let last = p + 1 == self.cut.panels;
        let function =
            &direct.unwrap_or(&self.packed)[last as usize][(tile < self.cut.taller) as usize];
        // SAFETY: all of the panel is in memory, and of the left operand's tile.
        unsafe { function.as_ref().expect("every size has its function").call(&call) };
    }

    /// Packs a slab of panels.
    ///
    /// # Safety
    /// As [`Product::run_chunk`]; `to` has room for the panels.
    unsafe fn pack_right(
        &self,
        start: *const u8,
        slab: &Range<usize>,
        shared: &Range<usize>,
        to: *mut f32,
    ) {
        let (rhs, width) = (&self.rhs, self.cut.width());
        let columns = slab.start * width..(slab.end * width).min(self.n);
        if let (Some(1), Some(step)) = (rhs.outer.step(), rhs.shared.step()) {
            let first = columns.start as isize + shared.start as isize * step;
            let size = rhs.stored.size() as isize;
            let (start, step) = (start.wrapping_offset(first * size), step * size);
            let (rows, columns) = (shared.len(), columns.len());
            let rows = Rows { start, step, stored: rhs.stored, rows, columns, width };
            // SAFETY: the caller's promise.
            return unsafe { rows.pack(to) };
        }
        let mut offsets: SmallVec<[isize; 2048]> = SmallVec::from_elem(0, shared.len());
        rhs.shared.fill(shared.start, &mut offsets);
        for first in columns.clone().step_by(width) {
            let indices = first..(first + width).min(columns.end);
            let columns_of_panel = indices.len().next_multiple_of(LANES);
            let part = Part {
                start,
                stored: rhs.stored,
                outer: &rhs.outer,
                indices,
                shared: &offsets,
                along_shared: rhs.along_shared(),
            };
            let to = to.wrapping_add((first - columns.start) * shared.len());
            // SAFETY: the caller's promise.
            unsafe { pack(&part, to, columns_of_panel) };
        }
    }

    /// Runs the body on a part whose products lie in `tile`, and are lost.
    ///
    /// # Safety
    /// As [`Prepared::run_body`] for the part's points; `tile` holds their products.
    unsafe fn body(
        &self,
        prepared: &Prepared,
        (batch, rows, columns): (usize, Range<usize>, Range<usize>),
        tile: Target,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise; the products are not needed as they are.
        unsafe { integers::narrow(tile, (rows.len(), columns.len()), self.core_bytes) };
        let part = BodyPart {
            point: (batch * self.m + rows.start) * self.n + columns.start,
            row: self.n,
            rows: rows.len(),
            columns: columns.len(),
            core: tile.start as *const u8,
            pitch: tile.pitch * (4 / self.core_bytes) as isize,
        };
        // SAFETY: the caller's promise.
        unsafe { prepared.run_body(&part, bindings, scratch) }
    }
}

/// The functions of a cut's tiles.
fn functions(cut: &Cut, n: usize, stored: Stored, direct: bool) -> Option<Functions> {
    let last = (n - (cut.panels - 1) * cut.width()).div_ceil(LANES);
    let keep = direct && cut.chunk_tiles > 1;
    let mut out: Functions = Default::default();
    for (i, vectors) in [(0, cut.vectors), (1, last)] {
        for (j, rows) in [(0, cut.rows), (1, cut.rows + 1)] {
            let needed = (i == 1 || cut.panels > 1) && (j == 0 || cut.taller > 0);
            if needed {
                let tile = Tile { rows, vectors, stored, prefetch: direct, keep };
                out[i][j] = Some(tile.compile()?);
            }
        }
    }
    Some(out)
}
