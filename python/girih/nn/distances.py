"""Distances between all pairs of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih
from ..errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from .._girih import Tensor

__all__ = ["pdist"]


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """Distances between all pairs of rows, in the order of the upper triangle.

    Args:
        x: ``[n, features]``.
        p: The order of the norm of the difference, not negative.

    Returns:
        A tensor of shape ``[n * (n - 1) / 2]``.

    Raises:
        ShapeError: ``x`` does not have two axes.
        InvalidArgumentError: ``p`` is negative.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.pdist(gr.asarray([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()
        [5.0, 1.0, 4.242640495300293]
    """
    x = _girih.asarray(x)
    if x.ndim != 2:
        raise ShapeError(f"pdist: expected rows [n, features], got shape {list(x.shape)}")
    if not p >= 0:
        raise InvalidArgumentError(f"pdist: p must not be negative, got {p}")
    n = int(x.shape[0])
    count = n * (n - 1) // 2
    at = _girih.arange(count)
    # The row and the column of entry `at` of a triangle without its diagonal.
    root = (4.0 * n * (n - 1) - 7 - 8.0 * at.astype(_girih.float64)).sqrt()
    row = n - 2 - ((root - 1) * 0.5).floor().astype(at.dtype)
    column = at + row + 1 - count + (n - row) * (n - row - 1) // 2
    difference = _girih.take(x, row, axis=0) - _girih.take(x, column, axis=0)
    return _girih.linalg_vector_norm(difference, p, False, -1)
