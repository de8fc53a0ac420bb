"""What a user of PyTorch expects of modules: assignments, names of what is held, conversions."""

from __future__ import annotations

import copy
import pickle

import girih as gr
import numpy as np
import pytest
from girih import nn

torch = pytest.importorskip("torch")

DTYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool",
    "complex64", "complex128",
]  # fmt: skip


class Net(nn.Module):
    def __init__(self):
        self.scale = nn.Parameter(gr.ones([2]))
        self.offset = nn.Parameter(gr.zeros([2]), requires_grad=False)
        self.register_buffer("mean", gr.zeros([2]))
        self.register_buffer("cache", None, persistent=False)
        self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        self.heads = [nn.Linear(2, 1), {"a": nn.Linear(2, 1)}]

    def forward(self, x):
        return self.body(x * self.scale + self.offset)


# Assignments.


@pytest.mark.parametrize(
    "value",
    [
        np.ones((2, 2), np.float32),
        np.ones((2, 2), np.float64),
        np.ones((2, 2), np.int64),
        np.asfortranarray(np.ones((2, 2), np.float32)),
        [[1.0, 1.0], [1, 1]],
        ((1, 1), (1, 1)),
        torch.ones(2, 2),
        torch.ones(2, 2, dtype=torch.bfloat16),
        gr.ones([2, 2]),
        nn.Parameter(np.ones((2, 2), np.float32)),
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.parametrize("required", [False, True])
def test_whatever_is_assigned_to_a_parameter_becomes_one(value, required):
    # The program of a user whose parameter was gone from state, gradients and files.
    m = nn.Linear(2, 2)
    if required:
        m.requires_grad_()
    m.weight = value
    assert [name for name, _ in m.named_parameters()] == ["weight", "bias"]
    assert m.state_dict()["weight"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert m.weight.dtype == gr.float32
    _, grads = nn.value_and_grad(m, lambda: m(gr.ones([1, 2])).sum())()
    assert grads["weight"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    if required and not isinstance(value, type(nn.Parameter(0.0))):
        m(gr.ones([1, 2])).sum().backward()
        assert m.weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_numbers_scalars_and_setattr():
    class Scale(nn.Module):
        def __init__(self):
            self.factor = nn.Parameter(2.0)

    m = Scale()
    for value in (3, 3.0, True, np.float64(3.0), np.array(3), gr.asarray(3.0)):
        m.factor = value
        assert [name for name, _ in m.named_parameters()] == ["factor"]
    for value in (float("nan"), float("inf")):
        m.factor = value
        np.testing.assert_array_equal(m.factor.numpy(), value)


def test_what_cannot_become_the_parameter_is_refused():
    m = nn.Linear(2, 2)
    for value in ("text", object(), {"a": 1}, print, {1, 2}):
        with pytest.raises(gr.DTypeError, match=r"Linear\.weight is a parameter"):
            m.weight = value
    for value in (1.0, np.ones(3), [[1.0]], []):
        with pytest.raises(gr.ShapeError, match=r"\[2, 2\]"):
            m.weight = value
    with pytest.raises(gr.DTypeError, match="complex"):
        m.weight = np.ones((2, 2), np.complex64)
    assert m.weight.shape == (2, 2)
    with pytest.raises(gr.DTypeError, match="buffer"):
        Net().mean = "text"


def test_none_del_and_modules_remove_a_parameter():
    m = nn.Linear(2, 2)
    m.bias = None
    assert sorted(m.state_dict()) == ["weight"]
    m.bias = np.ones(2, np.float32)
    assert [name for name, _ in m.named_parameters()] == ["weight", "bias"]
    del m.bias
    m.bias = gr.ones([2])
    assert [name for name, _ in m.named_parameters()] == ["weight"]
    assert [name for name, _ in m.named_buffers()] == ["bias"]
    m.weight = nn.Identity()
    assert list(m.parameters()) == []


def test_arrays_do_not_take_buffers_away():
    m = nn.BatchNorm1d(2)
    m.running_mean = np.ones(2)
    assert m.state_dict()["running_mean"].dtype == gr.float32
    m.cache = gr.ones([2])
    m.cache = np.zeros(2)
    assert m.state_dict()["cache"].tolist() == [0.0, 0.0]
    m.cache = [1, 2]  # An attribute that holds a tensor may hold something else later.
    assert "cache" not in m.state_dict()


def test_parameters_in_containers():
    class Holder(nn.Module):
        def __init__(self):
            self.pairs = [[nn.Parameter(gr.ones([1]))], [nn.Parameter(gr.ones([1]))]]
            self.named = {"a": {"b": nn.Parameter(gr.ones([1]))}}
            self.rows = nn.ParameterList([gr.ones([2])])

    m = Holder()
    names = [name for name, _ in m.named_parameters()]
    assert names == ["pairs.0.0", "pairs.1.0", "named.a.b", "rows.0"]
    m.rows[0] = np.zeros(2, np.float32)
    m.rows.append([1.0, 2.0])
    assert [t.tolist() for t in m.rows.parameters()] == [[0.0, 0.0], [1.0, 2.0]]

    class Late(nn.Module):
        def __init__(self):
            self.ws = []
            self.ws.append(nn.Parameter(gr.ones([1])))

    with pytest.raises(gr.InvalidArgumentError, match="ParameterList"):
        Late().parameters()
    with pytest.raises(AttributeError, match="before a module holds it"):
        _ = nn.Parameter(gr.ones([2])).shape


# State of other libraries.


@pytest.mark.parametrize("dtype", DTYPES)
def test_state_of_pytorch_in_every_dtype(dtype):
    class Held(nn.Module):
        def __init__(self):
            self.value = gr.zeros([2, 3], dtype=getattr(gr, "bool_" if dtype == "bool" else dtype))

    values = torch.arange(6).reshape(3, 2).T.to(getattr(torch, dtype))
    assert not values.is_contiguous()
    m = Held().load_state_dict({"value": values})
    wide = gr.complex128 if "complex" in dtype else gr.float64
    expected = values.to(torch.complex128 if "complex" in dtype else torch.float64).numpy()
    np.testing.assert_array_equal(m.value.astype(wide).numpy(), expected)
    values[0, 0] = 1  # The module has a copy.
    if dtype != "bool":
        assert m.value.astype(wide).numpy()[0, 0] == 0
    if dtype != "bfloat16":
        m = Held().load_state_dict({"value": expected.T.astype(values.numpy().dtype).T})
        np.testing.assert_array_equal(m.value.astype(wide).numpy(), expected)


def test_a_model_of_pytorch_with_tied_weights():
    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tok = torch.nn.Embedding(5, 3)
            self.norm = torch.nn.BatchNorm1d(3)
            self.head = torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.tok.weight

        def forward(self, x):
            return self.head(self.norm(self.tok(x)))

    class Ours(nn.Module):
        def __init__(self):
            self.tok = nn.Embedding(5, 3)
            self.norm = nn.BatchNorm1d(3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.tok.weight

        def forward(self, x):
            return self.head(self.norm(self.tok(x)))

    theirs, own = Theirs().eval(), Ours().eval()
    own.load_state_dict(theirs.state_dict())
    assert own.head.weight is own.tok.weight
    ids = np.array([0, 3, 4])
    np.testing.assert_allclose(
        own(gr.asarray(ids)).numpy(), theirs(torch.tensor(ids)).detach().numpy(), rtol=1e-5
    )
    own.load_state_dict(
        dict(theirs.named_parameters()) | dict(theirs.named_buffers()), strict=False
    )
    bad = {name: value.numpy() for name, value in theirs.state_dict().items()}
    bad["head.weight"] = bad["head.weight"] + 1
    with pytest.raises(gr.InvalidArgumentError, match="different values"):
        own.load_state_dict(bad)
    with pytest.raises(gr.InvalidArgumentError, match=r"load the dict's \['model'\]"):
        own.load_state_dict({"model": theirs.state_dict()})
    with pytest.raises(gr.InvalidArgumentError, match="expected tensors by name"):
        own.load_state_dict({"tok.weight": "x"})


# Names of what a module holds.


def test_names_are_pytorchs():
    m = Net()
    assert [name for name, _ in m.named_children()] == ["body", "heads.0", "heads.1.a"]
    assert m.children() == [m.body, m.heads[0], m.heads[1]["a"]]
    names = [name for name, _ in m.named_modules()]
    assert names == ["", "body", "body.0", "body.1", "body.2", "heads.0", "heads.1.a"]
    assert [name for name, _ in m.named_modules("x")][:2] == ["x", "x.body"]
    own = [name for name, _ in m.named_parameters(recurse=False)]
    assert own == ["scale", "offset"]
    assert next(iter(m.named_parameters("net")))[0] == "net.scale"
    assert [name for name, _ in m.named_buffers()] == ["mean"]
    assert m.buffers() == [m.mean]
    assert next(m.parameters()) is m.scale
    first = m.parameters()
    assert [next(first), next(first)] == [m.scale, m.offset]
    assert gr.tree.leaves(m.parameters())[0] is m.scale
    assert gr.tree.structure(m.parameters()) == gr.tree.structure(list(m.parameters()))
    assert m.get_parameter("body.0.weight") is m.body[0].weight
    assert m.get_submodule("heads.1.a") is m.heads[1]["a"]
    assert m.get_submodule("") is m
    assert m.get_buffer("mean") is m.mean
    for call, name in (
        (m.get_parameter, "mean"), (m.get_parameter, "body.9.weight"), (m.get_buffer, "scale"),
        (m.get_submodule, "scale"), (m.get_submodule, "heads.x"), (m.get_parameter, ""),
    ):  # fmt: skip
        with pytest.raises(gr.MissingNameError, match="there is no"):
            call(name)


def test_registered_names():
    m = Net()
    assert "cache" not in m.state_dict()
    m.cache = np.ones(2, np.float32)
    assert m.cache.tolist() == [1.0, 1.0]
    assert "cache" not in m.state_dict()
    m.load_state_dict(m.state_dict())
    with pytest.raises(gr.InvalidArgumentError, match="unexpected"):
        m.load_state_dict({**m.state_dict(), "cache": gr.ones([2])})
    m.register_parameter("extra", None)
    assert m.extra is None
    m.extra = gr.ones([1])
    assert "extra" in [name for name, _ in m.named_parameters()]
    m.add_module("tail", nn.Linear(2, 2))
    m.register_module("none", None)
    for name in ("scale", "a.b", "", "forward", 3):
        with pytest.raises(gr.InvalidArgumentError):
            m.register_buffer(name, gr.ones([1]))
    with pytest.raises(gr.InvalidArgumentError, match="expected a module"):
        m.add_module("other", gr.tanh)
    again = pickle.loads(pickle.dumps(m))
    assert sorted(again.state_dict()) == sorted(m.state_dict())
    assert copy.deepcopy(m).state_dict().keys() == m.state_dict().keys()


def test_apply_and_update_modules():
    m, order = Net(), []
    assert m.apply(lambda module: order.append(type(module).__name__)) is m
    assert order[-1] == "Net"
    assert order.index("Linear") < order.index("Sequential")
    relu = m.body[1]
    m.update_modules({"body.1": nn.Tanh(), "heads.0": nn.Identity(), "heads.1.a": nn.ReLU()})
    assert m.body[1] is not relu
    assert isinstance(m.heads[0], nn.Identity)
    assert isinstance(m.heads[1]["a"], nn.ReLU)
    for bad in ({"body.7": nn.Tanh()}, {"body.1": nn.Tanh(), "x": nn.Tanh()}):
        with pytest.raises(gr.MissingNameError):
            m.update_modules(bad)


def test_repr_shows_own_parameters_and_what_is_frozen():
    m = Net()
    m.body[0].freeze()
    m.body[2].freeze("bias")
    assert (
        repr(m)
        == """Net(
  scale: float32[2]
  offset: float32[2], frozen
  body: Sequential(
    0: Linear(in_features=2, out_features=3, bias=True, frozen)
    1: ReLU()
    2: Linear(in_features=3, out_features=2, bias=True, frozen: bias)
  )
  heads[0]: Linear(in_features=2, out_features=1, bias=True)
  heads[1]: {'a': Linear(in_features=2, out_features=1, bias=True)}
)"""
    )
    assert m.named_parameters(trained=True)[0][0] == "scale"
    assert len(m.trainable_parameters()) == len(m.parameters()) - 4


def test_modes_gradients_and_dtypes():
    m = Net().requires_grad_()
    assert m.offset.requires_grad
    m(gr.ones([1, 2])).sum().backward()
    assert m.scale.grad is not None
    m.zero_grad(set_to_none=False)
    assert m.scale.grad.tolist() == [0.0, 0.0]
    m.zero_grad()
    assert m.scale.grad is None
    m.eval()
    assert not any(module.training for module in m.modules())
    for call, dtype in (
        (m.half, gr.float16), (m.double, gr.float64), (m.bfloat16, gr.bfloat16), (m.float, gr.float32)
    ):  # fmt: skip
        handle = m.scale
        assert call() is m
        assert m.scale is handle
        assert handle.dtype == m.mean.dtype == dtype
        assert handle.requires_grad
    assert m.to("cpu") is m
    assert m.to("cpu", gr.float64).scale.dtype == gr.float64
    assert m.to(dtype=gr.float32).scale.dtype == gr.float32
    assert m.to(device="cpu").scale.dtype == gr.float32
    assert m.cpu() is m
    with pytest.raises(gr.GirihError):
        m.to("nowhere")


def test_the_state_is_a_snapshot():
    m = nn.Linear(1, 1)
    optimizer = gr.optim.SGD(m.parameters(), lr=1.0)
    best = m.state_dict()
    before = best["weight"].item()
    m(gr.ones([1, 1])).sum().backward()
    optimizer.step()
    assert best["weight"].item() == before
    assert not best["weight"].requires_grad
    m.load_state_dict(best)
    assert m.weight.item() == before
    assert m.weight.requires_grad
    assert not m.weight.is_lazy
    values = {"weight": gr.eval(gr.ones([1, 1])), "bias": gr.ones([1])}
    for load in (m.load_state_dict, m.update, lambda v: m.weight.copy_(v["weight"])):
        with gr.no_grad():
            load(values)
        assert not any(value.requires_grad for value in values.values())
        assert m.weight.requires_grad


def test_an_assignment_of_a_whole_tensor_does_not_join_gradients():
    a, b = gr.ones([2]).requires_grad_(), gr.ones([2])
    with gr.no_grad():
        a[...] = b
    assert not b.requires_grad
    (a * 2).sum().backward()
    assert b.grad is None


def test_every_public_name_of_pytorchs_modules_and_optimisers_is_here_or_has_a_hint():
    own = {torch.nn.Module: nn.Linear(1, 1), torch.optim.Optimizer: gr.optim.SGD(0.1)}
    for cls, thing in own.items():
        names = {name for name in vars(cls) if not name.startswith("_")}
        names |= {n for n in vars(cls).get("__annotations__", {}) if not n.startswith("_")}
        for name in sorted(names):
            if not hasattr(thing, name):
                with pytest.raises(AttributeError, match=f"{name}.*; here that is "):
                    getattr(thing, name)


def test_hooks_see_and_replace_arguments_and_results():
    m, seen = nn.Linear(2, 2), []
    with m.register_forward_hook(lambda module, args, out: seen.append(module is m)):
        m(gr.ones([1, 2]))
    m(gr.ones([1, 2]))
    assert seen == [True]
    first = m.register_forward_pre_hook(lambda module, args: (args[0] * 0,))
    second = m.register_forward_hook(lambda module, args, kwargs, out: out + 1, with_kwargs=True)
    third = m.register_forward_hook(lambda module, args, out: 0 * out, prepend=True)
    assert m(gr.ones([1, 2])).tolist() == [[1.0, 1.0]]
    third.remove()
    third.remove()
    np.testing.assert_allclose(m(gr.ones([1, 2]))[0], m.bias + 1)
    outer = nn.Sequential(m)
    np.testing.assert_allclose(gr.compile(outer)(gr.ones([1, 2]))[0], m.bias + 1)
    first.remove()
    second.remove()
    np.testing.assert_allclose(outer(gr.ones([1, 2]))[0], m.weight.sum(1) + m.bias, rtol=1e-6)
    kw = m.register_forward_pre_hook(lambda module, args, kwargs: ((gr.zeros([1, 2]),), {}), with_kwargs=True)  # fmt: skip
    np.testing.assert_allclose(m(x=gr.ones([1, 2]))[0], m.bias)
    kw.remove()
    with pytest.raises(gr.DTypeError, match="a hook is a function"):
        m.register_forward_hook(3)


def test_features_of_a_layer_inside():
    model, found = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), {}
    model.get_submodule("1").register_forward_hook(lambda m, args, out: found.update(relu=out))
    model(gr.ones([4, 2]))
    assert found["relu"].shape == (4, 3)
    model.set_submodule("1", nn.Tanh())
    assert isinstance(model[1], nn.Tanh)


def test_compiled_functions_see_hooks():
    model, x = nn.Sequential(nn.Linear(2, 2)), gr.ones([1, 2])
    compiled = gr.compile(model)
    plain = compiled(x).tolist()
    handle = model[0].register_forward_hook(lambda module, args, out: out * 0 + 7)
    assert compiled(x).tolist() == [[7.0, 7.0]]
    handle.remove()
    assert compiled(x).tolist() == plain


def test_a_property_that_fails_has_its_own_error():
    class Wrong(nn.Module):
        @property
        def size(self):
            return self.sizes[0]

    with pytest.raises(AttributeError, match="no attribute 'sizes'"):
        _ = Wrong().size
    assert not hasattr(Wrong(), "anything")


def test_a_layer_with_a_constructor_of_its_own_shows_the_options_of_its_base():
    class Padded(gr.nn.Conv2d):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, padding=1, **kwargs)

    class Named(gr.nn.Linear):
        def __init__(self, name, **kwargs):
            super().__init__(3, 4, **kwargs)
            self.name = name

    assert "kernel_size=(3, 3), stride=2, padding=1" in repr(Padded(4, 8, 3, stride=2))

    class Wide(gr.nn.Linear):
        def __init__(self):
            super().__init__(3, 40)

    assert "Wide(\n  in_features=3, out_features=40, bias=True\n" in repr(Wide())
    assert "name='head', in_features=3, out_features=4, bias=True" in repr(Named("head"))
    assert repr(gr.nn.Upsample(scale_factor=2)) == (
        "Upsample(scale_factor=2.0, mode='nearest', align_corners=False)"
    )
    assert repr(gr.nn.Upsample((3, 4), mode="bilinear")) == (
        "Upsample(size=(3, 4), mode='bilinear', align_corners=False)"
    )


def test_the_gradient_by_a_module_is_that_by_its_parameters():
    model, x = gr.nn.Linear(2, 1), gr.asarray([[1.0, 2.0], [3.0, 4.0]])
    loss = lambda model, x: (model(x) ** 2).sum()
    value, grads = gr.value_and_grad(loss)(model, x)
    same, want = gr.nn.value_and_grad(model, lambda x: loss(model, x))(x)
    assert value.item() == same.item()
    assert {k: g.tolist() for k, g in grads.items()} == {k: g.tolist() for k, g in want.items()}
    by_both = gr.grad(loss, argnums=(0, 1))(model, x)
    assert by_both[0]["bias"].tolist() == want["bias"].tolist()
    assert by_both[1].shape == x.shape
    by_name = gr.grad(lambda *, model: loss(model, x), argnames="model")(model=model)
    assert by_name[1]["model"]["bias"].tolist() == want["bias"].tolist()
    compiled = gr.compile(gr.grad(loss))(model, x)
    np.testing.assert_allclose(compiled["weight"].numpy(), want["weight"].numpy(), rtol=1e-6)
    before = model.weight
    with pytest.raises(ZeroDivisionError):
        gr.grad(lambda model: 1 / 0)(model)
    assert model.weight is before
    model.freeze("weight")
    assert list(gr.grad(loss)(model, x)) == ["bias"]


def test_parameters_of_modules_are_instances_of_parameter():
    class Scaled(nn.Module):
        def __init__(self):
            self.factor = nn.Parameter(gr.ones([2]))
            self.register_buffer("mean", gr.zeros([2]))
            self.plain = gr.ones([2])

    module = Scaled()
    assert isinstance(module.factor, nn.Parameter)
    layer = nn.Linear(2, 2)
    assert all(isinstance(p, nn.Parameter) for p in layer.parameters())
    for other in (module.mean, module.plain, gr.ones([2]), 1.0, np.ones(2), None):
        assert not isinstance(other, nn.Parameter)
    # A tensor that Parameter() returns is a parameter before a module holds it; the result of an op
    # on a parameter is none.
    assert isinstance(nn.Parameter(gr.ones([2])), nn.Parameter)
    assert not isinstance(module.factor * 2, nn.Parameter)
    module.factor = gr.zeros([2])
    assert isinstance(module.factor, nn.Parameter)
