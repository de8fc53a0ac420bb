"""What the reference says of each public name: its docstring, filled up from docs/reference."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .pages import Block, Page, PageError, Section, read_page, read_pages, read_parameters
from .signatures import ROOT, Doc, Thing, find, member, members, parse_doc

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "docs" / "reference"
#: Modules whose ``__all__`` is public.
MODULES = (
    "girih",
    "girih.amp",
    "girih.data",
    "girih.debug",
    "girih.errors",
    "girih.fft",
    "girih.layout",
    "girih.linalg",
    "girih.nn",
    "girih.nn.functional",
    "girih.nn.init",
    "girih.nn.losses",
    "girih.optim",
    "girih.optim.lr_scheduler",
    "girih.optim.schedules",
    "girih.random",
    "girih.special",
    "girih.tree",
)


#: What a summary refers to for all that its docstring does not say.
REFERS = re.compile(r"(?:[Ss]ee|[Ll]ike|[Aa]s in) :(?:class|func|meth):`([\w.]+)`")


def _docs(thing: Thing) -> list[Doc]:
    """A thing's docstring, and those that its summary refers to."""
    found, seen = [thing.doc], {""}
    module = sys.modules.get(getattr(thing.value, "__module__", None) or "")
    for doc in found:
        names = [name for name in REFERS.findall(doc.summary) if name not in seen]
        seen.update(names)
        values = (_named(name, module) for name in names)
        found += [parse_doc(inspect.getdoc(value)) for value in values if value is not None]
    return found


def _base_docs(thing: Thing) -> list[Doc]:
    """The docstrings of a class's base classes, the nearest first."""
    bases = thing.value.__mro__[1:] if inspect.isclass(thing.value) else ()
    return [parse_doc(base.__doc__) for base in bases if base.__module__.startswith("girih")]


def _named(name: str, module: object) -> object:
    """What a docstring of a module calls by a name; None if there is no such thing."""
    if name.startswith("girih."):
        holder, _, name = name.rpartition(".")
        module = sys.modules.get(holder)
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


@dataclass
class Entry:
    """A public name and all that is said of it."""

    thing: Thing
    block: Block
    where: str
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: dict[str, str] | None = None
    example: str = ""
    members: list[Entry] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The full name."""
        return self.thing.name


@dataclass
class Topic:
    """A page with its entries, by section."""

    page: Page
    sections: list[tuple[Section, list[Entry]]]


def _errors(blocks: tuple[Block, ...], parameters: set[str]) -> dict[str, str] | None:
    """The errors of a function with some parameters, by what its heading and those above say.

    None if nothing is said anywhere.
    """
    found: dict[str, str] | None = None
    for block in reversed(blocks):
        if block.raises is None:
            continue
        found = {} if found is None or block.clears else found
        for error, text in block.raises.items():
            if error not in block.only_with or block.only_with[error] & parameters:
                found[error] = text
    return found


class Reference:
    """The whole of it.

    Attributes:
        topics: The pages, in order.
        unknown: Headings that name nothing.
        entries: Entries by full name, members of classes among them.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.parameters = read_parameters(folder)
        self.introduction = read_page(folder / "index.md").head
        self.unknown: list[str] = []
        self.entries: dict[str, Entry] = {}
        pages = read_pages(folder)
        self.own = {
            f"{module}.{block.title}"
            for page in pages
            for section in page.sections
            for block in section.entries
            for module in [self._fact("module", section.head, page.head)]
        }
        self.topics = [self._topic(page) for page in pages]

    @staticmethod
    def _fact(key: str, *blocks: Block) -> str:
        """What the nearest of some blocks says."""
        return next((b.facts[key] for b in blocks if key in b.facts), "")

    def _topic(self, page: Page) -> Topic:
        sections: list[tuple[Section, list[Entry]]] = []
        for section in page.sections:
            made: list[Entry] = []
            for block in section.entries:
                module = self._fact("module", section.head, page.head) or "girih"
                where = f"{page.path.name}:{block.line}"
                try:
                    thing = find(module, block.title)
                except (AttributeError, ImportError):
                    self.unknown.append(f"{where}: there is no {module}.{block.title}")
                    continue
                made.append(self._entry(thing, where, block, section.head, page.head))
            sections.append((section, made))
        return Topic(page, sections)

    def _entry(self, thing: Thing, where: str, *blocks: Block) -> Entry:
        entry = Entry(thing, blocks[0], where)
        if blocks[0].facts.pop("signature", "") == "none":
            thing.signatures.clear()
        if thing.name in self.entries:
            raise PageError(f"{where}: {thing.name} is at {self.entries[thing.name].where} too")
        self.entries[thing.name] = entry
        self._fill(entry, *blocks)
        if thing.kind == "class":
            for name in members(thing):
                full = f"{thing.name}.{name}"
                if full in self.own:
                    continue
                made = Entry(member(thing.value, name, full), Block(4, name, 0), where)
                self._fill(made, made.block, *blocks)
                # What a page says of results and errors is said of its entries, not of these.
                made.returns, made.raises = made.thing.doc.returns, made.thing.doc.raises
                entry.members.append(made)
                self.entries[full] = made
        return entry

    def _fill(self, entry: Entry, *blocks: Block) -> None:
        thing, doc = entry.thing, entry.thing.doc
        docs = _docs(thing)
        describing = [*docs, *_base_docs(thing)]
        for name in thing.parameters:
            described = (d.parameters.get(name) or d.attributes.get(name) for d in describing)
            text = next(filter(None, described), None) or self._fact(name, *blocks)
            entry.parameters[name] = text or self.parameters.get(name, "")
        if thing.kind in ("function", "method", "staticmethod"):
            entry.returns = doc.returns or self._fact("returns", *blocks)
            if thing.gives_nothing:
                entry.returns = doc.returns or "None."
        entry.raises = next((d.raises for d in docs if d.raises is not None), None)
        if entry.raises is None:
            entry.raises = _errors(blocks, {*entry.parameters})
        entry.example = blocks[0].example or doc.example

    def other_names(self) -> dict[str, list[str]]:
        """Second names of things, by the name of their entry."""
        out: dict[str, list[str]] = {}
        for names in public_names():
            first = next((name for name in names if name in self.entries), "")
            out[first] = [n for n in names if n != first and not n.startswith("girih.errors.")]
        for synonym, name in importlib.import_module("girih.synonyms").ALIASES["girih"].items():
            out.setdefault(f"girih.{name}", []).append(f"girih.{synonym}")
        return out

    def function_of(self, entry: Entry) -> Entry | None:
        """The function of which a method of Tensor is the same under another way to write it."""
        name = entry.name.removeprefix("girih.Tensor.")
        found = self.entries.get(f"girih.{name}")
        return found if found and name != entry.name and found.thing.kind == "function" else None


def public_names() -> list[list[str]]:
    """All public names, those of one thing together."""
    named: dict[object, list[str]] = {}
    for module in MODULES:
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for name in loaded.__all__:
            value = getattr(loaded, name)
            full = f"{module}.{name}"
            if not inspect.ismodule(value) and not name.startswith("_"):
                named.setdefault(id(value) if callable(value) else full, []).append(full)
    return list(named.values())


def _lacks(entry: Entry, inside: bool, reference: Reference) -> list[str]:
    """Which parts of an entry are missing; ``inside`` for members of a class."""
    thing = entry.thing
    if thing.kind == "data":
        return [] if entry.block.text or inside else ["a description"]
    missing = [] if thing.doc.summary or entry.block.text else ["a summary"]
    if inside and reference.function_of(entry):
        return missing
    missing += [f"a description of {n!r}" for n, text in entry.parameters.items() if not text]
    if inside:
        return missing
    if thing.kind in ("function", "method", "staticmethod") and not entry.returns:
        missing.append("what it returns")
    if thing.kind in ("function", "class") and entry.raises is None:
        missing.append("what it raises (or `raises nothing`)")
    if entry.block.example and thing.doc.example:
        missing.append("a decision: its docstring has an example, too")
    return missing if entry.example else [*missing, "an example"]


def problems(reference: Reference) -> list[str]:
    """What is missing, a line each."""
    found = list(reference.unknown)
    for names in public_names():
        if not any(name in reference.entries for name in names):
            found.append(f"{' = '.join(names)} is on no page of docs/reference")
    for topic in reference.topics:
        for _, entries in topic.sections:
            for entry in entries:
                for one, inside in [(entry, False), *((m, True) for m in entry.members)]:
                    lacks = _lacks(one, inside, reference)
                    if lacks:
                        found.append(f"{one.where}: {one.name} lacks {', '.join(lacks)}")
    return found
