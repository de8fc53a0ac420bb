"""Derivatives to second order at points where a rule has a special case: ties, zeros, kinks,
saturation, infinities and NaN. Expected values are closed forms; where no derivative exists, the
values that PyTorch documents.
"""

from __future__ import annotations

import itertools
from math import inf, log, nan

import girih as gr
import numpy as np
import pytest
from conftest import close

SELU = 1.673_263_242_354_377_2 * 1.050_700_987_355_480_5


def of(values):
    return gr.asarray(np.array(values, "f8"))


def against(loss, target, **options):
    """The loss of each element against one target."""
    return lambda x: loss(
        x, gr.full(x.shape, target, dtype=gr.float64), reduction="none", **options
    )


def prelu(x):
    return gr.prelu(x, of([0.25]))


# Functions of one number: points, with first and second derivatives (None: not tested).
POINTWISE = {
    "asin": (gr.asin, [1, -1, 0, 0.5], [inf, inf, 1, 0.75**-0.5], [inf, -inf, 0, 0.5 * 0.75**-1.5]),
    "acos": (gr.acos, [1, -1, 0], [-inf, -inf, -1], [-inf, inf, 0]),
    "acosh": (gr.acosh, [1, 2], [inf, 3**-0.5], [-inf, -2 * 3**-1.5]),
    "atanh": (gr.atanh, [1, -1, 0.5], [inf, inf, 4 / 3], [inf, -inf, 16 / 9]),
    "copysign": (lambda x: gr.copysign(x, -1.0), [0, -0.0, 2, -2], [0, 0, -1, 1], [0, 0, 0, 0]),
    "copysign, +": (lambda x: gr.copysign(x, 1.0), [0, -0.0, 2, inf], [0, 0, 1, 1], [0, 0, 0, 0]),
    "relu": (gr.relu, [0, nan, inf, -inf], [0, 1, 1, 0], [0, 0, 0, 0]),
    "relu6": (gr.relu6, [0, 6, 3, nan, inf], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]),
    "hardtanh": (gr.hardtanh, [-1, 1, 0, nan, -inf], [0, 0, 1, 1, 0], [0, 0, 0, 0, 0]),
    "elu": (gr.elu, [0, nan, inf, -inf], [1, nan, 1, 0], None),
    "elu, alpha": (lambda x: gr.elu(x, 2.0), [0, -800, 800], [2, 0, 1], None),
    "celu": (gr.celu, [0, nan, 800, -800], [1, nan, 1, 0], None),
    "celu, alpha": (lambda x: gr.celu(x, 2.0), [0, -inf], [1, 0], None),
    "selu": (gr.selu, [0, nan, 1], [SELU, nan, 1.050_700_987_355_480_5], None),
    "leaky_relu": (lambda x: gr.leaky_relu(x, 0.1), [0, inf, -inf, nan], [0.1, 1, 0.1, 0.1], None),
    "prelu": (prelu, [0, inf, -inf, nan], [0.25, 1, 0.25, 0.25], [0, 0, 0, 0]),
    "hardsigmoid": (gr.hardsigmoid, [-3, 3, 0, inf], [0, 0, 1 / 6, 0], [0, 0, 0, 0]),
    "hardswish": (gr.hardswish, [-3, 3, 0, inf], [0, 1, 0.5, 1], [0, 0, 1 / 3, 0]),
    "hardshrink": (gr.hardshrink, [-0.5, 0.5, 0, nan], [0, 0, 0, 1], [0, 0, 0, 0]),
    "softshrink": (gr.softshrink, [-0.5, 0.5, 0, nan, -2], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]),
    "threshold": (lambda x: gr.threshold(x, 0.5, 20.0), [0.5, 1, nan], [0, 1, 1], [0, 0, 0]),
    "softplus": (gr.softplus, [0, 800, -800, inf], [0.5, 1, 0, 1], [0.25, 0, 0, 0]),
    "log_sigmoid": (gr.log_sigmoid, [0, 800, -800], [0.5, 0, 1], [-0.25, 0, 0]),
    "sigmoid": (gr.sigmoid, [0, 800, -800, nan], [0.25, 0, 0, nan], [0, 0, 0, nan]),
    "silu": (gr.silu, [0, 800, -800], [0.5, 1, 0], [0.5, 0, 0]),
    "softsign": (gr.softsign, [0], [1], None),
    "abs": (gr.abs, [0, inf, -inf, nan], [0, 1, -1, nan], None),
    "square": (gr.square, [0, 1e200], [0, 2e200], [2, 2]),
    "sqrt": (gr.sqrt, [0, 4], [inf, 0.25], [-inf, -1 / 32]),
    "power, square": (lambda x: x**2, [0], [0], [2]),
    "power, one": (lambda x: x**1, [0], [1], [0]),
    "power, zero": (lambda x: x**0, [0, 2], [0, 0], [0, 0]),
    "power, inverse": (lambda x: x**-1, [0, 2], [-inf, -0.25], [inf, 0.25]),
    "clip": (lambda x: x.clip(-1, 1), [0, 3, nan], [1, 0, 1], None),
    "maximum, both the same": (lambda x: gr.maximum(x, x), [3, 0], [1, 1], None),
    "huber_loss": (against(gr.huber_loss, 0), [0, 1, -1, inf], [0, 1, -1, 1], [1, 0, 0, 0]),
    "smooth_l1_loss": (against(gr.smooth_l1_loss, 0), [0, 1, -1, inf], [0, 1, -1, 1], [1, 0, 0, 0]),
    "smooth_l1_loss, beta": (against(gr.smooth_l1_loss, 0, beta=0.5), [0, 0.25], [0, 0.5], [2, 2]),
    "mse_loss": (against(gr.mse_loss, 0), [0], [0], [2]),
    "l1_loss": (against(gr.l1_loss, 0), [0], [0], None),
    "binary_cross_entropy, 1": (against(gr.binary_cross_entropy, 1), [0.5, 1, 0], [-2, 0, -1e12], None),
    "binary_cross_entropy, 0": (against(gr.binary_cross_entropy, 0), [0.5, 0, 1], [2, 0, 1e12], None),
    "binary_cross_entropy of sigmoid": (
        lambda x: against(gr.binary_cross_entropy, 1)(x.sigmoid()),
        [800, -800], [0, 0], [0, 0]),
    "with_logits, 0": (
        against(gr.binary_cross_entropy_with_logits, 0),
        [0, inf, 800, -800], [0.5, 1, 1, 0], [0.25, 0, 0, 0]),
    "with_logits, 1": (
        against(gr.binary_cross_entropy_with_logits, 1),
        [0, 800, -800, -inf], [-0.5, 0, -1, -1], [0.25, 0, 0, 0]),
    "soft_margin_loss": (against(gr.soft_margin_loss, -1), [0, 800, -800], [0.5, 1, 0], [0.25, 0, 0]),
    "hinge_embedding_loss": (against(gr.hinge_embedding_loss, -1), [1, 0, 2], [0, -1, 0], None),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTWISE)
def test_derivatives_of_functions_of_one_number(name):
    f, points, first, second = POINTWISE[name]
    once = gr.grad(lambda x: f(x).sum())
    np.testing.assert_allclose(once(of(points)).numpy(), first, 1e-12, 1e-300)
    if second is not None:
        twice = gr.grad(lambda x: once(x).sum())(of(points))
        np.testing.assert_allclose(twice.numpy(), second, 1e-12, 1e-300)


# Functions of two numbers at a point: first derivatives, and second derivatives by rows (None: not
# tested).
PAIRS = {
    "maximum, tie": (gr.maximum, (0, 0), (0.5, 0.5), None),
    "minimum, tie": (gr.minimum, (2, 2), (0.5, 0.5), None),
    "maximum, NaN": (gr.maximum, (nan, 1), (1, 1), None),
    "minimum, NaN": (gr.minimum, (1, nan), (1, 1), None),
    "logaddexp, tie": (gr.logaddexp, (0, 0), (0.5, 0.5), ((0.25, -0.25), (-0.25, 0.25))),
    "logaddexp, large": (gr.logaddexp, (800, 800), (0.5, 0.5), ((0.25, -0.25), (-0.25, 0.25))),
    "logaddexp, infinite": (gr.logaddexp, (inf, inf), (0.5, 0.5), None),
    "logaddexp, nothing": (gr.logaddexp, (-inf, -inf), (0.5, 0.5), None),
    "logaddexp, one": (gr.logaddexp, (-inf, 0), (0, 1), ((0, 0), (0, 0))),
    "logaddexp, NaN": (gr.logaddexp, (nan, 0), (nan, nan), None),
    "hypot, zero": (gr.hypot, (0, 0), (0, 0), None),
    "hypot": (gr.hypot, (3, 4), (0.6, 0.8), ((0.128, -0.096), (-0.096, 0.072))),
    "atan2, zero": (gr.atan2, (0, 0), (0, 0), None),
    "atan2, axis": (gr.atan2, (0, 1), (1, 0), ((0, -1), (-1, 0))),
    "power, 0**2": (gr.power, (0, 2), (0, 0), ((2, 0), (0, 0))),
    "power, 0**1": (gr.power, (0, 1), (1, 0), None),
    "power, 0**0": (gr.power, (0, 0), (0, 0), None),
    "power, 2**0": (gr.power, (2, 0), (0, log(2)), ((0, 0.5), (0.5, log(2) ** 2))),
    "power, 0**-1": (gr.power, (0, -1), (-inf, -inf), None),
    "multiply, zero": (gr.multiply, (0, 0), (0, 0), ((0, 1), (1, 0))),
    "divide, zero": (gr.divide, (0, 2), (0.5, 0), ((0, -0.25), (-0.25, 0))),
    "prelu's weight at inf": (gr.prelu, (inf, 0.25), (1, 0), ((0, 0), (0, 0))),
    "prelu's weight at -inf": (gr.prelu, (-inf, 0.25), (0.25, -inf), ((0, 1), (1, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_derivatives_of_functions_of_two_numbers(name):
    f, point, first, second = PAIRS[name]
    args = [of([v]) for v in point]
    once = gr.grad(lambda a, b: f(a, b).sum(), argnums=(0, 1))
    np.testing.assert_allclose([g.item() for g in once(*args)], first, 1e-12)
    for i in range(2 if second is not None else 0):
        row = gr.grad(lambda a, b, i=i: once(a, b)[i].sum(), argnums=(0, 1))(*args)
        np.testing.assert_allclose([g.item() for g in row], second[i], 1e-12, 1e-15)


def hessian(f, x):
    """The gradient of a scalar function of a tensor, and its second derivatives by rows."""
    once = gr.grad(f)
    size = x.size
    rows = [gr.grad(lambda x, i=i: once(x).reshape(-1)[i])(x).numpy().ravel() for i in range(size)]
    return once(x).numpy().ravel(), np.array(rows)


def polynomial(terms, x):
    """Gradient and second derivatives of a weighted sum of products of distinct elements: the
    products without one element, and without two.
    """

    def without(out):
        return sum(
            w * np.prod([x[k] for k in t if k not in out]) for w, t in terms if set(out) <= set(t)
        )

    n = range(len(x))
    second = [[without((i, j)) if i != j else 0.0 for j in n] for i in n]
    return [without((i,)) for i in n], second


ZEROS = [[0, 0], [0, 0, 0], [0, 2, 3], [2, 0, 3], [2, 3, 0], [2, 0, 3, 0], [0, 2, 0, 3], [2, -1, 3]]


@pytest.mark.parametrize("values", ZEROS)
def test_products_of_zeros(values):
    n = len(values)
    weights = np.arange(1.0, n + 1)
    running = [(w, tuple(range(j + 1))) for j, w in enumerate(weights)]
    cases = {
        "cumprod": (lambda x: (x.cumprod(0) * of(weights)).sum(), running),
        "prod": (lambda x: x.prod(), [(1.0, tuple(range(n)))]),
    }
    for name, (f, terms) in cases.items():
        first, second = hessian(f, of(values))
        want = polynomial(terms, np.array(values, "f8"))
        np.testing.assert_allclose(first, want[0], 1e-12, err_msg=name)
        np.testing.assert_allclose(second, want[1], 1e-12, err_msg=name)


def test_third_derivative_of_a_running_product_of_zeros():
    third = gr.grad(gr.grad(gr.grad(lambda z: gr.stack([z, z, z]).cumprod(0)[2])))
    assert third(of(0)).item() == 6


def minor(a, rows, columns):
    """The determinant without some rows and columns, with its sign, by expansion."""
    keep = (
        [i for i in range(len(a)) if i not in rows],
        [j for j in range(len(a)) if j not in columns],
    )
    rest = a[np.ix_(*keep)]
    if not len(rest):
        return 1.0
    if len(rest) == 1:
        return rest[0, 0]
    return sum((-1) ** j * rest[0, j] * minor(rest, [0], [j]) for j in range(len(rest)))


def determinant(a):
    """Gradient and second derivatives of the determinant by minors."""
    n = len(a)
    places = list(itertools.product(range(n), range(n)))
    first = [(-1) ** (i + j) * minor(a, [i], [j]) for i, j in places]

    def second(i, j, k, m):
        if i == k or j == m:
            return 0.0
        sign = (-1) ** (i + j + k + m) * (-1) ** ((i < k) != (j < m))
        return sign * minor(a, [i, k], [j, m])

    return first, [[second(*p, *q) for q in places] for p in places]


MATRICES = {
    "rank 1 of 2": [[1, 2], [2, 4]],
    "zero": [[0, 0], [0, 0]],
    "rank 2 of 3": [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
    "rank 1 of 3": [[1, 2, 3], [2, 4, 6], [-1, -2, -3]],
    "zero of 3": [[0, 0, 0]] * 3,
    "a zero row": [[0, 0, 0], [1, 2, 3], [4, 5, 7]],
    "nearly singular": [[1, 1], [1, 1 + 2**-40]],
    "regular": [[2, 1, 0], [0.5, -1, 3], [1, 1, 1]],
    "rank 2 of 4": [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1], [1, -1, 1, -1]],
}


@pytest.mark.parametrize("name", MATRICES)
def test_determinants_of_singular_matrices(name):
    a = np.array(MATRICES[name], "f8")
    first, second = hessian(gr.linalg.det, of(a))
    want = determinant(a)
    np.testing.assert_allclose(first, want[0], 1e-9, 1e-9)
    np.testing.assert_allclose(second, want[1], 1e-9, 1e-9)


def test_the_third_derivative_of_a_determinant():
    a = of([[2, 1, 0], [0.5, -1, 3], [1, 1, 1]])
    third = gr.grad(gr.grad(gr.grad(lambda t: gr.linalg.det(a * t))))
    np.testing.assert_allclose(third(of(2)).item(), 6 * np.linalg.det(a.numpy()), 1e-10)


# Functions from a vector to a number: the vector, and the gradient.
ROWS = {
    "norm": (gr.linalg.vector_norm, [0, 0], [0, 0]),
    "norm 3": (lambda x: gr.linalg.vector_norm(x, ord=3), [0, 0], [0, 0]),
    "norm 1.5": (lambda x: gr.linalg.vector_norm(x, ord=1.5), [0, 0], [0, 0]),
    "norm 0": (lambda x: gr.linalg.vector_norm(x, ord=0), [0, 2], [0, 0]),
    "norm inf, tie": (lambda x: gr.linalg.vector_norm(x, ord=inf), [1, -1], [0.5, -0.5]),
    "norm, infinite": (gr.linalg.vector_norm, [inf, 1], [nan, 0]),
    "norm, large": (gr.linalg.vector_norm, [3e300, -4e300], [0.6, -0.8]),
    "norm, small": (gr.linalg.vector_norm, [3e-300, 4e-300], [0.6, 0.8]),
    "Frobenius": (lambda x: gr.linalg.matrix_norm(x.reshape(2, 2)), [0, 0, 0, 0], [0, 0, 0, 0]),
    "std": (lambda x: x.std(), [1, 1, 1], [0, 0, 0]),
    "std of one": (lambda x: x.std(), [1], [0]),
    "lp_pool1d": (lambda x: gr.lp_pool1d(x.reshape(1, 1, -1), 2.0, 2).sum(), [0, 0, 3, 4], [0, 0, 0.6, 0.8]),
    "lp_pool1d, 3": (lambda x: gr.lp_pool1d(x.reshape(1, 1, -1), 3.0, 2).sum(), [0, 0, 1, 0], [0, 0, 1, 0]),
    "normalize": (lambda x: gr.normalize(x, axis=0).sum(), [0, 0], [1e12, 1e12]),
    "normalize, 0": (lambda x: gr.normalize(x, p=0.0, axis=0).sum(), [3, 0, 2], [0.5, 0.5, 0.5]),
    "pairwise_distance": (lambda x: gr.pairwise_distance(x, of([1, 2]), eps=0.0), [1, 2], [0, 0]),
    "pairwise_distance, 0": (lambda x: gr.pairwise_distance(x, of([1, 2]), p=0.0), [1, 2], [0, 0]),
    "cosine_similarity": (
        lambda x: gr.cosine_similarity(x.reshape(1, -1), of([[3, 4]])).sum(), [0, 0], [0.6e8, 0.8e8]),
    "logsumexp, inf": (lambda x: x.logsumexp(), [1, 2, inf], [0, 0, nan]),
    "logsumexp, NaN": (lambda x: x.logsumexp(), [0, 0, nan], [nan, nan, nan]),
    "logsumexp, nothing": (lambda x: x.logsumexp(), [-inf, -inf], [0, 0]),
    "logsumexp, -inf": (lambda x: x.logsumexp(), [-inf, 0], [0, 1]),
    "softmax, -inf": (lambda x: x.softmax(0)[1], [-inf, 2, -inf], [0, 0, 0]),
    "max, tie": (lambda x: x.max(), [2, 1, 2], [0.5, 0, 0.5]),
    "max, NaN": (lambda x: x.max(), [1, nan, 2], [nan, nan, nan]),
    "min, NaN": (lambda x: x.min(), [nan, 1, 2], [nan, nan, nan]),
    "max, inf": (lambda x: x.max(), [1, inf, 2], [0, 1, 0]),
    "at, max, tie": (lambda x: of([0, 5]).at[[0, 0]].max(x).sum(), [2, 2], [0.5, 0.5]),
    "at, max, NaN": (lambda x: of([0, 5]).at[[0, 1]].max(x).sum(), [nan, 7], [nan, 1]),
    "at, min, NaN": (lambda x: of([0, 5]).at[[0, 1]].min(x).sum(), [nan, 7], [nan, 0]),
    "cumsum, zero": (lambda x: x.cumsum(0)[1], [0, 0, 0], [1, 1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_functions_of_rows(name):
    f, x, want = ROWS[name]
    np.testing.assert_allclose(gr.grad(f)(of(x)).numpy(), want, 1e-12, 1e-12)


def test_norms_do_not_overflow_on_the_way():
    for dtype, big in ((gr.float32, 1e30), (gr.float64, 1e300)):
        for scale in (big, 1 / big):
            x = gr.asarray([3.0, 4.0], dtype=dtype) * scale
            for f in (gr.linalg.vector_norm, lambda x: gr.linalg.matrix_norm(x.reshape(1, 2))):
                np.testing.assert_allclose(f(x).item() / scale, 5.0, 1e-6)
            cube = gr.linalg.vector_norm(x, ord=3).item() / scale
            np.testing.assert_allclose(cube, (27 + 64) ** (1 / 3), 1e-6)
    z = gr.asarray(np.array([3e200 + 4e200j]))
    np.testing.assert_allclose(gr.linalg.vector_norm(z).item(), 5e200, 1e-12)


# Poolings: the input of one channel, and the gradient of the sum.
POOLS = {
    "ties": (lambda x: gr.max_pool1d(x, 2, 1), [1, 1, 1, 1], [1, 1, 1, 0]),
    "apart": (lambda x: gr.max_pool1d(x, 2), [3, 3, 0, 0], [1, 0, 1, 0]),
    "NaN": (lambda x: gr.max_pool1d(x, 3, 1), [1, nan, 2, 3, 3], [0, 2, 0, 1, 0]),
    "-inf": (lambda x: gr.max_pool1d(x, 3), [-inf, -inf, -inf], [1, 0, 0]),
    "padding": (lambda x: gr.max_pool1d(x, 3, 2, 1), [-1, -1, -1, -1], [1, 1, 0, 0]),
    "dilation": (lambda x: gr.max_pool1d(x, 2, 1, 0, 2), [5, 1, 5, 1], [1, 1, 0, 0]),
    "ceil": (lambda x: gr.max_pool1d(x, 2, 2, ceil_mode=True), [1, 1, 1], [1, 0, 1]),
    "adaptive": (lambda x: gr.adaptive_max_pool1d(x, 2), [1, 1, 1, 1], [1, 0, 1, 0]),
    "adaptive, uneven": (lambda x: gr.adaptive_max_pool1d(x, 2), [1, 1, 1, 1, 1], [1, 0, 1, 0, 0]),
}


@pytest.mark.parametrize("name", POOLS)
def test_the_first_largest_of_a_window_has_the_gradient(name):
    pool, x, want = POOLS[name]
    f = lambda x: pool(x.reshape(1, 1, -1)).sum()
    np.testing.assert_array_equal(gr.grad(f)(of(x)).numpy(), want)
    halves = gr.asarray(np.array(x, "f4")).astype(gr.bfloat16)
    np.testing.assert_array_equal(gr.grad(f)(halves).astype(gr.float32).numpy(), want)


def test_ties_of_windows_over_several_axes_go_to_the_first_in_row_major_order():
    x = np.zeros((1, 1, 3, 5))
    want = np.zeros((3, 5))
    want[:2, :4] = 1
    g = gr.grad(lambda x: gr.max_pool2d(x, 2, 1).sum())(gr.asarray(x)).numpy()[0, 0]
    np.testing.assert_array_equal(g, want)
    want = np.zeros((3, 5))
    want[np.ix_([0, 1], [0, 1, 3])] = 1
    g = gr.grad(lambda x: gr.adaptive_max_pool2d(x, (2, 3)).sum())(gr.asarray(x)).numpy()[0, 0]
    np.testing.assert_array_equal(g, want)


@pytest.mark.parametrize("indices", [[0, 2], [1, 1], [0, -3], [2, 0, 2, 2, 1]])
@pytest.mark.parametrize("zero", [False, True])
def test_factors_scattered_by_index(indices, zero):
    x = np.array([2.0, 3.0, 5.0])
    u = np.arange(2.0, 2.0 + len(indices))
    if zero:
        u[-1] = 0.0
    places = [i % 3 for i in indices]
    weights = np.array([1.0, -2.0, 0.5])
    n = len(x)
    # As a polynomial in the elements and the factors.
    terms = [
        (w, (i, *(n + k for k, p in enumerate(places) if p == i))) for i, w in enumerate(weights)
    ]

    def f(both):
        out = both[:n].at[gr.asarray(indices)].multiply(both[n:])
        return (out * of(weights)).sum()

    first, second = hessian(f, of(np.concatenate([x, u])))
    want = polynomial(terms, np.concatenate([x, u]))
    np.testing.assert_allclose(first, want[0], 1e-12, 1e-12)
    np.testing.assert_allclose(second, want[1], 1e-12, 1e-12)


def test_factors_of_rows_and_lanes_scattered_by_index():
    x, u = np.arange(1.0, 13.0).reshape(3, 4), np.arange(1.0, 9.0).reshape(2, 2, 2) / 4
    index = np.array([[0, 2], [-1, 0]])
    want_x, want_u = np.ones_like(x), np.zeros_like(u)
    for i, j in np.ndindex(2, 2):
        want_x[index[i, j] % 3, :2] *= u[i, j]
        others = [
            u[k, m]
            for k, m in np.ndindex(2, 2)
            if (k, m) != (i, j) and (index[k, m] - index[i, j]) % 3 == 0
        ]
        want_u[i, j] = x[index[i, j] % 3, :2] * np.prod(others, 0)
    f = lambda x, u: x.at[gr.asarray(index), :2].multiply(u).sum()
    got = gr.grad(f, argnums=(0, 1))(gr.asarray(x), gr.asarray(u))
    close(got[0], want_x, 1e-12)
    close(got[1], want_u, 1e-12)
    # Quotients use the same rule.
    f = lambda u: (of([6.0, 1.0]).at[[0, 0]].divide(u) * of([1.0, 0.0])).sum()
    close(gr.grad(f)(of([2.0, 3.0])), np.array([-0.5, -1 / 3]), 1e-12)


def test_functions_of_complex_numbers_at_zero():
    z = gr.asarray(np.array([complex(-0.0, 0.0), complex(0.0, -0.0)]))
    out = gr.expm1(z).numpy()
    assert not np.signbit(out.real).any()
    assert np.signbit(out.imag).tolist() == [False, True]
    x = np.array([0.3 - 0.4j, -2.0 + 1.0j, 0.0])
    close(gr.sigmoid(gr.asarray(x)), 1 / (1 + np.exp(-x)), 1e-12)
    close(gr.asarray(x).var(), np.var(x), 1e-12)
    close(gr.asarray(x).std(correction=1), np.std(x, ddof=1), 1e-12)
    s = 1 / (1 + np.exp(-x))
    g = gr.grad(lambda z: gr.sigmoid(z).real.sum())(gr.asarray(x))
    close(g, s * (1 - s), 1e-12)
