"""Functions with symbolic sizes or along dynamic axes keep the sizes symbolic: one program runs at
all sizes.
"""

from __future__ import annotations

import inspect

import girih as gr
import numpy as np
import pytest

N = gr.Dim("n", min=4, max=64)


def data(n):
    return gr.asarray((np.arange(2 * n * 3, dtype=np.float32) * 7919 % 31).reshape(2, n, 3)).eval()


def tokens(n):
    return gr.asarray((np.arange(2 * n) * 7 % 11).reshape(2, n)).eval()


TABLE = gr.asarray(np.sin(np.arange(88.0, dtype=np.float32)).reshape(11, 8)).eval()


def size(x):
    return x.shape[1]


def square(x):
    return x @ x.swapaxes(1, 2)


OPS = {
    "topk": lambda x: gr.topk(x, 2, axis=1),
    "topk of another axis": lambda x: gr.topk(x, 2, axis=2),
    "sort": lambda x: (gr.sort(x, axis=1), gr.argsort(x, axis=1)),
    "tril": lambda x: gr.tril(square(x)),
    "triu": lambda x: gr.triu(square(x), k=1),
    "tril of ones": lambda x: gr.tril(gr.ones([size(x), size(x)]), k=-1),
    "tri": lambda x: gr.tri(size(x)),
    "eye": lambda x: gr.eye(size(x)),
    "eye that is no square": lambda x: gr.eye(size(x), 3, k=-1),
    "flip": lambda x: gr.flip(x, axis=1),
    "flip of all": lambda x: gr.flip(x),
    "roll": lambda x: gr.roll(x, 2, axis=1),
    "roll back": lambda x: gr.roll(x, -3, axis=1),
    "roll of all": lambda x: gr.roll(x, 2),
    "roll of several": lambda x: gr.roll(x, (1, -1), axis=(1, 2)),
    "roll by a part of the size": lambda x: gr.roll(x, size(x) // 2, axis=1),
    "roll of all by a size": lambda x: gr.roll(x, size(x) + 1),
    "roll of several by sizes": lambda x: gr.roll(x, (size(x) // 3, 1), axis=(1, 2)),
    "fftshift": lambda x: (gr.fft.fftshift(x, 1), gr.fft.ifftshift(x)),
    "split": lambda x: gr.split(gr.concat([x, x], axis=1), 2, axis=1),
    "split at sizes": lambda x: gr.split(x, [1, size(x) // 2], axis=1),
    "tile by a size": lambda x: gr.tile(x[:1, :2], (size(x), 1, 2)),
    "repeat by a size": lambda x: gr.repeat(x[:1, :2], size(x), axis=1),
    "tile": lambda x: gr.tile(x, (2, 1, 2, 1)),
    "repeat": lambda x: gr.repeat(x, 2, axis=1),
    "linspace": lambda x: gr.linspace(0.0, 1.0, size(x)),
    "linspace without its end": lambda x: gr.linspace(-1.0, 1.0, size(x), endpoint=False),
    "linspace to a size": lambda x: gr.linspace(0, size(x) - 1, size(x), dtype=gr.int64),
    "arange": lambda x: gr.arange(size(x)),
    "arange of floats": lambda x: gr.arange(size(x), dtype=gr.float32),
    "arange from a number": lambda x: gr.arange(1, size(x)),
    "arange from below zero": lambda x: gr.arange(-2, size(x), 3),
    "arange from a size": lambda x: gr.arange(size(x) - 2, size(x)),
    "arange between sizes": lambda x: gr.arange(size(x), 2 * size(x), 2),
    "arange with a step": lambda x: gr.arange(0, size(x), 2),
    "arange down": lambda x: gr.arange(size(x) - 1, -1, -1),
    "arange down by two": lambda x: gr.arange(size(x), 0, -2),
    "scan": lambda x: gr.scan(lambda c, r: (c + r, c * 2), gr.zeros([2, 3]), x.swapaxes(0, 1)),
    "scan back": lambda x: gr.scan(
        lambda c, r: (c + r, c - r), gr.zeros([2, 3]), x.swapaxes(0, 1), reverse=True
    ),
    "scan of a length": lambda x: gr.scan(lambda c, _: (c + 1, c), 0.0, None, length=size(x)),
    "fori_loop": lambda x: gr.fori_loop(0, size(x), lambda i, c: c + x[:, i], gr.zeros([2, 3])),
    "fori_loop from one": lambda x: gr.fori_loop(1, size(x), lambda i, c: c * 2 + i, 0),
    "while_loop": lambda x: gr.while_loop(lambda i: i < size(x), lambda i: i * 2, 1),
    "power of a size": lambda x: x / size(x) ** 0.5,
    "negative power": lambda x: x * size(x) ** -0.5,
    "base": lambda x: x * 0.5 ** size(x),
    "over a size": lambda x: x.sum(1) / size(x),
    "reciprocal": lambda x: x * (1 / size(x)),
    "times a size": lambda x: (x * size(x), gr.arange(3) + size(x)),
    "compared": lambda x: gr.arange(9) < size(x),
    "function of a size": lambda x: x / gr.sqrt(size(x)),
    "size as a tensor": lambda x: (gr.asarray(size(x)), gr.full([3], size(x))),
    "clip": lambda x: gr.clip(x, 0, size(x)),
    "where": lambda x: gr.where(x > 2, x, size(x)),
    "returned size": lambda x: (size(x), {"twice": size(x) * 2, "half": size(x) / 2}),
    "einsum of a batch": lambda x: gr.einsum("bni,bmi->bnm", x, x),
    "einsum over it": lambda x: gr.einsum("bni,bnj->bij", x, x),
    "einsum under an ellipsis": lambda x: gr.einsum("...i,ij->...j", x, gr.ones([3, 2])),
    "einsum outer": lambda x: gr.einsum("bn,bi->bni", x[:, :, 0], x[:, 0]),
    "set": lambda x: x.at[:, 0].set(1.0),
    "set the last": lambda x: x.at[:, -1].set(gr.arange(3.0)),
    "set from the end": lambda x: x.at[:, -2:].set(gr.ones([2, 2, 3]) * gr.arange(2.0)[:, None]),
    "set at a size": lambda x: x.at[:, size(x) // 2].set(0.0),
    "set backwards": lambda x: x.at[:, ::-1].set(x),
    "set a new axis": lambda x: x.at[:, None, -1].set(5.0),
    "add": lambda x: x.at[:, 1:3].add(2.0),
    "multiply": lambda x: x.at[:, ::2].multiply(2.0),
    "add at positions": lambda x: x.at[:, gr.asarray([0, 2, 0])].add(5.0),
    "set by a mask": lambda x: x.at[x > 3].set(0.0),
    "growing": lambda x: gr.concat([x, x[:, -1:]], axis=1),
    "attention": lambda x: gr.softmax(square(x) / size(x) ** 0.5, axis=-1) @ x,
    "causal attention": lambda x: (
        gr.softmax(gr.where(gr.tri(size(x)) > 0, square(x), -gr.inf), axis=-1) @ x
    ),
}  # fmt: skip

BY_TOKENS = {
    "rows": lambda t: TABLE[t],
    "rows, then the last": lambda t: TABLE[t][:, -1],
    "columns": lambda t: TABLE.T[:, t],
    "take": lambda t: gr.take(TABLE, t, axis=0),
    "gradient of rows": lambda t: gr.grad(lambda w: (w[t] ** 2).sum())(TABLE),
    "add": lambda t: gr.zeros([11, 8]).at[t].add(1.0),
    "add values": lambda t: gr.zeros([11, 8]).at[t].add(TABLE[t]),
    "set": lambda t: gr.zeros([11, 8]).at[t].set(1.0),
    "multiply": lambda t: gr.ones([11, 8]).at[t].multiply(2.0),
}

GRADIENTS = {
    "slice": lambda x: x[:, : size(x) // 2],
    "slice from the middle": lambda x: x[:, size(x) // 2 :],
    "last": lambda x: x[:, -1],
    "in the middle": lambda x: x[:, size(x) // 2],
    "every other": lambda x: x[:, ::2],
    "positions": lambda x: x[:, gr.asarray([0, 2, 2])],
    "topk": lambda x: gr.topk(x, 2, axis=1)[0],
    "scan": lambda x: gr.scan(lambda c, r: (c * 0.9 + r, c * r), gr.zeros([2, 3]), x.swapaxes(0, 1)),
    "fori_loop": lambda x: gr.fori_loop(0, size(x), lambda i, c: c * 0.5 + x[:, i], gr.ones([2, 3])),
    "update": lambda x: x.at[:, -2:].multiply(x[:, :2]),
    "roll": lambda x: gr.roll(x, 1, axis=1) * x,
    "roll by a part of the size": lambda x: gr.roll(x, size(x) // 2, axis=1) * x,
    "split": lambda x: gr.split(x, 1, axis=1)[0] * gr.split(x, [2], axis=1)[1].sum(),
    "einsum": lambda x: gr.einsum("bni,bmi->bnm", x, x),
    "scale": lambda x: x / size(x) ** 0.5,
}  # fmt: skip


def arrays(value):
    return [x.numpy() if isinstance(x, gr.Tensor) else x for x in gr.tree.leaves(value)]


def check(f, make):
    compiled = gr.compile(f, dynamic_dims={0: {1: N}})
    for n in (5, 4, 9, 31):
        found, expected = compiled(make(n)), f(make(n))
        assert gr.tree.structure(found) == gr.tree.structure(expected)
        for a, b in zip(arrays(found), arrays(expected), strict=True):
            assert type(a) is type(b)
            assert np.shape(a) == np.shape(b)
            assert np.asarray(a).dtype == np.asarray(b).dtype
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    assert compiled.num_programs == 1, compiled.guards


@pytest.mark.parametrize("name", OPS)
def test_ops(name):
    check(OPS[name], data)


@pytest.mark.parametrize("name", BY_TOKENS)
def test_indices_of_a_dynamic_shape(name):
    check(BY_TOKENS[name], tokens)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    def loss(x):
        return sum((leaf * leaf).sum() for leaf in gr.tree.leaves(GRADIENTS[name](x)))

    check(gr.grad(loss), lambda n: data(n) / 31)


def test_decoding_growing_sequences_shares_one_program():
    wq, wk, wv = (
        gr.asarray(np.cos(np.arange(64.0) * k).reshape(8, 8)).astype(gr.float32).eval()
        for k in (1, 2, 3)
    )

    def logits(tokens):
        n = tokens.shape[1]
        x = TABLE[tokens] + gr.sin(gr.arange(n, dtype=gr.float32))[:, None]
        q, k, v = x @ wq, x @ wk, x @ wv
        scores = gr.where(gr.tri(n) > 0, q @ k.swapaxes(1, 2) / 8**0.5, -gr.inf)
        return (gr.softmax(scores, axis=-1) @ v)[:, -1] @ TABLE.T

    step = gr.compile(logits, dynamic_dims={"tokens": {1: gr.Dim("n", min=2)}})
    text = np.array([[3, 1]])
    for _ in range(10):
        found = step(gr.asarray(text)).numpy()
        np.testing.assert_allclose(found, logits(gr.asarray(text)).numpy(), rtol=1e-4, atol=1e-5)
        text = np.concatenate([text, found.argmax(-1)[:, None]], axis=1)
    assert step.num_programs == 1, step.guards


def test_guards_name_the_line_that_caused_them():
    def f(x):
        if x.shape[1] > 7:
            return x.sum()
        return x.reshape(2, int(x.shape[1]) * 3).sum()

    first = inspect.getsourcelines(f)[1]
    compiled = gr.compile(f, dynamic_dims={0: {1: "n"}})
    compiled(data(5))
    compiled(data(9))
    shown = [str(guard) for guards in compiled.guards for guard in guards]
    assert any(g.startswith("7 >= n (") and g.endswith(f"{__file__}:{first + 1})") for g in shown)
    assert any(g.startswith("n == 5 (") and g.endswith(f"{__file__}:{first + 3})") for g in shown)
    assert f"{__file__}:{first + 1}" in compiled.retraced[0]


def test_converting_a_symbolic_size_to_a_number_adds_a_guard():
    compiled = gr.compile(
        lambda x: x[:, : int(size(x) / 2)] * float(size(x) * 0.5), dynamic_dims={0: {1: "n"}}
    )
    for n in (4, 6):
        np.testing.assert_array_equal(
            compiled(data(n)).numpy(), data(n).numpy()[:, : n // 2] * n / 2
        )
    assert compiled.num_programs == 2
    assert all("because of" in guard for guards in compiled.guards for guard in guards)
    branch = gr.compile(lambda x: x if size(x) / 2 > 3 else -x, dynamic_dims={0: {1: "n"}})
    assert branch(data(4)).numpy()[0, 0, 1] < 0 < branch(data(8)).numpy()[0, 0, 1]


def test_a_saved_loop_keeps_its_symbolic_length(tmp_path):
    compiled = gr.compile(OPS["fori_loop"], dynamic_dims={0: {1: N}})
    program = compiled.to_program(data(5))
    program.save(str(tmp_path / "loop.pfgb"))
    loaded = gr.load_graph(tmp_path / "loop.pfgb")
    for n in (5, 9):
        (found,) = gr.tree.leaves(loaded(data(n)))
        np.testing.assert_allclose(found.numpy(), data(n).numpy().sum(1), rtol=1e-6)
