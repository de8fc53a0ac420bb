"""Later calls of compiled functions: which calls bypass Python, and that all ways of calling return
the correct results.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref
from collections import OrderedDict, defaultdict, namedtuple

import girih as gr
import numpy as np
import pytest
from girih import nn


def data(*shape: int, seed: int = 0) -> gr.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return gr.asarray(values).eval()


def watched(fun):
    """The compiled function, and a counter of the calls that reach Python."""
    compiled = gr.compile(fun)
    calls = []
    original = compiled._called

    def called(args, kwargs):
        calls.append(1)
        return original(args, kwargs)

    compiled._called = called
    return compiled, calls


def check(fun, ways):
    """Asserts that each way of calling reaches Python at most once, and that each call is correct."""
    compiled, calls = watched(fun)
    for args, kwargs in ways:
        before = len(calls)
        for _ in range(3):
            found, expected = compiled(*args, **kwargs), fun(*args, **kwargs)
            assert gr.tree.structure(found) == gr.tree.structure(expected)
            for a, b in zip(gr.tree.leaves(found), gr.tree.leaves(expected), strict=True):
                assert type(a) is type(b)
                if isinstance(a, gr.Tensor):
                    assert a.dtype == b.dtype
                    np.testing.assert_array_equal(a.numpy(), b.numpy())
                else:
                    assert a == b
        assert len(calls) - before <= 1
    return compiled


def test_arguments_of_more_than_four_axes():
    x, y = data(2, 1, 3, 1, 4, 2), data(4, 2)
    check(
        lambda x, y: (x * y, x.sum(axis=(0, 2))), [((x, y), {}), ((data(1, 1, 1, 2, 4, 2), y), {})]
    )


def test_structures_of_arguments_and_results():
    x, y, z = data(3, seed=1), data(3, seed=2), data(3, seed=3)

    def f(state, pair, *rest, scale=1):
        return {"z": state["b"] - pair[0], "a": [pair[1] * scale, None, (state["a"],)], "n": 3}

    check(
        f,
        [
            (({"a": x, "b": y}, (y, z)), {}),
            (({"b": y, "a": x}, (y, z)), {}),
            (({"a": x, "b": y}, [y, z]), {}),
            (({"a": x, "b": y}, (y, z), x, [None, "text", 2.5]), {}),
            (({"a": x, "b": y}, (y, z)), {"scale": 2}),
            (({"a": x, "b": y}, (y, z)), {"scale": x}),
            (({"a": data(2, 3), "b": y}, (y, z)), {"scale": True}),
        ],
    )


def test_keywords_in_any_order():
    x, y = data(2, seed=1), data(2, seed=2)
    compiled = gr.compile(lambda *, a, b: a - b)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(a=x, b=y).numpy(), x.numpy() - y.numpy())
        np.testing.assert_array_equal(compiled(b=y, a=x).numpy(), x.numpy() - y.numpy())
        np.testing.assert_array_equal(compiled(b=x, a=y).numpy(), y.numpy() - x.numpy())


def test_constants_are_compared_by_type_and_value():
    x = data(3)
    compiled, calls = watched(lambda x, n: x * n)
    for value in (2, 2.0, True, 1, 3, 2):
        expected = x.numpy() * value
        np.testing.assert_array_equal(compiled(x, value).numpy(), expected)
    assert len(calls) == 5


@dataclasses.dataclass(frozen=True)
class State:
    a: gr.Tensor
    b: gr.Tensor
    mode: str = dataclasses.field(default="sum", metadata={"static": True})


class Box:
    def __init__(self, content):
        self.content = content


gr.tree.register(Box, lambda box: ((box.content,), "tag"), lambda _, children: Box(*children))
Pair = namedtuple("Pair", "a b")


def test_containers_of_all_kinds():
    x, y = data(3, seed=1), data(3, seed=2)
    check(lambda p: Pair(p.b, [p.a]), [((Pair(x, y),), {}), ((Pair(y, x),), {})])
    combined = {"sum": lambda s: s.a + s.b, "first": lambda s: s.a}
    check(
        lambda s: State(combined[s.mode](s), s.b, s.mode),
        [((State(x, y),), {}), ((State(y, x, "first"),), {}), ((State(y, y),), {})],
    )
    check(lambda p: OrderedDict(c=p["a"]), [((OrderedDict(a=x),), {}), (({"a": x},), {})])
    check(lambda p: defaultdict(list, c=p["a"]), [((defaultdict(list, a=x),), {})])
    check(lambda box: box.content["x"] + 1, [((Box({"x": x}),), {})])
    check(lambda x, *, box: x * box.content, [((x,), {"box": Box(y)})])


def test_a_container_of_another_kind_is_another_program():
    compiled, calls = watched(lambda p: p[0] - p[1])
    x, y = data(3, seed=1), data(3, seed=2)
    for _ in range(2):
        for pair in ((x, y), [x, y], Pair(x, y), {0: x, 1: y}):
            np.testing.assert_array_equal(compiled(pair).numpy(), x.numpy() - y.numpy())
    assert len(calls) == compiled.num_programs == 4


def test_arrays_of_numpy_are_tensors_of_the_call():
    compiled, calls = watched(lambda x, y: x + y)
    x, y = data(3, seed=1), data(3, seed=2)
    expected = x.numpy() + y.numpy()
    for a, b in ((x, y.numpy()), (x.numpy(), y), (x, y), (x.numpy().copy(), y.numpy())):
        np.testing.assert_array_equal(compiled(a, b).numpy(), expected)
    assert len(calls) == 1
    held = x.numpy().copy()
    found = compiled(held, held)
    held[:] = 0
    np.testing.assert_array_equal(found.numpy(), 2 * x.numpy())
    wide = compiled(x.numpy().astype(np.float64), y)
    assert (wide.dtype, len(calls)) == (gr.float64, 2)
    # NumPy's scalars are arrays without axes.
    for number in (np.float32(2), np.float32(3)):
        np.testing.assert_array_equal(compiled(x, number).numpy(), x.numpy() + number)
    assert len(calls) == 3


def test_a_flatten_function_that_fails_in_a_later_call():
    class Shy(Box):
        pass

    fails = []

    def opened(box):
        if fails:
            raise ValueError("not now")
        return (box.content,), None

    gr.tree.register(Shy, opened, lambda _, children: Shy(*children))
    compiled, calls = watched(lambda box: box.content * 2)
    x = data(3)
    compiled(Shy(x))
    fails.append(1)
    with pytest.raises(ValueError, match="not now"):
        compiled(Shy(x))
    fails.clear()
    np.testing.assert_array_equal(compiled(Shy(x)).numpy(), 2 * x.numpy())
    assert len(calls) == 2


def test_lazy_arguments_are_computed_first():
    compiled, calls = watched(lambda x: x + 1)
    compiled(data(4))
    x = data(4) * 3
    assert x.is_lazy
    np.testing.assert_array_equal(compiled(x).numpy(), x.numpy() + 1)
    assert len(calls) == 1
    assert not x.is_lazy


def test_results_of_traced_calls_are_recorded():
    compiled, calls = watched(lambda x: (x * x).sum())
    x = data(4)
    compiled(x)
    for _ in range(2):
        np.testing.assert_allclose(gr.grad(compiled)(x).numpy(), 2 * x.numpy(), rtol=1e-6)
    assert len(calls) == 1


def test_captured_tensors_are_read_afresh_in_each_call():
    scale = data(3, seed=5)
    held = {"w": data(3, seed=6)}

    def f(x):
        held["w"] = held["w"] + 1
        return x * scale + held["w"]

    compiled, calls = watched(f)
    x = data(3)
    for i in range(4):
        expected = x.numpy() * scale.numpy() + (held["w"].numpy() + np.float32(1))
        np.testing.assert_array_equal(compiled(x).numpy(), expected)
        scale = data(3, seed=10 + i)
    assert len(calls) == 1
    held["w"] = data(1)  # Another shape: another program.
    expected = x.numpy() * scale.numpy() + (held["w"].numpy() + np.float32(1))
    np.testing.assert_array_equal(compiled(x).numpy(), expected)
    assert compiled.num_programs == 2


def test_parameters_of_a_module_as_argument_and_outside():
    model = gr.eval(nn.Linear(3, 2))
    x = data(4, 3)
    outside, calls = watched(lambda x: model(x))
    given, more = watched(lambda m, x: m(x))
    for _ in range(3):
        np.testing.assert_array_equal(outside(x).numpy(), model(x).numpy())
        np.testing.assert_array_equal(given(model, x).numpy(), model(x).numpy())
        model.weight = data(2, 3, seed=9)
    assert (len(calls), len(more)) == (1, 1)


def test_a_cleared_function_is_traced_again():
    traced = []
    compiled = gr.compile(lambda x: traced.append(1) or x + 1)
    x = data(2)
    for _ in range(3):
        compiled(x)
    compiled.clear()
    assert compiled.num_programs == 0
    compiled(x)
    assert len(traced) == 2


def test_a_cleared_cache_compiles_the_same_program_again():
    with gr.use_executor(gr.Executor()):
        compiled, calls = watched(lambda x: x * 3 - 1)
        x = data(5)
        expected = compiled(x).numpy()
        hits = gr.cache_stats()["hits"]
        compiled(x)
        assert gr.cache_stats()["hits"] == hits + 1
        compiles = gr.cache_stats()["compiles"]
        gr.clear_cache()
        np.testing.assert_array_equal(compiled(x).numpy(), expected)
        assert gr.cache_stats()["compiles"] == compiles + 1
        assert len(calls) == 1


def test_random_numbers_are_drawn_anew():
    compiled, calls = watched(lambda x: x + gr.rand(x.shape))
    x = data(8)
    gr.manual_seed(3)
    found = [compiled(x).numpy() for _ in range(3)]
    gr.manual_seed(3)
    again = [(x + gr.rand(x.shape)).numpy() for _ in range(3)]
    assert len(calls) == 1
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found[0], found[1])


def test_many_programs_of_one_function_stay_correct():
    compiled = gr.compile(lambda x: x.sum() * 2)
    xs = [data(n + 1, seed=n) for n in range(24)]
    for _ in range(2):
        for x in xs:
            np.testing.assert_allclose(compiled(x).numpy(), x.numpy().sum() * 2, rtol=1e-5)
    assert compiled.num_programs == 24


def test_functions_that_refer_to_themselves_are_collected():
    def make():
        holder = {}
        w = data(3)

        def f(x):
            return x * w + holder["w"]

        holder["w"] = data(3)
        holder["f"] = gr.compile(f)
        x = data(3)
        holder["f"](x)
        holder["f"](x)
        return weakref.ref(holder["f"])

    reference = make()
    gc.collect()
    assert reference() is None


def test_calls_from_several_threads():
    compiled = gr.compile(lambda x, n: (x @ x * n).sum(axis=0))
    xs = [data(16, 16, seed=i) for i in range(4)]
    expected = [compiled(x, 2).numpy() for x in xs]
    wrong = []

    def run(i):
        for _ in range(100):
            if not np.array_equal(compiled(xs[i], 2).numpy(), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_errors_of_a_call_are_those_of_the_program():
    table = data(5, 2)
    compiled = gr.compile(lambda i: table[i])
    good, bad = gr.asarray(np.array([1, 4])), gr.asarray(np.array([1, 7]))
    gr.eval(good, bad)
    np.testing.assert_array_equal(compiled(good).numpy(), table.numpy()[[1, 4]])
    for _ in range(2):
        with pytest.raises(IndexError, match="7"):
            compiled(bad)
    np.testing.assert_array_equal(compiled(good).numpy(), table.numpy()[[1, 4]])


def adam(state, x):
    """A step for two parameters, with moments."""
    p, m = state

    def loss(p):
        return ((gr.tanh(x @ p["w"]) @ p["v"]) ** 2).mean()

    value, grads = gr.value_and_grad(loss)(p)
    m = gr.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    return value, (gr.tree.map(lambda p, m: p - 0.1 * m, p, m), m)


def adam_state(n):
    w, v = data(n, n, seed=1) * 0.1, data(n, n, seed=2) * 0.1
    return gr.eval(({"w": w, "v": v}, {"w": gr.zeros((n, n)), "v": gr.zeros((n, n))}))


def addresses(state):
    return sorted(t.numpy().__array_interface__["data"][0] for t in gr.tree.leaves(state))


@pytest.mark.parametrize(
    ("donate", "n"), [(0, 64), ("state", 7), (-2, 1), ([0], 129), (("state",), 300)]
)
def test_donated_arguments_are_overwritten_and_nothing_else_changes(donate, n):
    x = data(16, n, seed=3)
    plain, donating = gr.compile(adam), gr.compile(adam, donate=donate)
    expected, found = adam_state(n), adam_state(n)
    for step in range(4):
        before, old = addresses(found), found
        value, expected = plain(expected, x)
        other, found = donating(old, x)
        assert value.item() == other.item()
        for a, b in zip(gr.tree.leaves(expected), gr.tree.leaves(found), strict=True):
            assert a.numpy().tobytes() == b.numpy().tobytes()
        # Zeros created in one evaluation share one value, so they cannot be donated.
        if step > 0:
            assert addresses(found) == before, "written where the old ones were"
        for leaf in gr.tree.leaves(old):
            with pytest.raises(gr.errors.InvalidArgumentError, match="was donated"):
                leaf.numpy()
        with pytest.raises(gr.errors.InvalidArgumentError, match="was donated"):
            (gr.tree.leaves(old)[0] + 1).eval()
        with pytest.raises(gr.errors.InvalidArgumentError, match="was donated"):
            donating(old, x)


def test_a_partially_updated_donated_argument_becomes_the_result():
    start = np.arange(20_000, dtype=np.float32)
    put = gr.compile(lambda x, y: x.at[5:7].set(y), donate=0)
    x, y = gr.asarray(start).eval(), gr.asarray(np.float32([-1, -2])).eval()
    held = (x + 0).eval()
    want = start.copy()
    want[5:7] = -1, -2
    np.testing.assert_array_equal(put(x, y).numpy(), want)
    np.testing.assert_array_equal(held.numpy(), start)
    np.testing.assert_array_equal(y.numpy(), [-1, -2])


def test_donated_memory_with_other_owners_is_not_overwritten():
    double = gr.compile(lambda x: x * 2, donate=0)
    x = data(100)
    values = x.numpy().copy()
    array = x.numpy()  # Shares the memory of x.
    np.testing.assert_array_equal(double(x).numpy(), values * 2)
    np.testing.assert_array_equal(array, values)
    x = data(100, seed=1)
    values, later = x.numpy().copy(), x + 1
    np.testing.assert_array_equal(double(x).numpy(), values * 2)
    np.testing.assert_array_equal(later.numpy(), values + 1)
    np.testing.assert_array_equal(x.numpy(), values)
    # Memory owned by NumPy is read and never written.
    array = np.ones(1000, np.float32)
    np.testing.assert_array_equal(double(gr.asarray(array, copy=False).eval()).numpy(), 2 * array)
    assert (array == 1).all()
    # A tensor that is passed twice cannot be donated.
    add = gr.compile(lambda x, y: (x + y, x - y), donate=(0, 1))
    x = data(50)
    values = x.numpy().copy()
    for _ in range(2):
        total, difference = add(x, x)
        np.testing.assert_array_equal(total.numpy(), values * 2)
        np.testing.assert_array_equal(difference.numpy(), 0 * values)


def test_results_in_another_order_than_their_operands():
    """Each result is written over the other's operand, which must have been read before."""

    def f(x, y, z):
        return y.T + x, x * 3, gr.flip(z, axis=0), z[::-1] + y, x @ y

    plain, donating = gr.compile(f), gr.compile(f, donate=(0, 1, 2))
    for seed in range(3):
        make = lambda seed=seed: [data(70, 70, seed=10 * seed + i) for i in range(3)]
        for a, b in zip(plain(*make()), donating(*make()), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_donating_holds_less_memory():
    with gr.use_executor(gr.Executor()):
        f = gr.compile(lambda x: gr.tanh(x) * 2, donate=0)
        g = gr.compile(lambda x: gr.tanh(x) * 2)
        size = 1 << 18
        peaks = []
        for function in (g, f):
            x = data(size)
            x = function(x)
            gr._girih.reset_peak_memory()
            before = gr.cache_stats()["memory_bytes"]
            for _ in range(3):
                x = function(x)
            peaks.append(gr.cache_stats()["peak_memory_bytes"] - before)
        assert peaks[0] >= 4 * size
        assert peaks[1] == 0


def test_donating_an_unknown_argument_is_refused():
    for donate in ("z", 2, -3, ["x", "y", "w"]):
        with pytest.raises(gr.errors.InvalidArgumentError, match="donate names argument"):
            gr.compile(lambda x, y: x + y, donate=donate)
