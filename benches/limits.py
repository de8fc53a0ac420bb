"""The limits of the machine, and the least time that a row takes within them.

A row needs at least the time of its multiply-adds at the measured peak rate, and at least the time
of its bytes at the measured bandwidth. The longer of the two is its limit. A row far below its
limit can be improved without a comparison with another machine or library; a row above its limit
shows that the limit is wrong.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import machine

if TYPE_CHECKING:
    from .measure import Result, Workload

#: Rows below this fraction of their limit are listed.
FAR = 0.7
#: Rows above this fraction have a wrong limit.
WRONG = 1.1
#: The time between two measurements of the limits during a run.
INTERVAL_S = 60.0
#: The share of a cache that a working set can fill: other data are in the cache, too.
ROOM = 0.75

#: The measured limits, as `crates/cpu/examples/limits.rs` prints them, and `machine.caches`.
Limits = dict[str, Any]


@dataclass(frozen=True)
class Limit:
    """The least time of a row in seconds, and the resource that takes this time."""

    seconds: float
    resource: str


def measured(threads: int) -> Limits | None:
    """The limits of the machine, measured now by `crates/cpu/examples/limits.rs`; None without
    cargo.
    """
    cargo = os.environ.get("CARGO", "cargo")
    if shutil.which(cargo) is None:
        return None
    command = [cargo, "run", "--quiet", "--release", "-p", "girih-cpu", "--example", "limits"]
    ran = subprocess.run(
        [*command, "--", str(threads)], cwd=machine.ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if ran.returncode != 0:
        raise RuntimeError(f"the limits could not be measured:\n{ran.stderr}")
    return {**json.loads(ran.stdout), "caches": machine.caches(threads)}


def best_of(a: Limits | None, b: Limits | None) -> Limits | None:
    """The maximum of each limit: a lower measurement was disturbed by other processes."""
    if a is None or b is None:
        return a or b
    return {
        key: best_of(value, b[key]) if isinstance(value, dict) else max(value, b[key])
        for key, value in a.items()
    }


class Meter:
    """Measures the limits several times during a run, and keeps the best.

    A measurement takes about two seconds. A shared machine can be slow for longer than that, and
    rows that are measured in a better moment would exceed the limit.
    """

    def __init__(self, threads: int, interval_s: float = INTERVAL_S) -> None:
        self.threads, self.interval_s = threads, interval_s
        self.best: Limits | None = None
        self.measure()

    def measure(self) -> None:
        """Measures the limits now."""
        self.best = best_of(self.best, measured(self.threads))
        self.due = time.monotonic() + self.interval_s

    def between_rows(self) -> None:
        """Measures the limits if the last measurement is old enough."""
        if time.monotonic() >= self.due:
            self.measure()


def bandwidth(limits: Limits, working_set: float) -> float:
    """The bandwidth in GB/s for a working set in bytes.

    It is that of the measured set nearest in size, of those that fit in the same cache: bandwidth
    falls in steps from cache to cache. If none of the measured sets is in that cache, the largest
    of the smaller sets counts. The best measured loop counts, on one thread or all. A set is at
    least as fast as larger ones, because a part of an array is as fast as the whole.
    """
    points: list[tuple[float, float]] = []
    for found in sorted(limits["bandwidth"].values(), key=lambda b: -b["bytes"]):
        rate = max(value for key, value in found.items() if key != "bytes")
        points.insert(0, (found["bytes"], max(rate, points[0][1] if points else 0.0)))
    level = lambda size: sum(size > ROOM * cache for cache in limits.get("caches", []))
    same = [point for point in points if level(point[0]) == level(working_set)]
    smaller = [point for point in points if point[0] <= working_set]
    near = same or smaller[-1:] or points[:1]
    return min(near, key=lambda point: abs(math.log(point[0] / max(working_set, 1.0))))[1]


def limit(limits: Limits, flops: float, moved: float, dtype: str) -> Limit | None:
    """The least time for a number of operations and bytes; None if there are neither.

    The operations are those of multiply-adds: two each. Where the machine has no multiply-adds of
    the dtype, or slower ones, those of float32 count.
    """
    if not flops and not moved:
        return None
    kinds = [kind for kind in ("f32", dtype) if kind in limits]
    kind = max(kinds, key=lambda kind: limits[kind]["gflops"])
    rate = bandwidth(limits, moved)
    computing, moving = flops / limits[kind]["gflops"] / 1e9, moved / rate / 1e9
    if computing >= moving:
        return Limit(computing, f"multiply-adds, {kind}")
    return Limit(moving, f"{rate:.0f} GB/s at {moved / 2**20:.1f} MB")


def of(workload: Workload, limits: Limits | None) -> Limit | None:
    """The limit of a row; None if it has none or the machine's limits are unknown."""
    if limits is None:
        return None
    return limit(limits, workload.flops, workload.bytes, workload.dtype)


def fractions(result: Result, limits: Limits | None) -> dict[str, float]:
    """By library: the fraction of the row's limit that it reaches."""
    least = of(result.workload, limits)
    if least is None:
        return {}
    return {name: least.seconds / figure.median for name, figure in result.figures.items()}
