"""Random programs of views and products: every way to evaluate them gives the same bits."""

import girih as gr
import numpy as np
import pytest

#: Without bfloat16: the layout of an operand decides whether the instructions for bfloat16 are used
#: (docs/internals/gemm.md).
DTYPES = ["float64", "complex128", "complex64", "float32", "float16"]


def _view(rng, x):
    """A random view of a tensor of two axes."""
    choice = rng.integers(7)
    if choice == 0:
        return x.T
    if choice == 1:
        return gr.flip(x, axis=int(rng.integers(2)))
    if choice == 2:
        return gr.roll(x, int(rng.integers(3)), axis=1)
    if choice == 3:
        return x[:, :: int(rng.integers(1, 3))]
    if choice == 4:
        return x[int(rng.integers(2)) :]
    if choice == 5:
        return x * x
    return x


def _program(seed, shape):
    def f(x):
        rng = np.random.default_rng(seed)
        y, outputs = x, []
        for _ in range(4):
            y = _view(rng, y)
            if min(y.shape) == 0:
                y = x
            if rng.integers(2):
                outputs.append(y @ y.T if rng.integers(2) else y.T @ y)
                outputs.append(gr.einsum("ij,ij->", y, y))
            if rng.integers(4) == 0:
                outputs.append(y)
        outputs.append(y @ y.T)
        return tuple(outputs)

    return f


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(150))
def test_random_programs_of_views_and_products(dtype, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(s) for s in rng.integers(1, [6, 40, 300][seed % 3], 2))
    x = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    x = gr.asarray(x, dtype=dtype)
    f = _program(seed, shape)

    def bits(results):
        wide = "complex128" if dtype.startswith("complex") else "float64"
        return [t.astype(wide).numpy().tobytes() for t in results]

    plain = bits(f(x))
    assert bits(gr.eval(f(x))) == plain
    assert bits(gr.compile(f)(x)) == plain
    with gr.without_passes("views"):
        assert bits(f(x)) == plain
