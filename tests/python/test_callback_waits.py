"""Calls that wait for evaluations, inside of functions that an evaluation waits for: they would wait
for themselves, and are refused.
"""

from __future__ import annotations

import json

import pytest
from processes import succeeds

# Each call waits for queued work. The names are those of the calls in PROGRAM.
REFUSED = [
    "eval",
    "async_eval",
    "synchronize",
    "synchronize the device",
    "Stream.synchronize",
    "another stream's synchronize",
    "Event.synchronize",
    "an event of another stream",
    "compile_only",
    "Compilation.wait",
    "Executor.execute",
    "Executor.compile_only",
    "item",
    "numpy",
    "tolist",
    "bool",
    "float",
    "np.asarray",
    "Tensor.eval",
    "a compiled function",
    "a program",
    "explain",
    "compile_graph",
    "save",
    "savez",
]
# These wait for nothing.
ALLOWED = [
    "item of a value",
    "numpy of a value",
    "record",
    "record an event",
    "query",
    "clear_cache",
    "cache_stats",
    "memory_stats",
    "set_num_threads",
    "profile",
]
KINDS = ["pure_callback", "io_callback", "debug.callback", "custom_op", "compiled", "async", "pass"]

PROGRAM = """
import json, os, sys, tempfile
import girih as gr
import numpy as np

folder = tempfile.mkdtemp()
have = gr.ones(3).eval()
lazy = have * 5
compiled = gr.compile(lambda x: x + 1)
compiled(have)
program = gr.capture(have * 2, inputs=[have]) if hasattr(gr, "capture") else compiled
stream, event, other = gr.Stream(), gr.Event(), gr.Stream()
executor, graph = gr.Executor(), gr.current_graph()
compilation = gr.compile_only(have * 7 + 3)

def profile():
    with gr.profile():
        pass

def other_event():
    other.record_event(event)
    stream.wait_stream(gr.current_stream())
    stream.record_event(event)
    event.synchronize()

CALLS = {
    "eval": lambda: gr.eval(lazy),
    "async_eval": lambda: gr.async_eval(lazy),
    "synchronize": gr.synchronize,
    "synchronize the device": lambda: gr.synchronize("cpu"),
    "Stream.synchronize": lambda: gr.current_stream().synchronize(),
    "another stream's synchronize": lambda: stream.synchronize(),
    "Event.synchronize": lambda: gr.current_stream().record_event().synchronize(),
    "an event of another stream": other_event,
    "compile_only": lambda: gr.compile_only(lazy),
    "Compilation.wait": lambda: compilation.wait(),
    "Executor.execute": lambda: checked(executor.execute(graph, [lazy.node_id])),
    "Executor.compile_only": lambda: executor.compile_only(graph, []),
    "item": lambda: lazy.sum().item(),
    "numpy": lambda: lazy.numpy(),
    "tolist": lambda: lazy.tolist(),
    "bool": lambda: bool(lazy.sum() > 0),
    "float": lambda: float(lazy.sum()),
    "np.asarray": lambda: np.asarray(lazy),
    "Tensor.eval": lambda: lazy.eval(),
    "a compiled function": lambda: compiled(have),
    "a program": lambda: gr.eval(program(have)),
    "explain": lambda: gr.explain(lazy),
    "compile_graph": lambda: gr.compile_graph(lazy),
    "save": lambda: gr.save(folder + "/x.npy", lazy),
    "savez": lambda: gr.savez(folder + "/x.npz", lazy),
    "item of a value": lambda: have[0].item() if False else have.numpy()[0].item(),
    "numpy of a value": lambda: have.numpy(),
    "record": lambda: have + 1,
    "record an event": lambda: gr.current_stream().record_event(),
    "query": lambda: (gr.current_stream().query(), event.query()),
    "clear_cache": gr.clear_cache,
    "cache_stats": gr.cache_stats,
    "memory_stats": lambda: gr.memory_stats(),
    "set_num_threads": lambda: gr.set_num_threads(2),
    "profile": profile,
}

def checked(result):
    if not result.success:
        raise gr.InvalidArgumentError(result.error_message)

found = {}

def inside(x=None):
    for name in json.loads(sys.argv[2]):
        try:
            CALLS[name]()
            found[name] = "returned"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return x

like = gr.ShapeDtypeStruct((3,), gr.float32)
x = gr.ones(3) + 1
kind = sys.argv[1]
if kind == "pure_callback":
    gr.eval(gr.pure_callback(inside, like, x))
elif kind == "io_callback":
    gr.eval(gr.io_callback(inside, like, x))
elif kind == "debug.callback":
    gr.debug.callback(inside, x)
    gr.synchronize()
elif kind == "custom_op":
    gr.eval(gr.custom_op(inside, name="inside", shape=lambda x: x)(x))
elif kind == "compiled":
    f = gr.compile(lambda x: gr.pure_callback(inside, like, x))
    f(x)
    f(x)
elif kind == "async":
    y = gr.pure_callback(inside, like, x)
    gr.async_eval(y)
    y.numpy()
elif kind == "pass":
    with gr.with_passes(gr.graph_pass(lambda program: (inside(), None)[1])):
        gr.eval(x * 3)
print(json.dumps(found))
"""


def found(kind: str, names: list[str]) -> dict[str, str]:
    return json.loads(succeeds(PROGRAM, kind, json.dumps(names), seconds=40))


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_wait_are_refused_in_a_function_that_is_waited_for(kind):
    outcomes = found(kind, REFUSED + ALLOWED)
    place = "inside of a pass" if kind == "pass" else "inside of a callback"
    expected = f"InvalidArgumentError: … {place}"
    assert list(outcomes) == REFUSED + ALLOWED
    for name in REFUSED:
        outcome = outcomes[name]
        refused = outcome.startswith("InvalidArgumentError: ") and place in outcome
        assert refused, f"{name}: {outcome}; expected {expected}"
    for name in ALLOWED:
        assert outcomes[name] == "returned", f"{name}: {outcomes[name]}"
