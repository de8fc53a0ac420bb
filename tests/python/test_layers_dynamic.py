"""Layers, and their derivatives, that are traced once run with batches of all sizes."""

from __future__ import annotations

import girih as gr
import pytest
from conftest import close, sample
from girih import nn

F = nn.functional
ATTENTION, RECURRENT = nn.MultiheadAttention(8, 2), nn.LSTM(8, 4, batch_first=True)
TABLE, BAGS = nn.Embedding(5, 3, 1), nn.EmbeddingBag(5, 3)
gr.eval(ATTENTION, RECURRENT, TABLE, BAGS)

VARYING = {
    "places": (lambda x: F.max_pool2d_with_indices(x, 2)[1], (3, 6, 6)),
    "unpooling": (lambda x: F.max_unpool2d(*F.max_pool2d_with_indices(x, 2), 2), (3, 6, 6)),
    "adaptive places": (lambda x: F.adaptive_max_pool2d_with_indices(x, 4)[1], (3, 6, 6)),
    "circular": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (3, 6, 6)),
    "reflection": (nn.ReflectionPad2d(1), (3, 6, 6)),
    "shuffle": (nn.PixelShuffle(2), (4, 3, 3)),
    "unfold": (nn.Unfold(2), (3, 4, 4)),
    "fold": (nn.Fold((4, 4), 2), (12, 9)),
    "neighbours": (nn.LocalResponseNorm(3), (4, 3, 3)),
    "grid": (lambda x: F.grid_sample(x, F.affine_grid(gr.ones((x.shape[0], 2, 3)), x.shape)), (2, 3, 3)),
    "instance norm": (nn.InstanceNorm2d(3), (3, 4, 4)),
    "bilinear": (lambda x: F.bilinear(x, x, gr.ones([3, 4, 4])), (4,)),
    "dropout": (lambda x: nn.Dropout(0.5)(x) * 0, (4,)),
    "channel dropout": (lambda x: nn.Dropout2d(0.5)(x) * 0, (4, 3, 3)),
    "alpha dropout": (lambda x: nn.AlphaDropout(0.5)(x) * 0, (4,)),
    "gumbel": (lambda x: F.gumbel_softmax(x, hard=True).sum(-1), (4,)),
    "attention": (nn.MultiheadAttention(8, 2), (5, 8)),
    "weights": (lambda x: ATTENTION(x, need_weights=True)[1], (5, 8)),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, 0.0), (5, 8)),
    "recurrent": (lambda x: RECURRENT(x)[0], (5, 8)),
    "embedding": (lambda x: TABLE((x * 0).astype(gr.int64)), (4,)),
    "bags": (lambda x: BAGS((x * 0).astype(gr.int64)), (4,)),
    "batchmean": (lambda x: F.kl_div(x, gr.ones(x.shape), reduction="batchmean"), (4,)),
    "margins": (lambda x: F.multilabel_margin_loss(x, gr.zeros(x.shape, dtype=gr.int64)), (4,)),
    "sequences": (lambda x: F.ctc_loss(gr.log_softmax(x.swapaxes(0, 1), -1), gr.ones((x.shape[0], 2), dtype=gr.int64), gr.full((x.shape[0],), 6, dtype=gr.int64), gr.ones((x.shape[0],), dtype=gr.int64)), (6, 4)),
}  # fmt: skip


@pytest.mark.parametrize("derivative", [False, True])
@pytest.mark.parametrize("name", VARYING)
def test_one_program_serves_all_batches(name, derivative):
    function, shape = VARYING[name]
    if isinstance(function, nn.Module):
        gr.eval(function)
    if derivative and "places" in name:
        pytest.skip("integers")
    value = lambda x: gr.grad(lambda x: function(x).sum())(x) if derivative else function(x)
    compiled = gr.compile(value, dynamic_dims={0: {0: "n"}})
    for n in (3, 5, 4):
        x = gr.eval(gr.asarray(sample((n, *shape), "float32", n)))
        close(compiled(x), value(x).numpy(), 1e-4, 1e-5)
    assert compiled.num_programs == 1, compiled.guards
