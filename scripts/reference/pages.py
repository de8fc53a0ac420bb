"""Reads docs/reference: which page a public name is on, and what is said beyond its docstring.

A page has a title, sections (``##``) and entries (``###``), whose heading is the public name. Below
a heading come paragraphs, then facts, then for an entry a doctest::

    ### linspace

    The last number is stop itself.

    - num: How many numbers.
    - raises InvalidArgumentError: num is negative.

    ```python
    >>> gr.linspace(0, 1, 5)
    [0.  , 0.25, 0.5 , 0.75, 1.  ]
    ```

A fact is a list item: ``NAME: what the parameter is``, ``returns: ...`` or ``raises ERROR: ...``.
Facts of a section, of a page and of ``parameters.md`` hold for all entries below; the nearest
counts. ``raises ERROR for axis, dim: ...`` holds for functions with one of these parameters, and
``raises nothing`` ends what is said of errors further out. ``module: NAME`` says where the names of
a page or section are found, ``signature: none`` that users do not make an object of a class
themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FACT = re.compile(r"- (raises nothing$|(?:raises )?[\w.*, ]+: .*)")
HEADING = re.compile(r"(#{1,3}) (.+)")
LINK = re.compile(r"^- \[[^\]]+\]\((\w+)\.md\)", re.M)


@dataclass
class Block:
    """A heading with what stands directly below it."""

    level: int
    title: str
    line: int
    text: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    #: Errors by name; None if nothing is said of them.
    raises: dict[str, str] | None = None
    #: Whether errors that are said further out do not hold.
    clears: bool = False
    #: Errors that only functions with one of these parameters raise.
    only_with: dict[str, set[str]] = field(default_factory=dict)
    example: str = ""
    example_line: int = 0


@dataclass
class Section:
    """A heading of the second level (or the page itself, before the first) and its entries."""

    head: Block
    entries: list[Block] = field(default_factory=list)


@dataclass
class Page:
    """One topic."""

    path: Path
    head: Block
    sections: list[Section]

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.path.stem


class PageError(Exception):
    """A page that is not written as it has to be."""


def _take_facts(block: Block, lines: list[str], path: Path) -> list[str]:
    """Moves the facts among a block's lines into it; what is left is text."""
    rest: list[str] = []
    current: list[str] | None = None
    facts: list[list[str]] = []
    for line in lines:
        if FACT.match(line):
            current = [line[2:]]
            facts.append(current)
        elif current is not None and line.startswith("  "):
            current.append(line.strip())
        else:
            current = None
            rest.append(line)
    for fact in (" ".join(lines) for lines in facts):
        keys, _, value = fact.partition(": ")
        if keys.startswith("raises "):
            error, _, parameters = keys[7:].partition(" for ")
            block.raises = block.raises or {}
            if error == "nothing":
                block.clears = True
            else:
                block.raises[error] = value
            if parameters:
                block.only_with[error] = set(parameters.split(", "))
            continue
        for key in keys.split(", "):
            if key in block.facts:
                raise PageError(f"{path}:{block.line}: {block.title} says {key} twice")
            block.facts[key] = value
    return rest


def _finish(block: Block, lines: list[str], path: Path) -> None:
    """Sorts the lines below a heading into text, facts and example."""
    text: list[str] = []
    fenced: list[str] | None = None
    for number, line in enumerate(lines, block.line + 1):
        if line == "```python" and block.level == 3:
            if block.example_line:
                raise PageError(f"{path}:{number}: {block.title} has two examples")
            fenced, block.example_line = [], number + 1
        elif line == "```" and fenced is not None:
            block.example = "\n".join(fenced) + "\n"
            fenced = None
        elif fenced is not None:
            fenced.append(line)
        else:
            text.append(line)
    block.text = "\n".join(_take_facts(block, text, path)).strip()


def read_page(path: Path) -> Page:
    """A page of docs/reference.

    Raises:
        PageError: It has no title, or says something twice.
    """
    blocks: list[tuple[Block, list[str]]] = []
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        heading = None if fenced else HEADING.match(line)
        fenced ^= line.startswith("```")
        if heading:
            blocks.append((Block(len(heading[1]), heading[2].strip("`"), number), []))
        elif blocks:
            blocks[-1][1].append(line)
    if not blocks or blocks[0][0].level != 1:
        raise PageError(f"{path}: a page begins with its title")
    for block, lines in blocks:
        _finish(block, lines, path)
    head = blocks[0][0]
    sections = [Section(Block(2, "", head.line))]
    for block, _ in blocks[1:]:
        if block.level == 3:
            sections[-1].entries.append(block)
        else:
            sections.append(Section(block))
    return Page(path, head, [s for s in sections if s.entries or s.head.text])


def read_parameters(folder: Path) -> dict[str, str]:
    """Descriptions of parameters that hold wherever nothing else is said."""
    page = read_page(folder / "parameters.md")
    facts = dict(page.head.facts)
    for section in page.sections:
        facts.update(section.head.facts)
    return facts


def read_pages(folder: Path) -> list[Page]:
    """The pages that index.md links, in its order.

    Raises:
        PageError: A page is not linked, or a link leads nowhere.
    """
    names = LINK.findall((folder / "index.md").read_text())
    there = {path.stem for path in folder.glob("*.md")} - {"index", "parameters"}
    if there != set(names):
        raise PageError(f"index.md and the pages differ: {sorted(there ^ set(names))}")
    return [read_page(folder / f"{name}.md") for name in names]
