"""The references of a compiled function: the places that hold them, and the guards on them.

A function may read objects in its closure, in the globals that it names, and everything reachable
from these. Tensors among the objects are inputs of the program. Other objects are inspected when
the function is traced, so the program is valid as long as the places hold the same objects: these
conditions are its guards.
"""

from __future__ import annotations

import functools
import gc
import opcode
import sys
import types
import weakref
from collections import defaultdict, deque
from contextlib import suppress
from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ._girih import Tensor
from .checks import unexplained
from .errors import InvalidArgumentError
from .guards import PLAIN, Guard, comparable, guard_of, is_foreign, is_own, is_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Place", "References", "global_names", "references"]

_OPAQUE: tuple[Any, ...] = (types.BuiltinFunctionType, types.CodeType, *PLAIN)
#: Methods that run when objects are created, printed or destroyed, not when they are used.
_UNCALLED = frozenset(
    ("__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "extra_repr")
)
#: Names through which code accesses attributes by strings.
_BY_STRING = frozenset(("getattr", "vars", "__dict__", "attrgetter", "__getattribute__"))
#: Attributes of modules that do not affect their computation.
_ABOUT = frozenset(
    ("_scope_name", "_parameter_names", "_buffer_names", "_transient_names", "_frozen", "_taped",
     "_compile", "_compiled", "_hooks")
)  # fmt: skip
#: What a class holds in place of a method.
_METHODS: tuple[type, ...] = (
    types.FunctionType, staticmethod, classmethod, property, functools.cached_property,
    functools.partialmethod,
)  # fmt: skip
#: Objects that show the contents of a dict.
_VIEWS: tuple[Any, ...] = (
    types.MappingProxyType,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
#: Methods of this package's modules that a user may replace.
_REPLACED = frozenset(("forward",))
#: Attributes of containers of the standard library that hold their items.
_CONTENTS = {
    "UserDict": "data", "UserList": "data", "UserString": "data", "ChainMap": "maps",
    "Queue": "queue", "LifoQueue": "queue", "PriorityQueue": "queue", "_Environ": "_data",
}  # fmt: skip


class Place:
    """A place that holds an object to which the function refers.

    Attributes:
        container: The object that holds it, by key, in an attribute, or as a cell.
        key: The key, or the name of the attribute. ``None`` for the contents of a cell, and as an
            attribute for the container itself.
        path: The expression that leads to the place, for messages.
        is_attribute: Whether the key is the name of an attribute.
    """

    __slots__ = ("container", "is_attribute", "key", "path")

    def __init__(self, container: Any, key: Any, path: str, is_attribute: bool = False) -> None:
        self.container = container
        self.key = key
        self.path = path
        self.is_attribute = is_attribute

    @property
    def is_writable(self) -> bool:
        """Whether a function may store another object in the place."""
        return not isinstance(
            self.container, (tuple, _Fixed, _Called, functools.partial, types.MappingProxyType)
        )

    def written(self) -> tuple[Any, Any, bool]:
        """The place in the form that the extension reads."""
        return self.container, self.key, self.is_attribute

    def read(self) -> Any:
        """The object in the place."""
        if self.is_attribute:
            return self.container if self.key is None else getattr(self.container, self.key)
        if self.key is None and isinstance(self.container, types.CellType):
            return self.container.cell_contents
        return self.container[self.key]

    def write(self, value: Any) -> None:
        """Stores another object in the place."""
        if self.is_attribute:
            setattr(self.container, self.key, value)
        elif self.key is None and isinstance(self.container, types.CellType):
            self.container.cell_contents = value
        else:
            self.container[self.key] = value


class _Names(NamedTuple):
    """The names in a function's code."""

    globals: frozenset[str]
    attributes: frozenset[str]


def _opcodes(shifts: dict[str, int]) -> dict[int, int]:
    return {opcode.opmap[name]: by for name, by in shifts.items() if name in opcode.opmap}


_EXTENDED = opcode.opmap["EXTENDED_ARG"]
#: For each instruction that names a global or an attribute, the number of low bits of its argument
#: that are flags; the other bits are the index of the name.
_GLOBALS = _opcodes(
    {"LOAD_GLOBAL": int(sys.version_info >= (3, 11)), "LOAD_NAME": 0, "STORE_GLOBAL": 0}
)
_ATTRIBUTES = _opcodes(
    {"LOAD_ATTR": int(sys.version_info >= (3, 12)), "LOAD_METHOD": 0, "LOAD_SUPER_ATTR": 2}
)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    """The globals and attributes that code reads, with those of the functions within it."""
    read: set[str] = set()
    attributes: set[str] = set()
    # Parse the bytecode directly: the dis module takes ten times as long.
    data, names, extended = code.co_code, code.co_names, 0
    for at in range(0, len(data), 2):
        op, argument = data[at], data[at + 1] | extended
        extended = argument << 8 if op == _EXTENDED else 0
        if op in _GLOBALS:
            read.add(names[argument >> _GLOBALS[op]])
        elif op in _ATTRIBUTES:
            attributes.add(names[argument >> _ATTRIBUTES[op]])
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            within = _names(inner)
            read |= within.globals
            attributes |= within.attributes
    return _Names(frozenset(read), frozenset(attributes))


@functools.lru_cache(maxsize=4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The globals that code names, with those of the functions within it."""
    return tuple(sorted(_names(code).globals))


def _is_installed(module: types.ModuleType) -> bool:
    """True for modules of libraries, whose globals are not the user's state."""
    return "-packages" in (getattr(module, "__file__", None) or "")


@functools.lru_cache(maxsize=1024)
def _class_names(cls: Any) -> frozenset[str]:
    """The attributes that the methods of a class of this package read."""
    names: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            function = _function_of(value)
            if name not in _UNCALLED and isinstance(function, types.FunctionType):
                names |= _names(function.__code__).attributes
    return frozenset(names)


def _function_of(value: Any) -> Any:
    """The function that a class holds as a method, a property or the like."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, functools.cached_property) else value


class _Walk:
    """The places found so far, and the objects that are still to be visited."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        #: For each place, whether only code that names it can read it.
        self.by_name: list[bool] = []
        self.values: list[Any] = []
        #: Attribute names in the visited code.
        self.names: set[str] = set()
        self.seen: dict[int, Any] = {}
        self.pending: list[tuple[Any, str]] = []
        #: Classes and modules of which only the named attributes are visited.
        self.spaces: dict[int, tuple[Any, str, set[str]]] = {}
        #: Objects, with the class attributes that have been visited for them.
        self.instances: list[tuple[Any, str, set[str]]] = []
        #: Classes whose methods may be replaced.
        self.classes: dict[int, tuple[Any, str]] = {}
        #: The globals of the visited functions.
        self.globals: set[int] = set()

    def run(self, root: Any, name: str) -> None:
        self.pending.append((root, name))
        while self.pending:
            while self.pending:
                self.visit(*self.pending.pop())
            for space, path, known in list(self.spaces.values()):
                self.expand(space, path, known)
            for instance, path, known in self.instances:
                self.defaults(instance, path, known)

    def add(
        self, container: Any, key: Any, path: str, by_name: bool = False, attribute: bool = False
    ) -> None:
        place = Place(container, key, path, attribute)
        try:
            value = place.read()
        except (ValueError, LookupError, AttributeError):
            return  # The cell or slot is empty.
        self.places.append(place)
        self.by_name.append(by_name)
        self.values.append(value)
        self.pending.append((value, path))

    def is_read_by_name(self, place: Place, by_name: bool) -> bool:
        """Whether only code that names a place reads it, so that the instructions that ran show
        whether it was read."""
        if any(type(value).__module__ == "operator" for value in self.values):
            return False  # An `attrgetter` reads without an instruction.
        is_cell = place.key is None and isinstance(place.container, types.CellType)
        return is_cell or by_name or id(place.container) in self.globals

    def expand(self, space: Any, path: str, known: set[str]) -> None:
        """Visits the attributes of classes and modules whose names were found since the last
        visit."""
        names = (self.names & vars(space).keys()) - known
        if isinstance(space, type):
            dunder = {name for name in vars(space) if name.startswith("__")}
            names |= {n for n in dunder | {"forward"} if n in vars(space)} - known - _UNCALLED
        for name in sorted(names):
            known.add(name)
            value = vars(space)[name]
            inside = _function_of(value)
            if isinstance(space, types.ModuleType):
                self.add(vars(space), name, f"{path}.{name}")
            elif hasattr(type(value), "__get__") and not is_foreign(type(value).__module__):
                # A descriptor of the user's, which reading would call.
                self.add(vars(space), name, f"{path}.{name}")
            elif isinstance(inside, types.FunctionType) or is_own(type(value)):
                self.pending.append((inside, f"{path}.{name}"))
            elif not name.startswith("__") and not hasattr(type(value), "__get__"):
                self.add(space, name, f"{path}.{name}", attribute=True)

    def defaults(self, instance: Any, path: str, known: set[str]) -> None:
        """Visits attributes that an object inherits from its classes and may override later."""
        own = getattr(instance, "__dict__", {})
        for base in type(instance).__mro__:
            if is_foreign(base.__module__):
                continue
            for name in (self.names & vars(base).keys()) - known - own.keys():
                known.add(name)
                if is_plain(vars(base)[name]):
                    self.add(instance, name, f"{path}.{name}", attribute=True)

    def visit(self, value: Any, path: str) -> None:
        if isinstance(value, (Tensor, *_OPAQUE)) or id(value) in self.seen:
            return
        self.seen[id(value)] = value
        if isinstance(value, dict):
            for key in list(value):
                self.add(value, key, f"{path}[{key!r}]")
            if isinstance(value, defaultdict):
                self.add(value, "default_factory", f"{path}.default_factory", attribute=True)
        elif isinstance(value, (list, tuple, deque)):
            if not (type(value) in (list, deque) and all(map(is_plain, value))):
                for i in range(len(value)):
                    self.add(value, i, f"{path}[{i}]")
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self.add(value, name, f"{path}.{name}", attribute=True)
        elif isinstance(value, types.MethodType):
            self.pending += [(value.__self__, path), (value.__func__, path)]
        elif isinstance(value, types.FunctionType):
            self.function(value, path)
        elif isinstance(value, types.ModuleType):
            if not (is_foreign(value.__name__) or _is_installed(value)):
                self.spaces[id(value)] = (value, path, set())
        elif isinstance(value, type):
            if not is_foreign(value.__module__):
                self.spaces[id(value)] = (value, path, set())
                self.classes[id(value)] = (value, path)
        elif not self.view(value, path):
            self.instance(value, path)

    def view(self, value: Any, path: str) -> bool:
        """Visits what an object of the standard library shows of another one; false for objects
        that show nothing."""
        if isinstance(value, _VIEWS):
            # The dict itself, since its view is the same object after a change.
            for inner in gc.get_referents(value):
                self.add(_Fixed(inner), "object", path, attribute=True)
        elif isinstance(value, weakref.ref):
            self.add(_Called(value), "result", f"{path}()", attribute=True)
        elif isinstance(value, ContextVar):
            self.add(_Called(value.get, None), "result", f"{path}.get()", attribute=True)
        else:
            for base in type(value).__mro__:
                if base.__name__ in _CONTENTS and is_foreign(base.__module__):
                    name = _CONTENTS[base.__name__]
                    self.add(value, name, f"{path}.{name}", attribute=True)
            return False
        return True

    def function(self, value: types.FunctionType, path: str) -> None:
        value = unexplained(value)
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            self.add(cell, None, name)
        foreign = is_foreign(value.__module__)
        for name in ("__defaults__", "__kwdefaults__"):
            held = getattr(value, name)
            if held and foreign:
                self.pending.append((held, f"{path}.defaults"))
            elif held:
                self.add(value, name, f"{path}.defaults", attribute=True)
        # The module globals of this package's functions are not the user's state.
        if foreign:
            return
        self.add(value, "__code__", f"{path}.__code__", attribute=True)
        read, attributes = _names(value.__code__)
        self.names |= attributes
        self.globals.add(id(value.__globals__))
        if read & _BY_STRING:
            self.names.add("__dict__")
        for name in sorted(read & value.__globals__.keys()):
            self.add(value.__globals__, name, name)
        for name in value.__dict__:
            self.add(value.__dict__, name, f"{path}.{name}", by_name=True)

    def instance(self, value: Any, path: str) -> None:
        from .compiled import CompiledFunction

        if isinstance(value, CompiledFunction):
            self.pending.append((value._fun, path))
            return
        cls: Any = type(value)
        own = is_own(cls)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            names = _class_names(cls) if own else None
            for name in attributes:
                # Private attributes of this package hold only names and caches.
                skipped = names is not None and name not in names and is_plain(attributes[name])
                if not skipped and name not in _ABOUT:
                    by_name = not own
                    self.add(attributes, name, f"{path}.{name}", by_name=by_name)
        self.instances.append((value, path, set()))
        if not is_foreign(cls.__module__) or own:
            self.classes.setdefault(id(cls), (cls, cls.__qualname__))
        for base in cls.__mro__:
            self.base(value, base, path, attributes if isinstance(attributes, dict) else {})

    def base(self, value: Any, base: type, path: str, attributes: dict[str, Any]) -> None:
        """Visits what an instance inherits from one of its classes: slots, methods, and
        defaults."""
        from .nn import freezing, hooks
        from .nn.module import Module

        if base is Module and id(Module) not in self.seen:
            self.seen[id(Module)] = Module
            self.add(vars(freezing), "_freezes", "the count of Module.freeze")
            self.add(vars(hooks), "_changes", "the count of hooks of modules")
        if base is Module and "training" not in attributes:
            cls: Any = type(value)
            reads = _class_names(cls) if is_foreign(cls.__module__) else {"training"}
            if "training" in reads:
                self.add(value, "training", f"{path}.training", attribute=True)
        if is_foreign(base.__module__):
            return
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                self.add(value, name, f"{path}.{name}", by_name=True, attribute=True)
        if id(base) not in self.spaces:
            self.spaces[id(base)] = (base, base.__qualname__, set())


class _Fixed:
    """A holder of an object that has no other place."""

    __slots__ = ("object",)

    def __init__(self, object: Any) -> None:
        self.object = object


class _Called:
    """A holder of the result of a function that reads a place."""

    __slots__ = ("_args", "_fun")

    def __init__(self, fun: Any, *args: Any) -> None:
        self._fun, self._args = fun, args

    @property
    def result(self) -> Any:
        return self._fun(*self._args)


@functools.lru_cache(maxsize=4096)
def _methods(cls: Any) -> frozenset[str]:
    """The names under which a class finds functions, other than those of libraries."""
    names: dict[str, bool] = {}
    for base in cls.__mro__:
        own = is_own(base)
        if is_foreign(base.__module__) and not own:
            continue
        for name, value in vars(base).items():
            if name in names or name in _UNCALLED or (own and name not in _REPLACED):
                continue
            names[name] = isinstance(value, _METHODS) or is_own(type(value))
    return frozenset(name for name, is_method in names.items() if is_method)


class References:
    """The references of a function at the time of tracing.

    Attributes:
        places: The places of the references.
        before: The objects in the places at tracing.
        guards: The conditions on the objects in the places.
        content: The content of the guards.
        refused: The error for each name of an object that cannot be guarded. It is raised if the
            function reads the name.
    """

    __slots__ = ("before", "content", "guards", "places", "refused")

    def __init__(self, walk: _Walk, name: str) -> None:
        self.places = walk.places
        self.before = walk.values
        everything = "__dict__" in walk.names
        self.guards: list[Guard] = []
        self.refused: dict[str, InvalidArgumentError] = {}
        for place, by_name, value in zip(self.places, walk.by_name, self.before, strict=True):
            if by_name and not everything and place.key not in walk.names:
                continue
            try:
                self.guards.append(guard_of(place, value, name))
            except InvalidArgumentError as error:
                if everything or not walk.is_read_by_name(place, by_name):
                    raise
                key = place.path if place.key is None else place.key
                self.refused.setdefault(key, error)
        self.guards += _method_guards(walk)
        self.guards += _instance_guards(walk)
        #: The content of the guards, without the identities of visited objects. It is recorded now,
        #: because the objects may change.
        self.content = [(guard.place.path, guard.kind, comparable(guard)) for guard in self.guards]


def _method_guards(walk: _Walk) -> Iterator[Guard]:
    """The guards on the methods that the visited code may call, one for each class and name."""
    wanted = lambda name: name in walk.names or name in _REPLACED or name.startswith("__")
    for cls, path in walk.classes.values():
        for name in filter(wanted, sorted(_methods(cls))):
            place = Place(cls, name, f"{path}.{name}", is_attribute=True)
            with suppress(AttributeError):
                yield Guard(place, "method", place.read())
            # Methods of the bases under the same name, which `super` finds.
            bases = (base for base in cls.__mro__ if name in vars(base))
            for base in islice(bases, 1, None):
                if not is_foreign(base.__module__):
                    place = Place(vars(base), name, f"{base.__qualname__}.{name}")
                    yield Guard(place, "method", vars(base)[name])


def _instance_guards(walk: _Walk) -> Iterator[Guard]:
    """The guards on the classes of objects, and on attributes that would hide a method."""
    for value, path, _ in walk.instances:
        cls: Any = type(value)
        if is_foreign(cls.__module__) and not is_own(cls):
            continue
        attributes = getattr(value, "__dict__", None)
        absent: tuple[str, ...] = ()
        if isinstance(attributes, dict):
            names = (n for n in _methods(cls) if n in walk.names or n in _REPLACED)
            absent = tuple(sorted(name for name in names if name not in attributes))
        held = attributes if absent else None
        place = Place(value, None, path, is_attribute=True)
        yield Guard(place, "instance", (cls, held, absent))


def references(*roots: tuple[Any, str], name: str) -> References:
    """Everything that objects refer to, by place.

    Args:
        roots: Objects and their names, for messages.
        name: The name of the function.

    Raises:
        InvalidArgumentError: An object may change and cannot be guarded.
    """
    walk = _Walk()
    for root, path in roots:
        walk.run(root, path)
    return References(walk, name)
