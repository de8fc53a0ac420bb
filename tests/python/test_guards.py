"""The guards flag rows by comparing times and counts of one machine. No test asserts a time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches import (  # noqa: E402
    command,
    guards,
    kernels,
    neighbour,
    peers,
)


def girih_and_numpy():
    return peers.installed(["girih", "numpy"])[0]


def sessions(processes):
    return [os.getsid(process) for process in processes]


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


# The neighbour.


def test_neighbours_are_of_sessions_of_their_own_and_end_with_the_block():
    with neighbour.neighbour(2) as processes:
        assert len(set(processes)) == 2
        assert sessions(processes) == processes
        assert os.getsid(0) not in processes
    assert not any(is_alive(process) for process in processes)
    with neighbour.neighbour(0) as processes:
        assert processes == []


def test_neighbours_end_with_an_exception():
    with pytest.raises(KeyboardInterrupt), neighbour.neighbour() as processes:  # noqa: PT012
        assert is_alive(processes[0])
        raise KeyboardInterrupt
    assert not is_alive(processes[0])


def test_a_neighbour_ends_if_its_parent_is_killed():
    program = """
import time
from benches.neighbour import neighbour
with neighbour() as [process]:
    print(process, flush=True)
    time.sleep(60)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        process = int(parent.stdout.readline())
        assert is_alive(process)
        parent.kill()
    deadline = time.monotonic() + 30
    # Where no process takes over orphans, the ended process stays in the table.
    state = lambda: Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    while is_alive(process) and state() != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_row_is_measured_alone_and_beside_a_neighbour():
    row = kernels.add(64)
    found = neighbour.measure_row(row, girih_and_numpy(), processes=1, budget_s=0.01)
    assert set(found) == {"girih", "numpy"}
    assert all(0 < t.least <= min(t.alone, t.beside) for t in found.values())


def test_rows_that_suffer_more_than_the_peers_are_named():
    of = lambda slowdown: neighbour.Beside(alone=1.5, least=1.0, beside=slowdown)
    times = {
        "fine": {"girih": of(2.9), "numpy": of(2.0), "jax": of(9.0)},
        "bad": {"girih": of(3.1), "numpy": of(2.0), "jax": of(9.0)},
        # Variants that are shown and do not count as peers.
        "alone": {"girih": of(9.0), "girih lazy": of(1.0), "numpy out=": of(1.0)},
    }
    assert neighbour.exceeding(times) == [
        "bad: 3.10 times as long beside the neighbour, numpy 2.00"
    ]
    assert neighbour.least_affected(times["alone"]) is None
    table = neighbour.table(times)
    assert "| bad | girih | 1.5 s | 1 s | 3.1 s | 3.10 |" in table
    assert "| bad | numpy | 1.5 s | 1 s | 2 s | **2.00** |" in table
    assert len(command.named(neighbour.ROWS)) == len(neighbour.ROWS)


# The commands.


def test_a_flagged_row_is_an_error_only_if_asked_for(capsys):
    assert guards.verdict(["a: slow"], check=False) == 0
    assert guards.verdict(["a: slow"], check=True) == 1
    assert guards.verdict([], check=True) == 0
    assert capsys.readouterr().out == "flagged: a: slow\n" * 2 + "No row is flagged.\n"


def test_rows_are_chosen_by_a_part_of_their_name():
    rows = [kernels.add(8), kernels.exp(8), kernels.softmax(2, 4)]
    assert guards.chosen(rows, None) == rows
    assert guards.chosen(rows, ["EXP", "soft"]) == rows[1:]
    assert guards.chosen(rows, ["nonesuch"]) == []


@pytest.mark.parametrize("module", ["neighbour"])
def test_bad_options_are_refused(module):
    for bad in (["--threads", "0"], ["--budget", "nan"], ["--peers", "nonesuch"]):
        ran = subprocess.run(
            [sys.executable, "-m", f"benches.{module}", *bad],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 2
        assert "expected" in ran.stderr or "there are" in ran.stderr
