"""Python floats as arguments of compiled functions, which are scalars of the program."""

from __future__ import annotations

import math

import girih as gr
import numpy as np
import pytest
from girih.errors import InvalidArgumentError


def vector(dtype="float32"):
    return gr.asarray([1.0, 2.0, 3.0], dtype=dtype).eval()


FUNCTIONS = {
    "product": lambda x, lr: x * lr,
    "reflected": lambda x, lr: lr - x,
    "division": lambda x, lr: lr / x,
    "arithmetic": lambda x, lr: x * (2 * lr**2 - lr / 3 + abs(-lr) % 0.3 + (1 + lr) // 0.7),
    "power": lambda x, lr: x**lr,
    "base": lambda x, lr: lr**x,
    "where": lambda x, lr: gr.where(x > lr, x, lr),
    "comparison": lambda x, lr: (x > lr) & (lr < 2),
    "clip": lambda x, lr: gr.clip(x, -lr, lr),
    "maximum": lambda x, lr: gr.maximum(x, lr),
    "function": lambda x, lr: x + gr.sqrt(lr),
    "full": lambda x, lr: gr.full([3], lr) + x,
    "full_like": lambda x, lr: gr.full_like(x, lr),
    "asarray": lambda x, lr: gr.asarray(lr) + x,
    "asarray of a dtype": lambda x, lr: gr.asarray(lr, dtype=gr.float64),
    "list": lambda x, lr: gr.stack([gr.asarray(lr), gr.asarray(2 * lr)]),
    "update": lambda x, lr: x.at[1].set(lr).at[0].multiply(lr),
    "matrix": lambda x, lr: gr.eye(3, dtype=x.dtype) * lr @ x,
    "loop": lambda x, lr: gr.fori_loop(0, 3, lambda i, c: c * lr + i, x),
    "carry": lambda x, lr: gr.fori_loop(0, 3, lambda i, c: c * 2.0, lr) * x,
    "branch": lambda x, lr: gr.cond(lr > 0.2, lambda y: y * lr, lambda y: y - lr, x),
    "gradient": lambda x, lr: gr.grad(lambda y: (y * y * lr).sum())(x),
    "gradient by it": lambda x, lr: gr.grad(lambda s: (x * s).sum())(lr),
    "tangent": lambda x, lr: gr.jvp(lambda s: x * s, (lr,), (lr,))[1],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_serves_all_values(name, dtype):
    f = FUNCTIONS[name]
    if dtype == "int32" and name in ("loop", "gradient", "gradient by it", "tangent", "update"):
        pytest.skip("the function needs real numbers")
    compiled = gr.compile(f)
    x = vector(dtype)
    for lr in (0.1, 0.5, 1.25, 3.0):
        found, expected = compiled(x, lr), f(x, lr)
        assert found.dtype == expected.dtype
        found, expected = (t.astype(gr.float64).numpy() for t in (found, expected))
        rtol = {"bfloat16": 2e-2, "float16": 2e-3}.get(dtype, 1e-6)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    assert compiled.num_programs == 1, compiled.retraced


def test_special_values():
    compiled = gr.compile(lambda x, s: x * s)
    x = vector()
    for s in (0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 5e-324, 1e300):
        expected = x * s
        np.testing.assert_array_equal(compiled(x, s).numpy(), expected.numpy())
        assert np.signbit(compiled(x, s).numpy()).tolist() == np.signbit(expected.numpy()).tolist()
    assert compiled.num_programs == 1


def test_ints_bools_and_static_arguments_are_part_of_the_program():
    compiled = gr.compile(lambda x, s: x * s)
    x = vector()
    for s in (1, 2, True, 0.5, 0.75):
        np.testing.assert_array_equal(compiled(x, s).numpy(), (x * s).numpy())
    assert compiled.num_programs == 4
    static = gr.compile(lambda x, s: x * 2 if s > 0.1 else x, static_argnames="s")
    assert static(x, 0.5).tolist() == [2.0, 4.0, 6.0]
    assert static(x, s=0.05).tolist() == [1.0, 2.0, 3.0]
    assert static.num_programs == 2


READS = {
    "if": lambda x, rate: x * 2 if rate > 0.1 else x,
    "truth": lambda x, rate: x if rate else -x,
    "float": lambda x, rate: x * float(rate),
    "int": lambda x, rate: x * int(rate),
    "math": lambda x, rate: x * math.sqrt(rate),
    "range": lambda x, rate: gr.arange(0.0, rate),
    "a parameter": lambda x, rate: gr.nn.functional.leaky_relu(x, rate)
    if hasattr(gr.nn, "functional")
    else x * float(rate),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_reading_the_value_is_an_error_that_says_what_to_do(name):
    compiled = gr.compile(READS[name])
    with pytest.raises(gr.errors.GirihError, match=r"'rate'.*static_argnames") as raised:
        compiled(vector(), 0.5)
    assert "no value while the function is traced" in str(raised.value)


def test_trees_defaults_and_keywords():
    @gr.compile
    def step(params, options, *, decay=0.5):
        return {k: v * options["scale"] - decay * options["lr"][0] for k, v in params.items()}

    params = {"w": vector(), "b": gr.asarray(1.0).eval()}
    for lr in (0.1, 0.2):
        for extra in ({}, {"decay": lr}):
            out = step(params, {"lr": [lr, "name"], "scale": 2.0}, **extra)
            expected = 2 - extra.get("decay", 0.5) * lr
            np.testing.assert_allclose(out["b"].item(), expected, rtol=1e-6)
    assert step.num_programs == 2


def test_returned_floats_are_floats():
    compiled = gr.compile(lambda x, lr: (x * lr, {"lr": lr * 0.9, "same": lr}))
    lr = 0.1
    for _ in range(3):
        y, out = compiled(vector(), lr)
        assert type(out["lr"]) is float
        assert out["lr"] == lr * 0.9
        assert out["same"] == lr
        np.testing.assert_array_equal(y.numpy(), (vector() * lr).numpy())
        lr = out["lr"]
    assert compiled.num_programs == 1


def test_compiled_functions_in_others():
    inner = gr.compile(lambda x, s: (x * s, s * 2))
    outer = gr.compile(lambda x, s: inner(inner(x, s)[0], inner(x, s)[1] + 1.0)[0])
    for s in (0.5, 0.25):
        np.testing.assert_allclose(outer(vector(), s).numpy(), vector().numpy() * s * (2 * s + 1))
    assert outer.num_programs == 1
    by_x = gr.grad(lambda x: inner(x, 3.0)[0].sum())(vector())
    assert by_x.tolist() == [3.0, 3.0, 3.0]
    by_s = gr.grad(lambda s: inner(vector(), s)[0].sum())(2.0)
    assert by_s.item() == 6.0


def test_a_training_step_with_another_rate_each_time():
    @gr.compile
    def step(w, x, y, lr):
        return w - lr * gr.grad(lambda w: ((x @ w - y) ** 2).mean())(w)

    gr.manual_seed(0)
    x, y, w = gr.eval(gr.randn([8, 3]), gr.randn([8]), gr.zeros([3]))
    expected = w.numpy()
    for i in range(5):
        lr = 0.1 / (i + 1)
        w = step(w, x, y, lr)
        residual = x.numpy() @ expected - y.numpy()
        expected = expected - lr * 2 / 8 * x.numpy().T @ residual
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-4)
    assert step.num_programs == 1


def test_keeping_the_number_of_a_trace_is_an_error():
    class Holder:
        rate = 0.0

    holder = Holder()
    holder.rate = 0.25

    @gr.compile
    def f(x, rate):
        holder.rate = rate
        return x * holder.rate

    with pytest.raises(InvalidArgumentError, match="rate"):
        f(vector(), 0.5)
    assert holder.rate == 0.25


def test_saved_programs_take_the_number(tmp_path):
    f = gr.compile(lambda x, rate: x * rate)
    f(vector(), 0.5)
    gr.save_graph(tmp_path / "f.pfgb", f.to_program(vector(), 0.5))
    program = gr.load_graph(tmp_path / "f.pfgb")
    assert [name for name, *_ in program.inputs] == ["x", "rate"]
