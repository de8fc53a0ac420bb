"""Values at the edge of a function's domain: unsigned indices, infinite knots, products that
alternate between huge and tiny, the sign of a sum of zero."""

import math

import girih as gr
import numpy as np
import pytest

INF, NAN = math.inf, math.nan
HUGE = [2**64 - 1, 2**63, 2**63 + 2, 5]


def _indexing(i):
    """Every function that takes an index into an axis of five elements."""
    x, ones = gr.arange(5), gr.ones([1])
    table = gr.ones([5, 16])
    return {
        "x[i]": lambda: x[i],
        "x[numpy i]": lambda: x[i.numpy()],
        "x[i, 0]": lambda: table[i, 0],
        "x[0, i]": lambda: gr.ones([2, 5])[0, i],
        "x[i, i]": lambda: gr.ones([5, 5])[i, i],
        "take": lambda: gr.take(x, i, axis=0),
        "take of rows": lambda: gr.take(table, i, axis=0),
        "take_along_axis": lambda: gr.take_along_axis(x, i, axis=0),
        "put_along_axis": lambda: gr.put_along_axis(x, i, gr.arange(1), axis=0),
        "at set": lambda: x.at[i].set(9),
        "at add": lambda: gr.ones([5]).at[i].add(ones),
        "at add of rows": lambda: table.at[i].add(gr.ones([1, 16])),
        "at multiply": lambda: gr.ones([5]).at[i].multiply(ones),
        "at max": lambda: gr.ones([5]).at[i].max(ones),
        "at add of halves": lambda: (
            gr.ones([5], dtype="float16").at[i].add(gr.ones([1], dtype="float16"))
        ),
        "embedding": lambda: gr.embedding(i, table),
        "embedding with padding": lambda: gr.embedding(i, table, padding_idx=1),
        "one_hot": lambda: gr.one_hot(i, 5),
        "gradient of x[i]": lambda: gr.grad(lambda w: w[i].sum())(gr.ones([5])),
        "vmap of x[i]": lambda: gr.vmap(lambda j: x[j])(i),
        "compiled": lambda: gr.compile(lambda x, i: x[i])(x, i),
        "cross_entropy": lambda: gr.cross_entropy(gr.zeros([1, 5]), i),
    }


@pytest.mark.parametrize("value", HUGE)
@pytest.mark.parametrize("name", list(_indexing(None)))
def test_unsigned_indices_beyond_the_axis_are_errors_that_show_them(name, value):
    i = gr.asarray(np.array([value], np.uint64))
    with pytest.raises(IndexError, match=str(value)):
        _indexing(i)[name]().tolist()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_unsigned_indices_within_the_axis_are_positions(dtype):
    i = gr.asarray(np.array([4], dtype))
    for name, f in _indexing(i).items():
        assert f().numpy().size > 0, name
    table = gr.ones([300, 2])
    i = gr.asarray(np.array([255], np.uint8))
    assert gr.embedding(i, table, padding_idx=299).shape == (1, 2)


def test_huge_unsigned_counts_are_errors():
    i = gr.asarray(np.array([2**64 - 1], np.uint64))
    with pytest.raises(ValueError, match=str(2**64 - 1)):
        gr.bincount(i)
    with pytest.raises(ValueError, match=str(2**64 - 1)):
        gr.repeat(gr.arange(1), i)


KNOTS = [
    ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [0.0, INF, 20.0]),
    ([0.5, 1.5], [0.0, 1.0, 2.0], [0.0, INF, 20.0]),
    ([0.0, 0.5, 1.0], [0.0, 1.0], [INF, INF]),
    ([0.0, 0.5, 1.0], [0.0, 1.0], [-INF, INF]),
    ([1.0, 1.5, 5.0, INF], [0.0, 1.0, INF], [0.0, 1.0, 2.0]),
    ([-INF, -7.0, 0.0, 0.5], [-INF, 0.0, 1.0], [5.0, 1.0, 2.0]),
    ([-INF, 3.0, INF], [-INF, INF], [4.0, 4.0]),
    ([-1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 1.0, 2.0], [0.0, 1.0, 5.0, 6.0]),
    ([0.1, 0.2, 0.3, 0.7], [0.1, 0.2, 0.3, 0.7], [1.1, 2.3, -0.7, 1e-30]),
    ([NAN, 0.5], [0.0, 1.0], [NAN, 1.0]),
]


@pytest.mark.parametrize(("x", "xp", "fp"), KNOTS)
def test_interpolation_beside_infinities_is_numpys(x, xp, fp):
    with np.errstate(all="ignore"):
        expected = np.interp(x, xp, fp)
    got = gr.interp(*(gr.asarray(v, dtype="float64") for v in (x, xp, fp))).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-15, atol=0)
    lifted = gr.interp(
        *(gr.asarray(v, dtype="float64") for v in (x, xp)),
        gr.asarray(np.array(fp) + 0j, dtype="complex128"),
    ).numpy()
    np.testing.assert_allclose(lifted.real, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_histograms_of_an_infinite_range_are_errors(value, dtype):
    x = gr.asarray([1.0, value, 3.0], dtype=dtype)
    finite = gr.asarray([1.0, 2.0, 3.0], dtype=dtype)
    for f in (
        lambda: gr.histogram(x, bins=2),
        lambda: gr.histogram_bin_edges(x, bins=2),
        lambda: gr.histogram2d(x, finite, bins=2),
        lambda: gr.histogram2d(finite, x, bins=2),
    ):
        with pytest.raises(ValueError, match="finite"):
            f()
    # With a range or edges, such elements are not counted.
    assert gr.histogram(x, bins=2, range=(0.0, 4.0))[0].tolist() == [1, 1]
    assert gr.histogram(x, bins=gr.asarray([0.0, 2.0, 4.0]))[0].tolist() == [1, 1]


def test_histograms_of_a_range_whose_width_overflows_are_errors():
    with pytest.raises(ValueError, match="finite"):
        gr.histogram(gr.asarray([-3e38, 3e38]), bins=2)
    with pytest.raises(ValueError, match="finite"):
        gr.histogram(gr.asarray([0.0]), bins=2, range=(-3e38, 3e38))
    # Halves have edges in the whole range of their dtype.
    counts, edges = gr.histogram(gr.asarray([-60000.0, 60000.0], dtype="float16"), bins=3)
    assert counts.tolist() == [1, 0, 1]
    assert edges.tolist() == [-60000.0, -20000.0, 20000.0, 60000.0]


LAYOUTS = {
    "whole": lambda x: gr.prod(x),
    "rows": lambda x: gr.prod(gr.stack([x, x, x]), axis=1)[1],
    "many rows": lambda x: gr.prod(gr.stack([x] * 40), axis=1)[7],
    "columns": lambda x: gr.prod(gr.stack([x] * 3, axis=1), axis=0)[2],
    "many columns": lambda x: gr.prod(gr.stack([x] * 70, axis=1), axis=0)[66],
    "computed": lambda x: gr.prod(x * 1.0),
    "cumprod": lambda x: gr.cumprod(x)[-1],
    "nanprod": lambda x: gr.nanprod(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [2, 4, 20, 64, 100, 512, 1000, 5000])
@pytest.mark.parametrize(
    ("dtype", "big"),
    [("float32", 1e30), ("float64", 1e200), ("complex64", 1e30j), ("complex128", 1e200)],
)
def test_products_of_huge_and_tiny_factors_do_not_overflow_in_between(layout, n, dtype, big):
    x = gr.asarray(np.tile(np.array([big, 1 / big], dtype), n // 2))
    got = complex(LAYOUTS[layout](x).numpy())
    assert got == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_products_are_multiplied_in_order_as_in_numpy(dtype):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 31, 32, 33, 100, 512):
        x = rng.uniform(0.5, 1.5, (40, n)).astype(dtype)
        expected = np.multiply.accumulate(x, axis=1)[:, -1]
        for got in (
            gr.prod(gr.asarray(x), axis=1),
            gr.prod(gr.asarray(np.ascontiguousarray(x.T)), axis=0),
            gr.stack([gr.prod(row) for row in gr.asarray(x)[:3]]),
        ):
            assert (got.numpy() == expected[: got.shape[0]]).all(), n


@pytest.mark.parametrize("axis", [0, -1, None, ()])
@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (4, 1), (40, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
def test_the_sum_of_minus_zero_is_zero_by_every_path(dtype, shape, axis):
    x = gr.asarray(np.full(shape, -0.0), dtype=dtype)

    def f(x):
        return gr.sum(x, axis=axis)

    results = [f(x), gr.compile(f)(x), gr.compile(f, dynamic_dims={0: {0: "n"}})(x)]
    with gr.without_passes("simplify"):
        results.append(f(x * 1))
    for got in results:
        assert not np.signbit(got.numpy().real).any()
