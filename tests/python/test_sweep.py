"""The rows of the sweep (``benches/sweep``) are what they say: with short axes, Girih's results are
those of NumPy or PyTorch. No test asserts a time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import girih as gr
import numpy as np
import pytest
from girih import _girih

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches import measure, peers  # noqa: E402
from benches.sweep import catalogue, causes, checks, run, table  # noqa: E402
from benches.sweep.rows import Operand, Row, generate, libs  # noqa: E402

FAMILIES = sorted({row.family for row in catalogue.ROWS})
#: The operations that this sweep was begun for, because they were far behind.
BEGUN_WITH = """
unique_values of 1M, 1,000 values, i32; while_loop of 1,000 scalar steps; pad reflect, 2,000 x 2,000;
repeat(x, 8) of 256K; [4096, 4096] @ [4096], f32; randperm of 100,000;
depthwise convolution 5x5, [4, 32, 64, 64]; nearest x2 of an image, 480 x 640 x 3;
searchsorted of 1M in 10,000; randn, 16 MB; max of rows of 16, f32 [65536, 16];
softmax [65536, 16]; bilinear x2, [4, 16, 128, 128]; histogram of 1M in 100 bins;
roll along rows, f32 2,048 x 2,048; flip along rows, f32 2,048 x 2,048; take 100,000 rows of 64;
take 1M numbers of 1M; median of rows, [1000, 1001];
squared distances of 2,048 points in 64 dimensions; k-means step, 10,000 points of 16, 32 centres;
graph attention layer, 1,024 nodes of 64; [4096, 4, 4] @ [4096, 4, 4], f32; nonzero of 1M;
sort of 1M, i32; rfft 1024 x 1024; fft of 1M; fft2 512 x 512;
causal attention, 12 heads, 1,024 x 64; cumsum of 1M, f32 [1048576];
cumsum of rows, f32 [2048, 2048]; x % 7, i64, 4 MB; erf, f32, 4 MB; svdvals of [256, 256], f32;
scan of 1,000 small vectors; embedding with sparse update; scatter-add of 1M into 1,000;
pow, f32, 4 MB; add, i32, 4 MB; argsort of 1M, f32; atan2, f32, 4 MB;
transpose [128, 128, 64] to (2, 1, 0), float32; convolution 3x3, batch 4, [4, 64, 56, 56];
x[::2, ::2], 2,048 x 2,048
"""


@pytest.fixture(scope="module")
def libraries():
    # Torch reads the number of its threads from the environment of a benchmark.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return peers.installed(["girih", "numpy", "torch"])[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_rows_with_short_axes_have_the_values_of_a_peer(family, libraries):
    rows = [row.shrunk() for row in catalogue.ROWS if row.family == family]
    assert rows
    for row in rows:
        found = {
            library.name: checks.arrays(library, row.build(library, [])())
            for library in libraries
            if library.name in row.calls
        }
        checks.check(row, found)


def test_a_sweep_has_all_ops_or_says_why_not():
    [library] = peers.installed(["girih"])[0]
    found = set()
    for row in catalogue.ROWS:
        if row.compiled:
            small = row.shrunk()
            program = gr.make_graph(small.body(library))(*small.tensors(library))
            found |= {node.op for node in program.nodes}
    names = {op["name"] for op in _girih._registry()}
    assert names - found == set(catalogue.WITHOUT)


def test_a_sweep_has_at_least_400_rows_with_unique_names():
    rows = catalogue.choose(False, False, [])
    names = [row.name for row in catalogue.ROWS]
    assert len(rows) >= 400
    assert len(set(names)) == len(names)
    wanted = [name.strip() for name in BEGUN_WITH.replace("\n", " ").split(";")]
    assert set(wanted) <= {row.name for row in rows}
    assert all({"girih"} <= set(row.calls) <= {"girih", "numpy", "torch", "jax"} for row in rows)
    quick = catalogue.choose(True, False, [])
    assert {row.name for row in quick} < {row.name for row in rows}
    assert len(catalogue.choose(False, True, [])) == len(names)
    assert [r.name for r in catalogue.choose(False, False, ["roll of 1M"])] == ["roll of 1M"]
    assert catalogue.choose(False, False, ["no such row"]) == []


def test_short_axes_that_were_equal_stay_equal():
    operand = Operand((1000, 3, 1000), "int32", "indices", high=1000)
    small = operand.shrunk()
    assert small.shape[0] == small.shape[2] == small.high <= 64
    assert small.shape[1] == 3
    values = generate(small)
    assert values.dtype == np.int32
    assert values.min() >= 0
    assert values.max() < small.high
    assert generate(small) is values
    assert generate(Operand(())).shape == ()


def row(body, **fields):
    return Row("a row", "family", "op", (Operand((64,)),), body, **fields)


def test_values_that_differ_or_cannot_be_compared_are_wrong(libraries):
    girih_and_numpy = libraries[:2]
    good = row(libs(lambda xp, x: x + x))
    run.samplers(good, girih_and_numpy, run.Measured(good))
    bad = row(libs(lambda xp, x: x + x, numpy=lambda xp, x: 2.1 * x))
    with pytest.raises(measure.WrongValueError, match=r"a row: girih differs from numpy by 0\.\d"):
        run.samplers(bad, girih_and_numpy, run.Measured(bad))
    longer = row(libs(lambda xp, x: x, numpy=lambda xp, x: x[:3]))
    with pytest.raises(measure.WrongValueError, match="shapes"):
        run.samplers(longer, girih_and_numpy, run.Measured(longer))
    nan, inf = np.array([np.nan, 1.0]), np.array([np.inf, 1.0])
    assert checks.difference(nan, nan) == checks.difference(inf, inf) == 0.0
    assert checks.difference(nan, np.ones(2)) == float("inf")
    assert checks.difference(np.array([1j]), np.array([2j])) == 0.5
    large = np.arange(1 << 20)
    assert checks.difference(large, large) == 0.0
    assert checks.sample(large).size < checks.COMPARED * 2


def test_draws_are_compared_by_their_moments():
    draws = row(libs("zeros"), check="moments", tolerance=0.1)
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal(10_000), rng.standard_normal(10_000)
    assert checks.compare(draws, [first], [second]) < 0.1
    assert checks.compare(draws, [first], [second + 1]) > 0.1
    with pytest.raises(measure.WrongValueError, match="2 and 1 results"):
        checks.compare(draws, [first, first], [second])


def facts_of(value):
    found = gr.explain(value, asm=True)
    return causes.of_kernels(found.kernels, [b["code"] for b in found.bottlenecks])


def test_causes_are_those_that_explain_names():
    x = gr.ones([256, 256]).eval()
    long = gr.ones([1 << 16], dtype=gr.float64).eval()
    name = lambda value, seconds=1.0: causes.cause(facts_of(value), seconds)
    assert facts_of(gr.lgamma(long)).portable == 1
    assert name(gr.lgamma(long)) == "portable executor"
    positions = (gr.arange(256) * 3) % 256
    assert facts_of(x[:, positions]).indexed == 1
    assert causes.computes_positions("  v0 = iota i0: i64\n  v1 = gather b0[0] + 1*v0 of 9")
    assert not causes.computes_positions("  v0 = load b1[i0]\n  v1 = gather b0[0] + 1*v0 of 9")
    assert name(x[:, positions]) == "element-wise index arithmetic"
    assert facts_of(x[:, gr.asarray(np.arange(256))]).indexed == 0
    assert name(gr.sort(x)) == "routine: sort"
    assert name(x @ x) == "product"
    assert name(gr.randn([1 << 16])) == "draw"
    assert name(gr.fori_loop(0, 10, lambda _, x: x * 0.5, x)) == "loop or branch"
    assert name(gr.exp(x)) == "generated code"
    assert name(gr.exp(x), 1e-6) == "cost of a call"
    dynamic = causes.Facts(error="evaluated op by op")
    assert causes.cause(dynamic, 1.0) == "evaluated op by op"


def measured(name, times, **fields):
    out = run.Measured(row(libs("exp"), **fields))
    object.__setattr__(out.row, "name", name)
    out.figures = {n: measure.Figure(t, 0.0, 10 * t, 1) for n, t in times.items()}
    return out


def about(processor="P (family 1, model 2)"):
    return {
        "processor": processor, "threads": 2, "date": "2026-01-02T03", "commit": "c", "seconds": 1,
        "cpus": 2, "system": "s", "load_before": (), "load_after": (), "versions": {"girih": "0"},
        "missing": {"jax": "not installed"}, "wrong": [],
        "limits": {"f32": {"gflops": 1.0}, "bandwidth": {"a": {"bytes": 1 << 20, "add": 10.0}}},
    }  # fmt: skip


def test_the_report_has_what_is_behind_and_what_is_slow_alone(tmp_path):
    results = [
        measured("far behind", {"girih": 3.0, "numpy": 1.0, "jax": 2.0}),
        measured("a little behind", {"girih": 1.2, "torch": 1.0}),
        measured("ahead", {"girih": 1.0, "torch": 3.6}),
        measured("slow alone", {"girih": 1.0}, bytes=1e9),
    ]
    results[0].facts.portable = 1
    path = table.write(tmp_path, about(), results)
    text = path.read_text()
    assert path.name == "p-family-1-model-2-2-threads.md"
    assert "4 rows, 3 with a peer: geometric mean 1.00; behind are 2 (67%) by more than 1.1" in text
    assert "| far behind | 3 s | 1 s (numpy) | 3.00 |" in text
    assert "| portable executor | 1 | 0.33 | 1 | 1 | 1 | far behind (3.00) |" in text
    assert "| slow alone | 1 s |  |  | 10% | generated code |" in text
    assert "| op | 4 | 1 | 0 | 0 |" in text
    assert "JAX's first call takes 0.7 times as long" in text
    kept = json.loads((tmp_path / "p-family-1-model-2-2-threads.json").read_text())
    assert [line["factor"] for line in kept["rows"]] == [3.0, 1.2, 0.278, None]
    table.write(tmp_path, about("Q"), results[2:3])
    index = (tmp_path / "index.md").read_text()
    assert "| [P (family 1, model 2), 2 threads](p-family-1-model-2-2-threads.md) |" in index
    assert "| [Q, 2 threads](q-2-threads.md) | 2026-01-02 | c | 1 | 3.60 | 0 | 0 | 0 | 0 |" in index
    assert "none with a peer" in table.overview([table.entry(results[3], None)])


def test_the_command_measures_chosen_rows(tmp_path):
    options = [
        "--only",
        "roll, tiny",
        "--only",
        "abs, f32, tiny",
        "--peers",
        "numpy",
        "--no-limits",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "benches", "--sweep", *options, "--threads", "1", "--out",
         str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 rows, 2 with a peer" in ran.stdout
    [kept] = tmp_path.glob("*threads.json")
    lines = json.loads(kept.read_text())["rows"]
    assert [line["name"] for line in lines] == ["abs, f32, tiny", "roll, tiny"]
    assert all(set(line["times"]) == {"girih", "numpy"} for line in lines)
    assert all(line["first"]["girih"] > 0 for line in lines)
    listed = subprocess.run(
        [sys.executable, "-m", "benches", "--sweep", "--list", "--only", "no such row"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (listed.returncode, listed.stdout) == (1, "no row has such a name\n")
