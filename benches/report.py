"""The report of a run: a table in Markdown, a picture in SVG, and the figures in JSON."""

from __future__ import annotations

import json
import math
from html import escape
from typing import TYPE_CHECKING, Any

from . import history, limits, peers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .measure import Figure, Result

Run = dict[str, Any]

#: The missing part of an interrupted run.
INTERRUPTED = "the other rows"
#: The groups whose first calls are shown.
FIRST_SHOWN = ("Function transforms", "Models")

INTRODUCTION = """\
Medians of calls that end when the value is there; libraries alternate sample by sample in one
process, and each value is compared before it is timed. *Ratio* is Girih's time over the best
peer's: below 1.00 is ahead; *target* is the ratio, or the time, that is aimed at. *Limit* is the
least time that the row's multiply-adds and bytes take on this machine (measured in the same run)
over Girih's time; rows below 70% are listed under *Far from the limit*. Rows of *compile* are first
calls, from a function to its result, and in brackets what the same call takes later. Peers that are
given a buffer to write to (`out=`) are shown and not counted as best. *girih* calls functions made
by `girih.compile`, as others those of theirs; *girih lazy* records its graph anew in each call.
"""
FAR = """\
## Far from the limit

{0} of {1} rows with a limit are below {2:.0%} of it, worst first. The best peer's fraction is of
the same limit, and bold where the peer gets nearer. Where no library gets near, what takes the time
is not in the limit: the fixed cost of a call, or several passes over the operands.

"""


def seconds(value: float) -> str:
    """A time with three significant digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return (
                f"{value / scale:.3g} {unit}"
                if value < 999 * scale
                else f"{value / scale:.0f} {unit}"
            )
    return f"{value * 1e9:.0f} ns"


def size(value: float) -> str:
    """A size in MB."""
    return f"{value / 2**20:.1f} MB"


def row(result: Result, found: limits.Limits | None) -> dict[str, str]:
    """The cells of a row: times by library, and the ratios."""
    cells = {name: time_cell(f) for name, f in result.figures.items()}
    ratio, best = result.ratio(), result.best_peer()
    cells["ratio"] = ratio_cell(ratio)
    cells["best peer"] = best[0] if best else ""
    cells["target"] = target(result)
    reached = limits.fractions(result, found).get("girih")
    cells["limit"] = "" if reached is None else f"{reached:.0%}"
    return cells


def ratio_cell(ratio: float | None) -> str:
    """The ratio to the best peer's time, bold if the peer is faster."""
    if ratio is None:
        return ""
    return f"**{ratio:.2f}**" if ratio > 1 else f"{ratio:.2f}"


def time_cell(figure: Figure) -> str:
    """The median; for first calls followed by the median of later calls."""
    later = f" ({seconds(figure.later)} later)" if figure.later is not None else ""
    return seconds(figure.median) + later


def target(result: Result) -> str:
    """The target, and whether it is missed."""
    w, ratio = result.workload, result.ratio()
    ours = result.figures.get("girih")
    parts = []
    if ratio is not None:
        parts.append(f"{w.target:.2f}" + (" missed" if ratio > w.target else ""))
    if w.within is not None and ours is not None:
        parts.append(seconds(w.within) + (" missed" if ours.median > w.within else ""))
    return ", ".join(parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns except the first are right-aligned."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def groups(results: Sequence[Result], found: limits.Limits | None) -> str:
    """A table per group, with a column for each library with a figure in the group."""
    out = []
    for group in dict.fromkeys(r.group for r in results):
        members = [r for r in results if r.group == group]
        present = {name for r in members for name in r.figures}
        columns = [name for name in peers.EVERY if name in present]
        heads = [*columns, "ratio", "target", "best peer", "limit"]
        cells = [(r.workload.name, row(r, found)) for r in members]
        lines = [[name, *(c.get(h, "") for h in heads)] for name, c in cells]
        out.append(f"## {group}\n\n{table(['', *heads], lines)}")
    return "\n".join(out)


def memory(results: Sequence[Result]) -> str:
    """The peak memory of the rows for which it was measured."""
    measured = [r for r in results if any(f.peak_bytes is not None for f in r.figures.values())]
    if not measured:
        return ""
    present = {n for r in measured for n, f in r.figures.items() if f.peak_bytes is not None}
    columns = [name for name in peers.EVERY if name in present]
    rows = []
    for r in measured:
        peaks = {n: f.peak_bytes for n, f in r.figures.items() if f.peak_bytes is not None}
        rows.append([r.workload.name, *(size(peaks[n]) if n in peaks else "" for n in columns)])
    return (
        "## Peak memory\n\nIn a process of its own: the most that is held during later calls, less "
        f"what was held before the first, operands there.\n\n{table(['', *columns], rows)}"
    )


def first_calls(results: Sequence[Result]) -> str:
    """The times of some rows' first calls, including tracing and compilation."""
    shown = [r for r in results if r.group in FIRST_SHOWN]
    if not shown:
        return ""
    present = {name for r in shown for name in r.figures}
    columns = [name for name in peers.EVERY if name in present]
    firsts = lambda r: {n: seconds(f.first) for n, f in r.figures.items()}
    rows = [[r.workload.name, *(firsts(r).get(n, "") for n in columns)] for r in shown]
    return f"## First calls\n\n{table(['', *columns], rows)}"


def behind(results: Sequence[Result]) -> str:
    """The rows in which a peer is faster, the worst first."""
    rows = [(r.ratio() or 0.0, r) for r in results]
    slower = sorted((item for item in rows if item[0] > 1), key=lambda item: -item[0])
    if not slower:
        return ""
    lines = [[r.workload.name, f"{ratio:.2f}", r.best_peer()[0]] for ratio, r in slower]  # type: ignore[index]
    return f"## Behind\n\n{table(['', 'ratio', 'best peer'], lines)}"


def by_processor(runs: Sequence[history.Entry]) -> str:
    """The latest recorded runs of all processors, row by row."""
    shown = history.latest(runs)
    if not shown:
        return ""
    heads = [f"{run['processor']}, {run['threads']} threads" for run in shown]
    names = dict.fromkeys(name for run in shown for name in run["rows"])
    rows = [
        ["date", *(str(run["date"])[:10] for run in shown)],
        ["commit", *(run["commit"] for run in shown)],
        ["geometric mean", *(f"{run['mean']:.2f}" for run in shown)],
        ["rows behind", *(f"{run['behind']} of {len(run['rows'])}" for run in shown)],
        *([name, *(ratio_cell(run["rows"].get(name)) for run in shown)] for name in names),
    ]
    return (
        "## By processor\n\nThe newest recorded run of each processor: Girih's time over the best "
        "peer's.\n\n![Geometric mean of each recorded run](history.svg)\n\n"
        f"{table(['', *heads], rows)}"
    )


def far(results: Sequence[Result], found: limits.Limits | None) -> str:
    """The rows that are far from their limits, the worst first; and the rows above their limits."""
    reached = [(limits.fractions(r, found), r) for r in results]
    rows = sorted(
        ((shares["girih"], shares, r) for shares, r in reached if "girih" in shares),
        key=lambda item: item[0],
    )
    lines = []
    for share, shares, r in rows:
        least, best = limits.of(r.workload, found), r.best_peer()
        if share < limits.FAR and least is not None:
            peer = f"{shares[best[0]]:.0%} ({best[0]})" if best else ""
            nearer = best is not None and shares[best[0]] > share
            times = (seconds(r.figures["girih"].median), seconds(least.seconds))
            cells = [f"**{peer}**" if nearer else peer, *times, least.resource]
            lines.append([r.workload.name, f"{share:.0%}", *cells])
    out = []
    if lines:
        heads = ["", "girih", "best peer", "girih's time", "least time", "limited by"]
        out.append(FAR.format(len(lines), len(rows), limits.FAR) + table(heads, lines))
    above = [f"{r.workload.name} ({share:.0%})" for share, _, r in rows if share > limits.WRONG]
    if above:
        names = ", ".join(above)
        out.append(f"## Above the limit\n\nThe limit of these rows is wrong: {names}.\n")
    return "\n".join(out)


def limits_text(found: limits.Limits | None) -> str:
    """The measured limits of the machine."""
    if found is None:
        return "Limits were not measured.\n"
    widths = [
        [name, *(f"{b[key]:.0f} GB/s" for key in ("add_one", "add", "read"))]
        for name, b in found["bandwidth"].items()
    ]
    peaks = ", ".join(
        f"{d} {found[d]['gflops_one']:.0f} Gop/s on one thread, {found[d]['gflops']:.0f} on all"
        for d in ("f32", "bf16", "int8")
        if found.get(d, {}).get("gflops")
    )
    heads = ["working set", "x + y, one thread", "x + y", "read"]
    return f"## Limits\n\nMultiply-adds in registers: {peaks}.\n\n{table(heads, widths)}"


def machine_facts(run: Run) -> list[str]:
    """Lines about the machine and the libraries of a run."""
    versions = ", ".join(f"{n} {v}" for n, v in run["versions"].items())
    return [
        f"- {run['processor']}, {run['cpus']} CPUs, {run['threads']} threads used, {run['system']}",
        f"- load average {run['load_before']} before, {run['load_after']} after",
        f"- {versions}",
    ]


def markdown(run: Run, results: Sequence[Result], runs: Sequence[history.Entry] = ()) -> str:
    """The whole report, with the recorded runs if there are any."""
    absent = "; ".join(f"{n}: {why}" for n, why in run["missing"].items())
    facts = [
        f"- {run['date']}, commit {run['commit']}",
        *machine_facts(run),
        *([f"- not here: {absent}"] if absent else []),
    ]
    parts = [
        "# Girih and its peers on the CPU\n",
        INTRODUCTION,
        "\n".join(facts) + "\n",
        "![Girih's time over the best peer's](cpu.svg)\n",
        groups(results, run["limits"]),
        first_calls(results),
        memory(results),
        behind(results),
        far(results, run["limits"]),
        limits_text(run["limits"]),
        by_processor(runs),
    ]
    return "\n".join(part for part in parts if part)


def picture(results: Sequence[Result]) -> str:
    """Bars of the ratios on a logarithmic axis, best first."""
    rows = [(ratio, r.workload.name) for r in results if (ratio := r.ratio()) is not None]
    rows.sort()
    low = min([0.1, *(ratio for ratio, _ in rows)])
    high = max([10.0, *(ratio for ratio, _ in rows)])
    left, width, step, top = 330, 430, 16, 46
    height = top + step * len(rows) + 12
    at = lambda ratio: left + width * math.log(ratio / low) / math.log(high / low)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{left}" y="16" font-size="13">Girih\'s time over the best peer\'s</text>',
    ]
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x = at(10.0**power)
        out.append(
            f'<path d="M{x:.1f} {top - 8}V{height - 8}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{top - 14}" text-anchor="middle">{10.0**power:g}</text>'
        )
    for i, (ratio, name) in enumerate(rows):
        y = top + step * i
        start, end = sorted((at(1.0), at(ratio)))
        colour = "#009e73" if ratio <= 1 else "#d55e00"
        out.append(
            f'<text x="{left - 8}" y="{y + 9}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{start:.1f}" y="{y}" width="{end - start:.1f}" height="11" fill="{colour}"/>'
            f'<text x="{end + 4:.1f}" y="{y + 9}">{ratio:.2f}</text>'
        )
    return "\n".join([*out, "</svg>\n"])


def record(run: Run, results: Sequence[Result]) -> str:
    """All measurements as JSON."""
    rows = [
        {
            "group": r.group,
            "name": r.workload.name,
            "figures": {name: vars(f) for name, f in r.figures.items()},
            "missing": r.missing,
        }
        for r in results
    ]
    return json.dumps({**run, "rows": rows}, indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, run: Run, results: Sequence[Result]) -> None:
    """Writes all three files, and records a run of all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    # Record only complete runs: means over different rows are not comparable.
    whole = run.get("whole") and INTERRUPTED not in run["missing"]
    runs = history.add(folder, history.entry(run, results)) if whole else history.load(folder)
    if runs:
        (folder / "history.svg").write_text(history.picture(runs))
    (folder / "cpu.md").write_text(markdown(run, results, runs))
    (folder / "cpu.svg").write_text(picture(results))
    (folder / "cpu.json").write_text(record(run, results))
