"""The machine: its processor and load, and the memory of this process."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def processor() -> str:
    """The processor's name, with family and model where the system tells them.

    Hypervisors may hide the name: processors of several generations are an "AMD EPYC".
    """
    try:
        return processor_in(Path("/proc/cpuinfo").read_text())
    except OSError:
        return processor_in("")


def processor_in(cpuinfo: str) -> str:
    """As `processor`, from the text of `/proc/cpuinfo`."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    found: dict[str, str] = {}
    for key, _, value in lines:
        found.setdefault(key.strip(), value.strip())
    names = (found.get("model name"), found.get("Model"), platform.processor())
    name = next(filter(None, names), platform.machine())
    if "cpu family" in found and "model" in found:
        return f"{name} (family {found['cpu family']}, model {found['model']})"
    return name


def load() -> tuple[float, ...] | None:
    """The load averages of the last 1, 5 and 15 minutes: the number of runnable processes."""
    try:
        return tuple(round(x, 1) for x in os.getloadavg())
    except OSError:
        return None


def others_running() -> float | None:
    """The number of runnable threads now, less this one; None if the system does not say.

    Unlike the load average, it does not contain what ran before.
    """
    counts = []
    for _ in range(10):
        try:
            counts.append(int(Path("/proc/loadavg").read_text().split()[3].split("/")[0]) - 1)
        except (OSError, ValueError, IndexError):
            return None
        time.sleep(0.05)
    return statistics.mean(counts)


def caches(threads: int) -> list[int]:
    """The sizes of the data caches in bytes, smallest first; none if the system does not say.

    A cache counts once for each thread that has one of its own.
    """
    found = []
    cpus = os.cpu_count() or 1
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, size, shared = (
                (folder / name).read_text().strip() for name in ("type", "size", "shared_cpu_map")
            )
            bits = int(shared.replace(",", ""), 16).bit_count()
            each = int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            found.append(each * max(1, min(threads, cpus) // max(1, bits)))
    return sorted(found)


def resident_bytes() -> tuple[int, int] | None:
    """The resident memory of this process in bytes, and its peak since `forget_peak`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(sizes["VmRSS"]) * 1024, int(sizes["VmHWM"]) * 1024


def forget_peak() -> bool:
    """Resets the peak of resident memory; False if the system does not support it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
