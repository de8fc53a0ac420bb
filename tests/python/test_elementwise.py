"""Elementwise ops against NumPy and SciPy: dtypes, shapes, edge cases. One row per op."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS, INTS, RTOL, close, sample
from scipy import special


def sigmoid(x):
    return special.expit(x)


# name: (reference, low and high of the sampled domain)
UNARY = {
    "abs": (np.abs, -4, 4),
    "sign": (np.sign, -4, 4),
    "floor": (np.floor, -4, 4),
    "ceil": (np.ceil, -4, 4),
    "round": (np.round, -4, 4),
    "trunc": (np.trunc, -4, 4),
    "square": (np.square, -4, 4),
    "reciprocal": (lambda x: x.dtype.type(1) / x, 0.5, 4),
    "exp": (np.exp, -4, 4),
    "expm1": (np.expm1, -4, 4),
    "exp2": (np.exp2, -4, 4),
    "log": (np.log, 0.01, 9),
    "log1p": (np.log1p, -0.9, 4),
    "log2": (np.log2, 0.01, 9),
    "log10": (np.log10, 0.01, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.01, 9),
    "sin": (np.sin, -9, 9),
    "cos": (np.cos, -9, 9),
    "tan": (np.tan, -1.4, 1.4),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "sinh": (np.sinh, -4, 4),
    "cosh": (np.cosh, -4, 4),
    "tanh": (np.tanh, -4, 4),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1, 9),
    "atanh": (np.arctanh, -0.99, 0.99),
    "erf": (special.erf, -3, 3),
    "erfc": (special.erfc, -3, 3),
    "erfinv": (special.erfinv, -0.99, 0.99),
    "lgamma": (lambda x: np.where(x == -np.inf, np.inf, special.gammaln(x)), 2.5, 9),
    "digamma": (lambda x: np.where(x == -np.inf, np.nan, special.digamma(x)), 1.7, 9),
    "i0": (lambda x: np.where(np.isinf(x), np.inf, special.i0(x)), -9, 9),
    "i1": (lambda x: np.where(np.isinf(x), x, special.i1(x)), -9, 9),
    "relu": (lambda x: np.maximum(x, 0), -4, 4),
    "sigmoid": (sigmoid, -9, 9),
    "log_sigmoid": (special.log_expit, -9, 9),
    "silu": (lambda x: x * sigmoid(x), -9, 9),
    "softplus": (lambda x: np.logaddexp(x, 0), -9, 9),
}
EXACT_ON_INTS = {"abs", "sign", "floor", "ceil", "round", "trunc", "square", "relu"}
# By name: the reference for the special values; UNARY's reference checks the functions that are not
# listed.
SPECIAL_VALUES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "atan2": np.arctan2,
}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
LOGICAL = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITWISE = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
# Ops with tests of their own.
ELSEWHERE = {
    *("isnan", "isinf", "isfinite", "bitwise_not", "negative", "stop_gradient"),
    *("Tensor.to_device", "Tensor.shard"),
}
ELSEWHERE |= {"Tensor.astype", "gelu"}
# In test_bitcast.py.
ELSEWHERE |= {"Tensor.view"}
# In test_dtypes.py, with special values.
ELSEWHERE |= {"real", "imag", "conj", "complex", "hypot", "logaddexp", "copysign", "nextafter"}
ELSEWHERE |= {"signbit", "bitwise_left_shift", "bitwise_right_shift"}
# In test_special.py and test_random.py.
ELSEWHERE |= {"polygamma", "igamma", "igammac", "igamma_grad_a"}
ELSEWHERE |= {"random.bits", "random.gamma", "random.dirichlet", "random.poisson"}
SHAPES = [(), (0,), (1,), (7,), (3, 5), (2, 3, 4), (3, 0, 2), (1000,)]
BROADCASTS = [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((5, 1, 2), (3, 1)), ((0, 3), (1, 3))]


def reference(f, x):
    """The value in double precision, rounded once."""
    with np.errstate(all="ignore"):
        return np.asarray(f(x.astype(np.float64))).astype(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    f, low, high = UNARY[name]
    for shape in SHAPES:
        x = sample(shape, dtype, low=low, high=high)
        # Absolute tolerance near a zero of the function: half a unit in the last place of 1.
        slack = RTOL[dtype] * 0.5
        close(getattr(gr, name)(gr.asarray(x)), reference(f, x), RTOL[dtype] * 2, slack)
    close(getattr(gr.asarray(x), name)(), reference(f, x), RTOL[dtype] * 2, slack)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_special_values(name, dtype):
    x = np.array(SPECIAL_VALUES, dtype)
    want = reference(UNARY[name][0], x)
    if name == "silu":
        want[x == -np.inf] = np.nan  # -inf * 0
    close(getattr(gr, name)(gr.asarray(x)), want, RTOL[dtype] * 2)


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", sorted(EXACT_ON_INTS))
def test_unary_keeps_integers(name, dtype):
    x = sample((9,), dtype)
    close(getattr(gr, name)(gr.asarray(x)), UNARY[name][0](x).astype(dtype))


@pytest.mark.parametrize("dtype", [*INTS, "bool"])
@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "log1p"])
def test_float_functions_of_integers_give_float32(name, dtype):
    x = np.abs(sample((9,), dtype)) if dtype != "bool" else sample((9,), dtype)
    want = UNARY[name][0](x.astype(np.float64)).astype(np.float32)
    close(getattr(gr, name)(gr.asarray(x)), want, 2e-6, 1e-6)


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
def test_classification(name, dtype):
    x = np.array([0, 1, -1], dtype)
    if dtype != "int32":
        x = np.array(SPECIAL_VALUES, dtype)
    close(getattr(gr, name)(gr.asarray(x)), getattr(np, name)(x))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    if name == "atan2" and dtype in INTS:
        pytest.skip("a function of floats")
    f = BINARY[name]
    for a_shape, b_shape in [*BROADCASTS, *((s, s) for s in SHAPES)]:
        a, b = sample(a_shape, dtype, 1), sample(b_shape, dtype, 2, low=1, high=3)
        if name == "power":
            a = np.abs(a)
        got = getattr(gr, name)(gr.asarray(a), gr.asarray(b))
        with np.errstate(all="ignore"):
            want = np.asarray(f(a, b))
        if name == "divide" and dtype in INTS:
            want = want.astype(np.float32)
        close(got, want, RTOL.get(dtype, 1e-6) * 4, RTOL.get(dtype, 1e-6))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(BINARY.keys() - {"floor_divide", "remainder", "fmod"}))
def test_binary_special_values(name, dtype):
    values = np.array(SPECIAL_VALUES, dtype)
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        want = BINARY[name](a, b)
    close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), want, RTOL[dtype])


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_integer_division_rounds_down_for_all_signs(name, dtype):
    values = np.array(
        [v for v in (-7, -3, -1, 1, 3, 7) if v > 0 or not dtype.startswith("uint")], dtype
    )
    a, b = (v.ravel() for v in np.meshgrid(values, values))
    close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), BINARY[name](a, b))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name, dtype):
    for a_shape, b_shape in BROADCASTS:
        a, b = sample(a_shape, dtype, 1), sample(b_shape, dtype, 2)
        close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), COMPARISONS[name](a, b))
    nan = np.array([np.nan, 1.0, np.nan], np.float32)
    close(getattr(gr, name)(gr.asarray(nan), gr.asarray(nan)), COMPARISONS[name](nan, nan))


@pytest.mark.parametrize("name", LOGICAL)
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_logic(name, dtype):
    a, b = sample((20,), dtype, 1, -1, 1), sample((20,), dtype, 2, -1, 1)
    close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), LOGICAL[name](a, b))
    close(gr.logical_not(gr.asarray(a)), np.logical_not(a))


@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize("dtype", ["bool", *INTS])
def test_bits(name, dtype):
    a, b = sample((20,), dtype, 1), sample((20,), dtype, 2)
    close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), BITWISE[name](a, b))
    close(~gr.asarray(a), ~a)
    close(gr.bitwise_not(gr.asarray(a)), ~a)


OPERATORS = {
    "+": (lambda a, b: a + b, np.add),
    "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply),
    "/": (lambda a, b: a / b, np.divide),
    "//": (lambda a, b: a // b, np.floor_divide),
    "%": (lambda a, b: a % b, np.remainder),
    "**": (lambda a, b: a**b, np.power),
    "<": (lambda a, b: a < b, np.less),
    "<=": (lambda a, b: a <= b, np.less_equal),
    ">": (lambda a, b: a > b, np.greater),
    ">=": (lambda a, b: a >= b, np.greater_equal),
    "==": (lambda a, b: a == b, np.equal),
    "!=": (lambda a, b: a != b, np.not_equal),
}


@pytest.mark.parametrize("symbol", OPERATORS)
def test_operators_and_their_reflections(symbol):
    op, f = OPERATORS[symbol]
    x = sample((5,), "float32", low=1, high=4)
    t = gr.asarray(x)
    close(op(t, t), f(x, x))
    close(op(t, 2), f(x, np.float32(2)))
    close(op(2.5, t), f(np.float32(2.5), x))
    close(op(t, x), f(x, x))
    if symbol not in ("==", "!="):
        close(op(x, t), f(x, x))


def test_unary_operators():
    x = sample((5,), "float32")
    close(gr.negative(gr.asarray(x)), -x)
    close(-gr.asarray(x), -x)
    close(abs(gr.asarray(x)), np.abs(x))


def test_where_broadcasts_and_promotes():
    c = sample((3, 1), "bool")
    x, y = sample((1, 4), "float32", 1), sample((3, 4), "int32", 2)
    close(gr.where(gr.asarray(c), gr.asarray(x), gr.asarray(y)), np.where(c, x, y).astype("f4"))
    close(gr.where(gr.asarray(c), gr.asarray(x), 0.0), np.where(c, x, np.float32(0)))


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (None, 1), (-1, None), (2, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_clip(low, high, dtype):
    x = sample((50,), dtype)
    close(gr.asarray(x).clip(low, high), np.clip(x, low, high).astype(dtype))


CASTS = ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64"]


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.parametrize("target", CASTS)
def test_casts(source, target):
    x = np.abs(sample((20,), source)) if source != "bool" else sample((20,), source)
    close(
        gr.asarray(x).astype(getattr(gr, "bool_" if target == "bool" else target)), x.astype(target)
    )
    close(gr.asarray(x).astype(target), x.astype(target))


def test_bfloat16_rounds_to_nearest_even():
    x = sample((1000,), "float32")
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    close(gr.asarray(x).astype(gr.bfloat16).astype(gr.float32), rounded.view(np.float32))


PROMOTIONS = [
    ("bool", "int8", "int8"), ("bool", "float16", "float16"), ("int8", "int64", "int64"),
    ("uint8", "int8", "int16"), ("uint8", "int16", "int16"), ("int64", "float16", "float16"),
    ("int64", "bfloat16", "bfloat16"), ("float16", "bfloat16", "float32"),
    ("float16", "float32", "float32"), ("bfloat16", "float64", "float64"),
    ("int32", "float32", "float32"), ("uint8", "uint8", "uint8"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "want"), PROMOTIONS)
def test_promotion(a, b, want):
    for x, y in ((a, b), (b, a)):
        assert (gr.ones([2], dtype=x) + gr.ones([2], dtype=y)).dtype.name == want


@pytest.mark.parametrize(
    ("dtype", "scalar", "want"),
    [
        ("int8", 1, "int8"), ("float16", 1, "float16"), ("float16", 1.5, "float16"),
        ("bfloat16", 0.5, "bfloat16"), ("int32", 1.5, "float32"), ("bool", 1, "int64"),
        ("bool", True, "bool"), ("uint8", True, "uint8"), ("float64", 1, "float64"),
    ],
)  # fmt: skip
def test_python_scalars_are_weak(dtype, scalar, want):
    op = gr.bitwise_or if want == "bool" else gr.add
    assert op(gr.ones([2], dtype=dtype), scalar).dtype.name == want


@pytest.mark.parametrize(("dtype", "scalar"), [("int8", 128), ("uint8", -1), ("int32", 2**31)])
def test_a_scalar_that_does_not_fit_is_an_error(dtype, scalar):
    with pytest.raises(gr.InvalidArgumentError, match=str(abs(scalar))):
        gr.ones([2], dtype=dtype) + scalar


@pytest.mark.parametrize("dtype", FLOATS)
def test_operands_that_are_views(dtype):
    x = sample((6, 8), dtype)
    t = gr.asarray(x)
    views = [
        (t[::2], x[::2]), (t[:, ::-1], x[:, ::-1]), (t.T, x.T), (t[1:4, 2:7:3], x[1:4, 2:7:3]),
        (gr.asarray(x[::2, ::-1]), x[::2, ::-1]), (gr.asarray(x.T), x.T),
    ]  # fmt: skip
    for got, want in views:
        close(got, want)
        close(got * 2 + got, want * 2 + want, RTOL[dtype])
        close(got.sum(0), want.sum(0, dtype=np.float64).astype(dtype), RTOL[dtype] * 9, 1e-3)


def test_sums_and_products_of_bools_are_logical():
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    s, t = gr.asarray(a), gr.asarray(b)
    close(s + t, a + b)
    close(gr.multiply(s, t), a * b)
    close(s + True, a + True)
    close(False * t, False * b)
    close(gr.add(True, True), np.add(True, True))
    close(s + 1, a + 1)
    s += t
    close(s, a + b)
    close(gr.vmap(gr.add)(gr.asarray(a), t), a + b)
