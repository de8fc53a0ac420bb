"""The problems that ``make deny`` finds in the metadata of crates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from scripts.deny import CRATES_IO, accepted, problems


@pytest.mark.parametrize(
    ("expression", "allowed", "holds"),
    [
        ("MIT", {"MIT"}, True),
        ("MIT", {"Zlib"}, False),
        ("GPL-3.0/MIT", {"MIT"}, True),
        ("MIT AND GPL-3.0 OR Zlib", {"MIT"}, False),
        ("Zlib OR MIT AND GPL-3.0", {"Zlib"}, True),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", {"MIT", "Unicode-3.0"}, True),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", {"MIT"}, False),
        ("Apache-2.0 WITH LLVM-exception", {"Apache-2.0"}, False),
        ("Apache-2.0 WITH LLVM-exception", {"Apache-2.0 WITH LLVM-exception"}, True),
    ],
)
def test_a_licence_is_accepted_if_one_choice_is(expression, allowed, holds):
    assert accepted(expression, allowed) == holds


def test_each_problem_of_a_crate_is_named():
    package = {
        "name": "a",
        "version": "1.0",
        "license": "MIT",
        "source": CRATES_IO,
        "dependencies": [{"name": "b", "req": "^1"}, {"name": "c", "req": "*", "path": "/c"}],
    }
    assert problems([package], {"MIT"}) == []
    package["source"] = "git+https://example.org/a"
    package["license"] = None
    package["dependencies"].append({"name": "d", "req": "*"})
    assert problems([package], {"MIT"}) == [
        "a 1.0 has the licence None",
        "a 1.0 comes from git+https://example.org/a",
        "a 1.0 requires any version of d",
    ]
