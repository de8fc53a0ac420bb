"""Losses as modules. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from .. import _girih
from .module import Module, apply

if TYPE_CHECKING:
    from .._girih import Tensor

    _Reduction: TypeAlias = Literal["mean", "sum", "none"]

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
]


class _Loss(Module):
    """A function of tensors with the options the module holds; tensors among them are buffers."""

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
        """The options that are no tensors."""
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
    """Minus the log-probability at each label; see :func:`girih.nll_loss`."""

    _function = "nll_loss"

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int | None = None,
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
        ignore_index: int | None = None,
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
    """``target * (log(target) - x)`` of log-probabilities; see :func:`girih.kl_div`."""

    _function = "kl_div"

    def __init__(self, log_target: bool = False, reduction: _Reduction = "mean") -> None:
        super().__init__(log_target=log_target, reduction=reduction)


class HingeLoss(_Loss):
    """``max(0, margin - x * target)``, targets -1 and 1."""

    _function = "hinge_loss"

    def __init__(self, margin: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(_Loss):
    """``x`` where the target is 1, ``max(0, margin - x)`` where it is -1."""

    _function = "hinge_embedding_loss"

    def __init__(self, margin: float = 1.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class MarginRankingLoss(_Loss):
    """``max(0, -target * (a - b) + margin)``, targets -1 and 1."""

    _function = "margin_ranking_loss"

    def __init__(self, margin: float = 0.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-x * target))``, targets -1 and 1."""

    _function = "soft_margin_loss"

    def __init__(self, reduction: _Reduction = "mean") -> None:
        super().__init__(reduction=reduction)


class CosineEmbeddingLoss(_Loss):
    """By the angle between vectors on the last axis; see :func:`girih.cosine_embedding_loss`."""

    _function = "cosine_embedding_loss"

    def __init__(self, margin: float = 0.0, reduction: _Reduction = "mean") -> None:
        super().__init__(margin=margin, reduction=reduction)


class TripletMarginLoss(_Loss):
    """The anchor nearer to the positive than to the negative; see
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
    """Minus the log-likelihood under Poisson distributions; see :func:`girih.poisson_nll_loss`."""

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
    """Minus the log-likelihood under normal distributions; see :func:`girih.gaussian_nll_loss`."""

    _function = "gaussian_nll_loss"

    def __init__(
        self, full: bool = False, eps: float = 1e-6, reduction: _Reduction = "mean"
    ) -> None:
        super().__init__(full=full, eps=eps, reduction=reduction)
