//! Linear algebra on matrices in a tensor's last two axes; the leading axes are a batch. The names
//! and definitions are those of the array API standard. Integers become floating-point; half floats
//! are computed in f32 and rounded at the end.

mod functions;
mod lu;
mod norms;

pub use functions::{cond, expm, multi_dot};
pub use lu::{lu, lu_factor, lu_solve};
pub use norms::{MatrixNorm, matrix_norm, vector_norm};
pub(crate) use norms::{norm_of_rows, within_range};

use crate::{DType, Error, Operand, Result, Tensor, keepdims};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, Op, OpCode, Shape};
use smallvec::SmallVec;

/// Converts a tensor to a dtype that the routines support; also returns the dtype of the result.
#[track_caller]
pub(super) fn widened(x: &Tensor) -> Result<(Tensor, DType)> {
    let dtype = x.dtype().to_float();
    Ok((x.astype(dtype.widened())?, dtype))
}

/// The first `N` results of a call of a routine.
#[track_caller]
fn calls<const N: usize>(code: OpCode, flag: bool, x: &Tensor) -> Result<[Tensor; N]> {
    let (wide, dtype) = widened(x)?;
    let mut results = SmallVec::<[Tensor; N]>::new();
    for result in 0..N as u8 {
        let op = Op::new(code, Attrs::routine(flag)).with_result(result);
        results.push(Tensor::record(op, &[&wide])?);
    }
    // Results of the other kind (real for complex matrices, or complex for real ones) already have
    // the final precision.
    for out in results.iter_mut().filter(|out| out.dtype() == wide.dtype()) {
        *out = out.astype(dtype)?;
    }
    Ok(results.into_inner().unwrap_or_else(|_| unreachable!("one was pushed per result")))
}

/// One result of a call of a routine.
#[track_caller]
fn call(code: OpCode, result: u8, flag: bool, x: &Tensor) -> Result<Tensor> {
    let (wide, dtype) = widened(x)?;
    let op = Op::new(code, Attrs::routine(flag)).with_result(result);
    let out = Tensor::record(op, &[&wide])?;
    if out.dtype() == wide.dtype() { out.astype(dtype) } else { Ok(out) }
}

fn bad_shape(op: &'static str, shape: Shape, reason: impl Into<String>) -> Error {
    girih_ir::Error::InvalidShape { op, shape, reason: reason.into() }.into()
}

/// The numbers of rows and columns.
pub(super) fn sizes(op: &'static str, x: &Tensor) -> Result<(usize, usize)> {
    match &*x.shape() {
        &[.., rows, columns] => Ok((rows, columns)),
        _ => Err(bad_shape(op, x.shape(), "a matrix, or a batch of them, is needed")),
    }
}

/// The squared absolute values.
#[track_caller]
pub(super) fn abs_square(x: &Tensor) -> Result<Tensor> {
    match x.dtype().is_complex() {
        true => x.real()?.square()?.add(&x.imag()?.square()?),
        false => x.square(),
    }
}

/// A triangle of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Triangle {
    /// The diagonal and what is below it.
    Lower,
    /// The diagonal and what is above it.
    Upper,
}

/// The diagonal of a triangular matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagonal {
    /// As the matrix has it.
    Stored,
    /// Ones, whatever the matrix has.
    Unit,
}

/// How many columns the factors of a decomposition have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// As many as the smaller side of the matrix.
    Reduced,
    /// All: orthogonal factors are square.
    Full,
}

/// The lower triangular `L` with `x = L L^H`, or its adjoint, which is upper triangular. Only that
/// triangle of `x` is read.
///
/// Errors: when computed, if a matrix is not positive definite.
#[track_caller]
pub fn cholesky(x: &Tensor, triangle: Triangle) -> Result<Tensor> {
    call(OpCode::Cholesky, 0, triangle == Triangle::Upper, x)
}

/// The determinant.
#[track_caller]
pub fn det(x: &Tensor) -> Result<Tensor> {
    call(OpCode::Det, 0, false, x)
}

/// The sign of the determinant (a complex number of length one for complex matrices) and the
/// logarithm of its absolute value, which is real.
#[track_caller]
pub fn slogdet(x: &Tensor) -> Result<(Tensor, Tensor)> {
    calls::<2>(OpCode::Slogdet, false, x).map(Into::into)
}

/// The inverse.
///
/// Errors: when computed, if a matrix is singular.
#[track_caller]
pub fn inv(x: &Tensor) -> Result<Tensor> {
    call(OpCode::Inv, 0, false, x)
}

/// Converts the operands of a solver to one dtype and broadcasts their batch axes; a vector becomes
/// a column.
#[track_caller]
fn system(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor, DType)> {
    let dtype = a.dtype().to_float().promote(b.dtype().to_float())?;
    let (a, mut b) = (a.astype(dtype.widened())?, b.astype(dtype.widened())?);
    if b.rank() == 1 {
        b = b.unsqueeze(-1)?;
    }
    let ((m, n), (rows, columns)) = (sizes(op, &a)?, sizes(op, &b)?);
    let lead = |x: &Tensor| Shape::from(&x.shape()[..x.rank() - 2]);
    let batch = lead(&a).broadcast(&lead(&b), op)?;
    let to = |plane: [usize; 2]| -> Shape { batch.iter().copied().chain(plane).collect() };
    Ok((a.broadcast_to(to([m, n]))?, b.broadcast_to(to([rows, columns]))?, dtype))
}

/// Solves `a x = b` for `x`. A vector `b` is treated as one column, and the result is a vector.
///
/// Errors: a shape error unless `a` is square and fits; when computed, if a matrix is singular.
#[track_caller]
pub fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (wide_a, wide_b, dtype) = system("solve", a, b)?;
    let op = Op::new(OpCode::Solve, Attrs::routine(false));
    let x = Tensor::record(op, &[&wide_a, &wide_b])?.astype(dtype)?;
    if b.rank() == 1 { x.squeeze(-1) } else { Ok(x) }
}

/// Solves `a x = b` for `x` with one triangle of `a`, the rest of which is not read. A vector `b` is treated as one column, and the
/// result is a vector.
///
/// Errors: a shape error unless `a` is square and fits; when computed, for a zero on the diagonal.
#[track_caller]
pub fn solve_triangular(
    a: &Tensor,
    b: &Tensor,
    triangle: Triangle,
    diagonal: Diagonal,
) -> Result<Tensor> {
    let (wide_a, wide_b, dtype) = system("solve_triangular", a, b)?;
    let attrs = Attrs::Library {
        result: 0,
        flag: triangle == Triangle::Upper,
        size: (diagonal == Diagonal::Unit).into(),
    };
    let op = Op::new(OpCode::SolveTriangular, attrs);
    let x = Tensor::record(op, &[&wide_a, &wide_b])?.astype(dtype)?;
    if b.rank() == 1 { x.squeeze(-1) } else { Ok(x) }
}

/// QR decomposition: `q` with orthonormal columns and an upper triangular `r` with `x = q r`. `q`
/// has as many columns as the smaller side, or for [`Factors::Full`] as many as rows.
#[track_caller]
pub fn qr(x: &Tensor, factors: Factors) -> Result<(Tensor, Tensor)> {
    calls::<2>(OpCode::Qr, factors == Factors::Full, x).map(Into::into)
}

/// Eigendecomposition of Hermitian matrices: real eigenvalues in ascending order, and eigenvectors
/// as columns. Only one triangle is read.
#[track_caller]
pub fn eigh(x: &Tensor, triangle: Triangle) -> Result<(Tensor, Tensor)> {
    calls::<2>(OpCode::Eigh, triangle == Triangle::Upper, x).map(Into::into)
}

/// Ascending eigenvalues of Hermitian matrices; see [`eigh`].
#[track_caller]
pub fn eigvalsh(x: &Tensor, triangle: Triangle) -> Result<Tensor> {
    call(OpCode::Eigh, 0, triangle == Triangle::Upper, x)
}

/// Eigendecomposition of square matrices: eigenvalues, and eigenvectors as columns of length one.
/// Both are always complex, in no particular order. The non-real eigenvalues of real matrices come
/// in adjacent conjugate pairs; an eigenvector of a real eigenvalue of a real matrix is real.
///
/// The gradient of eigenvectors assumes that they keep their length and phase, so it is useful only
/// for functions that do not depend on these. It is not finite if eigenvalues are equal.
///
/// Errors: when computed, for NaN and infinities.
#[track_caller]
pub fn eig(x: &Tensor) -> Result<(Tensor, Tensor)> {
    calls::<2>(OpCode::Eig, false, x).map(Into::into)
}

/// Eigenvalues of any square matrices; see [`eig`].
#[track_caller]
pub fn eigvals(x: &Tensor) -> Result<Tensor> {
    call(OpCode::Eig, 0, false, x)
}

/// Singular value decomposition: `u`, `s`, `vh` with `x = u diag(s) vh`, where `u` has orthonormal
/// columns, `vh` orthonormal rows, and `s` descends. For [`Factors::Full`], `u` and `vh` are square.
#[track_caller]
pub fn svd(x: &Tensor, factors: Factors) -> Result<(Tensor, Tensor, Tensor)> {
    calls::<3>(OpCode::Svd, factors == Factors::Full, x).map(Into::into)
}

/// The singular values in descending order.
#[track_caller]
pub fn svdvals(x: &Tensor) -> Result<Tensor> {
    call(OpCode::Svd, 1, false, x)
}

/// The ratio to the largest singular value, per matrix or for all, up to which singular values are
/// treated as zero; by default the larger side times the epsilon of `dtype`.
#[track_caller]
fn tolerance(x: &Tensor, rtol: Option<Operand<'_>>, dtype: DType) -> Result<Tensor> {
    let epsilon = match dtype.real() {
        DType::F64 => f64::EPSILON,
        DType::F16 => 9.765625e-4,
        DType::BF16 => 7.8125e-3,
        _ => f32::EPSILON as f64,
    };
    let real = x.dtype().real();
    match rtol {
        None => {
            let (m, n) = sizes("pinv", x)?;
            Operand::Float(m.max(n) as f64 * epsilon).constant(real)
        }
        Some(Operand::Tensor(t)) => t.astype(real),
        Some(rtol) => rtol.constant(real),
    }
}

/// The Moore-Penrose pseudo-inverse. Singular values up to `rtol` times the largest are treated as
/// zero; the default `rtol` is the larger side times the dtype's epsilon. The derivative is that of
/// matrices of the same rank.
#[track_caller]
pub fn pinv(x: &Tensor, rtol: Option<Operand<'_>>) -> Result<Tensor> {
    sizes("pinv", x)?;
    let (wide, dtype) = widened(x)?;
    let tolerance = tolerance(&wide, rtol, dtype)?;
    let shape = wide.shape();
    let (batch, plane) = (shape.part(..shape.rank() - 2), shape.part(shape.rank() - 2..));
    let batch = batch.broadcast(&tolerance.shape(), "pinv")?;
    let wide = wide.broadcast_to(batch.dims().chain(plane.dims()).collect::<Shape>())?;
    Tensor::record(OpCode::Pinv.into(), &[&wide, &tolerance.broadcast_to(batch)?])?.astype(dtype)
}

/// The number (i64) of singular values above `rtol` times the largest; see [`pinv`].
#[track_caller]
pub fn matrix_rank(x: &Tensor, rtol: Option<Operand<'_>>) -> Result<Tensor> {
    let (m, n) = sizes("matrix_rank", x)?;
    if m.min(n) == 0 {
        let shape = x.shape();
        let lead: Shape = shape[..shape.rank() - 2].into();
        return Tensor::zeros(lead, crate::default_int());
    }
    let s = svdvals(x)?;
    let (wide, dtype) = widened(x)?;
    let cutoff = s.max(keepdims(-1))?.mul(&tolerance(&wide, rtol, dtype)?.unsqueeze(-1)?)?;
    s.gt(&cutoff)?.sum(-1)
}

/// The least-squares solution of [`lstsq`].
pub struct LeastSquares {
    /// The minimum-norm `x` that minimises the norm of `a x - b`.
    pub solution: Tensor,
    /// The sums of squared absolute values of `a x - b`, per column.
    pub residuals: Tensor,
    /// The rank of `a`, i64.
    pub rank: Tensor,
    /// The singular values of `a`.
    pub singular_values: Tensor,
}

/// The minimum-norm `x` that minimises the norm of `a x - b`. Singular values of `a` up to `rtol`
/// times the largest are treated as zero, see [`pinv`]. A vector `b` is treated as one column, and
/// the results are vectors.
///
/// Errors: a shape error unless `a` and `b` have the same number of rows.
#[track_caller]
pub fn lstsq(a: &Tensor, b: &Tensor, rtol: Option<Operand<'_>>) -> Result<LeastSquares> {
    let (wide_a, wide_b, dtype) = system("lstsq", a, b)?;
    let ((rows, _), (other, _)) = (sizes("lstsq", &wide_a)?, sizes("lstsq", &wide_b)?);
    if rows != other {
        let reason = "both must have as many rows".to_string();
        let (op, lhs, rhs) = ("lstsq", a.shape(), b.shape());
        return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
    }
    let solution = pinv(&wide_a, rtol)?.product(&wide_b)?;
    let difference = wide_a.product(&solution)?.sub(&wide_b)?;
    let (mut solution, mut residuals) = (solution, abs_square(&difference)?.sum(-2)?);
    if b.rank() == 1 {
        (solution, residuals) = (solution.squeeze(-1)?, residuals.squeeze(-1)?);
    }
    Ok(LeastSquares {
        solution: solution.astype(dtype)?,
        residuals: residuals.astype(dtype.real())?,
        rank: matrix_rank(&wide_a, rtol)?,
        singular_values: svdvals(&wide_a)?.astype(dtype.real())?,
    })
}

/// Exchanges the last two axes.
///
/// Errors: a shape error for fewer than two axes.
#[track_caller]
pub fn matrix_transpose(x: &Tensor) -> Result<Tensor> {
    sizes("matrix_transpose", x)?;
    x.swapaxes(-1, -2)
}

/// The `n`-th power of square matrices; a negative `n` inverts them, 0 gives the identity.
///
/// Errors: a shape error unless the matrices are square.
#[track_caller]
pub fn matrix_power(x: &Tensor, n: i64) -> Result<Tensor> {
    let (rows, columns) = sizes("matrix_power", x)?;
    if rows != columns {
        let reason = format!("square matrices are needed, these are {rows} by {columns}");
        return Err(bad_shape("matrix_power", x.shape(), reason));
    }
    if n == 0 {
        let index = |axis| Tensor::iota([rows, rows], axis, DType::I64);
        return index(0)?.eq(&index(1)?)?.astype(x.dtype())?.broadcast_to(x.shape());
    }
    let mut square = if n < 0 { inv(x)? } else { x.clone() };
    let (mut left, mut product) = (n.unsigned_abs(), None::<Tensor>);
    loop {
        if left & 1 == 1 {
            product = Some(match product {
                None => square.clone(),
                Some(product) => product.product(&square)?,
            });
        }
        left >>= 1;
        match (left, product) {
            (0, Some(product)) => return Ok(product),
            (_, rest) => product = rest,
        }
        square = square.product(&square)?;
    }
}

/// The elements on the `offset`-th diagonal of the last two axes.
///
/// Errors: a shape error for fewer than two axes.
#[track_caller]
pub fn diagonal(x: &Tensor, offset: i64) -> Result<Tensor> {
    sizes("diagonal", x)?;
    x.diagonal(offset, -2, -1)
}

/// The sum of the `offset`-th diagonal of the last two axes, in the accumulator dtype.
///
/// Errors: a shape error for fewer than two axes.
#[track_caller]
pub fn trace(x: &Tensor, offset: i64) -> Result<Tensor> {
    sizes("trace", x)?;
    x.diagonal(offset, -2, -1)?.sum(-1)
}

/// The outer product of two vectors.
///
/// Errors: a shape error unless both are vectors.
#[track_caller]
pub fn outer(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    for x in [a, b] {
        if x.rank() != 1 {
            return Err(bad_shape("outer", x.shape(), "vectors are needed"));
        }
    }
    a.outer(b)
}

/// The cross product of vectors of three elements along an axis, which may count from the end; the
/// other axes broadcast.
///
/// Errors: a shape error for another size.
#[track_caller]
pub fn cross(a: &Tensor, b: &Tensor, axis: i64) -> Result<Tensor> {
    for x in [a, b] {
        let size = x.shape()[normalize_axis("cross", axis, x.rank())?];
        if size != 3 {
            let reason = format!("vectors of 3 elements are needed along axis {axis}, not {size}");
            return Err(bad_shape("cross", x.shape(), reason));
        }
    }
    let part = |x: &Tensor, i: usize| x.narrow(axis, i, 1);
    let component =
        |i: usize, j: usize| part(a, i)?.mul(&part(b, j)?)?.sub(&part(a, j)?.mul(&part(b, i)?)?);
    let parts = [component(1, 2)?, component(2, 0)?, component(0, 1)?];
    crate::concat(&parts, axis)
}

/// [`Tensor::vecdot`] as a function.
///
/// Errors: as [`Tensor::vecdot`].
#[track_caller]
pub fn vecdot(a: &Tensor, b: &Tensor, axis: i64) -> Result<Tensor> {
    a.vecdot(b, axis)
}

/// [`Tensor::tensordot`] as a function.
///
/// Errors: as [`Tensor::tensordot`].
#[track_caller]
pub fn tensordot(a: &Tensor, b: &Tensor, axes: (&[i64], &[i64])) -> Result<Tensor> {
    a.tensordot(b, axes)
}
