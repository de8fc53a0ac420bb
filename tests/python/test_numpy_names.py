"""Functions by NumPy's names against NumPy: elementwise, parts, orders, grids, sets and segments."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
V, W = RNG.normal(size=9), RNG.normal(size=4)
I = RNG.integers(-20, 20, (3, 4))
EDGES = np.array([0.0, -0.0, 1.0, -1.5, 2.5, 1e-310, 1e300, np.inf, -np.inf, np.nan])
C = RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))
A, B = np.array([3, 1, 2, 3, 7]), np.array([[2, 9], [3, 2]])


def same(got, want, rtol=2e-14):
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, rtol)
        return
    want = np.asarray(want)
    got = got.numpy() if isinstance(got, gr.Tensor) else np.asarray(got)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-300 if rtol else 0)


# The call of each name in both libraries: positional arguments, then keywords.
CALLS = [
    *[(name, (EDGES,)) for name in ("cbrt", "isposinf", "isneginf", "modf", "frexp", "deg2rad")],
    *[(name, (EDGES,)) for name in ("rad2deg", "degrees", "radians")],
    *[("cbrt", (np.concatenate([-np.geomspace(1e-300, 1e300, 99), np.linspace(0, 30, 99)]),))],
    *[(n, np.meshgrid(EDGES, EDGES)) for n in ("fmax", "fmin", "heaviside", "logaddexp2")],
    ("isreal", (C * [1, 0, 0],)), ("iscomplex", (C * [1, 0, 0],)), ("isreal", (I,)),
    ("float_power", (np.abs(I), 0.5)), ("float_power", (I, 2)), ("float_power", (C, 2)),
    ("divmod", (I, 7)), ("divmod", (V, -0.75)), ("gcd", (I, 12)), ("lcm", (I, 12)),
    ("gcd", (I, I[::-1])), ("lcm", (I, np.zeros_like(I))), ("gcd", (np.uint8([200, 0]), np.uint8([150, 0]))),
    ("ldexp", (V, np.arange(9) * 8 - 30)), ("ldexp", (np.array([0.75, 2.0**-1074, 1e308, 1.0]), np.array([-1074, 2097, -2000, 5000]))),
    ("bitwise_count", (np.array([0, 1, -1, 127, -128], np.int8),)),
    ("bitwise_count", (np.array([0, -1, 2**63 - 1, -(2**63)]),)),
    ("bitwise_count", (np.array([0, 2**64 - 1], np.uint64),)),
    ("hsplit", (X, 2)), ("hsplit", (V, [2, 5])), ("vsplit", (X, 3)), ("dsplit", (X, [1, 3])),
    ("append", (X, V)), ("append", (I, I[:1]), {"axis": 0}),
    ("delete", (V, [1, -1])), ("delete", (X, 1), {"axis": 2}), ("delete", (X, slice(0, 3, 2)), {"axis": -1}),
    ("delete", (V, V > 0)), ("delete", (V, [])), ("delete", (X, np.array([[0, 1], [1, 0]])), {"axis": 1}),
    ("insert", (V, 3, 9.0)), ("insert", (V, [1, 1, -1], [7.0, 8.0, 9.0])), ("insert", (V, 1, [7.0, 8.0])),
    ("insert", (I, 1, 5), {"axis": 1}), ("insert", (I, 1, [1, 2, 3]), {"axis": 1}),
    ("insert", (I, [0, 4], [[1, 2], [3, 4], [5, 6]]), {"axis": 1}), ("insert", (V, V > 1, 0.0)),
    ("ptp", (X,)), ("ptp", (X,), {"axis": 1}), ("ptp", (I,), {"axis": (0, 1), "keepdims": True}),
    ("average", (X,)), ("average", (X,), {"axis": 1, "weights": W}), ("average", (X,), {"weights": X * X}),
    ("average", (X,), {"axis": 1, "weights": W, "returned": True}), ("average", (X,), {"returned": True}),
    ("lexsort", (np.array([[2, 1, 0, 1], [0, 0, 1, 0]]),)), ("lexsort", ((I[0], I[1] % 2),)),
    ("ediff1d", (X,)), ("ediff1d", (V,), {"to_begin": [1.0], "to_end": [2.0, 3.0]}),
    ("gradient", (V,)), ("gradient", (X,)), ("gradient", (X,), {"axis": 1}), ("gradient", (X,), {"axis": (0, 2)}),
    ("gradient", (V, 0.5)), ("gradient", (V, np.cumsum(np.abs(V) + 0.1))), ("gradient", (X, 0.5, 2.0, np.arange(5.0) ** 2)),
    ("gradient", (V,), {"edge_order": 2}), ("gradient", (V, np.cumsum(np.abs(V) + 0.1)), {"edge_order": 2}),
    ("unwrap", (np.cumsum(V) * 3,)), ("unwrap", (X * 9,), {"axis": 1}), ("unwrap", (I * 1.0,), {"period": 6}),
    ("unwrap", (V * 9,), {"discont": 5.0}),
    ("identity", (3,)), ("identity", (0,)), ("diag_indices", (3,)), ("diag_indices", (2, 3)),
    ("tril_indices", (3,)), ("tril_indices", (3, 1, 4)), ("triu_indices", (4, -1)), ("triu_indices", (0,)),
    ("ix_", ([0, 2], [1], [True, False, True])), ("ix_", ([],)),
    ("unravel_index", (np.array([[0, 59], [7, 33]]), (3, 4, 5))), ("unravel_index", (3, 7)), ("unravel_index", (0, ())),
    ("ravel_multi_index", ((np.array([0, 2]), np.array([3, 1])), (3, 4))),
    ("ravel_multi_index", ((np.array([-1, 5]), np.array([9, 1])), (3, 4)), {"mode": "wrap"}),
    ("ravel_multi_index", ((np.array([-1, 5]), np.array([9, 1])), (3, 4)), {"mode": "clip"}),
    *[("convolve", (a, b, m)) for a, b in ((V, W), (W, V), (V, W[:3]), (V, V)) for m in ("full", "same", "valid")],
    *[("correlate", (a, b, m)) for a, b in ((V, W), (W, V), (V, W[:3]), (C[0], C[1][:2]), (C[0][:2], C[1])) for m in ("full", "same", "valid")],
    ("convolve", (I[0], I[1])),
    ("matvec", (X, X[0, 0])), ("matvec", (X, X[:, 0])), ("vecmat", (C[0], C.T)), ("vecmat", (X[:, :, 0], X)),
    ("union1d", (A, B)), ("intersect1d", (A, B)), ("setdiff1d", (A, B)), ("setxor1d", (A, B)),
    ("intersect1d", (A, B), {"return_indices": True}), ("setdiff1d", (A, [3]), {"assume_unique": True}),
    ("union1d", (A, [])), ("setdiff1d", ([], A)), ("setxor1d", (A, [])), ("intersect1d", (V, V[:3])),
    ("trim_zeros", (np.array([0, 0, 1, 0, 2, 0]),)), ("trim_zeros", (np.array([0, 1, 0]), "f")),
    ("trim_zeros", (np.zeros(3),)), ("trim_zeros", (np.array([0.0, np.nan, 0.0]), "b")),
    ("block", ([[I, I], [I[:1], np.ones((1, 4), int)]],)), ("block", ([1, 2, 3],)), ("block", (X,)),
    ("fabs", (V,)), ("copy", (V,)), ("around", (V, 1)),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0])
def test_functions_give_what_numpy_gives(call):
    name, args, *options = call
    options = options[0] if options else {}
    with np.errstate(all="ignore"):
        want = getattr(np, name)(*args, **options)
    got = getattr(gr, name)(*args, **options)
    exact = ("frexp", "ldexp", "modf")
    rtol = (
        0
        if name in exact
        else 1e-12
        if name in ("convolve", "correlate", "unwrap", "gradient", "matvec", "vecmat", "average")
        else 5e-15
    )
    if (
        isinstance(want, np.ndarray)
        and want.dtype.kind == "f"
        and np.asarray(args[0]).dtype.kind in "iub"
    ):
        rtol = max(rtol, 1e-6)  # Integers give float32.
    same(got, want, rtol)


@pytest.mark.parametrize("name", ["logspace", "geomspace"])
def test_powers(name):
    for args in ((1, 3), (0.5, 2, 7), (2.0, 1.0, 4)):
        for endpoint in (True, False):
            want = getattr(np, name)(*args, endpoint=endpoint)
            got = getattr(gr, name)(*args, endpoint=endpoint, dtype="float64")
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)
            assert getattr(gr, name)(*args).dtype == gr.float32
    np.testing.assert_allclose(gr.logspace(0, 3, 4, base=2).numpy(), [1, 2, 4, 8], rtol=1e-6)
    np.testing.assert_allclose(gr.geomspace(-1, -8, 4).numpy(), [-1, -2, -4, -8], rtol=1e-6)
    with pytest.raises(gr.InvalidArgumentError, match="have one sign and are not 0, got -1 and 8"):
        gr.geomspace(-1, 8)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_partitions(axis):
    size = X.size if axis is None else X.shape[axis]
    for k in (0, size // 2, -1):
        got = gr.partition(X, k, axis).numpy()
        want = np.partition(X, k, axis)
        place = 0 if axis is None else axis
        np.testing.assert_array_equal(np.take(got, k, place), np.take(want, k, place))
        order = gr.argpartition(X, k, axis).numpy()
        along = X.reshape(-1) if axis is None else X
        np.testing.assert_array_equal(
            np.take_along_axis(along, order, 0 if axis is None else axis), got
        )
    with pytest.raises(gr.InvalidArgumentError, match=f"partition: kth {size} is not on axis"):
        gr.partition(X, size, axis)


def test_fromfunction_and_small_tensors():
    got = gr.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    np.testing.assert_array_equal(
        got.numpy(), np.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    )
    assert gr.chunk(gr.zeros(0), 2)[0].shape == (0,)
    assert gr.append([], []).shape == (0,)
    assert gr.diag_embed(gr.zeros(2, 0)).shape == (2, 0, 0)
    assert gr.segment_sum(gr.zeros(0, 2), gr.zeros(0, dtype="int64")).shape == (0, 2)
    assert gr.unique_consecutive([]).shape == (0,)
    assert gr.cartesian_prod([], [1.0]).shape == (0, 2)


def reference_segments(name, data, ids, count):
    start = {"sum": 0, "mean": 0, "prod": 1, "max": -np.inf, "min": np.inf}[name]
    out = np.full((count, *data.shape[1:]), start, data.dtype)
    step = {
        "sum": np.add,
        "mean": np.add,
        "prod": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }[name]
    for row, i in zip(data, ids, strict=True):
        if 0 <= i < count:
            out[i] = step(out[i], row)
    if name == "mean":
        rows = np.array([(ids == i).sum() for i in range(count)])
        with np.errstate(invalid="ignore"):
            out = out / rows.reshape(-1, *[1] * (data.ndim - 1))
    return out


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_segments(name):
    f = getattr(gr, f"segment_{name}")
    data, ids = RNG.normal(size=(9, 2)), np.array([0, 2, 0, 5, -1, 2, 1, 2, 9])
    same(f(data, ids, 4), reference_segments(name, data, ids, 4), 1e-14)
    inside = np.array([0, 2, 0, 3, 3, 2, 1, 2, 0])
    same(f(data, inside), reference_segments(name, data, inside, 4), 1e-14)
    same(
        gr.compile(lambda d, i: f(d, i, 5))(data, ids),
        reference_segments(name, data, ids, 5),
        1e-14,
    )
    slope = gr.grad(lambda d: (f(d, inside, 4) * W[:, None]).sum())(gr.asarray(data)).numpy()
    moved = np.zeros_like(data)
    for at in np.ndindex(*data.shape):
        step = np.zeros_like(data)
        step[at] = 1e-6
        value = lambda d: (reference_segments(name, d, inside, 4) * W[:, None]).sum()
        moved[at] = (value(data + step) - value(data - step)) / 2e-6
    np.testing.assert_allclose(slope, moved, rtol=1e-5, atol=1e-8)
    with pytest.raises(gr.ShapeError, match=f"segment_{name}: one segment for each row"):
        f(data, ids[:3])
    with pytest.raises(gr.InvalidArgumentError, match="num_segments is not negative, got -1"):
        f(data, ids, -1)


def test_segments_of_integers_start_at_the_ends_of_the_dtype():
    assert gr.segment_max(np.int32([5]), [1], 2).tolist() == [-(2**31), 5]
    assert gr.segment_min(np.uint8([5]), [1], 2).tolist() == [255, 5]


BAD = [
    (lambda: gr.hsplit(1.0, 2), gr.ShapeError, "hsplit: a tensor of rank 1 or more"),
    (lambda: gr.vsplit([1.0], 1), gr.ShapeError, "vsplit: a tensor of rank 2 or more"),
    (lambda: gr.chunk([1, 2], 0), gr.InvalidArgumentError, "chunk: the number of parts is positive, got 0"),
    (lambda: gr.narrow([1, 2], 0, 1, 5), gr.InvalidArgumentError, "narrow: 5 elements from 1 are not on axis 0 of size 2"),
    (lambda: gr.narrow([1, 2], 3, 0, 1), gr.AxisError, "narrow: axis 3 is out of range"),
    (lambda: gr.unflatten(gr.zeros(6), 0, (4, -1)), gr.ShapeError, "unflatten: .* does not fit axis 0"),
    (lambda: gr.block([[1], 2]), gr.ShapeError, "block: the lists have different depths"),
    (lambda: gr.delete([1, 2], 2), gr.IndexOutOfBoundsError, "delete: 2 is not on axis 0 of size 2"),
    (lambda: gr.insert([1, 2], 3, 0), gr.IndexOutOfBoundsError, "insert: 3 is not from 0 to 2"),
    (lambda: gr.average(X, weights=W), gr.ShapeError, "average: weights"),
    (lambda: gr.kthvalue([1, 2], 3), gr.InvalidArgumentError, "kthvalue: k is from 1 to 2, got 3"),
    (lambda: gr.mode(gr.zeros(0)), gr.ShapeError, "mode: axis 0"),
    (lambda: gr.gradient([1.0]), gr.ShapeError, "gradient: axis 0 needs 2 elements, got 1"),
    (lambda: gr.gradient(X, 1, 2), gr.InvalidArgumentError, "gradient: 2 distances for 3 axes"),
    (lambda: gr.ravel_multi_index(([5],), (3,)), gr.IndexOutOfBoundsError, "ravel_multi_index: an index is not from 0 to 2"),
    (lambda: gr.ravel_multi_index(([5],), (3, 4)), gr.InvalidArgumentError, "1 indices for 2 axes"),
    (lambda: gr.unravel_index(1.5, (3,)), gr.InvalidArgumentError, "unravel_index: integers are expected, got float32"),
    (lambda: gr.correlate(X, V), gr.ShapeError, "correlate: vectors with elements are expected"),
    (lambda: gr.correlate(V, W, "some"), gr.InvalidArgumentError, "correlate: mode is 'full'"),
    (lambda: gr.gcd(1.5, 2), gr.DTypeError, "gcd: integers are expected, got float32"),
    (lambda: gr.ldexp(1.0, 0.5), gr.DTypeError, "ldexp: the exponents are integers"),
    (lambda: gr.bitwise_count(1.5), gr.DTypeError, "bitwise_count: integers are expected"),
    (lambda: gr.view_as_complex([1.0]), gr.ShapeError, "view_as_complex: the last axis has size 2"),
    (lambda: gr.view_as_real([1.0]), gr.DTypeError, "view_as_real: complex numbers are expected"),
    (lambda: gr.cbrt([1j]), gr.DTypeError, "cbrt: real numbers are expected"),
    (lambda: gr.cdist(X, V), gr.ShapeError, "cdist: rows of one length"),
    (lambda: gr.trim_zeros(X), gr.ShapeError, "trim_zeros: a vector is expected"),
    (lambda: gr.addmm(1.0, X, X), gr.ShapeError, "addmm: a tensor of rank 2 is expected"),
    (lambda: gr.masked_fill([1], [1], 0), gr.DTypeError, "masked_fill: a mask is bool, got int64"),
    (lambda: gr.index_add([1], 0, [0.5], [1]), gr.DTypeError, "index_add: indices are integers, got float32"),
    (lambda: gr.index_copy([1], 0, [0], [0.5]), gr.DTypeError, "index_copy: values of float32 do not fit a tensor of int64"),
    (lambda: gr.scatter([[1]], 0, [0], 1), gr.ShapeError, "scatter: an index of rank 2 is expected"),
    (lambda: gr.scatter_reduce([1], 0, [0], [1], "max"), gr.InvalidArgumentError, "scatter_reduce: reduce is one of"),
    (lambda: gr.hsplit("x", 2), gr.GirihError, "cannot make a tensor of a str"),
    (lambda: gr.narrow([1, 2], 0, 1, "x"), gr.DTypeError, "narrow: length must be an int, got 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"), BAD, ids=lambda v: getattr(v, "__name__", str(v))[:40]
)
def test_bad_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


SLOPES = {
    "cbrt": [0.3, -2.0, 40.0], "log_cosh": [-30.0, -0.5, 0.0, 0.2, 3.0, 200.0], "frac": [0.5, -1.5],
    "deg2rad": [3.0], "logaddexp2": [1.0, -2.0], "lerp": [0.2, 0.8],
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives(name):
    more = {"logaddexp2": (0.5,), "lerp": (2.0, 0.3)}.get(name, ())
    f = lambda v: getattr(gr, name)(v, *more)
    for at in SLOPES[name]:
        h = 1e-4 * (abs(at) or 1)
        value = lambda v: f(gr.asarray(v, "float64")).item()
        want = (8 * (value(at + h) - value(at - h)) - (value(at + 2 * h) - value(at - 2 * h))) / (
            12 * h
        )
        got = gr.grad(f)(gr.asarray(at, "float64")).item()
        np.testing.assert_allclose(got, want, rtol=1e-7, atol=1e-9)


def test_log_cosh_and_logaddexp2_do_not_overflow():
    x = np.concatenate([-np.geomspace(1e-8, 700, 99), np.linspace(-3, 3, 99)])
    np.testing.assert_allclose(
        gr.log_cosh(x).numpy(),
        np.log(np.cosh(x.astype(np.longdouble))).astype(float),
        rtol=1e-13,
        atol=1e-17,
    )
    assert gr.log_cosh([np.inf, -np.inf, 1e30]).tolist() == [np.inf, np.inf, pytest.approx(1e30)]
    assert np.isnan(gr.log_cosh([np.nan]).item())
    assert gr.logaddexp2([2000.0, -np.inf], [2000.0, -np.inf]).tolist() == [2001.0, -np.inf]


BATCHED = {
    "segment_sum": lambda v: gr.segment_sum(v, [0, 1, 0, 2, 1], 3),
    "segment_max": lambda v: gr.segment_max(v, [0, 1, 0, 2, 1], 3),
    "scatter_add": lambda v: gr.scatter_add(gr.zeros(3, dtype="float64"), 0, [0, 2, 0, 1, 1], v),
    "index_add": lambda v: gr.index_add(v, 0, [1, 1], v[:2]),
    "masked_fill": lambda v: gr.masked_fill(v, v > 0, 0.0),
    "masked_scatter": lambda v: gr.masked_scatter(v, v > 0, v),
    "gradient": gr.gradient,
    "unwrap": gr.unwrap,
    "kthvalue": lambda v: gr.kthvalue(v, 2).values,
    "mode": lambda v: gr.mode(v).values,
    "convolve": lambda v: gr.convolve(v, v),
    "correlate": lambda v: gr.correlate(v, v, "full"),
    "diag_embed": gr.diag_embed,
    "average": lambda v: gr.average(v, weights=v * v),
    "cbrt": gr.cbrt,
    "frexp": lambda v: gr.frexp(v)[0],
    "gcd": lambda v: gr.gcd((10 * v).astype("int64"), 6),
    "lexsort": lambda v: gr.lexsort((v, v > 0)),
    "cdist": lambda v: gr.cdist(v[:, None], v[:, None]),
    "log_cosh": gr.log_cosh,
}


@pytest.mark.parametrize("name", BATCHED)
def test_batches_and_compiled_code(name):
    f = BATCHED[name]
    x = gr.asarray(X.reshape(12, 5))
    want = np.stack([f(row).numpy() for row in x])
    np.testing.assert_allclose(gr.vmap(f)(x).numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(gr.compile(f)(x[0]).numpy(), want[0], rtol=1e-12)
