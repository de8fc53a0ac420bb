"""Right operands of GEMMs that are reused many times stay packed."""

import girih as gr
import numpy as np
import pytest

multiply = gr.compile(lambda x, w: x @ w)


def tensor(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return gr.asarray(values, copy=True).eval()


@pytest.mark.parametrize("m", [1, 3, 16, 33, 130, 1030])
@pytest.mark.parametrize(("k", "n"), [(300, 70), (64, 64), (1024, 300), (2100, 33)])
def test_packed_weights_change_no_bit(m, k, n):
    x, w = tensor(m, k), tensor(k, n, seed=1)
    results = [multiply(x, w).numpy().tobytes() for _ in range(5)]
    assert len(set(results)) == 1
    np.testing.assert_allclose(multiply(x, w).numpy(), x.numpy() @ w.numpy(), rtol=1e-4, atol=1e-3)


def test_transposed_and_sliced_weights_are_kept_apart():
    x, w = tensor(40, 128), tensor(256, 256, seed=1)
    ways = [
        gr.compile(lambda x, w: x @ w[:128]),
        gr.compile(lambda x, w: x @ w[128:]),
        gr.compile(lambda x, w: x @ w[:128, 7:]),
        gr.compile(lambda x, w: x @ w[:, :128].T),
        gr.compile(lambda x, w: x @ w[::2]),
    ]
    first = [way(x, w).numpy() for way in ways]
    for _ in range(4):
        for way, expected in zip(ways, first, strict=True):
            assert way(x, w).numpy().tobytes() == expected.tobytes()


def test_donated_weights_are_packed_anew():
    x, w = tensor(20, 512), tensor(512, 256, seed=1)
    halve = gr.compile(lambda w: w * 0.5, donate=0)
    expected = multiply(x, w).numpy()
    for _ in range(6):
        for _ in range(4):
            np.testing.assert_array_equal(multiply(x, w).numpy(), expected)
        before = w.numpy().__array_interface__["data"][0]
        w, expected = halve(w), expected * 0.5
        assert w.numpy().__array_interface__["data"][0] == before


def test_shared_memory_is_not_prepacked():
    values = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)
    x, w = tensor(20, 512), gr.asarray(values, copy=False)
    for _ in range(4):
        multiply(x, w)
    values *= 2
    np.testing.assert_allclose(multiply(x, w).numpy(), x.numpy() @ values, rtol=1e-4, atol=1e-3)
