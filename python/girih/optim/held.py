"""What optimisers hold: parameters by name, and groups of them with options.

The arguments of optimisers are read here: parameters in all forms that PyTorch takes, or a learning
rate for functional use.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import tree
from .._girih import Tensor, has_protocol
from ..checks import explain_methods, items
from ..errors import DTypeError, InvalidArgumentError, MissingNameError
from ..names import dotted
from ..nn.alive import module_of
from ..nn.freezing import frozen_apart
from ..nn.module import Module
from ..nn.parameter import is_marked
from ..nn.places import put
from ..variables import assign, is_inexact, mark

if TYPE_CHECKING:
    from ..tree import PyTree
    from .base import Optimizer

__all__ = [
    "Held",
    "ParamGroup",
    "Parameters",
    "given",
    "gradients_like",
    "groups_of",
    "names_of",
    "options_of",
]

#: What an optimiser holds: a module, tensors, pairs of name and tensor, or groups as dicts.
Parameters: TypeAlias = Module | Iterable[Any]


def is_rate(value: Any) -> bool:
    """Whether the first argument of an optimiser is a learning rate, not parameters."""
    if isinstance(value, Tensor):
        return value.ndim == 0
    if isinstance(value, Module) or has_protocol(value, "__iter__"):
        return False
    return callable(value) or has_protocol(value, "__float__")


def rate_first(init: Any, order: tuple[str, ...] | None) -> Any:
    """The constructor of an optimiser that also takes the options after the rate, in functional
    use: ``SGD(0.1, 0.9)`` is ``SGD(None, 0.1, 0.9)``. They have this order, or that of the
    constructor."""

    @functools.wraps(init)
    def constructor(self: Any, params: Any = None, *args: Any, **kwargs: Any) -> None:
        if not args or args[0] is None or not is_rate(params):
            init(self, params, *args, **kwargs)
        elif order is None or len(args) > len(order):
            init(self, None, params, *args, **kwargs)
        else:
            named = dict(zip(order, args, strict=False))
            if twice := named.keys() & kwargs:
                name = type(self).__name__
                raise TypeError(f"{name} got several values for {', '.join(sorted(twice))}")
            init(self, None, params, **named, **kwargs)

    return constructor


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
            f"{name}: got two learning rates, {rates[0]} and {rates[1]}; give one"
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
        for ref, key in self._places:
            module = ref()
            found = None if module is None else module.__dict__.get(key)
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


@explain_methods
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
        if key not in self._others:
            raise MissingNameError(f"param_groups: there is no {key!r}; there are {list(self)}")
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
        if key not in self._others:
            raise MissingNameError(
                f"param_groups: {key!r} cannot be deleted, only {list(self._others)}"
            )
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


def groups_of(
    name: str, params: Any
) -> list[tuple[list[tuple[str | None, Tensor]], dict[str, Any]]]:
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


def names_of(pairs: list[Any], taken: set[str]) -> dict[int, str]:
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
