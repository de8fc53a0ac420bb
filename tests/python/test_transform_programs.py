"""Compositions of transforms to depth four, on random programs with control flow: each transform
has two forms that must agree, and the compositions of both are compared."""

from __future__ import annotations

import random
from typing import Any

import girih as gr
import numpy as np
import pytest

Function = Any


def program(rng: random.Random) -> Function:
    """A smooth random function of a vector of three to such a vector."""
    unary = [gr.sin, gr.tanh, lambda x: gr.exp(-x * x), lambda x: x * gr.sigmoid(x), gr.cos]
    matrix = gr.asarray(np.random.default_rng(rng.randrange(1000)).normal(size=(3, 3)) / 2)

    def product(x: gr.Tensor) -> gr.Tensor:
        return matrix @ x

    def gathered(x: gr.Tensor) -> gr.Tensor:
        return x[gr.argsort(x)] * x

    def chosen(x: gr.Tensor) -> gr.Tensor:
        return gr.cond(x.sum() > 0.1, gr.sin, lambda x: gr.cos(x) * x, x)

    def scanned(x: gr.Tensor) -> gr.Tensor:
        last, ys = gr.scan(lambda c, e: (gr.sin(c + e), c * e), x.mean(), x)
        return ys + last

    def looped(x: gr.Tensor) -> gr.Tensor:
        # The number of iterations depends on the argument.
        return gr.while_loop(
            lambda c: (c * c).sum() > 0.5, lambda c: c * 0.7 + 0.01, x, max_iterations=12
        )

    def solved(x: gr.Tensor) -> gr.Tensor:
        return gr.linalg.solve(gr.outer(x, x) + 3 * gr.eye(3, dtype=gr.float64), x)

    def counted(x: gr.Tensor) -> gr.Tensor:
        return gr.fori_loop(0, 3, lambda i, c: c * gr.cos(c) + i * 0.1, x)

    pieces = [product, gathered, chosen, scanned, looped, solved, counted, *unary]
    steps = [rng.choice(pieces) for _ in range(rng.randint(2, 4))]

    def run(x: gr.Tensor) -> gr.Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


DIRECTION = np.array([0.3, -0.5, 0.8])


def pushed(f: Function) -> Function:
    return lambda x: gr.jvp(f, (x,), (gr.asarray(DIRECTION),))[1]


def pushed_by_reverse(f: Function) -> Function:
    """The transpose of the pullback, which is linear: the derivative along the direction."""

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
    return gr.checkpoint(f, policy="dots")


PAIRS = [
    (pushed, pushed_by_reverse),
    (pulled, pulled_by_forward),
    (batched, looped_over),
    (linearised, pushed),
    (kept, lambda f: f),
    (lambda f: gr.compile(f), lambda f: f),
]


@pytest.mark.parametrize("seed", range(24))
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


@pytest.mark.parametrize("seed", range(12))
def test_derivatives_are_differences(seed: int) -> None:
    rng = random.Random(1000 + seed)
    f = program(rng)
    x = np.random.default_rng(seed).normal(size=3)
    h = 1e-6
    up, down = f(gr.asarray(x + h * DIRECTION)), f(gr.asarray(x - h * DIRECTION))
    expected = (up.numpy() - down.numpy()) / (2 * h)
    np.testing.assert_allclose(pushed(f)(gr.asarray(x)).numpy(), expected, rtol=2e-5, atol=1e-6)
