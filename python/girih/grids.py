"""Grids, sequences and indices by the names of NumPy, as compositions of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public, items
from .errors import IndexOutOfBoundsError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._girih import DType, Tensor, _TensorLike

__all__ = [
    "diag_indices",
    "fromfunction",
    "geomspace",
    "identity",
    "ix_",
    "logspace",
    "ravel_multi_index",
    "tril_indices",
    "triu_indices",
    "unravel_index",
]


def identity(n: int, dtype: DType | str | None = None) -> Tensor:
    """A square matrix with ones on the diagonal; float32 by default.

    Args:
        n: the number of rows and of columns.
        dtype: the result's element type.

    Example:
        >>> gr.identity(2)
        tensor([[1., 0.],
                [0., 1.]], dtype=float32)
    """
    return _girih.eye(n, dtype=dtype)


def logspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: DType | str | None = None,
) -> Tensor:
    """Powers of the base with evenly spaced exponents; float32 by default.

    Args:
        start: the first exponent.
        stop: the last exponent.
        num: how many.
        endpoint: whether the last exponent is included.
        base: the base.
        dtype: the result's element type.

    Example:
        >>> gr.logspace(0, 2, 3)
        tensor([  1.,  10., 100.], dtype=float32)
    """
    exponents = _girih.linspace(start, stop, num, endpoint=endpoint, dtype=_girih.float64)
    powers = _girih.power(_girih.asarray(base, _girih.float64), exponents)
    return powers.astype(_girih.float32 if dtype is None else dtype)


def geomspace(
    start: float,
    stop: float,
    num: int = 50,
    endpoint: bool = True,
    dtype: DType | str | None = None,
) -> Tensor:
    """Numbers of which each is a multiple of the one before; float32 by default.

    Args:
        start: the first number, not 0.
        stop: the last number, of the sign of the first.
        num: how many.
        endpoint: whether the last number is included.
        dtype: the result's element type.

    Raises:
        InvalidArgumentError: A limit is 0, or their signs differ.

    Example:
        >>> gr.geomspace(1, 8, 4)
        tensor([1., 2., 4., 8.], dtype=float32)
    """
    if start * stop <= 0:
        raise InvalidArgumentError(
            f"geomspace: the limits have one sign and are not 0, got {start} and {stop}"
        )
    sign = 1 if start > 0 else -1
    low, high = math.log2(abs(start)), math.log2(abs(stop))
    exponents = _girih.linspace(low, high, num, endpoint=endpoint, dtype=_girih.float64)
    return (sign * _girih.exp2(exponents)).astype(_girih.float32 if dtype is None else dtype)


def fromfunction(
    function: Callable[..., Any], shape: Sequence[int], *, dtype: DType | str = "float32"
) -> Any:
    """The function of the indices of a shape, one tensor for each axis.

    Args:
        function: takes as many tensors as there are axes.
        shape: the sizes.
        dtype: the element type of the indices.

    Returns:
        What the function returns.

    Example:
        >>> gr.fromfunction(lambda i, j: i + j, (2, 2))
        tensor([[0., 1.],
                [1., 2.]], dtype=float32)
    """
    return function(*(index.astype(dtype) for index in _girih.indices(shape)))


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The indices of the main diagonal of a tensor with equal sizes.

    Args:
        n: the size of each axis.
        ndim: the number of axes.

    Returns:
        An int64 vector for each axis.

    Example:
        >>> gr.ones(2, 2)[gr.diag_indices(2)]
        tensor([1., 1.], dtype=float32)
    """
    return (_girih.arange(n),) * ndim


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The indices of the lower triangle of a matrix.

    Args:
        n: the number of rows.
        k: the highest diagonal that belongs to it.
        m: the number of columns, by default n.

    Returns:
        The rows and the columns, int64 vectors.

    Example:
        >>> gr.tril_indices(2)
        (tensor([0, 1, 1], dtype=int64), tensor([0, 0, 1], dtype=int64))
    """
    import numpy as np

    rows, columns = np.tril_indices(n, k, m)
    return _girih.asarray(rows), _girih.asarray(columns)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Tensor, Tensor]:
    """The indices of the upper triangle of a matrix.

    Args:
        n: the number of rows.
        k: the lowest diagonal that belongs to it.
        m: the number of columns, by default n.

    Returns:
        The rows and the columns, int64 vectors.

    Example:
        >>> gr.triu_indices(2)
        (tensor([0, 0, 1], dtype=int64), tensor([0, 1, 1], dtype=int64))
    """
    import numpy as np

    rows, columns = np.triu_indices(n, k, m)
    return _girih.asarray(rows), _girih.asarray(columns)


def ix_(*tensors: _TensorLike) -> tuple[Tensor, ...]:
    """Indices that select the product of several vectors: each along an axis of its own.

    Args:
        tensors: vectors of integers; a vector of bool stands for the places where it is true.

    Returns:
        A tensor for each.

    Raises:
        ShapeError: One is no vector.

    Example:
        >>> gr.asarray([[1, 2], [3, 4]])[gr.ix_([0, 1], [1])]
        tensor([[2],
                [4]], dtype=int64)
    """
    made = []
    for place, value in enumerate(tensors):
        vector = _girih.asarray(value)
        if vector.ndim != 1:
            raise ShapeError(f"ix_: vectors are expected, got {list(vector.shape)}")
        if vector.dtype.name == "bool":
            vector = _girih.flatnonzero(vector)
        vector = vector.astype(_girih.int64) if vector.size == 0 else vector
        made.append(vector.reshape((1,) * place + (-1,) + (1,) * (len(tensors) - place - 1)))
    return tuple(made)


def unravel_index(indices: _TensorLike, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The index along each axis of positions in the flattened tensor.

    Args:
        indices: integers; negative ones count from the end, and those beyond are limited.
        shape: the sizes of the axes.

    Returns:
        A tensor of the shape of the indices for each axis.

    Raises:
        InvalidArgumentError: A size is negative.

    Example:
        >>> gr.unravel_index(5, (2, 3))
        (tensor(1, dtype=int64), tensor(2, dtype=int64))
    """
    sizes = [shape] if isinstance(shape, int) else items(shape)
    flat = _whole("unravel_index", indices)
    total = math.prod(sizes)
    if any(size < 0 for size in sizes):
        raise InvalidArgumentError(f"unravel_index: a size is negative in {sizes}")
    flat = _girih.where(flat < 0, flat + total, flat)
    rest = _girih.clip(flat, 0, max(total - 1, 0))
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.append(rest % max(size, 1))
        rest = rest // max(size, 1)
    return tuple(reversed(found))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise"
) -> Tensor:
    """The position in the flattened tensor of an index along each axis.

    Args:
        multi_index: integers for each axis; shapes broadcast.
        dims: the sizes of the axes.
        mode: what happens to integers out of range: "raise" (which evaluates them), "wrap" or
            "clip".

    Returns:
        An int64 tensor.

    Raises:
        InvalidArgumentError: There is no such mode, or not one tensor for each axis.
        IndexOutOfBoundsError: An integer is out of range, with the mode "raise".

    Example:
        >>> gr.ravel_multi_index(([1, 0], [2, 1]), (2, 3))
        tensor([5, 1], dtype=int64)
    """
    parts, sizes = [_whole("ravel_multi_index", part) for part in items(multi_index)], items(dims)
    if len(parts) != len(sizes) or not parts:
        raise InvalidArgumentError(
            f"ravel_multi_index: {len(parts)} indices for {len(sizes)} axes; give one for each"
        )
    if mode not in ("raise", "wrap", "clip"):
        raise InvalidArgumentError(
            f"ravel_multi_index: the mode is 'raise', 'wrap' or 'clip', got {mode!r}"
        )
    total = _girih.zeros((), dtype=_girih.int64)
    for part, size in zip(parts, sizes, strict=True):
        if mode == "wrap":
            part = part % max(size, 1)
        elif mode == "clip":
            part = _girih.clip(part, 0, max(size - 1, 0))
        elif part.size and not bool(_girih.logical_and(part >= 0, part < size).all()):
            raise IndexOutOfBoundsError(
                f"ravel_multi_index: an index is not from 0 to {size - 1}; see mode="
            )
        total = total * size + part
    return total


def _whole(name: str, x: _TensorLike) -> Tensor:
    x = _girih.asarray(x)
    if not x.dtype.name.startswith(("int", "uint")) and x.size:
        raise InvalidArgumentError(f"{name}: integers are expected, got {x.dtype}")
    return x.astype(_girih.int64)


explain_public(globals())
