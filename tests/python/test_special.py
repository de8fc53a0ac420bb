"""Special functions against SciPy: accuracy in units in the last place, special points, gradients."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from scipy import special

# name: (function in SciPy, arguments)
WIDE = np.concatenate([np.geomspace(1e-30, 1e30, 200), np.linspace(0.01, 40, 400)])
NEGATIVE = -np.linspace(0.03, 20.03, 333)
FUNCTIONS = {
    "lgamma": (special.gammaln, np.concatenate([WIDE, NEGATIVE])),
    "digamma": (special.digamma, np.concatenate([WIDE, NEGATIVE])),
    "erfc": (special.erfc, np.linspace(-6, 9, 500)),
    "erfinv": (
        special.erfinv,
        np.concatenate([np.linspace(-0.999, 0.999, 500), 1 - np.geomspace(1e-7, 0.1, 50)]),
    ),
    "i0": (special.i0, np.linspace(-85, 85, 500)),
    "i1": (special.i1, np.linspace(-85, 85, 500)),
}
POINTS = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 1e-300, np.inf, -np.inf, np.nan])
# Points where SciPy's value is not the limit, or depends on its version.
EXCEPTIONS = {
    "lgamma": [-np.inf],
    "digamma": [-np.inf],
    "i0": [np.inf, -np.inf],
    "i1": [np.inf, -np.inf],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_precision_is_within_two_units(name):
    function, x = FUNCTIONS[name]
    x = x.astype(np.float32)
    want = function(x.astype(np.float64))
    got = getattr(gr, name)(x).numpy()
    assert got.dtype == np.float32
    unit = np.spacing(np.maximum(np.abs(want), np.finfo(np.float32).tiny).astype(np.float32))
    assert (np.abs(got - want) / unit).max() < 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_precision(name):
    function, x = FUNCTIONS[name]
    want, got = function(x), getattr(gr, name)(x).numpy()
    # Near zeros at negative arguments, the error is relative to the terms, not to their difference.
    terms = np.abs(x) * np.log(np.abs(x) + 2) if name in ("lgamma", "digamma") else 0
    terms = np.where(x < 0, terms, 0)
    assert (np.abs(got - want) <= 2e-14 * np.abs(want) + 2e-15 * terms).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_points(name, dtype):
    function, _ = FUNCTIONS[name]
    points = np.array([p for p in POINTS if p not in EXCEPTIONS.get(name, [])]).astype(dtype)
    want = function(points.astype(np.float64))
    rtol = 1e-6 if dtype == "float32" else 1e-14
    got = getattr(gr, name)(points).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got, want.astype(dtype), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_polygamma(n, dtype):
    x = np.concatenate([np.geomspace(0.05, 50, 60), -np.linspace(0.31, 9.37, 31)]).astype(dtype)
    with np.errstate(over="ignore"):
        want = special.polygamma(n, np.abs(x.astype(np.float64))).astype(dtype)
        # SciPy's zeta function is only defined for positive numbers.
        for i in np.flatnonzero(x < 0):
            shift = int(np.ceil(-x[i]))
            terms = (np.float64(x[i]) + np.arange(shift)) ** (-n - 1.0)
            head = special.polygamma(n, np.float64(x[i]) + shift)
            factor = (-1.0) ** (n + 1) * special.factorial(n)
            want[i] = head + factor * terms.sum()
    got = gr.polygamma(n, x)
    assert got.dtype.name == dtype
    rtol = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-11}[dtype]
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=rtol)


def test_polygamma_of_arrays_and_poles():
    got = gr.polygamma(np.array([[0], [1], [2]]), np.array([0.5, 3.0])).numpy()
    np.testing.assert_allclose(got, special.polygamma([[0], [1], [2]], [0.5, 3.0]), rtol=1e-13)
    assert np.isnan(gr.polygamma(-1, 2.0).item())
    assert gr.polygamma(1, 0.0).item() == np.inf
    assert gr.polygamma(1, -3.0).item() == np.inf
    assert np.isnan(gr.polygamma(2, -3.0).item())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "reference"), [("igamma", special.gammainc), ("igammac", special.gammaincc)]
)
def test_incomplete_gamma(name, reference, dtype):
    a = np.geomspace(1e-4, 1e5, 40).astype(dtype)[:, None]
    x = (a * np.geomspace(0.1, 10, 41)).astype(dtype)
    with np.errstate(all="ignore"):
        want = reference(a.astype(np.float64), x.astype(np.float64))
    rtol = {"float32": 3e-7, "float64": 1e-10}[dtype]
    tiny = {"float32": 1e-37, "float64": 1e-300}[dtype]
    np.testing.assert_allclose(getattr(gr, name)(a, x).numpy(), want, rtol=rtol, atol=tiny)
    edges = np.array(
        [
            [0.0, 1.0],
            [0, 0],
            [1, 0],
            [2, np.inf],
            [np.inf, 2],
            [np.inf] * 2,
            [-1, 2],
            [2, -1],
            [np.nan, 1],
            [1, np.nan],
        ],
        dtype,
    )
    got = getattr(gr, name)(edges[:, 0], edges[:, 1]).numpy()
    np.testing.assert_array_equal(got, reference(edges[:, 0], edges[:, 1]))


def test_incomplete_gamma_of_orders_beyond_the_series():
    a = np.array([1e6, 3e7, 1e12])[:, None]
    x = a + np.sqrt(a) * np.linspace(-4, 4, 9)
    np.testing.assert_allclose(gr.igamma(a, x).numpy(), special.gammainc(a, x), atol=1e-11)
    np.testing.assert_allclose(gr.igammac(a, x).numpy(), special.gammaincc(a, x), atol=1e-11)


def test_slopes_of_incomplete_gamma_in_the_order():
    a = np.linspace(0.2, 30, 25)[:, None]
    x = np.linspace(0.1, 40, 21)
    h = 1e-4 * a
    around = special.gammainc(a + h, x) - special.gammainc(a - h, x)
    np.testing.assert_allclose(gr.igamma_grad_a(a, x).numpy(), around / (2 * h), atol=1e-6)


def test_derivatives_are_those_of_the_functions():
    x = gr.asarray(np.array([0.3, 1.2, 2.7, 6.0]))
    first = lambda f: gr.grad(lambda x: f(x).sum())
    second = lambda f: gr.grad(lambda x: first(f)(x).sum())
    np.testing.assert_allclose(first(gr.lgamma)(x), special.digamma(x.numpy()), rtol=1e-12)
    np.testing.assert_allclose(second(gr.lgamma)(x), special.polygamma(1, x.numpy()), rtol=1e-12)
    np.testing.assert_allclose(second(gr.digamma)(x), special.polygamma(2, x.numpy()), rtol=1e-12)
    zero = gr.asarray(0.0, dtype=gr.float64)
    assert first(gr.i0)(zero).item() == 0
    assert second(gr.i0)(zero).item() == 0.5
    assert first(gr.i1)(zero).item() == 0.5
    np.testing.assert_allclose(first(gr.erfinv)(zero).item(), np.sqrt(np.pi) / 2, rtol=1e-15)


def test_bessel_functions_end_at_infinity():
    assert gr.i0([np.inf, -np.inf]).tolist() == [np.inf, np.inf]
    assert gr.i1([np.inf, -np.inf]).tolist() == [np.inf, -np.inf]


def test_integers_become_float32():
    for name, (function, _) in FUNCTIONS.items():
        got = getattr(gr, name)(gr.asarray([1]))
        assert got.dtype == gr.float32
        np.testing.assert_allclose(got.numpy(), function([1.0]), rtol=1e-6)


def test_shapes():
    for name in FUNCTIONS:
        x = np.linspace(0.1, 0.9, 24).reshape(2, 3, 4)
        got = getattr(gr, name)(gr.asarray(x).permute(2, 0, 1)[:, :, ::-1])
        want = FUNCTIONS[name][0](x.transpose(2, 0, 1)[:, :, ::-1])
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)
        assert getattr(gr, name)(gr.zeros([0, 3])).numpy().shape == (0, 3)
