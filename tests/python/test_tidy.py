"""The table of requirements in docs/seeds.md: no id is missing, and each test it names exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SECTION = re.compile(r"^## ([A-Z]+)-01\.\.(\d+): ", re.M)
ROW = re.compile(
    r"^\| ([A-Z]+)-(\d+)([a-z]?)(?:\.\.(\d+)([a-z]?))? \| (.*?) \| (\w+) \| (.*?) ?\|$"
)


def rows():
    text = (ROOT / "docs" / "seeds.md").read_text()
    lines = [line for line in text.splitlines() if re.match(r"\| [A-Z]+-", line)]
    found = [ROW.match(line) for line in lines]
    assert all(found), [line for line, row in zip(lines, found, strict=True) if not row]
    return text, [row.groups() for row in found if row]


@cache
def names_in(path: str) -> set[str]:
    text = (ROOT / path).read_text()
    if path.endswith(".py"):
        return set(re.findall(r"^def (test_\w+)", text, re.M))
    # After the attribute, or in the body of proptest!, which has the attribute too.
    return set(re.findall(r"#\[test\]\s*(?:#\[[^\]]*\]\s*)*fn (\w+)", text))


def test_every_id_has_one_row():
    text, table = rows()
    for prefix, last in SECTION.findall(text):
        numbers: list[int] = []
        letters: dict[int, str] = {}
        for of, first, letter, to, to_letter, *_ in table:
            if of != prefix:
                continue
            if letter:
                end = to_letter or letter
                assert int(to or first) == int(first)
                span = "".join(chr(c) for c in range(ord(letter), ord(end) + 1))
                letters[int(first)] = letters.get(int(first), "") + span
            else:
                numbers += range(int(first), int(to or first) + 1)
        for number, found in letters.items():
            # An id of parts has all of them, in order.
            assert found == "abcdefghijklmnopqrstuvwxyz"[: len(found)], f"{prefix}-{number}{found}"
            numbers.append(number)
        assert sorted(numbers) == list(range(1, int(last) + 1)), prefix
    assert {row[0] for row in table} == {prefix for prefix, _ in SECTION.findall(text)}


def test_every_requirement_that_is_done_names_tests_that_exist():
    _, table = rows()
    for prefix, first, letter, *_, state, shown in table:
        name = f"{prefix}-{first}{letter}"
        assert state in ("done", "open", "declined"), name
        references = re.findall(r"`([^`]+)::(\w+)`", shown)
        if state == "done":
            assert references, f"{name} names no test"
            for path, test in references:
                assert test in names_in(path), f"{name}: there is no {test} in {path}"
        else:
            assert not references, f"{name} is {state} but names a test"
        if state == "declined":
            assert shown, f"{name}: why?"
