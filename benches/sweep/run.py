"""Measures the rows of the sweep one after another.

A sweep has many rows and minutes, so a peer that is much slower than the best one is not sampled
again: it is not the best peer.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import limits, machine, measure, peers, report
from . import catalogue, causes, checks, table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from .rows import Row

#: A peer that takes more than this many times the best peer's time is timed once.
SLOW = 2.5
SAMPLE_S, SETTLED_S, LEAST = 0.004, 0.015, 4


@dataclass
class Measured:
    """A row's figures.

    Attributes:
        row: The row.
        figures: The figures by library.
        missing: Why a library has none.
        facts: What its kernels are.
    """

    row: Row
    figures: dict[str, measure.Figure] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    facts: causes.Facts = field(default_factory=causes.Facts)

    def result(self) -> measure.Result:
        """The row as the other reports have it."""
        return measure.Result(self.row.workload(), self.row.family, self.figures, self.missing)


def widen(libraries: Sequence[peers.Library], wide: bool) -> None:
    """Lets JAX compute with 64 bits, which it otherwise replaces by 32."""
    for library in libraries:
        if library.name == "jax":
            library.jax.config.update("jax_enable_x64", wide)  # type: ignore[attr-defined]


def samplers(row: Row, libraries: Sequence[peers.Library], out: Measured) -> list[measure.Sampler]:
    """The samplers of a row, whose values have been compared.

    Raises:
        WrongValueError: A library's value differs.
    """
    workload, found = row.workload(), []
    for library in libraries:
        if library.name not in row.calls:
            continue
        try:
            found.append(measure.Sampler(library, workload, []))
        except Exception as error:
            # A peer's own defect costs its figure, not the row.
            if library.name == "girih":
                raise
            first = str(error).strip().partition("\n")[0]
            out.missing[library.name] = f"fails: {type(error).__name__}: {first}"
    checks.check(row, {s.library.name: checks.arrays(s.library, s.value) for s in found})
    for sampler in found:
        sampler.value = None
    return found


def shortest(sampler: measure.Sampler) -> float:
    """The shortest time of a few later calls, of about 10 ms together."""
    best, deadline = float("inf"), time.perf_counter() + 0.01
    for _ in range(20):
        start = time.perf_counter()
        sampler.call()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > deadline:
            break
    return best


def measured(row: Row, libraries: Sequence[peers.Library], budget_s: float) -> Measured:
    """Measures a row.

    Raises:
        WrongValueError: A library's value differs.
    """
    out = Measured(row)
    found = samplers(row, libraries, out)
    times = {s.library.name: shortest(s) for s in found}
    others = [seconds for name, seconds in times.items() if name != "girih"]
    bound = SLOW * min(others, default=0.0) + 20e-6
    kept = [s for s in found if s.library.name == "girih" or times[s.library.name] <= bound]
    for sampler in found:
        if sampler not in kept:
            sampler.samples.append((times[sampler.library.name], False))
    slowest = max(times[s.library.name] for s in kept)
    # Calls of 50 ms are steady; one of half a second is timed twice.
    least = LEAST if slowest < 0.05 else 2
    measure.take(kept, budget_s, SAMPLE_S, least, SETTLED_S)
    out.figures = {s.library.name: s.figure() for s in found}
    [girih] = [library for library in libraries if library.name == "girih"]
    out.facts = causes.facts(row, girih)
    return out


def line(out: Measured) -> str:
    """The line that shows a row during the run."""
    ratio = out.result().ratio()
    times = "  ".join(f"{n} {report.seconds(f.median)}" for n, f in out.figures.items())
    shown = f"{'' if ratio is None else f'{ratio:.2f}':>7}"
    return f"{out.row.name:<56}{shown}  {times}  ({causes.cause(out.facts, 1.0)})"


def sweep(
    rows: Sequence[Row],
    libraries: Sequence[peers.Library],
    budget_s: float,
    meter: limits.Meter | None,
    wrong: list[str],
) -> list[Measured]:
    """Measures rows, and appends the errors in their values."""
    results: list[Measured] = []
    for row in rows:
        if meter is not None:
            meter.between_rows()
        widen(libraries, row.wide())
        try:
            results.append(measured(row, libraries, budget_s))
            print(line(results[-1]), flush=True)
        except KeyboardInterrupt:
            wrong.append("interrupted: the other rows are missing")
            break
        except Exception as error:
            text = str(error) if isinstance(error, measure.WrongValueError) else repr(error)
            wrong.append(text if row.name in text else f"{row.name}: {text}")
            print(f"WRONG: {wrong[-1]}", flush=True)
        gc.collect()
    widen(libraries, False)
    return results


def run(options: argparse.Namespace, about: dict[str, Any]) -> int:
    """Runs the command; returns 1 if a value was wrong or a row failed."""
    rows = catalogue.choose(options.quick, options.full, options.only or [])
    if options.list or not rows:
        print("\n".join(f"{r.family}: {r.name}" for r in rows) or "no row has such a name")
        return 0 if rows else 1
    wanted = options.libraries or ["girih", "numpy", "torch", "jax"]
    libraries, missing = peers.installed(wanted)
    about["versions"] = {lib.name: lib.version for lib in libraries}
    about["missing"], about["threads"] = missing, options.threads
    meter = None if options.no_limits else limits.Meter(options.threads)
    print(f"{about['processor']}, {options.threads} threads, load {about['load_before']}")
    print(", ".join(f"{n} {v}" for n, v in about["versions"].items()), flush=True)
    start = time.monotonic()
    wrong: list[str] = []
    # Rows of a whole benchmark have a budget of 1.5 seconds, those of a sweep a tenth.
    results = sweep(rows, libraries, options.budget / 10, meter, wrong)
    if meter is not None:
        meter.measure()
    about["limits"] = None if meter is None else meter.best
    about["seconds"] = round(time.monotonic() - start)
    about["wrong"], about["load_after"] = wrong, machine.load()
    whole = not (options.quick or options.only or options.libraries)
    folder = Path(options.out or machine.ROOT / ("docs/benchmarks/sweep" if whole else "bench-out"))
    written = table.write(folder, about, results)
    print(table.summary(results))
    print(f"{len(results)} rows in {about['seconds']} s, written to {written}")
    return 1 if wrong else 0
