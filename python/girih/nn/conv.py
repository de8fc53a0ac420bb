"""Convolutions as modules."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from ..errors import InvalidArgumentError
from . import init
from .module import Module, Parameter, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

    _Sizes: TypeAlias = int | Sequence[int]
    _Padding: TypeAlias = _Sizes | Sequence[tuple[int, int]] | Literal["same", "valid"]

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]


def sizes(name: str, value: _Sizes, n: int) -> tuple[int, ...]:
    """One size per axis."""
    out = (value,) * n if isinstance(value, int) else tuple(value)
    if len(out) != n or any(size < 1 for size in out):
        raise InvalidArgumentError(f"{name}: expected {n} positive sizes, got {value}")
    return out


class _Convolution(Module):
    """What both directions hold: weight, bias and how the kernel moves."""

    axes: ClassVar[int]
    weight: Tensor
    bias: Tensor | None

    def _setup(
        self,
        shape: tuple[int, int],
        channels: tuple[int, int],
        kernel_size: _Sizes,
        groups: int,
        bias: bool,
        dtype: DType | None,
    ) -> None:
        name = type(self).__name__
        if groups < 1 or min(channels) < 0 or any(c % groups for c in channels):
            raise InvalidArgumentError(
                f"{name}: {groups} groups do not divide {channels[0]} and {channels[1]} channels"
            )
        self.in_channels, self.out_channels = channels
        self.kernel_size = sizes(name, kernel_size, self.axes)
        self.groups = groups
        fan_in = shape[1] * prod(self.kernel_size)
        bound = fan_in**-0.5 if fan_in else 0.0
        weight = init.uniform((*shape, *self.kernel_size), -bound, bound, dtype)
        self.weight = Parameter(weight)
        self.bias = Parameter(init.uniform((channels[1],), -bound, bound, dtype)) if bias else None


class _Conv(_Convolution):
    _function: ClassVar[str]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Padding = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | None = None,
    ) -> None:
        channels = (in_channels, out_channels)
        shape = (out_channels, in_channels // max(groups, 1))
        self._setup(shape, channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return apply(
            self._function,
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )


class Conv1d(_Conv):
    """Cross-correlation along one axis with learnt kernels, and a bias per output channel.

    Shapes: x ``[batch, in_channels, n]``, weight ``[out_channels, in_channels / groups, k]``.
    Weight and bias start uniform in ``±1 / sqrt(in_channels / groups * k)``.
    """

    axes = 1
    _function = "conv1d"


class Conv2d(_Conv):
    """Cross-correlation along two axes; see :class:`Conv1d`."""

    axes = 2
    _function = "conv2d"


class Conv3d(_Conv):
    """Cross-correlation along three axes; see :class:`Conv1d`."""

    axes = 3
    _function = "conv3d"


class _ConvTranspose(_Convolution):
    _function: ClassVar[str]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes | Sequence[tuple[int, int]] = 0,
        output_padding: _Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: _Sizes = 1,
        dtype: DType | None = None,
    ) -> None:
        channels = (in_channels, out_channels)
        shape = (in_channels, out_channels // max(groups, 1))
        self._setup(shape, channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return apply(
            self._function,
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_ConvTranspose):
    """The transpose of :class:`Conv1d`: kernels scaled by elements, added up where they lie.

    Shapes: x ``[batch, in_channels, n]``, weight ``[in_channels, out_channels / groups, k]``.
    """

    axes = 1
    _function = "conv_transpose1d"


class ConvTranspose2d(_ConvTranspose):
    """The transpose of :class:`Conv2d`; see :class:`ConvTranspose1d`."""

    axes = 2
    _function = "conv_transpose2d"


class ConvTranspose3d(_ConvTranspose):
    """The transpose of :class:`Conv3d`; see :class:`ConvTranspose1d`."""

    axes = 3
    _function = "conv_transpose3d"
