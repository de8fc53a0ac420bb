"""The common part of the guards: commands that compare times of one machine with each other.

A guard needs no second machine and no recorded run: it compares a row under two conditions, or with
a bound that follows from the row's operands.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import machine, peers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .measure import Workload


def parser(name: str, about: str | None, threads: int, libraries: str) -> argparse.ArgumentParser:
    """The parser of a guard's command, with the options that all of them have."""
    out = argparse.ArgumentParser(
        prog=f"python -m benches.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out.add_argument("--only", action="append", metavar="NAME", help="rows with this in the name")
    out.add_argument("--peers", metavar="A,B", default=libraries, help=f"default: {libraries}")
    out.add_argument("--threads", type=int, default=threads, help=f"default: {threads}")
    out.add_argument("--budget", type=float, default=1.0, help="seconds per row and condition")
    out.add_argument("--check", action="store_true", help="exit status 1 if a row is flagged")
    return out


def parsed(of: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options, checked. Also limits the threads of all libraries, which must not have been
    imported.
    """
    options = of.parse_args(argv)
    if options.threads < 1 or not options.budget > 0:
        of.error("--threads and --budget: expected positive numbers")
    wanted = [name for name in options.peers.split(",") if name]
    if unknown := [name for name in wanted if name not in peers.EVERY]:
        of.error(f"--peers: no {', '.join(unknown)}; there are {', '.join(peers.EVERY)}")
    options.libraries = ["girih", *wanted]
    peers.limit_threads(options.threads)
    return options


def chosen(rows: Sequence[Workload], only: Sequence[str] | None) -> list[Workload]:
    """The rows whose name contains one of the given texts; all without texts."""
    wanted = [text.casefold() for text in only or []]
    return [
        row for row in rows if not wanted or any(text in row.name.casefold() for text in wanted)
    ]


def installed(options: argparse.Namespace) -> list[peers.Library]:
    """The libraries of the options that are installed; prints them and the machine."""
    libraries, missing = peers.installed(options.libraries)
    threads = f"{options.threads} thread{'s' if options.threads > 1 else ''}"
    print(f"{machine.processor()}, {threads}, load {machine.load()}")
    print(", ".join(f"{library.name} {library.version}" for library in libraries), flush=True)
    for name, why in missing.items():
        print(f"not here: {name}: {why}")
    return libraries


def verdict(flagged: Sequence[str], check: bool) -> int:
    """Prints the flagged rows; returns the exit status."""
    print("\n".join(f"flagged: {line}" for line in flagged) or "No row is flagged.")
    return 1 if check and flagged else 0
