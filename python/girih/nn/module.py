"""Modules: objects that hold parameters, and conversions between modules and pytrees.

The parameters of a module are the tensors assigned to its attributes through :func:`Parameter`, and
the parameters of its submodules, which it holds directly or in lists, tuples and dicts. Its other
tensors are buffers: they are saved with the module and not trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _girih, tree
from .._girih import Tensor, asarray, has_protocol
from ..checks import FAILURES, check_constructor, explain, explain_methods
from ..errors import InvalidArgumentError
from ..rollback import remember
from ..state import announce, made
from ..synonyms import MODULE_HINTS, missing_attribute
from ..variables import variable
from .alive import register
from .compiled_in_place import CompiledInPlace
from .freezing import Freezing
from .hooks import HOOKS, Hooked, with_hooks
from .inspecting import Inspecting
from .moving import Moving
from .parameter import Parameter, converted, gathered, is_marked
from .places import (
    BUFFER_NAMES,
    PARAMETER_NAMES,
    TRANSIENT_NAMES,
    Walk,
    changes,
    entries,
    locations,
    named,
    put,
    tree_of,
)
from .precision import casting
from .showing import arguments, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from ..signatures import Forwards, P, R

__all__ = ["Module", "Parameter"]

_SCOPE = "_scope_name"


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
    elif isinstance(value, (list, tuple, dict)):
        for key, held in entries(value):
            _name_scopes(f"{name}.{key}", held)


@explain_methods
class Module(Freezing, Inspecting, Moving, Hooked, CompiledInPlace):
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

    #: The precision of the module under :func:`girih.amp.autocast`: ``"half"``, ``"full"`` for
    #: float32, or ``None`` for the precision of its arguments.
    precision: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The constructors of this package's modules check their arguments."""
        super().__init_subclass__(**kwargs)
        check_constructor(cls)

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Registers the module, so that files of graphs know the names of its parameters."""
        module = super().__new__(cls)
        made(module)
        register(module)
        return module

    def __call__(self: Forwards[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls ``forward``, in a scope (:func:`girih.named_scope`) of the module's name."""
        module: Any = self
        announce(module)
        outer = _girih.enter_named_scope(module.__dict__.get(_SCOPE) or type(module).__name__)
        try:
            forward: Callable[P, R] = module.compiled_forward or module.forward
            if HOOKS in module.__dict__:
                forward = with_hooks(module, forward)
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
        attributes = self.__dict__
        parameters: Any = attributes.get(PARAMETER_NAMES, ())
        if is_marked(value):
            self._declare(name, value)
            value = value.tensor
        elif type(value) is Tensor:
            old = attributes.get(name)
            remember(self, name, old, value)
            if name in parameters and type(old) is Tensor and old.requires_grad:
                value = variable(value)
        elif isinstance(value, Module):
            if name in parameters:
                parameters.discard(name)
        elif name in parameters or name in attributes.get(BUFFER_NAMES, ()):
            value = converted(self, name, attributes.get(name), value)
        elif isinstance(value, (list, tuple, dict)):
            value = gathered(f"{type(self).__qualname__}.{name}", value)
        elif type(attributes.get(name)) is Tensor and has_protocol(value, "__array_interface__"):
            value = converted(self, name, attributes[name], value)
        _name_scopes(name, value)
        object.__setattr__(self, name, value)

    def _declare(self, name: str, value: Any) -> None:
        """Notes that an attribute is a parameter."""
        self.__dict__.setdefault(PARAMETER_NAMES, set()).add(name)
        self.__dict__.get(BUFFER_NAMES, set()).discard(name)
        if value.trained == (name in self._frozen):
            self._frozen = self._frozen - {name} if value.trained else self._frozen | {name}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, MODULE_HINTS)

    def name_scope(self, name: str) -> None:
        """Sets the scope name of the module's calls if it has none. The owner of the module calls
        this method."""
        self.__dict__.setdefault(_SCOPE, name)

    def __delattr__(self, name: str) -> None:
        announce(self)
        for names in (PARAMETER_NAMES, BUFFER_NAMES, TRANSIENT_NAMES):
            self.__dict__.get(names, set()).discard(name)
        object.__delattr__(self, name)

    # Parameters and buffers by name.

    def register_parameter(self, name: str, param: Any) -> None:
        """Adds a parameter, as ``self.name = Parameter(param)`` does.

        Args:
            name: The name of the attribute.
            param: A parameter, a tensor, or ``None`` for a parameter that the module does not have.

        Raises:
            InvalidArgumentError: The name is not that of an attribute, or is in use.
        """
        self._check_name(name)
        if param is not None:
            setattr(self, name, Parameter(param))
            return
        setattr(self, name, None)
        self.__dict__.setdefault(PARAMETER_NAMES, set()).add(name)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Adds a buffer, a tensor that is not trained.

        Args:
            name: The name of the attribute.
            tensor: A tensor, what :func:`girih.asarray` takes, or ``None``.
            persistent: Whether ``state_dict`` has the buffer.

        Raises:
            InvalidArgumentError: The name is not that of an attribute, or is in use.

        Example:
            >>> import girih as gr
            >>> module = gr.nn.Module()
            >>> module.register_buffer("mean", gr.zeros([2]))
            >>> [name for name, _ in module.named_buffers()]
            ['mean']
        """
        self._check_name(name)
        if tensor is not None and not isinstance(tensor, Tensor):
            tensor = asarray(tensor)
        setattr(self, name, tensor)
        self.__dict__.setdefault(BUFFER_NAMES, set()).add(name)
        if not persistent:
            self.__dict__.setdefault(TRANSIENT_NAMES, set()).add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule, as ``self.name = module`` does.

        Args:
            name: The name of the attribute.
            module: The module, or ``None``.

        Raises:
            InvalidArgumentError: The name is not that of an attribute, or is in use; or the object
                is no module.
        """
        self._check_name(name)
        if module is not None and not isinstance(module, Module):
            raise InvalidArgumentError(
                f"{type(self).__qualname__}.add_module: expected a module, got a "
                f"{type(module).__name__}"
            )
        setattr(self, name, module)

    register_module = add_module

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise InvalidArgumentError(
                f"{type(self).__qualname__}: names are strings that are not empty and have no dots,"
                f" got {name!r}"
            )
        taken = self.__dict__.get(name) is not None or hasattr(type(self), name)
        if taken and name not in self.__dict__.get(BUFFER_NAMES, ()):
            raise InvalidArgumentError(
                f"{type(self).__qualname__}: there is an attribute {name!r} already; assign to it, "
                "or take another name"
            )

    # Trees.

    def parameters_tree(self) -> dict[str, Any]:
        """The parameters as nested dicts and lists, by attribute name.

        Example:
            >>> import girih as gr
            >>> gr.tree.map(lambda t: t.shape, gr.nn.Linear(3, 2).parameters_tree())
            {'weight': (2, 3), 'bias': (2,)}
        """
        return tree_of(Walk(True), self)

    def buffers_tree(self) -> dict[str, Any]:
        """The tensors that are not parameters, in the form of :meth:`parameters_tree`."""
        walk = Walk(False)
        walk.met = {id(tensor): None for tensor in self.parameters()}
        return tree_of(walk, self)

    def update(self, values: Mapping[str, Any]) -> Self:
        """Replaces tensors by those of a tree in the form of :meth:`parameters_tree`.

        The tree may name fewer tensors than the module has.

        Returns:
            The module.

        Raises:
            InvalidArgumentError: The tree has a name that the module does not have.
            ShapeError: A tensor has another shape than the tensor it replaces.
        """
        for holder, name, tensor in changes(self, values):
            put(holder, name, tensor)
        return self

    # Files.

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
            walk.saved = True
            found.update(named(tree_of(walk, self)))
        # A tensor that requires a gradient is a variable, of which the dict has the present value.
        values = {id(t): t.detach() for t in found.values() if t.requires_grad}
        found = {name: values.get(id(tensor), tensor) for name, tensor in found.items()}
        if style == "torch":
            from .torch_names import to_torch

            return to_torch(self, found)
        return found

    def load_state_dict(
        self, values: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Self:
        """Replaces parameters and buffers by those of a :meth:`state_dict`.

        As in PyTorch, the values are cast to the dtypes of the module's tensors and moved to their
        devices, and parameters keep ``requires_grad``. Of a tied parameter's names, one suffices.

        Args:
            values: Tensors by dotted name, with the names of this package or of PyTorch. Arrays of
                other libraries, such as those of a PyTorch model's ``state_dict()``, are copied.
            strict: Whether the names must be exactly those of the module's tensors.
            assign: Whether to take the tensors as they are, with their dtypes and devices.

        Raises:
            InvalidArgumentError: With ``strict``, names are missing or unexpected; all are listed.
                Or a tied parameter has different values under its names.
            ShapeError: A tensor has another shape than the tensor it replaces. Nothing is replaced.
            DTypeError: A cast would drop imaginary parts or fractions. Nothing is replaced.
        """
        from .loading import load, tensors
        from .torch_names import from_torch

        found = from_torch(self, tensors(values, type(self).__qualname__))
        places = {
            name: (holder, key)
            for name, (holder, key) in locations(self)
            if key not in holder.__dict__.get(TRANSIENT_NAMES, ())
        }
        load(self, found, places, strict, assign)
        return self

    # Text.

    def extra_repr(self) -> str:
        """The text that ``repr`` shows between the parentheses before the submodules.

        By default it shows the constructor arguments that are also attributes of the module, if
        they are plain values: numbers, strings, tuples of these. For tensors of a layer it shows
        whether they exist.
        """
        return ", ".join(arguments(self))

    def __repr__(self) -> str:
        return shown(self)


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
