"""Compositions of transforms, with each case of the upstream suite: combinations of ``vmap``,
``vjp``, ``jvp`` and the Jacobians have the derivatives of calculus, by formulas and by differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


def draws(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).uniform(0.3, 1.7, size=shape))


def close(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def pulled(f: Callable[..., Any], *args: Any) -> Any:
    """The cotangents of the arguments for a cotangent of ones."""
    out, pullback = gr.vjp(f, *args)
    return pullback(gr.ones_like(out))


def pushed(f: Callable[..., Any], *args: Any) -> Any:
    """The tangent of the result for tangents of ones."""
    return gr.jvp(f, args, tuple(gr.ones_like(x) for x in args))[1]


class TestBatchesOfPullbacks:
    X, Y = draws(3, 4, seed=1), draws(3, 4, seed=2)

    def test_of_a_sum_of_squares(self) -> None:
        close(gr.vmap(lambda x: pulled(lambda x: (x * x).sum(), x)[0])(self.X), 2 * self.X)

    def test_of_two_arguments(self) -> None:
        by_x, by_y = gr.vmap(lambda x, y: pulled(lambda x, y: (x * y).sum(), x, y))(self.X, self.Y)
        close(by_x, self.Y)
        close(by_y, self.X)

    def test_of_an_elementwise_op(self) -> None:
        close(gr.vmap(lambda x: pulled(gr.exp, x)[0])(self.X), np.exp(self.X.numpy()))

    def test_of_a_product_with_a_shared_matrix(self) -> None:
        x, w = draws(2, 3, 4, seed=1), draws(4, 5, seed=2)
        found = gr.vmap(lambda x: pulled(lambda x: (x @ w).sum(), x)[0])(x)
        close(found, np.broadcast_to(w.numpy().sum(1), (2, 3, 4)))


class TestBatchesOfPushforwards:
    X, Y = draws(3, 4, seed=1), draws(3, 4, seed=2)

    def test_of_a_sum_of_squares(self) -> None:
        found = gr.vmap(lambda x: pushed(lambda x: (x * x).sum(), x))(self.X)
        close(found, 2 * self.X.numpy().sum(1))

    def test_of_two_arguments(self) -> None:
        found = gr.vmap(lambda x, y: pushed(lambda x, y: x * y, x, y))(self.X, self.Y)
        close(found, self.X.numpy() + self.Y.numpy())

    def test_of_an_elementwise_op(self) -> None:
        close(gr.vmap(lambda x: pushed(gr.log, x))(self.X), 1 / self.X.numpy())


class TestBatchesOfBatches:
    def test_of_one_argument(self) -> None:
        x = draws(2, 3, 4)
        close(gr.vmap(gr.vmap(lambda x: (x * x).sum()))(x), (x.numpy() ** 2).sum(-1))

    def test_of_two_arguments(self) -> None:
        x, y = draws(2, 3, 4, seed=1), draws(2, 3, 4, seed=2)
        close(gr.vmap(gr.vmap(gr.mul))(x, y), x.numpy() * y.numpy())


class TestBothModes:
    def test_agree_on_a_number(self) -> None:
        x = gr.asarray(2.0, dtype=gr.float64)

        def f(x: gr.Tensor) -> gr.Tensor:
            return gr.exp(gr.sin(x))

        expected = np.cos(2.0) * np.exp(np.sin(2.0))
        close(pushed(f, x), expected)
        close(pulled(f, x)[0], expected)

    def test_agree_in_each_direction(self) -> None:
        x = draws(4)

        def f(x: gr.Tensor) -> gr.Tensor:
            return (x * x).sum()

        (gradient,) = pulled(f, x)
        for i, direction in enumerate(np.eye(4)):
            close(gr.jvp(f, (x,), (gr.asarray(direction),))[1], gradient[i])


class TestHigherOrders:
    def test_a_batch_of_a_function_that_uses_both_modes(self) -> None:
        x = draws(2, 3)

        def f(x: gr.Tensor) -> gr.Tensor:
            tangent = pushed(lambda x: gr.exp(x).sum(), x)
            return tangent + pulled(lambda x: gr.sin(x).sum(), x)[0].sum()

        expected = (np.exp(x.numpy()) + np.cos(x.numpy())).sum(1)
        close(gr.vmap(f)(x), expected)

    def test_a_batch_of_batches_of_pullbacks(self) -> None:
        x = draws(2, 3, 4)
        close(gr.vmap(gr.vmap(lambda x: pulled(lambda x: (x * x).sum(), x)[0]))(x), 2 * x.numpy())


def cubes(x: gr.Tensor) -> gr.Tensor:
    """A function whose Hessian is ``diag(6 x)``."""
    return (x * x * x).sum()


class TestNestedJacobians:
    X = draws(4)
    HESSIAN = np.diag(6 * X.numpy())

    def test_forward_of_reverse(self) -> None:
        close(gr.jacfwd(gr.jacrev(cubes))(self.X), self.HESSIAN)

    def test_reverse_of_forward(self) -> None:
        close(gr.jacrev(gr.jacfwd(cubes))(self.X), self.HESSIAN)

    def test_every_order_gives_the_same(self) -> None:
        forms = [
            a(b(cubes))(self.X) for a in (gr.jacfwd, gr.jacrev) for b in (gr.jacfwd, gr.jacrev)
        ]
        for found in (*forms, gr.hessian(cubes)(self.X)):
            close(found, self.HESSIAN)


class TestAgainstFormulas:
    @pytest.mark.parametrize("shape", [(3,), (2, 3)])
    def test_gradients(self, shape: tuple[int, ...]) -> None:
        x = draws(*shape, seed=11)
        found = gr.grad(lambda x: gr.exp(gr.sin(x)).sum())(x)
        close(found, np.cos(x.numpy()) * np.exp(np.sin(x.numpy())))

    @pytest.mark.parametrize("shape", [(4,), (2, 3)])
    def test_directional_derivatives(self, shape: tuple[int, ...]) -> None:
        x, t = draws(*shape, seed=17), draws(*shape, seed=117)
        _, found = gr.jvp(lambda x: (gr.exp(x) * gr.sin(x)).sum(), (x,), (t,))
        slope = np.exp(x.numpy()) * (np.sin(x.numpy()) + np.cos(x.numpy()))
        close(found, (slope * t.numpy()).sum())

    def test_the_pullback_of_a_bilinear_function(self) -> None:
        x, y = draws(3, 4, seed=23), draws(3, 4, seed=29)
        by_x, by_y = pulled(lambda x, y: (x * y).sum(), x, y)
        close(by_x, y)
        close(by_y, x)

    def test_a_jacobian_of_a_vector(self) -> None:
        x = draws(4, seed=31)
        expected = np.diag(np.exp(x.numpy()) + 2 * x.numpy())
        close(gr.jacrev(lambda x: gr.exp(x) + x * x)(x), expected)

    @pytest.mark.parametrize("jacobian", [gr.jacrev, gr.jacfwd])
    def test_a_batch_of_jacobians(self, jacobian: Any) -> None:
        x = draws(3, 4, seed=37)
        found = gr.vmap(jacobian(lambda x: gr.sin(x) * x))(x)
        slope = np.cos(x.numpy()) * x.numpy() + np.sin(x.numpy())
        close(found, np.stack([np.diag(row) for row in slope]))

    def test_a_hessian_through_views_and_reductions(self) -> None:
        x = draws(2, 3, seed=41)

        def f(x: gr.Tensor) -> gr.Tensor:
            return (gr.reshape(x, [3, 2]).unsqueeze(0).sum(axis=2) ** 3).sum()

        # Elements that are adjacent in memory are summed in pairs.
        pairs = x.numpy().reshape(3, 2).sum(1)
        expected = np.kron(np.diag(6 * pairs), np.ones((2, 2))).reshape(2, 3, 2, 3)
        close(gr.jacfwd(gr.jacrev(f))(x), expected)

    def test_a_batch_of_jacobians_through_views(self) -> None:
        x = draws(2, 3, 4, seed=43)

        def f(x: gr.Tensor) -> gr.Tensor:
            return (gr.moveaxis(x, 0, 1) ** 2).sum(axis=1)

        expected = np.zeros((2, 4, 3, 4))
        for i in range(4):
            expected[:, i, :, i] = 2 * x.numpy()[:, :, i]
        close(gr.vmap(gr.jacrev(f))(x), expected)


HESSIANS = {
    "forward of reverse": lambda f: gr.jacfwd(gr.jacrev(f)),
    "reverse of forward": lambda f: gr.jacrev(gr.jacfwd(f)),
    "reverse of reverse": lambda f: gr.jacrev(gr.jacrev(f)),
}
#: Functions with one reduction or view each, and the shape of the argument.
FUNCTIONS = {
    "sum": (cubes, (4,)),
    "sum along an axis": (lambda x: gr.sin((x * x).sum(axis=0)).sum(), (3, 4)),
    "mean": (lambda x: gr.exp((x * x).mean(axis=-1)).sum(), (3, 4)),
    "reshape": (lambda x: (gr.reshape(x, [12]) ** 3).sum(), (3, 4)),
    "broadcast_to": (lambda x: (gr.broadcast_to(gr.sin(x), [2, 4]) ** 2).sum(), (4,)),
    "moveaxis": (lambda x: (gr.moveaxis(x, 0, 1) ** 3).sum(), (3, 4)),
    "swapaxes": (lambda x: (gr.sin(gr.swapaxes(x, 0, 1)) * gr.swapaxes(x, 0, 1)).sum(), (3, 4)),
    "unsqueeze and squeeze": (lambda x: (x.unsqueeze(0) ** 3).squeeze(0).sum(), (4,)),
    "all in a chain": (
        lambda x: (gr.moveaxis(gr.reshape(x, [2, 6]).unsqueeze(1), 2, 0).sum(axis=2) ** 3).sum(),
        (3, 4),
    ),
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("form", HESSIANS)
def test_hessians_of_reductions_and_views(form: str, function: str) -> None:
    f, shape = FUNCTIONS[function]
    x = draws(*shape, seed=7)
    found = np.asarray(HESSIANS[form](f)(x))
    assert found.shape == shape + shape
    gradient, step = gr.grad(f), 1e-5
    for at in np.ndindex(*shape):
        moved = np.zeros(shape)
        moved[at] = step
        above, below = (np.asarray(gradient(x + gr.asarray(by))) for by in (moved, -moved))
        np.testing.assert_allclose(
            found[(..., *at)], (above - below) / (2 * step), rtol=1e-6, atol=1e-6
        )
