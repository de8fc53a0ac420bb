"""Matrix optimisers, L-BFGS, combined optimisers, averages, schedules and gradient clipping."""

from __future__ import annotations

import itertools
import json

import girih as gr
import numpy as np
import pytest
from girih import nn, optim
from optim_table import FILE, table
from test_optim import network, same, samples

S = optim.schedules


def newton_schulz(x, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.775, 2.0315
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / max(np.linalg.norm(x), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 3)])
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw", "spectral_unclamped"])
def test_muon_takes_the_textbook_step(shape, adjust):
    p, m = samples(1, *shape)[0], np.zeros(shape)
    own = optim.Muon(0.1, weight_decay=0.2, momentum=0.9, adjust_lr_fn=adjust)
    q = [gr.asarray(p)]
    ratio = shape[0] / shape[1]
    factor = {"original": max(1, ratio) ** 0.5, "match_rms_adamw": 0.2 * max(shape) ** 0.5,
              "spectral_unclamped": ratio**0.5}[adjust]  # fmt: skip
    for g in samples(4, *shape):
        m = 0.9 * m + 0.1 * g
        p = p * (1 - 0.1 * 0.2) - 0.1 * factor * newton_schulz(0.9 * m + 0.1 * g)
        q = own.update(q, [gr.asarray(g)])
    np.testing.assert_allclose(q[0].numpy(), p, rtol=1e-10, atol=1e-12)


def test_muon_is_pytorchs_up_to_its_bfloat16():
    torch = pytest.importorskip("torch")
    start = samples(1, 6, 4)[0]
    theirs = torch.tensor(start.copy(), requires_grad=True)
    other, own = torch.optim.Muon([theirs], lr=0.05), optim.Muon(0.05)
    p = [gr.asarray(start)]
    for grad in samples(4, 6, 4):
        theirs.grad = torch.tensor(grad)
        other.step()
        p = own.update(p, [gr.asarray(grad)])
    np.testing.assert_allclose(p[0].numpy(), theirs.detach().numpy(), atol=1e-2)


def test_muon_flattens_kernels_and_refuses_vectors():
    g = samples(1, 4, 3, 2, 2)[0]
    kernel = optim.Muon(0.1).update([gr.zeros([4, 3, 2, 2], dtype=gr.float64)], [gr.asarray(g)])
    matrix = optim.Muon(0.1).update(
        [gr.zeros([4, 12], dtype=gr.float64)], [gr.asarray(g.reshape(4, 12))]
    )
    np.testing.assert_array_equal(kernel[0].numpy().reshape(4, 12), matrix[0].numpy())
    with pytest.raises(gr.ShapeError, match=r"shape \[3\] is no matrix.*MultiOptimizer"):
        optim.Muon().init([gr.zeros([3])])


ADAFACTOR = [{}, {"weight_decay": 0.1, "maximize": True}, {"eps": (1e-2, 0.5), "d": 2.0, "beta2_decay": -0.3}]  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 5), (4,), (2, 3, 4), ()])
@pytest.mark.parametrize("options", ADAFACTOR, ids=str)
def test_adafactor_is_pytorchs(options, shape):
    torch = pytest.importorskip("torch")
    start = samples(1, *shape)[0] * np.ones(shape)
    theirs = torch.tensor(np.array(start), requires_grad=True)
    other, own = torch.optim.Adafactor([theirs], lr=0.3, **options), optim.Adafactor(0.3, **options)
    p = [gr.asarray(start)]
    for grad in samples(7, *shape):
        grad = grad * np.ones(shape)
        theirs.grad = torch.tensor(grad)
        other.step()
        p = own.update(p, [gr.asarray(grad)])
        np.testing.assert_allclose(p[0].numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-11)


def test_asgd_averages_as_pytorch_does():
    torch = pytest.importorskip("torch")
    start = samples(1, 3)[0]
    theirs = torch.tensor(start.copy(), requires_grad=True)
    other, own = torch.optim.ASGD([theirs], lr=0.1, t0=2), optim.ASGD(0.1, t0=2)
    p = [gr.asarray(start)]
    for grad in samples(8, 3):
        theirs.grad = torch.tensor(grad)
        other.step()
        p = own.update(p, [gr.asarray(grad)])
    np.testing.assert_allclose(own.state["ax"][0].numpy(), other.state[theirs]["ax"].numpy(), rtol=1e-7)  # fmt: skip


def rosenbrock(x, y, library):
    return (1 - x) ** 2 + 10 * (y - x * x) ** 2 + 0 * library.sin(x)


@pytest.mark.parametrize("history", [1, 3, 100])
def test_lbfgs_is_one_iteration_of_pytorchs(history):
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor([-0.5], dtype=torch.float64, requires_grad=True) for _ in range(2)]
    other = torch.optim.LBFGS(theirs, lr=0.3, max_iter=1, history_size=history)
    own = optim.LBFGS(0.3, history_size=history)
    p = {"x": gr.asarray([-0.5], dtype=gr.float64), "y": gr.asarray([-0.5], dtype=gr.float64)}
    grad = gr.grad(lambda p: rosenbrock(p["x"], p["y"], gr).sum())

    def closure():
        other.zero_grad()
        loss = rosenbrock(*theirs, torch).sum()
        loss.backward()
        return loss

    for _ in range(12):
        other.step(closure)
        p = own.update(p, grad(p))
        found = [p["x"].item(), p["y"].item()]
        np.testing.assert_allclose(found, [t.item() for t in theirs], rtol=1e-8)


def test_lbfgs_finds_minima_in_one_program_and_stays_there():
    optimizer = optim.LBFGS(history_size=5)
    params = gr.eval({"x": gr.asarray([3.0, -2.0, 5.0], dtype=gr.float64), "b": gr.asarray(2.0)})
    scales = gr.eval(gr.asarray([1.0, 10.0, 3.0], dtype=gr.float64))

    @gr.compile
    def step(params):
        loss = lambda p: (scales * p["x"] ** 2).sum() + (p["b"] - 1.0) ** 2
        return optimizer.update(params, gr.grad(loss)(params))

    for _ in range(40):
        params = step(params)
    assert step.num_programs <= 2
    np.testing.assert_allclose(params["x"].numpy(), 0, atol=1e-6)
    assert params["b"].item() == pytest.approx(1.0, abs=1e-6)
    there = step(params)
    same(there, params)
    assert params["b"].dtype == gr.float32
    with pytest.raises(gr.ShapeError, match=r"LBFGS.update: parameter .* has shape \[2\]"):
        optim.LBFGS().update([gr.zeros([2])], [gr.zeros([3])])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_lbfgs_searches_for_lengths_in_one_program(sign):
    optimizer = optim.LBFGS(1.0, history_size=10, maximize=sign < 0)
    fun = lambda p: sign * rosenbrock(p["x"], p["y"], gr).sum()
    start = {k: gr.eval(gr.asarray([v], dtype=gr.float64)) for k, v in (("x", -1.2), ("y", 1.0))}
    functional, state = start, optim.LBFGS(1.0, history_size=10, maximize=sign < 0).init(start)
    params = start

    @gr.compile
    def step(params):
        value, grads = gr.value_and_grad(fun)(params)
        return value, optimizer.update(params, grads, fun)

    values = []
    for _ in range(60):
        value, params = step(params)
        values.append(sign * value.item())
        functional, state = optimizer.apply(gr.grad(fun)(functional), state, functional, fun)
        gr.eval(functional, state)
    assert all(b <= a for a, b in itertools.pairwise(values))
    assert params["x"].item() == pytest.approx(1.0, abs=1e-5)
    assert params["y"].item() == pytest.approx(1.0, abs=1e-5)
    assert functional["x"].item() == pytest.approx(1.0, abs=1e-5)
    assert step.num_programs <= 2


def test_lbfgs_searches_for_the_parameters_of_a_model():
    model, x = network("float64"), gr.asarray(samples(1, 6, 3)[0])
    loss = lambda p: (nn.functional_call(model, p, x) - 1.0).square().mean()
    # Without a line search, steps of this length diverge.
    optimizer, values = optim.LBFGS(50.0, history_size=5), []
    for _ in range(15):
        value, grads = gr.value_and_grad(loss)(model.parameters_tree())
        optimizer.update(model, grads, loss)
        gr.eval(model, optimizer.state)
        values.append(value.item())
    assert all(b <= a for a, b in itertools.pairwise(values))
    assert values[-1] < 0.05 * values[0]


def matrices(_name, p):
    return p.ndim == 2


COMBINED = [
    lambda: optim.MultiOptimizer([optim.Muon(0.1), optim.AdamW(0.1)], [matrices]),
    lambda: optim.Accumulate(optim.Adam(lambda t: 0.1 / (t + 1)), 3),
    lambda: optim.SkipNonFinite(optim.SGD(0.1, momentum=0.9)),
    lambda: optim.Adafactor(0.1),
    lambda: optim.LBFGS(0.5, history_size=3),
    lambda: optim.Accumulate(
        optim.MultiOptimizer([optim.Lion(0.1), optim.SGD(0.1)], [lambda n, _: "bias" in n]), 2
    ),
]


@pytest.mark.parametrize("make", COMBINED)
def test_compiled_functional_and_resumed_steps_give_the_bits_of_plain_ones(make):
    xs = [gr.asarray(x).eval() for x in samples(7, 5, 3, dtype="float32")]
    models, optimizers = [network("float32") for _ in range(3)], [make() for _ in range(3)]

    def step_of(i):
        model, optimizer = models[i], optimizers[i]
        gradients = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())

        def step(x):
            value, grads = gradients(x)
            optimizer.update(model, grads)
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

    for i, x in enumerate(xs):
        if i == 4:
            # A file restores the state in another optimiser.
            saved = {k: gr.asarray(t.numpy()) for k, t in optimizers[0].state_dict().items()}
            optimizers[0] = make()
            optimizers[0].init(models[0])
            optimizers[0].load_state_dict(saved)
            plain = step_of(0)
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


def test_groups_have_optimisers_of_their_own():
    model = network("float32")
    both = optim.MultiOptimizer([optim.SGD(0.5), optim.SGD(0.25)], [matrices])
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    ones = gr.tree.map(gr.ones_like, model.parameters_tree())
    step = gr.compile(lambda: both.update(model, ones) and None)
    step()
    step()
    for name, p in model.state_dict().items():
        rate = 0.5 if "weight" in name else 0.25
        np.testing.assert_allclose(p.numpy(), before[name] - 2 * rate, rtol=1e-6)
    both.optimizers[1].learning_rate = 0.0
    step()
    assert model.state_dict()["0.bias"].tolist() == pytest.approx(before["0.bias"] - 0.5)
    assert step.num_programs == 1
    assert both.lr == both.learning_rate == 0.5
    with pytest.raises(gr.InvalidArgumentError, match="each of the optimisers"):
        both.learning_rate = 0.1
    with pytest.raises(gr.InvalidArgumentError, match="2 optimisers need one filter less, got 2"):
        optim.MultiOptimizer([optim.SGD(0.1), optim.SGD(0.1)], [matrices, matrices])
    with pytest.raises(gr.InvalidArgumentError, match="expected an optimiser, got float"):
        optim.Accumulate(0.1, 2)


def test_accumulated_gradients_are_those_of_one_batch():
    one, many = network("float64"), network("float64")
    x = gr.asarray(samples(1, 6, 3)[0])
    whole, parts = optim.AdamW(0.1), optim.Accumulate(optim.AdamW(0.1), 3)
    for _ in range(2):
        _, grads = nn.value_and_grad(one, lambda: (one(x) ** 2).mean())()
        whole.update(one, grads)
        for i in range(3):
            start = many.state_dict()["0.weight"].numpy()
            part = x[2 * i : 2 * i + 2]
            _, grads = nn.value_and_grad(many, lambda part=part: (many(part) ** 2).mean())()
            parts.update(many, grads)
            changed = (many.state_dict()["0.weight"].numpy() != start).any()
            assert changed == (i == 2)
    for a, b in zip(one.parameters(), many.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    assert parts.state["step"].item() == 6
    assert parts.state["optimizer"]["step"].item() == 2
    with pytest.raises(gr.InvalidArgumentError, match="steps must be at least 1, got 0"):
        optim.Accumulate(optim.SGD(0.1), 0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_steps_that_are_not_finite_are_left_out(bad):
    optimizer = optim.SkipNonFinite(optim.Adam(0.1))
    params = {"a": gr.ones([2]), "b": gr.zeros([0])}
    good = {"a": gr.ones([2]), "b": gr.zeros([0])}
    params = optimizer.update(params, good)
    kept, state = params["a"].tolist(), optimizer.state["optimizer"]["m"]["a"].tolist()
    params = optimizer.update(params, {**good, "a": gr.asarray([1.0, bad])})
    assert params["a"].tolist() == kept
    assert optimizer.state["optimizer"]["m"]["a"].tolist() == state
    assert optimizer.state["optimizer"]["step"].item() == 1
    assert optimizer.state["skipped"].item() == 1


def test_states_of_other_parameters_are_refused():
    optimizer = optim.Adam(0.1)
    optimizer.init({"w": gr.zeros([2])})
    state = optimizer.state_dict()
    other = optim.Adam(0.1)
    with pytest.raises(gr.InvalidArgumentError, match=r"unexpected \['m.w', 'v.w'\]; begin with"):
        other.load_state_dict(state)
    other.init({"w": gr.zeros([3])})
    with pytest.raises(gr.ShapeError, match=r"m.w has shape \[2\], expected \[3\]"):
        other.load_state_dict(state)


@pytest.mark.parametrize("warmup", [False, True])
def test_averages(warmup):
    model, ema = network("float32"), optim.EMA(0.9, warmup)
    functional = network("float32")
    state = optim.EMA(0.9, warmup).init(functional)
    average, sgd = None, optim.SGD(0.1)
    grads = gr.tree.map(gr.ones_like, model.parameters_tree())

    @gr.compile
    def step():
        sgd.update(model, grads)
        ema.update(model)

    for n in range(4):
        step()
        state = optim.EMA(0.9, warmup).apply(model, state)
        p = model.state_dict()["0.weight"].numpy().astype("f8")
        decay = min(0.9, (1 + n) / (10 + n)) if warmup else 0.9
        average = p if average is None else decay * average + (1 - decay) * p
    assert step.num_programs == 1
    own = model.state_dict()["0.weight"].tolist()
    with ema.applied(model) as averaged:
        np.testing.assert_allclose(averaged.state_dict()["0.weight"].numpy(), average, rtol=1e-5)
    assert model.state_dict()["0.weight"].tolist() == own
    same(ema.state, state)
    with pytest.raises(gr.InvalidArgumentError, match="nothing of this model is averaged"):
        optim.EMA().applied(model).__enter__()
    with pytest.raises(gr.InvalidArgumentError, match="begin with init"):
        ema.apply([gr.ones([2])], state)


def test_norms_and_bounds_of_gradients():
    torch = pytest.importorskip("torch")
    arrays = [*samples(2, 3, 4), np.zeros((0, 2))]
    for kind in (2.0, 1.0, 3.0, float("inf")):
        theirs = [torch.nn.Parameter(torch.tensor(a)) for a in arrays]
        for p, a in zip(theirs, arrays, strict=True):
            p.grad = torch.tensor(a.copy())
        want = torch.nn.utils.clip_grad_norm_(theirs[:2], 0.5, norm_type=kind)
        grads, norm = optim.clip_grad_norm([gr.asarray(a) for a in arrays], 0.5, kind)
        assert norm.item() == pytest.approx(want.item(), rel=1e-12)
        for g, p in zip(grads, theirs, strict=True):
            np.testing.assert_allclose(g.numpy(), p.grad.numpy(), rtol=1e-12)
        assert optim.global_norm([gr.asarray(a) for a in arrays], kind).item() == norm.item()
    bounded = optim.clip_grad_value({"w": gr.asarray([5.0, -5.0, 0.5])}, 1.0)
    assert bounded["w"].tolist() == [1.0, -1.0, 0.5]
    for bad in (lambda: optim.global_norm([]), lambda: optim.clip_grad_norm([gr.ones([1])], 1.0, 0),
                lambda: optim.clip_grad_value([gr.ones([1])], -1.0)):  # fmt: skip
        with pytest.raises(gr.InvalidArgumentError):
            bad()


def rates(schedule, steps):
    return [schedule(step).item() for step in range(steps)]


def test_schedules_are_pytorchs():
    torch = pytest.importorskip("torch")
    L = torch.optim.lr_scheduler
    for ours, theirs in [
        (S.cosine_decay(1.0, 10, 0.1), lambda o: L.CosineAnnealingLR(o, 10, 0.1)),
        (S.cosine_restarts(1.0, 4, 2.0, 0.1), lambda o: L.CosineAnnealingWarmRestarts(o, 4, 2, 0.1)),
        (S.cosine_restarts(1.0, 4), lambda o: L.CosineAnnealingWarmRestarts(o, 4)),
        (S.exponential_decay(1.0, 0.9), lambda o: L.ExponentialLR(o, 0.9)),
        (S.step_decay(1.0, 0.1, 3), lambda o: L.StepLR(o, 3)),
        (S.piecewise_constant(1.0, {2: 0.1, 7: 0.1}), lambda o: L.MultiStepLR(o, [2, 7])),
        (S.linear(0.5, 1.0, 4), lambda o: L.LinearLR(o, 0.5, total_iters=4)),
        (S.polynomial_decay(1.0, 0.0, 6, 2.0), lambda o: L.PolynomialLR(o, 6, 2.0)),
        (S.one_cycle(1.0, 10), lambda o: L.OneCycleLR(o, 1.0, 10)),
        (S.join([S.linear(0.25, 1.0, 3), S.exponential_decay(1.0, 0.5)], [3]),
         lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.25, total_iters=3), L.ExponentialLR(o, 0.5)], [3])),
    ]:  # fmt: skip
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        scheduler, want = theirs(optimizer), []
        for _ in range(10):
            want.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        np.testing.assert_allclose(rates(ours, 10), want, rtol=1e-9, atol=1e-12)


def test_schedules_in_steps_are_one_program():
    for schedule in (S.warmup_cosine(1.0, 2, 6), S.inverse_sqrt(1.0, 3), S.constant(0.5),
                     S.cosine_restarts(1.0, 2, 3.0), S.one_cycle(1.0, 8)):  # fmt: skip
        optimizer = optim.SGD(schedule)
        params = gr.eval([gr.zeros([1])])
        step = gr.compile(lambda p, o=optimizer: o.update(p, [gr.ones([1])]))
        moved = []
        for _ in range(8):
            new = step(params)
            moved.append(params[0].item() - new[0].item())
            params = new
        np.testing.assert_allclose(moved, rates(schedule, 8), atol=1e-6)
        assert step.num_programs == 1
    assert rates(S.warmup_cosine(1.0, 0, 2), 3) == pytest.approx([1.0, 0.5, 0.0])


def test_invalid_schedules_are_refused():
    for bad in (
        lambda: S.linear(0.0, 1.0, 0),
        lambda: S.warmup_cosine(1.0, 5, 5),
        lambda: S.join([S.constant(1.0)], [1]),
        lambda: S.join([S.constant(1.0)] * 3, [2, 1]),
        lambda: S.join([], []),
        lambda: S.one_cycle(1.0, 2),
        lambda: S.exponential_decay(1.0, -1.0),
        lambda: S.cosine_restarts(1.0, 2, 0.5),
        lambda: optim.Muon(ns_steps=0),
        lambda: optim.Muon(adjust_lr_fn="none"),
        lambda: optim.Adafactor(d=0.5),
        lambda: optim.LBFGS(history_size=0),
        lambda: optim.EMA(1.5),
        lambda: optim.Rprop(etas=(1.0, 2.0)),
        lambda: optim.Rprop(step_sizes=(1.0, 0.5)),
    ):
        with pytest.raises(gr.InvalidArgumentError):
            bad()


def test_states_are_rolled_back_after_a_failed_step():
    model = gr.eval(nn.Embedding(3, 2))
    optimizer = optim.Accumulate(optim.MultiOptimizer([optim.Adam(0.1)], []), 2)
    average, scaler = optim.EMA(0.9), gr.amp.LossScaler(4.0)
    gradients = nn.value_and_grad(model, lambda i: scaler.scale(model(i).sum()))

    def step(i):
        grads, finite = scaler.unscale(gradients(gr.asarray([i]))[1])
        optimizer.update(model, grads)
        average.update(model)
        scaler.update(finite)

    holders = (optimizer, average, scaler)
    step(1)
    gr.eval(model, *(h.state for h in holders))
    before = [{k: v.tolist() for k, v in h.state_dict().items()} for h in holders]
    step(7)
    with pytest.raises(gr.IndexOutOfBoundsError):
        gr.eval(model, *(h.state for h in holders))
    gr.rollback(model, *holders)
    assert [{k: v.tolist() for k, v in h.state_dict().items()} for h in holders] == before
    assert optimizer.optimizer.state is optimizer.state["optimizer"]
    step(2)
    gr.eval(model, *(h.state for h in holders))
    assert average.state["step"].item() == 2


def test_averages_and_scales_are_saved(tmp_path):
    model, average, scaler = network("float32"), optim.EMA(0.9), gr.amp.LossScaler(4.0)
    average.update(model)
    scaler.update(gr.asarray(False))
    for holder, fresh in ((average, optim.EMA(0.9)), (scaler, gr.amp.LossScaler())):
        gr.save(tmp_path / "state.safetensors", holder.state_dict())
        if isinstance(fresh, optim.EMA):
            fresh.init(model)
        fresh.load_state_dict(gr.load(tmp_path / "state.safetensors"))
        same(fresh.state, holder.state)


def test_steps_are_those_of_the_table_that_rust_reads():
    """The other half is `optimizers` in `crates/girih/tests/suite`: both languages' optimisers give
    the same bits. After a change of a definition, `tests/python/optim_table.py` writes the file.
    """
    assert table() == json.loads(FILE.read_text())


def test_options_follow_the_rate_in_their_order():
    params = {"w": gr.asarray([1.0, -2.0])}
    pairs = [
        (optim.SGD(0.1, 0.9, True, 0.01),
         optim.SGD(0.1, momentum=0.9, weight_decay=0.01, nesterov=True)),
        (optim.AdamW(lambda count: 0.1, (0.8, 0.9)),
         optim.AdamW(learning_rate=0.1, betas=(0.8, 0.9))),
        (optim.RMSprop(gr.asarray(0.1), 0.5, 1e-3), optim.RMSprop(lr=0.1, alpha=0.5, eps=1e-3)),
        (optim.Muon(0.1, 0.2, 0.5, False),
         optim.Muon(lr=0.1, weight_decay=0.2, momentum=0.5, nesterov=False)),
    ]  # fmt: skip
    for given, named in pairs:
        p = q = {"w": params["w"].reshape(2, 1)}
        for _ in range(2):
            p, q = given.update(p, p), named.update(q, q)
        assert p["w"].tolist() == q["w"].tolist()
    with pytest.raises(TypeError, match="momentum"):
        optim.SGD(0.1, 0.9, momentum=0.8)


def test_integer_gradients_are_clipped_as_floats():
    grads = {"a": gr.asarray([10, 20]), "b": gr.asarray(True)}
    clipped, norm = optim.clip_grad_norm(grads, 1.0)
    want = np.array([10, 20, 1]) / np.sqrt(501)
    np.testing.assert_allclose(norm.item(), np.sqrt(501), rtol=1e-6)
    np.testing.assert_allclose([*clipped["a"].tolist(), clipped["b"].item()], want, rtol=1e-5)
    with pytest.raises(gr.DTypeError, match="complex64"):
        optim.global_norm([gr.asarray([1j])])
