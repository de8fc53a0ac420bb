"""Scopes, modes and options belong to the asyncio task or thread that entered them, however their
blocks overlap.
"""

from __future__ import annotations

import asyncio
import itertools
import threading

import girih as gr
import pytest

#: Ways to change a context, and what tells whether one has: nothing but the change itself.
SCOPES = {
    "eager_mode": (lambda: gr.eager_mode(), lambda: gr.is_eager()),
    "debug_nans": (lambda: gr.debug_nans(), lambda: gr._girih.is_debugging_nans()),
    "verify_shapes": (lambda: gr.verify_shapes(), lambda: gr._girih.is_verifying_shapes()),
    "graph_scope": (lambda: gr.graph_scope(), lambda: gr.current_graph().id),
    "reuse_graph": (lambda: gr.reuse_graph(gr.create_graph()), lambda: gr.current_graph().id),
    "named_scope": (lambda: gr.named_scope("scope"), lambda: "scope" in gr.graph_to_dot(gr.ones([2]).exp())),
    "without_passes": (lambda: gr.without_passes("cse"), lambda: gr._girih.compile_options()),
    "with_passes": (lambda: gr.with_passes("matmul_chain"), lambda: gr._girih.compile_options()),
    "use_executor": (lambda: gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))), lambda: gr.Context.current().executor().config.profile),
}  # fmt: skip

scoped = pytest.mark.parametrize("name", SCOPES)


@scoped
def test_threads_that_overlap(name):
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
def test_tasks_that_overlap(name, shared):
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


def test_what_is_left_from_under_others():
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
    eager.__exit__(None, None, None)  # Once too often: nothing is left.
    assert not gr.is_eager()


def test_a_generator_that_another_task_closes():
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


def test_what_a_task_sets_stays_with_it():
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
