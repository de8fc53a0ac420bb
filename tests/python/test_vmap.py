"""``vmap``: every axis, every kind of control flow, randomness, and composition."""

from __future__ import annotations

from typing import Any, ClassVar

import girih as gr
import numpy as np
import pytest


def draws(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).normal(size=shape))


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=1e-12)


def looped(f: Any, *args: gr.Tensor) -> np.ndarray:
    """The function applied to each member, stacked."""
    return np.stack([f(*(a[i] for a in args)).numpy() for i in range(args[0].shape[0])])


FUNCTIONS = {
    "matmul": (lambda a, b: a @ b, (3, 4, 5), (3, 5, 2)),
    "vector": (lambda a, b: a @ b, (3, 4), (3, 4)),
    "solve": (gr.linalg.solve, (3, 4, 4), (3, 4)),
    "take": (lambda a, b: a[gr.argsort(b)], (3, 4, 2), (3, 4)),
    "along": (
        lambda a, b: gr.take_along_axis(a, gr.argsort(b, axis=0), axis=0),
        (3, 4, 2),
        (3, 4, 2),
    ),
    "set": (lambda a, b: a.at[gr.argsort(b)[:2]].set(b[:2]), (3, 4), (3, 4)),
    "add": (lambda a, b: a.at[gr.argmax(b)].add(1.0), (3, 4), (3, 4)),
    "softmax": (lambda a, b: gr.softmax(a, axis=0) * b, (3, 4, 2), (3, 2)),
    "norm": (lambda a, b: gr.nn.functional.layer_norm(a, [4], weight=b), (3, 2, 4), (3, 4)),
    "convolution": (gr.nn.functional.conv1d, (3, 2, 4, 7), (3, 5, 4, 3)),
    "attention": (
        lambda a, b: gr.nn.functional.scaled_dot_product_attention(a, b, b, is_causal=True),
        (3, 2, 4, 5),
        (3, 2, 4, 5),
    ),
    "einsum": (lambda a, b: gr.einsum("ij,kj->ik", a, b), (3, 4, 5), (3, 2, 5)),
    "where": (lambda a, b: gr.where(a > b, a, b.sum()), (3, 4), (3, 4)),
    "cumsum": (lambda a, b: gr.cumsum(a, axis=-1) - b, (3, 4, 2), (3, 2)),
    "qr": (lambda a, b: gr.linalg.qr(a)[1] + b, (3, 4, 2), (3, 2, 2)),
    "eigh": (lambda a, b: gr.linalg.eigvalsh(a @ a.T) + b, (3, 4, 4), (3, 4)),
    "median": (lambda a, b: gr.median(a) + b, (3, 5), (3, 2)),
    "fft": (lambda a, b: gr.abs(gr.fft.rfft(a)) + b, (3, 8), (3, 5)),
}


class TestFunctions:
    @pytest.mark.parametrize("name", FUNCTIONS)
    @pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
    def test_a_batch_is_each_member(self, name: str, axes: tuple[int | None, int | None]) -> None:
        f, *shapes = FUNCTIONS[name]
        args = [draws(*shape, seed=i) for i, shape in enumerate(shapes)]
        given = [a if axis == 0 else a[0] for a, axis in zip(args, axes, strict=True)]
        expected = np.stack(
            [
                f(
                    *(a[i] if axis == 0 else a[0] for a, axis in zip(args, axes, strict=True))
                ).numpy()
                for i in range(3)
            ]
        )
        close(gr.vmap(f, in_axes=axes)(*given), expected)
        # Derivatives of the batch, in forward and in reverse mode.
        scalar = lambda *xs: (gr.sin(f(*xs)) ** 2).sum()
        by = gr.vmap(gr.grad(scalar, (0, 1)), in_axes=axes)(*given)
        for i in range(3):
            own = [a[i] if axis == 0 else a[0] for a, axis in zip(args, axes, strict=True)]
            for found, alone in zip(by, gr.grad(scalar, (0, 1))(*own), strict=True):
                close(found[i], alone, 1e-8)

    def test_axes_anywhere(self) -> None:
        x = draws(2, 3, 4)
        for axis in (0, 1, 2, -1, -2):
            expected = np.cumsum(np.moveaxis(x.numpy(), axis, 0), axis=1)
            close(gr.vmap(lambda x: gr.cumsum(x, axis=0), in_axes=axis)(x), expected)
            back = gr.vmap(lambda x: x * 2, in_axes=axis, out_axes=axis)(x)
            close(back, 2 * x.numpy())
        # Negative axes in the function are axes of a member.
        close(gr.vmap(lambda x: x.sum(axis=-1))(x), x.numpy().sum(-1))
        close(gr.vmap(gr.vmap(lambda x: x.sum(axis=0)), in_axes=1)(x), x.numpy().sum(2).T)

    def test_axes_by_pytree(self) -> None:
        p = {"a": draws(3, 2), "b": draws(2, seed=1)}
        f = lambda p, x: {"y": p["a"] * p["b"] + x, "z": p["b"]}
        out = gr.vmap(f, in_axes=({"a": 0, "b": None}, None), out_axes={"y": 1, "z": None})(p, 1.0)
        close(out["y"], (p["a"].numpy() * p["b"].numpy() + 1).T)
        assert out["z"].shape == (2,)

    def test_keyword_arguments_have_the_batch_in_front(self) -> None:
        x = draws(3, 2)
        close(gr.vmap(lambda *, x: x.sum())(x=x), x.numpy().sum(1))

    def test_unbatched_results_are_broadcast(self) -> None:
        x, w = draws(3, 2), draws(2, seed=1)
        _y, z = gr.vmap(lambda x: (x + w, gr.exp(w)))(x)
        assert z.shape == (3, 2)
        close(z, np.broadcast_to(np.exp(w.numpy()), (3, 2)))
        assert gr.vmap(lambda: gr.ones([2]), axis_size=4)().shape == (4, 2)
        assert gr.vmap(lambda x: 3)(x).tolist() == [3, 3, 3]

    @pytest.mark.parametrize("size", [0, 1])
    def test_batches_of_size_zero_and_one(self, size: int) -> None:
        x = gr.zeros([size, 3])
        assert gr.vmap(lambda x: x.sum())(x).shape == (size,)
        assert gr.vmap(lambda x: gr.outer(x, x))(x).shape == (size, 3, 3)

    def test_every_dtype(self) -> None:
        for dtype in (gr.bool, gr.int8, gr.uint64, gr.float16, gr.bfloat16, gr.complex64):
            x = gr.ones([3, 2], dtype=dtype)
            y = gr.vmap(lambda x: gr.flip(x, axis=0))(x)
            assert y.dtype == dtype
            assert y.shape == (3, 2)


class TestConvolutions:
    """Convolutions with per-member kernels have one program for every batch size."""

    CASES: ClassVar = {
        "strides and groups": {"stride": 2, "padding": 1, "groups": 2},
        "dilation": {"dilation": 2},
        "a channel per group": {"groups": 4, "padding": 1},
    }

    @pytest.mark.parametrize("case", CASES)
    @pytest.mark.parametrize("images", [True, False])
    @pytest.mark.parametrize("transposed", [False, True])
    def test_one_program_serves_every_batch(self, case, images, transposed):
        options = self.CASES[case]
        op = gr.nn.functional.conv_transpose2d if transposed else gr.nn.functional.conv2d
        groups = options.get("groups", 1)
        rng = np.random.default_rng(0)
        kernel = (4, 3, 3, 3) if transposed else (4, 4 // groups, 3, 3)

        def loss(x, w, b):
            y = op(x, w, b, **options)
            return (y * y).sum()

        f = gr.vmap(gr.value_and_grad(loss, (0, 1, 2)), in_axes=(0 if images else None, 0, 0))
        names = {1: {0: gr.Dim("n", min=1)}, 2: {0: gr.Dim("n", min=1)}}
        if images:
            names[0] = {0: gr.Dim("n", min=1)}
        compiled = gr.compile(f, dynamic_dims=names)
        out = kernel[1] * groups if transposed else kernel[0]
        for n in (2, 1, 5):
            x = gr.asarray(rng.normal(size=((n,) if images else ()) + (2, 4, 7, 6)))
            w, b = (gr.asarray(rng.normal(size=(n, *s))) for s in (kernel, (out,)))
            gr.eval(x, w, b)
            found, expected = compiled(x, w, b), f(x, w, b)
            np.testing.assert_allclose(found[0].numpy(), expected[0].numpy(), rtol=1e-10)
            for a, e in zip(found[1], expected[1], strict=True):
                np.testing.assert_allclose(a.numpy(), e.numpy(), rtol=1e-9, atol=1e-9)
        assert compiled.num_programs == 1, compiled.guards


class TestControlFlow:
    def test_a_batched_predicate_chooses_for_each_member(self) -> None:
        x = gr.asarray([4.0, -3.0, 9.0])
        f = lambda x: gr.cond(x > 0, gr.sqrt, gr.negative, x)
        assert gr.vmap(f)(x).tolist() == [2.0, 3.0, 3.0]
        close(gr.vmap(gr.grad(f))(x), [0.25, -1.0, 1 / 6], 1e-6)

    def test_one_predicate_runs_one_branch(self) -> None:
        x = gr.ones([3, 2])
        f = lambda p, x: gr.cond(p, gr.sin, gr.cos, x)
        text = gr.graph_to_text(gr.vmap(f, in_axes=(None, 0))(gr.asarray(True), x))
        assert "cond" in text

    def test_a_switch_by_batched_index_clamps(self) -> None:
        f = lambda i, x: gr.switch(i, [lambda x: x, lambda x: x * 10, lambda x: -x], x)
        out = gr.vmap(f, in_axes=(0, None))(gr.asarray([-5, 0, 1, 2, 7]), gr.asarray(2.0))
        assert out.tolist() == [2.0, 2.0, 20.0, -2.0, -2.0]

    def test_a_loop_runs_until_no_member_goes_on(self) -> None:
        x = gr.asarray([1.0, 3.0, 200.0])
        f = lambda x: gr.while_loop(
            lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1] + 1), (x, gr.asarray(0))
        )
        y, count = gr.vmap(f)(x)
        assert y.tolist() == [128.0, 192.0, 200.0]
        assert count.tolist() == [7, 6, 0]

    def test_scans_over_batched_carries_and_slices(self) -> None:
        c, xs = draws(3), draws(3, 5, seed=1)

        def f(c: gr.Tensor, xs: gr.Tensor) -> Any:
            return gr.scan(lambda c, x: (gr.sin(c + x), c * x), c, xs)

        for axes in ((0, 0), (0, None), (None, 0)):
            given = [c if axes[0] == 0 else c[0], xs if axes[1] == 0 else xs[0]]
            last, ys = gr.vmap(f, in_axes=axes)(*given)
            for i in range(3):
                a, b = (v[i] if ax == 0 else v for v, ax in zip(given, axes, strict=True))
                alone, stack = f(a, b)
                close(last[i], alone)
                close(ys[i], stack)

    def test_reverse_mode_of_a_batched_scan(self) -> None:
        c, xs = draws(3), draws(3, 5, seed=1)
        f = lambda c, xs: gr.scan(lambda c, x: (gr.sin(c + x), c * x), c, xs)[1].sum()
        by = gr.vmap(gr.grad(f, (0, 1)))(c, xs)
        for i in range(3):
            for found, alone in zip(by, gr.grad(f, (0, 1))(c[i], xs[i]), strict=True):
                close(found[i], alone)


class TestRandomness:
    def test_draws_need_a_randomness_argument(self) -> None:
        x = gr.zeros([4])
        f = lambda x: x + gr.randn([2])
        with pytest.raises(gr.InvalidArgumentError, match="randomness='same'"):
            gr.vmap(f)(x)
        same = gr.vmap(f, randomness="same")(x).numpy()
        assert (same == same[0]).all()
        different = gr.vmap(f, randomness="different")(x).numpy()
        assert len(np.unique(different)) == 8

    @pytest.mark.parametrize("randomness", ["same", "different"])
    def test_draws_inside_of_control_flow_and_transforms(self, randomness: Any) -> None:
        def scanned(x: gr.Tensor) -> gr.Tensor:
            return gr.scan(lambda c, _: (c + gr.rand([4]), None), x + gr.zeros([4]), length=3)[0]

        def branched(x: gr.Tensor) -> gr.Tensor:
            return gr.cond(x > -1.0, lambda x: x + gr.rand([4]), lambda x: x + gr.zeros([4]), x)

        functions = {
            "scan": scanned,
            "cond": branched,
            "checkpoint": gr.checkpoint(scanned),
            "grad": gr.grad(lambda x: (x * gr.rand([4])).sum()),
            "vmap": lambda x: gr.vmap(branched, randomness=randomness)(gr.zeros([2]) + x),
        }
        for name, f in functions.items():
            members = gr.vmap(f, randomness=randomness)(gr.zeros([5])).numpy().reshape(5, -1)
            found = len({row.tobytes() for row in members})
            assert found == (1 if randomness == "same" else 5), name
            with pytest.raises(gr.InvalidArgumentError, match="randomness"):
                gr.vmap(f)(gr.zeros([5]))

    def test_draws_from_outside_are_constants(self) -> None:
        noise = gr.randn([2])
        y = gr.vmap(lambda x: x + noise)(gr.zeros([3])).numpy()
        assert (y == noise.numpy()).all()

    def test_draws_by_keys_follow_the_keys(self) -> None:
        keys = gr.random.split(gr.random.key(3), 4)
        f = lambda key: gr.random.normal((2,), key=key)
        together = gr.vmap(f)(keys)
        close(together, looped(f, keys))


class TestComposition:
    def test_per_example_gradients(self) -> None:
        w, x, y = draws(3, 2), draws(5, 3, seed=1), draws(5, 2, seed=2)
        loss = lambda w, x, y: ((gr.tanh(x @ w) - y) ** 2).sum()
        by = gr.vmap(gr.grad(loss), in_axes=(None, 0, 0))(w, x, y)
        for i in range(5):
            close(by[i], gr.grad(loss)(w, x[i], y[i]))
        close(by.sum(axis=0), gr.grad(lambda w: gr.vmap(loss, (None, 0, 0))(w, x, y).sum())(w))

    def test_deep_compositions(self) -> None:
        x = draws(3, seed=4)
        f = lambda x: gr.sin(x) * gr.exp(x)
        third = gr.vmap(gr.grad(gr.grad(gr.grad(f))))(x)
        v = x.numpy()
        expected = np.exp(v) * 2 * (np.cos(v) - np.sin(v))
        close(third, expected, 1e-9)
        along = lambda f: lambda x: gr.jvp(f, (x,), (gr.ones_like(x),))[1]
        close(gr.vmap(along(gr.grad(along(f))))(x), expected, 1e-9)
        close(gr.vmap(gr.grad(along(along(f))))(x), expected, 1e-9)
        close(along(along(gr.grad(lambda x: gr.vmap(f)(x).sum())))(x), expected, 1e-9)

    def test_inside_compile_one_program_serves_every_batch(self) -> None:
        w = draws(3, 2)
        f = lambda w, x: gr.tanh(x @ w).sum()
        step = gr.compile(gr.vmap(gr.grad(f), in_axes=(None, 0)), dynamic_dims={1: {0: "n"}})
        for size in (3, 4, 9):
            x = draws(size, 3, seed=size)
            close(step(w, x)[0], gr.grad(f)(w, x[0]))
        assert step.num_programs == 1

    def test_reading_a_batched_value_is_an_error(self) -> None:
        with pytest.raises(gr.TracedValueError, match="cond"):
            gr.vmap(lambda x: x if x > 0 else -x)(gr.ones([2]))


class TestErrors:
    def test_messages_say_what_was_expected(self) -> None:
        x = gr.ones([3, 2])
        with pytest.raises(gr.InvalidArgumentError, match="no axis 2"):
            gr.vmap(gr.sin, in_axes=2)(x)
        with pytest.raises(gr.InvalidArgumentError, match="one size, got 3, 4"):
            gr.vmap(gr.add)(x, gr.ones([4, 2]))
        with pytest.raises(gr.InvalidArgumentError, match="does not fit"):
            gr.vmap(gr.add, in_axes=(0, {"a": 0}))(x, x)
        with pytest.raises(gr.InvalidArgumentError, match="one entry for each"):
            gr.vmap(gr.add, in_axes=(0,))(x, x)
        with pytest.raises(gr.InvalidArgumentError, match=r"no argument of .* has a batch"):
            gr.vmap(gr.sin, in_axes=None)(x)
        with pytest.raises(gr.InvalidArgumentError, match="varies over the batch"):
            gr.vmap(gr.sin, out_axes=None)(x)
        with pytest.raises(gr.InvalidArgumentError, match="out_axes is 5"):
            gr.vmap(gr.sin, out_axes=5)(x)
        with pytest.raises(gr.InvalidArgumentError, match="randomness"):
            gr.vmap(gr.sin, randomness="some")  # type: ignore[arg-type]
        with pytest.raises(gr.DTypeError, match="holds a str"):
            gr.vmap(gr.sin)("text")
        with pytest.raises(gr.DTypeError, match="returned a str"):
            gr.vmap(lambda x: "text")(x)


def test_a_batched_function_may_assign_to_a_registered_argument():
    class Box:
        def __init__(self, value):
            self.value = value

    gr.tree.register(Box, lambda box: ((box.value,), None), lambda _, leaves: Box(leaves[0]))

    def zeroed(box):
        box.value[gr.asarray(0)] = 0.0
        return box

    box = Box(gr.asarray([[1.0, 2.0], [3.0, 4.0]]))
    assert gr.vmap(zeroed)(box).value.tolist() == [[0, 2], [0, 4]]
    assert box.value.tolist() == [[1, 2], [3, 4]]
