"""Every page of the user guide, and the README, runs: the Python blocks of a page in order, in one
namespace.

A block marked ``text`` after a Python block is the expected output; ``...`` matches anything.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site" / "index.md"
PAGES = sorted([*(ROOT / "docs" / "guide").glob("*.md"), ROOT / "README.md", SITE])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def blocks(text: str) -> list[tuple[int, str, str | None]]:
    """The line, code and expected output of each Python block."""
    found = list(BLOCK.finditer(text))
    out: list[tuple[int, str, str | None]] = []
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block[1] != "python":
            continue
        expected = None
        if (
            following
            and following[1] == "text"
            and not text[block.end() : following.start()].strip()
        ):
            expected = following[2]
        out.append((text[: block.start()].count("\n") + 2, block[2], expected))
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page.read_text())
    assert found, "the page shows no Python"
    names: dict[str, object] = {"__name__": "__guide__"}
    checker = doctest.OutputChecker()
    for line, code, expected in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Leading blank lines give errors the line numbers of the page.
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
        if expected is not None:
            same = checker.check_output(expected, printed.getvalue(), doctest.ELLIPSIS)
            assert same, f"{page.name}:{line} printed\n{printed.getvalue()}\nexpected\n{expected}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files(page):
    broken = [to for to in LINK.findall(page.read_text()) if not (page.parent / to).exists()]
    assert not broken
