"""Losses as modules. In all losses ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .. import _girih
from ..errors import InvalidArgumentError
from .module import Module, apply, one_axis

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._girih import Tensor

    _Reduction: TypeAlias = Literal["mean", "sum", "none"]

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PairwiseDistance",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "triplet_margin_with_distance_loss",
]


class _Loss(Module):
    """A function of tensors with the options of the module; tensors among the options are
    buffers."""

    precision: ClassVar[str | None] = "full"

    _function: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self._names = tuple(options)
        for name, value in options.items():
            setattr(self, name, value)

    def forward(self, *tensors: Tensor) -> Tensor:
        """The loss of predictions and targets."""
        return apply(
            self._function, *tensors, **{name: getattr(self, name) for name in self._names}
        )

    def extra_repr(self) -> str:
        """The options that are not tensors."""
        options = ((name, getattr(self, name)) for name in self._names)
        return ", ".join(f"{n}={v!r}" for n, v in options if not isinstance(v, _girih.Tensor))


class MSELoss(_Loss):
    """``(x - target)²``."""

    _function = "mse_loss"

    def __init__(self, reduction: _Reduction = "mean") -> None:
        super().__init__(reduction=reduction)


class L1Loss(_Loss):
    """``|x - target|``."""

    _function = "l1_loss"

    def __init__(self, reduction: _Reduction = "mean") -> None:
        super().__init__(reduction=reduction)


class SmoothL1Loss(_Loss):
    """Quadratic below ``beta``, linear above; see :func:`girih.smooth_l1_loss`."""

    _function = "smooth_l1_loss"

    def __init__(self, beta: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(beta=beta, reduction=reduction)


class HuberLoss(_Loss):
    """Quadratic up to ``delta``, linear above; see :func:`girih.huber_loss`."""

    _function = "huber_loss"

    def __init__(self, delta: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(delta=delta, reduction=reduction)


class BCELoss(_Loss):
    """Cross entropy of probabilities and targets in ``0..1``."""

    _function = "binary_cross_entropy"

    def __init__(self, weight: Tensor | None = None, reduction: _Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(_Loss):
    """Cross entropy of logits and targets in ``0..1``, without overflow."""

    _function = "binary_cross_entropy_with_logits"

    def __init__(
        self,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        reduction: _Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, pos_weight=pos_weight, reduction=reduction)


class NLLLoss(_Loss):
    """The negative log-likelihood of each label; see :func:`girih.nll_loss`."""

    _function = "nll_loss"

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int | None = -100,
        reduction: _Reduction = "mean",
        axis: int = -1,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction, axis=axis)


class CrossEntropyLoss(_Loss):
    """Cross entropy of softmax of logits with labels; see :func:`girih.cross_entropy`."""

    _function = "cross_entropy"

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int | None = -100,
        label_smoothing: float = 0.0,
        reduction: _Reduction = "mean",
        axis: int = -1,
    ) -> None:
        super().__init__(
            weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
            axis=axis,
        )


class KLDivLoss(_Loss):
    """``target * (log(target) - x)`` of log-probabilities; see :func:`girih.kl_div`.

    Args:
        log_target: Whether targets are log-probabilities too.
        reduction: As in other losses, or ``"batchmean"``: the sum divided by the size of the first
            axis, which is the mean of the divergence over a batch.

    Raises:
        InvalidArgumentError: On a call, the reduction is unknown.
        ShapeError: On a call, the shapes differ.

    Example:
        >>> import girih as gr
        >>> loss = gr.nn.KLDivLoss(reduction="batchmean")
        >>> loss(gr.log(gr.full([2, 2], 0.5)), gr.full([2, 2], 0.5)).item()
        0.0
    """

    _function = "kl_div"

    def __init__(
        self, log_target: bool = False, reduction: _Reduction | Literal["batchmean"] = "mean"
    ) -> None:
        super().__init__(log_target=log_target, reduction=reduction)


class HingeLoss(_Loss):
    """``max(0, margin - x * target)``, with targets -1 and 1."""

    _function = "hinge_loss"

    def __init__(self, margin: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(_Loss):
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1."""

    _function = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class MarginRankingLoss(_Loss):
    """``max(0, -target * (a - b) + margin)``, with targets -1 and 1."""

    _function = "margin_ranking_loss"

    def __init__(self, margin: float = 0.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-x * target))``, with targets -1 and 1."""

    _function = "soft_margin_loss"

    def __init__(self, reduction: _Reduction = "mean") -> None:
        super().__init__(reduction=reduction)


class CosineEmbeddingLoss(_Loss):
    """A loss of the angle between vectors on the last axis; see
    :func:`girih.cosine_embedding_loss`."""

    _function = "cosine_embedding_loss"

    def __init__(self, margin: float = 0.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class TripletMarginLoss(_Loss):
    """Requires the anchor to be nearer to the positive than to the negative; see
    :func:`girih.triplet_margin_loss`."""

    _function = "triplet_margin_loss"

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: _Reduction = "mean",
    ) -> None:
        super().__init__(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood under Poisson distributions; see
    :func:`girih.poisson_nll_loss`."""

    _function = "poisson_nll_loss"

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: _Reduction = "mean",
    ) -> None:
        super().__init__(log_input=log_input, full=full, eps=eps, reduction=reduction)


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood under normal distributions; see
    :func:`girih.gaussian_nll_loss`."""

    _function = "gaussian_nll_loss"

    def __init__(
        self, full: bool = False, eps: float = 1e-6, reduction: _Reduction = "mean"
    ) -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)


class TripletMarginWithDistanceLoss(Module):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` for any distance.

    Args:
        distance: A function of two tensors; by default :func:`girih.pairwise_distance`.
        margin: The required difference between the two distances.
        swap: Whether to use the distance from positive to negative if it is smaller.
        reduction: As in other losses.

    Raises:
        InvalidArgumentError: On a call, the reduction is unknown.

    Example:
        >>> import girih as gr
        >>> loss = gr.nn.TripletMarginWithDistanceLoss(lambda a, b: abs(a - b).sum(-1))
        >>> loss(gr.zeros([1, 2]), gr.ones([1, 2]), gr.zeros([1, 2])).item()
        3.0
    """

    precision: ClassVar[str | None] = "full"

    def __init__(
        self,
        distance: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: _Reduction = "mean",
    ) -> None:
        self.distance, self.margin = distance, margin
        self.swap, self.reduction = swap, reduction

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """The loss of three tensors with the same shape."""
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance=self.distance,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: _Reduction = "mean",
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` for any distance.

    Args:
        anchor: Any shape that ``distance`` takes.
        positive: The tensor that should be near the anchor.
        negative: The tensor that should be far from the anchor.
        distance: A function of two tensors; by default :func:`girih.pairwise_distance`.
        margin: The required difference between the two distances.
        swap: Whether to use the distance from positive to negative if it is smaller.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        The loss.

    Raises:
        InvalidArgumentError: The reduction is unknown.

    Example:
        >>> import girih as gr
        >>> x = gr.ones([2, 3])
        >>> gr.nn.functional.triplet_margin_with_distance_loss(x, x, x).item()
        1.0
    """
    if reduction not in ("mean", "sum", "none"):
        raise InvalidArgumentError(
            "triplet_margin_with_distance_loss: reduction must be 'mean', 'sum' or 'none', got "
            f"{reduction!r}"
        )
    measure = _girih.pairwise_distance if distance is None else distance
    near, far = measure(anchor, positive), measure(anchor, negative)
    if swap:
        far = _girih.minimum(far, measure(positive, negative))
    loss = _girih.relu(near - far + margin)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


class MultiMarginLoss(_Loss):
    """Requires the score of the label to exceed other scores by a margin: ``sum(max(0, margin -
    x[label] + x[i])**p) / classes``; see :func:`girih.multi_margin_loss`.

    Shapes: x ``[..., classes]``, labels ``[...]``.

    Args:
        p: 1 or 2.
        margin: The margin.
        weight: A weight for each class.
        reduction: As in other losses.

    Raises:
        InvalidArgumentError: On a call, p is neither 1 nor 2.
        ShapeError: On a call, the shape of labels or weights does not fit.

    Example:
        >>> import girih as gr
        >>> gr.nn.MultiMarginLoss()(gr.asarray([[0.0, 1.0]]), gr.asarray([0])).item()
        1.0
    """

    _function = "multi_margin_loss"

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: _Reduction = "mean",
    ) -> None:
        super().__init__(p=p, margin=margin, weight=weight, reduction=reduction)


class MultiLabelMarginLoss(_Loss):
    """Requires the scores of the labels of a row to exceed the other scores; see
    :func:`girih.multilabel_margin_loss`.

    Shapes: x and labels ``[..., classes]``; a row of labels ends at its first negative one.

    Raises:
        DTypeError: On a call, the labels are not integers.
        ShapeError: On a call, the shapes differ.

    Example:
        >>> import girih as gr
        >>> x, y = gr.asarray([[0.1, 0.2, 0.4, 0.8]]), gr.asarray([[3, 0, -1, 1]])
        >>> round(gr.nn.MultiLabelMarginLoss()(x, y).item(), 4)
        0.85
    """

    _function = "multilabel_margin_loss"

    def __init__(self, reduction: _Reduction = "mean") -> None:
        super().__init__(reduction=reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of binary cross entropies of logits; see
    :func:`girih.multilabel_soft_margin_loss`.

    Shapes: x and targets ``[..., classes]``, weight ``[classes]``.

    Raises:
        ShapeError: On a call, the shapes do not fit.

    Example:
        >>> import girih as gr
        >>> round(gr.nn.MultiLabelSoftMarginLoss()(gr.zeros([1, 3]), gr.ones([1, 3])).item(), 4)
        0.6931
    """

    _function = "multilabel_soft_margin_loss"

    def __init__(self, weight: Tensor | None = None, reduction: _Reduction = "mean") -> None:
        super().__init__(weight=weight, reduction=reduction)


class CTCLoss(_Loss):
    """The negative log-likelihood of label sequences that are not aligned in time: Graves et al.
    2006; see :func:`girih.ctc_loss`.

    Call it with log-probabilities ``[time, batch, classes]``, labels ``[batch, longest]`` (or all
    on one axis), and the lengths of both, ``[batch]``.

    Args:
        blank: The class of the blank label.
        reduction: As in other losses; the mean first divides each entry by its number of labels.
        zero_infinity: Whether the loss of an entry with too few steps for its labels is zero.

    Raises:
        InvalidArgumentError: On a call, ``blank`` is not a class.
        ShapeError: On a call, the shapes of the operands do not fit.

    Example:
        >>> import girih as gr
        >>> x = gr.log_softmax(gr.zeros([2, 1, 3]), -1)
        >>> round(gr.nn.CTCLoss()(x, gr.asarray([[1]]), gr.asarray([2]), gr.asarray([1])).item(), 4)
        1.0986
    """

    _function = "ctc_loss"

    def __init__(
        self, blank: int = 0, reduction: _Reduction = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(blank=blank, reduction=reduction, zero_infinity=zero_infinity)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along an axis; see :func:`girih.cosine_similarity`.

    Args:
        axis: The axis of the broadcast shape, 1 by default; also spelled ``dim``.
        eps: The lower bound of the norms.

    Example:
        >>> import girih as gr
        >>> gr.nn.CosineSimilarity(axis=0)(gr.asarray([3.0, 4.0]), gr.asarray([1.0, 0.0])).item()
        0.6000000238418579
    """

    def __init__(
        self, axis: int | None = None, eps: float = 1e-8, *, dim: int | None = None
    ) -> None:
        self.axis, self.eps = one_axis("CosineSimilarity", axis, dim, 1), eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.cosine_similarity(x1, x2, self.axis, self.eps)


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` along the last axis; see :func:`girih.pairwise_distance`.

    Args:
        p: The order of the norm.
        eps: A number added to differences.
        keepdim: Whether to keep the last axis with size 1.

    Example:
        >>> import girih as gr
        >>> gr.nn.PairwiseDistance(1, eps=0.0)(gr.zeros([1, 2]), gr.ones([1, 2])).tolist()
        [2.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Applies the layer."""
        return _girih.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)
