"""Results are bitwise equal for every number of threads, and programs may start threads."""

from __future__ import annotations

import threading

import girih as gr
import numpy as np
import pytest
from girih import nn

F = nn.functional


def data(*shape: int, seed: int = 0) -> gr.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return gr.asarray(values)


def loss(parameters, x, y):
    hidden = gr.tanh(x @ parameters[0] + parameters[1])
    return ((hidden @ parameters[2] - y) ** 2).mean()


def training_step():
    parameters = [data(200, 300, seed=1) * 0.1, data(300, seed=2), data(300, 50, seed=3) * 0.1]
    value, grads = gr.value_and_grad(loss)(parameters, data(96, 200, seed=4), data(96, 50, seed=5))
    return value, [p - 0.1 * g for p, g in zip(parameters, grads, strict=True)]


def attention():
    q, k, v = (data(2, 4, 300, 32, seed=s) for s in range(3))
    grad = gr.grad(lambda q: F.scaled_dot_product_attention(q, k, v).sum())
    return F.scaled_dot_product_attention(q, k, v), grad(q)


def convolution():
    x, w = data(4, 16, 40, 40, seed=1), data(24, 16, 3, 3, seed=2)
    grads = gr.grad(lambda p: (F.conv2d(p[0], p[1], padding=1) ** 2).mean())([x, w])
    return F.conv2d(x, w, stride=2, padding=1), grads


# The arrays are large enough to be split between threads.
PROGRAMS = {
    "matmul": lambda: [data(m, 500, seed=m) @ data(500, 400) for m in (1, 7, 32, 300)],
    "bfloat16": lambda: data(130, 300).astype(gr.bfloat16) @ data(300, 200).astype(gr.bfloat16),
    "elementwise": lambda: F.gelu(data(700, 300) * 1.5 + data(300, seed=1)),
    "sums": lambda: [data(900, 700).sum(axis=axis) for axis in (None, 0, 1)],
    "moments": lambda: [data(30, 4000).var(axis=1), data(4000, 30).mean(axis=0)],
    "softmax": lambda: gr.softmax(data(400, 600), axis=-1),
    "layer norm": lambda: F.layer_norm(data(400, 600), 600, data(600, seed=1), data(600, seed=2)),
    "transpose": lambda: data(600, 500).T + data(500, 600, seed=1),
    "cumulative": lambda: gr.cumulative_sum(data(300, 900), axis=1),
    "gather": lambda: data(5000, 40)[gr.asarray(np.arange(20000) * 7919 % 5000)],
    "scatter": lambda: gr.grad(lambda t: (t[gr.asarray(np.arange(30000) * 7 % 999)] ** 3).sum())(
        data(1000, 8)
    ),
    "sort": lambda: gr.sort(data(200, 1500), axis=-1),
    "random": lambda: (gr.manual_seed(5), gr.randn((400, 500)))[1],
    "training step": training_step,
    "attention": attention,
    "convolution": convolution,
}


def bits(program) -> list[bytes]:
    leaves = [t for t in gr.tree.leaves(program()) if isinstance(t, gr.Tensor)]
    gr.eval(leaves)
    return [t.__reduce__()[1][0] for t in leaves]


@pytest.fixture
def threads():
    yield gr.set_num_threads
    gr.set_num_threads(2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same_bits_for_any_number_of_threads(name, threads):
    threads(1)
    expected = bits(PROGRAMS[name])
    assert any(expected)
    for count in (2, 3, 5):
        threads(count)
        assert bits(PROGRAMS[name]) == expected, f"{count} threads"


def test_callers_on_many_threads_share_the_pool(threads):
    threads(3)
    programs = ["matmul", "sums", "softmax", "training step"]
    expected = {name: bits(PROGRAMS[name]) for name in programs}
    wrong: list[str] = []

    def run(name: str) -> None:
        for _ in range(5):
            if bits(PROGRAMS[name]) != expected[name]:
                wrong.append(name)

    callers = [threading.Thread(target=run, args=(name,)) for name in programs for _ in range(2)]
    for caller in callers:
        caller.start()
    for count in (1, 4, 2):
        threads(count)
    for caller in callers:
        caller.join()
    assert not wrong


def test_invalid_numbers_of_threads_are_refused(threads):
    for count in (0, 5000):
        with pytest.raises(gr.errors.InvalidArgumentError, match=f"1 to 1024 .* got {count}"):
            threads(count)
