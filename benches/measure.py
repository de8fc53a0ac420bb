"""The measurement: libraries alternate sample by sample, and values are compared first.

A figure is the median of its samples; if enough samples were not preempted, only of these.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import peers

Call = Callable[[], Any]
Build = Callable[[peers.Library, Sequence[np.ndarray]], Call]

# Threads of other libraries spin after their work, libgomp's for about 20 ms, and take a CPU from
# the next library. Wait for them.
SETTLED_S = 0.03
# Calls after a pause are slower by half for a while.
WARM_S = 0.01
MAX_SAMPLES = 31
MIN_SAMPLES = 5
# The number of undisturbed samples that is enough to drop the others.
ENOUGH = 7


@dataclass(frozen=True)
class Workload:
    """One row.

    Attributes:
        name: The unique name of the row.
        inputs: Generates the operands.
        build: Makes the timed call, which returns when its result has been computed.
        libraries: The names of the libraries that can run it; includes `girih`.
        flops: The minimum number of floating-point operations, two for each multiply-add and each
            other vector instruction; 0 if another resource is the limit.
        bytes: The minimum number of bytes to read and write, each counted once.
        dtype: The dtype of the multiplications, which determines the peak rate.
        target: The target of the ratio to the best peer.
        within: The target time in seconds, if any.
        lazy: Whether Girih without `compile` is shown, too.
        tolerance: The maximum difference from the reference, relative to the largest value (at
            least 1).
        first: Whether the first call is timed: all compiled programs are dropped before each call.
        memory: Whether peak memory is measured, too, in a process of its own per library.
        quick: Whether the row is part of `--quick`.
        calls: The number of the call whose value is compared; later than the first if calls have
            state.
        compared: Selects the part of the value to compare, if some of it is not unique.
        headline: The row's name in the README, if it is one of the README's figures.
    """

    name: str
    inputs: Callable[[np.random.Generator], Sequence[np.ndarray]]
    build: Build
    libraries: tuple[str, ...] = peers.ALL
    flops: float = 0.0
    bytes: float = 0.0
    dtype: str = "f32"
    target: float = 1.0
    within: float | None = None
    lazy: bool = True
    tolerance: float = 1e-4
    first: bool = False
    memory: bool = False
    quick: bool = False
    calls: int = 1
    compared: Callable[[Any], Any] = lambda value: value
    headline: str = ""


@dataclass
class Figure:
    """The time of one library in seconds; for first calls also the time of later calls."""

    median: float
    spread: float
    first: float
    samples: int
    peak_bytes: int | None = None
    later: float | None = None


@dataclass
class Result:
    """The result of a row: figures by library, and the reason if a library has none."""

    workload: Workload
    group: str
    figures: dict[str, Figure] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def best_peer(self) -> tuple[str, Figure] | None:
        """The fastest peer. Other variants of Girih, and variants that write to a given buffer, do
        not count.
        """
        others = [item for item in self.figures.items() if item[0] not in ("girih", *peers.SHOWN)]
        return min(others, key=lambda item: item[1].median, default=None)

    def ratio(self) -> float | None:
        """Girih's time divided by the best peer's; below one, Girih is faster."""
        best = self.best_peer()
        if best is None or "girih" not in self.figures:
            return None
        return self.figures["girih"].median / best[1].median


class WrongValueError(AssertionError):
    """Libraries disagree about the value of a workload."""


def compute(body: Callable[..., Any]) -> Build:
    """A call of `body(library, *tensors)`, compiled where the library compiles."""

    def build(library: peers.Library, arrays: Sequence[np.ndarray]) -> Call:
        tensors = [library.tensor(a) for a in arrays]
        function = library.compiled(lambda *t: body(library, *t))
        return lambda: library.finish(function(*tensors))

    return build


def gradient(loss: Callable[..., Any]) -> Build:
    """A call of the gradient of `loss(library, x, *rest)` by x."""

    def build(library: peers.Library, arrays: Sequence[np.ndarray]) -> Call:
        tensors = [library.tensor(a) for a in arrays]
        function = library.gradient(lambda *t: loss(library, *t))
        return lambda: library.finish(function(*tensors))

    return build


def largest_difference(found: Any, expected: Any) -> float:
    """The maximum difference of two values or lists, relative to the largest value or 1."""
    if not isinstance(expected, list):
        found, expected = [found], [expected]
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if a.shape != b.shape:
            raise WrongValueError(f"shapes {a.shape} and {b.shape}")
        if a.size and not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise WrongValueError("a value is not finite")
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        worst = max(worst, float(np.abs(a - b).max(initial=0.0)) / scale)
    return worst


class Sampler:
    """The samples of one library for a row.

    Attributes:
        clock: The clock of the samples, in seconds. CPU time of a thread is for calls on one
            thread: other processes do not affect it as much.
    """

    def __init__(self, library: peers.Library, workload: Workload, arrays: Sequence[Any]) -> None:
        self.library, self.workload = library, workload
        self.clock: Callable[[], float] = time.perf_counter
        if workload.first:
            library.forget()
        self.call = workload.build(library, arrays)
        start = time.perf_counter()
        self.value = self.call()
        self.first = time.perf_counter() - start
        for _ in range(workload.calls - 1):
            self.value = self.call()
        self.make = lambda: workload.build(library, arrays)
        self.count = 1
        self.samples: list[tuple[float, bool]] = []
        self.later: list[float] = []

    def calibrate(self, sample_s: float) -> float:
        """Chooses the number of calls per sample; returns the time of one call."""
        if self.workload.first:
            self.samples.append((self.first, False))
            return self.first
        while True:
            seconds = self._timed(self.count)[0]
            if seconds >= sample_s / 2:
                return seconds
            self.count = max(self.count + 1, min(self.count * 16, self._wanted(sample_s, seconds)))

    def _wanted(self, sample_s: float, seconds: float) -> int:
        return int(self.count * sample_s / max(seconds, 1e-9))

    def sample(self) -> None:
        """Takes a sample, after warm-up calls that end the pause and fill the caches.

        For first calls, the programs of the warm-up calls are then dropped.
        """
        deadline = time.perf_counter() + WARM_S
        self.call()
        while time.perf_counter() < deadline:
            self.call()
        if self.workload.first:
            self.library.forget()
            self.call = self.make()
            seconds, quiet = self._timed(1)
            self.later.append(self._timed(1)[0])
        else:
            seconds, quiet = self._timed(self.count)
        self.samples.append((seconds / self.count, quiet))

    def _timed(self, count: int) -> tuple[float, bool]:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        start = self.clock()
        for _ in range(count):
            self.call()
        seconds = self.clock() - start
        return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw == before

    def figure(self) -> Figure:
        quiet = [seconds for seconds, undisturbed in self.samples if undisturbed]
        times = quiet if len(quiet) >= ENOUGH else [seconds for seconds, _ in self.samples]
        low, median, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        later = statistics.median(self.later) if self.later else None
        return Figure(median, high - low, self.first, len(times), later=later)


def run(
    workload: Workload,
    group: str,
    libraries: Sequence[peers.Library],
    budget_s: float,
    sample_s: float = 0.008,
) -> Result:
    """Measures a row in the libraries that can run it, within about the given time.

    Raises:
        WrongValueError: A library's value differs from the reference.
    """
    samplers, missing = prepare(workload, libraries)
    take(samplers, budget_s, sample_s)
    figures = {s.library.name: s.figure() for s in samplers}
    return Result(workload, group, figures, missing)


def prepare(
    workload: Workload,
    libraries: Sequence[peers.Library],
    arrays: Sequence[np.ndarray] | None = None,
) -> tuple[list[Sampler], dict[str, str]]:
    """The samplers of the libraries that can run a row, and the reasons why others cannot.

    The operands are generated unless they are given. A peer that raises cannot run the row.

    Raises:
        WrongValueError: A library's value differs from the reference, which is the value of the
            first library other than girih, or girih's own value if it is alone.
    """
    samplers, missing = [], {}
    if arrays is None:
        arrays = workload.inputs(np.random.default_rng(0))
    for library in libraries:
        lazy = library.name == peers.LAZY and workload.lazy
        if library.name not in workload.libraries and not lazy:
            continue
        try:
            samplers.append(Sampler(library, workload, arrays))
        except peers.UnsupportedError as error:
            missing[library.name] = str(error)
        except Exception as error:
            # A peer's own defect costs its figure, not the row.
            if library.name in ("girih", peers.LAZY):
                raise
            first = str(error).strip().partition("\n")[0]
            missing[library.name] = f"fails: {type(error).__name__}: {first}"
    _check(workload, samplers)
    return samplers, missing


def take(
    samplers: Sequence[Sampler],
    budget_s: float,
    sample_s: float = 0.008,
    least: int = MIN_SAMPLES,
    settled_s: float = SETTLED_S,
) -> None:
    """Samples in turn within about the given time, at least the given number of times each."""
    gc.collect()
    gc.disable()
    try:
        _interleave(samplers, budget_s, sample_s, least, settled_s)
    finally:
        gc.enable()


def _check(workload: Workload, samplers: list[Sampler]) -> None:
    compared = workload.compared
    values = [(s.library.name, s.library.numpy(compared(s.value))) for s in samplers]
    for s in samplers:
        s.value = None
    reference = next((v for v in values if v[0] != "girih"), values[0] if values else None)
    for name, value in values:
        assert reference is not None
        try:
            difference = largest_difference(value, reference[1])
        except WrongValueError as error:
            raise WrongValueError(f"{workload.name}: {name}, {reference[0]}: {error}") from None
        if not difference <= workload.tolerance:
            raise WrongValueError(
                f"{workload.name}: {name} differs from {reference[0]} by {difference:.2g}, "
                f"more than {workload.tolerance:.2g}"
            )


def _interleave(
    samplers: Sequence[Sampler], budget_s: float, sample_s: float, least: int, settled_s: float
) -> None:
    """Samples the libraries in turn, starting each round with another library.

    A call that uses the whole budget has only one sample.
    """
    round_s = {id(s): s.calibrate(sample_s) for s in samplers}
    patient = [s for s in samplers if round_s[id(s)] < budget_s]
    for s in samplers:
        if s not in patient and not s.samples:
            s.samples.append((round_s[id(s)] / s.count, False))
    deadline = time.perf_counter() + budget_s
    for number in range(MAX_SAMPLES):
        if number >= least and time.perf_counter() > deadline:
            break
        for k in range(len(patient)):
            s = patient[(number + k) % len(patient)]
            time.sleep(settled_s)
            s.sample()
