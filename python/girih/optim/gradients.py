"""Norms and clipping of trees of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih, tree
from .._girih import Tensor
from ..checks import explain_public
from ..errors import DTypeError, InvalidArgumentError
from .base import compute_dtype
from .state import cast

if TYPE_CHECKING:
    from ..tree import PyTree

__all__ = ["clip_grad_norm", "clip_grad_value", "global_norm"]


def global_norm(values: PyTree, norm_type: float = 2.0) -> Tensor:
    """The norm of a tree of gradients or parameters as one vector.

    Half-precision tensors are summed in float32.

    Args:
        values: A tree of floating-point tensors.
        norm_type: The order of the norm, above 0; ``inf`` is the largest absolute value.

    Returns:
        A scalar tensor.

    Raises:
        InvalidArgumentError: There are no tensors, or the order is not above 0.
        DTypeError: A tensor is not floating-point.

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
    wide = [cast(leaf, compute_dtype(leaf)) for leaf in leaves]
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


def clip_grad_norm(grads: PyTree, max_norm: float, norm_type: float = 2.0) -> tuple[PyTree, Tensor]:
    """Scales gradients so that their global norm is at most ``max_norm``.

    Args:
        grads: A tree of gradients.
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
    return tree.map(lambda g: g * cast(factor, g.dtype), grads), norm


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


explain_public(globals())
