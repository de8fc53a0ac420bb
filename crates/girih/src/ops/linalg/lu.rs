//! LU factorisations of general matrices, and solutions of systems with them.

use super::{Diagonal, Triangle, calls, sizes, solve_triangular};
use crate::{DType, Result, Tensor, default_int};
use girih_ir::{OpCode, Shape};

/// LU factorisation of square matrices: both triangular factors in one matrix (without the ones on
/// the diagonal of `L`), and the row permutation (i64) with `x[order] = L U`.
///
/// Errors: a shape error unless the matrices are square.
#[track_caller]
pub fn lu_factor(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (m, n) = sizes("lu_factor", x)?;
    if m != n {
        let reason = format!("square matrices are needed, these are {m} by {n}");
        let (op, shape) = ("lu_factor", x.shape());
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let [factors, rows] = calls::<2>(OpCode::Lu, false, x)?;
    Ok((factors, rows.astype(default_int())?))
}

/// Solves `a x = b` for `x` with the result of [`lu_factor`] for `a`. A vector `b` is treated as
/// one column, and the result is a vector.
///
/// Errors: a shape error unless the sizes fit; when computed, if a matrix is singular.
#[track_caller]
pub fn lu_solve(factors: &Tensor, order: &Tensor, b: &Tensor) -> Result<Tensor> {
    let column = if b.rank() == 1 { b.unsqueeze(-1)? } else { b.clone() };
    let ((n, _), (rows, columns)) = (sizes("lu_solve", factors)?, sizes("lu_solve", &column)?);
    if n != rows {
        let reason = format!("a system of {n} equations is solved for as many rows");
        let (op, lhs, rhs) = ("lu_solve", factors.shape(), b.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let outer = |x: &Tensor, inner: usize| Shape::from(&x.shape()[..x.rank() - inner]);
    let batch = outer(order, 1).broadcast(&outer(&column, 2), "lu_solve")?;
    let to = |plane: [usize; 2]| -> Shape { batch.iter().copied().chain(plane).collect() };
    let index = order.unsqueeze(-1)?.broadcast_to(to([n, columns]))?;
    let moved = column.broadcast_to(to([n, columns]))?.take_along_axis(&index, -2)?;
    let y = solve_triangular(factors, &moved, Triangle::Lower, Diagonal::Unit)?;
    let x = solve_triangular(factors, &y, Triangle::Upper, Diagonal::Stored)?;
    if b.rank() == 1 { x.squeeze(-1) } else { Ok(x) }
}

/// LU factorisation with partial pivoting: `p`, `l`, `u` with `x = p l u`, where `p` is a
/// permutation, `l` lower triangular with ones on its diagonal, and `u` upper triangular. Gradients
/// flow to `l` and `u`.
///
/// Errors: a shape error for fewer than two axes.
#[track_caller]
pub fn lu(x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = sizes("lu", x)?;
    let k = m.min(n);
    let dtype = x.dtype().to_float();
    let order = match m == n {
        true => lu_factor(x)?.1,
        false => order_of(x, m, n)?,
    };
    let index = order.unsqueeze(-1)?.broadcast_to(x.shape())?;
    let moved = x.astype(dtype)?.take_along_axis(&index, -2)?;
    // After the permutation, the leading square block needs no further row exchange.
    let block = moved.narrow(-2, 0, k)?.narrow(-1, 0, k)?;
    let (factors, _) = if m == n { lu_factor(x)? } else { lu_factor(&block)? };
    let one = Tensor::eye(k, dtype)?;
    let (mut l, mut u) = (factors.tril(-1)?.add(&one)?, factors.triu(0)?);
    if m > k {
        let below = moved.narrow(-2, k, m - k)?;
        // Solve for the rows of `L` with `L U = below` by the transposed system.
        let (left, right) = (u.swapaxes(-1, -2)?, below.swapaxes(-1, -2)?);
        let turned = solve_triangular(&left, &right, Triangle::Lower, Diagonal::Stored)?;
        l = crate::concat(&[&l, &turned.swapaxes(-1, -2)?], -2)?;
    }
    if n > k {
        let beside = moved.narrow(-1, k, n - k)?;
        let beside = solve_triangular(&l, &beside, Triangle::Lower, Diagonal::Unit)?;
        u = crate::concat(&[&u, &beside], -1)?;
    }
    // Row `i` of the product is row `order[i]` of the matrix.
    let p = order.unsqueeze(-2)?.eq(&Tensor::iota([m, 1], 0, DType::I64)?)?;
    Ok((p.astype(dtype.real())?, l, u))
}

/// The row order of non-square matrices, from a square factorisation: for wide matrices without the
/// excess columns, for tall matrices with additional columns of zeros, which do not affect the
/// pivots.
#[track_caller]
fn order_of(x: &Tensor, m: usize, n: usize) -> Result<Tensor> {
    if m < n {
        // Columns after the last pivot do not affect the order.
        return Ok(lu_factor(&x.narrow(-1, 0, m)?)?.1);
    }
    let mut widths = vec![(0, 0); x.rank()];
    widths[x.rank() - 1].1 = m - n;
    Ok(lu_factor(&x.pad(&widths, 0)?)?.1)
}
