"""Loops, branches and batches of functions; the peer is JAX: loops of Python over NumPy only
have the values to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .rows import Operand, Row, jax, only

STEPS = 1000

Control = Callable[[Any, Any], Any]


class Python:
    """The control functions as loops of Python, for NumPy."""

    @staticmethod
    def while_loop(going: Callable[..., Any], body: Callable[..., Any], state: Any) -> Any:
        while going(state):
            state = body(state)
        return state

    @staticmethod
    def fori_loop(start: int, end: int, body: Callable[..., Any], state: Any) -> Any:
        for i in range(start, end):
            state = body(i, state)
        return state

    @staticmethod
    def scan(body: Callable[..., Any], carry: Any, parts: Any) -> Any:
        out = []
        for part in parts:
            carry, value = body(carry, part)
            out.append(value)
        return carry, np.stack(out)

    @staticmethod
    def cond(flag: Any, first: Callable[..., Any], second: Callable[..., Any], *x: Any) -> Any:
        return first(*x) if flag else second(*x)


def both(call: Callable[..., Any]) -> dict[str, Any]:
    """A call of the control functions, which Girih has in its namespace and JAX in `jax.lax`."""
    return only(
        lambda xp, *x: call(xp, xp, *x), jax=lambda xp, *x: call(jax().lax, xp, *x),
        numpy=lambda xp, *x: call(Python, xp, *x),
    )  # fmt: skip


def by_index(control: Any, xp: Any, x: Any) -> Any:
    """A loop that reads and writes single elements."""

    def body(i: Any, x: Any) -> Any:
        value = 0.9 * x[i - 1] + 0.1 * x[i]
        if xp is np:
            x = x.copy()
            x[i] = value
            return x
        return x.at[i].set(value)

    return control.fori_loop(1, x.shape[0], body, x)


def counted(control: Any, xp: Any, x: Any) -> Any:
    """1,000 steps of one scalar, until a condition."""
    done = lambda state: state[0] < STEPS
    step = lambda state: (state[0] + 1, state[1] * 0.99 + 1.0)
    return control.while_loop(done, step, (xp.asarray(0, dtype=xp.int32), x))[1]


def fori(body: Callable[[Any, Any], Any], steps: int = STEPS) -> Callable[..., Any]:
    """A loop of a number of steps."""
    return lambda control, xp, x: control.fori_loop(0, steps, lambda _, x: body(xp, x), x)


def scanned(body: Callable[..., Any]) -> Callable[..., Any]:
    """A scan over the rows of the second operand."""
    return lambda control, xp, carry, parts: list(
        control.scan(lambda c, p: body(xp, c, p), carry, parts)
    )


def choice(control: Any, xp: Any, x: Any, y: Any) -> Any:
    """A branch by a value."""
    return control.cond(x[0] > y[0], lambda x, y: x * 2.0 + y, lambda x, y: x - y, x, y)


def branching(control: Any, xp: Any, x: Any) -> Any:
    """A branch in each of 1,000 steps."""
    up, down = (lambda v: v * 0.5 - 1.0), (lambda v: v * 0.5 + 0.8)
    return control.fori_loop(0, STEPS, lambda _, v: control.cond(v > 1.0, up, down, v), x)


def newton(control: Any, xp: Any, x: Any) -> Any:
    """Square roots by iteration, until all have converged."""
    far = lambda state: xp.max(abs(state * state - x)) > 1e-3
    return control.while_loop(far, lambda state: 0.5 * (state + x / state), x)


def nested(control: Any, xp: Any, x: Any) -> Any:
    """A loop of 100 steps in a loop of 100 steps."""
    inner = lambda x: control.fori_loop(0, 100, lambda _, x: x * 0.999 + 0.01, x)
    return control.fori_loop(0, 100, lambda _, x: inner(x), x)


def collatz(control: Any, xp: Any, x: Any) -> Any:
    """Integer steps of a scalar."""
    step = lambda s: (xp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    start = (x + 97, xp.asarray(0, dtype=xp.int32))
    return control.while_loop(lambda s: s[0] > 1, step, start)[1]


def total(xp: Any, carry: Any, part: Any) -> Any:
    carry = carry * 0.9 + part
    return carry, carry


def recurrent(xp: Any, carry: Any, part: Any) -> Any:
    state, weights = carry
    state = xp.tanh(state @ weights + part)
    return (state, weights), state


def mapped(body: Callable[..., Any]) -> dict[str, Any]:
    """A function over the leading axis of all operands."""
    return only(
        lambda xp, *x: xp.vmap(lambda *p: body(xp, *p))(*x),
        jax=lambda xp, *x: jax().vmap(lambda *p: body(xp, *p))(*x),
        numpy=lambda xp, *x: xp.stack([body(xp, *p) for p in zip(*x, strict=True)]),
    )


def rows() -> list[Row]:
    """All rows of this module."""
    scalar, eight, small, line = Operand(()), Operand((8,)), Operand((16,)), Operand((1000,))
    table: list[tuple[str, str, tuple[Operand, ...], dict[str, Any]]] = [
        ("while_loop of 1,000 scalar steps", "while_loop", (scalar,), both(counted)),
        ("fori_loop of 1,000 scalar steps", "fori_loop", (scalar,),
         both(fori(lambda xp, x: x * 0.99 + 0.5))),
        ("fori_loop of 1,000 steps of 8 numbers", "fori_loop", (eight,),
         both(fori(lambda xp, x: xp.sin(x) + 0.1))),
        ("fori_loop of 1,000 products of 8 x 8", "fori_loop", (Operand((8, 8), kind="triangular"),),
         both(fori(lambda xp, x: x @ x * 0.5 + 0.1 * x))),
        ("fori_loop of 100 steps of 64 KB", "fori_loop", (Operand((16384,)),),
         both(fori(lambda xp, x: x * 0.99 + 0.5, 100))),
        ("fori_loop in fori_loop, 100 x 100", "fori_loop", (scalar,), both(nested)),
        ("fori_loop that writes x[i], 1,000 steps", "fori_loop", (line,),
         both(by_index)),
        ("while_loop of integers, 118 steps", "while_loop",
         (Operand((), "int32", "integers", high=1),),
         both(collatz)),
        ("while_loop by Newton, 64 KB", "while_loop", (Operand((16384,), kind="positive"),),
         both(newton)),
        ("scan of 1,000 scalars", "scan", (scalar, line), both(scanned(total))),
        ("scan of 1,000 small vectors", "scan", (small, Operand((1000, 16))), both(scanned(total))),
        ("scan of 1,000 vectors of 256", "scan", (Operand((256,)), Operand((1000, 256))),
         both(scanned(total))),
        ("scan of an RNN, 100 steps of 64", "scan",
         (Operand((16, 64)), Operand((64, 64), kind="triangular"), Operand((100, 16, 64))),
         both(lambda control, xp, state, w, parts: control.scan(
             lambda c, p: recurrent(xp, c, p), (state, w), parts)[1])),
        ("cond on 16 numbers", "cond", (small, small), both(choice)),
        ("cond on 64 KB", "cond", (Operand((16384,)),) * 2, both(choice)),
        ("fori_loop with cond, 1,000 steps", "cond", (scalar,), both(branching)),
        ("vmap of a dot product, 10,000 of 64", "vmap", (Operand((10_000, 64)),) * 2,
         mapped(lambda xp, x, y: (x * y).sum())),
        ("vmap of matrix @ vector, 1,000 of 32", "vmap",
         (Operand((1000, 32, 32)), Operand((1000, 32))), mapped(lambda xp, a, x: a @ x)),
        ("vmap of solve, 1,000 of 8 x 8", "vmap",
         (Operand((1000, 8, 8), kind="definite"), Operand((1000, 8))),
         mapped(lambda xp, a, b: xp.linalg.solve(a, b))),
        ("vmap of sort, 1,000 of 100", "vmap", (Operand((1000, 100)),),
         mapped(lambda xp, x: xp.sort(x))),
        ("vmap of an index, 10,000 rows", "vmap",
         (Operand((10_000, 64)), Operand((10_000,), "int32", "indices", high=64)),
         mapped(lambda xp, x, i: x[i])),
    ]  # fmt: skip
    return [
        Row(name, "loops", op, operands, calls, bytes=0.0, tolerance=1e-3,
            level=0 if name.startswith("cond on 16") else 1)
        for name, op, operands, calls in table
    ]  # fmt: skip


ROWS = rows()
