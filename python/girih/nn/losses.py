"""Losses. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"`` everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .. import _girih
from ..errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from .._girih import Tensor

    _Reduction = Literal["mean", "sum", "none"]


__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "l1", "mse", "nll"]


def cross_entropy(logits: Tensor, labels: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``-log_softmax(logits)[label]``.

    Shapes: logits ``[..., classes]``, labels ``[...]``. Dtypes: floating-point logits, integer
    labels. Labels outside ``0..classes`` are an error when evaluated.
    """
    return _girih.cross_entropy(logits, labels, reduction=reduction)


def nll(log_probabilities: Tensor, labels: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``-log_probabilities[label]``; shapes and dtypes as :func:`cross_entropy`."""
    if log_probabilities.shape[:-1] != labels.shape or log_probabilities.ndim == 0:
        raise ShapeError(
            f"nll: labels of shape {list(labels.shape)} do not fit log-probabilities of shape "
            f"{list(log_probabilities.shape)}; expected the latter without its last axis"
        )
    picked = _girih.take_along_axis(log_probabilities, labels.unsqueeze(-1), axis=-1)
    return _reduce(-picked.squeeze(-1), reduction, "nll")


def mse(predictions: Tensor, targets: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``(predictions - targets)²``. Shapes must be equal."""
    _same_shape(predictions, targets, "mse")
    difference = predictions - targets
    return _reduce(difference * difference, reduction, "mse")


def l1(predictions: Tensor, targets: Tensor, reduction: _Reduction = "mean") -> Tensor:
    """``|predictions - targets|``. Shapes must be equal."""
    _same_shape(predictions, targets, "l1")
    return _reduce((predictions - targets).abs(), reduction, "l1")


def binary_cross_entropy_with_logits(
    logits: Tensor, targets: Tensor, reduction: _Reduction = "mean"
) -> Tensor:
    """``-t log σ(x) - (1 - t) log(1 - σ(x))``, without overflow. Shapes must be equal.

    Targets are probabilities; bool and integer targets are taken as 0 and 1.
    """
    _same_shape(logits, targets, "binary_cross_entropy_with_logits")
    loss = _girih.softplus(logits) - logits * targets.astype(logits.dtype)
    return _reduce(loss, reduction, "binary_cross_entropy_with_logits")


def _same_shape(a: Tensor, b: Tensor, function: str) -> None:
    # Broadcasting here is nearly always a mistake: [n, 1] against [n] gives an n by n loss.
    if a.shape != b.shape:
        raise ShapeError(
            f"{function}: predictions have shape {list(a.shape)}, targets {list(b.shape)}; "
            "they must be equal"
        )


def _reduce(loss: Tensor, reduction: str, function: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise InvalidArgumentError(
        f"{function}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}"
    )
