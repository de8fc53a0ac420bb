//! LU factorisations of general matrices, and solutions of systems with them.

use super::{Diagonal, Triangle, calls, sizes, solve_triangular};
use crate::{DType, Result, Tensor, default_int, keepdims, where_};
use girih_ir::{OpCode, Shape};

/// LU factorisation of square matrices: both triangular factors in one matrix (without the ones on
/// the diagonal of `L`), and the pivots (i32), as LAPACK and SciPy have them, counted from zero: row
/// `i` was exchanged with row `pivots[i]`, for one `i` after the other.
///
/// Errors: a shape error unless the matrices are square.
#[track_caller]
pub fn lu_factor(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (factors, order) = factored(x)?;
    Ok((factors, pivots_of(&order)?))
}

/// The pivots that lead to an order of rows.
#[track_caller]
fn pivots_of(order: &Tensor) -> Result<Tensor> {
    let exchanged = exchanges(order, |rows, target, places| element(places, &rows.eq(target)?))?;
    exchanged.1.astype(DType::I32)
}

/// The order of rows to which pivots lead.
#[track_caller]
fn order_of_pivots(pivots: &Tensor) -> Result<Tensor> {
    Ok(exchanges(&pivots.astype(DType::I64)?, |_, from, _| Ok(from.clone()))?.0)
}

/// The element of each row that a mask with one true element per row chooses, as a column.
#[track_caller]
fn element(rows: &Tensor, mask: &Tensor) -> Result<Tensor> {
    where_(mask, rows, 0)?.sum(keepdims(-1))
}

/// Exchanges rows, which are numbered, one after the other: the row at each place with the row at
/// the place that `from` finds for the given number there. Gives the numbers in their last order,
/// and the places.
#[track_caller]
fn exchanges(
    given: &Tensor,
    from: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<(Tensor, Tensor)> {
    let last = given.rank() - 1;
    let places = Tensor::iota(given.shape(), last, DType::I64)?;
    if given.shape().dim(last).equals(0) {
        return Ok((places.clone(), places));
    }
    let step = |carries: &[Tensor], parts: &[Tensor]| {
        let (rows, at) = (&carries[0], &parts[1]);
        let from = from(rows, &parts[0].unsqueeze(-1)?, &places)?;
        let (here, there) = (places.eq(at)?, places.eq(&from)?);
        let (own, other) = (element(rows, &here)?, element(rows, &there)?);
        let rows = where_(&here, &other, &where_(&there, &own, rows)?)?;
        Ok((vec![rows], vec![from.squeeze(-1)?]))
    };
    let numbers = Tensor::iota(Shape::of_dims([given.shape().dim(last)]), 0, DType::I64)?;
    let along = given.moveaxis(&[-1], &[0])?;
    let (rows, found) = crate::scan(step, std::slice::from_ref(&places), &[along, numbers])?;
    Ok((rows[0].clone(), found[0].moveaxis(&[0], &[-1])?))
}

/// Both triangular factors of square matrices in one matrix, and the order of the rows (i64) with
/// `x[order] = L U`.
#[track_caller]
fn factored(x: &Tensor) -> Result<(Tensor, Tensor)> {
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
pub fn lu_solve(factors: &Tensor, pivots: &Tensor, b: &Tensor) -> Result<Tensor> {
    let column = if b.rank() == 1 { b.unsqueeze(-1)? } else { b.clone() };
    let ((n, _), (rows, columns)) = (sizes("lu_solve", factors)?, sizes("lu_solve", &column)?);
    if n != rows {
        let reason = format!("a system of {n} equations is solved for as many rows");
        let (op, lhs, rhs) = ("lu_solve", factors.shape(), b.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let order = order_of_pivots(pivots)?;
    let outer = |x: &Tensor, inner: usize| Shape::from(&x.shape()[..x.rank() - inner]);
    let batch = outer(&order, 1).broadcast(&outer(&column, 2), "lu_solve")?;
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
        true => factored(x)?.1,
        false => order_of(x, m, n)?,
    };
    let index = order.unsqueeze(-1)?.broadcast_to(x.shape())?;
    let moved = x.astype(dtype)?.take_along_axis(&index, -2)?;
    // After the permutation, the leading square block needs no further row exchange.
    let block = moved.narrow(-2, 0, k)?.narrow(-1, 0, k)?;
    let (factors, _) = if m == n { factored(x)? } else { factored(&block)? };
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
        return Ok(factored(&x.narrow(-1, 0, m)?)?.1);
    }
    let mut widths = vec![(0, 0); x.rank()];
    widths[x.rank() - 1].1 = m - n;
    Ok(factored(&x.pad(&widths, 0)?)?.1)
}
