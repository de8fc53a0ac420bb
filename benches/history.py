"""The recorded runs: a line for each run in `history.json`, and a picture of the geometric means.

Girih can be ahead on one processor and behind on another, so a run never replaces a run on another
processor.
"""

from __future__ import annotations

import json
import math
import statistics
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .measure import Result

#: A recorded run: date, commit, processor, threads, geometric mean, number of rows behind, ratio by
#: row.
Entry = dict[str, Any]
FILE = "history.json"


def entry(run: dict[str, Any], results: Sequence[Result]) -> Entry:
    """The recorded part of a run."""
    ratios = {r.workload.name: ratio for r in results if (ratio := r.ratio()) is not None}
    return {
        **{key: run[key] for key in ("date", "commit", "processor", "threads", "versions")},
        "mean": round(statistics.geometric_mean(ratios.values()), 4) if ratios else 1.0,
        "behind": sum(ratio > 1 for ratio in ratios.values()),
        "rows": {name: round(ratio, 3) for name, ratio in ratios.items()},
    }


def load(folder: Path) -> list[Entry]:
    """Loads the recorded runs, oldest first; none if there is no file.

    Raises:
        ValueError: The file is damaged. It is not overwritten.
    """
    file = folder / FILE
    if not file.exists():
        return []
    try:
        runs: list[Entry] = [json.loads(line) for line in file.read_text().splitlines() if line]
        for run in runs:
            run["processor"], run["rows"].items()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} is damaged: {error!r}; restore or remove it") from error
    return runs


def add(folder: Path, new: Entry) -> list[Entry]:
    """Appends a run and returns all runs."""
    runs = [*load(folder), new]
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(new, ensure_ascii=False) + "\n")
    return runs


def latest(runs: Sequence[Entry]) -> list[Entry]:
    """The latest run of each processor and number of threads, the latest of all first."""
    newest = {(run["processor"], run["threads"]): run for run in runs}
    return sorted(newest.values(), key=lambda run: str(run["date"]), reverse=True)


def picture(runs: Sequence[Entry]) -> str:
    """The geometric mean of each recorded run from left to right, with one line per processor."""
    processors = dict.fromkeys(run["processor"] for run in runs)
    # The processors are listed below the lines, each in a row.
    width, left, top, bottom = 720, 46, 24, 24 + 14 * len(processors)
    height = top + 176 + bottom
    means = [run["mean"] for run in runs]
    low, high = min([0.25, *means]), max([1.0, *means])
    x = lambda i: left + (width - left - 20) * (i + 0.5) / max(1, len(runs))
    scale = (height - top - bottom) / math.log(high / low)
    y = lambda mean: top + math.log(high / mean) * scale
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{left}" y="14" font-size="13">Geometric mean of Girih\'s time over the best '
        "peer's, by recorded run</text>",
    ]
    for mark in (0.25, 0.5, 0.75, 1.0):
        out.append(
            f'<path d="M{left} {y(mark):.1f}H{width - 20}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:g}</text>'
        )
    colours = ("#009e73", "#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9")
    for k, processor in enumerate(processors):
        colour = colours[k % len(colours)]
        points = [(x(i), y(run["mean"]), run) for i, run in enumerate(runs)
                  if run["processor"] == processor]  # fmt: skip
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
        for a, b, run in points:
            out.append(
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>'
                f'<text x="{a:.1f}" y="{b - 7:.1f}" text-anchor="middle">{run["mean"]:.2f}</text>'
            )
        out.append(
            f'<text x="{left}" y="{height - bottom + 22 + 14 * k}" fill="{colour}">'
            f"{escape(processor)}</text>"
        )
    return "\n".join([*out, "</svg>\n"])
