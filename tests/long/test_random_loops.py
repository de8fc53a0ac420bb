"""The long form of the random loops of ``tests/python/test_loop_effects.py``: ``GIRIH_PROGRAMS / 100``
programs, 1,000 unless it is set, in a few minutes."""

from __future__ import annotations

import os

import pytest
from test_loop_effects import check_random_loops


@pytest.mark.parametrize("seed", range(10))
def test_random_loops(seed):
    check_random_loops(seed, int(os.environ.get("GIRIH_PROGRAMS", "100000")) // 1000)
