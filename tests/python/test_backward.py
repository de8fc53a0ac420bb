"""The imperative API for gradients: ``requires_grad_``, ``backward``, ``grad``, hooks, ``no_grad``."""

from __future__ import annotations

import gc
import threading
from typing import Any

import girih as gr
import numpy as np
import pytest


def leaf(values: Any) -> gr.Tensor:
    return gr.asarray(values).requires_grad_()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)


class TestBackward:
    def test_gradients_are_those_of_grad(self) -> None:
        rng = np.random.default_rng(0)
        w, x = leaf(rng.normal(size=(3, 4))), gr.asarray(rng.normal(size=(5, 3)))

        def loss(w: gr.Tensor) -> gr.Tensor:
            return (gr.tanh(x @ w) ** 2).mean() + gr.softmax(w, axis=0)[0].sum()

        loss(w).backward()
        assert w.grad is not None
        close(w.grad, gr.grad(loss)(w))
        assert x.grad is None

    def test_backward_after_intermediate_values_were_read(self) -> None:
        x = leaf([1.0, 2.0])
        y = gr.exp(x)
        assert str(y)
        z = y * x
        loss = z.sum()
        assert loss.item() > 0
        loss.backward()
        v = np.array([1.0, 2.0])
        close(x.grad, np.exp(v) * (1 + v))

    def test_nothing_runs_before_a_value_is_asked_for(self) -> None:
        x = leaf([1.0, 2.0])
        before = gr.cache_stats()["runs"]
        (gr.sin(x) * x).sum().backward()
        assert gr.cache_stats()["runs"] == before
        assert gr.is_lazy(x.grad)

    def test_gradients_add_up(self) -> None:
        x = leaf([1.0, 2.0])
        (x * x).sum().backward()
        (x * 3).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [5.0, 7.0]
        x.grad = None
        assert x.grad is None
        x.grad = gr.ones([2])
        (x * 3).sum().backward()
        assert x.grad.tolist() == [4.0, 4.0]

    def test_backward_of_a_non_scalar_needs_a_gradient(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(gr.InvalidArgumentError, match="a gradient is of a scalar"):
            (x * x).backward()
        (x * x).backward(gr.asarray([1.0, 10.0]))
        assert x.grad is not None
        assert x.grad.tolist() == [2.0, 40.0]
        with pytest.raises(gr.InvalidArgumentError, match=r"expected f32\[2\]"):
            (x * x).backward(gr.ones([3]))

    def test_the_tape_is_used_up_unless_it_is_kept(self) -> None:
        x = leaf([1.0])
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad is not None
        assert x.grad.item() == 4.0
        with pytest.raises(gr.InvalidArgumentError, match="retain_graph=True"):
            y.backward()

    def test_gradients_of_gradients(self) -> None:
        x = leaf(2.0)
        (x**3).backward(create_graph=True)
        first = x.grad
        assert first is not None
        x.grad = None
        assert first.requires_grad
        first.backward()
        assert x.grad is not None
        close(x.grad, 12.0)

    def test_one_leaf_used_by_several_results(self) -> None:
        x = leaf([1.0, 2.0, 3.0])
        a, b = gr.split(x * 2, [1])
        (a.sum() * b.sum()).backward()
        assert x.grad is not None
        assert x.grad.tolist() == [20.0, 4.0, 4.0]

    def test_control_flow_and_checkpoints(self) -> None:
        x = leaf([0.5, 1.5])
        last, _ = gr.scan(lambda c, e: (gr.sin(c + e), c), 0.1, x)
        y = last + gr.checkpoint(lambda x: gr.exp(x).sum())(x)
        y.backward()

        def f(x: gr.Tensor) -> gr.Tensor:
            return gr.scan(lambda c, e: (gr.sin(c + e), c), 0.1, x)[0] + gr.exp(x).sum()

        close(x.grad, gr.grad(f)(x.detach()))

    def test_backward_of_a_leaf(self) -> None:
        x = leaf(3.0)
        x.backward()
        assert x.grad is not None
        assert x.grad.item() == 1.0


class TestTracking:
    def test_results_of_tracked_tensors_require_gradients(self) -> None:
        x = leaf([1.0])
        assert x.requires_grad
        assert x.is_leaf
        y = x * 2
        assert y.requires_grad
        assert not y.is_leaf
        assert not gr.ones([1]).requires_grad
        assert gr.ones([1]).is_leaf
        for constant in (y.detach(), gr.argmax(x), x > 0, gr.stop_gradient(y), x.astype(gr.int32)):
            assert not constant.requires_grad
        with gr.no_grad():
            assert not (x * 2).requires_grad
            with gr.enable_grad():
                assert (x * 2).requires_grad
            assert not gr.is_grad_enabled()
        assert gr.is_grad_enabled()

        @gr.no_grad()
        def f(x: gr.Tensor) -> gr.Tensor:
            return x * 2

        assert not f(x).requires_grad

    def test_tracking_can_be_switched_off_for_leaves(self) -> None:
        x = leaf([1.0])
        y = x * 2
        with pytest.raises(gr.InvalidArgumentError, match="detach"):
            y.requires_grad_(False)
        x.requires_grad = False
        assert not (x * 2).requires_grad

    def test_errors(self) -> None:
        with pytest.raises(gr.InvalidArgumentError, match="floating-point"):
            gr.asarray([1]).requires_grad_()
        with pytest.raises(gr.InvalidArgumentError, match="requires no gradient"):
            gr.ones([]).backward()
        with pytest.raises(gr.InvalidArgumentError, match="requires no gradient"):
            gr.ones([]).retain_grad()
        x = leaf([1.0])
        with pytest.raises(gr.InvalidArgumentError, match=r"cannot be f32\[2\]"):
            x.grad = gr.ones([2])

    def test_assignment_in_place(self) -> None:
        x = leaf([1.0, 2.0])
        with pytest.raises(gr.InvalidArgumentError, match="no_grad"):
            x += 1
        (x * x).sum().backward()
        same = x
        with gr.no_grad():
            assert x.grad is not None
            x -= 0.5 * x.grad
        assert same.tolist() == [0.0, 0.0]
        assert same.requires_grad
        assert same.is_leaf
        (same * 3).sum().backward()
        assert same.grad is not None
        assert same.grad.tolist() == [5.0, 7.0]

    def test_a_training_loop(self) -> None:
        rng = np.random.default_rng(0)
        x, true = gr.asarray(rng.normal(size=(64, 3))), np.array([1.0, -2.0, 0.5])
        y = x @ gr.asarray(true)
        w = gr.zeros([3], dtype=gr.float64).requires_grad_()
        for _ in range(200):
            loss = ((x @ w - y) ** 2).mean()
            loss.backward()
            with gr.no_grad():
                assert w.grad is not None
                w -= 0.1 * w.grad
                w.grad = None
        np.testing.assert_allclose(w.numpy(), true, atol=1e-6)

    def test_scopes_belong_to_their_thread(self) -> None:
        x, found = leaf([1.0]), []
        with gr.no_grad():
            thread = threading.Thread(target=lambda: found.append((x * 2).requires_grad))
            thread.start()
            thread.join()
        assert found == [True]

    def test_the_tape_is_freed_with_its_tensors(self) -> None:
        def count() -> int:
            gc.collect()
            return gr.cache_stats()["memory_bytes"]

        x = gr.ones([1000, 100]).requires_grad_()
        gr.eval(x)
        before = count()
        y = x
        for _ in range(10):
            y = gr.sin(y)
            gr.eval(y)
        assert count() > before
        del y
        assert count() == before

    def test_a_long_chain_does_not_recurse(self) -> None:
        x = leaf(1.0)
        y = x
        for i in range(100_000):
            y = y * 1.0000001
            if i % 20_000 == 0:
                gr.eval(y)
        y.backward()
        close(x.grad, y.item())
        del y
        z = x
        for _ in range(100_000):
            z = z + 1.0
        del z


class TestHooks:
    def test_hooks_see_and_change_gradients(self) -> None:
        x, seen = leaf([1.0, 2.0]), []
        h = x * 3
        h.register_hook(lambda g: seen.append(g.tolist()))
        h.register_hook(lambda g: g * 10)
        (h * h).sum().backward()
        assert seen == [[6.0, 12.0]]
        assert x.grad is not None
        assert x.grad.tolist() == [180.0, 360.0]

    def test_hooks_on_several_tensors_and_leaves(self) -> None:
        x = leaf([1.0])
        a = x * 2
        b = a * 5
        a.register_hook(lambda g: g + 1)
        b.register_hook(lambda g: g * 3)
        x.register_hook(lambda g: -g)
        b.retain_grad()
        a.retain_grad()
        (b + a).sum().backward()
        assert b.grad is not None
        assert a.grad is not None
        assert x.grad is not None
        assert (b.grad.item(), a.grad.item(), x.grad.item()) == (3.0, 17.0, -34.0)

    def test_removed_hooks_are_not_called(self) -> None:
        x, seen = leaf([1.0]), []
        handle = x.register_hook(lambda g: seen.append(g))
        handle.remove()
        handle.remove()
        x.sum().backward()
        assert not seen

    def test_errors_of_hooks(self) -> None:
        x = leaf([1.0])
        x.register_hook(lambda g: 1 / 0)
        with pytest.raises(gr.GirihError, match="division"):
            x.sum().backward()
        y = leaf([1.0])
        y.register_hook(lambda g: gr.ones([3]))
        with pytest.raises(gr.GirihError, match=r"expected f32\[1\]"):
            y.sum().backward()
        with pytest.raises(gr.GirihError, match="requires no gradient"):
            gr.ones([1]).register_hook(lambda g: g)


class TestWithTransforms:
    def test_transforms_inside_and_outside(self) -> None:
        w = leaf([2.0, 3.0])
        inner = gr.grad(lambda x: (w * x * x).sum())(gr.ones([2]))
        inner.sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [2.0, 2.0]
        w.grad = None
        gr.vmap(lambda x: (w * x).sum())(gr.ones([4, 2])).sum().backward()
        assert w.grad.tolist() == [4.0, 4.0]

    def test_gradients_leave_compiled_functions(self) -> None:
        w, v = leaf([2.0, 3.0]), leaf([1.0, 4.0])
        f = gr.compile(lambda x: (w * x * x).sum())
        for _ in range(3):  # The first call traces, the others run without Python.
            w.grad = v.grad = None
            y = f(v)
            assert y.requires_grad
            y.backward()
            assert w.grad.tolist() == [1.0, 16.0]
            assert v.grad.tolist() == [4.0, 24.0]
        assert f.num_programs == 1
        # A captured tensor alone, and none of them.
        w.grad = None
        f(gr.ones([2])).backward()
        assert w.grad.tolist() == [1.0, 1.0]
        with gr.no_grad():
            y = f(v)
        assert not y.requires_grad
        assert y.state() == "available"
        assert not gr.compile(lambda x: x * 2)(gr.ones([2])).requires_grad

    def test_compiled_modules_train_in_a_loop(self) -> None:
        def trained(wrap: Any) -> list[float]:
            gr.manual_seed(0)
            model = gr.nn.Sequential(gr.nn.Linear(3, 8), gr.nn.BatchNorm1d(8), gr.nn.Linear(8, 1))
            x = gr.randn([16, 3])
            y = x.sum(1, keepdims=True)
            optimizer = gr.optim.SGD(model.parameters(), lr=0.05)
            called = wrap(model)
            losses = []
            for _ in range(5):
                optimizer.zero_grad()
                loss = gr.nn.mse(called(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return [*losses, *model[1].running_mean.tolist()]

        np.testing.assert_allclose(trained(gr.compile), trained(lambda model: model), rtol=1e-5)

    def test_results_of_compiled_functions_that_take_gradients_require_none(self) -> None:
        w = leaf([2.0])
        y = gr.compile(lambda w: gr.grad(lambda w: (w * w).sum())(w))(w)
        assert y.state() == "available"
        with pytest.raises(gr.InvalidArgumentError, match="compiled functions that take gradients"):
            y.sum().backward()

    def test_modules(self) -> None:
        layer = gr.nn.Linear(3, 2)
        for p in gr.tree.leaves(layer.parameters()):
            p.requires_grad_()
        x = gr.ones([4, 3])
        layer(x).sum().backward()
        close(layer.weight.grad, np.full((2, 3), 4.0))
        close(layer.bias.grad, np.full(2, 4.0))
