"""The command: selects rows and libraries, measures, and writes the report."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import machine, peers

if TYPE_CHECKING:
    from collections.abc import Sequence


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rows of each group")
    parser.add_argument("--models", action="store_true", help="whole models, instead of the rows")
    parser.add_argument("--sweep", action="store_true", help="ordinary operations of all kinds")
    parser.add_argument("--full", action="store_true", help="with --sweep: all sizes of all rows")
    parser.add_argument("--headline", action="store_true", help="the rows that the README shows")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="rows whose name or group has this in it"
    )
    parser.add_argument("--peers", metavar="A,B", help=f"of {', '.join(peers.EVERY[1:])}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds per row, about")
    parser.add_argument("--no-limits", action="store_true", help="do not measure the machine")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--out", type=Path, help="folder to write to; docs/benchmarks if everything is measured"
    )
    parser.add_argument("--list", action="store_true", help="names the rows and ends")
    # Internal: measures the peak memory of one row in one library in a process of its own.
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if not 1 <= options.threads <= (os.cpu_count() or 1):
        parser.error(f"--threads: expected 1 to {os.cpu_count()}, got {options.threads}")
    if not options.budget > 0:
        parser.error(f"--budget: expected a positive number of seconds, got {options.budget}")
    wanted = options.peers.split(",") if options.peers else []
    if unknown := [p for p in wanted if p not in peers.EVERY]:
        parser.error(f"--peers: no {', '.join(unknown)}; there are {', '.join(peers.EVERY)}")
    options.libraries = ["girih", *wanted] if options.peers is not None else None
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if a value was wrong."""
    options = arguments(argv)
    peers.limit_threads(options.threads)
    # These modules import NumPy, which reads the number of threads on import.
    from . import command, figures, report
    from .sweep import run as sweep

    if options.peak_of:
        print(json.dumps(command.peak_of(*options.peak_of)))
        return 0
    if options.sweep:
        return sweep.run(options, description())
    chosen = command.choose(options.quick, options.only or [], options.headline, options.models)
    if options.list or not chosen:
        print("\n".join(f"{group}: {w.name}" for group, w in chosen) or "no row has such a name")
        return 0 if chosen else 1
    part = options.quick or options.only or options.libraries or options.headline
    whole = not (part or options.models)
    out = options.out or machine.ROOT / ("docs/benchmarks" if whole else "bench-out")
    write = figures.write if options.headline else report.write
    about = {**description(), "whole": whole}
    return command.run(chosen, options, out, about, write)


def description() -> dict[str, object]:
    """The time and the machine of this run."""
    command = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit.stdout.strip() or "unknown",
        "processor": machine.processor(),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "load_before": machine.load(),
    }


if __name__ == "__main__":
    sys.exit(main())
