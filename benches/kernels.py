"""Rows of single kernels at any size, for guards that need operands of given sizes."""

from __future__ import annotations

from .elementwise import arrays, chain, norms, softmax, sums, transposed
from .measure import Workload, compute
from .products import convolution, scaled

__all__ = [
    "add",
    "chained",
    "convolution",
    "exp",
    "norms",
    "product",
    "softmax",
    "sums",
    "transposed",
]


def add(n: int) -> Workload:
    """x + y on n numbers."""
    return Workload(f"x + y, {n}", arrays((n,), (n,)), compute(lambda _, x, y: x + y), bytes=12 * n)


def exp(n: int) -> Workload:
    """exp on n numbers."""
    return Workload(f"exp(x), {n}", arrays((n,)), compute(lambda lib, x: lib.exp(x)), bytes=8 * n)


def chained(n: int) -> Workload:
    """Ten cheap operations on n numbers."""
    return Workload(f"ten cheap operations, {n}", arrays((n,)), compute(chain), bytes=8 * n)


def product(m: int, k: int, n: int) -> Workload:
    """The product of two matrices."""
    return Workload(
        f"x @ w, {m}x{k}x{n}", scaled((m, k), (k, n)), compute(lambda _, x, w: x @ w),
        flops=2 * m * k * n, bytes=4 * (m * k + k * n + m * n), tolerance=1e-3,
    )  # fmt: skip
