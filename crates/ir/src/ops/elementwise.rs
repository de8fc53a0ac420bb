//! Elementwise ops: each result element depends on one element of each operand, and operands
//! broadcast. Operands share one dtype; front ends insert the casts.

mod gamma;
mod rules;
mod vjp;

use super::*;
use crate::index_map::elementwise_iteration;
pub use gamma::*;
use rules::*;

const fn unary(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    OpDef {
        name,
        doc,
        class: Class::Elementwise,
        cost: Cost::Arithmetic,
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

/// A function of one operand that a short polynomial approximates.
const fn exponential(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    costs(Cost::Exponential, unary(name, doc, infer))
}

/// A transcendental function of one operand that costs more than a short polynomial.
const fn transcendental(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    costs(Cost::Transcendental, unary(name, doc, infer))
}

/// A square root. Processors have an instruction for real square roots, but not for complex square
/// roots.
const fn square_root(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    costs_on_complex(Cost::Transcendental, costs(Cost::Division, unary(name, doc, infer)))
}

/// A special function of one operand.
const fn special(
    name: &'static str,
    doc: &'static str,
    infer: fn(OpCall<'_>) -> Result<TensorSpec>,
) -> OpDef {
    costs(Cost::Special, unary(name, doc, infer))
}

/// The same op with a derivative rule.
const fn with_rule(rule: fn(&mut Vjp<'_>) -> Result<Cotangents>, def: OpDef) -> OpDef {
    OpDef { derivative: Derivative::Rule(rule), ..def }
}

/// The same op, linear in the operands that `linear` names.
const fn linear(linear: Linearity, def: OpDef) -> OpDef {
    OpDef { linear, ..def }
}

/// The same op with sample operands from `low..high`.
const fn within(low: f64, high: f64, def: OpDef) -> OpDef {
    OpDef { domain: (low, high), ..def }
}

/// The same op with zero derivative, since its result is piecewise constant.
const fn discrete(def: OpDef) -> OpDef {
    OpDef { derivative: Derivative::Zero("its result is not a floating-point number"), ..def }
}

/// The same op, marked as [`OpDef::exact`].
const fn exact(def: OpDef) -> OpDef {
    OpDef { exact: true, ..def }
}

/// The same op, marked as [`OpDef::exact`] and [`OpDef::exact_on_halves`].
const fn exact_on_halves(def: OpDef) -> OpDef {
    OpDef { exact_on_halves: true, ..exact(def) }
}

/// The same op with another cost than arithmetic.
const fn costs(cost: Cost, def: OpDef) -> OpDef {
    OpDef { cost, ..def }
}

/// The same op with another cost on complex operands.
const fn costs_on_complex(cost: Cost, def: OpDef) -> OpDef {
    OpDef { complex_cost: Some(cost), ..def }
}

/// `-x`; wraps for unsigned integers.
pub static NEG: OpDef = linear(
    Linearity::All,
    exact_on_halves(with_rule(vjp::neg, unary("neg", "The negative of each element.", numeric))),
);
/// `|x|`, real for complex numbers.
pub static ABS: OpDef = exact_on_halves(with_rule(
    vjp::abs,
    costs_on_complex(
        Cost::Hypotenuse,
        unary("abs", "The absolute value of each element.", magnitude),
    ),
));
/// -1, 0 or 1, NaN for NaN; `z / |z|` for complex numbers.
pub static SIGN: OpDef = exact_on_halves(with_rule(
    vjp::sign,
    costs_on_complex(Cost::Transcendental, unary("sign", "The sign of each element.", numeric)),
));
/// Real part of complex numbers.
pub static REAL: OpDef = linear(
    Linearity::All,
    exact(with_rule(vjp::real, unary("real", "The real part of each element.", part))),
);
/// Imaginary part of complex numbers.
pub static IMAG: OpDef = linear(
    Linearity::All,
    exact(with_rule(vjp::imag, unary("imag", "The imaginary part of each element.", part))),
);
/// Complex conjugate.
pub static CONJ: OpDef = linear(
    Linearity::All,
    exact(with_rule(vjp::conj, unary("conj", "The complex conjugate of each element.", complex))),
);
/// The largest integer not above `x`.
pub static FLOOR: OpDef = exact_on_halves(unary("floor", "Each element rounded down.", real));
/// The smallest integer not below `x`.
pub static CEIL: OpDef = exact_on_halves(unary("ceil", "Each element rounded up.", real));
/// Nearest integer, ties to even.
pub static ROUND: OpDef =
    exact_on_halves(unary("round", "Each element rounded to nearest, ties to even.", real));
/// Integer part.
pub static TRUNC: OpDef =
    exact_on_halves(unary("trunc", "Each element rounded toward zero.", real));
/// `e^x`.
pub static EXP: OpDef =
    full(with_rule(vjp::exp, exponential("exp", "The exponential of each element.", inexact)));
/// `e^x - 1`.
pub static EXPM1: OpDef = full(with_rule(
    vjp::expm1,
    transcendental("expm1", "exp(x) - 1, accurate near zero.", inexact),
));
/// `2^x`.
pub static EXP2: OpDef = full(with_rule(
    vjp::exp2,
    transcendental("exp2", "Two to the power of each element.", inexact),
));
/// Natural logarithm.
pub static LOG: OpDef = full(within(
    0.3,
    1.4,
    with_rule(vjp::log, exponential("log", "The natural logarithm of each element.", inexact)),
));
/// `log(1 + x)`.
pub static LOG1P: OpDef = full(within(
    0.3,
    1.4,
    with_rule(vjp::log1p, transcendental("log1p", "log(1 + x), accurate near zero.", inexact)),
));
/// Binary logarithm.
pub static LOG2: OpDef = full(within(
    0.3,
    1.4,
    with_rule(vjp::log2, transcendental("log2", "The base-2 logarithm of each element.", inexact)),
));
/// Decimal logarithm.
pub static LOG10: OpDef = full(within(
    0.3,
    1.4,
    with_rule(
        vjp::log10,
        transcendental("log10", "The base-10 logarithm of each element.", inexact),
    ),
));
/// Square root.
pub static SQRT: OpDef = within(
    0.3,
    1.4,
    exact(with_rule(vjp::sqrt, square_root("sqrt", "The square root of each element.", inexact))),
);
/// `1 / sqrt(x)`.
pub static RSQRT: OpDef = full(within(
    0.3,
    1.4,
    with_rule(
        vjp::rsqrt,
        square_root("rsqrt", "One over the square root of each element.", inexact),
    ),
));
/// Sine of radians.
pub static SIN: OpDef =
    with_rule(vjp::sin, transcendental("sin", "The sine of each element.", inexact));
/// Cosine of radians.
pub static COS: OpDef =
    with_rule(vjp::cos, transcendental("cos", "The cosine of each element.", inexact));
/// Tangent of radians.
pub static TAN: OpDef = full(within(
    0.3,
    1.4,
    with_rule(vjp::tan, transcendental("tan", "The tangent of each element.", inexact)),
));
/// Inverse sine.
pub static ASIN: OpDef = full(within(
    -0.8,
    0.85,
    with_rule(vjp::asin, transcendental("asin", "The inverse sine of each element.", inexact)),
));
/// Inverse cosine.
pub static ACOS: OpDef = full(within(
    -0.8,
    0.85,
    with_rule(vjp::acos, transcendental("acos", "The inverse cosine of each element.", inexact)),
));
/// Inverse tangent.
pub static ATAN: OpDef =
    with_rule(vjp::atan, transcendental("atan", "The inverse tangent of each element.", inexact));
/// Hyperbolic sine.
pub static SINH: OpDef = full(with_rule(
    vjp::sinh,
    transcendental("sinh", "The hyperbolic sine of each element.", inexact),
));
/// Hyperbolic cosine.
pub static COSH: OpDef = full(with_rule(
    vjp::cosh,
    transcendental("cosh", "The hyperbolic cosine of each element.", inexact),
));
/// Hyperbolic tangent.
pub static TANH: OpDef =
    with_rule(vjp::tanh, exponential("tanh", "The hyperbolic tangent of each element.", inexact));
/// Inverse hyperbolic sine.
pub static ASINH: OpDef = with_rule(
    vjp::asinh,
    transcendental("asinh", "The inverse hyperbolic sine of each element.", inexact),
);
/// Inverse hyperbolic cosine.
pub static ACOSH: OpDef = within(
    1.2,
    3.0,
    with_rule(
        vjp::acosh,
        transcendental("acosh", "The inverse hyperbolic cosine of each element.", inexact),
    ),
);
/// Inverse hyperbolic tangent.
pub static ATANH: OpDef = within(
    -0.8,
    0.85,
    with_rule(
        vjp::atanh,
        transcendental("atanh", "The inverse hyperbolic tangent of each element.", inexact),
    ),
);
/// Error function.
pub static ERF: OpDef =
    with_rule(vjp::erf, exponential("erf", "The error function of each element.", floating));
/// `1 - erf(x)`.
pub static ERFC: OpDef = with_rule(
    vjp::erfc,
    transcendental("erfc", "One minus the error function of each element.", floating),
);
/// The inverse error function.
pub static ERFINV: OpDef = full(within(
    -0.8,
    0.85,
    with_rule(
        vjp::erfinv,
        special("erfinv", "The inverse error function of each element.", floating),
    ),
));
/// `log |gamma(x)|`.
pub static LGAMMA: OpDef = full(within(
    0.3,
    4.0,
    with_rule(
        vjp::lgamma,
        special("lgamma", "The logarithm of the gamma function's absolute value.", floating),
    ),
));
/// `d/dx log gamma(x)`.
pub static DIGAMMA: OpDef = full(within(
    0.3,
    4.0,
    with_rule(
        vjp::digamma,
        special("digamma", "The logarithmic derivative of the gamma function.", floating),
    ),
));
/// Modified Bessel function of the first kind, of order 0.
pub static I0: OpDef = with_rule(
    vjp::i0,
    special("i0", "The modified Bessel function of the first kind of order 0.", floating),
);
/// Modified Bessel function of the first kind, of order 1.
pub static I1: OpDef = within(
    0.3,
    2.4,
    with_rule(
        vjp::i1,
        special("i1", "The modified Bessel function of the first kind of order 1.", floating),
    ),
);
/// Logical not of bool, bitwise not of integers.
pub static NOT: OpDef =
    exact(discrete(unary("not", "Logical not of bool, bitwise not of integers.", integral)));
/// NaN test.
pub static IS_NAN: OpDef =
    exact(discrete(unary("isnan", "True where an element is NaN.", classify)));
/// Infinity test.
pub static IS_INF: OpDef =
    exact(discrete(unary("isinf", "True where an element is infinite.", classify)));
/// Sign bit test; zeros and NaNs have a sign too.
pub static SIGNBIT: OpDef =
    exact(discrete(unary("signbit", "True where an element's sign bit is set.", classify)));
/// Finiteness test.
pub static IS_FINITE: OpDef = exact(discrete(unary(
    "isfinite",
    "True where an element is neither NaN nor infinite.",
    classify,
)));
/// Dtype conversion. Float to integer truncates and saturates (NaN gives 0), integer to a narrower
/// integer wraps, and any dtype to bool is `x != 0`. Complex to real is an error.
pub static CAST: OpDef = OpDef {
    samples: samples::cast,
    linear: Linearity::All,
    python: Python::Named("Tensor.astype"),
    ..exact(with_rule(
        vjp::cast,
        costs(Cost::Move, unary("cast", "Each element converted to another dtype.", cast)),
    ))
};
/// Reinterprets each element's bits as another real dtype of the same size; NaN bits are unchanged.
/// Only bool can be cast to bool, since a bool byte other than 0 and 1 has no meaning.
pub static BITCAST: OpDef = OpDef {
    samples: samples::bitcast,
    python: Python::Named("Tensor.view"),
    derivative: Derivative::Zero("it reads bits, which are no numbers"),
    ..exact(costs(
        Cost::Move,
        unary("bitcast", "The bits of each element read as another dtype of its size.", bitcast),
    ))
};

/// Sum.
pub static ADD: OpDef = OpDef {
    commutative: true,
    exact: true,
    linear: Linearity::All,
    ..with_rule(vjp::add, binary("add", "The sum of two tensors.", broadcast_numeric))
};
/// Difference.
pub static SUB: OpDef = linear(
    Linearity::All,
    exact(with_rule(vjp::sub, binary("sub", "The difference of two tensors.", broadcast_numeric))),
);
/// Product.
pub static MUL: OpDef = OpDef {
    commutative: true,
    exact: true,
    linear: Linearity::In(&[&[0], &[1]]),
    ..with_rule(vjp::mul, binary("mul", "The product of two tensors.", broadcast_numeric))
};
/// Quotient of floats.
pub static DIV: OpDef = linear(
    Linearity::In(&[&[0]]),
    exact(with_rule(
        vjp::div,
        costs(Cost::Division, binary("div", "The quotient of two tensors.", broadcast_inexact)),
    )),
);
/// Quotient rounded down; 0 for integer division by zero.
pub static FLOOR_DIVIDE: OpDef = costs(
    Cost::Remainder,
    binary("floor_divide", "The quotient of two tensors, rounded down.", broadcast_real),
);
/// `a - floor(a / b) * b`, with the sign of the divisor; 0 for an integer divisor of zero.
pub static REMAINDER: OpDef = with_rule(
    vjp::remainder,
    costs(
        Cost::Remainder,
        binary(
            "remainder",
            "The remainder of floor division, signed as the divisor.",
            broadcast_real,
        ),
    ),
);
/// `a - trunc(a / b) * b`, with the sign of `a`, as C's `fmod`; 0 for an integer divisor of zero.
pub static FMOD: OpDef = with_rule(
    vjp::fmod,
    costs(
        Cost::Remainder,
        binary("fmod", "The remainder of truncated division, signed as the first.", broadcast_real),
    ),
);
/// Power. Integers wrap; a negative integer exponent gives 0 except for bases 1 and -1.
pub static POW: OpDef = full(with_rule(
    vjp::pow,
    costs_on_complex(
        Cost::Special,
        costs(
            Cost::Transcendental,
            binary("pow", "One tensor to the power of another.", broadcast_numeric),
        ),
    ),
));
/// Maximum of two elements, NaN if either is NaN.
pub static MAXIMUM: OpDef = exact_on_halves(with_rule(
    vjp::maximum,
    binary("maximum", "The larger of two tensors' elements, NaN if either is.", broadcast_ordered),
));
/// Minimum of two elements, NaN if either is NaN.
pub static MINIMUM: OpDef = exact_on_halves(with_rule(
    vjp::minimum,
    binary("minimum", "The smaller of two tensors' elements, NaN if either is.", broadcast_ordered),
));
/// Angle of the point (second operand, first operand).
pub static ATAN2: OpDef = with_rule(
    vjp::atan2,
    costs(
        Cost::Transcendental,
        binary("atan2", "The angle of the point (second, first).", broadcast_floating),
    ),
);
/// `sqrt(a^2 + b^2)` without intermediate overflow. Infinite if either operand is infinite, even if
/// the other is NaN.
pub static HYPOT: OpDef = OpDef {
    commutative: true,
    ..with_rule(
        vjp::hypot,
        costs(
            Cost::Hypotenuse,
            binary("hypot", "The hypotenuse of two tensors' elements.", broadcast_floating),
        ),
    )
};
/// The magnitude of the first operand with the sign of the second, also for zeros and NaNs.
pub static COPYSIGN: OpDef = exact_on_halves(with_rule(
    vjp::copysign,
    binary(
        "copysign",
        "The first tensor's magnitudes with the second's signs.",
        broadcast_floating,
    ),
));
/// The next value of the dtype after the first operand in the direction of the second.
pub static NEXTAFTER: OpDef = exact_on_halves(binary(
    "nextafter",
    "The next value after the first tensor's elements in the direction of the second's.",
    broadcast_floating,
));
/// The complex number of a real and an imaginary part.
pub static COMPLEX: OpDef = linear(
    Linearity::All,
    exact(with_rule(
        vjp::complex,
        binary("complex", "Complex numbers of real and imaginary parts.", of_parts),
    )),
);
/// `a * 2^b`, wrapping; 0 if `b` is negative or at least the dtype's number of bits.
pub static SHIFT_LEFT: OpDef = exact(discrete(binary(
    "shift_left",
    "The first tensor's bits shifted left by the second.",
    broadcast_integers,
)));
/// `floor(a / 2^b)`; 0 or -1 if `b` is negative or at least the dtype's number of bits.
pub static SHIFT_RIGHT: OpDef = exact(discrete(binary(
    "shift_right",
    "The first tensor's bits shifted right by the second, the sign kept.",
    broadcast_integers,
)));
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
    exact(discrete(binary("lt", "True where the first is less than the second.", compare_ordered)));
/// Less than or equal.
pub static LE: OpDef =
    exact(discrete(binary("le", "True where the first is at most the second.", compare_ordered)));
/// Greater than.
pub static GT: OpDef = exact(discrete(binary(
    "gt",
    "True where the first is greater than the second.",
    compare_ordered,
)));
/// Greater than or equal.
pub static GE: OpDef =
    exact(discrete(binary("ge", "True where the first is at least the second.", compare_ordered)));

/// Selects elements by a condition.
pub static WHERE: OpDef = OpDef {
    samples: samples::select,
    linear: Linearity::In(&[&[1, 2]]),
    arity: (3, 3),
    exact: true,
    exact_on_halves: true,
    ..with_rule(
        vjp::select,
        costs(
            Cost::Move,
            unary("where", "The second operand where the first is true, else the third.", select),
        ),
    )
};
