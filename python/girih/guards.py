"""Guards: the conditions under which the program of a compiled function is valid.

A guard is a condition on an object to which the function refers: that it is the same object, or has
the same type and value, or the same items. Values are compared with their types and bits
(:func:`exact`): ``1`` is not ``True``, and ``0.0`` is not ``-0.0``. An object that may change
without notice raises an error.
"""

from __future__ import annotations

import abc
import collections.abc
import enum
import functools
import io
import struct
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol

from . import tree
from ._girih import DType, Tensor, has_protocol
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from .references import Place

__all__ = ["Guard", "comparable", "exact", "guard_of", "is_foreign", "is_own", "is_plain"]

#: Objects of these types are immutable.
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, slice, DType)
_PLAIN_SET = frozenset(PLAIN)
#: Types whose equal values cannot be told apart.
_EXACT = frozenset((type(None), bool, int, str, bytes, type(Ellipsis), DType))
#: Types whose values never equal a value of another type.
_DISTINCT = (str, bytes, type(None))
#: Classes of the standard library whose instances have their values in attributes.
_STATELESS = (object, abc.ABC, Generic, Protocol)
#: Maximum bytes of an object that is compared at each call.
_MOST_BYTES = 1 << 16


@functools.lru_cache(maxsize=4096)
def is_foreign(module: str | None) -> bool:
    """True for modules whose globals are not the user's state."""
    top = (module or "").split(".")[0]
    return top in (__package__, "builtins", "numpy") or top in sys.stdlib_module_names


def is_own(cls: type) -> bool:
    """True for the classes of this package: modules, optimisers, transformed functions."""
    return cls.__module__.split(".")[0] == __package__


def is_plain(value: Any) -> bool:
    """Whether an object is an immutable value, which guards compare by type and value."""
    return type(value) in _PLAIN_SET or (
        type(value) is tuple and all(is_plain(item) for item in value)
    )


def exact(value: Any) -> Any:
    """A key of a hashable value: keys are equal only if types and bits of the values are.

    This holds for numbers within tuples, sets and frozen dataclasses, too. Objects of other types
    are compared by their own equality.
    """
    kind: Any = type(value)
    if kind in _EXACT:
        return kind, value
    if isinstance(value, float):
        return kind, struct.pack("d", value)
    if isinstance(value, complex):
        return kind, struct.pack("dd", value.real, value.imag)
    if isinstance(value, tuple):
        return kind, tuple(map(exact, value))
    if isinstance(value, (set, frozenset)):
        return kind, frozenset(map(exact, value))
    if isinstance(value, (range, slice)):
        return kind, tuple(map(exact, (value.start, value.stop, value.step)))
    if kind.__module__ == "numpy" and has_protocol(value, "tobytes"):
        hash(value)
        return kind, value.dtype.str, value.tobytes()
    if kind.__module__ in ("decimal", "_decimal"):
        return kind, str(value)
    if kind.__eq__ is object.__eq__:
        return kind, value
    hash(value)
    if hasattr(value, "__dataclass_fields__"):
        import dataclasses  # Loading it would take a tenth of the import of this package.

        names = [field.name for field in dataclasses.fields(value) if field.compare]
    else:
        held = getattr(value, "__dict__", {})
        names = [name for name, inner in held.items() if is_plain(inner)]
    return kind, value, tuple((name, exact(getattr(value, name, None))) for name in names)


class Guard(NamedTuple):
    """A condition on the object in a place."""

    place: Place
    kind: str
    value: Any


def guard_of(place: Place, value: Any, name: str) -> Guard:
    """The guard on an object.

    Args:
        place: The place of the object.
        value: The object.
        name: The function that refers to it, for messages.

    Raises:
        InvalidArgumentError: The object may change and cannot be guarded.
    """
    if isinstance(value, Tensor):
        return Guard(place, "spec", value)
    if isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return Guard(place, "same", value)
    if is_plain(value):
        return Guard(place, "equal", value)
    if type(value) in (list, deque) and all(map(is_plain, value)):
        return Guard(place, "items", type(value)(value))
    if isinstance(value, (list, deque)):
        return Guard(place, "length", value)
    if isinstance(value, dict):
        return Guard(place, "keys", (value, list(value)))
    if isinstance(value, (set, frozenset)):
        if all(type(item) in _DISTINCT for item in value):
            return Guard(place, "contents", type(value)(value))
        return Guard(place, "exact", exact(value))
    if has_protocol(value, "__array_interface__") and has_protocol(value, "nbytes"):
        return _array_guard(place, value, name)
    if is_foreign(type(value).__module__):
        _check_foreign(place, value, name)
    is_array = has_protocol(value, "__dlpack__") and not type(value).__module__.startswith("jax")
    if is_array and not _holds_tensors(value):
        raise _refused(place, name, "an array that may be changed without notice", _AS_TENSOR)
    try:
        view = memoryview(value)
    except (TypeError, ValueError, BufferError):
        return Guard(place, "same", value)
    if view.nbytes > _MOST_BYTES:
        raise _refused(
            place, name, f"a buffer of {view.nbytes} bytes that may be changed without notice",
            _AS_TENSOR,
        )  # fmt: skip
    return Guard(place, "buffer", value)


def _holds_tensors(value: Any) -> bool:
    """Whether an array of a user's class is a node of pytrees: its contents are tensors, which are
    found as its attributes."""
    own = not is_foreign(type(value).__module__)
    return own and all(leaf is not value for leaf in tree.leaves(value))


_AS_TENSOR = "make it a tensor (girih.asarray), or pass it as an argument"


def _refused(place: Place, name: str, what: str, instead: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"compile: {name} refers to {place.path}, {what}; {instead}")


def _may_be_written(array: Any) -> bool:
    """Whether an array, or an array that it is a view of, may be written."""
    while array is not None:
        flags = getattr(array, "flags", None)
        if flags is not None and flags.writeable:
            return True
        array = getattr(array, "base", None)
    return False


def _array_guard(place: Place, value: Any, name: str) -> Guard:
    if not _may_be_written(value):
        return Guard(place, "same", value)
    if value.nbytes > _MOST_BYTES:
        raise _refused(
            place, name, f"an array of {value.nbytes} bytes that may be changed without notice",
            "make it a tensor (girih.asarray), pass it as an argument, or have it read only "
            f"({place.path}.flags.writeable = False)",
        )  # fmt: skip
    return Guard(place, "bytes", value)


def _check_foreign(place: Place, value: Any, name: str) -> None:
    """Fails for an object of the standard library or NumPy that changes when it is read."""
    kind = type(value)
    draws = any(cls.__module__ == "random" for cls in kind.__mro__)
    if draws or kind.__module__.startswith("numpy.random"):
        raise _refused(
            place, name, f"a generator of random numbers ({kind.__name__}), which would draw "
            "only when the function is traced",
            "use girih.random, or draw outside and pass the numbers as arguments",
        )  # fmt: skip
    if isinstance(value, collections.abc.Iterator) and not isinstance(value, io.IOBase):
        raise _refused(
            place, name, f"an iterator ({kind.__name__}), which would advance only when the "
            "function is traced",
            "pass the next item as an argument, or hold the items in a list",
        )  # fmt: skip


def _has_own_value(value: Any) -> bool:
    """Whether an object of a user's class has a value that is not in its attributes."""
    bases = (base for base in type(value).__mro__ if is_foreign(base.__module__))
    return any(base not in _STATELESS and not is_own(base) for base in bases)


def comparable(guard: Guard) -> Any:
    """The content of a guard, without identities of objects that the guards of their own parts
    describe."""
    value = guard.value
    if guard.kind == "spec":
        return tuple(value.shape), value.dtype.name
    if guard.kind == "equal":
        return exact(value)
    if guard.kind == "items":
        return type(value), tuple(map(exact, value))
    if guard.kind == "length":
        return type(value), len(value)
    if guard.kind == "keys":
        dict_, keys = value
        return type(dict_), tuple(exact(key) if is_plain(key) else id(key) for key in keys)
    if guard.kind == "contents":
        return type(value), frozenset(value)
    if guard.kind == "bytes":
        return value.tobytes()
    if guard.kind == "buffer":
        return memoryview(value).tobytes()
    if guard.kind == "instance":
        cls, _, absent = value
        return cls, absent
    if guard.kind == "exact":
        return value
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.CodeType):
        return value
    if isinstance(value, types.FunctionType):
        return value.__code__
    if isinstance(value, (enum.Enum, int, float, complex, str, bytes)):
        return exact(value)
    if isinstance(value, (types.ModuleType, type)) or _has_own_value(value):
        return id(value)
    return type(value)
