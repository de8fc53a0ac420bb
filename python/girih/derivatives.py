"""Derivatives beyond gradients: ``jvp``, ``vjp``, ``linearize``, ``linear_transpose``, ``jacfwd``,
``jacrev``, ``hessian``, ``hvp``.

As with :func:`girih.grad`, the function is called once, with placeholders, and the derivative is
recorded lazily in the caller's graph; so these functions nest with each other, with ``vmap`` and
with ``compile``. Signatures and semantics are those of JAX.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, effects, tree
from ._girih import SymbolicFloat, Tensor, has_protocol
from .batching import vmap
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError
from .names import name_of
from .transforms import INEXACT, Transformed, as_variables, grad, positions_of, split

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linear_transpose",
    "linearize",
    "vjp",
]


class _Recorded(NamedTuple):
    """The recording of a function called with placeholders for some leaves of its arguments."""

    trace: _girih.Trace
    #: The differentiated leaves, and their placeholders.
    variables: list[Tensor]
    stand_ins: list[Tensor]
    outputs: list[Tensor]
    structure: tree.TreeDef
    #: Leaves of the auxiliary output, with its structure.
    aux: tuple[list[Any], tree.TreeDef]
    #: The effects of the function.
    frame: effects.Frame

    def values(self, results: Sequence[Tensor], linear: Any = None) -> tuple[Any, Any]:
        """The output and the auxiliary output, rebuilt from the recorded tensors. ``linear`` is the
        linear map that will be called with the function's values."""
        count = len(self.outputs)
        leaves = list(self.aux[0])
        rest = iter(results[count:])
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                leaves[i] = next(rest)
        aux, others = tree.unflatten(self.aux[1], leaves)
        # The function runs once, so its residuals are computed with its calls.
        residuals = linear.residuals() if linear is not None and self.frame.tokens else []
        self.frame.emit(others, [*results, *residuals])
        return tree.unflatten(self.structure, results[:count]), aux

    def all_outputs(self) -> list[Tensor]:
        return self.outputs + [leaf for leaf in self.aux[0] if isinstance(leaf, Tensor)]


def _record(
    fun: Callable[..., Any],
    variables: list[Tensor],
    call: Callable[[list[Tensor]], Any],
    has_aux: bool,
    roots: Sequence[Any] = (),
) -> _Recorded:
    """Records ``call``, which calls ``fun``; ``roots`` are other arguments of ``fun``."""
    trace = _girih.Trace()
    stand_ins = [trace.placeholder(variable) for variable in variables]
    # The function may assign to its arguments, so it gets its own handles.
    with effects.collected(fun, *roots) as frame:
        result = call([+stand_in for stand_in in stand_ins])
    aux: Any = None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgumentError(
                f"with has_aux=True {name_of(fun)} must return (output, aux), got "
                f"{type(result).__name__}"
            )
        result, aux = result
    leaves, structure = tree.flatten(result)
    outputs = [_output(leaf, fun) for leaf in leaves]
    both = tree.flatten((aux, frame.outputs()))
    return _Recorded(trace, variables, stand_ins, outputs, structure, both, frame)


def _output(leaf: Any, fun: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf
    if isinstance(leaf, (bool, int, float, complex, SymbolicFloat)) or has_protocol(
        leaf, "__array__"
    ):
        return _girih.asarray(leaf)
    raise DTypeError(
        f"{name_of(fun)} returned a {type(leaf).__name__}; expected tensors, in any pytree"
    )


class _Arguments:
    """Arguments whose floating-point and complex leaves are differentiated."""

    def __init__(self, fun: Any, args: Sequence[Any]) -> None:
        self.leaves, self.structure = tree.flatten(tuple(args))
        for i, leaf in enumerate(self.leaves):
            if not isinstance(leaf, Tensor):
                self.leaves[i] = _input(leaf, fun)
        self.varies = [leaf.dtype.name in INEXACT for leaf in self.leaves]
        if not any(self.varies):
            found = sorted({leaf.dtype.name for leaf in self.leaves}) or ["no leaves"]
            raise DTypeError(
                f"no argument of {name_of(fun)} can be differentiated: they are "
                f"{', '.join(found)}; expected a floating-point or complex tensor"
            )

    def variables(self) -> list[Tensor]:
        return [leaf for leaf, v in zip(self.leaves, self.varies, strict=True) if v]

    def rebuilt(self, variables: Sequence[Tensor]) -> tuple[Any, ...]:
        """The arguments with these tensors in place of the differentiated leaves."""
        rest = iter(variables)
        leaves = [
            next(rest) if v else leaf for leaf, v in zip(self.leaves, self.varies, strict=True)
        ]
        return tuple(tree.unflatten(self.structure, leaves))

    def derivatives(self, variables: Sequence[Tensor]) -> tuple[Any, ...]:
        """As :meth:`rebuilt`, with zeros for the leaves that are not differentiated."""
        rest = iter(variables)
        leaves = [
            next(rest) if v else _girih.zeros_like(leaf)
            for leaf, v in zip(self.leaves, self.varies, strict=True)
        ]
        return tuple(tree.unflatten(self.structure, leaves))

    def tangents(self, given: Sequence[Any], what: str, fun: Any) -> list[Tensor]:
        """The leaves of the tangents for the differentiated leaves."""
        leaves, structure = tree.flatten(tuple(given))
        if structure != self.structure:
            raise InvalidArgumentError(
                f"{what} of {name_of(fun)} must have the structure of its arguments "
                f"{self.structure}, got {structure}"
            )
        return [
            _fitting(tangent, primal, what)
            for tangent, primal, v in zip(leaves, self.leaves, self.varies, strict=True)
            if v
        ]


def _input(leaf: Any, fun: Any) -> Tensor:
    if isinstance(leaf, (bool, int, float, complex, SymbolicFloat)) or has_protocol(
        leaf, "__array__"
    ):
        return _girih.asarray(leaf)
    raise DTypeError(
        f"an argument of {name_of(fun)} holds a {type(leaf).__name__}; expected tensors and "
        "numbers, in any pytree. Bind other arguments with functools.partial"
    )


def _fitting(leaf: Any, like: Tensor, what: str) -> Tensor:
    """A tangent or cotangent as a tensor; numbers take the dtype of the corresponding value."""
    found = leaf if isinstance(leaf, Tensor) else _girih.asarray(leaf, dtype=like.dtype)
    if found.dtype.name != like.dtype.name or found.shape != like.shape:
        raise InvalidArgumentError(
            f"{what}: one is {found.dtype.name}{list(found.shape)}; expected "
            f"{like.dtype.name}{list(like.shape)}, as the value it belongs to"
        )
    return found


def jvp(
    fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """The value of a function and its derivative along tangents, by forward mode.

    Forward mode costs about as much as the function itself and saves none of its intermediate
    values; it runs ``scan`` and ``while_loop`` once.

    Args:
        fun: A function of pytrees of tensors that returns a pytree of tensors.
        primals: The arguments, one entry for each.
        tangents: For each argument a pytree with its structure, shapes and dtypes. Tangents of
            integers and bools are ignored.
        has_aux: Whether ``fun`` returns ``(output, aux)``; then a third result is ``aux``.

    Returns:
        ``(output, tangent)``, both with the structure of the output; the tangent of a leaf that
        does not depend on the primals is zero.

    Raises:
        InvalidArgumentError: The tangents do not fit the primals.
        DTypeError: No primal is floating point or complex.

    Example:
        >>> import girih as gr
        >>> y, dy = gr.jvp(gr.sin, (gr.asarray(0.0),), (gr.asarray(2.0),))
        >>> y.item(), dy.item()
        (0.0, 2.0)
    """
    arguments = _Arguments(fun, _sequence(primals, "jvp: primals"))
    directions = arguments.tangents(_sequence(tangents, "jvp: tangents"), "jvp: tangents", fun)
    recorded = _record(fun, arguments.variables(), lambda xs: fun(*arguments.rebuilt(xs)), has_aux)
    values, derivatives = recorded.trace.jvp(
        recorded.all_outputs(), recorded.stand_ins, recorded.variables, directions
    )
    output, aux = recorded.values(values)
    tangent = tree.unflatten(recorded.structure, derivatives[: len(recorded.outputs)])
    return (output, tangent, aux) if has_aux else (output, tangent)


def _sequence(given: Any, what: str) -> Sequence[Any]:
    if isinstance(given, (tuple, list)):
        return given
    raise InvalidArgumentError(
        f"{what} must be a tuple with one entry for each argument, got {type(given).__name__}"
    )


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function and its vector-Jacobian product (pullback), by reverse mode.

    Args:
        fun: A function of pytrees of tensors that returns a pytree of tensors.
        primals: The arguments.
        has_aux: Whether ``fun`` returns ``(output, aux)``; then a third result is ``aux``.

    Returns:
        ``(output, pullback)``: the pullback takes a pytree like the output and returns a tuple with
        one pytree for each argument, with zeros for integers and bools. It may be called several
        times; the values of the function that it needs are computed once.

    Raises:
        DTypeError: No primal is floating point or complex.

    Example:
        >>> import girih as gr
        >>> y, pullback = gr.vjp(lambda x, w: x @ w, gr.ones([2]), gr.ones([2, 3]))
        >>> pullback(gr.asarray([1.0, 2.0, 3.0]))[0].tolist()
        [6.0, 6.0]
    """
    arguments = _Arguments(fun, primals)
    recorded = _record(fun, arguments.variables(), lambda xs: fun(*arguments.rebuilt(xs)), has_aux)
    outputs = recorded.all_outputs()
    values, pull = recorded.trace.vjp(outputs, recorded.stand_ins, recorded.variables)
    output, aux = recorded.values(values, pull)
    rest = [_girih.zeros_like(value) for value in values[len(recorded.outputs) :]]
    pullback = _pullback("vjp", fun, arguments, recorded, pull, rest)
    return (output, pullback, aux) if has_aux else (output, pullback)


def _pullback(
    name: str,
    fun: Callable[..., Any],
    arguments: _Arguments,
    recorded: _Recorded,
    pull: Callable[[list[Tensor]], list[Tensor]],
    rest: list[Tensor],
) -> Callable[[Any], tuple[Any, ...]]:
    """The function from a pytree of cotangents to cotangents of the arguments; `name` is for
    errors."""

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        leaves, structure = tree.flatten(cotangents)
        if structure != recorded.structure:
            raise InvalidArgumentError(
                f"{name}: cotangents must have the structure of the output of {name_of(fun)}, "
                f"{recorded.structure}, got {structure}"
            )
        pairs = zip(leaves, recorded.outputs, strict=True)
        fitting = [_fitting(leaf, like, f"{name}: cotangents") for leaf, like in pairs]
        return arguments.derivatives(pull(fitting + rest))

    return pullback


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of a function and its Jacobian-vector product (pushforward) at the arguments.

    Args:
        fun: A function of pytrees of tensors that returns a pytree of tensors.
        primals: The arguments.
        has_aux: Whether ``fun`` returns ``(output, aux)``; then a third result is ``aux``.

    Returns:
        ``(output, pushforward)``: the pushforward takes one tangent for each argument and returns
        the tangent of the output, as :func:`jvp` does, without calling or recording ``fun`` again.

    Raises:
        DTypeError: No primal is floating point or complex.

    Example:
        >>> import girih as gr
        >>> y, push = gr.linearize(gr.square, gr.asarray(3.0))
        >>> [push(gr.asarray(v)).item() for v in (1.0, 2.0)]
        [6.0, 12.0]
    """
    arguments = _Arguments(fun, primals)
    recorded = _record(fun, arguments.variables(), lambda xs: fun(*arguments.rebuilt(xs)), has_aux)
    outputs = recorded.all_outputs()
    values, push = recorded.trace.linearize(outputs, recorded.stand_ins, recorded.variables)
    output, aux = recorded.values(values, push)

    def pushforward(*tangents: Any) -> Any:
        directions = arguments.tangents(tangents, "linearize: tangents", fun)
        return tree.unflatten(recorded.structure, push(directions)[: len(recorded.outputs)])

    return (output, pushforward, aux) if has_aux else (output, pushforward)


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a function that is linear in its arguments.

    Args:
        fun: A linear function of pytrees of tensors. Added constants are ignored.
        primals: Tensors with the arguments' shapes and dtypes; their values are not used.

    Returns:
        A function of a pytree like the output; it returns a tuple of pytrees like the arguments.

    Raises:
        DTypeError: No primal is floating point or complex.
        InvalidArgumentError: The function is not linear; the message names the first non-linear op
            and its line.

    Example:
        >>> import girih as gr
        >>> cumulate = gr.linear_transpose(gr.cumsum, gr.zeros([3]))
        >>> cumulate(gr.ones([3]))[0].tolist()
        [3.0, 2.0, 1.0]
    """
    zeros = tree.map(_girih.zeros_like, primals)
    arguments = _Arguments(fun, zeros)
    recorded = _record(fun, arguments.variables(), lambda xs: fun(*arguments.rebuilt(xs)), False)
    recorded.frame.stored.refuse(
        f"linear_transpose: {name_of(fun)}", "although it is not computed; return the tensor"
    )
    outputs = recorded.all_outputs()
    pull = recorded.trace.linear_transpose(outputs, recorded.stand_ins, recorded.variables)
    rest = [_girih.zeros_like(output) for output in outputs[len(recorded.outputs) :]]
    return _pullback("linear_transpose", fun, arguments, recorded, pull, rest)


def _basis(leaves: Sequence[Tensor]) -> list[Tensor]:
    """The standard basis of all leaves together: the part of each leaf, stacked along a new first
    axis."""
    sizes = [int(leaf.size) for leaf in leaves]
    total, start, parts = sum(sizes), 0, []
    for leaf, size in zip(leaves, sizes, strict=True):
        unit = _girih.eye(total, size, k=-start, dtype=leaf.dtype)
        parts.append(unit.reshape([total, *leaf.shape]))
        start += size
    return parts


def _parts(rows: Tensor, leaves: Sequence[Tensor], last: bool) -> list[Tensor]:
    """Splits rows of derivatives by leaf: with respect to all elements of the leaves (``last``), or
    of all elements."""
    parts, start = [], 0
    rest = tuple(rows.shape[1:])
    for leaf in leaves:
        size = int(leaf.size)
        part = rows[start : start + size]
        shape = tuple(leaf.shape)
        if last:
            part = _girih.moveaxis(part, 0, -1).reshape([*rest, *shape])
        else:
            part = part.reshape([*shape, *rest])
        parts.append(part)
        start += size
    return parts


def _check_holomorphic(leaves: Sequence[Tensor], holomorphic: bool, what: str) -> None:
    for leaf in leaves:
        is_complex = leaf.dtype.name.startswith("complex")
        if is_complex and not holomorphic:
            raise DTypeError(
                f"{what} is {leaf.dtype.name}; pass holomorphic=True if the function is "
                "differentiable by complex numbers, or take real and imaginary parts"
            )
        if holomorphic and not is_complex:
            raise DTypeError(
                f"{what} is {leaf.dtype.name}; with holomorphic=True it must be complex"
            )


def jacfwd(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of a function, by forward mode: best for few inputs and many outputs.

    Args:
        fun: Returns a pytree of tensors; with ``has_aux`` a pair ``(output, aux)``.
        argnums: The positional arguments to differentiate with respect to, each a pytree of
            tensors.
        has_aux: Whether ``fun`` also returns an auxiliary pytree, which is passed through.
        holomorphic: Whether ``fun`` is holomorphic, so that it may have complex arguments.

    Returns:
        A function of the same arguments. For each leaf of the output it returns a pytree like the
        argument (a tuple of pytrees for several argnums) of tensors of shape ``output.shape +
        argument.shape``.

    Raises:
        InvalidArgumentError: ``argnums`` names no argument, or an argument twice.
        DTypeError: An argument is not floating point, or is complex without ``holomorphic``.

    Example:
        >>> import girih as gr
        >>> gr.jacfwd(lambda x: x**2)(gr.asarray([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """

    def differentiated(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        chosen = _Chosen(fun, args, kwargs, argnums)
        _check_holomorphic(chosen.leaves, holomorphic, f"jacfwd: an argument of {name_of(fun)}")
        result = linearize(chosen.call, *chosen.leaves, has_aux=has_aux)
        rows = vmap(result[1])(*_basis(chosen.leaves))
        jacobian = tree.map(lambda r: chosen.rebuilt(_parts(r, chosen.leaves, last=True)), rows)
        return (jacobian, result[2]) if has_aux else jacobian

    return Transformed(fun, differentiated, "jacfwd")


def jacrev(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of a function, by reverse mode: best for many inputs and few outputs.

    Args:
        fun: Returns a pytree of tensors; with ``has_aux`` a pair ``(output, aux)``.
        argnums: The positional arguments to differentiate with respect to, each a pytree of
            tensors.
        has_aux: Whether ``fun`` also returns an auxiliary pytree, which is passed through.
        holomorphic: Whether ``fun`` is holomorphic, so that it may have complex outputs.

    Returns:
        A function of the same arguments, with the results of :func:`jacfwd`.

    Raises:
        InvalidArgumentError: ``argnums`` names no argument, or an argument twice.
        DTypeError: An argument or output is not floating point, or an output is complex without
            ``holomorphic``.

    Example:
        >>> import girih as gr
        >>> gr.jacrev(lambda x: (x**2).sum())(gr.asarray([1.0, 2.0])).tolist()
        [2.0, 4.0]
    """

    def differentiated(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        chosen = _Chosen(fun, args, kwargs, argnums)
        result = vjp(chosen.call, *chosen.leaves, has_aux=has_aux)
        outputs, structure = tree.flatten(result[0])
        what = f"jacrev: an output of {name_of(fun)}"
        _check_holomorphic(outputs, holomorphic, what)
        for output in outputs:
            if output.dtype.name not in INEXACT:
                raise DTypeError(f"{what} is {output.dtype.name}; expected a floating-point dtype")
        pull = result[1]
        columns = vmap(lambda *cts: pull(tree.unflatten(structure, cts)))(*_basis(outputs))
        # Regroup the parts: from all outputs for each argument leaf, to a tree of arguments for
        # each output.
        by_leaf = [_parts(column, outputs, last=False) for column in columns]
        rows = [chosen.rebuilt([parts[i] for parts in by_leaf]) for i in range(len(outputs))]
        jacobian = tree.unflatten(structure, rows)
        return (jacobian, result[2]) if has_aux else jacobian

    return Transformed(fun, differentiated, "jacrev")


class _Chosen:
    """The arguments with respect to which a Jacobian is taken."""

    def __init__(
        self,
        fun: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        argnums: int | Sequence[int],
    ) -> None:
        self._fun, self._args, self._kwargs = fun, args, kwargs
        self._single = isinstance(argnums, int)
        wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self._positions = positions_of(wanted, len(args), name_of(fun))
        self.leaves: list[Tensor] = []
        self._structures: list[tree.TreeDef] = []
        for position in self._positions:
            leaves, structure = tree.flatten(args[position])
            self.leaves += as_variables(leaves, args[position], position, name_of(fun))
            self._structures.append(structure)

    def call(self, *leaves: Tensor) -> Any:
        call = list(self._args)
        for position, argument in zip(
            self._positions, split(self._structures, list(leaves)), strict=True
        ):
            call[position] = argument
        return self._fun(*call, **self._kwargs)

    def rebuilt(self, leaves: Sequence[Tensor]) -> Any:
        rest = iter(leaves)
        trees = [tree.unflatten(s, islice(rest, s.num_leaves)) for s in self._structures]
        return trees[0] if self._single else tuple(trees)


def hessian(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """The Hessian of a function: :func:`jacfwd` of :func:`jacrev`.

    Args:
        fun: Returns a pytree of tensors; with ``has_aux`` a pair ``(output, aux)``.
        argnums: The positional arguments to differentiate with respect to, each a pytree of
            tensors.
        has_aux: Whether ``fun`` also returns an auxiliary pytree, which is passed through.
        holomorphic: Whether ``fun`` is holomorphic, so that it may have complex arguments.

    Returns:
        A function of the same arguments. For each leaf of the output it returns, by argument and
        again by argument, tensors of shape ``output.shape + argument.shape + argument.shape``.

    Raises:
        InvalidArgumentError: ``argnums`` names no argument, or an argument twice.
        DTypeError: An argument or output is not floating point, or is complex without
            ``holomorphic``.

    Example:
        >>> import girih as gr
        >>> gr.hessian(lambda x: (x**3).sum())(gr.asarray([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)


def hvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian-vector product of a scalar function.

    It uses forward mode over reverse mode and never computes the Hessian itself.

    Args:
        fun: Returns a floating-point scalar.
        primals: The arguments, one entry for each; ``fun`` is differentiated with respect to all of
            them.
        tangents: The vector, of the structure, shapes and dtypes of the arguments.

    Returns:
        A pytree like the argument; a tuple of pytrees for several arguments.

    Raises:
        InvalidArgumentError: The tangents do not fit the primals.
        DTypeError: A primal, or the value, is not floating point.

    Example:
        >>> import girih as gr
        >>> x, v = gr.asarray([1.0, 2.0]), gr.asarray([1.0, 0.0])
        >>> gr.hvp(lambda x: (x**3).sum(), (x,), (v,)).tolist()
        [6.0, 0.0]
    """
    primals = _sequence(primals, "hvp: primals")
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(fun, argnums), primals, tangents)[1]


explain_public(globals())
