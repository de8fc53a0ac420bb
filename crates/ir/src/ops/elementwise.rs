//! Elementwise ops: each result element depends on one element of each operand, operands broadcast
//! against each other. Operands share one dtype; front ends insert the casts.

mod vjp;

use super::*;
use crate::index_map::elementwise_iteration;

const fn unary(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    OpDef {
        name,
        doc,
        class: Class::Elementwise,
        arity: (1, 1),
        infer,
        iteration: Some(elementwise_iteration),
        derivative: Derivative::Zero("it is piecewise constant"),
        ..OpDef::BLANK
    }
}

const fn binary(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    OpDef { arity: (2, 2), domain: (0.55, 2.9), ..unary(name, doc, infer) }
}

/// The same op, differentiated by a rule.
const fn with_rule(rule: fn(&mut Vjp<'_>) -> Result<Cotangents>, def: OpDef) -> OpDef {
    OpDef { derivative: Derivative::Rule(rule), ..def }
}

/// The same op, whose sample operands are from `low..high`.
const fn within(low: f64, high: f64, def: OpDef) -> OpDef {
    OpDef { domain: (low, high), ..def }
}

/// The same op, whose result says something about its operands that no small change alters.
const fn discrete(def: OpDef) -> OpDef {
    OpDef { derivative: Derivative::Zero("its result is not a floating-point number"), ..def }
}

/// The same op, with one right result.
const fn exact(def: OpDef) -> OpDef {
    OpDef { exact: true, ..def }
}

fn same_as_operand(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(call.inputs[0].clone())
}

fn numeric(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype != DType::Bool, "an integer or floating-point dtype")?;
    same_as_operand(call)
}

fn floating(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_float(), "a floating-point dtype")?;
    same_as_operand(call)
}

fn integral(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, !dtype.is_float(), "bool or an integer dtype")?;
    same_as_operand(call)
}

fn classify(call: OpCall<'_>) -> Result<TensorSpec> {
    floating(call)?;
    Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype: DType::Bool })
}

fn broadcast(call: OpCall<'_>) -> Result<TensorSpec> {
    let dtype = same_dtype(call)?;
    let shape = call.inputs[0].shape.broadcast(&call.inputs[1].shape, call.name())?;
    Ok(TensorSpec { shape, dtype })
}

fn broadcast_numeric(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = broadcast(call)?;
    require_dtype(
        call,
        spec.dtype,
        spec.dtype != DType::Bool,
        "an integer or floating-point dtype",
    )?;
    Ok(spec)
}

fn broadcast_floating(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = broadcast(call)?;
    require_dtype(call, spec.dtype, spec.dtype.is_float(), "a floating-point dtype")?;
    Ok(spec)
}

fn broadcast_integral(call: OpCall<'_>) -> Result<TensorSpec> {
    let spec = broadcast(call)?;
    require_dtype(call, spec.dtype, !spec.dtype.is_float(), "bool or an integer dtype")?;
    Ok(spec)
}

fn compare(call: OpCall<'_>) -> Result<TensorSpec> {
    Ok(TensorSpec { dtype: DType::Bool, ..broadcast(call)? })
}

fn cast(call: OpCall<'_>) -> Result<TensorSpec> {
    match call.op.attrs {
        Attrs::DType(dtype) => Ok(TensorSpec { shape: call.inputs[0].shape.clone(), dtype }),
        _ => Err(Error::InvalidArgument { op: call.name(), reason: "needs a dtype".into() }),
    }
}

fn select(call: OpCall<'_>) -> Result<TensorSpec> {
    let [cond, a, b] = call.inputs else { unreachable!("arity is checked") };
    require_dtype(call, cond.dtype, cond.dtype == DType::Bool, "bool for the condition")?;
    if a.dtype != b.dtype {
        return Err(Error::DTypeMismatch { op: call.name(), lhs: a.dtype, rhs: b.dtype });
    }
    let shape = a.shape.broadcast(&b.shape, call.name())?;
    Ok(TensorSpec { shape: cond.shape.broadcast(&shape, call.name())?, dtype: a.dtype })
}

/// `-x`; wraps for unsigned integers.
pub static NEG: OpDef =
    exact(with_rule(vjp::neg, unary("neg", "The negative of each element.", numeric)));
/// `|x|`.
pub static ABS: OpDef =
    exact(with_rule(vjp::abs, unary("abs", "The absolute value of each element.", numeric)));
/// -1, 0 or 1; NaN for NaN.
pub static SIGN: OpDef = exact(unary("sign", "The sign of each element.", numeric));
/// Largest integer not above.
pub static FLOOR: OpDef = exact(unary("floor", "Each element rounded down.", numeric));
/// Smallest integer not below.
pub static CEIL: OpDef = exact(unary("ceil", "Each element rounded up.", numeric));
/// Nearest integer, ties to even.
pub static ROUND: OpDef =
    exact(unary("round", "Each element rounded to nearest, ties to even.", numeric));
/// Integer part.
pub static TRUNC: OpDef = exact(unary("trunc", "Each element rounded toward zero.", numeric));
/// `e^x`.
pub static EXP: OpDef =
    with_rule(vjp::exp, unary("exp", "The exponential of each element.", floating));
/// `e^x - 1`.
pub static EXPM1: OpDef =
    with_rule(vjp::expm1, unary("expm1", "exp(x) - 1, accurate near zero.", floating));
/// `2^x`.
pub static EXP2: OpDef =
    with_rule(vjp::exp2, unary("exp2", "Two to the power of each element.", floating));
/// Natural logarithm.
pub static LOG: OpDef = within(
    0.3,
    1.4,
    with_rule(vjp::log, unary("log", "The natural logarithm of each element.", floating)),
);
/// `log(1 + x)`.
pub static LOG1P: OpDef = within(
    0.3,
    1.4,
    with_rule(vjp::log1p, unary("log1p", "log(1 + x), accurate near zero.", floating)),
);
/// Binary logarithm.
pub static LOG2: OpDef = within(
    0.3,
    1.4,
    with_rule(vjp::log2, unary("log2", "The base-2 logarithm of each element.", floating)),
);
/// Decimal logarithm.
pub static LOG10: OpDef = within(
    0.3,
    1.4,
    with_rule(vjp::log10, unary("log10", "The base-10 logarithm of each element.", floating)),
);
/// Square root.
pub static SQRT: OpDef = within(
    0.3,
    1.4,
    exact(with_rule(vjp::sqrt, unary("sqrt", "The square root of each element.", floating))),
);
/// `1 / sqrt(x)`.
pub static RSQRT: OpDef = within(
    0.3,
    1.4,
    with_rule(vjp::rsqrt, unary("rsqrt", "One over the square root of each element.", floating)),
);
/// Sine of radians.
pub static SIN: OpDef = with_rule(vjp::sin, unary("sin", "The sine of each element.", floating));
/// Cosine of radians.
pub static COS: OpDef = with_rule(vjp::cos, unary("cos", "The cosine of each element.", floating));
/// Tangent of radians.
pub static TAN: OpDef =
    within(0.3, 1.4, with_rule(vjp::tan, unary("tan", "The tangent of each element.", floating)));
/// Inverse sine.
pub static ASIN: OpDef = within(
    -0.8,
    0.85,
    with_rule(vjp::asin, unary("asin", "The inverse sine of each element.", floating)),
);
/// Inverse cosine.
pub static ACOS: OpDef = within(
    -0.8,
    0.85,
    with_rule(vjp::acos, unary("acos", "The inverse cosine of each element.", floating)),
);
/// Inverse tangent.
pub static ATAN: OpDef =
    with_rule(vjp::atan, unary("atan", "The inverse tangent of each element.", floating));
/// Hyperbolic sine.
pub static SINH: OpDef =
    with_rule(vjp::sinh, unary("sinh", "The hyperbolic sine of each element.", floating));
/// Hyperbolic cosine.
pub static COSH: OpDef =
    with_rule(vjp::cosh, unary("cosh", "The hyperbolic cosine of each element.", floating));
/// Hyperbolic tangent.
pub static TANH: OpDef =
    with_rule(vjp::tanh, unary("tanh", "The hyperbolic tangent of each element.", floating));
/// Inverse hyperbolic sine.
pub static ASINH: OpDef =
    with_rule(vjp::asinh, unary("asinh", "The inverse hyperbolic sine of each element.", floating));
/// Inverse hyperbolic cosine.
pub static ACOSH: OpDef = within(
    1.2,
    3.0,
    with_rule(
        vjp::acosh,
        unary("acosh", "The inverse hyperbolic cosine of each element.", floating),
    ),
);
/// Inverse hyperbolic tangent.
pub static ATANH: OpDef = within(
    -0.8,
    0.85,
    with_rule(
        vjp::atanh,
        unary("atanh", "The inverse hyperbolic tangent of each element.", floating),
    ),
);
/// Error function.
pub static ERF: OpDef =
    with_rule(vjp::erf, unary("erf", "The error function of each element.", floating));
/// Logical not of bool, bitwise not of integers.
pub static NOT: OpDef =
    exact(discrete(unary("not", "Logical not of bool, bitwise not of integers.", integral)));
/// NaN test.
pub static IS_NAN: OpDef =
    exact(discrete(unary("isnan", "True where an element is NaN.", classify)));
/// Infinity test.
pub static IS_INF: OpDef =
    exact(discrete(unary("isinf", "True where an element is infinite.", classify)));
/// Finiteness test.
pub static IS_FINITE: OpDef = exact(discrete(unary(
    "isfinite",
    "True where an element is neither NaN nor infinite.",
    classify,
)));
/// Conversion of dtype: float to integer truncates and saturates (NaN to 0), integer to narrower
/// integer wraps, anything to bool is `x != 0`.
pub static CAST: OpDef = OpDef {
    samples: samples::cast,
    python: Python::Named("Tensor.astype"),
    ..exact(with_rule(vjp::cast, unary("cast", "Each element converted to another dtype.", cast)))
};

/// Sum.
pub static ADD: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..with_rule(vjp::add, binary("add", "The sum of two tensors.", broadcast_numeric))
};
/// Difference.
pub static SUB: OpDef =
    exact(with_rule(vjp::sub, binary("sub", "The difference of two tensors.", broadcast_numeric)));
/// Product.
pub static MUL: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..with_rule(vjp::mul, binary("mul", "The product of two tensors.", broadcast_numeric))
};
/// Quotient of floats.
pub static DIV: OpDef =
    exact(with_rule(vjp::div, binary("div", "The quotient of two tensors.", broadcast_floating)));
/// Quotient rounded down; 0 for integer division by zero.
pub static FLOOR_DIVIDE: OpDef =
    binary("floor_divide", "The quotient of two tensors, rounded down.", broadcast_numeric);
/// `a - floor(a / b) * b`, with the sign of the divisor; 0 for an integer divisor of zero.
pub static REMAINDER: OpDef = with_rule(
    vjp::remainder,
    binary(
        "remainder",
        "The remainder of floor division, signed as the divisor.",
        broadcast_numeric,
    ),
);
/// Power. Integers wrap; negative integer exponents give 0 except for bases 1 and -1.
pub static POW: OpDef =
    with_rule(vjp::pow, binary("pow", "One tensor to the power of another.", broadcast_numeric));
/// Larger of two, NaN if either is.
pub static MAXIMUM: OpDef = exact(with_rule(
    vjp::maximum,
    binary("maximum", "The larger of two tensors' elements, NaN if either is.", broadcast),
));
/// Smaller of two, NaN if either is.
pub static MINIMUM: OpDef = exact(with_rule(
    vjp::minimum,
    binary("minimum", "The smaller of two tensors' elements, NaN if either is.", broadcast),
));
/// Angle of the point (second, first).
pub static ATAN2: OpDef = with_rule(
    vjp::atan2,
    binary("atan2", "The angle of the point (second, first).", broadcast_floating),
);
/// Logical and of bool, bitwise of integers.
pub static AND: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..discrete(binary("and", "Logical and of bool, bitwise and of integers.", broadcast_integral))
};
/// Logical or of bool, bitwise of integers.
pub static OR: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..discrete(binary("or", "Logical or of bool, bitwise or of integers.", broadcast_integral))
};
/// Exclusive or of bool or integers.
pub static XOR: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..discrete(binary(
        "xor",
        "Exclusive or of bool, bitwise exclusive or of integers.",
        broadcast_integral,
    ))
};
/// Equality.
pub static EQ: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..discrete(binary("eq", "True where two tensors are equal.", compare))
};
/// Inequality.
pub static NE: OpDef = OpDef {
    commutative: true,
    exact: true,
    ..discrete(binary("ne", "True where two tensors differ.", compare))
};
/// Less than.
pub static LT: OpDef =
    exact(discrete(binary("lt", "True where the first is less than the second.", compare)));
/// At most.
pub static LE: OpDef =
    exact(discrete(binary("le", "True where the first is at most the second.", compare)));
/// Greater than.
pub static GT: OpDef =
    exact(discrete(binary("gt", "True where the first is greater than the second.", compare)));
/// At least.
pub static GE: OpDef =
    exact(discrete(binary("ge", "True where the first is at least the second.", compare)));

/// Choice by a condition.
pub static WHERE: OpDef = OpDef {
    samples: samples::select,
    arity: (3, 3),
    exact: true,
    ..with_rule(
        vjp::select,
        unary("where", "The second operand where the first is true, else the third.", select),
    )
};
