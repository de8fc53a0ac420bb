//! Derivatives of the ops on matrices. An op that reads one triangle has its gradient there: that
//! of an element off the diagonal counts for both places it stands for.
//!
//! The cotangents of complex numbers pair with a change `dz` as `real(ct * dz)`, so that the rules of
//! holomorphic functions (solutions, inverses, determinants) are those of the real ones, with plain
//! transposes. Factors are not holomorphic: their rules are written for the conjugate, with adjoints,
//! and [`by_gradient`] conjugates on the way in and out.
//!
//! Source: Giles 2008, Collected matrix derivative results; Townsend 2016, Differentiating the
//! singular value decomposition; Walter and Lehmann 2010 for QR.

use crate::ops::rules::only;
use crate::ops::{Attrs, Cotangents, Vjp};
use crate::{AxisSet, DType, Dim, Error, GraphBuilder, NodeId, Op, OpCode, Result, Shape};
use smallvec::smallvec;

/// Rows and columns of a matrix.
fn size(b: &GraphBuilder, x: NodeId) -> (usize, usize) {
    let shape = b.shape(x);
    (shape.dim(shape.rank() - 2).get(), shape.dim(shape.rank() - 1).get())
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

/// The conjugate; real numbers as they are.
fn conj(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    if b.dtype(x).is_complex() { b.conj(x) } else { Ok(x) }
}

/// The conjugate transpose.
fn adjoint(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let x = b.transpose(x)?;
    conj(b, x)
}

/// Real numbers in the dtype of others.
fn like(b: &mut GraphBuilder, x: NodeId, other: NodeId) -> Result<NodeId> {
    let dtype = b.dtype(other);
    if b.dtype(x) == dtype { Ok(x) } else { b.cast(x, dtype) }
}

/// The real part, in the operand's dtype.
fn real_part(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    if !b.dtype(x).is_complex() {
        return Ok(x);
    }
    let real = b.real(x)?;
    like(b, real, x)
}

/// A rule on the conjugates of its cotangent and its result.
fn by_gradient(
    v: &mut Vjp<'_>,
    rule: impl FnOnce(&mut Vjp<'_>, NodeId) -> Result<NodeId>,
) -> Result<Cotangents> {
    let ct = conj(v.b, v.ct)?;
    let gradient = rule(v, ct)?;
    only(conj(v.b, gradient)?)
}

/// `a b^H`.
fn by_adjoint(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let y = adjoint(b, y)?;
    b.matmul(x, y)
}

/// `a^H b`.
fn adjoint_by(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let x = adjoint(b, x)?;
    b.matmul(x, y)
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
    let (batch, n) = (shape.rank() - 1, shape.dim(shape.rank() - 1));
    let plane = if column { [n, Dim::from(1)] } else { [Dim::from(1), n] };
    b.reshape(w, shape.dims().take(batch).chain(plane).collect::<Shape>())
}

/// A number per matrix, to be multiplied with it.
fn factor(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let shape: Shape = b.shape(x).dims().chain([Dim::from(1); 2]).collect();
    b.reshape(x, shape)
}

fn solved(b: &mut GraphBuilder, upper: bool, a: NodeId, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(OpCode::SolveTriangular, Attrs::routine(upper)), &[a, x])
}

/// The gradient of a Hermitian matrix, for the triangle that is read: `s + s^H`, its diagonal
/// halved.
fn folded(b: &mut GraphBuilder, s: NodeId, upper: bool) -> Result<NodeId> {
    let other = adjoint(b, s)?;
    let both = b.add(s, other)?;
    let beside = part(b, both, if upper { OpCode::Lt } else { OpCode::Gt })?;
    let diagonal = part(b, s, OpCode::Eq)?;
    let diagonal = real_part(b, diagonal)?;
    b.add(beside, diagonal)
}

fn flag(v: &Vjp<'_>) -> bool {
    v.op.attrs.library().1
}

/// `S = L^-H phi(L^H ct) L^-1`, where `phi` takes the lower triangle, its diagonal halved.
pub(super) fn cholesky(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let upper = flag(v);
    by_gradient(v, |v, mut ct| {
        let mut l = v.output;
        if upper {
            (l, ct) = (adjoint(v.b, l)?, adjoint(v.b, ct)?);
        }
        let ct = part(v.b, ct, OpCode::Ge)?;
        let product = adjoint_by(v.b, l, ct)?;
        let (beside, diagonal) = (part(v.b, product, OpCode::Gt)?, part(v.b, product, OpCode::Eq)?);
        let half = v.b.scalar_like(product, 0.5);
        let diagonal = v.b.mul(diagonal, half)?;
        let phi = v.b.add(beside, diagonal)?;
        let right = adjoint(v.b, l)?;
        let left = solved(v.b, true, right, phi)?;
        let left = adjoint(v.b, left)?;
        // Its adjoint: the sum with it is all that counts.
        let s = solved(v.b, true, right, left)?;
        folded(v.b, s, upper)
    })
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

/// The transposed inverse; infinite or NaN for a singular matrix.
fn inverse_transposed(v: &mut Vjp<'_>) -> Result<NodeId> {
    let inverse = v.b.emit(Op::new(OpCode::Inv, Attrs::routine(true)), &[v.inputs[0]])?;
    v.b.transpose(inverse)
}

pub(super) fn det(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let cofactors = v.b.emit(Op::new(OpCode::Cofactors, Attrs::routine(false)), v.inputs)?;
    let ct = factor(v.b, v.ct)?;
    only(v.b.mul(ct, cofactors)?)
}

/// Symmetric in the cotangent and in a change of the matrix: see [`cofactor_slopes`].
fn slopes(b: &mut GraphBuilder, a: NodeId, w: NodeId) -> Result<NodeId> {
    b.emit(Op::new(OpCode::CofactorSlopes, Attrs::routine(false)), &[a, w])
}

pub(super) fn cofactors(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(slopes(v.b, v.inputs[0], v.ct)?)
}

/// The sum over each matrix, to be multiplied with it.
fn total(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let rank = b.shape(x).rank();
    b.sum(x, (rank - 2..rank).collect::<AxisSet>(), true)
}

/// The slopes are `D(w) = det(A) (tr(x) A^-T - (x A^-1)^T)` with `x = A^-1 w`, and the sum of
/// `ct o D(w)` is that of `w o D(ct)`. With `y = A^-1 ct`, the matrix gets
/// `C (tr(x) tr(y) - tr(xy) - tr(y) x - tr(x) y + xy + yx)^T`, where `C` is its cofactors: infinite
/// or NaN for a singular one.
pub(super) fn cofactor_slopes(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (a, w) = (v.inputs[0], v.inputs[1]);
    let of_a = v.operand(0, |v| {
        let inverse = v.b.emit(Op::new(OpCode::Inv, Attrs::routine(true)), &[a])?;
        let (x, y) = (v.b.matmul(inverse, w)?, v.b.matmul(inverse, v.ct)?);
        let (xy, yx) = (v.b.matmul(x, y)?, v.b.matmul(y, x)?);
        let mut trace = |m| {
            let diagonal = part(v.b, m, OpCode::Eq)?;
            total(v.b, diagonal)
        };
        let (of_x, of_y, of_xy) = (trace(x)?, trace(y)?, trace(xy)?);
        let both = v.b.mul(of_x, of_y)?;
        let along = v.b.sub(both, of_xy)?;
        let shape = v.b.shape(x).clone();
        let along = v.b.broadcast_to(along, shape)?;
        let along = part(v.b, along, OpCode::Eq)?;
        let (scaled_x, scaled_y) = (v.b.mul(of_y, x)?, v.b.mul(of_x, y)?);
        let sum = v.b.sub(along, scaled_x)?;
        let sum = v.b.sub(sum, scaled_y)?;
        let sum = v.b.add(sum, xy)?;
        let sum = v.b.add(sum, yx)?;
        let cofactors = v.b.emit(Op::new(OpCode::Cofactors, Attrs::routine(false)), &[a])?;
        by_transposed(v.b, cofactors, sum)
    })?;
    Ok(smallvec![of_a, v.operand(1, |v| slopes(v.b, a, v.ct))?])
}

/// A change `dA` moves the logarithm by the real part of `t = sum(A^-T o dA)`, and turns the sign
/// by its imaginary part.
pub(super) fn slogdet(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let complex = v.b.dtype(v.inputs[0]).is_complex();
    let ct = match v.op.attrs.library().0 {
        0 if !complex => return Ok(smallvec![None]),
        0 => {
            let product = v.b.mul(v.ct, v.output)?;
            let turned = v.b.imag(product)?;
            let zero = v.b.scalar_like(turned, 0.0);
            v.b.complex(zero, turned)?
        }
        _ => like(v.b, v.ct, v.inputs[0])?,
    };
    let (ct, inverse) = (factor(v.b, ct)?, inverse_transposed(v)?);
    only(v.b.mul(ct, inverse)?)
}

fn undefined(v: &Vjp<'_>, reason: &str) -> Error {
    Error::InvalidArgument { op: v.op.name(), reason: reason.into() }
}

/// With `P A = L U`: `dL = L tril(F, -1)` and `dU = triu(F) U` of `F = L^-1 P dA U^-1`, the diagonal
/// in the latter. Which rows are exchanged is constant.
pub(super) fn lu(v: &mut Vjp<'_>) -> Result<Cotangents> {
    if v.op.attrs.library().0 == 1 {
        return Ok(smallvec![None]);
    }
    let (factors, ct) = (v.output, v.ct);
    let rows = v.b.emit(v.op.with_result(1), v.inputs)?;
    let (below, diagonal) = (part(v.b, factors, OpCode::Gt)?, mask(v.b, factors, OpCode::Eq)?);
    let one = v.scalar(1.0);
    let lower = v.b.select(diagonal, one, below)?;
    let upper = part(v.b, factors, OpCode::Le)?;
    let (of_lower, of_upper) = (part(v.b, ct, OpCode::Gt)?, part(v.b, ct, OpCode::Le)?);
    let left = transposed_by(v.b, lower, of_lower)?;
    let right = by_transposed(v.b, of_upper, upper)?;
    let (left, right) = (part(v.b, left, OpCode::Gt)?, part(v.b, right, OpCode::Le)?);
    let both = v.b.add(left, right)?;
    let solve = |b: &mut GraphBuilder, triangle: NodeId, x: NodeId, unit: bool| {
        let attrs = Attrs::Library { result: 0, flag: true, size: unit as u32 };
        b.emit(Op::new(OpCode::SolveTriangular, attrs), &[triangle, x])
    };
    let turned = v.b.transpose(factors)?;
    let x = solve(v.b, turned, both, true)?;
    let x = v.b.transpose(x)?;
    let x = solve(v.b, factors, x, false)?;
    let x = v.b.transpose(x)?;
    // Each row goes back to where it came from.
    let (_, n) = size(v.b, factors);
    let from = broadcastable(v.b, rows, true)?;
    let numbers = v.b.iota([1, n], v.b.dtype(rows), 1);
    let moved = v.b.eq(from, numbers)?;
    let moved = v.b.cast(moved, v.b.dtype(factors))?;
    only(transposed_by(v.b, moved, x)?)
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
    by_gradient(v, |v, ct| {
        let (of_q, of_r) = if result == 0 { (Some(ct), None) } else { (None, Some(ct)) };
        match m >= n {
            true => tall_qr(v.b, q, r, of_q, of_r),
            false => wide_qr(v.b, x, (q, r), of_q, of_r),
        }
    })
}

/// For more columns than rows: `[X Y] = Q [U V]` with a square `X`, and `V = Q^H Y`.
fn wide_qr(
    b: &mut GraphBuilder,
    x: NodeId,
    (q, r): (NodeId, NodeId),
    of_q: Option<NodeId>,
    of_r: Option<NodeId>,
) -> Result<NodeId> {
    let (m, n) = size(b, x);
    let axis = b.shape(x).rank() - 1;
    let square = b.slice_axis(r, axis, 0, m)?;
    let y = b.slice_axis(x, axis, m, n - m)?;
    let Some(of_r) = of_r else {
        let left = tall_qr(b, q, square, of_q, None)?;
        let zeros = b.zeros_like(y);
        return b.concat(&[left, zeros], axis as u8);
    };
    let (of_u, of_v) = (b.slice_axis(of_r, axis, 0, m)?, b.slice_axis(of_r, axis, m, n - m)?);
    let of_q = by_adjoint(b, y, of_v)?;
    let left = tall_qr(b, q, square, Some(of_q), Some(of_u))?;
    let right = b.matmul(q, of_v)?;
    b.concat(&[left, right], axis as u8)
}

/// `(ct_q + Q copyltu(R ct_r^H - ct_q^H Q)) R^-H` for at least as many rows as columns; `copyltu`
/// mirrors the lower triangle, and takes the real part of the diagonal.
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
        sum = Some(by_adjoint(b, r, of_r)?);
    }
    if let Some(of_q) = of_q {
        let product = adjoint_by(b, of_q, q)?;
        let product = b.neg(product)?;
        sum = Some(match sum {
            Some(sum) => b.add(sum, product)?,
            None => product,
        });
    }
    let sum = sum.expect("one of the two has a cotangent");
    let lower = part(b, sum, OpCode::Gt)?;
    let (upper, diagonal) = (adjoint(b, lower)?, part(b, sum, OpCode::Eq)?);
    let diagonal = real_part(b, diagonal)?;
    let mirrored = b.add(lower, upper)?;
    let mirrored = b.add(mirrored, diagonal)?;
    let mut total = b.matmul(q, mirrored)?;
    if let Some(of_q) = of_q {
        total = b.add(total, of_q)?;
    }
    let total = adjoint(b, total)?;
    let out = solved(b, true, r, total)?;
    adjoint(b, out)
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
    if result == 0 {
        return by_gradient(v, |v, ct| {
            let ct = like(v.b, ct, vectors)?;
            let ct = broadcastable(v.b, ct, false)?;
            let scaled = v.b.mul(vectors, ct)?;
            let s = by_adjoint(v.b, scaled, vectors)?;
            folded(v.b, s, upper)
        });
    }
    let values = v.b.emit(v.op.with_result(0), v.inputs)?;
    by_gradient(v, |v, ct| {
        let inner = adjoint_by(v.b, vectors, ct)?;
        let gaps = gaps(v.b, values)?;
        let gaps = like(v.b, gaps, inner)?;
        let inner = v.b.mul(gaps, inner)?;
        let s = v.b.matmul(vectors, inner)?;
        let s = by_adjoint(v.b, s, vectors)?;
        folded(v.b, s, upper)
    })
}

/// For values `W^T ct V^T` with `W = V^-1`. For vectors, each of length one and of a phase that
/// stays, `W^H (F* o (V^H ct - V^H V real(diag(V^H ct)))) V^H`, with `F` one over the gaps of the
/// values. Infinite or NaN where there are no two eigenvectors for two equal values.
pub(super) fn eig(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let result = v.op.attrs.library().0;
    let vectors = v.b.emit(v.op.with_result(1), v.inputs)?;
    let inverse = v.b.emit(Op::new(OpCode::Inv, Attrs::routine(true)), &[vectors])?;
    let values = match result {
        0 => None,
        _ => Some(v.b.emit(v.op.with_result(0), v.inputs)?),
    };
    by_gradient(v, |v, ct| {
        let core = match values {
            None => {
                let ct = broadcastable(v.b, ct, true)?;
                let adjoint = adjoint(v.b, vectors)?;
                v.b.mul(ct, adjoint)?
            }
            Some(values) => {
                let inner = adjoint_by(v.b, vectors, ct)?;
                let along = part(v.b, inner, OpCode::Eq)?;
                let along = real_part(v.b, along)?;
                let overlap = adjoint_by(v.b, vectors, vectors)?;
                let along = v.b.matmul(overlap, along)?;
                let across = v.b.sub(inner, along)?;
                let gaps = gaps(v.b, values)?;
                let gaps = conj(v.b, gaps)?;
                let across = v.b.mul(gaps, across)?;
                by_adjoint(v.b, across, vectors)?
            }
        };
        let gradient = adjoint_by(v.b, inverse, core)?;
        let real = !v.b.dtype(v.inputs[0]).is_complex();
        if real { v.b.real(gradient) } else { Ok(gradient) }
    })
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
    by_gradient(v, |v, ct| match result {
        1 => {
            let ct = like(v.b, ct, u)?;
            let ct = broadcastable(v.b, ct, false)?;
            let scaled = v.b.mul(u, ct)?;
            v.b.matmul(scaled, vh)
        }
        0 => vectors_vjp(v.b, u, s, vh, ct),
        // The adjoint matrix has left and right exchanged.
        _ => {
            let (left, right) = (adjoint(v.b, vh)?, adjoint(v.b, u)?);
            let ct = adjoint(v.b, ct)?;
            let of_adjoint = vectors_vjp(v.b, left, s, right, ct)?;
            adjoint(v.b, of_adjoint)
        }
    })
}

/// `[U (F o (U^H ct - ct^H U)) S + (I - U U^H) ct S^-1] V^H`, with `F` one over the gaps of the
/// squared singular values. The phases of pairs of complex vectors are free; a change of both
/// counts half for the left ones and half for the right ones.
fn vectors_vjp(
    b: &mut GraphBuilder,
    u: NodeId,
    s: NodeId,
    vh: NodeId,
    ct: NodeId,
) -> Result<NodeId> {
    let squares = b.mul(s, s)?;
    let gaps = gaps(b, squares)?;
    let gaps = like(b, gaps, u)?;
    let inner = adjoint_by(b, u, ct)?;
    let other = adjoint(b, inner)?;
    let difference = b.sub(inner, other)?;
    let skew = b.mul(gaps, difference)?;
    let row = broadcastable(b, s, false)?;
    let row = like(b, row, u)?;
    let mut skew = b.mul(skew, row)?;
    if b.dtype(u).is_complex() {
        let four = b.scalar_like(row, 4.0);
        let row = b.mul(row, four)?;
        let phases = part(b, difference, OpCode::Eq)?;
        let phases = b.div(phases, row)?;
        skew = b.add(skew, phases)?;
    }
    let within = b.matmul(u, skew)?;
    let along = b.matmul(u, inner)?;
    let rest = b.sub(ct, along)?;
    let rest = b.div(rest, row)?;
    let left = b.add(within, rest)?;
    b.matmul(left, vh)
}
