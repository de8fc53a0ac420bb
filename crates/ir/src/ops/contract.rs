//! Matrix product, `… m k, … k n -> … m n`, with broadcast batch axes.

use super::*;
use crate::index_map::matmul_iteration;
use crate::{Dim, GraphBuilder, Shape};

const NUMBERS: &str = "an integer, floating-point or complex dtype";

fn matmul(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    require_dtype(call, dtype, dtype != DType::Bool, NUMBERS)?;
    let (a, b) = (&call.inputs[0].shape, &call.inputs[1].shape);
    let mismatch = |reason: String| Error::ShapeMismatch {
        op: call.name(),
        lhs: a.clone(),
        rhs: b.clone(),
        reason,
    };
    let (Some(of_a), Some(of_b)) = (a.rank().checked_sub(2), b.rank().checked_sub(2)) else {
        return Err(mismatch("both operands need at least two axes here".into()));
    };
    let (m, ka, kb, n) = (a.dim(of_a), a.dim(of_a + 1), b.dim(of_b), b.dim(of_b + 1));
    if !ka.equals(kb) {
        return Err(mismatch(format!(
            "the first's last axis ({ka}) must equal the second's second-last axis ({kb})"
        )));
    }
    let batch = a.part(..of_a).broadcast(&b.part(..of_b), call.name()).map_err(|_| {
        mismatch("the leading (batch) axes must be equal or 1, aligned at the right".into())
    })?;
    Ok(TensorSpec { shape: batch.dims().chain([m, n]).collect(), dtype })
}

/// `ct b^T` and `a^T ct`, summed over the batch axes along which an operand was broadcast.
fn matmul_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (a, b) = (v.inputs[0], v.inputs[1]);
    Ok(smallvec::smallvec![
        v.operand(0, |v| {
            let transposed = v.b.transpose(b)?;
            v.b.matmul(v.ct, transposed)
        })?,
        v.operand(1, |v| {
            let (rows, ct) = match v.b.shape(b).rank() {
                2 => (as_matrix(v.b, a)?, as_matrix(v.b, v.ct)?),
                _ => (a, v.ct),
            };
            let transposed = v.b.transpose(rows)?;
            v.b.matmul(transposed, ct)
        })?
    ])
}

/// Merges the batch axes into the rows. One matrix product then also sums over the batch, in place
/// of a batch of products followed by a sum.
fn as_matrix(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let shape = b.shape(x).clone();
    let Some(last) = shape.rank().checked_sub(1).filter(|&last| last > 1) else { return Ok(x) };
    let rows: Dim = shape.part(..last).dims().product();
    b.reshape(x, [rows, shape.dim(last)].into_iter().collect::<Shape>())
}

/// Matrix product of operands of rank two or more; front ends reshape vectors.
pub static MATMUL: OpDef = OpDef {
    linear: Linearity::In(&[&[0], &[1]]),
    samples: samples::matmul,
    name: "matmul",
    doc: "The matrix product of two tensors, batch axes broadcast.",
    class: Class::Contraction,
    arity: (2, 2),
    infer: matmul,
    iteration: Some(matmul_iteration),
    derivative: Derivative::Rule(matmul_vjp),
    precision: Precision::Half,
    ..OpDef::BLANK
};
