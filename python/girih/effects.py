"""Effects of a function being traced: host calls, and tensors that it stores in objects.

A call with an effect returns a *token* beside its results, a uint8 tensor. The tracer of a function
collects the tokens (:func:`collected`) and makes them outputs of the graph, so that no pass removes
the calls, and then passes the tokens on (:func:`emit`). Outside of any trace the calls run
immediately. The same holds for the tensors that the function stores in objects
(:mod:`girih.stored`): they are outputs of the graph, and the tracer stores their values.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from . import _girih, state
from .stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from ._girih import Tensor

__all__ = ["Frame", "collected", "emit", "is_tracing", "last_ordered", "number", "scalar"]


class Frame:
    """The effects of one function being traced.

    Attributes:
        tokens: A token for each call with an effect.
        ordered: The token of the last ordered call.
        stored: What the function has stored in objects, once it has returned.
        is_program: Whether the function becomes a program, which knows no calls outside.
    """

    __slots__ = ("_numbers", "is_program", "ordered", "stored", "tokens")

    def __init__(self, is_program: bool) -> None:
        self.is_program = is_program
        #: For each callback, the number of its calls in this function and those within it.
        self._numbers: dict[int, int] = {}
        self.tokens: list[Tensor] = []
        self.ordered: Tensor | None = None
        self.stored = Stored([])

    def outputs(self) -> list[Tensor]:
        """The tokens and the stored tensors, which are further outputs of the function."""
        return self.tokens + self.stored.tensors

    def number(self, callback: int) -> int:
        """How many calls of a callback, by its identity, there were before; counts one more."""
        found = self._numbers.get(callback, 0)
        self._numbers[callback] = found + 1
        return found

    def emit(self, values: Sequence[Tensor], along: Iterable[Tensor] = ()) -> None:
        """Passes the values of :meth:`outputs` on: emits the tokens, and stores the tensors.

        Args:
            values: The values of the outputs.
            along: As for :func:`emit`.
        """
        count = len(self.tokens)
        self.stored.store(values[count:])
        emit(values[:count], [*along, *values[count:]], self.is_ordered)

    @property
    def is_ordered(self) -> bool:
        """Whether one of the calls is ordered."""
        return self.ordered is not None


#: The frames of the functions being traced, the innermost last.
_FRAMES: ContextVar[tuple[Frame, ...]] = ContextVar("frames", default=())


@contextmanager
def collected(*roots: Any) -> Iterator[Frame]:
    """A scope in which a function is traced and its effects are collected.

    Afterwards the objects in which the function stored tensors hold what they held before.

    Args:
        roots: The function, and objects among its arguments. Without them the function becomes a
            program, whose tracer finds the stored tensors itself.
    """
    frame = Frame(not roots)
    watch = state.Watch(roots) if roots else None
    before = _FRAMES.set((*_FRAMES.get(), frame)), state.watched(watch)
    changes: list[state.Change] = []
    try:
        yield frame
    finally:
        _FRAMES.reset(before[0])
        before[1]()
        if watch is not None:
            changes = watch.changes()
            for change in changes:
                change.restore()
    frame.stored = Stored(changes)


def last_ordered() -> Tensor | None:
    """The token that the next ordered call waits for."""
    for frame in reversed(_FRAMES.get()):
        if frame.ordered is not None or frame.is_program:
            return frame.ordered
    return None


def scalar(token: Tensor) -> Tensor:
    """A token as a scalar. The token of a loop has an axis, which may be empty."""
    return token if token.ndim == 0 else _girih.any(token != 0).astype(_girih.uint8)


def number(callback: int) -> int:
    """How many calls of a callback the outermost function being traced has recorded before."""
    frames = _FRAMES.get()
    return frames[0].number(callback) if frames else 0


def is_tracing() -> bool:
    """Whether a function is being traced, by a transform or as a program."""
    return bool(_FRAMES.get())


def emit(tokens: Iterable[Tensor], along: Iterable[Tensor] = (), ordered: bool = False) -> None:
    """Passes tokens to the function being traced; outside of any trace, evaluates them immediately.

    Args:
        tokens: Tokens of calls.
        along: Other results of the same graph, which are evaluated in the same run.
        ordered: Whether the next ordered call waits for the last of the tokens.
    """
    tokens = list(tokens)
    if not tokens:
        return
    frames = _FRAMES.get()
    if not frames:
        _girih.eval_many([*tokens, *along])
        return
    frames[-1].tokens += tokens
    if ordered:
        frames[-1].ordered = tokens[-1]
