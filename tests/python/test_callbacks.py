"""Callbacks: Python functions that programs call while they run, and ops made of such functions."""

import threading
import time

import girih as gr
import numpy as np
import pytest

SDS = gr.ShapeDtypeStruct


def like(x):
    return SDS(x.shape, x.dtype)


def test_a_pure_callback_is_evaluated_and_compiled():
    def f(x):
        return gr.pure_callback(lambda v: np.sin(v) + 1, like(x), x * 2) * 3

    x = gr.asarray([0.5, 1.0, -2.0])
    expected = (np.sin(x.numpy() * 2) + 1) * 3
    np.testing.assert_allclose(f(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(gr.compile(f)(x).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ],
)
def test_every_dtype_and_shape_round_trips_through_a_callback(dtype):
    for shape in [(), (1,), (2, 3), (0,), (2, 0, 3)]:
        array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
        y = gr.pure_callback(lambda v: v.copy(), SDS(shape, dtype), gr.asarray(array))
        assert y.dtype.name == dtype
        np.testing.assert_array_equal(y.numpy(), array)


def test_operands_that_are_views_are_handed_over_dense():
    x = gr.reshape(gr.arange(12), (3, 4))
    y = gr.pure_callback(lambda v: v.copy(), SDS((4, 3), x.dtype), x.T)
    np.testing.assert_array_equal(y.numpy(), x.numpy().T)
    nan = gr.asarray([np.nan, np.inf, -np.inf, -0.0])
    assert gr.pure_callback(lambda v: v, like(nan), nan).numpy().tobytes() == nan.numpy().tobytes()


def test_trees_of_arguments_and_several_results():
    calls = []

    def f(pair, scale, *, b):
        calls.append(1)
        return {"sum": pair[0] + pair[1] * scale, "n": np.int64(len(b))}

    x = gr.asarray([1.0, 2.0])
    out = gr.pure_callback(f, {"sum": like(x), "n": SDS((), gr.int64)}, (x, x), 3, b="abc")
    gr.eval(out)
    assert (out["sum"].tolist(), out["n"].item(), len(calls)) == ([4.0, 8.0], 3, 1)


def test_a_callback_without_operands_runs():
    assert gr.pure_callback(lambda: np.float32(7), SDS((), gr.float32)).item() == 7.0


def test_another_shape_or_dtype_than_declared_is_an_error_that_names_both():
    x = gr.asarray([1.0, 2.0])

    def wrong(v):
        return v.astype(np.float64)

    with pytest.raises(
        gr.DTypeError, match=r"wrong returned float64\[2\]; it declares float32\[2\]"
    ):
        gr.pure_callback(wrong, like(x), x).numpy()
    with pytest.raises(gr.ShapeError, match=r"float32\[1\]; it declares float32\[2\]"):
        gr.pure_callback(lambda v: v[:1], like(x), x).numpy()
    with pytest.raises(gr.InvalidArgumentError, match="it declares"):
        gr.pure_callback(lambda v: (v, v), like(x), x).numpy()
    with pytest.raises(gr.InvalidArgumentError, match="ShapeDtypeStruct"):
        gr.pure_callback(lambda v: v, "float32", x)


def test_an_exception_of_a_callback_is_raised_unchanged():
    class OwnError(Exception):
        pass

    fail = [True]

    def f(v):
        if fail[0]:
            raise OwnError("because")
        return v + 1

    x = gr.asarray([1.0])
    y = gr.pure_callback(f, like(x), x)
    with pytest.raises(OwnError, match="because"):
        y.numpy()
    fail[0] = False
    assert y.tolist() == [2.0]
    assert (x + 1).tolist() == [2.0]


def test_evaluation_inside_of_a_callback_is_a_clear_error():
    x = gr.asarray([1.0])
    y = gr.pure_callback(lambda v: (gr.asarray(v.copy()) + 1).numpy(), like(x), x)
    with pytest.raises(gr.InvalidArgumentError, match="inside of a callback"):
        y.numpy()


def test_callbacks_run_while_many_threads_evaluate():
    def work(out, i):
        x = gr.asarray(np.full((100,), i, np.float32))
        f = gr.compile(lambda x: gr.pure_callback(lambda v: v * 2, like(x), x + 1))
        out[i] = [f(x).numpy()[0] for _ in range(5)]

    out = {}
    threads = [threading.Thread(target=work, args=(out, i)) for i in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert out == {i: [2.0 * (i + 1)] * 5 for i in range(4)}


def test_a_short_call_lets_a_callback_of_another_thread_finish():
    """Short programs do not release the interpreter, which the callback needs."""
    entered = threading.Event()

    def slow(v):
        entered.set()
        time.sleep(0.1)
        return v * 2

    def run_slow(out):
        x = gr.ones([3])
        out.append(gr.pure_callback(slow, like(x), x).tolist())

    short = gr.compile(lambda x: x + 1)
    x = gr.ones([2])
    for _ in range(3):
        short(x).eval()
    out = []
    thread = threading.Thread(target=run_slow, args=(out,))
    thread.start()
    assert entered.wait(60)
    assert short(x).tolist() == [2.0, 2.0]
    thread.join(60)
    assert out == [[2.0] * 3]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_a_batch_is_handed_over_as_the_method_says(method):
    shapes = []

    def add(a, b):
        shapes.append((a.shape, b.shape))
        return a + b

    a, b = gr.ones([4, 3]), gr.asarray([1.0, 2.0, 3.0])
    f = gr.vmap(
        lambda x, y: gr.pure_callback(add, like(x), x, y, vmap_method=method), in_axes=(0, None)
    )
    np.testing.assert_array_equal(f(a, b).numpy(), np.ones((4, 3), np.float32) + b.numpy())
    expected = {
        "sequential": [((3,), (3,))] * 4,
        "expand_dims": [((4, 3), (1, 3))],
        "broadcast_all": [((4, 3), (4, 3))],
    }
    assert shapes == expected[method]


def test_batches_of_batches_run_in_turn():
    f = gr.vmap(gr.vmap(lambda x: gr.pure_callback(lambda v: v.sum(), SDS((), gr.float32), x)))
    x = gr.reshape(gr.arange(24, dtype=gr.float32), (2, 3, 4))
    np.testing.assert_array_equal(f(x).numpy(), x.numpy().sum(-1))


def test_without_a_method_a_batch_is_refused():
    f = gr.vmap(lambda x: gr.pure_callback(lambda v: v, like(x), x, vmap_method=None))
    with pytest.raises(gr.InvalidArgumentError, match="no batching rule"):
        f(gr.ones([2]))


def test_a_derivative_without_a_rule_is_an_error_that_names_the_callback():
    def no_rule(v):
        return v

    f = gr.grad(lambda x: gr.pure_callback(no_rule, SDS((), gr.float32), x))
    with pytest.raises(gr.InvalidArgumentError, match=r"no_rule.*no derivative.*def_vjp"):
        f(gr.asarray(1.0))


def test_symbolic_sizes_are_known_when_the_callback_runs():
    f = gr.compile(
        lambda x: gr.pure_callback(lambda v: v * 2, like(x), x), dynamic_dims={0: {0: "n"}}
    )
    for n in (1, 3, 5):
        np.testing.assert_array_equal(f(gr.ones([n])).numpy(), np.full(n, 2, np.float32))


def test_in_scan_and_cond():
    def double(v):
        return gr.pure_callback(lambda v: v * 2, like(v), v)

    last, _ = gr.scan(lambda c, _: (double(c), None), gr.asarray(1.0), length=5)
    assert last.item() == 32.0
    f = gr.compile(lambda p, x: gr.cond(p, double, lambda v: v, x))
    assert [f(gr.asarray(p), gr.asarray(3.0)).item() for p in (True, False)] == [6.0, 3.0]


def test_equal_pure_callbacks_are_one_and_io_callbacks_are_not():
    calls = []

    def f(v):
        calls.append(v.item())
        return v

    def pure(x):
        return gr.pure_callback(f, like(x), x) + gr.pure_callback(f, like(x), x)

    def io(x):
        return gr.io_callback(f, like(x), x) + gr.io_callback(f, like(x), x)

    x = gr.asarray(2.0)
    assert (gr.compile(pure)(x).item(), len(calls)) == (4.0, 1)
    calls.clear()
    assert (gr.compile(io)(x).item(), len(calls)) == (4.0, 2)


def test_an_io_callback_outside_of_a_trace_runs_at_once():
    seen = []
    gr.io_callback(lambda v: seen.append(v.item()), None, gr.asarray(1.0))
    assert seen == [1.0]
    y = gr.io_callback(lambda v: seen.append(0) or v, SDS((), gr.float32), gr.asarray(4.0))
    assert (y.item(), seen) == (4.0, [1.0, 0])


def test_effects_of_compiled_code_happen_in_every_call():
    seen = []

    @gr.compile
    def f(x):
        gr.debug.callback(lambda v: seen.append(v.item()), x)
        return x + 1

    assert [f(gr.asarray(float(i))).item() for i in range(3)] == [1.0, 2.0, 3.0]
    assert (seen, f.num_traces if hasattr(f, "num_traces") else 1) == ([0.0, 1.0, 2.0], 1)


def test_ordered_callbacks_run_in_the_order_of_recording():
    seen = []

    @gr.compile
    def f(x):
        for i in range(10):
            gr.io_callback(lambda v, i=i: seen.append(i), None, x * i, ordered=True)
        return x

    f(gr.asarray(1.0)).item()
    assert seen == list(range(10))


def test_effects_under_transforms(capsys):
    def f(x):
        gr.debug.print("x={:.0f}", x)
        return x * x

    assert gr.grad(f)(gr.asarray(3.0)).item() == 6.0
    assert capsys.readouterr().out == "x=3\n"
    gr.vmap(f)(gr.asarray([1.0, 2.0])).numpy()
    assert capsys.readouterr().out == "x=1\nx=2\n"
    assert gr.jvp(f, (gr.asarray(2.0),), (gr.asarray(1.0),))[1].item() == 4.0
    assert capsys.readouterr().out == "x=2\n"
    gr.eval(gr.compile(gr.vmap(gr.grad(f)))(gr.asarray([4.0, 5.0])))
    assert capsys.readouterr().out == "x=4\nx=5\n"
    gr.eval(gr.scan(lambda c, _: (c + 1, f(c)), gr.asarray(0.0), length=3))
    assert capsys.readouterr().out == "x=0\nx=1\nx=2\n"
    gr.compile(lambda p, x: gr.cond(p, f, lambda x: x, x))(gr.asarray(True), gr.asarray(7.0)).item()
    assert capsys.readouterr().out == "x=7\n"
    gr.checkpoint(f)(gr.asarray(8.0)).item()
    assert capsys.readouterr().out == "x=8\n"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_while_loop_calls_in_each_iteration(compiled, count):
    seen = []

    def condition(x):
        gr.io_callback(lambda v: seen.append(("asked", v.item())), None, x, ordered=True)
        return x < count

    def body(x):
        gr.io_callback(lambda v: seen.append(("made", v.item())), None, x, ordered=True)
        return x + 1

    loop = lambda x: gr.while_loop(condition, body, x)
    f = gr.compile(loop) if compiled else loop
    assert f(gr.asarray(0)).item() == count
    expected = [(what, i) for i in range(count) for what in ("asked", "made")]
    assert seen == [*expected, ("asked", count)]


def test_calls_of_loops_whose_results_nobody_reads():
    seen = []

    @gr.compile
    def f(x):
        def body(i):
            gr.debug.callback(lambda v: seen.append(v.item()), i * x)
            return i + 1

        gr.while_loop(lambda i: i < 3, body, gr.asarray(0))
        return x

    assert f(gr.asarray(5)).item() == 5
    assert sorted(seen) == [0, 5, 10]


@pytest.mark.parametrize("kind", ["while", "scan", "cond"])
def test_ordered_calls_wait_for_those_in_loops_before(kind):
    seen = []
    note = lambda v: seen.append(v.item())

    def step(i):
        gr.io_callback(note, None, i, ordered=True)
        return i + 1

    @gr.compile
    def f(x):
        gr.io_callback(note, None, x - 1, ordered=True)
        if kind == "while":
            x = gr.while_loop(lambda i: i < 3, step, x)
        elif kind == "scan":
            x, _ = gr.scan(lambda c, _: (step(c), None), x, length=3)
        else:
            gr.cond(x == 0, step, lambda i: i, x)
        gr.io_callback(note, None, gr.asarray(9), ordered=True)
        return x

    f(gr.asarray(0)).eval()
    assert seen == ([-1, 0, 9] if kind == "cond" else [-1, 0, 1, 2, 9])


def test_calls_of_a_loop_under_transforms():
    seen = []

    def f(x):
        def body(v):
            gr.debug.callback(lambda v: seen.append(float(v)), v)
            return v * 2

        return gr.while_loop(lambda v: v < 4, body, x)

    value, tangent = gr.jvp(f, (gr.asarray(1.0),), (gr.asarray(1.0),))
    gr.eval(value, tangent)
    assert (value.item(), tangent.item(), set(seen)) == (4.0, 4.0, {1.0, 2.0})
    seen.clear()
    assert gr.vmap(f)(gr.asarray([1.0, 2.0])).tolist() == [4.0, 4.0]
    assert {1.0, 2.0} <= set(seen)


def test_the_condition_of_a_batch_of_loops_is_asked_once_in_an_iteration():
    seen = []

    def condition(x):
        gr.debug.callback(lambda v: seen.append(v.item()), x)
        return x < 4

    loop = gr.vmap(lambda x: gr.while_loop(condition, lambda v: v * 2, x))
    assert gr.compile(loop)(gr.asarray([1, 3, 9])).tolist() == [4, 6, 9]
    assert sorted(seen) == sorted([1, 3, 9, 2, 6, 9, 4, 6, 9])


def test_a_failing_call_in_a_loop_ends_it():
    def body(x):
        gr.debug.check(x < 2, "too large: {}", x)
        return x + 1

    f = gr.compile(lambda x: gr.while_loop(lambda v: v < 10**6, body, x))
    with pytest.raises(gr.CheckError, match="too large: 2"):
        f(gr.asarray(0)).item()
    assert f(gr.asarray(10**6)).item() == 10**6


def test_a_failed_check_raises_with_its_line():
    f = gr.compile(lambda x: (gr.debug.check(x > 0, "x is {x}", x=x), x + 1)[1])
    assert f(gr.asarray(1.0)).item() == 2.0
    with pytest.raises(gr.CheckError, match=r"x is -1.0 \(recorded at .*test_callbacks.py:\d+\)"):
        f(gr.asarray(-1.0)).item()
    assert f(gr.asarray(2.0)).item() == 3.0


def test_a_custom_op_with_a_reverse_rule():
    @gr.custom_op(shape=lambda x, y: SDS((x.shape[0], y.shape[1]), x.dtype))
    def product(x, y):
        return x @ y

    product.def_vjp(lambda x, y: (product(x, y), (x, y)), lambda r, ct: (ct @ r[1].T, r[0].T @ ct))
    x, y = gr.ones([2, 3]), gr.reshape(gr.arange(12, dtype=gr.float32), (3, 4))
    np.testing.assert_allclose(gr.compile(product)(x, y).numpy(), (x @ y).numpy())
    loss = [lambda x, y, op=op: (op(x, y) ** 2).sum() for op in (product, gr.matmul)]
    for ours, theirs in zip(*(gr.grad(f, argnums=(0, 1))(x, y) for f in loss), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_custom_op_with_a_forward_rule():
    @gr.custom_op(shape=lambda x: x)
    def sine(x):
        return np.sin(x)

    sine.def_jvp(lambda primals, tangents: (sine(*primals), gr.cos(primals[0]) * tangents[0]))
    x = gr.asarray([0.3, 2.0])
    np.testing.assert_allclose(gr.grad(lambda x: sine(x).sum())(x).numpy(), np.cos(x.numpy()), 1e-6)


def test_a_custom_op_says_which_rule_is_missing_when_it_is_needed():
    @gr.custom_op
    def bare(x):
        return x

    with pytest.raises(gr.InvalidArgumentError, match="bare has no shape rule"):
        bare(gr.ones([2]))
    bare.def_shape(lambda x: x)
    assert bare(gr.ones([2])).tolist() == [1.0, 1.0]
    with pytest.raises(gr.InvalidArgumentError, match=r"'bare' has no derivative"):
        gr.grad(lambda x: bare(x).sum())(gr.ones([2]))
    with pytest.raises(gr.InvalidArgumentError, match="no name of an op"):
        gr.custom_op(name="a b")(lambda x: x)
    with pytest.raises(gr.InvalidArgumentError, match="version"):
        gr.custom_op(version=-1)


def test_calls_of_functions_with_a_rule_and_of_the_rule():
    seen = []

    def note(name):
        return lambda v: seen.append((name, v.item()))

    @gr.custom_vjp
    def f(x):
        gr.debug.callback(note("f"), x)
        return x * 2

    def forward(x):
        gr.debug.callback(note("forward"), x)
        return x * 2, x

    def backward(x, ct):
        gr.debug.callback(note("backward"), ct)
        return (ct * x * 2,)

    f.defvjp(forward, backward)
    x = gr.asarray(1.5)
    assert gr.compile(f)(x).item() == 3.0
    assert seen == [("f", 1.5)]
    seen.clear()
    assert gr.compile(gr.grad(lambda x: f(x) * 5))(x).item() == 15.0
    # The forward rule runs instead of the function.
    assert sorted(seen) == [("backward", 5.0), ("forward", 1.5)]
    seen.clear()
    # The call is made even if its result is unused.
    gr.compile(lambda x: (f(x), x)[1])(x).eval()
    assert seen == [("f", 1.5)]
    seen.clear()
    assert gr.vmap(gr.grad(lambda x: f(x) * x))(gr.asarray([1.0, 2.0])).tolist() == [4.0, 12.0]
    given = {"backward": [1.0, 2.0], "forward": [1.0, 2.0]}
    assert sorted(seen) == [(name, v) for name, values in given.items() for v in values]

    @gr.custom_jvp
    def g(x):
        return x * x

    @g.defjvp
    def rule(primals, tangents):
        gr.debug.callback(note("rule"), primals[0])
        return primals[0] ** 2, 7 * tangents[0]

    seen.clear()
    assert (g(x).item(), seen) == (2.25, [])
    assert gr.grad(g)(x).item() == 7.0
    assert seen == [("rule", 1.5)]
