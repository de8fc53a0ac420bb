"""Dropout of whole channels as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _girih

if TYPE_CHECKING:
    from .._girih import Tensor

__all__ = ["dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"]


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeroes whole channels with probability ``p`` and scales the rest by ``1 / (1 - p)``.

    Args:
        x: ``[batch, channels, n]``, with or without the batch.
        p: The probability of a zero.
        training: If False, ``x`` is returned unchanged.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.dropout1d(gr.ones([1, 2, 3]), 0.0).tolist()
        [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]]
    """
    return _girih.dropout(x, p, training, spatial_axes=1)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeroes whole channels with probability ``p`` and scales the rest by ``1 / (1 - p)``.

    Args:
        x: ``[batch, channels, h, w]``; three axes are ``[batch, channels, n]``, as in PyTorch.
        p: The probability of a zero.
        training: If False, ``x`` is returned unchanged.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.dropout2d(gr.ones([1, 1, 2, 2]), 1.0).tolist()
        [[[[0.0, 0.0], [0.0, 0.0]]]]
    """
    x = _girih.asarray(x)
    return _girih.dropout(x, p, training, spatial_axes=1 if x.ndim == 3 else 2)


def dropout3d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zeroes whole channels with probability ``p`` and scales the rest by ``1 / (1 - p)``.

    Args:
        x: ``[batch, channels, d, h, w]``, with or without the batch.
        p: The probability of a zero.
        training: If False, ``x`` is returned unchanged.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.dropout3d(gr.ones([1, 1, 1, 1, 2]), 0.0).tolist()
        [[[[[1.0, 1.0]]]]]
    """
    return _girih.dropout(x, p, training, spatial_axes=3)


def feature_alpha_dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Alpha dropout of whole channels: dropped channels get the value at which ``selu`` saturates,
    and the result is scaled and shifted to preserve mean 0 and variance 1.

    Args:
        x: ``[batch, channels, ...]``.
        p: The probability of dropping a channel.
        training: If False, ``x`` is returned unchanged.

    Returns:
        A tensor of the shape of ``x``.

    Raises:
        InvalidArgumentError: ``p`` is not in ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> gr.nn.functional.feature_alpha_dropout(gr.ones([1, 2, 1]), 0.0).tolist()
        [[[1.0], [1.0]]]
    """
    return _girih.alpha_dropout(x, p, training, whole_channels=True)
