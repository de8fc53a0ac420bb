"""Loads a state dict into a module: which tensor goes where, in which dtype, on which device.

A tensor of a module may have several names: a parameter that two modules share, or a module held in
two places. A file may have one of the names, as :func:`girih.save` writes a module, or all of them,
as ``state_dict`` and PyTorch's files have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from .. import _girih
from .._girih import Tensor, has_protocol
from ..errors import DTypeError, InvalidArgumentError
from ..state import is_module
from .places import PARAMETER_NAMES, check_shape, entries, put

if TYPE_CHECKING:
    from .module import Module

__all__ = ["fitted", "load", "tensors"]

_Place = tuple["Module", str]


class _Shared:
    """A tensor of a module with all places that hold it, and the tensors given for them by name."""

    __slots__ = ("given", "is_parameter", "places", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.places: dict[str, _Place] = {}
        self.given: dict[str, Tensor] = {}
        self.is_parameter = False

    def assignments(self, owner: str) -> list[tuple[_Place, Tensor]]:
        """The new tensor of each place. A tied parameter has one value. Buffers that happen to be
        one tensor may get a value each.
        """
        if not self.given:
            return []
        (first, value), *others = self.given.items()
        if not self.is_parameter:
            return [(place, self.given.get(name, value)) for name, place in self.places.items()]
        for name, other in others:
            if not _equal(value, other):
                raise InvalidArgumentError(
                    f"{owner}.load_state_dict: {first} and {name} are one parameter of this module "
                    "and have different values; remove one of them, or load into a module whose "
                    "parameters are not tied"
                )
        return [(place, value) for place in self.places.values()]


def tensors(values: Any, owner: str) -> dict[str, Tensor]:
    """The tensors of a state dict. Arrays of other libraries are copied.

    Raises:
        InvalidArgumentError: The object is no dict of tensors by name.
    """
    if not isinstance(values, Mapping):
        raise InvalidArgumentError(
            f"{owner}.load_state_dict: expected a dict of tensors by name, got a "
            f"{type(values).__name__}"
        )
    found = {}
    for name, value in values.items():
        if not isinstance(name, str) or not (isinstance(value, Tensor) or _is_array(value)):
            inner = ""
            if isinstance(value, Mapping) and isinstance(name, str):
                inner = f"; if that is the state, load the dict's [{name!r}]"
            raise InvalidArgumentError(
                f"{owner}.load_state_dict: expected tensors by name, got a {type(value).__name__} "
                f"for {name!r}{inner}"
            )
        found[name] = value if isinstance(value, Tensor) else _copied(value)
    return found


def _is_array(value: Any) -> bool:
    return has_protocol(value, "__dlpack__") or has_protocol(value, "__array_interface__")


def _copied(value: Any) -> Tensor:
    """A tensor with the present elements of another library's array."""
    if has_protocol(value, "detach"):  # PyTorch does not export a tensor that requires a gradient.
        value = value.detach()
    return _girih.asarray(value, copy=True)


def load(
    module: Module, values: Mapping[str, Tensor], locations: dict[str, _Place], strict: bool,
    assign: bool,
) -> None:  # fmt: skip
    """Replaces the tensors of a module, all of which are checked before anything is replaced.

    Args:
        module: The module.
        values: Tensors by this package's names.
        locations: The place of each tensor of the module, by its first name.
        strict: Whether the names must be those of the module.
        assign: Whether the tensors are taken as they are.
    """
    owner = type(module).__qualname__
    shared, names = _shared(locations)
    unexpected = []
    for name, value in values.items():
        place = locations.get(name) or _place(module, name)
        if place is None or (id(place[0]), place[1]) not in names:
            unexpected.append(name)
            continue
        holder, attribute = place
        # The name of the place: the module may be held in several places.
        shared[id(holder.__dict__[attribute])].given.setdefault(names[id(holder), attribute], value)
    missing = sorted(n for one in shared.values() if not one.given for n in one.places)
    if strict and (missing or unexpected):
        raise InvalidArgumentError(
            f"{owner}.load_state_dict: missing {missing}, unexpected {sorted(unexpected)}"
        )
    changes: list[tuple[_Place, Tensor]] = []
    taken: dict[int, int] = {}
    for one in shared.values():
        made: dict[int, Tensor] = {}
        for place, value in one.assignments(owner):
            if id(value) not in made:
                name = next(name for name, given in one.given.items() if given is value)
                new = fitted(name, one.tensor, value, assign)
                # Tensors that are not tied in the module get a handle each.
                made[id(value)] = copy(new) if id(new) in taken else new
                taken[id(made[id(value)])] = 1
            changes.append((place, made[id(value)]))
    for (holder, attribute), tensor in changes:
        put(holder, attribute, tensor)


def _shared(
    locations: dict[str, _Place],
) -> tuple[dict[int, _Shared], dict[tuple[int, str], str]]:
    """The tensors of a module by identity, and the names of their places."""
    shared: dict[int, _Shared] = {}
    names: dict[tuple[int, str], str] = {}
    for name, (holder, attribute) in locations.items():
        tensor = holder.__dict__[attribute]
        one = shared.setdefault(id(tensor), _Shared(tensor))
        one.places[name] = (holder, attribute)
        one.is_parameter |= attribute in holder.__dict__.get(PARAMETER_NAMES, ())
        names[id(holder), attribute] = name
    return shared, names


def _place(value: Any, name: str) -> _Place | None:
    """The place that a dotted name leads to, through any of the places that hold a module."""
    for key, inner in entries(value):
        if name == str(key) and isinstance(inner, Tensor) and is_module(value):
            return value, key
        if name.startswith(f"{key}."):
            found = _place(inner, name[len(str(key)) + 1 :])
            if found is not None:
                return found
    return None


def _equal(a: Tensor, b: Tensor) -> bool:
    if a is b:
        return True
    return a.shape == b.shape and bool(_girih.array_equal(a, b, equal_nan=True).item())


#: The kinds of dtypes, by what each can represent of the previous one.
_KINDS = ("bool", "int", "float", "complex")


def _kind(dtype: _girih.DType) -> int:
    return next(i for i, kind in enumerate(_KINDS) if kind in dtype.name)


def fitted(name: str, old: Tensor, new: Tensor, assign: bool = False) -> Tensor:
    """The tensor that takes the place of another: cast to its dtype and moved to its device, as in
    PyTorch. With ``assign`` it has its own dtype and device.

    Raises:
        ShapeError: The shapes differ.
        DTypeError: A cast would drop imaginary parts or fractions.
    """
    check_shape(name, old, new)
    if not assign:
        if _kind(new.dtype) > _kind(old.dtype):
            raise DTypeError(
                f"{name}: cannot replace a tensor of dtype {old.dtype.name} by one of dtype "
                f"{new.dtype.name}, whose values it does not hold; cast them, or give assign=True"
            )
        if new.dtype != old.dtype:
            new = new.astype(old.dtype)
        if new.device != old.device:
            new = new.to_device(old.device)
    # The tape's marks belong to the place, which keeps them, not to the tensor in the file.
    return new.detach() if new.requires_grad else new
