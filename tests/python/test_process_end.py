"""The end of a process with work in its queues, interpreters other than the main one, and processes
with little memory.
"""

from __future__ import annotations

import sys

import pytest
from processes import run, succeeds

QUEUED = """
import time
import girih as gr
import numpy as np
like = gr.ShapeDtypeStruct((3,), gr.float32)
calls = []
def slow(x):
    time.sleep(.02)
    print("called", flush=True)
    return np.asarray(x)
ys = [gr.async_eval(gr.pure_callback(slow, like, gr.ones(3) + i)) for i in range(10)]
"""


def test_queued_callbacks_are_finished_before_the_interpreter_ends():
    assert succeeds(QUEUED).split() == ["called"] * 10


def test_a_queued_callback_that_fails_does_not_keep_the_process():
    program = QUEUED.replace("print(", "1 / 0; print(")
    assert succeeds(program) == ""


@pytest.mark.parametrize("end", ["pass", "raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_process_ends_while_daemon_threads_evaluate(end):
    program = """
import threading, time
import girih as gr
import numpy as np
like = gr.ShapeDtypeStruct((8,), gr.float32)
f = gr.compile(lambda x: x * 2 + 1)
def work(i):
    k = 0
    while True:
        k += 1
        x = gr.ones(8) * (k % 7)
        match i % 4:
            case 0: gr.eval(x + 1)
            case 1: f(x)
            case 2: gr.eval(gr.pure_callback(lambda v: np.asarray(v) * 2, like, x))
            case _: gr.async_eval(gr.pure_callback(lambda v: np.asarray(v) * 2, like, x))
for i in range(8):
    threading.Thread(target=work, args=(i,), daemon=True).start()
time.sleep(.2)
"""
    succeeds(program + end)


def test_daemon_threads_print_nothing_at_the_end():
    program = """
import threading, time
import girih as gr
x = gr.ones(8)
f = gr.compile(lambda x: x * 2 + 1)
def work(i):
    while True:
        gr.eval(x + i) if i % 2 else f(x)
for i in range(8):
    threading.Thread(target=work, args=(i,), daemon=True).start()
time.sleep(.05)
"""
    for _ in range(4):
        done = run(program)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_the_wait_for_queued_work():
    program = """
import os, signal, threading, time
import girih as gr
import numpy as np
def stuck(x):
    threading.Timer(.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    released.wait(5)
    return np.asarray(x)
released = threading.Event()
gr.async_eval(gr.pure_callback(stuck, gr.ShapeDtypeStruct((3,), gr.float32), gr.ones(3)))
"""
    done = run(program, seconds=30)
    assert "KeyboardInterrupt" in done.stderr, done.stderr
    assert "panicked" not in done.stderr, done.stderr


# Interpreters.

INTERPRETERS = """
import sys
try:
    import _interpreters as interpreters
    create = lambda: interpreters.create("legacy")
    def execute(number, code):
        failed = interpreters.exec(number, code)
        assert failed is None, failed
except ImportError:
    import _xxsubinterpreters as interpreters
    create = lambda: interpreters.create(isolated=False)
    execute = interpreters.run_string
INSIDE = '''
import sys
for _ in range(2):
    try:
        import girih
        print("imported")
    except ImportError as error:
        print("refused:", error)
    assert "girih" not in sys.modules
print(2 + 2)
sys.stdout.flush()
'''
"""

REFUSED = "refused: girih works in the main interpreter of a process only"


@pytest.mark.parametrize("first", ["main", "sub"])
def test_a_subinterpreter_is_refused_and_the_main_interpreter_works(first):
    use = """
import girih as gr
try:
    gr.ones((2, 3)) + gr.ones((4, 5))
except gr.ShapeError:
    print("caught")
print(gr.compile(lambda x: x * 2)(gr.ones(3)).tolist(), type(gr.linalg.qr(gr.eye(2))) is gr.linalg.QRResult)
sys.stdout.flush()
"""
    sub = "number = create()\nexecute(number, INSIDE)\ninterpreters.destroy(number)\n"
    parts = [use, sub, use] if first == "main" else [sub, use, sub, use]
    lines = succeeds(INTERPRETERS + "".join(parts)).splitlines()
    refused = [line for line in lines if line.startswith("refused")]
    assert len(refused) == 2 * parts.count(sub)
    assert all(line.startswith(REFUSED) for line in refused), refused
    assert lines.count("caught") == 2
    assert lines.count("[2.0, 2.0, 2.0] True") == 2
    assert lines.count("4") == parts.count(sub)


# Limits.

SUM = "import girih as gr\nx = gr.ones(1000) * 3\nprint((x @ x).item(), gr.ones(3).sum().item())"


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
@pytest.mark.parametrize(
    "limit", ["-v 4000000", "-v 2097152", "-v 1000000", "-d 4000000", "-d 1000000"]
)
def test_a_process_with_little_address_space_works(limit):
    prefix = ["bash", "-c", f'ulimit {limit}; exec "$0" "$@"']
    variables = {"OPENBLAS_NUM_THREADS": "1", "GIRIH_CACHE": "0"}
    done = run(SUM, prefix=prefix, seconds=60, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["9000.0", "3.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")
def test_a_limit_of_the_user_that_does_not_fit_the_address_space_is_an_error_with_both():
    prefix = ["bash", "-c", 'ulimit -v 2000000; exec "$0" "$@"']
    program = """
import girih as gr
try:
    gr.ones(3).sum().item()
except gr.GirihError as error:
    print(error)
"""
    done = run(program, prefix=prefix, GIRIH_MEMORY_LIMIT="3G")
    for part in ["3221225472 bytes", "are free", "ulimit -v", "set GIRIH_MEMORY_LIMIT to less"]:
        assert part in done.stdout, done.stdout + done.stderr
