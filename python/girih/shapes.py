"""The shapes and dtypes of a function's result, without computing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih, effects, tree
from ._girih import SymbolicFloat, Tensor, has_protocol
from .callbacks import ShapeDtypeStruct, from_specs
from .checks import explain_public
from .errors import DTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["eval_shape"]


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's result, without computing it.

    Args:
        fun: A function of pytrees of tensors. It is called once, with tensors that have no values,
            and changes nothing: what it stores in objects is dropped.
        *args: As in a call. A :class:`ShapeDtypeStruct` stands for a tensor.
        **kwargs: As in a call.

    Returns:
        The function's result, with a :class:`ShapeDtypeStruct` in place of each tensor and number.

    Raises:
        TracedValueError: The function reads the value of a tensor.
        DTypeError: ``fun`` is no function.

    Example:
        >>> import girih as gr
        >>> big = gr.ShapeDtypeStruct((1000000, 1000000))
        >>> gr.eval_shape(lambda x: x @ x.T, big).shape
        (1000000, 1000000)
    """
    if not callable(fun):
        raise DTypeError(f"eval_shape: expected a function, got a {type(fun).__name__}")
    leaves, structure = tree.flatten(from_specs((args, kwargs)))
    places = [i for i, leaf in enumerate(leaves) if _is_array(leaf)]
    found: list[Any] = []

    def traced(placeholders: list[Tensor]) -> list[Tensor]:
        given = list(leaves)
        for place, placeholder in zip(places, placeholders, strict=True):
            given[place] = placeholder
        inner, options = tree.unflatten(structure, given)
        with effects.collected(fun, inner, options):
            found.append(tree.map(_spec, fun(*inner, **options)))
        return []

    names = [f"argument {place}" for place in places]
    tensors = [_girih.asarray(leaves[place]) for place in places]
    _girih.trace_function(tensors, [()] * len(places), [], names, traced)
    return found[0]


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return True
    return has_protocol(leaf, "__array_interface__") or has_protocol(leaf, "__dlpack__")


def _spec(leaf: Any) -> Any:
    """What stands for a leaf of a result."""
    if isinstance(leaf, (bool, int, float, complex, SymbolicFloat)) or _is_array(leaf):
        tensor = _girih.asarray(leaf)
        return ShapeDtypeStruct(tuple(tensor.shape), tensor.dtype)
    return leaf


explain_public(globals())
