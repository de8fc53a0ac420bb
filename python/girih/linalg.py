"""Linear algebra: the array API standard's ``linalg`` extension, and SciPy's triangular solver.

Matrices are the last two axes, the axes before them a batch. Integers become floating-point;
complex matrices are taken everywhere, and what is real of them (singular values, norms, eigenvalues
of Hermitian matrices) has a real dtype. A matrix that cannot be taken, such as a singular one,
raises :class:`girih.LinAlgError` when the result is evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import _girih
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor

__all__ = [
    "EigResult",
    "EighResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as columns; both complex."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EighResult(NamedTuple):
    """Eigenvalues, ascending, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class LstsqResult(NamedTuple):
    """A least squares solution, sums of squared residuals, rank and singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangular matrix."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Left singular vectors as columns, singular values, right singular vectors as rows."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class SlogdetResult(NamedTuple):
    """A determinant's sign and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


def _triangle(uplo: str) -> bool:
    if uplo not in ("L", "U"):
        raise InvalidArgumentError(f"UPLO is 'L' or 'U', got {uplo!r}")
    return uplo == "U"


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The lower triangular ``L`` with ``x = L @ L.mT.conj()``; with upper its adjoint.

    Only that triangle of x is read.
    """
    return _girih.linalg_cholesky(x, upper)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis; other axes broadcast."""
    return _girih.linalg_cross(x1, x2, axis)


def det(x: Any, /) -> Tensor:
    """Determinants."""
    return _girih.linalg_det(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """Diagonals of the last two axes: above the main one for positive offsets."""
    return _girih.linalg_diagonal(x, offset)


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of any square matrices, always complex, in no particular order.

    Eigenvectors are columns of length one. Their gradient takes length and phase to stay, and is of
    use for what does not depend on these; it is not finite where eigenvalues are equal.
    """
    return EigResult(*_girih.linalg_eig(x))


def eigh(x: Any, /, *, UPLO: Literal["L", "U"] = "L") -> EighResult:  # noqa: N803
    """Eigenvalues and eigenvectors of Hermitian matrices, of which one triangle is read."""
    return EighResult(*_girih.linalg_eigh(x, _triangle(UPLO)))


def eigvals(x: Any, /) -> Tensor:
    """Eigenvalues of any square matrices, always complex, in no particular order."""
    return _girih.linalg_eigvals(x)


def eigvalsh(x: Any, /, *, UPLO: Literal["L", "U"] = "L") -> Tensor:  # noqa: N803
    """Ascending eigenvalues of Hermitian matrices, of which one triangle is read."""
    return _girih.linalg_eigvalsh(x, _triangle(UPLO))


def inv(x: Any, /) -> Tensor:
    """Inverses."""
    return _girih.linalg_inv(x)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """The shortest ``x`` that makes ``a @ x - b`` shortest.

    Singular values of a up to rcond times the largest count as zero; by default the larger side
    times the dtype's epsilon. The residuals are always given.
    """
    return LstsqResult(*_girih.linalg_lstsq(a, b, rcond))


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Matrix product of all ranks; leading axes broadcast."""
    return _girih.matmul(x1, x2)


def matrix_norm(
    x: Any, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> Tensor:
    """Norms of matrices: 'fro', 'nuc', 1, 2, inf, or one of these orders negated."""
    return _girih.linalg_matrix_norm(x, keepdims, "fro" if ord is None else ord)


def matrix_power(x: Any, n: int, /) -> Tensor:
    """Square matrices times themselves n times; a negative n takes the inverse."""
    return _girih.linalg_matrix_power(x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """How many singular values are above rtol times the largest. Dtype: int64."""
    return _girih.linalg_matrix_rank(x, rtol)


def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged."""
    return _girih.matrix_transpose(x)


def norm(
    x: Any,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """A norm of vectors or matrices, as NumPy's: by the number of axes, all of them by default."""
    x = _girih.asarray(x)
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if len(axes) == 1:
        if isinstance(ord, str):
            raise InvalidArgumentError(f"norm: {ord!r} is a norm of matrices, not of vectors")
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise InvalidArgumentError(f"norm: one axis or two are expected, got {axes}")
    planes = _girih.moveaxis(x, tuple(axes), (-2, -1))
    out = matrix_norm(planes, keepdims=keepdims, ord=ord)
    return _girih.moveaxis(out, (-2, -1), tuple(axes)) if keepdims else out


def outer(x1: Any, x2: Any, /) -> Tensor:
    """All products of an element of one vector and one of another."""
    return _girih.linalg_outer(x1, x2)


def pinv(x: Any, /, *, rtol: Any = None) -> Tensor:
    """Moore-Penrose inverses. Singular values up to rtol times the largest count as zero."""
    return _girih.linalg_pinv(x, rtol)


def qr(x: Any, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """Orthonormal columns Q and an upper triangular R with ``x = Q @ R``."""
    if mode not in ("reduced", "complete"):
        raise InvalidArgumentError(f"qr: mode is 'reduced' or 'complete', got {mode!r}")
    return QRResult(*_girih.linalg_qr(x, mode == "complete"))


def slogdet(x: Any, /) -> SlogdetResult:
    """Signs of determinants, and logarithms of their absolute values."""
    return SlogdetResult(*_girih.linalg_slogdet(x))


def solve(x1: Any, x2: Any, /) -> Tensor:
    """``x`` with ``x1 @ x = x2``; x2 is a vector or a batch of matrices."""
    return _girih.linalg_solve(x1, x2)


def solve_triangular(a: Any, b: Any, *, lower: bool = False, unit_diagonal: bool = False) -> Tensor:
    """``x`` with ``a @ x = b``, of one triangle of a; as if its diagonal were ones, if so asked."""
    return _girih.linalg_solve_triangular(a, b, lower, unit_diagonal)


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """U, S and Vh with ``x = U @ diag(S) @ Vh``; S descends."""
    return SVDResult(*_girih.linalg_svd(x, full_matrices))


def svdvals(x: Any, /) -> Tensor:
    """Singular values, descending."""
    return _girih.linalg_svdvals(x)


def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Sums of products over pairs of axes; an int pairs the last of x1 with the first of x2."""
    return _girih.tensordot(x1, x2, axes)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals of the last two axes; integers are summed in int64."""
    if dtype is not None:
        x = _girih.asarray(x).astype(dtype)
    out = _girih.linalg_trace(x, offset)
    return out if dtype is None else out.astype(dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Sums of products along an axis, of the conjugates of x1; other axes broadcast."""
    return _girih.vecdot(x1, x2, axis=axis)


def vector_norm(
    x: Any,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """Norms over axes, all by default: of any order, inf and 0 (how many are not zero) included."""
    if not isinstance(ord, (int, float)) or math.isnan(ord):
        raise InvalidArgumentError(f"vector_norm: the order is a number, got {ord!r}")
    axes = axis if axis is None or isinstance(axis, int) else tuple(axis)
    return _girih.linalg_vector_norm(x, float(ord), keepdims, axes)
