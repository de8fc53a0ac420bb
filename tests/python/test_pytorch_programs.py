"""The programs of examples/pytorch: they run, and differ from PyTorch's only by the edits that the
guide lists.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "pytorch"
PAGE = ROOT / "docs" / "guide" / "pytorch-programs.md"
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \|", re.M)

#: Options for a short run, and a line of the output with numbers that both programs print.
RUNS = {
    "quickstart": ("--epochs 4", r"Accuracy: (\d+\.\d)%", (60.0, 100.0)),
    "words": ("--epochs 6 --words 12", r"loss (?:\d+\.\d+) to (\d+\.\d+)", (0.3, 1.38)),
    "transfer": ("--epochs 3 --width 4", r"accuracy (\d\.\d+)", (0.6, 1.0)),
}


def edits() -> list[tuple[str, str]]:
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


def of_pytorch(text: str) -> str:
    """The program with the edits undone."""
    for theirs, ours in edits():
        text = text.replace(ours, theirs)
    return text


def printed(file: Path, name: str, out: Path) -> str:
    options = RUNS[name][0].split()
    if name == "quickstart":
        options += ["--out", str(out)]
    command = [sys.executable, str(file), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_program_is_here():
    assert sorted(path.stem for path in PROGRAMS.glob("*.py")) == sorted(RUNS)


def test_every_edit_is_needed():
    whole = "".join(path.read_text(encoding="utf-8") for path in PROGRAMS.glob("*.py"))
    assert [ours for _, ours in edits() if ours not in whole] == []


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_program_learns_here_and_in_pytorch(name, tmp_path):
    source = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    theirs = of_pytorch(source)
    code = theirs.partition('"""\n\n')[2]
    assert "girih" not in code
    # The copy is elsewhere, and has the data of the tree.
    moved = theirs.replace("Path(__file__).parents[2]", f"Path({str(ROOT)!r})")
    copy = tmp_path / f"{name}.py"
    copy.write_text(moved, encoding="utf-8")
    _, pattern, (low, high) = RUNS[name]
    outputs = [printed(PROGRAMS / f"{name}.py", name, tmp_path), printed(copy, name, tmp_path)]
    for output in outputs:
        found = re.findall(pattern, output)
        assert found, output
        assert low <= float(found[-1]) <= high, output
    if name == "quickstart":
        assert all("Saved and loaded: True" in output for output in outputs)
    if name == "transfer":
        assert all("changed: ['fc.weight', 'fc.bias']" in output for output in outputs)
