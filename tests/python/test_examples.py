"""Every example runs at a small size and writes its files; its page of the documentation shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(ROOT))

from scripts.reference import website  # noqa: E402

#: Options for a small size, the files that the example writes, and a line of its output.
RUNS = {
    "autoencoder": ("--epochs 2 --width 16", ["digits.svg", "loss.svg"], r"bound .*: -\d+\.\d+ nats"),
    "characters": ("--steps 4 --size 16", ["loss.svg", "sample.txt"], r"\d+ characters/s"),
    "convolutions": ("--epochs 2 --channels 4", ["confusion.svg", "checkpoint.safetensors"], r"accuracy \d"),
    "digits": ("--epochs 1", ["loss.svg", "step-graph.svg", "step-graph.txt"], r"accuracy +\d"),
    "parallel": ("--steps 3 --width 8", ["parallel.svg"], r"tensor parallel +loss \d\.\d+ \(the same"),
    "private": ("--steps 2 --width 4", ["private.svg"], r"noise 1.0: accuracy \d+\.\d% at epsilon \d"),
    "oscillator": ("--steps 10 --width 4 --points 8", ["oscillator.svg"], r"largest error \d"),
}  # fmt: skip


def run(name: str, options: str, out: Path) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *options.split(), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_leaves_its_files(name, tmp_path):
    options, files, line = RUNS[name]
    printed = run(name, options, tmp_path)
    assert re.search(line, printed), printed
    assert re.search(r"\d+/\d+", printed), "no progress bar"
    for file in files:
        assert (tmp_path / file).stat().st_size > 0


def test_a_resumed_example_comes_to_the_same_result(tmp_path):
    # The schedule depends on the number of epochs, so the second run has the same number and
    # resumes from the last checkpoint.
    whole = run("convolutions", "--epochs 1 --channels 4", tmp_path / "whole")
    again = run("convolutions", "--epochs 1 --channels 4 --resume", tmp_path / "whole")
    accuracy = re.compile(r"accuracy (\S+)")
    assert accuracy.search(whole)[1] == accuracy.search(again)[1]


@pytest.mark.parametrize("name", sorted(RUNS))
def test_an_example_refuses_sizes_that_make_no_sense(name):
    option = "--epochs" if "--epochs" in RUNS[name][0] else "--steps"
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), option, "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "at least 1" in done.stderr


@pytest.mark.parametrize("name", sorted(set(RUNS) - {"digits"}))
def test_every_example_is_a_page_with_its_source(name):
    page = website.example(EXAMPLES / f"{name}.py")
    assert page.startswith("# ")
    assert "```python\nfrom __future__" in page
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
    assert pictures
    assert all((ROOT / "docs" / "examples" / Path(p).name).exists() for p in pictures)


def test_a_page_begins_with_its_text():
    page = website.example(EXAMPLES / "oscillator.py")
    assert page.startswith("# A network that satisfies a differential equation")
    assert "L-BFGS" in page.split("```")[0]
    assert '"""A network' not in page
