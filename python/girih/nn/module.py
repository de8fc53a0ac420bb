"""Modules: objects that hold parameters, and conversions between modules and pytrees.

The parameters of a module are the tensors assigned to its attributes through :func:`Parameter`, and
the parameters of its submodules, which it holds directly or in lists, tuples and dicts. Its other
tensors are buffers: they are saved with the module and not trained.
"""

from __future__ import annotations

import inspect
import weakref
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, cast

from .. import _girih, tree
from .._girih import Tensor, asarray, has_protocol
from ..checks import FAILURES, check_constructor, explain
from ..errors import DTypeError, InvalidArgumentError
from ..rollback import remember
from ..state import announce, made
from .compiled_in_place import CompiledInPlace
from .places import PARAMETER_NAMES, Place, Walk, check_shape, named, with_aliases
from .precision import casting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from .._girih import DType
    from ..signatures import Forwards, P, R

__all__ = ["Module", "Parameter"]

_SCOPE = "_scope_name"
#: The number of calls that froze or unfroze parameters; compiled functions compare it.
_freezes = 0


def apply(function: str, *args: Any, **options: Any) -> Tensor:
    """Calls a function of the extension by name."""
    result: Tensor = getattr(_girih, function)(*args, **options)
    return result


def one_axis(name: str, axis: int | None, dim: int | None, default: int) -> int:
    """The axis of a layer, from ``axis`` or its other spelling ``dim``."""
    if axis is not None and dim is not None and axis != dim:
        raise InvalidArgumentError(
            f"{name}: axis and dim are two spellings of one argument, got {axis} and {dim}"
        )
    given = dim if axis is None else axis
    return default if given is None else given


def _name_scopes(name: str, value: Any) -> None:
    """Sets the scope name of a module, or of the modules in a container, to the attribute name."""
    if isinstance(value, Module):
        value.name_scope(name)
    elif isinstance(value, (list, tuple)):
        for i, held in enumerate(value):
            _name_scopes(f"{name}.{i}", held)
    elif isinstance(value, dict):
        for key, held in value.items():
            _name_scopes(f"{name}.{key}", held)


#: All live modules, which need not be hashable.
_alive: weakref.WeakValueDictionary[int, Module] = weakref.WeakValueDictionary()


def parameters_alive() -> list[tuple[str, Tensor]]:
    """The parameters of all modules, each under its longest name in any module.

    This is the name in the outermost module, which files of graphs use.
    """
    names: dict[int, tuple[str, Tensor]] = {}
    for module in list(_alive.values()):
        for name, tensor in module.named_parameters():
            if len(name) > len(names.get(id(tensor), ("", None))[0]):
                names[id(tensor)] = (name, tensor)
    return list(names.values())


class _Parameter:
    """A tensor that is marked to become a parameter of a module."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def Parameter(value: Any) -> Tensor:  # noqa: N802 - reads as a class where it is used
    """Marks a tensor as trainable: ``self.weight = Parameter(gr.zeros([3]))``.

    Assign the result to an attribute of a :class:`Module`, which then holds the plain tensor. The
    attribute remains a parameter when another tensor is assigned to it later. A list or dict of
    parameters becomes a :class:`ParameterList` or :class:`ParameterDict`.
    """
    if isinstance(value, _Parameter):
        return cast("Tensor", value)
    # A separate handle: parameters are tied only if one was assigned to the attribute of the other.
    return cast("Tensor", _Parameter(copy(value) if isinstance(value, Tensor) else asarray(value)))


def _gathered(owner: str, value: Any) -> Any:
    """Converts a list, tuple or dict of parameters to a container module; returns other values
    unchanged."""
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


class Module(CompiledInPlace):
    """Base class of objects that hold parameters. Subclasses define ``forward``.

    Calling the module calls ``forward``. A module held in two places is one module: its parameters
    appear once in trees and get one gradient, the sum over all uses. The same holds for a tied
    parameter of two modules, ``head.weight = embedding.weight``: trees have it at its first place,
    and replacing it there (by an optimiser, :meth:`update`, :meth:`load_state_dict`) replaces it in
    both places. ``state_dict`` has it under both names.

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
    #: The precision of the module under :func:`girih.amp.autocast`: ``"half"``, ``"full"`` for
    #: float32, or ``None`` for the precision of its arguments.
    precision: ClassVar[str | None] = None
    #: Names of parameters that are not trained.
    _frozen: frozenset[str] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The constructors of this package's modules check their arguments."""
        super().__init_subclass__(**kwargs)
        check_constructor(cls)

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Registers the module, so that files of graphs know the names of its parameters."""
        module = super().__new__(cls)
        made(module)
        _alive[id(module)] = module
        return module

    def __call__(self: Forwards[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls ``forward``, in a scope (:func:`girih.named_scope`) of the module's name."""
        module: Any = self
        announce(module)
        outer = _girih.enter_named_scope(module.__dict__.get(_SCOPE) or type(module).__name__)
        try:
            forward: Callable[P, R] = module.compiled_forward or module.forward
            if _girih.autocast_dtype() is not None:
                names = module.__dict__.get(PARAMETER_NAMES, ())
                result: R = casting(module, names, forward, args, kwargs)
                return result
            return forward(*args, **kwargs)
        except FAILURES as error:
            # A value that is no tensor fails at the first attribute that it lacks.
            if type(module).__module__.startswith("girih"):
                explain(error, type(module).__name__, type(module).forward, (module, *args), kwargs)
            raise
        finally:
            _girih.leave_named_scope(outer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of the module; subclasses define it."""
        raise NotImplementedError(f"{type(self).__qualname__} does not define forward")

    def __setattr__(self, name: str, value: Any) -> None:
        announce(self)
        if isinstance(value, _Parameter):
            self.__dict__.setdefault(PARAMETER_NAMES, set()).add(name)
            value = value.tensor
        elif isinstance(value, (list, tuple, dict)):
            value = _gathered(f"{type(self).__qualname__}.{name}", value)
        elif type(value) is Tensor:
            remember(self, name, self.__dict__.get(name), value)
        _name_scopes(name, value)
        object.__setattr__(self, name, value)

    def name_scope(self, name: str) -> None:
        """Sets the scope name of the module's calls if it has none. The owner of the module calls
        this method."""
        self.__dict__.setdefault(_SCOPE, name)

    def __delattr__(self, name: str) -> None:
        announce(self)
        self.__dict__.get(PARAMETER_NAMES, set()).discard(name)
        object.__delattr__(self, name)

    # Trees.

    def parameters_tree(self) -> dict[str, Any]:
        """The parameters as nested dicts and lists, by attribute name.

        Example:
            >>> import girih as gr
            >>> gr.tree.map(lambda t: t.shape, gr.nn.Linear(3, 2).parameters_tree())
            {'weight': (2, 3), 'bias': (2,)}
        """
        return _tree_of(Walk(True), self)

    def buffers_tree(self) -> dict[str, Any]:
        """The tensors that are not parameters, in the form of :meth:`parameters_tree`."""
        walk = Walk(False)
        walk.met = {id(tensor): None for tensor in self.parameters()}
        return _tree_of(walk, self)

    def update(self, values: Mapping[str, Any]) -> Self:
        """Replaces tensors by those of a tree in the form of :meth:`parameters_tree`.

        The tree may name fewer tensors than the module has.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: The tree has a name that the module does not have.
            ShapeError: A tensor has another shape than the tensor it replaces.
        """
        for holder, name, tensor in _changes(self, values):
            announce(holder)
            holder.__dict__[name] = tensor
        return self

    # Flat access.

    def parameters(self, trained: bool = False) -> list[Tensor]:
        """The parameters, in the order of :meth:`named_parameters`."""
        return [tensor for _, tensor in self.named_parameters(trained)]

    def named_parameters(self, trained: bool = False) -> list[tuple[str, Tensor]]:
        """The parameters with their dotted names, in order of definition.

        Args:
            trained: Whether to leave out frozen parameters.
        """
        walk = Walk(True)
        walk.trained = trained
        return list(named(_tree_of(walk, self)))

    def num_parameters(self) -> int:
        """The number of trainable scalars."""
        return sum(tensor.size for tensor in self.parameters())

    def state_dict(self, style: str = "girih") -> dict[str, Tensor]:
        """Parameters and buffers by dotted name.

        Args:
            style: The naming convention: ``"girih"``, or ``"torch"`` for files that PyTorch reads.
                The names differ for attention, whose projections PyTorch packs into one matrix, and
                for the weights of :func:`weight_norm` and :func:`spectral_norm`.

        Raises:
            InvalidArgumentError: The style is unknown.

        Example:
            >>> import girih as gr
            >>> layer = gr.nn.MultiheadAttention(4, 2, bias=False)
            >>> {name: t.shape for name, t in layer.state_dict("torch").items()}
            {'out_proj.weight': (4, 4), 'in_proj_weight': (12, 4)}
        """
        if style not in ("girih", "torch"):
            raise InvalidArgumentError(
                f"{type(self).__qualname__}.state_dict: style is 'girih' or 'torch', got {style!r}"
            )
        found: dict[str, Tensor] = {}
        for parameters in (True, False):
            walk = Walk(parameters)
            walk.met = None
            found.update(named(_tree_of(walk, self)))
        if style == "torch":
            from .torch_names import to_torch

            return to_torch(self, found)
        return found

    def load_state_dict(
        self, values: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> Self:
        """Replaces parameters and buffers by those of a :meth:`state_dict`.

        As in PyTorch, the values are cast to the dtypes of the module's tensors and moved to their
        devices, and parameters keep ``requires_grad``. Of a tied parameter's names, one suffices.

        Args:
            values: Tensors by dotted name, with the names of this package or of PyTorch.
            strict: Whether the names must be exactly those of the module's tensors.
            assign: Whether to take the tensors as they are, with their dtypes and devices.

        Raises:
            InvalidArgumentError: With ``strict``, names are missing or unexpected; all are listed.
                Or a tied parameter has different values under its names.
            ShapeError: A tensor has another shape than the tensor it replaces. Nothing is replaced.
            DTypeError: A cast would drop imaginary parts or fractions. Nothing is replaced.
        """
        from .loading import check_state, load
        from .torch_names import from_torch

        check_state(values, type(self).__qualname__)
        values = from_torch(self, dict(values))
        load(self, values, dict(_locations(self, set())), strict, assign)
        return self

    def modules(self) -> list[Module]:
        """This module and all its submodules, each once, outermost first."""
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
        """Sets training mode (dropout is active) on this module and all its submodules."""
        for module in self.modules():
            module.training = mode
        return self

    def freeze(self, *names: str, recurse: bool = True) -> Self:
        """Freezes parameters: they get no gradient, and optimisers do not update them.

        In all other respects they stay parameters. An optimiser that has state for them must be
        initialised again with :meth:`~girih.optim.Optimizer.init`.

        Args:
            names: Names of the module's own parameters, and with ``recurse`` of the parameters of
                its submodules; without names, all of them. The dotted names of
                :meth:`named_parameters` work too.
            recurse: Whether to include submodules.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: There is no such parameter.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Sequential(gr.nn.Linear(2, 2), gr.nn.Linear(2, 1))
            >>> _ = model[0].freeze()
            >>> [name for name, _ in model.named_parameters(trained=True)]
            ['1.weight', '1.bias']
        """
        return self._set_frozen(names, recurse, True)

    def unfreeze(self, *names: str, recurse: bool = True) -> Self:
        """Makes frozen parameters trainable again; see :meth:`freeze`."""
        return self._set_frozen(names, recurse, False)

    def _set_frozen(self, names: tuple[str, ...], recurse: bool, frozen: bool) -> Self:
        changes: dict[int, tuple[Module, set[str]]] = {}
        known = set()
        for dotted, (holder, name) in _locations(self, set()):
            if name not in holder.__dict__.get(PARAMETER_NAMES, ()) or not (
                recurse or holder is self
            ):
                continue
            for wanted in {dotted, name}.intersection(names) if names else {name}:
                known.add(wanted)
                changes.setdefault(id(holder), (holder, set()))[1].add(name)
        if missing := sorted(set(names) - known):
            raise InvalidArgumentError(
                f"{type(self).__qualname__}: there are no parameters {', '.join(missing)}; there "
                f"are {', '.join(name for name, _ in self.named_parameters())}"
            )
        for holder, chosen in changes.values():
            holder._frozen = holder._frozen | chosen if frozen else holder._frozen - chosen
        global _freezes
        _freezes += 1
        return self

    def eval(self) -> Self:
        """Sets evaluation mode. To evaluate tensors, use :func:`girih.eval`."""
        return self.train(False)

    def astype(self, dtype: DType) -> Self:
        """Casts all floating-point parameters and buffers."""

        def cast_floats(tensor: Tensor) -> Tensor:
            return tensor.astype(dtype) if "float" in tensor.dtype.name else tensor

        self.update(tree.map(cast_floats, self.parameters_tree()))
        return self.update(tree.map(cast_floats, self.buffers_tree()))

    def to(self, target: Any) -> Self:
        """Moves parameters and buffers to a device, or casts floating-point ones to a dtype.

        Args:
            target: A device or its name, or a dtype.

        Returns:
            The module.

        Raises:
            DeviceError: The target is neither a dtype nor a device.
        """
        try:
            dtype = _girih.zeros((), dtype=target).dtype
        except DTypeError:
            for move in (self.parameters_tree, self.buffers_tree):
                self.update(tree.map(lambda tensor: tensor.to_device(target), move()))
            return self
        return self.astype(dtype)

    def extra_repr(self) -> str:
        """The text that ``repr`` shows between the parentheses before the submodules.

        By default it shows the constructor arguments that are also attributes of the module, if
        they are plain values: numbers, strings, tuples of these. For tensors of a layer it shows
        whether they exist.
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
    """The constructor arguments that ``repr`` of a module shows."""
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


def places_in(module: Module) -> tuple[dict[str, Any], list[Place]]:
    """The places of the trained parameters, as a tree, and the places of the other tensors.

    The places can be used to read and replace all tensors any number of times.
    """
    walk = Walk(True)
    walk.others = []
    walk.trained = True
    found = _tree_of(walk, module)
    others: list[Place] = []
    for place in walk.others:
        tensor = place.attributes[place.name]
        first = walk.met.get(id(tensor)) if walk.met is not None else None
        if first is None:
            others.append(place)
        else:
            first.aliases.append((place.module, place.name))
    return found, others


def _tree_of(walk: Walk, module: Module) -> dict[str, Any]:
    """The parameters of a module, or its buffers, as a tree, without tensors visited before."""
    if id(module) in walk.seen:
        return {}
    walk.seen.add(id(module))
    out: dict[str, Any] = {}
    for name, value in module.__dict__.items():
        if type(value) is Tensor:
            walk.leaf(module, name, out)
        elif _has_modules(value):
            out[name] = _container_tree(walk, value)
    return out


def _container_tree(walk: Walk, value: Any) -> Any:
    if isinstance(value, Module):
        return _tree_of(walk, value)
    if isinstance(value, dict):
        return {k: _container_tree(walk, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_container_tree(walk, v) for v in value]
    return None


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


def _assignments(holder: Any, values: Any, path: str) -> list[tuple[Module, str, Tensor]]:
    """The assignments to make, all checked before anything is changed."""
    out: list[tuple[Module, str, Tensor]] = []
    if values is None:
        return out
    items: Any = values.items() if has_protocol(values, "items") else enumerate(values)
    for key, new in items:
        name = f"{path}.{key}"
        try:
            old = vars(holder)[key] if isinstance(holder, Module) else holder[key]
        except (KeyError, IndexError, TypeError):
            raise InvalidArgumentError(f"{name}: the module has no such tensor or module") from None
        if isinstance(old, Tensor):
            check_shape(name, old, new)
            out.append((holder, key, new))
        else:
            out += _assignments(old, new, name)
    return out


def _changes(module: Module, values: Any) -> list[tuple[Module, str, Tensor]]:
    """The assignments to make, so that tied tensors stay tied."""
    return with_aliases(module, _assignments(module, values, type(module).__qualname__))


def _rebuild(_data: Any, _children: Any) -> Module:
    raise InvalidArgumentError(
        "a module cannot be rebuilt from its tensors; pass model.parameters_tree() instead, or use "
        "nn.value_and_grad(model, fun)"
    )


# Makes modules pytree nodes, for gr.eval(model, optimizer.state) and tree.leaves(model). Both trees
# use the names of the state_dict.
tree.register(
    Module,
    lambda m: ((m.parameters_tree(), m.buffers_tree()), None),
    _rebuild,
    subclasses=True,
    names=lambda _module, count: [""] * count,
)
