//! Collectives: ops over all members of a batch with a named axis.
//!
//! In a batched function, a value is the value of one member, and the batch axis is not one of its
//! axes. Collectives refer to the batch axis by name. Their second operand is the member's index
//! along the axis. A collective thus depends on the batch even if its first operand does not, so it
//! stays in the batched function. Batching over an axis of this name replaces collectives by ops
//! along the batch axis; all other transforms keep them. An unbound axis has one member.
//!
//! The other collectives (`pmax`, `ppermute`, `all_to_all`, `psum_scatter`, ...) are compositions
//! of these two collectives and of indexing by the member's index.

use super::*;
use crate::{Dim, NodeId, Shape};
use std::sync::Arc;

/// The name of a batch axis: at least one of letters, digits and `_ . : - /`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct AxisName(Box<str>);

impl AxisName {
    /// Validates a name.
    ///
    /// Errors: a sentence, for an empty name or an invalid character.
    pub fn new(name: &str) -> std::result::Result<AxisName, String> {
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '/');
        if name.is_empty() || !name.chars().all(allowed) {
            return Err(format!(
                "the name of an axis has letters, digits and any of _ . : - /, at least one; got \
                 '{name}'"
            ));
        }
        Ok(AxisName(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AxisName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named batch axis with its number of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct NamedAxis {
    /// The name.
    pub name: AxisName,
    /// Number of members, possibly symbolic.
    #[serde(with = "super::control::number")]
    pub size: Dim,
}

impl Op {
    /// A collective over an axis.
    pub fn collective(code: OpCode, axis: NamedAxis) -> Op {
        Op::new(code, Attrs::NamedAxis(Arc::new(axis)))
    }

    /// The axis of a collective, if the op is one.
    pub fn named_axis(&self) -> Option<&NamedAxis> {
        match &self.attrs {
            Attrs::NamedAxis(axis) => Some(axis),
            _ => None,
        }
    }
}

/// Checks the operands of a collective and returns its axis.
fn axis_of<'a>(call: OpCall<'a>) -> Result<&'a NamedAxis> {
    let invalid = |reason: String| Error::InvalidArgument { op: call.name(), reason };
    let Some(axis) = call.op.named_axis() else {
        return Err(invalid("needs the name and size of an axis".into()));
    };
    let index = call.inputs[1];
    if !index.dtype.is_int() || index.shape.rank() != 0 {
        return Err(invalid(format!(
            "takes the index along axis '{}', a scalar of an integer dtype, got {index}",
            axis.name
        )));
    }
    Ok(axis)
}

fn all_reduce(call: OpCall<'_>) -> Result<TensorSpec> {
    axis_of(call)?;
    let dtype = call.inputs[0].dtype;
    let expected = "an integer, floating-point or complex dtype";
    require_dtype(call, dtype, dtype != DType::Bool, expected)?;
    Ok(call.inputs[0].clone())
}

fn all_gather(call: OpCall<'_>) -> Result<TensorSpec> {
    let (axis, x) = (axis_of(call)?, call.inputs[0]);
    let shape: Shape = std::iter::once(axis.size).chain(x.shape.dims()).collect();
    shape.check(call.name(), x.dtype)?;
    Ok(TensorSpec { shape, dtype: x.dtype })
}

/// Fails unless the axis has one member, since the axis is unbound.
fn check_unbound(op: &Op) -> Result<()> {
    match op.named_axis() {
        Some(axis) if axis.size.equals(1) => Ok(()),
        axis => Err(Error::InvalidArgument {
            op: op.name(),
            reason: format!(
                "is over axis '{}' of {} members outside of the function that is batched over it",
                axis.map_or("", |axis| axis.name.as_str()),
                axis.map_or(0.into(), |axis| axis.size),
            ),
        }),
    }
}

fn reduce_one(d: &mut Decomposition<'_>) -> Result<NodeId> {
    check_unbound(d.op)?;
    Ok(d.inputs[0])
}

fn gather_one(d: &mut Decomposition<'_>) -> Result<NodeId> {
    check_unbound(d.op)?;
    let shape: Shape = std::iter::once(1.into()).chain(d.b.shape(d.inputs[0]).dims()).collect();
    d.b.reshape(d.inputs[0], shape)
}

/// The transpose of a sum over members is a sum over members.
fn reduce_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let ct = v.b.emit(v.op.clone(), &[v.ct, v.inputs[1]])?;
    Ok(smallvec::smallvec![Some(ct), None])
}

/// Each member's operand is at its own index in every member's result: sum the cotangents, then
/// take that index.
fn gather_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let index = v.inputs[1];
    let axis = v.op.named_axis().expect("the shape rule has found one").clone();
    let all = v.b.emit(Op::collective(OpCode::AllReduce, axis), &[v.ct, index])?;
    let own = v.b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[all, index])?;
    Ok(smallvec::smallvec![Some(own), None])
}

const fn collective(name: &'static str, doc: &'static str) -> OpDef {
    OpDef {
        name,
        doc,
        class: Class::Composite,
        arity: (2, 2),
        linear: Linearity::In(&[&[0]]),
        factors: Factoring::Rule(factoring::elementwise),
        batching: Some(Batching::Rule),
        samples: samples::collectives,
        ..OpDef::BLANK
    }
}

/// `all_reduce(x, index)`: the sum of `x` over the members (attribute `NamedAxis`), equal for all.
pub static ALL_REDUCE: OpDef = OpDef {
    infer: all_reduce,
    derivative: Derivative::Rule(reduce_vjp),
    decompose: Some(reduce_one),
    python: Python::Named("psum"),
    ..collective("all_reduce", "The sum over the members of a named batch axis.")
};
/// `all_gather(x, index)`: stacks `x` of all members (attribute `NamedAxis`) along a new leading
/// axis, equal for all.
pub static ALL_GATHER: OpDef = OpDef {
    infer: all_gather,
    derivative: Derivative::Rule(gather_vjp),
    decompose: Some(gather_one),
    python: Python::Named("all_gather"),
    ..collective("all_gather", "The values of the members of a named batch axis, side by side.")
};
