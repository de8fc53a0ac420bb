"""Derivatives of functions of matrices where singular values or eigenvalues are equal or zero, and
the function does not depend on the vectors: against finite differences, in reverse and forward mode,
of real and complex matrices, alone and under vmap.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
import scipy.linalg

la = gr.linalg
ROTATION = np.array([[0.6, -0.8], [0.8, 0.6]])
HADAMARD = np.array([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
UNITARY = np.array([[0.6, -0.8j], [0.8, 0.6j]])
BASIS = np.linalg.qr(np.arange(9.0).reshape(3, 3) ** 1.5 + np.eye(3))[0]
TWICE = BASIS @ np.diag([2.0, 2.0, -1.0]) @ BASIS.T
MATRICES = {
    "identity": np.eye(3),
    "rotation": ROTATION,
    "Hadamard": HADAMARD,
    "design of +-1": HADAMARD[:, :2],
    "wide design of +-1": HADAMARD[:3],
    "orthonormal columns": BASIS[:, :2] * 3,
    "an eigenvalue twice": (TWICE + TWICE.T) / 2,
    "rank one": np.outer([1.0, 2, -1], [0.5, 1, 3]),
    "rank two": np.diag([1.0, 1.0, 0.0]),
    "zero": np.zeros((3, 3)),
    "unitary": UNITARY,
    "imaginary": 1j * HADAMARD[:, :2],
    "random": np.random.default_rng(3).normal(size=(3, 3)),
    "random, complex": np.random.default_rng(4).normal(size=(3, 2, 2)) @ [1, 1j],
}


def rank(x):
    return np.linalg.matrix_rank(x)


def is_square(x):
    return x.shape[0] == x.shape[1]


def has_full_rank(x):
    return rank(x) == min(x.shape)


def is_regular(x):
    return is_square(x) and has_full_rank(x)


def is_hermitian(x):
    return is_square(x) and np.allclose(x, x.conj().T)


def is_positive(x):
    return is_hermitian(x) and np.linalg.eigvalsh(x).min() > 0


def solution(x):
    return la.lstsq(
        x, gr.asarray(np.broadcast_to(np.arange(1.0, x.shape[-2] + 1)[:, None], (*x.shape[:-1], 1)))
    )


# name: (function of a batch of matrices, where it has a derivative)
FUNCTIONS = {
    "pinv": (la.pinv, has_full_rank),
    "lstsq": (lambda x: solution(x)[0], has_full_rank),
    "lstsq, residuals": (lambda x: solution(x)[1], has_full_rank),
    "inv": (la.inv, is_regular),
    "solve": (lambda x: la.solve(x, x @ x + 1), is_regular),
    "det": (la.det, is_square),
    "slogdet": (lambda x: la.slogdet(x)[1], is_regular),
    "expm": (la.expm, is_square),
    "matrix_power, 3": (lambda x: la.matrix_power(x, 3), is_square),
    "matrix_power, -2": (lambda x: la.matrix_power(x, -2), is_regular),
    "trace by eigenvalues": (lambda x: la.eigvalsh(x).sum(-1), is_hermitian),
    "square by eigenvalues": (lambda x: (la.eigvalsh(x) ** 2).sum(-1), is_hermitian),
    "exponential by eigenvalues": (lambda x: gr.exp(la.eigvalsh(x)).sum(-1), is_hermitian),
    "trace by complex eigenvalues": (lambda x: la.eigvals(x).sum(-1), is_hermitian),
    "cube by complex eigenvalues": (lambda x: (la.eigvals(x) ** 3).sum(-1), is_hermitian),
    "square by singular values": (lambda x: (la.svdvals(x) ** 2).sum(-1), lambda x: True),
    "fourth power by singular values": (lambda x: (la.svdvals(x) ** 4).sum(-1), lambda x: True),
    "nuclear norm": (lambda x: la.matrix_norm(x, ord="nuc"), has_full_rank),
    "Frobenius norm": (lambda x: la.matrix_norm(x), lambda x: x.any()),
    "product of singular values": (lambda x: la.svdvals(x).prod(-1), has_full_rank),
    "cholesky": (la.cholesky, is_positive),
    "qr": (lambda x: la.qr(x).Q @ la.qr(x).R, lambda x: has_full_rank(x) and x.shape[0] >= x.shape[1]),
    "lu": (lambda x: la.lu_solve(la.lu_factor(x), x @ x), is_regular),
}  # fmt: skip
CASES = [
    (name, label)
    for name, (_, defined) in FUNCTIONS.items()
    for label, x in MATRICES.items()
    if defined(x)
]


def weighted(f, x):
    """A real number that depends on all elements of the result of each matrix."""
    out = f(x)
    axes = tuple(range(x.ndim - 2, out.ndim))
    count = int(np.prod(out.shape[x.ndim - 2 :]))
    numbers = 0.7 * np.arange(count).reshape(out.shape[x.ndim - 2 :])
    parts = [out]
    if out.dtype in (gr.complex64, gr.complex128):
        parts = [gr.real(out), gr.imag(out)]
    return sum((part * gr.asarray(np.cos(numbers + k))).sum(axes) for k, part in enumerate(parts))


def differences(f, x, step=1e-5):
    """The derivative by each element; by a complex one `df/dx - i df/dy`."""
    ways = [1, 1j] if np.iscomplexobj(x) else [1]
    moved = []
    for way in ways:
        for i in np.ndindex(x.shape):
            for sign in (2, 1, -1, -2):
                y = x.copy()
                y[i] += sign * way * step
                moved.append(y)
    values = f(gr.asarray(np.array(moved))).numpy().reshape(len(ways), -1, 4)
    slopes = (values @ [-1, 8, -8, 1]) / (12 * step)
    out = slopes[0] - 1j * slopes[1] if len(ways) == 2 else slopes[0]
    return out.reshape(x.shape)


@pytest.mark.parametrize(("name", "label"), CASES)
def test_derivatives_where_values_are_equal_or_zero(name, label):
    f, x = FUNCTIONS[name][0], MATRICES[label]
    loss = lambda x: weighted(f, x)
    want = differences(loss, x)
    scale = 1e-6 * (1 + np.abs(want).max())
    got = gr.grad(loss)(gr.asarray(x)).numpy()
    np.testing.assert_allclose(got, want, 0, scale)
    change = np.random.default_rng(5).normal(size=x.shape)
    if np.iscomplexobj(x):
        change = change + 1j * change[::-1]
    if "eigenvalues" in name:
        change = change + change.T.conj()
    _, tangent = gr.jvp(loss, (gr.asarray(x),), (gr.asarray(change),))
    np.testing.assert_allclose(tangent.item(), (want * change).sum().real, 0, 9 * scale)
    batch = gr.asarray(np.stack([x, x]))
    np.testing.assert_allclose(gr.vmap(gr.grad(loss))(batch).numpy(), [want] * 2, 0, scale)


SECOND = ["pinv", "lstsq", "inv", "det", "expm", "matrix_power, 3", "qr"]


@pytest.mark.parametrize(("name", "label"), [c for c in CASES if c[0] in SECOND])
def test_second_derivatives_where_values_are_equal_or_zero(name, label):
    f, x = FUNCTIONS[name][0], MATRICES[label]
    first = gr.grad(lambda x: weighted(f, x))
    bent = lambda x: weighted(gr.vmap(first) if x.ndim == 3 else first, x)
    want = differences(bent, x, 1e-4)
    got = gr.grad(bent)(gr.asarray(x)).numpy()
    np.testing.assert_allclose(got, want, 0, 1e-5 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (3, 3)])
def test_the_pseudo_inverse_along_a_path_of_matrices_of_rank_one(shape):
    left = [lambda t, i=i: gr.cos(t + i) for i in range(shape[0])]
    right = [lambda t, j=j: 1 + t * t * j for j in range(shape[1])]
    matrix = lambda t: gr.stack([gr.stack([u(t) * v(t) for v in right]) for u in left])
    f = lambda t: weighted(la.pinv, matrix(t))
    t, h = 0.3, 1e-4
    at = lambda t: f(gr.asarray(t, dtype=gr.float64)).item()
    want = (at(t - 2 * h) - 8 * at(t - h) + 8 * at(t + h) - at(t + 2 * h)) / (12 * h)
    point = gr.asarray(t, dtype=gr.float64)
    np.testing.assert_allclose(gr.grad(f)(point).item(), want, 1e-7)
    np.testing.assert_allclose(gr.jvp(f, (point,), (point * 0 + 1,))[1].item(), want, 1e-7)
    second = (gr.grad(f)(point + h) - gr.grad(f)(point - h)).item() / (2 * h)
    np.testing.assert_allclose(gr.grad(gr.grad(f))(point).item(), second, 1e-5)


def test_tolerances_of_the_pseudo_inverse():
    x = np.diag([1.0, 1e-3, 1e-9])
    for rtol, kept in [(1e-6, 2), (1e-2, 1), (1e-12, 3)]:
        want = np.diag([1 / v if i < kept else 0 for i, v in enumerate(np.diag(x))])
        np.testing.assert_allclose(la.pinv(gr.asarray(x), rtol=rtol).numpy(), want, 1e-9)
    both = la.pinv(gr.asarray(x), rtol=gr.asarray(np.array([1e-6, 1e-2]))).numpy()
    np.testing.assert_allclose(both, [np.diag([1, 1e3, 0]), np.diag([1, 0, 0])], 1e-9)


def test_a_tall_system_takes_no_square_of_its_rows():
    a = np.random.default_rng(0).normal(size=(200_000, 2))
    f = lambda a: la.lstsq(a, gr.ones(200_000, dtype=gr.float64))[0].sum()
    assert np.isfinite(gr.grad(f)(gr.asarray(a)).numpy()).all()


@pytest.mark.parametrize("label", MATRICES)
@pytest.mark.parametrize("ord", [2, "nuc"])
def test_norms_of_singular_values_have_a_subgradient(ord, label):
    """The dual norm of a subgradient is at most one, and its product with the matrix is the norm."""
    x = MATRICES[label]
    got = gr.grad(lambda x: la.matrix_norm(x, ord=ord))(gr.asarray(x)).numpy()
    s = scipy.linalg.svdvals(got)
    assert (s.sum() if ord == 2 else s.max()) < 1 + 1e-12
    product = (got * x).sum().real
    np.testing.assert_allclose(product, np.linalg.norm(x, ord), 1e-12, 1e-12)


def _weighted(r, names):
    """A function of the results that does not depend on the signs and phases of vectors."""
    total = 0.0
    for name in names:
        x = getattr(r, name)
        of_vectors = x.ndim > 1
        weights = gr.arange(x.shape[-1], dtype=gr.float64)
        total = total + ((gr.abs(x) ** 4 if of_vectors else x**3) * weights).sum()
    return total


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("complex_", [False, True])
def test_safe_derivatives_are_the_usual_ones_where_nothing_is_equal(shape, complex_):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if complex_ else 0)
    svd = lambda **k: (
        lambda x: _weighted(gr.linalg.svd(x, full_matrices=False, **k), ["U", "S", "Vh"])
    )
    usual, safe = (gr.grad(svd(**k))(gr.asarray(x)) for k in ({}, {"safe": True}))
    np.testing.assert_allclose(safe, usual, rtol=1e-9, atol=1e-9)
    if shape[-1] == shape[-2]:
        names = ["eigenvalues", "eigenvectors"]
        for uplo in "LU":
            eigh = lambda **k: lambda x: _weighted(gr.linalg.eigh(x, UPLO=uplo, **k), names)  # noqa: B023
            usual, safe = (gr.grad(eigh(**k))(gr.asarray(x)) for k in ({}, {"safe": True}))
            np.testing.assert_allclose(safe, usual, rtol=1e-9, atol=1e-9)


def test_safe_derivatives_are_finite_and_right_where_values_are_equal():
    x = gr.asarray(np.diag([1.0, 1.0, 2.0]))
    weights = gr.asarray(np.arange(9.0).reshape(3, 3))

    def of_projector(x):
        # The projector on the space of the two smaller eigenvalues is a smooth function.
        vectors = gr.linalg.eigh(x, safe=True).eigenvectors[:, :2]
        return (vectors @ vectors.mT * weights).sum()

    slope = gr.grad(of_projector)(x).numpy()
    step = 1e-5
    for i in range(3):
        for j in range(i + 1):
            unit = np.zeros((3, 3))
            unit[i, j] = unit[j, i] = step
            ends = [of_projector(x + sign * gr.asarray(unit)).item() for sign in (1, -1)]
            assert abs((ends[0] - ends[1]) / (2 * step) - slope[i, j]) < 1e-6
    for f in (
        lambda x: gr.linalg.svd(x, safe=True).U.sum(),
        lambda x: gr.linalg.svd(x, full_matrices=False, safe=True).Vh.sum(),
        lambda x: gr.linalg.eigh(x, safe=True).eigenvectors.sum(),
    ):
        for point in (gr.eye(3), gr.zeros(3, 3), gr.asarray(np.diag([2.0, 2.0, 0.0]))):
            assert gr.grad(f)(point).isfinite().all().item()
            assert gr.jvp(f, (point,), (gr.ones_like(point),))[1].isfinite().item()
    with pytest.raises(gr.InvalidArgumentError, match="full_matrices"):
        gr.linalg.svd(gr.ones(2, 3), safe=True)
    assert gr.linalg.svd(gr.zeros(0, 0), safe=True).S.shape == (0,)
    assert gr.linalg.eigh(gr.zeros(0, 0), safe=True).eigenvalues.shape == (0,)
