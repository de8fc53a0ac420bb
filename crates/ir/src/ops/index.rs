//! Ops that address elements by the values of an integer operand. Negative indices count from the
//! end. An index out of bounds is an error at run time.

mod products;

use super::*;
use crate::{Dim, Literal, NodeId, Shape};
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

/// Fails for indices into an axis without elements. Every such index is out of bounds, but the
/// check at run time would never execute for a result without elements.
fn require_elements(
    call: OpCall<'_>,
    indices: &TensorSpec,
    axis: usize,
    size: impl std::convert::Into<Dim>,
) -> Result<()> {
    if size.into().equals(0) && !indices.shape.has_no_elements() {
        let count = indices.shape.hints().iter().product();
        return Err(Error::EmptyAxis { op: call.name(), axis, count });
    }
    Ok(())
}

fn take(call: OpCall<'_>) -> Result<TensorSpec> {
    let [x, indices] = call.inputs else { unreachable!("arity is checked") };
    let Attrs::Axis(axis) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs an axis".into() });
    };
    require_index(call, indices)?;
    let axis = indexed_axis(call, x, axis)?;
    require_elements(call, indices, axis, x.shape.dim(axis))?;
    let dims =
        x.shape.dims().take(axis).chain(indices.shape.dims()).chain(x.shape.dims().skip(axis + 1));
    let shape: crate::Shape = dims.collect();
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
        || !indices.shape.with_dim(axis, x.shape.dim(axis)).equals(&x.shape)
    {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: x.shape.clone(),
            rhs: indices.shape.clone(),
            reason: format!("the indices must have the tensor's shape but for axis {axis}"),
        });
    }
    require_elements(call, indices, axis, x.shape.dim(axis))?;
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
    require_elements(call, indices, axis as usize, size as usize)?;
    Ok((indices, updates, axis as usize, size as usize))
}

fn scatter_add(call: OpCall<'_>) -> Result<TensorSpec> {
    let (indices, updates, axis, size) = scatter_parts(call)?;
    let (k, u) = (indices.shape.rank(), &updates.shape);
    if axis + k > u.rank() || !u.part(axis..axis + k).equals(&indices.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: indices.shape.clone(),
            rhs: u.clone(),
            reason: format!("the updates must hold the indices' shape from axis {axis} on"),
        });
    }
    let dims = u.dims().take(axis).chain([size.into()]).chain(u.dims().skip(axis + k));
    Ok(TensorSpec { shape: dims.collect(), dtype: updates.dtype })
}

fn scatter_add_along_axis(call: OpCall<'_>) -> Result<TensorSpec> {
    let (indices, updates, axis, size) = scatter_parts(call)?;
    if !indices.shape.equals(&updates.shape) || axis >= updates.shape.rank() {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: indices.shape.clone(),
            rhs: updates.shape.clone(),
            reason: format!("indices and updates must have one shape with an axis {axis}"),
        });
    }
    Ok(TensorSpec { shape: updates.shape.with_dim(axis, size), dtype: updates.dtype })
}

/// Checks the operands of a scatter into an operand, `[x, indices, updates]`; returns axis and
/// mode.
fn into_parts(call: OpCall<'_>) -> Result<(usize, ScatterMode)> {
    let [x, indices, updates] = call.inputs else { unreachable!("arity is checked") };
    let Attrs::ScatterInto { axis, mode } = call.op.attrs else {
        let reason = "needs an axis and a mode".into();
        return Err(Error::InvalidArgument { op: call.name(), reason });
    };
    require_index(call, indices)?;
    if x.dtype != updates.dtype {
        let (op, lhs, rhs) = (call.name(), x.dtype, updates.dtype);
        return Err(Error::DTypeMismatch { op, lhs, rhs });
    }
    let numbers = mode == ScatterMode::Set || x.dtype != DType::Bool;
    require_dtype(call, x.dtype, numbers, "numbers, unless the mode is set")?;
    let ordered = !matches!(mode, ScatterMode::Min | ScatterMode::Max) || !x.dtype.is_complex();
    require_dtype(call, x.dtype, ordered, "a real dtype, since complex numbers have no order")?;
    let axis = indexed_axis(call, x, axis)?;
    require_elements(call, indices, axis, x.shape.dim(axis))?;
    Ok((axis, mode))
}

fn scatter(call: OpCall<'_>) -> Result<TensorSpec> {
    let (axis, _) = into_parts(call)?;
    let [x, indices, updates] = call.inputs else { unreachable!("arity is checked") };
    let dims =
        x.shape.dims().take(axis).chain(indices.shape.dims()).chain(x.shape.dims().skip(axis + 1));
    let expected: crate::Shape = dims.collect();
    if !updates.shape.equals(&expected) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: x.shape.clone(),
            rhs: updates.shape.clone(),
            reason: format!("the updates must have the shape {expected}, of what is replaced"),
        });
    }
    Ok((*x).clone())
}

fn scatter_along_axis(call: OpCall<'_>) -> Result<TensorSpec> {
    let (axis, _) = into_parts(call)?;
    let [x, indices, updates] = call.inputs else { unreachable!("arity is checked") };
    let lanes = indices.shape.rank() == x.shape.rank()
        && indices.shape.with_dim(axis, x.shape.dim(axis)).equals(&x.shape);
    if !lanes || !indices.shape.equals(&updates.shape) {
        return Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: x.shape.clone(),
            rhs: if lanes { updates.shape.clone() } else { indices.shape.clone() },
            reason: format!(
                "indices and updates must have one shape, the tensor's but for axis {axis}"
            ),
        });
    }
    Ok((*x).clone())
}

fn wrap_index(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::Size(size) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs a size".into() });
    };
    require_index(call, call.inputs[0])?;
    require_elements(call, call.inputs[0], 0, size)?;
    Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype: DType::I64 })
}

fn axis_of(op: &Op) -> u8 {
    match op.attrs {
        Attrs::Axis(axis) | Attrs::Scatter { axis, .. } | Attrs::ScatterInto { axis, .. } => axis,
        _ => unreachable!("ops that index carry an axis"),
    }
}

/// The cotangent of a gather's operand: the result's cotangent, scattered.
fn gather_vjp(v: &mut Vjp<'_>, transpose: OpCode) -> Result<Cotangents> {
    let put_back = put_back(v.b, transpose, axis_of(&v.op), [v.inputs[0], v.inputs[1], v.ct])?;
    Ok(smallvec![Some(put_back), None])
}

/// Adds elements at the indices from which they were gathered, by `ScatterAdd` or
/// `ScatterAddAlongAxis`.
pub(super) fn put_back(
    b: &mut crate::GraphBuilder,
    code: OpCode,
    axis: u8,
    [from, indices, elements]: [NodeId; 3],
) -> Result<NodeId> {
    let Some(size) = b.shape(from).dim(axis as usize).known() else {
        let code = match code {
            OpCode::ScatterAdd => OpCode::Scatter,
            _ => OpCode::ScatterAlongAxis,
        };
        let op = Op::new(code, Attrs::ScatterInto { axis, mode: ScatterMode::Add });
        let zeros = b.zeros_like(from);
        return b.emit(op, &[zeros, indices, elements]);
    };
    let size = u32::try_from(size).map_err(|_| Error::InvalidShape {
        op: code.def().name,
        shape: b.shape(from).clone(),
        reason: format!("axis {axis} is too long to take a gradient; at most {}", u32::MAX),
    })?;
    b.emit(Op::new(code, Attrs::Scatter { axis, size }), &[indices, elements])
}

/// The cotangent of a scatter's updates: the result's cotangent, gathered.
fn scatter_vjp(v: &mut Vjp<'_>, transpose: OpCode) -> Result<Cotangents> {
    let gather = Op::new(transpose, Attrs::Axis(axis_of(&v.op)));
    let updates: NodeId = v.b.emit(gather, &[v.ct, v.inputs[0]])?;
    Ok(smallvec![None, Some(updates)])
}

/// Two ops that the derivative of a scatter into an operand uses: the gather at the same indices,
/// and the scatter itself.
struct Into {
    axis: u8,
    gather: OpCode,
    scatter: OpCode,
}

impl Into {
    fn of(v: &Vjp<'_>) -> Into {
        let gather = match v.op.code {
            OpCode::Scatter => OpCode::Take,
            _ => OpCode::TakeAlongAxis,
        };
        Into { axis: axis_of(&v.op), gather, scatter: v.op.code }
    }

    /// Gathers the elements of `from` at the scatter's indices.
    fn read(&self, v: &mut Vjp<'_>, from: NodeId) -> Result<NodeId> {
        v.b.emit(Op::new(self.gather, Attrs::Axis(self.axis)), &[from, v.inputs[1]])
    }

    fn write(
        &self,
        v: &mut Vjp<'_>,
        mode: ScatterMode,
        x: NodeId,
        updates: NodeId,
    ) -> Result<NodeId> {
        let attrs = Attrs::ScatterInto { axis: self.axis, mode };
        v.b.emit(Op::new(self.scatter, attrs), &[x, v.inputs[1], updates])
    }

    /// A mask of the updates that the result keeps: of several updates of one element, only one is
    /// kept. The mask broadcasts to the updates and is computed by scattering the updates' numbers.
    fn stayed(&self, v: &mut Vjp<'_>) -> Result<NodeId> {
        let (indices, axis) = (v.inputs[1], self.axis as usize);
        let shape = v.b.shape(v.inputs[0]).clone();
        let zero = Literal::from_i64(DType::I64, 0);
        let set = |axis| Attrs::ScatterInto { axis, mode: ScatterMode::Set };
        if self.scatter == OpCode::ScatterAlongAxis {
            let lanes = v.b.shape(indices).clone();
            let numbers = v.b.iota(lanes, DType::I64, self.axis);
            let blank = v.b.constant(zero, shape);
            let slots =
                v.b.emit(Op::new(self.scatter, set(self.axis)), &[blank, indices, numbers])?;
            let back = self.read(v, slots)?;
            return v.b.eq(back, numbers);
        }
        let from = v.b.shape(indices).clone();
        let numbers = v.b.iota(Shape::of_dims([from.count()]), DType::I64, 0);
        let numbers = v.b.reshape(numbers, from.clone())?;
        let blank = v.b.constant(zero, Shape::of_dims([shape.dim(axis)]));
        let slots = v.b.emit(Op::new(self.scatter, set(0)), &[blank, indices, numbers])?;
        let back = v.b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[slots, indices])?;
        let stayed = v.b.eq(back, numbers)?;
        let trailing = std::iter::repeat_n(1.into(), shape.rank() - axis - 1);
        let aligned: crate::Shape = from.dims().chain(trailing).collect();
        v.b.reshape(stayed, aligned)
    }
}

fn scatter_into_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let Attrs::ScatterInto { mode, .. } = v.op.attrs else { unreachable!("it carries a mode") };
    let into = Into::of(v);
    let mut cotangents = Cotangents::from_slice(&[None, None, None]);
    let (for_x, for_updates) = (v.wanted[0], v.wanted[2]);
    match mode {
        ScatterMode::Set => {
            if for_x {
                let zeros = v.b.zeros_like(v.inputs[2]);
                cotangents[0] = Some(into.write(v, ScatterMode::Set, v.ct, zeros)?);
            }
            if for_updates {
                let (read, stayed, zero) = (into.read(v, v.ct)?, into.stayed(v)?, v.scalar(0.0));
                cotangents[2] = Some(v.b.select(stayed, read, zero)?);
            }
        }
        ScatterMode::Add => {
            cotangents[0] = Some(v.ct);
            if for_updates {
                cotangents[2] = Some(into.read(v, v.ct)?);
            }
        }
        ScatterMode::Mul => {
            if for_x {
                let spec = v.b.spec(v.inputs[0]).clone();
                let ones = v.b.constant(Literal::from_i64(spec.dtype, 1), spec.shape);
                let factors = into.write(v, ScatterMode::Mul, ones, v.inputs[2])?;
                cotangents[0] = Some(v.b.mul(v.ct, factors)?);
            }
            if for_updates {
                let whole = v.b.mul(v.ct, v.inputs[0])?;
                let (read, others) = (into.read(v, whole)?, products::others(v)?);
                cotangents[2] = Some(v.b.mul(read, others)?);
            }
        }
        ScatterMode::Min => return extremum_vjp(v, &into, OpCode::Gt),
        ScatterMode::Max => return extremum_vjp(v, &into, OpCode::Lt),
    }
    Ok(cotangents)
}

/// The element and the updates that equal the extremum share the cotangent evenly, as in a
/// reduction; `loses` is the comparison of the other values with the extremum. If the extremum is
/// NaN, all get NaN. Ties are counted in f32 for the half floats.
fn extremum_vjp(v: &mut Vjp<'_>, into: &Into, loses: OpCode) -> Result<Cotangents> {
    let dtype = v.b.dtype(v.ct);
    let best = into.read(v, v.output)?;
    let lost_updates = v.b.op(loses, &[v.inputs[2], best])?;
    let lost = v.b.op(loses, &[v.inputs[0], v.output])?;
    let (none, one) = (v.b.scalar(dtype.widened(), 0.0), v.b.scalar(dtype.widened(), 1.0));
    let (ones, counts) = (v.b.select(lost, none, one)?, v.b.select(lost_updates, none, one)?);
    let count = into.write(v, ScatterMode::Add, ones, counts)?;
    let ct = v.b.widen(v.ct)?;
    let share = v.b.div(ct, count)?;
    let share = v.b.cast(share, dtype)?;
    let undefined = v.b.isnan(v.output)?;
    let share = v.b.select(undefined, v.output, share)?;
    let zero = v.scalar(0.0);
    let for_x = v.b.select(lost, zero, share)?;
    let read = into.read(v, share)?;
    let for_updates = v.b.select(lost_updates, zero, read)?;
    Ok(smallvec![Some(for_x), None, Some(for_updates)])
}

const INDEX: OpDef = OpDef { class: Class::Index, arity: (2, 2), can_fail: true, ..OpDef::BLANK };

/// `take(x, indices)`: slices of `x` along an axis; the indices' shape replaces the axis.
pub static TAKE: OpDef = OpDef {
    cost: Cost::Lookup,
    linear: Linearity::In(&[&[0]]),
    factors: Factoring::Rule(factoring::take),
    masked: Some(masked::take),
    samples: samples::indexing,
    name: "take",
    batching: Some(Batching::Rule),
    doc: "Slices of a tensor along an axis, by index.",
    infer: take,
    derivative: Derivative::Rule(|v| gather_vjp(v, OpCode::ScatterAdd)),
    ..INDEX
};
/// `take_along_axis(x, indices)`: one element per index, the other coordinates unchanged.
pub static TAKE_ALONG_AXIS: OpDef = OpDef {
    cost: Cost::Lookup,
    linear: Linearity::In(&[&[0]]),
    factors: Factoring::Rule(factoring::take_along_axis),
    masked: Some(masked::take_along_axis),
    samples: samples::indexing,
    name: "take_along_axis",
    doc: "One element per index along an axis, other coordinates unchanged.",
    infer: take_along_axis,
    derivative: Derivative::Rule(|v| gather_vjp(v, OpCode::ScatterAddAlongAxis)),
    ..INDEX
};
/// `scatter_add(indices, updates)`: adds each update to zeros at its index; the transpose of take.
pub static SCATTER_ADD: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    accumulates: |_| true,
    factors: Factoring::Rule(factoring::scatter_add),
    samples: samples::indexing,
    python: Python::Nothing("it is the derivative of the op that takes"),
    name: "scatter_add",
    batching: Some(Batching::Rule),
    doc: "Zeros with slices added along an axis, by index.",
    infer: scatter_add,
    derivative: Derivative::Rule(|v| scatter_vjp(v, OpCode::Take)),
    ..INDEX
};
/// `scatter_add_along_axis(indices, updates)`: the transpose of take_along_axis.
pub static SCATTER_ADD_ALONG_AXIS: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    accumulates: |_| true,
    factors: Factoring::Rule(factoring::scatter_add_along_axis),
    samples: samples::indexing,
    python: Python::Nothing("it is the derivative of the op that takes"),
    name: "scatter_add_along_axis",
    doc: "Zeros with elements added along an axis, by index, other coordinates unchanged.",
    infer: scatter_add_along_axis,
    derivative: Derivative::Rule(|v| scatter_vjp(v, OpCode::TakeAlongAxis)),
    ..INDEX
};

/// Scatters that set or add are linear in the tensor and the updates.
fn scatter_linear(attrs: &Attrs) -> &'static [usize] {
    match attrs {
        Attrs::ScatterInto { mode: ScatterMode::Set | ScatterMode::Add, .. } => &[0, 2],
        _ => &[],
    }
}

/// Scatters that add or multiply combine any number of updates of one element.
fn scatter_accumulates(attrs: &Attrs) -> bool {
    matches!(attrs, Attrs::ScatterInto { mode: ScatterMode::Add | ScatterMode::Mul, .. })
}

/// `scatter(x, indices, updates)`: `x` with slices along an axis replaced by, or combined with,
/// updates by index (attribute `ScatterInto`). Updates of one element are applied in row-major
/// order.
pub static SCATTER: OpDef = OpDef {
    linear: Linearity::ByAttrs(scatter_linear),
    accumulates: scatter_accumulates,
    factors: Factoring::Rule(factoring::scatter),
    name: "scatter",
    batching: Some(Batching::Rule),
    doc: "A tensor with slices along an axis set, or combined with updates, by index.",
    arity: (3, 3),
    infer: scatter,
    derivative: Derivative::Rule(scatter_into_vjp),
    samples: samples::indexing,
    python: Python::Named("Tensor.__setitem__"),
    ..INDEX
};
/// `scatter_along_axis(x, indices, updates)`: one element per index, other coordinates unchanged.
pub static SCATTER_ALONG_AXIS: OpDef = OpDef {
    linear: Linearity::ByAttrs(scatter_linear),
    accumulates: scatter_accumulates,
    factors: Factoring::Rule(factoring::scatter_along_axis),
    name: "scatter_along_axis",
    doc: "A tensor with elements set, or combined with updates, by index along an axis.",
    arity: (3, 3),
    infer: scatter_along_axis,
    derivative: Derivative::Rule(scatter_into_vjp),
    samples: samples::indexing,
    python: Python::Named("put_along_axis"),
    ..INDEX
};
/// `wrap_index(indices)`: converts negative indices of an axis of `Size` elements, and checks
/// bounds. This op checks the indices of several axes before they are combined into one index.
pub static WRAP_INDEX: OpDef = OpDef {
    cost: Cost::Lookup,
    factors: Factoring::Rule(factoring::elementwise),
    name: "wrap_index",
    doc: "Indices from the front of an axis; one outside it is an error.",
    arity: (1, 1),
    infer: wrap_index,
    derivative: Derivative::Zero("indices are integers"),
    samples: samples::indexing,
    python: Python::Nothing("it checks indices of several axes before they become one"),
    ..INDEX
};
/// `check_label(labels)`: the labels unchanged, for `Size` classes. A label out of range, including
/// a negative one, is an error.
pub static CHECK_LABEL: OpDef = OpDef {
    cost: Cost::Checked,
    name: "check_label",
    doc: "Class labels as they are; one that names no class is an error.",
    python: Python::Nothing("losses and one_hot check their labels by it"),
    ..WRAP_INDEX
};
