"""Layers."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import _girih
from ..checks import check_eps, items
from ..errors import AxisError, InvalidArgumentError, ShapeError
from . import dropouts, init
from .module import Module, Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = [
    "GELU",
    "AlphaDropout",
    "Bilinear",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "FeatureAlphaDropout",
    "Flatten",
    "Identity",
    "LayerNorm",
    "Linear",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Tanh",
    "Unflatten",
    "bilinear",
    "linear",
]


class Linear(Module):
    """``x @ weight.T + bias``.

    Shapes: x ``[..., in_features]``, weight ``[out_features, in_features]``, bias
    ``[out_features]``, result ``[..., out_features]``. Initial weight and bias are uniform in ``±1
    / sqrt(in_features)``.
    """

    precision: ClassVar[str | None] = "half"

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
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise InvalidArgumentError(f"{type(self).__name__}: p must be in [0, 1], got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        if not self.training or self.p == 0.0:
            return x
        return _girih.dropout(x, self.p)


class Dropout1d(Dropout):
    """Dropout of whole channels of ``[batch, channels, n]``, with or without the batch: Tompson et
    al. 2015."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        return dropouts.dropout1d(x, self.p) if self.training and self.p else x


class Dropout2d(Dropout):
    """Dropout of whole channels of ``[batch, channels, h, w]``; three axes are ``[batch, channels,
    n]``, as in PyTorch."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        return dropouts.dropout2d(x, self.p) if self.training and self.p else x


class Dropout3d(Dropout):
    """Dropout of whole channels of ``[batch, channels, d, h, w]``, with or without the batch."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        return dropouts.dropout3d(x, self.p) if self.training and self.p else x


class AlphaDropout(Dropout):
    """Dropout that preserves mean 0 and variance 1 after :class:`SELU`: Klambauer et al. 2017.

    In training mode each element gets, with probability ``p``, the value at which ``selu``
    saturates; the result is scaled and shifted.

    Args:
        p: The probability of dropping an element.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.AlphaDropout(0.5).eval()(gr.ones([2])).tolist()
        [1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        return _girih.alpha_dropout(x, self.p) if self.training else x


class FeatureAlphaDropout(Dropout):
    """:class:`AlphaDropout` of whole channels (axis 1) of each batch entry."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; the identity in evaluation mode."""
        return dropouts.feature_alpha_dropout(x, self.p) if self.training else x


class Identity(Module):
    """Returns its argument; accepts any constructor arguments, to replace a layer.

    Example:
        >>> import girih as gr
        >>> gr.nn.Identity()(gr.asarray([1.0])).tolist()
        [1.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """Returns the argument."""
        return x


class Flatten(Module):
    """Merges the axes from ``start_dim`` to ``end_dim`` into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        start, end = (a + x.ndim if a < 0 else a for a in (self.start_dim, self.end_dim))
        if not 0 <= start <= end < x.ndim:
            raise AxisError(
                f"Flatten: axes {self.start_dim} to {self.end_dim} are no range of axes of shape "
                f"{list(x.shape)}"
            )
        return x.reshape((*x.shape[:start], prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


class Unflatten(Module):
    """Splits an axis into several axes.

    Args:
        dim: The axis.
        unflattened_size: The sizes of the new axes; one may be -1.

    Raises:
        AxisError: On a call, the axis is out of range.
        ShapeError: On a call, the product of the sizes is not the size of the axis.

    Example:
        >>> import girih as gr
        >>> gr.nn.Unflatten(1, (2, -1))(gr.ones([3, 8])).shape
        (3, 2, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(items(unflattened_size))

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        axis = self.dim + x.ndim if self.dim < 0 else self.dim
        if not 0 <= axis < x.ndim:
            raise AxisError(
                f"Unflatten: axis {self.dim} is out of range for a tensor of shape {list(x.shape)}"
            )
        sizes = self.unflattened_size
        known = prod(s for s in sizes if s != -1)
        size = x.shape[axis]
        fits = size == known if -1 not in sizes else known > 0 and size % known == 0
        if not fits or sizes.count(-1) > 1:
            raise ShapeError(
                f"Unflatten: sizes {list(sizes)} do not fill axis {axis} of shape {list(x.shape)}"
            )
        new = [size // known if s == -1 else s for s in sizes]
        return x.reshape((*x.shape[:axis], *new, *x.shape[axis + 1 :]))


class Bilinear(Module):
    """``x1 @ weight @ x2 + bias``, a matrix of weights for each feature of the result.

    Shapes: x1 ``[..., in1_features]``, x2 ``[..., in2_features]``, weight ``[out_features,
    in1_features, in2_features]``, bias ``[out_features]``, result ``[..., out_features]``. Initial
    weight and bias are uniform in ``±1 / sqrt(in1_features)``.

    Args:
        in1_features: The number of features of the first argument.
        in2_features: The number of features of the second argument.
        out_features: The number of features of the result.
        bias: Whether to add a bias.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: A size is negative.
        ShapeError: On a call, the sizes do not match.

    Example:
        >>> import girih as gr
        >>> gr.nn.Bilinear(2, 3, 4)(gr.ones([5, 2]), gr.ones([5, 3])).shape
        (5, 4)
    """

    precision: ClassVar[str | None] = "half"

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        shape = (out_features, in1_features, in2_features)
        if min(shape) < 0:
            raise InvalidArgumentError(f"Bilinear: sizes must not be negative, got {shape}")
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        bound = in1_features**-0.5 if in1_features else 0.0
        self.weight = Parameter(init.uniform(shape, -bound, bound, dtype))
        self.bias = Parameter(init.uniform(shape[:1], -bound, bound, dtype)) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Applies the layer."""
        return bilinear(x1, x2, self.weight, self.bias)


def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 @ weight @ x2 + bias``, a matrix of weights for each feature of the result.

    Args:
        x1: ``[..., n]``.
        x2: ``[..., m]``.
        weight: ``[out, n, m]``.
        bias: ``[out]``.

    Returns:
        ``[..., out]``.

    Raises:
        ShapeError: The sizes do not match.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.bilinear(gr.ones([2]), gr.ones([3]), gr.ones([1, 2, 3])).tolist()
        [6.0]
    """
    shapes = [list(t.shape) for t in (x1, x2, weight)]
    if weight.ndim != 3 or [shapes[0][-1:], shapes[1][-1:]] != [shapes[2][1:2], shapes[2][2:]]:
        raise ShapeError(
            f"bilinear: shapes {shapes[0]}, {shapes[1]} and {shapes[2]} do not fit: expected "
            "[..., n], [..., m] and [out, n, m]"
        )
    rows = weight.permute(1, 0, 2).reshape(weight.shape[1], weight.shape[0] * weight.shape[2])
    maps = (x1 @ rows).reshape((*x1.shape[:-1], weight.shape[0], weight.shape[2]))
    out = (maps @ x2.unsqueeze(-1)).squeeze(-1)
    return out if bias is None else out + bias


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: ``[..., n]``.
        weight: ``[out, n]``.
        bias: ``[out]``.

    Returns:
        ``[..., out]``.

    Raises:
        ShapeError: The sizes do not match.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.linear(gr.ones([2]), gr.ones([3, 2])).tolist()
        [2.0, 2.0, 2.0]
    """
    out = x @ weight.T
    return out if bias is None else out + bias


class LayerNorm(Module):
    """Normalises over the last axes, then scales and shifts, unless ``elementwise_affine`` or
    ``bias`` is False.

    Shapes: x ``[..., *normalized_shape]``, weight and bias ``normalized_shape``.
    """

    precision: ClassVar[str | None] = "full"

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(items(sizes))
        self.eps, self.elementwise_affine = check_eps(self, eps), elementwise_affine
        learnt, sizes = elementwise_affine, self.normalized_shape
        self.weight = Parameter(init.ones(sizes, dtype)) if learnt else None
        self.bias = Parameter(init.zeros(sizes, dtype)) if learnt and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
