"""Function transforms: ``grad`` and ``value_and_grad``.

A transform calls the user's function once with placeholders in place of the differentiated leaves,
and passes the recorded graph to the extension. The extension differentiates the graph and splices
the lazy result into the caller's graph. So transforms nest, and compute nothing.
"""

from __future__ import annotations

import types
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import _girih, effects, tree
from ._girih import SymbolicFloat, Tensor, has_protocol
from .checks import explain_public, items
from .errors import DTypeError, InvalidArgumentError, ShapeError
from .names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .signatures import P, R


__all__ = ["grad", "value_and_grad"]

_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
INEXACT = _FLOATS | {"complex64", "complex128"}


def value_and_grad(
    fun: Callable[P, R],
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    argnames: str | Sequence[str] = (),
) -> Callable[P, tuple[R, Any]]:
    """Returns a function that computes ``fun`` and its gradient in one graph.

    Args:
        fun: Returns a floating-point scalar tensor (shape ``[]``), or with ``has_aux`` a pair
            ``(scalar, aux)``. It may close over tensors, which are constants for the gradient.
        argnums: The positional arguments to differentiate: an int, or a sequence of ints. Negative
            ints count from the end. Each argument may be any pytree of floating-point or complex
            tensors; for a complex ``x + iy`` the gradient is ``df/dx - i df/dy``, as in JAX. An
            argument that is a module has a gradient in the form of its ``parameters_tree()``,
            without the frozen parameters. By default the first one, or none if there are
            ``argnames``.
        has_aux: Whether ``fun`` also returns an auxiliary pytree, which is passed through.
        holomorphic: Whether ``fun`` is a complex function of complex arguments that has a complex
            derivative; the gradient is that derivative.
        argnames: The arguments to differentiate that calls pass by keyword: a name, or several.

    Returns:
        A function of the same arguments that returns ``(value, grads)``, or ``((value, aux),
        grads)`` with ``has_aux``. ``grads`` has the structure of the argument (a tuple of
        structures for a sequence of argnums); each leaf has its argument's shape and dtype. With
        ``argnames`` it is a pair of these gradients, or None without ``argnums``, and a dict of
        gradients by name. All results are lazy. A tensor passed in two places counts as two
        variables: each place gets its own partial derivative.

    Raises:
        InvalidArgumentError: ``argnums`` names an argument twice, or an argument is missing, or not
            passed in the way in which it is named.
        DTypeError: A differentiated leaf, or the value, is not floating point; or, if it is
            ``holomorphic``, not complex.
        ShapeError: The value is not a scalar.

    Example:
        >>> import girih as gr
        >>> loss = lambda w, x: ((x @ w) ** 2).sum()
        >>> value, dw = gr.value_and_grad(loss)(gr.ones([2]), gr.ones([3, 2]))
        >>> value.item(), dw.tolist()
        (12.0, [12.0, 12.0])
    """
    names = (argnames,) if isinstance(argnames, str) else tuple(items(argnames))
    if argnums is None:
        argnums = () if names else 0
    single = isinstance(argnums, int)
    wanted: tuple[int, ...] = (argnums,) if isinstance(argnums, int) else tuple(items(argnums))
    ints = all(isinstance(i, int) and not isinstance(i, bool) for i in wanted)
    if not ints or not (wanted or names):
        raise InvalidArgumentError(
            f"value_and_grad: argnums must be an int or several, got {argnums!r}"
        )
    if not all(isinstance(argname, str) for argname in names) or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"value_and_grad: argnames must be a name or several, each once, got {argnames!r}"
        )
    name = name_of(fun)

    def differentiated(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        places: list[int | str] = [*positions_of(wanted, len(args), name)]
        places += _passed(names, kwargs, name)
        if holomorphic:
            real = _RealPart(fun, name, has_aux)
            _, grads, (value, aux) = _with_trees(real, name, args, kwargs, places, True)
        else:
            value, grads, aux = _with_trees(fun, name, args, kwargs, places, has_aux)
        by_number = grads[: len(wanted)]
        grads_out: Any = by_number[0] if single else tuple(by_number)
        if names:
            by_name = dict(zip(names, grads[len(wanted) :], strict=True))
            grads_out = (grads_out or None, by_name)
        return ((value, aux), grads_out) if has_aux else (value, grads_out)

    return Transformed(fun, differentiated, "value_and_grad")


class _RealPart:
    """The real part of a holomorphic function, whose gradient is the function's derivative."""

    def __init__(self, fun: Callable[..., Any], name: str, has_aux: bool) -> None:
        self._fun, self._name, self._has_aux = fun, name, has_aux

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Tensor, Any]]:
        result = self._fun(*args, **kwargs)
        value, aux = result if self._has_aux else (result, None)
        found = value.dtype.name if isinstance(value, Tensor) else _describe(value)
        if not found.startswith("complex"):
            raise DTypeError(
                f"{self._name} must return a complex tensor with holomorphic=True, got {found}"
            )
        return _girih.real(value), (value, aux)


def _passed(names: tuple[str, ...], kwargs: dict[str, Any], name: str) -> tuple[str, ...]:
    """The names, all of which a call must have passed by keyword."""
    for argname in names:
        if argname not in kwargs:
            raise InvalidArgumentError(
                f"{name} is differentiated by {argname!r} (argnames), which was not passed by "
                f"keyword; the call passed {', '.join(kwargs) or 'nothing'} by keyword"
            )
    return names


def grad(
    fun: Callable[P, Any],
    argnums: int | Sequence[int] | None = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    argnames: str | Sequence[str] = (),
) -> Callable[P, Any]:
    """The gradient of a scalar function; see :func:`value_and_grad` for the arguments and errors.

    Returns:
        A function of the same arguments that returns ``grads``, or ``(grads, aux)`` with
        ``has_aux``. The value itself is not computed unless the gradient needs it.

    Example:
        >>> import girih as gr
        >>> gr.grad(gr.grad(lambda x: x**3))(gr.asarray(2.0)).item()
        12.0
    """
    with_value = value_and_grad(fun, argnums, has_aux, holomorphic, argnames)
    assert isinstance(with_value, Transformed)
    both = with_value._call

    def gradient(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value, grads = both(fun, args, kwargs)
        return (grads, value[1]) if has_aux else grads

    return Transformed(fun, gradient, "grad")


def differentiate(
    fun: Callable[[list[Tensor]], tuple[Any, Any]],
    variables: list[Tensor],
    name: str,
    has_aux: bool,
    roots: Sequence[Any],
) -> tuple[Tensor, list[Tensor], Any]:
    """Computes value and gradients without pytrees of arguments.

    Args:
        fun: Called with a placeholder for each variable; returns the value and an auxiliary tree.
        variables: The result of :func:`as_variables`.
        name: The name of the user's function, for messages.
        has_aux: Whether the user's function returns an auxiliary tree, for messages.
        roots: The user's function and its arguments, which may store tensors in objects.

    Returns:
        The value, the gradients, and the auxiliary tree computed from the variables.
    """
    trace = _girih.Trace()
    stand_ins = [trace.placeholder(variable) for variable in variables]
    # The function may assign to its arguments, so it gets its own handles.
    with effects.collected(*roots) as frame:
        result, aux = fun([+stand_in for stand_in in stand_ins])
    value = _checked_value(result, name, has_aux)
    leaves, treedef = tree.flatten((aux, frame.outputs()))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    value, grads, resolved = trace.value_and_grad(
        value, stand_ins, [leaves[i] for i in where], variables
    )
    for i, tensor in zip(where, resolved, strict=True):
        leaves[i] = tensor
    aux, others = tree.unflatten(treedef, leaves)
    frame.emit(others, [value, *grads, *resolved])
    return value, grads, aux


def _with_trees(
    fun: Callable[..., Any],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: Sequence[int | str],
    has_aux: bool,
) -> tuple[Tensor, list[Any], Any]:
    """Returns the value, the gradients for each argument, given by its position or its keyword, and
    the auxiliary output."""
    from .nn.module import Module
    from .nn.stateless import Trained

    variables: list[Tensor] = []
    structures: list[tree.TreeDef] = []
    trained: dict[int | str, Trained] = {}
    for place in places:
        argument = kwargs[place] if isinstance(place, str) else args[place]
        if isinstance(argument, Module):
            trained[place] = Trained(argument)
            variables += trained[place].variables(place, name)
            structures.append(trained[place].structure)
            continue
        leaves, treedef = tree.flatten(argument)
        variables += as_variables(leaves, argument, place, name)
        structures.append(treedef)

    def with_stand_ins(stand_ins: list[Tensor]) -> tuple[Any, Any]:
        call, named = list(args), dict(kwargs)
        for place, argument in zip(places, split(structures, stand_ins), strict=True):
            if place in trained:
                trained[place].enter(tree.leaves(argument))
            elif isinstance(place, str):
                named[place] = argument
            else:
                call[place] = argument
        result = fun(*call, **named)
        for place, argument in zip(places, split(structures, stand_ins), strict=True):
            if place in trained:
                trained[place].leave(tree.leaves(argument))
        if not has_aux:
            return result, None
        if not isinstance(result, tuple) or len(result) != 2:
            raise InvalidArgumentError(
                f"with has_aux=True {name} must return (value, aux), got {_describe(result)}"
            )
        return result

    roots = (fun, args, kwargs)
    value, grads, aux = differentiate(with_stand_ins, variables, name, has_aux, roots)
    return value, split(structures, grads), aux


def split(structures: list[tree.TreeDef], leaves: list[Tensor]) -> list[Any]:
    """Splits the concatenated leaves of several trees into the trees."""
    rest = iter(leaves)
    return [tree.unflatten(s, islice(rest, s.num_leaves)) for s in structures]


def positions_of(argnums: tuple[int, ...], count: int, name: str) -> list[int]:
    for argnum in argnums:
        if not -count <= argnum < count:
            raise InvalidArgumentError(
                f"{name} is differentiated by positional argument {argnum}, but was called with "
                f"{count}; pass it by position"
            )
    positions = [a % count for a in argnums]
    if len(set(positions)) != len(positions):
        raise InvalidArgumentError(f"argnums {argnums} name an argument of {name} twice")
    return positions


def as_variables(leaves: list[Any], argument: Any, position: int | str, name: str) -> list[Tensor]:
    """The leaves of an argument as tensors that can be differentiated."""
    return [
        leaf
        if type(leaf) is Tensor and leaf.dtype.name in INEXACT
        else _as_variable(leaf, argument, index, position, name)
        for index, leaf in enumerate(leaves)
    ]


def _as_variable(leaf: Any, argument: Any, index: int, position: int | str, name: str) -> Tensor:
    """The leaf as a tensor that can be differentiated."""
    tensor = leaf
    if not isinstance(leaf, Tensor):
        is_array = has_protocol(leaf, "__dlpack__") or has_protocol(leaf, "__array__")
        if isinstance(leaf, (float, complex, SymbolicFloat)) or is_array:
            tensor = _girih.asarray(leaf)
    if not isinstance(tensor, Tensor) or tensor.dtype.name not in INEXACT:
        path = tree.flatten_with_path(argument)[index][0]
        found = tensor.dtype.name if isinstance(tensor, Tensor) else type(leaf).__name__
        raise DTypeError(
            f"argument {position}{path} of {name} cannot be differentiated: it is {found}; "
            "expected a floating-point or complex tensor. Pass it as an argument outside argnums, "
            "or cast it with astype"
        )
    return tensor


def _checked_value(value: Any, name: str, has_aux: bool) -> Tensor:
    if not isinstance(value, Tensor):
        hint = (
            "" if has_aux or not isinstance(value, tuple) else "; to return more pass has_aux=True"
        )
        raise DTypeError(
            f"{name} must return a scalar tensor to be differentiated, got {_describe(value)}{hint}"
        )
    if value.shape != ():
        raise ShapeError(
            f"{name} must return a scalar to be differentiated, got shape {list(value.shape)}; "
            "reduce it, for instance with .sum() or .mean()"
        )
    if value.dtype.name not in _FLOATS:
        raise DTypeError(
            f"{name} must return a floating-point scalar to be differentiated, got dtype "
            f"{value.dtype.name}"
        )
    return value


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return type(value).__name__


class Transformed:
    """A transformed function. As a method it transforms the bound function, so that argument
    positions begin after the object.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any],
        transform: str,
    ) -> None:
        self._fun = fun
        self._call = call
        # functools.wraps would also set __wrapped__, which has the right parameters but the wrong
        # return type.
        self.__name__ = f"{transform}_{name_of(fun)}"
        self.__doc__ = getattr(fun, "__doc__", None)
        self._transform = transform

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(self._fun).replace(return_annotation=inspect.Signature.empty)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._fun, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return Transformed(types.MethodType(self._fun, instance), self._call, self._transform)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"


explain_public(globals())
