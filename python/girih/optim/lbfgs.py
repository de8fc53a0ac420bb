"""L-BFGS: quasi-Newton steps with an inverse Hessian estimated from the last gradients."""

from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

from .. import _girih, tree
from ..control import while_loop
from ..errors import InvalidArgumentError, ShapeError
from .base import Optimizer, Schedule, check, compute_dtype
from .held import given
from .state import cast
from .stepping import called

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._girih import DType, Tensor
    from ..nn import Module
    from ..tree import PyTree
    from .held import Parameters

__all__ = ["LBFGS"]

#: Maximum number of halvings in a line search.
_MOST_HALVINGS = 20
#: The state of the last step and of the previous pairs.
_KEPT = ("steps", "differences", "curvatures", "scale", "direction", "rate", "gradient", "pairs")


class LBFGS(Optimizer):
    """Quasi-Newton steps, for gradients without noise: full batches, physics, curve fitting.

    Each step moves by the rate along ``-H g``, where ``H`` is the inverse Hessian estimated from
    the last steps and differences of gradients. The first step is at most as long as the rate. All
    parameters together are one vector. If the function is passed to :meth:`Optimizer.update`, a
    line search chooses the length of each step.

    Args:
        lr: See :class:`Optimizer`; 1 by default.
        max_iter: The most iterations that a call of ``step`` makes.
        tolerance_grad: No step is made if no element of the gradient is larger than this number.
        tolerance_change: No step is made if the slope along the direction is above the negative of
            this number.
        history_size: The number of stored pairs of step and gradient difference.

    Source: Nocedal and Wright 2006, algorithm 7.5, in the form of one iteration of PyTorch's
    optimiser without a line search.

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

    _whole = True

    def __init__(
        self,
        params: Parameters | float | Schedule | None = None,
        lr: float | Schedule | None = None,
        max_iter: int = 20,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        maximize: bool = False,
        *,
        learning_rate: float | Schedule | None = None,
    ) -> None:
        params, rate = given(self, params, lr, learning_rate, 1.0)
        check(max_iter >= 1, "max_iter must be at least 1", max_iter)
        check(history_size >= 1, "history_size must be at least 1", history_size)
        check(tolerance_grad >= 0, "tolerance_grad must not be negative", tolerance_grad)
        check(tolerance_change >= 0, "tolerance_change must not be negative", tolerance_change)
        super().__init__(rate, 0.0, maximize)
        self.max_iter, self.history_size = max_iter, history_size
        self._fun: Callable[[PyTree], Tensor] | None = None
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self._hold(params)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes up to ``max_iter`` iterations; see :meth:`Optimizer.step`.

        Args:
            closure: A function that clears the gradients, computes the loss, calls ``backward`` and
                returns the loss. It is called before each iteration. Without one, a step is one
                iteration with the gradients that there are.

        Returns:
            The closure's first result.

        Raises:
            InvalidArgumentError: The optimiser holds no parameters.
        """
        loss = super().step(closure)
        for _ in range(self.max_iter - 1 if closure is not None else 0):
            called(closure)
            grads = self._gradients()
            if not any((g.abs() > self.tolerance_grad).any().item() for g in grads.values()):
                break
            self._make_step(grads, now=True)
        return loss

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
        flat = _flat(gradients, _common(parameters))
        flat = -flat if self.maximize else flat
        moving, length, new = self._direction(flat, self._rate(state), state)
        if self._fun is not None:
            slope = (flat * new["direction"]).sum()
            length = self._searched(parameters, treedef, new["direction"], slope, length)
        step = _girih.where(moving, length * new["direction"], _girih.zeros_like(flat))
        new["rate"] = length
        kept = {name: _girih.where(moving, value, state[name]) for name, value in new.items()}
        return _moved(parameters, step), {**state, "step": state["step"] + 1, **kept}

    def update(
        self, target: Module | PyTree, grads: PyTree, fun: Callable[[PyTree], Tensor] | None = None
    ) -> Any:
        """Records one step; see :meth:`Optimizer.update`.

        Args:
            fun: The differentiated function, which takes the tree of parameters (for a model
                ``parameters_tree()``, for :func:`girih.nn.functional_call`). If given, the step is
                halved until the value decreases enough (Armijo's rule), at most 20 times.
        """
        with self._searching(fun):
            return super().update(target, grads)

    def apply(
        self,
        grads: PyTree,
        state: dict[str, Any],
        parameters: Module | PyTree,
        fun: Callable[[PyTree], Tensor] | None = None,
    ) -> tuple[PyTree, dict[str, Any]]:
        """One step in functional form; see :meth:`Optimizer.apply`, and :meth:`update` for ``fun``.

        Args:
            fun: The differentiated function, for the line search.
        """
        with self._searching(fun):
            return super().apply(grads, state, parameters)

    @contextmanager
    def _searching(self, fun: Callable[[PyTree], Tensor] | None) -> Iterator[None]:
        """A scope in which the line search of recorded steps uses the function."""
        self._fun = fun
        try:
            yield
        finally:
            self._fun = None

    def _searched(
        self,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        direction: Tensor,
        slope: Tensor,
        length: Tensor,
    ) -> Tensor:
        """The step length, halved until the function decreases by a fraction of the slope."""
        fun, sign = self._fun, -1.0 if self.maximize else 1.0
        assert fun is not None

        def value(moved: list[Tensor]) -> Tensor:
            return sign * cast(fun(tree.unflatten(treedef, moved)), slope.dtype)

        start = value(parameters)

        def too_long(length: Tensor) -> Tensor:
            # A NaN does not count as a decrease.
            new = value(_moved(parameters, length * direction))
            return ~(new <= start + 1e-4 * length * slope)

        return while_loop(too_long, lambda length: 0.5 * length, length, _MOST_HALVINGS)  # type: ignore[no-any-return]

    def _direction(
        self, flat: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Whether to make a step, the length along the direction, and the new state of the step."""
        first = state["pairs"] == 0
        kept = self._curvature(flat, state, first)
        direction = -_product(flat, kept)
        # The first step has no pairs, and the direction is the negative gradient.
        shorter = _girih.minimum(1.0, 1.0 / flat.abs().sum())
        length = cast(rate, flat.dtype) * _girih.where(first, shorter, 1.0)
        moving = ~((flat * direction).sum() > -self.tolerance_change)
        if flat.size:
            moving = moving & (_girih.max(flat.abs()) > self.tolerance_grad)
        pairs = state["pairs"] + 1
        return moving, length, {**kept, "direction": direction, "gradient": flat, "pairs": pairs}

    def _curvature(self, flat: Tensor, state: dict[str, Any], first: Tensor) -> dict[str, Tensor]:
        """The pairs, including the pair of the last step if it has positive curvature."""
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


def _moved(parameters: list[Tensor], step: Tensor) -> list[Tensor]:
    """The parameters after a step, which is one vector for all parameters."""
    out, at = [], 0
    for p in parameters:
        size, wide = prod(p.shape), compute_dtype(p)
        new = cast(p, wide) + cast(step[at : at + size].reshape(p.shape), wide)
        out.append(cast(new, p.dtype))
        at += size
    return out


def _product(flat: Tensor, kept: dict[str, Tensor]) -> Tensor:
    """The estimated inverse Hessian times the gradient (two-loop recursion); unused rows are
    zero."""
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
    """The dtype of the vector of all parameters."""
    dtypes = [compute_dtype(p) for p in leaves]
    wide = [d for d in dtypes if d == _girih.float64]
    return (wide or dtypes or [_girih.float32])[0]


def _flat(tensors: list[Tensor], dtype: DType) -> Tensor:
    if not tensors:
        return _girih.zeros([0], dtype=dtype)
    return _girih.concat([cast(t, dtype).reshape((-1,)) for t in tensors], 0)
