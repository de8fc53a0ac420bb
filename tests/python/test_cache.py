"""The program cache: hits, misses, and correct results with a warm cache."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from conftest import Counters, close, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def vectors(n=3):
    return [gr.asarray(sample((4,), "float32", i)) for i in range(n)]


def test_counters_have_their_names():
    assert set(gr.cache_stats()) >= {
        "hits", "misses", "compiles", "cached_kernels", "cache_size_bytes", "kernels_launched",
        "nodes_recorded", "runs", "peak_memory_bytes",
    }  # fmt: skip


def test_the_same_program_is_compiled_once():
    gr.clear_cache()
    x, y, _ = vectors()
    with Counters() as c:
        for _ in range(5):
            (x * y + 1).eval()
    assert (c["misses"], c["hits"], c["compiles"], c["runs"]) == (1, 4, 1, 5)


def test_clearing_the_cache_forgets():
    x, y, _ = vectors()
    (x * y + 2).eval()
    gr.clear_cache()
    assert gr.cache_stats()["cached_kernels"] == 0
    with Counters() as c:
        (x * y + 2).eval()
    assert c["misses"] == 1


def test_other_shapes_dtypes_and_literals_are_other_programs():
    leaves = [gr.ones([5]), gr.ones([6]), gr.ones([5], dtype=gr.float64)]
    gr.eval(leaves)
    gr.clear_cache()
    with Counters() as c:
        for leaf in leaves:
            (leaf * 2).eval()
    assert c["misses"] == 3
    assert [(leaves[0] + v).tolist() for v in (1, 2)] == [[2.0] * 5, [3.0] * 5]


def test_aliasing_is_part_of_the_program():
    x, y, _ = vectors()
    for _ in range(2):
        close(x + x, x.numpy() + x.numpy())
        close(x + y, x.numpy() + y.numpy())


def test_sharing_is_part_of_the_program():
    x, y, z = vectors()
    a, b, c = (v.numpy() for v in (x, y, z))
    for _ in range(2):
        t = x * y
        close(t + t, a * b + a * b, 1e-6)
        close(x * y + x * z, a * b + a * c, 1e-6)


def test_the_set_of_requested_values_is_part_of_the_program():
    x, y, _ = vectors()
    for _ in range(2):
        t = x * y
        close(t.sum(), np.asarray((x.numpy() * y.numpy()).sum()), 1e-5)
        t = x * y
        s = t.sum()
        gr.eval(s, t)
        close(t, x.numpy() * y.numpy())


def test_each_result_of_one_op_has_a_key_of_its_own():
    rng = np.random.default_rng(3)
    for want, compilations in ((0, 1), (0, 0), (1, 1), (1, 0), (0, 0)):
        a = rng.standard_normal((3, 3)).astype("float32")
        x = gr.eval(gr.asarray(a))
        before = gr.cache_stats()["compiles"]
        found = gr.linalg.qr(x)[want].numpy()
        assert gr.cache_stats()["compiles"] - before == compilations
        assert np.allclose(np.abs(found), np.abs(np.linalg.qr(a)[want]), atol=1e-5)


def program_of(x, y, held):
    """A program of five steps; handles to the results of the steps in `held` exist."""
    steps = [x * y, x + y]
    steps += [steps[0].exp(), steps[1].abs(), steps[0] - steps[1]]
    total = sum(step.sum() for step in steps)
    kept = {number: steps[number] for number in held}
    del steps
    return total.eval(), kept


def test_held_intermediates_do_not_compile_again():
    x, y, _ = vectors()
    a, b = x.numpy(), y.numpy()
    expected = [a * b, a + b, np.exp(a * b), np.abs(a + b), a * b - (a + b)]
    numbers = np.random.default_rng(0)
    gr.clear_cache()
    with Counters() as c:
        for _ in range(40):
            held = [n for n in range(5) if numbers.random() < 0.5]
            total, kept = program_of(x, y, held)
            close(total, np.asarray(sum(e.sum() for e in expected)), 1e-5)
            with Counters() as reads:
                for number, step in kept.items():
                    close(step, expected[number], 1e-5)
            assert reads["runs"] == 0, "what was held came with the total"
    # At most one program for each of the five steps, and for sets that were requested often.
    assert (c["compiles"] <= 10, c["runs"]) == (True, 40), c["compiles"]


def test_frequently_requested_results_get_their_own_program():
    x, y, _ = vectors()
    gr.clear_cache()
    program_of(x, y, [0, 1, 2, 3, 4])
    with Counters() as c:
        for _ in range(8):
            program_of(x, y, [])
    assert c["compiles"] == 0
    with Counters() as c:
        for _ in range(4):
            program_of(x, y, [])
    assert c["compiles"] == 1


def test_operand_order_is_part_of_the_program():
    x, y, _ = vectors()
    for _ in range(2):
        close(x - y, x.numpy() - y.numpy())
        close(y - x, y.numpy() - x.numpy())


def test_the_same_random_program_hits_and_draws_anew():
    def program():
        return (gr.randn([10]) * 2).eval()

    program()
    with Counters() as c:
        a, b = program(), program()
    assert (c["hits"], c["misses"]) == (2, 0)
    assert a.tolist() != b.tolist()


def train(optimizer, steps, batches):
    model = gr.nn.Sequential(gr.nn.Linear(4, 8), gr.nn.GELU(), gr.nn.Linear(8, 3))
    step = gr.nn.value_and_grad(model, lambda x, y: gr.nn.cross_entropy(model(x), y))
    optimizer.init(model)
    gr.eval(model, optimizer.state)
    for i in range(steps):
        x, y = batches[i % len(batches)]
        loss, grads = step(x, y)
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
    return model, step


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: gr.optim.SGD(lambda s: 0.1 / (s + 1), momentum=0.9, weight_decay=1e-4),
        lambda: gr.optim.Adam(lambda s: 0.1 / (s + 1)),
        lambda: gr.optim.AdamW(lambda s: 0.1 / (s + 1)),
    ],
)
def test_a_hundred_training_steps_are_one_compile(optimizer):
    batches = [
        (gr.asarray(sample((16, 4), "float32", i)), gr.asarray(np.arange(16) * (i + 1) % 3))
        for i in range(7)
    ]
    optimizer = optimizer()
    model, step = train(optimizer, 0, batches)
    gr.clear_cache()
    with Counters() as c:
        for i in range(100):
            loss, grads = step(*batches[i % 7])
            optimizer.update(model, grads)
            gr.eval(loss, model, optimizer.state)
    assert (c["compiles"], c["misses"], c["hits"], c["runs"]) == (1, 1, 99, 100)
    # Other weights, another rate and other data have the same program.
    model.update(gr.tree.map(lambda p: gr.asarray(p.numpy() * 2), model.parameters_tree()))
    optimizer.learning_rate = lambda s: 0.3 / (s + 1)
    with Counters() as c:
        loss, grads = step(gr.asarray(sample((16, 4), "float32", 99)), batches[0][1])
        optimizer.update(model, grads)
        gr.eval(loss, model, optimizer.state)
    assert c["compiles"] == 0


# Random programs against NumPy, with one warm cache: shared and unshared subexpressions, aliased
# and distinct leaves of equal shapes.

UNARY = {"neg": (lambda t: -t, np.negative), "abs": (gr.abs, np.abs), "relu": (gr.relu, lambda x: np.maximum(x, 0)),
         "tanh": (gr.tanh, np.tanh), "flip": (gr.flip, np.flip), "T": (lambda t: t.T, np.transpose),
         "sum": (lambda t: t.sum(0, keepdims=True), lambda x: x.sum(0, keepdims=True)),
         "max": (lambda t: t.max(1, keepdims=True), lambda x: x.max(1, keepdims=True))}  # fmt: skip
BINARY = {"add": (gr.add, np.add), "sub": (gr.subtract, np.subtract), "mul": (gr.multiply, np.multiply),
          "max": (gr.maximum, np.maximum), "matmul": (gr.matmul, np.matmul)}  # fmt: skip

programs = st.lists(
    st.tuples(st.sampled_from([*UNARY, *BINARY]), st.integers(0, 99), st.integers(0, 99), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs, leaves=st.lists(st.integers(0, 2), min_size=2, max_size=3))
def test_random_programs_with_a_warm_cache(program, leaves):
    data = [sample((3, 3), "float64", i, -1, 1) for i in range(3)]
    tensors = [gr.asarray(x) for x in data]
    ours, numpys = [tensors[i] for i in leaves], [data[i] for i in leaves]
    wanted = []
    for name, i, j, want in program:
        i, j = i % len(ours), j % len(ours)
        if name in UNARY and not (name in BINARY and j % 2):
            f, g = UNARY[name]
            ours.append(f(ours[i]))
            numpys.append(g(numpys[i]))
        else:
            f, g = BINARY[name]
            a, b = numpys[i], numpys[j]
            if name == "matmul" and a.shape[-1] != b.shape[0]:
                continue
            ours.append(f(ours[i], ours[j]))
            numpys.append(g(a, b))
        if want:
            wanted.append(len(ours) - 1)
    wanted = wanted or [len(ours) - 1]
    gr.eval([ours[i] for i in wanted])
    for i in {*wanted, len(ours) - 1}:
        np.testing.assert_allclose(ours[i].numpy(), numpys[i], rtol=1e-10, atol=1e-10)


def test_a_scalar_of_any_value_but_zero_and_one_is_an_argument():
    w, g = gr.asarray([1.0, 2.0]), gr.asarray([0.5, 0.25])
    gr.eval(w - 0.3 * g)
    with Counters() as c:
        for rate in (0.5, 2.0, -1.0, 0.1, 1e-8, 3):
            np.testing.assert_allclose((w - rate * g).numpy(), w.numpy() - rate * g.numpy(), 1e-6)
    assert (c["compiles"], c["hits"]) == (0, 6)
    # The exponent is part of the program.
    gr.eval(w**2)
    with Counters() as c:
        assert (w**3).tolist() == [1.0, 8.0]
    assert c["compiles"] == 1


def scripted(x, constant):
    return (x * 2 + constant).eval()


def test_the_counters_of_a_script_are_exact():
    x, wide = gr.eval(gr.ones([4])), gr.eval(gr.ones([5]))
    gr.clear_cache()
    contents = lambda: tuple(gr.cache_stats()[n] for n in ("cached_kernels", "cache_size_bytes"))
    assert contents() == (0, 0)
    sizes = []
    script = [(x, 3.0, 1, 0), (x, 4.0, 0, 1), (wide, 3.0, 1, 0), (x, 3.0, 0, 1), (wide, 9.0, 0, 1)]
    for tensor, constant, misses, hits in script:
        before = contents()
        with Counters() as c:
            scripted(tensor, constant)
        assert (c["misses"], c["hits"], c["compiles"], c["runs"]) == (misses, hits, misses, 1)
        sizes.append(contents()[1] - before[1])
        assert contents()[0] - before[0] == misses
        assert (sizes[-1] > 0) == bool(misses)
    # Programs that differ in a size alone take the same memory; each is counted once.
    assert sizes == [sizes[0], 0, sizes[0], 0, 0]
    assert contents() == (2, 2 * sizes[0])
    gr.clear_cache()
    assert contents() == (0, 0)


def test_the_first_shape_is_a_hit_after_another_one():
    x, y = gr.eval(gr.ones([2, 3])), gr.eval(gr.ones([4, 3]))
    gr.clear_cache()
    f = lambda t: (t.sum(0) + 7).eval()
    counts = []
    for t in (x, y, x, y):
        with Counters() as c:
            np.testing.assert_array_equal(f(t).numpy(), np.full(3, t.shape[0] + 7))
        counts.append((c["misses"], c["hits"]))
    assert counts == [(1, 0), (1, 0), (0, 1), (0, 1)]
    assert gr.cache_stats()["cached_kernels"] == 2


def test_programs_that_are_held_outlive_the_cache():
    f = gr.compile(lambda x: gr.exp(x) * 3)
    exported = gr.export(lambda x: gr.exp(x) * 5, gr.ones([2]))
    x = gr.eval(gr.ones([2]))
    expected = np.exp(np.float32(1))
    for _ in range(2):
        np.testing.assert_allclose(f(x).numpy(), expected * 3, 1e-6)
        np.testing.assert_allclose(exported(x).numpy(), expected * 5, 1e-6)
        lazy = x + 1
        gr.clear_cache()
        assert lazy.tolist() == [2.0, 2.0]


def test_requested_values_in_another_order_are_a_hit_and_keep_their_places():
    x, y, _ = vectors()
    parts = lambda: ((x * y).sum(), x * y - 1, x / 3)
    expected = [part.numpy() for part in parts()]
    gr.clear_cache()
    gr.eval(*parts())
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
        made = parts()
        with Counters() as c:
            gr.eval(*(made[i] for i in order))
        assert (c["compiles"], c["runs"]) == (0, 1)
        for found, wanted in zip(made, expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted)


def test_a_lookup_comes_before_a_compilation():
    x, _, _ = vectors()
    gr.clear_cache()
    with gr.use_executor(gr.Executor(gr.ExecutorConfig(profile=True))) as executor:
        for number in range(2):
            gr.eval(gr.sin(x) * 3)
            stages = executor.profile.stages
            # Only after a miss there is something to optimise and to compile.
            assert [stages[name] > 0 for name in ("optimization", "codegen")] == [number == 0] * 2
            assert stages["execution"] > 0
        counts = executor.cache_stats()
    assert (counts["misses"], counts["hits"], counts["compiles"]) == (1, 1, 1)


def test_a_failed_compilation_is_not_cached():
    x, _, _ = vectors()
    calls = []

    @gr.graph_pass
    def fails_once(program):
        calls.append(program.num_ops)
        if len(calls) == 1:
            raise KeyError("not yet")

    with gr.with_passes(fails_once):
        y = gr.cos(x) * 3
        with pytest.raises(gr.GirihError, match=r"fails_once.*not yet"):
            gr.eval(y)
        assert y.is_lazy
        with Counters() as c:
            gr.eval(y)
        assert (c["misses"], c["compiles"]) == (1, 1)
        np.testing.assert_allclose(y.numpy(), np.cos(x.numpy()) * 3, 1e-6)
        with Counters() as c:
            gr.eval(gr.cos(x) * 3)
        assert (c["hits"], c["compiles"]) == (1, 0)
    assert len(calls) == 2


def test_draws_of_one_key_are_equal_and_hit():
    f = lambda key: (gr.random.uniform((4,), key=key) * 2).eval().tolist()
    first = f(gr.random.key(5))
    with Counters() as c:
        assert f(gr.random.key(5)) == first != f(gr.random.key(7))
    assert (c["hits"], c["misses"]) == (2, 0)
    g = lambda: (gr.random.uniform((4,)) * 2).eval().tolist()
    first = g()
    with Counters() as c:
        assert g() != first
    assert (c["hits"], c["misses"]) == (1, 0)


def test_draws_are_leaves_named_by_their_function():
    program = gr.serialize(gr.randn([3]) * 2)
    leaf = gr.deserialize(program).nodes[0]
    assert (leaf.op, leaf.inputs, leaf.category) == ("random_normal", [], "OP_LEAF")


def test_thousands_of_shapes_leave_a_bounded_cache():
    gr.clear_cache()
    sizes, memory = [], []
    for n in range(1, 3001):
        gr.eval(gr.broadcast_to(gr.asarray(1.0), [n]) + 2)
        if n % 500 == 0:
            stats = gr.cache_stats()
            sizes.append(stats["cached_kernels"])
            memory.append(stats["cache_size_bytes"])
    assert max(sizes) <= 1024
    assert memory[-1] <= max(memory[:-1]) * 1.01
    with Counters() as c:
        assert gr.eval(gr.broadcast_to(gr.asarray(1.0), [1]) + 2).tolist() == [3.0]
        gr.eval(gr.broadcast_to(gr.asarray(1.0), [3000]) + 2)
    assert (c["compiles"], c["hits"]) == (1, 1)
    gr.clear_cache()
