"""Explanations are correct, and the documentation shows their actual output."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import girih as gr
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
PASSES = ["isolate", "dead_code", "fold", "simplify", "log_softmax", "decompose", "cse"]
PASSES += ["branch", "prune", "loop_motion", "matmul_chain"]
FUSIONS = [
    "elementwise",
    "views",
    "reduction_prologue",
    "reduction_epilogue",
    "matmul_epilogue",
    "rows",
    "matmul_prologue",
    "horizontal",
    "reuse",
    "rematerialisation",
    "borders",
]


def test_the_transcript_in_the_documentation_is_what_is_printed():
    text = (DOCS / "explain.md").read_text()
    program, expected = re.findall(r"```(?:python|text)\n(.*?)```", text, re.S)[:2]
    gr.clear_cache()
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, "example.py", "exec"), {})
    assert printed.getvalue() == expected


def test_every_pass_and_fusion_is_documented_and_has_its_switch():
    text = (DOCS / "passes.md").read_text()
    assert re.findall(r"^## (.*_?.*)$", text, re.M)[: len(PASSES)] == PASSES
    x = gr.ones([2]).eval()
    for name in PASSES + FUSIONS:
        assert f"## {name}" in text or f"| `{name}` |" in text
        for switch in (gr.without_passes, gr.with_passes):
            with switch(name):
                assert gr.softmax(x, 0).tolist() == [0.5, 0.5]


def test_an_explanation_reads_as_text_as_data_and_as_json():
    x = gr.ones([4, 3]).eval()
    e = gr.explain(gr.softmax(x, 1), {"more": [x + 1]})
    assert json.loads(e.to_json()) == e.to_dict()
    assert set(e.to_dict()) == {
        "graph", "lines", "stages", "iterations", "optimized", "unused_arguments", "kernels",
        "traffic", "refusals", "bottlenecks", "operations", "memory", "cache",
    }  # fmt: skip
    assert e.stages[0]["pass"] == "input"
    assert e.stages[0]["text"] == e.graph
    assert e.stages[-1]["text"] == e.optimized
    assert {s["pass"] for s in e.stages} >= {"decompose"}
    assert all(kernel["name"] in str(e) for kernel in e.kernels)
    assert repr(e).startswith(f"Explanation(kernels={len(e.kernels)}, ")
    assert "kernels" in dir(e)
    with pytest.raises(AttributeError, match="kernels, lines"):
        e.nothing  # noqa: B018
    with pytest.raises(gr.InvalidArgumentError, match="explain"):
        gr.explain(3)


def test_kernels_know_the_users_line():
    x = gr.ones([4, 3]).eval()
    y = gr.exp(x)
    z = y.sum()
    e = gr.explain(z)
    lines = [int(line.rsplit(":", 1)[1]) for kernel in e.kernels for line in kernel["lines"]]
    first = test_kernels_know_the_users_line.__code__.co_firstlineno
    assert sorted(lines) == [first + 2, first + 3]
    assert all("test_explain.py" in line for kernel in e.kernels for line in kernel["lines"])


def test_bytes_and_operations_are_counted():
    a, b = gr.ones([8, 16]).eval(), gr.ones([16, 4]).eval()
    e = gr.explain(gr.relu(a @ b))
    (kernel,) = e.kernels
    assert kernel["name"] == "fused_matmul_relu"
    expected = {
        "bytes_read": 4 * (8 * 16 + 16 * 4),
        "bytes_written": 4 * 8 * 4,
        "flops": 8 * 4 * (2 * 16 + 1),
    }
    assert kernel["traffic"] == e.traffic == expected
    assert e.memory["peak_bytes"] == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_why_something_is_compiled_again():
    def program(shape, dtype="float32", op=gr.exp):
        return op(gr.ones(shape, dtype=dtype).eval() * 3 + 2).sum()

    def explained(*args, **kwargs):
        cache = gr.explain(program(*args, **kwargs)).cache
        return cache["state"], cache["differences"]

    gr.clear_cache()
    program([32, 784]).eval()
    # The evaluation above also compiled a program for the constant.
    assert explained([32, 784]) == ("hit", [])
    assert explained([16, 784]) == ("miss", ["shape of argument 0: [32, 784] -> [16, 784]"])
    state, fields = explained([32, 784], "float64")
    assert state == "miss"
    assert fields[0] == "dtype of argument 0: float32 -> float64"
    state, fields = explained([32, 784], op=gr.sin)
    assert state == "miss"
    assert len(fields) == 1
    assert re.fullmatch(r"op of %\d+: exp -> sin", fields[0])
    with gr.without_passes("cse"):
        state, fields = explained([32, 784])
        assert state == "miss"
        assert fields[0].startswith("option passes: ")


def test_every_reason_not_to_fuse_names_both_ops():
    x = gr.ones([5, 4]).eval()
    e = gr.explain(gr.softmax(x, 1) @ gr.exp(x).T)
    assert e.refusals
    names = dict(re.findall(r"(%\d+) = (\w+)\(", e.optimized))
    for refusal in e.refusals:
        for node in (refusal["value"], refusal["user"]):
            assert f"{node} {names[node]}" in refusal["sentence"]
        assert re.search(r"test_explain\.py:\d+$", refusal["line"])
    assert "memory" in {refusal["code"] for refusal in e.refusals}


def test_bottlenecks_name_the_kernel_and_what_would_help():
    x = gr.ones([1 << 24]).eval()
    (found,) = gr.explain(gr.exp(x[::64])).bottlenecks
    assert (found["code"], found["kernel"]) == ("strided_read", 0)
    assert found["lost_ns"] > 0
    assert "256 bytes apart" in found["sentence"]
    assert re.search(
        r"strided_read, kernel 0 \(.*test_explain\.py:\d+\)", str(gr.explain(gr.exp(x[::64])))
    )
    assert gr.explain(gr.exp(x)).bottlenecks == []


def test_explaining_changes_nothing():
    x = gr.ones([3, 9]).eval()
    y = gr.tanh(x).sum()
    before = gr.cache_stats()
    gr.explain(y)
    after = gr.cache_stats()
    assert y.is_lazy
    assert {k: after[k] for k in ("compiles", "hits", "misses", "runs")} == {
        k: before[k] for k in ("compiles", "hits", "misses", "runs")
    }


def test_machine_code_is_shown_when_asked_for():
    x = gr.ones([64]).eval()
    y = gr.exp(x * 2.5)
    plain = gr.explain(y)
    assert "machine code" not in str(plain)
    assert "assembly" not in plain.kernels[0]
    shown = gr.explain(y, asm=True)
    [kernel] = shown.kernels
    assert "machine code" in str(shown)
    if platform.machine() == "x86_64" and "avx2" in Path("/proc/cpuinfo").read_text():
        [code] = kernel["assembly"]
        # The constant that rounds in the exponential.
        assert re.search(r"v\w+ .*; 12582912$", code, re.M), code
        assert " ret\n" in code
    else:
        assert kernel["assembly"] == []


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_kernels_are_shown_as_c_that_compiles(tmp_path):
    x = gr.ones([4, 8]).eval()
    text = gr.explain(gr.softmax(gr.relu(x * 2 + 1), 1)).to_c()
    assert re.search(r"^void program\(", text, re.M), text
    (tmp_path / "kernels.c").write_text(text)
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-c", "kernels.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
def test_generated_functions_have_names_in_a_map_for_perf():
    code = """
import os
import girih as gr
gr.eval(gr.exp(gr.ones([64]).eval() * 2.5))
print(os.getpid(), bool(gr.explain(gr.exp(gr.ones([64]).eval()), asm=True).kernels[0]["assembly"]))
"""
    env = {**os.environ, "GIRIH_PERF_MAP": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    pid, generated = done.stdout.split()
    path = Path(f"/tmp/perf-{pid}.map")
    if generated == "False":
        assert not path.exists()
        return
    lines = path.read_text().splitlines()
    path.unlink()
    assert all(re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ girih:\w+", line) for line in lines), lines
    assert any("exp" in line for line in lines)
