"""Optimisers with a learning rate per element, from squares or signs of gradients; averaged SGD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih
from .base import Optimizer, Scalars, Schedule, check, compute_dtype, ratio
from .held import given

if TYPE_CHECKING:
    from .._girih import Tensor
    from .held import Parameters

__all__ = ["ASGD", "Adadelta", "Adagrad", "Lion", "RMSprop", "Rprop"]

_New = tuple["Tensor", ...]


class RMSprop(Optimizer):
    """Divides gradients by the root of a running mean of their squares.

    Args:
        lr: See :class:`Optimizer`; 0.01 by default.
        alpha: The decay of the mean of squares.
        eps: As in :class:`Adam`.
        momentum: As in :class:`SGD`.
        centered: Whether to divide by the standard deviation of the gradient instead.

    Source: Hinton 2012, lecture 6e; Graves 2013 for ``centered``; in PyTorch's form.
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-2)
        check(0 <= alpha < 1, "alpha must be in [0, 1)", alpha)
        check(eps >= 0, "eps must not be negative", eps)
        check(momentum >= 0, "momentum must not be negative", momentum)
        super().__init__(rate, weight_decay, maximize)
        self.alpha = alpha
        self.eps = eps
        self.momentum = momentum
        self.centered = centered
        self.slots = ("v", *(("mean",) if centered else ()), *(("momentum",) if momentum else ()))
        self._hold(params)

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        kept = dict(zip(self.slots, slots, strict=True))
        square = kept["v"] = self.alpha * kept["v"] + (1.0 - self.alpha) * (g * g)
        if self.centered:
            mean = kept["mean"] = self.alpha * kept["mean"] + (1.0 - self.alpha) * g
            # The difference of the rounded means may be a little below zero.
            square = _girih.maximum(square - mean * mean, 0.0)
        step = ratio(g, square.sqrt(), self.eps)
        if self.momentum:
            step = kept["momentum"] = self.momentum * kept["momentum"] + step
        return p - scalars["lr"] * step, *kept.values()


class Adagrad(Optimizer):
    """Divides gradients by the root of the sum of their squares.

    Args:
        lr: See :class:`Optimizer`; 0.01 by default.
        lr_decay: The rate of step ``t`` (from 0) is divided by ``1 + t lr_decay``.
        initial_accumulator_value: The initial value of the sums.
        eps: As in :class:`Adam`.

    Source: Duchi et al. 2011, in PyTorch's form.
    """

    slots = ("sum",)

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-2)
        check(lr_decay >= 0, "lr_decay must not be negative", lr_decay)
        check(eps >= 0, "eps must not be negative", eps)
        check(
            initial_accumulator_value >= 0,
            "initial_accumulator_value must not be negative",
            initial_accumulator_value,
        )
        super().__init__(rate, weight_decay, maximize)
        self.lr_decay = lr_decay
        self.initial_accumulator_value = initial_accumulator_value
        self.eps = eps
        self._hold(params)

    def _initial(self, slot: str, p: Tensor) -> Tensor:
        return _girih.full(p.shape, self.initial_accumulator_value, dtype=compute_dtype(p))

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        return {"lr": rate / (1.0 + count * self.lr_decay) if self.lr_decay else rate}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        total = slots[0] + g * g
        return p - scalars["lr"] * ratio(g, total.sqrt(), self.eps), total


class Adadelta(Optimizer):
    """Scales gradients by the ratio of the root mean squares of past steps and past gradients.

    Args:
        lr: See :class:`Optimizer`; 1 by default.
        rho: The decay of both means.
        eps: A number added to numerator and denominator, not negative. With 0, no element moves.

    Source: Zeiler 2012, algorithm 1, with a rate as in PyTorch.
    """

    slots = ("v", "delta")

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1.0)
        check(0 <= rho <= 1, "rho must be in [0, 1]", rho)
        check(eps >= 0, "eps must not be negative", eps)
        super().__init__(rate, weight_decay, maximize)
        self.rho = rho
        self.eps = eps
        self._hold(params)

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        v = self.rho * slots[0] + (1.0 - self.rho) * (g * g)
        above, below = (slots[1] + self.eps).sqrt(), (v + self.eps).sqrt()
        step = (above / below if self.eps else ratio(above, below, 0.0)) * g
        delta = self.rho * slots[1] + (1.0 - self.rho) * (step * step)
        return p - scalars["lr"] * step, v, delta


class Lion(Optimizer):
    """Steps of equal size by the sign of the mean gradient, with decoupled weight decay.

    Args:
        lr: See :class:`Optimizer`; 0.0001 by default; a third to a tenth of Adam's.
        betas: The decays of the mean that gives the sign, and of the mean in the state.
        weight_decay: As in :class:`AdamW`.

    Source: Chen et al. 2023, algorithm 2.
    """

    slots = ("m",)

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-4)
        check(all(0 <= b < 1 for b in betas), "betas must be in [0, 1)", betas)
        super().__init__(rate, weight_decay, maximize)
        self.betas = betas
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        return {"lr": rate, "keep": 1.0 - rate * self.weight_decay}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        (beta1, beta2), m = self.betas, slots[0]
        step = (beta1 * m + (1.0 - beta1) * g).sign()
        return p * scalars["keep"] - scalars["lr"] * step, beta2 * m + (1.0 - beta2) * g


class Rprop(Optimizer):
    """Steps by the signs of gradients, for full batches; each element has its own step size.

    A step size grows while the sign of the gradient stays the same. If the sign changes, the step
    size shrinks and the element is not updated.

    Args:
        lr: The initial step size of all elements; 0.01 by default.
        etas: The factors by which step sizes shrink and grow.
        step_sizes: The smallest and the largest step size.

    Source: Riedmiller and Braun 1993, in PyTorch's form.
    """

    slots = ("gradient", "step_size")

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-2)
        check(0 < etas[0] < 1 < etas[1], "etas must be below and above 1", etas)
        check(0 < step_sizes[0] <= step_sizes[1], "step_sizes must ascend from above 0", step_sizes)
        super().__init__(rate, 0.0, maximize)
        self.etas, self.step_sizes = etas, step_sizes
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        # Step sizes are zero before the first step, which adds the rate.
        return {"first": _girih.where(count == 0, rate, 0.0 * rate)}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        falls, grows = (_girih.asarray(eta, dtype=p.dtype) for eta in self.etas)
        turned = g * slots[0]
        old = slots[1] + scalars["first"]
        size = _girih.where(turned > 0, old * grows, _girih.where(turned < 0, old * falls, old))
        size = _girih.clip(size, *self.step_sizes)
        rested = _girih.where(turned < 0, _girih.zeros_like(g), g)
        return p - rested.sign() * size, rested, size


class ASGD(Optimizer):
    """Gradient descent with a decreasing rate; the slot ``ax`` has the average of the parameters.

    Args:
        lr: The initial rate; 0.01 by default.
        lambd: The decay of the rate, and the fraction of the parameter that is subtracted.
        alpha: The exponent of the decay of the rate.
        t0: The step after which parameters are averaged.

    Source: Polyak and Juditsky 1992, in PyTorch's form.
    """

    slots = ("ax",)

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-2)
        super().__init__(rate, weight_decay, maximize)
        self.lambd, self.alpha, self.t0 = lambd, alpha, t0
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        eta = rate / (1.0 + self.lambd * rate * count) ** self.alpha
        share = 1.0 / _girih.maximum(1.0, count - self.t0)
        return {"eta": eta, "keep": 1.0 - self.lambd * eta, "share": share}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        new = p * scalars["keep"] - scalars["eta"] * self._decayed(p, g)
        share = scalars["share"]
        return new, _girih.where(share == 1.0, new, slots[0] + (new - slots[0]) * share)
