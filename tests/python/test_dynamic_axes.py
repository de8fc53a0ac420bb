"""Indices and slices relative to either end of a dynamic axis keep the axis dynamic."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest


def data(n):
    return np.arange(2 * n * 3, dtype=np.float32).reshape(2, n, 3)


INDICES = {
    "last": lambda x: x[:, -1],
    "last but one": lambda x: x[:, -2, 1:],
    "by its size": lambda x: x[:, x.shape[1] - 1],
    "by its size, further on": lambda x: x[:, x.shape[1] - 3, -1],
    "in the middle": lambda x: x[:, x.shape[1] // 2],
    "from the end": lambda x: x[:, -3:],
    "between from the end": lambda x: x[:, -3:-1],
    "but the last": lambda x: x[:, :-1],
    "up to a size": lambda x: x[:, : x.shape[1] - 1],
    "from a size": lambda x: x[:, x.shape[1] - 2 :],
    "from the middle": lambda x: x[:, x.shape[1] // 2 :],
    "up to the middle": lambda x: x[:, : x.shape[1] // 2],
    "every other": lambda x: x[:, ::2],
    "every third but the first": lambda x: x[:, 1::3],
    "backwards": lambda x: x[:, ::-1],
    "with new axes": lambda x: x[None, :, -1, None, -2:],
    "with an ellipsis": lambda x: x[..., -2:, :][..., 0, :],
    "two axes": lambda x: x[-1, -2:, ::-1],
    "more than there is": lambda x: x[:, :100],
}  # fmt: skip


@pytest.mark.parametrize("name", INDICES)
def test_indices_and_slices(name):
    f = INDICES[name]
    compiled = gr.compile(f, dynamic_dims={0: {1: gr.Dim("n", min=4, max=64)}})
    for n in (5, 4, 9, 31):
        np.testing.assert_array_equal(compiled(gr.asarray(data(n)).eval()).numpy(), f(data(n)))
    assert compiled.num_programs == 1, compiled.guards


@pytest.mark.parametrize("name", [n for n in INDICES if n not in ("in the middle",)])
def test_gradients_of_dynamic_indices_and_slices(name):
    f = INDICES[name]
    loss = lambda x: (f(x) * f(x)).sum()
    compiled = gr.compile(gr.grad(loss), dynamic_dims={0: {1: gr.Dim("n", min=4, max=64)}})
    for n in (5, 8):
        x = gr.asarray(data(n)).eval()
        np.testing.assert_allclose(compiled(x).numpy(), gr.grad(loss)(x).numpy(), rtol=1e-6)


def test_growing_token_sequences_share_one_program():
    gr.manual_seed(0)
    table = gr.eval(gr.rand([11, 8]))

    @gr.compile(dynamic_dims={"tokens": {1: gr.Dim("n", min=2)}})
    def following(tokens):
        x = gr.take(table, tokens, axis=0)
        scores = gr.softmax(x @ x.swapaxes(1, 2), axis=-1)
        return (scores @ x)[:, -1] @ table.T

    tokens = np.array([[1, 2, 3]])
    for _ in range(8):
        x = table.numpy()[tokens]
        e = np.exp(x @ x.swapaxes(1, 2))
        expected = ((e / e.sum(-1, keepdims=True)) @ x)[:, -1] @ table.numpy().T
        found = following(gr.asarray(tokens)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        tokens = np.concatenate([tokens, found.argmax(-1)[:, None]], axis=1)
    assert following.num_programs == 1


def test_positions_outside_are_errors():
    compiled = gr.compile(lambda x: x[-5], dynamic_dims={0: {0: "n"}})
    assert compiled(gr.asarray(np.arange(6.0))).item() == 1.0
    with pytest.raises(IndexError):
        compiled(gr.asarray(np.arange(3.0)))
    assert compiled(gr.asarray(np.arange(5.0))).item() == 0.0
