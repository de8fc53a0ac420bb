"""The device that programs run on, and its memory."""

from __future__ import annotations

from typing import NamedTuple

from . import _girih

__all__ = ["Device", "MemoryStats", "devices", "memory_stats", "reset_peak_memory_stats"]


class MemoryStats(NamedTuple):
    """What the allocator of a device holds; bytes unless said otherwise.

    Attributes:
        capacity: All that may be used.
        in_use: Blocks in use, each rounded up to 128 bytes.
        requested: Blocks in use, as they were asked for.
        peak: The most that was in use at once.
        blocks: Number of blocks in use.
        allocations: Number of blocks ever handed out.
        largest_free: The largest block that would be granted.
        fragmentation: Share of free memory outside of its region's largest free block, 0 to 1.
    """

    capacity: int
    in_use: int
    requested: int
    peak: int
    blocks: int
    allocations: int
    largest_free: int
    fragmentation: float


class Device(NamedTuple):
    """A device that programs run on. Its name, or the device itself, is what ``device=`` takes.

    Attributes:
        name: Its name, such as ``cpu``.
        target: What programs are compiled for.
        concurrency: Evaluations, each on its own stream, that run at once; None for no limit.
    """

    name: str
    target: str
    concurrency: int | None

    def __str__(self) -> str:
        return self.name

    def memory_stats(self) -> MemoryStats:
        """Its memory now; see :func:`memory_stats`."""
        return memory_stats(self)


def devices() -> list[Device]:
    """The devices of the process: the one that the environment variable ``GIRIH_DEVICE`` names.

    Returns:
        The devices, ``cpu`` unless the variable says otherwise.

    Raises:
        EvaluationError: The environment asks for a device that cannot be set up.

    Example:
        >>> import girih as gr
        >>> [device.name for device in gr.devices()]
        ['cpu']
    """
    return [Device(*facts) for facts in _girih.devices()]


def memory_stats(device: Device | str | None = None) -> MemoryStats:
    """The memory of a device.

    Args:
        device: A device or its name; None for the one that programs run on.

    Returns:
        What its allocator holds now.

    Raises:
        DeviceError: There is no such device.

    Example:
        >>> import girih as gr
        >>> before = gr.memory_stats()
        >>> x = gr.eval(gr.ones([1024]) + 1)
        >>> gr.memory_stats().requested - before.requested
        4096
    """
    return MemoryStats(**_girih.memory_stats(None if device is None else str(device)))


def reset_peak_memory_stats() -> None:
    """Measures :attr:`MemoryStats.peak` anew, from what is in use now.

    Example:
        >>> import girih as gr
        >>> gr.reset_peak_memory_stats()
        >>> stats = gr.memory_stats()
        >>> stats.peak == stats.in_use
        True
    """
    _girih.reset_peak_memory()
