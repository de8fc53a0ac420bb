"""Other libraries applied to tensors: the parts of scripts/interop.py whose libraries are
installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "interop.py"


def parts():
    before = os.environ.get("SCIPY_ARRAY_API")
    spec = spec_from_file_location("interop", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    # The variable is for child processes, not for this process.
    if before is None:
        del os.environ["SCIPY_ARRAY_API"]
    return module


INTEROP = parts()


@pytest.mark.parametrize("name", INTEROP.PARTS)
def test_libraries_take_tensors(name):
    if INTEROP.missing(name):
        pytest.skip("its library is not installed")
    # Use a process of its own, because SciPy reads the environment on import.
    result = subprocess.run(
        [sys.executable, str(SCRIPT), name], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
