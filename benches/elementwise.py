"""Elementwise kernels and reductions: limited by memory bandwidth or by the quality of generated
code.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .measure import Workload, compute, gradient
from .peers import HINTED, Library

SIZES = {"64 KB": 1 << 14, "4 MB": 1 << 20, "64 MB": 1 << 24}
#: The target ratios by size.
ADD = {"64 KB": 1.0, "4 MB": 1 / 1.2, "64 MB": 1 / 4}
EXP = {"64 KB": 1 / 2, "4 MB": 1 / 2.5}
TEN = {"64 KB": 1 / 3, "4 MB": 1 / 3}
GELU = {"64 KB": 1 / 3, "4 MB": 1 / 5, "64 MB": 1 / 6}
ROWS, WIDTH = 4096, 1024
#: The least operations per element, two for each vector instruction, as for a multiply-add. exp
#: reduces its argument by two instructions, evaluates a polynomial of degree 5 or 6 by six, and
#: scales by two.
EXP_FLOPS = 20
#: x*a + b; the argument of exp by three instructions; exp; an addition and a division.
GELU_FLOPS = 2 + 6 + EXP_FLOPS + 4
#: Maximum, difference, exp, sum and scaling; for the gradient also a product's sum, a difference
#: and a product.
SOFTMAX_FLOPS = 4 + EXP_FLOPS + 4
SOFTMAX_GRADIENT_FLOPS = SOFTMAX_FLOPS + 6


def arrays(*shapes: tuple[int, ...]) -> Any:
    return lambda rng: [rng.standard_normal(s, np.float32) for s in shapes]


def gelu(lib: Library, x: Any, a: Any, b: Any) -> Any:
    return lib.gelu(x * a + b)


def chain(lib: Library, x: Any) -> Any:
    """Ten cheap operations."""
    t = abs(x * 1.1 + 0.5)
    t = lib.relu((t - 0.25) * x)
    return (-t + x) * 0.5 - 1.0


def softmax_loss(lib: Library, x: Any, weight: Any) -> Any:
    return (lib.softmax(x) * weight).sum()


def norm(lib: Library, x: Any, weight: Any, bias: Any) -> Any:
    return lib.layer_norm(x, weight, bias)


def norm_loss(lib: Library, x: Any, weight: Any, bias: Any, cotangent: Any) -> Any:
    return (lib.layer_norm(x, weight, bias) * cotangent).sum()


def build_add(lib: Library, operands: Any) -> Any:
    """Addition; the `out=` variants write to a given buffer."""
    if lib.name not in HINTED:
        return compute(lambda _, x, y: x + y)(lib, operands)
    x, y = (lib.tensor(a) for a in operands)
    out = lib.tensor(np.empty_like(operands[0]))
    return lambda: lib.add(x, y, out)  # type: ignore[attr-defined]


def build_copy(lib: Library, operands: Any) -> Any:
    """A copy of a NumPy array to a tensor of the library."""
    return lambda: lib.copied(operands[0])


def sized() -> list[Workload]:
    rows = []
    for label, n in SIZES.items():
        small, large = n == SIZES["64 KB"], n == SIZES["64 MB"]
        rows.append(
            Workload(
                f"x + y, {label}", arrays((n,), (n,)), build_add, bytes=12 * n, quick=small,
                target=ADD[label],
                libraries=("girih", "numpy", "torch", "torch.compile", "jax", "mlx", *HINTED),
            )
        )  # fmt: skip
        if not small:
            rows.append(
                Workload(
                    f"asarray of NumPy's array, {label}", arrays((n,)), build_copy, bytes=8 * n,
                    quick=not large, libraries=("girih", "numpy", "torch", "jax", "mlx"),
                )
            )  # fmt: skip
        if not large:
            exp = compute(lambda lib, x: lib.exp(x))
            name = f"exp(x), {label}"
            rows.append(
                Workload(
                    name, arrays((n,)), exp, flops=EXP_FLOPS * n, bytes=8 * n, target=EXP[label]
                )
            )  # fmt: skip
            ten = compute(chain)
            name = f"ten cheap operations, {label}"
            headline = "ten elementwise operations on 16,384 numbers" if small else ""
            rows.append(
                Workload(
                    name, arrays((n,)), ten, bytes=8 * n, quick=small, target=TEN[label],
                    headline=headline,
                )
            )  # fmt: skip
        rows.append(
            Workload(
                f"gelu(x*a + b), {label}", arrays((n,), (), ()), compute(gelu),
                flops=GELU_FLOPS * n, bytes=8 * n, quick=small, memory=large, target=GELU[label],
            )
        )  # fmt: skip
    return rows


def softmax(rows: int, width: int) -> Workload:
    """Softmax of the rows of a matrix."""
    n, body = rows * width, compute(lambda lib, x: lib.softmax(x))
    return Workload(
        f"softmax [{rows}, {width}]", arrays((rows, width)), body, flops=SOFTMAX_FLOPS * n,
        bytes=8 * n,
    )  # fmt: skip


def norms(rows: int, width: int) -> Workload:
    """Layer norm of the rows of a matrix."""
    inputs = arrays((rows, width), (width,), (width,))
    name = f"layer norm [{rows}, {width}]"
    return Workload(name, inputs, compute(norm), bytes=8 * rows * width + 8 * width)


def sums(rows: int, width: int, axis: int) -> Workload:
    """The sum of a matrix along an axis."""
    body = compute(lambda lib, x: lib.sum(x, axis))
    name = f"sum of [{rows}, {width}] along axis {axis}"
    return Workload(name, arrays((rows, width)), body, bytes=4 * rows * width, tolerance=1e-3)


def transposed(side: int) -> Workload:
    """x.T + y on square matrices."""
    body = compute(lambda lib, x, y: lib.permute(x, (1, 0)) + y)
    inputs = arrays((side, side), (side, side))
    return Workload(f"x.T + y, [{side}, {side}]", inputs, body, bytes=12 * side**2)


def on_rows() -> list[Workload]:
    n, size = ROWS * WIDTH, f"[{ROWS}, {WIDTH}]"
    x, vector = (ROWS, WIDTH), (WIDTH,)
    no_numpy = ("girih", "torch", "torch.compile", "jax", "mlx")
    return [
        replace(softmax(ROWS, WIDTH), quick=True, target=1 / 1.5),
        Workload(
            f"softmax {size}, gradient", arrays(x, x), gradient(softmax_loss), no_numpy,
            flops=SOFTMAX_GRADIENT_FLOPS * n, bytes=12 * n, target=1 / 1.5,
        ),
        replace(norms(ROWS, WIDTH), target=1 / 1.5),
        Workload(
            f"layer norm {size}, gradient", arrays(x, vector, vector, x), gradient(norm_loss),
            no_numpy, bytes=12 * n, target=1 / 1.5,
        ),
    ]  # fmt: skip


def selections() -> list[Workload]:
    """Top-k of rows: next tokens in the words of a vocabulary, and one long row."""
    return [
        Workload(
            f"the {count} largest of [{rows}, {size}]", arrays((rows, size)),
            compute(lambda lib, x, count=count: lib.topk(x, count)),
            ("girih", "torch", "torch.compile", "jax"), bytes=4 * rows * size, quick=rows > 1,
            # Libraries may return either of two equal elements.
            compared=lambda value: value[0],
        )
        for rows, size, count in ((32, 50_257, 50), (1, 1 << 20, 100))
    ]  # fmt: skip


def on_squares() -> list[Workload]:
    side = 4096
    by_axis = [
        replace(sums(side, side, axis), target=target) for axis, target in ((0, 1 / 1.5), (1, 1.0))
    ]
    return [*by_axis, replace(transposed(side), target=1 / 4)]


WORKLOADS = [*sized(), *on_rows(), *selections(), *on_squares()]
