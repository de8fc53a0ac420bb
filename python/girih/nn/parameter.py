"""Parameters: the mark that makes a tensor a parameter, and what may be assigned to one.

A parameter of a module is a plain tensor, held by an attribute whose name the module notes. So
whatever is assigned to that attribute must become a tensor, or the parameter would be lost.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, cast

from .._girih import Tensor, asarray, has_protocol
from ..errors import DTypeError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from .module import Module

__all__ = ["Parameter", "converted", "gathered", "is_marked"]


class _Parameter:
    """A tensor that is marked to become a parameter of a module."""

    __slots__ = ("tensor", "trained")

    def __init__(self, tensor: Tensor, trained: bool) -> None:
        self.tensor = tensor
        self.trained = trained

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a Parameter has no {name!r} before a module holds it; assign it to an attribute, "
            "self.weight = Parameter(...), whose value is a tensor",
            name=name,
        )


class _Marking(type):
    """The class of :class:`Parameter`, which no object is of: parameters are tensors."""

    def __instancecheck__(cls, value: object) -> bool:
        """Whether a value is marked, or a tensor that a module holds as a parameter."""
        return is_marked(value) or (isinstance(value, Tensor) and _is_held(value))


class Parameter(metaclass=_Marking):
    """Marks a tensor as trainable: ``self.weight = Parameter(gr.zeros([3]))``.

    Assign the result to an attribute of a :class:`Module`, which then holds the plain tensor. The
    attribute remains a parameter when another tensor is assigned to it later. A list or dict of
    parameters becomes a :class:`ParameterList` or :class:`ParameterDict`.

    ``isinstance(tensor, Parameter)`` is true for tensors that a module holds as parameters, as long
    as the module lives.

    Args:
        value: A tensor, or what :func:`girih.asarray` takes.
        requires_grad: Whether the parameter is trained; if not, it is frozen
            (``Module.freeze``).

    Raises:
        DTypeError: ``value`` is no tensor and converts to none, or ``requires_grad`` is no bool.
    """

    def __new__(cls, value: Any, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        """The mark, which a module replaces by the tensor."""
        if type(requires_grad).__name__ not in ("bool", "bool_"):
            raise DTypeError(
                "Parameter: requires_grad must be True or False, got a "
                f"{type(requires_grad).__name__}"
            )
        if isinstance(value, _Parameter):
            return cast("Tensor", value)
        # A separate handle: parameters are tied only if one was assigned to the attribute of the
        # other.
        tensor = copy(value) if isinstance(value, Tensor) else asarray(value)
        return cast("Tensor", _Parameter(tensor, bool(requires_grad)))


def _is_held(tensor: Tensor) -> bool:
    """Whether a live module has the tensor as a parameter."""
    from .alive import holders_of
    from .places import PARAMETER_NAMES

    holders = holders_of([tensor])[id(tensor)]
    return any(name in module.__dict__.get(PARAMETER_NAMES, ()) for module, name in holders)


def is_marked(value: Any) -> bool:
    """Whether a value is the result of :func:`Parameter` that no module holds yet."""
    return isinstance(value, _Parameter)


def gathered(owner: str, value: Any) -> Any:
    """Converts a list, tuple or dict of parameters to a container module, at any depth of lists and
    dicts; returns other values unchanged."""
    held = list(value.values() if isinstance(value, dict) else value)
    found = [isinstance(v, _Parameter) for v in held]
    if not any(found):
        return _within(owner, value)
    if not all(found):
        other = type(held[found.index(False)]).__name__
        raise InvalidArgumentError(
            f"{owner}: parameters and others (here {other}) in one {type(value).__name__}; give "
            "parameters an attribute each, or a list of their own"
        )
    from .containers import ParameterDict, ParameterList

    return ParameterDict(value) if isinstance(value, dict) else ParameterList(value)


def _within(owner: str, value: Any) -> Any:
    """A container with the lists and dicts of parameters inside it converted."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    new = {
        key: gathered(f"{owner}[{key!r}]", inner)
        for key, inner in items
        if type(inner) in (list, tuple, dict)
    }
    changed = {key: made for key, inner in items if (made := new.get(key, inner)) is not inner}
    if not changed:
        return value
    if type(value) not in (list, tuple, dict):
        raise InvalidArgumentError(
            f"{owner}: a {type(value).__name__} of lists or dicts of parameters; use nn.ModuleList "
            "or nn.ModuleDict of nn.ParameterList"
        )
    if isinstance(value, dict):
        return {**value, **changed}
    return type(value)(changed.get(key, inner) for key, inner in items)


def converted(module: Module, name: str, old: Any, value: Any) -> Any:
    """The tensor that an assignment of another object to a parameter or buffer stores.

    ``None`` removes the tensor. Arrays, lists and numbers become tensors of the old one's dtype.

    Args:
        module: The module.
        name: The name of the attribute.
        old: What the attribute holds.
        value: The assigned object, which is no tensor.

    Raises:
        DTypeError: The object is no array, or a cast would drop imaginary parts or fractions.
        ShapeError: The object has another shape than the old tensor.
    """
    if value is None:
        return None
    from .loading import fitted

    where = f"{type(module).__qualname__}.{name}"
    array = has_protocol(value, "__dlpack__") or has_protocol(value, "__array_interface__")
    if not array and not isinstance(value, (bool, int, float, complex, list, tuple)):
        raise DTypeError(
            f"{where} is a parameter or buffer, which a {type(value).__name__} cannot replace; "
            f"assign a tensor or None, or delete the attribute first (del module.{name})"
        )
    new = asarray(value)
    if not isinstance(old, Tensor):
        return new
    if new.shape != old.shape:
        raise ShapeError(
            f"{where}: an object of shape {list(new.shape)} cannot replace the tensor of shape "
            f"{list(old.shape)}; assign nn.Parameter(value) for a parameter of another shape"
        )
    new = fitted(where, old, new)
    return new.requires_grad_() if old.requires_grad else new
