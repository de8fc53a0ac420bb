"""Collectives over the named axes of ``vmap``: values, gradients, nesting, control flow, errors."""

from __future__ import annotations

import asyncio
from typing import Any

import girih as gr
import numpy as np
import pytest

DTYPES = ["bool", "int8", "uint8", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128"]  # fmt: skip


def draws(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).normal(size=shape))


def close(found: Any, expected: Any, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=1e-12)


def named(f: Any, *args: gr.Tensor, **options: Any) -> Any:
    return gr.vmap(f, axis_name="i", **options)(*args)


def numpy_all_to_all(x: np.ndarray, split: int, concat: int) -> np.ndarray:
    """For member ``k``, the parts ``k`` of all members, concatenated."""
    n = len(x)
    return np.stack([np.stack([x[j].take(k, split) for j in range(n)], concat) for k in range(n)])


class TestValues:
    @pytest.mark.parametrize("count", [1, 2, 5])
    @pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
    def test_reductions_are_those_along_the_batch(self, count: int, shape: tuple[int, ...]) -> None:
        x = draws(count, *shape)
        full = lambda y: np.broadcast_to(y, (count, *shape))
        close(named(lambda x: gr.psum(x, "i"), x), full(x.numpy().sum(0)))
        close(named(lambda x: gr.pmean(x, "i"), x), full(x.numpy().mean(0)))
        close(named(lambda x: gr.pmax(x, "i"), x), full(x.numpy().max(0)))
        close(named(lambda x: gr.pmin(x, "i"), x), full(x.numpy().min(0)))

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype(self, dtype: str) -> None:
        x = gr.asarray([[1, 0], [1, 1], [0, 1]]).astype(dtype)
        for reduce, along in ((gr.psum, gr.sum), (gr.pmean, gr.mean)):
            found, expected = named(lambda x, f=reduce: f(x, "i"), x, out_axes=None), along(x, 0)
            assert found.dtype == expected.dtype
            close(found.astype("complex128"), expected.astype("complex128"), 1e-3)
        gathered = named(lambda x: gr.all_gather(x, "i"), x, out_axes=None)
        assert gathered.dtype == x.dtype
        assert gathered.tolist() == x.tolist()
        shifted = named(lambda x: gr.ppermute(x, "i", [(0, 1)]), x)
        assert shifted.dtype == x.dtype
        assert shifted.tolist() == [
            gr.zeros_like(x[0]).tolist(),
            x[0].tolist(),
            gr.zeros_like(x[0]).tolist(),
        ]
        assert named(lambda x: gr.pmax(x, "i"), x, out_axes=None).tolist() == x.max(0).tolist()

    def test_nan_and_infinity(self) -> None:
        x = gr.asarray([[np.nan, 1.0, np.inf], [2.0, 3.0, -np.inf]])
        close(named(lambda x: gr.psum(x, "i"), x, out_axes=None), [np.nan, 4, np.nan])
        close(named(lambda x: gr.pmax(x, "i"), x, out_axes=None), [np.nan, 3, np.inf])

    def test_an_empty_batch(self) -> None:
        x = gr.ones([0, 3])
        assert named(lambda x: gr.psum(x, "i"), x).shape == (0, 3)
        assert named(lambda x: gr.psum(x, "i"), x, out_axes=None).tolist() == [0, 0, 0]
        assert named(lambda x: gr.all_gather(x, "i"), x).shape == (0, 0, 3)
        assert named(lambda x: gr.ppermute(x, "i", []), x).shape == (0, 3)
        with pytest.raises(gr.ShapeError, match="identity"):
            named(lambda x: gr.pmax(x, "i"), x, out_axes=None).eval()

    def test_values_that_do_not_depend_on_the_batch(self) -> None:
        x, same = draws(4, 2), draws(2, seed=1)
        close(named(lambda x: gr.psum(same, "i"), x, out_axes=None), same.numpy() * 4)
        close(named(lambda x: gr.pmean(same, "i") + x, x), same.numpy() + x.numpy())
        close(named(lambda x: gr.pmax(2.0, "i"), x, out_axes=None), 2.0)
        assert named(lambda x: gr.psum(1, "i"), x, out_axes=None).item() == 4
        gathered = named(lambda x: gr.all_gather(same, "i"), x, out_axes=None)
        close(gathered, np.tile(same.numpy(), (4, 1)))

    def test_index_and_size(self) -> None:
        x = draws(4)
        assert named(lambda x: gr.axis_index("i"), x).tolist() == [0, 1, 2, 3]
        assert named(lambda x: gr.axis_index("i") * 0 + gr.axis_size("i"), x).tolist() == [4] * 4
        only = gr.vmap(lambda: gr.axis_index("i"), axis_name="i", axis_size=3)
        assert only().tolist() == [0, 1, 2]

    @pytest.mark.parametrize("axis", [0, 1, 2, -1])
    def test_all_gather(self, axis: int) -> None:
        x = draws(4, 2, 3)
        found = named(lambda x: gr.all_gather(x, "i", axis=axis), x, out_axes=None)
        close(found, np.stack(list(x.numpy()), axis))
        if axis < 2:
            found = named(lambda x: gr.all_gather(x, "i", axis=axis, tiled=True), x, out_axes=None)
            close(found, np.concatenate(list(x.numpy()), axis))

    def test_psum_scatter(self) -> None:
        x = draws(3, 2, 3)
        total = x.numpy().sum(0)
        found = named(lambda x: gr.psum_scatter(x, "i", scatter_dimension=1), x)
        close(found, total.T)
        x = draws(3, 6, 2)
        found = named(lambda x: gr.psum_scatter(x, "i", tiled=True), x)
        close(found, x.numpy().sum(0).reshape(3, 2, 2))

    @pytest.mark.parametrize("split", [0, 1, -1])
    @pytest.mark.parametrize("concat", [0, 1, 2])
    def test_all_to_all(self, split: int, concat: int) -> None:
        x = draws(3, 3, 3, 3)
        found = named(lambda x: gr.all_to_all(x, "i", split, concat), x)
        close(found, numpy_all_to_all(x.numpy(), split, concat))

    def test_all_to_all_of_parts(self) -> None:
        x = draws(2, 4, 3)
        found = named(lambda x: gr.all_to_all(x, "i", 0, 1, tiled=True), x)
        parts = x.numpy().reshape(2, 2, 2, 3)
        close(found, [np.concatenate([parts[0, k], parts[1, k]], 1) for k in range(2)])
        there = lambda x: gr.all_to_all(x, "i", 0, 1, tiled=True)
        back = lambda x: gr.all_to_all(x, "i", 1, 0, tiled=True)
        close(named(lambda x: back(there(x)), x), x)

    def test_permutations(self) -> None:
        x = draws(4, 2)
        ring = lambda x: gr.ppermute(x, "i", [(j, (j + 1) % 4) for j in range(4)])
        close(named(ring, x), np.roll(x.numpy(), 1, 0))
        close(named(lambda x: gr.ppermute(x, "i", [(3, 0)]), x)[0], x[3])
        assert not named(lambda x: gr.ppermute(x, "i", [(3, 0)]), x)[1:].numpy().any()
        close(named(lambda x: gr.pshuffle(x, "i", [2, 0, 1, 3]), x), x.numpy()[[2, 0, 1, 3]])

    def test_trees(self) -> None:
        x = {"a": draws(3, 2), "b": (draws(3, seed=1),)}
        found = named(lambda x: gr.psum(x, "i"), x, out_axes=None)
        close(found["a"], x["a"].numpy().sum(0))
        close(found["b"][0], x["b"][0].numpy().sum())

    def test_axes_anywhere(self) -> None:
        x = draws(2, 5, 3)
        found = named(lambda x: x - gr.pmean(x, "i"), x, in_axes=1, out_axes=1)
        close(found, x.numpy() - x.numpy().mean(1, keepdims=True))


class TestNesting:
    def test_each_name_is_its_axis(self) -> None:
        x = draws(2, 3, 4)

        def f(x: gr.Tensor) -> tuple[gr.Tensor, ...]:
            return (gr.psum(x, "i"), gr.psum(x, "j"), gr.psum(x, ("i", "j")), gr.all_gather(x, "i"))

        both = gr.vmap(gr.vmap(f, axis_name="j"), axis_name="i")(x)
        n = x.numpy()
        close(both[0], np.broadcast_to(n.sum(0), n.shape))
        close(both[1], np.broadcast_to(n.sum(1, keepdims=True), n.shape))
        close(both[2], np.broadcast_to(n.sum((0, 1)), n.shape))
        for i, j in ((0, 0), (1, 2)):
            close(both[3][i, j], n[:, j])

    def test_members_of_several_axes_are_numbered(self) -> None:
        x = draws(2, 3)
        nest = lambda f: gr.vmap(gr.vmap(f, axis_name="j"), axis_name="i")(x)
        assert nest(lambda x: gr.axis_index(("i", "j"))).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert nest(lambda x: gr.axis_index(["j", "i"])).tolist() == [[0, 2, 4], [1, 3, 5]]
        close(nest(lambda x: gr.all_gather(x, ("i", "j")))[1, 1], x.numpy().ravel())
        close(nest(lambda x: gr.all_gather(x, ("j", "i")))[0, 2], x.numpy().T.ravel())
        ring = [(j, (j + 1) % 6) for j in range(6)]
        close(nest(lambda x: gr.ppermute(x, ("i", "j"), ring)), np.roll(x.numpy(), 1))
        assert nest(lambda x: x * 0 + gr.axis_size(("i", "j")))[0, 0].item() == 6

    def test_an_unnamed_batch_between(self) -> None:
        x = draws(2, 3, 4)
        inner = gr.vmap(lambda x: x / gr.psum(x, "i"))
        close(named(inner, x), x.numpy() / x.numpy().sum(0))
        total = gr.vmap(lambda x: gr.all_gather(x, "i"), out_axes=1)
        close(named(total, x)[1], x.numpy())

    def test_a_repeated_name_refers_to_the_innermost_axis(self) -> None:
        x = draws(2, 3)
        outer = named(lambda row: named(lambda v: gr.psum(v, "i"), row) + gr.psum(row, "i"), x)
        close(outer, x.numpy().sum(1, keepdims=True) + x.numpy().sum(0))


class TestDerivatives:
    def test_inside_a_batch_all_members_count(self) -> None:
        x = draws(4, 3)
        value = lambda x: (gr.psum(x * x, "i") * gr.arange(3.0)).sum()
        # The gradient of the sum of all members' values.
        close(named(gr.grad(value), x), 4 * 2 * x.numpy() * np.arange(3.0))

    @pytest.mark.parametrize(
        "f",
        [
            lambda x: gr.psum(x.sin(), "i"),
            lambda x: x / gr.pmean(x * x, "i"),
            lambda x: gr.pmax(x, "i") * x,
            lambda x: gr.pmin(x, "i") * x,
            lambda x: (gr.all_gather(x, "i") * gr.arange(12.0).reshape(4, 3)).sum(0) * x,
            lambda x: gr.ppermute(x, "i", [(0, 2), (3, 1)]) * x,
            lambda x: gr.pshuffle(x, "i", [1, 3, 2, 0]).exp(),
            lambda x: gr.psum_scatter(gr.stack([x, x * x, x**3, x.sin()]), "i"),
            lambda x: gr.all_to_all(gr.stack([x, x * x, x**3, x.sin()]), "i", 0, 1).sum(1),
            lambda x: x * gr.axis_index("i"),
        ],
    )
    def test_outside_of_a_batch(self, f: Any) -> None:
        x = draws(4, 3)
        weights = np.random.default_rng(5).normal(size=(4, 3))
        loss = lambda x: (named(f, x) * weights).sum()
        gradient, step = gr.grad(loss)(x).numpy(), 1e-6
        for at in np.ndindex(4, 3):
            moved = [x.at[at].add(d).numpy() for d in (step, -step)]
            up, down = (loss(gr.asarray(m)).item() for m in moved)
            np.testing.assert_allclose(gradient[at], (up - down) / (2 * step), rtol=1e-5, atol=1e-7)
        # The members' own gradients of the sum of all values are the same.
        inside = gr.vmap(gr.grad(lambda x, w: (f(x) * w).sum()), in_axes=(0, 0), axis_name="i")(
            x, gr.asarray(weights)
        )
        close(inside, gradient)
        # Forward mode is the transpose.
        along = draws(4, 3, seed=3)
        tangent = gr.jvp(lambda x: named(f, x), (x,), (along,))[1]
        close((tangent * weights).sum(), (gradient * along.numpy()).sum(), 1e-8)
        inside = gr.vmap(lambda x, t: gr.jvp(f, (x,), (t,))[1], axis_name="i")(x, along)
        close(inside, tangent)

    def test_second_order(self) -> None:
        x = draws(3)
        f = lambda x: (named(lambda v: gr.psum(v**3, "i") * v, x)).sum()
        n = x.numpy()
        # sum(x^3) * sum(x)
        expected = np.diag(6 * n * n.sum()) + 3 * np.add.outer(n**2, n**2)
        close(gr.hessian(f)(x), expected)

    def test_linear_collectives_can_be_transposed(self) -> None:
        x = draws(3, 2)
        pull = gr.linear_transpose(lambda x: named(lambda v: gr.psum(v, "i"), x), x)
        close(pull(x)[0], np.broadcast_to(x.numpy().sum(0), (3, 2)))
        shift = lambda v: gr.ppermute(v, "i", [(0, 1), (1, 2)])
        pull = gr.linear_transpose(lambda x: named(shift, x), x)
        close(pull(x)[0], np.concatenate([x.numpy()[1:], np.zeros((1, 2))]))


class TestControlFlow:
    def test_scan(self) -> None:
        x = draws(3, 4)

        def f(x: gr.Tensor) -> gr.Tensor:
            step = lambda c, v: (c + gr.psum(v, "i"), c * gr.axis_index("i"))
            last, seen = gr.scan(step, gr.zeros([], dtype="float64"), x)
            return last + seen.sum()

        n = x.numpy()
        sums = np.cumsum(n.sum(0))
        close(named(f, x), sums[-1] + np.arange(3) * sums[:-1].sum())

    def test_a_loop_that_depends_on_the_batch_only_by_name(self) -> None:
        x = draws(4)

        def f(x: gr.Tensor) -> gr.Tensor:
            body = lambda k, c: c + gr.psum(gr.ones([]), "i")
            return x * 0 + gr.fori_loop(0, 3, body, gr.zeros([]))

        close(named(f, x), [12.0] * 4)

    def test_while_loop(self) -> None:
        x = gr.asarray([1.0, 2.0, 3.0])

        def f(x: gr.Tensor) -> gr.Tensor:
            return gr.while_loop(lambda c: gr.psum(c, "i") < 100, lambda c: c * 2, x)

        close(named(f, x), [32.0, 64.0, 96.0])

    @pytest.mark.parametrize("of_each", [False, True])
    def test_cond(self, of_each: bool) -> None:
        x = gr.asarray([1.0, -2.0, 3.0])
        flag = gr.asarray(True)

        def f(x: gr.Tensor) -> gr.Tensor:
            taken = x > 0 if of_each else flag
            return gr.cond(taken, lambda x: gr.psum(x, "i"), lambda x: x, x)

        close(named(f, x), [2.0, -2.0, 2.0] if of_each else [2.0] * 3)

    def test_checkpoint_and_rules(self) -> None:
        x = draws(4)
        plain = lambda x: (gr.psum(x.sin(), "i") * x).sum()
        expected = named(gr.grad(plain), x)
        close(named(gr.grad(gr.checkpoint(plain)), x), expected)

        @gr.custom_vjp
        def total(x: gr.Tensor) -> gr.Tensor:
            return gr.psum(x, "i")

        total.defvjp(lambda x: (gr.psum(x, "i"), gr.axis_index("i")), lambda r, ct: (ct * (r + 1),))
        close(named(gr.grad(total), x), [1.0, 2.0, 3.0, 4.0])
        # An inner batch adds an axis to the index among the residuals.
        inner = lambda x: gr.vmap(gr.grad(total))(gr.stack([x, x]))
        close(named(inner, x)[:, 1], [1.0, 2.0, 3.0, 4.0])

        @gr.custom_jvp
        def mean(x: gr.Tensor) -> gr.Tensor:
            return gr.pmean(x, "i")

        mean.defjvp(lambda p, t: (mean(*p), gr.psum(t[0], "i") * 10))
        close(named(gr.grad(mean), x), [40.0] * 4)

    def test_compiled(self) -> None:
        x = draws(4, 3)
        f = lambda x: x / gr.psum(x, "i")
        close(gr.compile(lambda x: named(f, x))(x), x.numpy() / x.numpy().sum(0))
        # Inside the batch, no program can run separately.
        inner = gr.compile(f)
        close(named(inner, x), x.numpy() / x.numpy().sum(0))
        assert inner.num_programs == 0

    def test_one_program_serves_every_batch(self) -> None:
        def f(x: gr.Tensor) -> gr.Tensor:
            return x - gr.pmean(x, "i") + gr.axis_index("i") / gr.axis_size("i")

        compiled = gr.compile(lambda x: named(f, x), dynamic_dims={0: {0: "batch"}})
        for count in (3, 5, 1, 8):
            x = draws(count, 2)
            n = x.numpy()
            close(compiled(x), n - n.mean(0) + (np.arange(count) / count)[:, None], 1e-6)
        assert compiled.num_programs == 1

    def test_eager(self) -> None:
        x = draws(3)
        with gr.eager_mode():
            close(named(lambda x: gr.psum(x, "i") * x, x), x.numpy().sum() * x.numpy())


class TestErrors:
    def test_names(self) -> None:
        x = draws(3)
        with pytest.raises(
            gr.InvalidArgumentError, match="psum: there is no axis 'i': no axis has"
        ):
            gr.psum(x, "i")
        with pytest.raises(gr.InvalidArgumentError, match=r"'i' \(size 3\); call it in .*='j'"):
            named(lambda x: gr.pmean(x, "j"), x)
        with pytest.raises(gr.InvalidArgumentError, match="given twice"):
            named(lambda x: gr.psum(x, ("i", "i")), x)
        with pytest.raises(gr.InvalidArgumentError, match="at least one axis"):
            named(lambda x: gr.psum(x, ()), x)
        with pytest.raises(gr.InvalidArgumentError, match="a str, or a sequence"):
            named(lambda x: gr.psum(x, 3), x)  # type: ignore[arg-type]
        with pytest.raises(gr.InvalidArgumentError, match="axis_name must be a str"):
            gr.vmap(gr.sin, axis_name=3)  # type: ignore[arg-type]
        for bad in ("", "a b", "a,b"):
            with pytest.raises(gr.InvalidArgumentError, match="the name of an axis"):
                gr.vmap(gr.sin, axis_name=bad)(x)
        # The scope ends with the function, also after an exception.
        with pytest.raises(gr.InvalidArgumentError, match="no axis has a name"):
            gr.axis_index("i")

    def test_sizes(self) -> None:
        x = draws(3, 4, 2)
        with pytest.raises(gr.InvalidArgumentError, match=r"axis 0 of shape .* 3 elements"):
            named(lambda x: gr.psum_scatter(x, "i"), x)
        with pytest.raises(gr.InvalidArgumentError, match="does not divide into 3"):
            named(lambda x: gr.psum_scatter(x, "i", tiled=True), x)
        with pytest.raises(gr.InvalidArgumentError, match=r"axis 1 of shape .* 3 elements"):
            named(lambda x: gr.all_to_all(x, "i", 1, 0), x)
        with pytest.raises(gr.AxisError):
            named(lambda x: gr.all_gather(x, "i", axis=3), x)

    def test_pairs(self) -> None:
        x = draws(3)
        for pairs, message in (
            ([(0, 3)], r"\(0, 3\) names a member beyond the last, 2"),
            ([(-1, 0)], "-1 is the index of no member"),
            ([(0, 1), (0, 2)], "member 0 is a source twice"),
            ([(0, 1), (2, 1)], "member 1 is a destination twice"),
        ):
            with pytest.raises(gr.InvalidArgumentError, match=message):
                named(lambda x, pairs=pairs: gr.ppermute(x, "i", pairs), x)
        with pytest.raises(gr.InvalidArgumentError, match="the order has 2 members"):
            named(lambda x: gr.pshuffle(x, "i", [1, 0]), x)

    def test_an_unbound_axis_is_an_error_unless_its_size_is_one(self) -> None:
        x, index = draws(2), gr.asarray(0)
        one = gr.apply("all_gather", x, index, axis="i", size=1)
        close(one, x.numpy()[None])
        with pytest.raises(gr.EvaluationError, match="over axis 'i' of 4 members outside"):
            gr.apply("all_reduce", x, index, axis="i", size=4).eval()

    def test_tasks_have_names_of_their_own(self) -> None:
        x = draws(3)

        async def other() -> str:
            try:
                gr.psum(x, "i")
            except gr.InvalidArgumentError as error:
                return str(error)
            return "found"

        async def main() -> str:
            task = asyncio.create_task(other())
            named(lambda x: gr.psum(x, "i"), x).eval()
            return await task

        assert "no axis has a name" in asyncio.run(main())
