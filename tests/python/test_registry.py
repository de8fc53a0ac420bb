"""The op registry: Python callers, categories, NumPy references and gradient tests of the ops."""

from __future__ import annotations

import functools

import girih as gr
import numpy as np
import pytest
import test_elementwise
import test_grad
from girih import _girih

REGISTRY = {op["name"]: op for op in _girih._registry()}
#: The ops of each category, as the seed and the registry have it.
CATEGORIES = {
    "OP_LEAF": """
        input parameter constant random_uniform random_normal random_bits iota
    """,
    "OP_ELEMENTWISE": """
        abs neg sign floor ceil conj trunc exp expm1 exp2 log log1p log2 log10 sqrt rsqrt sin
        cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma
        i0 i1 not isnan isinf isfinite signbit stop_gradient relu sigmoid log_sigmoid silu
        softplus add sub mul div floor_divide remainder fmod pow maximum minimum atan2 hypot
        logaddexp copysign nextafter polygamma igamma igammac igamma_grad_a complex shift_left
        shift_right and or xor eq ne lt le gt ge real imag round cast bitcast where philox
        gamma_draw log_gamma_draw poisson_draw binomial_draw to_device reshard gelu sigmoid_slope
        direction
    """,
    "OP_REDUCTION": """
        reduce_sum reduce_prod reduce_max reduce_min reduce_any reduce_all argmax argmin mean
        var logsumexp
    """,
    "OP_MATMUL": """
        matmul
    """,
    "OP_RESHAPE": """
        reshape
    """,
    "OP_TRANSPOSE": """
        permute flip
    """,
    "OP_BROADCAST": """
        broadcast_to
    """,
    "OP_SLICE": """
        slice split windows
    """,
    "OP_CONCAT": """
        concat pad update_slice
    """,
    "OP_INDEX": """
        take take_along_axis scatter_add scatter_add_along_axis scatter scatter_along_axis
        wrap_index check_label
    """,
    "OP_LIBRARY": """
        sort topk order_statistics searchsorted cumsum cumprod cummax cummin logcumsumexp recurrence cholesky
        solve solve_triangular inv det cofactors cofactor_slopes slogdet lu qr eigh eig svd pinv
        fft rfft irfft custom
    """,
    "OP_CONTROL": """
        cond while_loop scan call
    """,
    "OP_COMPOSITE": """
        all_reduce all_gather softmax log_softmax layer_norm cross_entropy binary_cross_entropy
        fold_windows conv conv_transpose max_pool avg_pool standardize rms_norm attention
    """,
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


@pytest.mark.parametrize(
    ("f", "shapes", "count"),
    [
        (lambda x, y: x + y, [(2, 3), (3,)], 1),
        (lambda x, y: x * y, [(2, 1), (1, 3)], 2),
        (lambda x, y: x - y, [(2, 3), ()], 1),
        (lambda x, y: gr.where(x > 0, x, y), [(2, 3), (2, 1)], 2),
        (lambda x, y: x @ y, [(4, 2, 3), (3, 5)], 1),
        (lambda x, y: x @ y, [(4, 1, 2, 3), (6, 3, 5)], 2),
        (lambda x, y: x @ y, [(2, 3), (3,)], 0),
        (lambda x, y: x + y, [(2, 3), (2, 3)], 0),
        (lambda x, y: x + y, [(0, 3), (1, 3)], 1),
    ],
)
def test_implicit_broadcasts_are_nodes_of_category_broadcast_where_asked_for(f, shapes, count):
    rng = np.random.default_rng(0)
    x, y = (gr.asarray(rng.normal(size=shape)) for shape in shapes)
    program = gr.make_graph(f)(x, y)
    explicit = program.explicit_broadcasts()
    found = [node.category for node in explicit.nodes].count("OP_BROADCAST")
    assert found == count, explicit.text
    assert "OP_BROADCAST" not in [node.category for node in program.nodes]
    for node in explicit.nodes:
        if node.category == "OP_ELEMENTWISE":
            assert all(explicit.node(i).shape == node.shape for i in node.inputs)
    np.testing.assert_array_equal(explicit(x, y).numpy(), f(x, y).numpy())
    assert explicit.explicit_broadcasts().text == explicit.text


def test_categories():
    wanted = {name: category for category, names in CATEGORIES.items() for name in names.split()}
    assert {op["name"]: op["category"] for op in REGISTRY.values()} == wanted


def test_every_elementwise_function_has_a_numpy_reference():
    tables = [
        *(test_elementwise.UNARY, test_elementwise.BINARY, test_elementwise.COMPARISONS),
        *(test_elementwise.BITWISE, test_elementwise.ELSEWHERE),
    ]
    rows = {name for table in tables for name in table}
    elementwise = {
        op["python"]
        for op in REGISTRY.values()
        if op["category"] == "OP_ELEMENTWISE" and op["operands"] <= 2 and op["python"]
    }
    assert elementwise - rows == set()


def test_every_differentiable_function_has_a_row_against_finite_differences():
    named = {name.split(",")[0].split()[0] for name in test_grad.OPS} | test_grad.ELSEWHERE
    differentiable = {op["python"] for op in REGISTRY.values() if op["differentiable"]}
    assert differentiable - named - {None} == set()
