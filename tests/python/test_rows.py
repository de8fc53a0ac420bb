"""Kernels along rows, across rows and on tiles, at sizes that use every code path."""

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(4)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def kernels(*tensors):
    return gr.compile_graph(list(tensors)).num_kernels


@pytest.mark.parametrize("shape", [(40, 1000), (1000, 7), (16, 513), (3, 50, 33), (64, 2, 128)])
def test_softmax_and_its_gradient_are_one_kernel(shape):
    x, w = array(*shape), array(*shape)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    assert kernels(gr.softmax(gr.asarray(x))) == 1
    np.testing.assert_allclose(gr.softmax(gr.asarray(x)).numpy(), y, rtol=2e-5, atol=1e-7)
    grad = gr.grad(lambda x: gr.sum(gr.softmax(x) * gr.asarray(w)))(gr.asarray(x))
    expected = y * (w - (w * y).sum(-1, keepdims=True))
    np.testing.assert_allclose(grad.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_special_values_in_rows():
    x = array(64, 100)
    x[3, 5], x[9, :], x[11, 7], x[20, :] = np.nan, -np.inf, np.inf, 0
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        expected = e / e.sum(-1, keepdims=True)
    np.testing.assert_allclose(gr.softmax(gr.asarray(x)).numpy(), expected, rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_layer_norm_keeps_rows_together_in_every_dtype(dtype):
    x, w, b = (gr.asarray(a).astype(dtype) for a in (array(33, 300), array(300), array(300)))
    gr.eval(x, w, b)
    y = gr.layer_norm(x, [300], w, b)
    assert kernels(y) == 1
    with gr.without_passes("rows", "horizontal"):
        apart = gr.layer_norm(x, [300], w, b)
        assert kernels(apart) > 1
        gr.eval(apart)
    np.testing.assert_array_equal(
        y.astype("float64").numpy(), apart.astype("float64").numpy(), strict=True
    )


@pytest.mark.parametrize("shape", [(128, 192), (64, 64), (100, 60), (3, 128, 64), (128, 3, 64)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "complex64"])
def test_transposes_by_tiles(shape, dtype):
    x, y = (RNG.integers(-100, 100, s).astype(dtype) for s in (shape, shape[::-1]))
    a, b = gr.asarray(x), gr.asarray(y)
    np.testing.assert_array_equal(
        (gr.permute_dims(a, tuple(range(len(shape)))[::-1]) + b).numpy(), x.T + y
    )
    np.testing.assert_array_equal(gr.permute_dims(a, tuple(range(len(shape)))[::-1]).numpy(), x.T)


@pytest.mark.parametrize("shape", [(2100, 1200), (1024, 1025), (5000, 10), (10, 5000)])
def test_sums_down_columns(shape):
    x, w = array(*shape), array(shape[0], 1)
    total = gr.sum(gr.asarray(x) * gr.asarray(w), axis=0)
    expected = (x.astype(np.float64) * w).sum(0)
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(gr.max(gr.asarray(x), axis=0).numpy(), x.max(0))


def test_column_sums_do_not_join_rows():
    x, w = gr.asarray(array(256, 128)), gr.asarray(array(128))
    gradient = gr.grad(lambda x, w: gr.sum(gr.layer_norm(x, [128], w) ** 2), argnums=(0, 1))
    text = str(gr.explain(gradient(x, w)))
    assert "over [128 | 256]" in text, "the weight's gradient is a kernel of its own"
    for part in text.split("Kernels:")[1].split("Memory:")[0].split("\n      "):
        assert not part.startswith("fused") or "[128 | 256]" not in part, text
