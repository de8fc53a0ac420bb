"""Factors of dense matrices beside NumPy's, in ms for one call, inputs there and programs compiled.

    OPENBLAS_NUM_THREADS=1 python benches/linalg.py

One matrix is one thread's work here, so NumPy is best given one thread too.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import girih as gr
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "solve": (lambda x: gr.linalg.solve(x, x[0]), lambda x: np.linalg.solve(x, x[0])),
    "inv": (gr.linalg.inv, np.linalg.inv),
    "cholesky": (gr.linalg.cholesky, np.linalg.cholesky),
    "qr": (gr.linalg.qr, np.linalg.qr),
    "eigh": (gr.linalg.eigh, np.linalg.eigh),
    "svd": (gr.linalg.svd, np.linalg.svd),
}


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The median time of some calls, after one that compiles."""
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    print(f"{'':<10}{'dtype':<10}{'n':>5}{'girih':>10}{'numpy':>10}{'ratio':>8}")
    for n, repeats in ((16, 50), (128, 7), (512, 3)):
        for dtype in ("float32", "float64"):
            x = np.random.default_rng(0).standard_normal((n, n))
            x = (x @ x.T + n * np.eye(n)).astype(dtype)
            t = gr.asarray(x).eval()
            for name, (ours, theirs) in CALLS.items():
                mine = milliseconds(lambda f=ours, t=t: gr.eval(f(t)), repeats)
                other = milliseconds(lambda f=theirs, x=x: f(x), repeats)
                print(f"{name:<10}{dtype:<10}{n:>5}{mine:>10.3f}{other:>10.3f}{mine / other:>8.2f}")


if __name__ == "__main__":
    main()
