"""Counts cache misses with cachegrind and compares them with the misses that nothing can avoid.

    python -m benches.cachesim              # a table; rows with too many misses are flagged
    python -m benches.cachesim --only "x @ w" --peers numpy

The simulated machine has an L1 cache of 32 KB and a last one of 1 MB, whatever this machine has:
`valgrind --tool=cachegrind --cache-sim=yes`. Counts are reproducible. A row's bound is its
compulsory misses: each line of 64 bytes of its operands and results once. Rows of matrices that do
not fit in the cache are read twice, for their moments or their largest element and for the result.
The bounds of products are those of blocks. In the last cache, three square blocks fill it, and each
block of a factor is read once for each block of the result. In the L1 cache, a panel of one
factor stays while the other factor passes, once for each `COLUMNS` columns of the result, whose
block is in registers. A row is flagged if it misses more than `ALLOWED` times as often.

One process under valgrind imports the libraries and compiles the rows. For each row it forks a
child that calls the row a few times and a child that calls it more often, so the difference is that
of calls alone. Kernels run on one thread, for the processor that valgrind emulates, which has no
AVX-512.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import guards, machine, peers, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Call, Workload

#: The simulated caches: bytes, associativity and bytes of a line.
FIRST = (32 << 10, 8, 64)
LAST = (1 << 20, 16, 64)
LINE = 64
#: The numbers of calls whose difference is counted.
FEW, MANY = 1, 3
#: The factor by which misses may exceed the bound.
ALLOWED = 1.5
#: The columns of a block of a product's result in registers: two vectors of AVX2.
COLUMNS = 16


@dataclass(frozen=True)
class Row:
    """A row, with what its bound depends on.

    Attributes:
        workload: The row.
        width: The bytes of a row of the operand's matrix, if it is read twice where the matrix's
            row does not fit in the cache.
        product: The sizes of a product of matrices: rows, depth and columns.
    """

    workload: Workload
    width: int = 0
    product: tuple[int, int, int] | None = None

    def bound(self, cache: tuple[int, int, int]) -> float:
        """The misses of a cache that the row is compared with."""
        compulsory = self.workload.bytes / LINE
        if self.width > cache[0]:
            # Half of the bytes are the operand's.
            return 1.5 * compulsory
        if self.product is None:
            return compulsory
        m, k, n = self.product
        if cache == FIRST:
            return compulsory + 4 * m * k * n / COLUMNS / LINE
        side = math.sqrt(cache[0] / 4 / 3)
        elements = m * k * max(1.0, n / side) + k * n * max(1.0, m / side) + m * n
        return 4 * elements / LINE


@dataclass(frozen=True)
class Misses:
    """The misses of data of one call, in the L1 cache and in the last one."""

    first: float
    last: float


#: By row and library.
Counts = dict[str, dict[str, Misses]]


def rows() -> list[Row]:
    """The rows. The operands of most of them exceed the last cache."""
    from . import kernels

    square = lambda n: Row(kernels.product(n, n, n), product=(n, n, n))
    flat = lambda m: Row(kernels.product(m, 1024, 1024), product=(m, 1024, 1024))
    wide = 1 << 16
    # As a product: the kernel's matrix times the patches of the image.
    image = Row(kernels.convolution(1, 64, 28, 64, 3, 1), product=(64, 64 * 9, 28 * 28))
    return [
        Row(kernels.add(1 << 18)),
        Row(kernels.exp(1 << 18)),
        Row(kernels.chained(1 << 18)),
        Row(kernels.transposed(512)),
        Row(kernels.sums(1024, 1024, 0)),
        Row(kernels.sums(512, 1024, 1)),
        Row(kernels.softmax(256, 1024)),
        Row(kernels.softmax(8, wide), width=4 * wide),
        Row(kernels.norms(256, 1024)),
        Row(kernels.norms(8, wide), width=4 * wide),
        flat(1),
        flat(8),
        square(128),
        square(384),
        image,
    ]


def simulate(names: Sequence[str], libraries: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    """Runs rows in forked processes; returns the ids of the processes with few and many calls, by
    row and library.

    Valgrind writes the counts of each process to a file with its id.
    """
    import numpy as np

    found, _ = peers.installed(libraries)
    out: dict[str, dict[str, list[int]]] = {}
    for row in rows():
        workload = row.workload
        if workload.name not in names:
            continue
        arrays = workload.inputs(np.random.default_rng(0))
        out[workload.name] = {}
        print(workload.name, file=sys.stderr, flush=True)
        for library in found:
            if library.name not in workload.libraries:
                continue
            call = workload.build(library, arrays)
            call()
            processes = []
            for times in (FEW, MANY):
                process = os.fork()
                if process == 0:
                    call_and_end(call, times)
                _, status = os.waitpid(process, 0)
                if status != 0:
                    raise RuntimeError(f"{workload.name}: {library.name} failed under cachegrind")
                processes.append(process)
            out[workload.name][library.name] = processes
    return out


def call_and_end(call: Call, times: int) -> NoReturn:
    """Makes a call as often as given, and ends this process."""
    status = 1
    try:
        for _ in range(times):
            call()
        status = 0
    finally:
        os._exit(status)


def counted(file: Path) -> tuple[int, int]:
    """The misses of data in a file of cachegrind, in the L1 cache and in the last one."""
    lines = dict(
        line.split(": ", 1)
        for line in file.read_text().splitlines()
        if line.startswith(("events: ", "summary: "))
    )
    numbers = (int(number) for number in lines["summary"].split())
    events = dict(zip(lines["events"].split(), numbers, strict=True))
    return events["D1mr"] + events["D1mw"], events["DLmr"] + events["DLmw"]


def count(names: Sequence[str], libraries: Sequence[str]) -> Counts:
    """The misses of one call by row and library."""
    shape = lambda cache: ",".join(map(str, cache))
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "-q", "--tool=cachegrind", "--cache-sim=yes", f"--D1={shape(FIRST)}",
            f"--LL={shape(LAST)}", f"--cachegrind-out-file={folder}/%p",
            sys.executable, "-m", "benches.cachesim", "--peers", ",".join(libraries[1:]),
            "--simulate", *names,
        ]  # fmt: skip
        ran = subprocess.run(
            command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        processes: dict[str, dict[str, list[int]]] = json.loads(ran.stdout.splitlines()[-1])
        return {
            row: {name: per_call(Path(folder), *ids) for name, ids in by_library.items()}
            for row, by_library in processes.items()
        }


def per_call(folder: Path, few: int, many: int) -> Misses:
    """The misses of one call, from the processes with few and many calls."""
    before, after = counted(folder / str(few)), counted(folder / str(many))
    first, last = ((b - a) / (MANY - FEW) for a, b in zip(before, after, strict=True))
    return Misses(first, last)


def excessive(rows: Sequence[Row], counts: Counts) -> list[str]:
    """The rows in which Girih misses a cache too often."""
    out = []
    for row in rows:
        found = counts[row.workload.name]["girih"]
        for title, misses, cache in (("L1", found.first, FIRST), ("last", found.last, LAST)):
            factor = misses / row.bound(cache)
            if factor > ALLOWED:
                name = row.workload.name
                out.append(f"{name}: {factor:.1f} times the bound of the {title} cache")
    return out


def table(rows: Sequence[Row], counts: Counts) -> str:
    """A line for each row and library: misses per kilobyte of operands, or per thousand
    multiply-adds for products, each with the bound and the factor.
    """
    heads = ["", "library", "per", "32 KB", "bound", "factor", "1 MB", "bound", "factor"]
    lines = []
    for row in rows:
        unit = row.workload.flops / 2 / 1000 if row.product else row.workload.bytes / 1024
        for name, found in counts[row.workload.name].items():
            cells = []
            for misses, cache in ((found.first, FIRST), (found.last, LAST)):
                bound = row.bound(cache)
                factor = f"{misses / bound:.2f}"
                cells += [f"{misses / unit:.2f}", f"{bound / unit:.2f}"]
                cells += [f"**{factor}**" if misses > ALLOWED * bound else factor]
            per = "1000 multiply-adds" if row.product else "KB"
            lines.append([row.workload.name, name, per, *cells])
    return report.table(heads, lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if there is no such row, or with `--check` if one is flagged."""
    parser = guards.parser("cachesim", __doc__, 1, "")
    # Internal: runs these rows in this process, which valgrind emulates.
    parser.add_argument("--simulate", nargs="+", help=argparse.SUPPRESS)
    options = guards.parsed(parser, argv)
    if options.simulate:
        print(json.dumps(simulate(options.simulate, options.libraries)))
        return 0
    if shutil.which("valgrind") is None:
        print("Skipped: misses are counted by valgrind, which is not here.")
        return 0
    by_name = {row.workload.name: row for row in rows()}
    names = [
        w.name for w in guards.chosen([row.workload for row in by_name.values()], options.only)
    ]
    if not names:
        print("no row has such a name")
        return 1
    chosen = [by_name[name] for name in names]
    print(f"{machine.processor()}, emulated by valgrind", flush=True)
    counts = count(names, options.libraries)
    print(f"\n{table(chosen, counts)}")
    return guards.verdict(excessive(chosen, counts), options.check)


if __name__ == "__main__":
    sys.exit(main())
