"""Padding of large tensors, whose border is filled apart from the operand, against NumPy."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

LARGE_PADS = [
    ((300, 500), ((1, 1), (1, 1))),
    ((300, 500), ((0, 3), (2, 0))),
    ((3, 40, 900), ((1, 0), (1, 1), (2, 1))),
    ((3, 40, 900), ((0, 0), (0, 0), (0, 5))),
    ((3, 40, 900), ((2, 1), (0, 0), (0, 0))),
    ((70000,), ((3, 4),)),
    ((2, 3, 20, 1500), ((0, 0), (0, 0), (1, 1), (1, 1))),
    ((300, 1), ((1, 1), (800, 2))),
]


@pytest.mark.parametrize(("shape", "widths"), LARGE_PADS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_large_pads_fill_their_border(shape, widths, dtype):
    a = (np.arange(np.prod(shape)).reshape(shape) % 7 + 1).astype(dtype)
    expected = np.pad(a, widths, constant_values=1)
    x = gr.asarray(a)
    np.testing.assert_array_equal(gr.pad(x, widths, value=1).numpy(), expected)
    with gr.without_passes("borders"):
        np.testing.assert_array_equal(gr.pad(x, widths, value=1).numpy(), expected)
    # The value that is padded may be computed by the kernel that stores it, and be used again.
    y = gr.pad(x, widths, value=1)
    np.testing.assert_array_equal((gr.where(y != 1, y, y)).numpy(), expected)


def test_a_border_is_one_small_kernel():
    x = gr.asarray(np.ones((300, 500), np.float32))
    border, inside = gr.explain(gr.pad(x * 2, 1)).kernels
    assert (border["name"], inside["name"]) == ("pad_border", "fused_mul_pad")
    # 302 rows of 502 elements around 300 rows of 500.
    assert border["traffic"]["bytes_written"] == 4 * (302 * 502 - 300 * 500)
    with gr.without_passes("borders"):
        assert gr.explain(gr.pad(x * 3, 1)).kernels[0]["name"] == "pad_fill"


def test_the_value_may_be_a_tensor_of_one_number():
    x = gr.asarray([1, 2], dtype=gr.int8)
    value = gr.asarray(7)
    assert gr.pad(x, (1, 2), constant_values=value).tolist() == [7, 1, 2, 7, 7]
    assert gr.pad(x, 1, constant_values=value).dtype == gr.int8
    f = gr.compile(lambda x, v: gr.pad(x, 1, constant_values=v))
    assert f(gr.ones(1), gr.asarray(3.0)).tolist() == [3.0, 1.0, 3.0]
    slope = gr.grad(lambda v: gr.pad(gr.ones([2, 2]), 1, constant_values=v).sum())
    assert slope(gr.asarray(2.0)).item() == 12.0
    many = gr.vmap(lambda x, v: gr.pad(x, 1, constant_values=v))
    assert many(gr.ones([2, 1]), gr.asarray([3.0, 4.0])).tolist() == [
        [3.0, 1.0, 3.0],
        [4.0, 1.0, 4.0],
    ]
    with pytest.raises(gr.ShapeError, match="one number"):
        gr.pad(x, 1, constant_values=gr.asarray([1, 2]))
