"""Modules compiled in place with ``Module.compile``."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import girih as gr
import numpy as np
import pytest
from girih.errors import InvalidArgumentError


class Net(gr.nn.Module):
    def __init__(self):
        self.first = gr.nn.Linear(3, 4)
        self.norm = gr.nn.BatchNorm1d(4)
        self.drop = gr.nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return self.drop(gr.relu(self.norm(self.first(x)))) * scale


def net():
    gr.manual_seed(0)
    return Net().eval()


def rows(n):
    return gr.asarray(np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)).eval()


def test_calls_run_programs_of_forward():
    model, plain = net(), net()
    names = list(model.state_dict())
    assert model.compile() is model
    for _ in range(3):
        np.testing.assert_allclose(model(rows(4)).numpy(), plain(rows(4)).numpy(), rtol=1e-6)
    assert model.compiled_forward.num_programs == 1
    assert list(model.state_dict()) == names
    assert repr(model) == repr(plain)
    assert model.num_parameters() == plain.num_parameters()
    assert [type(m) for m in model.modules()] == [type(m) for m in plain.modules()]
    assert model.forward(rows(4)).is_lazy


def test_modes_have_programs_of_their_own():
    model = net().compile()
    x = rows(64)
    model.eval()
    np.testing.assert_array_equal(model(x).numpy(), model(x).numpy())
    before = model.norm.running_mean.numpy()
    model.train()
    assert (model(x).numpy() != model(x).numpy()).any()
    assert (model.norm.running_mean.numpy() != before).any()
    model.eval()
    np.testing.assert_array_equal(model(x).numpy(), model(x).numpy())
    assert model.compiled_forward.num_programs == 2


def test_replaced_parameters_are_used_by_the_program():
    model = net().compile()
    assert model(rows(2)).numpy().any()
    model.load_state_dict({k: gr.zeros_like(v) for k, v in model.state_dict().items()})
    assert not model(rows(2)).numpy().any()
    assert model.compiled_forward.num_programs == 1


def test_options_are_those_of_compile_and_name_arguments_of_forward():
    model = net().compile(dynamic_dims={"x": {0: "batch"}}, static_argnames="scale")
    for n in (2, 5, 9):
        np.testing.assert_allclose(
            model(rows(n), 2.0).numpy(), 2 * model(rows(n), scale=1.0).numpy()
        )
    assert model.compiled_forward.num_programs == 2
    with pytest.raises(InvalidArgumentError, match="no argument 'y'"):
        model.compile(dynamic_dims={"y": {0: "batch"}})
    with pytest.raises(TypeError):
        model.compile(dynamic=True)
    assert model.compiled_forward.num_programs == 2
    wrapped = gr.compile(net(), dynamic_dims={"x": {0: "batch"}})
    for n in (2, 5):
        wrapped(rows(n))
    assert wrapped.num_programs == 1


def test_uncompile_restores_lazy_calls():
    model = net().compile()
    model(rows(2))
    assert model.uncompile() is model
    assert model.compiled_forward is None
    assert model(rows(2)).is_lazy
    assert model.uncompile() is model


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_are_compiled_and_have_their_own_programs(copied):
    model = net().compile(dynamic_dims={0: {0: "batch"}})
    model(rows(2))
    other = copied(model)
    assert other.compiled_forward is not model.compiled_forward
    assert other.compiled_forward.num_programs == 0
    np.testing.assert_allclose(other(rows(3)).numpy(), model(rows(3)).numpy())
    other.uncompile()
    assert model.compiled_forward.num_programs == 1
    other.first = gr.nn.Linear(3, 4)
    other.first.weight = gr.zeros([4, 3])
    assert model(rows(3)).numpy().any()


def test_gradients_and_modules_in_modules():
    model, plain = net().train(), net().train()
    model.drop.eval()
    plain.drop.eval()
    model.first.compile()
    model.compile()

    def loss(m, x):
        return (m(x) ** 2).mean()

    for _ in range(2):
        value, grads = gr.nn.value_and_grad(model, loss)(model, rows(8))
        expected, others = gr.nn.value_and_grad(plain, loss)(plain, rows(8))
        np.testing.assert_allclose(value.item(), expected.item(), rtol=1e-6)
        for a, b in zip(gr.tree.leaves(grads), gr.tree.leaves(others), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-7)

    step = gr.compile(lambda x: loss(model, x))
    np.testing.assert_allclose(step(rows(8)).item(), loss(plain, rows(8)).item(), rtol=1e-6)


def test_training_with_an_optimiser():
    model = gr.nn.Linear(3, 1).compile()
    opt = gr.optim.SGD(0.1)
    x, y = rows(16), gr.ones([16, 1])
    losses = []
    for _ in range(5):
        value, grads = gr.nn.value_and_grad(model, lambda m, x: ((m(x) - y) ** 2).mean())(model, x)
        opt.update(model, grads)
        losses.append(value.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_a_compiled_module_is_collected():
    model = net().compile()
    model(rows(2))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_precision_scopes_have_programs_of_their_own():
    model, plain = gr.nn.Linear(3, 2), gr.nn.Linear(3, 2)
    plain.load_state_dict(model.state_dict())
    model.compile()
    for _ in range(2):
        np.testing.assert_array_equal(model(rows(4)).numpy(), plain(rows(4)).numpy())
        with gr.amp.autocast(gr.bfloat16):
            found, expected = model(rows(4)), plain(rows(4))
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert model.compiled_forward.num_programs == 2
