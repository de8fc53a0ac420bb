"""Streams and events: the order of evaluations, waits across streams, errors, times."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import girih as gr
import numpy as np
import pytest


def work(seed: int, n: int = 200) -> gr.Tensor:
    """A matrix product that takes some time."""
    x = gr.asarray(np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32))
    return x @ x


def expected(seed: int, n: int = 200) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32)
    return x @ x


def fails() -> gr.Tensor:
    """A value whose computation fails on the device."""
    return gr.linalg.cholesky(gr.asarray([[1.0, 2.0], [2.0, 1.0]]))


def test_the_default_stream_is_number_0_and_current() -> None:
    assert gr.default_stream().index == 0
    assert gr.current_stream() == gr.default_stream()
    assert gr.Stream() != gr.default_stream()


def test_numbers_are_unique_while_streams_live() -> None:
    streams = [gr.Stream() for _ in range(8)]
    assert len({s.index for s in streams} | {0}) == 9


def test_scopes_nest_and_are_restored_by_exceptions() -> None:
    outer, inner = gr.Stream(), gr.Stream(priority=-1)
    with gr.stream(outer) as entered:
        assert entered == outer
        with contextlib.suppress(ZeroDivisionError), gr.stream(inner):
            assert gr.current_stream() == inner
            raise ZeroDivisionError
        assert gr.current_stream() == outer
        with gr.stream(None) as same:
            assert same == outer
    assert gr.current_stream() == gr.default_stream()


def test_a_stream_of_lower_number_goes_first_between_kernels() -> None:
    enqueued = threading.Event()

    def held(x: np.ndarray) -> np.ndarray:
        assert enqueued.wait(60)
        return x

    # The mock accelerator runs one kernel at a time.
    bulk, urgent = gr.Stream(device="mock"), gr.Stream(priority=-1, device="mock")
    x = gr.asarray(np.eye(64, dtype=np.float32), device="mock")
    y = gr.asarray(np.ones(3, np.float32), device="mock")
    gr.eval(y + 1)  # compiled, so that it is submitted at once below
    with gr.stream(bulk):
        z = gr.pure_callback(held, x, x)
        for _ in range(100):
            z = z @ x
        gr.async_eval(z)
        end = bulk.record_event()
    with gr.stream(urgent):
        w = y + 1
        gr.async_eval(w)
        first = urgent.record_event()
    enqueued.set()
    urgent.synchronize()
    bulk.synchronize()
    assert first.elapsed_time(end) > 0, "the other program has a hundred kernels left"
    np.testing.assert_array_equal(w.numpy(), [2, 2, 2])
    np.testing.assert_array_equal(z.numpy(), np.eye(64))


def test_threads_and_tasks_have_streams_of_their_own() -> None:
    side = gr.Stream()
    seen: list[tuple[gr.Stream, gr.Stream]] = []
    with gr.stream(side):
        for _ in range(2):
            streams = lambda: seen.append((gr.current_stream(), gr.default_stream()))
            thread = threading.Thread(target=streams)
            thread.start()
            thread.join()
    assert all(default == gr.default_stream() and default.index == 0 for _, default in seen)
    assert len({stream.index for stream, _ in seen} | {side.index, 0}) == 4

    async def task(stream: gr.Stream) -> bool:
        with gr.stream(stream):
            await asyncio.sleep(0)
            return gr.current_stream() == stream

    async def both() -> list[bool]:
        return await asyncio.gather(task(gr.Stream()), task(gr.Stream()))

    assert asyncio.run(both()) == [True, True]


def test_threads_do_not_wait_for_each_others_programs() -> None:
    entered, leave = threading.Event(), threading.Event()

    def held(x: np.ndarray) -> np.ndarray:
        entered.set()
        assert leave.wait(60)
        return x

    function = gr.compile(lambda x: x + 1)
    function(gr.ones(3)).numpy()
    value = gr.pure_callback(held, gr.ones(3), gr.zeros(3))
    thread = threading.Thread(target=value.numpy)
    thread.start()
    assert entered.wait(60)
    # While the other thread's program runs: a call, and an evaluation.
    assert function(gr.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert (gr.ones(3) * 3).tolist() == [3.0, 3.0, 3.0]
    assert thread.is_alive()
    leave.set()
    thread.join()


def test_failures_of_a_thread_that_ended_are_told() -> None:
    def evaluate() -> None:
        gr.async_eval(fails())

    thread = threading.Thread(target=evaluate)
    thread.start()
    thread.join()
    with pytest.raises(gr.EvaluationError, match="cholesky"):
        gr.synchronize()
    gr.synchronize()


def test_a_tensor_of_one_stream_is_used_on_another() -> None:
    first, second = gr.Stream(), gr.Stream()
    for seed in range(20):
        with gr.stream(first):
            y = gr.async_eval(work(seed))
        with gr.stream(second):
            z = gr.async_eval(y * 2)
        np.testing.assert_allclose(np.asarray(z), 2 * expected(seed), rtol=1e-4, atol=1e-3)


def test_a_dropped_stream_runs_what_it_was_given() -> None:
    with gr.stream(gr.Stream()):
        y = gr.async_eval(work(3))
    np.testing.assert_allclose(np.asarray(y), expected(3), rtol=1e-4, atol=1e-3)


def test_synchronize_waits_for_all_streams_and_what_is_being_compiled() -> None:
    sides = [gr.Stream() for _ in range(3)]
    ys = []
    for i, side in enumerate(sides):
        with gr.stream(side):
            # Sizes used only in this test, so that these programs have not been compiled.
            ys.append(gr.async_eval(work(i, 151 + i)))
    gr.synchronize()
    assert [y.state() for y in ys] == ["available"] * 3
    assert all(side.query() for side in sides)
    assert gr.current_stream().query()


def test_events_order_streams_and_tell_the_time() -> None:
    first, second = gr.Stream(), gr.Stream()
    start, end = first.record_event(), gr.Event()
    with gr.stream(first):
        y = gr.async_eval(work(5, 301))
        end.record()
    second.wait_event(end)
    end.wait(second)
    second.wait_stream(first)
    reached = second.record_event()
    reached.synchronize()
    assert end.query()
    assert start.query()
    assert y.state() == "available"
    assert start.elapsed_time(end) > 0
    assert end.elapsed_time(start) < 0


def test_an_unrecorded_event_does_not_block() -> None:
    event = gr.Event()
    assert event.query()
    event.synchronize()
    gr.Stream().wait_event(event)
    recorded = gr.current_stream().record_event()
    recorded.synchronize()
    with pytest.raises(gr.EvaluationError, match="first event has not been recorded"):
        event.elapsed_time(recorded)
    with pytest.raises(gr.EvaluationError, match="second event has not been recorded"):
        recorded.elapsed_time(event)


def test_an_error_stays_with_its_stream_until_it_is_told() -> None:
    bad, good = gr.Stream(), gr.Stream()
    gr.eval(work(1, 20))  # compiled, so that it is submitted at once
    with gr.stream(bad):
        broken = gr.async_eval(fails())
    with gr.stream(good):
        fine = gr.async_eval(work(1, 20))
    good.synchronize()
    with pytest.raises(gr.EvaluationError, match="cholesky"):
        bad.synchronize()
    bad.synchronize()
    assert fine.state() == "available"
    assert broken.is_lazy
    with pytest.raises(gr.EvaluationError, match="positive"):
        broken.tolist()
    # Later work is not affected: the streams continue.
    with gr.stream(bad):
        np.testing.assert_allclose(np.asarray(work(2)), expected(2), rtol=1e-4, atol=1e-3)


def test_work_behind_a_failure_is_computed_when_read() -> None:
    side = gr.Stream()
    gr.eval(work(1, 21))
    with gr.stream(side):
        broken = gr.async_eval(fails())
        behind = gr.async_eval(work(1, 21))
    np.testing.assert_allclose(np.asarray(behind), expected(1, 21), rtol=1e-4, atol=1e-3)
    with pytest.raises(gr.EvaluationError):
        broken.tolist()
    gr.synchronize()


def test_reading_a_failed_tensor_raises_and_the_stream_continues() -> None:
    side = gr.Stream()
    with gr.stream(side):
        broken = gr.async_eval(fails())
        with pytest.raises(gr.EvaluationError, match="positive"):
            broken.tolist()
        fine = gr.async_eval(work(4))
        side.synchronize()
    assert fine.state() == "available"


def test_compiled_functions_run_on_the_current_stream() -> None:
    f = gr.compile(lambda x: (x * 2 + 1).sum())
    x = gr.arange(10)
    assert f(x).item() == 100
    side = gr.Stream()
    with gr.stream(side):
        start = side.record_event()
        assert f(x).item() == 100
        side.record_event().synchronize()
    assert start.query()


def test_many_streams_of_many_threads() -> None:
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            with gr.stream(gr.Stream(priority=seed % 3 - 1)):
                for i in range(10):
                    y = gr.async_eval(work(seed * 10 + i, 64))
                    want = expected(seed * 10 + i, 64)
                    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-4, atol=1e-3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arguments_of_other_types_are_refused() -> None:
    with pytest.raises(gr.InvalidArgumentError, match="expected a Stream or None, got int"):
        gr.stream(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        gr.Stream(priority="high")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        gr.Event().record(3)  # type: ignore[arg-type]


def test_a_loop_that_never_reads_holds_a_bounded_number_of_results():
    x = gr.eval(gr.ones((256, 256)))
    step = gr.ones((256, 256)) * 0.001
    gr.eval(step, gr.tanh(x @ step))
    gr.synchronize()
    block, before = 256 * 256 * 4, gr.memory_stats().in_use
    gr.reset_peak_memory_stats()
    for _ in range(400):
        x = gr.async_eval(gr.tanh(x @ step))
    peak = gr.memory_stats().peak
    gr.synchronize()
    # Each pending evaluation owns its result, and the running one its temporaries.
    assert (peak - before) / block < 2 * 64 + 16, (peak - before) / block
    assert np.isfinite(x.numpy()).all()
