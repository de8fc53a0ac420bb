"""``split`` and related functions: one op with a result for each part."""

from __future__ import annotations

from typing import Any

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(3)
X = RNG.standard_normal((6, 5))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_are_those_of_numpy(dtype: str, axis: int) -> None:
    x = gr.asarray(X * 10).astype(dtype)
    n = x.astype("float32").numpy()
    for at in ([2], [0, 3], [1, 1, 4], [5], []):
        found = gr.split(x, at, axis=axis)
        wanted = np.split(n, at, axis=axis)
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f.astype("float32").numpy(), w)
    for f, w in zip(gr.array_split(x, 4, axis=axis), np.array_split(n, 4, axis), strict=True):
        np.testing.assert_array_equal(f.astype("float32").numpy(), w)
    for f, w in zip(gr.unstack(x, axis=axis), np.moveaxis(n, axis, 0), strict=True):
        np.testing.assert_array_equal(f.astype("float32").numpy(), w)


def test_split_points_out_of_order_or_range_agree_with_numpy() -> None:
    x = gr.asarray(X)
    for at in ([4, 2], [-2], [2, 9], [-9, 3]):
        for f, w in zip(gr.split(x, at), np.split(X, at), strict=True):
            np.testing.assert_array_equal(f.numpy(), w)
    with pytest.raises(gr.InvalidArgumentError, match="6 elements make no 4 equal parts"):
        gr.split(x, 4)
    with pytest.raises(gr.InvalidArgumentError):
        gr.split(x, 0)
    with pytest.raises(gr.AxisError):
        gr.split(x, 2, axis=2)


def test_empty_axes_and_many_parts() -> None:
    assert [p.shape for p in gr.split(gr.zeros([0, 2]), 3)] == [(0, 2)] * 3
    assert gr.unstack(gr.zeros([0, 2])) == ()
    parts = gr.unstack(gr.arange(300))
    assert [p.item() for p in parts] == list(range(300))
    turned = gr.split(gr.asarray(X).T, 5)
    np.testing.assert_array_equal(turned[3].numpy(), X.T[3:4])


def test_one_part_is_computed_alone_and_has_its_gradient() -> None:
    x = gr.asarray(X)
    a, b, c = gr.split(x * 2, 3)
    np.testing.assert_allclose(b.numpy(), X[2:4] * 2)
    assert a.is_lazy
    assert c.is_lazy

    def f(x: gr.Tensor) -> gr.Tensor:
        _, b, _ = gr.split(x, 3)
        return (b * b).sum()

    wanted = np.zeros_like(X)
    wanted[2:4] = 2 * X[2:4]
    np.testing.assert_allclose(gr.grad(f)(x).numpy(), wanted)
    leaf = gr.asarray(X)
    leaf.requires_grad_()
    f(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), wanted)


def parts(x: gr.Tensor) -> gr.Tensor:
    a, b, c = gr.split(x, 3)
    return (a * b).sum() + gr.sin(c).sum()


def plain(x: gr.Tensor) -> gr.Tensor:
    return (x[:2] * x[2:4]).sum() + gr.sin(x[4:]).sum()


def test_derivatives_and_batches() -> None:
    x, v = gr.asarray(X), gr.asarray(RNG.standard_normal(X.shape))
    for transform in (
        lambda f: gr.grad(f)(x),
        lambda f: gr.jvp(f, (x,), (v,))[1],
        lambda f: gr.hessian(f)(x),
        lambda f: gr.vmap(gr.grad(f))(gr.stack([x, v])),
        lambda f: gr.vmap(f, in_axes=2)(gr.stack([x, v], axis=2)),
        lambda f: gr.compile(gr.grad(gr.checkpoint(f)))(x),
        lambda f: gr.linearize(f, x)[1](v),
    ):
        np.testing.assert_allclose(transform(parts).numpy(), transform(plain).numpy(), rtol=1e-12)


def test_one_program_serves_all_sizes() -> None:
    def f(x: gr.Tensor) -> Any:
        _, b, _ = gr.split(x, 3)
        head, tail = gr.split(x, [2])
        return b, head.sum(), tail

    compiled = gr.compile(f, dynamic_dims={0: {0: "n"}})
    for n in (6, 3, 12):
        x = RNG.standard_normal((n, 2))
        b, head, tail = compiled(gr.asarray(x))
        np.testing.assert_allclose(b.numpy(), x[n // 3 : 2 * n // 3])
        np.testing.assert_allclose(head.numpy(), x[:2].sum())
        np.testing.assert_allclose(tail.numpy(), x[2:])
    assert compiled.num_programs == 1
