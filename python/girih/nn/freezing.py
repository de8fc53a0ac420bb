"""Modes of modules: training or evaluation, which parameters are trained, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checks import explain_methods
from ..errors import MissingNameError
from ..variables import is_inexact, mark
from .alive import holders_of
from .places import PARAMETER_NAMES, is_frozen, locations, submodules

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._girih import Tensor
    from .module import Module

__all__ = ["Freezing", "frozen_apart", "marked"]

#: The number of calls that froze or unfroze parameters; compiled functions compare it.
_freezes = 0


@explain_methods
class Freezing:
    """The mixin of :class:`girih.nn.Module` for its modes."""

    training: bool = True
    #: Names of own parameters that are not trained.
    _frozen: frozenset[str] = frozenset()
    #: Names of frozen parameters that require a gradient as soon as they are trained again.
    _taped: frozenset[str] = frozenset()

    def train(self, mode: bool = True) -> Self:
        """Sets training mode (dropout is active) on this module and all its submodules."""
        for _, module in submodules(self):
            module.training = mode
        return self

    def eval(self) -> Self:
        """Sets evaluation mode. To evaluate tensors, use :func:`girih.eval`."""
        return self.train(False)

    def freeze(self, *names: str, recurse: bool = True) -> Self:
        """Freezes parameters: they get no gradient, and optimisers do not update them.

        In all other respects they stay parameters. An optimiser that has state for them must be
        initialised again with :meth:`~girih.optim.Optimizer.init`, unless it was given the
        parameters. ``parameter.requires_grad = False`` freezes too.

        Args:
            names: Names of the module's own parameters, and with ``recurse`` of the parameters of
                its submodules; without names, all of them. The dotted names of
                :meth:`named_parameters` work too.
            recurse: Whether to include submodules.

        Returns:
            The module.

        Raises:
            MissingNameError: There is no such parameter.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Sequential(gr.nn.Linear(2, 2), gr.nn.Linear(2, 1))
            >>> _ = model[0].freeze()
            >>> [name for name, _ in model.named_parameters(trained=True)]
            ['1.weight', '1.bias']
        """
        _set_frozen(self, names, recurse, True)
        return self

    def unfreeze(self, *names: str, recurse: bool = True) -> Self:
        """Makes frozen parameters trainable again; see :meth:`freeze`."""
        _set_frozen(self, names, recurse, False)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Makes all parameters require a gradient, for ``loss.backward()``, or freezes them.

        An optimiser that is given parameters makes them require gradients too. Functions such as
        :func:`girih.nn.value_and_grad` need no such mark.

        Args:
            requires_grad: Whether they require one; if not, they are frozen.

        Returns:
            The module.

        Example:
            >>> import girih as gr
            >>> model = gr.nn.Linear(2, 1).requires_grad_()
            >>> model(gr.ones([3, 2])).sum().backward()
            >>> model.bias.grad.tolist()
            [3.0]
        """
        if not requires_grad:
            return self.freeze()
        self.unfreeze()
        for tensor in _parameters(self):
            if tensor.is_leaf and is_inexact(tensor):
                mark(tensor)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients that ``backward`` has accumulated in the parameters.

        Args:
            set_to_none: Whether the gradients become ``None``, not zeros.
        """
        clear(_parameters(self), set_to_none)


def clear(tensors: list[Tensor], set_to_none: bool) -> None:
    """Clears the gradients of tensors."""
    for tensor in tensors:
        gradient = tensor.grad
        if gradient is not None:
            tensor.grad = None if set_to_none else 0 * gradient.detach()


def _parameters(module: Any) -> list[Tensor]:
    found = {}
    for _, (holder, name) in locations(module):
        if name in holder.__dict__.get(PARAMETER_NAMES, ()):
            tensor = holder.__dict__[name]
            found[id(tensor)] = tensor
    return list(found.values())


def _set_frozen(module: Any, names: tuple[str, ...], recurse: bool, frozen: bool) -> None:
    changes: dict[int, tuple[Module, set[str]]] = {}
    known = set()
    for dotted, (holder, name) in locations(module):
        if name not in holder.__dict__.get(PARAMETER_NAMES, ()) or not (
            recurse or holder is module
        ):
            continue
        for wanted in {dotted, name}.intersection(names) if names else {name}:
            known.add(wanted)
            changes.setdefault(id(holder), (holder, set()))[1].add(name)
    if missing := sorted(set(names) - known):
        raise MissingNameError(
            f"{type(module).__qualname__}: there are no parameters {', '.join(missing)}; there "
            f"are {', '.join(name for name, _ in module.named_parameters())}"
        )
    for holder, chosen in changes.values():
        _mark(holder, chosen, frozen)
        for name in chosen:
            _tape(holder, name, frozen)


def _mark(holder: Any, names: set[str], frozen: bool) -> None:
    """Notes that parameters of a module are frozen or trained."""
    global _freezes
    _freezes += 1
    holder._frozen = holder._frozen | names if frozen else holder._frozen - names


def _tape(holder: Any, name: str, frozen: bool) -> None:
    """Stops or continues the recording of a parameter for ``backward``."""
    tensor = holder.__dict__[name]
    if frozen and tensor.requires_grad and tensor.is_leaf:
        holder._taped = holder._taped | {name}
        tensor.requires_grad_(False)
    elif not frozen and name in holder._taped:
        holder._taped = holder._taped - {name}
        mark(tensor)


def frozen_apart(places: list[tuple[Module, str]]) -> bool:
    """Whether a parameter is frozen in one of the places that hold it. It will require a gradient
    when it is not frozen any more."""
    found = [(holder, name) for holder, name in places if is_frozen(holder, name)]
    for holder, name in found:
        holder._taped = holder._taped | {name}
    return bool(found)


def marked(tensor: Tensor, requires_grad: bool) -> None:
    """Freezes the parameter of modules whose ``requires_grad`` a user has set to false, or makes it
    trainable again. The extension calls this function."""
    if requires_grad and not _freezes:
        return
    for holder, name in holders_of([tensor])[id(tensor)]:
        if name not in holder.__dict__.get(PARAMETER_NAMES, ()):
            continue
        if is_frozen(holder, name) == requires_grad:
            _mark(holder, {name}, not requires_grad)
        if requires_grad:
            holder._taped = holder._taped - {name}
