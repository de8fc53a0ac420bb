"""Compiled functions run larger tensors tile by tile, without compiling again."""

import girih as gr
import numpy as np
import pytest

R = np.random.default_rng(3)


def compiles():
    stats = gr.cache_stats()
    return stats["compiles"] + stats["bindings"]


def data(*shape):
    return R.integers(-8, 8, shape).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 64, 65, 128, 1000])
def test_rows_run_in_tiles_and_a_remainder(rows):
    f = gr.compile(lambda x, w: gr.maximum(x @ w, 0) + 1, tile={"x": {0: 64}})
    x, w = data(rows, 24), data(24, 9)
    y = f(gr.asarray(x), gr.asarray(w))
    np.testing.assert_array_equal(np.asarray(y), np.maximum(x @ w, 0) + 1)
    path = f.path(gr.asarray(x), gr.asarray(w))
    assert path == (f"tiled: {-(-rows // 64)} tiles" if rows > 64 else "exact")


def test_larger_tensors_compile_nothing():
    f = gr.compile(lambda x, y: x * y - 3, tile={0: {0: 128}, 1: {0: 128}})
    first = data(256, 5)
    f(gr.asarray(first), gr.asarray(first))
    before = compiles()
    for rows in (384, 512, 12800):
        x, y = data(rows, 5), data(rows, 5)
        found = np.asarray(f(gr.asarray(x), gr.asarray(y)))
        np.testing.assert_array_equal(found, x * y - 3)
    assert compiles() == before
    assert f.num_programs == 1


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reductions_over_a_tiled_axis_are_combined(name):
    f = gr.compile(lambda x: getattr(gr, name)(x, axis=0), tile={"x": {0: 10}})
    x = R.choice([-1.0, 1.0], (47, 6)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(f(gr.asarray(x))), getattr(x, name)(axis=0))
    assert f.path(gr.asarray(x)) == "tiled: 5 tiles"


def test_a_product_is_tiled_in_all_three_dimensions():
    f = gr.compile(gr.matmul, tile={0: {0: 16, 1: 8}, 1: {0: 8, 1: 20}})
    a, b = data(40, 30), data(30, 50)
    found = f(gr.asarray(a), gr.asarray(b))
    np.testing.assert_array_equal(np.asarray(found), a @ b)
    assert f.path(gr.asarray(a), gr.asarray(b)) == "tiled: 36 tiles"


def test_transposed_and_sliced_arguments():
    f = gr.compile(lambda x: x.T + 1, tile={0: {-1: 7}})
    x = data(6, 50)
    large = gr.asarray(data(50, 12))
    for given in (gr.asarray(x), large.T[::2], gr.asarray(x)[:, ::-1]):
        np.testing.assert_array_equal(np.asarray(f(given)), np.asarray(given).T + 1)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: x.mean(axis=0),
        lambda x: gr.sort(x, axis=0),
        lambda x: x.cumsum(axis=0),
        lambda x: gr.softmax(x, axis=0),
        lambda x: x + gr.arange(x.shape[0])[:, None],
        lambda x: x[: x.shape[0] // 2],
        lambda x: gr.random.uniform(x.shape) * 0 + x,
    ],
)
def test_functions_that_need_a_whole_axis_run_whole(fun):
    f = gr.compile(fun, tile={0: {0: 8}})
    x = gr.asarray(data(30, 4))
    np.testing.assert_allclose(np.asarray(f(x)), np.asarray(fun(x)), rtol=1e-6)
    assert f.path(x) == "exact"


def test_numbers_that_depend_on_the_size_are_those_of_the_whole_tensor():
    f = gr.compile(lambda x: x / x.shape[0], tile={0: {0: 8}})
    for rows in (16, 40, 41):
        x = data(rows, 3)
        found = np.asarray(f(gr.asarray(x)))
        np.testing.assert_array_equal(found, x / np.float32(rows))


def test_two_arguments_with_tiles_on_one_of_them_run_whole():
    f = gr.compile(lambda x, y: x + y, tile={"x": {0: 8}})
    x = gr.asarray(data(30, 4))
    np.testing.assert_array_equal(np.asarray(f(x, x)), 2 * np.asarray(x))


def test_gradients_come_back_through_tiled_functions():
    f = gr.compile(lambda x: (x * x).sum(), tile={0: {0: 8}})
    x = gr.asarray(data(30, 4))
    np.testing.assert_array_equal(np.asarray(gr.grad(f)(x)), 2 * np.asarray(x))


def test_empty_and_scalar_dtypes():
    f = gr.compile(lambda x: x * 2, tile={0: {0: 8}})
    assert f(gr.zeros([0, 3])).shape == (0, 3)
    for dtype in (gr.int8, gr.bool, gr.float16, gr.complex64, gr.float64):
        x = gr.ones([20, 3], dtype=dtype)
        assert np.array_equal(np.asarray(f(x)), np.asarray(x * 2))


@pytest.mark.parametrize(
    ("tile", "text"),
    [
        ({0: {0: 0}}, "at least 1; got 0"),
        ({0: {0: 2.5}}, "at least 1; got 2.5"),
        ({0: 8}, "got 8 for argument 0"),
        ({0: {"rows": 8}}, "numbers, got 'rows'"),
        ([8], "got a list"),
        (np.ones(2), "got a ndarray"),
        (0, "got a int"),
        ({"z": {0: 8}}, "no argument 'z'"),
    ],
)
def test_bad_tiles_are_refused(tile, text):
    with pytest.raises(gr.InvalidArgumentError, match=text):
        gr.compile(lambda x: x, tile=tile)


def test_an_axis_that_an_argument_does_not_have():
    f = gr.compile(lambda x: x, tile={0: {2: 8}})
    with pytest.raises(gr.AxisError):
        f(gr.ones([3, 3]))


@pytest.mark.parametrize("megabytes", [96])
def test_tensors_larger_than_the_memory_of_a_device_stream_through_it(megabytes):
    small = gr.device("mock:memory=16M")
    rows = megabytes << 20 >> 12
    x = gr.asarray(R.standard_normal((rows, 1024), np.float32), device="cpu")
    with pytest.raises(gr.OutOfMemoryError):
        x.to(small).eval()
    with gr.device(small):
        scaled = gr.compile(lambda x: gr.tanh(x) * 2, tile={0: {0: 512}})(x)
        total = gr.compile(lambda x: x.sum(axis=0), tile={0: {0: 512}})(x)
    assert scaled.device == total.device == gr.device("cpu")
    expected = np.asarray(x)
    np.testing.assert_allclose(np.asarray(scaled), 2 * np.tanh(expected), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(total), expected.sum(axis=0), rtol=1e-3, atol=1e-2)
    assert gr.memory_stats(small).peak <= 16 << 20


def test_a_product_larger_than_the_memory_of_a_device_streams_through_it():
    a, b = data(3000, 700), data(700, 900)
    with gr.device("mock:memory=4M"):
        f = gr.compile(gr.matmul, tile={0: {0: 256, 1: 350}, 1: {0: 350, 1: 300}})
        found = f(gr.asarray(a, device="cpu"), gr.asarray(b, device="cpu"))
    np.testing.assert_array_equal(np.asarray(found), a @ b)
