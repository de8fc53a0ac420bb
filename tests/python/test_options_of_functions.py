"""Options of functions that NumPy, PyTorch and JAX have: dilated and flipped convolutions, resampling
without aliases, sinks of attention, weights of quantiles, softmax over several axes.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
import torch

RNG = np.random.default_rng(11)


def spread(x, distances):
    """The array with zeros between its elements along the spatial axes."""
    sizes = [max(0, (n - 1) * d + 1) for n, d in zip(x.shape[2:], distances, strict=True)]
    out = np.zeros((*x.shape[:2], *sizes), x.dtype)
    out[(..., *(slice(None, None, d) for d in distances))] = x
    return out


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("n", "distances"), [(1, (3,)), (2, (2, 3)), (2, (1, 2)), (3, (2, 1, 2))])
def test_convolutions_of_spread_tensors(n, distances, groups, flip):
    x = RNG.normal(size=(2, 4, *(5, 4, 3)[:n]))
    w = RNG.normal(size=(6, 4 // groups, *(3, 2, 2)[:n]))
    turned = np.flip(w, tuple(range(2, n + 2))).copy() if flip else w
    function = getattr(torch.nn.functional, f"conv{n}d")
    expected = function(
        torch.from_numpy(spread(x, distances)),
        torch.from_numpy(turned),
        padding=1,
        stride=2,
        groups=groups,
    )
    options = {
        "padding": 1,
        "stride": 2,
        "groups": groups,
        "input_dilation": distances,
        "flip": flip,
    }
    convolve = getattr(gr, f"conv{n}d")
    got = convolve(x, w, **options)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-9, atol=1e-9)
    slopes = gr.grad(lambda x, w: (convolve(x, w, **options) ** 2).sum(), (0, 1))(
        gr.asarray(x), gr.asarray(w)
    )
    x_t = torch.from_numpy(x).requires_grad_()
    w_t = torch.from_numpy(w).requires_grad_()
    at = torch.zeros(spread(x, distances).shape, dtype=torch.float64)
    at[(..., *(slice(None, None, d) for d in distances))] = x_t
    of = torch.flip(w_t, list(range(2, n + 2))) if flip else w_t
    (function(at, of, padding=1, stride=2, groups=groups) ** 2).sum().backward()
    for slope, like in zip(slopes, (x_t.grad, w_t.grad), strict=True):
        np.testing.assert_allclose(slope, like.numpy(), rtol=1e-8, atol=1e-8)


def test_spread_tensors_without_a_batch_and_of_size_one():
    x, w = RNG.normal(size=(3, 1)), RNG.normal(size=(2, 3, 1))
    np.testing.assert_allclose(gr.conv1d(x, w, input_dilation=4), gr.conv1d(x, w), rtol=1e-12)
    for bad in (0, -1, (1, 2)):
        with pytest.raises(gr.InvalidArgumentError, match="input_dilation"):
            gr.conv1d(x, w, input_dilation=bad)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (4, 2), (2, 4), (1, 1), (6, 6), (7, 1)])
@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", "bool", "float16"])
def test_convolve_is_numpys(mode, sizes, dtype):
    a, v = ((RNG.normal(size=n) * 3).astype(dtype) for n in sizes)
    if dtype == "complex128":
        a, v = a + 1j * RNG.normal(size=sizes[0]), v * (1 - 2j)
    expected = np.convolve(a, v, mode)
    got = gr.convolve(a, v, mode)
    assert got.dtype.name == expected.dtype.name
    np.testing.assert_allclose(
        got,
        expected,
        rtol=1e-2 if dtype == "float16" else 1e-10,
        atol=1e-2 if dtype == "float16" else 1e-12,
    )


def test_convolve_refuses_what_numpy_refuses():
    for bad in (([], [1.0]), ([1.0], []), ([[1.0]], [1.0])):
        with pytest.raises(gr.ShapeError):
            gr.convolve(*bad)
    with pytest.raises(gr.InvalidArgumentError, match="mode"):
        gr.convolve([1.0], [1.0], "wrap")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (7, 5), (13, 20), (2, 30)])
def test_resampling_without_aliases_is_pytorchs(mode, align_corners, size):
    x = RNG.normal(size=(2, 3, 13, 10))
    options = {"mode": mode, "align_corners": align_corners, "antialias": True}
    expected = torch.nn.functional.interpolate(torch.from_numpy(x), size, **options)
    got = gr.interpolate(x, size, **options)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-9, atol=1e-9)
    t = torch.from_numpy(x).requires_grad_()
    (torch.nn.functional.interpolate(t, size, **options) ** 2).sum().backward()
    slope = gr.grad(lambda x: (gr.interpolate(x, size, **options) ** 2).sum())(gr.asarray(x))
    np.testing.assert_allclose(slope, t.grad.numpy(), rtol=1e-7, atol=1e-9)


def test_resampling_without_aliases_by_factors_and_as_a_layer():
    x = RNG.normal(size=(1, 2, 9, 12)).astype(np.float32)
    for scale in (0.5, 0.3, 1.7):
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(x), scale_factor=scale, mode="bilinear", antialias=True
        )
        layer = gr.nn.Upsample(scale_factor=scale, mode="linear", antialias=True)
        np.testing.assert_allclose(layer(gr.asarray(x)), expected.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(gr.InvalidArgumentError, match="antialias"):
        gr.interpolate(x, (2, 2), antialias=True)


@pytest.mark.parametrize("mask", [None, "bool", "float", "batch"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_sinks_take_a_share_of_the_weights(mask, causal, kv_heads):
    q = RNG.normal(size=(2, 4, 5, 8))
    k, v = RNG.normal(size=(2, kv_heads, 6, 8)), RNG.normal(size=(2, kv_heads, 6, 3))
    sinks = RNG.normal(size=4)
    masks = {
        None: None,
        "bool": RNG.random((5, 6)) < 0.6,
        "float": RNG.normal(size=(5, 6)),
        "batch": RNG.random((2, 1, 5, 6)) < 0.6,
    }
    given = masks[mask]
    scores = np.einsum("bhne,bhme->bhnm", q, k.repeat(4 // kv_heads, 1)) * 0.3
    if given is not None:
        scores = np.where(given, scores, -np.inf) if given.dtype == bool else scores + given
    if causal:
        scores = np.where(np.tril(np.ones((5, 6), bool)), scores, -np.inf)
    whole = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (2, 4, 5, 1))], -1)
    weights = np.exp(whole - whole.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = weights[..., :-1] @ v.repeat(4 // kv_heads, 1)
    got = gr.scaled_dot_product_attention(q, k, v, given, is_causal=causal, scale=0.3, sinks=sinks)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_sinks_have_gradients_and_checked_shapes():
    q = gr.asarray(RNG.normal(size=(2, 3, 4)))
    f = lambda sinks: gr.scaled_dot_product_attention(q, q, q, sinks=sinks).sum()
    sinks = gr.asarray([0.0, 1.0])
    step = gr.asarray([1e-6, 0.0])
    slope = (
        f(sinks.astype(gr.float64) + step).item() - f(sinks.astype(gr.float64) - step).item()
    ) / 2e-6
    np.testing.assert_allclose(gr.grad(f)(sinks)[0].item(), slope, rtol=1e-4)
    one = gr.scaled_dot_product_attention(q[0], q[0], q[0], sinks=[0.0])
    np.testing.assert_allclose(one, gr.scaled_dot_product_attention(q, q, q, sinks=[0.0, 0.0])[0])
    for bad in (0.0, [0.0], [[0.0, 1.0]]):
        with pytest.raises(gr.ShapeError, match="sink"):
            f(gr.asarray(bad))
    with pytest.raises(gr.InvalidArgumentError, match="dropout"):
        gr.scaled_dot_product_attention(q, q, q, dropout_p=0.5, sinks=sinks)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), -1])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0, [0.1, 0.9]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_weighted_quantiles_are_numpys(axis, q, keepdims):
    x, weights = RNG.normal(size=(5, 7)), RNG.integers(0, 4, (5, 7)) + 0.0
    weights[0], weights[:, 0] = 1.0, 1.0
    options = {"weights": weights, "keepdims": keepdims}
    expected = np.quantile(x, q, axis=axis, method="inverted_cdf", **options)
    np.testing.assert_array_equal(gr.quantile(x, q, axis, **options), expected)
    percent = np.asarray(q) * 100
    np.testing.assert_array_equal(gr.percentile(x, percent, axis, **options), expected)
    if isinstance(axis, int):
        along = RNG.random(x.shape[axis])
        expected = np.quantile(x, q, axis=axis, method="inverted_cdf", weights=along)
        np.testing.assert_array_equal(gr.quantile(x, q, axis, weights=along), expected)


def test_weighted_quantiles_with_nan_and_without_weights():
    x = gr.asarray([1.0, np.nan, 3.0])
    assert gr.quantile(x, 0.5, weights=[1.0, 1.0, 1.0]).isnan().item()
    assert gr.nanquantile(x, 1.0, weights=[1.0, 9.0, 1.0]).item() == 3.0
    assert gr.quantile([1.0, 2.0], 0.5, weights=[0.0, 0.0]).isnan().item()
    assert gr.quantile(gr.zeros([0]), 0.5, weights=gr.zeros([0])).isnan().item()
    with pytest.raises(gr.ShapeError, match="weights"):
        gr.quantile([1.0, 2.0], 0.5, weights=[1.0, 2.0, 3.0])
    with pytest.raises(gr.InvalidArgumentError, match="inverted_cdf"):
        gr.quantile([1.0, 2.0], 0.5, weights=[1.0, 2.0], method="linear")


@pytest.mark.parametrize("axes", [(0, 2), (1, 2), (-1, 0), (0, 1, 2), (1,), ()])
def test_softmax_over_several_axes(axes):
    x = RNG.normal(size=(2, 3, 4)) * 3
    shares = np.exp(x - x.max(axes, keepdims=True)) if axes else np.ones_like(x)
    expected = shares / shares.sum(axes, keepdims=True)
    np.testing.assert_allclose(gr.softmax(x, axes), expected, rtol=1e-10)
    np.testing.assert_allclose(gr.asarray(x).softmax(axes), expected, rtol=1e-10)
    np.testing.assert_allclose(gr.log_softmax(x, axes), np.log(expected), rtol=1e-9, atol=1e-12)
    slope = gr.grad(lambda x: (gr.softmax(x, axes) ** 2).sum())(gr.asarray(x))
    inner = (
        (2 * expected - (2 * expected**2).sum(axes, keepdims=True)) * expected if axes else 0 * x
    )
    np.testing.assert_allclose(slope, inner, rtol=1e-8, atol=1e-12)
    with pytest.raises(gr.AxisError):
        gr.softmax(x, (0, 0))


def test_events_take_pytorchs_arguments():
    start, end = (gr.Event(enable_timing=True) for _ in range(2))
    start.record()
    gr.eval(gr.ones(10) + 1)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0.0
    assert gr.Event(enable_timing=False, blocking=True).query()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_layer_norm_with_a_bias_only(dtype):
    x, bias = gr.randn(2, 3, 4).astype(dtype), gr.randn(3, 4).astype(dtype)
    expected = gr.layer_norm(x, (3, 4), gr.ones([3, 4], dtype=dtype), bias)
    np.testing.assert_array_equal(
        gr.layer_norm(x, (3, 4), None, bias).astype(gr.float64), expected.astype(gr.float64)
    )
    with pytest.raises(gr.ShapeError):
        gr.layer_norm(x, (3, 4), None, gr.ones(4, dtype=dtype))
