"""Scopes, modes and options belong to the asyncio task or thread that entered them, even if blocks
overlap.
"""

from __future__ import annotations

import asyncio
import itertools
import threading

import girih as gr
import numpy as np
import pytest
from girih import nn

#: By name: a scope, and a function that observes only that scope.
SCOPES = {
    "eager_mode": (lambda: gr.eager_mode(), lambda: gr.is_eager()),
    "debug_nans": (lambda: gr.debug_nans(), lambda: gr._girih.is_debugging_nans()),
    "verify_shapes": (lambda: gr.verify_shapes(), lambda: gr._girih.is_verifying_shapes()),
    "graph_scope": (lambda: gr.graph_scope(), lambda: gr.current_graph().id),
    "reuse_graph": (lambda: gr.reuse_graph(gr.create_graph()), lambda: gr.current_graph().id),
    "named_scope": (lambda: gr.named_scope("scope"), lambda: "scope" in gr.graph_to_dot(gr.ones([2]).exp())),
    "no_grad": (lambda: gr.no_grad(), lambda: gr.is_grad_enabled()),
    "autocast": (lambda: gr.amp.autocast("bfloat16"), lambda: (gr.ones([2, 2]) @ gr.ones([2, 2])).dtype),
    "without_passes": (lambda: gr.without_passes("cse"), lambda: gr._girih.compile_options()),
    "with_passes": (lambda: gr.with_passes("matmul_chain"), lambda: gr._girih.compile_options()),
    "use_executor": (lambda: gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))), lambda: gr.Context.current().executor().config.profile),
}  # fmt: skip

scoped = pytest.mark.parametrize("name", SCOPES)


@scoped
def test_overlapping_threads_have_separate_scopes(name):
    make, look = SCOPES[name]
    before = look()
    steps = [threading.Event() for _ in range(3)]
    seen = {}

    def first():
        outside = look()
        with make():
            seen["first"] = look() != outside
            steps[0].set()
            steps[1].wait(20)
        seen["first after"] = look() == outside
        steps[2].set()

    def second():
        steps[0].wait(20)
        outside = look()
        with make():
            steps[1].set()
            steps[2].wait(20)
            seen["second"] = look() != outside
        seen["second after"] = look() == outside

    threads = [threading.Thread(target=f) for f in (first, second)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert seen == dict.fromkeys(["first", "first after", "second", "second after"], True)
    assert look() == before


@scoped
@pytest.mark.parametrize("shared", [False, True])
def test_overlapping_tasks_have_separate_scopes(name, shared):
    make, look = SCOPES[name]
    one = make()

    async def work(first, second):
        await first.wait()
        outside = look()
        with one if shared else make():
            assert look() != outside
            second.set()
            for _ in range(3):
                await asyncio.sleep(0)
                assert look() != outside
        assert look() == outside
        await asyncio.sleep(0)
        return look() == outside

    async def idle():
        outside = look()
        for _ in range(12):
            assert look() == outside
            await asyncio.sleep(0)
        return True

    async def main():
        events = [asyncio.Event() for _ in range(4)]
        events[0].set()
        pairs = itertools.pairwise(events)
        return await asyncio.gather(*(work(*pair) for pair in pairs), idle())

    before = look()
    assert all(asyncio.run(main()))
    assert look() == before


@scoped
def test_generators_that_end_in_another_order(name):
    make, look = SCOPES[name]
    before = look()

    def block():
        with make():
            yield

    one, two, three = block(), block(), block()
    for generator in (one, two, three):
        next(generator)
        assert look() != before
    for generator in (one, three, two):
        assert look() != before
        generator.close()
    assert look() == before


def test_scopes_may_be_left_out_of_order():
    before = gr.current_graph().id
    graph, eager = gr.graph_scope(), gr.eager_mode()
    inner = graph.__enter__()
    eager.__enter__()
    graph.__exit__(None, None, None)
    assert gr.current_graph().id == before
    assert inner.id != before
    assert gr.is_eager()
    eager.__exit__(None, None, None)
    assert not gr.is_eager()
    eager.__exit__(None, None, None)  # One exit too many has no effect.
    assert not gr.is_eager()


def test_a_generator_may_be_closed_by_another_task():
    def block():
        with gr.eager_mode():
            yield

    async def main():
        generator = block()

        async def enter():
            next(generator)
            return gr.is_eager()

        assert await asyncio.create_task(enter())
        assert not gr.is_eager()
        generator.close()
        return gr.is_eager()

    assert not asyncio.run(main())
    assert not gr.is_eager()


def test_settings_of_a_task_do_not_reach_other_tasks():
    async def setter():
        gr.set_eager(True)
        await asyncio.sleep(0)
        return gr.is_eager()

    async def other():
        found = []
        for _ in range(3):
            await asyncio.sleep(0)
            found.append(gr.is_eager())
        return found

    async def main():
        with gr.graph_scope():
            scoped = await asyncio.gather(setter(), other())
        return scoped, await asyncio.gather(setter(), other()), gr.is_eager()

    assert asyncio.run(main()) == ([True, [False] * 3], [True, [False] * 3], False)
    assert not gr.is_eager()


def test_tasks_begin_in_the_scope_that_makes_them():
    async def inside():
        await asyncio.sleep(0)
        return gr.is_eager(), await asyncio.to_thread(gr.is_eager)

    async def main():
        with gr.eager_mode():
            task = asyncio.create_task(inside())
        assert not gr.is_eager()
        return await task

    assert asyncio.run(main()) == (True, True)
    found = []
    with gr.eager_mode():
        thread = threading.Thread(target=lambda: found.append(gr.is_eager()))
        thread.start()
        thread.join()
    assert found == [False]


def test_passes_switched_off_change_no_other_threads_numbers():
    a, b, c = (gr.eval(gr.rand([24, 24])) for _ in range(3))
    with gr.with_passes("matmul_chain"):
        switched = (a @ (b @ c[:, :1])).tolist()
    assert ((a @ b) @ c[:, :1]).tolist() == ((a @ b) @ c[:, :1]).tolist()
    compiled = gr.compile(lambda: (a @ b) @ c[:, :1])
    plain = compiled().tolist()
    with gr.with_passes("matmul_chain"):
        assert compiled().tolist() == switched
    assert compiled().tolist() == plain


def test_scopes_are_decorators():
    @gr.eager_mode()
    def f(n):
        return gr.is_eager() and (n == 0 or f(n - 1)) and gr.is_eager()

    assert f(3)
    assert not gr.is_eager()


def test_each_thread_and_each_scope_has_a_graph_of_its_own():
    def ask():
        first = gr.current_graph().id
        with gr.graph_scope() as inner:
            x = gr.ones([3]) * 2
            recorded = inner.num_nodes
        return first, inner.id, gr.current_graph().id, recorded, x.tolist()

    found = [ask()]
    threads = [threading.Thread(target=lambda: found.append(ask())) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    outer, inner, after, recorded, values = zip(*found, strict=True)
    assert outer == after
    assert len({*outer, *inner}) == 8
    assert set(recorded) == {3}
    assert values == ([2.0, 2.0, 2.0],) * 4


class Outer(nn.Module):
    """Records the scope of its own ops, before and after calls of its part."""

    def __init__(self, depth):
        super().__init__()
        self.part = Outer(depth - 1) if depth else None
        self.seen = []

    def forward(self, x):
        for _ in range(2):
            x = x.exp()
            self.seen.append(gr.graph_to_text(x).rsplit("scope=", 1)[1].split('"')[1])
            x = x if self.part is None else self.part(x)
        return x


def test_modules_that_tasks_call_record_in_their_own_scopes():
    async def call(name):
        model = Outer(depth=2)
        with gr.named_scope(name):
            for _ in range(3):
                await asyncio.sleep(0)
                model(gr.ones([2]))
        return [set(m.seen) for m in (model, model.part, model.part.part)]

    async def main():
        return await asyncio.gather(*(call(name) for name in "abc"))

    for name, seen in zip("abc", asyncio.run(main()), strict=True):
        assert seen == [{f"{name}.Outer"}, {f"{name}.Outer.part"}, {f"{name}.Outer.part.part"}]
    assert "scope" not in gr.graph_to_text(gr.ones([2]).exp())


@pytest.mark.parametrize("way", ["tasks", "threads"])
def test_concurrent_tasks_and_threads_compute_gradients(way):
    def slope(x):
        return gr.grad(lambda x: (x**2 + 2 * x).sum())(x)

    def by_tape(x):
        x.requires_grad_()
        (x**2 + 2 * x).sum().backward()
        return x.grad

    values = [[1.0, 2.0, 3.0], [10.0, 20.0], [0.5, -1.0, 2.5, 4.0]]
    works = [(f, v) for v in values for f in (slope, by_tape)]
    found = {}

    async def task(at, f, v):
        x = gr.asarray(v)
        await asyncio.sleep(0)
        result = f(x)
        await asyncio.sleep(0)
        found[at] = result.numpy()

    async def main():
        await asyncio.gather(*(task(at, f, v) for at, (f, v) in enumerate(works)))

    if way == "tasks":
        asyncio.run(main())
    else:
        started = [
            threading.Thread(target=lambda at=at, f=f, v=v: asyncio.run(task(at, f, v)))
            for at, (f, v) in enumerate(works)
        ]
        [t.start() for t in started]
        [t.join() for t in started]
    for at, (_, v) in enumerate(works):
        np.testing.assert_allclose(found[at], 2 * np.asarray(v) + 2, rtol=1e-6)
