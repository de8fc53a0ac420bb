"""Convolutions as modules."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from ..checks import items
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
    """The size of each axis; a single size is repeated for all axes."""
    out = (value,) * n if isinstance(value, int) else tuple(items(value))
    if len(out) != n or any(size < 1 for size in out):
        raise InvalidArgumentError(f"{name}: expected {n} positive sizes, got {value}")
    return out


def check_moves(name: str, stride: _Sizes, padding: Any, dilation: _Sizes) -> None:
    """Raises an error for invalid strides, dilations and padding widths."""
    for argument, value, least in (("stride", stride, 1), ("dilation", dilation, 1)):
        if any(size < least for size in ((value,) if isinstance(value, int) else value)):
            raise InvalidArgumentError(f"{name}: {argument} must be at least {least}, got {value}")
    if isinstance(padding, str):
        if padding.lower() not in ("same", "valid"):
            raise InvalidArgumentError(
                f"{name}: padding must be 'same', 'valid' or widths, got {padding!r}"
            )
        return
    entries = (padding,) if isinstance(padding, int) else padding
    flat = [w for entry in entries for w in ((entry,) if isinstance(entry, int) else entry)]
    if any(width < 0 for width in flat):
        raise InvalidArgumentError(f"{name}: padding must not be negative, got {padding}")


_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """The common base of convolutions and transposed convolutions: weight, bias and options."""

    precision: ClassVar[str | None] = "half"

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
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        dtype: DType | None = None,
    ) -> None:
        name = type(self).__name__
        if padding_mode not in _MODES:
            raise InvalidArgumentError(
                f"{name}: padding_mode is one of {', '.join(_MODES)}; got {padding_mode!r}"
            )
        check_moves(name, stride, padding, dilation)
        channels = (in_channels, out_channels)
        shape = (out_channels, in_channels // max(groups, 1))
        self._setup(shape, channels, kernel_size, groups, bias, dtype)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.padding_mode = padding_mode

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
            self.padding_mode,
        )


class Conv1d(_Conv):
    """Cross-correlation along one axis with learnable kernels, and a bias per output channel.

    Shapes: x ``[batch, in_channels, n]``, weight ``[out_channels, in_channels / groups, k]``.
    Weight and bias start uniform in ``±1 / sqrt(in_channels / groups * k)``.

    Args:
        in_channels: The number of channels of the argument.
        out_channels: The number of channels of the result.
        kernel_size: The size along each axis, or along all axes.
        stride: The distance between positions of the kernel.
        padding: One width, one per axis, a pair per axis, ``"same"`` or ``"valid"``.
        dilation: The distance between elements of the kernel.
        groups: The number of groups of channels; each group is convolved separately.
        bias: Whether to add a bias.
        padding_mode: The values of the padding: ``"zeros"``, the mirrored axis (``"reflect"``), the
            outermost elements of the axis (``"replicate"``) or its other end (``"circular"``).
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: The groups do not divide the channels; a size, stride, dilation or
            padding is invalid; or the mode is unknown.
        ShapeError: On a call, the number of channels is wrong, or the kernel is larger than the
            padded argument.

    Example:
        >>> import girih as gr
        >>> gr.nn.Conv1d(2, 4, 3, padding="same", padding_mode="circular")(gr.ones([1, 2, 5])).shape
        (1, 4, 5)
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
        check_moves(type(self).__name__, stride, padding, dilation)
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
    """The transpose of :class:`Conv1d`: the sum of kernels scaled by the elements of the argument.

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
