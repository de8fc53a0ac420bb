"""Optimisers in the imperative style: they hold parameters, and ``step`` uses their gradients.

    optimizer = gr.optim.SGD(model.parameters(), lr=0.1)
    loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

A step is that of the functional form, on the tree of the parameters by name. The new values are
assigned to the tensors that the model holds, so both forms and the model have one truth.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .. import _girih, lazy, tree
from .._girih import Tensor
from ..checks import explain_methods
from ..errors import InvalidArgumentError, ShapeError
from ..nn.alive import holders_of, outermost
from ..nn.freezing import clear
from ..nn.module import Module
from ..nn.places import places_in, submodules
from ..scopes import enable_grad, no_grad
from ..tracing import StateMadeError
from ..variables import assign
from .held import Held, ParamGroup, gradients_like, groups_of, names_of, options_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tree import PyTree

__all__ = ["Stepping", "called"]


@explain_methods
class Stepping:
    """The mixin of :class:`girih.optim.Optimizer` for parameters that the optimiser holds."""

    #: The names of the slots: tensors stored per parameter.
    slots: tuple[str, ...] = ()
    state: dict[str, Any]
    #: The groups of held parameters, as dicts; empty in functional use.
    param_groups: list[ParamGroup]
    #: The learning rate that was given.
    _default: Any
    #: Whether a step needs the gradients of all parameters; those that are missing are zero.
    _whole = False
    #: The optimiser that makes the steps: this one, or one with an optimiser for each group.
    _grouped: Any = None
    _held: list[Held]
    #: The outermost modules of the models, whose buffers a step evaluates.
    _modules: list[weakref.ref[Module]]

    @property
    def _engine(self) -> Any:
        return self if self._grouped is None else self._grouped

    def _hold(self, params: Any) -> None:
        """Holds parameters from now on, which then require gradients."""
        self._held, self.param_groups, self._modules = [], [], []
        if params is None:
            return
        groups = groups_of(type(self).__name__, params)
        names = names_of([pair for pairs, _ in groups for pair in pairs], set())
        if len(groups) == 1 and not groups[0][1]:
            self._add(self, groups[0][0], {}, names)
        else:
            members = [self._member(options) for _, options in groups]
            for member, (pairs, options) in zip(members, groups, strict=True):
                self._add(member, pairs, options, names)
            self._regroup()
        self._watch()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters, with options of their own.

        Args:
            param_group: ``{"params": tensors, <option>: value, ...}``.

        Raises:
            InvalidArgumentError: A parameter is in another group, or an option is out of range.

        Example:
            >>> import girih as gr
            >>> body, head = gr.nn.Linear(2, 2), gr.nn.Linear(2, 1)
            >>> optimizer = gr.optim.SGD(head.parameters(), lr=0.1)
            >>> optimizer.add_param_group({"params": body.parameters(), "lr": 0.01})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.01]
        """
        self._check_held("add_param_group")
        ((pairs, options),) = groups_of(type(self).__name__, [param_group])
        names = names_of(pairs, {one.name for one in self._held})
        if self._engine is self:
            # The first group gets an optimiser of its own, with the state so far.
            member = self._member({})
            member.state = self.state
            self.param_groups[0]._optimizer = member
        member, begun = self._member(options), self._engine._begun()
        self._add(member, pairs, options, names)
        if begun:
            tensors = {names[id(tensor)]: tensor for _, tensor in pairs}
            member.state = lazy.eval(member._begin(tensors))
        self._regroup()
        self._watch()

    def _add(
        self, member: Any, pairs: list[Any], options: dict[str, Any], names: dict[int, str]
    ) -> None:
        """Adds a group, whose options the optimiser ``member`` has."""
        known = {id(one.tensor()) for one in self._held}
        holders = holders_of(tensor for _, tensor in pairs)
        held = []
        for _, tensor in pairs:
            if id(tensor) in known:
                raise InvalidArgumentError(
                    f"{type(self).__name__}: the parameter {names[id(tensor)]} is in two groups"
                )
            held.append(Held(names[id(tensor)], tensor, holders[id(tensor)]))
        for one in held:
            one.mark()
        group = ParamGroup(member, held)
        for key, value in options.items():
            if key not in group and key != "learning_rate":
                group[key] = value
        self._held += held
        self.param_groups.append(group)

    def _member(self, options: dict[str, Any]) -> Any:
        """The optimiser of one group."""
        own = options_of(self)
        changed = {key: value for key, value in options.items() if key in own}
        rate = options.get("lr", options.get("learning_rate"))
        if rate is None:
            rate = self._default
        cls: Any = type(self)
        return cls(rate, **{**own, **changed})

    def _regroup(self) -> None:
        """Makes the engine that has an optimiser for each group."""
        from .combined import MultiOptimizer

        names = [{one.name for one in group._held} for group in self.param_groups]
        members = [group._optimizer for group in self.param_groups]
        step = self.state["step"]
        filters = [_Among(own) for own in names[:-1]]
        self._grouped = MultiOptimizer(members, filters)
        if all(member._begun() for member in members):
            states = {str(i): member.state for i, member in enumerate(members)}
            self._grouped.state = {"step": step, **states}
        self.state = self._grouped.state

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy, whose parameters are in no module."""
        return {**self.__dict__, "_modules": []}

    def _watch(self) -> None:
        """Finds the outermost modules that the parameters belong to."""
        inner: set[int] = set()
        roots = []
        for one in self._held:
            for holder, _ in one.places():
                if id(holder) not in inner:
                    roots.append(outermost(holder))
                    inner.update(id(module) for _, module in submodules(roots[-1]))
        self._modules = [weakref.ref(root) for root in roots]

    def _check_held(self, what: str) -> None:
        if not self._held:
            name = type(self).__name__
            raise InvalidArgumentError(
                f"{name}.{what}: the optimiser holds no parameters; make it with them, "
                f"{name}(model.parameters(), lr=...), or call update(model, grads)"
            )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one step with the gradients that ``backward`` has left in the parameters.

        The new parameters, the state, and the buffers of the model are computed here, in one
        program with the loss and the gradients, so a training loop needs no :func:`girih.eval`. A
        parameter without a gradient stays as it is.

        Args:
            closure: A function that clears the gradients, computes the loss, calls ``backward`` and
                returns the loss. It is called before the step.

        Returns:
            The closure's result.

        Raises:
            InvalidArgumentError: The optimiser holds no parameters.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Linear(2, 1)
            >>> optimizer = gr.optim.SGD(model.parameters(), lr=0.1)
            >>> for _ in range(2):
            ...     optimizer.zero_grad()
            ...     model(gr.ones([3, 2])).sum().backward()
            ...     optimizer.step()
            >>> optimizer.state["step"].item()
            2
        """
        self._check_held("step")
        loss = called(closure)
        self._make_step(self._gradients(), now=True)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of the held parameters.

        Args:
            set_to_none: Whether the gradients become ``None``, not zeros.

        Raises:
            InvalidArgumentError: The optimiser holds no parameters.
        """
        self._check_held("zero_grad")
        tensors = [one.tensor() for one in self._held]
        for one, tensor in zip(self._held, tensors, strict=True):
            if not tensor.requires_grad:
                one.mark()
        clear(tensors, set_to_none)

    def _ready(self) -> None:
        if self._held and not self._engine._begun():
            self._engine._adopt(lazy.eval(self._engine._begin(self._tensors())))

    def _tensors(self) -> dict[str, Tensor]:
        """The held parameters by name."""
        return {one.name: one.tensor() for one in self._held}

    def _gradients(self) -> dict[str, Tensor]:
        """The gradients that there are, by the names of the parameters."""
        found = {}
        for one in self._held:
            gradient = one.tensor().grad
            if gradient is not None:
                found[one.name] = gradient.detach() if gradient.requires_grad else gradient
        return found

    def _make_step(self, grads: dict[str, Tensor], now: bool) -> None:
        """Makes a step with gradients by name, and computes it if ``now``."""
        if not grads:
            return
        engine, tensors = self._engine, self._tensors()
        with no_grad():
            if engine._whole:
                grads = {n: grads[n] if n in grads else _girih.zeros_like(t.detach())
                         for n, t in tensors.items()}  # fmt: skip
            if not engine._begun():
                engine._adopt(lazy.eval(engine._begin(tensors)))
                if _girih.is_tracing():
                    # The function is traced again; its gradients so far mean nothing.
                    clear(list(tensors.values()), True)
                    raise StateMadeError
            part = {name: tensors[name] for name in sorted(grads)}
            leaves, treedef = tree.flatten(part)
            old = engine._restricted(engine.state, part)
            updated, new = engine._updated(part, leaves, treedef, grads, old)
            # The old values are freed as soon as the new ones are computed.
            before = [_girih.weak(leaf) for leaf in leaves]
            held = {one.name: one for one in self._held}
            for name, value in zip(part, updated, strict=True):
                held[name].put(value)
            engine._advance(engine._merged(engine.state, new))
        if not now or _girih.is_tracing():
            return
        try:
            lazy.eval(leaves, engine.state, self._buffers(), _girih.take_roots())
        except BaseException:
            for leaf, weak in zip(leaves, before, strict=True):
                value = weak.tensor()
                if value is not None:
                    assign(leaf, value)
            engine._restore()
            raise

    def _buffers(self) -> list[Tensor]:
        """The tensors of the models that are not computed yet."""
        roots = [root for ref in self._modules if (root := ref()) is not None]
        return [
            value
            for root in roots
            for _, module in submodules(root)
            for value in module.__dict__.values()
            if type(value) is Tensor and value.is_lazy
        ]

    def _restricted(self, state: dict[str, Any], names: Any) -> dict[str, Any]:
        """The part of a state that belongs to some of the parameters."""
        out = dict(state)
        for slot in self.slots:
            if len(state[slot]) != len(names):
                out[slot] = {name: state[slot][name] for name in names}
        return out

    def _merged(self, state: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """A state with what is new of a part of it."""
        out = dict(new)
        for slot in self.slots:
            out[slot] = {**state[slot], **new[slot]}
        return out

    def _update_held(self, target: PyTree, grads: PyTree) -> Any:
        """One step of the held parameters in functional form, which stays lazy."""
        name = type(self).__name__
        if not isinstance(target, Module):
            raise InvalidArgumentError(
                f"{name}.update: the optimiser holds parameters; give the model that they belong "
                "to, call step(), or use apply()"
            )
        where, _ = places_in(target)
        places, treedef = tree.flatten(where)
        known = {id(one.tensor()): one.name for one in self._held}
        by_name = {}
        for place, gradient in zip(
            places, gradients_like(name, treedef, where, grads), strict=True
        ):
            tensor = place.attributes[place.name]
            if id(tensor) not in known:
                raise InvalidArgumentError(
                    f"{name}.update: the optimiser does not hold the parameter {place.name} of "
                    f"{type(place.module).__name__}; add_param_group adds parameters"
                )
            if tensor.shape != gradient.shape:
                raise ShapeError(
                    f"{name}.update: parameter {known[id(tensor)]} has shape "
                    f"{list(tensor.shape)}, its gradient {list(gradient.shape)}"
                )
            by_name[known[id(tensor)]] = gradient
        self._make_step(by_name, now=False)
        return target


class _Among:
    """The filter of the parameters of one group."""

    __slots__ = ("_names",)

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __call__(self, name: str, _: Any) -> bool:
        return name in self._names


def called(closure: Callable[[], Any] | None) -> Any:
    """The result of a closure, in which gradients are recorded."""
    if closure is None:
        return None
    with enable_grad():
        return closure()
