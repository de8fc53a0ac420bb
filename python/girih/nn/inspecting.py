"""What a module holds: submodules, parameters and buffers, by dotted name and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .._girih import Tensor
from ..checks import explain_methods
from ..errors import InvalidArgumentError, MissingNameError
from .places import PARAMETER_NAMES, Walk, entries, locations, named, submodules, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from .module import Module

__all__ = ["Inspecting", "Listed", "nearest"]

T = TypeVar("T")


class Listed(list[T]):
    """A list that ``next`` takes the first item of, as of PyTorch's generators."""

    __slots__ = ("_at",)
    #: For the extension: in trees it is a list like any other.
    _is_plain_list = True

    def __next__(self) -> T:
        """The next item; ``next(model.parameters())`` is the first parameter."""
        at = getattr(self, "_at", 0)
        if at >= len(self):
            raise StopIteration
        self._at = at + 1
        return self[at]


@explain_methods
class Inspecting:
    """The mixin of :class:`girih.nn.Module` for what it holds."""

    def parameters(self, recurse: bool = True, *, trained: bool = False) -> Listed[Tensor]:
        """The parameters, in the order of :meth:`named_parameters`.

        Args:
            recurse: Whether to include those of submodules.
            trained: Whether to leave out frozen parameters.
        """
        found = self.named_parameters(recurse=recurse, trained=trained)
        return Listed(tensor for _, tensor in found)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, *, trained: bool = False
    ) -> Listed[tuple[str, Tensor]]:
        """The parameters with their dotted names, in order of definition.

        Args:
            prefix: What the names begin with, before a dot.
            recurse: Whether to include those of submodules.
            trained: Whether to leave out frozen parameters.
        """
        walk = Walk(True)
        walk.trained = trained
        return Listed(_pairs(self, walk, prefix, recurse))

    def trainable_parameters(self) -> Listed[Tensor]:
        """The parameters that are not frozen.

        Example:
            >>> import girih as gr
            >>> len(gr.nn.Linear(2, 1).freeze("bias").trainable_parameters())
            1
        """
        return self.parameters(trained=True)

    def buffers(self, recurse: bool = True) -> Listed[Tensor]:
        """The tensors that are not parameters, in the order of :meth:`named_buffers`.

        Args:
            recurse: Whether to include those of submodules.
        """
        return Listed(tensor for _, tensor in self.named_buffers(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Listed[tuple[str, Tensor]]:
        """The tensors that are not parameters, with their dotted names.

        Args:
            prefix: What the names begin with, before a dot.
            recurse: Whether to include those of submodules.
        """
        walk = Walk(False)
        walk.met = {id(tensor): None for tensor in self.parameters()}
        return Listed(_pairs(self, walk, prefix, recurse))

    def num_parameters(self) -> int:
        """The number of trainable scalars."""
        return sum(tensor.size for tensor in self.parameters())

    def modules(self) -> Listed[Module]:
        """This module and all its submodules, each once, outermost first."""
        return Listed(module for _, module in submodules(self))

    def named_modules(self, prefix: str = "") -> Listed[tuple[str, Module]]:
        """This module and all its submodules, each once, with their dotted names.

        Args:
            prefix: The name of this module.

        Example:
            >>> import girih as gr
            >>> [name for name, _ in gr.nn.Sequential(gr.nn.Linear(2, 1)).named_modules()]
            ['', '0']
        """
        return Listed(submodules(self, prefix))

    def children(self) -> Listed[Module]:
        """The modules that this module holds itself, directly or in lists and dicts."""
        return Listed(module for _, module in self.named_children())

    def named_children(self) -> Listed[tuple[str, Module]]:
        """The modules that this module holds itself, each once, with their names."""
        found: dict[int, tuple[str, Module]] = {}
        for key, value in entries(self):
            for name, module in nearest(value, str(key)):
                found.setdefault(id(module), (name, module))
        return Listed(found.values())

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Calls a function with each submodule, innermost first, and then with this module.

        Args:
            fn: The function, whose results are ignored.

        Returns:
            The module.

        Example:
            >>> import girih as gr
            >>> def to_zero(module):
            ...     if isinstance(module, gr.nn.Linear):
            ...         module.weight = gr.zeros_like(module.weight)
            >>> gr.nn.Sequential(gr.nn.Linear(2, 1, bias=False)).apply(to_zero)[0].weight.tolist()
            [[0.0, 0.0]]
        """
        for module in reversed(self.modules()):
            fn(module)
        return self

    def update_modules(self, modules: dict[str, Module]) -> Self:
        """Replaces submodules by their dotted names.

        Args:
            modules: The new modules, by the names of :meth:`named_modules`.

        Returns:
            The module.

        Raises:
            MissingNameError: There is no such module. Nothing is replaced.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Sequential(gr.nn.Linear(2, 2), gr.nn.ReLU())
            >>> model.update_modules({"1": gr.nn.Tanh()})[1]
            Tanh()
        """
        for name in modules:
            self.get_submodule(name)
        for name, module in modules.items():
            above, _, key = name.rpartition(".")
            holder = _found(self, above)
            if isinstance(holder, dict):
                holder[key] = module
            elif isinstance(holder, list):
                holder[int(key)] = module
            elif isinstance(holder, tuple):
                raise InvalidArgumentError(
                    f"{type(self).__qualname__}.update_modules: {name} is in a tuple, which cannot "
                    "be changed; hold its modules in a list"
                )
            elif name:
                setattr(holder, key, module)
            else:
                raise InvalidArgumentError(
                    f"{type(self).__qualname__}.update_modules: the module cannot replace itself"
                )
        return self

    def set_submodule(self, target: str, module: Module) -> None:
        """Replaces the submodule of a dotted name; see :meth:`update_modules`.

        Args:
            target: The name.
            module: The new module.

        Raises:
            MissingNameError: There is no such module.
        """
        self.update_modules({target: module})

    def get_submodule(self, target: str) -> Module:
        """The submodule of a dotted name.

        Args:
            target: The name; of the module itself it is ``""``.

        Raises:
            MissingNameError: There is no such module.
        """
        from .module import Module

        return _checked(self, target, Module, "module")

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of a dotted name.

        Args:
            target: The name.

        Raises:
            MissingNameError: There is no such parameter.
        """
        return _tensor(self, target, True)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name.

        Args:
            target: The name.

        Raises:
            MissingNameError: There is no such buffer.
        """
        return _tensor(self, target, False)


def _tensor(module: Any, target: str, parameter: bool) -> Tensor:
    """The parameter or the buffer of a dotted name."""
    above, _, key = target.rpartition(".")
    kind = "parameter" if parameter else "buffer"
    tensor = _checked(module, target, Tensor, kind)
    if (key in vars(_found(module, above)).get(PARAMETER_NAMES, ())) != parameter:
        raise _missing(module, target, kind)
    return tensor


def _checked(module: Any, target: str, cls: type[T], kind: str) -> T:
    try:
        found = _found(module, target)
    except (LookupError, ValueError, AttributeError):
        found = None
    if not isinstance(found, cls):
        raise _missing(module, target, kind)
    return found


def _missing(module: Any, target: str, kind: str) -> MissingNameError:
    if kind == "module":
        names = [name for name, _ in submodules(module) if name]
    else:
        names = [
            name
            for name, (holder, key) in locations(module)
            if (key in holder.__dict__.get(PARAMETER_NAMES, ())) == (kind == "parameter")
        ]
    return MissingNameError(
        f"{type(module).__qualname__}: there is no {kind} {target!r}; there are "
        f"{', '.join(names) or 'none'}"
    )


def _found(module: Any, target: str) -> Any:
    """What a dotted name leads to."""
    value: Any = module
    for key in target.split(".") if target else ():
        if isinstance(value, (list, tuple)):
            value = value[int(key)]
        else:
            held = dict(entries(value))
            value = held[key] if key in held else held[int(key)]
    return value


def _pairs(module: Any, walk: Walk, prefix: str, recurse: bool) -> Any:
    found = tree_of(walk, module)
    for name, tensor in named(found, prefix):
        if recurse or isinstance(found.get(name.removeprefix(f"{prefix}.")), Tensor):
            yield name, tensor


def nearest(value: Any, name: str) -> Any:
    """The outermost modules in a value, with their dotted names."""
    from .module import Module

    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        for key, inner in entries(value):
            yield from nearest(inner, f"{name}.{key}")
