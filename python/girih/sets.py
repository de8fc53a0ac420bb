"""Sets of distinct elements: unions, intersections and differences.

Sizes depend on the elements, so these functions evaluate their arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from ._girih import Tensor, _TensorLike

__all__ = ["intersect1d", "setdiff1d", "setxor1d", "trim_zeros", "union1d", "unique_consecutive"]


def _pair(x1: _TensorLike, x2: _TensorLike) -> tuple[Tensor, Tensor]:
    """Two vectors of one dtype."""
    from .dtypes import result_type

    a, b = _girih.asarray(x1).reshape(-1), _girih.asarray(x2).reshape(-1)
    # An empty list has no dtype of its own.
    if b.size == 0 and not hasattr(x2, "dtype"):
        b = b.astype(a.dtype)
    elif a.size == 0 and not hasattr(x1, "dtype"):
        a = a.astype(b.dtype)
    dtype = result_type(a, b)
    return a.astype(dtype), b.astype(dtype)


def _unique(x: Tensor) -> Tensor:
    distinct: Tensor = _girih.unique(x)
    return distinct


def union1d(x1: _TensorLike, x2: _TensorLike) -> Tensor:
    """The distinct elements of both, in ascending order.

    Args:
        x1: elements, in any shape.
        x2: other elements.

    Returns:
        A vector of the promoted dtype.

    Example:
        >>> gr.union1d([2, 1], [3, 1])
        tensor([1, 2, 3], dtype=int64)
    """
    return _unique(_girih.concat(list(_pair(x1, x2)), axis=0))


def intersect1d(
    x1: _TensorLike, x2: _TensorLike, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """The distinct elements that are in both, in ascending order.

    Args:
        x1: elements, in any shape.
        x2: other elements.
        assume_unique: accepted for NumPy's code; the result is the same.
        return_indices: whether the positions of the first occurrences in each are given too.

    Returns:
        A vector; with return_indices three.

    Example:
        >>> gr.intersect1d([2, 1, 3], [3, 1])
        tensor([1, 3], dtype=int64)
    """
    a, b = _pair(x1, x2)
    first, place, _, _ = _girih.unique_all(a)
    common = first[_girih.isin(first, b)]
    if not return_indices:
        return common
    second, other, _, _ = _girih.unique_all(b)
    return common, place[_girih.isin(first, b)], other[_girih.isin(second, a)]


def setdiff1d(x1: _TensorLike, x2: _TensorLike, assume_unique: bool = False) -> Tensor:
    """The distinct elements of the first that are not in the second, in ascending order.

    Args:
        x1: elements, in any shape.
        x2: the elements to leave out.
        assume_unique: whether the elements of the first are distinct, which then keep their order.

    Returns:
        A vector.

    Example:
        >>> gr.setdiff1d([3, 2, 1], [2])
        tensor([1, 3], dtype=int64)
    """
    a, b = _pair(x1, x2)
    a = a if assume_unique else _unique(a)
    return a[_girih.isin(a, b, invert=True)]


def setxor1d(x1: _TensorLike, x2: _TensorLike, assume_unique: bool = False) -> Tensor:
    """The distinct elements that are in exactly one of both, in ascending order.

    Args:
        x1: elements, in any shape.
        x2: other elements.
        assume_unique: accepted for NumPy's code; the result is the same.

    Returns:
        A vector.

    Example:
        >>> gr.setxor1d([1, 2], [2, 3])
        tensor([1, 3], dtype=int64)
    """
    a, b = (_unique(x) for x in _pair(x1, x2))
    both = [a[_girih.isin(a, b, invert=True)], b[_girih.isin(b, a, invert=True)]]
    return _girih.sort(_girih.concat(both, axis=0))


def unique_consecutive(
    x: _TensorLike,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    dim: int | None = None,
) -> Any:
    """The first of each run of equal elements, or of equal slices along an axis.

    Args:
        x: a tensor.
        return_inverse: whether the run of each element is given too.
        return_counts: whether the lengths of the runs are given too.
        axis: the axis; by default the tensor is flattened.
        dim: another name for axis.

    Returns:
        The elements; a tuple of them and of what else is asked for.

    Example:
        >>> gr.unique_consecutive([1, 1, 2, 1])
        tensor([1, 2, 1], dtype=int64)
    """
    from .arranging import axis_of, one_axis

    x = _girih.asarray(x)
    axis = one_axis("unique_consecutive", axis, dim)
    if axis is not None:
        axis = axis_of("unique_consecutive", axis, x.ndim)
    flat = x.reshape(-1) if axis is None else _girih.moveaxis(x, axis, 0)
    changes = flat[1:] != flat[:-1]
    changes = changes.any(list(range(1, flat.ndim))) if flat.ndim > 1 else changes
    begins = _girih.concat([_girih.ones((min(flat.shape[0], 1),), dtype="bool"), changes], axis=0)
    starts = _girih.flatnonzero(begins)
    values = _girih.take(flat, starts, 0)
    found: list[Tensor] = [values if axis is None else _girih.moveaxis(values, 0, axis)]
    if return_inverse:
        inverse = _girih.cumsum(begins.astype(_girih.int64), 0) - 1
        found.append(inverse.reshape(x.shape) if axis is None else inverse)
    if return_counts:
        ends = _girih.concat([starts, _girih.asarray([flat.shape[0]])], axis=0)
        found.append(ends[1:] - ends[:-1] if starts.size else starts)
    return found[0] if len(found) == 1 else tuple(found)


def trim_zeros(x: _TensorLike, trim: str = "fb") -> Tensor:
    """Without the zeros at the ends of a vector.

    Args:
        x: a vector.
        trim: which ends: "f" for the front, "b" for the back, or both.

    Raises:
        ShapeError: x is no vector.
        InvalidArgumentError: trim has other letters.

    Example:
        >>> gr.trim_zeros([0, 1, 0, 2, 0])
        tensor([1, 0, 2], dtype=int64)
    """
    x = _girih.asarray(x)
    if x.ndim != 1:
        raise ShapeError(f"trim_zeros: a vector is expected, got {list(x.shape)}")
    if set(trim.lower()) - {"f", "b"}:
        raise InvalidArgumentError(f"trim_zeros: trim is 'f', 'b' or 'fb', got {trim!r}")
    places = _girih.flatnonzero(x).numpy()
    if not len(places):
        return x[:0]
    first = int(places[0]) if "f" in trim.lower() else 0
    last = int(places[-1]) + 1 if "b" in trim.lower() else x.shape[0]
    return x[first:last]


explain_public(globals())
