"""The learning rate scheduler that follows a measure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..checks import explain_methods
from ..errors import InvalidArgumentError
from .base import Optimizer
from .state import check_names, number

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ReduceLROnPlateau"]


@explain_methods
class ReduceLROnPlateau:
    """The rate times a factor when a measure has not become better for some steps.

    Args:
        optimizer: The optimiser, which holds parameters.
        mode: ``"min"`` if smaller is better, or ``"max"``.
        factor: The factor, below 1.
        patience: The number of steps without an improvement that change nothing.
        threshold: The least improvement.
        threshold_mode: ``"rel"`` for an improvement relative to the best measure, or ``"abs"``.
        cooldown: The number of steps after a reduction that are not counted.
        min_lr: The smallest rate.
        eps: A reduction by less than this number is not made.

    Raises:
        InvalidArgumentError: An option is out of range, or the optimiser holds no parameters.

    Example:
        >>> import girih as gr
        >>> optimizer = gr.optim.SGD(gr.nn.Linear(2, 1).parameters(), lr=0.5)
        >>> scheduler = gr.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> for loss in (1.0, 1.0, 1.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise InvalidArgumentError(
                "ReduceLROnPlateau: mode is 'min' or 'max', threshold_mode 'rel' or 'abs', got "
                f"{mode!r} and {threshold_mode!r}"
            )
        if not factor < 1:
            raise InvalidArgumentError(f"ReduceLROnPlateau: factor must be below 1, got {factor}")
        if not isinstance(optimizer, Optimizer) or not optimizer.param_groups:
            raise InvalidArgumentError(
                "ReduceLROnPlateau: expected an optimiser that holds parameters"
            )
        self.optimizer, self.mode, self.patience = optimizer, mode, patience
        self.reduction, self.threshold, self.threshold_mode = factor, threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "min" else -1.0
        margin = self.threshold
        if self.threshold_mode == "rel":
            margin = self.threshold * self.best if math.isfinite(self.best) else 0.0
        return sign * value < sign * self.best - margin

    def step(self, metrics: Any) -> None:
        """Compares a measure with the best one so far, and reduces the rate if necessary.

        Args:
            metrics: The measure: a number, or a tensor with one element.
        """
        value = number(self, metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group in self.optimizer.param_groups:
                old = group["lr"]
                new = max(old * self.reduction, self.min_lr)
                if old - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """The present rates of the groups."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The numbers that :meth:`load_state_dict` restores."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> Self:
        """Restores a :meth:`state_dict`; the rates are in the state of the optimiser.

        Args:
            state_dict: The numbers by name.

        Returns:
            The scheduler.

        Raises:
            InvalidArgumentError: There are other names than in the scheduler's own state.
        """
        check_names(self, self.state_dict(), state_dict)
        vars(self).update(state_dict)
        return self
