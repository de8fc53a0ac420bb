"""The precision in which modules compute under :func:`girih.amp.autocast`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .. import _girih
from .._girih import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .module import Module

__all__ = ["casting", "leave_half"]

_HALVES = ("float16", "bfloat16")


class _Calls(threading.local):
    """Calls of modules in this thread."""

    #: The nesting depth of module calls.
    depth: int = 0


calls = _Calls()


def _cast(value: Any, dtype: str) -> Any:
    """Casts tensors between float32 and half precision, in tuples, lists and dicts too."""
    if isinstance(value, Tensor):
        name = value.dtype.name
        wanted = name != dtype and name in ("float32", *_HALVES)
        return value.astype(getattr(_girih, dtype)) if wanted else value
    if type(value) in (tuple, list):
        return type(value)(_cast(inner, dtype) for inner in value)
    if type(value) is dict:
        return {key: _cast(inner, dtype) for key, inner in value.items()}
    return value


def leave_half(value: Any) -> Any:
    """The results of the outermost module: half precision becomes float32."""
    return value if calls.depth else _cast(value, "float32")


def casting(module: Module, names: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a module with its arguments and own parameters cast to its precision.

    Args:
        module: The module.
        names: The names of its own parameters.
        call: The function that is called with the arguments.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """
    half = _girih.autocast_dtype()
    assert half is not None
    precision = module.precision
    calls.depth += 1
    held: dict[str, Any] = {}
    try:
        if precision is not None:
            dtype = half if precision == "half" else "float32"
            args, kwargs = _cast(args, dtype), _cast(kwargs, dtype)
            if precision == "half":
                attributes = module.__dict__
                held = {n: attributes[n] for n in names if isinstance(attributes.get(n), Tensor)}
                module.__dict__.update({name: _cast(p, dtype) for name, p in held.items()})
        result = call(*args, **kwargs)
    finally:
        module.__dict__.update(held)
        calls.depth -= 1
    return leave_half(result)
