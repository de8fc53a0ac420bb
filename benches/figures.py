"""The README's figures: a few rows as a table, a picture and JSON."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from . import machine, report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .measure import Result

#: The colour of each library's bars, distinguishable by people with red-green colour blindness.
COLOURS = {
    "girih": "#0072b2",
    "numpy": "#999999",
    "torch": "#d55e00",
    "torch.compile": "#e69f00",
    "jax": "#009e73",
    "mlx": "#cc79a7",
}
FOLDER = machine.ROOT / "docs" / "benchmarks"
README = machine.ROOT / "README.md"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
LEFT, WIDTH, BAR, GAP = 24, 620, 16, 34


def table(results: Sequence[Result]) -> str:
    """The rows as Markdown: Girih's time, the best peer's time, and their ratio."""
    rows = []
    for result in results:
        best, ours = result.best_peer(), result.figures["girih"].median
        others = [report.seconds(ours), "", ""]
        if best is not None:
            name, figure = best
            times = f"{figure.median / ours:.3g}"
            others = [report.seconds(ours), f"{report.seconds(figure.median)} ({name})", times]
        rows.append([result.workload.headline, *others])
    return report.table(["", "Girih", "best of the others", "times faster"], rows)


def picture(results: Sequence[Result]) -> str:
    """Bars of every library's time per row, on a logarithmic axis."""
    shown = [
        [(name, f.median) for name, f in r.figures.items() if name in COLOURS] for r in results
    ]
    times = [seconds for bars in shown for _, seconds in bars]
    low = 10 ** math.floor(math.log10(min(times)))
    high = max(times) * 1.5
    length = lambda t: WIDTH * math.log(t / low) / math.log(high / low)
    out: list[str] = []
    y = 44
    for result, bars in zip(results, shown, strict=True):
        out.append(
            f'<text x="{LEFT}" y="{y}" font-size="13">{escape(result.workload.headline)}</text>'
        )
        for name, seconds in sorted(bars, key=lambda bar: bar[1]):
            y += BAR
            weight = ' font-weight="bold"' if name == "girih" else ""
            end = LEFT + length(seconds)
            out.append(
                f'<rect x="{LEFT}" y="{y - 9}" width="{length(seconds):.1f}" height="{BAR - 4}" '
                f'fill="{COLOURS[name]}"/>'
                f'<text x="{end + 6:.1f}" y="{y + 1}"{weight}>'
                f"{name} {report.seconds(seconds)}</text>"
            )
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 160}" height="{y - 16}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{LEFT}" y="20" font-size="13" fill="#666">'
        "time, logarithmic; shorter is better</text>"
    )
    return "\n".join([head, *out, "</svg>\n"])


def markdown(run: dict[str, Any], results: Sequence[Result]) -> str:
    """The table, with the machine on which it was measured."""
    return (
        "# The README's figures\n\nWritten by `make figures`. Medians; libraries alternate in one "
        f"process, and values are compared first.\n\n{place(run)}\n\n![Times](figures.svg)\n\n"
        f"{table(results)}"
    )


def place(run: dict[str, Any]) -> str:
    """The machine and the versions of a run, in one sentence."""
    versions = ", ".join(f"{n} {v}" for n, v in run["versions"].items())
    return f"{run['processor']}, {run['threads']} threads, {run['date'][:10]}; {versions}."


def into(text: str, block: str) -> str:
    """The README's text with `block` between its two markers."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{block}\n{END}{rest.split(END)[1]}"


def write(folder: Path, run: dict[str, Any], results: Sequence[Result]) -> None:
    """Writes table, picture and JSON; in the project's own folder also the block in the README."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.resolve() == FOLDER:
        block = f"{table(results)}\n{place(run)}"
        README.write_text(into(README.read_text(), block))
    (folder / "figures.md").write_text(markdown(run, results))
    (folder / "figures.svg").write_text(picture(results))
    (folder / "figures.json").write_text(report.record(run, results))
