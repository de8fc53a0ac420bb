"""Recurrent layers and transformers: against steps in NumPy, and against PyTorch with the same
parameters, which have the same names.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn
from scipy.special import expit


def step(kind, x, h, c, w, u, b, d):
    """One step in NumPy."""
    a, r = x @ w.T + b, h @ u.T + d
    if kind == "LSTM":
        i, f, g, o = np.split(a + r, 4, -1)
        c = expit(f) * c + expit(i) * np.tanh(g)
        return expit(o) * np.tanh(c), c
    if kind == "GRU":
        (ra, za, na), (rr, zr, nr) = np.split(a, 3, -1), np.split(r, 3, -1)
        z = expit(za + zr)
        return (1 - z) * np.tanh(na + expit(ra + rr) * nr) + z * h, c
    return np.tanh(a + r), c


def run(kind, x, parameters, reverse=False):
    h = c = np.zeros((x.shape[1], parameters[1].shape[1]))
    out = []
    for part in x[::-1] if reverse else x:
        h, c = step(kind, part, h, c, *parameters)
        out.append(h)
    return np.stack(out[::-1] if reverse else out), h, c


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layers_are_steps_over_time(kind):
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True, dtype=gr.float64)
    state = {n: p.numpy() for n, p in layer.named_parameters()}
    assert list(state)[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert all(np.abs(p).max() <= 0.5 for p in state.values())
    x = sample((5, 2, 3), "float64")
    want, hs, cs = x, [], []
    for layer_number in range(2):
        outs = []
        for suffix in (f"_l{layer_number}", f"_l{layer_number}_reverse"):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            out, h, c = run(kind, want, [state[n + suffix] for n in names], "reverse" in suffix)
            outs.append(out)
            hs.append(h)
            cs.append(c)
        want = np.concatenate(outs, -1)
    got, last = layer(gr.asarray(x))
    close(got, want, 1e-11, 1e-12)
    if kind == "LSTM":
        close(last[0], np.stack(hs), 1e-11, 1e-12)
        close(last[1], np.stack(cs), 1e-11, 1e-12)
    else:
        close(last, np.stack(hs), 1e-11, 1e-12)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_forms_of_operands(kind):
    x = gr.asarray(sample((5, 2, 3), "float32"))
    layer = getattr(nn, kind)(3, 4, batch_first=True)
    out, last = layer(x.swapaxes(0, 1))
    single, state = layer(x[:, 0])
    h, one = (last[0], state[0]) if kind == "LSTM" else (last, state)
    assert (out.shape, h.shape, single.shape, one.shape) == ((2, 5, 4), (1, 2, 4), (5, 4), (1, 4))
    close(single, out[0].numpy(), 1e-5, 1e-6)
    # Continuing from a state equals running the whole sequence.
    first, middle = layer(x[:2].swapaxes(0, 1))
    second, _ = layer(x[2:].swapaxes(0, 1), middle)
    close(gr.concat([first, second], 1), out.numpy(), 1e-5, 1e-6)
    # A cell computes one step.
    cell = getattr(nn, kind + "Cell")(3, 4)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    for name in names:
        setattr(cell, name, getattr(layer, f"{name}_l0"))
    state = None
    for i in range(5):
        state = cell(x[i], state)
    close(state[0] if kind == "LSTM" else state, h[0].numpy(), 1e-5, 1e-6)
    with pytest.raises(gr.ShapeError, match=rf"{kind}: expected \[batch, time, 3\]"):
        layer(gr.ones([2, 5, 4]))
    wrong = gr.zeros([1, 3, 4])
    first = (wrong, wrong) if kind == "LSTM" else wrong
    with pytest.raises(gr.ShapeError, match=rf"{kind}: expected a state of shape \[1, 2, 4\]"):
        layer(x.swapaxes(0, 1), first)
    with pytest.raises(gr.ShapeError, match=f"{kind}Cell: expected"):
        cell(gr.ones([2, 5]))


def test_invalid_recurrent_layers_are_refused():
    with pytest.raises(gr.InvalidArgumentError, match="RNN: nonlinearity is"):
        nn.RNN(2, 3, nonlinearity="gelu")
    with pytest.raises(gr.InvalidArgumentError, match="GRU: sizes must be at least 1"):
        nn.GRU(0, 3)
    with pytest.raises(gr.InvalidArgumentError, match="LSTM: num_layers must be at least 1"):
        nn.LSTM(2, 3, 0)
    with pytest.raises(gr.InvalidArgumentError, match=r"LSTM: dropout must be in \[0, 1\]"):
        nn.LSTM(2, 3, dropout=2)


def test_dropout_between_layers():
    layer = nn.GRU(2, 3, num_layers=2, dropout=1.0)
    x = gr.asarray(sample((4, 1, 2), "float32"))
    dropped = layer(x)[0].numpy()
    close(layer(x * 5)[0], dropped)
    layer.eval()
    assert np.abs(layer(x * 5)[0].numpy() - layer(x)[0].numpy()).max() > 0


def test_a_recurrent_layer_learns_in_a_compiled_loop():
    layer = nn.LSTM(1, 8)
    head = nn.Linear(8, 1)
    model = nn.ModuleList([layer, head])
    x = gr.asarray(sample((12, 6, 1), "float32", low=-1, high=1))
    want = gr.cumsum(x, 0) * 0.3
    loss_and_grad = nn.value_and_grad(model, lambda: nn.mse(head(layer(x)[0]), want))
    optimizer = gr.optim.Adam(0.02)
    gr.eval(model)
    losses = []
    for _ in range(60):
        loss, grads = loss_and_grad()
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_encoders_and_decoders():
    make = lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True)
    encoder = nn.TransformerEncoder(make, 2, nn.LayerNorm(8)).eval()
    x = gr.asarray(sample((3, 5, 8), "float32"))
    out = encoder(x, is_causal=True).numpy()
    # Later positions do not affect earlier ones.
    later = gr.concat([x[:, :3], x[:, 3:] * 7], 1)
    close(encoder(later, is_causal=True)[:, :3], out[:, :3], 1e-4, 1e-5)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    close(encoder(x, mask), out, 1e-4, 1e-5)
    copies = nn.TransformerEncoder(make(), 2)
    first, second = (dict(layer.named_parameters()) for layer in copies.layers)
    close(first["linear1.weight"], second["linear1.weight"].numpy())
    assert copies.layers[0] is not copies.layers[1]
    _, grads = nn.value_and_grad(copies, lambda: copies(x).square().mean())()
    assert set(grads["layers"]) == {"0", "1"}
    with pytest.raises(gr.InvalidArgumentError, match="TransformerDecoderLayer: activation is"):
        nn.TransformerDecoderLayer(8, 2, activation="tanhh")
    with pytest.raises(gr.InvalidArgumentError, match="num_layers must not be negative"):
        nn.TransformerEncoder(make, -1)
    assert nn.TransformerEncoderLayer(8, 2, 16, bias=False).norm1.bias is None


# PyTorch with the same parameters.


def theirs_of(ours):
    """A state dictionary for PyTorch, where the projections of attention are one matrix."""
    torch = pytest.importorskip("torch")
    state = {n: torch.tensor(p.numpy()) for n, p in ours.state_dict().items()}
    for name in [n for n in state if n.endswith(("q_proj.weight", "q_proj.bias"))]:
        prefix, kind = name.rsplit("q_proj.", 1)
        parts = [state.pop(f"{prefix}{p}_proj.{kind}") for p in "qkv"]
        state[f"{prefix}in_proj_{kind}"] = torch.cat(parts)
    return state


RECURRENT = {
    "RNN": {}, "RNN relu": {"nonlinearity": "relu", "num_layers": 2}, "LSTM": {"num_layers": 2},
    "LSTM both": {"bidirectional": True, "batch_first": True}, "GRU": {"num_layers": 2, "bidirectional": True},
    "GRU without bias": {"bias": False},
}  # fmt: skip


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_beside_pytorch(name):
    torch = pytest.importorskip("torch")
    kind, options = name.split()[0], RECURRENT[name]
    ours = getattr(nn, kind)(3, 4, dtype=gr.float64, **options)
    theirs = getattr(torch.nn, kind)(3, 4, dtype=torch.float64, **options)
    theirs.load_state_dict(theirs_of(ours))
    x = sample((5, 2, 3), "float64")
    mine = gr.asarray(x)
    its = torch.tensor(x, requires_grad=True)
    got, state = ours(mine)
    want, last = theirs(its)
    close(got, want.detach().numpy(), 1e-11, 1e-12)
    pairs = zip(state, last, strict=True) if kind == "LSTM" else [(state, last)]
    for a, b in pairs:
        close(a, b.detach().numpy(), 1e-11, 1e-12)
    (want**3).sum().backward()
    g = gr.grad(lambda x: (ours(x)[0] ** 3).sum())(mine)
    close(g, its.grad.numpy(), 1e-9, 1e-10)
    _, grads = nn.value_and_grad(ours, lambda: (ours(mine)[0] ** 3).sum())()
    for parameter, gradient in grads.items():
        close(gradient, getattr(theirs, parameter).grad.numpy(), 1e-9, 1e-10)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_transformers_beside_pytorch(norm_first, activation):
    torch = pytest.importorskip("torch")
    sizes = (8, 2, 2, 1, 16, 0.0, activation)
    ours = nn.Transformer(*sizes, norm_first=norm_first, dtype=gr.float64)
    theirs = torch.nn.Transformer(
        *sizes, norm_first=norm_first, batch_first=True, dtype=torch.float64
    )
    theirs.load_state_dict(theirs_of(ours))
    src, tgt = sample((3, 5, 8), "float64"), sample((3, 4, 8), "float64", 1)
    padded = np.zeros((3, 5), bool)
    padded[0, 3:] = padded[2, 1:] = True
    causal = np.triu(np.ones((4, 4), bool), 1)
    want = theirs(
        torch.tensor(src),
        torch.tensor(tgt),
        tgt_mask=torch.tensor(causal),
        src_key_padding_mask=torch.tensor(padded),
        memory_key_padding_mask=torch.tensor(padded),
    )
    got = ours(
        gr.asarray(src),
        gr.asarray(tgt),
        tgt_mask=gr.asarray(causal),
        src_key_padding_mask=gr.asarray(padded),
        memory_key_padding_mask=gr.asarray(padded),
    )
    close(got, want.detach().numpy(), 1e-10, 1e-11)


def test_attention_beside_pytorch():
    torch = pytest.importorskip("torch")
    ours = nn.MultiheadAttention(8, 2, dtype=gr.float64)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(theirs_of(ours))
    q, k = sample((3, 4, 8), "float64"), sample((3, 5, 8), "float64", 1)
    padded = np.zeros((3, 5), bool)
    padded[1, 2:] = True
    mask = np.random.default_rng(0).random((6, 4, 5)) < 0.2
    for average in (True, False):
        options = {"need_weights": True, "average_attn_weights": average}
        masks = {"key_padding_mask": padded, "attn_mask": mask}
        t = torch.tensor
        want = theirs(t(q), t(k), t(k), **{n: t(m) for n, m in masks.items()}, **options)
        mine = {n: gr.asarray(m) for n, m in masks.items()}
        got = ours(gr.asarray(q), gr.asarray(k), **mine, **options)
        for a, b in zip(got, want, strict=True):
            close(a, b.detach().numpy(), 1e-10, 1e-11)


def test_rotations_begin_at_the_offset_of_each_row():
    x, rope = gr.randn(2, 3, 5, 6), gr.nn.RoPE(4)
    offsets = gr.asarray([0, 7])
    rows = [rope(x[0], 0), rope(x[1], 7)]
    np.testing.assert_allclose(rope(x, offsets), gr.stack(rows), rtol=1e-5, atol=1e-6)
    compiled = gr.compile(lambda x, at: rope(x, offset=at))
    np.testing.assert_allclose(compiled(x, offsets), gr.stack(rows), rtol=1e-5, atol=1e-6)
    each = gr.asarray([[0, 1, 2], [3, 4, 5]])
    np.testing.assert_allclose(rope(x, each)[1, 1], rope(x[1, 1], 4), rtol=1e-5, atol=1e-6)
    encoding = gr.nn.SinusoidalPositionalEncoding(6)
    rows = [encoding(x[0], 0), encoding(x[1], 7)]
    np.testing.assert_allclose(encoding(x, offsets), gr.stack(rows), rtol=1e-5, atol=1e-6)
    for bad in (gr.asarray([1, 2, 3]), gr.zeros([2, 3, 5], dtype=gr.int64)):
        with pytest.raises(gr.ShapeError, match="offset"):
            rope(x, bad)


def test_rotations_by_frequencies_of_ones_own():
    x = gr.randn(2, 5, 4)
    own = gr.nn.RoPE(4, frequencies=gr.asarray([1.0, 0.01]))
    np.testing.assert_allclose(own(x), gr.nn.RoPE(4)(x), rtol=1e-5, atol=1e-6)
    assert not own.parameters()
    assert own.state_dict()["frequencies"].tolist() == pytest.approx([1.0, 0.01])
    with pytest.raises(gr.ShapeError, match="2 frequencies"):
        gr.nn.RoPE(4, frequencies=gr.ones(4))


def test_linear_biases_fall_with_the_distance():
    alibi = gr.nn.ALiBi(8)
    slopes = [2.0**-i for i in range(1, 9)]
    assert alibi.bias(3, 4)[:, 0, 1].tolist() == [-s for s in slopes]
    assert alibi.bias(1, 4, offset=3)[0].tolist() == [[-1.5, -1.0, -0.5, 0.0]]
    scores = gr.randn(2, 8, 3, 4)
    expected = scores + alibi.bias(3, 4)
    np.testing.assert_allclose(alibi(scores), expected, rtol=1e-6)
    np.testing.assert_allclose(
        alibi(scores, offset=gr.asarray(2)), scores + alibi.bias(3, 4, 2), rtol=1e-6
    )
    assert alibi(scores.astype(gr.float16)).dtype == gr.float16
    assert alibi.bias(0, 4).shape == (8, 0, 4)
    with pytest.raises(gr.ShapeError, match="ALiBi"):
        alibi(gr.zeros([7, 3, 4]))
    with pytest.raises(gr.InvalidArgumentError):
        gr.nn.ALiBi(0)
