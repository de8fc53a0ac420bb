//! Normalisations other than layer normalisation: over any axes (batch, group and instance norms),
//! and by the root mean square.

use super::composite::decompose::normalised;
use super::composite::layer_norm;
use super::*;
use crate::NodeId;
use smallvec::smallvec;

fn standardize(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = call.inputs[0];
    require_dtype(call, spec.dtype, spec.dtype.is_float(), "a floating-point dtype")?;
    let Attrs::Standardize { axes, .. } = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs axes".into() });
    };
    if axes.bound() > spec.shape.rank() {
        let (axis, rank) = (axes.bound() as i64 - 1, spec.shape.rank());
        return Err(Error::AxisOutOfRange { op: call.name(), axis, rank });
    }
    Ok(spec.clone())
}

fn decompose_standardize(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let x = d.wide()?;
    let y = normalised(d.b, d.op, x)?.x;
    d.narrow(y)
}

/// `scale * (ct - mean(ct) - x * mean(ct * x))` with `x` normalised.
fn standardize_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let dtype = v.b.dtype(v.inputs[0]);
    let (x, ct) = (v.b.widen(v.inputs[0])?, v.b.widen(v.ct)?);
    let n = normalised(v.b, &v.op, x)?;
    let mean = v.b.mean(ct, n.axes, true)?;
    let along = v.b.mul(ct, n.x)?;
    let along = v.b.mean(along, n.axes, true)?;
    let along = v.b.mul(n.x, along)?;
    let ct = v.b.sub(ct, mean)?;
    let ct = v.b.sub(ct, along)?;
    let ct = v.b.mul(n.scale, ct)?;
    Ok(smallvec![Some(v.b.cast(ct, dtype)?)])
}

/// The factor of the widened operand, and the axes.
fn root(b: &mut crate::GraphBuilder, op: &Op, x: NodeId) -> Result<(NodeId, AxisSet)> {
    let Attrs::Norm { ndims, eps } = op.attrs else { unreachable!("the shape rule checks it") };
    let rank = b.shape(x).rank();
    let axes: AxisSet = (rank - ndims as usize..rank).collect();
    let squares = b.mul(x, x)?;
    let mean = b.mean(squares, axes, true)?;
    let eps = b.scalar_like(x, eps.get());
    let guarded = b.add(mean, eps)?;
    Ok((b.rsqrt(guarded)?, axes))
}

fn decompose_rms_norm(d: &mut Decomposition<'_>) -> Result<NodeId> {
    let x = d.wide()?;
    let (scale, _) = root(d.b, d.op, x)?;
    let mut y = d.b.mul(x, scale)?;
    if let Some(&weight) = d.inputs.get(1) {
        let weight = d.b.widen(weight)?;
        y = d.b.mul(y, weight)?;
    }
    d.narrow(y)
}

/// With `y = x * scale` and `g = ct * weight`: `scale * (g - y * mean(g * y))`. The weight's
/// cotangent is `ct * y`, summed over the rows.
fn rms_norm_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let dtype = v.b.dtype(v.inputs[0]);
    let (x, ct) = (v.b.widen(v.inputs[0])?, v.b.widen(v.ct)?);
    let op = v.op.clone();
    let (scale, axes) = root(v.b, &op, x)?;
    let y = v.b.mul(x, scale)?;
    let weight = v.inputs.get(1).copied();
    let of_x = v.operand(0, |v| {
        let g = match weight {
            None => ct,
            Some(weight) => {
                let weight = v.b.widen(weight)?;
                v.b.mul(ct, weight)?
            }
        };
        let along = v.b.mul(g, y)?;
        let along = v.b.mean(along, axes, true)?;
        let along = v.b.mul(y, along)?;
        let g = v.b.sub(g, along)?;
        let g = v.b.mul(scale, g)?;
        v.b.cast(g, dtype)
    })?;
    let mut cotangents: Cotangents = smallvec![of_x];
    if weight.is_some() {
        let ct = v.operand(1, |v| v.b.mul(ct, y))?;
        cotangents.push(ct.map(|ct| v.b.cast(ct, dtype)).transpose()?);
    }
    Ok(cotangents)
}

/// Mean 0 and variance 1 over some axes (attribute `Standardize`): Ioffe and Szegedy 2015, alg. 1,
/// without scale and shift.
pub static STANDARDIZE: OpDef = OpDef {
    factors: Factoring::Rule(factoring::along),
    name: "standardize",
    doc: "Elements with their mean over some axes taken away, divided by their deviation.",
    class: Class::Composite,
    arity: (1, 1),
    infer: standardize,
    derivative: Derivative::Rule(standardize_vjp),
    decompose: Some(decompose_standardize),
    samples: samples::networks::standardize,
    python: Python::Named("batch_norm"),
    precision: Precision::Full,
    ..OpDef::BLANK
};
/// Division by the root mean square over the last axes (attribute `Norm`), optionally scaled:
/// Zhang and Sennrich 2019, eq. 4.
pub static RMS_NORM: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    factors: Factoring::Rule(factoring::norm),
    name: "rms_norm",
    doc: "Elements divided by their root mean square over the last axes, then scaled.",
    class: Class::Composite,
    arity: (1, 2),
    infer: layer_norm,
    derivative: Derivative::Rule(rms_norm_vjp),
    batching: Some(Batching::First),
    decompose: Some(decompose_rms_norm),
    samples: samples::networks::rms_norm,
    precision: Precision::Full,
    ..OpDef::BLANK
};
