"""Simulation loops: heat diffusion on a plate, and bodies under gravity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..measure import Workload, compute
from ..training import NO_MLX

LIBRARIES = (*NO_MLX, "numpy")

if TYPE_CHECKING:
    from ..peers import Library

SIDE, HEAT_STEPS = 512, 1000
BODIES, BODY_STEPS, SECONDS = 1024, 100, 1e-3


def plate(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal((SIDE, SIDE), np.float32)]


def heat(lib: Library, u: Any) -> Any:
    """Explicit steps of heat diffusion on a plate with zero boundary values."""

    def step(u: Any) -> Any:
        p = lib.bordered(u)
        around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        return u + 0.1 * (around - 4.0 * u)

    return lib.loop(HEAT_STEPS, step, u)


def bodies(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal((BODIES, 3), np.float32) for _ in range(2)]


def attract(lib: Library, places: Any, speeds: Any) -> Any:
    """Bodies of equal mass: positions and velocities after a number of steps."""

    def step(state: Any) -> Any:
        places, speeds = state
        apart = places[None] - places[:, None]
        square = (apart * apart).sum(2) + 1e-2
        near = 1.0 / (square * square**0.5)
        speeds = speeds + SECONDS / BODIES * (apart * near[:, :, None]).sum(1)
        return places + SECONDS * speeds, speeds

    return list(lib.loop(BODY_STEPS, step, (places, speeds)))


WORKLOADS = [
    Workload(
        "heat, 512x512, 1,000 steps", plate, compute(heat), LIBRARIES,
        flops=7.0 * SIDE**2 * HEAT_STEPS, tolerance=1e-3, memory=True, lazy=False,
    ),
    Workload(
        "1,024 bodies, 100 steps", bodies, compute(attract), LIBRARIES,
        flops=20.0 * BODIES**2 * BODY_STEPS, tolerance=1e-3, memory=True, lazy=False,
    ),
]  # fmt: skip
