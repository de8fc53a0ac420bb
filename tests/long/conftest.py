"""Settings of all long tests: attacks and random programs that take minutes (``make test-long``).

A short form of each runs in ``tests/python``, which CI runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Counts of compilations must not depend on the disk cache of an earlier run.
os.environ["GIRIH_CACHE"] = "0"

# The generators and helpers are those of the short forms.
sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
