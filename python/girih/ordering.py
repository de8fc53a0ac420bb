"""Orders, statistics and differences by the names of NumPy and PyTorch, as compositions of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih
from ._girih import Tensor
from .arranging import at_least, axis_of, one_axis, part, whole_number
from .checks import explain_public, items
from .errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import _TensorLike

__all__ = [
    "AMinMax",
    "KthValue",
    "Mode",
    "aminmax",
    "argpartition",
    "average",
    "ediff1d",
    "gradient",
    "kthvalue",
    "lexsort",
    "mode",
    "msort",
    "partition",
    "ptp",
    "std_mean",
    "unwrap",
    "var_mean",
]


class AMinMax(NamedTuple):
    """The smallest and the largest elements."""

    min: Tensor
    max: Tensor


class Mode(NamedTuple):
    """The most frequent elements, and where they are."""

    values: Tensor
    indices: Tensor


class KthValue(NamedTuple):
    """The elements at a place in ascending order, and where they are."""

    values: Tensor
    indices: Tensor


def ptp(x: _TensorLike, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The largest element less the smallest, over axes, all by default.

    Args:
        x: a tensor.
        axis: the axis or axes.
        keepdims: whether reduced axes stay, with size one.

    Raises:
        ShapeError: There are no elements.

    Example:
        >>> gr.ptp([3, 1, 5])
        tensor(4, dtype=int64)
    """
    x = _girih.asarray(x)
    return _girih.max(x, axis, keepdims) - _girih.min(x, axis, keepdims)


def average(
    x: _TensorLike,
    axis: Any = None,
    weights: _TensorLike = None,
    returned: bool = False,
    *,
    keepdims: bool = False,
) -> Any:
    """The mean weighted by weights, over axes, all by default.

    Args:
        x: a tensor.
        axis: the axis or axes.
        weights: of the shape of x, or a vector along the only axis; equal by default.
        returned: whether the sum of the weights is returned too.
        keepdims: whether reduced axes stay, with size one.

    Returns:
        The averages; a pair of them and the sums of the weights with ``returned``.

    Raises:
        ShapeError: The weights do not fit.

    Example:
        >>> gr.average([1.0, 4.0], weights=[3.0, 1.0])
        tensor(1.75, dtype=float32)
    """
    x = _girih.asarray(x)
    if weights is None:
        mean = _girih.mean(x, axis, keepdims)
        count = x.size // max(mean.size, 1)
        return (mean, _girih.full_like(mean, count)) if returned else mean
    w = _girih.asarray(weights)
    if w.shape != x.shape:
        if w.ndim != 1 or axis is None:
            raise ShapeError(
                f"average: weights {list(w.shape)} need the shape {list(x.shape)}, or one axis"
            )
        place = axis_of("average", axis, x.ndim)
        if w.shape[0] != x.shape[place]:
            raise ShapeError(
                f"average: {w.shape[0]} weights do not fit axis {place} of {list(x.shape)}"
            )
        w = w.reshape((-1,) + (1,) * (x.ndim - place - 1))
    total = _girih.sum(_girih.broadcast_to(w, x.shape), axis, keepdims)
    value = _girih.sum(x * w, axis, keepdims) / total
    return (value, total.astype(value.dtype)) if returned else value


def aminmax(
    x: _TensorLike,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    dim: int | None = None,
    keepdim: bool = False,
) -> AMinMax:
    """The smallest and the largest element, along an axis or of all.

    Args:
        x: a tensor.
        axis: the axis, all by default.
        keepdims: whether the axis stays, with size one.
        dim: another name for axis.
        keepdim: another name for keepdims.

    Returns:
        The two.

    Raises:
        ShapeError: There are no elements.

    Example:
        >>> gr.aminmax([3, 1, 5])
        AMinMax(min=tensor(1, dtype=int64), max=tensor(5, dtype=int64))
    """
    axis, keep = one_axis("aminmax", axis, dim), keepdims or keepdim
    return AMinMax(_girih.min(x, axis, keep), _girih.max(x, axis, keep))


def std_mean(
    x: _TensorLike,
    axis: Any = None,
    *,
    correction: float = 1,
    keepdims: bool = False,
    dim: Any = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over axes, all by default.

    Args:
        x: a tensor.
        axis: the axis or axes.
        correction: what is subtracted from the number of elements in the divisor; PyTorch's 1.
        keepdims: whether reduced axes stay, with size one.
        dim: another name for axis.
        keepdim: another name for keepdims.

    Returns:
        The two.

    Example:
        >>> gr.std_mean([1.0, 3.0])
        (tensor(1.4142135, dtype=float32), tensor(2., dtype=float32))
    """
    axis, keep = one_axis("std_mean", axis, dim), keepdims or keepdim
    spread = _girih.std(x, axis, keep, correction=correction)
    return spread, _girih.mean(x, axis, keep)


def var_mean(
    x: _TensorLike,
    axis: Any = None,
    *,
    correction: float = 1,
    keepdims: bool = False,
    dim: Any = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Variance and mean over axes, all by default.

    Args:
        x: a tensor.
        axis: the axis or axes.
        correction: what is subtracted from the number of elements in the divisor; PyTorch's 1.
        keepdims: whether reduced axes stay, with size one.
        dim: another name for axis.
        keepdim: another name for keepdims.

    Returns:
        The two.

    Example:
        >>> gr.var_mean([1.0, 3.0])
        (tensor(2., dtype=float32), tensor(2., dtype=float32))
    """
    axis, keep = one_axis("var_mean", axis, dim), keepdims or keepdim
    spread = _girih.var(x, axis, keep, correction=correction)
    return spread, _girih.mean(x, axis, keep)


def mode(
    x: _TensorLike,
    axis: int = -1,
    keepdims: bool = False,
    *,
    dim: int | None = None,
    keepdim: bool = False,
) -> Mode:
    """The most frequent element along an axis, the smallest of several, and an index of it.

    Args:
        x: a tensor of at least one axis.
        axis: the axis.
        keepdims: whether the axis stays, with size one.
        dim: another name for axis.
        keepdim: another name for keepdims.

    Returns:
        The elements, and the index of the last place of each.

    Raises:
        ShapeError: The axis has no elements.

    Example:
        >>> gr.mode([1, 2, 2, 3])
        Mode(values=tensor(2, dtype=int64), indices=tensor(2, dtype=int64))
    """
    x = at_least("mode", x, 1)
    axis = axis_of("mode", one_axis("mode", axis, dim, -1), x.ndim)
    if x.shape[axis] == 0:
        raise ShapeError(f"mode: axis {axis} of {list(x.shape)} has no elements")
    order = _girih.argsort(x, axis)
    ranked = _girih.take_along_axis(x, order, axis)
    places = _girih.arange(x.shape[axis]).reshape((-1,) + (1,) * (x.ndim - axis - 1))
    first = _girih.concat(
        [
            _girih.ones_like(ranked[part(axis, slice(0, 1))], dtype="bool"),
            ranked[part(axis, slice(1, None))] != ranked[part(axis, slice(0, -1))],
        ],
        axis=axis,
    )
    # The length of the run of equal elements that ends at each place; the first longest run wins.
    start = _girih.cummax(_girih.where(first, places, 0), axis)
    best = _girih.argmax(places - start, axis, True)
    index = _girih.take_along_axis(order, best, axis)
    value = _girih.take_along_axis(x, index, axis)
    return (
        Mode(value, index)
        if keepdims or keepdim
        else Mode(value.squeeze(axis), index.squeeze(axis))
    )


def kthvalue(
    x: _TensorLike,
    k: int,
    axis: int = -1,
    keepdims: bool = False,
    *,
    dim: int | None = None,
    keepdim: bool = False,
) -> KthValue:
    """The k-th smallest element along an axis, counted from 1, and its index.

    Args:
        x: a tensor of at least one axis.
        k: the place, from 1.
        axis: the axis.
        keepdims: whether the axis stays, with size one.
        dim: another name for axis.
        keepdim: another name for keepdims.

    Returns:
        The elements and their indices.

    Raises:
        InvalidArgumentError: There is no such place.

    Example:
        >>> gr.kthvalue([30, 10, 20], 2)
        KthValue(values=tensor(20, dtype=int64), indices=tensor(2, dtype=int64))
    """
    x = at_least("kthvalue", x, 1)
    axis = axis_of("kthvalue", one_axis("kthvalue", axis, dim, -1), x.ndim)
    size = x.shape[axis]
    if not 1 <= k <= size:
        raise InvalidArgumentError(f"kthvalue: k is from 1 to {size}, got {k}")
    value, index = _girih.kth_value(x, k, axis)
    if keepdims or keepdim:
        return KthValue(value, index)
    return KthValue(value.squeeze(axis), index.squeeze(axis))


def _checked_kth(name: str, x: Tensor, kth: Any, axis: int) -> None:
    size = x.shape[axis]
    for k in kth if isinstance(kth, (list, tuple)) else [kth]:
        place = whole_number(name, k)
        if not -size <= place < size:
            raise InvalidArgumentError(f"{name}: kth {place} is not on axis {axis} of size {size}")


def partition(x: _TensorLike, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """Rearranged so that the element at ``kth`` stands where it would in ascending order, with no
    larger one before it and no smaller one behind it.

    Args:
        x: a tensor.
        kth: a position, or several.
        axis: the axis; None for the flattened tensor.

    Returns:
        A tensor of the shape of x. All elements are in order, which is more than asked for.

    Raises:
        InvalidArgumentError: There is no such position.

    Example:
        >>> gr.partition([3, 1, 2], 1)[1]
        tensor(2, dtype=int64)
    """
    x = _girih.asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (at_least("partition", x, 1), axis)
    _checked_kth("partition", x, kth, axis_of("partition", axis, x.ndim))
    return _girih.sort(x, axis)


def argpartition(x: _TensorLike, kth: int | Sequence[int], axis: int | None = -1) -> Tensor:
    """The indices by which ``partition`` rearranges.

    Args:
        x: a tensor.
        kth: a position, or several.
        axis: the axis; None for the flattened tensor.

    Returns:
        An int64 tensor of the shape of x.

    Raises:
        InvalidArgumentError: There is no such position.

    Example:
        >>> gr.argpartition([30, 10, 20], 1)[1]
        tensor(2, dtype=int64)
    """
    x = _girih.asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (at_least("argpartition", x, 1), axis)
    _checked_kth("argpartition", x, kth, axis_of("argpartition", axis, x.ndim))
    return _girih.argsort(x, axis)


def msort(x: _TensorLike) -> Tensor:
    """Sorts along the first axis.

    Args:
        x: a tensor of at least one axis.

    Example:
        >>> gr.msort([3, 1, 2])
        tensor([1, 2, 3], dtype=int64)
    """
    return _girih.sort(at_least("msort", x, 1), 0)


def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """The indices that sort by several keys, the last one first.

    Args:
        keys: tensors of one shape, or one whose first axis counts the keys.
        axis: the axis of each key along which to sort.

    Returns:
        An int64 tensor of the shape of a key.

    Raises:
        ShapeError: There are no keys.

    Example:
        >>> gr.lexsort([[2, 1, 0], [0, 0, 1]])
        tensor([1, 0, 2], dtype=int64)
    """
    listed = isinstance(keys, (list, tuple))
    parts = [_girih.asarray(k) for k in keys] if listed else list(at_least("lexsort", keys, 1))
    if not parts:
        raise ShapeError("lexsort: there are no keys")
    if parts[0].ndim == 0:
        return _girih.zeros((), dtype=_girih.int64)
    order = _girih.argsort(parts[0], axis)
    for key in parts[1:]:
        # Equal elements keep their order, which earlier keys decided.
        next_order = _girih.argsort(_girih.take_along_axis(key, order, axis), axis)
        order = _girih.take_along_axis(order, next_order, axis)
    return order


def ediff1d(x: _TensorLike, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """The differences of neighbours of the flattened tensor.

    Args:
        x: a tensor.
        to_end: what is put behind the differences.
        to_begin: what is put before them.

    Example:
        >>> gr.ediff1d([1, 4, 9])
        tensor([3, 5], dtype=int64)
    """
    flat = _girih.asarray(x).reshape(-1)
    parts = [flat[1:] - flat[:-1]]
    if to_begin is not None:
        parts.insert(0, _girih.asarray(to_begin).astype(flat.dtype).reshape(-1))
    if to_end is not None:
        parts.append(_girih.asarray(to_end).astype(flat.dtype).reshape(-1))
    return _girih.concat(parts, axis=0)


def gradient(x: _TensorLike, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Derivatives of samples, by central differences inside and one-sided ones at the ends.

    For derivatives of functions see :func:`girih.grad`.

    Args:
        x: samples, of at least ``edge_order + 1`` along each axis.
        spacing: the distance of neighbours: one number for all axes, or for each axis a number or
            the coordinates of the samples; 1 by default.
        axis: the axis or axes, all by default.
        edge_order: 1 or 2, the order of the differences at the ends.

    Returns:
        A tensor of the shape of x, or a list of one for each axis.

    Raises:
        InvalidArgumentError: There are as many distances as axes neither, or edge_order is another.
        ShapeError: An axis has too few elements, or coordinates do not fit.

    Example:
        >>> gr.gradient([1.0, 4.0, 9.0])
        tensor([3., 4., 5.], dtype=float32)
    """
    x = _girih.asarray(x)
    x = x.astype(_girih.float32) if x.dtype.name.startswith(("int", "uint", "bool")) else x
    given = items(axis) if isinstance(axis, (list, tuple)) else [axis]
    axes = list(range(x.ndim)) if axis is None else [axis_of("gradient", a, x.ndim) for a in given]
    steps = list(spacing) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise InvalidArgumentError(
            f"gradient: {len(spacing)} distances for {len(axes)} axes, edge_order {edge_order}; "
            "give one distance or one per axis, and 1 or 2"
        )
    found = [_slopes(x, step, place, edge_order) for step, place in zip(steps, axes, strict=True)]
    return (
        found[0]
        if len(found) == 1 and (axis is None or not isinstance(axis, (list, tuple)))
        else found
    )


def _slopes(x: Tensor, step: Any, axis: int, edge_order: int) -> Tensor:
    size = x.shape[axis]
    if size < edge_order + 1:
        raise ShapeError(f"gradient: axis {axis} needs {edge_order + 1} elements, got {size}")
    x = _girih.moveaxis(x, axis, -1)
    if not isinstance(step, (int, float)):
        step = _girih.asarray(step)
    if isinstance(step, Tensor) and step.ndim:
        if tuple(step.shape) != (size,):
            raise ShapeError(
                f"gradient: {list(step.shape)} coordinates do not fit axis {axis} of size {size}"
            )
        gaps = (step[1:] - step[:-1]).astype(x.dtype)
        before, behind = gaps[:-1], gaps[1:]
        inside = (
            x[..., 2:] * before / behind
            - x[..., :-2] * behind / before
            + x[..., 1:-1] * (behind - before) * (before + behind) / (before * behind)
        ) / (before + behind)
    else:
        gaps = None
        inside = (x[..., 2:] - x[..., :-2]) / (2 * step)
    ends = []
    for side in (1, -1):
        a, b = (x[..., 0:1], x[..., 1:2]) if side == 1 else (x[..., -1:], x[..., -2:-1])
        near = step if gaps is None else gaps[:1] if side == 1 else gaps[-1:]
        if edge_order == 1:
            ends.append((b - a) / near * side)
            continue
        c = x[..., 2:3] if side == 1 else x[..., -3:-2]
        next_ = step if gaps is None else gaps[1:2] if side == 1 else gaps[-2:-1]
        value = (
            -a * (2 * near + next_) / (near * (near + next_))
            + b * (near + next_) / (near * next_)
            - c * near / (next_ * (near + next_))
        )
        ends.append(value * side)
    return _girih.moveaxis(_girih.concat([ends[0], inside, ends[1]], axis=-1), -1, axis)


def unwrap(
    x: _TensorLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Tensor:
    """Adds multiples of the period, so that neighbours differ by at most half of it.

    Args:
        x: angles.
        discont: the largest difference that stays; half of the period if that is more.
        axis: the axis.
        period: the period.

    Example:
        >>> gr.unwrap([0.0, 3.0, 6.0 - 2 * gr.pi])
        tensor([0., 3., 6.], dtype=float32)
    """
    x = at_least("unwrap", x, 1)
    axis = axis_of("unwrap", axis, x.ndim)
    x = x.astype(_girih.float32) if x.dtype.name.startswith(("int", "uint", "bool")) else x
    gaps = x[part(axis, slice(1, None))] - x[part(axis, slice(0, -1))]
    half = period / 2
    wrapped = _girih.remainder(gaps + half, period) - half
    wrapped = _girih.where(_girih.logical_and(wrapped == -half, gaps > 0), half, wrapped)
    change = _girih.where(gaps.abs() < (half if discont is None else discont), 0.0, wrapped - gaps)
    added = _girih.cumsum(change, axis)
    head = x[part(axis, slice(0, 1))]
    return _girih.concat([head, x[part(axis, slice(1, None))] + added], axis=axis)


explain_public(globals())
