//! Scaled dot-product attention, with grouped heads, masks and causality. A composite, so that a
//! backend can compute it without the matrix of scores.

use super::*;
use crate::{Dim, GraphBuilder, NodeId, Shape};

/// How the heads of queries and of keys meet.
struct Heads {
    /// Queries that share one head of keys, if there are several.
    group: Option<usize>,
    /// The leading axes in which the three operands meet.
    batch: Shape,
}

fn mismatch(call: OpCall<'_>, i: usize, j: usize, reason: &str) -> Error {
    Error::ShapeMismatch {
        op: call.name(),
        lhs: call.inputs[i].shape.clone(),
        rhs: call.inputs[j].shape.clone(),
        reason: reason.into(),
    }
}

/// Heads are the third axis from the end. Fewer heads of keys than of queries are each shared by a
/// run of queries' heads.
fn heads(q: &Shape, k: &Shape, v: &Shape, op: &'static str) -> Result<Heads> {
    let split = |s: &Shape| s.part(..s.rank() - 2);
    let (q, k, v) = (split(q), split(k), split(v));
    let keys = k.broadcast(&v, op)?;
    let last = |s: &Shape| s.rank().checked_sub(1).map(|axis| s.dim(axis));
    let (Some(of_q), Some(of_k)) = (last(&q), last(&keys)) else {
        return Ok(Heads { group: None, batch: q.broadcast(&keys, op)? });
    };
    if of_q == of_k {
        return Ok(Heads { group: None, batch: q.broadcast(&keys, op)? });
    }
    let (of_q, of_k) = (of_q.get(), of_k.get());
    if of_q <= 1 || of_k <= 1 || !of_q.is_multiple_of(of_k) {
        return Ok(Heads { group: None, batch: q.broadcast(&keys, op)? });
    }
    let (outer_q, outer_k) = (q.part(..q.rank() - 1), keys.part(..keys.rank() - 1));
    let mut batch = outer_q.broadcast(&outer_k, op)?;
    batch.push(of_q);
    Ok(Heads { group: Some(of_q / of_k), batch })
}

fn attention(call: OpCall<'_>) -> Result<TensorSpec> {
    let [q, k, v] = [0, 1, 2].map(|i| call.inputs[i]);
    let dtype = same_dtype(OpCall { op: call.op, inputs: &call.inputs[..3] })?;
    require_dtype(call, dtype, dtype.is_float(), "a floating-point dtype")?;
    let Attrs::Attention { .. } = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs a scale".into() });
    };
    if let Some(i) = (0..3).find(|&i| call.inputs[i].shape.rank() < 2) {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: call.inputs[i].shape.clone(),
            reason: "queries, keys and values need at least two axes, [length, features]".into(),
        });
    }
    let last = |s: &Shape| (s.dim(s.rank() - 2), s.dim(s.rank() - 1));
    let ((rows, of_q), (columns, of_k), (of_v, features)) =
        (last(&q.shape), last(&k.shape), last(&v.shape));
    if !of_q.equals(of_k) {
        return Err(mismatch(call, 0, 1, "queries and keys must have equally many features"));
    }
    if !columns.equals(of_v) {
        return Err(mismatch(call, 1, 2, "there must be as many keys as values"));
    }
    let heads = heads(&q.shape, &k.shape, &v.shape, call.name()).map_err(|_| {
        mismatch(
            call,
            0,
            1,
            "the leading axes must be equal or 1; heads, the third axis from the end, may be a \
             multiple of the keys'",
        )
    })?;
    if let Some(mask) = call.inputs.get(3) {
        if mask.dtype != DType::Bool && mask.dtype != dtype {
            return Err(Error::DTypeMismatch { op: call.name(), lhs: dtype, rhs: mask.dtype });
        }
        let scores: Shape = heads.batch.dims().chain([rows, columns]).collect();
        if !mask.shape.broadcasts_to(&scores) {
            return Err(Error::ShapeMismatch {
                op: call.name(),
                lhs: mask.shape.clone(),
                rhs: scores,
                reason: "the mask must broadcast to the scores [..., queries, keys]".into(),
            });
        }
    }
    let shape = heads.batch.dims().chain([rows, features]).collect();
    Ok(TensorSpec { shape, dtype })
}

/// `x` with its heads split into groups: those of queries and masks into runs of `group`, those
/// that are `shared` into runs of one.
fn split_heads(b: &mut GraphBuilder, x: NodeId, group: usize, shared: bool) -> Result<NodeId> {
    let shape = b.shape(x).clone();
    let Some(at) = shape.rank().checked_sub(3) else { return Ok(x) };
    let parts = match (shared, shape[at]) {
        (true, n) => [n, 1],
        (false, 1) => [1, 1],
        (false, n) => [n / group, group],
    };
    let parts = parts.map(Dim::from);
    let split = shape.dims().take(at).chain(parts).chain(shape.dims().skip(at + 1));
    b.reshape(x, split.collect::<Shape>())
}

/// The scores with all that a query must not see at minus infinity.
fn masked(
    d: &mut Decomposition<'_>,
    scores: NodeId,
    mask: Option<NodeId>,
    causal: bool,
) -> Result<NodeId> {
    let minus_infinity = d.b.scalar_like(scores, f64::NEG_INFINITY);
    let mut scores = scores;
    if let Some(mask) = mask {
        scores = match d.b.dtype(mask) {
            DType::Bool => d.b.select(mask, scores, minus_infinity)?,
            _ => {
                let mask = d.b.widen(mask)?;
                d.b.add(scores, mask)?
            }
        };
    }
    if !causal {
        return Ok(scores);
    }
    let shape = d.b.shape(scores);
    let square = shape.part(shape.rank() - 2..);
    let (row, column) = (d.b.iota(square.clone(), DType::I64, 0), d.b.iota(square, DType::I64, 1));
    let seen = d.b.ge(row, column)?;
    d.b.select(seen, scores, minus_infinity)
}

/// Softmax over the keys; a query that may see none gets zeros, not NaN.
fn weights(b: &mut GraphBuilder, scores: NodeId, may_be_blind: bool) -> Result<NodeId> {
    let keys = b.shape(scores).rank() - 1;
    if !may_be_blind || b.shape(scores).dim(keys).equals(0) {
        return b.softmax(scores, keys as u8);
    }
    let best = b.max(scores, AxisSet::one(keys), true)?;
    let (nothing, zero) = (b.scalar_like(scores, f64::NEG_INFINITY), b.scalar_like(scores, 0.0));
    let blind = b.eq(best, nothing)?;
    let safe = b.select(blind, zero, scores)?;
    let p = b.softmax(safe, keys as u8)?;
    b.select(blind, zero, p)
}

fn decompose_attention(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let Attrs::Attention { causal, scale } = d.op.attrs else {
        unreachable!("the shape rule checks it")
    };
    let shapes = [0, 1, 2].map(|i| d.b.shape(d.inputs[i]).clone());
    let heads = heads(&shapes[0], &shapes[1], &shapes[2], d.op.name())?;
    let mut operands = [d.inputs[0], d.inputs[1], d.inputs[2]];
    let mut mask = d.inputs.get(3).copied();
    if let Some(group) = heads.group {
        for (i, x) in operands.iter_mut().enumerate() {
            *x = split_heads(d.b, *x, group, i > 0)?;
        }
        mask = mask.map(|m| split_heads(d.b, m, group, false)).transpose()?;
    }
    let [q, k, v] = operands;
    let (q, k, v) = (d.b.widen(q)?, d.b.widen(k)?, d.b.widen(v)?);
    let scale = d.b.scalar_like(q, scale.get());
    let q = d.b.mul(q, scale)?;
    let k = d.b.transpose(k)?;
    let scores = d.b.matmul(q, k)?;
    let scores = masked(d, scores, mask, causal)?;
    let p = weights(d.b, scores, mask.is_some())?;
    let y = d.b.matmul(p, v)?;
    let tail = [shapes[0].dim(shapes[0].rank() - 2), shapes[2].dim(shapes[2].rank() - 1)];
    let y = d.b.reshape(y, heads.batch.dims().chain(tail).collect::<Shape>())?;
    d.narrow(y)
}

/// `softmax(q k^T * scale + mask) v` (attribute `Attention`): Vaswani et al. 2017, eq. 1. Operands
/// `[…, queries, features]`, `[…, keys, features]`, `[…, keys, values]`, and a mask of bool (true:
/// seen) or of numbers added to the scores.
pub static ATTENTION: OpDef = OpDef {
    name: "attention",
    doc: "Values averaged with weights from the softmax of queries times keys.",
    class: Class::Composite,
    arity: (3, 4),
    infer: attention,
    derivative: Derivative::Decompose,
    decompose: Some(decompose_attention),
    samples: samples::networks::attention,
    python: Python::Named("scaled_dot_product_attention"),
    ..OpDef::BLANK
};
