"""Normalisations as modules."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, ClassVar

from .. import _girih
from ..checks import check_eps, items
from ..errors import InvalidArgumentError, ShapeError
from . import init
from .module import Module, Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "RMSNorm",
]


class _ByChannel(Module):
    """Scale and shift per channel (axis 1)."""

    precision: ClassVar[str | None] = "full"

    ranks: ClassVar[tuple[int, ...]] = ()
    weight: Tensor | None
    bias: Tensor | None

    def _affine(self, channels: int, affine: bool, dtype: DType | None) -> None:
        self.affine = affine
        self.weight = Parameter(init.ones((channels,), dtype)) if affine else None
        self.bias = Parameter(init.zeros((channels,), dtype)) if affine else None

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            raise ShapeError(
                f"{type(self).__name__}: expected {' or '.join(map(str, self.ranks))} axes, "
                f"[batch, channels, ...], got shape {list(x.shape)}"
            )


class _Tracking(_ByChannel):
    """Running statistics: buffers that are updated in training mode."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _setup(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        tracked: bool,
        dtype: DType | None,
    ) -> None:
        self.num_features, self.momentum = num_features, momentum
        self.eps = check_eps(self, eps)
        self._affine(num_features, affine, dtype)
        self.track_running_stats = tracked
        self.running_mean = init.zeros((num_features,), dtype) if tracked else None
        self.running_var = init.ones((num_features,), dtype) if tracked else None
        self.num_batches_tracked = _girih.zeros([], dtype=_girih.int64) if tracked else None

    def _track(self, x: Tensor, axes: list[int]) -> None:
        """Updates the running statistics from the statistics over some axes, averaged over the
        other axes."""
        mean, var, count = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is None or var is None or count is None:
            return
        elements = prod(x.shape[a] for a in axes) if x.shape[1] else 0
        if elements < 2:
            raise InvalidArgumentError(
                f"{type(self).__name__}: a batch of shape {list(x.shape)} has {elements} element "
                "per channel, too few for statistics; use a larger batch, or eval()"
            )
        wide = _girih.stop_gradient(x).astype(mean.dtype)
        self.num_batches_tracked = count + 1
        rate = self.momentum
        share = 1.0 / self.num_batches_tracked.astype(mean.dtype) if rate is None else rate
        new_mean, new_var = wide.mean(axes), wide.var(axes, correction=1)
        if 0 not in axes:
            new_mean, new_var = new_mean.mean(0), new_var.mean(0)
        self.running_mean = mean + (new_mean - mean) * share
        self.running_var = var + (new_var - var) * share


class _BatchNorm(_Tracking):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: DType | None = None,
    ) -> None:
        self._setup(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; updates the running statistics in training mode."""
        self._check(x)
        own = self.training or self.running_mean is None
        if self.training:
            self._track(x, [a for a in range(x.ndim) if a != 1])
        return _girih.batch_norm(
            x,
            None if own else self.running_mean,
            None if own else self.running_var,
            self.weight,
            self.bias,
            training=own,
            eps=self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalises each channel over the batch, then scales and shifts: Ioffe and Szegedy 2015.

    In training mode the layer uses mean and variance of the batch, and updates their running
    averages (buffers) with weight ``momentum`` (a cumulative average with ``momentum=None``); in
    evaluation mode it uses the running averages.

    Shapes: x ``[batch, channels]`` or ``[batch, channels, n]``.

    Raises:
        InvalidArgumentError: In training mode, the batch has one element per channel.
        ShapeError: The number of axes or channels is wrong.
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Like :class:`BatchNorm1d`, for ``[batch, channels, h, w]``."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Like :class:`BatchNorm1d`, for ``[batch, channels, d, h, w]``."""

    ranks = (5,)


class _InstanceNorm(_Tracking):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self._setup(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer; updates the running statistics in training mode."""
        self._check(x)
        # The batch axis may be absent.
        batch = x if x.ndim == max(self.ranks) else x.unsqueeze(0)
        own = self.training or self.running_mean is None
        if self.training:
            self._track(batch, list(range(2, batch.ndim)))
        out = _girih.instance_norm(
            batch,
            self.weight,
            self.bias,
            self.eps,
            running_mean=None if own else self.running_mean,
            running_var=None if own else self.running_var,
            use_input_stats=own,
        )
        return out if batch is x else out.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each batch entry over its spatial axis: Ulyanov et al. 2016.

    Shapes: x ``[batch, channels, n]``, or without the batch axis.

    Args:
        num_features: The number of channels.
        eps: A number added to variances.
        momentum: The weight of a step in the running averages; None for cumulative averages.
        affine: Whether channels are scaled and shifted by learnable parameters.
        track_running_stats: Whether evaluation mode uses running averages over batches.
        dtype: The dtype of parameters and averages.

    Raises:
        InvalidArgumentError: In training mode with running statistics, channels have one element.
        ShapeError: On a call, the number of axes or channels is wrong.

    Example:
        >>> import girih as gr
        >>> gr.nn.InstanceNorm1d(1, eps=0.0)(gr.asarray([[[1.0, 3.0]]])).tolist()
        [[[-1.0, 1.0]]]
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Like :class:`InstanceNorm1d`, for ``[batch, channels, h, w]``."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Like :class:`InstanceNorm1d`, for ``[batch, channels, d, h, w]``."""

    ranks = (4, 5)


class GroupNorm(_ByChannel):
    """Normalises groups of channels of each batch entry, then scales and shifts each channel: Wu
    and He 2018. Shapes: x ``[batch, num_channels, ...]``.

    Raises:
        InvalidArgumentError: The groups do not divide the channels.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: DType | None = None,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise InvalidArgumentError(
                f"GroupNorm: {num_groups} groups do not divide {num_channels} channels"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps = check_eps(self, eps)
        self._affine(num_channels, affine, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divides by the root mean square over the last axes, then scales: Zhang and Sennrich 2019.

    Shapes: x ``[..., *normalized_shape]``, weight ``normalized_shape``.
    """

    precision: ClassVar[str | None] = "full"

    weight: Tensor | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-6,
        elementwise_affine: bool = True,
        dtype: DType | None = None,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape, self.eps = tuple(items(sizes)), check_eps(self, eps)
        self.elementwise_affine = elementwise_affine
        learnt, sizes = elementwise_affine, self.normalized_shape
        self.weight = Parameter(init.ones(sizes, dtype)) if learnt else None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.rms_norm(x, self.normalized_shape, self.weight, self.eps)
