"""A two-layer LSTM over a hundred steps, and a model of categories with embedding tables."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..measure import Workload
from ..training import NO_MLX, training, weight, zeros

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..peers import Library

BATCH, STEPS, WIDTH, LAYERS = 16, 100, 256, 2


def lstm_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    x = rng.standard_normal((STEPS, BATCH, WIDTH), np.float32)
    target = rng.standard_normal((BATCH, WIDTH), np.float32)
    gates = lambda: weight(rng, WIDTH, 4 * WIDTH).T.copy()
    layer = lambda: [gates(), gates(), zeros(4 * WIDTH), zeros(4 * WIDTH)]
    return [x, target, *layer(), *layer()]


def lstm_loss(lib: Library, p: Sequence[Any], x: Any, target: Any) -> Any:
    difference = lib.lstm(x, p, LAYERS)[-1] - target
    return (difference * difference).mean()


# Each record has 26 categorical features with one table each.

TABLES, ROWS, FEATURES, RECORDS = 26, 10_000, 16, 256


def table_inputs(rng: np.random.Generator) -> list[np.ndarray]:
    categories = rng.integers(0, ROWS, (TABLES, RECORDS))
    target = rng.standard_normal((RECORDS, 1), np.float32)
    tables = [rng.standard_normal((ROWS, FEATURES), np.float32) for _ in range(TABLES)]
    sizes = (TABLES * FEATURES, 256, 64, 1)
    layers = [p for a, b in itertools.pairwise(sizes) for p in (weight(rng, a, b), zeros(b))]
    return [categories, target, *tables, *layers]


def table_loss(lib: Library, p: Sequence[Any], categories: Any, target: Any) -> Any:
    x = lib.concat([lib.take(p[i], categories[i]) for i in range(TABLES)], 1)
    layers = p[TABLES:]
    x = lib.relu(x @ layers[0] + layers[1])
    x = lib.relu(x @ layers[2] + layers[3])
    difference = x @ layers[4] + layers[5] - target
    return (difference * difference).mean()


WORKLOADS = [
    Workload(
        "LSTM 2x256, training step of 100 steps", lstm_inputs, training(lstm_loss, 2), NO_MLX,
        flops=3.0 * 2 * STEPS * BATCH * LAYERS * 8 * WIDTH**2, tolerance=1e-3, memory=True,
        lazy=False, calls=2,
    ),
    Workload(
        "26 tables of 10,000 rows, training step of 256", table_inputs, training(table_loss, 2),
        NO_MLX, bytes=4.0 * 6 * TABLES * ROWS * FEATURES, tolerance=1e-3, memory=True, lazy=False,
        calls=2,
    ),
]  # fmt: skip
