"""Debugging of running programs: prints, checks and callbacks, in compiled code too."""

from __future__ import annotations

import builtins
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._girih import asarray, has_protocol
from .callbacks import io_callback
from .checks import explain_public
from .errors import CheckError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["callback", "check", "print"]


def callback(fun: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Calls a Python function each time that the program runs; its result is ignored.

    Args:
        fun: Called with a NumPy array for each tensor, and the other arguments unchanged.
        args: Pytrees of tensors, and other objects.
        ordered: Whether the call waits for the ordered calls recorded before it.
        kwargs: As ``args``.

    Example:
        >>> import girih as gr
        >>> gr.debug.callback(lambda x: print(x.sum()), gr.asarray([1, 2]))
        3
    """
    io_callback(fun, None, *args, ordered=ordered, **kwargs)


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Prints a line each time that the program runs, in compiled and transformed code too.

    Under ``vmap`` there is a line for each member of the batch.

    Args:
        fmt: A format string, as for ``str.format``.
        args: Tensors, and other objects, for the fields of ``fmt``.
        ordered: Whether the line comes after the ordered lines recorded before it.
        kwargs: As ``args``.

    Raises:
        InvalidArgumentError: ``fmt`` is not a string, or does not fit the arguments; the latter is
            found when the program runs.

    Example:
        >>> import girih as gr
        >>> f = gr.compile(lambda x: (gr.debug.print("x is {:.1f}", x), x * 2)[1])
        >>> f(gr.asarray(1.5)).item()
        x is 1.5
        3.0
    """
    if not isinstance(fmt, str):
        raise InvalidArgumentError(
            f"debug.print: the first argument is a {type(fmt).__name__}; expected a format string "
            'such as "x = {}"'
        )
    callback(_printer(fmt), *args, ordered=ordered, **kwargs)


def _formatted(name: str, fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def scalar(x: Any) -> Any:
        return x[()] if has_protocol(x, "dtype") and has_protocol(x, "shape") else x

    try:
        return fmt.format(*map(scalar, args), **{k: scalar(v) for k, v in kwargs.items()})
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(
            f"debug.{name}: the format {fmt!r} does not fit its arguments, {len(args)} by position "
            f"and {list(kwargs)} by name: {type(error).__name__}: {error}"
        ) from error


def _write(line: str) -> None:
    """Prints a line; characters that the standard output cannot encode are escaped."""
    try:
        builtins.print(line, flush=True)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding
        builtins.print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


@functools.lru_cache(maxsize=256)
def _printer(fmt: str) -> Callable[..., None]:
    """A function that prints with a format; cached by format, so that equal calls hit the program
    cache."""

    def printed(*args: Any, **kwargs: Any) -> None:
        _write(_formatted("print", fmt, args, kwargs))

    return printed


def check(
    condition: Any, fmt: str = "the condition does not hold", *args: Any, **kwargs: Any
) -> None:
    """Raises an error when the program runs, if any element of a condition is false.

    Args:
        condition: A bool tensor.
        fmt: The message: a format string, as for ``str.format``.
        args: Tensors, and other objects, for the fields of ``fmt``.
        kwargs: As ``args``.

    Raises:
        CheckError: When the program runs; the message ends with the line that recorded the check.

    Example:
        >>> import girih as gr
        >>> x = gr.asarray([1.0, -1.0])
        >>> gr.debug.check(x > 0, "x must be positive, got {}", x)
        Traceback (most recent call last):
        ...
        girih.errors.CheckError: x must be positive, got [ 1. -1.] (recorded at ...)
    """
    if not isinstance(condition, bool):
        condition = asarray(condition)
    callback(_checker(fmt, _line()), condition, *args, **kwargs)


def _line() -> str:
    """The line outside of this package that is being executed."""
    own = str(Path(__file__).parent)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@functools.lru_cache(maxsize=1024)
def _checker(fmt: str, line: str) -> Callable[..., None]:
    def checked(condition: Any, *args: Any, **kwargs: Any) -> None:
        if not (condition if isinstance(condition, bool) else condition.all()):
            message = _formatted("check", fmt, args, kwargs)
            raise CheckError(f"{message} (recorded at {line})")

    return checked


explain_public(globals())
