"""Copies whose elements are not contiguous: short runs, reversed rows, repeated and gathered rows, borders."""

import girih as gr
import numpy as np
import pytest

DTYPES = [np.bool_, np.uint8, np.int16, np.float16, np.float32, np.int64, np.complex128]


def sample(shape, dtype, seed=0):
    values = np.random.default_rng(seed).integers(0, 100, shape)
    return (values % 2 == 0) if dtype is np.bool_ else values.astype(dtype)


def same(got, expected):
    np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40])
def test_repeated_elements_and_short_rows(dtype, count):
    x = sample((37, count), dtype)
    same(gr.repeat(gr.asarray(x), count), np.repeat(x, count))
    same(gr.repeat(gr.asarray(x), count, axis=0), np.repeat(x, count, axis=0))
    wide = sample((37, count + 5), dtype)
    same(gr.copy(gr.asarray(wide)[:, 2 : count + 2]), wide[:, 2 : count + 2])
    same(gr.copy(gr.asarray(wide)[::-1, 2 : count + 2]), wide[::-1, 2 : count + 2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9, 16, 40])
def test_short_rows_side_by_side(dtype, count):
    x, y = sample((333, count), dtype), sample((333, 3), dtype, 1)
    same(gr.concat([gr.asarray(x), gr.asarray(y)], axis=1), np.concatenate([x, y], 1))
    pair = gr.stack([gr.asarray(x), gr.asarray(x)[::-1]], axis=2)
    same(pair, np.stack([x, x[::-1]], 2))
    same(gr.asarray(x).at[::2].set(0), np.where(np.arange(333)[:, None] % 2 == 0, 0, x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 700), (70, 129), (4, 5, 33)])
def test_reversed_axes(dtype, shape):
    x = sample(shape, dtype)
    for axis in range(len(shape)):
        same(gr.flip(gr.asarray(x), axis=axis), np.flip(x, axis))
    same(gr.flip(gr.asarray(x)), np.flip(x))
    same(gr.roll(gr.asarray(x), 3, axis=-1), np.roll(x, 3, axis=-1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 3, 7, 8, 9, 64, 700])
def test_gathered_rows_and_elements(dtype, columns):
    x, rng = sample((50, columns, 3), dtype), np.random.default_rng(columns)
    rows = rng.integers(-50, 50, (6, 31))
    places = rng.integers(-columns, columns, 333)
    t = gr.asarray(x)
    same(gr.take(t, gr.asarray(rows), axis=0), np.take(x, rows, axis=0))
    same(gr.take(t, gr.asarray(places), axis=1), np.take(x, places, axis=1))
    same(t[gr.asarray(rows.astype(np.int32))], x[rows])
    same(t[:, gr.asarray(places)][::-1], x[:, places][::-1])
    # The index follows from the position, and the rows are read across.
    same(gr.take(t, gr.arange(49, -1, -7), axis=0), x[49::-7])
    same(
        gr.take(gr.permute_dims(t, (2, 1, 0)), gr.asarray(rows), axis=2),
        x.transpose(2, 1, 0)[:, :, rows],
    )
    pairs = rng.integers(0, 50, 20), rng.integers(0, columns, 20)
    same(t[gr.asarray(pairs[0]), gr.asarray(pairs[1])], x[pairs])
    for wrong in (50, -51):
        with pytest.raises(IndexError, match=str(wrong)):
            gr.eval(gr.take(t, gr.asarray([0, 3, wrong, 1]), axis=0))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_borders_of_any_width(mode, dtype):
    for shape in [(1,), (2,), (5,), (4, 7), (1, 3, 9)]:
        x = sample(shape, dtype)
        for widths in [(0, 0), (1, 0), (0, 2), (1, 1), (3, 2), (4, 5), (11, 6)]:
            expected = np.pad(x, [widths] * len(shape), mode=mode)
            same(gr.pad(gr.asarray(x), [widths] * len(shape), mode=mode), expected)
            same(
                gr.compile(lambda t, w=widths: gr.pad(t, [w] * t.ndim, mode=mode))(gr.asarray(x)),
                expected,
            )


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [(2, 3), (9, 8)])
def test_derivatives_of_borders(mode, widths):
    x, weights = np.arange(1.0, 6.0), np.random.default_rng(3).normal(size=5 + sum(widths))
    grad = gr.grad(lambda t: (gr.pad(t, [widths], mode=mode) * gr.asarray(weights)).sum())(
        gr.asarray(x)
    )
    matrix = np.stack([np.pad(row, [widths], mode=mode) for row in np.eye(5)])
    np.testing.assert_allclose(np.asarray(grad), matrix @ weights, rtol=1e-6)
    batch = np.arange(10.0).reshape(2, 5)
    mapped = gr.vmap(lambda t: gr.pad(t, [widths], mode=mode))(gr.asarray(batch))
    same(mapped, np.pad(batch, [(0, 0), widths], mode=mode))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize(
    "sizes", [((6, 9), (12, 27)), ((12, 8), (4, 4)), ((6, 6), (9, 3)), ((1, 5), (4, 1))]
)
def test_nearest_elements_of_whole_and_other_factors(mode, sizes):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).normal(size=(2, 3, *sizes[0])).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(x), size=sizes[1], mode=mode
    ).numpy()
    same(gr.nn.interpolate(gr.asarray(x), size=sizes[1], mode=mode), expected)
