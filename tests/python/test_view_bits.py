"""A view and its copy give the same bits: whether a function is compiled, an intermediate is held, or
passes are off changes no result.
"""

import itertools

import girih as gr
import numpy as np
import pytest

DTYPES = ["float64", "complex128", "complex64", "float32", "float16"]


def _operand(rng, shape, dtype):
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    return gr.asarray(x, dtype=dtype)


# Views of a matrix with the sizes of the argument, from a tensor of another layout.
VIEWS = {
    "dense": (lambda m, k: (m, k), lambda x: x),
    "transposed": (lambda m, k: (k, m), lambda x: x.T),
    "rows backwards": (lambda m, k: (m, k), lambda x: gr.flip(x, axis=0)),
    "columns backwards": (lambda m, k: (m, k), lambda x: gr.flip(x, axis=1)),
    "transposed backwards": (lambda m, k: (k, m), lambda x: gr.flip(x, axis=0).T),
    "every second column": (lambda m, k: (m, 2 * k), lambda x: x[:, ::2]),
    "every third row": (lambda m, k: (3 * m, k), lambda x: x[::3]),
    "one row, repeated": (lambda m, k: (1, k), lambda x: x),
}
SIZES = [
    (1, 1, 1),
    (1, 7, 1),
    (1, 31, 5),
    (5, 31, 1),
    (4, 2, 3),
    (3, 1, 4),
    (4, 4, 4),
    (16, 40, 16),
]
SIZES += [(17, 33, 9), (2, 600, 2), (1, 1100, 1), (1, 600, 70), (70, 600, 1), (97, 520, 65)]


def _same(a, b):
    return np.array_equal(np.asarray(a.numpy()), np.asarray(b.numpy()), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_products_of_views_have_the_bits_of_products_of_copies(dtype, size):
    m, k, n = size
    if dtype in {"float32", "float16"} and m <= 6 and k >= 64 and n >= 16:
        pytest.skip("a few rows times contiguous columns are dot products: docs/internals/gemm.md")
    rng = np.random.default_rng(m * 1000 + k * 10 + n)
    views = list(VIEWS.items())
    pairs = list(itertools.product(views, views))
    # All pairs for small products, some for large ones.
    step = 1 if m * k * n < 3000 else 5
    for (left, (left_of, left_view)), (right, (right_of, right_view)) in pairs[::step]:
        a = _operand(rng, left_of(m, k), dtype)
        b = _operand(rng, right_of(k, n), dtype)
        a_view = gr.broadcast_to(left_view(a), (m, k))
        b_view = gr.broadcast_to(right_view(b), (k, n))
        a_copy, b_copy = gr.asarray(a_view.numpy()), gr.asarray(b_view.numpy())
        expected = a_copy @ b_copy

        def f(a, b, left_view=left_view, right_view=right_view):
            a = gr.broadcast_to(left_view(a), (m, k))
            return a @ gr.broadcast_to(right_view(b), (k, n))

        names = (left, right)
        assert _same(f(a, b), expected), names
        assert _same(gr.compile(f)(a, b), expected), names
        transposed = gr.compile(lambda a, b: f(a, b).T)(a, b)
        assert _same(transposed, expected.T), names


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "subscripts",
    ["ij,ij->", "ij,ij->i", "ij,ij->j", "ij,ji->", "ij,kj->ik", "ij,jk->ki", "ij,j->i"],
)
@pytest.mark.parametrize("size", [3, 31, 80])
def test_contractions_of_views_have_the_bits_of_contractions_of_copies(dtype, subscripts, size):
    rng = np.random.default_rng(size)
    x, y = _operand(rng, (size, size), dtype), _operand(rng, (size, size), dtype)
    if subscripts == "ij,j->i":
        y = y[3 % size]

    def f(x, y):
        return gr.einsum(subscripts, x.T, y.T), gr.einsum(subscripts, gr.flip(x, 1), gr.flip(y, 0))

    plain = f(x, y)
    together = gr.eval(f(x, y))
    compiled = gr.compile(f)(x, y)
    copies = [gr.asarray(v.numpy()) for v in (x.T, y.T, gr.flip(x, 1), gr.flip(y, 0))]
    held = [gr.einsum(subscripts, *copies[:2]), gr.einsum(subscripts, *copies[2:])]
    with gr.without_passes("views"):
        bare = [v.numpy() for v in f(x, y)]
    for results in (together, compiled, held):
        assert all(_same(a, b) for a, b in zip(results, plain, strict=True))
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(bare, plain, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_batched_products_of_held_and_fused_views_have_the_same_bits(dtype):
    rng = np.random.default_rng(0)
    x = _operand(rng, (3, 4, 4), dtype)

    def f(x):
        y = x * x
        turned = gr.flip(y, axis=0)
        return turned @ gr.swapaxes(turned, -1, -2), gr.permute(y, [0, 2, 1]) @ y

    plain = [t.numpy() for t in f(x)]
    one_by_one = [t.numpy() for t in gr.eval(f(x))]
    compiled = [t.numpy() for t in gr.compile(f)(x)]
    for other in (one_by_one, compiled):
        assert all(np.array_equal(a, b) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(
    "size", [(16, 3), (40, 40), (2100, 700), (70, 30_001), (300, 9000), (5, 99_999)]
)
def test_a_matrix_times_a_vector_has_the_bits_of_its_copy(dtype, size):
    m, k = size
    rng = np.random.default_rng(m)
    v = _operand(rng, (k,), dtype)
    for of, view in VIEWS.values():
        a = _operand(rng, of(m, k), dtype)
        copy = gr.asarray(gr.broadcast_to(view(a), (m, k)).numpy())
        expected = copy @ v
        f = lambda a, v, view=view: gr.broadcast_to(view(a), (m, k)) @ v
        assert _same(f(a, v), expected)
        assert _same(gr.compile(f)(a, v), expected)
        fused = gr.compile(lambda a, v, f=f: gr.relu(f(a * 2.0, v)))(a, v)
        assert _same(fused, gr.relu(gr.asarray((copy * 2.0).numpy()) @ v))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
@pytest.mark.parametrize("exponent", [2, 3, 4, -1, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("suffix", ["pfgb", "txt"])
def test_powers_have_the_same_bits_in_a_program_that_was_saved(dtype, exponent, suffix, tmp_path):
    x = gr.asarray(np.random.default_rng(0).uniform(0.1, 3, 500), dtype=dtype)
    expected = (x**exponent).numpy()
    y = x**exponent
    file = tmp_path / f"power.{suffix}"
    gr.save_graph(file, y, [x])
    loaded = gr.load_graph(file)
    assert np.array_equal(loaded(x).numpy(), expected)
    assert np.array_equal(gr.compile(loaded)(x).numpy(), expected)

    def f(x):
        return gr.grad(lambda x: (x**exponent).sum())(x)

    if not dtype.startswith("complex"):
        assert np.array_equal(f(x).numpy(), gr.compile(f)(x).numpy())
