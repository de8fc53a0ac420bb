"""Scopes: settings of a thread or an asyncio task for a block."""

from __future__ import annotations

import itertools
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "Scope",
    "debug_nans",
    "eager_mode",
    "enable_grad",
    "is_eager",
    "is_grad_enabled",
    "named_scope",
    "no_grad",
    "set_debug_nans",
    "set_eager",
    "set_source_lines",
    "stream",
    "verify_shapes",
]

T = TypeVar("T")


#: The numbers for new scopes.
_numbers = itertools.count(1)


class Scope(ContextDecorator, Generic[T]):
    """A context manager and decorator that changes settings of its context until the end of the
    block.

    It belongs to the asyncio task, or else the thread, that entered it, and nests. It can be
    entered again, even by several tasks concurrently, and it can exit before scopes that were
    entered later, as happens with interleaved generators.
    """

    def __init__(self, enter: Callable[[int], Any], value: Callable[[], T]) -> None:
        self._enter = enter
        self._value = value
        self._number = next(_numbers)

    def __enter__(self) -> T:
        self._enter(self._number)
        return self._value()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _girih.leave_scope(self._number)


def eager_mode(on: bool = True) -> Scope[None]:
    """A context manager in which each op is computed as soon as it is recorded.

    Use it to find the op that fails: the error is raised at the line of the op. Numbers, gradients
    and recorded nodes are those of lazy mode (except for passes that change rounding, such as
    ``log_softmax`` for the logarithm of a softmax). Ops on arguments of a function being traced
    stay lazy, because the arguments have no values. ``GIRIH_EAGER_MAX_GRAPH=1`` in the environment
    enables eager mode from the start.

    Example:
        >>> import girih as gr
        >>> with gr.eager_mode():
        ...     (gr.ones([2]) + 1).state()
        'available'
    """
    return Scope(lambda n: _girih.enter_scope(n, eager=on), lambda: None)


def set_eager(on: bool) -> None:
    """Switches eager mode on or off for this context; see :func:`eager_mode`."""
    _girih.set_eager(on)


def is_eager() -> bool:
    """Whether ops are computed as soon as they are recorded.

    Raises:
        InvalidArgumentError: ``GIRIH_EAGER_MAX_GRAPH`` does not have the value of a switch.
    """
    return _girih.is_eager()


def verify_shapes(on: bool = True) -> Scope[None]:
    """A context manager in which the shapes of computed values are compared with the shape rules.

    An op with a wrong shape rule raises :class:`EvaluationError` with its name and both shapes when
    it is compiled, or when it is recorded in eager mode. ``GIRIH_VERIFY_SHAPES=1`` in the
    environment enables the check from the start.
    """
    return Scope(lambda n: _girih.enter_scope(n, verify=on), lambda: None)


def debug_nans(on: bool = True) -> Scope[None]:
    """A context manager in which a NaN in a result is an error that names the origin of the NaN.

    When an evaluation, or a compiled function, gives a NaN, the program runs again and stores every
    value, and :class:`EvaluationError` names the first op whose result has a NaN, its node and the
    line that recorded it. For ops inside of branches and loops it names the branch or loop. In this
    mode ``async_eval`` waits for its evaluation, nothing is donated, and callbacks are called once
    more. The tensors get their values despite the error. ``GIRIH_DEBUG_NANS=1`` in the environment
    enables the mode from the start.

    Args:
        on: Whether NaNs are errors in the block.

    Returns:
        The context manager.

    Example:
        >>> import girih as gr
        >>> with gr.debug_nans():
        ...     try:
        ...         (gr.log(gr.asarray([-1.0])) + 1).eval()
        ...     except gr.EvaluationError as error:
        ...         print(str(error).split(" (")[0])
        Execution failed: log gives a NaN, the first of this program
    """
    return Scope(lambda n: _girih.enter_scope(n, nans=on), lambda: None)


def set_debug_nans(on: bool) -> None:
    """Switches the search for NaNs on or off for this context; see :func:`debug_nans`."""
    _girih.set_debug_nans(on)


def stream(stream: _girih.Stream | None) -> Scope[_girih.Stream]:
    """A context manager in which programs are submitted to a stream.

    Args:
        stream: The stream; None keeps the current stream.

    Returns:
        The context manager, whose value is the stream.

    Raises:
        InvalidArgumentError: The argument is not a stream.
    """
    if stream is not None and not isinstance(stream, _girih.Stream):
        raise InvalidArgumentError(
            f"stream: expected a Stream or None, got {type(stream).__name__}; gr.Stream() makes one"
        )
    return Scope(lambda n: _girih.enter_scope(n, stream=stream), _girih.current_stream)


def no_grad() -> Scope[None]:
    """A context manager and decorator in which recorded tensors do not require gradients.

    It is for the imperative style (``requires_grad_``, ``backward``): for parameter updates, and
    for programs that need no gradients. It does not affect :func:`girih.grad` and other transforms.

    Returns:
        The context manager.

    Example:
        >>> import girih as gr
        >>> x = gr.ones([2]).requires_grad_()
        >>> with gr.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """
    return Scope(lambda n: _girih.enter_scope(n, grad=False), lambda: None)


def enable_grad() -> Scope[None]:
    """A context manager that undoes :func:`no_grad` for a block.

    Returns:
        The context manager.

    Example:
        >>> import girih as gr
        >>> x = gr.ones([2]).requires_grad_()
        >>> with gr.no_grad(), gr.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """
    return Scope(lambda n: _girih.enter_scope(n, grad=True), lambda: None)


def is_grad_enabled() -> bool:
    """Whether results of tensors that require gradients require gradients too.

    Returns:
        False under :func:`no_grad`.

    Example:
        >>> import girih as gr
        >>> with gr.no_grad():
        ...     gr.is_grad_enabled()
        False
    """
    return _girih.is_grad_enabled()


def set_source_lines(on: bool) -> None:
    """Switches the recording of source lines of ops, which errors of evaluation name.

    It is on by default and applies to the whole process; ``GIRIH_SOURCE_LINES=0`` switches it off.
    Recording an op is faster without source lines; ``make bench`` measures the difference.
    """
    _girih.set_source_lines(on)


class named_scope(Scope[None]):  # noqa: N801 - reads as a function where it is used
    """A context manager and decorator that names the ops recorded in it.

    Names nest. Their path groups nodes in pictures, is stored in files and appears in errors; a
    module enters a scope with its name when it is called. Names do not affect results. They are
    recorded only if source lines are (:func:`set_source_lines`).

    Args:
        name: The name, without dots, which separate the names of a path.

    Example:
        >>> import girih as gr
        >>> with gr.named_scope("attention"):
        ...     y = gr.zeros([2]).exp()
        >>> "attention" in gr.graph_to_dot(y)
        True
    """

    def __init__(self, name: str) -> None:
        super().__init__(lambda n: _girih.enter_scope(n, name=name), lambda: None)


explain_public(globals())
