"""Softmax over a very large number of classes, most of which are rare."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from .. import _girih
from ..checks import items
from ..errors import InvalidArgumentError
from .containers import ModuleList, Sequential
from .layers import Linear
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._girih import DType, Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss", "AdaptiveLoss"]


class AdaptiveLoss(NamedTuple):
    """The result of :class:`AdaptiveLogSoftmaxWithLoss`."""

    #: The log-probability of each target.
    output: Tensor
    #: The negated mean of the log-probabilities.
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Softmax in clusters: frequent classes use all features, rare classes use fewer features.
    Grave et al. 2017. Classes are ordered by frequency, the most frequent first.

    Args:
        in_features: The number of features of the argument.
        n_classes: The number of classes.
        cutoffs: The ends of the clusters, ascending; the last cluster ends with the last class.
        div_value: The factor by which the number of features decreases with each cluster.
        head_bias: Whether the first cluster has a bias term.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: The cutoffs are not ascending, or not between 0 and the number of
            classes.

    Example:
        >>> import girih as gr
        >>> layer = gr.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10])
        >>> out = layer(gr.ones([3, 8]), gr.asarray([0, 7, 19]))
        >>> out.output.shape, out.loss.shape, layer.log_prob(gr.ones([3, 8])).shape
        ((3,), (), (3, 20))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        dtype: DType | None = None,
    ) -> None:
        bounds = [0, *cutoffs, n_classes]
        if len(bounds) < 3 or any(a >= b for a, b in pairwise(bounds)):
            raise InvalidArgumentError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs must ascend between 0 and the "
                f"{n_classes} classes, got {list(cutoffs)}"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs, self.div_value, self.head_bias = tuple(items(cutoffs)), div_value, head_bias
        self._bounds = bounds[1:]
        clusters = len(bounds) - 2
        self.head = Linear(in_features, bounds[1] + clusters, head_bias, dtype)
        self.tail = ModuleList()
        for i in range(clusters):
            inner = int(in_features // div_value ** (i + 1))
            size = bounds[i + 2] - bounds[i + 1]
            self.tail.append(
                Sequential(
                    Linear(in_features, inner, False, dtype), Linear(inner, size, False, dtype)
                )
            )

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-probabilities of all classes.

        Args:
            x: ``[..., in_features]``.

        Returns:
            ``[..., n_classes]``.
        """
        head = _girih.log_softmax(self.head(x), -1)
        frequent = self._bounds[0]
        parts = [head[..., :frequent]]
        for i, cluster in enumerate(self.tail):
            at = frequent + i
            parts.append(_girih.log_softmax(cluster(x), -1) + head[..., at : at + 1])
        return _girih.concat(parts, -1)

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class.

        Args:
            x: ``[..., in_features]``.

        Returns:
            int64 classes, ``[...]``.
        """
        return _girih.argmax(self.log_prob(x), -1)

    def forward(self, x: Tensor, target: Tensor) -> AdaptiveLoss:
        """Log-probabilities of targets, and the loss.

        Args:
            x: ``[..., in_features]``.
            target: Integer classes, ``[...]``.

        Returns:
            ``(output, loss)``: ``[...]`` and a scalar.

        Raises:
            ShapeError: The shape of the targets does not fit.
        """
        output = -_girih.nll_loss(self.log_prob(x), target, reduction="none")
        return AdaptiveLoss(output, -output.mean())
