"""Matrix products, convolutions and small networks of them: limited by multiply-adds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .measure import Workload, compute, gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .peers import Library

SIDE = 1024
#: The target ratios by number of rows.
TARGETS = {1: 1 / 1.5, 4: 1 / 4, 8: 1 / 4, 16: 1 / 2.5, 32: 1 / 1.8, 128: 1 / 1.15, 1024: 1.0}


def scaled(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Operands whose products are of order one: matrices over the square root of their rows."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        draws = [rng.standard_normal(s, np.float32) for s in shapes]
        return [
            (d / np.sqrt(d[0].size if d.ndim == 4 else d.shape[0])).astype(np.float32)
            if i and d.ndim > 1
            else d
            for i, d in enumerate(draws)
        ]

    return make


def linear_gelu(lib: Library, x: Any, w: Any, b: Any) -> Any:
    return lib.gelu(x @ w + b)


def low_product(lib: Library, operands: Sequence[np.ndarray]) -> Any:
    x, w = (lib.low(a) for a in operands)
    function = lib.compiled(lambda x, w: x @ w)
    return lambda: lib.finish(function(x, w))


def byte_inputs(m: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    draw = lambda rng, *shape: rng.integers(-128, 128, shape, np.int8)
    return lambda rng: [draw(rng, m, SIDE), draw(rng, SIDE, SIDE)]


def scaled_bytes(m: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Rows, int8 weights, and a scale for each of the weights' columns."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        scale = rng.uniform(1e-4, 1e-3, SIDE).astype(np.float32)
        w = rng.integers(-127, 128, (SIDE, SIDE), np.int8)
        return [rng.standard_normal((m, SIDE), np.float32), w, scale]

    return make


def mlp(lib: Library, x: Any, w1: Any, w2: Any) -> Any:
    return lib.relu(x @ w1) @ w2


def products() -> list[Workload]:
    rows = []
    for m, target in TARGETS.items():
        shapes = ((m, SIDE), (SIDE, SIDE), (SIDE,))
        traffic = 4 * (2 * m * SIDE + SIDE * SIDE)
        rows.append(
            Workload(
                f"x @ w, M = {m}", scaled(*shapes[:2]), compute(lambda _, x, w: x @ w),
                flops=2 * m * SIDE * SIDE, bytes=traffic, quick=m in (1, 128),
                memory=m == 1024, target=target,
            )
        )  # fmt: skip
        rows.append(
            Workload(
                f"gelu(x @ w + b), M = {m}", scaled(*shapes), compute(linear_gelu),
                flops=2 * m * SIDE * SIDE, bytes=traffic, target=target,
            )
        )  # fmt: skip
    rows += [
        Workload(
            f"x @ w in bfloat16, M = {m}", scaled((m, SIDE), (SIDE, SIDE)), low_product,
            ("girih", "torch", "torch.compile", "jax", "mlx"), flops=2 * m * SIDE * SIDE,
            bytes=2 * (2 * m * SIDE + SIDE * SIDE), dtype="bf16", tolerance=0.02,
            target=1 / 1.4,
        )
        for m in (8, 32, 128)
    ]  # fmt: skip
    rows += [
        Workload(
            f"x @ w of int8 in int32, M = {m}", byte_inputs(m),
            compute(lambda lib, x, w: lib.byte_product(x, w)), ("girih", "torch", "jax"),
            flops=2 * m * SIDE * SIDE, bytes=5 * m * SIDE + SIDE * SIDE, dtype="int8",
            tolerance=0.0,
        )
        for m in (8, 128, 1024)
    ]  # fmt: skip
    rows += [
        Workload(
            f"x @ (w of int8 * scale), M = {m}", scaled_bytes(m),
            compute(lambda _, x, w, scale: x @ (w * scale)),
            flops=2 * m * SIDE * SIDE, bytes=8 * m * SIDE + SIDE * SIDE, tolerance=1e-3,
            headline="a vector times a matrix of int8 weights with scales" if m == 1 else "",
        )
        for m in (1, 32)
    ]  # fmt: skip
    return rows


def convolution(
    batch: int, channels: int, side: int, out: int, kernel: int, stride: int, quick: bool = False
) -> Workload:
    padding = kernel // 2
    small = (side + 2 * padding - kernel) // stride + 1
    name = f"convolution {kernel}x{kernel}"
    if stride > 1:
        name += f" by {stride}"
    moved = batch * (channels * side**2 + out * small**2) + out * channels * kernel**2
    return Workload(
        f"{name}, {batch}x{channels}x{side}x{side} to {out}",
        scaled((batch, channels, side, side), (out, channels, kernel, kernel)),
        compute(lambda lib, x, w: lib.conv(x, w, stride, padding)),
        ("girih", "torch", "torch nhwc", "jax"),
        flops=2 * batch * out * small**2 * channels * kernel**2,
        bytes=4 * moved,
        quick=quick,
    )


def depthwise(channels: int, side: int, stride: int) -> Workload:
    small = (side - 1) // stride + 1
    moved = channels * (side**2 + small**2 + 9)
    by = " by 2" if stride > 1 else ""
    return Workload(
        f"depthwise convolution 3x3{by}, 1x{channels}x{side}x{side}",
        scaled((1, channels, side, side), (channels, 1, 3, 3)),
        compute(lambda lib, x, w: lib.conv(x, w, stride, 1, channels)),
        ("girih", "torch", "torch nhwc", "jax"),
        flops=2 * channels * small**2 * 9,
        bytes=4 * moved,
    )


def conv_gradients(batch: int, channels: int, side: int) -> list[Workload]:
    """Gradients with respect to image and kernel. PyTorch computes the convolution itself, too."""
    image, kernel = (batch, channels, side, side), (channels, channels, 3, 3)
    name = f"convolution 3x3, {batch}x{channels}x{side}x{side}"

    def by_image(lib: Library, x: Any, w: Any, seed: Any) -> Any:
        return (lib.conv(x, w, 1, 1) * seed).sum()

    def by_kernel(lib: Library, w: Any, x: Any, seed: Any) -> Any:
        return by_image(lib, x, w, seed)

    image_row = Workload(
        f"{name}, gradient by the image",
        scaled(image, kernel, image),
        gradient(by_image),
        ("girih", "torch", "torch nhwc", "jax"),
        flops=2 * batch * side**2 * channels**2 * 9,
        bytes=4 * (2 * batch * channels * side**2 + channels**2 * 9),
        target=1.0,
    )
    kernel_row = replace(
        image_row,
        name=f"{name}, gradient by the kernel",
        inputs=scaled(kernel, image, image),
        build=gradient(by_kernel),
    )
    return [image_row, kernel_row]


def networks() -> list[Workload]:
    return [
        Workload(
            f"relu(x @ w1) @ w2, batch {batch}",
            scaled((batch, 128), (128, 256), (256, 10)),
            compute(mlp),
            flops=2 * batch * 256 * (128 + 10),
            bytes=4 * (batch * 138 + 256 * 138),
            quick=batch == 32,
            target=1 / 2.5,
        )
        for batch in (32, 1)
    ]


def attentions(heads: int = 8, length: int = 4096, width: int = 64) -> list[Workload]:
    """Attention over sequences whose scores exceed the caches."""
    stacked, one = (3, 1, heads, length, width), (1, heads, length, width)
    draw = lambda *shapes: lambda rng: [rng.standard_normal(s, np.float32) for s in shapes]

    def attention(lib: Library, x: Any) -> Any:
        return lib.attention(x[0], x[1], x[2])

    row = Workload(
        f"attention, {heads} heads of {length}x{width}", draw(stacked), compute(attention),
        ("girih", "torch", "jax"), flops=4 * heads * length**2 * width,
        bytes=4 * 4 * heads * length * width, memory=True,
    )  # fmt: skip
    # The forward pass has two products, the derivative four of the same size; recomputation is not
    # counted.
    slope = replace(
        row,
        name=f"{row.name}, gradient",
        inputs=draw(stacked, one),
        build=gradient(lambda lib, x, seed: (attention(lib, x) * seed).sum()),
        flops=3 * row.flops,
        bytes=2 * row.bytes,
    )
    return [row, slope]


WORKLOADS = [
    *products(),
    convolution(8, 64, 56, 64, 3, 1),
    # ResNet-18 with a batch of one image.
    convolution(1, 3, 224, 64, 7, 2),
    convolution(1, 64, 56, 64, 3, 1),
    convolution(1, 64, 56, 128, 3, 2),
    convolution(1, 64, 56, 128, 1, 2),
    convolution(1, 128, 28, 128, 3, 1),
    convolution(1, 128, 28, 256, 3, 2),
    convolution(1, 256, 14, 256, 3, 1),
    convolution(1, 256, 14, 512, 3, 2),
    convolution(1, 512, 7, 512, 3, 1, quick=True),
    convolution(1, 256, 14, 256, 1, 1),
    depthwise(64, 56, 1),
    depthwise(256, 14, 1),
    depthwise(64, 56, 2),
    *conv_gradients(8, 64, 28),
    *attentions(),
    *networks(),
]
