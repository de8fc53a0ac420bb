"""What special functions are computed with: series, expansions and iterations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import Tensor, erfc, erfinv, log1p
from ._girih import lgamma as gammaln
from .errors import DTypeError
from .rules import custom_jvp

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import _TensorLike

__all__ = [
    "beta_fraction",
    "hurwitz",
    "in_float32",
    "log_beta",
    "log_distribution",
    "polynomial",
    "quantile",
    "real_operands",
    "scaled_bessel",
]

_FLOATS = ("float16", "bfloat16", "float32", "float64")


_INF, _NAN = float("inf"), float("nan")


def real_operands(name: str, *values: _TensorLike) -> list[Tensor]:
    """The operands as tensors of one real floating-point dtype, by the promotion of other ops."""
    first = values[0]
    if isinstance(first, Tensor) and first.dtype.name in _FLOATS:
        same = [v for v in values if isinstance(v, Tensor) and v.dtype == first.dtype]
        if len(same) == len(values):
            return same
    # NumPy's float64 is a subclass of float, and has a dtype of its own.
    numbers = (bool, int, float, _girih.SymbolicDim, _girih.SymbolicFloat)
    given = [v if type(v) in numbers else _girih.asarray(v) for v in values]
    from .dtypes import result_type

    tensors = [v for v in given if isinstance(v, Tensor)]
    dtype = result_type(*given) if tensors else _girih.float32
    if dtype.name.startswith("complex"):
        raise DTypeError(f"{name}: real numbers are expected, got {dtype}")
    if dtype.name not in _FLOATS:
        dtype = _girih.float32
    return [
        v.astype(dtype) if isinstance(v, Tensor) else _girih.full((), v, dtype=dtype) for v in given
    ]


def in_float32(function: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """Computes in float32 for narrower dtypes, whose steps would lose digits."""
    dtype = values[0].dtype
    if dtype.itemsize >= 4:
        return function(*values)
    return function(*(v.astype(_girih.float32) for v in values)).astype(dtype)


def polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    """A polynomial by Horner's rule, the highest power first."""
    total = _girih.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


#: Below it, the logarithm of the distribution is a series, because the distribution underflows.
_TAIL = {"float32": -12.0, "float64": -35.0}


@custom_jvp
def log_distribution(x: Tensor) -> Tensor:
    """The logarithm of the standard normal distribution."""
    tail = x < _TAIL[x.dtype.name]
    upper = x > 0
    inside = _girih.where(tail, 0.0, x) * math.sqrt(0.5)
    low = _girih.log(0.5 * erfc(_girih.where(upper, 0.0, -inside)))
    high = log1p(-0.5 * erfc(_girih.where(upper, inside, 0.0)))
    far = _girih.where(tail, x, -100.0)
    square = far * far
    # 1 - 1/x**2 + 1*3/x**4 - 1*3*5/x**6 ...
    terms = [(-1.0) ** k * math.prod(range(1, 2 * k, 2)) for k in range(7, -1, -1)]
    series = _girih.log(polynomial(1 / square, terms)) - _girih.log(-far)
    far_value = -0.5 * square - 0.5 * math.log(2 * math.pi) + series
    return _girih.where(tail, far_value, _girih.where(upper, high, low))


@log_distribution.defjvp
def _log_ndtr_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    value = log_distribution(x)
    tail = x < _TAIL[x.dtype.name]
    # The density over the distribution, which grows as -x below.
    near = _girih.exp(-0.5 * x * x - value - 0.5 * math.log(2 * math.pi))
    square = 1 / _girih.where(tail, x, -100.0) ** 2
    terms = [(-1.0) ** k * math.prod(range(1, 2 * k, 2)) for k in range(7, -1, -1)]
    slope = _girih.where(tail, -x / polynomial(square, terms), _girih.where(tail, 0.0, near))
    return value, tangent * slope


@custom_jvp
def quantile(p: Tensor) -> Tensor:
    """The inverse of the standard normal distribution."""
    inside = _girih.logical_and(p > 0, p < 1)
    low = _girih.where(p > 0.5, 1 - p, p)
    centre = low > 0.1
    # Near 1/2, where 2p - 1 keeps all digits.
    near = math.sqrt(2) * erfinv(2 * _girih.where(centre, p, 0.5) - 1)
    tail = _girih.where(_girih.logical_and(inside, ~centre), low, 0.05)
    # The logarithm's leading terms, then Newton's steps on the logarithm of the distribution, which
    # is concave and nearly quadratic there.
    wanted = _girih.log(tail)
    t = _girih.sqrt(-2 * wanted)
    x = -(t - (_girih.log(t) + 0.5 * math.log(2 * math.pi)) / t)
    for _ in range(4):
        value = log_distribution(x)
        slope = _girih.exp(-0.5 * x * x - value - 0.5 * math.log(2 * math.pi))
        error = (value - wanted) / slope
        # Halley's correction: the second derivative over the first is -(x + slope).
        x = x - error / (1 + 0.5 * error * (x + slope))
    far = _girih.where(p > 0.5, -x, x)
    ends = _girih.where(p == 0, -_INF, _girih.where(p == 1, _INF, _NAN))
    return _girih.where(inside, _girih.where(centre, near, far), ends)


@quantile.defjvp
def _ndtri_jvp(primals: Any, tangents: Any) -> Any:
    (p,), (tangent,) = primals, tangents
    x = quantile(p)
    return x, tangent * (math.sqrt(2 * math.pi) * _girih.exp(0.5 * x * x))


def _expansion(order: int) -> list[float]:
    """The coefficients of the expansion of a Bessel function at infinity in powers of ``1 / x``."""
    found = [1.0]
    for k in range(1, 13):
        found.append(found[-1] * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k))
    return found[::-1]


def scaled_bessel(function: Callable[[Tensor], Tensor], order: int, x: Tensor) -> Tensor:
    """A modified Bessel function of order 0 or 1 times ``exp(-|x|)``."""
    size = x.abs()
    # Below, neither factor overflows; above, the expansion's first omitted term is below rounding.
    large = size > 50
    near = _girih.where(large, 0.0, x)
    value = _girih.exp(-near.abs()) * function(near)
    far = _girih.where(large, size, 100.0)
    expanded = polynomial(1 / far, _expansion(order)) / _girih.sqrt(2 * math.pi * far)
    return _girih.where(large, expanded * _girih.sign(x) if order else expanded, value)


def _stirling(x: Tensor) -> Tensor:
    """What Stirling's formula for the logarithm of the gamma function lacks, for x above 10."""
    terms = [-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]
    return polynomial(1 / (x * x), terms) / x


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the beta function of positive numbers."""
    low, high = _girih.minimum(a, b), _girih.maximum(a, b)
    # The difference of two large logarithms loses all digits of a small one.
    large = high > 10
    plain = gammaln(low) + gammaln(high) - gammaln(low + high)
    top = _girih.where(large, high, 20.0)
    part = _girih.where(large, low, 1.0)
    both = part > 10
    small = _girih.where(both, 1.0, part)
    difference = (
        -(top - 0.5) * log1p(small / top)
        - small * _girih.log(top + small)
        + small
        + _stirling(top)
        - _stirling(top + small)
    )
    one = gammaln(small) + difference
    part = _girih.where(both, part, 20.0)
    two = (
        0.5 * math.log(2 * math.pi)
        - 0.5 * _girih.log(part)
        + part * _girih.log(part / (part + top))
        - (top - 0.5) * log1p(part / top)
        + _stirling(part)
        + _stirling(top)
        - _stirling(part + top)
    )
    return _girih.where(large, _girih.where(both, two, one), plain)


def beta_fraction(a: Tensor, b: Tensor, x: Tensor, steps: int) -> Tensor:
    """The continued fraction of the incomplete beta function, by the method of Lentz."""
    from .control import fori_loop

    tiny = 1e-30
    away: Callable[[Tensor], Tensor] = lambda v: _girih.where(v.abs() < tiny, tiny, v)
    d = 1 / away(1 - (a + b) * x / (a + 1))

    def step(i: Tensor, state: Any) -> Any:
        c, d, total = state
        m = (i + 1).astype(x.dtype)
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / away(1 + term * d)
            c = away(1 + term / c)
            total = total * (c * d)
        return c, d, total

    found: Tensor = fori_loop(0, steps, step, (_girih.ones_like(d), d, d))[2]
    return found


#: Bernoulli numbers over factorials, B[2k] / (2k)!.
_EULER = [
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000,
]  # fmt: skip


def hurwitz(s: Tensor, q: Tensor) -> Tensor:
    """The zeta function of Hurwitz for exponents above 1 and positive q."""
    # The first terms, and the formula of Euler and Maclaurin for the others.
    count = 12
    total = _girih.zeros_like(s + q)
    for k in range(count):
        total = total + (q + k) ** -s
    end = q + count
    power = end**-s
    total = total + power * end / (s - 1) + 0.5 * power
    factor = s * power / end
    for k, coefficient in enumerate(_EULER):
        total = total + coefficient * factor
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2) / (end * end)
    return total
