"""The text of modules: constructor arguments, own parameters, submodules, and what is frozen."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from .._girih import Tensor
from .places import PARAMETER_NAMES, entries, held_by, is_frozen

if TYPE_CHECKING:
    from .module import Module

__all__ = ["arguments", "shown"]


def _constructor(cls: type[Module]) -> dict[str, inspect.Parameter]:
    """The parameters of a constructor, then those of the layer of this package that it extends."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        init: Any = vars(base).get("__init__")
        for parameter in list(inspect.signature(init).parameters.values())[1:] if init else ():
            found.setdefault(parameter.name, parameter)
        if init and base.__module__.startswith("girih."):
            break
    return found


def arguments(module: Module) -> list[str]:
    """The constructor arguments that ``repr`` of a module shows."""
    out = []
    for name, parameter in _constructor(type(module)).items():
        if name == "dtype":
            held = [v.dtype.name for v in vars(module).values() if isinstance(v, Tensor)]
            out += [f"dtype={held[0]}"] if held[:1] not in ([], ["float32"]) else []
        if name not in vars(module):
            continue
        value = vars(module)[name]
        if isinstance(parameter.default, bool) and not isinstance(value, bool):
            value = value is not None
        if value is None or isinstance(value, (bool, int, float, complex, str, tuple, list)):
            if not held_by(value):
                out.append(f"{name}={value!r}")
        elif isinstance(value, Tensor):
            out.append(f"{name}=tensor{list(value.shape)}")
    return out


def _own(module: Module, text: str) -> list[str]:
    """The parameters of a module of the user, with dtypes and shapes; for the layers of this
    package, whose arguments say this, only what is frozen."""
    names = [
        name
        for name, value in vars(module).items()
        if name in vars(module).get(PARAMETER_NAMES, ()) and type(value) is Tensor
    ]
    frozen = [name for name in names if is_frozen(module, name)]
    if not type(module).__module__.startswith("girih."):
        lines = []
        for name in names:
            tensor = vars(module)[name]
            if f"{name}=" not in text:
                mark = ", frozen" if name in frozen else ""
                lines.append(f"{name}: {tensor.dtype.name}{list(tensor.shape)}{mark}")
        return lines
    if not frozen:
        return []
    return ["frozen" if len(frozen) == len(names) else f"frozen: {', '.join(frozen)}"]


def shown(module: Module) -> str:
    """The text of a module and of its submodules, indented."""
    own = module.extra_repr()
    lines = [own] if own else []
    parameters = _own(module, own)
    name = type(module).__qualname__
    if type(module).__module__.startswith("girih."):
        lines = [", ".join(lines + parameters)] if lines or parameters else []
    else:
        lines += parameters
    short = not any("\n" in line for line in lines) and (len(lines) < 2 or not parameters)
    inner = []
    for attribute, value in vars(module).items():
        for at, held in _modules(attribute, value):
            inner.append(f"{at}: {held!r}")
    if not inner and short:
        return f"{name}({', '.join(lines)})"
    body = "\n".join(lines + inner).replace("\n", "\n  ")
    return f"{name}(\n  {body}\n)"


def _modules(name: str, value: Any) -> list[tuple[str, Any]]:
    """The modules that an attribute holds, with the expressions that lead to them."""
    from .module import Module

    if isinstance(value, Module):
        return [(name, value)]
    if not isinstance(value, (list, tuple, dict)) or not held_by(value):
        return []
    return [(f"{name}[{key!r}]", inner) for key, inner in entries(value) if held_by(inner)]
