"""Matrix products against NumPy, and functions of neural networks against SciPy."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import FLOATS, RTOL, close, sample
from scipy import special

PRODUCTS = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((1, 1), (1, 1)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)), ((3,), (5, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0, 2, 3), (3, 4)),
    ((65, 130), (130, 33)), ((1, 300), (300, 1)), ((300, 1), (1, 300)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64"])
@pytest.mark.parametrize(("a_shape", "b_shape"), PRODUCTS)
def test_matmul(a_shape, b_shape, dtype):
    a, b = sample(a_shape, dtype, 1, -2, 2), sample(b_shape, dtype, 2, -2, 2)
    want = np.asarray(a.astype("f8") @ b.astype("f8")).astype(dtype)
    tolerance = RTOL.get(dtype, 0) * 20
    close(gr.asarray(a) @ gr.asarray(b), want, tolerance, tolerance * 20)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matmul_of_views_and_with_epilogues(dtype):
    a, b, c = (sample((40, 40), dtype, s) for s in range(3))
    x, y, z = map(gr.asarray, (a, b, c))
    tolerance = RTOL[dtype] * 100
    cases = [
        (x.T @ y, a.T @ b), (x @ y.T, a @ b.T), (x[::2, ::-1] @ y[:, 3:7], a[::2, ::-1] @ b[:, 3:7]),
        (gr.relu(x @ y + z[0]), np.maximum(a @ b + c[0], 0)), ((x * 2) @ (y + 1), (a * 2) @ (b + 1)),
        (x @ y @ z, a @ b @ c), (x[0] @ y[:, 0], np.asarray(a[0] @ b[:, 0])),
    ]  # fmt: skip
    for got, want in cases:
        close(got, want, tolerance, tolerance * 100)


def test_matmul_propagates_nan_and_infinity():
    a = np.array([[np.nan, 0], [np.inf, 1]], "f4")
    close(gr.asarray(a) @ gr.zeros([2, 2]), np.array([[np.nan] * 2] * 2, "f4"))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis, dtype):
    x = sample((5, 7), dtype, low=-30, high=30)
    wide = x.astype("f8")
    close(
        gr.softmax(gr.asarray(x), axis=axis),
        special.softmax(wide, axis).astype(dtype),
        RTOL[dtype] * 20,
        1e-6,
    )
    close(
        gr.log_softmax(gr.asarray(x), dim=axis),
        special.log_softmax(wide, axis).astype(dtype),
        RTOL[dtype] * 4,
        RTOL[dtype] * 4,
    )
    close(
        gr.asarray(x).softmax(axis).sum(axis),
        np.ones(7 if axis == 0 else 5, dtype),
        RTOL[dtype] * 9,
    )


def test_softmax_of_large_and_of_infinite_values():
    x = np.array([[1e30, 1e30], [-np.inf, 0], [3e38, -3e38]], "f4")
    close(gr.softmax(gr.asarray(x), axis=1), np.array([[0.5, 0.5], [0, 1], [1, 0]], "f4"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu(dtype):
    x = sample((99,), dtype, low=-6, high=6)
    wide = x.astype("f8")
    exact = wide * special.ndtr(wide)
    tanh = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    close(gr.gelu(gr.asarray(x)), exact.astype(dtype), RTOL[dtype] * 8, RTOL[dtype])
    close(
        gr.gelu(gr.asarray(x), approximate="tanh"), tanh.astype(dtype), RTOL[dtype] * 8, RTOL[dtype]
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 5, 6)])
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(affine, shape, dtype):
    x = sample(shape, dtype)
    weight, bias = sample((6,), dtype, 1), sample((6,), dtype, 2)
    wide = x.astype("f8")
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    args = ()
    if affine:
        want = want * weight.astype("f8") + bias.astype("f8")
        args = (gr.asarray(weight), gr.asarray(bias))
    tolerance = RTOL[dtype] * 10
    close(gr.layer_norm(gr.asarray(x), [6], *args), want.astype(dtype), tolerance, tolerance)
    if shape == (2, 5, 6) and not affine:
        want = (wide - wide.mean((1, 2), keepdims=True)) / np.sqrt(
            wide.var((1, 2), keepdims=True) + 1e-5
        )
        close(gr.layer_norm(gr.asarray(x), (5, 6)), want.astype(dtype), tolerance, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy(dtype):
    logits = sample((4, 3, 5), dtype, low=-20, high=20)
    labels = sample((4, 3), "int64", low=0, high=4) % 5
    rows = -np.take_along_axis(special.log_softmax(logits.astype("f8"), -1), labels[..., None], -1)
    rows = rows[..., 0]
    for reduction, want in (("none", rows), ("sum", rows.sum()), ("mean", rows.mean())):
        got = gr.cross_entropy(gr.asarray(logits), gr.asarray(labels), reduction=reduction)
        close(got, np.asarray(want).astype(dtype), RTOL[dtype] * 9, RTOL[dtype] * 9)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_matmul_of_integers_keeps_the_dtype_and_wraps(dtype):
    a, b = sample((5, 70), dtype, 1), sample((70, 3), dtype, 2)
    close(gr.asarray(a) @ gr.asarray(b), a @ b)


def test_matmul_of_truth_values_counts():
    a = gr.ones([2, 300], dtype="bool") @ gr.ones([300], dtype="bool")
    assert a.dtype == gr.int64
    assert a.tolist() == [300, 300]
