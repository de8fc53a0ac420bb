"""``gr.eval_shape``: shapes and dtypes of results without computing, and without effects."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

S = gr.ShapeDtypeStruct


def test_results_of_any_structure():
    f = lambda x, y, n: {"a": (x @ y).sum(0), "b": (x, 3, 2.5), "c": [None, "text"], "n": n}
    got = gr.eval_shape(f, gr.ones(2, 3), np.ones((3, 4)), n=np.int32(1))
    assert got == {
        "a": S((4,), gr.float64), "b": (S((2, 3)), S((), gr.int64), S(())), "c": [None, "text"],
        "n": S((), gr.int32),
    }  # fmt: skip


def test_nothing_is_computed_or_allocated():
    big = S((10**6, 10**6), gr.float16)
    before = gr.cache_stats()["misses"]
    assert gr.eval_shape(lambda x: gr.softmax(x @ x.T), big) == big
    assert gr.eval_shape(lambda x: x[::2, None], S((5, 0))) == S((3, 1, 0))
    assert gr.cache_stats()["misses"] == before


def test_objects_do_not_change():
    model = gr.nn.Sequential(gr.nn.Linear(3, 4), gr.nn.BatchNorm1d(4), gr.nn.Dropout(0.5))
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    assert gr.eval_shape(model, S((8, 3))) == S((8, 4))
    kept = []
    x = gr.ones(2)
    gr.eval_shape(lambda x: kept.append(1) or x * 2, x)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert x.tolist() == [1.0, 1.0]


def test_inside_of_transforms_and_around_them():
    assert gr.eval_shape(gr.grad(lambda x: (x**2).sum()), gr.ones(5)) == S((5,))
    assert gr.eval_shape(gr.vmap(lambda v: v.sum()), gr.ones(5, 2)) == S((5,))
    assert gr.eval_shape(gr.compile(lambda v: v[None]), gr.ones(5)) == S((1, 5))
    f = lambda x: x * gr.eval_shape(lambda y: y[None], x).shape[1]
    assert gr.compile(f)(gr.ones(2)).tolist() == [2.0, 2.0]
    assert gr.grad(lambda x: f(x).sum())(gr.ones(2)).tolist() == [2.0, 2.0]


def test_errors_are_those_of_a_call():
    with pytest.raises(gr.ShapeError, match="matmul: shapes"):
        gr.eval_shape(lambda x: x @ x, gr.ones(5, 2))
    with pytest.raises(gr.TracedValueError):
        gr.eval_shape(lambda x: x.numpy(), gr.ones(5))
    with pytest.raises(gr.TracedValueError):
        gr.eval_shape(lambda x: x if x.sum() > 0 else -x, gr.ones(5))
    with pytest.raises(gr.DTypeError, match="eval_shape: expected a function, got a Tensor"):
        gr.eval_shape(gr.ones(2))
