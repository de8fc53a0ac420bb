"""Writes the reference as reStructuredText for Sphinx."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING

from .signatures import Source, Thing

if TYPE_CHECKING:
    from .entries import Entry, Reference, Topic

#: Types that signatures name and that have no entry of their own.
TYPES = {
    "TensorLike": "What becomes an operand: a tensor, a Python number, a nested sequence of "
    "numbers, or an array of another library.",
    "DTypeLike": "What names an element type: a :class:`girih.DType`, its name (``'float32'``), "
    "Python's ``bool``, ``int``, ``float`` or ``complex``, or NumPy's type.",
    "PyTree": "Tensors in nested lists, tuples, dicts and registered containers.",
    "Schedule": "A learning rate as a function of the step.",
}
LITERAL = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`_{1,2}|`[^`]+`|\[[^\]]+\]\([^)\s]+\))")
MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
ROLE = re.compile(r"(?<!:py):(func|class|meth|attr|exc|data|obj):`~?([\w.]+)`")
CALLED = re.compile(r"(?<![`:])`gr\.([\w.]+)`(?!`)")
SENTENCE = re.compile(r".+?[.](?= |$)")
#: Python's types whose names are functions or dtypes of ours too, which Sphinx would link to.
BUILTIN = re.compile(r"(?<![\w.'])(bool|complex)\b(?!')")
ROLES = {"data": "data", "exception": "exc", "class": "class", "function": "func"}


def inline(text: str) -> str:
    """Escapes what reStructuredText would take as markup, outside of literals, roles and links."""
    out: list[str] = []
    for i, part in enumerate(LITERAL.split(text)):
        link = MARKDOWN_LINK.fullmatch(part)
        # The text of a link cannot hold a literal.
        text = link[1].replace("`", "") if link else ""
        if link and "://" in link[2]:
            out.append(f"`{text} <{link[2]}>`__")
        elif link:
            # Pages of docs itself are the site's notes.
            target = re.sub(r"^\.\./(?=[^/]+$)", "/notes/", link[2]).removeprefix("..")
            out.append(f":doc:`{text} <{re.sub(r'[.]md(#.*)?$', '', target)}>`")
        elif i % 2:
            out.append(part)
        else:
            out.append(re.sub(r"([*|\\]|_(?!\w))", r"\\\1", part))
    return "".join(out)


def prose(text: str) -> str:
    """Paragraphs; blocks of code and lists stay as they are."""
    out: list[str] = []
    literal = False
    for block in re.split(r"\n\s*\n", text):
        literal = literal and block.startswith(" ")
        plain = not literal and not block.startswith((">>>", " ", "- "))
        out.append(inline(block) if plain else block)
        literal |= block.endswith("::")
    return "\n\n".join(out)


class Renderer:
    """Renders the entries of a reference, whose classes signatures link to."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.other_names = reference.other_names()
        classes = {
            entry.name.rsplit(".", 1)[1]: entry.name
            for entry in reference.entries.values()
            if entry.thing.kind == "class"
        }
        self.types = {name: text for name, text in TYPES.items() if name not in classes}
        classes |= {name: f"girih.{name}" for name in self.types}
        self._first = {name: name for name in reference.entries}
        for first, others in self.other_names.items():
            self._first |= dict.fromkeys(others, first)
        names = "|".join(map(re.escape, sorted(classes, key=len, reverse=True)))
        # Not in strings, and not the last part of a dotted name.
        self._classes = classes
        self._name = re.compile(rf"(?<![\w.'\"])(?:\w+\.)?({names})\b(?!['\"])")

    def _type(self, source: object) -> Source:
        """A type with the full names of our classes."""
        plain = BUILTIN.sub(r"~builtins.\1", repr(source))
        return Source(self._name.sub(lambda found: self._classes[found[1]], plain))

    def linked(self, text: str, entry: Entry) -> str:
        """A text with the full names of what its roles name, seen from an entry."""
        module = getattr(entry.thing.value, "__module__", None) or "girih"
        outer = entry.name.rpartition(".")[0]
        places = [outer, entry.name, *_packages(module), "girih", "girih.nn"]

        def role(found: re.Match[str]) -> str:
            names = [found[2], *(f"{place}.{found[2]}" for place in places)]
            full = next((self._first[name] for name in names if name in self._first), found[2])
            return f":py:obj:`{found[2].removeprefix('girih.')} <{full}>`"

        return self.named(ROLE.sub(role, text))

    def named(self, text: str) -> str:
        """A text in which what is written as users call it leads there."""

        def link(found: re.Match[str]) -> str:
            full = self._first.get(f"girih.{found[1]}")
            return f":py:obj:`{found[0][1:-1]} <{full}>`" if full else found[0]

        return CALLED.sub(link, text)

    def signature(self, given: inspect.Signature) -> str:
        """A signature with full names of types, on one line."""
        empty = inspect.Signature.empty
        parameters = [
            p if p.annotation is empty else p.replace(annotation=self._type(p.annotation))
            for p in given.parameters.values()
        ]
        returns = given.return_annotation
        returns = returns if returns is empty else self._type(returns)
        made = given.replace(parameters=parameters, return_annotation=returns)
        return " ".join(str(made).split())

    def _directive(self, thing: Thing) -> list[str]:
        name = thing.name
        if thing.kind == "property":
            lines = [f".. py:property:: {name}"]
            returns = thing.signatures[0].return_annotation if thing.signatures else None
            if returns not in (None, inspect.Signature.empty):
                lines.append(f"   :type: {self._type(returns)}")
            return lines
        kind = {"staticmethod": "method"}.get(thing.kind, thing.kind)
        if thing.kind == "data" and name.count(".") > 1 and name.split(".")[-2][:1].isupper():
            kind = "attribute"
        calls = [self.signature(s) for s in thing.signatures] or [""]
        prefix = f".. py:{kind}:: "
        lines = [(" " * len(prefix) if i else prefix) + name + call for i, call in enumerate(calls)]
        return [*lines, "   :staticmethod:"] if thing.kind == "staticmethod" else lines

    def _fields(self, entry: Entry) -> list[str]:
        thing = entry.thing
        varied = {
            p.name: {p.VAR_POSITIONAL: r"\*", p.VAR_KEYWORD: r"\*\*"}.get(p.kind, "")
            for s in thing.signatures
            for p in s.parameters.values()
        }
        lines = [
            f":param {varied[name]}{inline(name)}: {inline(_sentence(text))}"
            for name, text in entry.parameters.items()
            if text
        ]
        lines += [
            f":ivar {name}: {inline(text)}"
            for name, text in thing.doc.attributes.items()
            if name not in entry.parameters
        ]
        if entry.returns and entry.returns != "None.":
            lines.append(f":returns: {inline(_sentence(entry.returns))}")
        for error, text in (entry.raises or {}).items():
            full = f"girih.{error}" if f"girih.{error}" in self.reference.entries else error
            lines.append(f":raises {full}: {inline(_sentence(text))}")
        return lines

    def entry(self, entry: Entry, inside: bool = False) -> str:
        """The directive of an entry with all that is said of it."""
        thing = entry.thing
        head = self._directive(thing)
        body: list[str] = []
        function = self.reference.function_of(entry) if inside else None
        if function:
            body = [f"{inline(thing.doc.summary)} See :py:func:`{function.name}`."]
        else:
            body = [inline(thing.doc.summary), prose(thing.doc.body), prose(entry.block.text)]
            others = self.other_names.get(entry.name, [])
            body += [f"Also {', '.join(f'``{name}``' for name in others)}."] if others else []
            body += ["\n".join(self._fields(entry))]
            if entry.example:
                body += [".. code-block:: pycon", textwrap.indent(entry.example.rstrip(), "   ")]
            own = [m for m in entry.members if not self.reference.function_of(m)]
            body += [self.entry(member, inside=True) for member in own]
        text = self.linked("\n\n".join(part for part in body if part.strip()), entry)
        return "\n".join(head) + "\n\n" + textwrap.indent(text, "   ") + "\n"

    def _table(self, entries: list[Entry], module: str) -> str:
        """Names with their sentences."""
        lines = [".. list-table::", "   :widths: 30 70", "   :class: summary", ""]
        for entry in entries:
            role = ROLES.get(entry.thing.kind, "obj")
            shown = entry.name.removeprefix(f"{module}.")
            text = entry.thing.doc.summary or entry.block.text.split("\n\n")[0].replace("\n", " ")
            sentence = SENTENCE.match(text)
            shortened = re.sub(":$", ".", sentence[0] if sentence else text)
            summary = self.linked(inline(shortened), entry)
            lines += [f"   * - :py:{role}:`{shown} <{entry.name}>`", f"     - {summary}"]
        return "\n".join(lines) + "\n"

    def topic(self, topic: Topic) -> str:
        """A page."""
        head = topic.page.head
        parts = [_title(head.title, "="), self.named(prose(head.text))]
        for section, entries in topic.sections:
            if section.head.title:
                parts += [_title(section.head.title, "-"), self.named(prose(section.head.text))]
            module = section.head.facts.get("module") or head.facts.get("module", "girih")
            if len(entries) > 1:
                parts.append(self._table(entries, module))
            parts += [self.entry(entry) for entry in entries]
        held = [m for _, entries in topic.sections for entry in entries for m in entry.members]
        twins = [m for m in held if self.reference.function_of(m)]
        if twins:
            parts.append(_title("Methods that are functions too", "-"))
            parts += [self.entry(m, inside=True) for m in sorted(twins, key=lambda m: m.name)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def index(self) -> str:
        """The first page: topics and the types that signatures name."""
        head = self.reference.introduction
        topics = "\n".join(f"   {topic.page.name}" for topic in self.reference.topics)
        text = re.split(r"^- \[", head.text, maxsplit=1, flags=re.M)[0].strip()
        types = [
            f".. py:type:: girih.{name}\n   :no-index-entry:\n\n   {text}"
            for name, text in self.types.items()
        ]
        parts = [_title(head.title, "="), self.named(prose(text))]
        parts += [f".. toctree::\n   :maxdepth: 1\n\n{topics}"]
        parts += [_title("Types in signatures", "-"), *types]
        return "\n\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    """A text with a capital at its beginning, if that is a word."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]{2,}(?![\w.(])|an? ", text) else text


def _packages(module: str) -> list[str]:
    """A module and the packages around it, inside out."""
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _title(text: str, rule: str) -> str:
    text = inline(text)
    return f"{text}\n{rule * len(text)}"


def render(reference: Reference) -> dict[str, str]:
    """The pages' texts by name."""
    renderer = Renderer(reference)
    pages = {topic.page.name: renderer.topic(topic) for topic in reference.topics}
    return {"index": renderer.index(), **pages}
