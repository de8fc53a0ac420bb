"""Draws with tensors as parameters: gradients through rejection sampling, bounds, complex numbers."""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from scipy import stats

KEY = gr.random.key(5)


def quantile_slope(law, a, x, step=1e-5):
    """The derivative of a quantile by the parameter, at the draw's own place."""
    place = law(a).cdf(x)
    return (law(a + step).ppf(place) - law(a - step).ppf(place)) / (2 * step)


@pytest.mark.parametrize("a", [0.05, 0.5, 1.0, 2.5, 30.0, 1000.0])
@pytest.mark.parametrize("dtype", [gr.float32, gr.float64])
def test_gradients_of_gamma_draws_are_those_of_quantiles(a, dtype):
    shapes = gr.full([200], a, dtype=dtype)
    draw = lambda shapes: gr.random.gamma(shapes, key=KEY, scale=2.0)
    x = draw(shapes).numpy().astype(np.float64) / 2
    slope = gr.grad(lambda s: draw(s).sum())(shapes).numpy() / 2
    middle = (stats.gamma(a).cdf(x) > 1e-3) & (stats.gamma(a).cdf(x) < 0.999) & (x > 1e-30)
    expected = quantile_slope(stats.gamma, a, x[middle], a * 1e-5)
    np.testing.assert_allclose(slope[middle], expected, rtol=2e-2 if dtype == gr.float32 else 1e-3)
    assert np.isfinite(slope).all()
    forward = gr.jvp(draw, (shapes,), (gr.ones_like(shapes),))[1].numpy() / 2
    np.testing.assert_allclose(forward, slope, rtol=1e-5)
    of_scale = gr.grad(lambda scale: gr.random.gamma(shapes, scale=scale, key=KEY).sum())
    np.testing.assert_allclose(of_scale(gr.asarray(2.0, dtype=dtype)).item(), x.sum(), rtol=1e-4)


def test_gradients_of_beta_and_dirichlet_draws_move_their_means():
    a, b = gr.asarray(2.0, dtype=gr.float64), gr.asarray(3.0, dtype=gr.float64)
    mean = lambda a, b: gr.random.beta(a, b, (200_000,), key=KEY).mean()
    of_a, of_b = gr.grad(mean, (0, 1))(a, b)
    # The mean is a / (a + b).
    assert abs(of_a.item() - 3 / 25) < 2e-3
    assert abs(of_b.item() + 2 / 25) < 2e-3
    alpha = gr.asarray([1.0, 2.0, 0.3], dtype=gr.float64)
    mean = lambda alpha: gr.random.dirichlet(alpha, (200_000,), key=KEY).mean(0)
    total = 3.3
    expected = (np.eye(3) * total - alpha.numpy()[:, None]) / total**2
    np.testing.assert_allclose(gr.jacrev(mean)(alpha), expected, atol=2e-3)


def test_gamma_gradients_are_computed_only_where_they_are_wanted():
    plain = gr.explain(gr.random.gamma(gr.full([4], 2.0), key=KEY))
    assert "igamma" not in str(plain.kernels)
    step = gr.compile(gr.grad(lambda a: gr.random.gamma(a, (8,), key=KEY).sum()))
    eager = gr.grad(lambda a: gr.random.gamma(a, (8,), key=KEY).sum())(gr.asarray(2.0))
    np.testing.assert_allclose(step(gr.asarray(2.0)), eager, rtol=1e-6)
    each = gr.vmap(gr.grad(lambda a, k: gr.random.gamma(a, (8,), key=k).sum()))
    assert each(gr.asarray([0.5, 2.0]), gr.random.split(KEY, 2)).isfinite().all().item()
    assert gr.random.gamma(gr.asarray(-1.0), key=KEY).isnan().item()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_between_tensors(dtype):
    low = gr.asarray([[0], [5]], dtype=dtype)
    high = gr.asarray([1, 3, 100], dtype=dtype)
    x = gr.random.randint(low, high, (5000, 2, 3), dtype=dtype, key=KEY).numpy()
    assert x.dtype.name == dtype
    lows, highs = np.broadcast_arrays(low.numpy(), high.numpy())
    for i in np.ndindex(2, 3):
        drawn = x[(slice(None), *i)]
        if lows[i] >= highs[i]:
            assert (drawn == lows[i]).all()
        else:
            assert drawn.min() == lows[i]
            assert drawn.max() == highs[i] - 1
            mean = (int(lows[i]) + int(highs[i]) - 1) / 2
            assert abs(drawn.mean() - mean) < 0.03 * (int(highs[i]) - int(lows[i])) + 1e-9
    assert gr.random.randint(gr.asarray([2, 3])).shape == (2,)
    assert gr.random.randint(np.array([2, 3]), 4).shape == (2,)
    compiled = gr.compile(lambda n: gr.random.randint(0, n, (100,)))
    assert compiled(gr.asarray(3)).max().item() == 2


def test_integers_between_the_ends_of_64_bits():
    info = gr.iinfo(gr.int64)
    x = gr.random.randint(gr.asarray(info.min), gr.asarray(info.max), (2000,), key=KEY).numpy()
    assert (x < 0).mean() == pytest.approx(0.5, abs=0.05)
    assert np.abs(x.astype(float)).max() > 0.99 * info.max
    with pytest.raises(gr.DTypeError):
        gr.random.randint(gr.asarray([0.5]), 3)
    with pytest.raises(gr.ShapeError):
        gr.random.randint(gr.asarray([1, 2]), 3, (5,))
    assert gr.random.randint(3).shape == ()
    assert gr.random.randint(np.int64(0), np.int64(3), (2,)).shape == (2,)


@pytest.mark.parametrize("dtype", [gr.complex64, gr.complex128])
@pytest.mark.parametrize("key", [None, KEY])
def test_complex_normal_draws(dtype, key):
    x = gr.random.normal((100_000,), dtype=dtype, key=key, loc=1 + 2j, scale=3.0).numpy()
    assert x.dtype == dtype.name
    parts = np.stack([x.real - 1, x.imag - 2]) / 3
    np.testing.assert_allclose(parts.mean(1), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(parts), np.eye(2) / 2, atol=0.02)
    assert stats.kstest(parts[0] * np.sqrt(2), "norm").pvalue > 1e-4
    assert gr.random.normal(dtype=dtype).shape == ()
    assert gr.random.normal(loc=gr.zeros([2, 1]), scale=gr.ones(3), dtype=dtype).shape == (2, 3)
    with pytest.raises(gr.DTypeError):
        gr.random.normal(scale=gr.asarray(1j))


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal_draws(method):
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 1.0], [1.0, 3.0]])
    draw = lambda *args: gr.random.multivariate_normal(*args, method=method, key=KEY)
    x = draw(mean, cov, (100_000,)).numpy()
    np.testing.assert_allclose(x.mean(0), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), cov, atol=0.05)
    assert x.dtype == np.float64
    assert draw(gr.zeros([3, 1, 2]), gr.eye(2).expand(4, 2, 2)).shape == (3, 4, 2)
    assert draw(gr.zeros([2]), gr.eye(2), (5, 1)).dtype == gr.float32
    slope = gr.grad(lambda mean: draw(mean, gr.asarray(cov), (7,)).sum())(gr.asarray(mean))
    np.testing.assert_allclose(slope, [7.0, 7.0])
    singular = np.array([[1.0, 1.0], [1.0, 1.0]])
    if method == "cholesky":
        with pytest.raises(gr.LinAlgError):
            draw(np.zeros(2), np.array([[-1.0, 0.0], [0.0, 1.0]])).eval()
    else:
        x = draw(np.zeros(2), singular, (10,)).numpy()
        np.testing.assert_allclose(x[:, 0], x[:, 1], atol=1e-6)
    for bad in ((np.zeros(3), cov), (0.0, cov), (mean, cov[0])):
        with pytest.raises(gr.ShapeError):
            draw(*bad)
    with pytest.raises(gr.ShapeError, match="broadcast"):
        draw(gr.zeros([3, 2]), gr.eye(2), (4,))
    with pytest.raises(gr.InvalidArgumentError):
        gr.random.multivariate_normal(mean, cov, method="lu")
