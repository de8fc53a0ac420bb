"""The benchmarks run, compare values before they are timed, and report the results. No test asserts
a time.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches import (  # noqa: E402
    command,
    figures,
    history,
    instructions,
    limits,
    machine,
    measure,
    peers,
    report,
    sensitivity,
)


def workload(name="doubled", body=lambda lib, x: x + x, **fields):
    inputs = lambda rng: [rng.standard_normal(5, np.float32)]
    return measure.Workload(name, inputs, measure.compute(body), **fields)


def girih_and_numpy():
    return peers.installed(["girih", "numpy"])[0]


def test_two_rows_of_the_command_give_a_table_a_picture_and_figures(tmp_path):
    rows = ("x*2 + 1 on four elements", "record one op")
    chosen = [argument for row in rows for argument in ("--only", row)]
    options = ["--peers", "numpy", "--threads", "1", "--budget", "0.02", "--no-limits"]
    ran = subprocess.run(
        [sys.executable, "-m", "benches", *chosen, *options, "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    table = (tmp_path / "cpu.md").read_text()
    assert all(f"| {row} |" in table for row in rows)
    assert "load average" in table
    assert "not measured" in table
    assert rows[0] in (tmp_path / "cpu.svg").read_text()
    run = json.loads((tmp_path / "cpu.json").read_text())
    figures = {row["name"]: row["figures"] for row in run["rows"]}
    assert set(figures[rows[0]]) == {"girih", "numpy"}
    assert set(figures[rows[1]]) == {"girih"}
    assert all(f["median"] > 0 and f["first"] > 0 for f in figures[rows[0]].values())


def test_parameters_are_halved_and_doubled_in_processes_of_their_own():
    rows = ("three kernels on 8x8",)
    base, ratios = sensitivity.sweep({"chunk_ns": 3001}, rows, threads=1, rounds=2, budget_s=0.01)
    assert set(base) == set(rows)
    assert list(ratios) == [("chunk_ns", 1500), ("chunk_ns", 6002)]
    assert all(len(found[rows[0]]) == 2 for found in ratios.values())
    with pytest.raises(RuntimeError, match=r"other=1 failed(.|\n)*expected NAME=VALUE"):
        sensitivity.run_process(("other", 1), rows, 1, 0.01)


def test_a_cliff_is_a_row_that_another_value_makes_faster_in_every_round():
    ratios = {
        ("p", 1): {"a": [0.8, 0.9, 0.7], "b": [0.8, 1.0, 0.8]},
        ("p", 4): {"a": [1.0, 1.0, 1.0], "b": [1.2, 1.1, 1.3]},
    }
    assert sensitivity.cliffs(ratios, 0.05) == [("p=1", "a", 0.8)]
    assert sensitivity.cliffs(ratios, 0.2) == []
    table = sensitivity.table({"a": 1.0, "b": 2.0}, ratios, 0.05)
    assert "| a | 1e+06 µs | **0.80 1.00** |" in table
    assert "| b | 2e+06 µs | **0.80 1.20** |" in table
    every = [w.name for _, w in command.choose(False, [])]
    assert set(sensitivity.ROWS) <= set(every)
    assert "row_elements" in sensitivity.parameters()


def test_a_processor_has_the_family_and_model_that_tell_generations_apart():
    core = "processor\t: {}\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
    text = core.format(0) + core.format(1)
    assert machine.processor_in(text) == "AMD EPYC (family 26, model 2)"
    assert machine.processor_in("Model\t: Board 4\n") == "Board 4"
    assert machine.processor_in("")


def test_runs_are_recorded_by_processor(tmp_path):
    def run(processor, date, ratios):
        results = []
        for name, ratio in ratios.items():
            result = measure.Result(workload(name), "group")
            times = {"girih": ratio, "numpy": 1.0}
            result.figures = {n: measure.Figure(t, 0.0, t, 1) for n, t in times.items()}
            results.append(result)
        about = {"processor": processor, "date": date, "commit": "c", "threads": 2, "versions": {}}
        return history.entry(about, results)

    assert history.load(tmp_path) == []
    assert report.by_processor([]) == ""
    history.add(tmp_path, run("A", "2026-01-01", {"x": 0.5, "y": 2.0}))
    history.add(tmp_path, run("B", "2026-01-02", {"x": 0.25}))
    runs = history.add(tmp_path, run("A", "2026-01-03", {"x": 0.25, "y": 4.0, "z": 1.0}))
    assert history.load(tmp_path) == runs
    assert len((tmp_path / history.FILE).read_text().splitlines()) == 3
    assert [r["mean"] for r in runs] == [1.0, 0.25, 1.0]
    table = report.by_processor(runs)
    assert "|  | A, 2 threads | B, 2 threads |" in table
    assert "| rows behind | 1 of 3 | 0 of 1 |" in table
    assert "| y | **4.00** |  |" in table
    assert history.picture(runs).count("<circle") == 3
    (tmp_path / history.FILE).write_text('{"date": 1}\n')
    with pytest.raises(ValueError, match="is damaged"):
        history.add(tmp_path, run("A", "2026-01-04", {}))


def test_models_are_rows_of_their_own_whose_values_are_compared():
    everything = command.choose(False, [])
    models = command.choose(False, [], models=True)
    assert len(models) == 11
    assert not {w.name for _, w in models} & {w.name for _, w in everything}
    [(group, heat)] = command.choose(False, ["heat"], models=True)
    result = measure.run(heat, group, girih_and_numpy(), 0.01)
    assert set(result.figures) == {"girih", "numpy"}
    assert "| heat, 512x512, 1,000 steps |" in report.first_calls([result])
    assert report.first_calls([]) == ""
    assert set(report.FIRST_SHOWN) <= {*command.GROUPS, *command.MODELS}


def test_a_wrong_value_is_an_error():
    body = lambda lib, x: x + (1.0 if lib.name == "girih" else 1.5)
    with pytest.raises(
        measure.WrongValueError, match=r"doubled: girih differs from numpy by 0\.\d"
    ):
        measure.run(workload(body=body), "group", girih_and_numpy(), 0.01)


@pytest.mark.parametrize(
    ("found", "message"),
    [(np.ones(2), "shapes"), (np.array([1.0, np.nan, 1.0]), "not finite")],
    ids=["shape", "nan"],
)
def test_values_that_cannot_be_compared_are_wrong(found, message):
    with pytest.raises(measure.WrongValueError, match=message):
        measure.largest_difference(found, np.ones(3))


def test_differences_are_relative_to_the_largest_value():
    assert measure.largest_difference([np.array([999.0])], [np.array([1000.0])]) == 1e-3
    assert measure.largest_difference(np.array([0.0]), np.array([0.5])) == 0.5
    assert measure.largest_difference(np.empty(0), np.empty(0)) == 0


def test_an_operation_that_a_library_lacks_leaves_its_figure_out():
    def body(lib, x):
        if lib.name == "numpy":
            raise peers.UnsupportedError("no such thing")
        return x + x

    result = measure.run(workload(body=body), "group", girih_and_numpy(), 0.01)
    assert set(result.figures) == {"girih"}
    assert result.missing == {"numpy": "no such thing"}
    assert result.ratio() is None


def test_a_first_call_compiles_each_time():
    import girih as gr

    before = gr.cache_stats()["compiles"]
    result = measure.run(workload(first=True), "group", girih_and_numpy(), 1.0)
    compiled = gr.cache_stats()["compiles"] - before
    figure = result.figures["girih"]
    assert compiled >= figure.samples >= measure.MIN_SAMPLES
    cell = report.row(result, None)["girih"]
    assert cell == f"{report.seconds(figure.median)} ({report.seconds(figure.later)} later)"


def test_the_ratio_is_to_the_best_peer_that_starts_from_the_same():
    figures = {"girih": 2.0, "numpy": 4.0, "jax": 1.0, "torch out=": 0.1}
    result = measure.Result(workload(), "group")
    result.figures = {n: measure.Figure(t, 0.0, t, 1) for n, t in figures.items()}
    assert result.ratio() == 2.0
    assert report.row(result, None)["best peer"] == "jax"
    assert "| doubled | 2.00 | jax |" in report.behind([result])


def test_the_limit_is_the_slowest_resource():
    bandwidth = {"a": {"bytes": 1 << 20, "add": 10.0, "read": 5.0}}
    rates = {"f32": {"gflops": 100.0}, "bf16": {"gflops": 200.0}, "bandwidth": bandwidth}
    limit = lambda *of: limits.limit(rates, *of)
    assert limit(1e9, 0, "f32") == limits.Limit(pytest.approx(0.01), "multiply-adds, f32")
    assert limit(1e9, 0, "bf16") == limits.Limit(pytest.approx(0.005), "multiply-adds, bf16")
    # Without multiply-adds of the dtype, those of float32 count.
    assert limit(1e9, 0, "int8").resource == "multiply-adds, f32"
    assert limit(1e6, 1e9, "f32") == limits.Limit(pytest.approx(0.1), "10 GB/s at 953.7 MB")
    assert limit(0, 0, "f32") is None
    best = limits.best_of(rates, {**rates, "f32": {"gflops": 300.0}})
    assert best["f32"]["gflops"] == 300


def test_bandwidth_falls_from_cache_to_cache():
    sizes = {"a": (1 << 10, 40.0), "b": (1 << 14, 64.0), "c": (1 << 18, 16.0), "d": (1 << 20, 8.0)}
    measured = {
        name: {"bytes": size, "add_one": rate / 2, "add": rate, "read": 1.0}
        for name, (size, rate) in sizes.items()
    }
    found = {"bandwidth": measured, "caches": [20_000, 50_000, 1 << 20]}
    rate = lambda size: limits.bandwidth(found, size)
    # The smallest set, measured slower than a larger set, gets the rate of the larger set.
    assert [rate(s) for s in (1, 1 << 10, 1 << 12, 1 << 14)] == [64.0] * 4
    # No measured set fits the L2 cache but not the L1 cache.
    assert rate(15_001) == rate(37_500) == 64.0
    assert rate(37_501) == rate(1 << 18) == rate(1 << 19) == 16.0
    # A working set as large as the cache counts as uncached.
    assert rate(1 << 20) == rate(1 << 30) == 8.0
    # Without caches, the nearest measured set counts.
    assert limits.bandwidth({"bandwidth": measured}, 1 << 15) == 64.0
    assert limits.bandwidth({"bandwidth": measured}, 1 << 17) == 16.0
    assert machine.caches(1) == sorted(machine.caches(1))
    assert all(size > 0 for size in machine.caches(2))


def test_rows_far_from_their_limit_and_above_it_are_named():
    bandwidth = {"a": {"bytes": 1 << 20, "add": 10.0}}
    rates = {"f32": {"gflops": 100.0}, "bandwidth": bandwidth}
    results = []
    for name, fields, girih, numpy in (
        ("near", {"flops": 1e9}, 0.0125, 0.02),
        ("far", {"flops": 1e9}, 0.02, 0.0125),
        ("farther", {"bytes": 1e9}, 1.0, 0.2),
        ("above", {"bytes": 1e9}, 0.08, 0.2),
        ("unlimited", {}, 1.0, 1.0),
    ):
        result = measure.Result(workload(name, **fields), "group")
        times = {"girih": girih, "numpy": numpy}
        result.figures = {n: measure.Figure(t, 0.0, t, 1) for n, t in times.items()}
        results.append(result)
    text = report.far(results, rates)
    rows = [line for line in text.splitlines() if line.startswith("| f")]
    assert rows == [
        "| farther | 10% | **50% (numpy)** | 1 s | 100 ms | 10 GB/s at 953.7 MB |",
        "| far | 50% | **80% (numpy)** | 20 ms | 10 ms | multiply-adds, f32 |",
    ]
    assert "2 of 4 rows" in text
    assert text.endswith("wrong: above (125%).\n")
    assert report.far(results, None) == ""
    assert report.row(results[0], rates)["limit"] == "80%"


def test_limits_are_measured_again_during_a_run(monkeypatch):
    rates = iter([1.0, 3.0, 2.0])
    monkeypatch.setattr(limits, "measured", lambda threads: {"f32": {"gflops": next(rates)}})
    meter = limits.Meter(threads=1, interval_s=3600.0)
    meter.between_rows()
    assert meter.best == {"f32": {"gflops": 1.0}}
    meter.due = 0.0
    meter.between_rows()
    meter.measure()
    assert meter.best == {"f32": {"gflops": 3.0}}


def test_every_row_has_a_unique_name_and_known_libraries():
    rows = [w for _, w in command.choose(False, [])]
    assert len({w.name for w in rows}) == len(rows)
    assert all("girih" in w.libraries and set(w.libraries) <= set(peers.EVERY) for w in rows)
    groups = {group for group, _ in command.choose(True, [])}
    assert groups == set(command.GROUPS)


def test_instructions_of_a_profile_are_counted_by_object():
    profile = """events: Ir
ob=(1) /usr/bin/program
fl=(1) a.rs
fn=(1) main
12 100
+3 20
cob=(2) ???
cfn=(2) generated
calls=1 0
* 70
-1 5
ob=(2)
fn=(2)
0 70
ob=(1)
fn=(1)
* 1
"""
    assert instructions.by_object(profile) == {"/usr/bin/program": 126, "???": 70}


def test_counts_beyond_the_table_and_unknown_scenarios_are_wrong():
    assert instructions.compare({"a": 102, "b": 50}, {"a": 100, "b": 100}) == []
    assert instructions.compare({"a": 104}, {"a": 100}) == ["a: 104 instructions, 100 in the table"]
    wrong = instructions.compare({"a": 1}, {"b": 1})
    assert wrong == ["a: not in the table", "b: in the table, but there is no such scenario"]


@pytest.mark.parametrize("bad", [["--threads", "0"], ["--budget", "-1"], ["--peers", "nonesuch"]])
def test_bad_options_are_refused(bad):
    ran = subprocess.run(
        [sys.executable, "-m", "benches", *bad],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "expected" in ran.stderr or "there are" in ran.stderr


def test_the_readmes_figures_are_five_rows_as_table_and_picture(tmp_path):
    chosen = command.choose(False, [], headline=True)
    assert len(chosen) == 5
    results = []
    for group, row in chosen:
        result = measure.Result(row, group)
        times = {"girih": 1e-3, "jax": 2e-3, "torch out=": 1e-4}
        result.figures = {n: measure.Figure(t, 0.0, t, 1) for n, t in times.items()}
        results.append(result)
    run = {"versions": {"girih": "0"}, "processor": "p", "threads": 1, "date": "2026-01-01T0"}
    figures.write(tmp_path, run, results)
    table = (tmp_path / "figures.md").read_text()
    assert all(f"| {row.headline} | 1 ms | 2 ms (jax) | 2 |" in table for _, row in chosen)
    assert (tmp_path / "figures.svg").read_text().count("jax 2 ms") == 5
    readme = f"a\n{figures.BEGIN}\nold\n{figures.END}\nb"
    assert figures.into(readme, "new") == f"a\n{figures.BEGIN}\nnew\n{figures.END}\nb"


def test_the_readme_shows_the_figures_that_were_measured_last():
    measured = (figures.FOLDER / "figures.md").read_text()
    shown = figures.README.read_text().split(figures.BEGIN)[1].split(figures.END)[0]
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 7
    assert all(row in measured for row in rows)
