"""Tensors of a gigabyte stream through a device with 64 MB of memory, tile by tile."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

MEMORY = 64 << 20
R = np.random.default_rng(7)


@pytest.fixture(scope="module")
def gigabyte() -> gr.Tensor:
    """2^28 numbers, 1 GB, in the host's memory."""
    return gr.asarray(R.standard_normal((1 << 18, 1 << 10), np.float32), device="cpu")


@pytest.fixture
def small():
    device = gr.device("mock:memory=64M")
    yield device
    assert gr.memory_stats(device).peak <= MEMORY


def test_an_elementwise_function_of_a_gigabyte(gigabyte, small):
    with gr.device(small):
        found = gr.compile(lambda x: x * 2 + 1, tile={0: {0: 2048}})(gigabyte)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(gigabyte) * 2 + 1)


def test_a_sum_of_a_gigabyte(gigabyte, small):
    with gr.device(small):
        found = gr.compile(lambda x: x.sum(axis=0), tile={0: {0: 2048}})(gigabyte)
    expected = np.asarray(gigabyte).sum(axis=0, dtype=np.float64)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-2)


def test_a_product_of_a_gigabyte(gigabyte, small):
    weights = R.standard_normal((1 << 10, 300), np.float32)
    with gr.device(small):
        f = gr.compile(gr.matmul, tile={0: {0: 4096, 1: 512}, 1: {0: 512, 1: 150}})
        found = f(gigabyte, gr.asarray(weights, device="cpu"))
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(gigabyte) @ weights, rtol=1e-3, atol=1e-3
    )
