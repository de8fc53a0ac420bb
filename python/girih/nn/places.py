"""Places: the attributes of modules that hold tensors, and the walk that collects them."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from .._girih import Tensor
from ..errors import InvalidArgumentError, ShapeError
from ..rollback import remember
from ..state import announce

if TYPE_CHECKING:
    from .module import Module

#: The attribute of a module with the names of its parameters.
PARAMETER_NAMES = "_parameter_names"


class Place:
    """The place of a tensor: the attributes of a module, and the name of one of them."""

    __slots__ = ("aliases", "attributes", "module", "name")

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.attributes = module.__dict__
        self.name = name
        #: Other places of the same tensor.
        self.aliases: list[tuple[Module, str]] = []


def read(places: list[Place]) -> list[Tensor]:
    """Reads the tensors of places."""
    return [place.attributes[place.name] for place in places]


def write(places: list[Place], tensors: list[Tensor]) -> None:
    """Replaces the tensors of places, and of all places tied to them, without checks."""
    for place, tensor in zip(places, tensors, strict=True):
        announce(place.module)
        place.attributes[place.name] = tensor
        for module, name in place.aliases:
            announce(module)
            module.__dict__[name] = tensor


def replace(places: list[Place], tensors: list[Tensor]) -> None:
    """As :func:`write`, and remembers the old tensors for :func:`girih.rollback`."""
    for place, tensor in zip(places, tensors, strict=True):
        for module, name in ((place.module, place.name), *place.aliases):
            remember(module, name, module.__dict__[name], tensor)
    write(places, tensors)


class Walk:
    """A walk over the tensors of a module: the kind to collect, and the tensors visited so far."""

    __slots__ = ("met", "others", "parameters", "seen", "trained")

    def __init__(self, parameters: bool) -> None:
        self.parameters = parameters
        self.seen: set[int] = set()
        #: The visited tensors, with their places; each is collected once. If None, every occurrence
        #: is collected.
        self.met: dict[int, Place | None] | None = {}
        #: If not None, leaves are places, and the places of the other kind are appended to it.
        self.others: list[Place] | None = None
        #: Whether frozen parameters count as the other kind.
        self.trained = False

    def leaf(self, module: Module, name: str, out: dict[str, Any]) -> None:
        """Adds a tensor of the module to the collected leaves."""
        attributes = module.__dict__
        tensor = attributes[name]
        wanted = (name in attributes.get(PARAMETER_NAMES, ())) == self.parameters
        if self.trained and name in module._frozen:
            wanted = False
        if not wanted:
            if self.others is not None:
                self.others.append(Place(module, name))
            return
        place = None if self.others is None else Place(module, name)
        if self.met is not None:
            if id(tensor) in self.met:
                first = self.met[id(tensor)]
                if first is not None:
                    first.aliases.append((module, name))
                return
            self.met[id(tensor)] = place
        out[name] = tensor if place is None else place


def named(state: Any, prefix: str = "") -> Any:
    """Pairs of dotted name and tensor."""
    if isinstance(state, Tensor):
        yield prefix, state
        return
    items = state.items() if isinstance(state, dict) else enumerate(state or ())
    for key, value in items:
        yield from named(value, f"{prefix}.{key}" if prefix else str(key))


def check_shape(name: str, old: Tensor, new: Tensor) -> None:
    """Raises an error if a tensor cannot replace another because of its shape."""
    if not isinstance(new, Tensor):
        raise InvalidArgumentError(f"{name}: expected a tensor, got {type(new).__name__}")
    if new.shape != old.shape:
        raise ShapeError(
            f"{name}: cannot replace a tensor of shape {list(old.shape)} by one of shape "
            f"{list(new.shape)}"
        )


def with_aliases(
    module: Module, changes: list[tuple[Module, str, Tensor]]
) -> list[tuple[Module, str, Tensor]]:
    """Extends the changes to all places tied to the replaced tensors, and separates tensors that
    would become tied.
    """
    holders: dict[int, list[tuple[Module, str]]] = {}
    for held in module.modules():
        for name, value in held.__dict__.items():
            if type(value) is Tensor:
                holders.setdefault(id(value), []).append((held, name))
    out: dict[tuple[int, str], tuple[Module, str, Tensor]] = {}
    given: set[int] = set()
    for holder, name, tensor in changes:
        new = copy(tensor) if id(tensor) in given else tensor
        given.add(id(tensor))
        for other, attribute in holders.get(id(holder.__dict__[name]), [(holder, name)]):
            out[id(other), attribute] = (other, attribute, new)
    return list(out.values())
