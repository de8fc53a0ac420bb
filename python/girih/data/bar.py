"""A progress bar for loops."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeVar

from .._girih import has_protocol
from ..checks import check_arguments, explain_public
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Progress", "progress"]

_T = TypeVar("_T")
_WIDTH = 24
#: Minimum seconds between two lines of a bar that is not on a terminal.
_SECONDS_PER_LINE = 10.0


class Progress(Generic[_T]):
    """An iterable that shows the progress of its loop: see :func:`progress`.

    Args:
        items: The items of the loop.
        description: The text before the bar.
        total: The number of items, if ``len`` does not give it.
        file: The file of the bar, standard error by default.
        interval: Seconds between two updates of the bar on a terminal.
    """

    def __init__(
        self,
        items: Iterable[_T],
        description: str = "",
        total: int | None = None,
        file: TextIO | None = None,
        interval: float = 0.1,
    ) -> None:
        check_arguments(
            "progress", type(self).__init__, (self, items, description, total, file, interval), {}
        )
        if interval < 0:
            raise InvalidArgumentError(f"progress: interval must not be negative, got {interval}")
        if total is None:
            try:
                total = len(items)  # type: ignore[arg-type]
            except TypeError:
                total = None
        self._items, self._description, self._total = items, description, total
        self._file = sys.stderr if file is None else file
        self._live = self._file.isatty()
        self._interval = interval if self._live else max(interval, _SECONDS_PER_LINE)
        self._values: dict[str, Any] = {}
        self._done = 0
        self._started = self._shown = time.monotonic()
        self._width = 0

    def set(self, **values: Any) -> None:
        """Shows numbers after the bar.

        Args:
            values: Numbers or scalar tensors, by name; a tensor is evaluated when it is shown.
        """
        self._values.update(values)

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError("Progress: the number of items is not known")
        return self._total

    def __iter__(self) -> Iterator[_T]:
        self._done, self._started = 0, time.monotonic()
        self._shown = self._started if not self._live else float("-inf")
        try:
            for item in self._items:
                self._maybe_show()
                yield item
                self._done += 1
        finally:
            self._show(last=True)

    def _maybe_show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= self._interval:
            self._show(last=False)
            self._shown = now

    def _show(self, last: bool) -> None:
        line = self.line()
        if self._live:
            padded = line.ljust(self._width)
            self._width = len(line)
            self._file.write(f"\r{padded}" + ("\n" if last else ""))
        else:
            self._file.write(f"{line}\n")
        self._file.flush()

    def line(self) -> str:
        """The current text of the bar."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        speed = self._done / seconds
        parts = [self._description] if self._description else []
        if self._total:
            share = min(self._done / self._total, 1.0)
            bar = "█" * int(share * _WIDTH)
            parts.append(f"{bar:░<{_WIDTH}} {share:4.0%} {self._done}/{self._total}")
            if 0 < self._done < self._total:
                parts.append(f"{_clock((self._total - self._done) / speed)} left")
        else:
            parts.append(f"{self._done}")
        parts.append(f"{speed:.1f}/s")
        parts += [f"{name} {_number(value)}" for name, value in self._values.items()]
        return "  ".join(parts)


def _number(value: Any) -> str:
    value = value.item() if has_protocol(value, "item") else value
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def progress(
    items: Iterable[_T],
    description: str = "",
    total: int | None = None,
    file: TextIO | None = None,
    interval: float = 0.1,
) -> Progress[_T]:
    """An iterable with a progress bar: completed fraction, remaining time, speed, and user numbers.

    On a terminal the bar is redrawn in one line; otherwise a line is printed every ten seconds and
    at the end.

    Args:
        items: The items of the loop.
        description: The text before the bar.
        total: The number of items, if ``len`` does not give it.
        file: The file of the bar, standard error by default.
        interval: Seconds between two updates of the bar on a terminal.

    Returns:
        The iterable; its ``set`` shows numbers after the bar.

    Raises:
        InvalidArgumentError: The interval is negative.

    Example:
        >>> import girih as gr, sys
        >>> bar = gr.data.progress(range(4), "training", file=sys.stdout)
        >>> for step in bar:
        ...     bar.set(loss=1 / (step + 1))
        training  ████████████████████████ 100% 4/4  ...  loss 0.25
    """
    return Progress(items, description, total, file, interval)


explain_public(globals())
