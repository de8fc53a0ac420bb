"""The mix of ``tests/python/test_locks.py``, for a minute each, with the cache on disk as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import succeeds
from test_locks import KINDS, MIX


@pytest.mark.parametrize("cache", ["0", "1"])
def test_sixteen_threads_for_a_minute(cache, tmp_path):
    settings = {"GIRIH_CACHE_DIR": str(tmp_path / "cache"), "GIRIH_CACHE_MIN_COMPILE_MS": "0"}
    out = succeeds(MIX, "60", "16", KINDS, seconds=180, GIRIH_CACHE=cache, **settings)
    assert int(out) > 1000


@pytest.mark.parametrize("kind", KINDS.split(","))
def test_each_kind_of_work_beside_forks_and_clears(kind):
    out = succeeds(MIX, "10", "6", f"{kind},fork,clear", seconds=90, GIRIH_CACHE="0")
    assert int(out) > 10


def test_a_thousand_children_of_busy_parents():
    script = Path(__file__).parents[2] / "scripts" / "forks.py"
    command = [sys.executable, str(script), "--forks", "1000"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
