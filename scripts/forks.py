"""Forks this process again and again while three threads are busy: no child may hang.

    python scripts/forks.py [--forks 2000]

The threads compile, run and evaluate asynchronously. Each child records, compiles, runs, waits for
work of its own and for work its parent had begun, and ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import warnings

import girih as gr


def compile_programs(stop: threading.Event) -> None:
    """A new program each time."""
    n = 0
    while not stop.is_set():
        n += 1
        x = gr.ones([n % 97 + 1, 3]) * (n % 11)
        for _ in range(n % 7):
            x = gr.sin(x) + 1
        x.sum().item()
        if n % 50 == 0:
            gr.clear_cache()


def run_programs(stop: threading.Event) -> None:
    """The same programs, large enough for the thread pool."""
    x = gr.randn([257, 263]).eval()
    while not stop.is_set():
        (x @ x.T).sum().item()
        gr.softmax(x, axis=1).sum(axis=0).eval()


def run_asynchronously(stop: threading.Event) -> None:
    """Programs that other threads compile and run."""
    n = 0
    while not stop.is_set():
        n += 1
        gr.async_eval(gr.randn([300]) * n, gr.ones([n % 53 + 1]).cumsum(0))
        if n % 20 == 0:
            gr.async_eval(gr.ones([8]).sum()).item()


def child(pending: gr.Tensor) -> bool:
    """What a process does that has just begun."""
    ok = pending.sum().item() == 300.0
    ok = ok and gr.async_eval((gr.arange(7) * 2).sum()).item() == 42
    ok = ok and (gr.ones([64, 80]) @ gr.ones([80, 5])).sum().item() == 64 * 80 * 5
    grad = gr.grad(lambda x: (x * x).sum())(gr.asarray([1.0, 2.0]))
    return ok and grad.tolist() == [2.0, 4.0]


def wait(pid: int, seconds: float) -> int | None:
    """The child's exit status; `None` if it does not end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def main() -> int:
    """Runs the command; 1 if a child failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forks", type=int, default=2000)
    parser.add_argument("--patience", type=float, default=120.0, help="seconds a child may take")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    stop = threading.Event()
    targets = (compile_programs, run_programs, run_asynchronously)
    threads = [threading.Thread(target=t, args=(stop,), daemon=True) for t in targets]
    for thread in threads:
        thread.start()
    hung = failed = 0
    for number in range(1, options.forks + 1):
        pending = gr.async_eval(gr.ones([300]) * 1)
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if child(pending) else 1)
            finally:
                os._exit(2)
        status = wait(pid, options.patience)
        hung += status is None
        failed += status not in (0, None)
        if status != 0 or number % 200 == 0:
            print(f"{number} forks: {hung} hung, {failed} failed", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    print(f"{options.forks} forks: {hung} hung, {failed} failed")
    return 1 if hung or failed else 0


if __name__ == "__main__":
    sys.exit(main())
