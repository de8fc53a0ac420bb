"""Modules: objects that hold parameters, and the way between them and pytrees.

A module's parameters are the tensors assigned to its attributes through :func:`Parameter`, and
those of the modules it holds, directly or in lists, tuples and dicts. Other tensors it holds are
buffers: saved with it, not trained.
"""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any, cast

from .. import _girih, transforms, tree
from .._girih import Tensor, asarray
from ..errors import InvalidArgumentError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from .._girih import DType

__all__ = ["Module", "Parameter", "functional_call", "value_and_grad"]

_NAMES = "_parameter_names"
_SCOPE = "_scope_name"


def apply(function: str, *args: Any, **options: Any) -> Tensor:
    """Calls a function of the extension by its name."""
    result: Tensor = getattr(_girih, function)(*args, **options)
    return result


def _name_scopes(name: str, value: Any) -> None:
    """Names the scope of a module that is held under that name, or of those in a container."""
    if isinstance(value, Module):
        value.name_scope(name)
    elif isinstance(value, (list, tuple)):
        for i, held in enumerate(value):
            _name_scopes(f"{name}.{i}", held)
    elif isinstance(value, dict):
        for key, held in value.items():
            _name_scopes(f"{name}.{key}", held)


#: All modules, as long as they live: they need not be hashable.
_alive: weakref.WeakValueDictionary[int, Module] = weakref.WeakValueDictionary()


def parameters_alive() -> list[tuple[str, Tensor]]:
    """The parameters of all modules, each under the longest name that it has in any of them.

    That is its name in the outermost module, which files of graphs call it by.
    """
    names: dict[int, tuple[str, Tensor]] = {}
    for module in list(_alive.values()):
        for name, tensor in module.named_parameters():
            if len(name) > len(names.get(id(tensor), ("", None))[0]):
                names[id(tensor)] = (name, tensor)
    return list(names.values())


class _Parameter:
    """A tensor on its way to becoming a module's parameter."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def Parameter(value: Any) -> Tensor:  # noqa: N802 - reads as a class where it is used
    """Marks a tensor as trainable: ``self.weight = Parameter(gr.zeros([3]))``.

    To be assigned to an attribute of a :class:`Module`, which from then on holds the plain
    tensor. Assigning another tensor to the attribute later keeps it a parameter. A list or dict of
    parameters becomes a :class:`ParameterList` or :class:`ParameterDict`.
    """
    if isinstance(value, _Parameter):
        return cast("Tensor", value)
    return cast("Tensor", _Parameter(value if isinstance(value, Tensor) else asarray(value)))


def _gathered(owner: str, value: Any) -> Any:
    """A list, tuple or dict of parameters as the module that holds such; others as they are."""
    held = list(value.values() if isinstance(value, dict) else value)
    found = [isinstance(v, _Parameter) for v in held]
    if not any(found):
        return value
    if not all(found):
        other = type(held[found.index(False)]).__name__
        raise InvalidArgumentError(
            f"{owner}: parameters and others (here {other}) in one {type(value).__name__}; give "
            "parameters an attribute each, or a list of their own"
        )
    from .containers import ParameterDict, ParameterList

    return ParameterDict(value) if isinstance(value, dict) else ParameterList(value)


class Module:
    """Base of everything that holds parameters. Subclasses define ``forward``.

    Calling the module calls ``forward``. A module held in two places is one module: its
    parameters appear once in its trees and get one gradient, the sum over its uses.

    Example:
        >>> import girih as gr
        >>> class Scale(gr.nn.Module):
        ...     def __init__(self, size):
        ...         self.factor = gr.nn.Parameter(gr.ones([size]))
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> Scale(2)(gr.asarray([1.0, 2.0])).tolist()
        [1.0, 2.0]
    """

    training: bool = True

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Notes the module, so that graphs that leave the process know its parameters."""
        module = super().__new__(cls)
        _alive[id(module)] = module
        return module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls ``forward``, in a scope (:func:`girih.named_scope`) of the module's name."""
        outer = _girih.enter_named_scope(self.__dict__.get(_SCOPE) or type(self).__name__)
        try:
            return self.forward(*args, **kwargs)
        finally:
            _girih.leave_named_scope(outer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__qualname__} does not define forward")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, _Parameter):
            self.__dict__.setdefault(_NAMES, set()).add(name)
            value = value.tensor
        elif isinstance(value, (list, tuple, dict)):
            value = _gathered(f"{type(self).__qualname__}.{name}", value)
        _name_scopes(name, value)
        object.__setattr__(self, name, value)

    def name_scope(self, name: str) -> None:
        """Names the scope of the module's calls, unless it has a name; who holds it does so."""
        self.__dict__.setdefault(_SCOPE, name)

    def __delattr__(self, name: str) -> None:
        self.__dict__.get(_NAMES, set()).discard(name)
        object.__delattr__(self, name)

    # Trees.

    def parameters_tree(self) -> dict[str, Any]:
        """The parameters as nested dicts and lists, by attribute name.

        Example:
            >>> import girih as gr
            >>> gr.tree.map(lambda t: t.shape, gr.nn.Linear(3, 2).parameters_tree())
            {'weight': (2, 3), 'bias': (2,)}
        """
        return _state(self, parameters=True, seen=set())

    def buffers_tree(self) -> dict[str, Any]:
        """The tensors that are no parameters, in the form of :meth:`parameters_tree`."""
        return _state(self, parameters=False, seen=set())

    def update(self, values: Mapping[str, Any]) -> Self:
        """Replaces tensors by those of a tree in the form of :meth:`parameters_tree`.

        The tree may name fewer tensors than the module has.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: The tree names something the module does not have.
            ShapeError: A tensor has another shape than the one it replaces.
        """
        for holder, name, tensor in _assignments(self, values, type(self).__qualname__):
            holder.__dict__[name] = tensor
        return self

    # Flat access.

    def parameters(self) -> list[Tensor]:
        """The parameters, in the order of :meth:`named_parameters`."""
        return [tensor for _, tensor in self.named_parameters()]

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """The parameters with their dotted names, in order of definition."""
        return list(_named(self.parameters_tree()))

    def num_parameters(self) -> int:
        """Number of trainable scalars."""
        return sum(tensor.size for tensor in self.parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers by dotted name."""
        return {**dict(self.named_parameters()), **dict(_named(self.buffers_tree()))}

    def load_state_dict(self, values: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Replaces parameters and buffers by those of a :meth:`state_dict`.

        Args:
            values: Tensors by dotted name.
            strict: Whether every tensor of the module must be named, and nothing else.

        Raises:
            InvalidArgumentError: With ``strict``, names are missing or unexpected; all are listed.
            ShapeError: A tensor has another shape than the one it replaces. Nothing is replaced.
        """
        own = self.state_dict()
        missing = sorted(own.keys() - values.keys())
        unexpected = sorted(values.keys() - own.keys())
        if strict and (missing or unexpected):
            raise InvalidArgumentError(
                f"{type(self).__qualname__}.load_state_dict: missing {missing}, "
                f"unexpected {unexpected}"
            )
        kept = {name: values[name] for name in own if name in values}
        for name, tensor in kept.items():
            _check_shape(name, own[name], tensor)
        locations = dict(_locations(self, set()))
        for name, tensor in kept.items():
            holder, attribute = locations[name]
            holder.__dict__[attribute] = tensor
        return self

    def modules(self) -> list[Module]:
        """This module and all it holds, each once, outermost first."""
        found: list[Module] = []
        pending: list[Any] = [self]
        seen: set[int] = set()
        while pending:
            value = pending.pop()
            if isinstance(value, Module):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                found.append(value)
            pending.extend(reversed(_held(value)))
        return found

    # Modes and dtypes.

    def train(self, mode: bool = True) -> Self:
        """Sets training mode (dropout is active) on this module and all it holds."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Sets evaluation mode; computes nothing (see :func:`girih.eval` for that)."""
        return self.train(False)

    def astype(self, dtype: DType) -> Self:
        """Casts all floating-point parameters and buffers."""

        def cast_floats(tensor: Tensor) -> Tensor:
            return tensor.astype(dtype) if "float" in tensor.dtype.name else tensor

        self.update(tree.map(cast_floats, self.parameters_tree()))
        return self.update(tree.map(cast_floats, self.buffers_tree()))

    def extra_repr(self) -> str:
        """What ``repr`` shows between the parentheses before modules it holds.

        By default the arguments of the constructor that the module has attributes of the same name
        for, as far as they are plain values: numbers, strings, tuples of these. A layer's tensors
        show as whether they are there.
        """
        return ", ".join(_arguments(self))

    def __repr__(self) -> str:
        own = self.extra_repr()
        lines = [own] if own else []
        for name, value in vars(self).items():
            if isinstance(value, Module):
                lines.append(f"{name}: {value!r}")
            elif _held(value):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                lines += [f"{name}[{k!r}]: {v!r}" for k, v in items if isinstance(v, Module)]
        name = type(self).__qualname__
        if not any("\n" in line or ": " in line for line in lines):
            return f"{name}({', '.join(lines)})"
        body = "\n".join(lines).replace("\n", "\n  ")
        return f"{name}(\n  {body}\n)"


def _arguments(module: Module) -> list[str]:
    """The constructor's arguments that a module shows as its own."""
    out = []
    for name, parameter in inspect.signature(type(module)).parameters.items():
        if name == "dtype":
            held = [v.dtype.name for v in vars(module).values() if isinstance(v, Tensor)]
            out += [f"dtype={held[0]}"] if held[:1] not in ([], ["float32"]) else []
        if name not in vars(module):
            continue
        value = vars(module)[name]
        if isinstance(parameter.default, bool) and not isinstance(value, bool):
            value = value is not None
        if value is None or isinstance(value, (bool, int, float, complex, str, tuple, list)):
            if not _has_modules(value):
                out.append(f"{name}={value!r}")
        elif isinstance(value, Tensor):
            out.append(f"{name}=tensor{list(value.shape)}")
    return out


def _held(value: Any) -> list[Any]:
    """The modules, and containers that may hold modules, inside one value."""
    if isinstance(value, Module):
        inside = list(vars(value).values())
    elif isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, (list, tuple)):
        inside = list(value)
    else:
        return []
    return [v for v in inside if isinstance(v, (Module, list, tuple, dict))]


def _has_modules(value: Any) -> bool:
    if isinstance(value, Module):
        return True
    if not isinstance(value, (list, tuple, dict)):
        return False
    for inner in value.values() if isinstance(value, dict) else value:
        if _has_modules(inner):
            return True
    return False


class Place:
    """Where a tensor is held: the attributes of a module, and which of them it is."""

    __slots__ = ("attributes", "name")

    def __init__(self, attributes: dict[str, Any], name: str) -> None:
        self.attributes = attributes
        self.name = name


def places_in(module: Module) -> tuple[dict[str, Any], list[Place]]:
    """A tree like that of the parameters, of where they are held, and where the buffers are.

    Found once, places serve to read and replace all tensors any number of times.
    """
    buffers: list[Place] = []
    return _state(module, True, set(), buffers), buffers


def read(places: list[Place]) -> list[Tensor]:
    """The tensors held there."""
    return [place.attributes[place.name] for place in places]


def write(places: list[Place], tensors: list[Tensor]) -> None:
    """Replaces the tensors held there, without checks."""
    for place, tensor in zip(places, tensors, strict=True):
        place.attributes[place.name] = tensor


def _state(
    module: Module, parameters: bool, seen: set[int], others: list[Place] | None = None
) -> dict[str, Any]:
    """A module's parameters, or its buffers, as a tree; nothing of modules seen before.

    With ``others`` the leaves are the places of the tensors, and those of the other kind go there.
    """
    if id(module) in seen:
        return {}
    seen.add(id(module))
    attributes = module.__dict__
    names = attributes.get(_NAMES, ())
    out: dict[str, Any] = {}
    for name, value in attributes.items():
        if type(value) is Tensor:
            if (name in names) == parameters:
                out[name] = value if others is None else Place(attributes, name)
            elif others is not None:
                others.append(Place(attributes, name))
        elif _has_modules(value):
            out[name] = _container_state(value, parameters, seen, others)
    return out


def _container_state(
    value: Any, parameters: bool, seen: set[int], others: list[Place] | None
) -> Any:
    if isinstance(value, Module):
        return _state(value, parameters, seen, others)
    if isinstance(value, dict):
        return {k: _container_state(v, parameters, seen, others) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_container_state(v, parameters, seen, others) for v in value]
    return None


def _named(state: Any, prefix: str = "") -> Any:
    """Pairs of dotted name and tensor."""
    if isinstance(state, Tensor):
        yield prefix, state
        return
    items = state.items() if isinstance(state, dict) else enumerate(state or ())
    for key, value in items:
        yield from _named(value, f"{prefix}.{key}" if prefix else str(key))


def _locations(value: Any, seen: set[int], prefix: str = "") -> Any:
    """Pairs of dotted name and (module, attribute) that holds the tensor."""
    if isinstance(value, Module):
        if id(value) in seen:
            return
        seen.add(id(value))
    items: Any = ()
    if isinstance(value, Module):
        items = vars(value).items()
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    for key, inner in items:
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(inner, Tensor):
            if isinstance(value, Module):
                yield name, (value, key)
        else:
            yield from _locations(inner, seen, name)


def _check_shape(name: str, old: Tensor, new: Tensor) -> None:
    if not isinstance(new, Tensor):
        raise InvalidArgumentError(f"{name}: expected a tensor, got {type(new).__name__}")
    if new.shape != old.shape:
        raise ShapeError(
            f"{name}: cannot replace a tensor of shape {list(old.shape)} by one of shape "
            f"{list(new.shape)}"
        )


def _assignments(holder: Any, values: Any, path: str) -> list[tuple[Module, str, Tensor]]:
    """What to assign where, all checked before anything is changed."""
    out: list[tuple[Module, str, Tensor]] = []
    if values is None:
        return out
    items: Any = values.items() if hasattr(values, "items") else enumerate(values)
    for key, new in items:
        name = f"{path}.{key}"
        try:
            old = vars(holder)[key] if isinstance(holder, Module) else holder[key]
        except (KeyError, IndexError, TypeError):
            raise InvalidArgumentError(f"{name}: the module has no such tensor or module") from None
        if isinstance(old, Tensor):
            _check_shape(name, old, new)
            out.append((holder, key, new))
        else:
            out += _assignments(old, new, name)
    return out


def functional_call(
    module: Module, parameters: Mapping[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls a module as if it had other parameters; the module is as before afterwards.

    Args:
        module: The module.
        parameters: A tree in the form of :meth:`Module.parameters_tree`.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Linear(2, 1)
        >>> loss = lambda p, x: gr.nn.functional_call(model, p, x).sum()
        >>> grads = gr.grad(loss)(model.parameters_tree(), gr.ones([3, 2]))
        >>> grads["bias"].tolist()
        [3.0]
    """
    changes = _assignments(module, parameters, type(module).__qualname__)
    before = [(holder, name, holder.__dict__[name]) for holder, name, _ in changes]
    try:
        for holder, name, tensor in changes:
            holder.__dict__[name] = tensor
        return module(*args, **kwargs)
    finally:
        for holder, name, tensor in before:
            holder.__dict__[name] = tensor


def value_and_grad(
    model: Module, fun: Callable[..., Any], has_aux: bool = False
) -> Callable[..., Any]:
    """Like :func:`girih.value_and_grad`, with respect to a model's parameters.

    Args:
        model: The model ``fun`` uses, usually by closing over it.
        fun: Returns a floating-point scalar tensor, or with ``has_aux`` a pair with an auxiliary
            pytree. Buffers that the model changes meanwhile stay changed.
        has_aux: Whether ``fun`` also returns an auxiliary pytree.

    Returns:
        A function of ``fun``'s arguments that returns ``(value, grads)``, or ``((value, aux),
        grads)``; ``grads`` has the form of ``model.parameters_tree()``, which is what
        ``optimizer.update(model, grads)`` takes.

    Example:
        >>> import girih as gr
        >>> model = gr.nn.Linear(2, 1)
        >>> step = gr.nn.value_and_grad(model, lambda x: model(x).sum())
        >>> value, grads = step(gr.ones([3, 2]))
        >>> grads["bias"].tolist()
        [3.0]
    """

    name = getattr(fun, "__name__", type(fun).__name__)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        where, buffers = places_in(model)
        places, treedef = tree.flatten(where)
        parameters, buffered = read(places), read(buffers)
        made: list[Place] = []

        def with_parameters(stand_ins: list[Tensor]) -> tuple[Any, Any]:
            nonlocal made
            write(places, stand_ins)
            result = fun(*args, **kwargs)
            value, aux = _pair(result) if has_aux else (result, None)
            # Buffers assigned while tracing are made of placeholders; the transform resolves them.
            _, made = places_in(model)
            return value, (aux, read(made))

        try:
            variables = transforms.as_variables(parameters, where, 0, name)
            value, grads, (aux, resolved) = transforms.differentiate(
                with_parameters, variables, name, has_aux=True
            )
            buffers, buffered = made, resolved
        finally:
            write(places, parameters)
            write(buffers, buffered)
        grads = tree.unflatten(treedef, grads)
        return ((value, aux), grads) if has_aux else (value, grads)

    return wrapped


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise InvalidArgumentError(
            "nn.value_and_grad: with has_aux=True the function must return (value, aux)"
        )
    return result


def _rebuild(_data: Any, _children: Any) -> Module:
    raise InvalidArgumentError(
        "a module cannot be rebuilt from its tensors; pass model.parameters_tree() instead, or use "
        "nn.value_and_grad(model, fun)"
    )


# What lets gr.eval(model, optimizer.state) and tree.leaves(model) see a model's tensors.
tree.register(
    Module, lambda m: ((m.parameters_tree(), m.buffers_tree()), None), _rebuild, subclasses=True
)
