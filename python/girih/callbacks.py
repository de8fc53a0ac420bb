"""Callbacks: Python functions of NumPy arrays as parts of programs."""

from __future__ import annotations

import ast
import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from . import _girih, effects, tree
from ._girih import Tensor, has_protocol
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError, ShapeError
from .names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .custom import CustomOp

__all__ = ["ShapeDtypeStruct", "io_callback", "pure_callback"]

_METHODS = ("sequential", "expand_dims", "broadcast_all")

#: Callbacks that a program or a tensor holds, by their identity.
_KNOWN: WeakValueDictionary[Any, _Callback] = WeakValueDictionary()
_COUNT = itertools.count(1)


class ShapeDtypeStruct(NamedTuple):
    """Declares the shape and dtype of a result of a callback, or of an argument of a function that
    is traced and not called.

    Args:
        shape: The sizes.
        dtype: The dtype, float32 by default.

    Example:
        >>> import girih as gr
        >>> gr.ShapeDtypeStruct((2, 3), gr.int32).shape
        (2, 3)
    """

    shape: Any
    dtype: Any = _girih.float32


def _like(spec: Any, name: str) -> Tensor:
    """A tensor of a declared shape and dtype."""
    if isinstance(spec, Tensor):
        return spec
    if not has_protocol(spec, "shape") or not has_protocol(spec, "dtype"):
        raise InvalidArgumentError(
            f"{name}: a declared result is a {type(spec).__name__}; expected something with shape "
            "and dtype, such as gr.ShapeDtypeStruct(x.shape, x.dtype)"
        )
    return _girih.zeros(tuple(spec.shape), dtype=spec.dtype)


def from_specs(args: Any) -> Any:
    """A pytree of arguments with a tensor in place of each :class:`ShapeDtypeStruct`, for tracing,
    which uses nothing but its shape and dtype.
    """
    leaves, structure = tree.flatten(args, lambda node: isinstance(node, ShapeDtypeStruct))
    if not any(isinstance(leaf, ShapeDtypeStruct) for leaf in leaves):
        return args
    return tree.unflatten(
        structure,
        [_like(leaf, "") if isinstance(leaf, ShapeDtypeStruct) else leaf for leaf in leaves],
    )


def _specs(declared: Any) -> tuple[list[Any], tree.TreeDef]:
    """The leaves of the declared results, and their structure."""
    return tree.flatten(
        declared, lambda node: has_protocol(node, "shape") and has_protocol(node, "dtype")
    )


def _numpy(name: str) -> Any:
    try:
        import numpy as np
    except ImportError:
        raise InvalidArgumentError(
            f"{name}: callbacks take NumPy arrays; install numpy to call them"
        ) from None
    return np


def _dtype(np: Any, name: str) -> Any:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise DTypeError(
            "NumPy has no bfloat16; convert to float32 before the callback, or install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


class _Callback:
    """A Python function in the form that programs call: operands and results are bytes."""

    def __init__(
        self,
        fun: Callable[..., Any],
        name: str,
        structure: tree.TreeDef,
        static: Sequence[Any],
        results: tree.TreeDef,
        effect: bool,
    ) -> None:
        self._fun = fun
        self._name = name
        self._structure = structure
        #: The leaves that are not operands; ``_OPERAND`` in the place of each operand.
        self._static = list(static)
        self._results = results
        self._effect = effect
        #: The batching rule of an op, if it has one.
        self.rule: Callable[..., Any] | None = None
        self.identity = next(_COUNT)

    def __call__(
        self, given: list[tuple[bytes, tuple[Any, str]]], wanted: list[tuple[Any, str]]
    ) -> list[bytes]:
        np = _numpy(self._name)
        arrays = (
            np.frombuffer(data, _dtype(np, dtype)).reshape(shape) for data, (shape, dtype) in given
        )
        leaves = [next(arrays) if leaf is _OPERAND else leaf for leaf in self._static]
        args, kwargs = tree.unflatten(self._structure, leaves)
        found = self._fun(*args, **kwargs)
        if not self._effect:
            return self._bytes(np, found, wanted)
        *wanted, (shape, _) = wanted
        token = bytes(functools.reduce(lambda a, b: a * b, shape, 1))
        if not wanted:
            return [token]
        return [*self._bytes(np, found, wanted), token]

    def batch(self, body: Any, stand_ins: list[Tensor], marks: list[bool], size: Any) -> list[bool]:
        """Records the batched op by its rule; returns which results have the batch axis."""
        assert self.rule is not None
        operands, batched = iter(stand_ins), iter(marks)
        is_operand = [leaf is _OPERAND for leaf in self._static]
        leaves = [
            next(operands) if own else leaf
            for leaf, own in zip(self._static, is_operand, strict=True)
        ]
        args, _ = tree.unflatten(self._structure, leaves)
        flags, _ = tree.unflatten(self._structure, [own and next(batched) for own in is_operand])
        with effects.collected(self.rule, args) as frame:
            given = self.rule(size, list(flags), *args)
        rule = f"the batching rule of {self._name}"
        frame.stored.refuse(rule, "which depends on its arguments only")
        if frame.tokens:
            raise InvalidArgumentError(
                f"{rule} calls back with an effect (io_callback, debug.print, debug.check); "
                "call back outside of it"
            )
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise InvalidArgumentError(
                f"{rule} must return a pair, the results and which have the batch, got "
                f"{type(given).__name__}"
            )
        result, out_batched = given
        leaves, structure = tree.flatten(result)
        if structure != self._results:
            raise InvalidArgumentError(f"{rule} returned {structure}; the op gives {self._results}")
        marked = tree.spread(out_batched, result, lambda value: isinstance(value, bool))
        if marked is None or not all(isinstance(mark, bool) for mark in marked):
            raise InvalidArgumentError(
                f"{rule} says that results {out_batched!r} have the batch; expected a bool, or a "
                f"pytree of bools like the results, {structure}"
            )
        body.set_outputs(leaves)
        return marked

    def _bytes(self, np: Any, found: Any, wanted: list[tuple[Any, str]]) -> list[bytes]:
        leaves, structure = tree.flatten(found)
        if structure != self._results:
            raise InvalidArgumentError(
                f"callback {self._name} returned {structure}; it declares {self._results}"
            )
        pairs = zip(leaves, wanted, strict=True)
        return [self._fitting(np, leaf, shape, dtype) for leaf, (shape, dtype) in pairs]

    def _fitting(self, np: Any, leaf: Any, shape: tuple[int, ...], dtype: str) -> bytes:
        expected = _dtype(np, dtype)
        number = isinstance(leaf, (bool, int, float, complex)) and not has_protocol(leaf, "dtype")
        array = np.asarray(leaf, dtype=expected) if number else np.asarray(leaf)
        declared = f"{dtype}{list(shape)}"
        returned = f"{array.dtype.name}{list(array.shape)}"
        message = f"callback {self._name} returned {returned}; it declares {declared}"
        if array.shape != tuple(shape):
            raise ShapeError(message)
        if array.dtype != expected:
            raise DTypeError(message)
        return array.tobytes()  # type: ignore[no-any-return]


class _Operand:
    """The type of the placeholder of an operand among the leaves of arguments."""


_OPERAND = _Operand()


def _identity(fun: Any) -> Any:
    """The identity by which a function equals another living function."""
    inner = getattr(fun, "__func__", None)
    return id(fun) if inner is None else (id(inner), id(fun.__self__))


def _interned(fun: Any, *parts: Any) -> _Callback:
    """The callback of a function and its settings; reuses the existing callback while it is
    alive."""
    name, structure, static, results, effect = parts
    others = tuple((type(s), s) for s in static if s is not _OPERAND)
    marks = tuple(s is _OPERAND for s in static)
    key = (_identity(fun), name, structure, marks, others, results, effect)
    try:
        known = _KNOWN.get(key)
    except TypeError:  # An argument is not hashable.
        return _Callback(fun, *parts)
    if known is None:
        known = _KNOWN[key] = _Callback(fun, *parts)
    return known


def _operands(args: Any) -> tuple[list[Tensor], list[Any], tree.TreeDef]:
    """The tensors of a tree, and its leaves with :data:`_OPERAND` in place of the tensors."""
    leaves, structure = tree.flatten(args)
    tensors: list[Tensor] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) or has_protocol(leaf, "__array__"):
            tensors.append(leaf if isinstance(leaf, Tensor) else _girih.asarray(leaf))
            leaves[i] = _OPERAND
        elif isinstance(leaf, (_girih.SymbolicDim, _girih.SymbolicFloat)):
            tensors.append(_girih.asarray(leaf))
            leaves[i] = _OPERAND
    if not tensors:  # An op needs at least one operand.
        tensors.append(_girih.zeros([], dtype=_girih.uint8))
    return tensors, leaves, structure


def _checked_method(what: str, method: str | None) -> str:
    if method is None:
        return "none"
    if method not in _METHODS:
        raise InvalidArgumentError(
            f"{what}: vmap_method must be one of {', '.join(map(repr, _METHODS))} or None, got "
            f"{method!r}"
        )
    return method


def pure_callback(
    callback: Callable[..., Any],
    result_spec: Any,
    *args: Any,
    vmap_method: str | None = "sequential",
    **kwargs: Any,
) -> Any:
    """Calls a Python function of NumPy arrays when the program runs.

    The function must have no side effects: depending on which values are needed, it is called once,
    several times or never. It receives an array for each tensor, which it must not change, and
    other arguments unchanged. It may run on any thread, and must not evaluate tensors.

    Args:
        callback: Called with the arguments; returns arrays of the declared shapes and dtypes.
        result_spec: A pytree of objects with a shape and a dtype: ``ShapeDtypeStruct``, tensors.
        args: Pytrees of tensors, and other objects.
        vmap_method: How ``vmap`` batches the call: ``"sequential"`` calls the function for each
            member of the batch, ``"expand_dims"`` once with a leading axis, which has size one for
            arguments that are the same for all members, ``"broadcast_all"`` once with the batch as
            leading axis of all arguments. With None, batching is an error.
        kwargs: As ``args``.

    Returns:
        A pytree of tensors like ``result_spec``.

    Raises:
        InvalidArgumentError: A result is declared by an object without shape or dtype.
        ShapeError: When the program runs, an array does not have the declared shape.
        DTypeError: When the program runs, an array does not have the declared dtype. The evaluation
            raises exceptions of the function unchanged.

    Example:
        >>> import girih as gr, numpy as np
        >>> x = gr.asarray([3.0, 1.0, 2.0])
        >>> gr.pure_callback(np.sort, gr.ShapeDtypeStruct(x.shape, x.dtype), x).tolist()
        [1.0, 2.0, 3.0]
    """
    method = _checked_method("pure_callback", vmap_method)
    return _called(callback, result_spec, args, kwargs, method)


def _called(
    fun: Callable[..., Any],
    declared: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    method: str,
    op: CustomOp | None = None,
) -> Any:
    tensors, leaves, structure = _operands((args, kwargs))
    specs, results = _specs(declared)
    text = name_of(fun) if op is None else op.name
    likes = [_like(spec, text) for spec in specs]
    if not likes:
        raise InvalidArgumentError(
            f"{text}: declares no results, so that it would never be called; use io_callback"
        )
    call: Any = _interned(fun, text, structure, leaves, results, False)
    version, identity, settings = 1, call.identity, ""
    if op is not None:
        call.rule, method = op.rule, method if op.rule is None else "rule"
        version, settings = op.version, _settings(structure, leaves, results)
        identity = op.identity if settings else identity
    outputs = _girih.host_call(
        call, _safe(text), version, identity, settings, tensors, likes, method, False
    )
    return tree.unflatten(results, outputs)


def _written(value: Any) -> str | None:
    """A value as a literal that Python can parse, with an ellipsis for a tensor; None for other
    types."""
    if value is ...:
        return "..."
    if value is None or type(value) in (bool, int, str, bytes):
        return repr(value)
    if type(value) is float:
        return repr(value) if value - value == 0 else None
    if type(value) is dict:
        pairs = [(_written(key), _written(part)) for key, part in value.items()]
        if any(None in pair for pair in pairs):
            return None
        return f"{{{', '.join(f'{key}: {part}' for key, part in pairs)}}}"
    if type(value) not in (tuple, list):
        return None
    parts = [_written(part) for part in value]
    if None in parts:
        return None
    inside = "".join(f"{part}, " for part in parts)
    return f"({inside})" if type(value) is tuple else f"[{inside}]"


def _settings(structure: tree.TreeDef, leaves: list[Any], results: tree.TreeDef) -> str:
    """The call of an op for files: its arguments and results, with an ellipsis for each tensor;
    empty if a file cannot hold an argument.
    """
    if any(leaf is ... for leaf in leaves):
        return ""
    given = tree.unflatten(structure, [... if leaf is _OPERAND else leaf for leaf in leaves])
    text = _written((given, tree.unflatten(results, [...] * results.num_leaves)))
    return "" if text is None else text.encode().hex()


def restored(op: CustomOp, fun: Callable[..., Any], settings: str) -> Any:
    """The callback of a call in a file, from the text that :func:`_settings` wrote."""
    given, gives = ast.literal_eval(bytes.fromhex(settings).decode())
    leaves, structure = tree.flatten(given)
    leaves = [_OPERAND if leaf is ... else leaf for leaf in leaves]
    call = _Callback(fun, op.name, structure, leaves, tree.structure(gives), False)
    call.rule = op.rule
    return call


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_.:-/" else "_" for c in name) or "callback"


def io_callback(
    callback: Callable[..., Any],
    result_spec: Any,
    *args: Any,
    ordered: bool = False,
    vmap_method: str | None = "sequential",
    **kwargs: Any,
) -> Any:
    """Calls a Python function with an effect each time that the program runs.

    In a compiled or transformed function the call is part of the program even if nothing reads its
    results, and equal calls are not merged. Outside of such a function it runs immediately.

    Args:
        callback: Called with NumPy arrays; returns arrays of the declared shapes and dtypes.
        result_spec: A pytree of objects with a shape and a dtype; None for no results.
        args: Pytrees of tensors, and other objects.
        ordered: Whether the call waits for the ordered calls recorded before it.
        vmap_method: As for :func:`pure_callback`.
        kwargs: As ``args``.

    Returns:
        A pytree of tensors like ``result_spec``.

    Raises:
        InvalidArgumentError: As for :func:`pure_callback`.

    Example:
        >>> import girih as gr
        >>> seen = []
        >>> see = lambda v: seen.append(v.item())
        >>> f = gr.compile(lambda x: (gr.io_callback(see, None, x), x)[1])
        >>> _ = f(gr.asarray(1.5)).item(), f(gr.asarray(2.5)).item()
        >>> seen
        [1.5, 2.5]
    """
    method = _checked_method("io_callback", vmap_method)
    tensors, leaves, structure = _operands((args, kwargs))
    specs, results = _specs(result_spec)
    text = name_of(callback)
    token = _girih.zeros([], dtype=_girih.uint8)
    likes = [*(_like(spec, text) for spec in specs), token]
    before = effects.last_ordered() if ordered else None
    call: Any = _interned(callback, text, structure, leaves, results, True)
    number = effects.number(call.identity)
    if before is not None:
        tensors.append(before)
    elif number:
        # A further operand, which the function does not get, tells equal calls apart.
        tensors.append(_girih.zeros([number], dtype=_girih.uint8))
    *outputs, token = _girih.host_call(
        call, _safe(text), 1, call.identity, "", tensors, likes, method, True
    )
    effects.emit([token], outputs, ordered)
    return tree.unflatten(results, outputs)


explain_public(globals())
