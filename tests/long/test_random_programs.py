"""The long form of ``tests/python/test_random_programs.py``: ``GIRIH_PROGRAMS`` random programs in
checked mode, 100,000 unless it is set, in a few minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "python" / "random_programs.py"


@pytest.mark.parametrize("jit", ["1", "0"])
def test_random_programs_in_checked_mode(jit):
    count = int(os.environ.get("GIRIH_PROGRAMS", "100000"))
    environment = {**os.environ, "GIRIH_CHECK": "1", "GIRIH_CACHE": "0", "GIRIH_JIT": jit}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), "--programs", str(count), "--seed", "10000000"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-4000:], done.stderr[-200:])
