"""The guards flag rows by comparing times and counts of one machine. No test asserts a time."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches import (  # noqa: E402
    alignment,
    cachesim,
    command,
    guards,
    kernels,
    machine,
    measure,
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


def test_neighbours_have_their_own_sessions_and_end_with_the_block():
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


def test_a_busy_machine_is_reported():
    assert neighbour.disturbance(None) == neighbour.disturbance(0.1) == ""
    assert neighbour.disturbance(2.0).startswith("2.0 other threads are running")
    others = machine.others_running()
    assert others is None or others >= 0


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


# Alignment.


@pytest.mark.parametrize("offset", alignment.OFFSETS)
def test_operands_are_placed_at_an_offset_and_not_copied(offset):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    placed = alignment.placed(array, offset)
    assert placed.ctypes.data % alignment.PAGE == offset
    assert (placed == array).all()
    for library in girih_and_numpy():
        assert alignment.is_shared(library)
        tensor = alignment.sharing(library).tensor(placed)
        assert library.numpy(tensor).ctypes.data == placed.ctypes.data
        assert library.numpy(library.tensor(array)).ctypes.data != placed.ctypes.data


def test_a_library_that_copies_does_not_share():
    class Copying(peers.Library):
        def shared(self, array):
            return array.copy()

    class Refusing(peers.Library):
        def shared(self, array):
            raise peers.UnsupportedError("copies operands")

    assert not alignment.is_shared(Copying())
    assert not alignment.is_shared(Refusing())


def test_a_row_is_measured_at_both_offsets():
    found = alignment.measure_row(kernels.softmax(2, 8), girih_and_numpy(), 1, 0.01)
    assert set(found) == {"girih", "numpy"}
    assert all(p.at and p.off and p.ratio() > 0 for p in found.values())
    assert alignment.Pairs([1.0] * 9, [2.0]).is_flagged()


def test_rows_that_an_offset_makes_slower_are_named():
    pairs = alignment.Pairs
    times = {
        "slow": {"girih": pairs([1.0] * 4, [1.2, 1.3, 1.2, 1.2]), "numpy": pairs([1.0], [2.0])},
        "noise": {"girih": pairs([1.0] * 4, [0.5, 0.6, 1.7, 1.8]), "numpy": pairs([1.0], [1.0])},
        "little": {"girih": pairs([2.0] * 4, [2.1] * 4), "numpy": pairs([1.0], [0.5])},
    }
    assert alignment.sensitive(times) == ["slow: 1.20 times as long at an offset of 16 bytes"]
    table = alignment.table(times)
    assert "| slow | 1 s | **1.20** | 1 s | **2.00** |" in table
    assert "| noise | 1 s | 1.15 | 1 s | 1.00 |" in table
    assert "| little | 2 s | 1.05 | 1 s | 0.50 |" in table


# Caches.


def test_misses_are_the_difference_of_two_processes(tmp_path):
    text = "desc: D1\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfn=f\n1 2 3\nsummary: {}\n"
    (tmp_path / "7").write_text(text.format("9 9 9 9 100 50 9 10 5"))
    (tmp_path / "8").write_text(text.format("9 9 9 9 300 60 9 20 6"))
    assert cachesim.counted(tmp_path / "7") == (110, 55)
    calls = cachesim.MANY - cachesim.FEW
    assert cachesim.per_call(tmp_path, 7, 8) == cachesim.Misses(210 / calls, 11 / calls)


def test_bounds_are_of_operands_rows_and_blocks():
    first, last = cachesim.FIRST, cachesim.LAST
    flat = cachesim.Row(kernels.add(1 << 10))
    assert flat.bound(first) == flat.bound(last) == 3 * 4096 / 64
    wide = cachesim.Row(kernels.softmax(4, 1 << 16), width=4 << 16)
    assert wide.bound(last) == 8 * (1 << 18) / 64
    assert wide.bound(first) == 1.5 * wide.bound(last)
    product = lambda n: cachesim.Row(kernels.product(n, n, n), product=(n, n, n))
    # Each cache line of a product that fits the cache is read once.
    assert product(64).bound(last) == 3 * 4 * 64 * 64 / 64
    assert product(2048).bound(last) > 3 * 4 * 2048**2 / 64
    assert product(64).bound(first) == (3 + 64 / cachesim.COLUMNS) * 4 * 64 * 64 / 64


def test_rows_that_miss_too_often_are_named():
    rows = [cachesim.Row(kernels.add(n)) for n in (1024, 2048)]
    rows.append(cachesim.Row(kernels.product(16, 16, 16), product=(16, 16, 16)))
    small, large, product = (row.workload.name for row in rows)
    bound = rows[1].bound(cachesim.FIRST)
    counts = {
        small: {"girih": cachesim.Misses(1.0, 1.0)},
        large: {
            "girih": cachesim.Misses(bound, bound * 2),
            "numpy": cachesim.Misses(bound * 9, 0.0),
        },
        product: {"girih": cachesim.Misses(0.0, 0.0)},
    }
    assert cachesim.excessive(rows, counts) == [f"{large}: 2.0 times the bound of the last cache"]
    table = cachesim.table(rows, counts)
    assert f"| {large} | girih | KB | 16.00 | 16.00 | 1.00 | 32.00 | 16.00 | **2.00** |" in table
    assert f"| {large} | numpy | KB | 144.00 | 16.00 | **9.00** | 0.00 | 16.00 | 0.00 |" in table
    assert f"| {product} | girih | 1000 multiply-adds | 0.00 |" in table
    names = [row.workload.name for row in cachesim.rows()]
    assert len(set(names)) == len(names)
    assert len({w.name for w in alignment.rows()}) == len(alignment.rows())


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


@pytest.mark.parametrize("module", ["neighbour", "alignment", "cachesim"])
def test_bad_options_are_refused(module):
    for bad in (["--threads", "0"], ["--budget", "nan"], ["--peers", "nonesuch"]):
        ran = subprocess.run(
            [sys.executable, "-m", f"benches.{module}", *bad],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 2
        assert "expected" in ran.stderr or "there are" in ran.stderr


def test_the_command_prints_a_table_and_the_verdict():
    ran = subprocess.run(
        [
            sys.executable, "-m", "benches.alignment", "--only", "sum of [4, 1024] along axis 1",
            "--peers", "numpy", "--budget", "0.01",
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "girih: shared memory" in ran.stdout
    assert "| sum of [4, 1024] along axis 1 |" in ran.stdout
    assert "flagged" in ran.stdout


def test_samples_are_taken_on_the_clock_of_the_sampler():
    [sampler], missing = measure.prepare(kernels.add(8), girih_and_numpy()[:1])
    assert missing == {}
    ticks = iter(range(10_000_000))
    sampler.clock = lambda: float(next(ticks))
    measure.take([sampler], 0.01, least=2, settled_s=0.0)
    # Each sample takes one tick, whatever its number of calls.
    assert {seconds * sampler.count for seconds, _ in sampler.samples} == {1.0}
