"""Memory that a process must not keep: what names, code and settings that come and go leave."""

from __future__ import annotations

import sys

import pytest
from processes import succeeds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

#: Prints the bytes by which the process grows per call of ``f``.
SLOPE = """
import gc, sys, threading
import girih as gr
import numpy as np
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
{work}
first, calls = {first}, {calls}
for k in range(first):
    f(k)
gc.collect()
before = resident()
for k in range(first, first + calls):
    f(k)
gc.collect()
print((resident() - before) / calls)
"""

WORK = {
    "set_num_threads": "f = lambda k: gr.set_num_threads(1 + k % 2)",
    "set_num_threads with work": """
x = gr.ones((600, 600)).eval()
def f(k):
    gr.set_num_threads(1 + k % 2)
    if k % 50 == 0: gr.eval(x @ x)
""",
    "named scopes": """
def f(k):
    with gr.named_scope(f"step {k}"):
        gr.eval(gr.ones(2) + 1)
""",
    "named scopes in a scope": """
def f(k):
    with gr.named_scope("outer"), gr.named_scope(f"step {k}"), gr.named_scope("inner"):
        gr.eval(gr.ones(2) + 1)
""",
    "code": """
def f(k):
    exec(compile("gr.eval(gr.ones(3)+1)", "<text>", "exec"), {"gr": gr})
""",
    "code on threads": """
def f(k):
    code = compile("gr.eval(gr.ones(3)+1)", "<text>", "exec")
    thread = threading.Thread(target=exec, args=(code, {"gr": gr}))
    thread.start()
    thread.join()
""",
    "passes": """
p = gr.graph_pass(lambda program: None)
def f(k):
    with gr.with_passes(p):
        gr.eval(gr.ones(3) + 1)
""",
}


@pytest.mark.parametrize("name", WORK)
def test_memory_does_not_grow_with_the_number_of_calls(name):
    program = SLOPE.format(work=WORK[name], first=6000, calls=6000)
    slope = float(succeeds(program, seconds=100, GIRIH_CACHE="0"))
    assert slope < 60, f"{slope:.0f} bytes a call"
