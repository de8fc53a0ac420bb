"""``gr.special`` against SciPy: values, points where functions change, derivatives, narrow dtypes."""

from __future__ import annotations

import girih as gr
import mpmath
import numpy as np
import pytest
from scipy import special

WIDE = np.concatenate([-np.geomspace(1e-6, 50, 200), np.geomspace(1e-6, 50, 200)])
SHARES = np.concatenate([np.geomspace(1e-30, 0.5, 120), 1 - np.geomspace(1e-7, 0.5, 80)])
POSITIVE = np.geomspace(1e-3, 1e3, 150)
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan])
UNARY = {
    "entr": POSITIVE,
    "erfcinv": 2 * SHARES,
    "expit": WIDE,
    "gammaln": POSITIVE,
    "i0e": 40 * WIDE,
    "i1e": 40 * WIDE,
    "log_expit": WIDE,
    "log_ndtr": 10 * WIDE,
    "logit": SHARES,
    "ndtr": WIDE,
    "ndtri": SHARES,
}
PAIRS = {
    "betaln": (POSITIVE, POSITIVE[::-1]),
    "boxcox": (POSITIVE, np.linspace(-2, 2, 150)),
    "boxcox1p": (POSITIVE, np.linspace(-2, 2, 150)),
    "gammainc": (POSITIVE, POSITIVE[::-1]),
    "gammaincc": (np.linspace(0.1, 20, 150), np.linspace(0.1, 30, 150)),
    "huber": (np.geomspace(0.1, 10, 400), WIDE),
    "kl_div": (POSITIVE, POSITIVE[::-1]),
    "pseudo_huber": (np.geomspace(0.1, 10, 400), WIDE),
    "rel_entr": (POSITIVE, POSITIVE[::-1]),
    "xlog1py": (WIDE, np.abs(WIDE)),
    "xlogy": (WIDE, np.abs(WIDE)),
    "zeta": (np.linspace(1.01, 40, 150), np.linspace(0.1, 30, 150)),
}
#: Tolerances where a value is a small difference of larger terms, or an exponential of a large one.
LOOSE = {
    "ndtr": 1e-13,
    "gammaincc": 1e-12,
    "kl_div": 2e-12,
    "betaln": 5e-13,
    "log_ndtr": 1e-13,
    "i0e": 1e-13,
    "i1e": 1e-13,
}


#: In float32: the density in the tail is the exponential of a large square.
SINGLE = {"ndtr": 3e-5, "log_ndtr": 1e-5}


def ours(name):
    return getattr(gr.special, name)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument(name):
    x = UNARY[name]
    want = getattr(special, name)(x)
    np.testing.assert_allclose(
        ours(name)(x).numpy(), want, rtol=LOOSE.get(name, 3e-14), atol=1e-300
    )
    single = x.astype(np.float32)
    got = ours(name)(single)
    assert got.dtype == gr.float32
    want = getattr(special, name)(single.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got.numpy(), want, rtol=SINGLE.get(name, 3e-6), atol=1e-37)


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two_arguments(name):
    x, y = PAIRS[name]
    want = getattr(special, name)(x, y)
    np.testing.assert_allclose(
        ours(name)(x, y).numpy(), want, rtol=LOOSE.get(name, 1e-13), atol=1e-15
    )
    a, b = x.astype(np.float32), y.astype(np.float32)
    got = ours(name)(a, b).numpy()
    assert got.dtype == np.float32
    want = getattr(special, name)(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(got, want, rtol=2e-4 if name == "kl_div" else 2e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in UNARY if n not in ("expit", "gammaln", "log_expit")])
def test_edges_of_functions_of_one_argument(name):
    want = getattr(special, name)(EDGES)
    np.testing.assert_allclose(ours(name)(EDGES).numpy(), want, rtol=1e-13)


@pytest.mark.parametrize(
    "name", [n for n in PAIRS if n not in ("betaln", "gammainc", "gammaincc", "zeta")]
)
def test_edges_of_functions_of_two_arguments(name):
    x, y = (v.reshape(-1) for v in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        want = getattr(special, name)(x, y)
    got = ours(name)(x, y).numpy()
    if name.startswith("boxcox") or "huber" in name:
        # SciPy's limits at infinite exponents and scales are not defined by the formulas.
        kept = np.isfinite(x) & np.isfinite(y)
        x, y, want, got = x[kept], y[kept], want[kept], got[kept]
    np.testing.assert_allclose(got, want, rtol=1e-13, err_msg=str(np.stack([x, y, want, got])))


def test_zeta_at_its_edges():
    x = np.array([1.0, 0.5, np.inf, np.inf, np.inf, 2.0, 2.0, np.nan])
    q = np.array([3.0, 3.0, 2.0, 1.0, 0.5, 0.0, -1.5, 1.0])
    want = [np.inf, np.nan, 0.0, 1.0, np.inf, np.inf, np.nan, np.nan]
    np.testing.assert_array_equal(ours("zeta")(x, q).numpy(), want)
    np.testing.assert_allclose(
        ours("zeta")([2.0, 4.0]).numpy(), special.zeta([2.0, 4.0]), rtol=1e-6
    )


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 3e-5)])
def test_betainc(dtype, rtol):
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-3, 5, (2, 500))).astype(dtype)
    x = rng.uniform(0, 1, 500).astype(dtype)
    want = special.betainc(a.astype(float), b.astype(float), x.astype(float))
    np.testing.assert_allclose(ours("betainc")(a, b, x).numpy(), want, rtol=rtol, atol=1e-30)


def test_betainc_at_its_edges():
    a = np.array([1.0, 1.0, 0.0, -1.0, 2.0, 2.0, np.nan])
    x = np.array([0.0, 1.0, 0.5, 0.5, -0.1, 1.1, 0.5])
    want = [0.0, 1.0, np.nan, np.nan, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(ours("betainc")(a, 2.0, x).numpy(), want)


SLOPES = {
    "xlogy": [(0.0, 2.0), (1.5, 0.3)],
    "xlog1py": [(0.0, 2.0), (1.5, 0.3)],
    "logit": [(0.2,), (0.5,), (0.6,), (0.99,)],
    "entr": [(0.3,), (2.0,)],
    "rel_entr": [(0.3, 0.7)],
    "kl_div": [(0.3, 0.7)],
    "ndtr": [(-3.0,), (0.0,), (2.0,)],
    "log_ndtr": [(-40.0,), (-20.0,), (-3.0,), (0.0,), (4.0,)],
    "ndtri": [(1e-6,), (0.3,), (0.5,), (0.99,)],
    "erfcinv": [(0.01,), (1.0,), (1.7,)],
    "i0e": [(0.5,), (-3.0,), (60.0,)],
    "i1e": [(0.5,), (-3.0,), (60.0,)],
    "betaln": [(0.5, 3.0), (2.0, 30.0), (20.0, 30.0)],
    "betainc": [(2.0, 3.0, 0.3), (0.5, 4.0, 0.8), (30.0, 20.0, 0.5)],
    "zeta": [(2.5, 1.5), (6.0, 0.5)],
    "sinc": [(0.0,), (0.05,), (0.3,), (2.4,)],
    "huber": [(1.0, 0.5), (1.0, -3.0)],
    "pseudo_huber": [(1.0, 0.5), (2.0, -3.0)],
    "boxcox": [(2.0, 0.7), (0.5, -1.0)],
    "boxcox1p": [(2.0, 0.7)],
}


def derivative(f, at, i, h=1e-4):
    """A derivative by differences of the fourth order."""

    def value(step):
        moved = [np.float64(v) for v in at]
        moved[i] = moved[i] + step
        return float(f(*(gr.asarray(v, gr.float64) for v in moved)).item())

    h *= abs(at[i]) or 0.1
    return (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_of_both_orders(name):
    f = ours(name)
    for at in SLOPES[name]:
        tensors = [gr.asarray(v, gr.float64) for v in at]
        for i in range(len(at)):
            slope = gr.grad(lambda *a: f(*a), argnums=i)
            want = derivative(f, at, i)
            np.testing.assert_allclose(
                slope(*tensors).item(), want, rtol=1e-6, atol=1e-8, err_msg=str((at, i))
            )
            forward = gr.jvp(
                lambda v, i=i, tensors=tensors: f(*tensors[:i], v, *tensors[i + 1 :]),
                [tensors[i]],
                [gr.ones_like(tensors[i])],
            )[1]
            np.testing.assert_allclose(forward.item(), want, rtol=1e-6, atol=1e-8)
            second = gr.grad(slope, argnums=i)(*tensors).item()
            np.testing.assert_allclose(
                second, derivative(slope, at, i), rtol=1e-5, atol=1e-6, err_msg=str((at, i))
            )


def test_tails_against_exact_values():
    mpmath.mp.dps = 40
    for x in (-1e3, -37.0, -12.5, -5.0, 3.0, 8.0):
        want = (
            mpmath.log(mpmath.ncdf(x))
            if x > -38
            else mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
        )
        np.testing.assert_allclose(
            gr.special.log_ndtr(np.float64(x)).item(), float(want), rtol=2e-14
        )
    for p in (1e-300, 1e-20, 0.02, 0.97):
        got = gr.special.ndtri(np.float64(p)).item()
        want = mpmath.findroot(lambda v, p=p: mpmath.log(mpmath.ncdf(v)) - mpmath.log(p), got)
        np.testing.assert_allclose(got, float(want), rtol=2e-15)


@pytest.mark.parametrize("name", [*UNARY, *PAIRS, "sinc"])
def test_dtypes_shapes_and_numbers(name):
    count = 2 if name in PAIRS else 1
    f = ours(name)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        x = [gr.asarray([0.25, 0.5], dtype) for _ in range(count)]
        got = f(*x)
        assert got.dtype == x[0].dtype
        want = f(*(v.astype(gr.float64) for v in x)).numpy()
        rtol = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5)
        np.testing.assert_allclose(got.astype(gr.float64).numpy(), want, rtol=rtol, atol=rtol)
    assert f(*[gr.zeros(0, 3)] * count).shape == (0, 3)
    assert f(*[0.5] * count).shape == ()
    assert f(*[np.float32(0.5)] * count).dtype == gr.float32
    assert f(*[[1, 2]] * count).dtype == gr.float32
    if not isinstance(f, type(gr.exp)) and name != "sinc":  # not an op under another name
        with pytest.raises(
            gr.DTypeError, match=f"{name}: real numbers are expected, got complex64"
        ):
            f(*[gr.asarray([1j])] * count)


def test_sinc_as_numpy():
    x = np.concatenate([WIDE, [0.0, 1.0, 2.0, 1e6, np.nan]])
    np.testing.assert_allclose(gr.special.sinc(x).numpy(), np.sinc(x), rtol=1e-12, atol=2e-16)
    assert gr.special.sinc([1.0, 2.0, 3e6, np.inf]).tolist() == [0.0, 0.0, 0.0, 0.0]
    z = np.array([0.0, 1 + 2j])
    np.testing.assert_allclose(gr.special.sinc(z).numpy(), np.sinc(z), rtol=1e-12)


def test_batches_and_compiled_code():
    x = gr.asarray(np.linspace(0.1, 0.9, 6).reshape(2, 3))
    for name in ("ndtri", "betainc", "log_ndtr"):
        f = (lambda v: gr.special.betainc(v, 2.0, v)) if name == "betainc" else ours(name)
        want = f(x).numpy()
        np.testing.assert_allclose(gr.vmap(f)(x).numpy(), want, rtol=1e-12)
        np.testing.assert_allclose(gr.compile(f)(x).numpy(), want, rtol=1e-12)


def test_limits_and_bad_arguments():
    assert gr.special.logit([0.0, 1.0], eps=0.25).tolist() == pytest.approx([-1.0986123, 1.0986123])
    with pytest.raises(gr.InvalidArgumentError, match=r"eps is from 0 to 0.5, got 0.7"):
        gr.special.logit([0.5], eps=0.7)
    np.testing.assert_allclose(
        gr.special.multigammaln([3.0, 5.5], 3).numpy(),
        [special.multigammaln(v, 3) for v in (3.0, 5.5)],
        rtol=1e-6,
    )
    with pytest.raises(gr.InvalidArgumentError, match="d is an integer"):
        gr.special.multigammaln([3.0], 0)
