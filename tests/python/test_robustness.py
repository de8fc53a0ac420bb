"""Sizes, environments and files of hostile or careless users."""

from __future__ import annotations

import itertools
import os
import stat
import subprocess
import sys
import threading

import girih as gr
import numpy as np
import pytest
from conftest import close

HUGE = 2**40
X = np.arange(6, dtype=np.float32)

# Recorded or rejected immediately at any size: nothing here may loop over elements.
TOO_LARGE = {
    "array_split": lambda: gr.array_split(gr.zeros(5), HUGE),
    "split": lambda: gr.split(gr.zeros(HUGE), HUGE),
    "unstack": lambda: gr.unstack(gr.zeros(HUGE)),
    "repeat": lambda: gr.repeat(gr.asarray(X), HUGE).eval(),
    "repeat each": lambda: gr.repeat(gr.zeros(2), gr.asarray([HUGE, 3])).eval(),
    "tile": lambda: gr.tile(gr.asarray(X), HUGE).eval(),
    "tolist": lambda: gr.zeros(HUGE).tolist(),
    "bytes": lambda: gr.zeros(HUGE).numpy(),
    "adaptive_avg_pool1d": lambda: gr.adaptive_avg_pool1d(gr.ones((1, 1, 5)), 2**53).eval(),
    "adaptive_max_pool2d": lambda: gr.adaptive_max_pool2d(gr.ones((1, 5, 7)), (2**31, 3)).eval(),
    "interpolate": lambda: gr.interpolate(gr.ones((1, 1, 5)), size=2**45).eval(),
    "pad": lambda: gr.pad(gr.asarray(X), HUGE, mode="wrap").eval(),
    "linspace": lambda: gr.linspace(0, 1, HUGE).eval(),
    "arange": lambda: gr.arange(HUGE).eval(),
    "tri": lambda: gr.tri(2**21).eval(),
    "fft": lambda: gr.fft.fft(gr.asarray(X), n=HUGE).eval(),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_tensors_beyond_the_memory_are_out_of_memory_errors(name):
    with pytest.raises(gr.OutOfMemoryError):
        TOO_LARGE[name]()


def test_sizes_beyond_64_bits_are_shape_errors():
    with pytest.raises(gr.ShapeError):
        gr.adaptive_avg_pool1d(gr.ones((1, 1, 5)), 2**62)
    with pytest.raises(gr.ShapeError):
        gr.repeat(gr.zeros(2), gr.asarray([2**62, 2**62]))
    for count in (gr.bincount, gr.histogram):
        with pytest.raises(gr.GirihError, match=str(HUGE)):
            count(gr.asarray([1, 2]), **{"minlength" if count is gr.bincount else "bins": HUGE})


@pytest.mark.parametrize("out", [1, 2, 3, 4, 5, 6, 7, 11, 13])
def test_pools_of_uneven_windows(out):
    x = np.arange(7, dtype=np.float32) ** 2
    windows = [x[i * 7 // out : -(-(i + 1) * 7 // out)] for i in range(out)]
    t = gr.asarray(x[None, None])
    close(gr.adaptive_avg_pool1d(t, out)[0, 0], np.array([w.mean() for w in windows]))
    close(gr.adaptive_max_pool1d(t, out)[0, 0], np.array([w.max() for w in windows]))


@pytest.mark.parametrize("counts", [[0, 0, 0], [1, 0, 3], [2], [0, 5, 0], [1, 1, 1]])
def test_slices_repeated_each_as_often_as_its_count(counts):
    x = X.reshape(3, 2)
    close(gr.repeat(gr.asarray(x), gr.asarray(counts), axis=0), np.repeat(x, counts, axis=0))
    grad = gr.grad(lambda x: gr.repeat(x, gr.asarray(counts), axis=0).sum())(gr.asarray(x))
    assert grad.tolist() == [[float(c)] * 2 for c in np.broadcast_to(counts, 3)]


def test_iteration_records_a_slice_when_it_is_asked_for():
    graph = gr.create_graph()
    with gr.reuse_graph(graph):
        x = gr.zeros((10**6, 2))
        before = graph.num_nodes
        rows = iter(x)
        assert graph.num_nodes == before
        assert next(rows).shape == (2,)
        assert graph.num_nodes <= before + 3
    assert rows.__length_hint__() == 10**6 - 1
    assert [r.tolist() for r in gr.asarray([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    rows = iter(gr.asarray([1]))
    assert iter(rows) is rows
    assert next(rows).item() == 1
    assert next(rows, "end") == next(rows, "end") == "end"
    assert list(gr.zeros((0, 3))) == []


def test_differences_taken_more_often_than_there_are_elements():
    for n in (6, 7, 2**40):
        assert gr.diff(gr.asarray(X), n=n).shape == (0,)
    assert gr.diff(gr.asarray(X), n=5).shape == (1,)


def test_a_summation_of_thousands_of_operands():
    x = gr.asarray([1.0, 2.0])
    many = gr.einsum(",".join(["a"] * 3000) + "->a", *[x * 0 + 1] * 3000)
    assert many.tolist() == [1.0, 1.0]
    letters = [chr(0x4E00 + i) for i in range(301)]
    chain = ",".join(a + b for a, b in itertools.pairwise(letters))
    eye = gr.eye(2)
    assert gr.einsum(f"{chain}->{letters[0]}{letters[-1]}", *[eye] * 300).tolist() == eye.tolist()


def test_shapes_from_iterators_without_an_end():
    for make in (gr.zeros, gr.ones(1).reshape, lambda s: gr.full(s, 1)):
        with pytest.raises(gr.GirihError):
            make(itertools.repeat(1))


def test_lengths_of_scalars_read_as_numpys():
    with pytest.raises(TypeError, match=r"len\(\) of unsized object"):
        len(gr.asarray(1))


# The environment.


def run(code, **variables):
    environment = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()}
    environment.pop(b"GIRIH_CACHE", None)
    environment |= {k.encode(): v for k, v in variables.items()}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, check=False)


USE = "import girih as gr; print(gr.ones(3).sum().item(), gr.is_eager())"
CYCLE = """
import gc
import girih as gr
gc.disable()

def leave_a_cycle():
    x = gr.zeros([1 << 20]) + 1
    x.eval()
    cycle = [x]
    cycle.append(cycle)

for _ in range(20):
    leave_a_cycle()
print("done")
"""


def test_memory_of_unreachable_objects_is_collected_before_an_allocation_fails():
    """Twenty tensors of 4 MB in unreachable cycles, on a device of 32 MB."""
    result = run(CYCLE, GIRIH_MEMORY_LIMIT="32M")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == b"done"


VARIABLES = [
    "GIRIH_MEMORY_LIMIT",
    "GIRIH_NUM_THREADS",
    "GIRIH_CACHE",
    "GIRIH_CACHE_LIMIT",
    "GIRIH_CACHE_MIN_COMPILE_MS",
]
VARIABLES += ["GIRIH_JIT", "GIRIH_ISA", "GIRIH_VERIFY_SHAPES", "GIRIH_SOURCE_LINES"]
VARIABLES += ["GIRIH_DEBUG_NANS"]


@pytest.mark.skipif(sys.platform == "win32", reason="the environment is text there")
@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("value", [b"\xff\xfe", b"nonsense"])
def test_an_invalid_environment_variable_is_named(variable, value):
    result = run(USE, **{variable: value})
    assert result.returncode != 0
    assert b"girih.errors" in result.stderr
    assert variable.encode() in result.stderr


@pytest.mark.parametrize(
    "value", [b"18446744073709551615", b"9223372036854775807", b"17179869184G"]
)
def test_a_memory_limit_beyond_the_address_space(value):
    result = run(USE, GIRIH_MEMORY_LIMIT=value)
    assert result.returncode != 0
    assert b"GIRIH_MEMORY_LIMIT" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes there")
def test_a_cache_directory_need_not_be_text(tmp_path):
    directory = os.fsencode(tmp_path) + b"/\xff"
    result = run(USE, GIRIH_CACHE_DIR=directory)
    assert result.returncode == 0, result.stderr
    assert os.path.isdir(directory)


# Files.


def test_a_module_saves_as_its_state_dict(tmp_path):
    model = gr.nn.Sequential(gr.nn.Linear(3, 4), gr.nn.BatchNorm1d(4), gr.nn.Linear(4, 2))
    x = gr.randn([5, 3])
    model(x)
    for suffix in ("safetensors", "npz"):
        file = tmp_path / f"model.{suffix}"
        gr.save(file, model)
        stored = gr.load(file)
        assert sorted(stored) == sorted(model.state_dict())
        other = gr.nn.Sequential(gr.nn.Linear(3, 4), gr.nn.BatchNorm1d(4), gr.nn.Linear(4, 2))
        other.load_state_dict(stored)
        model.eval()
        close(other.eval()(x), model(x).numpy())
        again = gr.load(file, like=other)
        assert again is not other
        close(again(x), model(x).numpy())
    # Other tools can read the file.
    assert sorted(np.load(tmp_path / "model.npz").files) == sorted(model.state_dict())


def test_trees_with_modules_come_back(tmp_path):
    model = gr.nn.Linear(3, 2)
    tree = {"model": model, "step": gr.asarray(3), "more": [gr.ones(2)]}
    file = tmp_path / "all.safetensors"
    gr.save(file, tree)
    assert sorted(gr.load(file)) == ["model.bias", "model.weight", "more.0", "step"]
    like = {"model": gr.nn.Linear(3, 2), "step": gr.asarray(0), "more": [gr.zeros(2)]}
    kept = like["model"].weight.tolist()
    back = gr.load(file, like=like)
    assert back["model"].weight.tolist() == model.weight.tolist()
    assert like["model"].weight.tolist() == kept
    assert (back["step"].item(), back["more"][0].tolist()) == (3, [1.0, 1.0])
    with pytest.raises(gr.InvalidArgumentError, match=r"extra"):
        gr.load(file, like={**like, "extra": gr.ones(1)})


WRITERS = {
    "x.npy": lambda file: gr.save(file, gr.ones(3)),
    "x.npz": lambda file: gr.savez(file, gr.ones(3)),
    "x.safetensors": lambda file: gr.save(file, {"a": gr.ones(3)}),
    "x.pfgb": lambda file: gr.save_graph(file, gr.ones(3) + 1),
    "x.svg": lambda file: gr.save_graph(file, gr.ones(3) + 1),
    "x.dot": lambda file: gr.dump_graphviz(gr.ones(3) + 1, file),
}


@pytest.mark.skipif(os.name != "posix", reason="modes and links")
@pytest.mark.parametrize("name", WRITERS)
def test_files_are_replaced_whole_and_keep_mode_and_link(tmp_path, name):
    write, file = WRITERS[name], tmp_path / name
    # Create links with the temporary names that earlier versions used.
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for planted in (f"{name}.{os.getpid()}.tmp", f".{name}.tmp"):
        (tmp_path / planted).symlink_to(victim)
    write(file)
    old = os.open(file, os.O_RDONLY)
    content = file.read_bytes()
    file.chmod(0o640)
    target, link = tmp_path / "sub" / name, tmp_path / f"link-{name}"
    target.parent.mkdir()
    file.rename(target)
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_bytes() == content
    # A process that has the old file open keeps it.
    assert os.read(old, len(content) + 1) == content
    os.close(old)
    assert victim.read_text() == "untouched"
    assert os.listdir(target.parent) == [name]


def test_threads_that_save_to_one_place_leave_a_whole_file(tmp_path):
    file = tmp_path / "x.npy"
    gr.save(file, gr.zeros(50_000))
    torn = []

    def write(value):
        for _ in range(10):
            gr.save(file, gr.full((50_000,), value))

    threads = [threading.Thread(target=write, args=(float(v),)) for v in (1, 2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        loaded = np.load(file)
        if loaded.shape != (50_000,) or len(np.unique(loaded)) != 1:
            torn.append(loaded)
    assert not torn
    assert os.listdir(tmp_path) == ["x.npy"]


# Signals.


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_tests_of_interrupts_pass_where_interrupts_are_ignored():
    test = "tests/python/test_executor.py::test_control_c_interrupts_an_evaluation"
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*ignoring, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    result = subprocess.run(
        command, cwd=root, start_new_session=True, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


# Memory.

CHAIN = """
import girih as gr
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
x = gr.ones([2]).eval()
(x + 1).eval()
before = resident()
y = x
for _ in range(500_000):
    y = y + x
held = resident() - before
%s
print(held, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system")
@pytest.mark.parametrize("end", ["y.eval(); del y", "del y"])
def test_a_graph_of_many_nodes_leaves_nothing_behind(end):
    result = run(CHAIN % end, GIRIH_CACHE=b"0")
    assert result.returncode == 0, result.stderr
    held, left = map(int, result.stdout.split())
    assert left < held / 4
