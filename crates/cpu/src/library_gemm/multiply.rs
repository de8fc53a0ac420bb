//! Products of blocks by the `gemm` crate, summed in one order for all strides.

use crate::kernel::{Line, with_memory};
use gemm::{Parallelism, c32, c64, gemm};
use std::any::TypeId;
use std::cell::Cell;

/// The maximum number of elements of C that the library computes as dot products, if both operands
/// are contiguous along K.
const MAX_DOTS: usize = 256;

thread_local! {
    static SPREAD: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// The address and the strides of a matrix in memory.
#[derive(Clone, Copy)]
pub struct View<T> {
    pub start: *mut T,
    pub rows: isize,
    pub columns: isize,
}

impl<T> View<T> {
    /// The view from that row and column on.
    pub fn at(self, row: usize, column: usize) -> View<T> {
        let distance = row as isize * self.rows + column as isize * self.columns;
        View { start: self.start.wrapping_offset(distance), ..self }
    }
}

/// Makes the library measure the caches, which it does once, in its first GEMM. If the process
/// forked while that GEMM ran on the scheduler's thread, every GEMM of the child would wait for the
/// measurement.
pub fn measure_caches() {
    const N: usize = 32;
    static ONCE: girih_sync::OnceLock<()> = girih_sync::OnceLock::new();
    ONCE.get_or_init(|| {
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

/// Copies a matrix to `to`, with these strides.
///
/// # Safety
/// The views are valid for these sizes and do not overlap.
unsafe fn copy_view<T: Copy>((rows, columns): (usize, usize), from: View<T>, to: View<T>) {
    for row in 0..rows {
        for column in 0..columns {
            // SAFETY: elements of both matrices.
            unsafe { *to.at(row, column).start = *from.at(row, column).start };
        }
    }
}

/// `out = lhs @ rhs`, or `out += lhs @ rhs` if `accumulate`, with `m` rows, `n` columns and K `k`.
/// Each element is the sum of the products in order, for all strides that are not negative along K.
///
/// # Safety
/// The views are valid for these sizes, and `out` overlaps neither operand.
pub unsafe fn multiply<T: 'static + Copy + Default>(
    sizes @ [m, n, k]: [usize; 3],
    one: T,
    mut lhs: View<T>,
    mut rhs: View<T>,
    out: View<T>,
    accumulate: bool,
) {
    // The strides of axes of one element are free. The library has loops for vectors that are
    // contiguous.
    if m == 1 {
        lhs.rows = 3;
    }
    if n == 1 {
        rhs.columns = 3;
    }
    let vector = m == 1 || n == 1;
    let dots = lhs.columns == 1 && rhs.rows == 1 && (vector || m * n <= MAX_DOTS);
    // An operand of dot products is copied with another stride along K: the vector if there is one.
    let width = if m == 1 { 2 } else { n.max(2) };
    let copied = if dots { k * width } else { 0 };
    // The library exchanges the operands if the columns of C are closer than its rows. Products of
    // complex numbers are not always rounded alike in both orders, so their rows are always farther.
    let turned = out.rows.abs() <= out.columns.abs() && size_of_parts::<T>() > 1;
    let written = if vector { 2 * m.max(n) } else { 0 };
    let written = if turned { written.max(m * n) } else { written };
    if copied == 0 && written == 0 {
        // SAFETY: the caller's promise.
        return unsafe { call_library(sizes, one, lhs, rhs, out, accumulate) };
    }
    with_memory(&SPREAD, (copied + written) * size_of::<T>(), |memory| {
        let start = memory as *mut T;
        let wide = width as isize;
        // SAFETY: the memory has room for the operand and for the result; the caller's promise.
        unsafe {
            if dots && m == 1 {
                let spread = View { start, rows: 3, columns: wide };
                copy_view((1, k), lhs, spread);
                lhs = spread;
            } else if dots {
                let columns = if n == 1 { 3 } else { 1 };
                let spread = View { start, rows: wide, columns };
                copy_view((k, n), rhs, spread);
                rhs = spread;
            }
            if written == 0 {
                return call_library(sizes, one, lhs, rhs, out, accumulate);
            }
            let start = start.add(copied);
            let tile = tile_of(sizes, start, (&lhs, &rhs));
            if accumulate {
                copy_view((m, n), out, tile);
            }
            call_library(sizes, one, lhs, rhs, tile, accumulate);
            copy_view((m, n), tile, out);
        }
    });
}

/// The number of real numbers of an element.
fn size_of_parts<T: 'static>() -> usize {
    let complex = [TypeId::of::<c32>(), TypeId::of::<c64>()].contains(&TypeId::of::<T>());
    if complex { 2 } else { 1 }
}

/// The result of a product in memory of its own. A vector is not contiguous there, and a product of
/// real numbers is oriented so that the library need not pack the matrix.
fn tile_of<T: 'static>(
    [m, n, _]: [usize; 3],
    start: *mut T,
    (lhs, rhs): (&View<T>, &View<T>),
) -> View<T> {
    let real = size_of_parts::<T>() == 1;
    let (rows, columns) = match (m, n) {
        (_, 1) if real && m > 1 && lhs.rows == 1 => (2, 4),
        (_, 1) => (2, 1),
        (1, _) if real && rhs.columns != 1 => (1, 2),
        (1, _) => (4, 2),
        _ => (n as isize, 1),
    };
    View { start, rows, columns }
}

/// Calls the library.
///
/// # Safety
/// As [`multiply`].
unsafe fn call_library<T: 'static + Copy + Default>(
    [m, n, k]: [usize; 3],
    one: T,
    lhs: View<T>,
    rhs: View<T>,
    out: View<T>,
    accumulate: bool,
) {
    let alpha = if accumulate { one } else { T::default() };
    // SAFETY: the caller's promise.
    unsafe {
        gemm(
            m,
            n,
            k,
            out.start,
            out.columns,
            out.rows,
            accumulate,
            lhs.start,
            lhs.columns,
            lhs.rows,
            rhs.start,
            rhs.columns,
            rhs.rows,
            alpha,
            one,
            false,
            false,
            false,
            Parallelism::None,
        )
    }
}
