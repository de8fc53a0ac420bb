"""Norms and clipping of trees of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih, tree
from .._girih import Tensor
from ..checks import explain_public, items
from ..dtypes import isdtype
from ..errors import DTypeError, InvalidArgumentError
from ..nn.module import Module
from ..scopes import no_grad
from .base import compute_dtype
from .state import cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..tree import PyTree

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value",
    "clip_grad_value_",
    "global_norm",
]


def global_norm(values: PyTree, norm_type: float = 2.0) -> Tensor:
    """The norm of a tree of gradients or parameters as one vector.

    Half-precision tensors are summed in float32.

    Args:
        values: A tree of real tensors.
        norm_type: The order of the norm, above 0; ``inf`` is the largest absolute value.

    Returns:
        A scalar tensor.

    Raises:
        InvalidArgumentError: There are no tensors, or the order is not above 0.
        DTypeError: A tensor is complex.

    Example:
        >>> import girih as gr
        >>> gr.optim.global_norm({"w": gr.asarray([3.0, 0.0]), "b": gr.asarray([4.0])}).item()
        5.0
    """
    return _norm(values, norm_type, "global_norm")


def _norm(values: PyTree, norm_type: float, function: str) -> Tensor:
    leaves = tree.leaves(values)
    if not leaves:
        raise InvalidArgumentError(f"{function}: there are no gradients")
    if not norm_type > 0:
        raise InvalidArgumentError(f"{function}: norm_type must be above 0, got {norm_type}")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise DTypeError(f"{function}: expected tensors, got a {type(leaf).__name__}")
    wide = [cast(leaf, compute_dtype(leaf)) for leaf in map(as_float, leaves)]
    if norm_type == float("inf"):
        parts = [_girih.max(leaf.abs()) for leaf in wide if leaf.size]
        parts = parts or [_girih.zeros([], dtype=wide[0].dtype)]
        largest = parts[0]
        for part in parts[1:]:
            largest = _girih.maximum(largest, part)
        return largest
    powers = [(g * g if norm_type == 2.0 else g.abs() ** norm_type).sum() for g in wide]
    total = powers[0]
    for power in powers[1:]:
        total = total + power
    root: Tensor = total.sqrt() if norm_type == 2.0 else total ** (1.0 / norm_type)
    return root


def as_float(gradient: Tensor) -> Tensor:
    """The gradient; integers and bools as the default floating-point dtype."""
    if isinstance(gradient, Tensor) and isdtype(gradient.dtype, ("integral", "bool")):
        return cast(gradient, _girih.float32)
    return gradient


def clip_grad_norm(grads: PyTree, max_norm: float, norm_type: float = 2.0) -> tuple[PyTree, Tensor]:
    """Scales gradients so that their global norm is at most ``max_norm``.

    Args:
        grads: A tree of gradients. Those of integers and bools become float32.
        max_norm: The bound, not negative.
        norm_type: The order of the norm, above 0; ``inf`` is the largest absolute value.

    Returns:
        The scaled gradients and their norm before scaling, both lazy.

    Raises:
        InvalidArgumentError: The bound is negative, or the order is not above 0.
    """
    if not isinstance(max_norm, Tensor) and not max_norm >= 0:
        raise InvalidArgumentError(f"clip_grad_norm: max_norm must not be negative, got {max_norm}")
    norm = _norm(grads, norm_type, "clip_grad_norm")
    factor = _girih.minimum(max_norm / (norm + 1e-6), 1.0)
    scaled = [g * cast(factor, g.dtype) for g in map(as_float, tree.leaves(grads))]
    return tree.unflatten(tree.structure(grads), scaled), norm


def clip_grad_value(grads: PyTree, clip_value: float) -> PyTree:
    """Clips each element of the gradients to ``[-clip_value, clip_value]``.

    Args:
        grads: A tree of gradients.
        clip_value: The bound, not negative.

    Returns:
        The clipped gradients.

    Raises:
        InvalidArgumentError: The bound is negative.

    Example:
        >>> import girih as gr
        >>> gr.optim.clip_grad_value([gr.asarray([3.0, -0.5])], 1.0)[0].tolist()
        [1.0, -0.5]
    """
    if not clip_value >= 0:
        raise InvalidArgumentError(
            f"clip_grad_value: clip_value must not be negative, got {clip_value}"
        )
    return tree.map(lambda g: _girih.clip(g, -clip_value, clip_value), grads)


def _with_gradients(parameters: Any, function: str) -> list[Tensor]:
    """The tensors among parameters that have gradients."""
    if isinstance(parameters, Module):
        parameters = parameters.parameters()
    held = [parameters] if isinstance(parameters, Tensor) else items(parameters)
    for one in held:
        if not isinstance(one, Tensor):
            raise DTypeError(f"{function}: expected tensors, got a {type(one).__name__}")
    distinct = {id(one): one for one in held}
    return [one for one in distinct.values() if one.grad is not None]


def clip_grad_norm_(
    parameters: Module | Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scales the gradients of parameters so that their global norm is at most ``max_norm``.

    Call it between ``loss.backward()`` and ``optimizer.step()``.

    Args:
        parameters: A module, a tensor, or tensors, whose ``grad`` is replaced. Those without one
            stay as they are.
        max_norm: The bound, not negative.
        norm_type: The order of the norm, above 0; ``inf`` is the largest absolute value.
        error_if_nonfinite: Whether a norm that is not finite is an error, for which the norm is
            evaluated.

    Returns:
        The norm before scaling, lazy; zero if there are no gradients.

    Raises:
        InvalidArgumentError: The bound is negative, the order is not above 0, or the norm is not
            finite.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([3.0, 4.0]).requires_grad_()
        >>> (0.5 * x * x).sum().backward()
        >>> gr.optim.clip_grad_norm_([x], 1.0).item(), x.grad.tolist()
        (5.0, [0.5999999046325684, 0.7999998927116394])
    """
    held = _with_gradients(parameters, "clip_grad_norm_")
    if not held:
        return _girih.zeros([], dtype=_girih.float32)
    with no_grad():
        new, norm = clip_grad_norm([one.grad for one in held], max_norm, norm_type)
        if error_if_nonfinite and not _girih.isfinite(norm).item():
            raise InvalidArgumentError(
                f"clip_grad_norm_: the norm of the gradients is {norm.item()}; give "
                "error_if_nonfinite=False to scale by it all the same"
            )
        for one, gradient in zip(held, new, strict=True):
            one.grad = gradient
    return norm


def clip_grad_value_(parameters: Module | Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clips each element of the gradients of parameters to ``[-clip_value, clip_value]``.

    Args:
        parameters: A module, a tensor, or tensors, whose ``grad`` is replaced.
        clip_value: The bound, not negative.

    Raises:
        InvalidArgumentError: The bound is negative.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([3.0, -0.5]).requires_grad_()
        >>> (0.5 * x * x).sum().backward()
        >>> gr.optim.clip_grad_value_([x], 1.0)
        >>> x.grad.tolist()
        [1.0, -0.5]
    """
    held = _with_gradients(parameters, "clip_grad_value_")
    with no_grad():
        new = clip_grad_value([one.grad for one in held], clip_value)
        for one, gradient in zip(held, new, strict=True):
            one.grad = gradient


explain_public(globals())
