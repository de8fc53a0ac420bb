"""Stochastic gradient descent, and Adam with its variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih
from .base import Optimizer, Scalars, Schedule, check, ratio
from .held import given

if TYPE_CHECKING:
    from .._girih import Tensor
    from .held import Parameters

__all__ = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

_New = tuple["Tensor", ...]


class SGD(Optimizer):
    """Gradient descent, optionally with momentum.

    ``v = momentum v + (1 - dampening) g`` (``v = g`` in the first step), ``p -= lr v``; with
    ``nesterov`` ``p -= lr (g + momentum v)``. ``weight_decay`` first adds that multiple of the
    parameter to its gradient.

    Args:
        lr: See :class:`Optimizer`; 0.001 by default.
        momentum: The decay of the velocity; 0 for no velocity.
        dampening: The fraction of the gradient that is not added to the velocity.
        nesterov: Whether to use Nesterov momentum; needs momentum and no dampening.

    Source: Sutskever et al. 2013, in PyTorch's form (the rate outside the velocity).
    """

    _after_rate = ("momentum", "nesterov", "weight_decay", "dampening")

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-3)
        check(momentum >= 0, "momentum must not be negative", momentum)
        check(not nesterov or momentum > 0, "nesterov needs momentum above 0", momentum)
        check(not nesterov or dampening == 0, "nesterov takes no dampening", dampening)
        super().__init__(rate, weight_decay, maximize)
        self.momentum = momentum
        self.nesterov = nesterov
        self.dampening = dampening
        self.slots = ("momentum",) if momentum else ()
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        scalars = {"lr": rate}
        if self.momentum and self.dampening:
            scalars["share"] = _girih.where(count == 0, 1.0, 1.0 - self.dampening + 0.0 * count)
        return scalars, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        if not slots:
            return (p - scalars["lr"] * g,)
        velocity = self.momentum * slots[0] + (scalars["share"] * g if self.dampening else g)
        direction = g + self.momentum * velocity if self.nesterov else velocity
        return p - scalars["lr"] * direction, velocity


def _power(base: float, exponent: Tensor) -> Tensor:
    """Raises a number to a tensor in double precision: in float32, 1 - 0.999 has only 3 digits."""
    return _girih.asarray(base, dtype=_girih.float64) ** exponent


class _Moments(Optimizer):
    """The base of optimisers with running means of the gradients and of their squares."""

    slots: tuple[str, ...] = ("m", "v")

    def __init__(
        self,
        learning_rate: float | Schedule,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        maximize: bool,
    ) -> None:
        check(all(0 <= b < 1 for b in betas), "betas must be in [0, 1)", betas)
        check(eps >= 0, "eps must not be negative", eps)
        super().__init__(learning_rate, weight_decay, maximize)
        self.betas = betas
        self.eps = eps

    def _corrections(self, count: Tensor) -> tuple[Tensor, Tensor]:
        """The divisors for bias correction of the means, which start at zero."""
        first, second = (1.0 - _power(beta, count + 1) for beta in self.betas)
        return first, second

    def _means(self, g: Tensor, slots: list[Tensor]) -> tuple[Tensor, Tensor]:
        beta1, beta2 = self.betas
        m = beta1 * slots[0] + (1.0 - beta1) * g
        return m, beta2 * slots[1] + (1.0 - beta2) * (g * g)


class Adam(_Moments):
    """Adaptive moments. ``weight_decay`` adds that multiple of the parameter to its gradient.

    Args:
        lr: See :class:`Optimizer`; 0.001 by default.
        betas: The decays of the means of the gradient and of its square.
        eps: A number added to the denominator, not negative. With 0, an element without a gradient
            so far does not move.
        amsgrad: Whether to use the maximum of the mean of squares so far.

    Source: Kingma and Ba 2015, algorithm 1; Reddi et al. 2018 for ``amsgrad``, in PyTorch's form.
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-3)
        super().__init__(rate, betas, eps, weight_decay, maximize)
        self.amsgrad = amsgrad
        self.slots = ("m", "v", "vmax") if amsgrad else ("m", "v")
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        first, second = self._corrections(count)
        return {"rate": rate / first, "scale": _girih.rsqrt(second)}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        return self._moved(p, self._decayed(p, g), slots, scalars)

    def _moved(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        m, v = self._means(g, slots)
        kept: _New = (m, v)
        if self.amsgrad:
            v = _girih.maximum(slots[2], v)
            kept = (*kept, v)
        return p - ratio(scalars["rate"] * m, v.sqrt() * scalars["scale"], self.eps), *kept


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p -= lr weight_decay p`` beside Adam's step.

    Args:
        lr: See :class:`Optimizer`; 0.001 by default.
        weight_decay: The fraction of the parameter that is subtracted, times the rate.

    Source: Loshchilov and Hutter 2019, algorithm 2 (the schedule multiplier is in the rate).
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize, learning_rate=learning_rate
        )

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        scalars, others = super()._scalars(count, rate, state)
        return {**scalars, "keep": 1.0 - rate * self.weight_decay}, others

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        return self._moved(p * scalars["keep"], g, slots, scalars)


class Adamax(_Moments):
    """Adam with a decayed maximum of gradients in place of the mean of squares; options as in
    :class:`Adam`.

    Args:
        lr: See :class:`Optimizer`; 0.002 by default.

    Source: Kingma and Ba 2015, algorithm 2, in PyTorch's form (``eps`` inside the maximum).
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 2e-3)
        super().__init__(rate, betas, eps, weight_decay, maximize)
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        return {"rate": rate / self._corrections(count)[0]}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        beta1, beta2 = self.betas
        m = beta1 * slots[0] + (1.0 - beta1) * g
        u = _girih.maximum(beta2 * slots[1], g.abs() + self.eps)
        if self.eps:
            return p - scalars["rate"] * m / u, m, u
        return p - ratio(scalars["rate"] * m, u, 0.0), m, u


class NAdam(_Moments):
    """Adam with Nesterov momentum; options as in :class:`Adam`.

    Args:
        lr: See :class:`Optimizer`; 0.002 by default.
        momentum_decay: The decay of the momentum's schedule.

    Source: Dozat 2016, in PyTorch's form, with its schedule of the momentum (``momentum_decay``).
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 2e-3)
        check(momentum_decay >= 0, "momentum_decay must not be negative", momentum_decay)
        super().__init__(rate, betas, eps, weight_decay, maximize)
        self.momentum_decay = momentum_decay
        self._hold(params)

    def _globals(self) -> dict[str, Tensor]:
        return {"mu_product": _girih.ones([], dtype=_girih.float64)}

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        def mu(step: Tensor) -> Tensor:
            return self.betas[0] * (1.0 - 0.5 * _power(0.96, step * self.momentum_decay))

        now, ahead = mu(count + 1), mu(count + 2)
        product = state["mu_product"] * now
        scalars = {
            "gradient": rate * (1.0 - now) / (1.0 - product),
            "mean": rate * ahead / (1.0 - product * ahead),
            "scale": _girih.rsqrt(self._corrections(count)[1]),
        }
        return scalars, {"mu_product": product}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        g = self._decayed(p, g)
        m, v = self._means(g, slots)
        step = scalars["gradient"] * g + scalars["mean"] * m
        return p - ratio(step, v.sqrt() * scalars["scale"], self.eps), m, v


class RAdam(_Moments):
    """Adam with a rectified adaptive rate, which starts when the variance of the squares is known;
    options as in :class:`Adam`.

    Source: Liu et al. 2020, algorithm 2, in PyTorch's form.
    """

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-3)
        super().__init__(rate, betas, eps, weight_decay, maximize)
        self._hold(params)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        first, second = self._corrections(count)
        limit = 2.0 / (1.0 - self.betas[1]) - 1.0
        length = limit - 2.0 * (count + 1) * (1.0 - second) / second
        known = length > 5.0
        over = _girih.where(known, length, 6.0)
        rectified = (over - 4.0) * (over - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * over)
        plain = _girih.where(known, 0.0 * rate, rate / first)
        adaptive = _girih.where(known, rate / first * (rectified * second).sqrt(), 0.0 * rate)
        return {"plain": plain, "adaptive": adaptive}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        m, v = self._means(self._decayed(p, g), slots)
        rate = scalars["plain"] + ratio(scalars["adaptive"], v.sqrt(), self.eps)
        return p - rate * m, m, v
