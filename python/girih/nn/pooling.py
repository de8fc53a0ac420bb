"""Poolings and resampling as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .module import Module, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import Tensor

    _Sizes: TypeAlias = int | Sequence[int]

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Upsample",
]


class _Pool(Module):
    _function: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return apply(self._function, x, **self.options)

    def extra_repr(self) -> str:
        """The options."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items())


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            ceil_mode=ceil_mode,
        )


class MaxPool1d(_MaxPool):
    """Largest element of each window of the last axis; the stride is its size by default."""

    _function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """Largest element of each window of the last two axes; see :class:`MaxPool1d`."""

    _function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """Largest element of each window of the last three axes; see :class:`MaxPool1d`."""

    _function = "max_pool3d"


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
        )


class AvgPool1d(_AvgPool):
    """Mean of each window of the last axis; the stride is the window's size unless given."""

    _function = "avg_pool1d"


class AvgPool2d(_AvgPool):
    """Mean of each window of the last two axes; see :class:`AvgPool1d`."""

    _function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """Mean of each window of the last three axes; see :class:`AvgPool1d`."""

    _function = "avg_pool3d"


class _LPPool(_Pool):
    def __init__(self, norm_type: float, kernel_size: _Sizes, stride: _Sizes | None = None) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride)


class LPPool1d(_LPPool):
    """``sum(|x|**p)**(1/p)`` of each window of the last axis."""

    _function = "lp_pool1d"


class LPPool2d(_LPPool):
    """``sum(|x|**p)**(1/p)`` of each window of the last two axes."""

    _function = "lp_pool2d"


class LPPool3d(_LPPool):
    """``sum(|x|**p)**(1/p)`` of each window of the last three axes."""

    _function = "lp_pool3d"


class _Adaptive(_Pool):
    def __init__(self, output_size: _Sizes) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_Adaptive):
    """Means of windows of the last axis, so placed that the result has the given size."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive):
    """Means of windows of the last two axes, so placed that the result has the given sizes."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive):
    """Means of windows of the last three axes, so placed that the result has the given sizes."""

    _function = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_Adaptive):
    """Largest elements of windows of the last axis; see :class:`AdaptiveAvgPool1d`."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_Adaptive):
    """Largest elements of windows of the last two axes; see :class:`AdaptiveAvgPool2d`."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_Adaptive):
    """Largest elements of windows of the last three axes; see :class:`AdaptiveAvgPool3d`."""

    _function = "adaptive_max_pool3d"


class Upsample(_Pool):
    """Spatial axes of ``[batch, channels, ...]`` resampled; see :func:`girih.interpolate`."""

    _function = "interpolate"

    def __init__(
        self,
        size: _Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        super().__init__(
            size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners
        )
