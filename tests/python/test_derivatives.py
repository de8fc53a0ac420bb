"""``jvp``, ``vjp``, ``linearize``, Jacobians, and the laws that relate them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import girih as gr
import numpy as np
import pytest
from conftest import peak_memory


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=1e-6)


def draws(*shape: int, seed: int = 0, dtype: str = "float64") -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def mlp(w: dict[str, gr.Tensor], x: gr.Tensor) -> gr.Tensor:
    return gr.tanh(x @ w["a"] + w["b"]) @ w["c"]


def weights() -> dict[str, gr.Tensor]:
    return {"a": draws(3, 4), "b": draws(4, seed=1), "c": draws(4, 2, seed=2)}


class TestLaws:
    def test_the_pullback_is_the_transpose_of_the_pushforward(self) -> None:
        w, x = weights(), draws(5, 3, seed=3)
        dw = {k: draws(*v.shape, seed=7) for k, v in w.items()}
        y, dy = gr.jvp(lambda w: mlp(w, x), (w,), (dw,))
        ct = draws(*y.shape, seed=8)
        _, pullback = gr.vjp(lambda w: mlp(w, x), w)
        (back,) = pullback(ct)
        close((ct * dy).sum(), sum((back[k] * dw[k]).sum().item() for k in w), 1e-10)

    def test_linearize_is_jvp(self) -> None:
        w, x = weights(), draws(5, 3, seed=3)
        y, push = gr.linearize(mlp, w, x)
        for seed in (1, 2):
            tangents = ({k: draws(*v.shape, seed=seed) for k, v in w.items()}, draws(5, 3, seed=9))
            expected = gr.jvp(mlp, (w, x), tangents)
            close(push(*tangents), expected[1], 1e-12)
            close(y, expected[0], 1e-12)

    def test_the_two_jacobians_are_equal(self) -> None:
        x = draws(3)
        for f in (lambda x: gr.outer(x, gr.sin(x)), gr.cumsum, lambda x: x.sum(), gr.sort):
            close(gr.jacfwd(f)(x), gr.jacrev(f)(x), 1e-10)

    def test_a_hessian_is_symmetric_and_its_products_are_hvp(self) -> None:
        x, v = draws(4), draws(4, seed=5)

        def f(x: gr.Tensor) -> gr.Tensor:
            return (gr.exp(x) * gr.roll(x, 1)).sum() ** 2

        h = gr.hessian(f)(x).numpy()
        close(h, h.T, 1e-10)
        close(gr.hvp(f, (x,), (v,)), h @ v.numpy(), 1e-10)

    def test_a_linear_function_is_its_own_derivative_and_its_transpose_its_pullback(self) -> None:
        a, x = draws(3, 4), draws(4, seed=1)
        transpose = gr.linear_transpose(lambda x: a @ x, gr.zeros([4], dtype=gr.float64))
        ct = draws(3, seed=2)
        close(transpose(ct)[0], a.numpy().T @ ct.numpy(), 1e-12)
        close(gr.jvp(lambda x: a @ x, (x,), (x,))[1], a @ x, 1e-12)

    def test_a_transpose_is_of_linear_functions_only(self) -> None:
        x = draws(4)
        linear = {
            "loop": lambda x: gr.scan(lambda c, _: (c * 2 + x, c[0]), gr.zeros_like(x), length=3),
            "branch": lambda x: gr.cond(gr.asarray(True), lambda v: v * 3, lambda v: -v, x),
            "selected": lambda x: gr.where(gr.asarray([True, False] * 2), x[::-1], 0) + 5,
            "pair": lambda x: {"a": gr.fft.rfft(x).real, "b": gr.take(x, gr.asarray([0, 0]))},
        }
        for name, f in linear.items():
            pullback, ct = gr.linear_transpose(f, x), gr.tree.map(gr.ones_like, f(x))
            expected = gr.vjp(f, x)[1](ct)[0]
            close(pullback(ct)[0], expected, 1e-12)
            assert expected.shape == x.shape, name
        for f, op in [
            (gr.sin, "sin is not linear in operand 1"),
            (lambda x: x * x, "mul is not linear in operands 1 and 2 together"),
            (lambda x: gr.where(x > 0, x, -x), "gt is not linear"),
            (lambda x: gr.cond(x.sum() > 0, lambda v: v, lambda v: -v, x), "gt is not linear"),
            (lambda x: gr.scan(lambda c, _: (c * x, c[0]), x, length=3), "mul is not linear"),
            (gr.checkpoint(lambda x: gr.exp(x)), "exp is not linear"),
        ]:
            with pytest.raises(gr.InvalidArgumentError, match=op):
                gr.linear_transpose(f, x)
        with pytest.raises(gr.InvalidArgumentError, match=r"tanh .* at .*test_derivatives.py:\d+"):
            gr.linear_transpose(lambda x: gr.tanh(x).sum(), x)


class TestArguments:
    def test_pytrees_of_all_kinds(self) -> None:
        class Pair(NamedTuple):
            a: gr.Tensor
            b: gr.Tensor

        @dataclasses.dataclass
        class Box:
            x: gr.Tensor
            name: str = dataclasses.field(default="n", metadata={"static": True})

        def f(p: Pair, box: Box, rest: list[Any]) -> dict[str, Any]:
            return {"y": p.a * p.b + box.x, "z": (rest[0]["w"],)}

        one = gr.ones([2])
        args = (Pair(one * 2, one * 3), Box(one), [{"w": one}])
        y, dy = gr.jvp(f, args, args)
        close(y["y"], [7, 7])
        close(dy["y"], [13, 13])
        _, pullback = gr.vjp(f, *args)
        pair, box, rest = pullback(y)
        assert isinstance(pair, Pair)
        assert isinstance(box, Box)
        assert box.name == "n"
        close(pair.a, [21, 21])
        close(rest[0]["w"], [1, 1])

    def test_one_tensor_passed_twice_is_two_variables(self) -> None:
        x = gr.asarray(3.0)
        a, b = gr.vjp(lambda a, b: a * a * b, x, x)[1](gr.asarray(1.0))
        assert (a.item(), b.item()) == (18.0, 9.0)
        assert gr.grad(lambda a, b: a * a * b, (0, 1))(x, x)[0].item() == 18.0

    def test_unused_and_integer_arguments_get_zeros(self) -> None:
        x, i = gr.asarray([1.0, 2.0]), gr.asarray([1, 0])
        _, pullback = gr.vjp(lambda x, i, unused: x[i], x, i, gr.ones([3]))
        of_x, of_i, of_unused = pullback(gr.asarray([5.0, 7.0]))
        close(of_x, [7, 5])
        assert of_i.dtype == gr.int64
        assert of_i.tolist() == [0, 0]
        assert of_unused.tolist() == [0.0, 0.0, 0.0]
        _y, dy = gr.jvp(lambda x, i: (x[i], i), (x, i), (x, i))
        close(dy[0], [2, 1])
        assert dy[1].tolist() == [0, 0]

    def test_ops_without_a_derivative_give_zeros(self) -> None:
        x = gr.asarray([1.0, 3.0, 2.0])
        f = lambda x: gr.argmax(x).astype(gr.float32) * 2.0
        assert gr.grad(f)(x).tolist() == [0.0, 0.0, 0.0]
        assert gr.vjp(f, x)[1](gr.asarray(1.0))[0].tolist() == [0.0, 0.0, 0.0]
        assert gr.jvp(f, (x,), (x,))[1].item() == 0.0

    def test_auxiliary_outputs(self) -> None:
        def f(x: gr.Tensor) -> Any:
            return x * x, {"twice": x * 2, "note": "kept"}

        x = gr.asarray([3.0])
        _, dy, aux = gr.jvp(f, (x,), (x,), has_aux=True)
        assert (dy.item(), aux["twice"].item(), aux["note"]) == (18.0, 6.0, "kept")
        _, pullback, aux = gr.vjp(f, x, has_aux=True)
        assert (pullback(gr.ones([1]))[0].item(), aux["twice"].item()) == (6.0, 6.0)
        _y, push, aux = gr.linearize(f, x, has_aux=True)
        assert push(gr.ones([1])).item() == 6.0
        jacobian, aux = gr.jacrev(f, has_aux=True)(x)
        assert jacobian.tolist() == [[6.0]]
        assert aux["note"] == "kept"
        assert gr.jacfwd(f, has_aux=True)(x)[0].tolist() == [[6.0]]

    def test_jacobians_by_several_arguments_and_of_several_outputs(self) -> None:
        def f(x: gr.Tensor, p: dict[str, gr.Tensor]) -> Any:
            return {"s": x * p["a"], "t": (x.sum() + p["b"].sum(),)}

        x, p = draws(2), {"a": draws(2, seed=1), "b": draws(2, 2, seed=2)}
        for transform in (gr.jacfwd, gr.jacrev):
            by = transform(f, argnums=(0, 1))(x, p)
            close(by["s"][0], np.diag(p["a"].numpy()))
            close(by["s"][1]["b"], np.zeros((2, 2, 2)))
            close(by["t"][0][1]["b"], np.ones((2, 2)))
            close(transform(f, argnums=-1)(x, p)["s"]["a"], np.diag(x.numpy()))

    @pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3)])
    def test_scalar_and_empty_arguments(self, shape: tuple[int, ...]) -> None:
        x = gr.ones(shape)
        assert gr.jvp(gr.sin, (x,), (x,))[1].shape == shape
        assert gr.jacfwd(gr.sin)(x).shape == shape + shape
        assert gr.jacrev(gr.sin)(x).shape == shape + shape

    def test_complex_arguments(self) -> None:
        z = gr.asarray(1.0 + 2.0j)
        assert gr.jacfwd(lambda z: z * z, holomorphic=True)(z).item() == 2 + 4j
        assert gr.jacrev(lambda z: z * z, holomorphic=True)(z).item() == 2 + 4j
        _y, dy = gr.jvp(lambda z: gr.abs(z), (z,), (gr.asarray(1.0 + 0.0j),))
        close(dy, 1 / np.sqrt(5))
        assert gr.grad(lambda z: z**3, holomorphic=True)(z).item() == pytest.approx(
            3 * (1 + 2j) ** 2
        )
        value, by = gr.value_and_grad(gr.exp, holomorphic=True)(z)
        close(by, value)
        with pytest.raises(gr.DTypeError, match="must return a complex tensor"):
            gr.grad(gr.abs, holomorphic=True)(z)
        with pytest.raises(gr.DTypeError, match="holomorphic=True"):
            gr.jacfwd(lambda z: z * z)(z)
        with pytest.raises(gr.DTypeError, match="must be complex"):
            gr.jacfwd(lambda z: z * z, holomorphic=True)(gr.asarray(1.0))

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_tangents_have_the_dtype_of_their_values(self, dtype: str) -> None:
        x = gr.ones([2], dtype=getattr(gr, dtype))
        assert gr.jvp(gr.tanh, (x,), (x,))[1].dtype.name == dtype
        assert gr.jacfwd(gr.tanh)(x).dtype.name == dtype
        assert gr.jacrev(gr.tanh)(x).dtype.name == dtype


def compiled() -> tuple[int, int]:
    """The number of programs looked up so far."""
    stats = gr.cache_stats()
    return stats["hits"], stats["misses"]


class TestLaziness:
    def test_nothing_runs_until_a_value_is_asked_for(self) -> None:
        w, x = weights(), draws(5, 3)
        before = compiled()
        y, push = gr.linearize(mlp, w, x)
        t = push(w, x)
        assert gr.is_lazy(y)
        assert gr.is_lazy(t)
        assert gr.is_lazy(gr.hessian(lambda x: gr.sin(x).sum())(draws(3)))
        assert compiled() == before

    def test_the_function_is_called_once(self) -> None:
        calls = []

        def f(x: gr.Tensor) -> gr.Tensor:
            calls.append(1)
            return gr.sin(x)

        x = gr.ones([3])
        gr.jacfwd(f)(x), gr.jacrev(f)(x), gr.vjp(f, x), gr.linearize(f, x)
        assert len(calls) == 4
        scalar = lambda x: f(x).sum()
        gr.grad(scalar)(x), gr.value_and_grad(scalar)(x), gr.jvp(f, (x,), (x,))
        gr.vmap(f)(x), gr.checkpoint(f)(x), gr.grad(gr.checkpoint(scalar))(x)
        assert len(calls) == 10

    def test_a_hessian_by_arguments_with_extras_and_of_complex_numbers(self) -> None:
        x, y = draws(3), draws(3, seed=1)
        f = lambda x, y: (x**2 * y).sum()
        close(gr.hessian(f, argnums=1)(x, y), np.zeros((3, 3)))
        (xx, xy), (yx, _) = gr.hessian(f, argnums=(0, 1))(x, y)
        close(xx, np.diag(2 * y.numpy()))
        close(xy, np.diag(2 * x.numpy()))
        close(yx, np.diag(2 * x.numpy()))
        by, extra = gr.hessian(lambda x: ((x**3).sum(), {"n": 3}), has_aux=True)(x)
        close(by, np.diag(6 * x.numpy()))
        assert extra == {"n": 3}
        z = gr.asarray([1 + 2j, 3 - 1j])
        close(gr.hessian(lambda z: (z**3).sum(), holomorphic=True)(z), np.diag(6 * z.numpy()))

    def test_classes_that_are_registered_go_through_transforms(self) -> None:
        class Point:
            def __init__(self, x: Any, y: Any) -> None:
                self.x, self.y = x, y

        gr.tree.register(Point, lambda p: ((p.x, p.y), None), lambda _, leaves: Point(*leaves))
        point = Point(gr.asarray([1.0, 2.0]), gr.asarray([3.0, 4.0]))
        f = lambda p: (p.x**2 * p.y).sum()
        for by in (gr.grad(f)(point), gr.grad(gr.checkpoint(f))(point)):
            assert isinstance(by, Point)
            assert (by.x.tolist(), by.y.tolist()) == ([6.0, 16.0], [1.0, 4.0])
        assert gr.vmap(f)(point).tolist() == [3.0, 16.0]
        value, change = gr.jvp(lambda p: Point(p.y, p.x), (point,), (point,))
        assert value.x.tolist() == change.x.tolist() == [3.0, 4.0]

    def test_a_pushforward_after_the_value_was_printed(self) -> None:
        x = gr.asarray([1.0, 2.0])
        y, push = gr.linearize(lambda x: gr.exp(x) * x, x)
        _, pullback = gr.vjp(lambda x: gr.exp(x) * x, x)
        str(y)
        expected = np.exp([1.0, 2.0]) * (1 + np.array([1.0, 2.0]))
        close(push(gr.ones([2])), expected)
        close(pullback(gr.ones([2]))[0], expected)
        close(pullback(2 * gr.ones([2]))[0], 2 * expected)


class TestLoops:
    def test_forward_mode_goes_through_an_unbounded_loop(self) -> None:
        def root(a: gr.Tensor) -> gr.Tensor:
            def goes_on(c: Any) -> gr.Tensor:
                return gr.abs(c[0] * c[0] - c[1]) > 1e-12

            return gr.while_loop(goes_on, lambda c: ((c[0] + c[1] / c[0]) / 2, c[1]), (a, a))[0]

        a = gr.asarray(9.0, dtype=gr.float64)
        y, dy = gr.jvp(root, (a,), (gr.ones([], dtype=gr.float64),))
        close(y, 3.0, 1e-10)
        close(dy, 1 / 6, 1e-6)
        with pytest.raises(gr.GirihError, match="max_iterations"):
            gr.grad(root)(a)

    def test_forward_mode_of_a_scan_takes_memory_for_one_step(self) -> None:
        x = gr.ones([1 << 12])
        gr.eval(x)

        def peak(steps: int) -> int:
            f = lambda x: gr.scan(lambda c, _: (gr.sin(c), None), x, length=steps)[0]
            push = gr.compile(lambda x: gr.jvp(f, (x,), (x,)))
            gr.eval(push(x))
            return peak_memory(push, x)

        assert peak(1000) == peak(10)

    def test_forward_mode_of_a_scan(self) -> None:
        xs = draws(6)

        def f(c: gr.Tensor) -> gr.Tensor:
            last, ys = gr.scan(lambda c, x: (gr.sin(c) * x, c * c), c, xs)
            return last + ys.sum()

        c = gr.asarray(0.7, dtype=gr.float64)
        first = gr.jvp(f, (c,), (gr.ones_like(c),))[1]
        close(first, gr.grad(f)(c), 1e-10)
        second = gr.jvp(lambda c: gr.jvp(f, (c,), (gr.ones_like(c),))[1], (c,), (gr.ones_like(c),))
        close(second[1], gr.grad(gr.grad(f))(c), 1e-9)
        close(gr.hessian(f)(c), second[1], 1e-9)


class TestErrors:
    def test_messages_say_what_was_expected(self) -> None:
        x = gr.ones([2])
        with pytest.raises(gr.InvalidArgumentError, match="must be a tuple"):
            gr.jvp(gr.sin, x, (x,))
        with pytest.raises(gr.InvalidArgumentError, match="structure"):
            gr.jvp(gr.sin, (x,), (x, x))
        with pytest.raises(gr.InvalidArgumentError, match=r"float32\[3\].*expected float32\[2\]"):
            gr.jvp(gr.sin, (x,), (gr.ones([3]),))
        with pytest.raises(gr.InvalidArgumentError, match="structure of the output"):
            gr.vjp(gr.sin, x)[1]((x, x))
        with pytest.raises(gr.DTypeError, match="can be differentiated"):
            gr.jvp(lambda i: i, (gr.asarray([1]),), (gr.asarray([1]),))
        with pytest.raises(gr.DTypeError, match="returned a str"):
            gr.vjp(lambda x: "text", x)
        with pytest.raises(gr.InvalidArgumentError, match="positional argument 3"):
            gr.jacfwd(gr.sin, argnums=3)(x)
        with pytest.raises(gr.DTypeError, match=r"output of .* is int64"):
            gr.jacrev(lambda x: gr.argmax(x))(x)

    def test_methods_bind_their_object(self) -> None:
        class Model:
            scale = 3.0

            @gr.jacfwd
            def f(self, x: gr.Tensor) -> gr.Tensor:
                return x * self.scale

        assert Model().f(gr.asarray(1.0)).item() == 3.0
