"""Searches with a size: nothing is evaluated, so that they may be compiled."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

values = st.lists(st.integers(-2, 2), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(values, st.integers(0, 14), st.sampled_from(["int8", "float32", "bool", "uint64"]))
def test_nonzero_of_a_size(x, size, dtype):
    x = np.abs(np.array(x)).astype(dtype)
    found = np.flatnonzero(x)[:size]
    expected = np.concatenate([found, np.full(size - len(found), 7)])
    np.testing.assert_array_equal(gr.flatnonzero(x, size=size, fill_value=7), expected)
    (got,) = gr.compile(lambda x: gr.nonzero(x, size=size, fill_value=7))(gr.asarray(x))
    np.testing.assert_array_equal(got, expected)
    assert gr.asarray(x).nonzero(size=size)[0].is_lazy or size == 0


def test_nonzero_of_several_axes():
    x = np.array([[0, 1, 2], [3, 0, 0]])
    for size in (0, 2, 3, 6):
        expected = [np.concatenate([c[:size], np.full(max(0, size - 3), 0)]) for c in np.nonzero(x)]
        for got, wanted in zip(gr.nonzero(x, size=size), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(gr.argwhere(x, size=size), np.stack(expected, 1))
    assert gr.argwhere(gr.zeros([0, 3]), size=2, fill_value=-1).tolist() == [[-1, -1]] * 2
    with pytest.raises(gr.ShapeError):
        gr.nonzero(gr.asarray(1.0), size=1)
    with pytest.raises(gr.ShapeError):
        gr.nonzero(x, size=-1)


@settings(max_examples=60, deadline=None)
@given(values, st.integers(0, 14), st.sampled_from(["int8", "float32", "bool", "uint64"]))
def test_unique_of_a_size(x, size, dtype):
    x = np.abs(np.array(x)).astype(dtype)
    wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    compiled = gr.compile(lambda x: gr.unique(x, True, True, True, size=size))
    got = compiled(gr.asarray(x))
    for found, expected, fill in zip(
        got, wanted, (wanted[0][0], wanted[1][0], None, 0), strict=True
    ):
        if fill is not None:
            expected = np.concatenate(
                [expected[:size], np.full(max(0, size - len(expected)), fill)]
            )
        np.testing.assert_array_equal(found, expected.reshape(found.shape))
    assert got[0].dtype.name == dtype
    filled = gr.unique_values(x, size=size, fill_value=1).numpy()
    np.testing.assert_array_equal(filled[len(wanted[0]) :], np.ones(max(0, size - len(wanted[0]))))


def test_unique_of_a_size_with_nan_and_without_elements():
    x = gr.asarray([np.nan, 1.0, np.nan])
    np.testing.assert_array_equal(gr.unique(x, size=3), [1.0, np.nan, 1.0])
    np.testing.assert_array_equal(gr.unique(x, size=4, equal_nan=False), [1.0, np.nan, np.nan, 1.0])
    assert gr.unique_counts(gr.zeros([0]), size=2, fill_value=5.0).values.tolist() == [5.0, 5.0]
    assert gr.unique_all(gr.zeros([0]), size=0).values.shape == (0,)
    assert gr.unique_inverse(gr.asarray(4), size=1).inverse_indices.tolist() == 0
    with pytest.raises(gr.InvalidArgumentError, match="fill_value"):
        gr.unique(gr.zeros([0]), size=1)
    with pytest.raises(gr.InvalidArgumentError, match="axis"):
        gr.unique(gr.zeros([2, 2]), axis=0, size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 9), max_size=12), st.integers(0, 8))
def test_bincount_of_a_length(x, length):
    x = np.array(x, np.int64)
    kept = x[(x >= 0) & (x < length)]
    expected = np.bincount(kept, minlength=length)
    compiled = gr.compile(lambda x: gr.bincount(x, length=length))
    np.testing.assert_array_equal(compiled(gr.asarray(x)), expected)
    weights = np.arange(len(x)) * 0.5
    expected = np.bincount(kept, weights[(x >= 0) & (x < length)], minlength=length)
    np.testing.assert_allclose(gr.bincount(x, weights, length=length), expected)


def test_bincount_of_a_length_refuses_what_bincount_refuses():
    assert gr.bincount(np.array([2**64 - 1, 1], np.uint64), length=2).tolist() == [0, 1]
    with pytest.raises(gr.DTypeError):
        gr.bincount([0.5], length=1)
    with pytest.raises(gr.ShapeError):
        gr.bincount([[1]], length=1)
    with pytest.raises(gr.ShapeError):
        gr.bincount([1, 2], [1.0], length=1)
