"""Reads across rows: whole tiles, remainders, and every element size."""

import girih as gr
import numpy as np
import pytest

SHAPES = [(64, 64), (65, 64), (64, 95), (130, 700), (1000, 513), (70, 1537), (63, 2000), (2000, 3)]
DTYPES = ["float32", "float64", "float16", "int8", "int16", "int64", "bool", "complex128"]


def values(shape, dtype):
    numbers = np.arange(np.prod(shape), dtype="int64").reshape(shape) * 37 % 113
    return numbers.astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_and_another_ones_transpose(shape, dtype):
    x, y = values(shape, dtype), values(shape[::-1], dtype)
    found = np.asarray(gr.where(gr.asarray(y) == gr.asarray(x).T, gr.asarray(x).T, gr.asarray(y)))
    assert np.array_equal(found, np.where(y == x.T, x.T, y))
    assert np.array_equal(np.asarray(gr.asarray(x).T), x.T)


@pytest.mark.parametrize("shape", SHAPES)
def test_positions_slices_and_flips_in_the_parts_beside_the_tiles(shape):
    x = values(shape, "float32")
    columns = np.arange(shape[0], dtype="float32")
    rows = np.arange(shape[1], dtype="float32")[:, None]
    t = gr.asarray(x)
    found = (
        t.T * gr.arange(shape[0], dtype="float32") + gr.arange(shape[1], dtype="float32")[:, None]
    )
    assert np.array_equal(np.asarray(found), x.T * columns + rows)
    assert np.array_equal(np.asarray(t[::-1].T + t[:, ::-1].T), x[::-1].T + x[:, ::-1].T)
    assert np.array_equal(np.asarray(t[1:, 1:].T - 1), x[1:, 1:].T - 1)


@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0)])
def test_batches_of_matrices_in_every_order(axes):
    x = values((3, 70, 200), "float32")
    y = values(tuple(x.shape[a] for a in axes), "float32")
    found = np.asarray(gr.permute_dims(gr.asarray(x), axes) * gr.asarray(y))
    assert np.array_equal(found, np.transpose(x, axes) * y)


def test_draws_and_gathers_beside_a_transpose_are_as_without_it():
    x = values((200, 300), "float32")
    gr.manual_seed(7)
    noise = np.asarray(gr.rand((300, 200)))
    gr.manual_seed(7)
    found = gr.asarray(x).T + gr.rand((300, 200))
    assert np.array_equal(np.asarray(found), x.T + noise)
    index = values((300, 200), "int64") % 50
    table = values((50,), "float32")
    found = gr.asarray(x).T + gr.take(gr.asarray(table), gr.asarray(index), axis=0)
    assert np.array_equal(np.asarray(found), x.T + table[index])


def test_any_number_of_threads_gives_the_same_bits():
    x, y = values((900, 1100), "float32"), values((1100, 900), "float32")
    results = []
    for threads in (1, 5, 2):
        gr.set_num_threads(threads)
        results.append(np.asarray(gr.exp(gr.asarray(x).T * 0.1) + gr.asarray(y)))
    assert all(np.array_equal(results[0], r) for r in results[1:])
