//! Sorting and searching of rows. NaN is larger than every number, and equal elements keep their
//! order, so the result is unique.

use super::rules::only;
use super::*;
use crate::Dim;

/// Result, flag and size of a library call with at most `results` results.
pub(super) fn settings(call: OpCall<'_>, results: u8) -> Result<(u8, bool, u32)> {
    match call.op.attrs {
        Attrs::Library { result, flag, size } if result < results => Ok((result, flag, size)),
        _ => Err(Error::InvalidArgument {
            op: call.name(),
            reason: format!(
                "needs the number of a result below {results}, got {:?}",
                call.op.attrs
            ),
        }),
    }
}

/// Fails for scalars; returns the size of the last axis.
pub(super) fn row_len(call: OpCall<'_>, spec: &TensorSpec) -> Result<Dim> {
    let last = spec.shape.rank().checked_sub(1);
    last.map(|axis| spec.shape.dim(axis)).ok_or_else(|| Error::InvalidShape {
        op: call.name(),
        shape: spec.shape.clone(),
        reason: "a tensor of at least one axis is needed".into(),
    })
}

/// Fails for complex numbers.
pub(super) fn ordered(call: OpCall<'_>) -> Result<()> {
    let dtype = call.inputs[0].dtype;
    let expected = "a real dtype, since complex numbers have no order";
    require_dtype(call, dtype, !dtype.is_complex(), expected)
}

fn sort(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let (result, ..) = settings(call, 2)?;
    let spec = call.inputs[0];
    row_len(call, spec)?;
    let dtype = if result == 0 { spec.dtype } else { DType::I64 };
    Ok(TensorSpec { shape: spec.shape.clone(), dtype })
}

fn topk(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let (result, _, count) = settings(call, 2)?;
    let spec = call.inputs[0];
    let len = row_len(call, spec)?;
    if !len.at_least(count as usize) {
        let reason = format!("a row has fewer elements than the {count} that are requested");
        return Err(Error::InvalidShape { op: call.name(), shape: spec.shape.clone(), reason });
    }
    let dtype = if result == 0 { spec.dtype } else { DType::I64 };
    Ok(TensorSpec { shape: spec.shape.with_dim(spec.shape.rank() - 1, count as usize), dtype })
}

fn searchsorted(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    settings(call, 1)?;
    same_dtype(call)?;
    let [sorted, values] = call.inputs else { unreachable!("arity is checked") };
    row_len(call, sorted)?;
    let len = row_len(call, values)?;
    batched_alike(call, sorted, values, len)?;
    Ok(TensorSpec { shape: values.shape.clone(), dtype: DType::I64 })
}

/// The elements at places: rows and places of the same batch.
fn order_statistics(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let (result, ..) = settings(call, 2)?;
    let [row, places] = call.inputs else { unreachable!("arity is checked") };
    require_dtype(call, places.dtype, places.dtype == DType::I64, "int64 for the places")?;
    let elements = row_len(call, row)?;
    let len = row_len(call, places)?;
    batched_alike(call, row, places, len)?;
    if !places.shape.has_no_elements() && !elements.at_least(1) {
        let reason = "a row has no element for a place".into();
        return Err(Error::InvalidShape { op: call.name(), shape: row.shape.clone(), reason });
    }
    let dtype = if result == 0 { row.dtype } else { DType::I64 };
    Ok(TensorSpec { shape: places.shape.clone(), dtype })
}

/// Fails unless all axes but the last are equal.
fn batched_alike(call: OpCall<'_>, a: &TensorSpec, b: &TensorSpec, len: Dim) -> Result<()> {
    match a.shape.rank() == b.shape.rank()
        && a.shape.with_dim(a.shape.rank() - 1, len).equals(&b.shape)
    {
        true => Ok(()),
        false => Err(Error::ShapeMismatch {
            op: call.name(),
            lhs: a.shape.clone(),
            rhs: b.shape.clone(),
            reason: "all axes but the last must be equal".into(),
        }),
    }
}

/// Scatters each element's cotangent to the element's original index.
pub(super) fn unpick(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(unpicked(v)?)
}

fn unpicked(v: &mut Vjp<'_>) -> Result<NodeId> {
    let indices = v.b.emit(v.op.with_result(1), v.inputs)?;
    let axis = v.b.shape(v.inputs[0]).rank() - 1;
    let nodes = [v.inputs[0], indices, v.ct];
    super::index::put_back(v.b, OpCode::ScatterAddAlongAxis, axis as u8, nodes)
}

/// `sort(x)`: the sorted rows (result 0), and the original index of each element (result 1). The
/// flag requests descending order.
pub static SORT: OpDef = OpDef {
    name: "sort",
    doc: "Rows sorted, equal elements in their order: the elements, and where each was.",
    class: Class::Library,
    arity: (1, 1),
    infer: sort,
    derivative: Derivative::Rule(unpick),
    samples: samples::rows,
    ..OpDef::BLANK
};

/// `topk(x)`: the `size` smallest elements of each row in order (result 0), and their original
/// indices (result 1). The flag requests the largest elements. Equal elements keep their order.
pub static TOPK: OpDef = OpDef {
    factors: Factoring::Rule(factoring::resized_rows),
    name: "topk",
    doc: "The smallest or largest elements of rows in order: the elements, and where each was.",
    class: Class::Library,
    arity: (1, 1),
    infer: topk,
    derivative: Derivative::Rule(unpick),
    samples: samples::best,
    ..OpDef::BLANK
};

/// `order_statistics(x, places)`: the elements that an ascending sort puts at the places of each row
/// (result 0), and their original indices (result 1). Places beyond a row count as its ends.
pub static ORDER_STATISTICS: OpDef = OpDef {
    factors: Factoring::Rule(factoring::searched_rows),
    name: "order_statistics",
    doc: "The elements at places of sorted rows: the elements, and where each was.",
    class: Class::Library,
    arity: (2, 2),
    infer: order_statistics,
    derivative: Derivative::Rule(|v| Ok([Some(unpicked(v)?), None].into_iter().collect())),
    samples: samples::places,
    python: Python::Named("kthvalue"),
    ..OpDef::BLANK
};

/// `searchsorted(sorted, values)`: the insertion index of each value in the ascending row of its
/// batch, before equal elements, or after them with the flag.
pub static SEARCHSORTED: OpDef = OpDef {
    factors: Factoring::Rule(factoring::searched_rows),
    name: "searchsorted",
    doc: "The position at which each value keeps an ascending row sorted.",
    class: Class::Library,
    arity: (2, 2),
    infer: searchsorted,
    derivative: Derivative::Zero("its result is not a floating-point number"),
    samples: samples::rows,
    ..OpDef::BLANK
};
