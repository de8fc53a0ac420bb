"""All hostile calls of ``tests/python/hostile.py``, in parts that run in processes of their own."""

import pytest
from test_hostile_arguments import run

PARTS = 24


@pytest.mark.parametrize("part", range(PARTS))
def test_every_function_survives_all_hostile_arguments(part):
    wrong = run(part, PARTS, 1.0, 3600)
    assert not wrong, "\n".join(wrong)
