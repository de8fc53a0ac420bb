"""Rows beside a neighbour: a process of another session that keeps a processor busy.

    python -m benches.neighbour              # a table; exceeding rows are flagged
    python -m benches.neighbour --only softmax --processes 2

The scheduler's autogroup divides the processors between sessions, as between users, so the
neighbour takes up to half of a processor from each library. A library whose threads wait for each
other loses more. The slowdown of a library is its median time beside the neighbour over its least
time. A row is flagged if Girih's slowdown exceeds the least slowdown of the peers by more than the
factor `ALLOWED`. A peer that uses one thread can avoid the neighbour's processor. On a machine that
is busy with other work the slowdowns mean nothing, and the command says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import guards, machine, peers, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .measure import Sampler, Workload

#: The default rows, each representative of one way of dividing work between threads.
ROWS = (
    "x + y, 4 MB",
    "gelu(x*a + b), 4 MB",
    "softmax [4096, 1024]",
    "sum of [4096, 4096] along axis 1",
    "x @ w, M = 32",
    "x @ w, M = 1024",
    "convolution 3x3, 1x64x56x56 to 64",
    "training step, MLP 784-512-512-10, batch 128",
)
#: The factor by which Girih's slowdown may exceed the least slowdown of the peers.
ALLOWED = 1.5
#: The number of times that the neighbour starts and stops, so that slow moments of the machine
#: affect both conditions.
ROUNDS = 3
#: The mean number of other running threads up to which the machine is idle.
IDLE = 0.3
#: Samples are longer than the scheduler's time slices.
SAMPLE_S = 0.02

# The neighbour also ends if its parent is killed.
SPIN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@dataclass(frozen=True)
class Beside:
    """The times of a library in seconds.

    Attributes:
        alone: The median without the neighbour.
        least: The minimum.
        beside: The median beside the neighbour.
    """

    alone: float
    least: float
    beside: float

    def slowdown(self) -> float:
        """The median time beside the neighbour over the least time."""
        return self.beside / self.least


#: By row and library.
Times = dict[str, dict[str, Beside]]


@contextlib.contextmanager
def neighbour(processes: int = 1) -> Iterator[list[int]]:
    """Keeps as many processors busy, each by a process in a session of its own; yields their ids.

    They are killed at the end, also after an exception.
    """
    command = [sys.executable, "-I", "-S", "-c", SPIN, str(os.getpid())]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(processes):
            running.append(subprocess.Popen(command, start_new_session=True))
        yield [process.pid for process in running]
    finally:
        for process in running:
            # The session's first process leads its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def drained(sampler: Sampler) -> list[float]:
    """Removes and returns the samples, those of preempted calls included."""
    times = [seconds for seconds, _ in sampler.samples]
    sampler.samples.clear()
    return times


def measure_row(
    workload: Workload, libraries: Sequence[peers.Library], processes: int, budget_s: float
) -> dict[str, Beside]:
    """The times of a row by library, alone and beside the neighbour in turn."""
    from . import measure

    samplers, _ = measure.prepare(workload, libraries)
    alone: dict[str, list[float]] = {s.library.name: [] for s in samplers}
    beside: dict[str, list[float]] = {s.library.name: [] for s in samplers}
    for _ in range(ROUNDS):
        for times, busy in ((alone, 0), (beside, processes)):
            with neighbour(busy):
                # The neighbour's interpreter starts.
                time.sleep(0.05)
                measure.take(samplers, budget_s / ROUNDS, SAMPLE_S, least=2)
            for s in samplers:
                times[s.library.name] += drained(s)
    return {
        # Where other processes disturb the machine, the least time can be one beside the neighbour.
        name: Beside(
            statistics.median(times),
            min(times + beside[name]),
            statistics.median(beside[name]),
        )
        for name, times in alone.items()
    }


def disturbance(others: float | None) -> str:
    """A warning if other threads run; empty if the machine is idle or does not say."""
    if others is None or others <= IDLE:
        return ""
    return (
        f"{others:.1f} other threads are running: the rows have neighbours already, and their "
        "slowdowns and flags are not of the neighbour alone.\n"
    )


def least_affected(found: dict[str, Beside]) -> tuple[str, float] | None:
    """The peer with the least slowdown in a row."""
    others = {
        name: times.slowdown()
        for name, times in found.items()
        if name not in ("girih", *peers.SHOWN)
    }
    return min(others.items(), key=lambda item: item[1], default=None)


def exceeding(times: Times) -> list[str]:
    """The rows in which Girih's slowdown exceeds the least slowdown of the peers too much."""
    out = []
    for row, found in times.items():
        best = least_affected(found)
        if best is None or "girih" not in found:
            continue
        ours = found["girih"].slowdown()
        if ours > ALLOWED * best[1]:
            out.append(
                f"{row}: {ours:.2f} times as long beside the neighbour, {best[0]} {best[1]:.2f}"
            )
    return out


def table(times: Times) -> str:
    """A line for each row and library; the least slowdown of the peers is bold."""
    lines = []
    for row, found in times.items():
        best = least_affected(found)
        for name, t in found.items():
            slowdown = f"{t.slowdown():.2f}"
            cells = [report.seconds(value) for value in (t.alone, t.least, t.beside)]
            bold = best is not None and best[0] == name
            lines.append([row, name, *cells, f"**{slowdown}**" if bold else slowdown])
    heads = ["", "library", "median alone", "least", "median beside", "beside / least"]
    return report.table(heads, lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if there is no such row, or with `--check` if one is flagged."""
    threads = os.cpu_count() or 1
    parser = guards.parser("neighbour", __doc__, threads, "numpy,torch,jax")
    parser.add_argument(
        "--processes", type=int, default=1, help="processors that the neighbour keeps busy"
    )
    options = guards.parsed(parser, argv)
    if options.processes < 1:
        parser.error("--processes: expected a positive number")
    # Imports NumPy.
    from . import command

    every = [w for _, w in command.choose(False, [])] if options.only else command.named(ROWS)
    rows = guards.chosen(every, options.only)
    if not rows:
        print("no row has such a name")
        return 1
    libraries = guards.installed(options)
    print(disturbance(machine.others_running()), end="", flush=True)
    times = {w.name: measure_row(w, libraries, options.processes, options.budget) for w in rows}
    print(f"\n{table(times)}")
    return guards.verdict(exceeding(times), options.check)


if __name__ == "__main__":
    sys.exit(main())
