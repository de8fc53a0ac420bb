"""Attention over sequences so long that the scores are computed for a few queries at a time."""

import girih as gr
import networks_reference as reference
import numpy as np
import pytest
from conftest import peak_memory

RNG = np.random.default_rng(7)
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}

# Batch and heads of queries, batch and heads of keys, number of queries, of keys, features, values.
SHAPES = {
    "square": ((2,), (2,), 512, 512, 64, 64),
    "of uneven sizes": ((2, 3), (2, 3), 301, 333, 33, 17),
    "grouped heads": ((2, 4), (2, 2), 130, 190, 32, 32),
    "one head of keys": ((3,), (1,), 257, 100, 16, 24),
    "few keys": ((4,), (4,), 400, 20, 4, 4),
    "long rows": ((1,), (1,), 48, 5000, 8, 8),
    "no heads": ((), (), 300, 200, 8, 8),
    "one query": ((2,), (2,), 1, 600, 8, 8),
    "one key": ((2,), (2,), 600, 1, 8, 8),
}


def operands(shape):
    of_q, of_k, queries, keys, features, values = SHAPES[shape]
    sizes = [(*of_q, queries, features), (*of_k, keys, features), (*of_k, keys, values)]
    return [RNG.standard_normal(size) for size in sizes]


def mask_of(kind, shape):
    of_q, _, queries, keys, _, _ = SHAPES[shape]
    if kind == "seen":
        mask = RNG.random((queries, keys)) > 0.4
        mask[queries // 2] = False
        return mask
    return RNG.standard_normal((*of_q, queries, keys)) if kind == "added" else None


def exact(arrays, mask, causal):
    q, k, v = arrays
    groups = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    if groups > 1:
        k, v = k.repeat(groups, -3), v.repeat(groups, -3)
    return reference.attention(q, k, v, mask, causal=causal)


def kernels(*tensors):
    return gr.compile_graph(list(tensors)).num_kernels


@pytest.mark.parametrize("kind", ["plain", "causal", "seen", "added"])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_of_any_size_and_mask(shape, kind):
    arrays, mask = operands(shape), mask_of(kind, shape)
    want = exact(arrays, mask, kind == "causal")
    for dtype, tolerance in TOLERANCE.items():
        tensors = [gr.asarray(a).astype(dtype) for a in arrays]
        seen = None if mask is None else gr.asarray(mask)
        seen = seen.astype(dtype) if kind == "added" else seen
        got = gr.scaled_dot_product_attention(*tensors, seen, is_causal=kind == "causal")
        got = got.astype("float64").numpy()
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=dtype)


@pytest.mark.parametrize("kind", ["plain", "causal", "seen"])
def test_scores_by_rows_have_the_bits_of_whole_ones(kind):
    arrays, mask = operands("of uneven sizes"), mask_of(kind, "of uneven sizes")
    tensors = [gr.asarray(a.astype(np.float32)) for a in arrays]
    gr.eval(tensors)
    call = lambda: gr.scaled_dot_product_attention(*tensors, mask, is_causal=kind == "causal")
    together = call()
    assert kernels(together) < 4
    with gr.without_passes("rows", "horizontal"):
        apart = call()
        assert kernels(apart) >= 4
        gr.eval(apart)
    np.testing.assert_array_equal(together.numpy(), apart.numpy(), strict=True)


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_does_not_store_all_scores(causal, scale):
    length = 3000
    attention = gr.scaled_dot_product_attention
    call = lambda q, k, v: attention(q, k, v, is_causal=causal, scale=scale)
    gradient = gr.grad(lambda *x: (call(*x) ** 2).sum(), argnums=(0, 1, 2))
    with gr.use_executor(gr.Executor()):
        x = [gr.asarray(RNG.standard_normal((2, length, 16), np.float32)) for _ in range(3)]
        assert 0 < peak_memory(call, *x) < length * length
        assert 0 < peak_memory(gradient, *x) < length * length
        # Queries, keys and values are parts of one tensor, whose gradients are concatenated.
        gradient = gr.grad(lambda x: (call(x[0], x[1], x[2]) ** 2).sum())
        assert 0 < peak_memory(gradient, gr.stack(x)) < length * length


@pytest.mark.parametrize("length", [40, 1100])
def test_a_scale_of_one_leaves_the_bits(length):
    q, k, v = (gr.asarray(RNG.standard_normal((2, length, 16), np.float32)) for _ in range(3))
    attention = gr.scaled_dot_product_attention
    plain = lambda q, k, v: attention(q, k, v, is_causal=True)
    one = lambda q, k, v: attention(q * 0.25, k, v, is_causal=True, scale=1.0)
    np.testing.assert_array_equal(one(q, k, v).numpy(), plain(q, k, v).numpy())
    of = lambda f: gr.grad(lambda *x: (f(*x) ** 2).sum(), argnums=(0, 1, 2))(q, k, v)
    for got, want in zip(of(one), of(plain), strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


# Sizes at which scores are kept for the derivative, and sizes at which they are rematerialised.
GRADIENTS = {
    "few": ((2,), (2,), 40, 30, 5, 6),
    "few, grouped": ((2, 4), (2, 2), 33, 20, 4, 3),
    "many": ((2,), (2,), 1100, 1000, 8, 4),
    "many, grouped": ((4,), (2,), 1024, 1030, 4, 4),
    "many, one head of keys": ((2,), (1,), 1500, 777, 4, 6),
}
SHAPES |= {"gradients of " + name: sizes for name, sizes in GRADIENTS.items()}


def exact_gradients(arrays, mask, causal, ct):
    """The gradients with respect to queries, keys, values and an additive mask."""
    q, k, v = arrays
    groups = q.shape[-3] // k.shape[-3]
    k, v = k.repeat(groups, -3), v.repeat(groups, -3)
    scale = q.shape[-1] ** -0.5
    identity = np.broadcast_to(np.eye(k.shape[-2]), (*k.shape[:-1], k.shape[-2]))
    p = reference.attention(q, k, identity, mask, causal=causal)
    dp = ct @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    shared = lambda x: x.reshape(*x.shape[:-3], -1, groups, *x.shape[-2:]).sum(-3)
    turned = lambda x: x.swapaxes(-1, -2)
    return ds @ k * scale, shared(turned(ds) @ q * scale), shared(turned(p) @ ct), ds


@pytest.mark.parametrize("kind", ["plain", "causal", "seen", "added"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, kind):
    shape, causal = "gradients of " + name, kind == "causal"
    arrays, mask = operands(shape), mask_of(kind, shape)
    ct = RNG.standard_normal((*arrays[0].shape[:-1], arrays[2].shape[-1]))
    want = exact_gradients(arrays, mask, causal, ct)
    wanted = (0, 1, 2, 3) if kind == "added" else (0, 1, 2)
    call = lambda *x: gr.scaled_dot_product_attention(*x, is_causal=causal)
    for dtype in ("float64", "float32", "float16"):
        x = [gr.asarray(a).astype(dtype) for a in arrays]
        if mask is not None:
            x.append(gr.asarray(mask) if kind == "seen" else gr.asarray(mask).astype(dtype))
        weight = gr.asarray(ct).astype(dtype)
        got = gr.grad(lambda *x, w=weight: (call(*x) * w).sum(), argnums=wanted)(*x)
        for g, w in zip(got, want, strict=False):
            assert g.dtype.name == dtype
            within = 3 * TOLERANCE[dtype]
            g = g.astype("float64").numpy()
            np.testing.assert_allclose(g, w, rtol=within, atol=within, err_msg=dtype)


@pytest.mark.parametrize("length", [20, 1024])
def test_second_derivatives(length):
    q, k, v, direction = (RNG.standard_normal((1, length, 3)) for _ in range(4))
    k, v, direction = (gr.asarray(a) for a in (k, v, direction))
    loss = lambda q: (gr.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()
    slope = gr.grad(loss)
    got = gr.grad(lambda q: (slope(q) * direction).sum())(gr.asarray(q)).numpy()
    step = 1e-5 * direction.numpy()
    change = slope(gr.asarray(q + step)).numpy() - slope(gr.asarray(q - step)).numpy()
    np.testing.assert_allclose(got, change / 2e-5, rtol=1e-6, atol=1e-8)


def test_gradients_at_sizes_that_are_not_fixed():
    loss = lambda x: (gr.scaled_dot_product_attention(x, x[:, 1:], x[:, :-1]) ** 2).sum()
    gradient = gr.compile(gr.grad(loss), dynamic_dims={0: {1: "length"}})
    for length in (7, 40, 130):
        x = gr.asarray(RNG.standard_normal((2, length, 4)))
        want = gr.grad(lambda x: loss(x))(x)
        # Scores that may be large are rematerialised at every size.
        np.testing.assert_allclose(gradient(x).numpy(), want.numpy(), rtol=1e-10, atol=1e-12)
