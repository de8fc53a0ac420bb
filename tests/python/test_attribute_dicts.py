"""Objects whose attributes are not what their protocols say: dicts with keys as attributes,
objects that answer for every attribute, and dict subclasses as pytrees."""

from __future__ import annotations

import collections
from types import SimpleNamespace

import girih as gr
import numpy as np
import pytest
from girih import nn, tree


class Bag(dict):
    """Raises KeyError for attributes that it lacks."""

    __getattr__ = dict.__getitem__


class Lenient(dict):
    """Has every attribute: None unless it is a key."""

    __getattr__ = dict.get


class AttrDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Growing(dict):
    """Makes what is asked for, like some configuration libraries."""

    def __getattr__(self, name):
        return self.setdefault(name, Growing())


KINDS = [Bag, Lenient, AttrDict, Growing, collections.Counter, collections.UserDict]
DICTS = KINDS[:4]


class Eager:
    """An object that is no array, and fails for attributes with an error of its own."""

    def __getattr__(self, name):
        raise LookupError(name)


@pytest.mark.parametrize("kind", DICTS)
def test_dict_subclasses_are_trees(kind):
    x = gr.asarray(3.0)
    given = kind(w=x, b=gr.asarray(1.0))
    found = tree.map(lambda t: t + 1, given)
    assert type(found) is kind
    assert {k: v.item() for k, v in found.items()} == {"w": 4.0, "b": 2.0}
    assert tree.structure(given) == tree.structure(kind(b=x, w=x))
    assert tree.structure(given) != tree.structure(dict(given))
    assert kind.__name__ in repr(tree.structure(given))
    assert gr.grad(lambda c: c["w"] * c.w)(kind(w=x))["w"].item() == 6.0
    assert gr.compile(lambda x, c: x * c.k)(x, kind(k=2.0)).item() == 6.0
    assert gr.compile(lambda x, c: x * c["k"])(x, kind(k=x)).item() == 9.0
    batched = gr.vmap(lambda c: c["w"] * 2)(kind(w=gr.ones([3])))
    assert batched.tolist() == [2.0] * 3
    value, gradient = gr.value_and_grad(lambda c: (c.w**2).sum())(kind(w=x))
    assert (value.item(), type(gradient), gradient.w.item()) == (9.0, kind, 6.0)
    out, carried = gr.scan(lambda c, v: (kind(s=c["s"] + v), v), kind(s=x), gr.ones([2]))
    assert (out["s"].item(), carried.shape) == (5.0, (2,))
    assert gr.eval(given) is given
    assert gr.cond(x > 0, lambda c: c["w"], lambda c: c["b"], given).item() == 3.0


def test_a_dict_that_cannot_be_rebuilt_says_so():
    class Config(dict):
        def __init__(self, name):
            super().__init__(name=name)

    with pytest.raises(gr.InvalidArgumentError, match=r"Config.*register"):
        tree.map(lambda x: x, Config(1))


@pytest.mark.parametrize("kind", KINDS)
def test_dicts_are_no_arrays(kind):
    given = kind({"k": 2})
    functions = [gr.asarray, gr.exp, lambda v: gr.ones([2]) + v, lambda v: gr.concat([v])]
    for function in functions:
        with pytest.raises((gr.GirihError, TypeError)) as raised:
            function(given)
        assert not isinstance(raised.value, KeyError)


def test_an_object_with_failing_attributes_is_a_plain_leaf():
    given = Eager()
    for function in [gr.asarray, gr.exp, gr.grad(lambda v: v), gr.vmap(lambda v: v)]:
        with pytest.raises(gr.GirihError):
            function(given)
    assert tree.leaves([given]) == [given]
    assert gr.compile(lambda x, v: x * 2)(gr.ones([1]), given).tolist() == [2.0]

    @gr.compile
    def reads(x):
        return x * 2 if given is not None else x

    assert reads(gr.ones([1])).tolist() == [2.0]


def test_callables_with_failing_attributes():
    class Model(Bag):
        def __call__(self, x):
            return (x * x).sum()

    x = gr.asarray([1.0, 2.0])
    f = Model(w=1)
    assert gr.grad(f)(x).tolist() == [2.0, 4.0]
    assert gr.compile(f)(x).item() == 5.0
    assert gr.vmap(f)(gr.ones([2, 2])).tolist() == [2.0, 2.0]
    assert gr.jvp(f, (x,), (x,))[1].item() == 10.0


def test_attributes_of_an_instance_make_an_array():
    a = np.arange(3.0)
    held = SimpleNamespace(__array_interface__=a.__array_interface__, owner=a)
    assert gr.asarray(held).tolist() == [0.0, 1.0, 2.0]
    assert gr.compile(lambda x: x + 1)(held).tolist() == [1.0, 2.0, 3.0]


def test_a_module_takes_a_dict_of_tensors():
    class Net(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(2, 1)

        def forward(self, batch):
            return self.layer(batch.x) + batch["b"]

    net = Net()
    batch = Bag(x=gr.ones([3, 2]), b=gr.ones([3, 1]))
    assert net(batch).shape == (3, 1)
    assert gr.compile(net)(batch).shape == (3, 1)
    assert net.load_state_dict(Bag(net.state_dict())) is net
