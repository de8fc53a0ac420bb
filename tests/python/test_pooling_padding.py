"""Poolings with padding of the window's size or larger, which convolutions support, too."""

from __future__ import annotations

from math import inf, nan

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih.nn import functional as F

# By name: the padding, and its pairs per axis.
PADDINGS = {
    "as large": (2, [(2, 2), (2, 2)]),
    "larger": (5, [(5, 5), (5, 5)]),
    "one axis": ((7, 0), [(7, 7), (0, 0)]),
    "uneven": ([(4, 0), (0, 9)], [(4, 0), (0, 9)]),
}
STRIDES = [1, (2, 3)]


def windows(x, pairs, stride, fill, size=(2, 2)):
    """The windows of the last two axes, padded with ``fill``, as two new last axes."""
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + pairs, constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, size, (-2, -1))
    rows, columns = (stride, stride) if isinstance(stride, int) else stride
    return view[..., ::rows, ::columns, :, :]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("name", PADDINGS)
def test_max_pooling_over_padding_gives_the_least_value(name, stride, dtype):
    padding, pairs = PADDINGS[name]
    x = sample((2, 3, 4), dtype, low=1, high=9)
    least = -inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min
    want = windows(x, pairs, stride, least).max((-2, -1))
    close(F.max_pool2d(gr.asarray(x), 2, stride, padding), want, 0)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("name", PADDINGS)
def test_means_count_the_zeros_of_the_padding_or_only_elements(name, stride):
    padding, pairs = PADDINGS[name]
    x = sample((2, 3, 4), "float64")
    sums = windows(x, pairs, stride, 0).sum((-2, -1))
    counts = windows(np.ones_like(x), pairs, stride, 0).sum((-2, -1))
    t = gr.asarray(x)
    close(F.avg_pool2d(t, 2, stride, padding), sums / 4, 1e-12)
    close(F.avg_pool2d(t, 2, stride, padding, divisor_override=3), sums / 3, 1e-12)
    with np.errstate(invalid="ignore"):
        # The mean of no elements is NaN, as in NumPy.
        close(F.avg_pool2d(t, 2, stride, padding, count_include_pad=False), sums / counts, 1e-12)
    norm = (windows(np.abs(x), pairs, stride, 0) ** 3).sum((-2, -1)) ** (1 / 3)
    close(F.lp_pool2d(abs(t), 3, 2, stride, padding=padding), norm, 1e-12)


@pytest.mark.parametrize("padding", [3, "same", "valid", [(6, 1)]])
def test_a_mean_is_a_convolution_with_the_same_padding(padding):
    x = gr.asarray(sample((1, 1, 7), "float64"))
    kernel = gr.full([1, 1, 3], 1 / 3, dtype=gr.float64)
    close(F.avg_pool1d(x, 3, 1, padding), gr.conv1d(x, kernel, padding=padding).numpy(), 1e-12)


def test_an_axis_without_elements():
    x = gr.ones([2, 0])
    assert F.max_pool1d(x, 2, 1, 1).tolist() == [[-inf], [-inf]]
    assert F.avg_pool1d(x, 2, 1, 1).tolist() == [[0.0], [0.0]]
    assert gr.grad(lambda x: F.avg_pool1d(x, 2, 1, 1).sum())(x).shape == (2, 0)
    assert gr.grad(lambda x: F.max_pool1d(x, 2, 1, 1).sum())(x).shape == (2, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_places_of_windows_of_padding(dtype):
    x = gr.asarray(np.array([[3, 1, 2]], dtype))
    largest, places = F.max_pool1d_with_indices(x, 2, 1, 3)
    close(largest, F.max_pool1d(x, 2, 1, 3).numpy())
    assert places.tolist() == [[-1, -1, 0, 0, 2, 2, -1, -1]]
    back = F.max_unpool1d(largest, places, 2, output_size=3)
    assert back.tolist() == [[3, 0, 2]]
    with pytest.raises(gr.IndexOutOfBoundsError):
        F.max_unpool1d(x, gr.asarray([[0, -2, 1]]), 2, output_size=3).eval()


def test_places_where_gaps_of_a_window_meet_padding():
    # The window's first element is padding, with the same value as the window's valid element.
    x = gr.asarray([[5.0, 1.0, -inf]])
    largest, places = F.max_pool1d_with_indices(x, 2, 1, 1, dilation=3)
    assert (largest.tolist(), places.tolist()) == ([[-inf, 5.0]], [[2, 0]])


def test_gradients():
    of = lambda f: lambda x: (f(x) * gr.arange(1.0, 1 + f(x).size)).sum()
    largest, mean = of(lambda x: F.max_pool1d(x, 2, 1, 3)), of(lambda x: F.avg_pool1d(x, 2, 1, 3))
    x = gr.asarray([3.0, 1.0, 2.0])
    assert gr.grad(largest)(x).tolist() == [3 + 4, 0, 5 + 6]
    assert gr.grad(mean)(x).tolist() == [3.5, 4.5, 5.5]
    # The padding equals these elements, which get the gradient.
    low = gr.full([2], -inf)
    assert gr.grad(lambda x: F.max_pool1d(x, 2, 1, 1).sum())(low).tolist() == [2, 1]
    some = gr.asarray([nan, 1.0])
    assert gr.grad(lambda x: F.max_pool1d(x, 3, 1, 2).sum())(some).tolist() == [3, 1]


@pytest.mark.parametrize("pool", [F.max_pool1d, F.avg_pool1d])
def test_padding_that_cannot_be_addressed(pool):
    with pytest.raises(gr.ShapeError, match=r"pool1d: .*more bytes than can be addressed"):
        pool(gr.ones([1, 4]), 2, 2**60, padding=2**60)
    with pytest.raises(gr.ShapeError, match=r"conv1d: .*more bytes than can be addressed"):
        gr.conv1d(gr.ones([1, 1, 4]), gr.ones([1, 1, 2]), stride=2**60, padding=2**60)
