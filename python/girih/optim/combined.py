"""Optimisers that wrap others: parameter groups, gradient accumulation, skipping bad gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _girih, tree
from ..checks import items
from ..errors import InvalidArgumentError
from ..names import dotted
from .base import Optimizer, check, compute_dtype
from .state import cast

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._girih import Tensor
    from ..tree import PyTree
    from .base import Schedule
    from .held import Parameters

__all__ = ["Accumulate", "Combined", "MultiOptimizer", "SkipNonFinite"]


class Combined(Optimizer):
    """An optimiser that wraps named optimisers; its state has their states under these names."""

    _inner: dict[str, Optimizer]

    def __init__(self, inner: dict[str, Optimizer]) -> None:
        for optimizer in inner.values():
            if not isinstance(optimizer, Optimizer):
                raise InvalidArgumentError(
                    f"{type(self).__name__}: expected an optimiser, got {type(optimizer).__name__}"
                )
        self._inner = {key: optimizer._engine for key, optimizer in inner.items()}
        self._whole = any(optimizer._whole for optimizer in self._inner.values())
        self.maximize = False
        self.state = {"step": _girih.zeros([], dtype=_girih.int64)}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state":
            for key, optimizer in self._inner.items():
                if key in value:
                    optimizer.state = value[key]
        object.__setattr__(self, name, value)

    @property
    def learning_rate(self) -> float | Schedule:
        """The rate of the first wrapped optimiser, or its function of the step count."""
        return next(iter(self._inner.values())).learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float | Schedule) -> None:
        if len(self._inner) > 1:
            raise InvalidArgumentError(
                f"{type(self).__name__}: each of the optimisers has a learning rate; assign to "
                "optimizers[i].learning_rate"
            )
        next(iter(self._inner.values())).learning_rate = value

    @property
    def lr(self) -> float:
        """The learning rate of the next step of the first wrapped optimiser."""
        return next(iter(self._inner.values())).lr

    @lr.setter
    def lr(self, value: float | Schedule) -> None:
        self.learning_rate = value

    def _begun(self) -> bool:
        return all(key in self.state for key in (*self._inner, *self.slots))

    def _hold_as(self, optimizer: Optimizer) -> None:
        """Holds the parameters of a wrapped optimiser, if it holds any."""
        self._held, self.param_groups = optimizer._held, optimizer.param_groups
        self._modules = optimizer._modules if self._held else []

    def _restricted(self, state: dict[str, Any], names: Any) -> dict[str, Any]:
        out = super()._restricted(state, names)
        for key, part in self._by_name(names).items():
            out[key] = self._inner[key]._restricted(state[key], part)
        return out

    def _merged(self, state: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        out = super()._merged(state, new)
        for key, inner in self._inner.items():
            out[key] = inner._merged(state[key], new[key])
        return out

    def _by_name(self, named: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The part of a dict of parameters by name for each optimiser."""
        return dict.fromkeys(self._inner, named)

    def _parts(self, leaves: list[Any], treedef: tree.TreeDef) -> dict[str, PyTree]:
        """The part of a tree of parameters for each optimiser."""
        return {key: tree.unflatten(treedef, leaves) for key in self._inner}

    def _begin(self, parameters: PyTree) -> dict[str, Any]:
        leaves, treedef = tree.flatten(parameters)
        parts = self._parts(leaves, treedef)
        state: dict[str, Any] = {"step": _girih.zeros([], dtype=_girih.int64)}
        for slot in self.slots:
            state[slot] = tree.map(lambda p, slot=slot: self._initial(slot, p), parameters)
        return {**state, **{k: inner._begin(parts[k]) for k, inner in self._inner.items()}}

    def _adopt(self, state: dict[str, Any]) -> None:
        own = {key: value for key, value in state.items() if key not in self._inner}
        super()._adopt(own)
        for key, inner in self._inner.items():
            inner._adopt(state[key])
            self.state[key] = inner.state

    def _stepped(
        self, key: str, target: PyTree, grads: PyTree, state: dict[str, Any]
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """Makes one step of one of the optimisers on its part of the parameters."""
        if key not in state:
            raise InvalidArgumentError(
                f"{type(self).__name__}: the state has no '{key}'; begin with init(parameters)"
            )
        leaves, treedef = tree.flatten(target)
        return self._inner[key]._updated(target, leaves, treedef, grads, state[key])


class MultiOptimizer(Combined):
    """Groups of parameters, each with its own optimiser.

    Args:
        optimizers: The optimisers.
        filters: One filter for each optimiser except the last: a function of a parameter's dotted
            name and of the parameter, which returns whether the parameter belongs to the optimiser.
            The first filter that returns true decides; the last optimiser has the other parameters.
        params: Parameters to hold, for ``step``; see :class:`Optimizer`.

    Attributes:
        optimizers: The optimisers, whose rates may be assigned.

    Raises:
        InvalidArgumentError: The number of filters is not one less than the number of optimisers.

    Example:
        >>> import girih as gr
        >>> model = gr.eval(gr.nn.Linear(2, 2))
        >>> matrices = lambda name, p: p.ndim == 2
        >>> parts = [gr.optim.Muon(0.02), gr.optim.SGD(0.1)]
        >>> optimizer = gr.optim.MultiOptimizer(parts, [matrices])
        >>> _ = optimizer.init(model)
        >>> sorted(optimizer.state_dict())
        ['0.learning_rate', '0.momentum.weight', '0.step', '1.learning_rate', '1.step', 'step']
    """

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        filters: Sequence[Callable[[str, Tensor], Any]],
        params: Parameters | None = None,
    ) -> None:
        if not optimizers or len(filters) != len(optimizers) - 1:
            raise InvalidArgumentError(
                f"MultiOptimizer: {len(optimizers)} optimisers need one filter less, got "
                f"{len(filters)}"
            )
        self.optimizers, self.filters = items(optimizers), items(filters)
        super().__init__({str(i): optimizer for i, optimizer in enumerate(optimizers)})
        self._hold(params)

    def _by_name(self, named: dict[str, Any]) -> dict[str, dict[str, Any]]:
        parts: dict[str, dict[str, Any]] = {key: {} for key in self._inner}
        for name, tensor in named.items():
            parts[self._group(name, tensor)][name] = tensor
        return parts

    def _group(self, name: str, parameter: Any) -> str:
        for i, chooses in enumerate(self.filters):
            if chooses(name, parameter):
                return str(i)
        return str(len(self.filters))

    def _named(self, parameters: PyTree) -> list[tuple[str, str]]:
        """The group and the dotted name of each parameter."""
        pairs = [(dotted(path), leaf) for path, leaf in tree.flatten_with_path(parameters)]
        return [(self._group(name, leaf), name) for name, leaf in pairs]

    def _parts(self, leaves: list[Any], treedef: tree.TreeDef) -> dict[str, PyTree]:
        named = self._named(tree.unflatten(treedef, leaves))
        return self._split(named, leaves)

    def _split(self, named: list[tuple[str, str]], leaves: list[Any]) -> dict[str, PyTree]:
        parts: dict[str, PyTree] = {key: {} for key in self._inner}
        for (group, name), leaf in zip(named, leaves, strict=True):
            parts[group][name] = leaf
        return parts

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        named = self._named(tree.unflatten(treedef, parameters))
        gradients = self._split(named, self._column(grads, treedef, "gradients"))
        parts = self._split(named, parameters)
        new_state: dict[str, Any] = {**state, "step": state["step"] + 1}
        updated: dict[tuple[str, str], Tensor] = {}
        for key, part in parts.items():
            leaves, new_state[key] = self._stepped(key, part, gradients[key], state)
            # The leaves of a dict are in the order of its keys.
            updated.update({(key, n): leaf for n, leaf in zip(sorted(part), leaves, strict=True)})
        return [updated[at] for at in named], new_state


class Accumulate(Combined):
    """Averages gradients over several batches, and makes one step of an optimiser after the last
    batch.

    Args:
        optimizer: The optimiser.
        steps: The number of batches per step. Schedules count steps, not batches.

    Raises:
        InvalidArgumentError: ``steps`` is below 1.

    Example:
        >>> import girih as gr
        >>> optimizer = gr.optim.Accumulate(gr.optim.SGD(1.0), 2)
        >>> params = [gr.asarray([1.0])]
        >>> for g in (0.25, 0.75):
        ...     params = optimizer.update(params, [gr.asarray([g])])
        ...     print(params[0].tolist())
        [1.0]
        [0.5]
    """

    slots = ("grads",)

    def __init__(self, optimizer: Optimizer, steps: int) -> None:
        check(steps >= 1, "steps must be at least 1", steps)
        self.optimizer, self.steps = optimizer, steps
        super().__init__({"optimizer": optimizer})
        self._hold_as(optimizer)

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        if "grads" not in state:
            raise InvalidArgumentError(
                "Accumulate: the state has no 'grads'; begin with init(parameters)"
            )
        new = self._column(grads, treedef, "gradients")
        kept = self._column(state["grads"], treedef, "state 'grads'")
        means = [
            total + cast(g, total.dtype) / self.steps for total, g in zip(kept, new, strict=True)
        ]
        last = (state["step"] + 1) % self.steps == 0
        whole = tree.unflatten(treedef, parameters)
        mean = tree.unflatten(treedef, means)
        done, inner = self._stepped("optimizer", whole, mean, state)
        updated = [_girih.where(last, n, p) for n, p in zip(done, parameters, strict=True)]
        rest = [_girih.where(last, _girih.zeros_like(mean), mean) for mean in means]
        return updated, {
            **state,
            "step": state["step"] + 1,
            "grads": tree.unflatten(treedef, rest),
            "optimizer": chosen(last, inner, state["optimizer"]),
        }


class SkipNonFinite(Combined):
    """Skips steps with non-finite gradients: parameters and state do not change.

    With :class:`girih.amp.LossScaler` gradients are not finite if the scale was too large.

    Args:
        optimizer: The optimiser.

    Example:
        >>> import girih as gr
        >>> optimizer = gr.optim.SkipNonFinite(gr.optim.SGD(1.0))
        >>> optimizer.update([gr.asarray([1.0])], [gr.asarray([float("nan")])])[0].tolist()
        [1.0]
        >>> optimizer.state["skipped"].item()
        1
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        super().__init__({"optimizer": optimizer})
        self._hold_as(optimizer)
        self.state["skipped"] = _girih.zeros([], dtype=_girih.int64)

    def _begin(self, parameters: PyTree) -> dict[str, Any]:
        skipped = _girih.zeros([], dtype=_girih.int64)
        return {**super()._begin(parameters), "skipped": skipped}

    def _updated(
        self,
        target: PyTree,
        parameters: list[Tensor],
        treedef: tree.TreeDef,
        grads: PyTree,
        state: dict[str, Any],
    ) -> tuple[list[Tensor], dict[str, Any]]:
        gradients = self._column(grads, treedef, "gradients")
        finite = all_finite(gradients)
        whole = tree.unflatten(treedef, parameters)
        done, inner = self._stepped("optimizer", whole, grads, state)
        updated = [_girih.where(finite, n, p) for n, p in zip(done, parameters, strict=True)]
        return updated, {
            **state,
            "step": state["step"] + 1,
            "skipped": state["skipped"] + (~finite).astype(_girih.int64),
            "optimizer": chosen(finite, inner, state["optimizer"]),
        }


def chosen(condition: Tensor, new: PyTree, old: PyTree) -> PyTree:
    """Selects one of two trees of tensors."""
    return tree.map(lambda n, o: _girih.where(condition, n, o), new, old)


def all_finite(values: PyTree) -> Tensor:
    """Whether all elements of a tree are finite, as a tensor."""
    found = _girih.ones([], dtype=_girih.bool_)
    for leaf in tree.leaves(values):
        compute_dtype(leaf)
        found = found & _girih.isfinite(leaf).all()
    return found
