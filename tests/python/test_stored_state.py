"""State that layers and other objects store while a transform traces them: the transform computes
it, or refuses it and leaves the objects as they were.
"""

from __future__ import annotations

import collections
import functools

import girih as gr
import numpy as np
import pytest
from girih import nn
from loop_table import LOOPS

#: Rows of features, or images of two channels.
ROWS = np.random.default_rng(3).normal(size=(6, 2)).astype(np.float32)


class Counted(nn.Module):
    """A layer with a counter, a running mean, a list and a dict of tensors."""

    def __init__(self, features):
        self.count = gr.zeros([], dtype=gr.int32)
        self.mean = gr.zeros([features])
        self.last = [gr.zeros([]), gr.zeros([])]
        self.seen = {"max": gr.zeros([])}
        self.steps = 0

    def forward(self, x):
        self.count = self.count + 1
        self.mean = 0.5 * self.mean + 0.5 * x.mean([0])
        self.last[0] = self.last[1]
        self.last[1] = x.sum()
        self.seen["max"] = gr.maximum(self.seen["max"], x.max())
        self.steps += 1
        return x * (1.0 + self.mean)


class InPlace(nn.Module):
    """A layer that assigns to its tensors in place."""

    def __init__(self, features):
        self.count = gr.zeros([])
        self.ring = gr.zeros([2, features])

    def forward(self, x):
        self.count += 1
        self.ring[0] = self.ring[1]
        self.ring[1] = x.mean([0])
        return x * 2.0 + self.ring[0]


class Total:
    """An object that is not a module."""

    __slots__ = ("gain", "total")

    def __init__(self):
        self.gain = gr.asarray(2.0)
        self.total = gr.zeros([])

    def __call__(self, x):
        self.total = self.total + x.sum()
        return x * self.gain


class Nested(nn.Module):
    """A layer with state in submodules and in an object that is not a module."""

    def __init__(self):
        self.norms = [nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None)]
        self.total = Total()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        for norm in self.norms:
            x = norm(self.linear(x))
        return self.total(x)


def rows():
    return gr.asarray(ROWS)


def images():
    return gr.asarray(np.stack([ROWS, ROWS * 2 + 1], 0).reshape(3, 2, 2, 2))


KINDS = {
    "batch norm": (lambda: nn.BatchNorm1d(2), rows),
    "batch norm of images": (lambda: nn.BatchNorm2d(2, momentum=None), images),
    "instance norm": (lambda: nn.InstanceNorm2d(2, track_running_stats=True), images),
    "spectral norm": (lambda: nn.spectral_norm(nn.Linear(2, 2)), rows),
    "counters": (lambda: Counted(2), rows),
    "in place": (lambda: InPlace(2), rows),
    "submodules": (lambda: Nested(), rows),
}


def made(kind):
    gr.manual_seed(0)
    return gr.eval(KINDS[kind][0]()), KINDS[kind][1]().eval()


def numbers(value):
    """The tensors of an object as arrays, by path."""
    found = {}

    def walk(held, path):
        if isinstance(held, gr.Tensor):
            found[path] = held.numpy()
        elif isinstance(held, dict):
            for key, inner in held.items():
                walk(inner, f"{path}.{key}")
        elif isinstance(held, (list, tuple, collections.deque)):
            for i, inner in enumerate(held):
                walk(inner, f"{path}.{i}")
        elif isinstance(held, nn.Module):
            walk(vars(held), path)
        elif isinstance(held, Total):
            walk({"gain": held.gain, "total": held.total}, path)

    walk(value, "")
    return found


def same(found, expected, rtol=2e-6):
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(found[path], value, rtol=rtol, atol=1e-6, err_msg=path)


def by_input(f):
    return gr.grad(lambda v: (f(v) ** 2).sum())


#: Transforms that call the function once.
ONCE = {
    "checkpoint": lambda f: gr.checkpoint(f),
    "checkpoint of dots": lambda f: gr.checkpoint(f, policy="dots"),
    "grad": by_input,
    "value_and_grad": lambda f: gr.value_and_grad(lambda v: (f(v) ** 2).sum()),
    "jvp": lambda f: lambda x: gr.jvp(f, (x,), (gr.ones_like(x),))[1],
    "vjp": lambda f: lambda x: gr.vjp(f, x)[1](gr.ones_like(x)),
    "linearize": lambda f: lambda x: gr.linearize(f, x)[1](gr.ones_like(x)),
    "jacrev": lambda f: gr.jacrev(lambda v: f(v).sum()),
    "jacfwd": lambda f: gr.jacfwd(lambda v: f(v).sum()),
    "hessian": lambda f: gr.hessian(lambda v: (f(v) ** 3).sum()),
    "hvp": lambda f: lambda x: gr.hvp(lambda v: (f(v) ** 3).sum(), (x,), (gr.ones_like(x),)),
    "cond": lambda f: lambda x: gr.cond(gr.asarray(True), f, lambda v: v, x),
    "switch": lambda f: lambda x: gr.switch(gr.asarray(1), [lambda v: v, f, lambda v: -v], x),
    "scan of one": lambda f: lambda x: gr.scan(lambda c, _: (f(c), None), x, None, length=1)[0],
    "fori_loop": lambda f: lambda x: gr.fori_loop(0, 1, lambda i, c: f(c), x),
    "custom_jvp": lambda f: custom_jvp_of(f),
    "custom_vjp": lambda f: custom_vjp_of(f),
    "grad of custom_jvp": lambda f: by_input(custom_jvp_of(f)),
    "grad of custom_vjp": lambda f: by_input(custom_vjp_of(f)),
    "checkpoint in checkpoint": lambda f: gr.checkpoint(lambda x: gr.checkpoint(f)(x) + 1.0),
    "grad of checkpoint": lambda f: by_input(gr.checkpoint(f)),
    "grad of cond": lambda f: by_input(ONCE["cond"](f)),
    "grad of scan": lambda f: by_input(ONCE["scan of one"](f)),
    "checkpoint of cond": lambda f: gr.checkpoint(ONCE["cond"](f)),
    "cond of checkpoint": lambda f: ONCE["cond"](gr.checkpoint(f)),
    "a compiled function in grad": lambda f: by_input(gr.compile(f)),
    "a compiled function in checkpoint": lambda f: gr.checkpoint(gr.compile(f)),
}  # fmt: skip


def custom_jvp_of(f):
    g = gr.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * 2.0))
    return g


def custom_vjp_of(f):
    g = gr.custom_vjp(f)
    g.defvjp(lambda x: (g(x), None), lambda _, ct: (ct * 2.0,))
    return g


def compiled(f):
    run = gr.compile(f)

    def called(x):
        return run(x)

    return called


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transform", ONCE)
def test_state_is_that_of_the_plain_call(transform, kind):
    plain, x = made(kind)
    for _ in range(2):
        gr.eval(plain(x))
    for mode in (lambda f: f, compiled):
        if kind == "in place" and (mode is compiled or "compiled" in transform):
            continue  # A compiled function refuses assignment in place.
        module, x = made(kind)
        run = mode(ONCE[transform](module))
        for _ in range(2):
            gr.eval(run(x))
        same(numbers(module), numbers(plain))
        module.eval()
        gr.eval(module(x))


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_carry_state(loop, kind, count):
    plain, x = made(kind)
    expected = x
    for _ in range(count):
        expected = plain(expected)
    for mode in (lambda f: f, compiled):
        if mode is compiled and kind == "in place":
            continue
        module, x = made(kind)
        got = mode(LOOPS[loop](module, count))(x)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
        same(numbers(module), numbers(plain), rtol=1e-5)


def test_a_condition_reads_the_state_that_the_body_stores():
    module, x = made("counters")
    last = gr.while_loop(lambda c: module.count < 3, lambda c: module(c), x)
    assert last.shape == x.shape
    assert module.count.item() == 3


def test_only_the_branch_that_is_taken_stores():
    for taken in (True, False):
        module, x = made("counters")
        before = numbers(module)
        gr.eval(gr.cond(gr.asarray(taken), module, lambda v: v * 2.0, x))
        assert module.count.item() == int(taken)
        if not taken:
            same(numbers(module), before)
    first, x = made("counters")
    second, _ = made("counters")
    gr.eval(gr.switch(gr.asarray(1), [first, second, lambda v: v], x))
    assert (first.count.item(), second.count.item()) == (0, 1)


BATCHED = {
    "vmap": lambda f: gr.vmap(f),
    "grad of vmap": lambda f: by_input(gr.vmap(f)),
    "map": lambda f: lambda x: gr.map(f, x, batch_size=2),
    "vmap of checkpoint": lambda f: gr.vmap(gr.checkpoint(f)),
    "vmap of grad": lambda f: gr.vmap(by_input(f)),
    "vmap of scan": lambda f: gr.vmap(LOOPS["scan"](f, 2)),
    "scan of vmap": lambda f: LOOPS["scan"](gr.vmap(f), 2),
}


@pytest.mark.parametrize("transform", BATCHED)
@pytest.mark.parametrize("kind", ["batch norm", "instance norm", "counters", "in place"])
def test_state_that_varies_over_a_batch_is_refused_and_nothing_changes(transform, kind):
    for mode in (lambda f: f, compiled):
        module, x = made(kind)
        before = numbers(module)
        many = gr.stack([x, x + 1.0, x * 2.0])
        run = mode(BATCHED[transform](module))
        names = r"BatchNorm1d\.running|InstanceNorm2d\.running|Counted\.|InPlace\.ring"
        with pytest.raises(gr.InvalidArgumentError, match=f"stores a tensor in ({names})"):
            run(many)
        same(numbers(module), before)
        gr.eval(module(x))


def test_state_that_is_the_same_for_all_members_is_stored():
    class Calls(nn.Module):
        def __init__(self):
            self.count = gr.zeros([])
            self.mean = gr.zeros([])

        def forward(self, x):
            self.count = self.count + 1
            self.mean = gr.pmean(x.mean(), "batch")
            return x * self.count

    module, x = Calls(), rows()
    gr.eval(gr.vmap(module, axis_name="batch")(x))
    assert module.count.item() == 1
    np.testing.assert_allclose(module.mean.item(), ROWS.mean(), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transform", [*ONCE, *LOOPS, *BATCHED])
def test_an_exception_while_tracing_leaves_the_objects_as_they_were(transform, kind):
    module, x = made(kind)

    def failing(v):
        module(v)
        raise KeyError("stop")

    if transform in LOOPS:
        run = LOOPS[transform](failing, 2)
    elif transform in BATCHED:
        run, x = BATCHED[transform](failing), gr.stack([x, x])
    else:
        run = ONCE[transform](failing)
    for mode in (lambda f: f, compiled):
        before = numbers(module)
        with pytest.raises(KeyError, match="stop"):
            gr.eval(mode(run)(x))
        same(numbers(module), before)


def network():
    gr.manual_seed(1)
    layers = [nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8), nn.BatchNorm1d(8),
              nn.Tanh(), nn.Linear(8, 1)]  # fmt: skip
    return gr.eval(nn.Sequential(*layers))


def trained(model, forward, steps=5, compile=False):
    optimizer = gr.optim.Adam(0.01)
    x, y = rows(), rows()[:, :1] * 2.0

    def step(x, y):
        loss, grads = nn.value_and_grad(model, lambda x, y: ((forward(x) - y) ** 2).mean())(x, y)
        optimizer.update(model, grads)
        return loss

    step = gr.compile(step) if compile else step
    losses = []
    for _ in range(steps):
        loss = step(x, y)
        gr.eval(loss, model, optimizer.state)
        losses.append(loss.item())
    model.eval()
    return losses, numbers(model), model(x).numpy()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("form", ["all", "layers", "nested", "in a compiled function"])
def test_a_network_with_batch_norm_trains_under_checkpoint_as_without(form, compile):
    plain = network()
    expected = trained(plain, plain, compile=compile)
    model = network()

    def layers(x, parts):
        for part in parts:
            x = part(x)
        return x

    forward = {
        "all": gr.checkpoint(model),
        "layers": lambda x: layers(x, map(gr.checkpoint, model)),
        "nested": gr.checkpoint(lambda x: layers(x, map(gr.checkpoint, model))),
        "in a compiled function": gr.compile(gr.checkpoint(model)),
    }[form]
    losses, parameters, out = trained(model, forward, compile=compile)
    np.testing.assert_array_equal(losses, expected[0])
    for path, value in expected[1].items():
        np.testing.assert_array_equal(parameters[path], value, err_msg=path)
    np.testing.assert_array_equal(out, expected[2])


def test_a_training_loop_in_a_scan():
    """The scan carries the parameters, the running statistics and the state of the optimiser."""
    plain, model = network(), network()
    batches = gr.asarray(np.stack([ROWS, ROWS * 0.5, ROWS + 1.0]))

    def stepping(model):
        optimizer = gr.optim.SGD(0.05, momentum=0.9)
        optimizer.init(model)

        def step(x):
            loss, grads = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())(x)
            optimizer.update(model, grads)
            return loss

        return step, optimizer

    step, optimizer = stepping(plain)
    expected = [gr.eval(step(x), plain, optimizer.state)[0].item() for x in batches]
    other, other_optimizer = stepping(model)
    losses = gr.scan(lambda _, x: (None, other(x)), None, batches)[1]
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-5)
    same(numbers(model), numbers(plain), rtol=1e-4)
    same(numbers(other_optimizer.state), numbers(optimizer.state), rtol=1e-4)


def test_parameters_that_a_loss_replaces():
    model = gr.eval(nn.Linear(2, 1))
    start = model.weight.numpy()

    def loss(x):
        model.weight = model.weight * 0.5
        return model(x).sum()

    value, grads = nn.value_and_grad(model, loss)(rows())
    np.testing.assert_allclose(model.weight.numpy(), start * 0.5)
    np.testing.assert_allclose(grads["weight"].numpy()[0], ROWS.sum(0) * 0.5, rtol=1e-5)
    np.testing.assert_allclose(
        value.item(), (ROWS @ start.T * 0.5 + model.bias.numpy()).sum(), rtol=1e-5
    )
    # In functional style the parameters of the loss are those of the model.
    params = {"weight": gr.asarray(start), "bias": model.bias}
    gr.eval(gr.grad(lambda p: model.update(p)(rows()).sum())(params))
    np.testing.assert_array_equal(model.weight.numpy(), start)


def test_tied_tensors_stay_tied():
    class Tied(nn.Module):
        def __init__(self):
            self.a = gr.zeros([])
            self.b = self.a

        def forward(self, x):
            self.a = self.b = self.a + x.sum()
            return x

    for run in (ONCE["checkpoint"], ONCE["cond"], lambda f: LOOPS["scan"](f, 2)):
        module = Tied()
        gr.eval(run(module)(rows()))
        assert module.a is module.b
        assert module.a.item() != 0


TOTAL = gr.zeros([])


def test_closures_globals_and_other_objects_hold_state():
    total, items, table, ring = gr.zeros([]), [gr.zeros([])], {"t": gr.zeros([])}, None
    ring = collections.deque([gr.zeros([])], maxlen=1)
    counter, bound = Total(), Total()

    def f(x):
        nonlocal total
        global TOTAL
        TOTAL = TOTAL + x.sum()
        total = total + x.sum()
        items[0] = items[0] + x.sum()
        table["t"] = table["t"] + x.sum()
        ring.append(ring[0] + x.sum())
        return bound(counter(x)) / 4.0

    for run in (gr.checkpoint(f), by_input(f), ONCE["cond"](f), LOOPS["scan"](f, 1),
                functools.partial(gr.checkpoint(lambda a, x: f(x)), None)):  # fmt: skip
        before = [t.item() for t in (TOTAL, total, items[0], table["t"], ring[0], counter.total)]
        gr.eval(run(rows()))
        now = [t.item() for t in (TOTAL, total, items[0], table["t"], ring[0], counter.total)]
        np.testing.assert_allclose(now, np.asarray(before) + ROWS.sum(), rtol=1e-4)


def test_a_method_of_an_object_is_a_function():
    class Model:
        def __init__(self):
            self.total = gr.zeros([])

        def call(self, x):
            self.total = self.total + x.sum()
            return x * 2.0

    model = Model()
    gr.eval(gr.checkpoint(model.call)(rows()))
    np.testing.assert_allclose(model.total.item(), ROWS.sum(), rtol=1e-5)


def test_places_that_held_no_tensor():
    class Cache(nn.Module):
        def __init__(self):
            self.last = None

        def forward(self, x):
            self.last = x * 2.0
            return x

    module = Cache()
    gr.eval(gr.checkpoint(module)(rows()))
    np.testing.assert_array_equal(module.last.numpy(), ROWS * 2.0)
    for run in (ONCE["cond"], lambda f: LOOPS["scan"](f, 2), lambda f: LOOPS["while_loop"](f, 2)):
        module = Cache()
        with pytest.raises(gr.InvalidArgumentError, match=r"Cache\.last, which held None before"):
            run(module)(rows())
        assert module.last is None


def test_a_loop_refuses_state_of_another_shape_or_length():
    class Grows(nn.Module):
        def __init__(self, append):
            self.all, self.items, self.append = gr.zeros([1]), [], append

        def forward(self, x):
            if self.append:
                self.items.append(x.sum())
            else:
                self.all = gr.concat([self.all, gr.ones([1])])
            return x

    for append, name in ((True, "items"), (False, "all")):
        module = Grows(append)
        with pytest.raises(gr.InvalidArgumentError, match=rf"scan: .* stores .* in Grows\.{name}"):
            LOOPS["scan"](module, 3)(rows())
        assert (module.items, module.all.tolist()) == ([], [0.0])
        gr.eval(gr.checkpoint(module)(rows()))
        assert len(module.items) + module.all.size == 2


def test_rules_and_ops_that_may_not_store():
    module, x = made("counters")
    before = numbers(module)
    op = gr.custom_op(lambda v: module(v), takes="tensors", name="stateful")
    with pytest.raises(gr.InvalidArgumentError, match=r"custom op stateful stores .*Counted\."):
        op(x)
    with pytest.raises(gr.InvalidArgumentError, match=r"linear_transpose.*stores .*Counted\."):
        gr.linear_transpose(module, x)
    with pytest.raises(gr.InvalidArgumentError, match=r"condition.*stores .*Counted\."):
        gr.while_loop(lambda c: (module(c) < 0).any(), lambda c: c, x)
    backward = gr.custom_vjp(lambda v: v * 2.0)
    backward.defvjp(lambda v: (v * 2.0, None), lambda _, ct: (module(ct),))
    with pytest.raises(gr.InvalidArgumentError, match=r"backward rule.*stores .*Counted\."):
        by_input(backward)(x)
    other = gr.custom_vjp(module)
    other.defvjp(lambda v: (v * 2.0, None), lambda _, ct: (ct,))
    with pytest.raises(gr.InvalidArgumentError, match=r"rule must store tensors in the same"):
        by_input(other)(x)
    same(numbers(module), before)


def test_modules_that_the_function_creates_are_its_own():
    def f(x):
        gr.manual_seed(4)
        layer = nn.Linear(2, 2)
        layer.extra = x * 1.0
        norm = nn.BatchNorm1d(2)
        return norm(layer(x))

    for run in (gr.checkpoint(f), by_input(f), ONCE["cond"](f), LOOPS["scan"](f, 2)):
        gr.eval(run(rows()))
