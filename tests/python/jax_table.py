"""The table for `test_jax_oracle.py`, one row per function: the function in both libraries, the
shapes of its operands, and their domains.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import girih as gr
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy


class Row(NamedTuple):
    """A function in both libraries, with the shapes and domains of its operands."""

    name: str
    ours: Any
    theirs: Any
    shapes: tuple[tuple[int, ...], ...]
    domain: tuple[float, float] = (-1.5, 1.6)
    #: Whether JAX has second derivatives of the function.
    second: bool = True


def same(name: str, *shapes: tuple[int, ...], **options: Any) -> Row:
    """A function with the same name in both libraries."""
    return Row(name, getattr(gr, name), getattr(jnp, name), shapes or ((3, 4),), **options)


POSITIVE, UNIT = (0.3, 2.5), (-0.9, 0.9)
spd = lambda np_: lambda a: a @ np_.swapaxes(a, -1, -2) + 3 * np_.eye(a.shape[-1])
ROWS = [
    *(same(n) for n in ["sin", "cos", "tanh", "exp", "expm1", "abs", "square", "sinh", "cosh", "negative", "atan", "asinh"]),
    *(same(n, domain=POSITIVE) for n in ["log", "log1p", "log2", "log10", "sqrt", "reciprocal"]),
    *(same(n, domain=UNIT) for n in ["asin", "acos", "atanh", "tan"]),
    same("acosh", domain=(1.2, 3.0)),
    same("exp2"),
    *(same(n, (3, 4), (4,)) for n in ["add", "subtract", "multiply", "maximum", "minimum", "logaddexp"]),
    *(same(n, (3, 4), (3, 1), domain=POSITIVE) for n in ["divide", "power", "hypot", "atan2"]),
    *(same(n) for n in ["sum", "mean", "prod", "max", "min", "var", "std"]),
    *(
        Row(f"{n} axis", lambda x, n=n: getattr(gr, n)(x, axis=-1, keepdims=True),
            lambda x, n=n: getattr(jnp, n)(x, axis=-1, keepdims=True), ((3, 4),))
        for n in ["sum", "mean", "prod", "max", "min", "var", "std"]
    ),
    Row("logsumexp", lambda x: gr.logsumexp(x, axis=0),
        lambda x: jax.scipy.special.logsumexp(x, axis=0), ((3, 4),)),
    Row("softmax", lambda x: gr.softmax(x, axis=0), lambda x: jax.nn.softmax(x, axis=0), ((3, 4),)),
    Row("log_softmax", lambda x: gr.log_softmax(x, axis=1),
        lambda x: jax.nn.log_softmax(x, axis=1), ((3, 4),)),
    Row("sigmoid", gr.sigmoid, jax.nn.sigmoid, ((3, 4),)),
    Row("softplus", gr.softplus, jax.nn.softplus, ((3, 4),)),
    Row("silu", gr.silu, jax.nn.silu, ((3, 4),)),
    Row("gelu", gr.gelu, lambda x: jax.nn.gelu(x, approximate=False), ((3, 4),)),
    Row("relu", gr.relu, jax.nn.relu, ((3, 4),)),
    Row("erf", gr.erf, jax.scipy.special.erf, ((3, 4),)),
    Row("erfc", gr.erfc, jax.scipy.special.erfc, ((3, 4),)),
    Row("erfinv", gr.erfinv, jax.scipy.special.erfinv, ((3, 4),), UNIT),
    Row("lgamma", gr.lgamma, jax.scipy.special.gammaln, ((3, 4),), POSITIVE),
    Row("digamma", gr.digamma, jax.scipy.special.digamma, ((3, 4),), POSITIVE),
    same("matmul", (3, 4), (4, 2)),
    Row("batched matmul", gr.matmul, jnp.matmul, ((2, 3, 4), (2, 4, 2))),
    Row("vectors", gr.matmul, jnp.matmul, ((4,), (4,))),
    Row("matrix times vector", gr.matmul, jnp.matmul, ((3, 4), (4,))),
    Row("einsum", lambda a, b: gr.einsum("ij,kj->ki", a, b),
        lambda a, b: jnp.einsum("ij,kj->ki", a, b), ((3, 4), (2, 4))),
    same("outer", (3,), (4,)),
    same("kron", (2, 2), (2, 3)) if hasattr(gr, "kron") else same("outer", (2,), (3,)),
    Row("reshape", lambda x: gr.sin(x).reshape([2, 6]), lambda x: jnp.sin(x).reshape(2, 6), ((3, 4),)),
    Row("transpose", lambda x: gr.exp(x).T, lambda x: jnp.exp(x).T, ((3, 4),)),
    Row("slice", lambda x: gr.sin(x)[1:, ::2], lambda x: jnp.sin(x)[1:, ::2], ((3, 4),)),
    Row("negative step", lambda x: (x * x)[::-1, 1], lambda x: (x * x)[::-1, 1], ((3, 4),)),
    Row("concat", lambda a, b: gr.concat([a * a, b], axis=1),
        lambda a, b: jnp.concatenate([a * a, b], axis=1), ((3, 4), (3, 2))),
    Row("stack", lambda a, b: gr.stack([a, b * a]), lambda a, b: jnp.stack([a, b * a]), ((3,), (3,))),
    Row("pad", lambda x: gr.pad(x * x, ((1, 2), (0, 1))),
        lambda x: jnp.pad(x * x, ((1, 2), (0, 1))), ((3, 4),)),
    Row("roll", lambda x: gr.roll(x * x, 2, axis=1), lambda x: jnp.roll(x * x, 2, axis=1), ((3, 4),)),
    Row("tril", lambda x: gr.tril(x * x), lambda x: jnp.tril(x * x), ((4, 4),)),
    Row("diagonal", lambda x: gr.diagonal(x * x), lambda x: jnp.diagonal(x * x), ((4, 4),)),
    Row("trace", lambda x: gr.trace(x @ x), lambda x: jnp.trace(x @ x), ((4, 4),)),
    Row("where", lambda a, b: gr.where(a > b, gr.sin(a), b * b),
        lambda a, b: jnp.where(a > b, jnp.sin(a), b * b), ((3, 4), (3, 4))),
    Row("clip", lambda x: gr.clip(x, -0.5, 0.5) * x, lambda x: jnp.clip(x, -0.5, 0.5) * x, ((3, 4),)),
    Row("take", lambda a, b: a[gr.argsort(b)], lambda a, b: a[jnp.argsort(b)], ((3, 4), (3,))),
    Row("along", lambda a, b: gr.take_along_axis(a, gr.argsort(b, axis=1), axis=1),
        lambda a, b: jnp.take_along_axis(a, jnp.argsort(b, axis=1), axis=1), ((3, 4), (3, 4))),
    Row("set", lambda a, b: a.at[gr.argsort(b)[:2]].set(gr.sin(b[:2])),
        lambda a, b: a.at[jnp.argsort(b)[:2]].set(jnp.sin(b[:2])), ((5,), (5,))),
    Row("add at", lambda a, b: a.at[gr.argsort(b)[:2]].add(gr.sin(b[:2])),
        lambda a, b: a.at[jnp.argsort(b)[:2]].add(jnp.sin(b[:2])), ((5,), (5,))),
    Row("sort", lambda x: gr.sort(x * x, axis=0), lambda x: jnp.sort(x * x, axis=0), ((5, 2),)),
    Row("median", gr.median, jnp.median, ((5,),)),
    same("cumsum", (5,)),
    same("cumprod", (5,)),
    Row("cumlogsumexp", lambda x: gr.logcumsumexp(x, axis=0), jax.lax.cumlogsumexp, ((5,),)),
    Row("cummax", lambda x: gr.cummax(x, axis=0), jax.lax.cummax, ((5,),)),
    Row("solve", lambda a, b: gr.linalg.solve(spd(gr)(a), b),
        lambda a, b: jnp.linalg.solve(spd(jnp)(a), b), ((3, 3), (3, 2))),
    Row("inv", lambda a: gr.linalg.inv(spd(gr)(a)), lambda a: jnp.linalg.inv(spd(jnp)(a)), ((3, 3),)),
    Row("det", gr.linalg.det, jnp.linalg.det, ((3, 3),)),
    Row("slogdet", lambda a: gr.linalg.slogdet(spd(gr)(a))[1],
        lambda a: jnp.linalg.slogdet(spd(jnp)(a))[1], ((3, 3),)),
    Row("cholesky", lambda a: gr.linalg.cholesky(spd(gr)(a)),
        lambda a: jnp.linalg.cholesky(spd(jnp)(a)), ((3, 3),)),
    Row("eigvalsh", lambda a: gr.linalg.eigvalsh(spd(gr)(a)),
        lambda a: jnp.linalg.eigvalsh(spd(jnp)(a)), ((3, 3),)),
    Row("singular values", gr.linalg.svdvals, lambda a: jnp.linalg.svd(a, compute_uv=False), ((3, 4),)),
    Row("qr", lambda a: gr.abs(gr.linalg.qr(a)[1]), lambda a: jnp.abs(jnp.linalg.qr(a)[1]), ((4, 3),)),
    Row("triangular", lambda a, b: gr.linalg.solve_triangular(spd(gr)(a), b, lower=True),
        lambda a, b: jax.scipy.linalg.solve_triangular(spd(jnp)(a), b, lower=True), ((3, 3), (3, 2))),
    Row("norm", gr.linalg.vector_norm, jnp.linalg.norm, ((5,),)),
    Row("conv", lambda x, w: gr.nn.functional.conv2d(x, w, stride=2, padding=1),
        lambda x, w: jax.lax.conv_general_dilated(x, w, (2, 2), ((1, 1), (1, 1))),
        ((2, 3, 6, 5), (4, 3, 3, 3))),
    Row("rfft", lambda x: gr.abs(gr.fft.rfft(x)) ** 2, lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, ((8,),)),
    Row("scan", lambda c, xs: gr.scan(lambda c, x: (gr.sin(c * x), c + x), c, xs)[1],
        lambda c, xs: jax.lax.scan(lambda c, x: (jnp.sin(c * x), c + x), c, xs)[1], ((), (5,))),
    Row("cond", lambda x: gr.cond(x.sum() > 0, gr.sin, gr.exp, x),
        lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.exp, x), ((3,),)),
    Row("switch", lambda x: gr.switch((x.sum() * 3).astype(gr.int64), [gr.sin, gr.exp, gr.square], x),
        lambda x: jax.lax.switch((x.sum() * 3).astype(int), [jnp.sin, jnp.exp, jnp.square], x), ((3,),)),
    Row("fori_loop", lambda x: gr.fori_loop(0, 4, lambda i, x: gr.sin(x) * (i + 1), x),
        lambda x: jax.lax.fori_loop(0, 4, lambda i, x: jnp.sin(x) * (i + 1), x), ((3,),)),
    Row("checkpoint", gr.checkpoint(lambda x: gr.exp(gr.sin(x))),
        jax.checkpoint(lambda x: jnp.exp(jnp.sin(x))), ((3,),)),
]  # fmt: skip


def nn(name: str) -> Any:
    """A function of `gr.nn.functional`."""
    return getattr(gr.nn.functional, name)


def conv(spatial: int, **options: Any) -> Any:
    """JAX's convolution in PyTorch's layout."""
    axes = "DHW"[-spatial:]
    numbers = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
    stride = (options.pop("stride", 1),) * spatial
    padding = ((options.pop("padding", 0),) * 2,) * spatial
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, stride, padding, dimension_numbers=numbers, **options
    )


def conv_transpose(x: Any, w: Any) -> Any:
    """JAX's equivalent of `conv_transpose2d` with stride 2 and padding 1."""
    return jax.lax.conv_general_dilated(
        x, jnp.flip(w, (2, 3)).swapaxes(0, 1), (1, 1), ((1, 1), (1, 1)), lhs_dilation=(2, 2)
    )


def pooled(start: float, reduce: Any, size: int, stride: int) -> Any:
    return lambda x: jax.lax.reduce_window(
        x, start, reduce, (1, 1, size, size), (1, 1, stride, stride), "VALID"
    )


def attention(causal: bool = False) -> Any:
    """Grouped-query attention in float64; JAX's own computes its softmax in float32."""

    def run(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
        scores = q @ k.mT / jnp.sqrt(1.0 * q.shape[-1])
        if causal:
            scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
        return jax.nn.softmax(scores, axis=-1) @ v

    return run


def normalized(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + eps)


def picked(logits: Any) -> Any:
    """The cross entropy with labels 0, 1, 2, ... along the last axis."""
    labels = jnp.arange(logits.shape[0]) % logits.shape[1]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], 1).mean()


HALF, LABELS = gr.asarray(2.5, dtype=gr.float64), gr.asarray([0, 1, 2, 3])
LIBRARY = [
    *(same(n) for n in ["sign", "i0", "ravel", "nansum", "nanmean", "nanstd", "nanmax", "nanmin", "nanprod",
                        "flipud", "fliplr", "rot90", "diff"]),
    *(same(n, (3, 4), (3, 4), domain=POSITIVE) for n in ["remainder", "fmod"]),
    *(same(n, (4,), (4,)) for n in ["dot", "inner", "vdot", "vecdot", "copysign"]),
    Row("rsqrt", gr.rsqrt, jax.lax.rsqrt, ((3, 4),), POSITIVE),
    Row("i1", gr.i1, jax.scipy.special.i1, ((3, 4),)),
    Row("log_sigmoid", gr.log_sigmoid, jax.nn.log_sigmoid, ((3, 4),)),
    Row("elu", gr.elu, jax.nn.elu, ((3, 4),)),
    Row("selu", gr.selu, jax.nn.selu, ((3, 4),)),
    Row("mish", gr.mish, jax.nn.mish, ((3, 4),)),
    Row("glu", nn("glu"), jax.nn.glu, ((3, 4),)),
    Row("gelu by tanh", lambda x: gr.gelu(x, approximate="tanh"), jax.nn.gelu, ((3, 4),)),
    Row("polygamma", lambda x: gr.polygamma(gr.asarray(1.0, dtype=gr.float64), x),
        lambda x: jax.scipy.special.zeta(2.0, x), ((3,),), POSITIVE),
    Row("igamma", lambda x: gr.igamma(HALF, x), lambda x: jax.scipy.special.gammainc(2.5, x), ((3, 4),), POSITIVE),
    Row("igammac", lambda x: gr.igammac(HALF, x), lambda x: jax.scipy.special.gammaincc(2.5, x), ((3, 4),), POSITIVE),
    Row("igamma of both", gr.igamma, jax.scipy.special.gammainc, ((3,), (3,)), POSITIVE, second=False),
    Row("complex", lambda x, y: gr.abs(gr.sin(gr.complex(x, y))),
        lambda x, y: jnp.abs(jnp.sin(jax.lax.complex(x, y))), ((3, 4), (3, 4))),
    Row("parts of complex", lambda x, y: gr.real(gr.exp(gr.conj(gr.complex(x, y)))) * gr.imag(gr.complex(y, x) ** 2),
        lambda x, y: jnp.real(jnp.exp(jnp.conj(jax.lax.complex(x, y)))) * jnp.imag(jax.lax.complex(y, x) ** 2),
        ((3, 4), (3, 4))),
    Row("fft", lambda x: gr.abs(gr.fft.fft(x * x, axis=0)), lambda x: jnp.abs(jnp.fft.fft(x * x, axis=0)), ((5, 3),)),
    Row("irfft", lambda x: gr.fft.irfft(gr.fft.rfft(x) ** 2, n=6), lambda x: jnp.fft.irfft(jnp.fft.rfft(x) ** 2, n=6), ((6,),)),
    Row("fft2", lambda x: gr.imag(gr.fft.fft2(x * x)), lambda x: jnp.imag(jnp.fft.fft2(x * x)), ((3, 4),)),
    Row("broadcast_to", lambda x: gr.broadcast_to(x * x, [2, 3, 4]) * 1.5, lambda x: jnp.broadcast_to(x * x, (2, 3, 4)) * 1.5, ((3, 1),)),
    Row("split", lambda x: gr.multiply(*gr.split(x, 2, axis=1)), lambda x: jnp.multiply(*jnp.split(x, 2, axis=1)), ((3, 4),)),
    Row("unstack", lambda x: gr.hypot(*gr.unstack(x, axis=0)), lambda x: jnp.hypot(*jnp.unstack(x, axis=0)), ((2, 4),)),
    Row("tile", lambda x: gr.tile(x * x, (2, 3)), lambda x: jnp.tile(x * x, (2, 3)), ((3, 2),)),
    Row("repeat", lambda x: gr.repeat(x * x, 2, axis=1), lambda x: jnp.repeat(x * x, 2, axis=1), ((3, 2),)),
    Row("windows", lambda x: gr.windows(x * x, 3, stride=2), lambda x: jnp.stack([(x * x)[..., i : i + 3] for i in (0, 2)], -2), ((2, 5),)),
    Row("set slice", lambda a, b: (a * a).at[1:3].set(gr.sin(b)), lambda a, b: (a * a).at[1:3].set(jnp.sin(b)), ((5, 2), (2, 2))),
    Row("multiply at", lambda a, b: a.at[gr.argsort(b)[:2]].multiply(b[:2]), lambda a, b: a.at[jnp.argsort(b)[:2]].multiply(b[:2], unique_indices=True), ((5,), (5,))),
    Row("put_along_axis", lambda a, b: gr.put_along_axis(a * a, gr.argsort(b, axis=1)[:, :2], gr.sin(b[:, :2]), axis=1),
        lambda a, b: jnp.put_along_axis(a * a, jnp.argsort(b, axis=1)[:, :2], jnp.sin(b[:, :2]), axis=1, inplace=False), ((3, 4), (3, 4))),
    Row("topk", lambda x: gr.topk(x * x, 2)[0], lambda x: jax.lax.top_k(x * x, 2)[0], ((3, 5),)),
    Row("cummin", lambda x: gr.cummin(x, axis=0), jax.lax.cummin, ((5,),)),
    Row("quantile", lambda x: gr.quantile(x * x, gr.asarray([0.3, 0.8], dtype=gr.float64)), lambda x: jnp.quantile(x * x, jnp.asarray([0.3, 0.8])), ((5,),)),
    Row("interp", lambda x, y: gr.interp(x, gr.linspace(-2, 2, 5, dtype=gr.float64), y), lambda x, y: jnp.interp(x, jnp.linspace(-2, 2, 5), y), ((4,), (5,))),
    Row("trapezoid", gr.trapezoid, jnp.trapezoid, ((5,), (5,))),
    Row("polyval", gr.polyval, jnp.polyval, ((3,), (4,))),
    Row("vander", lambda x: gr.vander(x, 3), lambda x: jnp.vander(x, 3), ((4,),)),
    Row("cov", gr.cov, jnp.cov, ((3, 5),)),
    Row("corrcoef", gr.corrcoef, jnp.corrcoef, ((3, 5),)),
    Row("tensordot", lambda a, b: gr.tensordot(a, b, axes=([1], [0])), lambda a, b: jnp.tensordot(a, b, axes=([1], [0])), ((2, 3), (3, 2))),
    Row("cross", gr.linalg.cross, jnp.linalg.cross, ((2, 3), (2, 3))),
    Row("matrix_power", lambda a: gr.linalg.matrix_power(a, 3), lambda a: jnp.linalg.matrix_power(a, 3), ((3, 3),)),
    Row("pinv", gr.linalg.pinv, jnp.linalg.pinv, ((4, 3),), second=False),
    Row("lstsq", lambda a, b: gr.linalg.lstsq(a, b)[0], lambda a, b: jnp.linalg.lstsq(a, b)[0], ((4, 3), (4, 2)), second=False),
    Row("eigh", lambda a: (lambda w, v: (v * gr.sin(w)) @ v.mT)(*gr.linalg.eigh(spd(gr)(a))),
        lambda a: (lambda w, v: (v * jnp.sin(w)) @ v.mT)(*jnp.linalg.eigh(spd(jnp)(a))), ((3, 3),)),
    Row("svd", lambda a: (lambda u, s, v: (u * gr.exp(s)) @ v)(*gr.linalg.svd(a, full_matrices=False)),
        lambda a: (lambda u, s, v: (u * jnp.exp(s)) @ v)(*jnp.linalg.svd(a, full_matrices=False)), ((3, 4),)),
    Row("lu", lambda a: gr.sin(gr.linalg.lu(spd(gr)(a))[1]) + gr.linalg.lu(spd(gr)(a))[2],
        lambda a: jnp.sin(jax.scipy.linalg.lu(spd(jnp)(a))[1]) + jax.scipy.linalg.lu(spd(jnp)(a))[2], ((3, 3),)),
    Row("eig", lambda a: gr.abs(gr.linalg.eigvals(a) ** 2).sum(), lambda a: jnp.abs(jnp.linalg.eigvals(a) ** 2).sum(), ((3, 3),), second=False),
    Row("conv1d", lambda x, w: nn("conv1d")(x, w, padding=2, dilation=2), conv(1, padding=2, rhs_dilation=(2,)), ((2, 3, 6), (4, 3, 3))),
    Row("grouped conv", lambda x, w: nn("conv2d")(x, w, groups=2), conv(2, feature_group_count=2), ((2, 4, 5, 4), (4, 2, 3, 2))),
    Row("conv3d", lambda x, w: nn("conv3d")(x, w, stride=2), conv(3, stride=2), ((1, 2, 4, 5, 4), (2, 2, 2, 2, 2))),
    Row("conv_transpose", lambda x, w: nn("conv_transpose2d")(x, w, stride=2, padding=1), conv_transpose, ((2, 3, 4, 3), (3, 2, 3, 3))),
    Row("max_pool", lambda x: nn("max_pool2d")(x * x, 2), lambda x: pooled(-np.inf, jax.lax.max, 2, 2)(x * x), ((2, 2, 4, 6),)),
    Row("overlapping max_pool", lambda x: nn("max_pool2d")(x, 3, stride=2), pooled(-np.inf, jax.lax.max, 3, 2), ((1, 2, 5, 7),)),
    Row("avg_pool", lambda x: nn("avg_pool2d")(x * x, 3, stride=2), lambda x: pooled(0.0, jax.lax.add, 3, 2)(x * x) / 9, ((2, 2, 5, 7),)),
    Row("unfold and fold", lambda x: nn("fold")(nn("unfold")(x * x, (2, 2)), (3, 4), (2, 2)),
        lambda x: (x * x) * jnp.outer(jnp.asarray([1, 2, 1]), jnp.asarray([1, 2, 2, 1])), ((1, 2, 3, 4),)),
    Row("layer_norm", lambda x, w, b: nn("layer_norm")(x, 4, w, b), lambda x, w, b: normalized(x, -1) * w + b, ((3, 4), (4,), (4,))),
    Row("rms_norm", lambda x, w: nn("rms_norm")(x, 4, w, eps=1e-6),
        lambda x, w: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, ((3, 4), (4,))),
    Row("batch_norm", lambda x: nn("batch_norm")(x, training=True), lambda x: normalized(x, (0, 2)), ((3, 2, 4),)),
    Row("group_norm", lambda x: nn("group_norm")(x, 2), lambda x: normalized(x.reshape(2, 2, 6), -1).reshape(x.shape), ((2, 4, 3),)),
    Row("cross_entropy", lambda x: nn("cross_entropy")(x, LABELS), picked, ((4, 4),)),
    Row("binary_cross_entropy", lambda x: nn("binary_cross_entropy")(gr.sigmoid(x), gr.sigmoid(2 * x)),
        lambda x: -(jax.nn.sigmoid(2 * x) * jax.nn.log_sigmoid(x) + jax.nn.sigmoid(-2 * x) * jax.nn.log_sigmoid(-x)).mean(), ((3, 4),)),
    Row("attention", gr.scaled_dot_product_attention, attention(), ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4))),
    Row("causal attention", lambda q, k, v: gr.scaled_dot_product_attention(q, k, v, is_causal=True),
        attention(causal=True), ((1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4))),
    Row("grouped attention", gr.scaled_dot_product_attention, attention(), ((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))),
    Row("associative_scan", lambda x: gr.associative_scan(gr.multiply, gr.sin(x)), lambda x: jax.lax.associative_scan(jnp.multiply, jnp.sin(x)), ((5,),)),
    Row("map", lambda x: gr.map(lambda r: gr.sin(r).sum(), x), lambda x: jax.lax.map(lambda r: jnp.sin(r).sum(), x), ((3, 4),)),
    Row("scan with weights", lambda c, w, xs: gr.scan(lambda c, x: (gr.tanh(c @ w + x), c * x), c, xs)[1],
        lambda c, w, xs: jax.lax.scan(lambda c, x: (jnp.tanh(c @ w + x), c * x), c, xs)[1], ((3,), (3, 3), (4, 3))),
]  # fmt: skip
