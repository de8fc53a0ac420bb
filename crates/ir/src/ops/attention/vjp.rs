//! The derivative of attention. For long sequences, it recomputes the weights from two numbers for
//! each query instead of saving them (Dao et al. 2022, "FlashAttention", section 3.1).

use super::*;
use smallvec::smallvec;

/// Factors of the cotangents: one row for each query, or transposed.
struct Slopes {
    /// Exponentials of the shifted scores: the weights before the division by their sums.
    exp: NodeId,
    /// The cotangents of the scores.
    ds: NodeId,
}

/// Values for each query.
struct Queries {
    /// The result's cotangent divided by the sum of the exponentials. Dividing it here replaces the
    /// division of the weights.
    ct: NodeId,
    /// The sum over features of the product of `ct` and the result.
    along: NodeId,
    weights: Weights,
}

impl Operands {
    /// True unless the number of scores is known to be small. Symbolic sizes may be large.
    fn is_long(&self, b: &GraphBuilder) -> bool {
        let length = |x: NodeId| b.shape(x).dim(b.shape(x).rank() - 2).known();
        match (length(self.q), length(self.k)) {
            (Some(queries), Some(keys)) => queries * keys >= b.target.min_recomputed_scores,
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

    /// Uses the exponentials of the decomposition, which are saved for the derivative.
    fn kept(&self, b: &mut GraphBuilder, of: &Queries) -> Result<Slopes> {
        let columns = b.transpose(self.v)?;
        slopes(b, of.weights.exp, of.ct, columns, of.along)
    }

    /// Recomputes the scores, and transposed scores for sums over the queries, since a row-wise
    /// kernel does not accumulate across rows. The recomputation scales the keys where the
    /// decomposition scales the queries. Otherwise CSE would merge both scores and save them.
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

/// With weights `exp / total` and `ct` divided by `total`, the cotangent of the scores is
/// `ds = exp * (ct v^T - sum(ct * y))`. The cotangents are `ds k` for the queries, `ds^T q` for the
/// keys, both times the scale, `exp^T ct` for the values, and `ds` for an additive mask.
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
