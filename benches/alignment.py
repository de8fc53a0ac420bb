"""Rows with operands at the start of a cache line and 16 bytes after it.

    python -m benches.alignment              # a table; sensitive rows are flagged
    python -m benches.alignment --only softmax --threads 2

NumPy aligns arrays to 16 bytes only. Vectors of 32 or 64 bytes from such an address cross the ends
of cache lines. Girih shares the memory of such an array on request (`gr.asarray(x, copy=False)`);
its own memory starts at cache lines. NumPy and PyTorch share the memory, too; JAX copies such an
array and is left out. Results are in memory that the library allocates. The ratio is the median of
pairs of samples, one right after the other. A row is flagged if the offset makes Girih slower by
more than the factor `ALLOWED`, and slower at all in three of four pairs. Times are CPU time on one
thread, and wall-clock time on several threads.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import guards, peers, report

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from .measure import Workload

#: The offsets from a cache line in bytes.
OFFSETS = (0, 16)
PAGE = 4096
#: The least ratio of the times at both offsets that flags a row.
ALLOWED = 1.1


@dataclass(frozen=True)
class Pairs:
    """The samples of a library in seconds: at a cache line, and at the offset."""

    at: list[float]
    off: list[float]

    def ratio(self) -> float:
        """The median ratio of the pairs: above one, the offset costs time."""
        return statistics.median(self._ratios())

    def is_flagged(self) -> bool:
        """Whether the offset costs more than is allowed."""
        ratios = self._ratios()
        low = statistics.quantiles(ratios, n=4)[0] if len(ratios) > 1 else ratios[0]
        return self.ratio() > ALLOWED and low > 1

    def _ratios(self) -> list[float]:
        # A call that was interrupted for longer than the whole budget has one sample only.
        return [b / a for a, b in zip(self.at, self.off, strict=False)]


#: By row and library.
Times = dict[str, dict[str, Pairs]]


def rows() -> list[Workload]:
    """The rows, each with operands in the L1 cache, in the L2 cache, and in memory."""
    from . import kernels

    return [
        *(kernels.add(n) for n in (1 << 10, 1 << 14, 1 << 22)),
        *(kernels.exp(n) for n in (1 << 11, 1 << 15, 1 << 22)),
        *(kernels.sums(rows, 1024, 1) for rows in (4, 64, 1 << 13)),
        *(kernels.sums(rows, 1024, 0) for rows in (4, 64, 1 << 13)),
        *(kernels.norms(rows, width) for rows, width in ((8, 256), (32, 1024), (1 << 12, 1024))),
        *(kernels.softmax(rows, width) for rows, width in ((8, 256), (32, 1024), (1 << 12, 1024))),
        *(kernels.product(n, n, n) for n in (32, 128, 1024)),
    ]


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy of an array whose address is the start of a page and an offset."""
    import numpy as np

    memory = np.empty(array.nbytes + PAGE + offset, np.uint8)
    start = -memory.ctypes.data % PAGE + offset
    out = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def sharing(library: peers.Library) -> peers.Library:
    """The library, with tensors in the memory of the arrays."""
    out = copy.copy(library)
    out.tensor = library.shared  # type: ignore[method-assign]
    return out


def is_shared(library: peers.Library) -> bool:
    """Whether a tensor of the library is in the memory of an array with an offset."""
    import numpy as np

    array = placed(np.zeros(PAGE, np.float32), OFFSETS[1])
    try:
        tensor = library.shared(array)
    except peers.UnsupportedError:
        return False
    address = library.numpy(tensor).ctypes.data
    return bool(address == array.ctypes.data)


def measure_row(
    workload: Workload, libraries: Sequence[peers.Library], threads: int, budget_s: float
) -> dict[str, Pairs]:
    """The samples of a row by library, at both offsets in turn."""
    import numpy as np

    from . import measure

    arrays = workload.inputs(np.random.default_rng(0))
    operands = [[placed(array, offset) for array in arrays] for offset in OFFSETS]
    shared = [sharing(library) for library in libraries]
    at, off = (measure.prepare(workload, shared, placed)[0] for placed in operands)
    pairs = list(zip(at, off, strict=True))
    samplers = [sampler for pair in pairs for sampler in pair]
    if threads == 1:
        for sampler in samplers:
            sampler.clock = time.thread_time
    # On one thread, there are no threads of other libraries that spin.
    settled_s = 0.0 if threads == 1 else measure.SETTLED_S
    measure.take(samplers, budget_s, least=9, settled_s=settled_s)
    samples = lambda sampler: [seconds for seconds, _ in sampler.samples]
    return {a.library.name: Pairs(samples(a), samples(b)) for a, b in pairs}


def sensitive(times: Times) -> list[str]:
    """The rows in which the offset costs Girih too much."""
    return [
        f"{row}: {found['girih'].ratio():.2f} times as long at an offset of {OFFSETS[1]} bytes"
        for row, found in times.items()
        if found["girih"].is_flagged()
    ]


def table(times: Times) -> str:
    """A line for each row: the least time at a cache line, and the ratio, by library."""
    names = list(dict.fromkeys(name for found in times.values() for name in found))
    heads = [text for name in names for text in (name, f"at {OFFSETS[1]} bytes")]
    lines = []
    for row, found in times.items():
        cells = []
        for name in names:
            pairs = found[name]
            ratio = f"{pairs.ratio():.2f}"
            cells += [report.seconds(min(pairs.at))]
            cells += [f"**{ratio}**" if pairs.is_flagged() else ratio]
        lines.append([row, *cells])
    return report.table(["", *heads], lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if there is no such row, or with `--check` if one is flagged."""
    options = guards.parsed(guards.parser("alignment", __doc__, 1, "numpy,torch"), argv)
    chosen = guards.chosen(rows(), options.only)
    if not chosen:
        print("no row has such a name")
        return 1
    installed = guards.installed(options)
    libraries = [library for library in installed if is_shared(library)]
    for library in installed:
        print(f"{library.name}: {'shared memory' if library in libraries else 'copies; left out'}")
    times = {w.name: measure_row(w, libraries, options.threads, options.budget) for w in chosen}
    print(f"\n{table(times)}")
    return guards.verdict(sensitive(times), options.check)


if __name__ == "__main__":
    sys.exit(main())
