"""Optimisers that treat a parameter as a matrix: Muon and Adafactor."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import _girih
from ..dtypes import finfo
from ..errors import ShapeError
from .base import Optimizer, Scalars, Schedule, check, compute_dtype, ratio
from .held import given

if TYPE_CHECKING:
    from .._girih import Tensor
    from .held import Parameters

__all__ = ["Adafactor", "Muon"]

_New = tuple["Tensor", ...]


class Muon(Optimizer):
    """Momentum, orthogonalised to the nearest matrix with orthonormal rows or columns.

    Newton-Schulz iterations orthogonalise the matrix. Muon is for the weights of hidden layers; use
    another optimiser for biases, norms, embeddings and the last layer (:class:`MultiOptimizer`). A
    convolution kernel is treated as the matrix ``[out, in * window]``.

    Args:
        lr: See :class:`Optimizer`; 0.001 by default.
        weight_decay: As in :class:`AdamW`.
        momentum: The decay of the velocity.
        nesterov: Whether to use Nesterov momentum.
        ns_coefficients: The coefficients of the iteration's polynomial, of degree 1, 3 and 5.
        eps: The lower bound of the norm by which the matrix is divided.
        ns_steps: The number of iterations, 1 to 99.
        adjust_lr_fn: The factor of the rate for a matrix ``[m, n]``: ``"original"`` is
            ``sqrt(max(1, m / n))``, ``"match_rms_adamw"`` is ``0.2 sqrt(max(m, n))``, for rates as
            in AdamW, ``"spectral_unclamped"`` is ``sqrt(m / n)``.

    Source: Jordan et al. 2024; Liu et al. 2025 for ``"match_rms_adamw"``; in PyTorch's form, but
    computed in float32 where PyTorch rounds to bfloat16.
    """

    slots = ("momentum",)

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str = "original",
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-3)
        check(0 <= momentum <= 1, "momentum must be in [0, 1]", momentum)
        check(1 <= ns_steps < 100, "ns_steps must be from 1 to 99", ns_steps)
        check(len(ns_coefficients) == 3, "ns_coefficients are three numbers", ns_coefficients)
        check(eps >= 0, "eps must not be negative", eps)
        known = ("original", "match_rms_adamw", "spectral_unclamped")
        check(adjust_lr_fn in known, f"adjust_lr_fn is one of {known}", adjust_lr_fn)
        super().__init__(rate, weight_decay, maximize)
        self.momentum, self.nesterov = momentum, nesterov
        self.ns_coefficients, self.ns_steps, self.eps = ns_coefficients, ns_steps, eps
        self.adjust_lr_fn = adjust_lr_fn
        self._hold(params)

    def _initial(self, slot: str, p: Tensor) -> Tensor:
        if p.ndim < 2:
            raise ShapeError(
                f"Muon: a parameter of shape {list(p.shape)} is no matrix; give it to another "
                "optimiser, with MultiOptimizer"
            )
        return super()._initial(slot, p)

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        return {"lr": rate, "keep": 1.0 - rate * self.weight_decay}, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        velocity = self.momentum * slots[0] + (1.0 - self.momentum) * g
        step = velocity
        if self.nesterov:
            step = self.momentum * velocity + (1.0 - self.momentum) * g
        rows, columns = p.shape[0], prod(p.shape[1:])
        if self.adjust_lr_fn == "match_rms_adamw":
            factor = 0.2 * max(rows, columns) ** 0.5
        else:
            smallest = 1.0 if self.adjust_lr_fn == "original" else 0.0
            factor = max(smallest, rows / max(1, columns)) ** 0.5
        step = self._orthogonal(step.reshape((rows, columns))).reshape(p.shape)
        return p * scalars["keep"] - scalars["lr"] * (factor * step), velocity

    def _orthogonal(self, x: Tensor) -> Tensor:
        """Iterates on the smaller side of a matrix."""
        a, b, c = self.ns_coefficients
        tall = x.shape[0] > x.shape[1]
        x = x.mT if tall else x
        norm = (x * x).sum().sqrt()
        x = x / _girih.maximum(norm, self.eps) if self.eps else ratio(x, norm, 0.0)
        for _ in range(self.ns_steps):
            gram = x @ x.mT
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x.mT if tall else x


class Adafactor(Optimizer):
    """Adam without momentum that stores the mean squares of a matrix as a row and a column.

    The state of a matrix ``[..., m, n]`` has ``m + n`` numbers instead of ``m n``. The step is
    relative to the size of the parameter, and bounded.

    Args:
        lr: The bound of the relative step; see :class:`Optimizer`; 0.01 by default.
        beta2_decay: The exponent of the step count that gives the weight of new squares.
        eps: The first number (by default the precision of the dtype), squared, is the lower bound
            of squares; the second is the lower bound of the size of a parameter.
        d: The bound of the root mean square of a step before the rate.
        weight_decay: As in :class:`AdamW`.

    Source: Shazeer and Stern 2018, in PyTorch's form.
    """

    slots = ("row", "column")

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1e-2)
        check(beta2_decay <= 0, "beta2_decay must not be positive", beta2_decay)
        check(eps[0] is None or eps[0] >= 0, "eps must not be negative", eps)
        check(eps[1] >= 0, "eps must not be negative", eps)
        check(d >= 1, "d must be at least 1", d)
        super().__init__(rate, weight_decay, maximize)
        self.beta2_decay, self.eps, self.d = beta2_decay, eps, d
        self._hold(params)

    def _initial(self, slot: str, p: Tensor) -> Tensor:
        shape = list(p.shape)
        if p.ndim > 1:
            shape[-1 if slot == "row" else -2] = 1
        elif slot == "column":
            shape = []  # A vector stores all mean squares, in the row.
        return _girih.zeros(shape, dtype=compute_dtype(p))

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        steps = count + 1
        return {
            "share": steps**self.beta2_decay,
            "rate": _girih.minimum(rate, steps**-0.5),
            "keep": 1.0 - rate * self.weight_decay,
        }, {}

    def _step(self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars) -> _New:
        smallest = finfo(p.dtype).eps if self.eps[0] is None else self.eps[0]
        share, size = scalars["share"], max(1, p.size)
        row, column = slots
        rate = scalars["rate"] * _girih.maximum(_norm(p) / size**0.5, self.eps[1])
        if p.ndim > 1:
            row = row + share * ((g * g).mean(-1, keepdims=True) - row)
            column = column + share * ((g * g).mean(-2, keepdims=True) - column)
            squares = ratio(
                row * column, _girih.maximum(row.mean(-2, keepdims=True), smallest), 0.0
            )
        else:
            squares = row = row + share * (g * g - row)
        if smallest * smallest > 0:
            step = g * _girih.rsqrt(_girih.maximum(squares, smallest * smallest))
        else:
            step = ratio(g, squares.sqrt(), 0.0)
        bounded = _girih.maximum(_norm(step) / (size**0.5 * self.d), 1.0)
        return p * scalars["keep"] - rate / bounded * step, row, column


def _norm(x: Tensor) -> Tensor:
    return (x * x).sum().sqrt()
