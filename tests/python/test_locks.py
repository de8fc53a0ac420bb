"""Threads that compile, call, clear, save, load and fork at the same time, with programs that hold
objects of Python, whose destructors run Python code.

A debug build asserts that no thread runs code of users while it holds a lock, and that no thread
waits for another one while it holds the interpreter. ``tests/long/test_locks.py`` runs the same for
longer.
"""

from __future__ import annotations

import pytest
from processes import succeeds

#: Arguments: seconds, threads, kinds of work. Each thread repeats its kind of work until the end.
MIX = r"""
import gc, os, sys, tempfile, threading, time, warnings, weakref
import girih as gr
import numpy as np

warnings.simplefilter("ignore", DeprecationWarning)  # Of forks of a process with threads.
seconds, count, kinds = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
end = time.monotonic() + seconds
like = gr.ShapeDtypeStruct((3,), gr.float32)
folder = tempfile.mkdtemp()
shared = gr.compile(lambda x: gr.pure_callback(lambda v: np.asarray(v) + 1, like, x) * 2)
freed, done, failed = [], [0] * count, []

class Noisy:
    # A callback whose destructor runs Python code, which lets other threads run.
    def __call__(self, x):
        return np.asarray(x) * 2
    def __del__(self):
        freed.append(sum(range(50)))
        if len(freed) > 100:
            freed.clear()

def callback(k):
    f = Noisy()
    weakref.finalize(f, time.sleep, 0)
    return gr.pure_callback(f, like, gr.ones(3) * k)

def expect(tensor, value):
    found = tensor.tolist()
    assert found == value, (found, value)

def evaluate(k): expect(callback(k % 50), [2.0 * (k % 50)] * 3)
def compile(k): expect(gr.compile(lambda x: gr.pure_callback(Noisy(), like, x) + k % 20)(gr.ones(3)), [2.0 + k % 20] * 3)
def call(k): expect(shared(gr.ones(3) * (k % 9)), [2.0 * (k % 9 + 1)] * 3)
def clear(k):
    evaluate(k)
    gr.clear_cache()
def passes(k):
    noisy = Noisy()
    with gr.with_passes(gr.graph_pass(lambda program: noisy and None)):
        expect(gr.ones(3) + k % 30, [1.0 + k % 30] * 3)
def save(k):
    path = f"{folder}/{threading.get_ident()}.npz"
    gr.savez(path, x=gr.ones(3) * k)
    expect(gr.load(path)["x"], [float(k)] * 3)
def backward(k):
    x = gr.ones(3).requires_grad_()
    x.register_hook(lambda g, noisy=Noisy(): g * 2)
    (x * (k % 5)).sum().backward()
    expect(x.grad, [2.0 * (k % 5)] * 3)
def share(k):
    array = np.full(3, k, np.float32)
    array.flags.writeable = False
    expect(gr.asarray(array) + 1, [k + 1.0] * 3)
def queue(k):
    gr.async_eval(callback(k % 50))
    if k % 8 == 0:
        gr.synchronize()
def fail(k):
    def wrong(x):
        local = Noisy()
        raise ValueError("expected")
    try:
        gr.eval(gr.pure_callback(wrong, like, gr.ones(3) * k))
    except ValueError:
        pass
def register(k): gr.eval(gr.custom_op(Noisy(), name=f"op{k % 3}", shape=lambda x: x)(gr.ones(3)))
def scope(k):
    with gr.named_scope(f"scope {k % 300}"), gr.no_grad():
        evaluate(k)
def collect(k):
    cycle = [gr.ones(3), Noisy()]
    cycle.append(cycle)
    del cycle
    gc.collect()
def fork(k):
    pid = os.fork()
    if pid == 0:
        try:
            expect(gr.ones(3) + 1, [2.0] * 3)
            evaluate(k)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(7)
    limit = time.monotonic() + 20
    while (status := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > limit:
            os.kill(pid, 6)
            raise AssertionError("a child hangs")
        time.sleep(.002)
    assert status[1] == 0, status
    time.sleep(.01)

def work(i):
    act = globals()[kinds[i % len(kinds)]]
    try:
        k = 0
        while (time.monotonic() < end or not done[i]) and not failed:
            k += 1
            act(k)
            done[i] += 1
    except BaseException as error:
        import traceback
        failed.append(f"{kinds[i % len(kinds)]}: {traceback.format_exc()}")

threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed, failed[0]
print(sum(done))
"""

KINDS = (
    "evaluate,compile,call,clear,fork,passes,save,backward,share,queue,fail,register,scope,collect"
)


def test_threads_compile_call_clear_save_load_and_fork():
    assert int(succeeds(MIX, "4", "16", KINDS, seconds=60, GIRIH_CACHE="0")) > 0


@pytest.mark.parametrize(
    "kinds", ["clear,fork", "clear,call", "passes,clear,fork", "register,fork"]
)
def test_pairs_of_calls_that_share_a_lock(kinds):
    assert int(succeeds(MIX, "1", "2" if kinds.count(",") == 1 else "3", kinds, seconds=40)) > 0
