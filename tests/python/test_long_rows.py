"""Normalisation of rows that do not fit the caches, in blocks; against SciPy and float64."""

import girih as gr
import numpy as np
import pytest
import scipy.special as special


def log_softmax(x):
    """SciPy's function does not subtract the maximum if it is infinite."""
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


LONG = [65_537, 3 * 2**15, 100_003]
ROWS = {
    "softmax": (lambda x: gr.softmax(x, axis=-1), lambda x: special.softmax(x, axis=-1)),
    "log_softmax": (lambda x: gr.log_softmax(x, axis=-1), lambda x: log_softmax(x)),
    "logsumexp": (lambda x: gr.logsumexp(x, axis=-1), lambda x: special.logsumexp(x, axis=-1)),
    "var": (lambda x: gr.var(x, axis=-1), lambda x: x.var(axis=-1)),
    "std": (lambda x: gr.std(x, axis=-1, correction=1), lambda x: x.std(axis=-1, ddof=1)),
    "layer_norm": (
        lambda x: gr.layer_norm(x, x.shape[-1:]),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
}


def check(name, x, rtol=2e-5, atol=2e-6):
    of_girih, of_scipy = ROWS[name]
    with np.errstate(all="ignore"):
        want = of_scipy(x.astype(np.float64))
    got = of_girih(gr.asarray(x)).numpy()
    np.testing.assert_allclose(got, want.astype(x.dtype), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("n", LONG)
@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_long_rows_are_right(name, n, lead):
    x = np.random.default_rng(n).standard_normal((*lead, n)).astype(np.float32) * 3 + 5
    check(name, x)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize(
    "values",
    [
        [(slice(0, 70_000), -np.inf)],
        [(slice(None), -np.inf)],
        [(5, np.inf)],
        [(5, np.inf), (69_999, np.inf)],
        [(69_999, np.nan)],
        [(0, 1e4), (1, -1e4), (69_999, 9e3)],
    ],
)
def test_infinities_and_nan_spread_as_in_short_rows(name, values):
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    for where, value in values:
        x[where] = value
    check(name, x)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", ["softmax", "logsumexp", "layer_norm"])
def test_other_dtypes(name, dtype):
    x = np.random.default_rng(0).standard_normal((2, 70_000)).astype(dtype)
    tolerance = 2e-3 if dtype == np.float16 else 1e-12
    check(name, x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ROWS)
def test_gradients_of_long_rows_are_those_of_float64(name):
    x = np.random.default_rng(0).standard_normal((2, 66_000))
    weights = np.random.default_rng(1).standard_normal(66_000)

    def loss(x):
        return (ROWS[name][0](x) * gr.asarray(weights, dtype=x.dtype)[: x.shape[-1]]).sum()

    if name in ("logsumexp", "var", "std"):
        loss = lambda x: (ROWS[name][0](x) * gr.asarray([2.0, -3.0], dtype=x.dtype)).sum()
    exact = gr.grad(loss)(gr.asarray(x)).numpy()
    got = gr.grad(loss)(gr.asarray(x.astype(np.float32))).numpy()
    np.testing.assert_allclose(got, exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())
    # The derivative along the gradient's direction is the gradient's norm.
    direction = exact / np.linalg.norm(exact)
    step = 1e-4
    ends = [loss(gr.asarray(x + s * step * direction)).item() for s in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(np.linalg.norm(exact), rel=1e-5)


@pytest.mark.parametrize("name", ROWS)
def test_long_rows_are_read_once_before_they_are_written(name):
    x = gr.asarray(np.ones((8, 1 << 18), np.float32)).eval()
    kernels = gr.explain(ROWS[name][0](x)).kernels
    whole = 4 * x.size
    reads = sum(kernel["traffic"]["bytes_read"] // whole for kernel in kernels)
    assert reads == (1 if name in ("logsumexp", "var", "std") else 2), kernels
