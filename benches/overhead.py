"""The cost of laziness: recording, and small programs whose kernels take almost no time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .measure import Build, Call, Workload, compute

if TYPE_CHECKING:
    from collections.abc import Callable

    from .peers import Library

OURS = ("girih",)


def plain(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], list[np.ndarray]]:
    return lambda rng: [rng.standard_normal(s, np.float32) * 0.1 for s in shapes]


def three_kernels(lib: Library, x: Any, y: Any) -> Any:
    """A matrix product, a full reduction of it, and an op that uses both."""
    h = x @ y
    return h - h.sum()


def recording(length: int, lines: bool = True) -> Build:
    """Records a chain of additions and drops it, with or without recording source lines."""

    def build(lib: Library, operands: Any) -> Call:
        x, y = (lib.tensor(a) for a in operands)

        def record() -> Any:
            t = x
            for _ in range(length):
                t = t + y
            return t

        def without() -> Any:
            lib.xp.set_source_lines(False)
            try:
                return record()
            finally:
                lib.xp.set_source_lines(True)

        return record if lines else without

    return build


def overlapped(lib: Library, operands: Any) -> Call:
    """Eight dependent matrix products, started one by one, with Python work after each."""
    x, y = (lib.tensor(a) for a in operands)
    start = lib.started(lambda x, y: x @ y)

    def run() -> Any:
        t, counted = x, 0
        for _ in range(8):
            t = start(t, y)
            counted += sum(i & 3 for i in range(20_000))
        return lib.finish(t)

    return run


SMALL = plain((8, 8), (8, 8))

WORKLOADS = [
    Workload("record one op", SMALL, recording(1), OURS, quick=True, lazy=False, within=300e-9),
    Workload("record 100 ops", SMALL, recording(100), OURS, lazy=False, within=30e-6),
    Workload(
        "record 100 ops, no source lines", SMALL, recording(100, lines=False), OURS, lazy=False
    ),
    Workload(
        "x*2 + 1 on four elements", plain((4,)), compute(lambda _, x: x * 2 + 1), quick=True,
        target=1 / 1.3,
    ),
    Workload("x + y on 8x8", SMALL, compute(lambda _, x, y: x + y)),
    Workload("three kernels on 8x8", SMALL, compute(three_kernels), tolerance=1e-3),
    Workload(
        "Python beside products of 512x512", plain((512, 512), (512, 512)), overlapped,
        ("girih", "jax", "numpy"), lazy=False,
    ),
]  # fmt: skip
