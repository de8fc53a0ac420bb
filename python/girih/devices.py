"""The devices that programs run on, and their memory."""

from __future__ import annotations

from typing import NamedTuple

from . import _girih
from .checks import explain_public
from .scopes import Scope

__all__ = [
    "Device",
    "MemoryStats",
    "device",
    "devices",
    "memory_stats",
    "reset_peak_memory_stats",
    "warmup",
]


class MemoryStats(NamedTuple):
    """Statistics of the allocator of a device, in bytes unless noted otherwise.

    Attributes:
        capacity: The memory that may be used.
        in_use: Blocks in use, each rounded up to 128 bytes.
        requested: Blocks in use, with the sizes as requested.
        peak: The peak of the memory in use.
        blocks: Number of blocks in use.
        allocations: Number of allocations so far.
        largest_free: The largest block that can be allocated.
        fragmentation: Fraction of the free memory that is outside of the largest free block of its
            region, 0 to 1.
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
    """A device that programs run on. Arguments ``device=`` take the device or its name.

    Attributes:
        name: The name of the device, such as ``cpu``.
        target: The compilation target of programs.
        concurrency: Maximum number of concurrent evaluations, each on its own stream; None for no
            limit.
    """

    name: str
    target: str
    concurrency: int | None

    def __str__(self) -> str:
        return self.name

    def memory_stats(self) -> MemoryStats:
        """The current memory of the device; see :func:`memory_stats`."""
        return memory_stats(self)


class device(Scope[str]):  # noqa: N801 - reads as a function where it is used
    """A device, as an argument, and as a context manager in which it is the current one.

    Arguments ``device=`` and :meth:`Tensor.to` take it, as they take a name. It equals its name,
    and other objects for the same device.

    Data is copied to the current device, and constants, ranges and random draws are recorded for
    it. Results are on the device of their operands, even if another device is current: see
    :meth:`Tensor.to`.

    Args:
        device: A device or its name: ``cpu``; ``cpu:1`` and so on, as many as the environment
            variable ``GIRIH_HOST_DEVICES`` sets; ``mock``, a simulated accelerator that computes on
            the host, with any of ``physical``, ``corrected``, ``concurrent`` and
            ``host_control_flow`` behind a colon.

    Attributes:
        name: The name of the device.
        type: The name without a number.
        index: The number behind the name, or None.

    Raises:
        DeviceError: There is no such device.

    Example:
        >>> import girih as gr
        >>> with gr.device("mock"):
        ...     x = gr.asarray([1.0, 2.0])
        >>> x.device, (x + 1).device, gr.ones(2).device
        ('mock', 'mock', 'cpu')
        >>> gr.ones(2).to(gr.device("mock")).device == gr.device("mock")
        True
    """

    def __init__(self, device: Device | device | str) -> None:
        _girih.check_device(device)
        self.name = str(device)
        super().__init__(lambda n: _girih.enter_scope(n, device=self.name), _girih.device_name)

    @property
    def type(self) -> str:
        """The name without a number or options."""
        return self.name.partition(":")[0]

    @property
    def index(self) -> int | None:
        """The number behind the name, or None."""
        number = self.name.partition(":")[2]
        return int(number) if number.isdecimal() else None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.name == other
        return isinstance(other, (device, Device)) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def devices() -> list[Device]:
    """The devices of the process, the current one first.

    The list contains ``cpu``, further devices of the host's processor if ``GIRIH_HOST_DEVICES`` is
    set, and each other device after its first use, by ``GIRIH_DEVICE`` or in a call.

    Returns:
        The devices.

    Raises:
        EvaluationError: The environment names a device that cannot be created.

    Example:
        >>> import girih as gr
        >>> gr.devices()[0].name
        'cpu'
    """
    return [Device(*facts) for facts in _girih.devices()]


def memory_stats(device: Device | str | None = None) -> MemoryStats:
    """Statistics of the memory of a device.

    Args:
        device: A device or its name; None for the current one.

    Returns:
        The current statistics of the device's allocator.

    Raises:
        DeviceError: There is no such device.

    Example:
        >>> import girih as gr
        >>> before = gr.memory_stats()
        >>> x = gr.eval(gr.ones([1024]) + 1)
        >>> gr.memory_stats().requested - before.requested
        4096
    """
    return MemoryStats(**_girih.memory_stats(device))


def reset_peak_memory_stats(device: Device | str | None = None) -> None:
    """Resets :attr:`MemoryStats.peak` to the memory that is in use now.

    Args:
        device: A device or its name; None for the current one.

    Raises:
        DeviceError: There is no such device.

    Example:
        >>> import girih as gr
        >>> gr.reset_peak_memory_stats()
        >>> stats = gr.memory_stats()
        >>> stats.peak == stats.in_use
        True
    """
    _girih.reset_peak_memory(device)


def warmup(device: Device | str | None = None) -> None:
    """Prepares a device, so that the first programs do not wait for its initialisation.

    It starts the threads of kernels, measures the machine unless an earlier process has done so,
    and makes the system provide the memory that programs use first. Without this call the first
    programs do this work. It runs and compiles no program: :func:`compile_only` compiles the graph
    of tensors in the background, and ``lower(...)`` of a compiled function, followed by
    ``compile()``, compiles it for given arguments. The memory does not count as used in
    :func:`memory_stats`.

    Args:
        device: A device or its name; None for the current one.

    Raises:
        DeviceError: There is no such device.
        EvaluationError: The environment does not allow the device to be set up.

    Example:
        >>> import girih as gr
        >>> before = gr.memory_stats().in_use
        >>> gr.warmup()
        >>> gr.memory_stats().in_use == before
        True
    """
    _girih.warm_up(device)


explain_public(globals())
