"""Profiles: the spans of kernels, copies and compilations, their table, and Chrome's format."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import girih as gr
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def chain(n: int) -> gr.Tensor:
    x = gr.asarray(np.arange(n * n, dtype=np.float32).reshape(n, n))
    return gr.tanh(x @ x).sum()


def test_each_kernel_is_a_span_on_its_stream() -> None:
    gr.eval(chain(23))
    y = chain(23)
    with gr.profile() as prof:
        gr.eval(y)
    launches = [s for s in prof.spans if s.kind == "launch"]
    assert launches
    assert {s.stream for s in launches} == {0}
    assert all(s.duration > 0 and s.name for s in launches)
    ends = [s.start + s.duration for s in launches]
    starts = [s.start for s in launches]
    assert all(a <= b for a, b in zip(ends, starts[1:], strict=False)), "one after the other"
    assert not [s for s in prof.spans if s.kind == "compile"]


def test_copies_and_compilations() -> None:
    data = np.arange(1000, dtype=np.float32)
    with gr.profile() as prof:
        x = gr.asarray(data, copy=True) * 1.2345
        # A size used only in this test, so that its program has not been compiled.
        np.asarray(gr.exp(x[: 977 - 31]))
        x.tolist()
    kinds = [s.kind for s in prof.spans]
    assert "compile" in kinds
    uploads = [s for s in prof.spans if s.kind == "copy_to_device"]
    assert any(s.bytes == 4000 and s.stream == 0 for s in uploads), "a copy of the stream"


def test_compile_time_is_apart_from_execution_time() -> None:
    def total() -> float:
        return gr.cache_stats()["compile_time_ms"]

    def shown(prof: gr.profile, kinds: set[str]) -> float:
        return pytest.approx(1e3 * sum(s.duration for s in prof.spans if s.kind in kinds))

    others = {"launch", "copy_to_device", "copy_from_device", "copy_on_device", "host"}
    # A size used only in this test, so that its program has not been compiled.
    before, y = total(), chain(43)
    with gr.profile() as prof:
        gr.eval(y)
    assert 0 < prof.compile_time_ms <= total() - before
    assert prof.compile_time_ms == shown(prof, {"compile"})
    assert prof.execution_time_ms == shown(prof, others)

    function = gr.compile(lambda x: gr.tanh(x * 3).sum(), dynamic_dims={0: {0: "n"}})
    assert function.compile_time_ms == 0
    times = [0.0]
    for size in [19, 23]:
        x = gr.ones([size]).eval()
        before = total()
        function(x)
        times.append(function.compile_time_ms)
        assert times[-1] - times[-2] >= total() - before > 0, "each size is bound"
        with gr.profile() as prof:
            function(x)
        assert (function.compile_time_ms, prof.compile_time_ms) == (times[-1], 0)
        assert prof.execution_time_ms > 0
    function.clear()
    assert function.compile_time_ms == 0

    executor = gr.Executor(gr.ExecutorConfig(profile=True))
    with gr.use_executor(executor):
        gr.eval(chain(47))
    profile = executor.profile
    assert profile is not None
    stages = profile.stages
    parts = [stages[name] for name in ("optimization", "codegen", "compile")]
    assert profile.compile_time_ms == sum(parts) >= executor.cache_stats()["compile_time_ms"] > 0
    assert profile.execution_time_ms == stages["execution"]


def test_streams_are_told_apart() -> None:
    side = gr.Stream()
    with gr.profile() as prof:
        with gr.stream(side):
            y = gr.async_eval(chain(31))
        gr.eval(chain(31))
        gr.synchronize()
    assert y.state() == "available"
    assert {s.stream for s in prof.spans if s.kind == "launch"} == {0, side.index}


def test_other_threads_are_seen() -> None:
    gr.eval(chain(17))
    with gr.profile() as prof:
        thread = threading.Thread(target=lambda: gr.eval(chain(17)))
        thread.start()
        thread.join()
    assert any(s.kind == "launch" for s in prof.spans)


def test_nothing_is_seen_before_and_after() -> None:
    with gr.profile() as prof:
        pass
    gr.eval(chain(11))
    assert prof.spans == []
    assert prof.dropped == 0


def test_profiles_nest_and_can_be_entered_again() -> None:
    gr.eval(chain(13))
    with gr.profile() as outer:
        gr.eval(chain(13))
        with gr.profile() as inner:
            gr.eval(chain(13))
    assert 0 < len(inner.spans) < len(outer.spans)
    with inner:
        pass
    assert inner.spans == []


def test_the_table_has_a_line_for_each_name() -> None:
    with gr.profile() as prof:
        for _ in range(3):
            gr.eval(chain(19))
    lines = prof.table().splitlines()
    names = ["name", "calls", "total", "us", "mean", "us", "share", "chunks", "others"]
    assert lines[0].split() == names
    assert len(lines) - 1 == len({(s.kind, s.name) for s in prof.spans})
    assert repr(prof) == prof.table()


def test_chrome_trace(tmp_path: Path) -> None:
    side = gr.Stream()
    with gr.profile() as prof, gr.stream(side):
        gr.eval(chain(29))
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(prof.spans)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {names[e["tid"]] for e in spans if e["cat"] == "launch"} == {f"stream {side.index}"}
    for event, span in zip(spans, prof.spans, strict=True):
        assert event["name"] == span.name
        assert event["dur"] == pytest.approx(span.duration * 1e6)
        assert event["ts"] == pytest.approx(span.start * 1e6)


def test_errors(tmp_path: Path) -> None:
    prof = gr.profile()
    with pytest.raises(gr.InvalidArgumentError, match="with gr"):
        prof.table()
    with prof:
        pass
    with pytest.raises(OSError, match="none"):
        prof.export_chrome_trace(tmp_path / "none" / "t.json")


def test_devices_are_told_apart(tmp_path: Path) -> None:
    x = gr.eval(gr.ones(37) * 3)
    with gr.profile() as prof:
        gr.eval(x + 5, (x.to("mock") + 5) * 7)
    assert {s.device for s in prof.spans if s.kind == "launch"} == {"cpu", "mock"}
    copies = [(s.kind, s.device, s.bytes) for s in prof.spans if s.kind.startswith("copy")]
    assert ("copy_from_device", "cpu", 4 * 37) in copies
    assert ("copy_to_device", "mock", 4 * 37) in copies
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(processes.values()) == ["girih cpu", "girih mock"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [processes[e["pid"]] for e in spans] == [f"girih {s.device}" for s in prof.spans]


BROWSER = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)


def test_the_page_holds_the_trace(tmp_path: Path) -> None:
    with gr.profile() as prof:
        gr.eval(chain(31))
    path, trace = tmp_path / "t.html", tmp_path / "t.json"
    prof.export_html(path)
    prof.export_chrome_trace(trace)
    inside = path.read_text().partition('id="trace">')[2].partition("</script>")[0]
    assert json.loads(inside) == json.loads(trace.read_text())
    with pytest.raises(gr.InvalidArgumentError, match="html"):
        prof.export_html(tmp_path / "t.json")


def drawn_by_a_browser(page: Path, folder: Path) -> tuple[list[str], set[str], str]:
    """The kinds of the spans that a headless browser draws, the names of rows, and the whole DOM."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    done = subprocess.run(
        [*command, f"--user-data-dir={folder / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    spans = re.findall(
        r'<div class="span (\w+)" title="[^"]*" style="left: [\d.e-]+px', done.stdout
    )
    rows = re.findall(r'<div class="row"><b>([^<]*)</b>', done.stdout)
    return sorted(spans), set(rows), done.stdout


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_draws_each_span_of_the_trace(tmp_path: Path) -> None:
    side = gr.Stream()
    with gr.profile() as prof:
        gr.eval(chain(33), chain(33).to("mock") + 1)
        with gr.stream(side):
            gr.eval(chain(35))
    path = tmp_path / "t.html"
    prof.export_html(path)
    drawn, rows, dom = drawn_by_a_browser(path, tmp_path)
    assert drawn == sorted(span.kind for span in prof.spans)
    assert {f"girih {gr.devices()[0]}, stream {side.index}", "girih mock, stream 0"} <= rows
    assert f"{len(prof.spans)} spans" in dom


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_a_browser_draws_the_page_of_the_command_line(tmp_path: Path) -> None:
    model, page = tmp_path / "model.pfgb", tmp_path / "t.html"
    gr.save_graph(model, chain(37))
    command = [sys.executable, "-m", "girih", "trace", str(model), "-n", "3", "-o", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    inside = page.read_text().partition('id="trace">')[2].partition("</script>")[0]
    spans = [e for e in json.loads(inside)["traceEvents"] if e["ph"] == "X"]
    drawn, rows, dom = drawn_by_a_browser(page, tmp_path)
    assert drawn == sorted(e["cat"] for e in spans)
    assert drawn.count("launch") >= 3
    assert f"girih {gr.devices()[0]}, stream 0" in rows
    assert f"{len(spans)} spans" in dom


def test_chunks_of_kernels_are_counted() -> None:
    x = gr.asarray(np.ones([1 << 20], np.float32)).eval()
    small = gr.ones([8, 8]).eval()
    gr.eval(x + x, small + small)
    before = gr.cache_stats()
    y, z = x + x, small + small
    with gr.profile() as prof:
        gr.eval(y)
        gr.eval(z)
    after = gr.cache_stats()
    counts = [(s.chunks, s.chunks_of_workers) for s in prof.spans if s.kind == "launch"]
    divided = [count for count in counts if count[0] > 1]
    assert len(divided) == 1, "a small kernel is not divided"
    assert divided[0][0] >= 8
    assert 0 <= divided[0][1] <= divided[0][0]
    assert all(count[1] == 0 for count in counts if count[0] <= 1)
    # Other threads of this process may run kernels, too.
    for at, name in enumerate(["chunks", "chunks_of_workers"]):
        assert after[name] - before[name] >= sum(c[at] for c in counts)
