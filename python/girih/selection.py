"""Reads and updates of selected elements by PyTorch's names, as compositions of ops.

Tensors are values: each function returns a new tensor. Where several sources meet one element,
sums, products and extremes are over all of them, and of replacements the last one stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Tensor
from .arranging import axis_of
from .checks import explain_public, items
from .errors import DTypeError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from ._girih import DType, _TensorLike

__all__ = [
    "diagonal_scatter",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "select_scatter",
    "slice_scatter",
]


def indices_of(name: str, index: _TensorLike, rank: int | None = None) -> Tensor:
    """Integers, for messages of a function by its name."""
    index = _girih.asarray(index)
    if not index.dtype.name.startswith(("int", "uint")):
        if index.size:
            raise DTypeError(f"{name}: indices are integers, got {index.dtype}")
        index = index.astype(_girih.int64)
    if rank is not None and index.ndim > rank:
        raise ShapeError(f"{name}: a vector of indices is expected, got {list(index.shape)}")
    return index.reshape(-1) if rank == 1 else index


def _along(axis: int, index: _TensorLike) -> tuple[Any, ...]:
    return (slice(None),) * axis + (index,)


def kind_of(dtype: DType) -> int:
    """The place of a dtype's kind among bool, integers, real and complex numbers."""
    name = dtype.name
    if name == "bool":
        return 0
    return 1 if name.startswith(("int", "uint")) else 3 if name.startswith("complex") else 2


def _source(name: str, x: Tensor, source: _TensorLike) -> Tensor:
    """The values in the dtype of the tensor, which they must not leave for a wider kind."""
    source = _girih.asarray(source)
    if kind_of(source.dtype) > kind_of(x.dtype):
        raise DTypeError(f"{name}: values of {source.dtype} do not fit a tensor of {x.dtype}")
    return source.astype(x.dtype)


def index_select(x: _TensorLike, dim: int, index: _TensorLike) -> Tensor:
    """The slices at the indices of an axis, as ``take(x, index, axis)``.

    Args:
        x: a tensor.
        dim: the axis.
        index: a vector of integers.

    Example:
        >>> gr.index_select([[1, 2], [3, 4]], 1, [1])
        tensor([[2],
                [4]], dtype=int64)
    """
    return _girih.take(_girih.asarray(x), indices_of("index_select", index, 1), dim)


def index_add(
    x: _TensorLike, dim: int, index: _TensorLike, source: _TensorLike, *, alpha: Any = 1
) -> Tensor:
    """With slices added at the indices of an axis, as often as each is named.

    Args:
        x: a tensor.
        dim: the axis.
        index: a vector of integers.
        source: what is added, of the shape of x but for the axis, which has the size of the index.
        alpha: a number, the factor of what is added.

    Example:
        >>> gr.index_add([0, 0], 0, [1, 1], [1, 2])
        tensor([0, 3], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("index_add", dim, x.ndim)
    source = _source("index_add", x, source)
    source = (
        source
        if isinstance(alpha, int) and alpha == 1
        else _girih.multiply(source, alpha).astype(x.dtype)
    )
    return x.at[_along(axis, indices_of("index_add", index, 1))].add(source)


def index_copy(x: _TensorLike, dim: int, index: _TensorLike, source: _TensorLike) -> Tensor:
    """With slices replaced at the indices of an axis.

    Args:
        x: a tensor.
        dim: the axis.
        index: a vector of integers.
        source: what is put there, of the shape of x but for the axis.

    Example:
        >>> gr.index_copy([0, 0], 0, [1], [5])
        tensor([0, 5], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("index_copy", dim, x.ndim)
    place = _along(axis, indices_of("index_copy", index, 1))
    return x.at[place].set(_source("index_copy", x, source))


def index_fill(x: _TensorLike, dim: int, index: _TensorLike, value: _TensorLike) -> Tensor:
    """With one value at the indices of an axis.

    Args:
        x: a tensor.
        dim: the axis.
        index: a vector of integers.
        value: a number.

    Example:
        >>> gr.index_fill([1, 2], 0, [1], 0)
        tensor([1, 0], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("index_fill", dim, x.ndim)
    return x.at[_along(axis, indices_of("index_fill", index, 1))].set(value)


def index_put(
    x: _TensorLike, indices: Any, values: _TensorLike, accumulate: bool = False
) -> Tensor:
    """``x.at[indices].set(values)``, or ``add`` with accumulate.

    Args:
        x: a tensor.
        indices: a tuple of tensors, one for each of the first axes.
        values: what is put there; shapes broadcast.
        accumulate: whether values are added.

    Example:
        >>> gr.index_put([1, 2], ([1],), 9)
        tensor([1, 9], dtype=int64)
    """
    x = _girih.asarray(x)
    place = x.at[tuple(_girih.asarray(index) for index in items(indices))]
    return place.add(values) if accumulate else place.set(values)


def index_reduce(
    x: _TensorLike,
    dim: int,
    index: _TensorLike,
    source: _TensorLike,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """With slices combined at the indices of an axis.

    Args:
        x: a tensor.
        dim: the axis.
        index: a vector of integers.
        source: what is combined, of the shape of x but for the axis.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether the elements of x that are met belong to what is combined.

    Raises:
        InvalidArgumentError: There is no such reduction.

    Example:
        >>> gr.index_reduce([1, 1], 0, [1, 1], [2, 3], "prod")
        tensor([1, 6], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("index_reduce", dim, x.ndim)
    place = _along(axis, indices_of("index_reduce", index, 1))
    return _reduced(
        "index_reduce", x, place, _source("index_reduce", x, source), reduce, include_self
    )


def identity_of(x: Tensor, reduce: str) -> Any:
    """The number that changes no result of a reduction in the dtype of a tensor."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    name = x.dtype.name
    if name == "bool":
        return reduce == "amin"
    if name.startswith(("int", "uint")):
        from .dtypes import iinfo

        return iinfo(x.dtype).min if reduce == "amax" else iinfo(x.dtype).max
    return -float("inf") if reduce == "amax" else float("inf")


def _reduced(
    name: str, x: Tensor, place: Any, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    methods = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "max", "amin": "min"}
    if reduce not in methods:
        known = ", ".join(map(repr, methods))
        raise InvalidArgumentError(f"{name}: reduce is one of {known}, got {reduce!r}")
    start = x if include_self else x.at[place].set(identity_of(x, reduce))
    total: Tensor = getattr(start.at[place], methods[reduce])(source)
    if reduce != "mean":
        return total
    ones = _girih.ones_like(x) if include_self else _girih.ones_like(x).at[place].set(0)
    count = ones.at[place].add(_girih.ones_like(source))
    if x.dtype.name.startswith(("int", "uint")):
        return _girih.floor_divide(total, count)
    return total / count


def _position(
    name: str, x: Tensor, dim: int, index: _TensorLike, source: _TensorLike
) -> tuple[Any, Any]:
    """The place in x of each element of the index, as an index along each axis, and the source cut
    to the shape of the index."""
    index = indices_of(name, index)
    if x.ndim == 0:
        raise ShapeError(f"{name}: a tensor of rank 1 or more is expected, got a scalar")
    axis = axis_of(name, dim, x.ndim)
    if index.ndim != x.ndim:
        raise ShapeError(
            f"{name}: an index of rank {x.ndim} is expected for {list(x.shape)}, got "
            f"{list(index.shape)}"
        )
    for other, (have, want) in enumerate(zip(x.shape, index.shape, strict=True)):
        if other != axis and want > have:
            raise ShapeError(
                f"{name}: the index {list(index.shape)} is larger than {list(x.shape)} on axis "
                f"{other}"
            )
    if isinstance(source, Tensor):
        if source.ndim != index.ndim or any(
            s < i for s, i in zip(source.shape, index.shape, strict=True)
        ):
            raise ShapeError(
                f"{name}: the source {list(source.shape)} is smaller than the index "
                f"{list(index.shape)}"
            )
        source = source[tuple(slice(0, size) for size in index.shape)]
    grid: list[Any] = []
    for other, size in enumerate(index.shape):
        shape = (1,) * other + (-1,) + (1,) * (index.ndim - other - 1)
        grid.append(index if other == axis else _girih.arange(size).reshape(shape))
    return tuple(grid), source


def scatter(
    x: _TensorLike, dim: int, index: _TensorLike, src: _TensorLike, reduce: str | None = None
) -> Tensor:
    """With values at the index along an axis, position by position.

    Args:
        x: a tensor.
        dim: the axis.
        index: integers, of the rank of x; on the other axes not larger than x.
        src: a number, or a tensor that is not smaller than the index.
        reduce: None replaces elements, "add" and "multiply" combine.

    Raises:
        InvalidArgumentError: There is no such reduction.
        ShapeError: The shapes do not fit.

    Example:
        >>> gr.scatter([[0, 0]], 1, [[1]], [[5]])
        tensor([[0, 5]], dtype=int64)
    """
    x = _girih.asarray(x)
    number = isinstance(src, (bool, int, float, complex))
    src = src if number else _source("scatter", x, src)
    place, src = _position("scatter", x, dim, index, src)
    if reduce is None:
        return x.at[place].set(src)
    if reduce not in ("add", "multiply"):
        raise InvalidArgumentError(f"scatter: reduce is None, 'add' or 'multiply', got {reduce!r}")
    return x.at[place].add(src) if reduce == "add" else x.at[place].multiply(src)


def scatter_add(x: _TensorLike, dim: int, index: _TensorLike, src: _TensorLike) -> Tensor:
    """With values added at the index along an axis, position by position.

    Args:
        x: a tensor.
        dim: the axis.
        index: integers, of the rank of x; on the other axes not larger than x.
        src: a tensor that is not smaller than the index.

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> gr.scatter_add([[1, 1]], 1, [[1, 1]], [[2, 3]])
        tensor([[1, 6]], dtype=int64)
    """
    x = _girih.asarray(x)
    place, src = _position("scatter_add", x, dim, index, _source("scatter_add", x, src))
    return x.at[place].add(src)


def scatter_reduce(
    x: _TensorLike,
    dim: int,
    index: _TensorLike,
    src: _TensorLike,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """With values combined at the index along an axis, position by position.

    Args:
        x: a tensor.
        dim: the axis.
        index: integers, of the rank of x; on the other axes not larger than x.
        src: a tensor that is not smaller than the index.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: whether the elements of x that are met belong to what is combined.

    Raises:
        InvalidArgumentError: There is no such reduction.
        ShapeError: The shapes do not fit.

    Example:
        >>> gr.scatter_reduce([1.0, 1.0], 0, [1, 1], [2.0, 6.0], "mean")
        tensor([1., 3.], dtype=float32)
    """
    x = _girih.asarray(x)
    place, src = _position("scatter_reduce", x, dim, index, _source("scatter_reduce", x, src))
    return _reduced("scatter_reduce", x, place, src, reduce, include_self)


def masked_fill(x: _TensorLike, mask: _TensorLike, value: _TensorLike) -> Tensor:
    """With one value where a mask is true.

    Args:
        x: a tensor.
        mask: bool; shapes broadcast.
        value: a number or a scalar tensor, which becomes the dtype of x.

    Raises:
        DTypeError: The mask is not bool.
        ShapeError: The mask would enlarge the tensor.

    Example:
        >>> gr.masked_fill([1, 2], [True, False], 0)
        tensor([0, 2], dtype=int64)
    """
    x, mask = _girih.asarray(x), _mask("masked_fill", mask)
    _fits("masked_fill", x, mask)
    if not isinstance(value, (bool, int, float, complex)):
        value = _source("masked_fill", x, value)
        if value.ndim:
            raise ShapeError(f"masked_fill: the value is one number, got {list(value.shape)}")
    return _girih.where(mask, value, x).astype(x.dtype)


def _mask(name: str, mask: _TensorLike) -> Tensor:
    mask = _girih.asarray(mask)
    if mask.dtype.name != "bool":
        raise DTypeError(f"{name}: a mask is bool, got {mask.dtype}; compare it with 0")
    return mask


def _fits(name: str, x: Tensor, mask: Tensor) -> None:
    if _girih.broadcast_shapes(x.shape, mask.shape) != x.shape:
        raise ShapeError(
            f"{name}: a mask {list(mask.shape)} would enlarge the tensor {list(x.shape)}"
        )


def masked_select(x: _TensorLike, mask: _TensorLike) -> Tensor:
    """The elements where a mask is true, as a vector. Evaluates the mask.

    Args:
        x: a tensor.
        mask: bool; shapes broadcast.

    Raises:
        DTypeError: The mask is not bool.

    Example:
        >>> gr.masked_select([1, 2, 3], [True, False, True])
        tensor([1, 3], dtype=int64)
    """
    x, mask = _girih.broadcast_arrays(_girih.asarray(x), _mask("masked_select", mask))
    return x[mask]


def masked_scatter(x: _TensorLike, mask: _TensorLike, source: _TensorLike) -> Tensor:
    """With the elements of a source, one after the other, where a mask is true.

    Args:
        x: a tensor.
        mask: bool; shapes broadcast.
        source: at least as many elements as the mask has true ones; the last one is repeated where
            it has fewer.

    Raises:
        DTypeError: The mask is not bool.
        ShapeError: The mask would enlarge the tensor, or the source is empty.

    Example:
        >>> gr.masked_scatter([0, 0, 0], [True, False, True], [7, 8])
        tensor([7, 0, 8], dtype=int64)
    """
    x, mask = _girih.asarray(x), _mask("masked_scatter", mask)
    _fits("masked_scatter", x, mask)
    flat = _source("masked_scatter", x, source).reshape(-1)
    if flat.shape[0] == 0:
        if x.size == 0:
            return x
        raise ShapeError("masked_scatter: the source has no elements")
    full = _girih.broadcast_to(mask, x.shape).reshape(-1)
    # The number of true elements before each is the place in the source.
    place = _girih.cumsum(full.astype(_girih.int64), 0) - 1
    values = _girih.take(flat, _girih.clip(place, 0, flat.shape[0] - 1), 0)
    return _girih.where(full, values, x.reshape(-1)).reshape(x.shape)


def select_scatter(x: _TensorLike, src: _TensorLike, dim: int, index: int) -> Tensor:
    """With one slice of an axis replaced.

    Args:
        x: a tensor.
        src: the slice, of the shape of x without the axis.
        dim: the axis.
        index: the position.

    Raises:
        ShapeError: The slice has another shape.

    Example:
        >>> gr.select_scatter([[1, 2], [3, 4]], [8, 9], 0, 1)
        tensor([[1, 2],
                [8, 9]], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("select_scatter", dim, x.ndim)
    return _replaced("select_scatter", x, _along(axis, index), src)


def slice_scatter(
    x: _TensorLike,
    src: _TensorLike,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """With a part of an axis replaced, ``x[start:end:step]`` along it.

    Args:
        x: a tensor.
        src: of the shape of the part.
        dim: the axis.
        start: the first index.
        end: the index behind the last.
        step: the distance of indices.

    Raises:
        ShapeError: The source has another shape.

    Example:
        >>> gr.slice_scatter([1, 2, 3], [8, 9], start=1)
        tensor([1, 8, 9], dtype=int64)
    """
    x = _girih.asarray(x)
    axis = axis_of("slice_scatter", dim, x.ndim)
    return _replaced("slice_scatter", x, _along(axis, slice(start, end, step)), src)


def _replaced(name: str, x: Tensor, place: Any, src: _TensorLike) -> Tensor:
    src = _source(name, x, src)
    part = x[place]
    if tuple(part.shape) != tuple(src.shape):
        raise ShapeError(f"{name}: {list(src.shape)} does not fit {list(part.shape)}")
    return x.at[place].set(src)


def diagonal_scatter(
    x: _TensorLike, src: _TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Tensor:
    """With a diagonal replaced.

    Args:
        x: a tensor of at least two axes.
        src: of the shape of ``diagonal(x, offset, axis1, axis2)``.
        offset: the diagonal: 0 is the main one, positive ones lie above it.
        axis1: the first of two axes.
        axis2: the second of two axes.

    Raises:
        ShapeError: The source has another shape.

    Example:
        >>> gr.diagonal_scatter([[1, 2], [3, 4]], [8, 9])
        tensor([[8, 2],
                [3, 9]], dtype=int64)
    """
    x = _girih.asarray(x)
    pair = [axis_of("diagonal_scatter", axis, x.ndim) for axis in (axis1, axis2)]
    moved = _girih.moveaxis(x, pair, (-2, -1))
    src = _source("diagonal_scatter", x, src)
    rows = _girih.arange(max(src.shape[-1] if src.ndim else 0, 0))
    down, right = rows + max(-offset, 0), rows + max(offset, 0)
    shape = _girih.diagonal(x, offset, *pair).shape
    if tuple(shape) != tuple(src.shape):
        raise ShapeError(f"diagonal_scatter: {list(src.shape)} does not fit {list(shape)}")
    return _girih.moveaxis(moved.at[..., down, right].set(src), (-2, -1), pair)


explain_public(globals())
