"""Cumulative operations in both directions, with and without the own element."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(3)
FOLDS = {
    "cumsum": (np.add.accumulate, 0.0),
    "cumprod": (np.multiply.accumulate, 1.0),
    "cummax": (np.maximum.accumulate, -np.inf),
    "cummin": (np.minimum.accumulate, np.inf),
    "logcumsumexp": (np.logaddexp.accumulate, -np.inf),
}


def running(name, x, axis, reverse, inclusive):
    fold, initial = FOLDS[name]
    x = np.flip(x, axis) if reverse else x
    out = fold(x, axis=axis)
    if not inclusive:
        first = np.full_like(out.take([0], axis), initial) if x.shape[axis] else out
        rest = out.take(range(x.shape[axis] - 1), axis) if x.shape[axis] else out
        out = np.concatenate([first, rest], axis)
    return np.flip(out, axis) if reverse else out


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (1, 4), (0, 2), (2, 0), (70, 2)])
def test_running_folds(name, reverse, inclusive, shape):
    x = RNG.normal(size=shape)
    for axis in (0, 1, -1):
        expected = running(name, x, axis, reverse, inclusive)
        got = getattr(gr, name)(x, axis, reverse=reverse, inclusive=inclusive)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
        method = getattr(gr.asarray(x), name)(axis, reverse=reverse, inclusive=inclusive)
        np.testing.assert_array_equal(method, got)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("reverse", [False, True])
def test_running_folds_have_gradients(name, reverse):
    x = gr.asarray(RNG.normal(size=(4,)))
    weights = gr.asarray(RNG.normal(size=(4,)))
    # The first result without an own element is constant, and may be infinite.
    keep = slice(0, 3) if reverse else slice(1, 4)
    f = lambda x: (getattr(gr, name)(x, 0, reverse=reverse, inclusive=False) * weights)[keep].sum()
    slope = gr.grad(f)(x).numpy()
    for i in range(4):
        step = gr.asarray(np.eye(4)[i] * 1e-6)
        numeric = (f(x + step).item() - f(x - step).item()) / 2e-6
        assert abs(numeric - slope[i]) < 1e-6


def test_extremes_of_no_elements_are_the_ends_of_the_dtype():
    x = gr.asarray([3, 1], dtype=gr.int8)
    assert gr.cummax(x, inclusive=False).tolist() == [-128, 3]
    assert gr.cummin(x, inclusive=False, reverse=True).tolist() == [1, 127]
    assert gr.cummax(gr.asarray([True, False]), inclusive=False).tolist() == [False, True]
    assert gr.cumsum([1, 2, 3], reverse=True, inclusive=False).tolist() == [5, 3, 0]
    assert gr.cumsum([[1, 2], [3, 4]], inclusive=False).tolist() == [0, 1, 3, 6]
    half = gr.cumsum(gr.asarray([1, 2], dtype=gr.float16), reverse=True)
    assert (half.tolist(), half.dtype) == ([3.0, 2.0], gr.float16)


def complex_numbers(*shape):
    return RNG.normal(size=shape) * 3 + 1j * RNG.normal(size=shape) * 3


def wrapped(x):
    return x.real + 1j * ((x.imag + np.pi) % (2 * np.pi) - np.pi)


def test_logaddexp_of_complex_numbers():
    a, b = complex_numbers(50), complex_numbers(50)
    got = gr.logaddexp(a, b)
    np.testing.assert_allclose(got, np.log(np.exp(a) + np.exp(b)), rtol=1e-10, atol=1e-12)
    assert gr.logaddexp(gr.asarray(1.0 + 0j), 2.0).dtype == gr.complex64
    far = gr.logaddexp(gr.asarray([1000 + 1j, -1000 + 1j]), gr.asarray([999 + 2j, -1001 + 2j]))
    near = np.log(np.exp(1j) + np.exp(-1 + 2j))
    np.testing.assert_allclose(far, [1000 + near, -1000 + near], rtol=1e-6)
    ends = gr.logaddexp(gr.asarray([-np.inf + 0j, 2.0]), gr.asarray([-np.inf + 0j, -np.inf]))
    np.testing.assert_array_equal(ends, [-np.inf + 0j, 2.0 + 0j])
    slopes = gr.grad(lambda a, b: gr.real(gr.logaddexp(a, b)).sum(), (0, 1))(
        gr.asarray(a), gr.asarray(b)
    )
    for slope, own in zip(slopes, (a, b), strict=True):
        np.testing.assert_allclose(slope, np.exp(own) / (np.exp(a) + np.exp(b)), rtol=1e-9)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 33])
def test_logcumsumexp_of_complex_numbers(reverse, n):
    x = complex_numbers(3, n)
    steps = np.flip(x, 1) if reverse else x
    expected = np.log(np.cumsum(np.exp(steps), axis=1))
    expected = np.flip(expected, 1) if reverse else expected
    got = gr.logcumsumexp(x, 1, reverse=reverse)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    if n:
        # A large element does not round the small ones before it away.
        x[:, -1 if not reverse else 0] += 800
        got = gr.logcumsumexp(x, 1, reverse=reverse)
        inner = slice(1, None) if reverse else slice(0, -1)
        np.testing.assert_allclose(got[:, inner], expected[:, inner], rtol=1e-9, atol=1e-9)
