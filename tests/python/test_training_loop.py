"""PyTorch's training loop: optimisers that hold parameters, ``backward``, ``step``, ``zero_grad``."""

from __future__ import annotations

import copy
import gc
import pickle

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 3)).astype(np.float32)
Y = RNG.normal(size=(16, 2)).astype(np.float32)

#: Optimisers with their options; the same as of PyTorch.
OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True}),
    ("Adagrad", {"lr": 0.01, "lr_decay": 0.1}),
    ("Adadelta", {"lr": 0.5}),
    ("Rprop", {"lr": 0.01}),
    ("ASGD", {"lr": 0.01, "t0": 2}),
    ("Adafactor", {"lr": 0.05}),
]


def pair():
    """The same network in PyTorch and here. A bias before a norm would have gradients of zero."""
    torch.manual_seed(0)
    make = lambda nn: nn.Sequential(
        nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)
    )
    theirs, own = make(torch.nn), make(nn)
    own.load_state_dict(theirs.state_dict())
    return theirs, own


def train(lib, model, optimizer, steps, x, y, clip=None):
    """The loop as it is written everywhere."""
    losses = []
    for _ in range(steps):
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            clip(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.item())
    return losses


def same_tensors(own, theirs, rtol=2e-4, atol=2e-5):
    expected = theirs.state_dict()
    found = own.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        np.testing.assert_allclose(
            tensor.numpy(), expected[name].numpy(), rtol=rtol, atol=atol, err_msg=name
        )


@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda c: "-".join((c[0], *c[1])))
def test_the_loop_trains_as_in_pytorch(case):
    name, options = case
    theirs, own = pair()
    other = getattr(torch.optim, name)(theirs.parameters(), **options)
    optimizer = getattr(optim, name)(own.parameters(), **options)
    expected = train(torch, theirs, other, 8, torch.tensor(X), torch.tensor(Y))
    found = train(gr, own, optimizer, 8, gr.asarray(X), gr.asarray(Y))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    same_tensors(own, theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: optim.Lion(m.parameters(), lr=1e-3),
        lambda m: optim.LBFGS(m.parameters(), lr=0.1),
        lambda m: optim.Accumulate(optim.SGD(m.parameters(), lr=0.1), 2),
        lambda m: optim.SkipNonFinite(optim.Adam(m.parameters(), lr=0.01)),
        lambda m: optim.MultiOptimizer(
            [optim.Muon(0.02), optim.AdamW(0.01)], [lambda n, p: p.ndim == 2], m.parameters()
        ),
        lambda m: optim.Adam([{"params": m[0].parameters()}, {"params": m[3].parameters(), "lr": 0.1}]),
        lambda m: optim.Adam(m, lr=0.01),
        lambda m: optim.Adam(m.named_parameters(), lr=0.01),
        lambda m: optim.Adam(iter(m.parameters()), 0.01, (0.8, 0.9)),
        lambda m: optim.SGD(m.parameters(), learning_rate=optim.schedules.cosine_decay(0.1, 10)),
    ],
)  # fmt: skip
def test_every_optimiser_and_every_form_of_parameters_trains(make):
    own = pair()[1]
    losses = train(gr, own, make(own), 10, gr.asarray(X), gr.asarray(Y))
    assert losses[-1] < losses[0]


def test_the_loop_needs_no_eval_and_its_memory_stays_constant():
    own, average = pair()[1], optim.EMA(0.9)
    optimizer = optim.Adam(own.parameters(), lr=0.01)
    x, y = gr.asarray(X), gr.asarray(Y)

    def step():
        loss = ((own(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update(own)

    def counts():
        gc.collect()
        stats = gr.cache_stats()
        return stats["compiles"], stats["memory_bytes"], gr.current_graph().live_nodes

    for _ in range(4):
        step()
    before, runs = counts(), gr.cache_stats()["runs"]
    for _ in range(200):
        step()
    after = counts()
    assert after == before
    assert gr.cache_stats()["runs"] - runs == 400
    assert not any(t.is_lazy for t in (*own.parameters(), *own.buffers()))
    assert not any(t.is_lazy for t in optimizer.state_dict().values())
    with average.applied(own):
        assert ((own(x) - y) ** 2).mean().item() > 0


def test_the_loss_is_computed_by_the_step():
    own = pair()[1]
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    loss = ((own(gr.asarray(X)) - Y) ** 2).mean()
    loss.backward()
    runs = gr.cache_stats()["runs"]
    optimizer.step()
    assert not loss.is_lazy
    assert gr.cache_stats()["runs"] == runs + 1


def test_a_loss_read_before_backward():
    theirs, own = pair()
    other = torch.optim.SGD(theirs.parameters(), lr=0.1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    for lib, model, opt in ((torch, theirs, other), (gr, own, optimizer)):
        for _ in range(3):
            opt.zero_grad()
            loss = ((model(lib.asarray(X)) - lib.asarray(Y)) ** 2).mean()
            assert loss.item() > 0
            loss.backward()
            opt.step()
    same_tensors(own, theirs)


def test_parameters_are_updated_in_place_and_all_see_it():
    own = nn.Linear(2, 2)
    tied = nn.Linear(2, 2)
    tied.weight = own.weight
    both = nn.Sequential(own, tied)
    weight = own.weight
    optimizer = optim.SGD(both.parameters(), lr=1.0)
    assert len(optimizer.param_groups[0]["params"]) == 3
    before = weight.tolist()
    both(gr.ones([1, 2])).sum().backward()
    optimizer.step()
    assert own.weight is weight
    assert tied.weight is weight
    assert weight.tolist() != before
    assert weight.requires_grad
    assert weight.is_leaf


def test_the_functional_form_and_the_step_see_one_truth():
    theirs, own = pair()
    del theirs
    x, y = gr.asarray(X), gr.asarray(Y)
    optimizer = optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
    twin = copy.deepcopy(own)
    stateful = optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
    for i in range(4):
        twin_loss = ((twin(x) - y) ** 2).mean()
        twin_loss.backward()
        stateful.step()
        stateful.zero_grad()
        if i % 2:
            _, grads = nn.value_and_grad(own, lambda: ((own(x) - y) ** 2).mean())()
            optimizer.update(own, grads)
        else:
            ((own(x) - y) ** 2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(own.parameters(), twin.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    assert optimizer.state["step"].item() == 4


def test_a_functional_update_keeps_what_requires_a_gradient():
    # The program of a user, whose second step had no gradients.
    own = nn.Linear(3, 2)
    for p in own.parameters():
        p.requires_grad_()
    optimizer, x = optim.SGD(0.1), gr.ones([4, 3])
    handle = own.weight
    for _ in range(3):
        own(x).sum().backward()
        optimizer.update(own, {name: p.grad for name, p in own.named_parameters()})
        for p in own.parameters():
            assert p.grad is not None
            p.grad = None
    assert own.weight is handle
    assert not gr.eval(own).weight.is_lazy


def test_a_flat_dict_of_gradients_by_dotted_name():
    own = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).requires_grad_()
    own(gr.ones([4, 3])).sum().backward()
    before = own[1].bias.tolist()
    optim.SGD(0.5).update(own, {name: p.grad for name, p in own.named_parameters()})
    np.testing.assert_allclose(own[1].bias.tolist(), [before[0] - 2.0], rtol=1e-6)


def test_loading_and_assigning_between_steps():
    own = nn.Linear(2, 1)
    optimizer = optim.SGD(own.parameters(), lr=1.0)
    own.load_state_dict({"weight": np.ones((1, 2), np.float32), "bias": np.zeros(1, np.float32)})
    own(gr.ones([1, 2])).sum().backward()
    optimizer.step()
    assert own.weight.tolist() == [[0.0, 0.0]]
    optimizer.zero_grad()
    own.weight = gr.full([1, 2], 5.0)
    own(gr.ones([1, 2])).sum().backward()
    optimizer.step()
    assert own.weight.tolist() == [[4.0, 4.0]]
    optimizer.zero_grad()
    own.weight = np.full((1, 2), 7.0)
    own(gr.ones([1, 2])).sum().backward()
    optimizer.step()
    assert own.weight.tolist() == [[6.0, 6.0]]
    own.to(gr.float64)
    optimizer.zero_grad()
    own(gr.ones([1, 2], dtype=gr.float64)).sum().backward()
    optimizer.step()
    assert own.weight.dtype == gr.float64
    assert own.weight.tolist() == [[5.0, 5.0]]


def test_frozen_parameters_and_gradual_unfreezing():
    theirs, own = pair()
    for model in (theirs, own):
        for p in model[0].parameters():
            p.requires_grad = False
    assert own.named_parameters(trained=True)[0][0] == "1.weight"
    assert "frozen" in repr(own)
    other = torch.optim.SGD(theirs.parameters(), lr=0.1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    before = own[0].weight.tolist()
    train(torch, theirs, other, 2, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 2, gr.asarray(X), gr.asarray(Y))
    assert own[0].weight.tolist() == before
    same_tensors(own, theirs)
    theirs[0].requires_grad_(True)
    own[0].unfreeze()
    train(torch, theirs, other, 2, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 2, gr.asarray(X), gr.asarray(Y))
    assert own[0].weight.tolist() != before
    same_tensors(own, theirs)
    own.requires_grad_(False)
    assert own.trainable_parameters() == []
    with pytest.raises(gr.InvalidArgumentError, match="requires no gradient"):
        own(gr.asarray(X)).sum().backward()


def test_groups_have_options_of_their_own():
    theirs, own = pair()
    groups = lambda m: [
        {"params": m[0].parameters(), "weight_decay": 0.5, "name": "first"},
        {"params": [*m[1].parameters(), *m[3].parameters()], "lr": 0.5, "momentum": 0.5},
    ]
    other = torch.optim.SGD(groups(theirs), lr=0.01, momentum=0.9)
    optimizer = optim.SGD(groups(own), lr=0.01, momentum=0.9)
    assert [g["lr"] for g in optimizer.param_groups] == [0.01, 0.5]
    assert optimizer.param_groups[0]["name"] == "first"
    train(torch, theirs, other, 3, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    for opt in (other, optimizer):
        for group in opt.param_groups:
            group["lr"] *= 0.1
            group["momentum"] = 0.7
    train(torch, theirs, other, 3, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    same_tensors(own, theirs)
    with pytest.raises(gr.InvalidArgumentError, match="param_groups"):
        optimizer.lr = 0.1
    with pytest.raises(gr.InvalidArgumentError, match="other state"):
        optimizer.param_groups[0]["momentum"] = 0.0


def test_a_group_that_is_added_later():
    theirs, own = pair()
    other = torch.optim.Adam(theirs[3].parameters(), lr=0.1)
    optimizer = optim.Adam(own[3].parameters(), lr=0.1)
    train(torch, theirs, other, 3, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    for opt, model in ((other, theirs), (optimizer, own)):
        opt.add_param_group({"params": model[0].parameters(), "lr": 0.01})
    train(torch, theirs, other, 3, torch.tensor(X), torch.tensor(Y))
    train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    same_tensors(own, theirs)
    with pytest.raises(gr.InvalidArgumentError, match="in two groups"):
        optimizer.add_param_group({"params": [own[0].weight]})


def test_clipping_in_place():
    theirs, own = pair()
    other = torch.optim.SGD(theirs.parameters(), lr=0.1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    for clip, mine in (
        (torch.nn.utils.clip_grad_norm_, nn.utils.clip_grad_norm_),
        (torch.nn.utils.clip_grad_value_, optim.clip_grad_value_),
    ):
        train(torch, theirs, other, 2, torch.tensor(X), torch.tensor(Y), clip)
        train(gr, own, optimizer, 2, gr.asarray(X), gr.asarray(Y), mine)
    same_tensors(own, theirs)
    x = gr.asarray([np.inf]).requires_grad_()
    (x * x).sum().backward()
    with pytest.raises(gr.InvalidArgumentError, match="is inf"):
        optim.clip_grad_norm_(x, 1.0, error_if_nonfinite=True)
    assert optim.clip_grad_norm_([gr.ones([2])], 1.0).item() == 0.0


def test_accumulated_gradients_and_several_losses():
    theirs, own = pair()
    other = torch.optim.SGD(theirs.parameters(), lr=0.1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    for lib, model, opt in ((torch, theirs, other), (gr, own, optimizer)):
        x, y = lib.asarray(X), lib.asarray(Y)
        for i in range(4):
            (((model(x) - y) ** 2).mean() / 2).backward()
            if i % 2:
                opt.step()
                opt.zero_grad(set_to_none=False)
        assert not model[0].weight.grad.any()
    same_tensors(own, theirs)


def test_tensors_without_a_module():
    w = gr.zeros([2], dtype=gr.float64)
    optimizer = optim.SGD([w], lr=0.5)
    assert w.requires_grad
    for _ in range(2):
        ((w - gr.asarray([1.0, 2.0], dtype=gr.float64)) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert w.tolist() == [1.0, 2.0]
    assert sorted(optim.Adam([w, gr.ones([1])], lr=1.0).init(None)["m"]) == ["0", "1"]


def test_what_is_no_parameter_is_refused():
    w = gr.zeros([2]).requires_grad_()
    cases = [
        ([], gr.InvalidArgumentError, "no parameters"),
        ([1.0], gr.DTypeError, "expected tensors"),
        ([gr.ones([2], dtype=gr.int32)], gr.DTypeError, "int32"),
        ([w * 2], gr.InvalidArgumentError, "result"),
        ([{"weights": [w]}], gr.InvalidArgumentError, "params"),
        ([{"params": [w]}, {"params": [w]}], gr.InvalidArgumentError, "two groups"),
        (gr.ones([2]), gr.DTypeError, "iterable"),
        ("model", gr.DTypeError, "'model'"),
        ([nn.Parameter(w)], gr.InvalidArgumentError, "no module holds"),
    ]
    for params, error, text in cases:
        with pytest.raises(error, match=text):
            optim.Adam(params, lr=0.1)
    with pytest.raises(gr.InvalidArgumentError, match="two learning rates"):
        optim.SGD(0.1, lr=0.9)
    with pytest.raises(gr.InvalidArgumentError, match="two learning rates"):
        optim.SGD([w], 0.1, learning_rate=0.2)
    for call in (lambda o: o.step(), lambda o: o.zero_grad()):
        with pytest.raises(gr.InvalidArgumentError, match="holds no parameters"):
            call(optim.SGD(0.1))
    held = optim.SGD([w], lr=0.1)
    with pytest.raises(gr.InvalidArgumentError, match="holds parameters"):
        held.update({"w": w}, {"w": w})
    layer = nn.Linear(2, 1)
    with pytest.raises(gr.InvalidArgumentError, match="does not hold"):
        held.update(layer, layer.parameters_tree())
    held.step()  # Without gradients a step changes nothing.
    assert held.state["step"].item() == 0


def test_state_is_saved_by_names_and_restored_before_the_first_step():
    own = pair()[1]
    optimizer = optim.Adam(own.parameters(), lr=0.01)
    train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    saved, weights = optimizer.state_dict(), own.state_dict()
    assert "m.0.weight" in saved
    expected = train(gr, own, optimizer, 3, gr.asarray(X), gr.asarray(Y))
    again = pair()[1].load_state_dict(weights)
    other = optim.Adam(again.parameters(), lr=1.0)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.01
    assert train(gr, again, other, 3, gr.asarray(X), gr.asarray(Y)) == expected
    with pytest.raises(gr.InvalidArgumentError, match="optimiser of PyTorch"):
        other.load_state_dict(torch.optim.SGD([torch.zeros(1)], lr=0.1).state_dict())
    copied = copy.deepcopy((again, other))
    pickled = pickle.loads(pickle.dumps(other))
    assert pickled.state["step"].item() == copied[1].state["step"].item() == 6


def test_a_step_that_fails_changes_nothing():
    table = nn.Embedding(3, 2)
    optimizer = optim.Adam(table.parameters(), lr=0.1)
    table(gr.asarray([0])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    before, steps = table.weight.tolist(), optimizer.state["step"].item()
    table(gr.asarray([7])).sum().backward()
    with pytest.raises(gr.GirihError, match="7"):
        optimizer.step()
    assert table.weight.tolist() == before
    assert optimizer.state["step"].item() == steps
    optimizer.zero_grad()
    table(gr.asarray([1])).sum().backward()
    optimizer.step()
    assert table.weight.tolist() != before


def test_backward_through_parameters_that_have_changed_is_an_error():
    own = nn.Linear(2, 1)
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    first, second = (own(gr.ones([1, 2])).sum() for _ in range(2))
    first.backward()
    optimizer.step()
    with pytest.raises(gr.InvalidArgumentError, match="another value now"):
        second.backward()


def test_hooks_of_parameters_stay():
    own, seen = nn.Linear(2, 1), []
    optimizer = optim.SGD(own.parameters(), lr=0.1)
    handle = own.bias.register_hook(lambda g: seen.append(g.tolist()))
    for _ in range(2):
        own(gr.ones([1, 2])).sum().backward()
        optimizer.step()
    assert seen == [[1.0], [1.0]]
    handle.remove()
    own(gr.ones([1, 2])).sum().backward()
    assert len(seen) == 2


def test_rates_and_schedulers_compile_nothing():
    own = nn.Linear(3, 2)
    optimizer = optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    x, y = gr.asarray(X), gr.asarray(Y)
    train(gr, own, optimizer, 3, x, y)
    scheduler.step()
    train(gr, own, optimizer, 1, x, y)
    compiles = gr.cache_stats()["compiles"]
    for _ in range(5):
        train(gr, own, optimizer, 1, x, y)
        scheduler.step()
    assert gr.cache_stats()["compiles"] == compiles


def test_attributes_that_there_are_not_say_what_to_write():
    optimizer = optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    with pytest.raises(AttributeError, match="param_groups"):
        getattr(optimizer, "defaults")  # noqa: B009 - no attribute for type checkers
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        getattr(optimizer, "nothing")  # noqa: B009 - no attribute for type checkers
    with pytest.raises(AttributeError, match=r"model\.to\(device\)"):
        nn.Linear(2, 1).cuda()


@pytest.mark.parametrize(
    "make",
    [
        lambda m: optim.SGD(m.parameters(), lr=0.1),
        lambda m: optim.Adam(m.parameters(), lr=0.01),
        lambda m: optim.SGD(
            [{"params": m[0].parameters()}, {"params": m[3].parameters(), "lr": 0.2}],
            lr=0.1, momentum=0.9,
        ),
        lambda m: optim.SkipNonFinite(optim.AdamW(m.parameters(), lr=0.01)),
    ],
)  # fmt: skip
def test_a_compiled_step_is_the_same_loop(make):
    x, y = gr.asarray(X), gr.asarray(Y)

    def step_of(model, optimizer):
        def step(x, y):
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    plain_model, model = pair()[1], pair()[1]
    plain, weight = step_of(plain_model, make(plain_model)), model[0].weight
    optimizer = make(model)
    compiled = gr.compile(step_of(model, optimizer))
    for i in range(6):
        np.testing.assert_array_equal(compiled(x, y).numpy(), plain(x, y).numpy())
        assert model[0].weight is weight
        assert weight.requires_grad
        assert weight.grad is None
        assert optimizer.state["step"].item() == i + 1
        if i == 3:  # The eager loop goes on with the same parameters.
            ((model(x) - y) ** 2).mean().backward()
            assert weight.grad is not None
            optimizer.zero_grad()
    for a, b in zip(model.parameters(), plain_model.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    assert compiled.num_programs == 1


def test_a_compiled_functional_step_keeps_variables():
    own = pair()[1].requires_grad_()
    optimizer, handle = optim.Adam(0.01), own[0].weight
    optimizer.init(own)
    gradients = nn.value_and_grad(own, lambda x, y: ((own(x) - y) ** 2).mean())

    @gr.compile
    def step(x, y):
        loss, grads = gradients(x, y)
        optimizer.update(own, grads)
        return loss

    losses = [step(gr.asarray(X), gr.asarray(Y)).item() for _ in range(5)]
    assert losses[-1] < losses[0]
    assert own[0].weight is handle
    assert handle.requires_grad
    assert step.num_programs == 1


@pytest.mark.parametrize("evaluated", [False, True])
def test_parameters_of_one_tensor_have_gradients_of_their_own(evaluated):
    shared = gr.ones([2]) * 2.0
    shared = gr.eval(shared) if evaluated else shared

    class Two(nn.Module):
        def __init__(self):
            self.a, self.b = nn.Parameter(shared), nn.Parameter(shared)

        def forward(self, x):
            return self.a * x + 3 * self.b

    two, alias = Two(), shared
    optimizer = optim.SGD(two.parameters(), lr=1.0)
    assert not alias.requires_grad
    two(gr.ones([2])).sum().backward()
    assert (two.a.grad.tolist(), two.b.grad.tolist()) == ([1.0, 1.0], [3.0, 3.0])
    optimizer.step()
    assert (two.a.tolist(), two.b.tolist()) == ([1.0, 1.0], [-1.0, -1.0])
    assert shared.tolist() == [2.0, 2.0]
    other = Two().requires_grad_()
    (other.a * 2).sum().backward()
    assert other.b.grad is None
    assert not shared.requires_grad


def test_the_loop_in_eager_mode():
    def losses():
        own = pair()[1]
        optimizer = optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
        return train(gr, own, optimizer, 4, gr.asarray(X), gr.asarray(Y))

    expected = losses()
    with gr.eager_mode():
        found = losses()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
