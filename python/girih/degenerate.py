"""Eigenvalues and singular values whose derivatives are finite where they are equal.

The derivatives of eigenvectors and singular vectors are sums of terms divided by the differences of
eigenvalues, or of the squares of singular values. Here terms that would be divided by (nearly) zero
are left out. That is the right derivative of every function that does not depend on the choice of
vectors in the space of equal values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _girih
from .dtypes import finfo
from .errors import InvalidArgumentError
from .rules import custom_jvp

if TYPE_CHECKING:
    from ._girih import Tensor


def _adjoint(x: Tensor) -> Tensor:
    return _girih.conj(_girih.matrix_transpose(x))


def _inverse(differences: Tensor, scale: Tensor) -> Tensor:
    """One over each difference, and 0 for those that are no more than rounding of the scale."""
    size = differences.shape[-1]
    far = _girih.abs(differences) > scale * (finfo(differences.dtype).eps * size)
    return _girih.where(far, 1 / _girih.where(far, differences, 1.0), 0.0)


def safe_eigh(x: Any, upper: bool) -> tuple[Tensor, Tensor]:
    """The result of ``linalg.eigh``, with finite derivatives."""

    def hermitian(x: Tensor) -> Tensor:
        triangle = _girih.triu(x, k=1) if upper else _girih.tril(x, k=-1)
        diagonal = _girih.real(_girih.diagonal(x, 0, -2, -1))
        size = diagonal.shape[-1]
        on_diagonal = _girih.eye(size, dtype=diagonal.dtype) * diagonal[..., None]
        return triangle + _adjoint(triangle) + on_diagonal

    @custom_jvp
    def eigh(x: Tensor) -> tuple[Tensor, Tensor]:
        return _girih.linalg_eigh(x, upper)

    @eigh.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        values, vectors = eigh(*primals)
        change = _adjoint(vectors) @ hermitian(tangents[0]) @ vectors
        gaps = values[..., None, :] - values[..., :, None]
        largest = _girih.max(_girih.abs(values), -1, keepdims=True)[..., None]
        turn = _inverse(gaps, largest) * change
        slope = _girih.real(_girih.diagonal(change, 0, -2, -1))
        return (values, vectors), (slope, vectors @ turn)

    x = _girih.asarray(x)
    if x.ndim < 2 or x.shape[-1] == 0:
        return _girih.linalg_eigh(x, upper)
    found: tuple[Tensor, Tensor] = eigh(_float(x))
    return found


def _float(x: Tensor) -> Tensor:
    exact = x.dtype.name == "bool" or "int" in x.dtype.name
    return x.astype(_girih.float32) if exact else x


def safe_svd(x: Any, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The result of ``linalg.svd``, with finite derivatives."""

    @custom_jvp
    def svd(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _girih.linalg_svd(x, False)

    @svd.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (left, values, right), (change,) = svd(*primals), tangents
        back = _adjoint(right)
        inner = _adjoint(left) @ change @ back
        slope = _girih.real(_girih.diagonal(inner, 0, -2, -1))
        row, column = values[..., None, :], values[..., :, None]
        largest = _girih.max(values, -1, keepdims=True)[..., None]
        # The differences of squares, by factors, so that nothing is cancelled.
        turn = _inverse(row - column, largest) * _inverse(row + column, largest)
        right_scaled, left_scaled = inner * row, column * inner
        inverse = _inverse(row, largest)
        size = values.shape[-1]
        # Of complex numbers, the phases of vectors of both sides turn against each other.
        phase = 0.5 * (inner - _adjoint(inner)) * inverse
        phase = phase * _girih.eye(size, dtype=values.dtype)
        of_left = left @ (turn * (right_scaled + _adjoint(right_scaled)) + phase)
        of_back = back @ (turn * (left_scaled + _adjoint(left_scaled)))
        rows, columns = change.shape[-2:]
        if rows > columns:
            image = change @ back
            of_left = of_left + (image - left @ (_adjoint(left) @ image)) * inverse
        if columns > rows:
            image = _adjoint(change) @ left
            of_back = of_back + (image - back @ (_adjoint(back) @ image)) * inverse
        return (left, values, right), (of_left, slope, _adjoint(of_back))

    x = _girih.asarray(x)
    if x.ndim < 2 or 0 in x.shape[-2:]:
        return _girih.linalg_svd(x, full_matrices)
    if full_matrices and x.shape[-1] != x.shape[-2]:
        raise InvalidArgumentError(
            f"svd: safe derivatives of matrices of shape {list(x.shape[-2:])} are for "
            "full_matrices=False"
        )
    found: tuple[Tensor, Tensor, Tensor] = svd(_float(x))
    return found
