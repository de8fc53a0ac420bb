"""Shuffles of pixels and channels, resampling, patches, and norms over channels as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _girih
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import Tensor

    _Sizes: TypeAlias = int | Sequence[int]

__all__ = [
    "ChannelShuffle",
    "Fold",
    "LocalResponseNorm",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unfold",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


class PixelShuffle(Module):
    """Rearranges channels into spatial positions: Shi et al. 2016.

    Shapes: ``[..., c * r * r, h, w]`` to ``[..., c, h * r, w * r]`` for an ``upscale_factor`` r.

    Args:
        upscale_factor: The factor by which height and width grow.

    Raises:
        ShapeError: On a call, the number of channels is not a multiple of ``r * r``.

    Example:
        >>> import girih as gr
        >>> gr.nn.PixelShuffle(2)(gr.ones([1, 8, 3, 3])).shape
        (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int) -> None:
        self.upscale_factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Module):
    """Rearranges spatial positions into channels, the inverse of :class:`PixelShuffle`.

    Shapes: ``[..., c, h * r, w * r]`` to ``[..., c * r * r, h, w]`` for a ``downscale_factor`` r.

    Args:
        downscale_factor: The factor by which height and width shrink.

    Raises:
        ShapeError: On a call, the sizes are not multiples of r.

    Example:
        >>> import girih as gr
        >>> gr.nn.PixelUnshuffle(2)(gr.ones([1, 2, 6, 6])).shape
        (1, 8, 3, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        self.downscale_factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Module):
    """Interleaves the channels (axis 1) of the groups: Zhang et al. 2018.

    Raises:
        ShapeError: On a call, the groups do not divide the channels.

    Example:
        >>> import girih as gr
        >>> gr.nn.ChannelShuffle(2)(gr.arange(4).reshape(1, 4, 1)).tolist()
        [[[0], [2], [1], [3]]]
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.channel_shuffle(x, self.groups)


class LocalResponseNorm(Module):
    """Divides by ``(k + alpha * mean(x**2))**beta``, with the mean over neighbouring channels (axis
    1): Krizhevsky et al. 2012.

    Args:
        size: The number of neighbouring channels, including the channel itself.
        alpha: The weight of the mean.
        beta: The exponent.
        k: A number added to the scaled mean.

    Raises:
        InvalidArgumentError: On a call, the size is below 1.
        ShapeError: On a call, the tensor has no channel axis.

    Example:
        >>> import girih as gr
        >>> gr.nn.LocalResponseNorm(1, alpha=3.0, beta=0.5)(gr.ones([1, 1, 1])).tolist()
        [[[0.5]]]
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


class Unfold(Module):
    """The patches under a convolution kernel, as columns (im2col); see :func:`girih.unfold`.

    Shapes: ``[batch, channels, ...]`` to ``[batch, channels * kernel, positions]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.Unfold((2, 3))(gr.ones([1, 4, 5, 6])).shape
        (1, 24, 16)
    """

    def __init__(
        self, kernel_size: _Sizes, dilation: _Sizes = 1, padding: Any = 0, stride: _Sizes = 1
    ) -> None:
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """The sum of overlapping patches, the transpose of :class:`Unfold`; see :func:`girih.fold`.

    Shapes: ``[batch, channels * kernel, positions]`` to ``[batch, channels, *output_size]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.Fold((5, 6), (2, 3))(gr.ones([1, 24, 16])).shape
        (1, 4, 5, 6)
    """

    def __init__(
        self,
        output_size: _Sizes,
        kernel_size: _Sizes,
        dilation: _Sizes = 1,
        padding: Any = 0,
        stride: _Sizes = 1,
    ) -> None:
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        # A single size applies to both axes of an image.
        size = (self.output_size,) * 2 if isinstance(self.output_size, int) else self.output_size
        return _girih.fold(x, size, self.kernel_size, self.dilation, self.padding, self.stride)


class Upsample(Module):
    """Resamples the spatial axes of ``[batch, channels, ...]``; see :func:`girih.interpolate`.

    Args:
        size: The sizes of the result, unless ``scale_factor`` is given.
        scale_factor: The factor by which the axes grow.
        mode: ``"nearest"``, ``"nearest-exact"``, ``"linear"`` (for any number of axes),
            ``"bicubic"`` or ``"area"``.
        align_corners: Whether the first and last elements keep their positions.
        antialias: Whether linear and cubic interpolation take means over all elements when the
            axes shrink.

    Example:
        >>> import girih as gr
        >>> gr.nn.Upsample(scale_factor=2)(gr.ones([1, 3, 4, 4])).shape
        (1, 3, 8, 8)
    """

    def __init__(
        self,
        size: _Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
        antialias: bool = False,
    ) -> None:
        if isinstance(scale_factor, int):
            scale_factor = float(scale_factor)
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners, self.antialias = mode, align_corners, antialias

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.interpolate(
            x, self.size, self.scale_factor, self.mode, self.align_corners, self.antialias
        )

    def extra_repr(self) -> str:
        """The size or the factor, and how the values between are computed."""
        names = ["size" if self.scale_factor is None else "scale_factor", "mode", "align_corners"]
        names += ["antialias"] if self.antialias else []
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class UpsamplingNearest2d(Upsample):
    """Resamples images by nearest neighbours; see :class:`Upsample`."""

    def __init__(
        self, size: _Sizes | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Resamples images by bilinear interpolation with aligned corners; see :class:`Upsample`."""

    def __init__(
        self, size: _Sizes | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> None:
        super().__init__(size, scale_factor, "bilinear", True)
