//! Reductions over a set of axes, and argmax/argmin over one.

use super::*;
use crate::index_map::reduce_iteration;
use crate::shape::normalize_axis;

const fn reduction(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    OpDef {
        name,
        doc,
        class: Class::Reduction,
        arity: (1, 1),
        infer,
        iteration: Some(reduce_iteration),
        derivative: Derivative::Zero("it is piecewise constant"),
        ..OpDef::BLANK
    }
}

/// The axes a reduction-like op removes.
pub(crate) fn reduced_spec(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = call.inputs[0];
    let (axes, keepdims) = match call.op.attrs {
        Attrs::Axes { axes, keepdims } | Attrs::Moments { axes, keepdims, .. } => (axes, keepdims),
        _ => {
            return Err(Error::InvalidArgument { op: call.name(), reason: "needs axes".into() });
        }
    };
    if axes.bound() > spec.shape.rank() {
        let (axis, rank) = (axes.bound() as i64 - 1, spec.shape.rank());
        return Err(Error::AxisOutOfRange { op: call.name(), axis, rank });
    }
    Ok(TensorSpec { shape: spec.shape.reduced(axes, keepdims), dtype: spec.dtype })
}

fn arithmetic(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype != DType::Bool, "an integer or floating-point dtype")?;
    reduced_spec(call)
}

fn extremum(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = reduced_spec(call)?;
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("reduced_spec checks") };
    if spec.numel() > 0 {
        nonempty(call, axes)?;
    }
    Ok(spec)
}

fn nonempty(call: OpCall<'_>, axes: AxisSet) -> Result<()> {
    let shape = &call.inputs[0].shape;
    if axes.iter().any(|a| shape[a] == 0) {
        return Err(Error::InvalidShape {
            op: call.name(),
            shape: shape.clone(),
            reason: "the reduced axes are empty and the op has no identity".into(),
        });
    }
    Ok(())
}

fn logical(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype == DType::Bool, "bool")?;
    reduced_spec(call)
}

fn arg(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = reduced_spec(call)?;
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("reduced_spec checks") };
    if axes.len() != 1 {
        return Err(Error::InvalidArgument {
            op: call.name(),
            reason: format!("takes exactly one axis, got {}", axes.len()),
        });
    }
    if spec.numel() > 0 {
        nonempty(call, axes)?;
    }
    Ok(TensorSpec { dtype: DType::I64, ..spec })
}

/// Sum; 0 over nothing.
pub static SUM: OpDef =
    reduction("reduce_sum", "The sum of the elements along some axes.", arithmetic);
/// Product; 1 over nothing.
pub static PROD: OpDef =
    reduction("reduce_prod", "The product of the elements along some axes.", arithmetic);
/// Largest, NaN if any is.
pub static MAX: OpDef =
    reduction("reduce_max", "The largest element along some axes, NaN if any is.", extremum);
/// Smallest, NaN if any is.
pub static MIN: OpDef =
    reduction("reduce_min", "The smallest element along some axes, NaN if any is.", extremum);
/// Disjunction; false over nothing.
pub static ANY: OpDef =
    reduction("reduce_any", "True where any element along some axes is true.", logical);
/// Conjunction; true over nothing.
pub static ALL: OpDef =
    reduction("reduce_all", "True where all elements along some axes are true.", logical);
/// Index of the first largest, of the first NaN if any, along exactly one axis.
pub static ARGMAX: OpDef =
    reduction("argmax", "The index of the first largest element along an axis.", arg);
/// Index of the first smallest, of the first NaN if any, along exactly one axis.
pub static ARGMIN: OpDef =
    reduction("argmin", "The index of the first smallest element along an axis.", arg);

/// Axes as users give them (none means all), checked and as a set.
///
/// Errors: [`Error::AxisOutOfRange`], [`Error::DuplicateAxis`].
pub fn axis_set(op: &'static str, axes: Option<&[i64]>, rank: usize) -> Result<AxisSet> {
    let Some(axes) = axes else { return Ok(AxisSet::all(rank)) };
    let mut set = AxisSet::default();
    for &axis in axes {
        let axis = normalize_axis(op, axis, rank)?;
        if set.contains(axis) {
            return Err(Error::DuplicateAxis { op, axis });
        }
        set.insert(axis);
    }
    Ok(set)
}
