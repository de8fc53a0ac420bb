"""Special functions by the names of ``scipy.special``, ``torch.special`` and ``jax.scipy.special``.

Each is a composition of ops, so it is differentiable, batched and compiled as they are. Arguments
are tensors, numbers or arrays; integers give float32. Where a function has no value it is NaN.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import _girih
from ._girih import (
    Tensor,
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    i0,
    i1,
    log1p,
    log_softmax,
    logsumexp,
    polygamma,
    softmax,
)
from ._girih import igamma as gammainc
from ._girih import igammac as gammaincc
from ._girih import lgamma as gammaln
from ._girih import log_sigmoid as log_expit
from ._girih import sigmoid as expit
from .checks import explain_public
from .errors import DTypeError, InvalidArgumentError
from .rules import custom_jvp

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._girih import _TensorLike

__all__ = [
    "betainc",
    "betaln",
    "boxcox",
    "boxcox1p",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "huber",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "kl_div",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "pseudo_huber",
    "rel_entr",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INF, _NAN = float("inf"), float("nan")


def _real(name: str, *values: _TensorLike) -> list[Tensor]:
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


def _in_float32(function: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """Computes in float32 for narrower dtypes, whose steps would lose digits."""
    dtype = values[0].dtype
    if dtype.itemsize >= 4:
        return function(*values)
    return function(*(v.astype(_girih.float32) for v in values)).astype(dtype)


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    """A polynomial by Horner's rule, the highest power first."""
    total = _girih.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def xlogy(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """``x * log(y)``, and 0 where x is 0, unless y is NaN.

    Args:
        x: the factors.
        y: the arguments of the logarithm; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.xlogy([0.0, 2.0], [0.0, 1.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = _real("xlogy", x, y)
    # The logarithm of 1 in place of an infinite one, whose product with 0 would be NaN.
    infinite = _girih.logical_and(x == 0, _girih.logical_or(y <= 0, y == _INF))
    return x * _girih.log(_girih.where(infinite, 1.0, y))


def xlog1py(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """``x * log(1 + y)``, precise for small y, and 0 where x is 0, unless y is NaN.

    Args:
        x: the factors.
        y: the arguments of the logarithm, less 1; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.xlog1py([0.0, 2.0], [-1.0, 0.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = _real("xlog1py", x, y)
    infinite = _girih.logical_and(x == 0, _girih.logical_or(y <= -1, y == _INF))
    return x * log1p(_girih.where(infinite, 0.0, y))


def logit(x: _TensorLike, /, eps: float | None = None) -> Tensor:
    """``log(x / (1 - x))``, the inverse of ``expit``: infinite at 0 and 1, NaN beyond.

    Args:
        x: probabilities.
        eps: limits x to ``eps..1 - eps`` first; by default nothing is limited.

    Returns:
        A tensor of the shape of x.

    Raises:
        InvalidArgumentError: eps is not between 0 and 0.5.

    Example:
        >>> gr.special.logit([0.5, 1.0])
        tensor([ 0., inf], dtype=float32)
    """
    (x,) = _real("logit", x)
    if eps is not None:
        if not 0 <= eps <= 0.5:
            raise InvalidArgumentError(f"logit: eps is from 0 to 0.5, got {eps}")
        x = _girih.clip(x, eps, 1 - eps)
    # Near 1/2 the quotient is near 1, where its logarithm loses digits.
    near = (x - 0.5).abs() < 0.25
    ratio = _girih.where(near, (2 * x - 1) / (1 - x), 0.0)
    far = _girih.where(near, 0.25, x)
    return _girih.where(near, log1p(ratio), _girih.log(far) - log1p(-far))


def entr(x: _TensorLike, /) -> Tensor:
    """The entropy of a probability, ``-x * log(x)``: 0 at 0, -inf below.

    Args:
        x: probabilities.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.entr([0.0, 1.0, -1.0])
        tensor([  0.,   0., -inf], dtype=float32)
    """
    (x,) = _real("entr", x)
    safe = _girih.where(x > 0, x, 1.0)
    inside = _girih.where(x == 0, 0.0, -x * _girih.log(safe))
    return _girih.where(x < 0, -_INF, inside)


def rel_entr(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """The relative entropy ``x * log(x / y)``: 0 where x is 0 and y is not negative, inf where
    either is out of its range.

    Args:
        x: probabilities.
        y: probabilities; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.rel_entr([0.0, 1.0], [1.0, 1.0])
        tensor([0., 0.], dtype=float32)
    """
    x, y = _real("rel_entr", x, y)
    both = _girih.logical_and(x > 0, y > 0)
    zero = _girih.logical_and(x == 0, y >= 0)
    ratio = _girih.where(both, x, 1.0) / _girih.where(both, y, 1.0)
    # The quotient may overflow or underflow where its logarithm does not.
    plain = _girih.logical_and(ratio > 1e-30, ratio < 1e30)
    parts = _girih.log(_girih.where(both, x, 1.0)) - _girih.log(_girih.where(both, y, 1.0))
    logarithm = _girih.where(plain, _girih.log(_girih.where(plain, ratio, 1.0)), parts)
    value = _girih.where(zero, 0.0, _girih.where(both, x * logarithm, _INF))
    return _girih.where(_girih.logical_or(_girih.isnan(x), _girih.isnan(y)), _NAN, value)


def kl_div(x: _TensorLike, y: _TensorLike, /) -> Tensor:
    """The term of the Kullback-Leibler divergence, ``x * log(x / y) - x + y``. It is not the loss
    ``gr.nn.functional.kl_div``.

    Args:
        x: probabilities.
        y: probabilities; shapes broadcast.

    Returns:
        A tensor of the promoted dtype; inf where either is out of its range.

    Example:
        >>> gr.special.kl_div([0.0, 1.0], [1.0, 1.0])
        tensor([1., 0.], dtype=float32)
    """
    x, y = _real("kl_div", x, y)
    inside = _girih.logical_and(x >= 0, y >= 0)
    outside = _girih.logical_and(x > 0, y == 0)
    inside = _girih.logical_and(inside, _girih.logical_not(outside))
    nan = _girih.logical_or(_girih.isnan(x), _girih.isnan(y))
    return _girih.where(_girih.logical_or(inside, nan), rel_entr(x, y) - x + y, _INF)


def ndtr(x: _TensorLike, /) -> Tensor:
    """The cumulative distribution of the standard normal distribution, precise in both tails.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.ndtr([0.0])
        tensor([0.5], dtype=float32)
    """
    (x,) = _real("ndtr", x)
    return _in_float32(lambda x: 0.5 * erfc(x * -math.sqrt(0.5)), x)


#: Below it, the logarithm of the distribution is a series, because the distribution underflows.
_TAIL = {"float32": -12.0, "float64": -35.0}


@custom_jvp
def _log_ndtr(x: Tensor) -> Tensor:
    tail = x < _TAIL[x.dtype.name]
    upper = x > 0
    inside = _girih.where(tail, 0.0, x) * math.sqrt(0.5)
    low = _girih.log(0.5 * erfc(_girih.where(upper, 0.0, -inside)))
    high = log1p(-0.5 * erfc(_girih.where(upper, inside, 0.0)))
    far = _girih.where(tail, x, -100.0)
    square = far * far
    # 1 - 1/x**2 + 1*3/x**4 - 1*3*5/x**6 ...
    terms = [(-1.0) ** k * math.prod(range(1, 2 * k, 2)) for k in range(7, -1, -1)]
    series = _girih.log(_series(1 / square, terms)) - _girih.log(-far)
    far_value = -0.5 * square - 0.5 * math.log(2 * math.pi) + series
    return _girih.where(tail, far_value, _girih.where(upper, high, low))


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    value = _log_ndtr(x)
    tail = x < _TAIL[x.dtype.name]
    # The density over the distribution, which grows as -x below.
    near = _girih.exp(-0.5 * x * x - value - 0.5 * math.log(2 * math.pi))
    square = 1 / _girih.where(tail, x, -100.0) ** 2
    terms = [(-1.0) ** k * math.prod(range(1, 2 * k, 2)) for k in range(7, -1, -1)]
    slope = _girih.where(tail, -x / _series(square, terms), _girih.where(tail, 0.0, near))
    return value, tangent * slope


def log_ndtr(x: _TensorLike, /) -> Tensor:
    """The logarithm of ``ndtr``, without underflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.log_ndtr([-100.0])
        tensor([-5005.524], dtype=float32)
    """
    (x,) = _real("log_ndtr", x)
    return _in_float32(_log_ndtr, x)


@custom_jvp
def _ndtri(p: Tensor) -> Tensor:
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
        value = _log_ndtr(x)
        slope = _girih.exp(-0.5 * x * x - value - 0.5 * math.log(2 * math.pi))
        error = (value - wanted) / slope
        # Halley's correction: the second derivative over the first is -(x + slope).
        x = x - error / (1 + 0.5 * error * (x + slope))
    far = _girih.where(p > 0.5, -x, x)
    ends = _girih.where(p == 0, -_INF, _girih.where(p == 1, _INF, _NAN))
    return _girih.where(inside, _girih.where(centre, near, far), ends)


@_ndtri.defjvp
def _ndtri_jvp(primals: Any, tangents: Any) -> Any:
    (p,), (tangent,) = primals, tangents
    x = _ndtri(p)
    return x, tangent * (math.sqrt(2 * math.pi) * _girih.exp(0.5 * x * x))


def ndtri(p: _TensorLike, /) -> Tensor:
    """The inverse of ``ndtr``: infinite at 0 and 1, NaN beyond.

    Args:
        p: probabilities.

    Returns:
        A tensor of the shape of p.

    Example:
        >>> gr.special.ndtri([0.5, 1.0])
        tensor([ 0., inf], dtype=float32)
    """
    (p,) = _real("ndtri", p)
    return _in_float32(_ndtri, p)


def erfcinv(x: _TensorLike, /) -> Tensor:
    """The inverse of ``erfc``, precise near 0: infinite at 0 and 2, NaN beyond.

    Args:
        x: numbers from 0 to 2.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.erfcinv([1.0, 0.0])
        tensor([ 0., inf], dtype=float32)
    """
    (x,) = _real("erfcinv", x)
    return _in_float32(lambda x: -math.sqrt(0.5) * _ndtri(0.5 * x), x)


def _expansion(order: int) -> list[float]:
    """The coefficients of the expansion of a Bessel function at infinity in powers of ``1 / x``."""
    found = [1.0]
    for k in range(1, 13):
        found.append(found[-1] * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k))
    return found[::-1]


def _scaled(function: Callable[[Tensor], Tensor], order: int, x: Tensor) -> Tensor:
    size = x.abs()
    # Below, neither factor overflows; above, the expansion's first omitted term is below rounding.
    large = size > 50
    near = _girih.where(large, 0.0, x)
    value = _girih.exp(-near.abs()) * function(near)
    far = _girih.where(large, size, 100.0)
    expanded = _series(1 / far, _expansion(order)) / _girih.sqrt(2 * math.pi * far)
    return _girih.where(large, expanded * _girih.sign(x) if order else expanded, value)


def i0e(x: _TensorLike, /) -> Tensor:
    """``exp(-|x|) * i0(x)``, without overflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.i0e([0.0, 1000.0])
        tensor([1.        , 0.01261724], dtype=float32)
    """
    (x,) = _real("i0e", x)
    return _in_float32(lambda x: _scaled(i0, 0, x), x)


def i1e(x: _TensorLike, /) -> Tensor:
    """``exp(-|x|) * i1(x)``, without overflow.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.i1e([0.0, 1000.0])
        tensor([0.        , 0.01261093], dtype=float32)
    """
    (x,) = _real("i1e", x)
    return _in_float32(lambda x: _scaled(i1, 1, x), x)


def betaln(a: _TensorLike, b: _TensorLike, /) -> Tensor:
    """The logarithm of the beta function of positive numbers.

    Args:
        a: the first arguments.
        b: the second ones; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.betaln([1.0], [1.0])
        tensor([0.], dtype=float32)
    """
    a, b = _real("betaln", a, b)
    return _in_float32(_betaln, a, b)


def _stirling(x: Tensor) -> Tensor:
    """What Stirling's formula for the logarithm of the gamma function lacks, for x above 10."""
    terms = [-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]
    return _series(1 / (x * x), terms) / x


def _betaln(a: Tensor, b: Tensor) -> Tensor:
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


def multigammaln(a: _TensorLike, /, d: int) -> Tensor:
    """The logarithm of the multivariate gamma function of d dimensions.

    Args:
        a: numbers above ``(d - 1) / 2``.
        d: the number of dimensions, at least 1.

    Returns:
        A tensor of the shape of a.

    Raises:
        InvalidArgumentError: d is not a positive integer.

    Example:
        >>> gr.special.multigammaln([2.0], 1)
        tensor([0.], dtype=float32)
    """
    (a,) = _real("multigammaln", a)
    if not isinstance(d, int) or not 1 <= d <= 1 << 16:
        raise InvalidArgumentError(f"multigammaln: d is an integer from 1 to 65536, got {d!r}")
    parts = gammaln(a[..., None] - _girih.arange(d, dtype=a.dtype) / 2).sum(-1)
    return parts + d * (d - 1) / 4 * math.log(math.pi)


#: Steps of the continued fraction, enough for parameters of some thousands.
_STEPS = {"float64": 256}


def _fraction(a: Tensor, b: Tensor, x: Tensor, steps: int) -> Tensor:
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


def _betainc(a: Tensor, b: Tensor, x: Tensor, steps: int) -> Tensor:
    valid = _girih.logical_and(_girih.logical_and(a > 0, b > 0), (x - 0.5).abs() <= 0.5)
    inside = _girih.logical_and(_girih.logical_and(x > 0, x < 1), valid)
    a, b = _girih.where(inside, a, 1.0), _girih.where(inside, b, 1.0)
    x0 = _girih.where(inside, x, 0.5)
    # The fraction converges fast below the mean; above, the function is one minus its mirror.
    mirrored = x0 > (a + 1) / (a + b + 2)
    p, q = _girih.where(mirrored, b, a), _girih.where(mirrored, a, b)
    y = _girih.where(mirrored, 1 - x0, x0)
    front = _girih.exp(xlogy(p, y) + xlog1py(q, -y) - _betaln(p, q)) / p
    value = front * _fraction(p, q, y, steps)
    value = _girih.where(mirrored, 1 - value, value)
    ends = _girih.where(valid, _girih.where(x >= 1, 1.0, 0.0), _NAN)
    return _girih.where(inside, value, ends)


def betainc(a: _TensorLike, b: _TensorLike, x: _TensorLike, /) -> Tensor:
    """The regularised incomplete beta function, with derivatives by all three arguments.

    Args:
        a: the first parameter, positive.
        b: the second parameter, positive.
        x: the upper end of the integral, from 0 to 1; shapes broadcast.

    Returns:
        A tensor of the promoted dtype; NaN where an argument is out of its range.

    Example:
        >>> gr.special.betainc([2.0], [2.0], [0.5])
        tensor([0.5], dtype=float32)
    """
    a, b, x = _real("betainc", a, b, x)
    dtype = x.dtype
    # The factor before the fraction is the exponential of large logarithms.
    a, b, x = (v.astype(_girih.float64) for v in _girih.broadcast_arrays(a, b, x))
    return _betainc(a, b, x, _STEPS.get(dtype.name, 96)).astype(dtype)


#: Bernoulli numbers over factorials, B[2k] / (2k)!.
_EULER = [
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000,
]  # fmt: skip


def _zeta(s: Tensor, q: Tensor) -> Tensor:
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


def zeta(x: _TensorLike, q: _TensorLike = 1.0, /) -> Tensor:
    """The zeta function of Hurwitz, the sum of ``(k + q) ** -x`` over k = 0, 1, 2, ...; that of
    Riemann by default.

    Args:
        x: the exponents: inf at 1, NaN below.
        q: the first terms: positive; NaN below, where the sum has a pole or none is real.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.zeta([2.0])
        tensor([1.644934], dtype=float32)
    """
    x, q = _real("zeta", x, q)

    def value(x: Tensor, q: Tensor) -> Tensor:
        valid = _girih.logical_and(_girih.logical_and(x > 1, x < _INF), q > 0)
        found = _zeta(_girih.where(valid, x, 2.0), _girih.where(valid, q, 1.0))
        pole = _girih.logical_or(x == 1, _girih.logical_and(q == 0, x > 1))
        beyond = _girih.where(q > 1, 0.0, _girih.where(q == 1, 1.0, _INF))
        other = _girih.where(_girih.logical_and(x == _INF, q > 0), beyond, _NAN)
        return _girih.where(valid, found, _girih.where(pole, _INF, other))

    return _in_float32(value, x, q)


def sinc(x: _TensorLike, /) -> Tensor:
    """``sin(pi * x) / (pi * x)``, and 1 at 0.

    Args:
        x: numbers.

    Returns:
        A tensor of the shape of x.

    Example:
        >>> gr.special.sinc([0.0, 0.5])
        tensor([1.       , 0.6366198], dtype=float32)
    """
    x = _girih.asarray(x)
    if x.dtype.name.startswith("complex"):
        zero = x == 0
        y = math.pi * _girih.where(zero, 1.0, x)
        return _girih.where(zero, 1.0, _girih.sin(y) / y)
    (x,) = _real("sinc", x)
    # Around 0 the series, whose derivatives exist there too.
    y = math.pi * x
    near = y.abs() < 0.3
    square = _girih.where(near, y * y, 0.0)
    terms = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)]
    # The distance from the nearest zero, by which sines of large arguments keep their digits.
    whole = _girih.stop_gradient(_girih.round(x))
    sign = 1 - 2 * _girih.remainder(whole, 2)
    far = _girih.where(near, 1.0, y)
    value = sign * _girih.sin(math.pi * _girih.where(near, 0.5, x - whole)) / far
    value = _girih.where(_girih.isinf(x), 0.0, value)
    return _girih.where(near, _series(square, terms), value)


def huber(delta: _TensorLike, r: _TensorLike, /) -> Tensor:
    """The Huber function: ``r**2 / 2`` up to delta, ``delta * (|r| - delta / 2)`` beyond.

    Args:
        delta: where the function becomes linear; inf for negative values.
        r: residuals; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.huber(1.0, [0.5, 3.0])
        tensor([0.125, 2.5  ], dtype=float32)
    """
    delta, r = _real("huber", delta, r)
    size = r.abs()
    value = _girih.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))
    return _girih.where(delta < 0, _INF, value)


def pseudo_huber(delta: _TensorLike, r: _TensorLike, /) -> Tensor:
    """A smooth form of the Huber function, ``delta**2 * (sqrt(1 + (r / delta)**2) - 1)``.

    Args:
        delta: where the function becomes nearly linear; inf for negative values.
        r: residuals; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.pseudo_huber(1.0, [0.0])
        tensor([0.], dtype=float32)
    """
    delta, r = _real("pseudo_huber", delta, r)
    safe = _girih.where(delta > 0, delta, 1.0)
    square = (r / safe) ** 2
    # The difference of the root and 1 without cancellation.
    value = safe * safe * (square / (_girih.sqrt(1 + square) + 1))
    value = _girih.where(_girih.logical_or(delta == 0, r == 0), 0.0, value)
    return _girih.where(delta < 0, _INF, value)


def boxcox(x: _TensorLike, lmbda: _TensorLike, /) -> Tensor:
    """The transform of Box and Cox: ``(x**lmbda - 1) / lmbda``, and ``log(x)`` for lmbda 0.

    Args:
        x: positive numbers.
        lmbda: the exponents; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.boxcox([2.0], 2.0)
        tensor([1.5], dtype=float32)
    """
    x, lmbda = _real("boxcox", x, lmbda)
    return _power(_girih.log(x), lmbda)


def boxcox1p(x: _TensorLike, lmbda: _TensorLike, /) -> Tensor:
    """The transform of Box and Cox of ``1 + x``, precise for small x.

    Args:
        x: numbers above -1.
        lmbda: the exponents; shapes broadcast.

    Returns:
        A tensor of the promoted dtype.

    Example:
        >>> gr.special.boxcox1p([1.0], 2.0)
        tensor([1.5], dtype=float32)
    """
    x, lmbda = _real("boxcox1p", x, lmbda)
    return _power(log1p(x), lmbda)


def _power(logarithm: Tensor, lmbda: Tensor) -> Tensor:
    zero = lmbda == 0
    safe = _girih.where(zero, 1.0, lmbda)
    return _girih.where(zero, logarithm, expm1(safe * logarithm) / safe)


def __getattr__(name: str) -> Any:
    from . import synonyms

    return synonyms.attribute(__name__, name)


explain_public(globals())
