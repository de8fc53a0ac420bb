//! Derivatives of the ops on matrices. An op that reads one triangle has its gradient there: that
//! of an element off the diagonal counts for both places it stands for.
//!
//! Source: Giles 2008, Collected matrix derivative results; Townsend 2016, Differentiating the
//! singular value decomposition; Walter and Lehmann 2010 for QR.

use crate::ops::rules::only;
use crate::ops::{Attrs, Cotangents, Vjp};
use crate::{DType, Error, GraphBuilder, NodeId, Op, OpCode, Result};
use smallvec::smallvec;

/// Rows and columns of a matrix.
fn size(b: &GraphBuilder, x: NodeId) -> (usize, usize) {
    let shape = b.shape(x);
    (shape[shape.rank() - 2], shape[shape.rank() - 1])
}

/// A truth value per element of matrices of `x`'s size, from comparing row and column.
fn mask(b: &mut GraphBuilder, x: NodeId, compare: OpCode) -> Result<NodeId> {
    let (rows, columns) = size(b, x);
    let row = b.iota([rows, columns], DType::I64, 0);
    let column = b.iota([rows, columns], DType::I64, 1);
    b.op(compare, &[row, column])
}

/// The elements where row and column compare so, zeros elsewhere.
fn part(b: &mut GraphBuilder, x: NodeId, compare: OpCode) -> Result<NodeId> {
    let (mask, zero) = (mask(b, x, compare)?, b.scalar_like(x, 0.0));
    b.select(mask, x, zero)
}

/// `a b^T`.
fn by_transposed(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let y = b.transpose(y)?;
    b.matmul(x, y)
}

/// `a^T b`.
fn transposed_by(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let x = b.transpose(x)?;
    b.matmul(x, y)
}

/// A vector per matrix, as a row (`axis` -2) or a column (-1).
fn broadcastable(b: &mut GraphBuilder, w: NodeId, column: bool) -> Result<NodeId> {
    let shape = b.shape(w).clone();
    let (batch, n) = (&shape[..shape.rank() - 1], shape[shape.rank() - 1]);
    let plane = if column { [n, 1] } else { [1, n] };
    let shape: Vec<usize> = batch.iter().copied().chain(plane).collect();
    b.reshape(w, shape)
}

/// A number per matrix, to be multiplied with it.
fn factor(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let shape: Vec<usize> = b.shape(x).iter().copied().chain([1, 1]).collect();
    b.reshape(x, shape)
}

fn solved(b: &mut GraphBuilder, upper: bool, a: NodeId, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(OpCode::SolveTriangular, Attrs::routine(upper)), &[a, x])
}

/// The gradient of a symmetric matrix, for the triangle that is read: `s + s^T`, its diagonal
/// halved.
fn folded(b: &mut GraphBuilder, s: NodeId, upper: bool) -> Result<NodeId> {
    let transposed = b.transpose(s)?;
    let both = b.add(s, transposed)?;
    let beside = part(b, both, if upper { OpCode::Lt } else { OpCode::Gt })?;
    let diagonal = part(b, s, OpCode::Eq)?;
    b.add(beside, diagonal)
}

fn flag(v: &Vjp<'_>) -> bool {
    v.op.attrs.library().1
}

/// `S = L^-T phi(L^T ct) L^-1`, where `phi` takes the lower triangle, its diagonal halved.
pub(super) fn cholesky(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let upper = flag(v);
    let (mut l, mut ct) = (v.output, v.ct);
    if upper {
        (l, ct) = (v.b.transpose(l)?, v.b.transpose(ct)?);
    }
    let ct = part(v.b, ct, OpCode::Ge)?;
    let product = transposed_by(v.b, l, ct)?;
    let (beside, diagonal) = (part(v.b, product, OpCode::Gt)?, part(v.b, product, OpCode::Eq)?);
    let half = v.b.scalar_like(product, 0.5);
    let diagonal = v.b.mul(diagonal, half)?;
    let phi = v.b.add(beside, diagonal)?;
    let adjoint = v.b.transpose(l)?;
    let left = solved(v.b, true, adjoint, phi)?;
    let left = v.b.transpose(left)?;
    // Its transpose: the sum with it is all that counts.
    let s = solved(v.b, true, adjoint, left)?;
    only(folded(v.b, s, upper)?)
}

pub(super) fn solve(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let transposed = v.b.transpose(v.inputs[0])?;
    let of_b = v.b.emit(v.op.clone(), &[transposed, v.ct])?;
    let product = by_transposed(v.b, of_b, v.output)?;
    Ok(smallvec![Some(v.b.neg(product)?), Some(of_b)])
}

pub(super) fn solve_triangular(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (_, upper, unit) = v.op.attrs.library();
    let transposed = v.b.transpose(v.inputs[0])?;
    let attrs = Attrs::Library { result: 0, flag: !upper, size: unit };
    let of_b = v.b.emit(Op::new(v.op.code, attrs), &[transposed, v.ct])?;
    let product = by_transposed(v.b, of_b, v.output)?;
    let product = v.b.neg(product)?;
    let read = match (upper, unit) {
        (false, 0) => OpCode::Ge,
        (false, _) => OpCode::Gt,
        (true, 0) => OpCode::Le,
        (true, _) => OpCode::Lt,
    };
    Ok(smallvec![Some(part(v.b, product, read)?), Some(of_b)])
}

pub(super) fn inv(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let product = transposed_by(v.b, v.output, v.ct)?;
    let product = by_transposed(v.b, product, v.output)?;
    only(v.b.neg(product)?)
}

fn inverse_transposed(v: &mut Vjp<'_>) -> Result<NodeId> {
    let inverse = v.b.emit(Op::new(OpCode::Inv, Attrs::routine(false)), &[v.inputs[0]])?;
    v.b.transpose(inverse)
}

pub(super) fn det(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let product = v.b.mul(v.ct, v.output)?;
    let (product, inverse) = (factor(v.b, product)?, inverse_transposed(v)?);
    only(v.b.mul(product, inverse)?)
}

pub(super) fn slogdet(v: &mut Vjp<'_>) -> Result<Cotangents> {
    if v.op.attrs.library().0 == 0 {
        return Ok(smallvec![None]);
    }
    let (ct, inverse) = (factor(v.b, v.ct)?, inverse_transposed(v)?);
    only(v.b.mul(ct, inverse)?)
}

fn undefined(v: &Vjp<'_>, reason: &str) -> Error {
    Error::InvalidArgument { op: v.op.name(), reason: reason.into() }
}

pub(super) fn qr(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let x = v.inputs[0];
    let (m, n) = size(v.b, x);
    let (result, complete, _) = v.op.attrs.library();
    if complete && m > n {
        return Err(undefined(
            v,
            "the columns beyond the matrix's own are not determined, so they have no gradient; \
             use mode='reduced'",
        ));
    }
    let (q, r) =
        (v.b.emit(v.op.with_result(0), v.inputs)?, v.b.emit(v.op.with_result(1), v.inputs)?);
    let axis = v.b.shape(x).rank() - 1;
    if m >= n {
        let (of_q, of_r) = if result == 0 { (Some(v.ct), None) } else { (None, Some(v.ct)) };
        return only(tall_qr(v.b, q, r, of_q, of_r)?);
    }
    // [X Y] = Q [U V]: a square X, and V = Q^T Y.
    let (ct, square) = (v.ct, v.b.slice_axis(r, axis, 0, m)?);
    if result == 0 {
        let left = tall_qr(v.b, q, square, Some(ct), None)?;
        let rest = v.b.slice_axis(x, axis, m, n - m)?;
        let zeros = v.b.zeros_like(rest);
        return only(v.b.concat(&[left, zeros], axis as u8)?);
    }
    let (of_u, of_v) = (v.b.slice_axis(ct, axis, 0, m)?, v.b.slice_axis(ct, axis, m, n - m)?);
    let y = v.b.slice_axis(x, axis, m, n - m)?;
    let of_q = by_transposed(v.b, y, of_v)?;
    let left = tall_qr(v.b, q, square, Some(of_q), Some(of_u))?;
    let right = v.b.matmul(q, of_v)?;
    only(v.b.concat(&[left, right], axis as u8)?)
}

/// `(ct_q + Q copyltu(R ct_r^T - ct_q^T Q)) R^-T` for at least as many rows as columns; `copyltu`
/// mirrors the lower triangle.
fn tall_qr(
    b: &mut GraphBuilder,
    q: NodeId,
    r: NodeId,
    of_q: Option<NodeId>,
    of_r: Option<NodeId>,
) -> Result<NodeId> {
    let mut sum: Option<NodeId> = None;
    if let Some(of_r) = of_r {
        let of_r = part(b, of_r, OpCode::Le)?;
        sum = Some(by_transposed(b, r, of_r)?);
    }
    if let Some(of_q) = of_q {
        let product = transposed_by(b, of_q, q)?;
        let product = b.neg(product)?;
        sum = Some(match sum {
            Some(sum) => b.add(sum, product)?,
            None => product,
        });
    }
    let sum = sum.expect("one of the two has a cotangent");
    let lower = part(b, sum, OpCode::Gt)?;
    let (upper, diagonal) = (b.transpose(lower)?, part(b, sum, OpCode::Eq)?);
    let mirrored = b.add(lower, upper)?;
    let mirrored = b.add(mirrored, diagonal)?;
    let mut total = b.matmul(q, mirrored)?;
    if let Some(of_q) = of_q {
        total = b.add(total, of_q)?;
    }
    let transposed = b.transpose(total)?;
    let out = solved(b, true, r, transposed)?;
    b.transpose(out)
}

/// One over `w_j - w_i` at row `i`, column `j`; zero on the diagonal.
fn gaps(b: &mut GraphBuilder, w: NodeId) -> Result<NodeId> {
    let (row, column) = (broadcastable(b, w, false)?, broadcastable(b, w, true)?);
    let gap = b.sub(row, column)?;
    let (equal, one, zero) =
        (mask(b, gap, OpCode::Eq)?, b.scalar_like(gap, 1.0), b.scalar_like(gap, 0.0));
    let gap = b.select(equal, one, gap)?;
    let inverse = b.div(one, gap)?;
    b.select(equal, zero, inverse)
}

pub(super) fn eigh(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (result, upper, _) = v.op.attrs.library();
    let vectors = v.b.emit(v.op.with_result(1), v.inputs)?;
    let inner = match result {
        0 => {
            let ct = broadcastable(v.b, v.ct, false)?;
            let scaled = v.b.mul(vectors, ct)?;
            let s = by_transposed(v.b, scaled, vectors)?;
            return only(folded(v.b, s, upper)?);
        }
        _ => transposed_by(v.b, vectors, v.ct)?,
    };
    let values = v.b.emit(v.op.with_result(0), v.inputs)?;
    let gaps = gaps(v.b, values)?;
    let inner = v.b.mul(gaps, inner)?;
    let s = v.b.matmul(vectors, inner)?;
    let s = by_transposed(v.b, s, vectors)?;
    // Half of the sum with its transpose, twice.
    let half = v.b.scalar_like(s, 0.5);
    let transposed = v.b.transpose(s)?;
    let s = v.b.add(s, transposed)?;
    let s = v.b.mul(s, half)?;
    only(folded(v.b, s, upper)?)
}

pub(super) fn svd(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (result, full, _) = v.op.attrs.library();
    let (m, n) = size(v.b, v.inputs[0]);
    if full && m != n && result != 1 {
        return Err(undefined(
            v,
            "the vectors beyond the singular values are not determined, so they have no \
             gradient; use full_matrices=False",
        ));
    }
    let op = Op::new(OpCode::Svd, Attrs::routine(false));
    let mut part = |result| v.b.emit(op.with_result(result), v.inputs);
    let (u, s, vh) = (part(0)?, part(1)?, part(2)?);
    match result {
        1 => {
            let ct = broadcastable(v.b, v.ct, false)?;
            let scaled = v.b.mul(u, ct)?;
            only(v.b.matmul(scaled, vh)?)
        }
        0 => only(vectors_vjp(v.b, u, s, vh, v.ct)?),
        // The matrix transposed has left and right exchanged.
        _ => {
            let (left, right) = (v.b.transpose(vh)?, v.b.transpose(u)?);
            let ct = v.b.transpose(v.ct)?;
            let transposed = vectors_vjp(v.b, left, s, right, ct)?;
            only(v.b.transpose(transposed)?)
        }
    }
}

/// `[U (F o (U^T ct - ct^T U)) S + (I - U U^T) ct S^-1] V^T`, with `F` one over the gaps of the
/// squared singular values.
fn vectors_vjp(
    b: &mut GraphBuilder,
    u: NodeId,
    s: NodeId,
    vh: NodeId,
    ct: NodeId,
) -> Result<NodeId> {
    let squares = b.mul(s, s)?;
    let gaps = gaps(b, squares)?;
    let inner = transposed_by(b, u, ct)?;
    let transposed = b.transpose(inner)?;
    let skew = b.sub(inner, transposed)?;
    let skew = b.mul(gaps, skew)?;
    let row = broadcastable(b, s, false)?;
    let skew = b.mul(skew, row)?;
    let within = b.matmul(u, skew)?;
    let along = b.matmul(u, inner)?;
    let rest = b.sub(ct, along)?;
    let rest = b.div(rest, row)?;
    let left = b.add(within, rest)?;
    b.matmul(left, vh)
}
