"""The tables for `test_extremes.py`: functions of one and of two numbers with their first and second
derivatives in closed form, by mpmath.

The arguments are large, small, around one, and where formulas cancel or saturate. The comparison
allows for the error that one unit in the last place of the argument makes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import girih as gr
import mpmath as mp
import numpy as np
from mpmath import mpf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAGNITUDES = [
    1e-30, 1e-20, 1e-10, 1e-7, 1e-5, 1e-3, 0.02, 0.1, 0.3, 0.45, 0.55, 0.9, 1.1, 2.0, 3.3, 5.0, 6.5,
    8.0, 10.0, 13.0, 16.0, 20.0, 28.0, 37.5, 80.0, 300.0, 1e4, 1e7, 1e10, 1e15, 1e20,
]  # fmt: skip
#: Beside one, from where many functions have a zero or a pole.
NEAR_ONE = [1 - 2.0**-20, 1 + 2.0**-20, 1 - 2.0**-10, 1 + 2.0**-10]
#: Of float64 only.
WIDE = [1e-300, 1e-160, 1e-100, 1e100, 1e160, 1e300]


def sech(x: mpf) -> mpf:
    return 1 / mp.cosh(x)


def logistic(x: mpf) -> mpf:
    if abs(x) > 1e7:
        return mpf(x > 0)  # mpmath's exponential would take long.
    return 1 / (1 + mp.exp(-x))


def erfc(x: mpf) -> mpf:
    return mpf(0) if x > 1e5 else mpf(2) if x < -1e5 else mp.erfc(x)


def slope(x: mpf) -> mpf:
    """The derivative of the logistic function."""
    return logistic(x) * logistic(-x)


def bend(x: mpf) -> mpf:
    """Its second derivative."""
    return -mp.tanh(x / 2) * slope(x)


def density(x: mpf) -> mpf:
    """The density of the normal distribution."""
    return mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)


def sign(x: mpf) -> mpf:
    return mpf(1 if x > 0 else -1)


def gelu_tanh(x: mpf) -> tuple[mpf, mpf, mpf]:
    c = 2 * mp.sqrt(2 / mp.pi)
    u, du, ddu = (
        c * (x + mpf(0.044715) * x**3),
        c * (1 + 3 * mpf(0.044715) * x * x),
        c * 6 * mpf(0.044715) * x,
    )
    return (
        x * logistic(u),
        logistic(u) + x * slope(u) * du,
        2 * slope(u) * du + x * (bend(u) * du**2 + slope(u) * ddu),
    )  # fmt: skip


def mish(x: mpf) -> tuple[mpf, mpf, mpf]:
    e = mp.exp(x)
    n, dn, ddn = e * (e + 2), 2 * e * (e + 1), 2 * e * (2 * e + 1)
    t, dt, ddt = (
        n / (n + 2),
        2 * dn / (n + 2) ** 2,
        2 * ddn / (n + 2) ** 2 - 4 * dn**2 / (n + 2) ** 3,
    )
    return x * t, t + x * dt, 2 * dt + x * ddt


def exponential_unit(scale: float, alpha: float, outside: float = 1.0) -> Callable[[mpf], Any]:
    """`outside * x` if positive, else `scale * expm1(x / alpha)`."""

    def f(x: mpf) -> tuple[mpf, mpf, mpf]:
        if x > 0:
            return mpf(outside) * x, mpf(outside), mpf(0)
        e, a = mp.exp(x / alpha), mpf(alpha)
        return scale * mp.expm1(x / alpha), scale * e / a, scale * e / a**2

    return f


def tanhshrink(x: mpf) -> tuple[mpf, mpf, mpf]:
    with mp.workdps(1100 if abs(x) < 1e-100 else 150):
        return x - mp.tanh(x), mp.tanh(x) ** 2, 2 * mp.tanh(x) * sech(x) ** 2


def erfinv(x: mpf) -> tuple[mpf, mpf, mpf]:
    y = mp.erfinv(x)
    d = mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
    return y, d, 2 * y * d * d


SELU = (1.6732632423543772, 1.0507009873554805)


def all_reals(x: float) -> bool:
    return True


def positive(x: float) -> bool:
    return x > 0


def within_one(x: float) -> bool:
    return abs(x) < 1


def up_to(bound: float) -> Callable[[float], bool]:
    return lambda x: abs(x) <= bound


def no_pole(x: float) -> bool:
    """Where the gamma function has no pole, and mpmath is fast."""
    return ((x > 0 or x != int(x)) and abs(x) < 1e5) or 0 < x < 1e21


def targeted(loss: Any, target: float) -> Callable[[Any], Any]:
    return lambda x: loss(x, gr.full(x.shape, target, dtype=x.dtype), reduction="none")


def with_logits(y: float) -> Callable[[mpf], tuple[mpf, mpf, mpf]]:
    def f(x: mpf) -> tuple[mpf, mpf, mpf]:
        y_ = mpf(y)
        value = (1 - y_) * x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x)) - y_ * x
        return value, logistic(x) * (1 - y_) - logistic(-x) * y_, slope(x)

    return f


# name: (function of tensors, value with first and second derivative, domain)
UNARY: dict[str, tuple[Any, Callable[[mpf], tuple[mpf, mpf, mpf]], Callable[[float], bool]]] = {
    "exp": (gr.exp, lambda x: (mp.exp(x),) * 3, up_to(700)),
    "expm1": (gr.expm1, lambda x: (mp.expm1(x), mp.exp(x), mp.exp(x)), up_to(700)),
    "exp2": (
        gr.exp2,
        lambda x: (mpf(2) ** x, mp.ln2 * mpf(2) ** x, mp.ln2**2 * mpf(2) ** x),
        up_to(1000),
    ),
    "log": (gr.log, lambda x: (mp.log(x), 1 / x, -1 / x**2), positive),
    "log1p": (gr.log1p, lambda x: (mp.log1p(x), 1 / (1 + x), -1 / (1 + x) ** 2), lambda x: x > -1),
    "log2": (
        gr.log2,
        lambda x: (mp.log(x, 2), 1 / (x * mp.ln2), -1 / (x * x * mp.ln2)),
        positive,
    ),
    "log10": (
        gr.log10,
        lambda x: (mp.log10(x), 1 / (x * mp.ln10), -1 / (x * x * mp.ln10)),
        positive,
    ),
    "sqrt": (
        gr.sqrt,
        lambda x: (mp.sqrt(x), 1 / (2 * mp.sqrt(x)), -1 / (4 * x * mp.sqrt(x))),
        positive,
    ),
    "rsqrt": (
        gr.rsqrt,
        lambda x: (1 / mp.sqrt(x), -1 / (2 * x * mp.sqrt(x)), 3 / (4 * x * x * mp.sqrt(x))),
        positive,
    ),
    "sin": (gr.sin, lambda x: (mp.sin(x), mp.cos(x), -mp.sin(x)), all_reals),
    "cos": (gr.cos, lambda x: (mp.cos(x), -mp.sin(x), -mp.cos(x)), all_reals),
    "tan": (
        gr.tan,
        lambda x: (mp.tan(x), 1 + mp.tan(x) ** 2, 2 * mp.tan(x) * (1 + mp.tan(x) ** 2)),
        all_reals,
    ),
    "asin": (
        gr.asin,
        lambda x: (mp.asin(x), (1 - x * x) ** mpf(-0.5), x * (1 - x * x) ** mpf(-1.5)),
        within_one,
    ),
    "acos": (
        gr.acos,
        lambda x: (mp.acos(x), -((1 - x * x) ** mpf(-0.5)), -x * (1 - x * x) ** mpf(-1.5)),
        within_one,
    ),
    "atan": (
        gr.atan,
        lambda x: (mp.atan(x), 1 / (1 + x * x), -2 * x / (1 + x * x) ** 2),
        all_reals,
    ),
    "sinh": (gr.sinh, lambda x: (mp.sinh(x), mp.cosh(x), mp.sinh(x)), up_to(700)),
    "cosh": (gr.cosh, lambda x: (mp.cosh(x), mp.sinh(x), mp.cosh(x)), up_to(700)),
    "tanh": (
        gr.tanh,
        lambda x: (mp.tanh(x), sech(x) ** 2, -2 * mp.tanh(x) * sech(x) ** 2),
        all_reals,
    ),
    "asinh": (
        gr.asinh,
        lambda x: (mp.asinh(x), (1 + x * x) ** mpf(-0.5), -x * (1 + x * x) ** mpf(-1.5)),
        all_reals,
    ),
    "acosh": (
        gr.acosh,
        lambda x: (mp.acosh(x), (x * x - 1) ** mpf(-0.5), -x * (x * x - 1) ** mpf(-1.5)),
        lambda x: x > 1,
    ),
    "atanh": (
        gr.atanh,
        lambda x: (mp.atanh(x), 1 / (1 - x * x), 2 * x / (1 - x * x) ** 2),
        within_one,
    ),
    "erf": (
        gr.erf,
        lambda x: (
            mp.erf(x),
            2 / mp.sqrt(mp.pi) * mp.exp(-x * x),
            -4 * x / mp.sqrt(mp.pi) * mp.exp(-x * x),
        ),
        all_reals,
    ),
    "erfc": (
        gr.erfc,
        lambda x: (
            erfc(x),
            -2 / mp.sqrt(mp.pi) * mp.exp(-x * x),
            4 * x / mp.sqrt(mp.pi) * mp.exp(-x * x),
        ),
        all_reals,
    ),
    "erfinv": (gr.erfinv, erfinv, within_one),
    "lgamma": (
        gr.lgamma,
        lambda x: (mp.re(mp.loggamma(x)), mp.psi(0, x), mp.psi(1, x)),
        no_pole,
    ),
    "digamma": (gr.digamma, lambda x: (mp.psi(0, x), mp.psi(1, x), mp.psi(2, x)), no_pole),
    "polygamma of order 1": (
        lambda x: gr.polygamma(1, x),
        lambda x: (mp.psi(1, x), mp.psi(2, x), mp.psi(3, x)),
        no_pole,
    ),
    "i0": (
        gr.i0,
        lambda x: (
            mp.besseli(0, x),
            mp.besseli(1, x),
            (mp.besseli(0, x) + mp.besseli(2, x)) / 2,
        ),
        up_to(80),
    ),
    "i1": (
        gr.i1,
        lambda x: (
            mp.besseli(1, x),
            (mp.besseli(0, x) + mp.besseli(2, x)) / 2,
            (3 * mp.besseli(1, x) + mp.besseli(3, x)) / 4,
        ),
        up_to(80),
    ),
    "reciprocal": (gr.reciprocal, lambda x: (1 / x, -1 / x**2, 2 / x**3), all_reals),
    "square": (gr.square, lambda x: (x * x, 2 * x, mpf(2)), all_reals),
    "power, 3": (lambda x: x**3, lambda x: (x**3, 3 * x**2, 6 * x), all_reals),
    "power, -1.5": (
        lambda x: x**-1.5,
        lambda x: (x ** mpf(-1.5), -1.5 * x ** mpf(-2.5), 3.75 * x ** mpf(-3.5)),
        positive,
    ),
    "sigmoid": (gr.sigmoid, lambda x: (logistic(x), slope(x), bend(x)), all_reals),
    "log_sigmoid": (
        gr.log_sigmoid,
        lambda x: (-mp.log1p(mp.exp(-x)), logistic(-x), -slope(x)),
        all_reals,
    ),
    "silu": (
        gr.silu,
        lambda x: (
            x * logistic(x),
            logistic(x) + x * slope(x),
            2 * slope(x) + x * bend(x),
        ),
        all_reals,
    ),
    "softplus": (
        gr.softplus,
        lambda x: (mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x)), logistic(x), slope(x)),
        all_reals,
    ),
    "gelu": (
        gr.gelu,
        lambda x: (
            x * erfc(-x / mp.sqrt(2)) / 2,
            erfc(-x / mp.sqrt(2)) / 2 + x * density(x),
            (2 - x * x) * density(x),
        ),
        all_reals,
    ),
    "gelu, tanh": (lambda x: gr.gelu(x, approximate="tanh"), gelu_tanh, all_reals),
    "mish": (gr.mish, mish, all_reals),
    "elu": (gr.elu, exponential_unit(1.0, 1.0), all_reals),
    "elu, alpha": (lambda x: gr.elu(x, 0.3), exponential_unit(0.3, 1.0), all_reals),
    "celu, alpha": (lambda x: gr.celu(x, 2.0), exponential_unit(2.0, 2.0), all_reals),
    "selu": (gr.selu, exponential_unit(SELU[0] * SELU[1], 1.0, SELU[1]), all_reals),
    "softsign": (
        gr.softsign,
        lambda x: (x / (1 + abs(x)), 1 / (1 + abs(x)) ** 2, -2 * sign(x) / (1 + abs(x)) ** 3),
        all_reals,
    ),
    "tanhshrink": (gr.tanhshrink, tanhshrink, all_reals),
    "binary_cross_entropy_with_logits, 0": (
        targeted(gr.binary_cross_entropy_with_logits, 0.0), with_logits(0.0), all_reals),
    "binary_cross_entropy_with_logits, 1": (
        targeted(gr.binary_cross_entropy_with_logits, 1.0), with_logits(1.0), all_reals),
    "soft_margin_loss": (
        targeted(gr.soft_margin_loss, -1.0),
        lambda x: (mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x)), logistic(x), slope(x)),
        all_reals,
    ),
}  # fmt: skip
#: Ops of one number whose values are within two units in the last place of float32.
ELEMENTARY = [
    "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "sin", "cos",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "erfc", "erfinv", "lgamma", "digamma", "i0", "i1", "reciprocal", "square",
]  # fmt: skip


def hypot(a: mpf, b: mpf) -> list[mpf]:
    h = mp.sqrt(a * a + b * b)
    return [h, a / h, b / h, b * b / h**3, -a * b / h**3, a * a / h**3]


def atan2(a: mpf, b: mpf) -> list[mpf]:
    q = a * a + b * b
    cross = (a - b) * (a + b) / q**2
    return [mp.atan2(a, b), b / q, -a / q, -2 * a * b / q**2, cross, 2 * a * b / q**2]


def logaddexp(a: mpf, b: mpf) -> list[mpf]:
    s = slope(a - b)
    value = max(a, b) + mp.log1p(mp.exp(-abs(a - b)))
    return [value, logistic(a - b), logistic(b - a), s, -s, s]


def power(a: mpf, b: mpf) -> list[mpf]:
    y, log = a**b, mp.log(a)
    return [y, b * y / a, y * log, b * (b - 1) * y / a**2, y / a + b * y / a * log, y * log**2]


def divide(a: mpf, b: mpf) -> list[mpf]:
    return [a / b, 1 / b, -a / b**2, mpf(0), -1 / b**2, 2 * a / b**3]


def grid(*values: float) -> list[tuple[float, float]]:
    return [(a, b) for a in values for b in values]


SIDES = grid(1e-18, -3e-18, 4e-17, 1e-10, -0.7, 1.0, 1.1, 3e4, -1e10, 4e18, 1e20)
# name: (function, value, first derivatives and second derivatives aa, ab, bb; pairs)
BINARY: dict[str, tuple[Any, Callable[[mpf, mpf], list[mpf]], list[tuple[float, float]]]] = {
    "hypot": (gr.hypot, hypot, SIDES),
    "atan2": (gr.atan2, atan2, SIDES),
    "logaddexp": (
        gr.logaddexp, logaddexp, grid(-1e10, -300.0, -37.5, -1.0, -1e-10, 0.3, 1.0, 20.0, 80.0, 1e5)),
    "power": (
        gr.power, power,
        [(a, b) for a in (1e-10, 1e-3, 0.999, 1.001, 3.0, 1e10) for b in (-1.5, -1e-9, 1e-20, 0.5, 1.0, 2.5)]),
    "divide": (gr.divide, divide, grid(1e-12, -1e-6, 0.3, 1.0, -7.0, 1e5, 1e12)),
}  # fmt: skip


def points(dtype: str, domain: Callable[[float], bool], more: Iterable[float] = ()) -> np.ndarray:
    """The arguments of a function of one number."""
    magnitudes = [*MAGNITUDES, *NEAR_ONE, *more]
    if dtype == "float64":
        magnitudes += WIDE
    both = np.array([s * m for m in magnitudes for s in (1, -1)], dtype)
    return both[[domain(float(x)) for x in both]]


def units(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.spacing(np.abs(x).astype(dtype)).astype("f8")


class Wrong(list):
    """The comparisons that failed, as lines."""

    def compare(
        self,
        name: str,
        got: np.ndarray,
        exact: Callable[..., mpf],
        args: list[np.ndarray],
        rtol: float,
    ) -> None:
        """Compares with a function of numbers, to `rtol` and what four units in the last place of
        the arguments make.
        """
        info = np.finfo(got.dtype)
        for i, value in enumerate(got.tolist()):
            at = [float(a[i]) for a in args]
            want = exact(*map(mpf, at))
            if abs(want) > float(info.max) / 100:
                continue
            moved = mpf(0)
            for k, (x, a) in enumerate(zip(at, args, strict=True)):
                unit = mpf(float(np.spacing(np.abs(a[i]))))
                for way in (-1, 1):
                    beside = [mpf(v) for v in at]
                    beside[k] = mpf(x) + way * unit
                    try:
                        moved = max(moved, abs(exact(*beside) - want))
                    except (ValueError, ZeroDivisionError):
                        moved = mp.inf
                    if isinstance(moved, mp.mpc):
                        moved = mp.inf
            # A factor of the result may be below the normal range, such as a logistic function.
            floor = mpf(2048) * mpf(float(info.tiny))
            allowed = rtol * abs(want) + 4 * moved + floor
            if not (np.isfinite(value) and abs(mpf(value) - want) <= allowed):
                self.append(f"{name} at {at}: got {value:.9g}, expected {mp.nstr(want, 9)}")


def check_unary(name: str, dtype: str, rtol: float, more: Iterable[float] = ()) -> list[str]:
    """The wrong values and derivatives of a function."""
    f, exact, domain = UNARY[name]
    x = points(dtype, domain, more)
    exact = functools.cache(exact)
    once = gr.grad(lambda t: f(t).sum())
    twice = gr.grad(lambda t: once(t).sum())
    tensor = gr.asarray(x)
    wrong = Wrong()
    with mp.workdps(50):
        for k, g in enumerate((f, once, twice)):
            wrong.compare(
                f"{name}{k * chr(39)}", g(tensor).numpy(), lambda x, k=k: exact(x)[k], [x], rtol
            )
    return wrong


def check_binary(name: str, dtype: str, rtol: float) -> list[str]:
    """The wrong values and derivatives of a function of two numbers."""
    f, exact, pairs = BINARY[name]
    a, b = np.array(pairs, dtype).T.copy()
    exact = functools.cache(lambda *x: exact_of(*x))
    exact_of = BINARY[name][1]
    by = lambda g, i: gr.grad(lambda a, b: g(a, b).sum(), argnums=i)
    firsts = [by(f, 0), by(f, 1)]
    functions = [f, *firsts, by(firsts[0], 0), by(firsts[0], 1), by(firsts[1], 1)]
    wrong = Wrong()
    with mp.workdps(50):
        for k, (g, label) in enumerate(
            zip(functions, ["", "a", "b", "aa", "ab", "bb"], strict=True)
        ):
            got = g(gr.asarray(a), gr.asarray(b)).numpy()
            wrong.compare(f"{name} {label}", got, lambda *x, k=k: exact(*x)[k], [a, b], rtol)
    return wrong
