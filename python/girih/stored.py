"""The results of functions that store tensors in objects: what a function has stored, what the
branches of a conditional store in common, and what a loop carries.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from . import _girih, tree
from ._girih import SymbolicDim, SymbolicFloat, Tensor
from .errors import InvalidArgumentError
from .state import NOTHING, Change, Items, leaves_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Aligned", "Carried", "Stored", "common"]

#: Numbers, which become tensors where a branch or loop stores a tensor in their place.
_NUMBERS = (bool, int, float, complex, SymbolicDim, SymbolicFloat)


class Stored:
    """What a function has stored in objects. The objects are restored.

    Attributes:
        changes: The places, with the stored objects.
        tensors: The tensors among the stored objects, each once.
    """

    __slots__ = ("changes", "tensors")

    def __init__(self, changes: list[Change]) -> None:
        self.changes = changes
        found: dict[int, Tensor] = {}
        for change in changes:
            for leaf in leaves_of(change.after):
                if isinstance(leaf, Tensor):
                    found.setdefault(id(leaf), leaf)
        self.tensors = list(found.values())

    def store(self, values: Sequence[Tensor]) -> None:
        """Stores the objects again, with these values of :attr:`tensors`."""
        if not self.changes:
            return
        pairs = zip(self.tensors, values, strict=True)
        known = {id(tensor): value for tensor, value in pairs}
        for change in self.changes:
            change.write(_mapped(change.after, known))

    def places(self) -> list[tuple[Any, str, int]]:
        """For each of the tensors, the first place that holds it, the place's path, and the
        tensor's position among the leaves there."""
        found: dict[int, tuple[Any, str, int]] = {}
        for change in self.changes:
            for at, leaf in enumerate(leaves_of(change.after)):
                if isinstance(leaf, Tensor):
                    found.setdefault(id(leaf), (change.place, change.path, at))
        return list(found.values())

    def tensors_at(self, places: Sequence[tuple[Any, str, int]]) -> list[Tensor] | None:
        """The tensors in the places that another function's :meth:`places` gave; ``None`` if one is
        missing."""
        own = {change.place: leaves_of(change.after) for change in self.changes}
        found = []
        for place, _, at in places:
            leaves = own.get(place, ())
            if at >= len(leaves) or not isinstance(leaves[at], Tensor):
                return None
            found.append(leaves[at])
        return found

    def path_of(self, tensors: set[int]) -> str | None:
        """The first place with one of these tensors, which are given by their ids."""
        for change in self.changes:
            if any(id(leaf) in tensors for leaf in leaves_of(change.after)):
                return change.path
        return None

    def refuse(self, what: str, instead: str) -> None:
        """Fails if the function stored anything.

        Args:
            what: The transform and the name of the function.
            instead: What to do instead.
        """
        if self.changes:
            raise InvalidArgumentError(
                f"{what} stores a tensor in {self.changes[0].path} while it is traced, {instead}; "
                "the objects hold what they held before"
            )


def _mapped(value: Any, known: dict[int, Tensor]) -> Any:
    """A tree with other tensors in place of known ones."""
    if value is NOTHING:
        return value
    leaves, structure = tree_of(value)
    return tree.unflatten(structure, [known.get(id(leaf), leaf) for leaf in leaves])


def _shown(value: Any) -> str:
    if value is NOTHING:
        return "nothing"
    if isinstance(value, Tensor):
        return f"{value.dtype.name}{list(value.shape)}"
    return f"{len(value)} items" if type(value) is Items else repr(value)[:40]


def _initial(what: str, change: Change) -> list[tuple[Tensor, Tensor]]:
    """The tensors that a place held before, each with the tensor that takes its place.

    A number becomes a tensor. Fails if the two objects differ in structure, shapes or dtypes.
    """
    old, before = tree_of(change.before)
    new, after = tree_of(change.after)
    fits = before == after and all(
        isinstance(b, Tensor) or a is b or type(a) is type(b) for a, b in zip(old, new, strict=True)
    )
    pairs: list[tuple[Tensor, Tensor]] = []
    for a, b in zip(old, new, strict=True) if fits else ():
        if not isinstance(b, Tensor):
            continue
        if isinstance(a, _NUMBERS) and b.shape == ():
            a = _girih.asarray(a).astype(b.dtype)
        if not isinstance(a, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            fits = False
            break
        pairs.append((a, b))
    if not fits:
        raise InvalidArgumentError(
            f"{what} stores {_shown(change.after)} in {change.path}, which held "
            f"{_shown(change.before)} before; a branch or loop keeps structure, shapes and dtypes, "
            "so have the place hold such a tensor from the start, or return the new value"
        )
    return pairs


def common(op: str, names: Sequence[str], branches: Sequence[Stored]) -> list[Aligned]:
    """What each branch stores in the places in which any branch stores something.

    A branch that stores nothing in a place keeps what the place holds.

    Args:
        op: The name of the op, for messages.
        names: The names of the branches' functions.
        branches: What the branches store.
    """
    places: dict[Any, Change] = {}
    for name, stored in zip(names, branches, strict=True):
        for change in stored.changes:
            _initial(f"{op}: {name}", change)
            first = places.setdefault(change.place, change)
            if first is not change:
                _initial(f"{op}: {name}", change._replace(before=first.after))
    out = []
    for stored in branches:
        own = {change.place: change for change in stored.changes}
        changes = []
        for place, first in places.items():
            found = own.get(place)
            if found is None:
                found = first._replace(after=_kept(first))
            changes.append(found)
        out.append(Aligned(changes))
    return out


def _kept(change: Change) -> Any:
    """What a place holds, in the form of the stored object: numbers are tensors."""
    pairs = iter(_initial("", change))
    leaves, structure = tree_of(change.after)
    kept = [next(pairs)[0] if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    made = tree.unflatten(structure, kept)
    return Items(made) if type(change.after) is Items else made


class Aligned(Stored):
    """What a branch stores, with one tensor for each leaf, in the order of the places."""

    __slots__ = ()

    def __init__(self, changes: list[Change]) -> None:
        self.changes = changes
        leaves = (leaf for change in changes for leaf in leaves_of(change.after))
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def names(self) -> list[str]:
        """The paths of the tensors."""
        return [
            change.path
            for change in self.changes
            for leaf in leaves_of(change.after)
            if isinstance(leaf, Tensor)
        ]

    def store(self, values: Sequence[Tensor]) -> None:
        """Stores the objects again, with these values of :attr:`tensors`."""
        rest = iter(values)
        # A tensor that is stored in two places stays one tensor.
        made: dict[int, Tensor] = {}
        for change in self.changes:
            leaves, structure = tree_of(change.after)
            for i, leaf in enumerate(leaves):
                if isinstance(leaf, Tensor):
                    leaves[i] = made.setdefault(id(leaf), next(rest))
            change.write(tree.unflatten(structure, leaves))


class Carried:
    """What the function of a loop stores in objects, which the loop carries.

    The function is called once to learn what it stores. It is then called again, with placeholders
    of the loop in these places.

    Attributes:
        tensors: The initial carries: what the places hold before the loop.
        names: The names of the carries, for messages.
    """

    __slots__ = ("_changes", "_entered", "_op", "_slots", "names", "tensors")

    def __init__(self, op: str) -> None:
        self._op = op
        #: The placeholders that the places hold at the beginning of an iteration.
        self._entered: list[Tensor] = []
        self._changes: list[Change] = []
        #: For each change, the carries of its tensors.
        self._slots: list[list[int]] = []
        self.tensors: list[Tensor] = []
        self.names: list[str] = []

    def learn(self, name: str, stored: Stored) -> bool:
        """Adds places in which the function ``name`` stores; true if there are new ones."""
        known = {change.place for change in self._changes}
        new = [change for change in stored.changes if change.place not in known]
        # A tensor that is in two places is one carry.
        slots: dict[tuple[int, int], int] = {}
        for change in new:
            own = []
            for before, after in _initial(f"{self._op}: {name}", change):
                pair = id(before), id(after)
                if pair not in slots:
                    slots[pair] = len(self.tensors)
                    self.tensors.append(before)
                    self.names.append(change.path)
                own.append(slots[pair])
            self._changes.append(change)
            self._slots.append(own)
        return bool(new)

    def enter(self, stand_ins: Sequence[Tensor]) -> None:
        """Stores placeholders in the places, before the function is called."""
        own = [+t if t.dtype.name != "bool" else copy(t) for t in stand_ins]
        self._entered = own
        for change, slots in zip(self._changes, self._slots, strict=True):
            change.write(self._filled(change, [own[slot] for slot in slots]))

    def _filled(self, change: Change, tensors: Sequence[Tensor]) -> Any:
        """The stored object with other tensors."""
        leaves, structure = tree_of(change.after)
        rest = iter(tensors)
        return tree.unflatten(
            structure, [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        )

    def keeps(self, stored: Stored) -> bool:
        """Whether a function changes nothing but what :meth:`enter` stores."""
        return all(any(_girih.is_same(t, own) for own in self._entered) for t in stored.tensors)

    def outputs(self, name: str, stored: Stored) -> list[Tensor]:
        """The carries after an iteration, from what the function has stored."""
        found = {change.place: change for change in stored.changes}
        out = list(self.tensors)
        for change, slots in zip(self._changes, self._slots, strict=True):
            now = found.get(change.place)
            if now is None:
                continue  # The function has stored what the place held before the loop.
            # The objects before the loop, for the message.
            pairs = _initial(f"{self._op}: {name}", now._replace(before=change.before))
            for slot, (_, after) in zip(slots, pairs, strict=True):
                out[slot] = after
        return out

    def store(self, values: Sequence[Tensor]) -> None:
        """Stores the carries after the loop."""
        for change, slots in zip(self._changes, self._slots, strict=True):
            change.write(self._filled(change, [values[slot] for slot in slots]))
