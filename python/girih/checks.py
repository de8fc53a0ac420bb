"""Checks arguments of this package's classes and functions against their annotations.

Constructors check before they run: a size that is a text, a number that is an array or a flag that
is a list is an error that names the argument. Functions and layers check after a failure, so that a
call has no overhead: an error of Python's own, such as ``AttributeError``, becomes one that names
the argument that does not fit. The first check imports the modules that read annotations, which
would take a quarter of the time of importing this package.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Mapping
from itertools import islice
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import _girih
from ._girih import SymbolicDim, SymbolicFloat, Tensor, has_protocol
from .errors import DTypeError, GirihError, InvalidArgumentError, OutOfMemoryError

if TYPE_CHECKING:
    import ast
    import inspect
    from collections.abc import Callable
    from typing import TypeGuard

__all__ = [
    "FAILURES",
    "check_arguments",
    "check_constructor",
    "check_eps",
    "explain",
    "explain_methods",
    "explain_public",
    "items",
    "unexplained",
]

T = TypeVar("T")

#: The maximum number of entries of an argument with one entry per axis.
_FEW = 64
#: Special methods of public classes whose failures name method and argument, as other methods do.
_ITEMS = ("__getitem__", "__setitem__", "__delitem__")
#: Errors of Python's own that an argument of a wrong type causes.
FAILURES = (
    TypeError, AttributeError, ValueError, LookupError, ArithmeticError, MemoryError
)  # fmt: skip


class _Kind(NamedTuple):
    """What an annotation accepts: its text, and a test. The test raises an error for a value of the
    right type that is out of range."""

    text: str
    accepts: Callable[[Any], bool]


def items(values: Any) -> list[Any]:
    """The items of an iterable, by the reader of all sequences: it stops at a limit and at signals.

    Raises:
        DTypeError: The object is not iterable.
        InvalidArgumentError: There are more than 2**18 items.
    """
    return _girih.items_of(values)


def _is_scalar(value: Any) -> bool:
    """Whether a number of some library is one number, not an array of several."""
    return not has_protocol(value, "shape") or tuple(value.shape) == ()


def _is_int(value: Any) -> bool:
    if isinstance(value, SymbolicDim):
        return True
    if not isinstance(value, int):
        if not has_protocol(value, "__index__") or not _is_scalar(value):
            return False
        try:
            value = operator.index(value)
        except TypeError:
            return False
    if not -(2**63) <= value < 2**63:
        raise InvalidArgumentError(f"the integer {value} does not fit in 64 bits")
    return True


def _is_float(value: Any) -> bool:
    if isinstance(value, (float, SymbolicDim, SymbolicFloat)):
        return True
    if isinstance(value, int):
        try:
            float(value)
        except OverflowError:
            raise InvalidArgumentError(f"the number {value} does not fit float64") from None
        return True
    return has_protocol(value, "__float__") and _is_scalar(value)


def _is_bool(value: Any) -> bool:
    if isinstance(value, int):
        return value in (0, 1)
    return type(value).__name__ in ("bool", "bool_")


def _is_tensor(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    return has_protocol(value, "__array_interface__") or has_protocol(value, "__dlpack__")


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes)) or has_protocol(value, "__fspath__")


def _is_file(value: Any) -> bool:
    return _is_path(value) or has_protocol(value, "read") or has_protocol(value, "write")


_INT = _Kind("an int", _is_int)
_PLAIN = {
    "int": _INT,
    "float": _Kind("a number", _is_float),
    "bool": _Kind("True or False", _is_bool),
    "str": _Kind("a str", lambda value: isinstance(value, str)),
    "slice": _Kind("a slice", lambda value: isinstance(value, slice)),
    "None": _Kind("None", lambda value: value is None),
    "Tensor": _Kind("a tensor", _is_tensor),
    "Callable": _Kind("a function", callable),
    "TextIO": _Kind("a file", lambda value: has_protocol(value, "write")),
    "Mapping": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "dict": _Kind("a dict", lambda value: isinstance(value, Mapping)),
    "Iterable": _Kind("an iterable", lambda value: has_protocol(value, "__iter__")),
    "type": _Kind("a class", lambda value: isinstance(value, type)),
    "_Path": _Kind("the path of a file", _is_path),
    "_File": _Kind("the path of a file or a file object", _is_file),
    "Module": _Kind("a module", callable),
    "Schedule": _Kind("a function", lambda value: callable(value) or isinstance(value, Tensor)),
}


def _sequence(of: _Kind) -> _Kind:
    def accepts(value: Any) -> bool:
        if isinstance(value, (str, bytes)) or not has_protocol(value, "__len__"):
            return False
        if not has_protocol(value, "__iter__"):
            return False
        found = list(islice(iter(value), _FEW + 1))
        if len(found) > _FEW:
            raise InvalidArgumentError(f"a sequence has more than {_FEW} entries")
        return all(map(of.accepts, found))

    return _Kind(f"a sequence of {of.text.removeprefix('an ').removeprefix('a ')}s", accepts)


def _union(parts: list[_Kind]) -> _Kind:
    text = " or ".join(part.text for part in parts)
    return _Kind(text, lambda value: any(part.accepts(value) for part in parts))


def _tuple(parts: list[_Kind]) -> _Kind:
    def accepts(value: Any) -> bool:
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            return False
        return all(part.accepts(item) for part, item in zip(parts, value, strict=True))

    return _Kind(f"({', '.join(part.text for part in parts)})", accepts)


def _one_of(values: list[Any]) -> _Kind:
    text = " or ".join(map(repr, values))
    return _Kind(text, lambda value: isinstance(value, (str, int, type(None))) and value in values)


def _kind_of(node: ast.expr, names: dict[str, Any]) -> _Kind | None:
    """The kind of an annotation; None for one that is not checked. Names of classes are looked up
    among ``names``.
    """
    import ast

    if isinstance(node, ast.Constant):
        return _PLAIN["None"] if node.value is None else None
    if isinstance(node, ast.Name):
        if node.id == "_Sizes":
            return _union([_INT, _sequence(_INT)])
        if node.id == "_Reduction":
            return _PLAIN["str"]
        cls = None if node.id in _PLAIN else _class(node.id, names)
        if cls is not None:
            article = "an" if node.id[0] in "AEIOU" else "a"
            return _Kind(f"{article} {node.id}", lambda value: isinstance(value, cls))
        return _PLAIN.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [_kind_of(node.left, names), _kind_of(node.right, names)]
        known = [part for part in parts if part is not None]
        return _union(known) if len(known) == len(parts) else None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        return _PLAIN["_Path"] if node.value.attr == "PathLike" else None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _generic(node.value.id, node.slice, names)
    return None


def _class(name: str, names: dict[str, Any]) -> type | None:
    """A class of this package by its name in a module, which may import it for annotations only."""
    if not names:
        return None
    modules = (sys.modules.get(f"{__package__}{part}") for part in ("", ".optim"))
    for space in (names, vars(_girih), *map(vars, filter(None, modules))):
        cls = space.get(name)
        if isinstance(cls, type) and cls.__module__.partition(".")[0] == __package__:
            return cls
    return None


def _generic(name: str, of: ast.expr, names: dict[str, Any]) -> _Kind | None:
    import ast

    within = list(of.elts) if isinstance(of, ast.Tuple) else [of]
    if name in ("Callable", "Mapping", "type", "dict", "Iterable"):
        return _PLAIN[name]
    if name == "Literal":
        return _one_of([value.value for value in within if isinstance(value, ast.Constant)])
    parts = [_kind_of(part, names) for part in within]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts):
        return None
    if name == "Sequence":
        return _sequence(known[0])
    return _tuple(known) if name == "tuple" else None


def _parsed(annotation: Any, names: dict[str, Any]) -> _Kind | None:
    if not isinstance(annotation, str):
        return None
    import ast

    try:
        return _kind_of(ast.parse(annotation, mode="eval").body, names)
    except SyntaxError:
        return None


@functools.lru_cache(maxsize=1024)
def _kind(annotation: Any) -> _Kind | None:
    return _parsed(annotation, {})


@functools.lru_cache(maxsize=4096)
def _signature(function: Any) -> inspect.Signature | None:
    import inspect

    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def check_arguments(
    name: str,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: dict[str, Any] | None = None,
) -> None:
    """Raises an error for the first argument that does not fit its annotation.

    Args:
        name: The name of the function, for the message.
        function: The function.
        args: The positional arguments.
        kwargs: The other arguments.
        names: The globals of the function's module, to check for classes as well.

    Raises:
        DTypeError: An argument has another type.
        InvalidArgumentError: A value is out of range, or is not one of those allowed.
    """
    signature = _signature(function)
    if signature is None:
        return
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # The call itself says which arguments are missing.
        return
    for argument, value in bound.arguments.items():
        parameter = signature.parameters[argument]
        given = parameter.annotation
        kind = _kind(given) if names is None else _parsed(given, names)
        if kind is None or value is parameter.default:
            continue
        many = parameter.kind is parameter.VAR_POSITIONAL
        for one in value if many else (value,):
            _check(name, argument, kind, one)


def _check(name: str, argument: str, kind: _Kind, value: Any) -> None:
    try:
        fits = kind.accepts(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {argument}: {error}") from None
    if not fits:
        found = repr(value) if isinstance(value, (bool, int, float, str)) else _described(value)
        chosen = isinstance(value, str) and "'" in kind.text
        wrong: type[GirihError] = InvalidArgumentError if chosen else DTypeError
        raise wrong(f"{name}: {argument} must be {kind.text}, got {found}")


def _described(value: Any) -> str:
    if value is None:
        return "None"
    shape = f" of shape {list(value.shape)}" if has_protocol(value, "shape") else ""
    return f"a {type(value).__name__}{shape}"


def check_eps(module: object, eps: float) -> float:
    """The number that a norm adds to variances, whose root must exist.

    Raises:
        InvalidArgumentError: The number is negative or NaN.
    """
    if not eps >= 0:
        raise InvalidArgumentError(f"{type(module).__name__}: eps must not be negative, got {eps}")
    return eps


def check_constructor(cls: type[T]) -> type[T]:
    """Makes the constructor of a class of this package check its arguments before it runs, and the
    methods explain their failures."""
    if cls.__module__.partition(".")[0] != __package__:
        return cls
    explain_methods(cls)
    init = cls.__dict__.get("__init__")
    if init is None:
        return cls

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        check_arguments(name, init, (self, *args), kwargs)
        try:
            init(self, *args, **kwargs)
        except FAILURES as error:
            explain(error, name, init, (self, *args), kwargs)
            raise

    cls.__init__ = checked  # type: ignore[method-assign]
    return cls


def explain(
    error: BaseException, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raises an error that names the argument that does not fit, if an argument of a function of
    this package has caused a failure of Python's own.
    """
    if isinstance(error, GirihError):
        return
    try:
        check_arguments(name, function, args, kwargs, vars(sys.modules[function.__module__]))
    except GirihError as found:
        raise found from error
    if isinstance(error, MemoryError):
        raise OutOfMemoryError(f"{name}: there is not enough memory for an argument") from error


def explain_public(namespace: dict[str, Any]) -> None:
    """Makes the failures of the public functions of a module, and of the methods of its public
    classes, name the argument that does not fit.

    Call it at the end of a module, with the module's globals.
    """
    for name in namespace["__all__"]:
        value = namespace.get(name)
        if isinstance(value, type) and value.__module__ == namespace["__name__"]:
            explain_methods(value)
        elif _can_explain(value) and value.__module__.startswith("girih"):
            namespace[name] = _explained(value)


def explain_methods(cls: type[T]) -> type[T]:
    """Makes the failures of the public methods that a class defines, and of its setters, name the
    argument that does not fit.

    ``forward`` is left as it is: the call of the module explains its failures.
    """
    for name, value in list(vars(cls).items()):
        if name == "forward" or (name.startswith("_") and name not in _ITEMS):
            continue
        if _can_explain(value):
            setattr(cls, name, _explained(value, is_method=True))
        elif isinstance(value, property) and _can_explain(value.fset):
            setattr(cls, name, value.setter(_explained(value.fset, is_method=True)))
    return cls


def _can_explain(value: Any) -> TypeGuard[FunctionType]:
    return isinstance(value, FunctionType) and not hasattr(value, "_is_explained")


def unexplained(function: FunctionType) -> FunctionType:
    """The function that a public function of this package runs; any other function itself. For
    visitors of what functions refer to."""
    inner: FunctionType = getattr(function, "__wrapped__", function)
    return inner if "_is_explained" in vars(function) else function


def _explained(function: FunctionType, is_method: bool = False) -> FunctionType:
    failures, explained, name = FAILURES, explain, function.__name__

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except failures as error:
            cls = f"{type(args[0]).__name__}." if is_method and args else ""
            explained(error, cls + name, function, args, kwargs)
            raise

    # With the globals of the function's module, so that its examples are found, and with its name,
    # which errors of the extension begin with.
    names: dict[str, Any] = {"co_name": name}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    code = wrapper.__code__.replace(co_filename=function.__code__.co_filename, **names)
    made = FunctionType(code, function.__globals__, name, None, wrapper.__closure__)
    made._is_explained = True  # type: ignore[attr-defined]
    return functools.wraps(function)(made)  # type: ignore[return-value]
