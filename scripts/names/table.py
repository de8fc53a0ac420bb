"""What each name of another library is here, and the page that says it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .differences import DIFFERENCES
from .lists import Listed, listed

PAGE = Path(__file__).parents[2] / "docs" / "names.md"
#: Where the names of each module are looked for.
PLACES = {
    "numpy": "girih",
    "torch": "girih",
    "torch.Tensor": "girih.Tensor",
    "torch.nn.functional": "girih.nn.functional",
    "jax.numpy": "girih",
    "jax.nn": "girih.nn",
    "jax.lax": "girih",
}
HEAD = """\
# Names of other libraries

Every public function of NumPy, PyTorch and JAX, by module, and what it is here: a function or
method (*present*, with what differs), what to write instead (*hint*), or nothing, and why
(*declined*). The error for an absent name says the same. In code, `x`, `y`, `m`, `v` are tensors.
"""


@dataclass(frozen=True)
class Row:
    """One name: its state, "present", "hint", "declined" or "none", and what is said of it."""

    module: str
    name: str
    state: str
    text: str


def owner_of(place: str) -> Any:
    """The module or class of a place."""
    if place == "girih.Tensor":
        return importlib.import_module("girih").Tensor
    return importlib.import_module(place)


def target(place: str, name: str) -> str:
    """How a present name is written here, where that is not the name itself."""
    from girih import later, synonyms

    if place == "girih.Tensor":
        path = later.METHODS.get(name, name)
        own = path == name or path.startswith(("methods.", "cast ", "in place"))
        return f"`x.{name}`" if own else f"`x.{name}`, `gr.{path}`"
    short = place.replace("girih", "gr", 1)
    meant = synonyms.ALIASES[place].get(name)
    if meant is None:
        return f"`{short}.{name}`"
    meant = f"{short}.{meant}" if not meant.startswith("girih.") else f"gr.{meant[6:]}"
    return f"`{meant}`, `{short}.{name}`"


def row(module: str, name: str) -> Row:
    """What a name of a module is here."""
    from girih import synonyms

    place = PLACES[module]
    if hasattr(owner_of(place), name):
        note = DIFFERENCES.get(module, {}).get(name)
        text = target(place, name)
        return Row(module, name, "present", f"{text}: {note}" if note else text)
    found = synonyms.answer(place, name)
    if found is None:
        return Row(module, name, "none", "")
    return Row(module, name, "declined" if found.declined else "hint", found.text)


def rows() -> list[Row]:
    """All rows, by module and name."""
    return [row(part.module, name) for part in listed() for name in part.names]


def section(part: Listed, found: list[Row]) -> str:
    """The part of the page for one module."""
    lines = [f"## {part.module}", "", "| name | | here |", "| --- | --- | --- |"]
    for one in found:
        text = one.text.replace("|", "\\|")
        lines.append(f"| `{one.name}` | {one.state} | {text} |")
    return "\n".join(lines)


def page(found: list[Row]) -> str:
    """The page."""
    parts = listed()
    lines = ["| module | names | present | hint | declined |", "| --- | --- | --- | --- | --- |"]
    for part in parts:
        states = [one.state for one in found if one.module == part.module]
        counts = [states.count(state) for state in ("present", "hint", "declined")]
        cells = [f"{part.module} {part.version}", len(states), *counts]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    sections = [
        section(part, [one for one in found if one.module == part.module]) for part in parts
    ]
    return "\n\n".join([HEAD.rstrip(), "\n".join(lines), *sections]) + "\n"
