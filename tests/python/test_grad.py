"""Gradients: every differentiable op against finite differences in float64, first and second order;
and the arguments of the transforms.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import girih as gr
import numpy as np
import pytest
from conftest import close, sample

LABELS = [0, 2, 1]
INDICES = [2, 0, 2]

# Differentiable functions with their own tests, or with another name in OPS.
ELSEWHERE = {"Tensor.astype", "Tensor.__getitem__", "Tensor.__setitem__"}
# In test_control.py.
ELSEWHERE |= {"cond", "scan"}
# In test_rules.py: a loop needs a bound for reverse mode.
ELSEWHERE |= {"checkpoint", "while_loop"}
# In test_collectives.py, because they need a batch.
ELSEWHERE |= {"psum", "all_gather"}
# In test_callbacks.py: the user provides the rule.
ELSEWHERE |= {"pure_callback"}
# In test_dtypes.py, with respect to complex numbers.
ELSEWHERE |= {"real", "imag", "conj", "complex", "sign"}
# name: (function of tensors, shapes of its arguments, domain)
ANY, POSITIVE, UNIT = (-2.0, 2.0), (0.5, 3.0), (-0.9, 0.9)
OPS = {
    "negative": (lambda x: -x, [(3,)], ANY),
    "Tensor.shard": (lambda x: x.shard(gr.DeviceMesh((1,), ("a",)), "<a>") * 3, [(3,)], ANY),
    "Tensor.to_device": (lambda x: (x.to_device("mock") * 3).to_device("cpu"), [(3,)], ANY),
    "remainder": (lambda x, y: gr.remainder(x, y), [(3,), (3,)], POSITIVE),
    "fmod": (lambda x, y: gr.fmod(x, y), [(3,), (3,)], POSITIVE),
    "igamma": (lambda x, y: gr.igamma(x, y), [(3,), (2, 3)], POSITIVE),
    "igammac": (lambda x, y: gr.igammac(x, y), [(3,), (2, 3)], POSITIVE),
    "igamma_grad_a": (lambda x, y: gr.igamma_grad_a(x, y), [(3,), (3,)], POSITIVE),
    "as_strided": (lambda x: gr.as_strided(x, (3, 2), (1, 2)), [(5,)], ANY),
    "as_strided_scatter": (
        lambda x, y: gr.as_strided_scatter(x, y, (2,), (2,), 1), [(5,), (2,)], ANY,
    ),
    "abs": (lambda x: x.abs(), [(3,)], POSITIVE),
    "square": (lambda x: gr.square(x), [(3,)], ANY),
    "reciprocal": (lambda x: gr.reciprocal(x), [(3,)], POSITIVE),
    **{
        name: (lambda x, name=name: getattr(gr, name)(x), [(3,)], domain)
        for names, domain in [
            ("exp expm1 exp2 sin cos tanh sinh cosh atan asinh erf erfc sigmoid silu softplus "
             "log_sigmoid gelu i0 i1", ANY),
            ("log log1p log2 log10 sqrt rsqrt relu lgamma digamma", POSITIVE),
            ("tan asin acos atanh erfinv", UNIT),
        ]
        for name in names.split()
    },
    "acosh": (lambda x: gr.acosh(x), [(3,)], (1.5, 3.0)),
    "gelu tanh": (lambda x: gr.gelu(x, approximate="tanh"), [(3,)], ANY),
    "clip": (lambda x: x.clip(-0.5, 0.5), [(5,)], ANY),
    "add": (lambda x, y: x + y, [(2, 3), (3,)], ANY),
    "subtract": (lambda x, y: x - y, [(2, 1), (3,)], ANY),
    "multiply": (lambda x, y: x * y, [(2, 3), ()], ANY),
    "divide": (lambda x, y: x / y, [(2, 3), (2, 1)], POSITIVE),
    "power": (lambda x, y: x**y, [(3,), (3,)], POSITIVE),
    "power, integer": (lambda x: x**3, [(3,)], ANY),
    "power, square": (lambda x: x**2, [(3,)], ANY),
    "maximum": (lambda x, y: gr.maximum(x, y), [(4,), (4,)], ANY),
    "minimum": (lambda x, y: gr.minimum(x, y), [(2, 4), (4,)], ANY),
    "atan2": (lambda x, y: gr.atan2(x, y), [(3,), (3,)], POSITIVE),
    "polygamma": (lambda x: gr.polygamma(1, x), [(3,)], POSITIVE),
    "where": (lambda x, y: gr.where(x > 0, x * y, y), [(6,), (6,)], ANY),
    "sum": (lambda x: x.sum(1), [(2, 3)], ANY),
    "sum, all": (lambda x: x.sum() * x, [(2, 3)], ANY),
    "prod": (lambda x: x.prod(1), [(2, 3)], POSITIVE),
    "mean": (lambda x: x.mean(0), [(2, 3)], ANY),
    "max": (lambda x: x.max(1), [(2, 3)], ANY),
    "min": (lambda x: x.min(0, keepdims=True), [(2, 3)], ANY),
    "var": (lambda x: x.var(1), [(2, 3)], ANY),
    "std": (lambda x: x.std(1, correction=1), [(2, 3)], ANY),
    "logsumexp": (lambda x: x.logsumexp(1), [(2, 3)], ANY),
    "softmax": (lambda x: x.softmax(1), [(2, 3)], ANY),
    "log_softmax": (lambda x: x.log_softmax(0), [(2, 3)], ANY),
    "matmul": (lambda x, y: x @ y, [(2, 3), (3, 2)], ANY),
    "matmul vectors": (lambda x, y: x @ y, [(3,), (3,)], ANY),
    "matmul matrix vector": (lambda x, y: x @ y, [(2, 3), (3,)], ANY),
    "matmul vector matrix": (lambda x, y: x @ y, [(3,), (3, 2)], ANY),
    "matmul batched": (lambda x, y: x @ y, [(2, 2, 3), (3, 2)], ANY),
    "matmul broadcast": (lambda x, y: x @ y, [(2, 1, 2, 3), (2, 3, 2)], ANY),
    "reshape": (lambda x: x.reshape(3, 2), [(2, 3)], ANY),
    "permute": (lambda x: x.permute(2, 0, 1), [(2, 3, 2)], ANY),
    "transpose": (lambda x: x.T, [(2, 3)], ANY),
    "broadcast_to": (lambda x: x.broadcast_to(2, 3), [(3,)], ANY),
    "squeeze": (lambda x: x.squeeze(), [(1, 3, 1)], ANY),
    "unsqueeze": (lambda x: x.unsqueeze(1), [(3,)], ANY),
    "concat": (lambda x, y: gr.concat([x, y, x], axis=0), [(2, 2), (1, 2)], ANY),
    "stack": (lambda x, y: gr.stack([x, y], axis=1), [(2,), (2,)], ANY),
    "split": (lambda x: gr.split(x, [1], axis=0)[1], [(3, 2)], ANY),
    "slice": (lambda x: x[1:, ::2], [(3, 5)], ANY),
    "slice backwards": (lambda x: x[::-2], [(5,)], ANY),
    "index": (lambda x: x[1], [(3, 2)], ANY),
    "flip": (lambda x: x.flip(0), [(3,)], ANY),
    "pad": (lambda x: gr.pad(x, ((1, 0), (0, 2))), [(2, 2)], ANY),
    "take": (lambda x: x.take(gr.asarray(INDICES), axis=0), [(3, 2)], ANY),
    "take_along_axis": (
        lambda x: gr.take_along_axis(x, gr.asarray([INDICES, LABELS]), axis=1), [(2, 3)], ANY),
    "put_along_axis": (
        lambda x, y: gr.put_along_axis(x, gr.asarray([[0, 2], [1, 1]]), y, axis=1),
        [(2, 3), (2, 2)], ANY),
    "at, set": (lambda x, y: x.at[gr.asarray(INDICES), 1:].set(y), [(3, 3), (3, 2)], ANY),
    "at, add": (lambda x, y: x.at[[0, 2], [1, 1]].add(y), [(3, 2), (2,)], ANY),
    "at, max": (lambda x, y: x.at[gr.asarray(INDICES)].max(y), [(3, 2), (3, 2)], ANY),
    "at, multiply": (lambda x, y: x.at[1:].multiply(y), [(3,), (2,)], ANY),
    "at, multiply by index": (lambda x, y: x.at[[0, 0, 2]].multiply(y), [(3, 2), (3, 2)], ANY),
    "at, divide by index": (lambda x, y: x.at[[0, 0]].divide(y), [(3,), (2,)], POSITIVE),
    "at, divide": (lambda x: x.at[[0, 0]].divide([2.0, 3.0]), [(3,)], ANY),
    "masked assignment": (lambda x, y: x.at[x > 0].set(y * 2), [(5,), ()], ANY),
    "roll": (lambda x: gr.roll(x, (1, -1), axis=(0, 1)), [(3, 2)], ANY),
    "tile": (lambda x: gr.tile(x, (2, 3)), [(2, 2)], ANY),
    "repeat": (lambda x: gr.repeat(x, [2, 0, 1], axis=0), [(3, 2)], ANY),
    "diagonal": (lambda x: gr.diagonal(x, 1), [(3, 4)], ANY),
    "diag": (lambda x: gr.diag(x, -1), [(3,)], ANY),
    "tril": (lambda x: gr.tril(x, k=-1), [(3, 3)], ANY),
    "diff": (lambda x: gr.diff(x, n=2), [(5,)], ANY),
    "pad, reflect": (lambda x: gr.pad(x, 3, mode="reflect"), [(3,)], ANY),
    "linalg.cholesky": (lambda x: gr.linalg.cholesky(x @ x.T + gr.eye(3, dtype=gr.float64)), [(3, 3)], ANY),
    "linalg.cholesky, upper": (lambda x: gr.linalg.cholesky(x @ x.T + gr.eye(3, dtype=gr.float64), upper=True), [(3, 3)], ANY),
    "linalg.solve": (lambda a, b: gr.linalg.solve(a + 4 * gr.eye(3, dtype=gr.float64), b), [(2, 3, 3), (3, 2)], ANY),
    "linalg.solve_triangular": (lambda a, b: gr.linalg.solve_triangular(a, b), [(3, 3), (3, 2)], POSITIVE),
    "linalg.solve_triangular, unit": (
        lambda a, b: gr.linalg.solve_triangular(a, b, lower=True, unit_diagonal=True), [(3, 3), (3,)], ANY),
    "linalg.inv": (lambda x: gr.linalg.inv(x + 4 * gr.eye(3, dtype=gr.float64)), [(2, 3, 3)], ANY),
    "linalg.pinv": (lambda x: gr.linalg.pinv(x), [(2, 3, 2)], ANY),
    "linalg.det": (lambda x: gr.linalg.det(x), [(2, 3, 3)], ANY),
    "linalg.slogdet": (lambda x: gr.linalg.slogdet(x).logabsdet, [(2, 3, 3)], ANY),
    "linalg.lu": (lambda x: gr.linalg.lu(x).L @ gr.sin(gr.linalg.lu(x).U), [(2, 3, 3)], ANY),
    "linalg.lu, tall": (lambda x: gr.linalg.lu(x).L @ gr.sin(gr.linalg.lu(x).U), [(4, 2)], ANY),
    "linalg.lu, wide": (lambda x: gr.linalg.lu(x).L @ gr.sin(gr.linalg.lu(x).U), [(2, 4)], ANY),
    "linalg.expm": (lambda x: gr.linalg.expm(x), [(3, 3)], ANY),
    "linalg.cond": (lambda x: gr.linalg.cond(x, 1), [(3, 3)], ANY),
    "kthvalue": (lambda x: gr.kthvalue(x, 2).values, [(5,)], ANY),
    "quantile": (lambda x: gr.quantile(x, [0.2, 0.7]), [(5,)], ANY),
    "nanvar": (lambda x: gr.nanvar(gr.where(x > 1, gr.nan, x)), [(5,)], ANY),
    "cov": (lambda x: gr.cov(x, fweights=[1, 2, 1, 3]), [(2, 4)], ANY),
    "corrcoef": (lambda x: gr.corrcoef(x), [(3, 5)], ANY),
    "trapezoid": (lambda y, x: gr.trapezoid(y, x), [(4,), (4,)], ANY),
    "polyfit": (lambda y: gr.polyfit([0.0, 1.0, 2.0, 4.0], y, 2), [(4,)], ANY),
    "linalg.qr": (lambda x: gr.linalg.qr(x).Q, [(4, 3)], ANY),
    "linalg.qr, R": (lambda x: gr.linalg.qr(x).R, [(4, 3)], ANY),
    "linalg.qr, wide": (lambda x: gr.linalg.qr(x).Q @ gr.linalg.qr(x).R ** 2, [(2, 4)], ANY),
    "linalg.eigh": (lambda x: gr.linalg.eigvalsh(x), [(3, 3)], ANY),
    "linalg.eigh, vectors": (lambda x: gr.linalg.eigh(x, UPLO="U").eigenvectors ** 2, [(3, 3)], ANY),
    "linalg.eig": (lambda x: (gr.linalg.eigvals(x) ** 3).sum(-1).real, [(2, 3, 3)], ANY),
    "linalg.svd": (lambda x: gr.linalg.svdvals(x), [(2, 3)], ANY),
    "linalg.svd, vectors": (
        lambda x: gr.linalg.svd(x, full_matrices=False).U ** 2 @ gr.linalg.svd(x, full_matrices=False).Vh ** 2,
        [(4, 3)], ANY),
    "linalg.matrix_norm": (lambda x: gr.linalg.matrix_norm(x, ord="nuc"), [(3, 2)], ANY),
    "linalg.vector_norm": (lambda x: gr.linalg.vector_norm(x, ord=3), [(4,)], POSITIVE),
    "linalg.cross": (lambda x, y: gr.linalg.cross(x, y), [(2, 3), (3,)], ANY),
    "linalg.tensordot": (lambda x, y: gr.linalg.tensordot(x, y, axes=1), [(2, 3), (3, 2)], ANY),
    "fft.fft": (lambda x, y: gr.abs(gr.fft.fft(gr.complex(x, y), axis=0)) ** 2, [(3, 2), (3, 2)], ANY),
    "fft.rfft": (lambda x: gr.abs(gr.fft.rfft(x, 5)) ** 3, [(2, 4)], ANY),
    "fft.irfft": (lambda x, y: gr.fft.irfft(gr.complex(x, y), 5, norm="ortho") ** 2, [(3,), (3,)], ANY),
    "sort": (lambda x: x.sort(0), [(4, 2)], ANY),
    "topk": (lambda x: gr.topk(x, 2)[0], [(2, 4)], ANY),
    "cumsum": (lambda x: x.cumsum(0), [(3, 2)], ANY),
    "cumprod": (lambda x: x.cumprod(1), [(2, 4)], ANY),
    "cummax": (lambda x: x.cummax(0), [(4, 2)], ANY),
    "cummin": (lambda x: x.cummin(1), [(2, 4)], ANY),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), [(2, 4)], ANY),
    "binary_cross_entropy": (
        lambda x, y: gr.binary_cross_entropy(x, y, reduction="none"), [(2, 3), (2, 3)], (0.1, 0.9)),
    "layer_norm": (lambda x, w, b: gr.layer_norm(x, [3], w, b), [(2, 3), (3,), (3,)], ANY),
    "cross_entropy": (lambda x: gr.cross_entropy(x, gr.asarray(LABELS)), [(3, 3)], ANY),
    "hypot": (lambda x, y: gr.hypot(x, y), [(2, 3), (3,)], POSITIVE),
    "logaddexp": (lambda x, y: gr.logaddexp(x, y), [(2, 3), (3,)], ANY),
    "copysign": (lambda x, y: gr.copysign(x, y), [(2, 3), (3,)], ANY),
    "cast": (lambda x: x.astype(gr.float64) * 2, [(3,)], ANY),
    "windows": (lambda x: gr.windows(x, 3, 2), [(2, 7)], ANY),
    "fold": (lambda x: gr.fold(x, (3, 4), 2), [(1, 4, 6)], ANY),
    "conv2d": (lambda x, w, b: gr.conv2d(x, w, b, 2, 1), [(1, 2, 4, 3), (2, 2, 3, 2), (2,)], ANY),
    "conv_transpose2d": (
        lambda x, w, b: gr.conv_transpose2d(x, w, b, 2, 1), [(1, 2, 2, 3), (2, 2, 3, 2), (2,)], ANY),
    "max_pool2d": (lambda x: gr.max_pool2d(x, 2, 1), [(1, 3, 3)], ANY),
    "avg_pool2d": (lambda x: gr.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [(1, 4, 3)], ANY),
    "batch_norm": (
        lambda x, w, b: gr.batch_norm(x, None, None, w, b, True), [(3, 2, 2), (2,), (2,)], ANY),
    "rms_norm": (lambda x, w: gr.rms_norm(x, [3], w), [(2, 3), (3,)], ANY),
    "scaled_dot_product_attention": (
        lambda q, k, v: gr.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(4, 2, 3), (2, 2, 3), (2, 2, 2)], ANY),
    "linear layer": (lambda x, w, b: gr.relu(x @ w.T + b), [(2, 3), (4, 3), (4,)], ANY),
}  # fmt: skip
# Functions with kinks: first order only.
ONCE = {
    *("relu", "abs", "maximum", "minimum", "max", "min", "clip", "at, max"),
    *("cummax", "cummin", "max_pool2d"),
}
LINEAR = {"round", "floor"}


def scalar(f, seed):
    """A scalar function of f with random weights, so that no symmetry hides an error."""

    def weighted(*args):
        out = f(*args)
        return (out * gr.asarray(sample(out.shape, "float64", seed))).sum()

    return weighted


def finite_differences(f, args, eps):
    grads = []
    for i, a in enumerate(args):
        g = np.zeros_like(a)
        for at in np.ndindex(a.shape):
            values = []
            for sign in (1, -1):
                moved = [v.copy() for v in args]
                moved[i][at] += sign * eps
                values.append(f(*map(gr.asarray, moved)))
            g[at] = (values[0].item() - values[1].item()) / (2 * eps)
        grads.append(g)
    return grads


@pytest.mark.parametrize("name", OPS)
def test_gradient_against_finite_differences(name):
    f, shapes, (low, high) = OPS[name]
    args = [sample(s, "float64", 10 + i, low, high) for i, s in enumerate(shapes)]
    f = scalar(f, 1)
    got = gr.grad(f, argnums=range(len(args)))(*map(gr.asarray, args))
    for g, want in zip(got, finite_differences(f, args, 1e-6), strict=True):
        close(g, want, 1e-6, 1e-8)


@pytest.mark.parametrize("name", sorted(OPS.keys() - ONCE))
def test_second_order_against_finite_differences(name):
    f, shapes, (low, high) = OPS[name]
    args = [sample(s, "float64", 10 + i, low, high) for i, s in enumerate(shapes)]
    first = gr.grad(scalar(f, 1), argnums=range(len(args)))

    def of_gradient(*tensors):
        grads = first(*tensors)
        total = gr.asarray(0.0, dtype=gr.float64)
        for i, g in enumerate(grads):
            total = total + (g * gr.asarray(sample(g.shape, "float64", 20 + i))).sum()
        return total

    got = gr.grad(of_gradient, argnums=range(len(args)))(*map(gr.asarray, args))
    for g, want in zip(got, finite_differences(of_gradient, args, 1e-5), strict=True):
        close(g, want, 1e-4, 1e-6)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "sign", "trunc"])
def test_steps_have_zero_gradient(name):
    close(gr.grad(lambda x: getattr(gr, name)(x).sum())(gr.asarray([0.3, 1.7])), np.zeros(2, "f4"))


def test_subgradients_at_kinks():
    at = gr.asarray([0.0])
    assert gr.grad(lambda x: gr.relu(x).sum())(at).tolist() == [0.0]
    assert gr.grad(lambda x: x.abs().sum())(at).tolist() == [0.0]
    ties = gr.grad(lambda x: x.max())(gr.asarray([1.0, 1.0])).numpy()
    assert ties.sum() == 1.0


def test_gradients_of_float32_have_its_dtype_and_shape():
    for dtype in (gr.float16, gr.bfloat16, gr.float32):
        g = gr.grad(lambda x: (x * x).sum())(gr.ones([2, 3], dtype=dtype))
        assert (g.dtype, g.shape) == (dtype, (2, 3))


def test_third_derivative():
    f = lambda x: x**4
    assert gr.grad(gr.grad(gr.grad(f)))(gr.asarray(2.0)).item() == 48.0


def test_nested_gradient_of_a_mixed_function():
    def inner(y, x):
        return (x * y * y).sum()

    def outer(x):
        return (gr.grad(inner)(x * 3, x) * x).sum()  # 2 x (3x) x = 6x³

    close(gr.grad(outer)(gr.asarray([1.0, 2.0])), np.array([18, 72], "f4"))


def test_hessian_vector_product():
    a = sample((3, 3), "float64")
    v = gr.asarray(sample((3,), "float64", 1))
    f = lambda x: x @ gr.asarray(a) @ x
    hvp = gr.grad(lambda x: gr.grad(f)(x) @ v)(gr.ones([3], dtype=gr.float64))
    close(hvp, (a + a.T) @ v.numpy(), 1e-12)


def test_transforms_compute_nothing():
    x = gr.randn([4]).eval()
    before = gr.cache_stats()["runs"]
    value, grad = gr.value_and_grad(lambda x: (x * x).sum())(x)
    assert gr.cache_stats()["runs"] == before
    assert gr.is_lazy(value)
    assert gr.is_lazy(grad)
    gr.eval(value, grad)
    assert gr.cache_stats()["runs"] == before + 1


def test_the_same_tensor_twice_gives_two_partials():
    x = gr.asarray([3.0])
    dx, dy = gr.grad(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(x, x)
    assert (dx.tolist(), dy.tolist()) == ([18.0], [9.0])
    grads = gr.grad(lambda p: (p[0] * p[0] * p[1]).sum())([x, x])
    assert [g.tolist() for g in grads] == [[18.0], [9.0]]


def test_argnums():
    f = lambda x, y, z: (x * y * z).sum()
    args = [gr.asarray([v]) for v in (2.0, 3.0, 5.0)]
    assert gr.grad(f)(*args).tolist() == [15.0]
    assert gr.grad(f, argnums=1)(*args).tolist() == [10.0]
    assert gr.grad(f, argnums=-1)(*args).tolist() == [6.0]
    assert [g.tolist() for g in gr.grad(f, argnums=(2, 0))(*args)] == [[6.0], [15.0]]
    assert len(gr.grad(f, argnums=(1,))(*args)) == 1


def test_keyword_arguments_and_defaults_pass_through():
    f = lambda x, *, scale=1.0: (x * scale).sum()
    assert gr.grad(f)(gr.ones([2]), scale=3.0).tolist() == [3.0, 3.0]


def test_aux_is_evaluated_with_the_real_arguments():
    def f(x):
        y = x * 2
        return (y * y).sum(), {"y": y, "note": "kept", "n": 3}

    (value, aux), g = gr.value_and_grad(f, has_aux=True)(gr.asarray([1.0, 2.0]))
    assert value.item() == 20.0
    assert (aux["y"].tolist(), aux["note"], aux["n"]) == ([2.0, 4.0], "kept", 3)
    assert g.tolist() == [8.0, 16.0]
    g, aux = gr.grad(f, has_aux=True)(gr.asarray([1.0, 2.0]))
    assert aux["y"].tolist() == [2.0, 4.0]


Pair = namedtuple("Pair", "a b")


@dataclass
class Weights:
    w: object
    b: object


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: [a, b],
        lambda a, b: (a, b),
        lambda a, b: {"b": b, "a": a},
        lambda a, b: Pair(a, b),
        lambda a, b: Weights(a, b),
        lambda a, b: {"x": [a, None, (b,)]},
    ],
)
def test_gradients_have_the_structure_of_the_argument(make):
    a, b = gr.asarray([1.0]), gr.asarray([2.0])

    def f(p):
        x, y = gr.tree.leaves(p)
        return (x * x * y).sum()

    got = gr.grad(f)(make(a, b))
    assert gr.tree.structure(got) == gr.tree.structure(make(a, b))
    assert [g.tolist() for g in gr.tree.leaves(got)] == [[4.0], [1.0]]


def test_closures_are_constants():
    w = gr.asarray([2.0])
    assert gr.grad(lambda x: (x * w * w).sum())(gr.asarray([1.0])).tolist() == [4.0]
    x = gr.asarray([3.0])
    # The same tensor is an argument and captured by the closure: only the argument is
    # differentiated.
    assert gr.grad(lambda y: (y * x).sum())(x).tolist() == [3.0]


def test_closures_over_lazy_tensors_share_their_work():
    w = gr.ones([3]) * 2
    g = gr.grad(lambda x: (x * w).sum())(gr.ones([3]))
    assert gr.is_lazy(w)
    assert g.tolist() == [2.0] * 3


def test_python_floats_and_arrays_are_arguments():
    assert gr.grad(lambda x: x * x)(3.0).item() == 6.0
    close(gr.grad(lambda x: (x * x).sum())(np.ones(2)), np.full(2, 2.0))


def test_an_unused_argument_has_zero_gradient():
    g = gr.grad(lambda p: p["a"].sum())({"a": gr.ones([2]), "b": gr.ones([3])})
    assert g["b"].tolist() == [0.0] * 3


def test_a_constant_function_has_zero_gradient():
    assert gr.grad(lambda x: gr.asarray(1.0))(gr.ones([2])).tolist() == [0.0, 0.0]


def test_stop_gradient_and_detach():
    f = lambda x: (x * gr.stop_gradient(x)).sum()
    assert gr.grad(f)(gr.asarray([3.0])).tolist() == [3.0]
    assert gr.grad(lambda x: (x * x.detach()).sum())(gr.asarray([3.0])).tolist() == [3.0]


ERRORS = {
    "not a scalar": (lambda: gr.grad(lambda x: x * 2)(gr.ones([3])), gr.ShapeError, r"\[3\]"),
    "not a tensor": (lambda: gr.grad(lambda x: 3.0)(gr.ones([3])), gr.DTypeError, "float"),
    "a pair": (lambda: gr.grad(lambda x: (x.sum(), x))(gr.ones([3])), gr.DTypeError, "has_aux"),
    "no pair": (lambda: gr.grad(lambda x: x.sum(), has_aux=True)(gr.ones([3])), gr.InvalidArgumentError, "aux"),
    "integer value": (lambda: gr.grad(lambda x: x.argmax())(gr.ones([3])), gr.DTypeError, "int64"),
    "integer leaf": (lambda: gr.grad(lambda p: p["w"][0].sum())({"w": [gr.ones([1]), gr.arange(3)]}), gr.DTypeError, r"argument 0\['w'\]\[1\].*int64"),
    "Python int": (lambda: gr.grad(lambda x: x)(3), gr.DTypeError, "int"),
    "string": (lambda: gr.grad(lambda x: x)("x"), gr.DTypeError, "str"),
    "missing argument": (lambda: gr.grad(lambda x: x, argnums=2)(gr.ones([])), gr.InvalidArgumentError, "2"),
    "repeated argnums": (lambda: gr.grad(lambda x: x, argnums=(0, -1))(gr.ones([])), gr.InvalidArgumentError, "twice"),
    "no argnums": (lambda: gr.grad(lambda x: x, argnums=()), gr.InvalidArgumentError, "argnums"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_misuse_is_explained(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: gr.cond(x > 0, lambda x: x if x > 1 else -x, lambda x: x, x),
        lambda x: gr.vmap(lambda x: gr.stack([x, x]).tolist()[0] * x)(gr.stack([x, x])).sum(),
    ],
)
def test_reading_a_traced_value_is_an_error(ask):
    with pytest.raises(gr.TracedValueError, match="where"):
        gr.grad(ask)(gr.asarray(1.0))


def test_a_failed_trace_leaves_nothing_behind():
    x = gr.asarray(2.0)
    with pytest.raises(ZeroDivisionError):
        gr.grad(lambda x: x * (1 / 0))(x)
    assert gr.grad(lambda x: x * x)(x).item() == 4.0


class Fit:
    def __init__(self, weight):
        self.weight = weight

    @gr.grad
    def slope(self, x):
        return (x * x * self.weight).sum()

    @gr.value_and_grad
    def both(self, x, scale=1.0):
        return (x * self.weight).sum() * scale


def test_methods_bind_their_object():
    fit, x = Fit(3.0), gr.asarray([1.0, 2.0])
    assert fit.slope(x).tolist() == [6.0, 12.0]
    value, grads = fit.both(x, scale=2.0)
    assert (value.item(), grads.tolist()) == (18.0, [6.0, 6.0])
    assert Fit.slope.__name__ == "grad_slope"


def test_arguments_by_keyword_are_differentiated_by_argnames():
    f = lambda x, y, z: x * y * z
    x, y, z = (gr.asarray(v) for v in (2.0, 3.0, 5.0))
    assert gr.grad(f, argnames="z")(x, y, z=z) == (None, {"z": 6.0})
    value, grads = gr.value_and_grad(f, (0, 1), argnames=["z"])(x, y, z=z)
    assert value.item() == 30.0
    assert ([g.item() for g in grads[0]], grads[1]["z"].item()) == ([15.0, 10.0], 6.0)
    by_number, by_name = gr.grad(f, 0, argnames=("y", "z"))(x, z=z, y=y)
    assert (by_number.item(), list(by_name)) == (15.0, ["y", "z"])
    both = gr.grad(lambda p: p["w"].sum(), argnames="p")
    assert both(p={"w": gr.ones(2)})[1]["p"]["w"].tolist() == [1.0, 1.0]
    aux = gr.grad(lambda x, y: (x * y, y), argnames="y", has_aux=True)(x, y=y)
    assert (aux[0][1]["y"].item(), aux[1].item()) == (2.0, 3.0)
    assert (
        gr.compile(lambda x, y: gr.grad(lambda *, y: x * y, argnames="y")(y=y)[1])(x, y)["y"] == x
    )
    for call in (
        lambda: gr.grad(f, argnames="z")(x, y, z),
        lambda: gr.grad(f, argnums=())(x, y, z),
        lambda: gr.grad(f, argnames=("z", "z")),
        lambda: gr.grad(f, argnames=(1,)),
    ):
        with pytest.raises(gr.InvalidArgumentError):
            call()


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "divide", "hypot"])
@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 1), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 1, 3), (5, 1)), ((1,), (1, 1)),
     ((0, 1), (1, 3)), ((1, 0), (3, 1)), ((2, 3), (2, 3))],
)  # fmt: skip
def test_gradients_of_broadcast_operands_have_their_shapes(name, a, b):
    torch = pytest.importorskip("torch")
    x, y = sample(a, "float64", 1, 1, 2), sample(b, "float64", 2, 1, 2)
    ct = sample(np.broadcast_shapes(a, b), "float64", 3)
    f = lambda x, y: (getattr(gr, name)(x, y) * gr.asarray(ct)).sum()
    found = gr.grad(f, (0, 1))(gr.asarray(x), gr.asarray(y))
    inputs = [torch.tensor(v, requires_grad=True) for v in (x, y)]
    (getattr(torch, name)(*inputs) * torch.tensor(ct)).sum().backward()
    for got, wanted in zip(found, inputs, strict=True):
        close(got, wanted.grad.numpy(), 1e-12, 1e-12)


def _read(x):
    pair = gr.stack([x, 2 * x])
    gr.eval(pair)
    gr.async_eval(pair, x)
    pair.eval()
    return x * pair.tolist()[1] * float(pair.numpy().sum()) * pair[0].item()


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f, x: gr.grad(f)(x),
        lambda f, x: gr.value_and_grad(f)(x)[1],
        lambda f, x: gr.vjp(f, x)[1](gr.ones_like(x))[0],
        lambda f, x: gr.jvp(f, (x,), (gr.ones_like(x),))[1],
        lambda f, x: gr.grad(lambda x: gr.grad(f)(x) * x)(x),
    ],
)
def test_several_numbers_are_read_at_the_arguments(transformed):
    """Values that are read are constants, as one number is."""
    x = gr.asarray(3.0)
    assert transformed(_read, x).item() == 6.0 * 9.0 * 3.0


def test_masks_and_lengths_may_be_read_at_the_arguments():
    x = gr.asarray([1.0, -2.0, 3.0])
    assert gr.grad(lambda x: (x[x > 0] ** 2).sum())(x).tolist() == [2.0, 0.0, 6.0]
    assert gr.grad(lambda x: x[gr.nonzero(x > 0)[0]].sum())(x).tolist() == [1.0, 0.0, 1.0]


def test_evaluation_at_the_arguments_raises_its_errors():
    with pytest.raises(gr.LinAlgError):
        gr.grad(lambda x: gr.eval(gr.linalg.inv(x)).sum())(gr.zeros([2, 2]))
    with gr.eager_mode():
        assert gr.grad(lambda x: (x * x).sum())(gr.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("transform", [gr.grad, gr.value_and_grad, gr.jacfwd])
def test_results_of_compiled_functions_are_evaluated_inside_of_a_differentiated_function(transform):
    x = gr.asarray([1.0, 2.0])
    compiled = gr.compile(gr.exp)
    moved = []

    def f(x):
        y = compiled(x)
        gr.eval(y)
        gr.async_eval(compiled(y))
        moved.append((y.sum().item(), y.to("mock").tolist(), compiled(y * 0).tolist()))
        return compiled(y.to("mock").to("cpu") * 0 + x).sum()

    got = gr.eval(transform(f)(x))
    want = gr.eval(transform(lambda x: gr.exp(x).sum())(x))
    for a, b in zip(gr.tree.leaves(got), gr.tree.leaves(want), strict=True):
        close(a, np.asarray(b))
    assert moved[0][2] == [1.0, 1.0]
    assert moved[0][0] == pytest.approx(np.exp([1.0, 2.0]).sum(), rel=1e-6)
