"""State as tensors in nested dicts, for optimisers, parameter averages and loss scalers.

The state is saved and loaded by dotted names, and replaced in place so that compiled functions find
it. :func:`girih.rollback` restores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import lazy, tree
from ..checks import check_constructor, explain_methods
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ..names import dotted
from ..rollback import before, remember

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._girih import DType, Tensor

__all__ = ["Stateful", "cast", "check_names", "number"]


@explain_methods
class Stateful:
    """An object whose state is a dict of trees of tensors.

    Attributes:
        state: The state.
    """

    state: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """The constructors of this package's optimisers check their arguments."""
        super().__init_subclass__(**kwargs)
        check_constructor(cls)

    def state_dict(self) -> dict[str, Tensor]:
        """The state by dotted name, as in files: ``step``, ``m.weight``.

        Example:
            >>> import girih as gr
            >>> optimizer = gr.optim.SGD(0.1, momentum=0.9)
            >>> _ = optimizer.init({"w": gr.zeros([2])})
            >>> sorted(optimizer.state_dict())
            ['learning_rate', 'momentum.w', 'step']
        """
        return {dotted(path): leaf for path, leaf in tree.flatten_with_path(self.state)}

    def load_state_dict(self, values: Mapping[str, Tensor]) -> Self:
        """Restores a :meth:`state_dict`, or one loaded from a file.

        Values are cast to the dtypes of the slots and moved to their devices. The slots per
        parameter must exist: call ``init`` with the same parameters first.

        Args:
            values: Tensors by dotted name.

        Returns:
            The object.

        Raises:
            InvalidArgumentError: Names are missing or unexpected; all are listed.
            ShapeError: A tensor has another shape than the tensor it replaces. Nothing is replaced.
        """
        from ..nn.loading import fitted, tensors

        if isinstance(values, Mapping) and "param_groups" in values:
            raise InvalidArgumentError(
                f"{type(self).__name__}.load_state_dict: got the state dict of an optimiser of "
                "PyTorch, which has other names; expected tensors by name, as state_dict() gives"
            )
        values = tensors(values, type(self).__name__)
        self._ready()
        pairs = tree.flatten_with_path(self.state)
        names = [dotted(path) for path, _ in pairs]
        missing = [name for name in names if name not in values]
        unexpected = sorted(values.keys() - set(names))
        if missing or unexpected:
            raise InvalidArgumentError(
                f"{type(self).__name__}.load_state_dict: missing {missing}, unexpected "
                f"{unexpected}; begin with init(parameters), and the options that it had"
            )
        new = []
        for name, (_, old) in zip(names, pairs, strict=True):
            if values[name].shape != old.shape:
                raise ShapeError(
                    f"{type(self).__name__}.load_state_dict: {name} has shape "
                    f"{list(values[name].shape)}, expected {list(old.shape)}"
                )
            new.append(fitted(f"{type(self).__name__}.load_state_dict: {name}", old, +values[name]))
        _assign(self.state, tree.unflatten(tree.structure(self.state), lazy.eval(new)))
        return self

    def _ready(self) -> None:
        """Makes the state that loading replaces, if what it belongs to is known."""

    def _adopt(self, state: dict[str, Any]) -> None:
        """Stores an initial state in the existing dict, where a function being compiled finds it.
        The handles are separate, because the returned state may be donated.
        """
        self.state.clear()
        self.state.update(tree.map(lambda t: +t, state))

    def _advance(self, state: dict[str, Any]) -> None:
        """Replaces the state by a new state."""
        pairs = zip(tree.flatten_with_path(self.state), tree.leaves(state), strict=True)
        for (path, old), new in pairs:
            remember(self, path, old, new)
        _assign(self.state, state)

    def _restore(self) -> None:
        """Restores the previous tensors where the current tensors are not computed."""
        leaves, treedef = tree.flatten(self.state)
        paths = [path for path, _ in tree.flatten_with_path(self.state)]
        old = [before(self, path, leaf) for path, leaf in zip(paths, leaves, strict=True)]
        _assign(self.state, tree.unflatten(treedef, old))


def _assign(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Stores the tensors of a new state in the dicts and lists of the old state, so that a compiled
    step finds them.
    """
    for key, value in new.items():
        old[key] = _replaced(old[key], value) if key in old else value


def _replaced(old: Any, new: Any) -> Any:
    if type(old) is dict and type(new) is dict and old.keys() == new.keys():
        for key, value in new.items():
            old[key] = _replaced(old[key], value)
        return old
    if type(old) is list and type(new) is list and len(old) == len(new):
        for i, value in enumerate(new):
            old[i] = _replaced(old[i], value)
        return old
    return new


def check_names(owner: object, own: dict[str, Any], found: object) -> None:
    """Fails unless a loaded state dict has the names of an object's own one.

    Raises:
        InvalidArgumentError: It has others, or is no dict.
    """
    if not isinstance(found, dict) or found.keys() != own.keys():
        names = sorted(map(str, found)) if isinstance(found, dict) else f"a {type(found).__name__}"
        raise InvalidArgumentError(
            f"{type(owner).__name__}.load_state_dict: expected {sorted(own)}, got {names}"
        )


def number(owner: object, value: Any) -> float:
    """A measure as a number.

    Raises:
        DTypeError: It is no number, and no tensor with one element.
    """
    if not isinstance(value, (str, bytes)):
        with suppress(TypeError, ValueError):
            return float(value)
    raise DTypeError(
        f"{type(owner).__name__}.step: metrics must be a number, or a tensor with one element, got "
        f"a {type(value).__name__}"
    )


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    """The tensor cast to a dtype."""
    return tensor if tensor.dtype == dtype else tensor.astype(dtype)
