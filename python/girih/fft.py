"""Discrete Fourier transforms: the ``fft`` extension of the array API standard, and NumPy's
two-dimensional transforms.

The transform of ``n`` numbers along an axis is ``y[k] = sum(x[j] * exp(-2j * pi * j * k / n))``;
the inverse has the opposite sign. An axis is first truncated, or padded with zeros, to the length n
or s. norm selects the scaling: 1/n for the inverse ("backward", the default) or the forward
transform ("forward"), or 1/sqrt(n) for both ("ortho").

float32 and complex64 give complex64 (float32 if the result is real), float64 and complex128 give
complex128 (float64); integers, bool and half-precision floats are converted to float32. All
transforms have gradients.

Lengths below one raise :class:`girih.InvalidArgumentError`, axes that x does not have
:class:`girih.AxisError`, complex operands of transforms of real numbers :class:`girih.DTypeError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from . import _girih
from .checks import explain_public

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._girih import Tensor

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Norm: TypeAlias = Literal["backward", "ortho", "forward"] | None


def fft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform along an axis, of length n: by default the size of the axis. Dtype: complex."""
    return _girih.fft_fft(x, n, axis, norm)


def ifft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`fft`. Dtype: complex."""
    return _girih.fft_ifft(x, n, axis, norm)


def fftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The transform along several axes, by default all, starting with the last axis.

    s has a length for each axis, -1 for the size of the axis; without axes, s is for the last axes.
    An axis that is named twice is transformed twice. Dtype: complex.
    """
    return _girih.fft_fftn(x, s, axes, norm)


def ifftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`fftn`. Dtype: complex."""
    return _girih.fft_ifftn(x, s, axes, norm)


def fft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The transform along two axes: :func:`fftn` of the last two."""
    return _girih.fft_fftn(x, s, axes, norm)


def ifft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`fft2`."""
    return _girih.fft_ifftn(x, s, axes, norm)


def rfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform of n real numbers: its first ``n // 2 + 1`` elements, which determine the rest.

    Dtype: complex. x is real.
    """
    return _girih.fft_rfft(x, n, axis, norm)


def irfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`rfft`: n real numbers, by default ``2 * (m - 1)`` for an axis of m.

    The imaginary parts of the first element, and of the last for an even n, are ignored, because
    the spectrum of real numbers has none there. Dtype: real.
    """
    return _girih.fft_irfft(x, n, axis, norm)


def rfftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The transform of real numbers along several axes; only the first half of the last axis is
    returned.

    s and axes are as in :func:`fftn`, with at least one axis. Dtype: complex. x is real.
    """
    return _girih.fft_rfftn(x, s, axes, norm)


def irfftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`rfftn`.

    Without s, the last of the axes gets ``2 * (m - 1)`` elements from m. Dtype: real.
    """
    return _girih.fft_irfftn(x, s, axes, norm)


def rfft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The transform of real numbers along two axes: :func:`rfftn` of the last two."""
    return _girih.fft_rfftn(x, s, axes, norm)


def irfft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`rfft2`."""
    return _girih.fft_irfftn(x, s, axes, norm)


def hfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The real spectrum of n numbers with Hermitian symmetry; x is the first half of the numbers.

    By default n is ``2 * (m - 1)`` for an axis of m. Dtype: real.
    """
    return _girih.fft_hfft(x, n, axis, norm)


def ihfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of :func:`hfft`: the first ``n // 2 + 1`` elements. Dtype: complex. x is real."""
    return _girih.fft_ihfft(x, n, axis, norm)


def hfftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The real spectrum of numbers with Hermitian symmetry along several axes.

    :func:`hfft` along the last of the axes, where x is the first half, and :func:`fft` along the
    other axes. Without s, the last of the axes gets ``2 * (m - 1)`` elements from m. Dtype: real.
    """
    return _girih.fft_hfftn(x, s, axes, norm)


def ihfftn(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`hfftn`: half of the numbers, along the last of the axes.

    Dtype: complex. x is real.
    """
    return _girih.fft_ihfftn(x, s, axes, norm)


def hfft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The real spectrum along two axes: :func:`hfftn` of the last two."""
    return _girih.fft_hfftn(x, s, axes, norm)


def ihfft2(
    x: Any,
    /,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = (-2, -1),
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of :func:`hfft2`."""
    return _girih.fft_ihfftn(x, s, axes, norm)


def fftfreq(n: int, /, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of a transform of n samples at distance d.

    The frequencies from zero up come first, then the negative ones. Dtype: float32, or the given
    real floating-point dtype. n is at least 1, d finite and not zero.
    """
    return _girih.fft_fftfreq(n, d, dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of :func:`rfft` of n samples at distance d.

    Dtype and arguments are as in :func:`fftfreq`.
    """
    return _girih.fft_rfftfreq(n, d, dtype, device)


def fftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """Moves the element of frequency zero to the middle of axes, all by default. Any dtype."""
    return _girih.fft_fftshift(x, axes)


def ifftshift(x: Any, /, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of :func:`fftshift`. Any dtype."""
    return _girih.fft_ifftshift(x, axes)


explain_public(globals())
