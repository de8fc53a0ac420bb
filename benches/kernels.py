"""Rows of single kernels at any size, for guards that need operands of given sizes."""

from __future__ import annotations

from typing import Any

from .elementwise import arrays, chain, norm
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


def sums(rows: int, width: int, axis: int) -> Workload:
    """The sum of a matrix along an axis."""
    body = lambda lib, x: lib.sum(x, axis)
    name = f"sum of [{rows}, {width}] along axis {axis}"
    moved = 4 * rows * width
    return Workload(name, arrays((rows, width)), compute(body), bytes=moved, tolerance=1e-3)


def softmax(rows: int, width: int) -> Workload:
    """Softmax of the rows of a matrix."""
    body = lambda lib, x: lib.softmax(x)
    name = f"softmax [{rows}, {width}]"
    return Workload(name, arrays((rows, width)), compute(body), bytes=8 * rows * width)


def norms(rows: int, width: int) -> Workload:
    """Layer norm of the rows of a matrix."""
    inputs = arrays((rows, width), (width,), (width,))
    name = f"layer norm [{rows}, {width}]"
    return Workload(name, inputs, compute(norm), bytes=8 * rows * width + 8 * width)


def transposed(side: int) -> Workload:
    """x.T + y on square matrices."""
    body: Any = lambda lib, x, y: lib.permute(x, (1, 0)) + y
    inputs = arrays((side, side), (side, side))
    return Workload(f"x.T + y, [{side}, {side}]", inputs, compute(body), bytes=12 * side**2)


def product(m: int, k: int, n: int) -> Workload:
    """The product of two matrices."""
    return Workload(
        f"x @ w, {m}x{k}x{n}", scaled((m, k), (k, n)), compute(lambda _, x, w: x @ w),
        flops=2 * m * k * n, bytes=4 * (m * k + k * n + m * n), tolerance=1e-3,
    )  # fmt: skip
