"""The array API standard, revision 2025.12: names, signatures, and the results of every function,
with array_api_strict as the oracle. docs/array-api.md lists the known deviations.
"""

from __future__ import annotations

import inspect
import itertools
from operator import attrgetter

import array_api_strict as strict
import girih as gr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

settings.register_profile(
    "girih", deadline=None, max_examples=12, derandomize=True, database=None, print_blob=False
)
settings.load_profile("girih")

BOOL = ["bool"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
INTS = SIGNED + UNSIGNED
REAL = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
FLOATING = REAL + COMPLEX
REAL_NUMERIC = INTS + REAL
NUMERIC = REAL_NUMERIC + COMPLEX
ALL = BOOL + NUMERIC
HAVE = [name for name in ALL if hasattr(gr, name)]
RTOL = {"float32": 4e-6, "complex64": 1e-5, "float64": 1e-13, "complex128": 1e-12}

FUNCTIONS = sorted(
    name
    for name in dir(strict)
    if callable(getattr(strict, name))
    and not name.startswith("_")
    and not isinstance(getattr(strict, name), type)
    and "flags" not in name
    and "DType" not in type(getattr(strict, name)).__name__
)
HERE = [name for name in FUNCTIONS if hasattr(gr, name)]


# Names and signatures.

EXTENSIONS = {
    f"{extension}.{name}"
    for extension in ("linalg", "fft")
    for name in getattr(strict, extension).__all__
    if name != "annotations"
}


def test_no_function_of_linalg_is_missing():
    names = {n for n in EXTENSIONS if n.startswith("linalg.")}
    assert {n for n in names if not hasattr(gr.linalg, n.split(".")[1])} == set()


HERE += sorted(
    n for n in EXTENSIONS if hasattr(getattr(gr, n.split(".")[0], None), n.split(".")[1])
)


def test_no_function_is_missing():
    transforms = {name for name in EXTENSIONS if name.startswith("fft.")}
    assert transforms
    assert {*FUNCTIONS, *transforms} - set(HERE) == set()
    assert HAVE == ALL


@pytest.mark.parametrize("name", HERE)
def test_signature(name):
    """Every call that the standard allows is allowed; more calls may be allowed."""
    own = inspect.signature(attrgetter(name)(gr)).parameters
    theirs = inspect.signature(attrgetter(name)(strict)).parameters
    by_place = [p for p in own.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = {n for n, p in own.items() if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    variadic = any(p.kind is p.VAR_POSITIONAL for p in own.values())
    for i, p in enumerate(theirs.values()):
        if p.kind is p.VAR_POSITIONAL:
            assert variadic
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            assert variadic or i < len(by_place), p
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
            assert p.name in by_name
        if p.kind is p.POSITIONAL_OR_KEYWORD and not variadic:
            assert by_place[i].name == p.name, "at another place"

    def required(parameters):
        stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found = [p for p in parameters.values() if p.default is p.empty and p.kind not in stars]
        return len(found)

    assert required(own) <= required(theirs)


def test_constants():
    for name in ("e", "inf", "nan", "pi"):
        assert np.array_equal(getattr(gr, name), getattr(np, name), equal_nan=True)
    assert gr.newaxis is None
    assert gr.__array_api_version__ == strict.__array_api_version__


def test_the_array_knows_its_namespace():
    x = gr.ones((2,))
    assert x.__array_namespace__() is gr
    for version in ("2021.12", "2025.12", None):
        assert x.__array_namespace__(api_version=version) is gr
    with pytest.raises(gr.InvalidArgumentError, match=r"1999\.12"):
        x.__array_namespace__(api_version="1999.12")


def test_devices():
    x = gr.ones((2,), device=gr.__array_namespace_info__().default_device())
    assert x.device == "cpu"
    assert x.to_device(x.device).tolist() == [1, 1]
    assert x.to_device("cpu", stream=None).tolist() == [1, 1]
    for call in (
        lambda: x.to_device("gpu"),
        lambda: gr.zeros((2,), device="gpu"),
        lambda: gr.asarray([1], device="gpu"),
        lambda: gr.astype(x, gr.int8, device="gpu"),
        lambda: gr.__array_namespace_info__().dtypes(device="gpu"),
    ):
        with pytest.raises(gr.DeviceError, match="gpu"):
            call()


@pytest.mark.skipif(HAVE != ALL, reason="not all dtypes exist yet")
def test_inspection():
    info = gr.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 32,
    }
    assert gr.zeros((1,) * 32).ndim == 32
    assert info.devices() == ("cpu",)
    assert info.default_dtypes()["real floating"] == gr.asarray(1.0).dtype
    assert info.default_dtypes()["integral"] == gr.asarray(1).dtype
    assert info.default_dtypes()["indexing"] == gr.argmax(gr.ones((3,))).dtype
    with pytest.raises(gr.InvalidArgumentError, match="kind"):
        info.dtypes(kind="strange")


KINDS = [
    "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
    "numeric",
]  # fmt: skip


@pytest.mark.skipif(HAVE != ALL, reason="not all dtypes exist yet")
def test_kinds_of_dtypes():
    info, theirs = gr.__array_namespace_info__(), strict.__array_namespace_info__()
    for kind in [None, *KINDS, ("bool", "integral")]:
        assert set(info.dtypes(kind=kind)) == set(theirs.dtypes(kind=kind))
    for kind in [*KINDS, ("bool", "numeric"), ()]:
        for name in HAVE:
            assert gr.isdtype(getattr(gr, name), kind) == strict.isdtype(
                getattr(strict, name), kind
            )
    for a, b in itertools.product(HAVE, HAVE):
        assert gr.isdtype(getattr(gr, a), getattr(gr, b)) == (a == b)
    assert gr.isdtype(gr.bfloat16, "real floating")
    with pytest.raises(gr.InvalidArgumentError, match="integer"):
        gr.isdtype(gr.int8, "integer")


def test_limits():
    for name in [n for n in HAVE if n in FLOATING]:
        own, theirs = gr.finfo(getattr(gr, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert float(getattr(own, field)) == float(getattr(theirs, field)), (name, field)
        assert own.dtype.name == {"complex64": "float32", "complex128": "float64"}.get(name, name)
        assert gr.finfo(gr.ones((1,), dtype=name)) == own
    for name in [n for n in HAVE if n in INTS]:
        own, theirs = gr.iinfo(getattr(gr, name)), np.iinfo(name)
        assert (own.bits, own.max, own.min) == (theirs.bits, theirs.max, theirs.min)
        assert own.dtype.name == name
        assert gr.iinfo(gr.ones((1,), dtype=name)) == own
    assert gr.finfo(gr.bfloat16).eps == 2.0**-7
    for call in (lambda: gr.finfo(gr.int8), lambda: gr.iinfo(gr.float32), lambda: gr.iinfo(bool)):
        with pytest.raises(gr.DTypeError, match="expected"):
            call()


# One call on both libraries.


def numpy_of(x):
    """A result of either library as a NumPy array."""
    if isinstance(x, gr.Tensor):
        return np.asarray(x)
    return x._array if isinstance(x, type(strict.asarray(0))) else np.asarray(x)


def same(got, want, rtol=0.0, where=""):
    """Asserts equal structure, shape, dtype and values."""
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), where
        for field in getattr(want, "_fields", ()):
            assert hasattr(got, field), f"{where}: no field {field}"
        for g, w in zip(got, want, strict=True):
            same(g, w, rtol, where)
        return
    if want is None or isinstance(want, (bool, str)):
        assert got == want, where
        return
    assert isinstance(got, gr.Tensor), where
    want = numpy_of(want)
    assert got.dtype.name == want.dtype.name, f"{where}: {got.dtype} {want.dtype}"
    assert got.shape == want.shape, f"{where}: {got.shape} {want.shape}"
    if rtol:
        np.testing.assert_allclose(numpy_of(got), want, rtol, rtol, err_msg=where)
    else:
        np.testing.assert_array_equal(numpy_of(got), want, err_msg=where)


def convert(value, library):
    """Converts NumPy arrays and names of dtypes in arguments to a library's objects."""
    if isinstance(value, np.ndarray):
        return library.asarray(value.copy()) if library is gr else strict.asarray(value)
    if isinstance(value, np.dtype):
        return getattr(library, value.name)
    if isinstance(value, (list, tuple)):
        return type(value)(convert(v, library) for v in value)
    return value


def both(name, *args, rtol=0.0, **kwargs):
    """Calls a function of both libraries and compares the results."""
    own = attrgetter(name)(gr)(*convert(args, gr), **{k: convert(v, gr) for k, v in kwargs.items()})
    theirs = attrgetter(name)(strict)(
        *convert(args, strict), **{k: convert(v, strict) for k, v in kwargs.items()}
    )
    same(own, theirs, rtol, f"{name}{args} {kwargs}")


def needs(name):
    """Skips the test of a function that does not exist yet."""
    if not hasattr(gr, name):
        pytest.skip(f"girih has no {name}")


def numbers(shape, dtype, seed=0, low=-4, high=4):
    """Random elements that do not overflow in any library."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype in INTS:
        return np.asarray(
            rng.integers(max(low, 0) if dtype in UNSIGNED else low, high, shape)
        ).astype(dtype)
    x = np.asarray(rng.uniform(low, high, shape))
    if dtype in COMPLEX:
        x = x + 1j * rng.uniform(low, high, shape)
    return np.asarray(x).astype(dtype)


SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
NONEMPTY = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


def dtypes(*names):
    return st.sampled_from([n for n in names if n in HAVE])


# Elementwise functions: dtypes, and the domain of real operands.
ANY, POSITIVE, UNIT = (-4, 4), (0.25, 4), (-0.9, 0.9)
UNARY = {
    "abs": (NUMERIC, ANY), "acos": (FLOATING, UNIT), "acosh": (FLOATING, (1.25, 4)),
    "asin": (FLOATING, UNIT), "asinh": (FLOATING, ANY), "atan": (FLOATING, UNIT),
    "atanh": (FLOATING, UNIT), "bitwise_invert": (BOOL + INTS, ANY), "ceil": (REAL_NUMERIC, ANY),
    "conj": (COMPLEX, ANY), "cos": (FLOATING, ANY), "cosh": (FLOATING, ANY),
    "exp": (FLOATING, ANY), "expm1": (FLOATING, ANY), "floor": (REAL_NUMERIC, ANY),
    "imag": (COMPLEX, ANY), "isfinite": (NUMERIC, ANY), "isinf": (NUMERIC, ANY),
    "isnan": (NUMERIC, ANY), "log": (FLOATING, POSITIVE), "log10": (FLOATING, POSITIVE),
    "log1p": (FLOATING, POSITIVE), "log2": (FLOATING, POSITIVE), "logical_not": (BOOL, ANY),
    "negative": (NUMERIC, ANY), "positive": (NUMERIC, ANY), "real": (COMPLEX, ANY),
    "reciprocal": (FLOATING, POSITIVE), "round": (NUMERIC, ANY), "sign": (NUMERIC, ANY),
    "signbit": (REAL, ANY), "sin": (FLOATING, ANY), "sinh": (FLOATING, ANY),
    "sqrt": (FLOATING, POSITIVE), "square": (NUMERIC, ANY), "tan": (FLOATING, UNIT),
    "tanh": (FLOATING, ANY), "trunc": (REAL_NUMERIC, ANY),
}  # fmt: skip
BINARY = {
    "add": (NUMERIC, ANY), "atan2": (REAL, ANY), "bitwise_and": (BOOL + INTS, ANY),
    "bitwise_left_shift": (INTS, (0, 4)), "bitwise_or": (BOOL + INTS, ANY),
    "bitwise_right_shift": (INTS, (0, 4)), "bitwise_xor": (BOOL + INTS, ANY),
    "copysign": (REAL, ANY), "divide": (FLOATING, POSITIVE), "equal": (ALL, ANY),
    "floor_divide": (REAL_NUMERIC, (1, 9)), "greater": (REAL_NUMERIC, ANY),
    "greater_equal": (REAL_NUMERIC, ANY), "hypot": (REAL, ANY), "less": (REAL_NUMERIC, ANY),
    "less_equal": (REAL_NUMERIC, ANY), "logaddexp": (REAL, ANY), "logical_and": (BOOL, ANY),
    "logical_or": (BOOL, ANY), "logical_xor": (BOOL, ANY), "maximum": (REAL_NUMERIC, ANY),
    "minimum": (REAL_NUMERIC, ANY), "multiply": (NUMERIC, ANY), "nextafter": (REAL, ANY),
    "not_equal": (ALL, ANY), "pow": (NUMERIC, (1, 4)), "remainder": (REAL_NUMERIC, (1, 9)),
    "subtract": (NUMERIC, ANY),
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
def test_unary(name, data):
    needs(name)
    kinds, (low, high) = UNARY[name]
    dtype, shape = data.draw(dtypes(*kinds)), data.draw(SHAPES)
    both(name, numbers(shape, dtype, len(shape), low, high), rtol=RTOL.get(dtype, 0))


@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_binary(name, data):
    needs(name)
    kinds, (low, high) = BINARY[name]
    a = data.draw(dtypes(*kinds))
    group = next(g for g in (BOOL, INTS, REAL, COMPLEX) if a in g)
    b = data.draw(dtypes(*[d for d in kinds if d in group]))
    shape = data.draw(SHAPES)
    other = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    other = other[data.draw(st.integers(0, len(other))) :]
    if {a, b} & {"uint64"} and {a, b} & set(SIGNED):
        b = a  # no dtype holds both
    x, y = numbers(shape, a, 1, low, high), numbers(other, b, 2, low, high)
    # Both libraries round once; a float32 with a float64 is exact.
    rtol = max(RTOL.get(a, 0), RTOL.get(b, 0))
    both(name, x, y, rtol=rtol)
    both(name, y, x, rtol=rtol)


@pytest.mark.parametrize("name", BINARY)
def test_python_scalars_beside_arrays(name):
    needs(name)
    kinds, (low, high) = BINARY[name]
    for dtype in [d for d in kinds if d in HAVE]:
        x = numbers((3,), dtype, 1, max(low, 1) if low >= 0 else low, high)
        scalar = {"b": True, "i": 2, "u": 2, "f": 1.5, "c": 1.5 - 1j}[np.dtype(dtype).kind]
        both(name, x, scalar, rtol=RTOL.get(dtype, 0))
        both(name, scalar, x, rtol=RTOL.get(dtype, 0))
        if dtype in FLOATING:
            both(name, x, 2, rtol=RTOL[dtype])


SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -3.0,
    10.0,
    -10.0,
    np.inf,
    -np.inf,
    np.nan,
]


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", [n for n in UNARY if set(REAL) & set(UNARY[n][0])])
def test_special_values(name, dtype):
    needs(name)
    x = np.array([*SPECIALS, np.pi / 2, 1e-30, 1e30], dtype)
    with np.errstate(all="ignore"):
        both(name, x, rtol=RTOL[dtype])
        signs(name, x)


def signs(name, *operands):
    """Asserts that zeros have the same sign in both libraries."""
    own = numpy_of(getattr(gr, name)(*(gr.asarray(x) for x in operands)))
    theirs = numpy_of(getattr(strict, name)(*(strict.asarray(x) for x in operands)))
    zero = theirs == 0
    if own.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(own[zero]), np.signbit(theirs[zero]), name)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", [n for n in BINARY if set(REAL) & set(BINARY[n][0])])
def test_special_pairs(name, dtype):
    needs(name)
    x, y = (v.ravel() for v in np.meshgrid(np.array(SPECIALS, dtype), np.array(SPECIALS, dtype)))
    with np.errstate(all="ignore"):
        both(name, x, y, rtol=RTOL[dtype])
        if name not in ("maximum", "minimum"):  # which zero is left open
            signs(name, x, y)


PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan]
# The oracle deviates from C99's annex G, which the standard follows, or the standard does not
# specify the value.
ONLY_FINITE = {"expm1", "reciprocal", "sign", "tan", "tanh"}


@pytest.mark.skipif("complex64" not in HAVE, reason="no complex dtypes yet")
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", [n for n in UNARY if set(COMPLEX) & set(UNARY[n][0])])
def test_special_complex_values(name, dtype):
    needs(name)
    x = np.array([complex(a, b) for a in PARTS for b in PARTS], dtype)
    if name in ONLY_FINITE:
        x = x[np.isfinite(x) & (x != 0)]
    with np.errstate(all="ignore"):
        own = numpy_of(getattr(gr, name)(gr.asarray(x)))
        theirs = numpy_of(getattr(strict, name)(strict.asarray(x)))
    assert own.dtype == theirs.dtype
    cases = zip(x, own, theirs, strict=True)
    assert not {complex(v): (o, t) for v, o, t in cases if not alike(o, t, RTOL[dtype])}


def alike(a, b, rtol):
    """Compares real and imaginary parts, with NaN equal to NaN."""
    parts = [(a.real, b.real), (a.imag, b.imag)]
    return all(
        (np.isnan(p) and np.isnan(q)) or p == q or abs(p - q) <= rtol * max(abs(p), abs(q), 1e-3)
        for p, q in parts
    )


OPERATORS = {
    "__abs__": NUMERIC, "__add__": NUMERIC, "__and__": BOOL + INTS, "__eq__": ALL,
    "__floordiv__": REAL_NUMERIC, "__ge__": REAL_NUMERIC, "__gt__": REAL_NUMERIC,
    "__invert__": BOOL + INTS, "__le__": REAL_NUMERIC, "__lshift__": INTS, "__lt__": REAL_NUMERIC,
    "__mod__": REAL_NUMERIC, "__mul__": NUMERIC, "__ne__": ALL, "__neg__": NUMERIC,
    "__or__": BOOL + INTS, "__pos__": NUMERIC, "__pow__": NUMERIC, "__rshift__": INTS,
    "__sub__": NUMERIC, "__truediv__": FLOATING, "__xor__": BOOL + INTS,
}  # fmt: skip
REFLECTED = [
    n.replace("__", "__r", 1)
    for n in OPERATORS
    if n not in ("__abs__", "__eq__", "__ne__", "__ge__", "__gt__", "__le__", "__lt__", "__neg__", "__pos__", "__invert__")
]  # fmt: skip


@pytest.mark.parametrize("name", [*OPERATORS, *REFLECTED])
def test_operators(name):
    if not hasattr(gr.Tensor, name):
        pytest.skip(f"no {name}")
    kinds = OPERATORS.get(name) or OPERATORS["__" + name[3:]]
    for dtype in [d for d in kinds if d in HAVE]:
        x, y = numbers((2, 3), dtype, 1, 1, 4), numbers((3,), dtype, 2, 1, 4)
        scalar = {"b": True, "i": 2, "u": 2, "f": 1.5, "c": 1.5 + 2j}[np.dtype(dtype).kind]
        own, theirs = gr.asarray(x), strict.asarray(x)
        rtol = RTOL.get(dtype, 0)
        if name in ("__abs__", "__neg__", "__pos__", "__invert__"):
            same(getattr(own, name)(), getattr(theirs, name)(), rtol, name)
            continue
        same(
            getattr(own, name)(gr.asarray(y)), getattr(theirs, name)(strict.asarray(y)), rtol, name
        )
        same(getattr(own, name)(scalar), getattr(theirs, name)(scalar), rtol, f"{name} scalar")


def test_attributes():
    for shape in [(), (3,), (2, 3), (2, 0, 4)]:
        own, theirs = gr.ones(shape), strict.ones(shape, dtype=strict.float32)
        assert (own.shape, own.ndim, own.size) == (theirs.shape, theirs.ndim, theirs.size)
        assert own.dtype == gr.float32
        if len(shape) >= 2:
            same(own.mT, theirs.mT)
    same(gr.ones((2, 3)).T, strict.ones((2, 3), dtype=strict.float32).T)


def test_conversions_to_python():
    assert (float(gr.asarray(1.5)), int(gr.asarray(3)), bool(gr.asarray(True))) == (1.5, 3, True)
    assert [10, 20][gr.asarray(1)] == 20
    if hasattr(gr.Tensor, "__complex__"):
        assert complex(gr.asarray(1.5)) == 1.5
        assert complex(gr.asarray(1 + 2j)) == 1 + 2j
    for call in (
        lambda: int(gr.ones((2,))),
        lambda: float(gr.ones((2,))),
        lambda: bool(gr.ones((0,))),
    ):
        with pytest.raises(gr.ShapeError):
            call()
    with pytest.raises(TypeError):
        [1, 2][gr.asarray(1.0)]


def test_dlpack_both_ways():
    for dtype in HAVE:
        x = numbers((3, 4), dtype)
        same(gr.from_dlpack(x.copy()), x)
        np.testing.assert_array_equal(np.from_dlpack(gr.asarray(x)), x)
    assert gr.ones((1,)).__dlpack_device__() == (1, 0)
