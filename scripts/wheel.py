"""Checks a wheel: its files, and a computation in an environment that has nothing else.

    python scripts/wheel.py FOLDER

The folder holds one wheel. The environment is made beside it, and the program runs where the
sources cannot be imported.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "python"
PROGRAM = """
import girih as gr
x = gr.asarray([[1.0, 2.0], [3.0, 4.0]])
loss, gradient = gr.value_and_grad(lambda x: (x @ x).tanh().sum())(x)
assert abs(loss.item() - 4.0) < 1e-5, loss
assert gradient.shape == (2, 2), gradient
assert (x @ x).tolist() == [[7.0, 10.0], [15.0, 22.0]]
print(gr.__file__)
"""


def main(folder: Path) -> None:
    """Checks the wheel in a folder; exits with a message if something is missing."""
    (wheel,) = folder.glob("*.whl")
    files = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py")}
    wanted |= {"girih/py.typed", "girih/_girih.pyi"}
    if missing := sorted(wanted - files):
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    place = folder / "environment"
    venv.create(place, clear=True, with_pip=True)
    python = place / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", wheel], check=True)
    # Isolated mode: neither the working directory nor PYTHONPATH is searched.
    command: list[str | Path] = [python, "-I", "-c", PROGRAM]
    out = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout
    if not Path(out.strip()).is_relative_to(place):
        sys.exit(f"girih was imported from {out.strip()}, not from the wheel")
    subprocess.run([place / "bin" / "girih", "--help"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
