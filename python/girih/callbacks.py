"""Callbacks: Python functions of NumPy arrays as parts of programs, and ops made of them."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from . import _girih, effects, tree
from ._girih import Tensor
from .errors import DTypeError, InvalidArgumentError, ShapeError
from .rules import _DEPTH, _ORDERS, custom_jvp, custom_vjp
from .transforms import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CustomOp", "ShapeDtypeStruct", "custom_op", "io_callback", "pure_callback"]

_METHODS = ("sequential", "expand_dims", "broadcast_all")

#: Callbacks that a program or a tensor holds, by what makes them the same.
_KNOWN: WeakValueDictionary[Any, _Callback] = WeakValueDictionary()
_COUNT = itertools.count(1)


class ShapeDtypeStruct(NamedTuple):
    """Shape and dtype of a result that a callback declares.

    Args:
        shape: The sizes.
        dtype: The dtype, float32 if it is not given.

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
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise InvalidArgumentError(
            f"{name}: a declared result is a {type(spec).__name__}; expected something with shape "
            "and dtype, such as gr.ShapeDtypeStruct(x.shape, x.dtype)"
        )
    return _girih.zeros(tuple(spec.shape), dtype=spec.dtype)


def _is_spec(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _specs(declared: Any) -> tuple[list[Any], tree.TreeDef]:
    """The declared results, each a leaf, and their structure."""
    if declared is None:
        return [], tree.structure(None)
    leaves: list[Any] = []

    def boxed(value: Any) -> Any:
        if _is_spec(value):
            leaves.append(value)
            return len(leaves) - 1
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            return type(value)(boxed(v) for v in value)
        if isinstance(value, dict):
            return {key: boxed(v) for key, v in value.items()}
        leaves.append(value)
        return len(leaves) - 1

    numbers, structure = tree.flatten(boxed(declared))
    return [leaves[i] for i in numbers], structure


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
        import ml_dtypes  # type: ignore[import-not-found]
    except ImportError:
        raise DTypeError(
            "NumPy has no bfloat16; convert to float32 before the callback, or install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


class _Callback:
    """A Python function as programs call it: operands and results are bytes."""

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
        #: What is no operand; ``_OPERAND`` where an operand goes.
        self._static = list(static)
        self._results = results
        self._effect = effect
        #: The batching rule of an op that has one.
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
        """Records the op on a batch, by its rule: which results have the batch."""
        assert self.rule is not None
        operands, batched = iter(stand_ins), iter(marks)
        is_operand = [leaf is _OPERAND for leaf in self._static]
        leaves = [
            next(operands) if own else leaf
            for leaf, own in zip(self._static, is_operand, strict=True)
        ]
        args, _ = tree.unflatten(self._structure, leaves)
        flags, _ = tree.unflatten(self._structure, [own and next(batched) for own in is_operand])
        with effects.collected() as frame:
            given = self.rule(size, list(flags), *args)
        rule = f"the batching rule of {self._name}"
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
        number = isinstance(leaf, (bool, int, float, complex)) and not hasattr(leaf, "dtype")
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
    """The type of what stands for an operand among the leaves of arguments."""


_OPERAND = _Operand()


def _identity(fun: Any) -> Any:
    """What makes a function the same as another one that is alive."""
    inner = getattr(fun, "__func__", None)
    return id(fun) if inner is None else (id(inner), id(fun.__self__))


def _interned(fun: Any, *parts: Any) -> _Callback:
    """The callback of a function and its settings: the same as before while that is in use."""
    name, structure, static, results, effect = parts
    others = tuple((type(s), s) for s in static if s is not _OPERAND)
    marks = tuple(s is _OPERAND for s in static)
    key = (_identity(fun), name, structure, marks, others, results, effect)
    try:
        known = _KNOWN.get(key)
    except TypeError:  # An argument that has no hash.
        return _Callback(fun, *parts)
    if known is None:
        known = _KNOWN[key] = _Callback(fun, *parts)
    return known


def _operands(args: Any) -> tuple[list[Tensor], list[Any], tree.TreeDef]:
    """Tensors of a tree, and its leaves with :data:`_OPERAND` in their places."""
    leaves, structure = tree.flatten(args)
    tensors: list[Tensor] = []
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor) or hasattr(leaf, "__array__"):
            tensors.append(leaf if isinstance(leaf, Tensor) else _girih.asarray(leaf))
            leaves[i] = _OPERAND
        elif isinstance(leaf, (_girih.SymbolicDim, _girih.SymbolicFloat)):
            tensors.append(_girih.asarray(leaf))
            leaves[i] = _OPERAND
    if not tensors:  # An op has an operand.
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
    """The results of a Python function of NumPy arrays, called when the program runs.

    The function must have no effect: it is called as often as values are needed, once, several
    times or never. It takes an array for each tensor, which it must not change, and everything
    else as it is. It may run on any thread, and must not evaluate tensors itself.

    Args:
        callback: Called with the arguments; returns arrays of the declared shapes and dtypes.
        result_spec: A pytree of what has a shape and a dtype: ``ShapeDtypeStruct``, tensors.
        args: Pytrees of tensors, and anything else.
        vmap_method: What ``vmap`` makes of the call: ``"sequential"`` calls the function for each
            member of the batch, ``"expand_dims"`` once with leading axes, of size one for what is
            the same for all members, ``"broadcast_all"`` once with the batch as leading axis of all
            arguments. None refuses.
        kwargs: As ``args``.

    Returns:
        A pytree of tensors like ``result_spec``.

    Raises:
        InvalidArgumentError: A result that is declared by something without shape or dtype.
        ShapeError: When the program runs: an array of another shape than declared.
        DTypeError: When the program runs: an array of another dtype than declared. Exceptions of
            the function itself reach whoever evaluates.

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
    name: tuple[str, int] | None = None,
    rule: Callable[..., Any] | None = None,
) -> Any:
    tensors, leaves, structure = _operands((args, kwargs))
    specs, results = _specs(declared)
    text = name_of(fun) if name is None else name[0]
    likes = [_like(spec, text) for spec in specs]
    if not likes:
        raise InvalidArgumentError(
            f"{text}: declares no results, so that it would never be called; use io_callback"
        )
    call: Any = _interned(fun, text, structure, leaves, results, False)
    call.rule, method = rule, method if rule is None else "rule"
    outputs = _girih.host_call(call, _safe(text), 1, call.identity, tensors, likes, method, False)
    return tree.unflatten(results, outputs)


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
    """The results of a Python function with an effect, called each time that the program runs.

    In a function that is compiled or transformed the call is part of the program, also if nothing
    reads its results; equal calls are not merged. Outside of such a function it runs at once.

    Args:
        callback: Called with NumPy arrays; returns arrays of the declared shapes and dtypes.
        result_spec: A pytree of what has a shape and a dtype; None for no results.
        args: Pytrees of tensors, and anything else.
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
    if before is not None:
        tensors.append(before)
    call: Any = _interned(callback, text, structure, leaves, results, True)
    *outputs, token = _girih.host_call(
        call, _safe(text), 1, call.identity, tensors, likes, method, True
    )
    effects.emit([token], outputs, ordered)
    return tree.unflatten(results, outputs)


class CustomOp:
    """An op made of a Python function of NumPy arrays: what :func:`custom_op` gives.

    Attributes:
        name: Of the op, in graphs and messages.
        version: Part of the op's identity.

    Args:
        fun: The kernel: takes and returns arrays.
        name: Of the op, in graphs and messages.
        version: Part of the op's identity.
        shape: The shape rule; None for one that :meth:`def_shape` sets.
        method: How the op takes a batch: a ``vmap_method``, or ``"none"``.
    """

    def __init__(
        self, fun: Callable[..., Any], name: str, version: int, shape: Any, method: str
    ) -> None:
        functools.update_wrapper(self, fun)
        self.name = name
        self.version = version
        self._fun = fun
        self._shape = shape
        self._method = method
        self._ruled: Any = None
        self._batched: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<custom op {self.name} version {self.version}>"

    def __call__(self, *args: Any) -> Any:
        """The results at pytrees of tensors."""
        depth = _DEPTH.get()
        within = depth.get(id(self), 0)
        if self._ruled is None or within >= _ORDERS:
            return self._recorded(*args)
        token = _DEPTH.set({**depth, id(self): within + 1})
        try:
            return self._ruled(*args)
        finally:
            _DEPTH.reset(token)

    def _recorded(self, *args: Any) -> Any:
        def spec(leaf: Any) -> Any:
            return ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf

        if self._shape is None:
            raise InvalidArgumentError(
                f"custom op {self.name} has no shape rule; give it one with "
                "@custom_op(shape=...) or .def_shape"
            )
        leaves, structure = tree.flatten(args)
        args = tree.unflatten(
            structure,
            [_girih.asarray(x) if isinstance(x, float) or hasattr(x, "__array__") else x
             for x in leaves],
        )  # fmt: skip
        declared = self._shape(*tree.unflatten(structure, [spec(x) for x in tree.leaves(args)]))
        name = (self.name, self.version)
        return _called(self._fun, declared, args, {}, self._method, name, self._batched)

    def def_shape(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the shape rule: takes the arguments, with a ``ShapeDtypeStruct`` for each tensor,
        and returns a pytree of such for the results.

        Args:
            rule: The shape rule.
        """
        self._shape = rule
        return rule

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the batching rule, which ``vmap`` records in place of the op; it comes before
        ``vmap_method``. Also a decorator.

        Args:
            rule: Takes the size of the batch, a list that says for each argument whether it has the
                batch (a pytree of bools, like the argument), and the arguments; those with the
                batch have it as their leading axis. It returns the results and which of them have
                the batch, as their leading axis too: a bool, or a pytree of bools like the results.
                It is a function of its arguments alone, and may call the op.

        Returns:
            ``rule``.

        Example:
            >>> import girih as gr, numpy as np
            >>> @gr.custom_op(shape=lambda x: x)
            ... def ordered(x):
            ...     return np.sort(x)
            >>> @ordered.def_vmap
            ... def rule(axis_size, in_batched, x):
            ...     return gr.sort(x), in_batched[0]
            >>> gr.vmap(ordered)(gr.asarray([[2.0, 1.0], [3.0, 0.0]])).tolist()
            [[1.0, 2.0], [0.0, 3.0]]
        """
        self._batched = rule
        return rule

    def def_vjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Sets the reverse-mode rule.

        Args:
            fwd: Takes the arguments; returns ``(result, residuals)``. It may call the op.
            bwd: Takes ``(residuals, cotangent)``; returns a cotangent for each argument.
        """
        ruled = custom_vjp(self._recorded)
        ruled.defvjp(fwd, bwd)
        self._ruled = ruled

    def def_jvp(self, rule: Callable[..., Any]) -> None:
        """Sets the forward-mode rule, from which reverse mode follows.

        Args:
            rule: Takes ``(primals, tangents)``; returns ``(result, tangent)``. It may call the op.
        """
        ruled = custom_jvp(self._recorded)
        ruled.defjvp(rule)
        self._ruled = ruled


def custom_op(
    fun: Any = None,
    *,
    name: str | None = None,
    shape: Callable[..., Any] | None = None,
    version: int = 1,
    vmap_method: str | None = "sequential",
) -> Any:
    """A decorator: an op whose kernel is a Python function of NumPy arrays.

    Graphs record the op like any other: it is compiled, batched by ``vmap``, and differentiated by
    the rule that ``def_vjp`` or ``def_jvp`` sets. Without such a rule a derivative of the op is an
    error, where one is taken.

    Args:
        fun: Takes arrays; returns arrays of the shapes and dtypes that ``shape`` gives. It must
            have no effect.
        name: The op's name; by default the function's.
        shape: The shape rule: takes the arguments, with a ``ShapeDtypeStruct`` for each tensor, and
            returns a pytree of such for the results.
        version: Another one for another meaning of the same name.
        vmap_method: As for :func:`pure_callback`.

    Returns:
        The op, or a decorator.

    Raises:
        InvalidArgumentError: A name or version that no op can have.

    Example:
        >>> import girih as gr, numpy as np
        >>> @gr.custom_op(shape=lambda x: x)
        ... def cube(x):
        ...     return x**3
        >>> cube.def_vjp(lambda x: (cube(x), x), lambda x, ct: (3 * x * x * ct,))
        >>> gr.grad(lambda x: cube(x).sum())(gr.asarray([1.0, 2.0])).tolist()
        [3.0, 12.0]
    """
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**32:
        raise InvalidArgumentError(f"custom_op: version must be an int from 0, got {version!r}")
    method = _checked_method("custom_op", vmap_method)

    def made(fun: Callable[..., Any]) -> CustomOp:
        own = fun.__name__ if name is None else name
        if not own or _safe(own) != own:
            raise InvalidArgumentError(
                f"custom_op: {own!r} is no name of an op; use letters, digits and _ . : - /"
            )
        return CustomOp(fun, own, version, shape, method)

    return made if fun is None else made(fun)
