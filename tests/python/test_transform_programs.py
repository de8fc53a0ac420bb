"""Compositions of transforms to depth four, on random programs with control flow: each transform
has two equivalent forms, and the compositions of both are compared.
"""

from __future__ import annotations

import random
from typing import Any

import girih as gr
import numpy as np
import pytest

Function = Any


def program(rng: random.Random, depth: int = 2) -> Function:
    """A smooth random function from a vector of three to a vector of three, with control flow to
    `depth` levels.
    """
    unary = [gr.sin, gr.tanh, lambda x: gr.exp(-x * x), lambda x: x * gr.sigmoid(x), gr.cos]
    matrix = gr.asarray(np.random.default_rng(rng.randrange(1000)).normal(size=(3, 3)) / 2)
    key = gr.random.key(rng.randrange(1000))

    def inner() -> Function:
        """The body of a branch or an iteration."""
        return program(rng, depth - 1) if depth > 0 else rng.choice(unary)

    def product(x: gr.Tensor) -> gr.Tensor:
        return matrix @ x

    def gathered(x: gr.Tensor) -> gr.Tensor:
        return x[gr.argsort(x)] * x

    def drawn(x: gr.Tensor) -> gr.Tensor:
        return x + gr.random.normal((3,), key=key, dtype=gr.float64) * 0.1

    def solved(x: gr.Tensor) -> gr.Tensor:
        return gr.linalg.solve(gr.outer(x, x) + 3 * gr.eye(3, dtype=gr.float64), x)

    def accumulated(x: gr.Tensor) -> gr.Tensor:
        # A linear recurrence: pairs (a, b) stand for the maps c -> a c + b, composed from the left.
        pair = (gr.cos(x), gr.sin(x))
        joined = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])
        return gr.associative_scan(joined, pair)[1]

    @gr.custom_jvp
    def ruled(x: gr.Tensor) -> gr.Tensor:
        return gr.sin(x) * x

    @ruled.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return gr.sin(x) * x, t * (gr.cos(x) * x + gr.sin(x))

    plain = [product, gathered, drawn, solved, accumulated, ruled, *unary]

    def chosen() -> Function:
        true, false = inner(), inner()
        return lambda x: gr.cond(x.sum() > 0.1, true, false, x)

    def switched() -> Function:
        branches = [inner(), inner(), inner()]
        return lambda x: gr.switch((x.sum() * 2).astype(gr.int64), branches, x)

    def scanned() -> Function:
        step = inner()

        def run(x: gr.Tensor) -> gr.Tensor:
            def body(c: gr.Tensor, e: gr.Tensor) -> tuple[gr.Tensor, gr.Tensor]:
                return gr.tanh(step(c) + e), c[0] * e

            last, ys = gr.scan(body, gr.sin(x), x)
            return ys + last

        return run

    def looped() -> Function:
        # The number of iterations depends on the argument.
        step = inner()
        return lambda x: gr.while_loop(
            lambda c: (c * c).sum() > 0.5,
            lambda c: c * 0.6 + 0.02 * gr.tanh(step(c)),
            x,
            max_iterations=12,
        )

    def counted() -> Function:
        step = inner()
        return lambda x: gr.fori_loop(0, 3, lambda i, c: gr.cos(step(c)) + i * 0.1, x)

    def mapped() -> Function:
        step = inner()
        return lambda x: gr.map(lambda e: step(x * e)[0], x)

    def kept() -> Function:
        policy = rng.choice(["nothing", "dots", lambda op, x: op in ("sin", "tanh")])
        return gr.checkpoint(inner(), policy=policy)

    nested = [chosen, switched, scanned, looped, counted, mapped, kept]

    def step() -> Function:
        if depth > 0 and rng.random() < 0.6:
            return rng.choice(nested)()
        return rng.choice(plain)

    steps = [step() for _ in range(rng.randint(1, 3 if depth > 1 else 2))]

    def run(x: gr.Tensor) -> gr.Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


DIRECTION = np.array([0.3, -0.5, 0.8])


def pushed(f: Function) -> Function:
    return lambda x: gr.jvp(f, (x,), (gr.asarray(DIRECTION),))[1]


def pushed_by_reverse(f: Function) -> Function:
    """The transpose of the pullback, which is linear: the directional derivative."""

    def run(x: gr.Tensor) -> gr.Tensor:
        y, pullback = gr.vjp(f, x)
        return gr.vjp(lambda ct: pullback(ct)[0], gr.zeros_like(y))[1](gr.asarray(DIRECTION))[0]

    return run


def pulled(f: Function) -> Function:
    return gr.grad(lambda x: (f(x) * gr.asarray(DIRECTION)).sum())


def pulled_by_forward(f: Function) -> Function:
    return lambda x: gr.asarray(DIRECTION) @ gr.jacfwd(f)(x)


def batched(f: Function) -> Function:
    return lambda x: gr.vmap(f)(gr.stack([x, x * 0.5])).sum(axis=0)


def looped_over(f: Function) -> Function:
    return lambda x: f(x) + f(x * 0.5)


def linearised(f: Function) -> Function:
    return lambda x: gr.linearize(f, x)[1](gr.asarray(DIRECTION))


def kept(f: Function) -> Function:
    return gr.checkpoint(f, policy=lambda op, x: op in ("matmul", "sin", "exp"))


PAIRS = [
    (pushed, pushed_by_reverse),
    (pulled, pulled_by_forward),
    (batched, looped_over),
    (linearised, pushed),
    (kept, lambda f: f),
    (lambda f: gr.compile(f), lambda f: f),
]


@pytest.mark.parametrize("seed", range(60))
def test_compositions_agree(seed: int) -> None:
    rng = random.Random(seed)
    f = program(rng)
    chain = [rng.choice(PAIRS) for _ in range(rng.randint(2, 4))]
    one, other = f, f
    for a, b in chain:
        one, other = a(one), b(other)
    x = gr.asarray(np.random.default_rng(seed).normal(size=3))
    found, expected = one(x).numpy(), other(x).numpy()
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8 * scale)


@pytest.mark.parametrize("seed", range(30))
def test_derivatives_are_differences(seed: int) -> None:
    rng = random.Random(1000 + seed)
    f = program(rng)
    x = np.random.default_rng(seed).normal(size=3)
    h = 1e-6
    up, down = f(gr.asarray(x + h * DIRECTION)), f(gr.asarray(x - h * DIRECTION))
    expected = (up.numpy() - down.numpy()) / (2 * h)
    np.testing.assert_allclose(pushed(f)(gr.asarray(x)).numpy(), expected, rtol=2e-5, atol=1e-6)
