"""``checkpoint``, ``custom_jvp``, ``custom_vjp``, and loops composed of other loops."""

from __future__ import annotations

from typing import Any

import girih as gr
import numpy as np
import pytest
from conftest import peak_memory


def draws(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).normal(size=shape))


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=1e-12)


def block(w: gr.Tensor, x: gr.Tensor) -> gr.Tensor:
    return gr.tanh(gr.exp(gr.sin(x @ w)) @ w.T)


class TestCheckpoint:
    @pytest.mark.parametrize("policy", ["nothing", "dots", "everything", ["products"]])
    def test_values_and_derivatives_are_the_plain_ones(self, policy: Any) -> None:
        w, x = draws(4, 6) / 3, draws(5, 4, seed=1)

        def named(w: gr.Tensor, x: gr.Tensor) -> gr.Tensor:
            return gr.tanh(gr.exp(gr.sin(gr.checkpoint_name(x @ w, "products"))) @ w.T)

        def loss(f: Any) -> Any:
            return lambda w, x: (f(w, f(w, x)) ** 2).sum()

        plain, kept = loss(block), loss(gr.checkpoint(named, policy=policy))
        close(kept(w, x), plain(w, x))
        for found, expected in zip(
            gr.grad(kept, (0, 1))(w, x), gr.grad(plain, (0, 1))(w, x), strict=True
        ):
            close(found, expected)
        v = draws(5, 4, seed=2)
        close(
            gr.hvp(lambda x: kept(w, x), (x,), (v,)),
            gr.hvp(lambda x: plain(w, x), (x,), (v,)),
            1e-8,
        )
        close(gr.jvp(kept, (w, x), (w, v))[1], gr.jvp(plain, (w, x), (w, v))[1])
        batched = gr.vmap(gr.grad(lambda x: kept(w, x[None])), in_axes=0)(x)
        close(batched, gr.vmap(gr.grad(lambda x: plain(w, x[None])))(x))

    def test_values_from_outside_get_gradients(self) -> None:
        w, x = draws(4, 4), draws(2, 4, seed=1)
        f = lambda w: gr.checkpoint(lambda x: block(w, x))(x).sum()
        close(gr.grad(f)(w), gr.grad(lambda w: block(w, x).sum())(w))

    def test_draws_are_the_same_when_computed_again(self) -> None:
        def f(x: gr.Tensor) -> gr.Tensor:
            return (x * gr.rand([100])).sum()

        x = gr.ones([100])
        value, by = gr.value_and_grad(gr.checkpoint(f))(x)
        close(by.sum(), value, 1e-6)

    def test_pytrees_keywords_and_no_tensors(self) -> None:
        f = gr.checkpoint(lambda p, *, scale: {"y": p["a"] * scale, "n": 3})
        out = f({"a": gr.ones([2])}, scale=2.0)
        assert (out["y"].tolist(), out["n"].item()) == ([2.0, 2.0], 3)
        assert gr.checkpoint(lambda: gr.ones([2]))().tolist() == [1.0, 1.0]

        @gr.checkpoint(policy="dots")
        def decorated(x: gr.Tensor) -> gr.Tensor:
            return x * 2

        assert decorated(gr.ones([1])).item() == 2.0

    def test_a_checkpoint_runs_the_forward_pass_once_more(self) -> None:
        calls = []

        def layer(w: gr.Tensor, x: gr.Tensor) -> gr.Tensor:
            x = gr.sin(x @ w)
            seen = gr.pure_callback(lambda x: calls.append(1) or x, x, x)
            return gr.sin((x * gr.stop_gradient(seen)) @ w)

        def count(f: Any) -> int:
            def loss(ws: list[gr.Tensor]) -> gr.Tensor:
                x = gr.ones([4, 8])
                for w in ws:
                    x = f(w, x)
                return x.sum()

            calls.clear()
            gr.eval(*gr.grad(loss)([gr.eye(8) for _ in range(5)]))
            return len(calls)

        assert count(layer) == count(gr.checkpoint(layer, policy="everything")) == 5
        for policy in ("nothing", "dots"):
            # The derivative may reuse its own forward pass of the last layer.
            assert 9 <= count(gr.checkpoint(layer, policy=policy)) <= 10

    def test_a_checkpoint_takes_less_memory_and_one_more_forward_pass(self) -> None:
        w = [gr.eye(64) * 0.9 + 0.001 for _ in range(16)]
        gr.eval(w)

        def layer(w: gr.Tensor, x: gr.Tensor) -> gr.Tensor:
            for _ in range(4):
                x = gr.sin(x @ w)
            return x

        def loss(f: Any) -> Any:
            def run(ws: list[gr.Tensor], x: gr.Tensor) -> gr.Tensor:
                for w in ws:
                    x = f(w, x)
                return x.sum()

            return run

        x = gr.ones([512, 64])
        gr.eval(x)

        def measured(f: Any) -> tuple[int, np.ndarray, int]:
            """The peak memory in bytes, a gradient, and the number of matrix products."""
            step = gr.compile(gr.grad(loss(f)))
            gr.eval(step(w, x))
            peak = peak_memory(step, w, x)
            by = step(w, x)
            text = gr.graph_to_text(gr.grad(loss(f))(w, x)[0])
            return peak, by[0].numpy(), text.count(" = matmul(")

        plain, by_plain, few = measured(layer)
        kept, by_kept, many = measured(gr.checkpoint(layer))
        np.testing.assert_array_equal(by_plain, by_kept)
        assert kept < 0.5 * plain
        # One additional forward pass of each layer.
        assert many <= few + 16 * 4
        policies = ["nothing", "dots", "everything"]
        by_policy = [measured(gr.checkpoint(layer, policy=p)) for p in policies]
        for _, by, _ in by_policy:
            np.testing.assert_allclose(by, by_plain, rtol=1e-6)
        peaks = [peak for peak, _, _ in by_policy]
        assert peaks[0] < peaks[1] < peaks[2] <= plain

    def test_a_policy_function_selects_the_saved_values(self) -> None:
        w, x = draws(4, 6) / 3, draws(5, 4, seed=1)
        seen = []

        def keeps(op: str, value: gr.Tensor) -> bool:
            seen.append((op, value.shape, value.dtype))
            return op == "matmul" and value.shape == (5, 6)

        def products(policy: Any) -> int:
            f = gr.checkpoint(block, policy=policy)
            value, by = gr.value_and_grad(lambda x: f(w, x).sum())(x)
            return gr.graph_to_text(value + by.sum()).count(" = matmul(")

        assert products("everything") < products(keeps) < products("nothing")
        ops = [op for op, _, _ in seen]
        assert ops == ["matmul", "sin", "exp", "permute", "matmul", "tanh"], ops
        assert seen[0] == ("matmul", (5, 6), gr.float64)
        close(
            gr.grad(lambda x: gr.checkpoint(block, policy=keeps)(w, x).sum())(x),
            gr.grad(lambda x: block(w, x).sum())(x),
        )

        def fails(op: str, value: gr.Tensor) -> bool:
            raise KeyError(op)

        with pytest.raises(KeyError, match="matmul"):
            gr.checkpoint(block, policy=fails)(w, x)

    def test_errors(self) -> None:
        with pytest.raises(gr.InvalidArgumentError, match="policy must be"):
            gr.checkpoint(gr.sin, policy="some")
        with pytest.raises(gr.DTypeError, match="returned a str"):
            gr.checkpoint(lambda x: "text")(gr.ones([1]))
        with pytest.raises(gr.DTypeError, match="expected a tensor"):
            gr.checkpoint_name(3, "n")  # type: ignore[arg-type]


class TestCustomJvp:
    def test_the_rule_serves_both_modes_and_all_orders(self) -> None:
        @gr.custom_jvp
        def cube(x: gr.Tensor) -> gr.Tensor:
            return x**3

        @cube.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            return cube(x), 5 * x**2 * t

        x = gr.asarray(2.0, dtype=gr.float64)
        assert cube(x).item() == 8.0
        assert gr.grad(cube)(x).item() == 20.0
        assert gr.jvp(cube, (x,), (x,))[1].item() == 40.0
        assert gr.grad(gr.grad(cube))(x).item() == 20.0
        assert gr.vmap(gr.grad(cube))(gr.asarray([1.0, 2.0])).tolist() == [5.0, 20.0]
        assert gr.compile(gr.grad(cube))(x).item() == 20.0

    def test_pytrees_integers_and_arguments_without_derivatives(self) -> None:
        @gr.custom_jvp
        def f(p: dict[str, gr.Tensor], i: gr.Tensor) -> Any:
            return {"y": p["a"] * p["b"]}, i

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            p, i = primals
            dp, di = tangents
            assert di.dtype == i.dtype
            return f(p, i), ({"y": dp["a"] * 100 + dp["b"]}, di)

        p = {"a": gr.ones([2]), "b": gr.ones([2]) * 3}
        by = gr.grad(lambda p: f(p, gr.asarray([1]))[0]["y"].sum())(p)
        assert (by["a"].tolist(), by["b"].tolist()) == ([100.0, 100.0], [1.0, 1.0])

    def test_static_arguments(self) -> None:
        def power(n: int, x: gr.Tensor) -> gr.Tensor:
            return x**n

        f = gr.custom_jvp(power, nondiff_argnums=(0,))
        f.defjvp(lambda n, primals, tangents: (primals[0] ** n, n * tangents[0]))
        assert gr.grad(lambda x: f(7, x))(gr.asarray(2.0)).item() == 7.0

    def test_errors(self) -> None:
        f = gr.custom_jvp(gr.sin)
        x = gr.ones([2])
        with pytest.raises(gr.InvalidArgumentError, match="has no rule"):
            f(x)
        grad = gr.grad(lambda x: f(x).sum())
        f.defjvp(lambda p, t: p[0])
        with pytest.raises(gr.InvalidArgumentError, match=r"\(output, tangent\)"):
            grad(x)
        f.defjvp(lambda p, t: (p[0], (t[0], t[0])))
        with pytest.raises(gr.InvalidArgumentError, match="a tangent of the structure"):
            grad(x)
        f.defjvp(lambda p, t: (p[0], t[0].sum()))
        with pytest.raises(gr.GirihError, match="forward rule gives"):
            grad(x)
        f.defjvp(lambda p, t: (p[0], t[0] * t[0]))
        with pytest.raises(gr.GirihError, match="linear"):
            gr.grad(lambda x: f(x).sum())(x)
        w = gr.ones([2])
        g = gr.custom_jvp(lambda x: x * w)
        g.defjvp(lambda p, t: (p[0], t[0]))
        assert gr.grad(lambda x: g(x).sum())(x).tolist() == [1.0, 1.0]

        def outer(w: gr.Tensor) -> gr.Tensor:
            h = gr.custom_jvp(lambda x: x * w)
            h.defjvp(lambda p, t: (p[0] * w, t[0]))
            return h(x).sum()

        with pytest.raises(gr.GirihError, match="pass the tensor as an argument"):
            gr.grad(outer)(w)


class TestCustomVjp:
    def test_the_rule_is_used_in_reverse_mode(self) -> None:
        @gr.custom_vjp
        def f(x: gr.Tensor, y: gr.Tensor) -> gr.Tensor:
            return x * y

        f.defvjp(lambda x, y: (x * y, {"x": x, "n": 2}), lambda r, ct: (r["x"] * ct * r["n"], None))
        x, y = gr.asarray(3.0), gr.asarray(5.0)
        assert f(x, y).item() == 15.0
        assert [g.item() for g in gr.grad(f, (0, 1))(x, y)] == [6.0, 0.0]
        assert gr.compile(gr.grad(f))(x, y).item() == 6.0
        # Forward mode over reverse mode differentiates the reverse rule.
        assert gr.jacfwd(gr.grad(f))(x, y).item() == 2.0
        with pytest.raises(gr.GirihError, match="custom_jvp"):
            gr.jvp(f, (x, y), (x, y))

    def test_on_a_batch(self) -> None:
        f = gr.custom_vjp(lambda w, x: (w * x).sum())
        f.defvjp(
            lambda w, x: ((w * x).sum(), (w, x)), lambda r, ct: (10 * ct * r[1], 10 * ct * r[0])
        )
        w, x = draws(3), draws(4, 3, seed=1)
        by = gr.vmap(gr.grad(f, (0, 1)), in_axes=(None, 0))(w, x)
        close(by[0], 10 * x.numpy())
        close(by[1], np.broadcast_to(10 * w.numpy(), (4, 3)))
        # The cotangents of a shared argument are summed over the members.
        total = gr.grad(lambda w: gr.vmap(f, in_axes=(None, 0))(w, x).sum())(w)
        close(total, 10 * x.numpy().sum(0))

    def test_methods_and_static_arguments(self) -> None:
        class Model:
            scale = 3.0

            @gr.custom_vjp
            def f(self, x: gr.Tensor) -> gr.Tensor:
                return x * self.scale

        Model.f.defvjp(lambda m, x: (x * m.scale, m.scale), lambda s, ct: (None, ct * s * 2))
        assert gr.grad(Model().f)(gr.asarray(1.0)).item() == 6.0

    def test_errors(self) -> None:
        f = gr.custom_vjp(gr.sin)
        x = gr.ones([2])
        with pytest.raises(gr.InvalidArgumentError, match="has no rule"):
            f(x)
        grad = gr.grad(lambda x: f(x).sum())
        f.defvjp(lambda x: x, lambda r, ct: (ct,))
        with pytest.raises(gr.InvalidArgumentError, match=r"\(output, residuals\)"):
            grad(x)
        f.defvjp(lambda x: (x, x), lambda r, ct: ct)
        with pytest.raises(gr.InvalidArgumentError, match="one entry for each of its 1"):
            grad(x)
        f.defvjp(lambda x: (x, x), lambda r, ct: ({"a": ct},))
        with pytest.raises(gr.InvalidArgumentError, match="of structure"):
            grad(x)
        f.defvjp(lambda x: (x, x), lambda r, ct: (ct.sum(),))
        with pytest.raises(gr.GirihError, match="backward part gives"):
            grad(x)


class TestFormsOfCalls:
    def test_graphs_with_calls_are_written_and_read(self) -> None:
        f = gr.checkpoint(lambda x: gr.exp(gr.sin(x)), policy="dots")
        x = gr.ones([2])
        y = gr.grad(lambda x: f(x).sum())(x)
        text = gr.graph_to_text(y)
        assert "call" in text
        assert "isolated" in text
        assert gr.graph_to_text(gr.text_to_graph(text)) == text


class TestLoops:
    def test_a_bounded_loop_has_reverse_mode(self) -> None:
        def root(a: gr.Tensor) -> gr.Tensor:
            def goes_on(c: Any) -> gr.Tensor:
                return gr.abs(c * c - a) > 1e-12

            return gr.while_loop(goes_on, lambda c: (c + a / c) / 2, a, max_iterations=30)

        a = gr.asarray(9.0, dtype=gr.float64)
        close(root(a), 3.0)
        close(gr.grad(root)(a), 1 / 6, 1e-8)
        close(gr.grad(gr.grad(root))(a), -1 / 108, 1e-6)
        assert gr.while_loop(lambda x: x < 100, lambda x: x * 2, 1, max_iterations=3).item() == 8
        assert gr.while_loop(lambda x: x < 100, lambda x: x * 2, 1, max_iterations=0).item() == 1
        with pytest.raises(gr.InvalidArgumentError, match="max_iterations"):
            gr.while_loop(lambda x: x < 100, lambda x: x * 2, 1, max_iterations=-1)

    def test_reverse_mode_keeps_the_carries_of_a_small_loop_and_few_of_a_large_one(self) -> None:
        def slowed(limit: int) -> Any:
            def f(x: gr.Tensor) -> gr.Tensor:
                step = lambda c: (c[0] + 1, gr.sin(c[1]) * 1.01)
                return gr.while_loop(lambda c: c[0] < 90, step, (0, x), limit)[1].sum()

            return f

        def measured(limit: int, size: int) -> tuple[int, np.ndarray]:
            x = gr.linspace(0.0, 3.0, size, dtype=gr.float64)
            by = gr.compile(gr.grad(slowed(limit)))
            found = by(x).numpy()
            return peak_memory(by, x), found

        size = 1 << 12
        # Carries up to 16 MiB are stacked: the stack's size is that of the bound.
        few, expected = measured(100, size)
        many, found = measured(400, size)
        assert 100 * size * 8 < few < 400 * size * 8 < many
        np.testing.assert_array_equal(found, expected)
        # For larger carries, blocks keep the square root of their number; 2,003 steps are not whole
        # blocks.
        for limit in (2000, 2003):
            blocks, found = measured(limit, size)
            assert blocks < many / 3
            np.testing.assert_array_equal(found, expected)

    def test_a_loop_in_blocks_calls_each_step_once_and_draws_anew(self) -> None:
        seen: list[float] = []
        size, limit = 1 << 15, 100

        def step(c: Any) -> Any:
            gr.debug.callback(lambda i: seen.append(float(i)), c[0])
            return c[0] + 1, c[1] + gr.rand([size])

        last = gr.while_loop(lambda c: c[0] < 12, step, (0, gr.zeros([size])), limit)
        total = last[1].numpy()
        gr.synchronize()
        assert sorted(seen) == list(range(12))
        # The sum of 12 draws; if the draws were equal, the deviation would be twelve times that of
        # one.
        assert 0.8 < total.std() < 1.2

    def test_map(self) -> None:
        x = draws(7, 3)
        for batch_size in (None, 1, 3, 7, 20):
            out = gr.map(lambda x: (gr.cumsum(x), x.sum()), x, batch_size=batch_size)
            close(out[0], np.cumsum(x.numpy(), 1))
            close(out[1], x.numpy().sum(1))
        assert gr.map(lambda x: x * 2, gr.zeros([0, 2])).shape == (0, 2)
        assert gr.map(lambda x: x * 2, gr.zeros([0, 2]), batch_size=2).shape == (0, 2)
        with pytest.raises(gr.InvalidArgumentError, match="batch_size"):
            gr.map(gr.sin, x, batch_size=0)

    @pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 8, 13])
    def test_associative_scans(self, length: int) -> None:
        x = draws(2, length)
        for reverse in (False, True):
            out = gr.associative_scan(gr.add, x, reverse=reverse, axis=1).numpy()
            v = x.numpy()[:, ::-1] if reverse else x.numpy()
            expected = np.cumsum(v, 1)
            close(out, expected[:, ::-1] if reverse else expected)
        # A linear recurrence: pairs (a, b) stand for c -> a c + b.
        a, b = draws(length, seed=1), draws(length, seed=2)
        combine = lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1])
        found = gr.associative_scan(combine, (a, b))[1]
        c, expected = 0.0, []
        for i in range(length):
            c = a.numpy()[i] * c + b.numpy()[i]
            expected.append(c)
        close(found, expected)
        if length:
            f = lambda a, b: gr.associative_scan(combine, (a, b))[1].sum()
            g = lambda a, b: gr.scan(lambda c, ab: (ab[0] * c + ab[1],) * 2, 0.0, (a, b))[1].sum()
            for found, plain in zip(
                gr.grad(f, (0, 1))(a, b), gr.grad(g, (0, 1))(a, b), strict=True
            ):
                close(found, plain)


def test_a_rule_gets_the_values_of_the_forward_pass() -> None:
    f = gr.custom_vjp(lambda x, y: gr.exp(x) * y)

    def forward(x: gr.Tensor, y: gr.Tensor) -> tuple[gr.Tensor, dict[str, gr.Tensor]]:
        return gr.exp(x) * y, {"operand": x, "output": gr.exp(x) * y}

    # The gradients are the values passed to the rule.
    f.defvjp(forward, lambda kept, cotangent: (kept["operand"], kept["output"] + cotangent))
    x, y = np.float32([0.5, -0.5]), np.float32([2.0, 3.0])
    operand, output = gr.grad(lambda x, y: (3 * f(x + 1, y)).sum(), argnums=(0, 1))(
        gr.asarray(x), gr.asarray(y)
    )
    np.testing.assert_allclose(operand.numpy(), x + 1, rtol=1e-6)
    np.testing.assert_allclose(output.numpy(), np.exp(x + 1) * y + 3, rtol=1e-6)


def test_stop_gradient_of_a_tree() -> None:
    def f(x: gr.Tensor) -> gr.Tensor:
        fixed = gr.stop_gradient({"x": x, "n": [2.0, None]})
        return (x * fixed["x"] * fixed["n"][0]).sum()

    assert gr.grad(f)(gr.asarray([1.0, 3.0])).tolist() == [2.0, 6.0]
    assert gr.stop_gradient(3).item() == 3
    with pytest.raises(gr.GirihError):
        gr.stop_gradient({"a": "text"})


def test_a_rule_for_each_argument():
    f = gr.custom_jvp(lambda x, y: {"out": x * y})
    f.defjvps(lambda t, out, x, y: {"out": 2 * t * y}, None)
    x, y = gr.asarray(2.0), gr.asarray(3.0)
    assert [g.item() for g in gr.grad(lambda *a: f(*a)["out"], (0, 1))(x, y)] == [6.0, 0.0]
    assert gr.jvp(f, (x, y), (y, y))[1]["out"].item() == 18.0
    f.defjvps(lambda t, out, x, y: {"out": t}, lambda t, out, x, y: {"out": t * out["out"]})
    assert gr.jvp(f, (x, y), (y, y))[1]["out"].item() == 21.0
    f.defjvps(None)
    with pytest.raises(gr.InvalidArgumentError, match="1 rules"):
        gr.jvp(f, (x, y), (y, y))
    with pytest.raises(gr.InvalidArgumentError, match="nondiff_argnums"):
        gr.custom_jvp(lambda n, x: x, nondiff_argnums=[0]).defjvps(None)
