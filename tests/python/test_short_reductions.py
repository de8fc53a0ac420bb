"""Reductions over few elements: for every memory layout, and for all lengths up to those with loops
along the elements, results are NumPy's; sums have the same bits in every layout.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

LENGTHS = [*range(1, 18), 31, 32, 33]
DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int16", "int32", "int64", "bool"]


def rows(points, length, dtype):
    """Rows of which some have non-finite values, and some only zeros of both signs."""
    x = np.random.default_rng(length).standard_normal((points, length)) * 20
    if np.dtype(dtype).kind == "f":
        x[1::7, -1] = np.nan
        x[2::7, 0] = np.inf
        x[3::7, length // 2] = -np.inf
        x[4::7] = np.where(np.arange(length) % 2, 0.0, -0.0)
        x[5::7] = -0.0
    return x.astype(dtype)


def lain(x):
    """The rows as tensors: dense, transposed, sliced from longer rows, reversed."""
    yield gr.asarray(x)
    yield gr.asarray(np.ascontiguousarray(x.T)).T
    wide = np.concatenate([x[:, :1], x, x], axis=1)
    yield gr.asarray(wide)[:, 1 : 1 + x.shape[1]]
    yield gr.asarray(np.ascontiguousarray(x[:, ::-1]))[:, ::-1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("points", [15, 16, 101])
def test_short_reductions_agree_with_numpy_in_every_layout(name, dtype, points):
    if dtype == "bool" and name in ("sum", "prod", "max", "min", "argmax", "argmin"):
        return
    for length in LENGTHS:
        x = rows(points, length, dtype)
        with np.errstate(all="ignore"):
            kind = np.dtype(dtype).kind
            exact = name in ("max", "min", "argmax", "argmin", "any", "all") or kind != "f"
            of = x if exact else x.astype("float64")
            want = getattr(np, name)(of, axis=1)
        results = [np.asarray(getattr(gr, name)(t, axis=1)) for t in lain(x)]
        for got in results:
            if exact:
                np.testing.assert_array_equal(got.astype(want.dtype), want)
            else:
                relative = 2e-2 if dtype == "float16" else 1e-4
                with np.errstate(all="ignore"):
                    np.testing.assert_allclose(got, want.astype(dtype), relative, 1e-3)
        if name == "sum":
            bits = {np.where(np.isnan(r), 0, r).tobytes() for r in results} if kind == "f" else {0}
            assert len(bits) == 1, length


def test_short_reductions_fuse_their_prologue_and_epilogue():
    x, y = rows(300, 3, "float32")[6::7], rows(300, 3, "float32")[6::7, 0]
    got = gr.sqrt(((gr.asarray(x)[None] - gr.asarray(x)[:, None]) ** 2).sum(2)) + gr.asarray(y)
    want = np.sqrt(((x[None].astype("float64") - x[:, None]) ** 2).sum(2)) + y
    np.testing.assert_allclose(got.numpy(), want, 1e-5, 1e-4)


@pytest.mark.parametrize("length", [2, 5, 10, 32])
def test_softmax_over_a_few_elements_keeps_what_it_sums(length):
    x = np.random.default_rng(0).standard_normal((500, length)).astype("float32")
    e = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    np.testing.assert_allclose(gr.softmax(x, -1).numpy(), e / e.sum(1, keepdims=True), 1e-5, 1e-7)
    logs = gr.logsumexp(gr.asarray(x), axis=1).numpy()
    np.testing.assert_allclose(logs, np.log(e.sum(1)) + x.max(1), 1e-5, 1e-6)


@pytest.mark.parametrize("size", [56, 57])
def test_threads_change_no_bit_of_a_pooling_and_its_gradient(size):
    x = gr.asarray(np.random.default_rng(0).standard_normal((4, 8, size, size), "float32"))
    loss = lambda x: (
        (gr.max_pool2d(x, 3, stride=2, padding=1) ** 2).sum()
        + (gr.avg_pool2d(x, 3, stride=2, padding=1) ** 2).sum()
    )
    results = []
    for threads in (1, 3):
        gr.set_num_threads(threads)
        value, gradient = gr.value_and_grad(loss)(x)
        results.append((value.numpy().tobytes(), gradient.numpy().tobytes()))
    gr.set_num_threads(2)
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint16", "int64"])
@pytest.mark.parametrize("index", ["int8", "int32", "int64"])
def test_rows_are_written_in_order_in_every_mode(name, dtype, index):
    generator = np.random.default_rng(3)
    x = generator.integers(1, 5, (9, 37)).astype(dtype)
    at = generator.integers(-9, 9, 40).astype(index)
    value = generator.integers(1, 3, (40, 37)).astype(dtype)
    got = getattr(gr.asarray(x).at[gr.asarray(at)], name)(gr.asarray(value))
    combine = {"set": lambda _, v: v, "min": np.minimum, "max": np.maximum}.get(name)
    combine = combine or getattr(np, name)
    want = x.copy()
    with np.errstate(over="ignore"):
        for i, v in zip(at, value, strict=True):
            want[i] = combine(want[i], v)
    np.testing.assert_array_equal(got.numpy(), want)
