"""Modules that hold modules or parameters in lists, by names and in order, and their printed form."""

from __future__ import annotations

from collections import OrderedDict

import girih as gr
import numpy as np
import pytest
from conftest import close, sample
from girih import nn


class Polynomial(nn.Module):
    """A polynomial whose coefficients are held in the given container."""

    def __init__(self, factors):
        self.factors = factors

    def forward(self, x):
        return sum(f * x**i for i, f in enumerate(self.factors))


def names(module):
    return [name for name, _ in module.named_parameters()]


def factors():
    return [nn.Parameter(gr.full([], float(i + 1))) for i in range(3)]


HOLDERS = {
    "ParameterList": lambda: nn.ParameterList(factors()),
    "of tensors": lambda: nn.ParameterList(gr.full([], float(i + 1)) for i in range(3)),
    "list": factors,
    "tuple": lambda: tuple(factors()),
}


@pytest.mark.parametrize("how", HOLDERS)
def test_parameters_in_a_list_are_trained(how):
    model = Polynomial(HOLDERS[how]())
    assert isinstance(model.factors, nn.ParameterList)
    assert names(model) == ["factors.0", "factors.1", "factors.2"]
    value, grads = nn.value_and_grad(model, lambda x: model(x))(gr.asarray(2.0))
    assert value.item() == 1 + 2 * 2 + 3 * 4
    assert gr.tree.map(lambda g: g.item(), grads) == {"factors": {"0": 1.0, "1": 2.0, "2": 4.0}}
    optimizer = gr.optim.SGD(0.5)
    optimizer.update(model, grads)
    assert [f.item() for f in model.factors] == [0.5, 1.0, 1.0]
    other = Polynomial(nn.ParameterList(gr.zeros([]) for _ in range(3)))
    other.load_state_dict(model.state_dict())
    assert [f.item() for f in other.factors] == [0.5, 1.0, 1.0]


def test_parameters_by_name():
    class Model(nn.Module):
        def __init__(self):
            self.weights = {
                "left": nn.Parameter(gr.ones([2])),
                "right": nn.Parameter(gr.zeros([3])),
            }

    model = Model()
    assert isinstance(model.weights, nn.ParameterDict)
    assert names(model) == ["weights.left", "weights.right"]
    model.weights["more"] = gr.ones([1])
    assert list(model.weights) == ["left", "right", "more"]
    assert "more" in model.weights
    assert dict(model.weights.items()).keys() == model.weights.keys()
    assert len(model.weights.values()) == len(model.weights) == 3
    del model.weights["left"]
    assert names(model) == ["weights.right", "weights.more"]
    with pytest.raises(KeyError, match="left"):
        model.weights["left"]
    for bad in ("keys", "", "a.b", 3, "training"):
        with pytest.raises(gr.InvalidArgumentError, match="ParameterDict"):
            model.weights[bad] = gr.ones([1])
    assert "right: float32[3], more: float32[1]" in repr(model.weights)


def test_lists_that_mix_parameters_and_modules_are_refused():
    model = nn.Module()
    with pytest.raises(gr.InvalidArgumentError, match=r"Module\.ws: .*Linear.* list of their own"):
        model.ws = [nn.Parameter(gr.ones([1])), nn.Linear(1, 1)]


def test_a_parameter_list_is_a_list():
    held = nn.ParameterList([gr.zeros([1]), gr.ones([1])])
    held.append(gr.full([1], 2.0)).extend([gr.full([1], 3.0)])
    held.insert(1, gr.full([1], 9.0))
    assert [t.item() for t in held] == [0, 9, 1, 2, 3]
    assert names(held) == ["0", "1", "2", "3", "4"]
    assert held.pop().item() == 3
    assert held.pop(0).item() == 0
    del held[0]
    held[-1] = gr.full([1], 7.0)
    assert [t.item() for t in held] == [1, 7]
    assert [t.item() for t in held[1:]] == [7]
    assert isinstance(held[1:], nn.ParameterList)
    assert held[0] in held
    assert gr.ones([1]) not in held
    with pytest.raises(IndexError, match="index 2 is out of range for 2 entries"):
        held[2]


def test_modules_in_a_list():
    class Model(nn.Module):
        def __init__(self):
            self.blocks = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
            self.blocks.append(nn.Linear(2, 2))

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    model = Model()
    assert names(model)[:2] == ["blocks.0.weight", "blocks.0.bias"]
    text = gr.graph_to_text(model(gr.ones([1, 2])))
    assert all(f"Model.blocks.{i}" in text for i in range(3))
    assert model.blocks[-1] is model.blocks[2]
    model.eval()
    assert not model.blocks[1].training
    assert len(model.modules()) == 5
    with pytest.raises(gr.InvalidArgumentError, match="ModuleList: entry '3' is of type int"):
        model.blocks.append(3)
    assert "0: Linear(in_features=2" in repr(model)


def test_modules_by_name():
    heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
    assert names(heads) == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert heads["b"](gr.ones([2])).shape == (3,)
    assert heads.a is heads["a"]
    with pytest.raises(gr.InvalidArgumentError, match="ModuleDict: entry 'c' is of type Tensor"):
        heads["c"] = gr.ones([1])


def test_a_sequence_by_names():
    layers = [("first", nn.Linear(3, 4)), ("act", gr.tanh), ("last", nn.Linear(4, 2))]
    x = sample((5, 3), "float32")
    for made in (OrderedDict(layers), dict(layers)):
        model = nn.Sequential(made)
        assert names(model) == ["first.weight", "first.bias", "last.weight", "last.bias"]
        assert model.first is model["first"] is model[0]
        want = np.tanh(x @ model.first.weight.numpy().T + model.first.bias.numpy())
        close(model[:2](gr.asarray(x)), want, 1e-5, 1e-6)
        assert names(model[2:]) == ["last.weight", "last.bias"]
    assert "first: Linear(" in repr(model)
    assert "act: tanh" in repr(model)


def test_a_sequence_is_a_list():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    assert names(model) == ["0.weight", "0.bias"]
    model.append(nn.Linear(4, 2))
    assert len(model) == 3
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "Linear"]
    del model[1]
    assert names(model) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    model.insert(1, nn.Tanh())
    assert model(gr.ones([1, 3])).shape == (1, 2)
    model[1] = nn.GELU()
    assert isinstance(model[1:][0], nn.GELU)
    assert names(model[2:]) == ["0.weight", "0.bias"]
    assert nn.Sequential([nn.ReLU()])[0](gr.asarray(-1.0)).item() == 0
    assert nn.Sequential()(3) == 3
    with pytest.raises(gr.InvalidArgumentError, match="Sequential: layer '0' is of type int"):
        nn.Sequential(3)
    with pytest.raises(IndexError, match="Sequential: index 7"):
        model[7]


REPRS = {
    "Linear(in_features=3, out_features=2, bias=False)": lambda: nn.Linear(3, 2, bias=False),
    "Linear(in_features=3, out_features=2, bias=True, dtype=float64)": lambda: nn.Linear(
        3, 2, dtype=gr.float64
    ),
    "Conv2d(in_channels=4, out_channels=6, kernel_size=(3, 3), stride=2, padding='same', dilation=1, groups=2, bias=True": lambda: (
        nn.Conv2d(4, 6, 3, 2, "same", groups=2)
    ),
    "LayerNorm(normalized_shape=(3,), eps=1e-05, elementwise_affine=True, bias=True)": lambda: (
        nn.LayerNorm(3)
    ),
    "BatchNorm1d(num_features=3, eps=1e-05, momentum=0.1, affine=False, track_running_stats=True)": lambda: (
        nn.BatchNorm1d(3, affine=False)
    ),
    "GroupNorm(num_groups=2, num_channels=4, eps=1e-05, affine=True)": lambda: nn.GroupNorm(2, 4),
    "RMSNorm(normalized_shape=(3,), eps=1e-06, elementwise_affine=True)": lambda: nn.RMSNorm(3),
    "GELU(approximate='tanh')": lambda: nn.GELU("tanh"),
    "Dropout(p=0.5)": lambda: nn.Dropout(),
    "Flatten(start_dim=1, end_dim=-1)": lambda: nn.Flatten(),
    "ReLU()": lambda: nn.ReLU(),
    "MSELoss(reduction='sum')": lambda: nn.MSELoss("sum"),
}


@pytest.mark.parametrize("want", REPRS)
def test_layers_print_all_their_arguments(want):
    assert repr(REPRS[want]()).startswith(want)


def test_user_modules_print_their_plain_arguments():
    class Block(nn.Module):
        def __init__(self, size, rate=0.5, inner=None):
            self.size, self.rate = size, rate
            self.inner = inner

    assert repr(Block(3)).endswith("Block(size=3, rate=0.5, inner=None)")
    assert "inner: ReLU()" in repr(Block(3, inner=nn.ReLU()))
