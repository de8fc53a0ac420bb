"""LU factors, matrix exponentials, condition numbers and chain products, against NumPy and SciPy;
transforms with Hermitian symmetry along several axes, against SciPy.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from conftest import sample

DTYPES = {"float32": 2e-5, "float64": 1e-12, "complex64": 2e-5, "complex128": 1e-12}
SHAPES = [(1, 1), (3, 3), (5, 3), (3, 5), (2, 4, 4), (2, 3, 4, 2), (40, 40), (70, 33)]


def matrices(shape, dtype, seed=0):
    return sample(shape, dtype, seed=seed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape, dtype):
    x = matrices(shape, dtype)
    got = [t.numpy() for t in gr.linalg.lu(x)]
    want = scipy.linalg.lu(x)
    if not dtype.startswith("complex"):
        # LAPACK compares complex pivots by another norm.
        for g, e in zip(got, want, strict=True):
            np.testing.assert_allclose(g, e, rtol=DTYPES[dtype] * 50, atol=DTYPES[dtype] * 50)
    assert (np.abs(got[1]) < 1 + 1e-5).all()
    np.testing.assert_array_equal(got[1], np.tril(got[1]))
    np.testing.assert_array_equal(got[2], np.triu(got[2]))
    np.testing.assert_allclose(got[0] @ got[1] @ got[2], x, atol=DTYPES[dtype] * 20)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 4, 60])
def test_systems_by_factors(n, dtype):
    a, b = matrices((2, n, n), dtype), matrices((2, n, 3), dtype, seed=1)
    factors = gr.linalg.lu_factor(a)
    assert factors.piv.dtype == gr.int32
    tolerance = DTYPES[dtype] * 500
    want = np.linalg.solve(a, b)
    np.testing.assert_allclose(
        gr.linalg.lu_solve(factors, b).numpy(), want, rtol=tolerance, atol=tolerance
    )
    one = gr.linalg.lu_solve(gr.linalg.lu_factor(a[0]), b[0, :, 0]).numpy()
    np.testing.assert_allclose(one, want[0, :, 0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 40])
def test_pivots_are_those_of_scipy(n):
    scipy = pytest.importorskip("scipy.linalg")
    a = matrices((3, n, n), "float64")
    factors = gr.linalg.lu_factor(a)
    for i in range(3 if n else 0):
        packed, pivots = scipy.lu_factor(a[i])
        np.testing.assert_array_equal(factors.piv[i].numpy(), pivots)
        assert factors.piv[i].numpy().dtype == pivots.dtype
        np.testing.assert_allclose(factors.LU[i].numpy(), packed, rtol=1e-9, atol=1e-9)
        b = matrices((n, 2), "float64", seed=2)
        want = np.linalg.solve(a[i], b)
        ours = scipy.lu_solve((factors.LU[i].numpy(), factors.piv[i].numpy()), b)
        np.testing.assert_allclose(ours, want, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(gr.linalg.lu_solve((packed, pivots), b).numpy(), want, 1e-7)
    assert factors.piv.shape == (3, n)


def test_lu_of_singular_and_empty_matrices():
    x = np.array([[1.0, 2.0], [2.0, 4.0]])
    p, l, u = (t.numpy() for t in gr.linalg.lu(x))
    np.testing.assert_array_equal(p @ l @ u, x)
    with pytest.raises(gr.LinAlgError):
        gr.linalg.lu_solve(gr.linalg.lu_factor(x), [1.0, 0.0]).numpy()
    assert [t.shape for t in gr.linalg.lu(gr.zeros([0, 0]))] == [(0, 0)] * 3
    assert gr.linalg.lu([[1, 2], [3, 4]]).L.dtype == gr.float32
    with pytest.raises(gr.ShapeError, match="square"):
        gr.linalg.lu_factor(gr.zeros([2, 3]))
    with pytest.raises(gr.ShapeError):
        gr.linalg.lu(gr.zeros(3))
    with pytest.raises(gr.ShapeError, match="equations"):
        gr.linalg.lu_solve(gr.linalg.lu_factor(gr.eye(2)), gr.zeros(3))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e-8, 0.3, 1.0, 5.0, 30.0])
def test_expm(size, dtype):
    x = (matrices((3, 4, 4), dtype) * size / 8).astype(dtype)
    want = scipy.linalg.expm(x.astype(np.complex128) if dtype.startswith("c") else x.astype(float))
    got = gr.linalg.expm(x).numpy()
    assert got.dtype == dtype
    scale = np.abs(want).max(axis=(-1, -2), keepdims=True)
    tolerance = DTYPES[dtype] * (1 + size) * 5
    np.testing.assert_allclose(got / scale, want / scale, atol=tolerance)


def test_expm_of_known_matrices():
    np.testing.assert_allclose(gr.linalg.expm(gr.zeros([3, 3])).numpy(), np.eye(3))
    nilpotent = gr.linalg.expm([[0.0, 2.0], [0.0, 0.0]]).numpy()
    np.testing.assert_allclose(nilpotent, [[1, 2], [0, 1]], rtol=1e-6)
    diagonal = np.array([-700.0, 1.0, 300.0])
    got = gr.linalg.expm(np.diag(diagonal)).numpy()
    np.testing.assert_allclose(np.diag(got), np.exp(diagonal), rtol=1e-11)
    assert gr.linalg.expm(gr.zeros([0, 0])).shape == (0, 0)
    assert np.isnan(gr.linalg.expm([[np.nan]]).item())
    with pytest.raises(gr.ShapeError, match="square"):
        gr.linalg.expm(gr.zeros([2, 3]))


def test_gradient_of_expm():
    x, e = sample((3, 3), "float64"), sample((3, 3), "float64", seed=1)
    grad = gr.grad(lambda x: (gr.linalg.expm(x) * e).sum())(gr.asarray(x)).numpy()
    _, want = scipy.linalg.expm_frechet(x.T, e)
    np.testing.assert_allclose(grad, want, rtol=1e-9)


@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc"])
def test_cond(p):
    x = matrices((2, 4, 4), "float64")
    np.testing.assert_allclose(gr.linalg.cond(x, p).numpy(), np.linalg.cond(x, p), rtol=1e-11)
    singular = np.array([[1.0, 2.0], [0.0, 0.0]])
    got = gr.linalg.cond(singular, p).item()
    assert got == (0 if p == -2 else np.inf)


def test_cond_of_other_matrices():
    x = matrices((5, 3), "float32")
    np.testing.assert_allclose(gr.linalg.cond(x).item(), np.linalg.cond(x), rtol=1e-5)
    with pytest.raises(gr.ShapeError, match="square"):
        gr.linalg.cond(x, 1)
    with pytest.raises(gr.ShapeError, match="empty"):
        gr.linalg.cond(gr.zeros([0, 0]))
    with pytest.raises(gr.InvalidArgumentError, match="norm"):
        gr.linalg.cond(x, "best")


def test_multi_dot():
    a, b, c, d = (matrices(s, "float64") for s in [(7, 2), (2, 30), (30, 3), (3, 11)])
    np.testing.assert_allclose(
        gr.linalg.multi_dot([a, b, c, d]).numpy(), np.linalg.multi_dot([a, b, c, d]), rtol=1e-12
    )
    v, w = matrices((7,), "float64"), matrices((11,), "float64")
    for chain in ([v, a, b], [c, d, w], [v, a, b, c, d, w], [a, b], [v, v]):
        got = gr.linalg.multi_dot(chain).numpy()
        want = chain[0] @ chain[1] if len(chain) == 2 else np.linalg.multi_dot(chain)
        np.testing.assert_allclose(got, want, rtol=1e-11)
    # The order with the fewest operations: a row from the left, a column from the right.
    square, narrow = gr.ones(50, 50), gr.ones(50, 1)
    for chain in ([narrow.T, square, square], [square, square, narrow]):
        text = gr.graph_to_text(gr.linalg.multi_dot(chain))
        products = [line for line in text.splitlines() if "= matmul(" in line]
        assert len(products) == 2
        assert not any("[50, 50]" in line.split("= matmul(")[0] for line in products), text
    with pytest.raises(gr.InvalidArgumentError, match="two"):
        gr.linalg.multi_dot([a])
    with pytest.raises(gr.ShapeError):
        gr.linalg.multi_dot([a, v, b])
    with pytest.raises(gr.ShapeError):
        gr.linalg.multi_dot([a, c])


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize(
    ("s", "axes"), [(None, None), (None, (0, 1)), ((4, 6), (0, 2)), ((5, 7), (1, 2)), (None, (2,))]
)
def test_transforms_with_hermitian_symmetry(norm, s, axes):
    x = sample((4, 5, 6), "complex128")
    got = gr.fft.hfftn(x, s, axes, norm).numpy()
    np.testing.assert_allclose(got, scipy.fft.hfftn(x, s, axes, norm), rtol=1e-10, atol=1e-10)
    real = sample((4, 5, 6), "float64")
    got = gr.fft.ihfftn(real, s, axes, norm).numpy()
    np.testing.assert_allclose(got, scipy.fft.ihfftn(real, s, axes, norm), rtol=1e-10, atol=1e-10)


def test_transforms_with_hermitian_symmetry_in_two_dimensions():
    x = sample((3, 4, 5), "complex64")
    np.testing.assert_allclose(gr.fft.hfft2(x).numpy(), scipy.fft.hfft2(x), rtol=1e-3, atol=1e-3)
    real = sample((3, 4, 6), "float32")
    got = gr.fft.ihfft2(real)
    assert got.dtype == gr.complex64
    np.testing.assert_allclose(got.numpy(), scipy.fft.ihfft2(real), rtol=1e-4, atol=1e-5)
    back = gr.fft.hfft2(got).numpy()
    np.testing.assert_allclose(back, real, rtol=1e-4, atol=1e-4)
    with pytest.raises(gr.InvalidArgumentError):
        gr.fft.hfftn(x, axes=())
    with pytest.raises(gr.DTypeError):
        gr.fft.ihfftn(x)
