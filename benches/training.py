"""Training steps with Adam, which update parameters and state; their compilation time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .measure import Build, Call, Workload, compute
from .overhead import SMALL, three_kernels
from .peers import COMPILERS, Library

RATE = 1e-3
LIBRARIES = ("girih", "torch", "torch.compile", "jax", "mlx")
NO_MLX = ("girih", "torch", "torch.compile", "jax")

Loss = Callable[..., Any]


def training(loss: Loss, batch: int) -> Build:
    """A training step; the first `batch` operands are data, the others are parameters."""

    def build(lib: Library, operands: Sequence[np.ndarray]) -> Call:
        data = [lib.tensor(a) for a in operands[:batch]]
        step = lib.trainer(lambda p, *b: loss(lib, p, *b), list(operands[batch:]), RATE)
        return lambda: step(*data)

    return build


def one_hot(rng: np.random.Generator, rows: int, classes: int) -> np.ndarray:
    return np.eye(classes, dtype=np.float32)[rng.integers(0, classes, rows)]


def weight(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """A random parameter. Its inputs are the first axis, or the last three axes of four."""
    inputs = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
    return (rng.standard_normal(shape) / np.sqrt(inputs)).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# Multilayer perceptron 784-512-512-10.


def mlp_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    sizes = (784, 512, 512, 10)
    layers = [p for a, b in itertools.pairwise(sizes) for p in (weight(rng, a, b), zeros(b))]
    return [rng.standard_normal((128, 784), np.float32), one_hot(rng, 128, 10), *layers]


def mlp_loss(lib: Library, p: Any, x: Any, labels: Any) -> Any:
    x = lib.relu(x @ p[0] + p[1])
    x = lib.relu(x @ p[2] + p[3])
    return lib.cross_entropy(x @ p[4] + p[5], labels)


# Transformer: pre-norm blocks with four heads.

PER_BLOCK = 12


@dataclass(frozen=True)
class Transformer:
    """The sizes of a stack of attention blocks with feed-forward layers of four times the width."""

    blocks: int
    batch: int
    tokens: int
    width: int
    heads: int = 4

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        w = self.width
        block = lambda: [
            ones(w), zeros(w), weight(rng, w, 3 * w), zeros(3 * w), weight(rng, w, w), zeros(w),
            ones(w), zeros(w), weight(rng, w, 4 * w), zeros(4 * w), weight(rng, 4 * w, w), zeros(w),
        ]  # fmt: skip
        data = [rng.standard_normal((self.batch, self.tokens, w), np.float32) for _ in range(2)]
        return [*data, *(p for _ in range(self.blocks) for p in block())]

    def attention(self, lib: Library, x: Any, p: Sequence[Any]) -> Any:
        shape = (self.batch, self.tokens, 3, self.heads, self.width // self.heads)
        split = lib.permute((x @ p[0] + p[1]).reshape(shape), (2, 0, 3, 1, 4))
        mixed = lib.permute(lib.attention(split[0], split[1], split[2]), (0, 2, 1, 3))
        return mixed.reshape((self.batch, self.tokens, self.width)) @ p[2] + p[3]

    def loss(self, lib: Library, p: Any, x: Any, target: Any) -> Any:
        for at in range(0, self.blocks * PER_BLOCK, PER_BLOCK):
            q = p[at : at + PER_BLOCK]
            x = x + self.attention(lib, lib.layer_norm(x, q[0], q[1]), q[2:6])
            hidden = lib.gelu(lib.layer_norm(x, q[6], q[7]) @ q[8] + q[9])
            x = x + hidden @ q[10] + q[11]
        difference = x - target
        return (difference * difference).mean()

    def flops(self) -> float:
        """The operations of the matrix products of a training step."""
        matrices = 12 * self.width * self.width
        scores = 2 * self.tokens * self.width
        return 2 * self.batch * self.tokens * self.blocks * 3 * (matrices + scores)


TRANSFORMER = Transformer(blocks=2, batch=4, tokens=128, width=256)


# A residual block: convolution, batch norm and relu, twice, and the shortcut.


def block_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    data = [rng.standard_normal((8, 64, 28, 28), np.float32) for _ in range(2)]
    layer = lambda: [weight(rng, 64, 64, 3, 3), ones(64), zeros(64)]
    return [*data, *layer(), *layer()]


def block_loss(lib: Library, p: Any, x: Any, target: Any) -> Any:
    h = lib.relu(lib.batch_norm(lib.conv(x, p[0], 1, 1), p[1], p[2]))
    h = lib.batch_norm(lib.conv(h, p[3], 1, 1), p[4], p[5])
    difference = lib.relu(x + h) - target
    return (difference * difference).mean()


def tiny_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    data = [rng.standard_normal((8, 8), np.float32) for _ in range(2)]
    return [*data, weight(rng, 8, 8), zeros(8), weight(rng, 8, 8), zeros(8)]


def tiny_loss(lib: Library, p: Any, x: Any, target: Any) -> Any:
    difference = lib.relu(x @ p[0] + p[1]) @ p[2] + p[3] - target
    return (difference * difference).mean()


def flops() -> dict[str, float]:
    """The operations of the products: forward, and twice as many for the gradients except those of
    the data.
    """
    layers = 784 * 512 + 512 * 512 + 512 * 10
    pixels = 8 * 28 * 28
    return {
        "mlp": 2 * 128 * (3 * layers - 784 * 512),
        "block": 2 * pixels * 64 * 64 * 9 * (3 + 2),
    }


STEPS = [
    Workload(
        "training step, MLP 8-8-8", tiny_inputs, training(tiny_loss, 2), LIBRARIES, calls=3,
        quick=True, headline="training step of a network of 8, 8 and 8 units, with Adam",
    ),
    Workload(
        "training step, MLP 784-512-512-10, batch 128", mlp_inputs, training(mlp_loss, 2),
        LIBRARIES, flops=flops()["mlp"], tolerance=1e-3, memory=True, calls=3, target=1 / 1.4,
    ),
    Workload(
        "training step, transformer of two blocks", TRANSFORMER.inputs,
        training(TRANSFORMER.loss, 2), LIBRARIES, flops=TRANSFORMER.flops(), tolerance=1e-3,
        memory=True, calls=3, target=1 / 1.8,
        headline="training step of two transformer blocks, 512 tokens of width 256",
    ),
    Workload(
        "training step, residual block 8x64x28x28", block_inputs, training(block_loss, 2), NO_MLX,
        flops=flops()["block"], tolerance=1e-3, memory=True, calls=3, target=1 / 1.2,
    ),
]  # fmt: skip


def compilation(of: Workload, name: str, within: float) -> Workload:
    """The first call, from the Python function to its value."""
    libraries = tuple(n for n in of.libraries if n in COMPILERS)
    return replace(
        of, name=name, libraries=libraries, first=True, flops=0.0, bytes=0.0, memory=False,
        quick=False, calls=1, lazy=False, target=1 / 30, within=within, headline="",
    )  # fmt: skip


def depth(blocks: int, libraries: tuple[str, ...], headline: str = "") -> Workload:
    """The first training step of a deep stack of small blocks, which is almost only compilation."""
    stack = Transformer(blocks, batch=4, tokens=32, width=64)
    return Workload(
        f"compile, transformer of {blocks} small blocks", stack.inputs, training(stack.loss, 2),
        libraries, tolerance=1e-3, first=True, lazy=False, target=1 / 30, headline=headline,
    )  # fmt: skip


THREE = Workload("three kernels", SMALL, compute(three_kernels), tolerance=1e-3)
WORKLOADS = [
    *STEPS,
    compilation(THREE, "compile three kernels", 0.3e-3),
    *(compilation(s, s.name.replace("training step", "compile"), 5e-3) for s in STEPS[1:]),
    # JAX takes minutes for the deeper stack; the row shows that Girih's time grows linearly.
    depth(24, ("girih", "jax"), "first training step of 24 small transformer blocks, compiled"),
    depth(96, ("girih",)),
]
