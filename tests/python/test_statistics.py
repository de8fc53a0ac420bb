"""Approximate comparisons, medians and quantiles, functions that ignore NaN, covariances,
interpolation, two-dimensional histograms and windows, against NumPy and SciPy.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS, INTS, sample
from scipy import signal

# NumPy warns about slices without numbers and about infinities.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RTOL = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}
SHAPES = [((), None), ((7,), None), ((7,), 0), ((4, 5), 0), ((4, 5), -1), ((3, 4, 5), (0, 2)),
          ((3, 4, 5), None), ((3, 4, 5), 1), ((1, 6), 0)]  # fmt: skip
BEYOND = np.array([1.0, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, 3.0])


def numbers(shape, dtype, nan=0.0, seed=0):
    x = sample(shape, dtype, seed=seed)
    if nan and dtype in FLOATS:
        x = np.where(np.random.default_rng(seed + 1).random(shape) < nan, np.nan, x).astype(dtype)
    return x


def close(got, want, rtol, dtype=None):
    got = np.asarray(got.numpy() if isinstance(got, gr.Tensor) else got)
    want = np.asarray(want)
    assert got.shape == want.shape
    if dtype is not None:
        assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def floating(dtype):
    return dtype if dtype in FLOATS else "float32"


# Tolerances.


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, "bool", "complex64", "complex128"])
def test_isclose(dtype):
    a = sample((50,), dtype)
    b = a.copy()
    if dtype not in ("bool", *INTS):
        b = (a * (1 + np.linspace(0, 2e-5, 50))).astype(dtype)
    elif dtype != "bool":
        b[::3] += 1
    assert gr.isclose(a, b).dtype == gr.bool_
    wide = np.complex128 if dtype.startswith("complex") else np.float64
    np.testing.assert_array_equal(
        gr.isclose(a, b).numpy(), np.isclose(a.astype(wide), b.astype(wide))
    )
    got = gr.isclose(a, b, rtol=0.5, atol=0.1).numpy()
    np.testing.assert_array_equal(got, np.isclose(a.astype(wide), b.astype(wide), 0.5, 0.1))
    assert gr.allclose(a, a).item() is True
    assert gr.asarray(a).allclose(a).item() is True


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_isclose_beyond_numbers(dtype, equal_nan):
    a, b = np.meshgrid(BEYOND.astype(dtype), BEYOND.astype(dtype))
    got = gr.isclose(a, b, equal_nan=equal_nan).numpy()
    np.testing.assert_array_equal(got, np.isclose(a, b, equal_nan=equal_nan))
    got = gr.allclose(BEYOND, BEYOND, equal_nan=equal_nan).item()
    assert got == np.allclose(BEYOND, BEYOND, equal_nan=equal_nan)


def test_comparisons_broadcast_and_are_lazy():
    assert gr.isclose(gr.zeros([3, 1]), gr.zeros([4])).shape == (3, 4)
    assert gr.isclose(gr.asarray(1.0), 1.0 + 1e-7).item()
    assert not gr.isclose(1, 2).item()
    close = gr.compile(lambda x: gr.allclose(x, 1.0))
    assert close(gr.ones(3)).item()
    assert not close(gr.zeros(3)).item()
    assert gr.allclose(gr.zeros(0), gr.zeros(0)).item()
    with pytest.raises(gr.ShapeError):
        gr.allclose(gr.zeros(3), gr.zeros(4))


def test_array_equal():
    nan = np.array([1.0, np.nan])
    for a, b in [([1, 2], [1, 2]), ([1, 2], [1, 3]), ([1, 2], [[1, 2]]), ([], []), (nan, nan),
                 ([True], [1]), ([1.0], [1]), (3, 3)]:  # fmt: skip
        assert gr.array_equal(a, b).item() == np.array_equal(a, b)
        want = np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True)
        assert gr.array_equal(a, b, equal_nan=True).item() == want


# Medians and quantiles.


@pytest.mark.parametrize("nan", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "bool"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_medians(shape, axis, dtype, nan):
    x = numbers(shape, dtype, nan)
    wide, result = x.astype(np.float64), floating(dtype)
    for keep in (False, True):
        for name in ("median", "nanmedian"):
            want = getattr(np, name)(wide, axis=axis, keepdims=keep)
            got = getattr(gr, name)(gr.asarray(x), axis, keepdims=keep)
            close(got, want, RTOL[result], result)
    close(gr.asarray(x).median(), np.median(wide), RTOL[result])


@pytest.mark.parametrize("size", [33, 1000, 40_000, 300_001])
@pytest.mark.parametrize("kind", ["normal", "ties", "nan", "int32", "same"])
def test_selected_elements_are_those_of_a_sort(kind, size):
    rng = np.random.default_rng(size)
    x = {
        "normal": lambda: rng.normal(size=size).astype(np.float32),
        "ties": lambda: rng.integers(-3, 3, size).astype(np.float64),
        "nan": lambda: np.where(rng.random(size) < 0.1, np.nan, rng.normal(size=size)),
        "int32": lambda: rng.integers(-(2**31), 2**31, size).astype(np.int32),
        "same": lambda: np.full(size, 7.0, np.float32),
    }[kind]()
    order = np.argsort(x, kind="stable")
    for k in (1, size // 3, size // 2 + 1, size):
        value, index = gr.kthvalue(x, k)
        np.testing.assert_array_equal(value, x[order[k - 1]])
        assert index.item() == order[k - 1]
    wide = x.astype(np.float64)
    close(gr.median(x), np.median(wide), 1e-6)
    close(gr.nanmedian(x), np.nanmedian(wide), 1e-6)
    close(gr.quantile(x, [0.1, 0.9]), np.quantile(wide, [0.1, 0.9]), 1e-6)
    rows = np.stack([x, x[::-1], np.roll(x, 5)])
    for k in (1, size // 2):
        value, index = gr.kthvalue(rows, k, keepdims=True)
        want = np.argsort(rows, axis=1, kind="stable")[:, k - 1 : k]
        np.testing.assert_array_equal(index, want)
        np.testing.assert_array_equal(value, np.take_along_axis(rows, want, 1))
    value, index = gr.kthvalue(rows.T, 2, axis=0)
    np.testing.assert_array_equal(index, np.argsort(rows.T, axis=0, kind="stable")[1])


def test_gradients_of_selected_elements():
    x = np.array([[3.0, 1.0, 2.0], [5.0, 5.0, 4.0]])
    slope = gr.grad(lambda x: (gr.kthvalue(x, 2).values * gr.asarray([2.0, 3.0])).sum())
    np.testing.assert_array_equal(slope(gr.asarray(x)), [[0, 0, 2], [3, 0, 0]])
    np.testing.assert_array_equal(gr.vmap(gr.median)(gr.asarray(x)), [2, 5])
    each = gr.vmap(lambda row: gr.kthvalue(row, 1).indices)(gr.asarray(x))
    np.testing.assert_array_equal(each, [1, 2])


METHODS = ["linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull",
           "median_unbiased", "normal_unbiased", "interpolated_inverted_cdf",
           "inverted_cdf", "averaged_inverted_cdf", "closest_observation"]  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nan", [0.0, 0.2])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_quantiles(shape, axis, nan, method):
    x = numbers(shape, "float64", nan)
    for q in (0.3, [0.0, 0.25, 0.5, 0.9, 1.0]):
        kwargs = {"axis": axis, "method": method}
        for name in ("quantile", "nanquantile"):
            want = getattr(np, name)(x, q, **kwargs)
            close(getattr(gr, name)(x, q, **kwargs), want, 1e-12, np.float64)
        percent = np.asarray(q) * 100
        want = np.percentile(x, percent, keepdims=True, **kwargs)
        close(gr.percentile(x, percent.tolist(), keepdims=True, **kwargs), want, 1e-12)
        want = np.nanpercentile(x, percent, **kwargs)
        close(gr.nanpercentile(x, percent.tolist(), **kwargs), want, 1e-12)


@pytest.mark.parametrize("method", METHODS[-3:])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_quantiles_where_the_fraction_is_met_exactly(n, method):
    x, q = np.arange(n) ** 2.0, np.arange(0, 4 * n + 1) / (4 * n)
    np.testing.assert_array_equal(
        gr.quantile(x, q, method=method).numpy(), np.quantile(x, q, method=method)
    )


@pytest.mark.parametrize("dtype", [*FLOATS, "int16"])
def test_quantiles_of_dtypes_and_infinities(dtype):
    x = numbers((31,), dtype)
    result = floating(dtype)
    close(gr.quantile(x, 0.4), np.quantile(x.astype(np.float64), 0.4), RTOL[result], result)
    # Between a number and an infinity, the quantile is the infinity; NumPy returns NaN in some
    # cases.
    got = gr.quantile([-np.inf, 1.0, np.inf, np.inf], [0.0, 0.1, 1 / 3, 0.4, 0.9, 1.0])
    assert got.tolist() == [-np.inf, -np.inf, 1, np.inf, np.inf, np.inf]
    assert np.isnan(gr.median([-np.inf, np.inf]).item())
    assert np.isnan(gr.median(gr.zeros(0)).item())
    assert gr.quantile(gr.zeros([0, 3]), [0.1, 0.5], axis=0).shape == (2, 3)
    assert gr.median(gr.zeros([3, 0]), axis=0).shape == (0,)
    # The values of a tensor q are not checked.
    assert np.isnan(gr.quantile(gr.arange(3), gr.asarray(1.5)).item())


def test_quantiles_in_programs_and_gradients():
    x = np.array([3.0, 1.0, 2.0, 7.0])
    grad = gr.grad(lambda x: gr.median(x))(gr.asarray(x)).numpy()
    np.testing.assert_array_equal(grad, [0.5, 0, 0.5, 0])
    grad = gr.grad(lambda x: gr.quantile(x, 0.1))(gr.asarray(x)).numpy()
    np.testing.assert_allclose(grad, [0, 0.7, 0.3, 0], rtol=1e-12)
    f = gr.compile(lambda x, q: gr.quantile(x, q))
    assert f(gr.asarray(x), gr.asarray(0.5)).item() == 2.5


def test_refusals_of_quantiles():
    x = gr.zeros(3)
    for q in (-0.1, 1.1, [0.5, 2.0], float("nan")):
        with pytest.raises(gr.InvalidArgumentError, match="q is from 0 to 1"):
            gr.quantile(x, q)
    with pytest.raises(gr.InvalidArgumentError, match="q is from 0 to 100"):
        gr.percentile(x, 101)
    with pytest.raises(gr.InvalidArgumentError, match="method"):
        gr.quantile(x, 0.5, method="best")
    with pytest.raises(gr.ShapeError, match="one axis"):
        gr.quantile(x, [[0.5]])
    with pytest.raises(gr.DTypeError, match="order"):
        gr.quantile(gr.asarray([1j]), 0.25)
    with pytest.raises(gr.AxisError):
        gr.median(x, axis=1)


# Without NaN.


@pytest.mark.parametrize("dtype", [*FLOATS, "int16", "bool"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("nan", [0.0, 0.3, 1.0])
def test_reductions_without_nan(shape, axis, dtype, nan):
    x = numbers(shape, dtype, nan)
    wide = x.astype(np.float64)
    for name in ("nansum", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd", "nanprod"):
        want = getattr(np, name)(wide, axis=axis)
        if dtype in FLOATS:
            want = want.astype(dtype).astype(np.float64)
        got = getattr(gr, name)(gr.asarray(x), axis)
        rtol = RTOL[floating(dtype)] * 20
        close(got.astype(gr.float64), want, rtol)
        if dtype in FLOATS:
            assert got.dtype.name == dtype
        assert getattr(gr, name)(gr.asarray(x), axis, keepdims=True).ndim == len(shape)
    assert gr.nanvar(x, axis, correction=1).shape == np.nanvar(wide, axis=axis, ddof=1).shape
    close(gr.nanvar(x, axis, correction=1).astype(gr.float64), np.nanvar(wide, axis=axis, ddof=1),
          RTOL[floating(dtype)] * 20)  # fmt: skip


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_positions_without_nan(axis):
    x = numbers((6, 7), "float32", 0.4)
    x[:, 0] = np.arange(6)
    x[0, :] = np.arange(7)
    for name in ("nanargmax", "nanargmin"):
        np.testing.assert_array_equal(getattr(gr, name)(x, axis), getattr(np, name)(x, axis=axis))
    assert gr.nanargmax([np.nan, -np.inf, np.nan]).item() == 1
    assert gr.nanargmin([np.nan, np.inf, np.nan]).item() == 1
    assert gr.nanargmax([[np.nan, np.nan], [np.nan, 1.0]], axis=1).tolist() == [-1, 1]
    assert gr.nanargmin([3, 1, 2]).item() == 1


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_running_without_nan(axis, dtype):
    x = numbers((3, 5), dtype, 0.3)
    for name in ("nancumsum", "nancumprod"):
        want = getattr(np, name)(x.astype(np.float64), axis=axis)
        close(getattr(gr, name)(x, axis).astype(gr.float64), want, RTOL[floating(dtype)] * 10)


@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "int32"])
def test_nan_to_num(dtype):
    x = BEYOND.astype(dtype) if dtype != "int32" else np.arange(3, dtype=dtype)
    np.testing.assert_array_equal(gr.nan_to_num(x).numpy(), np.nan_to_num(x))
    got = gr.nan_to_num(x, nan=5.0, posinf=7.0, neginf=-9.0)
    np.testing.assert_array_equal(got.numpy(), np.nan_to_num(x, nan=5.0, posinf=7.0, neginf=-9.0))
    assert got.numpy().dtype == dtype


# Covariances.


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int32"])
def test_covariances(dtype):
    x, y = sample((3, 9), dtype), sample((2, 9), dtype, seed=4)
    rtol = 1e-5 if dtype in ("float32", "int32") else 1e-12
    f, a = np.arange(9) % 3 + 1, np.linspace(0.5, 2, 9)
    for kwargs in ({}, {"bias": True}, {"ddof": 0}, {"ddof": 2}, {"fweights": f}, {"aweights": a},
                   {"fweights": f, "aweights": a, "ddof": 0}):  # fmt: skip
        close(gr.cov(x, **kwargs), np.cov(x, **kwargs), rtol)
        close(gr.cov(x, y, **kwargs), np.cov(x, y, **kwargs), rtol)
        close(gr.cov(x.T, rowvar=False, **kwargs), np.cov(x.T, rowvar=False, **kwargs), rtol)
        close(gr.cov(x[0], **kwargs), np.cov(x[0], **kwargs), rtol)
    close(gr.corrcoef(x), np.corrcoef(x), rtol)
    close(gr.corrcoef(x, y), np.corrcoef(x, y), rtol)
    close(gr.corrcoef(x.T, rowvar=False), np.corrcoef(x.T, rowvar=False), rtol)
    close(gr.corrcoef(x[0], x[1]), np.corrcoef(x[0], x[1]), rtol)
    close(gr.corrcoef(x[0]), np.corrcoef(x[0]), rtol)


def test_refusals_of_covariances():
    with pytest.raises(gr.ShapeError, match="two axes"):
        gr.cov(gr.zeros([2, 2, 2]))
    with pytest.raises(gr.ShapeError, match="weight"):
        gr.cov(gr.zeros([2, 3]), fweights=[1, 2])


# Samples.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_interp(dtype):
    xp = np.array([0.0, 1.0, 2.5, 2.5, 4.0], dtype)
    fp = np.array([1.0, -1.0, 3.0, 5.0, 0.5], dtype)
    x = np.linspace(-1, 5, 49).reshape(7, 7).astype(dtype)
    rtol = 1e-5 if dtype == "float32" else 1e-13
    close(gr.interp(x, xp, fp), np.interp(x, xp, fp), rtol, dtype)
    close(gr.interp(x, xp, fp, left=-9, right=np.nan), np.interp(x, xp, fp, -9, np.nan), rtol)
    turned = ([3.0, 1.0, 9.0], [5.0, 6.0, 7.0])
    close(gr.interp(x, *turned, period=4.0), np.interp(x, *turned, period=4.0), rtol)
    close(gr.interp(x, [2.0], [7.0]), np.full_like(x, 7), rtol)
    close(gr.interp(BEYOND, xp, fp), np.interp(BEYOND, xp, fp), 1e-6)
    assert gr.interp(gr.zeros([0, 2]), xp, fp).shape == (0, 2)
    assert gr.interp(1.0, xp, fp).shape == ()
    slope = gr.grad(lambda x: gr.interp(x, xp, fp))(gr.asarray(0.25, dtype=dtype))
    assert slope.item() == -2
    weights = gr.grad(lambda f: gr.interp(0.25, xp, f))(gr.asarray(fp)).tolist()
    assert weights == [0.75, 0.25, 0, 0, 0]
    with pytest.raises(gr.ShapeError, match="as many"):
        gr.interp(x, xp, fp[:-1])
    with pytest.raises(gr.InvalidArgumentError, match="period"):
        gr.interp(x, xp, fp, period=0)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("right", [False, True])
def test_digitize(right, dtype):
    x = sample((5, 6), dtype)
    for bins in ([-2, 0, 0, 1, 3], [3, 1, 0, -2], [0], []):
        bins = np.asarray(bins, dtype)
        np.testing.assert_array_equal(gr.digitize(x, bins, right), np.digitize(x, bins, right))
    with pytest.raises(gr.ShapeError):
        gr.digitize(x, [[0.0]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid(axis):
    y = sample((4, 5, 3), "float64")
    x = np.cumsum(np.abs(sample((y.shape[axis],), "float64", seed=2)))
    full = np.cumsum(np.abs(sample(y.shape, "float64", seed=3)), axis=axis)
    close(gr.trapezoid(y, axis=axis), np.trapezoid(y, axis=axis), 1e-12)
    close(gr.trapezoid(y, dx=0.5, axis=axis), np.trapezoid(y, dx=0.5, axis=axis), 1e-12)
    close(gr.trapezoid(y, x, axis=axis), np.trapezoid(y, x, axis=axis), 1e-12)
    close(gr.trapezoid(y, full, axis=axis), np.trapezoid(y, full, axis=axis), 1e-12)
    assert gr.trapezoid([1, 2, 3]).dtype == gr.float32
    assert gr.trapezoid(gr.zeros([2, 1])).tolist() == [0, 0]
    with pytest.raises(gr.ShapeError, match="coordinate"):
        gr.trapezoid(y, [0.0, 1.0], axis=axis)


def test_polynomials():
    x, p = sample((3, 4), "float64"), [2.0, -1.0, 0.5, 3.0]
    close(gr.polyval(p, x), np.polyval(p, x), 1e-12)
    assert gr.polyval([1, 2, 3], 5).item() == 38
    assert gr.polyval(gr.zeros(0), x).shape == x.shape
    close(
        gr.grad(lambda x: gr.polyval(p, x).sum())(gr.asarray(x)),
        np.polyval(np.polyder(p), x),
        1e-12,
    )
    points = np.linspace(-2, 3, 20)
    values = np.polyval(p, points) + 0.1 * sample((20,), "float64", seed=1)
    for w in (None, np.linspace(0.1, 2, 20)):
        close(gr.polyfit(points, values, 3, w=w), np.polyfit(points, values, 3, w=w), 1e-9)
        both = np.stack([values, 2 * points], axis=1)
        close(gr.polyfit(points, both, 2, w=w), np.polyfit(points, both, 2, w=w), 1e-9)
    assert gr.polyfit([0, 1, 2], [1, 3, 5], 1).dtype == gr.float32
    for n in (None, 0, 1, 4):
        close(gr.vander([1.0, 2.0, 3.0], n), np.vander([1.0, 2.0, 3.0], n), 1e-12)
        close(gr.vander([1, 2, 3], n, increasing=True), np.vander([1, 2, 3], n, True), 0)
    with pytest.raises(gr.ShapeError, match="one row"):
        gr.polyfit([0.0, 1.0], [1.0], 1)
    with pytest.raises(gr.GirihError):
        gr.polyfit([0.0, 1.0], [1.0, 2.0], -1)


# Counting.


@pytest.mark.parametrize("density", [False, True])
def test_histogram2d(density):
    x, y = sample((200,), "float64"), sample((200,), "float64", seed=2)
    w = np.abs(sample((200,), "float64", seed=3))
    edges = np.array([-3.0, -1.0, 0.5, 4.0])
    for kwargs in ({}, {"bins": 5}, {"bins": [4, 6]}, {"bins": [edges, 3]}, {"bins": [edges, edges]},
                   {"bins": 3, "range": [(-1, 2), (0, 3)]}, {"weights": w}):  # fmt: skip
        got = gr.histogram2d(x, y, density=density, **kwargs)
        want = np.histogram2d(x, y, density=density, **kwargs)
        for g, e in zip(got, want, strict=True):
            np.testing.assert_allclose(g.numpy(), e, rtol=1e-12)
    with pytest.raises(gr.ShapeError, match="histogram2d"):
        gr.histogram2d(x, y[:-1])


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool", "complex64"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(axis, dtype):
    x = np.round(
        sample((6, 4, 2), dtype, low=0, high=2) if dtype != "bool" else sample((6, 4, 2), dtype)
    )
    x[3], x[:, 2] = x[1], x[:, 0]
    want = np.unique(x, True, True, True, axis=axis)
    got = gr.unique(x, True, True, True, axis=axis)
    for i, (g, e) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(g.numpy().reshape(e.shape), e, err_msg=str(i))
    np.testing.assert_array_equal(gr.unique(x, axis=axis).numpy(), want[0])
    _values, counts = gr.unique(x, return_counts=True, axis=axis)
    np.testing.assert_array_equal(counts.numpy(), want[3])


def test_unique_of_nan_and_nothing():
    x = np.array([np.nan, 1.0, np.nan, 1.0])
    for equal in (True, False):
        np.testing.assert_array_equal(gr.unique(x, equal_nan=equal), np.unique(x, equal_nan=equal))
    assert gr.unique(gr.zeros(0)).shape == (0,)
    assert gr.unique(gr.zeros([0, 3]), axis=0).shape == (0, 3)
    with pytest.raises(gr.AxisError):
        gr.unique(x, axis=1)


# Windows.


@pytest.mark.parametrize("m", [0, 1, 2, 3, 8, 51])
def test_windows(m):
    names = {
        "hann": "hanning",
        "hamming": "hamming",
        "blackman": "blackman",
        "bartlett": "bartlett",
    }
    for name, symmetric in names.items():
        plain = getattr(gr, symmetric)(m, dtype=gr.float64)
        np.testing.assert_allclose(plain.numpy(), getattr(np, symmetric)(m), atol=1e-14)
        for periodic in (True, False) if m else ():
            got = getattr(gr, f"{name}_window")(m, periodic, dtype=gr.float64).numpy()
            np.testing.assert_allclose(got, signal.get_window(name, m, periodic), atol=1e-14)
    np.testing.assert_allclose(gr.kaiser(m, 8.6, dtype=gr.float64), np.kaiser(m, 8.6), atol=1e-14)
    for periodic in (True, False) if m else ():
        got = gr.kaiser_window(m, periodic, 14.0, dtype=gr.float64).numpy()
        np.testing.assert_allclose(
            got, signal.get_window(("kaiser", 14.0), m, periodic), atol=1e-14
        )
    assert gr.hann_window(m).dtype == gr.float32


def test_refusals_of_windows():
    with pytest.raises(gr.DTypeError):
        gr.hann_window(3, dtype=gr.int32)
    with pytest.raises(gr.GirihError):
        gr.hann_window(-1)
    with pytest.raises(gr.InvalidArgumentError, match="beta"):
        gr.kaiser(3, float("nan"))
