"""Arguments by the names of several libraries; sparse grids, counts of a fixed length, gather."""

from __future__ import annotations

import functools

import girih as gr
import numpy as np
import pytest
import torch

X = np.random.default_rng(0).normal(size=(3, 4))


@pytest.mark.parametrize("name", ["std", "var", "nanstd", "nanvar"])
def test_what_the_divisor_lacks(name):
    want = getattr(np, name)(X, axis=0, ddof=1)
    for options in ({"ddof": 1}, {"correction": 1}, {"unbiased": True}):
        np.testing.assert_allclose(getattr(gr, name)(X, 0, **options).numpy(), want)
        np.testing.assert_allclose(getattr(gr.asarray(X), name)(0, **options).numpy(), want)
    np.testing.assert_allclose(getattr(gr, name)(X, unbiased=False).numpy(), getattr(np, name)(X))
    np.testing.assert_allclose(
        getattr(gr, name)(X, ddof=0.5).numpy(), getattr(np, name)(X, ddof=0.5)
    )
    with pytest.raises(gr.InvalidArgumentError, match=f"{name}: correction, ddof and unbiased are"):
        getattr(gr, name)(X, ddof=1, unbiased=True)
    with pytest.raises(gr.DTypeError, match="a number is expected"):
        getattr(gr, name)(X, ddof="one")


def test_names_of_pytorch():
    np.testing.assert_allclose(gr.linspace(0, 1, steps=5).numpy(), torch.linspace(0, 1, steps=5))
    t = torch.from_numpy(X)
    for k in (-1, 0, 2):
        for name in ("tril", "triu", "diag"):
            want = getattr(torch, name)(t, diagonal=k).numpy()
            np.testing.assert_array_equal(getattr(gr, name)(X, diagonal=k).numpy(), want)
            np.testing.assert_array_equal(getattr(gr, name)(X, k).numpy(), want)
            np.testing.assert_array_equal(getattr(gr, name)(X, k=k).numpy(), want)
    np.testing.assert_array_equal(gr.diagflat([1, 2], offset=1).numpy(), np.diagflat([1, 2], 1))
    np.testing.assert_array_equal(gr.flip(X, dims=[0]).numpy(), torch.flip(t, dims=[0]))
    np.testing.assert_array_equal(gr.asarray(X).flip(dims=(0, 1)).numpy(), t.flip(dims=(0, 1)))
    np.testing.assert_array_equal(gr.roll(X, 1, dims=0).numpy(), torch.roll(t, 1, dims=0))
    np.testing.assert_array_equal(gr.diff(X, dim=0).numpy(), torch.diff(t, dim=0))
    parts = zip(gr.array_split(X, 3, dim=1), torch.tensor_split(t, 3, dim=1), strict=True)
    assert all((a.numpy() == b.numpy()).all() for a, b in parts)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sizes", [(), (3,), (2, 3), (2, 0, 4), (1, 3, 2, 2)])
def test_sparse_grids(indexing, sizes):
    vectors = [np.arange(size, dtype=float) for size in sizes]
    want = np.meshgrid(*vectors, indexing=indexing, sparse=True)
    got = gr.meshgrid(*vectors, indexing=indexing, sparse=True)
    assert [g.shape for g in got] == [w.shape for w in want]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g.numpy(), w)
    dense = gr.meshgrid(*vectors, indexing=indexing)
    for g, w in zip(dense, np.meshgrid(*vectors, indexing=indexing), strict=True):
        np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize("length", [0, 1, 3, 9])
def test_counts_of_a_fixed_length(dtype, length):
    x = np.array([0, 5, 1, 1, 2, 200 if dtype == "uint8" else 100], dtype)
    want = np.bincount(x.astype(int), minlength=length)[:length]
    np.testing.assert_array_equal(gr.bincount(x, length=length).numpy(), want)
    weights = np.linspace(0, 1, 6, dtype=np.float32)
    want = np.bincount(x.astype(int), weights, minlength=length)[:length]
    got = gr.bincount(x, weights, length=length)
    assert got.dtype == gr.float32
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def test_counts_of_a_fixed_length_are_recorded():
    x = np.array([3, -1, 0, 3, 4])
    counts = gr.compile(lambda v, w: gr.bincount(v, w, length=4))
    np.testing.assert_array_equal(counts(x, np.ones(5, np.float32)).numpy(), [1, 0, 0, 2])
    slopes = gr.grad(lambda w: (gr.bincount(x, w, length=4) * gr.arange(4.0)).sum())(gr.ones(5))
    assert slopes.tolist() == [3.0, 0.0, 0.0, 3.0, 0.0]
    many = gr.vmap(lambda v: gr.bincount(v, length=3))(gr.asarray([[0, 1], [2, 2]]))
    assert many.tolist() == [[1, 1, 0], [0, 0, 2]]
    with pytest.raises(gr.GirihError, match="bincount"):
        gr.bincount(x, length=-1)
    with pytest.raises(gr.DTypeError, match=r"bincount: .*integers"):
        gr.bincount([0.5], length=3)
    with pytest.raises(gr.ShapeError, match="the weights must have the tensor's shape"):
        gr.bincount(x, [1.0], length=3)


def test_gather_takes_the_axis_first_too():
    index = np.array([[0], [3], [1]])
    want = np.take_along_axis(X, index, 1)
    x, i = gr.asarray(X), gr.asarray(index)
    calls = [
        lambda: x.gather(1, i), lambda: x.gather(i, 1), lambda: x.gather(dim=1, index=i),
        lambda: x.gather(i, axis=1), lambda: x.gather(1, index=i), lambda: gr.gather(x, 1, i),
        lambda: gr.gather(x, i, 1), lambda: gr.gather(x, i), lambda: gr.gather(X, index, -1),
        lambda: gr.gather(X, 1, index), lambda: gr.gather(X, np.int64(1), index),
    ]  # fmt: skip
    for call in calls:
        np.testing.assert_array_equal(call().numpy(), want)
    with pytest.raises(gr.InvalidArgumentError, match="gather: give the indices"):
        x.gather()
    with pytest.raises(gr.InvalidArgumentError, match="gather: give the indices"):
        x.gather(i, i)
    with pytest.raises(gr.AxisError):
        x.gather(7, i)


def test_an_axis_that_is_given_twice_is_an_error():
    calls = {
        "chunk": lambda **o: gr.chunk(X, 2, **o),
        "unflatten": lambda **o: gr.unflatten(X, sizes=(1, -1), **o),
        "unique_consecutive": lambda **o: gr.unique_consecutive(X, **o),
        "aminmax": lambda **o: gr.aminmax(X, **o),
        "std_mean": lambda **o: gr.std_mean(X, **o),
        "var_mean": lambda **o: gr.var_mean(X, **o),
        "mode": lambda **o: gr.mode(X, **o),
        "kthvalue": lambda **o: gr.kthvalue(X, 1, **o),
        "diff": lambda **o: gr.diff(X, **o),
        "array_split": lambda **o: gr.array_split(X, 2, **o),
    }
    for name, call in calls.items():
        axis = 0 if name == "diff" else 1
        call(axis=axis)
        call(dim=1)
        with pytest.raises(gr.InvalidArgumentError, match=f"{name}: axis and dim are two"):
            call(axis=axis, dim=1)
    for name in ("roll", "flip"):
        call = functools.partial(getattr(gr, name), X, *([1] if name == "roll" else []))
        call(axis=1)
        call(dims=1)
        with pytest.raises(gr.InvalidArgumentError, match=f"{name}: axis and dim are two"):
            call(axis=1, dims=1)
    with pytest.raises(gr.InvalidArgumentError, match="flip: axis and dim are two"):
        gr.flip(X, dim=0, dims=0)
