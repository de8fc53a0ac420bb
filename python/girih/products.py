"""Products of several matrices in one call, and convolutions of sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from .checks import explain_public
from .dtypes import result_type
from .errors import DTypeError, InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from ._girih import Tensor

__all__ = ["convolve", "gather_mm", "segmented_mm"]


def _matrices(function: str, x: Any, name: str) -> Tensor:
    found = _girih.asarray(x)
    if found.ndim < 2:
        raise ShapeError(
            f"{function}: {name} has shape {list(found.shape)}; expected matrices, [..., rows, "
            "columns]"
        )
    return found


def _chosen(x: Tensor, indices: Any) -> Tensor:
    """The matrices at these positions among all, counted in row-major order."""
    if indices is None:
        return x
    at = _girih.asarray(indices)
    if "int" not in at.dtype.name:
        raise DTypeError(f"gather_mm: indices are integers, got dtype {at.dtype.name}")
    flat = x.reshape((-1, *x.shape[-2:])) if x.ndim != 3 else x
    return _girih.take(flat, at, 0)


def gather_mm(
    a: Any,
    b: Any,
    lhs_indices: Any = None,
    rhs_indices: Any = None,
    *,
    sorted_indices: bool = False,
) -> Tensor:
    """Products of pairs of matrices that are chosen by index, as in a mixture of experts.

    Args:
        a: ``[..., m, k]``.
        b: ``[..., k, n]``.
        lhs_indices: Integers that choose matrices of ``a``, counted over its leading axes in
            row-major order; all of them, in their shape, if None.
        rhs_indices: Integers that choose matrices of ``b``; both shapes of indices broadcast.
        sorted_indices: Whether ``rhs_indices`` ascend; the result does not depend on it.

    Returns:
        ``[*indices, m, n]``; gradients flow to ``a`` and ``b``.

    Raises:
        ShapeError: An operand is no matrix, or sizes or indices do not fit together.
        DTypeError: Indices are not integers.
        IndexOutOfBoundsError: An index is out of range; raised when the result is evaluated.

    Example:
        >>> import girih as gr
        >>> tokens, experts = gr.ones([5, 1, 4]), gr.ones([3, 4, 2])
        >>> gr.gather_mm(tokens, experts, rhs_indices=[0, 2, 2, 1, 0]).shape
        (5, 1, 2)
    """
    left, right = _matrices("gather_mm", a, "a"), _matrices("gather_mm", b, "b")
    return _girih.matmul(_chosen(left, lhs_indices), _chosen(right, rhs_indices))


def segmented_mm(a: Any, b: Any, segments: Any) -> Tensor:
    """Products of parts of two matrices: each sums over a segment of the inner axis.

    Args:
        a: ``[m, k]``.
        b: ``[k, n]``.
        segments: Integers ``[..., 2]``: the first position of each segment, and the one behind its
            last position. Segments may overlap and be empty; what is outside of ``0..k`` counts as
            nothing.

    Returns:
        ``[..., m, n]``: ``a[:, start:stop] @ b[start:stop]`` for each segment; gradients flow to
        ``a`` and ``b``.

    Raises:
        ShapeError: The operands are not two matrices with one inner size, or the segments are no
            pairs.
        DTypeError: The segments are not integers.

    Example:
        >>> import girih as gr
        >>> a, b = gr.ones([2, 5]), gr.ones([5, 1])
        >>> gr.segmented_mm(a, b, [[0, 2], [2, 5]])[:, 0, 0].tolist()
        [2.0, 3.0]
    """
    left, right = _matrices("segmented_mm", a, "a"), _matrices("segmented_mm", b, "b")
    bounds = _girih.asarray(segments)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ShapeError(
            f"segmented_mm: expected matrices [m, k] and [k, n], got shapes {list(left.shape)} and "
            f"{list(right.shape)}"
        )
    if bounds.ndim < 1 or bounds.shape[-1] != 2:
        raise ShapeError(
            f"segmented_mm: expected segments [..., 2], pairs of bounds, got shape "
            f"{list(bounds.shape)}"
        )
    if "int" not in bounds.dtype.name:
        raise DTypeError(f"segmented_mm: segments are integers, got dtype {bounds.dtype.name}")
    at = _girih.arange(left.shape[1])
    bounds = bounds.astype(_girih.int64)[..., None, :]
    inside = (at >= bounds[..., 0]) & (at < bounds[..., 1])
    # Numbers outside of a segment are selected away, since a NaN times 0 is a NaN.
    parts = _girih.where(inside[..., None, :], left, _girih.zeros([], dtype=left.dtype))
    others = _girih.where(inside[..., None], right, _girih.zeros([], dtype=right.dtype))
    return _girih.matmul(parts, others)


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """The discrete convolution of two sequences: ``result[i]`` is the sum of ``a[j] * v[i - j]``.

    Args:
        a: A sequence of one axis, with at least one element.
        v: Another one.
        mode: ``full``, all ``len(a) + len(v) - 1`` elements; ``same``, the ``max(len(a), len(v))``
            elements in the middle; ``valid``, those for which the shorter sequence is inside of the
            longer one.

    Returns:
        A sequence of the common dtype.

    Raises:
        ShapeError: An operand does not have one axis, or is empty.
        InvalidArgumentError: There is no such mode.

    Example:
        >>> import girih as gr
        >>> gr.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).tolist()
        [0.0, 1.0, 2.5, 4.0, 1.5]
    """
    if mode not in ("full", "same", "valid"):
        raise InvalidArgumentError(f"convolve: mode is 'full', 'same' or 'valid', got {mode!r}")
    long, short = _girih.asarray(a), _girih.asarray(v)
    for found in (long, short):
        if found.ndim != 1 or found.shape[0] == 0:
            raise ShapeError(
                "convolve: expected two sequences of one axis, not empty, got shapes "
                f"{list(long.shape)} and {list(short.shape)}"
            )
    if long.shape[0] < short.shape[0]:
        long, short = short, long
    dtype = result_type(long, short)
    if dtype.name.startswith("complex"):
        return _complex_convolve(long, short, mode)
    around = short.shape[0] - 1
    widths = {
        "full": (around, around),
        "same": (around - around // 2, around // 2),
        "valid": (0, 0),
    }
    wide = _girih.int64 if dtype.name == "bool" else dtype
    x, kernel = long.astype(wide)[None, None], short.astype(wide)[None, None]
    result = _girih.conv1d(x, _girih.flip(kernel, -1), padding=[widths[mode]])[0, 0]
    return result.astype(dtype)


def _complex_convolve(a: Tensor, v: Tensor, mode: str) -> Tensor:
    (p, q), (r, s) = ((_girih.real(x), _girih.imag(x)) for x in (a, v))
    real = convolve(p, r, mode) - convolve(q, s, mode)
    return _girih.complex(real, convolve(p, s, mode) + convolve(q, r, mode))


explain_public(globals())
