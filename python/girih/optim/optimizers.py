"""Stochastic gradient descent, Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _girih, lazy, tree
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ..nn.module import Module, places_in, read, write

if TYPE_CHECKING:
    from .._girih import DType, Tensor
    from ..tree import PyTree

#: A learning rate as a function of the step count.
Schedule: TypeAlias = Callable[[int], float]

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "Schedule", "clip_grad_norm"]


class Optimizer:
    """Base of the optimisers: keeps the step count and the state, walks the parameters.

    Parameters in float16 and bfloat16 are updated in float32, which their state is kept in, and
    rounded at the end.

    Attributes:
        learning_rate: A number, or a function of the step count (0 at the first update). May be
            assigned between updates.
        state: ``{"step": int, <slot>: tree like the parameters, ...}``; empty before the first
            update or :meth:`init`.
    """

    #: Names of the tensors kept per parameter.
    slots: tuple[str, ...] = ()

    learning_rate: float | Schedule
    state: dict[str, Any]

    def __init__(self, learning_rate: float | Schedule) -> None:
        if not callable(learning_rate):
            _check(learning_rate >= 0, "learning_rate must not be negative", learning_rate)
        self.learning_rate = learning_rate
        self.state = {}

    def init(self, target: Module | PyTree) -> dict[str, Any]:
        """Starts anew, with zero state for the given model or tree of parameters.

        Happens by itself at the first update. The zeros are evaluated here, so that the first
        step is the same program as all others.
        """
        parameters = target.parameters_tree() if isinstance(target, Module) else target

        def zeros(p: Tensor) -> Tensor:
            return _girih.zeros(p.shape, dtype=_compute_dtype(p))

        self.state = {"step": 0, **{s: tree.map(zeros, parameters) for s in self.slots}}
        lazy.eval(self.state)
        return self.state

    def update(self, target: Module | PyTree, grads: PyTree) -> Any:
        """Records one step.

        Args:
            target: A model, or a pytree of parameters.
            grads: Gradients in the form of the parameters.

        Returns:
            The model, which now holds the new parameters; or the tree of new parameters. They
            are lazy, as is the new state.

        Raises:
            InvalidArgumentError: Gradients or state have another structure than the parameters.
            ShapeError: A gradient has another shape than its parameter.
        """
        if not self.state:
            self.init(target)
        if not isinstance(target, Module):
            parameters, treedef = tree.flatten(target)
            return tree.unflatten(treedef, self._updated(target, parameters, treedef, grads))
        where, _ = places_in(target)
        places, treedef = tree.flatten(where)
        parameters = read(places)
        updated = self._updated(where, parameters, treedef, grads)
        if [new.shape for new in updated] != [p.shape for p in parameters]:
            target.update(tree.unflatten(treedef, updated))  # says which
        write(places, updated)
        return target

    def _updated(
        self, target: PyTree, parameters: list[Tensor], treedef: tree.TreeDef, grads: PyTree
    ) -> list[Tensor]:
        """The new parameters; ``target`` is only asked where in it a leaf is."""
        columns = [self._column(grads, treedef, "gradients")]
        columns += [self._column(self.state[s], treedef, f"state '{s}'") for s in self.slots]

        step = int(self.state["step"])
        scalars = _Scalars(self._scalars(step))
        rows: list[tuple[Tensor, ...]] = []
        for index, (p, g, *slots) in enumerate(zip(parameters, *columns, strict=True)):
            if p.shape != g.shape:
                path = tree.flatten_with_path(target)[index][0]
                raise ShapeError(
                    f"{type(self).__name__}.update: parameter {path} has shape {list(p.shape)}, "
                    f"its gradient {list(g.shape)}"
                )
            dtype = _compute_dtype(p)
            new = self._step(_cast(p, dtype), _cast(g, dtype), slots, scalars.of(dtype))
            rows.append((_cast(new[0], p.dtype), *new[1:]))
        updated, *states = zip(*rows, strict=True) if rows else [()] * (1 + len(self.slots))
        trees = [tree.unflatten(treedef, column) for column in states]
        # Only now, when nothing can fail any more.
        self.state = {"step": step + 1, **dict(zip(self.slots, trees, strict=True))}
        return list(updated)

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        rate = self.learning_rate
        return float(rate(int(self.state.get("step", 0))) if callable(rate) else rate)

    @lr.setter
    def lr(self, value: float | Schedule) -> None:
        self.learning_rate = value

    def _column(self, values: PyTree, treedef: tree.TreeDef, what: str) -> list[Any]:
        leaves = tree.leaves_like(treedef, values)
        if leaves is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}.update: parameters are {treedef}, {what} "
                f"{tree.structure(values)}"
            )
        return leaves

    def _scalars(self, step: int) -> dict[str, float]:
        """Numbers that differ between steps, by name."""
        return {"lr": self.lr}

    def _step(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: dict[str, Tensor]
    ) -> tuple[Tensor, ...]:
        """New parameter and new slots."""
        raise NotImplementedError


class SGD(Optimizer):
    """Gradient descent, with momentum if asked for.

    ``v = momentum v + g``, ``p -= lr v``; with ``nesterov`` ``p -= lr (g + momentum v)``.
    ``weight_decay`` adds that multiple of the parameter to its gradient first.

    Source: Sutskever et al. 2013, in PyTorch's form (the rate outside the velocity).
    """

    def __init__(
        self,
        learning_rate: float | Schedule,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate)
        _check(momentum >= 0, "momentum must not be negative", momentum)
        _check(weight_decay >= 0, "weight_decay must not be negative", weight_decay)
        _check(not nesterov or momentum > 0, "nesterov needs momentum above 0", momentum)
        self.momentum = momentum
        self.nesterov = nesterov
        self.weight_decay = weight_decay
        self.slots = ("momentum",) if momentum else ()

    def _step(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: dict[str, Tensor]
    ) -> tuple[Tensor, ...]:
        if self.weight_decay:
            g = g + self.weight_decay * p
        if not slots:
            return (p - scalars["lr"] * g,)
        velocity = self.momentum * slots[0] + g
        direction = g + self.momentum * velocity if self.nesterov else velocity
        return p - scalars["lr"] * direction, velocity


class Adam(Optimizer):
    """Adaptive moments. ``weight_decay`` adds that multiple of the parameter to its gradient.

    Source: Kingma and Ba 2015, algorithm 1.
    """

    slots = ("m", "v")

    def __init__(
        self,
        learning_rate: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate)
        _check(all(0 <= b < 1 for b in betas), "betas must be in [0, 1)", betas)
        _check(eps >= 0, "eps must not be negative", eps)
        _check(weight_decay >= 0, "weight_decay must not be negative", weight_decay)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay

    def _scalars(self, step: int) -> dict[str, float]:
        # The bias corrections in double precision: in float32 1 - 0.999 has three digits.
        first, second = (1.0 - beta ** (step + 1) for beta in self.betas)
        return {"rate": self.lr / first, "scale": second**-0.5}

    def _step(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: dict[str, Tensor]
    ) -> tuple[Tensor, ...]:
        if self.weight_decay:
            g = g + self.weight_decay * p
        return self._moments(p, g, slots, scalars)

    def _moments(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: dict[str, Tensor]
    ) -> tuple[Tensor, ...]:
        beta1, beta2 = self.betas
        m = beta1 * slots[0] + (1.0 - beta1) * g
        v = beta2 * slots[1] + (1.0 - beta2) * (g * g)
        return p - scalars["rate"] * m / (v.sqrt() * scalars["scale"] + self.eps), m, v


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p -= lr weight_decay p`` beside Adam's step.

    Source: Loshchilov and Hutter 2019, algorithm 2 (the schedule multiplier is in the rate).
    """

    def __init__(
        self,
        learning_rate: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(learning_rate, betas, eps, weight_decay)

    def _scalars(self, step: int) -> dict[str, float]:
        return {**super()._scalars(step), "keep": 1.0 - self.lr * self.weight_decay}

    def _step(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: dict[str, Tensor]
    ) -> tuple[Tensor, ...]:
        return self._moments(p * scalars["keep"], g, slots, scalars)


def clip_grad_norm(grads: PyTree, max_norm: float) -> tuple[PyTree, Tensor]:
    """Scales gradients so that their norm, over all of them together, is at most ``max_norm``.

    Returns:
        The scaled gradients and the norm they had, both lazy.
    """
    leaves, treedef = tree.flatten(grads)
    if not leaves:
        raise InvalidArgumentError("clip_grad_norm: there are no gradients")
    squares = [(_cast(g, _compute_dtype(g)) ** 2).sum() for g in leaves]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = total.sqrt()
    factor = _girih.minimum(max_norm / (norm + 1e-6), 1.0)
    return tree.unflatten(treedef, [g * factor.astype(g.dtype) for g in leaves]), norm


class _Scalars:
    """Numbers as tensors of the dtype they are needed in, each made once."""

    __slots__ = ("_made", "_values")

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values
        self._made: dict[str, dict[str, Tensor]] = {}

    def of(self, dtype: DType) -> dict[str, Tensor]:
        made = self._made.get(dtype.name)
        if made is None:
            made = {n: _girih.asarray(v, dtype=dtype) for n, v in self._values.items()}
            self._made[dtype.name] = made
        return made


def _compute_dtype(p: Tensor) -> DType:
    name = p.dtype.name
    if name in ("float16", "bfloat16"):
        return _girih.float32
    if name not in ("float32", "float64"):
        raise DTypeError(f"optim: a parameter of dtype {name} cannot be trained; expected a float")
    return p.dtype


def _cast(tensor: Tensor, dtype: DType) -> Tensor:
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)


def _check(ok: bool, what: str, value: object) -> None:
    if not ok:
        raise InvalidArgumentError(f"optim: {what}, got {value}")
