"""Extra keys of attention layers, functional dropout of channels, and distances between rows."""

from __future__ import annotations

from itertools import combinations

import girih as gr
import numpy as np
import pytest
from conftest import close
from girih import nn
from girih.nn import functional as F

HEADS, E, N, M = 2, 8, 3, 5
RNG = np.random.default_rng(3)
QUERY, KEY = RNG.standard_normal((4, N, E)), RNG.standard_normal((4, M, E))
PADDED = np.arange(M) >= np.array([5, 4, 2, 0])[:, None]


def expected(layer, hidden):
    """Result and weights in NumPy; ``hidden`` is True where one of the first keys is masked."""

    def projected(x, of):
        return x @ of.weight.numpy().T + of.bias.numpy()

    def heads(x):
        return x.reshape(*x.shape[:2], HEADS, E // HEADS).swapaxes(1, 2)

    q, k, v = projected(QUERY, layer.q_proj), projected(KEY, layer.k_proj), projected(KEY, layer.v_proj)  # fmt: skip
    added = []
    if layer.bias_k is not None:
        added.append((layer.bias_k.numpy(), layer.bias_v.numpy()))
    if layer.add_zero_attn:
        added.append((np.zeros((1, 1, E)),) * 2)
    k = np.concatenate([k, *(np.repeat(a, len(k), 0) for a, _ in added)], 1)
    v = np.concatenate([v, *(np.repeat(a, len(v), 0) for _, a in added)], 1)
    hidden = np.broadcast_to(hidden, (4, 1, N, M))
    hidden = np.concatenate([hidden, np.zeros((4, 1, N, len(added)), bool)], -1)
    scores = heads(q) @ heads(k).swapaxes(-1, -2) / (E // HEADS) ** 0.5
    scores = np.exp(np.where(hidden, -np.inf, scores))
    weights = scores / scores.sum(-1, keepdims=True)
    out = (weights @ heads(v)).swapaxes(1, 2).reshape(4, N, E)
    return projected(out, layer.out_proj), weights


MASKS = {
    "none": ({}, False),
    "padding": ({"key_padding_mask": gr.asarray(PADDED)}, PADDED[:, None, None]),
    "causal": ({"is_causal": True}, ~np.tri(N, M, dtype=bool)),
    "of one column": ({"mask": gr.asarray([[True], [False], [True]])}, np.array([[False], [True], [False]])),
    "numbers": ({"attn_mask": gr.asarray(np.where(np.tri(N, M), 0.0, -np.inf))}, ~np.tri(N, M, dtype=bool)),
    "both": ({"is_causal": True, "key_padding_mask": gr.asarray(PADDED)}, PADDED[:, None, None] | ~np.tri(N, M, dtype=bool)),
}  # fmt: skip


@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("added", [(True, False), (False, True), (True, True)])
def test_added_keys_are_seen_by_every_query(added, case):
    options, hidden = MASKS[case]
    bias, zero = added
    layer = nn.MultiheadAttention(
        E, HEADS, dtype=gr.float64, add_bias_kv=bias, add_zero_attn=zero
    ).eval()
    query, key = gr.asarray(QUERY), gr.asarray(KEY)
    want, weights = expected(layer, hidden)
    close(layer(query, key, **options), want, 1e-9, 1e-12)
    out, found = layer(query, key, need_weights=True, average_attn_weights=False, **options)
    close(out, want, 1e-9, 1e-12)
    close(found, weights, 1e-9, 1e-12)
    one, _ = layer(query[0], key[0], need_weights=True)
    assert one.shape == (N, E)


def test_added_keys_are_learnt_saved_and_fewer_with_shared_heads():
    layer = nn.MultiheadAttention(8, 4, num_kv_heads=2, add_bias_kv=True, add_zero_attn=True)
    assert layer.bias_k.shape == layer.bias_v.shape == (1, 1, 4)
    assert {"bias_k", "bias_v"} <= set(layer.state_dict())
    assert {"bias_k", "bias_v"} <= set(layer.state_dict("torch"))
    x = gr.ones([2, 3, 8])
    _, grads = nn.value_and_grad(layer, lambda: (layer(x) ** 2).sum())()
    for name in ("bias_k", "bias_v"):
        assert grads[name].shape == (1, 1, 4)
        assert abs(grads[name]).sum().item() > 0
    assert "bias_k" not in nn.MultiheadAttention(8, 2).state_dict()


DROPS = {
    "dropout1d": (F.dropout1d, (50, 40, 6), 1),
    "dropout1d, no batch": (F.dropout1d, (40, 6), 1),
    "dropout2d": (F.dropout2d, (20, 40, 3, 4), 2),
    "dropout2d, three axes": (F.dropout2d, (50, 40, 6), 1),
    "dropout3d": (F.dropout3d, (20, 40, 2, 3, 4), 3),
    "dropout3d, no batch": (F.dropout3d, (40, 2, 3, 4), 3),
    "feature_alpha_dropout": (F.feature_alpha_dropout, (50, 40, 6), 1),
}


@pytest.mark.parametrize("name", DROPS)
def test_whole_channels_are_dropped(name):
    drop, shape, spatial = DROPS[name]
    y = drop(gr.ones(shape), 0.25).numpy().reshape(*shape[:-spatial], -1)
    assert (y == y[..., :1]).all()
    first = y[..., 0].ravel()
    if "alpha" not in name:
        assert set(first.tolist()) <= {0.0, np.float32(4 / 3).item()}
    dropped = (first < 1).mean() if "alpha" in name else (first == 0).mean()
    assert abs(dropped - 0.25) < 4 * (0.25 * 0.75 / first.size) ** 0.5
    close(drop(gr.ones(shape), 0.0), np.ones(shape, "f4"))
    with pytest.raises(gr.InvalidArgumentError, match=r"1\.5"):
        drop(gr.ones(shape), 1.5)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3.5, np.inf])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 60])
def test_distances_of_all_pairs(n, p):
    x = np.random.default_rng(n).integers(-3, 4, (n, 3)).astype("f8")
    pairs = list(combinations(range(n), 2))
    want = [np.linalg.norm(x[i] - x[j], p) if p else np.sum(x[i] != x[j]) for i, j in pairs]
    got = F.pdist(gr.asarray(x), p)
    assert got.shape == (len(pairs),)
    close(got, np.array(want, "f8"), 1e-12)


def test_pdist_refuses_vectors_and_negative_orders():
    with pytest.raises(gr.ShapeError, match=r"pdist: .*\[3\]"):
        F.pdist(gr.ones([3]))
    with pytest.raises(gr.InvalidArgumentError, match="got -1"):
        F.pdist(gr.ones([3, 2]), -1)
    # The gradient of equal rows is 0.
    assert gr.grad(lambda x: F.pdist(x).sum())(gr.ones([2, 2])).tolist() == [[0, 0], [0, 0]]
