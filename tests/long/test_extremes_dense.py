"""The functions of `tests/python/test_extremes.py` at many more arguments, and pseudo-inverses of
matrices with many patterns of equal and zero singular values.
"""

from __future__ import annotations

import extremes_table as table
import girih as gr
import numpy as np
import pytest
import test_linalg_degenerate as degenerate

RTOL = {"float32": 1e-4, "float64": 1e-10}
DENSE = np.concatenate([np.geomspace(1e-18, 1e18, 120), np.linspace(0.01, 90, 180)])


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", table.UNARY)
def test_functions_of_one_number(name, dtype):
    wrong = table.check_unary(name, dtype, RTOL[dtype], DENSE)
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", table.BINARY)
def test_functions_of_two_numbers(name, dtype, monkeypatch):
    f, exact, pairs = table.BINARY[name]
    a, b = np.array(pairs, "f8").T
    draw = np.random.default_rng(7)
    more = [
        (x * s, y * t) for x, y in zip(a, b, strict=True) for s, t in draw.uniform(0.3, 3, (8, 2))
    ]
    monkeypatch.setitem(table.BINARY, name, (f, exact, more))
    wrong = table.check_binary(name, dtype, RTOL[dtype])
    assert not wrong, "\n".join(wrong[:20])


def orthonormal(draw, rows, columns, is_complex):
    x = draw.normal(size=(rows, columns))
    if is_complex:
        x = x + 1j * draw.normal(size=(rows, columns))
    return np.linalg.qr(x)[0]


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_pseudo_inverses_of_matrices_with_equal_singular_values(seed, is_complex):
    draw = np.random.default_rng(seed)
    m, n = draw.integers(1, 7, 2)
    k = min(m, n)
    values = draw.choice([1.0, 1.0, 2.0, 0.5], k)
    x = orthonormal(draw, m, k, is_complex) * values @ orthonormal(draw, n, k, is_complex).conj().T
    for f in (gr.linalg.pinv, lambda x: degenerate.solution(x)[0]):
        loss = lambda x, f=f: degenerate.weighted(f, x)
        want = degenerate.differences(loss, x)
        got = gr.grad(loss)(gr.asarray(x)).numpy()
        np.testing.assert_allclose(got, want, 0, 1e-6 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("seed", range(40))
def test_pseudo_inverses_along_paths_of_constant_rank(seed):
    draw = np.random.default_rng(seed)
    m, n = draw.integers(2, 7, 2)
    k = int(draw.integers(1, min(m, n)))
    left, right = orthonormal(draw, m, k, False), orthonormal(draw, n, k, False)
    turn, bend = draw.normal(size=(m, k)), draw.normal(size=(n, k))

    def f(t):
        u = gr.asarray(left) + t * gr.asarray(turn)
        v = gr.asarray(right) + t * t * gr.asarray(bend)
        return degenerate.weighted(gr.linalg.pinv, u @ v.T)

    h = 1e-3
    for at in (0.0, 0.2):
        value = lambda t: f(gr.asarray(t, dtype=gr.float64)).item()
        want = (value(at - 2 * h) - 8 * value(at - h) + 8 * value(at + h) - value(at + 2 * h)) / (
            12 * h
        )
        point = gr.asarray(at, dtype=gr.float64)
        np.testing.assert_allclose(gr.grad(f)(point).item(), want, 1e-5, 1e-6)
        np.testing.assert_allclose(
            gr.jvp(f, (point,), (point * 0 + 1,))[1].item(), want, 1e-5, 1e-6
        )
