"""girih.linalg against NumPy and SciPy: values, shapes, batches, empty matrices, gradients."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from conftest import Counters, close, sample

la = gr.linalg
DTYPES = ["float32", "float64", "complex64", "complex128"]
RTOL = {"float32": 2e-4, "float64": 1e-10, "complex64": 2e-4, "complex128": 1e-10}
SQUARES = [(1, 1), (3, 3), (2, 4, 4), (2, 1, 3, 3), (0, 0), (2, 0, 0), (0, 3, 3)]
RECTANGLES = [
    (1, 1),
    (5, 3),
    (3, 5),
    (2, 4, 3),
    (2, 3, 4),
    (0, 3),
    (3, 0),
    (2, 0, 3),
    (0, 2, 3),
    (40, 40),
]


def near(got, want, dtype):
    """Compares up to rounding; if NumPy's result is real, so is Girih's."""
    rtol, want = RTOL[dtype], np.asarray(want)
    real = np.zeros((), dtype).real.dtype
    close(got, want.astype(dtype if want.dtype.kind == "c" else real), rtol, rtol)


def square(shape, dtype, seed=0):
    """Random well-conditioned matrices."""
    return sample(shape, dtype, seed, -1, 1) + np.eye(shape[-1], dtype=dtype) * 2


def positive(shape, dtype, seed=0):
    x = sample(shape, dtype, seed, -1, 1)
    return x @ mt(x) + np.eye(shape[-1], dtype=dtype)


def mt(x):
    """The conjugate transpose."""
    return x.swapaxes(-1, -2).conj()


def eye(shape, dtype):
    return np.broadcast_to(np.eye(shape[-1], dtype=dtype), shape)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
def test_determinants_inverses_and_solutions(shape, dtype):
    x, b = square(shape, dtype), sample((*shape[:-1], 2), dtype, 1)
    near(la.det(gr.asarray(x)), np.linalg.det(x), dtype)
    sign, log = la.slogdet(gr.asarray(x))
    near(sign, np.linalg.slogdet(x).sign, dtype)
    near(log, np.linalg.slogdet(x).logabsdet, dtype)
    near(la.inv(gr.asarray(x)), np.linalg.inv(x), dtype)
    near(la.solve(gr.asarray(x), gr.asarray(b)), np.linalg.solve(x, b), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARES)
@pytest.mark.parametrize("upper", [False, True])
def test_factors_of_positive_matrices(shape, dtype, upper):
    x = positive(shape, dtype)
    read = np.triu(x) if upper else np.tril(x)
    near(la.cholesky(gr.asarray(read), upper=upper), np.linalg.cholesky(x, upper=upper), dtype)
    w, v = la.eigh(gr.asarray(read), UPLO="U" if upper else "L")
    near(w, np.linalg.eigvalsh(x), dtype)
    w, v = w.numpy(), v.numpy()
    near(v * w[..., None, :] @ mt(v), x, dtype)
    near(mt(v) @ v, eye(x.shape, dtype), dtype)
    near(la.eigvalsh(gr.asarray(read), UPLO="U" if upper else "L"), w, dtype)


def matched(got, want):
    """The maximum distance between two spectra, in the pairing that minimises it."""
    apart = np.abs(got[:, None] - want[None, :])
    rows, columns = scipy.optimize.linear_sum_assignment(apart)
    return apart[rows, columns].max(initial=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SQUARES, (2, 2), (12, 12), (100, 100)])
def test_eigenvalues_and_eigenvectors(shape, dtype):
    x = sample(shape, dtype, 3, -1, 1)
    found = la.eig(gr.asarray(x))
    w, v = (t.numpy() for t in found)
    assert found.eigenvalues.dtype == found.eigenvectors.dtype
    assert w.dtype == ("complex64" if dtype in ("float32", "complex64") else "complex128")
    assert np.array_equal(la.eigvals(gr.asarray(x)).numpy(), w)
    near(x @ v, v * w[..., None, :], w.dtype.name)
    near(np.linalg.norm(v, axis=-2), np.ones(shape[:-1]), dtype)
    for at in np.ndindex(shape[:-2]):
        assert matched(w[at], np.linalg.eigvals(x[at].astype("complex128"))) < RTOL[dtype]


AWKWARD = {
    "defective": np.eye(4, k=1) + 3 * np.eye(4),
    "defective, hidden": None,
    "nilpotent": np.eye(5, k=-1),
    "repeated": np.kron(np.eye(3), sample((4, 4), "float64", 5)),
    "cycle": np.roll(np.eye(7), 1, 0),
    "far from normal": np.triu(np.ones((30, 30))) - np.triu(np.ones((30, 30)), 4) - np.eye(30, k=-1),
    "badly scaled": 10.0 ** np.arange(-6, 6)[:, None] * sample((12, 12), "float64", 6) * 10.0 ** -np.arange(-6, 6.0),
    "graded": 10.0 ** -np.arange(10)[:, None] * sample((10, 10), "float64", 7),
    "rotation": np.array([[0.0, -1], [1, 0]]),
    "symmetric": sample((9, 9), "float64", 8) + sample((9, 9), "float64", 8).T,
    "rank one": np.ones((6, 6)),
    "whole numbers": np.array([[2, 1], [1, 3]]),
}  # fmt: skip


@pytest.mark.parametrize("name", AWKWARD)
def test_eigenvalues_of_awkward_matrices(name):
    x = AWKWARD[name]
    if x is None:
        q = np.linalg.qr(sample((4, 4), "float64", 9)).Q
        x = q @ AWKWARD["defective"] @ q.T
    size = np.linalg.norm(x)
    w, v = (t.numpy() for t in la.eig(gr.asarray(x)))
    eps = np.finfo(w.dtype).eps
    assert np.abs(x @ v - v * w).max() < 50 * eps * size
    assert np.abs(np.linalg.norm(v, axis=0) - 1).max() < 50 * eps
    # An n-fold defective eigenvalue has the n-th root of the matrix's error; here n is 4.
    assert (
        matched(w, np.linalg.eigvals(x))
        < 10 * (eps**0.25 if "defective" in name else 1e3 * eps) * size
    )
    # Complex eigenvalues of real matrices are exact conjugate pairs.
    assert np.array_equal(np.sort_complex(w), np.sort_complex(w.conj()))
    assert not v[:, w.imag == 0].imag.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RECTANGLES)
def test_qr(shape, dtype):
    x = sample(shape, dtype)
    for mode in ("reduced", "complete"):
        want = np.linalg.qr(x, mode)
        got = la.qr(gr.asarray(x), mode=mode)
        near(got.Q, want.Q, dtype)
        near(got.R, want.R, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RECTANGLES)
def test_svd(shape, dtype):
    x = sample(shape, dtype)
    near(la.svdvals(gr.asarray(x)), np.linalg.svd(x, compute_uv=False), dtype)
    for full in (False, True):
        u, s, vh = (t.numpy() for t in la.svd(gr.asarray(x), full_matrices=full))
        want = np.linalg.svd(x, full_matrices=full)
        assert (u.shape, s.shape, vh.shape) == (want.U.shape, want.S.shape, want.Vh.shape)
        k = s.shape[-1]
        near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x, dtype)
        for q in (u, mt(vh)):
            product = mt(q) @ q
            near(product, eye(product.shape, dtype), dtype)


#: Sizes below and above the threshold for library routines, and batches.
LARGE = [(23, 23), (39, 39), (47, 47), (64, 64), (130, 130), (2, 48, 48), (2, 97, 97)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", LARGE)
def test_large_systems(shape, dtype):
    n = shape[-1]
    x, b = sample(shape, dtype, 0, -1, 1), sample((*shape[:-1], 3), dtype, 1)
    x += np.eye(n, dtype=dtype) * (n / 4)
    t, u = gr.asarray(x), gr.asarray(b)
    for got, want in zip(la.slogdet(t), np.linalg.slogdet(x), strict=True):
        near(got, want, dtype)
    near(la.inv(t), np.linalg.inv(x), dtype)
    near(la.inv(t.mT), np.linalg.inv(x.mT), dtype)
    near(la.solve(t, u), np.linalg.solve(x, b), dtype)
    near(la.solve(t, u[..., 0][..., None]), np.linalg.solve(x, b[..., :1]), dtype)
    for lower in (False, True):
        got = la.solve_triangular(t, u, lower=lower).numpy()
        near((np.tril(x) if lower else np.triu(x)) @ got, b, dtype)
    for upper in (False, True):
        p = positive(shape, dtype)
        read = gr.asarray(np.triu(p) if upper else np.tril(p))
        near(la.cholesky(read, upper=upper), np.linalg.cholesky(p, upper=upper), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("upper", [False, True])
def test_large_hermitian_eigenproblems(shape, dtype, upper):
    x = sample(shape, dtype, 2, -1, 1)
    x = x + mt(x)
    read = gr.asarray(np.triu(x) if upper else np.tril(x))
    w, v = (t.numpy() for t in la.eigh(read, UPLO="U" if upper else "L"))
    near(w, np.linalg.eigvalsh(x), dtype)
    near(la.eigvalsh(read, UPLO="U" if upper else "L"), w, dtype)
    near(mt(v) @ v, eye(shape, dtype), dtype)
    near(v * w[..., None, :] @ mt(v), x, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*LARGE, (130, 300), (300, 130), (150, 97), (96, 95)])
def test_large_factors(shape, dtype):
    x = sample(shape, dtype, 3, -1, 1)
    m, n = shape[-2:]
    for mode in ("reduced", "complete"):
        q, r = (t.numpy() for t in la.qr(gr.asarray(x), mode=mode))
        want = np.linalg.qr(x, mode)
        assert (q.shape, r.shape) == (want.Q.shape, want.R.shape)
        near(np.abs(r), np.abs(want.R), dtype)
        assert not np.tril(r, -1).any()
        assert not np.diagonal(r, axis1=-2, axis2=-1).imag.any()
        if dtype in ("float32", "float64"):
            near(r, want.R, dtype)
        near(q @ r, x, dtype)
        near(mt(q) @ q, eye((*shape[:-2], q.shape[-1], q.shape[-1]), dtype), dtype)
    near(la.svdvals(gr.asarray(x)), np.linalg.svd(x, compute_uv=False), dtype)
    for full in (False, True):
        u, s, vh = (t.numpy() for t in la.svd(gr.asarray(x), full_matrices=full))
        assert u.shape[-1] == (m if full else min(m, n))
        assert vh.shape[-2] == (n if full else min(m, n))
        k = s.shape[-1]
        near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x, dtype)
        for q in (u, mt(vh)):
            product = mt(q) @ q
            near(product, eye(product.shape, dtype), dtype)


def test_gradients_of_large_matrices():
    x, b = square((70, 70), "float64") + np.eye(70) * 20, sample((70, 2), "float64", 1)
    inverse = np.linalg.inv(x)
    got = gr.grad(lambda x: la.solve(x, gr.asarray(b)).sum())(gr.asarray(x))
    near(got, -np.outer(inverse.sum(0), (inverse @ b).sum(1)), "float64")
    near(gr.grad(lambda x: la.slogdet(x)[1])(gr.asarray(x)), inverse.T, "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", RECTANGLES)
def test_pseudo_inverses_ranks_and_norms(shape, dtype):
    x = sample(shape, dtype)
    if x.size > 4:
        x[..., 0] = x[..., -1]
    near(
        la.pinv(gr.asarray(x)), np.linalg.pinv(x, rtol=max(shape[-2:]) * np.finfo(dtype).eps), dtype
    )
    close(la.matrix_rank(gr.asarray(x)), np.linalg.matrix_rank(x))
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        if 0 in shape[-2:] and order not in ("fro", "nuc"):
            continue
        for keep in (False, True):
            want = np.linalg.norm(x, order, (-2, -1), keep)
            near(la.matrix_norm(gr.asarray(x), ord=order, keepdims=keep), want, dtype)
    for order in (0, 1, 2, 3, 0.5, np.inf, -np.inf):
        for axis in (None, -1, (0, 1)):
            if x.size == 0:
                continue
            got = la.vector_norm(gr.asarray(x), ord=order, axis=axis)
            near(got, np.linalg.vector_norm(x, ord=order, axis=axis), dtype)


def test_ranks_with_a_tolerance():
    x = np.diag([1.0, 0.1, 0.01])
    assert la.matrix_rank(gr.asarray(x), rtol=0.05).item() == 2
    stack = gr.asarray(np.stack([x, x]))
    assert la.matrix_rank(stack, rtol=gr.asarray([0.5, 0.001], dtype=gr.float64)).tolist() == [1, 3]
    close(la.pinv(gr.asarray(x), rtol=0.05), np.linalg.pinv(x, rtol=0.05), 1e-12, 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangular_systems(dtype):
    a, b = square((4, 4), dtype), sample((4, 2), dtype, 1)
    for lower in (False, True):
        for unit in (False, True):
            want = scipy.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit)
            got = la.solve_triangular(gr.asarray(a), gr.asarray(b), lower=lower, unit_diagonal=unit)
            near(got, want, dtype)
    near(
        la.solve_triangular(gr.asarray(a), gr.asarray(b[:, 0])),
        scipy.linalg.solve_triangular(a, b[:, 0]),
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_broadcast_and_take_vectors(dtype):
    a, b = square((2, 1, 3, 3), dtype), sample((4, 3, 2), dtype, 1)
    near(la.solve(gr.asarray(a), gr.asarray(b)), np.linalg.solve(a, b), dtype)
    near(la.solve(gr.asarray(a), gr.asarray(b[0, :, 0])), np.linalg.solve(a, b[0, :, 0]), dtype)
    near(la.solve(gr.asarray(a[0, 0]), gr.asarray(b)), np.linalg.solve(a[0, 0], b), dtype)
    x = gr.asarray(square((3, 3), dtype).T)[::-1]  # a view
    near(la.inv(x), np.linalg.inv(x.numpy()), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (3, 3)])
def test_least_squares(shape, dtype):
    a, b = sample(shape, dtype), sample((shape[0], 2), dtype, 1)
    x, residuals, rank, s = la.lstsq(gr.asarray(a), gr.asarray(b))
    want = np.linalg.lstsq(a, b, rcond=None)
    near(x, want[0], dtype)
    near(s, want[3], dtype)
    assert rank.item() == want[2]
    close(residuals, (np.abs(a @ want[0] - b) ** 2).sum(0), 1e-3, 1e-6)
    near(la.lstsq(gr.asarray(a), gr.asarray(b[:, 0])).solution, want[0][:, 0], dtype)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_powers_products_and_diagonals(dtype):
    x = square((2, 3, 3), dtype)
    for n in (0, 1, 2, 5, -1, -3):
        close(la.matrix_power(gr.asarray(x), n), np.linalg.matrix_power(x, n), 1e-9, 1e-12)
    close(la.matrix_power(gr.asarray([[1, 1], [1, 0]]), 10), np.array([[89, 55], [55, 34]]))
    y = sample((2, 3, 4), dtype, 1)
    for offset in (-3, -1, 0, 2, 4):
        close(la.diagonal(gr.asarray(y), offset=offset), np.linalg.diagonal(y, offset=offset))
        close(la.trace(gr.asarray(y), offset=offset), np.linalg.trace(y, offset=offset), 1e-12)
    close(la.trace(gr.asarray([[1, 2], [3, 4]]), dtype=gr.float32), np.float32(5))
    close(la.matrix_transpose(gr.asarray(y)), y.mT)
    close(la.matmul(gr.asarray(x), gr.asarray(y)), x @ y, 1e-12)
    a, b = y[0, 0], y[1, 1]
    close(la.outer(gr.asarray(a), gr.asarray(b)), np.outer(a, b))
    close(la.vecdot(gr.asarray(y), gr.asarray(a)), np.linalg.vecdot(y, a), 1e-12)
    close(
        la.vecdot(gr.asarray(y), gr.asarray(y[:1]), axis=-2),
        np.linalg.vecdot(y, y[:1], axis=-2),
        1e-12,
    )
    for shapes in [((3,), (3,)), ((4, 3), (3,)), ((2, 1, 3), (5, 3))]:
        u, v = sample(shapes[0], dtype), sample(shapes[1], dtype, 1)
        close(la.cross(gr.asarray(u), gr.asarray(v)), np.linalg.cross(u, v), 1e-12, 1e-12)
    u = sample((3, 4), dtype)
    close(
        la.cross(gr.asarray(u), gr.asarray(u[:, ::-1].copy()), axis=0),
        np.linalg.cross(u, u[:, ::-1], axis=0),
        1e-12,
        1e-12,
    )


@pytest.mark.parametrize("axes", [0, 1, 2, ((0,), (1,)), ((2, 0), (0, 2)), ((-1,), (0,)), ((), ())])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_tensordot(axes, dtype):
    a, b = sample((2, 4, 3), dtype), sample((4, 3, 2), dtype, 1)
    if axes == 1 or axes == ((-1,), (0,)):
        b = sample((3, 5), dtype, 1)
    elif axes == ((0,), (1,)):
        b = sample((4, 2, 3), dtype, 1)
    elif axes == ((2, 0), (0, 2)):
        b = sample((3, 4, 2), dtype, 1)
    close(la.tensordot(gr.asarray(a), gr.asarray(b), axes=axes), np.tensordot(a, b, axes), 1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_norm_chooses_by_the_number_of_axes(dtype):
    x = sample((2, 3, 4), dtype)
    t = gr.asarray(x)
    close(la.norm(t), np.linalg.norm(x), 1e-12)
    close(la.norm(t, axis=1), np.linalg.norm(x, axis=1), 1e-12)
    close(la.norm(t, 1, axis=(0, 2)), np.linalg.norm(x, 1, axis=(0, 2)), 1e-12)
    close(la.norm(t, "nuc", (2, 0), True), np.linalg.norm(x, "nuc", (2, 0), True), 1e-12)
    close(la.norm(t[0], 2), np.linalg.norm(x[0], 2), 1e-12)
    close(la.norm(t[0, 0], np.inf), np.linalg.norm(x[0, 0], np.inf), 1e-12)


def test_other_dtypes_are_computed_in_floats():
    a = np.array([[4, 1], [1, 3]])
    close(la.inv(gr.asarray(a)), np.linalg.inv(a).astype("f4"), 1e-6)
    half = la.cholesky(gr.asarray(a.astype("f2")))
    close(half, np.linalg.cholesky(a.astype("f4")).astype("f2"), 1e-3)
    assert la.svdvals(gr.asarray(a).astype(gr.bfloat16)).dtype == gr.bfloat16


def test_results_of_one_call_come_from_one_kernel_and_only_those_needed():
    x = gr.asarray(sample((20, 20), "float32"))
    u, s, vh = la.svd(x)
    assert gr.compile_graph([u, s, vh]).num_kernels == 1
    assert "_, b1[20] = svd" in gr.compile_graph(la.svdvals(x)).kernels_text
    with Counters() as c:
        gr.eval(u, s, vh)
    assert c["runs"] == 1


def test_held_results_of_one_call_are_computed_together():
    x = sample((20, 20), "float32")
    for call in (la.svd, la.qr, la.eigh, la.eig, la.slogdet):
        parts = call(gr.asarray(x))
        with Counters() as c:
            for part in reversed(parts):
                part.eval()
        assert c["runs"] == 1
    s = la.svd(gr.asarray(x)).S
    assert "_, b1[20] = svd" in gr.compile_graph(s).kernels_text  # No handle to the vectors exists.
    halves = la.svd(gr.asarray(x.astype("float16")))
    assert "svd" in gr.compile_graph(halves.U).kernels_text
    halves.S.eval()
    assert "svd" not in gr.compile_graph(halves.U).kernels_text  # Rounds the computed result.


def test_results_do_not_depend_on_the_number_of_threads():
    x = sample((64, 12, 12), "float32")
    found = []
    for threads in (1, 4):
        gr.set_num_threads(threads)
        found.append([t.numpy().tobytes() for t in la.svd(gr.asarray(x))])
    gr.set_num_threads(2)
    assert found[0] == found[1]


def test_large_matrices_are_the_work_of_any_number_of_threads():
    x = sample((330, 330), "float32")
    a, b = gr.asarray(x), gr.asarray(sample((330, 200), "float32"))
    found = []
    for threads in (1, 2, 4):
        gr.set_num_threads(threads)
        parts = [la.inv(a), la.solve(a, b), *la.qr(a), *la.eigh(a + a.T), la.slogdet(a)[1]]
        found.append([part.numpy().tobytes() for part in parts])
    gr.set_num_threads(2)
    assert found[0] == found[1] == found[2]
    near(
        la.solve(a, b), np.linalg.solve(x.astype("float64"), b.numpy()).astype("float32"), "float32"
    )


def test_large_and_awkward_matrices():
    x = sample((150, 100), "float64")
    near(la.svdvals(gr.asarray(x)), np.linalg.svd(x, compute_uv=False), "float64")
    near(la.eigvalsh(gr.asarray(x.T @ x)), np.linalg.eigvalsh(x.T @ x), "float64")
    hilbert = scipy.linalg.hilbert(12)
    close(la.svdvals(gr.asarray(hilbert)), np.linalg.svd(hilbert, compute_uv=False), 1e-9, 1e-15)
    ones = np.ones((8, 8))
    close(la.eigvalsh(gr.asarray(ones)), np.linalg.eigvalsh(ones), 1e-10, 1e-12)
    close(la.det(gr.asarray(ones)), np.float64(0), 0, 1e-12)
    assert la.slogdet(gr.zeros(2, 2)).logabsdet.item() == -np.inf


BAD = {
    "singular": (lambda: la.inv(gr.ones(2, 2)), r"^Execution failed: inv .*singular: pivot 1"),
    "singular of a batch": (lambda: la.solve(gr.asarray([[[1.0]], [[0.0]]]), gr.ones(2, 1, 1)), "matrix 1 of the batch"),
    "not positive": (lambda: la.cholesky(gr.asarray([[1.0, 2.0], [2.0, 1.0]])), "minor of order 2"),
    "triangular": (lambda: la.solve_triangular(gr.zeros(2, 2), gr.ones(2)), "pivot"),
    "nan svd": (lambda: la.svdvals(gr.full([2, 2], float("nan"))), "converge"),
    "nan eig": (lambda: la.eigvals(gr.full([2, 2], float("nan"))), "NaN or infinite"),
    "infinite eig": (lambda: la.eig(gr.asarray([[1.0, np.inf], [0.0, 1.0]])).eigenvectors, "NaN or infinite"),
    "nan eigh": (lambda: la.eigvalsh(gr.full([2, 2], float("nan"))), "converge"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_invalid_matrices_are_errors_when_evaluated(case):
    call, message = BAD[case]
    x = call()
    for _ in range(2):  # The tensor stays lazy and raises again.
        with pytest.raises(gr.LinAlgError, match=message):
            x.eval()
    assert issubclass(gr.LinAlgError, ValueError)
    assert issubclass(gr.LinAlgError, gr.EvaluationError)


MISUSE = {
    "vector": (lambda: la.det(gr.ones(3)), gr.ShapeError, "matrix"),
    "not square": (lambda: la.inv(gr.ones(2, 3)), gr.ShapeError, "2 by 3"),
    "rows": (lambda: la.solve(gr.ones(2, 2), gr.ones(3, 1)), gr.ShapeError, "rows"),
    "batch": (lambda: la.solve(gr.ones(2, 2, 2), gr.ones(3, 2, 1)), gr.ShapeError, "solve"),
    "eig": (lambda: la.eig(gr.ones(2, 3)), gr.ShapeError, "2 by 3"),
    "power": (lambda: la.matrix_power(gr.ones(2, 3), 2), gr.ShapeError, "2 by 3"),
    "order": (lambda: la.matrix_norm(gr.ones(2, 2), ord=3), gr.InvalidArgumentError, "3"),
    "norm's name": (lambda: la.matrix_norm(gr.ones(2, 2), ord="max"), gr.InvalidArgumentError, "max"),
    "vector's norm": (lambda: la.norm(gr.ones(2), "fro", 0), gr.InvalidArgumentError, "fro"),
    "three axes": (lambda: la.norm(gr.ones(2, 2, 2), 2), gr.InvalidArgumentError, "one axis or two"),
    "mode": (lambda: la.qr(gr.ones(2, 2), mode="full"), gr.InvalidArgumentError, "full"),
    "UPLO": (lambda: la.eigh(gr.ones(2, 2), UPLO="X"), gr.InvalidArgumentError, "X"),
    "cross": (lambda: la.cross(gr.ones(2), gr.ones(2)), gr.ShapeError, "3"),
    "outer": (lambda: la.outer(gr.ones(2, 2), gr.ones(2)), gr.ShapeError, "vector"),
    "tensordot": (lambda: la.tensordot(gr.ones(2, 3), gr.ones(2, 3), axes=1), gr.ShapeError, "axis 1 has 3, axis 0 has 2"),
    "transpose": (lambda: la.matrix_transpose(gr.ones(2)), gr.ShapeError, "matrix"),
    "vecdot": (lambda: la.vecdot(gr.ones(2), gr.ones(3)), gr.ShapeError, "axis -1"),
    "gradient of a full qr": (lambda: gr.grad(lambda x: la.qr(x, mode="complete").Q.sum())(gr.ones(3, 2)), gr.InvalidArgumentError, "reduced"),
    "gradient of a full svd": (lambda: gr.grad(lambda x: la.svd(x).U.sum())(gr.ones(3, 2)), gr.InvalidArgumentError, "full_matrices"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_explained(case):
    call, error, message = MISUSE[case]
    with pytest.raises(error, match=message):
        call()


# --- derivatives ---


def numeric(f, x, h=1e-6):
    """The gradient of a real function in Girih's convention: along x minus i times along y for x +
    iy.
    """
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        for way in (1, 1j) if x.dtype.kind == "c" else (1,):
            step = np.zeros_like(x)
            step[at] = way * h
            slope = (f(gr.asarray(x + step)) - f(gr.asarray(x - step))).item() / (2 * h)
            out[at] += slope * np.conj(way)
    return out


def weighted(x):
    """A real number to which each element contributes with another weight."""
    weights = gr.asarray(np.cos(np.arange(x.size) + 0.5).reshape(x.shape))
    x = x.real - 0.5 * x.imag if x.dtype in (gr.complex64, gr.complex128) else x
    return (x * weights).sum()


def projectors(q):
    """Projectors, one matrix per column, which do not depend on the phases of the vectors."""
    columns = q.mT[..., :, None]
    return columns @ columns.mT.conj()


def poles(values, vectors=None):
    """Sums over eigenvalues that depend neither on their order nor on the phases of vectors."""
    weights = (gr.asarray([[0.5], [2.5j], [-7.0]]) - values).reciprocal()
    if vectors is None:
        return weights.sum(-1)
    return (projectors(vectors) * weights[..., None, None]).sum(1)


DERIVATIVES = {
    "cholesky": lambda x: weighted(la.cholesky(x @ x.mT.conj())),
    "eigvalsh": lambda x: weighted(la.eigvalsh(x + x.mT.conj())),
    "eigenvectors": lambda x: weighted(projectors(la.eigh(x + x.mT.conj()).eigenvectors)),
    "eigenvectors of the upper triangle": lambda x: weighted(projectors(la.eigh(x, UPLO="U").eigenvectors)),
    "eigvals": lambda x: weighted(poles(la.eigvals(x))),
    "eigenvectors of any matrix": lambda x: weighted(poles(*la.eig(x))),
    "left vectors": lambda x: weighted(projectors(la.svd(x[:, :3], full_matrices=False).U)),
    "right vectors": lambda x: weighted(projectors(la.svd(x[:3], full_matrices=False).Vh.mT)),
    "pairs of vectors": lambda x: weighted(la.svd(x).U @ la.svd(x).Vh),
    "rank one": lambda x: weighted(la.svd(x).U[:, :1] @ la.svd(x).Vh[:1]),
    "singular values": lambda x: weighted(la.svdvals(x[:3])),
    "qr": lambda x: weighted(la.qr(x).Q) + weighted(la.qr(x[:3]).R) + weighted(la.qr(x[:, :3]).Q),
    "complete qr": lambda x: weighted(la.qr(x[:3], mode="complete").Q @ la.qr(x[:3]).R[:, 1:]),
    "solve": lambda x: weighted(la.solve(x, x[:2].mT)),
    "triangular": lambda x: weighted(la.solve_triangular(x, x[:, 1], lower=True)),
    "inv": lambda x: weighted(la.inv(x)),
    "pinv": lambda x: weighted(la.pinv(x[:3])),
    "lstsq": lambda x: weighted(la.lstsq(x[:, :3], x[:, 3]).solution),
    "det": lambda x: weighted(la.det(x)),
    "slogdet": lambda x: weighted(la.slogdet(x).sign) + la.slogdet(x).logabsdet,
    "norms": lambda x: la.vector_norm(x) + la.vector_norm(x, ord=3) + la.matrix_norm(x, ord="nuc") + la.matrix_norm(x),
    "power": lambda x: weighted(la.matrix_power(x, -2)),
    "cross": lambda x: weighted(la.cross(x[:, :3], x[:, 1:])) + weighted(la.vecdot(x, x[0])) + weighted(la.outer(x[0], x[1])),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name, dtype):
    x = square((4, 4), dtype, 3) + np.diag(np.arange(4.0))
    f = DERIVATIVES[name]
    close(gr.grad(f)(gr.asarray(x)), numeric(f, x), 1e-6, 1e-7)


SINGULAR = {
    "rank 3 of 4": sample((4, 3), "float64", 1, -1, 1) @ sample((3, 4), "float64", 2, -1, 1),
    "exactly": np.array([[1.0, 2, 3], [2, 4, 6], [0, 1, 5]]),
    "nilpotent": np.array([[0.0, 1], [0, 0]]),
    "rank 1 of 3": np.ones((3, 3)),
    "zero": np.zeros((3, 3)),
    "one zero": np.zeros((1, 1)),
    "complex": np.array([[1j, 2], [2j, 4]]),
}


@pytest.mark.parametrize("case", SINGULAR)
def test_the_gradient_of_a_singular_determinant_is_its_cofactors(case):
    x = SINGULAR[case]
    n = len(x)
    minors = [
        [np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) * (-1) ** (i + j) for j in range(n)]
        for i in range(n)
    ]
    got = gr.grad(lambda t: la.det(t).real)(gr.asarray(x))
    close(got, np.asarray(minors, x.dtype), 1e-12, 1e-14)


def test_the_gradient_of_the_logarithm_of_a_singular_determinant_is_not_finite():
    for x in ([[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]):
        got = gr.grad(lambda t: la.slogdet(t).logabsdet)(gr.asarray(x)).numpy()
        assert not np.isfinite(got).any()
    close(gr.grad(la.det)(gr.zeros(0, 0)), np.zeros((0, 0), "float32"))


def test_complex_matrices_of_extreme_size_are_solved():
    for scale in (1e25, 1e-25):
        x = (square((3, 3), "complex128") * scale).astype("complex64")
        near(
            la.inv(gr.asarray(x)) * scale,
            np.linalg.inv(x.astype("complex128")) * scale,
            "complex64",
        )
        near(
            la.svdvals(gr.asarray(x)) / scale,
            np.linalg.svd(x, compute_uv=False) / scale,
            "complex64",
        )


@pytest.mark.parametrize("scale", [3e153, 1e300, 1e-160, 1e-300])
def test_extreme_matrices_are_factored(scale):
    ones = np.full((5, 5), scale)
    a = gr.asarray(ones)
    s = gr.linalg.svd(a).S.numpy() / scale
    close(s, np.array([5.0, 0, 0, 0, 0]), 1e-12, 1e-12)
    close(gr.linalg.eigvalsh(a).numpy() / scale, np.array([0, 0, 0, 0, 5.0]), 1e-12, 1e-12)
    close(
        np.sort(gr.linalg.eigvals(a).real.numpy()) / scale,
        np.array([0, 0, 0, 0, 5.0]),
        1e-12,
        1e-12,
    )
    q, r = gr.linalg.qr(a)
    close(q.numpy() @ (r.numpy() / scale), ones / scale, 1e-12)
    for norm in ("fro", "nuc", 2, 1, np.inf):
        close(gr.linalg.matrix_norm(a, ord=norm).numpy() / scale, np.array(5.0), 1e-12)
    x = gr.linalg.lstsq(a, gr.asarray(np.full(5, scale)))[0].numpy()
    close(x, np.full(5, 0.2), 1e-12)
    pair = gr.asarray(np.diag([scale, 2.0, 0.5 / scale]))
    close(gr.linalg.det(pair).numpy(), np.array(1.0), 1e-12)
    sign, log = gr.linalg.slogdet(-pair)
    assert sign.item() == -1
    assert abs(log.item()) < 1e-12
