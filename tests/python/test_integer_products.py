"""Products of integer matrices: NumPy's results, with casts and epilogues in one kernel."""

from __future__ import annotations

from typing import Any

import girih as gr
import numpy as np
import pytest

BYTES = (np.int8, np.uint8)


def draw(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers from the whole range of the dtype, including its ends."""
    limits = np.iinfo(dtype)
    out = np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    out.flat[:2] = limits.min, limits.max
    return out


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"])
@pytest.mark.parametrize("m", [1, 5, 40])
def test_products_wrap_as_numpys_do(dtype: str, m: int) -> None:
    x, w = draw(1, (m, 130), dtype), draw(2, (130, 70), dtype)
    product = gr.asarray(x) @ gr.asarray(w)
    assert product.dtype == getattr(gr, dtype)
    np.testing.assert_array_equal(product.numpy(), x @ w)
    across = gr.asarray(x) @ gr.asarray(w.T.copy()).T
    np.testing.assert_array_equal(across.numpy(), x @ w)


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("m", [1, 16, 33])
def test_bytes_are_summed_in_32_bits_without_a_pass_of_their_own(
    left: Any, right: Any, m: int
) -> None:
    x, w = draw(3, (m, 200), left), draw(4, (200, 50), right)
    product = gr.asarray(x).astype(gr.int32) @ gr.asarray(w).astype(gr.int32)
    assert [k["name"] for k in gr.explain(product).kernels] == ["fused_cast_cast_matmul"]
    np.testing.assert_array_equal(product.numpy(), x.astype(np.int32) @ w.astype(np.int32))


def test_a_quantised_layer_is_one_kernel() -> None:
    x, w = draw(5, (20, 96), np.uint8), draw(6, (64, 96), np.int8)
    scale = np.random.default_rng(7).random(64, np.float32)
    bias = np.random.default_rng(8).standard_normal(64, np.float32)
    wide = gr.asarray(x).astype(gr.int32) @ gr.asarray(w).astype(gr.int32).T
    layer = wide.astype(gr.float32) * gr.asarray(scale) + gr.asarray(bias)
    assert len(gr.explain(layer).kernels) == 1
    want = (x.astype(np.int32) @ w.astype(np.int32).T).astype(np.float32) * scale + bias
    np.testing.assert_allclose(layer.numpy(), want, rtol=1e-6)


def test_convolutions_of_bytes_read_bytes() -> None:
    x, w = draw(9, (2, 3, 12, 12), np.int8), draw(10, (8, 3, 3, 3), np.int8)
    f = gr.nn.functional.conv2d
    wide = f(gr.asarray(x).astype(gr.int32), gr.asarray(w).astype(gr.int32))
    want = f(gr.asarray(x.astype(np.float64)), gr.asarray(w.astype(np.float64)))
    np.testing.assert_array_equal(wide.numpy(), want.numpy())
