"""A walk over the op registry: nothing that an op needs on the Python side is missing."""

from __future__ import annotations

import functools

import girih as gr
import pytest
import test_elementwise
import test_grad
from girih import _girih

REGISTRY = {op["name"]: op for op in _girih._registry()}
CATEGORIES = {
    "add": "OP_ELEMENTWISE",
    "exp": "OP_ELEMENTWISE",
    "reduce_sum": "OP_REDUCTION",
    "argmax": "OP_REDUCTION",
    "matmul": "OP_MATMUL",
    "reshape": "OP_RESHAPE",
    "permute": "OP_TRANSPOSE",
    "slice": "OP_SLICE",
    "concat": "OP_CONCAT",
    "broadcast_to": "OP_BROADCAST",
    "take": "OP_INDEX",
    "softmax": "OP_COMPOSITE",
    "input": "OP_LEAF",
}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_op_is_called_by_something_or_says_why_not(name):
    op = REGISTRY[name]
    if op["python"] is None:
        assert op["reason"]
        return
    called = functools.reduce(getattr, op["python"].split("."), gr)
    assert callable(called)
    assert called.__doc__


def test_categories():
    assert CATEGORIES.items() <= {op["name"]: op["category"] for op in REGISTRY.values()}.items()


def test_every_elementwise_function_has_a_numpy_reference():
    tables = [
        *(test_elementwise.UNARY, test_elementwise.BINARY, test_elementwise.COMPARISONS),
        *(test_elementwise.BITWISE, test_elementwise.ELSEWHERE),
    ]
    rows = {name for table in tables for name in table}
    elementwise = {
        op["python"]
        for op in REGISTRY.values()
        if op["category"] == "OP_ELEMENTWISE" and op["operands"] <= 2
    }
    assert elementwise - rows == set()


def test_every_differentiable_function_has_a_row_against_finite_differences():
    named = {name.split(",")[0].split()[0] for name in test_grad.OPS} | test_grad.ELSEWHERE
    differentiable = {op["python"] for op in REGISTRY.values() if op["differentiable"]}
    assert differentiable - named - {None} == set()
