"""Activation functions as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _girih
from ..errors import InvalidArgumentError, ShapeError
from . import init
from .module import Module, Parameter, apply, one_axis

if TYPE_CHECKING:
    from .._girih import DType, Tensor

__all__ = [
    "CELU",
    "ELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU6",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanhshrink",
    "Threshold",
    "softplus",
]


class _Activation(Module):
    """A function of one tensor, with the options of the module."""

    _function: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return apply(self._function, x, **self.options)

    def extra_repr(self) -> str:
        """The options of the module."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items())


class ELU(_Activation):
    """``x``, or ``alpha * (exp(x) - 1)`` where ``x`` is not positive."""

    _function = "elu"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class SELU(_Activation):
    """The exponential linear unit scaled to keep mean 0 and variance 1."""

    _function = "selu"

    def __init__(self) -> None:
        super().__init__()


class CELU(_Activation):
    """``x``, or ``alpha * (exp(x / alpha) - 1)`` where ``x`` is not positive."""

    _function = "celu"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class LeakyReLU(_Activation):
    """``x``, or ``negative_slope * x`` where ``x`` is not positive."""

    _function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__(negative_slope=negative_slope)


class ReLU6(_Activation):
    """``x`` limited to ``0..6``."""

    _function = "relu6"

    def __init__(self) -> None:
        super().__init__()


class Hardtanh(_Activation):
    """``x`` limited to ``min_val..max_val``."""

    _function = "hardtanh"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__(min_val=min_val, max_val=max_val)


class Hardsigmoid(_Activation):
    """``(x + 3) / 6`` limited to ``0..1``."""

    _function = "hardsigmoid"

    def __init__(self) -> None:
        super().__init__()


class Hardswish(_Activation):
    """``x * hardsigmoid(x)``."""

    _function = "hardswish"

    def __init__(self) -> None:
        super().__init__()


class Mish(_Activation):
    """``x * tanh(softplus(x))``."""

    _function = "mish"

    def __init__(self) -> None:
        super().__init__()


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``; see :func:`girih.nn.functional.softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return softplus(x, self.beta, self.threshold)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, or ``x`` where ``beta * x`` is above a threshold.

    Args:
        x: Real numbers.
        beta: The sharpness of the bend.
        threshold: The value of ``beta * x`` above which the function is linear.
            :func:`girih.softplus` has no threshold.

    Returns:
        A tensor of x's shape.

    Raises:
        InvalidArgumentError: ``beta`` is 0.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.softplus(gr.asarray([0.0, 30.0]), beta=2.0).tolist()
        [0.3465735912322998, 30.0]
    """
    if beta == 0:
        raise InvalidArgumentError("softplus: beta must not be 0")
    scaled = x if beta == 1 else x * beta
    bent = _girih.softplus(scaled)
    return _girih.where(scaled > threshold, x, bent if beta == 1 else bent / beta)


class RReLU(Module):
    """``x``, or a slope times ``x`` where ``x`` is negative. In training mode the slopes are
    random, in evaluation mode the slope is their mean: Xu et al. 2015.

    Args:
        lower: The smallest slope.
        upper: The largest slope.

    Raises:
        InvalidArgumentError: On a call, ``lower`` is above ``upper``.

    Example:
        >>> import girih as gr
        >>> gr.nn.RReLU(0.25, 0.75).eval()(gr.asarray([-2.0, 2.0])).tolist()
        [-1.0, 2.0]
    """

    def __init__(self, lower: float = 0.125, upper: float = 1 / 3) -> None:
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.rrelu(x, self.lower, self.upper, self.training)


class Softsign(_Activation):
    """``x / (1 + |x|)``."""

    _function = "softsign"

    def __init__(self) -> None:
        super().__init__()


class Tanhshrink(_Activation):
    """``x - tanh(x)``."""

    _function = "tanhshrink"

    def __init__(self) -> None:
        super().__init__()


class LogSigmoid(_Activation):
    """``log(sigmoid(x))``, without overflow."""

    _function = "log_sigmoid"

    def __init__(self) -> None:
        super().__init__()


class Threshold(_Activation):
    """``x`` where ``x`` is above the threshold, ``value`` elsewhere."""

    _function = "threshold"

    def __init__(self, threshold: float, value: float) -> None:
        super().__init__(threshold=threshold, value=value)


class Hardshrink(_Activation):
    """``x``, or 0 where ``|x| <= lambd``."""

    _function = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class Softshrink(_Activation):
    """``x`` moved toward 0 by ``lambd``, or 0 where ``|x| <= lambd``."""

    _function = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__(lambd=lambd)


class GLU(_Activation):
    """The first half of an axis times the sigmoid of the second half."""

    _function = "glu"

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        super().__init__(axis=one_axis(type(self).__name__, axis, dim, -1))


class Softmax(_Activation):
    """Exponentials normalised to sum to one along an axis."""

    _function = "softmax"

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        super().__init__(axis=one_axis(type(self).__name__, axis, dim, -1))


class Softmin(_Activation):
    """Softmax of the negative along an axis."""

    _function = "softmin"

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        super().__init__(axis=one_axis(type(self).__name__, axis, dim, -1))


class LogSoftmax(_Activation):
    """Logarithm of softmax along an axis."""

    _function = "log_softmax"

    def __init__(self, axis: int | None = None, *, dim: int | None = None) -> None:
        super().__init__(axis=one_axis(type(self).__name__, axis, dim, -1))


class Softmax2d(Module):
    """Softmax over the channels of images, ``[batch, channels, h, w]`` or without the batch axis.

    Raises:
        ShapeError: On a call, the number of axes is wrong.

    Example:
        >>> import girih as gr
        >>> gr.nn.Softmax2d()(gr.ones([1, 4, 1, 1])).flatten().tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        if x.ndim not in (3, 4):
            raise ShapeError(
                f"Softmax2d: expected 3 or 4 axes, [..., channels, h, w], got shape {list(x.shape)}"
            )
        return _girih.softmax(x, -3)


class PReLU(Module):
    """``x``, or ``weight * x`` where ``x`` is not positive, with one learnable weight, or one for
    each of ``num_parameters`` channels (axis 1)."""

    weight: Tensor

    def __init__(
        self, num_parameters: int = 1, initial: float = 0.25, dtype: DType | None = None
    ) -> None:
        self.initial = initial
        self.weight = Parameter(init.constant((num_parameters,), initial, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return _girih.prelu(x, self.weight)

    def extra_repr(self) -> str:
        """The number of weights, and the initial value."""
        return f"num_parameters={self.weight.shape[0]}, initial={self.initial}"
