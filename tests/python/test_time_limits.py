"""A time limit, a cancellation and an interrupt stop every kind of long work before its end."""

import os
import signal
import threading
import time

import girih as gr
import pytest

# Work of many seconds, as an expression of large arguments.
WORK = {
    "max of a range": lambda a: gr.arange(2**37).max(),
    "argmax of zeros": lambda a: gr.argmax(gr.zeros(2**37)),
    "sum of zeros": lambda a: gr.zeros(2**38).sum(),
    "sum of columns": lambda a: gr.zeros([2**35, 3]).sum(0),
    "product of a range": lambda a: gr.prod(gr.arange(2**37) * 1e-9),
    "scatter into one element": lambda a: (
        gr.zeros([1])
        .at[gr.zeros([2**32], dtype="int8")]
        .add(gr.broadcast_to(gr.ones([1]), [2**32]))
    ),
    "sort": lambda a: gr.sort(a["row"]),
    "argsort": lambda a: gr.argsort(a["row"]),
    "median": lambda a: gr.median(a["row"]),
    "cumsum": lambda a: gr.cumsum(gr.cumsum(gr.cumsum(gr.cumsum(a["row"])))),
    "fft of prime length": lambda a: gr.fft.fft(a["row"][:15485863]),
    "unique": lambda a: gr.unique(a["row"]),
    "unique rows": lambda a: gr.unique(a["row"][: 1 << 22].reshape([1 << 20, 4]), axis=0),
    "eigvals": lambda a: gr.linalg.eigvals(a["matrix"]),
    "eigvalsh": lambda a: gr.linalg.eigvalsh(a["matrix"]),
    "svdvals": lambda a: gr.linalg.svdvals(a["matrix"]),
    "qr": lambda a: gr.linalg.qr(a["large"])[1],
    "inv": lambda a: gr.linalg.inv(a["large"]),
    "expm": lambda a: gr.linalg.expm(a["matrix"]),
    "float64 product": lambda a: a["large"].astype("float64") @ a["large"].astype("float64"),
}


@pytest.fixture(scope="module")
def arguments():
    row, matrix, large = gr.eval(
        gr.randn([1 << 25]), gr.randn([1500, 1500]), gr.randn([3500, 3500])
    )
    return {"row": row, "matrix": matrix, "large": large}


@pytest.mark.parametrize("name", WORK)
def test_a_time_limit_stops_work_before_its_end(name, arguments):
    began = time.monotonic()
    limited = gr.Executor(gr.ExecutorConfig(timeout_seconds=0.05))
    with gr.use_executor(limited), pytest.raises(gr.EvaluationTimeoutError):
        gr.eval(WORK[name](arguments))
    # Generous, for a loaded machine: the work takes far longer.
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["max of a range", "sort", "eigvals", "svdvals"])
def test_a_cancellation_stops_work_before_its_end(name, arguments):
    executor = gr.Executor()
    timer = threading.Timer(0.2, executor.cancel_all)
    timer.start()
    with gr.use_executor(executor), pytest.raises(gr.EvaluationError):
        gr.eval(WORK[name](arguments))
    timer.join()


@pytest.mark.parametrize("name", ["max of a range", "sort", "svdvals", "fft of prime length"])
def test_an_interrupt_stops_work_before_its_end(name, arguments):
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gr.eval(WORK[name](arguments))
    timer.join()


def test_results_after_a_stop_are_right(arguments):
    limited = gr.Executor(gr.ExecutorConfig(timeout_seconds=0.02))
    small = arguments["matrix"][:200, :200]
    expected = gr.linalg.svdvals(small).numpy()
    with gr.use_executor(limited), pytest.raises(gr.EvaluationTimeoutError):
        gr.eval(gr.linalg.svdvals(arguments["matrix"]))
    assert (gr.linalg.svdvals(small).numpy() == expected).all()
