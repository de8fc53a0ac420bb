//! Running combinations along rows: each element is the row's elements up to it, combined in
//! order. With the flag, from the row's end.

use super::rules::only;
use super::sort::{ordered, row_len, settings, unpick};
use super::*;
use crate::NodeId;

/// The accumulator dtypes: what is summed is converted to one of them before.
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

fn extremum(call: OpCall<'_>) -> Result<TensorSpec> {
    ordered(call)?;
    let (result, ..) = settings(call, 2)?;
    let spec = call.inputs[0];
    row_len(call, spec)?;
    let dtype = if result == 0 { spec.dtype } else { DType::I64 };
    Ok(TensorSpec { shape: spec.shape.clone(), dtype })
}

/// The same op run the other way.
fn reversed(v: &mut Vjp<'_>, code: OpCode, x: NodeId) -> Result<NodeId> {
    let (_, flag, _) = v.op.attrs.library();
    v.b.emit(Op::new(code, Attrs::routine(!flag)), &[x])
}

fn along(v: &mut Vjp<'_>, code: OpCode, x: NodeId) -> Result<NodeId> {
    let (_, flag, _) = v.op.attrs.library();
    v.b.emit(Op::new(code, Attrs::routine(flag)), &[x])
}

fn cumsum_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(reversed(v, OpCode::CumSum, v.ct)?)
}

/// `d x_i = (sum of ct_j y_j for j >= i) / x_i` before a row's first zero. At that zero the
/// products are taken without it, and behind it every product holds the zero: nothing flows.
fn cumprod_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let x = v.inputs[0];
    let (zero, one) = (v.b.zeros_like(x), v.b.scalar_like(x, 1.0));
    let is_zero = v.b.eq(x, zero)?;
    let counted = v.b.cast(is_zero, DType::I64)?;
    let zeros = along(v, OpCode::CumSum, counted)?;
    let (none, first) = (v.b.scalar_like(zeros, 0.0), v.b.scalar_like(zeros, 1.0));
    let (before, up_to) = (v.b.eq(zeros, none)?, v.b.eq(zeros, first)?);
    let at_first = v.b.bitwise_and(is_zero, up_to)?;
    let nonzero = v.b.select(is_zero, one, x)?;
    let (weighted, without) = {
        let replaced = v.b.select(at_first, one, x)?;
        let products = along(v, OpCode::CumProd, replaced)?;
        (v.b.mul(v.ct, v.output)?, v.b.mul(v.ct, products)?)
    };
    let sums = reversed(v, OpCode::CumSum, weighted)?;
    let sums = v.b.div(sums, nonzero)?;
    let at = reversed(v, OpCode::CumSum, without)?;
    let rest = v.b.select(at_first, at, zero)?;
    only(v.b.select(before, sums, rest)?)
}

/// `d x_i = exp(x_i + log(sum of ct_j / exp(y_j) for j >= i))`, for the positive and the negative
/// cotangents apart, so that nothing overflows that the result does not.
fn logcumsumexp_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let negated = v.b.neg(v.ct)?;
    let (up, down) = (logcumsumexp_part(v, v.ct)?, logcumsumexp_part(v, negated)?);
    only(v.b.sub(up, down)?)
}

fn logcumsumexp_part(v: &mut Vjp<'_>, ct: NodeId) -> Result<NodeId> {
    let (x, y) = (v.inputs[0], v.output);
    let (zero, one) = (v.scalar(0.0), v.scalar(1.0));
    let nothing = v.scalar(f64::NEG_INFINITY);
    // A sum of nothing but zeros passes nothing on.
    let (some, positive) = (v.b.gt(y, nothing)?, v.b.gt(ct, zero)?);
    let counts = v.b.bitwise_and(some, positive)?;
    let ct = v.b.select(counts, ct, one)?;
    let (log, y) = (v.b.log(ct)?, v.b.select(counts, y, zero)?);
    let terms = v.b.sub(log, y)?;
    let terms = v.b.select(counts, terms, nothing)?;
    let sums = reversed(v, OpCode::LogCumSumExp, terms)?;
    // Where no term was, the exponential is of -inf: the sum is kept finite for its derivative.
    let any = v.b.gt(sums, nothing)?;
    let sums = v.b.select(any, sums, zero)?;
    let exponent = v.b.add(x, sums)?;
    let part = v.b.exp(exponent)?;
    let zeros = v.b.zeros_like(x);
    v.b.select(any, part, zeros)
}

const RUNNING: OpDef = OpDef {
    class: Class::Library,
    arity: (1, 1),
    infer: running,
    samples: samples::rows,
    ..OpDef::BLANK
};

/// Running sums.
pub static CUMSUM: OpDef = OpDef {
    name: "cumsum",
    doc: "The sum of each row up to each element.",
    derivative: Derivative::Rule(cumsum_vjp),
    ..RUNNING
};
/// Running products.
pub static CUMPROD: OpDef = OpDef {
    name: "cumprod",
    doc: "The product of each row up to each element.",
    derivative: Derivative::Rule(cumprod_vjp),
    ..RUNNING
};
/// Running maxima (result 0) and where they are (result 1): the last of equal ones; a NaN stays.
pub static CUMMAX: OpDef = OpDef {
    name: "cummax",
    doc: "The largest of each row up to each element, NaN from the first NaN on; and where it is.",
    infer: extremum,
    derivative: Derivative::Rule(unpick),
    ..RUNNING
};
/// Running minima (result 0) and where they are (result 1): the last of equal ones; a NaN stays.
pub static CUMMIN: OpDef = OpDef {
    name: "cummin",
    doc: "The smallest of each row up to each element, NaN from the first NaN on; and where it is.",
    infer: extremum,
    derivative: Derivative::Rule(unpick),
    ..RUNNING
};
/// Running logarithms of sums of exponentials.
pub static LOGCUMSUMEXP: OpDef = OpDef {
    name: "logcumsumexp",
    doc: "The logarithm of the sum of exponentials of each row up to each element.",
    infer: running_real,
    derivative: Derivative::Rule(logcumsumexp_vjp),
    ..RUNNING
};
