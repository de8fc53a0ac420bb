"""Loops of scalars and short vectors, which are one function of generated code: their values beside
NumPy, their ends, and their derivatives and batches."""

from __future__ import annotations

import threading
import time

import girih as gr
import numpy as np
import pytest

FLOATS = ["float32", "float64"]
INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64"]


def counted(limit):
    def f(x):
        zero = gr.asarray(0, dtype="int32")
        step = lambda s: (s[0] + 1, s[1] * 3 - 1)
        return gr.while_loop(lambda s: s[0] < limit, step, (zero, x))

    return f


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("limit", [0, 1, 17])
def test_a_conditional_loop_of_a_scalar(dtype, limit):
    x = np.asarray(2, dtype=dtype)
    want = x.copy()
    with np.errstate(over="ignore"):
        for _ in range(limit):
            want = (want * np.asarray(3, dtype) - np.asarray(1, dtype)).astype(dtype)
    steps, found = gr.compile(counted(limit))(gr.asarray(x))
    assert steps.item() == limit
    assert found.numpy() == want
    assert counted(limit)(gr.asarray(x))[1].numpy() == want


@pytest.mark.parametrize("n", [1, 2, 7, 8, 16, 33, 100, 4096, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_short_vectors(n, dtype, reverse):
    rng = np.random.default_rng(n)
    carry = rng.integers(-5, 5, n).astype(dtype)
    parts = rng.integers(-5, 5, (9, n)).astype(dtype)
    two = np.asarray(2, dtype)
    want, values, last = [], [], carry
    for part in parts[::-1] if reverse else parts:
        values.append(last)
        last = last * two + part
        want.append(last - two)
    if reverse:
        want, values = want[::-1], values[::-1]
    body = lambda c, x: (c * 2 + x, (c * 2 + x - 2, c))
    end, (found, before) = gr.scan(body, gr.asarray(carry), gr.asarray(parts), reverse=reverse)
    assert np.array_equal(end.numpy(), last)
    assert np.array_equal(found.numpy(), np.stack(want))
    assert np.array_equal(before.numpy(), np.stack(values))


def test_scalars_beside_vectors_and_results_that_are_flags():
    def body(carry, x):
        count, flag, v = carry
        flag = gr.logical_xor(flag, x > 0.5)
        v = gr.where(flag, v + x, v - count.astype("float32"))
        return (count + 1, flag, v), (flag, count, v > 0)

    x = np.random.default_rng(0).random(20, np.float32)
    v = np.linspace(-1, 1, 21, dtype=np.float32)
    start = (gr.asarray(0), gr.asarray(False), gr.asarray(v))
    (count, flag, end), found = gr.scan(body, start, gr.asarray(x))
    f, flags, positive = False, [], []
    for c, part in enumerate(x):
        f ^= bool(part > 0.5)
        v = v + part if f else v - np.float32(c)
        flags.append(f)
        positive.append(v > 0)
    assert (count.item(), flag.item()) == (20, f)
    assert np.array_equal(end.numpy(), v)
    assert found[0].tolist() == flags
    assert found[1].tolist() == list(range(20))
    assert np.array_equal(found[2].numpy(), np.stack(positive))


def test_branches_in_a_loop_and_a_loop_in_a_loop():
    up, down = (lambda v: v * 0.5 - 1.0), (lambda v: v * 0.5 + 0.8)
    body = lambda _, v: gr.cond(v > 1.0, up, down, v)
    found = gr.fori_loop(0, 50, body, gr.asarray(7.0))
    want = 7.0
    for _ in range(50):
        want = up(want) if want > 1.0 else down(want)
    assert found.item() == pytest.approx(want, rel=1e-6)
    inner = lambda i, v: gr.fori_loop(0, 10, lambda j, w: w + i * j, v)
    assert gr.fori_loop(0, 10, inner, gr.asarray(0)).item() == 45 * 45


@pytest.mark.parametrize("shape", [(), (5,), (16,)])
def test_derivatives_of_loops(shape):
    x = gr.asarray(np.random.default_rng(1).random(shape))

    def looped(x):
        step = lambda i, v: gr.sin(v) * x + i.astype("float64")
        return gr.fori_loop(0, 6, step, x).sum()

    def unrolled(x):
        v = x
        for i in range(6):
            v = gr.sin(v) * x + float(i)
        return v.sum()

    for transform in (gr.grad, lambda f: gr.grad(lambda x: gr.grad(f)(x).sum())):
        found, want = transform(looped)(x), transform(unrolled)(x)
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-12, atol=1e-12)


def test_batches_of_loops():
    x = gr.asarray(np.random.default_rng(2).random((6, 3), np.float32))
    f = lambda v: gr.fori_loop(0, 9, lambda i, w: w * 0.5 + v, v)
    want = np.stack([f(row).numpy() for row in x])
    assert np.array_equal(gr.vmap(f)(x).numpy(), want)
    g = lambda v: gr.while_loop(lambda w: w < 4.0, lambda w: w * 1.5 + 0.25, v)
    row = x[:, 0]
    assert np.array_equal(gr.vmap(g)(row).numpy(), np.stack([g(v).numpy() for v in row]))


def test_a_loop_without_an_end_is_stopped():
    endless = lambda: gr.while_loop(lambda v: v > -1.0, lambda v: v * 0.5, gr.asarray(1.0))
    with gr.use_executor(gr.Executor(gr.ExecutorConfig(timeout_seconds=0.05))):
        start = time.monotonic()
        with pytest.raises(gr.EvaluationTimeoutError):
            endless().eval()
        assert time.monotonic() - start < 5
    with gr.use_executor(gr.Executor()) as executor:
        timer = threading.Timer(0.2, executor.cancel_all)
        timer.start()
        with pytest.raises(gr.EvaluationCancelledError):
            endless().eval()
        timer.join()


def test_a_long_loop_is_not_shortened_by_looks_at_the_clock():
    count = lambda v: v + 1
    n = 3_000_000
    assert gr.while_loop(lambda v: v < n, count, gr.asarray(0)).item() == n
    total = gr.fori_loop(0, n, lambda i, v: v + i, gr.asarray(0))
    assert total.item() == n * (n - 1) // 2


def test_an_error_in_a_step_names_its_op():
    x = gr.arange(5)
    with pytest.raises(gr.IndexOutOfBoundsError, match="index 5 is out of bounds"):
        gr.fori_loop(0, 9, lambda i, v: v + x[i], gr.asarray(0)).eval()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
def test_loops_that_read_and_replace_single_elements(dtype):
    x = (np.arange(40) % 7).astype(dtype)
    body = lambda i, v: v.at[i].set(gr.maximum(v[i - 1], v[i]))
    found = gr.fori_loop(1, 40, body, gr.asarray(x))
    assert np.array_equal(found.numpy(), np.maximum.accumulate(x))
    back = gr.fori_loop(0, 39, lambda i, v: v.at[-2 - i].set(v[-1 - i]), gr.asarray(x))
    assert np.array_equal(back.numpy(), np.full(40, x[-1]))
    if dtype != "bool":
        add = lambda i, v: v.at[i % 3].add(gr.asarray(x)[i])
        sums = gr.fori_loop(0, 39, add, gr.zeros(3, dtype=dtype))
        want = [x[k:39:3].sum(dtype=dtype) for k in range(3)]
        assert np.array_equal(sums.numpy(), np.stack(want))
    with pytest.raises(gr.IndexOutOfBoundsError, match="index 40 is out of bounds"):
        gr.fori_loop(0, 41, lambda i, v: v.at[i].set(v[0]), gr.asarray(x)).eval()
