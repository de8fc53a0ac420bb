"""Position encodings, caches, parametrised weights, and state dictionaries exchanged with PyTorch."""

from __future__ import annotations

import copy

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn


def turned(x, dims, traditional, base, scale, offset):
    """RoPE in NumPy with complex numbers."""
    n = x.shape[-2]
    angles = ((np.arange(n) + offset) * scale)[:, None] * base ** (-np.arange(0, dims, 2) / dims)
    head = x[..., :dims]
    pairs = head.reshape(*head.shape[:-1], dims // 2, 2) if traditional else np.stack(np.split(head, 2, -1), -1)  # fmt: skip
    z = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
    back = np.stack([z.real, z.imag], -1).reshape(head.shape) if traditional else np.concatenate([z.real, z.imag], -1)  # fmt: skip
    return np.concatenate([back, x[..., dims:]], -1)


@pytest.mark.parametrize("traditional", [True, False])
@pytest.mark.parametrize("dims", [2, 6, 8])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 5, 8), (0, 8), (2, 1, 8)])
def test_rotary_positions(shape, dims, traditional):
    x = sample(shape, "float64")
    rope = nn.RoPE(dims, traditional, 100.0, 0.5)
    for offset in (0, 7):
        want = turned(x, dims, traditional, 100.0, 0.5, offset)
        close(rope(gr.asarray(x), offset), want, 1e-12, 1e-12)
        close(rope(gr.asarray(x), gr.asarray(offset)), want, 1e-12, 1e-12)
    half = rope(gr.asarray(x).astype(gr.float16), 7)
    assert half.dtype == gr.float16
    close(half.astype(gr.float64), turned(x, dims, traditional, 100.0, 0.5, 7), 2e-2, 2e-2)


def test_one_program_turns_sequences_of_any_length_from_any_position():
    rope = nn.RoPE(4)
    f = gr.compile(lambda x, at: rope(x, at), dynamic_dims={0: {0: "n"}})
    for n, at in ((3, 0), (5, 2), (1, 9)):
        x = sample((n, 4), "float32")
        want = turned(x, 4, False, 1e4, 1.0, at).astype("float32")
        close(f(gr.asarray(x), gr.asarray(at)), want, 1e-4, 1e-5)
    assert f.num_programs == 1


def test_sinusoidal_positions_are_those_of_the_paper():
    x = sample((2, 5, 6), "float64")
    at = np.arange(5)[:, None] + 3
    waves = at / 10000.0 ** (np.arange(0, 6, 2) / 6)
    want = x.copy()
    want[..., 0::2] += np.sin(waves)
    want[..., 1::2] += np.cos(waves)
    close(nn.SinusoidalPositionalEncoding(6)(gr.asarray(x), 3), want, 1e-12)


def test_invalid_positional_encodings_are_refused():
    for kind in (nn.RoPE, nn.SinusoidalPositionalEncoding):
        for bad in (3, 0, -2):
            with pytest.raises(gr.InvalidArgumentError, match=f"{kind.__name__}: dims must be"):
                kind(bad)
        with pytest.raises(gr.ShapeError, match=rf"{kind.__name__}: expected \[..., n, 4"):
            kind(4)(gr.ones([2, 3]))
    with pytest.raises(gr.InvalidArgumentError, match="base must be above 0"):
        nn.RoPE(4, base=0.0)


@pytest.mark.parametrize("batch", [[], [2]])
@pytest.mark.parametrize("rope", [False, True])
def test_steps_with_a_cache_agree_with_the_whole_sequence(batch, rope):
    layer = nn.MultiheadAttention(8, 4, num_kv_heads=2, dtype=gr.float64, rope=nn.RoPE(2) if rope else None)  # fmt: skip
    x = gr.asarray(sample((*batch, 6, 8), "float64"))
    whole = layer(x, is_causal=True).numpy()
    cache = layer.make_cache(batch, 7)
    # Several positions at once, then one at a time.
    close(layer(x[..., :3, :], cache=cache), whole[..., :3, :], 1e-10, 1e-12)
    for i in range(3, 6):
        close(layer(x[..., i : i + 1, :], cache=cache), whole[..., i : i + 1, :], 1e-10, 1e-12)
    assert cache.length.item() == 6
    assert cache.capacity == 7
    # Masks apply to the positions of the cache.
    seen = np.arange(7) != 1
    mask = gr.asarray(seen)
    fresh = layer.make_cache(batch, 7)
    masked = layer(x, mask=mask, cache=fresh).numpy()
    causal = np.tril(np.ones((6, 6), bool)) & seen[:6]
    close(layer(x, mask=gr.asarray(causal)), masked, 1e-10, 1e-12)


def test_a_compiled_step_with_a_cache_is_one_program():
    make = lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, norm_first=True)
    encoder = gr.eval(nn.TransformerEncoder(make, 2, nn.LayerNorm(8)).eval())
    x = gr.asarray(sample((3, 5, 8), "float32"))
    whole = encoder(x, is_causal=True).numpy()

    @gr.compile(donate=("caches",))
    def step(x, caches):
        return encoder(x, caches=caches), caches

    caches = encoder.make_cache([3], 8)
    held = encoder.make_cache([3], 8)
    closed = gr.compile(lambda x: encoder(x, caches=held))
    for i in range(5):
        y, caches = step(x[:, i : i + 1], caches)
        close(y, whole[:, i : i + 1], 1e-4, 1e-5)
        close(closed(x[:, i : i + 1]), y.numpy(), 1e-5, 1e-6)
    assert step.num_programs == closed.num_programs == 1
    assert caches[0].length.item() == held[1].length.item() == 5
    decoder = nn.TransformerDecoder(lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2)
    memory, caches = gr.ones([3, 4, 8]), decoder.make_cache([3], 5)
    whole = decoder(x, memory, tgt_is_causal=True).numpy()
    for i in range(5):
        close(decoder(x[:, i : i + 1], memory, caches), whole[:, i : i + 1], 1e-4, 1e-5)


def test_caches_that_do_not_fit():
    layer = nn.MultiheadAttention(8, 2)
    cache = layer.make_cache([1], 2)
    with pytest.raises(gr.ShapeError, match="do not go into a cache"):
        layer(gr.ones([2, 1, 8]), cache=cache)
    with pytest.raises(gr.ShapeError, match="do not go into a cache"):
        layer(gr.ones([1, 3, 8]), cache=cache)
    layer(gr.ones([1, 2, 8]), cache=cache).eval()
    with pytest.raises(gr.IndexOutOfBoundsError):
        layer(gr.ones([1, 1, 8]), cache=cache).eval()
    with pytest.raises(gr.ShapeError, match="KVCache: expected a shape"):
        nn.KVCache.zeros([2, 3])
    encoder = nn.TransformerEncoder(lambda: nn.TransformerEncoderLayer(8, 2, 16), 2)
    with pytest.raises(gr.InvalidArgumentError, match="2 layers need as many caches, got 1"):
        encoder(gr.ones([1, 1, 8]), caches=[cache])


LAYERS = [
    (lambda: nn.Linear(4, 3), (2, 4), 0),
    (lambda: nn.Conv2d(2, 3, 3, dtype=gr.float64), (1, 2, 5, 5), 0),
    (lambda: nn.ConvTranspose1d(2, 3, 3), (1, 2, 5), 1),
    (lambda: nn.Linear(1, 1), (2, 1), -1),
]


@pytest.mark.parametrize(("make", "shape", "dim"), LAYERS)
@pytest.mark.parametrize("function", ["weight_norm", "spectral_norm"])
def test_reparametrised_weights_are_trained_compiled_copied_and_removed(function, make, shape, dim):
    layer = gr.eval(make())
    x = gr.asarray(sample(shape, layer.weight.dtype.name))
    before, weight = layer(x).numpy(), layer.weight.numpy()
    getattr(nn, function)(layer, dim=dim)
    assert type(layer).__name__ == type(make()).__name__
    assert "weight" not in layer.state_dict()
    if function == "weight_norm":
        close(layer(x), before, 1e-4, 1e-5)
    else:
        rows = np.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)
        close(layer.weight, weight / np.linalg.svd(rows, compute_uv=False)[0], 1e-2, 1e-3)
    again = copy.deepcopy(layer)
    again.load_state_dict(layer.state_dict())
    close(again.eval()(x), copy.deepcopy(layer).eval()(x).numpy(), 1e-6)
    plain, optimizer, other = copy.deepcopy(layer), gr.optim.SGD(0.1), gr.optim.SGD(0.1)

    def step_of(model, optimizer):
        gradients = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())

        def step(x):
            loss, grads = gradients(x)
            optimizer.update(model, grads)
            return loss

        return step

    compiled, slow = gr.compile(step_of(layer, optimizer)), step_of(plain, other)
    losses = []
    for _ in range(4):
        loss = slow(x)
        gr.eval(loss, plain, other.state)
        losses.append(compiled(x).item())
        assert loss.item() == pytest.approx(losses[-1], rel=1e-5, abs=1e-12)
    assert compiled.num_programs == 1
    assert losses[-1] < losses[0] or losses[0] < 1e-12 or function == "spectral_norm"
    weight = layer.weight.numpy()
    layer.eval()
    expected = layer(x).numpy()
    getattr(nn, f"remove_{function}")(layer)
    assert set(layer.state_dict()) == set(make().state_dict())
    close(layer.weight, weight, 1e-6)
    close(layer(x), expected, 1e-5, 1e-6)
    assert type(layer) is type(make())


def test_saved_programs_hold_the_tensors_of_reparametrised_weights():
    layers = (nn.weight_norm(nn.Linear(3, 2)), nn.spectral_norm(nn.Linear(2, 2)))
    model, x = gr.eval(nn.Sequential(*layers)).eval(), gr.asarray(sample((4, 3), "float32"))
    names = {"0.bias", "0.weight_g", "0.weight_v", "1.bias", "1.weight_orig"}
    compiled = gr.compile(lambda x: model(x))
    for output in (model(x), compiled):
        program = gr.deserialize(gr.serialize(output, inputs=[x]))
        assert set(program.parameters) == names
        close(program(x), model(x).numpy(), 1e-6)


def test_invalid_reparametrisations_are_refused():
    with pytest.raises(
        gr.InvalidArgumentError, match="weight_norm: ReLU has no parameter 'weight'"
    ):
        nn.weight_norm(nn.ReLU())
    with pytest.raises(gr.InvalidArgumentError, match="no parameter 'bias'"):
        nn.spectral_norm(nn.Linear(2, 2, bias=False), "bias")
    with pytest.raises(gr.InvalidArgumentError, match="dim 2 is no axis of weight"):
        nn.weight_norm(nn.Linear(2, 2), dim=2)
    with pytest.raises(gr.InvalidArgumentError, match="n_power_iterations must be at least 1"):
        nn.spectral_norm(nn.Linear(2, 2), n_power_iterations=0)
    with pytest.raises(gr.InvalidArgumentError, match="remove_spectral_norm: 'weight' of Linear"):
        nn.remove_spectral_norm(nn.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(gr.InvalidArgumentError, match="expected a module, got Tensor"):
        nn.weight_norm(gr.ones([2]))
    one = nn.weight_norm(nn.Linear(3, 2), dim=None)
    assert one.weight_g.shape == ()


class Tokens(nn.Module):
    def __init__(self):
        self.embed = nn.Embedding(7, 8)
        self.model = nn.Transformer(8, 2, 1, 2, 16, 0.0)
        self.norms = nn.Sequential(nn.BatchNorm1d(8), nn.GroupNorm(2, 8), nn.PReLU(8))
        self.memory = nn.LSTM(8, 3, num_layers=2, bidirectional=True)
        self.across = nn.MultiheadAttention(8, 2, kdim=6, vdim=4)
        self.long = nn.weight_norm(nn.Linear(8, 4))
        self.flat = nn.spectral_norm(nn.Conv1d(4, 4, 3, padding=1))


def torch_tokens(torch):
    p = torch.nn.utils.parametrizations
    made = torch.nn.Module()
    made.embed = torch.nn.Embedding(7, 8)
    made.model = torch.nn.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True)
    made.norms = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.GroupNorm(2, 8), torch.nn.PReLU(8))  # fmt: skip
    made.memory = torch.nn.LSTM(8, 3, num_layers=2, bidirectional=True)
    made.across = torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True)
    made.long = p.weight_norm(torch.nn.Linear(8, 4))
    made.flat = p.spectral_norm(torch.nn.Conv1d(4, 4, 3, padding=1))
    return made.eval()


def outputs(model, ids, x, key, value, line):
    y = model.embed(ids)
    y = model.model(y, y)
    return (
        y,
        model.norms(x),
        model.memory(x[:, None])[0],
        model.across(x[None], key, value),
        model.long(x),
        model.flat(line),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checkpoints_of_pytorch_load_and_ours_load_there(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    theirs, ours = torch_tokens(torch), Tokens().eval()
    ids = np.array([[1, 2, 6], [0, 3, 3]])
    arrays = [sample(s, "float32") for s in ((5, 8), (1, 4, 6), (1, 4, 4), (2, 4, 6))]
    file = tmp_path / "model.safetensors"

    def check():
        with torch.no_grad():
            want = outputs(theirs, *map(torch.from_numpy, (ids, *arrays)))
        found = outputs(ours, *map(gr.asarray, (ids, *arrays)))
        for a, b in zip(found, want, strict=True):
            b = b[0] if isinstance(b, tuple) else b
            close(a, b.numpy(), 1e-4, 1e-5)

    gr.save(file, {k: gr.asarray(v.numpy().copy()) for k, v in theirs.state_dict().items()})
    ours.load_state_dict(gr.load(file))
    check()
    # And back: other weights, loaded with PyTorch's names.
    gr.manual_seed(5)
    ours = Tokens().eval()
    gr.save(file, ours.state_dict("torch"))
    state = {k: torch.from_numpy(v.numpy().copy()) for k, v in gr.load(file).items()}
    assert set(state) == set(theirs.state_dict())
    theirs.load_state_dict(state)
    check()


def test_states_in_pytorchs_names_without_pytorch():
    layer = nn.MultiheadAttention(4, 2, num_kv_heads=1)
    packed = layer.state_dict("torch")
    assert {k: v.shape for k, v in packed.items()} == {"out_proj.weight": (4, 4), "out_proj.bias": (4,), "in_proj_weight": (8, 4), "in_proj_bias": (8,)}  # fmt: skip
    other = nn.MultiheadAttention(4, 2, num_kv_heads=1).load_state_dict(packed)
    for name, tensor in layer.state_dict().items():
        assert other.state_dict()[name].tolist() == tensor.tolist()
    with pytest.raises(gr.InvalidArgumentError, match=r"unexpected \['in_proj_weight'\]"):
        layer.load_state_dict({**packed, "in_proj_weight": gr.ones([9, 4])})
    with pytest.raises(gr.InvalidArgumentError, match="style is 'girih' or 'torch', got 'keras'"):
        layer.state_dict("keras")
