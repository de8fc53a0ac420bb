"""Selects rows, measures them one after another, and reports each result immediately."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from . import (
    dense,
    elementwise,
    limits,
    machine,
    measure,
    models,
    overhead,
    peers,
    products,
    report,
    training,
    transforms,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

GROUPS = {
    "Elementwise and reductions": elementwise.WORKLOADS,
    "Products": products.WORKLOADS,
    "Overhead": overhead.WORKLOADS,
    "Training": training.WORKLOADS,
    "Function transforms": transforms.WORKLOADS,
    "Linear algebra and transforms": dense.WORKLOADS,
}

#: Whole models, measured only on request, because they take minutes.
MODELS = {"Models": models.WORKLOADS}

Chosen = list[tuple[str, measure.Workload]]
#: Writes the results to a folder.
Write = Callable[["Path", dict[str, Any], "Sequence[measure.Result]"], None]


def choose(
    quick: bool, only: Sequence[str], headline: bool = False, models: bool = False
) -> Chosen:
    """Selects the rows to measure, with their groups."""
    groups = MODELS if models else GROUPS
    rows = [(group, w) for group, members in groups.items() for w in members]
    if headline:
        rows = [(g, w) for g, w in rows if w.headline]
    if quick:
        rows = [(g, w) for g, w in rows if w.quick]
    if only:
        wanted = [name.casefold() for name in only]
        rows = [(g, w) for g, w in rows if any(n in f"{g}: {w.name}".casefold() for n in wanted)]
    return rows


def named(names: Sequence[str]) -> list[measure.Workload]:
    """The rows with these names, in the order of the names.

    Raises:
        KeyError: There is no such row.
    """
    rows = {w.name: w for _, w in [*choose(False, []), *choose(False, [], models=True)]}
    return [rows[name] for name in names]


def peak_of(row: str, name: str) -> int | None:
    """The peak memory of calls of a row in bytes, less the memory in use before the first call;
    None if the system does not report it.
    """
    [workload] = named([row])
    libraries, _ = peers.installed([name])
    arrays = workload.inputs(np.random.default_rng(0))
    call = workload.build(libraries[0], arrays)
    before = machine.resident_bytes()
    for _ in range(2):
        call()
    if before is None or not machine.forget_peak():
        return None
    for _ in range(3):
        call()
    after = machine.resident_bytes()
    return None if after is None else max(0, after[1] - before[0])


def measure_peaks(result: measure.Result, threads: int) -> None:
    """Measures the peak memory of a row, each library in a process of its own."""
    for name, figure in result.figures.items():
        ran = subprocess.run(
            [sys.executable, "-m", "benches", "--threads", str(threads), "--peak-of",
             result.workload.name, name],
            cwd=machine.ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode == 0:
            figure.peak_bytes = json.loads(ran.stdout.splitlines()[-1])


def line(result: measure.Result) -> str:
    """The line that shows a row's result during the run."""
    shown = result.group in report.FIRST_SHOWN
    first = lambda f: f" (first {report.seconds(f.first)})" if shown else ""
    figures = result.figures.items()
    times = "  ".join(f"{n} {report.seconds(f.median)}{first(f)}" for n, f in figures)
    ratio = result.ratio()
    return f"{result.workload.name:<48}{'' if ratio is None else f'{ratio:6.2f}':>8}  {times}"


def measure_rows(
    chosen: Chosen,
    options: argparse.Namespace,
    libraries: Sequence[peers.Library],
    results: list[measure.Result],
    wrong: list[str],
    meter: limits.Meter | None,
) -> None:
    """Appends the rows' results, and the errors in their values."""
    for group, workload in chosen:
        if meter is not None:
            meter.between_rows()
        try:
            result = measure.run(workload, group, libraries, options.budget)
        except measure.WrongValueError as error:
            wrong.append(str(error))
            print(f"WRONG: {error}", flush=True)
            continue
        if workload.memory and not options.no_memory:
            measure_peaks(result, options.threads)
        results.append(result)
        print(line(result), flush=True)


def run(
    chosen: Chosen, options: argparse.Namespace, out: Path, about: dict[str, Any], write: Write
) -> int:
    """Measures and writes the results, also when interrupted; returns 1 if a value was wrong."""
    libraries, missing = peers.installed(options.libraries)
    about["threads"] = options.threads
    about["versions"] = {lib.name: lib.version for lib in libraries if lib.name in peers.ALL}
    about["missing"] = {name: why for name, why in missing.items() if name in peers.ALL}
    meter = None if options.no_limits else limits.Meter(options.threads)
    print(f"{about['processor']}, {options.threads} threads, load {about['load_before']}")
    print(", ".join(f"{name} {version}" for name, version in about["versions"].items()), flush=True)
    results: list[measure.Result] = []
    wrong: list[str] = []
    try:
        measure_rows(chosen, options, libraries, results, wrong, meter)
    except KeyboardInterrupt:
        about["missing"][report.INTERRUPTED] = "interrupted"
        print("interrupted")
    if meter is not None:
        meter.measure()
    about["limits"] = None if meter is None else meter.best
    about["load_after"] = machine.load()
    about["wrong"] = wrong
    write(out, about, results)
    print(f"written to {out}")
    return 1 if wrong else 0
