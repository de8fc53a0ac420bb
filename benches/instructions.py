"""Counts instructions with callgrind and compares them with the committed table.

    python -m benches.instructions            # compares; 1 if a count grew beyond the tolerance
    python -m benches.instructions --update   # writes the table anew

Times on a shared machine are noisy, but instruction counts are reproducible. A count is the cost of
one round of a scenario of `crates/girih/examples/instructions`: the difference between many and few
rounds, so that process startup is excluded. Kernels run on one thread, for the processor that
callgrind emulates.

Scenarios named ``kernel-`` run one kernel on 512 x 512 elements. For these, the instructions
outside generated code are counted as well: those of chunks, rows, blocks and calls.
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
KERNEL = "kernel-"
OUTSIDE = " outside generated code"
ELEMENTS = 512 * 512


def built() -> Path:
    """Builds the program that runs scenarios, in release mode; returns its path."""
    command = [
        os.environ.get("CARGO", "cargo"), "build", "--quiet", "--release", "-p", "girih",
        "--example", "instructions", "--message-format=json",
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = (json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{"))
    return next(Path(m["executable"]) for m in messages if m.get("executable"))


def profile(program: Path, scenario: str, times: int) -> str:
    """Callgrind's profile of a whole process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(program),
            scenario, str(times),
        ]  # fmt: skip
        env = {**os.environ, "GIRIH_NUM_THREADS": "1", "GIRIH_CACHE": "0"}
        # On one processor a process measures no latencies: threads that spin have no fixed count.
        command = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"{scenario} failed under callgrind:\n{ran.stderr[-2000:]}")
        return out.read_text()


def by_object(text: str) -> dict[str, int]:
    """The instructions by object file of a profile; generated code is in the object ``???``."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    current, of_callee = "", False
    for line in text.splitlines():
        if declared := re.match(r"(c?)ob=\((\d+)\)(?: (.+))?$", line):
            callee, number, name = declared.groups()
            names.update({number: name} if name else {})
            current = current if callee else number
        elif line.startswith("calls="):
            of_callee = True
        elif cost := re.match(r"[+*\-\d]\S* (\d+)$", line):
            # The line after `calls=` repeats the instructions of the callee.
            if not of_callee:
                counts[current] = counts.get(current, 0) + int(cost[1])
            of_callee = False
    return {names[number]: counted for number, counted in counts.items()}


def count(program: Path, scenario: str) -> dict[str, int]:
    """The instructions of one round: all, and those outside generated code if it is a kernel."""
    many, few = (by_object(profile(program, scenario, times)) for times in (MANY, FEW))
    per_round = lambda counts: sum(counts(many)) - sum(counts(few))
    totals = {scenario: per_round(lambda p: p.values()) // (MANY - FEW)}
    if scenario.startswith(KERNEL):
        outside = per_round(lambda p: [n for name, n in p.items() if name != "???"])
        totals[scenario + OUTSIDE] = outside // (MANY - FEW)
    return totals


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
    found: dict[str, int] = {}
    for scenario in scenarios:
        for name, counted in count(program, scenario).items():
            found[name] = counted
            before = expected.get(name)
            change = f"{counted / before - 1:+8.1%}" if before else "     new"
            each = f"  {counted / ELEMENTS:.3f} an element" if name.startswith(KERNEL) else ""
            print(f"{name:<46}{counted:>12}{change}{each}", flush=True)
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
