//! VJP rules of the ops on matrices. The gradient of an op that reads one triangle is in that
//! triangle. The gradient of an off-diagonal element includes its mirrored element.
//!
//! The cotangent of a complex number pairs with a change `dz` as `real(ct * dz)`. The rules of
//! holomorphic functions (solutions, inverses, determinants) are thus the real rules with plain
//! transposes. Factorisations are not holomorphic. Their rules are written for the conjugate
//! cotangent, with adjoints, and [`by_gradient`] conjugates the cotangent and the result.
//!
//! Source: Giles 2008, Collected matrix derivative results; Townsend 2016, Differentiating the
//! singular value decomposition; Walter and Lehmann 2010 for QR.

use crate::ops::rules::only;
use crate::ops::{Attrs, Cotangents, Vjp};
use crate::{AxisSet, DType, Dim, Error, GraphBuilder, NodeId, Op, OpCode, Result, Shape};
use smallvec::smallvec;

/// Number of rows and columns of a matrix.
pub(super) fn size(b: &GraphBuilder, x: NodeId) -> (usize, usize) {
    let shape = b.shape(x);
    (shape.dim(shape.rank() - 2).get(), shape.dim(shape.rank() - 1).get())
}

/// A mask over matrices of `x`'s size that compares row and column index.
fn mask(b: &mut GraphBuilder, x: NodeId, compare: OpCode) -> Result<NodeId> {
    let (rows, columns) = size(b, x);
    let row = b.iota([rows, columns], DType::I64, 0);
    let column = b.iota([rows, columns], DType::I64, 1);
    b.op(compare, &[row, column])
}

/// The elements where `compare` holds for row and column index, zeros elsewhere.
fn part(b: &mut GraphBuilder, x: NodeId, compare: OpCode) -> Result<NodeId> {
    let (mask, zero) = (mask(b, x, compare)?, b.scalar_like(x, 0.0));
    b.select(mask, x, zero)
}

/// The conjugate; the identity for real numbers.
pub(super) fn conj(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    if b.dtype(x).is_complex() { b.conj(x) } else { Ok(x) }
}

/// The conjugate transpose.
pub(super) fn adjoint(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let x = b.transpose(x)?;
    conj(b, x)
}

/// Casts `x` to the dtype of `other`.
pub(super) fn like(b: &mut GraphBuilder, x: NodeId, other: NodeId) -> Result<NodeId> {
    let dtype = b.dtype(other);
    if b.dtype(x) == dtype { Ok(x) } else { b.cast(x, dtype) }
}

/// The real part, cast to the operand's dtype.
fn real_part(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    if !b.dtype(x).is_complex() {
        return Ok(x);
    }
    let real = b.real(x)?;
    like(b, real, x)
}

/// Applies a rule that takes the conjugate cotangent and returns the conjugate gradient.
fn by_gradient(
    v: &mut Vjp<'_>,
    rule: impl FnOnce(&mut Vjp<'_>, NodeId) -> Result<NodeId>,
) -> Result<Cotangents> {
    let ct = conj(v.b, v.ct)?;
    let gradient = rule(v, ct)?;
    only(conj(v.b, gradient)?)
}

/// `a b^H`.
pub(super) fn by_adjoint(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let y = adjoint(b, y)?;
    b.matmul(x, y)
}

/// `a^H b`.
pub(super) fn adjoint_by(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
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

/// A vector for each matrix, reshaped to a column if `column`, otherwise to a row.
pub(super) fn broadcastable(b: &mut GraphBuilder, w: NodeId, column: bool) -> Result<NodeId> {
    let shape = b.shape(w).clone();
    let (batch, n) = (shape.rank() - 1, shape.dim(shape.rank() - 1));
    let plane = if column { [n, Dim::from(1)] } else { [Dim::from(1), n] };
    b.reshape(w, shape.dims().take(batch).chain(plane).collect::<Shape>())
}

/// A scalar for each matrix, reshaped so that it broadcasts over the matrix.
fn factor(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let shape: Shape = b.shape(x).dims().chain([Dim::from(1); 2]).collect();
    b.reshape(x, shape)
}

fn solved(b: &mut GraphBuilder, upper: bool, a: NodeId, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(OpCode::SolveTriangular, Attrs::routine(upper)), &[a, x])
}

/// Folds the gradient of a Hermitian matrix into the triangle that is read: `s + s^H` with halved
/// diagonal.
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

/// `S = L^-H phi(L^H ct) L^-1`, where `phi` takes the lower triangle with halved diagonal.
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
        // This is the adjoint of `S`, but `folded` only uses the sum of `S` and its adjoint.
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

/// Symmetric in the cotangent and the change of the matrix: see [`cofactor_slopes`].
fn slopes(b: &mut GraphBuilder, a: NodeId, w: NodeId) -> Result<NodeId> {
    b.emit(Op::new(OpCode::CofactorSlopes, Attrs::routine(false)), &[a, w])
}

pub(super) fn cofactors(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(slopes(v.b, v.inputs[0], v.ct)?)
}

/// The sum over each matrix, with axes of size one kept, so that it broadcasts over the matrix.
fn total(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let rank = b.shape(x).rank();
    b.sum(x, (rank - 2..rank).collect::<AxisSet>(), true)
}

/// The slopes are `D(w) = det(A) (tr(x) A^-T - (x A^-1)^T)` with `x = A^-1 w`. `D` is symmetric:
/// the sum of `ct o D(w)` equals the sum of `w o D(ct)`. With `y = A^-1 ct`, the gradient of the
/// matrix is `C (tr(x) tr(y) - tr(xy) - tr(y) x - tr(x) y + xy + yx)^T`, where `C` is the cofactor
/// matrix. It is infinite or NaN for a singular matrix.
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

/// With `t = sum(A^-T o dA)`, the change of the logarithm is the real part of `t`, and the change
/// of the sign's phase is the imaginary part.
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

/// With `P A = L U` and `F = L^-1 P dA U^-1`: `dL = L tril(F, -1)` and `dU = triu(F) U`. The
/// diagonal of `F` belongs to `dU`. The permutation is constant.
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
    // Undo the row permutation.
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

/// Wide matrices: `[X Y] = Q [U V]` with a square `X`, and `V = Q^H Y`.
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

/// Tall and square matrices: `(ct_q + Q copyltu(R ct_r^H - ct_q^H Q)) R^-H`. `copyltu` mirrors the
/// lower triangle and takes the real part of the diagonal.
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

/// `1 / (w_j - w_i)` at row `i` and column `j`; zero on the diagonal.
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

/// With `W = V^-1`, the gradient for eigenvalues is `W^T ct V^T`. For eigenvectors, normalised to
/// length one and a fixed phase, it is `W^H (F* o (V^H ct - V^H V real(diag(V^H ct)))) V^H`, where
/// `F` is one over the differences of the eigenvalues. The gradient is infinite or NaN if two equal
/// eigenvalues do not have two eigenvectors.
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
        // The adjoint matrix exchanges left and right singular vectors.
        _ => {
            let (left, right) = (adjoint(v.b, vh)?, adjoint(v.b, u)?);
            let ct = adjoint(v.b, ct)?;
            let of_adjoint = vectors_vjp(v.b, left, s, right, ct)?;
            adjoint(v.b, of_adjoint)
        }
    })
}

/// `[U (F o (U^H ct - ct^H U)) S + (I - U U^H) ct S^-1] V^H`, where `F` is one over the differences
/// of the squared singular values. The phase of a pair of complex singular vectors is free. A
/// change of this phase is attributed half to the left vectors and half to the right vectors.
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
