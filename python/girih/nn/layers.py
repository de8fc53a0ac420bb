"""Layers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal

from .. import _girih
from ..errors import AxisError, InvalidArgumentError
from . import init
from .module import Module, Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = [
    "GELU",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "Embedding",
    "Flatten",
    "LayerNorm",
    "Linear",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Tanh",
]


class Linear(Module):
    """``x @ weight.T + bias``.

    Shapes: x ``[..., in_features]``, weight ``[out_features, in_features]``, bias
    ``[out_features]``, result ``[..., out_features]``. Weight and bias start uniform in
    ``±1 / sqrt(in_features)``.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: DType | None = None
    ) -> None:
        if in_features < 0 or out_features < 0:
            raise InvalidArgumentError(
                f"Linear: sizes must not be negative, got {in_features} and {out_features}"
            )
        self.in_features, self.out_features = in_features, out_features
        bound = in_features**-0.5 if in_features else 0.0
        shape = (out_features, in_features)
        self.weight = Parameter(init.uniform(shape, -bound, bound, dtype))
        self.bias = Parameter(init.uniform(shape[:1], -bound, bound, dtype)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias


class ReLU(Module):
    """``max(x, 0)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.relu(x)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.sigmoid(x)


class SiLU(Module):
    """``x * sigmoid(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.silu(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.tanh(x)


class GELU(Module):
    """``x * Phi(x)``, exactly by erf (``approximate="none"``) or by the tanh formula."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.gelu(x, approximate=self.approximate)


class Dropout(Module):
    """In training mode zeroes elements with probability ``p`` and scales the rest by ``1/(1-p)``.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1)``.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p < 1.0:
            raise InvalidArgumentError(f"Dropout: p must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        if not self.training or self.p == 0.0:
            return x
        keep = _girih.rand(x.shape) >= self.p
        return _girih.where(keep, x * (1.0 / (1.0 - self.p)), 0.0)


class _ChannelDropout(Dropout):
    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        if not self.training or self.p == 0.0:
            return x
        return _girih.dropout(x, self.p, whole_channels=True)


class Dropout1d(_ChannelDropout):
    """Dropout of whole channels of ``[batch, channels, n]``: Tompson et al. 2015."""


class Dropout2d(_ChannelDropout):
    """Dropout of whole channels of ``[batch, channels, h, w]``."""


class Dropout3d(_ChannelDropout):
    """Dropout of whole channels of ``[batch, channels, d, h, w]``."""


class Flatten(Module):
    """Makes one axis of the axes from ``start_axis`` to ``end_axis``."""

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        start, end = (a + x.ndim if a < 0 else a for a in (self.start_axis, self.end_axis))
        if not 0 <= start <= end < x.ndim:
            raise AxisError(
                f"Flatten: axes {self.start_axis} to {self.end_axis} are no range of axes of shape "
                f"{list(x.shape)}"
            )
        return x.reshape((*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


class Embedding(Module):
    """Rows of a table, addressed by integers.

    Shapes: weight ``[num_embeddings, features]``, indices of any shape, result
    ``indices.shape + [features]``. The table starts standard normal.
    """

    weight: Tensor

    def __init__(self, num_embeddings: int, features: int, dtype: DType | None = None) -> None:
        self.num_embeddings, self.features = num_embeddings, features
        self.weight = Parameter(init.normal((num_embeddings, features), dtype=dtype))

    def forward(self, indices: Tensor) -> Tensor:
        """Looks the rows up."""
        return _girih.take(self.weight, indices, axis=0)


class LayerNorm(Module):
    """Normalises over the last axes, then scales and shifts.

    Shapes: x ``[..., *normalized_shape]``, weight and bias ``normalized_shape``.
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DType | None = None,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps, self.affine = eps, affine
        self.weight = Parameter(init.ones(self.normalized_shape, dtype)) if affine else None
        self.bias = Parameter(init.zeros(self.normalized_shape, dtype)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
