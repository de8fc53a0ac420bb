"""Control flow in the graph, against Python loops over NumPy arrays."""

from __future__ import annotations

import collections
import threading

import girih as gr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def arr(*values, dtype="float64"):
    return gr.asarray(list(values), dtype=dtype)


def counters():
    stats = gr.cache_stats()
    return stats["compiles"], stats["runs"], stats["kernels_launched"]


def work(thunk):
    """The compilations, runs and launches of an evaluation."""
    gr.clear_cache()
    before = counters()
    thunk()
    return tuple(b - a for a, b in zip(before, counters(), strict=True))


def numeric(f, x, h=1e-6):
    x = np.asarray(x, dtype=float)
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        out[i] = (float(f(gr.asarray(up))) - float(f(gr.asarray(down)))) / (2 * h)
    return out


# Branches.


@pytest.mark.parametrize("value", [True, False])
def test_cond_gives_the_chosen_branch(value):
    x = arr(4.0, 9.0)
    got = gr.cond(gr.asarray(value), lambda x: gr.sqrt(x), lambda x: -x, x)
    assert got.tolist() == ([2.0, 3.0] if value else [-4.0, -9.0])
    assert gr.cond(value, lambda: x + 1, lambda: x - 1).tolist() == [
        4.0 + (1 if value else -1),
        9.0 + (1 if value else -1),
    ]


def test_branches_share_closures_operands_and_pytrees():
    a, b = arr(1.0, 2.0), arr(3.0, 5.0)
    pair = {"u": a, "v": (b, None)}

    def swap(tree):
        return {"u": tree["v"][0] * b, "v": (tree["u"], None)}

    def keep(tree):
        return {"u": tree["u"], "v": (tree["v"][0] + a, None)}

    for value in (True, False):
        got = gr.cond(gr.asarray(value), swap, keep, pair)
        want = (swap if value else keep)(pair)
        assert got["u"].tolist() == want["u"].tolist()
        assert got["v"][0].tolist() == want["v"][0].tolist()
        assert got["v"][1] is None


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_switch_moves_the_index_into_range(index, dtype):
    if dtype == "uint8" and index < 0:
        pytest.skip("no negative numbers")
    branches = [lambda x: x + 1, lambda x: x * 10, lambda x: -x]
    got = gr.switch(gr.asarray(index, dtype=dtype), branches, gr.asarray(4.0))
    assert got.item() == [5.0, 40.0, -4.0][min(max(index, 0), 2)]
    assert gr.switch(index, branches, gr.asarray(4.0)).item() == got.item()


def test_only_the_branch_taken_is_run():
    x = gr.asarray([1, 2, 3])
    bad = gr.asarray(99)
    # The other branch would fail, because its index is out of bounds.
    got = gr.cond(gr.asarray(False), lambda: gr.take(x, bad), lambda: gr.take(x, gr.asarray(1)))
    assert got.item() == 2
    with pytest.raises(gr.IndexOutOfBoundsError):
        gr.cond(gr.asarray(True), lambda: gr.take(x, bad), lambda: x[0]).item()


def test_if_materialises_exactly_the_predicate_and_cond_nothing():
    x = arr(1.0, 2.0)
    big = gr.exp(x) * 3
    y = gr.cond((x > 0).all(), lambda: big + 1, lambda: big - 1)
    before = counters()
    assert gr.is_lazy(y)
    assert gr.is_lazy(big)
    predicate = (x > 0).all()
    assert counters() == before
    if predicate:
        result = big + 1
    assert counters()[1] == before[1] + 1
    assert not gr.is_lazy(predicate)
    assert gr.is_lazy(big)
    assert gr.is_lazy(result)
    assert gr.is_lazy(y)
    np.testing.assert_allclose(y.numpy(), result.numpy())


def test_a_literal_predicate_leaves_the_branch_alone():
    x = arr(1.0, 2.0)
    explanation = str(gr.explain(gr.cond(gr.asarray(True), lambda: x + 1, lambda: gr.exp(x))))
    assert gr.cond(True, lambda: x + 1, lambda: gr.exp(x)).tolist() == [2.0, 3.0]
    assert "branch" in explanation or "cond" in explanation


# Loops.


def test_while_loop_repeats_while_the_condition_holds():
    assert gr.while_loop(lambda x: x < 1000, lambda x: x * 2, 1).item() == 1024
    assert gr.while_loop(lambda x: x < 0, lambda x: x * 2, 5).item() == 5
    end = gr.asarray(7)
    i, total = gr.while_loop(
        lambda c: c[0] < end,
        lambda c: (c[0] + 1, c[1] + c[0] * gr.asarray([1, 2])),
        (0, arr(0, 0, dtype="int64")),
    )
    assert i.item() == 7
    assert total.tolist() == [21, 42]


def test_swapped_repeated_and_unchanged_carries():
    def body(c):
        a, b, k, _s = c
        return b, a + k, k, a

    a, b, k, s = (arr(float(v), -1.0) for v in range(4))
    got = gr.fori_loop(0, 5, lambda _, c: body(c), (a, b, k, s))
    want = tuple(t.numpy() for t in (a, b, k, s))
    for _ in range(5):
        want = body(want)
    for g, w in zip(got, want, strict=True):
        assert g.tolist() == w.tolist()
    for tensor, first in zip((a, b, k, s), range(4), strict=True):
        assert tensor.tolist() == [float(first), -1.0], "arguments are never written"


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_python_loop(length, reverse):
    xs = np.arange(length * 3, dtype=float).reshape(length, 3) / 7
    w = np.array([0.5, -1.0, 2.0])
    tw = gr.asarray(w)

    def f(c, x):
        c = c * 0.5 + x * tw
        return c, {"twice": c * 2, "sum": c.sum()}

    last, ys = gr.scan(f, arr(1.0, 2.0, 3.0), gr.asarray(xs), reverse=reverse)
    carry, out = np.array([1.0, 2.0, 3.0]), []
    for x in xs[::-1] if reverse else xs:
        carry = carry * 0.5 + x * w
        out.append(carry)
    out = np.array(out[::-1] if reverse else out).reshape(length, 3)
    np.testing.assert_allclose(last.numpy(), carry)
    np.testing.assert_allclose(ys["twice"].numpy(), out * 2)
    np.testing.assert_allclose(ys["sum"].numpy(), out.sum(1))
    assert ys["twice"].shape == (length, 3)
    assert ys["sum"].shape == (length,)


def test_scan_without_xs_without_carry_and_without_results():
    last, ys = gr.scan(lambda c, _: (c * 2, None), 1.0, length=5)
    assert last.item() == 32.0
    assert ys is None
    none, squares = gr.scan(lambda c, x: (None, x * x), None, gr.asarray([1.0, 2.0, 3.0]))
    assert none is None
    assert squares.tolist() == [1.0, 4.0, 9.0]
    _, same = gr.scan(lambda c, _: (None, 7.0), None, length=3)
    assert same.tolist() == [7.0, 7.0, 7.0]
    (last, (a, b)) = gr.scan(
        lambda c, x: (c + x["a"], (x["b"], c)), 0, {"a": gr.asarray([1, 2]), "b": arr(5.0, 6.0)}
    )
    assert last.item() == 3
    assert a.tolist() == [5.0, 6.0]
    assert b.tolist() == [0, 1]


def test_fori_loop_counts_from_lower_to_upper():
    assert gr.fori_loop(0, 10, lambda i, t: t + i, 0).item() == 45
    assert gr.fori_loop(3, 3, lambda i, t: t + i, 1).item() == 1
    assert gr.fori_loop(5, 2, lambda i, t: t + i, 1).item() == 1
    assert gr.fori_loop(-2, 3, lambda i, t: t * 10 + i, 0).item() == -20988
    values = [gr.fori_loop(gr.asarray(2), n, lambda i, t: t + i, 0).item() for n in (2, 5)]
    assert values == [0, 9]
    rows = gr.fori_loop(0, 4, lambda i, t: t + gr.take(gr.asarray([1.0, 2, 4, 8]), i), 0.0)
    assert rows.item() == 15.0


def test_partial_updates_of_a_carry_do_not_change_its_initial_value():
    start = np.arange(20_000, dtype=np.float32)
    x, at = gr.asarray(start).eval(), gr.asarray(np.arange(9, dtype=np.int64) * 7)
    want = start.copy()
    want[np.arange(9) * 7] = -1.0
    place = lambda i, c: c.at[gr.take(at, i)].set(-1.0)
    np.testing.assert_array_equal(gr.fori_loop(0, 9, place, x).numpy(), want)
    both = gr.scan(lambda c, i: (c.at[i].set(-1.0), c[:2]), x, at)
    np.testing.assert_array_equal(both[0].numpy(), want)
    np.testing.assert_array_equal(both[1].numpy()[1], [-1.0, 1.0])
    doubled = lambda i, c: c.at[i + 1].set(c[i] * 2)
    chain = gr.fori_loop(1, 4, doubled, x).numpy()
    np.testing.assert_array_equal(chain[:6], [0, 1, 2, 4, 8, 5])
    np.testing.assert_array_equal(
        gr.while_loop(lambda c: c[0] < 3, lambda c: c.at[0].set(c[0] + 1), x)[:2].numpy(), [3, 1]
    )
    np.testing.assert_array_equal(x.numpy(), start)


def test_a_number_takes_the_dtype_that_the_body_gives():
    x = gr.asarray([1.5], dtype="float32")
    assert gr.fori_loop(0, 2, lambda _, t: t + x.sum(), 0).dtype == gr.float32
    got = gr.while_loop(lambda t: t < 2, lambda t: t + x.sum(), 0)
    assert got.dtype == gr.float32
    assert got.item() == 3.0


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_every_dtype_is_carried_and_stacked(dtype):
    zero, one = gr.zeros([3], dtype=dtype), gr.ones([3], dtype=dtype)

    def f(c, x):
        new = c ^ x if dtype == "bool" else c + x
        return new, new

    last, ys = gr.scan(f, zero, gr.ones([4, 3], dtype=dtype))
    want = (one != one) if dtype == "bool" else one * 4
    assert last.dtype == one.dtype
    assert last.tolist() == want.tolist()
    assert ys.shape == (4, 3)
    assert ys.dtype == one.dtype
    kept = gr.cond(gr.asarray(True), lambda: one, lambda: zero)
    assert kept.tolist() == one.tolist()


def test_nested_scan_in_while_in_cond():
    xs = np.array([[1.0, 2.0], [3.0, 4.0], [0.5, 0.25]])

    def program(flag, xs, asnp):
        sqrt = np.sqrt if asnp else gr.sqrt

        def inner(c):
            if asnp:
                for x in xs:
                    c = sqrt(c * c + x)
                return c
            return gr.scan(lambda c, x: (sqrt(c * c + x), None), c, xs)[0]

        def loop(start):
            if asnp:
                n, c = 0, start
                while n < 3 and c.sum() < 100:
                    n, c = n + 1, inner(c)
                return c
            return gr.while_loop(
                lambda s: gr.logical_and(s[0] < 3, s[1].sum() < 100),
                lambda s: (s[0] + 1, inner(s[1])),
                (0, start),
            )[1]

        start = xs[0]
        if asnp:
            return loop(start) if flag else -start
        return gr.cond(gr.asarray(flag), lambda: loop(start), lambda: -start)

    for flag in (True, False):
        want = program(flag, xs, True)
        np.testing.assert_allclose(program(flag, gr.asarray(xs), False).numpy(), want, rtol=1e-12)


def test_a_long_loop_is_one_compile_one_run_and_one_launch_in_constant_memory():
    x = arr(1.0, 2.0).eval()
    k = gr.asarray(0.5)

    def loop(n):
        return gr.fori_loop(0, n, lambda i, c: (c[0] * 0.999 + k.item() * 1e-3, c[1] + i), (x, 0))

    gr.eval(*loop(3))
    gr._girih.reset_peak_memory()
    small = None
    for n in (10, 100_000):
        gr._girih.reset_peak_memory()
        a, b = loop(n)
        assert work(lambda a=a, b=b: gr.eval(a, b)) == (1, 1, 1)
        assert b.item() == n * (n - 1) // 2
        peak = gr.cache_stats().get("peak_memory_bytes", 0)
        small = peak if small is None else small
        assert peak <= small + 4096


def test_a_loop_on_new_data_of_the_same_shape_is_not_compiled_again():
    def loop(x, rate):
        return gr.fori_loop(0, 4, lambda _, c: c - c * rate, x)

    gr.eval(loop(arr(1.0, 2.0).eval(), 0.25))
    before = counters()[0]
    assert loop(arr(4.0, 8.0).eval(), 0.5).tolist() == [0.25, 0.5]
    assert counters()[0] == before, "a rate is a run-time scalar also inside of a loop"


def test_results_that_somebody_holds_are_computed_in_one_run():
    last, ys = gr.scan(lambda c, x: (c + x, c * x), 0.0, gr.asarray([1.0, 2.0, 3.0]))
    before = counters()[1]
    assert last.item() == 6.0
    assert ys.tolist() == [0.0, 2.0, 9.0]
    assert counters()[1] == before + 1


def test_loops_run_from_several_threads():
    results = {}

    def run(n):
        x = gr.asarray(np.full(2000, float(n)))
        results[n] = gr.fori_loop(0, 200, lambda i, c: c * 0.5 + 1, x).numpy()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for n in range(6):
        np.testing.assert_allclose(results[n], 2.0)


def test_loops_with_large_bodies_agree_with_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 200)) / 20, rng.normal(size=(200, 200))
    got = gr.scan(lambda c, _: (gr.tanh(gr.asarray(a) @ c + 0.1), c.sum()), gr.asarray(b), length=5)
    c, sums = b, []
    for _ in range(5):
        sums.append(c.sum())
        c = np.tanh(a @ c + 0.1)
    np.testing.assert_allclose(got[0].numpy(), c, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[1].numpy(), sums, rtol=1e-9)


def test_an_endless_loop_ends_at_its_time_limit():
    config = gr.ExecutorConfig(timeout_seconds=0.2)
    with gr.use_executor(gr.Executor(config)):
        x = gr.while_loop(lambda c: c >= 0, lambda c: c * 0 + 1, gr.asarray(1))
        with pytest.raises(gr.EvaluationTimeoutError, match="while_loop"):
            x.eval()
    assert gr.is_lazy(x)


def test_an_index_out_of_bounds_in_a_loop_is_an_error_that_names_it():
    x = arr(1.0, 2.0)
    y = gr.fori_loop(0, 3, lambda i, t: t + gr.take(x, i), 0.0)
    with pytest.raises(gr.IndexOutOfBoundsError, match=r"scan|take"):
        y.eval()


# Random numbers.


def test_draws_in_a_scan_are_new_in_each_iteration_and_repeatable():
    def draw():
        gr.manual_seed(7)
        return gr.scan(lambda c, _: (c, gr.rand([3]) + c), 0.0, length=4)[1].numpy()

    first = draw()
    assert first.shape == (4, 3)
    assert len(np.unique(first)) == 12
    assert (draw() == first).all()
    outside = gr.rand([2])
    _, ys = gr.scan(lambda c, _: (None, outside), None, length=3)
    assert (ys.numpy() == outside.numpy()).all()
    drawn = gr.cond(gr.asarray(True), lambda: gr.rand([2]), lambda: gr.zeros([2]))
    assert ((drawn.numpy() >= 0) & (drawn.numpy() < 1)).all()
    with pytest.raises(gr.InvalidArgumentError, match="fori_loop"):
        gr.while_loop(lambda x: x < 3, lambda x: x + gr.rand([]), gr.asarray(0.0, dtype="float32"))


def test_draws_nest():
    gr.manual_seed(3)

    def inner(c, _):
        return c, gr.rand([2])

    _, ys = gr.scan(lambda c, _: (c, gr.scan(inner, 0.0, length=3)[1]), 0.0, length=4)
    assert ys.shape == (4, 3, 2)
    assert len(np.unique(ys.numpy())) == 24


# Derivatives.


def test_gradients_of_branches():
    def f(x):
        y = gr.cond((x > 0).all(), lambda: (x**3).sum(), lambda: (2 * x).sum())
        return y * 2

    np.testing.assert_allclose(gr.grad(f)(arr(1.0, 2.0)).numpy(), [6.0, 24.0])
    np.testing.assert_allclose(gr.grad(f)(arr(-1.0, 2.0)).numpy(), [4.0, 4.0])
    second = gr.grad(lambda x: gr.grad(f)(x).sum())
    np.testing.assert_allclose(second(arr(1.0, 2.0)).numpy(), [12.0, 24.0])
    np.testing.assert_allclose(second(arr(-1.0, 2.0)).numpy(), [0.0, 0.0])


def loss_of_scan(x, w, xs):
    def f(c, x):
        c = gr.tanh(c @ w + x)
        return c, (c * c).sum()

    last, ys = gr.scan(f, x, xs)
    return (last * gr.asarray([1.0, -2.0])).sum() + (ys * gr.asarray([1.0, 0.5, 2.0])).sum()


def test_gradients_of_scans_by_all_of_their_operands():
    rng = np.random.default_rng(1)
    args = [rng.normal(size=s) for s in ([2], [2, 2], [3, 2])]
    tensors = [gr.asarray(a) for a in args]
    grads = gr.grad(loss_of_scan, argnums=(0, 1, 2))(*tensors)
    for i, g in enumerate(grads):

        def at(v, i=i):
            return loss_of_scan(*[v if j == i else t for j, t in enumerate(tensors)])

        np.testing.assert_allclose(g.numpy(), numeric(at, args[i]), rtol=1e-6, atol=1e-8)


def test_gradients_of_gradients_of_scans():
    rng = np.random.default_rng(2)
    x, w, xs = (rng.normal(size=s) for s in ([2], [2, 2], [3, 2]))
    v = gr.asarray(rng.normal(size=[2, 2]))

    def directional(w):
        return (gr.grad(lambda w: loss_of_scan(gr.asarray(x), w, gr.asarray(xs)))(w) * v).sum()

    got = gr.grad(directional)(gr.asarray(w)).numpy()
    np.testing.assert_allclose(got, numeric(directional, w), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4, 5, 6])
def test_gradients_of_nested_loops_and_branches(length, reverse):
    def f(x):
        def body(c, k):
            inner = gr.fori_loop(0, 2, lambda i, t: t * c + i, c)
            return gr.cond(k > 0.5, lambda: gr.sin(inner), lambda: inner * 0.5), c * k

        ks = gr.linspace(0.0, 1.0, length, dtype="float64")
        last, ys = gr.scan(body, x, ks, reverse=reverse)
        return last + ys.sum() * 2

    x = 0.7
    got = gr.grad(f)(gr.asarray(x)).item()
    want = float(numeric(f, np.asarray(x)))
    assert got == pytest.approx(want, rel=1e-6)


def test_the_gradient_runs_the_forward_loop_once():
    x, xs = arr(0.5, 1.0).eval(), gr.asarray(np.ones((3, 2)))
    value, grads = gr.value_and_grad(lambda x: loss_of_scan(x, gr.asarray(np.eye(2)), xs))(x)
    kernels = [
        k["name"] if isinstance(k, dict) else k.name for k in gr.explain(value, grads).kernels
    ]
    assert kernels.count("scan") == 2, kernels


def test_while_loop_has_no_reverse_derivative_and_names_alternatives():
    with pytest.raises(gr.GirihError, match=r"scan.*fori_loop"):
        gr.grad(lambda x: gr.while_loop(lambda c: c < 10, lambda c: c * x, x))(gr.asarray(2.0))
    # The derivative is not needed if no gradient flows through the loop.
    stopped = gr.grad(lambda x: x * gr.while_loop(lambda c: c < 10, lambda c: c * 2.0, 1.0))
    assert stopped(gr.asarray(2.0)).item() == 16.0


def test_a_recurrent_network_learns_by_scan():
    rng = np.random.default_rng(0)
    xs = gr.asarray(rng.integers(0, 2, size=[8, 16, 1]).astype(np.float32))
    target = xs.sum(0) / 8
    params = {
        "w": gr.asarray(rng.normal(size=[1, 8]).astype(np.float32) * 0.5),
        "u": gr.asarray(rng.normal(size=[8, 8]).astype(np.float32) * 0.3),
        "o": gr.asarray(rng.normal(size=[8, 1]).astype(np.float32) * 0.3),
    }

    def loss(p):
        h, _ = gr.scan(lambda h, x: (gr.tanh(x @ p["w"] + h @ p["u"]), None), gr.zeros([16, 8]), xs)
        return ((h @ p["o"] - target) ** 2).mean()

    step = gr.value_and_grad(loss)
    losses = []
    for _ in range(30):
        value, grads = step(params)
        params = gr.tree.map(lambda p, g: p - 0.2 * g, params, grads)
        gr.eval(value, *gr.tree.leaves(params))
        losses.append(value.item())
    assert losses[-1] < losses[0] / 4


@settings(max_examples=25, deadline=None)
@given(
    ops=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), max_size=5),
    outs=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    length=st.integers(0, 8),
    reverse=st.booleans(),
)
def test_random_bodies_and_their_gradients(ops, outs, length, reverse):
    def body(c, d, x, k):
        values = [c, d, x, k]
        for op, i, j in ops:
            a, b = values[i % len(values)], values[j % len(values)]
            values.append([a + b, a * b * 0.5, a - b, gr.sin(a), gr.tanh(a)][op])
        return tuple(values[o % len(values)] for o in outs)

    def f(c, xs, k):
        def step(carry, x):
            c, d, y = body(*carry, x, k)
            return (c, d), y

        (c, d), ys = gr.scan(step, (c, c * 0.5), xs, reverse=reverse)
        return (c * d + c).sum() + (ys * 0.7).sum()

    args = [
        np.array([0.3, -0.8]),
        np.linspace(-1, 1, length * 2).reshape(length, 2),
        np.array([0.5, 1.5]),
    ]
    tensors = [gr.asarray(a) for a in args]
    value = f(*tensors)
    with gr.without_passes("branch", "prune", "cse", "simplify", "fold", "dead_code"):
        plain = f(*tensors).item()
    assert value.item() == pytest.approx(plain, rel=1e-12, abs=1e-12)
    grads = gr.grad(f, argnums=(0, 1, 2))(*tensors)
    for i, g in enumerate(grads):

        def at(v, i=i):
            return f(*[v if j == i else t for j, t in enumerate(tensors)])

        np.testing.assert_allclose(g.numpy(), numeric(at, args[i]), rtol=1e-5, atol=1e-6)


# Errors.


def test_errors_name_the_leaf_and_both_specs():
    x = {"w": arr(1.0, 2.0), "b": arr(1.0)}
    with pytest.raises(
        gr.InvalidArgumentError,
        match=r"carry\['w'\].*float32\[2\].*float64\[2\]|carry\['w'\].*f32\[2\]|carry\['w'\]",
    ):
        gr.scan(lambda c, _: ({**c, "w": c["w"].astype("float32")}, None), x, length=2)
    with pytest.raises(gr.InvalidArgumentError, match=r"result\['w'\]"):
        gr.cond(gr.asarray(True), lambda: x, lambda: {"w": arr(1.0), "b": arr(1.0)})
    with pytest.raises(gr.InvalidArgumentError, match="structure"):
        gr.cond(gr.asarray(True), lambda: x, lambda: (1.0,))
    with pytest.raises(gr.InvalidArgumentError, match="structure"):
        gr.while_loop(lambda c: c[0] < 2, lambda c: c[0], (1, 2))
    with pytest.raises(gr.InvalidArgumentError, match="one bool scalar"):
        gr.while_loop(lambda c: c < 2, lambda c: c, arr(1.0, 2.0))
    with pytest.raises(gr.InvalidArgumentError, match="pair"):
        gr.scan(lambda c, x: c, 0, length=3)
    with pytest.raises(gr.InvalidArgumentError, match="leading"):
        gr.scan(lambda c, x: (c, None), 0, (arr(1.0), arr(1.0, 2.0)))
    with pytest.raises(gr.InvalidArgumentError, match="number of iterations"):
        gr.scan(lambda c, x: (c, None), 0)
    with pytest.raises(gr.InvalidArgumentError, match="negative"):
        gr.scan(lambda c, x: (c, None), 0, length=-1)
    with pytest.raises(gr.InvalidArgumentError, match="branch"):
        gr.switch(0, [])
    with pytest.raises(gr.InvalidArgumentError, match="str"):
        gr.cond(gr.asarray(True), lambda: "yes", lambda: "no")
    with pytest.raises(gr.GirihError, match="predicate"):
        gr.cond(arr(1.0), lambda: 1.0, lambda: 2.0)
    with pytest.raises(gr.InvalidArgumentError, match="int bounds"):
        gr.fori_loop(0.5, 2, lambda i, c: c, 0)


def test_python_branching_in_a_body_says_what_to_use():
    with pytest.raises(gr.TracedValueError, match=r"cond.*while_loop.*scan.*where"):
        gr.scan(lambda c, x: (c if x > 0 else -c, None), 0.0, arr(1.0))


# Text, modes, caches.


def program():
    x, flag = arr(1.0, 2.0, 3.0), gr.asarray(True)
    last, ys = gr.scan(lambda c, x: (gr.sin(c) + x, c * 2), gr.asarray(0.5, dtype="float64"), x)
    small = gr.while_loop(lambda c: c > 0.1, lambda c: c * 0.5, last)
    return gr.cond(flag, lambda: small, lambda: -last), ys


def test_programs_with_regions_go_through_text_and_files(tmp_path):
    z, ys = program()
    want = [z.numpy(), ys.numpy()]
    z, ys = program()
    for name in ("p.pfgb", "p.txt", "p.dot", "p.svg", "p.html"):
        gr.save_graph(tmp_path / name, (z, ys))
    text = (tmp_path / "p.txt").read_text()
    assert "scan(" in text
    assert "while_loop(" in text
    assert "cond(" in text
    assert " as %" in text
    loaded = gr.load_graph(tmp_path / "p.pfgb")
    for got, expected in zip(loaded(), want, strict=True):
        np.testing.assert_allclose(got.numpy(), expected)
    again = gr.text_to_graph(text)
    assert gr.graph_to_text(again) == text.rstrip("\n")


def test_eager_mode_and_shape_verification():
    with gr.eager_mode():
        z, ys = program()
        assert not gr.is_lazy(z)
        assert not gr.is_lazy(ys)
        assert (
            gr.grad(lambda x: gr.fori_loop(0, 3, lambda _, c: c * x, x))(gr.asarray(2.0)).item()
            == 32.0
        )
    with gr.verify_shapes():
        lazy_z, lazy_ys = program()
        np.testing.assert_allclose(lazy_z.numpy(), z.numpy())
        np.testing.assert_allclose(lazy_ys.numpy(), ys.numpy())


def test_explain_shows_regions():
    text = str(gr.explain(*program()))
    assert "scan" in text
    assert "while" in text


def test_assignment_in_a_body_stays_in_the_body():
    def f(c, x):
        c[0] = x
        return c, c.sum()

    init = arr(0.0, 1.0)
    last, ys = gr.scan(f, init, arr(3.0, 4.0))
    assert last.tolist() == [4.0, 1.0]
    assert ys.tolist() == [4.0, 5.0]
    assert init.tolist() == [0.0, 1.0]


def test_named_tuples_are_preserved_as_carries():
    State = collections.namedtuple("State", "x n")
    out = gr.while_loop(lambda s: s.n < 3, lambda s: State(s.x * 2, s.n + 1), State(arr(1.0), 0))
    assert isinstance(out, State)
    assert out.x.tolist() == [8.0]
    assert out.n.item() == 3
