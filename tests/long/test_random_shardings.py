"""The long form of the random programs of ``tests/python/test_sharded.py``: ``GIRIH_PROGRAMS`` random
programs on random meshes, 100,000 unless it is set, in a few minutes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "python" / "random_shardings.py"


def test_random_programs_on_random_meshes():
    count = os.environ.get("GIRIH_PROGRAMS", "100000")
    done = subprocess.run(
        [sys.executable, str(PROGRAMS), "--programs", count, "--seed", "10000000"],
        env={**os.environ, "GIRIH_CACHE": "0"},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, (done.returncode, done.stdout[-4000:], done.stderr[-200:])
