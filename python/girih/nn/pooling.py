"""Poolings as modules."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .. import _girih
from ..checks import items
from ..errors import InvalidArgumentError, ShapeError
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
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
]


class _Pool(Module):
    _function: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return apply(self._function, x, **self.options)

    def extra_repr(self) -> str:
        """The options of the module."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class _WithIndices(_Pool):
    """A pooling that optionally returns the positions of the largest elements."""

    return_indices: bool

    def forward(self, x: Tensor) -> Any:
        """Applies the layer: a tensor, or with ``return_indices`` a pair with the indices."""
        name = f"{self._function}_with_indices" if self.return_indices else self._function
        return apply(name, x, **self.options)

    def extra_repr(self) -> str:
        """The options of the module."""
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
    """The largest element of each window of the last axis; NaN counts as largest, and padding is
    ignored.

    Args:
        kernel_size: The size of a window.
        stride: The distance between windows, their size by default.
        padding: As in a convolution: one width, pairs, ``"same"`` or ``"valid"``. A window of only
            padding gives the smallest value of the dtype.
        dilation: The distance between elements of a window.
        return_indices: Whether to return ``(result, indices)``, with the position of each element
            along the axis; the first of equal elements, or -1 for a window of only padding.
            :class:`MaxUnpool1d` takes the indices.
        ceil_mode: Whether the last window may extend beyond the padding.

    Raises:
        InvalidArgumentError: On a call, a size, stride or padding is invalid.
        ShapeError: On a call, the windows do not fit.

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
    """Puts elements back at the positions that :class:`MaxPool1d` returned; other elements are
    zero.

    Args:
        kernel_size: The window size of the pooling.
        stride: The stride of the pooling.
        padding: The padding of the pooling.

    Raises:
        ShapeError: On a call, the numbers of indices and elements differ.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([[[1.0, 3.0, 2.0, 5.0]]])
        >>> y, places = gr.nn.MaxPool1d(2, return_indices=True)(x)
        >>> gr.nn.MaxUnpool1d(2)(y, places).tolist()
        [[[0.0, 3.0, 0.0, 5.0]]]
    """

    _function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of :class:`MaxPool2d`; see :class:`MaxUnpool1d`."""

    _function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of :class:`MaxPool3d`; see :class:`MaxUnpool1d`."""

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
    """Mean of each window of the last axis; other options as in :class:`MaxPool1d`.

    Args:
        count_include_pad: Whether padding counts; if not, the mean of a window of only padding is
            NaN.
        divisor_override: The divisor of the sums, in place of the counts.

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
    """``sum(|x|**p)**(1/p)`` of each window of the last axis; see :class:`MaxPool1d`."""

    _function = "lp_pool1d"


class LPPool2d(_LPPool):
    """``sum(|x|**p)**(1/p)`` of each window of the last two axes; see :class:`MaxPool1d`."""

    _function = "lp_pool2d"


class LPPool3d(_LPPool):
    """``sum(|x|**p)**(1/p)`` of each window of the last three axes; see :class:`MaxPool1d`."""

    _function = "lp_pool3d"


class _Adaptive(_Pool):
    def __init__(self, output_size: _Sizes) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_Adaptive):
    """Means of windows of the last axis, chosen so that the result has the given size."""

    _function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_Adaptive):
    """Means of windows of the last two axes, chosen so that the result has the given sizes."""

    _function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_Adaptive):
    """Means of windows of the last three axes, chosen so that the result has the given sizes."""

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


class _FractionalMaxPool(Module):
    axes: ClassVar[int]

    def __init__(
        self,
        kernel_size: _Sizes,
        output_size: _Sizes | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
    ) -> None:
        self.kernel_size, self.output_size = kernel_size, output_size
        self.output_ratio, self.return_indices = output_ratio, return_indices

    def forward(self, x: Tensor) -> Any:
        """Applies the layer: a tensor, or with ``return_indices`` a pair with the indices."""
        pooled, places = _fractional_max_pool(
            f"fractional_max_pool{self.axes}d",
            self.axes,
            x,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            None,
        )
        return (pooled, places) if self.return_indices else pooled


class FractionalMaxPool2d(_FractionalMaxPool):
    """Largest elements of windows at random positions: Graham 2014.

    Shapes: ``[batch, channels, h, w]`` or ``[channels, h, w]``.

    Args:
        kernel_size: The size of a window.
        output_size: The sizes of the result, unless ``output_ratio`` is given.
        output_ratio: The ratio of these sizes to the sizes of the argument, between 0 and 1.
        return_indices: Whether to return ``(result, indices)``.

    Raises:
        InvalidArgumentError: On a call, unless exactly one of size and ratio is given.
        ShapeError: On a call, the windows do not fit.

    Example:
        >>> import girih as gr
        >>> gr.nn.FractionalMaxPool2d(2, output_size=3)(gr.ones([1, 1, 7, 5])).shape
        (1, 1, 3, 3)
    """

    axes = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Like :class:`FractionalMaxPool2d`, for three spatial axes.

    Example:
        >>> import girih as gr
        >>> gr.nn.FractionalMaxPool3d(2, output_ratio=0.5)(gr.ones([1, 6, 6, 6])).shape
        (1, 3, 3, 3)
    """

    axes = 3


def _fractional_max_pool(
    name: str,
    n: int,
    x: Tensor,
    kernel_size: _Sizes,
    output_size: _Sizes | None,
    output_ratio: float | Sequence[float] | None,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if x.ndim not in (n + 1, n + 2):
        raise ShapeError(
            f"{name}: expected [batch, channels, {n} spatial], or without the batch axis; got "
            f"shape {list(x.shape)}"
        )
    if (output_size is None) == (output_ratio is None):
        raise InvalidArgumentError(f"{name}: give one of output_size and output_ratio")
    have = x.shape[-n:]
    size = (kernel_size,) * n if isinstance(kernel_size, int) else tuple(items(kernel_size))
    if output_size is not None:
        want = (output_size,) * n if isinstance(output_size, int) else tuple(items(output_size))
    else:
        ratio: Any = output_ratio
        ratios = tuple(items(ratio)) if isinstance(ratio, (tuple, list)) else (ratio,) * n
        want = tuple(int(h * r) for h, r in zip(have, ratios, strict=True))
    for h, k, w in zip(have, size, want, strict=True):
        if k < 1 or w < 1 or h < w + k - 1:
            raise ShapeError(
                f"{name}: {w} windows of size {k} do not fit into {h} elements (operand has shape "
                f"{list(x.shape)})"
            )
    batched = x if x.ndim == n + 2 else x.unsqueeze(0)
    if samples is None:
        samples = _girih.rand((*batched.shape[:2], n))
    samples = samples.astype(_girih.float64)
    places = _girih.arange(prod(have)).reshape(have).broadcast_to(batched.shape)
    pooled: Tensor = _girih.stop_gradient(batched)
    # Start with the last axis, so that of equal elements the first in row-major order is found.
    for axis in reversed(range(n)):
        # PyTorch's samples begin with the last axis.
        starts = _starts(samples[..., n - 1 - axis], have[axis], size[axis], want[axis])
        at = axis + 2
        index = starts.unsqueeze(-1) + _girih.arange(size[axis])
        shape = [1] * (batched.ndim + 1)
        shape[:2] = batched.shape[:2]
        shape[at], shape[at + 1] = want[axis], size[axis]
        flat = index.reshape((*shape[:at], want[axis] * size[axis], *shape[at + 2 :]))

        def windows(t: Tensor, flat: Tensor = flat, at: int = at) -> Tensor:
            picked = _girih.take_along_axis(t, flat, at)
            parts = (want[at - 2], size[at - 2])
            return picked.reshape((*picked.shape[:at], *parts, *picked.shape[at + 1 :]))

        inside = windows(pooled)
        best = _girih.argmax(inside, at + 1, True)
        pooled, places = (
            _girih.take_along_axis(t, best, at + 1).squeeze(at + 1)
            for t in (inside, windows(places))
        )
    flat_x = batched.reshape((*batched.shape[:2], prod(have)))
    flat_places = places.reshape((*places.shape[:2], prod(want)))
    result = _girih.take_along_axis(flat_x, flat_places, -1).reshape(places.shape)
    return (result, places) if batched is x else (result.squeeze(0), places.squeeze(0))


def _starts(sample: Tensor, have: int, size: int, want: int) -> Tensor:
    """The starts of windows along an axis, for each draw: ``[..., want]``."""
    last = have - size
    if want == 1:
        return _girih.full((*sample.shape, 1), last)
    alpha = last / (want - 1)
    i = _girih.arange(want).astype(_girih.float64)
    u = sample.unsqueeze(-1)
    steps = _girih.floor((i + u) * alpha) - _girih.floor(u * alpha)
    return _girih.where(i == want - 1, last, steps.astype(_girih.int64))


def fractional_max_pool2d(
    x: Tensor,
    kernel_size: _Sizes,
    output_size: _Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    samples: Tensor | None = None,
) -> Any:
    """Largest elements of windows at random positions; see :class:`girih.nn.FractionalMaxPool2d`.

    Args:
        x: ``[batch, channels, h, w]`` or ``[channels, h, w]``.
        samples: Draws from ``[0, 1)``, ``[batch, channels, 2]``; new ones by default.

    Returns:
        The largest elements, or a pair with their positions.

    Raises:
        InvalidArgumentError: Not exactly one of size and ratio is given.
        ShapeError: The windows do not fit.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.fractional_max_pool2d(gr.ones([1, 7, 5]), 2, (3, 2)).shape
        (1, 3, 2)
    """
    out = _fractional_max_pool(
        "fractional_max_pool2d", 2, x, kernel_size, output_size, output_ratio, samples
    )
    return out if return_indices else out[0]


def fractional_max_pool3d(
    x: Tensor,
    kernel_size: _Sizes,
    output_size: _Sizes | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    samples: Tensor | None = None,
) -> Any:
    """Largest elements of windows at random positions; see :class:`girih.nn.FractionalMaxPool2d`.

    Args:
        x: ``[batch, channels, d, h, w]`` or ``[channels, d, h, w]``.
        samples: Draws from ``[0, 1)``, ``[batch, channels, 3]``; new ones by default.

    Returns:
        As :func:`fractional_max_pool2d`.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.fractional_max_pool3d(gr.ones([1, 4, 4, 4]), 2, 2).shape
        (1, 2, 2, 2)
    """
    out = _fractional_max_pool(
        "fractional_max_pool3d", 3, x, kernel_size, output_size, output_ratio, samples
    )
    return out if return_indices else out[0]
