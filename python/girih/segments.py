"""JAX's reductions of rows by segments, as compositions of ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError, ShapeError
from .selection import identity_of, indices_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import Tensor, _TensorLike

__all__ = ["segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]


def _segments(
    name: str, data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None
) -> tuple[Tensor, Tensor, int]:
    data, ids = _girih.asarray(data), indices_of(name, segment_ids)
    if ids.ndim != 1 or data.ndim == 0 or data.shape[0] != ids.shape[0]:
        raise ShapeError(
            f"{name}: one segment for each row is expected, got {list(ids.shape)} for "
            f"{list(data.shape)}"
        )
    if num_segments is None:
        num_segments = int(ids.max().item()) + 1 if ids.size else 0
    if num_segments < 0:
        raise InvalidArgumentError(f"{name}: num_segments is not negative, got {num_segments}")
    return data, ids, num_segments


def _combined(
    name: str,
    data: _TensorLike,
    segment_ids: _TensorLike,
    num_segments: int | None,
    start: Any,
    method: str,
) -> Tensor:
    data, ids, count = _segments(name, data, segment_ids, num_segments)
    # A row that belongs to no segment goes to one behind the last, which is cut off.
    outside = _girih.logical_or(ids < 0, ids >= count)
    ids = _girih.where(outside, count, ids.astype(_girih.int64))
    shape = (count + 1, *data.shape[1:])
    value = start(data) if callable(start) else start
    first = _girih.full(shape, value, dtype=data.dtype)
    made: Tensor = getattr(first.at[ids], method)(data)
    return made[:count]


def segment_sum(
    data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None = None
) -> Tensor:
    """Sums of the rows of each segment, 0 of none.

    Args:
        data: [n, ...].
        segment_ids: n integers, in any order; rows of ids out of range are left out.
        num_segments: how many segments there are; by default as many as the ids ask for, which
            evaluates them.

    Returns:
        [num_segments, ...], of the dtype of the data.

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> gr.segment_sum([1, 2, 3], [0, 1, 0], 3)
        tensor([4, 2, 0], dtype=int64)
    """
    return _combined("segment_sum", data, segment_ids, num_segments, 0, "add")


def segment_prod(
    data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None = None
) -> Tensor:
    """Products of the rows of each segment, 1 of none.

    Args:
        data: [n, ...].
        segment_ids: n integers, in any order; rows of ids out of range are left out.
        num_segments: how many segments there are; by default as many as the ids ask for, which
            evaluates them.

    Returns:
        [num_segments, ...], of the dtype of the data.

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> gr.segment_prod([1, 2, 3], [0, 1, 0], 3)
        tensor([3, 2, 1], dtype=int64)
    """
    return _combined("segment_prod", data, segment_ids, num_segments, 1, "multiply")


def segment_max(
    data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None = None
) -> Tensor:
    """The largest element of the rows of each segment, the dtype's smallest number of none.

    Args:
        data: [n, ...].
        segment_ids: n integers, in any order; rows of ids out of range are left out.
        num_segments: how many segments there are; by default as many as the ids ask for, which
            evaluates them.

    Returns:
        [num_segments, ...], of the dtype of the data.

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> gr.segment_max([1.0, 2.0, 3.0], [0, 1, 0], 3)
        tensor([  3.,   2., -inf], dtype=float32)
    """
    lowest: Callable[[Tensor], Any] = lambda x: identity_of(x, "amax")
    return _combined("segment_max", data, segment_ids, num_segments, lowest, "max")


def segment_min(
    data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None = None
) -> Tensor:
    """The smallest element of the rows of each segment, the dtype's largest number of none.

    Args:
        data: [n, ...].
        segment_ids: n integers, in any order; rows of ids out of range are left out.
        num_segments: how many segments there are; by default as many as the ids ask for, which
            evaluates them.

    Returns:
        [num_segments, ...], of the dtype of the data.

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> gr.segment_min([1.0, 2.0, 3.0], [0, 1, 0], 3)
        tensor([ 1.,  2., inf], dtype=float32)
    """
    highest: Callable[[Tensor], Any] = lambda x: identity_of(x, "amin")
    return _combined("segment_min", data, segment_ids, num_segments, highest, "min")


def segment_mean(
    data: _TensorLike, segment_ids: _TensorLike, num_segments: int | None = None
) -> Tensor:
    """Means of the rows of each segment, NaN of none. Integers give float32.

    Args:
        data: [n, ...].
        segment_ids: n integers, in any order; rows of ids out of range are left out.
        num_segments: how many segments there are; by default as many as the ids ask for, which
            evaluates them.

    Returns:
        [num_segments, ...].

    Raises:
        ShapeError: There is not one id for each row.

    Example:
        >>> gr.segment_mean([1.0, 2.0, 3.0], [0, 1, 0], 2)
        tensor([2., 2.], dtype=float32)
    """
    data, ids, count = _segments("segment_mean", data, segment_ids, num_segments)
    total = segment_sum(data, ids, count)
    rows = segment_sum(_girih.ones(ids.shape, dtype=_girih.int64), ids, count)
    return total / rows.reshape((-1,) + (1,) * (data.ndim - 1))


explain_public(globals())
