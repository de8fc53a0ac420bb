"""Functions that rearrange, find and count elements, against NumPy. One row per case."""

from __future__ import annotations

import girih as gr
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from conftest import close, sample
from hypothesis import given, settings
from hypothesis import strategies as st

SHAPE = (2, 3, 4)
# The same call in both libraries, on a tensor or array of shape SHAPE.
SAME = {
    "roll": lambda m, x: m.roll(x, 5),
    "roll an axis": lambda m, x: m.roll(x, -1, axis=2),
    "roll axes": lambda m, x: m.roll(x, (1, -7), axis=(0, 2)),
    "roll axes alike": lambda m, x: m.roll(x, 1, axis=(0, 1)),
    "roll an axis twice": lambda m, x: m.roll(x, (1, 1), axis=(1, 1)),
    "roll by more than the size": lambda m, x: m.roll(x, 1001, axis=1),
    "tile": lambda m, x: m.tile(x, 2),
    "tile axes": lambda m, x: m.tile(x, (2, 1, 3)),
    "tile more axes": lambda m, x: m.tile(x, (2, 1, 1, 2)),
    "tile to nothing": lambda m, x: m.tile(x, (0, 1)),
    "repeat": lambda m, x: m.repeat(x, 2),
    "repeat along": lambda m, x: m.repeat(x, 3, axis=1),
    "repeat each": lambda m, x: m.repeat(x, [2, 0, 1], axis=1),
    "repeat all alike": lambda m, x: m.repeat(x, [2], axis=-1),
    "repeat none": lambda m, x: m.repeat(x, 0, axis=1),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, -1),
    "moveaxis several": lambda m, x: m.moveaxis(x, (0, 1), (-1, 0)),
    "rot90": lambda m, x: m.rot90(x),
    "rot90 twice": lambda m, x: m.rot90(x, 2, (1, 2)),
    "rot90 back": lambda m, x: m.rot90(x, -1, (2, 0)),
    "flipud": lambda m, x: m.flipud(x),
    "fliplr": lambda m, x: m.fliplr(x),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "permute_dims": lambda m, x: m.permute_dims(x, (2, 0, 1)),
    "ravel": lambda m, x: m.ravel(x),
    "tril": lambda m, x: m.tril(x),
    "tril above": lambda m, x: m.tril(x, k=1),
    "triu": lambda m, x: m.triu(x),
    "triu below": lambda m, x: m.triu(x, k=-1),
    "triu of nothing": lambda m, x: m.triu(x, k=9),
    "diagonal": lambda m, x: m.diagonal(x),
    "diagonal off": lambda m, x: m.diagonal(x, 1, 1, 2),
    "diagonal below": lambda m, x: m.diagonal(x, -2, axis1=2, axis2=0),
    "diagonal of nothing": lambda m, x: m.diagonal(x, 7),
    "trace": lambda m, x: m.trace(x, axis1=1, axis2=2),
    "diff": lambda m, x: m.diff(x),
    "diff twice": lambda m, x: m.diff(x, n=2, axis=1),
    "diff to nothing": lambda m, x: m.diff(x, n=5, axis=0),
    "diff with ends": lambda m, x: m.diff(x, prepend=x[..., :1], append=x[..., -2:]),
    "stack": lambda m, x: m.stack([x, x], axis=1),
    "concat none": lambda m, x: m.concat([x, x[:1]], axis=None),
    "hstack": lambda m, x: m.hstack([x, x[:, :1]]),
    "hstack vectors": lambda m, x: m.hstack([x[0, 0], x[1, 1]]),
    "vstack": lambda m, x: m.vstack([x[0], x[1, 0]]),
    "dstack": lambda m, x: m.dstack([x[0], x[1]]),
    "column_stack": lambda m, x: m.column_stack([x[0, 0], x[1].T]),
    "pad edge": lambda m, x: m.pad(x, ((0, 1), (2, 0), (1, 1)), mode="edge"),
    "pad reflect": lambda m, x: m.pad(x, ((5, 1), (2, 7), (0, 0)), mode="reflect"),
    "pad symmetric": lambda m, x: m.pad(x, ((5, 1), (2, 7), (0, 1)), mode="symmetric"),
    "pad wrap": lambda m, x: m.pad(x, 5, mode="wrap"),
    "pad reflect one": lambda m, x: m.pad(x[:1], ((2, 2), (0, 0), (0, 0)), mode="reflect"),
    "pad constant": lambda m, x: m.pad(x, ((1, 2),), mode="constant", constant_values=1),
    "compress": lambda m, x: m.compress([True, False, True], x, axis=1),
    "compress short": lambda m, x: m.compress([False, True], x),
    "extract": lambda m, x: m.extract(x > 0, x),
    "argwhere": lambda m, x: m.argwhere(x > 0),
    "flatnonzero": lambda m, x: m.flatnonzero(x > 0),
    "count_nonzero": lambda m, x: m.count_nonzero(x > 0, axis=1, keepdims=True),
    "unique_values": lambda m, x: m.unique_values(x) if m is gr else np.unique(x),
    "isin": lambda m, x: m.isin(x, x[0, :2]),
    "isin many": lambda m, x: m.isin(x, m.concat([x[1], x[1]], axis=0)),
    "isin inverted": lambda m, x: m.isin(x, x[:1], invert=True),
    "isin nothing": lambda m, x: m.isin(x, x[:0]),
    "atleast_1d": lambda m, x: m.atleast_1d(x[0, 0, 0]),
    "atleast_2d": lambda m, x: m.atleast_2d(x[0, 0]),
    "atleast_3d": lambda m, x: m.atleast_3d(x[0]),
    "atleast_3d of a vector": lambda m, x: m.atleast_3d(x[0, 0]),
    "atleast_2d of more": lambda m, x: m.atleast_2d(x),
    "diag": lambda m, x: m.diag(x[0, 0], 1),
    "diag below": lambda m, x: m.diag(x[0, 0], -2),
    "diag of a matrix": lambda m, x: m.diag(x[0], -1),
    "diag of nothing": lambda m, x: m.diag(x[0, 0, :0], 2),
    "diagflat": lambda m, x: m.diagflat(x[0], 1),
}


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "float16"])
@pytest.mark.parametrize("name", SAME)
def test_functions_agree_with_numpy(name, dtype):
    x = sample(SHAPE, dtype)
    if dtype == "bool" and name.startswith(("trace", "isin", "pad constant", "extract")):
        return
    want = np.asarray(SAME[name](np, x))
    got = SAME[name](gr, gr.asarray(x))
    if want.dtype != x.dtype and want.dtype != bool:
        want = want.astype("int64")
    close(got, want, 1e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("name", ["tile", "repeat", "roll", "ravel", "argwhere", "flatnonzero"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3)])
def test_empty_arrays_and_scalars_agree_with_numpy(name, shape):
    x = sample(shape, "float32")
    close(SAME[name](gr, gr.asarray(x)), np.asarray(SAME[name](np, x)))


MANY = {
    "split": lambda m, x: m.split(x, 2, axis=2),
    "split at": lambda m, x: m.split(x, [1, 3], axis=2),
    "split at descending": lambda m, x: m.split(x, [3, 1], axis=2),
    "split at negative": lambda m, x: m.split(x, [-2, 9], axis=2),
    "array_split": lambda m, x: m.array_split(x, 3, axis=2),
    "array_split into more": lambda m, x: m.array_split(x, 5, 1),
    "array_split at": lambda m, x: m.array_split(x, [1], 1),
    "unstack": lambda m, x: m.unstack(x, axis=1),
    "meshgrid": lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0]),
    "meshgrid of three": lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0]),
    "meshgrid ij": lambda m, x: m.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    "meshgrid of one": lambda m, x: m.meshgrid(x[0, 0]),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, x[:, :1], x[0, 0]),
    "nonzero": lambda m, x: m.nonzero(x > 0),
    "where alone": lambda m, x: m.where(x > 1),
    "unique_all": lambda m, x: m.unique_all(m.concat([x, x], axis=0)),
    "unique_counts": lambda m, x: m.unique_counts(m.concat([x, x[0:1]], axis=0)),
    "unique_inverse": lambda m, x: m.unique_inverse(x),
}


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
@pytest.mark.parametrize("name", MANY)
def test_functions_with_several_results_agree_with_numpy(name, dtype):
    x = sample(SHAPE, dtype)
    got, want = MANY[name](gr, gr.asarray(x)), MANY[name](np, x)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        close(g, w)
    if name.startswith("unique"):
        assert got._fields == want._fields


def test_zeros_are_one_value_and_nans_are_many():
    x = np.array([0.0, np.nan, -0.0, 1.0, np.nan, -np.inf, np.inf], "f4")
    got = gr.unique_all(gr.asarray(x))
    np.testing.assert_array_equal(got.values.numpy(), [-np.inf, 0, 1, np.inf, np.nan, np.nan])
    assert got.counts.tolist() == [1, 2, 1, 1, 1, 1]
    assert got.indices.tolist() == [5, 0, 3, 6, 1, 4]
    assert got.inverse_indices.tolist() == [1, 4, 1, 2, 5, 0, 3]
    assert not gr.isin(gr.asarray(x), gr.asarray(x)).tolist()[1]
    assert gr.isin(gr.asarray(x), gr.arange(40)).tolist() == [True, False, True, True] + [False] * 3


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64", "float16"])
def test_unique_of_each_dtype(dtype):
    x = sample((50,), dtype)
    close(gr.unique_values(gr.asarray(x)), np.unique(x))


@pytest.mark.parametrize("bins", [1, 4, [0.0, 1.0, 1.5, 3.0]])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(bins, density, weighted):
    x = np.append(sample((40,), "float64"), [0.0, 1.0, 3.0, 1.5])
    w = sample(x.shape, "float64", 1, 0, 1) if weighted else None
    tw = None if w is None else gr.asarray(w)
    tbins = bins if isinstance(bins, int) else gr.asarray(bins, dtype="float64")
    counts, edges = gr.histogram(gr.asarray(x), tbins, density=density, weights=tw)
    want, wanted_edges = np.histogram(x, bins, density=density, weights=w)
    close(counts, want, 1e-12)
    close(edges, np.asarray(wanted_edges, "f8"), 1e-12, 1e-12)
    close(
        gr.histogram_bin_edges(gr.asarray(x), tbins), np.asarray(wanted_edges, "f8"), 1e-12, 1e-12
    )


@pytest.mark.parametrize("x", [[], [2.0, 2.0], [np.nan, 0.5, 1.0]])
def test_histogram_of_odd_input(x):
    x = np.asarray(x, "f8")
    span = (0.0, 1.0) if np.isnan(x).any() else None
    counts, edges = gr.histogram(gr.asarray(x), 3, span)
    want, wanted = np.histogram(x, 3, span)
    close(counts, want)
    close(edges, wanted, 1e-12)


def test_bincount():
    x = np.array([3, 1, 1, 0, 5], "i4")
    close(gr.bincount(gr.asarray(x)), np.bincount(x))
    close(gr.bincount(gr.asarray(x), minlength=9), np.bincount(x, minlength=9))
    w = sample((5,), "float64")
    close(gr.bincount(gr.asarray(x), gr.asarray(w)), np.bincount(x, w))
    close(gr.bincount(gr.asarray(x[:0])), np.bincount(x[:0]))


def test_small_functions():
    assert gr.broadcast_shapes((3, 1), (4,), ()) == (3, 4)
    close(gr.indices((2, 3)), np.indices((2, 3)))
    close(gr.tri(3, 4, 1), np.tri(3, 4, 1, "f4"))
    x, i = sample((3, 4), "float32"), np.array([[0], [2], [1]])
    want = x.copy()
    np.put_along_axis(want, i, 9.0, 1)
    close(gr.put_along_axis(gr.asarray(x), gr.asarray(i), 9.0, axis=1), want)
    close(gr.take_along_axis(gr.asarray(x), gr.asarray([[0, 3]]), axis=1), x[:, [0, 3]])
    assert 3.0 in gr.asarray([1.0, 3.0])
    assert 2.0 not in gr.asarray([1.0, 3.0])


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays("f4", hnp.array_shapes(max_dims=3, min_side=0), elements=st.sampled_from([0, 1, 2]))
)
def test_found_indices_select_the_elements(x):
    t = gr.asarray(x)
    found = gr.nonzero(t)
    np.testing.assert_array_equal(t[found].numpy(), x[x != 0])
    close(t[t != 0], x[x != 0])
    unique = gr.unique_all(t)
    close(unique.values[unique.inverse_indices], x)
    close(gr.ravel(t)[unique.indices], unique.values.numpy())


BAD = {
    "shifts": (lambda x: gr.roll(x, (1, 2, 3), axis=(0, 1)), ValueError),
    "negative tile": (lambda x: gr.tile(x, -1), ValueError),
    "negative repeat": (lambda x: gr.repeat(x, [1, -1], axis=0), ValueError),
    "counts": (lambda x: gr.repeat(x, [1, 2, 3], axis=0), ValueError),
    "real counts": (lambda x: gr.repeat(x, gr.asarray([0.5, 1.0]), axis=0), TypeError),
    "moveaxis": (lambda x: gr.moveaxis(x, (0, 1), 0), ValueError),
    "moveaxis twice": (lambda x: gr.moveaxis(x, (0, 0), (0, 1)), ValueError),
    "rot90 in no plane": (lambda x: gr.rot90(x, 1, (0, 0)), ValueError),
    "triangle of a vector": (lambda x: gr.tril(x[0]), ValueError),
    "diagonal of one axis": (lambda x: gr.diagonal(x, 0, 1, 1), ValueError),
    "diag of three axes": (lambda x: gr.diag(x[None]), ValueError),
    "mode": (lambda x: gr.pad(x, 1, mode="mirror"), ValueError),
    "pad nothing": (lambda x: gr.pad(x[:0], 1, mode="edge"), ValueError),
    "negative diff": (lambda x: gr.diff(x, n=-1), ValueError),
    "meshgrid": (lambda x: gr.meshgrid(x, x), ValueError),
    "indexing": (lambda x: gr.meshgrid(x[0], indexing="yx"), ValueError),
    "parts": (lambda x: gr.array_split(x, 0), ValueError),
    "bincount of reals": (lambda x: gr.bincount(x[0]), TypeError),
    "bincount below zero": (lambda x: gr.bincount(gr.asarray([1, -1])), ValueError),
    "no bins": (lambda x: gr.histogram(x, 0), ValueError),
    "range backwards": (lambda x: gr.histogram(x, 2, (1.0, 0.0)), ValueError),
    "one edge": (lambda x: gr.histogram(x, gr.asarray([1.0])), ValueError),
    "condition too long": (lambda x: gr.compress([True] * 9, x, axis=0).eval(), IndexError),
    "lanes": (lambda x: gr.take_along_axis(x, gr.asarray([[0]] * 5), axis=1), ValueError),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_arguments_are_refused(name):
    f, error = BAD[name]
    with pytest.raises(error) as caught:
        f(gr.zeros([2, 3]))
    assert isinstance(caught.value, gr.GirihError)
