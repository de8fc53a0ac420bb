"""ResNet-18, inference and training; a small U-Net, training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..measure import Workload, compute
from ..training import NO_MLX, one_hot, ones, training, weight, zeros

if TYPE_CHECKING:
    from ..peers import Library

# ResNet-18: the channels of each stage, and whether its first block halves the image.

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
CLASSES = 1000


def resnet_parameters(rng: np.random.Generator) -> list[np.ndarray]:
    """The weights of each convolution, with scale and shift per channel; last a linear layer."""
    layer = lambda out, inn, size: [weight(rng, out, inn, size, size), ones(out), zeros(out)]
    parameters, before = layer(64, 3, 7), 64
    for channels, stride in STAGES:
        for number in range(2):
            inputs = before if number == 0 else channels
            parameters += layer(channels, inputs, 3) + layer(channels, channels, 3)
            if number == 0 and stride == 2:
                parameters += layer(channels, inputs, 1)
        before = channels
    return [*parameters, weight(rng, 512, CLASSES), zeros(CLASSES)]


Norm = Callable[[Any, Any, Any], Any]


def resnet(lib: Library, p: Sequence[Any], x: Any, norm: Norm) -> Any:
    """The logits."""
    at = 0

    def layer(x: Any, stride: int, padding: int) -> Any:
        nonlocal at
        at += 3
        return norm(lib.conv(x, p[at - 3], stride, padding), p[at - 2], p[at - 1])

    x = lib.max_pool(lib.relu(layer(x, 2, 3)), 3, 2, 1)
    for _, stride in STAGES:
        for number in range(2):
            step = stride if number == 0 else 1
            h = layer(lib.relu(layer(x, step, 1)), 1, 1)
            x = lib.relu(h + (layer(x, step, 0) if step == 2 else x))
    return x.mean((2, 3)) @ p[at] + p[at + 1]


def resnet_logits(lib: Library, x: Any, *p: Any) -> Any:
    """Inference: the norms are a scale and a shift per channel."""
    channels = lambda t: t.reshape((1, -1, 1, 1))
    return resnet(lib, p, x, lambda x, scale, shift: x * channels(scale) + channels(shift))


def resnet_loss(lib: Library, p: Sequence[Any], x: Any, labels: Any) -> Any:
    return lib.cross_entropy(resnet(lib, p, x, lib.batch_norm), labels)


def images(batch: int, size: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        # Without normalisation, the values would grow from block to block.
        parameters = [0.5 * p if p.ndim == 4 else p for p in resnet_parameters(rng)]
        return [rng.standard_normal((batch, 3, size, size), np.float32), *parameters]

    return inputs


def labelled(batch: int, size: int) -> Callable[[np.random.Generator], list[np.ndarray]]:
    def inputs(rng: np.random.Generator) -> list[np.ndarray]:
        data = rng.standard_normal((batch, 3, size, size), np.float32)
        return [data, one_hot(rng, batch, CLASSES), *resnet_parameters(rng)]

    return inputs


# U-Net: two convolutions at each size, down and up through three sizes.

WIDTHS = (16, 32, 64)


def unet_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    data = [rng.standard_normal((4, 1, 64, 64), np.float32) for _ in range(2)]
    pair = lambda out, inn: [weight(rng, out, inn, 3, 3), weight(rng, out, out, 3, 3)]
    down = [w for out, inn in zip(WIDTHS, (1, *WIDTHS), strict=False) for w in pair(out, inn)]
    up = [
        w
        for out, inn in zip(WIDTHS[-2::-1], WIDTHS[:0:-1], strict=True)
        for w in pair(out, inn + out)
    ]
    return [*data, *down, *up, weight(rng, 1, WIDTHS[0], 1, 1)]


def unet_loss(lib: Library, p: Sequence[Any], x: Any, target: Any) -> Any:
    at = 0

    def pair(x: Any) -> Any:
        nonlocal at
        at += 2
        return lib.relu(lib.conv(lib.relu(lib.conv(x, p[at - 2], 1, 1)), p[at - 1], 1, 1))

    kept = []
    for _ in WIDTHS[1:]:
        x = pair(x)
        kept.append(x)
        x = lib.max_pool(x, 2, 2, 0)
    x = pair(x)
    for skipped in reversed(kept):
        x = pair(lib.concat([lib.doubled(x), skipped], 1))
    difference = lib.conv(x, p[-1], 1, 0) - target
    return (difference * difference).mean()


WORKLOADS = [
    Workload(
        "ResNet-18, one image of 224x224", images(1, 224), compute(resnet_logits), NO_MLX,
        flops=3.6e9, tolerance=1e-3, memory=True, lazy=False,
    ),
    Workload(
        "ResNet-18, eight images of 224x224", images(8, 224), compute(resnet_logits), NO_MLX,
        flops=8 * 3.6e9, tolerance=1e-3, memory=True, lazy=False,
    ),
    Workload(
        "ResNet-18, training step of 8x64x64", labelled(8, 64), training(resnet_loss, 2), NO_MLX,
        tolerance=1e-2, memory=True, lazy=False, calls=2,
    ),
    Workload(
        "U-Net, training step of 4x64x64", unet_inputs, training(unet_loss, 2), NO_MLX,
        tolerance=1e-3, memory=True, lazy=False, calls=2,
    ),
]  # fmt: skip
