"""Norms, attention, activations and losses, against formulas in NumPy."""

from __future__ import annotations

import girih as gr
import networks_reference as reference
import numpy as np
import pytest
from conftest import close, sample
from girih import nn
from scipy import special

HALVES = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3}


def sigmoid(x):
    return special.expit(x)


def softplus(x):
    return np.logaddexp(0, x)


def elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


# name: (function of a tensor, of an array, kinks)
ACTIVATIONS = {
    "elu": (gr.elu, elu, [0]),
    "elu alpha": (lambda x: gr.elu(x, 0.5), lambda x: elu(x, 0.5), [0]),
    "selu": (gr.selu, lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), [0]),
    "celu": (lambda x: gr.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0) / 2)), []),
    "leaky_relu": (gr.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), [0]),
    "relu6": (gr.relu6, lambda x: np.clip(x, 0, 6), [0, 6]),
    "hardtanh": (lambda x: gr.hardtanh(x, -0.5, 2), lambda x: np.clip(x, -0.5, 2), [-0.5, 2]),
    "hardsigmoid": (gr.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, [-3, 3]),
    "hardswish": (gr.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6, [-3, 3]),
    "mish": (gr.mish, lambda x: x * np.tanh(softplus(x)), []),
    "softsign": (gr.softsign, lambda x: x / (1 + np.abs(x)), [0]),
    "tanhshrink": (gr.tanhshrink, lambda x: x - np.tanh(x), []),
    "threshold": (lambda x: gr.threshold(x, 0.5, -2), lambda x: np.where(x <= 0.5, -2, x), [0.5]),
    "hardshrink": (gr.hardshrink, lambda x: np.where(np.abs(x) <= 0.5, 0, x), [-0.5, 0.5]),
    "softshrink": (gr.softshrink, lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0), [-0.5, 0.5]),
    "glu": (gr.glu, lambda x: np.split(x, 2, -1)[0] * sigmoid(np.split(x, 2, -1)[1]), []),
    "softmin": (gr.softmin, lambda x: special.softmax(-x, -1), []),
    "prelu": (lambda x: gr.prelu(x, gr.full([], 0.3, dtype=x.dtype)), lambda x: np.where(x > 0, x, 0.3 * x), [0]),
    "normalize": (lambda x: gr.normalize(x, axis=-1), lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)), []),
    "normalize 3": (lambda x: gr.normalize(x, 3, -1), lambda x: x / (np.abs(x) ** 3).sum(-1, keepdims=True) ** (1 / 3), [0]),
    "normalize inf": (lambda x: gr.normalize(x, float("inf"), 0), lambda x: x / np.abs(x).max(0, keepdims=True), []),
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(4, 6), (0, 2), (1, 2)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name, shape, dtype):
    function, want, _ = ACTIVATIONS[name]
    if shape[0] == 0 and name == "normalize inf":
        pytest.skip("no largest element")
    x = sample(shape, dtype, 0, -5, 7)
    with np.errstate(all="ignore"):
        exact = np.asarray(want(x.astype("f8")))
    got = function(gr.asarray(x))
    assert got.dtype.name == dtype
    close(got.astype(gr.float64), exact, HALVES[dtype], HALVES[dtype])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_gradients(name):
    function, want, kinks = ACTIVATIONS[name]
    x = sample((3, 6), "float64", 1, -4, 7)
    assert all(np.abs(x - k).min() > 1e-4 for k in kinks)
    weight = sample(want(x).shape, "float64", 2)
    g = gr.grad(lambda x: (function(x) * gr.asarray(weight)).sum())(gr.asarray(x)).numpy()
    for at in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-6
        slope = ((want(x + step) - want(x - step)) * weight).sum() / 2e-6
        assert g[at] == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("name", [n for n in ACTIVATIONS if n not in ("glu", "softmin") and "normalize" not in n])  # fmt: skip
def test_activations_of_infinities_nan_and_large_values(name):
    function, want, _ = ACTIVATIONS[name]
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 800.0, -800.0])
    with np.errstate(all="ignore"):
        exact = want(x)
    exact[2] = np.nan
    if name in ("mish", "tanhshrink", "softsign", "hardswish"):
        exact, x = exact[2:], x[2:]
    close(function(gr.asarray(x)), exact, 1e-12)
    slopes = gr.grad(lambda x: function(x).sum())(gr.asarray(x)).numpy()
    assert np.isfinite(slopes[-4:]).all()


def test_prelu_has_one_weight_per_channel():
    x, w = sample((2, 3, 4), "float64"), np.array([0.1, 0.2, 0.3])
    close(gr.prelu(gr.asarray(x), gr.asarray(w)), np.where(x > 0, x, w[:, None] * x), 1e-12)
    with pytest.raises(gr.ShapeError, match="3 channels"):
        gr.prelu(gr.asarray(x), gr.ones([2]))


def test_dropout():
    x = gr.ones([200, 50])
    y = gr.dropout(x, 0.25).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.05
    whole = gr.dropout(gr.ones([20, 30, 4, 5]), 0.5, whole_channels=True).numpy()
    assert (whole == whole[:, :, :1, :1]).all()
    assert 0 < (whole[..., 0, 0] == 0).mean() < 1
    close(gr.dropout(x, 0.0), x.numpy())
    assert gr.dropout(x, 1.0).numpy().max() == 0
    gr.manual_seed(3)
    a = gr.dropout(x, 0.5).numpy().copy()
    gr.manual_seed(3)
    close(gr.dropout(x, 0.5), a)
    gradient = gr.grad(lambda x: gr.dropout(x, 0.5).sum())(x).numpy()
    assert set(np.unique(gradient)) == {0.0, 2.0}
    with pytest.raises(gr.InvalidArgumentError, match="p must be"):
        gr.dropout(x, 1.5)


# Norms.


def per_channel(v, x):
    return v.reshape(-1, *[1] * (x.ndim - 2))


NORMS = {
    "batch": (lambda x, w, b: gr.batch_norm(x, None, None, w, b, training=True), lambda x: (0, *range(2, x.ndim))),
    "instance": (gr.instance_norm, lambda x: tuple(range(2, x.ndim))),
    "group": (lambda x, w, b: gr.group_norm(x, 4, w, b), lambda x: tuple(range(2, x.ndim))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 4, 3, 2), (0, 4, 3), (1, 4, 2, 2, 2)])
@pytest.mark.parametrize("name", NORMS)
def test_norms_by_channel(name, shape, dtype):
    function, axes = NORMS[name]
    x = sample(shape, dtype, 0, -2, 4)
    w, b = sample((4,), dtype, 1), sample((4,), dtype, 2)
    with np.errstate(all="ignore"):
        normal = reference.standardize(x.astype("f8"), axes(x)) if x.size else x.astype("f8")
    want = normal * per_channel(w, x) + per_channel(b, x)
    got = function(*map(gr.asarray, (x, w, b)))
    assert got.dtype.name == dtype
    close(got.astype(gr.float64), want, HALVES[dtype], 5 * HALVES[dtype])


def test_group_norm_joins_channels():
    x = sample((2, 6, 3, 2), "float64")
    want = reference.standardize(x.reshape(2, 3, -1), -1).reshape(x.shape)
    close(gr.group_norm(gr.asarray(x), 3), want, 1e-12)
    with pytest.raises(gr.ShapeError, match="4 groups do not divide 6"):
        gr.group_norm(gr.asarray(x), 4)


def test_batch_norm_by_running_statistics():
    x, m, v = (
        sample((2, 3, 4), "float64"),
        sample((3,), "float64", 1),
        sample((3,), "float64", 2, 1, 2),
    )
    want = (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5)
    close(gr.batch_norm(*map(gr.asarray, (x, m, v))), want, 1e-12)
    with pytest.raises(gr.InvalidArgumentError, match="training=True"):
        gr.batch_norm(gr.asarray(x))
    with pytest.raises(gr.ShapeError, match=r"\[3\]"):
        gr.batch_norm(gr.asarray(x), gr.zeros([4]), gr.ones([4]))
    with pytest.raises(gr.ShapeError, match="two axes"):
        gr.batch_norm(gr.ones([3]), gr.zeros([3]), gr.ones([3]))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sizes", [(4,), (3, 4)])
def test_rms_norm(sizes, dtype):
    x, w = sample((2, 3, 4), dtype), sample(sizes, dtype, 1)
    axes = tuple(range(-len(sizes), 0))
    wide = x.astype("f8")
    want = wide / np.sqrt((wide**2).mean(axes, keepdims=True) + 1e-6) * w
    got = gr.rms_norm(gr.asarray(x), sizes, gr.asarray(w))
    close(got.astype(gr.float64), want, HALVES[dtype], HALVES[dtype])
    with pytest.raises(gr.ShapeError):
        gr.rms_norm(gr.asarray(x), (5,))


# Attention: queries, keys, values, mask, causal.
ATTENTION = {
    "plain": ((3, 4), (5, 4), (5, 2), None, False),
    "batched": ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 6), None, False),
    "broadcast": ((2, 3, 4, 6), (5, 6), (1, 3, 5, 2), None, False),
    "causal": ((2, 4, 3), (2, 4, 3), (2, 4, 3), None, True),
    "causal, more keys": ((3, 2), (5, 2), (5, 2), None, True),
    "causal, more queries": ((5, 2), (3, 2), (3, 2), None, True),
    "mask": ((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 3), ("bool", (4, 5)), False),
    "mask of keys": ((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 3), ("bool", (2, 1, 1, 5)), True),
    "bias": ((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 3), ("float64", (3, 4, 5)), False),
    "one query": ((1, 1), (1, 1), (1, 1), None, True),
    "empty batch": ((0, 2, 3), (0, 2, 3), (0, 2, 3), None, False),
}


def attention_operands(case, dtype="float64"):
    q, k, v, mask, causal = ATTENTION[case]
    arrays = [sample(s, dtype, i, -2, 2) for i, s in enumerate((q, k, v))]
    if mask is not None:
        arrays.append(sample(mask[1], mask[0] if mask[0] == "bool" else dtype, 4, -2, 2))
    return arrays, causal


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case, dtype):
    arrays, causal = attention_operands(case, dtype)
    exact = [a if a.dtype == bool else a.astype("f8") for a in arrays]
    want = reference.attention(*exact, causal=causal)
    got = gr.scaled_dot_product_attention(*map(gr.asarray, arrays), is_causal=causal)
    assert got.dtype.name == dtype
    close(got.astype(gr.float64), want, HALVES[dtype], HALVES[dtype])


@pytest.mark.parametrize("mask", [None, (2, 8, 3, 5), (8, 3, 5), (2, 1, 1, 5), (3, 5)])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_grouped_heads_are_repeated(heads, mask):
    q = sample((2, 8, 3, 4), "float64")
    k, v = (sample((2, heads, 5, 4), "float64", i) for i in (1, 2))
    mask = None if mask is None else sample(mask, "bool", 3)
    want = reference.attention(q, k.repeat(8 // heads, 1), v.repeat(8 // heads, 1), mask)
    close(gr.scaled_dot_product_attention(q, k, v, mask), want, 1e-12, 1e-12)


def test_attention_scale_and_blind_queries():
    q, k, v = (sample((3, 4), "float64", i) for i in range(3))
    close(
        gr.scaled_dot_product_attention(q, k, v, scale=0.3),
        reference.attention(q, k, v, scale=0.3),
        1e-12,
    )
    mask = np.array([[True, False, True], [False] * 3, [True] * 3])
    f = lambda q: gr.scaled_dot_product_attention(q, k, v, mask)
    assert f(gr.asarray(q))[1].tolist() == [0] * 4
    g = gr.grad(lambda q: (f(q) * f(q)).sum())(gr.asarray(q)).numpy()
    assert np.isfinite(g).all()
    assert (g[1] == 0).all()
    added = np.where(mask, 0, -np.inf)
    close(gr.scaled_dot_product_attention(q, k, v, added), f(gr.asarray(q)).numpy(), 1e-12)


def test_attention_errors():
    x = gr.ones([2, 3, 4])
    call = gr.scaled_dot_product_attention
    for args, error, message in [
        ((x, gr.ones([2, 3, 5]), x), gr.ShapeError, "equally many features"),
        ((x, gr.ones([2, 5, 4]), x), gr.ShapeError, "as many keys as values"),
        ((x, gr.ones([3, 3, 4]), gr.ones([3, 3, 4])), gr.ShapeError, "heads"),
        ((gr.ones([4]), x, x), gr.ShapeError, "two axes"),
        ((x, x, x, gr.ones([4, 3], dtype="bool")), gr.ShapeError, "mask"),
    ]:
        with pytest.raises(error, match=message):
            call(*args)


# Losses.


def reduced(loss, reduction):
    return np.asarray(loss if reduction == "none" else getattr(np, reduction)(loss))


def huber(d, delta):
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


def kl(x, y):
    return special.xlogy(y, y) - y * x


SIGNS = ("sign", -1, 1)
REAL = (-3, 3)
# name: (domains of the operands, function of arrays, options)
LOSSES = {
    "mse_loss": ([REAL, REAL], lambda x, y: (x - y) ** 2, {}),
    "l1_loss": ([REAL, REAL], lambda x, y: np.abs(x - y), {}),
    "smooth_l1_loss": ([REAL, REAL], lambda x, y: huber(np.abs(x - y), 0.5) / 0.5, {"beta": 0.5}),
    "huber_loss": ([REAL, REAL], lambda x, y: huber(np.abs(x - y), 1.5), {"delta": 1.5}),
    "kl_div": ([(-5, 0), (0, 1)], kl, {}),
    "kl_div log": ([(-5, 0), (-5, 0)], lambda x, y: np.exp(y) * (y - x), {"log_target": True}),
    "hinge_loss": ([REAL, SIGNS], lambda x, y: np.maximum(0, 1 - x * y), {}),
    "hinge_embedding_loss": ([REAL, SIGNS], lambda x, y: np.where(y == 1, x, np.maximum(0, 2 - x)), {"margin": 2.0}),
    "margin_ranking_loss": ([REAL, REAL, SIGNS], lambda a, b, y: np.maximum(0, -y * (a - b) + 0.5), {"margin": 0.5}),
    "soft_margin_loss": ([REAL, SIGNS], lambda x, y: softplus(-x * y), {}),
    "poisson_nll_loss": ([REAL, (0, 5)], lambda x, y: np.exp(x) - y * x, {}),
    "poisson_nll_loss full": (
        [(0.1, 3), (0, 5)],
        lambda x, y: x - y * np.log(x + 1e-8) + np.where(y > 1, y * np.log(np.maximum(y, 1)) - y + np.log(2 * np.pi * np.maximum(y, 1)) / 2, 0),
        {"log_input": False, "full": True}),
    "gaussian_nll_loss": ([REAL, REAL, (0.1, 2)], lambda x, y, v: (np.log(v) + (x - y) ** 2 / v) / 2, {}),
    "gaussian_nll_loss full": ([REAL, REAL, (0.1, 2)], lambda x, y, v: (np.log(v) + (x - y) ** 2 / v + np.log(2 * np.pi)) / 2, {"full": True}),
    "binary_cross_entropy": ([(0.01, 0.99), (0, 1)], lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)), {}),
    "binary_cross_entropy_with_logits": ([REAL, (0, 1)], lambda x, y: softplus(x) - x * y, {}),
}  # fmt: skip


def loss_operands(domains, dtype="float64", shape=(4, 3)):
    out = []
    for i, domain in enumerate(domains):
        signs = domain[0] == "sign"
        x = sample(shape, "float64", i, *((-1, 1) if signs else domain))
        out.append((np.sign(x) if signs else x).astype(dtype))
    return out


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, dtype, reduction):
    domains, want, options = LOSSES[name]
    arrays = loss_operands(domains, dtype)
    function = getattr(gr, name.split()[0])
    got = function(*map(gr.asarray, arrays), **options, reduction=reduction)
    assert got.dtype.name == dtype
    exact = reduced(want(*[a.astype("f8") for a in arrays]), reduction)
    close(got.astype(gr.float64), exact, HALVES[dtype], HALVES[dtype])


@pytest.mark.parametrize("name", LOSSES)
def test_loss_gradients(name):
    domains, want, options = LOSSES[name]
    arrays = loss_operands(domains)
    function = getattr(gr, name.split()[0])
    f = lambda *xs: function(*xs, **options, reduction="sum")
    floats = [i for i, d in enumerate(domains) if d[0] != "sign"]
    grads = gr.grad(f, argnums=floats)(*map(gr.asarray, arrays))
    for i, g in zip(floats, grads, strict=True):
        for at in np.ndindex(arrays[i].shape):
            moved = [[a.copy() for a in arrays] for _ in range(2)]
            moved[0][i][at] += 1e-6
            moved[1][i][at] -= 1e-6
            slope = (want(*moved[0]).sum() - want(*moved[1]).sum()) / 2e-6
            assert g.numpy()[at] == pytest.approx(slope, rel=1e-5, abs=1e-6)


#: Losses that broadcast, like PyTorch's; all but the last with a warning, see test_layers.py.
BROADCASTING = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss"}


@pytest.mark.parametrize("name", [n for n in LOSSES if n.split()[0] not in BROADCASTING])
def test_losses_refuse_shapes_that_would_broadcast(name):
    domains, _, options = LOSSES[name]
    shapes = [[4, 1], *[[4]] * (len(domains) - 1)]
    with pytest.raises(gr.ShapeError, match=r"\[4, 1\].*\[4\]"):
        getattr(gr, name.split()[0])(*map(gr.ones, shapes), **options)


def test_binary_cross_entropy_weights_and_ends():
    x, y, w = loss_operands([(0.01, 0.99), (0, 1), (0, 2)])
    want = -(y * np.log(x) + (1 - y) * np.log(1 - x)) * w
    close(gr.binary_cross_entropy(x, y, w, reduction="none"), want, 1e-12)
    p = np.array([2.0, 0.5, 1.0])
    logits = special.logit(x)
    want = -(p * y * np.log(x) + (1 - y) * np.log(1 - x)) * w
    close(gr.binary_cross_entropy_with_logits(logits, y, w, "none", p), want, 1e-10)
    ends = gr.binary_cross_entropy(gr.asarray([0.0, 1.0]), gr.asarray([1.0, 1.0]), reduction="none")
    assert ends.tolist() == [100.0, 0.0]
    far = gr.binary_cross_entropy_with_logits(gr.asarray([-1e4, 1e4]), gr.asarray([1.0, 1.0]), reduction="none")  # fmt: skip
    assert far.tolist() == [1e4, 0.0]


def cross_entropy(x, y, weight=None, ignore_index=None, label_smoothing=0.0, reduction="mean"):
    """Cross entropy with classes in the last axis, for labels or probabilities."""
    log_p = x - special.logsumexp(x, -1, keepdims=True)
    classes = x.shape[-1]
    w = np.ones(classes) if weight is None else weight
    if y.dtype.kind == "f":
        p = y * (1 - label_smoothing) + label_smoothing / classes
        return reduced(-(log_p * p * w).sum(-1), reduction)
    ignored = y == ignore_index if ignore_index is not None else np.zeros(y.shape, bool)
    safe = np.where(ignored, 0, y)
    hot = np.eye(classes)[safe]
    p = hot * (1 - label_smoothing) + label_smoothing / classes
    loss = np.where(ignored, 0, -(log_p * p * w).sum(-1))
    if reduction == "mean":
        return np.asarray(loss.sum() / np.where(ignored, 0, w[safe]).sum())
    return reduced(loss, reduction)


CLASSES = [
    {},
    {"weight": np.array([0.2, 1.0, 2.0, 0.5])},
    {"ignore_index": -100},
    {"ignore_index": 2, "weight": np.array([0.2, 1.0, 2.0, 0.5])},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.3, "ignore_index": 1, "weight": np.array([0.2, 1.0, 2.0, 0.5])},
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("options", CLASSES)
def test_cross_entropy_of_labels(options, reduction):
    x, y = sample((5, 3, 4), "float64"), np.random.default_rng(1).integers(0, 4, (5, 3))
    if options.get("ignore_index") == -100:
        y[0, 1] = y[3, 2] = -100
    want = cross_entropy(x, y, **options, reduction=reduction)
    close(gr.cross_entropy(x, y, reduction, **options), want, 1e-12)
    moved = np.moveaxis(x, -1, 1)
    close(gr.cross_entropy(moved, y, reduction, **options, axis=1), want, 1e-12)
    if "label_smoothing" not in options:
        log_p = x - special.logsumexp(x, -1, keepdims=True)
        close(gr.nll_loss(log_p, y, **options, reduction=reduction), want, 1e-12)


@pytest.mark.parametrize("options", [c for c in CLASSES if "ignore_index" not in c])
def test_cross_entropy_of_probabilities(options):
    x, p = sample((5, 4), "float64"), special.softmax(sample((5, 4), "float64", 1), -1)
    for reduction in ("none", "mean", "sum"):
        want = cross_entropy(x, p, **options, reduction=reduction)
        close(gr.cross_entropy(x, p, reduction, **options), want, 1e-12)
    with pytest.raises(gr.InvalidArgumentError, match="ignore_index"):
        gr.cross_entropy(x, p, ignore_index=0)


def test_ignored_rows_have_no_gradient():
    x, y = sample((3, 4), "float64"), np.array([1, -1, 2])
    g = gr.grad(lambda x: gr.cross_entropy(x, y, ignore_index=-1))(gr.asarray(x)).numpy()
    p = special.softmax(x, -1) - np.eye(4)[y]
    p[1] = 0
    close(g, p / 2, 1e-10, 1e-12)


def test_cross_entropy_misuse():
    x = gr.ones([2, 3])
    with pytest.raises(gr.InvalidArgumentError, match="label_smoothing"):
        gr.cross_entropy(x, gr.asarray([0, 1]), label_smoothing=2.0)
    with pytest.raises(gr.ShapeError, match=r"one weight per class, \[3\]"):
        gr.cross_entropy(x, gr.asarray([0, 1]), weight=gr.ones([2]))
    with pytest.raises(gr.ShapeError, match="labels"):
        gr.nll_loss(x, gr.asarray([0, 1, 2]))
    with pytest.raises(gr.DTypeError, match="labels"):
        gr.nll_loss(x, gr.asarray([0.0, 1.0]))
    with pytest.raises(gr.InvalidArgumentError, match="median"):
        gr.mse_loss(x, x, reduction="median")
    with pytest.raises(gr.InvalidArgumentError, match="delta"):
        gr.huber_loss(x, x, delta=0.0)


def test_embedding_losses():
    a, b, c = (sample((5, 4), "float64", i) for i in range(3))
    y = np.array([1, -1, 1, -1, 1])
    cos = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    close(gr.cosine_similarity(a, b), cos, 1e-12)
    want = np.where(y == 1, 1 - cos, np.maximum(0, cos - 0.2))
    close(gr.cosine_embedding_loss(a, b, y, 0.2, "none"), want, 1e-12)
    for p in (1.0, 2.0, 3.0):
        d = lambda u, v, p=p: (np.abs(u - v + 1e-6) ** p).sum(-1) ** (1 / p)
        close(gr.pairwise_distance(a, b, p), d(a, b), 1e-12)
        want = np.maximum(0, d(a, b) - d(a, c) + 1)
        close(gr.triplet_margin_loss(a, b, c, p=p, reduction="none"), want, 1e-12)
    swapped = np.maximum(0, d(a, b) - np.minimum(d(a, c), d(b, c)) + 1)
    close(gr.triplet_margin_loss(a, b, c, p=3.0, swap=True, reduction="none"), swapped, 1e-12)


# Modules.


def test_convolution_modules_hold_kernels():
    layer = nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2)
    x = sample((2, 4, 7, 6), "float32")
    w, b = layer.weight.numpy(), layer.bias.numpy()
    assert w.shape == (6, 2, 3, 2)
    assert np.abs(w).max() <= 12**-0.5
    close(layer(gr.asarray(x)), reference.conv(x, w, b, 2, 1, 1, 2), 1e-4, 1e-5)
    assert "kernel_size=(3, 2)" in repr(layer)
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2, bias=False)
    assert layer.bias is None
    want = reference.conv_transpose(x, layer.weight.numpy(), None, 2, 0, 1, 2)
    close(layer(gr.asarray(x)), want, 1e-4, 1e-5)
    for cls, shape in [(nn.Conv1d, (1, 2, 5)), (nn.Conv3d, (1, 2, 4, 4, 4))]:
        assert cls(2, 3, 2)(gr.ones(shape)).shape == (1, 3, *[s - 1 for s in shape[2:]])
    for cls, shape in [(nn.ConvTranspose1d, (1, 2, 5)), (nn.ConvTranspose3d, (1, 2, 4, 4, 4))]:
        assert cls(2, 3, 2)(gr.ones(shape)).shape == (1, 3, *[s + 1 for s in shape[2:]])
    for bad in (lambda: nn.Conv1d(3, 4, 2, groups=2), lambda: nn.Conv2d(1, 1, 0), lambda: nn.Conv2d(1, 1, (1, 2, 3))):  # fmt: skip
        with pytest.raises(gr.InvalidArgumentError):
            bad()


def test_batch_norm_tracks_statistics_and_uses_them():
    layer = nn.BatchNorm2d(3, momentum=0.3)
    assert {n for n, _ in layer.named_parameters()} == {"weight", "bias"}
    mean, var = np.zeros(3), np.ones(3)
    for i in range(3):
        x = sample((4, 3, 2, 5), "float32", i)
        y = layer(gr.asarray(x))
        close(y, reference.standardize(x, (0, 2, 3)).astype("f4"), 1e-4, 1e-5)
        mean = 0.7 * mean + 0.3 * x.mean((0, 2, 3))
        var = 0.7 * var + 0.3 * x.var((0, 2, 3), ddof=1)
    close(layer.running_mean, mean.astype("f4"), 1e-5, 1e-6)
    close(layer.running_var, var.astype("f4"), 1e-5)
    assert layer.num_batches_tracked.item() == 3
    layer.eval()
    shape = (1, 3, 1, 1)
    want = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + 1e-5)
    close(layer(gr.asarray(x)), want.astype("f4"), 1e-4, 1e-5)
    assert layer.num_batches_tracked.item() == 3
    assert set(layer.state_dict()) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}  # fmt: skip


def test_batch_norm_in_a_training_step():
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU())
    step = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())
    for i in range(2):
        value, grads = step(gr.asarray(sample((3, 2, 6), "float32", i)))
        gr.eval(value, grads, model)
    norm = model[1]
    assert norm.num_batches_tracked.item() == 2
    assert not gr.is_lazy(norm.running_mean)
    # A bias before a norm has no effect.
    assert np.abs(grads["0"]["bias"].numpy()).max() < 1e-5
    assert np.abs(grads["1"]["weight"].numpy()).max() > 1e-3


def test_batch_norm_options_and_misuse():
    x = [sample((4, 2), "float32", i) for i in range(3)]
    layer = nn.BatchNorm1d(2, momentum=None)
    for v in x:
        layer(gr.asarray(v))
    close(layer.running_mean, np.mean([v.mean(0) for v in x], 0).astype("f4"), 1e-5, 1e-6)
    plain = nn.BatchNorm1d(2, affine=False, track_running_stats=False).eval()
    assert plain.state_dict() == {}
    close(plain(gr.asarray(x[0])), reference.standardize(x[0], 0).astype("f4"), 1e-4, 1e-5)
    with pytest.raises(gr.InvalidArgumentError, match="larger batch"):
        nn.BatchNorm1d(2)(gr.ones([1, 2]))
    with pytest.raises(gr.ShapeError, match=r"BatchNorm2d: expected 4 axes"):
        nn.BatchNorm2d(2)(gr.ones([3, 2]))


def test_other_norm_modules():
    x = sample((2, 6, 4, 3), "float32")
    group = nn.GroupNorm(2, 6)
    want = reference.standardize(x.reshape(2, 2, -1), -1).reshape(x.shape)
    close(group(gr.asarray(x)), want.astype("f4"), 1e-4, 1e-5)
    close(
        nn.InstanceNorm2d(6)(gr.asarray(x)),
        reference.standardize(x, (2, 3)).astype("f4"),
        1e-4,
        1e-5,
    )
    assert nn.InstanceNorm2d(6).parameters() == []
    rms = nn.RMSNorm((4, 3))
    want = x / np.sqrt((x**2).mean((2, 3), keepdims=True) + 1e-6)
    close(rms(gr.asarray(x)), want, 1e-4, 1e-5)
    with pytest.raises(gr.InvalidArgumentError, match="4 groups do not divide 6"):
        nn.GroupNorm(4, 6)
    with pytest.raises(gr.ShapeError):
        nn.InstanceNorm1d(6)(gr.asarray(x))


def test_pooling_modules():
    x = sample((1, 2, 6, 6), "float32")
    t = gr.asarray(x)
    close(nn.MaxPool2d(2)(t), reference.pool(x, np.max, (2, 2)))
    close(
        nn.AvgPool2d(3, 2, 1)(t), reference.pool(x, np.mean, (3, 3), 2, 1, whole=True), 1e-5, 1e-6
    )
    close(nn.AdaptiveAvgPool2d((4, 1))(t), reference.adaptive(x, np.mean, (4, 1)), 1e-5, 1e-6)
    close(nn.AdaptiveMaxPool2d(4)(t), reference.adaptive(x, np.max, (4, 4)))
    assert nn.LPPool2d(2, 3)(t).shape == (1, 2, 2, 2)
    assert nn.Upsample(scale_factor=2)(t).shape == (1, 2, 12, 12)
    close(
        nn.Upsample(9, mode="bilinear")(t), reference.interpolate(x, (9, 9), "linear"), 1e-4, 1e-5
    )
    assert "kernel_size=2" in repr(nn.MaxPool2d(2))
    one, three = gr.ones([1, 1, 6]), gr.ones([1, 1, 4, 4, 4])
    for cls, x in [
        (nn.MaxPool1d, one), (nn.AvgPool1d, one), (nn.AdaptiveAvgPool1d, one), (nn.AdaptiveMaxPool1d, one),
        (nn.MaxPool3d, three), (nn.AvgPool3d, three), (nn.AdaptiveAvgPool3d, three), (nn.AdaptiveMaxPool3d, three),
    ]:  # fmt: skip
        assert cls(2)(x).numpy().min() == 1
    assert nn.LPPool1d(1, 2)(one).tolist() == [[[2.0] * 3]]
    assert nn.LPPool3d(1, 2)(three).numpy().min() == 8


ACTIVATION_MODULES = {
    "ELU": ("elu", {"alpha": 0.5}), "SELU": ("selu", {}), "CELU": ("celu", {"alpha": 2.0}),
    "LeakyReLU": ("leaky_relu", {"negative_slope": 0.1}), "ReLU6": ("relu6", {}),
    "Hardtanh": ("hardtanh", {"min_val": -0.5, "max_val": 0.5}), "Hardsigmoid": ("hardsigmoid", {}),
    "Hardswish": ("hardswish", {}), "Mish": ("mish", {}),
    "Softsign": ("softsign", {}), "Tanhshrink": ("tanhshrink", {}), "LogSigmoid": ("log_sigmoid", {}),
    "Threshold": ("threshold", {"threshold": 0.1, "value": -1.0}), "Hardshrink": ("hardshrink", {"lambd": 1.0}),
    "Softshrink": ("softshrink", {"lambd": 1.0}), "GLU": ("glu", {"axis": 0}),
    "Softmax": ("softmax", {"axis": 0}), "Softmin": ("softmin", {"axis": 0}), "LogSoftmax": ("log_softmax", {"axis": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATION_MODULES)
def test_activation_modules(name):
    function, options = ACTIVATION_MODULES[name]
    module, x = getattr(nn, name)(**options), gr.asarray(sample((4, 3), "float32"))
    close(module(x), getattr(gr, function)(x, **options).numpy())
    assert repr(module) == f"{name}({', '.join(f'{k}={v}' for k, v in options.items())})"


def test_prelu_learns_its_weight():
    layer = nn.PReLU(3)
    _, grads = nn.value_and_grad(layer, lambda x: layer(x).sum())(gr.full([2, 3], -2.0))
    assert grads["weight"].tolist() == [-4.0] * 3


def test_multihead_attention():
    layer = nn.MultiheadAttention(8, 4, num_kv_heads=2, kdim=5, vdim=3)
    q, k, v = (gr.asarray(sample(s, "float32", i)) for i, s in enumerate([(2, 3, 8), (2, 6, 5), (2, 6, 3)]))  # fmt: skip
    heads = lambda x, n: x.reshape(2, -1, n, x.shape[-1] // n).swapaxes(1, 2)
    parts = [heads(p(x).numpy(), n) for p, x, n in [(layer.q_proj, q, 4), (layer.k_proj, k, 2), (layer.v_proj, v, 2)]]  # fmt: skip
    want = reference.attention(parts[0], parts[1].repeat(2, 1), parts[2].repeat(2, 1))
    want = layer.out_proj(gr.asarray(want.swapaxes(1, 2).reshape(2, 3, 8))).numpy()
    close(layer(q, k, v), want, 1e-4, 1e-5)
    alone = nn.MultiheadAttention(8, 2)
    causal = alone(q, is_causal=True).numpy()
    first = alone(q[:, :1]).numpy()
    np.testing.assert_allclose(causal[:, :1], first, rtol=1e-4, atol=1e-5)
    with pytest.raises(gr.InvalidArgumentError, match="3 heads do not divide 8"):
        nn.MultiheadAttention(8, 3)
    with pytest.raises(gr.InvalidArgumentError, match="heads of keys"):
        nn.MultiheadAttention(8, 4, num_kv_heads=3)


LOSS_MODULES = {
    "MSELoss": ("mse_loss", 2, {}), "L1Loss": ("l1_loss", 2, {}), "SmoothL1Loss": ("smooth_l1_loss", 2, {"beta": 0.5}),
    "HuberLoss": ("huber_loss", 2, {"delta": 0.5}), "KLDivLoss": ("kl_div", 2, {"log_target": True}),
    "HingeLoss": ("hinge_loss", 2, {}), "HingeEmbeddingLoss": ("hinge_embedding_loss", 2, {}),
    "MarginRankingLoss": ("margin_ranking_loss", 3, {"margin": 0.2}), "SoftMarginLoss": ("soft_margin_loss", 2, {}),
    "PoissonNLLLoss": ("poisson_nll_loss", 2, {"full": True}), "GaussianNLLLoss": ("gaussian_nll_loss", 3, {}),
    "TripletMarginLoss": ("triplet_margin_loss", 3, {"p": 1.0}), "BCELoss": ("binary_cross_entropy", 2, {}),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", 2, {}),
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", LOSS_MODULES)
def test_loss_modules(name, reduction):
    function, count, options = LOSS_MODULES[name]
    tensors = [gr.asarray(sample((3, 4), "float32", i, 0.1, 0.9)) for i in range(count)]
    got = getattr(nn, name)(**options, reduction=reduction)(*tensors)
    close(got, getattr(gr, function)(*tensors, **options, reduction=reduction).numpy())


def test_class_loss_modules_hold_weights_as_buffers():
    x, y = gr.asarray(sample((3, 4), "float32")), gr.asarray([0, 3, -1])
    w = gr.asarray([0.1, 0.2, 0.3, 0.4])
    loss = nn.CrossEntropyLoss(weight=w, ignore_index=-1, label_smoothing=0.1)
    assert list(loss.state_dict()) == ["weight"]
    assert loss.parameters() == []
    close(
        loss(x, y), gr.cross_entropy(x, y, weight=w, ignore_index=-1, label_smoothing=0.1).numpy()
    )
    nll = nn.NLLLoss(weight=w, ignore_index=-1, reduction="sum")
    close(nll(x, y), gr.nll_loss(x, y, weight=w, ignore_index=-1, reduction="sum").numpy())
    a, b = x[:, :2], x[:, 2:]
    sign = gr.asarray([1, -1, 1])
    close(
        nn.CosineEmbeddingLoss(0.1)(a, b, sign), gr.cosine_embedding_loss(a, b, sign, 0.1).numpy()
    )


def test_a_small_convolutional_net_learns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 1, 8, 8)).astype("f4")
    y = (x[:, 0, :4].sum((1, 2)) > x[:, 0, 4:].sum((1, 2))).astype("i8")
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding="same"), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = gr.optim.Adam(0.02)
    step = nn.value_and_grad(model, lambda x, y: nn.cross_entropy(model(x), y))
    x, y = gr.asarray(x), gr.asarray(y)
    losses = []
    for _ in range(40):
        loss, grads = step(x, y)
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_functional_names():
    functional = nn.functional
    for name in functional.__all__:
        assert getattr(functional, name) is not None
    assert functional.conv2d is gr.conv2d
    assert functional.mse_loss is gr.mse_loss
