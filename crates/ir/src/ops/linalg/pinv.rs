//! The pseudo-inverse, a composite: it is made of the singular value decomposition, whose vectors
//! have no derivative where singular values are equal, but it has one wherever the rank is constant.
//!
//! Source of the rule: Golub and Pereyra 1973, The differentiation of pseudo-inverses and nonlinear
//! least squares problems whose variables separate, eq. 4.12.

use super::vjp::{adjoint, adjoint_by, broadcastable, by_adjoint, conj, like as cast_like, size};
use super::*;
use crate::ops::samples::pseudo_inverses;
use crate::{GraphBuilder, NodeId};
use smallvec::smallvec;

/// Checks matrices, and a tolerance for each.
fn pinv(call: OpCall<'_>) -> Result<TensorSpec> {
    let [x, tolerance] = call.inputs else { unreachable!("arity is checked") };
    let (m, n) = matrix(call, x)?;
    if tolerance.dtype != x.dtype.real() {
        return Err(Error::DTypeMismatch { op: call.name(), lhs: x.dtype, rhs: tolerance.dtype });
    }
    if !batch_of(x, &[]).equals(&tolerance.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: x.shape.clone(),
            rhs: tolerance.shape.clone(),
            reason: "the second must have one number for each matrix".into(),
        });
    }
    like(x, &[n, m])
}

/// `V diag(1/s) U^H`, with 0 in place of `1/s` for singular values up to the tolerance times the
/// largest.
fn decompose(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let (x, tolerance) = (d.inputs[0], d.inputs[1]);
    let b = &mut *d.b;
    let (m, n) = size(b, x);
    if b.shape(x).has_no_elements() {
        let zero = b.scalar_like(x, 0.0);
        let spec = TensorSpec { shape: b.shape(x).clone(), dtype: b.dtype(x) };
        return b.broadcast_to(zero, batch_of(&spec, &[n, m]));
    }
    let svd = Op::new(OpCode::Svd, Attrs::routine(false));
    let mut part = |result| b.emit(svd.with_result(result), &[x]);
    let (u, s, vh) = (part(0)?, part(1)?, part(2)?);
    let last = b.shape(s).rank() - 1;
    let largest = b.max(s, AxisSet::one(last), true)?;
    let tolerance = {
        let shape: Shape = b.shape(tolerance).dims().chain([Dim::from(1)]).collect();
        b.reshape(tolerance, shape)?
    };
    let bound = b.mul(largest, tolerance)?;
    let counts = b.gt(s, bound)?;
    let (one, zero) = (b.scalar_like(s, 1.0), b.scalar_like(s, 0.0));
    let safe = b.select(counts, s, one)?;
    let inverse = b.div(one, safe)?;
    let inverse = b.select(counts, inverse, zero)?;
    let inverse = broadcastable(b, inverse, false)?;
    let inverse = cast_like(b, inverse, x)?;
    let v = adjoint(b, vh)?;
    let scaled = b.mul(v, inverse)?;
    by_adjoint(b, scaled, u)
}

/// With `P` the result, a change `dA` of the matrix gives
/// `dP = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P`. The products are taken in an order
/// in which no matrix has the larger side squared.
fn pinv_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (a, p) = (v.inputs[0], v.output);
    let gradient = v.operand(0, |v| {
        let ct = conj(v.b, v.ct)?;
        let (m, n) = size(v.b, a);
        let gradient = if m >= n { tall(v.b, a, p, ct)? } else { wide(v.b, a, p, ct)? };
        conj(v.b, gradient)
    })?;
    Ok(smallvec![gradient, None])
}

/// `P^H (K^H - K^H P A - K) + W - A P W` with `K = ct P^H` and `W = ct^H P P^H`.
fn tall(b: &mut GraphBuilder, a: NodeId, p: NodeId, ct: NodeId) -> Result<NodeId> {
    let k = by_adjoint(b, ct, p)?;
    let kh = adjoint(b, k)?;
    let along = b.matmul(kh, p)?;
    let along = b.matmul(along, a)?;
    let inner = b.sub(kh, along)?;
    let inner = b.sub(inner, k)?;
    let first = adjoint_by(b, p, inner)?;
    let pp = by_adjoint(b, p, p)?;
    let w = adjoint_by(b, ct, pp)?;
    let along = b.matmul(p, w)?;
    let along = b.matmul(a, along)?;
    let second = b.sub(w, along)?;
    b.add(first, second)
}

/// `(J^H - A P J^H - J) P^H + Z - Z P A` with `J = P^H ct` and `Z = P^H P ct^H`.
fn wide(b: &mut GraphBuilder, a: NodeId, p: NodeId, ct: NodeId) -> Result<NodeId> {
    let j = adjoint_by(b, p, ct)?;
    let jh = adjoint(b, j)?;
    let along = b.matmul(p, jh)?;
    let along = b.matmul(a, along)?;
    let inner = b.sub(jh, along)?;
    let inner = b.sub(inner, j)?;
    let first = by_adjoint(b, inner, p)?;
    let pp = adjoint_by(b, p, p)?;
    let z = by_adjoint(b, pp, ct)?;
    let along = b.matmul(z, p)?;
    let along = b.matmul(along, a)?;
    let second = b.sub(z, along)?;
    b.add(first, second)
}

/// The Moore-Penrose pseudo-inverse of the first operand. The second has a tolerance for each
/// matrix: singular values up to the tolerance times the largest count as zero.
pub static PINV: OpDef = OpDef {
    name: "pinv",
    doc: "The pseudo-inverse of matrices, each with a tolerance for small singular values.",
    class: Class::Composite,
    category: Some(Category::Library),
    item_rank: ItemRank::Matrix(&[2]),
    factors: Factoring::Rule(factoring::library),
    arity: (2, 2),
    can_fail: true,
    infer: pinv,
    derivative: Derivative::Rule(pinv_vjp),
    decompose: Some(decompose),
    samples: pseudo_inverses,
    python: Python::Named("linalg.pinv"),
    ..OpDef::BLANK
};
