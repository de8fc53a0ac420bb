"""Tracing a function for ``compile``: its program, and the Python state that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from . import _girih, effects, tree
from ._girih import SymbolicDim, SymbolicFloat, Tensor
from .errors import InvalidArgumentError
from .guards import Guard, exact, is_plain
from .names import output_names
from .reads import Reads
from .state import announce_container
from .variables import assign, is_variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import TracedFunction
    from .references import Place, References

__all__ = ["Pattern", "Program", "StateMadeError", "trace"]

#: A pytree in the form that the extension compares and builds: its structure, and for each leaf the
#: position of its tensor or None, the leaf if it is not a tensor, and whether it is a number.
Pattern: TypeAlias = tuple[tree.TreeDef, list[tuple[int | None, Any, bool]]]

#: Types of numbers whose values are known only when a program runs.
_NUMBERS = (SymbolicDim, SymbolicFloat)

#: Marks a missing object.
_GONE = object()


class StateMadeError(BaseException):
    """Raised if an object that a function uses has created its state during tracing; the function
    must then be traced again with the state.

    It is not an :class:`Exception`, because the function might catch exceptions.
    """


class Program:
    """A traced function with its inputs and outputs other than argument and result tensors.

    Attributes:
        traced: The traced program in the extension.
        places: The places of the objects to which the function refers.
        outside: The places whose tensors are inputs of the program.
        changed: Outputs that are also stored in places, with these places.
        effects: Places in which each call stores an object other than a tensor, with the object.
        guards: The conditions on the objects in the places.
        names: The names of the arguments, for saving.
        tokens: The outputs that are tokens of calls with an effect.
        is_ordered: Whether one of these calls is ordered.
    """

    __slots__ = (
        "_numbers", "_outputs", "_references", "_static", "_treedef", "_watched", "changed",
        "effects", "guards", "is_ordered", "names", "outside", "places", "tokens", "traced",
    )  # fmt: skip

    def __init__(self, traced: TracedFunction, found: _Run, used: list[int]) -> None:
        self.traced = traced
        self.names: list[str] = []
        self.outside = used
        self.changed = found.changed
        self.effects = found.effects
        self._treedef = found.treedef
        self._static = [None if isinstance(leaf, Tensor) else leaf for leaf in found.leaves]
        self._outputs = found.where
        self._numbers = found.numbers
        self.tokens = found.tokens
        self.is_ordered = found.is_ordered
        self._watched = found.watched
        self._rebind(found.refs)

    def _rebind(self, refs: References) -> None:
        """Uses the places of these references from now on."""
        self._references = refs
        self.places = refs.places
        self.guards = _girih.Guards([_written(guard) for guard in self._wanted()])

    def _wanted(self) -> list[Guard]:
        """The guards that calls check."""
        guards, places = self._references.guards, self.places
        wanted = []
        for at, other in self._watched:
            if other is None:
                if not _is_fixed(guards[at]):
                    wanted.append(guards[at])
            else:
                wanted.append(Guard(places[at], "alias", places[other].written()))
        return wanted

    def refuses(self, tensors: list[Tensor]) -> tuple[str, str] | None:
        """The place whose object has changed since tracing, and the difference; ``None`` if the
        program is valid."""
        broken = self.guards.broken()
        if broken is not None:
            return _difference(self._wanted()[broken])
        found: list[Any] = [_held(self.places[at]) for at in self.outside]
        other = self.traced.differs(found)
        if other is not None:
            path = self.places[self.outside[other]].path
            return path, f"{path} is now {_shown(found[other])}"
        refused = self.traced.refuses(tensors)
        return None if refused is None else ("", refused)

    def serves_at(self, refs: References, tensors: list[Tensor]) -> bool:
        """Whether the program is valid for these references; if so, it uses them from now on.

        An object that was replaced by another one with the same content thus causes no new program.
        """
        before = self._references
        if len(refs.guards) != len(before.guards) or len(refs.places) != len(before.places):
            return False
        paths = zip(refs.places, before.places, strict=True)
        watched = [at for at, other in self._watched if other is None]
        if any(refs.content[at] != before.content[at] for at in watched) or any(
            now.path != then.path for now, then in paths
        ):
            return False
        self._rebind(refs)
        if self.refuses(tensors) is None:
            return True
        self._rebind(before)
        return False

    def export(self, function: str) -> _girih.Program:
        """The program with the tensors to which it refers, under their names in modules."""
        from .nn.alive import parameters_alive

        if self.changed:
            where = [at for places in self.changed.values() for at in places]
            paths = ", ".join(self.places[at].path for at in where)
            raise InvalidArgumentError(
                f"{function} puts tensors into {paths} when it is called, which a saved program "
                "cannot; return them, or save a function that does not (model.eval() for running "
                "statistics)"
            )
        if self.tokens.start < self.tokens.stop:
            raise InvalidArgumentError(
                f"{function} has callbacks with an effect, which a saved program cannot call; "
                "leave them out of the function that is saved"
            )
        pairs = zip(self._outputs, self._static, strict=True)
        others = [leaf for output, leaf in pairs if output is None]
        if others:
            raise InvalidArgumentError(
                f"{function} returns {others[0]!r} beside tensors; a saved program gives tensors"
            )
        shape = tree.unflatten(self._treedef, list(range(len(self._static))))
        names = {id(tensor): name for name, tensor in parameters_alive()}
        outside = []
        for place in (self.places[at] for at in self.outside):
            tensor = place.read()
            name = names.get(id(tensor))
            outside.append((name or place.path, tensor, name is not None))
        return self.traced.export(outside, self.names, output_names(shape))

    def value_of(self, output: Callable[[int], Any]) -> Any:
        """The function's value with ``output(position)`` in place of each output."""
        leaves = [None if at is None else output(at) for at in self._outputs]
        return tree.unflatten(self._treedef, leaves)

    def pattern(self) -> Pattern | None:
        """The pattern of the result, in the form that the extension reads.

        ``None`` if there are calls with an effect, which the extension does not support.
        """
        if self.tokens.start < self.tokens.stop:
            return None
        leaves = zip(self._outputs, self._static, self._numbers, strict=True)
        return self._treedef, list(leaves)

    def __call__(self, tensors: list[Tensor]) -> Any:
        """The function's value at these tensors."""
        outputs = self.traced.call(tensors, [self.places[at].read() for at in self.outside])
        effects.emit(outputs[self.tokens], outputs, self.is_ordered)
        leaves = [
            leaf
            if at is None
            else _girih.returned_number(outputs[at])
            if is_number
            else outputs[at]
            for at, leaf, is_number in zip(self._outputs, self._static, self._numbers, strict=True)
        ]
        for output, places in self.changed.items():
            for place in (self.places[at] for at in places):
                announce_container(place.container, place.path.rpartition(".")[0])
                held, value = _held(place), outputs[output]
                if not isinstance(held, Tensor) or not is_variable(held) or _girih.is_tracing():
                    place.write(value)
                else:
                    assign(held, value)
        for at, value in self.effects:
            self.places[at].write(value)
        return tree.unflatten(self._treedef, leaves)


class _Run:
    """The results of calling the function with placeholders."""

    def __init__(self, refs: References, name: str) -> None:
        self.refs = refs
        self.name = name
        self.leaves: list[Any] = []
        self.treedef = tree.structure(None)
        self.outputs: list[Tensor] = []
        self._output_of: dict[int, int] = {}
        #: The output for each leaf of the result; None for a leaf that is not a tensor.
        self.where: list[int | None] = []
        #: For each leaf, whether it is a Python number: a symbolic float or size.
        self.numbers: list[bool] = []
        self.changed: dict[int, list[int]] = {}
        self.effects: list[tuple[int, Any]] = []
        #: The outputs that are tokens of calls with an effect.
        self.tokens = slice(0, 0)
        self.is_ordered = False
        #: Positions of the guards that calls check, and of places that hold the same tensor.
        self.watched: list[tuple[int, int | None]] = []
        # Created before the function runs, because the function may append to guarded containers.
        self._guards = _girih.Guards([_written(guard) for guard in refs.guards])

    def _output(self, tensor: Tensor, leaf: bool = False) -> int:
        """The output of a tensor: each leaf of the result has its own output, and places share
        outputs."""
        if leaf or id(tensor) not in self._output_of:
            self._output_of.setdefault(id(tensor), len(self.outputs))
            self.outputs.append(tensor)
            return len(self.outputs) - 1
        return self._output_of[id(tensor)]

    def returned(self, value: Any) -> None:
        """Processes the results of the function, and the objects that it stored in places."""
        self.leaves, self.treedef = tree.flatten(value)
        self.numbers = [isinstance(leaf, _NUMBERS) for leaf in self.leaves]
        self.leaves = [_scalar(leaf) for leaf in self.leaves]
        self.where = [self._output(x, True) if isinstance(x, Tensor) else None for x in self.leaves]
        for at, (place, before) in enumerate(zip(self.refs.places, self.refs.before, strict=True)):
            new = _held(place)
            if new is before or new is _GONE or not place.is_writable:
                continue
            if isinstance(before, Tensor) and isinstance(new, Tensor):
                self.changed.setdefault(self._output(new), []).append(at)
            elif any(isinstance(leaf, (Tensor, *_NUMBERS)) for leaf in tree.leaves(new)):
                raise self._leak(place, "something else")
            elif not (is_plain(new) and is_plain(before) and exact(new) == exact(before)):
                self.effects.append((at, new))

    def called(self, frame: effects.Frame) -> None:
        """Adds the calls with an effect to the program."""
        self.tokens = slice(len(self.outputs), len(self.outputs) + len(frame.tokens))
        self.outputs = self.outputs + frame.tokens
        self.is_ordered = frame.is_ordered

    def _leak(self, place: Place, before: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"compile: {self.name} puts tensors into {place.path} while it is traced, where there "
            f"was {before} before; return them, and put them there where it is called"
        )

    def restore(self) -> None:
        """Restores the objects that the function has replaced, because each call of the program
        replaces them."""
        for place, value in zip(self.refs.places, self.refs.before, strict=True):
            if place.is_writable and _held(place) is not value:
                place.write(value)

    def check(self, now: References) -> None:
        """Fails if the function has stored tensors in places that did not exist before."""
        known = {(id(place.container), place.key) for place in self.refs.places}
        for place, value in zip(now.places, now.before, strict=True):
            new = (id(place.container), place.key) not in known
            if new and isinstance(value, Tensor) and value.is_lazy:
                raise self._leak(place, "nothing")

    def watch(self, outside: list[int], used: list[int], first: list[int]) -> None:
        """Chooses the guards that calls check. It leaves out inputs of the program, and objects
        that the function itself mutates, such as a list to which it appends.
        """
        position = {id(place): at for at, place in enumerate(self.refs.places)}
        skipped = {outside[i] for i in used}
        skipped |= {at for at, value in self.effects if not is_plain(value)}
        broken = set()
        at = self._guards.broken()
        while at is not None:
            broken.add(at)
            at = self._guards.broken(at + 1)
        for at, guard in enumerate(self.refs.guards):
            if at not in broken and position.get(id(guard.place)) not in skipped:
                self.watched.append((at, None))
        # Places that hold the same tensor are one input of the program.
        for i, same in enumerate(first):
            if i != same and same in used:
                self.watched.append((outside[i], outside[same]))


def trace(
    fun: Callable[[list[Tensor]], Any],
    tensors: list[Tensor],
    dynamic: list[Any],
    look: Callable[[], References],
    name: str,
    names: list[str],
) -> Program:
    """The program of a function of a list of tensors.

    Args:
        fun: Called once, with placeholders.
        tensors: The current arguments of the function.
        dynamic: The dynamic axes of each tensor.
        look: Finds the references of the function.
        name: The name of the function, for messages.
        names: The names of the tensors, for messages.
    """
    while True:
        try:
            return _traced(fun, tensors, dynamic, look, name, names)
        except StateMadeError:
            continue


def _traced(
    fun: Callable[[list[Tensor]], Any],
    tensors: list[Tensor],
    dynamic: list[Any],
    look: Callable[[], References],
    name: str,
    names: list[str],
) -> Program:
    refs = look()
    run = _Run(refs, name)
    outside = [at for at, value in enumerate(refs.before) if isinstance(value, Tensor)]

    def traced(placeholders: list[Tensor]) -> list[Tensor]:
        try:
            with effects.collected() as frame, Reads(refs.refused.keys()) as reads:
                run.returned(fun(placeholders))
            for name in reads.found:
                raise refs.refused[name]
            run.called(frame)
        finally:
            run.restore()
        return run.outputs

    held = [refs.before[at] for at in outside]
    program, used, first = _girih.trace_function(tensors, dynamic, held, names, traced)
    run.check(look())
    run.watch(outside, used, first)
    return Program(program, run, [outside[i] for i in used])


def _scalar(leaf: Any) -> Any:
    """Converts a symbolic number to a tensor; returns other objects unchanged."""
    if isinstance(leaf, SymbolicFloat):
        return leaf.tensor
    return _girih.asarray(leaf) if isinstance(leaf, SymbolicDim) else leaf


def _held(place: Place) -> Any:
    try:
        return place.read()
    except (ValueError, LookupError, AttributeError):
        return _GONE


def _is_fixed(guard: Guard) -> bool:
    """Whether the object in the place cannot change: it is part of a tuple."""
    return type(guard.place.container) is tuple and guard.kind in ("same", "equal", "spec")


def _written(guard: Guard) -> tuple[tuple[Any, Any, bool], str, Any]:
    return guard.place.written(), guard.kind, guard.value


def _shown(value: Any) -> str:
    if value is _GONE:
        return "gone"
    if isinstance(value, Tensor):
        return f"a tensor of shape {value.shape} and dtype {value.dtype.name}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _difference(guard: Guard) -> tuple[str, str]:
    path, now = guard.place.path, _shown(_held(guard.place))
    if guard.kind == "equal":
        return path, f"{path} was {_shown(guard.value)} and is now {now}"
    if guard.kind == "alias":
        return path, f"{path} was the same tensor as another one's and is now one of its own"
    if guard.kind == "spec":
        return path, f"{path} was {_shown(guard.value)} and is now {now}"
    if guard.kind == "instance":
        cls, attributes, absent = guard.value
        hidden = next((name for name in absent if name in attributes), None)
        if hidden is not None:
            return path, f"{path}.{hidden} was a method and is now an attribute of the object"
        found = type(guard.place.container).__name__
        return path, f"{path} was of class {cls.__name__} and is now of {found}"
    if guard.kind == "method":
        return path, f"{path} was replaced"
    return path, f"{path} is not what it was: it is now {now}"
