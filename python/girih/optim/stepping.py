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

import inspect
import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import _girih, lazy, tree
from .._girih import Tensor, has_protocol
from ..checks import items
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ..names import dotted
from ..nn.alive import holders_of, module_of, outermost
from ..nn.freezing import clear, frozen_apart
from ..nn.module import Module
from ..nn.parameter import is_marked
from ..nn.places import places_in, put, submodules
from ..scopes import enable_grad, no_grad
from ..tracing import StateMadeError
from ..variables import assign, is_inexact, mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tree import PyTree
    from .base import Optimizer

__all__ = ["Held", "ParamGroup", "Parameters", "Stepping", "given"]

#: What an optimiser holds: a module, tensors, pairs of name and tensor, or groups as dicts.
Parameters: TypeAlias = Module | Iterable[Any]


def is_rate(value: Any) -> bool:
    """Whether the first argument of an optimiser is a learning rate, not parameters."""
    if isinstance(value, Tensor):
        return value.ndim == 0
    if isinstance(value, Module) or has_protocol(value, "__iter__"):
        return False
    return callable(value) or has_protocol(value, "__float__")


def given(
    optimizer: Any, params: Any, lr: Any, learning_rate: Any, default: float | None = None
) -> tuple[Any, Any]:
    """The parameters, or ``None``, and the learning rate among the arguments of an optimiser.

    Raises:
        InvalidArgumentError: There are two learning rates, or none.
        DTypeError: ``params`` is neither parameters nor a learning rate.
    """
    name = type(optimizer).__name__
    rates = [rate for rate in (lr, learning_rate) if rate is not None]
    if params is not None and is_rate(params):
        rates.insert(0, params)
        params = None
    if len(rates) > 1:
        raise InvalidArgumentError(
            f"{name}: got two learning rates, {rates[0]} and {rates[1]}; without parameters, the "
            f"options after the rate are given by name, as in {name}(0.1, weight_decay=0.01)"
        )
    if not rates and default is None:
        raise InvalidArgumentError(f"{name}: the learning rate is missing; give lr=")
    several = isinstance(params, Module) or has_protocol(params, "__iter__")
    array = isinstance(params, (str, bytes, Tensor)) or has_protocol(params, "__array_interface__")
    if params is not None and (not several or array):
        found = repr(params) if isinstance(params, str) else f"a {type(params).__name__}"
        shape = f" of shape {list(params.shape)}" if has_protocol(params, "shape") else ""
        raise DTypeError(
            f"{name}: params must be an iterable of tensors or dicts, a module, or the "
            f"learning_rate as a number or a function, got {found}{shape}"
        )
    return params, rates[0] if rates else default


class Held:
    """A parameter of an optimiser: its name, the tensor, and the attributes of modules that hold
    it, through which another tensor that is assigned there is found."""

    __slots__ = ("_places", "_tensor", "name")

    def __init__(
        self, name: str, tensor: Tensor, places: Iterable[tuple[Module, str]] = ()
    ) -> None:
        self.name = name
        self._tensor = tensor
        self._places = [(weakref.ref(module), key) for module, key in places]

    def __reduce__(self) -> Any:
        """A copy holds a copy of the tensor, in no module."""
        return Held, (self.name, self._tensor)

    def places(self) -> list[tuple[Module, str]]:
        """The attributes that hold the parameter."""
        found = [(ref(), key) for ref, key in self._places]
        return [(module, key) for module, key in found if module is not None]

    def tensor(self) -> Tensor:
        """The tensor that is the parameter now."""
        for module, key in self.places():
            found = module.__dict__.get(key)
            if type(found) is Tensor:
                self._tensor = found
                break
        return self._tensor

    def put(self, value: Tensor) -> None:
        """Gives the parameter another value."""
        places, old = self.places(), self.tensor()
        gradient = old.grad
        for module, key in places:
            put(module, key, value, new=True)
        if not places:
            assign(self._tensor, value)
        new = self.tensor()
        if new is not old:
            # While a function is traced, the module holds another tensor. The gradient is of the
            # function, and does not leave it.
            new.requires_grad_()
            new.grad, old.grad = gradient, None

    def mark(self) -> None:
        """Makes the parameter require a gradient, unless it is frozen."""
        tensor = self.tensor()
        if not tensor.requires_grad and not frozen_apart(self.places()):
            mark(tensor)


class ParamGroup(MutableMapping[str, Any]):
    """A group of an optimiser's parameters, as a dict: ``params``, ``lr``, and the other options.

    Options that are assigned hold from the next step on, without recompilation.
    """

    def __init__(self, optimizer: Optimizer, held: list[Held]) -> None:
        self._optimizer, self._held = optimizer, held
        #: Entries that are no options, such as ``name``.
        self._others: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key == "params":
            return [one.tensor() for one in self._held]
        if key == "lr":
            return self._optimizer.lr
        if key in _option_names(type(self._optimizer)):
            return getattr(self._optimizer, key)
        return self._others[key]

    def __setitem__(self, key: str, value: Any) -> None:
        options = options_of(self._optimizer)
        if key == "params":
            raise InvalidArgumentError(
                "param_groups: the parameters of a group are fixed; use add_param_group"
            )
        if key == "lr":
            self._optimizer.learning_rate = value
        elif key in options:
            # Another optimiser checks the value.
            made = type(self._optimizer)(1.0, **{**options, key: value})
            if made.slots != self._optimizer.slots:
                raise InvalidArgumentError(
                    f"param_groups: with {key}={value} the optimiser would have other state; make "
                    "another optimiser"
                )
            setattr(self._optimizer, key, getattr(made, key))
        else:
            self._others[key] = value

    def __delitem__(self, key: str) -> None:
        del self._others[key]

    def __iter__(self) -> Iterator[str]:
        return iter(("params", "lr", *options_of(self._optimizer), *self._others))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        shapes = [list(one.tensor().shape) for one in self._held]
        rest = {key: value for key, value in self.items() if key != "params"}
        return f"{{'params': tensors of shapes {shapes}, {str(rest)[1:]}"


#: The options of optimisers by their classes.
_options: dict[Any, tuple[str, ...]] = {}


def _option_names(cls: Any) -> tuple[str, ...]:
    found = _options.get(cls)
    if found is None:
        names = inspect.signature(cls).parameters
        found = tuple(name for name in names if name not in ("params", "lr", "learning_rate"))
        _options[cls] = found
    return found


def options_of(optimizer: Any) -> dict[str, Any]:
    """The options of an optimiser by name, without its learning rate."""
    names = _option_names(type(optimizer))
    return {name: getattr(optimizer, name) for name in names if hasattr(optimizer, name)}


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
    #: The modules whose buffers a step evaluates.
    _modules: list[weakref.ref[Module]]

    @property
    def _engine(self) -> Any:
        return self if self._grouped is None else self._grouped

    def _hold(self, params: Any) -> None:
        """Holds parameters from now on, which then require gradients."""
        self._held, self.param_groups, self._modules = [], [], []
        if params is None:
            return
        groups = _groups(type(self).__name__, params)
        names = _names([pair for pairs, _ in groups for pair in pairs], set())
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
            InvalidArgumentError: A parameter is in another group, or an option does not exist.

        Example:
            >>> import girih as gr
            >>> body, head = gr.nn.Linear(2, 2), gr.nn.Linear(2, 1)
            >>> optimizer = gr.optim.SGD(head.parameters(), lr=0.1)
            >>> optimizer.add_param_group({"params": body.parameters(), "lr": 0.01})
            >>> [group["lr"] for group in optimizer.param_groups]
            [0.1, 0.01]
        """
        self._check_held("add_param_group")
        ((pairs, options),) = _groups(type(self).__name__, [param_group])
        names = _names(pairs, {one.name for one in self._held})
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
        """Finds the modules that the parameters belong to, with all around them."""
        found: dict[int, Module] = {}
        for one in self._held:
            for holder, _ in one.places():
                if id(holder) not in found:
                    whole = outermost(holder)
                    found.update((id(module), module) for _, module in submodules(whole))
        self._modules = [weakref.ref(module) for module in found.values()]

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
        for one in self._held:
            one.mark()
        clear([one.tensor() for one in self._held], set_to_none)

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
        """The tensors of the model that are not computed yet."""
        found = []
        for ref in self._modules:
            module = ref()
            if module is not None:
                found += [
                    value
                    for value in module.__dict__.values()
                    if type(value) is Tensor and value.is_lazy
                ]
        return found

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


def gradients_like(name: str, treedef: tree.TreeDef, where: PyTree, grads: PyTree) -> list[Any]:
    """The gradients of a model's parameters, from a tree of their structure or a dict by dotted
    name."""
    leaves = tree.leaves_like(treedef, grads)
    if leaves is None and isinstance(grads, dict):
        names = [dotted(path) for path, _ in tree.flatten_with_path(where)]
        if len(names) == len(grads) and all(name in grads for name in names):
            leaves = [grads[name] for name in names]
    if leaves is None:
        raise InvalidArgumentError(
            f"{name}.update: parameters are {treedef}, gradients {tree.structure(grads)}"
        )
    for path, gradient in zip(tree.flatten_with_path(where), leaves, strict=True):
        if not isinstance(gradient, Tensor):
            raise DTypeError(
                f"{name}.update: the gradient of {dotted(path[0])} is {_described(gradient)}, "
                "which is no tensor"
            )
    return leaves


class _Among:
    """The filter of the parameters of one group."""

    __slots__ = ("_names",)

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def __call__(self, name: str, _: Any) -> bool:
        return name in self._names


def called(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with enable_grad():
        return closure()


def _groups(name: str, params: Any) -> list[tuple[list[tuple[str | None, Tensor]], dict[str, Any]]]:
    """The groups of parameters, each with the options given for it."""
    if isinstance(params, Module):
        params = params.named_parameters()
    given = items(params)
    if not given:
        raise InvalidArgumentError(
            f"{name}: there are no parameters; those of a module require gradients only once an "
            "optimiser holds them, so select them with model.trainable_parameters()"
        )
    if not any(isinstance(one, dict) for one in given):
        return [(_pairs(name, given), {})]
    out = []
    for group in given:
        if not isinstance(group, dict) or "params" not in group:
            raise InvalidArgumentError(
                f"{name}: expected groups {{'params': tensors, ...}}, got {_described(group)}"
            )
        held = group["params"]
        if isinstance(held, Module):
            held = held.named_parameters()
        held = [held] if isinstance(held, Tensor) else items(held)
        out.append((_pairs(name, held), {k: v for k, v in group.items() if k != "params"}))
    return out


def _described(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}"
    return f"a {type(value).__name__}"


def _pairs(name: str, values: list[Any]) -> list[tuple[str | None, Tensor]]:
    """Tensors with their names, if they have any; each tensor once."""
    found: dict[int, tuple[str | None, Tensor]] = {}
    for value in values:
        label, tensor = value if isinstance(value, tuple) and len(value) == 2 else (None, value)
        if is_marked(tensor):
            raise InvalidArgumentError(
                f"{name}: a Parameter that no module holds yet; assign it to an attribute of a "
                "module, or give a tensor"
            )
        if not isinstance(tensor, Tensor) or not (label is None or isinstance(label, str)):
            raise DTypeError(f"{name}: expected tensors as parameters, got {_described(value)}")
        if not is_inexact(tensor):
            raise DTypeError(
                f"{name}: a parameter of dtype {tensor.dtype.name} cannot be trained; expected a "
                "float"
            )
        if not tensor.is_leaf:
            raise InvalidArgumentError(
                f"{name}: a tensor of shape {list(tensor.shape)} is a result of tensors that "
                "require gradients; give those, or detach it"
            )
        found.setdefault(id(tensor), (label, tensor))
    return list(found.values())


def _names(pairs: list[Any], taken: set[str]) -> dict[int, str]:
    """A name for each tensor, by its id: as given, or its name in the module that has them all, or
    its number."""
    names = {id(tensor): name for name, tensor in pairs if name is not None}
    if len(names) < len(pairs):
        module = module_of(tensor for _, tensor in pairs)
        known = {id(t): n for n, t in module.named_parameters()} if module is not None else {}
        for i, (_, tensor) in enumerate(pairs, len(taken)):
            names.setdefault(id(tensor), known.get(id(tensor), str(i)))
    if len(set(names.values()) - taken) < len(names):
        # Several models, or several groups: numbers tell all parameters apart.
        names = {id(tensor): str(i) for i, (_, tensor) in enumerate(pairs, len(taken))}
        while set(names.values()) & taken:
            names = {key: f"{name}'" for key, name in names.items()}
    return names
