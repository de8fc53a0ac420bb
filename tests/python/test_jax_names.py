"""``jax.nn``'s functions under its names: in ``gr.nn``, and those that no other library has."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

X = np.concatenate([np.linspace(-4, 4, 41), [0.0, -1.0, 1.0, 1e-8, 1e4, -1e4]])
F = gr.nn.functional
FORMULAS = {
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.where(x <= -1, 0, np.where(x >= 1, 1, (x + 1) / 2)),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name):
    with np.errstate(over="ignore"):
        want = FORMULAS[name](X)
    got = getattr(gr.nn, name)(X).numpy()
    # Below 0 the formula of squareplus cancels.
    rtol, kept = (1e-12, X > -10) if name == "squareplus" else (1e-14, X == X)
    np.testing.assert_allclose(got[kept], want[kept], rtol=rtol, atol=1e-15)
    assert getattr(gr.nn, name)([1, 2]).dtype in (gr.float32, gr.int64)
    assert getattr(gr.nn, name)(gr.zeros(0)).shape == (0,)


def test_squareplus_does_not_cancel():
    got = gr.nn.squareplus(np.array([-1e6])).item()
    np.testing.assert_allclose(got, 1e-6, rtol=1e-9)
    assert gr.nn.squareplus([-2.0, 0.0, 2.0], 0.0).tolist() == [0.0, 0.0, 2.0]


def test_log1mexp():
    x = np.concatenate([np.geomspace(1e-300, 700, 200), [np.log(2)]])
    with np.errstate(divide="ignore"):
        want = np.where(x < 0.5, np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))
    np.testing.assert_allclose(gr.nn.log1mexp(x).numpy(), want, rtol=1e-14)
    assert gr.nn.log1mexp([0.0]).item() == -np.inf
    assert np.isnan(gr.nn.log1mexp([-1.0]).item())
    for at in (0.1, 0.69, 2.0):
        slope = gr.grad(gr.nn.log1mexp)(gr.asarray(at, gr.float64)).item()
        np.testing.assert_allclose(slope, 1 / np.expm1(at), rtol=1e-12)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_logmeanexp(axis):
    x = 400 * np.random.default_rng(0).normal(size=(3, 4))
    top = x.max()
    want = top + np.log(np.mean(np.exp(x.astype(np.longdouble) - top), axis=axis))
    got = gr.nn.logmeanexp(x, axis)
    np.testing.assert_allclose(got.numpy(), want.astype(float), rtol=1e-12)
    kept = gr.nn.logmeanexp(x, axis, keepdims=True)
    assert kept.shape == np.mean(x, axis=axis, keepdims=True).shape


def test_standardize():
    x = np.random.default_rng(0).normal(size=(3, 4)) * 5 + 2
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(gr.nn.standardize(x).numpy(), want, rtol=1e-12)
    want = (x - 2.0) / np.sqrt(25.0 + 1e-3)
    np.testing.assert_allclose(
        gr.nn.standardize(x, mean=2.0, variance=25.0, epsilon=1e-3).numpy(), want
    )
    want = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    np.testing.assert_allclose(gr.nn.standardize(x, None).numpy(), want, rtol=1e-12)


def reference_attention(q, k, v, bias=0.0, mask=True, scale=None, is_causal=False):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k, v = (np.repeat(t, q.shape[-2] // k.shape[-2], -2) for t in (k, v))
    products = np.einsum("bthd,bshd->bhts", q, k) * scale + bias
    mask = np.broadcast_to(mask, products.shape)
    if is_causal:
        mask = mask & np.tril(np.ones(products.shape[-2:], bool))
    products = np.where(mask, products, -np.inf)
    weights = np.exp(products - products.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return np.einsum("bhts,bshd->bthd", weights, v)


@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"bias": 1}, {"mask": 1}, {"bias": 1, "mask": 1, "is_causal": True},
])  # fmt: skip
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_attention_in_the_layout_of_jax(options, groups):
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.normal(size=(2, 5, 4, 3)),
        rng.normal(size=(2, 5, groups, 3)),
        rng.normal(size=(2, 5, groups, 3)),
    )
    options = dict(options)
    if "bias" in options:
        options["bias"] = rng.normal(size=(1, 4, 5, 5))
    if "mask" in options:
        options["mask"] = (rng.uniform(size=(2, 1, 5, 5)) > 0.3) | np.eye(5, dtype=bool)
    want = reference_attention(q, k, v, **options)
    np.testing.assert_allclose(
        gr.nn.dot_product_attention(q, k, v, **options).numpy(), want, rtol=1e-10
    )
    one = gr.nn.dot_product_attention(q[0], k[0], v[0])
    np.testing.assert_allclose(one.numpy(), reference_attention(q, k, v)[0], rtol=1e-10)
    with pytest.raises(gr.ShapeError, match="dot_product_attention: tensors"):
        gr.nn.dot_product_attention(q[0, 0], k, v)


def test_functions_of_layers_are_in_the_module_of_layers():
    assert gr.nn.gelu is F.gelu
    assert gr.nn.one_hot([1], 3).tolist() == [[0.0, 1.0, 0.0]]
    assert gr.nn.glu is F.glu
    assert F.logsigmoid is F.log_sigmoid
    assert gr.nn.logsumexp is gr.logsumexp
