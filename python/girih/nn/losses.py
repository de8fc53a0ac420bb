"""Losses with short names. In all losses ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.

Shapes of predictions and targets must be equal; :func:`mse` and :func:`l1` broadcast them with a
warning, because broadcasting is nearly always a mistake there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .. import _girih
from .._girih import cross_entropy

if TYPE_CHECKING:
    from .._girih import Tensor

    _Reduction = Literal["mean", "sum", "none"]


__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "l1", "mse", "nll"]


def nll(log_probabilities: Tensor, labels: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``-log_probabilities[label]``; shapes and dtypes as :func:`cross_entropy`."""
    return _girih.nll_loss(log_probabilities, labels, reduction=reduction)


def mse(predictions: Tensor, targets: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``(predictions - targets)²``."""
    return _girih.mse_loss(predictions, targets, reduction)


def l1(predictions: Tensor, targets: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``|predictions - targets|``."""
    return _girih.l1_loss(predictions, targets, reduction)


def binary_cross_entropy_with_logits(
    logits: Tensor, targets: Tensor, reduction: _Reduction = "mean"
) -> Tensor:
    """``-t log σ(x) - (1 - t) log(1 - σ(x))``, without overflow.

    Targets are probabilities; bool and integer targets are converted to 0 and 1.
    """
    return _girih.binary_cross_entropy_with_logits(logits, targets, reduction=reduction)
