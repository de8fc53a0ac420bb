"""Recording overhead, small-graph latency and Fourier transforms, beside NumPy, SciPy, PyTorch and
JAX where installed.

`make bench` runs it. Each figure is the median of repeated batches; the spread is the distance of
the quartiles. Raw results go to bench-out/overhead.json.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import girih as gr

# Girih without the source lines that ops keep for errors: what those cost.
NO_LINES = "no lines"
REPEATS = 31
TARGET_S = 0.02

Case = Callable[[], object]


def measure(case: Case) -> tuple[float, float]:
    """Median and spread of one call, in microseconds."""
    case()
    count, seconds = 1, 0.0
    while seconds < TARGET_S:
        count *= 2
        start = time.perf_counter()
        for _ in range(count):
            case()
        seconds = time.perf_counter() - start
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(REPEATS):
            start = time.perf_counter()
            for _ in range(count):
                case()
            times.append((time.perf_counter() - start) / count * 1e6)
    finally:
        gc.enable()
    low, median, high = statistics.quantiles(times, n=4)
    return median, high - low


def optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cases() -> dict[str, dict[str, Case]]:
    """What is measured, by library. But for the transforms, the kernels are tiny: what is left is
    overhead."""
    numpy, torch, jax = optional("numpy"), optional("torch"), optional("jax")
    scipy_fft = optional("scipy.fft")
    data = [[0.5] * 8] * 8
    x, y = gr.asarray(data), gr.asarray(data)
    rows = gr.complex(gr.randn([64, 1024]), gr.randn([64, 1024])).eval()

    def record_chain() -> object:
        t = x
        for _ in range(100):
            t = t + y
        return t

    def three_kernels() -> object:
        # A product, a reduction that needs all of it, and what follows from both.
        h = x @ y
        return (h - h.sum()).eval()

    def step_function() -> Case:
        model = gr.nn.Sequential(gr.nn.Linear(8, 8), gr.nn.ReLU(), gr.nn.Linear(8, 8))
        optimizer = gr.optim.SGD(1e-3)
        grads_of = gr.nn.value_and_grad(model, lambda x, y: gr.nn.mse(model(x), y))
        gr.eval(model)

        def step() -> object:
            loss, grads = grads_of(x, y)
            optimizer.update(model, grads)
            return gr.eval(loss, model, optimizer.state)

        return step

    out: dict[str, dict[str, Case]] = {
        "record one op": {"girih": lambda: x + y, NO_LINES: lambda: x + y},
        "record 100 ops": {"girih": record_chain, NO_LINES: record_chain},
        "one op to its value": {"girih": lambda: (x + y).eval()},
        "three kernels, cached": {"girih": three_kernels},
        "training step of a tiny MLP": {"girih": step_function()},
        "fft of 64 rows of 1024": {"girih": lambda: gr.fft.fft(rows).eval()},
    }
    if numpy is not None:
        a = numpy.asarray(data, "float32")
        out["one op to its value"]["numpy"] = lambda: a + a

        def with_numpy() -> object:
            h = a @ a
            return h - h.sum()

        out["three kernels, cached"]["numpy"] = with_numpy
        signal = rows.numpy()
        out["fft of 64 rows of 1024"]["numpy"] = lambda: numpy.fft.fft(signal)
        if scipy_fft is not None:
            out["fft of 64 rows of 1024"]["scipy"] = lambda: scipy_fft.fft(
                signal, workers=os.cpu_count()
            )
    if torch is not None:
        torch.set_num_threads(os.cpu_count() or 1)
        p = torch.tensor(data)
        out["one op to its value"]["torch"] = lambda: p + p

        def with_torch() -> object:
            h = p @ p
            return h - h.sum()

        out["three kernels, cached"]["torch"] = with_torch
    if jax is not None:
        j = jax.numpy.asarray(data)
        add = jax.jit(lambda a, b: a + b)
        jitted = jax.jit(lambda a: (h := a @ a) - h.sum())
        out["one op to its value"]["jax"] = lambda: add(j, j).block_until_ready()
        out["three kernels, cached"]["jax"] = lambda: jitted(j).block_until_ready()
    return out


def main() -> None:
    versions = {"girih": gr.__version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "torch", "jax"):
        module = optional(name)
        versions[name] = module.__version__ if module else "not installed"
    print(f"{cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}")
    print(", ".join(f"{name} {version}" for name, version in versions.items()), end="\n\n")
    print(f"{'µs per call':<30}{'library':<10}{'median':>10}{'spread':>10}{'of girih':>10}")
    results = []
    for what, libraries in cases().items():
        ours = None
        for library, case in libraries.items():
            gr.set_source_lines(library != NO_LINES)
            median, spread = measure(case)
            ours = ours or median
            ratio = f"{median / ours:.2f}x"
            print(f"{what:<30}{library:<10}{median:>10.3f}{spread:>10.3f}{ratio:>10}", flush=True)
            results.append(
                {"what": what, "library": library, "median_us": median, "spread_us": spread}
            )
    out = Path("bench-out")
    out.mkdir(exist_ok=True)
    record = {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "versions": versions,
        "results": results,
    }
    (out / "overhead.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
