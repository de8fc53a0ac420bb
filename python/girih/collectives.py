"""Collectives over the named axes of batches.

A function under ``vmap(f, axis_name="i")`` works on one member of the batch; the collectives access
the other members by the name of the axis. All collectives accept pytrees of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _girih, tree
from .checks import explain_public, items

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
]

#: The name of an axis, or several names, of which the first varies slowest.
AxisName = str | Sequence[str]


def psum(x: Any, axis_name: AxisName) -> Any:
    """The sum over the members of a batch, which all members receive.

    The gradient with respect to a member's ``x`` is the sum of the cotangents of all members.

    Args:
        x: A pytree of tensors; bool and integers are summed in the dtypes of ``gr.sum``.
        axis_name: The name of the batch axis, or several names, to sum over all of these axes.

    Returns:
        A pytree of tensors with the shapes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No enclosing function is batched over an axis of that name.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: x / gr.psum(x, "i"), axis_name="i")(gr.asarray([1.0, 3.0])).tolist()
        [0.25, 0.75]
    """
    return tree.map(lambda leaf: _girih.collective_reduce("sum", leaf, axis_name), x)


def pmean(x: Any, axis_name: AxisName) -> Any:
    """The mean over the members of a batch, which all members receive; integers become float32.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.

    Returns:
        A pytree of floating-point tensors with the shapes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: x - gr.pmean(x, "i"), axis_name="i")(gr.asarray([1.0, 3.0])).tolist()
        [-1.0, 1.0]
    """
    return tree.map(lambda leaf: _girih.collective_reduce("mean", leaf, axis_name), x)


def pmax(x: Any, axis_name: AxisName) -> Any:
    """The maximum over the members of a batch, which all receive; NaN if any member is NaN.

    Args:
        x: A pytree of real tensors.
        axis_name: The name of the batch axis, or several.

    Returns:
        A pytree of tensors with the shapes and dtypes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.
        DTypeError: ``x`` is complex: complex numbers have no order.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: gr.pmax(x, "i"), axis_name="i")(gr.asarray([1, 3])).tolist()
        [3, 3]
    """
    return tree.map(lambda leaf: _girih.collective_reduce("max", leaf, axis_name), x)


def pmin(x: Any, axis_name: AxisName) -> Any:
    """The minimum over the members of a batch, which all receive; NaN if any member is NaN.

    Args:
        x: A pytree of real tensors.
        axis_name: The name of the batch axis, or several.

    Returns:
        A pytree of tensors with the shapes and dtypes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.
        DTypeError: ``x`` is complex: complex numbers have no order.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: gr.pmin(x, "i"), axis_name="i")(gr.asarray([1, 3])).tolist()
        [1, 1]
    """
    return tree.map(lambda leaf: _girih.collective_reduce("min", leaf, axis_name), x)


def all_gather(x: Any, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> Any:
    """Stacks the values of all members of a batch; all members receive the result.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.
        axis: The position of the new axis along which the members' values are stacked.
        tiled: Concatenates the values along the existing axis instead.

    Returns:
        A pytree of tensors with one more axis; with ``tiled``, the existing axis is longer.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.
        AxisError: ``axis`` does not exist.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: gr.all_gather(x, "i"), axis_name="i")(gr.asarray([1, 3])).tolist()
        [[1, 3], [1, 3]]
    """
    return tree.map(lambda leaf: _girih.collective_gather(leaf, axis_name, axis, tiled), x)


def psum_scatter(
    x: Any, axis_name: AxisName, *, scatter_dimension: int = 0, tiled: bool = False
) -> Any:
    """Each member's part of the sum over the members of a batch.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.
        scatter_dimension: The axis with one element for each member; it is removed.
        tiled: Keeps the axis, and divides it into as many equal parts as there are members.

    Returns:
        A pytree of tensors without the axis; with ``tiled``, the axis is shorter.

    Raises:
        InvalidArgumentError: No batch has an axis of that name. The axis has another size.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([[1, 2], [10, 20]])
        >>> gr.vmap(lambda x: gr.psum_scatter(x, "i"), axis_name="i")(x).tolist()
        [11, 22]
    """
    return tree.map(
        lambda leaf: _girih.collective_scatter(leaf, axis_name, scatter_dimension, tiled), x
    )


def all_to_all(
    x: Any, axis_name: AxisName, split_axis: int, concat_axis: int, *, tiled: bool = False
) -> Any:
    """Sends a part of each member's value to each member of a batch.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.
        split_axis: The axis with one element for each member, which goes to that member.
        concat_axis: The axis along which the received elements are stacked, in the order of the
            senders.
        tiled: Splits the axis into as many equal parts as there are members, and concatenates the
            received parts along the existing axis.

    Returns:
        A pytree of tensors with as many elements as the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name. The axis to split has another size.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([[1, 2], [10, 20]])
        >>> gr.vmap(lambda x: gr.all_to_all(x, "i", 0, 0), axis_name="i")(x).tolist()
        [[1, 10], [2, 20]]
    """
    return tree.map(
        lambda leaf: _girih.collective_exchange(leaf, axis_name, split_axis, concat_axis, tiled), x
    )


def ppermute(x: Any, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> Any:
    """Sends values from members of a batch to other members.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.
        perm: Pairs of a source and a destination. A member is at most once a source, and at most
            once a destination. A member that is not a destination gets zeros.

    Returns:
        A pytree of tensors with the shapes and dtypes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name. A member does not exist, or is a
            source or a destination twice.

    Example:
        >>> import girih as gr
        >>> shift = lambda x: gr.ppermute(x, "i", [(0, 1), (1, 2)])
        >>> gr.vmap(shift, axis_name="i")(gr.asarray([1, 2, 3])).tolist()
        [0, 1, 2]
    """
    pairs = items(perm)
    return tree.map(lambda leaf: _girih.collective_permute(leaf, axis_name, pairs), x)


def pshuffle(x: Any, axis_name: AxisName, perm: Sequence[int]) -> Any:
    """Gives each member of a batch the value of member ``perm[its index]``.

    Args:
        x: A pytree of tensors.
        axis_name: The name of the batch axis, or several.
        perm: A permutation of the indices of all members.

    Returns:
        A pytree of tensors with the shapes and dtypes of the leaves of ``x``.

    Raises:
        InvalidArgumentError: No batch has an axis of that name. ``perm`` is not a permutation of
            all members.

    Example:
        >>> import girih as gr
        >>> back = lambda x: gr.pshuffle(x, "i", [2, 1, 0])
        >>> gr.vmap(back, axis_name="i")(gr.asarray([1, 2, 3])).tolist()
        [3, 2, 1]
    """
    order = items(perm)
    return tree.map(lambda leaf: _girih.collective_shuffle(leaf, axis_name, order), x)


def axis_index(axis_name: AxisName) -> Tensor:
    """The member's own index along a batch axis, an int64 scalar.

    Args:
        axis_name: The name of the batch axis, or several, of which the first varies slowest.

    Returns:
        A scalar of int64.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: x * gr.axis_index("i"), axis_name="i")(gr.asarray([5, 5])).tolist()
        [0, 5]
    """
    return _girih.collective_index(axis_name)


def axis_size(axis_name: AxisName) -> int:
    """The number of members along a batch axis; symbolic if the size of the batch is symbolic.

    Args:
        axis_name: The name of the batch axis, or several names, for the product of their sizes.

    Returns:
        A number, or a symbolic size.

    Raises:
        InvalidArgumentError: No batch has an axis of that name.

    Example:
        >>> import girih as gr
        >>> gr.vmap(lambda x: x / gr.axis_size("i"), axis_name="i")(gr.asarray([2.0, 4.0])).tolist()
        [1.0, 2.0]
    """
    return _girih.collective_size(axis_name)


explain_public(globals())
