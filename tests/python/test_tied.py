"""Tied parameters of two modules, and frozen parameters."""

from __future__ import annotations

import copy
import pickle

import girih as gr
import numpy as np
import pytest
from girih import nn, optim


class Tied(nn.Module):
    def __init__(self, tied=True):
        self.tok = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.tok.weight

    def forward(self, tokens):
        return self.head(self.tok(tokens))


TOKENS = gr.asarray(np.array([[0, 2], [1, 4]]))


def loss(model):
    return lambda: (model(TOKENS) ** 2).sum()


def model(seed=0, **kwargs):
    gr.manual_seed(seed)
    return gr.eval(Tied(**kwargs))


def test_a_tied_parameter_is_counted_once():
    tied = model()
    assert tied.head.weight is tied.tok.weight
    assert [name for name, _ in tied.named_parameters()] == ["tok.weight"]
    assert tied.num_parameters() == 15
    assert tied.parameters_tree() == {"tok": {"weight": tied.tok.weight}, "head": {}}
    assert sorted(tied.state_dict()) == ["head.weight", "tok.weight"]
    assert tied.buffers_tree() == {"tok": {}, "head": {}}


def test_gradients_sum_over_the_uses():
    tied, apart = model(), model(tied=False)
    apart.head.weight = copy.copy(tied.tok.weight)
    apart.tok.weight = copy.copy(tied.tok.weight)
    assert len(apart.parameters()) == 2
    _, both = nn.value_and_grad(apart, loss(apart))()
    _, one = nn.value_and_grad(tied, loss(tied))()
    expected = (both["tok"]["weight"] + both["head"]["weight"]).numpy()
    np.testing.assert_allclose(one["tok"]["weight"].numpy(), expected, rtol=1e-6)
    functional = gr.grad(lambda p: (nn.functional_call(tied, p, TOKENS) ** 2).sum())
    found = functional(tied.parameters_tree())["tok"]["weight"]
    np.testing.assert_array_equal(found.numpy(), one["tok"]["weight"].numpy())
    assert tied.head.weight is tied.tok.weight


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimiser_keeps_what_is_tied(compiled):
    tied, optimizer = model(), optim.Adam(0.05)
    gradients = nn.value_and_grad(tied, loss(tied))

    def step():
        value, grads = gradients()
        optimizer.update(tied, grads)
        return value

    run = gr.compile(step) if compiled else step
    values = [run().item() for _ in range(5)]
    assert tied.head.weight is tied.tok.weight
    assert values[-1] < values[0]
    assert not compiled or run.num_programs == 1
    if compiled:
        plain, other = model(), optim.Adam(0.05)
        for value in values:
            found, grads = nn.value_and_grad(plain, loss(plain))()
            assert found.item() == value
            other.update(plain, grads)
        tied.head.weight = gr.zeros([5, 3]).eval()  # No longer tied.
        with pytest.raises(gr.InvalidArgumentError, match=r"head.*weight"):
            run()
        optimizer.init(tied)
        assert run().item() == 0.0


def test_every_update_of_a_tied_parameter_reaches_both_places():
    tied = model()
    tied.update({"tok": {"weight": gr.ones([5, 3])}})
    assert tied.head.weight is tied.tok.weight
    tied.load_state_dict({name: gr.full([5, 3], 2.0) for name in ("tok.weight", "head.weight")})
    assert tied.head.weight is tied.tok.weight
    assert tied.tok.weight.tolist() == [[2.0] * 3] * 5
    tied.load_state_dict({"head.weight": gr.full([5, 3], 3.0)}, strict=False)
    assert tied.tok.weight.tolist() == [[3.0] * 3] * 5
    tied.astype(gr.float64)
    assert tied.head.weight is tied.tok.weight
    assert tied.tok.weight.dtype == gr.float64
    assert copy.deepcopy(tied).parameters_tree()["head"] == {}
    assert pickle.loads(pickle.dumps(tied)).parameters_tree()["head"] == {}


def test_two_parameters_made_from_one_tensor_are_not_tied():
    shared = gr.ones([2])

    class Two(nn.Module):
        def __init__(self):
            self.a = nn.Parameter(shared)
            self.b = nn.Parameter(shared)

    two = Two()
    assert len(two.parameters()) == 2
    two.update({"a": shared, "b": shared})
    assert len(two.parameters()) == 2
    two.load_state_dict({"a": shared, "b": shared})
    assert len(two.parameters()) == 2


def test_a_parameter_may_also_be_a_plain_attribute():
    class Projected(nn.Module):
        def __init__(self):
            self.again = None
            self.inner = nn.Linear(3, 3, bias=False)
            self.again = self.inner.weight

        def forward(self, x):
            return self.inner(x) @ self.again

    net = gr.eval(Projected())
    x = gr.ones([3])
    _, grads = nn.value_and_grad(net, lambda: net(x).sum())()
    w = net.again
    expected = gr.grad(lambda w: (x @ w.T @ w).sum())(w)
    found = gr.tree.leaves(grads)[0]
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
    optim.SGD(0.1).update(net, grads)
    assert net.again is net.inner.weight


def test_frozen_parameters_get_no_gradient_and_no_step():
    net = gr.eval(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))
    net[0].freeze()
    assert [n for n, _ in net.named_parameters(trained=True)] == ["1.weight", "1.bias"]
    assert len(net.parameters()) == 4
    optimizer = optim.Adam(0.1)
    step = nn.value_and_grad(net, lambda: net(gr.ones([2, 3])).sum())
    before = net.state_dict()
    _, grads = step()
    assert gr.tree.structure(grads) == gr.tree.structure({"0": {}, "1": {"weight": 0, "bias": 0}})
    optimizer.update(net, grads)
    after = net.state_dict()
    assert [n for n in after if after[n] is not before[n]] == ["1.weight", "1.bias"]

    net.unfreeze("0.bias").freeze("1.bias")
    assert [n for n, _ in net.named_parameters(trained=True)] == ["0.bias", "1.weight"]
    optimizer.init(net)
    optimizer.update(net, step()[1])
    assert net[0].weight is before["0.weight"]
    net.unfreeze()
    assert len(net.parameters(trained=True)) == 4
    assert len(net.freeze(recurse=False).parameters(trained=True)) == 4
    with pytest.raises(gr.InvalidArgumentError, match=r"no parameters gain; there are 0\.weight"):
        net.freeze("gain")


def test_freezing_is_seen_by_compiled_steps():
    net = gr.eval(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))
    optimizer = optim.SGD(0.1)
    gradients = nn.value_and_grad(net, lambda x: (net(x) ** 2).sum())

    @gr.compile
    def step(x):
        value, grads = gradients(x)
        optimizer.update(net, grads)
        return value

    x = gr.eval(gr.ones([2, 3]))
    step(x)
    net[0].freeze()
    before = net[0].weight
    step(x)
    assert net[0].weight is before
    net.unfreeze()
    step(x)
    assert net[0].weight is not before
