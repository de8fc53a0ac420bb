//! Ops that address elements by the values of an integer operand. Negative indices count from the
//! end; an index outside the axis is an error when the program runs.

use super::*;
use crate::NodeId;
use smallvec::smallvec;

fn indexed_axis(call: OpCall<'_>, spec: &TensorSpec, axis: u8) -> Result<usize> {
    if (axis as usize) < spec.shape.rank() {
        return Ok(axis as usize);
    }
    Err(Error::AxisOutOfRange { op: call.name(), axis: axis as i64, rank: spec.shape.rank() })
}

fn require_index(call: OpCall<'_>, indices: &TensorSpec) -> Result<()> {
    require_dtype(call, indices.dtype, indices.dtype.is_int(), "an integer dtype for the indices")
}

fn take(call: OpCall<'_>) -> Result<TensorSpec> {
    let [x, indices] = call.inputs else { unreachable!("arity is checked") };
    let Attrs::Axis(axis) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    require_index(call, indices)?;
    let axis = indexed_axis(call, x, axis)?;
    let dims = x.shape[..axis].iter().chain(indices.shape.iter()).chain(&x.shape[axis + 1..]);
    let shape: crate::Shape = dims.copied().collect();
    shape.check(call.name(), x.dtype)?;
    Ok(TensorSpec { shape, dtype: x.dtype })
}

fn take_along_axis(call: OpCall<'_>) -> Result<TensorSpec> {
    let [x, indices] = call.inputs else { unreachable!("arity is checked") };
    let Attrs::Axis(axis) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    require_index(call, indices)?;
    let axis = indexed_axis(call, x, axis)?;
    if indices.shape.rank() != x.shape.rank()
        || indices.shape.with_dim(axis, x.shape[axis]) != x.shape
    {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: x.shape.clone(),
            rhs: indices.shape.clone(),
            reason: format!("the indices must have the tensor's shape but for axis {axis}"),
        });
    }
    Ok(TensorSpec { shape: indices.shape.clone(), dtype: x.dtype })
}

fn scatter_parts<'a>(call: OpCall<'a>) -> Result<(&'a TensorSpec, &'a TensorSpec, usize, usize)> {
    let [indices, updates] = call.inputs else { unreachable!("arity is checked") };
    let Attrs::Scatter { axis, size } = call.op.attrs else {
        return Err(Error::InvalidArgument {
            op: call.name(),
            reason: "needs axis and size".into(),
        });
    };
    require_index(call, indices)?;
    require_dtype(call, updates.dtype, updates.dtype != DType::Bool, "numbers to add")?;
    Ok((indices, updates, axis as usize, size as usize))
}

fn scatter_add(call: OpCall<'_>) -> Result<TensorSpec> {
    let (indices, updates, axis, size) = scatter_parts(call)?;
    let (k, u) = (indices.shape.rank(), &updates.shape);
    if axis + k > u.rank() || u[axis..axis + k] != *indices.shape {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: indices.shape.clone(),
            rhs: u.clone(),
            reason: format!("the updates must hold the indices' shape from axis {axis} on"),
        });
    }
    let dims = u[..axis].iter().chain([&size]).chain(&u[axis + k..]);
    Ok(TensorSpec { shape: dims.copied().collect(), dtype: updates.dtype })
}

fn scatter_add_along_axis(call: OpCall<'_>) -> Result<TensorSpec> {
    let (indices, updates, axis, size) = scatter_parts(call)?;
    if indices.shape != updates.shape || axis >= updates.shape.rank() {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: indices.shape.clone(),
            rhs: updates.shape.clone(),
            reason: format!("indices and updates must have one shape with an axis {axis}"),
        });
    }
    Ok(TensorSpec { shape: updates.shape.with_dim(axis, size), dtype: updates.dtype })
}

fn axis_of(op: &Op) -> u8 {
    match op.attrs {
        Attrs::Axis(axis) | Attrs::Scatter { axis, .. } => axis,
        _ => unreachable!("ops that index carry an axis"),
    }
}

/// The cotangent of the tensor a take of some kind reads: the same cotangent, scattered.
fn gather_vjp(v: &mut Vjp<'_>, transpose: OpCode) -> Result<Cotangents> {
    let axis = axis_of(&v.op);
    let size = v.b.shape(v.inputs[0])[axis as usize];
    let size = u32::try_from(size).map_err(|_| Error::InvalidShape {
        op: v.op.name(),
        shape: v.b.shape(v.inputs[0]).clone(),
        reason: format!("axis {axis} is too long to take a gradient; at most {}", u32::MAX),
    })?;
    let op = Op::new(transpose, Attrs::Scatter { axis, size });
    Ok(smallvec![Some(v.b.emit(op, &[v.inputs[1], v.ct])?), None])
}

/// The cotangent of the updates a scatter of some kind adds: the result's, gathered.
fn scatter_vjp(v: &mut Vjp<'_>, transpose: OpCode) -> Result<Cotangents> {
    let gather = Op::new(transpose, Attrs::Axis(axis_of(&v.op)));
    let updates: NodeId = v.b.emit(gather, &[v.ct, v.inputs[0]])?;
    Ok(smallvec![None, Some(updates)])
}

const INDEX: OpDef = OpDef { class: Class::Index, arity: (2, 2), ..OpDef::BLANK };

/// `take(x, indices)`: whole slices of `x` along an axis; the axis is replaced by the indices'
/// shape.
pub static TAKE: OpDef = OpDef {
    samples: samples::indexing,
    name: "take",
    doc: "Slices of a tensor along an axis, by index.",
    infer: take,
    derivative: Derivative::Rule(|v| gather_vjp(v, OpCode::ScatterAdd)),
    ..INDEX
};
/// `take_along_axis(x, indices)`: one element per index, the other coordinates unchanged.
pub static TAKE_ALONG_AXIS: OpDef = OpDef {
    samples: samples::indexing,
    name: "take_along_axis",
    doc: "One element per index along an axis, other coordinates unchanged.",
    infer: take_along_axis,
    derivative: Derivative::Rule(|v| gather_vjp(v, OpCode::ScatterAddAlongAxis)),
    ..INDEX
};
/// `scatter_add(indices, updates)`: zeros, plus each update at its index: the transpose of take.
pub static SCATTER_ADD: OpDef = OpDef {
    samples: samples::indexing,
    python: Python::Nothing("it is the derivative of the op that takes"),
    name: "scatter_add",
    doc: "Zeros with slices added along an axis, by index.",
    infer: scatter_add,
    derivative: Derivative::Rule(|v| scatter_vjp(v, OpCode::Take)),
    ..INDEX
};
/// `scatter_add_along_axis(indices, updates)`: the transpose of take_along_axis.
pub static SCATTER_ADD_ALONG_AXIS: OpDef = OpDef {
    samples: samples::indexing,
    python: Python::Nothing("it is the derivative of the op that takes"),
    name: "scatter_add_along_axis",
    doc: "Zeros with elements added along an axis, by index, other coordinates unchanged.",
    infer: scatter_add_along_axis,
    derivative: Derivative::Rule(|v| scatter_vjp(v, OpCode::TakeAlongAxis)),
    ..INDEX
};
