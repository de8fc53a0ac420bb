"""Matrix factorisations and Fourier transforms, whose routines are the libraries' own.

Each matrix is computed on one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .measure import Build, Workload
from .peers import Library, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARIES = ("girih", "numpy", "torch", "jax")
#: The routines, each with the part of its value that is unique: factors may differ by signs.
ROUTINES: dict[str, Callable[[Any], Any]] = {
    "solve": lambda x: x,
    "inv": lambda x: x,
    "cholesky": lambda x: x,
    "qr": lambda factors: abs(factors[1]),
    "eigh": lambda factors: factors[0],
    "svd": lambda factors: factors[1],
}


def matrix(n: int, dtype: str) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """A generator of positive definite matrices."""

    def make(rng: np.random.Generator) -> list[np.ndarray]:
        x = rng.standard_normal((n, n))
        return [(x @ x.T / n + np.eye(n)).astype(dtype)]

    return make


def routine(name: str) -> Build:
    """A call of the routine; returns all factors if there are several."""

    def build(lib: Library, operands: Any) -> Any:
        if lib.name == "jax" and operands[0].dtype == np.float64:
            raise UnsupportedError("no float64 unless it is switched on for everything")
        x = lib.tensor(operands[0])
        function = getattr(lib.xp.linalg, name)
        if name == "solve":
            return call(lib, lambda x: function(x, x[0]), x)
        if name in ("inv", "cholesky"):
            return call(lib, function, x)
        return call(lib, lambda x: tuple(function(x)), x)

    return build


def call(lib: Library, function: Callable[..., Any], x: Any) -> Any:
    compiled = lib.compiled(function)
    return lambda: lib.finish(compiled(x))


def rows(rng: np.random.Generator) -> list[np.ndarray]:
    draw = lambda: rng.standard_normal((64, 1024), np.float32)
    return [draw() + 1j * draw()]


def transform(lib: Library, operands: Any) -> Any:
    return call(lib, lambda x: abs(lib.xp.fft.fft(x)), lib.tensor(operands[0]))


WORKLOADS = [
    Workload(
        "abs(fft) of 64 rows of 1024", rows, transform, LIBRARIES, quick=True, tolerance=1e-3,
        lazy=False,
    ),
    *(
        Workload(
            f"{name} of {n}x{n}, {dtype}", matrix(n, dtype), routine(name), LIBRARIES,
            tolerance=1e-3, compared=compared, lazy=False,
            quick=(name, n, dtype) == ("solve", 16, "float32"),
        )
        for n in (16, 128, 512)
        for dtype in ("float32", "float64")
        for name, compared in ROUTINES.items()
    ),
]  # fmt: skip
