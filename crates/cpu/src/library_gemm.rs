//! GEMM of floats and complex numbers through the `gemm` crate, divided into blocks of C by shape.
//! The epilogue of the kernel runs on each block while the block is in the cache.
//!
//! Operands of f32, f64 and their complex numbers are read in memory, with any strides. An operand
//! with several strides along its rows or columns, such as the windows of a convolution, is copied
//! block by block (im2col); each block stays in the cache until it is multiplied. Halves are
//! converted to f32 in the same way, multiplied in f32 and rounded once.
//!
//! Every element of C is the sum of blocks of [`MAX_KC`] products, each summed in order, whatever
//! the strides of the operands: a view and its copy give the same bits. The library has other loops
//! for some strides (dot products, products with vectors), which sum in other orders; [`multiply`]
//! avoids them.

mod multiply;

use crate::dims::Dims;
use crate::kernel::{Line, SharedBindings, with_memory};
use crate::pool::Pool;
use gemm::{c32, c64};
use girih_exec::tuning::tuning;
use girih_exec::{Bindings, BodyPart, CompiledGemm, ExecError, Isa, Prepared, Scratch};
use girih_ir::DType;
use girih_kernel::{Access, Core, Inst, Kernel};
use half::{bf16, f16};
use multiply::{View, measure_caches, multiply};
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// The number of multiplications that a block of C should have: about ten microseconds. The number
/// is the same on every machine, because the library splits its sums depending on the sizes of a
/// block of C.
const BLOCK_MULTIPLICATIONS: usize = 1 << 20;
/// The minimum number of rows of a block of C: with fewer rows, packing B for a block of rows costs
/// too much.
const MIN_ROWS: usize = 96;
/// The minimum number of columns of a block of C: with fewer columns, a block costs too much per
/// element of A.
const MIN_COLUMNS: usize = 64;
/// The number of columns of a block of C is a multiple of this number.
const NC_MULTIPLE: usize = 16;
/// The maximum K of a block (kc). It does not depend on the shape, so that fused and unfused GEMMs
/// split their sums at the same indices. The library does not split sums of this length.
const MAX_KC: usize = 512;
thread_local! {
    static BLOCK: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// A strided matrix per entry of the batch.
struct Matrix {
    buffer: usize,
    offset: isize,
    batch: SmallVec<[isize; 4]>,
    rows: Dims,
    columns: Dims,
}

impl Matrix {
    /// `rows` and `columns` are the numbers of the access's dimensions with these roles, after
    /// `batch` other dimensions.
    fn new(
        kernel: &Kernel,
        access: &Access,
        batch: usize,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Matrix {
        Matrix {
            buffer: access.buffer.0 as usize,
            offset: access.offset,
            batch: SmallVec::from_slice(&access.strides[..batch]),
            rows: Dims::of(kernel, access, rows),
            columns: Dims::of(kernel, access, columns),
        }
    }

    /// The number of elements between rows and between columns, if each has a constant stride.
    fn strides(&self) -> Option<(isize, isize)> {
        Some((self.rows.stride()?, self.columns.stride()?))
    }

    /// The position of the first element of an entry of the batch.
    fn start(&self, extents: &[usize], batch: usize) -> isize {
        let mut rest = batch;
        let mut element = self.offset;
        for (&extent, &stride) in extents.iter().zip(&self.batch).rev() {
            element += (rest % extent) as isize * stride;
            rest /= extent;
        }
        element
    }
}

/// A GEMM that is ready to run.
pub(crate) struct LibraryGemm {
    dtype: DType,
    batch: SmallVec<[usize; 4]>,
    batches: usize,
    m: usize,
    n: usize,
    k: usize,
    lhs: Matrix,
    rhs: Matrix,
    /// The result, if the kernel has no epilogue.
    c_in_place: Option<Matrix>,
    block_rows: usize,
    block_columns: usize,
}

/// A part of the result of one entry of the batch.
#[derive(Clone, Copy)]
struct CBlock {
    batch: usize,
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

/// The matrices of a block of C that are read and written in memory. Other operands are copied, and
/// results that an epilogue reads are written to a tile.
struct InPlace<T> {
    lhs: Option<View<T>>,
    rhs: Option<View<T>>,
    c: Option<View<T>>,
}

impl LibraryGemm {
    /// Returns `None` for integers, whose GEMMs the portable executor computes, and if `GIRIH_ISA`
    /// limits the instruction set, because the library detects the instruction set itself.
    pub fn new(kernel: &Kernel) -> Option<LibraryGemm> {
        let Core::Gemm { lhs, rhs, .. } = &kernel.core else { return None };
        if !lhs.dtype.is_inexact() || Isa::best() != Isa::machine() {
            return None;
        }
        measure_caches();
        let dims = kernel.gemm_dims()?;
        let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
        let matrix = |access: &Access, rows: &Range<usize>, columns: &Range<usize>| {
            Matrix::new(kernel, access, dims.batch.len(), rows, columns)
        };
        let wide = !matches!(lhs.dtype, DType::F16 | DType::BF16);
        let c_in_place = match (kernel.body.insts.as_slice(), kernel.stores.as_slice()) {
            ([Inst::Core { .. }], [store]) if wide => {
                Some(matrix(&store.access, &dims.rows, &dims.columns))
                    .filter(|out| out.strides().is_some())
            }
            _ => None,
        };
        let (block_rows, block_columns) = c_block_sizes(m, n, k);
        Some(LibraryGemm {
            dtype: lhs.dtype,
            batch: SmallVec::from_slice(&kernel.extents[dims.batch.clone()]),
            batches: kernel.size(&dims.batch),
            m,
            n,
            k,
            lhs: matrix(lhs, &dims.rows, &dims.contracted),
            rhs: matrix(rhs, &dims.contracted, &dims.columns),
            c_in_place,
            block_rows,
            block_columns,
        })
    }

    /// The decisions, as text for the dump.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub fn describe(&self) -> String {
        let in_place = |matrix: &Matrix| matrix.strides().is_some();
        format!(
            "crate gemm {}x{}x{} of {}, batch {:?}: panels of {} by {}; A regular {}, B regular {}, \
             result in place {}",
            self.m,
            self.n,
            self.k,
            self.dtype,
            self.batch.as_slice(),
            self.block_rows,
            self.block_columns,
            in_place(&self.lhs),
            in_place(&self.rhs),
            self.c_in_place.is_some(),
        )
    }

    /// Runs the GEMM and the epilogue of its kernel.
    ///
    /// # Safety
    /// `prepared` is of the same kernel; the bindings fulfil their contract except for the
    /// workspace.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let (m_blocks, n_blocks) =
            (self.m.div_ceil(self.block_rows), self.n.div_ceil(self.block_columns));
        let blocks = self.batches * m_blocks * n_blocks;
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        let total = work.saturating_mul(self.batches);
        // One task runs several small GEMMs of a batch.
        let per_chunk = (BLOCK_MULTIPLICATIONS / work.max(1)).clamp(1, blocks.max(1));
        let cost_ns = total as u64 / 30;
        let thread_bindings = SharedBindings(*bindings);
        pool.run(blocks.div_ceil(per_chunk), cost_ns, &|chunk, scratch| {
            for i in chunk * per_chunk..((chunk + 1) * per_chunk).min(blocks) {
                let block = self.c_block(i, m_blocks, n_blocks);
                // SAFETY: the caller's promise; blocks do not overlap.
                unsafe { self.run_block(prepared, block, thread_bindings.get(), scratch)? };
            }
            Ok(())
        })
    }

    fn c_block(&self, i: usize, m_blocks: usize, n_blocks: usize) -> CBlock {
        let (batch, rest) = (i / (m_blocks * n_blocks), i % (m_blocks * n_blocks));
        let (row, column) =
            (rest / n_blocks * self.block_rows, rest % n_blocks * self.block_columns);
        let rows = self.block_rows.min(self.m - row);
        let columns = self.block_columns.min(self.n - column);
        CBlock { batch, row, column, rows, columns }
    }

    /// # Safety
    /// As [`LibraryGemm::run`]; no other thread has a block of C that overlaps this one.
    unsafe fn run_block(
        &self,
        prepared: &Prepared,
        block: CBlock,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F32 => self.typed::<f32>(1.0, prepared, block, bindings, scratch),
                DType::F64 => self.typed::<f64>(1.0, prepared, block, bindings, scratch),
                DType::C64 => self.typed(c32::new(1.0, 0.0), prepared, block, bindings, scratch),
                DType::C128 => self.typed(c64::new(1.0, 0.0), prepared, block, bindings, scratch),
                DType::F16 => self.halves(f16::to_f32, prepared, block, bindings, scratch),
                _ => self.halves(bf16::to_f32, prepared, block, bindings, scratch),
            }
        }
    }

    /// A view of a part of a matrix in memory, if the matrix has constant strides.
    ///
    /// # Safety
    /// The matrix lies in the buffer that the bindings name, with elements `T`.
    unsafe fn view<T>(
        &self,
        matrix: &Matrix,
        bindings: &Bindings<'_>,
        batch: usize,
        (row, column): (usize, usize),
    ) -> Option<View<T>> {
        let (rows, columns) = matrix.strides()?;
        let base = bindings.buffers[matrix.buffer] as *mut T;
        let first = matrix.start(&self.batch, batch);
        // SAFETY: the element lies in the buffer.
        let start = unsafe { base.offset(first + row as isize * rows + column as isize * columns) };
        Some(View { start, rows, columns })
    }

    /// Copies a part of a matrix to dense memory, in the order of its closest elements.
    ///
    /// # Safety
    /// The matrix lies in the buffer that the bindings name, with elements `S`; `to` has room for
    /// the part.
    unsafe fn copy<S: Copy, T>(
        &self,
        matrix: &Matrix,
        bindings: &Bindings<'_>,
        batch: usize,
        (rows, columns): (Range<usize>, Range<usize>),
        (to, convert): (*mut T, impl Fn(S) -> T + Copy),
    ) -> View<T> {
        let base = bindings.buffers[matrix.buffer] as *const S;
        let start = base.wrapping_offset(matrix.start(&self.batch, batch));
        let along_rows = matrix.rows.is_denser_than(&matrix.columns);
        let (outer, inner) = match along_rows {
            true => ((&matrix.columns, columns), (&matrix.rows, rows)),
            false => ((&matrix.rows, rows), (&matrix.columns, columns)),
        };
        let (n, stride) = (inner.1.len(), inner.0.inner_stride());
        let mut runs: SmallVec<[(isize, usize); 64]> = SmallVec::new();
        inner.0.runs(inner.1.start, n, |_, element, len| runs.push((element, len)));
        let mut to_run = to;
        for index in outer.1 {
            let first = start.wrapping_offset(outer.0.at(index));
            for &(element, len) in &runs {
                // SAFETY: inside both matrices.
                unsafe { copy_run(first.wrapping_offset(element), stride, len, to_run, convert) };
                to_run = to_run.wrapping_add(len);
            }
        }
        let (rows, columns) = if along_rows { (1, n as isize) } else { (n as isize, 1) };
        View { start: to, rows, columns }
    }

    /// Runs a block of C of operands that are multiplied in their own type.
    ///
    /// # Safety
    /// As [`LibraryGemm::run_block`], for operands of type `T`.
    unsafe fn typed<T: 'static + Copy + Default>(
        &self,
        one: T,
        prepared: &Prepared,
        block: CBlock,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: operands and result lie in their buffers.
        let in_place = unsafe {
            let view = |matrix: &Matrix, at| self.view::<T>(matrix, bindings, block.batch, at);
            // Backwards along K, the library would sum in the opposite order.
            InPlace {
                lhs: view(&self.lhs, (block.row, 0)).filter(|view| view.columns >= 0),
                rhs: view(&self.rhs, (0, block.column)).filter(|view| view.rows >= 0),
                c: self.c_in_place.as_ref().and_then(|m| view(m, (block.row, block.column))),
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.run_k_blocks(one, prepared, block, in_place, |x: T| x, bindings, scratch) }
    }

    /// Runs a block of C of halves `H`, multiplied as f32.
    ///
    /// # Safety
    /// As [`LibraryGemm::run_block`], for halves `H`.
    unsafe fn halves<H: Copy>(
        &self,
        convert: impl Fn(H) -> f32 + Copy,
        prepared: &Prepared,
        block: CBlock,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let in_place = InPlace { lhs: None, rhs: None, c: None };
        // SAFETY: the caller's promise.
        unsafe { self.run_k_blocks(1.0, prepared, block, in_place, convert, bindings, scratch) }
    }

    /// Multiplies a block of C block by block along K, then runs the epilogue on it.
    ///
    /// # Safety
    /// As [`LibraryGemm::run_block`], for operands of type `S`; the views are of the block.
    unsafe fn run_k_blocks<S: Copy, T: 'static + Copy + Default>(
        &self,
        one: T,
        prepared: &Prepared,
        block: CBlock,
        in_place: InPlace<T>,
        convert: impl Fn(S) -> T + Copy,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let room = |view: &Option<View<T>>, elements: usize| match view {
            Some(_) => 0,
            None => elements,
        };
        let kc = MAX_KC.min(self.k);
        let nc = block_columns::<T>(block, kc, in_place.rhs.is_some());
        let tile = room(&in_place.c, block.rows * block.columns);
        let a_elements = room(&in_place.lhs, block.rows * kc);
        let b_elements = room(&in_place.rhs, kc * nc);
        with_memory(&BLOCK, (tile + a_elements + b_elements) * size_of::<T>(), |memory| {
            let a = (memory as *mut T).wrapping_add(tile);
            let b = a.wrapping_add(a_elements);
            let dense = View { start: memory as *mut T, rows: block.columns as isize, columns: 1 };
            let out = in_place.c.unwrap_or(dense);
            // Run at least once: an empty sum is zero.
            for first in (0..self.k.max(1)).step_by(kc.max(1)) {
                if first > 0 {
                    crate::pool::proceed(true)?;
                }
                let k_range = first..(first + kc).min(self.k);
                let copied = |matrix, part, to| {
                    // SAFETY: the memory has room for a block of each operand; the caller's
                    // promise.
                    unsafe { self.copy(matrix, bindings, block.batch, part, (to, convert)) }
                };
                let rows = block.row..block.row + block.rows;
                let lhs = in_place.lhs.map(|view| view.at(0, first));
                let lhs = lhs.unwrap_or_else(|| copied(&self.lhs, (rows, k_range.clone()), a));
                for column in (0..block.columns).step_by(nc) {
                    let count = nc.min(block.columns - column);
                    let columns = block.column + column..block.column + column + count;
                    let rhs = in_place.rhs.map(|view| view.at(first, column));
                    let rhs =
                        rhs.unwrap_or_else(|| copied(&self.rhs, (k_range.clone(), columns), b));
                    let sizes = [block.rows, count, k_range.len()];
                    // SAFETY: the views are of blocks of these sizes.
                    unsafe { multiply(sizes, one, lhs, rhs, out.at(0, column), first > 0) };
                }
            }
            match in_place.c {
                Some(_) => Ok(()),
                // SAFETY: the tile has the block's sums.
                None => unsafe { self.run_epilogue(prepared, block, memory, bindings, scratch) },
            }
        })
    }

    /// Runs the epilogue on a block of C whose sums are in `tile`.
    ///
    /// # Safety
    /// As [`Prepared::run_body`] for the block's points; `tile` holds the block densely.
    unsafe fn run_epilogue(
        &self,
        prepared: &Prepared,
        block: CBlock,
        tile: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let part = BodyPart {
            point: (block.batch * self.m + block.row) * self.n + block.column,
            row: self.n,
            rows: block.rows,
            columns: block.columns,
            core: tile,
            pitch: block.columns as isize,
        };
        // SAFETY: the caller's promise.
        unsafe { prepared.run_body(&part, bindings, scratch) }
    }
}

/// The columns of a block (nc) of that K.
fn block_columns<T>(block: CBlock, kc: usize, in_place: bool) -> usize {
    let fitting = tuning().gemm_block_bytes / (kc.max(1) * size_of::<T>());
    let nc = if in_place { block.columns } else { fitting.max(NC_MULTIPLE).min(block.columns) };
    nc.max(1)
}

/// Copies elements with a constant stride to consecutive elements.
///
/// # Safety
/// `from` is valid for `len` elements that are `stride` apart, `to` for `len` of them.
#[inline(always)]
unsafe fn copy_run<S: Copy, T>(
    from: *const S,
    stride: isize,
    len: usize,
    to: *mut T,
    convert: impl Fn(S) -> T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (stride, len) {
            // The windows of most convolutions have this length: loops of constant length have no
            // branches.
            (1, 3) => (0..3).for_each(|i| *to.add(i) = convert(*from.add(i))),
            (1, _) => (0..len).for_each(|i| *to.add(i) = convert(*from.add(i))),
            (2, _) => (0..len).for_each(|i| *to.add(i) = convert(*from.add(2 * i))),
            _ => (0..len).for_each(|i| *to.add(i) = convert(*from.offset(i as isize * stride))),
        }
    }
}

impl CompiledGemm for LibraryGemm {
    fn packed_bytes(&self) -> usize {
        0
    }

    unsafe fn run(
        &self,
        kernel: &Prepared,
        rows: Range<usize>,
        _packed: *mut u8,
        _first: bool,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (batch, row) = (rows.start / self.m, rows.start % self.m);
        let block = CBlock { batch, row, column: 0, rows: rows.len(), columns: self.n };
        // SAFETY: the caller's promise.
        unsafe { self.run_block(kernel, block, bindings, scratch) }
    }

    fn code(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// The rows and columns of the blocks of an `m` by `n` result.
fn c_block_sizes(m: usize, n: usize, k: usize) -> (usize, usize) {
    let blocks = (m.saturating_mul(n).saturating_mul(k) / BLOCK_MULTIPLICATIONS).max(1);
    let m_blocks = blocks.min(m / MIN_ROWS).max(1);
    if m_blocks > 1 {
        // An even number of blocks gives two, four, ... threads equal work.
        return (m.div_ceil(m_blocks.next_multiple_of(2)), n);
    }
    let n_blocks = blocks.min(n / MIN_COLUMNS).clamp(1, 64);
    let even_blocks = if n_blocks > 1 { n_blocks & !1 } else { 1 };
    (m, n.div_ceil(even_blocks).next_multiple_of(NC_MULTIPLE).min(n))
}
