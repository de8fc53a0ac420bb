"""Convolutions, pooling and resizing."""

from __future__ import annotations

from typing import Any

from .rows import Call, Operand, Row, jax, only, shape_text


def conv_calls(stride: int = 1, padding: int = 0, dilation: int = 1) -> dict[str, Call]:
    """Calls of a two-dimensional convolution, in as many groups as the shapes say."""

    def ours(xp: Any, x: Any, w: Any) -> Any:
        groups = x.shape[1] // w.shape[1]
        return xp.nn.functional.conv2d(x, w, None, stride, padding, dilation, groups)

    def jax_call(xp: Any, x: Any, w: Any) -> Any:
        return jax().lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, rhs_dilation=(dilation, dilation),
            feature_group_count=x.shape[1] // w.shape[1],
        )  # fmt: skip

    return only(ours, torch=ours, jax=jax_call)


def convolutions() -> list[Row]:
    """Two-dimensional convolutions by image, kernel and options."""
    rows = []
    forms: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
        ("convolution 3x3, batch 4", (4, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
        ("convolution 3x3 of 3 channels", (4, 3, 128, 128), (32, 3, 3, 3), {"padding": 1}),
        ("convolution 1x1", (4, 128, 28, 28), (128, 128, 1, 1), {}),
        ("convolution 5x5", (4, 32, 32, 32), (32, 32, 5, 5), {"padding": 2}),
        ("convolution 3x3 by 2", (4, 64, 56, 56), (64, 64, 3, 3),
         {"padding": 1, "stride": 2}),
        ("convolution 3x3, dilated by 2", (4, 32, 56, 56), (32, 32, 3, 3),
         {"padding": 2, "dilation": 2}),
        ("convolution 3x3 in 4 groups", (4, 64, 56, 56), (64, 16, 3, 3), {"padding": 1}),
        ("convolution 3x3 in 16 groups", (4, 64, 56, 56), (64, 4, 3, 3),
         {"padding": 1}),
        ("depthwise convolution 5x5", (4, 32, 64, 64), (32, 1, 5, 5), {"padding": 2}),
        ("depthwise convolution 3x3", (4, 64, 56, 56), (64, 1, 3, 3), {"padding": 1}),
        ("depthwise convolution 7x7", (4, 64, 28, 28), (64, 1, 7, 7), {"padding": 3}),
        ("depthwise convolution 3x3 by 2", (4, 64, 56, 56), (64, 1, 3, 3),
         {"padding": 1, "stride": 2}),
        ("convolution 3x3, tiny", (1, 4, 8, 8), (4, 4, 3, 3), {"padding": 1}),
        ("blur 5x5 of an image", (1, 1, 512, 512), (1, 1, 5, 5), {"padding": 2}),
    ]  # fmt: skip
    for name, image, kernel, options in forms:
        x, w = Operand(image), Operand(kernel, kind="unit")
        stride, padding, dilation = (options.get(k, d) for k, d in
                                     (("stride", 1), ("padding", 0), ("dilation", 1)))  # fmt: skip
        height, width = (
            (n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
            for n, k in zip(image[2:], kernel[2:], strict=True)
        )
        results = image[0] * kernel[0] * height * width
        flops = 2.0 * results * kernel[1] * kernel[2] * kernel[3]
        rows.append(
            Row(f"{name}, {shape_text(image)}", "convolutions", "conv", (x, w),
                conv_calls(**options), flops=flops, bytes=x.bytes + w.bytes + 4.0 * results,
                tolerance=1e-3, level=0 if "tiny" in name else 1)
        )  # fmt: skip
    return rows


def other_ranks() -> list[Row]:
    """Convolutions of lines and volumes, and transposed ones."""
    line = lambda xp, x, w: xp.nn.functional.conv1d(x, w, None, 1, 1)
    volume = lambda xp, x, w: xp.nn.functional.conv3d(x, w, None, 1, 1)
    turned = lambda xp, x, w: xp.nn.functional.conv_transpose2d(x, w, None, 2)
    of_jax = lambda rank: (
        lambda xp, x, w: jax().lax.conv_general_dilated(x, w, (1,) * rank, [(1, 1)] * rank)
    )
    low = Operand((4, 64, 28, 28), "bfloat16"), Operand((64, 64, 3, 3), "bfloat16", "unit")
    return [
        Row("convolution of lines 3, [8, 64, 1024]", "convolutions", "conv1d",
            (Operand((8, 64, 1024)), Operand((64, 64, 3), kind="unit")),
            only(line, torch=line, jax=of_jax(1)), flops=2.0 * 8 * 64 * 64 * 1024 * 3,
            tolerance=1e-3),
        Row("convolution of long lines 3, [1, 1, 262144]", "convolutions", "conv1d",
            (Operand((1, 1, 1 << 18)), Operand((1, 1, 3), kind="unit")),
            only(line, torch=line, jax=of_jax(1)), bytes=float(2 << 20), tolerance=1e-3),
        Row("convolution of volumes 3, [1, 16, 32, 32, 32]", "convolutions", "conv3d",
            (Operand((1, 16, 32, 32, 32)), Operand((16, 16, 3, 3, 3), kind="unit")),
            only(volume, torch=volume, jax=of_jax(3)), flops=2.0 * 16 * 16 * 27 * 32**3,
            tolerance=1e-3),
        Row("transposed convolution 4x4 by 2, [4, 32, 28, 28]", "convolutions", "conv_transpose",
            (Operand((4, 32, 28, 28)), Operand((32, 32, 4, 4), kind="unit")),
            only(turned, torch=turned), flops=2.0 * 4 * 32 * 32 * 16 * 28 * 28, tolerance=1e-3),
        Row("convolution 3x3, bf16, [4, 64, 28, 28]", "convolutions", "conv", low,
            conv_calls(padding=1), flops=2.0 * 4 * 64 * 64 * 9 * 28 * 28, dtype="bf16",
            tolerance=3e-2),
    ]  # fmt: skip


def jax_pool(kind: str, size: int, stride: int) -> Call:
    """Pooling in JAX."""

    def call(xp: Any, x: Any) -> Any:
        lax = jax().lax
        start, function = (0.0, lax.add) if kind == "avg" else (-xp.inf, lax.max)
        found = lax.reduce_window(
            x, start, function, (1, 1, size, size), (1, 1, stride, stride), "VALID"
        )
        return found / size**2 if kind == "avg" else found

    return call


def pools() -> list[Row]:
    """Maxima and means of windows."""
    rows = []
    x = Operand((8, 64, 56, 56))
    for kind, size, stride in (
        ("max", 2, 2),
        ("max", 3, 2),
        ("max", 3, 1),
        ("avg", 2, 2),
        ("avg", 3, 1),
    ):
        ours = lambda xp, x, k=kind, s=size, t=stride: getattr(
            xp.nn.functional, f"{k}_pool2d"
        )(x, s, t)  # fmt: skip
        rows.append(
            Row(f"{kind} pooling {size}x{size} by {stride}, [8, 64, 56, 56]", "pooling",
                f"{kind}_pool", (x,), only(ours, torch=ours, jax=jax_pool(kind, size, stride)),
                bytes=x.bytes * (1 + 1 / stride**2), tolerance=1e-4)
        )  # fmt: skip
    adaptive = lambda xp, x: xp.nn.functional.adaptive_avg_pool2d(x, 1)
    line = lambda xp, x: xp.nn.functional.max_pool1d(x, 2)
    return [
        *rows,
        Row("mean of all pixels, [8, 64, 56, 56]", "pooling", "avg_pool", (x,),
            only(adaptive, torch=adaptive, jax=lambda xp, x: x.mean((2, 3), keepdims=True),
                 numpy=lambda xp, x: x.mean((2, 3), keepdims=True)), bytes=x.bytes),
        Row("max pooling of lines by 2, [8, 64, 4096]", "pooling", "max_pool",
            (Operand((8, 64, 4096)),), only(line, torch=line), bytes=1.5 * 8 * 64 * 4096 * 4),
        Row("max pooling 2x2, tiny", "pooling", "max_pool", (Operand((1, 2, 8, 8)),),
            only(lambda xp, x: xp.nn.functional.max_pool2d(x, 2),
                 torch=lambda xp, x: xp.nn.functional.max_pool2d(x, 2), jax=jax_pool("max", 2, 2)),
            level=0),
    ]  # fmt: skip


def resizes() -> list[Row]:
    """Images at another size, by mode."""
    rows = []
    image = Operand((4, 16, 128, 128))
    modes = {"nearest": "nearest", "bilinear": "linear", "bicubic": None, "area": None}
    for mode, of_jax in modes.items():
        for factor, label in ((2, "x2"), (0.5, "by half")):
            ours = lambda xp, x, m=mode, f=factor: xp.nn.functional.interpolate(
                x, scale_factor=f, mode=m
            )
            resize = lambda xp, x, m=of_jax, f=factor: jax().image.resize(
                x, (*x.shape[:2], int(x.shape[2] * f), int(x.shape[3] * f)), m, antialias=False
            )
            # JAX weighs borders differently where it shrinks.
            jax_call = resize if of_jax and factor == 2 else None
            rows.append(
                Row(f"{mode} {label}, [4, 16, 128, 128]", "resizing", f"resize {mode}", (image,),
                    only(ours, torch=ours, jax=jax_call), bytes=image.bytes * (1 + factor**2),
                    tolerance=1e-3)
            )  # fmt: skip
    last = Operand((480, 640, 3))
    twice = lambda xp, x: xp.repeat(xp.repeat(x, 2, 0), 2, 1)
    return [
        *rows,
        Row("nearest x2 of an image, 480 x 640 x 3", "resizing", "resize nearest", (last,),
            only(twice, numpy=twice,
                 torch=lambda xp, x: x.repeat_interleave(2, 0).repeat_interleave(2, 1),
                 jax=lambda xp, x: jax().image.resize(
                     x, (2 * x.shape[0], 2 * x.shape[1], 3), "nearest")),
            bytes=5.0 * last.bytes),
        Row("pixel shuffle by 2, [4, 16, 128, 128]", "resizing", "pixel_shuffle", (image,),
            only(lambda xp, x: xp.nn.functional.pixel_shuffle(x, 2),
                 torch=lambda xp, x: xp.nn.functional.pixel_shuffle(x, 2)),
            bytes=2.0 * image.bytes),
    ]  # fmt: skip


ROWS = [*convolutions(), *other_ranks(), *pools(), *resizes()]
