"""``def_vmap``: batching rules of user-defined ops, combined with the other transforms."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

CALLS: list[tuple[str, tuple[int, ...]]] = []
RNG = np.random.default_rng(5)


def scaled_op():
    """``x * a`` for a row and a number; records its calls and the batches it was given."""
    CALLS.clear()

    @gr.custom_op(name="test.scaled", shape=lambda x, a: x)
    def scaled(x, a):
        CALLS.append(("kernel", x.shape))
        return x * a

    @scaled.def_vmap
    def rule(axis_size, in_batched, x, a):
        CALLS.append(("rule", tuple(in_batched)))
        assert in_batched[0] is False or x.shape[0] == axis_size
        a = gr.reshape(a, [-1, 1]) if in_batched[1] and x.ndim == 2 else a
        a = gr.unsqueeze(a, -1) if in_batched[1] and not in_batched[0] else a
        return x * a, True

    return scaled


X = gr.asarray(RNG.standard_normal((4, 3)))
A = gr.asarray(RNG.standard_normal(4))
SHIFTED = 2.0


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, None)])
def test_the_rule_is_recorded_in_place_of_the_op(in_axes):
    op = scaled_op()
    x = X if in_axes[0] is not None else X[0]
    a = A if in_axes[1] is not None else A[0]
    got = gr.vmap(op, in_axes=in_axes)(x, a)
    want = gr.vmap(lambda x, a: x * a, in_axes=in_axes)(x, a)
    np.testing.assert_allclose(got.numpy(), want.numpy())
    batched = tuple(axis is not None for axis in in_axes)
    (call,) = CALLS
    assert call == ("rule", batched)


def test_without_a_batch_there_is_no_rule():
    op = scaled_op()
    got = gr.vmap(lambda a: op(X[0], A[0]) + a)(A)
    np.testing.assert_allclose(got.numpy(), (X[0] * A[0]).numpy() + A.numpy()[:, None])
    assert CALLS == [("kernel", (3,))]


def test_nested_batches_and_rules_that_call_the_op():
    seen = []

    @gr.custom_op(name="test.double", shape=lambda x: x)
    def double(x):
        seen.append(x.shape)
        return 2 * x

    @double.def_vmap
    def rule(axis_size, in_batched, x):
        return double(x), in_batched[0]

    x = gr.asarray(RNG.standard_normal((2, 3, 4)))
    got = gr.vmap(gr.vmap(double))(x)
    np.testing.assert_array_equal(got.numpy(), 2 * x.numpy())
    assert seen == [(2, 3, 4)]
    inner = gr.vmap(gr.vmap(double, in_axes=1), in_axes=2)(x)
    np.testing.assert_array_equal(inner.numpy(), 2 * x.numpy().transpose(2, 1, 0))


def powers():
    """An op with two results; its batching rule returns the second one without the batch axis."""

    @gr.custom_op(name="test.powers", shape=lambda x, n: (x, n))
    def both(x, n):
        return x**2, n + 1

    @both.def_vmap
    def rule(axis_size, in_batched, x, n):
        return (x * x, n + SHIFTED - 1), (True, in_batched[1])

    return both


def test_results_with_and_without_the_batch():
    x, n = gr.asarray([1.0, 2.0, 3.0]), gr.asarray(4.0)
    squares, after = gr.vmap(powers(), in_axes=(0, None), out_axes=(0, None))(x, n)
    assert squares.tolist() == [1, 4, 9]
    assert after.item() == 5
    squares, after = gr.vmap(powers(), in_axes=(0, None))(x, n)
    assert after.tolist() == [5, 5, 5]


def cube_op():
    @gr.custom_op(name="test.cube", shape=lambda x: x)
    def cube(x):
        return x**3

    @cube.def_vmap
    def rule(axis_size, in_batched, x):
        CALLS.append(("rule", tuple(in_batched)))
        return x * x * x, True

    cube.def_vjp(lambda x: (cube(x), x), lambda x, ct: (3 * x * x * ct,))
    return cube


def test_batching_rules_compose_with_derivatives_in_either_order():
    cube = cube_op()
    CALLS.clear()
    x = gr.asarray([[1.0, 2.0], [3.0, 4.0]])
    each = gr.vmap(gr.grad(lambda row: cube(row).sum()))(x)
    np.testing.assert_allclose(each.numpy(), 3 * x.numpy() ** 2)
    whole = gr.grad(lambda x: gr.vmap(cube)(x).sum())(x)
    np.testing.assert_allclose(whole.numpy(), 3 * x.numpy() ** 2)
    assert {kind for kind, _ in CALLS} == {"rule"}


def test_within_scan_and_branches():
    cube = cube_op()

    def run(x):
        total, _ = gr.scan(lambda c, y: (c + cube(y), None), gr.zeros([], dtype=x.dtype), x)
        return gr.cond(total > 0, lambda t: cube(t), lambda t: -t, total)

    x = gr.asarray(RNG.standard_normal((3, 5)))
    total = (x.numpy() ** 3).sum(1)
    want = np.where(total > 0, total**3, -total)
    np.testing.assert_allclose(gr.vmap(run)(x).numpy(), want, rtol=1e-6)


def test_compiled_for_any_batch():
    cube = cube_op()
    CALLS.clear()
    counts = []
    f = gr.compile(gr.vmap(cube), dynamic_dims={0: {0: gr.Dim("batch", min=1)}})
    for n in (1, 3, 7):
        x = gr.asarray(RNG.standard_normal((n, 2)))
        np.testing.assert_allclose(f(x).numpy(), x.numpy() ** 3)
        # One call of the op, and one for each call by the rule of its derivative.
        counts.append(len(CALLS))
    assert counts[0] == counts[-1]


WRONG = {
    "no pair": (lambda n, b, x: x, gr.InvalidArgumentError, "pair"),
    "marks": (lambda n, b, x: (x, 1), gr.InvalidArgumentError, "expected a bool"),
    "structure": (lambda n, b, x: ((x, x), True), gr.InvalidArgumentError, "the op gives"),
    "shape": (lambda n, b, x: (x.sum(), True), gr.InvalidArgumentError, "result 0; expected"),
    "mark": (lambda n, b, x: (x, False), gr.InvalidArgumentError, "without the batch"),
    "dtype": (lambda n, b, x: (x.astype(gr.float16), True), gr.InvalidArgumentError, "float16|f16"),
    "drawn": (lambda n, b, x: (x + gr.rand(*x.shape), True), gr.InvalidArgumentError, "draws"),
    "raised": (lambda n, b, x: 1 / 0, ZeroDivisionError, "zero"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_of_wrong_batching_rules_say_the_reason(case):
    rule, kind, words = WRONG[case]

    @gr.custom_op(name=f"test.wrong.{case.replace(' ', '-')}", shape=lambda x: x)
    def op(x):
        return x

    op.def_vmap(rule)
    with pytest.raises(kind, match=words):
        gr.vmap(op)(gr.ones([4, 3]))
    assert op(gr.ones([3])).tolist() == [1, 1, 1]


def test_rules_refer_to_tensors_outside():
    table = gr.asarray([10.0, 20.0])

    @gr.custom_op(name="test.outside", shape=lambda x: x)
    def op(x):
        return x

    @op.def_vmap
    def rule(axis_size, in_batched, x):
        return x * table + gr.asarray(np.array([1.0, 2.0], dtype=np.float32)), True

    x = gr.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    want = x.numpy() * [10, 20] + [1, 2]
    np.testing.assert_allclose(gr.vmap(op)(x).numpy(), want)
    np.testing.assert_allclose(gr.compile(gr.vmap(op))(x).numpy(), want)
    looped = gr.vmap(lambda x: gr.scan(lambda c, _: (op(c), None), x, None, length=2)[0])(x)
    np.testing.assert_allclose(looped.numpy(), want * [10, 20] + [1, 2])
    chosen = gr.vmap(lambda x: gr.cond(table[0] > 0, op, lambda x: x, x))(x)
    np.testing.assert_allclose(chosen.numpy(), want)


def test_rules_refer_to_arguments_of_functions_being_traced():
    def scaled(x, w):
        @gr.custom_op(name="test.traced", shape=lambda x: x)
        def op(x):
            return x

        @op.def_vmap
        def rule(axis_size, in_batched, x):
            return x * w, True

        return gr.vmap(op)(x).sum()

    x, w = gr.asarray([1.0, 2.0, 3.0]), gr.asarray(5.0)
    assert gr.grad(scaled, argnums=1)(x, w).item() == 6.0
    assert gr.grad(scaled)(x, w).tolist() == [5.0] * 3
    assert gr.compile(scaled)(x, w).item() == 30.0

    def inside(x, w):
        @gr.custom_op(name="test.traced", shape=lambda x: x)
        def op(x):
            return x

        op.def_vmap(lambda n, batched, x: (x * w, True))
        return op(x)

    assert gr.vmap(inside, in_axes=(0, None))(x, w).tolist() == [5.0, 10.0, 15.0]
    with pytest.raises(gr.InvalidArgumentError, match="pass the tensor as an argument"):
        gr.vmap(inside)(x, x)
