"""Callbacks with an effect, and ops that can fail, run exactly where the function runs them: in each
iteration of a loop and in no other, also under transforms.
"""

from __future__ import annotations

import gc

import girih as gr
import numpy as np
import pytest
from loop_table import LOOPS, scan

SPEC = gr.ShapeDtypeStruct((), gr.float32)
ONE = gr.asarray(1.0)
ORDERED = pytest.mark.parametrize("ordered", [False, True])


class Host:
    """A source of numbers 2, 3, 4, ... that counts its calls."""

    def __init__(self, ordered=False):
        self.calls, self.ordered = 0, ordered

    def __call__(self, *_):
        self.calls += 1
        return np.float32(self.calls + 1)

    def next(self, *args):
        return gr.io_callback(self, SPEC, *args, ordered=self.ordered)

    def tick(self, value):
        gr.debug.callback(self, ordered=self.ordered)
        return value


MODES = {
    "plain": lambda f: f,
    "compiled": lambda f: gr.compile(f),
    "jvp": lambda f: lambda x: gr.jvp(f, (x,), (x,))[0],
    "checkpoint": lambda f: gr.checkpoint(f),
    "vmap": lambda f: lambda x: gr.vmap(f)(gr.stack([x, x]))[0],
}


@ORDERED
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loop", LOOPS)
def test_effects_happen_in_each_iteration(loop, mode, count, ordered):
    host = Host(ordered)
    run = MODES[mode](LOOPS[loop](lambda c: host.tick(c + 1.0), count))
    for _ in range(2):
        host.calls = 0
        assert run(ONE).item() == 1.0 + count
        gr.synchronize()
        assert host.calls == count


@ORDERED
@pytest.mark.parametrize("mode", ["plain", "compiled", "jvp", "checkpoint"])
@pytest.mark.parametrize("loop", LOOPS)
def test_values_of_the_host_are_new_in_each_iteration(loop, mode, ordered):
    host = Host(ordered)
    run = MODES[mode](LOOPS[loop](lambda c: c * host.next(), 3))
    assert run(ONE).item() == 24.0
    assert host.calls == 3
    batches = gr.scan(lambda c, _: (c, host.next()), ONE, None, length=3)[1]
    assert batches.tolist() == [5.0, 6.0, 7.0]


def conditional(host):
    return lambda c: gr.cond(c > 0.0, lambda v: v * host.next(), lambda v: v, c)


#: Functions with the derivative 24 that call the host three times.
FUNCTIONS = {
    "scan": lambda host: scan(lambda c: c * host.next(), 3),
    "plain": lambda host: lambda x: x * host.next() * host.next() * host.next(),
    "scan of cond": lambda host: scan(conditional(host), 3),
    "scan of checkpoint": lambda host: scan(gr.checkpoint(lambda c: c * host.next()), 3),
    "checkpoint of scan": lambda host: gr.checkpoint(scan(lambda c: c * host.next(), 3)),
    "scan of scan": lambda host: scan(scan(lambda c: c * host.next(), 1), 3),
    "bounded while_loop": lambda host: LOOPS["bounded while_loop"](lambda c: c * host.next(), 3),
    "cond of scan": lambda host: lambda x: gr.cond(
        x > 0.0, scan(lambda c: c * host.next(), 3), lambda v: v, x
    ),
    "checkpoint": lambda host: gr.checkpoint(
        lambda x: x * host.next() * host.next() * host.next()
    ),
    "compiled": lambda host: gr.compile(scan(lambda c: c * host.next(), 3)),
}  # fmt: skip

DERIVATIVES = {
    "grad": lambda f: gr.grad(f)(ONE),
    "value_and_grad": lambda f: sum(gr.value_and_grad(f)(ONE)) / 2.0,
    "jvp": lambda f: gr.jvp(f, (ONE,), (ONE,))[1],
    "vjp": lambda f: gr.vjp(f, ONE)[1](ONE)[0],
    "vjp, later": lambda f: (lambda pair: gr.eval(pair[0]) and pair[1](ONE)[0])(gr.vjp(f, ONE)),
    "linearize": lambda f: gr.linearize(f, ONE)[1](ONE),
    "compiled grad": lambda f: gr.compile(gr.grad(f))(ONE),
    "grad of checkpoint": lambda f: gr.grad(gr.checkpoint(f))(ONE),
    "grad of grad": lambda f: gr.grad(gr.grad(lambda x: f(x) * x))(ONE) / 2.0,
    "jvp of grad": lambda f: gr.jvp(gr.grad(lambda x: f(x) * x), (ONE,), (ONE,))[1] / 2.0,
    "jacrev": lambda f: gr.jacrev(f)(ONE),
    "jacfwd": lambda f: gr.jacfwd(f)(ONE),
}


@ORDERED
@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_do_not_call_again(function, derivative, ordered):
    host = Host(ordered)
    assert DERIVATIVES[derivative](FUNCTIONS[function](host)).item() == 24.0
    assert host.calls == 3


@ORDERED
def test_a_branch_that_is_not_taken_calls_nothing(ordered):
    host = Host(ordered)
    f = lambda x: gr.cond(x < 0.0, lambda v: gr.sin(v * host.next()), lambda v: v * 3.0, x)
    assert (f(ONE).item(), gr.grad(f)(ONE).item(), host.calls) == (3.0, 3.0, 0)


@ORDERED
def test_a_batch_computes_the_branches_that_a_member_takes(ordered):
    host = Host(ordered)

    def f(index, x):
        branches = [
            lambda v: v * 2.0,
            lambda v: host.tick(v + 1.0),
            lambda v: v + DATA[INDEX].sum(),
        ]
        return gr.switch(index, branches, x)

    x = gr.ones([3])
    for index, expected, calls in (
        ([0, 0, -4], [2.0, 2.0, 2.0], 0), ([0, 1, 1], [2.0, 2.0, 2.0], 1), ([1, 1, 1], [2.0] * 3, 1),
    ):  # fmt: skip
        for run in (gr.vmap(f), gr.compile(gr.vmap(f)), gr.vmap(gr.checkpoint(f))):
            host.calls = 0
            assert run(gr.asarray(np.array(index)), x).tolist() == expected
            assert host.calls == calls
    with pytest.raises(gr.GirihError):
        gr.eval(gr.vmap(f)(gr.asarray(np.array([0, 1, 9])), x))
    chosen = gr.vmap(lambda p, v: gr.cond(p, lambda v: v + DATA[INDEX].sum(), lambda v: v * v, v))
    assert chosen(gr.asarray(np.array([False] * 3)), x).tolist() == [1.0] * 3


@ORDERED
def test_equal_loops_are_two_loops(ordered):
    host = Host(ordered)
    loop = gr.compile(scan(lambda c: host.tick(c + 1.0), 3))
    assert gr.compile(lambda x: loop(x) + loop(x))(ONE).item() == 8.0
    assert host.calls == 6
    tick = gr.compile(host.tick)
    host.calls = 0
    assert gr.compile(lambda x: tick(x) + gr.compile(host.tick)(x))(ONE).item() == 2.0
    assert host.calls == 2


def test_ordered_calls_of_inner_programs_keep_their_order():
    seen = []

    def note(name):
        return lambda x: (gr.debug.callback(lambda: seen.append(name), ordered=True), x + 1.0)[1]

    inner = gr.compile(note("inner"))

    @gr.compile
    def outer(x):
        return note("after")(inner(note("before")(x)))

    assert outer(ONE).item() == 4.0
    assert seen == ["before", "inner", "after"]


DATA, INDEX = gr.asarray(np.arange(3.0, dtype=np.float32)), gr.asarray(np.array([7]))
ZEROS = gr.zeros([2, 2])
FAILING = {
    "index": lambda: DATA[INDEX].sum(),
    "several indices": lambda: gr.ones([2, 2])[INDEX, INDEX].sum(),
    "scatter": lambda: DATA.at[INDEX].set(1.0).sum(),
    "label": lambda: gr.nn.functional.cross_entropy(gr.ones([1, 3]), INDEX).sum(),
    "one hot": lambda: gr.nn.functional.one_hot(INDEX, 3).sum(),
    "embedding": lambda: gr.nn.functional.embedding(INDEX, gr.ones([3, 2])).sum(),
    "solve": lambda: gr.linalg.solve(ZEROS, gr.ones([2])).sum(),
    "cholesky": lambda: gr.linalg.cholesky(ZEROS).sum(),
    "inv": lambda: gr.linalg.inv(ZEROS).sum(),
    "eig": lambda: gr.real(gr.linalg.eig(ZEROS * np.nan)[0]).sum(),
    "pure_callback": lambda: gr.pure_callback(lambda: 1 / 0, SPEC),
    "check": lambda: (gr.debug.check(ONE < 0.0, "never"), ONE)[1],
    "cond": lambda: gr.cond(ONE > 0.0, lambda: DATA[INDEX].sum(), lambda: ONE),
    "scan": lambda: gr.scan(lambda c, _: (c + DATA[INDEX].sum(), None), ONE, length=2)[0],
    "checkpoint": lambda: gr.checkpoint(lambda i: DATA[i].sum())(INDEX),
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_fails_only_if_it_runs(loop, mode, failing):
    for count in (0, 2):
        run = MODES[mode](LOOPS[loop](lambda c: c + FAILING[failing](), count))
        if count == 0:
            assert run(ONE).item() == 1.0
        else:
            with pytest.raises((gr.GirihError, ZeroDivisionError)):
                run(ONE).item()


def test_invariant_reads_leave_a_scan_that_runs_and_stay_in_one_without_iterations():
    index = gr.asarray(np.array([1]))
    text = lambda n: gr.compile(scan(lambda c: c + DATA[index].sum(), n)).lower(ONE).text()
    inside = lambda text: "take" in text[text.index("= scan") :].split("} ->")[0]
    assert [inside(text(n)) for n in (0, 1, 3)] == [True, False, False]


def program(rng, depth):
    """A body of nested loops, branches and ticks, for tensors and for numbers."""
    kind = rng.integers(4) if depth else 0
    if kind == 0:
        return (lambda host, c: host.tick(c + 1.0)), (lambda host, c: host.plain(c + 1.0))
    inner, plain = program(rng, depth - 1)
    if kind == 1:
        count, name = int(rng.choice([0, 1, 3])), rng.choice(list(LOOPS))

        def repeated(host, c):
            for _ in range(count):
                c = plain(host, c)
            return c

        return lambda host, c: LOOPS[name](lambda v: inner(host, v), count)(c), repeated
    if kind == 2:
        bound = float(rng.integers(5))
        return (
            lambda host, c: gr.cond(c > bound, lambda v: inner(host, v), lambda v: v + 2.0, c),
            lambda host, c: plain(host, c) if c > bound else c + 2.0,
        )
    other, other_plain = program(rng, depth - 1)
    return (
        lambda host, c: other(host, inner(host, c)),
        lambda host, c: other_plain(host, plain(host, c)),
    )


class Both(Host):
    """A host that numbers tell of their ticks, too."""

    def plain(self, value):
        self.calls += 1
        return value


def check_random_loops(seed, cases):
    """Random programs call the host as often as the same Python programs on numbers."""
    rng = np.random.default_rng(seed)
    for case in range(cases):
        body, plain = program(rng, 3)
        expected = Both()
        value = plain(expected, 1.0)
        host = Both(ordered=bool(case % 2))
        run = lambda x, body=body, host=host: body(host, x)
        jvp = lambda x, run=run: gr.jvp(run, (x,), (x,))[0]
        batch = lambda x, run=run: gr.vmap(run)(gr.stack([x, x]))[1]
        # In a batch, ordered calls after a call that some members make are made by each member.
        last = jvp if host.ordered else batch
        for form in (run, gr.compile(run), gr.checkpoint(run), jvp, last):
            host.calls = 0
            assert form(ONE).item() == value
            gr.synchronize()
            assert host.calls == expected.calls


def test_random_loops_call_as_often_as_python_loops():
    check_random_loops(5, 20)


#: Compiled functions require no gradients of the tape.
TAPED = [name for name in FUNCTIONS if name != "compiled"]


@ORDERED
@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize("function", TAPED)
def test_the_tape_does_not_call_again(function, evaluated, ordered):
    host, x = Host(ordered), gr.asarray(1.0).requires_grad_()
    y = FUNCTIONS[function](host)(x)
    if evaluated:
        assert y.item() == 24.0
    for times in (1, 2):
        y.backward(retain_graph=times == 1)
        assert x.grad.item() == 24.0 * times
    gr.synchronize()
    assert host.calls == 3


def test_the_tape_of_a_loop_with_many_carries_and_several_results_does_not_call_again():
    host, count = Host(), 20
    start = [gr.asarray(float(i + 1)).requires_grad_() for i in range(count)]

    def body(carry, _):
        factor = host.next()
        return [c * factor for c in carry[1:] + carry[:1]], (factor, carry[0] * factor)

    last, (factors, firsts) = gr.scan(body, start, None, length=3)
    assert (host.calls, factors.tolist()) == (3, [2.0, 3.0, 4.0])
    (sum(last) + firsts.sum()).backward()
    # The carries are turned by one place in each iteration.
    expected = [24.0 + {0: 2.0, 1: 6.0, 2: 24.0}.get(i, 0.0) for i in range(count)]
    assert [x.grad.item() for x in start] == expected
    assert host.calls == 3


def test_what_the_tape_keeps_of_a_loop_is_freed_with_its_results():
    host, x = Host(), gr.asarray(1.0).requires_grad_()
    with gr.graph_scope() as graph:
        for backward in (False, True):
            y = scan(lambda c: c * host.next(), 3)(x)
            pair = gr.cond(y > 0.0, lambda v: (v * 2.0, v), lambda v: (v, v), y)
            if backward:
                (pair[0] + pair[1]).backward()
                x.grad = None
            del y, pair
            gc.collect()
            assert graph.live_nodes <= 1
