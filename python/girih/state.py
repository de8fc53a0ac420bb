"""State that a function stores in objects while a transform traces it.

A layer may assign to its attributes when it is called: running statistics, counters, caches. While
a transform calls the function, such an attribute would get a tensor that depends on placeholders.
So each traced function has a :class:`Watch`, which remembers what the objects held. When the
function has returned, the objects are restored, and the new tensors are further outputs of the
transform, whose values are then stored in the objects (:mod:`girih.stored`).

Modules announce themselves when they are called or assigned to (:func:`announce`). Other objects
are found from the function: tensors, lists, dicts and objects in its closure, among the globals
that it names, and in modules.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, tree
from ._girih import Tensor
from .checks import unexplained
from .guards import is_foreign, is_own
from .references import global_names
from .rollback import remember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "NOTHING",
    "Change",
    "Items",
    "Watch",
    "announce",
    "announce_container",
    "is_module",
    "leaves_of",
    "made",
    "tree_of",
    "watched",
]

#: Marks a place that holds no object.
NOTHING = object()
#: Maximum number of objects that one watch visits on its way from a function.
_MOST_VISITED = 256
#: Maximum number of items of a list or dict that is visited.
_MOST_ITEMS = 1024
#: Types of objects that hold no tensors.
_CLOSED = frozenset(
    (type(None), bool, int, float, complex, str, bytes, types.ModuleType, types.CodeType,
     types.BuiltinFunctionType, type, range, slice)
)  # fmt: skip
#: The watch of the innermost function being traced; ``None`` outside of transforms.
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watched(watch: Watch | None) -> Callable[[], None]:
    """Makes this the watch of the innermost function being traced; the result undoes that."""
    before = _WATCH.set(watch)
    return lambda: _WATCH.reset(before)


def announce(module: Any) -> None:
    """Remembers what a module holds, before it is called or changed."""
    watch = _WATCH.get()
    if watch is not None:
        watch.module(module)


def announce_container(container: Any, path: str = "an object") -> None:
    """As :func:`announce`, for an object that is about to be changed."""
    watch = _WATCH.get()
    if watch is not None:
        kind: Any = _Attributes
        if isinstance(container, dict):
            kind = _Dotted
        elif isinstance(container, (list, deque)):
            kind = _Sequence
        watch.hold(kind, container, path)


def made(module: Any) -> None:
    """Notes a module that the function being traced creates, and may change freely."""
    watch = _WATCH.get()
    if watch is not None:
        watch.hold(_Made, module.__dict__, "")


@functools.cache
def _modules() -> type:
    from .nn.module import Module

    return Module


@functools.cache
def _places() -> Any:
    from .nn import places

    return places


def is_module(value: Any) -> bool:
    """Whether an object is a module."""
    return isinstance(value, _modules())


def tree_of(value: Any) -> tuple[list[Any], Any]:
    """The leaves of a stored object, and its structure."""
    if value is NOTHING:
        return [], NOTHING
    return tree.flatten(list(value) if type(value) is Items else value, is_module)


def leaves_of(value: Any) -> list[Any]:
    """The leaves of a stored object; an object that is no tree is a leaf."""
    try:
        return tree_of(value)[0]
    except (TypeError, ValueError, RecursionError):
        return [value]


def _has_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or any(isinstance(leaf, Tensor) for leaf in leaves_of(value))


class _Holder:
    """An object, and what it held when it was first visited.

    Attributes:
        container: The object.
        path: The object's name, for messages.
        owner: The module whose attributes the object holds.
    """

    __slots__ = ("_before", "container", "owner", "path")

    def __init__(self, container: Any, path: str, owner: Any = None) -> None:
        self.container = container
        self.path = path
        self.owner = owner
        self._before = _girih.Snapshot(self.held())

    def held(self) -> dict[Any, Any] | list[Any]:
        """The held objects, by key or as a list."""
        held: dict[Any, Any] | list[Any] = self.container
        return held

    def inner(self) -> list[tuple[Any, str]]:
        """The held objects that may hold tensors themselves, with their paths."""
        return [(value, self.name(key)) for key, value in self._before.open(_modules())]

    def write(self, key: Any, value: Any) -> None:
        """Stores an object under a key."""
        if value is NOTHING:
            self.container.pop(key, None)
        elif self.owner is None:
            self.container[key] = value
        else:
            remember(self.owner, key, self.container.get(key), value)
            if type(value) is Tensor:
                _places().store(self.container, key, value)
            else:
                self.container[key] = value

    def restore(self, key: Any, value: Any) -> None:
        """Stores the object that was held under a key before."""
        if self.owner is None or value is NOTHING:
            self.write(key, value)
        else:
            self.container[key] = value

    def name(self, key: Any) -> str:
        """The expression that leads to a held object."""
        return f"{self.path}[{key!r}]" if self.owner is None else f"{self.path}.{key}"

    def again(self, watch: Watch) -> None:
        """Visits the same object for another watch."""
        watch.hold(type(self), self.container, self.path, self.owner)

    def changes(self) -> Iterator[Change]:
        """The places that held or hold tensors and hold other objects than before."""
        if not self._before.differs(self.held()):
            return
        yield from self._replaced()
        for key, handle, old in self._before.assigned():
            yield Change(_InPlace(handle, old, self.name(key)), None, old, copy(handle))

    def _replaced(self) -> Iterator[Change]:
        before, now = dict(self._before.items()), dict(self.held())
        for key in {**before, **now}:
            old, new = before.get(key, NOTHING), now.get(key, NOTHING)
            if old is not new and (_has_tensors(new) or _has_tensors(old)):
                yield Change(self, key, old, new)


class _Dotted(_Holder):
    """The attributes of an object that is not a module."""

    __slots__ = ()

    def name(self, key: Any) -> str:
        return f"{self.path}.{key}"


class _Made(_Holder):
    """The attributes of a module that the function creates."""

    __slots__ = ()

    def changes(self) -> Iterator[Change]:
        return iter(())


class Items(list[Any]):
    """The items of a list or deque, which are compared and replaced together."""


class _Sequence(_Holder):
    """A list or deque, whose items are one object."""

    __slots__ = ()

    def held(self) -> dict[Any, Any] | list[Any]:
        return list(self.container)

    def write(self, key: Any, value: Any) -> None:
        self.container.clear()
        self.container.extend(value)

    def name(self, key: Any) -> str:
        return self.path if key is None else f"{self.path}[{key}]"

    def _replaced(self) -> Iterator[Change]:
        old, new = Items(item for _, item in self._before.items()), Items(self.container)
        same = len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True))
        if not same and (_has_tensors(new) or _has_tensors(old)):
            yield Change(self, None, old, new)


class _Attributes(_Holder):
    """An object whose attributes are read and written by name: a cell, or an object with slots."""

    __slots__ = ()

    def held(self) -> dict[Any, Any] | list[Any]:
        found = {}
        is_cell = isinstance(self.container, types.CellType)
        cls: Any = type(self.container)
        for name in ("cell_contents",) if is_cell else _slots(cls):
            # A cell or slot may be empty.
            with suppress(AttributeError, ValueError):
                found[name] = getattr(self.container, name)
        return found

    def write(self, key: Any, value: Any) -> None:
        if value is NOTHING:
            delattr(self.container, key)
        else:
            setattr(self.container, key, value)

    def name(self, key: Any) -> str:
        return self.path if key == "cell_contents" else f"{self.path}.{key}"


class _Global(_Holder):
    """A global that holds a tensor. The path is its name."""

    __slots__ = ()

    def held(self) -> dict[Any, Any] | list[Any]:
        return {self.path: self.container[self.path]} if self.path in self.container else {}

    def write(self, key: Any, value: Any) -> None:
        if value is NOTHING:
            self.container.pop(key, None)
        else:
            self.container[key] = value

    def name(self, key: Any) -> str:
        return str(key)

    def again(self, watch: Watch) -> None:
        watch.named(self.container, self.path)


class _InPlace(_Holder):
    """A tensor to which the function assigns in place."""

    __slots__ = ("_old",)

    def __init__(self, handle: Tensor, old: Tensor, path: str) -> None:
        self.container, self.path, self.owner = handle, path, None
        self._old = old

    def write(self, key: Any, value: Any) -> None:
        _girih.rebind(self.container, value)

    def name(self, key: Any) -> str:
        return self.path

    def again(self, watch: Watch) -> None:
        watch.handle(self.container, self.path)

    def changes(self) -> Iterator[Change]:
        if not _girih.is_same(self.container, self._old):
            yield Change(self, None, self._old, copy(self.container))


@functools.lru_cache(maxsize=1024)
def _slots(cls: Any) -> tuple[str, ...]:
    """The slots of a class."""
    names: list[str] = []
    for base in cls.__mro__:
        own = vars(base).get("__slots__", ())
        names += (own,) if isinstance(own, str) else own
    return tuple(n for n in names if n not in ("__dict__", "__weakref__"))


class Change(NamedTuple):
    """An object that a function stored in a place.

    Attributes:
        before: What the place held before; :data:`NOTHING` if it held nothing.
        after: The stored object; :data:`NOTHING` if the function emptied the place.
    """

    holder: _Holder
    key: Any
    before: Any
    after: Any

    @property
    def place(self) -> tuple[int, Any]:
        """What tells the place from all others."""
        return id(self.holder.container), self.key

    @property
    def path(self) -> str:
        """The expression that leads to the place, for messages."""
        return self.holder.name(self.key)

    def write(self, value: Any) -> None:
        """Stores an object in the place; the function being traced, if any, then stores it."""
        watch = _WATCH.get()
        if watch is not None:
            self.holder.again(watch)
        self.holder.write(self.key, value)

    def restore(self) -> None:
        """Stores what the place held before."""
        self.holder.restore(self.key, self.before)


class Watch:
    """The objects that a function being traced may change, with what they held before."""

    __slots__ = ("_globals", "_holders", "_left", "_seen")

    def __init__(self, roots: Sequence[Any]) -> None:
        self._holders: dict[int, _Holder] = {}
        self._globals: dict[tuple[int, str], _Holder] = {}
        #: Other visited objects, which must stay alive because they are known by their ids.
        self._seen: dict[int, Any] = {}
        self._left = _MOST_VISITED
        empty = (tuple, dict)  # Most calls have no keyword arguments.
        self._look([(root, "") for root in roots if type(root) not in empty or root])

    def hold(self, kind: Any, container: Any, path: str, owner: Any = None) -> _Holder | None:
        """Remembers what an object holds; ``None`` if the object is known."""
        if id(container) in self._holders:
            return None
        holder: _Holder = kind(container, path, owner)
        self._holders[id(container)] = holder
        return holder

    def module(self, module: Any) -> None:
        """Remembers what a module holds, in lists and dicts too."""
        attributes = module.__dict__
        if id(attributes) not in self._holders:
            holder = _Holder(attributes, type(module).__name__, module)
            self._holders[id(attributes)] = holder
            inner = holder.inner()
            if inner:
                self._left += len(inner)
                self._look(inner)

    def named(self, space: dict[str, Any], name: str) -> None:
        """Remembers a global."""
        if (id(space), name) not in self._globals:
            self._globals[id(space), name] = _Global(space, name)

    def handle(self, handle: Tensor, path: str) -> None:
        """Remembers the value of a tensor that is about to be assigned to in place."""
        if id(handle) not in self._holders:
            self._holders[id(handle)] = _InPlace(handle, copy(handle), path)

    def _look(self, pending: list[tuple[Any, str]]) -> None:
        """Visits objects, and what they lead to."""
        while pending and self._left > 0:
            value, path = pending.pop()
            kind = type(value)
            if kind is Tensor or kind in _CLOSED or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            self._left -= 1
            if kind is types.FunctionType:
                self._function(value, pending)
            elif isinstance(value, (list, deque, dict)):
                if len(value) <= _MOST_ITEMS:
                    holder = self.hold(
                        _Holder if isinstance(value, dict) else _Sequence, value, path
                    )
                    pending += holder.inner() if holder else ()
            elif isinstance(value, tuple):
                pending += [(item, f"{path}[{i}]") for i, item in enumerate(value[:_MOST_ITEMS])]
            elif kind is types.MethodType:
                pending += [(value.__self__, path), (value.__func__, path)]
            elif isinstance(value, functools.partial):
                pending += [(value.func, path), (value.args, path), (value.keywords, path)]
            elif not isinstance(value, _modules()):
                self._object(value, path, pending)

    def _function(self, value: types.FunctionType, pending: list[tuple[Any, str]]) -> None:
        value = unexplained(value)
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        for name, cell in cells:
            holder = self.hold(_Attributes, cell, name)
            pending += holder.inner() if holder else ()
        if is_foreign(value.__module__):
            return
        space = value.__globals__
        for name in global_names(value.__code__):
            held = space.get(name)
            if type(held) is Tensor:
                self.named(space, name)
            elif type(held) not in _CLOSED:
                pending.append((held, name))

    def _object(self, value: Any, path: str, pending: list[tuple[Any, str]]) -> None:
        cls: Any = type(value)
        own = is_own(cls)
        if is_foreign(cls.__module__) and not own:
            return
        path = path or cls.__name__
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            holder = self.hold(_Dotted, attributes, path)
            pending += holder.inner() if holder else ()
        if not own and _slots(cls):
            holder = self.hold(_Attributes, value, path)
            pending += holder.inner() if holder else ()

    def changes(self) -> list[Change]:
        """What the function has stored, each place once."""
        found: dict[Any, Change] = {}
        for holders in (self._holders, self._globals):
            for holder in holders.values():
                for change in holder.changes():
                    found.setdefault(change.place, change)
        return list(found.values())
