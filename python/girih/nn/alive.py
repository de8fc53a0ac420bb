"""All live modules, for files of graphs and optimisers, which name parameters."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from .._girih import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .module import Module

__all__ = ["holders_of", "module_of", "outermost", "parameters_alive", "register"]

#: The modules by their ids, because they need not be hashable.
_alive: weakref.WeakValueDictionary[int, Module] = weakref.WeakValueDictionary()


def register(module: Module) -> None:
    """Adds a new module."""
    _alive[id(module)] = module


def parameters_alive() -> list[tuple[str, Tensor]]:
    """The parameters of all modules, each under its longest name in any module.

    This is the name in the outermost module, which files of graphs use.
    """
    names: dict[int, tuple[str, Tensor]] = {}
    for module in list(_alive.values()):
        for name, tensor in module.named_parameters():
            if len(name) > len(names.get(id(tensor), ("", None))[0]):
                names[id(tensor)] = (name, tensor)
    return list(names.values())


def holders_of(tensors: Iterable[Tensor]) -> dict[int, list[tuple[Module, str]]]:
    """The attributes of live modules that hold tensors, by the tensors' ids."""
    found: dict[int, list[tuple[Module, str]]] = {id(tensor): [] for tensor in tensors}
    for module in list(_alive.values()):
        for name, value in list(module.__dict__.items()):
            if type(value) is Tensor and id(value) in found:
                found[id(value)].append((module, name))
    return found


def module_of(tensors: Iterable[Tensor]) -> Module | None:
    """The innermost live module that has all these tensors among its parameters."""
    wanted = {id(tensor) for tensor in tensors}
    best: tuple[tuple[int, int], Module] | None = None
    for module in list(_alive.values()):
        names = {id(tensor): name for name, tensor in module.named_parameters()}
        if wanted <= names.keys():
            size = len(names), sum(map(len, names.values()))
            if best is None or size < best[0]:
                best = size, module
    return best[1] if best else None


def outermost(module: Module) -> Module:
    """The live module that holds a module, directly or through others, and is held by none."""
    from .inspecting import nearest

    above: dict[int, Module] = {}
    for holder in list(_alive.values()):
        for value in list(holder.__dict__.values()):
            for _, inner in nearest(value, ""):
                above.setdefault(id(inner), holder)
    seen = {id(module)}
    while id(module) in above and id(above[id(module)]) not in seen:
        module = above[id(module)]
        seen.add(id(module))
    return module
