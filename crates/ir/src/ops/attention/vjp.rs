//! The derivative of attention: what long sequences would have to keep, the weights, is computed again
//! from a number per query (Dao et al. 2022, "FlashAttention", section 3.1).

use super::*;
use smallvec::smallvec;

/// Scores of a head, from which on they are computed again rather than kept: it takes no longer.
const LONG: usize = 1 << 20;

/// What the cotangents are products of: a row for each query, or transposed.
struct Slopes {
    /// The exponentials of the shifted scores: weights but for their sums.
    exp: NodeId,
    /// The cotangents of the scores.
    ds: NodeId,
}

/// What is known of each query.
struct Queries {
    /// The result's cotangent over the sum of the exponentials, instead of which that of the weights
    /// is taken.
    ct: NodeId,
    /// Its product with the result.
    along: NodeId,
    weights: Weights,
}

impl Operands {
    /// True unless the scores are known to be few. Sizes that are not fixed may be large.
    fn is_long(&self, b: &GraphBuilder) -> bool {
        let length = |x: NodeId| b.shape(x).dim(b.shape(x).rank() - 2).known();
        match (length(self.q), length(self.k)) {
            (Some(queries), Some(keys)) => queries * keys >= LONG,
            _ => true,
        }
    }

    fn queries(&self, v: &mut Vjp<'_>, weights: Weights) -> Result<Queries> {
        let sums = {
            let (q, of_v) = (v.b.shape(weights.exp), v.b.shape(self.v));
            let of_v = of_v.part(of_v.rank() - 1..);
            q.part(..q.rank() - 1).dims().chain(of_v.dims()).collect::<Shape>()
        };
        let (ct, y) = (v.b.widen(v.ct)?, v.b.widen(v.output)?);
        let (ct, y) = (v.b.reshape(ct, sums.clone())?, v.b.reshape(y, sums.clone())?);
        let one = v.b.scalar_like(weights.total, 1.0);
        let share = v.b.div(one, weights.total)?;
        let ct = v.b.mul(ct, share)?;
        let along = v.b.mul(ct, y)?;
        let along = v.b.sum(along, AxisSet::one(sums.rank() - 1), true)?;
        Ok(Queries { ct, along, weights })
    }

    /// From the exponentials of the definition, which are kept for it.
    fn kept(&self, b: &mut GraphBuilder, of: &Queries) -> Result<Slopes> {
        let columns = b.transpose(self.v)?;
        slopes(b, of.weights.exp, of.ct, columns, of.along)
    }

    /// From scores that are computed again, and transposed ones for sums over the queries: a kernel
    /// by rows adds up nothing from row to row. They are not the scores of the definition, which
    /// would be kept for both: there queries are scaled, here keys.
    fn recomputed(&self, b: &mut GraphBuilder, of: &Queries, transposed: bool) -> Result<Slopes> {
        let keys = self.with_scale(b, self.k)?;
        let (mut shift, mut along) = (of.weights.shift, of.along);
        let (mut sides, mut values) = ((self.q, keys), (of.ct, self.v));
        if transposed {
            (shift, along) = (b.transpose(shift)?, b.transpose(along)?);
            (sides, values) = ((sides.1, sides.0), (values.1, values.0));
        }
        let scores = self.scores(b, sides.0, sides.1, transposed)?;
        let shifted = b.sub(scores, shift)?;
        let exp = b.exp(shifted)?;
        let columns = b.transpose(values.1)?;
        slopes(b, exp, values.0, columns, along)
    }
}

/// `exp * (rows columns - along)`.
fn slopes(
    b: &mut GraphBuilder,
    exp: NodeId,
    rows: NodeId,
    columns: NodeId,
    along: NodeId,
) -> Result<Slopes> {
    let dp = b.matmul(rows, columns)?;
    let dp = b.sub(dp, along)?;
    Ok(Slopes { exp, ds: b.mul(exp, dp)? })
}

/// With weights `exp / total` and `ct` divided by `total`, `ds = exp * (ct v^T - sum(ct * y))` of the
/// scores: `ds k` of the queries, `ds^T q` of the keys, both times the scale, `exp^T ct` of the
/// values, `ds` of a mask that is added.
pub(super) fn attention(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let x = Operands::new(v.b, &v.op, v.inputs)?;
    if x.has_no_keys(v.b) {
        return Ok(smallvec![None; v.inputs.len()]);
    }
    let weights = x.weights(v.b)?;
    let of = x.queries(v, weights)?;
    let (rows, columns) = match x.is_long(v.b) {
        true => (x.recomputed(v.b, &of, false)?, x.recomputed(v.b, &of, true)?),
        false => {
            let rows = x.kept(v.b, &of)?;
            let columns = Slopes { exp: v.b.transpose(rows.exp)?, ds: v.b.transpose(rows.ds)? };
            (rows, columns)
        }
    };
    let dq = v.operand(0, |v| {
        let keys = x.scaled(v.b, x.k)?;
        let dq = v.b.matmul(rows.ds, keys)?;
        x.join_heads(v.b, dq)
    })?;
    let dk = v.operand(1, |v| {
        let queries = x.scaled(v.b, x.q)?;
        let dk = v.b.matmul(columns.ds, queries)?;
        x.join_shared(v.b, dk)
    })?;
    let dv = v.operand(2, |v| {
        let dv = v.b.matmul(columns.exp, of.ct)?;
        x.join_shared(v.b, dv)
    })?;
    let mut cotangents: Cotangents = smallvec![dq, dk, dv];
    if let Some(&mask) = v.inputs.get(3) {
        let added = v.b.dtype(mask).is_float();
        let ds = if added { v.operand(3, |v| x.join_heads(v.b, rows.ds))? } else { None };
        cotangents.push(ds);
    }
    for (ct, &input) in cotangents.iter_mut().zip(v.inputs) {
        *ct = ct.map(|ct| v.b.cast(ct, v.b.dtype(input))).transpose()?;
    }
    Ok(cotangents)
}
