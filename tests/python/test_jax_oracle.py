"""JAX as an oracle for the transforms, if it is installed: values, ``jvp``, ``vjp``, second
derivatives, ``vmap`` over each operand and over the derivatives, for the table in `jax_table.py`,
in float64.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

import girih as gr
import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
import jax_table  # noqa: E402

ROWS = [*jax_table.ROWS, *jax_table.LIBRARY]
BY_NAME = {row.name: row for row in ROWS}
SIZE = 3


def operands(row: jax_table.Row, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(row.name.encode()))
    return [rng.uniform(*row.domain, size=batch + shape) for shape in row.shapes]


def scalar(f: Any, library: Any) -> Any:
    """A scalar of a function's result, with different weights for its elements."""

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
    if not row.second:
        return
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
        if not row.second:
            continue
        twice = lambda *x: gr.jvp(gr.grad(f, numbers), x, x)[1]
        jtwice = lambda *x: jax.jvp(jax.grad(g, numbers), x, x)[1]
        again, jagain = gr.vmap(twice, in_axes=axes)(*ours), jax.vmap(jtwice, in_axes=axes)(*theirs)
        for a, b in zip(again, jagain, strict=True):
            close(a, b, f"vmap of the second derivatives {axes}", 1e-7)


def test_while_loop() -> None:
    """JAX has no reverse mode for an unbounded loop: compares forward mode, applied twice, and
    batches.
    """
    xs = np.random.default_rng(3).uniform(0.5, 4.0, size=(5, 3))

    def f(loop: Any, library: Any) -> Any:
        body = lambda c: (c[0] * 0.7 + 0.1 * library.sin(c[0]), c[1] + c[0] ** 2)
        return lambda x: loop(lambda c: (c[0] ** 2).sum() > 0.5, body, (x, x * x))[1]

    ours, theirs = f(gr.while_loop, gr), f(jax.lax.while_loop, jnp)

    def pushed(library: Any, f: Any) -> Any:
        return lambda x: library.jvp(f, (x,), (x * x,))[1]

    x = gr.asarray(xs)
    close(ours(x[0]), theirs(xs[0]), "value")
    for depth in range(3):
        close(ours(x[0]), theirs(xs[0]), f"{depth} derivatives")
        close(gr.vmap(ours)(x), jax.vmap(theirs)(xs), f"vmap of {depth} derivatives")
        batched, jbatched = gr.vmap(ours), jax.vmap(theirs)
        close(pushed(gr, batched)(x), pushed(jax, jbatched)(xs), f"jvp of vmap of {depth}", 1e-8)
        ours, theirs = pushed(gr, ours), pushed(jax, theirs)


#: Collectives over an axis of three members with values of shape (3, 3), with the same names in
#: both libraries.
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
        """Compares a transform of the function in both libraries."""
        found = of(gr, lambda x: f(gr, x))(gr.asarray(x))
        expected = of(jax, lambda x: f(jax.lax, x))(jnp.asarray(x))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)

    check(lambda lib, f: lib.vmap(f, axis_name="i"))
    # The gradient of all members' values with respect to one member's operand, and to all operands.
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


#: Differentiable ops without a row in the table, and the tests that compare them.
ELSEWHERE = {
    "all_gather": "test_collectives",
    "all_reduce": "test_collectives",
    "custom": "an op of a user, whose rules are the user's: test_callbacks.py",
    "reshard": "the identity: test_sharded.py",
    "to_device": "the identity: test_devices.py",
    "while_loop": "test_while_loop, and its reverse mode, which JAX has not, in test_control.py",
}


def ops_of(f: Any, operands: list[np.ndarray]) -> set[str]:
    """The names of the ops that a function records, including those in its regions."""
    text = gr.make_graph(f)(*(gr.asarray(x) for x in operands)).text
    return set(re.findall(r"= (\w+)\(", text))


def test_every_differentiable_op_is_in_the_table() -> None:
    seen: set[str] = set()
    for row in ROWS:
        numbers = tuple(range(len(row.shapes)))
        first = gr.grad(scalar(row.ours, gr), numbers)
        second = lambda *xs, first=first: gr.jvp(first, xs, xs)[1]
        seen |= ops_of(row.ours, operands(row)) | ops_of(first, operands(row))
        if row.second:
            seen |= ops_of(second, operands(row))
    differentiable = {op["name"] for op in gr._girih._registry() if op["differentiable"]}
    assert differentiable - seen == set(ELSEWHERE)
