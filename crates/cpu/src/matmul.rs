//! Matrix products of floats and complex numbers through the `gemm` crate, cut into panels by shape, each followed by
//! the kernel's body while it is in cache.
//!
//! Operands of f32, f64 and their complex numbers are used where they lie, whatever their strides. Halves are converted to
//! f32 panel by panel, multiplied in f32 and rounded once. The reduced dimension is never cut.

use crate::kernel::{Line, Shared, with_memory};
use crate::pool::Pool;
use gemm::{Parallelism, c32, c64, gemm};
use girih_ir::DType;
use girih_kernel::{Access, Bindings, Core, ExecError, Inst, Kernel, Prepared, Scratch};
use half::{bf16, f16};
use smallvec::SmallVec;
use std::cell::Cell;

/// Work a panel should hold, in multiplications: some tens of microseconds.
const PANEL_WORK: usize = 4 << 20;
/// Rows below which packing the right operand for a panel of rows costs too much.
const MIN_ROWS: usize = 96;
/// Columns of a panel are a multiple of this.
const COLUMN_UNIT: usize = 64;

thread_local! {
    static PANEL: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// A strided matrix of each batch.
struct Matrix {
    buffer: usize,
    offset: isize,
    batch: SmallVec<[isize; 4]>,
    /// Elements between rows and between columns.
    rows: isize,
    columns: isize,
}

impl Matrix {
    /// `row` and `column` are the access's dimensions that play these parts.
    fn new(access: &Access, batch: usize, row: usize, column: usize) -> Matrix {
        Matrix {
            buffer: access.buffer.0 as usize,
            offset: access.offset,
            batch: SmallVec::from_slice(&access.strides[..batch]),
            rows: access.strides[row],
            columns: access.strides[column],
        }
    }

    /// Element number of a batch's element `(row, column)`.
    fn at(&self, extents: &[usize], batch: usize, row: usize, column: usize) -> isize {
        let mut rest = batch;
        let mut element = self.offset + row as isize * self.rows + column as isize * self.columns;
        for (&extent, &stride) in extents.iter().zip(&self.batch).rev() {
            element += (rest % extent) as isize * stride;
            rest /= extent;
        }
        element
    }
}

/// A product made ready.
pub(crate) struct Matmul {
    dtype: DType,
    batch: SmallVec<[usize; 4]>,
    batches: usize,
    m: usize,
    n: usize,
    k: usize,
    lhs: Matrix,
    rhs: Matrix,
    /// Where the product itself goes, if there is nothing to compute from it.
    direct: Option<Matrix>,
    panel_rows: usize,
    panel_columns: usize,
}

/// A part of one batch's product.
#[derive(Clone, Copy)]
struct Panel {
    batch: usize,
    row: usize,
    column: usize,
    rows: usize,
    columns: usize,
}

/// Address and strides of a matrix in memory.
#[derive(Clone, Copy)]
struct View<T> {
    start: *mut T,
    rows: isize,
    columns: isize,
}

/// Has the library measure the caches, which it does once, in its first product. Were that one on
/// the scheduler's thread when the process forks, every product of the child would wait for it.
fn learn_caches() {
    const N: usize = 32;
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let (zeros, mut out) = (vec![0f32; N * N], vec![0f32; N * N]);
        let (a, c, one, n) = (zeros.as_ptr(), out.as_mut_ptr(), 1, N as isize);
        // SAFETY: three dense matrices of N by N, of which only the first is written.
        unsafe {
            gemm(
                N,
                N,
                N,
                c,
                one,
                n,
                false,
                a,
                one,
                n,
                a,
                one,
                n,
                0.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    });
}

impl Matmul {
    /// `None` for integers, whose products the portable executor computes.
    pub fn new(kernel: &Kernel, lhs: &Access, rhs: &Access) -> Option<Matmul> {
        debug_assert!(matches!(kernel.core, Core::Matmul { .. }));
        if !lhs.dtype.is_inexact() {
            return None;
        }
        learn_caches();
        let p = kernel.parallel;
        let (m, n, k) = (kernel.extents[p - 2], kernel.extents[p - 1], kernel.reduced());
        let wide = !matches!(lhs.dtype, DType::F16 | DType::BF16);
        let direct = match (kernel.body.insts.as_slice(), kernel.stores.as_slice()) {
            ([Inst::Core { .. }], [store]) if wide => {
                Some(Matrix::new(&store.access, p - 2, p - 2, p - 1))
            }
            _ => None,
        };
        let (panel_rows, panel_columns) = panel(m, n, k);
        Some(Matmul {
            dtype: lhs.dtype,
            batch: SmallVec::from_slice(&kernel.extents[..p - 2]),
            batches: kernel.extents[..p - 2].iter().product(),
            m,
            n,
            k,
            lhs: Matrix::new(lhs, p - 2, p - 2, p),
            rhs: Matrix::new(rhs, p - 2, p, p - 1),
            direct,
            panel_rows,
            panel_columns,
        })
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
        let (down, across) =
            (self.m.div_ceil(self.panel_rows), self.n.div_ceil(self.panel_columns));
        let panels = self.batches * down * across;
        let work = self.m.saturating_mul(self.n).saturating_mul(self.k);
        let total = work.saturating_mul(self.batches);
        // Small products of a batch share a chunk.
        let per_chunk = (PANEL_WORK / work.max(1)).clamp(1, panels.max(1));
        let cost_ns = total as u64 / 30;
        let shared = Shared(*bindings);
        pool.run(panels.div_ceil(per_chunk), cost_ns, &|chunk, scratch| {
            for i in chunk * per_chunk..((chunk + 1) * per_chunk).min(panels) {
                let panel = self.panel(i, down, across);
                // SAFETY: the caller's promise; panels do not overlap.
                unsafe { self.run_panel(prepared, panel, shared.get(), scratch)? };
            }
            Ok(())
        })
    }

    fn panel(&self, i: usize, down: usize, across: usize) -> Panel {
        let (batch, rest) = (i / (down * across), i % (down * across));
        let (row, column) = (rest / across * self.panel_rows, rest % across * self.panel_columns);
        let rows = self.panel_rows.min(self.m - row);
        let columns = self.panel_columns.min(self.n - column);
        Panel { batch, row, column, rows, columns }
    }

    /// # Safety
    /// As [`Matmul::run`]; no other thread has a panel that overlaps this one.
    unsafe fn run_panel(
        &self,
        prepared: &Prepared,
        p: Panel,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::F32 => self.typed::<f32>(1.0, prepared, p, bindings, scratch),
                DType::F64 => self.typed::<f64>(1.0, prepared, p, bindings, scratch),
                DType::C64 => self.typed(c32::new(1.0, 0.0), prepared, p, bindings, scratch),
                DType::C128 => self.typed(c64::new(1.0, 0.0), prepared, p, bindings, scratch),
                DType::F16 => self.halves(f16::to_f32, prepared, p, bindings, scratch),
                _ => self.halves(bf16::to_f32, prepared, p, bindings, scratch),
            }
        }
    }

    /// A view of a matrix from an element on.
    ///
    /// # Safety
    /// The matrix lies in the buffer the bindings name, of elements `T`.
    unsafe fn view<T>(
        &self,
        matrix: &Matrix,
        bindings: &Bindings<'_>,
        (batch, row, column): (usize, usize, usize),
    ) -> View<T> {
        let base = bindings.buffers[matrix.buffer] as *mut T;
        // SAFETY: the element lies in the buffer.
        let start = unsafe { base.offset(matrix.at(&self.batch, batch, row, column)) };
        View { start, rows: matrix.rows, columns: matrix.columns }
    }

    /// # Safety
    /// As [`Matmul::run_panel`], for operands of type `T`.
    unsafe fn typed<T: 'static + Copy + Default>(
        &self,
        one: T,
        prepared: &Prepared,
        p: Panel,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // SAFETY: operands lie in their buffers; the tile has room for the panel.
        unsafe {
            let lhs = self.view::<T>(&self.lhs, bindings, (p.batch, p.row, 0));
            let rhs = self.view::<T>(&self.rhs, bindings, (p.batch, 0, p.column));
            if let Some(out) = &self.direct {
                let out = self.view::<T>(out, bindings, (p.batch, p.row, p.column));
                self.product(one, p, lhs, rhs, out);
                return Ok(());
            }
            with_memory(&PANEL, p.rows * p.columns * size_of::<T>(), |tile| {
                let out = View { start: tile as *mut T, rows: p.columns as isize, columns: 1 };
                self.product(one, p, lhs, rhs, out);
                self.body(prepared, p, tile, size_of::<T>(), bindings, scratch)
            })
        }
    }

    /// # Safety
    /// As [`Matmul::run_panel`], for halves `H`.
    unsafe fn halves<H: Copy>(
        &self,
        convert: fn(H) -> f32,
        prepared: &Prepared,
        p: Panel,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (left, right) = (p.rows * self.k, self.k * p.columns);
        with_memory(&PANEL, (p.rows * p.columns + left + right) * 4, |memory| {
            // SAFETY: operands lie in their buffers; the memory has room for all three matrices.
            unsafe {
                let lhs = self.view::<H>(&self.lhs, bindings, (p.batch, p.row, 0));
                let rhs = self.view::<H>(&self.rhs, bindings, (p.batch, 0, p.column));
                let tile = memory as *mut f32;
                let a = tile.add(p.rows * p.columns);
                let b = a.add(left);
                let a = widen(lhs, p.rows, self.k, a, convert);
                let b = widen(rhs, self.k, p.columns, b, convert);
                let out = View { start: tile, rows: p.columns as isize, columns: 1 };
                self.product(1.0, p, a, b, out);
                self.body(prepared, p, memory, 4, bindings, scratch)
            }
        })
    }

    /// # Safety
    /// The views are valid for the panel's matrices, and `out` overlaps neither operand.
    unsafe fn product<T: 'static + Default>(
        &self,
        one: T,
        p: Panel,
        lhs: View<T>,
        rhs: View<T>,
        out: View<T>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            gemm(
                p.rows,
                p.columns,
                self.k,
                out.start,
                out.columns,
                out.rows,
                false,
                lhs.start,
                lhs.columns,
                lhs.rows,
                rhs.start,
                rhs.columns,
                rhs.rows,
                T::default(),
                one,
                false,
                false,
                false,
                Parallelism::None,
            )
        }
    }

    /// Runs the body on a panel whose products are in `tile`, row by row.
    ///
    /// # Safety
    /// As [`Prepared::run_body`] for the panel's points; `tile` holds the panel densely.
    unsafe fn body(
        &self,
        prepared: &Prepared,
        p: Panel,
        tile: *mut u8,
        size: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let first = (p.batch * self.m + p.row) * self.n + p.column;
        // SAFETY: the caller's promise.
        unsafe {
            if p.columns == self.n {
                return prepared.run_body(first, p.rows * self.n, tile, bindings, scratch);
            }
            for row in 0..p.rows {
                let core = tile.add(row * p.columns * size);
                prepared.run_body(first + row * self.n, p.columns, core, bindings, scratch)?;
            }
        }
        Ok(())
    }
}

/// Rows and columns of the panels of an `m` by `n` product.
fn panel(m: usize, n: usize, k: usize) -> (usize, usize) {
    let pieces = (m.saturating_mul(n).saturating_mul(k) / PANEL_WORK).max(1);
    let by_rows = pieces.min(m / MIN_ROWS).max(1);
    if by_rows > 1 {
        // An even number of panels keeps two, four, ... threads equally busy.
        return (m.div_ceil(by_rows.next_multiple_of(2)), n);
    }
    let by_columns = pieces.min(n / COLUMN_UNIT).clamp(1, 64);
    (m, n.div_ceil(by_columns).next_multiple_of(COLUMN_UNIT).min(n))
}

/// Copies a matrix of halves into dense f32 memory.
///
/// # Safety
/// `from` is valid for the matrix, `to` for its elements.
unsafe fn widen<H: Copy>(
    from: View<H>,
    rows: usize,
    columns: usize,
    to: *mut f32,
    convert: fn(H) -> f32,
) -> View<f32> {
    // Walk the source along its closer elements; the copy takes the same order.
    let along_rows = from.rows.unsigned_abs() < from.columns.unsigned_abs();
    let (outer, inner) = if along_rows { (columns, rows) } else { (rows, columns) };
    let (far, near) =
        if along_rows { (from.columns, from.rows) } else { (from.rows, from.columns) };
    for i in 0..outer {
        for j in 0..inner {
            // SAFETY: inside both matrices.
            unsafe {
                let element = from.start.offset(far * i as isize + near * j as isize);
                *to.add(i * inner + j) = convert(*element);
            }
        }
    }
    let (rows, columns) = if along_rows { (1, inner as isize) } else { (inner as isize, 1) };
    View { start: to, rows, columns }
}
