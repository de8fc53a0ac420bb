"""Products of chosen and of partial matrices, and solvers that start from triangular factors."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from scipy import linalg as scipy_linalg

RNG = np.random.default_rng(7)


def lower(*shape):
    return np.tril(RNG.normal(size=shape)) + 3 * np.eye(shape[-1])


@pytest.mark.parametrize("left", [None, [1, 0, 1], [[0, 1], [1, 1]]])
@pytest.mark.parametrize("right", [[4, 0, 2], [[3], [1]], 2])
def test_gather_mm_multiplies_the_chosen_matrices(left, right):
    a, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(5, 4, 6))
    if left is None and np.ndim(right) == 1:
        a = RNG.normal(size=(3, 3, 4))
    chosen = a if left is None else a[np.asarray(left)]
    try:
        expected = chosen @ b[np.asarray(right)]
    except ValueError:
        with pytest.raises(gr.ShapeError):
            gr.gather_mm(a, b, left, right)
        return
    np.testing.assert_allclose(gr.gather_mm(a, b, left, right), expected, rtol=1e-12)


def test_gather_mm_counts_over_all_leading_axes_and_has_gradients():
    a, b = gr.asarray(RNG.normal(size=(2, 2, 3, 4))), gr.asarray(RNG.normal(size=(4, 2)))
    out = gr.gather_mm(a, b, [3, 0])
    np.testing.assert_allclose(out, a.numpy().reshape(4, 3, 4)[[3, 0]] @ b.numpy(), rtol=1e-12)
    of_a, of_b = gr.grad(lambda a, b: gr.gather_mm(a, b, [3, 3]).sum(), (0, 1))(a, b)
    assert of_a[0].sum().item() == 0.0
    np.testing.assert_allclose(of_a[1, 1], 2 * b.numpy().sum(1) + np.zeros((3, 1)), rtol=1e-12)
    np.testing.assert_allclose(of_b[:, 0], 2 * a.numpy()[1, 1].sum(0), rtol=1e-12)
    with pytest.raises(gr.DTypeError, match="integers"):
        gr.gather_mm(a, b, [0.5])
    with pytest.raises(gr.ShapeError, match="matrices"):
        gr.gather_mm(gr.ones(3), b)


def test_segmented_mm_sums_over_segments_only():
    a, b = RNG.normal(size=(2, 5)), RNG.normal(size=(5, 3))
    segments = np.array([[0, 2], [2, 5], [3, 3], [0, 9]])
    expected = np.stack([a[:, s:e] @ b[s:e] for s, e in segments])
    np.testing.assert_allclose(gr.segmented_mm(a, b, segments), expected, rtol=1e-12)
    nested = segments.reshape(2, 2, 2)
    compiled = gr.compile(gr.segmented_mm)
    got = compiled(gr.asarray(a), gr.asarray(b), gr.asarray(nested))
    np.testing.assert_allclose(got, expected.reshape(2, 2, 2, 3), rtol=1e-12)
    # What is outside of a segment does not reach it, not even NaN and infinities.
    a[:, 4], b[4] = np.nan, np.inf
    np.testing.assert_allclose(gr.segmented_mm(a, b, [[0, 4]])[0], a[:, :4] @ b[:4], rtol=1e-12)
    for bad in (gr.ones(2, 4), gr.ones(5)):
        with pytest.raises(gr.ShapeError):
            gr.segmented_mm(bad, b, segments)
    with pytest.raises(gr.ShapeError, match="pairs"):
        gr.segmented_mm(a, b, [1, 2, 3])
    with pytest.raises(gr.DTypeError):
        gr.segmented_mm(a, b, [[0.0, 1.0]])


@pytest.mark.parametrize("trans", [0, "N", 1, "T", 2, "C"])
@pytest.mark.parametrize("is_lower", [True, False])
@pytest.mark.parametrize("complex_", [True, False])
def test_transposed_triangular_systems_are_scipys(trans, is_lower, complex_):
    a = RNG.normal(size=(4, 4)) + 4 * np.eye(4) + (1j * RNG.normal(size=(4, 4)) if complex_ else 0)
    b = RNG.normal(size=(4, 2))
    expected = scipy_linalg.solve_triangular(a, b, lower=is_lower, trans=trans)
    got = gr.linalg.solve_triangular(a, b, lower=is_lower, trans=trans)
    np.testing.assert_allclose(got, expected, rtol=1e-10)
    triangle = np.tril(a) if is_lower else np.triu(a)
    turned = {0: triangle, "N": triangle, 1: triangle.T, "T": triangle.T}.get(
        trans, triangle.conj().T
    )
    right = gr.linalg.solve_triangular(a, b.T, lower=is_lower, trans=trans, left=False)
    np.testing.assert_allclose(right.numpy() @ turned, b.T, atol=1e-10)


def test_factors_solve_and_invert():
    factor, b = lower(2, 3, 3), RNG.normal(size=(2, 3, 2))
    whole = factor @ factor.transpose(0, 2, 1)
    for given, upper in ((factor, False), (factor.transpose(0, 2, 1), True)):
        solved = gr.linalg.cho_solve(given, b, upper=upper)
        np.testing.assert_allclose(solved, np.linalg.solve(whole, b), rtol=1e-9)
        np.testing.assert_allclose(gr.linalg.cho_solve((given, not upper), b), solved)
        inverse = gr.linalg.cholesky_inverse(given, upper=upper)
        np.testing.assert_allclose(inverse, np.linalg.inv(whole), rtol=1e-9)
        # Only one triangle is read.
        other = given + np.where(upper, np.tril(np.ones((3, 3)), -1), np.triu(np.ones((3, 3)), 1))
        np.testing.assert_allclose(
            gr.linalg.tri_inv(other, upper=upper), np.linalg.inv(given), rtol=1e-9
        )
    assert gr.linalg.tri_inv([[2, 0], [4, 1]]).tolist() == [[0.5, 0.0], [-2.0, 1.0]]
    assert gr.linalg.tri_inv(gr.zeros([0, 0])).shape == (0, 0)
    for bad in (gr.ones(3), gr.ones(2, 3), 1.0):
        with pytest.raises(gr.ShapeError):
            gr.linalg.tri_inv(bad)
    with pytest.raises(gr.InvalidArgumentError, match="trans"):
        gr.linalg.solve_triangular(factor, b, trans="X")
    with pytest.raises(gr.LinAlgError):
        gr.linalg.tri_inv([[0.0]]).eval()


def test_complex_factors_solve():
    a = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3)) + 4 * np.eye(3)
    whole, b = a @ a.conj().T, RNG.normal(size=3)
    for upper in (False, True):
        factor = gr.linalg.cholesky(whole, upper=upper)
        solved = gr.linalg.cho_solve(factor, b + 0j, upper=upper)
        np.testing.assert_allclose(solved, np.linalg.solve(whole, b), rtol=1e-8)
        inverse = gr.linalg.cholesky_inverse(factor, upper=upper)
        np.testing.assert_allclose(inverse, np.linalg.inv(whole), rtol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int32"])
@pytest.mark.parametrize(
    "sizes",
    [
        *((16, 64), (17, 65), (100, 1100), (300, 63), (999, 3), (15, 200), (1, 1100), (1, 75)),
        # Long sums are divided into parts.
        *((1, 300_001), (3, 131_072), (40, 20_003)),
    ],
)
@pytest.mark.parametrize("view", ["dense", "transposed", "every second", "batch"])
def test_matrices_times_vectors(dtype, sizes, view):
    m, k = sizes
    a, v = RNG.integers(-4, 5, (2, m, 2 * k)), RNG.integers(-4, 5, (2, k))
    matrices, vectors = gr.asarray(a, dtype=dtype), gr.asarray(v, dtype=dtype)
    # Integers of these sizes are exact in sums of f32; halves round the result.
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3}.get(dtype, 0)

    def check(got, expected):
        np.testing.assert_allclose(got.astype("float64").numpy(), expected, rtol=tolerance)

    if view == "dense":
        check(gr.copy(matrices[0, :, :k]) @ vectors[0], a[0, :, :k] @ v[0])
        check(gr.relu(matrices[0, :, :k] @ vectors[0] + 1), np.maximum(a[0, :, :k] @ v[0] + 1, 0))
    elif view == "transposed":
        held = gr.copy(matrices[0, :, :k].T)
        check(held.T @ vectors[0], a[0, :, :k] @ v[0])
    elif view == "every second":
        check(matrices[0, :, ::2] @ vectors[0], a[0, :, ::2] @ v[0])
        check(matrices[0, ::-1, :k] @ vectors[0], a[0, ::-1, :k] @ v[0])
    else:
        expected = np.einsum("bmk,bk->bm", a[:, :, :k], v)
        check(gr.einsum("bmk,bk->bm", matrices[:, :, :k], vectors), expected)
        check(gr.vmap(lambda x, y: x @ y)(matrices[:, :, :k], vectors), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 3, 3), (4, 4, 4), (2, 5, 7), (8, 8, 8), (8, 9, 8)]
)
@pytest.mark.parametrize("batch", [(7,), (8,), (33,), (5, 6)])
def test_batches_of_small_matrices(dtype, sizes, batch):
    m, k, n = sizes
    a, b = RNG.integers(-4, 5, (*batch, m, k)), RNG.integers(-4, 5, (*batch, k, n))
    left, right = gr.asarray(a, dtype=dtype), gr.asarray(b, dtype=dtype)

    def check(got, expected):
        np.testing.assert_array_equal(got.astype("float64").numpy(), expected)

    check(left @ right, a @ b)
    check(left[::-1] @ right, a[::-1] @ b)
    check(left @ right[:1], a @ b[:1])
    check(gr.matrix_transpose(right) @ gr.matrix_transpose(left), (a @ b).swapaxes(-1, -2))
    check(gr.relu(left @ right - 1), np.maximum(a @ b - 1, 0))
    check(gr.vmap(lambda x, y: x @ y)(left, right), a @ b)
    whole = gr.zeros((*batch, m, n + 1), dtype=dtype).at[..., :n].set(left @ right)
    check(whole[..., :n], a @ b)
