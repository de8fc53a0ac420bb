"""User-defined ops, from Python functions of arrays or tensors, or from the text of kernels."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from . import _girih, callbacks, effects, tree
from ._girih import Tensor, has_protocol
from .bodies import Arguments, RecordedBody, leaves_of
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError, ShapeError
from .names import name_of
from .rules import custom_jvp, custom_vjp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CustomOp", "custom_op"]

#: Maximum number of cached recordings of a function of tensors, by shapes, dtypes and settings.
_KEPT = 64


class CustomOp:
    """A user-defined op, which :func:`custom_op` creates.

    Attributes:
        name: The name of the op in graphs and messages.
        version: Part of the op's identity.

    Args:
        fun: A function that takes and returns arrays.
        name: The name of the op in graphs and messages.
        version: Part of the op's identity.
        shape: The shape rule; None for one that :meth:`def_shape` sets.
        method: How the op is batched: a ``vmap_method``, or ``"none"``.
    """

    def __init__(self, fun: Any, name: str, version: int, shape: Any, method: str) -> None:
        if fun is not None:
            if not callable(fun):
                raise DTypeError(f"custom_op: expected a function, got a {type(fun).__name__}")
            with contextlib.suppress(LookupError):
                functools.update_wrapper(self, fun)
        #: Distinguishes the op from others of the same name in this process.
        self.identity = next(callbacks._COUNT)
        #: The batching rule.
        self.rule: Callable[..., Any] | None = None
        self.name = name
        self.version = version
        self._fun = fun
        self._shape = shape
        self._method = method
        self._ruled: Any = None
        if shape is not None:
            self._register()

    def _register(self) -> None:
        """Registers the op by name and version, so that files find it."""
        if type(self) is CustomOp:
            _girih.register_host(self, self.name, self.version, self.identity)

    def _restored(self, settings: str) -> Any:
        """The callback of a call in a file."""
        return callbacks.restored(self, self._fun, settings)

    def __repr__(self) -> str:
        return f"<custom op {self.name} version {self.version}>"

    def __call__(self, *args: Any) -> Any:
        """Records the op on pytrees of tensors and returns its results."""
        return self._recorded(*args) if self._ruled is None else self._ruled(*args)

    def _recorded(self, *args: Any) -> Any:
        if self._shape is None:
            raise InvalidArgumentError(
                f"custom op {self.name} has no shape rule; give it one with "
                "@custom_op(shape=...) or .def_shape"
            )
        leaves, structure = tree.flatten(args)
        args = tree.unflatten(
            structure,
            [_girih.asarray(x) if isinstance(x, float) or has_protocol(x, "__array__") else x
             for x in leaves],
        )  # fmt: skip
        declared = self._shape(*tree.unflatten(structure, [_spec(x) for x in tree.leaves(args)]))
        return callbacks._called(self._fun, declared, args, {}, self._method, self)

    def def_shape(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the shape rule. It takes the arguments, with a ``ShapeDtypeStruct`` for each tensor,
        and returns a pytree of ``ShapeDtypeStruct`` for the results.

        Args:
            rule: The shape rule.
        """
        self._shape = rule
        self._register()
        return rule

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Sets the batching rule, which ``vmap`` records in place of the op; it takes precedence
        over ``vmap_method``. Also a decorator.

        Args:
            rule: Takes the size of the batch, a list that says for each argument whether it is
                batched (a pytree of bools, like the argument), and the arguments; the batch is the
                leading axis of batched arguments. It returns the results, and which of them are
                batched along their leading axis: a bool, or a pytree of bools like the results. It
                must depend only on its arguments, and may call the op.

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
        self.rule = rule
        return rule

    def def_vjp(
        self, fwd: Callable[..., Any], bwd: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """Sets the reverse-mode rule: one function, or a forward and a backward function. With one
        function, also a decorator.

        Args:
            fwd: Takes the arguments; returns ``(result, residuals)``. It may call the op. Without
                ``bwd``, ``fwd`` is the whole rule: it takes the tuple of arguments, the cotangent
                and the result, and returns a tuple with a cotangent for each argument, or None for
                zeros.
            bwd: Takes ``(residuals, cotangent)``; returns a cotangent for each argument.

        Returns:
            ``fwd``.

        Example:
            >>> import girih as gr, numpy as np
            >>> @gr.custom_op(shape=lambda x: x)
            ... def exponential(x):
            ...     return np.exp(x)
            >>> @exponential.def_vjp
            ... def rule(primals, cotangent, output):
            ...     return (cotangent * output,)
            >>> gr.grad(exponential)(gr.asarray(0.0)).item()
            1.0
        """
        first, second = fwd, bwd
        if second is None:
            first, second = self._keeping, lambda kept, ct: fwd(kept[0], ct, kept[1])
        ruled = custom_vjp(self._recorded)
        ruled.__name__ = self.name
        ruled.defvjp(first, second)
        self._ruled = ruled
        return fwd

    def _keeping(self, *args: Any) -> tuple[Any, Any]:
        """The result, with the arguments of a one-function rule other than the cotangent as
        residuals."""
        result = self._recorded(*args)
        return result, (args, result)

    def def_jvp(self, rule: Callable[..., Any]) -> None:
        """Sets the forward-mode rule, from which reverse mode follows.

        Args:
            rule: Takes ``(primals, tangents)``; returns ``(result, tangent)``. It may call the op.
        """
        ruled = custom_jvp(self._recorded)
        ruled.__name__ = self.name
        ruled.defjvp(rule)
        self._ruled = ruled


class _BodyOp(CustomOp):
    """An op whose function takes tensors, and is recorded as one call of a region."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: Recordings of the function, and the structures of the results, by key.
        self._known: dict[Any, tuple[_girih.Recording, tree.TreeDef]] = {}

    def _recorded(self, *args: Any) -> Any:
        arguments = Arguments((args,))
        if not arguments.tensors:
            return self._fun(*args)
        key = self._key(arguments)
        known = None if key is None else self._known.get(key)
        if known is not None:
            recording, structure = known
            return tree.unflatten(structure, recording.call(arguments.tensors))
        body = RecordedBody.of(arguments.tensors)
        with effects.collected(self._fun, args) as frame:
            result = self._fun(*arguments.rebuilt(body.own())[0])
            leaves, structure = leaves_of(result, self.name)
        frame.stored.refuse(f"custom op {self.name}", "which depends on its arguments only")
        self._check(args, leaves, structure)
        body.body.set_outputs(leaves + frame.tokens)
        if key is not None and not frame.tokens:
            made = body.body.recording()
            if made is not None:
                if len(self._known) >= _KEPT:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = made, structure
        results = _girih.record_call(body.body, arguments.tensors)
        effects.emit(results[len(leaves) :], results, frame.is_ordered)
        return tree.unflatten(structure, results[: len(leaves)])

    def _key(self, arguments: Arguments) -> Any:
        """The key of a recording; None if no other call can reuse it, or if arguments that are not
        tensors are not hashable.
        """
        specs = tuple((tuple(t.shape), t.dtype.name) for t in arguments.tensors)
        # Reading a symbolic size would fix it.
        symbolic = any(not isinstance(size, int) for shape, _ in specs for size in shape)
        others = arguments.others()
        if (
            symbolic
            or _girih.has_named_axes()
            or any(t is _girih.SymbolicDim for _, t, _ in others)
        ):
            return None
        key = (specs, others, arguments.structure, _girih.autocast_dtype())
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _check(self, args: Any, leaves: list[Tensor], structure: tree.TreeDef) -> None:
        """Fails if there is a shape rule and it disagrees with the results of the function."""
        if self._shape is None:
            return
        specs, declared = callbacks._specs(self._shape(*tree.map(_spec, args)))
        if declared != structure:
            raise InvalidArgumentError(
                f"custom op {self.name} returned {structure}; its shape rule gives {declared}"
            )
        for leaf, spec in zip(leaves, specs, strict=True):
            given, wanted = _text(leaf), _text(callbacks._like(spec, self.name))
            if given != wanted:
                raise ShapeError(
                    f"custom op {self.name} gives {given}; its shape rule says {wanted}"
                )

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        raise InvalidArgumentError(
            f"custom op {self.name} takes tensors: its batch follows from its function, and "
            "def_vmap is for functions of arrays"
        )


class _KernelOp(CustomOp):
    """An op whose implementation is the text of kernels."""

    def __init__(self, name: str, version: int, signature: str, dtypes: Any, text: str) -> None:
        super().__init__(None, name, version, None, "sequential")
        self._kernel = _girih.KernelOp(name, version, signature, dtypes, text)
        self.__name__ = name

    def _recorded(self, *args: Any) -> Any:
        results = self._kernel.call(args)
        return results[0] if len(results) == 1 else tuple(results)

    def def_shape(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        raise InvalidArgumentError(
            f"custom op {self.name} is made of kernels: its signature is the shape rule"
        )

    def def_vmap(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        raise InvalidArgumentError(
            f"custom op {self.name} is made of kernels: its batch is one more dimension of "
            "them, and def_vmap is for functions of arrays"
        )


def _spec(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return callbacks.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf


def _text(x: Tensor) -> str:
    return f"{x.dtype.name}{list(x.shape)}"


def _kernel_op(
    name: str | None, version: int, signature: str | None, dtypes: Any, kernel: str
) -> CustomOp:
    if name is None or signature is None:
        raise InvalidArgumentError(
            "custom_op: an op made of kernels has a name and a signature, such as "
            "signature='T[m, k], T[k] -> T[m]'"
        )
    listed = [(key, list(value)) for key, value in (dtypes or {}).items()]
    return _KernelOp(name, version, signature, listed, kernel)


def custom_op(
    fun: Any = None,
    *,
    name: str | None = None,
    shape: Callable[..., Any] | None = None,
    version: int = 1,
    vmap_method: str | None = "sequential",
    takes: str = "arrays",
    kernel: str | None = None,
    signature: str | None = None,
    dtypes: dict[str, Sequence[Any]] | None = None,
) -> Any:
    """A decorator that creates a user-defined op from a Python function or the text of kernels.

    Graphs record the op like any other: it is compiled, batched by ``vmap``, and differentiated by
    the rule that ``def_vjp`` or ``def_jvp`` sets. Without such a rule, taking a derivative of the
    op is an error, unless the function takes tensors: then derivatives and batching follow from the
    function, and its ops are fused with the ops around it.

    Args:
        fun: Takes and returns arrays, or tensors, with results of the shapes and dtypes that
            ``shape`` gives. It must have no side effects.
        name: The op's name; by default the function's. Files store name and version: a process that
            loads a file must have defined the op.
        shape: The shape rule: takes the arguments, with a ``ShapeDtypeStruct`` for each tensor, and
            returns a pytree of ``ShapeDtypeStruct`` for the results. A function of tensors needs no
            shape rule.
        version: The version; use another version when the meaning of the name changes.
        vmap_method: As for :func:`pure_callback`; for functions of arrays.
        takes: ``"arrays"`` for a function of NumPy arrays, called when the program runs;
            ``"tensors"`` for a function of tensors, called when the op is recorded: once for each
            combination of shapes and dtypes of the tensors, other arguments and autocast dtype. It
            is called again at each call if it refers to tensors that it did not create, draws
            random numbers, or has callbacks with an effect, and if arguments are not hashable or
            sizes are symbolic.
        kernel: In place of a function, kernels as text, see the guide. Braces contain dtypes and
            sizes of the signature.
        signature: Operands and results of the kernels, such as ``"T[m, k], T[k] -> T[m]"``.
        dtypes: For each variable of the signature, the dtypes that it stands for.

    Returns:
        The op, or a decorator.

    Raises:
        InvalidArgumentError: An invalid name or version; kernels without a signature, or with
            operands that do not match it.
        GraphParseError: The text is not a valid kernel; the message has line and column.

    Example:
        >>> import girih as gr, numpy as np
        >>> @gr.custom_op(shape=lambda x: x)
        ... def cube(x):
        ...     return x**3
        >>> _ = cube.def_vjp(lambda x: (cube(x), x), lambda x, ct: (3 * x * x * ct,))
        >>> gr.grad(lambda x: cube(x).sum())(gr.asarray([1.0, 2.0])).tolist()
        [3.0, 12.0]
    """
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 2**32:
        raise InvalidArgumentError(f"custom_op: version must be an int from 0, got {version!r}")
    method = callbacks._checked_method("custom_op", vmap_method)
    if takes not in ("arrays", "tensors"):
        raise InvalidArgumentError(f"custom_op: takes must be 'arrays' or 'tensors', got {takes!r}")
    if kernel is not None:
        if fun is not None or shape is not None:
            raise InvalidArgumentError(
                "custom_op: kernel stands in place of a function, and signature in place of shape"
            )
        return _kernel_op(name, version, signature, dtypes, kernel)
    if signature is not None or dtypes is not None:
        raise InvalidArgumentError("custom_op: signature and dtypes are for ops made of a kernel")

    def made(fun: Callable[..., Any]) -> CustomOp:
        own = name_of(fun) if name is None else name
        if not own or callbacks._safe(own) != own:
            raise InvalidArgumentError(
                f"custom_op: {own!r} is no name of an op; use letters, digits and _ . : - /"
            )
        made_of = _BodyOp if takes == "tensors" else CustomOp
        return made_of(fun, own, version, shape, method)

    return made if fun is None else made(fun)


explain_public(globals())
