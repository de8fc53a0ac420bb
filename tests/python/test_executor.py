"""Executors, time limits, eager mode, tasks, and the program cache on disk."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

import girih as gr
import pytest
from conftest import Counters


def long():
    """A computation that takes seconds."""
    x = gr.arange(2**25, dtype="float32")
    for _ in range(60):
        x = x.sin()
    return x


def test_configurations_have_the_seeds_defaults():
    config = gr.ExecutorConfig()
    assert (config.use_cache, config.profile, config.device) == (True, False, "cpu")
    assert config.timeout_seconds == 300
    assert gr.Context.current().executor().config == config
    assert gr.Executor(gr.ExecutorConfig(timeout_seconds=None)).config.timeout_seconds is None


@pytest.mark.parametrize("device", ["toaster", "simulator", "cs2", "cs3"])
def test_unknown_and_absent_devices_are_errors(device):
    # Devices that this build lacks are not in the list.
    word = r"the devices are: cpu(?!.*(simulator|cs2))" if device == "toaster" else "unavailable"
    with pytest.raises(gr.DeviceError, match=word):
        gr.Executor(gr.ExecutorConfig(device=device))


def test_executing_nodes_of_a_graph():
    executor = gr.Executor()
    with gr.graph_scope() as graph:
        x = gr.asarray([1.0, 2.0])
        a, b = x * 2, (x * 2).sum()
    assert graph.unrealized() != []
    assert executor.compile_only(graph, [a.node_id, b.node_id])
    result = executor.execute(graph, [a.node_id, b.node_id])
    assert result.success
    assert result.outputs[a.node_id].tolist() == [2.0, 4.0]
    assert min(result.compile_time_ms, result.transfer_time_ms, result.compute_time_ms) >= 0
    stats = executor.cache_stats()
    assert (stats["compiles"], stats["misses"], stats["hits"], stats["runs"]) == (1, 1, 1, 1)
    assert executor.execute_single(graph, b.node_id) == [6.0]
    with pytest.raises(gr.DTypeError, match="float32"):
        executor.execute_single(graph, b.node_id, "int64")
    failed = executor.execute(graph, [999])
    assert not failed.success
    assert "999" in failed.error_message
    assert failed.outputs == {}
    executor.clear_cache()
    assert executor.cache_stats()["cached_kernels"] == 0


def test_profiles_have_six_stages_and_kernels():
    with gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))) as executor:
        x = gr.ones([64, 64]).eval()
        (x @ x).sum().eval()
    profile = executor.profile
    assert profile is not None
    stages = ["extraction", "optimization", "codegen", "compile", "execution", "store"]
    assert list(profile.stages) == stages
    assert len(profile.kernels) >= 1
    assert gr.Executor().profile is None


def test_a_run_that_takes_too_long_is_stopped():
    with gr.use_executor(gr.Executor(gr.ExecutorConfig(timeout_seconds=0.05))):
        x = long()
        start = time.monotonic()
        with pytest.raises(gr.EvaluationTimeoutError, match=r"0\.05 s") as e:
            x.eval()
        assert isinstance(e.value, TimeoutError)
        assert time.monotonic() - start < 5
        assert x.state() == "lazy"
        assert (gr.ones([2]) + 1).tolist() == [2.0, 2.0]


def test_another_thread_may_cancel_an_evaluation():
    with gr.use_executor(gr.Executor()) as executor:
        timer = threading.Timer(0.2, executor.cancel_all)
        timer.start()
        with pytest.raises(gr.EvaluationCancelledError):
            long().eval()
        timer.join()
        assert (gr.ones([2]) + 1).tolist() == [2.0, 2.0]


@pytest.fixture
def interruptible():
    """Control-C raises, even if the process was started with the signal ignored or blocked."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGINT, handler if handler is not None else signal.SIG_DFL)


@pytest.mark.parametrize("start", ["eval", "async_eval"])
def test_control_c_interrupts_an_evaluation(start, interruptible):
    x = long()
    if start == "async_eval":
        gr.async_eval(x)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        timer.start()
        x.numpy()
    timer.join()
    gr.Context.current().executor().cancel_all()
    assert (gr.ones([2]) + 1).tolist() == [2.0, 2.0]


def test_eager_mode_computes_as_it_records():
    def step():
        gr.manual_seed(1)
        x = gr.randn([4, 3])
        f = lambda w: (gr.gelu(x @ w) * 0.3).sum()
        return gr.grad(f)(gr.randn([3, 2]))

    expected = step().tolist()
    assert not gr.is_eager()
    with gr.eager_mode(), gr.graph_scope() as graph:
        assert gr.is_eager()
        with Counters() as c:
            y = gr.asarray([1.0, 2.0]) + 1
        assert c["runs"] == 1
        assert y.state() == "available"
        assert "add" in graph.dump()
        assert step().tolist() == expected
        with pytest.raises(gr.IndexOutOfBoundsError):
            gr.take(y, gr.asarray([5]), axis=0)
    assert (y + 1).state() == "lazy"


def run(code, **env):
    env = {**os.environ, **{k: v for k, v in env.items() if v is not None}}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("name", "value", "eager"),
    [
        ("GIRIH_EAGER_MAX_GRAPH", "1", True),
        ("NABLA_EAGER_MAX_GRAPH", "1", True),
        ("EAGER_MAX_GRAPH", "0", False),
        ("EAGER_MAX_GRAPH", "", False),
    ],
)
def test_eager_mode_by_the_environment(name, value, eager):
    code = "import girih as gr; x = gr.ones([2]) + 1; print(gr.is_eager(), x.state())"
    out = run(code, **{name: value})
    assert out.stdout.split() == [str(eager), "available" if eager else "lazy"], out.stderr


def test_an_invalid_environment_variable_is_an_error():
    code = "import girih as gr; gr.ones([2]) + 1"
    out = run(code, GIRIH_EAGER_MAX_GRAPH="junk")
    assert "InvalidArgumentError" in out.stderr
    assert "GIRIH_EAGER_MAX_GRAPH=junk" in out.stderr


def test_shape_verification_accepts_correct_graphs():
    with gr.verify_shapes():
        x = gr.ones([2, 3, 4])
        assert gr.softmax(x.mean(1), axis=-1).sum().item() == pytest.approx(2)


def test_tasks_have_their_own_scopes():
    async def work(n):
        outer = gr.current_graph().id
        with gr.graph_scope() as graph:
            ids = []
            for _ in range(3):
                x = gr.ones([2]) * n
                ids.append(gr.current_graph().id)
                await asyncio.sleep(0)
                with gr.eager_mode(n % 2 == 0):
                    await asyncio.sleep(0)
                    assert (x + n).state() == ("available" if n % 2 == 0 else "lazy")
            assert set(ids) == {graph.id}
            nodes = graph.num_nodes
        assert gr.current_graph().id == outer
        return graph.id, nodes

    async def main():
        return await asyncio.gather(*(work(n) for n in range(2, 6)))

    before = gr.current_graph().id
    results = asyncio.run(main())
    assert len({graph for graph, _ in results}) == 4
    assert len({nodes for _, nodes in results}) == 1
    assert gr.current_graph().id == before


def test_source_lines_can_be_switched_off():
    gr.set_source_lines(False)
    try:
        bad = gr.take(gr.ones([2]), gr.asarray([7]), axis=0)
        with pytest.raises(gr.IndexOutOfBoundsError) as e:
            bad.eval()
        assert __file__ not in str(e.value)
        assert f"node {bad.node_id}" in str(e.value)
    finally:
        gr.set_source_lines(True)


def test_compiling_in_the_background():
    x = gr.asarray([1.0, 2.0])
    y = (x * 3).tan() - x
    compilation = gr.compile_only(y)
    compilation.wait()
    assert compilation.done()
    with Counters() as c:
        y.eval()
    assert (c["compiles"], c["hits"]) == (0, 1)


PROGRAM = """
import girih as gr
x = gr.asarray([[1.0, 2.0], [3.0, 4.0]])
w = gr.nn.Linear(2, 3)
y = gr.softmax(gr.gelu(x @ x) + 1.5, axis=1).sum()
z = gr.grad(lambda x: gr.layer_norm(x, 2).exp().sum())(x)
gr.eval(y, z)
s = gr.cache_stats()
print(s["misses"], s["disk_hits"], s["compiles"], y.item(), z.tolist())
"""


def stored_in(directory):
    """The environment of a process that stores all programs on disk."""
    every = {"GIRIH_CACHE": "1", "GIRIH_CACHE_MIN_COMPILE_MS": "0"}
    return {**every, "GIRIH_CACHE_DIR": str(directory)}


def test_programs_that_compile_fast_are_not_stored(tmp_path):
    env = {**stored_in(tmp_path), "GIRIH_CACHE_MIN_COMPILE_MS": "3600000"}
    assert run(PROGRAM, **env).returncode == 0
    assert list((tmp_path / "programs").iterdir()) == []
    result = run(PROGRAM, **{**env, "GIRIH_CACHE_MIN_COMPILE_MS": "soon"})
    assert "GIRIH_CACHE_MIN_COMPILE_MS=soon" in result.stderr


def test_a_second_process_compiles_nothing(tmp_path):
    """Files that are there are loaded, and others are compiled."""
    env = stored_in(tmp_path)
    first = run(PROGRAM, **env)
    misses, hits, _compiles, *values = first.stdout.split(maxsplit=3)
    assert int(misses) > 0, first.stderr
    assert hits == "0"
    second = run(PROGRAM, **env)
    assert second.stdout.split(maxsplit=3) == ["0", misses, "0", *values]
    # So are programs whose files were deleted, and damaged files.
    for file in (tmp_path / "programs").iterdir():
        file.unlink()
    assert run(PROGRAM, **env).stdout.split(maxsplit=3)[:2] == [misses, "0"]
    assert run(PROGRAM, **env).stdout.split(maxsplit=3) == ["0", misses, "0", *values]
    for file in (tmp_path / "programs").iterdir():
        file.write_bytes(file.read_bytes()[:-3] + b"abc")
    third = run(PROGRAM, **env)
    assert third.stdout.split(maxsplit=3)[:2] == [misses, "0"]
    assert third.stdout.split(maxsplit=3)[3:] == values
    assert run(PROGRAM, **{**env, "GIRIH_CACHE": "0"}).stdout.split()[:2] == [misses, "0"]
    assert "GIRIH_CACHE=junk" in run(PROGRAM, **{**env, "GIRIH_CACHE": "junk"}).stderr


DYNAMIC = """
import sys
import girih as gr
import numpy as np

def steps(x):
    # An even batch and an odd one are programs of their own.
    y = x * 2 if x.shape[0] % 2 == 0 else x - 1
    y = gr.fori_loop(0, 3, lambda i, c: gr.tanh(c @ gr.ones([3, 3])), y)
    return gr.softmax(y @ x.T, axis=-1).sum(0), y[::-1].mean(), gr.random.uniform(x.shape)

f = gr.compile(steps, dynamic_dims={0: {0: "batch"}})
gr.random.seed(7)
results = {}
for size in map(int, sys.argv[1].split(",")):
    x = gr.asarray(np.arange(size * 3, dtype="float32").reshape(size, 3) / 10)
    results[size] = [r.tolist() for r in f(x)][:2]
s = gr.cache_stats()
print(s["disk_hits"], s["compiles"], s["bindings"], sorted(results.items()))
"""


def test_programs_bound_to_sizes_are_found_by_a_second_process(tmp_path):
    env = stored_in(tmp_path)

    def counted(sizes, **env):
        found = run(DYNAMIC.replace("sys.argv[1]", repr(sizes)), **env)
        assert found.stdout, found.stderr
        hits, compiles, bindings, values = found.stdout.split(maxsplit=3)
        return (int(hits), int(compiles), int(bindings)), values

    counts, values = counted("4,6,5,7", **env)
    assert counts == (0, 2, 4)
    # The symbols store the size of the first call, so try both orders.
    for sizes in ("4,6,5,7", "7,6,5,4"):
        assert counted(sizes, **env) == ((4, 0, 0), values)
    # Size 6 is stored, and size 8 is new.
    assert counted("6,8", **env)[0] == (1, 1, 1)
    assert counted("4,6,5,7", GIRIH_CACHE="0") == ((0, 2, 4), values)


def test_in_eager_mode_the_graph_shows_what_was_recorded():
    with gr.graph_scope() as graph, gr.eager_mode():
        x = gr.asarray([1.0, 4.0])
        y = gr.sqrt(x) + 1
        z = gr.tanh(y)
        lines = graph.dump().splitlines()
    recorded = [line.split(" = ")[1].split(" ")[0] for line in lines[1:]]
    assert recorded == ["input", "add", "tanh"]
    assert all("(available)" in line for line in lines[1:])
    assert z.tolist() == pytest.approx([math.tanh(2), math.tanh(3)])


def test_a_graph_with_a_history_shows_what_was_computed(capsys):
    held = gr.ones([2])
    with gr.graph_scope(history=True) as graph, gr.eager_mode():
        x = gr.asarray([1.0, 4.0])
        y = gr.sqrt(x) + 1
        z = gr.tanh(y) * held
        lines = graph.dump().splitlines()[1:]
        gr.print_graph(z)
        printed = capsys.readouterr().out
        # A lazy tensor of the same scope, and one of another scope.
        del y
        dropped = graph.dump()
    shown = [re.fullmatch(r"  %(\d+) = (\w+)\((.*)\) -> (.*) \((\w+)\)", line) for line in lines]
    found = [match.groups() for match in shown if match]
    number = {op: n for n, op, *_ in found if op not in ("input", "constant")}
    operands = {op: inputs for _, op, inputs, *_ in found}
    assert operands["sqrt"] == "%" + found[0][0]
    assert f"%{number['sqrt']}, %" in operands["add"]
    assert operands["tanh"] == "%" + number["add"]
    assert operands["mul"].startswith(f"%{number['tanh']}, %")
    for op in ("sqrt(", "constant", "add(", "tanh(", "mul("):
        assert op in printed
    assert "(dropped)" in dropped
    assert z.tolist() == pytest.approx([math.tanh(2), math.tanh(3)])
    with gr.graph_scope(history=True) as graph:
        lazy = gr.exp(x) * 2
        before = gr.graph_to_text(lazy)
        gr.eval(lazy)
        assert gr.graph_to_text(lazy) == before
    with gr.graph_scope(history=True):
        gr.print_graph(lazy)  # Recorded elsewhere: a value.
    assert "exp" not in capsys.readouterr().out
    with pytest.raises(gr.DTypeError, match="history is a bool"):
        gr.graph_scope(history=1)


TUNED = """
import hashlib, girih as gr, numpy as np
rng = np.random.default_rng(0)
draw = lambda *shape, d="float32": gr.asarray(rng.standard_normal(shape).astype(d))
values = []
for m, n, k in ((1, 700, 900), (7, 300, 1100), (100, 130, 170), (513, 300, 700)):
    for d in ("float16", "float32", "float64"):
        x, w = draw(m, k, d=d), draw(k, n, d=d)
        for f in (lambda x, w: x @ w, lambda x, w: gr.softmax(x @ w + 1, -1).sum(0)):
            values.append(gr.compile(f)(x, w))
image, kernel = draw(4, 16, 30, 30), draw(24, 16, 3, 3)
values += gr.grad(lambda x, w: gr.sin(gr.conv2d(x, w)).sum(), (0, 1))(image, kernel)
x = draw(2000, 1000)
values += [x.sum(0), x.sum(1), x.sum(), gr.softmax(x, -1), gr.exp(x).mean(0), x.T + draw(1000, 2000)]
values.append(gr.layer_norm(x, (1000,)))
q = draw(4, 256, 32)
values.append(gr.scaled_dot_product_attention(q, q, q))
for value in values:
    print(hashlib.sha256(value.numpy().tobytes()).hexdigest())
"""


def test_parameters_of_the_machine_change_no_bit() -> None:
    def run(*arguments: str, tuning: str = "") -> str:
        env = {**os.environ, "GIRIH_TUNING": tuning, "GIRIH_CACHE": "0"}
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    expected = run("-c", TUNED)
    parameters = json.loads(run("-m", "girih", "info", "--json"))["tuning"]
    assert len(parameters) > 5
    for factor in (1 / 64, 16):
        changed = {name: max(1, int(value * factor)) for name, value in parameters.items()}
        tuning = ",".join(f"{name}={value}" for name, value in changed.items())
        assert run("-c", TUNED, tuning=tuning) == expected, tuning
