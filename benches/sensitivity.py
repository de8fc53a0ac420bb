"""The effect of each tuning parameter on this machine: halves and doubles it and times rows.

    python -m benches.sensitivity                      # a table; cliffs are marked
    python -m benches.sensitivity --only softmax --parameters chunk_ns,row_elements

A parameter (`girih info` prints all of them) is well chosen if neither half nor twice its value
changes a row's time. A row that gets faster by more than the threshold is a *cliff*: the
parameter's formula in `crates/exec/src/tuning.rs` does not fit this machine. Each combination
runs in a process of its own, right after a process with the default parameters, in several rounds.
Times are CPU time on one thread, and wall-clock time on several threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from . import machine, peers, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: The default rows, each representative of one way of execution.
ROWS = (
    "x + y, 64 KB",
    "x + y, 4 MB",
    "gelu(x*a + b), 4 MB",
    "x + y, 64 MB",
    "softmax [4096, 1024]",
    "layer norm [4096, 1024]",
    "sum of [4096, 4096] along axis 0",
    "sum of [4096, 4096] along axis 1",
    "gelu(x @ w + b), M = 128",
    "x @ w, M = 1024",
    "convolution 3x3, 8x64x56x56 to 64",
    "three kernels on 8x8",
    "training step, MLP 784-512-512-10, batch 128",
)
#: The relative change of a row's time that makes a parameter a cliff.
THRESHOLD = 0.05

#: The minimum time of each row in seconds.
Times = dict[str, float]
#: The name of a parameter and its value in `GIRIH_TUNING`.
Setting = tuple[str, int]
#: By setting and row: the ratio of its time to the time with default parameters, in each round.
Ratios = dict[Setting, dict[str, list[float]]]


def least_time(call: Callable[[], object], clock: Callable[[], float], budget_s: float) -> float:
    """The minimum time of a call on a clock, over samples within about the given time."""
    count, least = 1, float("inf")
    deadline = time.perf_counter() + budget_s
    while True:
        start, before = time.perf_counter(), clock()
        for _ in range(count):
            call()
        taken, elapsed = clock() - before, time.perf_counter() - start
        # The sample is shorter than the resolution of the clock.
        if elapsed < 0.002:
            count *= 4
            continue
        least = min(least, taken / count)
        if time.perf_counter() > deadline:
            return least


def measure_rows(names: Sequence[str], threads: int, budget_s: float) -> Times:
    """Times rows in this process, whose environment has the parameters."""
    import numpy as np

    from . import command

    [girih], _ = peers.installed(["girih"])
    clock = time.thread_time if threads == 1 else time.perf_counter
    times = {}
    for workload in command.named(names):
        call = workload.build(girih, workload.inputs(np.random.default_rng(0)))
        call()
        times[workload.name] = least_time(call, clock, budget_s)
    return times


def run_process(
    setting: Setting | None, names: Sequence[str], threads: int, budget_s: float
) -> Times:
    """Times rows in a new process, which reads its parameters from the environment."""
    env = {**os.environ, "GIRIH_NUM_THREADS": str(threads), "GIRIH_CACHE": "0"}
    env["GIRIH_TUNING"] = "" if setting is None else f"{setting[0]}={setting[1]}"
    command = [
        sys.executable, "-m", "benches.sensitivity", "--threads", str(threads),
        "--budget", str(budget_s), "--measure", *names,
    ]  # fmt: skip
    ran = subprocess.run(
        command, cwd=machine.ROOT, env=env, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{env['GIRIH_TUNING'] or 'no parameter set'} failed:\n{ran.stderr}")
    times: Times = json.loads(ran.stdout.splitlines()[-1])
    return times


def parameters() -> dict[str, int]:
    """The names and values of the parameters on this machine."""
    ran = subprocess.run(
        [sys.executable, "-m", "girih", "info", "--json"],
        env={**os.environ, "GIRIH_TUNING": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, int] = json.loads(ran.stdout)["tuning"]
    return found


def settings(values: dict[str, int]) -> Iterator[Setting]:
    """The settings that halve or double one parameter."""
    for name, value in values.items():
        yield name, max(1, value // 2)
        yield name, value * 2


def sweep(
    values: dict[str, int], names: Sequence[str], threads: int, rounds: int, budget_s: float
) -> tuple[Times, Ratios]:
    """The minimum time of each row, and for each setting the ratio of its time in each round.

    Shared machines are slow for seconds at a time, so each process with a changed parameter is
    compared with a process without changes that ran right before it.
    """
    base: Times = {}
    ratios: Ratios = {setting: {} for setting in settings(values)}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}, {threads} threads", file=sys.stderr, flush=True)
        for setting, found in ratios.items():
            plain = run_process(None, names, threads, budget_s)
            changed = run_process(setting, names, threads, budget_s)
            for name, taken in plain.items():
                base[name] = min(taken, base.get(name, taken))
                found.setdefault(name, []).append(changed[name] / taken)
    return base, ratios


def cliffs(ratios: Ratios, threshold: float) -> list[tuple[str, str, float]]:
    """The settings that make a row faster in every round: setting, row, ratio."""
    out = [
        (f"{setting[0]}={setting[1]}", row, statistics.median(rounds))
        for setting, found in ratios.items()
        for row, rounds in found.items()
        if max(rounds) < 1 - threshold
    ]
    return sorted(out, key=lambda cliff: cliff[2])


def table(base: Times, ratios: Ratios, threshold: float) -> str:
    """A table of rows by parameter: the median ratio of the time at half and at twice the value to
    the time at the default.

    Changes of more than the threshold in every round, up or down, are bold.
    """
    names = list(dict.fromkeys(name for name, _ in ratios))
    rows = []
    for row, taken in base.items():
        cells = []
        for name in names:
            both = [found[row] for setting, found in ratios.items() if setting[0] == name]
            text = " ".join(f"{statistics.median(rounds):.2f}" for rounds in both)
            moves = any(max(r) < 1 - threshold or min(r) > 1 + threshold for r in both)
            cells.append(f"**{text}**" if moves else text)
        rows.append([row, f"{taken * 1e6:.4g} µs", *cells])
    return report.table(["row", "time", *names], rows)


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches.sensitivity", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="rows with this in the name"
    )
    parser.add_argument("--parameters", metavar="A,B", help="these alone")
    parser.add_argument("--threads", type=int, help="1 or more; both 1 and 2 unless said")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds per row and process")
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    # Internal: times these rows in this process.
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if not options.budget > 0 or options.rounds < 1:
        parser.error("--budget and --rounds: expected positive numbers")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if there is no row or parameter with a given name."""
    options = arguments(argv)
    if options.measure:
        print(json.dumps(measure_rows(options.measure, options.threads, options.budget)))
        return 0
    names = ROWS
    if options.only:
        from . import command

        names = tuple(workload.name for _, workload in command.choose(False, options.only))
    values = parameters()
    if options.parameters:
        wanted = options.parameters.split(",")
        if unknown := [name for name in wanted if name not in values]:
            print(f"no parameter {', '.join(unknown)}; there are {', '.join(values)}")
            return 1
        values = {name: values[name] for name in wanted}
    if not names:
        print("no row has such a name")
        return 1
    print(f"{machine.processor()}, load {machine.load()}")
    print(", ".join(f"{name}={value}" for name, value in values.items()))
    for threads in [options.threads] if options.threads else [1, 2]:
        base, ratios = sweep(values, names, threads, options.rounds, options.budget)
        print(f"\n{threads} thread{'s' if threads > 1 else ''}, half and twice the value:\n")
        print(table(base, ratios, options.threshold))
        for setting, row, share in cliffs(ratios, options.threshold):
            print(f"cliff: {row} takes {share:.2f} of its time with {setting}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
