"""Counts instructions with callgrind and compares them with the committed table.

    python -m benches.instructions            # compares; 1 if a count grew beyond the tolerance
    python -m benches.instructions --update   # writes the table anew

Times on a shared machine are noisy, but instruction counts are reproducible. A count is the cost of
one round of a scenario of `crates/girih/examples/instructions`: the difference between many and few
rounds, so that process startup is excluded. Kernels run on one thread, for the processor that
callgrind emulates.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "instructions.json"
FEW, MANY = 5, 25
TOLERANCE = 0.03


def built() -> Path:
    """Builds the program that runs scenarios, in release mode; returns its path."""
    command = [
        os.environ.get("CARGO", "cargo"), "build", "--quiet", "--release", "-p", "girih",
        "--example", "instructions", "--message-format=json",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = (json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{"))
    return next(Path(m["executable"]) for m in messages if m.get("executable"))


def total(program: Path, scenario: str, times: int) -> int:
    """The instruction count of a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", str(program),
            scenario, str(times),
        ]  # fmt: skip
        env = {**os.environ, "GIRIH_NUM_THREADS": "1", "GIRIH_CACHE": "0"}
        # On one processor a process measures no latencies: threads that spin have no fixed count.
        command = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"{scenario} failed under callgrind:\n{ran.stderr[-2000:]}")
        found = re.search(r"Collected\s*:\s*(\d+)", ran.stderr)
        if found is None:
            raise RuntimeError(f"callgrind gave no count:\n{ran.stderr[-2000:]}")
        return int(found[1])


def count(program: Path, scenario: str) -> int:
    """The instruction count of one round."""
    return (total(program, scenario, MANY) - total(program, scenario, FEW)) // (MANY - FEW)


def compare(found: dict[str, int], expected: dict[str, int]) -> list[str]:
    """The errors: scenarios whose counts exceed the table's, or that the table does not have."""
    wrong = [f"{name}: not in the table" for name in found if name not in expected]
    for name, before in expected.items():
        if name not in found:
            wrong.append(f"{name}: in the table, but there is no such scenario")
        elif found[name] > before * (1 + TOLERANCE):
            wrong.append(f"{name}: {found[name]} instructions, {before} in the table")
    return wrong


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m benches.instructions", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the table anew")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("Skipped: instructions are counted by valgrind, which is not here.")
        return 0
    program = built()
    scenarios = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    expected: dict[str, int] = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    found = {}
    for name in scenarios:
        found[name] = count(program, name)
        before = expected.get(name)
        change = f"{found[name] / before - 1:+8.1%}" if before else "     new"
        print(f"{name:<26}{found[name]:>12}{change}", flush=True)
    if options.update:
        TABLE.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    if not expected:
        print("There is no table yet; --update writes it.")
        return 0
    wrong = compare(found, expected)
    print("\n".join(wrong) if wrong else f"None grew by more than {TOLERANCE:.0%}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
