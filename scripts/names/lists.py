"""The public names of other libraries, in files beside this one: a check needs no library."""

from __future__ import annotations

import importlib
import types
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
#: The modules of each library whose names are listed.
LIBRARIES = {
    "numpy": ("numpy",),
    "torch": ("torch", "torch.Tensor", "torch.nn.functional"),
    "jax": ("jax.numpy", "jax.nn", "jax.lax"),
}


@dataclass(frozen=True)
class Listed:
    """The names of a module, and the version of its library."""

    module: str
    version: str
    names: tuple[str, ...]


def names_of(module: str) -> list[str]:
    """The public functions of a module, or the public attributes of a class, by name."""
    owner, _, last = module.rpartition(".")
    if last[:1].isupper():
        cls = getattr(importlib.import_module(owner), last)
        return sorted(name for name in dir(cls) if not name.startswith("_"))
    found = importlib.import_module(module)
    others = (type, types.ModuleType)
    named = {n: getattr(found, n) for n in dir(found) if not n.startswith("_")}
    return sorted(n for n, v in named.items() if callable(v) and not isinstance(v, others))


def collect() -> list[str]:
    """Writes the lists of the libraries that are installed; returns the libraries' names."""
    written = []
    for library, modules in LIBRARIES.items():
        try:
            version = importlib.import_module(library).__version__
        except ImportError:
            continue
        lines = [f"# Public names of {library} {version}, by `python -m scripts.names --collect`."]
        for module in modules:
            lines += ["", f"[{module}]", *names_of(module)]
        (FOLDER / f"{library}.txt").write_text("\n".join(lines) + "\n")
        written.append(library)
    return written


def listed() -> list[Listed]:
    """The lists, in the order of the modules."""
    found = []
    for library in LIBRARIES:
        head, *sections = (FOLDER / f"{library}.txt").read_text().split("\n\n")
        version = head.partition(f"{library} ")[2].partition(",")[0].partition("+")[0]
        for section in sections:
            title, *names = section.split()
            found.append(Listed(title.strip("[]"), version, tuple(names)))
    return found
