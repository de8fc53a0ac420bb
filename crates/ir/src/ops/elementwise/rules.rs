//! Rules for shapes and dtypes of elementwise ops: which dtypes an op takes, and the spec of its
//! result.

use super::*;

const NUMBERS: &str = "an integer, floating-point or complex dtype";
const REALS: &str = "an integer or real floating-point dtype";
const ORDERED: &str = "a real dtype, since complex numbers have no order";
const INEXACT: &str = "a floating-point or complex dtype";

pub(super) fn same_as_operand(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(call.inputs[0].clone())
}

pub(super) fn numeric(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype != DType::Bool, NUMBERS)?;
    same_as_operand(call)
}

pub(super) fn real(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_int() || dtype.is_float(), REALS)?;
    same_as_operand(call)
}

pub(super) fn floating(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_float(), "a real floating-point dtype")?;
    same_as_operand(call)
}

pub(super) fn inexact(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_inexact(), INEXACT)?;
    same_as_operand(call)
}

pub(super) fn integral(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, !dtype.is_inexact(), "bool or an integer dtype")?;
    same_as_operand(call)
}

/// A real result for complex operands.
pub(super) fn magnitude(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = numeric(call)?;
    Ok(TensorSpec { dtype: spec.dtype.real(), ..spec })
}

pub(super) fn complex(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_complex(), "a complex dtype")?;
    same_as_operand(call)
}

pub(super) fn part(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = complex(call)?;
    Ok(TensorSpec { dtype: spec.dtype.real(), ..spec })
}

pub(super) fn of_parts(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = broadcast(call)?;
    let ok = matches!(spec.dtype, DType::F32 | DType::F64);
    require_dtype(call, spec.dtype, ok, "float32 or float64 for the parts")?;
    Ok(TensorSpec { dtype: spec.dtype.complex(), ..spec })
}

pub(super) fn classify(call: OpCall<'_>) -> Result<TensorSpec> {
    floating(call)?;
    Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype: DType::Bool })
}

pub(super) fn broadcast(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    let shape = call.inputs[0].shape.broadcast(&call.inputs[1].shape, call.name())?;
    Ok(TensorSpec { shape, dtype })
}

/// Checks that the operands broadcast and that `ok` accepts their dtype.
pub(super) fn broadcast_of(
    call: OpCall<'_>,
    ok: fn(DType) -> bool,
    expected: &'static str,
) -> Result<TensorSpec> {
    let spec = broadcast(call)?;
    require_dtype(call, spec.dtype, ok(spec.dtype), expected)?;
    Ok(spec)
}

pub(super) fn broadcast_numeric(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, |d| d != DType::Bool, NUMBERS)
}

pub(super) fn broadcast_real(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, |d| d.is_int() || d.is_float(), REALS)
}

pub(super) fn broadcast_ordered(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, |d| !d.is_complex(), ORDERED)
}

pub(super) fn broadcast_floating(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, DType::is_float, "a real floating-point dtype")
}

pub(super) fn broadcast_inexact(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, DType::is_inexact, INEXACT)
}

pub(super) fn broadcast_integral(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, |d| !d.is_inexact(), "bool or an integer dtype")
}

pub(super) fn broadcast_integers(call: OpCall<'_>) -> Result<TensorSpec> {
    broadcast_of(call, DType::is_int, "an integer dtype")
}

pub(super) fn broadcast_words(call: OpCall<'_>) -> Result<TensorSpec> {
    let expected = "uint64 for keys and counters";
    let mut spec = broadcast_of(call, |d| d == DType::U64, expected)?;
    for other in &call.inputs[2..] {
        require_dtype(call, other.dtype, other.dtype == DType::U64, expected)?;
        spec.shape = spec.shape.broadcast(&other.shape, call.name())?;
    }
    Ok(spec)
}

pub(super) fn compare(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(TensorSpec { dtype: DType::Bool, ..broadcast(call)? })
}

pub(super) fn compare_ordered(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(TensorSpec { dtype: DType::Bool, ..broadcast_ordered(call)? })
}

pub(super) fn cast(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::DType(dtype) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs a dtype".into() });
    };
    let from = call.inputs[0].dtype;
    let keeps = !from.is_complex() || dtype.is_complex() || dtype == DType::Bool;
    let expected = "a complex dtype or bool to cast to; take real(x) or imag(x) for a part";
    require_dtype(call, from, keeps, expected)?;
    Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype })
}

pub(super) fn bitcast(call: OpCall<'_>) -> Result<TensorSpec> {
    let Attrs::DType(dtype) = call.op.attrs else {
        return Err(Error::InvalidArgument { op: call.name(), reason: "needs a dtype".into() });
    };
    let from = call.inputs[0].dtype;
    let parts = "a real dtype: the bits of a complex number are those of its parts";
    require_dtype(call, from, !from.is_complex(), parts)?;
    require_dtype(call, dtype, !dtype.is_complex(), parts)?;
    let expected = "another dtype: of the bits of a byte, only 0 and 1 are a bool; take x != 0";
    require_dtype(call, dtype, dtype != DType::Bool || from == dtype, expected)?;
    if dtype.size() != from.size() {
        let (to, new, old) = (dtype.name(), dtype.size(), from.size());
        let reason = format!("an element of {to} has {new} bytes, and one of {from} has {old}");
        return Err(Error::InvalidArgument { op: call.name(), reason });
    }
    Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype })
}

pub(super) fn select(call: OpCall<'_>) -> Result<TensorSpec> {
    let [cond, a, b] = call.inputs else { unreachable!("arity is checked") };
    require_dtype(call, cond.dtype, cond.dtype == DType::Bool, "bool for the condition")?;
    if a.dtype != b.dtype {
        return Err(Error::DTypeMismatch { op: call.name(), lhs: a.dtype, rhs: b.dtype });
    }
    let shape = a.shape.broadcast(&b.shape, call.name())?;
    Ok(TensorSpec { shape: cond.shape.broadcast(&shape, call.name())?, dtype: a.dtype })
}
