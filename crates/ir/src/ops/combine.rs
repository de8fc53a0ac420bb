//! Ops that place operands into a larger result: concat and pad.

use super::rules::only;
use super::*;
use crate::Dim;

fn concat(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    let Attrs::Axis(axis) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    let (axis, first) = (axis as usize, &call.inputs[0].shape);
    if axis >= first.rank() {
        let (axis, rank) = (axis as i64, first.rank());
        return Err(Error::AxisOutOfRange { op: call.name(), axis, rank });
    }
    let mut size = Dim::from(0);
    for s in call.inputs {
        if s.shape.rank() != first.rank() || !s.shape.with_dim(axis, first.dim(axis)).equals(first)
        {
            return Err(Error::ShapeMismatch {
                op: call.name(),
                lhs: first.clone(),
                rhs: s.shape.clone(),
                reason: format!("all axes but axis {axis} must be equal"),
            });
        }
        size = size + s.shape.dim(axis);
    }
    let shape = first.with_dim(axis, size);
    shape.check(call.name(), dtype)?;
    Ok(TensorSpec { shape, dtype })
}

fn pad(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = call.inputs[0];
    let Attrs::Pad(pad) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs widths".into() });
    };
    if pad.0.len() != spec.shape.rank() {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: spec.shape.clone(),
            reason: format!("{} axes are padded", pad.0.len()),
        });
    }
    let padded = |(d, n): (&PadDim, Dim)| {
        let gaps = if d.interior == 0 { Dim::from(0) } else { (n - 1usize) * d.interior };
        n + gaps + d.low + d.high
    };
    let shape: crate::Shape = pad.0.iter().zip(spec.shape.dims()).map(padded).collect();
    shape.check(call.name(), spec.dtype)?;
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

/// Each operand's cotangent is the slice of the cotangent at the operand's position.
fn concat_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let Attrs::Axis(axis) = v.op.attrs else { unreachable!("concat carries an axis") };
    let axis = axis as usize;
    let mut start = Dim::from(0);
    let mut cotangents = Cotangents::with_capacity(v.inputs.len());
    for (&input, &wanted) in v.inputs.iter().zip(v.wanted) {
        let size = v.b.shape(input).dim(axis);
        let part = if wanted { Some(v.b.slice_axis(v.ct, axis, start, size)?) } else { None };
        cotangents.push(part);
        start = start + size;
    }
    Ok(cotangents)
}

/// The slice of the cotangent at the positions of the operand's elements.
fn pad_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let Attrs::Pad(pad) = &v.op.attrs else { unreachable!("pad carries widths") };
    let shape = v.b.shape(v.inputs[0]).clone();
    let taken = |(d, size): (&PadDim, Dim)| SliceDim {
        start: if d.low == 0 || size.equals(0) { 0 } else { d.low },
        size: size.hint(),
        step: d.interior + 1,
    };
    let dims = pad.0.iter().zip(shape.dims()).map(taken).collect();
    only(v.b.slice_of(v.ct, dims, &shape)?)
}

fn update_slice(call: OpCall<'_>) -> Result<TensorSpec> {
    same_dtype(call)?;
    let (part, updates) = (super::view::slice(call)?, call.inputs[1]);
    if !part.shape.equals(&updates.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: part.shape,
            rhs: updates.shape.clone(),
            reason: "the update must have the shape of the part it replaces".into(),
        });
    }
    Ok(call.inputs[0].clone())
}

/// The tensor's cotangent is the cotangent with zeros in the replaced slice; the update's cotangent
/// is this slice.
fn update_slice_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let mut cotangents = Cotangents::from_slice(&[None, None]);
    if v.wanted[0] {
        let zeros = v.b.zeros_like(v.inputs[1]);
        cotangents[0] = Some(v.b.emit(v.op.clone(), &[v.ct, zeros])?);
    }
    if v.wanted[1] {
        let slice = Op::new(OpCode::Slice, v.op.attrs.clone());
        cotangents[1] = Some(v.b.emit(slice, &[v.ct])?);
    }
    Ok(cotangents)
}

/// Operands concatenated along an axis (attribute `Axis`).
pub static CONCAT: OpDef = OpDef {
    factors: Factoring::Rule(factoring::concat),
    part: Some(parts::concat),
    samples: samples::concat,
    linear: Linearity::All,
    name: "concat",
    doc: "Tensors side by side along an axis.",
    class: Class::Combine,
    arity: (1, usize::MAX),
    infer: concat,
    derivative: Derivative::Rule(concat_vjp),
    ..OpDef::BLANK
};

/// A tensor padded with one value around and between its elements (attribute `Pad`).
pub static PAD: OpDef = OpDef {
    factors: Factoring::Rule(factoring::pad),
    part: Some(parts::pad),
    samples: samples::pad,
    linear: Linearity::All,
    name: "pad",
    doc: "A tensor with a border of one value around and between its elements.",
    class: Class::Combine,
    arity: (1, 1),
    infer: pad,
    derivative: Derivative::Rule(pad_vjp),
    ..OpDef::BLANK
};

/// A tensor with a strided slice replaced by another tensor (attribute `Slice`).
pub static UPDATE_SLICE: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::update_slice),
    part: Some(parts::update_slice),
    name: "update_slice",
    doc: "A tensor with a part of each axis, with steps, replaced by another tensor.",
    class: Class::Combine,
    arity: (2, 2),
    infer: update_slice,
    derivative: Derivative::Rule(update_slice_vjp),
    samples: samples::update_slice,
    python: Python::Named("Tensor.__setitem__"),
    ..OpDef::BLANK
};
