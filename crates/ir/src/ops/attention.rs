//! Scaled dot-product attention with grouped heads, masks and causality. It is a composite. Fusion
//! combines the ops of its decomposition and of its derivative row by row, so that only the scores
//! of a few queries are in memory at a time.

mod vjp;

use super::*;
use crate::{Dim, GraphBuilder, NodeId, Shape};

/// How the heads of queries and keys correspond.
struct Heads {
    /// Number of query heads that share one key head, if more than one.
    group: Option<usize>,
    /// The broadcast leading axes of the three operands.
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

/// Heads are the third axis from the end. If there are fewer key heads than query heads,
/// consecutive query heads share one key head.
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

/// Splits the heads of `x` into groups: runs of `group` for queries and masks, runs of one for
/// operands with `shared` heads.
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

/// The operands of the decomposition and of the derivative: in the computation dtype, with heads
/// split if query heads share key heads.
struct Operands {
    q: NodeId,
    k: NodeId,
    v: NodeId,
    mask: Option<NodeId>,
    heads: Heads,
    causal: bool,
    scale: f64,
}

/// The factors of the weights, `exp(scores - shift) / total`; `shift` and `total` have one number
/// for each query.
struct Weights {
    exp: NodeId,
    shift: NodeId,
    total: NodeId,
}

impl Operands {
    fn new(b: &mut GraphBuilder, op: &Op, inputs: &[NodeId]) -> Result<Operands> {
        let Attrs::Attention { causal, scale } = op.attrs else {
            unreachable!("the shape rule checks it")
        };
        let shapes = [0, 1, 2].map(|i| b.shape(inputs[i]).clone());
        let heads = heads(&shapes[0], &shapes[1], &shapes[2], op.name())?;
        let mut mask = inputs.get(3).copied();
        let mut operands = [inputs[0], inputs[1], inputs[2]];
        if let Some(group) = heads.group {
            for (i, x) in operands.iter_mut().enumerate() {
                *x = split_heads(b, *x, group, i > 0)?;
            }
            mask = mask.map(|m| split_heads(b, m, group, false)).transpose()?;
        }
        let [q, k, v] = operands;
        let (q, k, v) = (b.widen(q)?, b.widen(k)?, b.widen(v)?);
        Ok(Operands { q, k, v, mask, heads, causal, scale: scale.get() })
    }

    /// Queries or keys, multiplied by the scale.
    fn scaled(&self, b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        let scale = b.scalar_like(x, self.scale);
        b.mul(x, scale)
    }

    /// Queries or keys, multiplied by the scale for the scores. With a scale of 1, CSE would merge
    /// the scores that the derivative recomputes with the forward scores, and keep them. The factor
    /// is then -1 and the scores are negated, which changes no bit of the result.
    fn with_scale(&self, b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        if self.scale == 1.0 { b.neg(x) } else { self.scaled(b, x) }
    }

    /// `rows columns^T`, where one operand is [`Operands::with_scale`]; scores that a query must
    /// not see are minus infinity. Rows are queries and columns are keys, or the reverse if
    /// `transposed`.
    fn scores(
        &self,
        b: &mut GraphBuilder,
        rows: NodeId,
        columns: NodeId,
        transposed: bool,
    ) -> Result<NodeId> {
        let columns = b.transpose(columns)?;
        let mut scores = b.matmul(rows, columns)?;
        if self.scale == 1.0 {
            scores = b.neg(scores)?;
        }
        let minus_infinity = b.scalar_like(scores, f64::NEG_INFINITY);
        if let Some(mut mask) = self.mask {
            if transposed {
                mask = transposed_mask(b, mask)?;
            }
            scores = match b.dtype(mask) {
                DType::Bool => b.select(mask, scores, minus_infinity)?,
                _ => {
                    let mask = b.widen(mask)?;
                    b.add(scores, mask)?
                }
            };
        }
        if !self.causal {
            return Ok(scores);
        }
        let shape = b.shape(scores);
        let square = shape.part(shape.rank() - 2..);
        let of_queries = transposed as u8;
        let query = b.iota(square.clone(), DType::I64, of_queries);
        let key = b.iota(square, DType::I64, 1 - of_queries);
        let seen = b.ge(query, key)?;
        b.select(seen, scores, minus_infinity)
    }

    /// The weights of the decomposition. For a query without visible keys, the exponentials are
    /// zero and the sum is one.
    fn weights(&self, b: &mut GraphBuilder) -> Result<Weights> {
        let q = self.with_scale(b, self.q)?;
        let scores = self.scores(b, q, self.k, false)?;
        let keys = AxisSet::one(b.shape(scores).rank() - 1);
        let max = b.max(scores, keys, true)?;
        let blind = match self.mask {
            Some(_) => {
                let nothing = b.scalar_like(max, f64::NEG_INFINITY);
                Some(b.eq(max, nothing)?)
            }
            None => None,
        };
        let replaced = |b: &mut GraphBuilder, x: NodeId, by: f64| {
            let by = b.scalar_like(x, by);
            blind.map_or(Ok(x), |blind| b.select(blind, by, x))
        };
        let shift = replaced(b, max, 0.0)?;
        let shifted = b.sub(scores, shift)?;
        let exp = b.exp(shifted)?;
        let total = b.sum(exp, keys, true)?;
        let total = replaced(b, total, 1.0)?;
        Ok(Weights { exp, shift, total })
    }

    /// Merges the split heads of a tensor of queries.
    fn join_heads(&self, b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        let shape = b.shape(x);
        let tail = shape.part(shape.rank() - 2..);
        b.reshape(x, self.heads.batch.dims().chain(tail.dims()).collect::<Shape>())
    }

    /// Sums a tensor of keys over the query heads that share a key head.
    fn join_shared(&self, b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
        match self.heads.group {
            Some(_) => b.sum(x, AxisSet::one(b.shape(x).rank() - 3), false),
            None => Ok(x),
        }
    }

    fn has_no_keys(&self, b: &GraphBuilder) -> bool {
        let shape = b.shape(self.k);
        shape.dim(shape.rank() - 2).equals(0)
    }
}

/// Transposes a mask, for scores whose rows are keys.
fn transposed_mask(b: &mut GraphBuilder, mask: NodeId) -> Result<NodeId> {
    let shape = b.shape(mask).clone();
    if shape.rank() == 0 {
        return Ok(mask);
    }
    if shape.rank() == 1 {
        return b.reshape(mask, [shape.dim(0), Dim::from(1)].into_iter().collect::<Shape>());
    }
    b.transpose(mask)
}

/// Divides the sums instead of the weights, since there are fewer sums.
fn decompose_attention(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let x = Operands::new(d.b, d.op, d.inputs)?;
    let y = if x.has_no_keys(d.b) {
        let k = d.b.transpose(x.k)?;
        let nothing = d.b.matmul(x.q, k)?;
        d.b.matmul(nothing, x.v)?
    } else {
        let Weights { exp, total, .. } = x.weights(d.b)?;
        let sums = d.b.matmul(exp, x.v)?;
        let one = d.b.scalar_like(total, 1.0);
        let share = d.b.div(one, total)?;
        d.b.mul(sums, share)?
    };
    let y = x.join_heads(d.b, y)?;
    d.narrow(y)
}

/// `softmax(q k^T * scale + mask) v` (attribute `Attention`): Vaswani et al. 2017, eq. 1. Operands
/// `[…, queries, features]`, `[…, keys, features]`, `[…, keys, values]`, and a mask of bool (true:
/// visible) or of numbers that are added to the scores.
pub static ATTENTION: OpDef = OpDef {
    linear: Linearity::In(&[&[2]]),
    factors: Factoring::Rule(factoring::attention),
    name: "attention",
    doc: "Values averaged with weights from the softmax of queries times keys.",
    class: Class::Composite,
    arity: (3, 4),
    infer: attention,
    derivative: Derivative::Rule(vjp::attention),
    batching: Some(Batching::Rule),
    decompose: Some(decompose_attention),
    samples: samples::networks::attention,
    python: Python::Named("scaled_dot_product_attention"),
    precision: Precision::Half,
    ..OpDef::BLANK
};
