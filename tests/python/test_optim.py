"""Optimisers: compiled steps, state as tensors, and PyTorch's results."""

from __future__ import annotations

import math

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"maximize": True, "betas": (0.5, 0.7), "eps": 1e-3}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.3, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "momentum_decay": 0.1}),
    ("RAdam", {}),
    ("RAdam", {"weight_decay": 0.1, "betas": (0.9, 0.6), "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"maximize": True, "alpha": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.06), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lambd": 0.1, "alpha": 0.5, "t0": 2.0, "weight_decay": 0.1, "maximize": True}),
]
LION = [("Lion", {"weight_decay": 0.1})]


def name_of(case):
    return case[0] + "".join(f"-{key}" for key in case[1])


def samples(count, *shape, dtype="float64"):
    rng = np.random.default_rng(count)
    return [rng.standard_normal(shape).astype(dtype) for _ in range(count)]


@pytest.mark.parametrize("case", OPTIMIZERS, ids=name_of)
def test_steps_are_pytorchs(case):
    torch = pytest.importorskip("torch")
    name, options = case
    start, grads = samples(1, 3, 2)[0], samples(9, 3, 2)
    theirs = torch.tensor(start.copy(), requires_grad=True)
    other = getattr(torch.optim, name)([theirs], lr=0.05, **options)
    own = getattr(optim, name)(0.05, **options)
    p = [gr.asarray(start)]
    for grad in grads:
        theirs.grad = torch.tensor(grad)
        other.step()
        p = own.update(p, [gr.asarray(grad)])
        # PyTorch keeps the product of NAdam's momenta, and ASGD's rate, in float32.
        rtol = 1e-7 if name in ("NAdam", "ASGD") else 1e-10
        np.testing.assert_allclose(p[0].numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-12)


def test_lion_takes_the_textbook_step():
    p, m, own = samples(1, 4)[0], np.zeros(4), optim.Lion(0.1, betas=(0.9, 0.99), weight_decay=0.2)
    q = [gr.asarray(p)]
    for g in samples(5, 4):
        p = p * (1 - 0.1 * 0.2) - 0.1 * np.sign(0.9 * m + 0.1 * g)
        m = 0.99 * m + 0.01 * g
        q = own.update(q, [gr.asarray(g)])
    np.testing.assert_allclose(q[0].numpy(), p, rtol=1e-12)


def network(dtype):
    gr.manual_seed(0)
    return gr.eval(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("case", OPTIMIZERS + LION, ids=name_of)
def test_compiled_steps_give_the_bits_of_plain_ones(case, dtype):
    name, options = case
    make = lambda: getattr(optim, name)(lambda t: 0.1 / (t + 1), **options)
    xs = [gr.asarray(x).astype(dtype).eval() for x in samples(6, 5, 3, dtype="float32")]
    models, optimizers = [network(dtype) for _ in range(3)], [make() for _ in range(3)]

    def step_of(i):
        gradients = nn.value_and_grad(models[i], lambda x: (models[i](x) ** 2).mean())

        def step(x):
            value, grads = gradients(x)
            optimizers[i].update(models[i], grads)
            return value

        return step

    plain, compiled = step_of(0), gr.compile(step_of(1))
    functional = optimizers[2]
    params, state = models[2].parameters_tree(), functional.init(models[2])

    @gr.compile(donate=("params", "state"))
    def pure(params, state, x):
        loss = lambda p: (nn.functional_call(models[2], p, x) ** 2).mean()
        value, grads = gr.value_and_grad(loss)(params)
        return value, *functional.apply(grads, state, params)

    for x in xs:
        expected = plain(x)
        gr.eval(expected, models[0], optimizers[0].state)
        found = compiled(x)
        value, params, state = pure(params, state, x)
        assert found.tolist() == expected.tolist() == value.tolist()
    assert compiled.num_programs == pure.num_programs == 1
    same(models[1].parameters_tree(), models[0].parameters_tree())
    same(params, models[0].parameters_tree())
    same(optimizers[1].state, optimizers[0].state)
    same(state, optimizers[0].state)
    assert state["step"].item() == len(xs)


def same(a, b):
    assert gr.tree.structure(a) == gr.tree.structure(b)
    for x, y in zip(gr.tree.leaves(a), gr.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x.astype(gr.float64).numpy(), y.astype(gr.float64).numpy())


def test_missing_optimiser_state_is_created_while_tracing():
    model, optimizer = network("float32"), optim.Adam(0.1)
    assert optimizer.state["step"].item() == 0
    traced = []

    @gr.compile
    def step(x):
        traced.append(1)
        value, grads = nn.value_and_grad(model, lambda: model(x).sum())()
        optimizer.update(model, grads)
        return value

    x = gr.eval(gr.ones([2, 3]))
    for n in range(4):
        step(x)
        assert optimizer.state["step"].item() == n + 1
    assert len(traced) == 2  # Traced again when the state exists.
    assert step.num_programs == 1
    optimizer.init(model)
    step(x)
    assert optimizer.state["step"].item() == 1


def test_assigned_rates_are_the_same_program():
    optimizer = optim.SGD(0.5)
    params = {"w": gr.eval(gr.ones([2]))}

    @gr.compile
    def step(g):
        new = optimizer.update(params, {"w": g})
        params["w"] = new["w"]

    g = gr.eval(gr.ones([2]))
    step(g)
    optimizer.learning_rate = 0.25
    step(g)
    assert params["w"].tolist() == [0.25, 0.25]
    assert step.num_programs == 1
    assert optimizer.lr == optimizer.learning_rate == 0.25
    optimizer.learning_rate = lambda t: 1.0 / t
    step(g)
    assert params["w"].tolist() == [-0.25, -0.25]
    assert step.num_programs == 2


def test_schedules():
    g = [gr.ones([1])]
    for schedule, expected in [
        (lambda t: 0.1 * (t + 1), [0.1, 0.2, 0.30000000000000004]),
        (lambda t: 1.0 if t < 2 else 0.5, [1.0, 1.0, 0.5]),
        (lambda t: [3.0, 2.0, 1.0][int(t)], [3.0, 2.0, 1.0]),
        (lambda t: 0.5 * (1 + math.cos(math.pi * t / 2)), [1.0, 0.5, 0.0]),
        (lambda t: gr.where(t < 2, 1.0, 0.5), [1.0, 1.0, 0.5]),
    ]:
        optimizer, rates = optim.SGD(schedule), []
        for _ in range(3):
            rates.append(optimizer.lr)
            optimizer.update([gr.zeros([1])], g)
        assert rates == pytest.approx(expected, abs=1e-15)

    deciding = optim.SGD(lambda t: 1.0 if t < 2 else 0.5)
    step = gr.compile(lambda p: deciding.update([p], g)[0])
    with pytest.raises(gr.TracedValueError, match="where"):
        step(gr.eval(gr.zeros([1])))


def test_two_optimisers_in_one_step():
    a, b = network("float32"), network("float32")
    one, two = optim.Adam(0.1), optim.RMSprop(0.1)

    @gr.compile
    def step(x):
        _, grads = nn.value_and_grad(a, lambda: a(x).sum())()
        one.update(a, grads)
        _, grads = nn.value_and_grad(b, lambda: (b(x) - a(x)).sum())()
        two.update(b, grads)

    for _ in range(3):
        step(gr.eval(gr.ones([2, 3])))
    assert one.state["step"].item() == two.state["step"].item() == 3
    assert step.num_programs == 1


def test_invalid_options_are_refused():
    for bad in (
        lambda: optim.SGD(0.1, momentum=0.9, nesterov=True, dampening=0.1),
        lambda: optim.RMSprop(alpha=1.0),
        lambda: optim.Adagrad(lr_decay=-1.0),
        lambda: optim.Adadelta(rho=2.0),
        lambda: optim.Lion(betas=(0.9, 1.0)),
        lambda: optim.NAdam(momentum_decay=-1.0),
        lambda: optim.Adamax(eps=-1.0),
    ):
        with pytest.raises(gr.InvalidArgumentError):
            bad()
    with pytest.raises(gr.InvalidArgumentError, match=r"no 'm'; begin with init"):
        optim.Adam().apply([gr.ones([1])], {"step": gr.asarray(0), "learning_rate": gr.asarray(0.1)}, [gr.ones([1])])  # fmt: skip
