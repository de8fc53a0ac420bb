//! Scans along rows: each element combines the row's elements up to it, in order; with the flag,
//! from the row's end.

use super::rules::only;
use super::sort::{ordered, row_len, settings, unpick};
use super::*;
use crate::{GraphBuilder, NodeId};

/// The spec of a running sum or product. The operand must have an accumulator dtype; front ends
/// insert the cast.
fn running(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 1)?;
    let spec = call.inputs[0];
    row_len(call, spec)?;
    let ok = spec.dtype == spec.dtype.accumulator() && spec.dtype == spec.dtype.widened();
    require_dtype(
        call,
        spec.dtype,
        ok,
        "a dtype that sums are taken in, such as int64 or float32",
    )?;
    Ok(spec.clone())
}

fn running_real(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, matches!(dtype, DType::F32 | DType::F64), "float32 or float64")?;
    running(call)
}

fn pair(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 2)?;
    let dtype = same_dtype(call)?;
    let [a, b] = call.inputs else { unreachable!("arity is checked") };
    row_len(call, a)?;
    let ok = matches!(dtype, DType::F32 | DType::F64 | DType::C64 | DType::C128);
    require_dtype(call, dtype, ok, "float32, float64, complex64 or complex128")?;
    if !a.shape.equals(&b.shape) {
        let (op, lhs, rhs) = (call.name(), a.shape.clone(), b.shape.clone());
        let reason = "factors and summands must have one shape".into();
        return Err(Error::ShapeMismatch { op, lhs, rhs, reason });
    }
    Ok((*a).clone())
}

fn extremum(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let (result, ..) = settings(call, 2)?;
    let spec = call.inputs[0];
    row_len(call, spec)?;
    let dtype = if result == 0 { spec.dtype } else { DType::I64 };
    Ok(TensorSpec { shape: spec.shape.clone(), dtype })
}

/// The same op in the other direction.
fn reversed(v: &mut Vjp<'_>, code: OpCode, x: NodeId) -> Result<NodeId> {
    let (_, flag, _) = v.op.attrs.library();
    v.b.emit(Op::new(code, Attrs::routine(!flag)), &[x])
}

fn cumsum_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(reversed(v, OpCode::CumSum, v.ct)?)
}

/// A mask of each row's first element; with the flag, of its last.
fn begins(v: &mut Vjp<'_>, x: NodeId) -> Result<NodeId> {
    let shape = v.b.shape(x).clone();
    let axis = shape.rank() - 1;
    let index = v.b.iota(shape.clone(), DType::I64, axis as u8);
    let (_, flag, _) = v.op.attrs.library();
    let first = match flag {
        false => v.b.scalar_like(index, 0.0),
        true => {
            let size = shape.dim(axis);
            let last = OfSize { size, correction: Real::from(1.0), numerator: None };
            v.b.scalar_of_size(DType::I64, last)
        }
    };
    v.b.eq(index, first)
}

/// `d x_i = E_i R_i`, where `E_i` is the product of the elements before and
/// `R_i = ct_i + x_(i+1) R_(i+1)`. Nothing is divided by an element, since it may be 0.
fn cumprod_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let x = v.inputs[0];
    let (zero, one, begins) = (v.b.scalar_like(x, 0.0), v.b.scalar_like(x, 1.0), begins(v, x)?);
    let start = v.b.select(begins, x, zero)?;
    let (_, flag, _) = v.op.attrs.library();
    let before = recurrence(v.b, [x, start], flag, 1)?;
    let before = v.b.select(begins, one, before)?;
    let after = behind(v.b, x, v.ct, flag)?;
    only(v.b.mul(before, after)?)
}

/// `y_i = b_i + a_i p_i` (result 0) and `p_i = y_(i-1)`, 0 at first (result 1).
fn recurrence(
    b: &mut GraphBuilder,
    operands: [NodeId; 2],
    flag: bool,
    result: u8,
) -> Result<NodeId> {
    b.emit(Op::new(OpCode::Recurrence, Attrs::routine(flag)).with_result(result), &operands)
}

/// `S_i = w_i + a_(i+1) S_(i+1)`: with `Z_i = a_i S_i` that is `w_i + Z_(i+1)`.
fn behind(b: &mut GraphBuilder, a: NodeId, w: NodeId, flag: bool) -> Result<NodeId> {
    let scaled = b.mul(a, w)?;
    let rest = recurrence(b, [a, scaled], !flag, 1)?;
    b.add(w, rest)
}

/// The transpose runs the recurrence in the other direction. The cotangents of `y` are `S`, as in
/// [`behind`]; the cotangents of `p` arrive one element later. The cotangent of `b` is that sum,
/// and the cotangent of `a` is the sum times `p`.
fn recurrence_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (result, flag, _) = v.op.attrs.library();
    let (a, b) = (v.inputs[0], v.inputs[1]);
    let sums = match result {
        0 => behind(v.b, a, v.ct, flag)?,
        _ => recurrence(v.b, [a, v.ct], !flag, 1)?,
    };
    let of_a = v.operand(0, |v| {
        let before = recurrence(v.b, [a, b], flag, 1)?;
        v.b.mul(sums, before)
    })?;
    Ok(smallvec::smallvec![of_a, v.operand(1, |_| Ok(sums))?])
}

/// `d x_i = exp(x_i - y_i) R_i` with `R_i = ct_i + exp(y_i - y_(i+1)) R_(i+1)`. No exponent is
/// positive, so nothing overflows. Where `y` is -inf, the gradient is 0.
fn logcumsumexp_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (x, y) = (v.inputs[0], v.output);
    if v.b.shape(y).has_no_elements() {
        return only(v.ct);
    }
    let (zero, nothing) = (v.scalar(0.0), v.scalar(f64::NEG_INFINITY));
    let empty = v.b.eq(y, nothing)?;
    let finite = v.b.select(empty, zero, y)?;
    let before = previous(v, y, nothing)?;
    let ratio = v.b.sub(before, finite)?;
    let ratio = v.b.exp(ratio)?;
    let (_, flag, _) = v.op.attrs.library();
    let sums = behind(v.b, ratio, v.ct, flag)?;
    let own = v.b.sub(x, finite)?;
    let own = v.b.exp(own)?;
    only(v.b.mul(own, sums)?)
}

/// Shifts each row by one element; the first element becomes `first`.
fn previous(v: &mut Vjp<'_>, x: NodeId, first: NodeId) -> Result<NodeId> {
    let (_, flag, _) = v.op.attrs.library();
    let shape = v.b.shape(x).clone();
    let axis = shape.rank() - 1;
    let column = v.b.broadcast_to(first, shape.with_dim(axis, 1))?;
    let rest = v.b.slice_axis(x, axis, flag as usize, shape.dim(axis) - 1usize)?;
    let parts = if flag { [rest, column] } else { [column, rest] };
    v.b.concat(&parts, axis as u8)
}

const RUNNING: OpDef = OpDef {
    class: Class::Library,
    arity: (1, 1),
    infer: running,
    samples: samples::rows,
    ..OpDef::BLANK
};

/// Cumulative sums.
pub static CUMSUM: OpDef = OpDef {
    linear: Linearity::All,
    name: "cumsum",
    doc: "The sum of each row up to each element.",
    derivative: Derivative::Rule(cumsum_vjp),
    precision: Precision::Full,
    ..RUNNING
};
/// Cumulative products.
pub static CUMPROD: OpDef = OpDef {
    name: "cumprod",
    doc: "The product of each row up to each element.",
    derivative: Derivative::Rule(cumprod_vjp),
    precision: Precision::Full,
    ..RUNNING
};
/// Cumulative maxima (result 0) and their indices (result 1): the last of equal elements. A NaN
/// persists.
pub static CUMMAX: OpDef = OpDef {
    name: "cummax",
    doc: "The largest of each row up to each element, NaN from the first NaN on; and where it is.",
    infer: extremum,
    derivative: Derivative::Rule(unpick),
    ..RUNNING
};
/// Cumulative minima (result 0) and their indices (result 1): the last of equal elements. A NaN
/// persists.
pub static CUMMIN: OpDef = OpDef {
    name: "cummin",
    doc: "The smallest of each row up to each element, NaN from the first NaN on; and where it is.",
    infer: extremum,
    derivative: Derivative::Rule(unpick),
    ..RUNNING
};
/// Cumulative log-sum-exp.
pub static LOGCUMSUMEXP: OpDef = OpDef {
    name: "logcumsumexp",
    doc: "The logarithm of the sum of exponentials of each row up to each element.",
    infer: running_real,
    derivative: Derivative::Rule(logcumsumexp_vjp),
    precision: Precision::Full,
    ..RUNNING
};
/// The linear recurrence `y_i = b_i + a_i y_(i-1)` along rows, starting with `b_0` (result 0), and
/// `y_(i-1)`, starting with 0 (result 1).
pub static RECURRENCE: OpDef = OpDef {
    linear: Linearity::In(&[&[1]]),
    name: "recurrence",
    doc: "Each element of a row is the one before times a factor, plus a summand.",
    arity: (2, 2),
    infer: pair,
    derivative: Derivative::Rule(recurrence_vjp),
    samples: samples::recurrences,
    python: Python::Nothing("the gradients of running and scattered products are made of it"),
    ..RUNNING
};
