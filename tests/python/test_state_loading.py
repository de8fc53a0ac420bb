"""Loading state dicts: dtypes, devices, gradients' marks, and tensors with several names."""

from __future__ import annotations

import copy
import pickle

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

FLOATS = ["float16", "bfloat16", "float32", "float64"]
OTHERS = ["bool", "int8", "int64", "uint8"]

MODULES = {
    "Linear": lambda: nn.Linear(2, 1),
    "Embedding": lambda: nn.Embedding(4, 2),
    "Conv2d": lambda: nn.Conv2d(2, 3, 2),
    "BatchNorm1d": lambda: nn.BatchNorm1d(3),
    "LayerNorm": lambda: nn.LayerNorm(3),
    "LSTM": lambda: nn.LSTM(2, 3),
    "MultiheadAttention": lambda: nn.MultiheadAttention(4, 2),
    "Sequential": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2)),
    "ParameterList": lambda: nn.ParameterList([gr.ones([2]), gr.zeros([3])]),
    "double precision": lambda: nn.Linear(2, 1, dtype=gr.float64),
    "half precision": lambda: nn.Linear(2, 1, dtype=gr.bfloat16),
}


def kept(model):
    return {name: (t.dtype.name, t.device, t.shape) for name, t in model.state_dict().items()}


@pytest.mark.parametrize("style", ["girih", "torch"])
@pytest.mark.parametrize("dtype", FLOATS + OTHERS)
@pytest.mark.parametrize("kind", MODULES)
def test_a_module_keeps_its_dtypes(kind, dtype, style):
    model = gr.eval(MODULES[kind]())
    before = kept(model)
    state = {
        name: gr.ones(t.shape, dtype=dtype) if "float" in t.dtype.name else t
        for name, t in model.state_dict(style).items()
    }
    assert model.load_state_dict(state) is model
    assert kept(model) == before
    for t in model.state_dict().values():
        if "float" in t.dtype.name:
            assert t.tolist() == np.ones(t.shape).tolist()


def test_values_are_cast_as_numpy_casts_them():
    values = np.random.default_rng(0).standard_normal((1, 2))
    for dtype in ["float16", "float32"]:
        model = nn.Linear(2, 1, bias=False, dtype=dtype)
        model.load_state_dict({"weight": gr.asarray(values)})
        np.testing.assert_array_equal(model.weight.numpy(), values.astype(dtype))
        assert model(gr.ones([3, 2], dtype=dtype)).dtype.name == dtype


@pytest.mark.parametrize("own", ["float32", "int64", "bool"])
@pytest.mark.parametrize("given", ["complex64", "float32", "int32"])
def test_a_cast_that_drops_values_is_refused_and_nothing_is_replaced(own, given):
    class Held(nn.Module):
        def __init__(self):
            self.first = gr.ones([2])
            self.second = gr.zeros([2], dtype=own)

    order = ["bool", "int", "float", "complex"]
    kind = lambda name: next(i for i, k in enumerate(order) if k in name)
    model = Held()
    state = {"first": gr.full([2], 5.0), "second": gr.zeros([2], dtype=given)}
    if kind(given) <= kind(own):
        model.load_state_dict(state)
        assert model.second.dtype.name == own
        return
    with pytest.raises(gr.DTypeError, match=f"second.*{own}.*{given}"):
        model.load_state_dict(state)
    assert model.first.tolist() == [1.0, 1.0]
    assert model.load_state_dict(state, assign=True).second.dtype.name == given


def test_a_module_keeps_its_device_and_its_marks_for_gradients():
    model = nn.Linear(2, 1).to("mock")
    source = nn.Linear(2, 1)
    model.load_state_dict(source.state_dict())
    assert {t.device for t in model.parameters()} == {"mock"}
    np.testing.assert_array_equal(model.weight.numpy(), source.weight.numpy())
    assert model.load_state_dict(source.state_dict(), assign=True).weight.device == "cpu"

    for p in source.parameters():
        p.requires_grad_()
    other = nn.Linear(2, 1)
    other.load_state_dict(source.state_dict())
    assert not any(p.requires_grad for p in other.parameters())
    other.weight.requires_grad_()
    other.load_state_dict(source.state_dict())
    assert (other.weight.requires_grad, other.bias.requires_grad) == (True, False)
    # The gradient belongs to the module, not to the tensor that was loaded.
    other(gr.ones([3, 2])).sum().backward()
    assert other.weight.grad.tolist() == [[3.0, 3.0]]
    assert source.weight.grad is None


@pytest.mark.parametrize("values", [[1], 3, None, "weight", {"weight": 1.0}, {1: gr.ones([1])}])
def test_what_is_no_state_dict_is_refused(values):
    optimizer = optim.Adam(0.1)
    optimizer.init({"w": gr.ones([1])})
    for loads in (nn.Linear(1, 1), optimizer):
        with pytest.raises(gr.GirihError, match="expected"):
            loads.load_state_dict(values)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.SGD(0.1, momentum=0.9),
        lambda: optim.Adam(0.1),
        lambda: optim.NAdam(0.1),
        lambda: optim.Adagrad(0.1),
        lambda: optim.Rprop(0.1),
    ],
)
def test_an_optimiser_keeps_its_dtypes_and_devices(make, dtype):
    model, optimizer = nn.Linear(2, 1).to("mock"), make()
    optimizer.init(model)
    before = {name: (t.dtype, t.device) for name, t in optimizer.state_dict().items()}
    state = {
        name: t.cpu().astype(dtype if "float" in t.dtype.name else "int32")
        for name, t in optimizer.state_dict().items()
    }
    optimizer.load_state_dict(state)
    assert {n: (t.dtype, t.device) for n, t in optimizer.state_dict().items()} == before


# Tensors with several names.


class Tied(nn.Module):
    def __init__(self, tied=True):
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        if tied:
            self.head.weight = self.embedding.weight


class Shared(nn.Module):
    def __init__(self):
        self.first = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.second = self.first


class InLists(nn.Module):
    def __init__(self):
        block = nn.MultiheadAttention(4, 2)
        self.blocks = [block, {"again": block}, nn.Linear(4, 4)]


class Nested(nn.Module):
    def __init__(self):
        self.encoder, self.decoder = Tied(), Tied()
        self.decoder.embedding.weight = self.encoder.embedding.weight
        self.decoder.head.weight = self.encoder.embedding.weight


class Plain(nn.Module):
    """A parameter that is also a plain attribute of another module."""

    def __init__(self):
        self.again = None
        self.inner = nn.Linear(3, 3, bias=False)
        self.again = self.inner.weight


class SharedBuffer(nn.Module):
    def __init__(self):
        zeros = gr.zeros([2])
        self.mean = zeros
        self.var = zeros


KINDS = [Tied, Shared, InLists, Nested, Plain, SharedBuffer]


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_module_loads_into_itself_and_another(kind, whole, ending, tmp_path):
    gr.manual_seed(1)
    model, other = gr.eval(kind()), gr.eval(kind())
    path = tmp_path / f"model{ending}"
    gr.save(path, model.state_dict() if whole else model)
    trees = str(gr.tree.structure(other.parameters_tree()))
    for loads in (other, model):
        loads.load_state_dict(gr.load(path))
        for name, tensor in model.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), loads.state_dict()[name].numpy())
    # Parameters that were tied still are.
    assert str(gr.tree.structure(other.parameters_tree())) == trees
    again = pickle.loads(pickle.dumps(copy.deepcopy(other)))
    again.load_state_dict(gr.load(path))
    assert str(gr.tree.structure(again.parameters_tree())) == trees


def test_each_name_of_a_tied_parameter_suffices_and_all_may_be_given():
    w = gr.asarray(np.arange(15.0, dtype=np.float32).reshape(5, 3))
    for names in [("embedding.weight",), ("head.weight",), ("embedding.weight", "head.weight")]:
        model = Tied()
        model.load_state_dict({name: w + 0 * i for i, name in enumerate(names)})
        assert model.head.weight is model.embedding.weight
        np.testing.assert_array_equal(model.head.weight.numpy(), w.numpy())
    nan = gr.full([5, 3], float("nan"))
    Tied().load_state_dict({"embedding.weight": nan, "head.weight": nan + 0})


def test_tied_differently_than_the_file():
    model, apart = Tied(), gr.eval(Tied(tied=False))
    before = model.embedding.weight
    with pytest.raises(gr.InvalidArgumentError, match=r"embedding.weight and head.weight.*differ"):
        model.load_state_dict(apart.state_dict())
    assert model.embedding.weight is before
    with pytest.raises(gr.InvalidArgumentError, match=r"missing \['head.weight'\]"):
        apart.load_state_dict({"embedding.weight": before})
    apart.load_state_dict(model.state_dict())
    assert apart.head.weight is not apart.embedding.weight


def test_buffers_that_are_one_tensor_may_get_a_value_each():
    model = SharedBuffer().load_state_dict({"mean": gr.full([2], 1.0), "var": gr.full([2], 2.0)})
    assert (model.mean.tolist(), model.var.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_a_module_in_two_places_loads_the_names_of_both():
    model, state = Shared(), {}
    for name, tensor in (
        gr.eval(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))).state_dict().items()
    ):
        state |= {f"first.{name}": tensor, f"second.{name}": tensor}
    model.load_state_dict(state)
    np.testing.assert_array_equal(model.second[0].weight.numpy(), state["second.0.weight"].numpy())
    for name in [n for n in state if n.startswith("first")]:
        del state[name]
    model.load_state_dict(state)
    attention = InLists()
    packed = attention.blocks[0].state_dict("torch")
    named = {f"blocks.1.again.{name}": t for name, t in packed.items()}
    named |= {f"blocks.2.{name}": t for name, t in attention.blocks[2].state_dict().items()}
    attention.load_state_dict(named)
    with pytest.raises(gr.InvalidArgumentError, match=r"unexpected.*third"):
        model.load_state_dict({**state, "third.0.weight": gr.ones([2, 2])})
