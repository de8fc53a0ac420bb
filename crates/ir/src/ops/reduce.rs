//! Reductions over a set of axes, and argmax/argmin over one.

use super::rules::only;
use super::*;
use crate::index_map::reduce_iteration;
use crate::shape::normalize_axis;
use crate::{Dim, GraphBuilder, Literal, NodeId, Shape};

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
        samples: samples::reductions,
        derivative: Derivative::Zero("its result is not a floating-point number"),
        ..OpDef::BLANK
    }
}

/// The spec of a reduction's result, without the reduced axes or with size 1 there.
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
    let expected = "an integer, floating-point or complex dtype";
    require_dtype(call, dtype, dtype != DType::Bool, expected)?;
    reduced_spec(call)
}

/// Fails for complex numbers, which have no order.
fn ordered(call: OpCall<'_>) -> Result<()> {
    let dtype = call.inputs[0].dtype;
    let expected = "a real dtype, since complex numbers have no order";
    require_dtype(call, dtype, !dtype.is_complex(), expected)
}

fn extremum(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let spec = reduced_spec(call)?;
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("reduced_spec checks") };
    if !spec.shape.has_no_elements() {
        nonempty(call, axes)?;
    }
    Ok(spec)
}

fn nonempty(call: OpCall<'_>, axes: AxisSet) -> Result<()> {
    let shape = &call.inputs[0].shape;
    if axes.iter().any(|a| shape.dim(a).equals(0)) {
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
    ordered(call)?;
    let spec = reduced_spec(call)?;
    let Attrs::Axes { axes, .. } = call.op.attrs else { unreachable!("reduced_spec checks") };
    if axes.len() != 1 {
        return Err(Error::InvalidArgument {
            op: call.name(),
            reason: format!("takes exactly one axis, got {}", axes.len()),
        });
    }
    if !spec.shape.has_no_elements() {
        nonempty(call, axes)?;
    }
    Ok(TensorSpec { dtype: DType::I64, ..spec })
}

/// The axes that a call reduces.
pub(crate) fn reduced_axes(op: &Op) -> AxisSet {
    match op.attrs {
        Attrs::Axes { axes, .. } | Attrs::Moments { axes, .. } => axes,
        _ => AxisSet::default(),
    }
}

fn sum_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let shape = v.b.shape(v.inputs[0]).clone();
    only(v.b.expand_reduced(v.ct, reduced_axes(&v.op), &shape)?)
}

/// Divides the cotangent evenly among the elements that equal the extremum; `loses` is the
/// comparison of the other elements with it. If the extremum is NaN, all elements get NaN. Ties are
/// counted and divided in f32 for the half floats, which cannot count beyond a few thousand.
fn extremum_vjp(v: &mut Vjp<'_>, loses: OpCode) -> Result<Cotangents> {
    let x = v.inputs[0];
    let (axes, shape, dtype) = (reduced_axes(&v.op), v.b.shape(x).clone(), v.b.dtype(x));
    let best = v.b.expand_reduced(v.output, axes, &shape)?;
    let lost = v.b.op(loses, &[x, best])?;
    let (none, one) = (v.b.scalar(dtype.widened(), 0.0), v.b.scalar(dtype.widened(), 1.0));
    let ones = v.b.select(lost, none, one)?;
    let count = v.b.sum(ones, axes, true)?;
    let ct = v.b.widen(v.ct)?;
    let ct = v.b.reshape(ct, shape.reduced(axes, true))?;
    let share = v.b.div(ct, count)?;
    let share = v.b.cast(share, dtype)?;
    let row = v.b.reshape(v.output, shape.reduced(axes, true))?;
    let undefined = v.b.isnan(row)?;
    let share = v.b.select(undefined, row, share)?;
    let zero = v.scalar(0.0);
    only(v.b.select(lost, zero, share)?)
}

/// Differentiates a product as a tree of pairwise products. Dividing the product by each element
/// would fail where an element is 0, and special cases for zeros would be wrong in the second
/// derivative.
fn prod_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (axes, shape) = (reduced_axes(&v.op), v.b.shape(v.inputs[0]).clone());
    if axes.iter().any(|axis| shape.dim(axis).equals(0)) {
        return Ok(smallvec::smallvec![None]);
    }
    // Move the reduced axes last and merge them.
    let kept = AxisSet(AxisSet::all(shape.rank()).0 & !axes.0);
    let perm: Vec<usize> = kept.iter().chain(axes.iter()).collect();
    let moved = v.b.permute(v.inputs[0], &perm)?;
    let moved_shape = v.b.shape(moved).clone();
    let rows = shape.reduced(axes, false);
    let width = axes.iter().map(|axis| shape.dim(axis)).product();
    let with_last = |size: Dim| rows.dims().chain([size]).collect::<Shape>();
    let flat = v.b.reshape(moved, with_last(width))?;

    let ct = v.b.reshape(v.ct, with_last(1.into()))?;
    let ct = tree_product_vjp(v.b, flat, ct)?;
    let ct = v.b.reshape(ct, moved_shape)?;
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    only(v.b.permute(ct, &inverse)?)
}

/// Cotangent of `x` from the cotangent of the product over its last axis, which takes `log2` steps.
fn tree_product_vjp(b: &mut GraphBuilder, x: NodeId, ct: NodeId) -> Result<NodeId> {
    let axis = b.shape(x).rank() - 1;
    let one = Literal::from_i64(b.dtype(x), 1);
    let mut levels = Vec::new();
    let mut level = x;
    while b.shape(level)[axis] > 1 {
        let width = b.shape(level)[axis];
        let half = width.div_ceil(2);
        let mut widths = vec![PadDim::default(); axis + 1];
        widths[axis].high = 2 * half - width;
        let even = if 2 * half > width { b.pad(level, widths, one)? } else { level };
        let left = b.slice_axis(even, axis, 0, half)?;
        let right = b.slice_axis(even, axis, half, half)?;
        level = b.mul(left, right)?;
        levels.push((left, right, width));
    }
    levels.into_iter().rev().try_fold(ct, |ct, (left, right, width)| {
        let (for_left, for_right) = (b.mul(ct, right)?, b.mul(ct, left)?);
        let both = b.concat(&[for_left, for_right], axis as u8)?;
        b.slice_axis(both, axis, 0, width)
    })
}

/// Sum; 0 for no elements.
pub static SUM: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::sums),
    python: Python::Named("sum"),
    derivative: Derivative::Rule(sum_vjp),
    precision: Precision::Full,
    ..reduction("reduce_sum", "The sum of the elements along some axes.", arithmetic)
};
/// Product; 1 for no elements.
pub static PROD: OpDef = OpDef {
    factors: Factoring::Rule(factoring::products),
    python: Python::Named("prod"),
    samples: samples::products,
    derivative: Derivative::Rule(prod_vjp),
    precision: Precision::Full,
    ..reduction("reduce_prod", "The product of the elements along some axes.", arithmetic)
};
/// Maximum, NaN if any element is NaN. Ties share the cotangent evenly.
pub static MAX: OpDef = OpDef {
    factors: Factoring::Rule(factoring::maxima),
    python: Python::Named("max"),
    derivative: Derivative::Rule(|v| extremum_vjp(v, OpCode::Lt)),
    ..reduction("reduce_max", "The largest element along some axes, NaN if any is.", extremum)
};
/// Minimum, NaN if any element is NaN. Ties share the cotangent evenly.
pub static MIN: OpDef = OpDef {
    factors: Factoring::Rule(factoring::minima),
    python: Python::Named("min"),
    derivative: Derivative::Rule(|v| extremum_vjp(v, OpCode::Gt)),
    ..reduction("reduce_min", "The smallest element along some axes, NaN if any is.", extremum)
};
/// Disjunction; false for no elements.
pub static ANY: OpDef = OpDef {
    factors: Factoring::Rule(factoring::disjunctions),
    python: Python::Named("any"),
    samples: samples::truths,
    ..reduction("reduce_any", "True where any element along some axes is true.", logical)
};
/// Conjunction; true for no elements.
pub static ALL: OpDef = OpDef {
    factors: Factoring::Rule(factoring::conjunctions),
    python: Python::Named("all"),
    samples: samples::truths,
    ..reduction("reduce_all", "True where all elements along some axes are true.", logical)
};
/// The first index of the extremum, or of a NaN: the least of the indices of all of them.
fn first_of(d: &mut Decomposition<'_>, extremum: OpCode) -> Result<NodeId> {
    let Attrs::Axes { axes, keepdims } = d.op.attrs else {
        unreachable!("the shape rule checks it")
    };
    let mut x = d.inputs[0];
    if d.b.dtype(x) == DType::Bool {
        x = d.b.cast(x, DType::I32)?;
    }
    let best = d.b.reduce(extremum, x, axes, true)?;
    let (is_best, is_nan) = (d.b.op(OpCode::Eq, &[x, best])?, d.b.op(OpCode::Ne, &[x, x])?);
    let is_best = d.b.op(OpCode::Or, &[is_best, is_nan])?;
    let shape = d.b.shape(x).clone();
    let axis = axes.iter().next().expect("there is one axis");
    let none = d.b.constant(Literal::from_i64(DType::I64, i64::MAX), Shape::scalar());
    let index = d.b.iota(shape, DType::I64, axis as u8);
    let index = d.b.select(is_best, index, none)?;
    d.b.reduce(OpCode::ReduceMin, index, axes, keepdims)
}

/// Index of the first maximum, or of the first NaN if any, along exactly one axis.
pub static ARGMAX: OpDef = OpDef {
    factors: Factoring::Rule(factoring::at_once),
    samples: samples::along_one,
    by_reductions: Some(|d| first_of(d, OpCode::ReduceMax)),
    ..reduction("argmax", "The index of the first largest element along an axis.", arg)
};
/// Index of the first minimum, or of the first NaN if any, along exactly one axis.
pub static ARGMIN: OpDef = OpDef {
    factors: Factoring::Rule(factoring::at_once),
    samples: samples::along_one,
    by_reductions: Some(|d| first_of(d, OpCode::ReduceMin)),
    ..reduction("argmin", "The index of the first smallest element along an axis.", arg)
};

/// The user's axes as a set; `None` means all axes.
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
