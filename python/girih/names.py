"""Names of tensors by their position in pytrees and among the arguments of a function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import tree
from ._girih import Tensor, has_protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Container

__all__ = ["argument_names", "dotted", "name_of", "output_names"]


def name_of(fun: Any) -> str:
    """The name of a function, or of an object's class, for messages."""
    try:
        return str(fun.__name__)
    except (AttributeError, LookupError):  # A callable dict may raise KeyError.
        return type(fun).__name__


def dotted(path: str) -> str:
    """A pytree path, ``['layer'][0].weight``, as the name of a tensor: ``layer.0.weight``."""
    parts = path.replace("]", "").replace("[", ".").replace("'", "").replace('"', "")
    return parts.strip(".")


def output_names(value: Any) -> list[str]:
    """Names of the leaves of a program's result, if it is a dict or module."""
    from .nn.module import Module

    if not isinstance(value, (Mapping, Module)):
        return []
    return [dotted(path) for path, _ in tree.flatten_with_path(value)]


def argument_names(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Container[int | str],
) -> list[str]:
    """A name for each tensor and float among the arguments: the name of the parameter, followed by
    the path in a pytree. Floats in arguments that ``static`` names have no name.
    """
    import inspect

    from .nn.module import Module

    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return []
    parameters = [
        (name, value, bound.signature.parameters[name].kind)
        for name, value in bound.arguments.items()
    ]
    given: list[tuple[str, Any]] = []
    for name, value, kind in parameters:
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given += [(f"{name}.{i}", item) for i, item in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            given += value.items()
        else:
            given.append((name, value))
    by_name = dict(given)
    ordered = given[: len(args)] + [(name, by_name[name]) for name in kwargs]
    names = []
    for name, value in ordered:
        for path, leaf in tree.flatten_with_path(value):
            array = has_protocol(leaf, "__dlpack__") or has_protocol(leaf, "__array_interface__")
            scalar = name not in static and type(leaf) is float
            if (isinstance(leaf, Tensor) or array or scalar) and not isinstance(value, Module):
                names.append(dotted(name + path))
    return names
