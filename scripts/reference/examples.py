"""Runs the examples of docs/reference, compares what they print, and writes it anew.

Numbers need to agree to four digits: the last bits depend on the processor's instructions.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import math
import os
import re
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from . import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|\binf\b|\bnan\b)")


class Checker(doctest.OutputChecker):
    """Compares outputs up to white space and the last digits of floating-point numbers."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Whether what was printed is what the page says."""
        if super().check_output(want, got, optionflags):
            return True
        if "".join(NUMBER.sub("", want).split()) != "".join(NUMBER.sub("", got).split()):
            return False
        wanted, found = NUMBER.findall(want), NUMBER.findall(got)
        return len(wanted) == len(found) and all(map(close, wanted, found))


def close(a: str, b: str) -> bool:
    """Whether numbers are equal, or if they have a point agree to four digits."""
    if a == b or not any(c in a + b for c in ".e"):
        return a == b
    return math.isclose(float(a), float(b), rel_tol=1e-4, abs_tol=1e-6)


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """In an empty folder, for examples that write files."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def names() -> dict[str, object]:
    """What examples may use without importing it."""
    import girih as gr

    gr.manual_seed(0)
    return {"gr": gr, "__name__": "__main__"}


def run(text: str, name: str, path: str, line: int) -> str:
    """Runs one example; the report of what differs, empty if nothing does."""
    test = doctest.DocTestParser().get_doctest(text, names(), name, path, line)
    report = io.StringIO()
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=doctest.ELLIPSIS)
    with elsewhere():
        runner.run(test, out=report.write)
    return report.getvalue()


def printed(text: str) -> str:
    """An example with its outputs as they are now."""
    space = names()
    out: list[str] = []
    with elsewhere():
        for example in doctest.DocTestParser().get_examples(text):
            lines = example.source.rstrip("\n").split("\n")
            out += [f">>> {lines[0]}", *(f"... {line}".rstrip() for line in lines[1:])]
            stdout = io.StringIO()
            with contextlib.redirect_stdout(stdout):
                try:
                    exec(compile(example.source, "<example>", "single"), space)
                except Exception as error:
                    print("Traceback (most recent call last):\n    ...")
                    print("".join(traceback.format_exception_only(error)).rstrip())
            got = stdout.getvalue()
            # An output that differs in last digits only, or that says `...`, stays as it is.
            want = example.want
            alike = len(want.rstrip()) == len(got.rstrip()) or "..." in want
            kept = want and alike and Checker().check_output(want, got, doctest.ELLIPSIS)
            shown = (example.want if kept else got).rstrip("\n").split("\n") if got else []
            out += [line if line.strip() else "<BLANKLINE>" for line in shown]
    return "\n".join(out) + "\n"


def update(path: Path) -> bool:
    """Writes the outputs of a page's examples; whether any changed."""
    page = pages.read_page(path)
    lines = path.read_text().split("\n")
    for section in reversed(page.sections):
        for block in reversed(section.entries):
            if block.example:
                start = block.example_line - 1
                end = start + block.example.count("\n")
                lines[start:end] = printed(block.example).rstrip("\n").split("\n")
    new = "\n".join(lines)
    changed = new != path.read_text()
    if changed:
        path.write_text(new)
    return changed
