"""The references of a compiled function: the places that hold them, and the guards on them.

A function may read objects in its closure, in the globals that it names, and everything reachable
from these. Tensors among the objects are inputs of the program. Other objects are inspected when
the function is traced, so the program is valid as long as the places hold the same objects: these
conditions are its guards.
"""

from __future__ import annotations

import functools
import opcode
import sys
import types
from typing import Any, NamedTuple

from ._girih import DType, Tensor
from .errors import InvalidArgumentError

__all__ = [
    "Guard",
    "Place",
    "References",
    "global_names",
    "is_foreign",
    "is_own",
    "is_plain",
    "references",
]

#: Objects of these types are immutable.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice, DType)
_PLAIN_SET = frozenset(_PLAIN)
_OPAQUE: tuple[Any, ...] = (types.BuiltinFunctionType, *_PLAIN)
#: Methods that run when objects are created, printed or destroyed, not when they are used.
_UNCALLED = frozenset(
    ("__init__", "__new__", "__repr__", "__str__", "__del__", "__init_subclass__", "extra_repr")
)
#: Names through which code accesses attributes by strings.
_BY_STRING = frozenset(("getattr", "vars", "__dict__", "attrgetter", "__getattribute__"))
#: Attributes of modules that do not affect their computation.
_ABOUT = frozenset(("_scope_name", "_parameter_names", "_frozen", "_compile", "_compiled"))
#: Maximum bytes of an array that is compared at each call.
_MOST_BYTES = 1 << 16


class Place:
    """A place that holds an object to which the function refers."""

    __slots__ = ("container", "is_attribute", "key", "path")

    def __init__(self, container: Any, key: Any, path: str, is_attribute: bool = False) -> None:
        self.container = container
        self.key = key
        self.path = path
        self.is_attribute = is_attribute

    def written(self) -> tuple[Any, Any, bool]:
        """The place in the form that the extension reads."""
        return self.container, self.key, self.is_attribute

    def read(self) -> Any:
        """The object in the place."""
        if self.is_attribute:
            return getattr(self.container, self.key)
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


@functools.lru_cache(maxsize=4096)
def is_foreign(module: str | None) -> bool:
    """True for modules whose globals are not the user's state."""
    top = (module or "").split(".")[0]
    return top in (__package__, "builtins", "numpy") or top in sys.stdlib_module_names


def is_own(cls: type) -> bool:
    """True for the classes of this package: modules, optimisers, transformed functions."""
    return cls.__module__.split(".")[0] == __package__


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


def is_plain(value: Any) -> bool:
    """Whether an object is an immutable value, which guards compare by type and value."""
    return type(value) in _PLAIN_SET or (
        type(value) is tuple and all(is_plain(item) for item in value)
    )


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
        elif isinstance(value, (list, tuple)):
            if not (type(value) is list and all(map(is_plain, value))):
                for i in range(len(value)):
                    self.add(value, i, f"{path}[{i}]")
        elif isinstance(value, functools.partial):
            self.pending += [(value.func, path), (value.args, path), (value.keywords, path)]
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
        else:
            self.instance(value, path)

    def function(self, value: types.FunctionType, path: str) -> None:
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            self.add(cell, None, name)
        self.pending += [(value.__defaults__ or (), f"{path}.defaults")]
        self.pending += [(value.__kwdefaults__ or {}, f"{path}.defaults")]
        # The module globals of this package's functions are not the user's state.
        if is_foreign(value.__module__):
            return
        read, attributes = _names(value.__code__)
        self.names |= attributes
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
        for base in cls.__mro__:
            self.base(value, base, path, attributes if isinstance(attributes, dict) else {})

    def base(self, value: Any, base: type, path: str, attributes: dict[str, Any]) -> None:
        """Visits what an instance inherits from one of its classes: slots, methods, and
        defaults."""
        from .nn import module
        from .nn.module import Module

        if base is Module and id(Module) not in self.seen:
            self.seen[id(Module)] = Module
            self.add(vars(module), "_freezes", "the count of Module.freeze")
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


class Guard(NamedTuple):
    """A condition on the object in a place."""

    place: Place
    kind: str
    value: Any


class References:
    """The references of a function at the time of tracing.

    Attributes:
        places: The places of the references.
        before: The objects in the places at tracing.
        guards: The conditions on the objects in the places.
        content: The content of the guards.
    """

    __slots__ = ("before", "content", "guards", "places")

    def __init__(self, walk: _Walk, name: str) -> None:
        self.places = walk.places
        self.before = walk.values
        everything = "__dict__" in walk.names
        self.guards = [
            _guard(place, value, name)
            for place, by_name, value in zip(self.places, walk.by_name, self.before, strict=True)
            if (not by_name or everything or place.key in walk.names)
            and type(place.container) is not tuple
        ]

        #: The content of the guards, without the identities of visited objects. It is recorded now,
        #: because the objects may change.
        self.content = [(guard.place.path, guard.kind, _comparable(guard)) for guard in self.guards]


def _guard(place: Place, value: Any, name: str) -> Guard:
    if isinstance(value, Tensor):
        return Guard(place, "spec", value)
    if is_plain(value):
        return Guard(place, "equal", value)
    if type(value) is list and all(map(is_plain, value)):
        return Guard(place, "items", list(value))
    if isinstance(value, (list, dict)):
        return Guard(place, "length", value)
    if isinstance(value, (set, frozenset, bytearray)):
        return Guard(place, "contents", type(value)(value))
    if hasattr(value, "__array_interface__") and hasattr(value, "nbytes"):
        return _array_guard(place, value, name)
    return Guard(place, "same", value)


def _array_guard(place: Place, value: Any, name: str) -> Guard:
    flags = getattr(value, "flags", None)
    if flags is None or not flags.writeable:
        return Guard(place, "same", value)
    if value.nbytes > _MOST_BYTES:
        raise InvalidArgumentError(
            f"compile: {name} refers to {place.path}, an array of {value.nbytes} bytes that may be "
            "changed without notice; make it a tensor (girih.asarray), pass it as an argument, or "
            f"have it read only ({place.path}.flags.writeable = False)"
        )
    return Guard(place, "bytes", value)


def _comparable(guard: Guard) -> Any:
    value = guard.value
    if guard.kind == "spec":
        return tuple(value.shape), value.dtype.name
    if guard.kind in ("equal", "items"):
        return repr(value)
    if guard.kind == "length":
        return type(value), len(value)
    if guard.kind == "contents":
        return type(value), repr(value)
    if guard.kind == "bytes":
        return value.tobytes()
    if isinstance(value, types.FunctionType):
        return value.__code__
    if isinstance(value, (types.ModuleType, type)) or is_foreign(type(value).__module__):
        return id(value)
    return type(value)


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
