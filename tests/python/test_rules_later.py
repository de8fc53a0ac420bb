"""``custom_jvp`` and ``custom_vjp``: when rules are called, how often recorded ops run, and which
values rules may refer to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def close(found: gr.Tensor, expected: Any, tol: float = 1e-6) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tol, atol=tol)


def counted() -> tuple[Any, list[str]]:
    """``x * x`` with a reverse rule that doubles the derivative, and the names of the called
    functions.
    """
    calls: list[str] = []

    @gr.custom_vjp
    def f(x: gr.Tensor) -> gr.Tensor:
        calls.append("f")
        return x * x

    def forward(x: gr.Tensor) -> tuple[gr.Tensor, gr.Tensor]:
        calls.append("forward")
        return x * x, x

    def backward(x: gr.Tensor, ct: gr.Tensor) -> tuple[gr.Tensor]:
        calls.append("backward")
        return (4 * x * ct,)

    f.defvjp(forward, backward)
    return f, calls


def running() -> tuple[Any, list[str]]:
    """As :func:`counted`, with the functions that run when values are computed."""
    ran: list[str] = []

    def noted(name: str, x: gr.Tensor) -> gr.Tensor:
        def note(x: np.ndarray) -> np.ndarray:
            ran.append(name)
            return x

        return gr.pure_callback(note, x, x)

    f = gr.custom_vjp(lambda x: noted("f", x) ** 2)
    f.defvjp(lambda x: (noted("forward", x) ** 2, x), lambda x, ct: (4 * x * noted("back", ct),))
    return f, ran


class TestWhenRulesAreCalled:
    def test_rules_are_called_only_by_derivatives(self) -> None:
        f, calls = counted()
        x = gr.asarray(3.0)
        assert f(x).item() == 9.0
        assert gr.vmap(f)(gr.ones([2])).tolist() == [1.0, 1.0]
        assert gr.compile(f)(x).item() == 9.0
        assert set(calls) == {"f"}
        calls.clear()
        assert gr.grad(f)(x).item() == 12.0
        assert calls == ["f", "forward", "backward"]

    def test_inactive_functions_call_no_rule(self) -> None:
        f, calls = counted()
        g = lambda x, y: f(y) * x
        assert gr.grad(g)(gr.asarray(2.0), gr.asarray(3.0)).item() == 9.0
        assert calls == ["f"]
        dead = lambda x: (f(x), x * 2)[1]
        assert gr.grad(dead)(gr.asarray(2.0)).item() == 2.0
        assert calls == ["f", "f"]

    def test_a_forward_rule_is_called_for_each_order(self) -> None:
        calls: list[int] = []
        f = gr.custom_jvp(gr.exp)

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            calls.append(1)
            y = f(*primals)
            return y, y * tangents[0]

        assert f(gr.asarray(0.0)).item() == 1.0
        assert calls == []
        assert gr.grad(f)(gr.asarray(0.0)).item() == 1.0
        assert len(calls) == 1


class TestRunning:
    @pytest.mark.parametrize("how", ["plain", "compiled", "value", "checkpoint", "call"])
    def test_the_forward_rule_runs_in_place_of_the_function(self, how: str) -> None:
        f, ran = running()
        x = gr.asarray(3.0, dtype=gr.float64)
        g: Callable[..., Any] = f
        if how == "checkpoint":
            g = gr.checkpoint(f)
        if how == "call":
            g = gr.custom_op(f, name="outer", takes="tensors")
        if how == "value":
            value, slope = gr.value_and_grad(g)(x)
            gr.eval(value, slope)
            assert value.item() == 9.0
        elif how == "compiled":
            slope = gr.compile(gr.grad(g))(x)
        else:
            slope = gr.grad(g)(x)
        assert slope.item() == 12.0
        assert "f" not in ran
        assert ran.count("back") == 1
        if how != "checkpoint":
            assert ran.count("forward") <= 1

    def test_within_loops_and_branches(self) -> None:
        x = gr.asarray(1.5, dtype=gr.float64)
        for body in (
            lambda f, x: gr.scan(lambda c, _: (f(c), c), x, None, length=3)[0],
            lambda f, x: gr.fori_loop(0, 3, lambda _, c: f(c), x),
            lambda f, x: f(f(gr.cond(x > 0, f, lambda x: x, x))),
        ):
            f, ran = running()
            value, slope = gr.value_and_grad(lambda x, body=body, f=f: body(f, x))(x)
            gr.eval(value, slope)
            assert value.item() == 1.5**8
            # Each of the three steps doubles the derivative.
            close(slope, 8 * 8 * 1.5**7)
            assert "f" not in ran
            assert ran.count("back") == 3

    def test_effects_are_made_once(self) -> None:
        seen: list[float] = []
        f = gr.custom_vjp(lambda x: x * 2)

        def forward(x: gr.Tensor) -> tuple[gr.Tensor, None]:
            gr.io_callback(lambda v: seen.append(float(v)), None, x)
            return x * 2, None

        def function(x: gr.Tensor) -> gr.Tensor:
            gr.io_callback(lambda v: seen.append(-float(v)), None, x)
            return x * 2

        g = gr.custom_vjp(function)
        g.defvjp(forward, lambda _, ct: (ct * 2,))
        assert gr.grad(g)(gr.asarray(3.0)).item() == 2.0
        assert seen == [3.0]
        seen.clear()
        assert g(gr.asarray(3.0)).item() == 6.0
        assert seen == [-3.0]
        f.defvjp(forward, lambda _, ct: (ct * 2,))


class TestRecursion:
    @staticmethod
    def exponential() -> Any:
        f = gr.custom_jvp(lambda x: gr.exp(x))
        f.defjvp(lambda p, t: (f(p[0]), f(p[0]) * t[0]))
        return f

    def test_a_recursive_rule_has_derivatives_of_any_order(self) -> None:
        f = self.exponential()
        x = gr.asarray(0.5, dtype=gr.float64)
        g = j = f
        for _ in range(4):
            g = gr.grad(g)
            j = lambda x, j=j: gr.jvp(j, (x,), (gr.ones_like(x),))[1]
            close(g(x), np.exp(0.5))
            close(j(x), np.exp(0.5))
        close(gr.jacfwd(gr.grad(gr.grad(f)))(x), np.exp(0.5))
        close(gr.compile(gr.grad(gr.grad(gr.grad(f))))(x), np.exp(0.5))

    def test_hessian_of_a_gradient(self) -> None:
        f = self.exponential()
        x = gr.asarray([0.5, -1.0], dtype=gr.float64)
        found = gr.hessian(lambda x: gr.grad(lambda x: f(x).sum())(x).sum())(x)
        close(found, np.diag(np.exp(x.numpy())))

    def test_a_rule_that_is_wrong_stays_wrong_at_all_orders(self) -> None:
        f = gr.custom_jvp(lambda x: gr.exp(x))
        f.defjvp(lambda p, t: (f(p[0]), 2 * f(p[0]) * t[0]))
        x = gr.asarray(0.0, dtype=gr.float64)
        g = f
        for order in range(1, 5):
            g = gr.grad(g)
            assert g(x).item() == 2.0**order

    def test_on_batches_and_in_loops(self) -> None:
        f = self.exponential()
        x = gr.asarray([0.5, -1.0, 2.0], dtype=gr.float64)
        third = gr.grad(gr.grad(gr.grad(f)))
        close(gr.vmap(third)(x), np.exp(x.numpy()))
        summed = gr.grad(lambda x: gr.vmap(gr.grad(gr.grad(f)))(x).sum())
        close(summed(x), np.exp(x.numpy()))
        of_batch = gr.grad(lambda x: gr.grad(lambda x: gr.vmap(f)(x).sum())(x).sum())
        close(of_batch(x), np.exp(x.numpy()))
        looped = lambda x: gr.scan(lambda c, v: (c + f(v), None), x[0] * 0, x)[0]
        close(gr.hessian(looped)(x), np.diag(np.exp(x.numpy())))
        chosen = lambda x: gr.cond(x > 0, f, lambda x: x * x, x)
        close(gr.grad(gr.grad(chosen))(x[0]), np.exp(0.5))
        kept = gr.checkpoint(f)
        close(gr.grad(gr.grad(gr.grad(kept)))(x[0]), np.exp(0.5))

    def test_a_reverse_rule_that_calls_its_function(self) -> None:
        f = gr.custom_vjp(lambda x: gr.exp(x))
        f.defvjp(lambda x: (f(x), x), lambda x, ct: (f(x) * ct,))
        g = f
        x = gr.asarray(0.5, dtype=gr.float64)
        for _ in range(4):
            g = gr.grad(g)
            close(g(x), np.exp(0.5))


class TestWhatRulesReferTo:
    def test_data_made_in_a_rule(self) -> None:
        f = gr.custom_jvp(lambda x: x.sum())
        f.defjvp(lambda p, t: (p[0].sum(), (t[0] * gr.asarray(np.arange(3.0))).sum()))
        x = gr.ones([3], dtype=gr.float64)
        assert gr.grad(f)(x).tolist() == [0.0, 1.0, 2.0]
        batch = gr.ones([2, 3], dtype=gr.float64)
        assert gr.vmap(gr.grad(f))(batch).tolist() == [[0.0, 1.0, 2.0]] * 2
        assert gr.grad(lambda b: gr.vmap(f)(b).sum())(batch).tolist() == [[0.0, 1.0, 2.0]] * 2
        looped = lambda x: gr.fori_loop(0, 2, lambda _, c: c + f(x), gr.zeros([], dtype=x.dtype))
        assert gr.grad(looped)(x).tolist() == [0.0, 2.0, 4.0]
        assert gr.compile(gr.grad(looped))(x).tolist() == [0.0, 2.0, 4.0]
        kept = gr.checkpoint(lambda x: gr.cond(x[0] > 0, f, lambda x: x[0], x))
        assert gr.grad(kept)(x).tolist() == [0.0, 1.0, 2.0]

    def test_tensors_outside(self) -> None:
        w = gr.asarray([2.0, 3.0])
        f = gr.custom_vjp(lambda x: (x * w).sum())
        f.defvjp(lambda x: ((x * w).sum(), None), lambda _, ct: (ct * w * 10,))
        assert gr.grad(f)(gr.ones([2])).tolist() == [20.0, 30.0]

    def test_arguments_of_functions_being_traced(self) -> None:
        def member(x: gr.Tensor, w: gr.Tensor) -> gr.Tensor:
            f = gr.custom_jvp(lambda x: x * w)
            f.defjvp(lambda p, t: (p[0] * w, t[0] * w * 10))
            return f(x)

        x, w = gr.asarray([1.0, 2.0]), gr.asarray([3.0, 5.0])
        # Batching before differentiation, and after it.
        assert gr.grad(lambda x: gr.vmap(member)(x, w).sum())(x).tolist() == [30.0, 50.0]
        assert gr.vmap(gr.grad(member))(x, w).tolist() == [30.0, 50.0]
        assert gr.compile(gr.vmap(gr.grad(member)))(x, w).tolist() == [30.0, 50.0]
        with pytest.raises(gr.GirihError, match="pass the tensor as an argument"):
            gr.grad(member, argnums=1)(x[0], w[0])

    def test_collectives(self) -> None:
        f = gr.custom_jvp(lambda x: x)
        f.defjvp(lambda p, t: (p[0], gr.psum(t[0], "i")))
        named = lambda x: gr.vmap(f, axis_name="i")(x).sum()
        assert gr.grad(named)(gr.ones([3])).tolist() == [3.0] * 3

    def test_errors_are_those_of_the_rule(self) -> None:
        f = gr.custom_jvp(gr.sin)

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            raise KeyError("of the rule")

        assert f(gr.asarray(0.0)).item() == 0.0
        with pytest.raises(KeyError, match="of the rule"):
            gr.grad(f)(gr.asarray(0.0))


class TestFiles:
    def test_rules_are_recorded_for_a_file(self, tmp_path: Path) -> None:
        f = TestRecursion.exponential()
        g = gr.custom_vjp(lambda x: x)
        g.defvjp(lambda x: (x, None), lambda _, ct: (ct * gr.asarray(np.float32([3.0, 4.0])),))
        graph = gr.make_graph(lambda x: f(g(x)).sum())(gr.zeros([2]))
        assert "call" in graph.text
        text = gr.graph_to_text(f(gr.zeros([2])))
        assert gr.graph_to_text(gr.text_to_graph(text)) == text


def test_the_gradient_of_the_largest_of_all_members_is_linear_in_their_number() -> None:
    def peak(n: int) -> int:
        x = gr.asarray(np.random.default_rng(0).standard_normal((n, 64)))
        largest = lambda v: (gr.pmax(v, "i") * v).sum()
        grad = gr.grad(lambda x: gr.vmap(largest, axis_name="i")(x).sum())
        gr.eval(grad(x))
        gr.reset_peak_memory_stats()
        before = gr.memory_stats().in_use
        gr.eval(grad(x))
        return gr.memory_stats().peak - before

    small, large = peak(64), peak(512)
    assert large < 16 * small + (1 << 20)


@pytest.mark.parametrize("of", ["pmax", "pmin"])
def test_the_gradient_of_extremes_of_members(of: str) -> None:
    x = np.float64([[1.0, 5.0], [3.0, 5.0], [3.0, -2.0], [0.0, -2.0]])
    f = lambda v: (getattr(gr, of)(v, "i") * gr.arange(2, dtype=gr.float64)).sum()
    total = lambda x: gr.vmap(f, axis_name="i")(x).sum()
    best = x.max(0) if of == "pmax" else x.min(0)
    is_it = x == best
    close(gr.grad(total)(gr.asarray(x)), 4 * np.arange(2.0) * is_it / is_it.sum(0))
    along = np.random.default_rng(0).standard_normal(x.shape)
    value, tangent = gr.jvp(total, (gr.asarray(x),), (gr.asarray(along),))
    close(value, 4 * (best * np.arange(2.0)).sum())
    close(tangent, 4 * (np.arange(2.0) * is_it / is_it.sum(0) * along).sum())
    close(gr.hessian(total)(gr.asarray(x)), np.zeros((4, 2, 4, 2)))
