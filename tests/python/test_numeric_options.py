"""Options at their limits: integers for functions of floats, eps of zero and below, negative
bounds."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

RNG = np.random.default_rng(0)
INTS = RNG.integers(0, 4, (2, 4, 4))

LAYERS = {
    "RoPE": lambda: nn.RoPE(4),
    "traditional RoPE": lambda: nn.RoPE(4, traditional=True),
    "part RoPE": lambda: nn.RoPE(2),
    "SinusoidalPositionalEncoding": lambda: nn.SinusoidalPositionalEncoding(4),
    "LayerNorm": lambda: nn.LayerNorm(4),
    "RMSNorm": lambda: nn.RMSNorm(4),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "BatchNorm1d": lambda: nn.BatchNorm1d(4).eval(),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(4),
    "Linear": lambda: nn.Linear(4, 4),
    "Conv1d": lambda: nn.Conv1d(4, 2, 2),
    "Softmax": lambda: nn.Softmax(-1),
    "GELU": lambda: nn.GELU(),
    "SiLU": lambda: nn.SiLU(),
    "Softplus": lambda: nn.Softplus(),
    "ELU": lambda: nn.ELU(),
    "Sigmoid": lambda: nn.Sigmoid(),
    "Tanh": lambda: nn.Tanh(),
    "AvgPool1d": lambda: nn.AvgPool1d(2),
    "AdaptiveAvgPool1d": lambda: nn.AdaptiveAvgPool1d(2),
    "LPPool1d": lambda: nn.LPPool1d(2, 2),
    "LocalResponseNorm": lambda: nn.LocalResponseNorm(2),
    "Upsample": lambda: nn.Upsample(scale_factor=2, mode="linear"),
    "CosineSimilarity": lambda: lambda x: nn.CosineSimilarity(-1)(x, x + 1),
    "PairwiseDistance": lambda: lambda x: nn.PairwiseDistance()(x, x + 1),
}


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_integers_compute_in_floats_or_refuse(name, dtype):
    layer = LAYERS[name]()
    try:
        found = layer(gr.asarray(INTS, dtype=dtype))
    except gr.DTypeError:
        return
    expected = layer(gr.asarray(INTS, dtype="float32"))
    assert "float" in found.dtype.name
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_position_encodings_of_integers_are_not_zero():
    x = gr.ones([3, 4], dtype=gr.int32)
    for layer in (nn.RoPE(4), nn.SinusoidalPositionalEncoding(4)):
        found, expected = layer(x), layer(x.astype(gr.float32))
        assert found.dtype == gr.float32
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert nn.RoPE(4)(x.astype(gr.float16)).dtype == gr.float16


@pytest.mark.parametrize("eps", [-1, -1e-30, float("nan"), float("-inf")])
def test_norms_refuse_a_negative_eps(eps):
    x = gr.ones([2, 4, 3])
    one = gr.ones([4])
    calls = [
        lambda: nn.LayerNorm(3, eps=eps),
        lambda: nn.RMSNorm(3, eps=eps),
        lambda: nn.GroupNorm(2, 4, eps=eps),
        lambda: nn.BatchNorm1d(4, eps=eps),
        lambda: nn.BatchNorm2d(4, eps=eps),
        lambda: nn.InstanceNorm1d(4, eps=eps),
        lambda: nn.TransformerEncoderLayer(4, 2, layer_norm_eps=eps),
        lambda: nn.TransformerDecoderLayer(4, 2, layer_norm_eps=eps),
        lambda: gr.layer_norm(x, 3, eps=eps),
        lambda: gr.rms_norm(x, 3, eps=eps),
        lambda: gr.group_norm(x, 2, eps=eps),
        lambda: gr.batch_norm(x, training=True, eps=eps),
        lambda: gr.batch_norm(x, one, one, eps=eps),
        lambda: gr.instance_norm(x, eps=eps),
    ]
    for call in calls:
        with pytest.raises(gr.InvalidArgumentError, match="eps"):
            call()


OPTIMISERS = {
    "RMSprop": lambda **kw: optim.RMSprop(0.1, **kw),
    "centred RMSprop": lambda **kw: optim.RMSprop(0.1, centered=True, momentum=0.9, **kw),
    "Adagrad": lambda **kw: optim.Adagrad(0.1, **kw),
    "Adadelta": lambda **kw: optim.Adadelta(0.1, **kw),
    "Adam": lambda **kw: optim.Adam(0.1, **kw),
    "Adam amsgrad": lambda **kw: optim.Adam(0.1, amsgrad=True, **kw),
    "AdamW": lambda **kw: optim.AdamW(0.1, weight_decay=0.0, **kw),
    "Adamax": lambda **kw: optim.Adamax(0.1, **kw),
    "NAdam": lambda **kw: optim.NAdam(0.1, **kw),
    "RAdam": lambda **kw: optim.RAdam(0.1, **kw),
    "Muon": lambda **kw: optim.Muon(0.1, weight_decay=0.0, **kw),
    "Adafactor": lambda eps: optim.Adafactor(0.1, eps=(eps, eps)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_eps_of_zero_moves_nothing_without_a_gradient(name, dtype, compiled):
    optimizer = OPTIMISERS[name](eps=0.0)
    p = {"w": gr.asarray([[1.0, -2.0], [3.0, 0.0]], dtype=dtype)}
    optimizer.init(p)
    update = lambda p, g: optimizer.update(p, g)
    step = gr.compile(update) if compiled else update
    for _ in range(3):
        q = step(p, {"w": gr.zeros([2, 2], dtype=dtype)})
        assert q["w"].tolist() == p["w"].tolist()
    # A row without a gradient stays, the others move; then all move, and nothing is NaN.
    for _ in range(8):
        p = step(p, {"w": gr.asarray([[1.0, 0.5], [0.0, 0.0]], dtype=dtype)})
        assert np.isfinite(p["w"].numpy()).all()
    for state in optimizer.state_dict().values():
        assert np.isfinite(state.numpy()).all()
    for _ in range(3):
        p = step(p, {"w": gr.ones([2, 2], dtype=dtype)})
        assert np.isfinite(p["w"].numpy()).all()


@pytest.mark.parametrize("eps", [-1e-9, float("nan")])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_refuse_a_negative_eps(name, eps):
    with pytest.raises(gr.InvalidArgumentError, match="eps"):
        OPTIMISERS[name](eps=eps)


def test_centred_rmsprop_does_not_take_the_root_of_a_negative_variance():
    optimizer = optim.RMSprop(0.1, alpha=0.9, centered=True, eps=0.0)
    p = {"w": gr.ones([64])}
    g = {"w": gr.asarray(RNG.standard_normal(64).astype(np.float32))}
    for _ in range(200):
        p = optimizer.update(p, g)
    assert not np.isnan(p["w"].numpy()).any()


@pytest.mark.parametrize("limit", [-1.0, -0.0001, float("nan"), float("-inf")])
def test_clipping_refuses_a_negative_limit(limit):
    grads = {"w": gr.asarray([3.0, -4.0])}
    for clip in (optim.clip_grad_norm, optim.clip_grad_value):
        with pytest.raises(gr.InvalidArgumentError, match="must not be negative"):
            clip(grads, limit)


def test_clipping_to_zero_and_to_a_tensor():
    grads = {"w": gr.asarray([3.0, -4.0])}
    assert optim.clip_grad_norm(grads, 0.0)[0]["w"].tolist() == [0.0, 0.0]
    clipped, norm = optim.clip_grad_norm(grads, gr.asarray(2.5))
    assert norm.item() == 5.0
    np.testing.assert_allclose(clipped["w"].numpy(), [1.5, -2.0], rtol=1e-5)
