"""Hostile arguments: sequences that are endless, lie or are longer than memory, and values of wrong
types. Every public function raises one of this package's errors, in time, and can be interrupted.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import girih as gr
import numpy as np
import pytest

ROOT = Path(__file__).parent
ENVIRONMENT = {"GIRIH_MEMORY_LIMIT": "1G", "GIRIH_CACHE": "0"}


class Liar(list):
    def __len__(self):
        return 2**62


def run(part, parts, share, limit):
    """The calls that fail in a part of ``hostile.py``, which runs in a process of its own."""
    command = [sys.executable, str(ROOT / "hostile.py"), str(part), str(parts), str(share)]
    done = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=limit
    )
    lines = done.stdout.splitlines()
    wrong = [line.removeprefix("WRONG ") for line in lines if line.startswith("WRONG")]
    if not lines or not lines[-1].startswith("DONE"):
        last = lines[-1] if lines else "nothing"
        wrong.append(f"ended with {done.returncode} at {last}: {done.stderr[-2000:]}")
    return wrong


def test_every_function_survives_hostile_arguments():
    # Every parameter of every function with a fiftieth of the values.
    wrong = run(0, 1, 0.02, 200)
    assert not wrong, "\n".join(wrong)


def outside(code, limit=60):
    """Runs code in a process with limited memory; returns what it prints."""
    program = f"""
import itertools, resource, numpy as np, girih as gr
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
class L(list):
    def __len__(self): return 2**62
try:
    {code}
    print("fine")
except gr.GirihError as error:
    print(type(error).__name__, error)
"""
    env = os.environ | ENVIRONMENT
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=limit
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


LONG = {
    "pad": "gr.pad(gr.ones(3), gr.zeros((2**40, 2)))",
    "unpool": "gr.max_unpool3d(gr.ones((1,1,1,1,1)), gr.zeros((1,1,1,1,1), dtype=gr.int64), 2, "
    "padding=gr.zeros(2**40))",
    "asarray": "gr.asarray(range(10**12))",
    "function": "gr.exp(range(10**12))",
    "array": "gr.conv2d(gr.ones((1,1,3,3)), gr.ones((1,1,3,3)), stride=np.broadcast_to(1, (2**40,)))",
    "bytes": "gr.deserialize(2**33)",
}


@pytest.mark.parametrize("name", LONG)
def test_what_does_not_fit_memory_is_an_error(name):
    assert "Error" in outside(LONG[name])


SEQUENCES = {
    "zeros": lambda v: gr.zeros(v),
    "reshape": lambda v: gr.ones(3).reshape(v),
    "sum": lambda v: gr.sum(gr.ones(3), axis=v),
    "stride": lambda v: gr.conv2d(gr.ones((1, 1, 3, 3)), gr.ones((1, 1, 3, 3)), stride=v),
    "padding": lambda v: gr.conv2d(gr.ones((1, 1, 3, 3)), gr.ones((1, 1, 3, 3)), padding=v),
    "concat": gr.concat,
    "stack": gr.stack,
    "hstack": gr.hstack,
    "multi_dot": lambda v: gr.linalg.multi_dot(v),
    "split": lambda v: gr.split(gr.ones(4), v),
    "tile": lambda v: gr.tile(gr.ones(3), v),
    "transpose": lambda v: gr.permute_dims(gr.ones((2, 3)), v),
    "scale_factor": lambda v: gr.interpolate(gr.ones((1, 1, 2, 2)), scale_factor=v),
    "tensordot": lambda v: gr.tensordot(gr.ones((2, 2)), gr.ones((2, 2)), axes=(v, v)),
    "einsum": lambda v: gr.einsum(gr.ones(2), v),
    "unflatten": lambda v: gr.tree.unflatten(gr.tree.structure([1, 2]), v),
    "as_strided": lambda v: gr.as_strided(gr.ones(3), v, (1,)),
    "fftn": lambda v: gr.fft.fftn(gr.ones((2, 2)), s=v),
    "normal": lambda v: gr.random.normal(v),
    "argnums": lambda v: gr.grad(lambda x: x.sum(), argnums=v)(gr.ones(2)),
    "ModuleList": lambda v: gr.nn.ModuleList(v),
    "ParameterList": lambda v: gr.nn.ParameterList(v),
    "LayerNorm": lambda v: gr.nn.LayerNorm(v),
    "pshuffle": lambda v: gr.vmap(lambda x: gr.pshuffle(x, "i", v), axis_name="i")(gr.ones(2)),
    "ppermute": lambda v: gr.vmap(lambda x: gr.ppermute(x, "i", v), axis_name="i")(gr.ones(2)),
    "axis_name": lambda v: gr.vmap(lambda x: gr.psum(x, v), axis_name="i")(gr.ones(2)),
    "inputs": lambda v: gr.serialize(gr.ones(2) * 2, inputs=v),
}
ENDLESS = {
    "ints": lambda: itertools.repeat(1),
    "tensors": lambda: itertools.repeat(gr.ones(2)),
    "pairs": lambda: itertools.repeat((0, 1)),
    "names": lambda: itertools.repeat("i"),
    "modules": lambda: itertools.repeat(gr.nn.ReLU()),
    "range": lambda: range(10**12),
    "tensor": lambda: gr.zeros(2**40),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_long_and_endless_sequences_are_errors(name):
    for values in ENDLESS.values():
        start = time.monotonic()
        if name == "inputs" and values is ENDLESS["tensor"]:
            continue  # One tensor is one input.
        with pytest.raises(gr.GirihError):
            SEQUENCES[name](values())
        assert time.monotonic() - start < 20


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_length_that_lies_is_not_believed(name):
    for items in ([0], [1], [1, 1], [gr.ones(2)], [(0, 1)]):
        with contextlib.suppress(gr.GirihError):
            SEQUENCES[name](Liar(items))


def test_a_lying_list_is_read_to_its_end():
    assert gr.sum(gr.ones(3), axis=Liar([0])).item() == 3.0
    assert gr.concat(Liar([gr.ones(2), gr.zeros(1)])).tolist() == [1.0, 1.0, 0.0]
    assert gr.zeros(Liar([2, 3])).shape == (2, 3)
    assert gr.pad(gr.ones(1), Liar([(1, 2)])).shape == (4,)


def test_messages_say_what_is_expected_and_are_short():
    with pytest.raises(gr.InvalidArgumentError, match=r"at most 262144 items.*endless"):
        gr.concat(itertools.repeat(gr.ones(1)))
    with pytest.raises(gr.GirihError) as raised:
        gr.sum(gr.ones(2), axis=["x" * 10**6])
    assert len(str(raised.value)) < 500


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers of signals")
@pytest.mark.parametrize(
    "code",
    [
        "gr.asarray(range(10**9))",
        "gr.concat(slow())",
        "gr.asarray(Slow())",
    ],
)
def test_control_c_ends_the_reading_of_a_sequence(code):
    program = f"""
import time, itertools, girih as gr
def slow():
    while True:
        yield gr.ones(1)
        time.sleep(1e-5)
class Slow:
    def __len__(self): return 10**9
    def __getitem__(self, i):
        time.sleep(1e-5)
        return i
print("go", flush=True)
{code}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "go\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert "KeyboardInterrupt" in error or "OutOfMemoryError" in error
    finally:
        process.kill()


x = np.ones((2, 3), np.float32)
WRONG = {
    "axis": lambda v: gr.sum(x, axis=v),
    "softmax": lambda v: gr.softmax(x, axis=v),
    "argsort": lambda v: gr.asarray(x).argsort(axis=v),
    "Stream": lambda v: gr.Stream(v),
    "seed": lambda v: gr.manual_seed(v),
    "hfft": lambda v: gr.fft.hfft(x, n=v),
    "precision": lambda v: gr.set_printoptions(precision=v),
    "deserialize": lambda v: gr.deserialize(v),
    "lu_solve": lambda v: gr.linalg.lu_solve(v, x),
    "ppermute": lambda v: gr.vmap(lambda t: gr.ppermute(t, "i", v), axis_name="i")(x),
    "histogram2d": lambda v: gr.histogram2d([1.0], [1.0], range=v),
    "histogram": lambda v: gr.histogram([1.0], range=v),
    "Linear": lambda v: gr.nn.Linear(v, 2),
    "SGD": lambda v: gr.optim.SGD(v),
    "BatchNorm1d": lambda v: gr.nn.BatchNorm1d(3)(v),
    "ConstantPad1d": lambda v: gr.nn.ConstantPad1d(1, 0.0)(v),
    "pool": lambda v: gr.nn.functional.fractional_max_pool2d(v, 2),
    "load_state_dict": lambda v: gr.nn.Linear(2, 2).load_state_dict(v),
    "ModuleList": lambda v: gr.nn.ModuleList()[v],
    "ModuleDict": lambda v: gr.nn.ModuleDict()[v],
    "Sequential": lambda v: gr.nn.Sequential()[v],
    "delete": lambda v: gr.asarray(x).__delitem__(v),
    "graph_pass": lambda v: gr.graph_pass(v),
    "equal_nan": lambda v: gr.allclose(x, x, equal_nan=v),
    "requires_grad": lambda v: setattr(gr.asarray(x), "requires_grad", v),
    "eps": lambda v: gr.layer_norm(x, 3, eps=v),
    "approximate": lambda v: gr.nn.GELU(v),
    "betas": lambda v: gr.optim.Adam(0.1, betas=v),
    "path": lambda v: gr.load(v),
}
VALUES = [2**70, -(2**70), "\ud800", object(), [], [1], [(1,)], (gr.ones((2, 3)),), 1.5j, b"x"]


@pytest.mark.parametrize("name", WRONG)
def test_values_of_wrong_types_are_this_packages_errors(name):
    for value in VALUES:
        with contextlib.suppress(gr.GirihError):
            WRONG[name](value)


def test_errors_name_the_argument_and_the_value():
    for call, error, parts in [
        (lambda: gr.nn.Linear("a", 2), gr.DTypeError, ["Linear", "in_features", "int", "'a'"]),
        (lambda: gr.nn.Linear(2**70, 2), gr.InvalidArgumentError, ["in_features", "64 bits"]),
        (lambda: gr.nn.Linear(np.ones(2), 2), gr.DTypeError, ["in_features", "ndarray"]),
        (lambda: gr.optim.SGD(np.ones(2)), gr.DTypeError, ["SGD", "learning_rate"]),
        (lambda: gr.optim.Adam(0.1, eps="x"), gr.DTypeError, ["Adam", "eps", "'x'"]),
        (lambda: gr.nn.BatchNorm1d(3)(1.0), gr.DTypeError, ["BatchNorm1d", "x", "tensor", "1.0"]),
        (lambda: gr.allclose(x, x, equal_nan=[]), gr.DTypeError, ["True or False", "[]"]),
        (lambda: gr.Stream(2**70), gr.InvalidArgumentError, [str(2**70), "does not fit"]),
        (lambda: gr.nn.ModuleList()[0], IndexError, ["ModuleList", "0"]),
        (lambda: gr.nn.ModuleDict()["a"], KeyError, ["ModuleDict", "'a'"]),
        (lambda: gr.deserialize("x"), TypeError, ["bytes", "a str"]),
        (lambda: gr.as_strided(x, (2, -1), (1, 1)), ValueError, ["as_strided: size", "-1"]),
        (lambda: gr.as_strided(x, (2, 2), (1, -1)), ValueError, ["[1, -1]", "reach element -1"]),
        (lambda: gr.as_strided(x, (2,), (1,), -1), ValueError, ["storage_offset", "-1"]),
        (lambda: gr.as_strided(x, (2,), (1, 1)), ValueError, ["2 strides", "1 sizes"]),
        (lambda: gr.as_strided(x, (7,), (1,)), ValueError, ["[7]", "element 6", "has 6"]),
        (
            lambda: gr.as_strided_scatter(x, gr.ones(2), (2,), (-1,)),
            ValueError,
            ["as_strided_scatter: sizes [2] with strides [-1]", "element -1"],
        ),
    ]:
        with pytest.raises(error) as raised:
            call()
        assert isinstance(raised.value, gr.GirihError)
        for part in parts:
            assert part in str(raised.value), (part, str(raised.value))


def rate_of(scheduler):
    scheduler.optimizer.lr = "fast"


def optimizer():
    return gr.optim.SGD(gr.nn.Linear(2, 1).parameters(), lr=0.1)


schedules = gr.optim.lr_scheduler
program = gr.compile(lambda x: x * 2).to_program(gr.ones(2))
#: Calls of methods, with the error and the parts of its message.
METHODS = [
    (lambda: gr.Executor().execute(1, [0]), gr.DTypeError, ["a Graph is expected", "1"]),
    (lambda: gr.Executor().execute(gr.current_graph(), 1), gr.DTypeError, ["sequence", "int"]),
    (lambda: gr.Event().record(1), gr.DTypeError, ["a Stream is expected", "1"]),
    (lambda: gr.Event().elapsed_time("a"), gr.DTypeError, ["Event is expected", "'a'"]),
    (lambda: gr.Stream().wait_event(None), gr.DTypeError, ["Event is expected", "None"]),
    (lambda: gr.Stream().wait_stream([]), gr.DTypeError, ["a Stream is expected", "[]"]),
    (lambda: program.rewrite(3), gr.DTypeError, ["a function is expected", "3"]),
    (lambda: gr.nn.Linear(2, 2).update(3), gr.GirihError, ["3"]),
    (lambda: gr.nn.Sequential().insert("a", gr.nn.ReLU()), gr.DTypeError, ["insert", "index", "int"]),
    (lambda: gr.optim.SGD(0.1).apply({}, 3, {}), gr.DTypeError, ["SGD.apply", "state", "dict", "int"]),
    (lambda: gr.optim.Adam(0.1).update("a", {}), gr.DTypeError, ["Adam.init", "tree of tensors", "str"]),
    (lambda: rate_of(schedules.StepLR(optimizer(), 1)), gr.DTypeError, ["SGD.learning_rate", "'fast'"]),
    (lambda: schedules.StepLR(optimizer(), 1).rate(0, 1), IndexError, ["StepLR", "no group 1"]),
    (lambda: schedules.StepLR(optimizer(), 1).rate("a", 0), gr.DTypeError, ["StepLR.factor", "epoch", "'a'"]),
    (lambda: schedules.ReduceLROnPlateau(optimizer()).step("a"), gr.DTypeError, ["metrics", "str"]),
    (lambda: optimizer().param_groups[0]["beta"], KeyError, ["no 'beta'", "'lr'"]),
    (lambda: gr.amp.LossScaler().step(1), gr.DTypeError, ["LossScaler", "an Optimizer", "1"]),
]  # fmt: skip


def test_methods_say_what_they_expect():
    for call, error, parts in METHODS:
        with pytest.raises(error) as raised:
            call()
        assert isinstance(raised.value, gr.GirihError)
        for part in parts:
            assert part in str(raised.value), (part, str(raised.value))


def test_a_call_that_does_not_fit_the_signature_is_a_type_error_with_the_method():
    for call, part in [
        (lambda: gr.Executor().execute(output=1), "execute"),
        (lambda: gr.Event().record(device=1), "record"),
        (lambda: gr.nn.Linear(2, 1).freeze(deep=True), "freeze"),
        (lambda: gr.optim.SGD(0.1).apply(), "apply"),
    ]:
        with pytest.raises(TypeError, match=part):
            call()


def test_methods_of_modules_are_found_by_name_and_keep_their_signatures():
    import inspect

    assert str(inspect.signature(gr.nn.Module.train)) == "(self, mode: 'bool' = True) -> 'Self'"
    assert gr.nn.Module.train.__doc__.startswith("Sets training mode")
    assert gr.nn.Linear(2, 1).train.__name__ == "train"


def test_constructors_take_the_numbers_of_other_libraries():
    layer = gr.nn.Linear(np.int64(2), np.int32(3), bias=np.bool_(True))
    assert layer(gr.ones([1, 2])).shape == (1, 3)
    assert gr.optim.SGD(np.float32(0.5)).lr == 0.5
    assert gr.optim.SGD(gr.asarray(0.5)).lr == 0.5
    assert gr.nn.LayerNorm(np.array([3]))(gr.ones([2, 3])).shape == (2, 3)
    assert gr.nn.Dropout(0)(gr.ones([2])).tolist() == [1.0, 1.0]


def test_public_functions_add_no_guards_of_their_own_to_compiled_functions():
    from girih.references import references

    derived = gr.jvp

    def uses(x):
        return derived(lambda v: v * v, (x,), (x,))

    paths = {guard.place.path for guard in references((uses, "uses"), name="uses").guards}
    assert "derived" in paths
    assert not paths & {"function", "failures", "explained", "name"}


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_text_that_the_output_cannot_encode_is_escaped(encoding):
    code = (
        r"import girih as gr; gr.debug.print('\ud800 \u20ac {}', gr.asarray(1)); gr.synchronize()"
    )
    env = os.environ | ENVIRONMENT | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=60)
    euro = "\u20ac".encode(encoding, "backslashreplace")
    assert (done.stdout.rstrip(), done.stderr) == (rb"\ud800 " + euro + b" 1", b"")


@pytest.mark.parametrize("fmt", ["{", "}", "{} {}", "{1}", "{x}", "{0.missing}", "{:q}", "{0[k]}"])
def test_a_format_that_does_not_fit_is_an_error(fmt):
    for compiled in (lambda f: f, gr.compile):
        with pytest.raises(
            gr.InvalidArgumentError, match=r"debug.print: the format .* 1 by position"
        ):
            gr.eval(compiled(lambda x: (gr.debug.print(fmt, x), x)[1])(gr.asarray(1)))
    with pytest.raises(gr.InvalidArgumentError, match=r"debug.check: the format"):
        gr.debug.check(gr.asarray(False), fmt, gr.asarray(1))


@pytest.mark.parametrize("enabled", [np.ones(2), "yes", 2, None, gr.ones(2)])
def test_autocast_takes_a_flag(enabled):
    with pytest.raises(gr.DTypeError, match=r"autocast: enabled must be True or False"):
        gr.amp.autocast(enabled=enabled)


def test_results_are_declared_by_plain_containers():
    spec = gr.ShapeDtypeStruct((), gr.float32)
    for declared in (Liar([spec]), [Liar([spec])], {"a": Liar([spec])}, {spec}, [spec, None, 1]):
        for call in (gr.pure_callback, gr.io_callback):
            with pytest.raises(gr.GirihError, match=r"declared result"):
                call(lambda: np.float32(1), declared)
    pair = collections.namedtuple("pair", "a b")(spec, spec)
    found = gr.pure_callback(lambda: pair._replace(a=np.float32(1), b=np.float32(2)), pair)
    assert (found.a.item(), found.b.item()) == (1.0, 2.0)
    none = gr.pure_callback(lambda: (None, np.float32(1)), (None, spec))
    assert none[0] is None
    assert none[1].item() == 1.0


def test_trees_and_parameters_of_wrong_arguments_are_errors():
    for named in (
        object(),
        1.5,
        np.ones(2),
        [1],
        [("a",)],
        [("a", 1, 2)],
        itertools.repeat(("a", 1)),
    ):
        with pytest.raises(gr.GirihError):
            gr.tree.from_names(named)
    for combine in (b"a", gr.ones(2), {}, [], 1):
        with pytest.raises(gr.DTypeError, match="combine is a function"):
            gr.tree.merge({"a": 1}, {"a": 2}, combine)
    for flag in (np.ones(2), "yes", None, gr.ones(2)):
        with pytest.raises(gr.DTypeError, match="requires_grad must be"):
            gr.nn.Parameter(gr.ones(2), flag)
