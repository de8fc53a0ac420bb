"""The base of all optimisers: state, step count, learning rates, and the loop over parameters.

All values that change from step to step are tensors in the state: the count, the learning rate, the
slots per parameter. So no step is recompiled, and a whole step can be compiled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _girih, lazy, tree
from .._girih import Tensor
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ..nn.module import Module
from ..nn.places import places_in, read, replace
from ..scopes import no_grad
from ..synonyms import OPTIMIZER_HINTS, missing_attribute
from ..tracing import StateMadeError
from .held import Held, ParamGroup, gradients_like, rate_first
from .state import Stateful, cast
from .stepping import Stepping

if TYPE_CHECKING:
    from .._girih import DType
    from ..tree import PyTree

#: A learning rate as a function of the step count, a float64 scalar tensor.
Schedule: TypeAlias = Callable[["Tensor"], Any]
#: Numbers that all parameters of a step share, by name.
Scalars: TypeAlias = "dict[str, Tensor]"

__all__ = ["Optimizer", "Scalars", "Schedule"]


class Optimizer(Stepping, Stateful):
    """The base class of optimisers: stores the step count and the state, and loops over parameters.

    There are three ways to use an optimiser. One that is made with parameters, as
    ``SGD(model.parameters(), lr=0.1)``, uses the gradients of ``loss.backward()`` in ``step``.
    :meth:`update` takes the gradients, changes a model, or returns new parameters, and stores the
    state in the optimiser. :meth:`init` and :meth:`apply` return the state to the caller. All give
    the same numbers, with and without :func:`girih.compile`.

    ``params``, the first argument of each optimiser, has the parameters to hold: tensors, pairs of
    name and tensor, groups ``{"params": tensors, "lr": rate, ...}``, or a module. From then on they
    require gradients, unless they are frozen. A number or a function in its place is the learning
    rate of an optimiser in functional use; the other options follow in their order, or by name:
    ``SGD(0.1, 0.9)`` is ``SGD(lr=0.1, momentum=0.9)``. Those of SGD follow as in Keras and optax:
    ``momentum``, ``nesterov``, ``weight_decay``, ``dampening``.

    Parameters in float16 and bfloat16 are updated in float32, which is also the dtype of their
    state, and rounded at the end; :class:`MasterWeights` and :class:`StochasticRounding` keep steps
    that are too small for that.

    Args:
        learning_rate: A number, or a function of the step count (0 at the first update), a float64
            scalar tensor. In a compiled step the function is traced, so it must use
            :func:`girih.where` and functions of this package. Outside of a compiled step it may use
            ``if`` and ``math``.
        weight_decay: The multiple of a parameter that is added to its gradient, in all optimisers
            that say nothing else.
        maximize: Whether to maximise instead of minimise.

    Attributes:
        learning_rate: As given; it may be assigned between updates without recompilation.
        state: ``{"step": count, "learning_rate": rate, <slot>: tree like the parameters, ...}``,
            all tensors. The slots exist after :meth:`init` or the first update.

    Example:
        >>> import girih as gr
        >>> model = gr.eval(gr.nn.Linear(3, 1))
        >>> optimizer = gr.optim.Adam(0.1)
        >>> loss_and_grad = gr.nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())
        >>> @gr.compile
        ... def step(x):
        ...     loss, grads = loss_and_grad(x)
        ...     optimizer.update(model, grads)
        ...     return loss
        >>> losses = [step(gr.ones([4, 3])).item() for _ in range(20)]
        >>> losses[-1] < losses[0], step.num_programs, optimizer.state["step"].item()
        (True, 1, 20)
    """

    # The values for an optimiser that was made without parameters.
    _held: list[Held] = []  # noqa: RUF012 - never changed
    param_groups: list[ParamGroup] = []  # noqa: RUF012 - never changed

    def __init__(
        self, learning_rate: float | Schedule, weight_decay: float = 0.0, maximize: bool = False
    ) -> None:
        check(weight_decay >= 0, "weight_decay must not be negative", weight_decay)
        self.weight_decay = weight_decay
        self.maximize = maximize
        self.state = {"step": _count(0)}
        self.learning_rate = learning_rate
        self._default = learning_rate

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        init = cls.__dict__.get("__init__")
        if init is not None and list(inspect.signature(init).parameters)[1:3] == ["params", "lr"]:
            order = cls.__dict__.get("_after_rate")
            cls.__init__ = rate_first(init, order)  # type: ignore[method-assign]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, OPTIMIZER_HINTS)

    @property
    def learning_rate(self) -> float | Schedule:
        """The rate, or the function that computes it from the step count."""
        if self._grouped is not None:
            rate: float | Schedule = self._grouped.learning_rate
            return rate
        return self._schedule or float(self.state["learning_rate"])

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        if self._grouped is not None:
            raise InvalidArgumentError(
                f"{type(self).__name__}: each group of parameters has a learning rate; assign to "
                "param_groups[i]['lr']"
            )
        self._schedule: Schedule | None = value if callable(value) else None
        if not callable(value):
            if not isinstance(value, Tensor):
                check(value >= 0, "learning_rate must not be negative", value)
            self.state["learning_rate"] = _rate(value)
        else:
            self.state.pop("learning_rate", None)

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        if self._grouped is not None:
            return float(self._grouped.lr)
        return float(self._rate(self.state))

    @lr.setter
    def lr(self, value: float | Schedule) -> None:
        self.learning_rate = value

    def init(self, target: Module | PyTree) -> dict[str, Any]:
        """Initialises the state before the first step, for a model or a tree of parameters.

        The first :meth:`update` calls it if necessary. The state is evaluated here, so that the
        first step is the same program as all others.

        Returns:
            The state for :meth:`apply`; it is also stored in the optimiser for :meth:`update`.
        """
        if self._held:
            engine, parameters = self._engine, self._tensors()
        else:
            engine, parameters = self, checked(f"{type(self).__name__}.init", trained(target))
        state: dict[str, Any] = engine._begin(parameters)
        lazy.eval(state)
        engine._adopt(state)
        return state

    def _begin(self, parameters: PyTree) -> dict[str, Any]:
        """The state before the first step, lazy."""
        state: dict[str, Any] = {"step": _count(0)}
        if self._schedule is None:
            state["learning_rate"] = self.state["learning_rate"]
        state.update(self._globals())
        for slot in self.slots:
            state[slot] = tree.map(lambda p, slot=slot: self._initial(slot, p), parameters)
        return state

    def _begun(self) -> bool:
        """Whether the state belongs to these parameters."""
        return all(slot in self.state for slot in (*self.slots, *self._globals()))

    def apply(
        self, grads: PyTree, state: dict[str, Any], parameters: Module | PyTree
    ) -> tuple[PyTree, dict[str, Any]]:
        """One step in functional form: nothing is changed.

        Args:
            grads: Gradients in the form of the parameters.
            state: The state from :meth:`init`, or from the previous step.
            parameters: A tree of parameters, or a model.

        Returns:
            The new parameters, in the form of ``parameters_tree()`` for a model, and the new state,
            all lazy.

        Raises:
            InvalidArgumentError: Gradients or state have another structure than the parameters.
            ShapeError: A gradient has another shape than its parameter.

        Example:
            >>> import girih as gr
            >>> optimizer = gr.optim.SGD(0.1, momentum=0.9)
            >>> params = {"w": gr.ones([2])}
            >>> state = optimizer.init(params)
            >>> params, state = optimizer.apply({"w": gr.ones([2])}, state, params)
            >>> params["w"].tolist(), state["step"].item()
            ([0.8999999761581421, 0.8999999761581421], 1)
        """
        if not isinstance(state, dict):
            raise DTypeError(
                f"{type(self).__name__}.apply: state is what init or the previous step returned, a "
                f"dict, got a {type(state).__name__}"
            )
        target = trained(parameters)
        leaves, treedef = tree.flatten(target)
        updated, state = self._updated(target, leaves, treedef, grads, state)
        return tree.unflatten(treedef, updated), state

    def update(self, target: Module | PyTree, grads: PyTree) -> Any:
        """Records one step.

        Args:
            target: A model, or a pytree of parameters.
            grads: Gradients in the form of the parameters.

        Returns:
            The model, which now holds the new parameters; or the tree of new parameters. Parameters
            and state are lazy.

        Raises:
            InvalidArgumentError: Gradients or state have another structure than the parameters.
            ShapeError: A gradient has another shape than its parameter.
        """
        if self._held:
            return self._update_held(target, grads)
        if not self._begun():
            self.init(target)
            if _girih.is_tracing():
                raise StateMadeError
        if not isinstance(target, Module):
            parameters, treedef = tree.flatten(target)
            updated, state = self._updated(target, parameters, treedef, grads, self.state)
            self._advance(state)
            return tree.unflatten(treedef, updated)
        where, _ = places_in(target)
        places, treedef = tree.flatten(where)
        parameters = read(places)
        given = tree.unflatten(treedef, gradients_like(type(self).__name__, treedef, where, grads))
        # The new parameters are values, also those of parameters that require gradients.
        with no_grad():
            updated, state = self._updated(where, parameters, treedef, given, self.state)
        if [new.shape for new in updated] != [p.shape for p in parameters]:
            target.update(tree.unflatten(treedef, updated))  # Its error names the leaf.
        replace(places, updated)
        self._advance(state)
        return target

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """The new parameters and state. ``target`` is used only to name the path of a leaf in
        errors."""
        columns = [self._column(grads, treedef, "gradients")]
        for slot in self.slots:
            if slot not in state:
                raise InvalidArgumentError(
                    f"{type(self).__name__}: the state has no '{slot}'; begin with init(parameters)"
                )
            columns.append(self._column(state[slot], treedef, f"state '{slot}'"))
        count = state["step"].astype(_girih.float64)
        numbers, others = self._scalars(count, self._rate(state), state)
        scalars = _Cast(numbers)
        rows: list[tuple[Tensor, ...]] = []
        for index, (p, g, *slots) in enumerate(zip(parameters, *columns, strict=True)):
            if p.shape != g.shape:
                path = tree.flatten_with_path(target)[index][0]
                raise ShapeError(
                    f"{type(self).__name__}.update: parameter {path} has shape {list(p.shape)}, "
                    f"its gradient {list(g.shape)}"
                )
            dtype = compute_dtype(p)
            wide, gradient = cast(p, dtype), cast(g, dtype)
            gradient = -gradient if self.maximize else gradient
            new = self._step(wide, gradient, slots, scalars.of(dtype))
            rows.append((cast(new[0], p.dtype), *new[1:]))
        updated, *states = zip(*rows, strict=True) if rows else [()] * (1 + len(self.slots))
        trees = [tree.unflatten(treedef, column) for column in states]
        new_state = {**state, "step": state["step"] + 1, **others}
        return list(updated), {**new_state, **dict(zip(self.slots, trees, strict=True))}

    def _rate(self, state: dict[str, Any]) -> Tensor:
        """The learning rate of the next step, in double precision."""
        if self._schedule is None:
            rate: Tensor = state["learning_rate"]
            return rate
        rate = self._schedule(state["step"].astype(_girih.float64))
        return rate.astype(_girih.float64) if isinstance(rate, Tensor) else _rate(rate)

    def _column(self, values: PyTree, treedef: tree.TreeDef, what: str) -> list[Any]:
        leaves = tree.leaves_like(treedef, values)
        if leaves is None:
            raise InvalidArgumentError(
                f"{type(self).__name__}.update: parameters are {treedef}, {what} "
                f"{tree.structure(values)}"
            )
        return leaves

    def _initial(self, slot: str, p: Tensor) -> Tensor:
        """The initial value of a slot of a parameter."""
        return _girih.zeros(p.shape, dtype=compute_dtype(p))

    def _globals(self) -> dict[str, Tensor]:
        """State that does not belong to a parameter, before the first step."""
        return {}

    def _scalars(
        self, count: Tensor, rate: Tensor, state: dict[str, Any]
    ) -> tuple[Scalars, dict[str, Tensor]]:
        """Numbers that differ between steps, in double precision, and the new global state.

        Args:
            count: The number of previous steps.
            rate: The learning rate.
            state: The state before this step.
        """
        return {"lr": rate}, {}

    def _decayed(self, p: Tensor, g: Tensor) -> Tensor:
        """The gradient with weight decay."""
        return g + self.weight_decay * p if self.weight_decay else g

    def _step(
        self, p: Tensor, g: Tensor, slots: list[Tensor], scalars: Scalars
    ) -> tuple[Tensor, ...]:
        """Computes the new parameter and its new slots."""
        raise NotImplementedError


class _Cast:
    """Caches casts of numbers, so that each is cast to a dtype once."""

    __slots__ = ("_made", "_values")

    def __init__(self, values: Scalars) -> None:
        self._values = values
        self._made: dict[str, Scalars] = {}

    def of(self, dtype: DType) -> Scalars:
        made = self._made.get(dtype.name)
        if made is None:
            made = {name: cast(value, dtype) for name, value in self._values.items()}
            self._made[dtype.name] = made
        return made


def trained(target: Module | PyTree) -> PyTree:
    """The tree of trained parameters."""
    if isinstance(target, Module):
        return tree.map(lambda place: place.attributes[place.name], places_in(target)[0])
    return target


def checked(function: str, parameters: PyTree) -> PyTree:
    """A tree of parameters, all of which are tensors.

    Raises:
        DTypeError: A leaf is another object.
    """
    for path, leaf in tree.flatten_with_path(parameters):
        if not isinstance(leaf, Tensor):
            where = f" at {path}" if path else ""
            raise DTypeError(
                f"{function}: expected a module, or a tree of tensors, got a {type(leaf).__name__}"
                f"{where}"
            )
    return parameters


def _count(value: int) -> Tensor:
    return lazy.eval(_girih.asarray(value, dtype=_girih.int64))  # type: ignore[no-any-return]


def _rate(value: Any) -> Tensor:
    return lazy.eval(_girih.asarray(value, dtype=_girih.float64))  # type: ignore[no-any-return]


def compute_dtype(p: Tensor) -> DType:
    """The dtype in which a parameter is updated."""
    name = p.dtype.name
    if name in ("float16", "bfloat16"):
        return _girih.float32
    if name not in ("float32", "float64"):
        raise DTypeError(f"optim: a parameter of dtype {name} cannot be trained; expected a float")
    return p.dtype


def ratio(numerator: Tensor, root: Tensor, eps: float) -> Tensor:
    """``numerator / (root + eps)``, and zero where the denominator is zero.

    Without ``eps``, the denominator of an element that has had no gradient so far is zero. Such an
    element does not move, rather than becoming NaN.
    """
    if eps > 0:
        return numerator / (root + eps)
    at_rest = root == 0
    return _girih.where(at_rest, 0.0, numerator / _girih.where(at_rest, 1.0, root))


def check(ok: bool, what: str, value: object) -> None:
    """Raises an error that says which values an option may have."""
    if not ok:
        raise InvalidArgumentError(f"optim: {what}, got {value}")
