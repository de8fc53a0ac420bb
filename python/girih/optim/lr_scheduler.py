"""Learning rates that change when ``scheduler.step()`` is called, as in PyTorch.

    optimizer = gr.optim.SGD(model.parameters(), lr=0.1)
    scheduler = gr.optim.lr_scheduler.StepLR(optimizer, step_size=30)
    for epoch in range(90):
        train(model, optimizer)
        scheduler.step()

A scheduler assigns rates to ``optimizer.param_groups``. The rates are tensors in the state of the
optimiser, so no step is recompiled. :mod:`girih.optim.schedules` has rates as functions of the
optimiser's own count of steps, which need no scheduler.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from ..checks import check_constructor, explain_methods, items
from ..errors import IndexOutOfBoundsError, InvalidArgumentError
from .base import Optimizer
from .plateau import ReduceLROnPlateau
from .state import check_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Self

__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

T = TypeVar("T")


@explain_methods
class LRScheduler:
    """The base class of schedulers, which define ``factor(epoch, group)``.

    Args:
        optimizer: The optimiser, which holds parameters.
        last_epoch: The number of calls of :meth:`step` made before, or -1 for a new training.

    Attributes:
        optimizer: The optimiser.
        base_lrs: The rates of the groups without a schedule.
        last_epoch: The number of calls of :meth:`step`.

    Raises:
        InvalidArgumentError: The optimiser holds no parameters, or its rate is a function.

    Example:
        >>> import girih as gr
        >>> optimizer = gr.optim.SGD(gr.nn.Linear(2, 1).parameters(), lr=0.5)
        >>> scheduler = gr.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The constructors of this package's schedulers check their arguments."""
        super().__init_subclass__(**kwargs)
        check_constructor(cls)

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        name = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise InvalidArgumentError(
                f"{name}: expected an optimiser, got a {type(optimizer).__name__}"
            )
        if not optimizer.param_groups:
            raise InvalidArgumentError(
                f"{name}: the optimiser holds no parameters; make it with them, as "
                "SGD(model.parameters(), lr=0.1), or give a schedule as its learning rate"
            )
        for group in optimizer.param_groups:
            if callable(group._optimizer.learning_rate):
                raise InvalidArgumentError(
                    f"{name}: the rate of the optimiser is a schedule already; give a number"
                )
            group.setdefault("initial_lr", group["lr"])
        self.optimizer = optimizer
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = max(0, last_epoch)
        self._apply()

    def factor(self, epoch: int, group: int) -> float:
        """The factor of the rate of a group after a number of steps.

        Args:
            epoch: The number of steps.
            group: The number of the group.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not define factor")

    def rate(self, epoch: int, group: int) -> float:
        """The rate of a group after a number of steps.

        Args:
            epoch: The number of steps.
            group: The number of the group.
        """
        return self._base(group) * self.factor(epoch, group)

    def _base(self, group: int) -> float:
        """The rate of a group without a schedule."""
        return self._entry(self.base_lrs, group)

    def _entry(self, values: list[T], group: int) -> T:
        if not -len(values) <= group < len(values):
            raise IndexOutOfBoundsError(
                f"{type(self).__name__}: there is no group {group}; the optimiser has {len(values)}"
            )
        return values[group]

    def step(self) -> None:
        """Goes on to the next rate. Call it after ``optimizer.step()``, once per epoch or batch."""
        self.last_epoch += 1
        self._apply()

    def _apply(self) -> None:
        for i, group in enumerate(self.optimizer.param_groups[: len(self.base_lrs)]):
            group["lr"] = self.rate(self.last_epoch, i)

    def get_last_lr(self) -> list[float]:
        """The present rates of the groups."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The numbers that :meth:`load_state_dict` restores."""
        kept = (bool, int, float, str, list, tuple, type(None))
        return {key: value for key, value in vars(self).items() if isinstance(value, kept)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> Self:
        """Restores a :meth:`state_dict`, and sets the rates.

        Args:
            state_dict: The numbers by name.

        Returns:
            The scheduler.

        Raises:
            InvalidArgumentError: There are other names than in the scheduler's own state.
        """
        check_names(self, self.state_dict(), state_dict)
        vars(self).update(state_dict)
        self._apply()
        return self


def _positive(scheduler: object, name: str, value: float) -> None:
    if not value > 0:
        raise InvalidArgumentError(
            f"{type(scheduler).__name__}: {name} must be above 0, got {value}"
        )


class LambdaLR(LRScheduler):
    """The rate times a function of the number of steps.

    Args:
        optimizer: The optimiser.
        lr_lambda: The function, or one for each group.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        count = len(getattr(optimizer, "param_groups", ()))
        self.lr_lambdas = items(lr_lambda) if not callable(lr_lambda) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise InvalidArgumentError(
                f"{type(self).__name__}: {len(self.lr_lambdas)} functions for {count} groups"
            )
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """The numbers, without the functions."""
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}

    def factor(self, epoch: int, group: int) -> float:
        """The value of the group's function."""
        return float(self._entry(self.lr_lambdas, group)(epoch))


class MultiplicativeLR(LambdaLR):
    """The rate times the product of a function's values for all steps so far.

    Args:
        optimizer: The optimiser.
        lr_lambda: The function, or one for each group.
        last_epoch: See :class:`LRScheduler`.
    """

    def factor(self, epoch: int, group: int) -> float:
        """The product of the values of the group's function."""
        return math.prod(float(self._entry(self.lr_lambdas, group)(i)) for i in range(1, epoch + 1))


class StepLR(LRScheduler):
    """The rate times ``gamma`` after each ``step_size`` steps.

    Args:
        optimizer: The optimiser.
        step_size: The number of steps with one rate.
        gamma: The factor.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        _positive(self, "step_size", step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The power of ``gamma``."""
        return float(self.gamma ** (epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """The rate times ``gamma`` at each of the milestones.

    Args:
        optimizer: The optimiser.
        milestones: Numbers of steps.
        gamma: The factor.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Sequence[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones, self.gamma = sorted(Counter(items(milestones)).elements()), gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The power of ``gamma``."""
        return float(self.gamma ** bisect_right(self.milestones, epoch))


class ExponentialLR(LRScheduler):
    """The rate times ``gamma`` after each step.

    Args:
        optimizer: The optimiser.
        gamma: The factor.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The power of ``gamma``."""
        return float(self.gamma**epoch)


class ConstantLR(LRScheduler):
    """The rate times a factor, until a number of steps is made.

    Args:
        optimizer: The optimiser.
        factor: The factor.
        total_iters: The number of steps with the factor.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self._factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The factor, and 1 later."""
        return self._factor if epoch < self.total_iters else 1.0


class LinearLR(LRScheduler):
    """The rate times a factor that changes linearly, then stays.

    Args:
        optimizer: The optimiser.
        start_factor: The first factor.
        end_factor: The last factor.
        total_iters: The number of steps in between.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _positive(self, "total_iters", total_iters)
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The point of the line."""
        share = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share


class PolynomialLR(LRScheduler):
    """The rate times a power of the remaining fraction of the steps.

    Args:
        optimizer: The optimiser.
        total_iters: The number of steps until the rate is zero.
        power: The exponent.
        last_epoch: See :class:`LRScheduler`.
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        _positive(self, "total_iters", total_iters)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, group: int) -> float:
        """The power of the remaining fraction."""
        return float((1.0 - min(epoch, self.total_iters) / self.total_iters) ** self.power)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine wave from the rate to ``eta_min``, and back.

    Args:
        optimizer: The optimiser.
        T_max: The number of steps of half a wave.
        eta_min: The smallest rate.
        last_epoch: See :class:`LRScheduler`.

    Source: Loshchilov and Hutter 2017, without restarts.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        _positive(self, "T_max", T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, epoch: int, group: int) -> float:
        """The point of the wave."""
        wave = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (self._base(group) - self.eta_min) * wave


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half cosine waves from the rate to ``eta_min``, each ``T_mult`` times as long as the last.

    Args:
        optimizer: The optimiser.
        T_0: The number of steps of the first wave.
        T_mult: The factor of the lengths, at least 1.
        eta_min: The smallest rate.
        last_epoch: See :class:`LRScheduler`.

    Source: Loshchilov and Hutter 2017.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 - PyTorch's name
        T_mult: int = 1,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        _positive(self, "T_0", T_0)
        _positive(self, "T_mult", T_mult)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, epoch: int, group: int) -> float:
        """The point of the present wave."""
        length = self.T_0
        while epoch >= length and self.T_mult > 1:
            epoch, length = epoch - length, length * self.T_mult
        wave = (1 + math.cos(math.pi * (epoch % length) / length)) / 2
        return self.eta_min + (self._base(group) - self.eta_min) * wave


class OneCycleLR(LRScheduler):
    """One cycle of an increase to ``max_lr`` and a decrease far below the first rate.

    Args:
        optimizer: The optimiser. Its rates are replaced.
        max_lr: The largest rate.
        total_steps: The number of steps; or ``epochs`` and ``steps_per_epoch``.
        epochs: The number of epochs.
        steps_per_epoch: The number of steps of an epoch.
        pct_start: The fraction of the steps with an increasing rate.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        div_factor: The first rate is ``max_lr`` divided by this factor.
        final_div_factor: The last rate is the first divided by this factor.
        last_epoch: See :class:`LRScheduler`.

    Source: Smith and Topin 2018. The momentum stays as it is.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise InvalidArgumentError(
                    "OneCycleLR: give total_steps, or epochs and steps_per_epoch"
                )
            total_steps = epochs * steps_per_epoch
        _positive(self, "total_steps", total_steps)
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgumentError(
                f"OneCycleLR: anneal_strategy is 'cos' or 'linear', got {anneal_strategy!r}"
            )
        if not 0 <= pct_start <= 1:
            raise InvalidArgumentError(f"OneCycleLR: pct_start must be in [0, 1], got {pct_start}")
        self.max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.anneal_strategy = anneal_strategy
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer, last_epoch)

    def rate(self, epoch: int, group: int) -> float:
        """The point of the cycle."""
        if epoch >= self.total_steps:
            raise InvalidArgumentError(
                f"OneCycleLR: step {epoch + 1} of {self.total_steps}; give a larger total_steps"
            )
        first = self.max_lr / self.div_factor
        last = first / self.final_div_factor
        top = self.pct_start * self.total_steps - 1
        if epoch <= top:
            return self._between(first, self.max_lr, epoch / top if top > 0 else 1.0)
        rest = self.total_steps - 1 - top
        return self._between(self.max_lr, last, (epoch - top) / rest if rest > 0 else 1.0)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


@explain_methods
class SequentialLR:
    """Several schedulers, one after the other.

    Args:
        optimizer: The optimiser of all of them.
        schedulers: The schedulers.
        milestones: The steps at which the second and the later ones begin.

    Raises:
        InvalidArgumentError: The number of milestones is not one less than that of schedulers, or a
            scheduler has another optimiser.
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        self.optimizer = optimizer
        self.schedulers, self.milestones = items(schedulers), items(milestones)
        if len(self.milestones) != len(self.schedulers) - 1:
            raise InvalidArgumentError(
                f"SequentialLR: {len(self.schedulers)} schedulers need one milestone less, got "
                f"{len(self.milestones)}"
            )
        if any(one.optimizer is not optimizer for one in self.schedulers):
            raise InvalidArgumentError("SequentialLR: a scheduler has another optimiser")
        self.last_epoch = 0
        self.schedulers[0]._apply()

    def step(self) -> None:
        """Goes on to the next rate."""
        self.last_epoch += 1
        at = bisect_right(self.milestones, self.last_epoch)
        now = self.schedulers[at]
        if at and self.last_epoch == self.milestones[at - 1]:
            now.last_epoch = 0
            now._apply()
        else:
            now.step()

    def get_last_lr(self) -> list[float]:
        """The present rates of the groups."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The numbers that :meth:`load_state_dict` restores."""
        inner = [one.state_dict() for one in self.schedulers]
        return {"last_epoch": self.last_epoch, "schedulers": inner}

    def load_state_dict(self, state_dict: dict[str, Any]) -> Self:
        """Restores the state of all schedulers; see :meth:`LRScheduler.load_state_dict`."""
        check_names(self, self.state_dict(), state_dict)
        self.last_epoch = state_dict["last_epoch"]
        for one, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            one.load_state_dict(state)
        self.schedulers[bisect_right(self.milestones, self.last_epoch)]._apply()
        return self
