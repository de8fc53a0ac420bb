"""Poolings as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .module import Module, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import Tensor

    _Sizes: TypeAlias = int | Sequence[int]
    _Padding: TypeAlias = _Sizes | Sequence[tuple[int, int]] | Literal["same", "valid"]

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
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
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
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class _WithIndices(_Pool):
    """A pooling that may give the places of the largest elements too."""

    return_indices: bool

    def forward(self, x: Tensor) -> Any:
        """Applies the layer: a tensor, or with ``return_indices`` a pair with the indices."""
        name = f"{self._function}_with_indices" if self.return_indices else self._function
        return apply(name, x, **self.options)

    def extra_repr(self) -> str:
        """The options."""
        return f"{super().extra_repr()}, return_indices={self.return_indices}"


class _MaxPool(_WithIndices):
    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Padding = 0,
        dilation: _Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            ceil_mode=ceil_mode,
        )
        self.return_indices = return_indices


class MaxPool1d(_MaxPool):
    """Largest element of each window of the last axis; NaN wins, padding never does.

    Args:
        kernel_size: Elements of a window.
        stride: Distance between windows, their size by default.
        padding: As of a convolution: one width, pairs, ``"same"`` or ``"valid"``; below a window.
        dilation: Distance between the elements of a window.
        return_indices: Whether to give ``(result, indices)``, with the place of each element along
            the axis, of equal ones the first. :class:`MaxUnpool1d` takes them.
        ceil_mode: Whether a last window may reach beyond the padding.

    Raises:
        InvalidArgumentError: On a call, a size, stride or padding that cannot be.
        ShapeError: On a call, windows that do not fit.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([[[1.0, 3.0, 2.0, 5.0]]])
        >>> y, places = gr.nn.MaxPool1d(2, return_indices=True)(x)
        >>> y.tolist(), places.tolist()
        ([[[3.0, 5.0]]], [[[1, 3]]])
    """

    _function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """Largest element of each window of the last two axes; see :class:`MaxPool1d`."""

    _function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """Largest element of each window of the last three axes; see :class:`MaxPool1d`."""

    _function = "max_pool3d"


class _MaxUnpool(Module):
    _function: ClassVar[str]

    def __init__(
        self, kernel_size: _Sizes, stride: _Sizes | None = None, padding: _Sizes = 0
    ) -> None:
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor, indices: Tensor, output_size: _Sizes | None = None) -> Tensor:
        """Puts the elements back; the spatial axes get the last sizes of ``output_size``."""
        return apply(
            self._function, x, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpool):
    """Elements put back where :class:`MaxPool1d` with ``return_indices`` found them, else zeros.

    Args:
        kernel_size: Of the pooling.
        stride: Of the pooling.
        padding: Of the pooling.

    Raises:
        ShapeError: On a call, another number of indices than elements.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([[[1.0, 3.0, 2.0, 5.0]]])
        >>> y, places = gr.nn.MaxPool1d(2, return_indices=True)(x)
        >>> gr.nn.MaxUnpool1d(2)(y, places).tolist()
        [[[0.0, 3.0, 0.0, 5.0]]]
    """

    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The way back from :class:`MaxPool2d`; see :class:`MaxUnpool1d`."""

    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """The way back from :class:`MaxPool3d`; see :class:`MaxUnpool1d`."""

    _function = "max_unpool3d"


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        padding: _Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            divisor_override=divisor_override,
        )


class AvgPool1d(_AvgPool):
    """Mean of each window of the last axis.

    Args:
        kernel_size: Elements of a window.
        stride: Distance between windows, their size by default.
        padding: As of :class:`MaxPool1d`.
        ceil_mode: Whether a last window may reach beyond the padding.
        count_include_pad: Whether padding counts.
        divisor_override: What to divide sums by instead of counts.

    Raises:
        InvalidArgumentError: On a call, a size, stride or padding that cannot be.
        ShapeError: On a call, windows that do not fit.

    Example:
        >>> import girih as gr
        >>> gr.nn.AvgPool1d(2)(gr.asarray([[[1.0, 3.0, 2.0, 5.0]]])).tolist()
        [[[2.0, 3.5]]]
    """

    _function = "avg_pool1d"


class AvgPool2d(_AvgPool):
    """Mean of each window of the last two axes; see :class:`AvgPool1d`."""

    _function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """Mean of each window of the last three axes; see :class:`AvgPool1d`."""

    _function = "avg_pool3d"


class _LPPool(_Pool):
    def __init__(
        self,
        norm_type: float,
        kernel_size: _Sizes,
        stride: _Sizes | None = None,
        ceil_mode: bool = False,
        padding: _Padding = 0,
    ) -> None:
        super().__init__(
            norm_type=norm_type,
            kernel_size=kernel_size,
            stride=stride,
            ceil_mode=ceil_mode,
            padding=padding,
        )


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


class _AdaptiveMax(_WithIndices):
    def __init__(self, output_size: _Sizes, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size)
        self.return_indices = return_indices


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Largest elements of windows of the last axis; see :class:`AdaptiveAvgPool1d`."""

    _function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Largest elements of windows of the last two axes; see :class:`AdaptiveAvgPool2d`."""

    _function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMax):
    """Largest elements of windows of the last three axes; see :class:`AdaptiveAvgPool3d`."""

    _function = "adaptive_max_pool3d"
