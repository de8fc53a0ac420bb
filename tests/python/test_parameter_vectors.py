"""Parameters as one vector, and back."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from girih import nn


def test_parameters_round_trip_through_a_vector():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2, bias=False))
    vector = nn.parameters_to_vector(model)
    assert vector.shape == (sum(p.size for p in model.parameters()),)
    parts = [p.numpy().ravel() for p in gr.tree.leaves(model.parameters_tree())]
    np.testing.assert_array_equal(vector.numpy(), np.concatenate(parts))
    model.update(nn.vector_to_parameters(vector * 2, model))
    np.testing.assert_array_equal(nn.parameters_to_vector(model).numpy(), 2 * vector.numpy())


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_trees_and_iterables_of_tensors(kind):
    tensors = [gr.ones([2, 0]), gr.asarray(3.0), gr.asarray([1, 2])]
    vector = nn.parameters_to_vector(kind(tensors))
    assert vector.tolist() == [3, 1, 2]
    back = nn.vector_to_parameters(vector, kind(tensors))
    assert [(t.shape, t.dtype) for t in back] == [(t.shape, t.dtype) for t in tensors]
    assert nn.parameters_to_vector(gr.ones([2, 2])).shape == (4,)


def test_gradients_flow_through_the_vector():
    like = {"a": gr.zeros([2]), "b": gr.zeros([1])}

    def loss(v):
        parts = nn.vector_to_parameters(v, like)
        return (parts["a"] * 2).sum() + (parts["b"] ** 2).sum()

    assert gr.grad(loss)(gr.asarray([1.0, 1.0, 3.0])).tolist() == [2, 2, 6]


def test_vectors_of_a_wrong_size_are_refused():
    with pytest.raises(gr.ShapeError, match=r"have 3 elements, got .*\[2\]"):
        nn.vector_to_parameters(gr.ones([2]), [gr.ones([3])])
    with pytest.raises(gr.ShapeError, match=r"have 3 elements, got .*\[3, 1\]"):
        nn.vector_to_parameters(gr.ones([3, 1]), [gr.ones([3])])
    with pytest.raises(gr.InvalidArgumentError, match="no tensor"):
        nn.parameters_to_vector([])
