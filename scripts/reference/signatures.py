"""Signatures with types, and docstrings, of public names.

Types of the extension's functions come from its stub, those of others from their annotations.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from girih.later import LaterMethod

ROOT = Path(__file__).parents[2]
STUB = ROOT / "python" / "girih" / "_girih.pyi"
SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Examples?|Yields):$")
ITEM = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?: ?(.*)")
# Names of the stub's aliases, which have an entry in the reference, and of modules.
ALIASES = {"_TensorLike": "TensorLike", "_DTypeLike": "DTypeLike", "_girih.": "", "builtins.": ""}


class Source:
    """Text of a type or default, which shows as it stands."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclass
class Doc:
    """A docstring in Google's style, taken apart."""

    summary: str = ""
    body: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    returns: str = ""
    raises: dict[str, str] | None = None
    example: str = ""


def _items(lines: list[str]) -> dict[str, str]:
    """``name: text`` with continuation lines, of a section whose indentation is gone."""
    out: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        found = None if line.startswith(" ") else ITEM.match(line)
        if found:
            names = [name.lstrip("*") for name in found[1].split(", ")]
            out.update(dict.fromkeys(names, found[2]))
        elif line.strip():
            out.update({name: f"{out[name]} {line.strip()}".strip() for name in names})
    return out


def parse_doc(text: str | None) -> Doc:
    """A docstring's parts; the summary is its first paragraph."""
    doc = Doc()
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for line in inspect.cleandoc(text or "").splitlines():
        heading = SECTION.match(line)
        if heading:
            current = heading[1]
            sections[current] = []
        elif current and line and not line.startswith(" "):
            current = ""  # a paragraph behind a section belongs to the body
            sections[""] += ["", line]
        else:
            sections[current].append(line)
    for name, lines in sections.items():
        sections[name] = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
    plain = "\n".join(sections[""]).strip("\n")
    # The extension's functions that give no tensor say the type, which the signature has too.
    plain = re.sub(r"\s*Returns: [^\n]+\.$", "", plain)
    summary, _, body = plain.partition("\n\n")
    doc.summary, doc.body = " ".join(summary.split()), body.strip("\n")
    if doc.summary.endswith("::"):
        doc.summary, doc.body = doc.summary[:-1], f"::\n\n{doc.body}"
    doc.parameters = _items(sections.get("Args", []))
    doc.attributes = _items(sections.get("Attributes", []))
    doc.returns = " ".join(" ".join(sections.get("Returns", sections.get("Yields", []))).split())
    doc.raises = _items(sections["Raises"]) if "Raises" in sections else None
    doc.example = "\n".join(sections.get("Example", sections.get("Examples", [])))
    return doc


@dataclass
class Thing:
    """A public name: what it is and how it is called."""

    name: str
    value: Any
    kind: str  # function, class, exception, method, staticmethod, property or data
    doc: Doc
    signatures: list[inspect.Signature] = field(default_factory=list)

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that a caller gives, of all signatures."""
        names: dict[str, None] = {}
        for signature in self.signatures:
            names.update(dict.fromkeys(signature.parameters))
        return list(names)

    @property
    def gives_nothing(self) -> bool:
        """Whether the result is None."""
        return all(repr(s.return_annotation) == "None" for s in self.signatures)


@cache
def aliases(module: str) -> dict[str, str]:
    """What a module calls types for itself: aliases, and imports under another name."""
    found = dict(ALIASES)
    source = Path(sys.modules[module].__file__ or "")
    if source.suffix != ".py":
        return found
    public = getattr(sys.modules[module], "__all__", ())
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            name, typed = node.target.id, "TypeAlias" in ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, typed = node.targets[0].id, re.match("_?[A-Z][a-z]", node.targets[0].id)
        else:
            if isinstance(node, ast.ImportFrom):
                found |= {name.asname: name.name for name in node.names if name.asname}
            continue
        value = ast.unparse(node.value)
        if typed and name not in public and "TypeVar" not in value:
            # A reference forward is a string.
            found[name] = re.sub(r"'((?:int|[A-Z])[^']*)'", r"\1", value)
    return found


def _type(text: str, module: str = "girih._girih") -> Source:
    """A type as users write it."""
    known = aliases(module)
    # A module's name ends with a point, others are whole words.
    names = (re.escape(n) + ("" if n.endswith(".") else r"\b") for n in known)
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(names)})")
    text, before = text.strip("'\""), ""
    while text != before:
        text, before = pattern.sub(lambda found: known[found[0]], text), text
    return Source(text)


def _from_ast(node: ast.FunctionDef, skip_first: bool) -> inspect.Signature:
    """The signature of a function of the stub."""
    P = inspect.Parameter  # noqa: N806 - a class
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    defaults = [*missing, *given.defaults]
    rows = [
        (a, P.POSITIONAL_ONLY if i < len(given.posonlyargs) else P.POSITIONAL_OR_KEYWORD, d)
        for i, (a, d) in enumerate(zip(positional, defaults, strict=True))
    ][skip_first:]
    rows += [(given.vararg, P.VAR_POSITIONAL, None)] if given.vararg else []
    rows += [
        (a, P.KEYWORD_ONLY, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    rows += [(given.kwarg, P.VAR_KEYWORD, None)] if given.kwarg else []
    made = [
        P(
            a.arg,
            kind,
            default=P.empty if default is None else Source(ast.unparse(default)),
            annotation=_type(ast.unparse(a.annotation)) if a.annotation else P.empty,
        )
        for a, kind, default in rows
    ]
    returns = _type(ast.unparse(node.returns)) if node.returns else P.empty
    return inspect.Signature(made, return_annotation=returns)


@cache
def stub() -> dict[str, list[ast.FunctionDef]]:
    """Definitions of the stub by name, those of classes by ``Class.name``."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    found.setdefault(f"{node.name}.{member.name}", []).append(member)
    return found


def _default(value: object) -> object:
    plain = value is None or isinstance(value, (bool, int, float, str, tuple))
    return Source(repr(value)) if plain else Source("...")


def _from_python(function: Any, skip_first: bool) -> inspect.Signature:
    """The signature of a function of the package, whose annotations are strings."""
    signature = inspect.signature(function)
    module = getattr(function, "__module__", "girih")
    # Parameters of private names are for the package's own use.
    parameters = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    parameters = parameters[skip_first:]
    return signature.replace(
        parameters=[
            p.replace(
                annotation=p.annotation
                if p.annotation is p.empty
                else _type(str(p.annotation), module),
                default=p.default if p.default is p.empty else _default(p.default),
            )
            for p in parameters
        ],
        return_annotation=signature.return_annotation
        if signature.return_annotation is inspect.Signature.empty
        else _type(str(signature.return_annotation), module),
    )


def _class_signatures(value: type, name: str) -> list[inspect.Signature]:
    nodes = stub().get(f"{value.__name__}.__new__") if _of_extension(value) else None
    if nodes:
        made = [_from_ast(node, skip_first=True) for node in nodes]
    elif _of_extension(value) or not hasattr(value, "__init__"):
        return []
    else:
        try:
            made = [_from_python(value, skip_first=False)]
        except ValueError:
            return []
    return [s.replace(return_annotation=inspect.Signature.empty) for s in made]


def _of_extension(value: Any) -> bool:
    from girih import _girih

    name = getattr(value, "__name__", "")
    return getattr(_girih, name, None) is value


def find(module: str, path: str) -> Thing:
    """What a dotted path below a module names.

    Raises:
        AttributeError: There is nothing of that name.
    """
    owner: Any = importlib.import_module(module)
    *outer, last = path.split(".")
    for name in outer:
        owner = getattr(owner, name)
    value = inspect.getattr_static(owner, last) if outer else getattr(owner, last)
    full = f"{module}.{path}"
    if outer:
        return member(owner, last, full)
    doc = parse_doc(getattr(value, "__doc__", None))
    if isinstance(value, type):
        kind = "exception" if issubclass(value, BaseException) else "class"
        signatures = [] if kind == "exception" else _class_signatures(value, path)
        return Thing(full, value, kind, doc, signatures)
    if not callable(value):
        return Thing(full, value, "data", Doc())
    of_stub = _of_extension(value) and value.__name__ in stub()
    nodes = stub()[value.__name__] if of_stub else []
    signatures = [_from_ast(node, skip_first=False) for node in nodes]
    return Thing(full, value, "function", doc, signatures or [_from_python(value, False)])


def member(owner: type, name: str, full: str) -> Thing:
    """A method or property of a class."""
    value = inspect.getattr_static(owner, name)
    if isinstance(value, LaterMethod):
        function, nodes = value.function, stub().get(f"{owner.__name__}.{name}", [])
        made = [_from_ast(node, True) for node in nodes]
        return Thing(full, function, "method", parse_doc(function.__doc__), made)
    plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    doc = parse_doc(getattr(plain, "__doc__", None))
    nodes = stub().get(f"{owner.__name__}.{name}", []) if _of_extension(owner) else []
    if isinstance(value, property) or inspect.isgetsetdescriptor(value):
        getter = value.fget if isinstance(value, property) else None
        made = [_from_ast(n, True) for n in nodes] or (
            [_from_python(getter, True)] if getter else []
        )
        return Thing(full, value, "property", doc, made)
    if not callable(plain):
        return Thing(full, value, "data", doc)
    kind = "staticmethod" if isinstance(value, staticmethod) else "method"
    first = kind == "method"
    made = [_from_ast(n, first) for n in nodes] or [_from_python(plain, first)]
    return Thing(full, plain, kind, doc, made)


def members(thing: Thing) -> list[str]:
    """Public methods and properties that a class defines itself or takes from a private base.

    Those that a public base documents are left out.
    """
    bases = [base for base in thing.value.__mro__[1:] if base is not object]
    private = [base for base in bases if base.__name__.startswith("_")]
    public = [base for base in bases if not base.__name__.startswith("_")]
    names: dict[str, None] = {}
    for cls in (thing.value, *private):
        for name, value in cls.__dict__.items():
            described = callable(value) or hasattr(value, "__get__")
            inherited = any(hasattr(base, name) for base in public)
            if described and not name.startswith("_") and not inherited:
                names[name] = None
    return list(names)
