"""Pickles and copies: values, dtypes, devices, and whether a tensor requires a gradient."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import girih as gr
import numpy as np
import pytest
from girih import nn, optim

DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
]
SHAPES = [(), (0,), (3,), (2, 0, 3), (2, 3)]


def pickled(x, protocol=None):
    return pickle.loads(pickle.dumps(x, protocol=protocol))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "mock"])
def test_a_pickled_tensor_is_the_same(dtype, device):
    for shape in SHAPES:
        for x in (gr.ones(shape, dtype=dtype), gr.zeros(shape, dtype=dtype)):
            x = x.to(device)
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
                y = pickled(x, protocol)
                assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
                assert bytes(y) == bytes(x)
                assert not y.requires_grad


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
@pytest.mark.parametrize("device", ["cpu", "mock"])
def test_copies_keep_the_mark_for_gradients_and_have_gradients_of_their_own(copied, device):
    x = gr.asarray([1.0, 2.0]).to(device).requires_grad_()
    y = copied(x)
    assert (y.requires_grad, y.is_leaf, y.device) == (True, True, device)
    (y * y).sum().backward()
    assert y.grad.tolist() == [2.0, 4.0]
    assert x.grad is None
    y.requires_grad_(False)
    assert x.requires_grad
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    if copied is copy.deepcopy:
        z = copied(x)
        assert z.grad.tolist() == [3.0, 3.0]
        z.grad = None
        assert x.grad is not None
    assert not copied(gr.ones([2])).requires_grad
    assert copy.copy(x).requires_grad


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
def test_copies_of_modules_and_optimisers(copied):
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to("mock")
    model[0].weight.requires_grad_()
    model[0].freeze("bias")
    again = copied(model)
    facts = lambda m: {n: (t.device, t.dtype, t.requires_grad) for n, t in m.state_dict().items()}
    assert facts(again) == facts(model)
    assert [n for n, _ in again.named_parameters(trained=True)] == [
        n for n, _ in model.named_parameters(trained=True)
    ]
    for name, t in model.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name].numpy(), t.numpy())
    optimizer = optim.Adam(0.1, weight_decay=0.01)
    optimizer.init(model)
    step = nn.value_and_grad(model, lambda: model[0](gr.ones([1, 2]).to("mock")).sum())
    optimizer.update(model, step()[1])
    other = copied(optimizer)
    for name, t in optimizer.state_dict().items():
        np.testing.assert_array_equal(other.state_dict()[name].numpy(), t.numpy())
        assert other.state_dict()[name].device == t.device
    assert (other.lr, other.weight_decay) == (optimizer.lr, optimizer.weight_decay)


def test_a_device_that_the_process_does_not_have_is_named(tmp_path):
    path = tmp_path / "x.pickle"
    program = (
        "import pickle, sys, girih as gr\n"
        "x = gr.ones([2]).to('cpu:1').requires_grad_()\n"
        "pickle.dump(x, open(sys.argv[1], 'wb'))\n"
    )
    env = os.environ | {"GIRIH_HOST_DEVICES": "2"}
    subprocess.run([sys.executable, "-c", program, path], env=env, check=True)
    with pytest.raises(gr.DeviceError, match="cpu:1"):
        pickle.loads(path.read_bytes())


def test_bytes_are_those_of_the_elements():
    for a in [np.array(7), np.arange(6.0).reshape(2, 3), np.zeros((0, 2), np.int8), np.array(True)]:
        assert bytes(gr.asarray(a)) == a.tobytes()
        assert bytes(gr.asarray(a).T) == a.T.tobytes()
        assert bytes(gr.asarray(a).to("mock")) == a.tobytes()
        assert gr.asarray(a).data.tobytes() == a.tobytes()
