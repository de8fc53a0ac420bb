"""Ops recorded by name: conversion of Python values to attributes, and errors."""

import girih as gr
import numpy as np
import pytest

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        ("neg", {}, lambda x: -x),
        ("relu", {}, gr.relu),
        ("reduce_sum", {}, gr.sum),
        ("reduce_sum", {"dim": [1], "keepdim": True}, lambda x: gr.sum(x, axis=1, keepdims=True)),
        ("reduce_sum", {"dim": (-2, -1)}, gr.sum),
        ("softmax", {"dim": -1}, lambda x: gr.softmax(x, axis=-1)),
        ("reshape", {"shape": [2, 6]}, lambda x: gr.reshape(x, [2, 6])),
        ("permute", {"perm": [1, 0]}, lambda x: x.T),
        ("slice", {"bounds": [slice(0, 2), slice(1, 4, 2)]}, lambda x: x[:2, 1:4:2]),
        ("cast", {"dtype": gr.int32}, lambda x: x.astype(gr.int32)),
        ("cast", {"dtype": "float64"}, lambda x: x.astype(gr.float64)),
        ("pad", {"widths": [(1, 0, 0), (0, 2, 0)], "value": 1.5},
         lambda x: gr.pad(x, [(1, 0), (0, 2)], value=1.5)),
        ("gelu", {"approximate": "tanh"}, lambda x: gr.gelu(x, approximate="tanh")),
    ],
)  # fmt: skip
def test_an_op_by_name_is_the_ordinary_call(op, attributes, expected):
    x = gr.asarray(X)
    found, wanted = gr.apply(op, x, **attributes), expected(x)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_numbers_and_arrays_are_operands():
    x = gr.asarray(X)
    assert gr.apply("add", x, 2).dtype == gr.float32
    np.testing.assert_array_equal(np.asarray(gr.apply("mul", X, x)), X * X)


def test_two_operands_are_promoted_as_by_the_function():
    x = gr.asarray(X)
    names = {"add": "add", "sub": "subtract", "maximum": "maximum", "lt": "less", "pow": "pow"}
    others = [
        gr.asarray([1, 2, 3, 4]),
        gr.asarray([1.0] * 4, dtype="float64"),
        gr.asarray([True] * 4),
    ]
    for op, name in names.items():
        for other in others:
            found, wanted = gr.apply(op, x, other), getattr(gr, name)(x, other)
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
    with pytest.raises(gr.DTypeError, match="dtypes"):
        gr.apply("matmul", x, gr.ones([4, 2], dtype="int64"))


def test_leaves_are_recorded_by_shape_and_dtype():
    assert gr.apply("iota", shape=[3], dtype=gr.int64, dim=0).tolist() == [0, 1, 2]
    assert gr.apply("constant", shape=(2,), dtype="float32", value=0.5).tolist() == [0.5, 0.5]
    assert gr.apply("constant", shape=(2,), dtype=gr.bool, value=True).tolist() == [True, True]
    assert gr.apply("random_normal", shape=[0], dtype=gr.float32).shape == (0,)
    with pytest.raises(gr.InvalidArgumentError, match="input is data from outside"):
        gr.apply("input", shape=[2], dtype=gr.float32)


def test_control_flow_takes_programs():
    x = gr.asarray([1.0, 2.0])
    up, down = gr.make_graph(lambda v: v + 1)(x), gr.make_graph(lambda v: v - 1)(x)
    for choice, expected in ((True, [2.0, 3.0]), (False, [0.0, 1.0])):
        found = gr.apply("cond", gr.asarray(choice), x, regions=[down, up], result=0)
        assert found.tolist() == expected


def test_symbolic_sizes():
    @gr.compile(dynamic_dims={0: {0: "n"}})
    def f(x):
        return gr.apply("reshape", x, shape=[x.shape[0] * 2, 2])

    assert f(gr.ones([3, 4])).shape == (6, 2)
    assert f(gr.ones([5, 4])).shape == (10, 2)


@pytest.mark.parametrize(
    ("op", "attributes", "says"),
    [
        ("reduce_sun", {}, "no op 'reduce_sun'; did you mean reduce_sum"),
        ("reduce_sum", {"axis": 1}, "'axis'; reduce_sum takes dim, keepdim"),
        ("softmax", {}, "softmax lacks attribute 'dim': expected an integer"),
        ("softmax", {"dim": 1.5}, "'dim' of softmax: expected an integer.*got '1.5'"),
        ("softmax", {"dim": 7}, "axis 7 is out of range"),
        ("softmax", {"dim": -3}, "axis -3 is out of range"),
        ("reduce_sum", {"dim": [0], "keepdim": 2}, "'keepdim' of reduce_sum.*true or false"),
        ("cast", {"dtype": "float31"}, "'dtype' of cast: expected a dtype"),
        ("slice", {"bounds": [slice(None)]}, "a slice without stop"),
        ("slice", {"bounds": [slice("a", 2)]}, "start is a, expected a size"),
        ("neg", {"x": object()}, "attribute 'x' is a object; expected a bool"),
        ("cond", {"result": 0}, "cond takes regions"),
        ("add", {}, "takes 2 to 2 operands, got 1"),
    ],
)
def test_unknown_ops_and_wrong_attributes_are_refused(op, attributes, says):
    with pytest.raises(gr.GirihError, match=says):
        gr.apply(op, gr.asarray(X), **attributes)


def test_a_node_has_its_attributes():
    node = gr.make_graph(lambda x: gr.softmax(x, axis=0))(gr.ones([2])).node(1)
    assert gr.apply(node, gr.zeros([4])).tolist() == [0.25] * 4
    with pytest.raises(gr.InvalidArgumentError, match="a node has its attributes, got 'dim'"):
        gr.apply(node, gr.zeros([4]), dim=0)
    with pytest.raises(gr.InvalidArgumentError, match="expected the name of an op or a node"):
        gr.apply(3, gr.zeros([4]))
