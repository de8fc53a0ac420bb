"""Every dtype in every layer, with NumPy and array_api_strict as oracles: promotion, casts,
integers at the ends of their range, special values of complex numbers, shifts and the like.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import array_api_strict as strict
import girih as gr
import numpy as np
import pytest
from conftest import COMPLEX, DTYPES, FLOATS, INTS, close, sample

INF, NAN = math.inf, math.nan
STRICT = {name: getattr(strict, name) for name in DTYPES if name != "float16"}


# --- promotion ---


@pytest.mark.parametrize("a", STRICT)
@pytest.mark.parametrize("b", STRICT)
def test_promotion_agrees_with_the_array_api(a, b):
    x, y = gr.zeros([2], dtype=DTYPES[a]), gr.zeros([2], dtype=DTYPES[b])
    try:
        want = str(strict.result_type(STRICT[a], STRICT[b])).removeprefix("array_api_strict.")
    except TypeError:
        # Cases that the standard leaves open: mixed kinds, and uint64 with signed integers.
        if "uint64" in (a, b) and {a, b} & {"int8", "int16", "int32", "int64"}:
            with pytest.raises(gr.DTypeError, match="astype"):
                gr.where(gr.zeros([2], dtype="bool"), x, y)
            return
        ranks = {n: i for i, n in enumerate(DTYPES)}
        want = max(a, b, key=ranks.__getitem__)
    assert gr.where(gr.zeros([2], dtype="bool"), x, y).dtype.name == want
    assert gr.concat([x, y]).dtype.name == want


@pytest.mark.parametrize("op", ["add", "where", "concat", "matmul", "equal", "left shift"])
def test_uint64_and_signed_integers_do_not_meet(op):
    x, y = gr.ones([2, 2], dtype="uint64"), gr.ones([2, 2], dtype="int8")
    call = {
        "add": lambda: x + y,
        "where": lambda: gr.where(x == x, x, y),
        "concat": lambda: gr.concat([x, y]),
        "matmul": lambda: x @ y,
        "equal": lambda: x == y,
        "left shift": lambda: y << x,
    }[op]
    with pytest.raises(gr.DTypeError, match=r"uint64.*int8|int8.*uint64"):
        call()
    assert (x + y.astype("uint64")).dtype == gr.uint64


@pytest.mark.parametrize("dtype", DTYPES)
def test_complex_python_scalars_are_weak(dtype):
    x = gr.ones([2], dtype=DTYPES[dtype])
    want = "complex128" if dtype in ("float64", "complex128") else "complex64"
    for y in (x + 1j, 1j + x, x * (2 + 0j)):
        assert y.dtype.name == want
    close(x * (2 - 3j), np.full(2, 2 - 3j, want))
    close((2 - 3j) / x, np.full(2, 2 - 3j, want))


@pytest.mark.parametrize(
    ("dtype", "scalar", "ok"),
    [
        ("uint64", 2**64 - 1, True), ("uint64", 2**64, False), ("uint64", -1, False),
        ("int64", 2**63 - 1, True), ("int64", 2**63, False), ("uint32", 2**32 - 1, True),
        ("uint16", 65536, False), ("uint16", -1, False), ("uint8", 255, True),
    ],
)  # fmt: skip
def test_python_integers_must_fit(dtype, scalar, ok):
    x = gr.zeros([2], dtype=dtype)
    if ok:
        assert (x + scalar).tolist() == [scalar] * 2
        assert gr.full([2], scalar, dtype=dtype).tolist() == [scalar] * 2
        assert gr.asarray([scalar], dtype=dtype).tolist() == [scalar]
        assert x.dtype == (x + scalar).dtype
    else:
        for call in (lambda: x + scalar, lambda: gr.full([2], scalar, dtype=dtype),
                     lambda: gr.asarray([scalar], dtype=dtype)):  # fmt: skip
            with pytest.raises(gr.InvalidArgumentError, match=str(abs(scalar))):
                call()


def test_complex_numbers_do_not_convert_to_real_dtypes():
    with pytest.raises(gr.GirihError):
        gr.full([2], 1j, dtype="float32")
    with pytest.raises(gr.DTypeError, match="complex"):
        gr.asarray([1j], dtype="float32")
    x = gr.asarray([1j])
    for dtype in ("float32", "int32", "uint8", "float64"):
        with pytest.raises(gr.DTypeError, match="real"):
            x.astype(dtype)
    for convert in (float, int):
        with pytest.raises(TypeError):
            convert(x)


# --- casts ---


def extremes(dtype):
    """Values at the ends of a dtype's range and around 0."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        i = np.iinfo(dtype)
        return np.array(
            [i.min, i.min + 1, *([-1] if i.min else []), 0, 1, 2, 100, i.max - 1, i.max], dtype
        )
    x = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 100.0, 3e4, -3e4]
    if dtype in COMPLEX:
        return np.array([complex(a, b) for a, b in zip(x, x[::-1], strict=True)], dtype)
    return np.array(x, dtype)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts_are_numpys(source, target):
    x = extremes(source)
    t = gr.asarray(x)
    if source in COMPLEX and target not in (*COMPLEX, "bool"):
        with pytest.raises(gr.DTypeError, match="real"):
            t.astype(DTYPES[target])
        return
    if source in FLOATS and target in INTS:
        # Values out of range saturate in Girih; in NumPy they depend on the machine.
        i = np.iinfo(target)
        want = np.array([min(max(int(v), i.min), i.max) for v in x], target)
    else:
        with np.errstate(over="ignore"):
            want = x.astype(target)
    close(t.astype(DTYPES[target]), want)
    # Several casts in one kernel have the result of separate casts.
    if target not in COMPLEX:
        close(
            (t.astype(DTYPES[target]) * gr.asarray(1, dtype=target))
            if target != "bool"
            else t.astype("bool"),
            want,
        )


@pytest.mark.parametrize("target", INTS)
def test_floats_out_of_range_saturate(target):
    i = np.iinfo(target)
    x = gr.asarray(np.array([INF, -INF, NAN, 1e30, -1e30]))
    assert x.astype(target).tolist() == [i.max, i.min, 0, i.max, i.min]


# --- integers ---

INTEGER_OPS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "floor_divide": np.floor_divide, "remainder": np.remainder,
    "maximum": np.maximum, "minimum": np.minimum,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


def pairs(x):
    return tuple(np.array(v, x.dtype) for v in zip(*itertools.product(x, x), strict=True))


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", INTEGER_OPS)
def test_integers_wrap_at_their_edges(name, dtype):
    a, b = pairs(extremes(dtype))
    with np.errstate(all="ignore"):
        want = INTEGER_OPS[name](a, b)
    if name == "remainder" or name == "floor_divide":
        a, b, want = a[b != 0], b[b != 0], want[b != 0]
    close(getattr(gr, name)(gr.asarray(a), gr.asarray(b)), want)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_powers(dtype):
    a, b = pairs(extremes(dtype))
    few = (b >= 0) & (b <= 100)
    with np.errstate(all="ignore"):
        close(gr.asarray(a[few]) ** gr.asarray(b[few]), a[few] ** b[few])


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("name", ["abs", "negative", "sign", "square", "bitwise_not"])
def test_unary_integer_ops(name, dtype):
    x = extremes(dtype)
    f = {"bitwise_not": np.invert}.get(name) or getattr(np, name)
    close(getattr(gr, name)(gr.asarray(x)), f(x))


@pytest.mark.parametrize("dtype", INTS)
def test_shifts(dtype):
    bits = np.iinfo(dtype).bits
    a = np.repeat(extremes(dtype), bits + 2)
    b = np.array([*range(bits), bits, 120] * (a.size // (bits + 2)), dtype)
    ta, tb = gr.asarray(a), gr.asarray(b)
    close(gr.bitwise_left_shift(ta, tb), np.left_shift(a, b))
    close(gr.bitwise_right_shift(ta, tb), np.right_shift(a, b))
    close(ta << tb, np.left_shift(a, b))
    close(ta >> 1, a >> 1)
    close(1 << tb[:3], np.left_shift(np.array(1, dtype), b[:3]))
    close(1 >> tb[:3], np.right_shift(np.array(1, dtype), b[:3]))
    if dtype.startswith("int"):
        minus = gr.asarray(np.full(a.shape, -1, dtype))
        close(ta << minus, np.zeros_like(a))
        close(ta >> minus, np.where(a < 0, -1, 0).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_shifts_take_integers_only(dtype):
    x = gr.ones([2], dtype=dtype)
    with pytest.raises(gr.DTypeError, match="integer"):
        x << x
    with pytest.raises(gr.DTypeError, match="integer"):
        ~x  # noqa: B018


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 1000), (1000, 3), (40000,)])
def test_sums_and_products(shape, dtype):
    x = sample(shape, dtype, low=-1, high=2)
    t = gr.asarray(x)
    tolerance = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5}.get(dtype, 1e-10)
    wide = np.float64 if dtype in FLOATS else np.complex128 if dtype in COMPLEX else None
    kept = x.dtype if wide else None
    for axis in (None, *range(len(shape))):
        want = np.asarray(x.sum(axis, dtype=wide))
        close(t.sum(axis), want.astype(kept or want.dtype), tolerance, tolerance * 300)
    y = x[..., :5] if shape else x
    with np.errstate(all="ignore"):
        want = np.asarray(y.prod(dtype=wide))
        if abs(want) < 1e4:
            close(gr.asarray(y).prod(), want.astype(kept or want.dtype), tolerance, tolerance)


@pytest.mark.parametrize("dtype", INTS)
def test_extrema_of_integers(dtype):
    x = extremes(dtype)
    t = gr.asarray(x)
    i = np.iinfo(dtype)
    assert (t.max().item(), t.min().item()) == (i.max, i.min)
    assert (t.argmax().item(), t.argmin().item()) == (x.argmax(), x.argmin())
    close(t.clip(1, 100), np.clip(x, 1, 100).astype(dtype))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((70, 65), (65, 130)), ((2, 1, 3, 2), (5, 2, 3)),
                                    ((4,), (4,)), ((0, 3), (3, 2)), ((2, 0), (0, 3))])  # fmt: skip
def test_matrix_products(shapes, dtype):
    a, b = (sample(s, dtype, i, -2, 3) for i, s in enumerate(shapes))
    wide = {"f": np.float64, "c": np.complex128}.get(a.dtype.kind)
    want = np.asarray((a.astype(wide) @ b.astype(wide)).astype(dtype) if wide else a @ b)
    tolerance = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5}.get(dtype, 1e-12)
    close(gr.asarray(a) @ gr.asarray(b), want, tolerance, tolerance * 4)
    if len(shapes[0]) == 2:
        # The operands are views, and there is an epilogue.
        got = (gr.asarray(a.T).T @ gr.asarray(b[:, ::-1]) + 1) * 2
        close(got, ((want[:, ::-1] + a.dtype.type(1)) * a.dtype.type(2)), tolerance, tolerance * 8)


# --- complex numbers ---

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 30.0, INF, -INF, NAN]
COMPLEX_UNARY = [
    "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp2", "square", "reciprocal",
    "sign", "abs", "conj", "negative", "round",
]  # fmt: skip
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh"}  # fmt: skip


def grid(parts, dtype):
    re, im = (v.ravel() for v in np.meshgrid(parts, parts))
    z = np.empty(re.shape, dtype)
    z.real, z.imag = re, im
    return z


def close_parts(got, want, rtol, atol, where):
    """Compares real and imaginary parts, with NaN equal to NaN; infinities by their signs unless
    the other part is NaN.
    """
    got = got.numpy()
    assert got.dtype == want.dtype
    if not np.iscomplexobj(want):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=str(where))
        return
    for part, other in ((np.real, np.imag), (np.imag, np.real)):
        free = np.isinf(part(want)) & np.isnan(other(want))
        g, w = (np.where(free, np.abs(part(v)), part(v)) for v in (got, want))
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=str(where))


def reference(name, z):
    with np.errstate(all="ignore"):
        wide = z.astype(np.complex128)
        if name == "reciprocal":
            out = 1 / wide
        elif name == "expm1":
            # NumPy returns NaN for infinities, where the standard specifies values.
            out = np.where(np.isfinite(wide), np.expm1(wide), np.exp(wide) - 1)
        else:
            out = getattr(np, NUMPY.get(name, name))(wide)
        return out.astype(z.dtype if np.iscomplexobj(out) else z.real.dtype)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_complex_functions(name, dtype):
    parts = np.array([0.01, -0.02, 0.3, -0.7, 0.999, -1.001, 1.9, -2.4, 6.0, -11.0, 80.0])
    z = grid(parts, dtype)
    rtol = {"complex64": 1e-6, "complex128": 2e-14}[dtype]
    with np.errstate(all="ignore"):
        size = np.abs(reference(name, z)).astype(np.float64)
    got = getattr(gr, name)(gr.asarray(z)).numpy()
    want = reference(name, z)
    assert got.dtype == want.dtype
    # The error is relative to the absolute value of the number, not to its smaller part.
    finite = np.isfinite(size)
    error = np.abs(got[finite].astype(np.complex128) - want[finite].astype(np.complex128))
    assert np.all(error <= rtol * 3 * size[finite] + 1e-300), z[finite][error.argmax()]
    assert not np.isfinite(got[~finite]).any()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_special_values_of_complex_functions(name, dtype):
    z = grid(PARTS, dtype)
    rtol = {"complex64": 2e-6, "complex128": 4e-14}[dtype]
    got, want = getattr(gr, name)(gr.asarray(z)), reference(name, z)
    close_parts(got, want, rtol, rtol, z)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["sqrt", "log", "asin", "acos", "atan", "asinh", "acosh", "atanh"])
def test_branch_cuts_follow_the_sign_of_zero(name, dtype):
    z = np.array([complex(x, y) for x in (-3.0, -0.5, 0.5, 3.0) for y in (0.0, -0.0)]
                 + [complex(x, y) for y in (-3.0, 3.0) for x in (0.0, -0.0)], dtype)  # fmt: skip
    got, want = getattr(gr, name)(gr.asarray(z)), reference(name, z)
    close_parts(got, want, 1e-6, 1e-6, z)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "power", "equal", "not_equal"]
)
def test_complex_arithmetic(name, dtype):
    z = grid(np.array([0.3, -0.7, 1.0, -2.5, 6.0]), dtype)
    a, b = pairs(z)
    rtol = {"complex64": 3e-5 if name == "power" else 1e-6, "complex128": 1e-12}[dtype]
    got = getattr(gr, name)(gr.asarray(a), gr.asarray(b)).numpy()
    want = getattr(np, name)(a.astype(np.complex128), b.astype(np.complex128))
    if want.dtype.kind == "b":
        np.testing.assert_array_equal(got, want)
    else:
        assert got.dtype == dtype
        assert np.all(np.abs(got - want) <= rtol * np.abs(want) + 1e-300)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "equal", "not_equal"])
def test_special_values_of_complex_arithmetic(name):
    a, b = pairs(grid(PARTS, "complex128"))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a, b)
    np.testing.assert_array_equal(getattr(gr, name)(gr.asarray(a), gr.asarray(b)).numpy(), want)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_parts_of_complex_numbers(dtype):
    z = grid(PARTS, dtype)
    t = gr.asarray(z)
    close(t.real, z.real)
    close(t.imag, z.imag)
    close(gr.real(t), z.real)
    close(gr.imag(t), z.imag)
    close(gr.conj(t), z.conj())
    close(gr.angle(t), np.angle(z), 1e-6)
    close(gr.complex(t.real, t.imag), z)
    for name in ("isnan", "isinf", "isfinite"):
        close(getattr(gr, name)(t), getattr(np, name)(z))
    close(t.astype("bool"), z.astype(bool))
    close(gr.logical_not(t), np.logical_not(z))
    close(gr.where(gr.isnan(t), 0, t), np.where(np.isnan(z), 0, z))


@pytest.mark.parametrize("dtype", ["int32", "bool", "float16", "float64"])
def test_parts_of_real_numbers(dtype):
    x = extremes(dtype)
    t = gr.asarray(x)
    close(t.real, x)
    close(t.imag, np.zeros_like(x))
    close(t.conj(), x)
    assert gr.complex(t, t).dtype.name == ("complex128" if dtype == "float64" else "complex64")
    want = np.where(x.astype(np.float64) < 0, np.pi, 0)
    np.testing.assert_allclose(gr.angle(gr.asarray([1.0, -2.0, NAN, INF, -INF])).numpy(),
                               [0, np.pi, NAN, 0, np.pi], rtol=1e-6)  # fmt: skip
    nonzero = x != 0
    np.testing.assert_allclose(gr.angle(t).numpy()[nonzero], want[nonzero], rtol=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda z: z < z, lambda z: gr.maximum(z, z), lambda z: gr.topk(z, 1), lambda z: gr.cummax(z),
        lambda z: z // z, lambda z: z % 2, gr.floor, gr.erf, gr.relu,
        lambda z: gr.atan2(z, z), lambda z: z.clip(0, 1), lambda z: z & z, lambda z: ~z,
        lambda z: z.softmax(0), lambda z: gr.hypot(z, z), gr.signbit,
    ],
)  # fmt: skip
def test_complex_numbers_are_in_no_order(call):
    with pytest.raises(gr.DTypeError, match="complex64"):
        call(gr.asarray([1j, 2]))


def test_scalar_products_conjugate_the_first():
    a, b = sample((2, 3), "complex128", 1), sample((2, 3), "complex128", 2)
    close(gr.vecdot(gr.asarray(a), gr.asarray(b)), np.vecdot(a, b), 1e-14)
    close(gr.vdot(gr.asarray(a), gr.asarray(b)), np.asarray(np.vdot(a, b)), 1e-14)


def test_means_of_complex_numbers():
    z = sample((30, 4), "complex64")
    close(gr.asarray(z).mean(0), z.mean(0), 1e-6, 1e-6)
    assert gr.asarray(np.zeros(0, "complex64")).mean().isnan().item()


def test_a_chain_of_real_and_complex_ops_is_one_value():
    z = sample((64,), "complex64")
    t = gr.asarray(z)
    got = (gr.exp(t * 1j) * t.real + gr.abs(t)) / (1 + 2j)
    want = ((np.exp(z.astype("c16") * 1j) * z.real + np.abs(z)) / (1 + 2j)).astype("c8")
    close(got, want, 1e-5, 1e-5)
    for y in (t * 1, t + 0, t - 0, t / 1, t * -1, t**1, t**2, t**0, t * 0, -t):
        assert y.dtype == gr.complex64
    np.testing.assert_array_equal((t * 0).numpy(), z * 0)


def test_identities_of_reals_are_not_applied_to_infinities():
    z = np.array([complex(INF, 1), complex(-0.0, -0.0), complex(1, -INF)])
    t = gr.asarray(z)
    with np.errstate(all="ignore"):
        for got, want in [(t * 1, z * (1 + 0j)), (t + 0, z + 0), (t - t, z - z), (t * 0, z * 0j)]:
            np.testing.assert_array_equal(got.numpy(), want)
            np.testing.assert_array_equal(np.signbit(got.numpy().real), np.signbit(want.real))


# --- the other elementwise functions ---

SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -4.0, 1e-40, INF, -INF, NAN]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["hypot", "copysign", "nextafter", "logaddexp"])
def test_binary_functions_of_floats(name, dtype):
    a, b = pairs(np.array(SPECIAL, dtype))
    with np.errstate(all="ignore"):
        want = getattr(np, name)(a, b)
    got = getattr(gr, name)(gr.asarray(a), gr.asarray(b))
    close(got, want, {"float16": 2e-3, "float32": 1e-6, "float64": 1e-15}[dtype])
    if name in ("copysign", "nextafter"):
        # From one zero to the other, NumPy's float16 does not change, but its other floats do.
        moved = a != b
        np.testing.assert_array_equal(np.signbit(got.numpy())[moved], np.signbit(want)[moved])


def test_nextafter_walks_through_every_value():
    for dtype, bits in [("float16", np.uint16), ("float32", np.uint32), ("float64", np.uint64)]:
        x = np.array([0, 1, 2, 1000, 0x3BFF], bits).view(dtype)
        up = gr.nextafter(gr.asarray(x), gr.asarray(np.array(INF, dtype)))
        close(up, np.nextafter(x, np.array(INF, dtype)))
        down = gr.nextafter(gr.asarray(x), gr.asarray(np.array(-INF, dtype)))
        close(down, np.nextafter(x, np.array(-INF, dtype)))
    one = gr.ones([1], dtype="bfloat16")
    assert gr.nextafter(one, one * 2).astype("float32").item() == 1.0078125


def test_large_and_small_hypotenuses():
    a, b = np.array([1e200, 1e-200, 3.0]), np.array([1e200, 1e-200, 4.0])
    close(gr.hypot(gr.asarray(a), gr.asarray(b)), np.hypot(a, b), 1e-15)
    assert gr.abs(gr.asarray(np.array([1e200 + 1e200j]))).item() == np.abs(1e200 + 1e200j)
    z = np.array([3e38 + 1e38j], "c8")
    close(gr.abs(gr.asarray(z)), np.abs(z), 1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sign_bits(dtype):
    x = np.array([*SPECIAL, -NAN], dtype)
    close(gr.signbit(gr.asarray(x)), np.signbit(x))


# --- host values ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_values_round_trip(dtype):
    x = extremes(dtype)
    t = gr.asarray(x)
    assert t.dtype.name == dtype
    assert t.dtype.itemsize == x.itemsize
    assert str(t.tolist()) == str(x.tolist())
    assert str(t[1].item()) == str(x[1].item())
    assert type(t[1].item()) is type(x[1].item())
    for again in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t), gr.from_dlpack(t),
                  gr.asarray(t.tolist(), dtype=DTYPES[dtype])):  # fmt: skip
        assert again.dtype == t.dtype
        np.testing.assert_array_equal(again.numpy(), x)
    swapped = gr.asarray(x.astype(x.dtype.newbyteorder(">")))
    np.testing.assert_array_equal(swapped.numpy(), x)
    np.testing.assert_array_equal(np.from_dlpack(t), x)
    if dtype not in COMPLEX:
        np.testing.assert_array_equal(gr.asarray(memoryview(x)).numpy(), x)


def test_python_complex_numbers_convert():
    t = gr.asarray(1 - 2j)
    assert t.dtype == gr.complex64
    assert complex(t) == 1 - 2j
    assert t.item() == 1 - 2j
    assert complex(gr.asarray(2.5)) == 2.5
    assert gr.asarray([1, 2.5, 3j]).tolist() == [1, 2.5, 3j]
    assert gr.asarray([[True], [1j]]).tolist() == [[1], [1j]]
    assert gr.asarray(1, dtype=complex).dtype == gr.complex64
    assert gr.full([2], 1j).tolist() == [1j, 1j]
    assert gr.zeros([2], dtype="c128").dtype == gr.complex128
    assert gr.pad(gr.asarray([1j]), 1, 2 - 1j).tolist() == [2 - 1j, 1j, 2 - 1j]
    assert gr.arange(3, dtype="complex64").tolist() == [0, 1, 2]
    assert gr.eye(2, dtype="complex64").tolist() == [[1, 0], [0, 1]]
    assert bool(gr.asarray(1j))
    assert not bool(gr.asarray(0j))


def test_printing():
    assert str(gr.asarray([1 + 2j, -1.5 - 0.25j])) == "[ 1. +2.j   -1.5-0.25j]"
    assert str(gr.asarray(complex(NAN, -INF))) == "(nan-infj)"
    assert str(gr.asarray([2**64 - 1], dtype="uint64")) == "[18446744073709551615]"


def test_ranges_of_unsigned_integers():
    top = 2**64
    assert gr.arange(top - 3, top - 1, dtype="uint64").tolist() == [top - 3, top - 2]
    assert gr.arange(5, 0, -2, dtype="uint64").tolist() == [5, 3, 1]
    assert gr.arange(250, 256, dtype="uint8").tolist() == list(range(250, 256))
    with pytest.raises(gr.InvalidArgumentError):
        gr.arange(0, 300, dtype="uint8")


def test_names_and_python_types():
    for name in DTYPES:
        assert getattr(gr, "bool_" if name == "bool" else name) == gr.DType(name)
    assert gr.DType("u16") == gr.uint16
    assert gr.DType("c64") == gr.complex64
    assert gr.zeros([1], dtype=np.complex128).dtype == gr.complex128
    assert gr.zeros([1], dtype=np.dtype("uint32")).dtype == gr.uint32


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_and_indexing_move_every_size(dtype):
    x = sample((6, 8), dtype)
    t = gr.asarray(x)
    for got, want in [(t.T, x.T), (t[::-1, ::3], x[::-1, ::3]), (t.take(gr.asarray([5, 0, -1]), 0), x[[5, 0, -1]]),
                      (gr.concat([t, t], 1), np.concatenate([x, x], 1)), (gr.pad(t, 1), np.pad(x, 1)),
                      (gr.where(t == t, t, t), x), (t[2:3].broadcast_to(4, 8), np.broadcast_to(x[2], (4, 8)))]:  # fmt: skip
        close(got, want)


# --- gradients ---

HOLOMORPHIC = {
    "exp": lambda z: z.exp(), "expm1": gr.expm1, "log": gr.log, "log1p": gr.log1p, "sqrt": gr.sqrt,
    "rsqrt": gr.rsqrt, "sin": gr.sin, "cos": gr.cos, "tan": gr.tan, "asin": gr.asin, "acos": gr.acos,
    "atan": gr.atan, "sinh": gr.sinh, "cosh": gr.cosh, "tanh": gr.tanh, "asinh": gr.asinh,
    "acosh": gr.acosh, "atanh": gr.atanh, "square": gr.square, "reciprocal": gr.reciprocal,
    "cube": lambda z: z**3, "power": lambda z: z ** (0.3 - 0.5j), "exponent": lambda z: (1 + 2j) ** z,
    "log2": gr.log2, "log10": gr.log10, "exp2": gr.exp2, "negative": lambda z: -z,
    "sum": lambda z: z.sum() * z, "prod": lambda z: z.prod(), "mean": lambda z: z.mean() * z,
    "matmul": lambda z: z.reshape(1, 3) @ z.reshape(3, 1), "divide": lambda z: (1 - 2j) / z,
}  # fmt: skip
OTHERS = {
    "abs": gr.abs, "real": gr.real, "imag": gr.imag, "conj": gr.conj, "angle": gr.angle,
    "sign": gr.sign, "norm": lambda z: gr.abs(z) ** 2, "complex": lambda z: gr.complex(z.imag, z.real * 2),
    "cast": lambda z: z.real.astype("complex128") * z, "where": lambda z: gr.where(z.real > 0, z, z * z),
}  # fmt: skip


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *OTHERS])
def test_gradients_of_complex_functions(name):
    """`df/dx - i df/dy` of a real function of the op, by finite differences."""
    f = {**HOLOMORPHIC, **OTHERS}[name]
    z = np.array([0.4 + 0.3j, -0.6 + 0.8j, 0.7 - 0.5j])
    weights = gr.asarray(np.array([1.3 - 0.7j, 0.2 + 1.1j, -0.9 + 0.4j]))

    def loss(t):
        out = f(t)
        return (out * weights).real.sum()

    got = gr.grad(loss)(gr.asarray(z)).numpy()
    assert got.dtype == np.complex128
    eps = 1e-6
    want = np.zeros_like(z)
    for i in range(z.size):
        for direction in (1, 1j):
            step = np.zeros_like(z)
            step[i] = eps * direction
            slope = loss(gr.asarray(z + step)).item() - loss(gr.asarray(z - step)).item()
            want[i] += slope / (2 * eps) * np.conj(direction)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["hypot", "copysign", "logaddexp"])
def test_gradients_of_real_functions_through_complex_numbers(name):
    f = getattr(gr, name)
    x = np.array([0.4, -1.2, 2.0])

    def loss(t):
        return (f(t, t * 0.5 + 1) * gr.exp(t * 1j).imag).sum()

    got = gr.grad(loss)(gr.asarray(x)).numpy()
    want = np.zeros_like(x)
    for i in range(x.size):
        step = np.zeros_like(x)
        step[i] = 1e-6
        want[i] = (loss(gr.asarray(x + step)).item() - loss(gr.asarray(x - step)).item()) / 2e-6
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_a_complex_output_has_no_gradient():
    with pytest.raises(gr.DTypeError, match="complex64"):
        gr.grad(lambda z: (z * z).sum())(gr.asarray([1j, 2]))
