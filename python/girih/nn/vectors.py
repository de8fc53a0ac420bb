"""Conversion of parameters to one vector, and back."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import _girih, tree
from .._girih import has_protocol
from ..checks import explain_public, items
from ..errors import InvalidArgumentError, ShapeError
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .._girih import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _structure(parameters: Any) -> Any:
    if isinstance(parameters, Module):
        return parameters.parameters_tree()
    if isinstance(parameters, (dict, list, tuple)) or has_protocol(parameters, "shape"):
        return parameters
    return items(parameters)


def parameters_to_vector(parameters: Module | Iterable[Tensor] | Any) -> Tensor:
    """The concatenated elements of all parameters or gradients.

    Args:
        parameters: A module, an iterable of tensors, or any pytree.

    Returns:
        A tensor with one axis; dtypes promote.

    Raises:
        InvalidArgumentError: There is no tensor.

    Example:
        >>> import girih as gr
        >>> gr.nn.parameters_to_vector({"w": gr.ones([2, 2]), "b": gr.zeros([1])}).tolist()
        [0.0, 1.0, 1.0, 1.0, 1.0]
    """
    leaves = tree.leaves(_structure(parameters))
    if not leaves:
        raise InvalidArgumentError("parameters_to_vector: there is no tensor to put in a vector")
    return _girih.concat([_girih.asarray(leaf).reshape(-1) for leaf in leaves], 0)


def vector_to_parameters(vector: Tensor, parameters: Module | Iterable[Tensor] | Any) -> Any:
    """The inverse of :func:`parameters_to_vector`; returns new tensors, because tensors are values.

    Args:
        vector: A tensor with one axis and as many elements as the parameters.
        parameters: A module, an iterable of tensors, or any pytree, which gives shapes and dtypes.

    Returns:
        The vector's elements in the structure of the parameters; for a module, the structure of
        ``parameters_tree()``, which ``module.update`` takes.

    Raises:
        ShapeError: The vector has a different number of elements, or more axes.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.Linear(2, 1, bias=False)
        >>> _ = layer.update(gr.nn.vector_to_parameters(gr.asarray([3.0, 4.0]), layer))
        >>> layer.weight.tolist()
        [[3.0, 4.0]]
    """
    leaves, structure = tree.flatten(_structure(parameters))
    leaves = [_girih.asarray(leaf) for leaf in leaves]
    sizes = [prod(leaf.shape) for leaf in leaves]
    if tuple(vector.shape) != (sum(sizes),):
        raise ShapeError(
            f"vector_to_parameters: the parameters have {sum(sizes)} elements, got a vector of "
            f"shape {list(vector.shape)}"
        )
    parts, at = [], 0
    for leaf, size in zip(leaves, sizes, strict=True):
        parts.append(vector[at : at + size].reshape(leaf.shape).astype(leaf.dtype))
        at += size
    return tree.unflatten(structure, parts)


explain_public(globals())
