"""Effects of callbacks: the host calls that a function being traced has recorded.

A call with an effect returns a *token* beside its results, a uint8 tensor. The tracer of a function
collects the tokens (:func:`collected`) and makes them outputs of the graph, so that no pass removes
the calls, and then passes the tokens on (:func:`emit`). Outside of any trace the calls run
immediately.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from . import _girih

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._girih import Tensor

__all__ = ["Frame", "collected", "emit", "last_ordered"]


class Frame:
    """The calls with an effect that one function being traced has recorded.

    Attributes:
        tokens: A token for each call with an effect.
        ordered: The token of the last ordered call.
    """

    __slots__ = ("ordered", "tokens")

    def __init__(self) -> None:
        self.tokens: list[Tensor] = []
        self.ordered: Tensor | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether one of the calls is ordered."""
        return self.ordered is not None


#: The frames of the functions being traced, the innermost last.
_FRAMES: ContextVar[tuple[Frame, ...]] = ContextVar("frames", default=())


@contextmanager
def collected() -> Iterator[Frame]:
    """A scope in which a function is traced and the tokens of its calls are collected."""
    frame = Frame()
    before = _FRAMES.set((*_FRAMES.get(), frame))
    try:
        yield frame
    finally:
        _FRAMES.reset(before)


def last_ordered() -> Tensor | None:
    """The token that the next ordered call waits for."""
    found = (frame.ordered for frame in reversed(_FRAMES.get()))
    return next((token for token in found if token is not None), None)


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
