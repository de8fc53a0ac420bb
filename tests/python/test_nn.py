"""Modules, layers, losses, initialisers, optimisers, against formulas in NumPy."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn, optim
from scipy import special


def arrays(tensors):
    return [t.numpy().copy() for t in tensors]


class Net(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.rest = [nn.ReLU(), nn.Linear(4, 2, bias=False)]
        self.named = {"norm": nn.LayerNorm(2)}
        self.scale = nn.Parameter(gr.ones([2]))
        self.count = gr.zeros([])

    def forward(self, x):
        self.count = self.count + x.sum() * 0 + 1
        for layer in [self.first, *self.rest]:
            x = layer(x)
        return self.named["norm"](x) * self.scale


def test_parameters_have_names_in_order_of_definition():
    net = Net()
    names = [n for n, _ in net.named_parameters()]
    assert names == ["first.weight", "first.bias", "rest.1.weight", "named.norm.weight", "named.norm.bias", "scale"]  # fmt: skip
    assert net.num_parameters() == 12 + 4 + 8 + 2 + 2 + 2
    assert set(net.state_dict()) == {*names, "count"}
    assert [p.shape for p in net.parameters()][:2] == [(4, 3), (4,)]
    assert "rest[1]: Linear(in_features=4, out_features=2, bias=False)" in repr(net)


def test_a_parameter_is_a_plain_tensor_and_stays_a_parameter():
    net = Net()
    assert isinstance(net.scale, gr.Tensor)
    net.scale = gr.zeros([2])
    assert "scale" in dict(net.named_parameters())
    del net.scale
    assert "scale" not in dict(net.named_parameters())


def test_update_checks_names_and_shapes_before_changing_anything():
    net = Net()
    before = arrays(net.parameters())
    with pytest.raises(gr.ShapeError, match=r"first\.bias.*\[4\].*\[5\]"):
        net.update({"scale": gr.zeros([2]), "first": {"bias": gr.zeros([5])}})
    with pytest.raises(gr.InvalidArgumentError, match="second"):
        net.update({"scale": gr.zeros([2]), "second": {}})
    for a, b in zip(before, arrays(net.parameters()), strict=True):
        np.testing.assert_array_equal(a, b)
    net.update({"scale": gr.zeros([2])})
    assert net.scale.tolist() == [0, 0]


def test_state_dicts_round_trip():
    a, b = Net(), Net()
    b.load_state_dict(a.state_dict())
    for x, y in zip(arrays(a.parameters()), arrays(b.parameters()), strict=True):
        np.testing.assert_array_equal(x, y)
    state = a.state_dict()
    state["extra"] = state.pop("scale")
    with pytest.raises(gr.InvalidArgumentError, match=r"missing \['scale'\].*\['extra'\]"):
        b.load_state_dict(state)
    b.load_state_dict(state, strict=False)


def test_modes_reach_all_modules():
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.5)))
    assert net.eval() is net
    assert [m.training for m in net.modules()] == [False] * 4
    assert all(m.training for m in net.train().modules())


def test_astype_casts_parameters():
    net = Net().astype(gr.float64)
    assert {p.dtype.name for p in net.parameters()} == {"float64"}


def test_gradients_of_a_model():
    net = Net()
    x = sample((5, 3), "float32")
    before = [id(p) for p in net.parameters()]
    value, grads = nn.value_and_grad(net, lambda x: net(x).sum())(gr.asarray(x))
    assert [id(p) for p in net.parameters()] == before
    assert gr.tree.structure(grads) == gr.tree.structure(net.parameters_tree())
    same = gr.grad(lambda p: nn.functional_call(net, p, gr.asarray(x)).sum())(net.parameters_tree())
    for a, b in zip(gr.tree.leaves(grads), gr.tree.leaves(same), strict=True):
        close(a, b.numpy(), 1e-6, 1e-6)
    assert value.item() == pytest.approx(net(gr.asarray(x)).sum().item(), abs=1e-5)


def test_buffers_changed_while_tracing_have_values():
    net = Net()
    step = nn.value_and_grad(net, lambda x: net(x).sum())
    step(gr.ones([1, 3]))
    step(gr.ones([1, 3]))
    assert net.count.item() == 2


def test_a_failing_loss_leaves_the_model_as_it_was():
    net = Net()
    before = [id(t) for t in net.state_dict().values()]

    def loss():
        net(gr.ones([1, 3]))
        raise KeyError("x")

    with pytest.raises(KeyError):
        nn.value_and_grad(net, loss)()
    assert [id(t) for t in net.state_dict().values()] == before


def test_a_module_in_two_places_gets_one_gradient():
    shared = nn.Linear(2, 2, bias=False)
    net = nn.Sequential(shared, shared)
    assert len(net.parameters()) == 1
    _, grads = nn.value_and_grad(net, lambda x: net(x).sum())(gr.ones([1, 2]))
    (g,) = gr.tree.leaves(grads)
    w = shared.weight.numpy()
    ones = np.ones((1, 2), "f4")
    want = np.outer(np.ones(2), ones @ w.T) + np.outer(w.sum(0), ones)
    close(g, want.astype("f4"), 1e-5, 1e-6)


def test_modules_evaluate_as_trees():
    net = Net()
    gr.eval(net)
    assert not any(gr.is_lazy(t) for t in net.state_dict().values())


def test_linear_and_embedding():
    layer = nn.Linear(3, 2)
    x = sample((4, 5, 3), "float32")
    w, b = arrays([layer.weight, layer.bias])
    close(layer(gr.asarray(x)), x @ w.T + b, 1e-5, 1e-6)
    assert abs(w).max() <= 3**-0.5
    table = nn.Embedding(7, 3)
    i = np.array([[0, 6], [3, 3]])
    close(table(gr.asarray(i)), table.weight.numpy()[i])


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    layer = nn.Dropout(0.25)
    y = layer(gr.ones([100_000])).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs(y.mean() - 1) < 0.02
    x = gr.ones([3])
    assert layer.eval()(x) is x
    assert nn.Dropout(0.0)(x) is x
    for p in (-0.1, 1.1):
        with pytest.raises(gr.InvalidArgumentError, match="p must be"):
            nn.Dropout(p)


def test_layer_norm_starts_as_normalisation():
    y = nn.LayerNorm([4])(gr.asarray(sample((6, 4), "float32"))).numpy()
    np.testing.assert_allclose(y.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(y.std(-1), 1, atol=1e-3)


INITIALISERS = {
    "kaiming_uniform": (2 / 300) ** 0.5,
    "kaiming_normal": (2 / 300) ** 0.5,
    "xavier_uniform": (2 / 700) ** 0.5,
    "xavier_normal": (2 / 700) ** 0.5,
}


@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers_have_their_standard_deviation(name):
    w = getattr(nn.init, name)((400, 300)).numpy()
    assert w.std() == pytest.approx(INITIALISERS[name], rel=0.02)
    assert abs(w.mean()) < 0.01 * w.std() + 1e-3
    with pytest.raises(gr.ShapeError, match=name):
        getattr(nn.init, name)((3,))


LOSSES = {
    "mse": lambda x, y: (x - y) ** 2,
    "l1": lambda x, y: np.abs(x - y),
    "binary_cross_entropy_with_logits": lambda x, y: (
        -(y * special.log_expit(x) + (1 - y) * special.log_expit(-x))
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, reduction):
    x, y = sample((4, 3), "float64", low=-30, high=30), sample((4, 3), "float64", 1, 0, 1)
    want = LOSSES[name](x, y)
    want = want if reduction == "none" else getattr(np, reduction)(want)
    got = getattr(nn, name)(gr.asarray(x), gr.asarray(y), reduction=reduction)
    close(got, np.asarray(want), 1e-10)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_and_cross_entropy_agree(reduction):
    x, y = gr.asarray(sample((2, 4, 5), "float64")), gr.asarray([[0, 4, 2, 1], [3, 3, 0, 1]])
    a = nn.cross_entropy(x, y, reduction)
    close(nn.nll(gr.log_softmax(x, axis=-1), y, reduction), a.numpy(), 1e-12)


def test_losses_refuse_shapes_that_would_broadcast():
    for loss in (nn.mse, nn.l1):
        with pytest.warns(UserWarning, match=r"\[4, 1\].*\[4\], which broadcast"):
            assert loss(gr.ones([4, 1]), gr.ones([4])).item() == 0
    with pytest.raises(gr.ShapeError, match=r"\[4, 1\].*\[4\]"):
        nn.binary_cross_entropy_with_logits(gr.ones([4, 1]), gr.ones([4]))
    with pytest.raises(gr.ShapeError):
        nn.nll(gr.ones([4, 3]), gr.zeros([3], dtype=gr.int64))
    with pytest.raises(gr.InvalidArgumentError, match="median"):
        nn.mse(gr.ones([1]), gr.ones([1]), reduction="median")


# Optimisers: the textbook step in NumPy float64, applied to the same gradients.


def sgd(p, g, s, t, lr, momentum=0.0, nesterov=False, weight_decay=0.0):
    g = g + weight_decay * p
    v = s["v"] = momentum * s.get("v", 0) + g
    return p - lr * (g + momentum * v if nesterov else v)


def adam(p, g, s, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    g = g + weight_decay * p
    m = s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    return p - lr * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)


def adamw(p, g, s, t, lr, weight_decay=0.01, **kw):
    return adam(p * (1 - lr * weight_decay), g, s, t, lr, **kw)


OPTIMIZERS = [
    (optim.SGD, sgd, {}),
    (optim.SGD, sgd, {"momentum": 0.9}),
    (optim.SGD, sgd, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.Adam, adam, {}),
    (optim.Adam, adam, {"betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.AdamW, adamw, {}),
    (optim.AdamW, adamw, {"weight_decay": 0.3}),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("cls", "reference", "options"), OPTIMIZERS)
def test_optimisers_take_the_textbook_step(cls, reference, options, dtype):
    params = {"w": sample((3, 2), dtype), "b": [sample((2,), dtype, 1)]}
    tensors = gr.tree.map(gr.asarray, params)
    leaves = [p.astype("f8") for p in gr.tree.leaves(params)]
    states = [{} for _ in leaves]
    optimizer = cls(0.1, **options)
    for t in range(1, 6):
        grads = [sample(p.shape, dtype, 10 * t + i) for i, p in enumerate(leaves)]
        treedef = gr.tree.structure(params)
        tensors = optimizer.update(tensors, gr.tree.unflatten(treedef, map(gr.asarray, grads)))
        gr.eval(tensors, optimizer.state)
        leaves = [
            reference(p, g.astype("f8"), s, t, 0.1, **options)
            for p, g, s in zip(leaves, grads, states, strict=True)
        ]
    assert optimizer.state["step"] == 5
    for got, want in zip(gr.tree.leaves(tensors), leaves, strict=True):
        close(got, want.astype(dtype), 1e-4 if dtype == "float32" else 1e-10, 1e-5)


def test_schedules_and_assigned_rates():
    p = gr.asarray([1.0])
    optimizer = optim.SGD(lambda step: 1.0 / (step + 1))
    rates = []
    for _ in range(3):
        rates.append(optimizer.lr)
        q = optimizer.update([p], [gr.asarray([1.0])])[0]
        assert q.item() == pytest.approx(1 - rates[-1])
    assert rates == [1.0, 0.5, 1 / 3]
    optimizer.learning_rate = 0.25
    assert optimizer.update([p], [gr.asarray([1.0])])[0].item() == 0.75


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_parameters_keep_float32_state(dtype):
    p = gr.ones([2], dtype=dtype)
    optimizer = optim.Adam(1e-2)
    q = optimizer.update([p], [gr.full([2], 1e-4, dtype=dtype)])[0]
    assert q.dtype.name == dtype
    assert optimizer.state["v"][0].dtype == gr.float32
    assert optimizer.state["v"][0][0].item() > 0
    assert q.astype(gr.float32)[0].item() < 1


def test_optimiser_errors():
    optimizer = optim.Adam()
    with pytest.raises(gr.InvalidArgumentError, match="gradients"):
        optimizer.update({"a": gr.ones([1])}, {"b": gr.ones([1])})
    with pytest.raises(gr.ShapeError, match=r"\['a'\].*\[1\].*\[2\]"):
        optimizer.update({"a": gr.ones([1])}, {"a": gr.ones([2])})
    with pytest.raises(gr.DTypeError, match="int64"):
        optim.SGD(0.1).update([gr.arange(3)], [gr.arange(3)])
    for bad in (lambda: optim.SGD(-1.0), lambda: optim.SGD(1.0, nesterov=True), lambda: optim.Adam(betas=(1.0, 0.9))):  # fmt: skip
        with pytest.raises(gr.InvalidArgumentError):
            bad()


def test_clip_grad_norm():
    grads = {"a": gr.asarray([3.0]), "b": gr.asarray([0.0, 4.0])}
    clipped, norm = optim.clip_grad_norm(grads, 1.0)
    assert norm.item() == pytest.approx(5.0)
    assert clipped["b"].tolist() == pytest.approx([0.0, 0.8], rel=1e-5)
    same, _ = optim.clip_grad_norm(grads, 10.0)
    assert same["a"].item() == 3.0


def test_a_model_learns():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype("f4")
    y = x @ np.array([[1.0], [-2.0], [0.5]], "f4") + 0.3
    model, optimizer = nn.Linear(3, 1), optim.Adam(0.1)
    step = nn.value_and_grad(model, lambda x, y: nn.mse(model(x), y))
    x, y = gr.asarray(x), gr.asarray(y)
    for _ in range(300):
        loss, grads = step(x, y)
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
    assert loss.item() < 1e-4
    assert model.weight.numpy().ravel() == pytest.approx([1, -2, 0.5], abs=1e-2)
