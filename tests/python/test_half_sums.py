"""Half floats are accumulated in float32 and rounded once, wherever elements are added up or multiplied.

A sum that is rounded to float16 after each step stops growing at 2048, and one of bfloat16 at 256.
"""

import girih as gr
import numpy as np
import pytest

N = 10_000
DTYPES = {"float16": 10_000.0, "bfloat16": 9_984.0}


def _gradient(f, shape, dtype):
    return gr.grad(lambda w: f(w).sum().astype(gr.float32))(gr.ones(shape, dtype=dtype))


def _zeros(dtype):
    return gr.zeros([N], dtype=gr.int64)


def _scan_sum(w):
    return gr.scan(lambda c, _: (c, w * 1), gr.zeros([], dtype=w.dtype), None, length=N)[1]


def _nested_scans(w):
    def outer(carry, _):
        rows = gr.scan(lambda c, _: (c, w * 1), carry, None, length=100)[1]
        return carry, rows

    return gr.scan(outer, gr.zeros([], dtype=w.dtype), None, length=N // 100)[1]


def _many_uses(w):
    return gr.stack([w * 1 for _ in range(4096)]).sum()


def _at(dtype):
    return gr.zeros([1], dtype=dtype).at[_zeros(dtype)]


def _ones(dtype, *shape):
    return gr.ones(shape or [N], dtype=dtype)


# The sum of N ones, by each function that accumulates.
SUMS = {
    "sum": lambda d: _ones(d).sum(),
    "sum of a column": lambda d: _ones(d, N, 3).sum(0)[0],
    "trace": lambda d: gr.trace(gr.broadcast_to(_ones(d, 1, 1), (N, N))),
    "matmul": lambda d: (_ones(d, 1, N) @ _ones(d, N, 1))[0, 0],
    "einsum": lambda d: gr.einsum("i,i->", _ones(d), _ones(d)),
    "cumsum": lambda d: gr.cumsum(_ones(d))[-1],
    "at add": lambda d: _at(d).add(_ones(d))[0],
    "at add of rows": lambda d: gr.zeros([2, 16], dtype=d).at[_zeros(d)].add(_ones(d, N, 16))[0, 3],
    "put_along_axis": lambda d: (
        gr.put_along_axis(gr.zeros([1], dtype=d), _zeros(d), _ones(d), axis=0, mode="add")[0]
        if "mode" in str(gr.put_along_axis.__text_signature__)
        else _ones(d).sum()
    ),
    "bincount": lambda d: gr.bincount(_zeros(d), weights=_ones(d))[0],
    "histogram": lambda d: gr.histogram(gr.zeros([N]), bins=1, range=(0.0, 1.0), weights=_ones(d))[
        0
    ][0],
    "psum": lambda d: gr.vmap(lambda x: gr.psum(x, "i"), axis_name="i")(_ones(d))[0],
    "gradient of x[i]": lambda d: _gradient(lambda w: w[_zeros(d)], [1], d)[0],
    "gradient of take": lambda d: _gradient(lambda w: gr.take(w, _zeros(d), axis=0), [1], d)[0],
    "gradient of take_along_axis": lambda d: _gradient(
        lambda w: gr.take_along_axis(w, _zeros(d), axis=0), [1], d
    )[0],
    "gradient of embedding": lambda d: _gradient(lambda w: gr.embedding(_zeros(d), w), [2, 1], d)[
        0, 0
    ],
    "gradient of rows": lambda d: _gradient(lambda w: w[_zeros(d)], [2, 16], d)[0, 5],
    "gradient of pad edge": lambda d: _gradient(
        lambda w: gr.pad(w, ((N - 1, 0),), mode="edge"), [1], d
    )[0],
    "gradient of pad wrap": lambda d: _gradient(
        lambda w: gr.pad(w, ((0, N - 1),), mode="wrap"), [1], d
    )[0],
    "gradient of pad symmetric": lambda d: _gradient(
        lambda w: gr.pad(w, ((0, N - 1),), mode="symmetric"), [1], d
    )[0],
    "gradient of repeat": lambda d: _gradient(lambda w: gr.repeat(w, N), [1], d)[0],
    "gradient of tile": lambda d: _gradient(lambda w: gr.tile(w, (N,)), [1], d)[0],
    "gradient of broadcast_to": lambda d: _gradient(lambda w: gr.broadcast_to(w, (N,)), [1], d)[0],
    "gradient of a scan's captured value": lambda d: _gradient(_scan_sum, [], d),
    "gradient of a captured value of nested scans": lambda d: _gradient(_nested_scans, [], d),
    "vmapped gradient": lambda d: gr.vmap(gr.grad(lambda w: w[_zeros(d)].sum().astype(gr.float32)))(
        gr.ones([2, 1], dtype=d)
    )[1, 0],
    "backward": lambda d: _backward(d),
}


def _backward(dtype):
    w = gr.ones([1], dtype=dtype)
    w.requires_grad_()
    w[_zeros(dtype)].sum().astype(gr.float32).backward()
    return w.grad[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SUMS)
def test_ten_thousand_ones_are_ten_thousand(name, dtype):
    assert SUMS[name](dtype).astype("float32").item() == DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_of_cotangents_of_many_uses_is_rounded_once(dtype):
    assert _gradient(_many_uses, [], dtype).astype("float32").item() == 4096.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_scattered_factors_are_rounded_once(dtype):
    # The tenth power of the second smallest number above one, not rounded in between.
    step = float(gr.nextafter(gr.asarray(1.0, dtype=dtype), 2.0).astype("float32").item())
    factors = gr.full([10], step, dtype=dtype)
    product = gr.ones([1], dtype=dtype).at[gr.zeros([10], dtype="int64")].multiply(factors)
    expected = gr.asarray(step**10, dtype=dtype)
    assert product[0].astype("float32").item() == expected.astype("float32").item()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_scatters_that_set_or_compare_round_nothing(dtype):
    x = gr.asarray(np.arange(5), dtype=dtype)
    index = gr.asarray([1, 1, 3])
    value = gr.asarray([7.0, 3.0, -1.0], dtype=dtype)
    assert x.at[index].set(value).astype("float32").tolist() == [0, 3, 2, -1, 4]
    assert x.at[index].min(value).astype("float32").tolist() == [0, 1, 2, -1, 4]
    assert x.at[index].max(value).astype("float32").tolist() == [0, 7, 2, 3, 4]


# Functions whose intermediate results leave the range of float16, though the results do not.
LARGE = np.array([300, -300] * 8, np.float16)
SMALL = np.array([1e-4, -1e-4] * 8, np.float16)
PAIR = np.array([[300, -300, 300, -250], [280, -300, 310, -300]], np.float16)


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda x: gr.std(x), LARGE, 300.0),
        (lambda x: x.reshape(2, 8).std(axis=1)[0], LARGE, 300.0),
        (lambda x: gr.nanstd(x), LARGE, 300.0),
        (lambda x: gr.std(x), SMALL, 1e-4),
        (lambda x: gr.nanstd(x), SMALL, 1e-4),
        (lambda x: gr.std(x, correction=1), LARGE, 300.0 * (16 / 15) ** 0.5),
        (lambda x: gr.mean(x * 100 + 30000), np.ones(4000, np.float16), 30100.0),
        (lambda x: gr.corrcoef(x)[0, 1], PAIR, np.corrcoef(PAIR.astype(np.float64))[0, 1]),
        (lambda x: gr.linalg.vector_norm(x), LARGE, 1200.0),
        (lambda x: gr.linalg.norm(x.reshape(4, 4)), LARGE, 1200.0),
        (lambda x: gr.cosine_similarity(x, x, dim=0), LARGE, 1.0),
        (lambda x: gr.normalize(x, dim=0)[0], LARGE, 0.25),
        (lambda x: gr.layer_norm(x, [16])[0], LARGE, 1.0),
        (lambda x: gr.rms_norm(x, [16])[0], LARGE, 1.0),
        (lambda x: gr.group_norm(x.reshape(1, 2, 8), 1)[0, 0, 0], LARGE, 1.0),
        (lambda x: gr.batch_norm(x.reshape(16, 1), training=True)[0, 0], LARGE, 1.0),
        (lambda x: gr.grad(lambda x: gr.std(x).astype("float32"))(x)[0], LARGE, 1 / 16),
        (lambda x: gr.grad(lambda x: gr.std(x).astype("float32"))(x)[0], SMALL, 1 / 16),
    ],
)
def test_intermediate_results_in_float16_neither_overflow_nor_underflow(f, x, expected):
    assert f(gr.asarray(x)).item() == pytest.approx(float(expected), rel=2e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_compiled_and_the_portable_result_are_equal(dtype):
    rng = np.random.default_rng(0)
    index = gr.asarray(rng.integers(0, 7, 4000))
    value = gr.asarray(rng.standard_normal((4000, 5)), dtype=dtype)

    def f(value):
        return gr.zeros([7, 5], dtype=dtype).at[index].add(value)

    eager = f(value).astype("float32").numpy()
    assert (gr.compile(f)(value).astype("float32").numpy() == eager).all()
    wide = f(value.astype("float32")).astype(dtype).astype("float32").numpy()
    assert (eager == wide).all()
