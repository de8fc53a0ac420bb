"""Initialisers: functions from a shape to a lazy tensor.

Weights have the layout ``[out, in, ...]``, which determines fan-in and fan-out. Draws come from the
generator that :func:`girih.manual_seed` seeds, in the order of recording.
"""

from __future__ import annotations

from math import erf, prod, sqrt
from typing import TYPE_CHECKING

from .. import _girih, linalg
from ..checks import explain_public, items
from ..errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros",
    "zeros_",
]


def zeros(shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """A tensor of zeros; float32 by default."""
    return _girih.zeros(shape, dtype=dtype)


def ones(shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """A tensor of ones; float32 by default."""
    return _girih.ones(shape, dtype=dtype)


def constant(shape: Sequence[int], value: float, dtype: DType | None = None) -> Tensor:
    """A tensor filled with ``value``; float32 by default."""
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
    shape = items(shape)
    if len(shape) < 2:
        raise ShapeError(f"{function}: needs at least two axes [out, in], got shape {list(shape)}")
    receptive = 1
    for size in shape[2:]:
        receptive *= size
    return shape[1] * receptive, shape[0] * receptive


def _wide(dtype: DType | None) -> DType:
    """The dtype in which a draw is computed."""
    if dtype is not None and _girih.zeros((), dtype=dtype).dtype == _girih.float64:
        return _girih.float64
    return _girih.float32


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


_GAINS = {
    **dict.fromkeys(["linear", "sigmoid", "softmax", "identity"], 1.0),
    **dict.fromkeys([f"conv{i}d" for i in (1, 2, 3)], 1.0),
    **dict.fromkeys([f"conv_transpose{i}d" for i in (1, 2, 3)], 1.0),
    "tanh": 5.0 / 3.0,
    "relu": sqrt(2.0),
    "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain with which an initialiser preserves the variance through a nonlinearity.

    Args:
        nonlinearity: ``"linear"``, ``"sigmoid"``, ``"tanh"``, ``"relu"``, ``"leaky_relu"``,
            ``"selu"``, or a convolution.
        param: The slope of ``"leaky_relu"``, 0.01 by default.

    Returns:
        The gain.

    Raises:
        InvalidArgumentError: The function is unknown.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.calculate_gain("leaky_relu", 1.0)
        1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return sqrt(2.0 / (1.0 + slope * slope))
    if nonlinearity not in _GAINS:
        raise InvalidArgumentError(
            f"calculate_gain: nonlinearity is one of leaky_relu, {', '.join(_GAINS)}; got "
            f"{nonlinearity!r}"
        )
    return _GAINS[nonlinearity]


def trunc_normal(
    shape: Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
    dtype: DType | None = None,
) -> Tensor:
    """Normal with the given mean and standard deviation, truncated to ``[low, high]``.

    Args:
        shape: The shape of the result.
        mean: The mean before truncation.
        std: The standard deviation before truncation.
        low: The smallest value.
        high: The largest value.
        dtype: float32 by default.

    Returns:
        The draws.

    Raises:
        InvalidArgumentError: ``std`` is not positive, or ``low`` not below ``high``.

    Example:
        >>> import girih as gr
        >>> bool(abs(gr.nn.init.trunc_normal([1000])).max() <= 2)
        True
    """
    if not (std > 0 and low < high):
        raise InvalidArgumentError(
            f"trunc_normal: std must be positive and low below high, got std {std}, low {low} and "
            f"high {high}"
        )
    share = [(1 + erf((bound - mean) / (std * sqrt(2)))) / 2 for bound in (low, high)]
    wide = _wide(dtype)
    draws = uniform(shape, 2 * share[0] - 1, 2 * share[1] - 1, wide)
    normal_draws = _girih.erfinv(draws) * (std * sqrt(2)) + mean
    return normal_draws.clip(low, high).astype(wide if dtype is None else dtype)


def orthogonal(shape: Sequence[int], gain: float = 1.0, dtype: DType | None = None) -> Tensor:
    """Orthogonal rows (or columns, if there are fewer) of length ``gain``: Saxe et al. 2014. Axes
    after the first are treated as one.

    Args:
        shape: At least two axes.
        gain: The length.
        dtype: float32 by default.

    Returns:
        The weights.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Example:
        >>> import girih as gr
        >>> w = gr.nn.init.orthogonal([2, 5])
        >>> bool(abs(w @ w.T - gr.eye(2)).max() < 1e-5)
        True
    """
    shape = items(shape)
    if len(shape) < 2:
        raise ShapeError(f"orthogonal: needs at least two axes, got shape {list(shape)}")
    rows, columns = shape[0], prod(shape[1:])
    wide = _wide(dtype)
    if 0 in (rows, columns):
        return _girih.zeros(shape, dtype=wide if dtype is None else dtype)
    tall = normal((max(rows, columns), min(rows, columns)), dtype=wide)
    q, r = linalg.qr(tall)
    # With a positive diagonal the factors are unique, and q is uniformly distributed.
    q = q * _girih.where(_girih.diagonal(r) < 0, -1.0, 1.0).astype(wide)
    q = q if rows >= columns else q.T
    return (q.reshape(shape) * gain).astype(wide if dtype is None else dtype)


def eye(shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """Ones on the diagonal of a matrix, zeros elsewhere.

    Args:
        shape: Two axes.
        dtype: float32 by default.

    Returns:
        The matrix.

    Raises:
        ShapeError: The number of axes is wrong.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.eye([2, 3]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    shape = items(shape)
    if len(shape) != 2:
        raise ShapeError(f"eye: needs two axes, got shape {list(shape)}")
    return _girih.eye(shape[0], shape[1], dtype=_girih.float32 if dtype is None else dtype)


def dirac(shape: Sequence[int], groups: int = 1, dtype: DType | None = None) -> Tensor:
    """Kernels of an identity convolution: one at the centre of kernels between equal channels.

    Args:
        shape: ``[out, in / groups, ...]``, with 1 to 3 spatial axes.
        groups: The number of groups of channels.
        dtype: float32 by default.

    Returns:
        The kernels.

    Raises:
        InvalidArgumentError: The groups do not divide the channels.
        ShapeError: The number of axes is wrong.

    Example:
        >>> import girih as gr
        >>> gr.nn.init.dirac([1, 1, 3]).tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    shape = items(shape)
    if len(shape) not in (3, 4, 5):
        raise ShapeError(f"dirac: needs 3 to 5 axes [out, in, ...], got shape {list(shape)}")
    if groups < 1 or shape[0] % groups:
        raise InvalidArgumentError(f"dirac: {groups} groups do not divide {shape[0]} channels")
    channels = _girih.arange(shape[0]) % max(shape[0] // groups, 1)
    weight = (channels.unsqueeze(1) == _girih.arange(shape[1])).reshape(
        (shape[0], shape[1], *[1] * (len(shape) - 2))
    )
    for axis, size in enumerate(shape[2:]):
        centre = _girih.arange(size) == size // 2
        weight = weight & centre.reshape((size, *[1] * (len(shape) - 3 - axis)))
    out: Tensor = weight.astype(_girih.float32 if dtype is None else dtype)
    return out


def sparse(
    shape: Sequence[int], sparsity: float, std: float = 0.01, dtype: DType | None = None
) -> Tensor:
    """Normal with mean 0, with a fraction of each column set to zero: Martens 2010.

    Args:
        shape: Two axes.
        sparsity: The fraction of zeros, rounded up to whole rows.
        std: The standard deviation of the other elements.
        dtype: float32 by default.

    Returns:
        The weights.

    Raises:
        InvalidArgumentError: ``sparsity`` is outside ``[0, 1]``.
        ShapeError: The number of axes is wrong.

    Example:
        >>> import girih as gr
        >>> (gr.nn.init.sparse([4, 3], 0.5) == 0).sum(0).tolist()
        [2, 2, 2]
    """
    shape = items(shape)
    if len(shape) != 2:
        raise ShapeError(f"sparse: needs two axes, got shape {list(shape)}")
    if not 0 <= sparsity <= 1:
        raise InvalidArgumentError(f"sparse: sparsity must be in [0, 1], got {sparsity}")
    zeros_each = -int(-sparsity * shape[0] // 1)
    order = _girih.argsort(_girih.argsort(_girih.rand(shape), 0), 0)
    weights = normal(shape, 0.0, std, dtype)
    return _girih.where(order < zeros_each, 0.0, weights)


explain_public(globals())

# They use the functions above.
from .filling import (  # noqa: E402
    constant_,
    dirac_,
    eye_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    orthogonal_,
    sparse_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)
