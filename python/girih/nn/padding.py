"""Padding of spatial axes as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from .. import _girih
from ..checks import items
from ..errors import InvalidArgumentError, ShapeError
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import Tensor

    _Widths: TypeAlias = int | Sequence[int]

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Pads the last axes. Widths have PyTorch's order: the last axis comes first."""

    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: _Widths) -> None:
        n = 2 * self.axes
        widths = (padding,) * n if isinstance(padding, int) else tuple(items(padding))
        if len(widths) != n:
            raise InvalidArgumentError(
                f"{type(self).__name__}: padding is one width, or {n}: before and after each axis, "
                f"the last axis first; got {padding}"
            )
        self.padding = widths

    def _pairs(self, x: Tensor) -> list[tuple[int, int]]:
        n = self.axes
        if x.ndim < n + 1:
            raise ShapeError(
                f"{type(self).__name__}: expected at least {n + 1} axes, [..., channels, {n} "
                f"spatial], got shape {list(x.shape)}"
            )
        pairs = [(self.padding[2 * i], self.padding[2 * i + 1]) for i in reversed(range(n))]
        return [(0, 0)] * (x.ndim - n) + pairs

    def forward(self, x: Tensor) -> Tensor:
        """Pads the tensor."""
        pairs = self._pairs(x)
        # Negative widths crop.
        cut = [
            slice(max(-a, 0), size - max(-b, 0))
            for (a, b), size in zip(pairs, x.shape, strict=True)
        ]
        if any(min(pair) < 0 for pair in pairs):
            x = x[tuple(cut)]
        grown = [(max(a, 0), max(b, 0)) for a, b in pairs]
        self._check(x, grown)
        return self._padded(x, grown)

    def _check(self, x: Tensor, pairs: list[tuple[int, int]]) -> None:
        """Raises an error if there are too few elements to repeat."""

    def _padded(self, x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
        return _girih.pad(x, pairs, self.mode)


class _ConstantPad(_Pad):
    def __init__(self, padding: _Widths, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def _padded(self, x: Tensor, pairs: list[tuple[int, int]]) -> Tensor:
        return _girih.pad(x, pairs, "constant", self.value)


class ConstantPad1d(_ConstantPad):
    """Pads the last axis with a value.

    Args:
        padding: One width for both ends, or ``(before, after)``; negative widths crop.
        value: The value of the padding.

    Raises:
        InvalidArgumentError: The number of widths is wrong.
        ShapeError: On a call, there are too few axes.

    Example:
        >>> import girih as gr
        >>> gr.nn.ConstantPad1d((1, 2), 9.0)(gr.ones([1, 2])).tolist()
        [[9.0, 1.0, 1.0, 9.0, 9.0]]
    """

    axes = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two axes with a value; widths ``(left, right, top, bottom)`` or one for all.
    See :class:`ConstantPad1d`."""

    axes = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three axes with a value; widths ``(left, right, top, bottom, front, back)`` or
    one for all. See :class:`ConstantPad1d`."""

    axes = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: _Widths) -> None:
        super().__init__(padding, 0.0)


class ZeroPad1d(_ZeroPad):
    """Pads the last axis with zeros; see :class:`ConstantPad1d`."""

    axes = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two axes with zeros; see :class:`ConstantPad2d`."""

    axes = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three axes with zeros; see :class:`ConstantPad3d`."""

    axes = 3


class _Inside(_Pad):
    """Pads with elements of the tensor itself, which must have enough elements."""

    least: ClassVar[int]

    def _check(self, x: Tensor, pairs: list[tuple[int, int]]) -> None:
        for axis, (pair, size) in enumerate(zip(pairs, x.shape, strict=True)):
            if max(pair) > max(size - self.least, 0):
                raise ShapeError(
                    f"{type(self).__name__}: padding {pair} of axis {axis} needs more elements "
                    f"than there are in shape {list(x.shape)}; at most {size - self.least} fit"
                )


class ReflectionPad1d(_Inside):
    """Pads the last axis with its elements mirrored at the ends; the end elements are not repeated.

    Args:
        padding: One width for both ends, or ``(before, after)``; negative widths crop.

    Raises:
        InvalidArgumentError: The number of widths is wrong.
        ShapeError: On a call, there are too few axes or elements.

    Example:
        >>> import girih as gr
        >>> gr.nn.ReflectionPad1d(2)(gr.asarray([[1.0, 2.0, 3.0]])).tolist()
        [[3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]]
    """

    axes, mode, least = 1, "reflect", 1


class ReflectionPad2d(_Inside):
    """Like :class:`ReflectionPad1d`, for the last two axes: ``(left, right, top, bottom)``."""

    axes, mode, least = 2, "reflect", 1


class ReflectionPad3d(_Inside):
    """Like :class:`ReflectionPad1d`, for the last three axes; the last axis' widths first."""

    axes, mode, least = 3, "reflect", 1


class ReplicationPad1d(_Pad):
    """Pads the last axis with its outermost elements.

    Args:
        padding: One width for both ends, or ``(before, after)``; negative widths crop.

    Raises:
        InvalidArgumentError: The number of widths is wrong.
        ShapeError: On a call, there are too few axes, or an axis has no elements.

    Example:
        >>> import girih as gr
        >>> gr.nn.ReplicationPad1d((2, 1))(gr.asarray([[1.0, 2.0]])).tolist()
        [[1.0, 1.0, 1.0, 2.0, 2.0]]
    """

    axes, mode = 1, "edge"


class ReplicationPad2d(_Pad):
    """Like :class:`ReplicationPad1d`, for the last two axes: ``(left, right, top, bottom)``."""

    axes, mode = 2, "edge"


class ReplicationPad3d(_Pad):
    """Like :class:`ReplicationPad1d`, for the last three axes; the last axis' widths first."""

    axes, mode = 3, "edge"


class CircularPad1d(_Inside):
    """Pads the last axis with elements from its other end.

    Args:
        padding: One width for both ends, or ``(before, after)``; negative widths crop.

    Raises:
        InvalidArgumentError: The number of widths is wrong.
        ShapeError: On a call, there are too few axes or elements.

    Example:
        >>> import girih as gr
        >>> gr.nn.CircularPad1d(1)(gr.asarray([[1.0, 2.0, 3.0]])).tolist()
        [[3.0, 1.0, 2.0, 3.0, 1.0]]
    """

    axes, mode, least = 1, "wrap", 0


class CircularPad2d(_Inside):
    """Like :class:`CircularPad1d`, for the last two axes: ``(left, right, top, bottom)``."""

    axes, mode, least = 2, "wrap", 0


class CircularPad3d(_Inside):
    """Like :class:`CircularPad1d`, for the last three axes; the last axis' widths first."""

    axes, mode, least = 3, "wrap", 0
