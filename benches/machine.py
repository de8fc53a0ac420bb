"""The machine: its processor, load and measured limits, and the memory of this process."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def processor() -> str:
    """The processor's name."""
    names = ("model name", "Model")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = (line.split(":")[1].strip() for line in lines if line.startswith(names))
    return next(found, platform.processor() or platform.machine())


def load() -> tuple[float, ...] | None:
    """The load averages of the last 1, 5 and 15 minutes: the number of runnable processes."""
    try:
        return tuple(round(x, 1) for x in os.getloadavg())
    except OSError:
        return None


def limits(threads: int) -> dict[str, Any] | None:
    """The limits of the machine, measured now by `crates/cpu/examples/limits.rs`; None without
    cargo.
    """
    cargo = os.environ.get("CARGO", "cargo")
    if shutil.which(cargo) is None:
        return None
    command = [cargo, "run", "--quiet", "--release", "-p", "girih-cpu", "--example", "limits"]
    ran = subprocess.run(
        [*command, "--", str(threads)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the limits could not be measured:\n{ran.stderr}")
    out: dict[str, Any] = json.loads(ran.stdout)
    return out


def best_of(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, Any] | None:
    """The maximum of each limit: a lower measurement was disturbed by other processes."""
    if a is None or b is None:
        return a or b
    return {
        key: best_of(value, b[key]) if isinstance(value, dict) else max(value, b[key])
        for key, value in a.items()
    }


def least_time(limits: dict[str, Any], flops: float, moved: float, dtype: str) -> float | None:
    """The lower bound in seconds for a number of operations and bytes; None if neither limit is
    known.

    The bandwidth is that of the nearest measured working set.
    """
    if not flops and not moved:
        return None
    peak = max(limits["f32"]["gflops"], limits.get(dtype, limits["f32"])["gflops"])
    near = min(
        limits["bandwidth"].values(),
        key=lambda b: abs(b["bytes"].bit_length() - int(moved).bit_length()),
    )
    return max(flops / peak, moved / max(near["add"], near["read"])) / 1e9


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
