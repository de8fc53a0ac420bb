"""Sorting, searching, counting and running sums of rows of many lengths and kinds, against NumPy."""

import girih as gr
import numpy as np
import pytest

# On both sides of the lengths at which the algorithms change.
LENGTHS = [0, 1, 2, 25, 1001, 1 << 15, (1 << 18) + 3]
KINDS = {
    "random": lambda rng, n: rng.integers(-(2**31), 2**31, n),
    "few values": lambda rng, n: rng.integers(-20, 20, n),
    "equal": lambda rng, n: np.full(n, 7),
    "ascending": lambda rng, n: np.arange(n),
    "descending": lambda rng, n: -np.arange(n),
    "normal": lambda rng, n: rng.standard_normal(n) * 100,
    "special": lambda rng, n: rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5], n),
}
DTYPES = ["int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]


def row(kind, dtype, n):
    x = KINDS[kind](np.random.default_rng(n), n)
    if np.dtype(dtype).kind != "f":
        x = np.nan_to_num(x, posinf=3, neginf=-3).astype(np.int64)
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def same(got, want):
    """Equal elements, zeros by their signs."""
    got = np.asarray(got)
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_sorts_and_searches(kind, dtype):
    for n in LENGTHS:
        x = row(kind, dtype, n)
        t = gr.asarray(x)
        want = np.argsort(x, kind="stable")
        same(gr.argsort(t).numpy(), want)
        same(gr.sort(t).numpy(), x[want])
        falling = np.argsort(-x.astype(np.longdouble), kind="stable")
        if np.dtype(dtype).kind == "f":  # NaN is largest, also in descending order
            nans = np.isnan(x[falling])
            falling = np.concatenate([falling[nans], falling[~nans]])
        same(gr.argsort(t, descending=True).numpy(), falling)
        same(gr.sort(t, descending=True).numpy(), x[falling])
        for side in ["left", "right"]:
            found = gr.searchsorted(gr.asarray(x[want]), t, side=side).numpy()
            np.testing.assert_array_equal(found, np.searchsorted(x[want], x, side=side))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_distinct_and_nonzero_elements(kind, dtype):
    for n in LENGTHS:
        x = row(kind, dtype, n)
        t = gr.asarray(x)
        for equal_nan in [False, True]:
            want = np.unique(x, return_counts=True, equal_nan=equal_nan)
            got = gr.unique(t, return_counts=True, equal_nan=equal_nan)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a.numpy(), b)
            np.testing.assert_array_equal(gr.unique(t, equal_nan=equal_nan).numpy(), want[0])
        values, counts = gr.unique_counts(t)
        everything = gr.unique_all(t)
        same(values.numpy(), everything.values.numpy())
        np.testing.assert_array_equal(counts.numpy(), everything.counts.numpy())
        same(gr.unique_values(t).numpy(), values.numpy())
        same(values.numpy()[everything.inverse_indices.numpy()], first(x))
        np.testing.assert_array_equal(gr.nonzero(t)[0].numpy(), np.nonzero(x)[0])


def first(x):
    """Each element's first equal one: of zeros, the first zero."""
    zeros = np.flatnonzero(x == 0)
    return np.where(x == 0, x[zeros[0]], x).astype(x.dtype) if zeros.size else x


@pytest.mark.parametrize("shape", [(1,), (7, 5), (3, 1, 4), (2, 300, 200), (0, 3), (3, 0)])
def test_nonzero_elements_of_several_axes(shape):
    for share in [0.0, 0.02, 0.5, 1.0]:
        x = np.random.default_rng(1).random(shape) < share
        for got, want in zip(gr.nonzero(gr.asarray(x)), np.nonzero(x), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("n", LENGTHS)
def test_counts(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal(n).astype(np.float32)
    if n:
        x[n // 2] = np.nan
    edges = np.sort(rng.standard_normal(31).astype(np.float32))
    got = gr.histogram(gr.asarray(x), bins=gr.asarray(edges))[0].numpy()
    np.testing.assert_array_equal(got, np.histogram(x[~np.isnan(x)], bins=edges)[0])
    places = rng.integers(0, 1000, n)
    np.testing.assert_array_equal(gr.bincount(gr.asarray(places)).numpy(), np.bincount(places))
    some = gr.asarray(edges[::2])
    np.testing.assert_array_equal(gr.isin(gr.asarray(x), some).numpy(), np.isin(x, edges[::2]))


@pytest.mark.parametrize("shape", [(1,), (3, 5), (4, 7), (9, 100), (16385,), ((1 << 18) + 3,)])
def test_running_sums(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    np.testing.assert_allclose(gr.cumsum(gr.asarray(x), -1).numpy(), x.cumsum(-1), atol=1e-10)
    i = (x * 1e6).astype(np.int64)
    np.testing.assert_array_equal(gr.cumsum(gr.asarray(i), -1).numpy(), i.cumsum(-1))


def test_running_sums_do_not_overflow_before_the_sum_does():
    x = np.zeros(50_000, np.float32)
    x[0], x[20_000:20_002] = -3e38, 3e38
    np.testing.assert_array_equal(gr.cumsum(gr.asarray(x), 0).numpy(), x.cumsum())
