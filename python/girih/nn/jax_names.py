"""Functions of ``jax.nn`` that other libraries do not have, as compositions of ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .. import _girih
from ..checks import explain_public
from ..errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import Tensor, _TensorLike

__all__ = [
    "dot_product_attention",
    "identity",
    "log1mexp",
    "logmeanexp",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "standardize",
]


def _float(x: _TensorLike) -> Tensor:
    x = _girih.asarray(x)
    whole = x.dtype.name.startswith(("bool", "int", "uint"))
    return x.astype(_girih.float32) if whole else x


def identity(x: _TensorLike) -> Tensor:
    """The same elements.

    Args:
        x: a tensor.

    Example:
        >>> gr.nn.functional.identity([1.0])
        tensor([1.], dtype=float32)
    """
    return _girih.positive(x)


def log1mexp(x: _TensorLike) -> Tensor:
    """``log(1 - exp(-x))`` of positive numbers, precise for small and large ones.

    Args:
        x: numbers; NaN below 0, -inf at 0.

    Example:
        >>> gr.nn.functional.log1mexp([0.0, 100.0])
        tensor([          -inf, -3.7835059e-44], dtype=float32)
    """
    x = _float(x)
    near = x < math.log(2)
    # Each formula is precise on its side.
    small = _girih.log(-_girih.expm1(-_girih.where(near, x, 0.5)))
    large = _girih.log1p(-_girih.exp(-_girih.where(near, 1.0, x)))
    return _girih.where(near, small, large)


def logmeanexp(
    x: _TensorLike, axis: int | Sequence[int] | None = None, *, keepdims: bool = False
) -> Tensor:
    """``log(mean(exp(x)))`` over axes, all by default, without overflow.

    Args:
        x: a tensor.
        axis: the axis or axes.
        keepdims: whether reduced axes stay, with size one.

    Example:
        >>> gr.nn.functional.logmeanexp([1000.0, 1000.0])
        tensor(1000., dtype=float32)
    """
    x = _float(x)
    total = _girih.logsumexp(x, axis, keepdims)
    count = x.size // max(total.size, 1)
    return total - (math.log(count) if count else -math.inf)


def sparse_plus(x: _TensorLike) -> Tensor:
    """A softplus that is 0 below -1 and x above 1, with a parabola between.

    Args:
        x: numbers.

    Example:
        >>> gr.nn.functional.sparse_plus([-2.0, 0.0, 2.0])
        tensor([0.  , 0.25, 2.  ], dtype=float32)
    """
    x = _float(x)
    inside = _girih.clip(x, -1.0, 1.0)
    return _girih.where(x >= 1, x, (inside + 1) ** 2 / 4)


def sparse_sigmoid(x: _TensorLike) -> Tensor:
    """A sigmoid that is 0 below -1 and 1 above 1, with a line between.

    Args:
        x: numbers.

    Example:
        >>> gr.nn.functional.sparse_sigmoid([-2.0, 0.0, 2.0])
        tensor([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * _girih.clip(_float(x) + 1.0, 0.0, 2.0)


def squareplus(x: _TensorLike, b: _TensorLike = 4.0) -> Tensor:
    """A softplus without exponentials, ``(x + sqrt(x**2 + b)) / 2``.

    Args:
        x: numbers.
        b: how smooth it is; with 0 it is relu.

    Example:
        >>> gr.nn.functional.squareplus([0.0])
        tensor([1.], dtype=float32)
    """
    x = _float(x)
    root = _girih.sqrt(_girih.add(x * x, b))
    # Below 0 without the cancellation of the sum.
    positive = x >= 0
    below = _girih.multiply(b, 0.5) / (root - _girih.where(positive, -1.0, x))
    return _girih.where(positive, 0.5 * (x + root), below)


def standardize(
    x: _TensorLike,
    axis: int | Sequence[int] | None = -1,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """Subtracts the mean over axes and divides by the standard deviation.

    Args:
        x: a tensor.
        axis: the axis or axes, None for all.
        mean: the mean; by default that of x.
        variance: the variance; by default that of x.
        epsilon: is added to the variance.

    Example:
        >>> gr.nn.functional.standardize([1.0, 3.0])
        tensor([-0.999995,  0.999995], dtype=float32)
    """
    x = _float(x)
    middle = _girih.mean(x, axis, True) if mean is None else _girih.asarray(mean)
    if variance is None:
        variance = _girih.mean((x - middle) ** 2, axis, True)
    return (x - middle) * _girih.rsqrt(_girih.add(variance, epsilon))


def dot_product_attention(
    query: _TensorLike,
    key: _TensorLike,
    value: _TensorLike,
    bias: _TensorLike = None,
    mask: _TensorLike = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Attention in JAX's layout, with the heads before the last axis.

    Args:
        query: [batch, t, heads, size]; the batch may be missing.
        key: [batch, s, groups, size], where the groups divide the heads.
        value: [batch, s, groups, size].
        bias: is added to the products, [batch, heads, t, s] or what broadcasts to it.
        mask: bool of that shape: False leaves a product out.
        scale: the factor of the products, one over the root of the size by default.
        is_causal: whether each query sees only the keys before it.

    Returns:
        [batch, t, heads, size].

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> x = gr.ones(1, 2, 1, 4)
        >>> gr.nn.functional.dot_product_attention(x, x, x).shape
        (1, 2, 1, 4)
    """
    parts = [_girih.asarray(part) for part in (query, key, value)]
    if any(part.ndim not in (3, 4) or part.ndim != parts[0].ndim for part in parts):
        shapes = ", ".join(str(list(part.shape)) for part in parts)
        raise ShapeError(
            f"dot_product_attention: tensors [batch, n, heads, size] are expected, got {shapes}"
        )
    q, k, v = (_girih.swapaxes(part, -2, -3) for part in parts)
    heads, groups = q.shape[-3], k.shape[-3]
    added = None if bias is None else _girih.asarray(bias)
    if mask is not None:
        hidden = _girih.where(_girih.asarray(mask), 0.0, -math.inf).astype(q.dtype)
        added = hidden if added is None else added + hidden
    if is_causal and added is not None:
        t, s = q.shape[-2], k.shape[-2]
        seen = _girih.arange(t)[:, None] >= _girih.arange(s)
        added, is_causal = _girih.where(seen, added, -math.inf), False
    found = _girih.scaled_dot_product_attention(
        q, k, v, added, 0.0, is_causal, scale, heads != groups
    )
    return _girih.swapaxes(found, -2, -3)


explain_public(globals())
