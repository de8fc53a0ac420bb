"""Errors name the function or layer that the user called, even if it is composed of others."""

from __future__ import annotations

import girih as gr
import pytest
from girih import nn

x, y = gr.ones([3]), gr.ones([2, 3])


class Outer(nn.Module):
    def __init__(self):
        self.inner = nn.Linear(4, 2)

    def forward(self, x):
        return self.inner(x)


# By name: the call, and the beginning of the message.
CALLS = {
    "made of reductions": (lambda: gr.cosine_similarity(x, x, axis=1), "cosine_similarity: axis 1"),
    "a reduction": (lambda: gr.sum(y, 5), "sum: axis 5"),
    "a method": (lambda: y.sum(5), "sum: axis 5"),
    "a name with an underscore": (lambda: gr.std(y, axis=4), "std: axis 4"),
    "an operator keeps the op's": (lambda: x + gr.ones([2]), "add: shapes [3] and [2]"),
    "an index": (lambda: y[5], "index: index 5"),
    "a layer": (lambda: nn.Linear(4, 2)(y), "Linear: shapes [2, 3] and [4, 2]"),
    "a layer in a layer": (
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2))(y),
        "Linear (Sequential.1): shapes",
    ),
    "a layer in an own one": (lambda: Outer()(y), "Linear (Outer.inner): shapes"),
    "a loss": (lambda: nn.CosineEmbeddingLoss()(x, x, x), "CosineEmbeddingLoss: shapes"),
    "an initialiser": (lambda: nn.init.xavier_normal([-1, 2]), "xavier_normal: dimension 0"),
    "a function in Python": (lambda: nn.nll(y, x), "nll: "),
    "another namespace": (lambda: gr.linalg.norm(y, axis=7), "norm: axis 7"),
    "a variant of an op": (lambda: gr.max_pool2d(gr.ones([2, 2]), 3), "max_pool2d: window 0"),
    "inside a transform": (
        lambda: gr.grad(lambda a: gr.cosine_similarity(a, a, axis=1).sum())(x),
        "cosine_similarity: axis 1",
    ),
    "inside a loop": (
        lambda: gr.scan(lambda c, _: (gr.sum(c, axis=9), c), y, None, 3),
        "sum: axis 9",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_called_function_is_named(name):
    call, begins = CALLS[name]
    with pytest.raises(gr.GirihError) as error:
        call()
    assert str(error.value).startswith(begins)


def test_a_call_inside_another_does_not_rename_it():
    def broken(part):
        with pytest.raises(gr.AxisError, match=r"^mean: axis 5"):
            gr.mean(part, 5)
        return part

    with pytest.raises(gr.AxisError, match=r"^sum: axis 3"):
        gr.scan(lambda c, part: (c, gr.sum(broken(part), 3)), gr.asarray(0.0), y)
