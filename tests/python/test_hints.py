"""Hints on tensors and nodes: programs keep them, passes see them, and the compiler obeys
``fuse="no"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import girih as gr
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.linspace(0.1, 1.0, 12, dtype=np.float32).reshape(3, 4)


def alone(x: gr.Tensor) -> gr.Tensor:
    x.set_hint("fuse", "no")
    return x


def kernels(*tensors: gr.Tensor) -> int:
    return gr.compile_graph(*tensors).num_kernels


def test_an_op_that_is_not_to_be_fused_has_a_kernel_of_its_own():
    x = gr.asarray(X)
    plain = gr.exp(gr.sin(x + 1) * 2)
    apart = gr.exp(alone(gr.sin(x + 1)) * 2)
    assert (kernels(plain), kernels(apart)) == (1, 3)
    np.testing.assert_array_equal(apart.numpy(), plain.numpy())


OPS: dict[str, Callable[[gr.Tensor], gr.Tensor]] = {
    "sqrt": gr.sqrt,
    "transpose": lambda x: x.T,
    "reshape": lambda x: x.reshape(6, 2),
    "slice": lambda x: x[1:, ::2],
    "broadcast": lambda x: gr.broadcast_to(x, (2, 3, 4)),
    "sum": lambda x: x.sum(1),
    "cumsum": lambda x: gr.cumsum(x, axis=0),
    # Sums of integers have the same bits in any order; fused GEMMs may use another order.
    "matmul": lambda x: gr.floor(8 * x) @ gr.floor(8 * x.T),
    "softmax": lambda x: gr.softmax(x, 1),
    "sort": lambda x: gr.sort(x, descending=True),
    "concatenate": lambda x: gr.concatenate([x, x]),
    "gather": lambda x: x[gr.asarray([2, 0])],
    "where": lambda x: gr.where(x > 0.5, x, 0.0),
    "empty": lambda x: x[:0],
    "cast": lambda x: x.astype(gr.float16),
}


@pytest.mark.parametrize("name", OPS)
def test_a_hint_changes_no_value_of_any_op(name):
    def chain(hinted):
        y = OPS[name](gr.asarray(X) + 1)
        return (alone(y) if hinted else y) * 2 - 1

    np.testing.assert_array_equal(chain(True).numpy(), chain(False).numpy())


def test_leaves_computed_tensors_and_targets_take_the_hint():
    x = alone(gr.asarray(X))
    assert kernels(gr.exp(x + 1)) == 1
    y = (x + 1).eval()
    assert kernels(gr.exp(alone(y))) == 1
    target = alone(gr.exp(x + 1))
    assert kernels(target) == 2
    np.testing.assert_array_equal(target.numpy(), gr.exp(x + 1).numpy())


def step(hinted: bool) -> Callable[[gr.Tensor], gr.Tensor]:
    def body(x):
        y = gr.sin(x)
        return gr.exp(alone(y) if hinted else y) * 0.5

    return body


TRANSFORMED: dict[str, Callable[[Callable[[gr.Tensor], gr.Tensor]], gr.Tensor]] = {
    "compile": lambda f: gr.compile(f)(gr.asarray(X)),
    "dynamic": lambda f: gr.compile(f, dynamic_dims={0: {0: "n"}})(gr.asarray(X)),
    "loop": lambda f: gr.fori_loop(0, 3, lambda i, x: f(x), gr.asarray(X)),
    "scan": lambda f: gr.scan(lambda c, x: (f(c) + x, c), gr.asarray(X[0]), gr.asarray(X))[1],
    "cond": lambda f: gr.cond(gr.asarray(True), f, gr.cos, gr.asarray(X)),
    "checkpoint": lambda f: gr.grad(lambda x: gr.checkpoint(f)(x).sum())(gr.asarray(X)),
    "grad": lambda f: gr.grad(lambda x: f(x).sum())(gr.asarray(X)),
    "vmap": lambda f: gr.vmap(f)(gr.asarray(X)),
    "jvp": lambda f: gr.jvp(f, [gr.asarray(X)], [gr.ones_like(gr.asarray(X))])[1],
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_functions_with_hints_transform(name):
    hinted, plain = (TRANSFORMED[name](step(h)).numpy() for h in (True, False))
    np.testing.assert_allclose(hinted, plain, rtol=2e-6)


def test_a_loop_keeps_the_hint_in_its_body_and_has_a_program_of_its_own():
    x = gr.asarray(X[:2]).eval()
    before = gr.cache_stats()["misses"]
    loops = [gr.fori_loop(0, 3, lambda i, x, h=h: step(h)(x), x) for h in (False, True)]
    np.testing.assert_array_equal(loops[0].numpy(), loops[1].numpy())
    assert gr.cache_stats()["misses"] - before == 2
    loop = gr.fori_loop(0, 3, lambda i, x: step(True)(x), x)
    assert gr.explain(loop).to_dict()["optimized"].count("mode=isolated") == 1


def test_only_the_fuse_hint_is_part_of_the_program():
    x = gr.asarray(X)

    def misses(key, value):
        before = gr.cache_stats()["misses"]
        y = gr.tan(x)
        y.set_hint(key, value)
        gr.exp(y).eval()
        return gr.cache_stats()["misses"] - before

    counts = [misses("colour", c) for c in ("red", "green")]
    assert counts == [1, 0]
    assert [misses("fuse", "no") for _ in range(2)] == [1, 0]


def test_hints_are_read_back_replaced_and_kept_by_programs():
    x = gr.asarray(X)
    y = gr.sin(x)
    assert y.hints == {}
    y.set_hint("note", "first")
    y.set_hint("note", "second")
    alone(y)
    assert y.hints == {"fuse": "no", "note": "second"}
    program = gr.make_graph(lambda x: gr.exp(alone(gr.sin(x))))(x)
    for again in (program, gr.deserialize(program.serialize()), gr.text_to_graph(program.text)):
        assert [node.hints.get("fuse") for node in again.nodes] == [None, "no", None]
        assert kernels(again(x)) == 2
        np.testing.assert_array_equal(again(x).numpy(), gr.exp(gr.sin(x)).numpy())
    captured = gr.deserialize(gr.serialize(gr.exp(y), inputs=[x]))
    assert [node.hints.get("note") for node in captured.nodes] == [None, "second", None]


def test_passes_of_users_read_every_hint():
    @gr.graph_pass
    def doubled(program):
        def rule(node, *operands):
            if node.hints.get("scale") == "double":
                return gr.apply(node, *operands) * 2
            return None

        return program.rewrite(rule)

    def value(hint):
        y = gr.sin(gr.asarray([1.0, 2.0]))
        if hint:
            y.set_hint("scale", hint)
        return (y + 0.0).numpy()

    with gr.with_passes(doubled):
        plain, twice, thrice = value(None), value("double"), value("triple")
    np.testing.assert_array_equal(twice, plain * 2)
    np.testing.assert_array_equal(thrice, plain)


def test_the_pass_is_switched_off_like_others():
    with gr.without_passes("isolate"):
        assert kernels(gr.exp(alone(gr.sin(gr.asarray(X))))) == 1


def test_hints_are_freed_with_their_tensors():
    x = gr.asarray(X)
    for i in range(2000):
        (x + i).set_hint("note", str(i))
    assert (x + 5).hints == {}
    kept = [x + i for i in range(600)]
    for i, y in enumerate(kept):
        y.set_hint("note", str(i))
    assert [y.hints["note"] for y in kept] == [str(i) for i in range(600)]


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("", "x", "the key is empty"),
        ("fuse", "yes", "'fuse' takes 'no', found 'yes'"),
        ("layout", "RowPartition(0)", "'layout' takes"),
    ],
)
def test_invalid_hints_are_refused(key, value, match):
    program = gr.make_graph(gr.sin)(gr.asarray(X))
    for put in (gr.asarray(X).set_hint, lambda k, v: program.set_hint(1, k, v)):
        with pytest.raises(gr.InvalidArgumentError, match=match):
            put(key, value)
