//! Views: rearrangements of one operand's elements that need no arithmetic.

use super::rules::only;
use super::*;
use crate::index_map::{broadcast_iteration, flip_iteration, permute_iteration, slice_iteration};
use crate::{Dim, Literal, Shape};

const fn view(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
    vjp: fn(&mut Vjp<'_>) -> Result<Cotangents>,
) -> OpDef {
    let derivative = Derivative::Rule(vjp);
    let (class, samples) = (Class::View, samples::views);
    OpDef { name, doc, class, arity: (1, 1), infer, derivative, samples, ..OpDef::BLANK }
}

fn target<'a>(call: OpCall<'a>) -> Result<&'a Shape> {
    match &call.op.attrs {
        Attrs::Shape(shape) => Ok(shape),
        _ => Err(Error::InvalidArgument { op: call.name(), reason: "needs a shape".into() }),
    }
}

fn reshape(call: OpCall<'_>) -> Result<TensorSpec> {
    let (from, to) = (&call.inputs[0].shape, target(call)?);
    to.check(call.name(), call.inputs[0].dtype)?;
    if !from.count().equals(to.count()) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: from.clone(),
            rhs: to.clone(),
            reason: format!(
                "they hold {} and {} elements; a reshape keeps the count",
                from.count(),
                to.count()
            ),
        });
    }
    Ok(TensorSpec { shape: to.clone(), dtype: call.inputs[0].dtype })
}

fn permute(call: OpCall<'_>) -> Result<TensorSpec> {
    let shape = &call.inputs[0].shape;
    let Attrs::Perm(perm) = &call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs axes".into() });
    };
    // Axes out of range would not fit an axis set.
    let known = perm.iter().map(|&a| a as usize).filter(|&a| a < shape.rank());
    let set: AxisSet = known.collect();
    if perm.len() != shape.rank() || set != AxisSet::all(shape.rank()) {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: shape.clone(),
            reason: format!("axes {perm:?} must name each axis of the operand once"),
        });
    }
    Ok(TensorSpec {
        shape: perm.iter().map(|&a| shape.dim(a as usize)).collect(),
        dtype: call.inputs[0].dtype,
    })
}

fn broadcast_to(call: OpCall<'_>) -> Result<TensorSpec> {
    let (from, to) = (&call.inputs[0].shape, target(call)?);
    to.check(call.name(), call.inputs[0].dtype)?;
    if !from.broadcasts_to(to) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: from.clone(),
            rhs: to.clone(),
            reason:
                "every axis of the first, aligned at the right, must equal the second's or be 1"
                    .into(),
        });
    }
    Ok(TensorSpec { shape: to.clone(), dtype: call.inputs[0].dtype })
}

/// True if `taken` elements from a start with a step lie within an axis of size `size`.
fn lies_within(d: &SliceDim, taken: Dim, size: Dim) -> bool {
    if d.step == 1 {
        return size.at_least(taken + d.start);
    }
    if taken.equals(0) {
        return size.at_least(d.start);
    }
    size.at_least((taken - 1usize) * d.step + d.start + 1usize)
}

/// The strided slice that a call's bounds select from its first operand.
pub(super) fn slice(call: OpCall<'_>) -> Result<TensorSpec> {
    let shape = &call.inputs[0].shape;
    let (dims, result) = match &call.op.attrs {
        Attrs::Slice(dims) => (&**dims, None),
        Attrs::SliceOf(of) => (&of.0, Some(&of.1)),
        _ => {
            return Err(Error::InvalidArgument { op: call.name(), reason: "needs bounds".into() });
        }
    };
    if dims.len() != shape.rank() {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: shape.clone(),
            reason: format!("{} axes are sliced", dims.len()),
        });
    }
    for (axis, (d, size)) in dims.iter().zip(shape.dims()).enumerate() {
        let taken = result.map_or(d.size.into(), |result| result.dim(axis));
        if d.step == 0 || !lies_within(d, taken, size) {
            let last =
                d.size.checked_sub(1).map(|n| d.start.saturating_add(n.saturating_mul(d.step)));
            let index = (last.unwrap_or(d.start) as i128).into();
            return Err(Error::IndexOutOfBounds {
                op: call.name(),
                index,
                axis,
                size: size.hint(),
            });
        }
    }
    let shape = result.cloned().unwrap_or_else(|| dims.iter().map(|d| d.size).collect());
    Ok(TensorSpec { shape, dtype: call.inputs[0].dtype })
}

fn flip(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::Axes { axes, .. } = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs axes".into() });
    };
    let spec = call.inputs[0];
    if axes.bound() > spec.shape.rank() {
        let (axis, rank) = (axes.bound() as i64 - 1, spec.shape.rank());
        return Err(Error::AxisOutOfRange { op: call.name(), axis, rank });
    }
    Ok(spec.clone())
}

fn reshape_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let shape = v.b.shape(v.inputs[0]).clone();
    only(v.b.reshape(v.ct, shape)?)
}

fn permute_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let Attrs::Perm(perm) = &v.op.attrs else { unreachable!("permute carries a permutation") };
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(to, &from)| inverse[from as usize] = to);
    only(v.b.permute(v.ct, &inverse)?)
}

fn broadcast_to_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let shape = v.b.shape(v.inputs[0]).clone();
    only(v.b.sum_to(v.ct, &shape)?)
}

/// Pads with zeros before, after and between the sliced elements.
fn slice_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let dims = match &v.op.attrs {
        Attrs::Slice(dims) => &**dims,
        Attrs::SliceOf(of) => &of.0,
        _ => unreachable!("slice carries bounds"),
    };
    let (from, taken) = (v.b.shape(v.inputs[0]), v.b.shape(v.ct));
    // A pad needs known numbers of zeros on both sides.
    let counted = |(axis, d): (usize, &SliceDim)| {
        let (size, n) = (from.dim(axis), taken.dim(axis));
        n == size
            || match d.step {
                1 => (size - (n + d.start)).known().is_some(),
                _ => size.known().is_some() && n.known().is_some(),
            }
    };
    if !dims.iter().enumerate().all(counted) {
        let zeros = v.b.zeros_like(v.inputs[0]);
        let update = Op::new(OpCode::UpdateSlice, v.op.attrs.clone());
        return only(v.b.emit(update, &[zeros, v.ct])?);
    }
    let width = |(axis, d): (usize, &SliceDim)| {
        let (size, n) = (from.dim(axis), taken.dim(axis));
        if n == size {
            return PadDim::default();
        }
        if d.step == 1 {
            return PadDim { low: d.start, high: (size - (n + d.start)).get(), interior: 0 };
        }
        if n.equals(0) {
            return PadDim { low: 0, high: size.get(), interior: 0 };
        }
        let end = (n - 1usize) * d.step + d.start + 1usize;
        PadDim { low: d.start, high: (size - end).get(), interior: d.step - 1 }
    };
    let widths = dims.iter().enumerate().map(width).collect();
    let zero = Literal::from_i64(v.b.dtype(v.ct), 0);
    only(v.b.pad(v.ct, widths, zero)?)
}

fn flip_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(v.b.emit(v.op.clone(), &[v.ct])?)
}

/// The same elements in the same row-major order with another shape.
pub static RESHAPE: OpDef = OpDef {
    class: Class::Reshape,
    part: Some(parts::reshape),
    ..view(
        "reshape",
        "The same elements in the same order under another shape.",
        reshape,
        reshape_vjp,
    )
};
/// Permuted axes.
pub static PERMUTE: OpDef = OpDef {
    factors: Factoring::Rule(factoring::permute),
    category: Some(Category::Transpose),
    iteration: Some(permute_iteration),
    ..view("permute", "The axes in another order.", permute, permute_vjp)
};
/// Broadcasts axes of size one and adds leading axes.
pub static BROADCAST_TO: OpDef = OpDef {
    factors: Factoring::Rule(factoring::elementwise),
    category: Some(Category::Broadcast),
    batching: Some(Batching::Broadcast),
    iteration: Some(broadcast_iteration),
    ..view(
        "broadcast_to",
        "Axes of size one stretched, axes added in front.",
        broadcast_to,
        broadcast_to_vjp,
    )
};
/// A strided slice of the elements.
pub static SLICE: OpDef = OpDef {
    factors: Factoring::Rule(factoring::slice),
    part: Some(parts::slice),
    python: Python::Named("Tensor.__getitem__"),
    iteration: Some(slice_iteration),
    ..view("slice", "A part of each axis, with steps.", slice, slice_vjp)
};
/// Some axes reversed.
pub static FLIP: OpDef = OpDef {
    factors: Factoring::Rule(factoring::along),
    part: Some(parts::flip),
    category: Some(Category::Transpose),
    iteration: Some(flip_iteration),
    ..view("flip", "Some axes reversed.", flip, flip_vjp)
};
