"""Places: the attributes of modules that hold tensors, and the walk that collects them.

Modules hold tensors in their attributes, and other modules in attributes, lists, tuples and dicts.
:func:`entries` is the one function that says what holds what.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from .. import _girih
from .._girih import Tensor, has_protocol
from ..errors import InvalidArgumentError, ShapeError
from ..rollback import remember
from ..state import announce, is_module
from ..variables import assign, copy_to, is_variable
from .parameter import is_marked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .module import Module

__all__ = [
    "BUFFER_NAMES",
    "PARAMETER_NAMES",
    "TRANSIENT_NAMES",
    "Place",
    "Walk",
    "changes",
    "check_shape",
    "entries",
    "held_by",
    "is_frozen",
    "locations",
    "named",
    "places_in",
    "put",
    "read",
    "replace",
    "store",
    "submodules",
    "tree_of",
    "with_aliases",
    "write",
]

#: The attribute of a module with the names of its parameters.
PARAMETER_NAMES = "_parameter_names"
#: The attributes with the names of registered buffers, and of those that files do not have.
BUFFER_NAMES, TRANSIENT_NAMES = "_buffer_names", "_transient_names"


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
    """As :func:`put`, and remembers the old tensors for :func:`girih.rollback`."""
    for place, tensor in zip(places, tensors, strict=True):
        for module, name in ((place.module, place.name), *place.aliases):
            remember(module, name, module.__dict__[name], tensor)
            put(module, name, tensor, new=True)


def put(module: Module, name: str, tensor: Tensor, new: bool = False) -> None:
    """Gives an attribute of a module another tensor.

    A tensor that requires a gradient is a variable: it gets the value of the new tensor, so that
    optimisers and others that hold it see the new value, and it keeps requiring a gradient. Any
    other tensor is a value, which the new tensor replaces. ``new`` says that nothing else holds the
    new tensor.
    """
    announce(module)
    store(module.__dict__, name, tensor, new)


def store(attributes: dict[str, Any], name: str, tensor: Tensor, new: bool = True) -> None:
    """As :func:`put`, for the attributes of a module that a transform knows already."""
    old = attributes.get(name)
    # While a function is traced, the attribute changes; its result is assigned to the variable.
    if type(old) is not Tensor or not is_variable(old) or old is tensor or _girih.is_tracing():
        attributes[name] = tensor
    elif new:
        assign(old, tensor)
    else:
        copy_to(old, tensor)


def is_frozen(module: Module, name: str) -> bool:
    """Whether an own parameter of a module is not trained."""
    return name in module._frozen


class Walk:
    """A walk over the tensors of a module: the kind to collect, and the tensors visited so far."""

    __slots__ = ("met", "others", "parameters", "saved", "seen", "trained")

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
        #: Whether to leave out buffers that files do not have.
        self.saved = False

    def leaf(self, module: Module, name: str, out: dict[str, Any]) -> None:
        """Adds a tensor of the module to the collected leaves."""
        attributes = module.__dict__
        tensor = attributes[name]
        wanted = (name in attributes.get(PARAMETER_NAMES, ())) == self.parameters
        if self.trained and is_frozen(module, name):
            wanted = False
        if self.saved and name in attributes.get(TRANSIENT_NAMES, ()):
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
    module: Module, assignments: list[tuple[Module, str, Tensor]]
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
    for holder, name, tensor in assignments:
        new = copy(tensor) if id(tensor) in given else tensor
        given.add(id(tensor))
        for other, attribute in holders.get(id(holder.__dict__[name]), [(holder, name)]):
            out[id(other), attribute] = (other, attribute, new)
    return list(out.values())


def entries(value: Any) -> Iterable[tuple[Any, Any]]:
    """What a module, dict, list or tuple holds, by attribute, key or position; nothing for other
    values."""
    if is_module(value):
        held: dict[Any, Any] = vars(value)
        return held.items()
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    return ()


def submodules(value: Any, prefix: str = "", every: bool = False) -> Iterator[tuple[str, Module]]:
    """The modules in a module or container, outermost first, each with its dotted name.

    Args:
        value: A module or container, which has the name ``prefix``.
        prefix: The name of the value.
        every: Whether a module has a pair for each place that holds it, not only for the first.
    """
    pending: list[tuple[str, Any, frozenset[int]]] = [(prefix, value, frozenset())]
    seen: set[int] = set()
    while pending:
        name, held, above = pending.pop()
        # A list may hold itself, and a module may refer to the module that holds it.
        if id(held) in above or (not every and id(held) in seen):
            continue
        above = above | {id(held)}
        if is_module(held):
            seen.add(id(held))
            yield name, held
        pending += [
            (f"{name}.{key}" if name else str(key), inner, above)
            for key, inner in reversed(list(entries(held)))
            if is_module(inner) or isinstance(inner, (dict, list, tuple))
        ]


def held_by(value: Any) -> bool:
    """Whether a value is a module, or holds one in lists, tuples and dicts.

    Raises:
        InvalidArgumentError: It holds a Parameter that is in no module.
    """
    if is_module(value):
        return True
    if is_marked(value):
        raise InvalidArgumentError(
            "a Parameter was added to a plain list or dict of a module, which does not make it a "
            "parameter; assign the whole list to the attribute, or use nn.ParameterList"
        )
    found = False
    if isinstance(value, (list, tuple, dict)):
        for _, inner in entries(value):
            found = held_by(inner) or found
    return found


def places_in(module: Module) -> tuple[dict[str, Any], list[Place]]:
    """The places of the trained parameters, as a tree, and the places of the other tensors.

    The places can be used to read and replace all tensors any number of times.
    """
    walk = Walk(True)
    walk.others = []
    walk.trained = True
    found = tree_of(walk, module)
    others: list[Place] = []
    for place in walk.others:
        tensor = place.attributes[place.name]
        first = walk.met.get(id(tensor)) if walk.met is not None else None
        if first is None:
            others.append(place)
        else:
            first.aliases.append((place.module, place.name))
    return found, others


def tree_of(walk: Walk, module: Module) -> dict[str, Any]:
    """The parameters of a module, or its buffers, as a tree, without tensors visited before."""
    if id(module) in walk.seen:
        return {}
    walk.seen.add(id(module))
    out: dict[str, Any] = {}
    for name, value in module.__dict__.items():
        if type(value) is Tensor:
            walk.leaf(module, name, out)
        elif held_by(value):
            out[name] = _container_tree(walk, value)
    return out


def _container_tree(walk: Walk, value: Any) -> Any:
    if is_module(value):
        return tree_of(walk, value)
    if isinstance(value, dict):
        return {k: _container_tree(walk, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_container_tree(walk, v) for v in value]
    return None


def locations(value: Any) -> Iterator[tuple[str, tuple[Module, str]]]:
    """Pairs of dotted name and (module, attribute) that holds a tensor, for the first place of each
    module."""
    for name, module in submodules(value):
        for key, inner in vars(module).items():
            if isinstance(inner, Tensor):
                yield f"{name}.{key}" if name else key, (module, key)


def _assignments(holder: Any, values: Any, path: str) -> list[tuple[Module, str, Tensor]]:
    """The assignments to make, all checked before anything is changed."""
    out: list[tuple[Module, str, Tensor]] = []
    if values is None:
        return out
    items: Any = values.items() if has_protocol(values, "items") else enumerate(values)
    for key, new in items:
        name = f"{path}.{key}"
        try:
            old = vars(holder)[key] if is_module(holder) else holder[key]
        except (KeyError, IndexError, TypeError):
            raise InvalidArgumentError(f"{name}: the module has no such tensor or module") from None
        if isinstance(old, Tensor):
            check_shape(name, old, new)
            out.append((holder, key, new))
        else:
            out += _assignments(old, new, name)
    return out


def changes(module: Module, values: Any) -> list[tuple[Module, str, Tensor]]:
    """The assignments to make, so that tied tensors stay tied."""
    return with_aliases(module, _assignments(module, values, type(module).__qualname__))
