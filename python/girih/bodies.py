"""What ``checkpoint``, functions with rules and custom ops record: they call the user's function
once, with placeholders for the tensors among its arguments.
"""

from __future__ import annotations

import types
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _girih, tree
from ._girih import Tensor, has_protocol
from .checks import unexplained
from .errors import DTypeError, InvalidArgumentError
from .transforms import INEXACT

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Arguments", "RecordedBody", "described", "leaves_of", "like", "own_handles", "referred"]


class Arguments:
    """Arguments: tensors are operands of a call, and other leaves are part of the function."""

    def __init__(self, args: Any) -> None:
        self._leaves, self._structure = tree.flatten(args)
        self.where = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, Tensor)]
        self.tensors: list[Tensor] = [self._leaves[i] for i in self.where]
        #: Which of the tensors have derivatives.
        self.inexact = [t.dtype.name in INEXACT for t in self.tensors]

    @property
    def structure(self) -> tree.TreeDef:
        """The structure of the arguments."""
        return self._structure

    def others(self) -> tuple[Any, ...]:
        """The leaves that are not tensors, with their types and positions."""
        places = set(self.where)
        leaves = enumerate(self._leaves)
        return tuple((i, type(leaf), leaf) for i, leaf in leaves if i not in places)

    def template(self) -> Arguments:
        """A copy without the tensors, which does not keep them alive."""
        new = Arguments.__new__(Arguments)
        new._structure, new.where, new.inexact = self._structure, self.where, self.inexact
        new._leaves, new.tensors = list(self._leaves), []
        for i in self.where:
            new._leaves[i] = None
        return new

    def at(self, tensors: Sequence[Tensor]) -> Arguments:
        """The same arguments with other tensors of the same specs."""
        new = self.template()
        new.tensors = list(tensors)
        for i, tensor in zip(self.where, tensors, strict=True):
            new._leaves[i] = tensor
        return new

    def rebuilt(self, tensors: Sequence[Tensor]) -> Any:
        """The arguments with other tensors, as they are passed."""
        leaves = list(self._leaves)
        for i, tensor in zip(self.where, tensors, strict=True):
            leaves[i] = tensor
        return tree.unflatten(self._structure, leaves)

    def tangents(self, inexact: Sequence[Tensor]) -> Any:
        """A tree like the arguments: tangents of inexact tensors, zeros for the other leaves."""
        rest = iter(inexact)
        leaves: list[Any] = [_girih.asarray(0.0) for _ in self._leaves]
        for i, tensor, varies in zip(self.where, self.tensors, self.inexact, strict=True):
            leaves[i] = next(rest) if varies else _girih.zeros_like(tensor)
        return tree.unflatten(self._structure, leaves)

    def cotangents(self, given: Any, name: str) -> list[Tensor]:
        """The cotangents of inexact tensors, from the tuple that a backward rule returned: a tree
        for each argument, or None for zeros.
        """
        args = tree.unflatten(self._structure, list(range(len(self._leaves))))[0]
        if not isinstance(given, (tuple, list)) or len(given) != len(args):
            raise InvalidArgumentError(
                f"the backward rule of {name} must return a tuple with one entry for each of its "
                f"{len(args)} arguments, got {described(given)}"
            )
        found: dict[int, Any] = {}
        for places, part in zip(args, given, strict=True):
            numbers, structure = tree.flatten(places)
            if part is None:
                continue
            leaves = tree.leaves_like(structure, part)
            if leaves is None:
                raise InvalidArgumentError(
                    f"the backward rule of {name} returned {tree.structure(part)} for an argument "
                    f"of structure {structure}"
                )
            found.update(zip(numbers, leaves, strict=True))
        out = []
        for i, tensor, varies in zip(self.where, self.tensors, self.inexact, strict=True):
            if varies:
                leaf = found.get(i)
                out.append(_girih.zeros_like(tensor) if leaf is None else like(leaf, tensor))
        return out


def described(value: Any) -> str:
    """The type of a value, and its length if it is a sequence, for errors."""
    name = type(value).__name__
    return f"{name} of {len(value)}" if isinstance(value, (tuple, list)) else name


def like(leaf: Any, wanted: Tensor) -> Tensor:
    """A leaf as a tensor; numbers take the shape and dtype of the corresponding value."""
    if isinstance(leaf, Tensor):
        return leaf
    return _girih.broadcast_to(_girih.asarray(leaf, dtype=wanted.dtype), wanted.shape)


class RecordedBody(NamedTuple):
    """The recording of a function that was called with placeholders."""

    body: _girih.Body
    stand_ins: list[Tensor]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> RecordedBody:
        """An empty body with a placeholder for each tensor."""
        body = _girih.Body()
        return RecordedBody(body, [body.placeholder(tensor) for tensor in tensors])

    def own(self) -> list[Tensor]:
        """The function may assign to its arguments, so it gets its own handles."""
        return own_handles(self.stand_ins)


def own_handles(tensors: Sequence[Tensor]) -> list[Tensor]:
    """New handles of the tensors: an assignment to one of them leaves the tensor as it is."""
    return [+t if t.dtype.name != "bool" else t for t in tensors]


#: Maximum number of objects that are searched for tensors that rules refer to.
_LOOKED_AT = 1000


def referred(*roots: Any) -> list[Tensor]:
    """Tensors that functions refer to: in closures, defaults, bound objects and containers."""
    found: list[Tensor] = []
    seen: set[int] = set()
    stack = list(roots)
    while stack and len(seen) < _LOOKED_AT:
        value = stack.pop()
        if isinstance(value, Tensor):
            found.append(value)
            continue
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type)):
            continue
        if isinstance(value, types.ModuleType) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            value = unexplained(value)
            stack += [cell for cell in map(_contents, value.__closure__ or ()) if cell is not None]
            stack += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        elif isinstance(value, types.MethodType):
            stack += [value.__func__, value.__self__]
        elif isinstance(value, partial):
            stack += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, dict):
            stack += value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            stack += value
        elif isinstance(getattr(value, "__dict__", None), dict):
            stack += vars(value).values()
    return found


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # The cell is empty.
        return None


def leaves_of(result: Any, name: str) -> tuple[list[Tensor], tree.TreeDef]:
    """The leaves of a function's result as tensors, and the structure of the result.

    Raises:
        DTypeError: A leaf is neither a tensor nor a number; ``name`` is that of the function.
    """
    leaves, structure = tree.flatten(result)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, (bool, int, float, complex)) or has_protocol(leaf, "__array__"):
            leaves[i] = leaf if isinstance(leaf, Tensor) else _girih.asarray(leaf)
        elif not isinstance(leaf, Tensor):
            raise DTypeError(
                f"{name} returned a {type(leaf).__name__}; expected tensors, in any pytree"
            )
    return leaves, structure
