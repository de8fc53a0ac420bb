"""L-BFGS: steps along the inverse of a curvature that is estimated from the last gradients."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .. import _girih, tree
from ..errors import InvalidArgumentError, ShapeError
from .base import Optimizer, Schedule, check, compute_dtype
from .state import cast

if TYPE_CHECKING:
    from .._girih import DType, Tensor
    from ..tree import PyTree

__all__ = ["LBFGS"]

#: What is kept of the last step and of the pairs before it.
_KEPT = ("steps", "differences", "curvatures", "scale", "direction", "rate", "gradient", "pairs")


class LBFGS(Optimizer):
    """Quasi-Newton steps, for gradients without noise: full batches, physics, fits.

    Each step moves by the rate along ``-H g``, where ``H`` is estimated from the last steps and
    differences of gradients. The first step is at most as long as the rate. All parameters together
    are one vector.

    Args:
        learning_rate: See :class:`Optimizer`.
        history_size: How many pairs of step and difference are kept.
        tolerance_grad: No step is made where no element of the gradient is larger.
        tolerance_change: No step is made where the slope along the direction is above its negative.
        maximize: Whether to go up the gradient.

    Source: Nocedal and Wright 2006, algorithm 7.5, in the form of one iteration of PyTorch's
    without a line search.

    Example:
        >>> import girih as gr
        >>> optimizer = gr.optim.LBFGS()
        >>> x = [gr.asarray([3.0, -2.0])]
        >>> grad = gr.grad(lambda x: ((x[0] - 1.0) ** 2 * gr.asarray([1.0, 20.0])).sum())
        >>> for _ in range(10):
        ...     x = optimizer.update(x, grad(x))
        >>> [round(value, 3) for value in x[0].tolist()]
        [1.0, 1.0]
    """

    def __init__(
        self,
        learning_rate: float | Schedule = 1.0,
        history_size: int = 100,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        maximize: bool = False,
    ) -> None:
        check(history_size >= 1, "history_size must be at least 1", history_size)
        check(tolerance_grad >= 0, "tolerance_grad must not be negative", tolerance_grad)
        check(tolerance_change >= 0, "tolerance_change must not be negative", tolerance_change)
        super().__init__(learning_rate, 0.0, maximize)
        self.history_size = history_size
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change

    def _begun(self) -> bool:
        return all(name in self.state for name in _KEPT)

    def _begin(self, parameters: PyTree) -> dict[str, Any]:
        leaves = tree.leaves(parameters)
        dtype, size = _common(leaves), sum(prod(p.shape) for p in leaves)
        shapes: dict[str, tuple[int, ...]] = {"direction": (size,), "gradient": (size,)}
        shapes |= dict.fromkeys(("steps", "differences"), (self.history_size, size))
        shapes |= {"curvatures": (self.history_size,), "scale": (), "rate": ()}
        state = {**super()._begin(parameters), "pairs": _girih.zeros([], dtype=_girih.int64)}
        return {**state, **{k: _girih.zeros(shape, dtype=dtype) for k, shape in shapes.items()}}

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        gradients = self._column(grads, treedef, "gradients")
        if missing := [name for name in _KEPT if name not in state]:
            raise InvalidArgumentError(
                f"LBFGS: the state has no '{missing[0]}'; begin with init(parameters)"
            )
        for (path, p), g in zip(
            tree.flatten_with_path(tree.unflatten(treedef, parameters)), gradients, strict=True
        ):
            if p.shape != g.shape:
                raise ShapeError(
                    f"LBFGS.update: parameter {path} has shape {list(p.shape)}, its gradient "
                    f"{list(g.shape)}"
                )
        dtype = _common(parameters)
        flat = _flat(gradients, dtype)
        flat = -flat if self.maximize else flat
        step, kept = self._direction(flat, self._rate(state), state)
        updated, at = [], 0
        for p in parameters:
            size, wide = prod(p.shape), compute_dtype(p)
            moved = cast(p, wide) + cast(step[at : at + size].reshape(p.shape), wide)
            updated.append(cast(moved, p.dtype))
            at += size
        return updated, {**state, "step": state["step"] + 1, **kept}

    def _direction(
        self, flat: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What is added to the parameters, and what is kept of it."""
        moving = flat.abs().sum() > 0 if flat.size else _girih.zeros([], dtype=_girih.bool_)
        if flat.size:
            moving = _girih.max(flat.abs()) > self.tolerance_grad
        first = state["pairs"] == 0
        kept = self._curvature(flat, state, first)
        downhill = -_product(flat, kept)
        # Where PyTorch begins anew there are no pairs, and the product above is minus the gradient.
        shorter = _girih.minimum(1.0, 1.0 / flat.abs().sum())
        length = cast(rate, flat.dtype) * _girih.where(first, shorter, 1.0)
        moving = moving & ~((flat * downhill).sum() > -self.tolerance_change)
        new = {**kept, "direction": downhill, "rate": length, "gradient": flat}
        new["pairs"] = state["pairs"] + 1
        chosen = {k: _girih.where(moving, value, state[k]) for k, value in new.items()}
        return _girih.where(moving, length * downhill, _girih.zeros_like(flat)), chosen

    def _curvature(self, flat: Tensor, state: dict[str, Any], first: Tensor) -> dict[str, Tensor]:
        """The pairs with that of the last step, if it is one of positive curvature."""
        difference = flat - state["gradient"]
        step = state["direction"] * state["rate"]
        along = (difference * step).sum()
        better = (along > 1e-10) & ~first
        safe = _girih.where(better, along, 1.0)
        square = (difference * difference).sum()

        def pushed(name: str, value: Tensor) -> Tensor:
            old = state[name]
            return _girih.where(better, _girih.concat([old[1:], value[None]], 0), old)

        scale = _girih.where(better, safe / _girih.where(better, square, 1.0), state["scale"])
        return {
            "steps": pushed("steps", step),
            "differences": pushed("differences", difference),
            "curvatures": pushed("curvatures", 1.0 / safe),
            "scale": _girih.where(first, 1.0, scale),
        }


def _product(flat: Tensor, kept: dict[str, Tensor]) -> Tensor:
    """The estimated inverse of the curvature times the gradient; rows that are empty are zero."""
    steps, differences, curvatures = (kept[k] for k in ("steps", "differences", "curvatures"))
    count = steps.shape[0]
    shares: list[Tensor] = []
    q = flat
    for i in reversed(range(count)):
        shares.append((steps[i] * q).sum() * curvatures[i])
        q = q - shares[-1] * differences[i]
    r = kept["scale"] * q
    for i in range(count):
        back = (differences[i] * r).sum() * curvatures[i]
        r = r + (shares[count - 1 - i] - back) * steps[i]
    return r


def _common(leaves: list[Tensor]) -> DType:
    """The dtype in which the parameters are one vector."""
    dtypes = [compute_dtype(p) for p in leaves]
    wide = [d for d in dtypes if d == _girih.float64]
    return (wide or dtypes or [_girih.float32])[0]


def _flat(tensors: list[Tensor], dtype: DType) -> Tensor:
    if not tensors:
        return _girih.zeros([0], dtype=dtype)
    return _girih.concat([cast(t, dtype).reshape((-1,)) for t in tensors], 0)
