"""Values and derivatives to second order at large, small and cancelling arguments, against closed
forms in mpmath. `tests/long/test_extremes_dense.py` takes more arguments.
"""

from __future__ import annotations

import extremes_table as table
import girih as gr
import mpmath as mp
import numpy as np
import pytest
from girih import _girih

RTOL = {"float32": 1e-4, "float64": 1e-10}
# Differentiable elementwise ops with their own tests: piecewise linear ones and those of complex
# numbers or with a convention, in test_special_points.py and test_dtypes.py; the incomplete gamma
# functions, below and in test_special.py.
ELSEWHERE = [
    "neg", "abs", "sign", "conj", "real", "imag", "complex", "copysign", "cast", "where",
    "maximum", "minimum", "add", "sub", "mul", "remainder", "fmod", "relu", "stop_gradient",
    "to_device", "reshard", "igamma", "igammac", "igamma_grad_a",
]  # fmt: skip
# Ops of derivative rules: the ops whose derivatives they are.
PARTS = {"sigmoid_slope": "sigmoid", "direction": "hypot"}
NAMES = {"pow": "power", "div": "divide", "polygamma": "polygamma of order 1"}


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", table.UNARY)
def test_functions_of_one_number(name, dtype):
    wrong = table.check_unary(name, dtype, RTOL[dtype])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", table.BINARY)
def test_functions_of_two_numbers(name, dtype):
    wrong = table.check_binary(name, dtype, RTOL[dtype])
    assert not wrong, "\n".join(wrong)


def test_every_differentiable_elementwise_op_is_in_a_table():
    tested = {*table.UNARY, *table.BINARY, *ELSEWHERE}
    for op in _girih._registry():
        if op["category"] == "OP_ELEMENTWISE" and op["differentiable"]:
            name = PARTS.get(op["name"], op["name"])
            assert NAMES.get(name, name) in tested, f"{name}: give it a row in extremes_table.py"


@pytest.mark.parametrize("name", table.ELEMENTARY)
def test_elementary_functions_of_float32_are_within_two_units(name):
    f, exact, domain = table.UNARY[name]
    x = table.points("float32", domain, np.linspace(0.01, 30, 60))
    got = f(gr.asarray(x)).numpy()
    with mp.workdps(40):
        want = np.array([float(exact(mp.mpf(float(v)))[0]) for v in x])
    info = np.finfo(np.float32)
    fine = np.abs(want) < info.max
    unit = table.units(np.maximum(np.abs(want), float(info.tiny))[fine], "float32")
    error = np.abs(got.astype("f8") - want)[fine] / unit
    # Near the zeros of these at negative numbers, the error is relative to the terms.
    if name in ("lgamma", "digamma"):
        error = error[x[fine] > 0]
    assert error.max() <= 2, f"{error.max():.2f} units at {x[fine][error.argmax()]}"


# A function of one or two numbers, the numbers, a factor of the function, and its gradient: where a
# square of a number overflows or underflows, but neither the gradient nor its factors do.
SCALED = [
    (gr.atan2, (3e-23, 4e-23), 1e-20, (160, -120)),
    (gr.atan2, (3e20, 4e20), 1e20, (0.16, -0.12)),
    (gr.hypot, (3e-23, 4e-23), 1.0, (0.6, 0.8)),
    (gr.hypot, (3e-40, 4e-40), 1e30, (0.6e30, 0.8e30)),
    (gr.hypot, (3e38, -1.0), 1e30, (1e30, -1e-8 / 3)),
    (gr.hypot, (0.0, 1e-45), 1.0, (0, 1)),
    (gr.atan, (1e20,), 1e20, (1e-20,)),
    (gr.asinh, (1e20,), 1e20, (1,)),
    (gr.asinh, (-3e38,), 3e38, (1,)),
    (gr.acosh, (1e20,), 1e20, (1,)),
    (gr.acosh, (3e38,), 3e38, (1,)),
    (gr.log10, (3e38,), 3e38, (1 / np.log(10),)),
    (gr.log2, (3e38,), 2e38, (2 / 3 / np.log(2),)),
    (gr.log2, (1e-38,), 1e-38, (1 / np.log(2),)),
]


@pytest.mark.parametrize(("f", "at", "factor", "want"), SCALED)
def test_gradients_of_float32_whose_squares_leave_the_range(f, at, factor, want):
    args = [gr.asarray(np.array(x, "f4")) for x in at]
    loss = lambda *args: f(*args) * factor
    got = gr.grad(loss, argnums=tuple(range(len(args))))(*args)
    np.testing.assert_allclose([g.item() for g in got], want, 1e-4, 1e-37)
    _, tangent = gr.jvp(loss, tuple(args), tuple(gr.ones_like(x) for x in args))
    np.testing.assert_allclose(tangent.item(), np.sum(want), 1e-4, 1e-37)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("x", [-1e-5, -1e-9, -1e-17, -1e-30, 1e-30, -1 - 1e-9, -3 + 1e-6, 1e200])
def test_polygamma_beside_its_poles_and_far_away(n, x):
    with mp.workdps(60):
        want = mp.psi(n, mp.mpf(x))
        beside = abs(mp.psi(n, mp.mpf(x) * (1 + mp.mpf(2) ** -52)) - want)
    got = gr.polygamma(n, gr.asarray(x, dtype=gr.float64)).item()
    if 1e-300 < abs(want) < 1e300:
        assert abs(got - want) <= 1e-12 * abs(want) + 4 * beside


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("scale", [1e-30, 1e-23, 1e-19, 1.0, 1e19, 1e30])
def test_deviations_and_norms_of_any_scale(scale, dtype):
    numbers = np.array([3.0, -1.0, 0.5, 2.0])
    x = gr.asarray((scale * numbers).astype(dtype))
    centred = numbers - numbers.mean()
    deviation = centred.std()
    for name, f, value, slope, bend in [
        ("std", gr.std, deviation, centred / 4 / deviation,
         (np.eye(4) - 0.25) / 4 / deviation - np.outer(centred, centred) / 16 / deviation**3),
        ("norm", gr.linalg.vector_norm, np.linalg.norm(numbers), numbers / np.linalg.norm(numbers),
         np.eye(4) / np.linalg.norm(numbers) - np.outer(numbers, numbers) / np.linalg.norm(numbers) ** 3),
    ]:  # fmt: skip
        np.testing.assert_allclose(f(x).item(), scale * value, 1e-5, err_msg=name)
        np.testing.assert_allclose(gr.grad(f)(x).numpy(), slope, 1e-5, err_msg=name)
        second = gr.grad(lambda x, f=f: gr.grad(f)(x)[0])(x).numpy()
        np.testing.assert_allclose(second * scale, bend[0], 1e-4, 1e-5, err_msg=name)


def test_deviations_of_halves_have_the_range_of_the_dtype():
    np.testing.assert_allclose(gr.std(gr.asarray(np.array([60000, -60000], "f2"))).item(), 60000)
    np.testing.assert_allclose(gr.std(gr.asarray(np.array([6e-6, -6e-6], "f2"))).item(), 6e-6, 0.01)


def test_slopes_of_the_incomplete_gamma_function_of_large_orders():
    a = np.array([3.0, 100.0, 1e4, 1e4, 1e5], "f4")
    x = np.array([2.0, 110.0, 9.9e3, 1.01e4, 1e5], "f4")
    got = gr.grad(lambda x: gr.igamma(gr.asarray(a), x).sum())(gr.asarray(x)).numpy()
    with mp.workdps(40):
        pairs = [(mp.mpf(float(a)), mp.mpf(float(x))) for a, x in zip(a, x, strict=True)]
        want = [float(mp.exp((a - 1) * mp.log(x) - x - mp.loggamma(a))) for a, x in pairs]
    np.testing.assert_allclose(got, want, 1e-5)


def test_small_probabilities_keep_their_digits_in_the_binary_cross_entropy():
    x = np.array([1e-30, 1e-12, 1e-8, 1e-3, 0.4], "f4")
    got = gr.binary_cross_entropy(gr.asarray(x), gr.zeros(5), reduction="none").numpy()
    np.testing.assert_allclose(got, -np.log1p(-x.astype("f8")), 1e-6)
