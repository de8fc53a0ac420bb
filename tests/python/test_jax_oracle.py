"""JAX as an oracle of the transforms, where it is installed: values, ``jvp``, ``vjp``, second
derivatives, ``vmap`` over each operand and of the derivatives, for the table below, in float64."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import girih as gr
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy


class Row(NamedTuple):
    """A function of both libraries, with the shapes of its operands and where they are drawn from."""

    name: str
    ours: Any
    theirs: Any
    shapes: tuple[tuple[int, ...], ...]
    domain: tuple[float, float] = (-1.5, 1.6)


def same(name: str, *shapes: tuple[int, ...], **options: Any) -> Row:
    """A function that has one name."""
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
BY_NAME = {row.name: row for row in ROWS}
SIZE = 3


def operands(row: Row, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    return [rng.uniform(*row.domain, size=batch + shape) for shape in row.shapes]


def scalar(f: Any, library: Any) -> Any:
    """A number of a function's result, with different weights for its elements."""

    def run(*xs: Any) -> Any:
        y = f(*xs)
        weights = np.cos(0.37 * np.arange(int(np.prod(y.shape)))).reshape(y.shape)
        return (y * library.asarray(weights)).sum()

    return run


def close(found: Any, expected: Any, what: str, tolerance: float = 1e-9) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * scale, err_msg=what
    )


@pytest.mark.parametrize("name", BY_NAME)
def test_derivatives(name: str) -> None:
    row = BY_NAME[name]
    xs = operands(row)
    ts = [np.cos(x + 0.3) for x in xs]
    ours, theirs = [gr.asarray(x) for x in xs], [jnp.asarray(x) for x in xs]
    along, jalong = [gr.asarray(t) for t in ts], [jnp.asarray(t) for t in ts]
    value, tangent = gr.jvp(row.ours, ours, along)
    jvalue, jtangent = jax.jvp(row.theirs, theirs, jalong)
    close(value, jvalue, "value")
    close(tangent, jtangent, "jvp")
    cotangent = np.sin(np.arange(jvalue.size)).reshape(jvalue.shape)
    pulled = gr.vjp(row.ours, *ours)[1](gr.asarray(cotangent))
    for found, expected in zip(
        pulled, jax.vjp(row.theirs, *theirs)[1](jnp.asarray(cotangent)), strict=True
    ):
        close(found, expected, "vjp")
    f, g = scalar(row.ours, gr), scalar(row.theirs, jnp)
    numbers = tuple(range(len(xs)))
    second = gr.jvp(gr.grad(f, numbers), ours, along)[1]
    expected_second = jax.jvp(jax.grad(g, numbers), theirs, jalong)[1]
    for found, expected in zip(second, expected_second, strict=True):
        close(found, expected, "forward over reverse", 1e-7)
    reverse = gr.grad(
        lambda *x: sum((d * t).sum() for d, t in zip(gr.grad(f, numbers)(*x), along, strict=True)),
        numbers,
    )
    for found, expected in zip(reverse(*ours), expected_second, strict=True):
        close(found, expected, "reverse over reverse", 1e-7)


@pytest.mark.parametrize("name", BY_NAME)
def test_batches(name: str) -> None:
    row = BY_NAME[name]
    count = len(row.shapes)
    whole = operands(row, (SIZE,))
    f, g = scalar(row.ours, gr), scalar(row.theirs, jnp)
    numbers = tuple(range(count))
    ways = {tuple(i == j for j in range(count)) for i in range(count)} | {(True,) * count}
    for marks in sorted(ways):
        axes = tuple(0 if mark else None for mark in marks)
        xs = [x if mark else x[0] for x, mark in zip(whole, marks, strict=True)]
        ours, theirs = [gr.asarray(x) for x in xs], [jnp.asarray(x) for x in xs]
        found = gr.vmap(row.ours, in_axes=axes)(*ours)
        close(found, jax.vmap(row.theirs, in_axes=axes)(*theirs), f"vmap {axes}")
        by = gr.vmap(gr.grad(f, numbers), in_axes=axes)(*ours)
        expected = jax.vmap(jax.grad(g, numbers), in_axes=axes)(*theirs)
        for a, b in zip(by, expected, strict=True):
            close(a, b, f"vmap of grad {axes}", 1e-8)
        push = lambda *x: gr.jvp(row.ours, x, x)[1]
        jpush = lambda *x: jax.jvp(row.theirs, x, x)[1]
        a, b = gr.vmap(push, in_axes=axes)(*ours), jax.vmap(jpush, in_axes=axes)(*theirs)
        close(a, b, f"vmap of jvp {axes}", 1e-8)
        total = gr.grad(lambda *x: gr.vmap(f, in_axes=axes)(*x).sum(), numbers)(*ours)  # noqa: B023
        jtotal = jax.grad(lambda *x: jax.vmap(g, in_axes=axes)(*x).sum(), numbers)(*theirs)  # noqa: B023
        for a, b in zip(total, jtotal, strict=True):
            close(a, b, f"grad of vmap {axes}", 1e-8)


#: Collectives over an axis of three members, of values of shape (3, 3), by the names that both have.
COLLECTIVES = {
    "psum": lambda lax, x: lax.psum(x * x, "i"),
    "pmean": lambda lax, x: x - lax.pmean(x, "i"),
    "all_gather": lambda lax, x: lax.all_gather(x, "i", axis=1) * x[:, None],
    "all_gather_tiled": lambda lax, x: lax.all_gather(x, "i", axis=1, tiled=True),
    "psum_scatter": lambda lax, x: lax.psum_scatter(x, "i", scatter_dimension=1),
    "psum_scatter_tiled": lambda lax, x: lax.psum_scatter(x, "i", scatter_dimension=0, tiled=True),
    "all_to_all": lambda lax, x: lax.all_to_all(x, "i", 1, 1),
    "all_to_all_tiled": lambda lax, x: lax.all_to_all(x, "i", 0, 1, tiled=True),
    "ppermute": lambda lax, x: lax.ppermute(x, "i", [(0, 2), (2, 1), (1, 0)]),
    "pshuffle": lambda lax, x: lax.pshuffle(x, "i", [1, 2, 0]),
    "axis_index": lambda lax, x: x * lax.axis_index("i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str) -> None:
    f = COLLECTIVES[name]
    x = np.random.default_rng(7).normal(size=(3, 3, 3))

    def check(of: Any) -> None:
        """What a transform makes of the function, in both libraries."""
        found = of(gr, lambda x: f(gr, x))(gr.asarray(x))
        expected = of(jax, lambda x: f(jax.lax, x))(jnp.asarray(x))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)

    check(lambda lib, f: lib.vmap(f, axis_name="i"))
    # The gradient of all members' values by one member's operand, and that of all operands.
    check(lambda lib, f: lib.vmap(lib.grad(lambda x: (f(x) ** 3).sum()), axis_name="i"))
    check(lambda lib, f: lib.grad(lambda x: (lib.vmap(f, axis_name="i")(x) ** 3).sum()))
    check(lambda lib, f: lib.vmap(lambda x: lib.jvp(f, (x,), (x * x,))[1], axis_name="i"))
    check(lambda lib, f: lib.vmap(f, 1, 1, axis_name="i"))


@pytest.mark.parametrize("reduce", ["pmax", "pmin"])
def test_extrema(reduce: str) -> None:
    x = np.random.default_rng(8).normal(size=(4, 3))
    found = gr.vmap(lambda x: getattr(gr, reduce)(x, "i"), axis_name="i")(gr.asarray(x))
    expected = jax.vmap(lambda x: getattr(jax.lax, reduce)(x, "i"), axis_name="i")(x)
    np.testing.assert_array_equal(found.numpy(), expected)
