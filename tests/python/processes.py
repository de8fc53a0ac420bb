"""Programs in processes of their own, with a watchdog: a deadlock shows the stacks of all threads."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WATCHDOG = """
import faulthandler
faulthandler.enable()
faulthandler.dump_traceback_later({seconds}, exit=True)
"""


def run(
    program: str,
    *arguments: str,
    seconds: float = 60,
    prefix: Sequence[str] = (),
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program, and ends it with the stacks of its threads after some seconds."""
    code = WATCHDOG.format(seconds=seconds) + program
    return subprocess.run(
        [*prefix, sys.executable, "-c", code, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + 30,
    )


def has_avx512() -> bool:
    """Whether the machine may run code for AVX-512; True if nothing says otherwise."""
    info = pathlib.Path("/proc/cpuinfo")
    return not info.exists() or "avx512f" in info.read_text()


def succeeds(program: str, *arguments: str, seconds: float = 60, **variables: str) -> str:
    """The output of a program that must end without an error, and without a panic of a thread."""
    done = run(program, *arguments, seconds=seconds, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "panicked" not in done.stderr, done.stderr
    return done.stdout
