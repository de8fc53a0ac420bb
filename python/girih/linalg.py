"""Linear algebra: the array API standard's ``linalg`` extension, and SciPy's triangular solver.

Matrices are the last two axes, and the axes before them are a batch. Integers are converted to
floating point. All functions accept complex matrices; real results of complex matrices (singular
values, norms, eigenvalues of Hermitian matrices) have a real dtype. An invalid matrix, such as a
singular one, raises :class:`girih.LinAlgError` when the result is evaluated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from . import _girih
from .checks import explain_public, items
from .errors import InvalidArgumentError, ShapeError
from .linalg_results import (
    EighResult,
    EigResult,
    LstsqResult,
    LUFactors,
    LUResult,
    QRResult,
    SlogdetResult,
    SVDResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor

__all__ = [
    "EigResult",
    "EighResult",
    "LUFactors",
    "LUResult",
    "LstsqResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cho_solve",
    "cholesky",
    "cholesky_inverse",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
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
    "tri_inv",
    "vecdot",
    "vector_norm",
]


def _triangle(uplo: str) -> bool:
    if uplo not in ("L", "U"):
        raise InvalidArgumentError(f"UPLO is 'L' or 'U', got {uplo!r}")
    return uplo == "U"


def cholesky(x: Any, /, *, upper: bool = False) -> Tensor:
    """The lower triangular ``L`` with ``x = L @ L.mT.conj()``; with upper, the adjoint of ``L``.

    Only this triangle of x is read.
    """
    return _girih.linalg_cholesky(x, upper)


def cho_solve(c_and_lower: tuple[Any, bool] | Any, b: Any, *, upper: bool = False) -> Tensor:
    """``x`` with ``a @ x = b``, from the Cholesky factor of ``a``.

    Args:
        c_and_lower: the factor, [..., n, n], or as in SciPy a pair of the factor and whether it is
            lower triangular.
        b: [n], or [..., n, k].
        upper: whether a factor without a pair is upper triangular.

    Returns:
        A tensor like b.

    Raises:
        ShapeError: sizes do not fit.

    Example:
        >>> L = gr.linalg.cholesky([[4.0, 0.0], [0.0, 16.0]])
        >>> gr.linalg.cho_solve(L, [4.0, 16.0]).tolist()
        [1.0, 1.0]
    """
    factor, lower = c_and_lower, not upper
    if isinstance(c_and_lower, tuple):
        factor, lower = c_and_lower
    half = solve_triangular(factor, b, lower=lower, trans=0 if lower else "C")
    return solve_triangular(factor, half, lower=lower, trans="C" if lower else 0)


def cholesky_inverse(x: Any, /, *, upper: bool = False) -> Tensor:
    """The inverses of matrices, from their Cholesky factors.

    Args:
        x: the factors, [..., n, n], of which one triangle is read.
        upper: whether the factors are upper triangular.

    Returns:
        [..., n, n], Hermitian.

    Raises:
        ShapeError: the matrices are not square.

    Example:
        >>> gr.linalg.cholesky_inverse([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    inverse = tri_inv(x, upper=upper)
    adjoint = _girih.conj(_girih.matrix_transpose(inverse))
    return _girih.matmul(inverse, adjoint) if upper else _girih.matmul(adjoint, inverse)


def cond(x: Any, p: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition number of a matrix: how sensitive solutions of linear systems are to changes.

    Args:
        x: [..., m, n], square unless p is None, 2 or -2.
        p: a matrix norm; by default the result is the largest singular value over the smallest.

    Returns:
        The norm times the norm of the inverse, [...]; infinite for singular matrices.

    Raises:
        ShapeError: x is empty, or not square for a norm that needs the inverse.
        InvalidArgumentError: there is no such norm.

    Example:
        >>> gr.linalg.cond([[2.0, 0.0], [0.0, 1.0]]).item()
        2.0
    """
    return _girih.linalg_cond(x, p)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Cross products of vectors of three elements along an axis; other axes broadcast."""
    return _girih.linalg_cross(x1, x2, axis)


def det(x: Any, /) -> Tensor:
    """Determinants."""
    return _girih.linalg_det(x)


def diagonal(x: Any, /, *, offset: int = 0) -> Tensor:
    """Diagonals of the last two axes; positive offsets are above the main diagonal."""
    return _girih.linalg_diagonal(x, offset)


def eig(x: Any, /) -> EigResult:
    """Eigenvalues and eigenvectors of any square matrices, always complex, in no particular order.

    Eigenvectors are columns of length one. Their gradient assumes fixed length and phase, so it is
    correct only for functions that do not depend on length and phase; it is not finite if
    eigenvalues are equal.
    """
    return EigResult(*_girih.linalg_eig(x))


def eigh(
    x: Any,
    /,
    *,
    UPLO: Literal["L", "U"] = "L",  # noqa: N803
    safe: bool = False,
) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices; only one triangle is read.

    Args:
        x: [..., n, n].
        UPLO: the triangle that is read, the lower or the upper one.
        safe: whether derivatives are finite where eigenvalues are equal: the parts of the
            eigenvectors' derivatives that would be divided by 0 count as 0. It is for functions
            that do not depend on the choice of eigenvectors.

    Example:
        >>> f = lambda x: gr.linalg.eigh(x, safe=True).eigenvectors.sum()
        >>> gr.grad(f)(gr.eye(2)).isfinite().all().item()
        True
    """
    upper = _triangle(UPLO)
    if safe:
        from .degenerate import safe_eigh

        return EighResult(*safe_eigh(x, upper))
    return EighResult(*_girih.linalg_eigh(x, upper))


def eigvals(x: Any, /) -> Tensor:
    """Eigenvalues of any square matrices, always complex, in no particular order."""
    return _girih.linalg_eigvals(x)


def eigvalsh(x: Any, /, *, UPLO: Literal["L", "U"] = "L") -> Tensor:  # noqa: N803
    """Ascending eigenvalues of Hermitian matrices; only one triangle is read."""
    return _girih.linalg_eigvalsh(x, _triangle(UPLO))


def expm(x: Any, /) -> Tensor:
    """Exponentials of matrices, ``I + x + x @ x / 2 + ...``, with gradients.

    Args:
        x: [..., n, n].

    Returns:
        [..., n, n].

    Raises:
        ShapeError: the matrices are not square.

    Example:
        >>> gr.linalg.expm([[0.0, 1.0], [0.0, 0.0]]).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    return _girih.linalg_expm(x)


def inv(x: Any, /) -> Tensor:
    """Inverses."""
    return _girih.linalg_inv(x)


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """The least squares solution: the ``x`` of minimum norm that minimises the norm of ``a @ x -
    b``.

    Singular values of a up to rcond times the largest count as zero; the default of rcond is the
    larger dimension times the epsilon of the dtype. The residuals are always returned.
    """
    return LstsqResult(*_girih.linalg_lstsq(a, b, rcond))


def lu(x: Any, /) -> LUResult:
    """P, L and U with ``x = P @ L @ U``, with partial pivoting.

    Args:
        x: [..., m, n].

    Returns:
        A permutation [..., m, m], a lower triangular matrix [..., m, k] with ones on its diagonal
        and an upper triangular one [..., k, n], where k is the smaller of m and n. Gradients flow
        to L and U.

    Raises:
        ShapeError: x has fewer than two axes.

    Example:
        >>> P, L, U = gr.linalg.lu([[1.0, 2.0], [3.0, 4.0]])
    """
    return LUResult(*_girih.linalg_lu(x))


def lu_factor(x: Any, /) -> LUFactors:
    """The triangular factors of square matrices, for :func:`lu_solve`.

    Args:
        x: [..., n, n].

    Returns:
        ``LU``, both factors in one matrix [..., n, n], without the unit diagonal of L; and ``piv``,
        int32 [..., n], as in SciPy: row i was exchanged with row ``piv[i]``, one after the other.

    Raises:
        ShapeError: the matrices are not square.

    Example:
        >>> factors = gr.linalg.lu_factor([[1.0, 2.0], [3.0, 4.0]])
        >>> x = gr.linalg.lu_solve(factors, [1.0, 0.0])
    """
    return LUFactors(*_girih.linalg_lu_factor(x))


def lu_solve(factors: tuple[Tensor, Tensor], b: Any, /) -> Tensor:
    """``x`` with ``a @ x = b``, from the result of :func:`lu_factor` for ``a``.

    Args:
        factors: the factors and the pivots, from :func:`lu_factor` or SciPy's.
        b: [n], or [..., n, k].

    Returns:
        A tensor like b. A singular ``a`` raises LinAlgError at evaluation.

    Raises:
        ShapeError: b has another number of rows.

    Example:
        >>> factors = gr.linalg.lu_factor([[2.0, 0.0], [0.0, 4.0]])
        >>> gr.linalg.lu_solve(factors, [1.0, 1.0]).tolist()
        [0.5, 0.25]
    """
    packed, pivots = factors
    return _girih.linalg_lu_solve(packed, pivots, b)


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Matrix product for operands of any rank; leading axes broadcast."""
    return _girih.matmul(x1, x2)


def matrix_norm(
    x: Any, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] | None = "fro"
) -> Tensor:
    """Norms of matrices: 'fro', 'nuc', 1, 2, inf, or a negated number of these."""
    return _girih.linalg_matrix_norm(x, keepdims, "fro" if ord is None else ord)


def matrix_power(x: Any, n: int, /) -> Tensor:
    """Square matrices to the power n; a negative n takes powers of the inverse."""
    return _girih.linalg_matrix_power(x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Tensor:
    """The number of singular values above rtol times the largest. Dtype: int64."""
    return _girih.linalg_matrix_rank(x, rtol)


def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged."""
    return _girih.matrix_transpose(x)


def multi_dot(matrices: Sequence[Any], /) -> Tensor:
    """The product of matrices, in the order with the fewest operations.

    Args:
        matrices: two or more, [m, n], [n, k], ...; the first and the last may be vectors.

    Returns:
        The product.

    Raises:
        InvalidArgumentError: there are fewer than two matrices.
        ShapeError: sizes do not fit, or a matrix does not have two axes.

    Example:
        >>> gr.linalg.multi_dot([gr.ones(2, 9), gr.ones(9, 3), gr.ones(3)]).shape
        (2,)
    """
    return _girih.linalg_multi_dot(matrices)


def norm(
    x: Any,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
) -> Tensor:
    """A norm of vectors or matrices, chosen by the number of axes as in NumPy; by default over all
    axes."""
    x = _girih.asarray(x)
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    if axis is None:
        axes = tuple(range(x.ndim))
    else:
        axes = (axis,) if isinstance(axis, int) else tuple(items(axis))
    if len(axes) == 1:
        if isinstance(ord, str):
            raise InvalidArgumentError(f"norm: {ord!r} is a norm of matrices, not of vectors")
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise InvalidArgumentError(f"norm: one axis or two are expected, got {axes}")
    planes = _girih.moveaxis(x, axes, (-2, -1))
    out = matrix_norm(planes, keepdims=keepdims, ord=ord)
    return _girih.moveaxis(out, (-2, -1), axes) if keepdims else out


def outer(x1: Any, x2: Any, /) -> Tensor:
    """The outer product of two vectors."""
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


def solve_triangular(
    a: Any,
    b: Any,
    *,
    lower: bool = False,
    unit_diagonal: bool = False,
    trans: int | str = 0,
    left: bool = True,
) -> Tensor:
    """``x`` with ``a @ x = b``, reading one triangle of a.

    Args:
        a: [..., n, n].
        b: [n], or [..., n, k]; [..., k, n] unless left.
        lower: whether the lower triangle is read.
        unit_diagonal: whether the diagonal counts as ones.
        trans: 0 or "N" for ``a @ x = b``, 1 or "T" for ``a.mT @ x = b``, 2 or "C" for
            ``a.mT.conj() @ x = b``.
        left: whether a is on the left of x; otherwise ``x @ a = b``.

    Returns:
        A tensor like b. A zero on the diagonal raises LinAlgError at evaluation.

    Raises:
        ShapeError: sizes do not fit.
        InvalidArgumentError: there is no such trans.

    Example:
        >>> gr.linalg.solve_triangular([[2.0, 0.0], [1.0, 4.0]], [2.0, 5.0], lower=True).tolist()
        [1.0, 1.0]
        >>> gr.linalg.solve_triangular([[2.0, 0.0], [1.0, 4.0]], [3.0, 4.0], lower=True, trans=1)
        tensor([1., 1.], dtype=float32)
    """
    if trans in (1, "T", 2, "C"):
        a = _girih.matrix_transpose(a)
        a, lower = (_girih.conj(a) if trans in (2, "C") else a), not lower
    elif trans not in (0, "N"):
        raise InvalidArgumentError(
            f"solve_triangular: trans is 0, 1, 2, 'N', 'T' or 'C', got {trans!r}"
        )
    if left:
        return _girih.linalg_solve_triangular(a, b, lower, unit_diagonal)
    turned = _girih.asarray(b)
    turned = turned if turned.ndim < 2 else _girih.matrix_transpose(turned)
    a = _girih.matrix_transpose(a)
    found = _girih.linalg_solve_triangular(a, turned, not lower, unit_diagonal)
    return found if found.ndim < 2 else _girih.matrix_transpose(found)


def svd(x: Any, /, *, full_matrices: bool = True, safe: bool = False) -> SVDResult:
    """U, S and Vh with ``x = U @ diag(S) @ Vh``; S descends.

    Args:
        x: [..., m, n].
        full_matrices: whether U and Vh are square; otherwise they have the smaller of m and n
            columns and rows.
        safe: whether derivatives are finite where singular values are equal or 0: parts of the
            derivatives of U and Vh that would be divided by 0 count as 0. It is for functions
            that do not depend on the choice of singular vectors, and needs full_matrices=False
            unless x is square.

    Raises:
        InvalidArgumentError: safe with full_matrices, of a matrix that is not square.

    Example:
        >>> U, S, Vh = gr.linalg.svd([[3.0, 0.0], [0.0, 3.0]], full_matrices=False, safe=True)
        >>> S.tolist()
        [3.0, 3.0]
    """
    if safe:
        from .degenerate import safe_svd

        return SVDResult(*safe_svd(x, full_matrices))
    return SVDResult(*_girih.linalg_svd(x, full_matrices))


def svdvals(x: Any, /) -> Tensor:
    """Singular values, descending."""
    return _girih.linalg_svdvals(x)


def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Sums of products over pairs of axes; an int pairs the last axes of x1 with the first axes of
    x2."""
    return _girih.tensordot(x1, x2, axes)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sums of diagonals of the last two axes; integers are summed in int64."""
    if dtype is not None:
        x = _girih.asarray(x).astype(dtype)
    out = _girih.linalg_trace(x, offset)
    return out if dtype is None else out.astype(dtype)


def tri_inv(x: Any, /, *, upper: bool = False) -> Tensor:
    """The inverses of triangular matrices; only one triangle is read.

    Args:
        x: [..., n, n].
        upper: whether the matrices are upper triangular.

    Returns:
        [..., n, n], of the same triangle. A zero on the diagonal raises LinAlgError at evaluation.

    Raises:
        ShapeError: the matrices are not square.

    Example:
        >>> gr.linalg.tri_inv([[2.0, 0.0], [1.0, 1.0]]).tolist()
        [[0.5, 0.0], [-0.5, 1.0]]
    """
    x = _girih.asarray(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"tri_inv: expected square matrices, got shape {list(x.shape)}")
    exact = x.dtype.name == "bool" or "int" in x.dtype.name
    one = _girih.eye(x.shape[-1], dtype=_girih.float32 if exact else x.dtype)
    return solve_triangular(x, _girih.broadcast_to(one, x.shape), lower=not upper)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Sums of products of conj(x1) and x2 along an axis; other axes broadcast."""
    return _girih.vecdot(x1, x2, axis=axis)


def vector_norm(
    x: Any,
    /,
    *,
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Tensor:
    """Norms over axes, by default over all: any order, including inf and 0 (the number of
    nonzeros)."""
    if not isinstance(ord, (int, float)) or math.isnan(ord):
        raise InvalidArgumentError(f"vector_norm: the order is a number, got {ord!r}")
    axes = axis if axis is None or isinstance(axis, int) else tuple(items(axis))
    return _girih.linalg_vector_norm(x, float(ord), keepdims, axes)


def __getattr__(name: str) -> Any:
    from . import synonyms

    return synonyms.attribute(__name__, name)


explain_public(globals())
