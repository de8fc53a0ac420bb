"""The report of a sweep: what is behind, by cause, and the rows; one file per processor."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from .. import limits, report
from . import causes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from .run import Measured

#: A row is behind by more than these factors.
BEHIND = (1.1, 1.3, 2.0)
#: A row without a peer is slow below this fraction of its limit.
THIRD = 1 / 3
#: The slowest first calls that are shown.
FIRST = 15

INTRODUCTION = """\
Written by `make bench ARGS="--sweep"`. Ordinary operations at all sizes, dtypes and layouts, which
nobody chose because they are fast. *Factor* is Girih's time over the best peer's: above 1 is
behind.
The *mean* is the geometric mean of the best peer's time over Girih's: above 1 is ahead. *Limit* is
the least time of the row's operations and bytes on this machine over Girih's time. *First* is the
first call, with compilation. *Cause* is what `girih.explain` says of the row's kernels: the
*portable executor* runs each operation of a kernel in a loop of its own, and *element-wise index
arithmetic* computes a position for each element that is read. Peers whose first calls were much
slower than the best one's are timed once.
"""

Line = dict[str, Any]


def entry(out: Measured, found: limits.Limits | None) -> Line:
    """A row's figures as they are kept."""
    result = out.result()
    best, ratio = result.best_peer(), result.ratio()
    ours = out.figures["girih"]
    share = limits.fractions(result, found).get("girih")
    rest = {n: f.median for n, f in out.figures.items()}
    first = {n: f.first for n, f in out.figures.items() if n in ("girih", "jax")}
    rounded = lambda times: {n: float(f"{t:.3g}") for n, t in times.items()}
    return {
        "name": out.row.name,
        "family": out.row.family,
        "op": out.row.op,
        "times": rounded(rest),
        "first": rounded(first),
        "peer": best[0] if best else None,
        "factor": None if ratio is None else float(f"{ratio:.3g}"),
        "limit": None if share is None else round(share, 3),
        "cause": causes.cause(out.facts, ours.median),
        "portable": out.facts.portable,
        "indexed": out.facts.indexed,
        "copies": out.facts.copies,
    }


def mean(lines: Iterable[Line]) -> float | None:
    """The geometric mean of the best peer's time over Girih's."""
    factors = [line["factor"] for line in lines if line["factor"]]
    return 1 / statistics.geometric_mean(factors) if factors else None


def behind(lines: Iterable[Line], factor: float) -> list[Line]:
    """The rows behind by more than a factor, the worst first."""
    found = [line for line in lines if line["factor"] and line["factor"] > factor]
    return sorted(found, key=lambda line: -line["factor"])


def counts(lines: Sequence[Line]) -> list[str]:
    """The numbers of rows behind by more than each factor."""
    return [str(len(behind(lines, factor))) for factor in BEHIND]


def grouped(title: str, lines: Sequence[Line], key: Callable[[Line], str]) -> str:
    """A table with a line for each group: rows, mean, rows behind, and the worst row."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[key(line)].append(line)
    cells = []
    for name, members in groups.items():
        average = mean(members)
        worst = behind(members, 0.0)[:1]
        text = f"{worst[0]['name']} ({worst[0]['factor']:.2f})" if worst else ""
        shown = "" if average is None else f"{average:.2f}"
        cells.append([name, str(len(members)), shown, *counts(members), text])
    cells.sort(key=lambda cell: (-int(cell[4]), -int(cell[3]), cell[0]))
    heads = ["", "rows", "mean", *(f"> {f}" for f in BEHIND), "worst"]
    return f"## By {title}\n\n{report.table(heads, cells)}"


def share(line: Line) -> str:
    """The fraction of the limit as text."""
    return "" if line["limit"] is None else f"{line['limit']:.0%}"


def cells(line: Line) -> list[str]:
    """A row's cells in the tables of rows."""
    times = line["times"]
    peer = f"{report.seconds(times[line['peer']])} ({line['peer']})" if line["peer"] else ""
    factor = "" if line["factor"] is None else f"{line['factor']:.2f}"
    return [line["name"], report.seconds(times["girih"]), peer, factor, share(line), line["cause"]]


HEADS = ["", "girih", "best peer", "factor", "limit", "cause"]


def slow_alone(lines: Iterable[Line]) -> list[Line]:
    """The rows without a peer that are under a third of their limit, the worst first."""
    alone = [line for line in lines if line["peer"] is None and line["limit"] is not None]
    return sorted((a for a in alone if a["limit"] < THIRD), key=lambda line: line["limit"])


def kernels(lines: Sequence[Line]) -> str:
    """By op: rows with kernels of the portable executor and with index arithmetic."""
    ops: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        ops[line["op"]].append(line)
    found = []
    for op, members in ops.items():
        of = [sum(bool(m[key]) for m in members) for key in ("portable", "indexed", "copies")]
        if any(of[:2]):
            found.append([op, str(len(members)), *(str(n) for n in of)])
    found.sort(key=lambda cell: (-int(cell[2]) - int(cell[3]), cell[0]))
    heads = ["op", "rows", "portable executor", "index arithmetic", "copies"]
    return f"## Kernels by op\n\n{report.table(heads, found)}" if found else ""


def first_calls(lines: Sequence[Line]) -> str:
    """First calls beside JAX's, and the slowest."""
    both = [line for line in lines if len(line["first"]) == 2]
    text = "## First calls\n\n"
    if both:
        times = [line["first"]["jax"] / line["first"]["girih"] for line in both]
        text += (
            f"JAX's first call takes {statistics.geometric_mean(times):.1f} times as long, as a "
            f"geometric mean of {len(both)} rows. The slowest of Girih:\n\n"
        )
    slowest = sorted(lines, key=lambda line: -line["first"]["girih"])[:FIRST]
    seconds = lambda line, name: (
        report.seconds(line["first"][name]) if name in line["first"] else ""
    )
    rows = [
        [line["name"], seconds(line, "girih"), seconds(line, "jax"),
         report.seconds(line["times"]["girih"])]
        for line in slowest
    ]  # fmt: skip
    return text + report.table(["", "girih", "jax", "girih later"], rows)


def overview(lines: Sequence[Line]) -> str:
    """The summary in two sentences."""
    compared = [line for line in lines if line["factor"]]
    average = mean(compared)
    if average is None:
        return f"{len(lines)} rows, none with a peer."
    late = {factor: len(behind(compared, factor)) for factor in BEHIND}
    parts = [f"{n} ({n / len(compared):.0%}) by more than {f}" for f, n in late.items()]
    return (
        f"{len(lines)} rows, {len(compared)} with a peer: geometric mean {average:.2f}; behind are "
        f"{', '.join(parts)}. Of the rows without a peer, {len(slow_alone(lines))} are under a "
        "third of their limit."
    )


def summary(results: Sequence[Measured]) -> str:
    """What the command prints at the end."""
    lines = [entry(out, None) for out in results]
    text = [overview(lines)]
    text += [f"  {line['factor']:6.2f}  {line['name']}" for line in behind(lines, BEHIND[1])]
    return "\n".join(text)


def markdown(run: dict[str, Any], lines: Sequence[Line]) -> str:
    """The whole report."""
    facts = [
        f"- {run['date']}, commit {run['commit']}, {run['seconds']} s",
        *report.machine_facts(run),
        *(f"- not here: {name}: {why}" for name, why in run["missing"].items()),
        *(f"- wrong: {text}" for text in run["wrong"]),
    ]
    late, alone = behind(lines, BEHIND[0]), slow_alone(lines)
    parts = [
        "# A sweep of ordinary operations\n",
        INTRODUCTION,
        "\n".join(facts) + "\n",
        overview(lines) + "\n",
        grouped("cause", lines, lambda line: str(line["cause"])),
        grouped("family", lines, lambda line: str(line["family"])),
        f"## Behind\n\n{report.table(HEADS, [cells(line) for line in late])}" if late else "",
        f"## Without a peer, under a third of the limit\n\n"
        f"{report.table(HEADS, [cells(line) for line in alone])}" if alone else "",
        kernels(lines),
        first_calls(lines),
        f"## All rows\n\n{report.table(HEADS, [cells(line) for line in lines])}",
    ]  # fmt: skip
    return "\n".join(part for part in parts if part)


def file_name(processor: str, threads: int) -> str:
    """The name of a processor's files."""
    return re.sub(r"[^a-z0-9]+", "-", f"{processor} {threads} threads".casefold()).strip("-")


def record(run: dict[str, Any], lines: Sequence[Line]) -> str:
    """A run as JSON, a row per line."""
    rows = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    head = json.dumps(run, ensure_ascii=False)
    return f'{{"run": {head},\n"rows": [\n{rows}\n]}}\n'


def by_processor(folder: Path) -> str:
    """A line for each processor's kept run."""
    found = []
    for file in sorted(folder.glob("*.json")):
        kept = json.loads(file.read_text())
        run, lines = kept["run"], kept["rows"]
        average = mean(lines)
        found.append([
            f"[{run['processor']}, {run['threads']} threads]({file.stem}.md)", run["date"][:10],
            run["commit"], str(len(lines)), "" if average is None else f"{average:.2f}",
            *counts(lines), str(len(slow_alone(lines))),
        ])  # fmt: skip
    heads = ["", "date", "commit", "rows", "mean", *(f"> {f}" for f in BEHIND), "slow alone"]
    return (
        "# Sweeps by processor\n\nThe newest sweep of each processor. *Mean* is the geometric mean "
        "of the best peer's time over\nGirih's; the next columns are rows behind by more than each "
        "factor, and rows without a peer under a\nthird of their limit.\n\n"
        f"{report.table(heads, found)}"
    )


def write(folder: Path, run: dict[str, Any], results: Sequence[Measured]) -> Path:
    """Writes a run's files; returns the report's path."""
    lines = [entry(out, run["limits"]) for out in results]
    folder.mkdir(parents=True, exist_ok=True)
    name = file_name(run["processor"], run["threads"])
    (folder / f"{name}.json").write_text(record(run, lines))
    path = folder / f"{name}.md"
    path.write_text(markdown(run, lines))
    (folder / "index.md").write_text(by_processor(folder))
    return path
