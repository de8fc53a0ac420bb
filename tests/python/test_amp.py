"""Mixed precision: which modules compute in half precision, guards of compiled functions, and loss
scaling.
"""

from __future__ import annotations

import threading

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn, optim

HALF = {"bfloat16": "bf16", "float16": "f16"}


def text(model, *args):
    return gr.graph_to_text(model(*args))


LOW = [
    (lambda: nn.Linear(4, 3), (2, 4)),
    (lambda: nn.Conv2d(2, 3, 3), (1, 2, 5, 5)),
    (lambda: nn.ConvTranspose1d(2, 3, 3), (1, 2, 5)),
    (lambda: nn.weight_norm(nn.Linear(4, 3)), (2, 4)),
    (lambda: nn.MultiheadAttention(4, 2), (3, 4)),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0), (2, 3, 4)),
    (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), (6, 4)),
]
WIDE = [
    (lambda: nn.LayerNorm(4), (2, 4)),
    (lambda: nn.BatchNorm1d(4), (3, 4)),
    (lambda: nn.RMSNorm(4), (2, 4)),
    (lambda: nn.GroupNorm(2, 4), (2, 4)),
    (lambda: nn.MSELoss(), (2, 4)),
]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(("make", "shape"), LOW)
def test_products_are_in_half_precision(make, shape, dtype):
    model = gr.eval(make()).eval()
    x = gr.asarray(sample(shape, "float32"))
    want, parameters = model(x).numpy(), [id(p) for p in model.parameters()]
    assert HALF[dtype] not in text(model, x)
    with gr.amp.autocast(getattr(gr, dtype)):
        assert HALF[dtype] in text(model, x)
        found = model(x)
        double = copy_of(model)(x.astype(gr.float64))
    assert found.dtype == gr.float32
    assert double.dtype == gr.float64
    assert np.abs(found.numpy() - want).max() < 0.1 * max(1.0, np.abs(want).max())
    # The parameters are unchanged.
    assert [id(p) for p in model.parameters()] == parameters
    assert all(p.dtype == gr.float32 for p in model.parameters())
    close(model(x), want)


def copy_of(model):
    import copy

    return copy.deepcopy(model).astype(gr.float64)


@pytest.mark.parametrize(("make", "shape"), WIDE)
def test_norms_and_losses_are_in_float32(make, shape):
    model, x = make(), gr.asarray(sample(shape, "float32")).astype(gr.bfloat16)
    args = (x, gr.zeros_like(x)) if isinstance(model, nn.MSELoss) else (x,)
    with gr.amp.autocast():
        found = model(*args)
    want = model(*(a.astype(gr.float32) for a in args))
    assert found.dtype == gr.float32
    close(found, want.numpy(), 1e-6)


def test_recurrent_layers_take_and_give_states():
    for kind in (nn.LSTM, nn.GRU):
        layer, x = kind(3, 4), gr.asarray(sample((5, 2, 3), "float32"))
        want, _ = layer(x)
        with gr.amp.autocast():
            found, state = layer(x)
            again, _ = layer(x, state)
        for tensor in gr.tree.leaves((found, state, again)):
            assert tensor.dtype == gr.float32
        close(found, want.numpy(), 5e-2, 5e-2)


def test_compiled_functions_have_a_program_for_each_autocast_scope():
    model, x = gr.eval(nn.Linear(3, 2)), gr.asarray(sample((4, 3), "float32"))
    f = gr.compile(lambda x: model(x))
    plain = f(x).numpy()
    for _ in range(3):
        with gr.amp.autocast():
            low = f(x).numpy()
            with gr.amp.autocast(enabled=False):
                close(f(x), plain)
            close(f(x), low)
        close(f(x), plain)
    assert (low != plain).any()
    assert f.num_programs == 2
    inside = gr.compile(gr.amp.autocast()(lambda x: model(x)))
    close(inside(x), low)


def test_a_scope_belongs_to_its_thread_and_ends_with_errors():
    model, x = gr.eval(nn.Linear(3, 2)), gr.asarray(sample((4, 3), "float32"))
    found = []
    with gr.amp.autocast():
        thread = threading.Thread(target=lambda: found.append(text(model, x)))
        thread.start()
        thread.join()
    with pytest.raises(gr.ShapeError), gr.amp.autocast():
        model(gr.ones([2, 5]))
    assert "bf16" not in found[0]
    assert "bf16" not in text(model, x)
    assert all(p.dtype == gr.float32 for p in model.parameters())
    for bad in (gr.float32, gr.int8):
        with pytest.raises(gr.DTypeError, match="dtype is bfloat16 or float16, got"):
            gr.amp.autocast(bad)


@pytest.mark.parametrize("dtype", HALF)
def test_a_training_in_half_precision_comes_to_about_the_same_loss(dtype):
    x, y = gr.asarray(sample((64, 8), "float32", 0, -1, 1)), None
    y = gr.eval((x[:, :4] * x[:, 4:]).sum(1, keepdims=True))

    def trained(policy):
        gr.manual_seed(0)
        model = gr.eval(nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 1)))  # fmt: skip
        scaler, optimizer = gr.amp.LossScaler(1024.0), optim.SkipNonFinite(optim.AdamW(1e-2))

        def loss_of(x, y):
            with gr.amp.autocast(getattr(gr, dtype), enabled=policy):
                out = model(x)
            return scaler.scale(nn.mse(out, y))

        gradients = nn.value_and_grad(model, loss_of)

        @gr.compile
        def step(x, y):
            loss, grads = gradients(x, y)
            grads, finite = scaler.unscale(grads)
            optimizer.update(model, grads)
            scaler.update(finite)
            return loss / scaler.scale_factor

        losses = [step(x, y).item() for _ in range(80)]
        assert step.num_programs == 1
        assert all(p.dtype == gr.float32 for p in model.parameters())
        return losses

    exact, low = trained(False), trained(True)
    assert low != exact
    assert low[-1] < 0.2 * low[0]
    assert low[-1] == pytest.approx(exact[-1], rel=0.5, abs=0.02)


def test_the_scale_of_a_loss_falls_and_grows():
    scaler = gr.amp.LossScaler(8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=2)
    step = gr.compile(lambda g: move(scaler, g))
    good, bad = gr.asarray([1.0, 2.0]), gr.asarray([1.0, float("inf")])
    scales = []
    for g in (good, good, good, bad, good, good):
        step(g)
        scales.append(scaler.scale_factor.item())
    assert scales == [8.0, 32.0, 32.0, 8.0, 8.0, 32.0]
    assert step.num_programs == 1
    assert scaler.scale(gr.asarray(2.0, dtype=gr.float64)).item() == 64.0
    for options in ({"init_scale": 0}, {"growth_factor": 1}, {"backoff_factor": 1}, {"growth_interval": 0}):  # fmt: skip
        with pytest.raises(gr.InvalidArgumentError, match="LossScaler: "):
            gr.amp.LossScaler(**options)


def move(scaler, g):
    grads, finite = scaler.unscale([g])
    scaler.update(finite)
    return grads[0]


X = gr.asarray(sample((4, 4), "float32"))
BATCH = gr.asarray(sample((2, 3, 8), "float32"))
PRODUCTS = {
    "matmul": lambda x: x @ x,
    "vector": lambda x: x @ x[0],
    "dot": lambda x: gr.dot(x[0], x[1]),
    "einsum": lambda x: gr.einsum("ij,kj->ik", x, x),
    "tensordot": lambda x: gr.tensordot(x, x, 1),
    "multi_dot": lambda x: gr.linalg.multi_dot([x, x, x]),
    "conv": lambda x: gr.nn.functional.conv1d(x[None], x[:, :, None]),
    "attention": lambda x: gr.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
}
STEEP = {
    "exp": gr.exp,
    "log1p": lambda x: gr.log1p(gr.abs(x)),
    "power": lambda x: gr.abs(x) ** 1.5,
    "sum": lambda x: x.sum(0),
    "prod": lambda x: x.prod(),
    "cumsum": lambda x: gr.cumsum(x, 0),
    "softmax": lambda x: gr.softmax(x, -1),
    "logsumexp": lambda x: gr.logsumexp(x, -1),
    "layer_norm": lambda x: gr.nn.functional.layer_norm(x, [4]),
    "mse_loss": lambda x: gr.nn.functional.mse_loss(x, x * 2),
    "cross_entropy": lambda x: gr.nn.functional.cross_entropy(x, gr.arange(4)),
}
OTHERS = {"add": lambda x: x + x, "tanh": gr.tanh, "relu": gr.relu, "max": lambda x: x.max()}


@pytest.mark.parametrize("half", HALF)
@pytest.mark.parametrize("name", [*PRODUCTS, *STEEP, *OTHERS])
def test_ops_outside_of_modules(name, half):
    f = {**PRODUCTS, **STEEP, **OTHERS}[name]
    half = getattr(gr, half)
    low = X.astype(half)
    with gr.amp.autocast(half):
        from_full, from_half, from_double = f(X), f(low), f(X.astype(gr.float64))
        with gr.amp.autocast(enabled=False):
            plain = f(low)
    assert plain.dtype == half
    assert from_double.dtype == gr.float64
    close(from_double, f(X.astype(gr.float64)).numpy())
    wanted = {**dict.fromkeys(PRODUCTS, (half, half)), **dict.fromkeys(STEEP, (gr.float32,) * 2)}
    assert (from_full.dtype, from_half.dtype) == wanted.get(name, (gr.float32, half))
    exact = f(X).numpy()
    assert np.abs(from_full.astype(gr.float32).numpy() - exact).max() < 0.05 * (
        1 + np.abs(exact).max()
    )


def test_solvers_and_integers_ignore_autocast():
    matrix = gr.asarray(sample((4, 4), "float32")) + 4 * gr.eye(4)
    with gr.amp.autocast():
        for f in (gr.linalg.inv, gr.linalg.pinv, gr.linalg.expm, gr.cov):
            assert f(matrix).dtype == gr.float32
        assert (gr.arange(4) @ gr.arange(4)).item() == 14
        assert (gr.asarray([True, True]) @ gr.asarray([True, True])).item() == 2


def test_gradients_of_products_are_in_the_dtype_of_the_arguments():
    def loss(w, x):
        with gr.amp.autocast():
            return gr.tanh(x @ w).sum()

    w = gr.asarray(sample((4, 4), "float32"))
    for f in (gr.grad(loss), gr.compile(gr.grad(loss))):
        found = f(w, X)
        assert found.dtype == gr.float32
        want = gr.grad(lambda w: gr.tanh(X @ w).sum())(w).numpy()
        assert np.abs(found.numpy() - want).max() < 0.05 * np.abs(want).max()
    tangent = gr.jvp(lambda w: loss(w, X), (w,), (w,))[1]
    assert tangent.dtype == gr.float32
    many = gr.vmap(loss, in_axes=(None, 0))(w, gr.stack([X, X]))
    assert many.dtype == gr.float32


def test_a_compiled_function_has_a_program_for_each_precision():
    product = gr.compile(lambda x: x @ x)
    for _ in range(2):
        assert product(X).dtype == gr.float32
        with gr.amp.autocast():
            assert product(X).dtype == gr.bfloat16
        with gr.amp.autocast(gr.float16):
            assert product(X).dtype == gr.float16
            with gr.amp.autocast(enabled=False):
                assert product(X).dtype == gr.float32
    assert product.num_programs == 3
    assert any("autocast" in reason or "bfloat16" in reason for reason in product.retraced)


def test_a_traced_program_keeps_its_dtypes():
    graph = gr.make_graph(lambda x: x @ x)(X)
    with gr.amp.autocast():
        assert graph(X).dtype == gr.float32
        assert graph.rewrite(lambda node, *operands: None)(X).dtype == gr.float32
    exported = gr.export(lambda x: x @ x, X)
    with gr.amp.autocast():
        assert exported(X).dtype == gr.float32


def test_tasks_and_threads_have_their_own_autocast_scopes():
    import asyncio

    async def task(half, turns):
        with gr.amp.autocast(half):
            for _ in range(turns):
                await asyncio.sleep(0)
                assert (X @ X).dtype == half
        await asyncio.sleep(0)
        assert (X @ X).dtype == gr.float32

    async def both():
        await asyncio.gather(task(gr.bfloat16, 3), task(gr.float16, 5))

    asyncio.run(both())
    found = []
    with gr.amp.autocast():
        thread = threading.Thread(target=lambda: found.append((X @ X).dtype))
        thread.start()
        thread.join()
    assert found == [gr.float32]


def test_a_loss_scaler_in_pytorchs_loop():
    gr.manual_seed(0)
    model, x = gr.nn.Linear(3, 1), gr.randn([8, 3]).eval()
    optimizer = gr.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = gr.amp.LossScaler(1024.0, growth_interval=3)
    losses, scales = [], []
    for i in range(8):
        optimizer.zero_grad()
        with gr.amp.autocast(gr.float16):
            loss = (model(x) ** 2).mean()
        if i == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        before = model.weight.tolist()
        if i % 2:
            scaler.unscale_(optimizer)
            gr.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert (model.weight.tolist() == before) == (i == 2)
        losses.append(loss.item())
        scales.append(scaler.scale_factor.item())
        assert not any(t.is_lazy for t in scaler.state.values())
    assert scales == [1024.0, 1024.0, 512.0, 512.0, 512.0, 1024.0, 1024.0, 1024.0]
    assert losses[-1] < losses[0]
    assert optimizer.state["step"].item() == 7
    with pytest.raises(gr.InvalidArgumentError, match="call step first"):
        scaler.update()
    scaler.unscale_(optimizer)
    with pytest.raises(gr.InvalidArgumentError, match="unscaled already"):
        scaler.unscale_(optimizer)
    with pytest.raises(gr.InvalidArgumentError, match="holds no parameters"):
        scaler.unscale_(gr.optim.SGD(0.1))
