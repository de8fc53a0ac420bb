"""``gr.compile``: one program for many sizes, correct at each size, and no Python from the second
call on.
"""

from __future__ import annotations

import copy
import functools

import girih as gr
import numpy as np
import pytest
from girih import nn, optim
from hypothesis import given, settings
from hypothesis import strategies as st

BATCH = {0: {0: "batch"}}


def data(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def labels(count: int, classes: int) -> gr.Tensor:
    return gr.asarray(np.arange(count) * 7 % classes)


def same(found, expected) -> None:
    """Asserts bitwise equal tensors."""
    found, expected = gr.tree.leaves(found), gr.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.numpy().tobytes() == b.numpy().tobytes()


@pytest.fixture(autouse=True)
def own_executor():
    """An executor with its own counters and cache for the test."""
    with gr.use_executor(gr.Executor()):
        yield


def counted(fun):
    """The function, and a counter of its calls."""
    calls = []

    @functools.wraps(fun)
    def wrapper(*args, **kwargs):
        calls.append(1)
        return fun(*args, **kwargs)

    return wrapper, calls


def check(fun, make, sizes=(2, 5, 1, 1000), dims=None, bindings=None) -> None:
    """Asserts one trace and one compilation for all sizes, with correct results."""
    wrapper, calls = counted(fun)
    compiled = gr.compile(wrapper, BATCH if dims is None else dims)
    for size in sizes:
        args = make(size)
        gr.eval(args)
        before = gr.cache_stats()["compiles"]
        found = compiled(*args)
        after = gr.cache_stats()["compiles"]
        assert after - before == (size == sizes[0]), (size, compiled.guards)
        same(found, fun(*args))
    assert len(calls) == 1
    assert gr.cache_stats()["bindings"] == (bindings or len(set(sizes)))


def test_one_compile_serves_batch_2_and_5_and_no_python_runs_again():
    model = gr.eval(nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 3)))
    check(lambda x: gr.softmax(model(x)), lambda n: (data(n, 7),))


def test_a_mean_over_the_symbolic_axis_divides_by_the_actual_size():
    check(
        lambda x: (x.mean(), x.mean(axis=0), x.var(axis=0, correction=1), gr.std(x)),
        lambda n: (data(n, 3) * 4,),
    )


def test_a_layer_norm_and_attention_block_over_two_symbols():
    attention, norm = gr.eval(nn.MultiheadAttention(16, 4), nn.LayerNorm(16))

    def forward(x):
        y = x + attention(norm(x))
        batch, length, features = x.shape
        flat = y.reshape(-1, features)
        assert flat.shape[0] == batch * length
        return flat.reshape(batch, length, features).sum(axis=1)

    dims = {0: {0: "batch", 1: "length"}}
    check(forward, lambda n: (data(n, n + 2, 16),), (2, 5, 3), dims)


def test_a_convolutional_network():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    )
    gr.eval(model)
    check(lambda x: model(x), lambda n: (data(n, 3, 8, 8),), (2, 5, 1))


def test_a_training_step_with_gradients_inside():
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    gr.eval(model)

    def step(parameters, x, y):
        def loss(parameters):
            return gr.cross_entropy(nn.functional_call(model, parameters, x), y)

        value, grads = gr.value_and_grad(loss)(parameters)
        return value, gr.tree.map(lambda p, g: p - 0.1 * g, parameters, grads)

    check(
        step,
        lambda n: (model.parameters_tree(), data(n, 6), labels(n, 4)),
        (2, 5, 1, 64),
        {"x": {0: "batch"}, "y": {0: "batch"}},
    )


def test_sizes_are_symbolic_numbers_in_the_function():
    seen = []

    def f(x, y):
        n, m = x.shape
        seen.append((repr(n), repr(n * m + 1), repr(x.size), repr(n // 2)))
        ramp = gr.arange(n).reshape(n, 1) + gr.zeros((n, m))
        joined = gr.concat([x, y])
        return x + ramp, gr.ones(joined.shape[0]), joined.reshape(-1), gr.broadcast_to(x[0], (n, m))

    dims = {0: {0: "n"}, 1: {0: "k"}}
    check(f, lambda n: (data(n, 3), data(n + 1, 3)), (2, 5, 30), dims)
    assert seen[0] == ("n", "n*3+1", "n*3", "floor(n/2)")


def test_slices_keep_the_symbol():
    check(
        lambda x, i: (x[1:], x[:-1], x[:, 0], x[..., 1:3], x[None], x[i], x[0], x[:, -1:]),
        lambda n: (data(n, 4), labels(3, 2)),
        (2, 5, 100),
    )


def test_a_branch_on_a_size_is_traced_again_and_remains_right():
    def f(x):
        return x * 2 if x.shape[0] > 3 else -x

    wrapper, calls = counted(f)
    compiled = gr.compile(wrapper, BATCH)
    for size in (2, 3, 5, 2, 1, 40):
        same(compiled(data(size)), f(data(size)))
    assert len(calls) == 2
    guards = [[guard.split(" (")[0] for guard in guards] for guards in compiled.guards]
    assert guards == [["3 >= batch"], ["3 < batch"]]
    (reason,) = compiled.retraced
    assert reason.startswith("3 >= batch (because of ")
    assert reason.endswith(") does not hold for batch = 5")

    def loop(x):
        return sum(x[i] for i in range(x.shape[0]))

    wrapper, calls = counted(loop)
    compiled = gr.compile(wrapper, BATCH)
    for size in (2, 5, 2):
        same(compiled(data(size)), loop(data(size)))
    assert len(calls) == 2


def test_static_arguments_structures_and_dtypes_have_programs_of_their_own():
    wrapper, calls = counted(lambda x, n, flip=False: {"y": (x["a"] * n, flip)})
    compiled = gr.compile(wrapper)
    x = {"a": gr.ones(2)}
    for _ in range(2):
        out = compiled(x, 2)
        assert (out["y"][0].tolist(), out["y"][1]) == ([2.0, 2.0], False)
    assert len(calls) == 1
    assert compiled(x, 3)["y"][0].tolist() == [3.0, 3.0]
    assert compiled(x, 3, flip=True)["y"][1] is True
    assert compiled({"a": gr.ones(3)}, 3)["y"][0].shape == (3,)
    assert compiled({"a": gr.ones(2, dtype=gr.int64)}, 3)["y"][0].dtype == gr.int64
    assert compiled({"a": np.ones(2, np.float32)}, 3)["y"][0].tolist() == [3.0, 3.0]
    assert len(calls) == compiled.num_programs == 5
    # 2 and 2.0 are equal, but their results have different dtypes.
    ints = gr.compile(lambda x, n: x * n)
    assert ints(gr.arange(2), 2).dtype == gr.int64
    assert ints(gr.arange(2), 2.0).dtype == gr.float32
    with pytest.raises(gr.InvalidArgumentError, match="hashable"):
        compiled(x, {1, 2})


def test_parameters_are_read_afresh():
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(0.1)
    scale = gr.asarray(2.0)
    wrapper, calls = counted(lambda x: model(x) * scale)
    compiled = gr.compile(wrapper, BATCH)
    step = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())
    for size in (2, 5, 3):
        x = data(size, 3, seed=size)
        same(compiled(x), model(x) * scale)
        _, grads = step(x)
        optimizer.update(model, grads)
    scale = gr.asarray(3.0)
    same(compiled(data(4, 3)), model(data(4, 3)) * 3.0)
    scale += 1
    same(compiled(data(4, 3)), model(data(4, 3)) * 4.0)
    assert len(calls) == 1


def test_a_whole_training_step_trains_like_the_plain_one():
    def losses(wrap):
        gr.manual_seed(0)
        model = nn.Linear(4, 3)
        plain = nn.value_and_grad(model, lambda x, y: gr.cross_entropy(model(x), y))
        step = wrap(plain)
        optimizer = optim.Adam(0.05)
        out = []
        for size in (4, 7, 4, 2):
            loss, grads = step(data(size, 4, seed=size), labels(size, 3))
            optimizer.update(model, grads)
            out.append(loss.item())
        return out

    dims = {0: {0: "batch"}, 1: {0: "batch"}}
    assert losses(lambda f: gr.compile(f, dims)) == losses(lambda f: f)


def test_running_statistics_are_updated_by_each_call():
    norm = nn.BatchNorm1d(3)
    other = copy.deepcopy(norm)
    wrapper, calls = counted(lambda x: norm(x))
    compiled = gr.compile(wrapper, BATCH)
    for size in (4, 6, 5):
        x = data(size, 3, seed=size)
        same(compiled(x), other(x))
        same(norm.buffers_tree(), other.buffers_tree())
    assert len(calls) == 1


def test_leaking_a_traced_tensor_is_an_error():
    kept = {}

    def leak(x):
        kept["y"] = None
        kept["y"] = x + 1
        return x

    kept["y"] = 0
    with pytest.raises(gr.InvalidArgumentError, match=r"kept\['y'\]"):
        gr.compile(leak)(gr.ones(2))
    assert kept["y"] == 0

    total = gr.zeros(2)

    def assign(x):
        total[0] = 1.0
        return x + total

    with pytest.raises(gr.InvalidArgumentError, match="assigns to a part"):
        gr.compile(assign)(gr.ones(2))
    assert total.tolist() == [0.0, 0.0]

    def branch(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(gr.TracedValueError):
        gr.compile(branch)(gr.ones(2))


def test_compiled_functions_are_differentiated_and_nest():
    def loss(w, x):
        return ((x @ w) ** 2).mean()

    compiled = gr.compile(loss, {1: {0: "batch"}})
    for size in (2, 5):
        w, x = data(3), data(size, 3, seed=1)
        same(gr.value_and_grad(compiled)(w, x), gr.value_and_grad(loss)(w, x))
    assert compiled.num_programs == 1
    inner = gr.compile(lambda x: x * 2, BATCH)
    # When it is called for comparison, the inner function has its own bindings.
    check(lambda x: inner(x + 1).sum(axis=0), lambda n: (data(n, 2),), (2, 5), bindings=4)


def test_random_numbers_are_drawn_anew():
    compiled = gr.compile(lambda x: x + gr.rand(x.shape), BATCH)
    a, b, c = (compiled(gr.zeros(n)).tolist() for n in (3, 3, 4))
    assert a != b
    assert len(c) == 4
    assert compiled.num_programs == 1
    gr.manual_seed(5)
    again = compiled(gr.zeros(4)).tolist()
    gr.manual_seed(5)
    assert again == gr.rand(4).tolist()


def test_sizes_that_contradict_are_errors():
    two = gr.compile(lambda x, y: (x.sum(), y.sum()), {0: {0: "batch"}, "y": {0: "batch"}})
    with pytest.raises(gr.ShapeError, match=r"'batch'.* 5 .*has 2"):
        two(gr.ones(2), gr.ones(5))
    two(gr.ones(2), gr.ones(2))
    with pytest.raises(gr.ShapeError, match=r"'batch'.* 5 .*has 2"):
        two(gr.ones(2), gr.ones(5))
    limited = gr.compile(lambda x: x.sum(), {0: {0: gr.Dim("batch", min=2, max=8)}})
    assert limited(gr.ones(8)).item() == 8.0
    for size in (1, 9):
        with pytest.raises(gr.ShapeError, match=f"size {size}; expected 2 to 8"):
            limited(gr.ones(size))
    with pytest.raises(gr.AxisError, match="axis 1"):
        gr.compile(lambda x: x, {0: {1: "batch"}})(gr.ones(2))
    for dims, match in [
        ({"z": {0: "b"}}, "no argument 'z'"),
        ({0: "batch"}, "argument: {axis: name}"),
        ({0: {0: 5}}, "needs a name"),
    ]:
        with pytest.raises(gr.InvalidArgumentError, match=match):
            gr.compile(lambda x: x, dims)
    with pytest.raises(gr.InvalidArgumentError, match="no name"):
        gr.compile(lambda x: x, {0: {0: "the batch"}})(gr.ones(2))


def test_without_dynamic_dims_each_shape_has_a_program():
    wrapper, calls = counted(lambda x: x * 2)
    compiled = gr.compile(wrapper)
    for size in (2, 3, 2):
        assert compiled(gr.ones(size)).tolist() == [2.0] * size
    assert len(calls) == 2
    # Empty axes have a symbol, too.
    compiled = gr.compile(wrapper, BATCH)
    assert [compiled(gr.ones(n)).shape for n in (2, 0, 3)] == [(2,), (0,), (3,)]


def test_symbolic_numbers_behave_like_numbers():
    def f(x):
        n = x.shape[0]
        assert (n + 1 - 1 == n, n * 2 >= n, n != 0, bool(n)) == (True,) * 4
        assert (n - 1, 3 * n, n % 2, n**2, n / 2, -n, 7 - n, 2 // n, 9 % n) == (
            3, 12, 0, 16, 2.0, -4, 3, 0, 1,
        )  # fmt: skip
        assert (int(n), float(n), hash(n), f"{n!r}", n < 4.5, n == "n") == (
            4, 4.0, 4, "b", True, False,
        )  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            n // 0
        return x

    gr.compile(f, {0: {0: "b"}})(gr.ones(4))


ELEMENTWISE = st.sampled_from(["exp", "neg", "tanh", "abs"])
STEPS = st.lists(
    st.sampled_from(
        ["unary", "mean0", "center", "softmax", "matmul", "flat", "join", "cut", "turn"]
    ),
    min_size=1,
    max_size=6,
)


def random_program(steps, unary):
    def f(x, w):
        for step in steps:
            n = x.shape[0]
            if step == "unary":
                x = getattr(gr, {"neg": "negative"}.get(unary, unary))(x * 0.1)
            elif step == "mean0":
                x = x - x.mean(axis=0, keepdims=True)
            elif step == "center":
                x = (x - x.mean()) / gr.sqrt(x.var() + 1.0)
            elif step == "softmax":
                x = gr.softmax(x, axis=0)
            elif step == "matmul":
                x = x @ w
            elif step == "flat":
                x = x.reshape(-1).reshape(n, -1)
            elif step == "join":
                x = gr.concat([x, x * 2])
            elif step == "cut":
                x = x[1:] if n > 1 else x
            elif step == "turn":
                x = x.T @ x @ w
        return x, x.sum(axis=0)

    return f


@settings(max_examples=15, deadline=None)
@given(STEPS, ELEMENTWISE, st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_random_programs_are_right_at_all_sizes(steps, unary, sizes):
    f = random_program(["matmul", *steps], unary)
    compiled = gr.compile(f, {0: {0: "n"}})
    w = data(3, 3, seed=3)
    for size in sizes:
        same(compiled(data(size, 3), w), f(data(size, 3), w))


def test_loops_and_branches_over_a_symbolic_axis():
    w, u = gr.eval(data(3, 4, seed=1) * 0.3, data(4, 4, seed=2) * 0.3)

    def recurrent(x, steps):
        def step(h, part):
            h = gr.tanh(part @ w + h @ u)
            return h, h.sum(axis=-1)

        last, sums = gr.scan(step, gr.zeros([x.shape[0], 4]), gr.permute_dims(x, [1, 0, 2]))
        last = gr.cond(sums.sum() > 0, lambda a: a * 2, lambda a: a - 1, last)
        _, grown = gr.while_loop(
            lambda state: state[0] < steps,
            lambda state: (state[0] + 1, state[1] * 1.5),
            (gr.asarray(0), last),
        )
        return grown, sums

    check(recurrent, lambda n: (data(n, 6, 3, seed=n), gr.asarray(3)))


def test_the_gradient_of_a_loop_over_a_symbolic_axis():
    u = data(4, 4, seed=2) * 0.3

    def loss(u, x):
        def step(h, _):
            return gr.tanh(h @ u + x), None

        return gr.scan(step, x, None, length=5)[0].mean()

    def gradients(u, x):
        return gr.value_and_grad(loss)(u, x)

    check(gradients, lambda n: (u, data(n, 4, seed=n)), dims={1: {0: "batch"}})


def test_argument_names_are_computed_once_per_trace(monkeypatch):
    from girih import tree

    calls = []
    flatten = tree.flatten_with_path

    def counted(*args):
        calls.append(1)
        return flatten(*args)

    monkeypatch.setattr(tree, "flatten_with_path", counted)
    layers = [{"w": gr.ones([2]), "m": gr.nn.Linear(2, 2)} for _ in range(50)]
    f = gr.compile(lambda layers: sum(p["m"](p["w"]).sum() for p in layers))
    assert np.isfinite(f(layers).item())
    assert len(calls) <= 2
