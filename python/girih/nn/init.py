"""Initialisers: functions from a shape to a lazy tensor.

Weights are laid out ``[out, in, ...]``; fan-in and fan-out count by that. Draws come from the
generator that :func:`girih.manual_seed` seeds, in the order they are recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih
from ..errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = [
    "constant",
    "kaiming_normal",
    "kaiming_uniform",
    "normal",
    "ones",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]


def zeros(shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """All zero; float32 by default."""
    return _girih.zeros(shape, dtype=dtype)


def ones(shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """All one; float32 by default."""
    return _girih.ones(shape, dtype=dtype)


def constant(shape: Sequence[int], value: float, dtype: DType | None = None) -> Tensor:
    """All ``value``; float32 by default."""
    return _girih.full(shape, value, dtype=_girih.float32 if dtype is None else dtype)


def uniform(
    shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: DType | None = None
) -> Tensor:
    """Uniform in ``[low, high)``; float32 by default."""
    return _girih.rand(shape, dtype=dtype) * (high - low) + low


def normal(
    shape: Sequence[int], mean: float = 0.0, std: float = 1.0, dtype: DType | None = None
) -> Tensor:
    """Normal with the given mean and standard deviation; float32 by default."""
    draws = _girih.randn(shape, dtype=dtype)
    return draws if (mean, std) == (0.0, 1.0) else draws * std + mean


def _fans(shape: Sequence[int], function: str) -> tuple[int, int]:
    if len(shape) < 2:
        raise ShapeError(f"{function}: needs at least two axes [out, in], got shape {list(shape)}")
    receptive = 1
    for size in shape[2:]:
        receptive *= size
    return shape[1] * receptive, shape[0] * receptive


def _over(numerator: float, fan: float) -> float:
    return (numerator / fan) ** 0.5 if fan else 0.0


def kaiming_uniform(
    shape: Sequence[int], gain: float = 2.0**0.5, dtype: DType | None = None
) -> Tensor:
    """Uniform with standard deviation ``gain / sqrt(fan_in)``: He et al. 2015, eq. 10."""
    bound = gain * _over(3.0, _fans(shape, "kaiming_uniform")[0])
    return uniform(shape, -bound, bound, dtype)


def kaiming_normal(
    shape: Sequence[int], gain: float = 2.0**0.5, dtype: DType | None = None
) -> Tensor:
    """Normal with standard deviation ``gain / sqrt(fan_in)``: He et al. 2015, eq. 10."""
    return normal(shape, 0.0, gain * _over(1.0, _fans(shape, "kaiming_normal")[0]), dtype)


def xavier_uniform(shape: Sequence[int], gain: float = 1.0, dtype: DType | None = None) -> Tensor:
    """Uniform with variance ``2 gain² / (fan_in + fan_out)``: Glorot and Bengio 2010, eq. 16."""
    bound = gain * _over(6.0, sum(_fans(shape, "xavier_uniform")))
    return uniform(shape, -bound, bound, dtype)


def xavier_normal(shape: Sequence[int], gain: float = 1.0, dtype: DType | None = None) -> Tensor:
    """Normal with variance ``2 gain² / (fan_in + fan_out)``: Glorot and Bengio 2010, eq. 12."""
    return normal(shape, 0.0, gain * _over(2.0, sum(_fans(shape, "xavier_normal"))), dtype)
