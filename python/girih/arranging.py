"""Parts and joins of tensors by the names of NumPy and PyTorch, as compositions of ops."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public, items
from .errors import AxisError, DTypeError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor, _TensorLike

__all__ = [
    "append",
    "block",
    "block_diag",
    "chunk",
    "delete",
    "diag_embed",
    "dsplit",
    "hsplit",
    "insert",
    "narrow",
    "unflatten",
    "vsplit",
]


def whole_number(name: str, value: Any) -> int:
    """An integer, for messages of a function by its name.

    Raises:
        DTypeError: The value is another object.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{name}: an integer is expected, got a {type(value).__name__}") from None


def axis_of(name: str, axis: Any, rank: int) -> int:
    """An axis as a number from 0, for messages of a function by its name.

    Raises:
        AxisError: There is no such axis.
    """
    found = whole_number(name, axis)
    if not -rank <= found < rank:
        raise AxisError(f"{name}: axis {found} is out of range for a tensor of rank {rank}")
    return found % rank


def one_axis(name: str, axis: Any, dim: Any, default: int | None = None) -> Any:
    """The axis, from ``axis`` or its other spelling ``dim``.

    Raises:
        InvalidArgumentError: Both are given.
    """
    if dim is None:
        return axis
    if axis is not None and axis != default:
        raise InvalidArgumentError(
            f"{name}: axis and dim are two spellings of one argument; give one"
        )
    return dim


def part(axis: int, index: _TensorLike) -> tuple[Any, ...]:
    """The index of a part of an axis."""
    return (slice(None),) * axis + (index,)


def hsplit(x: _TensorLike, sections: int | Sequence[int]) -> list[Tensor]:
    """Splits along the second axis, or along the only one.

    Args:
        x: a tensor of at least one axis.
        sections: the number of equal parts, or the indices at which to cut.

    Returns:
        The parts.

    Raises:
        ShapeError: x is a scalar, or the parts are not equal.

    Example:
        >>> [part.shape for part in gr.hsplit(gr.zeros(2, 4), 2)]
        [(2, 2), (2, 2)]
    """
    x = at_least("hsplit", x, 1)
    return list(_girih.split(x, sections, 1 if x.ndim > 1 else 0))


def vsplit(x: _TensorLike, sections: int | Sequence[int]) -> list[Tensor]:
    """Splits along the first axis of at least two.

    Args:
        x: a tensor of at least two axes.
        sections: the number of equal parts, or the indices at which to cut.

    Returns:
        The parts.

    Raises:
        ShapeError: x has fewer axes, or the parts are not equal.

    Example:
        >>> [part.shape for part in gr.vsplit(gr.zeros(2, 4), 2)]
        [(1, 4), (1, 4)]
    """
    return list(_girih.split(at_least("vsplit", x, 2), sections, 0))


def dsplit(x: _TensorLike, sections: int | Sequence[int]) -> list[Tensor]:
    """Splits along the third axis.

    Args:
        x: a tensor of at least three axes.
        sections: the number of equal parts, or the indices at which to cut.

    Returns:
        The parts.

    Raises:
        ShapeError: x has fewer axes, or the parts are not equal.

    Example:
        >>> [part.shape for part in gr.dsplit(gr.zeros(1, 2, 4), 2)]
        [(1, 2, 2), (1, 2, 2)]
    """
    return list(_girih.split(at_least("dsplit", x, 3), sections, 2))


def at_least(name: str, x: _TensorLike, rank: int) -> Tensor:
    """A tensor that has at least some number of axes, for messages of a function by its name."""
    x = _girih.asarray(x)
    if x.ndim < rank:
        raise ShapeError(
            f"{name}: a tensor of rank {rank} or more is expected, got {list(x.shape)}"
        )
    return x


def chunk(x: _TensorLike, chunks: int, axis: int = 0, *, dim: int | None = None) -> list[Tensor]:
    """Splits an axis into parts of equal size, but for the last; as PyTorch's function of the name.

    Args:
        x: a tensor of at least one axis.
        chunks: how many parts at most.
        axis: the axis.
        dim: another name for axis.

    Returns:
        The parts; fewer than asked for if the parts of the rounded size are fewer.

    Raises:
        InvalidArgumentError: chunks is not positive.

    Example:
        >>> [part.shape[0] for part in gr.chunk(gr.zeros(5), 3)]
        [2, 2, 1]
    """
    x = at_least("chunk", x, 1)
    axis = axis_of("chunk", one_axis("chunk", axis, dim, 0), x.ndim)
    if chunks < 1:
        raise InvalidArgumentError(f"chunk: the number of parts is positive, got {chunks}")
    size = x.shape[axis]
    width = max(-(-size // chunks), 1)
    return list(_girih.split(x, list(range(width, size, width)), axis)) if size else [x] * chunks


def narrow(x: _TensorLike, axis: int, start: int, length: int) -> Tensor:
    """A part of an axis, ``x[start : start + length]`` along it.

    Args:
        x: a tensor of at least one axis.
        axis: the axis.
        start: the first index; negative ones count from the end.
        length: how many.

    Raises:
        InvalidArgumentError: The axis has no such part.

    Example:
        >>> gr.narrow(gr.arange(5), 0, 1, 3)
        tensor([1, 2, 3], dtype=int64)
    """
    x = at_least("narrow", x, 1)
    axis = axis_of("narrow", axis, x.ndim)
    size = x.shape[axis]
    first = start + size if start < 0 else start
    if first < 0 or length < 0 or first + length > size:
        raise InvalidArgumentError(
            f"narrow: {length} elements from {start} are not on axis {axis} of size {size}"
        )
    return x[part(axis, slice(first, first + length))]


def unflatten(
    x: _TensorLike, axis: int | None = None, sizes: Sequence[int] = (), *, dim: int | None = None
) -> Tensor:
    """Splits an axis into several, whose sizes have the product of its size; one may be -1.

    Args:
        x: a tensor of at least one axis.
        axis: the axis.
        sizes: the sizes.
        dim: another name for axis.

    Raises:
        ShapeError: The sizes do not fit.

    Example:
        >>> gr.unflatten(gr.zeros(2, 6), 1, (3, -1)).shape
        (2, 3, 2)
    """
    x = at_least("unflatten", x, 1)
    axis = one_axis("unflatten", axis, dim)
    if axis is None:
        raise InvalidArgumentError("unflatten: give the axis, and the sizes")
    axis = axis_of("unflatten", axis, x.ndim)
    sizes = items(sizes)
    if -1 in sizes:
        known = math.prod(size for size in sizes if size != -1)
        place = sizes.index(-1)
        sizes[place] = x.shape[axis] // known if known else 0
    if math.prod(sizes) != x.shape[axis]:
        raise ShapeError(f"unflatten: {list(sizes)} does not fit axis {axis} of {list(x.shape)}")
    return x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def block(arrays: Any) -> Tensor:
    """Joins nested lists of tensors: the innermost along the last axis, the next along the one
    before.

    Args:
        arrays: a tensor, or lists of equal depth of them.

    Raises:
        ShapeError: The lists have different depths, or parts do not fit.

    Example:
        >>> gr.block([[gr.ones(1, 1), gr.zeros(1, 1)], [gr.zeros(1, 2)]])
        tensor([[1., 0.],
                [0., 0.]], dtype=float32)
    """

    def depth(value: Any) -> int:
        if not isinstance(value, list):
            return 0
        depths = {depth(part) for part in value}
        if len(depths) != 1:
            raise ShapeError("block: the lists have different depths, or one is empty")
        return 1 + depths.pop()

    def leaves(value: Any) -> list[Tensor]:
        if not isinstance(value, list):
            return [_girih.asarray(value)]
        return [leaf for part in value for leaf in leaves(part)]

    deep = depth(arrays)
    rank = max([deep, *(leaf.ndim for leaf in leaves(arrays))])

    def joined(value: Any, level: int) -> Tensor:
        if not isinstance(value, list):
            leaf = _girih.asarray(value)
            return leaf.reshape((1,) * (rank - leaf.ndim) + tuple(leaf.shape))
        parts = [joined(part, level + 1) for part in value]
        return _girih.concat(parts, axis=level - deep)

    return joined(arrays, 0)


def block_diag(*tensors: _TensorLike) -> Tensor:
    """A matrix with matrices along its diagonal, and zeros elsewhere.

    Args:
        tensors: matrices; vectors are rows, numbers matrices of one element.

    Raises:
        ShapeError: One has more than two axes.

    Example:
        >>> gr.block_diag([[1.0]], [[2.0, 3.0]])
        tensor([[1., 0., 0.],
                [0., 2., 3.]], dtype=float32)
    """
    parts = [_girih.atleast_2d(tensor) for tensor in tensors]
    for part in parts:
        if part.ndim != 2:
            raise ShapeError(f"block_diag: matrices are expected, got {list(part.shape)}")
    if not parts:
        return _girih.zeros((1, 0))
    width, left, rows = sum(part.shape[1] for part in parts), 0, []
    for part in parts:
        right = width - left - part.shape[1]
        rows.append(_girih.pad(part, [(0, 0), (left, right)]))
        left += part.shape[1]
    return _girih.concat(rows, axis=0)


def append(x: _TensorLike, values: _TensorLike, axis: int | None = None) -> Tensor:
    """Joins two tensors along an axis, by default flattened.

    Args:
        x: what comes first.
        values: what comes behind, of the same rank if there is an axis.
        axis: the axis.

    Example:
        >>> gr.append([1, 2], [[3], [4]])
        tensor([1, 2, 3, 4], dtype=int64)
    """
    pair = [_girih.asarray(x), _girih.asarray(values)]
    if axis is None:
        return _girih.concat([part.reshape(-1) for part in pair], axis=0)
    return _girih.concat(pair, axis=axis)


def _places(name: str, obj: Any, size: int) -> Any:
    """Positions along an axis, from 0, as a NumPy array; tensors are evaluated."""
    import numpy as np

    if isinstance(obj, slice):
        return np.arange(size)[obj]
    given = _girih.asarray(obj).numpy()
    if given.dtype == np.bool_:
        if given.shape != (size,):
            raise ShapeError(f"{name}: a mask for axis of size {size} has shape {given.shape}")
        return np.flatnonzero(given)
    if given.size == 0:
        return np.zeros(0, np.int64)
    if given.dtype.kind not in "iu":
        raise InvalidArgumentError(f"{name}: positions are integers, got {given.dtype}")
    return given.astype(np.int64)


def delete(x: _TensorLike, obj: Any, axis: int | None = None) -> Tensor:
    """Without the slices at some positions of an axis, by default of the flattened tensor.

    Args:
        x: a tensor.
        obj: positions: an int, integers, a slice or a mask. They decide the shape, so a tensor is
            evaluated.
        axis: the axis.

    Raises:
        IndexOutOfBoundsError: A position is not on the axis.

    Example:
        >>> gr.delete([1, 2, 3, 4], [0, 2])
        tensor([2, 4], dtype=int64)
    """
    import numpy as np

    from .errors import IndexOutOfBoundsError

    x = _girih.asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis_of("delete", axis, x.ndim))
    size = x.shape[axis]
    places = _places("delete", obj, size)
    for place in places.reshape(-1).tolist():
        if not -size <= place < size:
            raise IndexOutOfBoundsError(f"delete: {place} is not on axis {axis} of size {size}")
    kept = np.ones(size, np.bool_)
    kept[places] = False
    return _girih.take(x, np.flatnonzero(kept), axis)


def insert(x: _TensorLike, obj: Any, values: _TensorLike, axis: int | None = None) -> Tensor:
    """With values before some positions of an axis, by default of the flattened tensor.

    Args:
        x: a tensor.
        obj: positions: an int, integers, a slice or a mask. They decide the shape, so a tensor is
            evaluated.
        values: what is inserted; shapes broadcast, and the dtype becomes that of x.
        axis: the axis.

    Raises:
        IndexOutOfBoundsError: A position is not from 0 to the size of the axis.

    Example:
        >>> gr.insert([1, 2], 1, 9)
        tensor([1, 9, 2], dtype=int64)
    """
    import numpy as np

    from .errors import IndexOutOfBoundsError

    x = _girih.asarray(x)
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis_of("insert", axis, x.ndim))
    size = x.shape[axis]
    given = _places("insert", obj, size)
    places = given.reshape(-1)
    for place in places.tolist():
        if not -size <= place <= size:
            raise IndexOutOfBoundsError(f"insert: {place} is not from 0 to {size}, axis {axis}")
    places = np.where(places < 0, places + size, places)
    new = _girih.asarray(values).astype(x.dtype)
    if given.ndim == 0 and new.ndim == x.ndim:
        # One position for a tensor of several slices.
        places = np.repeat(places, new.shape[axis])
    elif given.ndim == 0 and new.ndim:
        new = _girih.expand_dims(new, axis) if new.ndim == x.ndim - 1 else new
    shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
    new = _girih.broadcast_to(new, shape)
    both = _girih.concat([x, new], axis=axis)
    order = np.argsort(np.concatenate([np.arange(size) + 0.5, places]), kind="stable")
    # An inserted slice stands before the one whose position it was given.
    return _girih.take(both, order, axis)


def diag_embed(x: _TensorLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices with the last axis on a diagonal, and zeros elsewhere.

    Args:
        x: a tensor of at least one axis.
        offset: the diagonal: 0 is the main one, positive ones lie above it.
        axis1: the axis of the result that counts rows.
        axis2: the axis of the result that counts columns.

    Raises:
        AxisError: The axes are equal, or not in the result.

    Example:
        >>> gr.diag_embed([1.0, 2.0])
        tensor([[1., 0.],
                [0., 2.]], dtype=float32)
    """
    x = at_least("diag_embed", x, 1)
    rank, size = x.ndim + 1, x.shape[-1] + abs(offset)
    first, second = axis_of("diag_embed", axis1, rank), axis_of("diag_embed", axis2, rank)
    if first == second:
        raise AxisError(f"diag_embed: the axes {axis1} and {axis2} are one")
    places = _girih.arange(size)
    column = places[None, :] - places[:, None] == offset
    along = [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))]
    rows = _girih.pad(x, along)[..., :, None]
    made = _girih.where(column, rows, _girih.zeros((), dtype=x.dtype))
    return _girih.moveaxis(made, (-2, -1), (first, second))


explain_public(globals())
