"""Sorting, searching and cumulative operations, against NumPy and SciPy."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import COMPLEX, DTYPES, FLOATS, INTS, Counters, close, sample

SHAPES = [(0,), (1,), (7,), (3, 4), (2, 0), (0, 3), (2, 3, 5)]
REAL = [dtype for dtype in DTYPES if dtype not in COMPLEX]


def awkward(shape, dtype, seed=0):
    """Few distinct values, so that many are equal; floats include NaN, infinities and both zeros."""
    x = (
        np.round(sample(shape, dtype, seed, -3, 3))
        if dtype in FLOATS
        else sample(shape, dtype, seed, -3, 3)
    )
    if dtype in FLOATS and x.size > 4:
        x.flat[::5] = np.nan
        x.flat[1::7] = np.inf
        x.flat[2::7] = -np.inf
        x.flat[3] = -0.0
    return x


def descending_argsort(x, axis):
    n = x.shape[axis]
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return n - 1 - np.flip(flipped, axis)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("shape", SHAPES)
def test_sort_and_argsort(dtype, shape):
    x = awkward(shape, dtype)
    for axis in range(-len(shape), len(shape)):
        t = gr.asarray(x)
        close(gr.sort(t, axis=axis), np.sort(x, axis, kind="stable"))
        order = descending_argsort(x, axis)
        close(t.argsort(axis), np.argsort(x, axis, kind="stable"))
        close(gr.argsort(t, axis=axis, descending=True), order)
        close(gr.sort(t, axis=axis, descending=True), np.take_along_axis(x, order, axis))


def test_sorting_bfloat16_and_views():
    x = gr.asarray([[3.0, 1.0, 2.0], [0.0, -1.0, 5.0]]).astype(gr.bfloat16)
    assert x.T.sort(axis=0).astype(gr.float32).tolist() == [[1, -1], [2, 0], [3, 5]]
    assert x[:, ::-1].argsort().tolist() == [[1, 0, 2], [1, 2, 0]]


def test_values_and_indices_together_are_one_kernel():
    x = gr.asarray(sample((50,), "float32"))
    values, indices = x.sort(), x.argsort()
    assert gr.compile_graph([values, indices]).num_kernels == 1
    with Counters() as c:
        gr.eval(values, indices)
    assert c["runs"] == 1
    close(gr.take(x, indices), values.numpy())


def test_a_long_row_and_many_short_ones_are_sorted_alike_for_any_number_of_threads():
    x = sample((3000, 40), "float32")
    results = []
    for threads in (1, 4):
        gr.set_num_threads(threads)
        results.append(gr.cumsum(gr.sort(gr.asarray(x)), axis=1).numpy())
    gr.set_num_threads(2)
    assert results[0].tobytes() == results[1].tobytes()
    close(gr.sort(gr.asarray(x.ravel())), np.sort(x.ravel()))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "uint8"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(dtype, largest):
    x = awkward((4, 9), dtype)
    for axis in (0, 1, -1):
        for k in (0, 1, x.shape[axis]):
            values, indices = gr.topk(gr.asarray(x), k, axis=axis, largest=largest)
            order = descending_argsort(x, axis) if largest else np.argsort(x, axis, kind="stable")
            want = np.take(order, range(k), axis)
            close(indices, want)
            close(values, np.take_along_axis(x, want, axis))


ORDERS = {
    "random": lambda n: np.random.default_rng(n).permutation(n),
    "rising": np.arange,
    "falling": lambda n: np.arange(n)[::-1],
    "equal": np.zeros,
    "few values": lambda n: np.random.default_rng(n).integers(-2, 3, n),
    "saw": lambda n: np.arange(n) % 130,
}


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("order", ORDERS)
def test_topk_is_the_front_of_a_stable_sort(order, dtype):
    for n in (1, 63, 64, 65, 257, 3000):
        x = np.stack([ORDERS[order](n), ORDERS[order](n)[::-1]]).astype(dtype)
        if np.issubdtype(x.dtype, np.floating):
            x[:, n // 3 :: 97] = np.nan
            x[:, n // 2 :: 89] = [[np.inf], [-np.inf]]
            x[:, n // 4 :: 83] = -0.0
        for k in {0, 1, min(2, n), n // 3, n // 2, n - 1, n}:
            for largest in (True, False):
                values, indices = gr.topk(gr.asarray(x), k, largest=largest)
                want = gr.argsort(gr.asarray(x), descending=largest).numpy()[:, :k]
                assert indices.numpy().tobytes() == np.ascontiguousarray(want).tobytes()
                taken = np.take_along_axis(x, want, 1)
                assert values.numpy().tobytes() == taken.tobytes()
        assert gr.topk(gr.asarray(x), 1)[0].eval().shape == (2, 1)


def test_topk_of_halves_without_numpy_and_of_truths():
    x = gr.asarray(np.float32([0.5, np.nan, -3, 2, -np.inf, 2])).astype(gr.bfloat16)
    values, indices = gr.topk(x, 4)
    assert indices.tolist() == [1, 3, 5, 0]
    close(values.astype(gr.float32), np.float32([np.nan, 2, 2, 0.5]))
    assert gr.topk(gr.asarray([True, False, True]), 2, largest=False)[1].tolist() == [1, 0]


def test_topk_is_one_kernel_that_sorts_no_row():
    explained = gr.explain(*gr.topk(gr.asarray(sample((4, 1000), "float32")), 3))
    assert [kernel["name"] for kernel in explained.kernels] == ["topk"]


def test_topk_under_transforms():
    x = gr.asarray(sample((3, 4, 9), "float64"))
    best = lambda x: gr.topk(x, 3)[0]
    close(gr.vmap(best)(x), best(x).numpy())
    close(gr.vmap(best, in_axes=1)(x), best(gr.moveaxis(x, 1, 0)).numpy())
    weights = gr.asarray(np.arange(1.0, 4.0))
    slopes = gr.grad(lambda x: (best(x) * weights).sum())(x).numpy()
    want = np.zeros(x.shape)
    np.put_along_axis(want, gr.topk(x, 3)[1].numpy(), np.broadcast_to([1.0, 2, 3], (3, 4, 3)), -1)
    close(slopes, want)
    _, tangent = gr.jvp(best, (x,), (x * 2,))
    close(tangent, 2 * best(x).numpy())
    curved = gr.hessian(lambda x: (best(x) ** 3).sum())(x[0, 0])
    close(curved, np.diag(np.where(want[0, 0] > 0, 6 * x[0, 0].numpy(), 0)))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(dtype, side):
    row, values = np.sort(awkward((20,), dtype)), awkward((3, 4), dtype, 1)
    close(
        gr.searchsorted(gr.asarray(row), gr.asarray(values), side=side),
        np.searchsorted(row, values, side),
    )
    close(
        gr.searchsorted(gr.asarray(row), gr.asarray(values[0, 0]), side),
        np.int64(np.searchsorted(row, values[0, 0], side)),
    )
    empty = gr.searchsorted(gr.asarray(row[:0]), gr.asarray(values), side=side)
    assert empty.tolist() == np.zeros((3, 4), int).tolist()


def test_searchsorted_with_a_sorter_and_of_other_dtypes():
    row = np.array([3, 1, 2])
    at = gr.searchsorted(
        gr.asarray(row), gr.asarray([0.5, 1.5, 9.0]), sorter=gr.asarray(np.argsort(row))
    )
    assert at.tolist() == [0, 1, 3]


def accumulated(f, x, axis, dtype):
    wide = x.astype(
        {**dict.fromkeys(FLOATS, "f8"), **dict.fromkeys(COMPLEX, "c16")}.get(dtype, x.dtype)
    )
    integer = np.uint64 if dtype.startswith("uint") else np.int64
    return f(wide, axis=axis).astype(dtype if dtype in (*FLOATS, *COMPLEX) else integer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_running_sums_and_products(dtype, shape):
    x = sample(shape, dtype, low=-2, high=2)
    rtol = 1e-2 if dtype == "float16" else 1e-4
    for axis in range(-len(shape), len(shape)):
        close(
            gr.cumsum(gr.asarray(x), axis),
            accumulated(np.cumsum, x, axis, dtype),
            rtol,
            1e-2 if dtype == "float16" else 1e-5,
        )
        close(
            gr.cumprod(gr.asarray(x), axis),
            accumulated(np.cumprod, x, axis, dtype),
            rtol,
            1e-3 if dtype == "float16" else 1e-6,
        )


def test_running_sums_of_everything_and_with_an_initial_value():
    x = sample((2, 3), "int64")
    close(gr.cumsum(gr.asarray(x)), np.cumsum(x))
    close(gr.asarray(x).cumprod(), np.cumprod(x))
    close(
        gr.cumulative_sum(gr.asarray(x), axis=1, include_initial=True),
        np.cumulative_sum(x, axis=1, include_initial=True),
    )
    close(
        gr.cumulative_prod(gr.asarray(x), axis=0, include_initial=True),
        np.cumulative_prod(x, axis=0, include_initial=True),
    )
    close(gr.cumulative_sum(gr.asarray(x[0])), np.cumsum(x[0]))
    close(gr.cumulative_sum(gr.asarray(x), axis=0, dtype=gr.float32), np.cumsum(x, 0, dtype="f4"))
    close(gr.cumsum(gr.asarray([200, 100]), dtype=gr.uint8), np.array([200, 44], "u1"))
    assert gr.cumulative_sum(gr.zeros(2, 0), axis=1, include_initial=True).tolist() == [
        [0.0],
        [0.0],
    ]


@pytest.mark.parametrize("dtype", REAL)
def test_running_extrema(dtype):
    x = awkward((3, 8), dtype)
    for axis in (0, 1):
        for best, at, ufunc in [
            (gr.cummax, gr.argcummax, np.maximum),
            (gr.cummin, gr.argcummin, np.minimum),
        ]:
            want = ufunc.accumulate(x, axis)
            close(best(gr.asarray(x), axis), want)
            indices = at(gr.asarray(x), axis).numpy()
            close(np.take_along_axis(x, indices, axis), want)
    assert gr.argcummax(gr.asarray([1, 3, 3, 2])).tolist() == [0, 1, 2, 2]
    assert gr.argcummin(gr.asarray([2.0, float("nan"), 1.0])).tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_logcumsumexp(dtype):
    x = sample((3, 6), dtype, low=-30, high=30)
    want = np.logaddexp.accumulate(x.astype("f8"), axis=1).astype(dtype)
    close(gr.logcumsumexp(gr.asarray(x), 1), want, 2e-3 if dtype == "float16" else 1e-6)
    close(
        gr.logcumsumexp(gr.asarray(x)),
        np.logaddexp.accumulate(x.astype("f8").ravel()).astype(dtype),
        2e-3 if dtype == "float16" else 1e-6,
    )


def test_logcumsumexp_at_the_edges():
    inf, nan = float("inf"), float("nan")
    x = np.array([[-inf, -inf, 0, 1000, -inf], [-inf, inf, 1, -inf, inf], [1, nan, 2, 3, inf]])
    with np.errstate(invalid="ignore"):
        close(gr.logcumsumexp(gr.asarray(x), 1), np.logaddexp.accumulate(x, axis=1), 1e-12)


def test_gradients_where_products_hold_zeros():
    for x in ([2.0, 0.0, 3.0, 4.0], [0.0, 0.0, 1.0, 2.0], [1.0, 2.0, 0.0, 0.0]):
        x = np.array(x)
        ct = np.array([1.0, -2.0, 3.0, 0.5])
        got = gr.grad(lambda t, ct=ct: (t.cumprod(0) * gr.asarray(ct)).sum())(gr.asarray(x))
        want = [
            sum(ct[j] * np.prod(np.delete(x[: j + 1], i)) for j in range(i, 4)) for i in range(4)
        ]
        close(got, np.array(want), 1e-12)


def test_gradients_of_logcumsumexp_at_the_edges():
    x = np.array([-np.inf, 0.0, 800.0, -800.0])
    got = gr.grad(
        lambda t: (t.logcumsumexp(0) * gr.asarray([1.0, 1.0, 0.0, -2.0], dtype=gr.float64)).sum()
    )(gr.asarray(x))
    close(got, np.array([0.0, 1.0, -2.0, 0.0]), 1e-12)


ERRORS = {
    "sort a scalar": (lambda: gr.sort(gr.asarray(1.0)), gr.AxisError, "sort"),
    "axis": (lambda: gr.cumsum(gr.ones(2, 3), 2), gr.AxisError, "2"),
    "which axis": (lambda: gr.cumulative_sum(gr.ones(2, 3)), gr.InvalidArgumentError, "axis"),
    "k": (lambda: gr.topk(gr.ones(3), 4), gr.InvalidArgumentError, "4.*3"),
    "negative k": (lambda: gr.topk(gr.ones(3), -1), gr.InvalidArgumentError, "-1"),
    "side": (lambda: gr.searchsorted(gr.ones(3), 1.0, side="middle"), gr.InvalidArgumentError, "middle"),
    "matrix": (lambda: gr.searchsorted(gr.ones(3, 2), 1.0), gr.ShapeError, "vector"),
    "sorter": (lambda: gr.searchsorted(gr.ones(3), 1.0, sorter=gr.arange(2)), gr.ShapeError, "sorter"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_misuse_is_explained(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_complex_numbers_have_no_running_extremes(name, dtype):
    with pytest.raises(gr.DTypeError, match="no order"):
        getattr(gr, name)(gr.ones([3], dtype=dtype))


def complex_numbers(shape, dtype, nans):
    """Few distinct values; with NaN in the real part, in the imaginary part, and in both."""
    z = np.round(sample(shape, "float64", 1, -2, 2)) + 1j * np.round(sample(shape, "float64", 2))
    if nans and z.size > 4:
        z.flat[0], z.flat[2], z.flat[3] = complex(np.nan, 1), complex(1, np.nan), np.nan * (1 + 1j)
    return z.astype(dtype)


@pytest.mark.parametrize("nans", [False, True])
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("shape", SHAPES)
def test_complex_numbers_are_sorted_by_both_parts(shape, dtype, nans):
    z = complex_numbers(shape, dtype, nans)
    t = gr.asarray(z)
    for axis in range(-len(shape), len(shape)):
        order = np.argsort(z, axis=axis, kind="stable")
        np.testing.assert_array_equal(gr.argsort(t, axis).numpy(), order)
        np.testing.assert_array_equal(gr.sort(t, axis).numpy(), np.sort(z, axis, kind="stable"))
        falling = descending_argsort(z, axis)
        np.testing.assert_array_equal(t.argsort(axis, descending=True).numpy(), falling)


@pytest.mark.parametrize("nans", [False, True])
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("keepdims", [False, True])
def test_extremes_and_median_of_complex_numbers(dtype, nans, keepdims):
    z = complex_numbers((3, 5, 4), dtype, nans)
    for name in ("median", "max", "min", "argmax", "argmin"):
        if name != "median":  # NumPy's mean of infinite complex numbers is NaN.
            z[2, 0, 0] = complex(2, -np.inf)
        t = gr.asarray(z)
        for axis in (None, 0, 1, -1, (0, 2)):
            if name.startswith("arg") and isinstance(axis, tuple):
                continue
            want = getattr(np, name)(z, axis=axis, keepdims=keepdims)
            got = getattr(gr, name)(t, axis=axis, keepdims=keepdims).numpy()
            assert got.shape == want.shape
            assert np.array_equal(np.isnan(got), np.isnan(want))
            np.testing.assert_array_equal(got[~np.isnan(got)], want[~np.isnan(want)])


def test_the_derivative_of_a_complex_maximum_is_that_of_one_element():
    z = gr.asarray([1 + 2j, 1 + 3j, 1 + 1j])
    assert gr.grad(lambda z: z.max().real)(z).tolist() == [0, 1, 0]
    assert gr.grad(lambda z: (gr.sort(z)[0] * 1j).real)(z).tolist() == [0, 0, 1j]


def test_integers_are_sorted_by_value_not_by_bits():
    for dtype in INTS:
        low = 0 if dtype.startswith("uint") else -100
        x = np.array([5, low, np.iinfo(dtype).max, 1], dtype)
        close(gr.sort(gr.asarray(x)), np.sort(x))


@pytest.mark.parametrize("dtype", ["float32", "int16", "int64"])
@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, 3 * (1 << 18) + 77, (1 << 20) + 5])
def test_long_rows_are_sorted_in_runs_that_are_merged(dtype, size):
    x = np.random.default_rng(size).integers(-3000, 3000, size).astype(dtype)
    if dtype == "float32":
        x[::1001] = np.nan
        x[::777] = -0.0
    t = gr.asarray(x)
    np.testing.assert_array_equal(gr.sort(t).numpy(), np.sort(x))
    order = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(gr.argsort(t).numpy(), order)
    # Zeros of both signs are equal, and stay in their order.
    if dtype == "float32":
        assert (np.signbit(gr.sort(t).numpy()) == np.signbit(x[order])).all()
    down = gr.sort(t, descending=True).numpy()
    np.testing.assert_array_equal(down, np.sort(x)[::-1])
    best = gr.topk(t, size // 2)[0].numpy()
    np.testing.assert_array_equal(best, down[: size // 2])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "bool", "float16"])
@pytest.mark.parametrize("equal_nan", [False, True])
def test_distinct_elements_and_their_origins_are_numpys(dtype, equal_nan):
    rng = np.random.default_rng(1)
    for size in (0, 1, 2, 5000):
        x = rng.integers(0, 50, size).astype(dtype)
        if np.dtype(dtype).kind == "f" and size > 2:
            x[:9] = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.nan, -0.0, 0.0, 1.0]
        all_of_it = {"return_index": True, "return_inverse": True, "return_counts": True}
        found = gr.unique(gr.asarray(x), equal_nan=equal_nan, **all_of_it)
        expected = np.unique(x, equal_nan=equal_nan, **all_of_it)
        for ours, numpys in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours.numpy(), numpys.reshape(ours.shape))
