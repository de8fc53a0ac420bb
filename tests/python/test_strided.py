"""`as_strided` against NumPy: reads, writes, and errors."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

CASES = [
    ((12,), (3, 4), (4, 1), 0),
    ((3, 4), (2, 2, 2), (1, 4, 1), 2),
    ((5,), (3, 3), (1, 1), 0),
    ((5,), (4,), (0,), 3),
    ((5,), (), (), 4),
    ((5,), (0, 7), (100, 100), 99),
    ((), (1, 1), (5, 5), 0),
]


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [((6,), (-1,), 5), ((3, 2), (-2, 1), 4), ((2, 3), (3, -1), 2), ((1,), (-9,), 0)],
)
def test_negative_strides_run_backwards(size, stride, offset):
    x = np.arange(6.0, dtype="float32")
    bytes_ = tuple(s * x.itemsize for s in stride)
    want = np.lib.stride_tricks.as_strided(x[offset:], size, bytes_)
    got = gr.as_strided(gr.asarray(x), size, stride, offset)
    np.testing.assert_array_equal(got.numpy(), want)
    with pytest.raises(gr.InvalidArgumentError, match="reach element -1, but the tensor has 6"):
        gr.as_strided(gr.asarray(x), (2,), (-1,), 0)


@pytest.mark.parametrize(("shape", "size", "stride", "offset"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
def test_as_strided(shape, size, stride, offset, dtype):
    x = (np.arange(np.prod(shape, dtype=int)) % 5).reshape(shape).astype(dtype)
    flat = x.reshape(-1)[min(offset, x.size) :]
    bytes_ = tuple(s * x.itemsize for s in stride)
    want = np.lib.stride_tricks.as_strided(flat, size, bytes_)
    got = gr.as_strided(gr.asarray(x), size, stride, offset)
    assert got.dtype.name == dtype
    np.testing.assert_array_equal(got.numpy(), want.copy() if want.size else np.zeros(size, dtype))


def test_as_strided_of_a_transposed_tensor_uses_row_major_order():
    x = gr.asarray(np.arange(6.0).reshape(2, 3)).T
    assert gr.as_strided(x, (3,), (1,)).tolist() == [0.0, 3.0, 1.0]


def test_gradients_add_up_where_elements_overlap():
    x = gr.asarray(np.arange(4.0))
    grad = gr.grad(lambda x: gr.as_strided(x, (3, 2), (1, 1)).sum())(x)
    assert grad.tolist() == [1.0, 2.0, 2.0, 1.0]


def test_as_strided_scatter():
    x = gr.asarray(np.zeros((2, 3)))
    got = gr.as_strided_scatter(x, gr.asarray([[1.0, 2.0], [3.0, 4.0]]), (2, 2), (3, 1), 1)
    assert got.tolist() == [[0, 1, 2], [0, 3, 4]]
    last = gr.as_strided_scatter(gr.asarray(np.zeros(2)), gr.asarray([1.0, 2.0]), (2,), (0,), 1)
    assert last.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("size", "stride", "offset", "message"),
    [
        ((3,), (2,), 0, "reach element 4, but the tensor has 4"),
        ((1,), (1,), 4, "reach element 4"),
        ((2, 2), (1,), 0, "1 strides are given for 2 sizes"),
        ((2**40,), (2**40,), 0, "reach element"),
    ],
)
def test_views_outside_the_memory_are_refused(size, stride, offset, message):
    with pytest.raises(gr.InvalidArgumentError, match=message):
        gr.as_strided(gr.asarray(np.zeros(4)), size, stride, offset)


def test_a_source_of_another_shape_is_refused():
    with pytest.raises(gr.ShapeError):
        gr.as_strided_scatter(gr.zeros(4), gr.ones(3), (2,), (1,))


def test_a_barrier_keeps_values_structure_and_derivatives():
    x = gr.asarray(np.linspace(-1, 1, 5))
    tree = gr.optimization_barrier({"a": x.sin(), "b": [x, 2.0]})
    np.testing.assert_array_equal(tree["a"].numpy(), x.sin().numpy())
    assert tree["b"][1].item() == 2.0
    assert gr.optimization_barrier([]) == []
    f = lambda x: gr.exp(gr.optimization_barrier(gr.sin(x))).sum()
    plain = lambda x: gr.exp(gr.sin(x)).sum()
    np.testing.assert_allclose(gr.grad(f)(x).numpy(), gr.grad(plain)(x).numpy(), rtol=1e-15)
    tangent = gr.jvp(f, (x,), (gr.ones_like(x),))[1]
    np.testing.assert_allclose(tangent.item(), gr.grad(plain)(x).sum().item(), rtol=1e-14)
    rows = gr.asarray(np.linspace(-1, 1, 6).reshape(2, 3))
    batched = gr.vmap(f)(rows).numpy()
    np.testing.assert_allclose(batched, [f(row).item() for row in rows], rtol=1e-15)


def test_equal_computations_on_both_sides_of_a_barrier_are_not_shared():
    def explained(barrier):
        x = gr.zeros(4)
        return str(gr.explain(gr.sin(x) + gr.sin(barrier(x))))

    assert "fused_sin_sin_add" in explained(gr.optimization_barrier)
    assert "fused_sin_sin_add" not in explained(lambda x: x)
