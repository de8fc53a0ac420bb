"""Profiles: the times of kernels, copies and compilations, as a table or for a trace viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from . import _girih
from .checks import explain_public
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

__all__ = ["Span", "profile"]


class Span(NamedTuple):
    """The execution of a kernel, a copy, or a compilation.

    Args:
        name: The name of the kernel; for other kinds of spans, the kind.
        kind: ``"launch"``, ``"copy_to_device"``, ``"copy_from_device"`` or ``"compile"``.
        stream: The number of the stream on its device; None for host work without a stream.
        start: The start in seconds, since an arbitrary moment before the profile.
        duration: The duration in seconds.
        bytes: The number of bytes copied; 0 for other kinds.
        device: The name of the device.
        chunks: The number of parts of a kernel, which may run on several threads.
        chunks_of_workers: The number of these parts that ran on other threads than the one that
            launched the kernel.
    """

    name: str
    kind: str
    stream: int | None
    start: float
    duration: float
    bytes: int
    device: str
    chunks: int = 0
    chunks_of_workers: int = 0


class profile:  # noqa: N801 - a context manager, named as PyTorch's
    """A context manager that records when each kernel, copy and compilation ran.

    It records the whole process: all threads and streams. It does not record work that was
    submitted but has not run at the end of the block; :func:`girih.synchronize` waits for this
    work. ``python -m girih trace`` does the same for a graph file.
    """

    def __init__(self) -> None:
        self._handle = _girih.TimelineHandle()

    def __enter__(self) -> profile:
        self._handle.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.stop()

    @property
    def spans(self) -> list[Span]:
        """The spans so far, in the order in which they ended."""
        return [Span(*row) for row in self._handle.spans()]

    @property
    def compile_time_ms(self) -> float:
        """Milliseconds of the spans that compile, of all threads."""
        return self._handle.compile_time_ms()

    @property
    def execution_time_ms(self) -> float:
        """Milliseconds of all other spans: kernels, copies and host functions, of all streams."""
        return self._handle.execution_time_ms()

    @property
    def dropped(self) -> int:
        """The number of spans that were dropped, oldest first, because there were more than a
        million."""
        return self._handle.dropped()

    def table(self) -> str:
        """The spans by name with calls, total and mean time, chunks, and the chunks that other
        threads ran, sorted by descending total time.

        Returns:
            The table, with one line for each name.
        """
        return self._handle.table()

    def export_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Writes the spans in Chrome's trace event format, which Perfetto reads too.

        Args:
            path: The file to write, .json.
        """
        self._handle.save(path)

    def export_html(self, path: str | PathLike[str]) -> None:
        """Writes the spans as an HTML page with a row for each stream, which can be panned and
        zoomed.

        Args:
            path: The file to write, .html.

        Raises:
            InvalidArgumentError: The file does not have the suffix .html.
        """
        if not str(path).endswith(".html"):
            raise InvalidArgumentError(
                f"export_html: expected a path that ends in .html, got {path}"
            )
        self._handle.save(path)

    def __repr__(self) -> str:
        return self.table()


explain_public(globals())
